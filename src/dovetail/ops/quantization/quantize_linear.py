"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and FakeQuantize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, Unknown, View, agree_shapes, axis_in, broadcast
from dovetail.ops.casts import as_type, round_to, wide_type
from dovetail.ops.elementwise.broadcast import AUTO_BROADCAST
from dovetail.ops.quantization.scales import (
    apply_by_blocks,
    broadcast_parameter,
    broadcast_parameter_value,
    check_parameters,
    is_single,
)

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_QUANTIZED_TYPES = frozenset("i8 u8 i16 u16 i4 u4 i2 u2 f8e4m3 f8e4m3fnuz f8e5m2 f8e5m2fnuz f6e2m3 f6e3m2 f4e2m1".split())
"""Element types of quantized tensors."""
_LATER = "axis?=1, saturate=1, block_size=0, output_dtype~unset?=0"


class _QuantizationOp(Op):
    """_QuantizationOp is the base of operators with a scale and a zero point.

    Both have one element per tensor, per index of ``axis``, or per block of ``block_size`` indices of ``axis``.
    """

    axis: int | None = None
    block_size: int = 0

    def validate(self) -> None:
        if self.block_size < 0:
            raise RuleError("attribute.range", f"block_size must not be negative, got {self.block_size}")

    def value(self, *xs: View) -> Any:
        """Raise Unknown: shape values are never quantized."""
        raise Unknown

    def plain_axis(self, x: View, scale: View) -> int | None:
        """Return ``axis`` as an index of at least 0 if the rank is known; None for one scale per tensor."""
        if self.axis is None or (not self.block_size and is_single(scale.shape)):
            return None
        return self.axis if x.shape is None else axis_in(self.axis, len(x.shape))

    def apply_with_parameters(self, b: Builder, x: Value, scale: Value, zero_point: Value | None, compute: Any) -> Any:
        """Emit ``compute(x, scale, zero_point)`` with the scale and the zero point broadcast to ``x``."""
        if self.block_size:
            assert self.axis is not None
            return apply_by_blocks(b, x, [scale, zero_point], self.axis, self.block_size, compute)
        result = [None if item is None else broadcast_parameter_value(b, item, x, self.axis) for item in (scale, zero_point)]
        return compute(x, *result)


