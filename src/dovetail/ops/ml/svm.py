"""Support vector machines: SVMRegressor and SVMClassifier."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from dovetail import arrays, dtypes
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type
from dovetail.ops.ml.class_labels import Labels, check_labels
from dovetail.ops.ml.linear_models import affine, row_count, rows_of
from dovetail.ops.ml.post_transform import check_transform, transform

KERNELS = ("linear", "poly", "rbf", "sigmoid")
_ROUNDS = 100
_ERROR = 0.005
_LEAST = 1e-7


class _Machine(Op):
    """What both share: kernels of a row and the support vectors, or a linear form where there are no support vectors."""

    coefficients: tuple[float, ...] = ()
    rho: tuple[float, ...] = ()
    support_vectors: tuple[float, ...] = ()
    kernel_type: str = "linear"
    kernel_params: tuple[float, ...] = ()
    post_transform: str = "NONE"

    def validate(self) -> None:
        check_transform(self.post_transform)
        if self.kernel_type not in KERNELS:
            raise RuleError("svm.kernel", f"kernel_type {self.kernel_type!r} is none of {', '.join(KERNELS)}")
        if len(self.kernel_params) not in (0, 3):
            raise RuleError(
                "svm.kernel", f"kernel_params has {len(self.kernel_params)} numbers, and should have gamma, coef0, degree"
            )
        if not self.coefficients or not self.rho:
            raise RuleError("svm.coefficients", f"{len(self.coefficients)} coefficients, {len(self.rho)} of rho")
        count = self.vector_count()
        if count < 0 or (count and (not self.support_vectors or len(self.support_vectors) % count)):
            raise RuleError("svm.vectors", f"support_vectors has {len(self.support_vectors)} numbers for {count} vectors")

    def vector_count(self) -> int:
        raise NotImplementedError

    def kernels(self, b: Any, x: Any) -> Any:
        """The kernel of each row of ``x`` and each support vector."""
        vectors = np.array(self.support_vectors, np.float32).reshape(self.vector_count(), -1)
        gamma, offset, degree = (self._number(b, value) for value in self.kernel_params or (0.0, 0.0, 0.0))
        if self.kernel_type == "rbf":
            (distances,) = b.add(_SquaredDistances(), x, b.constant(vectors, dtypes.f32))
            return b.Exp(b.Negative(b.Multiply(gamma, distances)))
        products = b.MatMul(x, b.constant(np.ascontiguousarray(vectors.T), dtypes.f32))
        if self.kernel_type == "linear":
            return products
        products = b.Add(b.Multiply(products, gamma), offset)
        return b.Tanh(products) if self.kernel_type == "sigmoid" else b.Power(products, degree)

    def _number(self, b: Any, value: float) -> Any:
        return b.constant(np.array(value, np.float32), dtypes.f32)


class SVMRegressor(
    _Machine,
    sig="x: R -> y: f32",
    onnx="ai.onnx.ml:SVMRegressor-1(x; coefficients?, rho?, support_vectors?, n_supports=0, kernel_type~lower=LINEAR, "
    "kernel_params?, one_class=0, post_transform=NONE)",
):
    """``sum_i coefficients[i] * K(x, v_i) + rho[0]`` in f32 for each row of ``x``, over ``n_supports`` support vectors ``v_i``.

    With ``kernel_params`` gamma, coef0 and degree, ``K(x, v)`` is: ``linear``: ``x . v``; ``poly``: ``(gamma * x . v + coef0) ^
    degree``; ``rbf``: ``exp(-gamma * |x - v|^2)``; ``sigmoid``: ``tanh(gamma * x . v + coef0)``. Without support vectors the
    result is ``x . coefficients + rho[0]``. ``one_class`` makes 1 of what is above 0, and -1 of the rest. No ``post_transform``
    but ``PROBIT`` has a meaning for a lone score, and that is refused. Source: ONNX ai.onnx.ml SVMRegressor 1.
    """

    n_supports: int = 0
    one_class: bool = False

    def validate(self) -> None:
        super().validate()
        if self.n_supports and len(self.coefficients) != self.n_supports:
            raise RuleError("svm.coefficients", f"{len(self.coefficients)} coefficients for {self.n_supports} support vectors")
        if self.post_transform == "PROBIT":
            raise UnsupportedError(
                "score.transform", "onnxruntime's SVMRegressor leaves out probit, and no other says what it is"
            )

    def vector_count(self) -> int:
        return self.n_supports

    def shape(self, x: Any) -> Any:
        return (row_count(x, len(self.support_vectors) // self.n_supports if self.n_supports else len(self.coefficients)), 1)

    def decompose(self, b: Any, x: Any) -> Any:
        rows = rows_of(b, x)
        y = affine(b, self.kernels(b, rows) if self.n_supports else rows, self.coefficients, self.rho[:1], 1)
        if not self.one_class:
            return y
        return b.Where(b.Greater(y, self._number(b, 0)), self._number(b, 1), self._number(b, -1))


class SVMClassifier(
    _Machine,
    sig="x: R -> label: T, scores: f32",
    onnx="ai.onnx.ml:SVMClassifier-1(x; coefficients?, rho?, support_vectors?, vectors_per_class?, classlabels_ints?, "
    "classlabels_strings?, prob_a?, prob_b?, kernel_type~lower=LINEAR, kernel_params?, post_transform=NONE)",
):
    """The label that wins most of the votes between each two classes, and scores in f32; kernels are those of SVMRegressor.

    The support vectors stand by class, ``vectors_per_class`` of each; row ``j`` of ``coefficients`` has those of a vector towards
    the ``j``-th other class. Classes i < j are separated by the sum of their vectors' kernels times coefficients, plus the next
    of ``rho``: i has the vote where it is above 0. The scores are these sums. Of two classes they are ``-s, s``; there
    ``LOGISTIC`` makes ``logistic(-s), logistic(s)``, and any other ``post_transform`` ``1 - s, s``. With ``prob_a`` and
    ``prob_b`` the sums become probabilities of pairs, ``1 - sigmoid(a * s + b)``, and these the probabilities of classes by
    pairwise coupling (Wu, Lin and Weng 2004, method 2). Without support vectors the scores are ``x * C^T + rho[0]``, and the
    greatest wins. Source: ONNX ai.onnx.ml SVMClassifier 1; what it leaves open as in onnxruntime.
    """

    vectors_per_class: tuple[int, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    prob_a: tuple[float, ...] = ()
    prob_b: tuple[float, ...] = ()

    def validate(self) -> None:
        super().validate()
        count, vectors = len(self.labels()), self.vector_count()
        if any(each < 0 for each in self.vectors_per_class):
            raise RuleError("svm.vectors", f"vectors_per_class is {list(self.vectors_per_class)}")
        if not vectors:
            if len(self.coefficients) % count:
                raise RuleError("svm.coefficients", f"{len(self.coefficients)} coefficients for {count} classes")
            return
        if len(self.vectors_per_class) != count:
            raise RuleError("svm.vectors", f"vectors_per_class of {len(self.vectors_per_class)} classes, and {count} labels")
        if len(self.coefficients) != (count - 1) * vectors:
            raise RuleError(
                "svm.coefficients", f"{len(self.coefficients)} coefficients, where {count - 1} * {vectors} are needed"
            )
        pairs = count * (count - 1) // 2
        if len(self.rho) != pairs or len(self.prob_a) not in (0, pairs) or len(self.prob_a) != len(self.prob_b):
            sizes = f"{len(self.rho)} of rho, {len(self.prob_a)} of prob_a, {len(self.prob_b)} of prob_b"
            raise RuleError("svm.coefficients", f"{sizes} for {pairs} pairs of classes")
        if count == 2 and not self.prob_a and self.post_transform == "PROBIT":
            raise RuleError("score.transform", "probit of a lone score leaves the other class without one")

    def labels(self) -> Labels:
        return check_labels("SVMClassifier", self.classlabels_ints, self.classlabels_strings)

    def vector_count(self) -> int:
        return sum(self.vectors_per_class)

    def score_count(self) -> int:
        count = len(self.labels())
        return count if self.prob_a or not self.vector_count() or count == 2 else count * (count - 1) // 2

    def types(self, x: Any) -> list[Type]:
        labels = self.labels()
        vectors = self.vector_count()
        features = len(self.support_vectors) // vectors if vectors else len(self.coefficients) // len(labels)
        count = row_count(x, features)
        return [Tensor(labels.dtype, (count,)), Tensor(dtypes.f32, (count, self.score_count()))]

    def decompose(self, b: Any, x: Any) -> Any:
        labels, rows = self.labels(), rows_of(b, x)
        if not self.vector_count():
            return self._linear(b, rows, labels)
        weights, votes = self._pairs(len(labels))
        scores = b.Add(
            b.MatMul(self.kernels(b, rows), b.constant(weights, dtypes.f32)), b.constant(np.array(self.rho, np.float32))
        )
        is_first = b.Cast(b.Greater(scores, self._number(b, 0)), to=dtypes.f32)
        tally = b.MatMul(b.Concat(is_first, b.Subtract(self._number(b, 1), is_first), axis=1), b.constant(votes, dtypes.f32))
        label = labels.gather(b, b.ArgMax(tally, axis=1, keepdims=False))
        if self.prob_a:
            places = b.constant(np.array(self.prob_a, np.float32)), b.constant(np.array(self.prob_b, np.float32))
            pairs = b.Sigmoid(b.Negative(b.Add(b.Multiply(scores, places[0]), places[1])))
            (scores,) = b.add(_PairwiseCoupling(len(labels)), pairs)
        elif len(labels) == 2:
            return label, b.Concat(*self._both(b, scores), axis=1)
        return label, transform(b, scores, self.post_transform)

    def _both(self, b: Any, score: Any) -> tuple[Any, Any]:
        """The scores of two classes from the sum that tells them apart."""
        if self.post_transform == "LOGISTIC":
            return b.Sigmoid(b.Negative(score)), b.Sigmoid(score)
        return b.Negative(score) if self.post_transform == "NONE" else b.Subtract(self._number(b, 1), score), score

    def _pairs(self, count: int) -> tuple[Any, Any]:
        """The coefficients of each vector in each pair's sum, [vectors, pairs]; the class that a pair's vote goes to, first where
        its sum is above 0 and then where it is not, [2 * pairs, classes]."""
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

    def _linear(self, b: Any, rows: Any, labels: Labels) -> Any:
        count = len(labels)
        scores = affine(b, rows, self.coefficients, self.rho[:1] * count, count)
        place = b.ArgMax(scores, axis=1, keepdims=False)
        if count == 2 and not self.prob_a:
            is_positive = all(value >= 0 for value in self.coefficients)
            most = b.ReduceMax(scores, [1], keepdims=False)
            above = b.GreaterEqual if is_positive else b.Greater
            is_second = above(most, self._number(b, 0.5 if is_positive else 0))
            place = b.Where(is_second, b.constant(1, dtypes.i64), place)
        return labels.gather(b, place), transform(b, scores, self.post_transform)


class _SquaredDistances(Op, sig="x: f32, v: f32 -> y: f32"):
    """The squared distance of each row of ``x`` and each row of ``v``. Not one of a model's operators.

    From ``|x|^2 + |v|^2 - 2 x . v`` in f64, which takes no array of all differences and loses nothing that f32 would keep.
    """

    def shape(self, x: Any, v: Any) -> Any:
        return (row_count(x, None), row_count(v, None))

    def evaluate(self, xp: Any, x: Any, v: Any) -> Any:
        rows, vectors = (arrays.to_numpy(each).astype(np.float64) for each in (x, v))
        squares = (rows**2).sum(1)[:, None] + (vectors**2).sum(1) - 2 * (rows @ vectors.T)
        return arrays.from_numpy(xp, np.maximum(squares, 0).astype(np.float32))

    def decompose(self, b: Any, x: Any, v: Any) -> Any:
        return b.ReduceSumSquare(b.Subtract(b.Unsqueeze(x, [1]), v), [2], keepdims=False)


class _PairwiseCoupling(Op, sig="pairs: F -> y: F"):
    """The probabilities of ``classes`` from those of the first of each two of them, [N, classes * (classes - 1) / 2].

    Not one of a model's operators. The sum of ``(pairs_ji * y_i - pairs_ij * y_j)^2`` is made least, by at most 100 rounds from
    equal probabilities on, which end where no equation is off by more than 0.005 / classes. Source: Wu, Lin and Weng,
    Probability estimates for multi-class classification by pairwise coupling, 2004, method 2, as in libsvm.
    """

    classes: int

    def shape(self, pairs: Any) -> Any:
        return (row_count(pairs, self.classes * (self.classes - 1) // 2), self.classes)

    def evaluate(self, xp: Any, pairs: Any) -> Any:
        rows = arrays.to_numpy(pairs)
        ratios = np.zeros((len(rows), self.classes, self.classes), rows.dtype)
        for number, (i, j) in enumerate(combinations(range(self.classes), 2)):
            ratios[:, i, j] = np.clip(rows[:, number], rows.dtype.type(_LEAST), rows.dtype.type(1 - _LEAST))
            ratios[:, j, i] = 1 - ratios[:, i, j]
        return arrays.from_numpy(xp, _coupled(ratios))


def _coupled(ratios: Any) -> Any:
    """The probabilities of classes, [N, C], from ``ratios[n, i, j]``, those of class i against class j."""
    count = ratios.shape[1]
    turned = ratios.transpose(0, 2, 1)
    matrix = -turned * ratios
    matrix[:, np.arange(count), np.arange(count)] = (turned * turned).sum(2)
    y = np.full(ratios.shape[:2], 1 / count, ratios.dtype)
    is_open = np.ones(len(y), bool)
    for _ in range(_ROUNDS):
        q, p = matrix[is_open], y[is_open]
        product = (q * p[:, None, :]).sum(2)
        energy = (p * product).sum(1)
        goes_on = np.abs(product - energy[:, None]).max(1, initial=0) >= _ERROR / count
        is_open[is_open] = goes_on
        if not goes_on.any():
            break
        q, p, product, energy = q[goes_on], p[goes_on], product[goes_on], energy[goes_on]
        for i in range(count):
            step = (energy - product[:, i]) / q[:, i, i]
            p[:, i] += step
            energy = (energy + step * (step * q[:, i, i] + 2 * product[:, i])) / (1 + step) / (1 + step)
            product = (product + step[:, None] * q[:, i]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
        y[is_open] = p
    return y


__all__ = ["KERNELS", "SVMClassifier", "SVMRegressor"]
