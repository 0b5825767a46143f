"""Exact rules of elementwise operators: one order and one form of operands, absorbing constants, and equivalent operators."""

from __future__ import annotations

import numpy as np

from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, are_equal_shapes, broadcast
from dovetail.laws.law import Result, producer
from dovetail.laws.rules.movement import expand, reshape, uniform_scalar, without_expand, without_leading_ones
from dovetail.laws.terms.terms import Rule, Terms, known_shape
from dovetail.ops.elementwise import operand_laws
from dovetail.ops.elementwise.binary import (
    Add,
    Multiply,
    Subtract,
)
from dovetail.ops.elementwise.broadcast import BroadcastingOp
from dovetail.ops.elementwise.clip import finite_range
from dovetail.ops.elementwise.logical import (
    Equal,
    IsNaN,
    Not,
)
from dovetail.ops.elementwise.unary import Negative
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.transpose_expand_tile import Expand, Transpose

PLAIN = ("f32", "f64")
"""Float types in which operators compute without an intermediate type."""


def is_plain(type: Type) -> bool:
    """Return whether a type is a tensor of floats in which operators compute without an intermediate type."""
    return isinstance(type, Tensor) and type.dtype is not None and type.dtype.name in PLAIN


def broadcast_operands(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop Expand and leading axes of size 1 of operands that broadcast; constants that repeat one element become scalars."""
    if not isinstance(types[0], Tensor) or types[0].shape is None:
        return None
    shape = types[0].shape
    new = [x for x in xs if x is not None]
    shapes = [known_shape(x) for x in new]
    if len(new) != len(xs) or any(each is None for each in shapes):
        return None
    for index, x in enumerate(new):
        for candidate in _narrower(b, x):
            others = [known_shape(y) for position, y in enumerate(new) if position != index]
            result = broadcast(known_shape(candidate), *others)
            if result is not None and None not in result and are_equal_shapes(result, shape):  # type: ignore[arg-type]
                new[index] = candidate
                break
    if all(x is y for x, y in zip(new, xs, strict=True)):
        return None
    return b.term(op.with_(broadcast=True) if getattr(op, "broadcast", True) is False else op, list(new))


def _narrower(b: Terms, x: Value) -> list[Value]:
    """Return smaller values that broadcast to the operand ``x``, the smallest first."""
    forms = []
    scalar = uniform_scalar(b, x)
    if scalar is not x:
        forms.append(scalar)
    if (found := without_expand(x)) is not None:
        inner = reshape(b, *found)
        forms += [without_leading_ones(b, inner), inner]
    short = without_leading_ones(b, x)
    if short is not x:
        forms.append(short)
    return forms


def order_operands(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Return the term of an operator; the operands of a commutative operator are sorted by their numbers in the table."""
    operands = [x for x in xs if x is not None]
    if len(operands) < len(xs):
        return None
    op = op.with_(broadcast=True)
    return b.intern(op, [*sorted(operands, key=b.number_of)] if op.is_commutative(*operands) else [*operands], types)


def is_all(value: Value | None, number: float, sign: bool | None = None) -> bool:
    """Return whether all elements of a constant equal ``number``; ``sign`` is the required sign bit of float zeros."""
    return value is not None and operand_laws.is_all(value.constant, number, sign)


def choose_by_negation(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite Where(Not(c), x, y) as Where(c, y, x); a Reshape, Transpose or Expand may be behind Not."""
    condition, first, second = xs
    negated = None if condition is None else _negate_condition(b, condition)
    return None if negated is None else b.add(op, negated, second, first)


def _negate_condition(b: Terms, condition: Value) -> Value | None:
    """Return the condition of a Not whose elements are moved; None for other conditions."""
    if (inner := producer(condition, Not)) is not None:
        return inner.input(0)
    moved = producer(condition, (Reshape, Transpose, Expand))
    negated = None if moved is None else _negate_condition(b, moved.input(0))
    return None if moved is None or negated is None else b.add(moved.op, negated, *moved.inputs[1:])[0]


def mirror_comparison(kind: type[Op]) -> Rule:
    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        return b.add(kind(), xs[1], xs[0])

    return rule


def write_not_equal(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    return b.add(Not(), b.add(Equal(), *xs)[0])


def write_absorbing(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Replace an operator by a constant if a constant operand alone determines every element, such as 0 in an And."""
    assert isinstance(op, BroadcastingOp)
    if not isinstance(types[0], Tensor) or types[0].dtype is None or types[0].shape is None:
        return None
    for law in op.absorbing:
        constant, other = xs[law.index], xs[1 - law.index]
        if constant is not None and other is not None and law.holds(other.dtype, constant.constant, constant.dtype):
            return expand(b, b.constant(np.asarray(law.number, types[0].dtype.numpy), types[0].dtype), types[0].shape)
    return None


def compare_with_itself(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite x == x of floats as Not(IsNaN(x))."""
    x, y = xs
    return b.add(Not(), b.add(IsNaN(), x)[0]) if x is y and x is not None and x.dtype.is_float else None


def subtract_as_add(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite x - y as x + (-y): equal in IEEE 754, and in signed integers, which wrap to the same bits."""
    x, y = xs
    if x is None or y is None or not (is_plain(types[0]) or _is_signed(types[0])):
        return None
    return b.add(Add(), x, b.add(Negative(), y)[0])


def negate(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite x * -1 as -x; rules over the real numbers rewrite the other way in f32 and f64."""
    if is_plain(types[0]) or not isinstance(types[0], Tensor) or types[0].dtype is None:
        return None
    if not _is_signed(types[0]) and not types[0].dtype.is_float:
        return None
    for factor, x in (xs, xs[::-1]):
        if x is not None and factor is not None and is_all(factor, -1) and are_equal_shapes(x.shape, types[0].shape):
            return b.add(Negative(), x)
    return None


def _is_signed(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype is not None and type.dtype.name in ("i8", "i16", "i32", "i64")


def write_chain(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite an operator of more than two operands as a chain of operators of two operands, in order."""
    if len(xs) <= 2:
        return None
    first, second, *rest = xs
    result = b.add(op.with_(broadcast=True), first, second)[0]
    for x in rest:
        result = b.add(op.with_(broadcast=True), result, x)[0]
    return result


def write_sum(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    if not isinstance(types[0], Tensor) or types[0].dtype is None or types[0].dtype.name not in PLAIN:
        return None
    result = xs[0]
    for x in xs[1:]:
        result = b.add(Add(), result, x)[0]
    return result


def write_squared_difference(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    if not isinstance(types[0], Tensor) or types[0].dtype is None or types[0].dtype.name not in PLAIN:
        return None
    difference = b.add(Subtract(), *xs)[0]
    return b.add(Multiply(), difference, difference)


def divide_by_power_of_two(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a quotient by powers of two as a product, which has the same rounding."""
    x, y = xs
    data = None if y is None else y.constant
    if data is None or y is None or y.dtype.name not in PLAIN or not data.size or data.size > 1 << 16:
        return None
    mantissa, exponent = np.frexp(data)
    if not bool(np.all(np.abs(mantissa) == 0.5)) or not bool(np.all(np.abs(exponent) < 100)):
        return None
    return b.add(Multiply(), x, b.constant((1 / data.astype(np.float64)).astype(data.dtype), y.dtype))


def write_both_bounds(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Add an omitted bound of Clip: the lowest or the highest finite value of the type."""
    x, low, high = (*xs, None, None)[:3]
    if x is None or (low is not None and high is not None) or not isinstance(x.type, Tensor) or x.type.dtype is None:
        return None
    dtype = x.type.dtype
    bounds = [
        b.constant(np.asarray(number, dtype.numpy), dtype) if bound is None else bound
        for bound, number in zip((low, high), finite_range(dtype), strict=True)
    ]
    return b.add(op, x, *bounds)


def write_clip_as_extrema(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite Clip as Maximum and Minimum; a bound that is the lowest or the highest finite value of the type is no bound."""
    x, low, high = (*xs, None, None)[:3]
    if x is None or not is_plain(types[0]):
        return None
    lowest, highest = finite_range(x.dtype)
    result = x if low is None or is_all(low, float(lowest)) else b.Maximum(x, low)
    return result if high is None or is_all(high, float(highest)) else b.Minimum(result, high)


def write_logical(kind: type[Op]) -> Rule:
    """Return the rule that rewrites a bitwise operator of booleans as the logical operator ``kind``."""

    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        return b.add(kind(), *xs) if isinstance(types[0], Tensor) and types[0].dtype == "boolean" else None

    return rule
