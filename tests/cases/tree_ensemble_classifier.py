"""Decision trees as columns of nodes: TreeEnsembleRegressor and TreeEnsembleClassifier, random ones among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ops.ml.tree_ensemble import MODES
from dovetail.ops.ml.tree_ensemble_classifier import TreeEnsembleClassifier, TreeEnsembleRegressor

STEP = {
    "gradient": "a step has no slope",
    "second gradient": "a step has no slope",
    "gradient in onnxruntime": "a step has no slope",
}
FEATURES = 5
_INTEGERS = {"onnxruntime": "onnxruntime has no TreeEnsembleRegressor of integers, and onnx.reference gives integers for it"}
_NAN = {"openvino": "in OpenVINO's CPU plugin a NaN is greater than a number"}


def forest(seed: int, trees: int, depth: int, modes: tuple[str, ...] = ("BRANCH_LEQ",), missing: bool = False) -> dict[str, Any]:
    """Random trees: the columns of their nodes, with values on a grid so that features meet them. Leaves under ``_leaves``."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "treeids",
            "nodeids",
            "featureids",
            "modes",
            "values",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
    }
    leaves = []
    for tree in range(trees):
        rows: list[list[Any]] = [[]]
        open_ = [(0, 0)]
        while open_:
            node, level = open_.pop()
            if level == depth or (level and rng.random() < 0.2):
                rows[node] = [tree, node, 0, "LEAF", 0.0, 0, 0, False]
                leaves.append((tree, node))
                continue
            first = len(rows)
            rows += [[], []]
            feature, value = int(rng.integers(FEATURES)), float(rng.integers(-4, 5)) / 4
            tracks = missing and bool(rng.random() < 0.5)
            rows[node] = [tree, node, feature, str(rng.choice(modes)), value, first, first + 1, tracks]
            open_ += [(first, level + 1), (first + 1, level + 1)]
        for name, column in zip(columns, zip(*rows, strict=True), strict=True):
            columns[name] += column
    found = {f"nodes_{name}": tuple(column) for name, column in columns.items()}
    if not missing:
        del found["nodes_missing_value_tracks_true"]
    return {**found, "_leaves": leaves}


