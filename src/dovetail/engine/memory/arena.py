"""Offline memory planning: offsets in one arena for buffers with known lifetimes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

MAX_PROMOTIONS = 12
"""The maximum number of assignments tried for each order of buffers."""
MAX_COMPARISONS = 200_000
"""The maximum number of pairs of buffers compared for each order of buffers: a bound on planning time."""
ALIGNMENT = 64
"""The alignment of buffers in bytes: the size of a cache line and of the widest vector register."""


class Lifetime(NamedTuple):
    """Lifetime holds the bytes of a buffer, and the steps at which the buffer is live: ``first`` to ``last``, inclusive."""

    nbytes: int
    first: int
    last: int


def assign_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each buffer, and the bytes of the arena. Buffers whose lifetimes intersect do not overlap.

    Greedy by size: the largest buffer first, each in the smallest sufficient gap (Pisarchyk and Lee, arXiv 2001.03288). While the
    lower bound is missed, the buffer at the arena's end is repeatedly moved to the front; then two other orders are tried.
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
    """Assign each buffer in ``order`` to the smallest gap; return the offsets, the arena's bytes, and the arena's last buffer."""
    offsets: dict[int, int] = {}
    allocated = _Allocated(max((lifetime.last for lifetime in lifetimes), default=0) + 1)
    arena_bytes = outermost = 0
    for index in order:
        lifetime = lifetimes[index]
        size = align(lifetime.nbytes)
        end, gaps = 0, []
        for start, stop in allocated.during(lifetime):
            if start - end >= size:
                gaps.append((start - end, end))
            end = max(end, stop)
        offset = min(gaps)[1] if gaps else end
        offsets[index] = offset
        if offset + size > arena_bytes:
            arena_bytes, outermost = offset + size, index
        allocated.add(lifetime, offset, offset + size)
    return offsets, arena_bytes, outermost


class _Allocated:
    """_Allocated holds the allocated ranges of the arena, in a segment tree over the steps and in a list sorted by first step.

    The time of a query grows with the number of ranges that it returns, not with the number of all ranges.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._tree: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._by_first: list[tuple[int, ...]] = []

    def add(self, lifetime: Lifetime, start: int, end: int) -> None:
        insort(self._by_first, (lifetime.first, start, end))
        low, high = lifetime.first + self._steps, lifetime.last + self._steps + 1
        while low < high:
            if low & 1:
                self._tree[low].append((start, end))
                low += 1
            if high & 1:
                high -= 1
                self._tree[high].append((start, end))
            low, high = low >> 1, high >> 1

    def during(self, lifetime: Lifetime) -> list[tuple[int, int]]:
        """Return the ranges whose lifetimes intersect ``lifetime``, in the order of offsets."""
        # A tuple of one number sorts before all longer tuples that begin with the number.
        later = slice(*(bisect_left(self._by_first, (step + 1,)) for step in (lifetime.first, lifetime.last)))
        found = [(start, end) for _, start, end in self._by_first[later]]
        position = lifetime.first + self._steps
        while position:
            found += self._tree.get(position, ())
            position >>= 1
        return sorted(found)


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
