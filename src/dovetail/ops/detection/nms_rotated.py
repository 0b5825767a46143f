"""Non-maximum suppression of rotated boxes: NMSRotated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import Type, View
from dovetail.ops.casts import as_type
from dovetail.ops.detection.nms import check_index_type, nms_output_types
from dovetail.ops.detection.nms_decomposition import build_outputs, iou_of, select_boxes_in_loop

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class NMSRotated(
    Op,
    sig="boxes: F, scores: F, max_output_boxes_per_class: I1, iou_threshold: F1, score_threshold: F2 "
    "-> selected_indices: I, selected_scores: F, valid_outputs: I",
    openvino=(
        "NMSRotated-13(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold; sort_result_descending=true, "
        "output_type=i64, clockwise=true)"
    ),
):
    """NMSRotated applies non-maximum suppression to rotated boxes (x, y, width, height, angle), with x and y the center.

    ``boxes`` is [batches, n, 5], ``scores`` [batches, classes, n]. The angle is in radians, from the x axis to the y axis; with
    ``clockwise`` false, in the opposite direction. At most ``max_output_boxes_per_class`` boxes of each class with a score
    above ``score_threshold`` are selected. A box is dropped where its IoU with a selected box exceeds ``iou_threshold``.
    Outputs are rows [batch, class, box]; rows [batch, class, score] in f32; and the number of rows. Rows are sorted by batch,
    class and descending score; with ``sort_result_descending``, by descending score only. The computation runs in f32.
    Source: OpenVINO NMSRotated-13.
    """

    selects_by_score = True

    sizes_depend_on_data = True

    sort_result_descending: bool = True
    output_type: DType = dtypes.i64
    clockwise: bool = True

    def validate(self) -> None:
        check_index_type(self.output_type)

    def types(self, boxes: View, scores: View, *limits: View | None) -> list[Type]:
        return nms_output_types(self, 5, self.output_type, boxes, scores, *limits)

    def value(self, *xs: View | None) -> Any:
        raise symbolic.Inexact("the selected boxes")

    def vjp(self, b: Builder, g: tuple[Value | None, ...], y: Value | tuple[Value, ...], *xs: Value | None) -> Any:
        if g[1] is None:
            return [None] * len(xs)
        raise UnsupportedError("grad.op", "selected_scores have no gradient: gather the scores by selected_indices")

    def decompose(
        self,
        b: Builder,
        boxes: Value,
        scores: Value,
        max_output_boxes_per_class: Value,
        iou_threshold: Value,
        score_threshold: Value,
    ) -> Any:
        boxes, scores, iou_threshold, score_threshold = (
            as_type(b, x, dtypes.f32) for x in (boxes, scores, iou_threshold, score_threshold)
        )
        center, sizes, angle = (b.Slice(boxes, [first], [last], [2]) for first, last in ((0, 2), (2, 4), (4, 5)))
        angle = b.Squeeze(angle, [2])
        intersection = intersection_areas_of(b, center, sizes, angle if self.clockwise else b.Negative(angle))
        areas = b.ReduceProd(sizes, [2], keepdims=False)
        iou = iou_of(b, intersection, b.Unsqueeze(areas, [2]), b.Unsqueeze(areas, [1]))
        dropped = b.Greater(iou, b.Reshape(iou_threshold, []))
        rows, values = select_boxes_in_loop(
            b, scores, None, dropped, as_type(b, max_output_boxes_per_class, dtypes.i64), score_threshold
        )
        return build_outputs(b, rows, values, self.sort_result_descending, self.output_type)


def intersection_areas_of(b: Builder, center: Value, sizes: Value, angle: Value) -> Any:
    """Return the intersection area of each pair of rectangles, [batches, n, n].

    ``center`` and ``sizes`` are [batches, n, 2], ``angle`` is [batches, n]. The first rectangle is rotated into a frame in
    which the sides of the second rectangle are along the axes. The area is the integral of x dy around the first rectangle,
    with x and y clamped to the second rectangle. For the integral, each side is cut where it enters and where it leaves the
    second rectangle; x is linear between the cuts.
    """
    half = b.Multiply(sizes, 0.5)
    width, height = (b.Squeeze(b.Slice(half, [offset], [offset + 1], [2]), [2]) for offset in (0, 1))
    ours, theirs = ([b.Unsqueeze(x, [offset]) for x in (width, height, angle)] for offset in (2, 1))
    relative_angle = b.Subtract(ours[2], theirs[2])
    cos, sin = b.Cos(relative_angle), b.Sin(relative_angle)
    along, across = (b.Multiply(ours[0], cos), b.Multiply(ours[0], sin)), (b.Multiply(ours[1], sin), b.Multiply(ours[1], cos))
    distance = b.Subtract(b.Unsqueeze(center, [2]), b.Unsqueeze(center, [1]))
    offset = _rotate_into(b, distance, theirs[2])
    reach = [b.Add(b.Abs(one), b.Abs(other)) for one, other in zip(along, across, strict=True)]
    x, y = (
        _corner_coordinates(b, *coordinates)
        for coordinates in zip(offset, along, (b.Negative(across[0]), across[1]), strict=True)
    )
    area = _clipped_area_of(b, x, y, theirs[0], theirs[1])
    # Rectangles that an axis separates have an intersection area of 0, where the computed sum has a rounding error.
    reverse_offset = _rotate_into(b, distance, ours[2])
    reverse_reach = [
        b.Add(b.Multiply(theirs[0], b.Abs(first)), b.Multiply(theirs[1], b.Abs(second)))
        for first, second in ((cos, sin), (sin, cos))
    ]
    pairs = [(offset[k], b.Add(theirs[k], reach[k])) for k in (0, 1)] + [
        (reverse_offset[k], b.Add(ours[k], reverse_reach[k])) for k in (0, 1)
    ]
    for component, limit in pairs:
        area = b.Where(b.Less(b.Abs(component), limit), area, 0.0)
    return b.Maximum(area, 0.0)


def _rotate_into(b: Builder, vector: Value, angle: Value) -> list[Any]:
    """Return both coordinates of ``vector`` [..., 2] in a frame that is rotated by ``angle``."""
    x, y = (b.Squeeze(b.Slice(vector, [axis], [axis + 1], [3]), [3]) for axis in (0, 1))
    cos, sin = b.Cos(angle), b.Sin(angle)
    return [b.Add(b.Multiply(x, cos), b.Multiply(y, sin)), b.Subtract(b.Multiply(y, cos), b.Multiply(x, sin))]


def _corner_coordinates(b: Builder, center: Value, along: Value, across: Value) -> Any:
    """Return one coordinate of the four corners in order, and of the first corner again: [..., 5]."""
    signs = np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]], np.float32)
    steps = [b.Multiply(b.Unsqueeze(x, [3]), sign) for x, sign in zip((along, across), signs, strict=True)]
    return b.Add(b.Unsqueeze(center, [3]), b.Add(*steps))


def _clipped_area_of(b: Builder, x: Value, y: Value, width: Value, height: Value) -> Any:
    """Return the area of the polygon of the corners ``x``, ``y`` inside [-width, width] x [-height, height]."""
    width, height = b.Unsqueeze(width, [3]), b.Unsqueeze(height, [3])
    starts = [b.Slice(coordinate, [0], [4], [3]) for coordinate in (x, y)]
    steps = [b.Subtract(b.Slice(coordinate, [1], [5], [3]), start) for coordinate, start in zip((x, y), starts, strict=True)]
    parameters = [b.constant(0.0), b.constant(1.0)]
    y_cuts = _clip_parameters(b, starts[1], steps[1], height, *parameters)
    x_cuts = _clip_parameters(b, starts[0], steps[0], width, *y_cuts)
    parameters = [y_cuts[0], *x_cuts, y_cuts[1]]
    xs = [_clamp(b, b.Add(starts[0], b.Multiply(parameter, steps[0])), b.Negative(width), width) for parameter in parameters]
    parts = [
        b.Multiply(b.Subtract(after, before), b.Add(first, second))
        for before, after, first, second in zip(parameters, parameters[1:], xs, xs[1:], strict=False)
    ]
    total = b.Multiply(b.Add(b.Add(*parts[:2]), parts[2]), steps[1])
    return b.Multiply(b.ReduceSum(total, [3], keepdims=False), 0.5)


def _clip_parameters(b: Builder, start: Value, step: Value, limit: Value, first: Value, last: Value) -> list[Any]:
    """Return the parameters t, in order, at which ``start + t * step`` is -limit and limit, clamped to [first, last]."""
    step = b.Where(b.Equal(step, 0.0), 1.0, step)
    crossings = [b.Divide(b.Subtract(end, start), step) for end in (b.Negative(limit), limit)]
    return [_clamp(b, pick(*crossings), first, last) for pick in (b.Minimum, b.Maximum)]


def _clamp(b: Builder, x: Value, low: Value, high: Value) -> Any:
    return b.Minimum(b.Maximum(x, low), high)
