"""Polynomials: real numbers that depend on elements, in which sums over an axis have bound indices.

A polynomial maps a monomial of variable elements to its coefficient, which is a function of constants:

- a monomial is a sorted tuple of (expression, exponent); its bound indices are summed over
- a coefficient maps sorted tuples of (constant, offset, exponent) to rational numbers
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product as pairs_of
from typing import Any

import numpy as np

from dovetail_check.sizes import Size, Symbols, Unproved

MAX_TERMS = 100
MAX_FACTORS = 16
_BOUND, _BOUND_WITHIN = re.compile(r"[bc]-?\d+:"), re.compile(r"\b[bc]-?\d+:")
Coefficient = dict[tuple[Any, ...], Fraction]


class Polynomial:
    """Polynomial is a real number that depends on elements; two of equal ``key`` are equal."""

    __slots__ = ("_key", "made", "terms")
    depth = 0
    """The number of sums around the polynomials that are computed."""
    symbols = Symbols()

    def __init__(self, terms: dict[tuple[Any, ...], Coefficient]) -> None:
        self.terms = {key: value for key, value in terms.items() if value}
        if len(self.terms) > MAX_TERMS:
            raise Unproved("a polynomial has too many terms")
        self._key: Any = None
        self.made = Polynomial.depth

    def check_scope(self) -> None:
        """Raise Unproved for a sum that was made outside of a sum in which it is used: their indices have the same names."""
        if self.made < Polynomial.depth and any(
            name[0] == "b" and int(name[1:].split(":", 1)[0]) >= self.made for name in bounds_in(self, {})
        ):
            raise Unproved("a sum is used inside of another one")

    @property
    def key(self) -> Any:
        if self._key is None:
            rows = [(repr(key), key, tuple(sorted(value.items(), key=repr))) for key, value in self.terms.items()]
            self._key = tuple((key, value) for _, key, value in sorted(rows, key=lambda row: row[0]))
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return repr(self.key)

    def __add__(self, other: Polynomial) -> Polynomial:
        self.check_scope()
        other.check_scope()
        terms = {key: dict(value) for key, value in self.terms.items()}
        for key, value in other.terms.items():
            own = terms.setdefault(key, {})
            for constants, number in value.items():
                own[constants] = own.get(constants, Fraction(0)) + number
                if not own[constants]:
                    del own[constants]
        return Polynomial(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        self.check_scope()
        other.check_scope()
        if len(self.terms) * len(other.terms) > MAX_TERMS:
            raise Unproved("a product has too many terms")
        result = Polynomial({})
        for (key, value), (key2, value2) in pairs_of(self.terms.items(), other.terms.items()):
            own, others = _own_bounds((key, tuple(value))), _own_bounds((key2, tuple(value2)))
            if own and others:
                names = {
                    name: f"b{Polynomial.depth + len(own) + place}:{name.split(':', 1)[1]}" for place, name in enumerate(others)
                }
                key2, value2 = rename(key2, names), {rename(row, names): factor for row, factor in value2.items()}
            both: Coefficient = {}
            for (constants, number), (constants2, number2) in pairs_of(value.items(), value2.items()):
                merged = _merge(constants, constants2)
                both[merged] = both.get(merged, Fraction(0)) + number * number2
            result = result + _in_order(_merge(key, key2), both)
        return result

    def inverse(self) -> Polynomial:
        """Return 1 / x, whose product with x is not 1, as x may be 0."""
        if not self.terms:
            raise Unproved("a quotient by 0")
        if len(self.terms) == 1:
            ((key, value),) = self.terms.items()
            if len(value) == 1 and not _own_bounds((key, tuple(value))):
                ((constants, number),) = value.items()
                return Polynomial({_inverses(key): {_inverses(constants): 1 / number}})
        return self.constant_power(Fraction(-1)) or atom(("inverse", close(self)))

    def constant_power(self, exponent: Fraction) -> Polynomial | None:
        """Return a power of a function of constants as a constant; None for other polynomials."""
        if self.terms.keys() != {()}:
            return None
        factor = ("power", tuple(sorted(self.terms[()].items(), key=repr)), exponent)
        return Polynomial({(): {((factor, 1),): Fraction(1)}})


def _inverses(factors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the inverse of each factor; an exponent is 1 or more."""
    inverted = ((x[1] if x[0] == "over" else ("over", x), exponent) for x, exponent in factors)
    return tuple(sorted(inverted, key=repr))


