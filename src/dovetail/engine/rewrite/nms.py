"""Rewrite of NonMaxSuppression: one operator fills a static-shape table of selected boxes, another reads the output rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.ir import dtypes, symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import constant_value
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.detection.nms import NonMaxSuppression, corners_of, select_boxes


class NmsTable(
    Op,
    sig="boxes: f32, scores: f32, iou_threshold: f32, score_threshold: f32 -> table: i32, counts: i32",
    is_registered=False,
):
    """NmsTable returns the boxes selected for each batch and class, by decreasing score, and the number of boxes.

    ``table`` is [batches, classes, n]; the first ``counts`` entries for each batch and class are valid. Attributes and inputs are
    those of NonMaxSuppression. Only the engine uses this operator.
    """

    max_output_boxes_per_class: int
    center_point_box: bool = False
    inclusive: bool = False

    def types(self, boxes: View, scores: View, iou_threshold: View, score_threshold: View) -> list[Type]:
        NonMaxSuppression().types(boxes, scores, None, iou_threshold, score_threshold)
        batches, classes, count = scores.dims
        table = (batches, classes, symbolic.minimum(self.max_output_boxes_per_class, count))
        return [Tensor(dtypes.i32, table), Tensor(dtypes.i32, (batches, classes))]

    def evaluate(self, xp: Namespace, boxes: Array, scores: Array, iou_threshold: Array, score_threshold: Array) -> Array:
        corners = corners_of(boxes, self.center_point_box)
        table = np.zeros((*scores.shape[:2], min(self.max_output_boxes_per_class, scores.shape[2])), np.int32)
        counts = np.zeros(scores.shape[:2], np.int32)
        limits = self.max_output_boxes_per_class, iou_threshold.reshape(()), score_threshold.reshape(())
        for batch, label in np.ndindex(counts.shape):
            selected = select_boxes(corners[batch], scores[batch, label], *limits, self.inclusive)
            counts[batch, label] = len(selected)
            table[batch, label, : len(selected)] = selected
        return table, counts


class NmsRows(Op, sig="scores: f32, table: i32, counts: i32 -> indices: I, values: F, count: I", is_registered=False):
    """NmsRows returns the outputs of ``nms``, a NonMaxSuppression, from a table of selected boxes. Only the engine uses it."""

    nms: NonMaxSuppression
    outputs: int = 1

    def types(self, *xs: View) -> list[Type]:
        rows: Any = (None, 3)
        types: list[Type] = [Tensor(self.nms.output_type, rows), Tensor(dtypes.f32, rows), Tensor(self.nms.output_type, (1,))]
        return types[: self.outputs]

    def value(self, *xs: View) -> Array:
        raise symbolic.Inexact("which boxes are selected")

    def evaluate(self, xp: Namespace, scores: Array, table: Array, counts: Array) -> Array:
        batch, label, index = np.nonzero(np.arange(table.shape[2]) < counts[..., None])
        boxes = table[batch, label, index]
        return self.nms.make_outputs(xp, np.stack([batch, label, boxes], axis=1), scores[batch, label, boxes], scores)


def rewrite_nms(b: Builder, op: NonMaxSuppression, xs: list[Value | None]) -> Sequence[Value] | None:
    """Rewrite NonMaxSuppression to NmsTable and NmsRows; None for types other than f32.

    None too where the maximum number of boxes per class is no known constant.
    """
    padded: list[Value | None] = [*xs, None, None, None]
    boxes, scores, max_boxes_input, iou_threshold, score_threshold, *others = padded
    thresholds = iou_threshold, score_threshold
    if any(x is not None and (x.shape is None or x.dtype.name != "f32") for x in (boxes, scores, *thresholds)):
        return None
    if not all(x is None or _is_zero(x) for x in others):
        return None
    max_boxes = np.zeros((), np.int64) if max_boxes_input is None else constant_value(max_boxes_input)
    if boxes is None or scores is None or scores.shape is None or max_boxes is None:
        return None
    numbers = [
        b.constant(np.full((), default, np.float32)) if x is None else x
        for x, default in zip(thresholds, (0, -np.inf), strict=True)
    ]
    table = NmsTable(max(int(max_boxes.reshape(())), 0), op.center_point_box, op.inclusive)
    return b.add(NmsRows(op, op.outputs), scores, *b.add(table, boxes, scores, *numbers))


def _is_zero(x: Value) -> bool:
    constant = constant_value(x)
    return constant is not None and not constant.any()
