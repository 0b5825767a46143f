"""Rewrite of integer operators (QLinear*, ConvInteger, MatMulInteger, ...) to operators with kernels and identical bits.

Sums of products of 8-bit codes are integers. If f32 represents every partial sum exactly, a product in f32 is the integer
product. Otherwise the product is split into parts whose sums f32 represents exactly, and these sums are added in i32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.engine.rewrite.integer_conv import Rescaling, has_single_element, integer_conv, integer_product
from dovetail.engine.rewrite.qdq_fusion import QuantizedConv, fits_i32
from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ops.casts import as_type
from dovetail.ops.quantization.integer_matmul_conv import (
    ConvInteger,
    DynamicQuantizeMatMul,
    MatMulInteger,
    MatMulIntegerToFloat,
    QLinearConv,
)
from dovetail.ops.quantization.qlinear import QLinearAdd, QLinearGlobalAveragePool, zero_point_f32_value
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, QuantizeLinear, quantize_value
from dovetail.ops.quantization.scales import (
    as_channels,
    as_columns,
    as_columns_value,
    as_rows_value,
    as_scalar_value,
    subtract_zero_point_value,
)

MAX_EXACT = 2**24
"""f32 represents every integer up to this magnitude."""
MAX_PARTS = 16
"""The maximum number of parts into which a product is split."""
Inputs = list[Value | None]
Result = Value | Sequence[Value] | None


def _rule_of_nodes(rule: Callable[[Builder, Any, Inputs], Result]) -> Callable[[Builder, Node], Result]:
    """Return a rule for nodes whose inputs have known ranks: ``rule``, or the decomposition of a composite operator."""

    def apply(b: Builder, node: Node) -> Result:
        if any(x is not None and x.shape is None for x in node.inputs):
            return None
        result = rule(b, node.op, node.inputs)
        if result is not None or not node.op.is_composite:
            return result
        try:
            return _decompose(b, node.op, node.inputs)
        except UnsupportedError:
            return None

    return apply


def _decompose(b: Builder, op: Op, xs: Inputs) -> Result:
    decompose: Callable[..., Result] = op.decompose
    return decompose(b, *xs)


CODES = ("i8", "u8", "i16", "u16", "i32")
"""Element types of quantized codes that a kernel can cast."""


def rewrite_quantization(b: Builder, op: QuantizeLinear | DequantizeLinear, xs: Inputs) -> Result:
    """Decompose QuantizeLinear or DequantizeLinear to elementwise operators unless the parameters are single f32 constants.

    With single f32 constants these operators are instructions of fused kernels and need no decomposition.
    """
    x, scale, point = (*xs, None)[:3]
    assert x is not None and scale is not None
    codes, numbers = (x, scale) if isinstance(op, DequantizeLinear) else (None, x)
    kind = op.target(None if point is None else point.dtype, point) if isinstance(op, QuantizeLinear) else x.dtype
    if x.shape is None or scale.shape is None or kind is None or kind.name not in CODES:
        return None
    is_single = all(value is None or (value.constant is not None and value.constant.size == 1) for value in (scale, point))
    is_narrow = kind.bits <= 16 and (codes is None or getattr(op, "output_dtype", None) in (None, dtypes.f32))
    if is_single and not op.block_size and is_narrow and scale.dtype is dtypes.f32 and numbers.dtype is dtypes.f32:
        return None
    return _decompose(b, op, xs)


@_rule_of_nodes
def rewrite_qlinear_conv(b: Builder, op: QLinearConv, xs: Inputs) -> Result:
    """Rewrite QLinearConv of one group to QuantizedConv; None unless all inputs except the image are constant."""
    x, *rest = xs
    constants: list[Array] = [value.constant for value in rest if value is not None]
    if x is None or op.group != 1 or any(array is None for array in constants):
        return None
    x_scale, zx, w, w_scale, zw, y_scale, zy, bias = (*constants, None)[:8]
    zeros = np.broadcast_to(zw.reshape(-1), (len(w),)).astype(np.int32) if zw.size in (1, len(w)) else None
    sums = np.zeros(len(w), np.int32) if bias is None else bias
    if w.ndim != 4 or zeros is None or not fits_i32(w.astype(np.int64) - as_channels(np, zeros, w.ndim - 1), sums):
        return None
    with np.errstate(all="ignore"):
        factor = x_scale.reshape(()) * np.broadcast_to(w_scale.reshape(-1), len(w)) / y_scale.reshape(())
    if not np.isfinite(factor).all():
        return None
    dtype = dtypes.dtype(zy.dtype)
    low, high = dtype.range()
    conv = QuantizedConv(op.integers().conv(), int(zx.reshape(())), int(zy.reshape(())), dtype, int(low), int(high))
    return b.add(conv, x, b.constant(w), b.constant(sums), b.constant(factor), None, b.constant(zeros) if zeros.any() else None)


@_rule_of_nodes
def rewrite_qlinear_add(b: Builder, op: QLinearAdd, xs: Inputs) -> Result:
    """Rewrite QLinearAdd to products and sums in f64, with each sum rounded once."""
    x, x_scale, zx, y, y_scale, zy, z_scale, zz = (*xs, None)[:8]
    assert x is not None and y is not None and x_scale is not None and y_scale is not None and z_scale is not None
    first, second = (b.Divide(as_scalar_value(b, scale), as_scalar_value(b, z_scale)) for scale in (x_scale, y_scale))
    offset = _fused_multiply_add(b, zero_point_f32_value(b, zx), first, b.Multiply(zero_point_f32_value(b, zy), second))
    middle = b.Subtract(zero_point_f32_value(b, zz), offset)
    left, right = (as_type(b, value, dtypes.f32) for value in (x, y))
    total = _fused_multiply_add(b, left, first, _fused_multiply_add(b, right, second, middle))
    codes: Value = quantize_value(b, total, None, x.dtype)
    return codes


def _fused_multiply_add(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Compute x * y + z with one rounding to f32."""
    wide = [b.Cast(value, to=dtypes.f64) for value in (x, y, z)]
    return b.Cast(b.Add(b.Multiply(wide[0], wide[1]), wide[2]), to=dtypes.f32)


