"""Minimum and maximum of sizes; arguments that can never be the result are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from dovetail.ir.symbolic.algebra import Inexact, Size, bare_atom, dim_of, intern_atom, order, sorted_terms
from dovetail.ir.symbolic.compare import closeness, less_equal


def minimum(*sizes: Size) -> Size:
    """Return the minimum of one or more sizes."""
    return extreme("min", sizes)


def maximum(*sizes: Size) -> Size:
    """Return the maximum of one or more sizes."""
    return extreme("max", sizes)


_CHOICES: dict[str, Callable[..., int]] = {"min": min, "max": max}


def extreme(kind: str, sizes: Sequence[Size]) -> Size:
    """Return the minimum (``kind`` "min") or maximum (``kind`` "max") of sizes."""
    if all(isinstance(size, int) for size in sizes):
        return _CHOICES[kind](sizes)
    return _simplify_extreme(kind, sizes) if closeness.active else _known_extreme(kind, tuple(sizes))


def _simplify_extreme(kind: str, sizes: Sequence[Size]) -> Size:
    items: dict[Size, None] = {}
    for size in sizes:
        atom = bare_atom(size)
        items.update(dict.fromkeys(atom.args if atom is not None and atom.kind == kind else (size,)))
    numbers = [item for item in items if isinstance(item, int)]
    candidates: list[Size] = [item for item in items if not isinstance(item, int)]
    candidates += [_CHOICES[kind](numbers)] if numbers else []
    if len(candidates) > 16:
        raise Inexact(f"the {kind} of more than 16 dimensions")
    candidates = _dominating_sizes(kind, candidates)
    if len(candidates) == 1:
        return candidates[0]
    return dim_of(intern_atom(kind, tuple(sorted(candidates, key=size_order))))


_known_extreme = lru_cache(4096)(_simplify_extreme)


def _dominating_sizes(kind: str, sizes: list[Size]) -> list[Size]:
    result: list[Size] = []
    for size in sizes:
        if any(_comes_first(kind, other, size) for other in result):
            continue
        result = [other for other in result if not _comes_first(kind, size, other)]
        result.append(size)
    return result


def _comes_first(kind: str, first: Size, second: Size) -> bool:
    return (less_equal(first, second) if kind == "min" else less_equal(second, first)) is True


def size_order(size: Size) -> tuple[Any, ...]:
    """Return the sort key of the arguments of an application."""
    if isinstance(size, int):
        return 1, [], size
    return 0, [(order(monomial), coefficient) for monomial, coefficient in sorted_terms(size)], size._constant
