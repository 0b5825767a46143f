"""Vision models of known sizes with seeded random weights, in the forms that torch's exporters leave.

Each gives the ONNX model and inputs for one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx_writing import FLOAT, Writer

Made = tuple[onnx.ModelProto, dict[str, Any]]


def _image(w: Writer, size: int) -> Any:
    return w.generator.standard_normal((1, 3, size, size), np.float32)


def _conv(w: Writer, x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, gain: float = np.sqrt(2)) -> str:
    weights = w.normal(outputs, inputs, kernel, kernel, fan_in=inputs * kernel**2, gain=gain)
    pads = [kernel // 2] * 4 if kernel % 2 else [0] * 4
    return w.Conv(x, weights, w.vector(outputs), kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)


def vit(layers: int = 12, width: int = 768, heads: int = 12, size: int = 224, patch: int = 16, classes: int = 1000) -> Made:
    """ViT-B/16: patches by a convolution, a class token before them, encoder layers that normalise first."""
    w = Writer()
    patches = (size // patch) ** 2
    y = _conv(w, w.input("image", FLOAT, (1, 3, size, size)), 3, width, patch, patch, 1.0)
    y = w.Transpose(w.Reshape(y, [0, width, patches]), perm=[0, 2, 1])
    y = w.Concat(w.normal(1, 1, width, fan_in=width), y, axis=1)
    y = w.Add(y, w.normal(1, patches + 1, width, fan_in=width))
    depth = width // heads
    scale = float(depth**-0.25)
    for _ in range(layers):
        z = w.layer_norm(y, width, 1e-6)
        q = w.heads(w.linear(z, width, width), heads, depth)
        k = w.heads(w.linear(z, width, width), heads, depth, (0, 2, 3, 1))
        v = w.heads(w.linear(z, width, width), heads, depth)
        shares = w.Softmax(w.MatMul(w.Mul(q, scale), w.Mul(k, scale)), axis=-1)
        mixed = w.Reshape(w.Transpose(w.MatMul(shares, v), perm=[0, 2, 1, 3]), [0, 0, width])
        y = w.Add(y, w.linear(mixed, width, width))
        inside = w.gelu(w.linear(w.layer_norm(y, width, 1e-6), width, 4 * width))
        y = w.Add(y, w.linear(inside, 4 * width, width))
    first = w.Gather(w.layer_norm(y, width, 1e-6), 0, axis=1)
    logits = w.Gemm(first, w.normal(classes, width, fan_in=width), w.vector(classes), transB=1)
    w.output(logits, "logits", shape=(1, classes))
    return w.model(), {"image": _image(w, size)}


# A detector


def _silu(w: Writer, x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> str:
    y = _conv(w, x, inputs, outputs, kernel, stride, 1.5)
    return w.Mul(y, w.Sigmoid(y))


def _split_blocks(w: Writer, x: str, inputs: int, outputs: int, count: int, adds: bool) -> str:
    """Half of the channels through ``count`` pairs of convolutions, every step's result joined with the others at the end."""
    half = outputs // 2
    pieces = w.Split(_silu(w, x, inputs, outputs, 1), [half, half], axis=1, outputs=2)
    for _ in range(count):
        y = _silu(w, _silu(w, pieces[-1], half, half), half, half)
        pieces.append(w.Add(pieces[-1], y) if adds else y)
    return _silu(w, w.Concat(*pieces, axis=1), half * len(pieces), outputs, 1)


