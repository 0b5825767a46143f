"""Bilinear pooling of regions of interest: RoiAlign and RoiAlignRotated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.detection.roi_pool import int_size_of
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MODES = ("avg", "max", "max_product")
_ALIGNED_OFFSETS = {"asymmetric": (0.0, 0.0), "half_pixel_for_nn": (0.0, -0.5), "half_pixel": (0.5, -0.5)}
"""Offsets added to the coordinates of corners before and after scaling, by ``aligned_mode``."""
_IN_ONNX = "mode~{avg:avg,max:max_product}=avg"
_SHARED_ONNX = "output_height=1, output_width=1, sampling_ratio=0, spatial_scale=1.0"
_SHARED_IR = "pooled_h:output_height, pooled_w:output_width, sampling_ratio, spatial_scale"
_IN_IR = f"{_SHARED_IR}, mode~{{avg:avg,max:max}}"


class _RoiAlignBase(Op):
    """_RoiAlignBase samples and pools ``output_height`` by ``output_width`` bins for each region and channel.

    Each bin reads a grid of ``sampling_ratio`` by ``sampling_ratio`` points by bilinear interpolation. If
    ``sampling_ratio`` is 0, the grid has ceil(bin height) by ceil(bin width) points. A point more than one element outside of
    the image has the value 0. Any other point beyond the center of an outermost element reads this element.
    """

    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0

    def validate(self) -> None:
        if self.output_height < 1 or self.output_width < 1:
            raise RuleError(
                "attribute.range",
                f"output_height and output_width must be at least 1, got {self.output_height} and {self.output_width}",
            )
        if self.sampling_ratio < 0:
            raise RuleError("attribute.range", f"sampling_ratio must not be negative, got {self.sampling_ratio}")

    def pooled_shape_of(self, x: View, rois: View, batch_indices: View, numbers: int) -> Any:
        """Check the input shapes (``rois`` must have ``numbers`` columns), and return the output shape."""
        for view, rank, name in ((x, 4, "x"), (rois, 2, "rois"), (batch_indices, 1, "batch_indices")):
            if view.shape is not None and len(view.shape) != rank:
                raise RuleError("shape.rank", f"{name} must have rank {rank}, got {len(view.shape)}")
        if rois.shape is not None and symbolic.equal(rois.shape[1], numbers) is False:
            raise RuleError("shape.disagree", f"a row of rois must have {numbers} numbers, got {rois.shape[1]}")
        counts = [view.shape[0] for view in (rois, batch_indices) if view.shape is not None]
        count = counts[0] if counts else None
        if len(counts) == 2:
            count = agree(counts[0], counts[1], ("rois", 0), ("batch_indices", 0))
        return (count, None if x.shape is None else x.shape[1], self.output_height, self.output_width)

    def make_grid(self, b: Builder, first: Value, size: Value, count: int) -> _SampleGrid:
        """Make the sample points along one axis of regions that begin at ``first`` and are ``size`` long, both [regions, 1]."""
        wide = first.dtype
        bin_size = b.Divide(size, float(count))
        refuse_table((count, self.sampling_ratio or 1), 24, "the sample points of a region")
        bins = np.arange(count).reshape(-1, 1)
        if self.sampling_ratio:
            steps = b.constant((bins + (np.arange(self.sampling_ratio) + 0.5) / self.sampling_ratio).astype(wide.numpy), wide)
            number, inside = b.constant(np.full((1, 1), self.sampling_ratio, wide.numpy), wide), None
        else:
            number = b.Maximum(b.Ceil(bin_size), 0.0)
            max_count = b.ReduceMax(b.Concat(number, b.constant(np.ones((1, 1), wide.numpy), wide), axis=0), keepdims=False)
            sample = b.Cast(b.Range(b.constant(0), b.Cast(max_count, to=dtypes.i64), b.constant(1)), to=wide)
            position = b.Divide(b.Add(sample, 0.5), b.Maximum(number, 1.0))
            steps = b.Add(b.constant(bins.astype(wide.numpy), wide), b.Unsqueeze(position, [1]))
            inside = b.Unsqueeze(b.Less(sample, number), [1])
        return _SampleGrid(b.Add(b.Unsqueeze(first, [2]), b.Multiply(b.Unsqueeze(bin_size, [2]), steps)), number, inside)


class _SampleGrid:
    """_SampleGrid holds the sample points of one axis.

    ``positions`` is [regions, bins, samples], and ``number`` [regions, 1] is the number of samples per bin. ``inside`` is the
    mask of the samples to pool; None means all samples.
    """

    def __init__(self, positions: Value, number: Value, inside: Value | None) -> None:
        self.positions, self.number, self.inside = positions, number, inside

    def unsqueeze(self, b: Builder, axes: list[int]) -> tuple[Any, Any]:
        """Return the positions and the mask with additional axes."""
        return b.Unsqueeze(self.positions, axes), None if self.inside is None else b.Unsqueeze(self.inside, axes)


class RoiAlign(
    _RoiAlignBase,
    sig="x: F, rois: F, batch_indices: I -> y: F",
    onnx=(
        f"RoiAlign-10(x, rois, batch_indices; {_IN_ONNX}, {_SHARED_ONNX} | aligned_mode=asymmetric)",
        f"RoiAlign-16,22(x, rois, batch_indices; {_IN_ONNX}, {_SHARED_ONNX}, "
        "coordinate_transformation_mode~{half_pixel:half_pixel_for_nn,output_half_pixel:asymmetric}:aligned_mode=half_pixel)",
    ),
    openvino=(
        f"ROIAlign-3(x, rois, batch_indices; {_IN_IR} | aligned_mode=asymmetric)",
        f"ROIAlign-9(x, rois, batch_indices; {_IN_IR}, aligned_mode=asymmetric)",
    ),
):
    """RoiAlign pools each region of interest by bilinear sampling: [regions, channels, output_height, output_width].

    Row i of ``rois`` is [x1, y1, x2, y2] in image ``batch_indices[i]`` of ``x``. Corners are multiplied by ``spatial_scale``.
    The ``aligned_mode`` ``asymmetric`` adds no offset, and a region is at least one element high and wide;
    ``half_pixel_for_nn`` subtracts 0.5 after scaling; ``half_pixel`` adds 0.5 before and subtracts 0.5 after scaling.

    Each bin reads a grid of ``sampling_ratio`` by ``sampling_ratio`` points by bilinear interpolation of four elements; with 0,
    the numbers of points are the bin's height and width, rounded up. A point more than one element outside of the image counts
    as 0. Any other point beyond the center of an outermost element reads this element. The ``mode`` ``avg`` returns the mean of
    the points, ``max`` the maximum of the points and 0. ``max_product`` returns the maximum of the products of one element and
    its weight. A bin without points is 0.
    Sources: ONNX RoiAlign 10 to 22 and its reference evaluator (for ``max_product``); OpenVINO ROIAlign-3, -9.
    """

    mode: str = "avg"
    aligned_mode: str = "half_pixel_for_nn"

    def validate(self) -> None:
        super().validate()
        for word, known in ((self.mode, MODES), (self.aligned_mode, tuple(_ALIGNED_OFFSETS))):
            if word not in known:
                raise RuleError(
                    "attribute.value",
                    f"{'mode' if known is MODES else 'aligned_mode'} must be one of {', '.join(known)}, got {word!r}",
                )

    def shape(self, x: View, rois: View, batch_indices: View) -> Any:
        return self.pooled_shape_of(x, rois, batch_indices, 4)

    def decompose(self, b: Builder, x: Value, rois: Value, batch_indices: Value) -> Any:
        before, after = _ALIGNED_OFFSETS[self.aligned_mode]
        corners = as_type(b, rois, wide_type(x.dtype))
        corners = b.Multiply(b.Add(corners, before) if before else corners, self.spatial_scale)
        corners = b.Add(corners, after) if after else corners
        grids = []
        for axis, count in ((1, self.output_height), (0, self.output_width)):
            first, last = (b.Gather(corners, [column], axis=1) for column in (axis, axis + 2))
            size = b.Subtract(last, first)
            grids.append(self.make_grid(b, first, b.Maximum(size, 1.0) if self.aligned_mode == "asymmetric" else size, count))
        (rows, rows_count), (columns, columns_count) = grids[0].unsqueeze(b, [3, 4]), grids[1].unsqueeze(b, [1, 2])
        return _pool_samples(b, x, batch_indices, (rows, columns), (rows_count, columns_count), (grids[0], grids[1]), self.mode)


class RoiAlignRotated(
    _RoiAlignBase,
    sig="x: F, rois: F, batch_indices: I -> y: F",
    openvino=f"ROIAlignRotated-15(x, rois, batch_indices; {_SHARED_IR}, clockwise_mode)",
):
    """RoiAlignRotated pools rotated regions of interest: rows [center x, center y, width, height, angle] of ``rois``.

    The angle is in radians, from the x axis towards the y axis if ``clockwise_mode``, else in the opposite direction. All
    numbers except the angle are multiplied by ``spatial_scale``, and 0.5 is subtracted from the center. Sampling and pooling
    are those of RoiAlign with mode ``avg``.
    Source: OpenVINO ROIAlignRotated-15.
    """

    clockwise_mode: bool = False

    def shape(self, x: View, rois: View, batch_indices: View) -> Any:
        return self.pooled_shape_of(x, rois, batch_indices, 5)

    def decompose(self, b: Builder, x: Value, rois: Value, batch_indices: Value) -> Any:
        boxes = as_type(b, rois, wide_type(x.dtype))
        scaled, angle = b.Multiply(b.Slice(boxes, [0], [4], [1]), self.spatial_scale), b.Gather(boxes, [4], axis=1)
        grids = []
        for axis, count in ((3, self.output_height), (2, self.output_width)):
            size = b.Gather(scaled, [axis], axis=1)
            grids.append(self.make_grid(b, b.Multiply(size, -0.5), size, count))
        (rows, rows_count), (columns, columns_count) = grids[0].unsqueeze(b, [3, 4]), grids[1].unsqueeze(b, [1, 2])
        angle = b.Unsqueeze(b.Negative(angle) if self.clockwise_mode else angle, [2, 3, 4])
        sine, cosine = b.Sin(angle), b.Cos(angle)
        row, column = (b.Unsqueeze(b.Subtract(b.Gather(scaled, [axis], axis=1), 0.5), [2, 3, 4]) for axis in (1, 0))
        positions = (
            b.Add(b.Subtract(b.Multiply(rows, cosine), b.Multiply(columns, sine)), row),
            b.Add(b.Add(b.Multiply(rows, sine), b.Multiply(columns, cosine)), column),
        )
        return _pool_samples(b, x, batch_indices, positions, (rows_count, columns_count), (grids[0], grids[1]), "avg")


def _pool_samples(
    b: Builder,
    x: Value,
    batch_indices: Value,
    positions: tuple[Value, Value],
    counted: tuple[Value | None, Value | None],
    grids: tuple[_SampleGrid, _SampleGrid],
    mode: str,
) -> Any:
    """Read ``x`` at ``positions`` along rows and columns, and pool the samples: [regions, channels, rows, columns].

    Positions broadcast to [regions, rows, samples, columns, samples]; the result has the type of ``x``.
    """
    wide = positions[0].dtype
    rows, columns = (
        _bilinear_taps(b, position, size_of(b, x, axis, wide)) for axis, position in ((2, positions[0]), (3, positions[1]))
    )
    inside = b.And(rows[0], columns[0])
    is_counted = _and_optional(b, *counted)
    if is_counted is not None:
        inside = b.And(inside, is_counted)
    images = b.Unsqueeze(as_type(b, batch_indices, dtypes.i64), [1, 2, 3, 4])
    flat = b.Reshape(b.Transpose(x, [0, 2, 3, 1]), join_sizes(b, [-1, shape_value(b, x, [1])]), special_zero=False)
    total = None
    for row, height in rows[1]:
        line = b.Add(b.Multiply(images, int_size_of(b, x, 2)), b.Cast(row, to=dtypes.i64))
        for column, width in columns[1]:
            index = b.Add(b.Multiply(line, int_size_of(b, x, 3)), b.Cast(column, to=dtypes.i64))
            weight = b.Unsqueeze(b.Where(inside, b.Multiply(height, width), 0.0), [5])
            product = b.Multiply(as_type(b, b.Gather(flat, index, axis=0), wide), weight)
            # Products are accumulated one at a time: each is as large as all sample points of all regions.
            total = product if total is None else (b.Maximum if mode == "max_product" else b.Add)(total, product)
    assert total is not None
    number = b.Unsqueeze(b.Multiply(grids[0].number, grids[1].number), [2, 3])
    if mode == "max_product":
        if is_counted is not None:
            total = b.Where(b.Unsqueeze(is_counted, [5]), total, b.constant(np.array(-np.inf, wide.numpy), wide))
        y = b.ReduceMax(total, [2, 4], keepdims=False)
        y = y if is_counted is None else b.Where(b.Greater(number, 0.0), y, 0.0)
    elif mode == "avg":
        y = b.Divide(b.ReduceSum(total, [2, 4], keepdims=False), b.Maximum(number, 1.0))
    else:
        y = b.Maximum(b.ReduceMax(total, [2, 4], keepdims=False), 0.0)
    return as_type(b, b.Transpose(y, [0, 3, 1, 2]), x.dtype)


def _and_optional(b: Builder, first: Value | None, second: Value | None) -> Any:
    return second if first is None else first if second is None else b.And(first, second)


def _bilinear_taps(b: Builder, position: Value, size: Value) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return a mask of the positions inside of the image, and pairs of an adjacent element's index and the element's weight."""
    last = b.Subtract(size, 1.0)
    is_inside = b.And(b.GreaterEqual(position, -1.0), b.LessEqual(position, size))
    position = b.Minimum(b.Maximum(position, 0.0), last)
    first = b.Floor(position)
    fraction = b.Subtract(position, first)
    return is_inside, [(first, b.Subtract(1.0, fraction)), (b.Minimum(b.Add(first, 1.0), last), fraction)]
