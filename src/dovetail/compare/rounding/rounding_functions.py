"""RoundingFunctions: the functions of the array API over arrays that carry a bound of their rounding error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dovetail.compare.rounding.element_functions import ElementFunctions, between, plus, product_errors, reach_of, zero_of
from dovetail.compare.rounding.rounded_array import Axis, Floats, Ints, RoundedArray
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.ir import arrays
from dovetail.ir.evaluate import FAILURES, apply
from dovetail.ir.op import Op

WINOGRAD = 756.0
"""The sum of all products of magnitudes in the transforms of F(4x4, 3x3) at 0, 3/4, -3/4, 3/2, -3/2 and infinity, for ones."""
WINOGRAD_STEPS = 24
"""Roundings of one value in the transforms of Winograd's algorithm, beside the sum over channels."""
UNIT = 2.0**-24
"""The unit roundoff of f32."""
MAX_RELATIVE = 2.0**-16
"""Maximum bound of an element relative to the largest element of its constant."""
FUSED = 2
"""Roundings of a product that a runtime adds where it multiplies factors into the weights."""


class RoundingFunctions(ElementFunctions):
    """RoundingFunctions is a namespace of the array API, over RoundedArrays.

    Rules of operators that are evaluated in it give elements over the real numbers (computed in f64), with a bound of the error
    of a run that rounds after every operation and sums in any order (running error analysis: Higham, Accuracy and Stability of
    Numerical Algorithms, chapter 3). ``wide_unit`` is the unit roundoff of f64 arrays.

    With ``generator`` no bound is computed; each operation adds a random error of the size of its rounding to the elements
    (Monte Carlo arithmetic: Parker, 1997).
    """

    def __init__(self, wide_unit: float, generator: np.random.Generator | None = None) -> None:
        super().__init__(wide_unit, generator)
        self.fft = _Transforms(self)

    # Movement

    def reshape(self, x: RoundedArray, shape: Ints, copy: bool | None = None) -> RoundedArray:
        return x.map(
            lambda array: np.reshape(np.broadcast_to(array, x.shape), tuple(shape) if isinstance(shape, Sequence) else shape)
        )

    def permute_dims(self, x: RoundedArray, axes: Ints) -> RoundedArray:
        return x.map(lambda array: np.transpose(np.broadcast_to(array, x.shape), axes))

    def moveaxis(self, x: RoundedArray, source: Ints, destination: Ints) -> RoundedArray:
        return x.map(lambda array: np.moveaxis(array, source, destination))

    def matrix_transpose(self, x: RoundedArray) -> RoundedArray:
        return x.map(lambda array: np.swapaxes(array, -1, -2))

    def flip(self, x: RoundedArray, axis: Axis = None) -> RoundedArray:
        return x.map(lambda array: np.flip(array, axis))

    def roll(self, x: RoundedArray, shift: Ints, axis: Axis = None) -> RoundedArray:
        return x.map(lambda array: np.roll(array, shift, axis))

    def expand_dims(self, x: RoundedArray, axis: Ints = 0) -> RoundedArray:
        return x.map(lambda array: np.expand_dims(array, axis))

    def squeeze(self, x: RoundedArray, axis: Axis) -> RoundedArray:
        return x.map(lambda array: np.squeeze(array, axis))

    def broadcast_to(self, x: RoundedArray, shape: Ints) -> RoundedArray:
        return x.map(lambda array: np.broadcast_to(array, shape))

    def broadcast_arrays(self, *xs: RoundedArray) -> list[RoundedArray]:
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        return [self.broadcast_to(x, shape) for x in xs]

    def _join(self, xs: Sequence[RoundedArray], function: Callable[[list[Floats]], Floats]) -> RoundedArray:
        dtype = xs[0].dtype if all(x.dtype == xs[0].dtype for x in xs) else np.result_type(*(x.dtype for x in xs))
        error, radius = (
            None
            if all(each is None for each in channel)
            else function([np.broadcast_to(zero_of(each), x.shape) for each, x in zip(channel, xs, strict=True)])
            for channel in ([x.error for x in xs], [x.radius for x in xs])
        )
        return RoundedArray(self, function([x.value for x in xs]), dtype, error, radius)

    def concat(self, xs: Sequence[RoundedArray], axis: int = 0) -> RoundedArray:
        return self._join(xs, lambda each: np.concatenate(each, axis))

    def stack(self, xs: Sequence[RoundedArray], axis: int = 0) -> RoundedArray:
        return self._join(xs, lambda each: np.stack(each, axis))

    def take(self, x: RoundedArray, indices: RoundedArray, axis: int | None = None) -> RoundedArray:
        """Take elements; where rounding may change an index, any element of the axis may be taken."""
        axis = 0 if axis is None else axis
        places = indices.value
        y = x.map(lambda array: np.take(np.broadcast_to(array, x.shape), places, axis))
        if indices.spread is None or not indices.spread.any():
            return y
        low, high = x.ends()
        with np.errstate(invalid="ignore"):
            reach = np.max(high, axis, keepdims=True) - np.min(low, axis, keepdims=True)
        is_open = np.reshape(indices.spread != 0, (*(1,) * axis, -1, *(1,) * (x.ndim - 1 - axis)))
        error = np.where(is_open, np.broadcast_to(reach, y.shape), zero_of(y.error))
        radius = np.where(is_open, np.broadcast_to(reach, y.shape), zero_of(y.radius)) if indices.radius is not None else y.radius
        return RoundedArray(self, y.value, x.dtype, error, radius)

    # Sums and products

    def coefficients(self, array: Floats, dtype: npt.DTypeLike, roundings: float) -> RoundedArray:
        """Return coefficients that a run computes in ``dtype``, each with an error of at most ``roundings`` units roundoff."""
        error = None if self._generator is not None else np.full_like(array, (roundings + 0.5) * self.unit(dtype))
        return RoundedArray(self, array, dtype, error)

    def _terms_of(self, x: RoundedArray, axis: Axis) -> int:
        axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        return math.prod(x.shape[each] for each in axes)

    def sum(self, x: RoundedArray, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False) -> RoundedArray:
        def total(array: Floats | None) -> Floats | None:
            return None if array is None else np.sum(np.broadcast_to(array, x.shape), axis=axis, keepdims=keepdims)

        count = self._terms_of(x, axis)
        kind = np.dtype(dtype or (x.dtype if x.is_float or x.dtype.itemsize == 8 else np.int64))
        value = np.sum(x.value, axis=axis, keepdims=keepdims)
        local = deviation = None
        if x.is_float and self._generator is not None:
            deviation = np.sqrt(
                count * (0.5 * np.sum(np.abs(x.value) ** 2, axis=axis, keepdims=keepdims) + np.abs(value) ** 2 / 3)
            )
        elif x.is_float:
            local = np.sum(x.magnitude, axis=axis, keepdims=keepdims)
        value = value if x.is_float else value.astype(kind)
        return self.round_result(
            value, kind, total(x.error), total(x.radius), local=local, deviation=deviation, roundings=max(count - 1, 1)
        )

    def mean(self, x: RoundedArray, axis: Axis = None, keepdims: bool = False) -> RoundedArray:
        return self.divide(self.sum(x, axis=axis, keepdims=keepdims), float(self._terms_of(x, axis)))

    def cumulative_sum(
        self, x: RoundedArray, axis: int | None = None, dtype: npt.DTypeLike | None = None, include_initial: bool = False
    ) -> RoundedArray:
        axis = 0 if axis is None else axis
        if include_initial:
            raise UnsupportedError("array.library", "no bound of rounding is known for sums with an initial element")
        error, radius = (
            None if each is None else np.cumsum(np.broadcast_to(each, x.shape), axis) for each in (x.error, x.radius)
        )
        local = np.cumsum(x.magnitude, axis) if x.is_float else None
        deviation = None
        if x.is_float and self._generator is not None:
            deviation = np.sqrt(np.cumsum(np.cumsum(x.value, axis) ** 2, axis))
        return self.round_result(
            np.cumsum(x.value, axis), x.dtype, error, radius, local=local, deviation=deviation, roundings=max(x.shape[axis], 1)
        )

    def prod(
        self, x: RoundedArray, axis: Axis = None, dtype: npt.DTypeLike | None = None, keepdims: bool = False
    ) -> RoundedArray:
        value = np.prod(x.value, axis=axis, keepdims=keepdims)
        count = self._terms_of(x, axis)
        if x.spread is None:
            return self.round_result(value, x.dtype, None, None, roundings=max(count, 1))
        error, radius = (
            None
            if each is None
            else np.prod(x.magnitude, axis=axis, keepdims=keepdims)
            - np.prod(np.maximum(x.magnitude - each, 0.0), axis=axis, keepdims=keepdims)
            for each in (x.error, x.radius)
        )
        local = np.prod(x.magnitude, axis=axis, keepdims=keepdims)
        return self.round_result(value, x.dtype, error, radius, local=local, roundings=max(count, 1))

    def _extreme(self, x: RoundedArray, axis: Axis, keepdims: bool, function: Callable[..., Floats]) -> RoundedArray:
        def of(array: Floats) -> Floats:
            return np.asarray(function(array, axis=axis, keepdims=keepdims))

        value = of(x.value)
        if x.radius is None:
            return RoundedArray(self, value, x.dtype, None if x.error is None else reach_of(of, x.value, x.error, value))
        error = None if x.error is None else np.max(np.broadcast_to(x.error, x.shape), axis=axis, keepdims=keepdims)
        value, radius = between(*map(of, x.interval()))
        return RoundedArray(self, value, x.dtype, error, radius)

    def max(self, x: RoundedArray, axis: Axis = None, keepdims: bool = False) -> RoundedArray:
        return self._extreme(x, axis, keepdims, np.max)

    def min(self, x: RoundedArray, axis: Axis = None, keepdims: bool = False) -> RoundedArray:
        return self._extreme(x, axis, keepdims, np.min)

    def _every(self, x: RoundedArray, axis: Axis, keepdims: bool, function: Callable[..., Floats]) -> RoundedArray:
        value = function(x.value, axis=axis, keepdims=keepdims)
        if x.spread is None:
            return RoundedArray(self, value, np.bool_)
        flips = x.spread != 0
        first = function(x.value & ~flips, axis=axis, keepdims=keepdims)
        last = function(x.value | flips, axis=axis, keepdims=keepdims)
        error = np.asarray(first != last, np.float64)
        return RoundedArray(self, value, np.bool_, error, None if x.radius is None else error)

    def any(self, x: RoundedArray, axis: Axis = None, keepdims: bool = False) -> RoundedArray:
        return self._every(x, axis, keepdims, np.any)

    def all(self, x: RoundedArray, axis: Axis = None, keepdims: bool = False) -> RoundedArray:
        return self._every(x, axis, keepdims, np.all)

    def _place(self, x: RoundedArray, axis: Axis, keepdims: bool, function: Callable[..., Floats]) -> RoundedArray:
        """Return the place of an extreme; where rounding may change it, its error is the length of the axis."""
        value = np.asarray(function(x.value, axis=axis, keepdims=keepdims))
        if x.spread is None:
            return RoundedArray(self, value, np.int64)
        low, high = x.ends()
        if function is np.argmin:
            low, high = -high, -low
        best = np.max(low, axis=axis, keepdims=True)
        is_open = np.sum(high >= best, axis=axis, keepdims=keepdims) > 1
        length = self._terms_of(x, axis)
        error = np.where(is_open, float(max(length - 1, 0)), 0.0)
        if not error.any():
            return RoundedArray(self, value, np.int64)
        return RoundedArray(self, value, np.int64, error, None if x.radius is None else error)

    def argmax(self, x: RoundedArray, axis: Axis = None, keepdims: bool = False) -> RoundedArray:
        return self._place(x, axis, keepdims, np.argmax)

    def argmin(self, x: RoundedArray, axis: Axis = None, keepdims: bool = False) -> RoundedArray:
        return self._place(x, axis, keepdims, np.argmin)

    def argsort(self, x: RoundedArray, axis: int = -1, descending: bool = False, stable: bool = True) -> RoundedArray:
        keys = -x.value.astype(np.float64) if descending else x.value
        order = np.argsort(keys, axis=axis, kind="stable")
        if x.spread is None or not x.spread.any():
            return RoundedArray(self, order, np.int64)
        low, high = (np.take_along_axis(each, order, axis) for each in x.ends())
        if descending:
            low, high = -high, -low
        reach = np.maximum.accumulate(high, axis)
        overlaps = (
            np.diff(np.zeros_like(low), axis=axis)
            if low.shape[axis] < 2
            else (np.take(reach, range(low.shape[axis] - 1), axis) >= np.take(low, range(1, low.shape[axis]), axis))
        )
        nothing = np.zeros_like(np.take(low, [0] if low.shape[axis] else [], axis), bool)
        before, after = (
            np.concatenate([nothing, overlaps.astype(bool)], axis),
            np.concatenate([overlaps.astype(bool), nothing], axis),
        )
        error = (before | after) * float(max(x.shape[axis] - 1, 0))
        if not error.any():
            return RoundedArray(self, order, np.int64)
        return RoundedArray(self, order, np.int64, error, None if x.radius is None else error)

    def sort(self, x: RoundedArray, axis: int = -1, descending: bool = False, stable: bool = True) -> RoundedArray:
        value = np.sort(x.value, axis=axis)
        value = np.flip(value, axis) if descending else value
        error, radius = (
            None if each is None else np.broadcast_to(np.max(np.broadcast_to(each, x.shape), axis=axis, keepdims=True), x.shape)
            for each in (x.error, x.radius)
        )
        return RoundedArray(self, value, x.dtype, error, radius)

    def search(self, x: RoundedArray, v: RoundedArray, *, side: Literal["left", "right"] = "left") -> RoundedArray:
        return RoundedArray(self, np.searchsorted(np.asarray(x), np.asarray(v), side=side), np.int64)

    def nonzero(self, x: RoundedArray) -> tuple[RoundedArray, ...]:
        return tuple(self.asarray(each) for each in np.nonzero(np.asarray(x)))

    def cumulative_prod(self, x: RoundedArray, axis: int | None = None, dtype: npt.DTypeLike | None = None) -> RoundedArray:
        axis = 0 if axis is None else axis
        value, largest = np.cumprod(x.value, axis), np.cumprod(x.magnitude, axis)
        error, radius = (
            None if each is None else largest - np.cumprod(np.maximum(x.magnitude - each, 0.0), axis)
            for each in (x.error, x.radius)
        )
        return self.round_result(value, x.dtype, error, radius, local=largest, roundings=max(x.shape[axis], 1))

    def matmul(self, x: RoundedArray, y: RoundedArray) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        return self._product(x, y, dtype, np.matmul, x.shape[-1])

    def _product(
        self,
        x: RoundedArray,
        y: RoundedArray,
        dtype: npt.DTypeLike,
        function: Callable[[Any, Any], Floats],
        depth: int,
        more: Callable[[], Floats] | None = None,
    ) -> RoundedArray:
        """Apply a bilinear function, each of whose results is a sum of ``depth`` products."""
        value = function(x.value, y.value)
        if not x.is_float and not y.is_float:
            error, radius = product_errors(x, y, function)
            return RoundedArray(self, value, dtype, error, radius)
        if self._generator is not None:
            squares = np.maximum(function(np.square(x.value), np.square(y.value)), 0.0)
            return self.round_result(value, dtype, None, None, deviation=np.sqrt(depth * (0.5 * squares + value**2 / 3)))
        gamma = (depth + FUSED) * self.unit(dtype)
        error, radius = product_errors(x, y, function, gamma)
        if more is not None:
            error = plus(error, self.unit(dtype) * more())
        return self.round_result(value, dtype, error, radius, roundings=0)

    def convolve(
        self,
        x: RoundedArray,
        w: RoundedArray,
        strides: Sequence[int],
        begins: Sequence[int],
        ends: Sequence[int],
        dilations: Sequence[int],
        group: int,
    ) -> RoundedArray:
        """Convolve as :func:`dovetail.ir.arrays.convolve`; 3 x 3 windows of stride 1 also by Winograd's algorithm."""

        def function(a: Floats, b: Floats) -> Floats:
            return np.asarray(arrays.convolve(np, a, b, strides, begins, ends, dilations, group))

        is_winograd = w.shape[2:] == (3, 3) and group == 1 and {*strides, *dilations} == {1} and x.is_float and x.size > 0

        def tiles() -> Floats:
            size = arrays.pool_max(np, x.magnitude, (7, 7), (1, 1), (3, 3), (3, 3), (1, 1))
            largest = np.max(w.magnitude, (2, 3), keepdims=True) * np.full((1, 1, 3, 3), 1 / 9)
            spread = arrays.pool_max(np, size, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
            return (
                (w.shape[1] + WINOGRAD_STEPS)
                * WINOGRAD
                * np.asarray(arrays.convolve(np, spread, largest, strides, begins, ends, dilations, group))
            )

        return self._product(x, w, x.dtype, function, math.prod(w.shape[1:]), tiles if is_winograd and w.shape[1] >= 8 else None)


def evaluate_with_error(
    op: Op, operands: Sequence[Floats | None], errors: Sequence[Floats | None]
) -> tuple[Floats, Floats] | None:
    """Evaluate an operator on constants in f64. Returns the result and a bound of the error of an evaluation in f32.

    ``errors`` are bounds of the errors of the operands; None stands for an operand that is no float. Returns None for an operator
    of which no bound is known, and for a bound beyond MAX_RELATIVE.
    """
    functions = RoundingFunctions(UNIT)
    xs = [
        x if x is None or error is None else RoundedArray(functions, x.astype(np.float64), np.float32, error)
        for x, error in zip(operands, errors, strict=True)
    ]
    try:
        with np.errstate(all="ignore"):
            found = functions.asarray(apply(op, functions, xs)[0])
    except (DovetailError, AttributeError, *FAILURES):
        return None
    result = found.value.astype(np.float64)
    bound = np.broadcast_to(np.asarray(zero_of(found.error), np.float64), result.shape)
    largest = float(np.max(np.abs(result), initial=0.0))
    if not np.all(np.isfinite(result)) or not np.all(bound <= MAX_RELATIVE * largest):
        return None
    return result, bound


class _Transforms:
    """The discrete Fourier transforms of a namespace."""

    def __init__(self, functions: RoundingFunctions) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        function = getattr(np.fft, name)
        kind = np.float64 if name == "irfft" else np.complex128

        def transform(x: RoundedArray, n: int | None = None, axis: int = -1, norm: str = "backward") -> RoundedArray:
            value = function(x.value, n, axis, norm)
            length = value.shape[axis] if name != "rfft" else x.shape[axis] if n is None else n
            share = (2.0 if name == "irfft" else 1.0) / (length if name.startswith("i") and length else 1)

            def total(array: Floats | None) -> Floats | None:
                return (
                    None
                    if array is None
                    else share * np.broadcast_to(np.sum(np.broadcast_to(array, x.shape), axis, keepdims=True), value.shape)
                )

            steps = 2 + math.log2(max(length, 1))
            return self._functions.round_result(
                value, kind, total(x.error), total(x.radius), local=total(x.magnitude), roundings=steps
            )

        return transform
