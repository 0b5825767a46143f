"""Exact rules of elementwise operators: operands in one order and of one form, neutral operands, and inverse pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.equality.rules.movement import expand, uniform_scalar, without_leading_ones
from dovetail.equality.terms import Result, Rule, Terms, are_equal_shapes, known_shape
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, broadcast
from dovetail.ops.elementwise.activation import PRelu, Relu
from dovetail.ops.elementwise.binary import (
    Add,
    Divide,
    Maximum,
    Mean,
    Minimum,
    Mod,
    Multiply,
    Power,
    SquaredDifference,
    Subtract,
    Sum,
)
from dovetail.ops.elementwise.bitwise import BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor
from dovetail.ops.elementwise.clip import Clip, finite_range
from dovetail.ops.elementwise.logical import (
    And,
    Equal,
    Greater,
    GreaterEqual,
    IsNaN,
    Less,
    LessEqual,
    Not,
    NotEqual,
    Or,
    Where,
    Xor,
)
from dovetail.ops.elementwise.unary import Abs, Negative
from dovetail.ops.linalg.matmul import Gemm
from dovetail.ops.tensor.transpose_expand_tile import Expand

PLAIN = ("f32", "f64")
"""Float types in which every operator computes, without an intermediate type."""


def _operands(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop what broadcasting does anyway: Expand, leading axes of size 1, and constants that repeat one element."""
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
    """Return forms of an operand that broadcast to it, the shortest first."""
    forms = []
    scalar = uniform_scalar(b, x)
    if scalar is not x:
        forms.append(scalar)
    if x.node is not None and isinstance(x.node.op, Expand):
        inner = x.node.input(0)
        forms += [without_leading_ones(b, inner), inner]
    short = without_leading_ones(b, x)
    if short is not x:
        forms.append(short)
    return forms


def _order_operands(b: Terms, op: Op, xs: list[Value], types: list[Type]) -> Result:
    """Intern an operator with the operands of a commutative one in the order of the table."""
    if op.is_commutative(*xs):
        xs = sorted(xs, key=b.number_of)
    return b.intern(op, list(xs), types)


