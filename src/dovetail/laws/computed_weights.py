"""Weights that passes compute in blocks; large weights are in temporary files, so that memory does not limit the model."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
IN_MEMORY = 2**24
"""Size in bytes of the largest array in anonymous memory."""
BLOCK = 2**20
"""Number of elements of a block that is computed in f64."""


def scale(data: Array, factor: Array) -> Array | None:
    """Return ``data * factor``, computed in f64 and rounded once to the type of ``data``; None if not all are finite.

    ``factor`` broadcasts to the shape of ``data``.
    """
    result = allocate(data.shape, data.dtype)
    factor = np.broadcast_to(factor, data.shape)
    rows = max(1, BLOCK * data.shape[0] // max(data.size, 1)) if data.ndim else 1
    for start in range(0, len(data), rows):
        block = slice(start, start + rows)
        with np.errstate(all="ignore"):
            result[block] = data[block].astype(np.float64) * factor[block]
        if not np.all(np.isfinite(result[block])):
            return None
    result.setflags(write=False)
    return result


def join(arrays: Sequence[Array], axis: int) -> Array:
    """Return the concatenation of arrays of one type along ``axis``."""
    shape = list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)
    result = np.concatenate(arrays, axis=axis, out=allocate(tuple(shape), arrays[0].dtype))
    result.setflags(write=False)
    return result


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialized array: up to IN_MEMORY bytes in memory, else mapped from a temporary file without a name.

    A larger array is in memory too if the file cannot be created, or if the disk lacks the space.
    """
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if size <= IN_MEMORY or not hasattr(os, "posix_fallocate"):
        return np.empty(shape, dtype)
    # Deferred for start-up time.
    import tempfile

    try:
        with tempfile.TemporaryFile() as stream:
            # Without space on the disk, a write to a mapped page would raise SIGBUS, which ends the process.
            os.posix_fallocate(stream.fileno(), 0, size)
            region = mmap.mmap(stream.fileno(), size)
    except OSError:
        return np.empty(shape, dtype)
    return np.frombuffer(region, dtype).reshape(shape)
