"""Scales and zero points per tensor, per index of an axis, per block, and per row, column or channel of a product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.types import Shape, View, agree, agree_shapes, axis_in
from dovetail.ops.casts import as_type

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def is_single(shape: Shape | None) -> bool | None:
    """Return whether a scale of shape ``shape`` has one element; None if the answer depends on an unknown size."""
    if shape is None:
        return None
    if len(shape) == 0:
        return True
    known = [symbolic.equal(size, 1) for size in shape]
    return False if False in known or len(shape) > 1 else known[0]


def check_parameters(x: View, scale: View, zero_point: View | None, axis: int | None, block: int) -> None:
    """Check the shapes of a scale and a zero point against the shape of ``x``.

    Raises RuleError [shape.disagree], [shape.rank], [shape.single], [attribute.conflict], [axis.range].
    """
    if scale.shape is None:
        return
    if zero_point is not None and not (is_single(scale.shape) and is_single(zero_point.shape)):
        agree_shapes(scale.shape, zero_point.shape, "the scale", "the zero point")
    if block:
        _check_blocks(x, scale.shape, axis, block)
    elif is_single(scale.shape) is not True:
        if len(scale.shape) != 1:
            raise RuleError("shape.rank", f"a scale without block size must have a rank of at most 1, got {len(scale.shape)}")
        if axis is None:
            if is_single(scale.shape) is False:
                raise RuleError("shape.single", f"a scale without axis must have one element, got {scale.shape[0]}")
        elif x.shape is not None:
            index = axis_in(axis, len(x.shape))
            if is_single(scale.shape) is False:
                agree(scale.shape[0], x.shape[index], ("the scale", 0), ("x", index))


def _check_blocks(x: View, shape: Shape, axis: int | None, block: int) -> None:
    if axis is None:
        raise RuleError("attribute.conflict", f"a block size ({block}) needs an axis, got none")
    if x.shape is None:
        return
    if len(shape) != len(x.shape):
        raise RuleError("shape.rank", f"ranks of the blocked scale ({len(shape)}) and the tensor ({len(x.shape)}) must be equal")
    position = axis_in(axis, len(x.shape))
    for index, (count, size) in enumerate(zip(shape, x.shape, strict=True)):
        if index == position:
            agree(count, symbolic.ceil_divide(size, block), ("the scale", index), "the number of blocks")
        else:
            agree(count, size, ("the scale", index), ("x", index))


def broadcast_parameter(xp: Namespace, values: Array, shape: Sequence[int], axis: int | None, block: int) -> Any:
    """Reshape or repeat a scale or zero point so that it broadcasts to ``shape``."""
    if block:
        position = axis_in(axis or 0, len(shape))
        wide = arrays.repeat(xp, values, block, position)
        cut = tuple(slice(0, shape[position]) if index == position else slice(None) for index in range(len(shape)))
        return wide[cut]
    if prod(values.shape) == 1:
        return xp.reshape(values, ())
    return xp.reshape(values, (-1, *(1,) * (len(shape) - 1 - axis_in(axis or 0, len(shape)))))


def broadcast_parameter_value(b: Builder, values: Value, x: Value, axis: int | None) -> Any:
    """Reshape a scale or zero point that has no blocks so that it broadcasts to ``x``."""
    if values.shape is None:
        raise UnsupportedError("type.unknown", f"the rank of a scale must be known, got {values.type}")
    if not values.shape:
        return values
    if axis is None or is_single(values.shape):
        return b.Reshape(values, [], special_zero=False)
    after = len(x.dims) - 1 - axis_in(axis, len(x.dims))
    return b.Reshape(values, [-1, *(1,) * after], special_zero=False) if after else values


def apply_by_blocks(b: Builder, x: Value, parameters: list[Any], axis: int, block: int, compute: Callable[..., Value]) -> Any:
    """Emit ``compute(x, *parameters)`` with ``axis`` of ``x`` split into an axis of blocks and an axis within a block.

    The parameters, which have size 1 within a block, then broadcast. If the last block is partial or the size is unknown,
    ``axis`` is not split, and each parameter is repeated within the blocks.
    """
    index = axis_in(axis, len(x.dims))
    size = x.dims[index]
    if isinstance(size, int) and size % block == 0:
        before, after = shape_value(b, x, range(index)), shape_value(b, x, range(index + 1, len(x.dims)))
        parts = b.Reshape(x, _concat_sizes(b, before, [size // block, block], after), special_zero=False)
        unsqueezed = [None if item is None else b.Unsqueeze(item, [index + 1]) for item in parameters]
        return b.Reshape(compute(parts, *unsqueezed), shape_value(b, x), special_zero=False)
    repeated = [None if item is None else _repeat_blocks(b, item, x, index, block) for item in parameters]
    return compute(x, *repeated)


def _concat_sizes(b: Builder, *parts: Any) -> Any:
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    return b.Concat(*(b.constant(part, "i64") if isinstance(part, list) else part for part in parts), axis=0)


def _repeat_blocks(b: Builder, values: Value, x: Value, index: int, block: int) -> Any:
    rank = len(values.dims)
    wide = b.Tile(b.Unsqueeze(values, [index + 1]), [block if axis == index + 1 else 1 for axis in range(rank + 1)])
    blocks = values.dims[index]
    # -1 is not possible where another size is 0.
    repeated = [blocks * block if isinstance(blocks, int) else -1]
    shape = _concat_sizes(b, shape_value(b, values, range(index)), repeated, shape_value(b, values, range(index + 1, rank)))
    flat = b.Reshape(wide, shape, special_zero=False)
    size = shape_value(b, x, [index])
    return b.Slice(flat, [0], size, [index], [1])


def check_single(values: View | None, name: str) -> None:
    if values is not None and is_single(values.shape) is False:
        raise RuleError("shape.single", f"the {name} must have one element, got the shape {list(values.dims)}")


def check_rows(values: View | None, x: View, name: str) -> None:
    """Check a scale of a matrix product's left input: a scalar, one number per row, or a column for each matrix."""
    _check_sides(values, x, name, -1)


