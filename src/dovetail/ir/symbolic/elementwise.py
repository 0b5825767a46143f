"""Functions of arrays of integers and Dims, with broadcasting: arithmetic, comparisons, reductions and movement."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.ir.symbolic import compare, min_max
from dovetail.ir.symbolic.algebra import MAX_DEGREE, Dim, Inexact, Size, demand_answer
from dovetail.ir.symbolic.arrays import (
    Array,
    ArrayLike,
    SymbolicArray,
    as_size,
    as_values,
    broadcast,
    check_broadcast,
    elementwise,
    exact,
    fits,
    functions,
)
from dovetail.ir.symbolic.compare import has_lower_bound, is_nonzero
from dovetail.ir.symbolic.division import exact_quotient

DTypeArgument: TypeAlias = npt.DTypeLike | None


def _comparison(function: Callable[..., bool | None], name: str) -> Callable[[Any, Any], Array]:
    """Return a function that compares the elements of two arrays by ``function``; an undecided comparison raises Inexact."""
    ufunc = np.frompyfunc(lambda x, y: demand_answer(function(as_size(x), as_size(y)), x, name, y), 2, 1)

    def apply(x: ArrayLike, y: ArrayLike) -> Array:
        return np.asarray(ufunc(*broadcast(x, y)), dtype=bool)

    return apply


def truth(x: ArrayLike) -> Array:
    array = as_values(x)
    if array.dtype == np.bool_:
        return array
    return not_equal(array, 0)


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _by_nonzero(function: Callable[[Size, Size], Size]) -> Callable[[Size, Size], Size]:
    def apply(x: Size, y: Size) -> Size:
        if not is_nonzero(y):
            raise Inexact(f"{y} may be zero")
        return function(x, y)

    return apply


def _quotient_by_nonzero(x: Size, y: Size) -> Size:
    """Return ``x // y`` for a ``y`` that is not 0 at run time. Raises Inexact for some divisors whose bounds include 0.

    For such a divisor the quotient must be exact and symbolic: folding it to a number would lose the error of a division by zero.
    """
    if is_nonzero(y):
        return x // y
    quotient = exact_quotient(x, y)
    if not isinstance(quotient, Dim):
        raise Inexact(f"{y} may be zero")
    return quotient


def _power(x: Size, y: Size) -> Size:
    if isinstance(y, Dim) or not 0 <= y <= MAX_DEGREE:
        raise Inexact(f"the power {y} of a dimension")
    result: Size = x**y
    return result


def _exact_quotient(x: Size, y: Size) -> Size:
    quotient = exact_quotient(x, y) if is_nonzero(y) else None
    if quotient is None:
        raise Inexact(f"{x} / {y} is no integer")
    return quotient


add = elementwise(operator.add, 2)
subtract = elementwise(operator.sub, 2)
multiply = elementwise(operator.mul, 2)
floor_divide = elementwise(_by_nonzero(operator.floordiv), 2)
floor_divide_by_nonzero = elementwise(_quotient_by_nonzero, 2)
remainder = elementwise(_by_nonzero(operator.mod), 2)
divide = elementwise(_exact_quotient, 2)
power = elementwise(_power, 2)
negative = elementwise(operator.neg, 1)
positive = elementwise(operator.pos, 1)
absolute = elementwise(operator.abs, 1)
square = elementwise(lambda x: x * x, 1)
# The sign of an integer is the integer clipped to [-1, 1].
sign = elementwise(lambda x: min_max.maximum(min_max.minimum(x, 1), -1), 1)
minimum = elementwise(min_max.minimum, 2)
maximum = elementwise(min_max.maximum, 2)
equal = _comparison(compare.equal, "==")
not_equal = _comparison(lambda x, y: _not(compare.equal(x, y)), "!=")
less = _comparison(compare.less, "<")
less_equal = _comparison(compare.less_equal, "<=")
greater = _comparison(lambda x, y: compare.less(y, x), ">")
greater_equal = _comparison(lambda x, y: compare.less_equal(y, x), ">=")


def logical_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    return np.logical_and(truth(x), truth(y))


def logical_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    return np.logical_or(truth(x), truth(y))


def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    return np.logical_xor(truth(x), truth(y))


def logical_not(x: ArrayLike, /) -> Array:
    return np.logical_not(truth(x))


def _reduction(function: Callable[[Size, Size], Size], first: Size | None) -> Callable[..., Array]:
    """Return a function that reduces an array by ``function`` over ``axis`` (None: all axes).

    ``first`` is the initial value; if it is None, an empty axis raises Inexact.
    """

    def combine(row: Sequence[Any]) -> Size:
        if not row and first is None:
            raise Inexact("nothing to reduce")
        result: Size = as_size(row[0]) if first is None else first
        for element in row[1:] if first is None else row:
            result = exact(function(result, element))
        return result

    def apply(
        x: ArrayLike, /, *, axis: int | Sequence[int] | None = None, dtype: DTypeArgument = None, keepdims: bool = False
    ) -> Array:
        result = _reduce(as_values(x).view(np.ndarray), axis, combine, keepdims)
        return result if dtype is None else convert_dtype(result, dtype)

    return apply


sum_of = _reduction(operator.add, 0)
product_of = _reduction(operator.mul, 1)
minimum_of = _reduction(min_max.minimum, None)
greatest_of = _reduction(min_max.maximum, None)


def _axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    axes = [operator.index(item) for item in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if not all(-rank <= item < rank for item in axes):
        raise Inexact(f"axes {axes} of an array of rank {rank}")
    return tuple(item % rank for item in axes)


def _reduce(x: Array, axis: int | Sequence[int] | None, combine: Callable[[Sequence[Any]], Any], keepdims: bool) -> Array:
    axes = _axes(axis, x.ndim)
    kept_axes = [item for item in range(x.ndim) if item not in axes]
    count = int(np.prod([x.shape[item] for item in axes], dtype=object)) if axes else 1
    row_count = int(np.prod([x.shape[item] for item in kept_axes], dtype=object)) if kept_axes else 1
    rows = x.transpose([*kept_axes, *axes]).reshape(row_count, count)
    result = np.empty(rows.shape[0], dtype=object)
    for index, row in enumerate(rows.tolist()):
        result[index] = combine(row)
    shape = [1 if item in axes else x.shape[item] for item in range(x.ndim) if keepdims or item not in axes]
    return result.reshape(shape).view(SymbolicArray)


def select(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Array:
    chosen = truth(condition)
    first, second = broadcast(x, y)
    check_broadcast([chosen, first, second])
    result = np.where(chosen.view(np.ndarray), first, second)
    return result.view(SymbolicArray) if result.dtype == object else result


def adapt_movement(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return a numpy function that moves elements, adapted to an array or a sequence of arrays of integers and Dims."""

    def apply(x: ArrayLike, /, *args: object, **options: object) -> Array:
        operands = (
            [as_values(item).view(np.ndarray) for item in x] if isinstance(x, (list, tuple)) else as_values(x).view(np.ndarray)
        )
        try:
            result = function(operands, *args, **options)
        except (ValueError, IndexError, TypeError) as error:
            raise Inexact(str(error)) from None
        return result.view(SymbolicArray) if result.dtype == object else np.asarray(result)

    return apply


def convert_dtype(x: ArrayLike, dtype: DTypeArgument) -> Array:
    """Check that an integer type represents every element. A Dim is assumed to fit types of 32 and 64 bits, not narrower ones."""
    target, array = np.dtype(dtype), as_values(x)
    if target.kind == "b":
        return truth(array)
    if target.kind == "O":
        return array
    if target.kind not in "iu":
        raise Inexact(f"dimensions as {target}")
    if array.dtype == np.bool_:
        return array.astype(np.int64).astype(object).view(SymbolicArray)
    minimum_value, maximum_value = int(np.iinfo(target).min), int(np.iinfo(target).max)
    is_exact = fits(array, minimum_value, maximum_value)
    if is_exact is None and target.itemsize >= 4:
        is_exact = minimum_value < 0 or all(has_lower_bound(element, 0) for element in array.reshape(-1).tolist())
    if not is_exact:
        raise Inexact(f"dimensions as {target} may wrap around")
    return array


functions.update(
    (name, globals()[name])
    for name in (
        "absolute add subtract multiply floor_divide remainder divide power negative positive square sign minimum maximum equal "
        "not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not"
    ).split()
)