def weights(found: dict[str, Any], targets: int, seed: int, prefix: str = "target", most: int = 1, positive: bool = False) -> Any:
    """Weights of the leaves, quarters, for up to ``most`` targets each; the columns whole."""
    rng = np.random.default_rng(seed)
    columns = dict(found)
    rows = []
    for tree, node in columns.pop("_leaves"):
        chosen = rng.permutation(targets)[: rng.integers(1, most + 1)]
        rows += [(tree, node, int(target), float(rng.integers(0 if positive else -8, 9)) / 4) for target in sorted(chosen)]
    names = ("treeids", "nodeids", "ids", "weights")
    return columns | {f"{prefix}_{name}": tuple(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


_RNG = np.random.default_rng(3)
ROWS = (_RNG.integers(-5, 6, (40, FEATURES)) / 4).astype(np.float32)
HOLES = np.where(_RNG.random(ROWS.shape) < 0.25, np.float32(np.nan), ROWS)


def regressor(
    name: str, x: Any = ROWS, targets: int = 1, most: int = 1, skip: Any = None, tolerance: Any = None, **more: Any
) -> Case:
    columns = more.pop("columns", None) or forest(1, 4, 3)
    op = TreeEnsembleRegressor(n_targets=targets, **weights(columns, targets, 2, most=most), **more)
    return Case(op, (x,), f"TreeEnsembleRegressor {name}", skip={**STEP, **(skip or {})}, tolerance=tolerance)


REGRESSORS = [
    regressor("of one target"),
    regressor("of no rows", ROWS[:0], skip={"openvino": "OpenVINO aborts where there are no rows"}),
    regressor("of integers", (4 * ROWS).astype(np.int64), skip=_INTEGERS),
    regressor("of i32", (4 * ROWS).astype(np.int32), skip=_INTEGERS),
    regressor("of f64", ROWS.astype(np.float64)),
    *(
        regressor(f"of {targets} targets, {aggregate}", targets=targets, most=targets, aggregate_function=aggregate)
        for aggregate in ("sum", "average", "min", "max")
        for targets in (1, 3)
    ),
    *(regressor(f"by {mode}", columns=forest(5, 3, 3, (mode,))) for mode in MODES),
    regressor("by all tests", columns=forest(6, 6, 4, MODES)),
    regressor("with holes", HOLES, columns=forest(7, 6, 4, MODES, missing=True), skip=_NAN),
    regressor("with holes below or equal", HOLES, columns=forest(7, 6, 4, missing=True), skip=_NAN),
    regressor("with holes below", HOLES, columns=forest(8, 6, 4, ("BRANCH_LT",), missing=True), skip=_NAN),
    regressor("with holes that nothing tracks", HOLES, columns=forest(9, 6, 4), skip=_NAN),
    regressor("with a base value", base_values=(0.5,)),
    regressor("with base values", targets=3, most=2, base_values=(0.5, -1.0, 2.0)),
    regressor("with base values, min", targets=3, most=2, base_values=(0.5, -1.0, 2.0), aggregate_function="min"),
    *(
        regressor(f"of 3 targets, {name}", targets=3, most=3, post_transform=name, tolerance=1e-6)
        for name in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    ),
    *(regressor(f"of one target, {name}", post_transform=name) for name in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")),
    Case(
        TreeEnsembleRegressor(
            nodes_treeids=(0, 0, 0), nodes_nodeids=(0, 1, 2), nodes_featureids=(0, 0, 0),
            nodes_modes=("BRANCH_LT", "LEAF", "LEAF"), nodes_values=(0.0, 0.0, 0.0),
            nodes_truenodeids=(1, 0, 0), nodes_falsenodeids=(2, 0, 0), n_targets=1,
            target_treeids=(0, 0), target_nodeids=(1, 2), target_ids=(0, 0), target_weights=(0.25, 0.875),
            post_transform="PROBIT",
        ),
        (ROWS,),
        "TreeEnsembleRegressor of one target, probit",
        skip=STEP,
        tolerance=1e-6,
    ),
    Case(
        TreeEnsembleRegressor(
            nodes_treeids=(7, 9, 9, 9), nodes_nodeids=(3, 2, 1, 3), nodes_featureids=(0, 1, 0, 0),
            nodes_modes=("LEAF", "BRANCH_GT", "LEAF", "LEAF"), nodes_values=(0.0, 0.25, 0.0, 0.0), nodes_truenodeids=(0, 3, 0, 0),
            nodes_falsenodeids=(0, 1, 0, 0), n_targets=1, target_treeids=(9, 7, 9), target_nodeids=(1, 3, 3),
            target_ids=(0, 0, 0), target_weights=(1.0, 0.5, -2.0),
        ),
        (ROWS,),
        "TreeEnsembleRegressor with a tree of one leaf, and ids of any order",
        skip=STEP,
    ),
]  # fmt: skip


def classifier(name: str, labels: Any, classes: Any = None, tolerance: Any = None, x: Any = ROWS, **more: Any) -> Case:
    """``classes``: those that the leaves have weights for, else all."""
    count = len(labels)
    most, positive, columns = more.pop("most", 1), more.pop("positive", False), more.pop("columns", None) or forest(1, 4, 3)
    found = weights(columns, len(classes or labels), 2, "class", most, positive)
    if classes is not None:
        found["class_ids"] = tuple(classes[target] for target in found["class_ids"])
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    op = TreeEnsembleClassifier(**{kind: tuple(labels)}, **found, **more)
    assert len(op.labels()) == count
    return Case(op, (x,), f"TreeEnsembleClassifier {name}", skip=STEP, tolerance=tolerance)


_THREE, _TEXTS = (10, 20, 30), ("a", "b", "c")
CLASSIFIERS = [
    classifier("of three", _THREE),
    classifier("of three texts", _TEXTS, most=3),
    classifier("of three, one of which nothing says anything", _THREE, classes=(0, 2)),
    classifier("of f64", _THREE, x=ROWS.astype(np.float64)),
    classifier("of integers", _THREE, x=(4 * ROWS).astype(np.int64)),
    classifier("with base values", _THREE, base_values=(0.5, -1.0, 0.25)),
    *(
        classifier(f"of three, {name}", _THREE, most=3, post_transform=name, tolerance=1e-6)
        for name in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    ),
    # Two classes: weights for one of them or for both, of one sign or two, none, one and two base values.
    *(
        classifier(
            f"of two, weights for {' and '.join(map(str, classes))}, {'positive' if positive else 'any'}, {name}"
            f"{', base values' * len(base)} {len(base)}",
            (5, 9), classes=classes, positive=positive, post_transform=name, base_values=base, tolerance=1e-6,
        )
        for classes in ((0,), (1,), (0, 1))
        for positive in (False, True)
        for name in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
        for base in ((), (0.25,), (0.5, 0.25))
        if not (len(base) == 1 and len(classes) == 2)
    ),
    classifier("of two texts, one in the weights", ("no", "yes"), classes=(0,), positive=True),
    classifier("of two texts, both in the weights", ("no", "yes"), most=2),
    classifier("of two, both in each leaf", (5, 9), columns=forest(2, 3, 2), most=2, base_values=(0.5, 0.25)),
]  # fmt: skip

CASES: list[Case] = [*REGRESSORS, *CLASSIFIERS]
