"""Helpers of the attention operators: heads, positions, masks, products of grouped heads, softmax with a sink."""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.types import Size, View
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def check_rank(x: View | None, rank: int, name: str) -> None:
    if x is not None and x.shape is not None and len(x.shape) != rank:
        raise RuleError("shape.rank", f"{name} must have rank {rank}, got {x.type}")


def default_scale(b: Builder, q: Value) -> Any:
    """Return ``1 / sqrt(columns of q)`` as a scalar of the type of ``q``."""
    columns = q.dims[-1]
    if isinstance(columns, int):
        return b.constant(1 / sqrt(columns) if columns else inf, q.dtype)
    size = b.Reshape(shape_value(b, q, [len(q.dims) - 1]), [])
    wide = wide_type(q.dtype)
    return as_type(b, b.Divide(b.constant(1, wide), b.Sqrt(b.Cast(size, to=wide))), q.dtype)


def bias_of(b: Builder, visible: Value, dtype: DType) -> Any:
    """Return 0 where ``visible`` is true and minus infinity elsewhere: a boolean mask as an additive bias."""
    return b.Where(visible, b.constant(0, dtype), b.constant(-inf, dtype))


def axis_size_of(b: Builder, x: Value, axis: int) -> Any:
    """Return the size of one axis as an i64 scalar."""
    size = x.dims[axis]
    if isinstance(size, int):
        return b.constant(size, dtypes.i64)
    return b.Reshape(shape_value(b, x, [axis % len(x.dims)]), [])


def positions_of(b: Builder, x: Value, axis: int) -> Any:
    """Return the positions ``0 .. size - 1`` along one axis as an i64 vector."""
    return b.Range(b.constant(0, dtypes.i64), axis_size_of(b, x, axis), b.constant(1, dtypes.i64))


def make_window_mask(b: Builder, q: Value, k: Value, offset: Value | None, left: int, right: int) -> Any:
    """Make the boolean mask [..., rows, keys] of the attention window ``-right <= i + offset - j <= left`` of row i and key j.

    A negative bound sets no limit. The leading axes are those of ``offset``. Returns None where both bounds are negative.
    """
    rows = b.Unsqueeze(positions_of(b, q, -2), [1])
    if offset is not None:
        rows = b.Add(rows, offset)
    keys = b.Unsqueeze(positions_of(b, k, -2), [0])
    if right > 0:
        last = b.Add(rows, b.constant(right, dtypes.i64))
    mask = b.LessEqual(keys, rows if right == 0 else last) if right >= 0 else None
    if left >= 0:
        after_left = b.GreaterEqual(keys, b.Subtract(rows, b.constant(left, dtypes.i64)) if left else rows)
        mask = after_left if mask is None else b.And(mask, after_left)
    return mask


def head_size_of(size: Size, heads: Size) -> Any:
    """Return ``size / heads``, the columns per head. Raises RuleError [attention.heads] where the division has a remainder."""
    if isinstance(size, int) and size % heads:
        raise RuleError("attention.heads", f"columns ({size}) must be a multiple of heads ({heads})")
    quotient = symbolic.exact_quotient(size, heads)
    return size // heads if quotient is None else quotient


def split_heads(b: Builder, x: Value, heads: Size | None) -> Any:
    """Reshape [batch, rows, heads * size] to [batch, heads, rows, size]."""
    return b.Transpose(b.Reshape(x, [0, 0, heads, -1]), [0, 2, 1, 3])


def multiply_grouped_heads(b: Builder, x: Value, y: Value, scale: Value | None = None) -> Any:
    """Multiply each query head of ``x`` by its key or value head of ``y``.

    Each head of ``y`` serves heads / kv_heads consecutive heads of ``x``. With ``scale`` the product is ``x y' * scale``, else
    ``x y``. The rows of all heads of ``x`` that share one head of ``y`` form one matrix.
    """
    heads, kv_heads, rows = x.dims[1], y.dims[1], x.dims[2]
    is_one_to_one = symbolic.equal(heads, kv_heads) is True
    if not is_one_to_one:
        group = symbolic.exact_quotient(heads, kv_heads)
        group_rows = group * rows if isinstance(group, int) and isinstance(rows, int) else -1
        parts = [shape_value(b, x, [1]), shape_value(b, x, [2])]
        x = b.Reshape(x, join_sizes(b, [0, shape_value(b, y, [1]), group_rows, 0]))
    product = b.MatMul(x, y, transpose_b=scale is not None)
    if scale is not None:
        product = b.Multiply(product, scale)
    return product if is_one_to_one else b.Reshape(product, join_sizes(b, [0, *parts, 0]))


def softmax_with_sink(b: Builder, scores: Value, sink: Value) -> Any:
    """Append the column ``sink`` to ``scores``, apply softmax over the last axis, and drop the column from the result."""
    column = b.Expand(sink, join_sizes(b, [*(shape_value(b, scores, [axis]) for axis in range(len(scores.dims) - 1)), 1]))
    return b.Slice(b.Softmax(b.Concat(scores, column, axis=-1), axis=-1), [0], [-1], [-1], [1])
