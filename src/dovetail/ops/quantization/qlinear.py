"""QLinear operators of com.microsoft: elementwise operators, pools and Concat on quantized tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import View, broadcast, dtype_in
from dovetail.ops.casts import as_type
from dovetail.ops.elementwise.activation import LeakyRelu, Sigmoid
from dovetail.ops.nn.pool import AveragePool
from dovetail.ops.nn.sliding_window import ONNX_PAD
from dovetail.ops.quantization.integer_matmul_conv import INTEGER_TYPES, IntegerOp
from dovetail.ops.quantization.quantize_linear import quantize, quantize_value
from dovetail.ops.quantization.scales import (
    as_scalar,
    as_scalar_value,
    check_single,
    subtract_zero_point,
    subtract_zero_point_value,
)
from dovetail.ops.reduction.softmax import Softmax
from dovetail.ops.tensor.concat_split import Concat

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_BINARY = "x: I, x_scale: f32, x_zero_point?: I, y: I, y_scale: f32, y_zero_point?: I, z_scale: f32, z_zero_point?: I -> z: I"
_BINARY_INPUTS = "(x, x_scale, x_zero_point?, y, y_scale, y_zero_point?, z_scale, z_zero_point?)"
_UNARY = "x: I, x_scale: f32, x_zero_point?: I, y_scale: f32, y_zero_point?: I -> y: I"
_UNARY_INPUTS = "x, x_scale, x_zero_point?, y_scale, y_zero_point?"


def zero_point_f32(xp: Namespace, values: Array) -> Any:
    """Return a zero point in f32; 0 for an absent zero point."""
    return xp.asarray(0, dtype=xp.float32) if values is None else arrays.cast(xp, as_scalar(xp, values), dtypes.f32)


def zero_point_f32_value(b: Builder, values: Value | None) -> Any:
    return b.constant(np.float32(0)) if values is None else as_type(b, as_scalar_value(b, values), dtypes.f32)


def dequantize(xp: Namespace, x: Array, scale: Array, zero_point: Array) -> Any:
    steps = subtract_zero_point(xp, x, None if zero_point is None else as_scalar(xp, zero_point))
    return arrays.cast(xp, steps, dtypes.f32) * as_scalar(xp, scale)


def dequantize_value(b: Builder, x: Value, scale: Value, zero_point: Value) -> Any:
    steps = subtract_zero_point_value(b, x, None if zero_point is None else as_scalar_value(b, zero_point), dtypes.f32)
    return b.Multiply(steps, as_scalar_value(b, scale))


def _check_all_single(scales: tuple[Any, ...], points: tuple[Any, ...]) -> None:
    for scale in scales:
        check_single(scale, "scale")
    for item in points:
        check_single(item, "zero point")


class _QLinearOp(IntegerOp):
    """_QLinearOp is the base of operators on quantized tensors whose result has the type bound to ``I`` in the signature."""

    def result(self, bound: dict[str, DType]) -> DType | None:
        return bound.get("I")


class _QLinearBinary(_QLinearOp):
    """_QLinearBinary is the base of binary operators on quantized tensors, with broadcasting."""

    def shape(self, x: View, sx: View, zx: View, y: View, sy: View, zy: View, sz: View, zz: View | None = None) -> Any:
        _check_all_single((sx, sy, sz), (zx, zy, zz))
        return broadcast(x.shape, y.shape)


class QLinearAdd(_QLinearBinary, sig=_BINARY, onnx=f"com.microsoft:QLinearAdd-1{_BINARY_INPUTS}"):
    """Add quantized tensors: dequantize the operands, add them, and quantize the sum.

    The result is ``(x_scale * (x - x_zero_point) + y_scale * (y - y_zero_point)) / z_scale + z_zero_point``, rounded and
    saturated. The sum is computed in f32 as ``x * p + (y * q + r)``: p is x_scale / z_scale, q is y_scale / z_scale, and r is the
    sum of the terms with zero points. Each multiply-add is rounded once.
    Source: com.microsoft QLinearAdd, as onnxruntime computes it with fused multiply-add.
    """

    def evaluate(
        self, xp: Namespace, x: Array, sx: Array, zx: Array, y: Array, sy: Array, zy: Array, sz: Array, zz: Array | None = None
    ) -> Any:
        kind = arrays.element(x)
        with np.errstate(all="ignore"):
            first, second = as_scalar(xp, sx) / as_scalar(xp, sz), as_scalar(xp, sy) / as_scalar(xp, sz)
            offset = zero_point_f32(xp, zz) - _fused_multiply_add(
                xp, zero_point_f32(xp, zx), first, zero_point_f32(xp, zy) * second
            )
            wide = [arrays.cast(xp, item, dtypes.f32) for item in (x, y)]
            total = _fused_multiply_add(xp, wide[0], first, _fused_multiply_add(xp, wide[1], second, offset))
            return quantize(xp, total, 0, kind)

    def decompose(
        self, b: Builder, x: Value, sx: Value, zx: Value, y: Value, sy: Value, zy: Value, sz: Value, zz: Value | None = None
    ) -> Any:
        first, second = (b.Divide(as_scalar_value(b, item), as_scalar_value(b, sz)) for item in (sx, sy))
        shift = b.Add(b.Multiply(zero_point_f32_value(b, zx), first), b.Multiply(zero_point_f32_value(b, zy), second))
        offset = b.Subtract(zero_point_f32_value(b, zz), shift)
        wide = [as_type(b, item, dtypes.f32) for item in (x, y)]
        total = b.Add(b.Multiply(wide[0], first), b.Add(b.Multiply(wide[1], second), offset))
        return quantize_value(b, total, None, x.dtype)


def _fused_multiply_add(xp: Namespace, x: Array, y: Array, z: Array) -> Any:
    """Return x * y + z of f32, rounded once: f64 represents the product exactly."""
    wide = [arrays.cast(xp, xp.asarray(item), dtypes.f64) for item in (x, y, z)]
    return arrays.cast(xp, wide[0] * wide[1] + wide[2], dtypes.f32)


class QLinearMul(_QLinearBinary, sig=_BINARY, onnx=f"com.microsoft:QLinearMul-1{_BINARY_INPUTS}"):
    """Multiply quantized tensors: subtract the zero points, multiply, and requantize.

    The result is ``(x - x_zero_point) * (y - y_zero_point) * (x_scale * y_scale / z_scale) + z_zero_point``, rounded and
    saturated. Source: com.microsoft QLinearMul, as in onnxruntime, which rounds after adding the zero point.
    """

    is_composite = True

    def evaluate(
        self, xp: Namespace, x: Array, sx: Array, zx: Array, y: Array, sy: Array, zy: Array, sz: Array, zz: Array | None = None
    ) -> Any:
        kind = arrays.element(x)
        left = subtract_zero_point(xp, x, None if zx is None else as_scalar(xp, zx))
        right = subtract_zero_point(xp, y, None if zy is None else as_scalar(xp, zy))
        with np.errstate(all="ignore"):
            factor = as_scalar(xp, sx) * as_scalar(xp, sy) / as_scalar(xp, sz)
            return quantize(xp, arrays.cast(xp, left * right, dtypes.f32) * factor + zero_point_f32(xp, zz), 0, kind)

    def decompose(
        self, b: Builder, x: Value, sx: Value, zx: Value, y: Value, sy: Value, zy: Value, sz: Value, zz: Value | None = None
    ) -> Any:
        left = subtract_zero_point_value(b, x, None if zx is None else as_scalar_value(b, zx), dtypes.f32)
        right = subtract_zero_point_value(b, y, None if zy is None else as_scalar_value(b, zy), dtypes.f32)
        factor = b.Divide(b.Multiply(as_scalar_value(b, sx), as_scalar_value(b, sy)), as_scalar_value(b, sz))
        total = b.Add(b.Multiply(b.Multiply(left, right), factor), zero_point_f32_value(b, zz))
        return quantize_value(b, total, None, x.dtype)


class _QLinearFunction(_QLinearOp):
    """_QLinearFunction is the base of unary functions on quantized tensors: dequantize, compute in f32, and quantize."""

    is_composite = True
    rounds_sum = False
    """True if the zero point is added before rounding."""

    def function(self) -> Op:
        raise NotImplementedError

    def shape(self, x: View, sx: View, zx: View, sy: View, zy: View | None = None) -> Any:
        _check_all_single((sx, sy), (zx, zy))
        return self.function().shape(x)

    def evaluate(self, xp: Namespace, x: Array, sx: Array, zx: Array, sy: Array, zy: Array | None = None) -> Any:
        kind = arrays.element(x)
        y = self.function().evaluate(xp, dequantize(xp, x, sx, zx))
        with np.errstate(all="ignore"):
            steps, offset = y / as_scalar(xp, sy), zero_point_f32(xp, zy)
            return quantize(xp, steps + offset, 0, kind) if self.rounds_sum else quantize(xp, steps, offset, kind)

    def decompose(self, b: Builder, x: Value, sx: Value, zx: Value, sy: Value, zy: Value | None = None) -> Any:
        y = b.add(self.function(), dequantize_value(b, x, sx, zx))[0]
        return quantize_value(
            b, b.Divide(y, as_scalar_value(b, sy)), zero_point_f32_value(b, zy), x.dtype, rounds_sum=self.rounds_sum
        )


class QLinearSigmoid(_QLinearFunction, sig=_UNARY, onnx=f"com.microsoft:QLinearSigmoid-1({_UNARY_INPUTS})"):
    """Apply Sigmoid to a quantized tensor. Source: com.microsoft QLinearSigmoid."""

    def function(self) -> Op:
        return Sigmoid()


class QLinearLeakyRelu(
    _QLinearFunction, sig=_UNARY, onnx=f"com.microsoft:QLinearLeakyRelu-1({_UNARY_INPUTS}; alpha=0.009999999776482582)"
):
    """Apply LeakyRelu to a quantized tensor. Source: com.microsoft QLinearLeakyRelu."""

    alpha: float = 0.009999999776482582

    def function(self) -> Op:
        return LeakyRelu(self.alpha)


_SOFTMAX = "com.microsoft:QLinearSoftmax-1(x, x_scale, x_zero_point?, y_scale, y_zero_point; axis=-1,"


class QLinearSoftmax(
    _QLinearFunction,
    sig=_UNARY,
    onnx=(
        f"{_SOFTMAX} opset~{{1:true,7:true,8:true,9:true,10:true,11:true,12:true}}:coerce_to_2d)",
        f"{_SOFTMAX} opset~{{{', '.join(f'{opset}:false' for opset in (*range(14, 29), 13))}}}:coerce_to_2d)",
    ),
):
    """Apply Softmax to a quantized tensor along ``axis``; with ``coerce_to_2d`` over ``axis`` and all later axes together.

    Source: com.microsoft QLinearSoftmax; unlike dovetail, onnxruntime rounds 1 / ``y_scale`` down to an integer.
    """

    axis: int = -1
    coerce_to_2d: bool = False

    def function(self) -> Op:
        results: Op = Softmax(self.axis, self.coerce_to_2d)
        return results


class QLinearGlobalAveragePool(
    _QLinearOp,
    sig="x: I, x_scale: f32, x_zero_point: I, y_scale: f32, y_zero_point: I -> y: I",
    onnx="com.microsoft:QLinearGlobalAveragePool-1(x, x_scale, x_zero_point, y_scale, y_zero_point; channels_last=0)",
):
    """Average a quantized tensor over all spatial axes; the channels are axis 1, or with ``channels_last`` the last axis.

    The result is the integer sum times ``x_scale / (y_scale * count)`` in f32, rounded, plus ``y_zero_point``. Source:
    com.microsoft QLinearGlobalAveragePool, as in onnxruntime.
    """

    is_composite = True

    channels_last: bool = False

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(1, rank - 1) if self.channels_last else range(2, rank))

    def shape(self, x: View, sx: View, zx: View, sy: View, zy: View) -> Any:
        _check_all_single((sx, sy), (zx, zy))
        if x.shape is None:
            return None
        if len(x.shape) < 3:
            raise RuleError("shape.rank", f"x must have a rank of at least 3, got {len(x.shape)}")
        return tuple(1 if axis in self._axes(len(x.shape)) else size for axis, size in enumerate(x.shape))

    def evaluate(self, xp: Namespace, x: Array, sx: Array, zx: Array, sy: Array, zy: Array) -> Any:
        axes = self._axes(x.ndim)
        steps = subtract_zero_point(xp, x, as_scalar(xp, zx))
        total = xp.sum(steps, axis=axes, keepdims=True, dtype=steps.dtype)
        count = 1
        for axis in axes:
            count *= x.shape[axis]
        kind = arrays.element(x)
        with np.errstate(all="ignore"):
            factor = as_scalar(xp, sx) / (as_scalar(xp, sy) * xp.asarray(count, dtype=sy.dtype))
            return quantize(xp, arrays.cast(xp, total, dtypes.f32) * factor, zero_point_f32(xp, zy), kind)

    def decompose(self, b: Builder, x: Value, sx: Value, zx: Value, sy: Value, zy: Value) -> Any:
        axes = self._axes(len(x.dims))
        steps = subtract_zero_point_value(b, x, as_scalar_value(b, zx))
        total = b.Cast(b.ReduceSum(steps, list(axes), keepdims=True), to=dtypes.f32)
        sizes = shape_value(b, x, axes)
        if isinstance(sizes, list):
            count = b.constant(np.float32(np.prod(sizes)))
        else:
            count = b.Cast(b.ReduceProd(sizes, [0], keepdims=False), to=dtypes.f32)
        factor = b.Divide(as_scalar_value(b, sx), b.Multiply(as_scalar_value(b, sy), count))
        return quantize_value(b, b.Multiply(total, factor), zero_point_f32_value(b, zy), x.dtype)


class QLinearAveragePool(
    _QLinearFunction,
    sig=_UNARY,
    onnx=(
        f"com.microsoft:QLinearAveragePool-1({_UNARY_INPUTS}; kernel_shape, strides?, pads~natural?, {ONNX_PAD}, "
        "ceil_mode~{0:floor}:rounding_type=0, count_include_pad~{0:inside,1:padded}:divisor=0, "
        "channels_last~{0:false}:channels_last=0)"
    ),
):
    """Apply AveragePool to a quantized tensor: dequantize, average in f32, and quantize.

    The mean is divided by ``y_scale``, ``y_zero_point`` is added, and the sum is rounded and saturated.
    Source: com.microsoft QLinearAveragePool, as in onnxruntime, which rounds after adding the zero point.
    """

    is_composite = True
    rounds_sum = True
    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    auto_pad: str = "explicit"
    rounding_type: str = "floor"
    divisor: str = "inside"
    channels_last: bool = False

    def validate(self) -> None:
        if self.channels_last:
            raise UnsupportedError(
                "op.unsupported", "channels_last must be 0: QLinearAveragePool pools channels-first tensors only"
            )
        self.function()

    def function(self) -> AveragePool:
        return AveragePool(
            strides=self.strides,
            pads=self.pads,
            auto_pad=self.auto_pad,
            kernel_shape=self.kernel_shape,
            rounding_type=self.rounding_type,
            divisor=self.divisor,
        )

    def canonical(self, x: View, *rest: View) -> Op:
        plain: Any = self.function().canonical(x)
        return self.with_(strides=plain.strides, pads=plain.pads, auto_pad=plain.auto_pad, divisor=plain.divisor)


class QLinearConcat(
    _QLinearOp,
    sig="y_scale: f32, y_zero_point: I, *inputs: any -> y: I",
    onnx="com.microsoft:QLinearConcat-1(y_scale, y_zero_point, *inputs; axis)",
):
    """Concatenate quantized tensors along ``axis``, requantized to one scale and zero point.

    ``inputs`` are triples of a tensor, its scale and its zero point. Source: com.microsoft QLinearConcat.
    """

    is_composite = True

    axis: int

    def shape(self, y_scale: View, y_zero_point: View, *inputs: View) -> Any:
        if not inputs or len(inputs) % 3:
            raise RuleError("node.inputs", f"inputs must be triples of tensor, scale and zero point, got {len(inputs)} inputs")
        for x, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
            check_single(scale, "scale")
            check_single(zero_point, "zero point")
            kinds = dtype_in(x.type), dtype_in(zero_point.type)
            if kinds[0] is not None and kinds[1] is not None and (kinds[0] is not kinds[1] or kinds[0].name not in INTEGER_TYPES):
                raise RuleError(
                    "quantize.type", f"tensor and zero point must both be i8 or both u8, got {kinds[0]} and {kinds[1]}"
                )
        return Concat(self.axis).shape(*inputs[::3])

    def evaluate(self, xp: Namespace, y_scale: Array, y_zero_point: Array, *inputs: Array) -> Any:
        kind = arrays.element(y_zero_point)
        parts = [
            quantize(xp, dequantize(xp, x, scale, zero_point) / as_scalar(xp, y_scale), zero_point_f32(xp, y_zero_point), kind)
            for x, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
        ]
        return Concat(self.axis).evaluate(xp, *parts)

    def decompose(self, b: Builder, y_scale: Value, y_zero_point: Value, *inputs: Value) -> Any:
        parts = []
        for x, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
            steps = b.Divide(dequantize_value(b, x, scale, zero_point), as_scalar_value(b, y_scale))
            parts.append(quantize_value(b, steps, as_scalar_value(b, y_zero_point), y_zero_point.dtype))
        return b.Concat(*parts, axis=self.axis)
