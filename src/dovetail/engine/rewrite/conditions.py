"""Inlining of branches: an If whose condition is known before the run becomes the nodes of its branch."""

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
    """Return the graph with each If of known condition replaced by its branch, with types inferred anew.

    Ranks that depend on the branch are then known, and with these ranks further conditions. Without an If of known condition the
    result is ``graph``.
    """
    new = graph
    while any(known_index(node.op, node.inputs) is not None for node in new.nodes):
        candidate = copy_graph(new)
        try:
            if not rewrite(candidate, _inline_branch):
                break
            infer_graph(candidate)
        except DovetailError:
            # The run reports the error if it reaches the node.
            break
        new = candidate
    return new


def _inline_branch(b: Builder, node: Node) -> Result:
    return inline_known_branch(b, node.op, node.inputs, (), keep_names=True)
