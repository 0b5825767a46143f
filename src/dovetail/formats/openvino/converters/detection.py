"""Converters for NonMaxSuppression and RegionYolo."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import axis_in
from dovetail.ops.detection.nms import NonMaxSuppression, is_soft, known_value_of, next_f32_above
from dovetail.ops.shape_values import join_sizes

_ENCODINGS = {"corner": False, "center": True}


def _suppression(ctx: ImportContext, outputs: int, dtype: dtypes.DType) -> list[Value]:
    encoding = ctx.attribute("box_encoding", "str", "corner")
    if encoding not in _ENCODINGS:
        raise UnsupportedError("attribute.value", f"NonMaxSuppression: box_encoding must be corner or center, got {encoding!r}")
    descending = ctx.attribute("sort_result_descending", "bool", True)
    sigma = ctx.optional_input(5)
    falls = is_soft(sigma)
    limits = [ctx.optional_input(2), ctx.optional_input(3), ctx.optional_input(4)]
    # In OpenVINO an absent score threshold is 0: boxes with a score of at most 0 are dropped.
    limits[2] = ctx.b.constant(np.zeros((), np.float32)) if limits[2] is None else limits[2]
    op = NonMaxSuppression(_ENCODINGS[encoding], True, descending, dtype, outputs, falls and ctx.node.version == 5)
    return ctx.b.add(op, ctx.input(0), ctx.input(1), *limits, *([sigma] if falls else []))


@OPENVINO.importer("NonMaxSuppression", 5, 9)
def import_non_max_suppression(ctx: ImportContext) -> list[Value]:
    return _suppression(ctx, 3, ctx.attribute("output_type", "DType", dtypes.i64))


@OPENVINO.importer("NonMaxSuppression", 1, 3, 4)
def import_non_max_suppression_before_5(ctx: ImportContext) -> list[Value]:
    """Import NonMaxSuppression-1, -3 and -4, whose output is padded with -1 to the maximum possible number of rows."""
    dtype = dtypes.i64 if ctx.node.version == 1 else ctx.attribute("output_type", "DType", dtypes.i64)
    (rows,) = _suppression(ctx, 1, dtype)
    b, scores, max_boxes = ctx.b, ctx.input(1), ctx.optional_input(2)
    limit = b.constant([0]) if max_boxes is None else b.Reshape(_long(b, max_boxes), [1])
    classes, boxes = _vector(b, scores, 1), _vector(b, scores, 2)
    if ctx.node.version == 4:
        count = b.Multiply(b.Multiply(b.Minimum(limit, boxes), classes), _vector(b, scores, 0))
    else:
        # The outputs of NonMaxSuppression-1 and -3 have at most one row per box, over all classes.
        count = b.Minimum(b.Multiply(limit, classes), boxes)
        rows = b.Slice(rows, [0], count, [0])
    missing = b.Subtract(count, b.Gather(b.Shape(rows), [0], axis=0))
    pads = join_sizes(b, [[0, 0], missing, [0]])
    return [b.Pad(rows, pads, b.constant(np.array(-1, dtype.numpy), dtype))]


def _vector(b: Builder, x: Value, axis: int) -> Value:
    sizes = shape_value(b, x, [axis])
    return b.constant(sizes) if isinstance(sizes, list) else sizes


def _long(b: Builder, x: Value) -> Value:
    return x if x.dtype is dtypes.i64 else b.Cast(x, to=dtypes.i64)


@OPENVINO.legalize("NonMaxSuppression")
def legalize_non_max_suppression(b: Builder, node: Node) -> Any:
    """Legalize NonMaxSuppression to three outputs, explicit limits, and suppression of boxes at IoU >= threshold."""
    op: Any = node.op
    boxes, scores, max_boxes, iou_threshold, score_threshold, sigma = (*node.inputs, None, None, None, None)[:6]
    assert boxes is not None and scores is not None
    falls = is_soft(sigma)
    plain = op.with_(inclusive=True, outputs=3, soft_and_hard=op.soft_and_hard and falls)
    if op == plain and None not in (max_boxes, iou_threshold, score_threshold) and falls == (sigma is not None):
        return None
    if not op.inclusive:
        limit = known_value_of(iou_threshold)
        if limit is None:
            raise UnsupportedError(
                "constant.needed",
                "NonMaxSuppression: the IoU threshold must be constant",
            )
        iou_threshold = b.constant(next_f32_above(limit))
    max_boxes = b.constant(np.zeros((), np.int64)) if max_boxes is None else max_boxes
    iou_threshold = b.constant(np.zeros((), np.float32)) if iou_threshold is None else iou_threshold
    score_threshold = b.constant(np.array(-np.inf, np.float32)) if score_threshold is None else score_threshold
    result = b.add(plain, boxes, scores, max_boxes, iou_threshold, score_threshold, *([sigma] if falls else []))
    return [result[0], *result[1:][: op.outputs - 1]]


@OPENVINO.importer("RegionYolo", 1)
def import_region_yolo(ctx: ImportContext) -> Value:
    """Import RegionYolo: apply sigmoid to box centers and objectness, and sigmoid or softmax to the class scores.

    ``do_softmax`` selects softmax. Box sizes are unchanged.
    """
    b, x = ctx.b, ctx.input(0)
    coords, classes, number = (ctx.attribute(name, "int") for name in ("coords", "classes", "num"))
    softmax, mask = ctx.attribute("do_softmax", "bool", True), ctx.attribute("mask", "tuple[int, ...]", ())
    axis, end = ctx.attribute("axis", "int"), ctx.attribute("end_axis", "int")
    ctx.ignore("anchors")
    count = number if softmax else len(mask)
    entries = coords + classes + 1
    if len(x.dims) != 4 or coords < 2 or symbolic.equal(x.dims[1], count * entries) is False:
        raise UnsupportedError(
            "shape.disagree", f"RegionYolo: the input must have rank 4 and {count} * {entries} channels, got {x.type}"
        )
    outer = shape_value(b, x, [0]), shape_value(b, x, [2, 3])
    cells = b.Reshape(x, join_sizes(b, [outer[0], [count, entries], outer[1]]), special_zero=False)
    center, size, rest = (b.Slice(cells, [first], [last], [2]) for first, last in ((0, 2), (2, coords), (coords, entries)))
    if softmax:
        is_one, scores = b.Slice(rest, [0], [1], [2]), b.Slice(rest, [1], [classes + 1], [2])
        parts = [b.Sigmoid(center), size, b.Sigmoid(is_one), b.Softmax(scores, axis=2)]
    else:
        parts = [b.Sigmoid(center), size, b.Sigmoid(rest)]
    y = b.Reshape(b.Concat(*parts, axis=2), join_sizes(b, [outer[0], [count * entries], outer[1]]), special_zero=False)
    if not softmax:
        result: Value = y
        return result
    first, last = axis_in(axis, 4), axis_in(end, 4)
    shape = [shape_value(b, x, range(first)), [-1], shape_value(b, x, range(last + 1, 4))]
    result = b.Reshape(y, join_sizes(b, shape), special_zero=False)
    return result
