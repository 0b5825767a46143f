"""Regions of pictures: inside, at the edges, partly and wholly outside, of a few sizes, the wrong way round, and none at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ops.detection.roi_align import RoiAlign, RoiAlignRotated

_X = floats(2, 3, 6, 7)
_ROIS = np.float32([[0, 0, 5.1, 5.2], [1.2, 0.3, 3.1, 4.9], [-1.4, -2.3, 3.3, 3.7], [4.3, 4.1, 9.7, 9.2], [30, 30, 40, 41]])
_BACK = np.float32([[3.1, 3.2, 2.3, 2.6]])
_OF = np.array([0, 1, 1, 0, 1])
_LEFT = {"openvino": "OpenVINO divides by a count of 0"}


def aligned(op: Any, name: str, x: Any = _X, rois: Any = _ROIS, batch: Any = None, **more: Any) -> Case:
    batch = _OF[: len(rois)] if batch is None else batch
    return Case(op, (x, rois, batch), f"{type(op).__name__} {name}", **{"tolerance": 1e-5, **more})


_MODES = {"avg": "the mean", "max": "the greatest of all and 0", "max_product": "the greatest product"}
_PLACES = {"asymmetric": "corners as they are", "half_pixel_for_nn": "half an element on", "half_pixel": "from the middles"}
CASES: list[Case] = [
    *(
        aligned(
            RoiAlign(2, 3, samples, 0.75, pooling, coordinates),
            f"{words} of {samples or 'as many samples as elements'}, {places}",
        )
        for pooling, words in _MODES.items()
        for coordinates, places in _PLACES.items()
        for samples in (0, 2)
    ),
    aligned(RoiAlign(1, 1, 1), "at one place"),
    aligned(RoiAlign(3, 2, 3, 0.5), "of three samples", _X, _ROIS, _OF.astype(np.int32)),
    aligned(RoiAlign(2, 2, 2, aligned_mode="asymmetric"), "the wrong way round", rois=_BACK),
    aligned(RoiAlign(2, 2, 0), "the wrong way round, of no sample", rois=_BACK, skip=_LEFT),
    aligned(RoiAlign(2, 2, 0, mode="max_product"), "the wrong way round, no greatest part", rois=_BACK),
    aligned(RoiAlign(2, 2, 2), "of no region", rois=_ROIS[:0]),
    aligned(RoiAlign(2, 2, 2), "of f64", _X.astype(np.float64), _ROIS.astype(np.float64)),
    aligned(RoiAlign(2, 2, 2), "of f16", _X.astype(np.float16), _ROIS.astype(np.float16), tolerance=2e-3),
    *(
        aligned(
            RoiAlignRotated(2, 3, samples, 0.75, clockwise),
            f"of {samples or 'as many samples as elements'}{', clockwise' if clockwise else ''}",
            rois=np.float32([[3, 2.6, 2.3, 3.4, 0.3], [1, 5, 4.1, 2.6, -1.2], [6.1, 0.4, 3.3, 5.3, 2.5]]),
        )
        for clockwise in (False, True)
        for samples in (0, 2)
    ),
]
