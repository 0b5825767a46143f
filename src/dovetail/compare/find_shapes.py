"""Sizes of open dimensions at which a model works: tried one after the other, led by the node that fails.

A model's file often leaves sizes open that its nodes do not: an image has to be large enough for all of its windows, a state as
wide as the weights that it meets, a mask as long as what it hides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np

from dovetail import symbolic
from dovetail.errors import DovetailError
from dovetail.interpreter.evaluate import evaluate_node, last_readers
from dovetail.ir.edit import copy_graph
from dovetail.ir.graph import Graph, Model, Node
from dovetail.ir.op import infer_types, infer_values
from dovetail.ir.types import Size, Tensor

PLAIN = (2, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 224, 256, 384, 512, 1024, 2048, 4096, 8192)
"""What is tried beside the sizes that the failing node sees; 1 comes last, as it fits where it says least."""
LARGEST = 1 << 15
SHIFTED = 128
"""The largest size that is tried before smaller ones because it would make two numbers equal."""
BUDGET = 600_000
"""What a search may cost before it is given up: 1 for a constant that is passed over."""
INFER = 10
"""What inferring a node costs."""
DEPTH = 3
"""How many sizes are changed one after the other for one node."""
RUN = 100
"""What running a node costs."""


class Reached(NamedTuple):
    """How far a graph works: the place of the node that fails, and its fault."""

    place: int
    fault: str = ""


Sizes = Mapping[str, int]
Arrays = Callable[[Sizes], list[Any]]
Found = tuple[dict[str, int], Reached] | None


def fitting_sizes(model: Model, start: Sizes, free: Mapping[str, Size], arrays: Arrays | None = None) -> dict[str, int]:
    """Sizes like ``start`` at which no rule of ``model`` is broken; ``start`` itself where none are found.

    ``free`` are the symbols that may change. With ``arrays``, which makes inputs for sizes, the model is also run at them: some
    rules, as that an index lies inside, are about elements.
    """
    trial = _Trial(model, arrays)
    best, reached = dict(start), trial.reach(start)
    while reached.place < trial.length:
        found = _step(model.graph, trial, best, reached, free) or _steps(model.graph, trial, best, reached, free)
        if found is None:
            return dict(start)
        best, reached = found
    return best


def _step(graph: Graph, trial: _Trial, sizes: Sizes, reached: Reached, free: Mapping[str, Size]) -> Found:
    """The first change that leads further."""
    node = graph.nodes[reached.place]
    for names, size in (*_shifts(node, sizes, reached, free), *_changes(graph, node, free)):
        if all(_may_be(free[name], size) for name in names):
            tried = {**sizes, **dict.fromkeys(names, size)}
            found = trial.reach(tried)
            if found.place > reached.place:
                return tried, found
        if trial.budget <= 0:
            return None
    return None


def _steps(graph: Graph, trial: _Trial, sizes: Sizes, reached: Reached, free: Mapping[str, Size]) -> Found:
    """The first changes one after the other to numbers that the node complains of, where each makes it complain of others:
    a recurrent layer wants its input and its states to fit its weights."""
    seen = _seen(graph.nodes[reached.place])[0]
    groups = _groups(graph, [name for name in free if name in seen] or list(free))
    row: list[tuple[Sizes, Reached]] = [(sizes, reached)]
    for _ in range(DEPTH):
        here, row = row, []
        for sizes, reached in here:
            for names, size in product(groups, _numbers(reached)):
                if trial.budget <= 0 or not all(_may_be(free[name], size) for name in names):
                    continue
                tried = {**sizes, **dict.fromkeys(names, size)}
                found = trial.reach(tried)
                if found.place > reached.place:
                    return tried, found
                if found.place == reached.place and found.fault != reached.fault:
                    row.append((tried, found))
    return None


def _shifts(node: Node, sizes: Sizes, reached: Reached, free: Mapping[str, Size]) -> Iterator[tuple[tuple[str, ...], int]]:
    """One size longer by what two numbers in the fault differ by: a length may be the sum of others."""
    seen = _seen(node)[0]
    for first, second in permutations(_numbers(reached), 2):
        for name in free:
            if name in seen and 0 < sizes[name] + second - first <= SHIFTED:
                yield (name,), sizes[name] + second - first


def _numbers(reached: Reached) -> list[int]:
    return sorted(map(int, re.findall(r"\d{1,6}", reached.fault)))


def _changes(graph: Graph, node: Node, free: Mapping[str, Size]) -> Iterator[tuple[tuple[str, ...], int]]:
    """What to try for a node that fails: the open sizes that it sees, from small to large; then the other open sizes too."""
    seen, numbers = _seen(node)
    sizes = [*(size for size in sorted({*PLAIN, *numbers}) if 1 < size <= LARGEST), 1]
    for names in ([name for name in free if name in seen], list(free)):
        yield from ((group, size) for size, group in product(sizes, _groups(graph, names)))


def _groups(graph: Graph, names: list[str]) -> list[tuple[str, ...]]:
    """What is changed alike: one size; two of an input, the last ones first, which are an image's height and width; the same
    axis of two inputs."""
    shapes = [value.type.shape or () for value in graph.inputs if isinstance(value.type, Tensor)]
    axes = [[name if name in names else None for name in map(_name, shape)] for shape in shapes]
    inside = [pair for row in axes for pair in combinations([name for name in reversed(row) if name], 2)]
    across = [pair for first, second in combinations(axes, 2) for pair in zip(first, second, strict=False)]
    pairs = [(one, other) for one, other in (*inside, *across) if one is not None and other is not None and one != other]
    return list(dict.fromkeys([*((name,) for name in names), *pairs]))


def _name(size: Size) -> str | None:
    return None if isinstance(size, int) else symbolic.name_of(size)


def _seen(node: Node) -> tuple[set[str], set[int]]:
    """The symbols and the numbers in the sizes, and the values of shapes, that a node reads."""
    sizes: list[Any] = []
    for x in node.inputs:
        if x is not None and isinstance(x.type, Tensor):
            sizes += [*(x.shape or ()), *(np.ravel(x.value).tolist() if x.value is not None else ())]
    sizes = [size for size in sizes if isinstance(size, int | symbolic.Dim) and not isinstance(size, bool)]
    return set(_names(sizes)), {size for size in sizes if isinstance(size, int)}


def _names(sizes: Iterable[Size]) -> list[str]:
    found = (symbolic.name_of(symbol) for size in sizes if not isinstance(size, int) for symbol in symbolic.symbols(size))
    return list(dict.fromkeys(name for name in found if name is not None))


def _may_be(symbol: Size, size: int) -> bool:
    low, high = symbolic.bounds(symbol)
    return (low is None or low <= size) and (high is None or size <= high)


class _Trial:
    """A copy of a graph that is inferred, and run, at one choice of sizes after the other."""

    def __init__(self, model: Model, arrays: Arrays | None) -> None:
        self.types = [value.type for value in model.graph.inputs]
        self.graph = copy_graph(model.graph)
        self.arrays = arrays
        self.length = len(self.graph.nodes)
        self.budget = BUDGET
        self.known: dict[tuple[int, ...], Reached] = {}

    def reach(self, sizes: Sizes) -> Reached:
        """The first node that fails; the place behind the last where none does."""
        key = tuple(sizes.values())
        if key not in self.known:
            found = self._inferred(sizes)
            if self.arrays is not None and found.place == self.length:
                found = self._run(self.arrays(sizes))
            self.known[key] = found
        return self.known[key]

    def _inferred(self, sizes: Sizes) -> Reached:
        for value, open_type in zip(self.graph.inputs, self.types, strict=True):
            if isinstance(open_type, Tensor) and open_type.shape is not None:
                value.type = Tensor(open_type.dtype, tuple(symbolic.evaluate(size, sizes) for size in open_type.shape))
        for place, node in enumerate(self.graph.nodes):
            self.budget -= 1
            if type(node.op).__name__ in ("Constant", "Foreign"):
                continue
            self.budget -= INFER
            try:
                types = infer_types(node.op, tuple(node.inputs), node.outputs[0].name if node.outputs else "")
                values = infer_values(node.op, tuple(node.inputs), types)
            except DovetailError as error:
                return Reached(place, error.diagnostics[0].message)
            for y, found, value in zip(node.outputs, types, values, strict=True):
                y.type, y._value = found, value
        return Reached(self.length)

    def _run(self, arrays: list[Any]) -> Reached:
        found: dict[int, Any] = {id(value): array for value, array in zip(self.graph.inputs, arrays, strict=True)}
        last = last_readers(self.graph)
        for place, node in enumerate(self.graph.nodes):
            self.budget -= RUN
            try:
                results = evaluate_node(node, np, [None if x is None else found[id(x)] for x in node.inputs])
            except DovetailError as error:
                return Reached(place, error.diagnostics[0].message)
            found.update({id(y): result for y, result in zip(node.outputs, results, strict=False)})
            for key in last.get(place, ()):
                found.pop(key, None)
        return Reached(self.length)


__all__ = ["fitting_sizes"]
