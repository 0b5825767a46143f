"""Take out lists of tensors and optional values, where what is in them is known."""

from __future__ import annotations

from typing import Any

from dovetail.build import Builder
from dovetail.edit import remove_dead, rewrite
from dovetail.graph import Graph, Node, Value
from dovetail.op import bodies
from dovetail.ops.sequence.sequence import unlisted
from dovetail.passes.eliminate_sequences import unlisted_body
from dovetail.types import Tensor


def unlist(graph: Graph) -> int:
    """Let what is taken out of a list be read where it was made, bodies included. Returns the number of nodes that changed."""
    changed = 0
    if any(not isinstance(value.type, Tensor) for value in graph.values()):
        while count := rewrite(graph, _kept):
            changed += count + remove_dead(graph)
    return changed + sum(unlist(body) for node in graph.nodes for _, body in bodies(node.op))


def _kept(b: Builder, node: Node) -> Any:
    mark = len(b.graph.nodes)
    made = unlisted_body(b, node) or unlisted(b, node)
    if isinstance(made, Value) and made.node not in b.graph.nodes[mark:]:
        # What it is called stays.
        return b.apply("Identity", made)
    return made
