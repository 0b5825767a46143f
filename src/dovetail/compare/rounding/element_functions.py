"""ElementFunctions: functions of single elements of arrays that carry a bound of their rounding error."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dovetail.compare.rounding.rounded_array import Floats, Ints, Operand, RoundedArray
from dovetail.compare.rounding.unary_functions import ABSOLUTE, MONOTONE, UNARY, maximum_of, minimum_of
from dovetail.errors import UnsupportedError
from dovetail.ir import arrays
from dovetail.ir.dtypes import DType

COMPOSED = 4
"""Roundings of a result of fewer than 32 bits, whose operator a runtime may compute in parts."""
DEVIATION = 0.5
"""The standard deviation of a rounding error, relative to its bound."""


class ElementFunctions:
    """ElementFunctions is the base of RoundingFunctions: creation of arrays, rounding, and functions of single elements."""

    __name__ = "rounding"
    inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None

    def __init__(self, wide_unit: float, generator: np.random.Generator | None = None) -> None:
        self._wide_unit = wide_unit
        self._generator = generator

    def __getattr__(self, name: str) -> Any:
        if name in UNARY:
            return lambda x: self._apply_unary(name, x)
        if name == "searchsorted":
            return self.search
        kind = getattr(np, name, None)
        if isinstance(kind, type) and issubclass(kind, np.generic):
            return kind
        raise (
            AttributeError(name)
            if name.startswith("__")
            else UnsupportedError("array.library", f"no bound of rounding is known for {name}")
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *UNARY]

    # Arrays

    def asarray(self, x: Operand, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> RoundedArray:
        if isinstance(x, RoundedArray):
            return x if dtype is None else self.astype(x, dtype)
        x = np.asarray(x, None if dtype is None else np.dtype(dtype))
        return RoundedArray(self, widen_floats(x), x.dtype)

    def zeros_like(self, x: RoundedArray, dtype: npt.DTypeLike | None = None) -> RoundedArray:
        return self.full_like(x, 0, dtype=dtype)

    def ones_like(self, x: RoundedArray, dtype: npt.DTypeLike | None = None) -> RoundedArray:
        return self.full_like(x, 1, dtype=dtype)

    def full_like(self, x: RoundedArray, fill_value: Operand, dtype: npt.DTypeLike | None = None) -> RoundedArray:
        return self.full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype)

    def zeros(self, shape: Ints, dtype: npt.DTypeLike = np.float64) -> RoundedArray:
        return self.full(shape, 0, dtype=dtype)

    def ones(self, shape: Ints, dtype: npt.DTypeLike = np.float64) -> RoundedArray:
        return self.full(shape, 1, dtype=dtype)

    def full(self, shape: Ints, fill_value: Operand, dtype: npt.DTypeLike | None = None) -> RoundedArray:
        if isinstance(fill_value, RoundedArray):
            fill = fill_value if dtype is None else self.astype(fill_value, dtype)
            return fill.map(lambda array: np.broadcast_to(array, shape))
        return self.asarray(np.full(shape, fill_value, dtype))

    def arange(self, *args: float, dtype: npt.DTypeLike | None = None) -> RoundedArray:
        return self.asarray(np.arange(*args, dtype=dtype))

    def astype(self, x: RoundedArray, dtype: npt.DTypeLike, copy: bool = True) -> RoundedArray:
        """Convert to ``dtype``: floats to integers toward zero."""
        dtype = np.dtype(dtype)
        if dtype == x.dtype:
            return x
        target = arrays.element(np.empty(0, dtype))
        if target == "f8e8m0":
            raise UnsupportedError("array.library", f"no bound of rounding is known for a conversion to {target}")
        if target.is_float or target.kind == "complex":
            value = widen_floats(x.value.astype(np.complex128 if target.kind == "complex" else np.float64))
            # A conversion to a type that holds all values of the other rounds nothing.
            if not x.is_float and x.dtype.itemsize < 4 and target.bits >= 32:
                return RoundedArray(self, value, dtype, x.error, x.radius)
            if x.is_float and self.unit(dtype) <= self.unit(x.dtype) and target.bits >= 8 * x.dtype.itemsize:
                return RoundedArray(self, value, dtype, x.error, x.radius)
            return self.round_result(value, dtype, x.error, x.radius, roundings=COMPOSED if target.bits < 32 else 1)
        if target == "boolean":
            return self.not_equal(x, 0)
        y = self._steps(x, np.rint if target.bits < 8 else np.trunc) if x.is_float else x
        value = arrays.cast(np, x.value, target) if target.bits < 8 else y.value.astype(dtype)
        if target.bits < 8 and y.spread is not None:
            # Integers of few bits wrap around.
            (low, high), (lowest, greatest) = y.ends(), target.range()
            is_outside = (low < lowest) | (high > greatest)
            return RoundedArray(self, value, dtype, np.where(is_outside, np.inf, zero_of(y.error)), y.radius)
        return RoundedArray(self, value, dtype, y.error, y.radius)

    # Rounding

    def unit(self, dtype: npt.DTypeLike) -> float:
        """Return the unit roundoff of a float type; 0 for integers."""
        dtype = np.dtype(dtype)
        if dtype.kind in "iub":
            return 0.0
        if dtype.kind == "c":
            return 4 * self.unit(np.float64)
        return self._wide_unit if dtype == np.float64 else float(finfo_of(dtype).eps) / 2

    def round_result(
        self,
        value: Floats,
        dtype: npt.DTypeLike,
        error: Floats | None,
        radius: Floats | None,
        *,
        local: Floats | float | None = None,
        deviation: Floats | None = None,
        roundings: float = 1.0,
    ) -> RoundedArray:
        """Return an array whose elements are rounded.

        ``local`` is the sum of magnitudes that the rounding error is relative to (default: the magnitude of the element),
        ``deviation`` the root of the sum of squares of the values that are rounded, ``roundings`` a factor of both.
        """
        dtype, value = np.dtype(dtype), np.asarray(value)
        unit = self.unit(dtype)
        if not unit:
            return RoundedArray(self, value, dtype, error, radius)
        if self._generator is not None:
            size = DEVIATION * unit * (roundings * np.abs(value) if deviation is None else deviation)
            noise = self._generator.standard_normal(value.shape) * size
            return RoundedArray(self, np.where(np.isfinite(value) & np.isfinite(noise), value + noise, value), dtype)
        known = finfo_of(dtype if dtype.kind != "c" else np.float64)
        magnitude = np.abs(value) if local is None else local
        for each in (error, radius) if local is None else ():
            magnitude = magnitude if each is None else magnitude + each
        smallest = known.smallest_subnormal if dtype.itemsize == 1 or dtype == np.float16 else known.smallest_normal
        added = roundings * unit * magnitude + float(smallest) * (magnitude != 0)
        total = added if error is None else error + added
        limit = np.abs(value) + total + (0.0 if radius is None else radius)
        total = np.where(np.isnan(total) | (limit > float(known.max)), np.inf, total)
        # Types of 8 bits have no infinities, or saturate.
        total = np.where(np.isfinite(value), total, 0.0 if dtype.itemsize > 1 else np.inf)
        if radius is not None:
            # A NaN stands for an interval where the function is not defined.
            radius = np.where(np.isnan(value) | np.isnan(radius), np.inf, np.where(np.isfinite(value), radius, 0.0))
            total = np.where(np.isinf(radius), np.inf, total)
        return RoundedArray(self, value, dtype, total, radius)

    def _pair(self, x: Operand, y: Operand) -> tuple[RoundedArray, RoundedArray, np.dtype[Any]]:
        """Return both operands as arrays, and the type of the result."""
        if not isinstance(x, RoundedArray):
            x = self._like(x, y) if isinstance(y, RoundedArray) else self.asarray(x)
        if not isinstance(y, RoundedArray):
            y = self._like(y, x)
        return x, y, x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype)

    def _like(self, x: Operand, other: RoundedArray) -> RoundedArray:
        """Convert a number of Python to the type of the other operand."""
        if isinstance(x, (int, float)) and not (isinstance(x, float) and not other.is_float):
            return self.asarray(np.asarray(x).astype(np.int64 if other.dtype == np.bool_ else other.dtype))
        return self.asarray(x)

    # Elements

    def _apply_unary(self, name: str, x: RoundedArray) -> RoundedArray:
        function, slope, roundings = UNARY[name]
        value = function(x.value)
        error, radius = x.error, x.radius
        if self._generator is None and x.spread is not None:
            factor = slope(*x.ends())
            error, radius = (None if each is None else product_of(factor, each) for each in (error, radius))
        if radius is not None and name in MONOTONE:
            first, last = map(function, x.interval())
            value, radius = between(np.minimum(first, last), np.maximum(first, last))
        local = np.abs(value) + zero_of(error) + zero_of(radius) + ABSOLUTE.get(name, 0.0)
        return self.round_result(value, x.dtype, error, radius, local=local, roundings=roundings)

    def negative(self, x: RoundedArray) -> RoundedArray:
        return RoundedArray(self, np.negative(x.value), x.dtype, x.error, x.radius)

    def abs(self, x: RoundedArray) -> RoundedArray:
        value, radius = np.abs(x.value), x.radius
        if radius is not None:
            low, high = x.interval()
            value, radius = between(minimum_of(low, high), maximum_of(low, high))
        return RoundedArray(self, value, x.dtype, x.error, radius)

    def real(self, x: RoundedArray) -> RoundedArray:
        return RoundedArray(self, np.real(x.value), _part_type(x.dtype), x.error, x.radius)

    def imag(self, x: RoundedArray) -> RoundedArray:
        return RoundedArray(self, np.imag(x.value), _part_type(x.dtype), x.error, x.radius)

    def _steps(self, x: RoundedArray, function: Callable[[Floats], Floats]) -> RoundedArray:
        """Apply a function that rounds to integers."""
        value = function(x.value)
        if x.spread is None or not x.is_float:
            return RoundedArray(self, value, x.dtype)
        low, high = x.ends()
        is_same = function(low) == function(high)
        error, radius = (None if each is None else np.where(is_same, 0.0, np.ceil(each)) for each in (x.error, x.radius))
        return RoundedArray(self, value, x.dtype, error, radius)

    def floor(self, x: RoundedArray) -> RoundedArray:
        return self._steps(x, np.floor)

    def ceil(self, x: RoundedArray) -> RoundedArray:
        return self._steps(x, np.ceil)

    def trunc(self, x: RoundedArray) -> RoundedArray:
        return self._steps(x, np.trunc)

    def round(self, x: RoundedArray) -> RoundedArray:
        return self._steps(x, np.rint)

    def sign(self, x: RoundedArray) -> RoundedArray:
        value = np.sign(x.value)
        if x.spread is None:
            return RoundedArray(self, value, x.dtype)
        low, high = x.ends()
        jump = np.sign(high) - np.sign(low)
        return RoundedArray(self, value, x.dtype, jump, None if x.radius is None else jump)

    def add(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        return self.round_result(np.add(x.value, y.value), dtype, plus(x.error, y.error), plus(x.radius, y.radius))

    def subtract(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        return self.round_result(np.subtract(x.value, y.value), dtype, plus(x.error, y.error), plus(x.radius, y.radius))

    def multiply(self, x: Operand, y: Operand) -> RoundedArray:
        if x is y and isinstance(x, RoundedArray) and x.radius is not None:
            return self.pow(x, 2)
        x, y, dtype = self._pair(x, y)
        error, radius = product_errors(x, y, np.multiply)
        return self.round_result(np.multiply(x.value, y.value), dtype, error, radius)

    def divide(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        value = np.divide(x.value, y.value)
        if x.spread is None and y.spread is None:
            return self.round_result(value, dtype, None, None)
        low, high = y.ends()
        near = minimum_of(low, high)
        error = zero_of(x.error) + product_of(x.magnitude / near, zero_of(y.error))
        error = np.where(near > 0, error / near, np.inf) if x.error is not None or y.error is not None else None
        radius = None
        if x.radius is not None or y.radius is not None:
            corners = [np.divide(a, b) for a in x.interval() for b in y.interval()]
            value, radius = between(functools.reduce(np.minimum, corners), functools.reduce(np.maximum, corners))
            radius = np.where(near > 0, radius, np.inf)
        return self.round_result(value, dtype, error, radius)

    def pow(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        shape = np.broadcast_shapes(x.shape, y.shape)
        value = np.power(x.value, np.ascontiguousarray(np.broadcast_to(y.value, shape)))
        if x.spread is None and y.spread is None:
            return self.round_result(value, dtype, None, None, roundings=8)
        if y.spread is not None:
            # x^y = exp(y log x)
            return self._apply_unary("exp", self.multiply(y, self._apply_unary("log", x)))
        low, high = x.ends()
        near, far = minimum_of(low, high), maximum_of(low, high)
        slope = np.abs(y.value) * np.fmax(np.power(far, y.value - 1), np.power(near, y.value - 1))
        slope = np.where(y.value == 0, 0.0, slope)
        slope = np.where((low < 0) & (y.value != np.rint(y.value)), np.inf, slope)
        error = None if x.error is None else product_of(slope, x.error)
        radius = x.radius
        if radius is not None:
            (low, high), (first, last) = x.interval(), (np.power(each, y.value) for each in x.interval())
            has_turn = (low <= 0) & (high >= 0) & (y.value > 0)
            value, radius = between(
                np.where(has_turn, np.minimum(np.minimum(first, last), 0.0), np.minimum(first, last)), np.maximum(first, last)
            )
            radius = np.where((low <= 0) & (high >= 0) & (y.value < 0), np.inf, radius)
        return self.round_result(value, dtype, error, radius, roundings=8)

    def floor_divide(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        if x.spread is None and y.spread is None:
            return RoundedArray(self, np.floor_divide(x.value, y.value), dtype)
        return self.astype(self.floor(self.divide(self.astype(x, np.float64), self.astype(y, np.float64))), dtype)

    def remainder(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        value = np.remainder(x.value, y.value)
        if x.spread is None and y.spread is None:
            return self.round_result(value, dtype, None, None)
        quotient = self.floor(self.divide(x, y))
        jumps = zero_of(quotient.spread) != 0
        share, divisor = np.abs(quotient.value), np.abs(y.value)
        channels: list[Floats | None] = []
        for first, second in ((x.error, y.error), (x.radius, y.radius)):
            apart = zero_of(first) + product_of(share, zero_of(second))
            is_moved = first is not None or second is not None
            channels.append(np.where(jumps, divisor + zero_of(second), apart) if is_moved else None)
        error, radius = channels
        return self.round_result(value, dtype, error, radius)

    def copysign(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        value = np.copysign(x.value, y.value)
        low, high = y.ends()
        flips = np.where((low <= 0) & (high >= 0) & (low != high), 2 * np.abs(value), 0.0)
        return RoundedArray(
            self, value, dtype, plus(x.error, flips if flips.any() else None), x.radius if x.radius is None else x.radius + flips
        )

    def _choose(self, x: Operand, y: Operand, function: Callable[..., Floats]) -> RoundedArray:
        """Apply minimum or maximum, which move a bound of both operands to the result."""
        x, y, dtype = self._pair(x, y)
        value = function(x.value, y.value)
        if x.spread is None and y.spread is None:
            return RoundedArray(self, value, dtype)
        (first, second), (third, fourth) = x.ends(), y.ends()
        is_x, is_y = (first > fourth, third > second) if function is np.maximum else (second < third, fourth < first)
        a, b = zero_of(x.error), zero_of(y.error)
        error = np.where(is_x, a, np.where(is_y, b, np.maximum(a, b))) if np.any(a) or np.any(b) else None
        radius = None
        if x.radius is not None or y.radius is not None:
            value, radius = between(*(function(a, b) for a, b in zip(x.interval(), y.interval(), strict=True)))
        return RoundedArray(self, value, dtype, error, radius)

    def maximum(self, x: Operand, y: Operand) -> RoundedArray:
        return self._choose(x, y, np.maximum)

    def minimum(self, x: Operand, y: Operand) -> RoundedArray:
        return self._choose(x, y, np.minimum)

    def clip(self, x: RoundedArray, min: Operand | None = None, max: Operand | None = None) -> RoundedArray:
        x = x if min is None else self.maximum(x, min)
        return x if max is None else self.minimum(x, max)

    def logaddexp(self, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        error = None if x.error is None and y.error is None else np.maximum(zero_of(x.error), zero_of(y.error))
        radius = None if x.radius is None and y.radius is None else np.maximum(zero_of(x.radius), zero_of(y.radius))
        return self.round_result(np.logaddexp(x.value, y.value), dtype, error, radius, roundings=8)

    def where(self, condition: RoundedArray, x: Operand, y: Operand) -> RoundedArray:
        x, y, dtype = self._pair(x, y)
        value = np.where(condition.value, x.value, y.value)
        error, radius = (
            None if a is None and b is None else np.where(condition.value, zero_of(a), zero_of(b))
            for a, b in ((x.error, y.error), (x.radius, y.radius))
        )
        if condition.spread is None or not condition.spread.any():
            return RoundedArray(self, value, dtype, error, radius)
        with np.errstate(invalid="ignore"):
            apart = np.abs(np.subtract(x.value, y.value, dtype=np.float64))
        apart = np.where(np.isnan(apart), np.inf, apart)
        either = apart + np.maximum(zero_of(x.spread), zero_of(y.spread))
        error = np.where(zero_of(condition.spread) != 0, either, zero_of(error))
        if condition.radius is not None:
            radius = np.where(condition.radius != 0, either, zero_of(radius))
        return RoundedArray(self, value, dtype, error, radius)

    def _compare(self, x: Operand, y: Operand, function: Callable[..., Floats]) -> RoundedArray:
        x, y, _ = self._pair(x, y)
        value = function(x.value, y.value)
        if x.spread is None and y.spread is None:
            return RoundedArray(self, value, np.bool_)
        with np.errstate(invalid="ignore"):
            reach = zero_of(x.spread) + zero_of(y.spread)
            is_open = (np.abs(np.subtract(x.value, y.value, dtype=np.float64)) <= reach) & (reach > 0)
        is_open &= ~(np.isinf(x.value) | np.isinf(y.value)) | (reach == np.inf)
        flips = np.broadcast_to(is_open.astype(np.float64), value.shape)
        if not flips.any():
            return RoundedArray(self, value, np.bool_)
        return RoundedArray(self, value, np.bool_, flips, None if x.radius is None and y.radius is None else flips)

    def equal(self, x: Operand, y: Operand) -> RoundedArray:
        if x is y and isinstance(x, RoundedArray):
            return RoundedArray(self, x.value == x.value, np.bool_)
        return self._compare(x, y, np.equal)

    def not_equal(self, x: Operand, y: Operand) -> RoundedArray:
        if x is y and isinstance(x, RoundedArray):
            return RoundedArray(self, x.value != x.value, np.bool_)
        return self._compare(x, y, np.not_equal)

    def less(self, x: Operand, y: Operand) -> RoundedArray:
        return self._compare(x, y, np.less)

    def less_equal(self, x: Operand, y: Operand) -> RoundedArray:
        return self._compare(x, y, np.less_equal)

    def greater(self, x: Operand, y: Operand) -> RoundedArray:
        return self._compare(x, y, np.greater)

    def greater_equal(self, x: Operand, y: Operand) -> RoundedArray:
        return self._compare(x, y, np.greater_equal)

    def isnan(self, x: RoundedArray) -> RoundedArray:
        return RoundedArray(self, np.isnan(x.value) if x.is_float else np.zeros(x.shape, bool), np.bool_)

    def isinf(self, x: RoundedArray) -> RoundedArray:
        return RoundedArray(self, np.isinf(x.value) if x.is_float else np.zeros(x.shape, bool), np.bool_)

    def isfinite(self, x: RoundedArray) -> RoundedArray:
        return RoundedArray(self, np.isfinite(x.value) if x.is_float else np.ones(x.shape, bool), np.bool_)

    def _logic(self, x: Operand, y: Operand, function: Callable[..., Floats]) -> RoundedArray:
        """Apply a function of bits. An operand that rounding changes changes every bit of the result."""
        x, y, dtype = self._pair(x, y)
        value = function(x.value, y.value)
        if x.spread is None and y.spread is None:
            return RoundedArray(self, value, dtype)
        if dtype != np.bool_:
            raise UnsupportedError("array.library", "no bound of rounding is known for operations on bits")
        flips = ((zero_of(x.spread) != 0) | (zero_of(y.spread) != 0)).astype(np.float64)
        if function is np.bitwise_and:
            # A certain False decides.
            flips = flips * ~((~x.value & (zero_of(x.spread) == 0)) | (~y.value & (zero_of(y.spread) == 0)))
        elif function is np.bitwise_or:
            flips = flips * ~((x.value & (zero_of(x.spread) == 0)) | (y.value & (zero_of(y.spread) == 0)))
        has_radius = x.radius is not None or y.radius is not None
        return RoundedArray(self, value, dtype, flips, flips if has_radius else None)

    def bitwise_and(self, x: Operand, y: Operand) -> RoundedArray:
        return self._logic(x, y, np.bitwise_and)

    def bitwise_or(self, x: Operand, y: Operand) -> RoundedArray:
        return self._logic(x, y, np.bitwise_or)

    def bitwise_xor(self, x: Operand, y: Operand) -> RoundedArray:
        return self._logic(x, y, np.bitwise_xor)

    def bitwise_left_shift(self, x: Operand, y: Operand) -> RoundedArray:
        return self._logic(x, y, np.left_shift)

    def bitwise_right_shift(self, x: Operand, y: Operand) -> RoundedArray:
        return self._logic(x, y, np.right_shift)

    logical_and, logical_or, logical_xor = bitwise_and, bitwise_or, bitwise_xor

    def bitwise_invert(self, x: RoundedArray) -> RoundedArray:
        if x.dtype != np.bool_ and x.spread is not None:
            raise UnsupportedError("array.library", "no bound of rounding is known for operations on bits")
        return RoundedArray(self, np.invert(x.value), x.dtype, x.error, x.radius)

    logical_not = bitwise_invert


def finfo_of(dtype: npt.DTypeLike) -> Any:
    """Return the limits of a float type of numpy or of ml_dtypes."""
    finfo: Any = ml_dtypes.finfo
    return finfo(dtype)


def widen_floats(x: Floats) -> Any:
    """Return floats of any type as f64."""
    kind: DType = arrays.element(x)
    return x.astype(np.float64) if kind.is_float else x


def _part_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype({"complex64": np.float32, "complex128": np.float64}.get(dtype.name, dtype))


def zero_of(channel: Floats | float | None) -> Any:
    return 0.0 if channel is None else channel


def plus(first: Floats | None, second: Floats | None) -> Floats | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def between(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the middles and the radii of intervals; the radius is infinite if an end is NaN."""
    with np.errstate(invalid="ignore"):
        middle, radius = low + (high - low) / 2, (high - low) / 2
    is_same = low == high
    return np.where(is_same, low, np.where(np.isfinite(middle), middle, 0.0)), np.where(
        is_same, 0.0, np.where(np.isfinite(radius), radius, np.inf)
    )


