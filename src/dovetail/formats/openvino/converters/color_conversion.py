"""Pictures in the colours of video, as sums of their planes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Value
from dovetail.ops.shape_values import join_sizes

# What the differences of colour add to the brightness.
_RED, _GREEN, _BLUE = {"v": 1.596}, {"u": -0.391, "v": -0.813}, {"u": 2.018}
_BRIGHTNESS = 1.164


@OPENVINO.importer("NV12toRGB", 8)
@OPENVINO.importer("NV12toBGR", 8)
def from_nv12(ctx: ImportContext) -> Value:
    """The brightness of each place, then for each square of four both differences side by side."""
    b, y = ctx.b, ctx.input_of_rank(0, 4)
    if len(ctx.inputs) == 1:
        y, below = _parts(b, y, [4, 2])
        both = b.Reshape(below, join_sizes(b, [shape_value(b, y, [0]), _half(b, y), 2]), copy_zeros=False)
    else:
        both = ctx.input_of_rank(1, 4)
    return _coloured(ctx, y, b.Slice(both, [0], [1], [3]), b.Slice(both, [1], [2], [3]))


@OPENVINO.importer("I420toRGB", 8)
@OPENVINO.importer("I420toBGR", 8)
def from_i420(ctx: ImportContext) -> Value:
    """The brightness of each place, then all differences of one kind, then of the other."""
    b, y = ctx.b, ctx.input_of_rank(0, 4)
    if len(ctx.inputs) == 1:
        y, first, second = _parts(b, y, [4, 1, 1])
        shape = join_sizes(b, [shape_value(b, y, [0]), _half(b, y), 1])
        return _coloured(ctx, y, *(b.Reshape(each, shape, copy_zeros=False) for each in (first, second)))
    return _coloured(ctx, y, ctx.input_of_rank(1, 4), ctx.input_of_rank(2, 4))


def _parts(b: Builder, x: Value, sixths: list[int]) -> list[Value]:
    """The picture's planes, which lie below one another, by their share of its height."""
    size = x.dims[1]
    if not isinstance(size, int):
        raise UnsupportedError("picture.height", f"a picture of the unknown height {size} in one plane")
    if size % 3:
        raise RuleError("picture.height", f"a picture of {size} rows, which are no brightness and half as many differences")
    # Rows of colour may share one row of the picture, which no cut along the height tells apart.
    flat = b.Reshape(x, join_sizes(b, [shape_value(b, x, [0]), 6, -1]), copy_zeros=False)
    parts = b.Split(flat, sixths, axis=1, outputs=len(sixths))
    height, width = size * 2 // 3, shape_value(b, x, [2])
    brightness = b.Reshape(parts[0], join_sizes(b, [shape_value(b, x, [0]), height, width, 1]), copy_zeros=False)
    return [brightness, *parts[1:]]


def _half(b: Builder, y: Value) -> Any:
    """Half the height and half the width."""
    sizes = shape_value(b, y, [1, 2])
    return [size // 2 for size in sizes] if isinstance(sizes, list) else b.Divide(sizes, 2)


def _coloured(ctx: ImportContext, y: Value, u: Value, v: Value) -> Value:
    b = ctx.b
    dtype = y.dtype
    if not dtype.is_number or dtype.kind == "complex":
        raise RuleError("type.class", f"{ctx.node.kind} of {dtype}")
    wide = dtypes.f32 if dtype.is_integer else dtype
    planes = {"u": _spread(b, _less(b, u, wide, 128)), "v": _spread(b, _less(b, v, wide, 128))}
    bright = b.Multiply(_less(b, y, wide, 16), _number(b, _BRIGHTNESS, wide))
    colours = []
    for parts in (_RED, _GREEN, _BLUE):
        total = bright
        for name, factor in parts.items():
            total = b.Add(total, b.Multiply(planes[name], _number(b, factor, wide)))
        colours.append(total)
    if ctx.node.kind.endswith("BGR"):
        colours.reverse()
    found = b.Concat(*colours, axis=3)
    if dtype.is_integer:
        found = b.Floor(b.Add(found, _number(b, 0.5, wide)))
    found = b.Clip(found, _number(b, 0, wide), _number(b, 255, wide))
    return b.Cast(found, to=dtype) if dtype.is_integer else found


def _less(b: Builder, x: Value, dtype: dtypes.DType, middle: float) -> Any:
    x = x if x.dtype is dtype else b.Cast(x, to=dtype)
    return b.Subtract(x, _number(b, middle, dtype))


def _number(b: Builder, value: float, dtype: dtypes.DType) -> Value:
    return b.constant(np.array(value, dtype.numpy), dtype)


def _spread(b: Builder, x: Value) -> Value:
    """Each element for the four places of its square."""
    batch, height, width = (shape_value(b, x, [axis]) for axis in (0, 1, 2))
    pairs = b.Reshape(x, join_sizes(b, [batch, height, 1, width, 1, 1]), copy_zeros=False)
    squares = b.Expand(pairs, join_sizes(b, [batch, height, 2, width, 2, 1]))
    doubled = [[2 * size[0]] if isinstance(size, list) else b.Multiply(size, 2) for size in (height, width)]
    result: Value = b.Reshape(squares, join_sizes(b, [batch, *doubled, 1]), copy_zeros=False)
    return result
