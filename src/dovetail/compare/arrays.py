"""Comparison of arrays: the difference, absolute, relative and in ulp, by blocks of bounded memory; and equality of bits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Any

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.inputs_outputs import flatten_outputs

Array = np.ndarray[Any, Any]

TOLERANCE = 1e-4
"""The largest allowed difference, relative to the largest magnitude of the reference output; see also tolerance_of."""

BLOCK = 1 << 16
"""Number of elements of one block; the f64 copies of a block fit into the L2 cache."""
QUANTIZED_BITS = 8
NOT_EQUAL = "not equal"
"""The reason why values of a type that is compared exactly differ."""
ULP_TYPES = ("f16", "bf16", "f32", "f64")
"""Types whose bits, apart from the sign, are ordered as their values."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """Deviation is the largest difference of two values.

    ``relative`` is relative to the largest magnitude of the reference. ``ulp`` counts representable numbers between two elements,
    in the coarser type; it is None for types that are compared exactly, and for types of at most 8 bits. ``why`` is the reason
    why elements cannot be compared, or a difference of types; elements of different types are compared by value.
    """

    absolute: float
    relative: float
    ulp: float | None
    agrees: bool
    why: str = ""
    is_missing: bool = False
    """True where the engine has no such value; ``why`` has the reason."""


def tolerance_of(dtype: DType) -> float:
    """Return the default tolerance of a type: the larger of TOLERANCE and 4 ulp; 0 for types whose elements must be equal."""
    if not dtype.is_float and dtype.kind != "complex":
        return 0.0
    if dtype.kind == "complex" or dtype.name in ("f32", "f64"):
        return TOLERANCE
    return max(TOLERANCE, 4 * _spacing(dtype)) if dtype.numpy != np.uint8 else 0.0


def tolerance_for(precision: str | None) -> float | None:
    """Return the tolerance of results of products whose operands are rounded: 4 ulp of bf16, which has 8 bits as int8 has.

    The result is None for a ``precision`` (see :func:`dovetail.compile`) that does not round, or that rounds by the model's wish.
    """
    return tolerance_of(dtypes.bf16) if precision in ("bf16", "int8") else None


def _spacing(dtype: DType) -> float:
    import ml_dtypes

    facts: Any = ml_dtypes.finfo
    return float(facts(dtype.numpy).eps)


def missing(why: str) -> Deviation:
    """Return the deviation of a value that an engine does not have."""
    return Deviation(nan, nan, None, False, why, is_missing=True)


def deviation_of(
    first: object, second: object, tolerance: float | None = None, *, types_may_differ: bool = False, minimum: float = 0.0
) -> Deviation:
    """Compare ``second`` with its reference ``first``; for sequences and maps the largest deviation of an element is returned.

    ``tolerance`` is relative to the largest magnitude; the default is the tolerance of the coarser type of both. Integers,
    booleans and strings must be equal, but ``tolerance`` also applies to integers of at most 8 bits, which are mostly quantized.
    With ``types_may_differ`` values of different types, or of shapes that differ by axes of size 1, agree if their numbers agree.
    ``minimum`` is a lower bound of the default tolerance of floats, for a value that is computed from a coarser type.
    """
    if isinstance(first, list | dict) or isinstance(second, list | dict) or first is None or second is None:
        return _compare_lists(first, second, tolerance, types_may_differ, minimum)
    first, second = np.asarray(first), np.asarray(second)
    reshaped = ""
    if first.shape != second.shape:
        reshaped = f"shape {list(second.shape)}"
        if not types_may_differ or not differ_by_ones(first.shape, second.shape):
            return Deviation(inf, inf, None, False, reshaped)
        second = second.reshape(first.shape)
    if first.dtype.kind in "OUS" or second.dtype.kind in "OUS":
        equal = np.array_equal(first.astype(str), second.astype(str))
        return Deviation(0.0 if equal else inf, 0.0 if equal else inf, None, equal, "" if equal else NOT_EQUAL)
    one, other = dtypes.dtype(first.dtype), dtypes.dtype(second.dtype)
    why = "" if one is other else f"type {other}"
    why = ", ".join(filter(None, (why, reshaped)))
    allowed = max(tolerance_of(one), tolerance_of(other))
    allowed = max(allowed, minimum) if allowed else 0.0
    if tolerance is not None and (allowed or (_is_quantized(one) and _is_quantized(other))):
        allowed = tolerance
    found = _integers(first, second) if not allowed else _floats(first, second, one, other, allowed)
    if not why:
        return found
    return Deviation(found.absolute, found.relative, found.ulp, found.agrees and types_may_differ, found.why or why)


def relative_difference(first: Any, second: Any) -> float:
    """Return the largest difference of two arrays relative to the largest magnitude.

    The result is infinity for different types or shapes, for values that are no arrays, and where NaN or infinities are at
    different positions.
    """
    arrays = isinstance(first, np.ndarray) and isinstance(second, np.ndarray)
    if not arrays or first.shape != second.shape or first.dtype != second.dtype:
        return inf
    relative = deviation_of(first, second).relative
    return inf if isnan(relative) else relative


def same_bits(x: Array, y: Array) -> Array:
    """Return, element by element, whether two arrays of one element type and shape have the same bits."""
    if x.dtype.kind in "OSUb":
        return np.asarray(x == y)
    if x.dtype.kind == "c":
        return same_bits(x.real, y.real) & same_bits(x.imag, y.imag)
    code = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(np.ascontiguousarray(x).view(code) == np.ascontiguousarray(y).view(code))


def differ_by_ones(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether two shapes differ at most by axes of size 1."""
    return [size for size in first if size != 1] == [size for size in second if size != 1]


