"""Pass ``horizontal_fusion``: products of one input with several constant matrices become one product and a Split."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.types import Tensor
from dovetail.laws.computed_weights import join
from dovetail.laws.law import is_among
from dovetail.ops.elementwise.binary import Add
from dovetail.ops.linalg.matmul import MatMul
from dovetail.passes.simplification.rules import Target, replace_groups

Array: TypeAlias = np.ndarray[Any, Any]
NODES = 3
"""Number of nodes of a merged product with biases: MatMul, Add, Split."""


class Product(NamedTuple):
    """Product is a MatMul with constant weights, and its last node: the MatMul, or the Add of a constant bias."""

    matmul: Node
    last: Node
    weights: Array
    bias: Array | None

    @property
    def columns(self) -> int:
        """The number of columns of the result."""
        return int(self.weights.shape[0 if getattr(self.matmul.op, "transpose_b", False) else 1])


def merge_products(graph: Graph, target: Target) -> int:
    """Merge products of one input, such as the projections to queries, keys and values, where the merge saves nodes.

    Returns the number of replaced nodes. For another number of columns a kernel may sum in another order, so that results may
    change by rounding.
    """
    groups: dict[int, tuple[list[Product], int]] = {}
    for group in _groups(graph):
        for position, product in enumerate(group):
            groups[id(product.last)] = group, position
    return replace_groups(graph, target, groups, _write)


def _write(b: Builder, node: Node, group: list[Product]) -> list[Value]:
    first = group[0].matmul
    x, op, dtype = first.input(0), first.op, first.input(1).dtype
    axis = 0 if getattr(op, "transpose_b", False) else 1
    weights = join([product.weights for product in group], axis)
    y = b.add(op, x, b.constant(weights, dtype))[0]
    if any(product.bias is not None for product in group):
        biases = [np.zeros(each.columns, dtype.numpy) if each.bias is None else each.bias for each in group]
        y = b.Add(y, b.constant(np.concatenate(biases), dtype))
    return b.Split(y, [product.columns for product in group], axis=len(y.dims) - 1, outputs=len(group))


def _groups(graph: Graph) -> list[list[Product]]:
    """Return the groups of products of one value whose merge saves nodes."""
    groups: list[list[Product]] = []
    for value in graph.values():
        if not isinstance(value.type, Tensor) or len(value.type.shape or ()) < 2 or len(value.uses) < 2:
            continue
        by_kind: dict[tuple[Any, ...], list[Product]] = {}
        for node, index in value.uses:
            product = _product_of(graph, node) if index == 0 else None
            if product is not None:
                by_kind.setdefault((product.matmul.op, product.weights.dtype), []).append(product)
        for group in by_kind.values():
            biases = sum(product.bias is not None for product in group)
            if len(group) + biases > (NODES if biases else NODES - 1):
                groups.append(group)
    return groups


def _product_of(graph: Graph, node: Node) -> Product | None:
    """Return the Product of a MatMul whose constant weights no other node reads; None for other nodes."""
    op = node.op
    if not isinstance(op, MatMul) or op.transpose_a:
        return None
    weights = node.input(1)
    data, y = weights.constant, node.outputs[0]
    if data is None or data.ndim != 2 or len(weights.uses) != 1 or weights.dtype.name not in ("f32", "f64"):
        return None
    # Ignore a dead node, which an earlier pass has replaced.
    if is_among(y, graph.outputs) or not y.uses:
        return None
    product = Product(node, node, data, None)
    if len(y.uses) != 1:
        return product
    ((add, index),) = y.uses
    if not isinstance(add.op, Add) or not add.op.broadcast or is_among(add.outputs[0], graph.outputs):
        return product
    if not add.outputs[0].uses:
        return None
    bias = add.input(1 - index).constant
    if bias is None or bias.shape != (product.columns,):
        return product
    return Product(node, add, data, bias)
