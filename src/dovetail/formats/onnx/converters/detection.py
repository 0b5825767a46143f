"""Export NonMaxSuppression to ONNX."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node


@ONNX.lower("NonMaxSuppression")
def write_nms(b: Any, node: Node) -> Any:
    """Write the plain form: one output, f32, each class by itself."""
    op: Any = node.op
    return op.decompose(b, *node.inputs)
