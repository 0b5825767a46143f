"""Converters for convolutions, which in OpenVINO have no bias; grouped convolutions are separate operators."""

from __future__ import annotations

from typing import Any

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import is_static
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.group_conv import GroupConv, GroupConvTranspose, merge_weight_groups, split_weight_groups

# For a transposed convolution, same_upper and same_lower place the odd element of padding opposite to Conv.
_OPPOSITE_PADDING = {"same_upper": "same_lower", "same_lower": "same_upper"}


@OPENVINO.importer("GroupConvolution", 1)
def import_group_convolution(ctx: ImportContext) -> list[Value]:
    w = _static_weights(ctx)
    return ctx.b.add(Conv(**_windows(ctx), group=_groups(w)), ctx.input(0), merge_weight_groups(ctx.b, w))


@OPENVINO.importer("GroupConvolutionBackpropData", 1)
def import_group_convolution_backprop_data(ctx: ImportContext) -> list[Value]:
    w, target = _static_weights(ctx), ctx.optional_input(2)
    attributes = _windows(ctx)
    auto_pad = attributes["auto_pad"]
    if auto_pad != "explicit":
        # Automatic padding depends on an output shape; without an output shape the padding is 0.
        attributes["auto_pad"] = "valid" if target is None else _OPPOSITE_PADDING.get(auto_pad, auto_pad)
    extra = ctx.attribute("output_padding", "tuple[int, ...]", None)
    op = ConvTranspose(**attributes, group=_groups(w), output_padding=extra)
    return ctx.b.add(op, ctx.input(0), merge_weight_groups(ctx.b, w), None, target)


def _static_weights(ctx: ImportContext) -> Value:
    w = ctx.input(1)
    if not is_static(w.type) or len(w.dims) < 4:
        raise UnsupportedError("type.unknown", f"grouped weights must have a static shape of rank 4 or more, got {w.type}")
    return w


def _groups(w: Value) -> int:
    groups = w.dims[0]
    assert isinstance(groups, int)
    return groups


def _windows(ctx: ImportContext) -> dict[str, Any]:
    ints = "tuple[int, ...]"
    auto_pad = ctx.attribute("auto_pad", "str", "explicit")
    begins, ends = ctx.attribute("pads_begin", ints, ()), ctx.attribute("pads_end", ints, ())
    strides, dilations = ctx.attribute("strides", ints), ctx.attribute("dilations", ints)
    pads = (*begins, *ends) if auto_pad == "explicit" else None
    return {"strides": strides, "pads": pads, "dilations": dilations, "auto_pad": auto_pad}


@OPENVINO.legalize("Conv")
def legalize_conv(b: Builder, node: Node) -> Any:
    op: Any = node.op
    x, w, bias = (*node.inputs, None)[:3]
    if bias is not None:
        return op.decompose_bias(b, x, w, bias)
    if op.group == 1:
        return None
    return b.add(GroupConv(op.strides, op.pads, op.dilations, op.auto_pad), x, _split_weights(b, op, w))[0]


@OPENVINO.legalize("ConvTranspose")
def legalize_conv_transpose(b: Builder, node: Node) -> Any:
    op: Any = node.op
    x, w, bias, target = (*node.inputs, None, None)[:4]
    if bias is not None:
        return op.decompose_bias(b, x, w, bias, target)
    if op.auto_pad.startswith("same") and target is None:
        return op.decompose(b, x, w)
    if op.group == 1:
        return None
    result = GroupConvTranspose(op.strides, op.pads, op.dilations, op.auto_pad, output_padding=op.output_padding)
    return b.add(result, x, _split_weights(b, op, w), target)[0]


def _split_weights(b: Builder, op: Op, w: Any) -> Value:
    if w.shape is None or not isinstance(w.shape[0], int):
        raise UnsupportedError("type.unknown", f"grouped weights must have a known first size, got {w.type}")
    result: Value = split_weight_groups(b, w, op.group)  # type: ignore[attr-defined]
    return result
