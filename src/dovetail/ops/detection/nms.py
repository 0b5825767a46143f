"""Non-maximum suppression: NonMaxSuppression of ONNX and OpenVINO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, View, agree
from dovetail.ops.casts import as_type
from dovetail.ops.detection.nms_decomposition import build_outputs, iou_matrix_of, select_boxes_in_loop

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_ENCODING = "box_encoding~{corner:false,center:true}:center_point_box=corner"


def check_index_type(dtype: DType) -> None:
    """Raise RuleError [attribute.value] unless the type of output indices is i32 or i64."""
    if dtype not in ("i32", "i64"):
        raise RuleError("attribute.value", f"output_type must be i32 or i64, got {dtype}")


def nms_output_types(op: Op, box_size: int, dtype: DType, boxes: View, scores: View, *limits: View | None) -> list[Type]:
    """Check the shapes of boxes (``box_size`` numbers per box), scores and limits; return the types of an NMS's three outputs."""
    check_inputs(op, (boxes, scores, *limits))
    for x, name in ((boxes, "boxes"), (scores, "scores")):
        if x.shape is not None and len(x.shape) != 3:
            raise RuleError("shape.rank", f"{name} must have rank 3, got {len(x.shape)}")
    if boxes.shape is not None:
        if symbolic.equal(boxes.shape[2], box_size) is False:
            raise RuleError("shape.disagree", f"a box must have {box_size} numbers, got {boxes.shape[2]}")
        if scores.shape is not None:
            agree(boxes.shape[0], scores.shape[0], ("boxes", 0), ("scores", 0))
            agree(boxes.shape[1], scores.shape[2], ("boxes", 1), ("scores", 2))
    for limit in limits:
        if limit is not None and any(symbolic.equal(size, 1) is False for size in limit.shape or ()):
            raise RuleError("shape.single", f"limits and thresholds must have one element, got {limit.type}")
    rows: Any = (None, 3)
    return [Tensor(dtype, rows), Tensor(dtypes.f32, rows), Tensor(dtype, (1,))]


