"""Convolutions of bytes against their rule in whole numbers, and what the engine makes of quantised layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine.engine import Engine
from dovetail.engine.rewrite.qdq_fusion import QuantizedConv
from dovetail.engine.select.kernels import window_attributes
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.pool import MaxPool
from kernel_runner import BYTE_CONVOLUTIONS, channels_last, random, run, sliced_channels_last, wide_channels_last

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

LAYOUTS = {function.__name__: function for function in (channels_last, sliced_channels_last, wide_channels_last)}


def convolved(op: QuantizedConv, xs: list[Any], y: Any, threads: int) -> str:
    found = op.conv.geometry(xs[0].shape[2:], xs[1].shape[2:])
    attributes = window_attributes(found) | {"x_zero": op.x_zero, "has_residual": int(len(xs) > 4)}
    zero = op.zero if op.last_dtype is None else op.last_zero
    reals = {"low": op.low - op.zero, "high": op.high - op.zero, "y_zero": zero, "own": op.own, "beside": op.beside}
    reals |= {"other_zero": op.other_zero, "last_low": op.last_low - op.last_zero, "last_high": op.last_high - op.last_zero}
    return run("quantized_conv", xs, [y], attributes | {k: float(v) for k, v in reals.items()}, threads, constants=(1, 2, 3))


def agree(y: Any, expected: Any) -> None:
    """Compare but for ties, which a product and a sum rounded together or apart decide otherwise: single steps."""
    apart = np.abs(y.astype(np.int64) - expected.astype(np.int64))
    assert apart.max(initial=0) <= 1
    assert np.count_nonzero(apart) <= 1e-3 * apart.size


@pytest.mark.parametrize("kinds", ["u8 u8", "i8 i8", "u8 i8"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BYTE_CONVOLUTIONS)
def test_convolutions_are_exact(name: str, layout: str, kinds: str) -> None:
    shape, weights, attributes = BYTE_CONVOLUTIONS[name]
    source, target = (np.dtype(kind.replace("u", "uint").replace("i8", "int8")) for kind in kinds.split())
    x, w = random(shape, source.name), random(weights, "int8")
    bias = random((weights[0],), "int32") // 2**20
    factor = (np.abs(random((weights[0],), seed=1)) + 0.1).astype(np.float32) / np.float32(700 * np.sqrt(w[0].size))
    low, high = np.iinfo(target).min, np.iinfo(target).max
    op = QuantizedConv(Conv(**attributes), 7, int(low) + 100, dtypes.dtype(target), int(low) + 3, int(high))
    given = [LAYOUTS[layout](x), w, bias, factor]
    expected = op.evaluate(np, *given)
    for threads in (1, 2):
        y = LAYOUTS[layout](np.zeros(expected.shape, target))
        convolved(op, given, y, threads)
        np.testing.assert_array_equal(y, expected)
    other = LAYOUTS[layout](random(expected.shape, "uint8", seed=2))
    both = op.with_(own=0.813479, beside=0.372191, other_zero=90, last_zero=11, last_dtype=dtypes.u8, last_low=11, last_high=250)
    y = LAYOUTS[layout](np.zeros(expected.shape, np.uint8))
    convolved(both, [*given, other], y, 2)  # type: ignore[arg-type]
    agree(y, both.evaluate(np, *given, other))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_the_greatest_byte(kind: str, layout: str) -> None:
    op = MaxPool(kernel_shape=(3, 2), strides=(2, 1), pads=(1, 1, 1, 0))
    x = random((2, 21, 9, 8), kind)
    (expected,) = op.evaluate(np, x)
    y = LAYOUTS[layout](np.zeros(expected.shape, kind))
    attributes = window_attributes(op.geometry(x.shape[2:], op.kernel_shape)) | {"kernel": list(op.kernel_shape)}
    run("quantized_pool", [LAYOUTS[layout](x)], [y], attributes)
    np.testing.assert_array_equal(y, expected)


# Layers between QuantizeLinear and DequantizeLinear


def _dequantised(b: Builder, x: Any, scale: float, zero: Any) -> Any:
    return b.DequantizeLinear(x, np.float32(scale), zero)


def _convolution(b: Builder, x: Any, scale: float, zero: Any, bias_scale: float = 1.0, weights_zero: int = 0) -> Any:
    """Return a convolution of what is dequantised, with weights by channels."""
    generator = np.random.default_rng(3)
    steps = (generator.random(12) * 0.01 + 0.002).astype(np.float32)
    codes, bias = generator.integers(-127, 128, (12, 8, 3, 3)).astype(np.int8), generator.integers(-5000, 5000, 12)
    w = b.DequantizeLinear(b.constant(codes), steps, np.full(12, weights_zero, np.int8), axis=0)
    bias_steps = np.float32(scale) * steps * np.float32(bias_scale)
    bias = b.DequantizeLinear(b.constant(bias.astype(np.int32)), bias_steps, np.zeros(12, np.int32), axis=0)
    return b.Conv(_dequantised(b, x, scale, zero), w, bias, pads=(1, 1, 1, 1))


def _kernels(model: Any, feed: dict[str, Any]) -> list[str]:
    bound, _ = Engine(model, threads=1).bind(feed)
    return [name.split()[0] for name in bound.names()]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("layer", ["plain", "relu", "sum", "pool", "other bias", "other zero"])
def test_quantised_layers_give_the_results_of_their_nodes(layer: str, kind: str) -> None:
    zero = np.array(120 if kind == "uint8" else -3, kind)
    with Builder() as b:
        x = b.input("x", kind, (1, 8, 10, 9))
        y = _convolution(b, x, 0.05, zero, 1.7 if layer == "other bias" else 1.0, 2 if layer == "other zero" else 0)
        y = b.Relu(y) if layer == "relu" else y
        y = b.QuantizeLinear(y, np.float32(0.21), zero)
        if layer == "sum":
            other = b.input("other", kind, (1, 12, 10, 9))
            y = b.Add(_dequantised(b, y, 0.21, zero), _dequantised(b, other, 0.13, zero))
            y = b.QuantizeLinear(y, np.float32(0.25), zero)
        if layer == "pool":
            y = b.MaxPool(_dequantised(b, y, 0.21, zero), kernel_shape=(2, 2), strides=(2, 2))
            y = b.QuantizeLinear(y, np.float32(0.21), zero)
        b.output("y", _dequantised(b, y, 1.0, np.array(0, kind)))
    feed = {value.name: random(value.shape, kind) for value in b.model.inputs}
    found, expected = (dovetail.compile(b.model, engine=engine)(feed)["y"] for engine in ("native", "interpreter"))
    agree(np.asarray(found), np.asarray(expected))
    assert ("quantized_conv" in _kernels(b.model, feed)) == (not layer.startswith("other"))


@pytest.mark.parametrize("zeros", [(120, 120), (120, 119), (0, 7), (7, 0)])
def test_a_sum_of_operands_dequantised_with_another_zero_point(zeros: tuple[int, int]) -> None:
    """QuantizeLinear has one zero point, and DequantizeLinear of its codes may have another."""
    first, second = (np.uint8(zero) for zero in zeros)
    with Builder() as b:
        x, other = b.input("x", "u8", (1, 8, 10, 9)), b.input("other", "u8", (1, 12, 10, 9))
        y = b.QuantizeLinear(_convolution(b, x, 0.05, np.uint8(120)), np.float32(0.21), first)
        y = b.Add(_dequantised(b, y, 0.21, second), _dequantised(b, other, 0.13, first))
        b.output("y", b.QuantizeLinear(y, np.float32(0.25), first))
    feed = {value.name: random(value.shape, "uint8") for value in b.model.inputs}
    found, expected = (dovetail.compile(b.model, engine=engine)(feed)["y"] for engine in ("native", "interpreter"))
    agree(np.asarray(found), np.asarray(expected))
    assert "quantized_conv" in _kernels(b.model, feed)


def test_a_quantised_product() -> None:
    generator = np.random.default_rng(1)
    with Builder() as b:
        x = b.input("x", "u8", (3, 70))
        codes = b.constant(generator.integers(-127, 128, (20, 70)).astype(np.int8))
        w = b.DequantizeLinear(codes, (generator.random(20) * 0.01).astype(np.float32), np.zeros(20, np.int8), axis=0)
        y = b.Gemm(_dequantised(b, x, 0.02, np.uint8(9)), w, transpose_b=True)
        b.output("y", _dequantised(b, b.QuantizeLinear(y, np.float32(0.03), np.uint8(100)), 1.0, np.uint8(0)))
    feed = {"x": random((3, 70), "uint8")}
    found, expected = (dovetail.compile(b.model, engine=engine)(feed)["y"] for engine in ("native", "interpreter"))
    agree(np.asarray(found), np.asarray(expected))
    assert "quantized_conv" in _kernels(b.model, feed)
