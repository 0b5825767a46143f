"""Arithmetic, activations, reductions and casts where OpenVINO and the core differ by more than a slot line."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.exporter import Lowering, constant_or_none
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import Lifting
from dovetail.formats.legacy_broadcast import aligned
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import REGISTRY, Op
from dovetail.ops.elementwise.broadcast import scalar_like
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


def _paddle(node: Lifting) -> Value | None:
    """PaddlePaddle's broadcasting: the second input goes with the first from an axis on."""
    attributes = dict(node.node.attributes)
    if len(node.inputs) != 2:
        raise FormatError("node.inputs", f"{node.node.kind} takes 2 inputs, not {len(node.inputs)}")
    if attributes.get("auto_broadcast") != "pdpd":
        return None
    x, y = node.input(0), node.input(1)
    axis = node.attribute(_AXIS, "int", None)
    if axis is None and (x.shape is None or y.shape is None or len(x.shape) != len(y.shape)):
        # The specification lets it mean -1, and the implementation 0.
        raise UnsupportedError("broadcast.axis", f"{node.node.kind} with auto_broadcast=pdpd does not say from which axis on")
    attributes.pop("auto_broadcast")
    attributes.pop(_AXIS, None)
    op, xs = node.reading(x, aligned(node.b, x, y, None if axis == -1 else axis or 0), **attributes)
    return node.b.add(op, *xs)[0]


for _version, _kinds in _BROADCASTING.items():
    for _kind in _kinds.split():
        OPENVINO.lift(_kind, _version)(_paddle)


@OPENVINO.lift("Select", 1)
def select(node: Lifting) -> None:
    if node.node.attributes.get("auto_broadcast") == "pdpd":
        raise UnsupportedError("broadcast.pdpd", "Select with auto_broadcast=pdpd is not known")


@OPENVINO.lower("Maximum", "Minimum")
def two_by_two(b: Builder, node: Node) -> Value | None:
    made: Value | None = None if len(node.inputs) == 2 else node.op.lower(b, *node.inputs)  # type: ignore[attr-defined]
    return made


@OPENVINO.lower("Power")
def power(b: Builder, node: Node) -> Value | None:
    """Both of one type: that of the base where it holds the exponent exactly, else in f64."""
    op: Any = node.op
    x, y = node.inputs
    assert x is not None and y is not None
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


@OPENVINO.lift("Clamp", 1)
def clamp(node: Lifting) -> Value:
    """The bounds as constants of the type of ``x``; between integers the least and greatest whole numbers inside."""
    x = node.input(0)
    low, high = node.attribute("min", "float"), node.attribute("max", "float")
    if not low <= high:
        raise FormatError("clip.bound", f"Clamp: min = {low} should not be greater than max = {high}")
    made: Value = node.b.Clip(x, _bound(node.b, x, low, True), _bound(node.b, x, high, False))
    return made


def _bound(b: Builder, x: Value, value: float, is_low: bool) -> Value:
    if not x.dtype.is_integer:
        return b.constant(value, x.dtype)
    least, greatest = x.dtype.range()
    whole = (least if value < 0 else greatest) if np.isinf(value) else ceil(value) if is_low else floor(value)
    return b.constant(np.asarray(min(max(whole, least), greatest)).astype(x.dtype.numpy), x.dtype)


@OPENVINO.lower("Clip")
def clip(b: Builder, node: Node) -> Value | None:
    """Clamp takes constant bounds, both, that do not cross and that a float holds; anything else is a maximum and a minimum."""
    x, low, high = (*node.inputs, None, None)[:3]
    assert x is not None
    least, greatest = finite_range(x.dtype)
    known_low, known_high = ((least if low is None else _scalar(low)), (greatest if high is None else _scalar(high)))
    if known_low is not None and known_high is not None and _is_exact(x.dtype, known_low) and _is_exact(x.dtype, known_high):
        if low is not None and high is not None and known_low <= known_high:
            return None
        first, second = (_like(b, known_low, x), _like(b, known_high, x))
        result: Value = b.Clip(x, first if known_low <= known_high else second, second)
        return result
    if x.dtype.is_integer:
        raised = x if low is None else b.Maximum(x, low)
        return raised if high is None else b.Minimum(raised, high)
    raised = b.Maximum(x, _like(b, least, x) if low is None else low)
    result = b.Minimum(raised, _like(b, greatest, x) if high is None else high)
    return result


def _scalar(x: Value) -> Any:
    data = constant_or_none(x)
    return None if data is None or np.isnan(data.astype(np.float64)) else data.reshape(())[()]


def _is_exact(dtype: DType, value: Any) -> bool:
    return not dtype.is_integer or int(float(value)) == int(value)


def _like(b: Builder, value: Any, x: Value) -> Value:
    return b.constant(np.asarray(value).astype(x.dtype.numpy), x.dtype)


@OPENVINO.lower("PRelu")
def prelu(b: Builder, node: Node) -> Value | None:
    """A slope of rank 1 would stand for axis 1 where it is as long: with a rank of 2 it broadcasts as it is."""
    op: Any = node.op
    x, slope = node.inputs
    assert x is not None and slope is not None
    if op.channels or slope.shape is None:
        return None
    if slope.shape == () or type(op)(channels=True).is_by_channel(x.shape, slope.shape) is not False:
        slope = b.Unsqueeze(slope, [0])
    result: Value = b.PRelu(x, slope, channels=True)
    return result


