"""Sorting in OpenVINO's words."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node


@OPENVINO.legalize("TopK")
def top_k(b: Any, node: Node) -> Any:
    """k is a scalar there."""
    x, k = node.inputs
    assert x is not None and k is not None
    return None if k.shape == () else b.add(node.op, x, b.Reshape(k, []))
