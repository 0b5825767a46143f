"""If nodes whose condition is known before the run become the nodes of their branch."""

from __future__ import annotations

from dovetail.errors import DovetailError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph
from dovetail.ir.graph import Graph, Node
from dovetail.ir.infer import infer_graph
from dovetail.ir.rewrite import rewrite
from dovetail.laws.law import Result
from dovetail.laws.rules.conditions import inline_known_branch, known_index


def inline_known_branches(graph: Graph) -> Graph:
    """Return the graph with each If of a known condition replaced by its branch, and types inferred anew; else ``graph``.

    Ranks that depend on the branch are then known, and with them further conditions.
    """
    new = graph
    while any(known_index(node.op, node.inputs) is not None for node in new.nodes):
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


def _inline_branch(b: Builder, node: Node) -> Result:
    return inline_known_branch(b, node.op, node.inputs, (), keep_names=True)
