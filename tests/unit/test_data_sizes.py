"""Sizes that data decides: what is computed behind them, and that no product of matrices or convolution there runs in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from assertions import assert_close
from dovetail.engine.engine import Engine
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

CHANNELS = 8
PRODUCTS = {"Conv", "MatMul", "GroupConv", "Gemm"}


def several_sizes() -> dovetail.Model:
    """Three sizes that data decides, each behind the one before; an output before the first of them."""
    chance = np.random.default_rng(0)
    with dovetail.Builder("several") as b:
        x, length = b.input("x", "f32", ("n", CHANNELS)), b.input("length", "i64", (1,))
        chosen = b.Squeeze(b.Slice(b.Transpose(b.NonZero(b.Greater(x, 0.5)), [1, 0]), [0], [1], [1], [1]), [1])
        y = b.MatMul(b.Gather(x, chosen, axis=0), chance.standard_normal((CHANNELS, CHANNELS)).astype("f4"))
        shape = b.Concat(b.constant(np.array([1, CHANNELS])), length, axis=0)
        wide = b.Expand(b.Reshape(b.ReduceSum(y, [0], keepdims=True), [1, CHANNELS, 1]), shape)
        z = b.Conv(b.Relu(wide), chance.standard_normal((CHANNELS, CHANNELS, 3)).astype("f4"), pads=(1, 1))
        peaks = b.NonZero(b.Greater(b.Squeeze(b.ReduceMax(z, [1], keepdims=True), [0, 1]), 0.0))
        best = b.Transpose(b.Gather(b.Squeeze(z, [0]), b.Squeeze(peaks, [0]), axis=1), [1, 0])
        b.output("y", y)
        b.output("z", z)
        b.output("w", b.MatMul(best, chance.standard_normal((CHANNELS, 2)).astype("f4")))
        b.output("twice", b.Multiply(x, 2.0))
    return b.model


def one_size_twice() -> dovetail.Model:
    """Two operators that read one size, and a chain of sizes that follow from each other."""
    chance = np.random.default_rng(4)
    with dovetail.Builder("twice") as b:
        x, length = b.input("x", "f32", ("n", CHANNELS)), b.input("length", "i64", (1,))
        y = b.ReduceSum(x, [0], keepdims=True)
        shape = b.Concat(length, b.constant(np.array([CHANNELS])), axis=0)
        y = b.Add(b.Expand(y, shape), b.Expand(b.Multiply(y, 0.5), shape))
        for _ in range(6):
            rows = b.Squeeze(b.NonZero(b.Greater(b.ReduceMax(y, [1], keepdims=False), 0.0)), [0])
            y = b.MatMul(b.Gather(y, rows, axis=0), chance.standard_normal((CHANNELS, CHANNELS)).astype("f4"))
            y = b.Add(y, b.Cast(b.Unsqueeze(b.Range(b.constant(0), b.Size(rows), b.constant(1)), [1]), to="f32"))
        b.output("y", y)
    return b.model


def spoken() -> dovetail.Model:
    """Return the outline of a speech model: each token lasts as long as the network says."""
    chance = np.random.default_rng(1)
    with dovetail.Builder("spoken") as b:
        x = b.input("x", "f32", (1, "n", CHANNELS))
        hidden = b.Relu(b.MatMul(x, chance.standard_normal((CHANNELS, CHANNELS)).astype("f4")))
        durations = b.Cast(b.Clip(b.Squeeze(b.ReduceSum(hidden, [2], keepdims=True), [0, 2]), 0.0, 9.0), to="i64")
        ends = b.CumSum(durations, b.constant(np.int64(0)))
        frames = b.Range(b.constant(np.int64(0)), b.ReduceMax(ends, [0], keepdims=False), b.constant(np.int64(1)))
        is_past = b.LessEqual(b.Unsqueeze(ends, [0]), b.Unsqueeze(frames, [1]))
        tokens = b.ReduceSum(b.Cast(is_past, to="i64"), [1], keepdims=False)
        y = b.Unsqueeze(b.Transpose(b.Gather(b.Squeeze(hidden, [0]), tokens, axis=0), [1, 0]), [0])
        for _ in range(2):
            y = b.Relu(b.Conv(y, (chance.standard_normal((CHANNELS, CHANNELS, 5)) / 6).astype("f4"), pads=(2, 2)))
        b.output("y", y)
    return b.model


def draw(model: dovetail.Model, chance: np.random.Generator) -> dict[str, Any]:
    n = int(chance.integers(1, 30))
    shapes = {"x": (n, CHANNELS) if len(model.inputs) == 2 else (1, n, CHANNELS)}
    found = {name: chance.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    return found | ({"length": chance.integers(1, 50, 1)} if len(model.inputs) == 2 else {})


def operators_in_python(engine: Engine) -> set[str]:
    """Return the operators of all steps in Python, those of subgraphs too."""
    found = set()
    for executable in engine._executables.values():
        for step, _ in executable.python_steps:
            for node in step.call.nodes if step.call is not None else ():
                found.add(type(node.op).__name__)
                program = getattr(node.op, "program", None)
                if program is not None and program._engine is not None:
                    found |= operators_in_python(program._engine)
    return found


@pytest.mark.parametrize("make", [several_sizes, one_size_twice, spoken])
def test_sizes_that_data_decides(make: Any) -> None:
    model, chance = make(), np.random.default_rng(2)
    program: Any = dovetail.compile(model, "native", threads=1)
    reference = dovetail.compile(model, "interpreter")
    for _ in range(24):
        inputs = draw(model, chance)
        found, wanted = program(inputs), reference(inputs)
        for name in wanted.keys():
            assert found[name].shape == wanted[name].shape
            assert_close(found[name], wanted[name], 1e-5)
    assert operators_in_python(program._engine).isdisjoint(PRODUCTS)


def test_one_plan_serves_the_lengths_of_a_speech_model(caplog: pytest.LogCaptureFixture) -> None:
    model, chance = spoken(), np.random.default_rng(3)
    with caplog.at_level("INFO", "dovetail"):
        program = dovetail.compile(model, "native", threads=1)
        for _ in range(24):
            program(draw(model, chance))
        before = program.statistics.plans
        for _ in range(24):
            program(draw(model, chance))
    messages = [record.message for record in caplog.records]
    assert sum("one plan serves" in text for text in messages) >= 2
    assert program.statistics.ranges >= 2 and program.statistics.plans == before


def test_results_of_a_partition_do_not_share_memory() -> None:
    """An input that is handed through, and a result that is two outputs, are arrays of their own."""
    weights = np.eye(CHANNELS, dtype=np.float32)
    with dovetail.Builder("shared") as b:
        x = b.input("x", "f32", ("n", CHANNELS))
        rows = b.Gather(x, b.Squeeze(b.NonZero(b.ReduceMax(x, [1], keepdims=False)), [0]), axis=0)
        y = b.MatMul(rows, weights)
        b.output("rows", rows)
        b.output("y", y)
        b.output("again", b.Identity(y))
        b.output("same", b.Identity(x))
    program = dovetail.compile(b.model, "native", threads=1)
    inputs = np.ones((3, CHANNELS), np.float32)
    found = program(inputs)
    arrays = [inputs, *found.values()]
    assert not any(np.may_share_memory(one, other) for k, one in enumerate(arrays) for other in arrays[:k])
    assert all((array == 1).all() for array in arrays)
