"""Scales and zero points beside factors of a product: one for all, or one for each row, column or channel."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.types import View, agree
from dovetail.ops.casts import as_type
from dovetail.ops.quantization.granularity import is_single

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def check_single(values: View | None, what: str) -> None:
    if values is not None and is_single(values.shape) is False:
        raise RuleError("quantize.scale", f"one {what} is needed, not a tensor of shape {list(values.dims)}")


def check_rows(values: View | None, x: View, what: str) -> None:
    """One for all, a vector along the rows of a matrix, or a column for each matrix."""
    _check_sides(values, x, what, -1)


def check_columns(values: View | None, y: View, what: str) -> None:
    """One for all, a vector along the columns, or a row for each matrix."""
    _check_sides(values, y, what, -2)


def _check_sides(values: View | None, x: View, what: str, summed: int) -> None:
    if values is None or is_single(values.shape) is not False or x.shape is None:
        return
    rank, shape = len(x.shape), values.dims
    if rank > 1 and len(shape) == 1 and (rank == 2 or summed == -2):
        agree(shape[0], x.shape[-3 - summed])
        return
    if rank > 1 and len(shape) == rank and symbolic.equal(shape[summed], 1) is not False:
        for axis, (ours, theirs) in enumerate(zip(shape, x.shape, strict=True)):
            if axis != rank + summed and symbolic.equal(ours, 1) is not True:
                agree(ours, theirs)
        return
    raise RuleError("quantize.scale", f"a {what} of shape {list(shape)} lies along neither side of {x.type}")


def one(xp: Namespace, values: Array) -> Any:
    return xp.reshape(values, ())


def rows(xp: Namespace, values: Array, rank: int) -> Any:
    """What lies along the rows, so that it broadcasts to the product of a tensor of ``rank``."""
    if all(size == 1 for size in values.shape):
        return one(xp, values)
    return xp.reshape(values, (-1, 1)) if values.ndim == 1 and rank > 1 else values


def columns(xp: Namespace, values: Array) -> Any:
    return one(xp, values) if all(size == 1 for size in values.shape) else values


def one_value(b: Builder, values: Value) -> Any:
    return b.Reshape(values, [], special_zero=False) if values.shape else values


def rows_value(b: Builder, values: Value, rank: int) -> Any:
    if is_single(values.shape):
        return one_value(b, values)
    return b.Reshape(values, [-1, 1], special_zero=False) if len(values.dims) == 1 and rank > 1 else values


def columns_value(b: Builder, values: Value) -> Any:
    return one_value(b, values) if is_single(values.shape) else values


def centred(xp: Namespace, x: Array, zero_point: Array) -> Any:
    """``x`` less its zero point, in i32."""
    wide = arrays.cast(xp, x, dtypes.i32)
    return wide if zero_point is None else wide - arrays.cast(xp, zero_point, dtypes.i32)


def centred_value(b: Builder, x: Value, zero_point: Value | None, kind: DType = dtypes.i32) -> Any:
    wide = as_type(b, x, kind)
    if zero_point is None or (zero_point.constant is not None and not zero_point.constant.any()):
        return wide
    return b.Subtract(wide, as_type(b, zero_point, kind))


def sum_type(x: Value, x_zero_point: Value | None, w: Value, w_zero_point: Value | None, axes: tuple[int, ...]) -> DType:
    """f32 where every sum is surely a whole number that it holds, otherwise i32. ``axes`` are those of ``w`` that are summed."""
    low, high = x.dtype.range()
    middle = None if x_zero_point is None else x_zero_point.constant
    points = np.zeros(1) if x_zero_point is None else np.array([low, high]) if middle is None else middle.astype(np.int64)
    reach = max(float(np.abs(low - points).max()), float(np.abs(high - points).max()))
    shift = None if w_zero_point is None else w_zero_point.constant
    if w.constant is not None and (w_zero_point is None or shift is not None):
        weights = w.constant.astype(np.int64)
        if shift is not None:
            shift = shift.astype(np.int64)
            along = len(axes) < weights.ndim and 0 not in axes and shift.ndim == 1
            weights = weights - (shift.reshape(-1, *(1,) * (weights.ndim - 1)) if along else shift)
        most = float(np.abs(weights).sum(axis=axes).max(initial=0))
    else:
        sizes = [w.dims[axis] for axis in axes]
        if not all(isinstance(size, int) for size in sizes):
            return dtypes.i32
        most = 255.0 * float(prod(size for size in sizes if isinstance(size, int)))
    return dtypes.f32 if reach * most < 2**24 else dtypes.i32


def check_channels(values: View | None, w: View, what: str) -> None:
    if values is None or is_single(values.shape) is not False:
        return
    if len(values.dims) != 1:
        raise RuleError("quantize.scale", f"one {what} for all or for each channel is needed, not {values.type}")
    if w.shape is not None:
        agree(values.dims[0], w.shape[0])


def by_channels(xp: Namespace, values: Array, after: int) -> Any:
    return xp.reshape(values, (-1, *(1,) * after) if any(size != 1 for size in values.shape) else ())


def by_channels_value(b: Builder, values: Value, after: int) -> Any:
    return one_value(b, values) if is_single(values.shape) else b.Reshape(values, [-1, *(1,) * after], special_zero=False)
