"""Unary functions, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf, nan, pi, sqrt
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.types import View
from dovetail.ops.elementwise.broadcast import Elementwise, apply_in_wide_type, scalar_like
from dovetail.ops.elementwise.operand_laws import REALS

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class UnaryOp(Elementwise):
    """UnaryOp is the base class of operators that apply a function to each element; the default signature takes floats."""

    def __init_subclass__(cls, *, sig: str | None = None, **mappings: Any) -> None:
        super().__init_subclass__(sig=sig if sig or cls.sig else "x: F -> y: F", **mappings)

    def shape(self, x: View) -> Any:
        return x.shape

    def function(self, xp: Namespace, x: Array) -> Any:
        raise NotImplementedError

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return apply_in_wide_type(xp, lambda wide: self.function(xp, wide), x)


class Abs(UnaryOp, sig="x: R -> y: R", onnx=("Abs-1(x; consumed_inputs:_)", "Abs-6,13(x)"), openvino="Abs-1(x)"):
    """Compute the absolute value; the minimum of a signed integer type is unchanged, as the result wraps.

    Sources: ONNX Abs 1 to 13, OpenVINO Abs-1.
    """

    commutes_with_rounding = True
    idempotent = REALS

    def function(self, xp: Namespace, x: Array) -> Any:
        return x if xp is not symbolic.xp and arrays.element(x).kind == "uint" else xp.abs(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Sign(x))]


class Negative(UnaryOp, sig="x: R -> y: R", onnx=("Neg-1(x; consumed_inputs:_)", "Neg-6,13(x)"), openvino="Negative-1(x)"):
    """Compute -x; integers wrap. Sources: ONNX Neg 1 to 13, OpenVINO Negative-1."""

    is_algebraic = True
    commutes_with_rounding = True
    # f8e8m0 has no sign.
    involution = REALS - {"f8e8m0"}

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Subtract(0, x) if x.dtype.kind == "uint" else None

    def function(self, xp: Namespace, x: Array) -> Any:
        unsigned = xp is not symbolic.xp and arrays.element(x).kind == "uint"
        return xp.subtract(xp.zeros_like(x), x) if unsigned else xp.negative(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Negative(g)]


class _Stepped(UnaryOp, sig="x: R -> y: R"):
    """Piecewise constant functions have no gradient."""

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [None]


class Sign(_Stepped, onnx="Sign-9,13(x)", openvino="Sign-1(x)"):
    """Compute the sign: -1, 0 or 1. Sources: ONNX Sign 9 and 13, OpenVINO Sign-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.sign(x)


class _Whole(_Stepped):
    """Rounding functions return integers unchanged."""

    def decompose(self, b: Builder, x: Value) -> Any:
        return b.Identity(x) if x.dtype.is_integer else super().decompose(b, x)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return x if xp is symbolic.xp or arrays.element(x).is_integer else super().evaluate(xp, x)


class Ceil(_Whole, onnx=("Ceil-1(x; consumed_inputs:_)", "Ceil-6,13(x)"), openvino="Ceiling-1(x)"):
    """Round up to an integer. Sources: ONNX Ceil 1 to 13, OpenVINO Ceiling-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.ceil(x)


class Floor(_Whole, onnx=("Floor-1(x; consumed_inputs:_)", "Floor-6,13(x)"), openvino="Floor-1(x)"):
    """Round down to an integer. Sources: ONNX Floor 1 to 13, OpenVINO Floor-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.floor(x)


class Round(_Whole, onnx="Round-11,22(x | mode=half_to_even)", openvino="Round-5(x; mode=half_to_even)"):
    """Round to the nearest integer, ties to even (``half_to_even``) or away from zero (``half_away_from_zero``).

    Sources: ONNX Round 11 and 22, OpenVINO Round-5.
    """

    mode: str = "half_to_even"

    def validate(self) -> None:
        if self.mode not in ("half_to_even", "half_away_from_zero"):
            raise RuleError("attribute.value", f"mode must be half_to_even or half_away_from_zero, got {self.mode!r}")

    def function(self, xp: Namespace, x: Array) -> Any:
        return arrays.round_half_even(xp, x) if self.mode == "half_to_even" else arrays.round_half_away(xp, x)

    def lower(self, b: Builder, x: Value) -> Any:
        """Lower rounding with ties away from zero to a comparison of the fraction |x| - floor(|x|) with 0.5.

        The fraction is exact, while floor(|x| + 0.5) is not. A multiplication applies the sign of x + 1 / x, which is the sign
        of ``x`` also for zeros; onnxruntime's Where loses the sign of a zero.
        """
        if self.mode == "half_to_even":
            return None
        if not x.dtype.is_float:
            return b.Identity(x)
        size = b.Abs(x)
        whole = b.Floor(size)
        away = b.GreaterEqual(b.Subtract(size, whole), scalar_like(b, 0.5, x))
        nearest = b.Where(away, b.Add(whole, 1), whole)
        return b.Multiply(b.Sign(b.Add(x, b.Reciprocal(x))), nearest)


