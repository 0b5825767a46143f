"""Scales and zero points beside the tensor that they are for: one for all of it, one a place of an axis, one a block."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from dovetail import arrays, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import shape_value
from dovetail.ir.types import Shape, View, agree, agree_shapes, axis_in

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def is_single(shape: Any) -> bool | None:
    """Whether a scale of this shape is one number; None where only run time can tell."""
    if shape is None:
        return None
    if len(shape) == 0:
        return True
    known = [symbolic.equal(size, 1) for size in shape]
    return False if False in known or len(shape) > 1 else known[0]


def check_parameters(x: View, scale: View, zero_point: View | None, axis: int | None, block: int) -> None:
    """Hold the shapes of a scale and a zero point against that of ``x``.

    Raises RuleError [quantize.scale], [quantize.block], [shape.disagree], [axis.range].
    """
    if scale.shape is None:
        return
    if zero_point is not None and not (is_single(scale.shape) and is_single(zero_point.shape)):
        agree_shapes(scale.shape, zero_point.shape)
    if block:
        _check_blocks(x, scale.shape, axis, block)
    elif is_single(scale.shape) is not True:
        if len(scale.shape) != 1:
            raise RuleError("quantize.scale", f"a scale of rank {len(scale.shape)} needs a block size")
        if axis is None:
            if is_single(scale.shape) is False:
                raise RuleError("quantize.scale", f"one scale is needed where no axis is given, not {scale.shape[0]}")
        elif x.shape is not None:
            place = axis_in(axis, len(x.shape))
            if is_single(scale.shape) is False:
                agree(scale.shape[0], x.shape[place])


def _check_blocks(x: View, shape: Shape, axis: int | None, block: int) -> None:
    if axis is None:
        raise RuleError("quantize.block", f"blocks of {block} need an axis")
    if x.shape is None:
        return
    if len(shape) != len(x.shape):
        raise RuleError("quantize.block", f"a scale of rank {len(shape)} for blocks of a tensor of rank {len(x.shape)}")
    place = axis_in(axis, len(x.shape))
    for index, (theirs, ours) in enumerate(zip(shape, x.shape, strict=True)):
        agree(theirs, symbolic.ceil_divide(ours, block) if index == place else ours)


def spread(xp: Namespace, values: Array, shape: Any, axis: int | None, block: int) -> Any:
    """A scale or zero point so that it broadcasts to ``shape``."""
    if block:
        place = axis_in(axis or 0, len(shape))
        wide = arrays.repeat(xp, values, block, place)
        cut = tuple(slice(0, shape[place]) if index == place else slice(None) for index in range(len(shape)))
        return wide[cut]
    if prod(values.shape) == 1:
        return xp.reshape(values, ())
    return xp.reshape(values, (-1, *(1,) * (len(shape) - 1 - axis_in(axis or 0, len(shape)))))


def spread_value(b: Builder, values: Value, x: Value, axis: int | None) -> Any:
    """The same through a Builder, without blocks."""
    if values.shape is None:
        raise UnsupportedError("quantize.rank", f"a scale {values.type}, whose rank should be known")
    if not values.shape:
        return values
    if axis is None or is_single(values.shape):
        return b.Reshape(values, [], special_zero=False)
    after = len(x.dims) - 1 - axis_in(axis, len(x.dims))
    return b.Reshape(values, [-1, *(1,) * after], special_zero=False) if after else values


def by_blocks(b: Builder, x: Value, parameters: list[Any], axis: int, block: int, compute: Any) -> Any:
    """``compute(x, *parameters)`` with an axis of blocks and one within them in the place of ``axis``: nothing is repeated.

    Where the last block is not whole, each parameter is laid out for every element.
    """
    place = axis_in(axis, len(x.dims))
    size = x.dims[place]
    if isinstance(size, int) and size % block == 0:
        before, after = shape_value(b, x, range(place)), shape_value(b, x, range(place + 1, len(x.dims)))
        parts = b.Reshape(x, _joined(b, before, [size // block, block], after), special_zero=False)
        held = [None if each is None else b.Unsqueeze(each, [place + 1]) for each in parameters]
        return b.Reshape(compute(parts, *held), shape_value(b, x), special_zero=False)
    laid = [None if each is None else _repeated(b, each, x, place, block) for each in parameters]
    return compute(x, *laid)


def _joined(b: Builder, *parts: Any) -> Any:
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    return b.Concat(*(b.constant(part, "i64") if isinstance(part, list) else part for part in parts), axis=0)


def _repeated(b: Builder, values: Value, x: Value, place: int, block: int) -> Any:
    rank = len(values.dims)
    wide = b.Tile(b.Unsqueeze(values, [place + 1]), [block if axis == place + 1 else 1 for axis in range(rank + 1)])
    shape = _joined(b, shape_value(b, values, range(place)), [-1], shape_value(b, values, range(place + 1, rank)))
    flat = b.Reshape(wide, shape, special_zero=False)
    size = shape_value(b, x, [place])
    return b.Slice(flat, [0], size, [place], [1])
