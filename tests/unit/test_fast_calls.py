"""Calls that the core serves by itself give what all others do, and leave every unusual call to the engine."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine.run import executable_cache
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ir.limits import Limits
from dovetail.ir.results import Results
from dovetail.ir.state import State

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the native core is not compiled")

Array = np.ndarray[Any, Any]


def pair() -> Model:
    with Builder("pair") as b:
        x, w = b.input("x", "f32", ("n", 3)), b.input("w", "f32", (3,))
        b.output("sum", x + w)
        b.output("relu", b.Relu(x))
    return b.model


def inputs_of(n: int = 2, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((n, 3)).astype(np.float32), "w": rng.standard_normal(3).astype(np.float32)}


def is_served(program: Any, *inputs: Any, out: Any = None, **by_name: Any) -> bool:
    """Return whether the core alone serves a call."""
    return program.call_fast(inputs, by_name, out) is not None


def assert_right(results: dict[str, Any], inputs: dict[str, Array]) -> None:
    assert list(results.keys()) == ["sum", "relu"]
    np.testing.assert_array_equal(results["sum"], inputs["x"] + inputs["w"])
    np.testing.assert_array_equal(results["relu"], np.maximum(inputs["x"], 0))


def test_every_way_to_pass_inputs() -> None:
    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    program(inputs)
    x, w = inputs["x"], inputs["w"]
    for call in ((inputs,), (x, w), ([x, w],), ((x, w),)):
        assert is_served(program, *call)
        assert_right(program(*call), inputs)
    assert is_served(program, x=x, w=w)
    assert_right(program(x=x, w=w), inputs)
    assert_right(program({"x": x}, w=w), inputs)
    assert program(inputs)[1] is not program(inputs)["relu"]


def test_results_are_indexed_by_name_and_position() -> None:
    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    for _ in range(2):
        results = program(inputs)
        assert type(results) is Results
        assert results[0] is results["sum"] and results[-1] is results["relu"]


def test_results_own_their_memory() -> None:
    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    first = [program(inputs) for _ in range(3)]
    for results in first:
        results["sum"][...] = 7
    assert_right(program(inputs), inputs)
    assert not any(np.shares_memory(a["sum"], b["sum"]) for a, b in itertools.pairwise(first))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:, ::-1],
        lambda x: np.asfortranarray(x),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
        lambda x: x.view(np.ma.MaskedArray).data.view(np.matrix),
        lambda x: x.tolist(),
        lambda x: x.astype(">f4"),
    ],
)
def test_unusual_arrays_give_the_same(change: Any) -> None:
    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    program(inputs)
    unusual = {**inputs, "x": change(inputs["x"])}
    assert not is_served(program, unusual)
    want = np.asarray(unusual["x"], np.float32)
    assert_right(program(unusual), {**inputs, "x": want})


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"x": np.zeros((2, 3)), "w": np.zeros(3, np.float32)}, "input.dtype"),
        ({"x": np.zeros((2, 4), np.float32), "w": np.zeros(3, np.float32)}, "input.shape"),
        ({"x": np.zeros((2, 3), np.float32)}, "input.missing"),
        ({"x": np.zeros((2, 3), np.float32), "v": np.zeros(3, np.float32)}, "input.unknown"),
        ([np.zeros((2, 3), np.float32)], "input.count"),
    ],
)
def test_errors_are_those_of_the_engine(bad: Any, code: str) -> None:
    program = dovetail.compile(pair(), "native")
    program(inputs_of())
    with pytest.raises(EngineError) as raised:
        program(bad)
    assert raised.value.code == code


def test_out_receives_the_results() -> None:
    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    program(inputs)
    total, relu = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)
    for out in ({"sum": total}, [total, None], (total, relu), {"sum": total, "relu": relu}, {}):
        total[...] = relu[...] = -1
        assert is_served(program, inputs, out=out)
        total[...] = relu[...] = -1
        results = program(inputs, out=out)
        assert_right(results, inputs)
        if out:
            assert results["sum"] is total


def test_out_that_overlaps_is_left_to_the_engine() -> None:
    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    program(inputs)
    x = inputs["x"].copy()
    assert not is_served(program, x, inputs["w"], out={"sum": x})
    results = program(x, inputs["w"], out={"sum": x})
    np.testing.assert_array_equal(results["sum"], inputs["x"] + inputs["w"])
    np.testing.assert_array_equal(results["relu"], np.maximum(inputs["x"], 0))
    one = np.empty((2, 3), np.float32)
    strided = np.empty((2, 6), np.float32)[:, ::2]
    assert_right(program(inputs, out={"sum": strided}), inputs)
    for out, code in (
        ([one, one], "output.array"),
        ({"total": one}, "output.unknown"),
        ({"sum": np.empty((2, 3))}, "output.array"),
        ({"sum": np.empty((3, 3), np.float32)}, "output.array"),
        ([one], "output.array"),
    ):
        with pytest.raises(EngineError) as raised:
            program(inputs, out=out)
        assert raised.value.code == code
    one.flags.writeable = False
    with pytest.raises(EngineError):
        program(inputs, out={"sum": one})


def test_more_shapes_than_are_kept(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    program = dovetail.compile(pair(), "native")
    program(inputs_of(9))
    one = program.statistics.size_bytes
    assert program.statistics.plans == program.statistics.cached_sizes == 1
    monkeypatch.setattr(executable_cache, "MAX_PLAN_BYTES", 4 * one)
    monkeypatch.setattr(native_core.core(), "MAX_SIZE_BYTES", one)
    program = dovetail.compile(pair(), "native")
    with caplog.at_level("INFO", "dovetail"):
        for _ in range(2):
            for n in (*range(8), 0, 1):
                inputs = inputs_of(n, seed=n)
                assert_right(program(inputs), inputs)
                assert_right(program(inputs), inputs)
    found = program.statistics
    assert found.size_bytes <= 5 * one and found.ranges == 1 and found.plans < 7
    assert sum("is dropped for a new one" in record.message for record in caplog.records) == found.evictions > 0


def test_a_shape_in_use_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    program = dovetail.compile(pair(), "native")
    hot = inputs_of(2)
    program(hot)
    monkeypatch.setattr(executable_cache, "MAX_PLAN_BYTES", 4 * program.statistics.size_bytes)
    monkeypatch.setattr(native_core.core(), "MAX_SIZE_BYTES", 4 * program.statistics.size_bytes)
    program = dovetail.compile(pair(), "native")
    program(hot)
    for n in range(3, 35):
        assert is_served(program, hot)
        program(inputs_of(n))
    assert is_served(program, hot)
    assert program.statistics.evictions > 10


def test_hundreds_of_shapes_are_planned_once() -> None:
    program = dovetail.compile(pair(), "native")
    for _ in range(2):
        for n in range(300):
            inputs = inputs_of(n, seed=n)
            assert_right(program(inputs), inputs)
    found = program.statistics
    assert found.cached_sizes == 300 and found.ranges == 1 and found.plans < 7 and found.evictions == 0


def test_a_closed_program_does_not_run() -> None:
    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    program(inputs)
    program.close()
    with pytest.raises(EngineError) as raised:
        program(inputs)
    assert raised.value.code == "program.closed"


def test_a_limit_of_time_is_obeyed() -> None:
    model = pair()
    model.limits = Limits(seconds=0)
    program = dovetail.compile(model, "native")
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            program(inputs_of())
        assert raised.value.code == "run.time"


def test_a_step_that_fails_gives_its_error() -> None:
    with Builder("gather") as b:
        b.output("y", b.Gather(b.input("x", "f32", (4,)), b.input("i", "i64", (2,)), axis=0))
    program = dovetail.compile(b.model, "native")
    x, good, bad = np.arange(4, dtype=np.float32), np.array([3, 1]), np.array([0, 9])
    np.testing.assert_array_equal(program(x, good)["y"], [3, 1])
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            program(x, bad)
        np.testing.assert_array_equal(program(x, good)["y"], [3, 1])
    reference = dovetail.compile(b.model, "interpreter")
    with pytest.raises(EngineError) as expected:
        reference(x, bad)
    assert raised.value.code == expected.value.code


def test_states_may_be_passed_or_kept() -> None:
    with Builder("sum") as b:
        x, total = b.input("x", "f32", (2,)), b.input("total", "f32", (2,))
        b.output("next", x + total)
    model = b.model
    model.states = [State("total", "total", "next")]
    program = dovetail.compile(model, "native")
    ones = np.ones(2, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(program(x=ones)["next"], [1, 1])
        np.testing.assert_array_equal(program(x=ones, total=ones)["next"], [2, 2])
    session = program.session()
    for _ in range(3):
        session({"x": ones})
    np.testing.assert_array_equal(session.states["total"], [3, 3])


def test_many_threads_call_one_program() -> None:
    program = dovetail.compile(pair(), "native", threads=2)
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(200):
                inputs = inputs_of(1 + (seed + step) % 5, seed)
                assert_right(program(inputs), inputs)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_references_are_balanced() -> None:

    program, inputs = dovetail.compile(pair(), "native"), inputs_of()
    out = np.empty((2, 3), np.float32)
    program(inputs)
    before = [sys.getrefcount(item) for item in (inputs["x"], out, np.dtype("f4"))]
    for _ in range(1000):
        program(inputs, out={"sum": out})
    after = [sys.getrefcount(item) for item in (inputs["x"], out, np.dtype("f4"))]
    assert all(abs(a - b) < 20 for a, b in zip(before, after, strict=True))


def test_maps_are_made_of_the_delivered_arrays() -> None:
    with Builder("maps") as b:
        x = b.input("x", "f32", ("n", 2))
        y = b.Exp(x)
        b.output("y", y)
        b.output("of_output", b.ZipMap(y, classlabels_strings=("no", "yes")))
        b.output("of_input", b.ZipMap(x, classlabels_int64s=(4, 7)))
        b.output("of_sum", b.ZipMap(b.Add(x, y), classlabels_int64s=(4, 7)))
    program, reference = dovetail.compile(b.model, "native"), dovetail.compile(b.model, "interpreter")
    for n in (2, 0, 1, 2):
        x = np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32)
        want = reference(x)
        for _ in range(2):
            results = program(x)
            np.testing.assert_allclose(results["y"], want["y"], rtol=1e-6)
            assert results["of_input"] == want["of_input"]
            for name in ("of_output", "of_sum"):
                assert [list(row) for row in results[name]] == [list(row) for row in want[name]]
        assert is_served(program, x)
    out = {"y": np.empty((2, 2), np.float32)}
    assert program(x, out=out)["y"] is out["y"]
    assert is_served(program, x, out=[out["y"], None, None, None])
    with pytest.raises(EngineError) as raised:
        program(x, out={"of_sum": np.empty((2, 2), np.float32)})
    assert raised.value.code == "output.array"


def lookups(zeros: bool) -> Model:
    with Builder("lookups") as b:
        color, size = b.input("color", "string", ("n", 2)), b.input("size", "string", ("n",))
        x = b.input("x", "f32", ("n", 1))
        first = b.Gather(color, b.constant(np.array([0])), axis=1)
        hot = b.Flatten(b.OneHotEncoder(first, cats_strings=("red", "green", "blue"), zeros=zeros), axis=1)
        keys, values = np.array(["s", "m", "red", "m"], object), np.array([1, 2, 3, 4], np.float32)
        joined = b.Concat(b.Unsqueeze(size, [1]), color, axis=1)
        numbers = b.LabelEncoder(joined, b.constant(keys), b.constant(values), b.constant(np.float32(-2)))
        b.output("y", b.Concat(hot, numbers, x, axis=1))
    return b.model


@pytest.mark.parametrize("zeros", [True, False])
def test_strings_are_looked_up_by_the_core(zeros: bool) -> None:
    program, reference = dovetail.compile(lookups(zeros), "native"), dovetail.compile(lookups(zeros), "interpreter")
    chance = np.random.default_rng(4)
    for n in (3, 1, 0, 3):
        colors = np.array(chance.choice(["red", "green", "blue"], (n, 2)), object)
        sizes = np.array(chance.choice(["s", "m", "other", ""], n), object)
        inputs = {"color": colors, "size": sizes, "x": np.ones((n, 1), np.float32)}
        want = reference(inputs)["y"]
        for _ in range(2):
            np.testing.assert_array_equal(program(inputs)["y"], want)
        assert is_served(program, inputs) == (zeros or ("other" not in sizes.tolist() and "" not in sizes.tolist()))
        # Other kinds of strings, and strings that are not dense, are left to the engine.
        for kind in (colors.astype("U5"), np.repeat(colors, 2, 1)[:, ::2]):
            np.testing.assert_array_equal(program(inputs | {"color": kind})["y"], want)


def test_an_unknown_string_is_the_error_of_the_engine() -> None:
    program = dovetail.compile(lookups(False), "native")
    inputs = {"color": np.array([["red", "pink"]], object), "size": np.array(["s"], object), "x": np.ones((1, 1), np.float32)}
    program(inputs)
    # Nothing looks up the second column in the strict table.
    np.testing.assert_array_equal(program(inputs)["y"], dovetail.compile(lookups(False), "interpreter")(inputs)["y"])
    with pytest.raises(DovetailError) as raised:
        program(inputs | {"color": np.array([["pink", "red"]], object)})
    assert raised.value.code == "attribute.conflict"
    total = np.array([["pink", "red"]], object)
    loose = dovetail.compile(lookups(True), "native")
    for _ in range(2):
        np.testing.assert_array_equal(loose(inputs | {"color": total})["y"], [[0, 0, 0, 1, -2, 3, 1]])


def test_strings_that_are_results_stay_strings() -> None:
    with Builder("kept") as b:
        x = b.input("x", "string", ("n",))
        b.output("x2", b.Identity(x))
        b.output("hot", b.OneHotEncoder(x, cats_strings=("a", "b")))
    program, words = dovetail.compile(b.model, "native"), np.array(["a", "c"], object)
    for _ in range(2):
        results = program(words)
        assert results["x2"].tolist() == ["a", "c"]
        np.testing.assert_array_equal(results["hot"], [[1, 0], [0, 0]])
