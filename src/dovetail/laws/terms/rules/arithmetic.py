"""Exact rules of elementwise operators: operands in one order and of one form, neutral operands, and inverse pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, broadcast
from dovetail.laws.terms.rules.movement import expand, uniform_scalar, without_leading_ones
from dovetail.laws.terms.terms import Result, Rule, Terms, are_equal_shapes, known_shape
from dovetail.ops.elementwise import operand_laws
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
from dovetail.ops.elementwise.broadcast import BroadcastingOp, Elementwise
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
from dovetail.ops.elementwise.operand_laws import OperandLaw
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


def is_all(value: Value | None, number: float, sign: bool | None = None) -> bool:
    """Return whether all elements of a constant equal ``number``; ``sign`` also requires the sign bit of zeros of floats."""
    return value is not None and operand_laws.is_all(value.constant, number, sign)


def _holds(law: OperandLaw, xs: list[Value | None]) -> bool:
    """Return whether a law about a constant operand holds for two operands."""
    constant, other = xs[law.index], xs[1 - law.index]
    return constant is not None and other is not None and law.holds(other.dtype, constant.constant, constant.dtype)


def _neutral(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop a neutral operand where the type and the shape stay."""
    assert isinstance(op, BroadcastingOp)
    for law in op.neutral:
        other = xs[1 - law.index]
        if _holds(law, xs) and other is not None and other.type == types[0]:
            return other
    return None


def _inverse(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop two equal operators in a row that cancel."""
    x = xs[0]
    assert isinstance(op, Elementwise)
    return x.node.input(0) if _is_same(op, x) and x.dtype.name in op.involution else None  # type: ignore[union-attr]


def _idempotent(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x = xs[0]
    assert isinstance(op, Elementwise)
    return x if _is_same(op, x) and x.dtype.name in op.idempotent else None  # type: ignore[union-attr]


def _is_same(op: Op, x: Value | None) -> bool:
    """Return whether the operator of a value has the class of ``op``."""
    return x is not None and x.node is not None and type(x.node.op) is type(op)


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


def _absorbing(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Write an operator with a constant operand that decides every element as that constant."""
    assert isinstance(op, BroadcastingOp)
    if not isinstance(types[0], Tensor) or types[0].dtype is None or types[0].shape is None:
        return None
    for law in op.absorbing:
        if _holds(law, xs):
            return expand(b, b.constant(np.asarray(law.number, types[0].dtype.numpy), types[0].dtype), types[0].shape)
    return None


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
    Add: _plain(_neutral),
    And: _plain(_neutral, _absorbing),
    BitwiseAnd: _plain(_logical(And)),
    BitwiseNot: (_logical(Not),),
    BitwiseOr: _plain(_logical(Or)),
    BitwiseXor: _plain(_logical(Xor)),
    Clip: (_clip,),
    Divide: _plain(_neutral, _divide),
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
    Multiply: _plain(_neutral),
    Negative: (_inverse,),
    Not: (_inverse,),
    NotEqual: (_not_equal,),
    Or: _plain(_neutral, _absorbing),
    PRelu: (),
    Power: _plain(_neutral),
    Relu: (_idempotent,),
    SquaredDifference: (_squared_difference,),
    Subtract: (_neutral, _subtract, *_plain()),
    Sum: (_sum,),
    Where: (_where, _operands),
    Xor: _plain(_neutral),
}
