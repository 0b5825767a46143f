"""Decomposition of non-maximum suppression: the IoU of all pairs of boxes, a Loop that selects boxes, the three outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph
from dovetail.ir.types import Tensor
from dovetail.ops.casts import as_type
from dovetail.ops.control_flow.loop import Loop

if TYPE_CHECKING:
    from dovetail.ir.graph import Value


def iou_matrix_of(b: Builder, boxes: Value, center_point_box: bool) -> Any:
    """Return the IoU of each pair of ``boxes`` [batches, n, 4]: [batches, n, n]; 0 for a box without area."""
    first, second = b.Slice(boxes, [0], [2], [2]), b.Slice(boxes, [2], [4], [2])
    if center_point_box:
        half = b.Multiply(second, 0.5)
        first, second = b.Subtract(first, half), b.Add(first, half)
    low, high = b.Minimum(first, second), b.Maximum(first, second)
    areas = b.ReduceProd(b.Subtract(high, low), [2], keepdims=False)
    ours, theirs = ([b.Unsqueeze(x, [axis]) for x in (low, high, areas)] for axis in (2, 1))
    sides = b.Subtract(b.Minimum(ours[1], theirs[1]), b.Maximum(ours[0], theirs[0]))
    intersection = b.ReduceProd(b.Maximum(sides, 0.0), [3], keepdims=False)
    return iou_of(b, intersection, ours[2], theirs[2])


def iou_of(b: Builder, intersection: Value, area: Value, other: Value) -> Any:
    """Return ``intersection / (area + other - intersection)``; 0 where an area or the intersection is 0."""
    union = b.Subtract(b.Add(area, other), intersection)
    is_valid = b.And(
        b.And(b.Greater(area, 0.0), b.Greater(other, 0.0)), b.And(b.Greater(union, 0.0), b.Greater(intersection, 0.0))
    )
    return b.Where(is_valid, b.Divide(intersection, b.Where(is_valid, union, 1.0)), 0.0)


def build_outputs(b: Builder, rows: Value, values: Value, sort_result_descending: bool, output_type: DType) -> list[Any]:
    """Return the three NMS outputs from rows [batch, class, box], sorted by batch, class and descending score.

    ``values`` are the scores of the rows. The outputs are the rows in ``output_type``, rows [batch, class, score] in f32, and
    the number of rows.
    """
    if sort_result_descending:
        values, order = b.TopK(values, b.Shape(values), axis=0)
        rows = b.Gather(rows, order, axis=0)
    score_rows = b.Concat(b.Cast(b.Slice(rows, [0], [2], [1]), to=dtypes.f32), b.Unsqueeze(values, [1]), axis=1)
    return [as_type(b, rows, output_type), score_rows, as_type(b, b.Gather(b.Shape(rows), [0], axis=0), output_type)]


def select_boxes_in_loop(
    b: Builder,
    scores: Value,
    decay: Value | None,
    dropped: Value,
    max_output_boxes_per_class: Value | None,
    score_threshold: Value | None,
) -> tuple[Any, Any]:
    """Select boxes in a Loop: return rows [batch, class, box], sorted by batch, class and descending score, and their scores.

    Each trip selects in every class the box with the greatest of ``scores`` [batches, classes, n] above ``score_threshold``
    (None: any). ``max_output_boxes_per_class`` is the maximum number of trips (None: 0). The other scores of the class are
    multiplied by the selected box's row of ``decay`` [batches, n, n] (None: unchanged). A box is dropped where the selected
    box's row of ``dropped`` [batches, n, n] is true, or where its score is no longer above ``score_threshold``.
    """
    score_threshold = b.constant(-np.inf, dtypes.f32) if score_threshold is None else b.Reshape(score_threshold, [])
    max_output_boxes_per_class = (
        b.constant(0) if max_output_boxes_per_class is None else b.Reshape(max_output_boxes_per_class, [])
    )
    trips = b.Minimum(max_output_boxes_per_class, b.Reshape(b.Gather(b.Shape(scores), [2], axis=0), []))
    remaining = b.Where(b.Greater(scores, score_threshold), scores, b.constant(-np.inf, dtypes.f32))
    inputs = (remaining, dropped, score_threshold, *(() if decay is None else (decay,)))
    loop = Loop(body=_build_body(inputs), carried=1, scan_outputs=((0, False),) * 2, outputs=3)
    _, values, indices = b.add(loop, trips, None, *inputs)
    values, indices = (b.Transpose(x, [1, 2, 0]) for x in (values, indices))
    rows = b.Transpose(b.NonZero(b.Greater(values, b.constant(-np.inf, dtypes.f32))), [1, 0])
    boxes = b.Unsqueeze(b.GatherND(indices, rows), [1])
    return b.Concat(b.Slice(rows, [0], [2], [1]), boxes, axis=1), b.GatherND(values, rows)


def _build_body(inputs: tuple[Value, ...]) -> Graph:
    """Build the Loop body that selects the greatest score of each class; -inf is the score of selected and dropped boxes."""
    # The names of the graph and of its inputs are written into model files: a change would change the bytes.
    b = Builder("taken")
    b.input("trip", dtypes.i64, ())
    names = ("left", "dropped", "least", "weights")
    remaining, dropped, score_threshold, *decays = (
        b.input_of(name, Tensor(x.dtype, x.shape)) for name, x in zip(names, inputs, strict=False)
    )
    no_score = b.constant(-np.inf, dtypes.f32)
    best, index = b.TopK(remaining, [1], axis=2)
    is_candidate = b.And(b.Greater(remaining, no_score), b.Not(b.GatherND(dropped, index, batch_dims=1)))
    for decay in decays:
        remaining = b.Multiply(b.Where(is_candidate, remaining, 0.0), b.GatherND(decay, index, batch_dims=1))
        is_candidate = b.And(is_candidate, b.Greater(remaining, score_threshold))
    next_remaining = b.ScatterElements(
        b.Where(is_candidate, remaining, no_score), index, b.Expand(no_score, b.Shape(index)), axis=2
    )
    parts = (b.Unsqueeze(b.Squeeze(x, [2]), [0]) for x in (best, index))
    b.graph.outputs = [b.constant(True), next_remaining, *parts]
    return b.graph
