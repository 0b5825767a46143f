"""Import embedding bags, which are sums or means of rows of a table."""

from __future__ import annotations

import numpy as np

from dovetail.errors import FormatError, RuleError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Operand, Value
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import indices_of_axis, join_sizes


def _reduction(ctx: ImportContext) -> str:
    reduction: str = ctx.attribute("reduction", "str", "sum")
    if reduction not in ("sum", "mean"):
        raise FormatError("attribute.value", f"{ctx.node.kind}: reduction must be sum or mean, got {reduction!r}")
    return reduction


def _rows(b: Builder, table: Value, indices: Value, weights: Value | None) -> Value:
    """Return the rows of ``table`` at ``indices``, each multiplied by its weight if there are weights."""
    rows: Value = b.Gather(table, indices, axis=0)
    if weights is None:
        return rows
    result: Value = b.Multiply(rows, _append_axes(b, weights, len(table.dims) - 1))
    return result


def _append_axes(b: Builder, x: Value, count: int) -> Value:
    """Append ``count`` axes of size 1 to ``x``."""
    result: Value = b.Unsqueeze(x, list(range(len(x.dims), len(x.dims) + count))) if count else x
    return result


@OPENVINO.importer("EmbeddingBagPackedSum", 3)
@OPENVINO.importer("EmbeddingBagPacked", 15)
def import_packed_embedding_bag(ctx: ImportContext) -> Value:
    """Import EmbeddingBagPacked and EmbeddingBagPackedSum: each row of ``indices`` is one bag."""
    b, mean = ctx.b, ctx.node.version == 15 and _reduction(ctx) == "mean"
    rows = _rows(b, ctx.input(0), ctx.input(1), ctx.optional_input(2))
    result: Value = (b.ReduceMean if mean else b.ReduceSum)(rows, [1], keepdims=False)
    return result


@OPENVINO.importer("EmbeddingBagOffsetsSum", 3)
@OPENVINO.importer("EmbeddingBagOffsets", 15)
def import_embedding_bag_offsets(ctx: ImportContext) -> Value:
    """Import EmbeddingBagOffsets and EmbeddingBagOffsetsSum: ``offsets`` are the positions of each bag's first index."""
    b, mean = ctx.b, ctx.node.version == 15 and _reduction(ctx) == "mean"
    table, indices, offsets = (ctx.input(index) for index in range(3))
    _check_vectors(ctx, indices, offsets)
    positions = indices_of_axis(b, indices, 0)
    before = b.SearchSorted(as_type(b, offsets, dtypes.i64), positions, right_mode=True)
    ids = b.Subtract(before, b.constant(1))
    rows = _rows(b, table, indices, ctx.optional_input(4))
    return _segments(b, table, rows, ids, shape_value(b, offsets, [0]), ctx.optional_input(3), mean)


@OPENVINO.importer("EmbeddingSegmentsSum", 3)
def import_embedding_segments_sum(ctx: ImportContext) -> Value:
    """Import EmbeddingSegmentsSum: ``ids`` holds for each index the number of its bag."""
    b = ctx.b
    table, indices, ids = (ctx.input(index) for index in range(3))
    _check_vectors(ctx, indices, ids)
    count = ctx.optional_input(3)
    wide = as_type(b, ids, dtypes.i64)
    if count is None:
        size = b.Add(b.Gather(wide, [-1], axis=0), b.constant([1]))
    else:
        size = b.Reshape(as_type(b, count, dtypes.i64), [1])
    rows = _rows(b, table, indices, ctx.optional_input(5))
    return _segments(b, table, rows, wide, size, ctx.optional_input(4), False)


def _check_vectors(ctx: ImportContext, *xs: Value) -> None:
    for x in xs:
        if len(x.dims) != 1:
            raise RuleError("shape.rank", f"{ctx.node.kind}: indices must have rank 1, got {x.type}")


def _segments(b: Builder, table: Value, rows: Value, ids: Value, count: Operand, default: Value | None, mean: bool) -> Value:
    """Return the sum, or with ``mean`` the mean, of the rows of each bag.

    The result of an empty bag is row ``default`` of the table, or 0 if ``default`` is negative or absent.
    """
    inner = shape_value(b, table, range(1, len(table.dims)))
    zero = b.constant(np.zeros((), table.dtype.numpy), table.dtype)
    rows_of_bags = b.Unsqueeze(ids, [1])
    total = b.ScatterND(b.Expand(zero, join_sizes(b, [count, inner])), rows_of_bags, rows, reduction="add")
    if not mean and default is None:
        result: Value = total
        return result
    one = b.constant(np.ones((), table.dtype.numpy), table.dtype)
    bag_sizes = b.ScatterND(b.Expand(zero, count), rows_of_bags, b.Expand(one, shape_value(b, ids)), reduction="add")
    bag_sizes = _append_axes(b, bag_sizes, len(table.dims) - 1)
    if mean:
        total = b.Divide(total, b.Maximum(bag_sizes, one))
    if default is not None:
        default_index = b.Reshape(as_type(b, default, dtypes.i64), [])
        row = b.Gather(table, b.Maximum(default_index, b.constant(0)), axis=0)
        row = b.Where(b.Less(default_index, b.constant(0)), zero, row)
        total = b.Where(b.Equal(bag_sizes, zero), row, total)
    result = total
    return result
