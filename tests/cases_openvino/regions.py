"""Regions of maps, bags of rows, places among bounds, sequences of classes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from cases_openvino import Row, fixed, numbers

_I32 = np.int32
_MAPS = numbers(2, 4, 6, 7)
_BOXES = np.float32([[0.5, 0.7, 4.2, 5.1], [1, 2, 3, 3.5], [0, 0, 6, 5]])
_WHOSE = _I32([0, 1, 0])
_ROIS = np.float32([[0, 0.5, 0.7, 4.2, 5.1], [1, 1, 2, 3, 3.5], [0, 0, 0, 6, 5]])
_TABLE = numbers(5, 3)
_DEFORM = {
    "strides": [1, 1],
    "pads_begin": [0, 0],
    "pads_end": [0, 0],
    "dilations": [1, 1],
    "auto_pad": "explicit",
    "group": 1,
    "deformable_group": 1,
}
_DETECT = {
    "background_label_id": 0,
    "top_k": 10,
    "variance_encoded_in_target": False,
    "keep_top_k": [5],
    "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
    "share_location": True,
    "nms_threshold": 0.45,
    "confidence_threshold": 0.01,
    "clip_after_nms": False,
    "clip_before_nms": False,
    "decrease_label_id": False,
    "normalized": True,
    "input_height": 1,
    "input_width": 1,
    "objectness_score": 0.0,
}


def _deformed(version: int, name: str, *more_inputs: Any, weights: Any = None, **more: Any) -> Row:
    plain = {**_DEFORM, **({"bilinear_interpolation_pad": False} if version == 8 else {})}
    inputs = (
        numbers(1, 4, 5, 6),
        numbers(1, 18, 3, 4, seed=3, low=-1, high=1),
        fixed(numbers(3, 4, 3, 3, seed=4) if weights is None else weights),
        *more_inputs,
    )
    return Row(f"DeformableConvolution-{version}", inputs, {**plain, **more}, name)


_PRIORS = np.float32([[[0.1, 0.1, 0.3, 0.4, 0.2, 0.2, 0.6, 0.7, 0.5, 0.4, 0.9, 0.8], [0.1, 0.1, 0.2, 0.2] * 3]])
_SUPPRESS: dict[str, Any] = {
    "sort_result_type": "score",
    "output_type": "i64",
    "nms_top_k": -1,
    "keep_top_k": -1,
    "background_class": -1,
    "normalized": True,
}
_CHANCE = np.random.default_rng(3)
_CORNERS = _CHANCE.uniform(0, 1, (2, 6, 2))
_MANY = np.concatenate([_CORNERS, _CORNERS + _CHANCE.uniform(0.2, 0.6, (2, 6, 2))], -1).astype(np.float32)
_SCORES = _CHANCE.uniform(0, 1, (2, 3, 6)).astype(np.float32)

ROWS: list[Row] = [
    *(
        Row(
            "ROIAlign-3",
            (_MAPS, _BOXES, _WHOSE),
            {"pooled_h": 2, "pooled_w": 3, "sampling_ratio": ratio, "spatial_scale": 0.9, "mode": mode},
        )
        for ratio in (0, 2)
        for mode in ("avg", "max")
    ),
    *(
        Row(
            "ROIAlign-9",
            (_MAPS, _BOXES, _WHOSE),
            {"pooled_h": 2, "pooled_w": 3, "sampling_ratio": 2, "spatial_scale": 0.9, "mode": mode, "aligned_mode": aligned},
        )
        for mode in ("avg", "max")
        for aligned in ("asymmetric", "half_pixel", "half_pixel_for_nn")
    ),
    *(
        Row("ROIPooling-2", (_MAPS, _ROIS), {"pooled_h": 2, "pooled_w": 2, "spatial_scale": 1.0, "method": method})
        for method in ("max",)
    ),
    Row(
        "ROIPooling-2",
        (_MAPS, np.float32([[0, 0.1, 0.2, 0.7, 0.9], [1, 0.2, 0, 0.5, 1]])),
        {"pooled_h": 2, "pooled_w": 3, "spatial_scale": 1.0, "method": "bilinear"},
    ),
    Row(
        "PSROIPooling-1",
        (numbers(2, 8, 6, 7), _ROIS),
        {"output_dim": 2, "group_size": 2, "spatial_scale": 1.0, "mode": "average", "spatial_bins_x": 1, "spatial_bins_y": 1},
    ),
    Row(
        "PSROIPooling-1",
        (numbers(2, 8, 6, 7), _ROIS * np.float32([1, 0.1, 0.1, 0.1, 0.1])),
        {"output_dim": 2, "group_size": 2, "spatial_scale": 1.0, "mode": "bilinear", "spatial_bins_x": 2, "spatial_bins_y": 2},
    ),
    *(
        Row(
            "DeformablePSROIPooling-1",
            (numbers(2, 8, 6, 7), _ROIS * np.float32([1, 2, 2, 2, 2]), *moves),
            {
                "output_dim": 2,
                "spatial_scale": 0.5,
                "group_size": 2,
                "mode": "bilinear_deformable",
                "spatial_bins_x": columns,
                "spatial_bins_y": rows,
                "trans_std": 0.3,
                "part_size": 2,
            },
        )
        for columns, rows in ((1, 1), (3, 2))
        for moves in ((), (numbers(3, 2, 2, 2, low=-0.5, high=0.5),), (numbers(3, 4, 2, 2, low=-0.5, high=0.5),))
    ),
    _deformed(1, "plain"),
    _deformed(1, "strided", strides=[2, 2], pads_begin=[1, 1], pads_end=[1, 2]),
    _deformed(8, "plain"),
    _deformed(8, "with a mask", numbers(1, 9, 3, 4, seed=6, low=0, high=1)),
    _deformed(8, "at the border", bilinear_interpolation_pad=True),
    _deformed(8, "in groups", weights=numbers(4, 2, 3, 3, seed=4), group=2),
    *(
        Row("AdaptiveAvgPool-8", (x, fixed(sizes)))
        for x, sizes in ((_MAPS, [2, 3]), (numbers(1, 2, 7), [3]), (numbers(1, 2, 4, 5, 3), [2, 2, 2]))
    ),
    *(
        Row("AdaptiveMaxPool-8", (x, fixed(sizes)), {"index_element_type": kind})
        for x, sizes, kind in ((_MAPS, [2, 3], "i32"), (numbers(1, 2, 7), [3], "i32"))
    ),
    *(
        Row("Bucketize-3", (numbers(2, 3), fixed(np.float32([-1, 0, 1]))), {"output_type": kind, "with_right_bound": right})
        for kind in ("i32", "i64")
        for right in (True, False)
    ),
    *(
        Row(
            "SearchSorted-15",
            (np.sort(numbers(*shape), -1), numbers(*values, seed=2)),
            {"right_mode": right, "output_type": kind},
        )
        for shape, values in (((2, 4), (2, 3)), ((4,), (2, 3)))
        for right in (True, False)
        for kind in ("i64", "i32")
    ),
    Row(
        "GatherTree-1",
        (
            np.float32(_CHANCE.integers(0, 9, (4, 2, 3))),
            np.float32(_CHANCE.integers(0, 3, (4, 2, 3))),
            np.float32([3, 4]),
            fixed(np.float32(7)),
        ),
    ),
    *(
        Row(
            "Unique-10",
            (np.float32([[3, 1, 3, 2], [1, 1, 0, 2]]), *axis),
            {"sorted": order, "index_element_type": "i64", "count_element_type": "i32"},
            f"{order} {axis}",
        )
        for axis in ((), (fixed(np.int64(1)),))
        for order in (True, False)
    ),
    *(Row("Inverse-14", (numbers(2, 3, 3),), {"adjoint": adjoint}) for adjoint in (False, True)),
    Row(
        "Col2Im-15",
        (numbers(1, 8, 9), fixed([4, 4]), fixed([2, 2])),
        {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0]},
    ),
    Row(
        "Col2Im-15",
        (numbers(1, 8, 9), fixed([4, 4]), fixed([2, 2])),
        {"strides": [2, 2], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]},
    ),
    *(
        Row("STFT-15", (numbers(2, 16), numbers(8, seed=2), fixed(_I32(8)), fixed(_I32(4))), {"transpose_frames": turned})
        for turned in (True, False)
    ),
    *(
        Row(
            "ISTFT-16",
            (numbers(2, 5, 3, 2), numbers(8, seed=2, low=0.2), fixed(_I32(8)), fixed(_I32(4)), *length),
            {"center": center, "normalized": normal},
        )
        for center, normal in ((False, False), (True, True))
        for length in ((), (fixed(_I32(14)),))
    ),
    *(Row("SegmentMax-16", (numbers(4, 2), _I32([0, 0, 2, 2])), {"fill_mode": mode}) for mode in ("ZERO", "LOWEST")),
    Row("EmbeddingBagOffsetsSum-3", (_TABLE, _I32([0, 2, 3, 4]), _I32([0, 2, 2]), fixed(_I32(0)))),
    Row("EmbeddingBagOffsetsSum-3", (_TABLE, _I32([0, 2, 3, 4]), _I32([0, 2, 2]), fixed(_I32(1)), np.float32([0.5, 1, 2, 3]))),
    Row("EmbeddingBagPackedSum-3", (_TABLE, _I32([[0, 2], [1, 4]]))),
    Row("EmbeddingBagPackedSum-3", (_TABLE, _I32([[0, 2], [1, 4]]), np.float32([[0.5, 1], [2, 3]]))),
    Row("EmbeddingSegmentsSum-3", (_TABLE, _I32([0, 2, 3, 4]), _I32([0, 0, 2, 2]), fixed(_I32(3)), fixed(_I32(0)))),
    Row(
        "EmbeddingSegmentsSum-3",
        (_TABLE, _I32([0, 2, 3, 4]), _I32([0, 0, 2, 2]), fixed(_I32(3)), fixed(_I32(1)), np.float32([0.5, 1, 2, 3])),
    ),
    *(
        Row("EmbeddingBagOffsets-15", (_TABLE, _I32([0, 2, 3, 4]), _I32([0, 2, 2]), fixed(_I32(-1))), {"reduction": how})
        for how in ("sum", "mean")
    ),
    *(Row("EmbeddingBagPacked-15", (_TABLE, _I32([[0, 2], [1, 4]])), {"reduction": how}) for how in ("sum", "mean")),
    *(
        Row(
            "CTCGreedyDecoder-1",
            (numbers(5, 2, 4, low=0), np.float32([[1, 1], [1, 1], [1, 1], [1, 1], [1, 0]])),
            {"ctc_merge_repeated": merge},
        )
        for merge in (True, False)
    ),
    *(
        Row(
            "CTCGreedyDecoderSeqLen-6",
            (numbers(2, 5, 4, low=0), _I32([5, 3]), *blank),
            {"merge_repeated": merge, "classes_index_type": "i32", "sequence_length_type": "i32"},
        )
        for merge in (True, False)
        for blank in ((), (fixed(_I32(1)),))
    ),
    *(
        Row(
            "CTCLoss-4",
            (numbers(2, 5, 4), _I32([5, 4]), _I32([[1, 1, 2, 0, 0], [0, 2, 1, 0, 0]]), _I32([3, 2]), fixed(_I32(3))),
            {"preprocess_collapse_repeated": collapse, "ctc_merge_repeated": merge, "unique": unique},
        )
        for collapse, merge, unique in itertools.product((True, False), repeat=3)
    ),
    *(
        Row(
            f"DetectionOutput-{version}",
            (numbers(1, 12, low=-0.5, high=0.5), numbers(1, 9, low=0, high=1, seed=5), fixed(_PRIORS)),
            {**_DETECT, **({"num_classes": 3} if version == 1 else {})},
        )
        for version in (1, 8)
    ),
    *(
        Row(
            "MulticlassNms-8",
            (_MANY, _SCORES),
            {**_SUPPRESS, "sort_result_across_batch": across, "iou_threshold": 0.4, "score_threshold": 0.2, "nms_eta": 1.0},
        )
        for across in (True, False)
    ),
    Row(
        "MulticlassNms-9",
        (_MANY, _SCORES),
        {**_SUPPRESS, "sort_result_across_batch": False, "iou_threshold": 0.4, "score_threshold": 0.2, "nms_eta": 1.0},
    ),
    *(
        Row(
            "MatrixNms-8",
            (_MANY, _SCORES),
            {
                **_SUPPRESS,
                "sort_result_across_batch": False,
                "score_threshold": 0.2,
                "decay_function": decay,
                "gaussian_sigma": 2.0,
                "post_threshold": 0.1,
            },
        )
        for decay in ("linear", "gaussian")
    ),
]
