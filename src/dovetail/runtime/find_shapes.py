"""Search for sizes of symbolic dimensions with which a model runs, guided by the first node that fails.

A file often leaves sizes symbolic although its nodes constrain them: an image must be large enough for all convolution windows,
a state as wide as its weights, a mask as long as its sequence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, permutations, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.errors import DovetailError, EngineError
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_graph
from dovetail.ir.evaluate import RunArrays, bytes_of_types, evaluate_node, last_readers, type_of
from dovetail.ir.graph import Graph, Model, Node
from dovetail.ir.limits import current, refuse_memory
from dovetail.ir.op import infer_types, infer_values
from dovetail.ir.types import Size, Tensor, Type, View

CANDIDATES = (
    2,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    48,
    64,
    96,
    128,
    192,
    224,
    256,
    384,
    512,
    1024,
    2048,
    4096,
    8192,
)
"""Candidate sizes in addition to the sizes that the failing node reads. Size 1 comes last, as it broadcasts with all sizes."""
SIZE_LIMIT = 1 << 15
DENSE_LIMIT = 1 << 12
"""The largest size, and the largest product of two sizes, in the search that checks only the rule of the failing node."""
DENSE_TRIALS = 8
"""The maximum number of candidates of the DENSE_LIMIT search that are tried on the whole model."""
PAIR_LIMIT = 1 << 8
"""The largest size in a candidate that changes two sizes."""
PAIR_COST = 4
"""The factor by which the product of a candidate with two changed sizes is increased in the order of candidates."""
TRIAL_BYTES = 1 << 30
"""The maximum bytes of the live values in a trial; if four times the bytes of the inputs is more, that is the maximum."""
INPUT_BYTES = 1 << 40
"""The bytes of inputs above which a trial fails before its graph is inferred."""
SHIFT_LIMIT = 128
"""The largest size among the first candidates, which add the difference of two numbers in the error text to a size."""
SHIFTS = (1, 2, 3, 4, 8)
"""Increments that are tried for a size that equals another size, until the model runs."""
BUDGET = 600_000
"""The total cost at which a search stops; the unit is the cost of visiting one constant."""
SMALLEST_SHARE = 2
"""The search for the smallest change at one node may use the remaining budget divided by this number."""
INFER = 10
"""The cost of inferring the types of one node, in the unit of BUDGET."""
DEPTH = 3
"""The maximum number of successive changes for one failing node."""
RUN = 100
"""The cost of running one node, in the unit of BUDGET."""


class Progress(NamedTuple):
    """Progress is the result of a trial: index and error text of the first failing node; the number of nodes if none fails."""

    node: int
    fault: str = ""


Sizes = Mapping[str, int]
Arrays = Callable[[Sizes], list[Any]]
Candidate = tuple[dict[str, int], Progress] | None


def find_sizes(model: Model, start: Sizes, free: Mapping[str, Size], arrays: Arrays | None = None) -> dict[str, int]:
    """Return sizes close to ``start`` with which every rule of ``model`` holds; ``start`` if the search fails.

    ``free`` holds the symbols that may change. ``arrays`` is a function that returns inputs for sizes. With it the model is also
    run, because some rules concern elements of tensors, for example the range of indices.
    """
    trial = _Trial(model, arrays)
    best, reached = dict(start), trial.reach(start)
    while reached.node < trial.length:
        searches = (search(model.graph, trial, best, reached, free) for search in (_smallest, _step, _steps))
        found = next((candidate for candidate in searches if candidate is not None), None)
        if found is None:
            return dict(start)
        best, reached = found
    return best


def separate_sizes(model: Model, sizes: Sizes, free: Mapping[str, Size], arrays: Arrays | None = None) -> dict[str, int]:
    """Return sizes in which each free size differs from all other sizes, as far as the rules of ``model`` allow.

    If two sizes are equal by chance, a test cannot detect that their axes were swapped.
    """
    trial = _Trial(model, arrays)
    found = dict(sizes)
    if trial.reach(found).node < trial.length:
        return found
    taken = {size for name, size in found.items() if name not in free}
    done: set[str] = set()
    for name in free:
        if name in done:
            continue
        done.add(name)
        if found[name] in taken:
            equal = [other for other in free if other not in done and found[other] == found[name]]
            for group, shift in product([(name,), *((name, other) for other in equal)], SHIFTS):
                size = found[name] + shift
                candidate = {**found, **dict.fromkeys(group, size)}
                if size in taken or not all(_may_be(free[each], size) for each in group):
                    continue
                if trial.reach(candidate).node == trial.length:
                    found = candidate
                    done.update(group)
                    break
        taken.add(found[name])
    return found


def refuse_live_memory(model: Model, inputs: Iterable[Any]) -> None:
    """Raise EngineError [run.memory] if a memory limit is set and the simultaneously live values of a run exceed it.

    This check precedes a run of the model in another engine. ``inputs`` are the arrays of the model's inputs in order. The sum
    leaves out values whose sizes only a run determines.
    """
    limits = current().limits
    if limits.memory is not None:
        trial = _Trial(model, None)
        node = trial.weigh(map(type_of, inputs)).node
        if node < trial.length:
            message = f"the run needs more memory than allowed; {limits.describe('memory')}"
            raise EngineError("run.memory", message, node=model.graph.nodes[node].label)


def _smallest(graph: Graph, trial: _Trial, sizes: Sizes, reached: Progress, free: Mapping[str, Size]) -> Candidate:
    """Return the candidate with the smallest product of sizes with which the model reaches a later node.

    Candidates are first checked against the rule of the failing node only. The sizes of the node's inputs are expressions in the
    symbols, so that this check infers types of a single node.
    """
    node = graph.nodes[reached.node]
    symbols_read = _sizes_read_by(node)[0]
    names = [name for name in free if name in symbols_read]
    if not names or type(node.op).__name__ == "Foreign" or _holds(node, sizes) is not False:
        return None
    trials = 0
    end = trial.budget - trial.budget // SMALLEST_SHARE
    for changes in _by_product(names, sizes):
        if not all(_may_be(free[name], size) for name, size in changes.items()):
            continue
        candidate = {**sizes, **changes}
        trial.budget -= INFER
        if trial.budget <= end or trials == DENSE_TRIALS:
            return None
        if _holds(node, candidate):
            trials += 1
            found = trial.reach(candidate)
            if found.node > reached.node:
                return candidate, found
    return None


def _by_product(names: list[str], sizes: Sizes) -> Iterator[dict[str, int]]:
    """Yield changes of one or two sizes, ordered by the product of all sizes; for two sizes, multiplied by PAIR_COST.

    Changes to size 1 come last, because 1 broadcasts with all sizes.
    """
    rest = {name: prod(max(1, sizes[other]) for other in names if other != name) for name in names}
    singles = [(size * rest[name], size, {name: size}) for name in names for size in range(1, DENSE_LIMIT + 1)]
    pairs = []
    for one, other in combinations(names[:DEPTH], 2):
        factor = rest[one] // max(1, sizes[other])
        for first in range(1, int(DENSE_LIMIT**0.5) + 1):
            for second in range(first, min(DENSE_LIMIT // first, PAIR_LIMIT) + 1):
                changes = ({one: first, other: second}, {one: second, other: first})
                pairs += [(PAIR_COST * first * second * factor, second, change) for change in changes]
    every = sorted([*singles, *pairs], key=lambda candidate: (1 in candidate[2].values(), candidate[0], candidate[1]))
    yield from (change for _, _, change in every)


def _holds(node: Node, sizes: Sizes) -> bool | None:
    """Return whether the rule of a node holds for ``sizes``; None if the node's input sizes depend on other symbols."""
    try:
        views = tuple(None if x is None else _at_sizes(x, sizes) for x in node.inputs)
    except (symbolic.Inexact, ZeroDivisionError):
        return None
    open_sizes = (size for x in node.inputs if x is not None and isinstance(x.type, Tensor) for size in x.type.shape or ())
    if any(not isinstance(size, int) and symbolic.evaluate(size, sizes) < 1 for size in open_sizes):
        return False
    try:
        infer_types(node.op, views)
    except DovetailError:
        return False
    return True


