"""Cast, CastLike and BitCast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, Sizes, check_inputs
from dovetail.ir.types import Tensor, Type, View, dtype_in

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

FNUZ = ("f8e4m3fnuz", "f8e5m2fnuz")
SATURATING = ("f8e4m3", "f8e5m2", *FNUZ)
_NAMES = (
    "FLOAT:f32, DOUBLE:f64, FLOAT16:f16, INT8:i8, INT16:i16, INT32:i32, INT64:i64, UINT8:u8, UINT16:u16, UINT32:u32, UINT64:u64, "
    "BOOL:boolean"
)

_SIGNIFICANT_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_EXPONENT_BITS = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}
_INTEGERS = ("i2", "i4", "i8", "i16", "i32", "i64", "u2", "u4", "u8", "u16", "u32", "u64")


def is_exact_cast(source: DType, target: DType) -> bool:
    """Return whether every value of the type ``source`` has the same value in ``target``, as far as that is known here."""
    if source is target:
        return True
    if source.name == "boolean":
        return target.name in _INTEGERS or target.name in _SIGNIFICANT_BITS
    if source.name in _SIGNIFICANT_BITS:
        return (
            target.name in _SIGNIFICANT_BITS
            and _SIGNIFICANT_BITS[source.name] <= _SIGNIFICANT_BITS[target.name]
            and _EXPONENT_BITS[source.name] <= _EXPONENT_BITS[target.name]
        )
    if source.name not in _INTEGERS:
        return False
    if target.name in _INTEGERS:
        return _has_range(source, target)
    return source.bits - (source.kind == "int") <= _SIGNIFICANT_BITS.get(target.name, 0)


def _has_range(source: DType, target: DType) -> bool:
    """Return whether the range of one integer type is within that of another."""
    (low, high), (target_low, target_high) = source.range(), target.range()
    return target_low <= low and high <= target_high


def is_without_effect(source: DType, middle: DType, target: DType) -> bool:
    """Return whether a Cast from ``source`` to ``middle`` changes no bit of a Cast to ``target`` after it."""
    # Text shows the type: "1", "1.0" or "True".
    if not is_exact_cast(source, middle) or (target.name == "string" and source is not middle):
        return False
    # Integers wrap in a narrower type and floats saturate, so that a detour through floats matters beyond its range.
    is_detour = source.is_integer and middle.is_float and target.is_integer
    return not is_detour or (target.name in _INTEGERS and _has_range(source, target))


def rounding_difference(x: View, to: DType) -> str | None:
    """Describe how runtimes round a cast from ``x`` to ``to`` otherwise than Cast does; None where they agree."""
    source = dtype_in(x.type)
    if source is None or not source.is_float or not to.is_integer or to.bits >= 8:
        return None
    return (
        f"a cast from {source} to {to} rounds to nearest, ties to even; onnxruntime and OpenVINO round ties away from zero, and "
        "onnx.reference rounds toward zero"
    )


def _check_rounding(round_mode: str) -> None:
    if round_mode not in ("up", "down", "nearest", "even"):
        raise RuleError("attribute.value", f"round_mode must be up, down, nearest or even, got {round_mode!r}")


class Cast(
    Op,
    sig="x: T -> y: T2",
    onnx=(
        f"Cast-1(x; to~{{{_NAMES}}})",
        "Cast-6,9,13(x; to)",
        "Cast-19,21,23(x; to, saturate=1 | saturate_infinity=true/false)",
        "Cast-24,25,28(x; to, saturate=1, round_mode~{up:up,down:down,nearest:nearest}=up)",
    ),
    openvino=(
        "Convert-1(x; destination_type:to | saturate=true/false, saturate_infinity=true/false, round_mode=up/even, "
        "source=none/nf4)"
    ),
):
    """Convert the elements of ``x`` to the type ``to``.

    Floats go to integers toward zero. Out of range they go to the nearest value of the type, and NaN to 0, which the
    specifications leave open. To integers of fewer than 8 bits they are rounded to nearest, ties to even, and take the low bits
    of the i64. Integers wrap; every number other than 0 is True. To floats, numbers are rounded to nearest, ties to even, and
    beyond the range to infinity.

    To f8 with ``saturate`` they go to the greatest value instead; so does infinity unless ``saturate_infinity`` is off, when
    f8e4m3fnuz and f8e5m2fnuz take NaN. Without ``saturate`` they go to infinity or NaN. ``round_mode`` (up, down, nearest with
    ties up, even with ties to the even code) and ``saturate`` apply to f8e8m0, which takes magnitudes. ``source`` names the
    type of ``x`` where its array does not: nf4.
    Sources: ONNX Cast 1 to 28 (infinity: table of 19 to 23 against 24), OpenVINO Convert-1.
    """

    rounds_half_once = False

    to: DType
    saturate: bool = True
    saturate_infinity: bool = True
    round_mode: str = "up"
    source: DType | None = None

    def operations(self, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes]) -> int:
        return 0

    def validate(self) -> None:
        _check_rounding(self.round_mode)

    def types(self, x: View) -> list[Type]:
        check_inputs(self, (x,))
        dtype = dtype_in(x.type)
        if dtype is not None and (dtype == "nf4") != (self.source == "nf4"):
            raise RuleError(
                "attribute.conflict", f"source must be nf4 for nf4 inputs alone: got source={self.source} and {dtype}"
            )
        return [Tensor(self.to, x.shape)]

    def canonical(self, x: View) -> Op:
        """Reset attributes without effect on the target type to their defaults."""
        changes: dict[str, Any] = {}
        if self.to not in SATURATING and self.to != "f8e8m0":
            changes["saturate"] = True
        if self.to not in FNUZ or not self.saturate:
            changes["saturate_infinity"] = True
        if self.to != "f8e8m0":
            changes["round_mode"] = "up"
        return self.with_(**changes) if changes else self

    def value(self, x: View) -> Any:
        """Take a comparison that sizes leave undecided as an integer of 0 or 1 over these sizes."""
        node = getattr(x, "node", None)
        if node is None or x.value is not None:
            return super().value(x)
        indicator = getattr(node.op, "indicator", None)
        if indicator is not None and self.to.is_integer and all(is_integer(operand) for operand in node.inputs):
            return indicator(*node.inputs)
        return super().value(x)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        if xp is symbolic.xp:
            return _exact(x, self.to)
        y = arrays.cast(xp, x, self.to, self.source, self.saturate, self.round_mode)
        if self.saturate and not self.saturate_infinity and self.to in FNUZ:
            infinite = xp.isinf(arrays.widen(xp, x))
            y = xp.where(infinite, np.asarray(np.nan).astype(self.to.numpy), y)
        return y

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [b.Cast(g, to=x.dtype) if x.dtype.is_float and self.to.is_float else None]


def is_integer(x: View) -> bool:
    """Tell whether a value is a tensor of integers."""
    dtype = dtype_in(x.type)
    return dtype is not None and dtype.is_integer


def _exact(x: Array, to: DType) -> Any:
    if not to.standard or to.kind not in ("int", "uint", "bool"):
        raise symbolic.Inexact(f"dimensions as {to}")
    return symbolic.xp.astype(x, to.numpy)


class CastLike(
    Op,
    sig="x: T, target_type: T2 -> y: T2",
    onnx=(
        "CastLike-15(x, target_type)",
        "CastLike-19,21,23(x, target_type; saturate=1)",
        "CastLike-24,25(x, target_type; saturate=1, round_mode~{up:up,down:down,nearest:nearest}=up)",
    ),
    openvino="ConvertLike-1(x, target_type)",
):
    """Convert the elements of ``x`` to the element type of ``target_type``, as Cast does.

    Sources: ONNX CastLike 15 to 25, OpenVINO ConvertLike-1.
    """

    rounds_half_once = False

    saturate: bool = True
    round_mode: str = "up"

    def operations(self, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes]) -> int:
        return 0

    def validate(self) -> None:
        _check_rounding(self.round_mode)

    def cast(self, to: DType) -> Cast:
        return Cast(to, saturate=self.saturate, round_mode=self.round_mode)

    def types(self, x: View, target_type: View) -> list[Type]:
        check_inputs(self, (x, target_type))
        if dtype_in(x.type) == "nf4":
            raise RuleError("attribute.conflict", "CastLike takes no nf4 input; use Cast")
        return [Tensor(dtype_in(target_type.type), x.shape)]

    def evaluate(self, xp: Namespace, x: Array, target_type: Array) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("a cast to the element type of another input")
        return self.cast(arrays.element(target_type)).evaluate(xp, x)

    def value(self, x: View, target_type: View) -> Any:
        return self.cast(target_type.dtype).value(x)

    def decompose(self, b: Builder, x: Value, target_type: Value) -> Any:
        return b.add(self.cast(target_type.dtype), x)[0]

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, target_type: Value) -> Any:
        return [b.Cast(g, to=x.dtype) if x.dtype.is_float and y.dtype.is_float else None, None]


class BitCast(Op, sig="x: T -> y: T2", onnx="BitCast-26(x; to)"):
    """Reinterpret the bits of each element as the type ``to`` of the same width. Source: ONNX BitCast 26."""

    to: DType

    def types(self, x: View) -> list[Type]:
        check_inputs(self, (x,))
        dtype = dtype_in(x.type)
        if dtype is not None and (dtype.bits != self.to.bits or "string" in (dtype.kind, self.to.kind)):
            raise RuleError("attribute.conflict", f"types must have equal numbers of bits, got {dtype} and {self.to}")
        return [Tensor(self.to, x.shape)]

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("bits of dimensions")
        if not arrays.is_numpy(xp):
            raise UnsupportedError("array.library", "BitCast needs numpy arrays")
        x = np.asarray(x)
        if self.to.bits < 8:
            return _from_code(_code(x) & (2**self.to.bits - 1), self.to)
        if self.to == "boolean":
            return x.view(np.uint8) != 0
        return np.ascontiguousarray(x).reshape(x.shape).view(self.to.numpy)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [None]


def _code(x: Array) -> Any:
    """Return the bits of elements shorter than a byte, as u8."""
    kind = arrays.element(x)
    return (
        x.astype(np.int8).view(np.uint8)
        if kind.kind == "int"
        else x.astype(np.uint8)
        if kind.kind == "uint"
        else x.view(np.uint8)
    )


def _from_code(code: Array, to: DType) -> Any:
    if to.is_float:
        return code.astype(np.uint8).view(to.numpy)
    half = 1 << (to.bits - 1)
    return ((code.astype(np.int8) ^ half) - half).astype(to.numpy) if to.kind == "int" else code.astype(to.numpy)
