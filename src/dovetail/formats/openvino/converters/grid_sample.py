"""Sampling in OpenVINO's words."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node


@OPENVINO.legalize("GridSample")
def grid_sample(b: Any, node: Node) -> Any:
    """It has two spatial axes there."""
    op: Any = node.op
    x, grid = node.inputs
    assert x is not None
    return None if len(x.dims) == 4 else op.decompose(b, x, grid)
