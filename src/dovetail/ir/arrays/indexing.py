"""Gather and scatter: reading and writing at positions from an index array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dovetail.ir.arrays.backends import Array, Ints, Namespace, convert_dtype, index_type, is_numpy, library_name, to_namespace
from dovetail.ir.arrays.checks import is_deferring, refuse_elements


def wrap_indices(xp: Namespace, indices: Array, size: int) -> Array:
    """Add ``size`` to negative indices. Raises EngineError [index.range] for an index outside [-size, size)."""
    wide = convert_dtype(xp, indices, index_type(xp))
    failed = (wide < -size) | (wide >= size)
    refuse_elements(xp, failed, "index.range", f"an index lies outside [{-size}, {size - 1}]")
    if is_deferring(xp):
        # The error is raised after the run; during the run no kernel may read outside its operand.
        wide = xp.where(failed, xp.zeros_like(wide), wide)
    return xp.where(wide < 0, wide + size, wide)


def take(xp: Namespace, x: Array, indices: Array, axis: int, batch_dims: int = 0) -> Array:
    """Gather elements along ``axis`` by indices of any rank: x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis+1:].

    The first ``batch_dims`` axes of ``x`` and ``indices`` are common batch axes (OpenVINO Gather-8). Negative indices count from
    the back.
    Raises EngineError [index.range].
    """
    axis %= x.ndim
    offsets = wrap_indices(xp, indices, x.shape[axis])
    if not batch_dims:
        taken = xp.take(x, xp.reshape(offsets, (-1,)), axis=axis)
        return xp.reshape(taken, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    batch, between, after = x.shape[:batch_dims], x.shape[batch_dims:axis], x.shape[axis + 1 :]
    front = xp.moveaxis(x, axis, batch_dims)
    rows = gather_nd(xp, front, offsets[..., None], batch_dims)
    rank = indices.ndim - batch_dims
    order = (*range(batch_dims), *range(batch_dims + rank, batch_dims + rank + len(between)))
    rest = (*range(batch_dims, batch_dims + rank), *range(rows.ndim - len(after), rows.ndim))
    assert rows.ndim == len(batch) + rank + len(between) + len(after)
    return xp.permute_dims(rows, (*order, *rest))


def take_along(xp: Namespace, x: Array, indices: Array, axis: int) -> Array:
    """Gather elements: ``indices`` replaces the index along ``axis``, the other indices are those of the output element.

    This is GatherElements. On axes other than ``axis``, ``indices`` may be smaller than ``x``. Raises EngineError [index.range].
    """
    offsets = _along(xp, x, indices, axis)
    taken = xp.take(xp.reshape(x, (-1,)), xp.reshape(offsets, (-1,)), axis=0)
    return xp.reshape(taken, tuple(indices.shape))


def gather_nd(xp: Namespace, x: Array, indices: Array, batch_dims: int = 0) -> Array:
    """Gather the slices ``x[indices[i]]`` (GatherND): indices.shape[:-1] + x.shape[batch_dims + k:], k = indices.shape[-1].

    The first ``batch_dims`` axes of ``x`` and ``indices`` are common batch axes. Raises EngineError [index.range].
    """
    depth = batch_dims + indices.shape[-1]
    rows = xp.reshape(_linear(xp, x, indices, batch_dims), (-1,))
    flat = xp.reshape(x, (math.prod(x.shape[:depth]), math.prod(x.shape[depth:])))
    return xp.reshape(xp.take(flat, rows, axis=0), (*indices.shape[:-1], *x.shape[depth:]))


def scatter_along(xp: Namespace, x: Array, indices: Array, updates: Array, axis: int, reduction: str = "none") -> Array:
    """Scatter ``updates`` into ``x`` at ``indices`` along ``axis`` (ScatterElements); ``updates`` has the shape of ``indices``.

    ``reduction``: "none" (the last of several updates of one element wins), "add", "mul", "min" or "max", applied in order.
    Raises EngineError [index.range].
    """
    offsets = xp.reshape(_along(xp, x, indices, axis), (-1,))
    column = xp.reshape(updates, (-1, 1))
    return xp.reshape(_scatter_rows(xp, xp.reshape(x, (-1, 1)), offsets, column, reduction), tuple(x.shape))


def scatter_nd(xp: Namespace, x: Array, indices: Array, updates: Array, reduction: str = "none") -> Array:
    """Scatter the slices ``updates[i]`` into ``x[indices[i]]`` (ScatterND).

    The shape of ``updates`` is indices.shape[:-1] + x.shape[k:], k = indices.shape[-1]. ``reduction`` and errors are those of
    :func:`scatter_along`.
    """
    depth = indices.shape[-1]
    width = math.prod(x.shape[depth:])
    rows = xp.reshape(_linear(xp, x, indices, 0), (-1,))
    flat = xp.reshape(x, (math.prod(x.shape[:depth]), width))
    values = xp.reshape(updates, (math.prod(indices.shape[:-1]), width))
    return xp.reshape(_scatter_rows(xp, flat, rows, values, reduction), tuple(x.shape))


def row_steps(dims: Ints) -> list[int]:
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]


def _along(xp: Namespace, x: Array, indices: Array, axis: int) -> Array:
    """Return for every element of ``indices`` the row-major offset in ``x`` that it addresses along ``axis``."""
    axis %= x.ndim
    steps = row_steps(x.shape)
    others = np.zeros((1,) * x.ndim, np.int64)
    for i, (size, step) in enumerate(zip(indices.shape, steps, strict=True)):
        if i != axis:
            others = others + (np.arange(size) * step).reshape((-1,) + (1,) * (x.ndim - 1 - i))
    return wrap_indices(xp, indices, x.shape[axis]) * steps[axis] + to_namespace(xp, others, indices)


def _linear(xp: Namespace, x: Array, indices: Array, batch_dims: int) -> Array:
    """Return the row-major offset of every index tuple of ``indices`` (its last axis), counted over the indexed axes of ``x``."""
    depth = batch_dims + indices.shape[-1]
    steps = row_steps(x.shape[:depth])
    batch = np.arange(math.prod(x.shape[:batch_dims])) * math.prod(x.shape[batch_dims:depth])
    offsets = batch.reshape((*x.shape[:batch_dims], *(1,) * (indices.ndim - 1 - batch_dims)))
    rows = xp.broadcast_to(to_namespace(xp, offsets, indices), tuple(indices.shape[:-1]))
    for i in range(indices.shape[-1]):
        rows = rows + wrap_indices(xp, indices[..., i], x.shape[batch_dims + i]) * steps[batch_dims + i]
    return rows


_REDUCTIONS = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}


def _scatter_rows(xp: Namespace, x: Array, rows: Array, updates: Array, reduction: str) -> Array:
    """Scatter ``updates`` [n, r] into ``x`` [m, r] at ``rows`` [n] in order."""
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
    """Scatter without in-place writes: round i applies the i-th update of every row of ``x`` that has more than i updates."""
    if not rows.shape[0] or not math.prod(x.shape):
        return x
    if combine is not None and library_name(xp) == "jax":
        return getattr(x.at[rows], combine.__name__.removesuffix("imum"))(updates)
    order = xp.argsort(rows, stable=True)
    ordered, updates = xp.take(rows, order, axis=0), xp.take(updates, order, axis=0)
    targets = convert_dtype(xp, to_namespace(xp, np.arange(x.shape[0]), rows), ordered.dtype)
    first = xp.searchsorted(ordered, targets, side="left")
    counts = xp.searchsorted(ordered, targets, side="right") - first
    if combine is None:
        return _scatter_round(xp, x, updates, first + counts - 1, counts > 0, None)
    for i in range(int(xp.max(counts))):
        x = _scatter_round(xp, x, updates, first + i, counts > i, combine)
    return x


def _scatter_round(xp: Namespace, x: Array, updates: Array, which: Array, hit: Array, combine: Any) -> Array:
    mine = xp.take(updates, xp.where(hit, which, xp.zeros_like(which)), axis=0)
    return xp.where(hit[:, None], mine if combine is None else combine(x, mine), x)
