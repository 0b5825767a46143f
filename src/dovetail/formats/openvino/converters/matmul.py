"""Products of matrices: ONNX writes a transposed factor as a node of its own, which MatMul-1 says by a flag; and Einsum."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.linalg.einsum import Einsum
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.tensor.transpose_expand_tile import Transpose


@OPENVINO.legalize("MatMul")
def absorb_transposes(b: Builder, node: Node) -> Value | None:
    """A factor whose last two axes are swapped for this product alone is given as it was, with the flag turned."""
    op = node.op
    assert isinstance(op, MatMul)
    x, y = (None if factor is None else untransposed(factor) for factor in node.inputs)
    if x is None and y is None:
        return None
    made: Value = b.MatMul(
        x or node.input(0),
        y or node.input(1),
        transpose_a=op.transpose_a != (x is not None),
        transpose_b=op.transpose_b != (y is not None),
    )
    return made


def untransposed(factor: Value) -> Value | None:
    """What ``factor`` is the transpose of in its last two axes, where nobody else reads it; None where it is none."""
    maker = factor.node
    if maker is None or not isinstance(maker.op, Transpose) or len(factor.uses) != 1 or factor.shape is None:
        return None
    rank = len(factor.shape)
    given = maker.inputs[1] if len(maker.inputs) > 1 else None
    order = None if given is None else given.constant
    if order is None:
        swaps = given is None and rank == 2
    else:
        swaps = rank >= 2 and (order.tolist() or list(range(rank))[::-1]) == [*range(rank - 2), rank - 1, rank - 2]
    return maker.inputs[0] if swaps else None


@OPENVINO.legalize("Einsum")
def einsum(b: Any, node: Node) -> Any:
    """Without blanks, which OpenVINO refuses, and without diagonals in products, of which its plugins make something else."""
    op = node.op
    assert isinstance(op, Einsum)
    terms = op.equation.replace(" ", "").partition("->")[0].replace("...", "").split(",")
    if len(terms) > 1 and any(len(set(term)) < len(term) for term in terms):
        return op.decompose(b, *node.inputs)
    return b.add(op.written_out(), *node.inputs) if " " in op.equation else None
