"""Indexing that came with ONNX 11, in the words of 9 and 10: elements and slices by their number from the beginning."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node, Value
from dovetail.ops.elementwise.broadcast import scalar_like


@ONNX.substitute("Gather")
def gather(b: Any, node: Node) -> Any:
    """Negative indices, which came with version 11."""
    op: Any = node.op
    x, indices = node.inputs
    if op.bounds != "error" or op.batch_dims or x is None or indices is None or x.shape is None:
        return None
    axis = op.axis % max(len(x.shape), 1)
    return b.add(op.with_(axis=axis, bounds="natural"), x, _from_the_front(b, indices, _size(b, x, axis, indices)))


@ONNX.substitute("GatherElements")
def gather_elements(b: Any, node: Node) -> Any:
    op: Any = node.op
    x, indices = node.inputs
    shape, table = _sizes(x), _sizes(indices)
    if x is None or indices is None or shape is None or table is None:
        return None
    numbers = _element_numbers(b, indices, shape, table, op.axis % len(shape))
    return b.Gather(b.Reshape(x, [-1]), numbers, axis=0, bounds="natural")


@ONNX.substitute("ScatterND")
def scatter_nd(b: Any, node: Node) -> Any:
    """Whole slices, each element of which goes where Scatter puts it."""
    op: Any = node.op
    x, indices, updates = node.inputs
    shape, table = _sizes(x), _sizes(indices)
    if op.reduction != "replace" or indices is None or shape is None or table is None or not table[-1]:
        return None
    depth = table[-1]
    rows, columns = prod(shape[:depth]), prod(shape[depth:])
    places = b.Reshape(_slice_numbers(b, indices, shape[:depth]), [-1, 1], special_zero=False)
    places = b.Expand(places, [prod(table[:-1]), columns])
    flat = b.Reshape(x, [rows, columns], special_zero=False)
    new = b.Reshape(updates, [prod(table[:-1]), columns], special_zero=False)
    return b.Reshape(b.ScatterElements(flat, places, new, axis=0), shape, special_zero=False)


@ONNX.substitute("GatherND")
def gather_nd(b: Any, node: Node) -> Any:
    """Also batches, which came with version 12."""
    op: Any = node.op
    x, indices = node.inputs
    if x is None or indices is None or x.shape is None or indices.shape is None or not isinstance(indices.shape[-1], int):
        return None
    batch, depth = op.batch_dims, indices.shape[-1]
    rest = x.shape[batch + depth :]
    front = [size for size in x.shape[: batch + depth] if isinstance(size, int)]
    batches = [size for size in indices.shape[:batch] if isinstance(size, int)]
    known = [size for size in rest if isinstance(size, int)]
    if not depth or len(front) < batch + depth or len(batches) < batch or len(known) < len(rest) - 1 or 0 in known:
        return None
    target = [prod(front), *(size if isinstance(size, int) else -1 for size in rest)]
    numbers = _slice_numbers(b, indices, front[batch:])
    if batch:
        firsts = np.arange(prod(batches)).reshape(*batches, *(1,) * (len(indices.shape) - 1 - batch)) * prod(front[batch:])
        numbers = b.Add(numbers, b.constant(firsts, indices.dtype))
    return b.Gather(b.Reshape(x, target, special_zero=False), numbers, axis=0, bounds="natural")


def _sizes(x: Value | None) -> list[int] | None:
    """The sizes where all are known, and there are some."""
    if x is None or not x.shape or not all(isinstance(size, int) for size in x.shape):
        return None
    return [int(size) for size in x.dims]


def _size(b: Any, x: Value, axis: int, like: Value) -> Any:
    size = x.dims[axis]
    return scalar_like(b, size, like) if isinstance(size, int) else b.Cast(b.Gather(b.Shape(x), [axis], axis=0), to=like.dtype)


def _from_the_front(b: Any, indices: Value, size: Any) -> Any:
    return b.Where(b.Less(indices, scalar_like(b, 0, indices)), b.Add(indices, size), indices)


def _strides(shape: list[int]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _slice_numbers(b: Any, indices: Value, shape: list[int]) -> Any:
    """The number, among the slices of all of ``shape``, that each row of coordinates speaks of."""
    sizes, strides = (b.constant(np.asarray(each), indices.dtype) for each in (shape, _strides(shape)))
    scaled = b.Multiply(_from_the_front(b, indices, sizes), strides)
    return b.ReduceSum(scaled, [len(indices.dims) - 1], keepdims=False)


def _element_numbers(b: Any, indices: Value, shape: list[int], table: list[int], axis: int) -> Any:
    """The number in ``shape`` of the elements at ``indices`` along ``axis`` and at the place itself on the others."""
    strides = _strides(shape)
    here = b.Multiply(_from_the_front(b, indices, scalar_like(b, shape[axis], indices)), scalar_like(b, strides[axis], indices))
    grid = np.zeros([1] * len(table), np.int64)
    for other, size in enumerate(table):
        if other != axis:
            grid = grid + (np.arange(size) * strides[other]).reshape([-1 if place == other else 1 for place in range(len(table))])
    return b.Add(here, b.constant(grid, indices.dtype))


@ONNX.substitute("CumSum", "CumProd")
def running(b: Any, node: Node) -> Any:
    """Each element with the one before it, then with the two before that, then the four, until all are in."""
    op: Any = node.op
    x, axis = node.inputs
    assert x is not None and axis is not None
    place = None if axis.constant is None else int(axis.constant.reshape(()))
    kind = x.dtype
    if place is None or x.shape is None or not isinstance(x.shape[place], int):
        return None
    if kind not in ("f16", "f32", "f64", "i32", "u32", "i64", "u64"):
        return None
    if kind == "f16":
        return b.Cast(b.add(op, b.Cast(x, to=dtypes.f32), axis)[0], to=kind)
    is_sum = type(op).__name__ == "CumSum"
    combine, start = (b.Add, 0) if is_sum else (b.Multiply, 1)
    place %= len(x.shape)
    length = x.dims[place]

    def moved(y: Any, count: int) -> Any:
        """``y`` moved along by ``count``, with what changes nothing in the places that become free."""
        kept = (count, length) if op.reverse else (0, length - count)
        edge = b.apply("ConstantOfShape", b.Shape(b.Slice(y, [0], [count], [place])), np.full(1, start, kind.numpy))
        parts = [edge, b.Slice(y, [kept[0]], [kept[1]], [place])]
        return b.Concat(*(reversed(parts) if op.reverse else parts), axis=place)

    y, count = (moved(x, 1) if op.exclusive and length else x), 1
    while count < length:
        y, count = combine(y, moved(y, count)), 2 * count
    return y
