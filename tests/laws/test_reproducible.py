"""Reproducible programs: the bits of a row depend on neither the batch, nor its position, nor the number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir.host import native_core
from dovetail.ops.elementwise.unary import Sin
from networks.generator import generate

Build = Callable[[Any, Any], Any]
RNG = np.random.default_rng(0)
HAS_AVX2 = native_core.instruction_set() in ("avx2", "avx512", "amx")
needs_avx2 = pytest.mark.skipif(not HAS_AVX2, reason="the processor has no AVX2")


def weights(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def lstm(b: Any, x: Any) -> Any:
    gates = weights(1, 80, 24), weights(1, 80, 20), weights(1, 160)
    return b.Transpose(b.LSTM(b.Transpose(x, [1, 0, 2]), *gates, hidden_size=20, outputs=1), [2, 0, 1, 3])


def few_bits(b: Any, x: Any) -> Any:
    codes = RNG.integers(0, 255, (64, 4, 16)).astype(np.uint8)
    return b.MatMulNBits(x, codes, weights(256) / 10, k=128, n=64, bits=4, block_size=32)


def attention(b: Any, x: Any) -> Any:
    return b.MatMul(b.Softmax(b.MatMul(x, b.Transpose(x, [0, 2, 1])), axis=-1), x)


def loop(b: Any, x: Any) -> Any:
    with dovetail.Builder("body") as body:
        body.input("i", "i64", ())
        y = body.Softmax(body.MatMul(body.input("state", "f32", ROWS), weights(300, 300)), axis=1)
        body.output("more", body.constant(np.array(True)))
        body.output("next", y)
    return b.Loop(np.int64(3), None, x, body=body.graph, carried=1)[0]


IMAGE, ROWS, STEPS = ("n", 16, 14, 14), ("n", 300), ("n", 7, 24)
MODELS: dict[str, tuple[tuple[int | str, ...], Build]] = {
    "product": (ROWS, lambda b, x: b.MatMul(x, weights(300, 50)) + weights(50)),
    "deep product": (("n", 3000), lambda b, x: b.Relu(b.MatMul(x, weights(3000, 33)))),
    "product and residual": (("n", 2500), lambda b, x: b.MatMul(x, weights(2500, 2500)) + x),
    "attention": (STEPS, attention),
    "Softmax of channels": (IMAGE, lambda b, x: b.Softmax(x, axis=1)),
    "Softmax": (ROWS, lambda b, x: b.Softmax(x, axis=1)),
    "LayerNormalization": (ROWS, lambda b, x: b.LayerNormalization(x, weights(300), weights(300), axis=-1)),
    "sum": (("n", 70000), lambda b, x: b.ReduceSum(x, [1])),
    "sum of the others": ((400, "n", 300), lambda b, x: b.ReduceSum(x, [0, 2], keepdims=False)),
    "mean of images": (IMAGE, lambda b, x: b.ReduceMean(x, [2, 3])),
    "logsumexp": (("n", 5000), lambda b, x: b.ReduceLogSumExp(x, [1])),
    "Conv": (IMAGE, lambda b, x: b.Conv(x, weights(24, 16, 3, 3), weights(24), pads=[1, 1, 1, 1])),
    "Conv of one pixel": (("n", 16, 3, 3), lambda b, x: b.Conv(x, weights(24, 16, 3, 3), weights(24))),
    "Conv with strides": (IMAGE, lambda b, x: b.Conv(x, weights(8, 16, 5, 5), strides=[2, 2])),
    "Conv of pixels": (IMAGE, lambda b, x: b.Conv(x, weights(40, 16, 1, 1))),
    "depthwise Conv": (IMAGE, lambda b, x: b.Conv(x, weights(16, 1, 3, 3), group=16, pads=[1, 1, 1, 1])),
    "ConvTranspose": (IMAGE, lambda b, x: b.ConvTranspose(x, weights(16, 8, 3, 3), strides=[2, 2])),
    "mean of windows": (IMAGE, lambda b, x: b.AveragePool(x, kernel_shape=[3, 3], strides=[2, 2])),
    "global mean": (IMAGE, lambda b, x: b.GlobalAveragePool(x)),
    "Resize": (IMAGE, lambda b, x: b.Resize(x, None, np.float32([1, 1, 1.5, 1.5]), mode="cubic")),
    "functions": (ROWS, lambda b, x: b.Erf(b.Tanh(b.Sigmoid(b.Exp(x) + b.Sin(x)))) / b.Sqrt(b.Abs(x) + 1)),
    "LSTM": (STEPS, lstm),
    "Loop": (ROWS, loop),
    "few bits": (("n", 128), few_bits),
    "a transposed product": (ROWS, lambda b, x: b.Transpose(b.MatMul(weights(5, 300), b.Transpose(x, [1, 0])), [1, 0])),
    "Softmax of the first axis": (ROWS, lambda b, x: b.Transpose(b.Softmax(b.Transpose(x, [1, 0]), axis=0), [1, 0])),
    "CumSum": (ROWS, lambda b, x: b.CumSum(x, np.int64(1))),
}


def build(name: str) -> dovetail.Model:
    shape, expression = MODELS[name]
    with dovetail.Builder(name) as b:
        b.output("y", expression(b, b.input("x", "f32", shape)))
    return b.model


@needs_avx2
@pytest.mark.parametrize("name", MODELS)
def test_a_row_has_the_same_bits_in_any_batch(name: str) -> None:
    model = build(name)
    shape = MODELS[name][0]
    axis = shape.index("n")
    expected: bytes | None = None
    row = RNG.standard_normal([1 if size == "n" else int(size) for size in shape]).astype(np.float32)
    for threads in (1, 3):
        program = dovetail.compile(model, threads=threads, reproducible=True)
        for count in (1, 2, 3, 5, 13):
            for place in {0, count // 2, count - 1}:
                x = RNG.standard_normal([count if size == "n" else int(size) for size in shape]).astype(np.float32)
                x[(*(slice(None),) * axis, slice(place, place + 1))] = row
                y = program(x)["y"]
                own = y[place : place + 1].tobytes()
                assert own == (expected or own), f"{threads} threads, row {place} of {count}"
                expected = own


@needs_avx2
@pytest.mark.parametrize("name", MODELS)
def test_the_results_are_those_of_a_default_program(name: str) -> None:
    model = build(name)
    x = RNG.standard_normal([3 if size == "n" else int(size) for size in MODELS[name][0]]).astype(np.float32)
    usual, reproducible = (dovetail.compile(model, reproducible=each)(x)["y"] for each in (False, True))
    assert np.allclose(usual, reproducible, rtol=1e-4, atol=1e-4 * float(np.max(np.abs(usual))))


@needs_avx2
@pytest.mark.parametrize("seed", range(30))
def test_random_networks_have_the_same_bits_with_any_threads(seed: int) -> None:
    network = generate(seed)
    for shot in network.shots[:2]:
        found = set()
        for threads in (1, 2, 4):
            try:
                results = dovetail.compile(network.model(), threads=threads, reproducible=True)(shot)
            except UnsupportedError as error:
                assert error.code == "run.bits"
                return
            found.add(tuple(np.asarray(y).tobytes() for y in results.values()))
        assert len(found) == 1


@needs_avx2
@pytest.mark.parametrize(("shape", "is_sized"), [(("n", 8), False), (("n", 8), True), (None, True)])
def test_numpy_evaluates_no_inexact_operator_before_a_run(shape: Any, is_sized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of constants nor of sizes, as in the positions of a transformer; a HardSwish makes the engine fold again."""
    with dovetail.Builder() as b:
        x = b.input("x", "f32", shape)
        angles = b.Cast(b.Range(0, b.Shape(x)[0], 1), to="f32") if is_sized else b.constant(weights(1))
        b.output("y", b.HardSwish(x) * b.Unsqueeze(b.Sin(angles * 2), [1]))
    used: list[str] = []

    def function(self: Sin, xp: Any, x: Any) -> Any:
        used.append("Sin")
        return np.sin(x)

    monkeypatch.setattr(Sin, "function", function)
    x = weights(3, 8)
    found = dovetail.compile(b.model, reproducible=True)(x)["y"]
    assert not used
    assert np.allclose(found, dovetail.interpret(b.model, [x])["y"], rtol=1e-5, atol=1e-6)
    assert used


