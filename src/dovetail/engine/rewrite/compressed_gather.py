"""Rewrite of Gather on tables of few bits: the codes are gathered before they are dequantized.

A table is computed from constants by Cast, Subtract, Multiply, Reshape and DequantizeLinear, or is that of GatherBlockQuantized.
It is then not unpacked as a whole: only the slices that are read become floats.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import Shape, Size, axis_in
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.elementwise.binary import Multiply, Subtract
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.quantization.gather_block_quantized import GatherBlockQuantized
from dovetail.ops.quantization.matmul_nbits import unpack_value
from dovetail.ops.quantization.quantize_linear import DequantizeLinear
from dovetail.ops.quantization.scales import apply_by_blocks, is_single
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.reshape import Reshape

MIN_ELEMENTS = 1 << 14
"""The number of elements from which a table stays in few bits; smaller tables are faster as floats."""


class _Slices(NamedTuple):
    """_Slices gathers slices of values that have the same axis: ``indices`` of ``rank`` axes, and the ``bounds`` of Gather."""

    b: Builder
    indices: Value
    rank: int
    bounds: str

    def of(self, value: Value, axis: int) -> Value:
        """Return the slices of ``value``; where its size is 1, each slice is the one."""
        if value.shape is not None and value.shape[axis] == 1:
            shape = [*value.shape[:axis], *[1] * self.rank, *value.shape[axis + 1 :]]
            one: Value = self.b.Reshape(value, shape, special_zero=False)
            return one
        result: Value = self.b.Gather(value, self.indices, axis=axis, bounds=self.bounds)
        return result

    def mask(self, y: Value, count: Size, after: int) -> Value:
        """Return slices ``y`` with zeros for indices outside [-count, count - 1] if ``bounds`` says so.

        ``after`` is the number of axes behind those of the indices.
        """
        if self.bounds != "zero" or not isinstance(count, int):
            return y
        inside = self.b.Gather(np.ones(count, np.bool_), self.indices, axis=0, bounds="zero")
        inside = self.b.Unsqueeze(inside, [self.rank + axis for axis in range(after)]) if after else inside
        result: Value = self.b.Where(inside, y, self.b.constant(0, y.dtype))
        return result


def gather_codes(b: Builder, node: Node) -> Value | None:
    """Rewrite a Gather of a table that is computed from constants of few bits."""
    op = node.op
    if isinstance(op, GatherBlockQuantized):
        return _of_blocks(b, op, node.inputs)
    if not isinstance(op, Gather) or op.batch_dims:
        return None
    table, indices = node.input(0), node.input(1)
    if table.constant is not None or not _is_large(table.shape) or indices.shape is None or indices.constant is not None:
        return None
    if not _has_few_bits(table, table.dtype.bits):
        return None
    assert table.shape is not None
    axis = axis_in(op.axis, len(table.shape))
    slices = _Slices(b, indices, len(indices.shape), op.bounds)
    y = _gather(slices, table, axis)
    return None if y is None else slices.mask(y, table.dims[axis], len(table.dims) - 1 - axis)


def _is_large(shape: Shape | None) -> bool:
    if shape is None or not _is_static(shape):
        return False
    count = prod(shape)
    return isinstance(count, int) and count >= MIN_ELEMENTS


def _is_static(shape: Shape) -> bool:
    return all(isinstance(size, int) for size in shape)


def _has_few_bits(value: Value, bits: int) -> bool:
    """Return whether ``value`` is computed from constants alone, and its largest constant has elements of fewer than ``bits``."""
    constants: list[Value] = []

    def is_constant(x: Value) -> bool:
        if x.constant is not None:
            constants.append(x)
            return True
        is_known = x.node is not None and isinstance(x.node.op, Cast | Subtract | Multiply | Reshape | DequantizeLinear)
        return is_known and x.node is not None and all(y is None or is_constant(y) for y in x.node.inputs)

    return is_constant(value) and max(constants, key=lambda x: prod(x.dims)).dtype.bits < bits


def _gather(slices: _Slices, value: Value, axis: int) -> Value | None:
    """Return the slices of ``value`` along ``axis``; None where an operator in front of it does not let them pass."""
    if value.constant is not None:
        return slices.of(value, axis)
    b, node, rank = slices.b, value.node, len(value.dims)
    assert node is not None
    op = node.op
    if isinstance(op, Cast):
        x = _gather(slices, node.input(0), axis)
        return None if x is None else b.add(op, x)[0]
    if isinstance(op, Subtract | Multiply):
        operands: list[Value] = []
        for x in (node.input(0), node.input(1)):
            own = axis - (rank - len(x.dims))
            part = x if own < 0 else slices.of(x, own) if x.dims[own] == 1 else _gather(slices, x, own)
            if part is None or not op.broadcast:
                return None
            operands.append(part)
        return b.add(op, *operands)[0]
    if isinstance(op, Reshape):
        source = node.input(0)
        sizes = value.dims[axis + 1 :]
        if source.dims[: axis + 1] != value.dims[: axis + 1] or not _is_static(sizes) or 0 in sizes:
            return None
        x = _gather(slices, source, axis)
        zeros = [0] * (axis + slices.rank)
        return None if x is None else b.Reshape(x, [*zeros, *sizes], special_zero=True)
    assert isinstance(op, DequantizeLinear)
    return _dequantize(slices, op, axis, *node.inputs)


def _dequantize(
    slices: _Slices, op: DequantizeLinear, axis: int, x: Value | None, scale: Value | None, zero_point: Value | None = None
) -> Value | None:
    assert x is not None and scale is not None
    b, rank = slices.b, len(x.dims)
    codes = _gather(slices, x, axis)
    if codes is None or scale.shape is None:
        return None
    parameters = [scale, *([] if zero_point is None else [zero_point])]
    if not op.block_size and is_single(scale.shape):
        return b.add(op.with_(axis=None), codes, *parameters)[0]
    along = axis_in(op.axis or 0, rank)
    shifted = along + (slices.rank - 1 if along > axis else 0)
    if along != axis:
        if op.block_size:
            parameters = [slices.of(item, axis) for item in parameters]
        return b.add(op.with_(axis=shifted), codes, *parameters)[0]
    if op.block_size:
        return None
    wide = wide_type(scale.dtype, op.output_dtype or scale.dtype)
    after = [slices.rank + index for index in range(rank - 1 - axis)]
    rows = [b.Unsqueeze(slices.of(item, 0), after) if after else slices.of(item, 0) for item in parameters]
    difference = as_type(b, codes, dtypes.i32 if x.dtype.is_integer and x.dtype.bits > 16 else wide)
    if zero_point is not None:
        difference = b.Subtract(difference, as_type(b, rows[1], difference.dtype))
    y = b.Multiply(as_type(b, difference, wide), as_type(b, rows[0], wide))
    return as_type(b, y, op.output_dtype or scale.dtype)


def _of_blocks(b: Builder, op: GatherBlockQuantized, inputs: list[Value | None]) -> Value | None:
    """Return GatherBlockQuantized on gathered codes; packed codes are unpacked behind the Gather."""
    data, indices, scales, zero_points = (*inputs, None)[:4]
    assert data is not None and indices is not None and scales is not None
    shapes = [x.shape for x in (data, scales, zero_points) if x is not None]
    if indices.shape is None or not all(shape is not None and _is_static(shape) for shape in shapes):
        return None
    rank, kind = len(data.dims), data.dtype
    axis, along = axis_in(op.gather_axis, rank), axis_in(op.quantize_axis, rank)
    if axis == along or not data.dims[axis]:
        return None
    slices = _Slices(b, indices, len(indices.shape), "zero")
    rows, factors = slices.of(data, axis), slices.of(scales, axis)
    points = None if zero_points is None else slices.of(zero_points, axis)
    if kind == "u8" and op.bits < 8:
        rows = _unpack(b, rows, op.bits)
        if points is not None:
            points = _unpack(b, points, op.bits)
            if points.dims[-1] != factors.dims[-1]:
                points = b.Slice(points, [0], [factors.dims[-1]], [len(points.dims) - 1], [1])
    wide, shifted = wide_type(scales.dtype), along + (slices.rank - 1 if along > axis else 0)
    middle = as_type(b, b.constant(np.uint8(2 ** (op.bits - 1))), wide) if points is None and kind == "u8" else None
    parameters = [as_type(b, factors, wide), None if points is None else as_type(b, points, wide)]

    def compute(x: Value, factor: Value, point: Value | None) -> Value:
        point = middle if point is None else point
        y: Value = b.Multiply(x if point is None else b.Subtract(x, point), factor)
        return y

    size = data.dims[along]
    block = op.block_size or (max(size, 1) if isinstance(size, int) else 1)
    y = as_type(b, apply_by_blocks(b, as_type(b, rows, wide), parameters, shifted, block, compute), scales.dtype)
    return slices.mask(y, data.dims[axis], rank - 1 - axis)


def _unpack(b: Builder, packed: Value, bits: int) -> Value:
    """Unpack the bytes of the last axis to i32."""
    last = packed.dims[-1]
    assert isinstance(last, int)
    # Sizes of 0 copy those of the packed value.
    return unpack_value(b, packed, bits, [*[0] * (len(packed.dims) - 1), last * (8 // bits)])