def product_of(factor: Floats | float, bound: Floats | float | None) -> Any:
    """Multiply a bound; a bound of 0 stays 0 for an infinite factor."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(bound == 0, 0.0, factor * zero_of(bound)) if bound is not None else None


def reach_of(function: Callable[[Floats], Floats], value: Floats, spread: Floats, result: Floats) -> Floats:
    """Return how far a monotone function moves if its operand moves by at most ``spread``."""
    with np.errstate(invalid="ignore"):
        far = np.maximum(function(value + spread) - result, result - function(value - spread))
    return np.where(np.isnan(far), 0.0, far)


def product_errors(
    x: RoundedArray, y: RoundedArray, function: Callable[[Any, Any], Floats], gamma: float = 0.0
) -> tuple[Floats | None, Floats | None]:
    """Return the error and the radius of a bilinear function of two arrays.

    ``gamma`` is added to the error, relative to the function of both magnitudes.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        size_x, size_y = (
            np.where(np.isfinite(each), each, 0.0) if not np.isfinite(each).all() else each for each in (x.magnitude, y.magnitude)
        )
        first = None if x.error is None and not gamma else zero_of(x.error) + gamma * size_x
        error = None if first is None else function(np.broadcast_to(first, x.shape), size_y)
        if y.error is not None:
            error = plus(error, function(size_x, np.broadcast_to(y.error, y.shape)))
        radius = None if x.radius is None else function(np.broadcast_to(x.radius, x.shape), size_y)
        if y.radius is not None:
            radius = plus(radius, function(size_x, np.broadcast_to(y.radius, y.shape)))
    return error, radius