class NonMaxSuppression(
    Op,
    sig="boxes: F, scores: F, max_output_boxes_per_class?: I1, iou_threshold?: F1, score_threshold?: F2, soft_nms_sigma?: F3 "
    "-> selected_indices: I, selected_scores: F, valid_outputs: I",
    onnx=(
        "NonMaxSuppression-10,11(boxes, scores, max_output_boxes_per_class?, iou_threshold?, score_threshold?; "
        "center_point_box=0 | inclusive=false, sort_result_descending=false, output_type=i64, outputs=1)"
    ),
    openvino=(
        "> NonMaxSuppression-9(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, soft_nms_sigma?; "
        f"{_ENCODING}, sort_result_descending, output_type | inclusive=true, soft_and_hard=false, outputs=3)"
    ),
):
    """NonMaxSuppression selects boxes by descending score and drops boxes that overlap a selected box too much.

    ``boxes`` is [batches, n, 4]: any two opposite corners (y, x, y, x), or with ``center_point_box`` center and size (x, y,
    width, height). ``scores`` is [batches, classes, n]; batches and classes are independent of each other. At most
    ``max_output_boxes_per_class`` boxes (omitted: none) with a score above ``score_threshold`` (omitted: any) are selected,
    equal scores in the order of their indices. A box is dropped where its intersection over union (IoU) with a selected box
    exceeds ``iou_threshold`` (omitted: 0), or with ``inclusive`` reaches it. The IoU with a box without area is 0.

    Where ``soft_nms_sigma`` is greater than 0 (soft NMS), no box is dropped, unless ``soft_and_hard`` is true. For each
    selected box, all other scores are multiplied by exp(-IoU * IoU / (2 * sigma)). The box with the greatest remaining score is
    selected next, as long as this score is above ``score_threshold``.

    ``selected_indices`` are rows [batch, class, box], sorted by batch, class and descending score; with
    ``sort_result_descending``, by descending score only. With three ``outputs``, ``selected_scores`` are rows [batch, class,
    score] in f32, and ``valid_outputs`` is the number of rows. The computation runs in f32.
    Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is ``soft_and_hard``).
    """

    selects_by_score = True

    sizes_depend_on_data = True

    center_point_box: bool = False
    inclusive: bool = False
    sort_result_descending: bool = False
    output_type: DType = dtypes.i64
    outputs: int = 1
    soft_and_hard: bool = False

    def validate(self) -> None:
        if self.outputs not in (1, 3):
            raise RuleError("node.outputs", f"NonMaxSuppression has 1 or 3 outputs, got {self.outputs}")
        check_index_type(self.output_type)

    def types(self, boxes: View, scores: View, *limits: View | None) -> list[Type]:
        return nms_output_types(self, 4, self.output_type, boxes, scores, *limits)[: self.outputs]

    def value(self, *xs: View | None) -> Any:
        raise symbolic.Inexact("the selected boxes")

    def evaluate(self, xp: Namespace, boxes: Array, scores: Array, *limits: Array | None) -> Any:
        defaults = (0, 0, -np.inf, 0)
        given_limits = (*limits, None, None, None, None)[:4]
        numbers = (_scalar_of(x, default) for x, default in zip(given_limits, defaults, strict=True))
        return self.make_outputs(xp, *_suppress(self, _as_f32(boxes), _as_f32(scores), *numbers), boxes)

    def make_outputs(self, xp: Namespace, rows: Array, values: Array, like: Array) -> Any:
        """Return the outputs from rows [batch, class, box], sorted by batch, class and descending score, and their scores."""
        if self.sort_result_descending:
            order = np.argsort(-values, kind="stable")
            rows, values = rows[order], values[order]
        indices = arrays.from_numpy(xp, rows.astype(self.output_type.numpy), like)
        if self.outputs == 1:
            return indices
        score_rows = np.concatenate([rows[:, :2].astype(np.float32), values[:, None]], axis=1)
        count = np.array([len(rows)], self.output_type.numpy)
        return indices, arrays.from_numpy(xp, score_rows, like), arrays.from_numpy(xp, count, like)

    def vjp(self, b: Builder, g: tuple[Value | None, ...], y: Value | tuple[Value, ...], *xs: Value | None) -> Any:
        if self.outputs == 1 or g[1] is None:
            return [None] * len(xs)
        raise UnsupportedError("grad.op", "selected_scores have no gradient: gather the scores by selected_indices")

    def decompose(self, b: Builder, boxes: Value, scores: Value, *limits: Value | None) -> Any:
        """Emit NonMaxSuppression with f32 inputs and one output, then sort, gather and count the rows of this output.

        Soft NMS becomes a Loop. An inclusive IoU threshold becomes the next smaller exclusive threshold.
        """
        plain = NonMaxSuppression(self.center_point_box)
        given_limits = (*limits, None, None, None, None)[:4]
        limit_types = (dtypes.i64, dtypes.f32, dtypes.f32, dtypes.f32)
        max_output_boxes_per_class, iou_threshold, score_threshold, soft_nms_sigma = (
            None if x is None else as_type(b, x, kind) for x, kind in zip(given_limits, limit_types, strict=True)
        )
        inputs: list[Any] = [as_type(b, boxes, dtypes.f32), as_type(b, scores, dtypes.f32)]
        if soft_nms_sigma is not None and is_soft(soft_nms_sigma):
            rows_and_scores = self._decompose_soft(
                b, inputs[0], inputs[1], max_output_boxes_per_class, iou_threshold, score_threshold, soft_nms_sigma
            )
            return build_outputs(b, *rows_and_scores, self.sort_result_descending, self.output_type)[: self.outputs]
        if self.inclusive:
            max_output_boxes_per_class, iou_threshold = self.make_exclusive(b, max_output_boxes_per_class, iou_threshold)
        inputs += [max_output_boxes_per_class, iou_threshold, score_threshold]
        if self == plain and all(new is old for new, old in zip(inputs, (boxes, scores, *given_limits), strict=False)):
            return None
        rows = b.add(plain, *inputs)[0]
        return build_outputs(b, rows, b.GatherND(inputs[1], rows), self.sort_result_descending, self.output_type)[: self.outputs]

    def _decompose_soft(
        self,
        b: Builder,
        boxes: Value,
        scores: Value,
        max_output_boxes_per_class: Value | None,
        iou_threshold: Value | None,
        score_threshold: Value | None,
        soft_nms_sigma: Value,
    ) -> tuple[Any, Any]:
        """Emit soft NMS; return the selected rows [batch, class, box] and their scores."""
        iou = iou_matrix_of(b, boxes, self.center_point_box)
        soft_nms_sigma = b.Reshape(soft_nms_sigma, [])
        is_decaying = b.Greater(soft_nms_sigma, 0.0)
        decay = b.Where(is_decaying, b.Exp(b.Multiply(b.Divide(-0.5, soft_nms_sigma), b.Multiply(iou, iou))), 1.0)
        limit = b.constant(0.0) if iou_threshold is None else b.Reshape(iou_threshold, [])
        dropped = (b.GreaterEqual if self.inclusive else b.Greater)(iou, limit)
        if not self.soft_and_hard:
            dropped = b.And(dropped, b.Not(is_decaying))
        return select_boxes_in_loop(b, scores, decay, dropped, max_output_boxes_per_class, score_threshold)

    def make_exclusive(
        self, b: Builder, max_output_boxes_per_class: Value | None, iou_threshold: Value | None
    ) -> tuple[Any, Any]:
        """Return a box limit and an IoU threshold for the test ``iou > threshold`` in place of ``iou >= threshold``.

        Both tests drop the same boxes. With ``iou_threshold`` 0, a selected box drops all others: at most one box of a class
        is selected.
        """
        limit = known_value_of(iou_threshold)
        if limit is None:
            raise UnsupportedError(
                "constant.needed", "iou_threshold of NonMaxSuppression must be constant where the threshold is inclusive"
            )
        if float(limit.reshape(())) > 0:
            return max_output_boxes_per_class, b.constant(np.nextafter(limit.astype(np.float32), np.float32(0)))
        count = (
            None
            if max_output_boxes_per_class is None
            else b.Minimum(
                max_output_boxes_per_class,
                b.constant(np.ones((), max_output_boxes_per_class.dtype.numpy), max_output_boxes_per_class.dtype),
            )
        )
        return count, None


