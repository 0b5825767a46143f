"""Recurrent layers over a number of time steps that only run time knows, where they are taken apart: as a Loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from dovetail.compare.verification.conversion import runner_for
from dovetail.ir.types import Tensor
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, UNROLL_LIMIT

HIDDEN, INPUT = 4, 5
LAYERS = (
    LSTM(direction="bidirectional", hidden_size=HIDDEN, outputs=3),
    LSTM(input_forget=True, layout="batch_first", outputs=3),
    GRU(direction="reverse", outputs=2),
    GRU(linear_before_reset=True, clip=0.5, outputs=2),
    RNN(activations=("leakyrelu",), outputs=2),
)


def floats(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * np.float32(0.5)


def layer_twice(op: Any, has_lengths: bool, steps: int | str = "s") -> dovetail.Model:
    """Return a model that computes a layer with initial states by its own rule, and taken apart."""
    with dovetail.Builder("layer") as b:
        axes = {"batch_first": ("b", steps, INPUT)}.get(op.layout, (steps, "b", INPUT))
        x = b.input("x", "f32", axes)
        w, r = (b.constant(floats(op.directions, HIDDEN * op.gate_count, size, seed=size)) for size in (INPUT, HIDDEN))
        bias = b.constant(floats(op.directions, 2 * HIDDEN * op.gate_count, seed=9))
        lengths = b.input("lengths", "i32", ("b",)) if has_lengths else None
        rows = ("b", op.directions, HIDDEN) if op.layout == "batch_first" else (op.directions, "b", HIDDEN)
        states = [b.input(f"state{index}", "f32", rows) for index in range(op.state_count)]
        inputs = (x, w, r, bias, lengths, *states)
        for name, ys in (("whole", b.add(op, *inputs)), ("apart", op.decompose(b, *inputs))):
            for index, y in enumerate(ys):
                b.output(f"{name}{index}", y)
    return b.model


def states_of(op: Any, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    shape = (rows, op.directions, HIDDEN) if op.layout == "batch_first" else (op.directions, rows, HIDDEN)
    return {f"state{index}": floats(*shape, seed=index) for index in range(op.state_count)}


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("has_lengths", [False, True])
@pytest.mark.parametrize("op", LAYERS, ids=str)
def test_a_decomposed_layer_gives_the_results_of_its_rule(op: Any, has_lengths: bool, engine: str) -> None:
    program = dovetail.compile(layer_twice(op, has_lengths), engine)
    for steps, rows in ((6, 3), (1, 2), (0, 2)):
        shape = (rows, steps) if op.layout == "batch_first" else (steps, rows)
        given = {"x": floats(*shape, INPUT), **states_of(op, rows)}
        if has_lengths:
            given["lengths"] = np.array([steps, steps // 2, 0][:rows], np.int32)
        made = program(given)
        for index in range(op.outputs):
            whole, apart = made[f"whole{index}"], made[f"apart{index}"]
            assert whole.shape == apart.shape
            np.testing.assert_allclose(apart, whole, atol=1e-6)


@pytest.mark.parametrize("op", LAYERS, ids=str)
def test_a_layer_of_many_time_steps_becomes_a_loop(op: Any) -> None:
    model = layer_twice(op, True, UNROLL_LIMIT + 1)
    if op.layout == "sequence_first":  # A layer of another layout becomes one of this layout first.
        assert "Loop" in {type(node.op).__name__ for node in model.graph.nodes}
    shape = (2, UNROLL_LIMIT + 1) if op.layout == "batch_first" else (UNROLL_LIMIT + 1, 2)
    lengths = np.array([UNROLL_LIMIT + 1, 7], np.int32)
    made = dovetail.run(model, {"x": floats(*shape, INPUT), "lengths": lengths, **states_of(op, 2)}, "interpreter")
    for index in range(op.outputs):
        np.testing.assert_allclose(made[f"apart{index}"], made[f"whole{index}"], atol=1e-5)


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("op", LAYERS, ids=str)
def test_lengths_of_whole_rows_change_nothing(op: Any, engine: str) -> None:
    """A file of one format has them where a file of the other has none."""
    program = dovetail.compile(layer_twice(op, True), engine), dovetail.compile(layer_twice(op, False), engine)
    for steps in (5, 1, 0):
        shape = (2, steps) if op.layout == "batch_first" else (steps, 2)
        given = {"x": floats(*shape, INPUT), **states_of(op, 2)}
        found, plain = program[0]({**given, "lengths": np.full(2, steps, np.int32)}), program[1](given)
        for name in plain.keys():
            np.testing.assert_allclose(found[name], plain[name], atol=1e-6)


def test_a_layer_without_time_steps_runs_natively() -> None:
    """The native engine computes the product of all inputs first, and has then nothing to stack."""
    with dovetail.Builder("layer") as b:
        x = b.input("x", "f32", ("s", 2, INPUT))
        weights = (b.constant(floats(1, HIDDEN * 4, size)) for size in (INPUT, HIDDEN))
        b.output("y", b.add(LSTM(), x, *weights)[0])
    for steps in (3, 0):
        given = {"x": floats(steps, 2, INPUT)}
        (theirs,) = oracles.run_onnxruntime(_as_onnx(b.model), given) if steps else (np.zeros((0, 1, 2, HIDDEN), np.float32),)
        np.testing.assert_allclose(dovetail.run(b.model, given, engine="native")["y"], theirs, atol=1e-6)


def _as_onnx(model: dovetail.Model) -> bytes:
    from dovetail.formats.onnx import write

    data = write.save(model, None, opset=21)
    assert data is not None
    return data


def test_a_layer_that_openvino_lacks_becomes_a_loop_where_the_length_is_open(tmp_path: Path) -> None:
    """A layer that onnxruntime has and OpenVINO has not: OpenVINO, of the IR, gives what onnxruntime does."""
    with dovetail.Builder("layer") as b:
        x = b.input("x", "f32", ("s", "b", INPUT))
        codes = [b.constant((floats(2, size, HIDDEN * 4, seed=size) * 60).astype(np.int8)) for size in (INPUT, HIDDEN)]
        scale, point = b.constant(np.full(2, 1 / 60, np.float32)), b.constant(np.zeros(2, np.int8))
        op = DynamicQuantizeLSTM(direction="bidirectional", hidden_size=HIDDEN, outputs=3)
        for index, y in enumerate(b.add(op, x, *codes, *[None] * 5, scale, point, scale, point)):
            b.output(f"y{index}", y)
    dovetail.save(b.model, tmp_path / "m.xml")
    oracles.skip_where_bytes_saturate()
    for steps in (7, 2):
        given = {"x": floats(steps, 3, INPUT)}
        theirs = oracles.run_onnxruntime(_as_onnx(b.model), given)
        found = runner_for(tmp_path / "m.xml", "openvino").run(given)
        for one, other in zip(found.values(), theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=0.02)  # a step of the grid of h
        for name, ours in dovetail.run(b.model, given, engine="interpreter").items():
            np.testing.assert_allclose(found[name], ours, atol=0.02)


@pytest.mark.parametrize("op", [LSTM(), GRU(linear_before_reset=True)], ids=str)
def test_the_gradient_of_an_open_length_is_that_of_a_known_one(op: Any) -> None:
    def slopes(steps: Any) -> dict[str, Any]:
        with dovetail.Builder("layer") as b:
            x = b.input("x", "f32", (steps, 2, INPUT))
            w = b.input_of("w", Tensor(x.dtype, (1, HIDDEN * op.gate_count, INPUT)))
            r = b.input_of("r", Tensor(x.dtype, (1, HIDDEN * op.gate_count, HIDDEN)))
            b.output("y", b.ReduceSum(b.add(op, x, w, r)[0] * 2.0, [0, 1, 2, 3], keepdims=False))
        sizes = {"w": INPUT, "r": HIDDEN}
        weights = {name: floats(1, HIDDEN * op.gate_count, size, seed=size) for name, size in sizes.items()}
        return dovetail.run(dovetail.grad(b.model), {"x": floats(4, 2, INPUT), **weights})

    open_, known = slopes("s"), slopes(4)
    assert any(np.abs(known[f"grad:{name}"]).max() > 0.1 for name in ("x", "w", "r"))
    for name, slope in known.items():
        np.testing.assert_allclose(open_[name], slope, atol=1e-5)
