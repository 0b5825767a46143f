"""Division of polynomials: exact quotient, floor division and modulo."""

from __future__ import annotations

from functools import lru_cache
from math import gcd, inf
from typing import Any

from dovetail.ir.symbolic.algebra import (
    MAX_TERMS,
    Atom,
    Dim,
    Inexact,
    Monomial,
    Size,
    Terms,
    bare_atom,
    check_coefficient,
    dim_of,
    from_terms,
    intern_atom,
    is_positive_number,
    join,
    order,
    polynomial,
    terms_of,
)
from dovetail.ir.symbolic.compare import is_nonzero, less, less_equal
from dovetail.ir.symbolic.intervals import interval


def _divide_polynomials(first: Size, second: Dim) -> tuple[Size, Size]:
    """Return ``quotient`` and ``rest`` with ``first == quotient * second + rest`` by multivariate division."""
    rest, kept, quotient = terms_of(first), dict[Monomial, int](), dict[Monomial, int]()
    divisor = terms_of(second)
    lead = min(divisor, key=order)
    for _ in range(MAX_TERMS):
        if not rest:
            return from_terms(quotient), from_terms(kept)
        monomial = min(rest, key=order)
        factor = _monomial_quotient(monomial, lead)
        if factor is None or rest[monomial] % divisor[lead]:
            kept[monomial] = rest.pop(monomial)
            continue
        count = quotient[factor] = rest[monomial] // divisor[lead]
        for term, coefficient in divisor.items():
            target = join(factor, term)
            total = check_coefficient(rest.get(target, 0) - count * coefficient)
            if total:
                rest[target] = total
            else:
                del rest[target]
    return 0, first


def _monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def exact_quotient(a: Size, b: Size) -> Size | None:
    """Return the polynomial ``q`` with ``q * b == a``; None if no such polynomial exists or ``b`` is 0."""
    if isinstance(b, int):
        return _exact_quotient_by(a, b) if b else None
    quotient, rest = _divide_polynomials(a, b)
    return quotient if rest == 0 else None