def _pyramid_pool(w: Writer, x: str, channels: int) -> str:
    """Three poolings one behind the other, joined."""
    pieces = [_silu(w, x, channels, channels // 2, 1)]
    for _ in range(3):
        pieces.append(w.MaxPool(pieces[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    return _silu(w, w.Concat(*pieces, axis=1), channels * 2, channels, 1)


def _doubled(w: Writer, x: str) -> str:
    """Twice as high and wide, each pixel repeated."""
    return w.Resize(
        x, None, [1.0, 1.0, 2.0, 2.0], mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric"
    )


def detector(size: int = 640, classes: int = 80, bins: int = 16) -> Made:
    """A detector of YOLOv8n's sizes: three scales, joined from the coarse to the fine and back, boxes as expected distances."""
    w = Writer()
    y = _silu(w, w.input("images", FLOAT, (1, 3, size, size)), 3, 16, stride=2)
    y = _split_blocks(w, _silu(w, y, 16, 32, stride=2), 32, 32, 1, True)
    fine = _split_blocks(w, _silu(w, y, 32, 64, stride=2), 64, 64, 2, True)
    middle = _split_blocks(w, _silu(w, fine, 64, 128, stride=2), 128, 128, 2, True)
    y = _split_blocks(w, _silu(w, middle, 128, 256, stride=2), 256, 256, 1, True)
    coarse = _pyramid_pool(w, y, 256)
    up = _split_blocks(w, w.Concat(_doubled(w, coarse), middle, axis=1), 384, 128, 1, False)
    first = _split_blocks(w, w.Concat(_doubled(w, up), fine, axis=1), 192, 64, 1, False)
    second = w.Concat(_silu(w, first, 64, 64, stride=2), up, axis=1)
    second = _split_blocks(w, second, 192, 128, 1, False)
    third = w.Concat(_silu(w, second, 128, 128, stride=2), coarse, axis=1)
    third = _split_blocks(w, third, 384, 256, 1, False)
    heads = []
    for x, channels in ((first, 64), (second, 128), (third, 256)):
        boxes = _conv(w, _silu(w, _silu(w, x, channels, 64), 64, 64), 64, 4 * bins, 1, 1, 1.0)
        kinds = _conv(w, _silu(w, _silu(w, x, channels, classes), classes, classes), classes, classes, 1, 1, 1.0)
        heads.append(w.Reshape(w.Concat(boxes, kinds, axis=1), [1, 4 * bins + classes, -1]))
    boxes, kinds = w.Split(w.Concat(*heads, axis=2), [4 * bins, classes], axis=1, outputs=2)
    w.output(w.Concat(_boxes(w, boxes, size, bins), w.Sigmoid(kinds), axis=1), "output0", shape=(1, 4 + classes, None))
    return w.model(), {"images": _image(w, size)}


def _boxes(w: Writer, boxes: str, size: int, bins: int) -> str:
    """Distances to four sides, each an expectation over bins, to centre and extent."""
    points, strides = _anchors(size)
    shares = w.Softmax(w.Transpose(w.Reshape(boxes, [1, 4, bins, points.shape[1]]), perm=[0, 2, 1, 3]), axis=1)
    distances = w.Conv(shares, np.arange(bins, dtype=np.float32).reshape(1, bins, 1, 1), kernel_shape=[1, 1])
    distances = w.Reshape(distances, [1, 4, points.shape[1]])
    before, behind = w.Slice(distances, [0], [2], [1], [1]), w.Slice(distances, [2], [4], [1], [1])
    low, high = w.Sub(points[None], before), w.Add(points[None], behind)
    return w.Mul(w.Concat(w.Div(w.Add(low, high), 2.0), w.Sub(high, low), axis=1), strides)


def _anchors(size: int) -> tuple[Any, Any]:
    points, strides = [], []
    for stride in (8, 16, 32):
        count = size // stride
        y, x = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
        points.append(np.stack([x.reshape(-1), y.reshape(-1)]) + 0.5)
        strides.append(np.full(count * count, stride))
    return np.concatenate(points, axis=1).astype(np.float32), np.concatenate(strides)[None].astype(np.float32)


# A U-Net


def unet(size: int = 256, channels: int = 32, classes: int = 2, depth: int = 4) -> Made:
    """A U-Net whose way up resizes bilinearly (corners aligned) and joins what the way down left."""
    w = Writer()
    y = _double(w, w.input("image", FLOAT, (1, 3, size, size)), 3, channels, channels)
    kept, width = [], channels
    for level in range(depth):
        kept.append((y, width))
        outputs = width * 2 if level < depth - 1 else width
        y = _double(w, w.MaxPool(y, kernel_shape=[2, 2], strides=[2, 2]), width, outputs, outputs)
        width = outputs
    for level, (skipped, beside) in enumerate(reversed(kept)):
        scales = [1.0, 1.0, 2.0, 2.0]
        up = w.Resize(y, None, scales, mode="linear", coordinate_transformation_mode="align_corners")
        outputs = beside // 2 if level < depth - 1 else channels
        y = _double(w, w.Concat(skipped, up, axis=1), width + beside, (width + beside) // 2, outputs)
        width = outputs
    w.output(_conv(w, y, width, classes, 1, 1, 1.0), "mask", shape=(1, classes, size, size))
    return w.model(), {"image": _image(w, size)}


def _double(w: Writer, x: str, inputs: int, middle: int, outputs: int) -> str:
    return w.Relu(_conv(w, w.Relu(_conv(w, x, inputs, middle)), middle, outputs))


# ResNet-50, plain and quantised


class _Plain:
    """Layers in f32."""

    def __init__(self, w: Writer) -> None:
        self.w = w

    def image(self, x: str) -> str:
        return x

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int, relu: bool, gain: float) -> str:
        y = _conv(self.w, x, inputs, outputs, kernel, stride, gain)
        return self.kept(self.w.Relu(y) if relu else y)

    def sum(self, x: str, y: str) -> str:
        return self.kept(self.w.Relu(self.w.Add(x, y)))

    def pool(self, x: str) -> str:
        return self.kept(self.w.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))

    def mean(self, x: str) -> str:
        return self.kept(self.w.GlobalAveragePool(x))

    def flat(self, x: str) -> str:
        return self.kept(self.w.Flatten(x, axis=1))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        weights = self.w.normal(outputs, inputs, fan_in=inputs)
        return self.kept(self.w.Gemm(x, weights, self.w.vector(outputs), transB=1))

    def kept(self, x: str) -> str:
        return x


class _Quantised(_Plain):
    """The same layers between QuantizeLinear and DequantizeLinear, as onnxruntime's static quantiser leaves them: activations in
    u8 by the ranges that were seen, weights in i8 by channels, biases in i32. Rectification is what the bound 0 of u8 does."""

    def __init__(self, w: Writer, ranges: Sequence[tuple[float, float]]) -> None:
        super().__init__(w)
        self.ranges = iter(ranges)
        self.scales: dict[str, tuple[Any, Any]] = {}

    def image(self, x: str) -> str:
        return self.kept(x)

    def kept(self, x: str, like: str | None = None) -> str:
        low, high = next(self.ranges)
        low, high = min(low, 0.0), max(high, 0.0)
        scale = np.float32((high - low) / 255)
        zero = np.uint8(np.clip(np.round(-low / scale), 0, 255))
        if like is not None:
            scale, zero = self.scales[like]
        y = self.w.DequantizeLinear(self.w.QuantizeLinear(x, scale, zero), scale, zero)
        self.scales[y] = (scale, zero)
        return y

    def _weights(self, x: str, weights: Any, bias: Any) -> tuple[str, str]:
        """By channels, symmetric; the bias in steps of both scales."""
        flat = weights.reshape(weights.shape[0], -1)
        scale = (np.abs(flat).max(axis=1) / 127).astype(np.float32)
        column = scale.reshape(-1, *[1] * (weights.ndim - 1))
        codes = np.clip(np.round(weights / column), -127, 127).astype(np.int8)
        step = self.scales[x][0] * scale
        whole = np.round(bias / step).astype(np.int32)
        zeros = np.zeros(len(scale), np.int8), np.zeros(len(scale), np.int32)
        made = self.w.DequantizeLinear(codes, scale, zeros[0], axis=0), self.w.DequantizeLinear(whole, step, zeros[1], axis=0)
        return made

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int, relu: bool, gain: float) -> str:
        weights = self.w.normal(outputs, inputs, kernel, kernel, fan_in=inputs * kernel**2, gain=gain)
        made = self._weights(x, weights, self.w.vector(outputs))
        y = self.w.Conv(x, *made, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)
        return self.kept(y)

    def sum(self, x: str, y: str) -> str:
        return self.kept(self.w.Add(x, y))

    def pool(self, x: str) -> str:
        return self.kept(self.w.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), like=x)

    def flat(self, x: str) -> str:
        return self.kept(self.w.Flatten(x, axis=1), like=x)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        weights = self.w.normal(outputs, inputs, fan_in=inputs)
        return self.kept(self.w.Gemm(x, *self._weights(x, weights, self.w.vector(outputs)), transB=1))


def resnet50(size: int = 224, quantised: bool = True, seed: int = 0) -> Made:
    """ResNet-50 with its normalisation in the weights; quantised by the ranges of one run in f32, unless that is not wanted."""
    w = Writer(seed)
    plain = _Plain(w)
    seen: list[str] = []
    plain.kept = lambda x: seen.append(x) or x  # type: ignore[method-assign,func-returns-value]
    logits = _resnet50(plain, w.input("image", FLOAT, (1, 3, size, size)))
    feed = {"image": np.random.default_rng(seed + 1).standard_normal((1, 3, size, size), np.float32)}
    if not quantised:
        w.output(logits, "logits", shape=(1, 1000))
        return w.model(), feed
    ranges = _ranges(w, seen, feed)
    image = feed["image"]
    w = Writer(seed)
    quantising = _Quantised(w, [(float(image.min()), float(image.max())), *ranges])
    logits = _resnet50(quantising, w.input("image", FLOAT, (1, 3, size, size)))
    w.output(logits, "logits", shape=(1, 1000))
    return w.model(), feed


def _ranges(w: Writer, names: Sequence[str], feed: dict[str, Any]) -> list[tuple[float, float]]:
    """The least and the greatest element of each of some values in one run."""
    import dovetail
    from dovetail.formats import import_foreign
    from dovetail.formats.onnx import codec

    for i, name in enumerate(names):
        w.output(name, f"seen_{i}")
    found = dovetail.compile(import_foreign(codec.read(w.model().SerializeToString())))(feed)
    return [(float(found[f"seen_{i}"].min()), float(found[f"seen_{i}"].max())) for i in range(len(names))]


def _resnet50(layers: _Plain, x: str) -> str:
    y = layers.pool(layers.conv(layers.image(x), 3, 64, 7, 2, True, np.sqrt(2)))
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            z = layers.conv(y, inputs, width, 1, 1, True, np.sqrt(2))
            z = layers.conv(z, width, width, 3, stride, True, np.sqrt(2))
            z = layers.conv(z, width, 4 * width, 1, 1, False, 0.4)
            if block == 0:
                y = layers.conv(y, inputs, 4 * width, 1, stride, False, 1.0)
            inputs = 4 * width
            y = layers.sum(z, y)
    return layers.dense(layers.flat(layers.mean(y)), 2048, 1000)
