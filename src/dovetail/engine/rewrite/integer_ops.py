"""Operators from one grid of bytes to another in steps that have kernels, the same bit for bit.

Sums of bytes are whole numbers. Where f32 holds each of them surely, a product of f32 is the product; where it does not, it is
made in parts that f32 holds, which are added up in i32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.engine.rewrite.qdq_fusion import QuantizedConv, fits
from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ops.casts import as_type
from dovetail.ops.quantization.integer_matmul_conv import (
    ConvInteger,
    DynamicQuantizeMatMul,
    MatMulInteger,
    MatMulIntegerToFloat,
    QGemm,
    QLinearConv,
    QLinearMatMul,
)
from dovetail.ops.quantization.qlinear import QLinearAdd, QLinearConcat, QLinearMul, point_value
from dovetail.ops.quantization.quantize_linear import DynamicQuantizeLinear, grid_value
from dovetail.ops.quantization.scales import by_channels, centred_value, columns, one_value, rows_value
from dovetail.ops.reduction.reduce import ReduceMin

EXACT = 2**24
"""f32 holds all whole numbers up to here."""
APART = (MatMulIntegerToFloat, QGemm, QLinearConcat, QLinearConv, QLinearMatMul, QLinearMul)
"""Operators whose ``decompose`` rounds as ``evaluate`` does, and has kernels or leads to what has."""
ON_GRIDS = (*APART, ConvInteger, DynamicQuantizeLinear, DynamicQuantizeMatMul, MatMulInteger, QLinearAdd)

Inputs = list[Value | None]


def on_grids(b: Builder, op: Any, xs: Inputs) -> Any:
    """The operator in other ones; None for one that is none of these, or where there is no way."""
    if not isinstance(op, ON_GRIDS) or any(x is not None and x.shape is None for x in xs):
        return None
    inputs: list[Any] = list(xs)
    match op:
        case QLinearConv() if (found := _whole(b, op, xs)) is not None:
            return found
        case QLinearAdd():
            return _sum(b, xs)
        case DynamicQuantizeLinear():
            return _own_grid(b, xs)
        case DynamicQuantizeMatMul():
            codes, scale, point = _own_grid(b, xs[:1])
            return MatMulIntegerToFloat().decompose(b, codes, inputs[1], scale, inputs[2], point, *inputs[3:])
        case ConvInteger():
            return _conv(b, op, xs)
        case MatMulInteger():
            return _matmul(b, op, xs)
    try:
        return op.decompose(b, *inputs)
    except UnsupportedError:
        return None


def _whole(b: Builder, op: QLinearConv, xs: Inputs) -> Any:
    """As a kernel does it that sums up bytes, where weights less their zero points are of i8."""
    x, *rest = xs
    known: list[Any] = [value.constant for value in rest if value is not None]
    if x is None or op.group != 1 or any(array is None for array in known):
        return None
    x_scale, zx, w, w_scale, zw, y_scale, zy, bias = (*known, None)[:8]
    codes = w.astype(np.int64) - by_channels(np, zw.astype(np.int64), w.ndim - 1)
    sums = np.zeros(len(w), np.int32) if bias is None else bias
    if w.ndim != 4 or codes.min(initial=0) < -128 or codes.max(initial=0) > 127 or not fits(codes, sums):
        return None
    with np.errstate(all="ignore"):
        factor = x_scale.reshape(()) * np.broadcast_to(w_scale.reshape(-1), len(w)) / y_scale.reshape(())
    if not np.isfinite(factor).all():
        return None
    kind = dtypes.dtype(zy.dtype)
    low, high = kind.range()
    made = QuantizedConv(op.integers().conv(), int(zx.reshape(())), int(zy.reshape(())), kind, int(low), int(high))
    return b.add(made, x, b.constant(codes.astype(np.int8)), b.constant(sums), b.constant(factor))


def _sum(b: Builder, xs: Inputs) -> Any:
    """QLinearAdd: its products and sums in f64, each sum rounded once."""
    x, x_scale, zx, y, y_scale, zy, z_scale, zz = (*xs, None)[:8]
    assert x is not None and y is not None and x_scale is not None and y_scale is not None and z_scale is not None
    first, second = (b.Divide(one_value(b, scale), one_value(b, z_scale)) for scale in (x_scale, y_scale))
    moved = _fused(b, point_value(b, zx), first, b.Multiply(point_value(b, zy), second))
    middle = b.Subtract(point_value(b, zz), moved)
    left, right = (as_type(b, each, dtypes.f32) for each in (x, y))
    return grid_value(b, _fused(b, left, first, _fused(b, right, second, middle)), None, x.dtype)


def _fused(b: Builder, x: Value, y: Value, z: Value) -> Any:
    wide = [b.Cast(each, to=dtypes.f64) for each in (x, y, z)]
    return b.Cast(b.Add(b.Multiply(wide[0], wide[1]), wide[2]), to=dtypes.f32)


class NonEmptyReduceMin(ReduceMin, is_registered=False):
    """ReduceMin of something. Not one of a model's operators."""

    def evaluate(self, xp: Any, x: Any, axes: Any = None) -> Any:
        if 0 in x.shape:
            raise EngineError("quantize.empty", "a tensor without elements has no range")
        return super().evaluate(xp, x, axes)


