"""Regions of a picture, each read at as many places: RoiAlign and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import agree
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.shape_values import join_sizes

POOLINGS = ("average", "greatest", "parts")
_OFFSETS = {"asymmetric": (0.0, 0.0), "half_pixel_for_nn": (0.0, -0.5), "half_pixel": (0.5, -0.5)}
"""What is added to a corner before and after it is scaled."""
_IN_ONNX = "mode~{avg:average,max:parts}:pooling=avg"
_SHARED_ONNX = "output_height:height=1, output_width:width=1, sampling_ratio:samples=0, spatial_scale:scale=1.0"
_SHARED_IR = "pooled_h:height, pooled_w:width, sampling_ratio:samples, spatial_scale:scale"
_IN_IR = f"{_SHARED_IR}, mode~{{avg:average,max:greatest}}:pooling"


class _Regions(Op):
    """``height`` by ``width`` numbers for each channel of each region. An even grid of ``samples`` by ``samples`` places is read
    for each of them (0: as many as it is elements high and wide, rounded up), between the four elements around a place. A place
    more than one element before the first, or behind the last, counts as 0; one beyond the middle of the outermost element
    is read there."""

    height: int = 1
    width: int = 1
    samples: int = 0
    scale: float = 1.0

    def validate(self) -> None:
        if self.height < 1 or self.width < 1:
            raise RuleError("regions.size", f"{self.height} by {self.width} numbers for a region")
        if self.samples < 0:
            raise RuleError("regions.samples", f"{self.samples} samples")

    def of_regions(self, x: Any, rois: Any, batch: Any, columns: int) -> Any:
        """The shape of the result."""
        for item, rank, name in ((x, 4, "x"), (rois, 2, "rois"), (batch, 1, "batch")):
            if item.shape is not None and len(item.shape) != rank:
                raise RuleError("regions.rank", f"{name} should have rank {rank}, not {len(item.shape)}")
        if rois.shape is not None and symbolic.equal(rois.shape[1], columns) is False:
            raise RuleError("regions.columns", f"{rois.shape[1]} numbers for a region, not {columns}")
        counts = [item.shape[0] for item in (rois, batch) if item.shape is not None]
        count = agree(*counts) if len(counts) == 2 else counts[0] if counts else None
        return (count, None if x.shape is None else x.shape[1], self.height, self.width)

    def grid(self, b: Any, first: Any, size: Any, count: int) -> _Grid:
        """Places along one axis of regions that begin at ``first`` and are ``size`` long, both [regions, 1]."""
        wide = first.dtype
        each = b.Divide(size, float(count))
        bins = np.arange(count).reshape(-1, 1)
        if self.samples:
            steps = b.constant((bins + (np.arange(self.samples) + 0.5) / self.samples).astype(wide.numpy), wide)
            number, inside = b.constant(np.full((1, 1), self.samples, wide.numpy), wide), None
        else:
            number = b.Maximum(b.Ceil(each), 0.0)
            most = b.ReduceMax(b.Concat(number, b.constant(np.ones((1, 1), wide.numpy), wide), axis=0), keepdims=False)
            inner = b.Cast(b.Range(b.constant(0), b.Cast(most, to=dtypes.i64), b.constant(1)), to=wide)
            share = b.Divide(b.Add(inner, 0.5), b.Maximum(number, 1.0))
            steps = b.Add(b.constant(bins.astype(wide.numpy), wide), b.Unsqueeze(share, [1]))
            inside = b.Unsqueeze(b.Less(inner, number), [1])
        return _Grid(b.Add(b.Unsqueeze(first, [2]), b.Multiply(b.Unsqueeze(each, [2]), steps)), number, inside)


class _Grid:
    """Along one axis: the places, [regions, bins, samples]; the number of samples, [regions, 1]; which of them count, None where
    all do."""

    def __init__(self, places: Any, number: Any, inside: Any) -> None:
        self.places, self.number, self.inside = places, number, inside

    def spread(self, b: Any, axes: list[int]) -> tuple[Any, Any]:
        """Places and which of them count, with more axes."""
        return b.Unsqueeze(self.places, axes), None if self.inside is None else b.Unsqueeze(self.inside, axes)


class RoiAlign(
    _Regions,
    sig="x: F, rois: F, batch: I -> y: F",
    onnx=(
        f"RoiAlign-10(x, rois, batch; {_IN_ONNX}, {_SHARED_ONNX} | coordinates=asymmetric)",
        f"RoiAlign-16,22(x, rois, batch; {_IN_ONNX}, {_SHARED_ONNX}, "
        "coordinate_transformation_mode~{half_pixel:half_pixel_for_nn,output_half_pixel:asymmetric}:coordinates=half_pixel)",
    ),
    openvino=(
        f"ROIAlign-3(x, rois, batch; {_IN_IR} | coordinates=asymmetric)",
        f"ROIAlign-9(x, rois, batch; {_IN_IR}, aligned_mode:coordinates=asymmetric)",
    ),
):
    """Each region, a row [x1, y1, x2, y2] of ``rois``, of the picture of ``x`` that ``batch`` says, as ``height`` by ``width``
    numbers for each channel: [regions, channels, height, width].

    Corners are multiplied by ``scale``. ``asymmetric`` takes them as they are, and a region as one element high and wide at
    least; ``half_pixel_for_nn`` moves them by half an element to the front, ``half_pixel`` counts from the middles of elements
    before and after scaling. An even grid of ``samples`` by ``samples`` places is read for each number (0: as many as it is
    elements high and wide, rounded up), weighing the four elements around a place. A place more than one element before the
    first, or behind the last, counts as 0; one beyond the middle of the outermost element is read there. ``average`` is the mean
    of the places, ``greatest`` the greatest of them and 0, ``parts`` the greatest of what one element gives to one place; of no
    places all are 0.
    Sources: ONNX RoiAlign 10 to 22 and its reference evaluator (for ``parts``); OpenVINO ROIAlign-3, -9.
    """

    pooling: str = "average"
    coordinates: str = "half_pixel_for_nn"

    def validate(self) -> None:
        super().validate()
        for word, known in ((self.pooling, POOLINGS), (self.coordinates, tuple(_OFFSETS))):
            if word not in known:
                raise RuleError("regions.mode", f"{word!r} is none of {', '.join(known)}")

    def shape(self, x: Any, rois: Any, batch: Any) -> Any:
        return self.of_regions(x, rois, batch, 4)

    def decompose(self, b: Any, x: Any, rois: Any, batch: Any) -> Any:
        before, after = _OFFSETS[self.coordinates]
        corners = as_type(b, rois, wide_type(x.dtype))
        corners = b.Multiply(b.Add(corners, before) if before else corners, self.scale)
        corners = b.Add(corners, after) if after else corners
        grids = []
        for axis, count in ((1, self.height), (0, self.width)):
            first, last = (b.Gather(corners, [place], axis=1) for place in (axis, axis + 2))
            size = b.Subtract(last, first)
            grids.append(self.grid(b, first, b.Maximum(size, 1.0) if self.coordinates == "asymmetric" else size, count))
        (rows, rows_count), (columns, columns_count) = grids[0].spread(b, [3, 4]), grids[1].spread(b, [1, 2])
        return _pooled(b, x, batch, (rows, columns), (rows_count, columns_count), (grids[0], grids[1]), self.pooling)


class RoiAlignRotated(
    _Regions,
    sig="x: F, rois: F, batch: I -> y: F",
    openvino=f"ROIAlignRotated-15(x, rois, batch; {_SHARED_IR}, clockwise_mode:clockwise)",
):
    """Regions that are turned: each row of ``rois`` is [middle x, middle y, width, height, angle], the angle in radians, from
    the x axis towards the y axis if ``clockwise`` and away from it otherwise.

    Everything is multiplied by ``scale``, and the middle is moved by half an element to the front. The rest as in RoiAlign, of
    whose poolings this is ``average``. Source: OpenVINO ROIAlignRotated-15.
    """

    clockwise: bool = False

    def shape(self, x: Any, rois: Any, batch: Any) -> Any:
        return self.of_regions(x, rois, batch, 5)

    def decompose(self, b: Any, x: Any, rois: Any, batch: Any) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        middles, angle = b.Multiply(b.Slice(boxes, [0], [4], [1]), self.scale), b.Gather(boxes, [4], axis=1)
        grids = []
        for axis, count in ((3, self.height), (2, self.width)):
            size = b.Gather(middles, [axis], axis=1)
            grids.append(self.grid(b, b.Multiply(size, -0.5), size, count))
        (rows, rows_count), (columns, columns_count) = grids[0].spread(b, [3, 4]), grids[1].spread(b, [1, 2])
        angle = b.Unsqueeze(b.Negative(angle) if self.clockwise else angle, [2, 3, 4])
        sine, cosine = b.Sin(angle), b.Cos(angle)
        row, column = (b.Unsqueeze(b.Subtract(b.Gather(middles, [axis], axis=1), 0.5), [2, 3, 4]) for axis in (1, 0))
        turned = (
            b.Add(b.Subtract(b.Multiply(rows, cosine), b.Multiply(columns, sine)), row),
            b.Add(b.Add(b.Multiply(rows, sine), b.Multiply(columns, cosine)), column),
        )
        return _pooled(b, x, batch, turned, (rows_count, columns_count), (grids[0], grids[1]), "average")


def _pooled(
    b: Any, x: Any, batch: Any, places: tuple[Any, Any], counted: tuple[Any, Any], grids: tuple[_Grid, _Grid], pooling: str
) -> Any:
    """What is read at ``places``, along rows and columns, [regions, rows, samples, columns, samples] when broadcast, pooled over
    the samples: [regions, channels, rows, columns] in the type of ``x``."""
    wide = places[0].dtype
    rows, columns = (_taps(b, place, size_of(b, x, axis, wide)) for axis, place in ((2, places[0]), (3, places[1])))
    inside = b.And(rows[0], columns[0])
    is_counted = _both(b, *counted)
    if is_counted is not None:
        inside = b.And(inside, is_counted)
    pictures = b.Unsqueeze(as_type(b, batch, dtypes.i64), [1, 2, 3, 4])
    flat = b.Reshape(b.Transpose(x, [0, 2, 3, 1]), join_sizes(b, [-1, shape_value(b, x, [1])]), special_zero=False)
    total = None
    for row, height in rows[1]:
        line = b.Add(b.Multiply(pictures, _whole(b, x, 2)), b.Cast(row, to=dtypes.i64))
        for column, width in columns[1]:
            index = b.Add(b.Multiply(line, _whole(b, x, 3)), b.Cast(column, to=dtypes.i64))
            weight = b.Unsqueeze(b.Where(inside, b.Multiply(height, width), 0.0), [5])
            part = b.Multiply(as_type(b, b.Gather(flat, index, axis=0), wide), weight)
            # One after the other: each is as large as all that is read.
            total = part if total is None else (b.Maximum if pooling == "parts" else b.Add)(total, part)
    number = b.Unsqueeze(b.Multiply(grids[0].number, grids[1].number), [2, 3])
    if pooling == "parts":
        if is_counted is not None:
            total = b.Where(b.Unsqueeze(is_counted, [5]), total, b.constant(np.array(-np.inf, wide.numpy), wide))
        y = b.ReduceMax(total, [2, 4], keepdims=False)
        y = y if is_counted is None else b.Where(b.Greater(number, 0.0), y, 0.0)
    elif pooling == "average":
        y = b.Divide(b.ReduceSum(total, [2, 4], keepdims=False), b.Maximum(number, 1.0))
    else:
        y = b.Maximum(b.ReduceMax(total, [2, 4], keepdims=False), 0.0)
    return as_type(b, b.Transpose(y, [0, 3, 1, 2]), x.dtype)


def _both(b: Any, first: Any, second: Any) -> Any:
    return second if first is None else first if second is None else b.And(first, second)


def _taps(b: Any, place: Any, size: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Whether a place is near enough, and the two elements around it, each with its weight."""
    last = b.Subtract(size, 1.0)
    near = b.And(b.GreaterEqual(place, -1.0), b.LessEqual(place, size))
    place = b.Minimum(b.Maximum(place, 0.0), last)
    first = b.Floor(place)
    share = b.Subtract(place, first)
    return near, [(first, b.Subtract(1.0, share)), (b.Minimum(b.Add(first, 1.0), last), share)]


def _whole(b: Any, x: Any, axis: int) -> Any:
    """A size as an i64 scalar."""
    return size_of(b, x, axis, dtypes.i64)


__all__ = ["RoiAlign", "RoiAlignRotated"]
