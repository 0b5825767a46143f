"""Converters for NonMaxSuppression."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node


@ONNX.legalize("NonMaxSuppression")
def legalize_non_max_suppression(b: Builder, node: Node) -> Any:
    """Decompose NonMaxSuppression to ONNX's form: one output, suppression within each class, f32 inputs."""
    op: Any = node.op
    return op.decompose(b, *node.inputs)
