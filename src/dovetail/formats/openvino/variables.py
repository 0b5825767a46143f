"""The states of a model on their way into IR: graph inputs and outputs become ReadValue and Assign."""

from __future__ import annotations

from dovetail.errors import UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignValue
from dovetail.formats.openvino.xml_attributes import partial_text
from dovetail.ir.graph import Model
from dovetail.ir.state import State
from dovetail.ir.types import Tensor

VERSION = 6


def put_variables(model: Model, foreign: ForeignModel) -> None:
    """Put variables in the place of the inputs and outputs that are states of ``model``.

    Raises UnsupportedError [state.first] where what a state begins with is computed from a state.
    """
    if not model.states:
        return
    graph = foreign.graph
    inputs = dict(zip((value.name for value in model.inputs), graph.inputs, strict=True))
    outputs = dict(zip((value.name for value in model.outputs), graph.outputs, strict=True))
    before = _needed(graph, [outputs[state.initial].key for state in model.states if state.initial is not None])
    read, kept = [], []
    for state in model.states:
        item = inputs[state.input]
        if item.key in before:
            raise UnsupportedError("state.first", f"what a state begins with is computed from the state {state.input!r}")
        read.append(_reading(state, item, outputs))
        kept.append(_keeping(state, item, outputs[state.output], graph))
    first = [node for node in graph.nodes if before.intersection(key for key in node.outputs if key is not None)]
    chosen = {id(node) for node in first}
    graph.nodes = [*first, *read, *(node for node in graph.nodes if id(node) not in chosen), *kept]
    names = {state.input for state in model.states}
    graph.inputs = [inputs[value.name] for value in model.inputs if value.name not in names]
    gone = {name for state in model.states for name in state.outputs}
    graph.outputs = [outputs[value.name] for value in model.outputs if value.name not in gone]
    for state in model.states:
        item = inputs[state.input]
        graph.values[item.key] = item


def _needed(graph: ForeignGraph, keys: list[str]) -> set[str]:
    """The keys of all values that those of ``keys`` are made from, with them."""
    makers = {key: node for node in graph.nodes for key in node.outputs if key is not None}
    found: set[str] = set()
    open_ = list(keys)
    while open_:
        key = open_.pop()
        if key in found:
            continue
        found.add(key)
        maker = makers.get(key)
        if maker is not None:
            open_ += [each for each in maker.inputs if each is not None]
    return found


def _attributes(state: State, item: ForeignValue) -> dict[str, str]:
    type = item.type
    if not isinstance(type, Tensor) or type.dtype is None or type.dtype.openvino is None:
        raise UnsupportedError("ir.type", f"OpenVINO has no variable of the type {type}")
    shape = "..." if type.shape is None else partial_text(type.shape)
    return {"variable_id": state.variable, "variable_type": type.dtype.openvino, "variable_shape": shape}


def _reading(state: State, item: ForeignValue, outputs: dict[str, ForeignValue]) -> ForeignNode:
    first: list[str | None] = [] if state.initial is None else [outputs[state.initial].key]
    return ForeignNode("ReadValue", VERSION, first, [item.key], _attributes(state, item), name=state.input)


def _keeping(state: State, item: ForeignValue, kept: ForeignValue, graph: ForeignGraph) -> ForeignNode:
    key = f"{kept.key}/kept"
    graph.values[key] = ForeignValue(key, kept.type)
    return ForeignNode("Assign", VERSION, [kept.key], [key], _attributes(state, item), name=f"{state.input}/kept")
