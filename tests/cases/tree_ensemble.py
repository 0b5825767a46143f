"""Operators of machine learning: tables of labels, and trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.strings import strings
from dovetail.ops.ml.label_encoder import LabelEncoder
from dovetail.ops.ml.tree_ensemble import TreeEnsemble

RNG = np.random.default_rng(5)


def table(keys: Any, values: Any, other: Any, x: Any, name: str, **more: Any) -> Case:
    return Case(LabelEncoder(), (x, keys, values, other), f"LabelEncoder from {name}", constants=(1, 2, 3), **more)


def scalar(value: Any, kind: str) -> np.ndarray[Any, Any]:
    return np.full((), value, dtype=kind)


_ABC = strings("a", "b", "c")
_TEXTS = strings("b", "z", "a", "a", "", "c", shape=(2, 3))
_NUMBERS = np.array([[3, 1], [7, 2]])
LABELS = [
    table(_ABC, np.arange(3), scalar(42, "int64"), _TEXTS, "texts to numbers"),
    table(np.arange(3), _ABC, np.array("none", object), _NUMBERS, "numbers to texts"),
    table(_ABC, np.float32([1, 2, -0.5]), scalar(-0.0, "float32"), _TEXTS, "texts to floats"),
    table(np.int64([7, 1]), np.float32([0.5, 2]), scalar(9, "float32"), _NUMBERS, "numbers to floats"),
    table(np.float32([7, 1]), np.int64([5, 2]), scalar(9, "int64"), _NUMBERS.astype(np.float32), "floats to numbers"),
    table(
        np.float32([np.nan, 1, -0.0]),
        np.int64([5, 2, 3]),
        scalar(9, "int64"),
        np.float32([np.nan, 0, 2, 1]),
        "floats with NaN to numbers",
    ),
    table(np.float64([7, 0.1]), np.float64([5, 2]), scalar(0, "float64"), np.float64([7, 0.1, 2]), "f64 to f64"),
    table(_ABC, np.int16([1, 2, 3]), scalar(-1, "int16"), _TEXTS, "texts to i16"),
    table(np.int32([7, 1]), np.int32([5, 2]), scalar(9, "int32"), _NUMBERS.astype(np.int32), "i32 to i32"),
    table(
        np.int64([7, 1, 7]),
        np.int64([5, 2, 6]),
        scalar(9, "int64"),
        _NUMBERS,
        "a key that stands there twice",
        skip={"onnxruntime": "onnxruntime takes the first, and the specification the last"},
    ),
]

_ONE: dict[str, Any] = {
    "tree_roots": (0,),
    "nodes_featureids": (0, 1, 2),
    "nodes_splits": (0.5, -0.25, 1.0),
    "nodes_truenodeids": (1, 0, 1),
    "nodes_trueleafs": (False, True, True),
    "nodes_falsenodeids": (2, 2, 3),
    "nodes_falseleafs": (False, True, True),
    "leaf_targetids": (0, 1, 0, 1),
    "leaf_weights": (5.25, 12.125, -12.5, 7.0),
}
_TWO: dict[str, Any] = {
    **_ONE,
    "tree_roots": (0, 3),
    "nodes_featureids": (0, 1, 2, 1, 0),
    "nodes_splits": (0.5, -0.25, 1.0, 0.0, 0.25),
    "nodes_truenodeids": (1, 0, 1, 4, 4),
    "nodes_trueleafs": (False, True, True, False, True),
    "nodes_falsenodeids": (2, 2, 3, 5, 5),
    "nodes_falseleafs": (False, True, True, True, True),
    "leaf_targetids": (0, 1, 0, 1, 2, 0),
    "leaf_weights": (5.25, 12.125, -12.5, 7.0, 0.5, 1.5),
}
_ROWS = np.concatenate(
    [RNG.standard_normal((8, 3)), [[0.5, -0.25, 1.0], [0.5, 0.0, 0.25], [0.75, -1, 1], [0, -2, 7], [1, 0, 1]]]
).astype(np.float32)
_WHOLE = RNG.integers(1, 9, (12, 3)).astype(np.float32)
_HOLES = np.where(RNG.random(_ROWS.shape) < 0.3, np.float32(np.nan), _ROWS)
_STEP = {
    "gradient": "a step has no slope",
    "second gradient": "a step has no slope",
    "gradient in onnxruntime": "a step has no slope",
}
_SWAPPED = {"onnxruntime": "onnxruntime takes 1 for LOGISTIC and 2 for SOFTMAX, the schema says it the other way round"}
TREES = [
    *(
        Case(TreeEnsemble(n_targets=2, nodes_modes=(mode,) * 3, **_ONE), (_ROWS,), f"TreeEnsemble by mode {mode}", skip=_STEP)
        for mode in range(6)
    ),
    *(
        Case(
            TreeEnsemble(
                n_targets=3, nodes_modes=(0, 0, 2, 1, 3), aggregate_function=aggregate, post_transform=transform, **_TWO
            ),
            (_ROWS,),
            f"TreeEnsemble, {aggregate}, {transform}",
            tolerance=None if transform == "none" else 1e-6,
            skip={**_STEP, **({} if transform == "none" else _SWAPPED)},
        )
        for aggregate in ("sum", "average", "min", "max")
        for transform in ("none", "softmax", "logistic")
    ),
    Case(
        TreeEnsemble(n_targets=2, nodes_modes=(0, 3, 1), nodes_missing_value_tracks_true=(True, False, True), **_ONE),
        (_HOLES,),
        "TreeEnsemble with holes",
        skip={**_STEP, "openvino": "in OpenVINO's CPU plugin a NaN is greater than a number"},
    ),
    Case(
        TreeEnsemble(n_targets=2, nodes_modes=(0, 0, 0), **_ONE), (_ROWS.astype(np.float64),), "TreeEnsemble of f64", skip=_STEP
    ),
    Case(
        TreeEnsemble(
            n_targets=2,
            nodes_modes=(0, 6, 6),
            membership_values=((2.0, 3.0, 5.0), (1.0, 7.0)),
            **{**_ONE, "nodes_splits": (4.0, 0.0, 0.0)},
        ),
        (_WHOLE,),
        "TreeEnsemble with sets",
        skip=_STEP,
    ),
    Case(
        TreeEnsemble(
            n_targets=1, tree_roots=(0,), nodes_featureids=(0,), nodes_modes=(0,), nodes_splits=(0.0,), nodes_truenodeids=(0,),
            nodes_trueleafs=(True,), nodes_falsenodeids=(0,), nodes_falseleafs=(True,), leaf_targetids=(0,), leaf_weights=(2.5,),
        ),
        (_ROWS,),
        "TreeEnsemble of one leaf",
        skip=_STEP,
    ),
]  # fmt: skip

CASES: list[Case] = [*LABELS, *TREES]
