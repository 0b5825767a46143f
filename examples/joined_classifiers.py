"""Classifiers that join and split channels in every layer, with seeded random weights, as torch's exporter leaves them.

Each gives the ONNX model and inputs for one run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx_writing import FLOAT, Writer

Made = tuple[onnx.ModelProto, dict[str, Any]]


def _conv(w: Writer, x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> str:
    weights = w.normal(outputs, inputs // groups, kernel, kernel, fan_in=inputs // groups * kernel**2, gain=1.4)
    options: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
    return w.Conv(x, weights, w.vector(outputs), group=groups, **options)


def _norm(w: Writer, x: str, channels: int) -> str:
    scale, variance = w.vector(channels, 1.0), np.abs(w.vector(channels, 1.0))
    return w.BatchNormalization(x, scale, w.vector(channels), w.vector(channels), variance)


def _classes(w: Writer, x: str, channels: int, classes: int) -> str:
    y = w.Flatten(w.GlobalAveragePool(x), axis=1)
    return w.Gemm(y, w.normal(classes, channels, fan_in=channels), w.vector(classes), transB=1)


def _finish(w: Writer, logits: str, size: int, classes: int) -> Made:
    w.output(logits, "logits", shape=(1, classes))
    return w.model(), {"image": w.generator.standard_normal((1, 3, size, size), np.float32)}


def shufflenet_v2(size: int = 224, classes: int = 1000, seed: int = 0) -> Made:
    """ShuffleNet v2 x1.0: half of the channels pass, then the channels of both halves are interleaved."""
    w = Writer(seed)

    def shuffle(x: str, channels: int, side: int) -> str:
        pairs = w.Reshape(x, [1, 2, channels // 2, side, side])
        return w.Reshape(w.Transpose(pairs, perm=[0, 2, 1, 3, 4]), [1, channels, side, side])

    def branch(x: str, inputs: int, channels: int, stride: int) -> str:
        y = w.Relu(_conv(w, x, inputs, channels))
        return w.Relu(_conv(w, _conv(w, y, channels, channels, 3, stride, channels), channels, channels))

    y = w.Relu(_conv(w, w.input("image", FLOAT, (1, 3, size, size)), 3, 24, 3, 2))
    y = w.MaxPool(y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels, side = 24, size // 4
    for outputs, units in ((116, 3), (232, 7), (464, 3)):
        half, side = outputs // 2, side // 2
        beside = w.Relu(_conv(w, _conv(w, y, channels, channels, 3, 2, channels), channels, half))
        y = shuffle(w.Concat(beside, branch(y, channels, half, 2), axis=1), outputs, side)
        for _ in range(units):
            kept, other = w.Split(y, [half, half], axis=1, outputs=2)
            y = shuffle(w.Concat(kept, branch(other, half, half, 1), axis=1), outputs, side)
        channels = outputs
    y = w.Relu(_conv(w, y, channels, 1024))
    return _finish(w, _classes(w, y, 1024, classes), size, classes)


def densenet(
    size: int = 224, classes: int = 1000, growth: int = 32, blocks: tuple[int, ...] = (6, 12, 24, 16), seed: int = 0
) -> Made:
    """DenseNet-121 as torchvision writes it: every layer joins the results of all earlier ones anew."""
    w = Writer(seed)
    channels = 2 * growth
    y = w.Relu(_conv(w, w.input("image", FLOAT, (1, 3, size, size)), 3, channels, 7, 2))
    y = w.MaxPool(y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for number, layers in enumerate(blocks):
        features = [y]
        for _ in range(layers):
            joined = w.Concat(*features, axis=1) if len(features) > 1 else y
            x = _conv(w, w.Relu(_norm(w, joined, channels)), channels, 4 * growth)
            features.append(_conv(w, w.Relu(x), 4 * growth, growth, 3))
            channels += growth
        y = w.Relu(_norm(w, w.Concat(*features, axis=1), channels))
        if number < len(blocks) - 1:
            y = _conv(w, y, channels, channels // 2)
            y = w.AveragePool(y, kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    return _finish(w, _classes(w, y, channels, classes), size, classes)
