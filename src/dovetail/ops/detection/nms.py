"""What object detectors do with boxes: one of many that overlap is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, agree
from dovetail.ops.casts import as_type
from dovetail.ops.detection.nms_decomposition import greedily, shares, told

_ENCODING = "box_encoding~{corner:false,center:true}:center=corner"


def check_index_type(dtype: DType) -> None:
    if dtype not in ("i32", "i64"):
        raise RuleError("detection.dtype", f"indices of {dtype}, of i32 or i64")


def kept_types(op: Op, numbers: int, dtype: DType, boxes: Any, scores: Any, *limits: Any) -> list[Type]:
    """The types of what is kept of boxes of so many numbers: rows of indices of ``dtype``, of scores, and how many there are."""
    check_inputs(op, (boxes, scores, *limits))
    for x, name in ((boxes, "boxes"), (scores, "scores")):
        if x.shape is not None and len(x.shape) != 3:
            raise RuleError("detection.rank", f"{name} should be of rank 3, not {len(x.shape)}")
    if boxes.shape is not None:
        if symbolic.equal(boxes.shape[2], numbers) is False:
            raise RuleError("detection.boxes", f"a box is {numbers} numbers, not {boxes.shape[2]}")
        if scores.shape is not None:
            agree(boxes.shape[0], scores.shape[0])
            agree(boxes.shape[1], scores.shape[2])
    for x in limits:
        if x is not None and x.shape is not None and any(symbolic.equal(size, 1) is False for size in x.shape):
            raise RuleError("detection.limit", f"a limit is one number, not of shape {list(x.shape)}")
    rows: Any = (None, 3)
    return [Tensor(dtype, rows), Tensor(dtypes.f32, rows), Tensor(dtype, (1,))]


class NonMaxSuppression(
    Op,
    sig="boxes: F, scores: F, most?: I1, overlap?: F1, least?: F2, sigma?: F3 -> indices: I, values: F, count: I",
    onnx=(
        "NonMaxSuppression-10,11(boxes, scores, most?, overlap?, least?; center_point_box:center=0 "
        "| inclusive=false, descending=false, dtype=i64, outputs=1)"
    ),
    openvino=(
        f"> NonMaxSuppression-9(boxes, scores, most, overlap, least, sigma?; {_ENCODING}, "
        "sort_result_descending:descending, output_type:dtype | inclusive=true, both=false, outputs=3)"
    ),
):
    """Of boxes that overlap the one with the greatest score, of each batch and class: [batch, class, box] for each that is kept.

    ``boxes`` is [batches, n, 4]: two corners (y, x, y, x), any opposite ones, or with ``center`` the middle and the lengths
    (x, y, width, height). ``scores`` is [batches, classes, n]. Of a class at most ``most`` boxes are kept (left out: none),
    with a score above ``least`` (left out: any score); they are taken by falling score, the first of equal ones first, and
    one is passed over that shares with one already taken more than ``overlap`` of the area that both cover (with
    ``inclusive`` that much, or more; left out: 0). Boxes without area share nothing. Where ``sigma`` is more than 0 none is
    passed over (with ``both`` as before): a score is multiplied by exp(-share * share / (2 * sigma)) for each box that was
    taken, is taken when it is the greatest of those that are left, and only while it is above ``least``. The kept ones come by
    batch, class and falling score, or with ``descending`` all by falling score. With three ``outputs`` there are also [batch,
    class, score] for each in f32, and how many there are. All is computed in f32.
    Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is the one with ``both``).
    """

    center: bool = False
    inclusive: bool = False
    descending: bool = False
    dtype: DType = dtypes.i64
    outputs: int = 1
    both: bool = False

    def validate(self) -> None:
        if self.outputs not in (1, 3):
            raise RuleError("node.outputs", f"{self.outputs} outputs, of 1 or 3")
        check_index_type(self.dtype)

    def types(self, boxes: Any, scores: Any, *limits: Any) -> list[Type]:
        return kept_types(self, 4, self.dtype, boxes, scores, *limits)[: self.outputs]

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("which boxes are kept")

    def evaluate(self, xp: Any, boxes: Any, scores: Any, *limits: Any) -> Any:
        defaults = (0, 0, -np.inf, 0)
        given = (*limits, None, None, None, None)[:4]
        found = (_limit(x, default) for x, default in zip(given, defaults, strict=True))
        return self.named(xp, *_kept(self, _narrow(boxes), _narrow(scores), *found), boxes)

    def named(self, xp: Any, rows: Any, values: Any, like: Any) -> Any:
        """The outputs for rows [batch, class, box] by batch, class and falling score, and their scores."""
        if self.descending:
            order = np.argsort(-values, kind="stable")
            rows, values = rows[order], values[order]
        indices = arrays.from_numpy(xp, rows.astype(self.dtype.numpy), like)
        if self.outputs == 1:
            return indices
        named = np.concatenate([rows[:, :2].astype(np.float32), values[:, None]], axis=1)
        count = np.array([len(rows)], self.dtype.numpy)
        return indices, arrays.from_numpy(xp, named, like), arrays.from_numpy(xp, count, like)

    def vjp(self, b: Any, g: Any, y: Any, *xs: Any) -> Any:
        if self.outputs == 1 or g[1] is None:
            return [None] * len(xs)
        raise UnsupportedError("grad.op", "the scores of kept boxes have no gradient rule: gather them by the indices")

    def decompose(self, b: Any, boxes: Any, scores: Any, *limits: Any) -> Any:
        """The plain form: in f32, of one output, each class by itself; then what is left is sorted, gathered and counted."""
        plain = NonMaxSuppression(self.center)
        given = (*limits, None, None, None, None)[:4]
        kinds = (dtypes.i64, dtypes.f32, dtypes.f32, dtypes.f32)
        most, overlap, least, sigma = (None if x is None else as_type(b, x, kind) for x, kind in zip(given, kinds, strict=True))
        inputs: list[Any] = [as_type(b, boxes, dtypes.f32), as_type(b, scores, dtypes.f32)]
        if is_soft(sigma):
            found = self._softly(b, inputs[0], inputs[1], most, overlap, least, sigma)
            return told(b, *found, self.descending, self.dtype)[: self.outputs]
        if self.inclusive:
            most, overlap = self.exclusive(b, most, overlap)
        inputs += [most, overlap, least]
        if self == plain and all(new is old for new, old in zip(inputs, (boxes, scores, *given), strict=False)):
            return None
        rows = b.add(plain, *inputs)[0]
        return told(b, rows, b.GatherND(inputs[1], rows), self.descending, self.dtype)[: self.outputs]

    def _softly(self, b: Any, boxes: Any, scores: Any, most: Any, overlap: Any, least: Any, sigma: Any) -> tuple[Any, Any]:
        """The rows that are kept, and their scores, where overlap lowers scores."""
        share = shares(b, boxes, self.center)
        sigma = b.Reshape(sigma, [])
        falls = b.Greater(sigma, 0.0)
        weights = b.Where(falls, b.Exp(b.Multiply(b.Divide(-0.5, sigma), b.Multiply(share, share))), 1.0)
        limit = b.constant(0.0) if overlap is None else b.Reshape(overlap, [])
        dropped = (b.GreaterEqual if self.inclusive else b.Greater)(share, limit)
        if not self.both:
            dropped = b.And(dropped, b.Not(falls))
        return greedily(b, scores, weights, dropped, most, least)

    def exclusive(self, b: Any, most: Any, overlap: Any) -> tuple[Any, Any]:
        """``most`` and ``overlap`` such that more than the latter is what was as much or more. At 0 the first suppresses all."""
        limit = known_limit(overlap)
        if limit is None:
            raise UnsupportedError("detection.limit", "NonMaxSuppression with an overlap that only run time knows")
        if float(limit.reshape(())) > 0:
            return most, b.constant(np.nextafter(limit.astype(np.float32), np.float32(0)))
        count = most if most is None else b.Minimum(most, b.constant(np.ones((), most.dtype.numpy), most.dtype))
        return count, None


def known_limit(overlap: Any) -> Any:
    """The elements of a limit where they follow from constants; None where only run time knows."""
    from dovetail.interpreter.evaluate import constant_value

    return np.zeros((), np.float32) if overlap is None else constant_value(overlap)


def is_soft(sigma: Any) -> bool:
    """Whether a sigma may be more than 0."""
    found = None if sigma is None else known_limit(sigma)
    return sigma is not None and (found is None or bool((found > 0).any()))


def inclusive(limit: Any) -> Any:
    """The least f32 above ``limit``, and none that a processor may take for 0."""
    return np.maximum(np.nextafter(limit.astype(np.float32), np.float32(np.inf)), np.finfo(np.float32).tiny)


def _narrow(x: Any) -> Any:
    return arrays.to_numpy(x).astype(np.float32)


def _limit(x: Any, default: float) -> Any:
    return default if x is None else np.asarray(arrays.to_numpy(x)).reshape(-1)[0]


def _kept(op: NonMaxSuppression, boxes: Any, scores: Any, most: Any, overlap: Any, least: Any, sigma: Any) -> tuple[Any, Any]:
    """The rows [batch, class, box] that are kept, and what is left of their scores."""
    corners = _corners(boxes, op.center)
    overlap, least, sigma = np.float32(overlap), np.float32(least), np.float32(sigma)
    rows: list[tuple[int, int, int]] = []
    left: list[Any] = []
    for batch, label in np.ndindex(scores.shape[:2]):
        own, places = scores[batch, label], corners[batch]
        if sigma > 0:
            chosen, fallen = _softly(places, own, int(most), overlap if op.both else None, least, sigma, op.inclusive)
        else:
            chosen = _of_class(places, own, int(most), overlap, least, op.inclusive)
            fallen = own[chosen]
        rows.extend((batch, label, box) for box in chosen)
        left.extend(fallen)
    return np.array(rows, np.int64).reshape(-1, 3), np.array(left, np.float32)


def _corners(boxes: Any, is_center: bool) -> Any:
    """Least and greatest along both axes: [batches, 4, n]."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if is_center:
        half = second / 2
        first, second = first - half, first + half
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1).transpose(0, 2, 1)


