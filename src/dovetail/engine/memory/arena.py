"""Offline memory planning: offsets in one arena for buffers with known lifetimes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


class Lifetime(NamedTuple):
    """The size of a buffer in bytes, and its lifetime: steps ``first`` to ``last``, both included."""

    nbytes: int
    first: int
    last: int


def assign_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each buffer, and the bytes of the arena. Buffers whose lifetimes intersect do not overlap.

    Greedy by size: the largest first, each in the smallest gap that holds it (Pisarchyk and Lee, arXiv 2001.03288).
    """
    offsets: dict[int, int] = {}
    allocated: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted by offset
    arena_bytes = 0
    for index in sorted(range(len(lifetimes)), key=lambda index: (-lifetimes[index].nbytes, lifetimes[index].first)):
        lifetime = lifetimes[index]
        size = align(lifetime.nbytes)
        end, gaps = 0, []
        for start, stop, first, last in allocated:
            if first > lifetime.last or last < lifetime.first:
                continue
            if start - end >= size:
                gaps.append((start - end, end))
            end = max(end, stop)
        offset = min(gaps)[1] if gaps else end
        offsets[index] = offset
        arena_bytes = max(arena_bytes, offset + size)
        allocated.append((offset, offset + size, lifetime.first, lifetime.last))
        allocated.sort()
    return [offsets[index] for index in range(len(lifetimes))], arena_bytes


def lower_bound_of(lifetimes: Sequence[Lifetime]) -> int:
    """Return the peak of live bytes over all steps: no assignment of offsets takes less."""
    changes: dict[int, int] = {}
    for lifetime in lifetimes:
        size = align(lifetime.nbytes)
        changes[lifetime.first] = changes.get(lifetime.first, 0) + size
        changes[lifetime.last + 1] = changes.get(lifetime.last + 1, 0) - size
    peak = live = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def align(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to a multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