@_rule_of_nodes
def rewrite_function_of_byte(b: Builder, op: Op, xs: Inputs) -> Value | None:
    """Rewrite a function of 8-bit codes to a Gather from a table of its results; None where a parameter is no constant."""
    x, *parameters = xs
    assert x is not None
    if any(value is not None and value.constant is None for value in parameters):
        return None
    low, high = x.dtype.range()
    codes = np.arange(int(low), int(high) + 1).astype(x.dtype.numpy)
    evaluate: Callable[..., Array] = op.evaluate
    table = evaluate(np, codes, *(None if value is None else value.constant for value in parameters))
    index = b.Cast(x, to=dtypes.i32)
    result: Value = b.Gather(b.constant(np.asarray(table)), index if low == 0 else b.Subtract(index, np.int32(low)), axis=0)
    return result


@_rule_of_nodes
def rewrite_global_average(b: Builder, op: QLinearGlobalAveragePool, xs: Inputs) -> Value | None:
    """Rewrite the mean of quantized elements to a sum in f32 and a rescaling; None where f32 does not represent every sum."""
    x, x_scale, zx, y_scale, zy = (*xs, None)[:5]
    assert x is not None and x_scale is not None and zx is not None and y_scale is not None
    axes = [axis for axis in range(1, len(x.dims)) if axis != (len(x.dims) - 1 if op.channels_last else 1)]
    sizes = [x.dims[axis] for axis in axes]
    if not all(isinstance(size, int) for size in sizes):
        return None
    count = int(np.prod([size for size in sizes if isinstance(size, int)]))
    if count == 0 or 255 * count > MAX_EXACT:
        return None
    total = b.ReduceSum(subtract_zero_point_value(b, x, as_scalar_value(b, zx), dtypes.f32), axes, keepdims=True)
    factor = b.Divide(as_scalar_value(b, x_scale), b.Multiply(as_scalar_value(b, y_scale), np.float32(count)))
    codes: Value = quantize_value(b, b.Multiply(total, factor), zero_point_f32_value(b, zy), x.dtype)
    return codes


@_rule_of_nodes
def rewrite_dynamic_quantize_matmul(b: Builder, op: DynamicQuantizeMatMul, xs: Inputs) -> Result:
    assert xs[0] is not None
    codes, scale, point = b.DynamicQuantizeLinear(xs[0])
    return _rescale_matmul_integer(b, MatMulIntegerToFloat(), [codes, xs[1], scale, xs[2], point, *xs[3:]])


@_rule_of_nodes
def rewrite_matmul_integer_to_float(b: Builder, op: MatMulIntegerToFloat, xs: Inputs) -> Result:
    return _rescale_matmul_integer(b, op, xs)


def _rescale_matmul_integer(b: Builder, op: MatMulIntegerToFloat, xs: Inputs) -> Result:
    x, w, x_scale, w_scale, zx, zw, bias = (*xs, None, None, None)[:7]
    assert x is not None and w is not None and x_scale is not None and w_scale is not None
    parameters: list[Array] = [value.constant for value in (w_scale, bias) if value is not None]
    if x_scale.dtype is dtypes.f32 and has_single_element(x_scale) and all(array is not None for array in parameters):
        count = w.dims[-1]
        if isinstance(count, int) and all(array.size in (1, count) for array in parameters):
            columns = [np.broadcast_to(array.reshape(-1), (count,)) for array in parameters]
            if (result := integer_product(b, x, w, zx, zw, Rescaling(x_scale, *columns))) is not None:
                return result
    return _decompose(b, op, xs)