class QuantizeLinear(
    _QuantizationOp,
    sig="x: R, y_scale: R2, y_zero_point?: R3 -> y: R3",
    onnx=(
        "com.microsoft:QuantizeLinear-1(x, y_scale, y_zero_point?; axis?)",
        "QuantizeLinear-10(x, y_scale, y_zero_point?)",
        "QuantizeLinear-13(x, y_scale, y_zero_point?; axis?=1)",
        "QuantizeLinear-19(x, y_scale, y_zero_point?; axis?=1, saturate=1)",
        f"QuantizeLinear-21(x, y_scale, y_zero_point?; {_LATER})",
        f"QuantizeLinear-23,24,25,28(x, y_scale, y_zero_point?; {_LATER}, precision~unset?=0)",
    ),
):
    """Quantize ``x`` to ``saturate(round(x / y_scale) + y_zero_point)``, rounding half to even.

    The result has the type of ``y_zero_point``; without that input it has ``output_dtype``, by default u8. The quotient is
    computed in f64 if an operand is f64, otherwise in f32, and rounded to ``precision`` if that is narrower. For a float type the
    result is ``x / y_scale + y_zero_point``, cast as by Cast with ``saturate``. ``y_scale`` is a scalar, a vector along ``axis``,
    or with ``block_size`` a tensor with one number for each block of ``axis``. Sources: ONNX QuantizeLinear 10, 13, 19, 21
    (quotients of f16 are rounded as in onnxruntime) and 23 to 28 (quotients are rounded to the type of the scale);
    com.microsoft QuantizeLinear. Raises UnsupportedError [op.unsupported] for a scale of integers.
    """

    rounds_half_once = False
    fixed_ports = (1, 2)

    quantizes: ClassVar[bool] = True
    output_dtype: DType | None = None
    saturate: bool = True
    precision: DType | None = None

    def types(self, x: View, y_scale: View, y_zero_point: View | None = None) -> list[Type]:
        bound = check_inputs(self, (x, y_scale, y_zero_point))
        if bound.get("R2") is not None and not bound["R2"].is_float:
            raise UnsupportedError(
                "op.unsupported",
                f"the scale must be a float type, got {bound['R2']}: the rounding of its quotient is not specified",
            )
        check_parameters(x, y_scale, y_zero_point, self.axis, self.block_size)
        return [Tensor(self.target(bound.get("R3") if y_zero_point is not None else None, y_zero_point), x.shape)]

    def target(self, kind: DType | None, y_zero_point: View | None) -> DType | None:
        if y_zero_point is not None and kind is None:
            return self.output_dtype
        if kind is not None and self.output_dtype is not None and kind is not self.output_dtype:
            raise RuleError("quantize.type", f"the zero point must have the type output_dtype ({self.output_dtype}), got {kind}")
        result = kind or self.output_dtype or dtypes.u8
        if result.name not in _QUANTIZED_TYPES:
            raise RuleError("quantize.type", f"the result must have a quantized type, got {result}")
        return result

    def canonical(self, x: View, y_scale: View, y_zero_point: View | None = None) -> Op:
        """Drop attributes without effect: ``axis`` of a scalar scale, ``output_dtype`` with a zero point, equal ``precision``."""
        kind = self.output_dtype if y_zero_point is None else y_zero_point.dtype
        wide = wide_type(x.dtype, y_scale.dtype)
        return self.with_(
            axis=self.plain_axis(x, y_scale),
            output_dtype=None if y_zero_point is not None or self.output_dtype == "u8" else self.output_dtype,
            saturate=self.saturate or kind is None or not kind.name.startswith("f8"),
            precision=None if self.precision is wide else self.precision,
        )

    def evaluate(self, xp: Namespace, x: Array, y_scale: Array, y_zero_point: Array | None = None) -> Any:
        kind = self.target(None if y_zero_point is None else arrays.element(y_zero_point), y_zero_point)
        assert kind is not None
        wide = wide_type(arrays.element(x), arrays.element(y_scale))
        factor = broadcast_parameter(xp, arrays.cast(xp, y_scale, wide), x.shape, self.axis, self.block_size)
        offset = 0
        if y_zero_point is not None:
            offset = broadcast_parameter(xp, arrays.cast(xp, y_zero_point, wide), x.shape, self.axis, self.block_size)
        with np.errstate(all="ignore"):
            quotient = arrays.cast(xp, x, wide) / factor
            if self.precision is not None and self.precision.bits < wide.bits:
                quotient = arrays.cast(xp, arrays.cast(xp, quotient, self.precision), wide)
            return quantize(xp, quotient, offset, kind, self.saturate)

    def decompose(self, b: Builder, x: Value, y_scale: Value, y_zero_point: Value | None = None) -> Any:
        kind = self.target(None if y_zero_point is None else y_zero_point.dtype, y_zero_point)
        if kind is None:
            raise Unknown
        wide = wide_type(x.dtype, y_scale.dtype)

        def compute(values: Value, factor: Value, offset: Value | None) -> Any:
            quotient = b.Divide(values, factor)
            if self.precision is not None and self.precision.bits < wide.bits:
                quotient = as_type(b, as_type(b, quotient, self.precision), wide)
            return quantize_value(b, quotient, offset, kind, self.saturate)

        return self.apply_with_parameters(
            b, as_type(b, x, wide), as_type(b, y_scale, wide), _without_zeros(y_zero_point), compute
        )

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, y_scale: Value, y_zero_point: Value | None = None) -> Any:
        raise UnsupportedError("grad.op", "quantization has no gradient")

    def straight_through(self, b: Builder, fixed: Sequence[Value], /, *xs: Value) -> Any:
        """Emit ``x / y_scale``, and 0 where the rounded code lies outside of the range of its type: the rule of torch's
        fake_quantize_per_tensor_affine, and with the rule of DequantizeLinear that of learned step sizes for the scale."""
        zero_point = fixed[2] if len(fixed) > 2 else None
        kind = self.target(None if zero_point is None else zero_point.dtype, zero_point)
        if kind is None or kind.is_float:
            raise UnsupportedError("grad.op", f"a straight-through estimate needs integer codes, got {kind}")
        wide = wide_type(xs[0].dtype, xs[1].dtype)
        low, high = (b.constant(limit, wide) for limit in kind.range())

        def is_inside(values: Value, factor: Value, offset: Value | None) -> Any:
            code = b.Round(b.Divide(values, factor))
            code = code if offset is None else b.Add(code, as_type(b, offset, wide))
            return b.And(b.GreaterEqual(code, low), b.LessEqual(code, high))

        x, scale = (as_type(b, item, wide) for item in fixed[:2])
        inside = self.apply_with_parameters(b, x, scale, zero_point, is_inside)
        x, scale = (as_type(b, item, wide) for item in xs[:2])
        quotient = self.apply_with_parameters(b, x, scale, None, lambda values, factor, _: b.Divide(values, factor))
        return b.Where(inside, quotient, b.constant(0, wide))


