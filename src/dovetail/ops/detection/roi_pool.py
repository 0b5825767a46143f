"""Pooling of regions of interest in bins: RoiPool (ONNX MaxRoiPool, OpenVINO ROIPooling), and helpers of the PSROI operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import Size, View
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def pooled_shape_of(x: View, rois: View, channels: Size | None, height: int, width: int) -> Any:
    """Return the output shape for ``rois`` with rows [image, x1, y1, x2, y2]. Raises RuleError for invalid input shapes."""
    for view, rank, name in ((x, 4, "x"), (rois, 2, "rois")):
        if view.shape is not None and len(view.shape) != rank:
            raise RuleError("shape.rank", f"{name} must have rank {rank}, got {len(view.shape)}")
    if rois.shape is not None and symbolic.equal(rois.shape[1], 5) is False:
        raise RuleError("shape.disagree", f"a row of rois must have 5 numbers, got {rois.shape[1]}")
    return (None if rois.shape is None else rois.shape[0], channels, height, width)


def round_half_away(b: Builder, x: Value) -> Any:
    """Round to the nearest integer, ties away from 0."""
    return b.Multiply(b.Sign(x), b.Floor(b.Add(b.Abs(x), 0.5)))


def int_size_of(b: Builder, x: Value, axis: int) -> Any:
    """Return the size of an axis as an i64 scalar."""
    return size_of(b, x, axis, dtypes.i64)


class RoiPool(
    Op,
    sig="x: F, rois: F -> y: F",
    onnx="MaxRoiPool-1,22(x, rois; pooled_shape, spatial_scale=1.0 | method=max)",
    openvino=">ROIPooling-2(x, rois; pooled_h+pooled_w:pooled_shape, spatial_scale, method~{max:max,bilinear:bilinear})",
):
    """RoiPool pools each region [image, x1, y1, x2, y2], a row of ``rois``, to [regions, channels, *pooled_shape].

    With ``method`` max, corners are multiplied by ``spatial_scale`` and rounded, ties away from 0. The region includes the
    elements from the first to the last corner, at least one element. Bin i spans the elements from floor(i * size) to ceil((i +
    1) * size), where size is the region's size divided by the number of bins. The result is the maximum of each bin; an empty
    bin is 0.

    With ``method`` bilinear, corners are fractions of the image, whose outermost elements are at 0 and 1, and are not scaled.
    The result is interpolated at evenly spaced points from corner to corner; a single point is in the middle. Points outside of
    the image are 0.
    Sources: ONNX MaxRoiPool 1, 22; OpenVINO ROIPooling-2.
    """

    pooled_shape: tuple[int, ...]
    method: str = "max"
    spatial_scale: float = 1.0

    def validate(self) -> None:
        if len(self.pooled_shape) != 2 or min(self.pooled_shape) < 1:
            raise RuleError("attribute.range", f"pooled_shape must be two positive sizes, got {list(self.pooled_shape)}")
        if self.method not in ("max", "bilinear"):
            raise RuleError("attribute.value", f"method must be max or bilinear, got {self.method!r}")

    def shape(self, x: View, rois: View) -> Any:
        return pooled_shape_of(x, rois, x.shape[1] if x.shape is not None and len(x.shape) == 4 else None, *self.pooled_shape)

    def decompose(self, b: Builder, x: Value, rois: Value) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        image = b.Cast(b.Gather(boxes, [0], axis=1), to=dtypes.i64)
        flat = b.Reshape(b.Transpose(x, [0, 2, 3, 1]), join_sizes(b, [-1, shape_value(b, x, [1])]), special_zero=False)
        pool = self._max_pool if self.method == "max" else self._bilinear
        return as_type(b, b.Transpose(pool(b, x, boxes, image, flat), [0, 3, 1, 2]), x.dtype)

    def _max_pool(self, b: Builder, x: Value, boxes: Value, image: Value, flat: Value) -> Any:
        """Return each bin's maximum; a bin is padded to the length of the longest bin by repeating the bin's last element."""
        positions, is_empty_of_axis = [], []
        for axis, count in enumerate(self.pooled_shape):
            first, last = (
                round_half_away(b, b.Multiply(b.Gather(boxes, [column], axis=1), self.spatial_scale))
                for column in (2 - axis, 4 - axis)
            )
            bin_size = b.Divide(b.Maximum(b.Add(b.Subtract(last, first), 1.0), 1.0), float(count))
            refuse_table((count + 1,), 16, "the bins of a RoiPool")
            steps = np.arange(count + 1).astype(boxes.dtype.numpy)
            size = size_of(b, x, axis + 2, boxes.dtype)
            begin, end = (
                b.Minimum(b.Maximum(b.Add(edge, first), 0.0), size)
                for edge in (b.Floor(b.Multiply(bin_size, steps[:-1])), b.Ceil(b.Multiply(bin_size, steps[1:])))
            )
            axis_positions, is_empty = bin_positions_of(b, begin, end, size)
            positions.append(axis_positions)
            is_empty_of_axis.append(b.Unsqueeze(is_empty, [2, 3] if axis == 0 else [1, 3]))
        lines = b.Add(b.Multiply(b.Unsqueeze(image, [2]), int_size_of(b, x, 2)), positions[0])
        lines = b.Unsqueeze(b.Multiply(lines, int_size_of(b, x, 3)), [3, 4])
        elements = b.Gather(flat, b.Add(lines, b.Unsqueeze(positions[1], [1, 2])), axis=0)
        return b.Where(b.Or(*is_empty_of_axis), zero_of(b, x), b.ReduceMax(elements, [2, 4], keepdims=False))

    def _bilinear(self, b: Builder, x: Value, boxes: Value, image: Value, flat: Value) -> Any:
        taps = []
        for axis, count in enumerate(self.pooled_shape):
            first, last = (b.Gather(boxes, [position], axis=1) for position in (2 - axis, 4 - axis))
            fractions = np.linspace(0, 1, count) if count > 1 else np.array([0.5])
            end = b.Subtract(size_of(b, x, axis + 2, boxes.dtype), 1.0)
            fractions = fractions.astype(boxes.dtype.numpy)
            position = b.Multiply(b.Add(first, b.Multiply(b.Subtract(last, first), fractions)), end)
            taps.append([tuple(b.Unsqueeze(item, [2 - axis]) for item in pair) for pair in bilinear_taps(b, position, end)])
        total = None
        for row, height in taps[0]:
            line = b.Multiply(b.Add(b.Multiply(b.Unsqueeze(image, [2]), int_size_of(b, x, 2)), row), int_size_of(b, x, 3))
            for column, width in taps[1]:
                weight = b.Unsqueeze(b.Multiply(height, width), [3])
                product = b.Multiply(as_type(b, b.Gather(flat, b.Add(line, column), axis=0), boxes.dtype), weight)
                total = product if total is None else b.Add(total, product)
        return total


def bin_positions_of(b: Builder, begin: Value, end: Value, size: Value) -> tuple[Any, Any]:
    """Return the positions in [begin, end) of each bin along a new last axis as i64, and a mask of the empty bins.

    ``begin`` and ``end`` are [regions, bins]. The last position of a bin is repeated up to the length of the longest bin.
    """
    length = b.Subtract(end, begin)
    one = b.constant(np.ones((1, length.dims[1]), length.dtype.numpy), length.dtype)
    max_length = b.ReduceMax(b.Concat(length, one, axis=0), keepdims=False)
    steps = b.Cast(b.Range(b.constant(0), b.Cast(max_length, to=dtypes.i64), b.constant(1)), to=length.dtype)
    positions = b.Minimum(b.Add(b.Unsqueeze(begin, [2]), steps), b.Unsqueeze(b.Subtract(end, 1.0), [2]))
    clamped = b.Maximum(b.Minimum(positions, b.Subtract(size, 1.0)), 0.0)
    return b.Cast(clamped, to=dtypes.i64), b.LessEqual(length, 0.0)


def bilinear_taps(b: Builder, position: Value, last: Value) -> list[tuple[Any, Any]]:
    """Return the indices (i64) of the two elements around ``position``, each with its weight.

    The weights are 0 for a position below 0 or above ``last``, the index of the last element.
    """
    inside = b.And(b.GreaterEqual(position, 0.0), b.LessEqual(position, last))
    clamped = b.Minimum(b.Maximum(position, 0.0), last)
    first = b.Floor(clamped)
    fraction = b.Subtract(clamped, first)
    pairs = [(first, b.Subtract(1.0, fraction)), (b.Minimum(b.Add(first, 1.0), last), fraction)]
    return [(b.Cast(element, to=dtypes.i64), b.Where(inside, weight, 0.0)) for element, weight in pairs]


def zero_of(b: Builder, x: Value) -> Any:
    """Return 0 as a scalar of the type of ``x``."""
    return b.constant(np.zeros((), x.dtype.numpy), x.dtype)
