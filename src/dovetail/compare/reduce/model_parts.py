"""Smaller models derived from a model: fewer nodes, a bypassed node, only a subgraph, smaller sizes, simpler weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, move_readers, remove_dead
from dovetail.ir.extract import extract
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ir.op import bodies, host_inputs
from dovetail.ir.types import Tensor, Type
from dovetail.ops.constant import Constant
from dovetail.runtime.interpreter.interpret import interpret
from dovetail.runtime.random_inputs import random_inputs

MAX_RECORDED = 64
"""Maximum number of elements of an integer value that becomes a constant where it is cut."""


def operators_of(model: Model) -> list[Node]:
    """Return the nodes except constants."""
    return [node for node in model.graph.nodes if not isinstance(node.op, Constant)]


class ShapeRecords:
    """ShapeRecords holds the elements of integer values that shape rules read: inferred, else from a random run."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._arrays: dict[str, Any] | None = None

    def elements(self, value: Value) -> Any:
        """Return the elements of an integer value that shape rules read; None for other values and unknown elements."""
        type = value.type
        if not isinstance(type, Tensor) or type.dtype is None or not type.dtype.is_integer or not _is_read_on_host(value):
            return None
        known = value.value
        if known is not None and all(isinstance(item, int | np.integer) for item in np.asarray(known).reshape(-1).tolist()):
            return np.asarray(known).astype(type.dtype.numpy)
        return self._record().get(value.name)

    def _record(self) -> dict[str, Any]:
        if self._arrays is None:
            names = [
                value.name
                for value in self._model.graph.values()
                if value.node is not None and value.constant is None and _is_read_on_host(value)
            ]
            try:
                run = interpret(self._model.add_outputs(names), random_inputs(self._model)) if names else {}
                arrays = {name: np.asarray(run[name]) for name in names}
                self._arrays = {name: array for name, array in arrays.items() if array.size <= MAX_RECORDED}
            except DovetailError:
                self._arrays = {}
        return self._arrays


def _is_read_on_host(value: Value) -> bool:
    return any(host_inputs(node.op, len(node.inputs))[slot] for node, slot in value.uses)


def part_of(model: Model, nodes: Sequence[Node], records: ShapeRecords | None) -> Model:
    """Return the model of ``nodes``: values of other nodes become inputs, and values that ``nodes`` do not read become outputs.

    With ``records``, a cut value that shape rules read becomes a constant. Raises DovetailErrors.
    """
    chosen = set(map(id, nodes))
    read = {id(x) for node in nodes for x in node.inputs if x is not None}
    inputs: dict[str, Value] = {}
    outputs: list[str] = []
    ends = {id(value) for value in model.outputs}
    for node in nodes:
        for x in node.inputs:
            if x is not None and x.constant is None and (x.node is None or id(x.node) not in chosen):
                inputs[x.name] = x
        is_read = any(id(y) in read for y in node.outputs)
        outputs += [y.name for y in node.outputs if id(y) not in read and (not is_read or id(y) in ends)]
    part = extract(model, list(inputs), outputs)
    if records is not None:
        for value in list(part.inputs):
            original = inputs.get(value.name)
            array = None if original is None or original.node is None else records.elements(original)
            if array is not None:
                _fix(part.graph, value, array)
    return part


def _fix(graph: Graph, value: Value, array: np.ndarray[Any, Any]) -> None:
    """Replace an input of a graph by a constant."""
    if not value.uses or any(y is value for y in graph.outputs):
        return
    others, graph.nodes = graph.nodes, []
    constant = Builder(graph=graph).constant(np.array(array, order="C"), value.dtype)
    graph.nodes.extend(others)
    move_readers(value, constant)
    graph.inputs = [each for each in graph.inputs if each is not value]
    graph.release(value.name)


def without_node(model: Model, index: int) -> Iterator[Model]:
    """Yield models in which the readers of a bypassed operator read an operand of equal type, one model for each operand."""
    node = operators_of(model)[index]
    if len(node.outputs) != 1 or any(y is node.outputs[0] for y in model.outputs):
        return
    for slot, x in enumerate(node.inputs):
        if x is None or str(x.type) != str(node.outputs[0].type):
            continue
        new = copy_model(model)
        copied = operators_of(new)[index]
        move_readers(copied.outputs[0], copied.input(slot))
        yield _clean(new)


