"""Regions pooled in bins, each of which has channels of its own: PSROIPooling and its deformable form."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.detection.roi_pool import of_regions, rounded, spread, whole, zero
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.shape_values import join_sizes


class _Bins(Op):
    """``group`` by ``group`` bins for each of ``channels`` of a region."""

    channels: int
    group: int
    scale: float

    def validate(self) -> None:
        if self.channels < 1 or self.group < 1:
            raise RuleError("regions.size", f"{self.channels} channels of {self.group} by {self.group} bins")

    def bins(self, x: Any, rois: Any, each: int) -> Any:
        """The shape of the result, where ``x`` has ``each`` channels for one of the result."""
        if x.shape is not None and len(x.shape) == 4 and symbolic.equal(x.shape[1], self.channels * each) is False:
            raise RuleError("regions.channels", f"{x.shape[1]} channels, not {self.channels} times {each}")
        return of_regions(x, rois, self.channels, self.group, self.group)


class PSROIPooling(
    _Bins,
    sig="x: F, rois: F -> y: F",
    openvino=(
        "PSROIPooling-1(x, rois; output_dim:channels, group_size:group=1, spatial_scale:scale, mode~{average:average,"
        "bilinear:linear}=average, spatial_bins_x:columns=1, spatial_bins_y:rows=1)"
    ),
):
    """Regions [picture, x1, y1, x2, y2], the rows of ``rois``, each as ``group`` by ``group`` bins for each of ``channels``:
    [regions, channels, group, group].

    ``average``: corners are rounded, the last moved on by one, and multiplied by ``scale``; of each bin, widened to whole
    elements, the mean is taken, of channel (c * group + row) * group + column of ``x``. ``linear``: corners, multiplied by
    ``scale``, are parts of the picture, whose outermost elements are at 0 and 1; the region is cut into ``rows`` by ``columns``
    parts, in each of which every bin reads one place between elements, of channel part * channels + c; the result is the mean
    over the parts. Source: OpenVINO PSROIPooling-1.
    """

    mode: str = "average"
    columns: int = 1
    rows: int = 1

    def validate(self) -> None:
        super().validate()
        if self.mode not in ("average", "linear"):
            raise RuleError("regions.mode", f"{self.mode!r} is none of average, linear")
        if self.columns < 1 or self.rows < 1:
            raise RuleError("regions.size", f"{self.rows} by {self.columns} parts")

    def shape(self, x: Any, rois: Any) -> Any:
        return self.bins(x, rois, self.group**2 if self.mode == "average" else self.rows * self.columns)

    def decompose(self, b: Any, x: Any, rois: Any) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        picture = b.Cast(b.Gather(boxes, [0], axis=1), to=dtypes.i64)
        y = (self._means if self.mode == "average" else self._places)(b, x, boxes, picture)
        return as_type(b, b.Transpose(y, [0, 3, 1, 2]), x.dtype)

    def _means(self, b: Any, x: Any, boxes: Any, picture: Any) -> Any:
        """[regions, rows, columns, channels]."""
        flat = by_bins(b, x, [self.channels, self.group, self.group], [0, 2, 3, 4, 5, 1])
        tables, lengths = [], []
        for axis in (2, 3):
            first, last = (rounded(b, b.Gather(boxes, [place], axis=1)) for place in (4 - axis, 6 - axis))
            first, last = b.Multiply(first, self.scale), b.Multiply(b.Add(last, 1.0), self.scale)
            each = b.Divide(b.Subtract(last, first), float(self.group))
            steps = np.arange(self.group + 1).astype(boxes.dtype.numpy)
            size = size_of(b, x, axis, boxes.dtype)
            begin = b.Floor(b.Add(first, b.Multiply(each, steps[:-1])))
            end = b.Ceil(b.Add(first, b.Multiply(each, steps[1:])))
            begin, end = (b.Minimum(b.Maximum(edge, 0.0), limit) for edge, limit in ((begin, b.Subtract(size, 1.0)), (end, size)))
            tables.append(spread(b, begin, end, size)[0])
            lengths.append(b.Maximum(b.Subtract(end, begin), 0.0))
        group = b.constant(self.group)
        line = b.Add(b.Multiply(b.Unsqueeze(picture, [2]), group), b.constant(np.arange(self.group).reshape(1, -1, 1)))
        line = b.Unsqueeze(b.Add(b.Multiply(line, group), b.constant(np.arange(self.group))), [2])
        line = b.Add(b.Multiply(line, whole(b, x, 2)), b.Unsqueeze(tables[0], [3]))
        places = b.Add(b.Multiply(b.Unsqueeze(line, [4]), whole(b, x, 3)), b.Unsqueeze(tables[1], [1, 2]))
        inside = b.And(
            b.Unsqueeze(counted(b, tables[0], lengths[0]), [3, 4]), b.Unsqueeze(counted(b, tables[1], lengths[1]), [1, 2])
        )
        read = b.Where(b.Unsqueeze(inside, [5]), b.Gather(flat, places, axis=0), zero(b, x))
        total = b.ReduceSum(as_type(b, read, boxes.dtype), [2, 4], keepdims=False)
        number = b.Multiply(b.Unsqueeze(lengths[0], [2, 3]), b.Unsqueeze(lengths[1], [1, 3]))
        return b.Divide(total, b.Maximum(number, 1.0))

    def _places(self, b: Any, x: Any, boxes: Any, picture: Any) -> Any:
        """[regions, rows, columns, channels]."""
        parts = self.rows * self.columns
        flat = by_bins(b, x, [parts, self.channels], [0, 1, 3, 4, 2])
        taps = []
        for axis, count in ((2, self.rows), (3, self.columns)):
            first, last = (b.Multiply(b.Gather(boxes, [place], axis=1), self.scale) for place in (4 - axis, 6 - axis))
            shares = np.linspace(0, 1, self.group) if self.group > 1 else np.array([0.5])
            shares = ((np.arange(count)[:, None] + shares) / count).reshape(1, -1).astype(boxes.dtype.numpy)
            size = size_of(b, x, axis, boxes.dtype)
            place = b.Multiply(b.Add(first, b.Multiply(b.Subtract(last, first), shares)), b.Subtract(size, 1.0))
            taps.append(near(b, place, size))
        total = None
        for part in range(parts):
            base = b.Add(b.Multiply(b.Unsqueeze(picture, [2]), b.constant(parts)), b.constant(part))
            for row, height in taps[0]:
                row, height = (_of_part(b, item, part // self.columns, self.group, 2) for item in (row, height))
                line = b.Multiply(b.Add(b.Multiply(base, whole(b, x, 2)), row), whole(b, x, 3))
                for column, width in taps[1]:
                    column, width = (_of_part(b, item, part % self.columns, self.group, 1) for item in (column, width))
                    weight = b.Unsqueeze(b.Multiply(height, width), [3])
                    read = as_type(b, b.Gather(flat, b.Add(line, column), axis=0), boxes.dtype)
                    total = b.Multiply(read, weight) if total is None else b.Add(total, b.Multiply(read, weight))
        return b.Divide(total, float(parts))


def _of_part(b: Any, x: Any, part: int, group: int, axis: int) -> Any:
    """The bins of one part, along their own axis."""
    return b.Unsqueeze(b.Slice(x, [part * group], [(part + 1) * group], [1]), [axis])


def by_bins(b: Any, x: Any, channels: list[int], order: list[int]) -> Any:
    """``x`` with its channels cut up, all its axes in ``order``, and all but the last as one."""
    cut = b.Reshape(x, join_sizes(b, [shape_value(b, x, [0]), channels, shape_value(b, x, [2, 3])]), special_zero=False)
    inner = channels[order[-1] - 1]
    return b.Reshape(b.Transpose(cut, order), [-1, inner], special_zero=False)


def counted(b: Any, table: Any, length: Any) -> Any:
    """Which of the places of a table are within the length of their bin."""
    steps = b.Range(b.constant(0), b.Gather(b.Shape(table), np.array(2), axis=0), b.constant(1))
    return b.Less(b.Cast(steps, to=length.dtype), b.Unsqueeze(length, [2]))


def near(b: Any, place: Any, size: Any) -> list[tuple[Any, Any]]:
    """The two elements around a place, as i64, each with its weight: 0 before the first, and from one behind the last on."""
    last = b.Subtract(size, 1.0)
    inside = b.And(b.GreaterEqual(place, 0.0), b.Less(place, size))
    first = b.Minimum(b.Maximum(b.Floor(place), 0.0), last)
    share = b.Minimum(b.Subtract(place, first), 1.0)
    pairs = [(first, b.Subtract(1.0, share)), (b.Minimum(b.Add(first, 1.0), last), share)]
    return [(b.Cast(element, to=dtypes.i64), b.Where(inside, weight, 0.0)) for element, weight in pairs]


class DeformablePSROIPooling(
    _Bins,
    sig="x: F, rois: F, offset?: F -> y: F",
    openvino=(
        "DeformablePSROIPooling-1(x, rois, offset?; output_dim:channels, group_size:group=1, spatial_scale:scale, "
        "mode~{bilinear_deformable:bilinear_deformable}=bilinear_deformable, spatial_bins_x:columns=1, spatial_bins_y:rows=1, "
        "trans_std:reach=1.0, part_size:parts=1)"
    ),
):
    """Regions [picture, x1, y1, x2, y2], the rows of ``rois``, each as ``group`` by ``group`` bins for each of ``channels``,
    whose places may be moved: [regions, channels, group, group].

    Corners are rounded, the last moved on by one, multiplied by ``scale`` and moved by half an element to the front; a region is
    at least 0.1 high and wide. A bin reads ``rows`` by ``columns`` places, evenly from its corner on, between the elements of
    channel (c * group + row) * group + column of ``x``, and is their mean; places more than half an element outside do not
    count. ``offset`` [regions, 2 * classes, parts, parts] moves the bins of each class of channels by so many sizes of the
    region, times ``reach``: first along x, then along y. Source: OpenVINO DeformablePSROIPooling-1.
    """

    mode: str = "bilinear_deformable"
    columns: int = 1
    rows: int = 1
    reach: float = 1.0
    parts: int = 1

    def validate(self) -> None:
        super().validate()
        if self.mode != "bilinear_deformable":
            raise RuleError("regions.mode", f"{self.mode!r} is not bilinear_deformable")
        if self.columns < 1 or self.rows < 1 or self.parts < 1:
            raise RuleError("regions.size", f"{self.rows} by {self.columns} places, {self.parts} parts")

    def shape(self, x: Any, rois: Any, offset: Any = None) -> Any:
        if offset is not None and offset.shape is not None:
            if len(offset.shape) != 4:
                raise RuleError("regions.rank", f"offset should have rank 4, not {len(offset.shape)}")
            both = offset.shape[1]
            if isinstance(both, int) and (both < 2 or both % 2 or self.channels % (both // 2)):
                raise RuleError("regions.channels", f"{both} offsets for {self.channels} channels")
            if any(symbolic.equal(size, self.parts) is False for size in offset.shape[2:]):
                raise RuleError("regions.size", f"offsets of {offset.shape[2]} by {offset.shape[3]} parts, not {self.parts}")
        return self.bins(x, rois, self.group**2)

    def decompose(self, b: Any, x: Any, rois: Any, offset: Any = None) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        classes = 1 if offset is None else offset.dims[1] // 2
        group = self.group
        flat = by_bins(b, x, [classes, self.channels // classes, group, group], [0, 1, 3, 4, 5, 6, 2])
        part = np.arange(group) * self.parts // group
        taps, counts = [], []
        for axis, samples in ((2, self.rows), (3, self.columns)):
            low, high = (rounded(b, b.Gather(boxes, [place], axis=1)) for place in (4 - axis, 6 - axis))
            low = b.Subtract(b.Multiply(low, self.scale), 0.5)
            high = b.Subtract(b.Multiply(b.Add(high, 1.0), self.scale), 0.5)
            size = b.Unsqueeze(b.Maximum(b.Subtract(high, low), 0.1), [2, 3, 4, 5])
            steps = (np.arange(group)[:, None] + np.arange(samples) / samples) / group
            shape = (1, 1, group, 1, samples, 1) if axis == 2 else (1, 1, 1, group, 1, samples)
            place = b.Multiply(size, steps.reshape(shape).astype(boxes.dtype.numpy))
            place = b.Add(b.Unsqueeze(low, [2, 3, 4, 5]), place)
            if offset is not None:
                moved = b.Gather(offset, b.constant(np.arange(classes) * 2 + 3 - axis), axis=1)
                moved = b.Gather(b.Gather(moved, b.constant(part), axis=2), b.constant(part), axis=3)
                moved = b.Multiply(as_type(b, moved, boxes.dtype), self.reach)
                place = b.Add(place, b.Multiply(b.Unsqueeze(moved, [4, 5]), size))
            end = size_of(b, x, axis, boxes.dtype)
            counts.append(b.And(b.GreaterEqual(place, -0.5), b.LessEqual(place, b.Subtract(end, 0.5))))
            taps.append(near(b, b.Minimum(b.Maximum(place, 0.0), b.Subtract(end, 1.0)), end))
        inside = b.And(*counts)
        base = b.Unsqueeze(b.Cast(b.Gather(boxes, [0], axis=1), to=dtypes.i64), [2, 3, 4, 5])
        for axis, size in ((1, classes), (2, group), (3, group)):
            steps = np.arange(size).reshape([-1 if place == axis else 1 for place in range(6)])
            base = b.Add(b.Multiply(base, b.constant(size)), b.constant(steps))
        total = None
        for row, height in taps[0]:
            line = b.Multiply(b.Add(b.Multiply(base, whole(b, x, 2)), row), whole(b, x, 3))
            for column, width in taps[1]:
                weight = b.Unsqueeze(b.Where(inside, b.Multiply(height, width), 0.0), [6])
                read = b.Multiply(as_type(b, b.Gather(flat, b.Add(line, column), axis=0), boxes.dtype), weight)
                total = read if total is None else b.Add(total, read)
        y = b.ReduceSum(total, [4, 5], keepdims=False)
        number = b.ReduceSum(b.Cast(inside, to=boxes.dtype), [4, 5], keepdims=False)
        y = b.Divide(y, b.Unsqueeze(b.Maximum(number, 1.0), [4]))
        shape = join_sizes(b, [shape_value(b, rois, [0]), self.channels, group, group])
        return as_type(b, b.Reshape(b.Transpose(y, [0, 1, 4, 2, 3]), shape, special_zero=False), x.dtype)
