"""Delta debugging: the smallest part of a list for which a test still holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


def minimize(items: Sequence[Item], holds: Callable[[list[Item]], bool]) -> list[Item]:
    """Return a minimal sublist of ``items`` for which ``holds`` is true: without any single item ``holds`` is false.

    ``holds`` must be true for all items, and is never called for an empty list. The items are split into n parts, first into two.
    Each part alone is tried, then the list without each part; n is doubled if ``holds`` is false for all of these.

    Source: A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Transactions on Software Engineering
    28(2), 2002 (ddmin).
    """
    current = list(items)
    parts = 2
    while len(current) > 1:
        chunks = _split(current, parts)
        smaller = next((chunk for chunk in chunks if holds(chunk)), None)
        if smaller is not None:
            current, parts = smaller, 2
            continue
        rest = None
        if parts > 2:
            complements = ([item for other in chunks[:n] + chunks[n + 1 :] for item in other] for n in range(len(chunks)))
            rest = next((each for each in complements if holds(each)), None)
        if rest is not None:
            current, parts = rest, max(parts - 1, 2)
        elif parts >= len(current):
            break
        else:
            parts = min(2 * parts, len(current))
    return current


def _split(items: list[Item], parts: int) -> list[list[Item]]:
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    return [items[start:stop] for start, stop in pairwise(bounds) if stop > start]
