"""Cases of DetectionOutput: few and many boxes, of all classes and of the best, cut at every limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ops.detection.detection_output import DetectionOutput

_CENTER = "caffe.PriorBoxParameter.CENTER_SIZE"
_COUNT, _CLASSES = 6, 3


def numbers(*shape: int, low: float = 0, high: float = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng([11, *shape]).uniform(low, high, shape).astype(np.float32)


def found(
    op: DetectionOutput, name: str, pictures: int = 1, batch: int = 1, more: tuple[Any, ...] = (), own: int = 1, **rest: Any
) -> Case:
    corners = numbers(batch, 1, _COUNT, 2, high=0.6)
    corners = np.concatenate([corners, corners + numbers(batch, 1, _COUNT, 2, low=0.2, high=0.4)], axis=-1)
    if not op.normalized:
        corners = np.concatenate(
            [np.zeros_like(corners[..., :1]), corners * np.float32([op.input_width, op.input_height] * 2)], axis=-1
        )
    priors = corners.reshape(batch, 1, -1)
    if not op.variance_encoded_in_target:
        variances = np.zeros_like(priors)
        variances[..., : 4 * _COUNT] = 0.2
        priors = np.concatenate([priors, variances], axis=1)
    boxes = numbers(pictures, _COUNT * 4 * own, low=-0.3, high=0.3)
    given = (boxes, numbers(pictures, _COUNT * _CLASSES), priors, *more)
    skip = {"gradient": "what is kept jumps", "gradient in onnxruntime": "what is kept jumps"} | rest.pop("skip", {})
    return Case(op, given, f"DetectionOutput {name}", tolerance=1e-5, skip=skip, **rest)


def output(**changes: Any) -> DetectionOutput:
    plain = {
        "keep_top_k": (5,),
        "top_k": 4,
        "nms_threshold": 0.4,
        "confidence_threshold": 0.1,
        "code_type": _CENTER,
        "normalized": True,
    }
    return DetectionOutput(**{**plain, **changes})


CASES: list[Case] = [
    found(output(), "of one picture"),
    found(output(), "of two pictures", 2),
    found(output(), "of priors of their own", 2, 2),
    found(output(keep_top_k=(30,)), "with room to spare", 2),
    found(output(keep_top_k=(-1,), top_k=-1), "without limits"),
    found(output(keep_top_k=(-1,)), "of a limited number of each class"),
    found(output(confidence_threshold=2.0), "of nothing"),
    found(output(code_type="caffe.PriorBoxParameter.CORNER"), "of corners"),
    found(output(variance_encoded_in_target=True), "without variances"),
    found(output(normalized=False, input_width=20, input_height=30), "in elements"),
    found(output(share_location=False), "of each class its own", own=_CLASSES),
    found(output(background_label_id=-1), "without a background"),
    found(output(clip_before_nms=True, nms_threshold=0.7), "clipped before"),
    found(output(clip_after_nms=True, nms_threshold=0.7), "clipped after"),
    found(output(decrease_label_id=True, background_label_id=0), "of the best class", 2),
    found(output(decrease_label_id=True, top_k=-1, keep_top_k=(3,)), "of the best class, cut"),
    found(output(num_classes=_CLASSES), "of a given number of classes"),
    found(
        output(objectness_score=0.4, keep_top_k=(12,)), "refined", 1,
        more=(numbers(1, _COUNT * 2), numbers(1, _COUNT * 4, low=-0.2, high=0.2)),
    ),
]  # fmt: skip
