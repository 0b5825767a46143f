"""dovetail.bisect: seeded faults, in few runs of the engine under test, also where errors hide."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, Model
from dovetail.compare.values import engines as engines_module
from dovetail.errors import EngineError
from dovetail.ir.operator_methods import operator_class
from dovetail.runtime.peers import is_installed

RNG = np.random.default_rng(11)
W = (RNG.standard_normal((16, 16)) / 4).astype(np.float32)
SIZES = {"n": 5}


def chain(length: int, scale: Callable[[int], float] = lambda index: 1.0, residual: float | None = None) -> Model:
    """Return a chain of MatMul, Add, LayerNormalization, Tanh.

    ``scale`` changes the constant of one, a residual hides small errors.
    """
    b = Builder("chain")
    x = b.input("x", "f32", ["n", 16])
    for index in range(length):
        factor = np.float32(scale(index))
        y: Any
        if index % 4 == 0:
            y = b.MatMul(x, W * factor)
        elif index % 4 == 1:
            y = b.Add(x, W[0] * factor)
        elif index % 4 == 2:
            y = b.LayerNormalization(x, np.ones(16, np.float32) * factor, epsilon=1e-5)
        else:
            y = b.Tanh(x)
            if factor != 1:
                y.node.op = operator_class("Erf")()
        x = y if residual is None or index % 4 else b.Add(y, b.Multiply(x, np.float32(residual)))
    b.output("y", x)
    return b.model


def fault_at(place: int, factor: float = 1.05) -> Callable[[int], float]:
    return lambda index: factor if index == place else 1.0


@pytest.mark.parametrize("place", range(23))
def test_every_place_of_a_fault_is_found_within_the_bound(place: int) -> None:
    good, bad = chain(23), chain(23, fault_at(place))
    found = dovetail.bisect(good, other=bad, engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    assert found.status == "found" and found.runs <= found.bound <= 2 * log2(found.count)
    assert found.node == good.graph.nodes[[n for n, node in enumerate(good.graph.nodes) if node.inputs][place]].label
    assert not found.has_more and found.reaches_output


@pytest.mark.parametrize("length", range(1, 14))
def test_the_bound_holds_for_every_length_and_place(length: int) -> None:
    for place in range(length):
        found = dovetail.bisect(
            chain(length), other=chain(length, fault_at(place)), engine="interpreter", inputs=dovetail.Inputs(sizes=SIZES)
        )
        assert found.status == "found" and found.runs <= max(1.0, 2 * log2(length)), (length, place, found)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 17])
def test_equal_models_agree(length: int) -> None:
    found = dovetail.bisect(chain(length), engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    assert found.status == "agrees" and found.runs <= found.bound and found.node is None and found.part is None


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_peers_are_bisected(engine: str) -> None:
    if not is_installed(engine):
        pytest.skip(f"needs {engine}")
    good, bad = chain(12), chain(12, fault_at(6))
    assert dovetail.bisect(good, engine=engine, inputs=dovetail.Inputs(sizes=SIZES)).status == "agrees"
    found = dovetail.bisect(good, other=bad, engine=engine, inputs=dovetail.Inputs(sizes=SIZES))
    assert found.status == "found" and found.operators == ("LayerNormalization",)


def test_an_error_that_a_residual_hides_is_found() -> None:
    """The fault is 1e-3 of its own value and below the tolerance after the residual; the outputs tell."""
    good = chain(24, residual=300.0)
    bad = chain(24, fault_at(8, 1.5), residual=300.0)
    found = dovetail.bisect(good, other=bad, engine="interpreter", inputs=dovetail.Inputs(sizes=SIZES), tolerance=1e-3)
    assert found.status == "found" and found.operators == ("MatMul",) and found.runs <= found.bound


def hidden(factor: float) -> Model:
    """Return a fault before an ArgMax-like comparison: no output depends on it beyond the tolerance."""
    b = Builder("hidden")
    x = b.input("x", "f32", ["n", 16])
    y: Any = x
    for _ in range(4):
        y = b.Tanh(y)
    y = b.Multiply(y, np.float32(factor))
    for _ in range(4):
        y = b.Relu(y)
    b.output("y", b.Cast(b.Greater(y, np.float32(-1)), to="f32"))
    return b.model


def test_an_error_that_does_not_reach_an_output_is_found_where_all_values_fit() -> None:
    found = dovetail.bisect(hidden(1.0), other=hidden(1.1), engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    assert found.status == "found" and found.operators == ("Multiply",) and not found.reaches_output
    assert found.runs <= found.bound


def test_of_two_faults_the_first_is_found_and_the_other_is_reported() -> None:
    bad = chain(40, lambda index: 1.05 if index in (9, 33) else 1.0)
    found = dovetail.bisect(chain(40), other=bad, engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    labels = [node.label for node in bad.graph.nodes if node.inputs]
    assert found.node == labels[9] and found.has_more and found.runs <= found.bound


def test_errors_that_cancel_are_found() -> None:
    """Both faults together leave the outputs right; each alone is wrong."""

    def model(factor: float) -> Model:
        b = Builder("cancel")
        x = b.input("x", "f32", ["n", 16])
        y = b.Multiply(x, np.float32(factor))
        for _ in range(6):
            y = b.Relu(y)
        y = b.Multiply(y, np.float32(1 / factor))
        b.output("y", b.Tanh(y))
        return b.model

    found = dovetail.bisect(model(1.0), other=model(2.0), engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    assert found.status == "found" and found.operators == ("Multiply",) and found.runs <= found.bound


def test_a_fault_in_constants_alone_is_named() -> None:
    def model(scale: float) -> Model:
        b = Builder("dequantize")
        x = b.input("x", "f32", ["n", 16])
        weights = b.DequantizeLinear(RNG_WEIGHTS, np.float32(scale), np.int8(0))
        b.output("y", b.Relu(b.MatMul(b.Tanh(x), weights)))
        return b.model

    found = dovetail.bisect(model(0.1), other=model(0.11), engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    assert found.status == "found" and found.operators in (("DequantizeLinear",), ("MatMul",))


RNG_WEIGHTS = RNG.integers(-100, 100, (16, 16)).astype(np.int8)


def test_a_fault_of_an_engine_is_found_without_a_second_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine under test is wrong in every Tanh of a slice; the reference is not."""
    model = chain(24)
    wrong = [node.label for node in model.graph.nodes if type(node.op).__name__ == "Tanh"][2]
    original = engines_module.run_part

    def run_part(engine: str, part: Any, folder: str, *options: Any) -> list[Any]:
        if engine == "native":
            for node in part.model.graph.nodes:
                if node.label == wrong:
                    node.op = operator_class("Erf")()
        return original(engine, part, folder, *options)

    monkeypatch.setattr("dovetail.compare.values.trial.run_part", run_part)
    found = dovetail.bisect(model, engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    assert found.node == wrong and found.runs <= found.bound


def test_an_operator_that_an_engine_refuses_is_found_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain(24)
    wrong = [node.label for node in model.graph.nodes if type(node.op).__name__ == "Tanh"][3]
    original = engines_module.run_part

    def run_part(engine: str, part: Any, folder: str, *options: Any) -> list[Any]:
        if engine == "native" and any(node.label == wrong for node in part.model.graph.nodes):
            raise EngineError("runtime.run", "no such kernel")
        return original(engine, part, folder, *options)

    monkeypatch.setattr("dovetail.compare.values.trial.run_part", run_part)
    found = dovetail.bisect(model, engine="native", inputs=dovetail.Inputs(sizes=SIZES))
    assert found.node == wrong and "no such kernel" in found.why


def test_the_command_extracts_the_operator_and_prints_the_command_that_shows_it(tmp_path: Path) -> None:
    dovetail.save(chain(12), tmp_path / "good.onnx")
    dovetail.save(chain(12, fault_at(6)), tmp_path / "bad.xml")
    command = "dovetail compare good.onnx --with bad.xml --bisect --engines native --dim n=4 --part piece.onnx --memory 2GB"
    environment = {**os.environ, "COLUMNS": "200"}

    def run(text: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", *shlex.split(text)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)

    done = run(f"{command} --json")
    (result,) = json.loads(done.stdout)["results"]
    assert done.returncode == 1 and result["status"] == "found" and result["operators"] == ["LayerNormalization"], done.stderr
    again = run(f"{result['command']} --json")
    facts = json.loads(again.stdout)
    assert again.returncode == 1 and facts["differs"] and len(facts["values"]) == 1, again.stderr
    assert run("dovetail compare good.onnx --bisect --engines native").returncode == 0
    assert run("dovetail compare good.onnx --part piece.onnx").returncode == 2


def test_memory_is_bounded_by_slices_of_a_long_model() -> None:
    """Without room for all values at once, the search runs slices, of which only the ends are held."""
    good, bad = chain(64), chain(64, fault_at(37))
    found = dovetail.bisect(good, other=bad, engine="native", inputs=dovetail.Inputs(sizes={"n": 2000}), memory=1 << 20)
    assert found.status == "found" and found.runs <= found.bound
    assert found.node == [node.label for node in good.graph.nodes if node.inputs][37]
