"""Optional inputs of a model: ONNX initializers that are also graph inputs; the initializer is the input's default.

A graph represents each optional input by a DefaultInput node, which has no inputs. A run evaluates the node if the caller does
not pass the input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dovetail.ir.edit import copy_model, disconnect
from dovetail.ir.graph import Graph, Model, Node
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ops.constant import Constant, DefaultInput


def default_inputs(graph: Graph) -> dict[str, Node]:
    """Return a dictionary from the name of each optional input to its DefaultInput node."""
    return {node.outputs[0].name: node for node in graph.nodes if isinstance(node.op, DefaultInput)}


def freeze_in_graph(graph: Graph, data: Mapping[str, Any] | None = None) -> int:
    """Replace every DefaultInput by a Constant, and return the number of replaced nodes.

    The constant is ``data[name]`` if ``data`` has the name of the optional input, otherwise the default.
    """
    nodes = default_inputs(graph)
    for name, node in nodes.items():
        assert isinstance(node.op, DefaultInput)
        array = node.op.default if data is None or name not in data else data[name]
        node.op = Constant(array, node.op.dtype)
        (node.outputs[0].type,) = node.op.types()
        node.outputs[0].value = None
    return len(nodes)


def open_defaults(model: Model, names: Collection[str]) -> Model:
    """Return a copy of ``model`` with the optional inputs ``names`` as last graph inputs, and the others as constants."""
    new = copy_model(model)
    graph = new.graph
    for name, node in default_inputs(graph).items():
        if name in names:
            disconnect(node)
            graph.nodes.remove(node)
            old = node.outputs[0]
            old.node = None
            graph.inputs.append(old)
    freeze_in_graph(graph)
    with counting(new.limits):
        infer_graph(graph, file=new.file)
    return new


def overridden(model: Model, names: Collection[str]) -> list[str]:
    """Return the names of optional inputs of ``model`` that ``names`` contains."""
    return [name for name in default_inputs(model.graph) if name in names]