def _of_class(corners: Any, scores: Any, most: int, overlap: Any, least: Any, is_inclusive: bool) -> list[int]:
    """The boxes of one class that are kept, by falling score."""
    left = np.flatnonzero(scores > least) if least > -np.inf else np.arange(len(scores))
    left = left[np.argsort(-scores[left], kind="stable")]
    chosen: list[int] = []
    while len(left) and len(chosen) < most:
        chosen.append(int(left[0]))
        share = _share(corners[:, left[0]], corners[:, left[1:]])
        left = left[1:][share < overlap if is_inclusive else share <= overlap]
    return chosen


def _softly(
    corners: Any, scores: Any, most: int, overlap: Any, least: Any, sigma: Any, is_inclusive: bool
) -> tuple[list[int], list[Any]]:
    """The boxes of one class that are kept, and what is left of their scores; without an overlap none is passed over."""
    left = np.where(scores > least, scores, np.float32(-np.inf))
    chosen: list[int] = []
    values: list[Any] = []
    while len(chosen) < most and (left > -np.inf).any():
        box = int(np.argmax(left))
        chosen.append(box)
        values.append(left[box])
        share = _share(corners[:, box], corners)
        stays = left > -np.inf
        stays[box] = False
        if overlap is not None:
            stays &= share < overlap if is_inclusive else share <= overlap
        fallen = np.where(stays, left, 0) * np.exp(np.float32(-0.5) / sigma * (share * share))
        left = np.where(stays & (fallen > least), fallen, np.float32(-np.inf))
    return chosen, values


def _share(box: Any, others: Any) -> Any:
    """What ``box`` has in common with each of ``others``, of what both cover."""
    sides = np.minimum(box[2:, None], others[2:]) - np.maximum(box[:2, None], others[:2])
    common = np.prod(np.maximum(sides, 0), axis=0)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[2:] - others[:2], axis=0)
    both = area + areas - common
    is_sound = (area > 0) & (areas > 0) & (both > 0) & (sides > 0).all(axis=0)
    return np.where(is_sound, common / np.where(is_sound, both, 1), np.float32(0)).astype(np.float32)
