"""Recognition of LSTMs with peepholes that were decomposed to a Loop over time steps, for formats without peepholes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.ir.dtypes import DType
from dovetail.ir.evaluate import constant_value
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ops.constant import Identity
from dovetail.ops.control_flow.loop import Loop, is_endless
from dovetail.ops.elementwise.activation import Sigmoid
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.elementwise.unary import Tanh
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.recurrent.layers import LSTM
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.concat_split import Split
from dovetail.ops.tensor.reshape import Squeeze, Unsqueeze
from dovetail.ops.tensor.slice import Slice

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder

GATES = "iof"
"""The gates with a peephole, in the order of ``LSTM``'s input p."""


class _Mismatch(Exception):
    """_Mismatch reports that a value differs from the corresponding value of an LSTM."""


def write_as_lstm(b: Builder, op: Loop, xs: Sequence[Value | None]) -> list[Value] | None:
    """Replace a Loop that computes an LSTM with peepholes and constant weights by an LSTM; return None for any other Loop."""
    if op.carried != 2 or len(op.scan_inputs) != 1 or len(op.scan_outputs) != 1 or not is_endless(op.body):
        return None
    (axis, size, is_reversed), scan_output = op.scan_inputs[0], op.scan_outputs[0]
    if (axis, size) != (0, 1) or scan_output != (0, is_reversed) or any(x is not None for x in xs[:2]):
        return None
    for order in ((0, 1), (1, 0)):
        try:
            return _write(b, _Cell(op, xs, order), xs, is_reversed)
        except _Mismatch:
            continue
    return None


def _write(b: Builder, cell: _Cell, xs: Sequence[Value | None], is_reversed: bool) -> list[Value]:
    states, projected = [xs[2 + index] for index in cell.states], xs[4]
    if projected is None or any(state is None for state in states):
        raise _Mismatch
    x, w, bias = _projection(projected)
    size, dtype = cell.size, projected.dtype
    if w.shape[0] != 4 * size or cell.r.shape != (4 * size, size):
        raise _Mismatch
    layer = LSTM(
        direction="reverse" if is_reversed else "forward",
        hidden_size=size,
        summed_bias=True,
        weights_format="".join(cell.order),
        outputs=3,
    )
    peepholes = np.concatenate([cell.peepholes[gate] for gate in GATES])
    w, r, bias, p = (None if array is None else b.constant(array[None], dtype) for array in (w, cell.r, bias, peepholes))
    initial = [None if state is None or _is_zero(state) else b.Unsqueeze(state, [0]) for state in states]
    y, *last = b.add(layer, x, w, r, bias, None, *initial, p)
    return [*(b.Squeeze(last[cell.states.index(index)], [0]) for index in range(2)), b.Squeeze(y, [1])]


def _projection(projected: Value) -> tuple[Value, Any, Any]:
    """Match ``x @ w.T + bias`` or ``x @ w.T``; return x, w, and the bias or None."""
    bias = None
    if projected.node is not None and isinstance(projected.node.op, Add):
        projected, bias = _with_constant(projected.node.inputs)
    node = projected.node
    if node is None or not isinstance(node.op, MatMul) or node.op.transpose_a:
        raise _Mismatch
    x, w = node.input(0), _matrix(node.op, node.input(1))
    if x.shape is None or len(x.shape) != 3 or (bias is not None and bias.shape != w.shape[:1]):
        raise _Mismatch
    return x, w, bias


def _matrix(op: MatMul, weights: Value) -> Any:
    """Return the constant second operand of a product, transposed so that its rows correspond to the result's columns."""
    data = weights.constant
    if data is None or data.ndim != 2:
        raise _Mismatch
    return data if op.transpose_b else np.ascontiguousarray(data.T)


def _with_constant(operands: Sequence[Value | None]) -> tuple[Value, Any]:
    """Return the operand that is not constant, and the data of the other operand."""
    for x, y in (operands, operands[::-1]):
        if x is not None and y is not None and y.constant is not None and x.constant is None:
            return x, y.constant
    raise _Mismatch


def _is_zero(state: Value) -> bool:
    return state.constant is not None and not np.any(state.constant)


