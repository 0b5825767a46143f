"""Detectors of published architectures in their smallest sizes, with seeded random weights, as torch's exporter leaves them.

YOLOv8 is ``vision_models.detector``. Each gives the ONNX model and inputs for one run; normalisations are folded, as exporters
fold them, and what selects boxes after the heads is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx_writing import FLOAT, Writer

Made = tuple[onnx.ModelProto, dict[str, Any]]
Feature = tuple[str, int]
"""A value, and its number of channels."""


class _Net:
    """A network under construction: layers that take and give features."""

    def __init__(self, size: int, seed: int, activation: str = "silu") -> None:
        self.w = Writer(seed)
        self.size = size
        self.activation = activation
        self.image: Feature = (self.w.input("images", FLOAT, (1, 3, size, size)), 3)

    def conv(
        self, x: Feature, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1, activation: str | None = None
    ) -> Feature:
        value, inputs = x
        weights = self.w.normal(channels, inputs // groups, kernel, kernel, fan_in=inputs // groups * kernel**2, gain=1.4)
        y = self.w.Conv(
            value, weights, self.w.vector(channels),
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[(kernel - 1) // 2] * 4, group=groups,
        )  # fmt: skip
        kind = activation or self.activation
        if kind == "silu":
            y = self.w.Mul(y, self.w.Sigmoid(y))
        elif kind == "leaky":
            y = self.w.LeakyRelu(y, alpha=0.1)
        return y, channels

    def depthwise(self, x: Feature, kernel: int = 3, stride: int = 1, activation: str | None = None) -> Feature:
        return self.conv(x, x[1], kernel, stride, x[1], activation)

    def join(self, *features: Feature) -> Feature:
        return self.w.Concat(*(value for value, _ in features), axis=1), sum(channels for _, channels in features)

    def split(self, x: Feature) -> tuple[Feature, Feature]:
        half = x[1] // 2
        first, second = self.w.Split(x[0], [half, half], axis=1, outputs=2)
        return (first, half), (second, half)

    def add(self, x: Feature, y: Feature) -> Feature:
        return self.w.Add(x[0], y[0]), x[1]

    def pool(self, x: Feature, kernel: int, stride: int = 1) -> Feature:
        pads = [kernel // 2 if stride == 1 else 0] * 4
        return self.w.MaxPool(x[0], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads), x[1]

    def double(self, x: Feature) -> Feature:
        scales = [1.0, 1.0, 2.0, 2.0]
        modes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        return self.w.Resize(x[0], None, scales, **modes), x[1]

    # Blocks

    def bottleneck(self, x: Feature, middle: int, adds: bool = True, first: int = 3) -> Feature:
        y = self.conv(self.conv(x, middle, first), x[1], 3)
        return self.add(x, y) if adds else y

    def split_block(self, x: Feature, channels: int, count: int, layer: Any, share: float = 0.5) -> Feature:
        """C2f and C3k2: the second half goes through layers, and every result is joined."""
        pieces = [*self.split(self.conv(x, 2 * int(channels * share)))]
        for _ in range(count):
            pieces.append(layer(pieces[-1]))
        return self.conv(self.join(*pieces), channels)

    def cross_stage(self, x: Feature, channels: int, count: int, adds: bool = True, first: int = 1) -> Feature:
        """C3: one of two branches goes through bottlenecks."""
        y = self.conv(x, channels // 2)
        other = self.conv(x, channels // 2)
        for _ in range(count):
            y = self.bottleneck(y, channels // 2, adds, first)
        return self.conv(self.join(y, other), channels)

    def pyramid_pool(self, x: Feature) -> Feature:
        """SPPF: three poolings in sequence, joined."""
        pieces = [self.conv(x, x[1] // 2)]
        for _ in range(3):
            pieces.append(self.pool(pieces[-1], 5))
        return self.conv(self.join(*pieces), x[1])

    def partial_attention(self, x: Feature) -> Feature:
        """PSA and C2PSA: attention and a feed-forward network on half of the channels."""
        kept, y = self.split(self.conv(x, x[1]))
        y = self.add(y, self.attention(y))
        y = self.add(y, self.conv(self.conv(y, 2 * y[1]), y[1], activation="none"))
        return self.conv(self.join(kept, y), x[1])

    def attention(self, x: Feature) -> Feature:
        w, (_, channels) = self.w, x
        heads = max(1, channels // 64)
        depth = channels // heads
        keys, side = depth // 2, self.size // 32
        y, _ = self.conv(x, channels + 2 * keys * heads, activation="none")
        parts = w.Reshape(y, [1, heads, 2 * keys + depth, side * side])
        q, k, v = w.Split(parts, [keys, keys, depth], axis=2, outputs=3)
        scores = w.Mul(w.MatMul(w.Transpose(q, perm=[0, 1, 3, 2]), k), float(keys**-0.5))
        mixed = w.MatMul(v, w.Transpose(w.Softmax(scores, axis=-1), perm=[0, 1, 3, 2]))
        shape = [1, channels, side, side]
        position = self.depthwise((w.Reshape(v, shape), channels), activation="none")
        return self.conv(self.add((w.Reshape(mixed, shape), channels), position), channels, activation="none")

    # Heads

    def distances(self, scales: Sequence[Feature], classes: int, is_light: bool, bins: int = 16) -> Made:
        """Boxes as distributions over distances, and classes; ``is_light``: with depthwise convolutions for the classes."""
        w, outputs = self.w, 4 * bins + classes
        heads = []
        middle, wide = max(16, scales[0][1] // 4, 4 * bins), max(scales[0][1], min(classes, 100))
        for x in scales:
            boxes = self.conv(self.conv(self.conv(x, middle, 3), middle, 3), 4 * bins, activation="none")
            if is_light:
                y = self.conv(self.depthwise(self.conv(self.depthwise(x), wide)), wide)
            else:
                y = self.conv(self.conv(x, wide, 3), wide, 3)
            heads.append(w.Reshape(self.join(boxes, self.conv(y, classes, activation="none"))[0], [1, outputs, -1]))
        boxes, kinds = w.Split(w.Concat(*heads, axis=2), [4 * bins, classes], axis=1, outputs=2)
        points, strides = self._anchors(len(scales))
        shares = w.Softmax(w.Transpose(w.Reshape(boxes, [1, 4, bins, points.shape[1]]), perm=[0, 2, 1, 3]), axis=1)
        expected = w.Conv(shares, np.arange(bins, dtype=np.float32).reshape(1, bins, 1, 1), kernel_shape=[1, 1])
        expected = w.Reshape(expected, [1, 4, points.shape[1]])
        before, behind = w.Split(expected, [2, 2], axis=1, outputs=2)
        low, high = w.Sub(points[None], before), w.Add(points[None], behind)
        box = w.Mul(w.Concat(w.Div(w.Add(low, high), 2.0), w.Sub(high, low), axis=1), strides)
        w.output(w.Concat(box, w.Sigmoid(kinds), axis=1), "output0", shape=(1, 4 + classes, None))
        return self.made()

    def anchored(self, scales: Sequence[Feature], classes: int) -> Made:
        """Three anchors per cell: centre and extent decoded in place, then all scales joined."""
        w, width = self.w, classes + 5
        rows = []
        for level, x in enumerate(scales):
            side = self.size // (8 << level)
            y, _ = self.conv(x, 3 * width, activation="none")
            y = w.Sigmoid(w.Transpose(w.Reshape(y, [1, 3, width, side, side]), perm=[0, 1, 3, 4, 2]))
            centre, extent, rest = w.Split(y, [2, 2, classes + 1], axis=4, outputs=3)
            grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1)[None, None].astype(np.float32) - 0.5
            centre = w.Mul(w.Add(w.Mul(centre, 2.0), grid), float(8 << level))
            extent = w.Mul(w.Pow(w.Mul(extent, 2.0), 2.0), np.float32([[12, 16], [19, 36], [40, 28]]).reshape(1, 3, 1, 1, 2))
            rows.append(w.Reshape(w.Concat(centre, extent, rest, axis=4), [1, -1, width]))
        w.output(w.Concat(*rows, axis=1), "output0", shape=(1, None, width))
        return self.made()

    def _anchors(self, levels: int) -> tuple[Any, Any]:
        points, strides = [], []
        for stride in [8 << level for level in range(levels)]:
            side = self.size // stride
            y, x = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
            points.append(np.stack([x.reshape(-1), y.reshape(-1)]) + 0.5)
            strides.append(np.full(side * side, stride))
        return np.concatenate(points, axis=1).astype(np.float32), np.concatenate(strides)[None].astype(np.float32)

    def made(self) -> Made:
        image = self.w.generator.standard_normal((1, 3, self.size, self.size), np.float32)
        return self.w.model(), {"images": image}


def yolov5(size: int = 640, classes: int = 80, seed: int = 0) -> Made:
    """YOLOv5n: cross-stage partial blocks (C3)."""
    n = _Net(size, seed)
    y = n.conv(n.conv(n.image, 16, 3, 2), 32, 3, 2)
    fine = n.cross_stage(n.conv(n.cross_stage(y, 32, 1), 64, 3, 2), 64, 2)
    middle = n.cross_stage(n.conv(fine, 128, 3, 2), 128, 3)
    coarse = n.conv(n.pyramid_pool(n.cross_stage(n.conv(middle, 256, 3, 2), 256, 1)), 128)
    y = n.cross_stage(n.join(n.double(coarse), middle), 128, 1, adds=False)
    up = n.conv(y, 64)
    first = n.cross_stage(n.join(n.double(up), fine), 64, 1, adds=False)
    second = n.cross_stage(n.join(n.conv(first, 64, 3, 2), up), 128, 1, adds=False)
    third = n.cross_stage(n.join(n.conv(second, 128, 3, 2), coarse), 256, 1, adds=False)
    return n.anchored((first, second, third), classes)


def yolov7(size: int = 640, classes: int = 80, seed: int = 0) -> Made:
    """YOLOv7-tiny: ELAN blocks, whose every step is joined."""
    n = _Net(size, seed, "leaky")

    def elan(x: Feature, middle: int, channels: int) -> Feature:
        pieces = [n.conv(x, middle), n.conv(x, middle)]
        for _ in range(2):
            pieces.append(n.conv(pieces[-1], middle, 3))
        return n.conv(n.join(*reversed(pieces)), channels)

    y = elan(n.conv(n.conv(n.image, 32, 3, 2), 64, 3, 2), 32, 64)
    fine = elan(n.pool(y, 2, 2), 64, 128)
    middle = elan(n.pool(fine, 2, 2), 128, 256)
    y = elan(n.pool(middle, 2, 2), 256, 512)
    beside, y = n.conv(y, 256), n.conv(y, 256)
    y = n.conv(n.join(*(n.pool(y, kernel) for kernel in (13, 9, 5)), y), 256)
    coarse = n.conv(n.join(y, beside), 256)
    up = elan(n.join(n.conv(middle, 128), n.double(n.conv(coarse, 128))), 64, 128)
    first = elan(n.join(n.conv(fine, 64), n.double(n.conv(up, 64))), 32, 64)
    second = elan(n.join(n.conv(first, 128, 3, 2), up), 64, 128)
    third = elan(n.join(n.conv(second, 256, 3, 2), coarse), 128, 256)
    return n.anchored((n.conv(first, 128, 3), n.conv(second, 256, 3), n.conv(third, 512, 3)), classes)


def yolov10(size: int = 640, classes: int = 80, seed: int = 0) -> Made:
    """YOLOv10n: C2f, downsampling by separate channels, partial self-attention, its one-to-one heads."""
    n = _Net(size, seed)

    def block(x: Feature, channels: int, count: int, adds: bool = True) -> Feature:
        return n.split_block(x, channels, count, lambda y: n.bottleneck(y, y[1], adds))

    def down(x: Feature, channels: int) -> Feature:
        return n.depthwise(n.conv(x, channels), 3, 2, "none")

    def inverted(x: Feature) -> Feature:
        y = n.depthwise(n.conv(n.depthwise(x), 2 * x[1]), 7)
        return n.add(x, n.depthwise(n.conv(y, x[1])))

    y = block(n.conv(n.conv(n.image, 16, 3, 2), 32, 3, 2), 32, 1)
    fine = block(n.conv(y, 64, 3, 2), 64, 2)
    middle = block(down(fine, 128), 128, 2)
    coarse = n.partial_attention(n.pyramid_pool(block(down(middle, 256), 256, 1)))
    up = block(n.join(n.double(coarse), middle), 128, 1, False)
    first = block(n.join(n.double(up), fine), 64, 1, False)
    second = block(n.join(n.conv(first, 64, 3, 2), up), 128, 1, False)
    third = n.split_block(n.join(down(second, 128), coarse), 256, 1, inverted)
    return n.distances((first, second, third), classes, True)


def yolo11(size: int = 640, classes: int = 80, seed: int = 0) -> Made:
    """YOLO11n: C3k2 blocks, some of them with cross-stage blocks inside, and partial self-attention (C2PSA)."""
    n = _Net(size, seed)

    def block(x: Feature, channels: int, share: float = 0.5, nests: bool = False) -> Feature:
        def layer(y: Feature) -> Feature:
            return n.cross_stage(y, y[1], 2, True, 3) if nests else n.bottleneck(y, y[1] // 2)

        return n.split_block(x, channels, 1, layer, share)

    y = block(n.conv(n.conv(n.image, 16, 3, 2), 32, 3, 2), 64, 0.25)
    fine = block(n.conv(y, 64, 3, 2), 128, 0.25)
    middle = block(n.conv(fine, 128, 3, 2), 128, nests=True)
    coarse = n.partial_attention(n.pyramid_pool(block(n.conv(middle, 256, 3, 2), 256, nests=True)))
    up = block(n.join(n.double(coarse), middle), 128)
    first = block(n.join(n.double(up), fine), 64)
    second = block(n.join(n.conv(first, 64, 3, 2), up), 128)
    third = block(n.join(n.conv(second, 128, 3, 2), coarse), 256, nests=True)
    return n.distances((first, second, third), classes, True)
