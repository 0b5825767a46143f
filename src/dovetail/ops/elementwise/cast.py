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
    """Return whether a cast from ``source`` to ``target`` keeps every value; False for types that this function does not know."""
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
    """Return whether the range of the integer type ``source`` is within the range of the integer type ``target``."""
    (low, high), (target_low, target_high) = source.range(), target.range()
    return target_low <= low and high <= target_high


def is_without_effect(source: DType, middle: DType, target: DType) -> bool:
    """Return whether a Cast from ``source`` to ``middle`` changes no bit of the result of a following Cast to ``target``."""
    # A cast to string depends on the source type: "1", "1.0" or "True".
    if not is_exact_cast(source, middle) or (target.name == "string" and source is not middle):
        return False
    # Beyond the range of the target, integers wrap and floats saturate: a float type between them then changes the result.
    is_detour = source.is_integer and middle.is_float and target.is_integer
    return not is_detour or (target.name in _INTEGERS and _has_range(source, target))


def rounding_difference(x: View, to: DType) -> str | None:
    """Describe how runtimes round a cast of ``x`` to the type ``to``; return None where they round as Cast does."""
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

    - From floats to integers, numbers are rounded toward zero. A number out of range becomes the nearest value of the type, and
      NaN becomes 0; the specifications define neither case.
    - From floats to integers of fewer than 8 bits, numbers are rounded to nearest, ties to even, to an i64, whose low bits are
      the result.
    - From integers to integers, numbers wrap.
    - To boolean, every number other than 0 is True.
    - To floats, numbers are rounded to nearest, ties to even; beyond the range they become infinite.
    - To f8 with ``saturate``, numbers beyond the range become the greatest finite value. So does infinity; without
      ``saturate_infinity``, infinity becomes NaN in f8e4m3fnuz and f8e5m2fnuz.
    - To f8 without ``saturate``, numbers beyond the range become infinity or NaN.
    - To f8e8m0, magnitudes are converted by ``saturate`` and ``round_mode``: up, down, nearest (ties up) or even (ties to the
      even code).

    ``source`` is nf4 for an ``x`` of type nf4, whose array does not identify this type.
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
                "attribute.conflict", f"source must be nf4 for nf4 inputs only, got source={self.source} and input {dtype}"
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
        """Return the shape value; a comparison whose result depends on sizes gives a symbolic integer that is 0 or 1."""
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
            raise RuleError("attribute.conflict", "x of CastLike must not be nf4; use Cast for nf4")
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
