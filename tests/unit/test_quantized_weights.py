"""Quantised weights stay quantised when a model is read, converted and written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import dovetail
from dovetail.engine.engine import Engine
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model, Value
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter.interpret import interpret

CHANCE = np.random.default_rng(0)


def convolution() -> Model:
    with Builder() as b:
        x = b.input("x", "f32", (1, 16, 5, 5))
        codes = b.constant(CHANCE.integers(-128, 128, (32, 16, 3, 3)).astype(np.int8))
        w = b.DequantizeLinear(codes, b.constant(np.full(32, 0.01, np.float32)), b.constant(np.full(32, 3, np.int8)), axis=0)
        b.output("y", b.Conv(x, w))
    return b.model


def product() -> Model:
    with Builder() as b:
        x = b.input("x", "f32", (3, 64))
        codes, scales = CHANCE.integers(0, 256, (24, 2, 16)).astype(np.uint8), np.full((24, 2), 0.02, np.float32)
        b.output("y", b.MatMulNBits(x, b.constant(codes), b.constant(scales), k=64, n=24))
    return b.model


def largest(model: Model) -> tuple[str, int]:
    """Return the element type and size of the largest constant."""
    found = [value for value in model.graph.values() if value.constant is not None]
    most = max(found, key=lambda value: value.constant.size)
    return most.dtype.name, most.constant.size


def test_quantised_weights_of_a_convolution_stay_bytes(tmp_path: Path) -> None:
    model = convolution()
    for name in ("m.xml", "m.onnx"):
        dovetail.save(model, tmp_path / name)
        again = dovetail.load(tmp_path / name)
        assert largest(again) == ("i8", 32 * 16 * 9)
        x = CHANCE.standard_normal((1, 16, 5, 5)).astype(np.float32)
        np.testing.assert_allclose(interpret(again, {"x": x})["y"], interpret(model, {"x": x})["y"], rtol=1e-5, atol=1e-4)


def test_packed_weights_become_elements_of_as_many_bits(tmp_path: Path) -> None:
    model = product()
    dovetail.save(model, tmp_path / "m.xml")
    assert largest(dovetail.load(tmp_path / "m.xml")) == ("u4", 24 * 64)
    assert (tmp_path / "m.bin").stat().st_size < 24 * 64 // 2 + 1024


def _f16(b: Builder, x: Value) -> Value:
    return b.MatMul(x, b.Cast(b.constant(CODES.astype(np.float16)), to="f32"))


def _bf16(b: Builder, x: Value) -> Value:
    return b.MatMul(x, b.Cast(b.constant(CODES.astype(ml_dtypes.bfloat16)), to="f32"))


def _columns_of_i8(b: Builder, x: Value) -> Value:
    return b.MatMul(x, b.DequantizeLinear(b.constant(CODES.astype(np.int8)), np.full(1040, 0.25, np.float32), axis=1))


def _blocks_of_u4(b: Builder, x: Value) -> Value:
    codes = b.constant((CODES % 16).astype(ml_dtypes.uint4))
    return b.MatMul(x, b.DequantizeLinear(codes, np.full((8, 1040), 0.25, np.float32), axis=0, block_size=128))


def _packed(b: Builder, x: Value) -> Value:
    codes = b.constant(CODES.reshape(-1)[: 1040 * 512].reshape(1040, 32, 16).astype(np.uint8))
    return b.MatMulNBits(x, codes, np.full((1040, 32), 0.25, np.float32), k=1024, n=1040)


CODES = np.arange(1024 * 1040).reshape(1024, 1040) % 127
"""More than a constant may grow to where a file is written."""


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("product", [_f16, _bf16, _columns_of_i8, _blocks_of_u4, _packed])
def test_large_weights_in_fewer_bits_are_unpacked_once(product: Callable[[Builder, Value], Value]) -> None:
    """Not in every run: the native engine packs them like any other weights."""
    with Builder() as b:
        b.output("y", product(b, b.input("x", "f32", ("n", 1024))))
    x = np.random.default_rng(0).standard_normal((3, 1024)).astype(np.float32)
    bound, _ = Engine(b.model).bind({"x": x})
    assert not bound.python_steps
    assert [step.kernel for step in bound.native_steps] == ["matmul"]
    want = dovetail.compile(b.model, "interpreter")(x)["y"]
    np.testing.assert_allclose(dovetail.compile(b.model)(x)["y"], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
