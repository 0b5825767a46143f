"""Blocks of places moved between axes, in OpenVINO's words."""

from __future__ import annotations

from math import prod
from typing import Any

from dovetail.build import shape_value
from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.lifting import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.graph import Value
from dovetail.ops.slicing import joined
from dovetail.ops.sliding import halves
from dovetail.types import INT64_MAX

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


def _divided(b: Any, x: Value, axis: int, by: int) -> Any:
    size = x.dims[axis]
    if isinstance(size, int):
        return size // by
    return b.Divide(shape_value(b, x, [axis]), [by])


@OPENVINO.lift("SpaceToBatch", 2)
def space_to_batch(node: Lifting) -> Value:
    """Padded, then each place in its block a batch of its own."""
    b = node.b
    x, block, begin, end = _three(node)
    rank = len(block)
    if any(begin) or any(end):
        x = b.Pad(x, b.constant([*begin, *end]))
    for size, count in zip(x.dims, block, strict=True):
        if isinstance(size, int) and size % count:
            raise FormatError("node.inputs", f"SpaceToBatch: {size} places in blocks of {count}")
    sizes: list[Any] = [shape_value(b, x, [0])]
    for axis in range(1, rank):
        sizes += [_divided(b, x, axis, block[axis]), block[axis]]
    cut = b.Reshape(x, joined(b, sizes), copy_zeros=False)
    order = [*range(2, 2 * rank - 1, 2), 0, *range(1, 2 * rank - 1, 2)]
    whole = [_times(b, x, 0, prod(block)), *(_divided(b, x, axis, block[axis]) for axis in range(1, rank))]
    result: Value = b.Reshape(b.Transpose(cut, order), joined(b, whole), copy_zeros=False)
    return result


def _times(b: Any, x: Value, axis: int, by: int) -> Any:
    size = x.dims[axis]
    return size * by if isinstance(size, int) else b.Multiply(shape_value(b, x, [axis]), [by])


@OPENVINO.lift("BatchToSpace", 2)
def batch_to_space(node: Lifting) -> Value:
    """The places of each block from the batch, then cropped."""
    b = node.b
    x, block, begin, end = _three(node)
    rank, all_blocks = len(block), prod(block)
    if isinstance(x.dims[0], int) and x.dims[0] % all_blocks:
        raise FormatError("node.inputs", f"BatchToSpace: a batch of {x.dims[0]} for blocks of {all_blocks}")
    batch = _divided(b, x, 0, all_blocks)
    rest = shape_value(b, x, range(1, rank))
    cut = b.Reshape(x, joined(b, [list(block[1:]), batch, rest]), copy_zeros=False)
    order = [rank - 1]
    for axis in range(1, rank):
        order += [rank - 1 + axis, axis - 1]
    sizes = [batch, *(_times(b, x, axis, block[axis]) for axis in range(1, rank))]
    y: Value = b.Reshape(b.Transpose(cut, order), joined(b, sizes), copy_zeros=False)
    if any(begin) or any(end):
        stops = [-count if count else INT64_MAX for count in end]
        y = b.Slice(y, list(begin), stops, list(range(rank)))
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
    wide = b.Reshape(x, joined(b, [batch, [channels // step**2, height * step, width * step]]), copy_zeros=False)
    deep = b.SpaceToDepth(wide, block_size=step)
    result: Value = b.Reshape(deep, joined(b, [batch, [channels * step**2, height // step, width // step]]), copy_zeros=False)
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
        pads[0][axis], pads[1][axis] = halves(less, auto_pad == "same_upper")
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