def known_value_of(threshold: Value | None) -> Any:
    """Return the elements of ``threshold``, 0 for an omitted threshold; None if the elements do not follow from constants."""
    from dovetail.ir.evaluate import constant_value

    return np.zeros((), np.float32) if threshold is None else constant_value(threshold)


def is_soft(sigma: Value | None) -> bool:
    """Return whether a ``soft_nms_sigma`` may be greater than 0."""
    value = None if sigma is None else known_value_of(sigma)
    return sigma is not None and (value is None or bool((value > 0).any()))


def next_f32_above(threshold: Array) -> Any:
    """Return the least f32 above ``threshold`` that is not subnormal: a processor may flush subnormal numbers to 0."""
    return np.maximum(np.nextafter(threshold.astype(np.float32), np.float32(np.inf)), np.finfo(np.float32).tiny)


def _as_f32(x: Array) -> Any:
    return arrays.to_numpy(x).astype(np.float32)


def _scalar_of(x: Array | None, default: float) -> Any:
    return default if x is None else np.asarray(arrays.to_numpy(x)).reshape(-1)[0]


def _suppress(
    op: NonMaxSuppression,
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array,
    iou_threshold: Array,
    score_threshold: Array,
    soft_nms_sigma: Array,
) -> tuple[Any, Any]:
    """Return the selected rows [batch, class, box] and their scores; with soft NMS, the scores are decayed."""
    corners = corners_of(boxes, op.center_point_box)
    iou_threshold, score_threshold, soft_nms_sigma = (
        np.float32(iou_threshold),
        np.float32(score_threshold),
        np.float32(soft_nms_sigma),
    )
    rows: list[tuple[int, int, int]] = []
    remaining_scores: list[Any] = []
    for batch, label in np.ndindex(scores.shape[:2]):
        class_scores, batch_corners = scores[batch, label], corners[batch]
        if soft_nms_sigma > 0:
            selected, new_scores = _select_boxes_soft(
                batch_corners,
                class_scores,
                int(max_output_boxes_per_class),
                iou_threshold if op.soft_and_hard else None,
                score_threshold,
                soft_nms_sigma,
                op.inclusive,
            )
        else:
            selected = select_boxes(
                batch_corners, class_scores, int(max_output_boxes_per_class), iou_threshold, score_threshold, op.inclusive
            )
            new_scores = class_scores[selected]
        rows.extend((batch, label, box) for box in selected)
        remaining_scores.extend(new_scores)
    return np.array(rows, np.int64).reshape(-1, 3), np.array(remaining_scores, np.float32)


