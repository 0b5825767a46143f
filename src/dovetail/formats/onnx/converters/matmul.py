"""Converters for Einsum."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node
from dovetail.ops.linalg.einsum import Einsum


@ONNX.legalize("Einsum")
def legalize_einsum(b: Builder, node: Node) -> Any:
    """Legalize Einsum: with capital letters, make the output subscripts explicit, as onnxruntime requires.

    Einsum with ellipses for unequal numbers of axes, which onnxruntime refuses, is decomposed.
    """
    op = node.op
    assert isinstance(op, Einsum)
    xs = [x for x in node.inputs if x is not None]
    if op.broadcast and not op.has_equal_ellipses(*xs):
        return op.decompose(b, *xs)
    operands, arrow, _ = op.equation.partition("->")
    return None if arrow or operands == operands.lower() else b.add(op.with_explicit_result(), *node.inputs)
