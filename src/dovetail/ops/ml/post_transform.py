"""The functions that models of ai.onnx.ml apply to scores last: softmax, logistic, softmax_zero, probit."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import RuleError

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_TINY = 1e-7
_SQRT2 = 1.41421356
_BEND = 0.147
"""The constant of Winitzki's approximation of the inverse error function, with which onnxruntime computes probit."""


def check_transform(name: str) -> None:
    """Raise RuleError [score.transform] for a word that names no transform."""
    if name not in TRANSFORMS:
        raise RuleError("score.transform", f"post_transform {name!r} is none of {', '.join(TRANSFORMS)}")


def transform(b: Any, scores: Any, name: str) -> Any:
    """The transform of rows of several scores, [N, C]."""
    if name == "SOFTMAX":
        return b.Softmax(scores, axis=1)
    if name == "LOGISTIC":
        return b.Sigmoid(scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(b, scores)
    return probit(b, scores) if name == "PROBIT" else scores


def transform_lone(b: Any, scores: Any, name: str) -> Any:
    """The transform of rows of one score, [N, 1]: probit alone changes it, as in onnxruntime."""
    return probit(b, scores) if name == "PROBIT" else scores


def probit(b: Any, scores: Any) -> Any:
    """``sqrt(2) * erfinv(2 * scores - 1)``, by Winitzki's approximation; NaN outside of [0, 1]."""
    number = _numbers(b, scores)
    x = b.Subtract(b.Multiply(scores, number(2)), number(1))
    log = b.Log(b.Multiply(b.Subtract(number(1), x), b.Add(number(1), x)))
    half = b.Add(b.Multiply(log, number(0.5)), number(2 / (np.float32(3.14159) * np.float32(_BEND))))
    root = b.Sqrt(b.Subtract(b.Sqrt(b.Subtract(b.Multiply(half, half), b.Multiply(log, number(1 / _BEND)))), half))
    return b.Multiply(b.Where(b.Less(x, number(0)), b.Negative(root), root), number(_SQRT2))


def _softmax_zero(b: Any, scores: Any) -> Any:
    """Softmax over the scores that are not 0; a 0 is multiplied by the same factor."""
    number = _numbers(b, scores)
    most = b.ReduceMax(scores, [1], keepdims=True)
    counts = b.Greater(b.Abs(scores), number(_TINY))
    powers = b.Exp(b.Subtract(scores, most))
    total = b.ReduceSum(b.Where(counts, powers, number(0)), [1], keepdims=True)
    return b.Divide(b.Where(counts, powers, b.Multiply(scores, b.Exp(b.Negative(most)))), total)


def _numbers(b: Any, like: Any) -> Any:
    return lambda value: b.constant(np.array(value, like.dtype.numpy), like.dtype)


__all__ = ["TRANSFORMS", "check_transform", "probit", "transform", "transform_lone"]
