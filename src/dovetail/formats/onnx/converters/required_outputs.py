"""Legalize operators of which ONNX requires every output, even unread outputs."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node


@ONNX.legalize("CausalConvWithState", "LinearAttention")
def legalize_with_state(b: Builder, node: Node) -> Any:
    """Add the state output, which ONNX requires."""
    return _with_outputs(b, node, 2)


@ONNX.legalize("BatchNormalization")
def legalize_batch_normalization(b: Builder, node: Node) -> Any:
    """Add the mean and variance outputs of BatchNormalization in training mode, which ONNX requires."""
    op: Any = node.op
    return _with_outputs(b, node, 3) if op.training_mode else None


def _with_outputs(b: Builder, node: Node, count: int) -> Any:
    op: Any = node.op
    return b.add(op.with_(outputs=count), *node.inputs)[: op.outputs] if op.outputs < count else None
