"""Import color conversions from NV12 and I420 (YUV 4:2:0) to RGB and BGR."""

from __future__ import annotations

from typing import Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Value
from dovetail.ops.shape_values import join_sizes

# The weights of the chroma planes U and V in red, green and blue (BT.601).
_RED, _GREEN, _BLUE = {"v": 1.596}, {"u": -0.391, "v": -0.813}, {"u": 2.018}
_BRIGHTNESS = 1.164


@OPENVINO.importer("NV12toRGB", 8)
@OPENVINO.importer("NV12toBGR", 8)
def import_nv12(ctx: ImportContext) -> Value:
    """Import NV12toRGB and NV12toBGR from a plane Y and a plane of interleaved U and V at half resolution."""
    b, y = ctx.b, ctx.input_of_rank(0, 4)
    if len(ctx.inputs) == 1:
        y, below = _split_planes(b, y, [4, 2])
        both = b.Reshape(below, join_sizes(b, [shape_value(b, y, [0]), _halve_sizes(b, y), 2]), special_zero=False)
    else:
        both = ctx.input_of_rank(1, 4)
    return _to_rgb(ctx, y, b.Slice(both, [0], [1], [3]), b.Slice(both, [1], [2], [3]))


@OPENVINO.importer("I420toRGB", 8)
@OPENVINO.importer("I420toBGR", 8)
def import_i420(ctx: ImportContext) -> Value:
    """Import I420toRGB and I420toBGR from a plane Y and the planes U and V at half resolution."""
    b, y = ctx.b, ctx.input_of_rank(0, 4)
    if len(ctx.inputs) == 1:
        y, first, second = _split_planes(b, y, [4, 1, 1])
        shape = join_sizes(b, [shape_value(b, y, [0]), _halve_sizes(b, y), 1])
        return _to_rgb(ctx, y, *(b.Reshape(plane, shape, special_zero=False) for plane in (first, second)))
    return _to_rgb(ctx, y, ctx.input_of_rank(1, 4), ctx.input_of_rank(2, 4))


def _split_planes(b: Builder, x: Value, sixths: list[int]) -> list[Value]:
    """Split an image in one tensor into its planes, which are stacked along the height.

    ``sixths`` are the heights of the planes in sixths of the total height.
    """
    size = x.dims[1]
    if not isinstance(size, int):
        raise UnsupportedError("type.unknown", f"an image in one plane must have a known height, got {size}")
    if size % 3:
        raise RuleError("shape.multiple", f"an image in one plane must have a height that is a multiple of 3, got {size}")
    # Two chroma rows may share one row of the tensor, so that a split along the height cannot separate the planes.
    flat = b.Reshape(x, join_sizes(b, [shape_value(b, x, [0]), 6, -1]), special_zero=False)
    parts = b.Split(flat, sixths, axis=1, outputs=len(sixths))
    height, width = size * 2 // 3, shape_value(b, x, [2])
    brightness = b.Reshape(parts[0], join_sizes(b, [shape_value(b, x, [0]), height, width, 1]), special_zero=False)
    return [brightness, *parts[1:]]


def _halve_sizes(b: Builder, y: Value) -> Any:
    """Return half of the height and half of the width of ``y``."""
    sizes = shape_value(b, y, [1, 2])
    return [size // 2 for size in sizes] if isinstance(sizes, list) else b.Divide(sizes, 2)


def _to_rgb(ctx: ImportContext, y: Value, u: Value, v: Value) -> Value:
    b = ctx.b
    dtype = y.dtype
    if not dtype.is_number or dtype.kind == "complex":
        raise RuleError("type.class", f"the input of {ctx.node.kind} must be real numbers, got {dtype}")
    wide = dtypes.f32 if dtype.is_integer else dtype
    planes = {"u": _upsample(b, _subtract_offset(b, u, wide, 128)), "v": _upsample(b, _subtract_offset(b, v, wide, 128))}
    bright = b.Multiply(_subtract_offset(b, y, wide, 16), b.constant(_BRIGHTNESS, wide))
    channels = []
    for parts in (_RED, _GREEN, _BLUE):
        total = bright
        for name, factor in parts.items():
            total = b.Add(total, b.Multiply(planes[name], b.constant(factor, wide)))
        channels.append(total)
    if ctx.node.kind.endswith("BGR"):
        channels.reverse()
    image = b.Concat(*channels, axis=3)
    if dtype.is_integer:
        image = b.Floor(b.Add(image, b.constant(0.5, wide)))
    image = b.Clip(image, b.constant(0, wide), b.constant(255, wide))
    return b.Cast(image, to=dtype) if dtype.is_integer else image


def _subtract_offset(b: Builder, x: Value, dtype: dtypes.DType, middle: float) -> Any:
    x = x if x.dtype is dtype else b.Cast(x, to=dtype)
    return b.Subtract(x, b.constant(middle, dtype))


def _upsample(b: Builder, x: Value) -> Value:
    """Repeat each chroma element for the 2 x 2 luma elements of its block."""
    batch, height, width = (shape_value(b, x, [axis]) for axis in (0, 1, 2))
    pairs = b.Reshape(x, join_sizes(b, [batch, height, 1, width, 1, 1]), special_zero=False)
    squares = b.Expand(pairs, join_sizes(b, [batch, height, 2, width, 2, 1]))
    doubled = [[2 * size[0]] if isinstance(size, list) else b.Multiply(size, 2) for size in (height, width)]
    result: Value = b.Reshape(squares, join_sizes(b, [batch, *doubled, 1]), special_zero=False)
    return result
