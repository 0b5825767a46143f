"""Converters for Col2Im and DeformConv."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node
from dovetail.ir.types import static
from dovetail.ops.casts import as_type
from dovetail.ops.nn.deform_conv import with_explicit_pads


@ONNX.legalize("Col2Im")
def legalize_col2im(b: Builder, node: Node) -> Any:
    """Legalize Col2Im: add a batch axis where it is missing, and cast the sizes to i64."""
    x, image, block = (node.input(index) for index in range(3))
    if len(x.dims) == 3 and image.dtype == "i64" and block.dtype == "i64":
        return None
    wide = x if len(x.dims) == 3 else b.Unsqueeze(x, [0])
    y = b.add(node.op, wide, as_type(b, image, dtypes.i64), as_type(b, block, dtypes.i64))[0]
    return y if wide is x else b.Squeeze(y, [0])


@ONNX.legalize("DeformConv")
def legalize_deform_conv(b: Builder, node: Node) -> Any:
    """Legalize DeformConv: make the padding explicit, and decompose it unless samples outside the tensor are zeros."""
    op: Any = node.op
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    if not op.bilinear_interpolation_pad:
        return op.decompose(b, *node.inputs)
    if op.auto_pad == "explicit":
        return None
    changes = with_explicit_pads(op, x, static(w.dims[2:]))
    return b.add(op.with_(**changes), *node.inputs)[0]
