"""Score transforms of ai.onnx.ml models: softmax, logistic, softmax_zero and probit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_TINY = 1e-7
_SQRT2 = 1.41421356
_WINITZKI = 0.147
"""The constant of Winitzki's approximation of the inverse error function, which onnxruntime uses for probit."""


def check_transform(name: str) -> None:
    """Raise RuleError [attribute.value] for an unknown transform."""
    if name not in TRANSFORMS:
        raise RuleError("attribute.value", f"post_transform must be one of {', '.join(TRANSFORMS)}, got {name!r}")


def apply_transform(b: Builder, scores: Value, name: str) -> Any:
    """Apply the transform ``name`` to scores [N, C] with several scores per row."""
    if name == "SOFTMAX":
        return b.Softmax(scores, axis=1)
    if name == "LOGISTIC":
        return b.Sigmoid(scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(b, scores)
    return write_probit(b, scores) if name == "PROBIT" else scores


def apply_transform_to_single_score(b: Builder, scores: Value, name: str) -> Any:
    """Apply the transform ``name`` to one score per row, [N, 1]: only ``PROBIT`` changes the score, as in onnxruntime."""
    return write_probit(b, scores) if name == "PROBIT" else scores


def write_probit(b: Builder, scores: Value) -> Any:
    """Emit ``sqrt(2) * erfinv(2 * scores - 1)`` by Winitzki's approximation; NaN outside of [0, 1]."""
    number = _constant_maker(b, scores)
    x = b.Subtract(b.Multiply(scores, number(2)), number(1))
    log = b.Log(b.Multiply(b.Subtract(number(1), x), b.Add(number(1), x)))
    half = b.Add(b.Multiply(log, number(0.5)), number(2 / (np.float32(3.14159) * np.float32(_WINITZKI))))
    root = b.Sqrt(b.Subtract(b.Sqrt(b.Subtract(b.Multiply(half, half), b.Multiply(log, number(1 / _WINITZKI)))), half))
    return b.Multiply(b.Where(b.Less(x, number(0)), b.Negative(root), root), number(_SQRT2))


def _softmax_zero(b: Builder, scores: Value) -> Any:
    """Emit softmax over the scores with a magnitude above 1e-7; other scores are multiplied by exp(-maximum) / sum."""
    number = _constant_maker(b, scores)
    maximum = b.ReduceMax(scores, [1], keepdims=True)
    is_counted = b.Greater(b.Abs(scores), number(_TINY))
    exponentials = b.Exp(b.Subtract(scores, maximum))
    total = b.ReduceSum(b.Where(is_counted, exponentials, number(0)), [1], keepdims=True)
    return b.Divide(b.Where(is_counted, exponentials, b.Multiply(scores, b.Exp(b.Negative(maximum)))), total)


def _constant_maker(b: Builder, like: Value) -> Any:
    return lambda value: b.constant(np.array(value, like.dtype.numpy), like.dtype)
