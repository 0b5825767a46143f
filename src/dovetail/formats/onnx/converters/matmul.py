"""Einsum."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node
from dovetail.ops.linalg.einsum import Einsum


@ONNX.legalize("Einsum")
def legalize_einsum(b: Any, node: Node) -> Any:
    """Write the output subscripts explicitly where there are capital letters: onnxruntime requires it."""
    op = node.op
    assert isinstance(op, Einsum)
    operands, arrow, _ = op.equation.partition("->")
    return None if arrow or operands == operands.lower() else b.add(op.with_explicit_result(), *node.inputs)
