"""Sizes: polynomials with integer coefficients over symbols, and what holds of them for all values of the symbols."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import Any, TypeAlias, Union
from urllib.parse import quote

SizeLike: TypeAlias = Union["Size", int]
Monomial: TypeAlias = tuple[str, ...]
MAX_TERMS = 256
"""Maximum number of terms of a size; larger ones are refused."""


MAX_COEFFICIENT = 1 << 128
"""Maximum magnitude of a coefficient; larger ones are refused."""
MAX_DEGREE = 64
"""Maximum number of factors of a term."""
MAX_NAME = 1 << 14
"""Maximum number of characters of an atom."""


class Unproved(Exception):
    """Unproved means that a fact does not follow; the step that needs it is refused."""


class Size:
    """Size is a polynomial: ``terms`` maps sorted tuples of atoms to coefficients other than 0.

    An atom is a symbol or the text of an operation that is no polynomial, such as a quotient. Two sizes are equal for all values
    of the symbols if their terms are equal; the converse does not hold.
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {key: value for key, value in terms.items() if value}
        numbers = self.terms.values()
        if (
            len(numbers) > MAX_TERMS
            or any(abs(each) > MAX_COEFFICIENT for each in numbers)
            or max(map(len, self.terms), default=0) > MAX_DEGREE
        ):
            raise Unproved("a size has too many or too large terms")
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.terms == ({(): other} if other else {})
        return isinstance(other, Size) and self.terms == other.terms

    def __add__(self, other: SizeLike) -> Size:
        terms = dict(self.terms)
        for key, value in size(other).terms.items():
            terms[key] = terms.get(key, 0) + value
        return Size(terms)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Size({key: -value for key, value in self.terms.items()})

    def __sub__(self, other: SizeLike) -> Size:
        return self + -size(other)

    def __rsub__(self, other: SizeLike) -> Size:
        return size(other) - self

    def __mul__(self, other: SizeLike) -> Size:
        terms: dict[Monomial, int] = {}
        for key, value in self.terms.items():
            for key2, value2 in size(other).terms.items():
                both = tuple(sorted(key + key2)) if key and key2 else key or key2
                terms[both] = terms.get(both, 0) + value * value2
        return Size(terms)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return " + ".join("*".join([str(value), *key]) for key, value in sorted(self.terms.items())) or "0"

    @property
    def number(self) -> int | None:
        """The integer that the size is; None if it has symbols."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def atoms(self) -> set[str]:
        return {atom for key in self.terms for atom in key}


ZERO, ONE = Size({}), Size({(): 1})


def size(value: SizeLike) -> Size:
    return value if isinstance(value, Size) else _number(int(value))


@lru_cache(1 << 12)
def _number(value: int) -> Size:
    return Size({(): value})


def product(sizes: Iterable[SizeLike]) -> Size:
    result = ONE
    for each in sizes:
        result = result * each
    return result


class Symbols:
    """Symbols holds the minimum and the maximum values of atoms, and decides what follows from these."""

    def __init__(self) -> None:
        self.minimum: dict[str, int | None] = {}
        self.maximum: dict[str, Size] = {}
        self._operations: dict[str, tuple[str, list[Size]]] = {}
        self.memo: dict[Any, Any] = {}
        """Results of methods; a bound that becomes known later only adds to what follows."""

    def symbol(self, name: str, minimum: int | None = 0, maximum: SizeLike | None = None) -> Size:
        """Return a symbol. ``minimum`` is None where it may be any integer; ``maximum`` is a size, or None."""
        if len(name) > MAX_NAME:
            raise Unproved("an expression of sizes is too long")
        self.minimum.setdefault(name, minimum)
        if maximum is not None:
            self.maximum.setdefault(name, size(maximum))
        return Size({(name,): 1})

    def set_minimum(self, name: str, minimum: int | None) -> None:
        """Lower the minimum value of a symbol, which two models may bound differently."""
        known = self.minimum.get(name, minimum)
        self.minimum[name] = None if known is None or minimum is None else min(known, minimum)
        self.memo.clear()

    def is_never_negative(self, value: SizeLike) -> bool:
        """Return whether a size is 0 or more for all values of its symbols; False also where this does not follow."""
        value = size(value)
        if value not in self.memo:
            self.memo[value] = self._is_bounded(value)
        return bool(self.memo[value])

    def _is_bounded(self, value: Size) -> bool:
        for _ in range(8):
            shifted = self._shift_to_minimum(value)
            if shifted is None:
                return False
            if all(coefficient >= 0 for coefficient in shifted.terms.values()):
                return True
            bounded = self._replace_by_maximum(value) or self._replace_quotient(value)
            if bounded is None:
                return False
            value = bounded
        return False

    def _shift_to_minimum(self, value: Size) -> Size | None:
        """Write a size over symbols that are 0 or more; None where a symbol has no minimum value."""
        result = ZERO
        for key, coefficient in value.terms.items():
            factor = Size({(): coefficient})
            for atom in key:
                minimum = self.minimum.get(atom)
                if minimum is None:
                    return None
                factor = factor * Size({(atom,): 1, (): minimum})
            result = result + factor
        return result

    def _replace_by_maximum(self, value: Size) -> Size | None:
        """Replace an atom of terms below 0 by its maximum value; the result is at most ``value``. None where there is none."""
        for key, coefficient in value.terms.items():
            if coefficient > 0 or not key:
                continue
            for atom in key:
                if atom not in self.maximum or any(other.count(atom) > 1 for other in value.terms):
                    continue
                # Linear in the atom: value = rest + slope * atom, where the slope must be at most 0.
                slope = Size({tuple(_without(k, atom)): v for k, v in value.terms.items() if atom in k})
                negated = self._shift_to_minimum(-slope)
                if negated is None or any(v < 0 for v in negated.terms.values()):
                    continue
                rest = Size({k: v for k, v in value.terms.items() if atom not in k})
                return rest + slope * self.maximum[atom]
        return None

    def _replace_quotient(self, value: Size) -> Size | None:
        """Replace a term -c * (x // n) by its least value -(x // (n / c)), if c divides n. None where there is none."""
        for key, coefficient in value.terms.items():
            name, xs = self._operations.get(key[0] if len(key) == 1 else "", ("", []))
            divisor = (xs[1].number or 0) if name == "//" else 0
            if coefficient < -1 and divisor > 0 and divisor % coefficient == 0:
                return value - Size({key: coefficient}) - self.operation("//", xs[0], divisor // -coefficient)
        return None

    def is_less(self, first: SizeLike, second: SizeLike) -> bool:
        return self.is_never_negative(size(second) - first - 1)

    def is_less_or_equal(self, first: SizeLike, second: SizeLike) -> bool:
        return self.is_never_negative(size(second) - first)

    def divide(self, value: SizeLike, divisor: SizeLike) -> tuple[Size, Size]:
        """Return quotient and remainder, rounded down, of sizes of which the divisor is 1 or more wherever it is used.

        The terms that the divisor divides are the quotient, if the rest is from 0 to the divisor less 1. Raises Unproved.
        """
        value, divisor = size(value), size(divisor)
        if divisor == 1 or value == divisor:
            return (value, ZERO) if divisor == 1 else (ONE, ZERO)
        if value.number is not None and (divisor.number or 0) > 0:
            high, low = divmod(value.number, divisor.number)  # type: ignore[type-var]
            return size(high), size(low)
        quotient, rest = self._reduce(value, divisor)
        if rest != 0 and not self._is_within(rest, divisor):
            raise Unproved(f"({value}) // ({divisor})")
        return quotient, rest

    def _reduce(self, value: Size, divisor: Size) -> tuple[Size, Size]:
        """Move the terms that the divisor divides to a quotient; value = quotient * divisor + rest."""
        number = divisor.number
        if number is not None:
            if number <= 0:
                raise Unproved("a divisor must be 1 or more")
            quotient = Size({key: each // number for key, each in value.terms.items() if key and each % number == 0})
            rest = value - quotient * number
            if not self._is_within(rest, divisor):
                quotient = quotient + rest.terms.get((), 0) // number
            return quotient, value - quotient * number
        quotient, rest = ZERO, value
        lead, leading = max(divisor.terms.items(), key=lambda item: (len(item[0]), item[0]))
        for _ in range(MAX_TERMS):
            found = next(((key, each) for key, each in rest.terms.items() if each % leading == 0 and _contains(key, lead)), None)
            if found is None:
                break
            part = Size({_quotient(found[0], lead): found[1] // leading})
            quotient, rest = quotient + part, rest - part * divisor
        return quotient, rest

    def _factor_out(self, value: Size, divisor: Size) -> tuple[int, Size, Size] | None:
        """Return c, x and r with value = c * x + r, where c divides the divisor, and r is from 0 to c - 1; None without any."""
        number = divisor.number or 0
        for factor in sorted(
            {each for key, each in value.terms.items() if key and each > 1 and number % each == 0}, reverse=True
        ):
            high = Size({key: each // factor for key, each in value.terms.items() if each % factor == 0})
            if self._is_within(value - high * factor, size(factor)):
                return factor, high, value - high * factor
        return None

    def is_multiple(self, value: Size, divisor: Size) -> bool:
        """Return whether a size is a polynomial times another one."""
        return self._reduce(value, divisor)[1] == 0

    def parts_of(self, value: Size, divisor: Size) -> tuple[Size, Size]:
        """Return quotient and remainder as :meth:`divided` does, as atoms where they do not follow."""
        try:
            return self.divide(value, divisor)
        except Unproved:
            quotient, value = self._reduce(value, divisor)
            if (parts := self._factor_out(value, divisor)) is not None:
                factor, value, low = parts
                high, rest = self.parts_of(value, size((divisor.number or 0) // factor))
                return quotient + high, rest * factor + low
            text = f"%({value!r}, {divisor!r})"
            self._operations[text] = "%", [value, divisor]
            return quotient + self.operation("//", value, divisor), self.symbol(text, 0, divisor - 1)

    def join(self, value: Size) -> Size:
        """Write divisor * (x // divisor) + x % divisor as x."""
        for key, coefficient in value.terms.items():
            for atom in key:
                name, xs = self._operations.get(atom, ("", []))
                if name != "%":
                    continue
                rest = Size({_quotient(key, (atom,)): coefficient})
                high = rest * xs[1] * self.operation("//", *xs)
                if all(value.terms.get(each) == number for each, number in high.terms.items()):
                    return self.join(value - high - rest * Size({(atom,): 1}) + rest * xs[0])
        return value

    def _is_within(self, value: Size, divisor: Size) -> bool:
        return self.is_never_negative(value) and self.is_less(value, divisor)

    # Operations that are no polynomials

    def operation(self, name: str, *operands: SizeLike) -> Size:
        """Return a quotient "//", remainder "%", "min", "max" or "broadcast" of sizes."""
        key = (name, *operands)
        if key not in self.memo:
            self.memo[key] = self._operation(name, *operands)
        return self.memo[key]  # type: ignore[no-any-return]

    def _without_minimum(self, value: Size) -> list[Size]:
        """Return the operands of the max that x - min(x, y) is: x - y and 0; ``value`` for another size."""
        for atom in value.atoms():
            name, xs = self._operations.get(atom, ("", []))
            rest = value + Size({(atom,): 1})
            if name == "min" and value.terms.get((atom,)) == -1 and rest in xs:
                return [rest - x for x in xs]
        return [value]

    def _operation(self, name: str, *operands: SizeLike) -> Size:
        xs = [size(x) for x in operands]
        if name in ("min", "max", "broadcast"):
            xs = [each for x in xs for each in self.operands_of(name, x)]
            if name == "max":
                xs = [each for x in xs for each in self._without_minimum(x)]
            if name == "min" and any(atom not in self._operations and x == Size({(atom,): 1}) for x in xs for atom in x.atoms()):
                # The size of an axis is below 2**31 - 1, as for the end of a Slice.
                xs = [x for x in xs if (x.number or 0) < 2**31 - 1]
            known = [x for x in xs if x.number is not None]
            if len(known) > 1 and name != "broadcast":
                xs = [x for x in xs if x.number is None] + [size((min if name == "min" else max)(x.number or 0 for x in known))]
        numbers = [x.number for x in xs]
        if name in ("//", "%"):
            try:
                if numbers[1] != 0 and self.is_less(0, xs[1]):
                    return self.divide(*xs)[0 if name == "//" else 1]
            except Unproved:
                pass
            if (numbers[1] or 0) > 0:
                quotient, rest = self._reduce(*xs)
                if quotient != 0:
                    return (quotient if name == "//" else ZERO) + self.operation(name, rest, xs[1])
                if (parts := self._factor_out(*xs)) is not None:
                    factor, value, low = parts
                    found = self.operation(name, value, (numbers[1] or 0) // factor)
                    return found if name == "//" else found * factor + low
                if name == "//" and (inner := self._inner_quotient(rest)) is not None:
                    # (x // m + r) // n is (x + r * m) // (m * n).
                    value, divisor, atom = inner
                    return self.operation("//", value + (rest - atom) * divisor, divisor * xs[1])
            elif name == "//":
                quotient, rest = self._reduce(*xs)
                if rest == 0:
                    # Where the divisor is 0, the quotient is not defined.
                    return quotient
                common = gcd(*xs[0].terms.values(), *xs[1].terms.values())
                if common > 1:
                    return self.operation(name, *(Size({key: each // common for key, each in x.terms.items()}) for x in xs))
        elif name == "broadcast":
            others = list(dict.fromkeys(x for x in xs if x != 1))
            if len(others) <= 1:
                return others[0] if others else ONE
            if fixed := [x for x in others if x.number is not None]:
                return fixed[0]
            # A multiple of 2 or more is not 1: it is the size of the result.
            others = [x for x in others if gcd(*x.terms.values()) > 1] or others
            # min(n, 64) and n fit only where they are equal: 64 is neither 1 nor, where it is the smaller one, n.
            # The extents max(n, 0) and min(1, n) fit n, which is an extent, and give n.
            same = {
                x for x in others for y in others if x in (self.operation("max", y, 0), self.operation("min", 1, y)) and x != y
            }
            others = [x for x in others if x not in same and not any(self.is_minimum_of(x, y) for y in others if y is not x)]
            if len(others) == 1:
                return others[0]
            xs = others
        elif name in ("min", "max"):
            xs = list(dict.fromkeys(xs))
            for x in xs:
                if all(self.is_less_or_equal(x, y) if name == "min" else self.is_less_or_equal(y, x) for y in xs):
                    return x
        if name in ("min", "max", "broadcast"):
            xs = sorted(xs, key=repr)
        is_remainder = name == "%" and self.is_less(0, xs[1])
        holds = any if name == "max" else all
        minimum = 0 if is_remainder or (name != "%" and holds(self.is_never_negative(x) for x in xs)) else None
        text = f"{name}({', '.join(map(repr, xs))})"
        self._operations[text] = name, xs
        maximum = xs[1] - 1 if is_remainder else None
        if name == "min":
            maximum = next((x for x in xs if x.number is not None), None)
        if (
            name == "//"
            and (divisor := xs[1].number) is not None
            and divisor > 0
            and (highest := self._highest(xs[0])) is not None
        ):
            maximum = size(highest // divisor)
        if (
            name == "//"
            and maximum is None
            and (atom := next(iter(xs[0].atoms()), "")) in self.maximum
            and xs[0] == Size({(atom,): 1})
        ):
            # Where x is below n * divisor, its quotient is below n.
            quotient, rest = self._reduce(self.maximum[atom] + 1, xs[1])
            maximum = quotient - 1 if rest == 0 else None
        return self.symbol(text, minimum, maximum)

    def broadcast_index_of(self, extent: Size, index: Size) -> Size:
        """Return the index on an axis that is broadcast: 0 where its extent is 1, else ``index``."""
        name, xs = self._operations.get(next(iter(index.atoms()), ""), ("", []))
        is_stretched = name == "stretched" and index == Size({tuple(index.atoms()): 1})
        if is_stretched and {*self.operands_of("broadcast", extent)} <= {*self.operands_of("broadcast", xs[0])}:
            # Where the extent is not 1, it is that of a broadcast of which it is an operand.
            return self.broadcast_index_of(extent, xs[1])
        text = f"stretched({extent!r}, {index!r})"
        self._operations[text] = "stretched", [extent, index]
        return self.symbol(text, 0, extent - 1)

    def operation_of(self, atom: str) -> list[Size] | None:
        """Return the operands of an atom that is an operation; None for a symbol."""
        return self._operations[atom][1] if atom in self._operations else None

    def substitute(self, value: Size, names: Mapping[str, str]) -> Size:
        """Replace symbols by symbols, also in the operands of operations."""
        kept = (value, frozenset(names.items()))
        if kept in self.memo:
            return self.memo[kept]  # type: ignore[no-any-return]
        result = ZERO
        for key, coefficient in value.terms.items():
            factor = size(coefficient)
            for atom in key:
                if atom in names:
                    factor = factor * Size({(names[atom],): 1})
                elif atom in self._operations:
                    name, xs = self._operations[atom]
                    inner = [self.substitute(x, names) for x in xs]
                    factor = factor * (self.broadcast_index_of(*inner) if name == "stretched" else self.operation(name, *inner))
                else:
                    factor = factor * Size({(atom,): 1})
            result = result + factor
        self.memo[kept] = result
        return result

    def _inner_quotient(self, value: Size) -> tuple[Size, Size, Size] | None:
        """Return the operands of a quotient by a number that a size has as a term, and the quotient; None without one."""
        for key, coefficient in value.terms.items():
            name, xs = self._operations.get(key[0] if len(key) == 1 else "", ("", []))
            if name == "//" and coefficient == 1 and (xs[1].number or 0) > 0:
                return xs[0], xs[1], Size({key: 1})
        return None

    def _highest(self, value: Size) -> int | None:
        """Return the maximum value of a size; None where it is not known."""
        total = 0
        for key, coefficient in value.terms.items():
            part = coefficient
            for atom in key:
                maximum = self.maximum[atom].number if atom in self.maximum else None
                minimum = self.minimum.get(atom)
                if maximum is None or coefficient < 0 or (len(key) > 1 and (minimum is None or minimum < 0)):
                    return None
                part *= maximum
            total += part
        return total

    def operands_of(self, name: str, value: Size) -> list[Size]:
        """Return the operands of a size that is one operation ``name``, else the size itself."""
        atom = next(iter(value.atoms()), "")
        found = self._operations.get(atom, ("", []))
        return found[1] if found[0] == name and value == Size({(atom,): 1}) else [value]

    def is_minimum_of(self, value: Size, other: Size) -> bool:
        """Return whether a size is min(other, number) with a number of 2 or more."""
        name, xs = self._operations.get(next(iter(value.atoms()), ""), ("", []))
        if name != "min" or len(xs) != 2 or value != Size({(next(iter(value.atoms())),): 1}):
            return False
        return any(xs[index] == other and (xs[1 - index].number or 0) > 1 for index in (0, 1))


def _without(key: Monomial, atom: str) -> list[str]:
    rest = list(key)
    rest.remove(atom)
    return rest


def _contains(key: Monomial, part: Monomial) -> bool:
    rest = list(key)
    for atom in part:
        if atom not in rest:
            return False
        rest.remove(atom)
    return True


def _quotient(key: Monomial, part: Monomial) -> Monomial:
    rest = list(key)
    for atom in part:
        rest.remove(atom)
    return tuple(rest)


_TOKEN = re.compile(
    r'\s*(?:(?P<number>\d+)|(?P<name>(?:[^\W\d]|\?[\w.:])[\w.:]*(?:\[\w+\])*)|"(?P<quoted>(?:[^"\\]|\\["\\])*)"|(?P<sign>//|\*\*|[-+*%(),]))'
)


class Parser:
    """Parser reads an expression of sizes with Python's precedence of operators.

    The characters of operators in the name of a symbol are escaped, so that the text of a size has one meaning.
    """

    def __init__(self, text: str, symbols: Symbols, name: Callable[[str], SizeLike]) -> None:
        self._symbols = symbols
        self._name = name
        self._tokens: list[tuple[str, str]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise ValueError(f"no expression of sizes: {text[:80]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._tokens.reverse()

    def whole(self) -> Size:
        result = self._sum()
        if self._tokens:
            raise ValueError("no expression of sizes")
        return result

    def _take(self, *signs: str) -> str | None:
        if self._tokens and self._tokens[-1][0] == "sign" and self._tokens[-1][1] in signs:
            return self._tokens.pop()[1]
        return None

    def _sum(self) -> Size:
        result = -self._product() if self._take("-") else self._product()
        while (sign := self._take("+", "-")) is not None:
            other = self._product()
            result = result + other if sign == "+" else result - other
        return result

    def _product(self) -> Size:
        result = self._power()
        while (sign := self._take("*", "//", "%")) is not None:
            other = self._power()
            result = result * other if sign == "*" else self._symbols.operation(sign, result, other)
        return result

    def _power(self) -> Size:
        result = self._atom()
        if self._take("**"):
            exponent = self._atom().number
            if exponent is None or not 0 <= exponent <= 64:
                raise ValueError("no exponent")
            result = product([result] * exponent)
        return result

    def _atom(self) -> Size:
        if self._take("("):
            result = self._sum()
            if self._take(")") is None:
                raise ValueError("a parenthesis is open")
            return result
        if self._take("-"):
            return -self._power()
        if not self._tokens:
            raise ValueError("an expression ends early")
        kind, text = self._tokens.pop()
        if kind == "number":
            return size(int(text))
        if kind == "quoted":
            return size(self._name(quote(re.sub(r"\\(.)", r"\1", text), safe="?:[]")))
        if kind != "name":
            raise ValueError("no expression of sizes")
        if text in ("min", "max", "broadcast") and self._take("("):
            operands = [self._sum()]
            while self._take(","):
                operands.append(self._sum())
            if self._take(")") is None:
                raise ValueError("a parenthesis is open")
            return self._symbols.operation(text, *operands)
        return size(self._name(quote(text, safe="?:[]")))
