"""The resampling kernel against the operator's own rule, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.ir.host import native_core
from dovetail.ops.nn.resize import Resize
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

RESIZED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "doubled": (
        (1, 16, 5, 7),
        (10, 14),
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "nearest to fewer": ((2, 9, 11, 13), (4, 5), {"mode": "nearest"}),
    "linear": ((1, 33, 6, 5), (12, 10), {"mode": "linear"}),
    "corners": ((2, 3, 7, 9), (15, 4), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    "cubic": ((1, 20, 8, 6), (13, 9), {"mode": "cubic"}),
    "antialias": ((1, 8, 17, 12), (5, 12), {"mode": "linear", "antialias": True}),
    "one axis": ((2, 4, 9), (21,), {"mode": "linear"}),
    "three axes": ((1, 5, 4, 5, 6), (7, 5, 3), {"mode": "linear"}),
    "one channel": ((1, 1, 6, 6), (9, 3), {"mode": "linear"}),
    "nothing": ((0, 4, 5, 5), (3, 3), {"mode": "linear"}),
}


def resized(op: Resize, x: Any, y: Any) -> str:
    attributes: dict[str, Any] = {"taps": [], "places": [], "weights": []}
    sizes = np.array(y.shape)
    rows = {row.axis: op.taps(row) for row in op._rows(x, sizes, None, None)}
    for axis in range(2, x.ndim):
        places = rows[axis].indices if axis in rows else np.arange(x.shape[axis])[:, None]
        weights = rows[axis].weights if axis in rows else np.ones((x.shape[axis], 1))
        attributes["taps"].append(places.shape[1])
        attributes["places"] += places.reshape(-1).tolist()
        attributes["weights"] += weights.reshape(-1).tolist()
    return run("resize", [x], [y], attributes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", RESIZED)
def test_results_are_those_of_the_interpreter(name: str, layout: str) -> None:
    shape, spatial, attributes = RESIZED[name]
    op, values = Resize(**attributes), random(shape)
    sizes = np.array([*shape[:2], *spatial])
    expected = op.evaluate(np, values, sizes)
    y = LAYOUTS[layout](np.zeros(expected.shape, np.float32))
    resized(op, LAYOUTS[layout](values), y)
    if op.mode == "nearest":
        np.testing.assert_array_equal(y, expected)
    else:
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_places_outside_are_refused() -> None:
    x, y = np.zeros((1, 1, 3), np.float32), np.zeros((1, 1, 1), np.float32)
    with pytest.raises(ValueError, match="an index is out of range"):
        run("resize", [x], [y], {"taps": [1], "places": [3], "weights": [1.0]})