@_rule_of_nodes
def rewrite_conv_integer(b: Builder, op: ConvInteger, xs: Inputs) -> Result:
    x, w, zx, zw = (*xs, None, None)[:4]
    assert x is not None and w is not None
    if (result := integer_conv(b, op.conv(), x, w, zx, zw)) is not None:
        return result
    weights = _centered_weights_of(w, zw, lambda point, rank: as_channels(np, point, rank - 1))
    if weights is None:
        return None
    count = _part_count_of(weights, _max_magnitude_of(x, zx), 1)
    if count is None or (count > 1 and op.group > 1):
        return None
    left = subtract_zero_point_value(b, x, None if zx is None else as_scalar_value(b, zx), dtypes.f32)
    return _sum_of_parts(b, left, weights, 1, 1, count, lambda x, w: b.add(op.conv(), x, w)[0])


@_rule_of_nodes
def rewrite_matmul_integer(b: Builder, op: MatMulInteger, xs: Inputs) -> Result:
    x, w, zx, zw = (*xs, None, None)[:4]
    assert x is not None and w is not None
    if (result := integer_product(b, x, w, zx, zw)) is not None:
        return result
    weights = _centered_weights_of(w, zw, lambda point, rank: as_columns(np, point))
    if weights is None:
        return _rewrite_variable_product(b, x, w, zx, zw)
    if len(x.dims) < 2 or weights.ndim < 2:
        return None
    count = _part_count_of(weights, _max_magnitude_of(x, zx), weights.ndim - 2)
    if count is None:
        return None
    left = subtract_zero_point_value(b, x, None if zx is None else as_rows_value(b, zx, len(x.dims)), dtypes.f32)
    return _sum_of_parts(b, left, weights, len(x.dims) - 1, weights.ndim - 2, count, b.MatMul)


def _rewrite_variable_product(b: Builder, x: Value, w: Value, zx: Value | None, zw: Value | None) -> Value | None:
    """Return a product of two non-constant tensors, split along the depth so that f32 represents the sums of each part.

    None if MAX_PARTS parts are too few or the depth (the number of terms per sum) is unknown.
    """
    if x.shape is None or w.shape is None or len(x.shape) < 2 or len(w.shape) < 2:
        return None
    depth = x.shape[-1]
    if not isinstance(depth, int) or depth == 0 or w.shape[-2] != depth:
        return None
    part = int((MAX_EXACT - 1) // (_max_magnitude_of(x, zx) * _max_magnitude_of(w, zw)))
    count = -(-depth // part)
    if count > MAX_PARTS:
        return None
    left = subtract_zero_point_value(b, x, None if zx is None else as_rows_value(b, zx, len(x.dims)), dtypes.f32)
    right = subtract_zero_point_value(b, w, None if zw is None else as_columns_value(b, zw), dtypes.f32)
    sizes = [min(part, depth - first) for first in range(0, depth, part)]
    lefts, rights = (
        [value] if count == 1 else b.Split(value, sizes, axis=axis, outputs=count) for value, axis in ((left, -1), (right, -2))
    )
    terms = [as_type(b, b.MatMul(*pair), dtypes.i32) for pair in zip(lefts, rights, strict=True)]
    return functools.reduce(b.Add, terms)


def _centered_weights_of(w: Value | None, zero_point: Value | None, align_axes: Callable[[Array, int], Array]) -> Array:
    """Return constant weights minus their zero points, in f32; None where weights or zero points are no constants."""
    if w is None or w.constant is None or (zero_point is not None and zero_point.constant is None):
        return None
    weights = w.constant.astype(np.float32)
    if zero_point is None or zero_point.constant is None:
        return weights
    return weights - align_axes(zero_point.constant.astype(np.float32), weights.ndim)


def _max_magnitude_of(x: Value, zero_point: Value | None) -> float:
    """Return the largest possible magnitude of an element minus its zero point."""
    low, high = x.dtype.range()
    constant = np.zeros(1) if zero_point is None else zero_point.constant
    points = np.array([low, high]) if constant is None else constant.astype(np.int64)
    return float(max(np.abs(low - points).max(initial=0), np.abs(high - points).max(initial=0)))


def _part_count_of(weights: Array, max_magnitude: float, axis: int) -> int | None:
    """Return the number of parts along ``axis`` for which f32 represents every sum; None if MAX_PARTS parts are too few."""
    summed = tuple(range(axis, weights.ndim)) if axis == 1 else (axis,)
    for count in (1, 2, 4, 8, 16):
        parts = np.array_split(np.abs(weights), count, axis) if weights.shape[axis] >= count else []
        sums = [part.sum(axis=summed, dtype=np.float64).max(initial=0) for part in parts]
        if sums and all(max_magnitude * float(total) < MAX_EXACT for total in sums):
            return count
    return None


def _sum_of_parts(
    b: Builder, x: Value, weights: Array, x_axis: int, w_axis: int, count: int, product: Callable[[Value, Value], Value]
) -> Value | None:
    """Return the sum in i32 of the products of the parts."""
    parts = np.array_split(weights, count, w_axis)
    pieces = [x] if count == 1 else b.Split(x, [part.shape[w_axis] for part in parts], axis=x_axis, outputs=count)
    total = None
    for piece, part in zip(pieces, parts, strict=True):
        term = as_type(b, product(piece, b.constant(np.ascontiguousarray(part))), dtypes.i32)
        total = term if total is None else b.Add(total, term)
    return total
