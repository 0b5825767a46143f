"""Parametric sizes: decides which dimensions of a graph are polynomials in the symbols of the graph's inputs.

Strides of convolutions cause divisions: for ``n = 2 * q + r - 1`` with ``r`` 0 or 1, ``(n + 1) // 2`` is a polynomial in ``q``
and ``r``. Successive divisions represent ``n`` by digits of mixed radix. The product of the radices, 2 here, is a period of
``n``. Tables of positions have an end: ``min(n, 512)`` is ``n`` up to 512, and constant from there on. The intervals between such
ends are pieces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations, pairwise
from math import lcm, prod
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.graph import Graph, Value
from dovetail.ir.symbolic.algebra import Atom
from dovetail.ir.types import Size, Tensor, sizes_in

DEGREE = 3
"""The maximum degree, in one size, of the polynomials for the integers of a plan."""
MAX_PERIOD = 4096
LOWEST = 2
"""The lowest size of a range: axes of 0 and 1 elements get separate plans."""
MAX_END = 1 << 20
"""The size up to which ends of pieces are searched."""


class SizeRange(NamedTuple):
    """SizeRange is the set of sizes ``first``, ``first + step``, ... up to ``last``.

    ``radices``: the radices of a size's digits, the lowest digit first; the quotient that remains is the last digit.
    """

    first: int
    last: int
    step: int
    radices: tuple[int, ...] = ()

    @property
    def period(self) -> int:
        """The difference between two sizes whose last digits differ by 1 and whose other digits are equal."""
        return self.step * prod(self.radices)

    @property
    def top(self) -> tuple[int, ...]:
        """The maximum of each digit."""
        return (*(radix - 1 for radix in self.radices), (self.last - self.first) // self.period)

    def digits(self, size: int) -> tuple[int, ...]:
        """Return the mixed-radix digits of ``(size - first) // step``."""
        rest, digits = (size - self.first) // self.step, []
        for radix in self.radices:
            rest, digit = divmod(rest, radix)
            digits.append(digit)
        return (*digits, rest)

    def size_at(self, digits: Sequence[Any]) -> Any:
        """Return the size whose mixed-radix digits are ``digits``."""
        size: Any = self.first
        for digit, weight in zip(digits, accumulate((self.step, *self.radices), mul), strict=True):
            size = size + weight * digit
        return size


class Follower(NamedTuple):
    """Follower is a symbol whose size is the size of the symbol ``leader`` plus ``offset``, which is at least 0.

    A mask over all tokens has one element more than the cache of the tokens before; the caches of all layers have one length.
    """

    leader: str
    offset: int

    def follows(self, name: str, sizes: Mapping[str, int]) -> bool:
        """Return whether ``sizes`` hold the relation, with a leader that a range of sizes contains."""
        return sizes[self.leader] >= LOWEST and sizes[name] == sizes[self.leader] + self.offset


def followers_of(before: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, Follower]:
    """Return the symbols that changed between two calls by as much as a symbol of no greater size, which leads them."""
    followers: dict[str, Follower] = {}
    leaders: dict[int, str] = {}
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        step = sizes[name] - before[name]
        if step:
            leader = leaders.setdefault(step, name)
            if leader != name:
                followers[name] = Follower(leader, sizes[name] - sizes[leader])
    return followers


class Pieces(NamedTuple):
    """Pieces holds the period of a symbol, and the sizes with which the symbol's pieces begin; the first such size is 0.

    ``radices``: the radices of the symbol's divisions. All digits are 0 at sizes congruent to ``residue`` modulo the period.
    ``radices`` is empty if the divisions have no common residue.
    """

    period: int
    starts: tuple[int, ...]
    radices: tuple[int, ...] = ()
    residue: int = 0

    def around(self, size: int) -> tuple[int, int | None]:
        """Return the first and the last size of the piece that contains ``size``; the last is None for the last piece."""
        first = max(start for start in self.starts if start <= size)
        return first, min((start - 1 for start in self.starts if start > size), default=None)


WHOLE = Pieces(1, (0,))
"""The pieces of a symbol without divisions: one piece that contains all sizes."""


