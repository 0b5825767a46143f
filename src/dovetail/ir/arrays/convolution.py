"""Convolution and its transpose."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

import numpy as np

from dovetail.ir.arrays.backends import Array, Ints, Namespace, element, full, is_numpy, is_rounding, library_name, widen
from dovetail.ir.arrays.casts import cast
from dovetail.ir.arrays.movement import between, pad, slice_axis
from dovetail.ir.arrays.windows import at_offset, offsets, window_counts, window_view

# Bytes of the im2col columns of one block: small enough to stay in cache, large enough for an efficient matrix product.
_BLOCK_BYTES = 1 << 22
_CACHED_ELEMENTS = 1 << 16

Runner: TypeAlias = Callable[[Iterable[Callable[[], object]]], None]
"""A function that runs independent tasks, in any order or at once, and returns when all have ended."""


def run_in_order(tasks: Iterable[Callable[[], object]]) -> None:
    """Run tasks one after the other."""
    for task in tasks:
        task()


def convolve(
    xp: Namespace, x: Array, w: Array, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints, group: int = 1
) -> Array:
    """Cross-correlate ``x`` [N, C, *spatial], zero-padded (negative pads crop), and ``w`` [O, C/group, *kernel].

    The result is [N, O, *outs] of ``x``'s type. Integers are exact modulo 2**bits; f16, bf16 and f8 are summed in f32 and
    rounded once; other floats are summed in the precision of their type. The gradient with respect to ``w`` is also a
    convolution: of ``x`` as [C/group, group*N, *spatial] with the incoming gradient as [O, N, *outs], where strides and
    dilations are swapped and the result is cropped to the kernel.
    """
    kind = element(x)
    if widen(xp, x) is not x:
        wide = convolve(xp, widen(xp, x), widen(xp, w), strides, pads_begin, pads_end, dilations, group)
        return cast(xp, wide, kind, saturate=False)
    if is_rounding(xp):
        return xp.convolve(x, w, strides, pads_begin, pads_end, dilations, group)
    if library_name(xp) == "jax":
        pads = list(zip(pads_begin, pads_end, strict=True))
        lax = sys.modules["jax"].lax
        return lax.conv_general_dilated(x, w, strides, pads, None, dilations, None, group, precision="highest")
    is_empty = _is_empty(x, w, strides, pads_begin, pads_end, dilations)
    x = pad(xp, x, (0, 0, *pads_begin), (0, 0, *pads_end))
    if library_name(xp) == "torch" and kind.is_float and 3 <= x.ndim <= 5 and not is_empty:
        # The padding is already applied: torch pads both sides equally and does not crop.
        function = getattr(sys.modules["torch"].nn.functional, f"conv{x.ndim - 2}d")
        return function(x, w, None, tuple(strides), 0, tuple(dilations), group)
    if not is_numpy(xp):
        return _convolve_offsets(xp, x, w, strides, dilations, group)
    if kind.is_integer and _fits_f64(x, w):
        wide = convolve_blocks(x.astype(np.float64), w.astype(np.float64), strides, dilations, group)
        return wide.astype(np.int64).astype(kind.numpy)
    return convolve_blocks(x, w, strides, dilations, group)


def _is_empty(x: Array, w: Array, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints) -> bool:
    """Return whether an operand or the result of a convolution has no elements."""
    padded = [begin + size + end for size, begin, end in zip(x.shape[2:], pads_begin, pads_end, strict=True)]
    return 0 in (*x.shape, *w.shape, *window_counts(padded, w.shape[2:], strides, dilations))


def _fits_f64(x: Array, w: Array) -> bool:
    """Return whether f64, for which BLAS exists, represents every partial sum of the integer products exactly."""
    if not x.size or not w.size:
        return False
    largest = [max(abs(int(array.min())), abs(int(array.max()))) for array in (x, w)]
    return bool(math.prod(largest) * math.prod(w.shape[1:]) < 2**53)


def _convolve_offsets(xp: Namespace, x: Array, w: Array, strides: Ints, dilations: Ints, group: int) -> Array:
    """Convolve by one matrix product per kernel position."""
    batch, outputs, kernel = x.shape[0], w.shape[0], w.shape[2:]
    outs = window_counts(x.shape[2:], kernel, strides, dilations)
    total = full(xp, (batch, group, outputs // group, math.prod(outs)), 0, x)
    for offset in offsets(kernel):
        part = xp.reshape(at_offset(x, offset, outs, strides, dilations), (batch, group, x.shape[1] // group, math.prod(outs)))
        total = total + xp.matmul(xp.reshape(w[(..., *offset)], (group, outputs // group, w.shape[1])), part)
    return xp.reshape(total, (batch, outputs, *outs))


def convolve_blocks(
    x: Array, w: Array, strides: Ints, dilations: Ints, group: int, run: Runner = run_in_order, parts: int = 1
) -> Array:
    """Convolve a padded ``x`` in numpy by blocked im2col: multiply the weight matrix by columns of windows.

    Blocks of the result are the tasks of ``run``; products of one kernel element are divided into ``parts``.
    """
    batch, channels, kernel = x.shape[0], w.shape[1], w.shape[2:]
    outs = window_counts(x.shape[2:], kernel, strides, dilations)
    x = x.reshape(batch, group, channels, *x.shape[2:])
    weights = w.reshape(group, w.shape[0] // group, channels, *kernel)
    if channels == 1 and weights.shape[1] <= 4:
        result = np.zeros((batch, *weights.shape[:2], *outs), x.dtype)
        _convolve_depthwise(x, weights, strides, dilations, result, run)
    elif math.prod(kernel) == 1:
        pixels = at_offset(x, (0,) * len(kernel), outs, strides, dilations).reshape(batch, group, channels, -1 if x.size else 0)
        result = multiply_matrices(weights.reshape(*weights.shape[:3]), pixels, run, parts)
    else:
        result = np.zeros((batch, *weights.shape[:2], *outs), x.dtype)
        if result.size:
            windows = window_view(x, outs, kernel, strides, dilations)
            rows = weights.reshape(*weights.shape[:2], math.prod(weights.shape[2:]))
            _convolve_columns(windows, rows, len(kernel), result, run, parts)
    return result.reshape(batch, w.shape[0], *outs)


def _convolve_depthwise(x: Array, weights: Array, strides: Ints, dilations: Ints, result: Array, run: Runner) -> None:
    """Convolve depthwise: multiply and add per kernel position, in blocks of groups whose results fit the cache."""
    kernel, outs = weights.shape[3:], result.shape[3:]
    step = max(1, _CACHED_ELEMENTS // max(1, result[:, :1].size))

    def convolve_groups(part: slice) -> None:
        product = np.empty_like(result[:, part])
        for offset in offsets(kernel):
            scale = weights[(part, slice(None), 0, *offset)]
            scale = scale.reshape(1, *scale.shape, *(1,) * len(outs))
            np.multiply(at_offset(x[:, part], offset, outs, strides, dilations), scale, out=product)
            result[:, part] += product

    run([partial(convolve_groups, slice(start, start + step)) for start in range(0, result.shape[1], step)])


def _convolve_columns(windows: Array, weights: Array, spatial: int, result: Array, run: Runner, parts: int) -> None:
    """Multiply ``windows`` [N, G, C, *outs, *kernel] by ``weights`` [G, O, C*kernel] into ``result`` [N, G, O, *outs]."""
    rows = result.shape[3]
    row_bytes = max(1, windows[:1, :, :, :1].size * windows.itemsize)
    row_step = min(rows, max(1, _BLOCK_BYTES // row_bytes))
    batch_step = max(1, _BLOCK_BYTES // (row_bytes * rows))

    def multiply(image: int, row: int) -> None:
        block = (slice(image, image + batch_step), slice(None), slice(None), slice(row, row + row_step))
        columns = _columns(windows[block], spatial)
        result[block] = np.matmul(weights, columns).reshape(result[block].shape)

    blocks = list(itertools.product(range(0, len(windows), batch_step), range(0, rows, row_step)))
    if len(blocks) >= parts:
        run([partial(multiply, *block) for block in blocks])
        return
    columns = _columns(windows, spatial)
    result[...] = multiply_matrices(weights, columns, run, parts).reshape(result.shape)


PART_PRODUCTS = 1 << 20
"""The minimum number of multiply-adds of one part of a product that is divided among threads."""


def multiply_matrices(x: Array, y: Array, run: Runner = run_in_order, parts: int = 1) -> Array:
    """Multiply matrices in numpy, in up to ``parts`` tasks of ``run``: parts of an axis of the batch, the rows or the columns."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*batch, x.shape[-2], y.shape[-1])
    parts = min(parts, math.prod(shape) * x.shape[-1] // PART_PRODUCTS)
    if parts < 2:
        return np.matmul(x, y)
    rows, columns = len(shape) - 2, len(shape) - 1
    axis = next((axis for axis, size in enumerate(batch) if size >= parts), rows if shape[rows] >= shape[columns] else columns)
    result = np.empty(shape, x.dtype)

    def multiply(part: slice) -> None:
        left = x if axis == columns else _part_of(x, axis - len(shape), part)
        right = y if axis == rows else _part_of(y, axis - len(shape), part)
        np.matmul(left, right, out=_part_of(result, axis - len(shape), part))

    bounds = [shape[axis] * number // parts for number in range(parts + 1)]
    run([partial(multiply, slice(*pair)) for pair in itertools.pairwise(bounds)])
    return result


def _part_of(x: Array, axis: int, part: slice) -> Array:
    """Return a part of an axis counted from the end; all of an array that broadcasts along it."""
    if -axis > x.ndim or x.shape[axis] == 1:
        return x
    return x[(..., part, *(slice(None),) * (-axis - 1))]


def _columns(windows: Array, spatial: int) -> Array:
    """Reshape windows [N, G, C, *outs, *kernel] to matrices [N, G, C*kernel, outs].

    The innermost axis of the copy is the longer of the last output axis and the last kernel axis.
    """
    batch, group, channels = windows.shape[:3]
    outs, kernel = tuple(range(3, 3 + spatial)), tuple(range(3 + spatial, 3 + 2 * spatial))
    count = math.prod(windows.shape[3 : 3 + spatial])
    depth = channels * math.prod(windows.shape[3 + spatial :])
    if windows.shape[2 + spatial] >= windows.shape[-1]:
        return windows.transpose(0, 1, 2, *kernel, *outs).reshape(batch, group, depth, count)
    return windows.transpose(0, 1, *outs, 2, *kernel).reshape(batch, group, count, depth).swapaxes(2, 3)


def convolve_transpose(
    xp: Namespace,
    x: Array,
    w: Array,
    strides: Ints,
    pads_begin: Ints,
    pads_end: Ints,
    output_padding: Ints,
    dilations: Ints,
    group: int = 1,
) -> Array:
    """Compute the transpose of :func:`convolve`: ``x`` [N, C, *spatial], ``w`` [C, O/group, *kernel] to [N, O, *outs].

    outs = (dim - 1) * stride + (kernel - 1) * dilation + 1 - pad_begin - pad_end + output_padding. ``output_padding`` adds
    elements at the end of an axis, negative pads at their side. Result type and precision are those of :func:`convolve`.
    """
    if widen(xp, x) is not x:
        args = (strides, pads_begin, pads_end, output_padding, dilations, group)
        return cast(xp, convolve_transpose(xp, widen(xp, x), widen(xp, w), *args), element(x), saturate=False)
    if 0 in x.shape[2:]:
        # No element of x contributes to the result, so that all elements of the result are 0.
        reaches = [(size - 1) * dilation + 1 for size, dilation in zip(w.shape[2:], dilations, strict=True)]
        cuts = [a + b - extra for a, b, extra in zip(pads_begin, pads_end, output_padding, strict=True)]
        rows = zip(x.shape[2:], strides, reaches, cuts, strict=True)
        outs = [max((size - 1) * stride + reach - cut, 0) for size, stride, reach, cut in rows]
        return full(xp, (x.shape[0], w.shape[1] * group, *outs), 0, x)
    begins = [-n for n in pads_begin]
    ends = [extra - n for extra, n in zip(output_padding, pads_end, strict=True)]
    if is_numpy(xp):
        uncropped = _convolve_back(x, w, strides, dilations, group)
        return pad(xp, uncropped, (0, 0, *begins), (0, 0, *ends))
    reach = [(size - 1) * dilation for size, dilation in zip(w.shape[2:], dilations, strict=True)]
    spread = _spread(xp, x, strides)
    begins, ends = ([a + b for a, b in zip(reach, pads, strict=True)] for pads in (begins, ends))
    return convolve(xp, spread, _flip_kernel(xp, w, group), (1,) * len(strides), begins, ends, dilations, group)


def _convolve_back(x: Array, w: Array, strides: Ints, dilations: Ints, group: int) -> Array:
    batch, dims, kernel = x.shape[0], x.shape[2:], w.shape[2:]
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    pixels = x.reshape(batch, group, weights.shape[1], math.prod(dims))
    sizes = [
        max((n - 1) * stride + 1, 0) + (size - 1) * dilation
        for n, stride, size, dilation in zip(dims, strides, kernel, dilations, strict=True)
    ]
    result = np.zeros((batch, group, w.shape[1], *sizes), x.dtype)
    for offset in offsets(kernel):
        part = np.matmul(weights[(..., *offset)].swapaxes(1, 2), pixels)
        at_offset(result, offset, dims, strides, dilations)[...] += part.reshape(batch, group, w.shape[1], *dims)
    return result.reshape(batch, group * w.shape[1], *sizes)


def _spread(xp: Namespace, x: Array, strides: Ints) -> Array:
    """Insert stride - 1 zeros between the elements of ``x`` along every trailing axis."""
    for axis, stride in enumerate(strides, x.ndim - len(strides)):
        size, shape = x.shape[axis], x.shape
        x = xp.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        x = between(xp, (0, x, stride - 1), axis + 1, 0)
        x = xp.reshape(x, (*shape[:axis], size * stride, *shape[axis + 1 :]))
        x = slice_axis(xp, x, axis, 0, max((size - 1) * stride + 1, 0))
    return x


def _flip_kernel(xp: Namespace, w: Array, group: int) -> Array:
    """Transpose weights [C, O/group, *kernel] to [O, C/group, *kernel] and flip the kernel."""
    inputs, outputs, kernel = w.shape[0] // group, w.shape[1], w.shape[2:]
    w = xp.reshape(w, (group, inputs, outputs, *kernel))
    w = xp.permute_dims(w, (0, 2, 1, *range(3, w.ndim)))
    return xp.flip(xp.reshape(w, (group * outputs, inputs, *kernel)), axis=tuple(range(2, w.ndim - 1)))
