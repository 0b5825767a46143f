"""Converters for TopK, whose k is a scalar in OpenVINO."""

from __future__ import annotations

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value


@OPENVINO.legalize("TopK")
def legalize_top_k(b: Builder, node: Node) -> list[Value] | None:
    """Legalize TopK: reshape k to a scalar."""
    x, k = node.input(0), node.input(1)
    return None if k.shape == () else b.add(node.op, x, b.Reshape(k, []))
