"""Constant folding: replace nodes by constants that have the bits of the results at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.evaluate import fold_op
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.rewrite import rewrite
from dovetail.ops.runtime_attributes import as_attributes

NodeTest: TypeAlias = Callable[[Node], bool]


def fold(graph: Graph, is_foldable: NodeTest | None = None) -> int:
    """Replace nodes with constant inputs by constants, and attribute inputs of known value by attributes.

    ``is_foldable``: a test of the nodes that may become constants; None: all. Returns the number of nodes that changed. Random
    operators, operators without rules, and operators with results larger than ``evaluate.FOLD_LIMIT`` are not folded.
    """

    def rule(b: Builder, node: Node) -> list[Value] | None:
        return _fold_node(b, node) if is_foldable is None or is_foldable(node) else as_attributes(b, node)

    changed = rewrite(graph, rule)
    if changed:
        remove_dead(graph)
    return changed


def _fold_node(b: Builder, node: Node) -> list[Value] | None:
    if not node.inputs or any(x is not None and x.constant is None for x in node.inputs):
        return as_attributes(b, node)
    arrays = fold_op(node.op, node.inputs)
    if arrays is None:
        return as_attributes(b, node)
    return [b.constant(array, dtype) for array, dtype in arrays]