def _at_sizes(x: View, sizes: Sizes) -> View:
    """Return a View of an input with its symbolic sizes evaluated. Raises Inexact for a symbol that ``sizes`` lacks."""
    if not isinstance(x.type, Tensor) or x.type.shape is None:
        return View(x.type)
    shape = tuple(symbolic.evaluate(size, sizes) for size in x.type.shape)
    value = x.value
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        elements = [symbolic.evaluate(item, sizes) for item in value.reshape(-1).tolist()]
        value = np.array([*elements, None], object)[:-1].reshape(value.shape)
    return View(Tensor(x.type.dtype, shape), value)


def _step(graph: Graph, trial: _Trial, sizes: Sizes, reached: Progress, free: Mapping[str, Size]) -> Candidate:
    """Return the first change of sizes with which the model reaches a later node."""
    node = graph.nodes[reached.node]
    for names, size in (*_shifts(node, sizes, reached, free), *_changes(graph, node, free)):
        if all(_may_be(free[name], size) for name in names):
            candidate = {**sizes, **dict.fromkeys(names, size)}
            found = trial.reach(candidate)
            if found.node > reached.node:
                return candidate, found
        if trial.budget <= 0:
            return None
    return None


def _steps(graph: Graph, trial: _Trial, sizes: Sizes, reached: Progress, free: Mapping[str, Size]) -> Candidate:
    """Return the first sequence of changes with which the model reaches a later node; new sizes are numbers in error texts.

    One change may lead to another error of the same node: a recurrent layer checks both its input and its states against its
    weights.
    """
    symbols_read = _sizes_read_by(graph.nodes[reached.node])[0]
    groups = _groups(graph, [name for name in free if name in symbols_read] or list(free))
    row: list[tuple[Sizes, Progress]] = [(sizes, reached)]
    for _ in range(DEPTH):
        here, row = row, []
        for sizes, reached in here:
            for names, size in product(groups, _numbers(reached)):
                if trial.budget <= 0 or not all(_may_be(free[name], size) for name in names):
                    continue
                candidate = {**sizes, **dict.fromkeys(names, size)}
                found = trial.reach(candidate)
                if found.node > reached.node:
                    return candidate, found
                if found.node == reached.node and found.fault != reached.fault:
                    row.append((candidate, found))
    return None


