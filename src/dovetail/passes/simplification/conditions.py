"""Pass ``dead_branches``: an If with a known condition becomes its branch, and unread inputs of subgraphs are removed."""

from __future__ import annotations

from dovetail.ir.edit import connect, disconnect
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ops.constant import Constant
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.passes.simplification.laws import apply_laws
from dovetail.passes.simplification.rules import Target

MAX_ELEMENTS = 4
"""Maximum number of elements of an outer constant that is copied into a subgraph."""


def inline_conditions(graph: Graph, target: Target) -> int:
    """Inline each If whose condition is known, copy small constants into subgraphs, and drop unread inputs of subgraphs.

    Returns the number of changed nodes.
    """
    changed = apply_laws(graph, target, "dead_branches")
    for node in graph.nodes:
        captures = _captures_of(node)
        if captures is not None and _reduce_captures(node, *captures):
            target.log(node)
            changed += 1
    return changed


def _captures_of(node: Node) -> tuple[list[Graph], int, int] | None:
    """Return the subgraphs of a node, the index of its first captured input, and the index of the matching subgraph input."""
    match node.op:
        case If(then_branch=then_branch, else_branch=else_branch):
            return [then_branch, else_branch], 1, 0
        case Loop(body=body, carried=carried, scan_inputs=scan_inputs):
            first = 2 + carried + len(scan_inputs)
            return [body], first, first - 1
    return None


def _reduce_captures(node: Node, subgraphs: list[Graph], first: int, inner: int) -> bool:
    """Copy small constants into the subgraphs, and drop captured inputs that no subgraph reads; return whether any is dropped."""
    changed = False
    for offset in reversed(range(len(node.inputs) - first)):
        x = node.inputs[first + offset]
        values = [body.inputs[inner + offset] for body in subgraphs]
        if x is not None and x.constant is not None and x.constant.size <= MAX_ELEMENTS:
            for body, value in zip(subgraphs, values, strict=True):
                if value.uses:
                    _insert_constant(body, value, x)
        reads = [value.uses or any(value is y for y in body.outputs) for body, value in zip(subgraphs, values, strict=True)]
        if not any(reads):
            _drop_input(node, first + offset, subgraphs, inner + offset)
            changed = True
    return changed


def _insert_constant(body: Graph, value: Value, outer: Value) -> None:
    assert outer.node is not None and isinstance(outer.node.op, Constant)
    new = Value(body.claim(outer.name), outer.type)
    body.nodes.insert(0, connect(Node(outer.node.op, [], [new])))
    for reader, index in value.uses:
        reader.inputs[index] = new
    new.uses.update(value.uses)
    value.uses = {}


def _drop_input(node: Node, index: int, subgraphs: list[Graph], inner: int) -> None:
    inputs = list(node.inputs)
    del inputs[index]
    disconnect(node)
    node.inputs = inputs
    connect(node)
    for body in subgraphs:
        body.release(body.inputs.pop(inner).name)
