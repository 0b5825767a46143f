"""Arrays of integers and Dims."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dovetail.ir.symbolic.algebra import Dim, Inexact, Size, operand
from dovetail.ir.symbolic.compare import bounds

Array: TypeAlias = np.ndarray[Any, Any]
ArrayLike: TypeAlias = np.ndarray[Any, Any] | Size | Sequence[Any]
"""The type of arguments that are converted to an array of integers and Dims."""

MAX_ELEMENTS = 2**16  # the maximum number of elements of a shape value

functions: dict[str, Callable[..., Array]] = {}
"""Replacements of numpy's ufuncs by name; dovetail.ir.symbolic.elementwise registers them."""


class SymbolicArray(np.ndarray[Any, np.dtype[np.object_]]):
    """SymbolicArray is an array of ``int | Dim``. numpy functions that are inexact on Dims or compare by ``==`` raise Inexact."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: ArrayLike, **options: Any) -> Any:
        function = functions.get(ufunc.__name__)
        out = options.pop("out", None)
        if function is None or method != "__call__" or options:
            raise Inexact(f"{ufunc.__name__} of dimensions")
        result = function(*inputs)
        if out is None:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(self, func: Callable[..., Any], types: Iterable[type], args: Iterable[Any], kwargs: Any) -> Any:
        if func.__name__ not in _movements:
            raise Inexact(f"{func.__name__} of dimensions")
        return super().__array_function__(func, types, args, kwargs)

    def __repr__(self) -> str:
        return f"SymbolicArray({self.tolist()})"

    __str__ = __repr__


_movements = frozenset(
    "append array_split atleast_1d broadcast_arrays broadcast_to concatenate copy copyto delete empty_like expand_dims flip "
    "full_like hstack insert moveaxis ndim ones_like permute_dims put_along_axis ravel repeat reshape roll shape size split "
    "squeeze stack swapaxes take take_along_axis tile transpose vstack zeros_like".split()
)


def small(shape: int | Iterable[int]) -> tuple[int, ...]:
    """Return a shape as integers. Raises Inexact beyond MAX_ELEMENTS elements, because sizes from a file are not trusted."""
    sizes = tuple(operator.index(size) for size in ((shape,) if isinstance(shape, (int, Dim, np.integer)) else shape))
    count = 1
    for size in sizes:
        count *= size
    if count > MAX_ELEMENTS:
        raise Inexact(f"{count} elements are too many for shape values")
    return sizes


def as_values(x: ArrayLike) -> Array:
    """Convert ``x`` to an array of integers and Dims; a boolean array stays boolean."""
    if isinstance(x, SymbolicArray):
        return x
    array: Array = x if isinstance(x, np.ndarray) else np.array(x, dtype=object if _is_empty(x) else None)
    small(array.shape)
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind in "iu":
        return array.astype(object).view(SymbolicArray)
    if array.dtype != object:
        raise Inexact(f"{array.dtype} is no type of dimensions")
    return _checked_elements(array)


def _is_empty(x: ArrayLike) -> bool:
    return isinstance(x, (list, tuple)) and not len(x)


def _checked_elements(array: Array) -> Array:
    elements = array.reshape(-1).tolist()
    if elements and all(isinstance(element, (bool, np.bool_)) for element in elements):
        return array.astype(bool)
    result = np.empty(len(elements), dtype=object)
    for index, element in enumerate(elements):
        result[index] = as_size(element)
    return result.reshape(array.shape).view(SymbolicArray)


def as_size(value: object) -> Size:
    size = operand(value)
    if size is None:
        raise Inexact(f"{value!r} is no dimension")
    return size


def exact(value: Any) -> Size:
    """Return an integer that fits i64 or u64, or a Dim. Raises Inexact for other integers, which would wrap around in a run."""
    if isinstance(value, Dim):
        return value
    if not -(2**63) <= value < 2**64:
        raise Inexact(f"{value} wraps around")
    return int(value)


def elementwise(function: Callable[..., Any], count: int) -> Callable[..., Array]:
    """Return a function of ``count`` arrays that broadcasts them and applies ``function`` to each tuple of elements."""
    ufunc = np.frompyfunc(lambda *xs: exact(function(*xs)), count, 1)

    def apply(*xs: ArrayLike) -> Array:
        return wrap_result(ufunc(*broadcast(*xs)))

    return apply


def broadcast(*xs: ArrayLike) -> list[Array]:
    arrays = [as_values(x).view(np.ndarray) for x in xs]
    check_broadcast(arrays)
    return arrays


def check_broadcast(arrays: Sequence[Array]) -> None:
    count = 1
    for array in arrays:
        count *= array.size
    shapes = {array.shape for array in arrays if array.shape}
    if len(shapes) > 1 or count > MAX_ELEMENTS:
        try:
            small(np.broadcast_shapes(*shapes))
        except ValueError as error:
            raise Inexact(str(error)) from None


def wrap_result(result: object) -> Array:
    if isinstance(result, np.ndarray):
        return result.view(SymbolicArray)
    scalar = np.empty((), dtype=object)
    scalar[()] = result
    return scalar.view(SymbolicArray)


def fits(array: ArrayLike, low: int, high: int) -> bool | None:
    """Return whether every element is in [low, high]: True, False, or None if the bounds of symbols do not decide it."""
    answer: bool | None = True
    for element in np.asarray(array).reshape(-1).tolist():
        lower, upper = bounds(element)
        if (lower is not None and lower > high) or (upper is not None and upper < low):
            return False
        if lower is None or upper is None or lower < low or upper > high:
            answer = None
    return answer
