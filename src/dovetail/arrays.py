"""What the array API standard lacks, portably.

A rule's ``evaluate(self, xp, *xs)`` uses the standard's functions of the namespace ``xp`` and the functions below, each of
which takes ``xp`` first. Everything has a version over the standard that writes into no array (JAX's are immutable), and
where it pays a quick one for numpy. Types outside the standard (bf16, f8, 4-bit, strings) are known to numpy only; any other
library refuses them by name.

Errors: UnsupportedError [array.library], [array.dtype], [array.narrowed], [array.cast]; EngineError [array.index-range],
[array.pad-empty], [array.divide-by-zero], [array.not-a-number].
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import EngineError, UnsupportedError

Array: TypeAlias = Any
Namespace: TypeAlias = Any
Ints: TypeAlias = Sequence[int]

# Columns of one convolution block: small enough to stay in cache, large enough for the matrix product to run at full speed.
_BLOCK_BYTES = 1 << 22
_CACHED_ELEMENTS = 1 << 16


# Libraries, types and conversion


def is_numpy(xp: Namespace) -> bool:
    """Whether ``xp`` is numpy, as itself or wrapped by array_api_compat."""
    return xp is np or getattr(xp, "__name__", "") == "array_api_compat.numpy"


def namespace(array: Array) -> Namespace:
    """The array API namespace that ``array`` belongs to; numpy itself for numpy's arrays and scalars.

    Raises UnsupportedError [array.library] where there is none.
    """
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    import array_api_compat

    try:
        return array_api_compat.array_namespace(array)
    except TypeError:
        raise UnsupportedError(
            "array.library", f"{type(array).__name__} belongs to no array library that dovetail knows"
        ) from None


def standard(xp: Namespace) -> Namespace:
    """The array API namespace of a library: torch, cupy and dask.array through array_api_compat, numpy as it is, any other
    module (jax.numpy, array_api_strict) as it stands. ``jax`` and ``dask`` mean their array modules.

    Raises UnsupportedError [array.library] for what is no namespace of the standard.
    """
    name = str(getattr(xp, "__name__", type(xp).__name__))
    if name in ("numpy", "array_api_compat.numpy"):
        return np
    wrapped_name = {"dask": "dask.array"}.get(name, name)
    if wrapped_name in ("torch", "cupy", "dask.array"):
        return importlib.import_module(f"array_api_compat.{wrapped_name}")
    if name == "jax":
        return importlib.import_module("jax.numpy")
    if not all(hasattr(xp, function) for function in ("asarray", "concat", "reshape", "permute_dims", "astype")):
        raise UnsupportedError("array.library", f"{name} is no namespace of the array API standard")
    return xp


def element(array: Array) -> DType:
    """The element type of an array of any library (u1, u3, u6 and nf4 codes read as the u8 they travel in)."""
    kind = array.dtype
    return dtypes.dtype(kind if isinstance(kind, np.dtype) else str(kind).rsplit(".", 1)[-1])


def dtype_in(xp: Namespace, dtype: DType) -> Any:
    """What ``xp`` calls the element type ``dtype``.

    Raises UnsupportedError [array.dtype] for a type that the library lacks, [array.narrowed] where JAX without x64 would
    silently take a narrower one.
    """
    if is_numpy(xp):
        return dtype.numpy
    if not dtype.standard or not hasattr(xp, dtype.numpy.name):
        raise UnsupportedError("array.dtype", f"{_library(xp)} cannot hold {dtype} exactly; numpy can")
    if _is_narrow(xp) and dtype in ("f64", "i64", "u64", "complex128"):
        raise UnsupportedError("array.narrowed", f"{_library(xp)} without x64 would narrow {dtype}; enable jax_enable_x64")
    return getattr(xp, dtype.numpy.name)


def to_numpy(array: Array) -> Array:
    """``array`` as numpy, from any library or anything with ``__array__`` or ``__dlpack__``; strings as objects."""
    if hasattr(array, "detach"):
        return _torch_to_numpy(array.detach().cpu())
    if hasattr(array, "__cuda_array_interface__"):
        array = array.get()
    if not hasattr(array, "__array__") and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
    result = np.asarray(array)
    return result.astype(object) if result.dtype.kind in "UT" else result


def from_numpy(xp: Namespace, array: Array, like: Array = None) -> Array:
    """A numpy array as one of ``xp``, on the device of ``like`` where that is given. Raises as :func:`dtype_in`."""
    if is_numpy(xp):
        return array
    dtype_in(xp, element(array))
    return _place(xp, array, like)


def _library(xp: Namespace) -> str:
    return str(getattr(xp, "__name__", xp)).removeprefix("array_api_compat.").split(".")[0]


def _is_narrow(xp: Namespace) -> bool:
    return _library(xp) == "jax" and not sys.modules["jax"].config.jax_enable_x64


def _torch_to_numpy(array: Array) -> Array:
    kind = element(array)
    if kind.standard or kind == "f16":
        return array.numpy()
    integer = getattr(sys.modules["torch"], f"uint{kind.bits}")
    return array.view(integer).numpy().view(kind.numpy)


def _place(xp: Namespace, array: Array, like: Array = None) -> Array:
    """A numpy array in ``xp``. Index arrays come through here unchecked: without x64 JAX counts in int32, and they fit."""
    if is_numpy(xp):
        return array
    # torch shares the memory it is given, warns when that is read-only, and has no negative strides.
    array = np.ascontiguousarray(array).reshape(array.shape) if array.flags.writeable else array.copy()
    device = getattr(like, "device", None)
    return xp.asarray(array) if device is None else xp.asarray(array, device=device)


def _index_type(xp: Namespace) -> Any:
    return xp.int32 if _is_narrow(xp) else xp.int64


def _retyped(xp: Namespace, x: Array, kind: Any) -> Array:
    """``x`` as the library's type ``kind``; numpy's own astype refuses the scalars that its arithmetic yields."""
    return np.asarray(x).astype(kind, copy=False) if is_numpy(xp) else xp.astype(x, kind, copy=False)


def _filled(xp: Namespace, shape: Ints, value: Any, like: Array) -> Array:
    """An array of ``like``'s type and device that holds ``value`` (a number, or an array of no dimensions) everywhere."""
    if not hasattr(value, "dtype"):
        value = _place(xp, np.asarray(value, dtype=element(like).numpy), like)
    return xp.broadcast_to(_retyped(xp, value, like.dtype), tuple(shape))


