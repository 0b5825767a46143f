"""Affine sizes: decides which dimensions of a graph are ``a + b * n`` in the size ``n`` of each of some symbols of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dovetail import symbolic
from dovetail.ir.graph import Graph, Value
from dovetail.ir.types import Size, Tensor


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


def is_affine(size: Size | None, names: Sequence[str], others: Mapping[str, int]) -> bool:
    """Return whether an expression is affine in each of the symbols ``names`` for all sizes, given the sizes of the others."""
    if size is None:
        return False
    if isinstance(size, int | np.integer | np.bool_):
        return True
    try:
        rest = symbolic.substitute(size, others)
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False
    if isinstance(rest, int):
        return True
    return all(str(symbol) in names for symbol in symbolic.symbols(rest)) and all(_is_affine_in(rest, name) for name in names)


def input_symbols_of(graph: Graph) -> frozenset[str]:
    """Return the names of the symbols in the shapes of a graph's inputs."""
    sizes = [size for value in graph.inputs if isinstance(value.type, Tensor) for size in value.type.shape or ()]
    return frozenset(str(symbol) for size in sizes if size is not None for symbol in symbolic.symbols(size))


def affine_symbols_of(graph: Graph) -> frozenset[str]:
    """Return the input symbols in which every expression of a graph is affine, with coefficients in the other symbols."""
    known = input_symbols_of(graph)
    sizes = {size for size in size_expressions(graph) if not isinstance(size, int | np.integer | np.bool_)}
    if any(size is None or any(str(symbol) not in known for symbol in symbolic.symbols(size)) for size in sizes):
        return frozenset()
    return frozenset(name for name in known if all(size is not None and _is_affine_in(size, name) for size in sizes))


def _is_affine_in(size: Size, name: str) -> bool:
    variables = [symbol for symbol in symbolic.symbols(size) if str(symbol) == name]
    try:
        at_zero, at_one = (symbolic.substitute(size, {name: number}) for number in (0, 1))
        return not variables or bool(size == at_zero + (at_one - at_zero) * variables[0])
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False
