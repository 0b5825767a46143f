"""Regions of a picture, each pooled in bins: RoiPool, and those whose bins have channels of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.shape_values import join_sizes


def of_regions(x: Any, rois: Any, channels: Any, height: int, width: int) -> Any:
    """The shape of what is made of regions [picture, x1, y1, x2, y2]."""
    for item, rank, name in ((x, 4, "x"), (rois, 2, "rois")):
        if item.shape is not None and len(item.shape) != rank:
            raise RuleError("regions.rank", f"{name} should have rank {rank}, not {len(item.shape)}")
    if rois.shape is not None and symbolic.equal(rois.shape[1], 5) is False:
        raise RuleError("regions.columns", f"{rois.shape[1]} numbers for a region, not 5")
    return (None if rois.shape is None else rois.shape[0], channels, height, width)


def rounded(b: Any, x: Any) -> Any:
    """To the nearest whole number, halves away from 0."""
    return b.Multiply(b.Sign(x), b.Floor(b.Add(b.Abs(x), 0.5)))


def whole(b: Any, x: Any, axis: int) -> Any:
    """A size as an i64 scalar."""
    return size_of(b, x, axis, dtypes.i64)


class RoiPool(
    Op,
    sig="x: F, rois: F -> y: F",
    onnx="MaxRoiPool-1,22(x, rois; pooled_shape:size, spatial_scale:scale=1.0 | method=max)",
    openvino=">ROIPooling-2(x, rois; pooled_h+pooled_w:size, spatial_scale:scale, method~{max:max,bilinear:linear})",
):
    """Regions [picture, x1, y1, x2, y2], the rows of ``rois``, each as ``size`` numbers for each channel: [regions, channels,
    *size].

    ``max``: corners are multiplied by ``scale`` and rounded, halves away from 0; the region goes from the first to the last, at
    least one element, and is cut into bins, each from floor(i * bin) to ceil((i + 1) * bin), of which the greatest element is
    taken; an empty one is 0. ``linear``: corners are parts of the picture, whose outermost elements are at 0 and 1, and are not
    scaled; even places from corner to corner, or the middle where there is one, are read between elements, and are 0 outside.
    Sources: ONNX MaxRoiPool 1, 22; OpenVINO ROIPooling-2.
    """

    size: tuple[int, ...]
    method: str = "max"
    scale: float = 1.0

    def validate(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1:
            raise RuleError("regions.size", f"{list(self.size)} numbers for a region")
        if self.method not in ("max", "linear"):
            raise RuleError("regions.mode", f"{self.method!r} is none of max, linear")

    def shape(self, x: Any, rois: Any) -> Any:
        return of_regions(x, rois, x.shape[1] if x.shape is not None and len(x.shape) == 4 else None, *self.size)

    def decompose(self, b: Any, x: Any, rois: Any) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        picture = b.Cast(b.Gather(boxes, [0], axis=1), to=dtypes.i64)
        flat = b.Reshape(b.Transpose(x, [0, 2, 3, 1]), join_sizes(b, [-1, shape_value(b, x, [1])]), special_zero=False)
        make = self._greatest if self.method == "max" else self._between
        return as_type(b, b.Transpose(make(b, x, boxes, picture, flat), [0, 3, 1, 2]), x.dtype)

    def _greatest(self, b: Any, x: Any, boxes: Any, picture: Any, flat: Any) -> Any:
        """Of the elements of each bin beside one another, the last repeated."""
        tables, empties = [], []
        for axis, count in enumerate(self.size):
            first, last = (rounded(b, b.Multiply(b.Gather(boxes, [place], axis=1), self.scale)) for place in (2 - axis, 4 - axis))
            each = b.Divide(b.Maximum(b.Add(b.Subtract(last, first), 1.0), 1.0), float(count))
            steps = np.arange(count + 1).astype(boxes.dtype.numpy)
            size = size_of(b, x, axis + 2, boxes.dtype)
            begin, end = (
                b.Minimum(b.Maximum(b.Add(edge, first), 0.0), size)
                for edge in (b.Floor(b.Multiply(each, steps[:-1])), b.Ceil(b.Multiply(each, steps[1:])))
            )
            table, empty = spread(b, begin, end, size)
            tables.append(table)
            empties.append(b.Unsqueeze(empty, [2, 3] if axis == 0 else [1, 3]))
        lines = b.Add(b.Multiply(b.Unsqueeze(picture, [2]), whole(b, x, 2)), tables[0])
        lines = b.Unsqueeze(b.Multiply(lines, whole(b, x, 3)), [3, 4])
        read = b.Gather(flat, b.Add(lines, b.Unsqueeze(tables[1], [1, 2])), axis=0)
        return b.Where(b.Or(*empties), zero(b, x), b.ReduceMax(read, [2, 4], keepdims=False))

    def _between(self, b: Any, x: Any, boxes: Any, picture: Any, flat: Any) -> Any:
        taps = []
        for axis, count in enumerate(self.size):
            first, last = (b.Gather(boxes, [place], axis=1) for place in (2 - axis, 4 - axis))
            shares = np.linspace(0, 1, count) if count > 1 else np.array([0.5])
            end = b.Subtract(size_of(b, x, axis + 2, boxes.dtype), 1.0)
            shares = shares.astype(boxes.dtype.numpy)
            place = b.Multiply(b.Add(first, b.Multiply(b.Subtract(last, first), shares)), end)
            taps.append([tuple(b.Unsqueeze(item, [2 - axis]) for item in pair) for pair in between(b, place, end)])
        total = None
        for row, height in taps[0]:
            line = b.Multiply(b.Add(b.Multiply(b.Unsqueeze(picture, [2]), whole(b, x, 2)), row), whole(b, x, 3))
            for column, width in taps[1]:
                weight = b.Unsqueeze(b.Multiply(height, width), [3])
                part = b.Multiply(as_type(b, b.Gather(flat, b.Add(line, column), axis=0), boxes.dtype), weight)
                total = part if total is None else b.Add(total, part)
        return total


def spread(b: Any, begin: Any, end: Any, size: Any) -> tuple[Any, Any]:
    """The places from ``begin`` to before ``end``, [regions, bins], side by side as i64, the last repeated; and where there are
    none."""
    length = b.Subtract(end, begin)
    one = b.constant(np.ones((1, length.dims[1]), length.dtype.numpy), length.dtype)
    most = b.ReduceMax(b.Concat(length, one, axis=0), keepdims=False)
    steps = b.Cast(b.Range(b.constant(0), b.Cast(most, to=dtypes.i64), b.constant(1)), to=length.dtype)
    places = b.Minimum(b.Add(b.Unsqueeze(begin, [2]), steps), b.Unsqueeze(b.Subtract(end, 1.0), [2]))
    held = b.Maximum(b.Minimum(places, b.Subtract(size, 1.0)), 0.0)
    return b.Cast(held, to=dtypes.i64), b.LessEqual(length, 0.0)


def between(b: Any, place: Any, last: Any) -> list[tuple[Any, Any]]:
    """The two elements around a place, as i64, each with its weight: 0 before the first and behind the last."""
    inside = b.And(b.GreaterEqual(place, 0.0), b.LessEqual(place, last))
    held = b.Minimum(b.Maximum(place, 0.0), last)
    first = b.Floor(held)
    share = b.Subtract(held, first)
    pairs = [(first, b.Subtract(1.0, share)), (b.Minimum(b.Add(first, 1.0), last), share)]
    return [(b.Cast(element, to=dtypes.i64), b.Where(inside, weight, 0.0)) for element, weight in pairs]


def zero(b: Any, x: Any) -> Any:
    return b.constant(np.zeros((), x.dtype.numpy), x.dtype)
