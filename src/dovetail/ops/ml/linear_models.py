"""Linear models of ai.onnx.ml: LinearRegressor and LinearClassifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.ml.class_labels import Labels, check_labels
from dovetail.ops.ml.post_transform import apply_transform, apply_transform_to_single_score, check_transform

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class LinearRegressor(
    Op,
    sig="x: R -> y: f32",
    onnx="ai.onnx.ml:LinearRegressor-1(x; coefficients?, intercepts?, targets=1, post_transform=NONE)",
):
    """LinearRegressor computes ``x * C^T + intercepts`` in f32 for each row of ``x``.

    ``coefficients`` holds the rows of ``C``, one row per target. A vector ``x`` is one row. With a single target, only the
    ``post_transform`` ``PROBIT`` changes the result, as in onnxruntime.
    Source: ONNX ai.onnx.ml LinearRegressor 1.
    """

    coefficients: tuple[float, ...] = ()
    intercepts: tuple[float, ...] = ()
    targets: int = 1
    post_transform: str = "NONE"

    def validate(self) -> None:
        check_transform(self.post_transform)
        _check_lengths("LinearRegressor", self.coefficients, self.intercepts, self.targets)

    def shape(self, x: View) -> Any:
        return (row_count_of(x, len(self.coefficients) // self.targets), self.targets)

    def decompose(self, b: Builder, x: Value) -> Any:
        scores = write_affine(b, as_rows(b, x), self.coefficients, self.intercepts, self.targets)
        return (apply_transform_to_single_score if self.targets == 1 else apply_transform)(b, scores, self.post_transform)


class LinearClassifier(
    Op,
    sig="x: R -> y: T, z: f32",
    onnx="ai.onnx.ml:LinearClassifier-1(x; coefficients, intercepts?, classlabels_ints?, classlabels_strings?, multi_class=0, "
    "post_transform=NONE)",
):
    """LinearClassifier returns the label of the greatest score of each row of ``x``, and the scores ``x * C^T + intercepts``.

    Scores are f32. ``coefficients`` holds the rows of ``C``: one row per intercept, or one row per label where there are no
    intercepts. With one row and two labels, a score s above 0 selects the second label, and the two scores are ``1 - s, s``;
    ``LOGISTIC`` is applied to s first. ``multi_class`` records how the model was fitted and has no effect.
    Source: ONNX ai.onnx.ml LinearClassifier 1; single scores as in onnxruntime.
    """

    coefficients: tuple[float, ...]
    intercepts: tuple[float, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    multi_class: int = 0
    post_transform: str = "NONE"

    def validate(self) -> None:
        check_transform(self.post_transform)
        labels = self.labels()
        count = self.score_count()
        _check_lengths("LinearClassifier", self.coefficients, self.intercepts, count)
        if count != len(labels) and not (count == 1 and len(labels) == 2):
            raise RuleError(
                "attribute.length",
                f"the number of rows of coefficients ({count}) must equal the number of classes ({len(labels)})",
            )
        if count == 1 and self.post_transform == "PROBIT":
            raise RuleError("attribute.conflict", "PROBIT must have a score for each class, got a single score for two classes")

    def labels(self) -> Labels:
        return check_labels("LinearClassifier", self.classlabels_ints, self.classlabels_strings)

    def score_count(self) -> int:
        return len(self.intercepts) or len(self.labels())

    def types(self, x: View) -> list[Type]:
        labels = self.labels()
        count = row_count_of(x, len(self.coefficients) // self.score_count())
        return [Tensor(labels.dtype, (count,)), Tensor(dtypes.f32, (count, len(labels)))]

    def decompose(self, b: Builder, x: Value) -> Any:
        labels, count = self.labels(), self.score_count()
        scores = write_affine(b, as_rows(b, x), self.coefficients, self.intercepts, count)
        if count > 1:
            return labels.gather(b, b.ArgMax(scores, axis=1, keepdims=False)), apply_transform(b, scores, self.post_transform)
        is_second = b.Squeeze(b.Greater(scores, b.constant(0, dtypes.f32)), [1])
        second = b.Sigmoid(scores) if self.post_transform == "LOGISTIC" else scores
        both = b.Concat(b.Subtract(b.constant(1, dtypes.f32), second), second, axis=1)
        return labels.choose(b, is_second, *labels.items), both


def write_affine(b: Builder, x: Value, coefficients: tuple[float, ...], intercepts: tuple[float, ...], count: int) -> Any:
    """Emit ``x * C^T + intercepts``, where ``C`` has ``count`` rows."""
    matrix = np.array(coefficients, np.float32).reshape(count, -1).T
    product = b.MatMul(x, b.constant(np.ascontiguousarray(matrix), dtypes.f32))
    return b.Add(product, b.constant(np.array(intercepts, np.float32), dtypes.f32)) if intercepts else product


def as_rows(b: Builder, x: Value, dtype: DType = dtypes.f32) -> Any:
    """Return ``x`` as a matrix of ``dtype``; a vector becomes one row."""
    if len(x.dims) == 1:
        x = b.Unsqueeze(x, [0])
    return x if x.dtype is dtype else b.Cast(x, to=dtype)


def row_count_of(x: View, features: int | None) -> Any:
    """Return the number of rows of ``x``, None if the number is unknown. Raises RuleError [shape.rank], [shape.disagree]."""
    if x.shape is None:
        return None
    if len(x.shape) not in (1, 2):
        raise RuleError("shape.rank", f"x must have rank 1 or 2, got {len(x.shape)}")
    if features is not None and symbolic.equal(x.shape[-1], features) is False:
        raise RuleError("shape.disagree", f"x must have {features} features, got {x.shape[-1]}")
    return 1 if len(x.shape) == 1 else x.shape[0]


def _check_lengths(operator: str, coefficients: tuple[float, ...], intercepts: tuple[float, ...], count: int) -> None:
    if count < 1 or not coefficients or len(coefficients) % count:
        raise RuleError(
            "attribute.length",
            f"the number of coefficients of {operator} ({len(coefficients)}) must be a multiple of the number of rows ({count})",
        )
    if intercepts and len(intercepts) != count:
        raise RuleError(
            "attribute.length",
            f"the number of intercepts of {operator} ({len(intercepts)}) must equal the number of rows ({count})",
        )
