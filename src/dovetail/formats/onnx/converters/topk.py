"""Converters for TopK."""

from __future__ import annotations

import numpy as np

from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.tensor.topk import TopK


@ONNX.importer("TopK", 1)
def import_top_k(ctx: ImportContext) -> list[Value]:
    k = ctx.b.constant(np.array([ctx.attribute("k", "int")], np.int64))
    return ctx.b.add(TopK(ctx.attribute("axis", "int", -1)), ctx.input(0), k)


@ONNX.legalize("TopK")
def legalize_top_k(b: Builder, node: Node) -> list[Value] | None:
    """Legalize TopK: reshape k to a vector, and cast k to i64."""
    x, k = node.input(0), node.input(1)
    if k.dtype is dtypes.i64 and k.shape is not None and len(k.shape) == 1:
        return None
    wide = k if k.dtype is dtypes.i64 else b.Cast(k, to=dtypes.i64)
    return b.add(node.op, x, wide if wide.shape is not None and len(wide.shape) == 1 else b.Reshape(wide, [1]))