def _computed(node: Lifting) -> bool:
    """Whether an input that the core has for an attribute is known only at run time."""
    return any(x is not None and constant_or_none(x) is None for x in node.inputs[1:])


@OPENVINO.lift("HardSigmoid", 1)
def hard_sigmoid(node: Lifting) -> Value | None:
    if not _computed(node):
        return None
    b, x = node.b, node.input(0)
    line = b.Add(b.Multiply(x, node.input(1)), node.input(2))
    made: Value = b.Maximum(b.Minimum(line, scalar_like(b, 1, x)), scalar_like(b, 0, x))
    return made


@OPENVINO.lift("Selu", 1)
def selu(node: Lifting) -> Value | None:
    if not _computed(node):
        return None
    b, x = node.b, node.input(0)
    below = b.Multiply(b.Subtract(b.Exp(x), 1), node.input(1))
    made: Value = b.Multiply(b.Where(b.Greater(x, 0), x, below), node.input(2))
    return made


@OPENVINO.lift("Swish", 4)
def swish(node: Lifting) -> Value | None:
    if not _computed(node):
        return None
    x = node.input(0)
    made: Value = node.b.Multiply(x, node.b.Sigmoid(node.b.Multiply(x, node.input(1))))
    return made


# Reductions


@OPENVINO.lower(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceAll", "ReduceAny"
)  # fmt: skip
def reduction(b: Builder, node: Node) -> Value | None:
    """Axes are always given, and none of them means none; extremes of truth values are reductions of their own."""
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
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
        raise UnsupportedError("reduce.axes", f"which axes of {x.type} are reduced is known only at run time")
    listed = [] if op.noop_with_empty_axes else list(range(len(x.dims)))
    if not listed:
        # OpenVINO takes no empty constant: each element is put on an axis of its own, which is reduced.
        return b.add(op.with_(noop_with_empty_axes=True, keepdims=False), b.Unsqueeze(x, [-1]), [-1])[0]
    return b.add(op.with_(noop_with_empty_axes=True), x, listed)[0]


# Casts


@OPENVINO.lift("Convert", 1)
def convert(node: Lifting) -> Op | None:
    """Beyond the range of f8 OpenVINO gives infinity or NaN; it rounds to f8e8m0 within its range; nf4 is named."""
    to, x = node.attribute("destination_type", "DType"), node.input(0)
    source = x.dtype if x.dtype == "nf4" else None
    if to in ("f8e4m3", "f8e5m2"):
        return REGISTRY["Cast"](to, saturate=False, source=source)
    if to == "f8e8m0":
        return REGISTRY["Cast"](to, round_mode="even", source=source)
    return None if source is None else REGISTRY["Cast"](to, source=source)


@OPENVINO.lift("ConvertLike", 1)
def convert_like(node: Lifting) -> Value | None:
    to, x = node.input(1).dtype, node.input(0)
    if to not in ("f8e4m3", "f8e5m2", "f8e8m0") and x.dtype != "nf4":
        return None
    f8 = to in ("f8e4m3", "f8e5m2")
    source = x.dtype if x.dtype == "nf4" else None
    made: Value = node.b.Cast(x, to=to, saturate=not f8, round_mode="even" if to == "f8e8m0" else "up", source=source)
    return made


@OPENVINO.lower("CastLike")
def cast_like(b: Builder, node: Node) -> Value | None:
    """To types that the formats reach differently Cast says which way."""
    x, like = node.inputs
    assert x is not None and like is not None
    made: Value | None = node.op.decompose(b, x, like) if like.dtype.name.startswith("f8") else None
    return made


@OPENVINO.lower("Cast")
def cast(b: Builder, node: Node) -> Value | None:
    """Saturation to f8 is a limit before the cast."""
    op: Any = node.op
    x = node.inputs[0]
    assert x is not None
    if not op.saturate or op.to not in ("f8e4m3", "f8e5m2") or op.source is not None:
        return None
    least, greatest = finite_range(op.to)
    if x.dtype.is_integer or x.dtype.kind == "bool":
        x = b.Cast(x, to=dtypes.f32)
    limited = b.Clip(x, _like(b, least, x), _like(b, greatest, x))
    # What Clamp makes of NaN is open.
    result: Value = b.Cast(b.Where(b.IsNaN(x), x, limited), to=op.to, saturate=False)
    return result


@OPENVINO.emit("Cast")
def emit_cast(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x = node.inputs[0]
    assert x is not None
    if op.to == "f8e8m0" and (not op.saturate or op.round_mode != "even"):
        raise UnsupportedError("op.unsayable", f"Convert rounds f8e8m0 to even within its range, which is not {op}")
    if "string" in (x.dtype.name, op.to.name):
        raise UnsupportedError("op.unsayable", f"Convert does not go from {x.dtype} to {op.to}")
    return [lowering.spelled(node)]
