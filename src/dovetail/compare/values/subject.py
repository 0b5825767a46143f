"""A model with the sizes of its inputs, as a list of operators whose values are compared, and parts of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.compare.arrays import differ_by_ones, tolerance_of
from dovetail.compare.values.array_store import ArrayStore
from dovetail.errors import EngineError
from dovetail.ir.edit import copy_model
from dovetail.ir.extract import extract
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ir.op import draws
from dovetail.ir.types import Tensor, dtype_in
from dovetail.ops.constant import Constant


class Part(NamedTuple):
    """Part is a part of a model with the arrays of its inputs; ``outputs`` are the model's values that the part computes."""

    model: Model
    inputs: dict[str, Any]
    outputs: list[Value]


class Subject:
    """Subject is a model whose types are inferred at the sizes of ``inputs``; outputs depend on each of ``nodes``.

    The first ``constant_count`` operators depend only on constants. Each part that reads their values also computes them.
    """

    def __init__(self, model: Model, inputs: Mapping[str, Any]) -> None:
        self.model = fix_sizes(model, inputs)
        self.inputs = {id(value): inputs[value.name] for value in self.model.inputs}
        graph = self.model.graph
        self._outputs = {id(value) for value in graph.outputs}
        live = _live(graph)
        varying = {id(value) for value in graph.inputs}
        nodes: list[Node] = []
        constant: list[Node] = []
        self.depths: dict[int, int] = dict.fromkeys(varying, 0)
        for node in graph.nodes:
            if id(node) not in live or isinstance(node.op, Constant):
                continue
            is_varying = any(id(x) in varying for x in node.inputs if x is not None) or draws(node.op, node.inputs)
            depth = 1 + max((self.depths.get(id(x), 0) for x in node.inputs if x is not None), default=0) if is_varying else 0
            self.depths.update({id(y): depth for y in node.outputs})
            if is_varying:
                varying.update(id(y) for y in node.outputs)
            (nodes if is_varying else constant).append(node)
        self.nodes = [*constant, *nodes]
        self.constant_count = len(constant)
        self.varying = varying
        self.tolerances = self._coarsest_tolerances()
        self.draws = {position for position, node in enumerate(self.nodes) if draws(node.op, node.inputs)}
        self._last = self._last_readers()

    def _coarsest_tolerances(self) -> dict[int, float]:
        """Return, for each value, the tolerance of the coarsest float type of the value and its ancestors."""
        found: dict[int, float] = {}
        for node in self.nodes:
            before = max((found.get(id(x), 0.0) for x in node.inputs if x is not None), default=0.0)
            for y in node.outputs:
                dtype = dtype_in(y.type)
                own = tolerance_of(dtype) if dtype is not None and dtype.is_float else 0.0
                found[id(y)] = max(before, own)
        return found

    def _last_readers(self) -> dict[int, int]:
        """Return the position of the last reader of each value; for an output, the position after the last node."""
        last: dict[int, int] = {}
        for position, node in enumerate(self.nodes):
            last.update({id(x): position for x in node.inputs if x is not None})
        last.update(dict.fromkeys(self._outputs, len(self.nodes)))
        return last

    def values_of(self, start: int, stop: int) -> list[Value]:
        """Return the values of the nodes from ``start`` to before ``stop`` that a node reads or that are outputs."""
        return [y for node in self.nodes[start:stop] for y in node.outputs if id(y) in self._last]

    def is_read_after(self, value: Value, position: int) -> bool:
        """Return whether a node at ``position`` or later reads the value, or the value is an output; False for constants."""
        return id(value) in self.varying and self._last.get(id(value), -1) >= position

    def last_reader(self, key: int) -> int:
        """Return the position of the last node that reads a value, by the id of the value; -1 if there is none."""
        return self._last.get(key, -1)

    def needed_after(self, keys: Iterable[int], position: int) -> set[int]:
        """Return the ids in ``keys`` of the values that are outputs, or that a node at ``position`` or later reads."""
        return {key for key in keys if self._last.get(key, -1) >= position}

    def positions_with(self, values: Iterable[Value]) -> set[int]:
        """Return the positions whose boundary contains at least one of ``values``."""
        produced = {id(y): position for position, node in enumerate(self.nodes) for y in node.outputs}
        changes = [0] * (len(self.nodes) + 2)
        for value in values:
            first, last = produced[id(value)] + 1, self._last.get(id(value), -1)
            if id(value) in self.varying and first <= last:
                changes[first] += 1
                changes[last + 1] -= 1
        counts = accumulate(changes)
        return {position for position, count in enumerate(counts) if count}

    def boundary(self, position: int) -> list[Value]:
        """Return the values of nodes before ``position`` that a node at ``position`` or later reads, or that are outputs."""
        return [y for y in self.values_of(0, position) if self.is_read_after(y, position)]

    def part(self, outputs: Sequence[Value], arrays: ArrayStore) -> Part:
        """Return the part that computes ``outputs`` from ``arrays`` and from the inputs of the model.

        Integers that follow from sizes are constants of the part, because engines expect constant shapes.
        """
        used = self._sources(outputs, arrays)
        cut = [value for value in used if value.node is not None]
        model = extract(self.model, [value.name for value in cut] or None, [value.name for value in outputs])
        model.states = []
        by_name = {value.name: value for value in used}
        inputs = {}
        for value in list(model.inputs):
            whole = by_name[value.name]
            array = arrays.get(id(whole)) if id(whole) in arrays else self.inputs[id(whole)]
            if whole.node is not None and _is_shape_value(whole, array):
                _fix_input(model.graph, value, array)
            else:
                inputs[value.name] = array
                _fix_type(value, array)
        # Metadata and documentation of the whole graph do not apply to the part.
        model.graph.metadata, model.graph.doc, model.doc = {}, "", ""
        with counting(model.limits):
            infer_graph(model.graph, file=model.file)
        return Part(model, inputs, list(outputs))

    def _sources(self, outputs: Sequence[Value], arrays: ArrayStore) -> list[Value]:
        """Return the values with arrays, and the inputs of the model, on which ``outputs`` depend."""
        seen = {id(value) for value in outputs}
        stack, found = list(outputs), []
        while stack:
            value = stack.pop()
            if value.node is None:
                found.append(value)
                continue
            for x in value.node.inputs:
                if x is None or id(x) in seen:
                    continue
                seen.add(id(x))
                if id(x) in arrays:
                    found.append(x)
                else:
                    stack.append(x)
        return found

    def constants_of(self, nodes: Iterable[Node]) -> list[Value]:
        """Return, in order, the values that depend only on constants and that ``nodes`` read, directly or indirectly."""
        needed = {id(x) for node in nodes for x in node.inputs if x is not None}
        found: list[Value] = []
        for node in reversed(self.nodes[: self.constant_count]):
            if any(id(y) in needed for y in node.outputs):
                found += [y for y in node.outputs if id(y) in self._last]
                needed.update(id(x) for x in node.inputs if x is not None)
        return found[::-1]

    def nbytes(self, value: Value) -> int:
        """Return the size of a value in bytes; if it is unknown before a run, return the size of the node's largest input."""
        known = static_bytes(value)
        if known is not None or value.node is None:
            return known or 0
        return max((static_bytes(x) or 0 for x in value.node.inputs if x is not None), default=0)

    def weight_bytes(self, node: Node) -> int:
        """Return the size in bytes of the constants that a node reads."""
        return sum(x.constant.nbytes for x in node.inputs if x is not None and x.constant is not None)