def corners_of(boxes: Array, center_point_box: bool) -> Any:
    """Return the minima and maxima of each box along both axes: [batches, 4, n]."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        half = second / 2
        first, second = first - half, first + half
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1).transpose(0, 2, 1)


def select_boxes(
    corners: Array,
    scores: Array,
    max_output_boxes_per_class: int,
    iou_threshold: Array,
    score_threshold: Array,
    is_inclusive: bool,
) -> list[int]:
    """Return the indices of the selected boxes of one class, sorted by descending score."""
    candidates = np.flatnonzero(scores > score_threshold) if score_threshold > -np.inf else np.arange(len(scores))
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    selected: list[int] = []
    while len(candidates) and len(selected) < max_output_boxes_per_class:
        selected.append(int(candidates[0]))
        iou = _iou_of(corners[:, candidates[0]], corners[:, candidates[1:]])
        candidates = candidates[1:][iou < iou_threshold if is_inclusive else iou <= iou_threshold]
    return selected


def _select_boxes_soft(
    corners: Array,
    scores: Array,
    max_output_boxes_per_class: int,
    iou_threshold: Array,
    score_threshold: Array,
    soft_nms_sigma: Array,
    is_inclusive: bool,
) -> tuple[list[int], list[Any]]:
    """Return the indices of the selected boxes of one class and their decayed scores (soft NMS).

    With ``iou_threshold`` None, no box is dropped for its IoU.
    """
    remaining = np.where(scores > score_threshold, scores, np.float32(-np.inf))
    selected: list[int] = []
    values: list[Any] = []
    while len(selected) < max_output_boxes_per_class and (remaining > -np.inf).any():
        box = int(np.argmax(remaining))
        selected.append(box)
        values.append(remaining[box])
        iou = _iou_of(corners[:, box], corners)
        is_candidate = remaining > -np.inf
        is_candidate[box] = False
        if iou_threshold is not None:
            is_candidate &= iou < iou_threshold if is_inclusive else iou <= iou_threshold
        decayed = np.where(is_candidate, remaining, 0) * np.exp(np.float32(-0.5) / soft_nms_sigma * (iou * iou))
        remaining = np.where(is_candidate & (decayed > score_threshold), decayed, np.float32(-np.inf))
    return selected, values


def _iou_of(box: Array, others: Array) -> Any:
    """Return the IoU of ``box`` and each of ``others``; 0 where an area is 0."""
    sides = np.minimum(box[2:, None], others[2:]) - np.maximum(box[:2, None], others[:2])
    intersection = np.prod(np.maximum(sides, 0), axis=0)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[2:] - others[:2], axis=0)
    union = area + areas - intersection
    is_valid = (area > 0) & (areas > 0) & (union > 0) & (sides > 0).all(axis=0)
    return np.where(is_valid, intersection / np.where(is_valid, union, 1), np.float32(0)).astype(np.float32)
