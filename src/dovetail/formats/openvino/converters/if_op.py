"""Converters for If, its branches and their port maps."""

from __future__ import annotations

from typing import Any

from dovetail.errors import FormatError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignGraph, ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.laws.sequences import eliminate_in_subgraphs


@OPENVINO.importer("If", 8)
def import_if(ctx: ImportContext) -> Value | list[Value]:
    """Import If, of which each branch maps inputs of the node to inputs of the branch.

    The inputs of the core If are those of the first branch, then those of the second.
    """
    parts = [_branch(ctx, name) for name in ("then", "else")]
    captures = [value for _, inputs in parts for value in inputs]
    then, else_ = (graph for graph, _ in parts)
    # Each branch gets unread inputs for the captures of the other branch.
    mine = len(then.inputs)
    then.inputs += [Value(then.claim(value.name), value.type) for value in captures[mine:]]
    else_.inputs = [Value(else_.claim(value.name), value.type) for value in captures[:mine]] + else_.inputs
    result: list[Value] = ctx.b.apply(
        "If", ctx.input(0), *captures, then_branch=then, else_branch=else_, outputs=len(ctx.node.outputs)
    )
    return result


def _branch(ctx: ImportContext, name: str) -> tuple[Graph, list[Value]]:
    foreign: ForeignGraph = ctx.attribute(f"{name}_body", "Graph")
    rows: list[dict[str, str]] = ctx.attribute(f"{name}_port_map", "list")
    graph = ctx.import_subgraph(foreign, [])
    count = len(ctx.node.inputs)
    sources = {row["internal_layer_id"]: int(row["external_port_id"]) for row in rows if row["port"] == "input"}
    targets = {int(row["external_port_id"]) - count: row["internal_layer_id"] for row in rows if row["port"] == "output"}
    layers = [str(value.metadata["layer"]) for value in foreign.inputs]
    inputs = []
    for layer in layers:
        if layer not in sources:
            raise FormatError("subgraph.ports", f"the Parameter {layer} of the {name} branch must have an entry in the port map")
        inputs.append(ctx.input(sources[layer]))
    results = {str(item.metadata["layer"]): value for item, value in zip(foreign.outputs, graph.outputs, strict=True)}
    outputs = [targets.get(index) for index in range(len(ctx.node.outputs))]
    if any(layer not in results for layer in outputs):
        raise FormatError("subgraph.ports", f"the {name} branch must produce every output of If")
    graph.outputs = [results[str(layer)] for layer in outputs]
    return graph, inputs


@OPENVINO.legalize("If")
def legalize_if(b: Builder, node: Node) -> Any:
    """Legalize If: eliminate sequences from its branches."""
    return eliminate_in_subgraphs(b, node)


@OPENVINO.exporter("If")
def export_if(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    attributes: dict[str, Any] = {}
    for name in ("then", "else"):
        branch: Graph = getattr(node.op, f"{name}_branch")
        read = [
            position
            for position, value in enumerate(branch.inputs)
            if value.uses or any(value is output for output in branch.outputs)
        ]
        branch.inputs = [branch.inputs[position] for position in read]
        foreign = ctx.export_subgraph(branch)
        rows = []
        for position, value in zip(read, foreign.inputs, strict=True):
            value.metadata["layer"] = value.key
            rows.append({"port": "input", "external_port_id": str(position + 1), "internal_layer_id": value.key})
        for index, value in enumerate(foreign.outputs):
            value.metadata["layer"] = f"{value.key}/result_{index}"
            external = str(len(node.inputs) + index)
            rows.append({"port": "output", "external_port_id": external, "internal_layer_id": value.metadata["layer"]})
        attributes[f"{name}_body"] = foreign
        attributes[f"{name}_port_map"] = rows
    return [ctx.add_node(node, "", "If", 8, [ctx.key(x) for x in node.inputs], attributes)]
