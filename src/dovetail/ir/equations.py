"""Equations between dimensions that operators demand, and their solution by substitution of symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dovetail.errors import DovetailError, RuleError
from dovetail.ir import symbolic
from dovetail.ir.substitution import map_sizes
from dovetail.ir.symbolic import Dim, Inexact
from dovetail.ir.types import Size, Type, is_unnamed

_TRIALS = 4096
"""The maximum number of values of a symbol that are tried for one dimension."""


class Equation(NamedTuple):
    """Equation states that two dimensions are equal in every run, because the operator at ``node`` requires it."""

    first: Size
    second: Size
    node: str
    op: str

    def __str__(self) -> str:
        return f"{self.first} = {self.second} ({self.op} at {self.node})"


@dataclass(slots=True)
class Substitution:
    """Substitution maps names of symbols to their replacements; ``sources`` holds the equation behind each replacement."""

    values: dict[str, Size] = field(default_factory=dict)
    sources: dict[str, Equation] = field(default_factory=dict)

    def size(self, size: Size) -> Size:
        """Return a size with its symbols replaced; return the size unchanged if the resulting expression would be too large."""
        if isinstance(size, int) or not self.values:
            return size
        try:
            return symbolic.substitute(size, self.values)
        except (Inexact, ZeroDivisionError):
            return size

    def type(self, type: Type) -> Type:
        """Return a type with the symbols of its sizes replaced."""
        return map_sizes(type, self.size) if self.values else type

    def replace(self, symbol: Dim, size: Size, equation: Equation | None = None) -> None:
        """Add the replacement of a symbol by ``size``, and apply it to the replacements of the other symbols."""
        name = str(symbolic.name_of(symbol))
        one = {name: size}
        self.values = {key: symbolic.substitute(value, one) for key, value in self.values.items()}
        self.values[name] = size
        if equation is not None:
            self.sources.setdefault(name, equation)


def solve(equations: Iterable[Equation], known: Substitution, inputs: Mapping[str, int]) -> list[Equation]:
    """Extend ``known`` by the replacements that the equations determine. Returns the equations that determined a replacement.

    ``inputs`` maps the symbols of the graph's inputs to their positions. If two symbols are equal, the symbol of the later input
    is replaced. A symbol of an input is never replaced by an expression. Raises RuleError [shape.disagree], which names the
    nodes of both equations, if an equation contradicts earlier equations.
    """
    used: list[Equation] = []
    for equation in equations:
        first, second = known.size(equation.first), known.size(equation.second)
        equal = symbolic.equal(first, second)
        if equal is False:
            raise _contradiction(equation, known)
        if equal is True:
            continue
        try:
            solution = _solve_for_symbol(first, second, inputs)
        except Inexact:
            continue
        if solution is None:
            continue
        symbol, size = solution
        known.replace(symbol, size, equation)
        if isinstance(size, Dim) and symbolic.name_of(size) is not None:
            # The remaining symbol gets the bounds of both symbols.
            known.replace(size, size, equation)
        used.append(equation)
    return used


def _contradiction(equation: Equation, known: Substitution) -> DovetailError:
    names = {str(symbolic.name_of(symbol)) for size in (equation.first, equation.second) for symbol in symbolic.symbols(size)}
    others = "; ".join(str(known.sources[name]) for name in sorted(names) if name in known.sources)
    fault = RuleError("shape.disagree", f"{equation.first} must equal {equation.second}, which contradicts {others or 'bounds'}")
    return fault.at(node=equation.node, op=equation.op)


def _solve_for_symbol(first: Size, second: Size, inputs: Mapping[str, int]) -> tuple[Dim, Size] | None:
    """Solve ``first == second`` for one symbol that occurs linearly; return None if no symbol can be solved for."""
    difference = first - second
    for symbol in sorted(symbolic.symbols(difference), key=lambda item: _order_of_replacement(item, inputs)):
        name = str(symbolic.name_of(symbol))
        try:
            at_zero = symbolic.substitute(difference, {name: 0})
            slope = symbolic.substitute(difference, {name: 1}) - at_zero
        except (Inexact, ZeroDivisionError):
            continue
        # A product of two symbols does not determine either symbol if the other is 0.
        if not isinstance(slope, int) or slope == 0 or difference != at_zero + slope * symbol:
            continue
        solution = symbolic.exact_quotient(-at_zero, slope)
        if solution is None or (name in inputs and not isinstance(solution, int) and symbolic.name_of(solution) is None):
            continue
        if (bounded := _within_bounds(symbol, solution)) is not None:
            return symbol, bounded
    return None


def _order_of_replacement(symbol: Dim, inputs: Mapping[str, int]) -> tuple[int, bool, int, str]:
    """Return the sort key by which symbols are chosen for replacement.

    Symbols of no input precede symbols of inputs, then unnamed symbols precede named symbols, then symbols of later inputs
    precede symbols of earlier inputs.
    """
    name = str(symbolic.name_of(symbol))
    return int(name in inputs), not is_unnamed(symbol), -inputs.get(name, 0), name


def _within_bounds(symbol: Dim, solution: Size) -> Size | None:
    """Return a replacement of ``symbol`` that also keeps the bounds of ``symbol``; None if no size can express these bounds."""
    bounds = symbolic.merge_bounds(symbolic.bounds(symbol), symbolic.bounds(solution))
    if isinstance(solution, int) or bounds == symbolic.bounds(solution):
        return solution
    name = symbolic.name_of(solution)
    return None if name is None else symbolic.symbol(name, *bounds)


def min_value_of(size: Size, symbol: Dim, start: int) -> int | None:
    """Return the smallest value of ``symbol``, at least ``start``, for which ``size`` is not negative; None if unknown.

    ``symbol`` is the only symbol of ``size``.
    """
    name = str(symbolic.name_of(symbol))
    for number in range(start, start + _TRIALS):
        try:
            if symbolic.evaluate(size, {name: number}) >= 0:
                return number
        except (Inexact, ZeroDivisionError):
            return None
    return None
