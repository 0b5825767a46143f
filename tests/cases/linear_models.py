"""Models of ai.onnx.ml beside trees: linear ones, support vector machines, and what makes features ready for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.strings import strings
from dovetail.ops.ml.feature_encoding import FeatureVectorizer, Imputer, Normalizer, OneHotEncoder, Scaler
from dovetail.ops.ml.linear_models import LinearClassifier, LinearRegressor
from dovetail.ops.ml.post_transform import TRANSFORMS
from dovetail.ops.ml.svm import KERNELS, SVMClassifier, SVMRegressor
from dovetail.ops.text.tokenizer import Tokenizer

RNG = np.random.default_rng(11)
X = (RNG.standard_normal((7, 4))).astype(np.float32)
WHOLE = RNG.integers(-5, 6, (5, 4))
_F64 = {"onnxruntime": "onnxruntime has no LinearRegressor of other types than f32, and onnx.reference computes in the input's"}
_NAN = {"onnx": "a NaN among attributes is equal to no other"}
_UNKNOWN = {"shape": "how many tokens there are, only the texts say"}
_CHOICE = {"second gradient": "kinks", "gradient": "kinks", "gradient in onnxruntime": "kinks"}


def numbers(*shape: int, seed: int = 0) -> tuple[float, ...]:
    """Random numbers that f32 holds."""
    found = np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)
    return tuple(found.reshape(-1).tolist())


def linear(name: str, x: Any = X, rows: int = 3, skip: Any = None, **more: Any) -> Case:
    attributes: dict[str, Any] = {"coefficients": numbers(rows, 4), "intercepts": numbers(rows, seed=1), **more}
    return Case(LinearRegressor(targets=rows, **attributes), (x,), f"LinearRegressor {name}", skip=skip or {}, tolerance=2e-6)


def positive(transform: str) -> dict[str, Any]:
    """Return weights that keep scores between 0 and 1 where probit needs that."""
    return {"coefficients": (0.0,) * 12, "intercepts": (0.25, 0.75, 0.5)} if transform == "PROBIT" else {}


LINEAR = [
    *(linear(f"with {name}", post_transform=name, **positive(name)) for name in TRANSFORMS),
    linear("of one target, probit", rows=1, coefficients=(0.0,) * 4, intercepts=(0.25,), post_transform="PROBIT"),
    linear(
        "of one target, logistic", rows=1, post_transform="LOGISTIC", skip={"onnxruntime": "onnx.reference has a transform there"}
    ),
    linear("without intercepts", intercepts=()),
    linear("of a vector", X[0]),
    linear("of no rows", X[:0]),
    linear("of f64", X.astype(np.float64), skip=_F64),
    linear("of integers", WHOLE, skip=_F64),
]


def classes(name: str, x: Any = X, rows: int = 3, labels: Any = (10, 20, 30), skip: Any = None, **more: Any) -> Case:
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints"
    attributes: dict[str, Any] = {"coefficients": numbers(rows, 4), "intercepts": numbers(rows, seed=1), kind: labels, **more}
    return Case(
        LinearClassifier(**attributes), (x,), f"LinearClassifier {name}", skip={**_CHOICE, **(skip or {})}, tolerance=2e-6
    )


LINEAR_CLASSES = [
    *(classes(f"with {name}", post_transform=name, **positive(name)) for name in TRANSFORMS),
    *(
        classes(f"of two by one score, {name}", rows=1, labels=(5, 9), post_transform=name)
        for name in TRANSFORMS
        if name != "PROBIT"
    ),
    classes("of two texts by one score", rows=1, labels=("no", "yes")),
    classes("of two", rows=2, labels=(5, 9), post_transform="SOFTMAX", multi_class=1),
    classes("of texts", labels=("a", "b", "c")),
    classes("of a vector", X[0]),
    classes("of f64", X.astype(np.float64)),
    classes("of integers", WHOLE),
    classes("of ties", np.zeros((2, 4), np.float32), intercepts=(1.0, 1.0, 0.5)),
]
_PARAMS = {"linear": (0.0, 0.0, 0.0), "poly": (0.5, 0.25, 3.0), "rbf": (0.3125, 0.0, 0.0), "sigmoid": (0.25, 0.125, 0.0)}


def machine(kind: Any, name: str, x: Any = X, skip: Any = None, tolerance: float = 1e-5, **attributes: Any) -> Case:
    return Case(kind(**attributes), (x,), f"{kind.__name__} {name}", skip={**_CHOICE, **(skip or {})}, tolerance=tolerance)


def regressor(name: str, kernel: str = "rbf", x: Any = X, **more: Any) -> Case:
    attributes: dict[str, Any] = {
        "n_supports": 5, "support_vectors": numbers(5, 4), "coefficients": numbers(5, seed=1), "rho": (0.25,),
        "kernel_type": kernel, "kernel_params": _PARAMS[kernel], **more,
    }  # fmt: skip
    return machine(SVMRegressor, name, x, **attributes)


def chooser(
    name: str, count: int, kernel: str = "rbf", x: Any = X, texts: bool = False, proba: bool = False, **more: Any
) -> Case:
    sizes = tuple(range(2, 2 + count))
    vectors, pairs = sum(sizes), count * (count - 1) // 2
    labels: dict[str, Any] = (
        {"classlabels_strings": tuple("abcdef"[:count])} if texts else {"classlabels_ints": tuple(range(5, 5 + count))}
    )
    attributes: dict[str, Any] = {
        "vectors_per_class": sizes, "support_vectors": numbers(vectors, 4), "coefficients": numbers(count - 1, vectors, seed=1),
        "rho": numbers(pairs, seed=2), "kernel_type": kernel, "kernel_params": _PARAMS[kernel], **labels, **more,
    }  # fmt: skip
    if proba:
        attributes |= {"prob_a": numbers(pairs, seed=3), "prob_b": numbers(pairs, seed=4)}
    return machine(SVMClassifier, name, x, **attributes)


_INTEGERS = {"onnxruntime": "onnxruntime has no SVMRegressor of other types than f32, and onnx.reference computes in the input's"}
MACHINES = [
    *(regressor(f"by {kernel}", kernel) for kernel in KERNELS),
    regressor("of one class", one_class=True),
    regressor("without support vectors", n_supports=0, support_vectors=(), coefficients=numbers(4, seed=1), kernel_type="linear"),
    regressor("of integers", x=WHOLE, skip=_INTEGERS),
    *(chooser(f"of {count} by {kernel}", count, kernel) for count in (2, 3) for kernel in KERNELS),
    *(
        chooser(f"of {count} with probabilities{', texts' * texts}", count, texts=texts, proba=True)
        for count in (2, 3, 4)
        for texts in (False, True)
    ),
    *(
        chooser(f"of {count}, {name}", count, post_transform=name)
        for count in (2, 3)
        for name in TRANSFORMS
        if name != "PROBIT"
    ),
    chooser("of three with probabilities, softmax", 3, proba=True, post_transform="SOFTMAX"),
    *(
        chooser(
            f"of {count} without support vectors{name}", count, "linear", vectors_per_class=(), support_vectors=(), rho=(0.25,),
            coefficients=coefficients,
        )
        for count, name, coefficients in (
            (3, "", numbers(3, 4, seed=1)),
            (2, "", numbers(2, 4, seed=1)),
            (2, ", none negative", tuple(map(abs, numbers(2, 4, seed=1)))),
        )
    ),
    chooser("of f64", 3, x=X.astype(np.float64)),
    chooser("of integers", 3, x=WHOLE),
]  # fmt: skip

_ROWS = np.float32([[1, -2, 3, 0], [0, 0, 0, 0], [-1, -2, -4, -0.5], [3, 3, 1, 2]])
_HOLES = np.float32([[1, np.nan, 3], [np.nan, 0, -0.0]])
_ABC = strings("b", "z", "a", "a", shape=(2, 2))
FEATURES = [
    Case(Scaler((0.5, -1.0, 2.0, 0.0), (2.0, 0.5, 1.0, -1.0)), (X,), "Scaler"),
    Case(Scaler((0.5,), (2.0,)), (X,), "Scaler of one number"),
    Case(Scaler((0.5,), (2.0,)), (WHOLE,), "Scaler of integers"),
    Case(Scaler((0.5,), (2.0,)), (X.astype(np.float64),), "Scaler of f64"),
    *(
        Case(Normalizer(norm), (x,), f"Normalizer {norm} of {x.dtype}{' row' * (x.ndim == 1)}", skip=_CHOICE, tolerance=2e-6)
        for norm in ("max", "l1", "l2")
        for x in (_ROWS, _ROWS[0], WHOLE)
    ),
    Case(
        Imputer(imputed_value_floats=(7.0, 8.0, 9.0), replaced_value_float=float("nan")), (_HOLES,), "Imputer of NaN", skip=_NAN
    ),
    Case(Imputer(imputed_value_floats=(7.0,), replaced_value_float=0.0), (_HOLES,), "Imputer of 0"),
    Case(Imputer(imputed_value_int64s=(7, 8, 9, 10), replaced_value_int64=3), (WHOLE,), "Imputer of integers"),
    Case(Imputer(imputed_value_floats=(7.0,), replaced_value_float=0.0), (_HOLES.astype(np.float64),), "Imputer of f64"),
    Case(Imputer(imputed_value_int64s=(7,), replaced_value_int64=3), (WHOLE.astype(np.int32),), "Imputer of i32"),
    Case(OneHotEncoder(cats_int64s=(3, -1, 0)), (WHOLE,), "OneHotEncoder"),
    Case(OneHotEncoder(cats_int64s=(3, -1, 0)), (WHOLE[0].astype(np.float32) + np.float32(0.5),), "OneHotEncoder of floats"),
    Case(OneHotEncoder(cats_strings=("a", "b")), (_ABC,), "OneHotEncoder of texts"),
    Case(OneHotEncoder(cats_int64s=tuple(range(-5, 6)), zeros=False), (WHOLE,), "OneHotEncoder of known categories"),
    Case(FeatureVectorizer((4, 2)), (X, X[:, :2]), "FeatureVectorizer"),
    Case(FeatureVectorizer((3, 5, 2)), (X[:5], X[:5], WHOLE), "FeatureVectorizer that cuts and fills"),
    Case(FeatureVectorizer((2, 3)), (X[0, :2], X[1, :3].astype(np.float64)), "FeatureVectorizer of vectors"),
    Case(FeatureVectorizer((4,)), (X.reshape(7, 2, 2),), "FeatureVectorizer of three axes"),
]
_TEXT = strings("cat run  fast", "a,b c", "", "dogs", "aab xab", "1é2", shape=(2, 3))
TOKENS = [
    Case(Tokenizer(mark, least, "#", **pattern), (_TEXT,), f"Tokenizer {pattern}, {least}{', marked' * mark}", skip=_UNKNOWN)
    for pattern in (
        {"tokenexp": "[a-zA-Z0-9_]+"}, {"tokenexp": "a|ab|aab"}, {"tokenexp": "x*"}, {"separators": (" ", ",")},
        {"separators": (",", "[a-c]+")},
    )
    for mark, least in ((False, 1), (True, 2))
] + [
    Case(Tokenizer(mark, 1, "#", ("",)), (_TEXT,), f"Tokenizer by character{', marked' * mark}", skip=_UNKNOWN)
    for mark in (False, True)
]  # fmt: skip
CASES: list[Case] = [*LINEAR, *LINEAR_CLASSES, *MACHINES, *FEATURES, *TOKENS]
