"""Rewrite of RNN, GRU and LSTM: one matrix product of all inputs, then a kernel that runs the time steps."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Unknown, View
from dovetail.ops.recurrent.cell_math import ArrayBackend, GraphBackend, unroll
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, X_AXES, linear_gru_step
from dovetail.ops.recurrent.layouts import convert_form, pad_inputs


class RecurrentSteps(
    Op,
    sig="projected: F, r: F, inner?: F, lengths?: I, h?: F, c?: F -> y: F, last_h: F, last_c: F",
    is_registered=False,
):
    """The time steps of a recurrent ``layer`` (sequence first), given W x + b of all steps. An operator of the engine alone.

    ``projected``, W x + b: [sequence, batch, directions * gates * hidden]. ``inner``: [directions, hidden], the recurrent bias of
    the candidate gate of a GRU, added before the reset gate is applied.
    """

    layer: RNN | GRU | LSTM
    outputs: int = 3

    def shape(self, projected: View, r: View, *rest: View | None) -> list[Shape]:
        length, batch, _ = projected.dims
        directions, hidden = self.layer.directions, r.dims[2]
        state = (directions, batch, hidden)
        return [(length, directions, batch, hidden), state, state][: self.outputs]

    def evaluate(
        self,
        xp: Namespace,
        projected: Array,
        r: Array,
        inner: Array = None,
        lengths: Array = None,
        h: Array = None,
        c: Array = None,
    ) -> Array:
        m, layer, size = ArrayBackend(xp), self.layer, r.shape[2]
        rows = layer.gate_count * size
        layer.check_lengths(xp, lengths, {"s": projected.shape[0]})
        outputs, last = [], []
        for direction in range(layer.directions):
            begin = [m.zeros(projected, projected, 1, size) if state is None else state[direction, ...] for state in (h, c)]
            if isinstance(layer, GRU):
                f, g = layer.make_activations(m, direction)
                recurrent = m.prepare_weights(r[direction, ...])
                step = linear_gru_step(m, f, g, recurrent, None if inner is None else inner[direction, ...], size)
            else:
                step, _ = layer.make_step(m, direction, size, r[direction, ...], None)
            own = [projected[t, :, direction * rows : (direction + 1) * rows] for t in range(projected.shape[0])]
            backwards = layer.direction == "reverse" or direction == 1
            steps, end = unroll(m, own, step, tuple(begin[: layer.state_count]), lengths, backwards)
            outputs.append(m.stack(steps, 0) if steps else m.zeros(projected, projected, 1, size, (0,)))
            last.append(end)
        ends = [m.stack([end[index] for end in last], 0) for index in range(layer.state_count)]
        return (m.stack(outputs, 1), *ends)[: self.outputs]


class CheckedLengths(Op, sig="lengths: I -> y: I", is_registered=False):
    """``lengths``, each in [0, ``steps``]. An operator of the engine alone. Raises EngineError [recurrent.lengths]."""

    layer: RNN | GRU | LSTM
    steps: int

    def shape(self, lengths: View) -> Shape | None:
        return lengths.shape

    def value(self, lengths: View) -> Array:
        # Constant folding would remove the check.
        raise Unknown

    def evaluate(self, xp: Namespace, lengths: Array) -> Array:
        self.layer.check_lengths(xp, lengths, {"s": self.steps})
        return lengths


def with_checked_lengths(b: Builder, op: RNN | GRU | LSTM, xs: list[Value | None]) -> list[Value | None]:
    """Return the inputs of a layer that is unrolled, with a check of its lengths, which the unrolled operators lack."""
    inputs = pad_inputs(op, xs)
    x, lengths = inputs[0], inputs[4]
    if x is None or lengths is None or (lengths.node is not None and isinstance(lengths.node.op, CheckedLengths)):
        return xs
    steps = x.dims[X_AXES[op.layout].index("s")]
    return [*inputs[:4], b.add(CheckedLengths(layer=op, steps=steps), lengths)[0], *inputs[5:]]


def rewrite_layer(b: Builder, op: RNN | GRU | LSTM, xs: list[Value | None]) -> Sequence[Value] | None:
    """Return a layer of f32 as RecurrentSteps, where the kernel has its cell; else None."""
    inputs = pad_inputs(op, xs)
    x, w, r, bias, lengths, *rest = inputs
    if x is None or x.dtype.name != "f32" or x.shape is None or len(x.shape) != 3 or x.shape[0] == 0 or r.constant is None:
        return None
    if not cell_of(op) or any(value is not None for value in rest[op.state_count :]):
        return None
    if op.layout != "sequence_first":
        with b:
            return convert_form(b, op, inputs, layout="sequence_first")
    m, size = GraphBackend(b), r.constant.shape[2]
    with b:
        weights = b.Reshape(w, [op.directions * op.gate_count * size, -1])
        projected = b.MatMul(x, weights, transpose_b=True)
        inner = None
        if bias is not None:
            biases = [m.index(bias, direction) for direction in range(op.directions)]
            projected = projected + m.concat([op.input_bias(m, part, size) for part in biases], 0)
            if isinstance(op, GRU):
                inner = m.stack([part[-size:] for part in biases], 0)
        states = [*rest[: op.state_count], None][:2]
        return b.add(RecurrentSteps(layer=op, outputs=op.outputs), projected, r, inner, lengths, *states)


def cell_of(op: RNN | GRU | LSTM) -> str:
    """Return the kernel's name for the cell of a layer; empty for a cell without a kernel."""
    names = [tuple(name for name, _, _ in op.activations_of(direction)) for direction in range(op.directions)]
    defaults = op.default_activations
    if op.clip:
        return ""
    if isinstance(op, RNN):
        functions = {name for direction in names for name in direction[: len(defaults)]}
        return functions.pop() if functions in ({"tanh"}, {"relu"}) else ""
    if any(direction != defaults for direction in names):
        return ""
    return "lstm" if isinstance(op, LSTM) else "gru" if isinstance(op, GRU) and op.linear_before_reset else ""
