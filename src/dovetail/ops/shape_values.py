"""Read shape values (integers and symbolic sizes) from operator inputs, and compute them through a Builder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.evaluate import FOLD_LIMIT
from dovetail.ir.types import Size, Tensor, View

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

REFUSED_SIZE = -2
"""Number that every format refuses as a size or length."""
_MAX_AXES = 64
"""Largest length of a shape vector from which a rank is inferred."""


def elements_of(x: View | None) -> list[Any] | None:
    """Return the elements of an integer input, integers or symbolic sizes, in row-major order; None if they are unknown."""
    if x is None or x.value is None:
        return None
    return [item if isinstance(item, symbolic.Dim) else int(item) for item in np.ravel(x.value).tolist()]


def elements_over_sizes(value: np.ndarray[Any, Any]) -> tuple[Size, ...] | None:
    """Return the elements of ``value`` as integers or expressions over sizes; None if one depends on a tensor's elements.

    Elements of a tensor may have any value of their type, so that sums of elements may wrap around. Sums of sizes are assumed
    to fit into the type.
    """
    items = np.asarray(value, dtype=object).reshape(-1).tolist()
    for item in items:
        if isinstance(item, symbolic.Dim):
            if any(str(symbolic.name_of(symbol)).endswith("]") for symbol in symbolic.symbols(item)):
                return None
        elif not isinstance(item, int | np.integer | bool | np.bool_):
            return None
    return tuple(item if isinstance(item, symbolic.Dim) else int(item) for item in items)


def integers_of(x: View | None) -> list[int] | None:
    """Return the elements of an integer input if all elements are known integers, otherwise None."""
    elements = elements_of(x)
    if elements is None or symbolic.Dim in map(type, elements):
        return None
    return elements


def is_size(item: Size) -> bool:
    """Test whether a shape value is known to be at least 0."""
    low = symbolic.bounds(item)[0]
    return low is not None and low >= 0


def length_of_vector(x: View, name: str, scalar: bool = False) -> Size | None:
    """Return the length of a vector, None if it is unknown; with ``scalar``, 1 for a scalar. Raises RuleError [shape.rank]."""
    shape = x.shape
    if shape is None:
        return None
    if len(shape) == 1:
        return shape[0]
    if scalar and not shape:
        return 1
    raise RuleError("shape.rank", f"{name} must be a vector, got rank {len(shape)}")


def view_of(x: Array) -> View:
    """Return the View of an array: its shape, without element type and value."""
    return View(Tensor(None, tuple(x.shape)))


def host_view_of(x: Array | None) -> Any:
    """Return the View of a host array with element type, shape and value; None for an absent array."""
    if x is None:
        return None
    dtype = dtypes.dtype(x.dtype) if x.dtype != object else None
    return View(Tensor(dtype, tuple(x.shape)), np.asarray(x))


def shape_of_rank(rank: Size | None) -> Any:
    """Return a shape of ``rank`` unknown sizes; None if the rank is unknown or above _MAX_AXES."""
    return (None,) * rank if isinstance(rank, int) and rank <= _MAX_AXES else None


def as_i64(b: Builder, vector: Value) -> Value:
    """Cast sizes or lengths to i64. A u64 element beyond i64 becomes REFUSED_SIZE instead of a negative number such as -1."""
    if vector.dtype == "i64":
        return vector
    wide: Value = b.Cast(vector, to=dtypes.i64)
    if vector.dtype != "u64":
        return wide
    refused: Value = b.Where(b.Less(wide, b.constant(0, dtypes.i64)), b.constant(REFUSED_SIZE, dtypes.i64), wide)
    return refused


def indices_of_axis(b: Builder, x: Value, axis: int) -> Value:
    """Emit the indices 0, 1, ... of an axis as an i64 vector: a constant of at most FOLD_LIMIT bytes, otherwise a Range."""
    size = x.dims[axis]
    if isinstance(size, int) and 8 * size <= FOLD_LIMIT:
        return b.constant(np.arange(size, dtype=np.int64))
    indices: Value = b.Range(b.constant(0), b.Gather(b.Shape(x), b.constant(axis), axis=0), b.constant(1))
    return indices


def join_sizes(b: Builder, parts: Sequence[object]) -> Any:
    """Concatenate integers, lists of integers and i64 vectors; the result is a list if no part is a vector."""
    runs: list[Any] = []
    for part in parts:
        if not isinstance(part, int | list):
            runs.append(part)
            continue
        if not runs or not isinstance(runs[-1], list):
            runs.append([])
        runs[-1].extend(part if isinstance(part, list) else [part])
    if len(runs) < 2:
        return runs[0] if runs else []
    return b.Concat(*(b.constant(run, dtypes.i64) if isinstance(run, list) else run for run in runs), axis=0)