class Sqrt(UnaryOp, onnx=("Sqrt-1(x; consumed_inputs:_)", "Sqrt-6,13(x)"), openvino="Sqrt-1(x)"):
    """Compute the square root; NaN for negative numbers. Sources: ONNX Sqrt 1 to 13, OpenVINO Sqrt-1."""

    is_algebraic = True

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.sqrt(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Divide(g, b.Multiply(y, 2))]


class Exp(UnaryOp, onnx=("Exp-1(x; consumed_inputs:_)", "Exp-6,13(x)"), openvino="Exp-1(x)"):
    """Compute e to the power x. Sources: ONNX Exp 1 to 13, OpenVINO Exp-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.exp(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, y)]


class Log(UnaryOp, onnx=("Log-1(x; consumed_inputs:_)", "Log-6,13(x)"), openvino="Log-1(x)"):
    """Compute the natural logarithm. Sources: ONNX Log 1 to 13, OpenVINO Log-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.log(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Divide(g, x)]


class Reciprocal(UnaryOp, onnx=("Reciprocal-1(x; consumed_inputs:_)", "Reciprocal-6,13(x)")):
    """Compute 1 / x. Source: ONNX Reciprocal 1 to 13."""

    is_algebraic = True

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.divide(xp.ones_like(x), x)

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Divide(1, x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Negative(b.Multiply(g, b.Multiply(y, y)))]


class Sin(UnaryOp, onnx="Sin-7,22(x)", openvino="Sin-1(x)"):
    """Compute the sine. Sources: ONNX Sin 7 and 22, OpenVINO Sin-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.sin(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Cos(x))]


class Cos(UnaryOp, onnx="Cos-7,22(x)", openvino="Cos-1(x)"):
    """Compute the cosine. Sources: ONNX Cos 7 and 22, OpenVINO Cos-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.cos(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Negative(b.Multiply(g, b.Sin(x)))]


class Tan(UnaryOp, onnx="Tan-7,22(x)", openvino="Tan-1(x)"):
    """Compute the tangent. Sources: ONNX Tan 7 and 22, OpenVINO Tan-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.tan(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Add(b.Multiply(y, y), 1))]


class Asin(UnaryOp, onnx="Asin-7,22(x)", openvino="Asin-1(x)"):
    """Compute the arc sine. Sources: ONNX Asin 7 and 22, OpenVINO Asin-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.asin(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Divide(g, b.Sqrt(b.Subtract(1, b.Multiply(x, x))))]


class Acos(UnaryOp, onnx="Acos-7,22(x)", openvino="Acos-1(x)"):
    """Compute the arc cosine. Sources: ONNX Acos 7 and 22, OpenVINO Acos-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.acos(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Negative(b.Divide(g, b.Sqrt(b.Subtract(1, b.Multiply(x, x)))))]


class Atan(UnaryOp, onnx="Atan-7,22(x)", openvino="Atan-1(x)"):
    """Compute the arc tangent. Sources: ONNX Atan 7 and 22, OpenVINO Atan-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.atan(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Divide(g, b.Add(b.Multiply(x, x), 1))]


class Sinh(UnaryOp, onnx="Sinh-9,22(x)", openvino="Sinh-1(x)"):
    """Compute the hyperbolic sine. Sources: ONNX Sinh 9 and 22, OpenVINO Sinh-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.sinh(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Cosh(x))]


class Cosh(UnaryOp, onnx="Cosh-9,22(x)", openvino="Cosh-1(x)"):
    """Compute the hyperbolic cosine. Sources: ONNX Cosh 9 and 22, OpenVINO Cosh-1."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.cosh(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Sinh(x))]


