"""Optional inputs of a model: initializers of ONNX that are graph inputs too, whose data is the default.

In a graph each is a DefaultInput, a node without inputs. A run without the input evaluates the node.
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
    """Return the DefaultInput nodes of a graph by the names of their values."""
    return {node.outputs[0].name: node for node in graph.nodes if isinstance(node.op, DefaultInput)}


def freeze_in_graph(graph: Graph, data: Mapping[str, Any] | None = None) -> int:
    """Make every DefaultInput a Constant, of ``data`` by name or else of its default. Returns how many there were."""
    nodes = default_inputs(graph)
    for name, node in nodes.items():
        assert isinstance(node.op, DefaultInput)
        array = node.op.default if data is None or name not in data else data[name]
        node.op = Constant(array, node.op.dtype)
        (node.outputs[0].type,) = node.op.types()
        node.outputs[0].value = None
    return len(nodes)


def open_defaults(model: Model, names: Collection[str]) -> Model:
    """Return ``model`` with the optional inputs ``names`` as graph inputs after its own ones, and the others as constants."""
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
    """Return the optional inputs among ``names``."""
    return [name for name in default_inputs(model.graph) if name in names]