def test_a_program_that_cannot_be_reproducible_is_refused() -> None:
    model = build("Softmax")
    for options in ({"engine": "interpreter"}, {"engine": "torch"}, *([{"precision": "bf16"}] if native_core.has_bf16() else [])):
        with pytest.raises(EngineError, match=r"reproducible"):
            dovetail.compile(model, reproducible=True, **options)


@needs_avx2
def test_an_operator_that_only_numpy_computes_is_refused() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Det(b.input("x", "f32", ("n", 3, 3))))
    with pytest.raises(UnsupportedError) as caught:
        dovetail.compile(b.model, reproducible=True)(weights(2, 3, 3))
    assert caught.value.code == "run.bits"


@needs_avx2
def test_digests_are_those_of_another_instruction_set(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    dovetail.save(build("Conv"), path)
    found = []
    best = "avx512" if native_core.instruction_set() in ("avx512", "amx") else "avx2"
    for isa, threads in ((best, 1), ("avx2", 2)):
        environment = {**os.environ, "DOVETAIL_ISA": isa}
        words = [sys.executable, "-m", "dovetail", "run", str(path), "--digest", "--json", "--threads", str(threads)]
        output = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
        found.append([row["digest"] for row in json.loads(output)["outputs"]])
    assert found[0] == found[1]
    assert len(found[0][0]) == 64
