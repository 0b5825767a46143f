"""Interval arithmetic on integers with infinite ends, and the interval of an expression.

Finite ends are Python integers, which do not round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dovetail.ir.symbolic.algebra import Monomial, Size

Interval: TypeAlias = tuple[int | float, int | float]
_WIDEST = 2**512


def widen(low: int | float, high: int | float) -> Interval:
    """Limit the ends of an interval to 2**512 in magnitude: lower ends below -2**512 become -inf, upper ends above 2**512 inf.

    A lower end above 2**512 becomes 2**512, an upper end below -2**512 becomes -2**512.
    """
    if low < -_WIDEST:
        low = -inf
    elif low > _WIDEST:
        low = _WIDEST
    if high > _WIDEST:
        high = inf
    elif high < -_WIDEST:
        high = -_WIDEST
    return low, high


def _times(x: int | float, y: int | float) -> int | float:
    return x * y if x and y else 0


def product_of(x: Interval, y: Interval) -> Interval:
    """Return the interval of the products of numbers in ``x`` and ``y``."""
    corners = [_times(a, b) for a in x for b in y]
    return widen(min(corners), max(corners))


def power_of(x: Interval, count: int) -> Interval:
    """Return the interval of the powers, with exponent ``count``, of numbers in ``x``."""
    result = x
    for _ in range(count - 1):
        result = product_of(result, x)
    if count % 2 == 0 and result[0] < 0:
        return 0, result[1]
    return result


def interval_of_application(kind: str, xs: Sequence[Interval]) -> Interval:
    """Return the interval of an application of ``kind`` to arguments in the intervals ``xs``."""
    if kind == "min":
        return min(low for low, _ in xs), min(high for _, high in xs)
    if kind == "max":
        return max(low for low, _ in xs), max(high for _, high in xs)
    if kind == "broadcast":
        lows = [low for low, _ in xs]
        return min(lows) if min(lows) < 1 else max(lows), max(high for _, high in xs)
    if kind == "shift":
        ((low, high),) = xs
        return 0, high - low if low != -inf else inf
    parts = list(_nonzero_parts(xs[1]))
    if not parts:
        return -inf, inf
    if kind == "//":
        corners = [_divide_ends(x, y) for x in xs[0] for part in parts for y in part]
        return widen(min(corners), max(corners))
    ranges = [_modulo_interval(xs[0], part) for part in parts]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _nonzero_parts(x: Interval) -> Iterator[Interval]:
    """Yield the positive and the negative part of a divisor's interval, without 0: division by 0 has no result."""
    if x[1] >= 1:
        yield max(x[0], 1), x[1]
    if x[0] <= -1:
        yield x[0], min(x[1], -1)


def _divide_ends(x: int | float, y: int | float) -> int | float:
    if abs(y) == inf:
        return 0 if x == 0 or (x < 0) == (y < 0) else -1
    if abs(x) == inf:
        return x if y > 0 else -x
    return x // y


def _modulo_interval(a: Interval, b: Interval) -> Interval:
    if b[0] > 0:
        return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
    return max(b[0] + 1, a[0]) if a[1] <= 0 else b[0] + 1, 0


def _monomial_interval(monomial: Monomial) -> Interval:
    result: Interval = (1, 1)
    for atom, group in groupby(monomial):
        result = product_of(result, power_of((atom.low, atom.high), len(list(group))))
    return result


def interval(size: Size) -> Interval:
    """Return the interval of an expression by interval arithmetic over its terms."""
    if isinstance(size, int):
        return size, size
    if size._range is None:
        low: int | float = size._constant
        high: int | float = size._constant
        for monomial, coefficient in size._terms.items():
            low_factor, high_factor = (monomial[0].low, monomial[0].high) if len(monomial) == 1 else _monomial_interval(monomial)
            if coefficient < 0:
                low_factor, high_factor = high_factor, low_factor
            low += coefficient * low_factor
            high += coefficient * high_factor
        size._range = widen(low, high)
    return size._range
