"""Comparison of constants by blocks: how many elements differ, by how much, and which movement or cast explains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from math import prod
from typing import Any, TypeAlias

import numpy as np

from dovetail.compare.arrays import same_bits
from dovetail.compare.diff.constant_keys import Weight
from dovetail.ir.dtypes import DType
from dovetail.laws.terms.keys import digest

Array: TypeAlias = np.ndarray[Any, Any]
BLOCK = 1 << 22
"""Number of elements that are compared at a time."""
MAX_PERMUTED = 1 << 26
"""Maximum number of elements of a constant for which other orders of axes or rows are tried."""
MAX_RANK = 4
MAX_ROWS = 1 << 16
_SAMPLE = 64


@dataclass(frozen=True, slots=True)
class WeightChange:
    """WeightChange is a constant operand whose elements differ.

    ``before`` and ``after`` are the types. ``changed`` of ``size`` elements differ, and ``largest`` is the largest absolute
    difference; both are None where elements do not correspond. ``relation`` explains the change: a cast, a reshape, a
    transposition or rows in another order; else it is empty.
    """

    operand: str
    before: str
    after: str
    size: int
    changed: int | None = None
    largest: float | None = None
    relation: str = ""

    @property
    def text(self) -> str:
        parts = [] if self.before == self.after else [f"{self.before} became {self.after}"]
        if self.relation:
            parts.append(self.relation)
        if self.changed is not None and self.changed:
            parts.append(f"{self.changed} of {self.size} elements differ")
        if self.largest is not None and self.changed:
            parts.append(f"by up to {self.largest:.3g}")
        return f"{self.operand}: {', '.join(parts) or 'all elements differ'}"


def compare_constants(operand: str, first: Weight, second: Weight, *, is_host: bool = False) -> WeightChange | None:
    """Return the change between two constants; None if they have the same bits.

    With ``is_host``, for operands of shape rules, equal integers of different widths are no change.
    """
    x, y = first.data, second.data
    if x is y and first.dtype is second.dtype:
        return None
    types = first.type_text, second.type_text
    if is_host and x.shape == y.shape and x.dtype.kind in "iu" and y.dtype.kind in "iu" and _are_equal(x, y):
        return None
    if x.shape == y.shape:
        changed, largest = _count_changes(x, y)
        if first.dtype is second.dtype and not changed:
            return None
        if first.stored is not second.stored:
            relation = _cast(x, y, first.stored, second.stored)
        else:
            # A single changed element cannot be another order.
            relation = _movement(x, y) if changed > 1 and _may_be_moved(x, y) else ""
        return WeightChange(operand, *types, x.size, changed, largest, relation)
    relation = _movement(x, y) if x.size == y.size and first.stored is second.stored else ""
    return WeightChange(operand, *types, y.size, None, None, relation)


def _blocks(x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the elements of two arrays of one size in row-major order, by blocks."""
    if x.flags.c_contiguous and y.flags.c_contiguous:
        a, b = x.reshape(-1), y.reshape(-1)
        for start in range(0, x.size, BLOCK):
            yield a[start : start + BLOCK], b[start : start + BLOCK]
        return
    for start in range(0, x.size, BLOCK):
        # An iterator over the elements copies one block, where reshape would copy the array.
        yield x.flat[start : start + BLOCK], y.flat[start : start + BLOCK]


def _count_changes(x: Array, y: Array) -> tuple[int, float | None]:
    """Return the number of elements that differ, and the largest absolute difference, which is None for strings."""
    changed, largest = 0, 0.0
    has_numbers = not (x.dtype.hasobject or y.dtype.hasobject)
    for a, b in _blocks(x, y):
        differs = ~same_bits(a, b) if a.dtype == b.dtype else np.asarray(~((a == b) | ((a != a) & (b != b))))
        count = int(np.count_nonzero(differs))
        changed += count
        if count and has_numbers:
            wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
            with np.errstate(all="ignore"):
                distance = np.abs(a[differs].astype(wide) - b[differs].astype(wide))
            largest = max(largest, float(np.max(distance, initial=0.0))) if not np.isnan(distance).any() else float("inf")
    return changed, largest if has_numbers else None


def _are_equal(x: Array, y: Array) -> bool:
    return all(np.array_equal(a, b) for a, b in _blocks(x, y))


def _cast(x: Array, y: Array, first: DType, second: DType) -> str:
    """Return as text the cast that converts one of two constants to the other; empty if there is none."""
    if x.dtype.hasobject or y.dtype.hasobject:
        return ""
    with np.errstate(all="ignore"):
        if all(np.array_equal(a.astype(b.dtype), b) for a, b in _blocks(x, y)):
            return f"cast from {first} to {second}"
        if all(np.array_equal(a, b.astype(a.dtype)) for a, b in _blocks(x, y)):
            return f"{first} is cast from {second}"
    return ""


def _may_be_moved(x: Array, y: Array) -> bool:
    """Return whether two arrays may have the same elements in another order, judged by the sums of their elements."""
    if x.dtype.hasobject or x.size > MAX_PERMUTED:
        return False
    with np.errstate(all="ignore"):
        # The sum of a narrower type is computed in f64 by small blocks, without a copy of the array.
        first, second = (float(np.sum(each.real, dtype=np.float64)) for each in (x, y))
    return abs(first - second) <= 1e-6 * max(abs(first), abs(second), 1.0) or np.isnan(first)


def _movement(x: Array, y: Array) -> str:
    """Return as text the reshape, transposition or order of rows that converts ``x`` to ``y``; empty if there is none."""
    if x.size > MAX_PERMUTED or x.dtype != y.dtype:
        return ""
    if x.shape != y.shape and all(bool(same_bits(a, b).all()) for a, b in _blocks(x, y)):
        return "reshape"
    if x.ndim == y.ndim and 2 <= x.ndim <= MAX_RANK:
        for order in permutations(range(x.ndim)):
            if order != tuple(range(x.ndim)) and tuple(x.shape[axis] for axis in order) == y.shape and _has_equal_elements(
                x.transpose(order), y
            ):  # fmt: skip
                return f"transposition {list(order)}"
    if x.shape == y.shape:
        for axis in range(x.ndim):
            if _has_rows_moved(x, y, axis):
                return f"other order along axis {axis}"
    return ""


def _has_equal_elements(x: Array, y: Array) -> bool:
    """Return whether two arrays have equal elements; some elements are compared first, then all."""
    positions = np.unravel_index(np.linspace(0, x.size - 1, _SAMPLE).astype(np.int64), x.shape) if x.size else ()
    if x.size and not bool(np.all(same_bits(x[positions], y[positions]))):
        return False
    return all(bool(same_bits(a, b).all()) for a, b in _blocks(x, y))


def _has_rows_moved(x: Array, y: Array, axis: int) -> bool:
    """Return whether ``y`` has the same slices along ``axis`` as ``x``, in another order."""
    rows = x.shape[axis]
    if not 2 <= rows <= MAX_ROWS or prod(x.shape) == rows == 0:
        return False
    return sorted(map(digest, np.moveaxis(x, axis, 0))) == sorted(map(digest, np.moveaxis(y, axis, 0)))
