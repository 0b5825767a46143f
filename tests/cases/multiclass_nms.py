"""Boxes of several classes that overlap: of every order, at every limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.nms import several
from dovetail.ir import dtypes
from dovetail.ops.detection.multiclass_nms import MatrixNms, MulticlassNms

_SKIP = {
    "shape": "how many are kept depends on the elements",
    "gradient": "what is kept jumps",
    "gradient in onnxruntime": "what is kept jumps",
}


def kept(op: Any, name: str, scale: float = 1.0, seed: int = 0) -> Case:
    boxes, scores = several(seed)
    return Case(op, ((boxes * scale).astype(np.float32), scores), f"{type(op).__name__} {name}", skip=_SKIP, tolerance=1e-5)


def each(op: Any, **plain: Any) -> list[Case]:
    """Return the cases that both operators have."""
    return [
        *(
            kept(
                op(sort_result_type=sort, sort_result_across_batch=across, **plain),
                f"by {sort}{', across pictures' if across else ''}",
            )
            for sort in ("none", "score", "classid")
            for across in (False, True)
        ),
        kept(op(nms_top_k=4, keep_top_k=5, **plain), "with both limits"),
        kept(op(keep_top_k=3, sort_result_type="classid", **plain), "of few, by class"),
        kept(op(background_class=1, **plain), "with a background"),
        kept(op(normalized=False, **plain), "of elements", 20.0),
        kept(op(output_type=dtypes.i32, **plain), "of i32", 1.0, 3),
    ]


CASES: list[Case] = [
    *each(MulticlassNms, iou_threshold=0.3, score_threshold=0.3),
    kept(MulticlassNms(iou_threshold=0.3, score_threshold=2.0), "of nothing"),
    kept(MulticlassNms(score_threshold=0.2), "without a share"),
    *each(MatrixNms, score_threshold=0.3, post_threshold=0.1),
    kept(MatrixNms(decay_function="gaussian", gaussian_sigma=0.5, score_threshold=0.2), "that falls by its square"),
    kept(MatrixNms(score_threshold=0.2, post_threshold=0.5), "of what is left"),
]
