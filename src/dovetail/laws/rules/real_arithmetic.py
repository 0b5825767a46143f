"""Rewrites over the real numbers: sums and products in one order, with one constant; quotients and powers as products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Size, Tensor, Type, broadcast
from dovetail.laws.law import Result
from dovetail.laws.rules.arithmetic import is_all, is_plain
from dovetail.laws.rules.movement import reshape
from dovetail.laws.rules.slices import slice_axes, spans_of_operands
from dovetail.laws.terms.terms import Rule, Terms, known_elements
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.elementwise.unary import Reciprocal
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.nn.conv import Conv
from dovetail.ops.reduction.reduce import Reduction
from dovetail.ops.reduction.softmax import LogSoftmax, Softmax
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.transpose_expand_tile import Transpose

MAX_OPERANDS = 128
"""Maximum number of operands of a sum or product that is put into one order."""


def operands_of(x: Value, kind: type[Op]) -> list[Value]:
    """Return the leaf operands, from left to right, of a tree of one associative operator."""
    found: list[Value] = []
    stack = [x]
    while stack and len(found) < MAX_OPERANDS:
        value = stack.pop()
        if value.node is not None and type(value.node.op) is kind:
            stack.extend(item for item in reversed(value.node.inputs) if item is not None)
        else:
            found.append(value)
    return [*found, *stack]


def chain_of(b: Terms, kind: type[Op], operands: Sequence[Value]) -> Value | None:
    """Return the chain of an operator over operands sorted by number; all constants are folded into one at the end."""
    constants = [x for x in operands if x.constant is not None]
    values = sorted((x for x in operands if x.constant is None), key=b.number_of)
    total: Value | None = None
    for x in constants:
        if total is None:
            total = x
            continue
        folded = b.fold_constants(kind(), [total, x])
        if folded is None:
            return None
        total = folded[0]
    if total is not None and not (values and _is_neutral(kind, total, values)):
        values.append(total)
    result: Value = values[0]
    for x in values[1:]:
        first, second = sorted((result, x), key=b.number_of)
        result = b.plain(kind(), [first, second])
    return result


def _is_neutral(kind: type[Op], constant: Value, values: Sequence[Value]) -> bool:
    """Return whether a constant changes neither the elements nor the shape of a sum or product."""
    shape = broadcast(*(x.shape for x in values))
    whole = broadcast(constant.shape, shape)  # type: ignore[arg-type]
    return is_all(constant, 0.0 if kind is Add else 1.0) and whole == shape and shape is not None


def order_chain(kind: type[Op]) -> Rule:
    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        return _sort_operands(b, kind, xs) if is_plain(types[0]) else None

    return rule


def order_integers(kind: type[Op]) -> Rule:
    """Return the rule that orders the operands of a sum or product of integers, which wrap to the same bits in any order."""

    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        return _sort_operands(b, kind, xs) if _is_integer(types[0]) else None

    return rule


def _sort_operands(b: Terms, kind: type[Op], xs: Sequence[Value | None]) -> Result:
    operands = [item for x in xs if x is not None for item in operands_of(x, kind)]
    if len(operands) > MAX_OPERANDS:
        return None
    if len(operands) < 3 and not any(_is_zero_or_one(kind, x) for x in operands):
        return None
    return chain_of(b, kind, operands)


def _is_integer(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype is not None and type.dtype.is_integer and type.dtype.bits >= 8


def _is_zero_or_one(kind: type[Op], x: Value) -> bool:
    return x.constant is not None and is_all(x, 0.0 if kind is Add else 1.0)


def _scalar(x: Value | None) -> float | None:
    data = None if x is None else x.constant
    return float(np.asarray(data, np.float64).reshape(-1)[0]) if data is not None and data.size == 1 else None


def write_quotient(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite x / y as x * (1 / y)."""
    x, y = xs
    if not is_plain(types[0]) or x is None or y is None:
        return None
    return b.Multiply(x, b.Reciprocal(y))


