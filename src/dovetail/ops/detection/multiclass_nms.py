"""Boxes of several classes that overlap: those that are dropped, and those whose scores fall."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, agree, is_static
from dovetail.ops.casts import as_type

_LEAST = float(np.finfo(np.float32).min)
"""Less than any score that is looked at, and more than what stands for none."""
_SORTS = ("none", "score", "classid")
_SHARED = (
    "sort_result_type:sort=none, sort_result_across_batch:across=false, output_type:dtype=i64, score_threshold:least=0, "
    "nms_top_k:top_k=-1, keep_top_k=-1, background_class:background=-1, normalized=true"
)


class _Suppressing(Op):
    """``boxes`` [pictures, boxes, 4] as corners and ``scores`` [pictures, classes, boxes] to rows [class, score, x1, y1, x2, y2]
    of those that are kept, which boxes these are, counted through all pictures, and how many of each picture."""

    sorts_pictures: ClassVar[bool] = True

    sort: str = "none"
    across: bool = False
    dtype: DType = dtypes.i64
    least: float = 0.0
    top_k: int = -1
    keep_top_k: int = -1
    background: int = -1
    normalized: bool = True

    def validate(self) -> None:
        if self.sort not in _SORTS:
            raise RuleError("detection.sort", f"sort {self.sort!r} is none of {', '.join(_SORTS)}")
        if self.dtype not in ("i32", "i64"):
            raise RuleError("detection.dtype", f"indices of {self.dtype}, of i32 or i64")

    def types(self, boxes: Any, scores: Any, *rest: Any) -> list[Type]:
        kind = check_inputs(self, (boxes, scores, *rest)).get("F")
        for x, name in ((boxes, "boxes"), (scores, "scores")):
            if x.shape is not None and len(x.shape) != 3 and not rest:
                raise RuleError("detection.rank", f"{name} should have rank 3, not {len(x.shape)}")
        pictures = None
        if boxes.shape is not None and scores.shape is not None and not rest:
            pictures = agree(boxes.shape[0], scores.shape[0])
            agree(boxes.shape[1], scores.shape[2])
            if symbolic.equal(boxes.shape[2], 4) is False:
                raise RuleError("detection.boxes", f"boxes of {boxes.shape[2]} numbers, not 4")
        return [Tensor(kind, (None, 6)), Tensor(self.dtype, (None, 1)), Tensor(self.dtype, (pictures,))]  # type: ignore[arg-type]

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("boxes")

    def looked_at(self, b: Any, boxes: Any, scores: Any, is_enough: bool) -> tuple[Any, Any, Any]:
        """The scores that are looked at, falling, -inf for none; which boxes they are of; and these: [pictures, classes, k]."""
        if not is_static(boxes.type) or not is_static(scores.type):
            raise UnsupportedError("detection.size", f"{type(self).__name__} of sizes that only run time knows")
        pictures, classes, count = scores.dims
        allowed = (np.arange(classes) != self.background).reshape(1, -1, 1)
        scores = as_type(b, scores, dtypes.f32)
        above = (b.GreaterEqual if is_enough else b.Greater)(scores, self.least)
        scores = b.Where(b.And(b.constant(allowed), above), scores, b.constant(-np.inf))
        most = min(self.top_k, count) if self.top_k > -1 else count
        found, indices = b.TopK(scores, [most], axis=2)
        all_boxes = b.Expand(b.Unsqueeze(as_type(b, boxes, dtypes.f32), [1]), [pictures, classes, count, 4])
        return found, indices, b.GatherND(all_boxes, b.Unsqueeze(indices, [3]), batch_dims=2)

    def table(self, b: Any, boxes: Any, kept: Any, indices: Any) -> list[Any]:
        """The three results, of scores that are -inf where nothing is kept."""
        pictures, classes, most = kept.dims
        count = boxes.dims[1]
        whole = b.ScatterElements(b.Expand(b.constant(-np.inf), [pictures, classes, count]), indices, kept, axis=2)
        limit = min(classes * most, self.keep_top_k) if self.keep_top_k > -1 else classes * most
        scores, places = b.TopK(b.Reshape(whole, [pictures, classes * count], special_zero=False), [limit], axis=1)
        is_there = b.Greater(scores, _LEAST)
        if self.sort == "classid" and not self.across and self.sorts_pictures:
            label = b.Where(is_there, b.Divide(places, b.constant(count)), b.constant(classes))
            order = b.TopK(label, [limit], axis=1, largest=False)[1]
            scores, places = (b.GatherElements(x, order, axis=1) for x in (scores, places))
        numbers = b.ReduceSum(b.Cast(is_there, to=dtypes.i64), [1], keepdims=False)
        rows = b.Squeeze(b.NonZero(b.Greater(b.Reshape(scores, [-1]), _LEAST)), [0])
        picture = b.constant(np.repeat(np.arange(pictures), limit))
        scores, places, picture = (b.Gather(b.Reshape(x, [-1]), rows, axis=0) for x in (scores, places, picture))
        label, box = b.Divide(places, b.constant(count)), b.Mod(places, b.constant(count))
        if self.across and self.sort != "none":
            key = scores if self.sort == "score" else label
            order = b.TopK(key, b.Shape(key), axis=0, largest=self.sort == "score")[1]
            scores, label, box, picture = (b.Gather(x, order, axis=0) for x in (scores, label, box, picture))
        kind = boxes.dtype
        corners = b.GatherND(boxes, b.Concat(b.Unsqueeze(picture, [1]), b.Unsqueeze(box, [1]), axis=1))
        columns = [b.Unsqueeze(as_type(b, x, kind), [1]) for x in (label, scores)]
        numbered = b.Unsqueeze(b.Add(b.Multiply(picture, b.constant(count)), box), [1])
        return [b.Concat(*columns, corners, axis=1), as_type(b, numbered, self.dtype), as_type(b, numbers, self.dtype)]


_CLASSES = f"iou_threshold:overlap=0, nms_eta=1.0, {_SHARED}"


class MulticlassNms(
    _Suppressing,
    sig="boxes: F, scores: F, counts?: I -> rows: F, indices: I1, numbers: I2",
    openvino=(f"MulticlassNms-8(boxes, scores; {_CLASSES})", f"MulticlassNms-9(boxes, scores, counts?; {_CLASSES})"),
):
    """Of each class but ``background`` in each picture, the ``top_k`` (-1: all) boxes whose scores are ``least`` or more, without
    those that overlap a better one by ``overlap`` or more; of each picture the best ``keep_top_k``.

    ``boxes`` [pictures, boxes, 4] are corners, without ``normalized`` of elements, which a box ends with; ``scores`` are
    [pictures, classes, boxes]. Results: rows [class, score, x1, y1, x2, y2]; which boxes these are, counted through all pictures,
    [rows, 1]; how many of each picture. Rows go by picture and score, with ``sort`` classid by picture, class and score; with
    ``across`` by score or class before the picture. With ``nms_eta`` below 1 the overlap that is enough falls from box to box;
    with ``counts`` pictures have boxes of their own: both are known to OpenVINO alone. Source: OpenVINO MulticlassNms-8, -9.
    """

    overlap: float = 0.0
    nms_eta: float = 1.0

    def decompose(self, b: Any, boxes: Any, scores: Any, counts: Any = None) -> Any:
        if counts is not None or self.nms_eta != 1:
            raise UnsupportedError(
                "detection.soft", "MulticlassNms with nms_eta below 1, or with a count of boxes for each picture"
            )
        found, indices, taken = self.looked_at(b, boxes, scores, True)
        pictures, classes, most = found.dims
        low, high = b.Slice(taken, [0], [2], [3]), b.Slice(taken, [2], [4], [3])
        high = high if self.normalized else b.Add(high, 1.0)
        # A box whose corners are exchanged has no area.
        taken = b.Concat(low, b.Maximum(low, high), axis=3)
        kept = b.NonMaxSuppression(
            b.Reshape(taken, [pictures * classes, most, 4], special_zero=False),
            b.Reshape(found, [pictures * classes, 1, most], special_zero=False),
            b.constant([most]),
            b.constant([self.overlap]),
            b.constant([_LEAST]),
            inclusive=True,
        )
        ones = b.Expand(b.constant(1), b.Gather(b.Shape(kept), [0], axis=0))
        marks = b.ScatterND(b.Expand(b.constant(0), [pictures * classes, most]), b.Gather(kept, [0, 2], axis=1), ones)
        is_kept = b.Greater(b.Reshape(marks, [pictures, classes, most], special_zero=False), b.constant(0))
        return self.table(b, boxes, b.Where(is_kept, found, b.constant(-np.inf)), indices)


class MatrixNms(
    _Suppressing,
    sig="boxes: F, scores: F -> rows: F, indices: I1, numbers: I2",
    openvino=(
        f"MatrixNms-8(boxes, scores; decay_function:decay=linear, gaussian_sigma:sigma=2.0, post_threshold:after=0, {_SHARED})"
    ),
):
    """Of each class but ``background`` in each picture, the ``top_k`` (-1: all) boxes whose scores are more than ``least``, with
    scores that fall by how much each overlaps the better ones; those above ``after`` are kept, of each picture the best
    ``keep_top_k``.

    Score i is multiplied by the least of ``(1 - o) / (1 - m)``, or with ``decay`` gaussian ``exp((m * m - o * o) * sigma)``, over
    all better boxes j; o is what i and j have in common, of what both cover, m the most that j has in common with a better one.
    Inputs, results and their order are those of MulticlassNms, but that classid sorts with ``across`` alone. Source: OpenVINO
    MatrixNms-8.
    """

    sorts_pictures = False

    decay: str = "linear"
    sigma: float = 2.0
    after: float = 0.0

    def validate(self) -> None:
        super().validate()
        if self.decay not in ("linear", "gaussian"):
            raise RuleError("detection.soft", f"decay {self.decay!r} is none of linear, gaussian")

    def decompose(self, b: Any, boxes: Any, scores: Any) -> Any:
        found, indices, taken = self.looked_at(b, boxes, scores, False)
        most = found.dims[2]
        share = b.Where(b.constant(np.tri(most, k=-1, dtype=bool)), self._shares(b, taken), 0.0)
        greatest = b.Unsqueeze(b.ReduceMax(share, [3], keepdims=False), [2])
        if self.decay == "linear":
            factors = b.Divide(b.Subtract(1.0, share), b.Add(b.Subtract(1.0, greatest), 1e-10))
        else:
            factors = b.Exp(b.Multiply(b.Subtract(b.Multiply(greatest, greatest), b.Multiply(share, share)), self.sigma))
        factors = b.Where(b.constant(np.tri(most, k=-1, dtype=bool)), factors, 1.0)
        fallen = b.Multiply(b.Minimum(b.ReduceMin(factors, [3], keepdims=False), 1.0), found)
        is_kept = b.And(b.Greater(found, _LEAST), b.Greater(fallen, self.after))
        return self.table(b, boxes, b.Where(is_kept, fallen, b.constant(-np.inf)), indices)

    def _shares(self, b: Any, boxes: Any) -> Any:
        """What each two boxes have in common, of what both cover: [pictures, classes, k, k]."""
        more = 0.0 if self.normalized else 1.0
        low, high = b.Slice(boxes, [0], [2], [3]), b.Slice(boxes, [2], [4], [3])
        sides = b.Subtract(high, low)
        is_box = b.GreaterEqual(b.ReduceMin(sides, [3], keepdims=False), 0.0)
        areas = b.Where(is_box, b.ReduceProd(b.Add(sides, more), [3], keepdims=False), 0.0)
        ours, theirs = ([b.Unsqueeze(x, [place]) for x in (low, high, areas)] for place in (3, 2))
        common = b.Subtract(b.Minimum(ours[1], theirs[1]), b.Maximum(ours[0], theirs[0]))
        touches = b.GreaterEqual(b.ReduceMin(common, [4], keepdims=False), 0.0)
        area = b.ReduceProd(b.Add(common, more), [4], keepdims=False)
        both = b.Subtract(b.Add(ours[2], theirs[2]), area)
        return b.Where(touches, b.Divide(area, b.Where(touches, both, 1.0)), 0.0)
