"""Dim, a polynomial over atoms, and its addition, subtraction and multiplication."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from dovetail.errors import printable
from dovetail.ir.host.forks import ForkLock
from dovetail.ir.symbolic import intervals
from dovetail.ir.symbolic.intervals import Interval, interval

MAX_COEFFICIENT = 2**256  # of a coefficient
MAX_TERMS = 256
MAX_DEGREE = 64
MAX_DEPTH = 48  # levels of nested applications
MAX_WEIGHT = 4096  # symbols and applications in the text of one atom


class Inexact(Exception):
    """Inexact is raised if an answer depends on the values of unknowns, or an expression exceeds the limits."""


class Atom:
    """Atom is a symbol or an application that does not simplify. Atoms are interned: equal atoms are the same object."""

    __slots__ = ("__weakref__", "_key", "args", "depth", "high", "kind", "low", "weight")

    kind: str  # "symbol", "//", "%", "min", "max", "broadcast", or "shift" (only in bounds analysis: atom minus lower bound)
    args: tuple[Any, ...]  # for a symbol: name, low, high
    low: int | float
    high: int | float
    depth: int
    weight: int
    _key: tuple[int, str, str] | None

    @property
    def key(self) -> tuple[int, str, str]:
        """The sort key of an atom: symbols are sorted by name, and applications by text after all symbols."""
        if self._key is None:
            if self.kind == "symbol":
                self._key = (0, self.args[0], f"{self.args[1]}:{self.args[2]}")
            else:
                self._key = (1, parse_print.atom_text(self, parse_print.full_name), "")
        return self._key

    def __reduce__(self) -> tuple[Any, ...]:
        return intern_atom, (self.kind, self.args)


Monomial: TypeAlias = tuple[Atom, ...]  # sorted by key, repeated where it is a power
Terms: TypeAlias = dict[Monomial, int]

_table: WeakValueDictionary[tuple[str, tuple[Any, ...]], Atom] = WeakValueDictionary()
_lock = ForkLock()
_key = operator.attrgetter("key")


def intern_atom(kind: str, args: tuple[Any, ...]) -> Atom:
    atom = _table.get((kind, args))
    if atom is not None:
        return atom
    with _lock:
        atom = _table.get((kind, args))
        if atom is None:
            atom = _table[kind, args] = _new_atom(kind, args)
    return atom


def _new_atom(kind: str, args: tuple[Any, ...]) -> Atom:
    atom = Atom()
    atom.kind, atom.args, atom._key = kind, args, None
    if kind == "symbol":
        _, low, high = args
        atom.low, atom.high = -inf if low is None else low, inf if high is None else high
        atom.depth, atom.weight = 0, 1
        return atom
    inner = [item for arg in args if isinstance(arg, Dim) for monomial in arg._terms for item in monomial]
    atom.depth = 1 + max(item.depth for item in inner)
    atom.weight = 1 + sum(item.weight for item in inner)
    if atom.depth > MAX_DEPTH or atom.weight > MAX_WEIGHT:
        raise Inexact("an expression of dimensions grew too large")
    atom.low, atom.high = intervals.interval_of_application(kind, [interval(arg) for arg in args])
    return atom


class Dim:
    """Dim is an immutable integer expression of unknowns.

    ``==`` and ``hash`` compare normal forms; :func:`equal` compares values. ``+ - * // % **`` and ``abs`` take and return
    ``int | Dim``. A truth value or an order comparison that the bounds do not decide, and a conversion to a number, raise
    :class:`Inexact`.
    """

    __slots__ = ("_constant", "_hash", "_range", "_terms", "_text")

    _terms: Terms
    _constant: int
    _hash: int | None
    _text: str | None
    _range: Interval | None

    def __init__(self) -> None:
        raise TypeError("a Dim must be created by dovetail.ir.symbolic.symbol(name)")

    def __add__(self, other: object) -> Any:
        if type(other) is int:
            return polynomial(self._terms, self._constant + other) if other else self
        if isinstance(other, Dim):
            return _combine(self, other, 1)
        number = integer(other)
        return NotImplemented if number is None else self + number

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        if type(other) is int:
            return polynomial(self._terms, self._constant - other) if other else self
        if isinstance(other, Dim):
            return _combine(self, other, -1)
        number = integer(other)
        return NotImplemented if number is None else self + -number

    def __rsub__(self, other: object) -> Any:
        number = integer(other)
        return NotImplemented if number is None else _scale(self, -1) + number

    def __mul__(self, other: object) -> Any:
        if type(other) is int:
            return _scale(self, other)
        if isinstance(other, Dim):
            return _multiply(self, other)
        number = integer(other)
        return NotImplemented if number is None else _scale(self, number)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        negated: Dim = _scale(self, -1)
        return negated

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> int | Dim:
        return min_max.maximum(self, -self)

    def __floordiv__(self, other: object) -> Any:
        size = operand(other)
        return NotImplemented if size is None else division.floor_divide(self, size)

    def __rfloordiv__(self, other: object) -> Any:
        number = integer(other)
        return NotImplemented if number is None else division.floor_divide(number, self)

    def __mod__(self, other: object) -> Any:
        size = operand(other)
        return NotImplemented if size is None else division.modulo(self, size)

    def __rmod__(self, other: object) -> Any:
        number = integer(other)
        return NotImplemented if number is None else division.modulo(number, self)

    def __divmod__(self, other: object) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Any, Any]:
        return other // self, other % self

    def __pow__(self, exponent: object) -> Any:
        number = integer(exponent)
        if number is None:
            return NotImplemented
        if not 0 <= number <= MAX_DEGREE:
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

    def __lt__(self, other: Dim | int) -> bool:
        return NotImplemented if operand(other) is None else demand_answer(compare.less(self, other), self, "<", other)

    def __le__(self, other: Dim | int) -> bool:
        return NotImplemented if operand(other) is None else demand_answer(compare.less_equal(self, other), self, "<=", other)

    def __gt__(self, other: Dim | int) -> bool:
        return NotImplemented if operand(other) is None else demand_answer(compare.less(other, self), self, ">", other)

    def __ge__(self, other: Dim | int) -> bool:
        return NotImplemented if operand(other) is None else demand_answer(compare.less_equal(other, self), self, ">=", other)

    def __bool__(self) -> bool:
        return not demand_answer(compare.equal(self, 0), self, "==", 0)

    def __int__(self) -> int:
        raise Inexact(f"{self} is not known as a number")

    def __index__(self) -> int:
        raise Inexact(f"{self} is not known as a number")

    def __float__(self) -> float:
        raise Inexact(f"{self} is not known as a number")

    def __str__(self) -> str:
        if self._text is None:
            self._text = parse_print.dim_text(self, parse_print.written_name)
        return self._text

    def __repr__(self) -> str:
        return printable(str(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: object) -> Dim:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (tuple(self._terms.items()), self._constant)


Size: TypeAlias = int | Dim


def _restore(terms: Iterable[tuple[Monomial, int]], constant: int) -> Size:
    size: Size = polynomial({tuple(sorted(monomial, key=_key)): coefficient for monomial, coefficient in terms}, constant)
    return size


def integer(value: object) -> int | None:
    try:
        return int(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        return None


def operand(value: object) -> Size | None:
    return value if isinstance(value, Dim) else integer(value)


def demand_answer(answer: bool | None, first: object, relation: str, second: object) -> bool:
    if answer is None:
        raise Inexact(f"whether {first} {relation} {second} is not known")
    return answer


# ---- polynomials


def polynomial(terms: Terms, constant: int) -> Any:
    """Return the polynomial of ``terms`` and ``constant``; an ``int`` if ``terms`` is empty.

    ``terms`` has no zero coefficients and is not copied.
    """
    if not terms:
        return constant
    if not -MAX_COEFFICIENT < constant < MAX_COEFFICIENT or len(terms) > MAX_TERMS:
        raise Inexact("an expression of dimensions grew too large")
    dim: Dim = object.__new__(Dim)
    dim._terms = terms
    dim._constant = constant
    dim._hash = dim._text = dim._range = None
    return dim


def dim_of(atom: Atom) -> Dim:
    dim: Dim = polynomial({(atom,): 1}, 0)
    return dim


def terms_of(size: Size) -> Terms:
    """Return a new dictionary of all terms, with the constant under the empty monomial."""
    if isinstance(size, int):
        return {(): size} if size else {}
    return {**size._terms, (): size._constant} if size._constant else dict(size._terms)


def from_terms(terms: Terms) -> Any:
    constant = terms.pop((), 0)
    return polynomial(terms, constant)


def check_coefficient(coefficient: int) -> int:
    if not -MAX_COEFFICIENT < coefficient < MAX_COEFFICIENT:
        raise Inexact("an expression of dimensions grew too large")
    return coefficient


def _combine(first: Dim, second: Dim, factor: int) -> Any:
    terms = dict(first._terms)
    for monomial, coefficient in second._terms.items():
        total = terms.get(monomial, 0) + factor * coefficient
        if total:
            terms[monomial] = check_coefficient(total)
        else:
            del terms[monomial]
    return polynomial(terms, first._constant + factor * second._constant)


def _scale(dim: Dim, factor: int) -> Any:
    if factor == 1:
        return dim
    if factor == 0:
        return 0
    terms = {monomial: check_coefficient(coefficient * factor) for monomial, coefficient in dim._terms.items()}
    return polynomial(terms, dim._constant * factor)


def _multiply(first: Dim, second: Dim) -> Any:
    xs, ys = terms_of(first), terms_of(second)
    if len(xs) * len(ys) > 16 * MAX_TERMS:
        raise Inexact("an expression of dimensions grew too large")
    terms: Terms = {}
    for x, x_coefficient in xs.items():
        for y, y_coefficient in ys.items():
            monomial = join(x, y)
            terms[monomial] = check_coefficient(terms.get(monomial, 0) + x_coefficient * y_coefficient)
    return from_terms({monomial: coefficient for monomial, coefficient in terms.items() if coefficient})


def join(x: Monomial, y: Monomial) -> Monomial:
    if not x or not y:
        return x or y
    if len(x) + len(y) > MAX_DEGREE:
        raise Inexact("an expression of dimensions grew too large")
    return tuple(sorted(x + y, key=_key))


def order(monomial: Monomial) -> tuple[Any, ...]:
    """Return the sort key of a monomial in graded lexicographic order, greatest first, for printing and for division."""
    return -len(monomial), [atom.key for atom in monomial]


def sorted_terms(dim: Dim) -> list[tuple[Monomial, int]]:
    if len(dim._terms) == 1:
        return list(dim._terms.items())
    return sorted(dim._terms.items(), key=lambda item: order(item[0]))


def bare_atom(size: Size) -> Atom | None:
    """Return the atom of a size that consists of a single atom; None for any other size."""
    if isinstance(size, int) or size._constant or len(size._terms) != 1:
        return None
    ((monomial, coefficient),) = size._terms.items()
    return monomial[0] if coefficient == 1 and len(monomial) == 1 else None


def apply_operation(kind: str, args: Sequence[Size]) -> Size:
    """Apply ``//``, ``%``, ``min``, ``max`` or ``broadcast`` to the arguments and simplify."""
    if kind in ("//", "%"):
        size: Size = (division.floor_divide if kind == "//" else division.modulo)(*args)
        return size
    return broadcasting.broadcast_sizes(args) if kind == broadcasting.KIND else min_max.extreme(kind, args)


def is_positive_number(size: Size) -> bool:
    return isinstance(size, int) and size > 0


def symbol(name: str, low: int | None = 0, high: int | None = None) -> Dim:
    """Return the symbol ``name``, an unknown integer with ``low <= name <= high``; a bound of None stands for no bound.

    Symbols of equal name and bounds are equal.
    """
    if low is not None and high is not None and low > high:
        raise ValueError(f"the lower bound ({low}) must not exceed the upper bound ({high})")
    return dim_of(intern_atom("symbol", (name, low, high)))


def name_of(size: Size) -> str | None:
    """Return the name of a size that is a single symbol; None for any other size."""
    atom = bare_atom(size)
    return str(atom.args[0]) if atom is not None and atom.kind == "symbol" else None


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes; 1 if there are no sizes."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


# Deferred to the end: these modules define Dim's operators in terms of Dim.
from dovetail.ir.symbolic import broadcasting, compare, division, min_max, parse_print  # noqa: E402