class Tanh(UnaryOp, onnx=("Tanh-1(x; consumed_inputs:_)", "Tanh-6,13(x)"), openvino="Tanh-1(x)"):
    """Compute the hyperbolic tangent. Sources: ONNX Tanh 1 to 13, OpenVINO Tanh-1."""

    is_activation = True

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.tanh(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Subtract(1, b.Multiply(y, y)))]


class Asinh(UnaryOp, onnx="Asinh-9,22(x)", openvino="Asinh-4(x)"):
    """Compute the inverse hyperbolic sine. Sources: ONNX Asinh 9 and 22, OpenVINO Asinh-3 (opset4)."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.asinh(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Divide(g, b.Sqrt(b.Add(b.Multiply(x, x), 1)))]


class Acosh(UnaryOp, onnx="Acosh-9,22(x)", openvino="Acosh-4(x)"):
    """Compute the inverse hyperbolic cosine. Sources: ONNX Acosh 9 and 22, OpenVINO Acosh-3 (opset4)."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.acosh(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Divide(g, b.Sqrt(b.Subtract(b.Multiply(x, x), 1)))]


class Atanh(UnaryOp, onnx="Atanh-9,22(x)", openvino="Atanh-4(x)"):
    """Compute the inverse hyperbolic tangent. Sources: ONNX Atanh 9 and 22, OpenVINO Atanh-3 (opset4)."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.atanh(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Divide(g, b.Subtract(1, b.Multiply(x, x)))]


class Erf(UnaryOp, onnx="Erf-9,13(x)", openvino="Erf-1(x)"):
    """Compute the error function of floats; no specification defines it for integers.

    Sources: ONNX Erf 9 and 13, OpenVINO Erf-1.
    """

    def function(self, xp: Namespace, x: Array) -> Any:
        return arrays.erf(xp, x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Multiply(b.Exp(b.Negative(b.Multiply(x, x))), 2 / sqrt(pi)))]


class ErfInv(UnaryOp, openvino="ErfInv-17(x)"):
    """Compute the inverse of the error function: infinite at -1 and 1, NaN beyond.

    Its decomposition evaluates the rational approximations of the interpreter in f64, with an error below the last digit of
    f32. Source: OpenVINO ErfInv-17.
    """

    def function(self, xp: Namespace, x: Array) -> Any:
        return arrays.erfinv(xp, x)

    def lower(self, b: Builder, x: Value) -> Any:
        wide = x if x.dtype is dtypes.f64 else b.Cast(x, to=dtypes.f64)
        size, half = b.Abs(wide), b.Multiply(wide, 0.5)
        first, second, third = arrays.QUANTILES
        middle = b.Multiply(half, _ratio(b, b.Subtract(0.180625, b.Multiply(half, half)), *first))
        is_inside = b.Less(size, 1.0)
        rest = b.Where(is_inside, b.Multiply(b.Subtract(1.0, size), 0.5), 0.5)
        r = b.Sqrt(b.Negative(b.Log(rest)))
        outer = b.Where(b.LessEqual(r, 5.0), _ratio(b, b.Subtract(r, 1.6), *second), _ratio(b, b.Subtract(r, 5.0), *third))
        outer = b.Where(is_inside, outer, b.Where(b.Equal(size, 1.0), b.constant(inf, dtypes.f64), b.constant(nan, dtypes.f64)))
        y = b.Multiply(b.Where(b.LessEqual(size, 0.85), middle, b.Multiply(b.Sign(wide), outer)), sqrt(0.5))
        return y if x.dtype is dtypes.f64 else b.Cast(y, to=x.dtype)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Multiply(b.Exp(b.Multiply(y, y)), sqrt(pi) / 2))]


def _ratio(b: Builder, x: Value, numerator: Sequence[float], denominator: Sequence[float]) -> Any:
    """Evaluate the quotient of two polynomials, whose coefficients are listed from the highest power down."""
    above, below = (
        reduce(lambda total, c: b.Add(b.Multiply(total, x), c), terms[1:], b.constant(terms[0], x.dtype))
        for terms in (numerator, denominator)
    )
    return b.Divide(above, below)
