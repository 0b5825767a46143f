"""Strided reads: the choice of the file ranges to read for a block, and the position of its elements in the buffer.

The inner axes of a block are read as one run, including the gaps between their elements; each position of the outer axes is a
separate read. The number of inner axes is the cheapest number, by the costs below, for which the runs fit into the buffer.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

SECONDS_PER_READ = 4e-6
SECONDS_PER_BYTE = 3e-10
MAX_READS = 1 << 16
"""The maximum number of reads of one tile, whose offsets are a Python tuple."""


class StridedRead(NamedTuple):
    """StridedRead holds runs of ``run`` elements at ``starts`` in the source; the runs are adjacent in the buffer.

    Element i of the block is at ``offset + sum(i * strides)`` in the buffer.
    """

    run: int
    starts: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return self.run * len(self.starts)


class _Level(NamedTuple):
    """_Level holds the number of outer axes, the number of reads for them, and the number of elements of one read."""

    outer: int
    reads: int
    run: int

    def cost(self, itemsize: int) -> float:
        return self.reads * (SECONDS_PER_READ + self.run * itemsize * SECONDS_PER_BYTE)


def plan_read(sizes: tuple[int, ...], offset: int, strides: tuple[int, ...], itemsize: int, capacity: int) -> StridedRead | None:
    """Choose the runs to read for a box of elements; return None if no choice fits into ``capacity`` bytes."""
    axes = _ordered_axes(sizes, strides)
    level = _cheapest(axes, sizes, strides, itemsize, capacity)
    return None if level is None else _read_of(level, axes, sizes, offset, strides)


def read_cost(sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int, capacity: int) -> float | None:
    """Estimate the seconds to read a box of elements; return None if it does not fit into ``capacity`` bytes."""
    level = _cheapest(_ordered_axes(sizes, strides), sizes, strides, itemsize, capacity)
    return None if level is None else level.cost(itemsize)


def _ordered_axes(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Return the axes with several distinct elements, in decreasing order of stride."""
    axes = [axis for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)) if size > 1 and stride]
    return sorted(axes, key=lambda axis: -abs(strides[axis]))


def _cheapest(axes: list[int], sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int, capacity: int) -> _Level | None:
    levels = []
    for outer in range(len(axes) + 1):
        run = 1 + sum((sizes[axis] - 1) * abs(strides[axis]) for axis in axes[outer:])
        level = _Level(outer, prod(sizes[axis] for axis in axes[:outer]), run)
        if level.reads * run * itemsize <= capacity and level.reads <= MAX_READS:
            levels.append(level)
    return min(levels, key=lambda level: level.cost(itemsize), default=None)


def _read_of(level: _Level, axes: list[int], sizes: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> StridedRead:
    outer, inner = axes[: level.outer], axes[level.outer :]
    first = offset + sum((sizes[axis] - 1) * strides[axis] for axis in inner if strides[axis] < 0)
    starts = tuple(
        first + sum(index * strides[axis] for index, axis in zip(position, outer, strict=True))
        for position in product(*(range(sizes[axis]) for axis in outer))
    )
    in_buffer = [0] * len(sizes)
    for axis in inner:
        in_buffer[axis] = strides[axis]
    stride = level.run
    for axis in reversed(outer):
        in_buffer[axis] = stride
        stride *= sizes[axis]
    return StridedRead(level.run, starts, offset - first, tuple(in_buffer))
