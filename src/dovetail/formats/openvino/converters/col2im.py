"""Converters for Col2Im, which in OpenVINO has two spatial axes, and for DeformableConvolution, which has no bias."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node
from dovetail.ops.shape_values import length_of_vector


@OPENVINO.legalize("Col2Im")
def legalize_col2im(b: Builder, node: Node) -> Any:
    """Legalize Col2Im: set all attributes, because OpenVINO has no default for an absent stride."""
    op: Any = node.op
    x, image, block = node.inputs
    assert image is not None
    count = length_of_vector(image, "image")
    if count != 2:
        return op.decompose(b, x, image, block)
    plain = op.with_(**op.plain(2))
    return None if plain == op else b.add(plain, x, image, block)[0]


@OPENVINO.legalize("DeformConv")
def legalize_deform_conv(b: Builder, node: Node) -> Any:
    """Legalize DeformConv: add the bias after the convolution; decompose it unless there are two spatial axes."""
    op: Any = node.op
    x, w, offset, bias, mask = (*node.inputs, None, None)[:5]
    assert w is not None
    if len(w.dims) != 4:
        return op.decompose(b, *node.inputs)
    if bias is None:
        return None
    y = b.add(op, x, w, offset, *(() if mask is None else (None, mask)))[0]
    return b.Add(y, b.Unsqueeze(bias, [1, 2]))
