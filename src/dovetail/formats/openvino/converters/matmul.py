"""Converters for MatMul, which absorbs transposes of its operands, and for Einsum."""

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
    """Legalize MatMul: fold a Transpose of an operand's last two axes into a transpose flag, if it has no other reader."""
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
    """Return the input of the Transpose of the last two axes that produces ``factor`` for one reader; None otherwise."""
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
    """Legalize Einsum: remove blanks, which OpenVINO refuses; decompose products with diagonals, which plugins get wrong."""
    op = node.op
    assert isinstance(op, Einsum)
    terms = op.equation.replace(" ", "").partition("->")[0].replace("...", "").split(",")
    if len(terms) > 1 and any(len(set(term)) < len(term) for term in terms):
        return op.decompose(b, *(node.input(index) for index in range(len(node.inputs))))
    return b.add(op.with_explicit_result(), *node.inputs) if " " in op.equation else None
