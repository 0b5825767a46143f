"""Regions that a detector looks at again: Proposal."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op

_NEEDED = "base_size, pre_nms_topn:looked_at, post_nms_topn:kept, nms_thresh:overlap, feat_stride:stride, min_size, ratio, scale"
_MORE = (
    "clip_before_nms:clip_before=true, clip_after_nms:clip_after=false, normalize=false, box_size_scale=1.0, "
    "box_coordinate_scale=1.0, framework="
)
_FRAMEWORKS = ("", "caffe", "tensorflow")


class Proposal(
    Op,
    sig="scores: F, moves: F, picture: F -> rois: F, chances: F",
    openvino=(
        f"Proposal-1(scores, moves, picture; {_NEEDED}, {_MORE} | outputs=1)",
        f"Proposal-4(scores, moves, picture; {_NEEDED}, {_MORE} | outputs=2)",
    ),
):
    """The best regions of each picture: rows [picture, x1, y1, x2, y2], ``kept`` for each picture, and their scores.

    Around each place of a grid whose cells are ``stride`` apart lie boxes of each ``ratio`` and ``scale`` of a square of
    ``base_size``. ``scores`` [pictures, 2 * boxes, rows, columns] holds in its second half how good each is, ``moves`` [pictures,
    4 * boxes, rows, columns] by how much, divided by ``box_coordinate_scale`` and ``box_size_scale``, its middle moves, in parts
    of its size, and the logarithm of how much it grows. ``picture`` is [height, width, scale] or [height, width, scale of
    heights, scale of widths]: boxes smaller than ``min_size`` times that get the score 0. Of each picture the best ``looked_at``
    are looked at; those that overlap a better one by more than ``overlap`` are dropped. What is not filled is 0, with a -1 in the
    first place behind the last. ``clip_before`` and ``clip_after`` keep boxes in the picture, ``normalize`` divides them by its
    sizes. A box ends with its last element, and boxes have whole sizes; with ``framework`` tensorflow it ends behind that, boxes
    are around their place and kept in the picture from the start, and rows and columns of places are exchanged, as are the sizes
    that boxes are kept in. Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
    """

    base_size: int
    looked_at: int
    kept: int
    overlap: float
    stride: int
    min_size: int
    ratio: tuple[float, ...]
    scale: tuple[float, ...]
    clip_before: bool = True
    clip_after: bool = False
    normalize: bool = False
    box_size_scale: float = 1.0
    box_coordinate_scale: float = 1.0
    framework: str = ""
    outputs: int = 2

    def validate(self) -> None:
        if self.framework not in _FRAMEWORKS:
            raise RuleError("detection.code", f"framework {self.framework!r} is none of caffe, tensorflow")
        if min(self.looked_at, self.kept) < 1:
            raise RuleError("detection.limit", f"the best {self.looked_at}, of which {self.kept} are kept")
        if self.outputs not in (1, 2):
            raise RuleError("node.outputs", f"{self.outputs} outputs of 1 or 2")

    def shape(self, scores: Any, moves: Any, picture: Any) -> Any:
        count = len(self.ratio) * len(self.scale)
        for x, name, each in ((scores, "scores", 2), (moves, "moves", 4)):
            if x.shape is not None:
                if len(x.shape) != 4:
                    raise RuleError("detection.rank", f"{name} should have rank 4, not {len(x.shape)}")
                if symbolic.equal(x.shape[1], each * count) is False:
                    raise RuleError("detection.boxes", f"{x.shape[1]} {name} of {count} boxes")
        rows = None if scores.shape is None else scores.shape[0] * self.kept
        return [(rows, 5), (rows,)][: self.outputs]

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("boxes")

    def vjp(self, b: Any, g: Any, y: Any, *xs: Any) -> Any:
        raise UnsupportedError("grad.op", "the regions that Proposal keeps have no gradient rule")

    def evaluate(self, xp: Any, scores: Any, moves: Any, picture: Any) -> Any:
        kind = arrays.to_numpy(scores).dtype
        values, changes, whole = (arrays.to_numpy(x).astype(np.float32) for x in (scores, moves, picture))
        height, width, *scales = whole.reshape(-1)[:4]
        least = self.min_size * np.array([scales[-1], scales[0]], np.float32)
        limit = np.array([height, width] if self.framework == "tensorflow" else [width, height], np.float32)
        pictures, _, rows, columns = values.shape
        found = np.zeros((pictures, self.kept, 5), np.float32)
        chances = np.zeros((pictures, self.kept), np.float32)
        places = self._places(rows, columns)
        count = places.shape[2]
        for index in range(pictures):
            own = values[index, count:].transpose(1, 2, 0).reshape(-1)
            change = changes[index].reshape(count, 4, rows, columns).transpose(2, 3, 0, 1)
            boxes = self._moved(places, change, limit).reshape(-1, 2, 2)
            size = boxes[:, 1] - boxes[:, 0] + self._last
            own = np.where((size >= least).all(axis=1), own, np.float32(0))
            order = np.argsort(-own, kind="stable")[: self.looked_at]
            chosen = order[self._apart(boxes[order])]
            corners = boxes[chosen]
            corners = np.clip(corners, 0, limit) if self.clip_after else corners
            corners = corners / limit if self.normalize else corners
            found[index, : len(chosen), 0] = index
            found[index, : len(chosen), 1:] = corners.reshape(-1, 4)
            chances[index, : len(chosen)] = own[chosen]
            if len(chosen) < self.kept:
                found[index, len(chosen), 0] = -1
        made = (found.reshape(-1, 5).astype(kind), chances.reshape(-1).astype(kind))
        results = tuple(arrays.from_numpy(xp, item, scores) for item in made[: self.outputs])
        return results if self.outputs == 2 else results[0]

    @property
    def _last(self) -> np.float32:
        """How much longer a box is than from its first to its last corner."""
        return np.float32(0 if self.framework == "tensorflow" else 1)

    def _places(self, rows: int, columns: int) -> Any:
        """The boxes before they move: [rows, columns, boxes, first and last, x and y]."""
        is_whole = self.framework != "tensorflow"
        ratio = np.array(self.ratio, np.float32)
        across = np.sqrt(np.float32(self.base_size**2) / ratio)
        across = np.floor(across + np.float32(0.5)) if is_whole else across
        down = across * ratio
        down = np.floor(down + np.float32(0.5)) if is_whole else down
        sizes = np.stack([across, down], axis=-1)[:, None] * np.array(self.scale, np.float32)[:, None]
        half = (sizes.reshape(-1, 2) - self._last) / 2
        middle = (self.base_size - self._last) / 2 - (0 if is_whole else self.base_size / 2)
        boxes = np.stack([middle - half, middle + half], axis=1)
        y, x = np.meshgrid(np.arange(rows) * self.stride, np.arange(columns) * self.stride, indexing="ij")
        grid = np.stack([x, y] if is_whole else [y, x], axis=-1).astype(np.float32)
        return grid[:, :, None, None] + boxes.astype(np.float32)

    def _moved(self, places: Any, change: Any, limit: Any) -> Any:
        if self.framework == "tensorflow":
            places = np.clip(places, 0, limit)
        size = places[..., 1, :] - places[..., 0, :] + self._last
        middle = places[..., 0, :] + size / 2 + change[..., :2] / np.float32(self.box_coordinate_scale) * size
        half = np.exp(change[..., 2:] / np.float32(self.box_size_scale)) * size / 2
        boxes = np.stack([middle - half, middle + half], axis=-2)
        return np.clip(boxes, 0, limit - self._last) if self.clip_before else boxes

    def _apart(self, boxes: Any) -> list[int]:
        """Those, of boxes by falling score, that overlap no better one too much."""
        low, high = boxes[:, 0], boxes[:, 1]
        areas = np.prod(high - low + self._last, axis=1)
        left = np.arange(len(boxes))
        chosen: list[int] = []
        while len(left) and len(chosen) < self.kept:
            first, left = int(left[0]), left[1:]
            chosen.append(first)
            touches = (low[first] <= high[left]).all(axis=1) & (low[left] <= high[first]).all(axis=1)
            sides = np.minimum(high[first], high[left]) - np.maximum(low[first], low[left]) + self._last
            common = np.prod(np.maximum(sides, 0), axis=1)
            share = common / (areas[first] + areas[left] - common)
            left = left[~(touches & (share > np.float32(self.overlap)))]
        return chosen
