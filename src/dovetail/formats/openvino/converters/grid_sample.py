"""Converters for GridSample, which in OpenVINO has two spatial axes."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node


@OPENVINO.legalize("GridSample")
def legalize_grid_sample(b: Builder, node: Node) -> Any:
    """Decompose GridSample unless the input has two spatial axes, as OpenVINO requires."""
    op: Any = node.op
    x, grid = node.inputs
    assert x is not None
    return None if len(x.dims) == 4 else op.decompose(b, x, grid)
