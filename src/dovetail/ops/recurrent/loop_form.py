"""Lowering of a recurrent layer to a Loop over time steps, for long sequences or a length known only at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.evaluate import constant_value
from dovetail.ir.graph import Value
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.recurrent.cell_math import Data, GraphBackend, Step, unroll

MakeStep = Callable[..., tuple[Step, Any]]
"""Function from a backend, and a cell's weights as values of this backend, to the cell's step function and input bias."""


def loop_over_time(
    m: GraphBackend,
    make_step: MakeStep,
    projected: Value,
    weights: list[Data],
    states: tuple[Data, ...],
    lengths: Data,
    is_reverse: bool,
) -> tuple[Value, tuple[Value, ...]]:
    """Emit a Loop over the time steps, and return the stacked outputs and the last states, as ``unroll`` does.

    The Loop scans ``projected`` [time steps, batch, gates * hidden]. ``weights`` are the weights, bias and peepholes of one
    direction; each time step reads all of them.
    """
    b = m.b
    body = _LoopBody(type(m))
    body.b.input("trip", dtypes.i64, ())
    states_before = tuple(body.input(state) for state in states)
    projected_step = body.input(projected, part=True)
    scanned = [projected]
    step_index = None
    if lengths is not None:
        step_indices = b.Range(b.constant(0), b.Squeeze(shape_value(b, projected, [0]), [0]), b.constant(1))
        scanned.append(b.Cast(step_indices, to=lengths.dtype))
        step_index = body.input(scanned[-1], part=True)
        has_steps = _reaches_a_step(m, lengths, projected)
        states = tuple(b.Where(has_steps, state, state * 0) for state in states)
    captured_weights = [body.capture(piece) for piece in weights]
    captured_lengths = body.capture(lengths)
    with body.b:
        step, _ = make_step(body.m, *captured_weights)
        output, states_after = _write_step(
            body.m, body.b.Squeeze(projected_step, [0]), step, states_before, captured_lengths, step_index
        )
        outputs = [body.b.constant(True), *states_after, body.b.Unsqueeze(output, [0])]
    body.b.graph.outputs = body.make_distinct(outputs)
    count = len(states)
    loop = Loop(
        body=body.b.graph,
        carried=count,
        scan_inputs=((0, 1, is_reverse),) * len(scanned),
        scan_outputs=((0, is_reverse),),
        outputs=count + 1,
    )
    *last, y = b.add(loop, None, None, *states, *scanned, *body.captures)
    return y, tuple(last)


def _reaches_a_step(m: GraphBackend, lengths: Value, projected: Value) -> Any:
    """Return a mask of the batch rows whose sequences have a time step; true for all rows if there are no time steps."""
    shape = projected.shape
    if shape is not None and isinstance(shape[0], int) and shape[0] > 0:
        return m.is_active(lengths, 0)
    first = m.b.Minimum(m.b.Cast(m.b.Squeeze(shape_value(m.b, projected, [0]), [0]), to=lengths.dtype), 1)
    return m.b.GreaterEqual(m.b.Unsqueeze(lengths, [1]), first)


def _write_step(
    m: GraphBackend, projected: Data, step: Step, states: tuple[Data, ...], lengths: Data, step_index: Data
) -> tuple[Any, tuple[Any, ...]]:
    """Emit one time step, and return the output and the next states.

    For batch rows whose sequence is over, the output is 0 and the states are unchanged.
    """
    if lengths is None:
        (output,), states_after = unroll(m, [projected], step, states, None, False)
        return output, states_after
    next_states = step(projected, *states)
    is_active = m.is_active(lengths, step_index)
    states_after = tuple(m.where(is_active, state, old) for state, old in zip(next_states, states, strict=True))
    return m.where(is_active, next_states[0], states[0] * 0), states_after


class _LoopBody:
    """_LoopBody is a Loop subgraph under construction: a Builder, the backend that emits into it, and captured outer values."""

    def __init__(self, backend: type[GraphBackend]) -> None:
        self.b = Builder("step")
        self.m = backend(self.b)
        self.captures: list[Value] = []

    def input(self, value: Value, part: bool = False) -> Value:
        """Add an input with the type of ``value`` or, with ``part``, with the type of a slice of size 1 along axis 0."""
        shape = value.shape
        sizes = shape if shape is None or not part else (1, *shape[1:])
        return self.b.input(f"x{len(self.b.graph.inputs)}", value.dtype, sizes)

    def capture(self, item: Data) -> Any:
        """Return ``item`` inside the subgraph: copy a constant, add an input for any other value, capture a tuple's items."""
        if item is None:
            return None
        if isinstance(item, tuple):
            return type(item)(*map(self.capture, item))
        constant = constant_value(item)
        if constant is not None:
            return self.b.constant(constant, item.dtype)
        self.captures.append(item)
        return self.input(item)

    def make_distinct(self, values: list[Value]) -> list[Value]:
        """Return the outputs, with an Identity of each value that is an input or an earlier output."""
        outputs: list[Value] = []
        for value in values:
            is_taken = any(value is other for other in (*outputs, *self.b.graph.inputs))
            outputs.append(self.b.Identity(value) if is_taken else value)
        return outputs
