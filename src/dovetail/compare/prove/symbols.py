"""Unification of the inputs of several models by name, and of the symbols of their sizes by input and axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dovetail.ir import symbolic
from dovetail.ir.graph import Model, Value
from dovetail.ir.substitution import map_sizes
from dovetail.ir.types import Size, Tensor, Type, sizes_in


@dataclass(slots=True)
class Interface:
    """Interface holds the unified inputs of several models: their types by name, and the reasons why an input differs.

    ``types`` has one entry for each model and input name; equal entries are one input. ``sizes`` has, for each model, the open
    sizes by symbol that another model fixes.
    """

    types: list[dict[str, Type]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    sizes: list[dict[str, int]] = field(default_factory=list)


class _Classes:
    """_Classes is a union-find over the symbols of the models; a class of symbols may equal an integer."""

    def __init__(self) -> None:
        self._parent: dict[tuple[int, str], tuple[int, str]] = {}
        self._number: dict[tuple[int, str], int] = {}
        self._bounds: dict[tuple[int, str], tuple[int | None, int | None]] = {}
        self._names: dict[tuple[int, str], str] = {}

    def root(self, key: tuple[int, str]) -> tuple[int, str]:
        while (parent := self._parent.get(key, key)) != key:
            self._parent[key] = self._parent.get(parent, parent)
            key = parent
        return key

    def add(self, key: tuple[int, str], symbol: Size) -> None:
        if key not in self._bounds:
            self._bounds[key] = symbolic.bounds(symbol)

    def unite(self, first: tuple[int, str], second: tuple[int, str]) -> None:
        a, b = self.root(first), self.root(second)
        if a == b:
            return
        self._parent[b] = a
        self._bounds[a] = symbolic.merge_bounds(self._bounds[a], self._bounds[b])
        if b in self._number:
            self._number.setdefault(a, self._number[b])

    def fix(self, key: tuple[int, str], number: int) -> None:
        self._number.setdefault(self.root(key), number)

    def fixed_sizes(self, index: int) -> dict[str, int]:
        """Return the symbols of a model that equal an integer, with this integer."""
        keys = [key for key in self._bounds if key[0] == index and self.root(key) in self._number]
        return {name: self._number[self.root((index, name))] for _, name in sorted(keys)}

    def size(self, key: tuple[int, str]) -> Size:
        """Return the replacement of a symbol: the symbol of its class, or the integer that the class equals."""
        root = self.root(key)
        if root in self._number:
            return self._number[root]
        name = self._names.setdefault(root, f"size{len(self._names)}")
        low, high = self._bounds[root]
        if low is not None and high is not None and low > high:
            low, high = 0, None
        return symbolic.symbol(name, low, high)


def unify_inputs(models: Sequence[Model], *, fit_sizes: bool = False) -> Interface:
    """Unify the inputs of models. Symbols at the same axis of inputs of the same name become one symbol.

    With ``fit_sizes`` a size that one model fixes and another leaves open is fixed in both; otherwise inputs with these sizes
    differ.
    """
    classes = _Classes()
    by_name = [{value.name: value for value in model.inputs} for model in models]
    for index, model in enumerate(models):
        for value in model.inputs:
            for size in sizes_in(value.type):
                for symbol in symbolic.symbols(size):
                    classes.add((index, str(symbolic.name_of(symbol))), symbol)
    names = list(dict.fromkeys(name for values in by_name for name in values))
    for name in names:
        holders = [(index, values[name]) for index, values in enumerate(by_name) if name in values]
        for (first, a), (second, b) in pairwise(holders):
            _unify_sizes(classes, (first, a), (second, b), fit_sizes)
    interface = Interface()
    for index, values in enumerate(by_name):

        def size_of(size: Size, index: int = index) -> Size:
            symbols = symbolic.symbols(size)
            if not symbols:
                return size
            return symbolic.substitute(
                size, {(name := str(symbolic.name_of(item))): classes.size((index, name)) for item in symbols}
            )

        interface.types.append({name: map_sizes(value.type, size_of) for name, value in values.items()})
        interface.sizes.append(classes.fixed_sizes(index))
    for name in names:
        if reason := _difference(name, [types.get(name) for types in interface.types]):
            interface.reasons.append(reason)
    return interface


def interface_differences(models: tuple[Model, Model], interface: Interface) -> list[str]:
    """Return the reasons why the inputs, the outputs or the states of two models differ."""
    reasons = list(interface.reasons)
    first, second = ([value.name for value in model.outputs] for model in models)
    for own, other in ((first, second), (second, first)):
        reasons += [f"output {name!r} is in only one model" for name in own if name not in other]
    if {tuple(state) for state in models[0].states} != {tuple(state) for state in models[1].states}:
        reasons.append("the states differ")
    return reasons


def _unify_sizes(classes: _Classes, first: tuple[int, Value], second: tuple[int, Value], fit_sizes: bool) -> None:
    (i, a), (j, b) = first, second
    if not isinstance(a.type, Tensor) or not isinstance(b.type, Tensor) or a.type.shape is None or b.type.shape is None:
        pairs = list(zip(sizes_in(a.type), sizes_in(b.type), strict=False)) if type(a.type) is type(b.type) else []
    else:
        pairs = list(zip(a.type.shape, b.type.shape, strict=False)) if len(a.type.shape) == len(b.type.shape) else []
    for left, right in pairs:
        name, other = symbolic.name_of(left), symbolic.name_of(right)
        if name is not None and other is not None:
            classes.unite((i, name), (j, other))
        elif fit_sizes and name is not None and isinstance(right, int):
            classes.fix((i, name), right)
        elif fit_sizes and other is not None and isinstance(left, int):
            classes.fix((j, other), left)


def _difference(name: str, types: Sequence[Type | None]) -> str:
    """Return why an input differs between the models; empty if it does not."""
    present = [type for type in types if type is not None]
    if len(present) < len(types):
        return f"input {name!r} is in only one model"
    if any(type != present[0] for type in present):
        return f"input {name!r} differs: " + ", ".join(map(str, present))
    return ""
