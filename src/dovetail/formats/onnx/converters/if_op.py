"""Constants and control flow: what holds tensors and graphs in its attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.exporter import Lowering
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor
from dovetail.formats.import_context import Lifting
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ops.control_flow.if_op import known_branch

IF_VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)


@ONNX.lift("If", *IF_VERSIONS)
def lift_if(node: Lifting) -> Value | list[Value]:
    """A branch reads outer names; what both read becomes the inputs of both."""
    captures: list[Value] = []
    taken = known_branch(node.input(0))
    branches: list[Graph] = []
    faults = len(node.lifter.errors)
    for index, name in enumerate(("then_branch", "else_branch")):
        before = len(node.lifter.errors)
        branches.append(node.body(_branch(node, name), captures))
        if taken == 1 - index and (branches[index].fault is not None or len(node.lifter.errors) > before):
            # What can never run need not fit: the other branch stands for the whole.
            del node.lifter.errors[before:]
            other = node.body(_branch(node, "else_branch"), captures) if taken else branches[0]
            return node.inlined(other, captures[: len(other.inputs)], faults)
    for branch in branches:
        for outside in captures[len(branch.inputs) :]:
            branch.inputs.append(Value(branch.claim(outside.name), outside.type))
    made: list[Value] = node.b.apply(
        "If", node.input(0), *captures, then_branch=branches[0], else_branch=branches[1], outputs=len(node.node.outputs)
    )
    return made


def _branch(node: Lifting, name: str) -> ForeignGraph:
    graph: ForeignGraph = node.attribute(name, "Graph")
    if graph.inputs:
        raise UnsupportedError("if.inputs", f"a branch of If takes no inputs of its own, and {name} has {len(graph.inputs)}")
    return graph


@ONNX.emit("If")
def emit_if(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op = node.op
    version = _version(lowering, "If")
    branches = {}
    for name in ("then_branch", "else_branch"):
        branch: Graph = getattr(op, name)
        lowering.own_outputs(branch)
        branches[name] = lowering.body(branch, node.inputs[1:])
    return [lowering.finish(node, "", "If", version, [lowering.key(node.inputs[0])], branches)]


@ONNX.emit("Constant")
def emit_constant(lowering: Lowering, node: Node) -> list[ForeignNode]:
    """A constant that leaves its graph directly: an initializer may not be an output of a branch.

    Constant-1 makes floats only; there an initializer goes out through an Identity.
    """
    op: Any = node.op
    tensor = ForeignTensor(op.dtype, op.data, "")
    made = lowering.finish(node, "", "Constant", _version(lowering, "Constant"), [], {"value": tensor})
    try:
        ONNX.check_types(made, [], node.outputs)
    except RuleError:
        key = lowering.initializer(node, tensor)
        return [replace(made, kind="Identity", version=_version(lowering, "Identity"), inputs=[key], attributes={})]
    return [made]


def _version(lowering: Lowering, kind: str) -> int:
    version = lowering.version_of("", kind)
    if version is None:
        raise UnsupportedError("op.unsayable", f"the target opset has no {kind}")
    return version