def _own_grid(b: Builder, xs: Inputs) -> tuple[Value, Value, Value]:
    """DynamicQuantizeLinear: codes, scale and zero point."""
    (x,) = xs
    assert x is not None
    zero, most = b.constant(np.float32(0)), b.constant(np.float32(255))
    every = b.constant(np.arange(len(x.dims)))
    least = b.Minimum(b.add(NonEmptyReduceMin(keepdims=False), x, every)[0], zero)
    span = b.Subtract(b.Maximum(b.ReduceMax(x, every, keepdims=False), zero), least)
    scale = b.Where(b.Equal(span, zero), b.constant(np.float32(1)), b.Divide(span, most))
    point = b.Round(b.Clip(b.Subtract(zero, b.Divide(least, scale)), zero, most))
    return grid_value(b, b.Divide(x, scale), point, dtypes.u8), scale, b.Cast(point, to=dtypes.u8)


def _conv(b: Builder, op: ConvInteger, xs: Inputs) -> Any:
    x, w, zx, zw = (*xs, None, None)[:4]
    weights = _weights(w, zw, lambda point, rank: by_channels(np, point, rank - 1))
    if x is None or weights is None:
        return None
    parts = _parts(weights, _reach(x, zx), 1)
    if parts is None or (parts > 1 and op.group > 1):
        return None
    left = centred_value(b, x, None if zx is None else one_value(b, zx), dtypes.f32)
    return _added(b, left, weights, 1, 1, parts, lambda x, w: b.add(op.conv(), x, w)[0])


def _matmul(b: Builder, op: MatMulInteger, xs: Inputs) -> Any:
    x, w, zx, zw = (*xs, None, None)[:4]
    weights = _weights(w, zw, lambda point, rank: columns(np, point))
    if x is None or weights is None or len(x.dims) < 2 or weights.ndim < 2:
        return None
    parts = _parts(weights, _reach(x, zx), weights.ndim - 2)
    if parts is None:
        return None
    left = centred_value(b, x, None if zx is None else rows_value(b, zx, len(x.dims)), dtypes.f32)
    return _added(b, left, weights, len(x.dims) - 1, weights.ndim - 2, parts, b.MatMul)


def _weights(w: Value | None, zero_point: Value | None, placed: Any) -> Any:
    """Constant weights less their zero points, in f32; None where they are not known."""
    if w is None or w.constant is None or (zero_point is not None and zero_point.constant is None):
        return None
    found = w.constant.astype(np.float32)
    if zero_point is None or zero_point.constant is None:
        return found
    return found - placed(zero_point.constant.astype(np.float32), found.ndim)


def _reach(x: Value, zero_point: Value | None) -> float:
    """The most by which an element may differ from its zero point."""
    low, high = x.dtype.range()
    known = np.zeros(1) if zero_point is None else zero_point.constant
    points = np.array([low, high]) if known is None else known.astype(np.int64)
    return float(max(np.abs(low - points).max(initial=0), np.abs(high - points).max(initial=0)))


def _parts(weights: Any, reach: float, axis: int) -> int | None:
    """Into how many parts ``axis`` is cut so that f32 holds each sum; None where no cut would do."""
    summed = tuple(range(axis, weights.ndim)) if axis == 1 else (axis,)
    for count in (1, 2, 4, 8, 16):
        cut = np.array_split(np.abs(weights), count, axis) if weights.shape[axis] >= count else []
        if cut and all(reach * float(part.sum(axis=summed, dtype=np.float64).max(initial=0)) < EXACT for part in cut):
            return count
    return None


def _added(b: Builder, x: Any, weights: Any, x_axis: int, w_axis: int, parts: int, product: Any) -> Any:
    """The products of the parts, in i32 and added up."""
    cut = np.array_split(weights, parts, w_axis)
    pieces = [x] if parts == 1 else b.Split(x, [part.shape[w_axis] for part in cut], axis=x_axis, outputs=parts)
    total = None
    for piece, part in zip(pieces, cut, strict=True):
        found = as_type(b, product(piece, b.constant(np.ascontiguousarray(part))), dtypes.i32)
        total = found if total is None else b.Add(total, found)
    return total
