"""Regions to look at again: in both frameworks' ways, of one picture and two, with room to spare."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ops.detection.proposal import Proposal


def numbers(*shape: int, low: float = 0, high: float = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng([13, *shape]).uniform(low, high, shape).astype(np.float32)


def proposed(
    name: str, pictures: int = 1, whole: tuple[float, ...] = (60, 70, 1), skip: dict[str, str] | None = None, **changes: Any
) -> Case:
    plain = {
        "base_size": 16, "pre_nms_topn": 30, "post_nms_topn": 8, "nms_thresh": 0.6, "feat_stride": 16, "min_size": 6,
        "ratio": (0.5, 1.0, 2.0), "scale": (1.0, 2.0),
    }  # fmt: skip
    given = (numbers(pictures, 12, 3, 4), numbers(pictures, 24, 3, 4, low=-0.4, high=0.4), np.float32(whole))
    return Case(Proposal(**{**plain, **changes}), given, f"Proposal {name}", tolerance=1e-5, skip=skip or {})


_LEFT = {"openvino": "OpenVINO's CPU plugin leaves other scores behind the last"}
CASES: list[Case] = [
    proposed("of one picture"),
    proposed("of two pictures", 2),
    proposed("of regions alone", outputs=1),
    proposed("with room to spare", post_nms_topn=40, skip=_LEFT),
    proposed("of large boxes", min_size=20),
    proposed("of scales", whole=(60, 70, 2, 3)),
    proposed("in parts of the picture", normalize=True),
    proposed("kept in the picture after", clip_before_nms=False, clip_after_nms=True),
    proposed("of scaled moves", box_size_scale=5.0, box_coordinate_scale=10.0),
    proposed("of tensorflow", framework="tensorflow"),
    proposed("of tensorflow, of scales", whole=(60, 70, 3, 2), framework="tensorflow"),
    proposed(
        "of tensorflow, two pictures", 2, framework="tensorflow", normalize=True, clip_after_nms=True, clip_before_nms=False
    ),
]
