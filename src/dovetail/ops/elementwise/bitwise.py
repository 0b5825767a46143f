"""Bitwise operators and BitShift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import Type, View, dtype_in
from dovetail.ops.elementwise.broadcast import AUTO_BROADCAST, BroadcastingOp, Elementwise, apply_in_wide_type, scalar_like

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _Bitwise(BroadcastingOp, sig="x: T, y: T -> z: T"):
    """Bitwise operators combine two integer or boolean tensors."""

    def types(self, x: View, y: View) -> list[Type]:
        result = super().types(x, y)
        _refuse_no_bits(x)
        return result


def _refuse_no_bits(x: View) -> None:
    if not x.dtype.is_integer and x.dtype.kind != "bool":
        raise RuleError("type.class", f"input 'x' must be an integer or boolean type, got {x.dtype}")


class BitwiseAnd(_Bitwise, onnx="BitwiseAnd-18(x, y | broadcast=true/false)", openvino=f"BitwiseAnd-13(x, y; {AUTO_BROADCAST})"):
    """Compute the bitwise AND. Sources: ONNX BitwiseAnd 18 (integers), OpenVINO BitwiseAnd-13 (integers and booleans)."""

    commutes = True

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return apply_in_wide_type(xp, xp.bitwise_and, x, y)


class BitwiseOr(_Bitwise, onnx="BitwiseOr-18(x, y | broadcast=true/false)", openvino=f"BitwiseOr-13(x, y; {AUTO_BROADCAST})"):
    """Compute the bitwise OR. Sources: ONNX BitwiseOr 18 (integers), OpenVINO BitwiseOr-13 (integers and booleans)."""

    commutes = True

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return apply_in_wide_type(xp, xp.bitwise_or, x, y)


class BitwiseXor(_Bitwise, onnx="BitwiseXor-18(x, y | broadcast=true/false)", openvino=f"BitwiseXor-13(x, y; {AUTO_BROADCAST})"):
    """Compute the bitwise XOR. Sources: ONNX BitwiseXor 18 (integers), OpenVINO BitwiseXor-13 (integers and booleans)."""

    commutes = True

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        self.check_equal_shapes(x, y)
        return apply_in_wide_type(xp, xp.bitwise_xor, x, y)


class BitwiseNot(Elementwise, sig="x: T -> y: T", onnx="BitwiseNot-18(x)", openvino="BitwiseNot-13(x)"):
    """Invert each bit. Sources: ONNX BitwiseNot 18 (integers), OpenVINO BitwiseNot-13 (integers and booleans)."""

    def types(self, x: View) -> list[Type]:
        result = super().types(x)
        _refuse_no_bits(x)
        return result

    def shape(self, x: View) -> Any:
        return x.shape

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return apply_in_wide_type(xp, xp.bitwise_invert, x)


class BitShift(
    BroadcastingOp,
    sig="x: I, y: I -> z: I",
    onnx=(
        "BitShift-11(x, y; direction~lower | beyond=open, broadcast=true/false)",
        "BitShift-28(x, y; direction~lower | beyond=fill/open, broadcast=true/false)",
    ),
    openvino=(
        f"BitwiseLeftShift-15(x, y; {AUTO_BROADCAST} | direction=left, beyond=open)",
        f"BitwiseRightShift-15(x, y; {AUTO_BROADCAST} | direction=right, beyond=open)",
    ),
):
    """Shift ``x`` ``left`` or ``right`` by ``y`` bits; a right shift of a signed type is arithmetic.

    With ``beyond="fill"``, a shift by a negative amount, or by at least the number of bits, gives 0, or -1 for a right shift of
    a negative ``x``. With ``beyond="open"``, the result of such a shift is undefined, as the source format does not define it.
    Sources: ONNX BitShift 11 (unsigned) and 28, OpenVINO BitwiseLeftShift-15 and BitwiseRightShift-15.
    """

    direction: str = "left"
    beyond: str = "fill"

    def validate(self) -> None:
        if self.direction not in ("left", "right"):
            raise RuleError("attribute.value", f"direction must be left or right, got {self.direction!r}")

    def evaluate(self, xp: Namespace, x: Array, amount: Array) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("bits of dimensions")
        self.check_equal_shapes(x, amount)
        kind = arrays.element(x)
        if kind.bits >= 8:
            return self._shift(xp, kind.bits, x, amount)
        # A type of fewer than 8 bits has no shift in the array library, and may not represent its number of bits.
        wide = dtypes.dtype(f"{kind.kind}8")
        shifted = self._shift(xp, kind.bits, *(arrays.cast(xp, array, wide) for array in (x, amount)))
        return arrays.cast(xp, shifted, kind)

    def _shift(self, xp: Namespace, bits: int, x: Array, amount: Array) -> Any:
        amount = xp.where(amount < 0, xp.full_like(amount, bits), amount)
        return arrays.bit_shift(xp, x, amount, self.direction, bits)

    def canonical(self, x: View, amount: View) -> Op:
        plain: Any = super().canonical(x, amount)
        dtype = dtype_in(x.type)
        is_in_range = dtype is not None and amount.value is not None and symbolic.fits(amount.value, 0, dtype.bits - 1) is True
        return plain.with_(beyond="open") if is_in_range else plain  # type: ignore[no-any-return]

    def decompose(self, b: Builder, x: Value, amount: Value) -> Any:
        """Shift by the amounts in range and fill the other elements with 0 or -1; signed types are shifted as unsigned types."""
        zero = scalar_like(b, 0, x)
        if self.beyond == "open":
            return self._shift_bits(b, x, amount, zero) if x.dtype.kind == "int" else None
        over = b.Or(b.Less(amount, zero), b.GreaterEqual(amount, scalar_like(b, x.dtype.bits, x)))
        shifted = b.BitShift(x, b.Where(over, zero, amount), direction=self.direction, beyond="open", broadcast=self.broadcast)
        signed = self.direction == "right" and x.dtype.kind == "int"
        return b.Where(over, b.Where(b.Less(x, zero), scalar_like(b, -1, x), zero) if signed else zero, shifted)

    def _shift_bits(self, b: Builder, x: Value, amount: Value, zero: Value) -> Any:
        """Shift signed integers as unsigned integers; a right shift of a negative ``x`` is computed as ~(~x >> y)."""
        kind = dtypes.dtype(f"u{x.dtype.bits}")
        minus_one, is_right = scalar_like(b, -1, x), self.direction == "right"
        is_negative = b.Less(x, zero)
        bits = b.Where(is_negative, b.Subtract(minus_one, x), x) if is_right else x
        shifted = b.Cast(b.add(self, b.Cast(bits, to=kind), b.Cast(amount, to=kind))[0], to=x.dtype)
        return b.Where(is_negative, b.Subtract(minus_one, shifted), shifted) if is_right else shifted
