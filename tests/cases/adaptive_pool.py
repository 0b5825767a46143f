"""Pooling to a size: windows that are even and not, that overlap, of one axis to three, of equal elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.concat_split import i64
from cases.matmul import floats
from dovetail.ir import dtypes
from dovetail.ops.nn.adaptive_pool import AdaptiveAveragePool, AdaptiveMaxPool


def pooled(op: Any, name: str, x: Any, *size: int, **more: Any) -> Case:
    return Case(op, (x, i64(*size)), f"{type(op).__name__} {name}", **{"tolerance": 1e-6, **more})


_WAYS = (AdaptiveAveragePool(), AdaptiveMaxPool())
CASES: list[Case] = [
    *(pooled(op, "of two axes", floats(2, 3, 7, 5), 3, 2) for op in _WAYS),
    *(pooled(op, "evenly", floats(2, 3, 6, 4), 3, 2) for op in _WAYS),
    *(pooled(op, "to one element", floats(2, 3, 5, 4), 1, 1) for op in _WAYS),
    *(pooled(op, "to more than there are", floats(1, 2, 3, 2), 5, 3) for op in _WAYS),
    *(pooled(op, "of one axis", floats(2, 3, 7), 4) for op in _WAYS),
    *(pooled(op, "of three axes", floats(1, 2, 5, 3, 4), 2, 3, 3) for op in _WAYS),
    pooled(AdaptiveMaxPool(dtypes.i32), "with indices of i32", floats(2, 3, 7, 5), 3, 2),
    pooled(
        AdaptiveMaxPool(), "of equal elements", np.zeros((1, 2, 5, 4), np.float32), 2, 3,
        skip={"gradient": "where all are equal there is no slope", "gradient in onnxruntime": "the same"},
    ),
    pooled(AdaptiveAveragePool(), "of f16", floats(1, 2, 5, 4, name="f16"), 2, 3, tolerance=2e-3),
]  # fmt: skip
