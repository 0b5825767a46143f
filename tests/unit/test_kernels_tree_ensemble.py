"""The kernel of decision trees against the operator's own rule, and the tables that it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cases.tree_ensemble_classifier import HOLES, ROWS, forest, weights
from dovetail.ir.evaluate import apply
from dovetail.ir.host import native_core
from dovetail.ops.ml.tree_ensemble import MODES
from dovetail.ops.ml.tree_ensemble_classifier import TreeEnsembleRegressor
from kernel_runner import LAYOUTS, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

AGGREGATES = ("sum", "average", "min", "max")


def tables(columns: dict[str, Any], targets: int, aggregate: str, kind: Any, most: int = 1) -> tuple[Any, list[Any]]:
    """Random trees as a TreeEnsemble, and as the kernel's tables."""
    found = TreeEnsembleRegressor(n_targets=targets, **weights(columns, targets, 2, most=most)).trees(aggregate)
    count = len(found.nodes_featureids)
    ways = [
        np.array(goes) + count * np.array(is_leaf, int)
        for goes, is_leaf in (
            (found.nodes_truenodeids, found.nodes_trueleafs),
            (found.nodes_falsenodeids, found.nodes_falseleafs),
        )
    ]
    zeros = np.zeros(count, int)
    nodes = [found.nodes_featureids, found.nodes_modes, found.nodes_missing_value_tracks_true or zeros, *ways, zeros, zeros]
    starts = np.cumsum([0, *(found.leaf_sizes or (1,) * len(found.leaf_targetids))])
    integers = np.stack(nodes, axis=1), np.array(found.tree_roots), starts, np.array(found.leaf_targetids)
    table, roots, starts, leaf_targets = (each.astype(np.int32) for each in integers)
    numbers = np.array(found.nodes_splits, kind), np.array(found.leaf_weights, kind), np.zeros(0, kind)
    return found, [table, numbers[0], roots, starts, leaf_targets, *numbers[1:]]


def walked(x: Any, given: list[Any], y: Any, aggregate: str, threads: int = 2) -> None:
    run("tree_ensemble", [x, *given], [y], {"aggregate": AGGREGATES.index(aggregate)}, threads, constants=range(1, 8))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 15, 17, 700])
def test_results_are_those_of_the_interpreter(rows: int, kind: Any, aggregate: str, layout: str) -> None:
    x = np.resize(HOLES, (rows, HOLES.shape[1])).astype(kind)
    for number, (targets, modes) in enumerate(((1, ("BRANCH_LEQ",)), (3, ("BRANCH_LT",)), (2, MODES))):
        op, given = tables(forest(number, 20, 4, modes, missing=number != 1), targets, aggregate, kind, most=targets)
        (expected,) = apply(op, np, [x])
        y = LAYOUTS[layout](np.zeros((rows, targets), kind))
        walked(LAYOUTS[layout](x), given, y, aggregate)
        np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_the_bits_do_not_depend_on_other_rows_or_threads() -> None:
    rng = np.random.default_rng(4)
    _, given = tables(forest(3, 40, 5), 1, "sum", np.float32)
    given[5] = rng.standard_normal(given[5].shape).astype(np.float32)
    x = np.resize(ROWS, (600, ROWS.shape[1]))
    whole = np.zeros((600, 1), np.float32)
    walked(x, given, whole, "sum", threads=1)
    again = np.zeros_like(whole)
    walked(x, given, again, "sum", threads=4)
    assert whole.tobytes() == again.tobytes()
    for row in (0, 1, 299, 599):
        one = np.zeros((1, 1), np.float32)
        walked(x[row : row + 1], given, one, "sum")
        assert one.tobytes() == whole[row : row + 1].tobytes()


@pytest.mark.parametrize(
    ("table", "place", "value"),
    [
        (0, (0, 0), 99), (0, (0, 0), -1), (0, (0, 1), 7), (0, (0, 1), -1), (0, (0, 3), 10**6), (0, (0, 3), -1), (0, (0, 4), 0),
        (0, (1, 3), 0), (0, (0, 6), 1), (2, 0, 10**6), (2, 0, -1), (3, 1, -1), (3, -1, 0), (4, 0, 1), (4, 0, -1),
    ],
)  # fmt: skip
def test_tables_that_lead_out_or_round_are_refused(table: int, place: Any, value: int) -> None:
    _, given = tables(forest(3, 4, 3), 1, "sum", np.float32)
    given[table][place] = value
    with pytest.raises(ValueError, match="tree_ensemble"):
        walked(ROWS, given, np.zeros((len(ROWS), 1), np.float32), "sum")
