"""Summarize a model: inputs, outputs, operators by count, number of parameters, bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import bodies
from dovetail.ir.types import Tensor


def summarize(model: Model) -> dict[str, Any]:
    """Return the summary of a model as JSON data.

    Its keys are ``format``, ``versions``, ``producer``, ``inputs``, ``optional_inputs``, ``outputs`` (name, type), ``operators``
    (the number of nodes per operator, by its name in the file, including subgraphs, without constants), ``nodes``,
    ``parameters`` (elements of constants), ``bytes`` (as stored, sub-byte types packed), and ``constants`` (the number of
    elements per element type).
    """
    operators: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    optional: list[Any] = []
    size = 0
    for node in all_nodes(model.graph):
        op: Any = node.op
        if type(op).__name__ == "DefaultInput":
            optional.append(describe_value(node.outputs[0]))
            elements[op.dtype.name] += op.default.size
            size += (op.default.size * op.dtype.bits + 7) // 8
            continue
        if type(op).__name__ != "Constant":
            operators[node.title] += 1
            continue
        elements[op.dtype.name] += op.storage.size
        size += (op.storage.size * op.dtype.bits + 7) // 8
    return {
        "format": model.format,
        "versions": model.versions,
        "producer": " ".join(part for part in model.producer if part),
        "inputs": [describe_value(value) for value in model.inputs],
        "optional_inputs": optional,
        "outputs": [describe_value(value) for value in model.outputs],
        "nodes": operators.total(),
        "operators": dict(operators.most_common()),
        "parameters": elements.total(),
        "constants": dict(elements.most_common()),
        "bytes": size,
    }


def describe(graph: Graph) -> dict[str, Any]:
    """Return a graph as plain data, without the elements of constants.

    ``inputs`` and ``outputs`` have name and type. ``nodes`` have name, operator, attributes as text, the names of inputs, the
    outputs, and subgraphs by name.
    """
    return {
        "name": graph.name,
        "inputs": [describe_value(value) for value in graph.inputs],
        "outputs": [describe_value(value) for value in graph.outputs],
        "nodes": [_node(node) for node in graph.nodes],
    }


def _node(node: Node) -> dict[str, Any]:
    op: Any = node.op
    fields = [field.name for field in op.fields if field.annotation != "Graph" and field.name != "data"]
    return {
        "name": node.name,
        "op": op.title,
        "attributes": {name: str(op.__dict__[name]) for name in fields if op.__dict__[name] is not None},
        "inputs": [None if x is None else x.name for x in node.inputs],
        "outputs": [describe_value(y) for y in node.outputs],
        "bodies": {name: describe(body) for name, body in bodies(op)},
    }


def all_nodes(graph: Graph) -> Iterator[Node]:
    """Yield every node of a graph, including the nodes of subgraphs."""
    for node in graph.nodes:
        yield node
        for _, body in bodies(node.op):
            yield from all_nodes(body)


def describe_value(value: Value) -> dict[str, Any]:
    """Return a value as plain data: its name, type and shape."""
    shape = value.type.shape if isinstance(value.type, Tensor) else None
    return {
        "name": value.name,
        "type": str(value.type),
        "shape": None if shape is None else [size if isinstance(size, int) else str(size) for size in shape],
    }