def widened(xp: Namespace, x: Array) -> Array:
    """``x`` in the type that sums over it run in: f32 for floats of fewer bits, otherwise its own."""
    kind = element(x)
    return _retyped(xp, x, xp.float32) if kind.is_float and kind.bits < 32 else x


# Movement


def strided(xp: Namespace, x: Array, starts: Sequence[int | None], stops: Sequence[int | None], steps: Ints) -> Array:
    """``x[starts[0]:stops[0]:steps[0], ...]`` as Python slices mean it (None, negative steps), over the leading axes."""
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


def pad(xp: Namespace, x: Array, pads_begin: Ints, pads_end: Ints, mode: str = "constant", value: Any = 0) -> Array:
    """``x`` with ``pads_begin[i]`` elements before and ``pads_end[i]`` after its axis i; negative pads crop.

    ``mode``: "constant" (``value``, a number or an array of no dimensions), "edge", "reflect" (the border is not repeated),
    "symmetric" (it is) or "wrap". Every mode but the first says which element of ``x`` each place shows, however far away,
    as ``numpy.pad`` does; a crop on one side does not hide elements from the other.
    Raises EngineError [array.pad-empty] where there is nothing to repeat.
    """
    if mode == "constant":
        return _pad_constant(xp, x, pads_begin, pads_end, value)
    for axis, (size, begin, end) in enumerate(zip(x.shape, pads_begin, pads_end, strict=True)):
        if begin <= 0 and end <= 0:
            x = _slice_axis(xp, x, axis, -begin, max(size + end, -begin))
        elif not size:
            raise EngineError("array.pad-empty", f"axis {axis} of size 0 has nothing to pad with in mode {mode}")
        else:
            places = _REFLECTIONS[mode](np.arange(-begin, size + end), size)
            x = xp.take(x, _place(xp, places, x), axis=axis)
    return x


_REFLECTIONS: dict[str, Callable[[Array, int], Array]] = {
    "edge": lambda places, size: np.clip(places, 0, size - 1),
    "reflect": lambda places, size: (size - 1) - np.abs(places % max(2 * (size - 1), 1) - (size - 1)),
    "symmetric": lambda places, size: np.minimum(places % (2 * size), 2 * size - 1 - places % (2 * size)),
    "wrap": lambda places, size: places % size,
}


