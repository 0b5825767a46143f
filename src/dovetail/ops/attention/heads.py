"""Heads: rows of queries, keys and values as matrices of their own, their places, their products, their shares of a whole."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from dovetail import dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.builder import shape_value
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import join_sizes


def default_scale(b: Any, q: Any) -> Any:
    """1 / sqrt(columns of q), as a scalar of its type."""
    columns = q.dims[-1]
    if isinstance(columns, int):
        return b.constant(1 / sqrt(columns) if columns else inf, q.dtype)
    size = b.Reshape(shape_value(b, q, [len(q.dims) - 1]), [])
    wide = wide_type(q.dtype)
    return as_type(b, b.Divide(b.constant(1, wide), b.Sqrt(b.Cast(size, to=wide))), q.dtype)


def bias_of(b: Any, takes_part: Any, kind: DType) -> Any:
    """0 where a key takes part, otherwise minus infinity."""
    return b.Where(takes_part, b.constant(0, kind), b.constant(-inf, kind))


def count_of(b: Any, x: Any, axis: int) -> Any:
    """The length of an axis as a scalar."""
    size = x.dims[axis]
    if isinstance(size, int):
        return b.constant(size, dtypes.i64)
    return b.Reshape(shape_value(b, x, [axis % len(x.dims)]), [])


def places(b: Any, x: Any, axis: int) -> Any:
    return b.Range(b.constant(0, dtypes.i64), count_of(b, x, axis), b.constant(1, dtypes.i64))


def is_past(b: Any, q: Any, k: Any, offset: Any, left: int, right: int) -> Any:
    """Whether row i sees key j: ``-right <= i + offset - j <= left``; a negative bound is none. [rows, keys] and before it the
    axes of ``offset``."""
    rows = b.Unsqueeze(places(b, q, -2), [1])
    if offset is not None:
        rows = b.Add(rows, offset)
    keys = b.Unsqueeze(places(b, k, -2), [0])
    if right > 0:
        last = b.Add(rows, b.constant(right, dtypes.i64))
    found = b.LessEqual(keys, rows if right == 0 else last) if right >= 0 else None
    if left >= 0:
        near = b.GreaterEqual(keys, b.Subtract(rows, b.constant(left, dtypes.i64)) if left else rows)
        found = near if found is None else b.And(found, near)
    return found


def share(size: Any, heads: Any) -> Any:
    if isinstance(size, int) and size % heads:
        raise RuleError("attention.heads", f"{size} columns are no multiple of {heads} heads")
    found = symbolic.exact_quotient(size, heads)
    return size // heads if found is None else found


def heads_first(b: Any, x: Any, heads: Any) -> Any:
    """[batch, rows, heads * size] as [batch, heads, rows, size]."""
    return b.Transpose(b.Reshape(x, [0, 0, heads, -1]), [0, 2, 1, 3])


def grouped(b: Any, x: Any, y: Any, scale: Any = None) -> Any:
    """The products of each head of ``x`` with the head of ``y`` that serves it, with ``scale`` those with its rows, scaled.

    The rows of all heads of ``x`` that share one of ``y`` are one matrix.
    """
    heads, kv_heads, rows = x.dims[1], y.dims[1], x.dims[2]
    one_each = symbolic.equal(heads, kv_heads) is True
    if not one_each:
        group = symbolic.exact_quotient(heads, kv_heads)
        many = group * rows if isinstance(group, int) and isinstance(rows, int) else -1
        parts = [length_of(b, x, 1), length_of(b, x, 2)]
        x = b.Reshape(x, join_sizes(b, [0, length_of(b, y, 1), many, 0]))
    product = b.MatMul(x, y, transpose_b=scale is not None)
    if scale is not None:
        product = b.Multiply(product, scale)
    return product if one_each else b.Reshape(product, join_sizes(b, [0, *parts, 0]))


def length_of(b: Any, x: Any, axis: int) -> Any:
    """The length of an axis as a part of a target."""
    size = x.dims[axis]
    return size if isinstance(size, int) else shape_value(b, x, [axis])


def with_sink(b: Any, scores: Any, sink: Any) -> Any:
    """The softmax over the last axis and one more place, whose score is ``sink`` and whose share goes to nothing."""
    column = b.Expand(sink, join_sizes(b, [*(length_of(b, scores, axis) for axis in range(len(scores.dims) - 1)), 1]))
    return b.Slice(b.Softmax(b.Concat(scores, column, axis=-1), axis=-1), [0], [-1], [-1], [1])
