"""Legalize Conv to non-negative padding, and ConvTranspose to explicit padding without an output shape."""

from __future__ import annotations

from typing import Any

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node


@ONNX.legalize("ConvTranspose")
def legalize_conv_transpose(b: Builder, node: Node) -> Any:
    """Decompose ConvTranspose with an output shape into one with explicit padding, for OpenVINO's auto_pad explicit and valid."""
    op: Any = node.op
    x, w, bias, target = (*node.inputs, None, None)[:4]
    if target is None or op.auto_pad.startswith("same"):
        return None
    return op.decompose(b, x, w, bias, target)


@ONNX.legalize("Conv")
def legalize_conv(b: Builder, node: Node) -> Any:
    """Legalize Conv with negative padding, which OpenVINO allows: crop the input instead."""
    op: Any = node.op
    x, parameters = node.input(0), node.inputs[1:]
    pads = op.pads or ()
    if min(pads, default=0) >= 0:
        return None
    count = len(pads) // 2
    starts = [max(-pad, 0) for pad in pads[:count]]
    stops = [pad if pad < 0 else 2**63 - 1 for pad in pads[count:]]
    cropped = b.Slice(x, starts, stops, list(range(2, count + 2)), [1] * count)
    return b.add(op.with_(pads=tuple(max(pad, 0) for pad in pads)), cropped, *parameters)
