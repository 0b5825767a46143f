"""Kernels of the core run by themselves: arrays in, arrays out, in whatever layout they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.engine.run.step_encoding import extent_of
from dovetail.ir.host import native_core

if native_core.is_compiled:
    from dovetail import _native
else:
    _native = None

ELEMENTS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "boolean"} | {
    f"{prefix}int{bits}": f"{prefix or 'i'}{bits}" for prefix in ("", "u") for bits in (8, 16, 32, 64)
}


def row(array: Any, buffer: int, is_constant: bool) -> tuple[Any, ...]:
    """Return an array as an operand of a buffer that begins at its first element, or as one that is known before the run."""
    constant = (array.ctypes.data, *extent_of(array)) if is_constant else (0, 0, 0)
    return (buffer, 0, ELEMENTS.get(array.dtype.name, "other"), array.itemsize, list(array.shape), list(array.strides), *constant)


def run(
    kernel: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: dict[str, Any],
    threads: int = 2,
    constants: Sequence[int] = (),
) -> str:
    """Runs one step once, writing ``outputs``; its name. An array that is in both is one buffer; ``constants`` numbers inputs."""
    arrays = [*inputs, *outputs]
    places = {id(array): index + 1 for index, array in enumerate(arrays)}
    program = _native.Program(
        _native.ThreadPool(threads), _native.WeightCache(), _native.ArenaPool(), 0, [extent_of(array) for array in arrays]
    )
    rows = [row(array, places[id(array)], index in constants) for index, array in enumerate(arrays)]
    program.add(kernel, rows[: len(inputs)], rows[len(inputs) :], attributes)
    _native.Execution(program).run([0, *(array.ctypes.data for array in arrays)], 0, 1)
    return str(program.names()[0])


def check(y: Any, expected: Any) -> None:
    """Sums of f32 within their rounding."""
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * max(float(np.abs(expected).max(initial=0.0)), 1.0))


def random(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    """Numbers of either sign, ones near 0 and integers of all sizes among them."""
    generator = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    return (generator.standard_normal(shape) * 3).astype(dtype)


# A read beside an operand gives a value that no result may hold.


def _room(sizes: Sequence[int], array: Any) -> Any:
    return np.full(sizes, np.nan if array.dtype.kind == "f" else 77, array.dtype)


def row_major(array: Any) -> Any:
    return np.ascontiguousarray(array)


def channels_last(array: Any) -> Any:
    """Return the same elements with axis 1 running fastest."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def sliced(array: Any) -> Any:
    """In the middle of a wider array, along every axis."""
    view = _room([size + 3 for size in array.shape], array)[tuple(slice(1, size + 1) for size in array.shape)]
    view[...] = array
    return view


def sliced_channels_last(array: Any) -> Any:
    """Channels last, among those of wider pixels."""
    return _within_pixels(array, 24, 0)


def wide_channels_last(array: Any) -> Any:
    """Channels last, among those of wider pixels in wider rows; nothing is aligned."""
    return _within_pixels(array, 5, 3)


def _within_pixels(array: Any, more_channels: int, more_pixels: int) -> Any:
    last = np.moveaxis(array, 1, -1)
    room = _room([*last.shape[:-2], last.shape[-2] + more_pixels, last.shape[-1] + more_channels], array)
    view = room[..., : last.shape[-2], more_channels // 3 : more_channels // 3 + last.shape[-1]]
    view[...] = last
    return np.moveaxis(view, -1, 1)


def spread(array: Any) -> Any:
    """Every other element of each axis, the first axis backwards."""
    view = _room([2 * size for size in array.shape], array)[tuple(slice(None, None, 2) for _ in array.shape)][::-1]
    view[...] = array
    return view


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    function.__name__: function
    for function in (row_major, channels_last, sliced, sliced_channels_last, wide_channels_last, spread)
}
BYTE_CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((1, 64, 9, 11), (48, 64, 1, 1), {}),
    "pointwise, many": ((2, 128, 7, 7), (200, 128, 1, 1), {}),
    "pointwise, few": ((1, 10, 6, 5), (3, 10, 1, 1), {}),
    "pointwise, steps": ((1, 64, 9, 12), (32, 64, 1, 1), {"strides": (2, 2)}),
    "padded": ((1, 64, 10, 9), (40, 64, 3, 3), {"pads": (1, 1, 1, 1)}),
    "padded, steps": ((2, 32, 13, 14), (16, 32, 3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 2)}),
    "first": ((1, 3, 29, 30), (33, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    "dilated": ((1, 20, 12, 13), (17, 20, 3, 2), {"dilations": (2, 3), "pads": (2, 1, 2, 1)}),
    "heavy": ((1, 256, 7, 7), (256, 256, 3, 3), {"pads": (1, 1, 1, 1)}),
    "wide": ((1, 16, 3, 90), (16, 16, 1, 3), {"pads": (0, 1, 0, 1)}),
    "nothing": ((0, 8, 4, 4), (8, 8, 1, 1), {}),
}
"""Shapes of images and weights, and attributes, of convolutions of 8-bit integers."""
