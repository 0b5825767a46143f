"""If nodes whose condition is known before the run become the nodes of their branch."""

from __future__ import annotations

from dovetail.errors import DovetailError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, inline
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.rewrite import rewrite
from dovetail.ops.control_flow.if_op import If, known_branch


def inline_known_branches(graph: Graph) -> Graph:
    """Return the graph with each If of a known condition replaced by its branch, and types inferred anew; else ``graph``.

    Ranks that depend on the branch are then known, and with them further conditions.
    """
    new = graph
    while any(known_index(node) is not None for node in new.nodes):
        candidate = copy_graph(new)
        try:
            if not rewrite(candidate, _inline_branch):
                break
            infer_graph(candidate)
        except DovetailError:
            # The run reports the error, if it comes to the node.
            break
        new = candidate
    return new


def known_index(node: Node) -> int | None:
    """Return the index of the branch of an If that runs, where that is known."""
    return known_branch(node.input(0)) if isinstance(node.op, If) else None


def _inline_branch(b: Builder, node: Node) -> list[Value] | None:
    op, index = node.op, known_index(node)
    if index is None or not isinstance(op, If):
        return None
    branch = (op.then_branch, op.else_branch)[index]
    return None if branch.fault is not None else inline(b, branch, node.inputs[1:], keep_names=True)
