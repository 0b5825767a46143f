"""The array API namespace in which shape values are computed."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.symbolic import elementwise
from dovetail.symbolic.algebra import Inexact
from dovetail.symbolic.arrays import Array, Values, as_values, check_broadcast, small
from dovetail.symbolic.elementwise import converted, moved, truth


class _Namespace:
    """The array API standard on arrays of ``int | Dim``, as far as it is exact; everything else raises Inexact."""

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
    min = staticmethod(elementwise.least_of)
    max = staticmethod(elementwise.greatest_of)

    where = staticmethod(elementwise.select)
    expand_dims = staticmethod(moved(np.expand_dims))
    squeeze = staticmethod(moved(np.squeeze))
    flip = staticmethod(moved(np.flip))
    roll = staticmethod(moved(np.roll))
    moveaxis = staticmethod(moved(np.moveaxis))
    permute_dims = staticmethod(moved(np.transpose))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Inexact(f"{name} is not exact on dimensions")

    def asarray(self, x: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Array:
        array = as_values(x)
        array = array.copy() if copy else array
        return array if dtype is None else self.astype(array, dtype)

    def astype(self, x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Array:
        return converted(x, dtype)

    def concat(self, xs: Sequence[Any], /, *, axis: int | None = 0) -> Array:
        return moved(np.concatenate)([as_values(x) for x in xs], axis=axis)

    def stack(self, xs: Sequence[Any], /, *, axis: int = 0) -> Array:
        return moved(np.stack)([as_values(x) for x in xs], axis=axis)

    def reshape(self, x: Any, /, shape: Any, *, copy: Any = None) -> Array:
        return moved(np.reshape)(as_values(x), small(shape))

    def broadcast_to(self, x: Any, /, shape: Any) -> Array:
        return moved(np.broadcast_to)(as_values(x), small(shape)).copy()

    def broadcast_arrays(self, *xs: Any) -> list[Array]:
        arrays = [as_values(x) for x in xs]
        check_broadcast(arrays)
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return [self.broadcast_to(array, shape) for array in arrays]

    def take(self, x: Any, indices: Any, /, *, axis: int | None = None) -> Array:
        places = np.array([operator.index(each) for each in np.asarray(indices).reshape(-1).tolist()], dtype=np.int64)
        return moved(np.take)(as_values(x), places.reshape(np.shape(indices)), axis=axis)

    def take_along_axis(self, x: Any, indices: Any, /, *, axis: int = -1) -> Array:
        places = np.array([operator.index(each) for each in np.asarray(indices).reshape(-1).tolist()], dtype=np.int64)
        return moved(np.take_along_axis)(as_values(x), places.reshape(np.shape(indices)), axis=axis)

    def tile(self, x: Any, repetitions: Any, /) -> Array:
        array, counts = as_values(x), small(repetitions)
        small((array.size, *counts))
        return moved(np.tile)(array, counts)

    def repeat(self, x: Any, repeats: Any, /, *, axis: int | None = None) -> Array:
        array = as_values(x)
        counts = [operator.index(each) for each in np.asarray(repeats).reshape(-1).tolist()]
        small((array.size, builtins.max(builtins.sum(counts), 1)))
        return moved(np.repeat)(array, counts if np.ndim(repeats) else counts[0], axis=axis)

    def full(self, shape: Any, value: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.asarray(self.broadcast_to(as_values(value), shape), dtype=dtype)

    def zeros(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full(shape, 0, dtype=dtype)

    def ones(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full(shape, 1, dtype=dtype)

    def full_like(self, x: Any, /, value: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full(as_values(x).shape, value, dtype=dtype)

    def zeros_like(self, x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full_like(x, 0, dtype=dtype)

    def ones_like(self, x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
        return self.full_like(x, 1, dtype=dtype)

    def arange(self, start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Array:
        """Of numbers only."""
        first, last = (0, start) if stop is None else (start, stop)
        numbers = range(operator.index(first), operator.index(last), operator.index(step))
        small((len(numbers),))
        return self.asarray(as_values(list(numbers)), dtype=dtype)

    def clip(self, x: Any, /, min: Any = None, max: Any = None) -> Array:
        array = as_values(x)
        array = array if min is None else elementwise.maximum(array, min)
        return array if max is None else elementwise.minimum(array, max)

    def cumulative_sum(
        self, x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
    ) -> Array:
        array = as_values(x).view(np.ndarray)
        if axis is None and array.ndim != 1:
            raise Inexact("an axis is needed")
        rows = np.moveaxis(array, axis or 0, 0)
        sums: list[Array] = [np.full(rows.shape[1:], 0, dtype=object).view(Values)]
        for row in rows:
            sums.append(elementwise.add(sums[-1], row))
        kept = sums if include_initial else sums[1:]
        if not kept:
            return array.view(Values)
        return self.asarray(np.moveaxis(self.stack(kept), 0, axis or 0), dtype=dtype)

    def any(self, x: Any, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Array:
        return np.asarray(np.any(truth(x), axis=axis, keepdims=keepdims))

    def all(self, x: Any, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Array:
        return np.asarray(np.all(truth(x), axis=axis, keepdims=keepdims))


xp = _Namespace()
