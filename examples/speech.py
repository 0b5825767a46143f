"""Speech models with seeded random weights, written with the Builder, whose length the durations of the phones decide.

``vocoder`` has the parts of VITS (Kim et al., arXiv:2106.06103), ``mel`` those of FastSpeech 2 (Ren et al., arXiv:2006.04558).
"""

from __future__ import annotations

import numpy as np
from transformers import Weights, encoder_layer

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model, Value


def vocoder(width: int = 192, blocks: int = 3, seed: int = 0) -> Model:
    """Return a model of ``phones`` f32 [1, length, width] to ``sound`` f32 [1, 1, 256 * frames]."""
    with Builder("vocoder") as b:
        w = Weights(b, seed)
        y = b.Transpose(b.input("phones", "f32", (1, "length", width)), [0, 2, 1])
        for _ in range(blocks):
            y = b.Add(y, b.Relu(_conv(b, w, y, width, width, 5)))
        first, last, frame = _frames(b, _durations(b, w, y, width))
        path = b.And(b.LessEqual(first, frame), b.Less(frame, last))
        y = b.Transpose(b.MatMul(b.Cast(path, to="f32"), b.Transpose(y, [0, 2, 1])), [0, 2, 1])
        for block in range(blocks):
            gates = _conv(b, w, y, width, 2 * width, 5, dilation=1 << block)
            one, other = b.Split(gates, [width, width], axis=1, outputs=2)
            y = b.Add(y, _conv(b, w, b.Multiply(b.Tanh(one), b.Sigmoid(other)), width, width, 1))
        channels = width
        for stride in (8, 8, 4):
            weight = b.constant(w.array(channels, channels // 2, 2 * stride) / np.float32(np.sqrt(channels * 2)))
            y = b.ConvTranspose(b.LeakyRelu(y, alpha=0.1), weight, strides=(stride,), pads=(stride // 2, stride // 2))
            channels //= 2
            y = b.Add(y, _conv(b, w, b.LeakyRelu(y, alpha=0.1), channels, channels, 3, dilation=3))
        b.output("sound", b.Tanh(_conv(b, w, y, channels, 1, 7)))
    return b.model


def mel(width: int = 256, layers: int = 4, seed: int = 0) -> Model:
    """Return a model of ``phones`` f32 [1, length, width] to ``mel`` f32 [1, frames, 80]."""
    with Builder("mel") as b:
        w = Weights(b, seed)
        y = b.input("phones", "f32", (1, "length", width))
        for _ in range(layers):
            y = encoder_layer(b, w, y, width, 4, 4 * width)
        _, last, frame = _frames(b, _durations(b, w, b.Transpose(y, [0, 2, 1]), width))
        phone = b.ReduceSum(b.Cast(b.LessEqual(last, frame), to="i64"), [1], keepdims=False)
        y = b.Gather(y, phone, axis=1)
        for _ in range(layers):
            y = encoder_layer(b, w, y, width, 4, 4 * width)
        b.output("mel", w.linear(y, width, 80))
    return b.model


def _conv(b: Builder, w: Weights, x: Value, before: int, after: int, size: int, dilation: int = 1) -> Value:
    """Convolve along the last axis, which keeps its size."""
    weight = b.constant(w.array(after, before, size) / np.float32(np.sqrt(before * size)))
    pad = dilation * (size // 2)
    result: Value = b.Conv(x, weight, w.vector(after), pads=(pad, pad), dilations=(dilation,))
    return result


def _durations(b: Builder, w: Weights, x: Value, width: int) -> Value:
    """Return the frames of each phone, i64 [length]: 2 to about 8."""
    rate = b.Sigmoid(_conv(b, w, b.Relu(_conv(b, w, x, width, width, 3)), width, 1, 1))
    return b.Reshape(b.Cast(b.Ceil(b.Multiply(b.Add(rate, 0.25), 6.0)), to="i64"), [-1])


def _frames(b: Builder, durations: Value) -> tuple[Value, Value, Value]:
    """Return the first frame of each phone and that behind its last one, i64 [1, length], and the frames, i64 [frames, 1]."""
    last = b.CumSum(durations, b.constant(0))
    total = b.ReduceSum(durations, [0], keepdims=False)
    frames = b.Unsqueeze(b.Range(b.constant(0), total, b.constant(1)), [1])
    first, last = (b.Unsqueeze(each, [0]) for each in (b.Subtract(last, durations), last))
    return first, last, frames
