"""Find attention in a graph: a product of queries and keys, a Softmax of its scaled and masked result, a product with values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dovetail.ir.graph import Graph, Node, Value

PRODUCTS = frozenset({"MatMul", "Einsum"})
BETWEEN = frozenset(
    {"Add", "Cast", "Divide", "Dropout", "Identity", "Maximum", "Minimum", "Multiply", "Reshape", "Subtract", "Tanh", "Where"}
)
"""The operators that may lie between the Softmax and a product: scale, mask, cap, dropout, and changes of type or shape."""
MAX_BETWEEN = 8
"""The maximum number of operators between the Softmax and a product."""
MODULE = re.compile("atten|attn", re.IGNORECASE)
"""The part of a module's name that says that the module is an attention."""


def attention_chains(graph: Graph) -> Iterator[list[Node]]:
    """Yield the nodes of each attention in a graph, from the product of queries and keys to the product with values.

    Only these nodes read their results, except the last: no path leaves the nodes and returns to them.
    """
    outputs = set(graph.outputs)
    taken: set[Node] = set()
    for node in graph.nodes:
        if type(node.op).__name__ != "Softmax" or not node.inputs or node.inputs[0] is None:
            continue
        before = _to_product(node.inputs[0], outputs, MAX_BETWEEN)
        after = [] if before is None else _from_product(node.outputs[0], outputs)
        if before and after and taken.isdisjoint(chain := [*before, node, *after]):
            taken.update(chain)
            yield chain


def _to_product(value: Value, outputs: set[Value], steps: int) -> list[Node] | None:
    """Return the nodes from a product to ``value``, each of which is read once; None if there is no such product."""
    node = value.node
    if node is None or value.constant is not None or len(value.uses) != 1 or value in outputs:
        return None
    if type(node.op).__name__ in PRODUCTS:
        return [node]
    if steps and type(node.op).__name__ in BETWEEN:
        for x in node.inputs:
            found = None if x is None else _to_product(x, outputs, steps - 1)
            if found is not None:
                return [*found, node]
    return None


def _without_nan(value: Value, outputs: set[Value]) -> tuple[list[Node], Value]:
    """Return the nodes IsNaN and Where that replace NaN in ``value``, and their result; otherwise no nodes, and ``value``."""
    readers = {type(node.op).__name__: node for node, _ in value.uses}
    if len(value.uses) == 2 and readers.keys() == {"IsNaN", "Where"} and value not in outputs:
        test, select = readers["IsNaN"], readers["Where"]
        if [*test.outputs[0].uses] == [(select, 0)] and test.outputs[0] not in outputs:
            return [test, select], select.outputs[0]
    return [], value


def _from_product(value: Value, outputs: set[Value]) -> list[Node]:
    """Return the nodes from the reader of ``value`` to a product; empty if there is no such product."""
    found, value = _without_nan(value, outputs)
    while len(value.uses) == 1 and value not in outputs and len(found) <= MAX_BETWEEN:
        ((node, _),) = value.uses
        found.append(node)
        if type(node.op).__name__ in PRODUCTS:
            return found
        if type(node.op).__name__ not in BETWEEN or len(node.outputs) != 1:
            break
        value = node.outputs[0]
    return []
