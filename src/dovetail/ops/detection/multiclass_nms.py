"""Non-maximum suppression of several classes: MulticlassNms and MatrixNms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, View, agree, is_static, static
from dovetail.ops.casts import as_type

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_LOWEST_SCORE = float(np.finfo(np.float32).min)
"""A score below the score of any candidate and above -inf, which is the score of boxes that are not candidates."""
_SORTS = ("none", "score", "classid")
_SHARED = (
    "sort_result_type=none, sort_result_across_batch=false, output_type=i64, score_threshold=0, "
    "nms_top_k=-1, keep_top_k=-1, background_class=-1, normalized=true"
)


class _MulticlassNmsBase(Op):
    """_MulticlassNmsBase is the base class of MulticlassNms and MatrixNms, with their common attributes and outputs.

    ``boxes`` [images, boxes, 4] holds corners, and ``scores`` is [images, classes, boxes]. ``selected_outputs`` has rows
    [class, score, x1, y1, x2, y2]. ``selected_indices`` holds the index of each row's box in the boxes of all images
    (image * boxes + box). ``selected_num`` is the number of rows of each image.
    """

    selects_by_score = True

    sizes_depend_on_data = True

    sorts_by_class_in_image: ClassVar[bool] = True

    sort_result_type: str = "none"
    sort_result_across_batch: bool = False
    output_type: DType = dtypes.i64
    score_threshold: float = 0.0
    nms_top_k: int = -1
    keep_top_k: int = -1
    background_class: int = -1
    normalized: bool = True

    def validate(self) -> None:
        if self.sort_result_type not in _SORTS:
            raise RuleError(
                "attribute.value", f"sort_result_type must be one of {', '.join(_SORTS)}, got {self.sort_result_type!r}"
            )
        if self.output_type not in ("i32", "i64"):
            raise RuleError("attribute.value", f"output_type must be i32 or i64, got {self.output_type}")

    def types(self, boxes: View, scores: View, *rest: View | None) -> list[Type]:
        dtype = check_inputs(self, (boxes, scores, *rest)).get("F")
        for x, name in ((boxes, "boxes"), (scores, "scores")):
            if x.shape is not None and len(x.shape) != 3 and not rest:
                raise RuleError("shape.rank", f"{name} must have rank 3, got {len(x.shape)}")
        images = None
        if boxes.shape is not None and scores.shape is not None and not rest:
            images = agree(boxes.shape[0], scores.shape[0], ("boxes", 0), ("scores", 0))
            agree(boxes.shape[1], scores.shape[2], ("boxes", 1), ("scores", 2))
            if symbolic.equal(boxes.shape[2], 4) is False:
                raise RuleError("shape.disagree", f"a box must have 4 numbers, got {boxes.shape[2]}")
        return [Tensor(dtype, (None, 6)), Tensor(self.output_type, (None, 1)), Tensor(self.output_type, (images,))]  # type: ignore[arg-type]

    def value(self, *xs: View | None) -> Any:
        raise symbolic.Inexact("the selected boxes")

    def select_candidates(self, b: Builder, boxes: Value, scores: Value, inclusive: bool) -> tuple[Any, Any, Any]:
        """Return the best k scores of each class in descending order, and the indices and coordinates of the scored boxes.

        The shapes are [images, classes, k] and for coordinates [images, classes, k, 4]. The score of a box that is not a
        candidate is -inf. With ``inclusive``, a score equal to ``score_threshold`` is a candidate.
        """
        if not is_static(boxes.type) or not is_static(scores.type):
            raise UnsupportedError(
                "type.unknown", f"sizes of {type(self).__name__} must be constant, got {boxes.type} and {scores.type}"
            )
        images, classes, count = static(scores.shape)
        refuse_table((classes,), 8, f"the mask of classes of a {type(self).__name__}")
        allowed = (np.arange(classes) != self.background_class).reshape(1, -1, 1)
        scores = as_type(b, scores, dtypes.f32)
        is_above = (b.GreaterEqual if inclusive else b.Greater)(scores, self.score_threshold)
        scores = b.Where(b.And(b.constant(allowed), is_above), scores, b.constant(-np.inf))
        top_k = min(self.nms_top_k, count) if self.nms_top_k > -1 else count
        top_scores, indices = b.TopK(scores, [top_k], axis=2)
        all_boxes = b.Expand(b.Unsqueeze(as_type(b, boxes, dtypes.f32), [1]), [images, classes, count, 4])
        return top_scores, indices, b.GatherND(all_boxes, b.Unsqueeze(indices, [3]), batch_dims=2)

    def build_outputs(self, b: Builder, boxes: Value, scores_kept: Value, indices: Value) -> list[Any]:
        """Return the three outputs from ``scores_kept`` [images, classes, k], which is -inf for a box that is not selected."""
        images, classes, top_k = static(scores_kept.shape)
        count = static(boxes.shape)[1]
        all_scores = b.ScatterElements(b.Expand(b.constant(-np.inf), [images, classes, count]), indices, scores_kept, axis=2)
        limit = min(classes * top_k, self.keep_top_k) if self.keep_top_k > -1 else classes * top_k
        scores, positions = b.TopK(b.Reshape(all_scores, [images, classes * count], special_zero=False), [limit], axis=1)
        is_selected = b.Greater(scores, _LOWEST_SCORE)
        if self.sort_result_type == "classid" and not self.sort_result_across_batch and self.sorts_by_class_in_image:
            class_id = b.Where(is_selected, b.Divide(positions, b.constant(count)), b.constant(classes))
            order = b.TopK(class_id, [limit], axis=1, largest=False)[1]
            scores, positions = (b.GatherElements(x, order, axis=1) for x in (scores, positions))
        counts = b.ReduceSum(b.Cast(is_selected, to=dtypes.i64), [1], keepdims=False)
        rows = b.Squeeze(b.NonZero(b.Greater(b.Reshape(scores, [-1]), _LOWEST_SCORE)), [0])
        refuse_table((images, limit), 8, f"the image indices of a {type(self).__name__}")
        image = b.constant(np.repeat(np.arange(images), limit))
        scores, positions, image = (b.Gather(b.Reshape(x, [-1]), rows, axis=0) for x in (scores, positions, image))
        class_id, box = b.Divide(positions, b.constant(count)), b.Mod(positions, b.constant(count))
        if self.sort_result_across_batch and self.sort_result_type != "none":
            key = scores if self.sort_result_type == "score" else class_id
            order = b.TopK(key, b.Shape(key), axis=0, largest=self.sort_result_type == "score")[1]
            scores, class_id, box, image = (b.Gather(x, order, axis=0) for x in (scores, class_id, box, image))
        dtype = boxes.dtype
        corners = b.GatherND(boxes, b.Concat(b.Unsqueeze(image, [1]), b.Unsqueeze(box, [1]), axis=1))
        columns = [b.Unsqueeze(as_type(b, x, dtype), [1]) for x in (class_id, scores)]
        global_index = b.Unsqueeze(b.Add(b.Multiply(image, b.constant(count)), box), [1])
        return [
            b.Concat(*columns, corners, axis=1),
            as_type(b, global_index, self.output_type),
            as_type(b, counts, self.output_type),
        ]


_CLASSES = f"iou_threshold=0, nms_eta=1.0, {_SHARED}"


class MulticlassNms(
    _MulticlassNmsBase,
    sig="boxes: F, scores: F, roisnum?: I -> selected_outputs: F, selected_indices: I1, selected_num: I2",
    openvino=(f"MulticlassNms-8(boxes, scores; {_CLASSES})", f"MulticlassNms-9(boxes, scores, roisnum?; {_CLASSES})"),
):
    """MulticlassNms applies non-maximum suppression to each class of each image, ``background_class`` excepted.

    The candidates of a class are the best ``nms_top_k`` (-1: all) boxes with a score of at least ``score_threshold``. A box is
    dropped where its IoU with a selected box of the class reaches ``iou_threshold``. The best ``keep_top_k`` (-1: all)
    remaining boxes of each image are the result.

    ``boxes`` [images, boxes, 4] are corners; without ``normalized`` corners are pixel indices, and a box includes the pixels of
    its last corner. ``scores`` are [images, classes, boxes]. ``selected_outputs`` are rows [class, score, x1, y1, x2, y2].
    ``selected_indices`` [rows, 1] are the indices of these boxes, counted through all images (image * boxes + box).
    ``selected_num`` is the number of rows of each image. Rows are sorted by image and descending score; with ``sort_result_type``
    classid, by image, class and descending score. With ``sort_result_across_batch``, rows are sorted by score or class first,
    then by image.

    Two forms run only in OpenVINO: ``nms_eta`` below 1, which lowers the IoU threshold after each selected box, and
    ``roisnum``, with which each image has separate boxes.
    Source: OpenVINO MulticlassNms-8, -9.
    """

    iou_threshold: float = 0.0
    nms_eta: float = 1.0

    def decompose(self, b: Builder, boxes: Value, scores: Value, roisnum: Value | None = None) -> Any:
        if roisnum is not None or self.nms_eta != 1:
            raise UnsupportedError("op.unsupported", "MulticlassNms with nms_eta below 1 or with roisnum is not supported")
        top_scores, indices, candidates = self.select_candidates(b, boxes, scores, True)
        images, classes, top_k = top_scores.dims
        low, high = b.Slice(candidates, [0], [2], [3]), b.Slice(candidates, [2], [4], [3])
        high = high if self.normalized else b.Add(high, 1.0)
        # A box whose corners are in the wrong order has no area.
        candidates = b.Concat(low, b.Maximum(low, high), axis=3)
        rows = b.NonMaxSuppression(
            b.Reshape(candidates, [images * classes, top_k, 4], special_zero=False),
            b.Reshape(top_scores, [images * classes, 1, top_k], special_zero=False),
            b.constant([top_k]),
            b.constant([self.iou_threshold]),
            b.constant([_LOWEST_SCORE]),
            inclusive=True,
        )
        ones = b.Expand(b.constant(1), b.Gather(b.Shape(rows), [0], axis=0))
        marks = b.ScatterND(b.Expand(b.constant(0), [images * classes, top_k]), b.Gather(rows, [0, 2], axis=1), ones)
        is_kept = b.Greater(b.Reshape(marks, [images, classes, top_k], special_zero=False), b.constant(0))
        return self.build_outputs(b, boxes, b.Where(is_kept, top_scores, b.constant(-np.inf)), indices)


class MatrixNms(
    _MulticlassNmsBase,
    sig="boxes: F, scores: F -> selected_outputs: F, selected_indices: I1, selected_num: I2",
    openvino=(f"MatrixNms-8(boxes, scores; decay_function=linear, gaussian_sigma=2.0, post_threshold=0, {_SHARED})"),
):
    """MatrixNms lowers the score of each box by its IoU with better boxes of its class, instead of dropping boxes.

    The candidates of each class other than ``background_class`` in each image are the best ``nms_top_k`` (-1: all) boxes with a
    score above ``score_threshold``. The score of box i is multiplied by the minimum of ``(1 - o) / (1 - m)`` over all better
    boxes j; with ``decay_function`` gaussian, by the minimum of ``exp((m * m - o * o) * gaussian_sigma)``. Here o is the IoU of
    boxes i and j, and m the greatest IoU of box j with a box better than j. The best ``keep_top_k`` (-1: all) boxes of each
    image with a decayed score above ``post_threshold`` are selected.

    Inputs, outputs and the order of rows are those of MulticlassNms, except that ``sort_result_type`` classid has no effect
    without ``sort_result_across_batch``.
    Source: OpenVINO MatrixNms-8.
    """

    sorts_by_class_in_image = False

    decay_function: str = "linear"
    gaussian_sigma: float = 2.0
    post_threshold: float = 0.0

    def validate(self) -> None:
        super().validate()
        if self.decay_function not in ("linear", "gaussian"):
            raise RuleError("attribute.value", f"decay_function must be linear or gaussian, got {self.decay_function!r}")

    def decompose(self, b: Builder, boxes: Value, scores: Value) -> Any:
        top_scores, indices, candidates = self.select_candidates(b, boxes, scores, False)
        top_k = top_scores.dims[2]
        refuse_table((top_k, top_k), 1, "the pairs of boxes of a MatrixNms")
        iou = b.Where(b.constant(np.tri(top_k, k=-1, dtype=bool)), self._iou_of_pairs(b, candidates), 0.0)
        max_iou = b.Unsqueeze(b.ReduceMax(iou, [3], keepdims=False), [2])
        if self.decay_function == "linear":
            factors = b.Divide(b.Subtract(1.0, iou), b.Add(b.Subtract(1.0, max_iou), 1e-10))
        else:
            factors = b.Exp(b.Multiply(b.Subtract(b.Multiply(max_iou, max_iou), b.Multiply(iou, iou)), self.gaussian_sigma))
        factors = b.Where(b.constant(np.tri(top_k, k=-1, dtype=bool)), factors, 1.0)
        decayed = b.Multiply(b.Minimum(b.ReduceMin(factors, [3], keepdims=False), 1.0), top_scores)
        is_kept = b.And(b.Greater(top_scores, _LOWEST_SCORE), b.Greater(decayed, self.post_threshold))
        return self.build_outputs(b, boxes, b.Where(is_kept, decayed, b.constant(-np.inf)), indices)

    def _iou_of_pairs(self, b: Builder, boxes: Value) -> Any:
        """Return the IoU of each pair of boxes: [images, classes, k, k]."""
        extra = 0.0 if self.normalized else 1.0
        low, high = b.Slice(boxes, [0], [2], [3]), b.Slice(boxes, [2], [4], [3])
        sides = b.Subtract(high, low)
        is_box = b.GreaterEqual(b.ReduceMin(sides, [3], keepdims=False), 0.0)
        areas = b.Where(is_box, b.ReduceProd(b.Add(sides, extra), [3], keepdims=False), 0.0)
        first, second = ([b.Unsqueeze(x, [axis]) for x in (low, high, areas)] for axis in (3, 2))
        overlap = b.Subtract(b.Minimum(first[1], second[1]), b.Maximum(first[0], second[0]))
        intersects = b.GreaterEqual(b.ReduceMin(overlap, [4], keepdims=False), 0.0)
        area = b.ReduceProd(b.Add(overlap, extra), [4], keepdims=False)
        union = b.Subtract(b.Add(first[2], second[2]), area)
        return b.Where(intersects, b.Divide(area, b.Where(intersects, union, 1.0)), 0.0)
