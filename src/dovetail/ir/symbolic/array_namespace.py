"""An array API namespace for shape values."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.ir.symbolic import elementwise
from dovetail.ir.symbolic.algebra import Inexact
from dovetail.ir.symbolic.arrays import Array, ArrayLike, SymbolicArray, as_values, check_broadcast, small
from dovetail.ir.symbolic.elementwise import DTypeArgument, adapt_movement, convert_dtype, truth


class _Namespace:
    """Functions of the array API standard that are exact on arrays of ``int | Dim``; other functions raise Inexact."""

    int8: ClassVar = np.dtype(np.int8)
    int16: ClassVar = np.dtype(np.int16)
    int32: ClassVar = np.dtype(np.int32)
    int64: ClassVar = np.dtype(np.int64)
    uint8: ClassVar = np.dtype(np.uint8)
    uint16: ClassVar = np.dtype(np.uint16)
    uint32: ClassVar = np.dtype(np.uint32)
    uint64: ClassVar = np.dtype(np.uint64)
    bool: ClassVar = np.dtype(np.bool_)
    newaxis: ClassVar = None

    add = staticmethod(elementwise.add)
    subtract = staticmethod(elementwise.subtract)
    multiply = staticmethod(elementwise.multiply)
    floor_divide = staticmethod(elementwise.floor_divide)
    remainder = staticmethod(elementwise.remainder)
    divide = staticmethod(elementwise.divide)
    pow = staticmethod(elementwise.power)
    negative = staticmethod(elementwise.negative)
    positive = staticmethod(elementwise.positive)
    abs = staticmethod(elementwise.absolute)
    square = staticmethod(elementwise.square)
    sign = staticmethod(elementwise.sign)
    minimum = staticmethod(elementwise.minimum)
    maximum = staticmethod(elementwise.maximum)
    floor = ceil = trunc = round = positive

    equal = staticmethod(elementwise.equal)
    not_equal = staticmethod(elementwise.not_equal)
    less = staticmethod(elementwise.less)
    less_equal = staticmethod(elementwise.less_equal)
    greater = staticmethod(elementwise.greater)
    greater_equal = staticmethod(elementwise.greater_equal)
    logical_and = staticmethod(elementwise.logical_and)
    logical_or = staticmethod(elementwise.logical_or)
    logical_xor = staticmethod(elementwise.logical_xor)
    logical_not = staticmethod(elementwise.logical_not)

    sum = staticmethod(elementwise.sum_of)
    prod = staticmethod(elementwise.product_of)
    min = staticmethod(elementwise.minimum_of)
    max = staticmethod(elementwise.greatest_of)

    where = staticmethod(elementwise.select)
    expand_dims = staticmethod(adapt_movement(np.expand_dims))
    squeeze = staticmethod(adapt_movement(np.squeeze))
    flip = staticmethod(adapt_movement(np.flip))
    roll = staticmethod(adapt_movement(np.roll))
    moveaxis = staticmethod(adapt_movement(np.moveaxis))
    permute_dims = staticmethod(adapt_movement(np.transpose))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Inexact(f"{name} is not exact on dimensions")

    def asarray(
        self, x: ArrayLike, /, *, dtype: DTypeArgument = None, device: object = None, copy: builtins.bool | None = None
    ) -> Array:
        array = as_values(x)
        array = array.copy() if copy else array
        return array if dtype is None else self.astype(array, dtype)

    def astype(self, x: ArrayLike, dtype: DTypeArgument, /, *, copy: builtins.bool | None = True, device: object = None) -> Array:
        return convert_dtype(x, dtype)

    def concat(self, xs: Sequence[ArrayLike], /, *, axis: int | None = 0) -> Array:
        return adapt_movement(np.concatenate)([as_values(x) for x in xs], axis=axis)

    def stack(self, xs: Sequence[ArrayLike], /, *, axis: int = 0) -> Array:
        return adapt_movement(np.stack)([as_values(x) for x in xs], axis=axis)

    def reshape(self, x: ArrayLike, /, shape: int | Sequence[int], *, copy: builtins.bool | None = None) -> Array:
        return adapt_movement(np.reshape)(as_values(x), small(shape))

    def broadcast_to(self, x: ArrayLike, /, shape: int | Sequence[int]) -> Array:
        return adapt_movement(np.broadcast_to)(as_values(x), small(shape)).copy()

    def broadcast_arrays(self, *xs: ArrayLike) -> list[Array]:
        arrays = [as_values(x) for x in xs]
        check_broadcast(arrays)
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return [self.broadcast_to(array, shape) for array in arrays]

    def take(self, x: ArrayLike, indices: ArrayLike, /, *, axis: int | None = None) -> Array:
        positions = np.array([operator.index(item) for item in np.asarray(indices).reshape(-1).tolist()], dtype=np.int64)
        return adapt_movement(np.take)(as_values(x), positions.reshape(np.shape(np.asarray(indices))), axis=axis)

    def take_along_axis(self, x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Array:
        positions = np.array([operator.index(item) for item in np.asarray(indices).reshape(-1).tolist()], dtype=np.int64)
        return adapt_movement(np.take_along_axis)(as_values(x), positions.reshape(np.shape(np.asarray(indices))), axis=axis)

    def tile(self, x: ArrayLike, repetitions: Sequence[int], /) -> Array:
        array, counts = as_values(x), small(repetitions)
        small((array.size, *counts))
        return adapt_movement(np.tile)(array, counts)

    def repeat(self, x: ArrayLike, repeats: ArrayLike, /, *, axis: int | None = None) -> Array:
        array = as_values(x)
        counts = [operator.index(item) for item in np.asarray(repeats).reshape(-1).tolist()]
        small((array.size, builtins.max(builtins.sum(counts), 1)))
        return adapt_movement(np.repeat)(array, counts if np.ndim(np.asarray(repeats)) else counts[0], axis=axis)

    def full(self, shape: int | Sequence[int], value: ArrayLike, *, dtype: DTypeArgument = None, device: object = None) -> Array:
        return self.asarray(self.broadcast_to(as_values(value), shape), dtype=dtype)

    def zeros(self, shape: int | Sequence[int], *, dtype: DTypeArgument = None, device: object = None) -> Array:
        return self.full(shape, 0, dtype=dtype)

    def ones(self, shape: int | Sequence[int], *, dtype: DTypeArgument = None, device: object = None) -> Array:
        return self.full(shape, 1, dtype=dtype)

    def full_like(self, x: ArrayLike, /, value: ArrayLike, *, dtype: DTypeArgument = None, device: object = None) -> Array:
        return self.full(as_values(x).shape, value, dtype=dtype)

    def zeros_like(self, x: ArrayLike, /, *, dtype: DTypeArgument = None, device: object = None) -> Array:
        return self.full_like(x, 0, dtype=dtype)

    def ones_like(self, x: ArrayLike, /, *, dtype: DTypeArgument = None, device: object = None) -> Array:
        return self.full_like(x, 1, dtype=dtype)

    def arange(
        self, start: int, /, stop: int | None = None, step: int = 1, *, dtype: DTypeArgument = None, device: object = None
    ) -> Array:
        """Return a range of integers; Dims raise Inexact."""
        first, last = (0, start) if stop is None else (start, stop)
        numbers = range(operator.index(first), operator.index(last), operator.index(step))
        small((len(numbers),))
        return self.asarray(as_values(list(numbers)), dtype=dtype)

    def clip(self, x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
        array = as_values(x)
        array = array if min is None else elementwise.maximum(array, min)
        return array if max is None else elementwise.minimum(array, max)

    def cumulative_sum(
        self, x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeArgument = None, include_initial: builtins.bool = False
    ) -> Array:
        array = as_values(x).view(np.ndarray)
        if axis is None and array.ndim != 1:
            raise Inexact("cumulative_sum of more than one axis needs an axis")
        rows = np.moveaxis(array, axis or 0, 0)
        sums: list[Array] = [np.full(rows.shape[1:], 0, dtype=object).view(SymbolicArray)]
        for row in rows:
            sums.append(elementwise.add(sums[-1], row))
        kept = sums if include_initial else sums[1:]
        if not kept:
            return array.view(SymbolicArray)
        return self.asarray(np.moveaxis(self.stack(kept), 0, axis or 0), dtype=dtype)

    def any(self, x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: builtins.bool = False) -> Array:
        return np.asarray(np.any(truth(x), axis=axis, keepdims=keepdims))

    def all(self, x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: builtins.bool = False) -> Array:
        return np.asarray(np.all(truth(x), axis=axis, keepdims=keepdims))


xp = _Namespace()