def _merge(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    if not first or not second:
        return first or second
    exponents = dict(first)
    for factor, exponent in second:
        exponents[factor] = exponents.get(factor, 0) + exponent
    return tuple(sorted(((factor, exponent) for factor, exponent in exponents.items() if exponent), key=repr))


def bounds_in(item: Any, found: dict[str, None]) -> dict[str, None]:
    """Collect the bound indices, in the order in which they occur."""
    if isinstance(item, Size):
        memo = Polynomial.symbols.memo
        if ("bounds", item) not in memo:
            names: dict[str, None] = {}
            for name in sorted(item.atoms()):
                if _BOUND.match(name):
                    names[name] = None
                elif (operands := Polynomial.symbols.operation_of(name)) is not None:
                    bounds_in(tuple(operands), names)
                elif _BOUND_WITHIN.search(name):
                    raise Unproved("an index of a sum in the name of a symbol")
            memo["bounds", item] = names
        found.update(memo["bounds", item])
    elif isinstance(item, tuple):
        for each in item:
            bounds_in(each, found)
    elif isinstance(item, Polynomial):
        bounds_in(item.key, found)
    return found


def _own_bounds(item: Any) -> list[str]:
    """Return the indices that a monomial is summed over: those of sums around it have lower numbers."""
    return [name for name in bounds_in(item, {}) if name[0] == "b" and int(name[1:].split(":", 1)[0]) >= Polynomial.depth]


def rename(item: Any, names: dict[str, str]) -> Any:
    """Rename bound indices."""
    if isinstance(item, Size):
        return item if names.keys().isdisjoint(bounds_in(item, {})) else Polynomial.symbols.substitute(item, names)
    if isinstance(item, tuple):
        return tuple(rename(each, names) for each in item)
    if isinstance(item, Polynomial):
        return Polynomial(
            {
                tuple(sorted(rename(key, names), key=repr)): {
                    tuple(sorted(rename(row, names), key=repr)): factor for row, factor in value.items()
                }
                for key, value in item.terms.items()
            }
        )
    return item


def _in_order(key: Any, value: Coefficient) -> Polynomial:
    """Return a polynomial of one monomial whose bound indices are numbered by where they occur."""
    if len(key) > MAX_FACTORS:
        raise Unproved("a product has too many factors")
    own = _own_bounds((key, tuple(value)))
    if own:
        whole = (key, tuple(sorted(value, key=repr)))
        places = {name: repr(rename(whole, {other: "b@" if other == name else "b_" for other in own})) for name in own}
        order = sorted(own, key=lambda name: (name.split(":", 1)[1], places[name]))
        names = {name: f"b{Polynomial.depth + place}:{name.split(':', 1)[1]}" for place, name in enumerate(order)}
        for old, new in names.items():
            Polynomial.symbols.symbol(new, 0, Polynomial.symbols.maximum.get(old))
        key = tuple(sorted(rename(key, names), key=repr))
        value = {tuple(sorted(rename(row, names), key=repr)): factor for row, factor in value.items()}
    return Polynomial({key: value})


def _level_of(name: str) -> int:
    return int(name[1:].split(":", 1)[0])


def close(item: Any) -> Any:
    """Rename the indices that an operand of a function is summed over, so that no sum around the function has them.

    The result names these indices, so that a function of a sum is not the sum of a function.
    """
    own = _own_bounds(item)
    if not own:
        return item
    first = 1 + max((int(name[1:].split(":", 1)[0]) for name in bounds_in(item, {}) if name[0] == "c"), default=-1)
    names = {name: f"c{first + place}:{name.split(':', 1)[1]}" for place, name in enumerate(sorted(own, key=_level_of))}
    for old, new in names.items():
        Polynomial.symbols.symbol(new, 0, Polynomial.symbols.maximum.get(old))
    return ("close", tuple(names.values()), rename(item, names))


def number(value: Fraction | int) -> Polynomial:
    return Polynomial({(): {(): Fraction(value)}} if value else {})


def atom(expression: Any, exponent: int = 1) -> Polynomial:
    return Polynomial({((expression, exponent),): {(): Fraction(1)}})


def is_number(x: Polynomial) -> bool:
    return x.terms.keys() <= {()} and all(value.keys() <= {()} for value in x.terms.values())


def size_of(value: Size) -> Polynomial:
    result = Polynomial({})
    for key, coefficient in value.terms.items():
        factor = number(coefficient)
        for name in key:
            factor = factor * atom(("size", name))
        result = result + factor
    return result


def power(x: Polynomial, exponent: Fraction) -> Polynomial:
    """Return a power with an exponent that is a multiple of 1/2."""
    if exponent < 0:
        return power(x, -exponent).inverse()
    result = number(1)
    for _ in range(int(exponent)):
        result = result * x
    if exponent.denominator == 2:
        if len(x.terms) == 1 and () in x.terms and x.terms[()].keys() == {()}:
            root = Fraction(float(np.sqrt(float(x.terms[()][()]))))
            return result * number(root)
        result = result * (x.constant_power(Fraction(1, 2)) or atom(("root", close(x))))
    return result