class _Cell:
    """_Cell holds the parts of a Loop subgraph that computes one time step of an LSTM.

    ``states`` are the indices of h and c among the carried values. Raises _Mismatch for any other subgraph.
    """

    def __init__(self, op: Loop, xs: Sequence[Value | None], states: tuple[int, int]) -> None:
        body = op.body
        self.states = states
        self._outer = dict(zip(map(id, body.inputs[4:]), xs[5:], strict=True))
        self._h, self._c = (body.inputs[1 + index] for index in states)
        self._part = body.inputs[3]
        self._sums: Value | None = None
        self.peepholes: dict[str, Any] = {}
        h, c = (self._behind_identity(body.outputs[1 + index]) for index in states)
        part = self._behind_identity(body.outputs[3])
        if self._unary(Unsqueeze, part) is not h or _axes(part) != [0] or body.inputs[0].uses:
            raise _Mismatch
        self.size, self.dtype = self._size(h)
        gates = self._gates(h, c)
        starts = {gate: self._start(value) for gate, value in gates.items()}
        if sorted(starts.values()) != [index * self.size for index in range(4)]:
            raise _Mismatch
        self.order = sorted(starts, key=starts.__getitem__)
        self.r = self._recurrent_weights()

    def _size(self, h: Value) -> tuple[int, DType]:
        shape = h.shape
        if shape is None or len(shape) != 2 or not isinstance(shape[1], int) or h.dtype.name not in ("f32", "f64"):
            raise _Mismatch
        return shape[1], h.dtype

    def _gates(self, h: Value, c: Value) -> dict[str, Value]:
        """Match h = sigmoid(o) * tanh(c) and c = sigmoid(f) * c + sigmoid(i) * tanh(g).

        Return a dictionary of the sums o, f, i and g, with the keys o, f, i and c.
        """
        out, last = self._pair(Multiply, h, Sigmoid, Tanh)
        if last is not c:
            raise _Mismatch
        kept, new = (self._behind_identity(x) for x in self._operands(Add, c))
        if not self._has_operand(kept, self._c):
            kept, new = new, kept
        forget = self._unary(Sigmoid, self._other(Multiply, kept, self._c))
        entry, candidate = self._pair(Multiply, new, Sigmoid, Tanh)
        gates = {"c": candidate}
        for gate, value, state in (("i", entry, self._c), ("f", forget, self._c), ("o", out, c)):
            gates[gate], self.peepholes[gate] = self._with_peephole(value, state)
        return gates

    def _with_peephole(self, value: Value, state: Value) -> tuple[Value, Any]:
        """Match ``gate + factor * state``; return the gate's sum without the peephole, and the factor."""
        for gate, product in self._orders(Add, value):
            for x, factor in self._orders(Multiply, product) if self._is(Multiply, product) else ():
                data = self._constant(factor)
                if x is state and data is not None and data.size == self.size and data.shape[-1:] == (self.size,):
                    return gate, data.reshape(-1)
        raise _Mismatch

    def _start(self, gate: Value) -> int:
        """Return the first column of a gate in the tensor that holds the sums of all gates."""
        node = gate.node
        if node is None or gate.shape is None or gate.shape[-1:] != (self.size,):
            raise _Mismatch
        if isinstance(node.op, Split) and node.op.axis % 2 == 1:
            start = self.size * next(index for index, y in enumerate(node.outputs) if y is gate)
        elif isinstance(node.op, Slice):
            vectors = [None if x is None else integers_of(x) for x in node.inputs[1:]]
            starts, axes, steps = (*vectors, None, None)[0], (*vectors, None, None)[2], (*vectors, None, None)[3]
            if starts is None or len(starts) != 1 or axes not in ([1], [-1]) or steps not in ([1], None) or starts[0] < 0:
                raise _Mismatch
            start = int(starts[0])
        else:
            raise _Mismatch
        if self._sums not in (None, node.input(0)):
            raise _Mismatch
        self._sums = node.input(0)
        return start

    def _recurrent_weights(self) -> Any:
        """Match the sums of all gates with ``part + h @ r.T``; return r."""
        assert self._sums is not None
        for step, product in self._orders(Add, self._sums):
            node = product.node
            if node is None or not isinstance(node.op, MatMul) or self._behind_identity(node.input(0)) is not self._h:
                continue
            if self._unary(Squeeze, step) is self._part and _axes(step) == [0] and not node.op.transpose_a:
                return _matrix(node.op, self._outer.get(id(node.input(1))) or node.input(1))
        raise _Mismatch

    def _constant(self, value: Value) -> Any:
        return constant_value(self._outer.get(id(value)) or value)

    def _behind_identity(self, value: Value) -> Value:
        while value.node is not None and isinstance(value.node.op, Identity):
            value = value.node.input(0)
        return value

    def _is(self, kind: type[Op], value: Value) -> bool:
        return value.node is not None and type(value.node.op) is kind

    def _operands(self, kind: type[Op], value: Value) -> list[Value]:
        node = self._behind_identity(value).node
        if node is None or type(node.op) is not kind:
            raise _Mismatch
        return [self._behind_identity(x) for x in node.inputs if x is not None]

    def _orders(self, kind: type[Op], value: Value) -> list[tuple[Value, Value]]:
        """Return the two operands of a commutative operator, in both orders."""
        first, second = self._operands(kind, value)
        return [(first, second), (second, first)]

    def _unary(self, kind: type[Op], value: Value) -> Value:
        return self._operands(kind, value)[0]

    def _pair(self, kind: type[Op], value: Value, first: type[Op], second: type[Op]) -> tuple[Value, Value]:
        """Match a commutative operator on the results of ``first`` and ``second``; return the inputs of these two operators."""
        for x, y in self._orders(kind, value):
            if self._is(first, x) and self._is(second, y):
                return self._unary(first, x), self._unary(second, y)
        raise _Mismatch

    def _has_operand(self, value: Value, operand: Value) -> bool:
        return any(x is operand for x in self._operands(Multiply, value))

    def _other(self, kind: type[Op], value: Value, operand: Value) -> Value:
        """Return the operand of a commutative operator that is not ``operand``."""
        for x, y in self._orders(kind, value):
            if x is operand:
                return y
        raise _Mismatch


def _axes(value: Value) -> list[int] | None:
    node = value.node
    return None if node is None or len(node.inputs) < 2 or node.inputs[1] is None else integers_of(node.inputs[1])
