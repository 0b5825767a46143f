"""What a single-shot detector found: DetectionOutput."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import is_static
from dovetail.ops.casts import as_type

_SHARED = (
    "background_label_id:background=0, top_k=-1, variance_encoded_in_target:encoded=false, keep_top_k, "
    "code_type:code=caffe.PriorBoxParameter.CORNER, share_location=true, nms_threshold:overlap, confidence_threshold:least=0, "
    "clip_after_nms:clip_after=false, clip_before_nms:clip_before=false, decrease_label_id:best_class=false, normalized=false, "
    "input_height:height=1, input_width:width=1, objectness_score:objectness=0"
)
_LEAST = float(np.finfo(np.float32).min)
"""Less than any score that is looked at, and more than what stands for none."""
CODES = {"caffe.PriorBoxParameter.CORNER": "corner", "caffe.PriorBoxParameter.CENTER_SIZE": "center"}


class DetectionOutput(
    Op,
    sig="boxes: F, scores: F, priors: F, objects?: F, refined?: F -> y: F",
    openvino=(
        f"DetectionOutput-1(boxes, scores, priors, objects?, refined?; num_classes:classes, {_SHARED})",
        f"DetectionOutput-8(boxes, scores, priors, objects?, refined?; {_SHARED})",
    ),
):
    """Rows [picture, class, score, x1, y1, x2, y2] of what is kept of the boxes that ``boxes`` [pictures, numbers] makes of
    ``priors`` [1 or pictures, 1 or 2, numbers], with ``scores`` [pictures, priors * classes]: [1, 1, rows, 7]. They go by
    picture, class and falling score; behind the last one stands a -1, and zeros.

    ``priors``: corners [x1, y1, x2, y2], or without ``normalized`` something and the corners in elements of a picture of
    ``height`` and ``width``; then, unless ``encoded``, the variances with which what ``boxes`` says is multiplied. The code
    CORNER moves the corners; CENTER_SIZE moves the middle by parts of the size, and multiplies the size by an exponential.
    Without ``share_location`` each class has boxes of its own. ``clip_before`` and ``clip_after`` keep boxes within 0 and 1. Of
    each class but ``background`` the ``top_k`` (-1: all) scores above ``least`` are looked at, and boxes that overlap a better
    one by more than ``overlap`` dropped. With ``best_class`` each prior is of its best class alone, if that has ``least``, the
    ``top_k`` are of all classes, and classes are counted from 0 after the first. Of each picture ``keep_top_k`` (-1: all) are
    kept. ``objects`` [pictures, priors * 2]: where the second is below ``objectness`` all is background; ``refined`` moves the
    priors first, as ``boxes`` does then. Source: OpenVINO DetectionOutput-1, -8.
    """

    classes: int | None = None
    background: int = 0
    top_k: int = -1
    encoded: bool = False
    keep_top_k: tuple[int, ...] = (-1,)
    code: str = "caffe.PriorBoxParameter.CORNER"
    share_location: bool = True
    overlap: float = 0.0
    least: float = 0.0
    clip_after: bool = False
    clip_before: bool = False
    best_class: bool = False
    normalized: bool = False
    height: int = 1
    width: int = 1
    objectness: float = 0.0

    def validate(self) -> None:
        if self.code not in CODES:
            raise RuleError("detection.code", f"code {self.code!r} is none of {', '.join(CODES)}")
        if len(self.keep_top_k) != 1:
            raise RuleError("detection.limit", f"keep_top_k {list(self.keep_top_k)} should be one number")

    def sizes(self, boxes: Any, scores: Any, priors: Any) -> tuple[Any, Any, Any]:
        """Pictures, priors, classes; None where not known."""
        for x, rank, what in ((boxes, 2, "boxes"), (scores, 2, "scores"), (priors, 3, "priors")):
            if x.shape is not None and len(x.shape) != rank:
                raise RuleError("detection.rank", f"{what} should have rank {rank}, not {len(x.shape)}")
        pictures = next((x.shape[0] for x in (boxes, scores) if x.shape is not None), None)
        each = 4 if self.normalized else 5
        count = None if priors.shape is None else priors.shape[2]
        if isinstance(count, int) and count % each:
            raise RuleError("detection.boxes", f"{count} numbers of priors do not divide by {each}")
        count = count // each if isinstance(count, int) else None
        numbers = None if scores.shape is None else scores.shape[1]
        classes = self.classes
        if isinstance(count, int) and isinstance(numbers, int):
            if not count or numbers % count or (classes is not None and count * classes != numbers):
                raise RuleError("detection.boxes", f"{numbers} scores for {count} priors")
            classes = numbers // count
        if isinstance(count, int) and classes is not None and boxes.shape is not None:
            wanted = count * 4 * (1 if self.share_location else classes)
            if symbolic.equal(boxes.shape[1], wanted) is False:
                raise RuleError("detection.boxes", f"{boxes.shape[1]} numbers of boxes, not {wanted}")
        return pictures, count, classes

    def shape(self, boxes: Any, scores: Any, priors: Any, objects: Any = None, refined: Any = None) -> Any:
        pictures, count, classes = self.sizes(boxes, scores, priors)
        return (1, 1, None if pictures is None else self.rows(pictures, count, classes), 7)

    def rows(self, pictures: Any, count: Any, classes: Any) -> Any:
        """How many rows there may be."""
        if self.keep_top_k[0] > 0:
            return pictures * self.keep_top_k[0]
        if classes is None or (self.top_k <= 0 and count is None):
            return None
        return pictures * classes * (self.top_k if self.top_k > 0 else count)

    def decompose(self, b: Any, boxes: Any, scores: Any, priors: Any, objects: Any = None, refined: Any = None) -> Any:
        if not all(is_static(x.type) for x in (boxes, scores, priors)):
            raise UnsupportedError("detection.size", "DetectionOutput of sizes that only run time knows")
        pictures, count, classes = self.sizes(boxes, scores, priors)
        kind = boxes.dtype
        boxes, scores, priors = (as_type(b, x, dtypes.f32) for x in (boxes, scores, priors))
        places = self._decoded(b, boxes, priors, None if refined is None else as_type(b, refined, dtypes.f32), pictures, count)
        chances = b.Reshape(scores, [pictures, count, classes], special_zero=False)
        if objects is not None:
            chances = self._with_objects(b, chances, as_type(b, objects, dtypes.f32), pictures, count, classes)
        kept = self._kept(b, places, self._looked_at(b, chances, classes), pictures, count, classes)
        return as_type(b, self._table(b, kept, places, pictures, count, classes), kind)

    def _decoded(self, b: Any, boxes: Any, priors: Any, refined: Any, pictures: int, count: int) -> Any:
        """Corners: [pictures, 1 or classes, priors, 4]."""
        each = 4 if self.normalized else 5
        first = b.Reshape(b.Slice(priors, [0], [1], [1]), [priors.dims[0], 1, count, each], special_zero=False)
        corners = b.Slice(first, [each - 4], [each], [3]) if each > 4 else first
        if not self.normalized:
            corners = b.Divide(corners, b.constant(np.array([self.width, self.height] * 2, np.float32)))
        factors = None
        if not self.encoded:
            rest = b.Slice(b.Slice(priors, [1], [2], [1]), [0], [count * 4], [2])
            factors = b.Reshape(rest, [priors.dims[0], 1, count, 4], special_zero=False)
        for each_boxes in (refined, boxes):
            if each_boxes is not None:
                moves = b.Transpose(b.Reshape(each_boxes, [pictures, count, -1, 4], special_zero=False), [0, 2, 1, 3])
                corners = self._moved(b, corners, moves if factors is None else b.Multiply(moves, factors))
        return corners

    def _moved(self, b: Any, corners: Any, moves: Any) -> Any:
        if CODES[self.code] == "corner":
            y = b.Add(corners, moves)
        else:
            low, high = b.Slice(corners, [0], [2], [3]), b.Slice(corners, [2], [4], [3])
            size, middle = b.Subtract(high, low), b.Divide(b.Add(low, high), 2.0)
            middle = b.Add(b.Multiply(b.Slice(moves, [0], [2], [3]), size), middle)
            half = b.Divide(b.Multiply(b.Exp(b.Slice(moves, [2], [4], [3])), size), 2.0)
            y = b.Concat(b.Subtract(middle, half), b.Add(middle, half), axis=3)
        return _within(b, y) if self.clip_before else y

    def _with_objects(self, b: Any, chances: Any, objects: Any, pictures: int, count: int, classes: int) -> Any:
        """All is background where there is no object."""
        found = b.Slice(b.Reshape(objects, [pictures, count, 2], special_zero=False), [1], [2], [2])
        nothing = np.zeros((1, 1, classes), np.float32)
        if 0 <= self.background < classes:
            nothing[..., self.background] = 1
        return b.Where(b.Less(found, self.objectness), b.constant(nothing), chances)

    def _looked_at(self, b: Any, chances: Any, classes: int) -> Any:
        """[pictures, classes, priors], -inf where it is not looked at."""
        none = b.constant(np.float32(-np.inf))
        chances = b.Transpose(chances, [0, 2, 1])
        allowed = np.arange(classes).reshape(1, -1, 1) != self.background
        if not self.best_class:
            return b.Where(b.And(b.constant(allowed), b.Greater(chances, self.least)), chances, none)
        allowed = allowed & (np.arange(classes).reshape(1, -1, 1) > 0)
        chances = b.Where(b.constant(allowed), chances, none)
        best = b.ArgMax(chances, axis=1, keepdims=True)
        is_best = b.And(b.Equal(best, b.constant(np.arange(classes).reshape(1, -1, 1))), b.constant(allowed))
        # One that has the limit is enough here.
        found = b.Where(b.And(is_best, b.GreaterEqual(chances, self.least)), chances, none)
        count = chances.dims[2]
        if not 0 <= self.top_k < count:
            return found
        of_prior = b.ReduceMax(found, [1], keepdims=False)
        first = b.TopK(of_prior, [self.top_k], axis=1)[1]
        marks = b.Expand(b.constant(np.zeros((), np.int64)), list(of_prior.dims))
        ones = b.Expand(b.constant(np.ones((), np.int64)), [of_prior.dims[0], self.top_k])
        is_first = b.Greater(b.ScatterElements(marks, first, ones, axis=1), b.constant(0))
        return b.Where(b.Unsqueeze(is_first, [1]), found, none)

    def _kept(self, b: Any, places: Any, chances: Any, pictures: int, count: int, classes: int) -> Any:
        """The scores of what is kept, -inf elsewhere: [pictures, priors * classes]."""
        most = count if self.best_class or self.top_k < 0 else min(self.top_k, count)
        scores, indices = b.TopK(chances, [most], axis=2)
        own = places if places.dims[1] == classes else b.Expand(places, [pictures, classes, count, 4])
        taken = b.GatherND(own, b.Unsqueeze(indices, [3]), batch_dims=2)
        low, high = b.Slice(taken, [0], [2], [3]), b.Slice(taken, [2], [4], [3])
        # A box whose corners are exchanged has no area.
        taken = b.Concat(low, b.Maximum(low, high), axis=3)
        all_of = pictures * classes
        rows = b.NonMaxSuppression(
            b.Reshape(taken, [all_of, most, 4], special_zero=False),
            b.Reshape(scores, [all_of, 1, most], special_zero=False),
            b.constant([most]),
            b.constant([self.overlap]),
            b.constant([_LEAST]),
        )
        empty = b.Expand(b.constant(np.zeros((), np.int64)), [all_of, most])
        ones = b.Expand(b.constant(np.ones((), np.int64)), b.Gather(b.Shape(rows), [0], axis=0))
        marks = b.ScatterND(empty, b.Gather(rows, [0, 2], axis=1), ones)
        is_kept = b.Greater(b.Reshape(marks, [pictures, classes, most], special_zero=False), b.constant(0))
        none = b.constant(np.float32(-np.inf))
        table = b.Expand(none, [pictures, classes, count])
        table = b.ScatterElements(table, indices, b.Where(is_kept, scores, none), axis=2)
        return b.Reshape(b.Transpose(table, [0, 2, 1]), [pictures, count * classes], special_zero=False)

    def _table(self, b: Any, kept: Any, places: Any, pictures: int, count: int, classes: int) -> Any:
        """The best of each picture by class, those of all pictures together, and what stands behind them."""
        rows = int(self.rows(pictures, count, classes))
        limit = self.keep_top_k[0]
        most = min(count * classes, limit) if limit > 0 else count * classes
        scores, numbers = b.TopK(kept, [most], axis=1)
        label = b.Mod(numbers, b.constant(classes))
        order = b.Where(b.Greater(scores, _LEAST), label, b.constant(classes))
        order = b.TopK(order, [most], axis=1, largest=False)[1]
        scores, numbers = (b.Reshape(b.GatherElements(x, order, axis=1), [-1]) for x in (scores, numbers))
        picture = b.constant(np.repeat(np.arange(pictures), most))
        is_there = b.Greater(scores, _LEAST)
        whole = pictures * most
        order = b.TopK(b.Where(is_there, b.constant(0), b.constant(1)), [whole], axis=0, largest=False)[1]
        if whole > rows:
            order = b.Slice(order, [0], [rows], [0])
        scores, numbers, picture = (b.Gather(x, order, axis=0) for x in (scores, numbers, picture))
        label, prior = b.Mod(numbers, b.constant(classes)), b.Divide(numbers, b.constant(classes))
        own = label if places.dims[1] == classes and not self.share_location else b.Multiply(label, b.constant(0))
        corners = b.GatherND(places, b.Concat(*(b.Unsqueeze(x, [1]) for x in (picture, own, prior)), axis=1))
        if self.clip_after:
            corners = _within(b, corners)
        number = b.ReduceSum(b.Cast(is_there, to=dtypes.i64), [0], keepdims=True)
        label = b.Subtract(label, b.constant(1)) if self.best_class else label
        columns = [b.Unsqueeze(x, [1]) for x in (b.Cast(picture, to=dtypes.f32), b.Cast(label, to=dtypes.f32), scores)]
        table = b.Concat(*columns, corners, axis=1)
        rank = b.constant(np.arange(min(rows, whole)).reshape(-1, 1))
        table = b.Where(b.Less(rank, number), table, 0.0)
        if rows > whole:
            table = b.Pad(table, [0, 0, rows - whole, 0])
        last = np.zeros((rows, 7), bool)
        last[:, 0] = True
        behind = b.And(b.Equal(b.constant(np.arange(rows).reshape(-1, 1)), number), b.constant(last))
        return b.Unsqueeze(b.Where(behind, -1.0, table), [0, 1])


def _within(b: Any, corners: Any) -> Any:
    return b.Maximum(b.Minimum(corners, 1.0), 0.0)
