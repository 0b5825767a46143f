"""Converters for RoiAlign."""

from __future__ import annotations

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value


@ONNX.legalize("RoiAlign")
def legalize_roi_align(b: Builder, node: Node) -> Value | None:
    """Legalize RoiAlign: cast the batch indices to i64."""
    x, rois, batch_indices = node.inputs
    assert batch_indices is not None
    return None if batch_indices.dtype == "i64" else b.add(node.op, x, rois, b.Cast(batch_indices, to=dtypes.i64))[0]
