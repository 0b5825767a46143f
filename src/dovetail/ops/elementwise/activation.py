"""Activation functions: Relu to Swish, Gelu, Shrink, SwiGLU."""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View, agree_shapes, broadcast
from dovetail.ops.elementwise.broadcast import Elementwise, apply_in_wide_type, scalar_like, unbroadcast
from dovetail.ops.elementwise.operand_laws import REALS
from dovetail.ops.elementwise.unary import UnaryOp

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

ONE_SIXTH = 0.16666666666666666


class Relu(UnaryOp, sig="x: R -> y: R", onnx=("Relu-1(x; consumed_inputs:_)", "Relu-6,13,14(x)"), openvino="ReLU-1(x)"):
    """Compute max(x, 0). Sources: ONNX Relu 1 to 14, OpenVINO ReLU-1."""

    is_activation = True
    commutes_with_rounding = True
    idempotent = REALS

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.maximum(x, xp.zeros_like(x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Where(b.Greater(x, 0), g, scalar_like(b, 0, x))]


class LeakyRelu(
    UnaryOp,
    onnx=(
        "LeakyRelu-1(x; alpha=0.009999999776482582, consumed_inputs:_)",
        "LeakyRelu-6,16(x; alpha=0.009999999776482582)",
    ),
):
    """Compute x, or alpha * x where x < 0. Source: ONNX LeakyRelu 1 to 16."""

    is_activation = True

    alpha: float = 0.009999999776482582

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.where(x < 0, x * self.alpha, x)

    def lower(self, b: Builder, x: Value) -> Any:
        return b.PRelu(x, b.constant([self.alpha], x.dtype))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Where(b.Less(x, 0), b.Multiply(g, self.alpha), g)]


class PRelu(
    Elementwise,
    sig="x: R, slope: R -> y: R",
    onnx=("PRelu-1(x, slope; consumed_inputs:_ | channels=true)", "PRelu-6(x, slope | channels=true)", "PRelu-7,9,16(x, slope)"),
    openvino="PReLU-1(x, slope | channels=true)",
):
    """Compute x, or slope * x where x < 0; ``slope`` broadcasts to the shape of ``x``.

    With ``channels``, a ``slope`` of rank 1 whose length equals the size of axis 1 of ``x`` applies to axis 1.
    Sources: ONNX PRelu 1 and 6 (one slope, or one per channel), 7 to 16; OpenVINO PReLU-1.
    """

    channels: bool = False

    def shape(self, x: View, slope: View) -> Any:
        if x.shape is None:
            return None
        by_channel = self.is_by_channel(x.shape, slope.shape)
        if by_channel is False and slope.shape is not None:
            _check_one_way(x.shape, slope.shape)
        return x.shape

    def is_by_channel(self, shape: Shape | None, slope: Shape | None) -> bool | None:
        """Return whether ``slope`` needs a reshape to apply to axis 1 of ``x``; None if that depends on unknown sizes."""
        if not self.channels:
            return False
        if slope is not None and (len(slope) != 1 or symbolic.equal(slope[0], 1) is True):
            return False
        if shape is None or slope is None:
            return None
        if len(shape) <= 2:
            return False
        return symbolic.equal(slope[0], shape[1])

    def canonical(self, x: View, slope: View) -> Op:
        return self.with_(channels=False) if self.channels and self.is_by_channel(x.shape, slope.shape) is False else self

    def evaluate(self, xp: Namespace, x: Array, slope: Array) -> Any:
        if self.is_by_channel(tuple(x.shape), tuple(slope.shape)):
            slope = xp.reshape(slope, (slope.shape[0],) + (1,) * (x.ndim - 2))
        _check_one_way(tuple(x.shape), tuple(slope.shape))
        return apply_in_wide_type(xp, lambda wide, factor: xp.where(wide < 0, wide * factor, wide), x, slope)

    def align_slope(self, b: Builder, x: Value, slope: Value) -> Any:
        """Reshape ``slope`` to broadcast to ``x``; return None if unknown sizes decide to which axis ``slope`` applies."""
        by_channel = self.is_by_channel(x.shape, slope.shape)
        if by_channel is None:
            return None
        return b.Unsqueeze(slope, list(range(1, len(x.dims) - 1))) if by_channel else slope

    def lower(self, b: Builder, x: Value, slope: Value) -> Any:
        slope = self.align_slope(b, x, slope)
        return None if slope is None or not self.channels else b.PRelu(x, slope)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, slope: Value) -> Any:
        from dovetail.ir.builder import shape_value

        wide = self.align_slope(b, x, slope)
        if wide is None:
            raise UnsupportedError(
                "type.unknown",
                f"the types of x and slope must determine the axis of slope for a gradient, got {x.type} and {slope.type}",
            )
        below = b.Less(x, 0)
        dslope = unbroadcast(b, b.Where(below, b.Multiply(g, x), scalar_like(b, 0, x)), wide)
        if dslope is not None and wide is not slope:
            dslope = b.Reshape(dslope, shape_value(b, slope), special_zero=False)
        return [b.Where(below, b.Multiply(g, wide), g), dslope]


