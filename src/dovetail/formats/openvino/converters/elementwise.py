"""Converters for arithmetic, activations, reductions and casts that no op mapping can express."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import Reading
from dovetail.formats.legacy_broadcast import align_second
from dovetail.formats.mapping_selection import constant_or_none
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import REGISTRY, Op
from dovetail.ops.elementwise.broadcast import scalar_like
from dovetail.ops.elementwise.cast import rounding_difference
from dovetail.ops.elementwise.clip import finite_range

_BROADCASTING = {
    1: (
        "Add Subtract Multiply Divide Power Mod FloorMod SquaredDifference Maximum Minimum Equal NotEqual Less LessEqual "
        "Greater GreaterEqual LogicalAnd LogicalOr LogicalXor Xor"
    ),
    13: "BitwiseAnd BitwiseOr BitwiseXor",
    15: "BitwiseLeftShift BitwiseRightShift",
}
_AXIS = "auto_broadcast.auto_broadcast_axis"


def _paddle(ctx: ImportContext) -> Value | None:
    """Import a binary operator with PaddlePaddle broadcasting: the second input is aligned with an axis of the first."""
    attributes = dict(ctx.node.attributes)
    if len(ctx.inputs) != 2:
        raise FormatError("node.inputs", f"{ctx.node.kind} must have 2 inputs, got {len(ctx.inputs)}")
    if attributes.get("auto_broadcast") != "pdpd":
        return None
    x, y = ctx.input(0), ctx.input(1)
    axis = ctx.attribute(_AXIS, "int", None)
    if axis is None and (x.shape is None or y.shape is None or len(x.shape) != len(y.shape)):
        # The default axis is -1 in the specification, but 0 in the implementation.
        raise UnsupportedError("attribute.missing", f"{ctx.node.kind} with auto_broadcast=pdpd needs the attribute 'axis'")
    attributes.pop("auto_broadcast")
    attributes.pop(_AXIS, None)
    op, xs = ctx.apply_mapping(x, align_second(ctx.b, x, y, None if axis == -1 else axis or 0), **attributes)
    return ctx.b.add(op, *xs)[0]


for _version, _kinds in _BROADCASTING.items():
    for _kind in _kinds.split():
        OPENVINO.importer(_kind, _version)(_paddle)


@OPENVINO.importer("Select", 1)
def import_select(ctx: ImportContext) -> None:
    if ctx.node.attributes.get("auto_broadcast") == "pdpd":
        raise UnsupportedError("op.unsupported", "Select with auto_broadcast=pdpd is not supported")


@OPENVINO.legalize("Maximum", "Minimum")
def legalize_maximum_minimum(b: Builder, node: Node) -> Value | None:
    """Legalize Maximum and Minimum of more or fewer than two inputs to operators with two inputs."""
    result: Value | None = None if len(node.inputs) == 2 else node.op.lower(b, *node.inputs)  # type: ignore[attr-defined]
    return result


@OPENVINO.legalize("Power")
def legalize_power(b: Builder, node: Node) -> Value | None:
    """Legalize Power: cast base and exponent to the type of the base if it represents the exponent exactly, else to f64."""
    op: Any = node.op
    x, y = node.input(0), node.input(1)
    if x.dtype is y.dtype:
        return None
    if x.dtype.is_float and _holds(x.dtype, y):
        result: Value = b.Power(x, b.Cast(y, to=x.dtype), broadcast=op.broadcast)
        return result
    wide = b.Power(b.Cast(x, to=dtypes.f64), b.Cast(y, to=dtypes.f64), broadcast=op.broadcast)
    result = b.Cast(wide, to=x.dtype)
    return result


def _holds(dtype: DType, y: Value) -> bool:
    digits = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}.get(dtype.name, 0)
    if y.dtype.is_integer and y.dtype.bits <= digits:
        return True
    data = y.constant
    if data is None:
        return False
    return bool(np.all(data.astype(dtype.numpy).astype(np.float64) == data.astype(np.float64)))


# Activations


@OPENVINO.importer("Clamp", 1)
def import_clamp(ctx: ImportContext) -> Value:
    """Import Clamp: the bounds become constants of the type of ``x``; for integers, fractional bounds are rounded inwards."""
    x = ctx.input(0)
    low, high = ctx.attribute("min", "float"), ctx.attribute("max", "float")
    if not low <= high:
        raise FormatError("attribute.range", f"Clamp: min ({low}) must not be greater than max ({high})")
    result: Value = ctx.b.Clip(x, _bound_constant(ctx.b, x, low, True), _bound_constant(ctx.b, x, high, False))
    return result


def _bound_constant(b: Builder, x: Value, value: float, is_low: bool) -> Value:
    if not x.dtype.is_integer:
        return b.constant(value, x.dtype)
    lowest, highest = x.dtype.range()
    integer = (lowest if value < 0 else highest) if np.isinf(value) else ceil(value) if is_low else floor(value)
    return b.constant(np.asarray(min(max(integer, lowest), highest)).astype(x.dtype.numpy), x.dtype)


@OPENVINO.legalize("Clip")
def legalize_clip(b: Builder, node: Node) -> Value | None:
    """Legalize Clip to Clamp if both bounds are constant, ordered and exact as floats; otherwise to Maximum and Minimum."""
    x, low, high = (*node.inputs, None, None)[:3]
    assert x is not None
    lowest, highest = finite_range(x.dtype)
    known_low, known_high = ((lowest if low is None else _scalar(low)), (highest if high is None else _scalar(high)))
    if known_low is not None and known_high is not None and _is_exact(x.dtype, known_low) and _is_exact(x.dtype, known_high):
        if low is not None and high is not None and known_low <= known_high:
            return None
        first, second = (_like(b, known_low, x), _like(b, known_high, x))
        result: Value = b.Clip(x, first if known_low <= known_high else second, second)
        return result
    if x.dtype.is_integer:
        raised = x if low is None else b.Maximum(x, low)
        return raised if high is None else b.Minimum(raised, high)
    raised = b.Maximum(x, _like(b, lowest, x) if low is None else low)
    result = b.Minimum(raised, _like(b, highest, x) if high is None else high)
    return result


def _scalar(x: Value) -> Any:
    data = constant_or_none(x)
    return None if data is None or np.isnan(data.astype(np.float64)) else data.reshape(())[()]


def _is_exact(dtype: DType, value: Any) -> bool:
    return not dtype.is_integer or int(float(value)) == int(value)


def _like(b: Builder, value: Any, x: Value) -> Value:
    return b.constant(np.asarray(value).astype(x.dtype.numpy), x.dtype)


@OPENVINO.legalize("PRelu")
def legalize_prelu(b: Builder, node: Node) -> Value | None:
    """Legalize PRelu: unsqueeze a slope of rank 1 that OpenVINO would align with axis 1 instead of the last axis."""
    op: Any = node.op
    x, slope = node.input(0), node.input(1)
    if op.channels or slope.shape is None:
        return None
    if slope.shape == () or type(op)(channels=True).is_by_channel(x.shape, slope.shape) is not False:
        slope = b.Unsqueeze(slope, [0])
    result: Value = b.PRelu(x, slope, channels=True)
    return result


def has_runtime_attribute(ctx: ImportContext) -> bool:
    """Return whether an input that corresponds to a core attribute is computed at run time."""
    return any(x is not None and constant_or_none(x) is None for x in ctx.inputs[1:])


@OPENVINO.importer("HardSigmoid", 1)
def import_hard_sigmoid(ctx: ImportContext) -> Value | None:
    if not has_runtime_attribute(ctx):
        return None
    b, x = ctx.b, ctx.input(0)
    line = b.Add(b.Multiply(x, ctx.input(1)), ctx.input(2))
    result: Value = b.Maximum(b.Minimum(line, scalar_like(b, 1, x)), scalar_like(b, 0, x))
    return result


@OPENVINO.importer("Selu", 1)
def import_selu(ctx: ImportContext) -> Value | None:
    if not has_runtime_attribute(ctx):
        return None
    b, x = ctx.b, ctx.input(0)
    below = b.Multiply(b.Subtract(b.Exp(x), 1), ctx.input(1))
    result: Value = b.Multiply(b.Where(b.Greater(x, 0), x, below), ctx.input(2))
    return result


@OPENVINO.importer("Swish", 4)
def import_swish(ctx: ImportContext) -> Value | None:
    if not has_runtime_attribute(ctx):
        return None
    x = ctx.input(0)
    result: Value = ctx.b.Multiply(x, ctx.b.Sigmoid(ctx.b.Multiply(x, ctx.input(1))))
    return result


# Reductions


@OPENVINO.legalize("Reduction")
def legalize_reduction(b: Builder, node: Node) -> Value | None:
    """Legalize a reduction: make the axes an explicit input; Max and Min of booleans become logical reductions."""
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
    if not op.openvino:
        return None
    assert x is not None
    if x.dtype.kind == "bool" and type(op).__name__ in ("ReduceMax", "ReduceMin"):
        kind = "ReduceAny" if type(op).__name__ == "ReduceMax" else "ReduceAll"
        result: Value = b.apply(kind, x, axes, keepdims=op.keepdims, noop_with_empty_axes=op.noop_with_empty_axes)
        return result
    if axes is not None and op.noop_with_empty_axes and axes.shape != (0,):
        return None
    some = (
        axes is not None
        and axes.shape is not None
        and (axes.shape == () or (isinstance(axes.shape[0], int) and axes.shape[0] > 0))
    )
    if some:
        return b.add(op.with_(noop_with_empty_axes=True), x, axes)[0]
    none = axes is None or (axes.shape is not None and axes.shape == (0,))
    if not none or (x.shape is None and not op.noop_with_empty_axes):
        raise UnsupportedError("constant.needed", f"the axes of a reduction of {x.type} must be constant")
    listed = [] if op.noop_with_empty_axes else list(range(len(x.dims)))
    if not listed:
        # OpenVINO refuses an empty constant of axes: a new axis of size 1 is reduced instead.
        return b.add(op.with_(noop_with_empty_axes=True, keepdims=False), b.Unsqueeze(x, [-1]), [-1])[0]
    return b.add(op.with_(noop_with_empty_axes=True), x, listed)[0]


@OPENVINO.importer("CumSum", 3)
def import_cum_sum(ctx: ImportContext) -> Reading | None:
    """Import CumSum; OpenVINO accepts an axis that is a vector of one element, a deviation."""
    xs = ctx.as_scalars(1)
    return None if xs is None else ctx.apply_mapping(*xs, **ctx.node.attributes)


# Casts


@OPENVINO.importer("Convert", 1)
def import_convert(ctx: ImportContext) -> Op | None:
    """Import Convert. OpenVINO converts numbers beyond the range of f8 to infinity or NaN, and rounds f8e8m0 to even.

    A Cast from nf4 has the attribute ``source``.
    """
    to, x = ctx.attribute("destination_type", "DType"), ctx.input(0)
    ctx.warn("cast.ties", rounding_difference(ctx.input(0), to))
    source = x.dtype if x.dtype == "nf4" else None
    if to in ("f8e4m3", "f8e5m2"):
        return REGISTRY["Cast"](to, saturate=False, source=source)
    if to == "f8e8m0":
        return REGISTRY["Cast"](to, round_mode="even", source=source)
    return None if source is None else REGISTRY["Cast"](to, source=source)


@OPENVINO.importer("ConvertLike", 1)
def import_convert_like(ctx: ImportContext) -> Value | None:
    to, x = ctx.input(1).dtype, ctx.input(0)
    ctx.warn("cast.ties", rounding_difference(ctx.input(0), to))
    if to not in ("f8e4m3", "f8e5m2", "f8e8m0") and x.dtype != "nf4":
        return None
    f8 = to in ("f8e4m3", "f8e5m2")
    source = x.dtype if x.dtype == "nf4" else None
    result: Value = ctx.b.Cast(x, to=to, saturate=not f8, round_mode="even" if to == "f8e8m0" else "up", source=source)
    return result


@OPENVINO.legalize("CastLike")
def legalize_cast_like(b: Builder, node: Node) -> Value | None:
    """Legalize CastLike to Cast for f8 types, to which ONNX and OpenVINO convert differently."""
    x, like = node.input(0), node.input(1)
    result: Value | None = node.op.decompose(b, x, like) if like.dtype.name.startswith("f8") else None
    return result


@OPENVINO.legalize("Cast")
def legalize_cast(b: Builder, node: Node) -> Value | None:
    """Legalize a saturating Cast to f8: clip to the range of the type first, because Convert does not saturate."""
    op: Any = node.op
    x = node.input(0)
    if not op.saturate or op.to not in ("f8e4m3", "f8e5m2") or op.source is not None:
        return None
    lowest, highest = finite_range(op.to)
    if x.dtype.is_integer or x.dtype.kind == "bool":
        x = b.Cast(x, to=dtypes.f32)
    limited = b.Clip(x, _like(b, lowest, x), _like(b, highest, x))
    # Clamp does not specify its result for NaN, so that NaN bypasses the clip.
    result: Value = b.Cast(b.Where(b.IsNaN(x), x, limited), to=op.to, saturate=False)
    return result


@OPENVINO.exporter("Cast")
def export_cast(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x = node.input(0)
    if op.to == "f8e8m0" and (not op.saturate or op.round_mode != "even"):
        raise UnsupportedError("op.unsayable", f"a cast to f8e8m0 must round to even and saturate, as Convert does, got {op}")
    if "string" in (x.dtype.name, op.to.name):
        raise UnsupportedError("op.unsayable", f"Convert does not support {x.dtype} to {op.to}")
    return [ctx.export_by_mapping(node)]
