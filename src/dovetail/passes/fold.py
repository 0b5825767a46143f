"""Constant folding: what follows from constants alone becomes a constant, bit for bit the run-time value."""

from __future__ import annotations

from dovetail.interpreter.evaluate import folded
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.rewrite import rewrite
from dovetail.ops.runtime_attributes import as_attributes


def fold(graph: Graph) -> int:
    """Replace every node whose inputs are constants by its outputs' values, and every attribute that is an input of known value
    by an attribute. Returns how many nodes changed.

    Random operators, operators without a rule, and whatever would grow a constant (see ``evaluate.FOLD_LIMIT``)
    stay.
    """
    changed = rewrite(graph, _fold_node)
    if changed:
        remove_dead(graph)
    return changed


def _fold_node(b: Builder, node: Node) -> list[Value] | None:
    if not node.inputs or any(x is not None and x.constant is None for x in node.inputs):
        return as_attributes(b, node)
    arrays = folded(node.op, node.inputs)
    if arrays is None:
        return as_attributes(b, node)
    return [b.constant(array, dtype) for array, dtype in arrays]