def _without_zeros(zero_point: Value | None) -> Value | None:
    """Return the zero point, or None if the zero point is a constant of zeros only."""
    if zero_point is None or zero_point.constant is None or zero_point.constant.astype(np.float64).any():
        return zero_point
    return None


def quantize(xp: Namespace, quotient: Array, offset: Array, kind: DType, saturate: bool = True) -> Any:
    """Round a quotient, add the zero point and saturate to the range of ``kind``."""
    if kind.is_float:
        return arrays.cast(xp, quotient + offset, kind, None, saturate)
    low, high = kind.range()
    return arrays.cast(xp, xp.clip(xp.round(quotient) + offset, low, high), kind)


def quantize_value(
    b: Builder, quotient: Value, offset: Value | None, kind: DType, saturate: bool = True, rounds_sum: bool = False
) -> Any:
    """Emit ``quantize`` with the zero point ``offset`` (None: 0).

    With ``rounds_sum`` the sum of quotient and zero point is rounded instead of the quotient.
    """
    shift = None if offset is None else as_type(b, offset, quotient.dtype)
    if kind.is_float:
        return b.Cast(quotient if shift is None else b.Add(quotient, shift), to=kind, saturate=saturate)
    low, high = (b.constant(limit, quotient.dtype) for limit in kind.range())
    if rounds_sum:
        codes = b.Round(quotient if shift is None else b.Add(quotient, shift))
    else:
        codes = b.Round(quotient) if shift is None else b.Add(b.Round(quotient), shift)
    return b.Cast(b.Clip(codes, low, high), to=kind)


_GROUPED = "axis?=1, block_size=0"


class DequantizeLinear(
    _QuantizationOp,
    sig="x: R, x_scale: F, x_zero_point?: R -> y: F",
    onnx=(
        "com.microsoft:DequantizeLinear-1(x, x_scale, x_zero_point?; axis?)",
        "DequantizeLinear-10(x, x_scale, x_zero_point?)",
        "DequantizeLinear-13,19(x, x_scale, x_zero_point?; axis?=1)",
        f"DequantizeLinear-21(x, x_scale, x_zero_point?; {_GROUPED})",
        f"DequantizeLinear-23,24,25,28(x, x_scale, x_zero_point?; {_GROUPED}, output_dtype~unset?=0)",
    ),
):
    """Dequantize ``x`` to ``(x - x_zero_point) * x_scale``.

    The result has the type ``output_dtype``, by default the type of ``x_scale``. The parameters broadcast to ``x`` as in
    QuantizeLinear. The difference is exact. The product is computed in f64 if the scale or the result is f64, otherwise in f32,
    and rounded once. Sources: ONNX DequantizeLinear 10 to 28; com.microsoft DequantizeLinear.
    """

    rounds_half_once = False
    fixed_ports = (1, 2)

    output_dtype: DType | None = None

    def validate(self) -> None:
        super().validate()
        if self.output_dtype is not None and not self.output_dtype.is_float:
            raise RuleError("quantize.type", f"output_dtype must be a float type, got {self.output_dtype}")

    def types(self, x: View, x_scale: View, x_zero_point: View | None = None) -> list[Type]:
        bound = check_inputs(self, (x, x_scale, x_zero_point))
        kind = bound.get("R")
        if kind is not None and kind.name not in _QUANTIZED_TYPES and kind != "i32":
            raise RuleError("quantize.type", f"x must have a quantized type or i32, got {kind}")
        check_parameters(x, x_scale, x_zero_point, self.axis, self.block_size)
        return [Tensor(self.output_dtype or bound.get("F"), x.shape)]

    def canonical(self, x: View, x_scale: View, x_zero_point: View | None = None) -> Op:
        return self.with_(
            axis=self.plain_axis(x, x_scale), output_dtype=None if self.output_dtype is x_scale.dtype else self.output_dtype
        )

    def evaluate(self, xp: Namespace, x: Array, x_scale: Array, x_zero_point: Array | None = None) -> Any:
        kind, result = arrays.element(x), self.output_dtype or arrays.element(x_scale)
        wide = wide_type(arrays.element(x_scale), result)
        values = arrays.cast(xp, x, _difference_type(kind, wide))
        if x_zero_point is not None:
            offset = arrays.cast(xp, x_zero_point, _difference_type(kind, wide))
            values = values - broadcast_parameter(xp, offset, x.shape, self.axis, self.block_size)
        factor = broadcast_parameter(xp, arrays.cast(xp, x_scale, wide), x.shape, self.axis, self.block_size)
        return round_to(xp, arrays.cast(xp, values, wide) * factor, result)

    def decompose(self, b: Builder, x: Value, x_scale: Value, x_zero_point: Value | None = None) -> Any:
        result = self.output_dtype or x_scale.dtype
        wide = wide_type(x_scale.dtype, result)
        exact = _difference_type(x.dtype, wide)
        offset = _without_zeros(x_zero_point)

        def compute(values: Value, factor: Value, shift: Value | None) -> Any:
            # f32 represents differences of 16-bit integers exactly; OpenVINO recognizes compressed weights by this form.
            kind = wide if x.dtype.bits <= 16 or shift is None else exact
            difference = as_type(b, values, kind)
            if shift is not None:
                difference = b.Subtract(difference, as_type(b, shift, kind))
            return as_type(b, b.Multiply(as_type(b, difference, wide), factor), result)

        if offset is not None and self.block_size and x.dtype.bits < 8:
            # A partial block repeats the zero points, and OpenVINO 2026.4 repeats those of 4 bits wrong.
            offset = as_type(b, offset, wide)
        return self.apply_with_parameters(b, x, as_type(b, x_scale, wide), offset, compute)

    def straight_through(self, b: Builder, fixed: Sequence[Value], /, *xs: Value) -> Any:
        """Emit ``(x - x_zero_point) * x_scale`` with the codes ``x`` as floats."""
        result = self.output_dtype or xs[1].dtype
        wide = wide_type(xs[1].dtype, result)
        x, scale = (as_type(b, item, wide) for item in xs[:2])

        def compute(values: Value, factor: Value, offset: Value | None) -> Any:
            return b.Multiply(values if offset is None else b.Subtract(values, as_type(b, offset, wide)), factor)

        return as_type(b, self.apply_with_parameters(b, x, scale, fixed[2] if len(fixed) > 2 else None, compute), result)


