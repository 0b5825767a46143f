"""Gradients of If and Loop: an If of the branches' gradients, and a Loop that runs from the last trip to the first.

The forward operators store no intermediate results of their subgraphs: the subgraphs of the gradients recompute these results
from the inputs. The forward Loop therefore returns the states before each trip as additional outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, grow, inline, remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import draws
from dovetail.ir.types import Tensor, Type
from dovetail.ops.builders import zeros_like

Adjoints = Callable[[Builder, Sequence[Value], Sequence[Value], Sequence[Value]], list[Value]]
"""``adjoints(b, outputs, deltas, sources)`` returns the gradients of ``sources`` for the gradients ``deltas`` of ``outputs``."""
Deltas = Sequence[Value | None]
"""The gradient of each output; None for an unused output."""
END = 2**63 - 1
"""The end of a slice up to the last element."""


def _refuse_random(node: Node) -> None:
    if draws(node.op, node.inputs):
        raise UnsupportedError("grad.op", "the gradient recomputes the subgraph, which must not draw random numbers")


def _is_smooth(x: Value | None) -> bool:
    return x is not None and isinstance(x.type, Tensor) and x.type.dtype is not None and x.type.dtype.is_float


def gradients_of_if(op: Any, b: Builder, adjoints: Adjoints, node: Node, g: Deltas, wanted: Sequence[bool]) -> list[Value | None]:
    """Return the gradients of the inputs of an If: the outputs of an If whose branches are the gradients of its branches."""
    _refuse_random(node)
    condition, *captures = node.inputs
    indices = [index for index, x in enumerate(captures) if wanted[1 + index] and _is_smooth(x)]
    branches = [_branch(branch, g, indices, adjoints) for branch in (op.then_branch, op.else_branch)]
    chosen = op.with_(then_branch=branches[0], else_branch=branches[1], outputs=len(indices))
    results = b.add(chosen, condition, *captures, *(delta for delta in g if delta is not None))
    result = dict(zip(indices, results, strict=True))
    return [None, *(result.get(index) for index in range(len(captures)))]


def _branch(branch: Graph, g: Deltas, indices: Sequence[int], adjoints: Adjoints) -> Graph:
    inner = Builder(f"{branch.name}_gradient")
    xs, ys = _recompute(inner, branch)
    pairs = [(y, inner.input_of("delta", delta.type)) for y, delta in zip(ys, g, strict=True) if delta is not None]
    inner.graph.outputs = adjoints(inner, [y for y, _ in pairs], [delta for _, delta in pairs], [xs[index] for index in indices])
    remove_dead(inner.graph)
    return inner.graph


def _recompute(inner: Builder, body: Graph) -> tuple[list[Value], list[Value]]:
    """Inline ``body`` into ``inner``; return new inputs, named and typed as the body's inputs, and the outputs."""
    xs = [inner.input_of(x.name, x.type) for x in body.inputs]
    for x, old in zip(xs, body.inputs, strict=True):
        if old.value is not None:
            x.value = old.value
    return xs, inline(inner, body, xs)


def gradients_of_loop(
    op: Any, b: Builder, adjoints: Adjoints, node: Node, g: Deltas, wanted: Sequence[bool]
) -> list[Value | None]:
    """Return the gradients of the inputs of a Loop: the outputs of a backward Loop that runs from the last trip to the first.

    The states of the backward Loop are the gradients of the forward states. Further states sum the gradients of the values that
    every forward trip reads unchanged. The scan outputs of the backward Loop are the gradients of the parts of the scan inputs.
    """
    _refuse_random(node)
    back = _BackwardLoop(op, b, node, g, wanted)
    return [*[None] * min(2, len(node.inputs)), *back.gradients(adjoints)]