def _shifts(node: Node, sizes: Sizes, reached: Progress, free: Mapping[str, Size]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield changes that add the difference of two numbers in the error text to a size: a length may be a sum of lengths."""
    symbols_read = _sizes_read_by(node)[0]
    for first, second in permutations(_numbers(reached), 2):
        for name in free:
            if name in symbols_read and 0 < sizes[name] + second - first <= SHIFT_LIMIT:
                yield (name,), sizes[name] + second - first


def _numbers(reached: Progress) -> list[int]:
    """Return the numbers in an error text that may be sizes, without 0, since most rules hold trivially for size 0."""
    return sorted(number for number in map(int, re.findall(r"\d{1,6}", reached.fault)) if 0 < number <= SIZE_LIMIT)


def _changes(graph: Graph, node: Node, free: Mapping[str, Size]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield changes for a failing node: first of the symbols that the node reads, then of all symbols; new sizes increase."""
    symbols_read, numbers = _sizes_read_by(node)
    sizes = [*(size for size in sorted({*CANDIDATES, *numbers}) if 1 < size <= SIZE_LIMIT), 1]
    for names in ([name for name in free if name in symbols_read], list(free)):
        yield from ((group, size) for size, group in product(sizes, _groups(graph, names)))


def _groups(graph: Graph, names: list[str]) -> list[tuple[str, ...]]:
    """Return the groups of symbols that change together.

    A group is one symbol, two axes of an input (the last axes first, such as height and width of an image), or the same axis of
    two inputs.
    """
    shapes = [value.type.shape or () for value in graph.inputs if isinstance(value.type, Tensor)]
    axes = [[name if name in names else None for name in map(symbolic.name_of, shape)] for shape in shapes]
    inside = [pair for row in axes for pair in combinations([name for name in reversed(row) if name], 2)]
    across = [pair for first, second in combinations(axes, 2) for pair in zip(first, second, strict=False)]
    pairs = [(one, other) for one, other in (*inside, *across) if one is not None and other is not None and one != other]
    return list(dict.fromkeys([*((name,) for name in names), *pairs]))


def _sizes_read_by(node: Node) -> tuple[set[str], set[int]]:
    """Return the symbols and the integers in the shapes, and in the known elements, of a node's inputs."""
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
    """_Trial holds a copy of a graph, and infers and runs it for successive choices of sizes."""

    def __init__(self, model: Model, arrays: Arrays | None) -> None:
        self.types = [value.type for value in model.graph.inputs]
        self.graph = copy_graph(model.graph)
        self.arrays = arrays
        self.length = len(self.graph.nodes)
        self.last = last_readers(self.graph)
        self.budget = BUDGET
        self.known: dict[tuple[int, ...], Progress] = {}

    def reach(self, sizes: Sizes) -> Progress:
        """Return the Progress up to the first node that fails with ``sizes``."""
        key = tuple(sizes.values())
        if key not in self.known:
            current().check_time()
            types = list(self._types_at(sizes))
            if (bytes_of_types(types) or 0) > INPUT_BYTES:
                self.budget -= INFER * self.length
                found = Progress(0, "the inputs exceed the memory of a trial")
            else:
                found = self._infer(types)
            if found.node == self.length:
                found = self._weigh()
            if self.arrays is not None and found.node == self.length:
                found = self._run(self.arrays(sizes))
            self.known[key] = found
        return self.known[key]

    def weigh(self, types: Iterable[Type]) -> Progress:
        """Return the Progress, for inputs of ``types``, up to the node that exceeds the memory limit of a run or a trial."""
        return self._weigh() if self._infer(types).node == self.length else Progress(self.length)

    def _types_at(self, sizes: Sizes) -> Iterator[Type]:
        for open_type in self.types:
            if isinstance(open_type, Tensor) and open_type.shape is not None:
                yield Tensor(open_type.dtype, tuple(symbolic.evaluate(size, sizes) for size in open_type.shape))
            else:
                yield open_type

    def _infer(self, types: Iterable[Type]) -> Progress:
        for value, type_at_sizes in zip(self.graph.inputs, types, strict=True):
            value.type = type_at_sizes
        for index, node in enumerate(self.graph.nodes):
            self.budget -= 1
            if type(node.op).__name__ in ("Constant", "Foreign"):
                continue
            self.budget -= INFER
            try:
                output_types = infer_types(node.op, tuple(node.inputs), node.outputs[0].name if node.outputs else "")
                values = infer_values(node.op, tuple(node.inputs), output_types)
            except DovetailError as error:
                return Progress(index, error.diagnostics[0].message)
            for y, output_type, value in zip(node.outputs, output_types, values, strict=True):
                y.type, y._value = output_type, value
        return Progress(self.length)

    def _weigh(self) -> Progress:
        """Return the Progress up to the node at which the inferred graph's live values exceed the memory of a run or a trial."""
        held: dict[int, int] = {id(value): bytes_of_types([value.type]) or 0 for value in self.graph.inputs}
        memory = sum(held.values())
        largest = max(TRIAL_BYTES, 4 * memory)
        for index, node in enumerate(self.graph.nodes):
            if not any(x is not None for x in node.inputs) and node.outputs and node.outputs[0].constant is not None:
                continue
            for y in node.outputs:
                held[id(y)] = bytes_of_types([y.type]) or 0
                memory += held[id(y)]
            try:
                refuse_memory(current().limits, memory, "the values")
            except DovetailError:
                return Progress(index, "the values exceed the memory of a run")
            if memory > largest:
                return Progress(index, "the values exceed the memory of a trial")
            for key in self.last.get(index, ()):
                memory -= held.pop(key, 0)
        return Progress(self.length)

    def _run(self, arrays: list[Any]) -> Progress:
        with RunArrays(zip(map(id, self.graph.inputs), arrays, strict=True)) as found:
            for index, node in enumerate(self.graph.nodes):
                self.budget -= RUN
                current().check_time()
                try:
                    found.store(node, evaluate_node(node, np, [None if x is None else found[id(x)] for x in node.inputs]))
                except DovetailError as error:
                    return Progress(index, error.diagnostics[0].message)
                for key in self.last.get(index, ()):
                    found.release(key)
        return Progress(self.length)
