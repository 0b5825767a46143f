"""CompressedMatMul, the engine's product with weights of few bits, and the rewrite of products to it.

Weights stay as the file stores them: MatMulNBits, DequantizeLinear, or a cast with a subtraction and a multiplication, as
OpenVINO's models have them. The kernel decodes them in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from dovetail.engine.rewrite.scaled_codes import ScaledCodes, weights_of
from dovetail.ir import arrays, dtypes
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op, Sizes
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.types import Shape, View
from dovetail.ops.casts import as_type, round_to
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.quantization.matmul_nbits import MatMulNBits, unpack_codes
from dovetail.ops.quantization.quantize_linear import DequantizeLinear
from dovetail.ops.tensor.transpose_expand_tile import Transpose
from dovetail.storage.mapped_files import release_pages

_F32 = np.finfo(np.float32)
_FLOATS = ("f16", "bf16", "f32")
MAX_ROWS_IN_16_BITS = 8
"""The number of rows up to which weights of 16 bits stay in 16 bits: with more rows, reading them is not what bounds the time."""


class CompressedMatMul(Op, sig="x: F, codes: R, scales: f32, points?: f32 -> y: F", is_registered=False):
    """Multiply ``x`` [..., depth] by weights [depth, columns] of few bits. Only the engine uses this operator.

    Weight (k, j) is ``(number - points[j, b]) * scales[j, b]`` for the block b = k // ``block``. Its code is at [k, j] of
    ``codes``, or at [j, k] with ``transposed``. Codes are u8, i8 for the format ``i8``, or u16 for f16 and bf16. The formats
    ``table2`` and ``table4`` have codes of 2 and 4 bits, whose numbers are in ``table``; with ``is_packed`` they are packed
    along the last axis, the first code in the lowest bits. Other formats are those of the numbers; u8 codes of ``i8`` are numbers
    plus 128. The sums are f32. ``rows`` "int8": each block of a row of ``x`` is rounded to ``q * s``, where s is its greatest
    magnitude / 127 and q are 8-bit integers (accuracy level 4 of MatMulNBits); rows with infinities or NaN are not rounded.
    """

    format: str
    depth: int
    columns: int
    block: int
    table: tuple[float, ...] = ()
    is_packed: bool = False
    transposed: bool = False
    rows: str = "f32"

    def shape(self, x: View, codes: View, scales: View, points: View | None = None) -> Shape | None:
        return None if x.shape is None else (*x.shape[:-1], self.columns)

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        return prod(output) * self.depth

    def evaluate(self, xp: Namespace, x: Array, codes: Array, scales: Array, points: Array = None) -> Array:
        numbers = self.numbers(np.asarray(codes))
        blocks = np.arange(self.depth) // self.block
        if points is not None:
            numbers = numbers - np.asarray(points)[:, blocks].T
        rows = arrays.cast(xp, x, dtypes.f32)
        if self.rows == "int8":
            rows = xp.asarray(round_rows(np.asarray(rows), self.block))
        y = xp.matmul(rows, xp.asarray(numbers * np.asarray(scales)[:, blocks].T))
        return round_to(xp, y, arrays.element(x))

    def numbers(self, codes: Array) -> Array:
        """Return the numbers of all codes, [depth, columns] in f32."""
        if self.is_packed:
            bits = {4: 2, 16: 4}.get(len(self.table), 8)
            lines, count = (self.columns, self.depth) if self.transposed else (self.depth, self.columns)
            codes = unpack_codes(np, codes, bits).reshape(lines, -1)[:, :count]
        if self.table:
            found: Array = np.asarray(self.table, np.float32)[codes & np.uint8(len(self.table) - 1)]
        elif self.format == "i8":
            found = codes.astype(np.float32) - np.float32(128 if codes.dtype == np.uint8 else 0)
        else:
            found = codes.view(dtypes.dtype(self.format).numpy).astype(np.float32)
        return found.T if self.transposed else found


def round_rows(x: Array, block: int) -> Array:
    """Return ``x`` with each finite row rounded to 8 bits, in blocks of its last axis."""
    rounded = np.array(x, np.float32)
    for start in range(0, x.shape[-1], block):
        part = rounded[..., start : start + block]
        limits = np.abs(part).max(-1, keepdims=True)
        with np.errstate(all="ignore"):
            inverse = np.where(limits >= 1e-36, np.float32(127) / limits, np.float32(0)).astype(np.float32)
            part[...] = np.rint(part * inverse) * (limits / np.float32(127))
    is_finite = np.isfinite(x).all(-1, keepdims=True)
    result: Array = np.where(is_finite, rounded, x)
    return result


def is_packed(constant: Value) -> bool:
    """Return whether only CompressedMatMul reads a constant: the core packs it, unaligned or not."""
    return bool(constant.uses) and all(isinstance(user.op, CompressedMatMul) for user, _ in constant.uses)


def compress_products(precision: str | None, skips_quantized: bool) -> Callable[[Builder, Node], Value | None]:
    """Return the rule that rewrites products with constant weights of few bits to CompressedMatMul.

    ``precision``: "int8" rounds the rows, "f32" does not; None rounds the rows of products of accuracy level 4.
    With ``skips_quantized`` it keeps products whose other operand is dequantized too: an integer product may compute them.
    """

    def rule(b: Builder, node: Node) -> Value | None:
        op, x = node.op, node.inputs[0] if node.inputs else None
        if not isinstance(op, MatMulNBits | MatMul) or x is None or x.constant is not None or not _is_product_input(x):
            return None
        if isinstance(op, MatMulNBits):
            rounds = precision == "int8" or (precision is None and op.accuracy_level == 4)
            return _of_matmul_nbits(b, op, x, node.inputs, rounds)
        is_quantized = x.node is not None and isinstance(x.node.op, DequantizeLinear)
        if op.transpose_a or (is_quantized and skips_quantized):
            return None
        w, is_transposed = node.input(1), op.transpose_b
        if w.node is not None and isinstance(w.node.op, Transpose) and w.shape is not None and len(w.shape) == 2:
            order = w.node.inputs[1] if len(w.node.inputs) > 1 else None
            if order is None or (order.constant is not None and order.constant.tolist() in ([1, 0], [])):
                w, is_transposed = w.node.input(0), not is_transposed
        weights = weights_of(w)
        return None if weights is None else _of_weights(b, x, weights, is_transposed, precision == "int8")

    return rule


def _is_product_input(x: Value) -> bool:
    return x.shape is not None and len(x.shape) >= 2 and x.dtype is not None and x.dtype.name in _FLOATS


def _of_matmul_nbits(b: Builder, op: MatMulNBits, x: Value, xs: list[Value | None], rounds: bool) -> Value | None:
    _, weights, scales, zero_points, g_idx, bias = (*xs, None, None, None)[:6]
    assert weights is not None and scales is not None
    if (g_idx is not None and not _is_natural(op, g_idx)) or any(
        p is not None and p.constant is None for p in (weights, scales, zero_points)
    ):
        return None
    center, points = 2.0 ** (op.bits - 1), None
    if zero_points is not None:
        given = np.asarray(zero_points.constant)
        if zero_points.dtype == "u8":
            given = unpack_codes(np, given, op.bits).reshape(op.n, -1)[:, : op.blocks]
        elif op.bits < 8:
            center = 0.0
        points = given.reshape(op.n, op.blocks).astype(np.float32) - np.float32(center)
    table = tuple(float(code - center) for code in range(2**op.bits)) if op.bits < 8 else ()
    form = CompressedMatMul(
        f"table{op.bits}" if table else "i8",
        op.k,
        op.n,
        op.block_size,
        table,
        is_packed=True,
        transposed=True,
        rows="int8" if rounds else "f32",
    )
    codes = np.asarray(weights.constant).reshape(op.n, -1)
    factors = np.asarray(scales.constant).astype(np.float32, copy=False).reshape(op.n, op.blocks)
    y = _product(b, form, x, codes, factors, points)
    return y if y is None or bias is None else b.Add(y, as_type(b, bias, x.dtype))


def _is_natural(op: MatMulNBits, g_idx: Value) -> bool:
    """Return whether ``g_idx`` is constant and assigns each position to the block that holds its code."""
    return g_idx.constant is not None and np.array_equal(np.asarray(g_idx.constant)[: op.k], np.arange(op.k) // op.block_size)


def _of_weights(b: Builder, x: Value, weights: ScaledCodes, is_transposed: bool, rounds: bool) -> Value | None:
    """Return a product with ``weights``, [columns, depth] if ``is_transposed``; None where the kernel has no form of them."""
    storage = weights.storage
    if storage.ndim != 2 or storage.size == 0 or (weights.dtype.bits == 16 and not _has_few_rows(x)):
        return None
    depth_axis = 1 if is_transposed else 0
    depth, columns = storage.shape[depth_axis], storage.shape[1 - depth_axis]
    block = weights.block if weights.block_axis == depth_axis and weights.block else depth
    blocks = -(-depth // block)
    scales = _by_column(weights.scales, is_transposed, columns, blocks)
    points = None if weights.points is None else _by_column(weights.points, is_transposed, columns, blocks)
    if scales is None or (points is None and weights.points is not None):
        return None
    name = weights.dtype.name
    packed = None
    if isinstance(storage, PackedElements) and storage.shape[1] * weights.dtype.bits % 8 == 0:
        packed = storage.packed.reshape(storage.shape[0], -1)
    codes = weights.codes if packed is None else packed
    table: tuple[float, ...] = ()
    if name == "u8":
        points = (np.zeros_like(scales) if points is None else points) - np.float32(128)
    elif name in ("u4", "i4", "nf4", "f4e2m1", "u2", "i2"):
        table = _table_of(weights.dtype)
    elif name not in ("i8", "f8e4m3", "f8e5m2", "f16", "bf16") or (name == "f8e4m3" and bool(np.isnan(codes).any())):
        return None
    form = f"table{weights.dtype.bits}" if table else "i8" if name == "u8" else name
    if name != "i8":
        codes = codes.view(np.uint16 if weights.dtype.bits == 16 else np.uint8)
    has_integers = form == "i8" or name in ("u4", "i4", "u2", "i2")
    rows = "int8" if rounds and has_integers else "f32"
    op = CompressedMatMul(form, depth, columns, block, table, packed is not None, is_transposed, rows)
    return _product(b, op, x, codes, scales, points)


def _by_column(array: Array, is_transposed: bool, columns: int, blocks: int) -> Array | None:
    """Return scales or points as [columns, blocks]; None where they vary within a block."""
    lines = array if is_transposed else array.T
    if lines.shape[0] not in (1, columns) or lines.shape[1] not in (1, blocks):
        return None
    rows: Array = np.ascontiguousarray(np.broadcast_to(lines, (columns, blocks)), np.float32)
    if rows.base is None:
        release_pages(array)
    # A constant shares a read-only array, which may be in a mapped file.
    rows.flags.writeable = False
    return rows


def _table_of(dtype: DType) -> tuple[float, ...]:
    """Return the number of each code of ``dtype``, by the lowest bits of its byte."""
    codes = np.arange(2**dtype.bits, dtype=np.uint8)
    if dtype.name in ("i4", "i2"):
        half = 2 ** (dtype.bits - 1)
        return tuple(float((int(code) + half) % (2 * half) - half) for code in codes)
    elements = codes if dtype.numpy == np.uint8 else codes.view(dtype.numpy)
    return tuple(float(number) for number in arrays.cast(np, elements, dtypes.f32, dtype))


def _has_few_rows(x: Value) -> bool:
    rows = prod(x.dims[:-1])
    return not isinstance(rows, int) or rows <= MAX_ROWS_IN_16_BITS


def _product(b: Builder, op: CompressedMatMul, x: Value, codes: Array, scales: Array, points: Array | None) -> Value | None:
    """Return the product; None where the order of operations would matter beyond rounding."""
    if not _are_regular(scales, points):
        return None
    if points is not None and op.table and float(points.flat[0]).is_integer() and bool(np.all(points == points.flat[0])):
        table = tuple(number - float(points.flat[0]) for number in op.table)
        op, points = (
            CompressedMatMul(op.format, op.depth, op.columns, op.block, table, op.is_packed, op.transposed, op.rows),
            None,
        )
    inputs = [x, b.constant(codes), b.constant(scales)]
    if points is not None and points.any():
        inputs.append(b.constant(points))
    y: Value = b.add(op, *inputs)[0]
    return y


def _are_regular(scales: Array, points: Array | None) -> bool:
    """Return whether all scales are 0 or normal and far from overflow, and all points are finite."""
    sizes = np.abs(scales)
    is_regular = bool(np.all((sizes == 0) | (sizes >= _F32.tiny) & (sizes <= 1e30)))
    return is_regular and (points is None or bool(np.all(np.abs(points) <= 1e6)))
