"""Lower gather and scatter operators for opsets 9 and 10 to Gather and ScatterElements with flat indices."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.limits import refuse_table
from dovetail.ops.elementwise.broadcast import scalar_like


@ONNX.fallback("Gather")
def replace_gather(b: Builder, node: Node) -> Any:
    """Lower Gather before opset 11: convert negative indices to non-negative indices."""
    op: Any = node.op
    x, indices = node.inputs
    if op.bounds != "error" or op.batch_dims or x is None or indices is None or x.shape is None:
        return None
    axis = op.axis % max(len(x.shape), 1)
    return b.add(op.with_(axis=axis, bounds="natural"), x, _make_positive(b, indices, _size(b, x, axis, indices)))


@ONNX.fallback("GatherElements")
def replace_gather_elements(b: Builder, node: Node) -> Any:
    """Lower GatherElements to Gather from the flattened tensor."""
    op: Any = node.op
    x, indices = node.inputs
    shape, table = _sizes(x), _sizes(indices)
    if x is None or indices is None or shape is None or table is None:
        return None
    numbers = _element_numbers(b, indices, shape, table, op.axis % len(shape))
    return b.Gather(b.Reshape(x, [-1]), numbers, axis=0, bounds="natural")


@ONNX.fallback("ScatterND")
def replace_scatter_nd(b: Builder, node: Node) -> Any:
    """Lower ScatterND to ScatterElements along the flattened index axes."""
    op: Any = node.op
    x, indices, updates = (node.input(index) for index in range(3))
    shape, table = _sizes(x), _sizes(indices)
    if op.reduction != "replace" or shape is None or table is None or not table[-1]:
        return None
    depth = table[-1]
    rows, columns = prod(shape[:depth]), prod(shape[depth:])
    rows_of_updates = b.Reshape(_slice_numbers(b, indices, shape[:depth]), [-1, 1], special_zero=False)
    rows_of_updates = b.Expand(rows_of_updates, [prod(table[:-1]), columns])
    flat = b.Reshape(x, [rows, columns], special_zero=False)
    new = b.Reshape(updates, [prod(table[:-1]), columns], special_zero=False)
    return b.Reshape(b.ScatterElements(flat, rows_of_updates, new, axis=0), shape, special_zero=False)


@ONNX.fallback("GatherND")
def replace_gather_nd(b: Builder, node: Node) -> Any:
    """Lower GatherND, also with batch axes, to Gather along the flattened index axes."""
    op: Any = node.op
    x, indices = node.inputs
    if x is None or indices is None or x.shape is None or indices.shape is None or not isinstance(indices.shape[-1], int):
        return None
    batch, depth = op.batch_dims, indices.shape[-1]
    slice_shape = x.shape[batch + depth :]
    front = [size for size in x.shape[: batch + depth] if isinstance(size, int)]
    batches = [size for size in indices.shape[:batch] if isinstance(size, int)]
    static = [size for size in slice_shape if isinstance(size, int)]
    if not depth or len(front) < batch + depth or len(batches) < batch or len(static) < len(slice_shape) - 1 or 0 in static:
        return None
    target = [prod(front), *(size if isinstance(size, int) else -1 for size in slice_shape)]
    numbers = _slice_numbers(b, indices, front[batch:])
    if batch:
        refuse_table(batches, 16, "the flat indices of a GatherND")
        firsts = np.arange(prod(batches)).reshape(*batches, *(1,) * (len(indices.shape) - 1 - batch)) * prod(front[batch:])
        numbers = b.Add(numbers, b.constant(firsts, indices.dtype))
    return b.Gather(b.Reshape(x, target, special_zero=False), numbers, axis=0, bounds="natural")


def _sizes(x: Value | None) -> list[int] | None:
    """Return the shape of ``x`` as a list if it is static and the rank is at least 1, else None."""
    if x is None or not x.shape or not all(isinstance(size, int) for size in x.shape):
        return None
    return [int(size) for size in x.dims]


def _size(b: Builder, x: Value, axis: int, like: Value) -> Any:
    size = x.dims[axis]
    return scalar_like(b, size, like) if isinstance(size, int) else b.Cast(b.Gather(b.Shape(x), [axis], axis=0), to=like.dtype)


def _make_positive(b: Builder, indices: Value, size: Value) -> Any:
    return b.Where(b.Less(indices, scalar_like(b, 0, indices)), b.Add(indices, size), indices)


def _strides(shape: list[int]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _slice_numbers(b: Builder, indices: Value, shape: list[int]) -> Any:
    """Return for each coordinate tuple (last axis of ``indices``) the row-major index into a tensor of sizes ``shape``."""
    sizes, strides = (b.constant(np.asarray(numbers), indices.dtype) for numbers in (shape, _strides(shape)))
    scaled = b.Multiply(_make_positive(b, indices, sizes), strides)
    return b.ReduceSum(scaled, [len(indices.dims) - 1], keepdims=False)


def _element_numbers(b: Builder, indices: Value, shape: list[int], table: list[int], axis: int) -> Any:
    """Return row-major indices into a tensor of sizes ``shape``, one for each element of ``indices``.

    The element is the coordinate along ``axis``, and its position in ``indices`` gives the other coordinates.
    """
    strides = _strides(shape)
    offsets = b.Multiply(_make_positive(b, indices, scalar_like(b, shape[axis], indices)), scalar_like(b, strides[axis], indices))
    others = [size for index, size in enumerate(table) if index != axis]
    refuse_table(others, 24, "the flat indices of a GatherElements")
    grid = np.zeros([1] * len(table), np.int64)
    for other_axis, size in enumerate(table):
        if other_axis != axis:
            grid = grid + (np.arange(size) * strides[other_axis]).reshape(
                [-1 if index == other_axis else 1 for index in range(len(table))]
            )
    return b.Add(offsets, b.constant(grid, indices.dtype))


@ONNX.fallback("CumSum", "CumProd")
def replace_cumulative(b: Builder, node: Node) -> Any:
    """Lower CumSum and CumProd to a scan by doubling: step k combines each element with the one 2**k positions before.

    The scan needs ceil(log2(length)) steps.
    """
    op: Any = node.op
    x, axis = node.input(0), node.input(1)
    axis_index = None if axis.constant is None else int(axis.constant.reshape(()))
    kind = x.dtype
    if axis_index is None or x.shape is None or not isinstance(x.shape[axis_index], int):
        return None
    if kind not in ("f16", "f32", "f64", "i32", "u32", "i64", "u64"):
        return None
    if kind == "f16":
        return b.Cast(b.add(op, b.Cast(x, to=dtypes.f32), axis)[0], to=kind)
    is_sum = type(op).__name__ == "CumSum"
    combine, start = (b.Add, 0) if is_sum else (b.Multiply, 1)
    axis_index %= len(x.shape)
    length = x.dims[axis_index]

    def shift(y: Value, count: int) -> Any:
        """Shift ``y`` by ``count`` positions, and fill the gap with the neutral element."""
        bounds = (count, length) if op.reverse else (0, length - count)
        edge = b.apply("ConstantOfShape", b.Shape(b.Slice(y, [0], [count], [axis_index])), np.full(1, start, kind.numpy))
        parts = [edge, b.Slice(y, [bounds[0]], [bounds[1]], [axis_index])]
        return b.Concat(*(reversed(parts) if op.reverse else parts), axis=axis_index)

    y, count = (shift(x, 1) if op.exclusive and length else x), 1
    while count < length:
        y, count = combine(y, shift(y, count)), 2 * count
    return y
