"""Pass ``constant_folding``: nodes that depend only on constants are replaced by their results unless the file would grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.edit import connect
from dovetail.ir.evaluate import FOLD_LIMIT, fold_op
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.rewrite import rewrite
from dovetail.laws.law import is_among
from dovetail.ops.constant import Constant
from dovetail.passes.simplification.rules import Target

GROWTH = 256
"""Maximum number of bytes by which one folded constant may exceed the constants that it replaces."""
TOTAL_GROWTH = 0.005
"""Maximum growth, as a fraction of the bytes of all constants, by all folded constants of one pass."""
MIN_TOTAL_GROWTH = 4096
"""Total growth in bytes that is always allowed: less than the size of the removed nodes in a small file."""


def fold_constants(graph: Graph, target: Target) -> int:
    """Fold nodes whose inputs are constants, bit for bit. Returns the number of nodes that become constants or dead.

    A node stays if its result exceeds the constants that only this node needs by more than GROWTH bytes, or if the total growth
    exceeds its limit. Random operators, and operators with results beyond the limits of :func:`fold_op`, are not folded either.
    """
    results = _evaluate(graph)
    if not results:
        return 0
    chosen = _select(graph, results)
    if not chosen:
        return 0

    def rule(b: Builder, node: Node) -> list[Value | None] | None:
        if not any(id(y) in chosen for y in node.outputs):
            return None
        target.log(node)
        return [_constant(b, results[id(y)]) if y.uses or is_among(y, b.graph.outputs) else None for y in node.outputs]

    return rewrite(graph, rule)


def _constant(b: Builder, value: Value) -> Value:
    assert value.node is not None and isinstance(value.node.op, Constant)
    return b.constant(value.node.op.data, value.node.op.dtype)


def _evaluate(graph: Graph) -> dict[int, Value]:
    """Evaluate the values that depend only on constants. Returns, by id of the value, a Constant outside of the graph."""
    results: dict[int, Value] = {}
    for node in graph.nodes:
        xs = node.inputs
        if not xs or not all(x is None or x.storage is not None or id(x) in results for x in xs):
            continue
        arrays = fold_op(node.op, [None if x is None else results.get(id(x), x) for x in xs], FOLD_LIMIT)
        if arrays is None:
            continue
        for y, (array, dtype) in zip(node.outputs, arrays, strict=True):
            constant = Value(y.name, y.type)
            # Strides determine the order of summation, and so the bits, of later reductions; arrays of a file are row-major.
            connect(Node(Constant(np.ascontiguousarray(array).reshape(array.shape), dtype), [], [constant]))
            results[id(y)] = constant
    return results


def _select(graph: Graph, results: dict[int, Value]) -> set[int]:
    """Return the ids of the values to replace by constants: values that remaining nodes read, within the limits of growth."""
    outputs = {id(y) for y in graph.outputs}
    sizes = [node.op.data.nbytes for node in graph.nodes if isinstance(node.op, Constant)]
    budget = max(MIN_TOTAL_GROWTH, int(TOTAL_GROWTH * sum(sizes)))
    needed: set[int] = set()
    """Ids of the values that remaining nodes read."""
    chosen: set[int] = set()
    for node in reversed(graph.nodes):
        if not any(id(y) in results for y in node.outputs):
            needed.update(id(x) for x in node.inputs if x is not None)
            continue
        live = [y for y in node.outputs if id(y) in needed or id(y) in outputs]
        if not live:
            continue
        growth = sum(_nbytes(results[id(y)]) for y in live) - _replaced_bytes(node, results, needed)
        if growth <= GROWTH and growth <= budget:
            budget -= max(0, growth)
            chosen.update(id(y) for y in live)
        else:
            needed.update(id(x) for x in node.inputs if x is not None)
    return chosen


def _nbytes(value: Value) -> int:
    data = value.constant
    assert data is not None
    return sum(map(len, data.reshape(-1).tolist())) if data.dtype.hasobject else data.nbytes


def _replaced_bytes(node: Node, results: dict[int, Value], needed: set[int]) -> int:
    """Return the bytes of the constants that nothing reads once ``node`` is folded."""
    freed: dict[int, int] = {}
    readers = {id(node)}
    stack: list[Sequence[Value | None]] = [node.inputs]
    while stack:
        for x in stack.pop():
            if x is None or id(x) in freed or id(x) in needed or any(id(reader) not in readers for reader, _ in x.uses):
                continue
            if x.storage is not None:
                freed[id(x)] = _nbytes(x)
            elif x.node is not None and id(x) in results and id(x.node) not in readers:
                freed[id(x)] = 0
                readers.add(id(x.node))
                stack.append(x.node.inputs)
    return sum(freed.values())
