"""TopK: k is a scalar in OpenVINO."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node


@OPENVINO.legalize("TopK")
def legalize_top_k(b: Any, node: Node) -> Any:
    """Reshape k to a scalar."""
    x, k = node.inputs
    assert x is not None and k is not None
    return None if k.shape == () else b.add(node.op, x, b.Reshape(k, []))
