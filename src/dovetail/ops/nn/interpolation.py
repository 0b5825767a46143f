"""Interpolation along one axis: coordinate transformations, rounding, Keys' kernel, and the taps of a Resize."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.ir import arrays

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace

NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")


_HALF = np.float32(0.5)


# Each function maps output indices `y` to positions in the input, in f32 as in onnxruntime and OpenVINO. Its other arguments are
# the scale, the output size, the input size and the region.
COORDINATES: dict[str, Callable[..., Any]] = {
    "half_pixel": lambda y, scale, out, size, roi: (y + _HALF) / scale - _HALF,
    "half_pixel_symmetric": lambda y, scale, out, size, roi: (
        np.float32(size / 2 * (1 - out / (float(scale) * size)) if size else 0) + (y + _HALF) / scale - _HALF
    ),
    "pytorch_half_pixel": lambda y, scale, out, size, roi: (y + _HALF) / scale - _HALF if out > 1 else 0 * y,
    "asymmetric": lambda y, scale, out, size, roi: y / scale,
    "tf_half_pixel_for_nn": lambda y, scale, out, size, roi: (y + _HALF) / scale,
    "align_corners": lambda y, scale, out, size, roi: y * np.float32(size - 1) / np.float32(out - 1) if out > 1 else 0 * y,
    "align_corners_scaled": lambda y, scale, out, size, roi: _align_scaled_corners(y, float(scale) * size, size),
    "tf_crop_and_resize": lambda y, scale, out, size, roi: _crop(y, out, size, *roi),
}


def _align_scaled_corners(y: Array, length: float, size: int) -> Any:
    """Compute align_corners positions for the scaled length ``length``, which may be fractional."""
    return 0 * y if length == 1 else (y * (size - 1) / (length - 1)).astype(np.float32)


def _crop(y: Array, out: int, size: int, start: float, end: float) -> Any:
    if out > 1:
        positions = start * (size - 1) + y.astype(np.float64) * (end - start) * (size - 1) / (out - 1)
    else:
        positions = 0 * y + 0.5 * (start + end) * (size - 1)
    return positions.astype(np.float32)


class ResizeAxis(NamedTuple):
    """ResizeAxis describes how Resize changes one axis: from ``size`` elements to ``out``, with ``scale``.

    ``roi`` holds begin and end of the sampled part, as fractions of the axis. ``narrows`` tells whether an enlarged axis has
    narrowed weights.
    """

    axis: int
    size: Any
    out: Any
    scale: Any
    roi: tuple[float, float] = (0.0, 1.0)
    narrows: bool = False


class Taps(NamedTuple):
    """Taps define interpolation along one axis: output element i is the sum of ``weights[i]`` times ``x[indices[i]]``.

    ``outside`` marks the output elements whose position is outside the input. ``roundings``: a bound of the rounding error of a
    weight that is computed in the type of ``x``, in units roundoff.
    """

    indices: Any
    weights: Any
    outside: Any
    roundings: float = 0.0


def round_positions(x: Array, mode: str, is_smaller: bool) -> Any:
    if mode == "simple":
        mode = "ceil" if is_smaller else "floor"
    steps: dict[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda position: np.ceil(position - _HALF),
        "round_prefer_ceil": lambda position: np.floor(position + _HALF),
    }
    return steps[mode](x).astype(np.int64)


def keys_kernel(distance: Array, a: float) -> Any:
    """Evaluate Keys' cubic kernel: 1 at distance 0; 0 at distance 1 and at distances of 2 or more."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def keys_roundings(a: float) -> float:
    """Return a bound of the rounding error of :func:`keys_kernel`, in units roundoff: Horner's rule at distances of at most 2.

    Beyond 1, a * distance - 5 * a has an error of 6 |a|; the next two steps double it, and add 12 |a| and 4 |a|, then 5 |a|.
    """
    return 8.0 + 56.0 * abs(a)


def to_library_indices(xp: Namespace, indices: Array, like: Array) -> Any:
    """Convert numpy indices to the library of ``like``: i64 in numpy, i32 elsewhere."""
    return arrays.from_numpy(xp, indices if arrays.is_numpy(xp) else indices.astype(np.int32), like)


def interpolate(xp: Namespace, x: Array, axis: int, taps: Taps) -> Any:
    """Interpolate along ``axis``: multiply the elements of ``x`` at the taps by their weights, and add the products."""
    total: Any = None
    after = (1,) * (x.ndim - axis - 1)
    for tap in range(taps.indices.shape[1]):
        weights = taps.weights[:, tap].reshape((-1, *after))
        if arrays.is_rounding(xp):
            factors = xp.coefficients(weights, arrays.element(x).numpy, taps.roundings)
        else:
            factors = arrays.from_numpy(xp, weights.astype(arrays.element(x).numpy), x)
        part = xp.take(x, to_library_indices(xp, taps.indices[:, tap], x), axis=axis) * factors
        total = part if total is None else total + part
    return total
