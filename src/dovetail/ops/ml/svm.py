"""Support vector machines of ai.onnx.ml: SVMRegressor and SVMClassifier."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.op import Op, Sizes
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.ml.class_labels import Labels, check_labels
from dovetail.ops.ml.linear_models import as_rows, row_count_of, write_affine
from dovetail.ops.ml.post_transform import apply_transform, check_transform

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

KERNELS = ("linear", "poly", "rbf", "sigmoid")
_MAX_ROUNDS = 100
_TOLERANCE = 0.005
_MIN_PROBABILITY = 1e-7


class _SVMBase(Op):
    """_SVMBase is the base class of SVMClassifier and SVMRegressor: attributes, their checks, and the kernels."""

    coefficients: tuple[float, ...] = ()
    rho: tuple[float, ...] = ()
    support_vectors: tuple[float, ...] = ()
    kernel_type: str = "linear"
    kernel_params: tuple[float, ...] = ()
    post_transform: str = "NONE"

    def validate(self) -> None:
        check_transform(self.post_transform)
        if self.kernel_type not in KERNELS:
            raise RuleError("attribute.value", f"kernel_type must be one of {', '.join(KERNELS)}, got {self.kernel_type!r}")
        if len(self.kernel_params) not in (0, 3):
            raise RuleError(
                "attribute.length", f"kernel_params must be gamma, coef0 and degree, got {len(self.kernel_params)} numbers"
            )
        if not self.coefficients or not self.rho:
            raise RuleError(
                "attribute.length", f"coefficients and rho must not be empty, got {len(self.coefficients)} and {len(self.rho)}"
            )
        count = self.vector_count()
        if count < 0 or (count and (not self.support_vectors or len(self.support_vectors) % count)):
            raise RuleError(
                "attribute.length",
                f"the length of support_vectors ({len(self.support_vectors)}) must be a multiple of the number of vectors "
                f"({count})",
            )

    def vector_count(self) -> int:
        raise NotImplementedError

    def kernels(self, b: Builder, x: Value) -> Any:
        """Emit the kernel values of all pairs of a row of ``x`` and a support vector: [N, vectors]."""
        vectors = np.array(self.support_vectors, np.float32).reshape(self.vector_count(), -1)
        gamma, offset, degree = (self._constant(b, value) for value in self.kernel_params or (0.0, 0.0, 0.0))
        if self.kernel_type == "rbf":
            (distances,) = b.add(SquaredDistances(), x, b.constant(vectors, dtypes.f32))
            return b.Exp(b.Negative(b.Multiply(gamma, distances)))
        products = b.MatMul(x, b.constant(np.ascontiguousarray(vectors.T), dtypes.f32))
        if self.kernel_type == "linear":
            return products
        products = b.Add(b.Multiply(products, gamma), offset)
        return b.Tanh(products) if self.kernel_type == "sigmoid" else b.Power(products, degree)

    def _constant(self, b: Builder, value: float) -> Any:
        return b.constant(np.array(value, np.float32), dtypes.f32)


class SVMRegressor(
    _SVMBase,
    sig="x: R -> y: f32",
    onnx="ai.onnx.ml:SVMRegressor-1(x; coefficients?, rho?, support_vectors?, n_supports=0, kernel_type~lower=LINEAR, "
    "kernel_params?, one_class=0, post_transform=NONE)",
):
    """SVMRegressor computes ``sum_i coefficients[i] * K(x, v_i) + rho[0]`` in f32 over ``n_supports`` support vectors v_i.

    With ``kernel_params`` gamma, coef0 and degree, ``K(x, v)`` is ``x . v`` for ``linear``, ``(gamma * x . v + coef0) ^
    degree`` for ``poly``, ``exp(-gamma * |x - v|^2)`` for ``rbf``, and ``tanh(gamma * x . v + coef0)`` for ``sigmoid``.
    Without support vectors the result is ``x . coefficients + rho[0]``. ``one_class`` returns 1 for a result above 0, else -1.
    ``post_transform`` has no effect on a single score, and ``PROBIT`` is not supported.
    Source: ONNX ai.onnx.ml SVMRegressor 1.
    """

    n_supports: int = 0
    one_class: bool = False

    def validate(self) -> None:
        super().validate()
        if self.n_supports and len(self.coefficients) != self.n_supports:
            raise RuleError(
                "attribute.length",
                f"the number of coefficients ({len(self.coefficients)}) must equal n_supports ({self.n_supports})",
            )
        if self.post_transform == "PROBIT":
            raise UnsupportedError(
                "op.unsupported", "PROBIT of SVMRegressor is not supported: onnxruntime ignores it, and ONNX does not define it"
            )

    def vector_count(self) -> int:
        return self.n_supports

    def shape(self, x: View) -> Any:
        return (row_count_of(x, len(self.support_vectors) // self.n_supports if self.n_supports else len(self.coefficients)), 1)

    def decompose(self, b: Builder, x: Value) -> Any:
        rows = as_rows(b, x)
        y = write_affine(b, self.kernels(b, rows) if self.n_supports else rows, self.coefficients, self.rho[:1], 1)
        if not self.one_class:
            return y
        return b.Where(b.Greater(y, self._constant(b, 0)), self._constant(b, 1), self._constant(b, -1))


class SVMClassifier(
    _SVMBase,
    sig="x: R -> y: T, z: f32",
    onnx="ai.onnx.ml:SVMClassifier-1(x; coefficients?, rho?, support_vectors?, vectors_per_class?, classlabels_ints?, "
    "classlabels_strings?, prob_a?, prob_b?, kernel_type~lower=LINEAR, kernel_params?, post_transform=NONE)",
):
    """SVMClassifier returns the label with the most votes among all pairs of classes, and scores in f32.

    The kernels are those of SVMRegressor. Support vectors are sorted by class, with ``vectors_per_class`` vectors per class.
    ``coefficients`` is a matrix [classes - 1, vectors]: row j holds for each vector the coefficient of the pair of its class
    and the j-th other class. The score of a pair of classes i < j sums kernel times coefficient over the vectors of both
    classes, and adds the element of ``rho`` for this pair. A score above 0 is a vote for class i, any other score a vote for
    class j.

    The pair scores are the second output. With two classes, the pair score s gives two scores: ``-s, s``, with ``LOGISTIC``
    ``logistic(-s), logistic(s)``, with any other ``post_transform`` ``1 - s, s``. With ``prob_a`` and ``prob_b``, pair scores
    become pair probabilities ``1 - sigmoid(a * s + b)``, and pairwise coupling (Wu, Lin and Weng 2004, method 2) makes class
    probabilities of these. Without support vectors the scores are ``x * C^T + rho[0]``, and the class with the greatest score
    wins.
    Source: ONNX ai.onnx.ml SVMClassifier 1; undefined cases as in onnxruntime.
    """

    vectors_per_class: tuple[int, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    prob_a: tuple[float, ...] = ()
    prob_b: tuple[float, ...] = ()

    def validate(self) -> None:
        super().validate()
        count, vectors = len(self.labels()), self.vector_count()
        if any(size < 0 for size in self.vectors_per_class):
            raise RuleError("attribute.range", f"vectors_per_class must not be negative, got {list(self.vectors_per_class)}")
        if not vectors:
            if len(self.coefficients) % count:
                raise RuleError(
                    "attribute.length",
                    f"the number of coefficients ({len(self.coefficients)}) must be a multiple of the number of classes "
                    f"({count})",
                )
            return
        if len(self.vectors_per_class) != count:
            raise RuleError(
                "attribute.length",
                f"the length of vectors_per_class ({len(self.vectors_per_class)}) must equal the number of labels ({count})",
            )
        if len(self.coefficients) != (count - 1) * vectors:
            raise RuleError(
                "attribute.length",
                f"{count} classes and {vectors} support vectors need {count - 1} * {vectors} coefficients, "
                f"got {len(self.coefficients)}",
            )
        pairs = count * (count - 1) // 2
        if len(self.rho) != pairs or len(self.prob_a) not in (0, pairs) or len(self.prob_a) != len(self.prob_b):
            sizes = f"{len(self.rho)} of rho, {len(self.prob_a)} of prob_a, {len(self.prob_b)} of prob_b"
            raise RuleError(
                "attribute.length", f"rho, prob_a and prob_b must have one element per pair of classes ({pairs}), got {sizes}"
            )
        if count == 2 and not self.prob_a and self.post_transform == "PROBIT":
            raise RuleError("attribute.conflict", "PROBIT must have a score for each class, got a single score for two classes")

    def labels(self) -> Labels:
        return check_labels("SVMClassifier", self.classlabels_ints, self.classlabels_strings)

    def vector_count(self) -> int:
        return sum(self.vectors_per_class)

    def score_count(self) -> int:
        count = len(self.labels())
        return count if self.prob_a or not self.vector_count() or count == 2 else count * (count - 1) // 2

    def types(self, x: View) -> list[Type]:
        labels = self.labels()
        vectors = self.vector_count()
        features = len(self.support_vectors) // vectors if vectors else len(self.coefficients) // len(labels)
        count = row_count_of(x, features)
        return [Tensor(labels.dtype, (count,)), Tensor(dtypes.f32, (count, self.score_count()))]

    def decompose(self, b: Builder, x: Value) -> Any:
        labels, rows = self.labels(), as_rows(b, x)
        if not self.vector_count():
            return self._write_linear(b, rows, labels)
        weights, votes = self._pair_tables(len(labels))
        scores = b.Add(
            b.MatMul(self.kernels(b, rows), b.constant(weights, dtypes.f32)), b.constant(np.array(self.rho, np.float32))
        )
        is_first = b.Cast(b.Greater(scores, self._constant(b, 0)), to=dtypes.f32)
        vote_counts = b.MatMul(
            b.Concat(is_first, b.Subtract(self._constant(b, 1), is_first), axis=1), b.constant(votes, dtypes.f32)
        )
        label = labels.gather(b, b.ArgMax(vote_counts, axis=1, keepdims=False))
        if self.prob_a:
            platt = b.constant(np.array(self.prob_a, np.float32)), b.constant(np.array(self.prob_b, np.float32))
            pairs = b.Sigmoid(b.Negative(b.Add(b.Multiply(scores, platt[0]), platt[1])))
            (scores,) = b.add(_PairwiseCoupling(len(labels)), pairs)
        elif len(labels) == 2:
            return label, b.Concat(*self._scores_of_two(b, scores), axis=1)
        return label, apply_transform(b, scores, self.post_transform)

    def _scores_of_two(self, b: Builder, score: Value) -> tuple[Any, Any]:
        """Emit the scores of both classes from ``score``, the score of the pair of classes."""
        if self.post_transform == "LOGISTIC":
            return b.Sigmoid(b.Negative(score)), b.Sigmoid(score)
        return b.Negative(score) if self.post_transform == "NONE" else b.Subtract(self._constant(b, 1), score), score

    def _pair_tables(self, count: int) -> tuple[Any, Any]:
        """Return the coefficients [vectors, pairs], and a table [2 * pairs, classes] with 1 for the class that gets a vote.

        The first half of the table's rows is for pair scores above 0, the second half for other pair scores.
        """
        starts = np.concatenate([[0], np.cumsum(self.vectors_per_class)])
        table = np.array(self.coefficients, np.float32).reshape(count - 1, -1)
        pairs = list(combinations(range(count), 2))
        weights = np.zeros((table.shape[1], len(pairs)), np.float32)
        votes = np.zeros((2 * len(pairs), count), np.float32)
        for number, (i, j) in enumerate(pairs):
            weights[starts[i] : starts[i + 1], number] = table[j - 1, starts[i] : starts[i + 1]]
            weights[starts[j] : starts[j + 1], number] = table[i, starts[j] : starts[j + 1]]
            votes[number, i] = votes[len(pairs) + number, j] = 1
        return weights, votes

    def _write_linear(self, b: Builder, rows: Value, labels: Labels) -> Any:
        count = len(labels)
        scores = write_affine(b, rows, self.coefficients, self.rho[:1] * count, count)
        index = b.ArgMax(scores, axis=1, keepdims=False)
        if count == 2 and not self.prob_a:
            is_positive = all(value >= 0 for value in self.coefficients)
            maximum = b.ReduceMax(scores, [1], keepdims=False)
            compare = b.GreaterEqual if is_positive else b.Greater
            is_second = compare(maximum, self._constant(b, 0.5 if is_positive else 0))
            index = b.Where(is_second, b.constant(1, dtypes.i64), index)
        return labels.gather(b, index), apply_transform(b, scores, self.post_transform)


class SquaredDistances(Op, sig="x: f32, v: f32 -> y: f32", is_registered=False):
    """Compute the squared distance of each row of ``x`` and each row of ``v``. Internal operator.

    The formula ``|x|^2 + |v|^2 - 2 x . v`` in f64 needs no array of all differences, and its result is exact to f32. Rows with
    infinities are computed from the differences.
    """

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        return prod(output) * (inputs[1] or (0,))[-1]

    def shape(self, x: View, v: View) -> Any:
        return (row_count_of(x, None), row_count_of(v, None))

    def evaluate(self, xp: Namespace, x: Array, v: Array) -> Any:
        rows, vectors = (arrays.to_numpy(array).astype(np.float64) for array in (x, v))
        squares = (rows**2).sum(1)[:, None] + (vectors**2).sum(1) - 2 * (rows @ vectors.T)
        is_infinite = np.isinf(rows).any(1)
        if is_infinite.any():
            squares[is_infinite] = ((rows[is_infinite][:, None] - vectors) ** 2).sum(2)
        return arrays.from_numpy(xp, np.maximum(squares, 0).astype(np.float32))

    def decompose(self, b: Builder, x: Value, v: Value) -> Any:
        return b.ReduceSumSquare(b.Subtract(b.Unsqueeze(x, [1]), v), [2], keepdims=False)


class _PairwiseCoupling(Op, sig="pairs: F -> y: F"):
    """Compute the probabilities of ``classes`` from pair probabilities [N, classes * (classes - 1) / 2]. Internal operator.

    The probabilities y minimize the sum of ``(pairs_ji * y_i - pairs_ij * y_j)^2``. The iteration starts from equal
    probabilities and ends after 100 rounds, or where the error of every equation is below 0.005 / classes. Source: Wu, Lin and
    Weng, Probability estimates for multi-class classification by pairwise coupling, 2004, method 2, as in libsvm.
    """

    classes: int

    def shape(self, pairs: View) -> Any:
        return (row_count_of(pairs, self.classes * (self.classes - 1) // 2), self.classes)

    def evaluate(self, xp: Namespace, pairs: Array) -> Any:
        rows = arrays.to_numpy(pairs)
        ratios = np.zeros((len(rows), self.classes, self.classes), rows.dtype)
        for number, (i, j) in enumerate(combinations(range(self.classes), 2)):
            ratios[:, i, j] = np.clip(rows[:, number], rows.dtype.type(_MIN_PROBABILITY), rows.dtype.type(1 - _MIN_PROBABILITY))
            ratios[:, j, i] = 1 - ratios[:, i, j]
        return arrays.from_numpy(xp, _couple(ratios))


def _couple(ratios: Array) -> Any:
    """Return the class probabilities [N, C] from ``ratios[n, i, j]``, the probabilities of class i against class j."""
    count = ratios.shape[1]
    transposed = ratios.transpose(0, 2, 1)
    matrix = -transposed * ratios
    matrix[:, np.arange(count), np.arange(count)] = (transposed * transposed).sum(2)
    y = np.full(ratios.shape[:2], 1 / count, ratios.dtype)
    is_active = np.ones(len(y), bool)
    for _ in range(_MAX_ROUNDS):
        q, p = matrix[is_active], y[is_active]
        product = (q * p[:, None, :]).sum(2)
        energy = (p * product).sum(1)
        continues = np.abs(product - energy[:, None]).max(1, initial=0) >= _TOLERANCE / count
        is_active[is_active] = continues
        if not continues.any():
            break
        q, p, product, energy = q[continues], p[continues], product[continues], energy[continues]
        for i in range(count):
            step = (energy - product[:, i]) / q[:, i, i]
            p[:, i] += step
            energy = (energy + step * (step * q[:, i, i] + 2 * product[:, i])) / (1 + step) / (1 + step)
            product = (product + step[:, None] * q[:, i]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
        y[is_active] = p
    return y