def without_output(model: Model, index: int) -> Model:
    """Return the model without one of its outputs."""
    return _clean(model.set_outputs([y.name for position, y in enumerate(model.outputs) if position != index]))


def _clean(model: Model) -> Model:
    """Remove the nodes and inputs of a graph that nothing reads."""
    graph = model.graph
    remove_dead(graph)
    ends = {id(y) for y in graph.outputs}
    for value in graph.inputs:
        if not value.uses and id(value) not in ends:
            graph.release(value.name)
    graph.inputs = [x for x in graph.inputs if x.uses or id(x) in ends]
    return model


def subgraphs_of(model: Model) -> Iterator[Model]:
    """Yield, for each subgraph, a model that computes one run of the subgraph."""
    for node in operators_of(model):
        for name, body in bodies(node.op):
            outputs = [f"{node.label}/{name}/{y.name}" for y in body.outputs if y.node is not None and y.constant is None]
            if outputs:
                yield extract(model, None, outputs)


# Sizes


def sizes_of(model: Model) -> list[int]:
    """Return the sizes above 1 of inputs and constants, the largest first."""
    values = [*model.inputs, *(node.outputs[0] for node in model.graph.nodes if isinstance(node.op, Constant))]
    shapes = [value.type.shape or () for value in values if isinstance(value.type, Tensor)]
    return sorted({size for shape in shapes for size in shape if isinstance(size, int) and size > 1}, reverse=True)


def with_size(model: Model, old: int, new: int, *, elements: bool) -> Model:
    """Return the model with every axis of length ``old``, in inputs and constants, cut to ``new``; types are inferred again.

    With ``elements``, every element equal to ``old`` in integer operands of shape rules also becomes ``new``. Raises
    DovetailErrors.
    """
    smaller = copy_model(model)
    for value in smaller.inputs:
        value.type = _cut_type(value.type, old, new)
    for node in smaller.graph.nodes:
        if isinstance(node.op, Constant):
            data = node.op.data[tuple(slice(new) if size == old else slice(None) for size in node.op.storage.shape)]
            if elements and data.dtype.kind in "iu" and _is_read_on_host(node.outputs[0]):
                data = np.where(data == old, np.asarray(new, data.dtype), data)
            if data is not node.op.data:
                _set_data(node, data)
    return _infer(smaller)


def with_input_size(model: Model, index: int, axis: int, new: int) -> Model:
    """Return the model with one axis of one input cut to ``new``; types are inferred again. Raises DovetailErrors."""
    smaller = copy_model(model)
    value = smaller.inputs[index]
    shape: Any = list(value.dims)
    shape[axis] = new
    value.type = Tensor(value.dtype, tuple(shape))
    return _infer(smaller)


def _cut_type(type: Type, old: int, new: int) -> Any:
    if not isinstance(type, Tensor) or type.shape is None:
        return type
    return Tensor(type.dtype, tuple(new if size == old else size for size in type.shape))


def _set_data(node: Node, data: np.ndarray[Any, Any]) -> None:
    assert isinstance(node.op, Constant)
    array = np.array(data, order="C")
    array.flags.writeable = False
    node.op = Constant(array, node.op.dtype)
    node.outputs[0].type = Tensor(node.op.dtype, array.shape)
    node.outputs[0].value = None


def _infer(model: Model) -> Model:
    with counting(model.limits):
        infer_graph(model.graph, file=model.file)
    return model


# Weights


def weights_of(model: Model) -> list[str]:
    """Return the names of the float constants whose elements are not all 0 or all 1, the largest constant first."""
    found = [
        node.outputs[0]
        for node in model.graph.nodes
        if isinstance(node.op, Constant) and node.op.dtype.is_float and _is_varied(node.op.data)
    ]
    return [value.name for value in sorted(found, key=lambda value: -np.asarray(value.constant).size)]


def _is_varied(data: np.ndarray[Any, Any]) -> bool:
    return bool(data.size) and not bool(np.all(data == data.reshape(-1)[0]) and float(data.reshape(-1)[0]) in (0.0, 1.0))


def with_weight(model: Model, name: str, number: float) -> Model:
    """Return the model with all elements of a constant equal to ``number``. Raises DovetailErrors."""
    new = copy_model(model)
    for node in new.graph.nodes:
        if isinstance(node.op, Constant) and node.outputs[0].name == name:
            _set_data(node, np.full_like(node.op.data, number))
    return _infer(new)
