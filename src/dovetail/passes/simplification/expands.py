"""Pass ``expands``: an Expand before an operator that broadcasts is removed."""

from __future__ import annotations

from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.types import broadcast
from dovetail.ops.elementwise.broadcast import BroadcastingOp
from dovetail.ops.tensor.transpose_expand_tile import Expand
from dovetail.passes.simplification.rules import Result, Rules, Target, apply_rules, are_equal_shapes, producer


def remove_expands(graph: Graph, target: Target) -> int:
    """Let operators that broadcast read the inputs of Expand. Returns the number of changed nodes."""
    kinds = {type(node.op) for node in graph.nodes if isinstance(node.op, BroadcastingOp)}
    rules: Rules = dict.fromkeys(kinds, _read_source)
    return apply_rules(graph, {**rules, Expand: _merge}, target)


def _read_source(b: Builder, node: Node) -> Result:
    op, y = node.op, node.outputs[0]
    if not getattr(op, "broadcast", False) or all(producer(x, Expand) is None for x in node.inputs):
        return None
    xs = list(node.inputs)
    for index, x in enumerate(xs):
        expand = producer(x, Expand)
        if expand is None:
            continue
        candidate: list[Value | None] = [*xs[:index], expand.input(0), *xs[index + 1 :]]
        if _broadcasts_to(candidate, y):
            xs = candidate
    return None if xs == list(node.inputs) else b.add(op, *xs)


def _broadcasts_to(xs: list[Value | None], y: Value) -> bool:
    """Return whether the inputs broadcast to the shape of ``y`` for all values of the symbols."""
    try:
        shape = broadcast(*(None if x is None else x.shape for x in xs))
    except RuleError:
        return False
    return (
        shape is not None and None not in shape and are_equal_shapes(tuple(size for size in shape if size is not None), y.shape)
    )


def _merge(b: Builder, node: Node) -> Result:
    """Merge an Expand into the Expand after it, where both shapes are constant."""
    inner = producer(node.input(0), Expand)
    if inner is None or node.input(1).constant is None or inner.input(1).constant is None:
        return None
    if not all(getattr(each.op, "bidirectional", False) for each in (node, inner)):
        return None
    first, second = (list(map(int, each.input(1).constant)) for each in (inner, node))  # type: ignore[arg-type]
    rank = max(len(first), len(second))
    shape = broadcast(*((1,) * (rank - len(sizes)) + tuple(sizes) for sizes in (first, second)))
    return None if shape is None else b.Expand(inner.input(0), [int(size) for size in shape if isinstance(size, int)])