def _difference_type(kind: DType, wide: DType) -> DType:
    """Return a type in which the difference of two elements of ``kind`` is exact; 32-bit integers wrap."""
    return dtypes.i32 if kind.is_integer else wide


class DynamicQuantizeLinear(Op, sig="x: f32 -> y: u8, y_scale: f32, y_zero_point: u8", onnx="DynamicQuantizeLinear-11(x)"):
    """Quantize ``x`` to u8 over the range of its elements, extended to contain 0; return codes, scale and zero point.

    ``y_scale`` is (max - min) / 255, or 1 if max equals min. ``y_zero_point`` is round(saturate(-min / y_scale)), and ``y`` is
    computed as by QuantizeLinear. Source: ONNX DynamicQuantizeLinear 11 (max equal to min as in onnxruntime).
    """

    quantizes: ClassVar[bool] = True

    def shape(self, x: View) -> Any:
        return [x.shape, (), ()]

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        scale, zero_point = dynamic_scale(xp, x)
        y = quantize(xp, x / scale, zero_point, dtypes.u8)
        return y, scale, arrays.cast(xp, zero_point, dtypes.u8)

    def decompose(self, b: Builder, x: Value) -> Any:
        zero = b.constant(np.float32(0))
        axes = list(range(len(x.dims)))
        minimum = b.Minimum(b.ReduceMin(x, axes, keepdims=False), zero)
        span = b.Subtract(b.Maximum(b.ReduceMax(x, axes, keepdims=False), zero), minimum)
        scale = b.Where(b.Equal(span, zero), b.constant(np.float32(1)), b.Divide(span, b.constant(np.float32(255))))
        point = b.Clip(b.Subtract(zero, b.Divide(minimum, scale)), zero, b.constant(np.float32(255)))
        zero_point = b.Cast(b.Round(point), to=dtypes.u8)
        return [b.QuantizeLinear(x, scale, zero_point), scale, zero_point]

    def vjp(self, b: Builder, g: Sequence[Value | None], y: Sequence[Value], x: Value) -> Any:
        raise UnsupportedError("grad.op", "quantization has no gradient")


def dynamic_scale(xp: Namespace, x: Array) -> tuple[Any, Any]:
    """Return the scale and the zero point, both in f32, that map the range of ``x`` to u8."""
    if 0 in x.shape:
        raise EngineError("shape.empty", "x must have at least 1 element, got 0")
    zero = xp.asarray(0, dtype=x.dtype)
    minimum, maximum = xp.minimum(xp.min(x), zero), xp.maximum(xp.max(x), zero)
    span = maximum - minimum
    scale = xp.where(span == 0, xp.asarray(1, dtype=x.dtype), span / 255)
    zero_point = xp.round(xp.clip(zero - minimum / scale, 0, 255))
    return xp.asarray(scale, dtype=x.dtype), zero_point


