"""GatherBlockQuantized: rows of a table whose elements are quantized in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Shape, Size, Tensor, Type, Unknown, View, agree, axis_in
from dovetail.ops.casts import as_type, round_to, wide_type
from dovetail.ops.quantization.matmul_nbits import unpack_codes, unpack_value

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_INTEGERS = ("u8", "u4", "i4")
_FLOATS = ("f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1")


class GatherBlockQuantized(
    Op,
    sig="data: R, indices: I, scales: F, zero_points?: R -> output: F",
    onnx=(
        "com.microsoft:GatherBlockQuantized-1(data, indices, scales, zero_points?; "
        "gather_axis=0, quantize_axis=1, block_size=128, bits=4)"
    ),
):
    """Gather slices of a quantized table: Gather of ``(data - zero_points) * scales`` at ``indices`` along ``gather_axis``.

    ``data`` is u4, i4, f8, f4, or u8. A byte of u8 packs 8 / ``bits`` codes of the last axis, the first in its lowest bits; the
    table is then that much longer. ``scales`` and ``zero_points`` have the sizes of the table, but along ``quantize_axis`` one
    element for each block of ``block_size``. Zero points of u8 are packed like the codes. The default zero point is 0, for u8
    2^(bits - 1). Tables of f8 and f4 have none, their ``block_size`` may be 0 (the whole axis), and a size of their scales 1.

    The output shape is table.shape[:gather_axis] + indices.shape + table.shape[gather_axis + 1:]. A negative index counts from
    the end, an index outside the axis gives zeros. Products are computed in f32 and rounded once to the type of ``scales``.
    Errors: [quantize.type] for other types of ``data``; [attribute.range] for other blocks or bits; [attribute.conflict] for zero
    points of floats, and for u8 that is not gathered along axis 0 or has blocks along another axis than the last; [shape.rank],
    [shape.disagree].
    Source: com.microsoft GatherBlockQuantized of onnxruntime 1.32.

    >>> import dovetail, numpy as np
    >>> with dovetail.Builder() as b:
    ...     y = b.GatherBlockQuantized(np.full((2, 8), 0x98, np.uint8), b.input("i", "i64", (1,)), np.ones((2, 1), np.float32),
    ...         block_size=16)
    ...     y = b.output("y", y)
    >>> dovetail.run(b.model, {"i": np.array([1])})["y"][0, :4]
    array([0., 1., 0., 1.], dtype=float32)
    """

    decomposes_in_f32 = True

    gather_axis: int = 0
    quantize_axis: int = 1
    block_size: int = 128
    bits: int = 4

    def validate(self) -> None:
        if self.bits not in (2, 4, 8):
            raise UnsupportedError("attribute.range", f"bits must be 2, 4 or 8, got {self.bits}")
        if self.block_size and (self.block_size < 16 or self.block_size & (self.block_size - 1)):
            raise RuleError("attribute.range", f"block_size must be 0 or a power of two of at least 16, got {self.block_size}")

    def types(self, data: View, indices: View, scales: View, zero_points: View | None = None) -> list[Type]:
        bound = check_inputs(self, (data, indices, scales, zero_points))
        kind = bound.get("R")
        if kind is not None:
            self._check_kind(kind, zero_points is not None)
        if data.shape is None or kind is None:
            return [Tensor(bound.get("F"), None)]
        table = self._table(kind, data.shape)
        gather_axis, quantize_axis = axis_in(self.gather_axis, len(table)), axis_in(self.quantize_axis, len(table))
        if kind == "u8" and not 0 == gather_axis < quantize_axis == len(table) - 1:
            message = "a table of u8 must have a rank of at least 2, gather_axis 0 and the last axis as quantize_axis"
            raise RuleError("attribute.conflict", f"{message}, got the rank {len(table)}, {gather_axis} and {quantize_axis}")
        if scales.shape is not None:
            self._check_scales(kind, table, scales.shape, quantize_axis)
            if zero_points is not None and zero_points.shape is not None:
                packed = 8 // self.bits if kind == "u8" else 1
                wanted = (*scales.shape[:-1], symbolic.ceil_divide(scales.shape[-1], packed))
                if len(zero_points.shape) != len(wanted):
                    raise RuleError("shape.rank", f"zero_points must have the rank {len(wanted)}, got {zero_points.type}")
                for axis, (size, expected) in enumerate(zip(zero_points.shape, wanted, strict=True)):
                    agree(size, expected, ("zero_points", axis), "the size of scales")
        if indices.shape is None:
            return [Tensor(bound.get("F"), None)]
        return [Tensor(bound.get("F"), (*table[:gather_axis], *indices.shape, *table[gather_axis + 1 :]))]

    def _check_kind(self, kind: DType, has_points: bool) -> None:
        if kind.name not in (*_INTEGERS, *_FLOATS):
            raise RuleError("quantize.type", f"data must be one of {', '.join((*_INTEGERS, *_FLOATS))}, got {kind}")
        if has_points and kind.is_float:
            raise RuleError("attribute.conflict", f"data of {kind} must not have zero points")
        if not self.block_size and not kind.is_float:
            raise RuleError("attribute.range", f"block_size must be at least 16 for {kind}, got 0")

    def _table(self, kind: DType, shape: Shape) -> Shape:
        """Return the shape of the unpacked table. Raises RuleError [shape.rank]."""
        if not shape:
            raise RuleError("shape.rank", "data must have a rank of at least 1, got a scalar")
        return (*shape[:-1], shape[-1] * (8 // self.bits)) if kind == "u8" else shape

    def _check_scales(self, kind: DType, table: Shape, shape: Shape, quantize_axis: int) -> None:
        if len(shape) != len(table):
            raise RuleError("shape.rank", f"ranks of scales ({len(shape)}) and data ({len(table)}) must be equal")
        for axis, (count, size) in enumerate(zip(shape, table, strict=True)):
            if axis == quantize_axis:
                agree(count, self._blocks(size), ("scales", axis), "the number of blocks")
            elif not kind.is_float or symbolic.equal(count, 1) is not True:
                agree(count, size, ("scales", axis), ("data", axis))

    def _blocks(self, size: Size) -> Size:
        return symbolic.ceil_divide(size, self.block_size) if self.block_size else 1

    def canonical(self, data: View, indices: View, scales: View, zero_points: View | None = None) -> Op:
        changes: dict[str, Any] = {} if data.dtype == "u8" else {"bits": 4}
        if data.shape is not None:
            changes |= {name: axis_in(getattr(self, name), len(data.shape)) for name in ("gather_axis", "quantize_axis")}
        return self.with_(**changes)

    def value(self, *xs: View) -> Any:
        """Raise Unknown: a table is never a shape value."""
        raise Unknown

    def evaluate(self, xp: Namespace, data: Array, indices: Array, scales: Array, zero_points: Array | None = None) -> Any:
        kind, rank = arrays.element(data), data.ndim
        wide = wide_type(arrays.element(scales))
        gather_axis, quantize_axis = axis_in(self.gather_axis, rank), axis_in(self.quantize_axis, rank)
        count = data.shape[gather_axis]
        block = self.block_size or max(data.shape[quantize_axis], 1)
        is_inside = (indices >= -count) & (indices < count)
        slices = xp.where(is_inside, xp.where(indices < 0, indices + count, indices), xp.zeros_like(indices))
        shape = (*data.shape[:gather_axis], *indices.shape, *data.shape[gather_axis + 1 :])
        if not count:
            last = shape[-1] * (8 // self.bits if kind == "u8" else 1)
            return round_to(xp, xp.zeros((*shape[:-1], last), dtype=arrays.dtype_in(xp, wide)), arrays.element(scales))
        is_along = gather_axis == quantize_axis

        def rows(parameters: Array) -> Any:
            """Return the scales or zero points of the gathered slices, as floats."""
            single = parameters.shape[gather_axis] == 1
            index = xp.zeros_like(slices) if single else slices // block if is_along else slices
            return arrays.cast(xp, arrays.take(xp, parameters, index, gather_axis), wide)

        def repeat_parameters(parameters: Array, size: int) -> Any:
            """Return parameters with one element for each element of a block."""
            if is_along:
                return parameters
            axis = quantize_axis + (indices.ndim - 1 if quantize_axis > gather_axis else 0)
            wide = arrays.repeat(xp, parameters, block, axis)
            return wide[tuple(slice(0, size) if index == axis else slice(None) for index in range(wide.ndim))]

        codes = arrays.take(xp, data, slices, gather_axis)
        points = zero_points
        if kind == "u8":
            codes = _unpack(xp, codes, self.bits)
            points = None if points is None else _unpack(xp, points, self.bits)[..., : scales.shape[-1]]
        size = codes.shape[quantize_axis + (indices.ndim - 1 if quantize_axis > gather_axis else 0)] if not is_along else 0
        y = arrays.cast(xp, codes, wide)
        if points is not None:
            y = y - repeat_parameters(rows(points), size)
        elif kind == "u8":
            y = y - xp.asarray(2.0 ** (self.bits - 1), dtype=arrays.dtype_in(xp, wide))
        y = y * repeat_parameters(rows(scales), size)
        inside = xp.reshape(is_inside, (*indices.shape, *(1,) * (rank - 1 - gather_axis)))
        return round_to(xp, xp.where(inside, y, xp.zeros_like(y)), arrays.element(scales))

    def decompose(self, b: Builder, data: Value, indices: Value, scales: Value, zero_points: Value | None = None) -> Any:
        """Unpack and dequantize the table, and apply Gather."""
        if data.shape is None or scales.shape is None:
            raise Unknown
        rank, kind = len(data.shape), data.dtype
        quantize_axis = axis_in(self.quantize_axis, rank)
        table = [size for size in self._table(kind, data.shape) if isinstance(size, int)]
        count = [size for size in scales.shape if isinstance(size, int)]
        if len(table) != rank or len(count) != rank:
            raise Unknown
        if kind == "u8":
            if self.bits < 8:
                data = unpack_value(b, data, self.bits, table)
            zero_points = self._points_value(b, zero_points, scales, data.dtype)
            if zero_points.dtype is not data.dtype:
                data, zero_points = as_type(b, data, dtypes.i32), as_type(b, zero_points, dtypes.i32)
        wanted = [size if axis != quantize_axis else count[axis] for axis, size in enumerate(table)]
        if wanted != count:
            scales = b.Expand(scales, wanted)
        block = self.block_size or table[quantize_axis]
        w = b.DequantizeLinear(data, scales, zero_points, axis=quantize_axis, block_size=block)
        return b.Gather(w, indices, axis=axis_in(self.gather_axis, rank), bounds="zero")

    def _points_value(self, b: Builder, zero_points: Value | None, scales: Value, kind: DType) -> Value:
        """Return zero points of the shape of ``scales``: of the type ``kind``, or unpacked to i32."""
        shape = [int(size) for size in scales.dims if isinstance(size, int)]
        if zero_points is None:
            middle = 2 ** (self.bits - 1)
            if scales.constant is not None:
                return b.constant(np.full(shape, middle).astype(kind.numpy), kind)
            points: Value = b.Expand(b.constant(middle, kind), shape)
            return points
        if self.bits == 8:
            return zero_points
        padded = -(-shape[-1] * self.bits // 8) * (8 // self.bits)
        points = unpack_value(b, zero_points, self.bits, [*shape[:-1], padded])
        return points if padded == shape[-1] else b.Slice(points, [0], [shape[-1]], [len(shape) - 1], [1])


def _unpack(xp: Namespace, packed: Array, bits: int) -> Any:
    """Unpack the bytes of the last axis."""
    if bits == 8:
        return packed
    return xp.reshape(unpack_codes(xp, packed, bits), (*packed.shape[:-1], packed.shape[-1] * (8 // bits)))
