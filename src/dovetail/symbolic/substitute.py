"""Walks over an expression: building it again from other symbols, and finding the symbols in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.symbolic.algebra import (
    Atom,
    Dim,
    Inexact,
    Size,
    applied,
    from_terms,
    is_positive_number,
    of_atom,
    product,
    sorted_terms,
)


def replaced(size: Size, value: Callable[[Atom], Size]) -> Size:
    """The polynomial with each of its own atoms replaced."""
    if isinstance(size, int):
        return size
    result: Size = size._constant
    for monomial, coefficient in size._terms.items():
        result = result + product(map(value, monomial)) * coefficient
    return result


def rebuilt(size: Size, at_symbol: Callable[[Atom], Size], at_result: Callable[[Size], Size] | None = None) -> Size:
    """The expression built again from new symbols; ``at_result`` sees what becomes of each application."""
    seen: dict[Atom, Size] = {}

    def value(atom: Atom) -> Size:
        if atom not in seen:
            if atom.kind == "symbol":
                seen[atom] = at_symbol(atom)
            elif atom.kind == "shift":
                seen[atom] = of_atom(atom)
            else:
                result = applied(atom.kind, [replaced(arg, value) for arg in atom.args])
                seen[atom] = at_result(result) if at_result else result
        return seen[atom]

    return replaced(size, value)


def strong(dim: Size) -> Size:
    """A second, stronger normal form: modulo written through division, and every whole part taken out of it."""
    return rebuilt(dim, of_atom, lambda result: replaced(result, _strong_atom))


def _strong_atom(atom: Atom) -> Size:
    if atom.kind not in ("//", "%") or not is_positive_number(atom.args[1]):
        return of_atom(atom)
    a, b = atom.args
    whole: Dim | int = from_terms({monomial: coefficient // b for monomial, coefficient in a._terms.items() if coefficient // b})
    quotient: Size = whole + (a - whole * b) // b
    result: Size = quotient if atom.kind == "//" else a - b * quotient
    return result


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """The expression with symbols replaced by name. Values are taken to lie within the bounds of their symbols."""
    return rebuilt(size, lambda atom: values.get(atom.args[0], of_atom(atom)))


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The number that the expression is. Raises Inexact where a symbol has no value, ZeroDivisionError as Python would."""
    if isinstance(size, int):
        return size
    result = rebuilt(size, lambda atom: int(values[atom.args[0]]) if atom.args[0] in values else of_atom(atom))
    if isinstance(result, Dim):
        missing = ", ".join(str(each) for each in symbols(result))
        raise Inexact(f"no value is given for {missing}")
    return result


def symbols(size: Size) -> tuple[Dim, ...]:
    """Every symbol in the expression, in the order in which printing meets them."""
    found: dict[Atom, Dim] = {}
    seen: set[Atom] = set()

    def visit(inner: Size) -> None:
        for monomial, _ in sorted_terms(inner) if isinstance(inner, Dim) else ():
            for atom in monomial:
                if atom.kind == "symbol":
                    found.setdefault(atom, of_atom(atom))
                elif atom not in seen:
                    seen.add(atom)
                    for arg in atom.args:
                        visit(arg)

    visit(size)
    return tuple(found.values())
