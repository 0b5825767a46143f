"""Broadcasting of sizes: the size of an axis that several tensors are broadcast to."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.ir.symbolic.algebra import Inexact, Size, bare_atom, dim_of, intern_atom
from dovetail.ir.symbolic.compare import equal
from dovetail.ir.symbolic.min_max import maximum, minimum, size_order

KIND = "broadcast"
"""The kind of a broadcast's atom, and the name of the function in the text of an expression."""


def broadcast_sizes(sizes: Sequence[Size]) -> Size:
    """Return the size of an axis after broadcasting axes of ``sizes`` by numpy's rule: the size that is not 1.

    The caller has rejected sizes that can never be broadcast together. If two sizes differ in a run and neither is 1, the result
    is meaningless.
    """
    items: dict[Size, None] = {}
    for size in sizes:
        atom = bare_atom(size)
        items.update(dict.fromkeys(atom.args if atom is not None and atom.kind == KIND else (size,)))
    items.pop(1, None)
    candidates = list(items)
    numbers = [item for item in candidates if isinstance(item, int)]
    if numbers:
        return max(numbers)
    if not candidates:
        return 1
    if len(candidates) == 1:
        return candidates[0]
    for item in candidates:
        if equal(item, 1) is False:
            return item
    candidates = _drop_redundant(candidates)
    if len(candidates) == 1:
        return candidates[0]
    if len(candidates) > 16:
        raise Inexact("the broadcast of more than 16 dimensions")
    return dim_of(intern_atom(KIND, tuple(sorted(candidates, key=size_order))))


def _drop_redundant(candidates: list[Size]) -> list[Size]:
    """Drop each ``y`` for which another candidate ``x`` gives ``broadcast(x, y) == x``.

    That holds if ``min(x, 1) <= y <= x``: broadcasting requires ``y == x``, ``y == 1`` or ``x == 1``, and ``x == 1`` implies
    ``y == 1``. It also holds for ``y == max(x, 0)``, which equals ``x`` because no dimension is negative.
    """
    kept = list(candidates)
    for y in candidates:
        if any(x is not y and _dominates(x, y) for x in kept):
            kept.remove(y)
    return kept


def _dominates(x: Size, y: Size) -> bool:
    clipped = minimum(x, 1)
    return y == maximum(x, 0) or (minimum(x, y) == y and minimum(clipped, y) == clipped)