def _is_quantized(dtype: DType) -> bool:
    return dtype.is_integer and dtype.bits <= QUANTIZED_BITS


def _compare_lists(first: object, second: object, tolerance: float | None, types_may_differ: bool, minimum: float) -> Deviation:
    if first is None and second is None:
        return Deviation(0.0, 0.0, None, True)
    ones, others = flatten_outputs({"": first}), flatten_outputs({"": second})
    if ones.keys() != others.keys():
        return Deviation(inf, inf, None, False, f"{len(others)} elements, not {len(ones)}")
    rows = [deviation_of(ones[key], others[key], tolerance, types_may_differ=types_may_differ, minimum=minimum) for key in ones]
    return max(rows, key=lambda row: (not row.agrees, row.relative), default=Deviation(0.0, 0.0, None, True))


def _integers(first: Array, second: Array) -> Deviation:
    absolute = largest = 0
    for x, y in _blocks(first, second):
        # As Python integers: numpy has no type with the values of both i64 and u64.
        apart = x != y
        if apart.any():
            pairs = zip(x[apart].tolist(), y[apart].tolist(), strict=True)
            absolute = max(absolute, max(abs(int(a) - int(b)) for a, b in pairs))
        largest = max(largest, *(abs(int(a)) for a in (x.min(), x.max())))
    relative = absolute / largest if largest else (inf if absolute else 0.0)
    return Deviation(float(absolute), relative, None, not absolute, NOT_EQUAL if absolute else "")


def _floats(first: Array, second: Array, one: DType, other: DType, allowed: float) -> Deviation:
    coarser = max((one, other), key=lambda dtype: tolerance_of(dtype) or -1.0)
    coarser = one if one is other else _coarser(one, other, coarser)
    has_ulp = coarser.name in ULP_TYPES
    wide = np.complex128 if "complex" in (one.kind, other.kind) else np.float64
    absolute = largest = ulp = 0.0
    with np.errstate(all="ignore"):
        for raw_x, raw_y in _blocks(first, second):
            x, y = raw_x.astype(wide), raw_y.astype(wide)
            special = ~np.isfinite(x) | ~np.isfinite(y)
            if special.any():
                if not np.array_equal(x[special], y[special], equal_nan=True):
                    return Deviation(nan, nan, None, False, "NaN or infinity in different places")
                x, y, raw_x, raw_y = x[~special], y[~special], raw_x[~special], raw_y[~special]
            absolute = max(absolute, float(np.max(np.abs(x - y), initial=0.0)))
            largest = max(largest, float(np.max(np.abs(x), initial=0.0)))
            if has_ulp:
                ulp = max(ulp, _ulp_distance(raw_x.astype(coarser.numpy), raw_y.astype(coarser.numpy)))
    relative = absolute / largest if largest else (0.0 if absolute == 0 else inf)
    return Deviation(absolute, relative, ulp if has_ulp else None, relative <= allowed)


def _coarser(one: DType, other: DType, default: DType) -> DType:
    """Return the float type with fewer bits; ``default`` if neither type is in ULP_TYPES."""
    floats = [dtype for dtype in (one, other) if dtype.name in ULP_TYPES]
    return min(floats, key=lambda dtype: dtype.numpy.itemsize) if floats else default


def _ulp_distance(x: Array, y: Array) -> float:
    """Return the maximum number of representable numbers between two finite elements at the same position."""
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.all():
        x, y = x[finite], y[finite]
    return float(np.max(np.abs(_order(x) - _order(y)), initial=0.0))


def _order(x: Array) -> Array:
    """Return the signed rank of each float in the ascending order of all floats of its type, as f64 (exact up to 2**53)."""
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * x.dtype.itemsize - 1))
    # A negative float's integer grows with its magnitude.
    return np.where(bits < 0, lowest - bits, bits).astype(np.float64)


def _blocks(first: Array, second: Array) -> Any:
    """Yield the corresponding blocks of both arrays; arrays without elements have no blocks."""
    x, y = np.ascontiguousarray(first).reshape(-1), np.ascontiguousarray(second).reshape(-1)
    for start in range(0, x.size, BLOCK):
        yield x[start : start + BLOCK], y[start : start + BLOCK]
