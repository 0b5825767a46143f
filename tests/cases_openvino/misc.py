"""Operators of older detectors and of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases_openvino import Row, fixed, numbers

_MAP = numbers(2, 3, 4, 5)
_PRIOR = {
    "min_size": [4.0, 8.0],
    "max_size": [9.0, 18.0],
    "aspect_ratio": [2.0],
    "density": [],
    "fixed_ratio": [],
    "fixed_size": [],
    "clip": False,
    "flip": True,
    "step": 4.0,
    "offset": 0.5,
    "variance": [0.1, 0.1, 0.2, 0.2],
    "scale_all_sizes": True,
}
_CLUSTERED = {
    "width": [3.0, 9.0],
    "height": [4.0, 7.0],
    "clip": False,
    "step": 0.0,
    "step_widths": 8.0,
    "step_heights": 4.0,
    "offset": 0.5,
    "variance": [0.1],
}
_CHANCE = np.random.default_rng(5)
_TURNED = (
    _CHANCE.uniform([0, 0, 0.5, 0.5, -4], [4, 4, 3, 3, 4], (2, 12, 5)).astype(np.float32),
    _CHANCE.uniform(0, 1, (2, 2, 12)).astype(np.float32),
)
_YOLO = {"coords": 4, "classes": 3, "num": 2, "axis": 1, "end_axis": 3, "do_softmax": True, "mask": [], "anchors": []}
_YUV = np.random.default_rng(0).integers(0, 256, (1, 6, 4, 1)).astype(np.uint8)


def _planes(operator: str, count: int, kind: Any) -> Row:
    planes = (
        [_YUV[:, :4], _YUV[:, 4:].reshape(1, 2, 2, 2)]
        if count == 2
        else [_YUV[:, :4], _YUV[:, 4:5, :].reshape(1, 2, 2, 1), _YUV[:, 5:, :].reshape(1, 2, 2, 1)]
    )
    return Row(operator, [_YUV.astype(kind)] if count == 1 else [plane.astype(kind) for plane in planes])


ROWS: list[Row] = [
    *(
        Row("PriorBox-8", (fixed([4, 5]), fixed([16, 20])), {**_PRIOR, "min_max_aspect_ratios_order": True, **more}, f"{more}")
        for more in (
            {},
            {"clip": True, "flip": False},
            {"min_max_aspect_ratios_order": False},
            {"scale_all_sizes": False, "max_size": []},
            {"step": 0.0, "offset": 0.2},
            {"min_size": [], "max_size": [], "fixed_size": [6.0], "fixed_ratio": [1.0, 2.0], "density": [2.0], "flip": False},
            {"variance": [0.3]},
        )
    ),
    Row("PriorBox-1", (fixed([4, 5]), fixed([16, 20])), _PRIOR),
    *(
        Row("PriorBoxClustered-1", (fixed([4, 5]), fixed([16, 20])), {**_CLUSTERED, **more}, f"{more}")
        for more in (
            {},
            {"clip": True, "variance": [0.1, 0.1, 0.2, 0.2]},
            {"step_widths": 0.0, "step_heights": 0.0, "step": 5.0},
            {"step_widths": 0.0, "step_heights": 0.0},
        )
    ),
    *(
        Row("RegionYolo-1", (numbers(2, 16, 3, 4),), {**_YOLO, **more}, f"{more}")
        for more in ({}, {"do_softmax": False, "mask": [0, 1]}, {"end_axis": 1})
    ),
    Row(
        "RegionYolo-1",
        (numbers(1, 24, 3, 3),),
        {**_YOLO, "do_softmax": False, "num": 9, "mask": [3, 4, 5]},
        "some of the anchors",
    ),
    *(Row("ReorgYolo-2", (numbers(2, 4, 4, 6),), {"stride": [stride]}) for stride in (2,)),
    Row("ReorgYolo-2", (numbers(1, 18, 3, 6),), {"stride": [3]}),
    *(
        _planes(f"{kind}to{order}-8", count, dtype)
        for kind, counts in (("NV12", (1, 2)), ("I420", (1, 3)))
        for order in ("RGB", "BGR")
        for count in counts
        for dtype in (np.float32, np.uint8)
    ),
    *(
        Row(
            f"{order}toNV12-17",
            (np.random.default_rng(1).integers(0, 256, (1, 4, 6, 3)).astype(np.uint8),),
            refused="op.unknown: its text leaves open what four places have in common, and no runtime at hand computes it",
        )
        for order in ("RGB", "BGR")
    ),
    *(
        Row(
            "ROIAlignRotated-15",
            (numbers(1, 2, 6, 7), np.float32([[3, 3, 4, 2, 0.5], [2, 4, 3, 3, -1.2]]), np.int32([0, 0])),
            {"pooled_h": 2, "pooled_w": 3, "sampling_ratio": ratio, "spatial_scale": 0.8, "clockwise_mode": mode},
        )
        for ratio in (2, 0)
        for mode in (True, False)
    ),
    *(
        Row(
            "NMSRotated-13",
            (boxes, scores, fixed(np.int32(most)), fixed(np.float32(overlap)), fixed(np.float32(least))),
            {"sort_result_descending": order, "output_type": kind, "clockwise": way},
        )
        for boxes, scores, most, overlap, least in (
            (
                np.float32([[[1, 1, 2, 2, 0], [1.1, 1, 2, 2, 0.3], [4, 4, 2, 1, 1], [4, 4, 1, 2, -0.57]]]),
                np.float32([[[0.9, 0.8, 0.7, 0.6], [0.1, 0.9, 0.3, 0.8]]]),
                *(3, 0.4, 0.2),
            ),
            (*_TURNED, 20, 0.2, 0.1),
            (*_TURNED, 4, 0.0, 0.0),
        )
        for order, kind in ((True, "i64"), (False, "i32"))
        for way in (True, False)
    ),
    *(
        Row(
            "Proposal-4",
            (numbers(1, 6, 3, 4, low=0, high=1), numbers(1, 12, 3, 4), fixed(np.float32([48, 64, 1]))),
            {
                "base_size": 16,
                "pre_nms_topn": 20,
                "post_nms_topn": 6,
                "nms_thresh": 0.5,
                "feat_stride": 16,
                "min_size": 4,
                "ratio": [0.5, 1.0, 2.0],
                "scale": [1.0],
                "clip_before_nms": True,
                "clip_after_nms": False,
                "normalize": False,
                "box_size_scale": 1.0,
                "box_coordinate_scale": 1.0,
                "framework": frame,
            },
            onnx="op.unsayable: boxes that overlap, whose last element is one of theirs",
        )
        for frame in ("", "tensorflow")
    ),
]
