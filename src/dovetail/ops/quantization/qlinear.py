"""Elementwise operators, pools and concatenation from one grid of bytes to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, dtypes
from dovetail.dtypes import DType
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import View, broadcast, dtype_in
from dovetail.ops.casts import as_type
from dovetail.ops.elementwise.activation import LeakyRelu, Sigmoid
from dovetail.ops.nn.pool import AveragePool
from dovetail.ops.nn.sliding_window import ONNX_PAD
from dovetail.ops.quantization.integer_matmul_conv import BYTES, _Bytes
from dovetail.ops.quantization.quantize_linear import grid_value, onto_grid
from dovetail.ops.quantization.scales import centred, centred_value, check_single, one, one_value
from dovetail.ops.reduction.softmax import Softmax
from dovetail.ops.tensor.concat_split import Concat

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_TWO = "x: I, x_scale: f32, x_zero_point?: I, y: I, y_scale: f32, y_zero_point?: I, z_scale: f32, z_zero_point?: I -> z: I"
_TWO_LINE = "(x, x_scale, x_zero_point?, y, y_scale, y_zero_point?, z_scale, z_zero_point?)"
_ONE = "x: I, x_scale: f32, x_zero_point?: I, y_scale: f32, y_zero_point?: I -> y: I"
_ONE_LINE = "x, x_scale, x_zero_point?, y_scale, y_zero_point?"


def point(xp: Namespace, values: Array) -> Any:
    """A zero point in f32; 0 where it is left out."""
    return xp.asarray(0, dtype=xp.float32) if values is None else arrays.cast(xp, one(xp, values), dtypes.f32)


def point_value(b: Builder, values: Value | None) -> Any:
    return b.constant(np.float32(0)) if values is None else as_type(b, one_value(b, values), dtypes.f32)


def dequantized(xp: Namespace, x: Array, scale: Array, zero_point: Array) -> Any:
    steps = centred(xp, x, None if zero_point is None else one(xp, zero_point))
    return arrays.cast(xp, steps, dtypes.f32) * one(xp, scale)


def dequantized_value(b: Builder, x: Value, scale: Value, zero_point: Value) -> Any:
    steps = centred_value(b, x, None if zero_point is None else one_value(b, zero_point), dtypes.f32)
    return b.Multiply(steps, one_value(b, scale))


def _check_all_single(scales: tuple[Any, ...], points: tuple[Any, ...]) -> None:
    for scale in scales:
        check_single(scale, "scale")
    for each in points:
        check_single(each, "zero point")


class _OnGrid(_Bytes):
    """The result is of the type of the first input."""

    def result(self, bound: dict[str, DType]) -> DType | None:
        return bound.get("I")


class _TwoOnGrid(_OnGrid):
    def shape(self, x: View, sx: View, zx: View, y: View, sy: View, zy: View, sz: View, zz: View | None = None) -> Any:
        _check_all_single((sx, sy, sz), (zx, zy, zz))
        return broadcast(x.shape, y.shape)


class QLinearAdd(_TwoOnGrid, sig=_TWO, onnx=f"com.microsoft:QLinearAdd-1{_TWO_LINE}"):
    """``(x_scale * (x - x_zero_point) + y_scale * (y - y_zero_point)) / z_scale + z_zero_point``, rounded and saturated.

    In f32 as ``x * p + (y * q + r)``, p and q the ratios of the scales and r what the zero points come to, each product and sum
    rounded once. Source: com.microsoft QLinearAdd, as onnxruntime computes it where a processor multiplies and adds in one.
    """

    def evaluate(
        self, xp: Namespace, x: Array, sx: Array, zx: Array, y: Array, sy: Array, zy: Array, sz: Array, zz: Array | None = None
    ) -> Any:
        kind = arrays.element(x)
        with np.errstate(all="ignore"):
            first, second = one(xp, sx) / one(xp, sz), one(xp, sy) / one(xp, sz)
            middle = point(xp, zz) - _fused(xp, point(xp, zx), first, point(xp, zy) * second)
            wide = [arrays.cast(xp, each, dtypes.f32) for each in (x, y)]
            total = _fused(xp, wide[0], first, _fused(xp, wide[1], second, middle))
            return onto_grid(xp, total, 0, kind)

    def decompose(
        self, b: Builder, x: Value, sx: Value, zx: Value, y: Value, sy: Value, zy: Value, sz: Value, zz: Value | None = None
    ) -> Any:
        first, second = (b.Divide(one_value(b, each), one_value(b, sz)) for each in (sx, sy))
        moved = b.Add(b.Multiply(point_value(b, zx), first), b.Multiply(point_value(b, zy), second))
        middle = b.Subtract(point_value(b, zz), moved)
        wide = [as_type(b, each, dtypes.f32) for each in (x, y)]
        total = b.Add(b.Multiply(wide[0], first), b.Add(b.Multiply(wide[1], second), middle))
        return grid_value(b, total, None, x.dtype)


def _fused(xp: Namespace, x: Array, y: Array, z: Any) -> Any:
    """x * y + z of f32, rounded once: f64 holds the product."""
    wide = [arrays.cast(xp, xp.asarray(each), dtypes.f64) for each in (x, y, z)]
    return arrays.cast(xp, wide[0] * wide[1] + wide[2], dtypes.f32)


class QLinearMul(_TwoOnGrid, sig=_TWO, onnx=f"com.microsoft:QLinearMul-1{_TWO_LINE}"):
    """``(x - x_zero_point) * (y - y_zero_point) * (x_scale * y_scale / z_scale) + z_zero_point``, rounded and saturated.

    Source: com.microsoft QLinearMul, as onnxruntime computes it: the sum is rounded, not the product alone.
    """

    def evaluate(
        self, xp: Namespace, x: Array, sx: Array, zx: Array, y: Array, sy: Array, zy: Array, sz: Array, zz: Array | None = None
    ) -> Any:
        kind = arrays.element(x)
        left = centred(xp, x, None if zx is None else one(xp, zx))
        right = centred(xp, y, None if zy is None else one(xp, zy))
        with np.errstate(all="ignore"):
            factor = one(xp, sx) * one(xp, sy) / one(xp, sz)
            return onto_grid(xp, arrays.cast(xp, left * right, dtypes.f32) * factor + point(xp, zz), 0, kind)

    def decompose(
        self, b: Builder, x: Value, sx: Value, zx: Value, y: Value, sy: Value, zy: Value, sz: Value, zz: Value | None = None
    ) -> Any:
        left = centred_value(b, x, None if zx is None else one_value(b, zx), dtypes.f32)
        right = centred_value(b, y, None if zy is None else one_value(b, zy), dtypes.f32)
        factor = b.Divide(b.Multiply(one_value(b, sx), one_value(b, sy)), one_value(b, sz))
        total = b.Add(b.Multiply(b.Multiply(left, right), factor), point_value(b, zz))
        return grid_value(b, total, None, x.dtype)


class _FunctionOnGrid(_OnGrid):
    """A function of floats between two grids: dequantised, computed in f32, and quantised."""

    together = False

    def function(self) -> Op:
        raise NotImplementedError

    def shape(self, x: View, sx: View, zx: View, sy: View, zy: View | None = None) -> Any:
        _check_all_single((sx, sy), (zx, zy))
        return self.function().shape(x)

    def evaluate(self, xp: Namespace, x: Array, sx: Array, zx: Array, sy: Array, zy: Array | None = None) -> Any:
        kind = arrays.element(x)
        y = self.function().evaluate(xp, dequantized(xp, x, sx, zx))
        with np.errstate(all="ignore"):
            steps, offset = y / one(xp, sy), point(xp, zy)
            return onto_grid(xp, steps + offset, 0, kind) if self.together else onto_grid(xp, steps, offset, kind)

    def decompose(self, b: Builder, x: Value, sx: Value, zx: Value, sy: Value, zy: Value | None = None) -> Any:
        y = b.add(self.function(), dequantized_value(b, x, sx, zx))[0]
        return grid_value(b, b.Divide(y, one_value(b, sy)), point_value(b, zy), x.dtype, together=self.together)


class QLinearSigmoid(_FunctionOnGrid, sig=_ONE, onnx=f"com.microsoft:QLinearSigmoid-1({_ONE_LINE})"):
    """Sigmoid between two grids of bytes. Source: com.microsoft QLinearSigmoid."""

    def function(self) -> Op:
        return Sigmoid()


class QLinearLeakyRelu(
    _FunctionOnGrid, sig=_ONE, onnx=f"com.microsoft:QLinearLeakyRelu-1({_ONE_LINE}; alpha=0.009999999776482582)"
):
    """LeakyRelu between two grids of bytes. Source: com.microsoft QLinearLeakyRelu."""

    alpha: float = 0.009999999776482582

    def function(self) -> Op:
        return LeakyRelu(self.alpha)


_SOFTMAX = "com.microsoft:QLinearSoftmax-1(x, x_scale, x_zero_point?, y_scale, y_zero_point; axis=-1,"


class QLinearSoftmax(
    _FunctionOnGrid,
    sig=_ONE,
    onnx=(
        f"{_SOFTMAX} opset~{{1:true,7:true,8:true,9:true,10:true,11:true,12:true}}:coerce_to_2d)",
        f"{_SOFTMAX} opset~{{{', '.join(f'{opset}:false' for opset in (*range(14, 29), 13))}}}:coerce_to_2d)",
    ),
):
    """Softmax between two grids of bytes, with ``coerce_to_2d`` over ``axis`` and all after it.

    Source: com.microsoft QLinearSoftmax; where 1 / ``y_scale`` is no whole number onnxruntime takes the one below it instead.
    """

    axis: int = -1
    coerce_to_2d: bool = False

    def function(self) -> Op:
        made: Op = Softmax(self.axis, self.coerce_to_2d)
        return made


class QLinearGlobalAveragePool(
    _OnGrid,
    sig="x: I, x_scale: f32, x_zero_point: I, y_scale: f32, y_zero_point: I -> y: I",
    onnx="com.microsoft:QLinearGlobalAveragePool-1(x, x_scale, x_zero_point, y_scale, y_zero_point; channels_last=0)",
):
    """The mean over all spatial axes, from one grid of bytes to another; the channels are axis 1, or the last.

    The sum of the steps times ``x_scale / (y_scale * count)`` in f32, rounded, plus ``y_zero_point``. Source: com.microsoft
    QLinearGlobalAveragePool, as onnxruntime computes it.
    """

    channels_last: bool = False

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(1, rank - 1) if self.channels_last else range(2, rank))

    def shape(self, x: View, sx: View, zx: View, sy: View, zy: View) -> Any:
        _check_all_single((sx, sy), (zx, zy))
        if x.shape is None:
            return None
        if len(x.shape) < 3:
            raise RuleError("window.rank", f"a tensor of rank {len(x.shape)} has no spatial axes")
        return tuple(1 if axis in self._axes(len(x.shape)) else size for axis, size in enumerate(x.shape))

    def evaluate(self, xp: Namespace, x: Array, sx: Array, zx: Array, sy: Array, zy: Array) -> Any:
        axes = self._axes(x.ndim)
        steps = centred(xp, x, one(xp, zx))
        total = xp.sum(steps, axis=axes, keepdims=True, dtype=steps.dtype)
        count = 1
        for axis in axes:
            count *= x.shape[axis]
        kind = arrays.element(x)
        with np.errstate(all="ignore"):
            factor = one(xp, sx) / (one(xp, sy) * xp.asarray(count, dtype=sy.dtype))
            return onto_grid(xp, arrays.cast(xp, total, dtypes.f32) * factor, point(xp, zy), kind)

    def decompose(self, b: Builder, x: Value, sx: Value, zx: Value, sy: Value, zy: Value) -> Any:
        from dovetail.ir.builder import shape_value

        axes = self._axes(len(x.dims))
        steps = centred_value(b, x, one_value(b, zx))
        total = b.Cast(b.ReduceSum(steps, list(axes), keepdims=True), to=dtypes.f32)
        sizes = shape_value(b, x, axes)
        if isinstance(sizes, list):
            count = b.constant(np.float32(np.prod(sizes)))
        else:
            count = b.Cast(b.ReduceProd(sizes, [0], keepdims=False), to=dtypes.f32)
        factor = b.Divide(one_value(b, sx), b.Multiply(one_value(b, sy), count))
        return grid_value(b, b.Multiply(total, factor), point_value(b, zy), x.dtype)


class QLinearAveragePool(
    _FunctionOnGrid,
    sig=_ONE,
    onnx=(
        f"com.microsoft:QLinearAveragePool-1({_ONE_LINE}; kernel_shape, strides?, pads~natural?, {ONNX_PAD}, "
        "ceil_mode~{0:floor}:rounding_type=0, count_include_pad~{0:inside,1:padded}:divisor=0, "
        "channels_last~{0:false}:channels_last=0)"
    ),
):
    """AveragePool of what is dequantised, in f32, divided by ``y_scale``, plus ``y_zero_point``, rounded and saturated.

    Source: com.microsoft QLinearAveragePool, as onnxruntime computes it: the sum is rounded, not the quotient alone.
    """

    together = True
    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    auto_pad: str = "explicit"
    rounding_type: str = "floor"
    divisor: str = "inside"
    channels_last: bool = False

    def validate(self) -> None:
        if self.channels_last:
            raise UnsupportedError("pool.layout", "a QLinearAveragePool whose channels are the last axis")
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
    _OnGrid,
    sig="y_scale: f32, y_zero_point: I, *inputs: any -> y: I",
    onnx="com.microsoft:QLinearConcat-1(y_scale, y_zero_point, *inputs; axis)",
):
    """Concat along ``axis`` of bytes, each of ``xs`` followed by its scale and its zero point, brought to one grid.

    Source: com.microsoft QLinearConcat.
    """

    axis: int

    def shape(self, y_scale: View, y_zero_point: View, *inputs: View) -> Any:
        if not inputs or len(inputs) % 3:
            raise RuleError("node.inputs", f"{len(inputs)} inputs, where each tensor has a scale and a zero point")
        for x, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
            check_single(scale, "scale")
            check_single(zero_point, "zero point")
            kinds = dtype_in(x.type), dtype_in(zero_point.type)
            if kinds[0] is not None and kinds[1] is not None and (kinds[0] is not kinds[1] or kinds[0].name not in BYTES):
                raise RuleError("quantize.type", f"a tensor of {kinds[0]} with a zero point of {kinds[1]}")
        return Concat(self.axis).shape(*inputs[::3])

    def evaluate(self, xp: Namespace, y_scale: Array, y_zero_point: Array, *inputs: Array) -> Any:
        kind = arrays.element(y_zero_point)
        parts = [
            onto_grid(xp, dequantized(xp, x, scale, mine) / one(xp, y_scale), point(xp, y_zero_point), kind)
            for x, scale, mine in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
        ]
        return Concat(self.axis).evaluate(xp, *parts)

    def decompose(self, b: Builder, y_scale: Value, y_zero_point: Value, *inputs: Value) -> Any:
        parts = []
        for x, scale, mine in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
            steps = b.Divide(dequantized_value(b, x, scale, mine), one_value(b, y_scale))
            parts.append(grid_value(b, steps, one_value(b, y_zero_point), y_zero_point.dtype))
        return b.Concat(*parts, axis=self.axis)
