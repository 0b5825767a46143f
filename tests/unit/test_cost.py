"""`dovetail cost`: expressions give the costs of plans, memory is that of a run, and notes name what is unknown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, cli
from dovetail.engine.machine_limits import LimitMeter
from dovetail.engine.run_costs import is_monotone
from dovetail.engine.step_profile import profile_steps
from dovetail.errors import DovetailError, EngineError, RuleError
from dovetail.ir import symbolic
from dovetail.ir.host import native_core
from networks.generator import generate
from networks.size_comparison import open_sizes

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")


def layers(width: int = 32) -> dovetail.Model:
    """Return two products and a softmax over rows of an open number."""
    chance = np.random.default_rng(0)
    with Builder("layers") as b:
        x = b.input("x", "f32", ("batch", width))
        for _ in range(2):
            x = b.Relu(b.MatMul(x, chance.standard_normal((width, width)).astype("f4")))
        b.output("y", b.Softmax(x, axis=-1))
    return b.model


def attention() -> dovetail.Model:
    """Return an attention over an open length, whose scores are quadratic in it."""
    chance = np.random.default_rng(0)
    with Builder("attention") as b:
        x = b.input("x", "f32", ("batch", "length", 32))
        q, k, v = (b.MatMul(x, chance.standard_normal((32, 32)).astype("f4")) for _ in range(3))
        scores = b.Softmax(b.MatMul(q, k, transpose_b=True), axis=-1)
        b.output("y", b.MatMul(scores, v))
    return b.model


def values_of(report: dovetail.CostReport, sizes: dict[str, int]) -> dict[str, int | None]:
    """Return the values of the report's expressions at some sizes."""
    return {
        name: None if text is None else symbolic.evaluate(symbolic.parse(text), sizes)
        for name, text in report.expressions.items()
        if name != "time, us"
    }


def costs_of_plan(model: dovetail.Model, sizes: dict[str, int]) -> dict[str, int]:
    """Return the costs by other functions: the plan's report, and the profile of a run."""
    plan = dovetail.plan(model, dovetail.Inputs(sizes=sizes), rounds=0, threads=1)
    meter = LimitMeter(1, [lambda: 1.0] * 3)
    native = profile_steps(model, dovetail.Inputs(sizes=sizes).complete(model), threads=1, runs=1, meter=meter)
    return {"arena, bytes": plan.lower_bound, "bytes moved": sum(step.nbytes for step in native.steps)}


@pytest.mark.parametrize("make", [layers, attention])
def test_expressions_give_the_costs_of_each_plan(make: Any) -> None:
    model = make()
    names = open_sizes(model)
    report = dovetail.cost(model, dict.fromkeys(names, 8), threads=1)
    for number in (2, 5, 40):
        sizes = {name: number + index for index, name in enumerate(names)}
        found, wanted = values_of(report, sizes), costs_of_plan(model, sizes)
        assert {name: found[name] for name in wanted} == wanted
        assert found["operations"] == dovetail.cost(model, sizes, threads=1).operations
    assert report.compared and not any(row["differences"] for row in report.compared)


def test_expressions_of_random_networks() -> None:
    equal = count = 0
    for seed in range(40):
        model = generate(seed).model()
        names = open_sizes(model)
        try:
            report = dovetail.cost(model, dict.fromkeys(names, 6), threads=1)
        except EngineError:
            continue  # an input without a known shape
        plans = [row for row in report.compared if names]
        for row in plans:
            found, plan = values_of(report, row["sizes"]), dovetail.plan(model, dovetail.Inputs(sizes=row["sizes"]), rounds=0)
            is_equal = "live" not in row["differences"]
            if found["arena, bytes"] is not None:
                assert (found["arena, bytes"] == plan.lower_bound) == is_equal, (seed, row)
                equal, count = equal + is_equal, count + 1
    assert count >= 10 and equal >= 0.8 * count, (equal, count)


