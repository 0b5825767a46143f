"""Layers between DequantizeLinear and QuantizeLinear, for the engine: whole numbers inside, one rounding at the end.

What a model says is arithmetic of floats between two roundings. The sums of a convolution of bytes are whole numbers, which
floats would only approximate: they are made exactly, and brought to the next grid by one factor, rounded half to even.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type
from dovetail.ops.elementwise.activation import Relu
from dovetail.ops.elementwise.binary import Add
from dovetail.ops.linalg.matmul import Gemm
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.pool import MaxPool
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, QuantizeLinear
from dovetail.ops.tensor.reshape import Flatten, Reshape
from dovetail.ops.tensor.transpose_expand_tile import Transpose

BYTES = ("u8", "i8")


class Grid(NamedTuple):
    """One scale and zero point for all of a tensor."""

    scale: float
    zero: int
    dtype: DType


class QuantizedConv(Op, sig="x: R, w: i8, bias: i32, factor: f32, other?: R2 -> y: R3", is_registered=False):
    """``round(sum * factor) + zero`` of the type ``dtype``, between ``low`` and ``high``, with the sum of ``conv`` over
    ``(x - x_zero) * w + bias``. Not one of a model's operators.

    With ``other``: ``round((q - zero) * own + (other - other_zero) * beside) + last_zero`` of that q, of the type ``last_dtype``,
    between ``last_low`` and ``last_high``.
    """

    conv: Any
    x_zero: int
    zero: int
    dtype: Any
    low: int
    high: int
    own: float = 1.0
    beside: float = 0.0
    other_zero: int = 0
    last_zero: int = 0
    last_dtype: Any = None
    last_low: int = 0
    last_high: int = 0

    def types(self, x: Any, w: Any, *rest: Any) -> list[Type]:
        return [Tensor(self.last_dtype or self.dtype, self.conv.shape(x, w))]

    def evaluate(self, xp: Any, x: Any, w: Any, bias: Any, factor: Any, other: Any = None) -> Any:
        columns = (1, len(bias), *(1,) * (x.ndim - 2))
        # Of f64, in which sums of whole numbers are exact.
        sums = self.conv.evaluate(np, x.astype(np.float64) - self.x_zero, w.astype(np.float64)) + bias.reshape(columns)
        found = np.round(sums.astype(np.float32) * factor.reshape(columns))
        found = np.clip(found, self.low - self.zero, self.high - self.zero)
        if other is None:
            return (found + self.zero).astype(self.dtype.numpy)
        own = (found * np.float32(self.own)).astype(np.float64)
        both = own + (other.astype(np.float64) - self.other_zero) * float(np.float32(self.beside))
        found = np.round(both.astype(np.float32)) + self.last_zero
        return np.clip(found, self.last_low, self.last_high).astype(self.last_dtype.numpy)


def quantized(b: Builder, node: Node) -> Any:
    """What ends in QuantizeLinear, over whole numbers where it begins with DequantizeLinear; None where that is not so."""
    if not isinstance(node.op, QuantizeLinear) or node.op.precision is not None:
        return None
    found = _grid_of(node)
    if found is None:
        return None
    x, grid = found
    source = x.node
    low, high = grid.dtype.range()
    relu = False
    if source is not None and isinstance(source.op, Relu):
        relu = True
        low = max(low, grid.zero)
        (before,) = source.inputs
        assert before is not None
        source = before.node
    if source is None:
        return None
    match source.op:
        case Conv() if source.op.group == 1:
            return _conv(b, source.op, source.inputs, grid, int(low), int(high))
        case Gemm():
            return _gemm(b, source.op, source.inputs, grid, int(low), int(high))
        case Add() if source.op.broadcast:
            return _sum(b, source.inputs, grid, int(low), int(high))
        case MaxPool() | Flatten() | Reshape() | Transpose() if not relu and len(source.outputs) == 1:
            return _chosen(b, source, grid)
    return None


def _grid_of(node: Node) -> tuple[Value, Grid] | None:
    """What QuantizeLinear or DequantizeLinear reads, and its grid, where that is one for all, of bytes and known numbers."""
    x, scale, point = (*node.inputs, None)[:3]
    (y,) = node.outputs
    assert x is not None and scale is not None
    codes, numbers = (y, x) if isinstance(node.op, QuantizeLinear) else (x, y)
    step, zero = _single(scale), 0 if point is None else _single(point)
    if step is None or zero is None or not 0 < step < float("inf"):
        return None
    if codes.dtype.name not in BYTES or numbers.dtype is not dtypes.f32 or scale.dtype is not dtypes.f32:
        return None
    return x, Grid(float(step), int(zero), codes.dtype)


def _single(value: Value) -> Any:
    """The element of a constant that has one; None for anything else."""
    return value.constant.reshape(()) if value.constant is not None and value.constant.size == 1 else None


def _dequantizing(value: Value | None) -> Node | None:
    """The DequantizeLinear that a tensor comes from."""
    assert value is not None
    return value.node if value.node is not None and isinstance(value.node.op, DequantizeLinear) else None


def _bytes_of(value: Value | None) -> tuple[Value, Grid] | None:
    """The bytes that a tensor is dequantised from, and their grid."""
    node = _dequantizing(value)
    return None if node is None else _grid_of(node)


def _steps_of(value: Value | None, kind: str, axis: int, count: int) -> tuple[Any, Any] | None:
    """The whole numbers that a constant is dequantised from, around 0, and the ``count`` scales along its ``axis``."""
    node = _dequantizing(value)
    if node is None:
        return None
    codes, scale, point = (*node.inputs, None)[:3]
    assert codes is not None and scale is not None and isinstance(node.op, DequantizeLinear)
    if codes.constant is None or scale.constant is None or codes.dtype.name != kind:
        return None
    if point is not None and (point.constant is None or point.constant.any()):
        return None
    if node.op.block_size or scale.dtype is not dtypes.f32:
        return None
    scales = scale.constant.ravel()
    if scales.size != 1 and (node.op.plain_axis(codes, scale) != axis or scales.size != count):
        return None
    if not np.all((scales > 0) & np.isfinite(scales)):
        return None
    return codes.constant, np.broadcast_to(scales, (count,))


def _conv(b: Builder, op: Conv, inputs: list[Value | None], grid: Grid, low: int, high: int) -> Any:
    x, w, bias = (*inputs, None)[:3]
    found = _bytes_of(x)
    assert w is not None
    if found is None or w.shape is None or len(w.shape) != 4:
        return None
    weights = _steps_of(w, "i8", 0, int(w.dims[0]))
    return None if weights is None else _written(b, op, found, weights, bias, grid, low, high)


def _written(
    b: Builder, op: Conv, x: tuple[Value, Grid], weights: tuple[Any, Any], bias: Value | None, grid: Grid, low: int, high: int
) -> Any:
    codes, scales = weights
    steps = scales.astype(np.float64) * x[1].scale
    whole = _whole_bias(bias, steps)
    if whole is None or not fits(codes, whole):
        return None
    factor = (steps / grid.scale).astype(np.float32)
    made = QuantizedConv(op, x[1].zero, grid.zero, grid.dtype, low, high)
    return b.add(made, x[0], b.constant(codes), b.constant(whole), b.constant(factor))


def fits(codes: Any, bias: Any) -> bool:
    """Whether 32 bits hold the sums of bytes times these weights."""
    sums = 255 * np.abs(codes.astype(np.int64)).sum(axis=tuple(range(1, codes.ndim)))
    return bool(np.all(sums + np.abs(bias.astype(np.int64)) < 2**31))


def _whole_bias(bias: Value | None, steps: Any) -> Any:
    """A bias in the steps of the sums: zeros, or one that is quantised in just these steps. None for any other."""
    if bias is None:
        return np.zeros(len(steps), np.int32)
    found = _steps_of(bias, "i32", 0, len(steps))
    if found is None:
        return None
    codes, scales = found
    is_same = codes.shape == steps.shape and np.all(np.abs(scales / steps - 1) <= 2.0**-22)
    return codes if is_same else None


def _gemm(b: Builder, op: Gemm, inputs: list[Value | None], grid: Grid, low: int, high: int) -> Any:
    """A product with one row is a convolution over one pixel."""
    x, y, bias = (*inputs, None)[:3]
    found = _bytes_of(x)
    if op.alpha != 1 or (bias is not None and op.beta != 1) or op.transpose_a or found is None:
        return None
    assert y is not None
    rows = found[0].shape[0] if found[0].shape is not None else None
    axis = 0 if op.transpose_b else 1
    columns = y.shape[axis] if y.shape is not None else None
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    weights = _steps_of(y, "i8", axis, columns)
    if weights is None:
        return None
    codes, steps = weights
    codes = codes if op.transpose_b else np.ascontiguousarray(codes.T)
    image = b.Transpose(b.Reshape(found[0], [1, 1, rows, -1]), [0, 3, 1, 2])
    codes = codes.reshape(*codes.shape, 1, 1)
    made = _written(b, Conv(), (image, found[1]), (codes, steps), bias, grid, low, high)
    if made is None:
        return None
    (pixels,) = made
    return b.Reshape(b.Transpose(pixels, [0, 2, 3, 1]), [rows, -1])


def _sum(b: Builder, inputs: list[Value | None], grid: Grid, low: int, high: int) -> Any:
    """A sum of two tensors, in the convolution that one of them comes from and nothing else needs."""
    for mine, other in (inputs, reversed(inputs)):
        assert mine is not None
        own, beside = _bytes_of(mine), _bytes_of(other)
        if own is None or beside is None:
            continue
        (codes, step), (others, other_step) = own, beside
        conv = codes.node
        if conv is None or not isinstance(conv.op, QuantizedConv) or codes.shape != others.shape or not _is_only(codes, mine, b):
            continue
        # The kernel subtracts the zero point with which the convolution is quantised.
        if conv.op.last_dtype is not None or step.zero != conv.op.zero:
            continue
        changed = conv.op.with_(
            own=step.scale / grid.scale, beside=other_step.scale / grid.scale, other_zero=other_step.zero,
            last_zero=grid.zero, last_dtype=grid.dtype, last_low=low, last_high=high,
        )  # fmt: skip
        return b.add(changed, *conv.inputs, others)
    return None


def _is_only(codes: Value, value: Value, b: Builder) -> bool:
    """Whether a tensor's bytes are read for this one place alone."""
    return len(codes.uses) == 1 and len(value.uses) == 1 and not any(x is out for x in (codes, value) for out in b.graph.outputs)


def _chosen(b: Builder, source: Node, grid: Grid) -> Any:
    """What only moves numbers, or takes the greatest of some, does so with their bytes."""
    x, *others = source.inputs
    found = _bytes_of(x)
    if found is None:
        return None
    codes, own = found
    return b.add(source.op, codes, *others) if own == grid else None
