"""Strided reads: which bytes of a file are read for the elements of a block, and where they are in the buffer.

Runs of a file are read whole: the inner axes of a block with the gaps between their elements, the outer axes one by one. The
cheapest number of inner axes is chosen by the costs below, among those that fit into the buffer.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

SECONDS_PER_READ = 4e-6
SECONDS_PER_BYTE = 3e-10
MAX_READS = 1 << 16
"""Reads of one tile: their offsets are a Python list."""


class StridedRead(NamedTuple):
    """Runs of ``run`` elements at ``starts`` of the source; they follow each other in the buffer.

    Element i of the block is at ``offset + sum(i * strides)`` of the buffer.
    """

    run: int
    starts: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return self.run * len(self.starts)


class _Level(NamedTuple):
    """The number of outer axes that are read one by one, the reads that this takes, and the elements of each."""

    outer: int
    reads: int
    run: int

    def cost(self, itemsize: int) -> float:
        return self.reads * (SECONDS_PER_READ + self.run * itemsize * SECONDS_PER_BYTE)


def plan_read(sizes: tuple[int, ...], offset: int, strides: tuple[int, ...], itemsize: int, capacity: int) -> StridedRead | None:
    """Choose the runs of a box of elements; None where none of the choices fits into ``capacity`` bytes."""
    axes = _ordered_axes(sizes, strides)
    level = _cheapest(axes, sizes, strides, itemsize, capacity)
    return None if level is None else _read_of(level, axes, sizes, offset, strides)


def read_cost(sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int, capacity: int) -> float | None:
    """Estimate the seconds that a box takes to read; None where it does not fit."""
    level = _cheapest(_ordered_axes(sizes, strides), sizes, strides, itemsize, capacity)
    return None if level is None else level.cost(itemsize)


def _ordered_axes(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Return the axes of several distinct elements, that of the largest stride first."""
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
