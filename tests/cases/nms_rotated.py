"""Rotated boxes: apart, in one another, side by side, twins, without area."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ir import dtypes
from dovetail.ops.detection.nms_rotated import NMSRotated

_COUNT = {"shape": "how many are kept depends on the elements"}
# A square, its twin, one inside it, one beside it, it rotated by an eighth and by a quarter, one of no area, one far away.
_SQUARE = (0, 0, 2, 2)
_BOXES = np.array(
    [[
        (*_SQUARE, 0), (*_SQUARE, 0), (0.25, 0.25, 1, 1, 0.5), (2, 0, 2, 2, 0), (*_SQUARE, np.pi / 4), (*_SQUARE, np.pi / 2),
        (0, 0, 0, 2, 1), (9, 9, 4, 1, -2),
    ]],
    np.float32,
)  # fmt: skip
_SCORES = np.float32([[[0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.3], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]]])


def several(seed: int = 0) -> tuple[Any, Any]:
    """Two batches of three classes of nine boxes."""
    chance = np.random.default_rng(seed)
    boxes = chance.uniform([0, 0, 0.5, 0.5, -7], [3, 3, 3, 2, 7], (2, 9, 5))
    return boxes.astype(np.float32), chance.uniform(0, 1, (2, 3, 9)).astype(np.float32)


def nms_case(op: NMSRotated, name: str, boxes: tuple[Any, Any], most: int, overlap: float, least: float, **skip: str) -> Case:
    limits = (np.int64([most]), np.float32([overlap]), np.float32([least]))
    return Case(op, (*boxes, *limits), f"NMSRotated {name}", (2, 3, 4), _COUNT | skip, 1e-6)


CASES: list[Case] = [
    *(
        nms_case(NMSRotated(descending, clockwise=way), f"{way} {descending} by {overlap}", several(), 9, overlap, 0.1)
        for way in (True, False)
        for descending in (True, False)
        for overlap in (0.3, 0.05)
    ),
    *(
        nms_case(NMSRotated(), f"of several kinds by {overlap}", (_BOXES, _SCORES), 9, overlap, 0.1)
        for overlap in (0.2, 0.6, 0.99)
    ),
    nms_case(NMSRotated(), "of what does not touch", (_BOXES[:, [0, 3, 7]], _SCORES[..., [0, 3, 7]]), 9, 0.0, 0.1),
    nms_case(NMSRotated(output_type=dtypes.i32), "of two at most, of 32 bits", several(1), 2, 0.3, 0.1),
    nms_case(NMSRotated(), "of nothing", several(1), 2, 0.3, 2.0),
    nms_case(NMSRotated(), "of one", (_BOXES[:, :1], _SCORES[..., :1]), 2, 0.3, 0.0),
]
