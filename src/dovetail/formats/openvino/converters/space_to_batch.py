"""Import SpaceToBatch, BatchToSpace, ReorgYolo and ExtractImagePatches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.converters.elementwise import has_runtime_attribute
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Operand, Value
from dovetail.ir.limits import refuse_unrolling
from dovetail.ir.types import INT64_MAX
from dovetail.ops.nn.sliding_window import split_padding
from dovetail.ops.shape_values import as_i64, join_sizes

_INTS = "tuple[int, ...]"


def _constant_blocks(ctx: ImportContext) -> tuple[Value, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the tensor and the constant inputs block, begin and end. Raises FormatError [node.inputs]."""
    x = ctx.input(0)
    block, begin, end = (ctx.constant_input(index, _INTS) for index in (1, 2, 3))
    rank = len(x.dims)
    if {len(block), len(begin), len(end)} != {rank} or rank < 2 or min(block) < 1 or block[0] != 1 or begin[0] or end[0]:
        raise FormatError(
            "node.inputs",
            f"{ctx.node.kind}: block, begin and end must have one element per axis of {x.type}, "
            f"and leave the batch, got {block}, {begin}, {end}",
        )
    if min(*begin, *end) < 0:
        raise FormatError("node.inputs", f"{ctx.node.kind}: pads or crops must not be negative, got {begin}, {end}")
    return x, block, begin, end


def _divide(b: Builder, x: Value, axis: int, by: Operand) -> Any:
    size = x.dims[axis]
    if isinstance(size, int) and isinstance(by, int):
        return size // by
    return b.Divide(_size(b, x, axis), [by] if isinstance(by, int) else by)


def _size(b: Builder, x: Value, axis: int) -> Any:
    result = shape_value(b, x, [axis])
    return b.constant(np.array(result)) if isinstance(result, list) else result


def _runtime_blocks(ctx: ImportContext) -> tuple[Value, list[Any], Value, Value]:
    """Return the tensor and the inputs block, begin and end as values; the block as a list of vectors of size 1.

    If a block does not divide an axis or the batch, Reshape raises an error at run time.
    """
    b, x = ctx.b, ctx.input(0)
    block, begin, end = (as_i64(b, ctx.input(index)) for index in (1, 2, 3))
    rank = len(x.dims)
    for vector in (block, begin, end):
        if rank < 2 or vector.shape is None or len(vector.shape) != 1 or vector.shape[0] not in (rank,):
            raise FormatError(
                "node.inputs",
                f"{ctx.node.kind}: block, begin and end must have one element per axis of {x.type}, got {vector.type}",
            )
    return x, [b.Gather(block, [axis], axis=0) for axis in range(rank)], begin, end


def _product(b: Builder, items: list[Any]) -> Any:
    return reduce(b.Multiply, items)


@OPENVINO.importer("SpaceToBatch", 2)
def import_space_to_batch(ctx: ImportContext) -> Value:
    """Import SpaceToBatch: pad, then move the position within a block to the batch axis."""
    b = ctx.b
    if has_runtime_attribute(ctx):
        x, late, before, after = _runtime_blocks(ctx)
        return _to_batch(b, b.Pad(x, b.Concat(before, after, axis=0)), late, _product(b, late))
    x, block, begin, end = _constant_blocks(ctx)
    if any(begin) or any(end):
        x = b.Pad(x, b.constant([*begin, *end]))
    for size, count in zip(x.dims, block, strict=True):
        if isinstance(size, int) and size % count:
            raise FormatError("node.inputs", f"SpaceToBatch: the padded size {size} must be a multiple of the block size {count}")
    return _to_batch(b, x, block, prod(block))


def _to_batch(b: Builder, x: Value, block: Sequence[Any], all_blocks: Operand) -> Value:
    rank = len(block)
    sizes: list[Any] = [shape_value(b, x, [0])]
    for axis in range(1, rank):
        sizes += [_divide(b, x, axis, block[axis]), block[axis]]
    cut = b.Reshape(x, join_sizes(b, sizes), special_zero=False)
    order = [*range(2, 2 * rank - 1, 2), 0, *range(1, 2 * rank - 1, 2)]
    whole = [_times(b, x, 0, all_blocks), *(_divide(b, x, axis, block[axis]) for axis in range(1, rank))]
    result: Value = b.Reshape(b.Transpose(cut, order), join_sizes(b, whole), special_zero=False)
    return result


def _times(b: Builder, x: Value, axis: int, by: Operand) -> Any:
    size = x.dims[axis]
    if isinstance(size, int) and isinstance(by, int):
        return size * by
    return b.Multiply(_size(b, x, axis), [by] if isinstance(by, int) else by)


@OPENVINO.importer("BatchToSpace", 2)
def import_batch_to_space(ctx: ImportContext) -> Value:
    """Import BatchToSpace: move block positions from the batch axis to the spatial axes, then crop."""
    b = ctx.b
    if has_runtime_attribute(ctx):
        x, late, before, after = _runtime_blocks(ctx)
        whole = _from_batch(b, x, late, _product(b, late))
        result: Value = b.Slice(whole, before, b.Subtract(b.Shape(whole), after), list(range(len(late))))
        return result
    x, block, begin, end = _constant_blocks(ctx)
    rank, all_blocks = len(block), prod(block)
    if isinstance(x.dims[0], int) and x.dims[0] % all_blocks:
        raise FormatError(
            "node.inputs", f"BatchToSpace: the batch size {x.dims[0]} must be a multiple of the block volume {all_blocks}"
        )
    y = _from_batch(b, x, block, all_blocks)
    if any(begin) or any(end):
        y = b.Slice(y, list(begin), [-count if count else INT64_MAX for count in end], list(range(rank)))
    return y


