"""Substitution and evaluation of expressions, and their symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.ir.symbolic.algebra import (
    Atom,
    Dim,
    Inexact,
    Size,
    apply_operation,
    dim_of,
    from_terms,
    is_positive_number,
    product,
    sorted_terms,
)


def replace_atoms(size: Size, value: Callable[[Atom], Size]) -> Size:
    """Replace each atom of the polynomial; atoms in the arguments of other atoms are not replaced."""
    if isinstance(size, int):
        return size
    result: Size = size._constant
    for monomial, coefficient in size._terms.items():
        result = result + product(map(value, monomial)) * coefficient
    return result


def rebuild(size: Size, at_symbol: Callable[[Atom], Size], at_result: Callable[[Size], Size] | None = None) -> Size:
    """Rebuild the expression: ``at_symbol`` replaces each symbol, ``at_result`` the result of each application."""
    seen: dict[Atom, Size] = {}

    def value(atom: Atom) -> Size:
        if atom not in seen:
            if atom.kind == "symbol":
                seen[atom] = at_symbol(atom)
            elif atom.kind == "shift":
                seen[atom] = dim_of(atom)
            else:
                result = apply_operation(atom.kind, [replace_atoms(arg, value) for arg in atom.args])
                seen[atom] = at_result(result) if at_result else result
        return seen[atom]

    return replace_atoms(size, value)


def normalize_strongly(dim: Size) -> Size:
    """Return an equal expression in which division replaces modulo, and integer parts of quotients are outside of divisions."""
    return rebuild(dim, dim_of, lambda result: replace_atoms(result, _strong_atom))


def _strong_atom(atom: Atom) -> Size:
    if atom.kind not in ("//", "%") or not is_positive_number(atom.args[1]):
        return dim_of(atom)
    a, b = atom.args
    whole: Dim | int = from_terms({monomial: coefficient // b for monomial, coefficient in a._terms.items() if coefficient // b})
    quotient: Size = whole + (a - whole * b) // b
    result: Size = quotient if atom.kind == "//" else a - b * quotient
    return result


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """Replace the symbols that ``values`` names by their values, which are assumed to be within the bounds of the symbols."""
    return rebuild(size, lambda atom: values.get(atom.args[0], dim_of(atom)))


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Evaluate the expression to an integer. Raises Inexact for a symbol without a value, and ZeroDivisionError."""
    if isinstance(size, int):
        return size
    result = rebuild(size, lambda atom: int(values[atom.args[0]]) if atom.args[0] in values else dim_of(atom))
    if isinstance(result, Dim):
        missing = ", ".join(str(item) for item in symbols(result))
        raise Inexact(f"no value for {missing}")
    return result


def atoms(size: Size) -> tuple[Atom, ...]:
    """Return the atoms of the polynomial: its symbols and applications, without the atoms inside applications."""
    if not isinstance(size, Dim):
        return ()
    return tuple(dict.fromkeys(atom for monomial, _ in sorted_terms(size) for atom in monomial))


def symbols(size: Size) -> tuple[Dim, ...]:
    """Return the symbols of the expression in the order of printing."""
    symbol_of: dict[Atom, Dim] = {}
    seen: set[Atom] = set()

    def visit(inner: Size) -> None:
        for monomial, _ in sorted_terms(inner) if isinstance(inner, Dim) else ():
            for atom in monomial:
                if atom.kind == "symbol":
                    symbol_of.setdefault(atom, dim_of(atom))
                elif atom not in seen:
                    seen.add(atom)
                    for arg in atom.args:
                        visit(arg)

    visit(size)
    return tuple(symbol_of.values())
