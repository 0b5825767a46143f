"""Import and export OpenVINO's NonMaxSuppression and RegionYolo."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import axis_in
from dovetail.ops.detection.nms import NonMaxSuppression, is_soft, known_value_of, next_f32_above
from dovetail.ops.shape_values import join_sizes

_ENCODINGS = {"corner": False, "center": True}


def _suppression(node: Lifting, outputs: int, dtype: dtypes.DType) -> list[Value]:
    encoding = node.attribute("box_encoding", "str", "corner")
    if encoding not in _ENCODINGS:
        raise UnsupportedError("detection.boxes", f"NonMaxSuppression with box_encoding {encoding!r}")
    descending = node.attribute("sort_result_descending", "bool", True)
    sigma = node.optional(5)
    falls = is_soft(sigma)
    limits = [node.optional(2), node.optional(3), node.optional(4)]
    # OpenVINO selects no score of 0 or less where the threshold is omitted.
    limits[2] = node.b.constant(np.zeros((), np.float32)) if limits[2] is None else limits[2]
    op = NonMaxSuppression(_ENCODINGS[encoding], True, descending, dtype, outputs, falls and node.node.version == 5)
    return node.b.add(op, node.input(0), node.input(1), *limits, *([sigma] if falls else []))


@OPENVINO.lift("NonMaxSuppression", 5, 9)
def suppression(node: Lifting) -> list[Value]:
    return _suppression(node, 3, node.attribute("output_type", "DType", dtypes.i64))


@OPENVINO.lift("NonMaxSuppression", 1, 3, 4)
def padded_suppression(node: Lifting) -> list[Value]:
    """Import with the fixed number of rows of these versions: rows after the selected ones are -1."""
    dtype = dtypes.i64 if node.node.version == 1 else node.attribute("output_type", "DType", dtypes.i64)
    (rows,) = _suppression(node, 1, dtype)
    b, scores, max_boxes = node.b, node.input(1), node.optional(2)
    limit = b.constant([0]) if max_boxes is None else b.Reshape(_long(b, max_boxes), [1])
    classes, boxes = _vector(b, scores, 1), _vector(b, scores, 2)
    if node.node.version == 4:
        count = b.Multiply(b.Multiply(b.Minimum(limit, boxes), classes), _vector(b, scores, 0))
    else:
        # These versions list at most as many rows as there are boxes, whatever their classes.
        count = b.Minimum(b.Multiply(limit, classes), boxes)
        rows = b.Slice(rows, [0], count, [0])
    missing = b.Subtract(count, b.Gather(b.Shape(rows), [0], axis=0))
    pads = join_sizes(b, [[0, 0], missing, [0]])
    return [b.Pad(rows, pads, b.constant(np.array(-1, dtype.numpy), dtype))]


def _vector(b: Any, x: Value, axis: int) -> Value:
    sizes = shape_value(b, x, [axis])
    return b.constant(sizes) if isinstance(sizes, list) else sizes


def _long(b: Any, x: Value) -> Value:
    return x if x.dtype is dtypes.i64 else b.Cast(x, to=dtypes.i64)


@OPENVINO.lower("NonMaxSuppression")
def lower_suppression(b: Any, node: Node) -> Any:
    """Export with three outputs, all thresholds, and an inclusive IoU threshold."""
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
                "detection.limit", "NonMaxSuppression with an iou_threshold known only at run time is not supported"
            )
        iou_threshold = b.constant(next_f32_above(limit))
    max_boxes = b.constant(np.zeros((), np.int64)) if max_boxes is None else max_boxes
    iou_threshold = b.constant(np.zeros((), np.float32)) if iou_threshold is None else iou_threshold
    score_threshold = b.constant(np.array(-np.inf, np.float32)) if score_threshold is None else score_threshold
    made = b.add(plain, boxes, scores, max_boxes, iou_threshold, score_threshold, *([sigma] if falls else []))
    return [made[0], *made[1:][: op.outputs - 1]]


@OPENVINO.lift("RegionYolo", 1)
def yolo(node: Lifting) -> Value:
    """Import RegionYolo: per box the sigmoid of center and objectness, the raw size, and of the classes the sigmoid.

    With ``do_softmax`` the classes get a softmax instead.
    """
    b, x = node.b, node.input(0)
    coords, classes, number = (node.attribute(name, "int") for name in ("coords", "classes", "num"))
    softmax, mask = node.attribute("do_softmax", "bool", True), node.attribute("mask", "tuple[int, ...]", ())
    axis, end = node.attribute("axis", "int"), node.attribute("end_axis", "int")
    node.ignore("anchors")
    count = number if softmax else len(mask)
    entries = coords + classes + 1
    if len(x.dims) != 4 or coords < 2 or symbolic.equal(x.dims[1], count * entries) is False:
        raise UnsupportedError("detection.boxes", f"RegionYolo of {count} boxes of {entries} numbers in {x.type}")
    outer = shape_value(b, x, [0]), shape_value(b, x, [2, 3])
    cells = b.Reshape(x, join_sizes(b, [outer[0], [count, entries], outer[1]]), special_zero=False)
    place, size, rest = (b.Slice(cells, [first], [last], [2]) for first, last in ((0, 2), (2, coords), (coords, entries)))
    if softmax:
        is_one, scores = b.Slice(rest, [0], [1], [2]), b.Slice(rest, [1], [classes + 1], [2])
        parts = [b.Sigmoid(place), size, b.Sigmoid(is_one), b.Softmax(scores, axis=2)]
    else:
        parts = [b.Sigmoid(place), size, b.Sigmoid(rest)]
    y = b.Reshape(b.Concat(*parts, axis=2), join_sizes(b, [outer[0], [count * entries], outer[1]]), special_zero=False)
    if not softmax:
        result: Value = y
        return result
    first, last = axis_in(axis, 4), axis_in(end, 4)
    shape = [shape_value(b, x, range(first)), [-1], shape_value(b, x, range(last + 1, 4))]
    result = b.Reshape(y, join_sizes(b, shape), special_zero=False)
    return result
