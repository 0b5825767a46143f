"""What windows took apart, in OpenVINO's words: over two axes."""

from __future__ import annotations

from typing import Any

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node
from dovetail.ops.shape_values import length_of_vector


@OPENVINO.legalize("Col2Im")
def blocks(b: Any, node: Node) -> Any:
    """Everything is written out: OpenVINO takes no strides for none at all."""
    op: Any = node.op
    x, image, block = node.inputs
    assert image is not None
    count = length_of_vector(image, "image")
    if count != 2:
        return op.decompose(b, x, image, block)
    plain = op.with_(**op.plain(2))
    return None if plain == op else b.add(plain, x, image, block)[0]


@OPENVINO.legalize("DeformConv")
def deformable(b: Any, node: Node) -> Any:
    """A bias is added after."""
    op: Any = node.op
    x, w, offset, bias, mask = (*node.inputs, None, None)[:5]
    assert w is not None
    if len(w.dims) != 4:
        return op.decompose(b, *node.inputs)
    if bias is None:
        return None
    y = b.add(op, x, w, offset, *(() if mask is None else (None, mask)))[0]
    return b.Add(y, b.Unsqueeze(bias, [1, 2]))