def _from_batch(b: Builder, x: Value, block: Sequence[Any], all_blocks: Operand) -> Value:
    rank = len(block)
    batch = _divide(b, x, 0, all_blocks)
    rest = shape_value(b, x, range(1, rank))
    first = list(block[1:]) if isinstance(block[0], int) else join_sizes(b, list(block[1:]))
    cut = b.Reshape(x, join_sizes(b, [first, batch, rest]), special_zero=False)
    order = [rank - 1]
    for axis in range(1, rank):
        order += [rank - 1 + axis, axis - 1]
    sizes = [batch, *(_times(b, x, axis, block[axis]) for axis in range(1, rank))]
    y: Value = b.Reshape(b.Transpose(cut, order), join_sizes(b, sizes), special_zero=False)
    return y


@OPENVINO.importer("ReorgYolo", 2)
def import_reorg_yolo(ctx: ImportContext) -> Value:
    """Import ReorgYolo: SpaceToDepth after a reshape to fewer channels and larger height and width, as in darknet."""
    b, x = ctx.b, ctx.input(0)
    strides = ctx.attribute("stride", _INTS)
    step = strides[0] if strides else 0
    if len(x.dims) != 4 or not all(isinstance(size, int) for size in x.dims[1:]) or step < 1:
        raise UnsupportedError(
            "shape.multiple",
            f"ReorgYolo needs a positive stride and static channels, height and width, got {list(strides)}, {x.type}",
        )
    channels, height, width = (int(size) for size in x.dims[1:])
    if channels % step**2 or height % step or width % step:
        raise FormatError("node.inputs", f"ReorgYolo: the sizes of {x.type} must be multiples of {step}")
    batch = shape_value(b, x, [0])
    wide = b.Reshape(x, join_sizes(b, [batch, [channels // step**2, height * step, width * step]]), special_zero=False)
    deep = b.SpaceToDepth(wide, blocksize=step)
    result: Value = b.Reshape(
        deep, join_sizes(b, [batch, [channels * step**2, height // step, width // step]]), special_zero=False
    )
    return result


@OPENVINO.importer("ExtractImagePatches", 3)
def import_extract_image_patches(ctx: ImportContext) -> Value:
    """Import ExtractImagePatches: slice the image for each position in a patch, and concatenate along the channels."""
    b, x = ctx.b, ctx.input(0)
    sizes, strides, rates = (ctx.attribute(name, _INTS) for name in ("sizes", "strides", "rates"))
    auto_pad = ctx.attribute("auto_pad", "str")
    if {len(sizes), len(strides), len(rates)} != {2} or min(*sizes, *strides, *rates) < 1:
        raise FormatError(
            "attribute.value",
            f"ExtractImagePatches: sizes, strides and rates must be 2 positive numbers each, "
            f"got {list(sizes)}, {list(strides)}, {list(rates)}",
        )
    if auto_pad not in ("valid", "same_upper", "same_lower"):
        raise FormatError(
            "attribute.value", f"ExtractImagePatches: auto_pad must be valid, same_upper or same_lower, got {auto_pad!r}"
        )
    image_size = [x.dims[2], x.dims[3]]
    if not all(isinstance(size, int) for size in image_size):
        got = ", ".join(map(str, image_size))
        raise UnsupportedError("type.unknown", f"ExtractImagePatches: height and width of the image must be static, got {got}")
    refuse_unrolling(prod(sizes), 1, "the elements of a patch of ExtractImagePatches")
    spans = [(size - 1) * rate + 1 for size, rate in zip(sizes, rates, strict=True)]
    outs = []
    pads: list[list[int]] = [[0, 0], [0, 0]]
    for axis, (size, span, stride) in enumerate(zip(image_size, spans, strides, strict=True)):
        if auto_pad == "valid":
            outs.append((size - span) // stride + 1 if size >= span else 0)
            continue
        outs.append(-(-size // stride))
        less = max((outs[-1] - 1) * stride + span - size, 0)
        pads[0][axis], pads[1][axis] = split_padding(less, auto_pad == "same_upper")
    if any(map(any, pads)):
        x = b.Pad(x, b.constant([0, 0, *pads[0], 0, 0, *pads[1]]))
    parts = []
    for row in range(sizes[0]):
        for column in range(sizes[1]):
            starts = [row * rates[0], column * rates[1]]
            stops = [start + (count - 1) * stride + 1 for start, count, stride in zip(starts, outs, strides, strict=True)]
            stops = [max(stop, 0) if count else start for start, stop, count in zip(starts, stops, outs, strict=True)]
            parts.append(b.Slice(x, starts, stops, [2, 3], list(strides)))
    result: Value = b.Concat(*parts, axis=1) if len(parts) > 1 else parts[0]
    return result
