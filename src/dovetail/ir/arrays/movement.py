"""Data movement: slicing, padding and repetition."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir.arrays.backends import (
    Array,
    Ints,
    Namespace,
    convert_dtype,
    element,
    full,
    index_type,
    is_dask,
    is_numpy,
    to_namespace,
)
from dovetail.ir.limits import refuse_array


def strided_slice(xp: Namespace, x: Array, starts: Sequence[int | None], stops: Sequence[int | None], steps: Ints) -> Array:
    """Slice the leading axes, ``x[starts[0]:stops[0]:steps[0], ...]``; None and negative steps mean what they mean in Python."""
    slices = [slice(*bounds) for bounds in zip(starts, stops, steps, strict=True)]
    if is_numpy(xp):
        return x[tuple(slices)]
    ranges = [range(*item.indices(size)) for item, size in zip(slices, x.shape, strict=False)]
    backward = tuple(axis for axis, item in enumerate(ranges) if item.step < 0)
    x = x[tuple(_forward(item) for item in ranges)] if ranges else x
    return xp.flip(x, axis=backward) if backward else x


def _forward(indices: range) -> slice:
    if not indices:
        return slice(0, 0)
    low, high = sorted((indices[0], indices[-1]))
    return slice(low, high + 1, abs(indices.step))


def pad(xp: Namespace, x: Array, pads_begin: Ints, pads_end: Ints, mode: str = "constant", value: complex | Array = 0) -> Array:
    """Pad ``x`` with ``pads_begin[i]`` elements before and ``pads_end[i]`` elements after axis i; negative pads crop.

    ``mode`` is "constant" (``value``, a number or a 0-d array), "edge", "reflect" (the border element is not repeated),
    "symmetric" (the border element is repeated) or "wrap". All modes but "constant" map each position of the result to an
    element of ``x`` like ``numpy.pad``, for pads of any size; elements cropped at one side can still pad the other side.

    Raises EngineError [shape.empty] for an axis of size 0 in a mode other than "constant".
    """
    if mode == "constant":
        return _pad_constant(xp, x, pads_begin, pads_end, value)
    for axis, (size, begin, end) in enumerate(zip(x.shape, pads_begin, pads_end, strict=True)):
        if begin <= 0 and end <= 0:
            x = slice_axis(xp, x, axis, -begin, max(size + end, -begin))
        elif not size:
            raise EngineError("shape.empty", f"an axis must not be empty for padding in mode {mode}, got size 0 of axis {axis}")
        else:
            refuse_array((size + begin + end,), 16, "the table of a padding")
            places = _REFLECTIONS[mode](np.arange(-begin, size + end), size)
            x = xp.take(x, to_namespace(xp, places, x), axis=axis)
    return x


_REFLECTIONS: dict[str, Callable[[Array, int], Array]] = {
    "edge": lambda places, size: np.clip(places, 0, size - 1),
    "reflect": lambda places, size: (size - 1) - np.abs(places % max(2 * (size - 1), 1) - (size - 1)),
    "symmetric": lambda places, size: np.minimum(places % (2 * size), 2 * size - 1 - places % (2 * size)),
    "wrap": lambda places, size: places % size,
}


def slice_axis(xp: Namespace, x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    if (start, stop, step) == (0, x.shape[axis], 1):
        return x
    return x[(*(slice(None),) * axis, slice(start, stop, step))]


def _pad_constant(xp: Namespace, x: Array, pads_begin: Ints, pads_end: Ints, value: complex | Array) -> Array:
    for axis, (size, begin, end) in enumerate(zip(x.shape, pads_begin, pads_end, strict=True)):
        start, stop = min(max(0, -begin), size), max(min(size, size + end), 0)
        # A crop that is longer than the axis also removes padding at the other side.
        before, after = max(begin, 0) + min(size + end, 0), max(end, 0) + min(size + begin, 0)
        if begin <= 0 and end <= 0:
            x = slice_axis(xp, x, axis, start, max(start, stop))
            continue
        if is_numpy(xp):
            refuse_array((*x.shape[:axis], size + begin + end, *x.shape[axis + 1 :]), x.itemsize, "a padded tensor")
        parts = (before, slice_axis(xp, x, axis, start, max(start, stop)), after)
        x = between(xp, parts, axis, value)
    return x


def between(xp: Namespace, parts: tuple[int, Array, int], axis: int, value: complex | Array) -> Array:
    before, x, after = parts
    shape = x.shape
    blocks = [full(xp, (*shape[:axis], max(n, 0), *shape[axis + 1 :]), value, x) for n in (before, after)]
    return xp.concat([blocks[0], x, blocks[1]], axis=axis)


def reshape(xp: Namespace, x: Array, shape: Ints) -> Array:
    """Reshape ``x``. dask.array cannot reshape empty arrays; an array that it cannot reshape directly is flattened first."""
    if is_dask(xp) and 0 in shape:
        # The default, chunks of automatic sizes, divides by the number of elements.
        return xp.zeros(tuple(shape), dtype=x.dtype, chunks=-1)
    try:
        return xp.reshape(x, tuple(shape))
    except NotImplementedError:
        return xp.reshape(xp.reshape(x, (-1,)), tuple(shape))


def tile(xp: Namespace, x: Array, repeats: Ints) -> Array:
    """Tile ``x`` ``repeats[i]`` times along each axis i."""
    shape = tuple(x.shape)
    split = reshape(xp, x, tuple(itertools.chain.from_iterable((1, size) for size in shape)))
    wide = xp.broadcast_to(split, tuple(itertools.chain.from_iterable(zip(repeats, shape, strict=True))))
    return reshape(xp, wide, tuple(n * size for n, size in zip(repeats, shape, strict=True)))


def repeat(xp: Namespace, x: Array, counts: int | Ints, axis: int) -> Array:
    """Repeat each element of ``x`` along ``axis``; ``counts`` is the number of copies, or the number for each element."""
    return xp.take(x, to_namespace(xp, np.repeat(np.arange(x.shape[axis]), counts), x), axis=axis)


def triangle(xp: Namespace, x: Array, diagonal: int = 0, upper: bool = True) -> Array:
    """Return the upper (lower) triangle of the trailing matrices of ``x`` from a diagonal, zero elsewhere."""
    rows, columns = x.shape[-2:]
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    keep = distance >= diagonal if upper else distance <= diagonal
    return xp.where(to_namespace(xp, keep, x), x, full(xp, (), 0, x))


def one_hot(xp: Namespace, indices: Array, depth: int, on: Array, off: Array, axis: int = -1, negative: bool = True) -> Array:
    """One-hot encode: a new axis of size ``depth`` holds ``on`` at the index and ``off`` elsewhere.

    An index out of range gives ``off`` everywhere. With ``negative``, indices in [-depth, -1] count from the back. ``on`` and
    ``off`` are 0-d arrays; the result has their element type.
    """
    wide = convert_dtype(xp, indices, index_type(xp)) if element(indices).is_integer else indices
    wide = xp.where(wide < 0, wide + depth, wide) if negative else wide
    places = convert_dtype(xp, to_namespace(xp, np.arange(depth), indices), wide.dtype)
    hot = xp.where(wide[..., None] == places, on, off)
    return xp.moveaxis(hot, -1, axis)
