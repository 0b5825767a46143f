"""Which sizes of a graph are ``a + b * n`` in the size ``n`` of one symbol of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.ir.graph import Graph, Value
from dovetail.ir.types import Tensor


def expressions(graph: Graph) -> Iterable[Any]:
    """Every size and every element of a shape value in a graph; None for a shape that is not known."""
    for value in graph.values():
        type = value.type
        if not isinstance(type, Tensor) or type.shape is None or type.dtype is None or type.dtype.name == "string":
            yield None
            continue
        yield from type.shape
        yield from _elements(value)


def _elements(value: Value) -> Iterable[Any]:
    if value._value is None or value.constant is not None:
        return ()
    found: list[Any] = np.asarray(value._value, dtype=object).reshape(-1).tolist()
    return found


def is_linear(size: Any, symbol: str, others: Mapping[str, int]) -> bool:
    """Whether an expression is ``a + b * symbol``, whatever the symbol is, for these sizes of the other symbols."""
    if size is None:
        return False
    if isinstance(size, int | np.integer | np.bool_):
        return True
    try:
        rest = symbolic.substitute(size, others)
        if isinstance(rest, int):
            return True
        at_zero, at_one = (symbolic.substitute(rest, {symbol: number}) for number in (0, 1))
        if not isinstance(at_zero, int) or not isinstance(at_one, int):
            return False
        (found,) = symbolic.symbols(rest)
        return bool(rest == at_zero + (at_one - at_zero) * found)
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False


def input_symbols(graph: Graph) -> frozenset[str]:
    """The names of the symbols among the sizes of a graph's inputs."""
    sizes = [size for value in graph.inputs if isinstance(value.type, Tensor) for size in value.type.shape or ()]
    return frozenset(str(symbol) for size in sizes if size is not None for symbol in symbolic.symbols(size))


def linear_symbols(graph: Graph) -> frozenset[str]:
    """The symbols of the inputs in which every expression of a graph is linear, with expressions of the others for a and b."""
    known = input_symbols(graph)
    sizes = {size for size in expressions(graph) if not isinstance(size, int | np.integer | np.bool_)}
    if any(size is None or any(str(symbol) not in known for symbol in symbolic.symbols(size)) for size in sizes):
        return frozenset()
    return frozenset(name for name in known if all(_is_linear_in(size, name) for size in sizes))


def _is_linear_in(size: Any, name: str) -> bool:
    found = [symbol for symbol in symbolic.symbols(size) if str(symbol) == name]
    try:
        at_zero, at_one = (symbolic.substitute(size, {name: number}) for number in (0, 1))
        return not found or bool(size == at_zero + (at_one - at_zero) * found[0])
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return False


__all__ = ["expressions", "input_symbols", "is_linear", "linear_symbols"]
