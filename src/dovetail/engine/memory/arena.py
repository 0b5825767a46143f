"""Offline memory planning: offsets in one arena for buffers with known lifetimes."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

MAX_PROMOTIONS = 12
"""Assignments tried for each order of buffers."""
MAX_COMPARISONS = 200_000
"""Pairs of buffers compared for each order: a bound on planning time."""
ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


class Lifetime(NamedTuple):
    """The size of a buffer in bytes, and its lifetime: steps ``first`` to ``last``, both included."""

    nbytes: int
    first: int
    last: int


def assign_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each buffer, and the bytes of the arena. Buffers whose lifetimes intersect do not overlap.

    Greedy by size: the largest first, each in the smallest gap that holds it (Pisarchyk and Lee, arXiv 2001.03288). Where that
    misses the lower bound, other orders follow, in each of which the outermost buffer is repeatedly moved to the front.
    """
    indices = range(len(lifetimes))
    bound = lower_bound_of(lifetimes)
    attempts = max(1, min(MAX_PROMOTIONS, MAX_COMPARISONS // max(1, len(lifetimes) ** 2)))
    best: tuple[dict[int, int], int] | None = None
    for key in (
        lambda index: (-lifetimes[index].nbytes, lifetimes[index].first),
        lambda index: (lifetimes[index].first - lifetimes[index].last, -lifetimes[index].nbytes),
        lambda index: (lifetimes[index].first, -lifetimes[index].nbytes),
    ):
        order = sorted(indices, key=key)
        for _ in range(attempts):
            offsets, arena_bytes, outermost = _assign_in_order(lifetimes, order)
            if best is None or arena_bytes < best[1]:
                best = offsets, arena_bytes
            if best[1] <= bound:
                return [best[0][index] for index in indices], best[1]
            order.remove(outermost)
            order.insert(0, outermost)
    assert best is not None
    return [best[0][index] for index in indices], best[1]


def _assign_in_order(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> tuple[dict[int, int], int, int]:
    """Assign each buffer in ``order`` to the smallest gap; return the offsets, the arena's bytes, and the buffer at its end."""
    offsets: dict[int, int] = {}
    allocated: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted by offset
    arena_bytes = outermost = 0
    for index in order:
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
        if offset + size > arena_bytes:
            arena_bytes, outermost = offset + size, index
        insort(allocated, (offset, offset + size, lifetime.first, lifetime.last))
    return offsets, arena_bytes, outermost


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
