"""Operators on quantized tensors run natively, and give what their own rules give, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.engine.engine import Engine
from dovetail.errors import EngineError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter.interpret import interpret

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")
CHANCE = np.random.default_rng(3)


def codes(kind: str, *shape: int) -> Any:
    info = np.iinfo(kind)
    return CHANCE.integers(info.min, info.max, shape, kind, endpoint=True)


def real(number: float) -> Any:
    return np.float32(number)


def qlinear_conv(b: Any, x: Any, kind: str, weights: str, zero: Any, channels: int, scale: Any = 0.01, **attributes: Any) -> Any:
    w = codes(weights, 12, channels // attributes.get("group", 1), 3, 3)
    bias = CHANCE.integers(-9000, 9000, 12, np.int32)
    x_zero, y_zero = (np.array(value, kind) for value in (9, 40))
    out = 0.002 * np.abs(w.astype(np.int64) - 99).sum() / 12
    return b.QLinearConv(x, real(0.02), x_zero, w, scale, np.array(zero, weights), real(out), y_zero, bias, **attributes)


SCALES = np.linspace(0.01, 0.02, 12, dtype=np.float32)
CONVOLVED: dict[str, tuple[str, int, Callable[[Any, Any], Any]]] = {
    "i8": ("u8", 16, lambda b, x: qlinear_conv(b, x, "uint8", "int8", 0, 16, SCALES)),
    "u8 around the middle": ("i8", 16, lambda b, x: qlinear_conv(b, x, "int8", "uint8", 128, 16, real(0.01))),
    "u8 around elsewhere": ("u8", 4, lambda b, x: qlinear_conv(b, x, "uint8", "uint8", 90, 4, real(0.01))),
    "zero points of channels": ("u8", 4, lambda b, x: qlinear_conv(b, x, "uint8", "uint8", [90] * 6 + [128] * 6, 4, SCALES)),
    "strides and pads": (
        "u8", 4, lambda b, x: qlinear_conv(b, x, "uint8", "uint8", 3, 4, real(0.01), strides=(2, 2), pads=(1, 1, 1, 1))
    ),
    "depthwise": ("u8", 12, lambda b, x: qlinear_conv(b, x, "uint8", "uint8", 100, 12, real(0.01), group=12)),
    "sums beyond f32": ("u8", 300, lambda b, x: qlinear_conv(b, x, "uint8", "uint8", 90, 300, real(0.01))),
}  # fmt: skip


def multiplied(y: str, rows: int, x_zero: Any, y_zero: Any) -> Callable[[Any, Any], Any]:
    return lambda b, x: b.MatMulInteger(x, codes(y, rows, 7), x_zero, y_zero)


MULTIPLIED: dict[str, tuple[str, int, Callable[[Any, Any], Any]]] = {
    "without zero points": ("u8", 70, multiplied("int8", 70, None, None)),
    "with zero points": ("u8", 70, multiplied("uint8", 70, np.uint8(128), np.arange(7, dtype=np.uint8))),
    "sums beyond f32": ("i8", 5000, multiplied("int8", 5000, np.int8(-3), np.int8(4))),
    "a zero point for each row": ("i8", 70, multiplied("int8", 70, codes("int8", 5), None)),
    "of f32 on its own grid": ("f32", 70, lambda b, x: b.DynamicQuantizeMatMul(x, codes("int8", 70, 7), real(0.03))),
    "its own grid": ("f32", 70, lambda b, x: b.DynamicQuantizeLinear(x)[0]),
}


def made(kind: str, shape: tuple[Any, ...], write: Callable[[Any, Any], Any]) -> Model:
    with Builder() as b:
        b.output("y", write(b, b.input("x", kind, shape)))
    return b.model


def check(model: Model, x: Any) -> None:
    bound, _ = Engine(model, threads=2).bind({"x": x})
    assert [reason for _, reason in bound.python_steps] == []
    np.testing.assert_array_equal(Engine(model, threads=2)({"x": x})["y"], interpret(model, {"x": x})["y"])


@pytest.mark.parametrize("name", CONVOLVED)
def test_convolutions(name: str) -> None:
    kind, channels, write = CONVOLVED[name]
    x = codes({"u8": "uint8", "i8": "int8"}[kind], 2, channels, 9, 8)
    check(made(kind, (2, channels, 9, 8), write), x)


@pytest.mark.parametrize("name", MULTIPLIED)
def test_products(name: str) -> None:
    kind, columns, write = MULTIPLIED[name]
    names = {"u8": "uint8", "i8": "int8"}
    x = codes(names[kind], 5, columns) if kind in names else CHANCE.standard_normal((5, columns)).astype(np.float32)
    check(made(kind, (5, columns), write), x)


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
def test_quantized_binary_operators(name: str) -> None:
    other = codes("uint8", 64, 64)
    model = made("u8", (64, 64), lambda b, x: getattr(b, name)(
        x, real(0.021), np.uint8(77), other, real(0.013), np.uint8(130), real(0.05), np.uint8(99)
    ))  # fmt: skip
    check(model, codes("uint8", 64, 64))


def test_quantized_concat() -> None:
    parts = [(real(0.021), np.uint8(77)), (real(0.05), np.uint8(0))]
    model = made("u8", (3, 70), lambda b, x: b.QLinearConcat(
        real(0.03), np.uint8(128), *(each for scale, zero in parts for each in (x, scale, zero)), axis=1
    ))  # fmt: skip
    check(model, codes("uint8", 3, 70))


@pytest.mark.parametrize("levels", [2, 16, 255, 256])
def test_fake_quantize(levels: int) -> None:
    low = -np.linspace(0.5, 2, 6, dtype=np.float32).reshape(1, 6, 1, 1)
    model = made("f32", (2, 6, 5, 5), lambda b, x: b.FakeQuantize(x, low, real(1.7), low * 2, real(3.1), levels=levels))
    check(model, CHANCE.standard_normal((2, 6, 5, 5)).astype(np.float32) * 2)


def test_a_range_of_nothing_is_an_error() -> None:
    model = made("f32", ("n", 3), lambda b, x: b.DynamicQuantizeLinear(x)[0])
    with pytest.raises(EngineError, match=r"shape\.empty"):
        Engine(model)({"x": np.zeros((0, 3), np.float32)})
    check(model, CHANCE.standard_normal((4, 3)).astype(np.float32))


def test_max_pool_with_unused_indices() -> None:
    model = made("f32", (1, 4, 9, 9), lambda b, x: b.MaxPool(x, kernel_shape=(3, 3), outputs=2)[0])
    check(model, CHANCE.standard_normal((1, 4, 9, 9)).astype(np.float32))


@pytest.mark.parametrize("depth", [40, 1500])
def test_products_of_two_inputs(depth: int) -> None:
    with Builder() as b:
        x, w = b.input("x", "u8", (2, 5, depth)), b.input("w", "i8", (2, depth, 9))
        b.output("y", b.MatMulInteger(x, w, np.uint8(7), b.input("w_zero", "i8", ())))
    feed = {"x": codes("uint8", 2, 5, depth), "w": codes("int8", 2, depth, 9), "w_zero": np.array(-3, np.int8)}
    bound, _ = Engine(b.model, threads=2).bind(feed)
    assert not bound.python_steps
    expected = (feed["x"].astype(np.int64) - 7) @ (feed["w"].astype(np.int64) + 3)
    np.testing.assert_array_equal(Engine(b.model)(feed)["y"], expected)


def blocks(*sizes: int) -> Any:
    return CHANCE.uniform(0.01, 0.1, sizes).astype(np.float32)


PARAMETERS: dict[str, Callable[[Any, Any], Any]] = {
    "by channels": lambda b, x: b.QuantizeLinear(x, blocks(6), codes("uint8", 6), axis=1),
    "by channels, i16": lambda b, x: b.QuantizeLinear(x, blocks(6) / 9, codes("int16", 6) // 8, axis=1),
    "in blocks": lambda b, x: b.QuantizeLinear(x, blocks(4, 2, 8), codes("int8", 4, 2, 8), axis=1, block_size=3),
    "in uneven blocks": lambda b, x: b.QuantizeLinear(x, blocks(4, 2, 8), None, axis=1, block_size=4),
    "a scale of the run": lambda b, x: b.QuantizeLinear(x, b.ReduceMax(x, keepdims=False), None),
    "and back by channels": lambda b, x: b.DequantizeLinear(b.Cast(x, to="i8"), blocks(8), codes("int8", 8), axis=2),
    "and back in blocks": lambda b, x: b.DequantizeLinear(b.Cast(x, to="u16"), blocks(4, 2, 8), axis=1, block_size=3),
    "and back of i32": lambda b, x: b.DequantizeLinear(b.Cast(x, to="i32"), blocks(6), axis=1),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_scales_of_channels_and_blocks(name: str) -> None:
    model = made("f32", (4, 6, 8), PARAMETERS[name])
    check(model, np.abs(CHANCE.standard_normal((4, 6, 8)).astype(np.float32)) * 20)


FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "QLinearSigmoid": ((3, 70), lambda b, x: b.QLinearSigmoid(x, real(0.04), np.int8(3), real(0.004), np.int8(-120))),
    "QLinearLeakyRelu": ((3, 70), lambda b, x: b.QLinearLeakyRelu(x, real(0.04), None, real(0.03), np.int8(5), alpha=0.1)),
    "QLinearSoftmax": ((3, 70), lambda b, x: b.QLinearSoftmax(x, real(0.04), np.int8(3), real(0.0078125), np.int8(-128))),
    "QLinearGlobalAveragePool": (
        (2, 5, 9, 7), lambda b, x: b.QLinearGlobalAveragePool(x, real(0.04), np.int8(3), real(0.02), np.int8(7))
    ),
    "QLinearGlobalAveragePool of channels last": (
        (2, 9, 7, 5),
        lambda b, x: b.QLinearGlobalAveragePool(x, real(0.04), np.int8(3), real(0.02), np.int8(7), channels_last=True),
    ),
    "QLinearAveragePool": (
        (2, 5, 9, 7),
        lambda b, x: b.QLinearAveragePool(x, real(0.04), np.int8(3), real(0.02), np.int8(7), kernel_shape=(3, 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_codes(name: str) -> None:
    shape, write = FUNCTIONS[name]
    check(made("i8", shape, write), codes("int8", *shape))
