"""One block of memory for everything that lives while a program runs: who lives when, and where each lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 64


class Lifetime(NamedTuple):
    """A buffer's life: it is needed from step ``first`` to step ``last``, both included."""

    nbytes: int
    first: int
    last: int


def assign_offsets(spans: Sequence[Lifetime]) -> tuple[list[int], int]:
    """An offset for each span, and how much memory all of them need. No two that live at the same time overlap.

    Greedy by size: the largest first, each in the smallest gap that holds it (Pisarchyk and Lee, arXiv 2001.03288).
    """
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; by offset
    total = 0
    for index in sorted(range(len(spans)), key=lambda index: (-spans[index].nbytes, spans[index].first)):
        span = spans[index]
        size = aligned(span.nbytes)
        end, gaps = 0, []
        for start, stop, first, last in placed:
            if first > span.last or last < span.first:
                continue
            if start - end >= size:
                gaps.append((start - end, end))
            end = max(end, stop)
        offset = min(gaps)[1] if gaps else end
        offsets[index] = offset
        total = max(total, offset + size)
        placed.append((offset, offset + size, span.first, span.last))
        placed.sort()
    return [offsets[index] for index in range(len(spans))], total


def lower_bound(spans: Sequence[Lifetime]) -> int:
    """The most memory that is needed at one time: no arrangement takes less."""
    changes: dict[int, int] = {}
    for span in spans:
        size = aligned(span.nbytes)
        changes[span.first] = changes.get(span.first, 0) + size
        changes[span.last + 1] = changes.get(span.last + 1, 0) - size
    most = now = 0
    for step in sorted(changes):
        now += changes[step]
        most = max(most, now)
    return most


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
