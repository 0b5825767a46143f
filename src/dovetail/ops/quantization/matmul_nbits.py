"""MatMulNBits: matrix products with packed weights of 2, 4 or 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, Unknown, View, agree, agree_shapes, total
from dovetail.ops.casts import as_type, round_to

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_ATTRIBUTES = "K:k, N:n, bits=4, block_size, accuracy_level=0, weight_prepacked~{0:false}:prepacked=0"


class MatMulNBits(
    Op,
    sig="x: F, weights: u8, scales: F, zero_points?: R, g_idx?: i32, bias?: F -> y: F",
    onnx=f"com.microsoft:MatMulNBits-1(x, weights, scales, zero_points?, g_idx?, bias?; {_ATTRIBUTES})",
):
    """Multiply ``x`` by quantized weights: ``x @ w + bias``, with ``(code - zero_point) * scale`` as the elements of w [k, n].

    ``weights`` [n, blocks, block_size * bits / 8] packs codes of ``bits`` bits; the first code of a byte is in its lowest bits.
    ``scales`` [n, blocks] has one number for each column of w and block of codes. ``zero_points`` has one number for each scale:
    floats, or integers that are packed like the codes with each column padded to whole bytes. The default zero point is 2^(bits -
    1). ``g_idx`` (deprecated) holds the block of each of the k positions, in any order; entries for the padding of the last block
    may follow and have no meaning. An entry outside [0, blocks - 1] is an error (``index.range``). Floats of fewer than 32 bits
    are computed in f32. ``accuracy_level`` permits a runtime to round ``x`` first: at 4 the native engine rounds each block of a
    row to 8 bits (``precision`` of :func:`dovetail.compile`), the interpreter never does.
    Source: com.microsoft MatMulNBits.
    """

    decomposes_in_f32 = True
    fixed_ports = (2, 3)

    k: int
    n: int
    bits: int = 4
    block_size: int = 32
    accuracy_level: int = 0
    prepacked: bool = False

    def validate(self) -> None:
        if self.bits not in (2, 4, 8):
            raise UnsupportedError("attribute.range", f"bits must be 2, 4 or 8, got {self.bits}")
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            raise RuleError("attribute.range", f"block_size must be a power of two of at least 16, got {self.block_size}")
        if self.k < 1 or self.n < 1:
            raise RuleError("attribute.range", f"k and n must be at least 1, got {self.k} and {self.n}")
        if self.prepacked:
            raise UnsupportedError(
                "op.unsupported", "weight_prepacked must be 0: prepacked weights fit one execution provider only"
            )

    @property
    def blocks(self) -> int:
        return -(-self.k // self.block_size)

    def types(
        self,
        x: View,
        weights: View,
        scales: View,
        zero_points: View | None = None,
        g_idx: View | None = None,
        bias: View | None = None,
    ) -> list[Type]:
        bound = check_inputs(self, (x, weights, scales, zero_points, g_idx, bias))
        self._check_blocks(g_idx)
        kind = bound.get("R") if zero_points is not None else None
        if kind is not None and kind != "u8" and not kind.is_float:
            raise RuleError("quantize.type", f"zero_points must be u8 or floats, got {kind}")
        self._check_shape("B", weights, (self.n, self.blocks, self.block_size * self.bits // 8))
        self._check_shape("scales", scales, (self.n, self.blocks))
        if kind is not None:
            self._check_shape(
                "zero_points", zero_points, (self.n, -(-self.blocks * self.bits // 8) if kind == "u8" else self.blocks)
            )
        self._check_shape("bias", bias, (self.n,))
        if x.shape is None:
            return [Tensor(bound.get("F"), None)]
        if not x.shape:
            raise RuleError("shape.rank", "x must have a rank of at least 1, got a scalar")
        agree(x.shape[-1], self.k, ("x", len(x.shape) - 1), "K")
        return [Tensor(bound.get("F"), (*x.shape[:-1], self.n))]

    def _check_blocks(self, g_idx: View | None) -> None:
        """Check that ``g_idx`` has an entry for each position, with or without the padding of the last block."""
        if g_idx is None or g_idx.shape is None:
            return
        padded = self.blocks * self.block_size
        if len(g_idx.shape) != 1 or (isinstance(g_idx.shape[0], int) and g_idx.shape[0] not in (self.k, padded)):
            raise RuleError("shape.disagree", f"g_idx must have the shape [{self.k}] or [{padded}], got {g_idx.type}")

    def _check_shape(self, name: str, x: View | None, shape: tuple[int, ...]) -> None:
        """Check that an input has ``shape``, or is a vector with the same number of elements."""
        if x is None or x.shape is None:
            return
        if len(x.shape) == 1:
            agree(x.shape[0], total(shape), (name, 0), "the number of elements")
        elif len(x.shape) != len(shape):
            raise RuleError("shape.disagree", f"an input must have the shape {list(shape)}, got {x.type}")
        else:
            agree_shapes(x.shape, shape, name, "the packed shape")

    def value(self, *xs: View) -> Any:
        """Raise Unknown: the result of a matrix product is never a shape value."""
        raise Unknown

    def evaluate(
        self,
        xp: Namespace,
        x: Array,
        weights: Array,
        scales: Array,
        zero_points: Array | None = None,
        g_idx: Array | None = None,
        bias: Array | None = None,
    ) -> Any:
        kind = arrays.element(x)
        wide = dtypes.f64 if kind == "f64" else dtypes.f32
        codes = arrays.cast(xp, unpack_codes(xp, weights, self.bits), wide)
        shape = (self.n, self.blocks, 1)
        factor = arrays.cast(xp, xp.reshape(scales, shape), wide)
        points = self._points(xp, zero_points, wide)
        if g_idx is None:
            codes = xp.reshape(codes, (self.n, self.blocks, self.block_size))
        else:
            codes = xp.reshape(codes, (self.n, -1, 1))[:, : self.k]
            of_position = g_idx[: self.k]
            is_outside = (of_position < 0) | (of_position >= self.blocks)
            arrays.refuse_elements(xp, is_outside, "index.range", f"entries of g_idx must be in [0, {self.blocks - 1}]")
            factor = arrays.take(xp, factor, of_position, 1, 0)
            points = points if zero_points is None else arrays.take(xp, points, of_position, 1, 0)
        w = xp.reshape((codes - points) * factor, (self.n, -1))[:, : self.k]
        y = xp.matmul(arrays.cast(xp, x, wide), xp.matrix_transpose(w))
        return round_to(xp, y if bias is None else y + arrays.cast(xp, bias, wide), kind)

    def _points(self, xp: Namespace, zero_points: Array, kind: DType) -> Any:
        if zero_points is None:
            return xp.asarray(2.0 ** (self.bits - 1), dtype=arrays.dtype_in(xp, kind))
        if arrays.element(zero_points) == "u8":
            wide = xp.reshape(unpack_codes(xp, zero_points, self.bits), (self.n, -1))[:, : self.blocks]
        else:
            wide = zero_points
        return arrays.cast(xp, xp.reshape(wide, (self.n, self.blocks, 1)), kind)

    def decompose(
        self,
        b: Builder,
        x: Value,
        weights: Value,
        scales: Value,
        zero_points: Value | None = None,
        g_idx: Value | None = None,
        bias: Value | None = None,
    ) -> Any:
        """Unpack the weights to integers of ``bits`` bits, dequantize them, and apply MatMul."""
        wide = dtypes.f64 if x.dtype == "f64" else dtypes.f32
        padded = self.blocks * self.block_size
        codes = as_type(b, unpack_value(b, weights, self.bits, [self.n, self.blocks, self.block_size]), wide)
        factor = as_type(b, b.Reshape(scales, [self.n, self.blocks, 1], special_zero=False), wide)
        points = self._points_value(b, zero_points, wide)
        if g_idx is not None:
            codes = b.Reshape(codes, [self.n, padded, 1], special_zero=False)
            if padded != self.k:
                # The padding of g_idx has no meaning.
                g_idx = b.Concat(b.Slice(g_idx, [0], [self.k], [0], [1]), np.zeros(padded - self.k, np.int32), axis=0)
            factor = b.Gather(factor, g_idx, axis=1, bounds="natural")
            points = points if zero_points is None else b.Gather(points, g_idx, axis=1, bounds="natural")
        w = b.Multiply(b.Subtract(codes, points), factor)
        w = b.Reshape(w, [self.n, padded], special_zero=False)
        if padded != self.k:
            w = b.Slice(w, [0], [self.k], [1], [1])
        y = b.MatMul(as_type(b, x, wide), w, transpose_b=True)
        return as_type(b, y if bias is None else b.Add(y, as_type(b, bias, wide)), x.dtype)

    def _points_value(self, b: Builder, zero_points: Value | None, wide: DType) -> Any:
        if zero_points is None:
            return b.constant(2.0 ** (self.bits - 1), wide)
        if zero_points.dtype == "u8":
            count = -(-self.blocks * self.bits // 8) * 8 // self.bits
            points = unpack_value(b, zero_points, self.bits, [self.n, count])
            zero_points = points if count == self.blocks else b.Slice(points, [0], [self.blocks], [1], [1])
        return as_type(b, b.Reshape(zero_points, [self.n, self.blocks, 1], special_zero=False), wide)


def unpack_codes(xp: Namespace, packed: Array, bits: int) -> Any:
    """Unpack codes of ``bits`` bits from bytes into a vector; the lowest bits of a byte hold the first code."""
    mask = xp.asarray(2**bits - 1, dtype=packed.dtype)
    parts = [
        xp.bitwise_and(xp.bitwise_right_shift(packed, xp.asarray(index, dtype=packed.dtype)), mask) for index in range(0, 8, bits)
    ]
    return xp.reshape(xp.stack(parts, axis=-1), (-1,))


def unpack_value(b: Builder, packed: Value, bits: int, shape: list[int]) -> Value:
    """Unpack codes of ``bits`` bits from bytes to ``shape``; a size of 0 is that of ``packed``.

    Constants become integers of ``bits`` bits, other values i32.
    """
    if packed.constant is not None:
        kind = dtypes.dtype(f"u{bits}")
        return b.constant(unpack_codes(np, packed.constant, bits).reshape(shape).astype(kind.numpy), kind)
    wide = b.Cast(packed, to=dtypes.i32)
    parts = [b.Unsqueeze(b.Mod(b.Divide(wide, 2**index), 2**bits, fmod=True), [-1]) for index in range(0, 8, bits)]
    codes: Value = b.Reshape(b.Concat(*parts, axis=-1), shape, special_zero=True)
    return codes