def _exact_quotient_by(a: Size, b: int) -> Size | None:
    terms = terms_of(a)
    if any(coefficient % b for coefficient in terms.values()):
        return None
    found: Size = from_terms({monomial: coefficient // b for monomial, coefficient in terms.items()})
    return found


def quotient_of_nonzero(a: Size, b: Dim) -> Size:
    """Return ``a // b`` for a ``b`` that is never 0: common factors cancel even if their bounds include 0."""
    xs, ys = terms_of(a), terms_of(b)
    for atom in next(iter(ys)):
        if all(atom in monomial for monomial in (*xs, *ys)):
            xs, ys = (_divide_terms(terms, atom) for terms in (xs, ys))
    size: Size = floor_divide(from_terms(xs), from_terms(ys))
    return size


def _divide_terms(terms: Terms, atom: Atom) -> Terms:
    """Divide every term by ``atom``, which is a factor of all terms."""
    result: Terms = {}
    for monomial, coefficient in terms.items():
        index = monomial.index(atom)
        result[monomial[:index] + monomial[index + 1 :]] = coefficient
    return result


def floor_divide(a: Size, b: Size) -> Any:
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b
        if b == 0:
            raise Inexact(f"{a} divided by zero")
        return _divide_by(a, b) if b > 0 else _divide_by(-a, -b)
    # A divisor that may be 0 is not simplified away, because the error of a division by zero would be lost.
    if not is_nonzero(b):
        return dim_of(intern_atom("//", (a, b)))
    whole, rest = _divide_polynomials(a, b)
    if rest == 0 or _lies_below(rest, b):
        return whole
    rest, b = _without_content(rest, b)
    inner = bare_atom(rest)
    if inner is not None and inner.kind == "//" and is_nonzero(inner.args[1]) and less(0, b):
        return whole + floor_divide(inner.args[0], inner.args[1] * b)
    return whole + dim_of(intern_atom("//", (rest, b)))


def _lies_below(rest: Size, b: Size) -> bool:
    return less_equal(0, rest) is True and less(rest, b) is True


def _without_content(a: Size, b: Dim) -> tuple[Size, Dim]:
    """Divide ``a`` and ``b`` by the greatest common divisor of their coefficients."""
    xs, ys = terms_of(a), terms_of(b)
    common = gcd(*xs.values(), *ys.values())
    if common == 1:
        return a, b
    divided: list[Any] = [from_terms({monomial: each // common for monomial, each in terms.items()}) for terms in (xs, ys)]
    return divided[0], divided[1]


@lru_cache(4096)
def _divide_by(a: Dim, b: int) -> Any:
    """Return ``a // b`` in normal form, for ``b`` > 0; terms that ``b`` divides are moved out of the division."""
    whole, rest, common = dict[Monomial, int](), dict[Monomial, int](), b
    for monomial, coefficient in a._terms.items():
        if coefficient % b:
            rest[monomial] = coefficient
            common = gcd(common, coefficient)
        else:
            whole[monomial] = coefficient // b
    count, constant = divmod(a._constant, b)
    outside = polynomial(whole, count)
    if not rest:
        return outside
    if common > 1:
        # floor((g*t + c) / (g*b)) == floor((t + floor(c/g)) / b), because t is an integer.
        b //= common
        constant //= common
        rest = {monomial: coefficient // common for monomial, coefficient in rest.items()}
    numerator: Dim = polynomial(rest, constant)
    return outside + _divide_by_coprime(numerator, b)


def _divide_by_coprime(numerator: Dim, b: int) -> Any:
    lead = min(numerator._terms, key=order) if len(numerator._terms) > 1 else next(iter(numerator._terms))
    if numerator._terms[lead] < 0:
        # floor(-x / b) == -floor((x + b - 1) / b), so that ceiling and floor share one normal form.
        return -_divide_by(b - 1 - numerator, b)
    nested = _nested_divisions(numerator)
    if len(nested) == 1:
        # floor((floor(x/c) + r) / b) == floor((x + c*r) / (c*b)), because r is an integer and b and c are positive.
        (atom,) = nested
        inside, divisor = atom.args
        return floor_divide(inside + divisor * (numerator - dim_of(atom)), divisor * b)
    low, high = interval(numerator)
    if low != -inf and high != inf and low // b == high // b:
        return int(low // b)
    return dim_of(intern_atom("//", (numerator, b)))


def _nested_divisions(dim: Dim) -> list[Atom]:
    """Return the divisions by positive integers that are terms with coefficient 1."""
    return [
        monomial[0]
        for monomial, coefficient in dim._terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0].kind == "//" and is_positive_number(monomial[0].args[1])
    ]


def modulo(a: Size, b: Size) -> Any:
    if isinstance(b, int):
        if isinstance(a, int):
            return a % b
        if b == 0:
            raise Inexact(f"{a} modulo zero")
        return _modulo_by(a, b) if b > 0 else -_modulo_by(-a, -b)
    if not is_nonzero(b):
        return dim_of(intern_atom("%", (a, b)))
    _, rest = _divide_polynomials(a, b)
    if rest == 0 or _lies_below(rest, b):
        return rest
    return dim_of(intern_atom("%", (rest, b)))


@lru_cache(4096)
def _modulo_by(a: Dim, b: int) -> Any:
    unfolded: Size = _unfold_modulo(a, b)
    if isinstance(unfolded, int):
        return unfolded % b
    a = unfolded
    low, high = interval(a)
    if low != -inf and high != inf and low // b == high // b:
        return a - int(low // b) * b
    rest = {monomial: coefficient % b for monomial, coefficient in a._terms.items() if coefficient % b}
    constant = a._constant % b
    if not rest:
        return constant
    # (g*t + g*c + e) mod (g*b) == g * ((t + c) mod b) + e for 0 <= e < g.
    common = gcd(b, *rest.values())
    count, extra = divmod(constant, common)
    numerator: Dim = polynomial({monomial: coefficient // common for monomial, coefficient in rest.items()}, count)
    b //= common
    low, high = interval(numerator)
    if low != -inf and high != inf and low // b == high // b:
        return (numerator - int(low // b) * b) * common + extra
    return dim_of(intern_atom("%", (numerator, b))) * common + extra


def _unfold_modulo(a: Size, b: int) -> Any:
    """Replace each term ``x % c`` by ``x`` if ``b`` divides ``c``: both are congruent modulo ``b``."""
    if isinstance(a, int):
        return a
    for monomial, coefficient in a._terms.items():
        atom = monomial[0]
        if len(monomial) == 1 and atom.kind == "%" and isinstance(atom.args[1], int) and atom.args[1] % b == 0:
            return _unfold_modulo(a + coefficient * (atom.args[0] - dim_of(atom)), b)
    return a


def ceil_divide(a: Size, b: Size) -> Size:
    """Return the ceiling of ``a / b``."""
    quotient: Size = -((-a) // b)
    return quotient