def check_columns(values: View | None, y: View, name: str) -> None:
    """Check a scale of a matrix product's right input: a scalar, one number per column, or a row for each matrix."""
    _check_sides(values, y, name, -2)


def _check_sides(values: View | None, x: View, name: str, summed: int) -> None:
    if values is None or is_single(values.shape) is not False or x.shape is None:
        return
    rank, shape = len(x.shape), values.dims
    if rank > 1 and len(shape) == 1 and (rank == 2 or summed == -2):
        agree(shape[0], x.shape[-3 - summed], (name, 0), ("the matrix", rank - 3 - summed))
        return
    if rank > 1 and len(shape) == rank and symbolic.equal(shape[summed], 1) is not False:
        for axis, (size, expected) in enumerate(zip(shape, x.shape, strict=True)):
            if axis != rank + summed and symbolic.equal(size, 1) is not True:
                agree(size, expected, (name, axis), ("the matrix", axis))
        return
    raise RuleError("shape.disagree", f"the {name} must have one number per row or column of {x.type}, got {list(shape)}")


def as_scalar(xp: Namespace, values: Array) -> Any:
    return xp.reshape(values, ())


def as_rows(xp: Namespace, values: Array, rank: int) -> Any:
    """Reshape parameters per row so that they broadcast to a matrix product whose left input has ``rank``."""
    if all(size == 1 for size in values.shape):
        return as_scalar(xp, values)
    return xp.reshape(values, (-1, 1)) if values.ndim == 1 and rank > 1 else values


def as_columns(xp: Namespace, values: Array) -> Any:
    return as_scalar(xp, values) if all(size == 1 for size in values.shape) else values


def as_scalar_value(b: Builder, values: Value) -> Any:
    return b.Reshape(values, [], special_zero=False) if values.shape else values


def as_rows_value(b: Builder, values: Value, rank: int) -> Any:
    if is_single(values.shape):
        return as_scalar_value(b, values)
    return b.Reshape(values, [-1, 1], special_zero=False) if len(values.dims) == 1 and rank > 1 else values


def as_columns_value(b: Builder, values: Value) -> Any:
    return as_scalar_value(b, values) if is_single(values.shape) else values


def subtract_zero_point(xp: Namespace, x: Array, zero_point: Array) -> Any:
    """Return ``x - zero_point`` in i32."""
    wide = arrays.cast(xp, x, dtypes.i32)
    return wide if zero_point is None else wide - arrays.cast(xp, zero_point, dtypes.i32)


def subtract_zero_point_value(b: Builder, x: Value, zero_point: Value | None, kind: DType = dtypes.i32) -> Any:
    wide = as_type(b, x, kind)
    if zero_point is None or (zero_point.constant is not None and not zero_point.constant.any()):
        return wide
    return b.Subtract(wide, as_type(b, zero_point, kind))


def accumulator_type(x: Value, x_zero_point: Value | None, w: Value, w_zero_point: Value | None, axes: tuple[int, ...]) -> DType:
    """Return f32 if every partial sum is below 2^24 in magnitude, so that f32 represents it exactly, otherwise i32.

    ``axes`` are the axes of ``w`` over which products are summed.
    """
    low, high = x.dtype.range()
    x_points = None if x_zero_point is None else x_zero_point.constant
    points = np.zeros(1) if x_zero_point is None else np.array([low, high]) if x_points is None else x_points.astype(np.int64)
    reach = max(float(np.abs(low - points).max()), float(np.abs(high - points).max()))
    w_points = None if w_zero_point is None else w_zero_point.constant
    if w.constant is not None and (w_zero_point is None or w_points is not None):
        weights = w.constant.astype(np.int64)
        if w_points is not None:
            w_points = w_points.astype(np.int64)
            along = len(axes) < weights.ndim and 0 not in axes and w_points.ndim == 1
            weights = weights - (w_points.reshape(-1, *(1,) * (weights.ndim - 1)) if along else w_points)
        weight_sum = float(np.abs(weights).sum(axis=axes).max(initial=0))
    else:
        sizes = [w.dims[axis] for axis in axes]
        if not all(isinstance(size, int) for size in sizes):
            return dtypes.i32
        weight_sum = 255.0 * float(prod(size for size in sizes if isinstance(size, int)))
    return dtypes.f32 if reach * weight_sum < 2**24 else dtypes.i32


def check_channels(values: View | None, w: View, name: str) -> None:
    if values is None or is_single(values.shape) is not False:
        return
    if len(values.dims) != 1:
        raise RuleError("shape.disagree", f"the {name} must be a scalar or have one number per channel, got {values.type}")
    if w.shape is not None:
        agree(values.dims[0], w.shape[0], (name, 0), ("w", 0))


def as_channels(xp: Namespace, values: Array, after: int) -> Any:
    return xp.reshape(values, (-1, *(1,) * after) if any(size != 1 for size in values.shape) else ())


def as_channels_value(b: Builder, values: Value, after: int) -> Any:
    return as_scalar_value(b, values) if is_single(values.shape) else b.Reshape(values, [-1, *(1,) * after], special_zero=False)