def write_power(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite powers with the exponents 2, 3, 1/2, -1 and -1/2 as products, roots and reciprocals."""
    x, exponent = xs[0], _scalar(xs[1])
    if x is None or exponent is None or not is_plain(types[0]) or x.shape is None:
        return None
    if xs[1] is not None and xs[1].shape is not None and len(xs[1].shape) > len(x.shape):
        return None
    if exponent == 2:
        return b.Multiply(x, x)
    if exponent == 3:
        return b.Multiply(b.Multiply(x, x), x)
    if exponent == 0.5:
        return b.Sqrt(x)
    if exponent == -1:
        return b.Reciprocal(x)
    return b.Reciprocal(b.Sqrt(x)) if exponent == -0.5 else None


def write_negative(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite -x as x * -1."""
    x = xs[0]
    return b.Multiply(x, b.constant(np.array(-1, x.dtype.numpy), x.dtype)) if x is not None and is_plain(types[0]) else None


def write_reciprocal(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite 1 / (x * y) as (1 / x) * (1 / y), and 1 / (1 / x) as x."""
    x = xs[0]
    if x is None or x.node is None or not is_plain(types[0]):
        return None
    if isinstance(x.node.op, Reciprocal):
        return x.node.input(0)
    if isinstance(x.node.op, Multiply):
        return b.Multiply(b.Reciprocal(x.node.input(0)), b.Reciprocal(x.node.input(1)))
    return None


def distribute(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite the product of a constant and a sum as a sum of products."""
    if not is_plain(types[0]):
        return None
    for index in (0, 1):
        factor, other = xs[index], xs[1 - index]
        if factor is None or other is None or factor.constant is None:
            continue
        if other.node is not None and isinstance(other.node.op, Add):
            return b.Add(b.Multiply(other.node.input(0), factor), b.Multiply(other.node.input(1), factor))
    return None


def write_difference(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x, y = xs
    return b.Add(x, b.Negative(y)) if x is not None and y is not None and is_plain(types[0]) else None


def scale_weights(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a Conv or MatMul multiplied by constants per channel as a Conv or MatMul with scaled weights."""
    for index in (0, 1):
        factor, other = xs[index], xs[1 - index]
        if factor is None or other is None or factor.constant is None or other.node is None or factor.shape is None:
            continue
        layer, squeezed = other.node, other
        if isinstance(layer.op, Reshape) and layer.input(0).node is not None:
            factor, other = _unsqueeze_factor(b, factor, other)
            if factor is None or factor.shape is None or other.node is None:
                continue
            layer = other.node
        if not isinstance(layer.op, Conv | MatMul) or other.shape is None or not is_plain(types[0]):
            continue
        weights, rank = layer.input(1), len(other.shape)
        if weights.constant is None or layer.input(0).constant is not None or len(weights.dims) < 2 or len(layer.inputs) > 2:
            continue
        axis = 1 if isinstance(layer.op, Conv) else rank - 1
        if factor.shape is None:
            continue
        sizes = (1,) * (rank - len(factor.shape)) + factor.shape
        if len(sizes) > rank or any(size != 1 for position, size in enumerate(sizes) if position != axis):
            continue
        shape: Shape = (
            (sizes[axis], *(1,) * (len(weights.dims) - 1)) if axis == 1 and isinstance(layer.op, Conv) else (sizes[axis],)
        )
        folded = b.fold_constants(Multiply(), [weights, reshape(b, factor, shape)])
        if folded is not None:
            return reshape(b, b.add(layer.op, layer.input(0), folded[0])[0], squeezed.dims)
    return None


def scale_weights_before(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a Conv or MatMul of x * c, with a scalar constant c, and constant weights as that of x and scaled weights.

    Between the product and the layer may be a Reshape or a Transpose.
    """
    x, weights = xs[0], xs[1]
    if len(xs) > 2 or x is None or x.node is None or weights is None or weights.constant is None or not is_plain(types[0]):
        return None
    product = x.node.input(0) if isinstance(x.node.op, Reshape | Transpose) else x
    if product.node is None or not isinstance(product.node.op, Multiply):
        return None
    for factor, other in (product.node.inputs, product.node.inputs[::-1]):
        if factor is None or factor.constant is None or factor.shape != () or other is None or other.shape != product.shape:
            continue
        folded = b.fold_constants(Multiply(), [weights, factor])
        if folded is not None:
            moved = other if product is x else b.add(x.node.op, other, *x.node.inputs[1:])[0]
            return b.add(op, moved, folded[0])
    return None


def _unsqueeze_factor(b: Terms, factor: Value, squeezed: Value) -> tuple[Value | None, Value]:
    """Reshape a factor of a squeezed value to fit the value before the squeeze.

    Returns the factor, which is None if it does not fit, and the value before the squeeze.
    """
    assert squeezed.node is not None
    whole = squeezed.node.input(0)
    kept = [axis for axis, size in enumerate(whole.dims) if not (isinstance(size, int) and size == 1)]
    if tuple(whole.dims[axis] for axis in kept) != squeezed.dims or factor.shape is None or len(factor.shape) > len(kept):
        return None, whole
    sizes: list[Size] = [1] * len(whole.dims)
    for axis, size in zip(kept[len(kept) - len(factor.shape) :], factor.shape, strict=True):
        sizes[axis] = size
    return reshape(b, factor, tuple(sizes)), whole


def slice_reduction(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a slice of a reduction or Softmax as the reduction or Softmax of a slice."""
    x, spans = xs[0], spans_of_operands(xs)
    if x is None or x.node is None or spans is None:
        return None
    node = x.node
    if isinstance(node.op, Softmax | LogSoftmax) and not node.op.coerce_to_2d:
        axes: tuple[Size, ...] | None = (node.op.axis % len(x.dims),)
    elif isinstance(node.op, Reduction) and node.op.keepdims:
        axes = known_elements(node.input(1)) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    else:
        return None
    if axes is None or set(axes) & set(spans) or any(not isinstance(axis, int) for axis in axes):
        return None
    return b.add(node.op, slice_axes(b, node.input(0), spans), *node.inputs[1:])


def slice_product(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a slice of a MatMul as the MatMul of slices."""
    x = xs[0]
    if x is None or x.node is None or not isinstance(x.node.op, MatMul) or x.shape is None or len(x.shape) < 2:
        return None
    left, right, spans = x.node.input(0), x.node.input(1), spans_of_operands(xs)
    if spans is None or len(left.dims) < 2 or len(right.dims) < 2:
        return None
    rank = len(x.shape)
    rows, columns = spans.get(rank - 2), spans.get(rank - 1)
    if set(spans) - {rank - 2, rank - 1}:
        return None
    if rows is not None:
        left = slice_axes(b, left, {len(left.dims) - 2: rows})
    if columns is not None:
        right = slice_axes(b, right, {len(right.dims) - 1: columns})
    return b.add(x.node.op, left, right)
