"""Position-sensitive pooling of regions of interest: PSROIPooling and DeformablePSROIPooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import View
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.detection.roi_pool import bin_positions_of, int_size_of, pooled_shape_of, round_half_away, zero_of
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _PositionSensitive(Op):
    """_PositionSensitive is the base class of PSROIPooling and DeformablePSROIPooling.

    Each region has ``group_size`` by ``group_size`` bins for each of ``output_dim`` channels.
    """

    output_dim: int
    group_size: int
    spatial_scale: float

    def validate(self) -> None:
        if self.output_dim < 1 or self.group_size < 1:
            raise RuleError(
                "attribute.range", f"output_dim and group_size must be at least 1, got {self.output_dim} and {self.group_size}"
            )

    def pooled_shape(self, x: View, rois: View, factor: int) -> Any:
        """Return the output shape; ``x`` must have ``factor`` channels for each channel of the output."""
        if x.shape is not None and len(x.shape) == 4 and symbolic.equal(x.shape[1], self.output_dim * factor) is False:
            raise RuleError("shape.disagree", f"x must have {self.output_dim} * {factor} channels, got {x.shape[1]}")
        return pooled_shape_of(x, rois, self.output_dim, self.group_size, self.group_size)


class PSROIPooling(
    _PositionSensitive,
    sig="x: F, rois: F -> y: F",
    openvino=(
        "PSROIPooling-1(x, rois; output_dim, group_size=1, spatial_scale, mode~{average:average,bilinear:bilinear}=average, "
        "spatial_bins_x=1, spatial_bins_y=1)"
    ),
):
    """PSROIPooling pools each region of interest by position-sensitive bins: every bin reads different channels of ``x``.

    Regions [image, x1, y1, x2, y2] are the rows of ``rois``; the output is [regions, output_dim, group_size, group_size].

    With ``mode`` average, both corners are rounded, 1 is added to the last corner, and both are multiplied by
    ``spatial_scale``. Each bin is extended to whole elements. The bin at (row, column) of output channel c is the mean of
    channel (c * group_size + row) * group_size + column of ``x``.

    With ``mode`` bilinear, corners multiplied by ``spatial_scale`` are fractions of the image, whose outermost elements are at
    0 and 1. The region is cut into ``spatial_bins_y`` by ``spatial_bins_x`` parts. In each part, every bin of output channel c
    interpolates one point of channel part * output_dim + c. The output is the mean over the parts.
    Source: OpenVINO PSROIPooling-1.
    """

    mode: str = "average"
    spatial_bins_x: int = 1
    spatial_bins_y: int = 1

    def validate(self) -> None:
        super().validate()
        if self.mode not in ("average", "bilinear"):
            raise RuleError("attribute.value", f"mode must be average or bilinear, got {self.mode!r}")
        if self.spatial_bins_x < 1 or self.spatial_bins_y < 1:
            raise RuleError(
                "attribute.range",
                f"spatial_bins_y and spatial_bins_x must be at least 1, got {self.spatial_bins_y} and {self.spatial_bins_x}",
            )

    def shape(self, x: View, rois: View) -> Any:
        return self.pooled_shape(
            x, rois, self.group_size**2 if self.mode == "average" else self.spatial_bins_y * self.spatial_bins_x
        )

    def decompose(self, b: Builder, x: Value, rois: Value) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        image = b.Cast(b.Gather(boxes, [0], axis=1), to=dtypes.i64)
        y = (self._average if self.mode == "average" else self._bilinear)(b, x, boxes, image)
        return as_type(b, b.Transpose(y, [0, 3, 1, 2]), x.dtype)

    def _average(self, b: Builder, x: Value, boxes: Value, image: Value) -> Any:
        """Return the mean of each bin: [regions, rows, columns, channels]."""
        flat = flatten_bins(b, x, [self.output_dim, self.group_size, self.group_size], [0, 2, 3, 4, 5, 1])
        axis_positions, lengths = [], []
        for axis in (2, 3):
            first, last = (round_half_away(b, b.Gather(boxes, [column], axis=1)) for column in (4 - axis, 6 - axis))
            first, last = b.Multiply(first, self.spatial_scale), b.Multiply(b.Add(last, 1.0), self.spatial_scale)
            bin_size = b.Divide(b.Subtract(last, first), float(self.group_size))
            refuse_table((self.group_size,), 16, "the bins of a PSROIPooling")
            steps = np.arange(self.group_size + 1).astype(boxes.dtype.numpy)
            size = size_of(b, x, axis, boxes.dtype)
            begin = b.Floor(b.Add(first, b.Multiply(bin_size, steps[:-1])))
            end = b.Ceil(b.Add(first, b.Multiply(bin_size, steps[1:])))
            begin, end = (b.Minimum(b.Maximum(edge, 0.0), limit) for edge, limit in ((begin, b.Subtract(size, 1.0)), (end, size)))
            axis_positions.append(bin_positions_of(b, begin, end, size)[0])
            lengths.append(b.Maximum(b.Subtract(end, begin), 0.0))
        group = b.constant(self.group_size)
        line = b.Add(b.Multiply(b.Unsqueeze(image, [2]), group), b.constant(np.arange(self.group_size).reshape(1, -1, 1)))
        line = b.Unsqueeze(b.Add(b.Multiply(line, group), b.constant(np.arange(self.group_size))), [2])
        line = b.Add(b.Multiply(line, int_size_of(b, x, 2)), b.Unsqueeze(axis_positions[0], [3]))
        positions = b.Add(b.Multiply(b.Unsqueeze(line, [4]), int_size_of(b, x, 3)), b.Unsqueeze(axis_positions[1], [1, 2]))
        inside = b.And(
            b.Unsqueeze(bin_mask_of(b, axis_positions[0], lengths[0]), [3, 4]),
            b.Unsqueeze(bin_mask_of(b, axis_positions[1], lengths[1]), [1, 2]),
        )
        elements = b.Where(b.Unsqueeze(inside, [5]), b.Gather(flat, positions, axis=0), zero_of(b, x))
        total = b.ReduceSum(as_type(b, elements, boxes.dtype), [2, 4], keepdims=False)
        number = b.Multiply(b.Unsqueeze(lengths[0], [2, 3]), b.Unsqueeze(lengths[1], [1, 3]))
        return b.Divide(total, b.Maximum(number, 1.0))

    def _bilinear(self, b: Builder, x: Value, boxes: Value, image: Value) -> Any:
        """Return for each bin the mean over its parts, one interpolated point per part: [regions, rows, columns, channels]."""
        parts = self.spatial_bins_y * self.spatial_bins_x
        flat = flatten_bins(b, x, [parts, self.output_dim], [0, 1, 3, 4, 2])
        taps = []
        for axis, count in ((2, self.spatial_bins_y), (3, self.spatial_bins_x)):
            first, last = (
                b.Multiply(b.Gather(boxes, [position], axis=1), self.spatial_scale) for position in (4 - axis, 6 - axis)
            )
            refuse_table((count, self.group_size), 16, "the sample points of a PSROIPooling")
            fractions = np.linspace(0, 1, self.group_size) if self.group_size > 1 else np.array([0.5])
            fractions = ((np.arange(count)[:, None] + fractions) / count).reshape(1, -1).astype(boxes.dtype.numpy)
            size = size_of(b, x, axis, boxes.dtype)
            position = b.Multiply(b.Add(first, b.Multiply(b.Subtract(last, first), fractions)), b.Subtract(size, 1.0))
            taps.append(bilinear_taps(b, position, size))
        total = None
        for part in range(parts):
            base = b.Add(b.Multiply(b.Unsqueeze(image, [2]), b.constant(parts)), b.constant(part))
            for row, height in taps[0]:
                row, height = (_slice_part(b, item, part // self.spatial_bins_x, self.group_size, 2) for item in (row, height))
                line = b.Multiply(b.Add(b.Multiply(base, int_size_of(b, x, 2)), row), int_size_of(b, x, 3))
                for column, width in taps[1]:
                    column, width = (
                        _slice_part(b, item, part % self.spatial_bins_x, self.group_size, 1) for item in (column, width)
                    )
                    weight = b.Unsqueeze(b.Multiply(height, width), [3])
                    elements = as_type(b, b.Gather(flat, b.Add(line, column), axis=0), boxes.dtype)
                    total = b.Multiply(elements, weight) if total is None else b.Add(total, b.Multiply(elements, weight))
        assert total is not None
        return b.Divide(total, float(parts))


def _slice_part(b: Builder, x: Value, part: int, group: int, axis: int) -> Any:
    """Slice the bins of one part along axis 1, and insert an axis of size 1 at ``axis``."""
    return b.Unsqueeze(b.Slice(x, [part * group], [(part + 1) * group], [1]), [axis])


def flatten_bins(b: Builder, x: Value, channels: list[int], order: list[int]) -> Any:
    """Split the channel axis of ``x`` into ``channels``, transpose all axes to ``order``, and flatten all axes but the last."""
    cut = b.Reshape(x, join_sizes(b, [shape_value(b, x, [0]), channels, shape_value(b, x, [2, 3])]), special_zero=False)
    inner = channels[order[-1] - 1]
    return b.Reshape(b.Transpose(cut, order), [-1, inner], special_zero=False)


def bin_mask_of(b: Builder, positions: Value, length: Value) -> Any:
    """Return a mask [regions, bins, n], which is true for the first ``length`` of the n ``positions`` of a bin."""
    steps = b.Range(b.constant(0), b.Gather(b.Shape(positions), np.array(2), axis=0), b.constant(1))
    return b.Less(b.Cast(steps, to=length.dtype), b.Unsqueeze(length, [2]))


def bilinear_taps(b: Builder, position: Value, size: Value) -> list[tuple[Any, Any]]:
    """Return the indices (i64) of the two elements around ``position``, each with its weight.

    The weights are 0 for a position below 0, and for a position of at least ``size``.
    """
    last = b.Subtract(size, 1.0)
    inside = b.And(b.GreaterEqual(position, 0.0), b.Less(position, size))
    first = b.Minimum(b.Maximum(b.Floor(position), 0.0), last)
    fraction = b.Minimum(b.Subtract(position, first), 1.0)
    pairs = [(first, b.Subtract(1.0, fraction)), (b.Minimum(b.Add(first, 1.0), last), fraction)]
    return [(b.Cast(element, to=dtypes.i64), b.Where(inside, weight, 0.0)) for element, weight in pairs]


class DeformablePSROIPooling(
    _PositionSensitive,
    sig="x: F, rois: F, offsets?: F -> y: F",
    openvino=(
        "DeformablePSROIPooling-1(x, rois, offsets?; output_dim, group_size=1, spatial_scale, "
        "mode~{bilinear_deformable:bilinear_deformable}=bilinear_deformable, spatial_bins_x=1, spatial_bins_y=1, "
        "trans_std=1.0, part_size=1)"
    ),
):
    """DeformablePSROIPooling pools each region like PSROIPooling, at sample points that ``offsets`` move.

    Regions [image, x1, y1, x2, y2] are the rows of ``rois``; the output is [regions, output_dim, group_size, group_size].

    Both corners are rounded, 1 is added to the last corner, both are multiplied by ``spatial_scale``, and 0.5 is subtracted. A
    region is at least 0.1 high and wide. The bin at (row, column) of output channel c is the mean of ``spatial_bins_y`` by
    ``spatial_bins_x`` interpolated points of channel (c * group_size + row) * group_size + column of ``x``. The points are
    evenly spaced, the first one at the first corner of the bin. Points more than half an element outside of the image do not
    count.

    The output channels are divided into classes. ``offsets`` [regions, 2 * classes, part_size, part_size] holds for each class
    the shift of bins along x, then along y; the unit is the region's size times ``trans_std``.
    Source: OpenVINO DeformablePSROIPooling-1.
    """

    mode: str = "bilinear_deformable"
    spatial_bins_x: int = 1
    spatial_bins_y: int = 1
    trans_std: float = 1.0
    part_size: int = 1

    def validate(self) -> None:
        super().validate()
        if self.mode != "bilinear_deformable":
            raise RuleError("attribute.value", f"mode must be bilinear_deformable, got {self.mode!r}")
        if self.spatial_bins_x < 1 or self.spatial_bins_y < 1 or self.part_size < 1:
            raise RuleError(
                "attribute.range",
                f"spatial_bins_y, spatial_bins_x and part_size must be at least 1, got {self.spatial_bins_y}, "
                f"{self.spatial_bins_x} and {self.part_size}",
            )

    def shape(self, x: View, rois: View, offsets: View | None = None) -> Any:
        if offsets is not None and offsets.shape is not None:
            if len(offsets.shape) != 4:
                raise RuleError("shape.rank", f"offsets must have rank 4, got {len(offsets.shape)}")
            channels = offsets.shape[1]
            if isinstance(channels, int) and (channels < 2 or channels % 2 or self.output_dim % (channels // 2)):
                raise RuleError(
                    "shape.multiple",
                    f"output_dim ({self.output_dim}) must be a multiple of half the channels of offsets ({channels})",
                )
            if any(symbolic.equal(size, self.part_size) is False for size in offsets.shape[2:]):
                raise RuleError(
                    "shape.disagree",
                    f"offsets must have {self.part_size} parts per axis, got {offsets.shape[2]} by {offsets.shape[3]}",
                )
        return self.pooled_shape(x, rois, self.group_size**2)

    def decompose(self, b: Builder, x: Value, rois: Value, offsets: Value | None = None) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        classes = 1 if offsets is None else offsets.dims[1] // 2
        group = self.group_size
        flat = flatten_bins(b, x, [classes, self.output_dim // classes, group, group], [0, 1, 3, 4, 5, 6, 2])
        refuse_table((group, max(self.spatial_bins_y, self.spatial_bins_x)), 16, "the sample points of a DeformablePSROIPooling")
        part_of_bin = np.arange(group) * self.part_size // group
        taps, counts = [], []
        for axis, samples in ((2, self.spatial_bins_y), (3, self.spatial_bins_x)):
            low, high = (round_half_away(b, b.Gather(boxes, [position], axis=1)) for position in (4 - axis, 6 - axis))
            low = b.Subtract(b.Multiply(low, self.spatial_scale), 0.5)
            high = b.Subtract(b.Multiply(b.Add(high, 1.0), self.spatial_scale), 0.5)
            size = b.Unsqueeze(b.Maximum(b.Subtract(high, low), 0.1), [2, 3, 4, 5])
            steps = (np.arange(group)[:, None] + np.arange(samples) / samples) / group
            shape = (1, 1, group, 1, samples, 1) if axis == 2 else (1, 1, 1, group, 1, samples)
            position = b.Multiply(size, steps.reshape(shape).astype(boxes.dtype.numpy))
            position = b.Add(b.Unsqueeze(low, [2, 3, 4, 5]), position)
            if offsets is not None:
                shift = b.Gather(offsets, b.constant(np.arange(classes) * 2 + 3 - axis), axis=1)
                shift = b.Gather(b.Gather(shift, b.constant(part_of_bin), axis=2), b.constant(part_of_bin), axis=3)
                shift = b.Multiply(as_type(b, shift, boxes.dtype), self.trans_std)
                position = b.Add(position, b.Multiply(b.Unsqueeze(shift, [4, 5]), size))
            end = size_of(b, x, axis, boxes.dtype)
            counts.append(b.And(b.GreaterEqual(position, -0.5), b.LessEqual(position, b.Subtract(end, 0.5))))
            taps.append(bilinear_taps(b, b.Minimum(b.Maximum(position, 0.0), b.Subtract(end, 1.0)), end))
        inside = b.And(*counts)
        base = b.Unsqueeze(b.Cast(b.Gather(boxes, [0], axis=1), to=dtypes.i64), [2, 3, 4, 5])
        for axis, axis_size in ((1, classes), (2, group), (3, group)):
            steps = np.arange(axis_size).reshape([-1 if position == axis else 1 for position in range(6)])
            base = b.Add(b.Multiply(base, b.constant(axis_size)), b.constant(steps))
        total = None
        for row, height in taps[0]:
            line = b.Multiply(b.Add(b.Multiply(base, int_size_of(b, x, 2)), row), int_size_of(b, x, 3))
            for column, width in taps[1]:
                weight = b.Unsqueeze(b.Where(inside, b.Multiply(height, width), 0.0), [6])
                product = b.Multiply(as_type(b, b.Gather(flat, b.Add(line, column), axis=0), boxes.dtype), weight)
                total = product if total is None else b.Add(total, product)
        assert total is not None
        y = b.ReduceSum(total, [4, 5], keepdims=False)
        number = b.ReduceSum(b.Cast(inside, to=boxes.dtype), [4, 5], keepdims=False)
        y = b.Divide(y, b.Unsqueeze(b.Maximum(number, 1.0), [4]))
        shape = join_sizes(b, [shape_value(b, rois, [0]), self.output_dim, group, group])
        return as_type(b, b.Reshape(b.Transpose(y, [0, 1, 4, 2, 3]), shape, special_zero=False), x.dtype)
