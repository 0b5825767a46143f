"""Pooling: windows over the trailing axes of x. A window may begin in the padding; a rule for how many is the caller's."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from dovetail.arrays.indexing import row_steps
from dovetail.arrays.libraries import Array, Ints, Namespace, element, filled, index_type, is_numpy, placed, retyped
from dovetail.arrays.movement import pad, slice_axis
from dovetail.arrays.windows import at_offset, offsets, window_counts
from dovetail.dtypes import DType


def pool_max(xp: Namespace, x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> Array:
    """The greatest element of every window [..., *outs]; padding is never chosen (a window of padding alone is the lowest)."""
    padded = _pad_trailing(xp, x, pads_begin, pads_end, _lowest(element(x)))
    return _reduce_windows(xp, padded, sizes, strides, dilations, xp.maximum)


def pool_sum(xp: Namespace, x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> Array:
    """The sum of every window [..., *outs], padding counting as 0, in ``x``'s own type (see :func:`widened`)."""
    return _reduce_windows(xp, _pad_trailing(xp, x, pads_begin, pads_end, 0), sizes, strides, dilations, xp.add)


def pool_count(xp: Namespace, x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> Array:
    """How many elements of every window are not padding: [*outs], of ``x``'s type."""
    valid = _valid(x.shape[x.ndim - len(sizes) :], sizes, strides, pads_begin, pads_end, dilations)
    counts = functools.reduce(np.multiply.outer, [item.sum(axis=1) for item in valid])
    return placed(xp, counts.astype(element(x).numpy), x)


def pool_max_indices(
    xp: Namespace, x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints
) -> tuple[Array, Array]:
    """:func:`pool_max`, and where in the trailing axes of ``x`` (flattened, row-major) its first occurrence stands.

    NaN counts as greatest. A window of padding alone has index 0. Indices are int64 (int32 in JAX without x64).
    """
    dims = x.shape[x.ndim - len(sizes) :]
    valid = _valid(dims, sizes, strides, pads_begin, pads_end, dilations)
    padded = _pad_trailing(xp, x, pads_begin, pads_end, _lowest(element(x)))
    outs = [len(item) for item in valid]
    best = filled(xp, (*x.shape[: x.ndim - len(sizes)], *outs), _lowest(element(x)), x)
    where = xp.zeros_like(best, dtype=index_type(xp))
    seen = np.zeros(outs, bool)
    for offset in offsets(sizes):
        real = functools.reduce(np.logical_and.outer, [item[:, i] for item, i in zip(valid, offset, strict=True)])
        value = at_offset(padded, offset, outs, strides, dilations)
        better = (value > best) | ((value != value) & (best == best)) | placed(xp, ~seen, x)
        better = better & placed(xp, real, x)
        place = _window_places(dims, offset, outs, strides, pads_begin, dilations)
        best = xp.where(better, value, best)
        where = xp.where(better, retyped(xp, placed(xp, place, x), where.dtype), where)
        seen |= real
    return best, where


def _lowest(kind: DType) -> Any:
    if kind == "boolean":
        return False
    return -math.inf if kind.is_float else kind.range()[0]


def _pad_trailing(xp: Namespace, x: Array, pads_begin: Ints, pads_end: Ints, value: Any) -> Array:
    others = (0,) * (x.ndim - len(pads_begin))
    return pad(xp, x, (*others, *pads_begin), (*others, *pads_end), "constant", value)


def _reduce_windows(xp: Namespace, x: Array, sizes: Ints, strides: Ints, dilations: Ints, combine: Any) -> Array:
    """Axis after axis, so that a window of k by k costs 2k steps."""
    for axis, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True), x.ndim - len(sizes)):
        (out,) = window_counts((x.shape[axis],), (size,), (stride,), (dilation,))
        extent = max((out - 1) * stride + 1, 0)
        parts = [slice_axis(xp, x, axis, i * dilation, i * dilation + extent, stride) for i in range(size)]
        x = _combine(xp, parts, combine)
    return x


def _combine(xp: Namespace, parts: list[Array], combine: Any) -> Array:
    if not is_numpy(xp) or len(parts) < 3:
        return functools.reduce(combine, parts)
    result = combine(parts[0], parts[1])
    for part in parts[2:]:
        combine(result, part, out=result)
    return result


def _valid(dims: Ints, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> list[Array]:
    """Per axis [out, size]: whether that place of that window is inside and not padding."""
    padded = [begin + n + end for n, begin, end in zip(dims, pads_begin, pads_end, strict=True)]
    outs = window_counts(padded, sizes, strides, dilations)
    result = []
    for n, out, size, stride, begin, dilation in zip(dims, outs, sizes, strides, pads_begin, dilations, strict=True):
        places = np.arange(out)[:, None] * stride + np.arange(size) * dilation - begin
        result.append((places >= 0) & (places < n))
    return result


def _window_places(dims: Ints, offset: Ints, outs: Ints, strides: Ints, pads_begin: Ints, dilations: Ints) -> Array:
    """The row-major place, in the unpadded axes, of what every window has at ``offset``."""
    places = np.zeros((1,) * len(dims), np.int64)
    for axis, step in enumerate(row_steps(dims)):
        along = (np.arange(outs[axis]) * strides[axis] + offset[axis] * dilations[axis] - pads_begin[axis]) * step
        places = places + along.reshape((-1,) + (1,) * (len(dims) - 1 - axis))
    return places
