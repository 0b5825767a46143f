"""Operators of Detectron's detectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases_openvino import Row, numbers

_GRID = {"flatten": True, "h": 0, "w": 0, "stride_x": 0.0, "stride_y": 0.0}
_MAPS = [numbers(1, 3, size, size + 2, seed=size) for size in (16, 8, 4)]
# Of every level of the pyramid, at the edge between two of them, beyond the picture, without an area.
_REGIONS = np.float32(
    [
        [2, 3, 50, 40],
        [0, 0, 111, 112],
        [0, 0, 112, 112],
        [-20, -30, 300, 280],
        [10, 10, 400, 500],
        [100, 90, 800, 700],
        [5, 5, 5, 30],
        [30, 30, 20, 90],
        [3, 3, 4, 4],
    ]
)


def _read(maps: list[Any], scales: list[int], samples: int, is_aligned: bool) -> Row:
    attributes = {"output_size": 3, "sampling_ratio": samples, "pyramid_scales": scales, "aligned": is_aligned}
    return Row("ExperimentalDetectronROIFeatureExtractor-6", (_REGIONS, *maps), attributes)


_FIRST = numbers(4, 5, 3, 2, low=-5, high=60)
_ANCHORS = np.concatenate([_FIRST, _FIRST + numbers(4, 5, 3, 2, seed=1, low=3, high=40)], -1)
_CHANGES = numbers(2, 12, 4, 5, low=-0.4, high=0.6), numbers(2, 3, 4, 5, low=0, high=1)


def _proposed(picture: Any, is_normalized: bool, before: int, after: int, overlap: float, kind: str) -> Row:
    attributes = {
        "min_size": 6.0,
        "nms_threshold": overlap,
        "pre_nms_count": before,
        "post_nms_count": after,
        "normalized": is_normalized,
        "nms_eta": 1.0,
        "roi_num_type": kind,
    }
    return Row("GenerateProposals-9", (picture, _ANCHORS, *_CHANGES), attributes, tolerance=1e-5)


ROWS: list[Row] = [
    *(
        Row(
            "ExperimentalDetectronPriorGridGenerator-6",
            (numbers(3, 4, low=-9, high=9), numbers(1, 2, 4, 5), numbers(1, 2, 60, 70)),
            {**_GRID, **more},
        )
        for more in (
            {},
            {"stride_x": 16.0, "stride_y": 8.0},
            {"flatten": False},
            {"h": 4, "w": 5, "stride_x": 3.0},
        )
    ),
    *(Row("ExperimentalDetectronTopKROIs-6", (numbers(9, 4), numbers(9, seed=1)), {"max_rois": count}) for count in (1, 4, 9)),
    *(_read(_MAPS, [4, 8, 16], samples, is_aligned) for samples in (2, 0) for is_aligned in (False, True)),
    _read(_MAPS[:1], [4], 2, False),
    Row(
        "ExperimentalDetectronPriorGridGenerator-6",
        (numbers(3, 4), numbers(1, 2, 4, 5), numbers(1, 2, 60, 70)),
        {**_GRID, "h": 3},
        refused="op.unsupported: what lies behind a part of the grid is left open",
    ),
    Row(
        "ExperimentalDetectronTopKROIs-6",
        (numbers(4, 4), numbers(4, seed=1)),
        {"max_rois": 6},
        answers=lambda x, y: np.concatenate([x[np.argsort(-y)], np.zeros((2, 4), np.float32)]),
        why="OpenVINO leaves rows open that no region is left for",
    ),
    *(
        _proposed(np.float32([[60, 70, *scale], [50, 90, *scale]]), is_normalized, before, after, overlap, kind)
        for scale in ([1.0], [1.5, 0.5])
        for is_normalized, before, after, overlap, kind in (
            (True, 40, 10, 0.5, "i64"),
            (False, 40, 10, 0.3, "i32"),
            (False, 1000, 1000, 0.7, "i64"),
            (True, 5, 10, 0.1, "i64"),
        )
    ),
    *(
        Row(
            "ExperimentalDetectronGenerateProposalsSingleImage-6",
            (np.float32([60, 70, 1]), _ANCHORS.reshape(-1, 4), *(x[0] for x in _CHANGES)),
            {"min_size": least, "nms_threshold": overlap, "pre_nms_count": before, "post_nms_count": after},
            tolerance=1e-5,
        )
        for least, overlap, before, after in ((0.0, 0.5, 40, 10), (2.0, 0.3, 1000, 12), (0.0, 0.7, 20, 30))
    ),
]
