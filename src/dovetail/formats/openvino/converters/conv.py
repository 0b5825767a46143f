"""Convolutions: OpenVINO has them without bias, and with grouped weights as operators of their own."""

from __future__ import annotations

from typing import Any

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import is_static
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.group_conv import GroupConv, GroupConvTranspose, merge_weight_groups, split_weight_groups

# How the odd element of automatic padding is placed by the transposed convolution: the other way round than by Conv.
_TURNED = {"same_upper": "same_lower", "same_lower": "same_upper"}


@OPENVINO.lift("GroupConvolution", 1)
def group_convolution(node: Lifting) -> list[Value]:
    w = _static_weights(node)
    return node.b.add(Conv(**_windows(node), group=_groups(w)), node.input(0), merge_weight_groups(node.b, w))


@OPENVINO.lift("GroupConvolutionBackpropData", 1)
def group_convolution_backprop(node: Lifting) -> list[Value]:
    w, target = _static_weights(node), node.optional(2)
    attributes = _windows(node)
    auto_pad = attributes["auto_pad"]
    if auto_pad != "explicit":
        # Without an output shape nothing says what to pad to.
        attributes["auto_pad"] = "valid" if target is None else _TURNED.get(auto_pad, auto_pad)
    extra = node.attribute("output_padding", "tuple[int, ...]", None)
    op = ConvTranspose(**attributes, group=_groups(w), output_padding=extra)
    return node.b.add(op, node.input(0), merge_weight_groups(node.b, w), None, target)


def _static_weights(node: Lifting) -> Value:
    w = node.input(1)
    if not is_static(w.type) or len(w.dims) < 4:
        raise UnsupportedError("conv.group", f"grouped weights {w.type}, whose sizes should all be known, and at least 4")
    return w


def _groups(w: Value) -> int:
    groups = w.dims[0]
    assert isinstance(groups, int)
    return groups


def _windows(node: Lifting) -> dict[str, Any]:
    ints = "tuple[int, ...]"
    auto_pad = node.attribute("auto_pad", "str", "explicit")
    begins, ends = node.attribute("pads_begin", ints, ()), node.attribute("pads_end", ints, ())
    strides, dilations = node.attribute("strides", ints), node.attribute("dilations", ints)
    pads = (*begins, *ends) if auto_pad == "explicit" else None
    return {"strides": strides, "pads": pads, "dilations": dilations, "auto_pad": auto_pad}


@OPENVINO.lower("Conv")
def conv(b: Any, node: Node) -> Any:
    op: Any = node.op
    x, w, bias = (*node.inputs, None)[:3]
    if bias is not None:
        return op.decompose_bias(b, x, w, bias)
    if op.group == 1:
        return None
    return b.add(GroupConv(op.strides, op.pads, op.dilations, op.auto_pad), x, _grouped(b, op, w))[0]


@OPENVINO.lower("ConvTranspose")
def conv_transpose(b: Any, node: Node) -> Any:
    op: Any = node.op
    x, w, bias, target = (*node.inputs, None, None)[:4]
    if bias is not None:
        return op.decompose_bias(b, x, w, bias, target)
    if op.auto_pad.startswith("same") and target is None:
        return op.decompose(b, x, w)
    if op.group == 1:
        return None
    made = GroupConvTranspose(op.strides, op.pads, op.dilations, op.auto_pad, output_padding=op.output_padding)
    return b.add(made, x, _grouped(b, op, w), target)[0]


def _grouped(b: Any, op: Op, w: Any) -> Value:
    if not is_static(w.type):
        raise UnsupportedError("conv.group", f"grouped weights {w.type}, whose sizes should all be known")
    found: Value = split_weight_groups(b, w, op.group)  # type: ignore[attr-defined]
    return found
