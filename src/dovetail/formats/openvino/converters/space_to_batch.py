"""Blocks of places moved between axes, in OpenVINO's words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.exporter import constant_or_none
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Value
from dovetail.ir.types import INT64_MAX
from dovetail.ops.nn.sliding_window import split_padding
from dovetail.ops.shape_values import as_i64, join_sizes

_INTS = "tuple[int, ...]"


def _three(node: Lifting) -> tuple[Value, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    x = node.input(0)
    block, begin, end = (node.constant(place, _INTS) for place in (1, 2, 3))
    rank = len(x.dims)
    if {len(block), len(begin), len(end)} != {rank} or rank < 2 or min(block) < 1 or block[0] != 1 or begin[0] or end[0]:
        raise FormatError("node.inputs", f"{node.node.kind}: blocks {block}, {begin}, {end} of {x.type}")
    if min(*begin, *end) < 0:
        raise FormatError("node.inputs", f"{node.node.kind}: pads or crops {begin}, {end} are negative")
    return x, block, begin, end


def _divided(b: Any, x: Value, axis: int, by: Any) -> Any:
    size = x.dims[axis]
    if isinstance(size, int) and isinstance(by, int):
        return size // by
    return b.Divide(_size(b, x, axis), [by] if isinstance(by, int) else by)


def _size(b: Any, x: Value, axis: int) -> Any:
    found = shape_value(b, x, [axis])
    return b.constant(np.array(found)) if isinstance(found, list) else found


def _is_late(node: Lifting) -> bool:
    """Whether blocks, or what is padded or cropped, are known only at run time."""
    return any(x is not None and constant_or_none(x) is None for x in node.inputs[1:])


def _late(node: Lifting) -> tuple[Value, list[Any], Value, Value]:
    """As ``_three`` does: the tensor, the blocks as vectors of one, what is padded or cropped. Blocks that do not divide, or of
    the batch, are refused when they run, by Reshape."""
    b, x = node.b, node.input(0)
    block, begin, end = (as_i64(b, node.input(place)) for place in (1, 2, 3))
    rank = len(x.dims)
    for vector in (block, begin, end):
        if rank < 2 or vector.shape is None or len(vector.shape) != 1 or vector.shape[0] not in (rank,):
            raise FormatError("node.inputs", f"{node.node.kind}: a vector {vector.type} for {x.type}")
    return x, [b.Gather(block, [axis], axis=0) for axis in range(rank)], begin, end


def _product(b: Any, items: list[Any]) -> Any:
    return reduce(b.Multiply, items)


@OPENVINO.lift("SpaceToBatch", 2)
def space_to_batch(node: Lifting) -> Value:
    """Padded, then each place in its block a batch of its own."""
    b = node.b
    if _is_late(node):
        x, late, before, after = _late(node)
        return _to_batch(b, b.Pad(x, b.Concat(before, after, axis=0)), late, _product(b, late))
    x, block, begin, end = _three(node)
    if any(begin) or any(end):
        x = b.Pad(x, b.constant([*begin, *end]))
    for size, count in zip(x.dims, block, strict=True):
        if isinstance(size, int) and size % count:
            raise FormatError("node.inputs", f"SpaceToBatch: {size} places in blocks of {count}")
    return _to_batch(b, x, block, prod(block))


def _to_batch(b: Any, x: Value, block: Sequence[Any], all_blocks: Any) -> Value:
    rank = len(block)
    sizes: list[Any] = [shape_value(b, x, [0])]
    for axis in range(1, rank):
        sizes += [_divided(b, x, axis, block[axis]), block[axis]]
    cut = b.Reshape(x, join_sizes(b, sizes), special_zero=False)
    order = [*range(2, 2 * rank - 1, 2), 0, *range(1, 2 * rank - 1, 2)]
    whole = [_times(b, x, 0, all_blocks), *(_divided(b, x, axis, block[axis]) for axis in range(1, rank))]
    result: Value = b.Reshape(b.Transpose(cut, order), join_sizes(b, whole), special_zero=False)
    return result


def _times(b: Any, x: Value, axis: int, by: Any) -> Any:
    size = x.dims[axis]
    if isinstance(size, int) and isinstance(by, int):
        return size * by
    return b.Multiply(_size(b, x, axis), [by] if isinstance(by, int) else by)


@OPENVINO.lift("BatchToSpace", 2)
def batch_to_space(node: Lifting) -> Value:
    """The places of each block from the batch, then cropped."""
    b = node.b
    if _is_late(node):
        x, late, before, after = _late(node)
        whole = _from_batch(b, x, late, _product(b, late))
        result: Value = b.Slice(whole, before, b.Subtract(b.Shape(whole), after), list(range(len(late))))
        return result
    x, block, begin, end = _three(node)
    rank, all_blocks = len(block), prod(block)
    if isinstance(x.dims[0], int) and x.dims[0] % all_blocks:
        raise FormatError("node.inputs", f"BatchToSpace: a batch of {x.dims[0]} for blocks of {all_blocks}")
    y = _from_batch(b, x, block, all_blocks)
    if any(begin) or any(end):
        y = b.Slice(y, list(begin), [-count if count else INT64_MAX for count in end], list(range(rank)))
    return y


def _from_batch(b: Any, x: Value, block: Sequence[Any], all_blocks: Any) -> Value:
    rank = len(block)
    batch = _divided(b, x, 0, all_blocks)
    rest = shape_value(b, x, range(1, rank))
    first = list(block[1:]) if isinstance(block[0], int) else join_sizes(b, list(block[1:]))
    cut = b.Reshape(x, join_sizes(b, [first, batch, rest]), special_zero=False)
    order = [rank - 1]
    for axis in range(1, rank):
        order += [rank - 1 + axis, axis - 1]
    sizes = [batch, *(_times(b, x, axis, block[axis]) for axis in range(1, rank))]
    y: Value = b.Reshape(b.Transpose(cut, order), join_sizes(b, sizes), special_zero=False)
    return y


@OPENVINO.lift("ReorgYolo", 2)
def reorganised(node: Lifting) -> Value:
    """SpaceToDepth of the tensor as one of fewer channels and more places, as darknet counts them."""
    b, x = node.b, node.input(0)
    strides = node.attribute("stride", _INTS)
    step = strides[0] if strides else 0
    if len(x.dims) != 4 or not all(isinstance(size, int) for size in x.dims[1:]) or step < 1:
        raise UnsupportedError("blocks.size", f"ReorgYolo with stride {list(strides)} of {x.type}")
    channels, height, width = (int(size) for size in x.dims[1:])
    if channels % step**2 or height % step or width % step:
        raise FormatError("node.inputs", f"ReorgYolo: {x.type} does not divide by {step}")
    batch = shape_value(b, x, [0])
    wide = b.Reshape(x, join_sizes(b, [batch, [channels // step**2, height * step, width * step]]), special_zero=False)
    deep = b.SpaceToDepth(wide, blocksize=step)
    result: Value = b.Reshape(
        deep, join_sizes(b, [batch, [channels * step**2, height // step, width // step]]), special_zero=False
    )
    return result


@OPENVINO.lift("ExtractImagePatches", 3)
def patches(node: Lifting) -> Value:
    """One slice of the picture for each place in a patch, one after the other along the channels."""
    b, x = node.b, node.input(0)
    sizes, strides, rates = (node.attribute(name, _INTS) for name in ("sizes", "strides", "rates"))
    auto_pad = node.attribute("auto_pad", "str")
    if {len(sizes), len(strides), len(rates)} != {2} or min(*sizes, *strides, *rates) < 1:
        raise FormatError("attribute.value", f"ExtractImagePatches: {list(sizes)}, {list(strides)}, {list(rates)}")
    if auto_pad not in ("valid", "same_upper", "same_lower"):
        raise FormatError("attribute.value", f"ExtractImagePatches: auto_pad = {auto_pad!r}")
    places = [x.dims[2], x.dims[3]]
    if not all(isinstance(size, int) for size in places):
        raise UnsupportedError("blocks.size", "ExtractImagePatches of a picture whose size only run time knows")
    spans = [(size - 1) * rate + 1 for size, rate in zip(sizes, rates, strict=True)]
    outs = []
    pads: list[list[int]] = [[0, 0], [0, 0]]
    for axis, (size, span, stride) in enumerate(zip(places, spans, strides, strict=True)):
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
