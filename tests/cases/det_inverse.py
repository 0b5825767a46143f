"""Square matrices of each size, many at once, and none."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ops.linalg.det_inverse import Det, Inverse


def matrices(*shape: int, kind: Any = np.float32) -> np.ndarray[Any, Any]:
    """With an inverse."""
    found = np.random.default_rng([5, *shape]).uniform(-1, 1, shape)
    return (found + 2 * np.eye(shape[-1])).astype(kind)


_NARROW = {"openvino": "OpenVINO's CPU plugin computes in f32"}
CASES: list[Case] = [
    *(Case(Det(), (matrices(size, size),), f"Det of {size} by {size}", tolerance=1e-5) for size in (1, 2, 3, 5)),
    Case(Det(), (matrices(2, 3, 3, 3),), "Det of several", tolerance=1e-5),
    Case(Det(), (matrices(0, 2, 2),), "Det of none", skip={"openvino": "OpenVINO aborts over nothing"}),
    Case(Det(), (np.float32([[1, 2], [2, 4]]),), "Det of dependent rows", tolerance=1e-6),
    Case(Det(), (matrices(3, 3, kind=np.float64),), "Det of f64", tolerance=1e-12, skip=_NARROW),
    Case(Det(), (matrices(3, 3, kind=np.float16),), "Det of f16", tolerance=2e-3),
    *(Case(Inverse(), (matrices(size, size),), f"Inverse of {size} by {size}", tolerance=1e-5) for size in (1, 2, 4)),
    Case(Inverse(), (matrices(2, 3, 3, 3),), "Inverse of several", tolerance=1e-5),
    Case(Inverse(True), (matrices(2, 3, 3),), "Inverse, transposed", tolerance=1e-5),
    Case(Inverse(), (matrices(3, 3, kind=np.float64),), "Inverse of f64", tolerance=1e-12, skip=_NARROW),
]
