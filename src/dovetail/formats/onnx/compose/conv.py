"""Transposed convolutions that ONNX says with explicit pads alone."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.graph import Node


@ONNX.lower("ConvTranspose")
def conv_transpose(b: Any, node: Node) -> Any:
    """An output shape that keeps the padding at the beginning, which is OpenVINO's explicit and valid."""
    op: Any = node.op
    x, w, bias, target = (*node.inputs, None, None)[:4]
    if target is None or op.auto_pad.startswith("same"):
        return None
    return op.decompose(b, x, w, bias, target)
