"""Functions of one element: their slopes over an interval, and the error of their implementations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.ir import arrays

Floats = np.ndarray[Any, Any]
LIBRARY = 8.0
"""The error of a function of a runtime's library, in units of rounding."""


def minimum_of(low: Floats, high: Floats) -> Floats:
    """Return the smallest magnitude in an interval."""
    return np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))


def maximum_of(low: Floats, high: Floats) -> Floats:
    """Return the largest magnitude in an interval."""
    return np.maximum(np.abs(low), np.abs(high))


def _or_inf(slope: Floats) -> Floats:
    return np.where(np.isnan(slope) | (slope < 0), np.inf, slope)


def _slope_of_tan(low: Floats, high: Floats) -> Floats:
    has_pole = np.floor(low / np.pi - 0.5) != np.floor(high / np.pi - 0.5)
    return np.where(has_pole, np.inf, 1 + np.maximum(np.tan(low) ** 2, np.tan(high) ** 2))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


UNARY: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats, Floats], Floats], float]] = {
    "exp": (np.exp, lambda low, high: np.exp(high), LIBRARY),
    "expm1": (np.expm1, lambda low, high: np.exp(high), LIBRARY),
    "log": (np.log, lambda low, high: np.where(low > 0, 1 / np.where(low > 0, low, 1.0), np.inf), LIBRARY),
    "log1p": (np.log1p, lambda low, high: np.where(low > -1, 1 / np.where(low > -1, 1 + low, 1.0), np.inf), LIBRARY),
    "log2": (np.log2, lambda low, high: np.where(low > 0, 1.4427 / np.where(low > 0, low, 1.0), np.inf), LIBRARY),
    "sqrt": (np.sqrt, lambda low, high: np.where(low > 0, 0.5 / np.sqrt(np.where(low > 0, low, 1.0)), np.inf), 1.0),
    "square": (np.square, lambda low, high: 2 * maximum_of(low, high), 1.0),
    "reciprocal": (np.reciprocal, lambda low, high: _or_inf(1 / minimum_of(low, high) ** 2), 1.0),
    "sin": (np.sin, lambda low, high: np.ones_like(low), LIBRARY),
    "cos": (np.cos, lambda low, high: np.ones_like(low), LIBRARY),
    "tan": (np.tan, _slope_of_tan, LIBRARY),
    "asin": (np.arcsin, lambda low, high: _or_inf(1 / np.sqrt(1 - maximum_of(low, high) ** 2)), LIBRARY),
    "acos": (np.arccos, lambda low, high: _or_inf(1 / np.sqrt(1 - maximum_of(low, high) ** 2)), LIBRARY),
    "atan": (np.arctan, lambda low, high: 1 / (1 + minimum_of(low, high) ** 2), LIBRARY),
    "sinh": (np.sinh, lambda low, high: np.cosh(maximum_of(low, high)), LIBRARY),
    "cosh": (np.cosh, lambda low, high: np.sinh(maximum_of(low, high)), LIBRARY),
    "tanh": (np.tanh, lambda low, high: 1 / np.cosh(minimum_of(low, high)) ** 2, LIBRARY),
    "asinh": (np.arcsinh, lambda low, high: 1 / np.sqrt(1 + minimum_of(low, high) ** 2), LIBRARY),
    "acosh": (np.arccosh, lambda low, high: _or_inf(1 / np.sqrt(low**2 - 1)), LIBRARY),
    "atanh": (np.arctanh, lambda low, high: _or_inf(1 / (1 - maximum_of(low, high) ** 2)), LIBRARY),
    "sigmoid": (_sigmoid, lambda low, high: _sigmoid(minimum_of(low, high)) * _sigmoid(-minimum_of(low, high)), LIBRARY),
    "erf": (lambda x: np.asarray(arrays.erf(np, x)), lambda low, high: 1.1284 * np.exp(-(minimum_of(low, high) ** 2)), LIBRARY),
}
"""By name of the array API: the function, its largest slope over an interval, and the error of an implementation in units."""

MONOTONE = frozenset(
    (
        "exp",
        "expm1",
        "log",
        "log1p",
        "log2",
        "sqrt",
        "asin",
        "acos",
        "atan",
        "sinh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "sigmoid",
    )
)
"""The functions whose extremes are at the ends of an interval."""
ABSOLUTE = {"sigmoid": 0.125}
"""The magnitude that is added to a result, where the error of an implementation is not relative to it: onnxruntime's Sigmoid."""
