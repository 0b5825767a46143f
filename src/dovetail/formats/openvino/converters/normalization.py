"""Normalisation in OpenVINO's words."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import axis_in
from dovetail.ops.nn.dropout import is_inference
from dovetail.ops.nn.normalization import MeanVarianceNormalization


@OPENVINO.importer("MVN", 2)
def mean_variance(ctx: ImportContext) -> list[Value]:
    """MVN-1: epsilon is inside the root; the axes are listed, or all after the channels or after the batch."""
    x = ctx.input(0)
    across = ctx.attribute("across_channels", "bool", True)
    axes = ctx.attribute("reduction_axes", "tuple[int, ...]", ()) or tuple(range(1 if across else 2, len(x.dims)))
    op = MeanVarianceNormalization(ctx.attribute("normalize_variance", "bool", True), ctx.attribute("eps", "float", 1e-9))
    return ctx.b.add(op, x, ctx.b.constant(list(axes), dtypes.i64))


@OPENVINO.importer("LRN", 1)
def local_response(ctx: ImportContext) -> list[Value]:
    size = ctx.attribute("size", "int")
    if size % 2 == 0:
        raise UnsupportedError(
            "norm.size", f"a region of {size} places, of which OpenVINO's text and implementation make different things"
        )
    alpha, beta, bias = (ctx.attribute(name, "float") for name in ("alpha", "beta", "bias"))
    x, axes = ctx.input(0), ctx.attribute_or_input(1, "tuple[int, ...]")
    result: Value = ctx.b.LRN(x, size=size, alpha=alpha, beta=beta, bias=bias, axes=axes)
    return [result]


@OPENVINO.importer("GRN", 1)
def across_channels(ctx: ImportContext) -> Value:
    """Divided by the root of the sum of squares along the channels and the bias."""
    b, x = ctx.b, ctx.input(0)
    squares = b.ReduceSum(b.Multiply(x, x), [1], keep_dims=True)
    result: Value = b.Divide(x, b.Sqrt(b.Add(squares, ctx.attribute("bias", "float"))))
    return result


@OPENVINO.legalize("LRN")
def legalize_local_response(b: Any, node: Node) -> Any:
    """OpenVINO's CPU plugin takes 1 for every bias."""
    op: Any = node.op
    return op.decompose(b, *node.inputs) if op.size % 2 == 0 or op.bias != 1 else None


@OPENVINO.legalize("BatchNormalization")
def batch(b: Any, node: Node) -> Any:
    """All five inputs are of one element type there."""
    op: Any = node.op
    is_one_type = len({x.dtype for x in node.inputs if x is not None}) == 1
    return None if is_one_type or op.training else op.decompose(b, *node.inputs)


@OPENVINO.legalize("Hardmax")
def hardmax(b: Any, node: Node) -> Any:
    """The greatest elements that no other stands before."""
    op: Any = node.op
    x = node.inputs[0]
    assert x is not None
    rank = len(x.dims)
    axis = axis_in(op.axis, rank)
    if op.coerce:
        flat = b.Reshape(x, [0] * axis + [-1])
        return b.Reshape(b.Hardmax(flat, axis=-1), shape_value(b, x), copy_zeros=False)
    is_greatest = b.Equal(x, b.ReduceMax(x, [axis], keep_dims=True))
    before = b.CumSum(b.Cast(is_greatest, to=dtypes.i32), b.constant(axis), exclusive=True)
    return b.Cast(b.And(is_greatest, b.Equal(before, 0)), to=x.dtype)


@OPENVINO.legalize("Dropout")
def dropout(b: Any, node: Node) -> Any:
    """In inference it is nothing, and its mask is full."""
    op: Any = node.op
    x, _, training = (*node.inputs, None, None)[:3]
    if x is None or not is_inference(training):
        return None
    if op.outputs == 1:
        return [x]
    kind = x.dtype if op.mask_like else dtypes.boolean
    return [x, b.Expand(b.constant(np.ones((), dtype=kind.numpy), kind), shape_value(b, x))]