def size_expressions(graph: Graph) -> Iterable[Size | None]:
    """Return every dimension and every element of a shape value in a graph; None for an unknown shape.

    Elements of a value that the sizes of the inputs do not determine are left out, since kernels compute that value.
    """
    known = input_symbols_of(graph)
    for value in graph.values():
        type = value.type
        if not isinstance(type, Tensor) or type.shape is None or type.dtype is None or type.dtype.name == "string":
            yield None
            continue
        yield from type.shape
        elements = list(_elements_of(value))
        if all(str(symbol) in known for size in elements for symbol in symbolic.symbols(size)):
            yield from elements


def _elements_of(value: Value) -> Iterable[Size]:
    if value._value is None or value.constant is not None:
        return ()
    elements: list[Size] = np.asarray(value._value, dtype=object).reshape(-1).tolist()
    return elements


def is_polynomial(
    size: Size | None, ranges: Mapping[str, SizeRange], others: Mapping[str, int], followers: Mapping[str, Follower]
) -> bool:
    """Return whether an expression is a polynomial in the digits of some symbols over ranges of their sizes.

    ``others``: the sizes of the other symbols. ``followers``: symbols that follow a symbol with a range.
    """
    if size is None:
        return False
    if isinstance(size, int | np.integer | np.bool_):
        return True
    try:
        known = symbolic.substitute(size, others)
        digits = {name: _digits_in(name, range) for name, range in ranges.items()}
        own = {name: range.size_at(digits[name]) for name, range in ranges.items()}
        rest = symbolic.substitute(known, {**own, **{name: own[each.leader] + each.offset for name, each in followers.items()}})
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False
    if isinstance(rest, int):
        return True
    names = {str(digit) for row in digits.values() for digit in row}
    return names.issuperset(map(str, symbolic.symbols(rest))) and _is_polynomial_in(rest, names)


def _digits_in(name: str, range: SizeRange) -> list[Size]:
    """Return a symbol for each digit of the sizes of a range; the symbol of the last digit is called ``name``."""
    names = [*(f"{name}.{index}" for index, _ in enumerate(range.radices)), name]
    return [symbolic.symbol(digit, 0, top) for digit, top in zip(names, range.top, strict=True)]


def input_symbols_of(graph: Graph) -> frozenset[str]:
    """Return the names of the symbols in the shapes of a graph's inputs."""
    sizes = [size for value in graph.inputs if isinstance(value.type, Tensor) for size in value.type.shape or ()]
    return frozenset(str(symbol) for size in sizes if size is not None for symbol in symbolic.symbols(size))


def pieces_of(graph: Graph) -> dict[str, Pieces]:
    """Return the pieces of each input symbol in which every size of a graph is a polynomial, for any values of other symbols.

    Pieces shorter than DEGREE periods are not checked. Symbols without pieces are left out.
    """
    known = input_symbols_of(graph)
    sizes = {size for size in size_expressions(graph) if not isinstance(size, int | np.integer | np.bool_)}
    if any(size is None or any(str(symbol) not in known for symbol in symbolic.symbols(size)) for size in sizes):
        return {}
    axes = {size for value in graph.values() for size in sizes_in(value.type) if size is not None and not isinstance(size, int)}
    found = {name: _pieces_in(name, [size for size in sizes if size is not None], axes) for name in known}
    for name, (leader, size) in _maxima_of([size for size in sizes if size is not None], known).items():
        if found[name] is None or found[leader] is None:
            linked = [symbolic.substitute(each, {name: size}) for each in sizes if each is not None]
            found[name] = found[leader] = _pieces_in(leader, linked, {symbolic.substitute(each, {name: size}) for each in axes})
    return {name: pieces for name, pieces in found.items() if pieces is not None}


