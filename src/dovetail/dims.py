"""Integers with unknowns, and the array namespace in which shape values are computed with them.

A :class:`Dim` is a polynomial with integer coefficients over atoms. An atom is a symbol (a name and what bounds it) or an
application of floor division, modulo, minimum or maximum that does not simplify. A result without unknowns is an ``int``.
Division and modulo round as Python's do, towards minus infinity. Every question has three answers: yes, no, and "cannot
tell" (None, or :class:`Inexact` where a truth value was demanded); no answer is ever guessed.

An expression that grows past the limits below raises :class:`Inexact` too, so that time and memory stay bounded.
"""

from __future__ import annotations

import builtins
import operator
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from math import gcd, inf
from typing import Any, ClassVar, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from dovetail.errors import FormatError

LARGEST = 2**256  # of a coefficient
MOST_TERMS = 256
HIGHEST_DEGREE = 64
DEEPEST = 48  # applications inside one another
HEAVIEST = 4096  # symbols and applications in one atom, written out
LONGEST_TEXT = 10_000
MOST_ELEMENTS = 2**16  # of an array of shape values


class Inexact(Exception):
    """What was asked has no exact answer while the unknowns are unknown."""


class _Atom:
    """A symbol or an opaque application. Interned: two that are equal are one object."""

    __slots__ = ("__weakref__", "_key", "args", "depth", "high", "kind", "low", "weight")

    kind: str  # "symbol", "//", "%", "min", "max", or "shift" (inside bounds only: an atom less its bound)
    args: tuple[Any, ...]  # of a symbol: name, low, high
    low: int | float
    high: int | float
    depth: int
    weight: int
    _key: tuple[int, str, str] | None

    @property
    def key(self) -> tuple[int, str, str]:
        """What orders atoms: symbols by name, then applications by what they say."""
        if self._key is None:
            if self.kind == "symbol":
                self._key = (0, self.args[0], f"{self.args[1]}:{self.args[2]}")
            else:
                self._key = (1, _atom_text(self, _full_name), "")
        return self._key

    def __reduce__(self) -> tuple[Any, ...]:
        return _atom, (self.kind, self.args)


_Monomial: TypeAlias = tuple[_Atom, ...]  # sorted by key, repeated where it is a power
_Terms: TypeAlias = dict[_Monomial, int]

_table: WeakValueDictionary[tuple[str, tuple[Any, ...]], _Atom] = WeakValueDictionary()
_lock = threading.RLock()
_key = operator.attrgetter("key")


def _atom(kind: str, args: tuple[Any, ...]) -> _Atom:
    found = _table.get((kind, args))
    if found is not None:
        return found
    with _lock:
        found = _table.get((kind, args))
        if found is None:
            found = _table[kind, args] = _new_atom(kind, args)
    return found


def _new_atom(kind: str, args: tuple[Any, ...]) -> _Atom:
    atom = _Atom()
    atom.kind, atom.args, atom._key = kind, args, None
    if kind == "symbol":
        _, low, high = args
        atom.low, atom.high = -inf if low is None else low, inf if high is None else high
        atom.depth, atom.weight = 0, 1
        return atom
    inner = [each for arg in args if isinstance(arg, Dim) for monomial in arg._terms for each in monomial]
    atom.depth = 1 + max(each.depth for each in inner)
    atom.weight = 1 + sum(each.weight for each in inner)
    if atom.depth > DEEPEST or atom.weight > HEAVIEST:
        raise Inexact("an expression of dimensions grew too large")
    atom.low, atom.high = _application_interval(kind, args)
    return atom


class Dim:
    """An integer with unknowns; immutable. ``==`` and ``hash`` see the normal form: see :func:`equal` for the question.

    ``+ - * // % **`` and ``abs`` take and give ``int | Dim``. A truth value or an order that the bounds do not decide,
    and a conversion to a number, raise :class:`Inexact`.
    """

    __slots__ = ("_constant", "_hash", "_range", "_terms", "_text")

    _terms: _Terms
    _constant: int
    _hash: int | None
    _text: str | None
    _range: tuple[int | float, int | float] | None

    def __init__(self) -> None:
        raise TypeError("write dims.symbol(name) for a Dim")

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            return _polynomial(self._terms, self._constant + other) if other else self
        if isinstance(other, Dim):
            return _combine(self, other, 1)
        number = _integer(other)
        return NotImplemented if number is None else self + number

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return _polynomial(self._terms, self._constant - other) if other else self
        if isinstance(other, Dim):
            return _combine(self, other, -1)
        number = _integer(other)
        return NotImplemented if number is None else self + -number

    def __rsub__(self, other: Any) -> Any:
        number = _integer(other)
        return NotImplemented if number is None else _scale(self, -1) + number

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            return _scale(self, other)
        if isinstance(other, Dim):
            return _multiply(self, other)
        number = _integer(other)
        return NotImplemented if number is None else _scale(self, number)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        negated: Dim = _scale(self, -1)
        return negated

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> int | Dim:
        return maximum(self, -self)

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Dim):
            return _floor_divide(self, other)
        number = _integer(other)
        return NotImplemented if number is None else _floor_divide(self, number)

    def __rfloordiv__(self, other: Any) -> Any:
        number = _integer(other)
        return NotImplemented if number is None else _floor_divide(number, self)

    def __mod__(self, other: Any) -> Any:
        if isinstance(other, Dim):
            return _modulo(self, other)
        number = _integer(other)
        return NotImplemented if number is None else _modulo(self, number)

    def __rmod__(self, other: Any) -> Any:
        number = _integer(other)
        return NotImplemented if number is None else _modulo(number, self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __pow__(self, exponent: Any) -> Any:
        number = _integer(exponent)
        if number is None:
            return NotImplemented
        if not 0 <= number <= HIGHEST_DEGREE:
            raise Inexact(f"the power {number} of a dimension")
        return product([self] * number)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Dim):
            return False
        return self._constant == other._constant and self._terms == other._terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((frozenset(self._terms.items()), self._constant))
        return self._hash

    def __lt__(self, other: Any) -> bool:
        return NotImplemented if _operand(other) is None else _decided(less(self, other), self, "<", other)

    def __le__(self, other: Any) -> bool:
        return NotImplemented if _operand(other) is None else _decided(less_equal(self, other), self, "<=", other)

    def __gt__(self, other: Any) -> bool:
        return NotImplemented if _operand(other) is None else _decided(less(other, self), self, ">", other)

    def __ge__(self, other: Any) -> bool:
        return NotImplemented if _operand(other) is None else _decided(less_equal(other, self), self, ">=", other)

    def __bool__(self) -> bool:
        return not _decided(equal(self, 0), self, "==", 0)

    def __int__(self) -> int:
        raise Inexact(f"{self} is not known as a number")

    def __index__(self) -> int:
        raise Inexact(f"{self} is not known as a number")

    def __float__(self) -> float:
        raise Inexact(f"{self} is not known as a number")

    def __str__(self) -> str:
        if self._text is None:
            self._text = _dim_text(self, _written_name)
        return self._text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: object) -> Dim:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (tuple(self._terms.items()), self._constant)


