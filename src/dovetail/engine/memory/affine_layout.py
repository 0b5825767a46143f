"""Where the elements of a tensor lie: affine maps from the row-major index of an element to its place, and their composition.

A :class:`Layout` is an offset and a list of modes ``(size, stride)``, outermost first. The row-major index of an element,
written in the mixed radix of the modes' sizes, gives one digit per mode; its place is ``offset + sum(digit * stride)``. Units are
elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

Mode = tuple[int, int]


class Layout(NamedTuple):
    """An affine map from row-major indices to places, in elements."""

    offset: int
    modes: tuple[Mode, ...]

    @property
    def elements(self) -> int:
        return prod(size for size, _ in self.modes)


def dense(count: int) -> Layout:
    """Elements end to end."""
    return Layout(0, ((count, 1),)) if count != 1 else Layout(0, ())


def strided(shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Layout:
    """One mode per axis, those that belong together joined."""
    return Layout(offset, _joined(zip(shape, strides, strict=True)))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense row-major tensor."""
    return ordered(shape, range(len(shape)))


def ordered(shape: Sequence[int], order: Iterable[int]) -> tuple[int, ...]:
    """The strides of a dense tensor whose axes lie in ``order``, the outermost first."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(tuple(order)):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def compose(layout: Layout, offset: int, axes: Iterable[Mode]) -> Layout | None:
    """The layout that reads ``layout`` at the indices ``offset + sum(i * stride)`` over a box of ``axes`` (size, stride).

    None where that is no affine map: where a step along an axis would carry from one mode into the next unevenly.
    """
    modes = layout.modes
    digits, radices = _digits(modes, offset)
    low, high = [0] * len(modes), [0] * len(modes)
    found: list[Mode] = []
    for size, stride in axes:
        if size == 1:
            continue
        if stride == 0:
            found.append((size, 0))
            continue
        parts = _parts(modes, radices, size, abs(stride))
        if parts is None:
            return None
        sign = 1 if stride > 0 else -1
        for count, step, place in reversed(parts):
            found.append((count, sign * step * modes[place][1]))
            reach = (count - 1) * step
            if sign > 0:
                high[place] += reach
            else:
                low[place] += reach
    for (size, _), digit, below, above in zip(modes, digits, low, high, strict=True):
        if digit < below or digit + above >= size:
            return None
    start = layout.offset + sum(digit * stride for digit, (_, stride) in zip(digits, modes, strict=True))
    return Layout(start, _joined(found))


def inverse(layout: Layout) -> Layout | None:
    """The map from places back to row-major indices, where the layout fills [0, count) exactly once; else None."""
    if layout.offset:
        return None
    radices = []
    radix = 1
    for size, _ in reversed(layout.modes):
        radices.append(radix)
        radix *= size
    rows = sorted(
        ((stride, size, index) for (size, stride), index in zip(layout.modes, reversed(radices), strict=True)), reverse=True
    )
    expected = 1
    for stride, size, _ in reversed(rows):
        if stride != expected:
            return None
        expected *= size
    return Layout(0, _joined((size, index) for _, size, index in rows))


def strides_of(layout: Layout, shape: Sequence[int]) -> tuple[int, ...] | None:
    """One stride per axis of ``shape``, or None where an axis does not lie evenly. The stride of an axis of size 1 is 0."""
    waiting = list(layout.modes)
    strides = [0] * len(shape)
    for axis in range(len(shape) - 1, -1, -1):
        size = shape[axis]
        if size == 1:
            continue
        have, step = waiting.pop()
        if have % size:
            return None
        strides[axis] = step
        if have != size:
            waiting.append((have // size, step * size))
    return tuple(strides)


def _digits(modes: Sequence[Mode], index: int) -> tuple[list[int], list[int]]:
    """The digits of an index, and what one step of each is worth."""
    digits, radices = [0] * len(modes), [0] * len(modes)
    radix = 1
    for place in range(len(modes) - 1, -1, -1):
        size = modes[place][0]
        radices[place] = radix
        index, digits[place] = divmod(index, size)
        radix *= size
    return digits, radices


def _parts(modes: Sequence[Mode], radices: Sequence[int], size: int, stride: int) -> list[tuple[int, int, int]] | None:
    """An axis as (count, digits per step, mode), innermost first."""
    place = len(modes) - 1
    while place >= 0 and stride >= radices[place] * modes[place][0]:
        place -= 1
    parts = []
    while size > 1:
        if place < 0 or stride % radices[place]:
            return None
        step, width = stride // radices[place], modes[place][0]
        if (size - 1) * step < width:
            parts.append((size, step, place))
            break
        count = width // step
        if width % step or size % count:
            return None
        if count > 1:
            parts.append((count, step, place))
        size //= count
        stride = radices[place] * width
        place -= 1
    return parts


def _joined(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    found: list[Mode] = []
    for size, stride in modes:
        if size == 1:
            continue
        if found and found[-1][1] == stride * size:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)
