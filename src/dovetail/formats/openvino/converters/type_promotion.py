"""Import ConvertPromoteTypes and FakeConvert."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Value

# (exponent bits, mantissa bits) of each float type; the promoted type has at least the bits of both types.
_SIZES = {"f8e4m3": (4, 3), "f8e5m2": (5, 2), "f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
_PRIORITY = ("boolean", "integer", "float")


@OPENVINO.importer("ConvertPromoteTypes", 14)
def import_convert_promote_types(ctx: ImportContext) -> list[Value]:
    """Import ConvertPromoteTypes: cast both inputs to their common type, as OpenVINO specifies it."""
    xs = [ctx.input(0), ctx.input(1)]
    is_unsafe = ctx.attribute("promote_unsafe", "bool", False)
    by_rank = ctx.attribute("pytorch_scalar_promotion", "bool", False)
    beyond = ctx.attribute("u64_integer_promotion_target", "DType", dtypes.f32)
    kinds = [x.dtype for x in xs]
    common = _common(xs, by_rank, beyond)
    if not is_unsafe:
        _check_safe(kinds, common)
    return [ctx.b.Cast(x, to=common) for x in xs]


def _priority(kind: DType) -> int:
    word = "float" if kind.is_float else "integer" if kind.is_integer else kind.name
    if word not in _PRIORITY:
        raise UnsupportedError("type.disagree", f"the types to promote must be booleans, integers or floats, got {kind}")
    return _PRIORITY.index(word)


def _common(xs: list[Value], by_rank: bool, beyond: DType) -> DType:
    first, second = (x.dtype for x in xs)
    if first is second:
        return first
    ranks = [_priority(first), _priority(second)]
    if ranks[0] != ranks[1]:
        return first if ranks[0] > ranks[1] else second
    if by_rank:
        are_scalar = [len(x.dims) == 0 for x in xs]
        if are_scalar[0] != are_scalar[1]:
            return second if are_scalar[0] else first
    return _widest_float(first, second) if first.is_float else _widest_integer(first, second, beyond)


def _widest_float(first: DType, second: DType) -> DType:
    if {first.name, second.name} == {"f8e4m3", "f8e5m2"}:
        return dtypes.dtype("f16")
    if not {first.name, second.name} <= set(_SIZES):
        raise UnsupportedError(
            "type.disagree", f"the types to promote must have a common type in OpenVINO's specification, got {first} and {second}"
        )
    minimum = [max(pair) for pair in zip(_SIZES[first.name], _SIZES[second.name], strict=True)]
    fitting = [name for name, parts in _SIZES.items() if parts[0] >= minimum[0] and parts[1] >= minimum[1]]
    return dtypes.dtype(fitting[0])


def _widest_integer(first: DType, second: DType, beyond: DType) -> DType:
    if first.kind == second.kind:
        return first if first.bits >= second.bits else second
    signed, unsigned = (first, second) if first.kind == "int" else (second, first)
    if unsigned.bits == 64:
        return beyond
    return dtypes.dtype(f"i{max(signed.bits, 2 * unsigned.bits)}")


def _check_safe(kinds: list[DType], common: DType) -> None:
    """Raise RuleError [attribute.conflict] if the promoted type differs from both types, or cannot represent all values."""
    is_lossy = common.is_float and any(kind.is_integer and common.bits < 2 * kind.bits for kind in kinds)
    is_grown = common not in kinds
    is_cut = common.is_integer and any(kind.is_integer and kind.bits > common.bits for kind in kinds)
    if is_lossy or is_grown or is_cut:
        raise RuleError("attribute.conflict", f"promoting {kinds[0]} and {kinds[1]} to {common} needs promote_unsafe")


@OPENVINO.importer("FakeConvert", 13)
def import_fake_convert(ctx: ImportContext) -> Value:
    """Import FakeConvert: scale and shift, convert to f16, then to an 8-bit float, and invert scale and shift.

    Numbers beyond the range of f8e4m3 become its greatest number. For f8e5m2 this holds for numbers within the range of f16;
    infinity stays.
    """
    b, x, scale, shift = ctx.b, ctx.input(0), ctx.input(1), ctx.optional_input(2)
    name = ctx.attribute("destination_type", "str", "f8e4m3")
    if name not in ("f8e4m3", "f8e5m2"):
        raise UnsupportedError("attribute.value", f"FakeConvert: destination_type must be f8e4m3 or f8e5m2, got {name!r}")
    y = b.Multiply(x, scale)
    y = y if shift is None else b.Subtract(y, shift)
    y = y if x.dtype == "f16" else b.Cast(y, to=dtypes.dtype("f16"))
    kind = dtypes.dtype(name)
    if name == "f8e5m2":
        largest: Any = np.array(57344, np.float16)
        y = b.Where(b.IsInf(y), y, b.Clip(y, b.constant(-largest), b.constant(largest)))
    rounded = b.Cast(b.Cast(y, to=kind, saturate=name == "f8e4m3"), to=x.dtype)
    rounded = rounded if shift is None else b.Add(rounded, shift)
    result: Value = b.Divide(rounded, scale)
    return result
