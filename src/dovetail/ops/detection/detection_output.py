"""The detection layer of single-shot detectors: DetectionOutput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import Size, View, is_static
from dovetail.ops.casts import as_type

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_SHARED = (
    "background_label_id=0, top_k=-1, variance_encoded_in_target=false, keep_top_k, "
    "code_type=caffe.PriorBoxParameter.CORNER, share_location=true, nms_threshold, confidence_threshold=0, "
    "clip_after_nms=false, clip_before_nms=false, decrease_label_id=false, normalized=false, "
    "input_height=1, input_width=1, objectness_score=0"
)
_LOWEST_SCORE = float(np.finfo(np.float32).min)
"""A score below the score of any candidate and above -inf, which is the score of boxes that are not candidates."""
CODE_TYPES = {"caffe.PriorBoxParameter.CORNER": "corner", "caffe.PriorBoxParameter.CENTER_SIZE": "center"}


class DetectionOutput(
    Op,
    sig="box_logits: F, class_preds: F, proposals: F, aux_class_preds?: F, aux_box_preds?: F -> y: F",
    openvino=(
        f"DetectionOutput-1(box_logits, class_preds, proposals, aux_class_preds?, aux_box_preds?; num_classes, {_SHARED})",
        f"DetectionOutput-8(box_logits, class_preds, proposals, aux_class_preds?, aux_box_preds?; {_SHARED})",
    ),
):
    """DetectionOutput decodes prior boxes, applies non-maximum suppression per class, and lists the best boxes of each image.

    The output is [1, 1, rows, 7] with rows [image, class, score, x1, y1, x2, y2], sorted by image, class and descending score.
    The row after the last box has -1 in its first column; all other elements of the remaining rows are 0.

    ``box_logits`` [images, numbers] holds four deltas per prior, or without ``share_location`` four deltas per prior and class.
    ``class_preds`` is [images, priors * classes]. ``proposals`` is [1 or images, 1 or 2, numbers]. Row 0 of ``proposals`` holds
    the corners [x1, y1, x2, y2] of the priors. Without ``normalized`` it holds five numbers per prior; the last four are
    corners in pixels of an image of ``input_height`` and ``input_width``. Row 1 holds the variances that multiply the deltas,
    unless ``variance_encoded_in_target``. The ``code_type`` CORNER adds the deltas to the corners; CENTER_SIZE moves the center
    by multiples of the size and scales the size by an exponential. ``clip_before_nms`` and ``clip_after_nms`` clip boxes to [0,
    1].

    The candidates of each class other than ``background_label_id`` are the boxes with the best ``top_k`` (-1: all) scores above
    ``confidence_threshold``. A box is dropped where its IoU with a selected box of the class exceeds ``nms_threshold``. With
    ``decrease_label_id``, a prior is a candidate for its best class only, if the score of that class is at least
    ``confidence_threshold``; ``top_k`` then limits the candidates of all classes together, and listed class ids are reduced by
    1. The best ``keep_top_k`` (-1: all) boxes of each image are listed.

    ``aux_class_preds`` is [images, priors * 2]; a prior is background where its second number is below ``objectness_score``.
    ``aux_box_preds`` are deltas that move the priors before ``box_logits`` do.
    Source: OpenVINO DetectionOutput-1, -8.
    """

    selects_by_score = True

    num_classes: int | None = None
    background_label_id: int = 0
    top_k: int = -1
    variance_encoded_in_target: bool = False
    keep_top_k: tuple[int, ...] = (-1,)
    code_type: str = "caffe.PriorBoxParameter.CORNER"
    share_location: bool = True
    nms_threshold: float = 0.0
    confidence_threshold: float = 0.0
    clip_after_nms: bool = False
    clip_before_nms: bool = False
    decrease_label_id: bool = False
    normalized: bool = False
    input_height: int = 1
    input_width: int = 1
    objectness_score: float = 0.0

    def validate(self) -> None:
        if self.code_type not in CODE_TYPES:
            raise RuleError("attribute.value", f"code_type must be one of {', '.join(CODE_TYPES)}, got {self.code_type!r}")
        if len(self.keep_top_k) != 1:
            raise RuleError("attribute.length", f"keep_top_k must be one number, got {list(self.keep_top_k)}")

    def sizes_of(self, box_logits: View, class_preds: View, proposals: View) -> tuple[Any, Any, Any]:
        """Return the numbers of images, priors and classes, None for an unknown number. Raises RuleError for invalid shapes."""
        for x, rank, name in ((box_logits, 2, "box_logits"), (class_preds, 2, "class_preds"), (proposals, 3, "proposals")):
            if x.shape is not None and len(x.shape) != rank:
                raise RuleError("shape.rank", f"{name} must have rank {rank}, got {len(x.shape)}")
        images = next((x.shape[0] for x in (box_logits, class_preds) if x.shape is not None), None)
        numbers_per_prior = 4 if self.normalized else 5
        count = None if proposals.shape is None else proposals.shape[2]
        if isinstance(count, int) and count % numbers_per_prior:
            raise RuleError(
                "shape.multiple", f"the size of axis 2 of proposals ({count}) must be a multiple of {numbers_per_prior}"
            )
        count = count // numbers_per_prior if isinstance(count, int) else None
        score_count = None if class_preds.shape is None else class_preds.shape[1]
        classes = self.num_classes
        if isinstance(count, int) and isinstance(score_count, int):
            if not count or score_count % count or (classes is not None and count * classes != score_count):
                raise RuleError(
                    "shape.multiple",
                    f"class_preds must have num_classes ({'any' if classes is None else classes}) columns for each of "
                    f"{count} priors, got {score_count}",
                )
            classes = score_count // count
        if isinstance(count, int) and classes is not None and box_logits.shape is not None:
            box_numbers = count * 4 * (1 if self.share_location else classes)
            if symbolic.equal(box_logits.shape[1], box_numbers) is False:
                raise RuleError("shape.disagree", f"box_logits must have {box_numbers} columns, got {box_logits.shape[1]}")
        return images, count, classes

    def shape(
        self,
        box_logits: View,
        class_preds: View,
        proposals: View,
        aux_class_preds: View | None = None,
        aux_box_preds: View | None = None,
    ) -> Any:
        images, count, classes = self.sizes_of(box_logits, class_preds, proposals)
        return (1, 1, None if images is None else self.row_count(images, count, classes), 7)

    def row_count(self, images: Size, count: Size | None, classes: Size | None) -> Any:
        """Return the maximum number of rows; None if the number is unknown."""
        if self.keep_top_k[0] > 0:
            return images * self.keep_top_k[0]
        if classes is None or (self.top_k <= 0 and count is None):
            return None
        per_class = self.top_k if self.top_k > 0 else count
        return None if per_class is None else images * classes * per_class

    def decompose(
        self,
        b: Builder,
        box_logits: Value,
        class_preds: Value,
        proposals: Value,
        aux_class_preds: Value | None = None,
        aux_box_preds: Value | None = None,
    ) -> Any:
        if not all(is_static(x.type) for x in (box_logits, class_preds, proposals)):
            raise UnsupportedError(
                "type.unknown",
                f"sizes of DetectionOutput must be constant, got {box_logits.type}, {class_preds.type} and {proposals.type}",
            )
        images, count, classes = self.sizes_of(box_logits, class_preds, proposals)
        dtype = box_logits.dtype
        box_logits, class_preds, proposals = (as_type(b, x, dtypes.f32) for x in (box_logits, class_preds, proposals))
        boxes = self._decode_boxes(
            b, box_logits, proposals, None if aux_box_preds is None else as_type(b, aux_box_preds, dtypes.f32), images, count
        )
        refuse_table((classes,), 8, "the mask of classes of a DetectionOutput")
        scores = b.Reshape(class_preds, [images, count, classes], special_zero=False)
        if aux_class_preds is not None:
            scores = self._apply_objectness(b, scores, as_type(b, aux_class_preds, dtypes.f32), images, count, classes)
        selected = self._suppress(b, boxes, self._candidate_scores(b, scores, classes), images, count, classes)
        return as_type(b, self._build_table(b, selected, boxes, images, count, classes), dtype)

    def _decode_boxes(
        self, b: Builder, box_logits: Value, proposals: Value, aux_box_preds: Value | None, images: int, count: int
    ) -> Any:
        """Return the boxes as corners: [images, 1 or classes, priors, 4]."""
        numbers_per_prior = 4 if self.normalized else 5
        coordinates = b.Reshape(
            b.Slice(proposals, [0], [1], [1]), [proposals.dims[0], 1, count, numbers_per_prior], special_zero=False
        )
        corners = (
            b.Slice(coordinates, [numbers_per_prior - 4], [numbers_per_prior], [3]) if numbers_per_prior > 4 else coordinates
        )
        if not self.normalized:
            corners = b.Divide(corners, b.constant(np.array([self.input_width, self.input_height] * 2, np.float32)))
        variances = None
        if not self.variance_encoded_in_target:
            variance_row = b.Slice(b.Slice(proposals, [1], [2], [1]), [0], [count * 4], [2])
            variances = b.Reshape(variance_row, [proposals.dims[0], 1, count, 4], special_zero=False)
        for logits in (aux_box_preds, box_logits):
            if logits is not None:
                deltas = b.Transpose(b.Reshape(logits, [images, count, -1, 4], special_zero=False), [0, 2, 1, 3])
                corners = self._apply_deltas(b, corners, deltas if variances is None else b.Multiply(deltas, variances))
        return corners

    def _apply_deltas(self, b: Builder, corners: Value, deltas: Value) -> Any:
        if CODE_TYPES[self.code_type] == "corner":
            y = b.Add(corners, deltas)
        else:
            low, high = b.Slice(corners, [0], [2], [3]), b.Slice(corners, [2], [4], [3])
            size, center = b.Subtract(high, low), b.Divide(b.Add(low, high), 2.0)
            center = b.Add(b.Multiply(b.Slice(deltas, [0], [2], [3]), size), center)
            half = b.Divide(b.Multiply(b.Exp(b.Slice(deltas, [2], [4], [3])), size), 2.0)
            y = b.Concat(b.Subtract(center, half), b.Add(center, half), axis=3)
        return _clip_to_unit(b, y) if self.clip_before_nms else y

    def _apply_objectness(self, b: Builder, scores: Value, aux_class_preds: Value, images: int, count: int, classes: int) -> Any:
        """Set the scores of priors with an objectness below ``objectness_score`` to 1 for the background class, else to 0."""
        objectness = b.Slice(b.Reshape(aux_class_preds, [images, count, 2], special_zero=False), [1], [2], [2])
        background_only = np.zeros((1, 1, classes), np.float32)
        if 0 <= self.background_label_id < classes:
            background_only[..., self.background_label_id] = 1
        return b.Where(b.Less(objectness, self.objectness_score), b.constant(background_only), scores)

    def _candidate_scores(self, b: Builder, scores: Value, classes: int) -> Any:
        """Return the scores of candidates, and -inf for all other boxes: [images, classes, priors]."""
        no_score = b.constant(np.float32(-np.inf))
        scores = b.Transpose(scores, [0, 2, 1])
        is_allowed = np.arange(classes).reshape(1, -1, 1) != self.background_label_id
        if not self.decrease_label_id:
            return b.Where(b.And(b.constant(is_allowed), b.Greater(scores, self.confidence_threshold)), scores, no_score)
        is_allowed = is_allowed & (np.arange(classes).reshape(1, -1, 1) > 0)
        scores = b.Where(b.constant(is_allowed), scores, no_score)
        best = b.ArgMax(scores, axis=1, keepdims=True)
        is_best = b.And(b.Equal(best, b.constant(np.arange(classes).reshape(1, -1, 1))), b.constant(is_allowed))
        # With decrease_label_id, a score equal to the threshold is a candidate.
        candidates = b.Where(b.And(is_best, b.GreaterEqual(scores, self.confidence_threshold)), scores, no_score)
        count = scores.dims[2]
        if not 0 <= self.top_k < count:
            return candidates
        best_scores = b.ReduceMax(candidates, [1], keepdims=False)
        top_priors = b.TopK(best_scores, [self.top_k], axis=1)[1]
        marks = b.Expand(b.constant(np.zeros((), np.int64)), list(best_scores.dims))
        ones = b.Expand(b.constant(np.ones((), np.int64)), [best_scores.dims[0], self.top_k])
        is_top = b.Greater(b.ScatterElements(marks, top_priors, ones, axis=1), b.constant(0))
        return b.Where(b.Unsqueeze(is_top, [1]), candidates, no_score)

    def _suppress(self, b: Builder, boxes: Value, scores: Value, images: int, count: int, classes: int) -> Any:
        """Return the scores of the boxes that NMS selects, and -inf for all other boxes: [images, priors * classes]."""
        top_k = count if self.decrease_label_id or self.top_k < 0 else min(self.top_k, count)
        top_scores, indices = b.TopK(scores, [top_k], axis=2)
        class_boxes = boxes if boxes.dims[1] == classes else b.Expand(boxes, [images, classes, count, 4])
        top_boxes = b.GatherND(class_boxes, b.Unsqueeze(indices, [3]), batch_dims=2)
        low, high = b.Slice(top_boxes, [0], [2], [3]), b.Slice(top_boxes, [2], [4], [3])
        # A box whose corners are in the wrong order has no area.
        top_boxes = b.Concat(low, b.Maximum(low, high), axis=3)
        image_classes = images * classes
        rows = b.NonMaxSuppression(
            b.Reshape(top_boxes, [image_classes, top_k, 4], special_zero=False),
            b.Reshape(top_scores, [image_classes, 1, top_k], special_zero=False),
            b.constant([top_k]),
            b.constant([self.nms_threshold]),
            b.constant([_LOWEST_SCORE]),
        )
        empty = b.Expand(b.constant(np.zeros((), np.int64)), [image_classes, top_k])
        ones = b.Expand(b.constant(np.ones((), np.int64)), b.Gather(b.Shape(rows), [0], axis=0))
        marks = b.ScatterND(empty, b.Gather(rows, [0, 2], axis=1), ones)
        is_selected = b.Greater(b.Reshape(marks, [images, classes, top_k], special_zero=False), b.constant(0))
        no_score = b.constant(np.float32(-np.inf))
        table = b.Expand(no_score, [images, classes, count])
        table = b.ScatterElements(table, indices, b.Where(is_selected, top_scores, no_score), axis=2)
        return b.Reshape(b.Transpose(table, [0, 2, 1]), [images, count * classes], special_zero=False)

    def _build_table(self, b: Builder, selected: Value, boxes: Value, images: int, count: int, classes: int) -> Any:
        """Build the output rows: image by image, the best boxes sorted by class; after the last image, an end mark and zeros."""
        rows = int(self.row_count(images, count, classes))
        limit = self.keep_top_k[0]
        top_k = min(count * classes, limit) if limit > 0 else count * classes
        scores, positions = b.TopK(selected, [top_k], axis=1)
        class_id = b.Mod(positions, b.constant(classes))
        order = b.Where(b.Greater(scores, _LOWEST_SCORE), class_id, b.constant(classes))
        order = b.TopK(order, [top_k], axis=1, largest=False)[1]
        scores, positions = (b.Reshape(b.GatherElements(x, order, axis=1), [-1]) for x in (scores, positions))
        refuse_table((images, top_k), 8, "the image indices of a DetectionOutput")
        refuse_table((rows, 7), 8, "the rows of a DetectionOutput")
        image = b.constant(np.repeat(np.arange(images), top_k))
        is_row = b.Greater(scores, _LOWEST_SCORE)
        total = images * top_k
        order = b.TopK(b.Where(is_row, b.constant(0), b.constant(1)), [total], axis=0, largest=False)[1]
        if total > rows:
            order = b.Slice(order, [0], [rows], [0])
        scores, positions, image = (b.Gather(x, order, axis=0) for x in (scores, positions, image))
        class_id, prior = b.Mod(positions, b.constant(classes)), b.Divide(positions, b.constant(classes))
        box_class = class_id if boxes.dims[1] == classes and not self.share_location else b.Multiply(class_id, b.constant(0))
        corners = b.GatherND(boxes, b.Concat(*(b.Unsqueeze(x, [1]) for x in (image, box_class, prior)), axis=1))
        if self.clip_after_nms:
            corners = _clip_to_unit(b, corners)
        row_total = b.ReduceSum(b.Cast(is_row, to=dtypes.i64), [0], keepdims=True)
        class_id = b.Subtract(class_id, b.constant(1)) if self.decrease_label_id else class_id
        columns = [b.Unsqueeze(x, [1]) for x in (b.Cast(image, to=dtypes.f32), b.Cast(class_id, to=dtypes.f32), scores)]
        table = b.Concat(*columns, corners, axis=1)
        rank = b.constant(np.arange(min(rows, total)).reshape(-1, 1))
        table = b.Where(b.Less(rank, row_total), table, 0.0)
        if rows > total:
            table = b.Pad(table, [0, 0, rows - total, 0])
        is_first_column = np.zeros((rows, 7), bool)
        is_first_column[:, 0] = True
        is_end_mark = b.And(b.Equal(b.constant(np.arange(rows).reshape(-1, 1)), row_total), b.constant(is_first_column))
        return b.Unsqueeze(b.Where(is_end_mark, -1.0, table), [0, 1])


def _clip_to_unit(b: Builder, corners: Value) -> Any:
    return b.Maximum(b.Minimum(corners, 1.0), 0.0)
