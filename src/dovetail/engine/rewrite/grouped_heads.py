"""Products of grouped heads without a copy of keys and values for each head.

Exporters repeat the heads of keys and values, ``Reshape(Expand(Unsqueeze(k, [2])))``, and multiply each head of queries by its
copy. The rows of all query heads that read the same key head form one matrix, and its product reads the cache as it is. A scalar
factor of a cache becomes a factor of the other operand, which has the rows of one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import Size
from dovetail.ops.elementwise.binary import Multiply
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.shape_values import join_sizes
from dovetail.ops.tensor.concat_split import Concat
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.reshape import Reshape, Unsqueeze
from dovetail.ops.tensor.transpose_expand_tile import Expand, Tile, Transpose

RANK = 4
"""The rank of queries, keys and values: batch, heads, length, columns."""


class _Operand(NamedTuple):
    """_Operand is a cache before its heads are repeated ``times`` times, transposed, and multiplied by ``scale``."""

    cache: Value
    times: int
    is_transposed: bool
    scale: np.float32 | None


def multiply_by_cache(b: Builder, node: Node) -> Value | None:
    """Rewrite a product of queries, or of their weights, with repeated or scaled heads of a cache; None for any other product."""
    op, x, y = node.op, node.input(0), node.input(1)
    assert isinstance(op, MatMul)
    if op.transpose_a or any(each.shape is None or len(each.shape) != RANK for each in (x, y)) or x.dtype.name != "f32":
        return None
    cache, times, is_transposed, scale = _operand_of(y)
    heads = cache.dims[1]
    if (times == 1 and scale is None) or (times > 1 and (not isinstance(heads, int) or x.dims[1] != heads * times)):
        return None
    if scale is not None:
        x = b.Multiply(x, b.constant(scale))
    y = b.Transpose(cache, [0, 1, 3, 2]) if is_transposed else cache
    if times == 1:
        return b.MatMul(x, y, transpose_b=op.transpose_b)
    rows = shape_value(b, x, [2])
    # -1 is not possible where another size is 0.
    grouped_rows = [times * rows[0]] if isinstance(rows, list) else b.Multiply(rows, np.array([times]))
    grouped = b.Reshape(x, join_sizes(b, [0, heads, grouped_rows, 0]))
    product = b.MatMul(grouped, y, transpose_b=op.transpose_b)
    result: Value = b.Reshape(product, join_sizes(b, [0, x.dims[1], rows, 0]))
    return result


def _operand_of(y: Value) -> _Operand:
    value, is_transposed, scales = y, False, []
    while (node := value.node) is not None:
        op = node.op
        if isinstance(op, Transpose) and _constant_of(node, 1) == [0, 1, 3, 2]:
            is_transposed = not is_transposed
            value = node.input(0)
        elif isinstance(op, Multiply) and (factor := _scalar_factor_of(node)) is not None:
            value, scale = factor
            scales.append(scale)
        else:
            break
    repeated = _repeat_of(value)
    cache, times = (value, 1) if repeated is None else repeated
    if not isinstance(cache.node.op if cache.node is not None else None, Concat) and times == 1:
        return _Operand(y, 1, False, None)
    return _Operand(cache, times, is_transposed, np.float32(prod(scales)) if scales else None)


def _scalar_factor_of(node: Node) -> tuple[Value, np.float32] | None:
    """Return the operand of rank RANK and the scalar of a product with one; else None."""
    for x, scale in (node.inputs, node.inputs[::-1]):
        if x is not None and scale is not None and scale.constant is not None and scale.constant.size == 1:
            is_finite = scale.constant.dtype == np.float32 and bool(np.isfinite(scale.constant).all())
            if is_finite and x.shape is not None and len(x.shape) == RANK:
                return x, np.float32(scale.constant.reshape(-1)[0])
    return None


def _repeat_of(y: Value) -> tuple[Value, int] | None:
    """Return the value whose heads (axis 1) ``y`` repeats, each several times in succession, and the number of times."""
    node = y.node
    if node is None or y.shape is None:
        return None
    if isinstance(node.op, Gather):
        return _repeat_of_gather(node, node.op)
    if not isinstance(node.op, Reshape) or (parts := node.input(0)).shape is None or len(parts.shape) != RANK + 1:
        return None
    batch, heads, times, *rest = parts.shape
    if (
        not isinstance(times, int)
        or times < 2
        or not isinstance(heads, int)
        or not _are_equal(y.shape, (batch, heads * times, *rest))
    ):
        return None
    cache = _part_of(parts, times)
    if cache is None or cache.shape is None or not _are_equal(cache.shape, (batch, heads, *rest)):
        return None
    return cache, times


def _part_of(parts: Value, times: int) -> Value | None:
    """Return the value of rank RANK that an Expand, a Tile or a Concat repeats along a new axis 2; else None."""
    node = parts.node
    if node is None:
        return None
    if isinstance(node.op, Concat):
        is_same = len(node.inputs) == times and node.op.axis % (RANK + 1) == 2 and all(x is node.inputs[0] for x in node.inputs)
        if not is_same:
            return None
    elif not isinstance(node.op, Expand | Tile):
        return None
    part = node.input(0)
    if part.node is None or not isinstance(part.node.op, Unsqueeze | Reshape):
        return None
    cache = part.node.input(0)
    if part.shape is None or cache.shape is None or len(part.shape) != RANK + 1 or len(cache.shape) != RANK:
        return None
    return cache if _are_equal(part.shape, (*cache.shape[:2], 1, *cache.shape[2:])) else None


def _repeat_of_gather(node: Node, op: Gather) -> tuple[Value, int] | None:
    """Return the data and the number of times of a Gather whose constant indices repeat each head in order; else None."""
    data, indices = node.input(0), node.input(1).constant
    if data.shape is None or len(data.shape) != RANK or indices is None or indices.ndim != 1 or op.axis % RANK != 1:
        return None
    heads = data.shape[1]
    if not isinstance(heads, int) or heads == 0 or indices.size % heads or indices.size == heads:
        return None
    times = indices.size // heads
    return (data, times) if np.array_equal(indices, np.repeat(np.arange(heads), times)) else None


def _constant_of(node: Node, index: int) -> list[int] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or value.constant is None else value.constant.reshape(-1).tolist()


def _are_equal(one: Sequence[Size | None], other: Sequence[Size | None]) -> bool:
    return len(one) == len(other) and all(
        a is not None and b is not None and symbolic.equal(a, b) is True for a, b in zip(one, other, strict=True)
    )
