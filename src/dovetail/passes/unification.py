"""Unification of types that must be equal, by substitution of the symbols in their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.graph import Graph
from dovetail.ir.op import bodies
from dovetail.ir.substitution import map_elements, substitute_type
from dovetail.ir.types import Map, Optional, Sequence, Size, Tensor, Type, is_unnamed, sizes_in


class Unifier:
    """Unifier collects the substitution of symbols under which pairs of types become equal.

    ``substitution`` maps names of symbols to sizes that contain none of these symbols. The two types of a pair must not have
    symbols of the same name.
    """

    def __init__(self) -> None:
        self.substitution: dict[str, Size] = {}

    def unify_types(self, first: Type, second: Type) -> None:
        """Add the substitution that makes the types equal. An unknown element type or rank is equal to any other.

        Raises RuleError [type.disagree], [shape.rank], [shape.disagree].
        """
        if isinstance(first, Tensor) and isinstance(second, Tensor):
            self._unify_tensors(first, second)
        elif (
            (isinstance(first, Sequence) and isinstance(second, Sequence))
            or (isinstance(first, Optional) and isinstance(second, Optional))
            or (isinstance(first, Map) and isinstance(second, Map) and first.key is second.key)
        ):
            self.unify_types(first.element, second.element)
        elif not _is_unknown(first) and not _is_unknown(second):
            raise RuleError("type.disagree", f"types must be equal, got {first} and {second}")

    def _unify_tensors(self, first: Tensor, second: Tensor) -> None:
        if first.dtype is not None and second.dtype is not None and first.dtype is not second.dtype:
            raise RuleError("type.disagree", f"element types must be equal, got {first} and {second}")
        if first.shape is None or second.shape is None:
            return
        if len(first.shape) != len(second.shape):
            raise RuleError("shape.rank", f"ranks must be equal, got {first} and {second}")
        # The elements of a sequence may have sizes of None.
        pairs: Any = zip(first.shape, second.shape, strict=True)
        for one, other in pairs:
            if one is not None and other is not None and not self._unify_sizes(self.apply(one), self.apply(other)):
                raise RuleError("shape.disagree", f"shapes must be equal, got {first} and {second}")

    def _unify_sizes(self, first: Size, second: Size) -> bool:
        """Extend the substitution so that two sizes become equal; return False if they differ.

        Sizes that only a run can compare are accepted without a substitution.
        """
        if first == second:
            return True
        if symbolic.equal(first, second) is False:
            return False
        # Replace an unnamed symbol of inference by a named size, so that names of the model survive.
        pairs = [(second, first), (first, second)]
        for one, other in reversed(pairs) if is_unnamed(first) and not is_unnamed(second) else pairs:
            name = symbolic.name_of(one)
            if name is None or any(symbolic.name_of(symbol) == name for symbol in symbolic.symbols(other)):
                continue
            common = _within_bounds(one, other)
            if common is None:
                return False
            self._replace(name, common)
            kept = symbolic.name_of(other)
            if kept is not None and common != other:
                self._replace(kept, common)
            return True
        return True

    def _replace(self, name: str, size: Size) -> None:
        self.substitution = {key: symbolic.substitute(item, {name: size}) for key, item in self.substitution.items()}
        self.substitution[name] = size

    def apply(self, size: Size) -> Size:
        """Return a size whose symbols are replaced by the substitution."""
        return symbolic.substitute(size, self.substitution)


def _is_unknown(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype is None and type.shape is None


def _within_bounds(symbol: Size, size: Size) -> Size | None:
    """Return ``size``, a symbol with bounds narrowed to those of ``symbol``; None if no number is within both bounds."""
    low, high = symbolic.merge_bounds(symbolic.bounds(symbol), symbolic.bounds(size))
    if low is not None and high is not None and low > high:
        return None
    name = symbolic.name_of(size)
    return size if name is None else symbolic.symbol(name, low, high)


def substitute_symbols(graph: Graph, substitution: Mapping[str, Size]) -> None:
    """Replace symbols in the types and shape values of ``graph`` and of its subgraphs, all at once."""
    if not substitution:
        return
    for value in graph.values():
        value.type = substitute_type(value.type, substitution)
        value._value = map_elements(value._value, lambda size: symbolic.substitute(size, substitution))
    for node in graph.nodes:
        for _, body in bodies(node.op):
            substitute_symbols(body, substitution)


def symbols_in(graph: Graph) -> dict[str, symbolic.Dim]:
    """Return the symbols in the types and shape values of ``graph`` and of its subgraphs, by name, in order of appearance."""
    symbols: dict[str, symbolic.Dim] = {}
    for value in graph.values():
        sizes = list(sizes_in(value.type))
        # Symbols of unknown elements are created when they are first read.
        elements = value.value
        if elements is not None and elements.dtype == object:
            sizes += elements.reshape(-1).tolist()
        for size in sizes:
            for symbol in symbolic.symbols(size):
                symbols.setdefault(str(symbolic.name_of(symbol)), symbol)
    for node in graph.nodes:
        for _, body in bodies(node.op):
            symbols = {**symbols_in(body), **symbols}
    return symbols
