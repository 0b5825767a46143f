"""Rewrite of RNN, GRU and LSTM: one matrix product of all inputs, then a kernel that runs the time steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dovetail.engine.rewrite.integer_conv import Rescaling, integer_product
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.op import Op, Sizes
from dovetail.ir.types import Shape, Unknown, View
from dovetail.ops.recurrent.cell_math import ArrayBackend, GraphBackend, unroll
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM, QuantizedArrayBackend, QuantizedMatrix
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, X_AXES, linear_gru_step
from dovetail.ops.recurrent.layouts import convert_form, pad_inputs


class RecurrentSteps(
    Op,
    sig=(
        "projected: F, r: R, inner?: F, lengths?: I, h?: F, c?: F, p?: F, r_scale?: f32, r_zero?: i32 "
        "-> y: F, last_h: F, last_c: F"
    ),
    is_registered=False,
):
    """RecurrentSteps runs the time steps of a recurrent ``layer`` (sequence first), given W x + b of all steps.

    ``projected``, W x + b: [sequence, batch, directions * gates * hidden]. ``inner``: [directions, hidden], the recurrent bias of
    the candidate gate of a GRU, added before the reset gate is applied. ``p``: the peepholes of an LSTM. With ``r_scale`` and
    ``r_zero``, [directions, gates * hidden], r is quantized, and so is h at each time step (DynamicQuantizeLSTM). Only the engine
    uses this operator.
    """

    layer: RNN | GRU | LSTM
    outputs: int = 3

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        """Return the multiply-adds of the products with ``r``, [directions, gates * hidden, hidden]."""
        return prod((inputs[0] or ())[:2]) * prod(inputs[1] or ())

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
        p: Array = None,
        r_scale: Array = None,
        r_zero: Array = None,
    ) -> Array:
        m = ArrayBackend(xp) if r_scale is None else QuantizedArrayBackend(xp)
        layer, size = self.layer, r.shape[2]
        rows = layer.gate_count * size
        layer.check_lengths(xp, lengths, {"s": projected.shape[0]})
        outputs, last = [], []
        for direction in range(layer.directions):
            begin = [m.zeros(projected, projected, 1, size) if state is None else state[direction, ...] for state in (h, c)]
            if isinstance(layer, GRU):
                f, g = layer.make_activations(m, direction)
                recurrent = m.prepare_weights(r[direction, ...])
                step = linear_gru_step(m, f, g, recurrent, None if inner is None else inner[direction, ...], size)
            elif r_scale is None or r_zero is None:
                peepholes = [] if p is None else [p[direction, ...]]
                step, _ = layer.make_step(m, direction, size, r[direction, ...], None, *peepholes)
            else:
                weights = QuantizedMatrix(r[direction, ...].T, r_scale[direction, ...], r_zero[direction, ...])
                step, _ = layer.make_step(m, direction, size, weights, None)
            own = [projected[t, :, direction * rows : (direction + 1) * rows] for t in range(projected.shape[0])]
            backwards = layer.direction == "reverse" or direction == 1
            steps, end = unroll(m, own, step, tuple(begin[: layer.state_count]), lengths, backwards)
            outputs.append(m.stack(steps, 0) if steps else m.zeros(projected, projected, 1, size, (0,)))
            last.append(end)
        ends = [m.stack([end[index] for end in last], 0) for index in range(layer.state_count)]
        return (m.stack(outputs, 1), *ends)[: self.outputs]


class CheckedLengths(Op, sig="lengths: I -> y: I", is_registered=False):
    """CheckedLengths returns ``lengths``. Raises EngineError [attribute.range] for a length outside [0, ``steps``].

    Only the engine uses this operator.
    """

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
    """Return the inputs of a layer with a check of ``lengths``, which the operators of an unrolled layer do not make."""
    inputs = pad_inputs(op, xs)
    x, lengths = inputs[0], inputs[4]
    if x is None or lengths is None or (lengths.node is not None and isinstance(lengths.node.op, CheckedLengths)):
        return xs
    steps = x.dims[X_AXES[op.layout].index("s")]
    return [*inputs[:4], b.add(CheckedLengths(layer=op, steps=steps), lengths)[0], *inputs[5:]]


def rewrite_layer(b: Builder, op: RNN | GRU | LSTM, xs: list[Value | None]) -> Sequence[Value] | None:
    """Rewrite an f32 layer to RecurrentSteps; None where the kernel does not support the layer's cell."""
    inputs = pad_inputs(op, xs)
    x, w, r, bias, lengths, *rest = inputs
    if x is None or x.dtype.name != "f32" or x.shape is None or len(x.shape) != 3 or x.shape[0] == 0:
        return None
    size = None if r.shape is None else r.shape[2]
    # A layer without hidden units is refused where its inputs disagree.
    if not isinstance(size, int) or size == 0 or r.dtype.name != "f32" or not cell_of(op):
        return None
    if op.layout != "sequence_first":
        with b:
            return convert_form(b, op, inputs, layout="sequence_first")
    m = GraphBackend(b)
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
        layer = RecurrentSteps(layer=op, outputs=op.outputs)
        return b.add(layer, projected, r, inner, lengths, *states, *rest[op.state_count :])


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