def fix_sizes(model: Model, inputs: Mapping[str, Any]) -> Model:
    """Return a copy of ``model`` whose inputs have the sizes of the arrays; all other types are inferred from these.

    Raises EngineError [input.missing] for an input without an array, RuleError if an operator's rule does not hold at the sizes.
    """
    absent = [value.name for value in model.inputs if value.name not in inputs]
    if absent:
        raise EngineError("input.missing", f"no value for the input {', '.join(map(repr, absent))}")
    new = copy_model(model)
    for value in new.inputs:
        _fix_type(value, inputs[value.name])
    with counting(new.limits):
        infer_graph(new.graph, file=new.file)
    return new


def static_bytes(value: Value) -> int | None:
    """Return the size of a tensor in bytes if all of its sizes are known, else None."""
    type = value.type
    if not isinstance(type, Tensor) or type.dtype is None or type.shape is None:
        return None
    if not all(isinstance(size, int) for size in type.shape):
        return None
    return prod(int(size) for size in type.shape) * type.dtype.numpy.itemsize


def cast_to(value: Value, array: np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]) -> Any:
    """Return an array cast to the known element type of a value, and reshaped if the shapes differ only by axes of size 1."""
    if not isinstance(value.type, Tensor) or value.type.dtype is None or not isinstance(array, np.ndarray):
        return array
    wanted = value.type.dtype.numpy
    shape = value.type.shape
    if shape is not None and all(isinstance(size, int) for size in shape) and shape != array.shape:
        sizes = tuple(size for size in shape if isinstance(size, int))
        array = array.reshape(sizes) if differ_by_ones(sizes, array.shape) else array
    if array.dtype == wanted or array.dtype.hasobject:
        return array
    with np.errstate(all="ignore"):
        return array.astype(wanted)


def _fix_type(value: Value, array: np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]) -> None:
    if isinstance(value.type, Tensor) and isinstance(array, np.ndarray):
        value.type = Tensor(value.type.dtype, tuple(map(int, array.shape)))


def _is_shape_value(value: Value, array: np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]) -> bool:
    """Return whether the elements of a value follow only from sizes, which are fixed."""
    known = value._value
    return isinstance(array, np.ndarray) and known is not None and all(isinstance(item, int) for item in np.ravel(known).tolist())


def _fix_input(graph: Graph, value: Value, array: np.ndarray[Any, Any]) -> None:
    """Turn an input of a part into a Constant."""
    assert isinstance(value.type, Tensor) and value.type.dtype is not None
    dtype = value.type.dtype
    graph.inputs = [x for x in graph.inputs if x is not value]
    value.type = Tensor(dtype, tuple(map(int, array.shape)))
    value._value, value.names, value.metadata = None, (), {}
    node = Node(Constant(data=np.ascontiguousarray(array).reshape(array.shape), dtype=dtype), [], [value])
    value.node = node
    graph.nodes.insert(0, node)


def _live(graph: Graph) -> set[int]:
    """Return the ids of the nodes on which outputs depend."""
    needed = {id(value) for value in graph.outputs}
    live = set()
    for node in reversed(graph.nodes):
        if any(id(y) in needed for y in node.outputs):
            live.add(id(node))
            needed.update(id(x) for x in node.inputs if x is not None)
    return live
