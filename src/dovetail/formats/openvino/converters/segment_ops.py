"""Parts of a tensor written over, or summed up by what they belong to, in OpenVINO's words."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Value
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import join_sizes


@OPENVINO.importer("SliceScatter", 15)
def slice_scatter(ctx: ImportContext) -> Value:
    """The slice of the elements' numbers says where the updates go."""
    b = ctx.b
    x, updates, *bounds = (ctx.input(place) for place in range(5))
    axes = ctx.optional_input(5)
    sizes = shape_value(b, x)
    if isinstance(sizes, list):
        numbers = b.constant(np.arange(prod(sizes)).reshape(sizes))
    else:
        count = b.ReduceProd(sizes, keep_dims=False)
        numbers = b.Reshape(b.Range(b.constant(0), count, b.constant(1)), sizes, copy_zeros=False)
    if axes is None:
        length = bounds[0].dims[0]
        if not isinstance(length, int):
            raise UnsupportedError("slice.axes", "SliceScatter along as many axes as only run time knows")
        axes = b.constant(list(range(length)))
    start, stop, step = bounds
    places = b.Slice(numbers, start, stop, axes, step)
    flat = b.ScatterElements(b.Reshape(x, [-1]), b.Reshape(places, [-1]), b.Reshape(updates, [-1]), axis=0)
    result: Value = b.Reshape(flat, sizes, copy_zeros=False)
    return result


@OPENVINO.importer("SegmentMax", 16)
def segment_max(ctx: ImportContext) -> Value:
    """The greatest of each segment; one without elements is 0, or the least number of the type."""
    b, x, ids, count = ctx.b, ctx.input(0), ctx.input(1), ctx.optional_input(2)
    mode = ctx.attribute("fill_mode", "str").lower()
    if mode not in ("zero", "lowest"):
        raise FormatError("attribute.value", f"SegmentMax: fill_mode = {mode!r} is none of ZERO, LOWEST")
    wide, kind = as_type(b, ids, dtypes.i64), x.dtype
    if count is None:
        size: Any = b.Add(b.Gather(wide, [-1], axis=0), b.constant([1]))
    else:
        size = b.Reshape(as_type(b, count, dtypes.i64), [1])
    least = kind.range()[0] if kind.is_integer else -np.inf
    start = b.Expand(
        b.constant(np.array(least, kind.numpy), kind), join_sizes(b, [size, shape_value(b, x, range(1, len(x.dims)))])
    )
    places = b.Unsqueeze(wide, [1])
    found = b.ScatterND(start, places, x, reduction="max")
    counts = b.ScatterND(b.Expand(b.constant(0), size), places, b.Expand(b.constant(1), shape_value(b, wide)), reduction="add")
    counts = b.Unsqueeze(counts, list(range(1, len(x.dims)))) if len(x.dims) > 1 else counts
    fill = 0 if mode == "zero" else least if kind.is_integer else np.finfo(kind.numpy).min
    empty = b.constant(np.array(fill, kind.numpy), kind)
    result: Value = b.Where(b.Equal(counts, b.constant(0)), empty, found)
    return result


@OPENVINO.importer("Eye", 9)
def eye(ctx: ImportContext) -> Value:
    """Ones along a diagonal, for each of a batch."""
    b = ctx.b
    rows, columns, shift = (b.Reshape(as_type(b, ctx.input(place), dtypes.i64), []) for place in range(3))
    batch = ctx.optional_input(3)
    kind = ctx.attribute("output_type", "DType")
    down, across = (b.Range(b.constant(0), count, b.constant(1)) for count in (rows, columns))
    found = b.Cast(b.Equal(b.Unsqueeze(b.Add(down, shift), [1]), across), to=kind)
    if batch is None:
        result: Value = found
        return result
    shape = b.Concat(as_type(b, batch, dtypes.i64), b.Shape(found), axis=0)
    result = b.Expand(found, shape)
    return result


@OPENVINO.importer("Identity", 16)
def identity(ctx: ImportContext) -> Value:
    result: Value = ctx.b.Identity(ctx.input(0))
    return result
