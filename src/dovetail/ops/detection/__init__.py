"""Object detection: non-maximum suppression, proposals, prior boxes, regions of interest."""

from dovetail.ops.detection import (
    detection_output,
    multiclass_nms,
    nms,
    nms_decomposition,
    nms_rotated,
    prior_box,
    proposal,
    psroi_pool,
    roi_align,
    roi_pool,
)

__all__ = [
    "detection_output",
    "multiclass_nms",
    "nms",
    "nms_decomposition",
    "nms_rotated",
    "prior_box",
    "proposal",
    "psroi_pool",
    "roi_align",
    "roi_pool",
]