@pytest.mark.parametrize("make", [layers, attention])
def test_memory_is_that_of_a_run(make: Any) -> None:
    model = make()
    sizes = dict.fromkeys(open_sizes(model), 9)
    report = dovetail.cost(model, sizes, threads=1)
    inputs = dovetail.Inputs(sizes=sizes).complete(model)
    program = dovetail.compile(model, threads=1)
    results = program(inputs)
    plan = dovetail.plan(model, inputs, rounds=0, threads=1)
    assert report.memory["arena"] == plan.arena_bytes
    assert report.memory["packed"] == program.statistics.packed_bytes
    assert report.memory["inputs"] == sum(array.nbytes for array in inputs.values())
    assert report.memory["outputs"] == sum(array.nbytes for array in results.values())
    constants = [node.outputs[0].constant for node in model.graph.nodes if node.outputs[0].constant is not None]
    assert report.memory["weights"] >= sum(array.nbytes for array in constants if array is not None)
    assert report.memory_bytes == sum(report.memory.values()) == report.as_dict()["memory_bytes"]


MEASURE = """
import sys
import numpy as np
import dovetail

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

program = dovetail.compile(sys.argv[1], threads=1)
program(np.ones((16, 64), np.float32))
before = peak()
program(np.ones((int(sys.argv[2]), 64), np.float32))
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_memory_is_that_of_a_process(tmp_path: Path) -> None:
    with Builder("rows") as b:
        x = b.input("x", "f32", ("batch", 64))
        wide = b.Softmax(b.MatMul(x, np.ones((64, 256), np.float32)), axis=-1)
        b.output("y", b.MatMul(wide, np.ones((256, 8), np.float32)))
    dovetail.save(b.model, tmp_path / "rows.onnx")
    small, large = (dovetail.cost(tmp_path / "rows.onnx", {"batch": batch}, threads=1) for batch in (16, 100_000))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "rows.onnx"), "100000"]
    # The tests verify each plan on marks for all elements, which takes memory that a run does not take.
    environment = {**os.environ, "DOVETAIL_VERIFY": "0"}
    measured = int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert abs(measured - (large.memory_bytes - small.memory_bytes)) < 0.03 * measured


def test_winograds_algorithm_performs_fewer_operations() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n", 64, 56, 56))
        b.output("y", b.Conv(x, np.ones((64, 64, 3, 3), np.float32), pads=[1, 1, 1, 1]))
    report = dovetail.cost(b.model, {"n": 2}, threads=1)
    assert report.operations == 2 * 2 * 64 * 64 * 9 * 56 * 56
    assert report.performed_operations == sum(row.operations for row in report.kernels) < report.operations


ROWS, DEPTH, COLUMNS = 6, 20, 24
CODES = np.arange(DEPTH * COLUMNS, dtype=np.int8).reshape(DEPTH, COLUMNS)


def integer_product(b: Any, x: Any) -> Any:
    codes, scale, zero = b.DynamicQuantizeLinear(x)
    sums = b.MatMulInteger(codes, CODES, zero, np.int8(0))
    return b.Multiply(b.Cast(sums, to="f32"), b.Multiply(scale, np.float32(0.1)))


def quantized_product(b: Any, x: Any) -> Any:
    rounded = b.DequantizeLinear(b.QuantizeLinear(x, np.float32(0.1), np.uint8(0)), np.float32(0.1), np.uint8(0))
    y = b.MatMul(rounded, b.DequantizeLinear(CODES, np.float32(0.1), np.int8(0)))
    return b.DequantizeLinear(b.QuantizeLinear(y, np.float32(0.1), np.uint8(0)), np.float32(0.1), np.uint8(0))


def product_of_codes(b: Any, x: Any) -> Any:
    return b.DequantizeLinear(b.MatMulInteger(b.Cast(x, to="u8"), CODES), np.float32(0.1), np.int32(0))


def compressed_product(b: Any, x: Any) -> Any:
    return b.MatMul(x, b.Multiply(b.Cast(CODES, to="f32"), np.float32(0.1)))


def integer_convolution(b: Any, x: Any) -> Any:
    codes, _, zero = b.DynamicQuantizeLinear(b.Reshape(b.Transpose(x, (1, 0)), [1, DEPTH, ROWS, 1]))
    return b.ConvInteger(codes, CODES.T.reshape(COLUMNS, DEPTH, 1, 1), zero, np.int8(0))


@pytest.mark.parametrize(
    "make",
    [integer_product, quantized_product, product_of_codes, compressed_product, integer_convolution],
    ids=lambda make: make.__name__,
)
def test_products_of_codes_have_the_operations_of_products_of_floats(make: Any) -> None:
    """A kernel that the engine chooses for 8-bit codes performs the multiply-adds of the product that the model defines."""
    with Builder() as b:
        b.output("y", make(b, b.input("x", "f32", (ROWS, DEPTH))))
    report = dovetail.cost(b.model, threads=1)
    product = 2 * ROWS * DEPTH * COLUMNS
    assert product <= report.operations < 1.5 * product


def test_elements_without_a_contiguous_axis_touch_whole_cache_lines() -> None:
    """A step that writes one element in each cache line takes as long as one that writes the lines."""

    def copied(channels: int) -> float:
        with Builder() as b:
            x = b.input("x", "f32", (1, 4096, channels))
            b.output("y", b.Slice(x, [0], [1], [2]))
        (row,) = dovetail.cost(b.model, threads=1).kernels
        assert row.moved_bytes == 2 * 4 * 4096 and row.seconds is not None
        return row.seconds

    assert copied(16) > 2 * copied(1)


def test_monotone_expressions() -> None:
    n, m = symbolic.symbol("n", 1), symbolic.symbol("m", 1)
    assert is_monotone(3 * n * m + (n + 7) // 8, "n") and is_monotone(symbolic.maximum(n, 2 * m), "n")
    assert is_monotone(5 * n - m, "n") and not is_monotone(5 * n - m, "m")
    assert not is_monotone(symbolic.maximum(m - n, 1), "n") and not is_monotone(n % 8, "n")


def test_the_largest_size_that_fits() -> None:
    model = layers(256)
    report = dovetail.cost(model, fits=4_000_000, threads=1)
    fits = report.fits
    assert fits is not None and fits.symbol == "batch" and fits.size is not None and fits.is_proved
    at_size, above = (dovetail.cost(model, {"batch": fits.size + more}, threads=1).memory_bytes for more in (0, 1))
    assert at_size == fits.memory <= 4_000_000 < above
    nothing = dovetail.cost(model, fits=1000, threads=1).fits
    assert nothing is not None and nothing.size is None


def test_a_size_that_the_model_refuses_ends_the_search() -> None:
    table = np.arange(100, dtype=np.float32).reshape(10, 10)
    with Builder() as b:
        x = b.input("x", "f32", ("n", 10))
        b.output("y", b.Add(x, b.Slice(table, [0], b.Slice(b.Shape(x), [0], [1], [0]), [0])))
    fits = dovetail.cost(b.model, fits=10**9, vary="n", threads=1).fits
    assert fits is not None and fits.size == 10 and "n=11 is refused" in fits.reason


def test_which_size_varies() -> None:
    fits = dovetail.cost(attention(), {"batch": 2}, fits=10**7, vary="length", threads=1).fits
    assert fits is not None and fits.symbol == "length"
    with pytest.raises(EngineError, match=r"vary must be an open size of the inputs \(batch, length\), got 'n'"):
        dovetail.cost(attention(), fits=10**7, vary="n")
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", "k")), b.input("z", "f32", ("k", "m"))))
    with pytest.raises(EngineError, match="share no leading one"):
        dovetail.cost(b.model, fits=10**7)


def test_fixed_sizes_have_numbers() -> None:
    with Builder("fixed") as b:
        b.output("y", b.Relu(b.input("x", "f32", (8, 8))))
    report = dovetail.cost(b.model, threads=1)
    assert report.sizes == {} and report.moved_bytes == 512 and report.seconds is not None and report.seconds > 0
    assert "no open sizes" in repr(report) and "bytes moved: 512 B" in repr(report)
    with pytest.raises(EngineError, match="share no leading one; open: none"):
        dovetail.cost(b.model, fits=10**7)


def test_control_flow_has_a_note() -> None:
    with Builder("body") as body:
        body.input("i", "i64", ())
        h = body.input("h", "f32", (4, 4))
        body.output("more", body.constant(np.array(True)))
        body.output("h2", body.Relu(body.MatMul(h, np.ones((4, 4), np.float32))))
    with Builder("loop") as b:
        (y,) = b.Loop(np.array(7, np.int64), None, b.input("x", "f32", (4, 4)), body=body.graph, carried=1)
        b.output("y", y)
    report = dovetail.cost(b.model, threads=1)
    (note,) = [note for note in report.notes if "trips" in note]
    assert "is not counted; trips: 7; per trip: 2 steps" in note
    assert report.seconds is None


def test_sizes_that_data_decides_are_unknown() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n", 4))
        rows = b.Gather(x, b.Reshape(b.NonZero(b.ReduceMax(x, [1])), [-1]), axis=0)
        b.output("y", b.MatMul(rows, np.ones((4, 4), np.float32)))
    report = dovetail.cost(b.model, {"n": 5}, threads=1)
    assert any("data decides" in note for note in report.notes)
    assert report.seconds is None and report.expressions["operations"] is None
    with pytest.raises(EngineError, match="data decides sizes"):
        dovetail.cost(b.model, fits=10**9)


@pytest.mark.parametrize("fits", [-1, 1.5, True, "2GB"])
def test_a_limit_is_a_number_of_bytes(fits: Any) -> None:
    with pytest.raises(EngineError, match="fits must be a number of bytes"):
        dovetail.cost(layers(), fits=fits)


def test_unknown_sizes() -> None:
    with pytest.raises(RuleError, match="the symbolic dimensions are: batch"):
        dovetail.cost(layers(), {"rows": 3})


@pytest.fixture
def path(tmp_path: Path) -> str:
    dovetail.save(layers(), tmp_path / "layers.onnx")
    return str(tmp_path / "layers.onnx")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(["cost", *arguments])
    return int(end.value.code or 0)


def test_command(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path, "--at", "batch=64", "--fits", "3MB", "--threads", "1") == 0
    text = capsys.readouterr().out
    for line in ("batch=64", "operations", "*batch", "fits", "kernel"):
        assert line in text, line
    assert run(path, "--fits", "1kB", "--threads", "1") == 1
    assert "no size of batch fits" in capsys.readouterr().out


def test_command_as_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path, "--dim", "batch=64", "--json", "--threads", "1") == 0
    found = json.loads(capsys.readouterr().out)
    wanted = dovetail.cost(path, {"batch": 64}, threads=1).as_dict()
    for name in ("sizes", "memory", "memory_bytes", "moved_bytes", "operations", "notes", "compared"):
        assert found[name] == wanted[name], name
    assert found["dovetail"] == "cost" and found["fits"] is None


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--at", "batch"], "--at takes NAME=SIZE"),
        (["--at", "rows=3"], "no input has a dimension 'rows'"),
        (["--fits", "much"], "must be a number of bytes"),
        (["--vary", "batch"], "--vary needs --fits"),
    ],
)
def test_errors_of_the_command(path: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path, *arguments) >= 2
    assert message in capsys.readouterr().err


def test_hostile_sizes_are_refused() -> None:
    with pytest.raises(DovetailError):
        dovetail.cost(layers(), {"batch": 1 << 60})
