"""Bounds and three-valued comparisons of sizes."""

from __future__ import annotations

import threading
from functools import lru_cache
from math import gcd, inf

from dovetail.ir.symbolic import substitute
from dovetail.ir.symbolic.algebra import (
    Atom,
    Dim,
    Inexact,
    Monomial,
    Size,
    dim_of,
    from_terms,
    intern_atom,
    is_positive_number,
    polynomial,
)
from dovetail.ir.symbolic.intervals import interval

Bounds = tuple[int | None, int | None]


def bounds(size: Size) -> Bounds:
    """Return a lower and an upper bound of a size over all values of the unknowns; None for an unknown bound."""
    low, high = interval(size)
    if isinstance(size, Dim) and _may_tighten(size):
        low, high = _lowest(size), -_lowest(-size)
    return None if low == -inf else int(low), None if high == inf else int(high)


def merge_bounds(first: Bounds, second: Bounds) -> Bounds:
    """Return the intersection of two bounds; its lower bound exceeds its upper bound if the intersection is empty."""
    lows, highs = ([bound for bound in pair if bound is not None] for pair in zip(first, second, strict=True))
    return max(lows, default=None), min(highs, default=None)


def _may_tighten(dim: Dim) -> bool:
    """Return whether interval arithmetic may give bounds that are not tight: atoms may depend on each other or are multiplied."""
    if len(dim._terms) == 1:
        ((monomial, _),) = dim._terms.items()
        return len(monomial) > 1 and dim._constant != 0
    return any(len(monomial) > 1 or monomial[0].kind != "symbol" for monomial in dim._terms)


class _Closeness(threading.local):
    """_Closeness is the thread's flag of a running close analysis; comparisons inside it use only interval arithmetic."""

    active = False


closeness = _Closeness()


def _lowest(dim: Dim) -> int | float:
    """Return a lower bound of a size by a close analysis, which uses dependences between atoms.

    Inside a close analysis the lower bound comes from interval arithmetic.
    """
    if closeness.active:
        return interval(dim)[0]
    return _lowest_closely(dim)


@lru_cache(4096)
def _lowest_closely(dim: Dim) -> int | float:
    bounds_below = [interval(dim)[0]]
    closeness.active = True
    try:
        bounds_below.append(_low(dim, [12]))
        strong = substitute.normalize_strongly(dim)
        if strong != dim:
            bounds_below.append(_low(strong, [12]))
    except Inexact:
        pass  # an intermediate expression grew too large
    finally:
        closeness.active = False
    return max(bounds_below)


def _low(size: Size, budget: list[int]) -> int | float:
    low = interval(size)[0]
    if isinstance(size, int) or not _may_tighten(size) or budget[0] <= 0:
        return low
    budget[0] -= 1
    if any(len(monomial) > 1 for monomial in size._terms):
        low = max(low, interval(_shift_atoms(size))[0])
    for monomial, coefficient in size._terms.items():
        atom = monomial[-1]
        if atom.kind == "//" and is_positive_number(atom.args[1]) and monomial.count(atom) == 1:
            return max(low, _low_without_division(size, atom, budget))
        if atom.kind in ("min", "max") and len(monomial) == 1 and _stands_alone(size, atom):
            rest = size - coefficient * dim_of(atom)
            lows = [_low(rest + coefficient * arg, budget) for arg in atom.args]
            # min and max equal one of their arguments and are bounds of all arguments.
            return max(low, max(lows) if (atom.kind == "max") == (coefficient > 0) else min(lows))
    return low


def _low_without_division(dim: Dim, atom: Atom, budget: list[int]) -> int | float:
    scaled = _without_division(dim, atom)
    low = -inf if scaled is None else _low(scaled, budget)
    return low if low == -inf else -(-low // atom.args[1])


def _stands_alone(dim: Dim, atom: Atom) -> bool:
    return sum(atom in monomial for monomial in dim._terms) == 1


def _without_division(dim: Dim, atom: Atom) -> Size | None:
    """Return ``b * dim`` with ``b * (a // b)`` replaced by ``a - a % b``; None if a power of the division occurs."""
    a, b = atom.args
    inside, outside = dict[Monomial, int](), dict[Monomial, int]()
    for monomial, coefficient in dim._terms.items():
        count = monomial.count(atom)
        if count > 1:
            return None
        if count:
            inside[tuple(factor for factor in monomial if factor is not atom)] = coefficient
        else:
            outside[monomial] = coefficient
    size: Size = from_terms(inside) * (a - dim_of(intern_atom("%", (a, b)))) + b * polynomial(outside, dim._constant)
    return size


def _shift_atoms(dim: Dim) -> Size:
    """Replace atoms by a bound plus or minus their distance from it, so that each atom's interval starts at 0."""

    def shift(atom: Atom) -> Size:
        if atom.low == 0 or (atom.low == -inf and atom.high == inf):
            return dim_of(atom)
        over = dim_of(intern_atom("shift", (dim_of(atom),)))
        size: Size = over + int(atom.low) if atom.low != -inf else int(atom.high) - over
        return size

    return substitute.replace_atoms(dim, shift)


def _difference(a: Size, b: Size) -> Size | None:
    """Return ``a - b``; None if it exceeds the size limits of expressions."""
    try:
        return a - b
    except Inexact:
        return None


def equal(a: Size, b: Size) -> bool | None:
    """Compare ``a == b``: True if it holds for all values of the unknowns, False if for none, None if undecided."""
    if a is b:
        return True
    difference = _difference(a, b)
    if difference is None or isinstance(difference, int):
        return difference if difference is None else difference == 0
    if _has_odd_constant(difference):
        return False
    low, high = interval(difference)
    if low > 0 or high < 0:
        return False
    if low == high == 0:
        return True
    if not _may_tighten(difference):
        return None
    return _equal_closely(difference)


def _equal_closely(difference: Dim) -> bool | None:
    low, high = _lowest(difference), -_lowest(-difference)
    if low > 0 or high < 0:
        return False
    if low == high == 0:
        return True
    return None if closeness.active else _equal_strongly(difference)


@lru_cache(4096)
def _equal_strongly(difference: Dim) -> bool | None:
    closeness.active = True
    try:
        strong = substitute.normalize_strongly(difference)
    except Inexact:
        return None
    finally:
        closeness.active = False
    if isinstance(strong, int):
        return strong == 0
    return False if _has_odd_constant(strong) else None


def is_nonzero(size: Size) -> bool:
    return equal(size, 0) is False


def _has_odd_constant(difference: Dim) -> bool:
    """Return whether a common factor of the coefficients does not divide the constant, so that ``difference`` is never 0."""
    return difference._constant != 0 and difference._constant % gcd(*difference._terms.values()) != 0


def has_lower_bound(size: Size, bound: int) -> bool | None:
    low, high = interval(size)
    if low >= bound:
        return True
    if high < bound:
        return False
    if isinstance(size, int) or not _may_tighten(size):
        return None
    if _lowest(size) >= bound:
        return True
    return False if -_lowest(-size) < bound else None


def less(a: Size, b: Size) -> bool | None:
    """Compare ``a < b``: True if it holds for all values of the unknowns, False if for none, None if undecided."""
    difference = _difference(b, a)
    return None if difference is None else has_lower_bound(difference, 1)


def less_equal(a: Size, b: Size) -> bool | None:
    """Compare ``a <= b``: True if it holds for all values of the unknowns, False if for none, None if undecided."""
    difference = _difference(b, a)
    return None if difference is None else has_lower_bound(difference, 0)
