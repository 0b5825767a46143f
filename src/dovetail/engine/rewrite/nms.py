"""NonMaxSuppression in two operators: what is kept, in a table whose shape is known before, and the rows that come of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.interpreter.evaluate import constant_value
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type
from dovetail.ops.detection.nms import NonMaxSuppression, corners_of, select_boxes


class NmsTable(Op, sig="boxes: f32, scores: f32, overlap: f32, least: f32 -> table: i32, counts: i32", is_registered=False):
    """For each batch and class the boxes that are kept, by falling score, and how many: behind these the table holds anything.

    Attributes and inputs are those of NonMaxSuppression. Not one of a model's operators.
    """

    most: int
    center: bool = False
    inclusive: bool = False

    def types(self, boxes: Any, scores: Any, overlap: Any, least: Any) -> list[Type]:
        NonMaxSuppression().types(boxes, scores, None, overlap, least)
        batches, classes, count = scores.dims
        table = (batches, classes, symbolic.minimum(self.most, count))
        return [Tensor(dtypes.i32, table), Tensor(dtypes.i32, (batches, classes))]

    def evaluate(self, xp: Any, boxes: Any, scores: Any, overlap: Any, least: Any) -> Any:
        corners = corners_of(boxes, self.center)
        table = np.zeros((*scores.shape[:2], min(self.most, scores.shape[2])), np.int32)
        counts = np.zeros(scores.shape[:2], np.int32)
        limits = self.most, overlap.reshape(()), least.reshape(())
        for batch, label in np.ndindex(counts.shape):
            chosen = select_boxes(corners[batch], scores[batch, label], *limits, self.inclusive)
            counts[batch, label] = len(chosen)
            table[batch, label, : len(chosen)] = chosen
        return table, counts


class NmsRows(Op, sig="scores: f32, table: i32, counts: i32 -> indices: I, values: F, count: I", is_registered=False):
    """What ``whole``, a NonMaxSuppression, says of a table of what is kept. Not one of a model's operators."""

    whole: Any
    outputs: int = 1

    def types(self, *xs: Any) -> list[Type]:
        rows: Any = (None, 3)
        found: list[Type] = [Tensor(self.whole.output_type, rows), Tensor(dtypes.f32, rows), Tensor(self.whole.output_type, (1,))]
        return found[: self.outputs]

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("which boxes are kept")

    def evaluate(self, xp: Any, scores: Any, table: Any, counts: Any) -> Any:
        batch, label, place = np.nonzero(np.arange(table.shape[2]) < counts[..., None])
        boxes = table[batch, label, place]
        return self.whole.make_outputs(xp, np.stack([batch, label, boxes], axis=1), scores[batch, label, boxes], scores)


def suppressed(b: Builder, op: NonMaxSuppression, xs: list[Value | None]) -> Any:
    """The two operators; None where inputs or types are others than the kernel's, or the most that is kept is not known."""
    given: list[Value | None] = [*xs, None, None, None]
    boxes, scores, most, overlap, least, *others = given
    limits = overlap, least
    if any(x is not None and (x.shape is None or x.dtype.name != "f32") for x in (boxes, scores, *limits)):
        return None
    if not all(x is None or _is_zero(x) for x in others):
        return None
    found = np.zeros((), np.int64) if most is None else constant_value(most)
    if boxes is None or scores is None or scores.shape is None or found is None:
        return None
    numbers = (
        b.constant(np.full((), value, np.float32)) if x is None else x for x, value in zip(limits, (0, -np.inf), strict=True)
    )
    kept = NmsTable(max(int(found.reshape(())), 0), op.center_point_box, op.inclusive)
    return b.add(NmsRows(op, op.outputs), scores, *b.add(kept, boxes, scores, *numbers))


def _is_zero(x: Value) -> bool:
    found = constant_value(x)
    return found is not None and not found.any()