def _check_one_way(wide: Shape, narrow: Shape) -> None:
    """Check that ``narrow`` broadcasts to ``wide`` without extending ``wide``."""
    result = broadcast(wide, narrow)
    grown = result is None or len(result) != len(wide)
    if grown or any(
        size is not None and symbolic.equal(size, own) is False for size, own in zip(result or (), wide, strict=False)
    ):
        raise RuleError("shape.broadcast", f"shape {list(narrow)} must broadcast to {list(wide)}")


class Elu(
    UnaryOp,
    onnx=("Elu-1(x; alpha=1.0, consumed_inputs:_)", "Elu-6,22(x; alpha=1.0)"),
    openvino="Elu-1(x; alpha)",
):
    """Compute x, or alpha * (exp(x) - 1) where x < 0. Sources: ONNX Elu 1 to 22, OpenVINO Elu-1."""

    is_activation = True

    alpha: float = 1.0

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.where(x < 0, xp.expm1(_below_zero(xp, x)) * self.alpha, x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Where(b.Less(x, 0), b.Multiply(g, b.Add(y, self.alpha)), g)]


def _below_zero(xp: Namespace, x: Array) -> Any:
    return xp.minimum(x, xp.zeros_like(x))


class Selu(
    UnaryOp,
    onnx=(
        "Selu-1(x; alpha=1.673200011253357, gamma=1.0506999492645264, consumed_inputs:_)",
        "Selu-6,22(x; alpha=1.6732631921768188, gamma=1.0507010221481323)",
    ),
    openvino="Selu-1(x, alpha, gamma)",
):
    """Compute gamma * x, or gamma * alpha * (exp(x) - 1) where x <= 0. Sources: ONNX Selu 1 to 22, OpenVINO Selu-1."""

    is_activation = True

    alpha: float = 1.6732631921768188
    gamma: float = 1.0507010221481323

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.where(x > 0, x, xp.expm1(_below_zero(xp, x)) * self.alpha) * self.gamma

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        slope = b.Add(y, self.gamma * self.alpha)
        return [b.Multiply(g, b.Where(b.Greater(x, 0), scalar_like(b, self.gamma, x), slope))]


class Celu(UnaryOp, onnx="Celu-12,28(x; alpha=1.0)"):
    """Compute max(0, x) + min(0, alpha * (exp(x / alpha) - 1)). Source: ONNX Celu 12 and 28."""

    is_activation = True

    alpha: float = 1.0

    def function(self, xp: Namespace, x: Array) -> Any:
        zero = xp.zeros_like(x)
        return xp.maximum(x, zero) + xp.minimum(xp.expm1(x / self.alpha) * self.alpha, zero)

    def lower(self, b: Builder, x: Value) -> Any:
        zero = scalar_like(b, 0, x)
        below = b.Multiply(b.Subtract(b.Exp(b.Divide(x, self.alpha)), 1), self.alpha)
        return b.Add(b.Maximum(x, zero), b.Minimum(below, zero))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        slope = b.Exp(b.Divide(b.Minimum(x, 0), self.alpha))
        return [b.Where(b.Less(x, 0), b.Multiply(g, slope), g)]


