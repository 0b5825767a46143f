"""Sliding windows over the trailing axes of an array."""

from __future__ import annotations

import itertools

import numpy as np

from dovetail.ir.arrays.backends import Array, Ints, Namespace, is_numpy, to_namespace


def sliding_windows(xp: Namespace, x: Array, sizes: Ints, strides: Ints | None = None, dilations: Ints | None = None) -> Array:
    """Return every window of ``sizes`` over the trailing axes of ``x``: [..., *outs, *sizes], where outs are the window counts.

    For numpy the result is a read-only view of ``x``.
    """
    count = len(sizes)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    outs = window_counts(x.shape[x.ndim - count :], sizes, strides, dilations)
    if is_numpy(xp):
        return window_view(x, outs, sizes, strides, dilations)
    first = x.ndim - count
    for i, (out, size, stride, dilation) in enumerate(zip(outs, sizes, strides, dilations, strict=True)):
        positions = np.arange(out)[:, None] * stride + np.arange(size) * dilation
        axis = first + 2 * i
        taken = xp.take(x, to_namespace(xp, positions.reshape(-1), x), axis=axis)
        x = xp.reshape(taken, (*x.shape[:axis], out, size, *x.shape[axis + 1 :]))
    order = (*range(first), *range(first, first + 2 * count, 2), *range(first + 1, first + 2 * count, 2))
    return xp.permute_dims(x, order)


def window_counts(dims: Ints, sizes: Ints, strides: Ints, dilations: Ints) -> tuple[int, ...]:
    """Return the number of windows along each axis: floor((dim - extent) / stride) + 1; 0 where the extent exceeds the axis."""
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    return tuple(max((n - extent) // stride + 1, 0) for n, extent, stride in zip(dims, extents, strides, strict=True))


def window_view(x: Array, outs: Ints, sizes: Ints, strides: Ints, dilations: Ints) -> Array:
    first = x.ndim - len(sizes)
    steps = x.strides[first:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:first], *outs, *sizes),
        (
            *x.strides[:first],
            *(step * stride for step, stride in zip(steps, strides, strict=True)),
            *(step * dilation for step, dilation in zip(steps, dilations, strict=True)),
        ),
        writeable=False,
    )


def offsets(sizes: Ints) -> itertools.product[tuple[int, ...]]:
    """Return an iterator over the positions in a window, in row-major order."""
    return itertools.product(*map(range, sizes))


def at_offset(x: Array, offset: Ints, outs: Ints, strides: Ints, dilations: Ints) -> Array:
    """Return the element at position ``offset`` of every window over the trailing axes of ``x``: [..., *outs]."""
    starts = [position * dilation for position, dilation in zip(offset, dilations, strict=True)]
    stops = [start + max((out - 1) * stride + 1, 0) for start, out, stride in zip(starts, outs, strides, strict=True)]
    return x[(..., *map(slice, starts, stops, strides))]
