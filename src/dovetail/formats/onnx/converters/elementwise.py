"""Arithmetic, comparisons, reductions and casts where ONNX and the core differ by more than a slot line."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.exporter import Lowering
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import Lifting
from dovetail.formats.legacy_broadcast import aligned
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ops.elementwise.broadcast import scalar_like
from dovetail.ops.elementwise.cast import FNUZ

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
    "ReduceLogSumExp",
)  # fmt: skip


@ONNX.lift("Add", 1, 6)
@ONNX.lift("Sub", 1, 6)
@ONNX.lift("Mul", 1, 6)
@ONNX.lift("Div", 1, 6)
@ONNX.lift("Pow", 1)
@ONNX.lift("Equal", 1)
@ONNX.lift("Less", 1)
@ONNX.lift("Greater", 1)
@ONNX.lift("And", 1)
@ONNX.lift("Or", 1)
@ONNX.lift("Xor", 1)
def one_way_broadcast(node: Lifting) -> Value | None:
    """Before version 7 the second input broadcasts, on demand, to the first from ``axis`` on."""
    if not node.attribute("broadcast", "bool", False):
        return None
    x, y = node.input(0), node.input(1)
    axis = node.attribute("axis", "int", None)
    if axis is not None and axis < 0:
        raise FormatError("attribute.value", f"{node.node.kind}: axis = {axis} is negative")
    op, xs = node.reading(x, aligned(node.b, x, y, axis))
    return node.b.add(op.with_(broadcast=True), *xs)[0]


@ONNX.lift("Mod", 10, 13)
def mod(node: Lifting) -> None:
    """Floats had only the remainder of C's fmod."""
    dtype = getattr(node.input(0).type, "dtype", None)
    if dtype is not None and dtype.is_float and not node.attribute("fmod", "bool", False):
        raise FormatError("mod.fmod", f"Mod-{node.node.version} of floats needs fmod=1")


@ONNX.lower("Mod")
def float_mod(b: Builder, node: Node) -> Value | None:
    """The floor remainder of floats, which came only with version 28, from the truncated one."""
    op: Any = node.op
    x, y = node.inputs
    assert x is not None and y is not None
    if op.fmod or not x.dtype.is_float:
        return None
    rest = b.Mod(x, y, fmod=True, broadcast=op.broadcast)
    zero = scalar_like(b, 0, x)
    other = b.And(b.Not(b.Equal(rest, zero)), b.Xor(b.Less(rest, zero), b.Less(y, zero)))
    signed = b.Multiply(b.Abs(rest), b.Sign(y))
    result: Value = b.Where(other, b.Add(rest, y), b.Where(b.Equal(rest, zero), signed, rest))
    return result


@ONNX.lower("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def bits_of_truth(b: Builder, node: Node) -> Value | None:
    """ONNX's are for integers; those of truth values are the connectives."""
    assert node.inputs[0] is not None
    if node.inputs[0].dtype.kind != "bool":
        return None
    kind = type(node.op).__name__.removeprefix("Bitwise")
    options = {"broadcast": node.op.broadcast} if kind != "Not" else {}  # type: ignore[attr-defined]
    result: Value = b.apply(kind, *node.inputs, **options)
    return result


@ONNX.lower("Where")
def choice_of_truth(b: Builder, node: Node) -> Value | None:
    """Truth values are chosen by the connectives: onnxruntime has no kernel of Where for them."""
    condition, x, y = node.inputs
    assert condition is not None and x is not None and y is not None
    if x.dtype.kind != "bool":
        return None
    op: Any = node.op
    result: Value
    if y.constant is not None and y.constant.size == 1 and not y.constant.any():
        result = b.And(condition, x, broadcast=op.broadcast)
    else:
        chosen, other = b.And(condition, x, broadcast=op.broadcast), b.And(b.Not(condition), y, broadcast=op.broadcast)
        result = b.Or(chosen, other, broadcast=op.broadcast)
    return result


@ONNX.lower(*REDUCTIONS)
def reduction(b: Builder, node: Node) -> Value | None:
    """Axes are an i64 vector; where there surely are some, what none would mean is left at its default."""
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
    if axes is None:
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


@ONNX.lift("Cast", 19, 21, 23)
def cast(node: Lifting) -> Op | None:
    """Until version 24 infinities became NaN in the types that lack them, saturated or not."""
    from dovetail.ops.elementwise.cast import Cast

    to, saturate = node.attribute("to", "DType"), node.attribute("saturate", "bool", True)
    return Cast(to, saturate=saturate, saturate_infinity=not saturate) if to in FNUZ and saturate else None


@ONNX.lift("CastLike", 19, 21, 23)
def cast_like(node: Lifting) -> Value | None:
    to, saturate = node.input(1).dtype, node.attribute("saturate", "bool", True)
    if to not in FNUZ or not saturate:
        return None
    made: Value = node.b.Cast(node.input(0), to=to, saturate_infinity=False)
    return made


def _means_infinity(op: Any, version: int) -> bool:
    return op.to not in FNUZ or not op.saturate or op.saturate_infinity == (version >= 24)


@ONNX.emit("Cast", says=_means_infinity)
def emit_cast(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    version = lowering.version_of("", "Cast") or 0
    if not _means_infinity(op, version):
        raise UnsupportedError("op.unsayable", f"Cast-{version} does not mean saturate_infinity={op.saturate_infinity}")
    return [lowering.spelled(node)]


@ONNX.lower("CastLike")
def plain_cast(b: Builder, node: Node) -> Value | None:
    """To types whose infinities the versions treat differently, Cast says which way."""
    x, like = node.inputs
    assert x is not None and like is not None
    made: Value | None = node.op.decompose(b, x, like) if like.dtype in FNUZ else None
    return made
