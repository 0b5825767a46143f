"""Elements read between places: inside, at the edges, and far outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import elements, i64
from cases.matmul import floats
from dovetail.ops.nn.grid_sample import AffineGrid, GridSample

_ONE = dict.fromkeys(("onnxruntime", "gradient in onnxruntime"), "onnxruntime takes two or three spatial axes")
_X = floats(2, 3, 4, 5)


def grid(*shape: int, reach: float = 1.3, kind: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng([7, *shape]).uniform(-reach, reach, shape).astype(kind)


CASES: list[Case] = [
    *(
        Case(
            GridSample(aligned, mode, padding),
            (_X, grid(2, 4, 6, 2)),
            f"GridSample {mode}, {padding}{', corners aligned' if aligned else ''}",
            tolerance=1e-5,
        )
        for mode in ("nearest", "linear", "cubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (False, True)
    ),
    *(
        Case(
            GridSample(aligned, "linear", padding),
            (_X, grid(2, 3, 3, 2, reach=5)),
            f"GridSample far outside, {padding}{', corners aligned' if aligned else ''}",
            tolerance=1e-5,
        )
        for padding in ("zeros", "border", "reflection")
        for aligned in (False, True)
    ),
    *(
        Case(
            GridSample(False, mode, padding),
            (floats(2, 3, 3, 4, 2), grid(2, 2, 3, 2, 3)),
            f"GridSample in three dimensions, {mode}, {padding}",
            tolerance=1e-5,
        )
        for mode in ("nearest", "linear")
        for padding in ("zeros", "border", "reflection")
    ),
    Case(GridSample(), (floats(1, 2, 5), grid(1, 4, 1)), "GridSample along one axis", tolerance=1e-5, skip=_ONE),
    Case(GridSample(), (_X.astype(np.float64), grid(2, 2, 2, 2, kind="float64")), "GridSample of f64", tolerance=1e-6),
    Case(GridSample(mode="nearest"), (elements("i64", (1, 1, 3, 4)), grid(1, 3, 3, 2)), "GridSample of i64"),
    *(
        Case(
            AffineGrid(aligned),
            (floats(2, axes, axes + 1), i64(2, 3, *sizes)),
            f"AffineGrid of {axes} axes{', corners aligned' if aligned else ''}",
            tolerance=1e-5,
        )
        for axes, sizes in ((2, (4, 3)), (3, (2, 3, 4)))
        for aligned in (False, True)
    ),
    Case(AffineGrid(), (floats(1, 2, 3), i64(1, 1, 1, 5)), "AffineGrid of one row", tolerance=1e-5),
    Case(AffineGrid(), (floats(2, 2, 3, name="f64"), i64(2, 1, 2, 2)), "AffineGrid of f64", tolerance=1e-6),
]