def _order(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    operands = [x for x in xs if x is not None]
    return (
        _order_operands(b, op.with_(broadcast=True) if hasattr(op, "broadcast") else op, operands, types)
        if len(operands) == len(xs)
        else None
    )


def is_all(value: Value | None, number: float, negative_zero: bool | None = None) -> bool:
    """Return whether all elements of a constant equal ``number``; ``negative_zero`` also requires the sign of zeros."""
    data = None if value is None else value.constant
    if data is None or not data.size or data.dtype.hasobject or data.size > 1 << 16:
        return False
    wide = np.asarray(data, dtype=np.float64) if data.dtype.kind not in "iub" else data
    if not bool(np.all(wide == number)):
        return False
    return negative_zero is None or data.dtype.kind in "iub" or bool(np.all(np.signbit(wide) == negative_zero))


def _neutral(first: tuple[float, bool | None] | None, second: tuple[float, bool | None] | None) -> Rule:
    """Return the rule that drops a neutral first or second operand where type and shape stay."""

    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        if len(xs) != 2:
            return None
        for index, neutral in enumerate((first, second)):
            other = xs[1 - index]
            if neutral is not None and other is not None and is_all(xs[index], *neutral) and other.type == types[0]:
                return other
        return None

    return rule


def _inverse(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop two equal operators in a row that cancel."""
    x = xs[0]
    return x.node.input(0) if x is not None and x.node is not None and type(x.node.op) is type(op) else None


def _idempotent(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x = xs[0]
    return x if x is not None and x.node is not None and type(x.node.op) is type(op) else None


def _where(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    condition, first, second = xs
    if first is None or second is None or condition is None:
        return None
    if first is second and first.type == types[0]:
        return first
    for number, chosen in ((1, first), (0, second)):
        if is_all(condition, number) and chosen.type == types[0]:
            return chosen
    if condition.node is not None and isinstance(condition.node.op, Not):
        return b.add(op, condition.node.input(0), second, first)
    return None


def _mirror(kind: type[Op]) -> Rule:
    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        return b.add(kind(), xs[1], xs[0])

    return rule


def _not_equal(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    return b.add(Not(), b.add(Equal(), *xs)[0])


def _absorbing(number: int) -> Rule:
    """Return the rule of a logical operator with a constant operand that decides every element."""

    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        if not isinstance(types[0], Tensor) or types[0].shape is None or not any(is_all(x, number) for x in xs):
            return None
        return expand(b, b.constant(np.asarray(bool(number)), types[0].dtype), types[0].shape)

    return rule


def _equal_itself(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Write x = x of floats as not NaN."""
    x, y = xs
    return b.add(Not(), b.add(IsNaN(), x)[0]) if x is y and x is not None and x.dtype.is_float else None


def _subtract(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Write x - y of floats as x + (-y), which IEEE 754 defines alike."""
    x, y = xs
    if x is None or y is None or not isinstance(types[0], Tensor) or types[0].dtype is None or types[0].dtype.name not in PLAIN:
        return None
    return b.add(Add(), x, b.add(Negative(), y)[0])


def _variadic(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Write an operator of many operands as a chain of operators of two, in order."""
    if len(xs) == 1:
        return xs[0]
    if len(xs) == 2:
        return None
    first, second, *rest = xs
    result = b.add(op.with_(broadcast=True), first, second)[0]
    for x in rest:
        result = b.add(op.with_(broadcast=True), result, x)[0]
    return result


def _sum(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    if not isinstance(types[0], Tensor) or types[0].dtype is None or types[0].dtype.name not in PLAIN:
        return None
    result = xs[0]
    for x in xs[1:]:
        result = b.add(Add(), result, x)[0]
    return result


def _squared_difference(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    if not isinstance(types[0], Tensor) or types[0].dtype is None or types[0].dtype.name not in PLAIN:
        return None
    difference = b.add(Subtract(), *xs)[0]
    return b.add(Multiply(), difference, difference)


def _divide(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Write a quotient by powers of two as a product, which is rounded alike."""
    x, y = xs
    data = None if y is None else y.constant
    if data is None or y is None or y.dtype.name not in PLAIN or not data.size or data.size > 1 << 16:
        return None
    mantissa, exponent = np.frexp(data)
    if not bool(np.all(np.abs(mantissa) == 0.5)) or not bool(np.all(np.abs(exponent) < 100)):
        return None
    return b.add(Multiply(), x, b.constant((1 / data.astype(np.float64)).astype(data.dtype), y.dtype))


def _gemm(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Write Gemm without factors as MatMul and Add, which is how it is computed."""
    assert isinstance(op, Gemm)
    x, y, bias = (*xs, None)[:3]
    if x is None or y is None or x.dtype.name not in PLAIN or op.alpha != 1 or (bias is not None and op.beta != 1):
        return None
    product = b.MatMul(x, y, transpose_a=op.transpose_a, transpose_b=op.transpose_b)
    return product if bias is None else b.Add(product, bias)


def _clip(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Write both bounds of Clip: one left out is the least or greatest finite value of the type."""
    x, low, high = (*xs, None, None)[:3]
    if x is None or (low is not None and high is not None) or not isinstance(x.type, Tensor) or x.type.dtype is None:
        return None
    dtype = x.type.dtype
    bounds = [
        b.constant(np.asarray(number, dtype.numpy), dtype) if bound is None else bound
        for bound, number in zip((low, high), finite_range(dtype), strict=True)
    ]
    return b.add(op, x, *bounds)


def _logical(kind: type[Op]) -> Rule:
    """Return the rule that writes a bitwise operator of booleans as the logical one."""

    def rule(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
        return b.add(kind(), *xs) if isinstance(types[0], Tensor) and types[0].dtype == "boolean" else None

    return rule


def _all_of(*rules: Rule) -> tuple[Rule, ...]:
    return (*rules, _operands, _order)


_plain: Callable[..., tuple[Rule, ...]] = _all_of
ARITHMETIC: dict[type[Op], tuple[Rule, ...]] = {
    Abs: (_idempotent,),
    Add: _plain(_neutral((0, True), (0, True))),
    And: _plain(_neutral((1, None), (1, None)), _absorbing(0)),
    BitwiseAnd: _plain(_logical(And)),
    BitwiseNot: (_logical(Not),),
    BitwiseOr: _plain(_logical(Or)),
    BitwiseXor: _plain(_logical(Xor)),
    Clip: (_clip,),
    Divide: _plain(_neutral(None, (1, None)), _divide),
    Equal: _plain(_equal_itself),
    Gemm: (_gemm,),
    Greater: (_mirror(Less),),
    GreaterEqual: (_mirror(LessEqual),),
    Less: _plain(),
    LessEqual: _plain(),
    Maximum: (_variadic, *_plain()),
    Mean: (),
    Minimum: (_variadic, *_plain()),
    Mod: _plain(),
    Multiply: _plain(_neutral((1, None), (1, None))),
    Negative: (_inverse,),
    Not: (_inverse,),
    NotEqual: (_not_equal,),
    Or: _plain(_neutral((0, None), (0, None)), _absorbing(1)),
    PRelu: (),
    Power: _plain(_neutral(None, (1, None))),
    Relu: (_idempotent,),
    SquaredDifference: (_squared_difference,),
    Subtract: (_neutral(None, (0, False)), _subtract, *_plain()),
    Sum: (_sum,),
    Where: (_where, _operands),
    Xor: _plain(_neutral((0, None), (0, None))),
}