Size: TypeAlias = int | Dim


def _restore(terms: Iterable[tuple[_Monomial, int]], constant: int) -> Size:
    size: Size = _polynomial({tuple(sorted(monomial, key=_key)): coefficient for monomial, coefficient in terms}, constant)
    return size


def _integer(value: Any) -> int | None:
    try:
        return int(operator.index(value))
    except TypeError:
        return None


def _operand(value: Any) -> Size | None:
    return value if isinstance(value, Dim) else _integer(value)


def _decided(answer: bool | None, first: object, relation: str, second: object) -> bool:
    if answer is None:
        raise Inexact(f"whether {first} {relation} {second} is not known")
    return answer


# ---- polynomials


def _polynomial(terms: _Terms, constant: int) -> Any:
    """The sum, an ``int`` when nothing unknown is left. Keeps ``terms``, which holds no zero coefficient."""
    if not terms:
        return constant
    if not -LARGEST < constant < LARGEST or len(terms) > MOST_TERMS:
        raise Inexact("an expression of dimensions grew too large")
    dim: Dim = object.__new__(Dim)
    dim._terms = terms
    dim._constant = constant
    dim._hash = dim._text = dim._range = None
    return dim


def _of(atom: _Atom) -> Dim:
    found: Dim = _polynomial({(atom,): 1}, 0)
    return found


def _terms_of(size: Size) -> _Terms:
    """Every term, the constant among them under the empty monomial; a fresh dictionary."""
    if isinstance(size, int):
        return {(): size} if size else {}
    return {**size._terms, (): size._constant} if size._constant else dict(size._terms)


def _from_terms(terms: _Terms) -> Any:
    constant = terms.pop((), 0)
    return _polynomial(terms, constant)


def _within(coefficient: int) -> int:
    if not -LARGEST < coefficient < LARGEST:
        raise Inexact("an expression of dimensions grew too large")
    return coefficient


def _combine(first: Dim, second: Dim, factor: int) -> Any:
    terms = dict(first._terms)
    for monomial, coefficient in second._terms.items():
        total = terms.get(monomial, 0) + factor * coefficient
        if total:
            terms[monomial] = _within(total)
        else:
            del terms[monomial]
    return _polynomial(terms, first._constant + factor * second._constant)


def _scale(dim: Dim, factor: int) -> Any:
    if factor == 1:
        return dim
    if factor == 0:
        return 0
    terms = {monomial: _within(coefficient * factor) for monomial, coefficient in dim._terms.items()}
    return _polynomial(terms, dim._constant * factor)


def _multiply(first: Dim, second: Dim) -> Any:
    xs, ys = _terms_of(first), _terms_of(second)
    if len(xs) * len(ys) > 16 * MOST_TERMS:
        raise Inexact("an expression of dimensions grew too large")
    terms: _Terms = {}
    for x, left in xs.items():
        for y, right in ys.items():
            monomial = _join(x, y)
            terms[monomial] = _within(terms.get(monomial, 0) + left * right)
    return _from_terms({monomial: coefficient for monomial, coefficient in terms.items() if coefficient})


def _join(x: _Monomial, y: _Monomial) -> _Monomial:
    if not x or not y:
        return x or y
    if len(x) + len(y) > HIGHEST_DEGREE:
        raise Inexact("an expression of dimensions grew too large")
    return tuple(sorted(x + y, key=_key))


def _order(monomial: _Monomial) -> tuple[Any, ...]:
    """Graded lexicographic, greatest first: the order of printing, and the monomial order that division needs."""
    return -len(monomial), [atom.key for atom in monomial]


def _sorted_terms(dim: Dim) -> list[tuple[_Monomial, int]]:
    if len(dim._terms) == 1:
        return list(dim._terms.items())
    return sorted(dim._terms.items(), key=lambda item: _order(item[0]))


def _bare_atom(size: Size) -> _Atom | None:
    """The atom that ``size`` is, if it is one."""
    if isinstance(size, int) or size._constant or len(size._terms) != 1:
        return None
    ((monomial, coefficient),) = size._terms.items()
    return monomial[0] if coefficient == 1 and len(monomial) == 1 else None


def symbol(name: str, low: int | None = 0, high: int | None = None) -> Dim:
    """An unknown integer, ``low <= name <= high``; None: no bound. Equal name and bounds make equal symbols."""
    if low is not None and high is not None and low > high:
        raise ValueError(f"no integer lies between {low} and {high}")
    return _of(_atom("symbol", (name, low, high)))


def name_of(size: Size) -> str | None:
    """The name of a bare symbol; None for anything else."""
    atom = _bare_atom(size)
    return str(atom.args[0]) if atom is not None and atom.kind == "symbol" else None


