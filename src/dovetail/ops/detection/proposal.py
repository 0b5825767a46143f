"""Proposal: regions for the second stage of a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View, agree

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_REQUIRED = "base_size, pre_nms_topn, post_nms_topn, nms_thresh, feat_stride, min_size, ratio, scale"
_OPTIONAL = (
    "clip_before_nms=true, clip_after_nms=false, normalize=false, box_size_scale=1.0, box_coordinate_scale=1.0, framework="
)
_FRAMEWORKS = ("", "caffe", "tensorflow")


def _check_sizes(class_probs: Shape | None, bbox_deltas: Shape | None, image_shape: Shape | None) -> None:
    """Check equal images, rows and columns of ``class_probs`` and ``bbox_deltas``, and at least 3 elements of ``image_shape``."""
    if class_probs is not None and bbox_deltas is not None:
        for axis in (0, 2, 3):
            agree(class_probs[axis], bbox_deltas[axis], ("class_probs", axis), ("bbox_deltas", axis))
    if image_shape is not None and symbolic.less(symbolic.product(image_shape), 3) is True:
        raise RuleError("shape.rank", f"image_shape must have at least 3 elements, got shape {list(image_shape)}")


class Proposal(
    Op,
    sig="class_probs: F, bbox_deltas: F, image_shape: F -> rois: F, probs: F",
    openvino=(
        f"Proposal-1(class_probs, bbox_deltas, image_shape; {_REQUIRED}, {_OPTIONAL} | outputs=1)",
        f"Proposal-4(class_probs, bbox_deltas, image_shape; {_REQUIRED}, {_OPTIONAL} | outputs=2)",
    ),
):
    """Proposal decodes anchors by their deltas and selects the best regions of each image by non-maximum suppression.

    ``rois`` are rows [image, x1, y1, x2, y2], ``post_nms_topn`` rows for each image; ``probs`` are their scores. Unused rows
    are 0; the first unused row of an image has -1 in its first column.

    Each cell of a grid with the spacing ``feat_stride`` has an anchor for each ``ratio`` and ``scale``. An anchor is a square
    of side ``base_size``, changed to the ratio and scaled. ``class_probs`` [images, 2 * anchors, rows, columns] holds the
    foreground scores in the second half of its channels. ``bbox_deltas`` [images, 4 * anchors, rows, columns] holds four deltas
    per anchor. Two deltas, divided by ``box_coordinate_scale``, move the center by multiples of the size. Two deltas, divided
    by ``box_size_scale``, are the logarithms of the factors by which the size is scaled.

    ``image_shape`` is [height, width, scale] or [height, width, height scale, width scale]. Boxes smaller than ``min_size``
    times the scale get the score 0. The best ``pre_nms_topn`` boxes of each image are candidates; a box is dropped where its
    IoU with a selected box exceeds ``nms_thresh``. ``clip_before_nms`` and ``clip_after_nms`` clip boxes to the image;
    ``normalize`` divides coordinates by the width and height of the image.

    A box includes the pixels of its last corner, and anchors have integer sizes. With ``framework`` tensorflow, a box excludes
    its last coordinate, and anchors are centred on their cell and clipped to the image first. The rows and columns of cells are
    then swapped, as are the height and width to which boxes are clipped.
    Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
    """

    selects_by_score = True

    base_size: int
    pre_nms_topn: int
    post_nms_topn: int
    nms_thresh: float
    feat_stride: int
    min_size: int
    ratio: tuple[float, ...]
    scale: tuple[float, ...]
    clip_before_nms: bool = True
    clip_after_nms: bool = False
    normalize: bool = False
    box_size_scale: float = 1.0
    box_coordinate_scale: float = 1.0
    framework: str = ""
    outputs: int = 2

    def validate(self) -> None:
        if self.framework not in _FRAMEWORKS:
            raise RuleError("attribute.value", f"framework must be empty, caffe or tensorflow, got {self.framework!r}")
        if min(self.pre_nms_topn, self.post_nms_topn) < 1:
            raise RuleError(
                "attribute.range",
                f"pre_nms_topn and post_nms_topn must be at least 1, got {self.pre_nms_topn} and {self.post_nms_topn}",
            )
        if self.outputs not in (1, 2):
            raise RuleError("node.outputs", f"Proposal has 1 or 2 outputs, got {self.outputs}")

    def shape(self, class_probs: View, bbox_deltas: View, image_shape: View) -> Any:
        count = len(self.ratio) * len(self.scale)
        for x, name, numbers in ((class_probs, "class_probs", 2), (bbox_deltas, "bbox_deltas", 4)):
            if x.shape is not None:
                if len(x.shape) != 4:
                    raise RuleError("shape.rank", f"{name} must have rank 4, got {len(x.shape)}")
                if symbolic.equal(x.shape[1], numbers * count) is False:
                    raise RuleError("shape.disagree", f"{name} must have {numbers} * {count} channels, got {x.shape[1]}")
        _check_sizes(class_probs.shape, bbox_deltas.shape, image_shape.shape)
        rows = None if class_probs.shape is None else class_probs.shape[0] * self.post_nms_topn
        return [(rows, 5), (rows,)][: self.outputs]

    def value(self, *xs: View | None) -> Any:
        raise symbolic.Inexact("the selected boxes")

    def vjp(self, b: Builder, g: Value | tuple[Value | None, ...], y: Value | tuple[Value, ...], *xs: Value) -> Any:
        raise UnsupportedError("grad.op", "Proposal has no gradient")

    def evaluate(self, xp: Namespace, class_probs: Array, bbox_deltas: Array, image_shape: Array) -> Any:
        _check_sizes(class_probs.shape, bbox_deltas.shape, image_shape.shape)
        dtype = arrays.to_numpy(class_probs).dtype
        scores, deltas, image = (arrays.to_numpy(x).astype(np.float32) for x in (class_probs, bbox_deltas, image_shape))
        height, width, *scales = image.reshape(-1)[:4]
        min_sizes = self.min_size * np.array([scales[-1], scales[0]], np.float32)
        limit = np.array([height, width] if self.framework == "tensorflow" else [width, height], np.float32)
        images, _, rows, columns = scores.shape
        rois = np.zeros((images, self.post_nms_topn, 5), np.float32)
        probs = np.zeros((images, self.post_nms_topn), np.float32)
        anchors = self._make_anchors(rows, columns)
        count = anchors.shape[2]
        for index in range(images):
            image_scores = scores[index, count:].transpose(1, 2, 0).reshape(-1)
            image_deltas = deltas[index].reshape(count, 4, rows, columns).transpose(2, 3, 0, 1)
            boxes = self._apply_deltas(anchors, image_deltas, limit).reshape(-1, 2, 2)
            size = boxes[:, 1] - boxes[:, 0] + self._size_offset
            image_scores = np.where((size >= min_sizes).all(axis=1), image_scores, np.float32(0))
            order = np.argsort(-image_scores, kind="stable")[: self.pre_nms_topn]
            selected = order[self._suppress(boxes[order])]
            corners = boxes[selected]
            corners = np.clip(corners, 0, limit) if self.clip_after_nms else corners
            corners = corners / limit if self.normalize else corners
            rois[index, : len(selected), 0] = index
            rois[index, : len(selected), 1:] = corners.reshape(-1, 4)
            probs[index, : len(selected)] = image_scores[selected]
            if len(selected) < self.post_nms_topn:
                rois[index, len(selected), 0] = -1
        results = (rois.reshape(-1, 5).astype(dtype), probs.reshape(-1).astype(dtype))
        results = tuple(arrays.from_numpy(xp, item, class_probs) for item in results[: self.outputs])
        return results if self.outputs == 2 else results[0]

    @property
    def _size_offset(self) -> np.float32:
        """Return the size of a box minus the difference of the coordinates of its corners."""
        return np.float32(0 if self.framework == "tensorflow" else 1)

    def _make_anchors(self, rows: int, columns: int) -> Any:
        """Make the anchors: [rows, columns, anchors, first and last corner, x and y]."""
        rounds_sizes = self.framework != "tensorflow"
        ratio = np.array(self.ratio, np.float32)
        widths = np.sqrt(np.float32(self.base_size**2) / ratio)
        widths = np.floor(widths + np.float32(0.5)) if rounds_sizes else widths
        heights = widths * ratio
        heights = np.floor(heights + np.float32(0.5)) if rounds_sizes else heights
        sizes = np.stack([widths, heights], axis=-1)[:, None] * np.array(self.scale, np.float32)[:, None]
        half = (sizes.reshape(-1, 2) - self._size_offset) / 2
        center = (self.base_size - self._size_offset) / 2 - (0 if rounds_sizes else self.base_size / 2)
        boxes = np.stack([center - half, center + half], axis=1)
        y, x = np.meshgrid(np.arange(rows) * self.feat_stride, np.arange(columns) * self.feat_stride, indexing="ij")
        grid = np.stack([x, y] if rounds_sizes else [y, x], axis=-1).astype(np.float32)
        return grid[:, :, None, None] + boxes.astype(np.float32)

    def _apply_deltas(self, anchors: Array, deltas: Array, limit: Array) -> Any:
        if self.framework == "tensorflow":
            anchors = np.clip(anchors, 0, limit)
        size = anchors[..., 1, :] - anchors[..., 0, :] + self._size_offset
        center = anchors[..., 0, :] + size / 2 + deltas[..., :2] / np.float32(self.box_coordinate_scale) * size
        half = np.exp(deltas[..., 2:] / np.float32(self.box_size_scale)) * size / 2
        boxes = np.stack([center - half, center + half], axis=-2)
        return np.clip(boxes, 0, limit - self._size_offset) if self.clip_before_nms else boxes

    def _suppress(self, boxes: Array) -> list[int]:
        """Return the indices of the boxes that NMS selects; ``boxes`` are sorted by descending score."""
        low, high = boxes[:, 0], boxes[:, 1]
        areas = np.prod(high - low + self._size_offset, axis=1)
        candidates = np.arange(len(boxes))
        selected: list[int] = []
        while len(candidates) and len(selected) < self.post_nms_topn:
            best, candidates = int(candidates[0]), candidates[1:]
            selected.append(best)
            intersects = (low[best] <= high[candidates]).all(axis=1) & (low[candidates] <= high[best]).all(axis=1)
            sides = np.minimum(high[best], high[candidates]) - np.maximum(low[best], low[candidates]) + self._size_offset
            intersection = np.prod(np.maximum(sides, 0), axis=1)
            iou = intersection / (areas[best] + areas[candidates] - intersection)
            candidates = candidates[~(intersects & (iou > np.float32(self.nms_thresh)))]
        return selected
