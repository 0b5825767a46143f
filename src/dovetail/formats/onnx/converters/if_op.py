"""Converters for If, and for constants that are outputs of a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.export_context import ExportContext, copy_captured_outputs
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ops.control_flow.if_op import known_branch

IF_VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)


@ONNX.importer("If", *IF_VERSIONS)
def import_if(ctx: ImportContext) -> Value | list[Value]:
    """Import If; the outer values that either branch reads become inputs of both branches."""
    captures: list[Value] = []
    taken_branch = known_branch(ctx.input(0))
    branches: list[Graph] = []
    faults = ctx.error_count
    for index, name in enumerate(("then_branch", "else_branch")):
        before = ctx.error_count
        branches.append(ctx.import_subgraph(_branch(ctx, name), captures))
        if taken_branch == 1 - index and (branches[index].fault is not None or ctx.error_count > before):
            # The condition is constant, and the branch that never runs is faulty: the other branch replaces the node.
            ctx.discard_errors(before)
            remaining = ctx.import_subgraph(_branch(ctx, "else_branch"), captures) if taken_branch else branches[0]
            return ctx.inline_subgraph(remaining, captures[: len(remaining.inputs)], faults)
    for branch in branches:
        for outside in captures[len(branch.inputs) :]:
            branch.inputs.append(Value(branch.claim(outside.name), outside.type))
    result: list[Value] = ctx.b.apply(
        "If", ctx.input(0), *captures, then_branch=branches[0], else_branch=branches[1], outputs=len(ctx.node.outputs)
    )
    return result


def _branch(ctx: ImportContext, name: str) -> ForeignGraph:
    graph: ForeignGraph = ctx.attribute(name, "Graph")
    if graph.inputs:
        raise UnsupportedError("subgraph.ports", f"If: {name} must have no inputs, got {len(graph.inputs)}")
    return graph


@ONNX.exporter("If")
def export_if(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op = node.op
    version = ctx.version("If")
    branches = {}
    for name in ("then_branch", "else_branch"):
        branch: Graph = getattr(op, name)
        copy_captured_outputs(branch)
        branches[name] = ctx.export_subgraph(branch, node.inputs[1:])
    return [ctx.add_node(node, "", "If", version, [ctx.key(node.inputs[0])], branches)]


@ONNX.exporter("Constant")
def export_constant(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    """Export a constant that is an output of a graph as a Constant node; an initializer must not be an output of a branch.

    Constant-1 supports only floats; for other types an initializer followed by an Identity is exported.
    """
    op: Any = node.op
    tensor = ForeignTensor(op.dtype, op.data, "")
    exported = ctx.add_node(node, "", "Constant", ctx.version("Constant"), [], {"value": tensor})
    try:
        ONNX.check_types(exported, [], node.outputs)
    except RuleError:
        key = ctx.add_constant(node, tensor)
        return [replace(exported, kind="Identity", version=ctx.version("Identity"), inputs=[key], attributes={})]
    return [exported]
