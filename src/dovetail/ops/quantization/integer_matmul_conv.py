"""Integer matrix products and convolutions, accumulated in i32, and their requantized forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, Unknown, View, agree
from dovetail.ops.casts import as_type
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv, Convolution
from dovetail.ops.nn.sliding_window import ONNX_PAD
from dovetail.ops.quantization.quantize_linear import dynamic_scale, quantize, quantize_value
from dovetail.ops.quantization.scales import (
    accumulator_type,
    as_channels,
    as_channels_value,
    as_columns,
    as_columns_value,
    as_rows,
    as_rows_value,
    as_scalar,
    as_scalar_value,
    check_channels,
    check_columns,
    check_rows,
    check_single,
    is_single,
    subtract_zero_point,
    subtract_zero_point_value,
)

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

INTEGER_TYPES = ("i8", "u8")
_WINDOWS = f"strides?, pads~natural?, dilations?, {ONNX_PAD}, group=1, kernel_shape?"


class IntegerOp(Op):
    """IntegerOp is the base of operators on 8-bit integers with wrapping i32 accumulation and without gradient."""

    quantizes: ClassVar[bool] = True

    def types(self, *xs: View) -> list[Type]:
        bound = check_inputs(self, xs)
        for port, x in zip(self.signature.inputs, xs, strict=False):
            kind = bound.get(port.type)
            if x is not None and port.type.startswith("I") and kind is not None and kind.name not in INTEGER_TYPES:
                raise RuleError("quantize.type", f"input {port.name!r} must be i8 or u8, got {kind}")
        return [Tensor(self.result(bound), self.shape(*xs))]

    def result(self, bound: dict[str, DType]) -> DType | None:
        return dtypes.i32

    def value(self, *xs: View) -> Any:
        """Raise Unknown: the result of an integer product is never a shape value."""
        raise Unknown

    def vjp(self, b: Builder, g: Value, y: Value, /, *xs: Value) -> Any:
        raise UnsupportedError("grad.op", "quantization has no gradient")


class MatMulInteger(
    IntegerOp,
    sig="x: I, y: I2, x_zero_point?: I, y_zero_point?: I2 -> z: i32",
    onnx="MatMulInteger-10(x, y, x_zero_point?, y_zero_point?)",
):
    """Multiply integer matrices: ``(x - x_zero_point) @ (y - y_zero_point)`` as MatMul, accumulated in wrapping i32.

    A zero point is a scalar, a vector of one number per row of ``x`` or column of ``y``, or a column or a row for each matrix.
    Source: ONNX MatMulInteger 10.
    """

    def shape(self, x: View, y: View, x_zero_point: View | None = None, y_zero_point: View | None = None) -> Any:
        check_rows(x_zero_point, x, "zero point")
        check_columns(y_zero_point, y, "zero point")
        return MatMul().shape(x, y)

    def evaluate(
        self, xp: Namespace, x: Array, y: Array, x_zero_point: Array | None = None, y_zero_point: Array | None = None
    ) -> Any:
        left = subtract_zero_point(xp, x, None if x_zero_point is None else as_rows(xp, x_zero_point, x.ndim))
        right = subtract_zero_point(xp, y, None if y_zero_point is None else as_columns(xp, y_zero_point))
        return arrays.matmul_integers(xp, left, right)

    def decompose(
        self, b: Builder, x: Value, y: Value, x_zero_point: Value | None = None, y_zero_point: Value | None = None
    ) -> Any:
        kind = accumulator_type(x, x_zero_point, y, y_zero_point, (max(len(y.dims) - 2, 0),))
        left = subtract_zero_point_value(
            b, x, None if x_zero_point is None else as_rows_value(b, x_zero_point, len(x.dims)), kind
        )
        right = subtract_zero_point_value(b, y, None if y_zero_point is None else as_columns_value(b, y_zero_point), kind)
        return as_type(b, b.MatMul(left, right), dtypes.i32)


class ConvInteger(
    Convolution,
    IntegerOp,
    sig="x: I, w: I2, x_zero_point?: I, w_zero_point?: I2 -> y: i32",
    onnx=f"ConvInteger-10(x, w, x_zero_point?, w_zero_point?; {_WINDOWS})",
):
    """Convolve integers: Conv of ``x - x_zero_point`` with ``w - w_zero_point``, accumulated in wrapping i32.

    Padding elements equal the zero point of ``x``. The zero point of ``w`` is a scalar or has one number per output channel.
    Source: ONNX ConvInteger 10.
    """

    def conv(self) -> Conv:
        return Conv(self.strides, self.pads, self.dilations, self.auto_pad, self.group, self.kernel_shape)

    def shape(self, x: View, w: View, x_zero_point: View | None = None, w_zero_point: View | None = None) -> Any:
        # The shape rule, which refuses weights of another rank, comes first: the checks below index the shape of the weights.
        shape = self.conv().shape(x, w)
        check_single(x_zero_point, "zero point")
        check_channels(w_zero_point, w, "zero point")
        return shape

    def evaluate(
        self, xp: Namespace, x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None
    ) -> Any:
        left = subtract_zero_point(xp, x, None if x_zero_point is None else as_scalar(xp, x_zero_point))
        right = subtract_zero_point(xp, w, None if w_zero_point is None else as_channels(xp, w_zero_point, w.ndim - 1))
        return self.conv().evaluate(xp, left, right)

    def decompose(
        self, b: Builder, x: Value, w: Value, x_zero_point: Value | None = None, w_zero_point: Value | None = None
    ) -> Any:
        kind = accumulator_type(x, x_zero_point, w, w_zero_point, tuple(range(1, len(w.dims))))
        left = subtract_zero_point_value(b, x, None if x_zero_point is None else as_scalar_value(b, x_zero_point), kind)
        point = None if w_zero_point is None else as_channels_value(b, w_zero_point, len(w.dims) - 1)
        return as_type(b, b.add(self.conv(), left, subtract_zero_point_value(b, w, point, kind))[0], dtypes.i32)

    def canonical(self, x: View, w: View, *points: View) -> Op:
        return self if w.shape is None else self.with_(kernel_shape=None, **self.plain(len(w.shape) - 2))


class QLinearConv(
    Convolution,
    IntegerOp,
    sig=(
        "x: I, x_scale: f32, x_zero_point: I, w: I2, w_scale: f32, w_zero_point: I2, y_scale: f32, y_zero_point: I3, bias?: i32 "
        "-> y: I3"
    ),
    onnx=(f"QLinearConv-10(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias?; {_WINDOWS})"),
):
    """Convolve quantized tensors: (ConvInteger + ``bias``) * ``x_scale * w_scale / y_scale``, rounded, plus ``y_zero_point``.

    The factor is f32, and the result saturates. Scale and zero point of ``w`` are scalars or have one number per output channel.
    Source: ONNX QLinearConv 10.
    """

    is_composite = True

    def integers(self) -> ConvInteger:
        return ConvInteger(self.strides, self.pads, self.dilations, self.auto_pad, self.group, self.kernel_shape)

    def result(self, bound: dict[str, DType]) -> DType | None:
        return bound.get("I3")

    def shape(
        self,
        x: View,
        x_scale: View,
        zx: View,
        w: View,
        w_scale: View,
        zw: View,
        y_scale: View,
        zy: View,
        bias: View | None = None,
    ) -> Any:
        # The shape rule, which refuses weights of another rank, comes first: the checks below index the shape of the weights.
        shape = self.integers().shape(x, w, zx, zw)
        for values in (x_scale, y_scale):
            check_single(values, "scale")
        check_single(zy, "zero point")
        check_channels(w_scale, w, "scale")
        if bias is not None and w.shape is not None:
            self._check_bias(bias, w.shape[0])
        return shape

    def evaluate(
        self,
        xp: Namespace,
        x: Array,
        x_scale: Array,
        zx: Array,
        w: Array,
        w_scale: Array,
        zw: Array,
        y_scale: Array,
        zy: Array,
        bias: Array | None = None,
    ) -> Any:
        total = self.integers().evaluate(xp, x, w, zx, zw)
        if bias is not None:
            total = total + xp.reshape(bias, (-1, *(1,) * (x.ndim - 2)))
        factor = as_scalar(xp, x_scale) * as_channels(xp, w_scale, x.ndim - 2) / as_scalar(xp, y_scale)
        return requantize(xp, total, factor, as_scalar(xp, zy))

    def decompose(
        self,
        b: Builder,
        x: Value,
        x_scale: Value,
        zx: Value,
        w: Value,
        w_scale: Value,
        zw: Value,
        y_scale: Value,
        zy: Value,
        bias: Value | None = None,
    ) -> Any:
        after = len(w.dims) - 2
        total = b.add(self.integers(), x, w, zx, zw)[0]
        if bias is not None:
            total = b.Add(total, b.Reshape(bias, [-1, *(1,) * after], special_zero=False))
        factor = b.Multiply(as_scalar_value(b, x_scale), as_channels_value(b, w_scale, after))
        return requantize_value(b, total, b.Divide(factor, as_scalar_value(b, y_scale)), as_scalar_value(b, zy))

    def canonical(self, x: View, x_scale: View, zx: View, w: View, *rest: View) -> Op:
        return self if w.shape is None else self.with_(kernel_shape=None, **self.plain(len(w.shape) - 2))


def requantize(xp: Namespace, total: Array, factor: Array, zero_point: Array) -> Any:
    """Multiply i32 accumulators by a factor, round, and quantize to the type of ``zero_point``."""
    kind = arrays.element(zero_point)
    with np.errstate(all="ignore"):
        scaled = arrays.cast(xp, total, dtypes.f32) * arrays.cast(xp, factor, dtypes.f32)
        return quantize(xp, scaled, arrays.cast(xp, zero_point, dtypes.f32), kind)


def requantize_value(b: Builder, total: Value, factor: Value, zero_point: Value) -> Any:
    scaled = b.Multiply(as_type(b, total, dtypes.f32), as_type(b, factor, dtypes.f32))
    return quantize_value(b, scaled, zero_point, zero_point.dtype)


class QLinearMatMul(
    IntegerOp,
    sig=("x: I, x_scale: F, x_zero_point: I, y: I2, y_scale: F, y_zero_point: I2, z_scale: F, z_zero_point: I3 -> z: I3"),
    onnx="QLinearMatMul-10,21(x, x_scale, x_zero_point, y, y_scale, y_zero_point, z_scale, z_zero_point)",
):
    """Multiply quantized matrices: MatMulInteger * ``x_scale * y_scale / z_scale``, rounded, plus ``z_zero_point``.

    The factor is f32, and the result saturates. A scale or zero point of ``x`` is a scalar or has one number per row; a scale or
    zero point of ``y`` is a scalar or has one number per column. Source: ONNX QLinearMatMul 10, 21; products of f8 are refused,
    because ONNX does not specify their accumulation.
    """

    is_composite = True

    def types(self, *xs: View) -> list[Type]:
        for x in xs[:1] + xs[3:4]:
            if getattr(x.type, "dtype", None) is not None and x.dtype.name.startswith("f8"):
                raise UnsupportedError(
                    "op.unsupported", f"inputs must be i8 or u8, got {x.dtype}: its accumulation is not specified"
                )
        return super().types(*xs)

    def result(self, bound: dict[str, DType]) -> DType | None:
        return bound.get("I3")

    def shape(self, x: View, x_scale: View, zx: View, y: View, y_scale: View, zy: View, z_scale: View, zz: View) -> Any:
        check_rows(x_scale, x, "scale")
        check_columns(y_scale, y, "scale")
        check_single(z_scale, "scale")
        check_single(zz, "zero point")
        return MatMulInteger().shape(x, y, zx, zy)

    def evaluate(
        self, xp: Namespace, x: Array, x_scale: Array, zx: Array, y: Array, y_scale: Array, zy: Array, z_scale: Array, zz: Array
    ) -> Any:
        total = MatMulInteger().evaluate(xp, x, y, zx, zy)
        left, right, out = (arrays.cast(xp, scale, dtypes.f32) for scale in (x_scale, y_scale, z_scale))
        factor = as_rows(xp, left, x.ndim) * as_columns(xp, right) / as_scalar(xp, out)
        return requantize(xp, total, factor, as_scalar(xp, zz))

    def decompose(
        self, b: Builder, x: Value, x_scale: Value, zx: Value, y: Value, y_scale: Value, zy: Value, z_scale: Value, zz: Value
    ) -> Any:
        total = b.MatMulInteger(x, y, zx, zy)
        left, right, out = (as_type(b, scale, dtypes.f32) for scale in (x_scale, y_scale, z_scale))
        factor = b.Multiply(as_rows_value(b, left, len(x.dims)), as_columns_value(b, right))
        return requantize_value(b, total, b.Divide(factor, as_scalar_value(b, out)), as_scalar_value(b, zz))


class QGemm(
    IntegerOp,
    sig=(
        "x: I, x_scale: f32, x_zero_point: I, y: I2, y_scale: f32, y_zero_point: I2, bias?: i32, z_scale?: f32, "
        "z_zero_point?: I3 -> z: I3"
    ),
    onnx=(
        "com.microsoft:QGemm-1(x, x_scale, x_zero_point, y, y_scale, y_zero_point, bias?, z_scale?, z_zero_point?; alpha=1.0, "
        "transA:trans_a=0, transB:trans_b=0)"
    ),
):
    """Multiply quantized matrices: ``(x - x_zero_point) @ (y - y_zero_point) + bias`` in i32, times the scales in f32.

    The factor is ``alpha * x_scale * y_scale``. With ``z_scale`` the result is divided by ``z_scale``, rounded, increased by
    ``z_zero_point`` and saturated; without ``z_scale`` the result is f32. ``trans_a`` and ``trans_b`` transpose ``x`` and ``y``
    first. Scale and zero point of ``y`` are scalars or have one number per column of the product. Source: com.microsoft QGemm,
    as in onnxruntime.
    """

    is_composite = True

    alpha: float = 1.0
    trans_a: bool = False
    trans_b: bool = False

    def types(self, *xs: View) -> list[Type]:
        _, scale, point = (*xs, None, None, None)[6:9]
        if (scale is None) != (point is None):
            raise RuleError("attribute.conflict", "z_scale and z_zero_point must be given together, got one of them")
        (results,) = super().types(*xs)
        return [results if point is not None else Tensor(dtypes.f32, results.shape)]

    def result(self, bound: dict[str, DType]) -> DType | None:
        return bound.get("I3")

    def shape(self, x: View, x_scale: View, zx: View, y: View, y_scale: View, zy: View, *rest: View) -> Any:
        bias, z_scale, zz = (*rest, None, None, None)[:3]
        for values, name in ((x_scale, "scale"), (zx, "zero point"), (z_scale, "scale"), (zz, "zero point")):
            check_single(values, name)
        results = Gemm(transpose_a=self.trans_a, transpose_b=self.trans_b).shape(_Untyped(x), _Untyped(y), bias)
        for values, name in ((y_scale, "scale"), (zy, "zero point")):
            if values is not None and is_single(values.shape) is False:
                if len(values.dims) != 1:
                    raise RuleError("shape.disagree", f"a {name} must be a scalar or one number per column, got {values.type}")
                if results[1] is not None:
                    agree(values.dims[0], results[1], (name, 0), "the columns of y")
        return results

    def evaluate(
        self, xp: Namespace, x: Array, x_scale: Array, zx: Array, y: Array, y_scale: Array, zy: Array, *rest: Array
    ) -> Any:
        bias, z_scale, zz = (*rest, None, None, None)[:3]
        left = xp.matrix_transpose(x) if self.trans_a else x
        right = xp.matrix_transpose(y) if self.trans_b else y
        total = MatMulInteger().evaluate(xp, left, right, as_scalar(xp, zx), as_columns(xp, zy))
        total = total if bias is None else total + bias
        factor = xp.asarray(self.alpha, dtype=x_scale.dtype) * as_scalar(xp, x_scale) * as_columns(xp, y_scale)
        if z_scale is None:
            return arrays.cast(xp, total, dtypes.f32) * factor
        return requantize(xp, total, factor / as_scalar(xp, z_scale), as_scalar(xp, zz))

    def decompose(
        self, b: Builder, x: Value, x_scale: Value, zx: Value, y: Value, y_scale: Value, zy: Value, *rest: Value
    ) -> Any:
        bias, z_scale, zz = (*rest, None, None, None)[:3]
        left = b.Transpose(x, [1, 0]) if self.trans_a else x
        right = b.Transpose(y, [1, 0]) if self.trans_b else y
        total = b.MatMulInteger(left, right, as_scalar_value(b, zx), as_columns_value(b, zy))
        total = total if bias is None else b.Add(total, bias)
        factor = b.Multiply(
            b.Multiply(b.constant(np.float32(self.alpha)), as_scalar_value(b, x_scale)), as_columns_value(b, y_scale)
        )
        if z_scale is None:
            return b.Multiply(b.Cast(total, to=dtypes.f32), factor)
        assert zz is not None
        return requantize_value(b, total, b.Divide(factor, as_scalar_value(b, z_scale)), as_scalar_value(b, zz))


class _Untyped(View):
    """_Untyped is a view with the shape of ``x`` and an unknown element type."""

    def __init__(self, x: View) -> None:
        super().__init__(Tensor(None, x.shape))


class MatMulIntegerToFloat(
    IntegerOp,
    sig="x: I, y: I2, x_scale: F, y_scale: F, x_zero_point?: I, y_zero_point?: I2, bias?: F -> z: F",
    onnx="com.microsoft:MatMulIntegerToFloat-1(x, y, x_scale, y_scale, x_zero_point?, y_zero_point?, bias?)",
):
    """Multiply integer matrices and scale the product to floats: MatMulInteger * ``x_scale * y_scale`` + ``bias``, in f32.

    Scale and zero point of ``x`` are scalars; scale and zero point of ``y`` are scalars or have one number per column.
    Source: com.microsoft MatMulIntegerToFloat.
    """

    def result(self, bound: dict[str, DType]) -> DType | None:
        return bound.get("F")

    def shape(
        self,
        x: View,
        y: View,
        x_scale: View,
        y_scale: View,
        zx: View | None = None,
        zy: View | None = None,
        bias: View | None = None,
    ) -> Any:
        check_single(x_scale, "scale")
        check_single(zx, "zero point")
        check_columns(y_scale, y, "scale")
        check_bias(bias, y)
        return MatMulInteger().shape(x, y, zx, zy)

    def evaluate(
        self,
        xp: Namespace,
        x: Array,
        y: Array,
        x_scale: Array,
        y_scale: Array,
        zx: Array | None = None,
        zy: Array | None = None,
        bias: Array | None = None,
    ) -> Any:
        total = arrays.cast(xp, MatMulInteger().evaluate(xp, x, y, zx, zy), dtypes.f32)
        left, right = (arrays.cast(xp, scale, dtypes.f32) for scale in (x_scale, y_scale))
        z = total * (as_scalar(xp, left) * as_columns(xp, right))
        z = z if bias is None else z + arrays.cast(xp, bias, dtypes.f32)
        return arrays.cast(xp, z, arrays.element(x_scale), saturate=False)

    def decompose(
        self,
        b: Builder,
        x: Value,
        y: Value,
        x_scale: Value,
        y_scale: Value,
        zx: Value | None = None,
        zy: Value | None = None,
        bias: Value | None = None,
    ) -> Any:
        total = b.Cast(b.MatMulInteger(x, y, zx, zy), to=dtypes.f32)
        left, right = (as_type(b, scale, dtypes.f32) for scale in (x_scale, y_scale))
        z = b.Multiply(total, b.Multiply(as_scalar_value(b, left), as_columns_value(b, right)))
        return as_type(b, z if bias is None else b.Add(z, as_type(b, bias, dtypes.f32)), x_scale.dtype)


def check_bias(bias: View | None, y: View) -> None:
    if bias is None or bias.shape is None:
        return
    if len(bias.shape) != 1:
        raise RuleError("shape.rank", f"the bias must be a vector, got {bias.type}")
    if y.shape is not None and len(y.shape) > 1:
        agree(bias.shape[0], y.shape[-1], ("bias", 0), "the columns of y")


class DynamicQuantizeMatMul(
    IntegerOp,
    sig="x: f32, y: I, y_scale: f32, y_zero_point?: I, bias?: f32 -> z: f32",
    onnx="com.microsoft:DynamicQuantizeMatMul-1(x, y, y_scale, y_zero_point?, bias?)",
):
    """Quantize ``x`` by DynamicQuantizeLinear, and apply MatMulIntegerToFloat. Source: com.microsoft DynamicQuantizeMatMul."""

    def result(self, bound: dict[str, DType]) -> DType | None:
        return dtypes.f32

    def shape(self, x: View, y: View, y_scale: View, zy: View | None = None, bias: View | None = None) -> Any:
        check_columns(y_scale, y, "scale")
        check_bias(bias, y)
        return MatMulInteger().shape(x, y, None, zy)

    def evaluate(
        self, xp: Namespace, x: Array, y: Array, y_scale: Array, zy: Array | None = None, bias: Array | None = None
    ) -> Any:
        scale, point = dynamic_scale(xp, x)
        codes = quantize(xp, x / scale, point, dtypes.u8)
        point = arrays.cast(xp, point, dtypes.u8)
        return MatMulIntegerToFloat().evaluate(xp, codes, y, scale, y_scale, point, zy, bias)

    def decompose(
        self, b: Builder, x: Value, y: Value, y_scale: Value, zy: Value | None = None, bias: Value | None = None
    ) -> Any:
        codes, scale, point = b.DynamicQuantizeLinear(x)
        return MatMulIntegerToFloat().decompose(b, codes, y, scale, y_scale, point, zy, bias)
