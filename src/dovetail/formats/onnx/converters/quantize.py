"""Converters for QuantizeLinear, whose versions differ by more than an op mapping can express."""

from __future__ import annotations

from typing import Any

from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node

NARROW = ("f16", "bf16")


@ONNX.importer("QuantizeLinear", 23, 24, 25, 28)
def import_quantize_linear(ctx: ImportContext) -> Any:
    """Import QuantizeLinear since version 23: without ``precision`` the quotient is computed in the type of the scale."""
    kind = ctx.input(1).dtype
    if ctx.node.attributes.get("precision", 0) or kind.name not in NARROW:
        return None
    return ctx.apply_mapping(*ctx.inputs, **{**ctx.node.attributes, "precision": kind.onnx})


@ONNX.legalize("QuantizeLinear")
def legalize_quantize_linear(b: Builder, node: Node) -> Any:
    """Legalize QuantizeLinear that divides in f32 by a half-precision scale: since version 23 it needs ``precision``."""
    op: Any = node.op
    scale = node.inputs[1]
    if op.precision is not None or scale is None or scale.dtype.name not in NARROW:
        return None
    return b.add(op.with_(precision=dtypes.f32), *node.inputs)
