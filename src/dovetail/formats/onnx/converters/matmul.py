"""Products whose axes are named, as runtimes read them."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node
from dovetail.ops.linalg.einsum import Einsum


@ONNX.legalize("Einsum")
def legalize_einsum(b: Any, node: Node) -> Any:
    """With its result where there are capital letters: onnxruntime takes these only so."""
    op = node.op
    assert isinstance(op, Einsum)
    left, arrow, _ = op.equation.partition("->")
    return None if arrow or left == left.lower() else b.add(op.written_out(), *node.inputs)
