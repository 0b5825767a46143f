"""Casts between element types, each value rounded once."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.arrays.backends import Array, Namespace, convert_dtype, dtype_in, element, is_narrow, is_numpy, widen
from dovetail.ir.dtypes import DType

# The sixteen quantiles of QLoRA's NormalFloat (Dettmers et al. 2023), with the values of OpenVINO's nf4.
_NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
_SATURATING = ("f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
_CODES = ("u1", "u3", "u6")


def cast(xp: Namespace, x: Array, to: DType, source: DType | None = None, saturate: bool = True, rounding: str = "up") -> Array:
    """Cast ``x`` to ``to`` by the rules of ONNX Cast-25.

    Float to integer rounds toward zero; values outside the range saturate and NaN becomes 0, which ONNX leaves undefined. Float
    to an integer of fewer than 8 bits rounds to nearest, ties to even (ONNX's technical note on 4-bit types), and keeps the low
    bits of the rounded i64 like onnx's tests. Integer to integer wraps around. Every value but zero becomes True, NaN included.

    ``saturate`` applies to f8: values outside the range become the greatest value, without it infinity or NaN. ``rounding``
    applies to f8e8m0, which encodes magnitudes: "up", "down", "nearest" (ties up) or "even" (ties to the even code). Every other
    value is rounded once, to nearest even. ``source`` is needed only for nf4, whose codes are stored as u8. Strings are cast in
    numpy only; numbers become the text that Python prints.

    Raises UnsupportedError [array.cast] for complex types and casts to nf4, EngineError [array.cast] for a text that is no
    number or outside the range of ``to``, and the errors of :func:`dtype_in`.
    """
    source = source or element(x)
    if source is to:
        return x
    if "complex" in (source.kind, to.kind) or to == "nf4":
        raise UnsupportedError("array.cast", f"a cast from {source} to {to} is not supported")
    if not is_numpy(xp):
        if to == "boolean":
            return x != 0
        kind = dtype_in(xp, to)
        return _saturate(xp, x, to, kind) if source.is_float and to.is_integer else convert_dtype(xp, x, kind)
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        if source == "nf4":
            return cast(xp, _NF4[x & 15], to, None, saturate, rounding)
        if to == "string":
            return np.array([str(item) for item in x.reshape(-1)], dtype=object).reshape(x.shape)
        if source == "string":
            return _cast_text(x, to, saturate, rounding)
        return _cast_number(_plain(x, source), to, saturate, rounding)


def _plain(x: Array, source: DType) -> Array:
    """Convert ``x`` without loss to a built-in type of numpy."""
    if source.bits >= 32 or source.standard:
        return x
    return x.astype(np.float32 if source.is_float else np.int8 if source.kind == "int" else np.uint8)


def _saturate(xp: Namespace, x: Array, to: DType, kind: Any) -> Array:
    """Convert floats to integers of the library's type ``kind``: rounded toward zero and saturated, NaN to 0.

    ``above`` is the greatest value plus 1, a power of two; a float type may be unable to represent the greatest value.
    """
    low, high = to.range()
    x = widen(xp, x)
    if to.bits == 32 and element(x).bits == 32 and not is_narrow(xp):
        x = convert_dtype(xp, x, xp.float64)
    above = float(high + 1)
    x = xp.where(xp.isnan(x) | (x < low), xp.where(x < low, xp.full_like(x, float(low)), xp.zeros_like(x)), x)
    if float(high) == high and to.bits < element(x).bits:
        return convert_dtype(xp, xp.where(x > high, xp.full_like(x, float(high)), x), kind)
    is_above = x >= above
    y = convert_dtype(xp, xp.where(is_above, xp.zeros_like(x), x), kind)
    return xp.where(is_above, xp.full_like(y, high), y)


def _cast_number(x: Array, to: DType, saturate: bool, rounding: str) -> Array:
    if x.dtype.kind == "f" and to.is_integer:
        if to.bits >= 8:
            return np.asarray(_saturate(np, x, to, to.numpy))
        x = np.asarray(_saturate(np, np.rint(x), dtypes.i64, np.dtype(np.int64)))
    if to in _CODES:
        return (x.astype(np.int64) & (2**to.bits - 1)).astype(np.uint8)
    if not to.is_float or to.bits >= 32:
        return x.astype(to.numpy)
    if to == "f16":
        return (x if x.dtype.kind == "f" else x.astype(np.float64)).astype(np.float16)
    if to == "f8e8m0":
        return _scale(_odd_f64(x), saturate, rounding).view(to.numpy)
    single = _odd_f32(_odd_f64(x)) if x.dtype != np.float32 else x
    if saturate and to in _SATURATING:
        greatest = np.float32(_greatest(to))
        single = np.clip(single, -greatest, greatest)
    return single.astype(to.numpy)


@functools.cache
def _greatest(kind: DType) -> float:
    values = np.arange(256, dtype=np.uint8).view(kind.numpy).astype(np.float64)
    return float(values[np.isfinite(values)].max())


def _odd_f64(x: Array) -> Array:
    """Convert ``x`` to f64, rounding to odd: a later rounding to at most half the digits then equals a single rounding."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        large = x >= 2**53 if x.dtype.kind == "u" else (x >= 2**53) | (x <= -(2**53))
        kept = (x >> np.array(11, x.dtype)) << np.array(11, x.dtype)
        x = np.where(large & (x != kept), kept | np.array(2048, x.dtype), x)
    return x.astype(np.float64)


def _odd_f32(x: Array) -> Array:
    """Convert ``x`` from f64 to f32, rounding to odd."""
    single = np.atleast_1d(x).astype(np.float32)
    back = single.astype(np.float64)
    inexact = (back != x) & ~np.isnan(back)
    bits = single.view(np.uint32)
    toward_zero = bits - (np.abs(back) > np.abs(x)).astype(np.uint32)
    return np.where(inexact, toward_zero | np.uint32(1), bits).astype(np.uint32).view(np.float32).reshape(x.shape)


def _scale(x: Array, saturate: bool, rounding: str) -> Array:
    """Encode ``x`` as f8e8m0 by the table in ONNX Cast-25: a code stands for 2^(code - 127), 255 for NaN."""
    fraction, exponent = np.frexp(np.abs(x))
    up = {
        "up": fraction > 0.5,
        "down": np.zeros(np.shape(x), bool),
        "nearest": fraction >= 0.75,
        "even": (fraction > 0.75) | ((fraction == 0.75) & (exponent % 2 != 0)),
    }[rounding]
    codes = np.where(x == 0, -1, np.where(np.isinf(x), 255, exponent + 126 + up))
    codes = np.clip(codes, 0, 254) if saturate else np.where((codes < 0) | (codes > 254), 255, codes)
    return np.asarray(np.where(np.isnan(x), 255, codes).astype(np.uint8))


def _cast_text(x: Array, to: DType, saturate: bool, rounding: str) -> Array:
    if to.is_integer:
        values = np.array([_whole(text, to) for text in x.reshape(-1)], dtype=np.uint64 if to == "u64" else np.int64)
    else:
        values = np.array([_real(text, to) for text in x.reshape(-1)], dtype=np.float64)
    return _cast_number(values.reshape(x.shape), to, saturate, rounding)


def _real(text: str, to: DType) -> float:
    try:
        if "_" not in str(text):
            return float(text)
    except ValueError:
        pass
    raise EngineError("array.cast", f"a text must be a number to be cast to {to}, got {text!r}")


def _whole(text: str, to: DType) -> int:
    real = _real(text, to)
    plain = str(text).strip().lstrip("+-").isdigit()
    low, high = to.range()
    if math.isfinite(real) and low <= (value := int(text) if plain else int(real) if to.bits >= 8 else round(real)) <= high:
        return value
    raise EngineError("array.cast", f"a text must be a value of {to}, got {text!r}")
