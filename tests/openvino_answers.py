"""Results by OpenVINO's specification, for rows of ``cases_openvino`` for which OpenVINO itself gives others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def local_response(size: int, alpha: float, beta: float, bias: float, axes: list[int]) -> Any:
    """LRN-1: over the power of the bias and the mean of the squares in a region."""

    def answer(x: Any, _: Any) -> Any:
        squares, count = x.astype(np.float64) ** 2, size ** len(axes)
        for axis in axes:
            reach = size // 2
            pads = [(reach, reach) if place == axis else (0, 0) for place in range(x.ndim)]
            padded = np.pad(squares, pads)
            squares = sum(np.take(padded, range(step, step + x.shape[axis]), axis) for step in range(size))
        return (x / (bias + alpha / count * squares) ** beta).astype(np.float32)

    return answer


def cell(order: str, coupled: bool) -> Any:
    """LSTMCell-1 with the gates of the weights in this order; ``coupled``: the forget gate is what the input gate leaves."""

    def answer(x: Any, h: Any, c: Any, w: Any, r: Any, bias: Any) -> Any:
        parts = dict(zip(order, np.split(x @ w.T + h @ r.T + bias, 4, axis=1), strict=True))
        i, o, f = (1 / (1 + np.exp(-parts[gate])) for gate in "iof")
        f = 1 - i if coupled else f
        after = f * c + i * np.tanh(parts["c"])
        return (o * np.tanh(after)).astype(np.float32), after.astype(np.float32)

    return answer


def suppression(version: int, is_center: bool, is_sorted: bool, kind: Any) -> Any:
    """NonMaxSuppression-1, -3 and -4: as many rows as the specification says, -1 in those that nothing is kept for."""

    def answer(boxes: Any, scores: Any, most: Any, overlap: Any = 0.0, least: Any = 0.0) -> Any:
        batch, classes, count = scores.shape
        found = [
            (float(scores[place, kind_, box]), place, kind_, box)
            for place in range(batch)
            for kind_ in range(classes)
            for box in _kept(boxes[place], scores[place, kind_], int(most), float(overlap), float(least), is_center)
        ]
        if is_sorted:
            found.sort(key=lambda row: (-row[0], *row[1:]))
        size = min(int(most), count) * classes * batch if version == 4 else min(int(most) * classes, count)
        rows = np.full((size, 3), -1, kind)
        for place, row in enumerate(found[:size]):
            rows[place] = row[1:]
        return rows

    return answer


def _kept(boxes: Any, scores: Any, most: int, overlap: float, least: float, is_center: bool) -> list[int]:
    kept: list[int] = []
    for box in sorted(range(len(scores)), key=lambda each: (-scores[each], each)):
        if len(kept) == most or scores[box] < least:
            break
        if all(_shared(boxes[box], boxes[other], is_center) <= overlap for other in kept):
            kept.append(box)
    return kept


def soft_suppression(is_center: bool, is_sorted: bool, kind: Any) -> Any:
    """NonMaxSuppression-5 with a sigma: by the formula of its text, which suppresses beyond the threshold too."""

    def answer(boxes: Any, scores: Any, most: Any, overlap: Any, least: Any, sigma: Any) -> Any:
        found = []
        for batch, label in np.ndindex(scores.shape[:2]):
            left = {box: float(score) for box, score in enumerate(scores[batch, label])}
            for _ in range(int(most)):
                box = max(left, key=lambda each: (left[each], -each), default=None)
                if box is None or left[box] < least:
                    break
                found.append((left.pop(box), batch, label, box))
                for other in left:
                    share = _shared(boxes[batch, box], boxes[batch, other], is_center)
                    left[other] *= np.exp(-0.5 * share * share / float(sigma)) if share <= overlap else 0
        if is_sorted:
            found.sort(key=lambda row: (-row[0], *row[1:]))
        rows = np.array([row[1:] for row in found], kind)
        return rows, np.array([(*row[1:3], row[0]) for row in found], np.float32), np.array([len(found)], kind)

    return answer


def _shared(first: Any, second: Any, is_center: bool) -> float:
    """Intersection over union."""
    sides = []
    for box in (first, second):
        half = box[2:] / 2
        low, high = (box[:2] - half, box[:2] + half) if is_center else (box[:2], box[2:])
        sides.append((np.minimum(low, high), np.maximum(low, high)))
    inner = np.prod(np.maximum(np.minimum(sides[0][1], sides[1][1]) - np.maximum(sides[0][0], sides[1][0]), 0))
    areas = [np.prod(high - low) for low, high in sides]
    return float(inner / (sum(areas) - inner))


def error_inverted(x: Any) -> Any:
    """ErfInv-17: found by halving."""
    found = np.where(abs(x) == 1, np.copysign(np.inf, x), 0).astype(np.float64)
    for place in np.ndindex(*x.shape):
        low, high = 0.0, 9.0
        size = abs(float(x[place]))
        while size < 1 and low < (middle := (low + high) / 2) < high:
            is_less = math.erf(middle) < size if size < 0.5 else math.erfc(middle) > 1 - size
            low, high = (middle, high) if is_less else (low, middle)
        found[place] = found[place] if size == 1 else math.copysign(low, float(x[place]))
    return found.astype(np.float32)


def spectrum(x: Any, axes: Any, sizes: Any = None) -> Any:
    """RDFT-9."""
    found = np.fft.rfftn(x, None if sizes is None else tuple(sizes), tuple(axes))
    return np.stack([found.real, found.imag], -1).astype(np.float32)


def signal(x: Any, axes: Any, sizes: Any = None) -> Any:
    """IRDFT-9."""
    return np.fft.irfftn(x[..., 0] + 1j * x[..., 1], None if sizes is None else tuple(sizes), tuple(axes)).astype(np.float32)


_PLACES: dict[str, Any] = {
    "half_pixel": lambda y, scale, out, size: (y + 0.5) / scale - 0.5,
    "asymmetric": lambda y, scale, out, size: y / scale,
    "align_corners": lambda y, scale, out, size: y * (size - 1) / (out - 1) if out > 1 else 0.0,
}


def widened(coordinates: str = "half_pixel") -> Any:
    """Interpolate-4 in linear mode with antialias, by sizes: the code of its text."""

    def answer(x: Any, sizes: Any, _: Any, axes: Any) -> Any:
        scales = [size / x.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        reach = scales if min(scales) < 1 else [1.0] * len(scales)
        shape = list(x.shape)
        for axis, size in zip(axes, sizes, strict=True):
            shape[axis] = int(size)
        result = np.zeros(shape, np.float32)
        for place in np.ndindex(*shape):
            total, weight = 0.0, 0.0
            for near in np.ndindex(*(x.shape[axis] for axis in axes)):
                found, source = 1.0, list(place)
                for item, scale, wide, axis in zip(near, scales, reach, axes, strict=True):
                    middle = _PLACES[coordinates](place[axis], scale, shape[axis], x.shape[axis])
                    found *= wide * max(0.0, 1 - abs(wide * (middle - item)))
                    source[axis] = item
                weight += found
                total += found * float(x[tuple(source)])
            result[place] = total / weight if weight else 0
        return result

    return answer