def rewrite_quantized_layer(b: Builder, op: DynamicQuantizeLSTM, xs: list[Value | None]) -> Sequence[Value] | None:
    """Rewrite DynamicQuantizeLSTM to RecurrentSteps; None where the kernel lacks the cell or weights are not constant."""
    x, w, r, bias, lengths, h, c, peepholes, *parameters = pad_inputs(op, xs)
    if x is None or w is None or r is None or x.shape is None or len(x.shape) != 3 or x.shape[0] == 0:
        return None
    if not cell_of(op) or op.layout != "sequence_first" or lengths is not None or peepholes is not None:
        return None
    if any(value is not None and value.constant is None for value in (w, r, bias, *parameters)):
        return None
    w_scale, w_zero, r_scale, r_zero = (None if value is None else value.constant for value in parameters)
    columns = op.gate_count * r.constant.shape[1]
    per_column: list[Array] = [
        _per_column(array, op.directions, columns, dtype)
        for array, dtype in ((w_scale, np.float32), (w_zero, np.int32), (r_scale, np.float32), (r_zero, np.int32))
    ]
    if any(array is None for array in per_column):
        return None
    w_scale, w_zero, r_scale, r_zero = per_column
    summed = None if bias is None else bias.constant
    if summed is not None and not op.summed_bias:
        summed = summed[:, :columns] + summed[:, columns:]
    matrix = np.ascontiguousarray(np.moveaxis(w.constant, 0, 1)).reshape(w.constant.shape[1], -1)
    steps = np.ascontiguousarray(np.moveaxis(r.constant, 1, 2))
    # Constants of arrays that cannot be written need no copies.
    matrix.flags.writeable = steps.flags.writeable = False
    codes, scale, point = b.DynamicQuantizeLinear(x)
    rescaling = Rescaling(scale, w_scale.reshape(-1), None if summed is None else summed.reshape(-1))
    projected = integer_product(b, codes, b.constant(matrix), point, b.constant(w_zero.reshape(-1)), rescaling)
    if projected is None:
        return None
    recurrent = b.constant(steps)
    layer = RecurrentSteps(layer=op, outputs=op.outputs)
    return b.add(layer, projected, recurrent, None, None, h, c, None, b.constant(r_scale), b.constant(r_zero))


def _per_column(values: Array, directions: int, columns: int, dtype: type) -> Array:
    """Broadcast scales or zero points, one per direction or per column, to [directions, columns]; None for other shapes."""
    if values is None:
        return np.zeros((directions, columns), dtype)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[0] != directions or values.shape[1] not in (1, columns):
        return None
    return np.array(np.broadcast_to(values, (directions, columns)), dtype)