def pieces_at(
    graph: Graph, name: str, others: Mapping[str, int], followers: Mapping[str, Follower] | None = None
) -> Pieces | None:
    """Return the pieces of a symbol where the other symbols have the sizes ``others`` or are its ``followers``; None without any.

    The end of a table at ``min(past + tokens, 1024)`` is a piece of ``past`` only for a known number of tokens.
    """
    leader = symbolic.symbol(name, LOWEST)
    known = {**others, **{one: leader + each.offset for one, each in (followers or {}).items() if each.leader == name}}
    sizes = {size for size in size_expressions(graph) if not isinstance(size, int | np.integer | np.bool_)}
    axes = {size for value in graph.values() for size in sizes_in(value.type) if size is not None and not isinstance(size, int)}
    if None in sizes:
        return None
    try:
        fixed = [[symbolic.substitute(size, known) for size in each if size is not None] for each in (sizes, axes)]
    except (symbolic.Inexact, ArithmeticError, ValueError, TypeError):
        return None
    of_sizes, of_axes = ([size for size in each if not isinstance(size, int)] for each in fixed)
    if any({str(symbol) for symbol in symbolic.symbols(size)} != {name} for size in of_sizes):
        return None
    return _pieces_in(name, of_sizes, of_axes)


def steps_of(graph: Graph) -> frozenset[str]:
    """Return the input symbols that have pieces in a step of one token: the other symbols are 1, or one of them follows.

    A symbol that broadcasts with another size has that size: the length of a mask is that of the cache and the new tokens.
    """
    known = sorted(input_symbols_of(graph))
    sizes = {size for size in size_expressions(graph) if not isinstance(size, int | np.integer | np.bool_)}
    if None in sizes:
        return frozenset()
    followers: dict[str, dict[str, Follower]] = {}
    for atom in set(_atoms_within(atom for size in sizes if size is not None for atom in symbolic.atoms(size))):
        if atom.kind != "broadcast":
            continue
        for follower in map(symbolic.name_of, atom.args):
            for name in known if follower in known else ():
                ones = {other: 1 for other in known if other not in (name, follower)}
                sums = [symbolic.substitute(arg, ones) - symbolic.symbol(name) for arg in atom.args]
                offsets = [each for each in sums if isinstance(each, int) and each >= 0]
                if follower is not None and name != follower and offsets:
                    followers.setdefault(name, {})[follower] = Follower(name, offsets[0])
    found: set[str] = set()
    for name in known:
        led = followers.get(name, {})
        for each in ({}, led) if led else ({},):
            if pieces_at(graph, name, {other: 1 for other in known if other != name and other not in each}, each) is not None:
                found |= {name, *each}
    return frozenset(found)


def _maxima_of(sizes: Iterable[Size], known: Collection[str]) -> dict[str, tuple[str, Size]]:
    """Return symbols of which a size is the maximum with another symbol, which may lead them (:class:`Follower`).

    The length of a cache is the maximum of its old length and the number of tokens. Each symbol comes with its leader, and with a
    size that is not below that of the leader.
    """
    linked: dict[str, tuple[str, Size]] = {}
    for atom in _atoms_within(atom for size in sizes for atom in symbolic.atoms(size)):
        symbols = [symbolic.name_of(arg) for arg in atom.args] if atom.kind == "max" else []
        names = sorted(name for name in symbols if name is not None and name in known)
        if len(names) == len(symbols) == 2:
            leader, name = names
            linked[name] = leader, symbolic.symbol(leader) + symbolic.symbol(f"{name} - {leader}")
    return linked


def _pieces_in(name: str, sizes: Sequence[Size], axes: Iterable[Size]) -> Pieces | None:
    """Return the pieces of a symbol, or None. ``axes``: sizes of axes; a piece begins where such a size reaches 2.

    The reason is that an axis of one element has no stride and is broadcast.
    """
    symbol = symbolic.symbol(name, LOWEST)
    depending = [
        symbolic.substitute(size, {name: symbol}) for size in sizes if any(str(each) == name for each in symbolic.symbols(size))
    ]
    atoms = [atom for size in depending for atom in symbolic.atoms(size)]
    period = lcm(*(_period_of(atom) for atom in atoms))
    if period > MAX_PERIOD:
        return None
    alone = [size for size in axes if {str(symbol) for symbol in symbolic.symbols(size)} == {name}]
    ends = {*(start for atom in atoms for start in _starts_in(atom, name)), *(_crossing(size - 1, name) for size in alone)}
    starts = (0, *sorted(start for start in ends if start is not None))
    intervals = [*((first, last - 1) for first, last in pairwise(starts)), (starts[-1], None)]
    ranges = [
        SizeRange(low, last, period)
        for first, end in intervals
        for rest in sorted({0, 1 % period, period - 1})
        # Sizes that strides reduce to an axis of 0 or 1 elements are left out.
        if (low := max(first, 2 * period) + (rest - max(first, 2 * period)) % period) + DEGREE * period
        <= (last := MAX_END if end is None else end)
    ]
    if not ranges or not all(_is_polynomial_over(size, name, range) for size in depending for range in ranges):
        return None
    return Pieces(period, starts, *_divisions_of(symbol, atoms, period))


