"""Convert variables of OpenVINO IR: ReadValue and Assign become inputs and outputs that are states of the model."""

from __future__ import annotations

from typing import Any

from dovetail.errors import UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignValue
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.formats.openvino.xml_attributes import format_shape, parse_shape
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model, Value
from dovetail.ir.state import State
from dovetail.ir.types import Tensor

VERSION = 6
"""The version of ReadValue and Assign in exported models."""


@OPENVINO.importer("ReadValue", 3, 6)
def import_read_value(ctx: ImportContext) -> Value:
    """Import ReadValue: the value of the variable becomes a graph input. The default initial value is zeros."""
    variable = ctx.attribute("variable_id", "str")
    initial = ctx.optional_input(0)
    if ctx.node.version == 6:
        type: Any = Tensor(
            _dtype(ctx, initial), parse_shape(ctx.attribute("variable_shape", "str"), variable, f" of the variable {variable!r}")
        )
    else:
        type = ctx.input(0).type
    return ctx.scope.variables.read(variable, type, initial)


def _dtype(ctx: ImportContext, initial: Value | None) -> DType | None:
    text = ctx.attribute("variable_type", "str")
    if text in ("dynamic", "undefined"):
        return None if initial is None else initial.dtype
    dtype: DType = ctx.attribute("variable_type", "DType")
    return dtype


@OPENVINO.importer("Assign", 3, 6)
def import_assign(ctx: ImportContext) -> Value:
    """Import Assign: the assigned value becomes a graph output."""
    variable = ctx.attribute("variable_id", "str")
    ctx.ignore("variable_type", "variable_shape")
    value: Value = ctx.b.Identity(ctx.input(0))
    ctx.scope.variables.assign(variable, value)
    return value


# Export


def add_variables(model: Model, foreign: ForeignModel) -> None:
    """Replace inputs and outputs of ``foreign`` that are states of ``model`` by ReadValue and Assign.

    Raises UnsupportedError [state.first] if the initial value of a state depends on a state.
    """
    if not model.states:
        return
    graph = foreign.graph
    inputs = dict(zip((value.name for value in model.inputs), graph.inputs, strict=True))
    outputs = dict(zip((value.name for value in model.outputs), graph.outputs, strict=True))
    initial_keys = _dependencies(graph, [outputs[state.initial].key for state in model.states if state.initial is not None])
    reads, assigns = [], []
    for state in model.states:
        item = inputs[state.input]
        if item.key in initial_keys:
            raise UnsupportedError("state.first", f"the initial value of a state must not depend on a state, got {state.input!r}")
        reads.append(_read_node(state, item, outputs))
        assigns.append(_assign_node(state, item, outputs[state.output], graph))
    first = [node for node in graph.nodes if initial_keys.intersection(key for key in node.outputs if key is not None)]
    first_ids = {id(node) for node in first}
    graph.nodes = [*first, *reads, *(node for node in graph.nodes if id(node) not in first_ids), *assigns]
    names = {state.input for state in model.states}
    graph.inputs = [inputs[value.name] for value in model.inputs if value.name not in names]
    state_outputs = {name for state in model.states for name in state.outputs}
    graph.outputs = [outputs[value.name] for value in model.outputs if value.name not in state_outputs]
    for state in model.states:
        item = inputs[state.input]
        graph.values[item.key] = item


def _dependencies(graph: ForeignGraph, keys: list[str]) -> set[str]:
    """Return ``keys`` together with the keys of all values on which the values with these keys depend."""
    producers = {key: node for node in graph.nodes for key in node.outputs if key is not None}
    dependencies: set[str] = set()
    pending = list(keys)
    while pending:
        key = pending.pop()
        if key in dependencies:
            continue
        dependencies.add(key)
        producer = producers.get(key)
        if producer is not None:
            pending += [x for x in producer.inputs if x is not None]
    return dependencies


def _attributes(state: State, item: ForeignValue) -> dict[str, str]:
    type = item.type
    if not isinstance(type, Tensor) or type.dtype is None or type.dtype.openvino is None:
        raise UnsupportedError("type.kind", f"a variable must be a tensor with an element type of OpenVINO, got {type}")
    shape = "..." if type.shape is None else format_shape(type.shape)
    return {"variable_id": state.variable, "variable_type": type.dtype.openvino, "variable_shape": shape}


def _read_node(state: State, item: ForeignValue, outputs: dict[str, ForeignValue]) -> ForeignNode:
    first: list[str | None] = [] if state.initial is None else [outputs[state.initial].key]
    return ForeignNode("ReadValue", VERSION, first, [item.key], _attributes(state, item), name=state.input)


def _assign_node(state: State, item: ForeignValue, next_value: ForeignValue, graph: ForeignGraph) -> ForeignNode:
    key = f"{next_value.key}/kept"
    graph.values[key] = ForeignValue(key, next_value.type)
    return ForeignNode("Assign", VERSION, [next_value.key], [key], _attributes(state, item), name=f"{state.input}/kept")
