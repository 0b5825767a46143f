"""`dovetail bench`: what is compared with what, and the report where an engine is missing, refuses or differs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, EngineError, cli
from dovetail.ir.host import native_core
from dovetail.measure import benchmark, size_benchmark, throughput
from dovetail.runtime import peers as runtimes
from dovetail.runtime.peers import Names, Runner

INSTALLED = [name for name in benchmark.PEERS if runtimes.is_installed(name)]
needs_peers = pytest.mark.skipif(len(INSTALLED) < len(benchmark.PEERS), reason="onnxruntime and openvino are not both installed")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """x[n, 4], z[n, 2] -> y[n, 6], sum[n]; written in either format."""
    monkeypatch.chdir(tmp_path)
    with Builder("small") as b:
        x, z = b.input("x", "f32", ("n", 4)), b.input("z", "f32", ("n", 2))
        y = b.Concat(x, b.Exp(z), axis=1)
        b.output("y", y)
        b.output("sum", b.ReduceSum(y, b.constant([1], "i64"), keepdims=False))
    dovetail.save(b.model, "small.onnx")
    dovetail.save(b.model, "small.xml")
    return "small.onnx"


@pytest.fixture
def run_bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    def call(*arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(["bench", *arguments, "--rounds", "2", "--threads", "1"])
        return (caught.value.code, *capsys.readouterr())

    return call


def spoilt(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Runner], Runner]) -> None:
    """Let the peers be ours, spoilt."""

    def runner(engine: str, path: str, threads: int, names: Names, **options: Any) -> Runner:
        made = runtimes.runner("dovetail", path, threads, names, **options)
        return made if engine == "dovetail" else spoil(replace(made, name=f"{engine} 0.0"))

    monkeypatch.setattr(benchmark, "runner", runner)
    monkeypatch.setattr(benchmark, "is_installed", lambda name: True)


@needs_peers
@pytest.mark.parametrize("file", ["small.onnx", "small.xml"])
def test_all_engines_run_and_agree_in_either_format(file: str, model: str, run_bench: Any) -> None:
    code, out, err = run_bench(file, "--json", "--dim", "n=5")
    found = json.loads(out)
    ours, *others = found["engines"]
    assert code == 0 and found["agrees"] is True and found["shapes"] == {"x": [5, 4], "z": [5, 2]}
    assert ours["engine"] == "dovetail" and ours["ratio"] is None
    assert [item["engine"] for item in others] == list(benchmark.PEERS)
    for item in found["engines"]:
        assert item["seconds"] > 0 and item["peak_bytes"] > 1e7 and item["compile_seconds"] > 0
    assert all(item["agrees"] and item["ratio"] == pytest.approx(ours["seconds"] / item["seconds"]) for item in others)
    assert ("conversion to ONNX" in err) == (file == "small.xml")


def test_a_table_has_the_times_and_the_agreement(model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, lambda made: made)
    code, out, err = run_bench(model, "--against", "openvino", "--no-memory", "--shape", "x=2,4", "--shape", "z=2,2")
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:3] == ["engine", "time", "ratio"]
    assert [line.split()[0] for line in lines[1:]] == ["dovetail", "openvino"] and "agree, 0" in lines[2]
    assert "medians of 2 interleaved runs, 1 thread" in err and "random inputs (seed 0): x, z" in err


def test_results_that_differ_end_in_1(model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(made: Runner) -> Runner:
        return replace(made, run=lambda inputs: {name: array + 1 for name, array in made.run(inputs).items()})

    spoilt(monkeypatch, wrong)
    code, out, _ = run_bench(model, "--against", "onnxruntime", "--no-memory")
    assert code == 1 and "differ" in out


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a file of a matrix product whose operands are not numbers of bf16."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with Builder("product") as b:
        b.output("y", b.MatMul(b.input("x", "f32", (20, 300)), rng.standard_normal((300, 40)).astype(np.float32)))
    dovetail.save(b.model, "product.onnx")
    return "product.onnx"


needs_bf16 = pytest.mark.skipif(not native_core.has_bf16(), reason="needs AVX512-BF16")


@needs_bf16
def test_results_in_bf16_are_compared_with_f32(product: str, run_bench: Any) -> None:
    """Every engine's error is that of its own rounding; the peers that compute in f32 have the error of f32."""
    code, out, err = run_bench(product, "--precision", "bf16", "--json")
    found = {item["engine"]: item for item in json.loads(out)["engines"]}
    assert code == 0 and all(item["agrees"] is True for item in found.values())
    assert json.loads(out)["precision"] == "bf16" and "dovetail's in f32" in err
    assert 1e-5 < found["dovetail"]["difference"] < 2**-6
    if "onnxruntime" in found:
        assert found["onnxruntime"]["difference"] < 1e-5
    if "openvino" in found:
        assert found["openvino"]["difference"] > 1e-5
    exact = json.loads(run_bench(product, "--precision", "f32", "--json", "--no-memory")[1])["engines"]
    assert exact[0]["difference"] is None and all(item["difference"] < 1e-5 for item in exact[1:])


