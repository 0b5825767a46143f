"""Elementwise arithmetic, and reductions over axes."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Sequence

import numpy as np

from dovetail.ir.arrays.backends import (
    Array,
    Namespace,
    convert_dtype,
    element,
    is_narrow,
    is_numpy,
    is_rounding,
    library_name,
    widen,
)
from dovetail.ir.arrays.casts import cast
from dovetail.ir.arrays.checks import is_deferring, refuse_elements

# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969): numerators and denominators,
# highest power first. _NEAR approximates erf(x) / x as a function of x^2 up to 0.46875; _FAR approximates exp(x^2) erfc(x) as a
# function of x up to 4. Beyond 4 erfc(x) is so small that _FAR is accurate enough for 1 - erfc(x).
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_FAR = (
    (
        2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
        8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
    ),
    (
        1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
        3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
    ),
)  # fmt: skip


def mean(xp: Namespace, x: Array, axes: Sequence[int]) -> Array:
    """Return the mean over ``axes``, which become axes of size 1. The mean of no elements is NaN, without numpy's warning."""
    if is_numpy(xp) and not all(x.shape[axis] for axis in axes):
        reduced = {axis % x.ndim for axis in axes}
        return xp.full([1 if axis in reduced else size for axis, size in enumerate(x.shape)], np.nan, x.dtype)
    return xp.mean(x, axis=tuple(axes), keepdims=True)


def erf(xp: Namespace, x: Array) -> Array:
    """Compute the error function erf(x) with a relative error of about 1e-15 in f64.

    Narrower floats are computed in f64 where the library has no error function.
    """
    kind = element(x)
    if library_name(xp) == "torch":
        return cast(xp, sys.modules["torch"].special.erf(widen(xp, x)), kind)
    if is_rounding(xp):
        return xp.erf(x)
    if library_name(xp) == "jax":
        return cast(xp, sys.modules["jax"].lax.erf(widen(xp, x)), kind)
    if kind != "f64" and not is_narrow(xp):
        return cast(xp, _erf(xp, convert_dtype(xp, x, xp.float64)), kind)
    return _erf(xp, x)


def _erf(xp: Namespace, x: Array) -> Array:
    size = xp.abs(x)
    near = xp.where(size < 0.46875, x, xp.zeros_like(x))
    far = xp.where(size < 6, size, xp.full_like(size, 6))
    with np.errstate(under="ignore"):
        inner = near * _ratio(near * near, *_NEAR)
        outer = 1 - xp.exp(-far * far) * _ratio(far, *_FAR)
    result = xp.where(size < 0.46875, inner, xp.copysign(outer, x))
    return xp.where(x != x, x, result)


def _ratio(x: Array, numerator: Sequence[float], denominator: Sequence[float]) -> Array:
    above, below = (
        functools.reduce(lambda total, c: total * x + c, terms[1:], terms[0] + 0 * x) for terms in (numerator, denominator)
    )
    return above / below


def round_half_even(xp: Namespace, x: Array) -> Array:
    """Round to the nearest integer, ties to even."""
    return xp.round(x)


def round_half_away(xp: Namespace, x: Array) -> Array:
    """Round to the nearest integer, ties away from zero."""
    whole = xp.trunc(x)
    with np.errstate(invalid="ignore"):
        away = xp.where(xp.abs(x - whole) >= 0.5, xp.sign(x), xp.zeros_like(x))
        return xp.copysign(whole + away, x) if element(x).is_float else x


def floor_divide(xp: Namespace, x: Array, y: Array) -> Array:
    """Divide integers toward minus infinity; minimum / -1 wraps around. Raises EngineError [array.divide-by-zero]."""
    _refuse_zero(xp, y)
    with np.errstate(all="ignore"):
        # Some libraries trap on the minimum integer divided by -1.
        return xp.where(_is_minus_one(xp, y), xp.negative(x), xp.floor_divide(x, _unless_minus_one(xp, y)))


def trunc_divide(xp: Namespace, x: Array, y: Array) -> Array:
    """Divide integers toward zero; minimum / -1 wraps around. Raises EngineError [array.divide-by-zero]."""
    floor = floor_divide(xp, x, y)
    inexact = floor_mod(xp, x, y) != 0
    with np.errstate(all="ignore"):
        return xp.where(inexact & ((x < 0) != (y < 0)), floor + xp.ones_like(floor), floor)


def floor_mod(xp: Namespace, x: Array, y: Array) -> Array:
    """Compute x - floor(x / y) * y, the remainder with the sign of ``y``.

    Raises EngineError [array.divide-by-zero] for integers.
    """
    with np.errstate(all="ignore"):
        if not element(x).is_integer:
            return xp.remainder(x, y)
        _refuse_zero(xp, y)
        return xp.where(_is_minus_one(xp, y), xp.zeros_like(x), xp.remainder(x, _unless_minus_one(xp, y)))


def trunc_mod(xp: Namespace, x: Array, y: Array) -> Array:
    """Compute x - trunc(x / y) * y, the remainder with the sign of ``x`` (fmod).

    Raises EngineError [array.divide-by-zero] for integers.
    """
    with np.errstate(all="ignore"):
        if not element(x).is_integer:
            return xp.copysign(xp.remainder(xp.abs(x), xp.abs(y)), x)
        rest = floor_mod(xp, x, y)
        return xp.where((rest != 0) & ((rest < 0) != (x < 0)), rest - y, rest)


def _refuse_zero(xp: Namespace, y: Array) -> None:
    refuse_elements(xp, y == 0, "array.divide-by-zero", "integer division by zero")


def _is_minus_one(xp: Namespace, y: Array) -> Array:
    return y == -xp.ones_like(y) if element(y).kind == "int" else xp.zeros_like(y, dtype=xp.bool)


