"""Boxes that are turned, of which those are kept that no better one overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import Type
from dovetail.ops.casts import as_type
from dovetail.ops.detection.nms import check_index_type, kept_types
from dovetail.ops.detection.nms_decomposition import greedily, share, told


class NMSRotated(
    Op,
    sig="boxes: F, scores: F, most: I1, overlap: F1, least: F2 -> indices: I, values: F, count: I",
    openvino=(
        "NMSRotated-13(boxes, scores, most, overlap, least; sort_result_descending:descending=true, output_type:dtype=i64, "
        "clockwise=true)"
    ),
):
    """NonMaxSuppression of boxes (x, y, width, height, angle): their middles, lengths, and by how much they are turned.

    ``boxes`` is [batches, n, 5], ``scores`` [batches, classes, n]. The angle is in radians, from the first axis to the second, or
    with ``clockwise`` false the other way. Of a class at most ``most`` boxes with a score above ``least`` are kept, without those
    that share with a better one more than ``overlap`` of the area that both cover. Results: [batch, class, box] and, in f32,
    [batch, class, score] for each, by batch, class and falling score or with ``descending`` all by falling score; and how many
    there are. All is computed in f32. Source: OpenVINO NMSRotated-13.
    """

    descending: bool = True
    dtype: DType = dtypes.i64
    clockwise: bool = True

    def validate(self) -> None:
        check_index_type(self.dtype)

    def types(self, boxes: Any, scores: Any, *limits: Any) -> list[Type]:
        return kept_types(self, 5, self.dtype, boxes, scores, *limits)

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("which boxes are kept")

    def vjp(self, b: Any, g: Any, y: Any, *xs: Any) -> Any:
        if g[1] is None:
            return [None] * len(xs)
        raise UnsupportedError("grad.op", "the scores of kept boxes have no gradient rule: gather them by the indices")

    def decompose(self, b: Any, boxes: Any, scores: Any, most: Any, overlap: Any, least: Any) -> Any:
        boxes, scores, overlap, least = (as_type(b, x, dtypes.f32) for x in (boxes, scores, overlap, least))
        middle, lengths, angle = (b.Slice(boxes, [first], [last], [2]) for first, last in ((0, 2), (2, 4), (4, 5)))
        angle = b.Squeeze(angle, [2])
        common = overlaps(b, middle, lengths, angle if self.clockwise else b.Negative(angle))
        areas = b.ReduceProd(lengths, [2], keepdims=False)
        both = share(b, common, b.Unsqueeze(areas, [2]), b.Unsqueeze(areas, [1]))
        dropped = b.Greater(both, b.Reshape(overlap, []))
        rows, values = greedily(b, scores, None, dropped, as_type(b, most, dtypes.i64), least)
        return told(b, rows, values, self.descending, self.dtype)


def overlaps(b: Any, middle: Any, lengths: Any, angle: Any) -> Any:
    """The area that each two rectangles have in common, [batches, n, n]: of ``middle`` and ``lengths`` [batches, n, 2], turned by
    ``angle`` [batches, n].

    The first is looked at from the second, whose sides are then along the axes. The area is the integral of x dy around the first
    with both kept within the second: each side is cut where it enters and leaves, and x is linear between the cuts.
    """
    half = b.Multiply(lengths, 0.5)
    width, height = (b.Squeeze(b.Slice(half, [place], [place + 1], [2]), [2]) for place in (0, 1))
    ours, theirs = ([b.Unsqueeze(x, [place]) for x in (width, height, angle)] for place in (2, 1))
    turn = b.Subtract(ours[2], theirs[2])
    cos, sin = b.Cos(turn), b.Sin(turn)
    along, across = (b.Multiply(ours[0], cos), b.Multiply(ours[0], sin)), (b.Multiply(ours[1], sin), b.Multiply(ours[1], cos))
    away = b.Subtract(b.Unsqueeze(middle, [2]), b.Unsqueeze(middle, [1]))
    place = _seen_from(b, away, theirs[2])
    reach = [b.Add(b.Abs(one), b.Abs(other)) for one, other in zip(along, across, strict=True)]
    x, y = (_corners(b, *each) for each in zip(place, along, (b.Negative(across[0]), across[1]), strict=True))
    area = _within(b, x, y, theirs[0], theirs[1])
    # Where a line can be drawn between the two, what is left of the sum is rounding.
    own = _seen_from(b, away, ours[2])
    back = [
        b.Add(b.Multiply(theirs[0], b.Abs(first)), b.Multiply(theirs[1], b.Abs(second)))
        for first, second in ((cos, sin), (sin, cos))
    ]
    pairs = [(place[k], b.Add(theirs[k], reach[k])) for k in (0, 1)] + [(own[k], b.Add(ours[k], back[k])) for k in (0, 1)]
    for distance, limit in pairs:
        area = b.Where(b.Less(b.Abs(distance), limit), area, 0.0)
    return b.Maximum(area, 0.0)


def _seen_from(b: Any, away: Any, angle: Any) -> list[Any]:
    """Both coordinates of ``away`` [..., 2] for one who is turned by ``angle``."""
    x, y = (b.Squeeze(b.Slice(away, [place], [place + 1], [3]), [3]) for place in (0, 1))
    cos, sin = b.Cos(angle), b.Sin(angle)
    return [b.Add(b.Multiply(x, cos), b.Multiply(y, sin)), b.Subtract(b.Multiply(y, cos), b.Multiply(x, sin))]


def _corners(b: Any, place: Any, along: Any, across: Any) -> Any:
    """One coordinate of the four corners, in turn, and of the first again: [..., 5]."""
    signs = np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]], np.float32)
    steps = [b.Multiply(b.Unsqueeze(x, [3]), sign) for x, sign in zip((along, across), signs, strict=True)]
    return b.Add(b.Unsqueeze(place, [3]), b.Add(*steps))


def _within(b: Any, x: Any, y: Any, width: Any, height: Any) -> Any:
    """The area that the polygon of the corners ``x``, ``y`` shares with all within ``width`` and ``height`` of the middle."""
    width, height = b.Unsqueeze(width, [3]), b.Unsqueeze(height, [3])
    starts = [b.Slice(each, [0], [4], [3]) for each in (x, y)]
    steps = [b.Subtract(b.Slice(each, [1], [5], [3]), start) for each, start in zip((x, y), starts, strict=True)]
    times = [b.constant(0.0), b.constant(1.0)]
    cuts = _cuts(b, starts[1], steps[1], height, *times)
    inner = _cuts(b, starts[0], steps[0], width, *cuts)
    times = [cuts[0], *inner, cuts[1]]
    xs = [_kept(b, b.Add(starts[0], b.Multiply(time, steps[0])), b.Negative(width), width) for time in times]
    parts = [
        b.Multiply(b.Subtract(after, before), b.Add(first, second))
        for before, after, first, second in zip(times, times[1:], xs, xs[1:], strict=False)
    ]
    total = b.Multiply(b.Add(b.Add(*parts[:2]), parts[2]), steps[1])
    return b.Multiply(b.ReduceSum(total, [3], keepdims=False), 0.5)


def _cuts(b: Any, start: Any, step: Any, limit: Any, first: Any, last: Any) -> list[Any]:
    """When ``start + t * step`` is at -limit and at limit, the earlier first, kept between ``first`` and ``last``."""
    step = b.Where(b.Equal(step, 0.0), 1.0, step)
    found = [b.Divide(b.Subtract(end, start), step) for end in (b.Negative(limit), limit)]
    return [_kept(b, pick(*found), first, last) for pick in (b.Minimum, b.Maximum)]


def _kept(b: Any, x: Any, low: Any, high: Any) -> Any:
    return b.Minimum(b.Maximum(x, low), high)


__all__ = ["NMSRotated"]
