"""Kernels of the core run by themselves: arrays in, arrays out, in whatever layout they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail import native

if native.is_compiled:
    from dovetail import _native
else:
    _native = None

ELEMENTS = {"float32": "f32", "float64": "f64", "bool": "boolean"} | {
    f"{prefix}int{bits}": f"{prefix or 'i'}{bits}" for prefix in ("", "u") for bits in (8, 16, 32, 64)
}


def row(array: Any, buffer: int) -> tuple[Any, ...]:
    """An array as an operand of a buffer that begins where its first element lies."""
    return (buffer, 0, ELEMENTS[array.dtype.name], array.itemsize, list(array.shape), list(array.strides), 0)


def run(kernel: str, inputs: Sequence[Any], outputs: Sequence[Any], attributes: dict[str, Any], threads: int = 2) -> str:
    """Runs one step once, writing ``outputs``; its name. An array that is in both is one buffer."""
    arrays = [*inputs, *outputs]
    places = {id(array): index + 1 for index, array in enumerate(arrays)}
    program = _native.Program(_native.Pool(threads), _native.Store(), 0, len(arrays) + 1)
    rows = [row(array, places[id(array)]) for array in arrays]
    program.add(kernel, rows[: len(inputs)], rows[len(inputs) :], attributes)
    _native.Visit(program).run([0, *(array.ctypes.data for array in arrays)], 0, 1)
    return program.names()[0]


def random(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    """Numbers of either sign, ones near 0 and integers of all sizes among them."""
    generator = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    return (generator.standard_normal(shape) * 3).astype(dtype)


def row_major(array: Any) -> Any:
    return np.ascontiguousarray(array)


def channels_last(array: Any) -> Any:
    """The same elements with axis 1 running fastest."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def sliced(array: Any) -> Any:
    """In the middle of a wider array, along every axis."""
    wide = np.full([size + 3 for size in array.shape], 77, array.dtype)
    view = wide[tuple(slice(1, size + 1) for size in array.shape)]
    view[...] = array
    return view


def sliced_channels_last(array: Any) -> Any:
    wide = np.full((*array.shape[:1], *array.shape[2:], array.shape[1] + 24), 77, array.dtype)
    view = np.moveaxis(wide[..., 8 : 8 + array.shape[1]], -1, 1)
    view[...] = array
    return view


def spread(array: Any) -> Any:
    """Every other element of each axis, the first axis backwards."""
    wide = np.full([2 * size for size in array.shape], 77, array.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in array.shape)][::-1]
    view[...] = array
    return view


LAYOUTS = {function.__name__: function for function in (row_major, channels_last, sliced, sliced_channels_last, spread)}