def _slice_axis(xp: Namespace, x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    if (start, stop, step) == (0, x.shape[axis], 1):
        return x
    return x[(*(slice(None),) * axis, slice(start, stop, step))]


def _pad_constant(xp: Namespace, x: Array, pads_begin: Ints, pads_end: Ints, value: Any) -> Array:
    for axis, (size, begin, end) in enumerate(zip(x.shape, pads_begin, pads_end, strict=True)):
        start, stop = min(max(0, -begin), size), max(min(size, size + end), 0)
        # A crop past everything there eats into the padding of the other side.
        before, after = max(begin, 0) + min(size + end, 0), max(end, 0) + min(size + begin, 0)
        if begin <= 0 and end <= 0:
            x = _slice_axis(xp, x, axis, start, max(start, stop))
            continue
        parts = (before, _slice_axis(xp, x, axis, start, max(start, stop)), after)
        x = _between(xp, parts, axis, value)
    return x


def _between(xp: Namespace, parts: tuple[int, Array, int], axis: int, value: Any) -> Array:
    before, x, after = parts
    shape = x.shape
    blocks = [_filled(xp, (*shape[:axis], max(n, 0), *shape[axis + 1 :]), value, x) for n in (before, after)]
    return xp.concat([blocks[0], x, blocks[1]], axis=axis)


def tile(xp: Namespace, x: Array, repeats: Ints) -> Array:
    """``x`` laid ``repeats[i]`` times end to end along each axis i."""
    shape = tuple(x.shape)
    split = xp.reshape(x, tuple(itertools.chain.from_iterable((1, size) for size in shape)))
    wide = xp.broadcast_to(split, tuple(itertools.chain.from_iterable(zip(repeats, shape, strict=True))))
    return xp.reshape(wide, tuple(n * size for n, size in zip(repeats, shape, strict=True)))


def repeat(xp: Namespace, x: Array, counts: int | Ints, axis: int) -> Array:
    """Each element of ``x`` along ``axis`` as often as ``counts`` (one number, or one per element) says."""
    return xp.take(x, _place(xp, np.repeat(np.arange(x.shape[axis]), counts), x), axis=axis)


def triangle(xp: Namespace, x: Array, diagonal: int = 0, upper: bool = True) -> Array:
    """The part of the trailing matrices of ``x`` on and above (below) a diagonal, zero elsewhere."""
    rows, columns = x.shape[-2:]
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    keep = distance >= diagonal if upper else distance <= diagonal
    return xp.where(_place(xp, keep, x), x, _filled(xp, (), 0, x))


def one_hot(xp: Namespace, indices: Array, depth: int, on: Array, off: Array, axis: int = -1, negative: bool = True) -> Array:
    """A new axis of size ``depth`` that holds ``on`` where its place equals the index and ``off`` elsewhere.

    An index outside the range gives ``off`` everywhere; with ``negative`` those in [-depth, -1] count from the back.
    ``on`` and ``off``: arrays of no dimensions, whose type the result has.
    """
    wide = _retyped(xp, indices, _index_type(xp)) if element(indices).is_integer else indices
    wide = xp.where(wide < 0, wide + depth, wide) if negative else wide
    places = _retyped(xp, _place(xp, np.arange(depth), indices), wide.dtype)
    hot = xp.where(wide[..., None] == places, on, off)
    return xp.moveaxis(hot, -1, axis)


def sliding_windows(xp: Namespace, x: Array, sizes: Ints, strides: Ints | None = None, dilations: Ints | None = None) -> Array:
    """Every window of ``sizes`` over the trailing axes of ``x``: [..., *outs, *sizes], where outs are the window counts.

    For numpy a view: nothing is copied, and it must not be written to.
    """
    count = len(sizes)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    outs = window_counts(x.shape[x.ndim - count :], sizes, strides, dilations)
    if is_numpy(xp):
        return _window_view(x, outs, sizes, strides, dilations)
    first = x.ndim - count
    for i, (out, size, stride, dilation) in enumerate(zip(outs, sizes, strides, dilations, strict=True)):
        places = np.arange(out)[:, None] * stride + np.arange(size) * dilation
        axis = first + 2 * i
        taken = xp.take(x, _place(xp, places.reshape(-1), x), axis=axis)
        x = xp.reshape(taken, (*x.shape[:axis], out, size, *x.shape[axis + 1 :]))
    order = (*range(first), *range(first, first + 2 * count, 2), *range(first + 1, first + 2 * count, 2))
    return xp.permute_dims(x, order)


def window_counts(dims: Ints, sizes: Ints, strides: Ints, dilations: Ints) -> tuple[int, ...]:
    """How many windows fit along each axis: floor((dim - extent) / stride) + 1, none where the extent is larger."""
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    return tuple(max((n - extent) // stride + 1, 0) for n, extent, stride in zip(dims, extents, strides, strict=True))


def _window_view(x: Array, outs: Ints, sizes: Ints, strides: Ints, dilations: Ints) -> Array:
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


# Indexing by arrays


def wrapped(xp: Namespace, indices: Array, size: int) -> Array:
    """``indices`` in [-size, size) as the non-negative ones they mean. Raises EngineError [array.index-range] otherwise."""
    wide = _retyped(xp, indices, _index_type(xp))
    if math.prod(wide.shape) and not bool(xp.all((wide >= -size) & (wide < size))):
        raise EngineError("array.index-range", f"an index lies outside [{-size}, {size - 1}]")
    return xp.where(wide < 0, wide + size, wide)


def take(xp: Namespace, x: Array, indices: Array, axis: int, batch_dims: int = 0) -> Array:
    """Elements of ``x`` along ``axis`` by indices of any rank: x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis+1:].

    The first ``batch_dims`` axes of both go together (OpenVINO Gather-8). Negative indices count from the back.
    Raises EngineError [array.index-range].
    """
    axis %= x.ndim
    places = wrapped(xp, indices, x.shape[axis])
    if not batch_dims:
        taken = xp.take(x, xp.reshape(places, (-1,)), axis=axis)
        return xp.reshape(taken, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    batch, between, after = x.shape[:batch_dims], x.shape[batch_dims:axis], x.shape[axis + 1 :]
    front = xp.moveaxis(x, axis, batch_dims)
    rows = gather_nd(xp, front, places[..., None], batch_dims)
    rank = indices.ndim - batch_dims
    order = (*range(batch_dims), *range(batch_dims + rank, batch_dims + rank + len(between)))
    rest = (*range(batch_dims, batch_dims + rank), *range(rows.ndim - len(after), rows.ndim))
    assert rows.ndim == len(batch) + rank + len(between) + len(after)
    return xp.permute_dims(rows, (*order, *rest))


def take_along(xp: Namespace, x: Array, indices: Array, axis: int) -> Array:
    """``x`` read at ``indices`` along ``axis`` and at its own place on every other (GatherElements); of ``indices``' shape.

    Off the axis ``indices`` may be smaller than ``x``. Raises EngineError [array.index-range].
    """
    places = _along(xp, x, indices, axis)
    taken = xp.take(xp.reshape(x, (-1,)), xp.reshape(places, (-1,)), axis=0)
    return xp.reshape(taken, tuple(indices.shape))


def gather_nd(xp: Namespace, x: Array, indices: Array, batch_dims: int = 0) -> Array:
    """The slices ``x[indices[i]]`` (GatherND): indices.shape[:-1] + x.shape[batch_dims + k:], k = indices.shape[-1].

    The first ``batch_dims`` axes of both are shared. Raises EngineError [array.index-range].
    """
    depth = batch_dims + indices.shape[-1]
    rows = xp.reshape(_linear(xp, x, indices, batch_dims), (-1,))
    flat = xp.reshape(x, (math.prod(x.shape[:depth]), math.prod(x.shape[depth:])))
    return xp.reshape(xp.take(flat, rows, axis=0), (*indices.shape[:-1], *x.shape[depth:]))


def scatter_along(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int, reduction: str = "none") -> Array:
    """``x`` with ``updates`` at ``indices`` along ``axis`` (ScatterElements); ``updates`` has ``indices``' shape.

    ``reduction``: "none" (of several updates of one place the last stays), "add", "mul", "min" or "max", applied in order.
    Raises EngineError [array.index-range].
    """
    places = xp.reshape(_along(xp, x, indices, axis), (-1,))
    column = xp.reshape(updates, (-1, 1))
    return xp.reshape(_scatter_rows(xp, xp.reshape(x, (-1, 1)), places, column, reduction), tuple(x.shape))


def scatter_nd(xp: Namespace, x: Array, indices: Array, updates: Array, reduction: str = "none") -> Array:
    """``x`` with the slices ``updates[i]`` at ``x[indices[i]]`` (ScatterND).

    ``updates``: indices.shape[:-1] + x.shape[k:], k = indices.shape[-1]. ``reduction`` and errors as :func:`scatter_along`.
    """
    depth = indices.shape[-1]
    width = math.prod(x.shape[depth:])
    rows = xp.reshape(_linear(xp, x, indices, 0), (-1,))
    flat = xp.reshape(x, (math.prod(x.shape[:depth]), width))
    values = xp.reshape(updates, (math.prod(indices.shape[:-1]), width))
    return xp.reshape(_scatter_rows(xp, flat, rows, values, reduction), tuple(x.shape))


def _row_steps(dims: Ints) -> list[int]:
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]


def _along(xp: Namespace, x: Array, indices: Array, axis: int) -> Array:
    """The row-major place in ``x`` of every element of ``indices``."""
    axis %= x.ndim
    steps = _row_steps(x.shape)
    others = np.zeros((1,) * x.ndim, np.int64)
    for i, (size, step) in enumerate(zip(indices.shape, steps, strict=True)):
        if i != axis:
            others = others + (np.arange(size) * step).reshape((-1,) + (1,) * (x.ndim - 1 - i))
    return wrapped(xp, indices, x.shape[axis]) * steps[axis] + _place(xp, others, indices)


def _linear(xp: Namespace, x: Array, indices: Array, batch_dims: int) -> Array:
    """The row-major place, among the leading axes that they index, of every tuple in the last axis of ``indices``."""
    depth = batch_dims + indices.shape[-1]
    steps = _row_steps(x.shape[:depth])
    batch = np.arange(math.prod(x.shape[:batch_dims])) * math.prod(x.shape[batch_dims:depth])
    places = batch.reshape((*x.shape[:batch_dims], *(1,) * (indices.ndim - 1 - batch_dims)))
    rows = xp.broadcast_to(_place(xp, places, indices), tuple(indices.shape[:-1]))
    for i in range(indices.shape[-1]):
        rows = rows + wrapped(xp, indices[..., i], x.shape[batch_dims + i]) * steps[batch_dims + i]
    return rows


_REDUCTIONS = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}


def _scatter_rows(xp: Namespace, x: Array, rows: Array, updates: Array, reduction: str) -> Array:
    """``x`` [m, r] with ``updates`` [n, r] at ``rows`` [n], one after the other."""
    combine = None if reduction == "none" else getattr(xp, _REDUCTIONS[reduction])
    if not is_numpy(xp):
        return _scatter_rounds(xp, x, rows, updates, combine)
    result = x.copy()
    if combine is None:
        result[rows] = updates
    else:
        with np.errstate(all="ignore"):
            combine.at(result, rows, updates)
    return result


def _scatter_rounds(xp: Namespace, x: Array, rows: Array, updates: Array, combine: Any) -> Array:
    """Scatter without writing: in round i every row of ``x`` takes the i-th update meant for it, if there is one."""
    if not rows.shape[0] or not math.prod(x.shape):
        return x
    order = xp.argsort(rows, stable=True)
    ordered, updates = xp.take(rows, order, axis=0), xp.take(updates, order, axis=0)
    places = _retyped(xp, _place(xp, np.arange(x.shape[0]), rows), ordered.dtype)
    first = xp.searchsorted(ordered, places, side="left")
    counts = xp.searchsorted(ordered, places, side="right") - first
    if combine is None:
        return _scatter_round(xp, x, updates, first + counts - 1, counts > 0, None)
    for i in range(int(xp.max(counts))):
        x = _scatter_round(xp, x, updates, first + i, counts > i, combine)
    return x


def _scatter_round(xp: Namespace, x: Array, updates: Array, which: Array, hit: Array, combine: Any) -> Array:
    mine = xp.take(updates, xp.where(hit, which, xp.zeros_like(which)), axis=0)
    return xp.where(hit[:, None], mine if combine is None else combine(x, mine), x)


# Convolution


def convolve(
    xp: Namespace, x: Array, w: Array, strides: Ints, pads_begin: Ints, pads_end: Ints, dilations: Ints, group: int = 1
) -> Array:
    """The cross-correlation of ``x`` [N, C, *spatial], zero-padded (negative pads crop), with ``w`` [O, C/group, *kernel].

    Gives [N, O, *outs] of ``x``'s type. Integers are exact modulo their width; f16, bf16 and f8 are summed in f32 and
    rounded once; other floats are summed in their own precision. The gradient with respect to ``w`` is a convolution too:
    of ``x`` as [C/group, group*N, *spatial] with the incoming gradient as [O, N, *outs], strides and dilations swapped,
    cropped to the kernel.
    """
    kind = element(x)
    if widened(xp, x) is not x:
        wide = convolve(xp, widened(xp, x), widened(xp, w), strides, pads_begin, pads_end, dilations, group)
        return cast(xp, wide, kind, saturate=False)
    if _library(xp) == "jax":
        pads = list(zip(pads_begin, pads_end, strict=True))
        lax = sys.modules["jax"].lax
        return lax.conv_general_dilated(x, w, strides, pads, None, dilations, None, group, precision="highest")
    x = pad(xp, x, (0, 0, *pads_begin), (0, 0, *pads_end))
    if not is_numpy(xp):
        return _convolve_offsets(xp, x, w, strides, dilations, group)
    if kind.is_integer and _fits_f64(x, w):
        wide = _convolve_blocks(x.astype(np.float64), w.astype(np.float64), strides, dilations, group)
        return wide.astype(np.int64).astype(kind.numpy)
    return _convolve_blocks(x, w, strides, dilations, group)


def _fits_f64(x: Array, w: Array) -> bool:
    """Whether no partial sum of the products leaves the integers that f64 holds exactly: BLAS has no integers."""
    if not x.size or not w.size:
        return False
    largest = [max(abs(int(array.min())), abs(int(array.max()))) for array in (x, w)]
    return bool(math.prod(largest) * math.prod(w.shape[1:]) < 2**53)


def _offsets(sizes: Ints) -> itertools.product[tuple[int, ...]]:
    """Every place in a window, in row-major order."""
    return itertools.product(*map(range, sizes))


def _at_offset(x: Array, offset: Ints, outs: Ints, strides: Ints, dilations: Ints) -> Array:
    """What every window over the trailing axes of ``x`` has at the place ``offset``: [..., *outs]."""
    starts = [place * dilation for place, dilation in zip(offset, dilations, strict=True)]
    stops = [start + max((out - 1) * stride + 1, 0) for start, out, stride in zip(starts, outs, strides, strict=True)]
    return x[(..., *map(slice, starts, stops, strides))]


def _convolve_offsets(xp: Namespace, x: Array, w: Array, strides: Ints, dilations: Ints, group: int) -> Array:
    """The sum over the kernel's places of one matrix product each."""
    batch, outputs, kernel = x.shape[0], w.shape[0], w.shape[2:]
    outs = window_counts(x.shape[2:], kernel, strides, dilations)
    total = _filled(xp, (batch, group, outputs // group, math.prod(outs)), 0, x)
    for offset in _offsets(kernel):
        part = xp.reshape(_at_offset(x, offset, outs, strides, dilations), (batch, group, x.shape[1] // group, math.prod(outs)))
        total = total + xp.matmul(xp.reshape(w[(..., *offset)], (group, outputs // group, w.shape[1])), part)
    return xp.reshape(total, (batch, outputs, *outs))


def _convolve_blocks(x: Array, w: Array, strides: Ints, dilations: Ints, group: int) -> Array:
    """numpy's convolution: columns of windows, a bounded number at a time, times the weights as a matrix."""
    batch, channels, kernel = x.shape[0], w.shape[1], w.shape[2:]
    outs = window_counts(x.shape[2:], kernel, strides, dilations)
    x = x.reshape(batch, group, channels, *x.shape[2:])
    weights = w.reshape(group, w.shape[0] // group, channels, *kernel)
    result = np.zeros((batch, *weights.shape[:2], *outs), x.dtype)
    if channels == 1 and weights.shape[1] <= 4:
        _convolve_depthwise(x, weights, strides, dilations, result)
    elif math.prod(kernel) == 1:
        pixels = _at_offset(x, (0,) * len(kernel), outs, strides, dilations).reshape(batch, group, channels, -1 if x.size else 0)
        result = np.matmul(weights.reshape(*weights.shape[:3]), pixels)
    elif result.size:
        windows = _window_view(x, outs, kernel, strides, dilations)
        _convolve_columns(windows, weights.reshape(*weights.shape[:2], -1), len(kernel), result)
    return result.reshape(batch, w.shape[0], *outs)


def _convolve_depthwise(x: Array, weights: Array, strides: Ints, dilations: Ints, result: Array) -> None:
    """One input channel per group: multiply and add per kernel place, so many groups at a time as stay in cache."""
    kernel, outs = weights.shape[3:], result.shape[3:]
    step = max(1, _CACHED_ELEMENTS // max(1, result[:, :1].size))
    for start in range(0, result.shape[1], step):
        part = slice(start, start + step)
        product = np.empty_like(result[:, part])
        for offset in _offsets(kernel):
            scale = weights[(part, slice(None), 0, *offset)].reshape(1, -1, weights.shape[1], *(1,) * len(outs))
            np.multiply(_at_offset(x[:, part], offset, outs, strides, dilations), scale, out=product)
            result[:, part] += product


def _convolve_columns(windows: Array, weights: Array, spatial: int, result: Array) -> None:
    """``windows`` [N, G, C, *outs, *kernel] times ``weights`` [G, O, C*kernel] into ``result`` [N, G, O, *outs]."""
    rows = result.shape[3]
    row_bytes = max(1, windows[:1, :, :, :1].size * windows.itemsize)
    row_step = min(rows, max(1, _BLOCK_BYTES // row_bytes))
    batch_step = max(1, _BLOCK_BYTES // (row_bytes * rows))
    for image, row in itertools.product(range(0, len(windows), batch_step), range(0, rows, row_step)):
        block = (slice(image, image + batch_step), slice(None), slice(None), slice(row, row + row_step))
        columns = _columns(windows[block], spatial)
        result[block] = np.matmul(weights, columns).reshape(result[block].shape)


def _columns(windows: Array, spatial: int) -> Array:
    """Windows [N, G, C, *outs, *kernel] as matrices [N, G, C*kernel, outs], copied along the longer of the last axes."""
    batch, group, channels = windows.shape[:3]
    outs, kernel = tuple(range(3, 3 + spatial)), tuple(range(3 + spatial, 3 + 2 * spatial))
    count = math.prod(windows.shape[3 : 3 + spatial])
    depth = channels * math.prod(windows.shape[3 + spatial :])
    if windows.shape[2 + spatial] >= windows.shape[-1]:
        return windows.transpose(0, 1, 2, *kernel, *outs).reshape(batch, group, depth, count)
    return windows.transpose(0, 1, *outs, 2, *kernel).reshape(batch, group, count, depth).swapaxes(2, 3)


def convolve_transposed(
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
    """The transpose of :func:`convolve`: ``x`` [N, C, *spatial], ``w`` [C, O/group, *kernel] to [N, O, *outs].

    outs = (dim - 1) * stride + (kernel - 1) * dilation + 1 - pad_begin - pad_end + output_padding; ``output_padding`` grows
    the end, negative pads either side. Types as for :func:`convolve`.
    """
    if widened(xp, x) is not x:
        args = (strides, pads_begin, pads_end, output_padding, dilations, group)
        return cast(xp, convolve_transposed(xp, widened(xp, x), widened(xp, w), *args), element(x), saturate=False)
    begins = [-n for n in pads_begin]
    ends = [extra - n for extra, n in zip(output_padding, pads_end, strict=True)]
    if is_numpy(xp):
        full = _convolve_back(x, w, strides, dilations, group)
        return pad(xp, full, (0, 0, *begins), (0, 0, *ends))
    reach = [(size - 1) * dilation for size, dilation in zip(w.shape[2:], dilations, strict=True)]
    spread = _spread(xp, x, strides)
    begins, ends = ([a + b for a, b in zip(reach, pads, strict=True)] for pads in (begins, ends))
    return convolve(xp, spread, _mirrored(xp, w, group), (1,) * len(strides), begins, ends, dilations, group)


def _convolve_back(x: Array, w: Array, strides: Ints, dilations: Ints, group: int) -> Array:
    batch, dims, kernel = x.shape[0], x.shape[2:], w.shape[2:]
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    pixels = x.reshape(batch, group, weights.shape[1], math.prod(dims))
    sizes = [
        max((n - 1) * stride + 1, 0) + (size - 1) * dilation
        for n, stride, size, dilation in zip(dims, strides, kernel, dilations, strict=True)
    ]
    result = np.zeros((batch, group, w.shape[1], *sizes), x.dtype)
    for offset in _offsets(kernel):
        part = np.matmul(weights[(..., *offset)].swapaxes(1, 2), pixels)
        _at_offset(result, offset, dims, strides, dilations)[...] += part.reshape(batch, group, w.shape[1], *dims)
    return result.reshape(batch, group * w.shape[1], *sizes)


def _spread(xp: Namespace, x: Array, strides: Ints) -> Array:
    """``x`` with stride - 1 zeros between its elements along every trailing axis."""
    for axis, stride in enumerate(strides, x.ndim - len(strides)):
        size, shape = x.shape[axis], x.shape
        x = xp.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        x = _between(xp, (0, x, stride - 1), axis + 1, 0)
        x = xp.reshape(x, (*shape[:axis], size * stride, *shape[axis + 1 :]))
        x = _slice_axis(xp, x, axis, 0, max((size - 1) * stride + 1, 0))
    return x


def _mirrored(xp: Namespace, w: Array, group: int) -> Array:
    """Weights [C, O/group, *kernel] as [O, C/group, *kernel], the kernel turned back to front."""
    inputs, outputs, kernel = w.shape[0] // group, w.shape[1], w.shape[2:]
    w = xp.reshape(w, (group, inputs, outputs, *kernel))
    w = xp.permute_dims(w, (0, 2, 1, *range(3, w.ndim)))
    return xp.flip(xp.reshape(w, (group * outputs, inputs, *kernel)), axis=tuple(range(2, w.ndim - 1)))


# Pooling: windows over the trailing axes of x; a window may begin in the padding, a rule for how many is the caller's


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
    return _place(xp, counts.astype(element(x).numpy), x)


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
    best = _filled(xp, (*x.shape[: x.ndim - len(sizes)], *outs), _lowest(element(x)), x)
    where = xp.zeros_like(best, dtype=_index_type(xp))
    seen = np.zeros(outs, bool)
    for offset in _offsets(sizes):
        real = functools.reduce(np.logical_and.outer, [item[:, i] for item, i in zip(valid, offset, strict=True)])
        value = _at_offset(padded, offset, outs, strides, dilations)
        better = (value > best) | ((value != value) & (best == best)) | _place(xp, ~seen, x)
        better = better & _place(xp, real, x)
        place = _window_places(dims, offset, outs, strides, pads_begin, dilations)
        best = xp.where(better, value, best)
        where = xp.where(better, _retyped(xp, _place(xp, place, x), where.dtype), where)
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
        parts = [_slice_axis(xp, x, axis, i * dilation, i * dilation + extent, stride) for i in range(size)]
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
    for axis, step in enumerate(_row_steps(dims)):
        along = (np.arange(outs[axis]) * strides[axis] + offset[axis] * dilations[axis] - pads_begin[axis]) * step
        places = places + along.reshape((-1,) + (1,) * (len(dims) - 1 - axis))
    return places


# Arithmetic


# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969): numerators and denominators,
# highest power first; erf(x) / x in x^2 up to 0.46875, then exp(x^2) erfc(x) in x up to 4. Past 4 the latter still has
# the few digits that 1 - erfc(x) shows.
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_FAR = (
    (
        2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
        8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
    ),
    (
        1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
        3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
    ),
)  # fmt: skip


def erf(xp: Namespace, x: Array) -> Array:
    """The error function, to about 1e-15 relative in f64; narrower floats are evaluated in f64 where the library has it."""
    kind = element(x)
    if kind != "f64" and not _is_narrow(xp):
        return cast(xp, _erf(xp, _retyped(xp, x, xp.float64)), kind)
    return _erf(xp, x)


def _erf(xp: Namespace, x: Array) -> Array:
    size = xp.abs(x)
    near = xp.where(size < 0.46875, x, xp.zeros_like(x))
    far = xp.where(size < 6, size, xp.full_like(size, 6))
    with np.errstate(under="ignore"):
        inner = near * _ratio(near * near, *_NEAR)
        outer = 1 - xp.exp(-far * far) * _ratio(far, *_FAR)
    result = xp.where(size < 0.46875, inner, xp.copysign(outer, x))
    return xp.where(x != x, x, result)


def _ratio(x: Array, numerator: Sequence[float], denominator: Sequence[float]) -> Array:
    above, below = (
        functools.reduce(lambda total, c: total * x + c, terms[1:], terms[0] + 0 * x) for terms in (numerator, denominator)
    )
    return above / below


def round_half_even(xp: Namespace, x: Array) -> Array:
    """The nearest integer, of two the even one."""
    return xp.round(x)


def round_half_away(xp: Namespace, x: Array) -> Array:
    """The nearest integer, of two the one farther from zero."""
    whole = xp.trunc(x)
    with np.errstate(invalid="ignore"):
        away = xp.where(xp.abs(x - whole) >= 0.5, xp.sign(x), xp.zeros_like(x))
        return xp.copysign(whole + away, x) if element(x).is_float else x


def floor_divide(xp: Namespace, x: Array, y: Array) -> Array:
    """Integers divided toward minus infinity, wrapping for the least one by -1. Raises EngineError [array.divide-by-zero]."""
    _refuse_zero(xp, y)
    with np.errstate(all="ignore"):
        # Some libraries trap on the least integer by -1.
        return xp.where(_is_minus_one(xp, y), xp.negative(x), xp.floor_divide(x, _unless_minus_one(xp, y)))


def trunc_divide(xp: Namespace, x: Array, y: Array) -> Array:
    """Integers divided toward zero, wrapping for the least one by -1. Raises EngineError [array.divide-by-zero]."""
    floor = floor_divide(xp, x, y)
    inexact = floor_mod(xp, x, y) != 0
    with np.errstate(all="ignore"):
        return xp.where(inexact & ((x < 0) != (y < 0)), floor + xp.ones_like(floor), floor)


def floor_mod(xp: Namespace, x: Array, y: Array) -> Array:
    """x - floor(x / y) * y: the remainder with the sign of ``y``. Integer: raises EngineError [array.divide-by-zero]."""
    with np.errstate(all="ignore"):
        if not element(x).is_integer:
            return xp.remainder(x, y)
        _refuse_zero(xp, y)
        return xp.where(_is_minus_one(xp, y), xp.zeros_like(x), xp.remainder(x, _unless_minus_one(xp, y)))


def trunc_mod(xp: Namespace, x: Array, y: Array) -> Array:
    """x - trunc(x / y) * y: the remainder with the sign of ``x`` (fmod). Integer: raises EngineError [array.divide-by-zero]."""
    with np.errstate(all="ignore"):
        if not element(x).is_integer:
            return xp.copysign(xp.remainder(xp.abs(x), xp.abs(y)), x)
        rest = floor_mod(xp, x, y)
        return xp.where((rest != 0) & ((rest < 0) != (x < 0)), rest - y, rest)


def _refuse_zero(xp: Namespace, y: Array) -> None:
    if bool(xp.any(y == 0)):
        raise EngineError("array.divide-by-zero", "integer division by zero")


def _is_minus_one(xp: Namespace, y: Array) -> Array:
    return y == -xp.ones_like(y) if element(y).kind == "int" else xp.zeros_like(y, dtype=xp.bool)


def _unless_minus_one(xp: Namespace, y: Array) -> Array:
    return xp.where(_is_minus_one(xp, y), xp.ones_like(y), y)


def power(xp: Namespace, x: Array, y: Array) -> Array:
    """``x`` to the ``y``, of ``x``'s type (ONNX Pow).

    Integers to integers are exact modulo their width; a negative exponent gives the reciprocal truncated (0 for base 0).
    Mixed types are evaluated in f64 where the library has it and cast.
    """
    base, exponent = element(x), element(y)
    with np.errstate(all="ignore"):
        if base.is_integer and exponent.is_integer:
            return _integer_power(xp, x, y)
        if base is exponent and base.bits >= 32:
            return xp.pow(x, y)
        wide = xp.float32 if _is_narrow(xp) else xp.float64
        return cast(xp, xp.pow(_retyped(xp, x, wide), _retyped(xp, y, wide)), base)


def _integer_power(xp: Namespace, x: Array, y: Array) -> Array:
    """By repeated squaring. 1 and -1 are their own reciprocals, so that only an exponent's parity matters to them."""
    x, y = xp.broadcast_arrays(x, y)
    negative = y < 0
    rest = xp.where(negative, y & 1, y)
    result = xp.ones_like(x)
    square = x
    while bool(xp.any(rest > 0)):
        result = xp.where((rest & 1) == 1, result * square, result)
        square = square * square
        rest = rest >> 1
    return xp.where(negative & ~((x == 1) | _is_minus_one(xp, x)), xp.zeros_like(x), result)


def bit_shift(xp: Namespace, x: Array, amount: Array, direction: str) -> Array:
    """``x`` shifted "left" or "right" by ``amount`` bits; as many as it has, or more, leave 0 (-1 for negative ones, right)."""
    bits = element(x).bits
    over = amount >= bits
    safe = _retyped(xp, xp.where(over, xp.full_like(amount, bits - 1), amount), x.dtype)
    if direction == "left":
        return xp.where(over, xp.zeros_like(x), xp.bitwise_left_shift(x, safe))
    return xp.where(over & (x >= 0), xp.zeros_like(x), xp.bitwise_right_shift(x, safe))


def softmax(xp: Namespace, x: Array, axis: int | tuple[int, ...]) -> Array:
    """exp(x) / sum(exp(x)) over ``axis``, without overflow; NaN where a row holds +inf, or -inf alone."""
    with np.errstate(all="ignore"):
        powers = xp.exp(_less_greatest(xp, widened(xp, x), axis)[0])
        return _retyped(xp, powers / xp.sum(powers, axis=axis, keepdims=True), x.dtype)


def log_softmax(xp: Namespace, x: Array, axis: int | tuple[int, ...]) -> Array:
    """log(softmax(x)) over ``axis``, without the underflow between."""
    with np.errstate(all="ignore"):
        rest, _ = _less_greatest(xp, widened(xp, x), axis)
        return _retyped(xp, rest - xp.log(xp.sum(xp.exp(rest), axis=axis, keepdims=True)), x.dtype)


def logsumexp(xp: Namespace, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over ``axis`` (None: all), without overflow; -inf over nothing or -inf alone."""
    with np.errstate(all="ignore"):
        rest, greatest = _less_greatest(xp, widened(xp, x), axis, finite=True)
        total = xp.log(xp.sum(xp.exp(rest), axis=axis, keepdims=True)) + greatest
    axes = tuple(range(x.ndim)) if axis is None else axis
    result = total if keepdims else xp.squeeze(total, axis=axes) if axes != () else total
    return _retyped(xp, result, x.dtype)


def _less_greatest(xp: Namespace, x: Array, axis: int | tuple[int, ...] | None, finite: bool = False) -> tuple[Array, Array]:
    """``x`` less its greatest element over ``axis``, and that element (with ``finite`` 0 in place of an infinite one)."""
    if not math.prod(x.shape):
        return x, xp.sum(x, axis=axis, keepdims=True)
    greatest = xp.max(x, axis=axis, keepdims=True)
    if finite:
        greatest = xp.where(xp.isinf(greatest), xp.zeros_like(greatest), greatest)
    return x - greatest, greatest


# Casts


# The sixteen quantiles of QLoRA's NormalFloat (Dettmers et al. 2023), as OpenVINO's nf4 has them.
_NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
_SATURATING = ("f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
_CODES = ("u1", "u3", "u6")


def cast(xp: Namespace, x: Array, to: DType, source: DType | None = None, saturate: bool = True, rounding: str = "up") -> Array:
    """``x`` as ``to``, by the rules of ONNX Cast-25.

    Floats go to integers toward zero (out of range: undefined), integers wrap, anything but zero is True (NaN too).
    ``saturate`` is for f8: beyond the range the greatest value, otherwise infinity or NaN. ``rounding`` ("up", "down",
    "nearest") is for f8e8m0, which takes a magnitude. Every value is rounded once, to nearest even. ``source`` is needed only
    for nf4, whose codes travel as u8. Strings: numpy only; number to text as Python writes it.

    Raises UnsupportedError [array.cast] for complex types and into nf4, EngineError [array.not-a-number] for a text that
    is no number or no number of that type, and as :func:`dtype_in`.
    """
    source = source or element(x)
    if source is to:
        return x
    if "complex" in (source.kind, to.kind) or to == "nf4":
        raise UnsupportedError("array.cast", f"no cast from {source} to {to}")
    if not is_numpy(xp):
        return x != 0 if to == "boolean" else _retyped(xp, x, dtype_in(xp, to))
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        if source == "nf4":
            return cast(xp, _NF4[x & 15], to, None, saturate, rounding)
        if to == "string":
            return np.array([str(item) for item in x.reshape(-1)], dtype=object).reshape(x.shape)
        if source == "string":
            return _cast_text(x, to, saturate, rounding)
        return _cast_number(_plain(x, source), to, saturate, rounding)


def _plain(x: Array, source: DType) -> Array:
    """``x``, without loss, in a type of numpy's own."""
    if source.bits >= 32 or source.standard:
        return x
    return x.astype(np.float32 if source.is_float else np.int8 if source.kind == "int" else np.uint8)


def _cast_number(x: Array, to: DType, saturate: bool, rounding: str) -> Array:
    if to in _CODES:
        return (x.astype(np.int64) & (2**to.bits - 1)).astype(np.uint8)
    if not to.is_float or to.bits >= 32:
        return x.astype(to.numpy)
    if to == "f16":
        return (x if x.dtype.kind == "f" else x.astype(np.float64)).astype(np.float16)
    if to == "f8e8m0":
        return _scale(_odd_f64(x), saturate, rounding).view(to.numpy)
    single = _odd_f32(_odd_f64(x)) if x.dtype != np.float32 else x
    if saturate and to in _SATURATING:
        greatest = np.float32(_greatest(to))
        single = np.clip(single, -greatest, greatest)
    return single.astype(to.numpy)


@functools.cache
def _greatest(kind: DType) -> float:
    values = np.arange(256, dtype=np.uint8).view(kind.numpy).astype(np.float64)
    return float(values[np.isfinite(values)].max())


def _odd_f64(x: Array) -> Array:
    """Numbers in f64, inexact ones rounded to odd: a second rounding, to half the digits, then gives what one would have."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        large = x >= 2**53 if x.dtype.kind == "u" else (x >= 2**53) | (x <= -(2**53))
        kept = (x >> np.array(11, x.dtype)) << np.array(11, x.dtype)
        x = np.where(large & (x != kept), kept | np.array(2048, x.dtype), x)
    return x.astype(np.float64)


def _odd_f32(x: Array) -> Array:
    """f64 numbers in f32, inexact ones rounded to odd."""
    single = np.atleast_1d(x).astype(np.float32)
    back = single.astype(np.float64)
    inexact = (back != x) & ~np.isnan(back)
    bits = single.view(np.uint32)
    toward_zero = bits - (np.abs(back) > np.abs(x)).astype(np.uint32)
    return np.where(inexact, toward_zero | np.uint32(1), bits).astype(np.uint32).view(np.float32).reshape(x.shape)


def _scale(x: Array, saturate: bool, rounding: str) -> Array:
    """The codes of f8e8m0, 2^(code - 127) and 255 for NaN, by the table in ONNX Cast-25."""
    fraction, exponent = np.frexp(np.abs(x))
    up = {"up": fraction > 0.5, "down": np.zeros(np.shape(x), bool), "nearest": fraction >= 0.75}[rounding]
    codes = np.where(x == 0, -1, np.where(np.isinf(x), 255, exponent + 126 + up))
    codes = np.clip(codes, 0, 254) if saturate else np.where((codes < 0) | (codes > 254), 255, codes)
    return np.asarray(np.where(np.isnan(x), 255, codes).astype(np.uint8))


def _cast_text(x: Array, to: DType, saturate: bool, rounding: str) -> Array:
    if to.is_integer:
        values = np.array([_whole(text, to) for text in x.reshape(-1)], dtype=np.uint64 if to == "u64" else np.int64)
    else:
        values = np.array([_real(text, to) for text in x.reshape(-1)], dtype=np.float64)
    return _cast_number(values.reshape(x.shape), to, saturate, rounding)


def _real(text: Any, to: DType) -> float:
    try:
        if "_" not in str(text):
            return float(text)
    except ValueError:
        pass
    raise EngineError("array.not-a-number", f"{text!r} is no number to cast to {to}")


def _whole(text: Any, to: DType) -> int:
    real = _real(text, to)
    plain = str(text).strip().lstrip("+-").isdigit()
    low, high = to.range()
    if math.isfinite(real) and low <= (value := int(text) if plain else int(real)) <= high:
        return value
    raise EngineError("array.not-a-number", f"{text!r} is no value of {to}")