def _divisions_of(symbol: Size, atoms: Iterable[Any], period: int) -> tuple[tuple[int, ...], int]:
    """Return the radices of a symbol's divisions, and the residue at which all digits are 0; ((), 0) without a common residue."""
    added: dict[int, int] = {}
    for atom in _atoms_within(atoms):
        if atom.kind == "//" and any(symbol in symbolic.symbols(arg) for arg in atom.args):
            number, divisor = atom.args[0] - symbol, atom.args[1]
            if not isinstance(number, int) or not isinstance(divisor, int):
                return (), 0
            if (added.setdefault(divisor, number) - number) % divisor:
                return (), 0
    divisors = sorted(added)
    residue = -added[divisors[-1]] % period if divisors else 0
    if not divisors or divisors[-1] != period or any((residue + added[each]) % each for each in divisors):
        return (), 0
    radices = [after // before for before, after in pairwise((1, *divisors))]
    return (tuple(radices), residue) if prod(radices) == period else ((), 0)


def _atoms_within(atoms: Iterable[Any]) -> Iterator[Any]:
    """Yield the atoms and, recursively, the atoms of their operands."""
    for atom in atoms:
        yield atom
        if atom.kind != "symbol":
            yield from _atoms_within(inner for arg in atom.args for inner in symbolic.atoms(arg))


def _period_of(atom: Atom) -> int:
    """Return a period: an increment of the size by which ``atom`` always changes by the same amount.

    This is the least common multiple of the periods of the operands, times the divisor where the atom is a division.
    """
    operands = lcm(*(_period_of(inner) for arg in atom.args for inner in symbolic.atoms(arg))) if atom.kind != "symbol" else 1
    divides = atom.kind in ("//", "%") and isinstance(atom.args[1], int)
    return operands * (abs(atom.args[1]) or 1) if divides else operands


def _starts_in(atom: Atom, name: str) -> Iterator[int]:
    """Yield the sizes from which a minimum, maximum or broadcast in ``atom``, nested ones included, takes another operand."""
    if atom.kind == "symbol":
        return
    for arg in atom.args:
        for inner in symbolic.atoms(arg):
            yield from _starts_in(inner, name)
    if atom.kind not in ("min", "max", "broadcast"):
        return
    for one, other in combinations(atom.args, 2):
        start = _crossing(one - other, name)
        if start is not None:
            yield start


def _crossing(difference: Size, name: str) -> int | None:
    """Return the first size at which a difference has another sign than at size 2; None without one, or if unknown."""

    def is_positive(size: int) -> bool:
        return symbolic.evaluate(difference, {name: size}) > 0

    try:
        low, high, at_two = LOWEST, MAX_END, is_positive(LOWEST)
        if is_positive(high) == at_two:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_positive(middle) == at_two else (low, middle)
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return None
    return high


def _is_polynomial_over(size: Size, name: str, range: SizeRange) -> bool:
    digits = _digits_in(name, range)
    try:
        return _is_polynomial_in(symbolic.substitute(size, {name: range.size_at(digits)}), set(map(str, digits)))
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False


def _is_polynomial_in(size: Size, names: Collection[str]) -> bool:
    """Return whether no division, minimum or other application depends on the symbols ``names``."""
    applications = (atom for atom in symbolic.atoms(size) if atom.kind != "symbol")
    return not any(str(each) in names for atom in applications for arg in atom.args for each in symbolic.symbols(arg))
