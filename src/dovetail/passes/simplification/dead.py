"""Pass ``dead_code``: nodes whose outputs nothing reads are removed."""

from __future__ import annotations

from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Graph
from dovetail.ops.constant import Constant
from dovetail.passes.simplification.rules import Target


def remove_dead_nodes(graph: Graph, target: Target) -> int:
    """Remove nodes and constants whose outputs nothing reads. Returns the number of removed nodes, constants excluded."""
    before = list(graph.nodes)
    if not remove_dead(graph):
        return 0
    left = {id(node) for node in graph.nodes}
    removed = [node for node in before if id(node) not in left and not isinstance(node.op, Constant)]
    for node in removed:
        target.log(node)
    return len(removed)
