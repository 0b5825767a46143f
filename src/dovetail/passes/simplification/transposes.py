"""Pass ``transposes``: a Transpose of a Transpose becomes one."""

from __future__ import annotations

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node
from dovetail.ops.tensor.transpose_expand_tile import Transpose
from dovetail.passes.simplification.identities import permutation_of
from dovetail.passes.simplification.rules import Result, Target, apply_rules, producer


def merge_transposes(graph: Graph, target: Target) -> int:
    """Merge chains of Transpose with known permutations. Returns the number of replaced nodes."""
    return apply_rules(graph, {Transpose: _merge}, target)


def _merge(b: Builder, node: Node) -> Result:
    inner = producer(node.input(0), Transpose)
    if inner is None:
        return None
    later, earlier = permutation_of(node), permutation_of(inner)
    if later is None or earlier is None:
        return None
    order = [earlier[axis] for axis in later]
    return inner.input(0) if order == sorted(order) else b.Transpose(inner.input(0), order)
