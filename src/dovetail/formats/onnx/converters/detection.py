"""Operators of object detectors in ONNX's words."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node


@ONNX.legalize("NonMaxSuppression")
def legalize_non_max_suppression(b: Any, node: Node) -> Any:
    """One output, each class by itself, all in f32."""
    op: Any = node.op
    return op.decompose(b, *node.inputs)
