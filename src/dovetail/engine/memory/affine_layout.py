"""Affine layouts: maps from the row-major index of a tensor's element to its offset in memory, and their composition.

A :class:`Layout` is an offset and a list of modes ``(size, stride)``, outermost first. The row-major index of an element, written
in the mixed radix of the modes' sizes, gives one digit per mode; the element's offset is ``offset + sum(digit * stride)``. Units
are elements. Modes and composition are those of CuTe's layout algebra, with strides of any sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

Mode = tuple[int, int]


class Layout(NamedTuple):
    """Layout is an affine map from row-major element indices to memory offsets, in elements."""

    offset: int
    modes: tuple[Mode, ...]

    @property
    def elements(self) -> int:
        return prod(size for size, _ in self.modes)


def dense_layout(count: int) -> Layout:
    """Return the layout of ``count`` contiguous elements."""
    return Layout(0, ((count, 1),)) if count != 1 else Layout(0, ())


def strided_layout(shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Layout:
    """Return the layout of a strided tensor: one mode per axis, adjacent contiguous axes merged."""
    return Layout(offset, _merge_modes(zip(shape, strides, strict=True)))


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    return permuted_strides(shape, range(len(shape)))


def permuted_strides(shape: Sequence[int], order: Iterable[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose axes are stored in ``order``, the outermost first."""
    strides = [0] * len(shape)
    stride = 1
    for axis in reversed(tuple(order)):
        strides[axis] = stride
        stride *= shape[axis]
    return tuple(strides)


def compose(layout: Layout, offset: int, axes: Iterable[Mode]) -> Layout | None:
    """Return the layout that reads ``layout`` at the indices ``offset + sum(i * stride)`` over a box of ``axes`` (size, stride).

    None where the composition is not affine: a step along an axis would carry unevenly from one mode into the next.
    """
    modes = layout.modes
    if len(modes) == 1:
        return _compose_one_mode(layout, offset, axes)
    digits, radices = _digits_of(modes, offset)
    low, high = [0] * len(modes), [0] * len(modes)
    composed: list[Mode] = []
    for size, stride in axes:
        if size == 1:
            continue
        if stride == 0:
            composed.append((size, 0))
            continue
        parts = _split_axis(modes, radices, size, abs(stride))
        if parts is None:
            return None
        sign = 1 if stride > 0 else -1
        for count, step, mode in reversed(parts):
            composed.append((count, sign * step * modes[mode][1]))
            reach = (count - 1) * step
            if sign > 0:
                high[mode] += reach
            else:
                low[mode] += reach
    for (size, _), digit, below, above in zip(modes, digits, low, high, strict=True):
        if digit < below or digit + above >= size:
            return None
    start = layout.offset + sum(digit * stride for digit, (_, stride) in zip(digits, modes, strict=True))
    return Layout(start, _merge_modes(composed))


def _compose_one_mode(layout: Layout, offset: int, axes: Iterable[Mode]) -> Layout | None:
    """Return the composition with a layout of one mode; None where the indices leave that mode."""
    ((width, unit),) = layout.modes
    low = high = offset % width
    composed: list[Mode] = []
    for size, stride in axes:
        if size == 1 or (not size and stride):
            continue
        reach = (size - 1) * stride
        if not -width < reach < width:
            return None
        if reach > 0:
            high += reach
        else:
            low += reach
        step = stride * unit
        if composed and composed[-1][1] == step * size:
            composed[-1] = (composed[-1][0] * size, step)
        else:
            composed.append((size, step))
    if low < 0 or high >= width:
        return None
    return Layout(layout.offset + offset % width * unit, tuple(composed))


def invert(layout: Layout) -> Layout | None:
    """Return the map from offsets to row-major indices if the layout covers [0, count) exactly once; else None."""
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
    return Layout(0, _merge_modes((size, index) for _, size, index in rows))


def strides_of(layout: Layout, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return one stride per axis of ``shape``, or None where no single stride describes an axis.

    An axis of size 1 has stride 0.
    """
    modes = list(layout.modes)
    strides = [0] * len(shape)
    for axis in range(len(shape) - 1, -1, -1):
        size = shape[axis]
        if size == 1:
            continue
        mode_size, stride = modes.pop()
        if mode_size % size:
            return None
        strides[axis] = stride
        if mode_size != size:
            modes.append((mode_size // size, stride * size))
    return tuple(strides)


def common_refinement(first: Sequence[Mode], second: Sequence[Mode]) -> tuple[tuple[int, ...], ...] | None:
    """Return sizes into which the modes of both lists split, and each list's strides for these sizes; None without such sizes."""
    first_modes, second_modes = list(first), list(second)
    rows: list[tuple[int, int, int]] = []
    while first_modes:
        (size, stride), (other_size, other_stride) = first_modes.pop(), second_modes.pop()
        count = min(size, other_size)
        if size % count or other_size % count:
            return None
        rows.append((count, stride, other_stride))
        if size > count:
            first_modes.append((size // count, stride * count))
        if other_size > count:
            second_modes.append((other_size // count, other_stride * count))
    rows.reverse()
    return tuple(row[0] for row in rows), tuple(row[1] for row in rows), tuple(row[2] for row in rows)


def _digits_of(modes: Sequence[Mode], index: int) -> tuple[list[int], list[int]]:
    """Return the mixed-radix digits of an index, and the radix weight of each."""
    digits, radices = [0] * len(modes), [0] * len(modes)
    radix = 1
    for mode in range(len(modes) - 1, -1, -1):
        size = modes[mode][0]
        radices[mode] = radix
        index, digits[mode] = divmod(index, size)
        radix *= size
    return digits, radices


def _split_axis(modes: Sequence[Mode], radices: Sequence[int], size: int, stride: int) -> list[tuple[int, int, int]] | None:
    """Split an axis at mode boundaries; return (count, step in digits, mode) of each part, innermost first, or None."""
    mode = len(modes) - 1
    while mode >= 0 and stride >= radices[mode] * modes[mode][0]:
        mode -= 1
    parts = []
    while size > 1:
        if mode < 0 or stride % radices[mode]:
            return None
        step, width = stride // radices[mode], modes[mode][0]
        if (size - 1) * step < width:
            parts.append((size, step, mode))
            break
        count = width // step
        if width % step or size % count:
            return None
        if count > 1:
            parts.append((count, step, mode))
        size //= count
        stride = radices[mode] * width
        mode -= 1
    return parts


def _merge_modes(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    """Drop modes of one element, and merge adjacent contiguous modes."""
    merged: list[Mode] = []
    for size, stride in modes:
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tuple(merged)
