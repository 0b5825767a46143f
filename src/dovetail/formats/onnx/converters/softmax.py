"""Converters for Softmax before opset 13 with a negative axis, and for Dropout before its training mode became an input."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import axis_in
from dovetail.ops.nn.dropout import Dropout, is_inference


@ONNX.importer("Softmax", 1)
@ONNX.importer("LogSoftmax", 1)
@ONNX.importer("Hardmax", 1)
def import_softmax_before_13(ctx: ImportContext) -> tuple[Op, list[Value | None]] | None:
    """Import Softmax, LogSoftmax and Hardmax before version 13 with a negative axis, which counts from the last axis.

    Version 1 does not specify negative axes. The test of LogSoftmax in the onnx package and runtimes count from the last axis.
    Exports use non-negative axes.
    """
    axis = ctx.attribute("axis", "int", 1)
    if axis >= 0:
        return None
    x = ctx.input(0)
    return ctx.apply_mapping(x, axis=axis_in(axis, len(x.dims)))


@ONNX.importer("Dropout", 1, 6)
def import_dropout(ctx: ImportContext) -> list[Value]:
    ctx.ignore("consumed_inputs")
    is_test, ratio = ctx.attribute("is_test", "bool", False), ctx.attribute("ratio", "float", 0.5)
    op = Dropout(mask_like=True, outputs=max(len(ctx.node.outputs), 1))
    if is_test:
        return ctx.b.add(op, ctx.input(0))
    return ctx.b.add(op, ctx.input(0), ctx.b.constant(np.float32(ratio)), ctx.b.constant(np.array(True)))


@ONNX.legalize("Dropout")
def legalize_dropout(b: Builder, node: Node) -> Any:
    """Legalize Dropout: a mask in the type of x becomes a cast of a boolean mask; in inference mode unused inputs are removed."""
    op: Any = node.op
    x, ratio, training = (*node.inputs, None, None)[:3]
    if op.mask_like and op.outputs == 2:
        y, mask = b.add(op.with_(mask_like=False), x, *(item for item in (ratio, training) if item is not None))
        return [y, b.Cast(mask, to=x.dtype)]  # type: ignore[union-attr]
    if is_inference(training) and (ratio is not None or training is not None):
        return b.add(op.with_(seed=None), x)
    return None
