"""Regions pooled in bins: inside, over the edges, outside, smaller than a bin, the wrong way round."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ops.detection.roi_pool import RoiPool

_X = floats(2, 3, 6, 7)
_ROIS = np.float32([
    [0, 0, 0, 5, 5], [1, 1.2, 0.6, 3.1, 4.9], [1, -1, -2, 3, 3], [0, 4, 4, 9, 9], [1, 3, 3, 2, 2], [0, 0.5, 1.5, 2.5, 3.5],
    [0, 20, 20, 30, 30],
])  # fmt: skip
_PARTS = np.float32([[0, 0, 0, 1, 1], [1, 0.13, 0.21, 0.64, 0.87], [0, 0.5, 0.25, 0.55, 0.3], [1, 0.3, 0.4, 0.3, 0.4]])


def pooled(op: Any, name: str, x: Any = _X, rois: Any = _ROIS, **more: Any) -> Case:
    return Case(op, (x, rois), f"{type(op).__name__} {name}", **more)


CASES: list[Case] = [
    *(pooled(RoiPool((2, 3), spatial_scale=scale), f"of the greatest, by {scale}") for scale in (1.0, 0.5, 0.75)),
    pooled(RoiPool((1, 1)), "to one number"),
    pooled(RoiPool((2, 2)), "of no region", rois=_ROIS[:0]),
    pooled(RoiPool((2, 2)), "of f64", _X.astype(np.float64), _ROIS.astype(np.float64)),
    *(
        pooled(RoiPool(size, "bilinear"), f"between elements, to {size[0]} by {size[1]}", rois=_PARTS, tolerance=1e-5)
        for size in ((2, 3), (1, 1), (3, 1))
    ),
]
