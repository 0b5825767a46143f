"""Converters for arithmetic, comparisons, reductions and casts that no op mapping can express."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import Reading
from dovetail.formats.legacy_broadcast import align_second
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ops.elementwise.broadcast import scalar_like
from dovetail.ops.elementwise.cast import FNUZ, Cast, rounding_difference


@ONNX.importer("Add", 1, 6)
@ONNX.importer("Sub", 1, 6)
@ONNX.importer("Mul", 1, 6)
@ONNX.importer("Div", 1, 6)
@ONNX.importer("Pow", 1)
@ONNX.importer("Equal", 1)
@ONNX.importer("Less", 1)
@ONNX.importer("Greater", 1)
@ONNX.importer("And", 1)
@ONNX.importer("Or", 1)
@ONNX.importer("Xor", 1)
def import_legacy_broadcast(ctx: ImportContext) -> Value | None:
    """Import a binary operator before version 7; with ``broadcast`` the second input is aligned with ``axis`` of the first."""
    if not ctx.attribute("broadcast", "bool", False):
        return None
    x, y = ctx.input(0), ctx.input(1)
    axis = ctx.attribute("axis", "int", None)
    if axis is not None and axis < 0:
        raise FormatError("attribute.value", f"{ctx.node.kind}: axis must not be negative, got {axis}")
    op, xs = ctx.apply_mapping(x, align_second(ctx.b, x, y, axis))
    return ctx.b.add(op.with_(broadcast=True), *xs)[0]


@ONNX.importer("Mod", 10, 13)
def import_mod(ctx: ImportContext) -> None:
    """Import Mod before version 28, which for floats must have fmod=1."""
    dtype = getattr(ctx.input(0).type, "dtype", None)
    if dtype is not None and dtype.is_float and not ctx.attribute("fmod", "bool", False):
        raise FormatError("attribute.value", f"Mod-{ctx.node.version}: fmod must be 1 for floats, got 0")


@ONNX.legalize("Mod")
def legalize_mod(b: Builder, node: Node) -> Value | None:
    """Legalize the floored remainder of floats, which ONNX has only since version 28, to the truncated remainder (fmod=1)."""
    op: Any = node.op
    x, y = node.input(0), node.input(1)
    if op.fmod or not x.dtype.is_float:
        return None
    remainder = b.Mod(x, y, fmod=True, broadcast=op.broadcast)
    zero = scalar_like(b, 0, x)
    has_other_sign = b.And(b.Not(b.Equal(remainder, zero)), b.Xor(b.Less(remainder, zero), b.Less(y, zero)))
    signed = b.Multiply(b.Abs(remainder), b.Sign(y))
    result: Value = b.Where(has_other_sign, b.Add(remainder, y), b.Where(b.Equal(remainder, zero), signed, remainder))
    return result


@ONNX.legalize("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def legalize_boolean_bitwise(b: Builder, node: Node) -> Value | None:
    """Legalize bitwise operators of booleans to logical operators; the bitwise operators of ONNX support only integers."""
    assert node.inputs[0] is not None
    if node.inputs[0].dtype.kind != "bool":
        return None
    kind = type(node.op).__name__.removeprefix("Bitwise")
    options = {"broadcast": node.op.broadcast} if kind != "Not" else {}  # type: ignore[attr-defined]
    result: Value = b.apply(kind, *node.inputs, **options)
    return result


@ONNX.legalize("Where")
def legalize_where(b: Builder, node: Node) -> Value | None:
    """Legalize Where of booleans to logical operators, because onnxruntime has no kernel for Where of booleans."""
    condition, x, y = (node.input(index) for index in range(3))
    if x.dtype.kind != "bool":
        return None
    op: Any = node.op
    result: Value
    if y.constant is not None and y.constant.size == 1 and not y.constant.any():
        result = b.And(condition, x, broadcast=op.broadcast)
    else:
        selected, otherwise = b.And(condition, x, broadcast=op.broadcast), b.And(b.Not(condition), y, broadcast=op.broadcast)
        result = b.Or(selected, otherwise, broadcast=op.broadcast)
    return result


@ONNX.importer("Clip", 11, 12, 13)
def import_clip(ctx: ImportContext) -> Reading | None:
    """Import Clip; every runtime accepts bounds that are vectors of one element, a deviation."""
    xs = ctx.as_scalars(1, 2)
    return None if xs is None else ctx.apply_mapping(*xs)


@ONNX.importer("CumSum", 11, 14)
@ONNX.importer("CumProd", 26)
def import_cumulative(ctx: ImportContext) -> Reading | None:
    """Import CumSum and CumProd; every runtime accepts an axis that is a vector of one element, a deviation."""
    xs = ctx.as_scalars(1)
    return None if xs is None else ctx.apply_mapping(*xs, **ctx.node.attributes)


@ONNX.legalize("Reduction")
def legalize_reduction(b: Builder, node: Node) -> Value | None:
    """Legalize a reduction: axes become an i64 vector, and noop_with_empty_axes is reset if the axes are not empty."""
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
    if axes is None or not op.onnx:
        return None
    vector = _as_vector(b, axes)
    some = axes.shape is not None and (len(axes.shape) == 0 or (isinstance(axes.shape[0], int) and axes.shape[0] > 0))
    if vector is axes and (not op.noop_with_empty_axes or not some):
        return None
    return b.add(op.with_(noop_with_empty_axes=op.noop_with_empty_axes and not some), x, vector)[0]


def _as_vector(b: Builder, axes: Value) -> Value:
    if axes.constant is not None and (axes.constant.ndim != 1 or axes.dtype != "i64"):
        return b.constant(axes.constant.reshape(-1).astype(np.int64))
    if axes.dtype != "i64":
        axes = b.Cast(axes, to=dtypes.i64)
    return b.Reshape(axes, [-1]) if axes.shape == () else axes


@ONNX.importer("Cast", 19, 21, 23, 24, 25, 28)
def import_cast(ctx: ImportContext) -> Op | None:
    """Import Cast; before version 24 a cast to a type without infinity converts infinities to NaN."""
    to, saturate = ctx.attribute("to", "DType"), ctx.attribute("saturate", "bool", True)
    ctx.warn("cast.ties", rounding_difference(ctx.input(0), to))
    if ctx.node.version >= 24:
        return None
    return Cast(to, saturate=saturate, saturate_infinity=not saturate) if to in FNUZ and saturate else None


@ONNX.importer("CastLike", 19, 21, 23, 24, 25)
def import_cast_like(ctx: ImportContext) -> Value | None:
    to, saturate = ctx.input(1).dtype, ctx.attribute("saturate", "bool", True)
    ctx.warn("cast.ties", rounding_difference(ctx.input(0), to))
    if to not in FNUZ or not saturate or ctx.node.version >= 24:
        return None
    result: Value = ctx.b.Cast(ctx.input(0), to=to, saturate_infinity=False)
    return result


def _means_infinity(op: Any, version: int) -> bool:
    return op.to not in FNUZ or not op.saturate or op.saturate_infinity == (version >= 24)


@ONNX.exporter("Cast", supports=_means_infinity)
def export_cast(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    version = ctx.version_of("", "Cast") or 0
    if not _means_infinity(op, version):
        raise UnsupportedError("op.unsayable", f"Cast-{version} implies saturate_infinity={not op.saturate_infinity}")
    return [ctx.export_by_mapping(node)]


@ONNX.legalize("CastLike")
def legalize_cast_like(b: Builder, node: Node) -> Value | None:
    """Legalize CastLike to Cast for types without infinity, to which operator versions convert infinities differently."""
    x, like = node.input(0), node.input(1)
    result: Value | None = node.op.decompose(b, x, like) if like.dtype in FNUZ else None
    return result
