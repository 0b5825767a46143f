"""Regions pooled in bins that have channels of their own: inside, over the edges, moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ops.detection.psroi_pool import DeformablePSROIPooling, PSROIPooling

_X = floats(2, 12, 6, 7)
_ROIS = np.float32([[0, 0, 0, 10, 11], [1, 2.2, 1.6, 9.1, 7.9], [1, 1, 2, 3, 3], [0, 4, 4, 17, 15]])
_PARTS = np.float32([[0, 0, 0, 0.99, 0.99], [1, 0.13, 0.21, 0.64, 0.87], [0, 0.5, 0.25, 0.55, 0.3]])


def pooled(op: Any, name: str, *inputs: Any, **more: Any) -> Case:
    return Case(op, inputs, f"{type(op).__name__} {name}", **{"tolerance": 1e-5, **more})


def moves(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([9, *shape]).uniform(-0.4, 0.4, shape).astype(np.float32)


CASES: list[Case] = [
    pooled(PSROIPooling(3, 2, 0.5), "of means", _X, _ROIS),
    pooled(PSROIPooling(12, 1, 0.25), "of one bin", _X, _ROIS),
    pooled(PSROIPooling(2, 3, 1.0, "bilinear", 3, 2), "between elements", _X, _PARTS),
    pooled(PSROIPooling(3, 1, 1.0, "bilinear", 2, 2), "of one bin between elements", _X, _PARTS),
    pooled(PSROIPooling(3, 2, 0.5), "of no region", _X, _ROIS[:0]),
    pooled(DeformablePSROIPooling(3, 2, 0.5), "that stays", _X, _ROIS),
    pooled(DeformablePSROIPooling(3, 2, 0.5, spatial_bins_x=2, spatial_bins_y=3), "that stays, of more places", _X, _ROIS),
    pooled(
        DeformablePSROIPooling(3, 2, 0.5, spatial_bins_x=2, spatial_bins_y=2, trans_std=0.5, part_size=2),
        "moved", _X, _ROIS, moves(4, 2, 2, 2)
    ),
    pooled(
        DeformablePSROIPooling(3, 2, 0.5, spatial_bins_x=2, spatial_bins_y=2, trans_std=0.25, part_size=3),
        "moved, in classes", _X, _ROIS, moves(4, 6, 3, 3),
    ),
]  # fmt: skip