class _BackwardLoop:
    """_BackwardLoop builds the backward Loop of the Loop ``node``.

    Indices count the inputs of ``node`` after the condition: states, scan inputs, then the values that every trip reads
    unchanged.
    """

    def __init__(self, op: Any, b: Builder, node: Node, g: Deltas, wanted: Sequence[bool]) -> None:
        self.op, self.b, self.node, self.body = op, b, node, op.body
        self.xs: list[Any] = list(node.inputs[2:])
        self.states, self.scan_inputs = range(op.carried), range(op.carried, op.carried + len(op.scan_inputs))
        self.others = range(self.scan_inputs.stop, len(self.xs))
        self.state_deltas, self.scan_deltas = list(g[: op.carried]), list(g[op.carried :])
        self.sources = self._find_sources({index for index in range(len(self.xs)) if wanted[2 + index]})
        self.state_sources = [index for index in self.states if index in self.sources]
        self.other_sources = [index for index in self.others if index in self.sources]
        self.scan_sources = [index for index in self.scan_inputs if index in self.sources]
        is_free = all(x is None for x in node.inputs[:2])
        self.is_scan = is_free and bool(op.scan_inputs) and _is_endless(self.body)

    def _find_sources(self, indices: set[int]) -> set[int]:
        """Return the indices of the float inputs among ``indices``, and of the float states that depend on these inputs."""
        inputs = self.body.inputs[1:]
        result = {index for index in indices if _is_smooth(inputs[index])}
        while True:
            reached = {id(inputs[index]) for index in result}
            for inner in self.body.nodes:
                if any(id(x) in reached for x in inner.inputs):
                    reached.update(id(y) for y in inner.outputs if _is_smooth(y))
            more = {index for index in self.states if id(self.body.outputs[1 + index]) in reached and _is_smooth(inputs[index])}
            if more <= result:
                return result
            result |= more

    def gradients(self, adjoints: Adjoints) -> list[Value | None]:
        self._check_fixed_types(self.state_sources)
        inner = Builder(f"{self.body.name}_gradient")
        trip = inner.input_of("trip", Tensor(dtypes.i64, ()))
        number = inner.input_of("number_part", Tensor(dtypes.i64, (1,)))
        stored_states = [
            inner.input_of(f"{self._body_input(index).name}_part", self._stored_type(index)) for index in self.states
        ]
        forward_inputs = [
            inner.input_of(self._body_input(index).name, self._body_input(index).type)
            for index in (*self.scan_inputs, *self.others)
        ]
        for x, index in zip(forward_inputs, (*self.scan_inputs, *self.others), strict=True):
            if index in self.others and self._body_input(index).value is not None:
                x.value = self._body_input(index).value
        xs = [*(inner.apply("Squeeze", part, [0]) if _has_rank(part) else part for part in stored_states), *forward_inputs]
        ys = inline(inner, self.body, [inner.apply("Squeeze", number, [0]), *xs])
        state_deltas = [inner.input_of("delta", self._body_input(index).type) for index in self.state_sources]
        sums = [inner.input_of("sum", self.xs[index].type) for index in self.other_sources]
        scan_deltas = [(index, delta) for index, delta in enumerate(self.scan_deltas) if delta is not None]
        parts = [inner.input_of("delta_part", ys[1 + len(self.states) + index].type) for index, _ in scan_deltas]
        ends = [*(ys[1 + index] for index in self.state_sources), *(ys[1 + len(self.states) + index] for index, _ in scan_deltas)]
        sources = [xs[index] for index in (*self.state_sources, *self.other_sources, *self.scan_sources)]
        result = adjoints(inner, ends, [*state_deltas, *parts], sources)
        state_gradients, sum_gradients = result[: len(state_deltas)], result[len(state_deltas) : len(state_deltas) + len(sums)]
        sum_gradients = [inner.apply("Add", total, more) for total, more in zip(sums, sum_gradients, strict=True)]
        condition = inner.constant(np.array(True), dtypes.boolean, "goes_on")
        inner.graph.outputs = [condition, *state_gradients, *sum_gradients, *result[len(state_deltas) + len(sums) :]]
        remove_dead(inner.graph)
        return self._loop(
            inner.graph,
            trip,
            number,
            stored_states,
            forward_inputs,
            state_deltas,
            sums,
            list(zip(scan_deltas, parts, strict=True)),
        )

    def _loop(
        self,
        body: Graph,
        trip: Value,
        number: Value,
        stored_states: list[Value],
        forward_inputs: list[Value],
        state_deltas: list[Value],
        sums: list[Value],
        scan_deltas: list[tuple[tuple[int, Value], Value]],
    ) -> list[Value | None]:
        """Emit the backward Loop with this body and return the gradient of each input, None for an input without gradient.

        The scan inputs of the backward Loop include the states that the forward Loop stores.
        """
        saved = [index for index in self.states if is_read(body, stored_states[index])]
        numbers, states = self._store_states(saved, not self.is_scan or is_read(body, number))
        rows: list[tuple[Value, Value, tuple[int, int, bool]]] = []
        if numbers is not None:
            rows.append((number, numbers, (0, 1, True)))
        rows += [(stored_states[index], stack, (0, 1, True)) for index, stack in zip(saved, states, strict=True)]
        pieces = {index: self._split_by_reads(index, numbers) for index in self.scan_inputs}
        for index in self.scan_inputs:
            axis, size, is_reversed = self.op.scan_inputs[index - self.scan_inputs.start]
            part = forward_inputs[index - self.scan_inputs.start]
            if is_read(body, part) or (not rows and not scan_deltas and index == self.scan_inputs[-1]):
                rows.append((part, pieces[index][0], (axis, size, not is_reversed)))
        for (index, delta), part in scan_deltas:
            axis, is_reversed = self.op.scan_outputs[index]
            rows.append((part, delta, (axis, self._length(index, axis), not is_reversed)))
        others = [index for index in self.others if is_read(body, forward_inputs[index - self.scan_inputs.start])]
        body.inputs = [
            trip,
            *state_deltas,
            *sums,
            *(part for part, _, _ in rows),
            *(forward_inputs[index - self.scan_inputs.start] for index in others),
        ]
        first = [self._state_delta(index) for index in self.state_sources]
        first += [zeros_like(self.b, self.xs[index]) for index in self.other_sources]
        cuts = [self.op.scan_inputs[index - self.scan_inputs.start] for index in self.scan_sources]
        back = self.op.with_(
            body=body, carried=len(first), scan_inputs=tuple(entry for _, _, entry in rows),
            scan_outputs=tuple((axis, not is_reversed) for axis, _, is_reversed in cuts), outputs=len(first) + len(cuts),
        )  # fmt: skip
        # The trip count is explicit, since not every runtime accepts a loop whose scan inputs have the length 0.
        trips = None if numbers is None else self.b.apply("Squeeze", self.b.apply("Shape", numbers, output_type=dtypes.i64), [0])
        results = self.b.add(back, trips, None, *first, *(x for _, x, _ in rows), *(self.xs[index] for index in others))
        result = dict(zip((*self.state_sources, *self.other_sources, *self.scan_sources), results, strict=True))
        result.update({index: self._append_rest(result[index], index, pieces[index][1]) for index in self.scan_sources})
        return [result.get(index) for index in range(len(self.xs))]

    def _store_states(self, saved: Sequence[int], is_numbered: bool) -> tuple[Value | None, list[Value]]:
        """Add scan outputs for each trip's number and the states before the trip to the forward Loop; return these outputs."""
        if not saved and not is_numbered:
            return None, []
        self._check_fixed_types(saved)
        body = copy_graph(self.body)
        inner = Builder(graph=body)
        xs = [body.inputs[0]] * is_numbered + [body.inputs[1 + index] for index in saved]
        body.outputs += [inner.apply("Unsqueeze", x, [0]) for x in xs]
        scan_outputs = (*self.op.scan_outputs, *((0, False),) * len(xs))
        op = self.op.with_(body=body, scan_outputs=scan_outputs, outputs=self.op.outputs + len(xs))
        results = grow(self.b.graph, self.node, op, [f"{x.name}_trips" for x in xs])
        return (results[0], results[1:]) if is_numbered else (None, results)

    def _check_fixed_types(self, indices: Sequence[int]) -> None:
        for index in indices:
            if not _has_rank(self._body_input(index)) or self._body_input(index).type != self.xs[index].type:
                name, type = self._body_input(index).name, self._body_input(index).type
                raise UnsupportedError(
                    "type.unknown", f"state {name} must keep its type {self.xs[index].type}, got {type} in the body"
                )

    def _split_by_reads(self, index: int, numbers: Value | None) -> tuple[Value, Value | None]:
        """Return the slice of a scan input that the trips read, and the unread rest (None where the trips read all of it)."""
        x = self.xs[index]
        if self.is_scan or numbers is None:
            return x, None
        axis, size, is_reversed = self.op.scan_inputs[index - self.scan_inputs.start]
        border = self.b.apply("Multiply", self.b.apply("Shape", numbers, output_type=dtypes.i64), size)
        if is_reversed:
            length = self.b.apply("Gather", self.b.apply("Shape", x, output_type=dtypes.i64), [axis], axis=0)
            border = self.b.apply("Subtract", length, border)
        front = self.b.apply("Slice", x, [0], border, [axis])
        back = self.b.apply("Slice", x, border, [END], [axis])
        return (back, front) if is_reversed else (front, back)

    def _append_rest(self, gradient: Value, index: int, rest: Value | None) -> Value:
        """Extend the gradient of a scan input by zeros for the slice ``rest`` that no trip reads."""
        if rest is None:
            return gradient
        axis, _, is_reversed = self.op.scan_inputs[index - self.scan_inputs.start]
        pair = (gradient, zeros_like(self.b, rest))
        result: Value = self.b.apply("Concat", *(reversed(pair) if is_reversed else pair), axis=axis)
        return result

    def _body_input(self, index: int) -> Value:
        result: Value = self.body.inputs[1 + index]
        return result

    def _stored_type(self, index: int) -> Type:
        """Return the type of a stored state in one trip: the state's type with a leading axis of size 1."""
        type = self._body_input(index).type
        if not isinstance(type, Tensor) or type.shape is None:
            return type
        return Tensor(type.dtype, (1, *type.shape))

    def _state_delta(self, index: int) -> Value:
        """Return the gradient of a state's value after the last trip; zeros for an unused state."""
        delta = self.state_deltas[index]
        result: Value = zeros_like(self.b, self.node.outputs[index]) if delta is None else delta
        return result

    def _length(self, index: int, axis: int) -> int:
        size = self.body.outputs[1 + len(self.states) + index].dims[axis]
        if not isinstance(size, int):
            raise UnsupportedError(
                "type.unknown", f"the size of a scan output's parts along axis {axis} must be constant, got {size}"
            )
        return size


def _has_rank(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.shape is not None


def is_read(body: Graph, value: Value) -> bool:
    return bool(value.uses) or any(value is output for output in body.outputs)


def _is_endless(body: Graph) -> bool:
    from dovetail.ops.control_flow.loop import is_endless

    return is_endless(body)