class FakeQuantize(
    Op,
    sig="data: F, input_low: F, input_high: F, output_low: F, output_high: F -> output: F",
    openvino=f"FakeQuantize-1(data, input_low, input_high, output_low, output_high; levels, {AUTO_BROADCAST})",
):
    """Quantize ``data`` to ``levels`` steps of the input range, and map the steps to the output range.

    The result is ``round((data - input_low) / (input_high - input_low) * (levels - 1)) / (levels - 1) * (output_high -
    output_low) + output_low``, rounding half to even. It is ``output_low`` for data <= min(input_low, input_high), and
    ``output_high`` for data > max(input_low, input_high). The limits broadcast to ``data``. Floats of fewer than 32 bits are
    computed in f32. Source: OpenVINO FakeQuantize-1.
    """

    fixed_ports = (1, 2, 3, 4)

    levels: int
    broadcast: bool = True

    def validate(self) -> None:
        if self.levels < 2:
            raise RuleError("attribute.range", f"levels must be at least 2, got {self.levels}")

    def shape(self, data: View, *limits: View) -> Any:
        if not self.broadcast:
            shape = data.shape
            for limit in limits:
                shape = agree_shapes(shape, limit.shape, "data", "a limit")
            return shape
        common = broadcast(data.shape, *(limit.shape for limit in limits))
        if data.shape is not None and common is not None and len(common) > len(data.shape):
            raise RuleError(
                "shape.broadcast", f"the rank of the limits ({len(common)}) must not exceed the rank of data ({len(data.shape)})"
            )
        if data.shape is not None and common is not None:
            for size, expected in zip(common, data.shape, strict=True):
                if isinstance(size, int) and isinstance(expected, int) and size != expected:
                    raise RuleError("shape.broadcast", f"a size of the limits must be 1 or equal data's ({expected}), got {size}")
        return data.shape

    def evaluate(self, xp: Namespace, data: Array, *limits: Array) -> Any:
        wide = arrays.widen(xp, data)
        low, high, output_low, output_high = (arrays.widen(xp, limit) for limit in limits)
        steps = self.levels - 1
        with np.errstate(all="ignore"):
            y = xp.round((wide - low) / (high - low) * steps) / steps * (output_high - output_low) + output_low
            y = xp.where(wide > xp.maximum(low, high), output_high, y)
            y = xp.where(wide <= xp.minimum(low, high), output_low, y)
        return round_to(xp, y, arrays.element(data))

    def decompose(self, b: Builder, data: Value, *limits: Value) -> Any:
        kind = dtypes.f64 if data.dtype == "f64" else dtypes.f32
        wide, low, high, output_low, output_high = (as_type(b, item, kind) for item in (data, *limits))
        steps = b.constant(self.levels - 1, kind)
        share = b.Divide(b.Subtract(wide, low), b.Subtract(high, low))
        y = b.Divide(b.Round(b.Multiply(share, steps)), steps)
        y = b.Add(b.Multiply(y, b.Subtract(output_high, output_low)), output_low)
        y = b.Where(b.Greater(wide, b.Maximum(low, high)), output_high, y)
        y = b.Where(b.LessEqual(wide, b.Minimum(low, high)), output_low, y)
        return as_type(b, y, data.dtype)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, *limits: Value) -> Any:
        raise UnsupportedError("grad.op", "quantization has no gradient")

    def straight_through(self, b: Builder, fixed: Sequence[Value], /, *xs: Value) -> Any:
        """Emit the operator with the identity as gradient of the rounding: data outside of the input range have none."""
        kind = dtypes.f64 if xs[0].dtype == "f64" else dtypes.f32
        steps = b.constant(self.levels - 1, kind)

        def position(data: Value, low: Value, high: Value) -> Any:
            return b.Multiply(b.Divide(b.Subtract(data, low), b.Subtract(high, low)), steps)

        data, low, high = (as_type(b, item, kind) for item in fixed[:3])
        exact = position(data, low, high)
        error = b.Subtract(b.Round(exact), exact)
        is_above, is_below = b.Greater(data, b.Maximum(low, high)), b.LessEqual(data, b.Minimum(low, high))
        data, low, high, output_low, output_high = (as_type(b, item, kind) for item in xs)
        share = b.Divide(b.Add(position(data, low, high), error), steps)
        y = b.Add(b.Multiply(share, b.Subtract(output_high, output_low)), output_low)
        return as_type(b, b.Where(is_below, output_low, b.Where(is_above, output_high, y)), xs[0].dtype)
