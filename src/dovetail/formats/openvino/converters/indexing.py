"""Converters for gather and scatter operators that no op mapping can express."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import axis_in
from dovetail.ops.shape_values import indices_of_axis


@OPENVINO.importer("GatherND", 5)
def import_gather_nd(ctx: ImportContext) -> Any:
    """Import GatherND-5, which flattens several batch axes into one."""
    batch = ctx.attribute("batch_dims", "int", 0)
    if batch < 2:
        return None
    rows = ctx.b.apply("GatherND", ctx.input(0), ctx.input(1), batch_dims=batch)
    if rows.shape is None:
        raise UnsupportedError("type.unknown", "the inputs of GatherND-5 with several batch axes must have known ranks")
    if all(isinstance(size, int) for size in rows.shape[:batch]):
        return ctx.b.Reshape(rows, [int(symbolic.product(rows.shape[:batch])), *_rest(rows, batch)], special_zero=False)
    raise UnsupportedError("type.unknown", "GatherND-5 with several batch axes needs static batch sizes")


def _rest(rows: Value, batch: int) -> list[int]:
    assert rows.shape is not None
    if not all(isinstance(size, int) for size in rows.shape[batch:]):
        raise UnsupportedError("type.unknown", "GatherND-5 with several batch axes needs static sizes")
    return [int(size) for size in rows.shape[batch:]]


@OPENVINO.legalize("GatherElements")
def legalize_gather_elements(b: Builder, node: Node) -> Any:
    """Legalize GatherElements: reduce the data to the sizes of the indices along all axes but ``axis``, as OpenVINO requires.

    The data is reduced by Gather, because OpenVINO optimizes a Slice away.
    """
    op: Any = node.op
    x, indices = node.input(0), node.input(1)
    if x.shape is None or indices.shape is None:
        return None
    axis = axis_in(op.axis, len(x.shape))
    larger = [
        other_axis
        for other_axis, (size, count) in enumerate(zip(x.shape, indices.shape, strict=True))
        if other_axis != axis and symbolic.equal(size, count) is not True
    ]
    if not larger:
        return None
    for other_axis in larger:
        x = b.Gather(x, indices_of_axis(b, indices, other_axis), axis=other_axis)
    return b.GatherElements(x, indices, axis=axis)


@OPENVINO.legalize("ScatterUpdate")
def legalize_scatter_update(b: Builder, node: Node) -> Any:
    """Legalize ScatterUpdate: reshape a scalar index to a vector of size 1, because OpenVINO's CPU plugin refuses scalars."""
    op: Any = node.op
    x, indices, updates = (node.input(index) for index in range(3))
    if indices.shape != () or x.shape is None:
        return None
    axis = axis_in(op.axis, len(x.shape))
    return b.ScatterUpdate(x, b.Unsqueeze(indices, [0]), b.Unsqueeze(updates, [axis]), axis=axis)


@OPENVINO.importer("ScatterNDUpdate", 15)
def import_scatter_nd_update(ctx: ImportContext) -> Any:
    """Import ScatterNDUpdate-15 with the reduction "sub", which becomes the addition of negated updates."""
    if ctx.node.attributes.get("reduction") != "sub":
        return None
    ctx.attribute("reduction", "str")
    x, indices, updates = (ctx.input(index) for index in range(3))
    if not updates.dtype.is_number:
        raise UnsupportedError("op.unsupported", f"ScatterNDUpdate: the reduction 'sub' does not support {updates.dtype}")
    zero = ctx.b.constant(np.zeros((), dtype=updates.dtype.numpy), updates.dtype)
    return ctx.b.apply("ScatterND", x, indices, ctx.b.Subtract(zero, updates), reduction="add")


@OPENVINO.legalize("OneHot")
def legalize_one_hot(b: Builder, node: Node) -> Any:
    """Legalize OneHot: cast indices and depth to integers, and reshape depth and values to scalars."""
    indices, depth, on, off = (node.input(index) for index in range(4))
    integers = indices if indices.dtype.is_integer else b.Cast(indices, to=dtypes.i64)
    count = depth if depth.dtype.is_integer else b.Cast(depth, to=dtypes.i64)
    scalars = [x if x.shape == () else b.Reshape(x, []) for x in (count, on, off)]
    inputs = (integers, *scalars)
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return None
    return b.add(node.op, *inputs)[0]


@OPENVINO.importer("SparseFillEmptyRows", 16)
def import_sparse_fill_empty_rows(ctx: ImportContext) -> list[Value]:
    """Import SparseFillEmptyRows: add an element in column 0 of each empty row, and sort elements by row and column."""
    b = ctx.b
    values, shape, positions, default = (ctx.input_of_rank(index, rank) for index, rank in enumerate((1, 1, 2, 0)))
    kind = positions.dtype
    wide = [x if x.dtype is dtypes.i64 else b.Cast(x, to=dtypes.i64) for x in (shape, positions)]
    zero, one = b.constant(np.array(0)), b.constant(np.array(1))
    counts, columns = (b.Gather(wide[0], [axis], axis=0) for axis in (0, 1))
    rows, across = (b.Gather(wide[1], b.constant(np.array(axis)), axis=1) for axis in (0, 1))
    marks = b.Expand(one, b.Shape(rows))
    filled = b.ScatterElements(b.Expand(zero, counts), rows, marks, axis=0)
    is_empty = b.Equal(filled, zero)
    missing = b.Squeeze(b.NonZero(is_empty), [0])
    every_row = b.Concat(rows, missing, axis=0)
    every_column = b.Concat(across, b.Expand(zero, b.Shape(missing)), axis=0)
    key = b.Add(b.Multiply(every_row, columns), every_column)
    order = b.TopK(key, b.Shape(key), axis=0, largest=False)[1]
    every_index = b.Concat(b.Unsqueeze(every_row, [1]), b.Unsqueeze(every_column, [1]), axis=1)
    sorted_places = b.Gather(every_index, order, axis=0)
    every_value = b.Concat(values, b.Expand(default, b.Shape(missing)), axis=0)
    indices = sorted_places if kind is dtypes.i64 else b.Cast(sorted_places, to=kind)
    return [indices, b.Gather(every_value, order, axis=0), is_empty]