def _unless_minus_one(xp: Namespace, y: Array) -> Array:
    return xp.where(_is_minus_one(xp, y), xp.ones_like(y), y)


def power(xp: Namespace, x: Array, y: Array) -> Array:
    """Compute ``x ** y`` in the type of ``x`` (ONNX Pow).

    An integer base with an integer exponent is exact modulo 2**bits; a negative exponent gives the truncated reciprocal (0 for
    base 0). Mixed types are computed in f64, or f32 in a library without f64, and cast to the type of ``x``.
    """
    base, exponent = element(x), element(y)
    with np.errstate(all="ignore"):
        if base.is_integer and exponent.is_integer:
            return _integer_power(xp, x, y)
        if base is exponent and base.bits >= 32:
            return _float_power(xp, x, y)
        wide = xp.float32 if is_narrow(xp) else xp.float64
        return cast(xp, _float_power(xp, convert_dtype(xp, x, wide), convert_dtype(xp, y, wide)), base, saturate=False)


def _float_power(xp: Namespace, x: Array, y: Array) -> Array:
    """Compute a power of floats by one formula, whatever the shapes of the operands."""
    if not is_numpy(xp):
        return xp.pow(x, y)
    # numpy computes other formulas for an exponent with a stride of 0: a square root, which is NaN for -inf, and x * x.
    shape = np.broadcast_shapes(x.shape, y.shape)
    return np.power(x, np.ascontiguousarray(np.broadcast_to(y, shape))).reshape(shape)


def _integer_power(xp: Namespace, x: Array, y: Array) -> Array:
    """Compute an integer power by repeated squaring. For bases 1 and -1 only the parity of a negative exponent matters."""
    x, y = xp.broadcast_arrays(x, y)
    negative = y < 0
    rest = xp.where(negative, y & 1, y)
    result = xp.ones_like(x)
    square = x
    # The elements of a traced exponent are unknown; the bit width of its type bounds the number of squarings.
    rounds = itertools.repeat(None, element(y).bits) if is_deferring(xp) else iter(lambda: bool(xp.any(rest > 0)), False)
    for _ in rounds:
        result = xp.where((rest & 1) == 1, result * square, result)
        square = square * square
        rest = rest >> 1
    return xp.where(negative & ~((x == 1) | _is_minus_one(xp, x)), xp.zeros_like(x), result)


def bit_shift(xp: Namespace, x: Array, amount: Array, direction: str, bits: int) -> Array:
    """Shift ``x`` "left" or "right" by ``amount`` bits.

    An amount of at least ``bits``, the width of the type, gives 0, or -1 for a negative ``x`` that is shifted to the right.
    """
    over = amount >= bits
    safe = convert_dtype(xp, xp.where(over, xp.full_like(amount, bits - 1), amount), x.dtype)
    if direction == "left":
        return xp.where(over, xp.zeros_like(x), xp.bitwise_left_shift(x, safe))
    return xp.where(over & (x >= 0), xp.zeros_like(x), xp.bitwise_right_shift(x, safe))


def softmax(xp: Namespace, x: Array, axis: int | tuple[int, ...]) -> Array:
    """Compute softmax, exp(x) / sum(exp(x)) over ``axis``, without overflow.

    A row that contains +inf, or only -inf, gives NaN.
    """
    with np.errstate(all="ignore"):
        powers = xp.exp(_less_greatest(xp, widen(xp, x), axis)[0])
        return convert_dtype(xp, powers / xp.sum(powers, axis=axis, keepdims=True), x.dtype)


def log_softmax(xp: Namespace, x: Array, axis: int | tuple[int, ...]) -> Array:
    """Compute log(softmax(x)) over ``axis``, without underflow of the softmax."""
    with np.errstate(all="ignore"):
        rest, _ = _less_greatest(xp, widen(xp, x), axis)
        return convert_dtype(xp, rest - xp.log(xp.sum(xp.exp(rest), axis=axis, keepdims=True)), x.dtype)


def logsumexp(xp: Namespace, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """Compute log(sum(exp(x))) over ``axis`` (None: all axes), without overflow; -inf for no elements and for only -inf."""
    with np.errstate(all="ignore"):
        rest, greatest = _less_greatest(xp, widen(xp, x), axis, finite=True)
        total = xp.log(xp.sum(xp.exp(rest), axis=axis, keepdims=True)) + greatest
    axes = tuple(range(x.ndim)) if axis is None else axis
    result = total if keepdims else xp.squeeze(total, axis=axes) if axes != () else total
    return convert_dtype(xp, result, x.dtype)


def _less_greatest(xp: Namespace, x: Array, axis: int | tuple[int, ...] | None, finite: bool = False) -> tuple[Array, Array]:
    """Subtract the maximum over ``axis``; return the difference and the maximum. ``finite`` replaces an infinite maximum by 0."""
    if not math.prod(x.shape):
        return x, xp.sum(x, axis=axis, keepdims=True)
    greatest = xp.max(x, axis=axis, keepdims=True)
    if finite:
        greatest = xp.where(xp.isinf(greatest), xp.zeros_like(greatest), greatest)
    return x - greatest, greatest


def matmul_integers(xp: Namespace, x: Array, y: Array) -> Array:
    """Multiply integer matrices; the result is exact modulo 2**bits of their type."""
    if is_numpy(xp) and x.size and y.size:
        largest = [max(abs(int(array.min())), abs(int(array.max()))) for array in (x, y)]
        if largest[0] * largest[1] * x.shape[-1] < 2**53:
            # BLAS multiplies no integers; f64 represents every partial sum exactly.
            wide = np.asarray(np.matmul(x.astype(np.float64), y.astype(np.float64)))
            return wide.astype(np.int64).astype(x.dtype)
    return xp.matmul(x, y)
