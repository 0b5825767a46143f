"""Converters for normalization operators, Hardmax and Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import axis_in
from dovetail.ops.nn.dropout import is_inference
from dovetail.ops.nn.normalization import MeanVarianceNormalization
from dovetail.ops.reduction.argminmax import axis_indices


@OPENVINO.importer("MVN", 2)
def import_mvn(ctx: ImportContext) -> list[Value]:
    """Import MVN-1 (opset2), with epsilon inside the square root.

    Without ``reduction_axes`` the axes are all after the batch, or with ``across_channels=False`` all after the channels.
    """
    x = ctx.input(0)
    across = ctx.attribute("across_channels", "bool", True)
    axes = ctx.attribute("reduction_axes", "tuple[int, ...]", ()) or tuple(range(1 if across else 2, len(x.dims)))
    op = MeanVarianceNormalization(ctx.attribute("normalize_variance", "bool", True), ctx.attribute("eps", "float", 1e-9))
    return ctx.b.add(op, x, ctx.b.constant(list(axes), dtypes.i64))


@OPENVINO.importer("LRN", 1)
def import_lrn(ctx: ImportContext) -> list[Value]:
    size = ctx.attribute("size", "int")
    if size % 2 == 0:
        raise UnsupportedError(
            "op.unsupported",
            f"LRN: size must be odd, because OpenVINO's specification and implementation differ for even sizes, got {size}",
        )
    alpha, beta, bias = (ctx.attribute(name, "float") for name in ("alpha", "beta", "bias"))
    x, axes = ctx.input(0), ctx.attribute_or_input(1, "tuple[int, ...]")
    result: Value = ctx.b.LRN(x, size=size, alpha=alpha, beta=beta, bias=bias, axes=axes)
    return [result]


@OPENVINO.importer("GRN", 1)
def import_grn(ctx: ImportContext) -> Value:
    """Import GRN: x / sqrt(sum(x**2 over the channels) + bias)."""
    b, x = ctx.b, ctx.input(0)
    squares = b.ReduceSum(b.Multiply(x, x), [1], keepdims=True)
    result: Value = b.Divide(x, b.Sqrt(b.Add(squares, ctx.attribute("bias", "float"))))
    return result


@OPENVINO.legalize("LRN")
def legalize_lrn(b: Builder, node: Node) -> Any:
    """Decompose LRN with an even size, or with a bias other than 1, which OpenVINO's CPU plugin ignores."""
    op: Any = node.op
    return op.decompose(b, *node.inputs) if op.size % 2 == 0 or op.bias != 1 else None


@OPENVINO.legalize("BatchNormalization")
def legalize_batch_normalization(b: Builder, node: Node) -> Any:
    """Decompose BatchNormalization with inputs of different element types, which OpenVINO refuses."""
    op: Any = node.op
    is_one_type = len({x.dtype for x in node.inputs if x is not None}) == 1
    return None if is_one_type or op.training_mode else op.decompose(b, *node.inputs)


@OPENVINO.legalize("Hardmax")
def legalize_hardmax(b: Builder, node: Node) -> Any:
    """Legalize Hardmax to a comparison of each index with the ArgMax along the axis."""
    op: Any = node.op
    x = node.input(0)
    if op.coerce_to_2d:
        return op.decompose(b, x)
    rank = len(x.dims)
    axis = axis_in(op.axis, rank)
    return b.Cast(b.Equal(axis_indices(b, x, axis), b.ArgMax(x, axis=axis, keepdims=True)), to=x.dtype)


@OPENVINO.legalize("Dropout")
def legalize_dropout(b: Builder, node: Node) -> Any:
    """Legalize Dropout in inference mode to its input and a mask of ones."""
    op: Any = node.op
    x, _, training = (*node.inputs, None, None)[:3]
    if x is None or not is_inference(training):
        return None
    if op.outputs == 1:
        return [x]
    kind = x.dtype if op.mask_like else dtypes.boolean
    return [x, b.Expand(b.constant(np.ones((), dtype=kind.numpy), kind), shape_value(b, x))]