def product(sizes: Iterable[Size]) -> Size:
    """The product; 1 for none."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def _divide_polynomials(first: Size, second: Dim) -> tuple[Size, Size]:
    """``quotient`` and ``rest`` with ``first == quotient * second + rest``, as much in the quotient as divides exactly."""
    rest, kept, quotient = _terms_of(first), dict[_Monomial, int](), dict[_Monomial, int]()
    divisor = _terms_of(second)
    lead = min(divisor, key=_order)
    for _ in range(MOST_TERMS):
        if not rest:
            return _from_terms(quotient), _from_terms(kept)
        monomial = min(rest, key=_order)
        factor = _monomial_quotient(monomial, lead)
        if factor is None or rest[monomial] % divisor[lead]:
            kept[monomial] = rest.pop(monomial)
            continue
        count = quotient[factor] = rest[monomial] // divisor[lead]
        for each, coefficient in divisor.items():
            target = _join(factor, each)
            total = _within(rest.get(target, 0) - count * coefficient)
            if total:
                rest[target] = total
            else:
                del rest[target]
    return 0, first


def _monomial_quotient(monomial: _Monomial, divisor: _Monomial) -> _Monomial | None:
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def exact_quotient(a: Size, b: Size) -> Size | None:
    """The polynomial ``q`` with ``q * b == a`` whatever the unknowns are; None where there is none (or ``b`` is 0)."""
    if isinstance(b, int):
        return _exact_quotient_by(a, b) if b else None
    quotient, rest = _divide_polynomials(a, b)
    return quotient if rest == 0 else None


def _exact_quotient_by(a: Size, b: int) -> Size | None:
    terms = _terms_of(a)
    if any(coefficient % b for coefficient in terms.values()):
        return None
    found: Size = _from_terms({monomial: coefficient // b for monomial, coefficient in terms.items()})
    return found


# ---- floor division, modulo, minimum and maximum


def _is_nonzero(size: Size) -> bool:
    return equal(size, 0) is False


def _floor_divide(a: Size, b: Size) -> Any:
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b
        if b == 0:
            raise Inexact(f"{a} divided by zero")
        return _divide_by(a, b) if b > 0 else _divide_by(-a, -b)
    # While the divisor may be 0 there may be no value, so nothing is simplified away.
    if not _is_nonzero(b):
        return _of(_atom("//", (a, b)))
    whole, rest = _divide_polynomials(a, b)
    if rest == 0 or _lies_below(rest, b):
        return whole
    rest, b = _without_content(rest, b)
    inner = _bare_atom(rest)
    if inner is not None and inner.kind == "//" and _is_nonzero(inner.args[1]) and less(0, b):
        return whole + _floor_divide(inner.args[0], inner.args[1] * b)
    return whole + _of(_atom("//", (rest, b)))


def _lies_below(rest: Size, b: Size) -> bool:
    return less_equal(0, rest) is True and less(rest, b) is True


def _without_content(a: Size, b: Dim) -> tuple[Size, Dim]:
    """Both without the integer factor that they share."""
    xs, ys = _terms_of(a), _terms_of(b)
    common = gcd(*xs.values(), *ys.values())
    if common == 1:
        return a, b
    divided: list[Any] = [_from_terms({monomial: each // common for monomial, each in terms.items()}) for terms in (xs, ys)]
    return divided[0], divided[1]


@lru_cache(4096)
def _divide_by(a: Dim, b: int) -> Any:
    """``a // b`` for a positive number: what divides comes out, the rest is reduced to one form."""
    whole, rest, common = dict[_Monomial, int](), dict[_Monomial, int](), b
    for monomial, coefficient in a._terms.items():
        if coefficient % b:
            rest[monomial] = coefficient
            common = gcd(common, coefficient)
        else:
            whole[monomial] = coefficient // b
    count, constant = divmod(a._constant, b)
    outside = _polynomial(whole, count)
    if not rest:
        return outside
    if common > 1:
        # floor((g*t + c) / (g*b)) == floor((t + floor(c/g)) / b), because t is an integer.
        b //= common
        constant //= common
        rest = {monomial: coefficient // common for monomial, coefficient in rest.items()}
    numerator: Dim = _polynomial(rest, constant)
    return outside + _divide_reduced(numerator, b)


def _divide_reduced(numerator: Dim, b: int) -> Any:
    lead = min(numerator._terms, key=_order) if len(numerator._terms) > 1 else next(iter(numerator._terms))
    if numerator._terms[lead] < 0:
        # floor(-x / b) == -floor((x + b - 1) / b), so that rounding up and rounding down meet in one form.
        return -_divide_by(b - 1 - numerator, b)
    nested = _nested_divisions(numerator)
    if len(nested) == 1:
        # floor((floor(x/c) + r) / b) == floor((x + c*r) / (c*b)), because r is an integer and b and c are positive.
        (atom,) = nested
        inside, divisor = atom.args
        return _floor_divide(inside + divisor * (numerator - _of(atom)), divisor * b)
    low, high = _interval(numerator)
    if low != -inf and high != inf and low // b == high // b:
        return int(low // b)
    return _of(_atom("//", (numerator, b)))


def _nested_divisions(dim: Dim) -> list[_Atom]:
    """The divisions by a number that are terms of their own."""
    return [
        monomial[0]
        for monomial, coefficient in dim._terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0].kind == "//" and _is_positive_number(monomial[0].args[1])
    ]


def _is_positive_number(size: Size) -> bool:
    return isinstance(size, int) and size > 0


def _modulo(a: Size, b: Size) -> Any:
    if isinstance(b, int):
        if isinstance(a, int):
            return a % b
        if b == 0:
            raise Inexact(f"{a} modulo zero")
        return _modulo_by(a, b) if b > 0 else -_modulo_by(-a, -b)
    if not _is_nonzero(b):
        return _of(_atom("%", (a, b)))
    _, rest = _divide_polynomials(a, b)
    if rest == 0 or _lies_below(rest, b):
        return rest
    return _of(_atom("%", (rest, b)))


@lru_cache(4096)
def _modulo_by(a: Dim, b: int) -> Any:
    unfolded: Size = _unfold_modulo(a, b)
    if isinstance(unfolded, int):
        return unfolded % b
    a = unfolded
    low, high = _interval(a)
    if low != -inf and high != inf and low // b == high // b:
        return a - int(low // b) * b
    rest = {monomial: coefficient % b for monomial, coefficient in a._terms.items() if coefficient % b}
    constant = a._constant % b
    if not rest:
        return constant
    # (g*t + g*c + e) mod (g*b) == g * ((t + c) mod b) + e for 0 <= e < g.
    common = gcd(b, *rest.values())
    count, extra = divmod(constant, common)
    numerator: Dim = _polynomial({monomial: coefficient // common for monomial, coefficient in rest.items()}, count)
    b //= common
    low, high = _interval(numerator)
    if low != -inf and high != inf and low // b == high // b:
        return (numerator - int(low // b) * b) * common + extra
    return _of(_atom("%", (numerator, b))) * common + extra


def _unfold_modulo(a: Size, b: int) -> Any:
    """``a`` with every term ``x % c``, where ``b`` divides ``c``, as ``x``: the same modulo ``b``."""
    if isinstance(a, int):
        return a
    for monomial, coefficient in a._terms.items():
        atom = monomial[0]
        if len(monomial) == 1 and atom.kind == "%" and isinstance(atom.args[1], int) and atom.args[1] % b == 0:
            return _unfold_modulo(a + coefficient * (atom.args[0] - _of(atom)), b)
    return a


def ceil_divide(a: Size, b: Size) -> Size:
    """``a / b`` rounded up."""
    quotient: Size = -((-a) // b)
    return quotient


def minimum(*sizes: Size) -> Size:
    """The least of one or more."""
    return _extreme("min", sizes)


def maximum(*sizes: Size) -> Size:
    """The greatest of one or more."""
    return _extreme("max", sizes)


def _extreme(kind: str, sizes: Sequence[Size]) -> Size:
    choose: Callable[..., int] = builtins.min if kind == "min" else builtins.max
    if all(isinstance(size, int) for size in sizes):
        return choose(sizes)
    return _simplified_extreme(kind, sizes) if _closeness.active else _known_extreme(kind, tuple(sizes))


def _simplified_extreme(kind: str, sizes: Sequence[Size]) -> Size:
    choose: Callable[..., int] = builtins.min if kind == "min" else builtins.max
    items: dict[Size, None] = {}
    for size in sizes:
        atom = _bare_atom(size)
        items.update(dict.fromkeys(atom.args if atom is not None and atom.kind == kind else (size,)))
    numbers = [item for item in items if isinstance(item, int)]
    left: list[Size] = [item for item in items if not isinstance(item, int)]
    left += [choose(numbers)] if numbers else []
    if len(left) > 16:
        raise Inexact(f"the {kind} of more than 16 dimensions")
    left = _undominated(kind, left)
    if len(left) == 1:
        return left[0]
    return _of(_atom(kind, tuple(sorted(left, key=_size_order))))


_known_extreme = lru_cache(4096)(_simplified_extreme)


def _undominated(kind: str, sizes: list[Size]) -> list[Size]:
    kept: list[Size] = []
    for size in sizes:
        if any(_comes_first(kind, other, size) for other in kept):
            continue
        kept = [other for other in kept if not _comes_first(kind, size, other)]
        kept.append(size)
    return kept


def _comes_first(kind: str, first: Size, second: Size) -> bool:
    return (less_equal(first, second) if kind == "min" else less_equal(second, first)) is True


def _size_order(size: Size) -> tuple[Any, ...]:
    if isinstance(size, int):
        return 1, [], size
    return 0, [(_order(monomial), coefficient) for monomial, coefficient in _sorted_terms(size)], size._constant


# ---- bounds

_Interval: TypeAlias = tuple[int | float, int | float]
_WIDEST = 2**512


def _widen(low: int | float, high: int | float) -> _Interval:
    """Bounds of bounded length; ints stay ints, so that nothing rounds."""
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


def _interval_product(x: _Interval, y: _Interval) -> _Interval:
    corners = [_times(a, b) for a in x for b in y]
    return _widen(min(corners), max(corners))


def _power_interval(x: _Interval, count: int) -> _Interval:
    result = x
    for _ in range(count - 1):
        result = _interval_product(result, x)
    if count % 2 == 0 and result[0] < 0:
        return 0, result[1]
    return result


def _monomial_interval(monomial: _Monomial) -> _Interval:
    result: _Interval = (1, 1)
    for atom, group in groupby(monomial):
        result = _interval_product(result, _power_interval((atom.low, atom.high), len(list(group))))
    return result


def _interval(size: Size) -> _Interval:
    """Interval arithmetic over the terms."""
    if isinstance(size, int):
        return size, size
    if size._range is None:
        low: int | float = size._constant
        high: int | float = size._constant
        for monomial, coefficient in size._terms.items():
            least, most = (monomial[0].low, monomial[0].high) if len(monomial) == 1 else _monomial_interval(monomial)
            if coefficient < 0:
                least, most = most, least
            low += coefficient * least
            high += coefficient * most
        size._range = _widen(low, high)
    return size._range


def _application_interval(kind: str, args: tuple[Any, ...]) -> _Interval:
    xs = [_interval(arg) for arg in args]
    if kind == "min":
        return min(low for low, _ in xs), min(high for _, high in xs)
    if kind == "max":
        return max(low for low, _ in xs), max(high for _, high in xs)
    if kind == "shift":
        ((low, high),) = xs
        return 0, high - low if low != -inf else inf
    parts = list(_nonzero_parts(xs[1]))
    if not parts:
        return -inf, inf
    if kind == "//":
        corners = [_divide_ends(x, y) for x in xs[0] for part in parts for y in part]
        return _widen(min(corners), max(corners))
    ranges = [_modulo_interval(xs[0], part) for part in parts]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _nonzero_parts(x: _Interval) -> Iterator[_Interval]:
    """Where a divisor lies: an application has a value only where its divisor is not 0."""
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


def _modulo_interval(a: _Interval, b: _Interval) -> _Interval:
    if b[0] > 0:
        return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
    return max(b[0] + 1, a[0]) if a[1] <= 0 else b[0] + 1, 0


def bounds(size: Size) -> tuple[int | None, int | None]:
    """A low and a high bound that hold whatever the unknowns are; None where none is known."""
    low, high = _interval(size)
    if isinstance(size, Dim) and _may_tighten(size):
        low, high = _lowest(size), -_lowest(-size)
    return None if low == -inf else int(low), None if high == inf else int(high)


def _may_tighten(dim: Dim) -> bool:
    """Whether more can be known than interval arithmetic sees: of atoms that depend on one another, and of products."""
    if len(dim._terms) == 1:
        ((monomial, _),) = dim._terms.items()
        return len(monomial) > 1 and dim._constant != 0
    return any(len(monomial) > 1 or monomial[0].kind != "symbol" for monomial in dim._terms)


class _Closeness(threading.local):
    """Whether a question is being looked at closely; those that this leads to are then answered by intervals alone."""

    active = False


_closeness = _Closeness()


def _lowest(dim: Dim) -> int | float:
    """A low bound from what atoms have to do with one another."""
    if _closeness.active:
        return _interval(dim)[0]
    return _lowest_closely(dim)


@lru_cache(4096)
def _lowest_closely(dim: Dim) -> int | float:
    found = [_interval(dim)[0]]
    _closeness.active = True
    try:
        found.append(_low(dim, [12]))
        strong = _strong(dim)
        if strong != dim:
            found.append(_low(strong, [12]))
    except Inexact:
        pass  # an intermediate expression grew too large
    finally:
        _closeness.active = False
    return max(found)


def _low(size: Size, budget: list[int]) -> int | float:
    low = _interval(size)[0]
    if isinstance(size, int) or not _may_tighten(size) or budget[0] <= 0:
        return low
    budget[0] -= 1
    if any(len(monomial) > 1 for monomial in size._terms):
        low = max(low, _interval(_shifted(size))[0])
    for monomial, coefficient in size._terms.items():
        atom = monomial[-1]
        if atom.kind == "//" and _is_positive_number(atom.args[1]) and monomial.count(atom) == 1:
            return max(low, _low_without_division(size, atom, budget))
        if atom.kind in ("min", "max") and len(monomial) == 1 and _stands_alone(size, atom):
            rest = size - coefficient * _of(atom)
            lows = [_low(rest + coefficient * arg, budget) for arg in atom.args]
            # The atom is one of its arguments, and on one side of all of them.
            return max(low, max(lows) if (atom.kind == "max") == (coefficient > 0) else min(lows))
    return low


def _low_without_division(dim: Dim, atom: _Atom, budget: list[int]) -> int | float:
    scaled = _without_division(dim, atom)
    low = -inf if scaled is None else _low(scaled, budget)
    return low if low == -inf else -(-low // atom.args[1])


def _stands_alone(dim: Dim, atom: _Atom) -> bool:
    return sum(atom in monomial for monomial in dim._terms) == 1


def _without_division(dim: Dim, atom: _Atom) -> Size | None:
    """``b * dim`` with ``b * (a // b)`` as ``a - a % b``; None where the division stands in a power."""
    a, b = atom.args
    inside, outside = dict[_Monomial, int](), dict[_Monomial, int]()
    for monomial, coefficient in dim._terms.items():
        count = monomial.count(atom)
        if count > 1:
            return None
        if count:
            inside[tuple(each for each in monomial if each is not atom)] = coefficient
        else:
            outside[monomial] = coefficient
    found: Size = _from_terms(inside) * (a - _of(_atom("%", (a, b)))) + b * _polynomial(outside, dim._constant)
    return found


def _shifted(dim: Dim) -> Size:
    """The polynomial in atoms measured from a bound that they have, so that terms of one sign are bounded by it."""

    def shift(atom: _Atom) -> Size:
        if atom.low == 0 or (atom.low == -inf and atom.high == inf):
            return _of(atom)
        over = _of(_atom("shift", (_of(atom),)))
        shifted: Size = over + int(atom.low) if atom.low != -inf else int(atom.high) - over
        return shifted

    return _replace(dim, shift)


# ---- questions


def equal(a: Size, b: Size) -> bool | None:
    """Whether ``a == b`` whatever the unknowns are (True), for none of their values (False), or not known (None)."""
    difference: Size = a - b
    if isinstance(difference, int):
        return difference == 0
    if _has_odd_constant(difference):
        return False
    low, high = _interval(difference)
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
    return None if _closeness.active else _equal_strongly(difference)


@lru_cache(4096)
def _equal_strongly(difference: Dim) -> bool | None:
    _closeness.active = True
    try:
        strong = _strong(difference)
    except Inexact:
        return None
    finally:
        _closeness.active = False
    if isinstance(strong, int):
        return strong == 0
    return False if _has_odd_constant(strong) else None


def _has_odd_constant(difference: Dim) -> bool:
    """Whether the terms share a factor that the constant lacks, so that they never cancel."""
    return difference._constant != 0 and difference._constant % gcd(*difference._terms.values()) != 0


def _is_at_least(size: Size, least: int) -> bool | None:
    low, high = _interval(size)
    if low >= least:
        return True
    if high < least:
        return False
    if isinstance(size, int) or not _may_tighten(size):
        return None
    if _lowest(size) >= least:
        return True
    return False if -_lowest(-size) < least else None


def less(a: Size, b: Size) -> bool | None:
    """Whether ``a < b``: always (True), never (False), or not known (None)."""
    return _is_at_least(b - a, 1)


def less_equal(a: Size, b: Size) -> bool | None:
    """Whether ``a <= b``: always (True), never (False), or not known (None)."""
    return _is_at_least(b - a, 0)


# ---- walks over an expression

_operations: dict[str, Callable[..., Size]] = {"//": _floor_divide, "%": _modulo, "min": minimum, "max": maximum}


def _replace(size: Size, value: Callable[[_Atom], Size]) -> Size:
    """The polynomial with each of its own atoms replaced."""
    if isinstance(size, int):
        return size
    result: Size = size._constant
    for monomial, coefficient in size._terms.items():
        result = result + product(map(value, monomial)) * coefficient
    return result


def _rebuild(size: Size, at_symbol: Callable[[_Atom], Size], at_result: Callable[[Size], Size] | None = None) -> Size:
    """The expression built again from new symbols; ``at_result`` sees what becomes of each application."""
    seen: dict[_Atom, Size] = {}

    def value(atom: _Atom) -> Size:
        if atom not in seen:
            if atom.kind == "symbol":
                seen[atom] = at_symbol(atom)
            elif atom.kind == "shift":
                seen[atom] = _of(atom)
            else:
                result = _operations[atom.kind](*(_replace(arg, value) for arg in atom.args))
                seen[atom] = at_result(result) if at_result else result
        return seen[atom]

    return _replace(size, value)


def _strong(dim: Size) -> Size:
    """A second, stronger normal form: modulo written through division, and every whole part taken out of it."""
    return _rebuild(dim, _of, lambda result: _replace(result, _strong_atom))


def _strong_atom(atom: _Atom) -> Size:
    if atom.kind not in ("//", "%") or not _is_positive_number(atom.args[1]):
        return _of(atom)
    a, b = atom.args
    whole: Dim | int = _from_terms({monomial: coefficient // b for monomial, coefficient in a._terms.items() if coefficient // b})
    quotient: Size = whole + (a - whole * b) // b
    result: Size = quotient if atom.kind == "//" else a - b * quotient
    return result


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """The expression with symbols replaced by name. Values are taken to lie within the bounds of their symbols."""
    return _rebuild(size, lambda atom: values.get(atom.args[0], _of(atom)))


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The number that the expression is. Raises Inexact where a symbol has no value, ZeroDivisionError as Python would."""
    result = substitute(size, {name: int(value) for name, value in values.items()})
    if isinstance(result, Dim):
        missing = ", ".join(str(each) for each in symbols(result))
        raise Inexact(f"no value is given for {missing}")
    return result


def symbols(size: Size) -> tuple[Dim, ...]:
    """Every symbol in the expression, in the order in which printing meets them."""
    found: dict[_Atom, Dim] = {}
    seen: set[_Atom] = set()

    def visit(inner: Size) -> None:
        for monomial, _ in _sorted_terms(inner) if isinstance(inner, Dim) else ():
            for atom in monomial:
                if atom.kind == "symbol":
                    found.setdefault(atom, _of(atom))
                elif atom not in seen:
                    seen.add(atom)
                    for arg in atom.args:
                        visit(arg)

    visit(size)
    return tuple(found.values())


# ---- text

_PLAIN_NAME = r"(?:[^\W\d]|\?[\w.])[\w.]*(?:\[\w+\])*"  # "?" begins the name of an unknown that no file named
_is_plain = re.compile(_PLAIN_NAME).fullmatch


def _written_name(atom: _Atom) -> str:
    name: str = atom.args[0]
    if _is_plain(name) and name not in ("min", "max"):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _full_name(atom: _Atom) -> str:
    return f"{atom.args[0]}\0{atom.args[1]}:{atom.args[2]}\0"


def _dim_text(size: Size, name: Callable[[_Atom], str]) -> str:
    if isinstance(size, int):
        return str(size)
    terms = _sorted_terms(size) + ([((), size._constant)] if size._constant else [])
    first = next((index for index, (_, coefficient) in enumerate(terms) if coefficient > 0), 0)
    terms.insert(0, terms.pop(first))
    text = _term_text(*terms[0], name, leads=True)
    for monomial, coefficient in terms[1:]:
        text += f" {'-' if coefficient < 0 else '+'} {_term_text(monomial, abs(coefficient), name)}"
    return text


def _term_text(monomial: _Monomial, coefficient: int, name: Callable[[_Atom], str], leads: bool = False) -> str:
    if not monomial:
        return str(coefficient)
    if coefficient == 1 and len(monomial) == 1:
        return _atom_text(monomial[0], name)
    factors = [] if abs(coefficient) == 1 else [str(abs(coefficient))]
    for atom, group in groupby(monomial):
        count = len(list(group))
        text = _atom_text(atom, name)
        text = f"({text})" if atom.kind in ("//", "%") else text
        factors.append(text if count == 1 else f"{text}**{count}")
    return ("-" if leads and coefficient < 0 else "") + "*".join(factors)


def _atom_text(atom: _Atom, name: Callable[[_Atom], str]) -> str:
    if atom.kind == "symbol":
        return name(atom)
    if atom.kind in ("//", "%"):
        return atom.kind.join(_operand_text(arg, name) for arg in atom.args)
    return f"{atom.kind}({', '.join(_dim_text(arg, name) for arg in atom.args)})"


def _operand_text(size: Size, name: Callable[[_Atom], str]) -> str:
    text = _dim_text(size, name)
    if isinstance(size, int):
        return text if size >= 0 else f"({text})"
    atom = _bare_atom(size)
    return text if atom is not None and atom.kind not in ("//", "%") else f"({text})"


def parse(text: str, name: Callable[[str], Size] = symbol) -> Size:
    """Read what ``str`` wrote: integers, names (in double quotes where they are not plain), ``+ - * // % **``, min, max.

    ``name`` makes a symbol of a name. Raises FormatError [dims.text] for anything else, in bounded time.
    """
    if len(text) > LONGEST_TEXT:
        raise FormatError("dims.text", f"an expression of {len(text)} characters is longer than {LONGEST_TEXT}")
    try:
        return _Parser(text, name).whole()
    except Inexact as error:
        raise FormatError("dims.text", f"{_shown(text)}: {error}") from None
    except ZeroDivisionError:
        raise FormatError("dims.text", f"{_shown(text)} divides by zero") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


_TOKEN = re.compile(
    rf'\s*(?:(?P<number>\d+)|(?P<name>{_PLAIN_NAME})|"(?P<quoted>(?:[^"\\]|\\["\\])*)"|(?P<sign>//|\*\*|[-+*%(),]))'
)


class _Parser:
    """Recursive descent; Python's precedence."""

    def __init__(self, text: str, name: Callable[[str], Size]) -> None:
        self.text = text
        self.name = name
        self.depth = 0
        self.tokens = list(self.read())[::-1]

    def read(self) -> Iterator[tuple[str, str]]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None or match.lastgroup is None:
                raise self.error(f"nothing that belongs here at character {position + 1}")
            yield match.lastgroup, match[match.lastgroup]
            position = match.end()

    def error(self, fact: str) -> FormatError:
        return FormatError("dims.text", f"{_shown(self.text)} is no expression of dimensions: {fact}")

    def take(self, *signs: str) -> str | None:
        if self.tokens and self.tokens[-1][0] == "sign" and self.tokens[-1][1] in signs:
            return self.tokens.pop()[1]
        return None

    def expect(self, sign: str) -> None:
        if self.take(sign) is None:
            raise self.error(f"{sign!r} is missing")

    def whole(self) -> Size:
        result = self.sum()
        if self.tokens:
            raise self.error(f"{self.tokens[-1][1]!r} is left over")
        return result

    def sum(self) -> Size:
        self.depth += 1
        if self.depth > 2 * DEEPEST:
            raise self.error("too many levels")
        result = self.term()
        while sign := self.take("+", "-"):
            other = self.term()
            result = self.checked(result + other if sign == "+" else result - other)
        self.depth -= 1
        return result

    def term(self) -> Size:
        result = self.factor()
        while sign := self.take("*", "//", "%"):
            other = self.factor()
            if sign == "*":
                result = self.checked(result * other)
            else:
                result = self.checked(result // other if sign == "//" else result % other)
        return result

    def factor(self) -> Size:
        negative = False
        while sign := self.take("-", "+"):
            negative ^= sign == "-"
        result = self.power()
        return -result if negative else result

    def power(self) -> Size:
        result = self.atom()
        if self.take("**"):
            exponent = self.number() if self.tokens and self.tokens[-1][0] == "number" else -1
            if not 0 <= exponent <= HIGHEST_DEGREE:
                raise self.error(f"an exponent is a number up to {HIGHEST_DEGREE}")
            result = self.checked(result**exponent)
        return result

    def number(self) -> int:
        digits = self.tokens.pop()[1]
        if len(digits) > 80 or not digits.isascii():
            raise self.error("a number is too long")
        return int(digits)

    def atom(self) -> Size:
        if self.take("("):
            result = self.sum()
            self.expect(")")
            return result
        if not self.tokens or self.tokens[-1][0] == "sign":
            raise self.error("a number or name is missing")
        if self.tokens[-1][0] == "number":
            return self.checked(self.number())
        kind, name = self.tokens.pop()
        if kind == "quoted":
            return self.name(re.sub(r"\\(.)", r"\1", name))
        return self.application(name) if name in ("min", "max") else self.name(name)

    def application(self, kind: str) -> Size:
        self.expect("(")
        args = [self.sum()]
        while self.take(","):
            args.append(self.sum())
        self.expect(")")
        return _extreme(kind, args)

    def checked(self, size: Size) -> Size:
        return _within(size) if isinstance(size, int) else size


# ---- arrays of dims


class Values(np.ndarray[Any, np.dtype[np.object_]]):
    """An array whose elements are ``int | Dim``. What numpy would compute inexactly or by ``==`` on it raises Inexact."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        function = _ufuncs.get(ufunc.__name__)
        out = options.pop("out", None)
        if function is None or method != "__call__" or options:
            raise Inexact(f"{ufunc.__name__} of dimensions")
        result = function(*inputs)
        if out is None:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in _movements:
            raise Inexact(f"{func.__name__} of dimensions")
        return super().__array_function__(func, types, args, kwargs)

    def __repr__(self) -> str:
        return f"Values({self.tolist()})"

    __str__ = __repr__


_movements = frozenset(
    "append array_split atleast_1d broadcast_arrays broadcast_to concatenate copy copyto delete empty_like expand_dims flip "
    "full_like hstack insert moveaxis ndim ones_like permute_dims put_along_axis ravel repeat reshape roll shape size split "
    "squeeze stack swapaxes take take_along_axis tile transpose vstack zeros_like".split()
)

Array: TypeAlias = np.ndarray[Any, Any]


def _small(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape of numbers with few elements: shape values are short, and a declared length is not to be trusted."""
    sizes = tuple(operator.index(size) for size in ((shape,) if isinstance(shape, (int, Dim, np.integer)) else shape))
    count = 1
    for size in sizes:
        count *= size
    if count > MOST_ELEMENTS:
        raise Inexact(f"{count} elements are too many for shape values")
    return sizes


def _values(x: Any) -> Array:
    """``x`` as an array of integers with unknowns; an array of truth values stays one."""
    if isinstance(x, Values):
        return x
    array: Array = x if isinstance(x, np.ndarray) else np.array(x, dtype=object if _is_empty(x) else None)
    _small(array.shape)
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind in "iu":
        return array.astype(object).view(Values)
    if array.dtype != object:
        raise Inexact(f"{array.dtype} is no type of dimensions")
    return _checked_elements(array)


def _is_empty(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and not len(x)


def _checked_elements(array: Array) -> Array:
    elements = array.reshape(-1).tolist()
    if elements and all(isinstance(element, (bool, np.bool_)) for element in elements):
        return array.astype(bool)
    result = np.empty(len(elements), dtype=object)
    for index, element in enumerate(elements):
        result[index] = _element(element)
    return result.reshape(array.shape).view(Values)


def _element(value: Any) -> Size:
    size = _operand(value)
    if size is None:
        raise Inexact(f"{value!r} is no dimension")
    return size


def _exact(value: Any) -> Size:
    """What no integer type holds would wrap around in a run."""
    if isinstance(value, Dim):
        return value
    if not -(2**63) <= value < 2**64:
        raise Inexact(f"{value} wraps around")
    return int(value)


def _elementwise(function: Callable[..., Any], count: int) -> Callable[..., Array]:
    """A function of sizes as one of arrays, with broadcasting, giving sizes."""
    ufunc = np.frompyfunc(lambda *xs: _exact(function(*xs)), count, 1)

    def apply(*xs: Any) -> Array:
        return _wrapped(ufunc(*_broadcast(*xs)))

    return apply


def _broadcast(*xs: Any) -> list[Array]:
    arrays = [_values(x).view(np.ndarray) for x in xs]
    _check_broadcast(arrays)
    return arrays


def _check_broadcast(arrays: Sequence[Array]) -> None:
    count = 1
    for array in arrays:
        count *= array.size
    shapes = {array.shape for array in arrays if array.shape}
    if len(shapes) > 1 or count > MOST_ELEMENTS:
        try:
            _small(np.broadcast_shapes(*shapes))
        except ValueError as error:
            raise Inexact(str(error)) from None


def _wrapped(result: Any) -> Array:
    if isinstance(result, np.ndarray):
        return result.view(Values)
    scalar = np.empty((), dtype=object)
    scalar[()] = result
    return scalar.view(Values)


def _comparison(function: Callable[..., bool | None], name: str) -> Callable[[Any, Any], Array]:
    """A question about two sizes as one about arrays; undecided raises Inexact."""
    ufunc = np.frompyfunc(lambda x, y: _decided(function(_element(x), _element(y)), x, name, y), 2, 1)

    def apply(x: Any, y: Any) -> Array:
        return np.asarray(ufunc(*_broadcast(x, y)), dtype=bool)

    return apply


def _truth(x: Any) -> Array:
    array = _values(x)
    if array.dtype == np.bool_:
        return array
    return _not_equal(array, 0)


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _divide_elements(x: Size, y: Size) -> Size:
    if not _is_nonzero(y):
        raise Inexact(f"{y} may be zero")
    result: Size = x // y
    return result


def _modulo_elements(x: Size, y: Size) -> Size:
    if not _is_nonzero(y):
        raise Inexact(f"{y} may be zero")
    result: Size = x % y
    return result


def _power_elements(x: Size, y: Size) -> Size:
    if isinstance(y, Dim) or not 0 <= y <= HIGHEST_DEGREE:
        raise Inexact(f"the power {y} of a dimension")
    result: Size = x**y
    return result


def _exact_elements(x: Size, y: Size) -> Size:
    quotient = exact_quotient(x, y) if _is_nonzero(y) else None
    if quotient is None:
        raise Inexact(f"{x} / {y} is no whole number")
    return quotient


_add = _elementwise(operator.add, 2)
_multiply_arrays = _elementwise(operator.mul, 2)
_minimum_arrays = _elementwise(minimum, 2)
_maximum_arrays = _elementwise(maximum, 2)
_equal = _comparison(equal, "==")
_not_equal = _comparison(lambda x, y: _not(equal(x, y)), "!=")
_less = _comparison(less, "<")
_less_equal = _comparison(less_equal, "<=")
_greater = _comparison(lambda x, y: less(y, x), ">")
_greater_equal = _comparison(lambda x, y: less_equal(y, x), ">=")


def _reduction(function: Callable[[Size, Size], Size], first: Size | None) -> Callable[..., Array]:
    """A reduction over ``axis`` (None: all); without a ``first`` value there must be an element."""

    def combine(row: Sequence[Any]) -> Size:
        if not row and first is None:
            raise Inexact("nothing to reduce")
        result: Size = _element(row[0]) if first is None else first
        for element in row[1:] if first is None else row:
            result = _exact(function(result, element))
        return result

    def apply(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        result = _reduced(_values(x).view(np.ndarray), axis, combine, keepdims)
        return result if dtype is None else xp.astype(result, dtype)

    return apply


_sum = _reduction(operator.add, 0)
_product = _reduction(operator.mul, 1)
_least = _reduction(minimum, None)
_greatest = _reduction(maximum, None)


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    axes = [operator.index(each) for each in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if not all(-rank <= each < rank for each in axes):
        raise Inexact(f"axes {axes} of an array of rank {rank}")
    return tuple(each % rank for each in axes)


def _reduced(x: Array, axis: Any, combine: Callable[[Sequence[Any]], Any], keepdims: bool) -> Array:
    axes = _axes(axis, x.ndim)
    kept = [each for each in range(x.ndim) if each not in axes]
    count = int(np.prod([x.shape[each] for each in axes], dtype=object)) if axes else 1
    rows = x.transpose([*kept, *axes]).reshape(int(np.prod([x.shape[each] for each in kept], dtype=object)) if kept else 1, count)
    result = np.empty(rows.shape[0], dtype=object)
    for index, row in enumerate(rows.tolist()):
        result[index] = combine(row)
    shape = [1 if each in axes else x.shape[each] for each in range(x.ndim) if keepdims or each not in axes]
    return result.reshape(shape).view(Values)


def _select(condition: Any, x: Any, y: Any) -> Array:
    truth = _truth(condition)
    first, second = _broadcast(x, y)
    _check_broadcast([truth, first, second])
    result = np.where(truth.view(np.ndarray), first, second)
    return result.view(Values) if result.dtype == object else result


def _moved(function: Callable[..., Any]) -> Callable[..., Array]:
    """A numpy function that moves elements, on one array of sizes or a sequence of them."""

    def apply(x: Any, /, *args: Any, **options: Any) -> Array:
        given = [_values(each).view(np.ndarray) for each in x] if isinstance(x, (list, tuple)) else _values(x).view(np.ndarray)
        try:
            result = function(given, *args, **options)
        except (ValueError, IndexError, TypeError) as error:
            raise Inexact(str(error)) from None
        return result.view(Values) if result.dtype == object else np.asarray(result)

    return apply


def fits(array: Any, low: int, high: int) -> bool | None:
    """Whether every element lies in ``low .. high``: surely (True), surely not all (False), or as far as is known (None)."""
    answer: bool | None = True
    for element in np.asarray(array).reshape(-1).tolist():
        least, most = bounds(element)
        if (least is not None and least > high) or (most is not None and most < low):
            return False
        if least is None or most is None or least < low or most > high:
            answer = None
    return answer


class _Namespace:
    """The array API standard on arrays of ``int | Dim``, as far as it is exact; everything else raises Inexact."""

    int8: ClassVar = np.dtype(np.int8)
    int16: ClassVar = np.dtype(np.int16)
    int32: ClassVar = np.dtype(np.int32)
    int64: ClassVar = np.dtype(np.int64)
    uint8: ClassVar = np.dtype(np.uint8)
    uint16: ClassVar = np.dtype(np.uint16)
    uint32: ClassVar = np.dtype(np.uint32)
    uint64: ClassVar = np.dtype(np.uint64)
    bool: ClassVar = np.dtype(np.bool_)
    newaxis: ClassVar = None

    add = staticmethod(_add)
    subtract = staticmethod(_elementwise(operator.sub, 2))
    multiply = staticmethod(_multiply_arrays)
    floor_divide = staticmethod(_elementwise(_divide_elements, 2))
    remainder = staticmethod(_elementwise(_modulo_elements, 2))
    divide = staticmethod(_elementwise(_exact_elements, 2))
    pow = staticmethod(_elementwise(_power_elements, 2))
    negative = staticmethod(_elementwise(operator.neg, 1))
    positive = staticmethod(_elementwise(operator.pos, 1))
    abs = staticmethod(_elementwise(operator.abs, 1))
    square = staticmethod(_elementwise(lambda x: x * x, 1))
    # Cut off at -1 and 1, an integer is its sign.
    sign = staticmethod(_elementwise(lambda x: maximum(minimum(x, 1), -1), 1))
    minimum = staticmethod(_minimum_arrays)
    maximum = staticmethod(_maximum_arrays)
    floor = ceil = trunc = round = positive

    equal = staticmethod(_equal)
    not_equal = staticmethod(_not_equal)
    less = staticmethod(_less)
    less_equal = staticmethod(_less_equal)
    greater = staticmethod(_greater)
    greater_equal = staticmethod(_greater_equal)

    sum = staticmethod(_sum)
    prod = staticmethod(_product)
    min = staticmethod(_least)
    max = staticmethod(_greatest)

    where = staticmethod(_select)
    expand_dims = staticmethod(_moved(np.expand_dims))
    squeeze = staticmethod(_moved(np.squeeze))
    flip = staticmethod(_moved(np.flip))
    roll = staticmethod(_moved(np.roll))
    moveaxis = staticmethod(_moved(np.moveaxis))
    permute_dims = staticmethod(_moved(np.transpose))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Inexact(f"{name} is not exact on dimensions")

    def asarray(self, x: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Array:
        array = _values(x)
        array = array.copy() if copy else array
        return array if dtype is None else self.astype(array, dtype)

    def astype(self, x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Array:
        """Integers that stay what they are. A dimension is taken to fit the 32- and 64-bit types, not the shorter ones."""
        target, array = np.dtype(dtype), _values(x)
        if target.kind == "b":
            return _truth(array)
        if target.kind == "O":
            return array
        if target.kind not in "iu":
            raise Inexact(f"dimensions as {target}")
        if array.dtype == np.bool_:
            return array.astype(np.int64).astype(object).view(Values)
        least, most = int(np.iinfo(target).min), int(np.iinfo(target).max)
        held = fits(array, least, most)
        if held is None and target.itemsize >= 4:
            held = least < 0 or all(_is_at_least(element, 0) for element in array.reshape(-1).tolist())
        if not held:
            raise Inexact(f"dimensions as {target} may wrap around")
        return array

    def concat(self, xs: Sequence[Any], /, *, axis: int | None = 0) -> Array:
        return _moved(np.concatenate)(_alike(xs), axis=axis)

    def stack(self, xs: Sequence[Any], /, *, axis: int = 0) -> Array:
        return _moved(np.stack)(_alike(xs), axis=axis)

    def reshape(self, x: Any, /, shape: Any, *, copy: Any = None) -> Array:
        return _moved(np.reshape)(_array(x), _small(shape))

    def broadcast_to(self, x: Any, /, shape: Any) -> Array:
        return _moved(np.broadcast_to)(_array(x), _small(shape)).copy()

    def broadcast_arrays(self, *xs: Any) -> list[Array]:
        arrays = [_array(x) for x in xs]
        _check_broadcast(arrays)
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return [self.broadcast_to(array, shape) for array in arrays]

    def take(self, x: Any, indices: Any, /, *, axis: int | None = None) -> Array:
        places = np.array([operator.index(each) for each in np.asarray(indices).reshape(-1).tolist()], dtype=np.int64)
        return _moved(np.take)(_array(x), places.reshape(np.shape(indices)), axis=axis)

    def take_along_axis(self, x: Any, indices: Any, /, *, axis: int = -1) -> Array:
        places = np.array([operator.index(each) for each in np.asarray(indices).reshape(-1).tolist()], dtype=np.int64)
        return _moved(np.take_along_axis)(_array(x), places.reshape(np.shape(indices)), axis=axis)

    def tile(self, x: Any, repetitions: Any, /) -> Array:
        array, counts = _array(x), _small(repetitions)
        _small((array.size, *counts))
        return _moved(np.tile)(array, counts)

    def repeat(self, x: Any, repeats: Any, /, *, axis: int | None = None) -> Array:
        array = _array(x)
        counts = [operator.index(each) for each in np.asarray(repeats).reshape(-1).tolist()]
        _small((array.size, builtins.max(builtins.sum(counts), 1)))
        return _moved(np.repeat)(array, counts if np.ndim(repeats) else counts[0], axis=axis)

    def full(self, shape: Any, value: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.asarray(self.broadcast_to(_array(value), shape), dtype=dtype)

    def zeros(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full(shape, 0, dtype=dtype)

    def ones(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full(shape, 1, dtype=dtype)

    def full_like(self, x: Any, /, value: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full(_array(x).shape, value, dtype=dtype)

    def zeros_like(self, x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full_like(x, 0, dtype=dtype)

    def ones_like(self, x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full_like(x, 1, dtype=dtype)

    def arange(self, start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Array:
        """Of numbers only."""
        first, last = (0, start) if stop is None else (start, stop)
        numbers = range(operator.index(first), operator.index(last), operator.index(step))
        _small((len(numbers),))
        return self.asarray(_values(list(numbers)), dtype=dtype)

    def clip(self, x: Any, /, min: Any = None, max: Any = None) -> Array:
        array = _values(x)
        array = array if min is None else _maximum_arrays(array, min)
        return array if max is None else _minimum_arrays(array, max)

    def cumulative_sum(
        self, x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
    ) -> Array:
        array = _values(x).view(np.ndarray)
        if axis is None and array.ndim != 1:
            raise Inexact("an axis is needed")
        rows = np.moveaxis(array, axis or 0, 0)
        sums: list[Array] = [np.full(rows.shape[1:], 0, dtype=object).view(Values)]
        for row in rows:
            sums.append(_add(sums[-1], row))
        kept = sums if include_initial else sums[1:]
        if not kept:
            return array.view(Values)
        return self.asarray(np.moveaxis(self.stack(kept), 0, axis or 0), dtype=dtype)

    def logical_and(self, x: Any, y: Any, /) -> Array:
        return np.logical_and(_truth(x), _truth(y))

    def logical_or(self, x: Any, y: Any, /) -> Array:
        return np.logical_or(_truth(x), _truth(y))

    def logical_xor(self, x: Any, y: Any, /) -> Array:
        return np.logical_xor(_truth(x), _truth(y))

    def logical_not(self, x: Any, /) -> Array:
        return np.logical_not(_truth(x))

    def any(self, x: Any, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Array:
        return np.asarray(np.any(_truth(x), axis=axis, keepdims=keepdims))

    def all(self, x: Any, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Array:
        return np.asarray(np.all(_truth(x), axis=axis, keepdims=keepdims))


def _array(x: Any) -> Array:
    return _values(x)


def _alike(xs: Sequence[Any]) -> list[Array]:
    return [_values(x) for x in xs]


xp = _Namespace()

_ufuncs: dict[str, Callable[..., Array]] = {
    "absolute": xp.abs,
    "power": xp.pow,
    **{
        name: getattr(xp, name)
        for name in (
            "add subtract multiply floor_divide remainder divide negative positive square sign minimum maximum equal not_equal "
            "less less_equal greater greater_equal logical_and logical_or logical_xor logical_not"
        ).split()
    },
}
