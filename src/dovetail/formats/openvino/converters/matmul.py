"""Converters for MatMul, which absorbs transposes of its operands, and for Einsum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.constant import Constant
from dovetail.ops.linalg.einsum import Einsum
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.tensor.transpose_expand_tile import Transpose


@OPENVINO.legalize("MatMul")
def legalize_matmul(b: Builder, node: Node) -> Value | None:
    """Legalize MatMul: fold a Transpose of an operand's last two axes into a transpose flag, if it has no other reader.

    A square constant that other products read transposed gets a transposed copy: OpenVINO's CPU plugin (2026.4) packs it once,
    and computes one of the products with the packed weights of the other. Models of gradients read weights in both orientations.
    """
    op = node.op
    assert isinstance(op, MatMul)
    weight, is_transposed = _weight_of(node, op)
    if weight is not None and not is_transposed and any(_orientations_of(weight)):
        assert weight.constant is not None
        copy = b.constant(weight.constant.T, weight.dtype, name=b.graph.free_name(f"{weight.name}.transposed"))
        return b.MatMul(node.input(0), copy, transpose_a=op.transpose_a, transpose_b=True)
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


def _weight_of(node: Node, op: MatMul) -> tuple[Value | None, bool]:
    """Return the square constant matrix that MatMul multiplies by, and whether it is transposed."""
    factor, is_transposed = node.input(1), op.transpose_b
    if factor.node is not None and _swaps_last_axes(factor):
        factor, is_transposed = factor.node.input(0), not is_transposed
    if not isinstance(factor.node and factor.node.op, Constant) or len(factor.dims) != 2 or factor.dims[0] != factor.dims[1]:
        return None, False
    return factor, is_transposed


def _orientations_of(weight: Value) -> Iterator[bool]:
    """Yield for each product by the matrix whether it is transposed."""
    readers = [reader for reader, _ in weight.uses]
    readers += [reader for node in readers if isinstance(node.op, Transpose) for reader, _ in node.outputs[0].uses]
    for reader in readers:
        if isinstance(reader.op, MatMul):
            found, is_transposed = _weight_of(reader, reader.op)
            if found is weight:
                yield is_transposed


def skip_transpose(factor: Value) -> Value | None:
    """Return the input of the Transpose of the last two axes that produces ``factor`` for one reader; None otherwise."""
    return factor.node.inputs[0] if factor.node is not None and len(factor.uses) == 1 and _swaps_last_axes(factor) else None


def _swaps_last_axes(factor: Value) -> bool:
    """Return whether a Transpose of the last two axes produces ``factor``."""
    maker = factor.node
    if maker is None or not isinstance(maker.op, Transpose) or factor.shape is None:
        return False
    rank = len(factor.shape)
    permutation = maker.inputs[1] if len(maker.inputs) > 1 else None
    order = None if permutation is None else permutation.constant
    if order is None:
        return permutation is None and rank == 2
    return rank >= 2 and (order.tolist() or list(range(rank))[::-1]) == [*range(rank - 2), rank - 1, rank - 2]


@OPENVINO.legalize("Einsum")
def legalize_einsum(b: Builder, node: Node) -> Any:
    """Legalize Einsum: remove blanks, which OpenVINO refuses; decompose products with diagonals, which plugins get wrong."""
    op = node.op
    assert isinstance(op, Einsum)
    terms = op.equation.replace(" ", "").partition("->")[0].replace("...", "").split(",")
    if len(terms) > 1 and any(len(set(term)) < len(term) for term in terms):
        return op.decompose(b, *(node.input(index) for index in range(len(node.inputs))))
    return b.add(op.with_explicit_result(), *node.inputs) if " " in op.equation else None
