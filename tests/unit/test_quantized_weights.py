"""Quantised weights stay quantised when a model is read, converted and written."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dovetail
from dovetail.build import Builder
from dovetail.graph import Model
from dovetail.interpret import interpret

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
        b.output("y", b.MatMulNBits(x, b.constant(codes), b.constant(scales), inner=64, columns=24))
    return b.model


def largest(model: Model) -> tuple[str, int]:
    """The element type and size of the largest constant."""
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
