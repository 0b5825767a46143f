"""One step of the compiled core, run on arrays wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]


LAYOUTS = ["first", "last", "slice", "wide"]


def row(array: Array, buffer: int = 0, constant: bool = False) -> tuple[Any, ...]:
    return (buffer, 0, "f32", 4, list(array.shape), list(array.strides), array.ctypes.data if constant else 0)


def run(
    kernel: str, inputs: Sequence[Array], constants: Sequence[int], y: Array, attributes: dict[str, Any], threads: int = 1
) -> str:
    """Runs one step; `constants` tells which inputs are known when it is made. Gives the step's name."""
    from dovetail import _native

    arrays = [*inputs, y]
    program = _native.Program(_native.Pool(threads), _native.Store(), 0, len(arrays) + 1)
    rows = [row(each, i + 1, i in constants) for i, each in enumerate(inputs)]
    program.add(kernel, rows, [row(y, len(arrays))], attributes)
    _native.Visit(program).run([0, *(each.ctypes.data for each in arrays)], 0, 1)
    return str(program.names()[0])


def pattern(*sizes: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(sizes, np.float32)


def check(y: Array, expected: Any) -> None:
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * max(float(np.abs(expected).max(initial=0.0)), 1.0))


def laid(values: Array, layout: str, spare: float = np.nan) -> Array:
    """The same values in other places: `last`: channels last; `slice`: within wider pixels; `wide`: in wider rows too."""
    if layout == "first":
        return np.ascontiguousarray(values)
    order = (0, *range(2, values.ndim), 1)
    back = np.argsort(order)
    last = values.transpose(order)
    if layout == "last":
        return np.ascontiguousarray(last).transpose(back)
    wider = [*last.shape[:-2], last.shape[-2] + (3 if layout == "wide" else 0), last.shape[-1] + 5]
    room = np.full(wider, spare, np.float32)
    inside = room[..., : last.shape[-2], 3 : 3 + last.shape[-1]]
    inside[...] = last
    return inside.transpose(back)
