"""Affine sizes: decides which dimensions of a graph are ``a + b * n`` in the size ``n`` of each of some symbols of its inputs.

Strides of convolutions divide: ``(n + 1) // 2`` is affine in ``q`` where ``n`` is ``2 * q + r``. The 2 is a period of ``n``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dovetail import symbolic
from dovetail.ir.graph import Graph, Value
from dovetail.ir.types import Size, Tensor

PERIODS = (1, 2, 4, 8, 16, 32, 64)
"""The periods that are tried."""


def size_expressions(graph: Graph) -> Iterable[Size | None]:
    """Return every dimension and every element of a shape value in a graph; None for an unknown shape."""
    for value in graph.values():
        type = value.type
        if not isinstance(type, Tensor) or type.shape is None or type.dtype is None or type.dtype.name == "string":
            yield None
            continue
        yield from type.shape
        yield from _elements_of(value)


def _elements_of(value: Value) -> Iterable[Size]:
    if value._value is None or value.constant is not None:
        return ()
    elements: list[Size] = np.asarray(value._value, dtype=object).reshape(-1).tolist()
    return elements


def is_affine(size: Size | None, steps: Mapping[str, tuple[int, int]], others: Mapping[str, int]) -> bool:
    """Return whether an expression is affine in ``q`` for each of some symbols of the form ``step * q + rest``, for all ``q``.

    ``steps``: step and rest by symbol. ``others``: the sizes of the other symbols.
    """
    if size is None:
        return False
    if isinstance(size, int | np.integer | np.bool_):
        return True
    try:
        known = symbolic.substitute(size, others)
        rest = symbolic.substitute(known, {name: _at(name, *step) for name, step in steps.items()})
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False
    if isinstance(rest, int):
        return True
    return all(str(symbol) in steps for symbol in symbolic.symbols(rest)) and all(_is_affine_in(rest, name) for name in steps)


def _at(name: str, step: int, rest: int) -> Size:
    size: Size = step * symbolic.symbol(name) + rest
    return size


def input_symbols_of(graph: Graph) -> frozenset[str]:
    """Return the names of the symbols in the shapes of a graph's inputs."""
    sizes = [size for value in graph.inputs if isinstance(value.type, Tensor) for size in value.type.shape or ()]
    return frozenset(str(symbol) for size in sizes if size is not None for symbol in symbolic.symbols(size))


def periods_of(graph: Graph) -> dict[str, int]:
    """Return the smallest period of each input symbol in which every expression of a graph is affine, whatever the others are.

    Symbols without a period in PERIODS are left out.
    """
    known = input_symbols_of(graph)
    sizes = {size for size in size_expressions(graph) if not isinstance(size, int | np.integer | np.bool_)}
    if any(size is None or any(str(symbol) not in known for symbol in symbolic.symbols(size)) for size in sizes):
        return {}
    expressions = [size for size in sizes if size is not None]
    found = {name: _period_of(name, expressions) for name in known}
    return {name: period for name, period in found.items() if period is not None}


def _period_of(name: str, sizes: Sequence[Size]) -> int | None:
    """Return the period of a symbol; None where there is none."""
    depending = [size for size in sizes if any(str(symbol) == name for symbol in symbolic.symbols(size))]
    for period in PERIODS:
        if all(_is_periodic(size, name, period, rest) for size in depending for rest in sorted({0, 1 % period, period - 1})):
            return period
    return None


def _is_periodic(size: Size, name: str, period: int, rest: int) -> bool:
    try:
        return _is_affine_in(symbolic.substitute(size, {name: _at(name, period, rest)}), name)
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False


def _is_affine_in(size: Size, name: str) -> bool:
    variables = [symbol for symbol in symbolic.symbols(size) if str(symbol) == name]
    try:
        at_zero, at_one = (symbolic.substitute(size, {name: number}) for number in (0, 1))
        return not variables or bool(size == at_zero + (at_one - at_zero) * variables[0])
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False
