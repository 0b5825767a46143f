"""Application of the laws that make no graph larger, for the passes of simplify."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import disconnect
from dovetail.ir.graph import Graph, Node
from dovetail.ir.symbolic import Inexact
from dovetail.ir.types import Unknown
from dovetail.laws.law import Law, Result
from dovetail.laws.table import laws_of
from dovetail.passes.simplification.rules import Rules, Target, apply_rules


def apply_laws(graph: Graph, target: Target, name: str, rules: Rules | None = None) -> int:
    """Apply to each node the laws of the pass ``name``, or a rule in ``rules`` for its class.

    Returns the number of replaced nodes.
    """
    kinds = {type(node.op) for node in graph.nodes}
    chosen: Rules = {
        kind: partial(_apply_laws, laws) for kind in kinds if (laws := [law for law in laws_of(kind) if law.shrinks == name])
    }
    return apply_rules(graph, {**chosen, **(rules or {})}, target)


def _apply_laws(laws: Sequence[Law], b: Builder, node: Node) -> Result:
    types = [y.type for y in node.outputs]
    for law in laws:
        mark = len(b.graph.nodes)
        try:
            result = law.rewrite(b, node.op, node.inputs, types)
        except (RuleError, Unknown, Inexact):
            result = None
        if result is not None:
            return result
        for extra in reversed(b.graph.nodes[mark:]):
            disconnect(extra)
        del b.graph.nodes[mark:]
    return None