@needs_bf16
@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (lambda y: y * np.float32(1.5), 0, "rounded, 0.5"),
        (lambda y: y[:1], 1, "differ"),
        (lambda y: np.where(y == y.max(), np.float32(np.nan), y), 1, "differ"),
    ],
)
def test_errors_by_rounding_are_not_wrong_results(
    change: Callable[[Any], Any], code: int, text: str, product: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(made: Runner) -> Runner:
        return replace(made, run=lambda inputs: {name: change(array) for name, array in made.run(inputs).items()})

    spoilt(monkeypatch, changed)
    found, out, _ = run_bench(product, "--precision", "bf16", "--against", "openvino", "--no-memory")
    assert found == code and text in out.splitlines()[2] and "agree, 0.00" in out.splitlines()[1]


@needs_bf16
def test_throughput_and_sizes_have_a_precision(product: str, model: str, run_bench: Any) -> None:
    assert run_bench(product, "--precision", "bf16", "--throughput")[0] == 0
    code, out, _ = run_bench(model, "--precision", "bf16", "--sizes", "n=2..9", "--steps", "4", "--json")
    assert code == 0 and json.loads(out)["agrees"] is True


def test_an_engine_that_refuses_is_listed_with_its_reason(model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(made: Runner) -> Runner:
        raise EngineError("runtime.load", "it does not like it")

    spoilt(monkeypatch, refusing)
    code, out, err = run_bench(model, "--against", "onnxruntime", "--no-memory")
    assert code == 0 and "does not run" in out and "onnxruntime: it does not like it" in err


@pytest.mark.parametrize("name", ["nonsense", "onnxruntime"])
def test_an_engine_that_is_not_there_is_an_error(name: str, model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "is_installed", lambda name: False)
    code, _, err = run_bench(model, "--against", name)
    assert code == 4 and "[runtime.missing]" in err and name in err


def test_without_peers_only_dovetail_is_measured(model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "is_installed", lambda name: False)
    code, out, _ = run_bench(model, "--json", "--no-memory")
    assert code == 0 and [item["engine"] for item in json.loads(out)["engines"]] == ["dovetail"]


def test_runs_are_interleaved_and_the_last_of_each_repetition_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "AWAKE", 0)
    calls: list[str] = []
    found = benchmark.median_times({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert "".join(calls) == "ab" + "aabb" * 3 and set(found) == {"a", "b"} and min(found.values()) >= 0


def test_the_process_of_a_peer_imports_no_module_of_dovetail() -> None:
    named = "[name for name in sys.modules if name.split('.')[0] == 'dovetail']"
    code = f"import runpy, sys; runpy.run_path({runtimes.__file__!r}); print({named})"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_process_that_fails_gives_a_reason() -> None:
    with pytest.raises(EngineError, match=r"nowhere\.onnx") as caught:
        runtimes.cost("dovetail", "nowhere.onnx", 1, Names([], []), {})
    assert caught.value.code == "runtime.run"


def test_memory_is_measured_for_types_that_only_ml_dtypes_has(tmp_path: Path) -> None:
    with Builder() as b:
        b.output("y", b.Concat(b.input("x", "bf16", (2, 2)), b.input("z", "bf16", (2, 2)), axis=0))
    dovetail.save(b.model, tmp_path / "m.onnx")
    inputs = {name: np.zeros((2, 2), dovetail.ir.dtypes.dtype("bf16").numpy) for name in ("x", "z")}
    found = runtimes.cost("dovetail", str(tmp_path / "m.onnx"), 1, Names(["x", "z"], ["y"]), inputs)
    assert found.peak_bytes > 1e7


# Throughput


@needs_peers
@pytest.mark.parametrize("file", ["small.onnx", "small.xml"])
def test_throughput_counts_items_in_every_engine(file: str, model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "ROUND_SECONDS", 0.01)
    code, out, err = run_bench(file, "--throughput", "--json", "--dim", "n=5")
    ours, *others = json.loads(out)["engines"]
    assert code == 0 and ours["engine"] == "dovetail" and ours["ratio"] is None
    assert [item["engine"] for item in others] == list(benchmark.PEERS)
    for item in others:
        assert item["ratio"] == pytest.approx(item["items_per_second"] / ours["items_per_second"])
    assert ("conversion to ONNX" in err) == (file == "small.xml")


@needs_peers
def test_a_peer_that_refuses_has_no_throughput_but_a_note(model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("not today")

    monkeypatch.setattr(throughput, "ROUND_SECONDS", 0.01)
    monkeypatch.setitem(throughput.PEER_WAYS, "openvino", refuse)
    code, out, err = run_bench(model, "--throughput", "--against", "openvino", "--streams", "2")
    assert code == 0 and "does not run" in out and "not today" in err and "streams=2" in out


def test_streams_belong_to_throughput(model: str, run_bench: Any) -> None:
    code, _, err = run_bench(model, "--streams", "2")
    assert code == 2 and "--throughput" in err


# Changing sizes


@needs_peers
@pytest.mark.parametrize("file", ["small.onnx", "small.xml"])
def test_new_sizes_and_planned_ones_are_timed_separately(file: str, model: str, run_bench: Any) -> None:
    code, out, err = run_bench(file, "--sizes", "n=2..40", "--steps", "12", "--json")
    found = json.loads(out)
    sizes = [row["n"] for row in found["sizes"]]
    assert code == 0 and found["agrees"] and len(sizes) == 12 and set(sizes) <= set(range(2, 41))
    ours, *others = found["engines"]
    assert [item["engine"] for item in others] == list(benchmark.PEERS)
    assert 0 < ours["plans"] < len(set(sizes)) if native_core.is_compiled else ours["plans"] == 0
    assert (ours["planning"] > 0) == native_core.is_compiled
    for item in others:
        assert item["seen_ratio"] > 0 and item["new_ratio"] > 0 and item["new"] <= item["new_p99"]
    assert ("conversion to ONNX" in err) == (file == "small.xml")


def test_a_ratio_is_the_median_over_the_calls_that_made_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of n elements takes 2n s in dovetail, which plans in every third call, and 1 + n s in the peer."""
    clock, calls = [0.0], [0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda _: None)

    def contender(factor: int, constant: int, plans: Callable[[], int] | None = None) -> Any:
        def call(feed: Any) -> Callable[[], None]:
            def run() -> None:
                calls[0] += plans is not None
                clock[0] += constant + factor * len(feed["x"])

            return run

        runner = SimpleNamespace(call=call, run=lambda feed: {"y": feed["x"]}, name="", notes=())
        return size_benchmark._Contender("", runner, plans=plans)

    ours, peer = contender(2, 0, lambda: calls[0] // 3), contender(1, 1)
    sizes = (1, 9, 4, 30, 2, 8, 7)
    size_benchmark._interleave([ours, peer], [{"x": np.zeros(size, np.float32)} for size in sizes], {})
    first, second = ours.measurement(ours), peer.measurement(ours)
    # The third and the sixth call plan, and the sizes of the last one are seen before the measurement.
    new = (1, 9, 30, 2)
    assert first.planning == 2 * (4 + 8) and first.plans == 4
    assert first.new == np.median([2 * size for size in new]) and second.new == np.median([1 + size for size in new])
    assert second.new_ratio == pytest.approx(np.median([2 * size / (1 + size) for size in new]))
    assert second.seen_ratio == pytest.approx(np.median([2 * size / (1 + size) for size in (7, *sizes)]))


def test_a_size_that_grows_is_one_more_at_each_call(model: str, run_bench: Any) -> None:
    code, out, _ = run_bench(model, "--grow", "n", "--dim", "n=3", "--steps", "4", "--against", "onnxruntime", "--json")
    assert code == 0 and json.loads(out)["sizes"] == [{"n": 3}, {"n": 4}, {"n": 5}, {"n": 6}]


def test_results_that_differ_at_a_size_end_in_1(model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(engine: str, path: str, threads: int, names: Names, **options: Any) -> Runner:
        made = runtimes.runner("dovetail", path, threads, names, **options)
        return replace(made, run=lambda inputs: {name: array + (len(array) == 4) for name, array in made.run(inputs).items()})

    monkeypatch.setattr(size_benchmark, "runner", spoilt)
    code, out, _ = run_bench(model, "--grow", "n", "--steps", "6", "--against", "onnxruntime")
    assert code == 1 and "differ" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "n=5..2"], "NAME=LOW..HIGH"),
        (["--sizes", "length=2..5"], "must be open dimensions (n), got length"),
        (["--steps", "3"], "--sizes or --grow"),
        (["--grow", "n", "--throughput"], "exclude --input and --throughput"),
    ],
)
def test_invalid_size_options_are_errors_of_usage(arguments: list[str], message: str, model: str, run_bench: Any) -> None:
    code, _, err = run_bench(model, *arguments)
    assert code == 2 and message in err


def test_one_size_of_an_open_model_is_reported(model: str, run_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, lambda made: made)
    _, _, err = run_bench(model, "--against", "openvino", "--no-memory")
    assert "one size of n" in err
