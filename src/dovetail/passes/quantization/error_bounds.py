"""Confidence bounds of the error on other rows, from the spread of the errors of calls."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite, log, pi, sqrt, tan
from statistics import NormalDist

CONFIDENCE = 0.975
"""One-sided confidence of the bound of an error if the logarithms of errors are normal; it is less for skewed ones."""
MAX_FACTOR = 4.0
"""Largest ratio of the bound to an error; also the ratio for a single call, whose errors have no spread."""


def bound_error(errors: Sequence[float], norms: Sequence[float]) -> float:
    """Return an upper confidence bound of the relative error on as many other calls.

    ``errors`` and ``norms`` are the squared norms of the differences and of the outputs of each call. The relative error is the
    square root of the ratio R of their sums. The standard error s of ln R is that of the jackknife: for n calls, (n - 1) / n
    times the sum of the squared deviations of the n values of ln R without one call. Other n calls add the same variance. The
    bound is ``sqrt(R * exp(t * sqrt(2) * s))`` with Student's t for n - 1 degrees of freedom and CONFIDENCE, at most MAX_FACTOR
    times the relative error. For outputs of 0 the relative error is the square root of the sum of ``errors``.

    Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 11 (the jackknife).
    """
    total, norm, count = sum(errors), sum(norms), len(errors)
    if total == 0 or not isfinite(total):
        return total
    if norm == 0:
        return sqrt(total) * MAX_FACTOR
    rest = [(total - error, norm - square) for error, square in zip(errors, norms, strict=True)]
    factor = MAX_FACTOR
    # Without the call, errors or outputs may be 0 but for the rounding of the sums.
    if all(error > 1e-12 * total and square > 1e-12 * norm for error, square in rest):
        logarithms = [log(error) - log(square) for error, square in rest]
        mean = sum(logarithms) / count
        deviation = sqrt((count - 1) / count * sum((logarithm - mean) ** 2 for logarithm in logarithms))
        exponent = student_quantile(CONFIDENCE, count - 1) * deviation / sqrt(2)
        factor = min(exp(min(exponent, MAX_FACTOR)), MAX_FACTOR)
    return sqrt(total / norm) * factor


def student_quantile(confidence: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution, exact for 1 and 2 degrees of freedom, else within 1 %.

    Source: Abramowitz, Stegun, "Handbook of Mathematical Functions", 26.7.5.
    """
    if freedom == 1:
        return tan(pi * (confidence - 0.5))
    if freedom == 2:
        return (2 * confidence - 1) / sqrt(2 * confidence * (1 - confidence))
    z = NormalDist().inv_cdf(confidence)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms)))
