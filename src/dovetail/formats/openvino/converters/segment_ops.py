"""Converters for SliceScatter, SegmentMax, Eye and Identity."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode, ForeignValue
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO, encode_attribute
from dovetail.ir import dtypes
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.limits import refuse_table
from dovetail.ir.types import Tensor
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import join_sizes


@OPENVINO.importer("SliceScatter", 15)
def import_slice_scatter(ctx: ImportContext) -> Value:
    """Import SliceScatter: slice the flat indices of the data, and scatter the updates to the sliced indices."""
    b = ctx.b
    x, updates, *bounds = (ctx.input(index) for index in range(5))
    axes = ctx.optional_input(5)
    sizes = shape_value(b, x)
    if isinstance(sizes, list):
        refuse_table(sizes, 8, "the flat indices of a SliceScatter")
        numbers = b.constant(np.arange(prod(sizes)).reshape(sizes))
    else:
        count = b.ReduceProd(sizes, keepdims=False)
        numbers = b.Reshape(b.Range(b.constant(0), count, b.constant(1)), sizes, special_zero=False)
    if axes is None:
        length = bounds[0].dims[0]
        if not isinstance(length, int):
            raise UnsupportedError("type.unknown", "SliceScatter needs a static number of axes")
        axes = b.constant(list(range(length)))
    start, stop, step = bounds
    positions = b.Slice(numbers, start, stop, axes, step)
    flat = b.ScatterElements(b.Reshape(x, [-1]), b.Reshape(positions, [-1]), b.Reshape(updates, [-1]), axis=0)
    result: Value = b.Reshape(flat, sizes, special_zero=False)
    return result


@OPENVINO.importer("SegmentMax", 16)
def import_segment_max(ctx: ImportContext) -> Value:
    """Import SegmentMax; the maximum of an empty segment is 0, or the lowest number of the type."""
    b, x, ids, count = ctx.b, ctx.input(0), ctx.input(1), ctx.optional_input(2)
    mode = ctx.attribute("fill_mode", "str").lower()
    if mode not in ("zero", "lowest"):
        raise FormatError("attribute.value", f"SegmentMax: fill_mode must be ZERO or LOWEST, got {mode!r}")
    wide, kind = as_type(b, ids, dtypes.i64), x.dtype
    if count is None:
        size: Any = b.Add(b.Gather(wide, [-1], axis=0), b.constant([1]))
    else:
        size = b.Reshape(as_type(b, count, dtypes.i64), [1])
    lowest = kind.range()[0] if kind.is_integer else -np.inf
    start = b.Expand(b.constant(lowest, kind), join_sizes(b, [size, shape_value(b, x, range(1, len(x.dims)))]))
    indices = b.Unsqueeze(wide, [1])
    maxima = b.ScatterND(start, indices, x, reduction="max")
    counts = b.ScatterND(b.Expand(b.constant(0), size), indices, b.Expand(b.constant(1), shape_value(b, wide)), reduction="add")
    counts = b.Unsqueeze(counts, list(range(1, len(x.dims)))) if len(x.dims) > 1 else counts
    fill = 0 if mode == "zero" else lowest if kind.is_integer else np.finfo(kind.numpy).min
    empty = b.constant(fill, kind)
    result: Value = b.Where(b.Equal(counts, b.constant(0)), empty, maxima)
    return result


@OPENVINO.importer("Eye", 9)
def import_eye(ctx: ImportContext) -> Value:
    """Import Eye: matrices with ones along a diagonal, for each item of a batch."""
    b = ctx.b
    rows, columns, shift = (b.Reshape(as_type(b, ctx.input(index), dtypes.i64), []) for index in range(3))
    batch = ctx.optional_input(3)
    kind = ctx.attribute("output_type", "DType")
    down, across = (b.Range(b.constant(0), count, b.constant(1)) for count in (rows, columns))
    matrix = b.Cast(b.Equal(b.Unsqueeze(b.Add(down, shift), [1]), across), to=kind)
    if batch is None:
        result: Value = matrix
        return result
    shape = b.Concat(as_type(b, batch, dtypes.i64), b.Shape(matrix), axis=0)
    result = b.Expand(matrix, shape)
    return result


@OPENVINO.importer("Identity", 16)
def import_identity(ctx: ImportContext) -> Value:
    result: Value = ctx.b.Identity(ctx.input(0))
    return result


@OPENVINO.exporter("Identity")
def export_identity(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    """Export an Identity that separates inputs and outputs of the model; the exporter drops every other Identity.

    For strings a Reshape to the same shape is exported, because the CPU plugin's Identity copies string pointers and frees them
    twice.
    """
    x = node.input(0)
    if x.dtype != "string":
        return [ctx.add_node(node, "", "Identity", ctx.version("Identity"), [ctx.key(x)], {})]
    key = ctx.claim_key(f"{node.outputs[0].name}/shape")
    rank = None if x.shape is None else len(x.shape)
    ctx.foreign.values[key] = ForeignValue(key, Tensor(dtypes.i64, (rank,) if rank is not None else None))
    ctx.typed[key] = ctx.foreign.values[key]
    shape = ForeignNode("ShapeOf", ctx.version("ShapeOf"), [ctx.key(x)], [key], {"output_type": encode_attribute(dtypes.i64)})
    attributes = {"special_zero": encode_attribute(False)}
    return [shape, ctx.add_node(node, "", "Reshape", ctx.version("Reshape"), [ctx.key(x), key], attributes)]
