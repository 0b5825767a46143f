"""Models of single layers, from whose steps ``bench/cost.py --fit times`` fits the times of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

import dovetail

Sample: TypeAlias = tuple[str, dovetail.Model]
LENGTHS = (256, 8192, 1 << 18, 1 << 21)
UNARY = (
    "Abs Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Negative Reciprocal Relu Round Sigmoid Sin Softplus "
    "Sqrt Swish Tanh"
).split()
BINARY = "Add Divide Equal Greater Maximum Minimum Mod Multiply Power Subtract".split()
REDUCTIONS = "ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum".split()
ROWS = ((1, 16), (192, 16), (384, 64), (512, 512), (64, 4096), (8192, 256))
IMAGES = ((1, 8, 12, 12), (1, 32, 28, 28), (2, 64, 56, 56), (1, 16, 160, 160), (4, 256, 28, 28))
CONVOLUTIONS = (
    # channels, outputs, size, kernel, stride, groups
    (3, 16, 32, 3, 2, 1), (3, 32, 224, 3, 2, 1), (3, 64, 224, 7, 2, 1), (16, 16, 16, 3, 1, 1), (16, 32, 80, 3, 1, 1),
    (64, 64, 56, 3, 1, 1), (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (64, 128, 28, 3, 2, 1), (32, 8, 40, 1, 1, 1),
    (64, 256, 56, 1, 1, 1), (256, 64, 28, 1, 1, 1), (512, 512, 7, 1, 1, 1), (480, 120, 1, 1, 1, 1), (24, 96, 40, 1, 1, 1),
    (16, 16, 112, 3, 1, 16), (96, 96, 40, 5, 1, 96), (240, 240, 14, 5, 1, 240), (480, 480, 7, 3, 1, 480), (64, 64, 20, 3, 2, 64),
    (64, 64, 28, 3, 1, 4), (8, 8, 100, 9, 1, 1), (1, 16, 120, 5, 1, 1), (32, 1, 80, 3, 1, 1),
    (8, 4, 9, 3, 1, 1), (4, 8, 6, 1, 1, 1), (8, 8, 32, 3, 1, 1), (4, 4, 24, 3, 1, 1), (12, 20, 20, 3, 1, 1), (3, 6, 64, 3, 1, 1),
)  # fmt: skip
PRODUCTS = (
    # batch, rows, depth, columns
    (1, 1, 64, 64), (1, 4, 128, 96), (1, 1, 512, 512), (1, 1, 1024, 4096), (1, 20, 384, 1536), (1, 128, 768, 768),
    (1, 400, 384, 1536), (1, 16, 32, 8), (12, 16, 32, 16), (12, 20, 20, 32), (24, 128, 64, 128), (8, 128, 128, 64),
    (6, 400, 64, 400), (2, 9, 4, 9),
)  # fmt: skip
RECURRENT = (
    # time steps, batch, inputs, state
    (7, 2, 8, 8), (15, 4, 16, 16), (1, 1, 128, 128), (31, 1, 128, 128), (16, 2, 256, 128), (20, 1, 512, 256), (40, 3, 256, 512),
)  # fmt: skip


def samples() -> Iterator[Sample]:
    """Yield the names of layers, and their models."""
    yield from _elementwise()
    yield from _rows()
    yield from _movement()
    yield from _images()
    yield from _products()
    yield from _recurrent()


def _layer(
    name: str, make: str | Callable[..., Any], shapes: Sequence[Sequence[int]], *args: Any, dtype: str = "f32", **attributes: Any
) -> Sample:
    """Return a model whose output is that of an operator, or of a function of the builder, with inputs of these shapes."""
    with dovetail.Builder(name) as b:
        xs = [b.input(f"x{number}", dtype, tuple(shape)) for number, shape in enumerate(shapes)]
        y = getattr(b, make)(*xs, *args, **attributes) if isinstance(make, str) else make(b, *xs, *args, **attributes)
        b.output("y", y[0] if isinstance(y, list | tuple) else y)
    return f"{name} {' '.join(map(str, shapes))}", b.model


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).uniform(-0.5, 0.5, shape).astype(np.float32)


def _codes(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, 120, shape).astype(np.int8)


def _elementwise() -> Iterator[Sample]:
    for n in LENGTHS:
        shape = (n // 64, 64)
        for name in UNARY:
            yield _layer(name, name, [shape])
        for name in BINARY:
            yield _layer(name, name, [shape, shape])
        yield _layer("Cast", "Cast", [shape], dtype="i64", to="f32")
        yield _layer("Range", lambda b, x: b.Range(0, b.Gather(b.Shape(x), 0), 1), [(n,)])
        yield _layer("DynamicQuantizeLinear", "DynamicQuantizeLinear", [shape])
        for make in (_select, _chain, _rounded, _activated):
            yield _layer(make.__name__, make, [shape])


def _select(b: Any, x: Any) -> Any:
    return b.Where(b.Greater(x, 0.25), x, 0.0)


def _chain(b: Any, x: Any) -> Any:
    return b.Clip(b.Add(b.Multiply(b.Subtract(x, 0.5), 2.0), x), -1.0, 1.0)


def _rounded(b: Any, x: Any) -> Any:
    codes = b.QuantizeLinear(x, np.float32(0.02), np.uint8(3))
    return b.DequantizeLinear(codes, np.float32(0.02), np.uint8(3))


def _activated(b: Any, x: Any) -> Any:
    return b.Gelu(b.Add(x, _random(64)))


def _rows() -> Iterator[Sample]:
    for shape in ROWS:
        for name in ("Softmax", "LogSoftmax", "Trilu"):
            yield _layer(name, name, [shape])
        yield _layer("LayerNormalization", "LayerNormalization", [shape], _random(shape[1]), _random(shape[1]))
        for axis in (0, 1):
            yield _layer(f"ArgMax {axis}", "ArgMax", [shape], axis=axis)
            for name in REDUCTIONS:
                yield _layer(f"{name} {axis}", name, [shape], [axis])
        yield _layer("TopK", "TopK", [shape], [4])
        yield _layer("Gather", _gather, [shape[:1]], _random(1000, shape[1]), dtype="i64")
        yield _layer("GatherElements", _gather_elements, [shape])


def _gather(b: Any, index: Any, table: Any) -> Any:
    return b.Gather(table, b.Mod(index, len(table)))


def _gather_elements(b: Any, x: Any) -> Any:
    return b.GatherElements(x, b.Mod(b.Cast(x, to="i64"), x.shape[0]))


def _movement() -> Iterator[Sample]:
    for shape in IMAGES:
        for order in ((0, 2, 3, 1), (0, 3, 2, 1), (0, 2, 1, 3), (1, 0, 2, 3)):
            yield _layer(f"Transpose {order}", "Transpose", [shape], order)
        yield _layer("Concat", "Concat", [shape, shape], axis=1)
        yield _layer("Slice", "Slice", [shape], [1, 1], [-1, -1], [2, 3])
        yield _layer("Slice in steps", "Slice", [shape], [0, 0], [1 << 20, 1 << 20], [2, 3], [2, 2])
        yield _layer("Pad", "Pad", [shape], [0, 0, 1, 1, 0, 0, 1, 1])
        yield _layer("Tile", "Tile", [shape], [1, 2, 1, 1])


def _images() -> Iterator[Sample]:
    for shape in IMAGES:
        for name in ("MaxPool", "AveragePool"):
            yield _layer(name, name, [shape], kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
        yield _layer("GlobalAveragePool", "GlobalAveragePool", [shape])
        for mode in ("nearest", "linear"):
            yield _layer(f"Resize {mode}", _enlarged, [shape], mode)
    for channels, outputs, size, kernel, stride, groups in CONVOLUTIONS:
        weights = outputs, channels // groups, kernel, kernel
        options = {"pads": (kernel // 2,) * 4, "strides": (stride, stride), "group": groups}
        for batch in (1, 3):
            shape = (batch, channels, size, size)
            yield _layer(f"Conv {weights}", _conv, [shape], weights, **options)
            yield _layer(f"quantized Conv {weights}", _quantized_conv, [shape], weights, **options)
        if groups == 1 and size <= 80:
            yield _layer(f"ConvTranspose {weights}", "ConvTranspose", [shape], _random(channels, outputs, 2, 2), strides=(2, 2))


def _enlarged(b: Any, x: Any, mode: str) -> Any:
    channels = x.shape[1]
    return b.Resize(b.Conv(x, _random(channels, channels, 1, 1)), None, np.array([1, 1, 2, 2], np.float32), mode=mode)


def _conv(b: Any, x: Any, weights: tuple[int, ...], **options: Any) -> Any:
    return b.Relu(b.Conv(x, _random(*weights), _random(weights[0]), **options))


def _quantized_conv(b: Any, x: Any, weights: tuple[int, ...], **options: Any) -> Any:
    w = b.DequantizeLinear(_codes(*weights), np.float32(0.01), np.int8(0))
    return _rounded(b, b.Relu(b.Conv(_rounded(b, x), w, _random(weights[0]), **options)))


def _products() -> Iterator[Sample]:
    for batch, rows, depth, columns in PRODUCTS:
        first, second = (batch, rows, depth), (batch, depth, columns)
        yield _layer("MatMul", "MatMul", [first, second])
        yield _layer("MatMul of heads", _heads, [(1, rows, batch, depth), (1, depth, batch, columns)])
        if batch == 1:
            for make in (_linear, _integer_linear, _compressed_linear):
                yield _layer(make.__name__, make, [first], depth, columns)


def _heads(b: Any, x: Any, y: Any) -> Any:
    return b.MatMul(b.Transpose(x, (0, 2, 1, 3)), b.Transpose(y, (0, 2, 1, 3)))


def _linear(b: Any, x: Any, depth: int, columns: int) -> Any:
    return b.Relu(b.Add(b.MatMul(x, _random(depth, columns)), _random(columns)))


def _integer_linear(b: Any, x: Any, depth: int, columns: int) -> Any:
    codes, scale, zero = b.DynamicQuantizeLinear(x)
    sums = b.MatMulInteger(codes, _codes(depth, columns), zero, np.int8(0))
    return b.Add(b.Multiply(b.Cast(sums, to="f32"), b.Multiply(scale, np.float32(0.02))), _random(columns))


def _compressed_linear(b: Any, x: Any, depth: int, columns: int) -> Any:
    return b.MatMul(x, b.Multiply(b.Cast(_codes(depth, columns), to="f32"), np.float32(0.01)))


def _recurrent() -> Iterator[Sample]:
    for length, batch, inputs, hidden in RECURRENT:
        shape = length, batch, inputs
        for direction, count in (("forward", 1), ("bidirectional", 2)):
            for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
                w, r = _random(count, gates * hidden, inputs), _random(count, gates * hidden, hidden)
                options: dict[str, Any] = {"linear_before_reset": True} if name == "GRU" else {}
                yield _layer(f"{name} {direction}", name, [shape], w, r, hidden_size=hidden, direction=direction, **options)
            yield _layer(f"quantized LSTM {direction}", _quantized_lstm, [shape], hidden, count)


def _quantized_lstm(b: Any, x: Any, hidden: int, count: int) -> Any:
    w, r = _codes(count, x.shape[2], 4 * hidden), _codes(count, hidden, 4 * hidden)
    scale, zero = np.full(count, 0.01, np.float32), np.zeros(count, np.int8)
    none = [None] * 5
    direction = "bidirectional" if count == 2 else "forward"
    return b.DynamicQuantizeLSTM(x, w, r, *none, scale, zero, scale, zero, hidden_size=hidden, direction=direction)
