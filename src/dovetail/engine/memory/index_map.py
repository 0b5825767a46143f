"""Affine maps between the elements of two tensors: the map of one window, and the union of the maps of several windows.

The *near* tensor may become a view of the *far* tensor. All indices are row-major.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from dovetail.engine.memory.affine_layout import Layout, common_refinement

Axis = tuple[int, int, int]
"""An axis of the box: its size, its stride in the near tensor and its stride in the far tensor."""

MAX_STARTS = 4
"""The maximum number of maps with the lowest near offset that :func:`unions` tries as the first map."""


class IndexMap(NamedTuple):
    """IndexMap maps ``near + sum(i * near stride)`` to ``far + sum(i * far stride)`` over a box of ``axes``.

    Near strides are positive and decreasing, and adjacent axes that form a single axis are merged. Equal maps therefore compare
    equal.
    """

    near: int
    far: int
    axes: tuple[Axis, ...]

    @property
    def elements(self) -> int:
        return prod(size for size, _, _ in self.axes)

    def inverse(self) -> IndexMap | None:
        """Return the map from far to near elements; None where a far element occurs more than once."""
        near = Layout(self.near, tuple((size, stride) for size, stride, _ in self.axes))
        return index_map(Layout(self.far, tuple((size, stride) for size, _, stride in self.axes)), near)


def index_map(near: Layout, far: Layout) -> IndexMap | None:
    """Return the map from each element of layout ``near`` to the element of layout ``far`` with the same index.

    None where the modes have no common refinement, or where an element of the near tensor occurs more than once.
    """
    refined = common_refinement(near.modes, far.modes)
    if refined is None:
        return None
    near_start, far_start, axes = reverse_axes(near.offset, far.offset, zip(*refined, strict=True))
    if any(near_stride == 0 for _, near_stride, _ in axes):
        return None
    return IndexMap(near_start, far_start, merge_axes(axes))


def reverse_axes(near: int, far: int, axes: Iterable[Axis]) -> tuple[int, int, list[Axis]]:
    """Reverse the axes with negative near strides; return the near offset, the far offset and the axes of the same map."""
    result = []
    for size, near_stride, far_stride in axes:
        if near_stride < 0:
            near += (size - 1) * near_stride
            far += (size - 1) * far_stride
            near_stride, far_stride = -near_stride, -far_stride
        result.append((size, near_stride, far_stride))
    return near, far, result


def whole_map(maps: Iterable[IndexMap], count: int) -> Layout | None:
    """Return a union of some maps as a layout of all ``count`` elements of the near tensor; None if no union covers them all."""
    return next((layout for layout in (layout_of(union, count) for union in unions(maps)) if layout is not None), None)


def unions(maps: Iterable[IndexMap]) -> Iterable[IndexMap]:
    """Yield candidates for the largest affine union of maps: one candidate for each choice of the first map."""
    ordered = sorted(set(maps))
    starts = [start for start in ordered[:MAX_STARTS] if start.near == ordered[0].near]
    for start in starts:
        joined = _union([start, *(other for other in ordered if other.near != start.near)])
        if joined is not None:
            yield joined


def layout_of(joined: IndexMap, count: int) -> Layout | None:
    """Return a map as a layout of the near tensor if the map covers all ``count`` elements of the tensor; else None."""
    stride = 1
    for size, near_stride, _ in reversed(joined.axes):
        if near_stride != stride:
            return None
        stride *= size
    if joined.near or stride != count:
        return None
    return Layout(joined.far, tuple((size, far_stride) for size, _, far_stride in joined.axes))


def _union(ordered: Sequence[IndexMap]) -> IndexMap | None:
    """Return the union of maps sorted by near offset, or None. Of maps with equal offsets, the first that joins is used."""
    stack: list[IndexMap] = []
    for number, current in enumerate(ordered):
        is_repeated = bool(number) and ordered[number - 1].near == current.near
        joined = _join(stack[-1], current) if stack else None
        if joined is None:
            if not is_repeated:
                stack.append(current)
            continue
        stack[-1] = joined
        while len(stack) > 1 and (joined := _join(stack[-2], stack[-1])) is not None:
            stack[-2:] = [joined]
    return stack[0] if len(stack) == 1 else None


def _join(first: IndexMap, second: IndexMap) -> IndexMap | None:
    """Return the union of two maps if ``second`` continues ``first`` along one axis. ``first`` has the lower near offset."""
    step = second.near - first.near, second.far - first.far
    if first.axes == second.axes:
        return IndexMap(first.near, first.far, merge_axes([(2, *step), *first.axes]))
    for axes, other, is_first in ((first.axes, second.axes, True), (second.axes, first.axes, False)):
        if len(axes) == len(other) + 1:
            # The map with fewer axes has a single element along one axis of the map with more axes.
            for place, (size, *strides) in enumerate(axes):
                reach = size if is_first else 1
                if step == (strides[0] * reach, strides[1] * reach) and axes[:place] + axes[place + 1 :] == other:
                    return _extend(first, axes, place, size + 1)
    if len(first.axes) == len(second.axes):
        different = [place for place, pair in enumerate(zip(first.axes, second.axes, strict=True)) if pair[0] != pair[1]]
        if len(different) == 1:
            (place,) = different
            (size, *strides), (other_size, *other_strides) = first.axes[place], second.axes[place]
            if strides == other_strides and step == (strides[0] * size, strides[1] * size):
                return _extend(first, first.axes, place, size + other_size)
    return None


def _extend(first: IndexMap, axes: tuple[Axis, ...], place: int, size: int) -> IndexMap:
    changed = (*axes[:place], (size, *axes[place][1:]), *axes[place + 1 :])
    return IndexMap(first.near, first.far, merge_axes(changed))


def merge_axes(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """Sort axes by decreasing near stride, drop axes of size 1, and merge adjacent axes that are one axis in both tensors."""
    merged: list[Axis] = []
    for size, near, far in sorted((axis for axis in axes if axis[0] != 1), key=lambda axis: -axis[1]):
        if merged and merged[-1][1:] == (near * size, far * size):
            merged[-1] = (merged[-1][0] * size, near, far)
        else:
            merged.append((size, near, far))
    return tuple(merged)


def extend_to(joined: IndexMap, count: int) -> Layout | None:
    """Return the affine map of all ``count`` elements of the near tensor that continues ``joined`` along its axes.

    None where the axes do not divide the tensor evenly, or where two elements would map to the same far element.
    """
    if not joined.axes or joined.axes[-1][1] != 1:
        return None
    outer = [count, *(near for _, near, _ in joined.axes)]
    start, rest = joined.far, joined.near
    modes = []
    for (high, near), (size, _, far) in zip(pairwise(outer), joined.axes, strict=True):
        digit, rest = divmod(rest, near)
        if high % near or digit + size > high // near:
            return None
        start -= digit * far
        modes.append((high // near, far))
    span = 1
    for stride, size in sorted((abs(stride), size) for size, stride in modes):
        if stride < span:
            return None
        span += (size - 1) * stride
    return Layout(start, tuple(modes))
