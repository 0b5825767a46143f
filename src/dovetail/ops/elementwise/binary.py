"""Arithmetic of two or more tensors, with broadcasting."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import arrays, symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, View, dtype_in
from dovetail.ops.elementwise.broadcast import (
    AUTO_BROADCAST,
    BroadcastingOp,
    apply_in_wide_type,
    is_float,
    scalar_like,
    unbroadcast,
)
from dovetail.ops.elementwise.operand_laws import EXACT_IN_F64, FLOATS, INTEGERS, REALS, OperandLaw, both

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _Binary(BroadcastingOp, sig="x: R, y: R -> z: R"):
    """Binary operators combine two tensors of one element type."""

    is_algebraic = True

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        raise NotImplementedError

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return apply_in_wide_type(xp, lambda *xs: self.function(xp, *xs), x, y)


class Add(
    _Binary,
    onnx=(
        "Add-1(x, y; broadcast:_, axis:_, consumed_inputs:_ | broadcast=false)",
        "Add-6(x, y; broadcast:_, axis:_ | broadcast=false)",
        "Add-7,13,14(x, y | broadcast=true/false)",
    ),
    openvino=f"Add-1(x, y; {AUTO_BROADCAST})",
):
    """Compute x + y; integers wrap. Sources: ONNX Add 1 to 14, OpenVINO Add-1."""

    # -0.0 + 0.0 is 0.0: only -0.0 is neutral in a sum of floats.
    neutral = (*both(0, INTEGERS), *both(0, FLOATS, sign=True))
    commutes = True

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.add(x, y)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        return [unbroadcast(b, g, x), unbroadcast(b, g, y)]


class Subtract(
    _Binary,
    onnx=(
        "Sub-1(x, y; broadcast:_, axis:_, consumed_inputs:_ | broadcast=false)",
        "Sub-6(x, y; broadcast:_, axis:_ | broadcast=false)",
        "Sub-7,13,14(x, y | broadcast=true/false)",
    ),
    openvino=f"Subtract-1(x, y; {AUTO_BROADCAST})",
):
    """Compute x - y; integers wrap. Sources: ONNX Sub 1 to 14, OpenVINO Subtract-1."""

    neutral = (OperandLaw(1, 0, INTEGERS), OperandLaw(1, 0, FLOATS, sign=False))

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.subtract(x, y)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        return [unbroadcast(b, g, x), unbroadcast(b, b.Negative(g), y)]


class Multiply(
    _Binary,
    onnx=(
        "Mul-1(x, y; broadcast:_, axis:_, consumed_inputs:_ | broadcast=false)",
        "Mul-6(x, y; broadcast:_, axis:_ | broadcast=false)",
        "Mul-7,13,14(x, y | broadcast=true/false)",
    ),
    openvino=f"Multiply-1(x, y; {AUTO_BROADCAST})",
):
    """Compute x * y; integers wrap. Sources: ONNX Mul 1 to 14, OpenVINO Multiply-1."""

    neutral = both(1, REALS)
    commutes = True

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.multiply(x, y)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        return [unbroadcast(b, b.Multiply(g, y), x), unbroadcast(b, b.Multiply(g, x), y)]


class Divide(
    _Binary,
    onnx=(
        "Div-1(x, y; broadcast:_, axis:_, consumed_inputs:_ | m_pythondiv=false, broadcast=false)",
        "Div-6(x, y; broadcast:_, axis:_ | m_pythondiv=false, broadcast=false)",
        "Div-7,13,14(x, y | m_pythondiv=false, broadcast=true/false)",
    ),
    openvino=f"Divide-1(x, y; {AUTO_BROADCAST}, m_pythondiv=true)",
):
    """Compute x / y. Integers are rounded toward zero, or with ``m_pythondiv`` toward minus infinity.

    The minimum of a signed type divided by -1 wraps. Sources: ONNX Div 1 to 14, OpenVINO Divide-1.
    """

    neutral = (OperandLaw(1, 1, REALS),)

    m_pythondiv: bool = False

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        if xp is symbolic.xp:
            # Integer division by zero raises an error at run time, so shape values may assume a divisor other than 0.
            return symbolic.floor_divide_by_nonzero(x, y) if self.m_pythondiv else _truncating_quotient(xp, x, y)
        if arrays.element(x).is_integer:
            return arrays.floor_divide(xp, x, y) if self.m_pythondiv else arrays.trunc_divide(xp, x, y)
        return xp.divide(x, y)

    def canonical(self, x: View, y: View) -> Op:
        """Drop ``m_pythondiv`` for floats and unsigned integers, whose quotients the attribute does not change."""
        plain = super().canonical(x, y)
        dtype = dtype_in(x.type)
        return plain if not self.m_pythondiv or dtype is None or dtype.kind == "int" else plain.with_(m_pythondiv=False)

    def lower(self, b: Builder, x: Value, y: Value) -> Any:
        if not self.m_pythondiv or x.dtype.kind != "int":
            return None
        quotient = b.Divide(x, y, broadcast=self.broadcast)
        rest = b.Subtract(x, b.Multiply(quotient, y))
        zero = scalar_like(b, 0, x)
        below = b.And(b.NotEqual(rest, zero), b.Xor(b.Less(x, zero), b.Less(y, zero)))
        return b.Where(below, b.Subtract(quotient, 1), quotient)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        return [unbroadcast(b, b.Divide(g, y), x), unbroadcast(b, b.Negative(b.Divide(b.Multiply(g, z), y)), y)]


def _truncating_quotient(xp: Namespace, x: Array, y: Array) -> Any:
    """Divide and round toward zero by means of floor division, the only division that symbolic sizes have."""
    divide = symbolic.floor_divide_by_nonzero
    try:
        rounds_up = bool(((y > 0) & (x > xp.negative(y))).all())
    except symbolic.Inexact:
        rounds_up = False
    if rounds_up:
        # An x between -y and 0 has the quotient 0, like max(x, 0). The sign of x may be unknown, as for the size n - 1.
        return divide(xp.maximum(x, 0), y)
    return xp.where((x < 0) != (y < 0), xp.negative(divide(xp.negative(x), y)), divide(x, y))


class Mod(
    _Binary,
    onnx="Mod-10,13,28(x, y; fmod=0 | broadcast=true/false)",
    openvino=(f"Mod-1(x, y; {AUTO_BROADCAST} | fmod=true)", f"FloorMod-1(x, y; {AUTO_BROADCAST} | fmod=false)"),
):
    """Compute the remainder of floor division; with ``fmod``, the remainder of truncating division.

    The remainder has the sign of ``y``; with ``fmod``, the sign of ``x``. Sources: ONNX Mod 10 to 28 (fmod), OpenVINO Mod-1
    (truncated) and FloorMod-1.
    """

    is_algebraic = False

    fmod: bool = False

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        if xp is symbolic.xp:
            return _truncating_remainder(xp, x, y) if self.fmod else xp.remainder(x, y)
        if not arrays.element(x).is_integer:
            return _float_rest(xp, x, y, self.fmod)
        return arrays.trunc_mod(xp, x, y) if self.fmod else arrays.floor_mod(xp, x, y)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        quotient = b.Divide(b.Subtract(x, z), y)
        return [unbroadcast(b, g, x), unbroadcast(b, b.Negative(b.Multiply(g, b.Round(quotient))), y)]


def _truncating_remainder(xp: Namespace, x: Array, y: Array) -> Any:
    return xp.where((x < 0) != (y < 0), xp.negative(xp.remainder(xp.negative(x), y)), xp.remainder(x, y))


def _float_rest(xp: Namespace, x: Array, y: Array, fmod: bool) -> Any:
    """Compute C's fmod, which is exact, or derive the floor remainder from fmod.

    With an infinite ``y``, fmod is ``x``; the floor remainder is then ``y`` where the signs of ``x`` and ``y`` differ.
    """
    rest = arrays.trunc_mod(xp, x, y)
    rest = xp.where(xp.isinf(y) & xp.isfinite(x), x, rest)
    if fmod:
        return rest
    return xp.where(rest == 0, xp.copysign(rest, y), xp.where((rest < 0) != (y < 0), rest + y, rest))


class Power(
    BroadcastingOp,
    sig="x: R, y: R2 -> z: R",
    onnx=(
        "Pow-1(x, y; broadcast:_, axis:_ | broadcast=false)",
        "Pow-7,12,13,15(x, y | broadcast=true/false)",
    ),
    openvino=f"Power-1(x, y; {AUTO_BROADCAST})",
):
    """Compute x to the power y, in the type of ``x``.

    Integers are exact and wrap; a negative exponent gives the truncated reciprocal. Sources: ONNX Pow 1 to 15 (from 12 on the
    types may differ), OpenVINO Power-1 (equal types).
    """

    # With a float base or exponent, Power is computed in f64, which does not represent every 64-bit integer exactly.
    neutral = (OperandLaw(1, 1, EXACT_IN_F64, REALS), OperandLaw(1, 1, INTEGERS, INTEGERS))

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return arrays.power(xp, x, y)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        exponent = y if y.dtype is x.dtype else b.Cast(y, to=x.dtype)
        zero = scalar_like(b, 0, x)
        slope = b.Multiply(exponent, b.Power(x, b.Subtract(exponent, 1)))
        dx = b.Multiply(g, b.Where(b.Equal(exponent, zero), zero, slope))
        if not is_float(y):
            return [unbroadcast(b, dx, x), None]
        at_zero = b.Equal(x, zero)
        growth = b.Where(at_zero, zero, b.Multiply(z, b.Log(b.Where(at_zero, scalar_like(b, 1, x), x))))
        dy = b.Multiply(g, growth)
        return [unbroadcast(b, dx, x), unbroadcast(b, dy if y.dtype is x.dtype else b.Cast(dy, to=y.dtype), y)]


class SquaredDifference(_Binary, openvino=f"SquaredDifference-1(x, y; {AUTO_BROADCAST})"):
    """Compute (x - y) * (x - y). Source: OpenVINO SquaredDifference-1."""

    commutes = True

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        difference = xp.subtract(x, y)
        return xp.multiply(difference, difference)

    def lower(self, b: Builder, x: Value, y: Value) -> Any:
        difference = b.Subtract(x, y, broadcast=self.broadcast)
        return b.Multiply(difference, difference)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        dx = b.Multiply(g, b.Multiply(b.Subtract(x, y), 2))
        return [unbroadcast(b, dx, x), unbroadcast(b, b.Negative(dx), y)]


# Operators with any number of inputs


def _are_integers(xs: Iterable[View]) -> bool:
    dtypes = [x.dtype for x in xs if isinstance(x.type, Tensor)]
    return bool(dtypes) and all(dtype is not None and dtype.is_integer for dtype in dtypes)


class _Variadic(BroadcastingOp, sig="*xs: R -> y: R"):
    """Variadic operators fold a binary operation over one or more tensors, from the first to the last."""

    def check(self, xs: tuple[Any, ...]) -> None:
        if not xs:
            raise RuleError("node.inputs", f"{type(self).__name__} needs at least 1 input, got 0")

    def types(self, *xs: View) -> list[Type]:
        self.check(xs)
        return super().types(*xs)

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        raise NotImplementedError

    def evaluate(self, xp: Namespace, *xs: Array) -> Any:
        self.check_equal_shapes(*xs)
        return reduce(lambda x, y: apply_in_wide_type(xp, lambda *pair: self.function(xp, *pair), x, y), xs)

    def is_commutative(self, *xs: View) -> bool:
        """Return True for two inputs, or for integers; the rounding of three or more floats depends on their order."""
        return len(xs) == 2 or _are_integers(xs)

    def lower(self, b: Builder, *xs: Value) -> Any:
        """Apply the binary operation to one input after the other."""
        if len(xs) == 1:
            return b.Identity(xs[0])
        return reduce(lambda x, y: b.add(self, x, y)[0], xs) if len(xs) > 2 else None


class _Extreme(_Variadic):
    def is_commutative(self, *xs: View) -> bool:
        """Return True for integers; for floats, the order of the operands may decide the sign of a zero."""
        return _are_integers(xs)

    def vjp(self, b: Builder, g: Value, y: Value, *xs: Value) -> Any:
        """Split the gradient equally among the inputs that attain the extremum."""
        hits = [b.Cast(b.Equal(x, y), to=y.dtype) for x in xs]
        share = b.Divide(g, reduce(b.Add, hits))
        return [unbroadcast(b, b.Multiply(share, hit), x) for hit, x in zip(hits, xs, strict=True)]


class Maximum(
    _Extreme,
    onnx=(
        "Max-1(*xs; consumed_inputs:_ | broadcast=false)",
        "Max-6(*xs | broadcast=false)",
        "Max-8,12,13(*xs | broadcast=true/false)",
    ),
    openvino=f"Maximum-1(*xs; {AUTO_BROADCAST})",
):
    """Compute the element-wise maximum of ``xs``; NaN where an element of any input is NaN.

    Sources: ONNX Max 1 to 13, OpenVINO Maximum-1 (two inputs).
    """

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.maximum(x, y)


class Minimum(
    _Extreme,
    onnx=(
        "Min-1(*xs; consumed_inputs:_ | broadcast=false)",
        "Min-6(*xs | broadcast=false)",
        "Min-8,12,13(*xs | broadcast=true/false)",
    ),
    openvino=f"Minimum-1(*xs; {AUTO_BROADCAST})",
):
    """Compute the element-wise minimum of ``xs``; NaN where an element of any input is NaN.

    Sources: ONNX Min 1 to 13, OpenVINO Minimum-1 (two inputs).
    """

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.minimum(x, y)


class Sum(
    _Variadic,
    onnx=(
        "Sum-1(*xs; consumed_inputs:_ | broadcast=false)",
        "Sum-6(*xs | broadcast=false)",
        "Sum-8,13(*xs | broadcast=true/false)",
    ),
):
    """Compute the element-wise sum of ``xs``, added from the first to the last. Source: ONNX Sum 1 to 13."""

    is_algebraic = True

    def function(self, xp: Namespace, x: Array, y: Array) -> Any:
        return xp.add(x, y)

    def lower(self, b: Builder, *xs: Value) -> Any:
        if len(xs) == 1:
            return b.Identity(xs[0])
        return reduce(lambda x, y: b.Add(x, y, broadcast=self.broadcast), xs)

    def vjp(self, b: Builder, g: Value, y: Value, *xs: Value) -> Any:
        return [unbroadcast(b, g, x) for x in xs]


class Mean(
    _Variadic,
    sig="*xs: F -> y: F",
    onnx=(
        "Mean-1(*xs; consumed_inputs:_ | broadcast=false)",
        "Mean-6(*xs | broadcast=false)",
        "Mean-8,13(*xs | broadcast=true/false)",
    ),
):
    """Compute the element-wise mean of ``xs``: their sum divided by their number. Source: ONNX Mean 1 to 13."""

    is_algebraic = True

    def evaluate(self, xp: Namespace, *xs: Array) -> Any:
        total = Sum(broadcast=self.broadcast).evaluate(xp, *xs)
        return apply_in_wide_type(xp, lambda sum: xp.divide(sum, xp.full_like(sum, len(xs))), total)

    def lower(self, b: Builder, *xs: Value) -> Any:
        return b.Divide(b.Sum(*xs, broadcast=self.broadcast), len(xs))

    def vjp(self, b: Builder, g: Value, y: Value, *xs: Value) -> Any:
        share = b.Divide(g, len(xs))
        return [unbroadcast(b, share, x) for x in xs]
