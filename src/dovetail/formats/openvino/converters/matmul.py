"""MatMul: a transposed operand becomes a flag; and Einsum."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.linalg.einsum import Einsum
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.tensor.transpose_expand_tile import Transpose


@OPENVINO.legalize("MatMul")
def legalize_matmul(b: Builder, node: Node) -> Value | None:
    """Fold a Transpose of the last two axes of an operand, which only this MatMul reads, into the transpose flag."""
    op = node.op
    assert isinstance(op, MatMul)
    x, y = (None if factor is None else skip_transpose(factor) for factor in node.inputs)
    if x is None and y is None:
        return None
    result: Value = b.MatMul(
        x or node.input(0),
        y or node.input(1),
        transpose_a=op.transpose_a != (x is not None),
        transpose_b=op.transpose_b != (y is not None),
    )
    return result


def skip_transpose(factor: Value) -> Value | None:
    """Return the input of a Transpose of the last two axes that has no other reader; None for any other value."""
    maker = factor.node
    if maker is None or not isinstance(maker.op, Transpose) or len(factor.uses) != 1 or factor.shape is None:
        return None
    rank = len(factor.shape)
    permutation = maker.inputs[1] if len(maker.inputs) > 1 else None
    order = None if permutation is None else permutation.constant
    if order is None:
        swaps = permutation is None and rank == 2
    else:
        swaps = rank >= 2 and (order.tolist() or list(range(rank))[::-1]) == [*range(rank - 2), rank - 1, rank - 2]
    return maker.inputs[0] if swaps else None


@OPENVINO.legalize("Einsum")
def legalize_einsum(b: Builder, node: Node) -> Any:
    """Decompose equations with blanks, which OpenVINO refuses, and products with diagonals, which its plugins compute wrongly."""
    op = node.op
    assert isinstance(op, Einsum)
    terms = op.equation.replace(" ", "").partition("->")[0].replace("...", "").split(",")
    if len(terms) > 1 and any(len(set(term)) < len(term) for term in terms):
        return op.decompose(b, *(node.input(index) for index in range(len(node.inputs))))
    return b.add(op.with_explicit_result(), *node.inputs) if " " in op.equation else None
