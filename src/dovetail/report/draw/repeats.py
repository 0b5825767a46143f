"""Find tandem repeats in a sequence: blocks that occur at least twice in succession."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

MIN_SAVED = 5
"""The minimum number of nodes in the copies of a repeat after the first copy."""
PERIODS = 48
"""The maximum number of periods that are tried; periods with the most pairs of equal items come first."""


class Repeat(NamedTuple):
    """Repeat is a run of ``copies`` equal blocks of ``period`` items, from item ``start`` on."""

    start: int
    period: int
    copies: int


def tandem_repeats(tokens: Sequence[int], weights: Sequence[int]) -> list[Repeat]:
    """Return disjoint repeats in order of their starts, chosen greedily: most saved nodes first, then shorter periods.

    Items are equal if their tokens are equal; ``weights`` are the numbers of nodes of the items. The search takes O(n) time for
    each of at most PERIODS periods.
    """
    sequence = np.asarray(tokens, np.int64)
    total = np.concatenate([[0], np.cumsum(np.asarray(weights, np.int64))])
    found: list[tuple[int, Repeat]] = []
    for period in _periods(tokens):
        for start, length in _runs(sequence[:-period] == sequence[period:]):
            if length >= period:
                count = length // period + 1
                saved = int(total[start + count * period] - total[start + period])
                if saved >= MIN_SAVED:
                    found.append((saved, Repeat(start, period, count)))
    is_taken = np.zeros(len(sequence), bool)
    chosen = []
    for _, repeat in sorted(found, key=lambda each: (-each[0], each[1].period, each[1].start)):
        section = is_taken[repeat.start : repeat.start + repeat.period * repeat.copies]
        if not section.any():
            section[:] = True
            chosen.append(repeat)
    return sorted(chosen)


def _periods(tokens: Sequence[int]) -> list[int]:
    """Return the most frequent distances between equal items, at most PERIODS; each item has at most 4 predecessors."""
    last: dict[int, list[int]] = {}
    distances: Counter[int] = Counter()
    for position, token in enumerate(tokens):
        earlier = last.setdefault(token, [])
        distances.update(position - each for each in earlier)
        earlier.append(position)
        del earlier[:-4]
    limit = len(tokens) // 2
    return [period for period, _ in sorted(distances.items(), key=lambda each: (-each[1], each[0])) if period <= limit][:PERIODS]


def _runs(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    """Yield the start and the length of each run of successive True in a boolean array."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.view(np.int8), [0]])))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield start, end - start
