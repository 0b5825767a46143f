"""Pooling by windows over the trailing axes. A window may begin in the padding; the caller sets the number of windows."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from dovetail.ir.arrays.backends import Array, Ints, Namespace, convert_dtype, element, full, index_type, is_numpy, to_namespace
from dovetail.ir.arrays.indexing import row_steps
from dovetail.ir.arrays.movement import pad, slice_axis
from dovetail.ir.arrays.windows import at_offset, window_counts
from dovetail.ir.dtypes import DType


def pool_max(xp: Namespace, x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> Array:
    """Return the maximum of every window, ignoring padding: [..., *outs].

    A window that contains only padding gives the lowest value of the type.
    """
    axes = _axes(x, sizes, strides, pads_begin, pads_end, dilations)
    return _reduce_windows(xp, _pad_trailing(xp, x, axes, _lowest(element(x))), axes, xp.maximum)


def pool_sum(xp: Namespace, x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> Array:
    """Return the sum of every window [..., *outs], with padding as 0, accumulated in the type of ``x`` (see :func:`widen`)."""
    axes = _axes(x, sizes, strides, pads_begin, pads_end, dilations)
    return _reduce_windows(xp, _pad_trailing(xp, x, axes, 0), axes, xp.add)


class WindowAxis(NamedTuple):
    """WindowAxis describes the windows along one axis of ``length`` elements.

    ``size`` is the kernel size, ``begin`` the padding before the axis and ``out`` the number of windows.
    """

    length: int
    size: int
    stride: int
    dilation: int
    begin: int
    out: int

    def counts(self, low: int, high: int) -> Any:
        """Return for each window the number of kernel positions whose input index is in [low, high); the shape is [out]."""
        starts = np.arange(self.out) * self.stride - self.begin
        first, last = (np.clip(-((starts - bound) // self.dilation), 0, self.size) for bound in (low, high))
        return np.maximum(last - first, 0)

    def trim(self) -> WindowAxis:
        """Drop the leading and trailing kernel positions that are padding in every window, but keep one position."""
        if not self.out:
            return self
        first = max(-(-(self.begin - (self.out - 1) * self.stride) // self.dilation), 0)
        last = min(-(-(self.begin + self.length) // self.dilation), self.size)
        if last <= first:
            return self._replace(size=1)
        return self._replace(size=last - first, begin=self.begin - first * self.dilation)

    @property
    def end(self) -> int:
        """The number of padding elements after the axis that the last window covers."""
        if not self.out:
            return 0
        return max((self.out - 1) * self.stride, 0) + (self.size - 1) * self.dilation + 1 - self.length - self.begin

    def offsets(self) -> Iterable[int]:
        """Return the kernel positions in ascending order, without most positions that are in the padding for every window."""
        if self.size <= self.out * self.length:
            return range(self.size)
        starts = np.arange(self.out) * self.stride - self.begin
        inside = -(-(np.arange(self.length)[:, None] - starts) // self.dilation)
        return [int(offset) for offset in np.unique(inside) if 0 <= offset < self.size] or (0,)


def _axes(x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> list[WindowAxis]:
    dims = x.shape[x.ndim - len(sizes) :]
    padded = [begin + n + end for n, begin, end in zip(dims, pads_begin, pads_end, strict=True)]
    outs = window_counts(padded, sizes, strides, dilations)
    return [WindowAxis(*row).trim() for row in zip(dims, sizes, strides, dilations, pads_begin, outs, strict=True)]


def pool_max_indices(
    xp: Namespace, x: Array, sizes: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints
) -> tuple[Array, Array]:
    """Return the maxima of :func:`pool_max`, and the row-major index of each maximum's first occurrence in the trailing axes.

    NaN counts as the greatest value. A window that contains only padding has index 0. Indices are int64 (int32 in JAX without
    x64).
    """
    axes = _axes(x, sizes, strides, pads_begin, pads_end, dilations)
    dims, outs = [axis.length for axis in axes], [axis.out for axis in axes]
    strides, dilations = [axis.stride for axis in axes], [axis.dilation for axis in axes]
    begins = [axis.begin for axis in axes]
    padded = _pad_trailing(xp, x, axes, _lowest(element(x)))
    best = full(xp, (*x.shape[: x.ndim - len(sizes)], *outs), _lowest(element(x)), x)
    indices = xp.zeros_like(best, dtype=index_type(xp))
    seen = np.zeros(outs, bool)
    for offset in itertools.product(*(axis.offsets() for axis in axes)):
        real = functools.reduce(np.logical_and.outer, [_is_inside(axis, i) for axis, i in zip(axes, offset, strict=True)])
        value = at_offset(padded, offset, outs, strides, dilations)
        better = (value > best) | ((value != value) & (best == best)) | to_namespace(xp, ~seen, x)
        better = better & to_namespace(xp, real, x)
        offsets = _window_indices(dims, offset, outs, strides, begins, dilations)
        best = xp.where(better, value, best)
        indices = xp.where(better, convert_dtype(xp, to_namespace(xp, offsets, x), indices.dtype), indices)
        seen |= real
    return best, indices


def _lowest(kind: DType) -> Any:
    if kind == "boolean":
        return False
    return -math.inf if kind.is_float else kind.range()[0]


def _pad_trailing(xp: Namespace, x: Array, axes: list[WindowAxis], value: float) -> Array:
    others = (0,) * (x.ndim - len(axes))
    return pad(xp, x, (*others, *(axis.begin for axis in axes)), (*others, *(axis.end for axis in axes)), "constant", value)


def _reduce_windows(xp: Namespace, x: Array, axes: list[WindowAxis], combine: Callable[[Array, Array], Array]) -> Array:
    """Reduce one axis after the other, so that a window of k by k elements costs 2k steps."""
    for number, axis in enumerate(axes, x.ndim - len(axes)):
        extent = max((axis.out - 1) * axis.stride + 1, 0)
        starts = [offset * axis.dilation for offset in axis.offsets()]
        x = _combine(xp, [slice_axis(xp, x, number, start, start + extent, axis.stride) for start in starts], combine)
    return x


def _combine(xp: Namespace, parts: list[Array], combine: Any) -> Array:
    if not is_numpy(xp) or len(parts) < 3:
        return functools.reduce(combine, parts)
    result = combine(parts[0], parts[1])
    for part in parts[2:]:
        combine(result, part, out=result)
    return result


def _is_inside(axis: WindowAxis, offset: int) -> Array:
    """Return for each window whether the kernel position ``offset`` is inside the axis and not in the padding; shape [out]."""
    positions = np.arange(axis.out) * axis.stride + offset * axis.dilation - axis.begin
    return (positions >= 0) & (positions < axis.length)


def _window_indices(dims: Ints, offset: Ints, outs: Ints, strides: Ints, pads_begin: Ints, dilations: Ints) -> Array:
    """Return for every window the row-major index, in the unpadded axes, of the element at kernel position ``offset``."""
    indices = np.zeros((1,) * len(dims), np.int64)
    for axis, step in enumerate(row_steps(dims)):
        along = (np.arange(outs[axis]) * strides[axis] + offset[axis] * dilations[axis] - pads_begin[axis]) * step
        indices = indices + along.reshape((-1,) + (1,) * (len(dims) - 1 - axis))
    return indices