class ThresholdedRelu(UnaryOp, onnx="ThresholdedRelu-10,22(x; alpha=1.0)"):
    """Compute x where x > alpha, otherwise 0. Source: ONNX ThresholdedRelu 10 and 22."""

    is_activation = True

    alpha: float = 1.0

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.where(x > self.alpha, x, xp.zeros_like(x))

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Where(b.Greater(x, self.alpha), x, scalar_like(b, 0, x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Where(b.Greater(x, self.alpha), g, scalar_like(b, 0, x))]


class HardSigmoid(
    UnaryOp,
    onnx=(
        "HardSigmoid-1(x; alpha=0.20000000298023224, beta=0.5, consumed_inputs:_)",
        "HardSigmoid-6,22(x; alpha=0.20000000298023224, beta=0.5)",
    ),
    openvino=("HardSigmoid-1(x, alpha, beta)", f"HSigmoid-5(x | alpha={ONE_SIXTH}, beta=0.5)"),
):
    """Compute max(0, min(1, alpha * x + beta)).

    Sources: ONNX HardSigmoid 1 to 22, OpenVINO HardSigmoid-1 and HSigmoid-5 (alpha 1/6, beta 1/2).
    """

    is_activation = True

    alpha: float = 0.20000000298023224
    beta: float = 0.5

    def function(self, xp: Namespace, x: Array) -> Any:
        line = x * self.alpha + self.beta
        return xp.maximum(xp.minimum(line, xp.ones_like(x)), xp.zeros_like(x))

    def lower(self, b: Builder, x: Value) -> Any:
        line = b.Add(b.Multiply(x, self.alpha), self.beta)
        return b.Maximum(b.Minimum(line, scalar_like(b, 1, x)), scalar_like(b, 0, x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        line = b.Add(b.Multiply(x, self.alpha), self.beta)
        inside = b.And(b.Greater(line, 0), b.Less(line, 1))
        return [b.Where(inside, b.Multiply(g, self.alpha), scalar_like(b, 0, x))]


class HardSwish(UnaryOp, onnx="HardSwish-14,22(x)", openvino="HSwish-4(x)"):
    """Compute x * max(0, min(1, x / 6 + 1/2)). Sources: ONNX HardSwish 14 and 22, OpenVINO HSwish-4."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return x * HardSigmoid(ONE_SIXTH, 0.5).function(xp, x)

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Multiply(x, b.HardSigmoid(x, alpha=ONE_SIXTH, beta=0.5))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        zero, one = scalar_like(b, 0, x), scalar_like(b, 1, x)
        slope = b.Where(b.Less(x, 3), b.Add(b.Divide(x, 3), 0.5), one)
        return [b.Multiply(g, b.Where(b.Greater(x, -3), slope, zero))]


class Sigmoid(UnaryOp, onnx=("Sigmoid-1(x; consumed_inputs:_)", "Sigmoid-6,13(x)"), openvino="Sigmoid-1(x)"):
    """Compute 1 / (1 + exp(-x)). Sources: ONNX Sigmoid 1 to 13, OpenVINO Sigmoid-1."""

    is_activation = True

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.sigmoid(x) if arrays.is_rounding(xp) else 1 / (1 + xp.exp(-x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Multiply(y, b.Subtract(1, y)))]


class Softplus(UnaryOp, onnx="Softplus-1,22(x)", openvino="SoftPlus-4(x)"):
    """Compute log(exp(x) + 1). Sources: ONNX Softplus 1 and 22, OpenVINO SoftPlus-4."""

    is_activation = True

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.logaddexp(x, xp.zeros_like(x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Multiply(g, b.Sigmoid(x))]


class Softsign(UnaryOp, onnx="Softsign-1,22(x)", openvino="SoftSign-9(x)"):
    """Compute x / (1 + |x|). Sources: ONNX Softsign 1 and 22, OpenVINO SoftSign-9."""

    is_activation = True

    def function(self, xp: Namespace, x: Array) -> Any:
        return x / (1 + xp.abs(x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        below = b.Add(b.Abs(x), 1)
        return [b.Divide(g, b.Multiply(below, below))]


class Gelu(
    UnaryOp,
    onnx="Gelu-20(x; approximate~{none:none,tanh:tanh}=none)",
    openvino=("Gelu-2(x | approximate=none)", "Gelu-7(x; approximation_mode~{ERF:none,TANH:tanh}:approximate=ERF)"),
):
    """Compute x * P(X <= x) for a standard normal X: x / 2 * (1 + erf(x / sqrt(2))).

    ``approximate="tanh"`` computes x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).
    Sources: ONNX Gelu 20, OpenVINO Gelu-2 and Gelu-7.
    """

    approximate: str = "none"

    def validate(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise RuleError("attribute.value", f"approximate must be none or tanh, got {self.approximate!r}")

    def function(self, xp: Namespace, x: Array) -> Any:
        if self.approximate == "tanh":
            return x * 0.5 * (1 + xp.tanh((x + x * x * x * 0.044715) * sqrt(2 / pi)))
        return x * 0.5 * (1 + arrays.erf(xp, x * sqrt(0.5)))

    def cdf_term(self, b: Builder, x: Value) -> Any:
        """Emit the erf or tanh term of the formula."""
        if self.approximate == "none":
            return b.Erf(b.Multiply(x, sqrt(0.5)))
        cube = b.Multiply(b.Multiply(b.Multiply(x, x), x), 0.044715)
        return b.Tanh(b.Multiply(b.Add(x, cube), sqrt(2 / pi)))

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Multiply(b.Multiply(x, 0.5), b.Add(self.cdf_term(b, x), 1))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        term, square = self.cdf_term(b, x), b.Multiply(x, x)
        if self.approximate == "none":
            slope = b.Multiply(b.Exp(b.Multiply(square, -0.5)), sqrt(2 / pi))
        else:
            inner = b.Multiply(b.Add(b.Multiply(square, 3 * 0.044715), 1), sqrt(2 / pi))
            slope = b.Multiply(b.Subtract(1, b.Multiply(term, term)), inner)
        twice = b.Add(b.Add(term, 1), b.Multiply(x, slope))
        return [b.Multiply(g, b.Multiply(twice, 0.5))]


class Swish(UnaryOp, onnx="Swish-24(x; alpha=1.0)", openvino="Swish-4(x, beta:alpha=1.0)"):
    """Compute x * sigmoid(alpha * x). Sources: ONNX Swish 24, OpenVINO Swish-4 (``alpha`` is the input beta there)."""

    alpha: float = 1.0

    def function(self, xp: Namespace, x: Array) -> Any:
        return x / (1 + xp.exp(x * -self.alpha))

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Multiply(x, self.gate(b, x))

    def gate(self, b: Builder, x: Value) -> Any:
        return b.Sigmoid(x if self.alpha == 1 else b.Multiply(x, self.alpha))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        gate = self.gate(b, x)
        slope = b.Multiply(b.Multiply(y, b.Subtract(1, gate)), self.alpha)
        return [b.Multiply(g, b.Add(gate, slope))]


class Mish(UnaryOp, onnx="Mish-18,22(x)", openvino="Mish-4(x)"):
    """Compute x * tanh(log(exp(x) + 1)). Sources: ONNX Mish 18 and 22, OpenVINO Mish-4."""

    def function(self, xp: Namespace, x: Array) -> Any:
        return x * xp.tanh(xp.logaddexp(x, xp.zeros_like(x)))

    def lower(self, b: Builder, x: Value) -> Any:
        return b.Multiply(x, b.Tanh(b.Softplus(x)))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        gate = b.Tanh(b.Softplus(x))
        slope = b.Multiply(b.Multiply(x, b.Sigmoid(x)), b.Subtract(1, b.Multiply(gate, gate)))
        return [b.Multiply(g, b.Add(gate, slope))]


class Shrink(UnaryOp, sig="x: R -> y: R", onnx="Shrink-9(x; bias=0.0, lambd=0.5)"):
    """Compute x + bias where x < -lambd, x - bias where x > lambd, otherwise 0; integers are computed in f64 and truncated.

    Source: ONNX Shrink 9.
    """

    bias: float = 0.0
    lambd: float = 0.5

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("real numbers")
        kind = arrays.element(x)
        if not kind.is_integer:
            return super().evaluate(xp, x)
        return arrays.cast(xp, self.function(xp, arrays.cast(xp, x, dtypes.f64)), kind)

    def function(self, xp: Namespace, x: Array) -> Any:
        return xp.where(x < -self.lambd, x + self.bias, xp.where(x > self.lambd, x - self.bias, xp.zeros_like(x)))

    def lower(self, b: Builder, x: Value) -> Any:
        if x.dtype.is_integer:
            return b.Cast(b.Shrink(b.Cast(x, to=dtypes.f64), bias=self.bias, lambd=self.lambd), to=x.dtype)
        inner = b.Where(b.Greater(x, self.lambd), b.Subtract(x, self.bias), scalar_like(b, 0, x))
        return b.Where(b.Less(x, -self.lambd), b.Add(x, self.bias), inner)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        outside = b.Or(b.Less(x, -self.lambd), b.Greater(x, self.lambd))
        return [b.Where(outside, g, scalar_like(b, 0, x))]


class SwiGLU(Elementwise, sig="x: F, y: F -> z: F", onnx="SwiGLU-28(x, y; alpha=1.0)"):
    """Compute x * sigmoid(alpha * x) * y for ``x`` and ``y`` of equal shapes. Source: ONNX SwiGLU 28."""

    alpha: float = 1.0

    def shape(self, x: View, y: View) -> Any:
        return agree_shapes(x.shape, y.shape, "x", "y")

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        return apply_in_wide_type(xp, lambda gate, value: Swish(self.alpha).function(xp, gate) * value, x, y)

    def lower(self, b: Builder, x: Value, y: Value) -> Any:
        return b.Multiply(b.Swish(x, alpha=self.alpha), y)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        swish = b.Swish(x, alpha=self.alpha)
        return [Swish(self.alpha).vjp(b, b.Multiply(g, y), swish, x)[0], b.Multiply(g, swish)]
