"""If and Loop as native steps: results, limits, errors and threads as in the interpreter."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine.plan_report import step_facts
from dovetail.engine.run import executable_cache
from dovetail.errors import DovetailError, EngineError
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Model
from dovetail.ir.host import native_core
from dovetail.ir.limits import Limits
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.runtime.peers import runner

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the native core is not compiled")

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]
ENDLESS = np.array(True)


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def graph_of(write: Callable[[Builder], list[Any]]) -> Graph:
    inner = Builder("inner")
    inner.graph.outputs = write(inner)
    return inner.graph


def executable_of(program: Any) -> Any:
    """Return the executable that served the last call."""
    return program._engine._executables.values()[-1]


def assert_same(model: Model, *calls: Inputs, is_native: bool = True, exact: bool = False) -> Any:
    """Compare calls, each made three times, with the interpreter; returns the program."""
    program, reference = dovetail.compile(model, "native", threads=1), dovetail.compile(model, "interpreter")
    for inputs in (*calls, *calls):
        want = reference(inputs)
        for _ in range(3):
            found = program(inputs)
            assert list(found.keys()) == list(want.keys())
            for name, array in want.items():
                assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
                if exact:
                    np.testing.assert_array_equal(found[name], array)
                else:
                    np.testing.assert_allclose(found[name].astype(np.float64), array.astype(np.float64), rtol=2e-5, atol=2e-5)
        assert executable_of(program).is_native == is_native
    return program


# If


def choice(then_: Callable[[Builder, Any], Any], else_: Callable[[Builder, Any], Any], dtype: str = "f32") -> Model:
    def branch(rule: Callable[[Builder, Any], Any]) -> Graph:
        return graph_of(lambda inner: [rule(inner, inner.input("x", dtype, ("n", 4)))])

    with Builder() as b:
        c, x = b.input("c", "boolean", ()), b.input("x", dtype, ("n", 4))
        (y,) = b.add(If(then_branch=branch(then_), else_branch=branch(else_)), c, x)
        b.output("y", y)
    return b.model


def both(x: Array) -> list[Inputs]:
    return [{"c": np.array(True), "x": x}, {"c": np.array(False), "x": x}]


def rows(n: int = 3, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, 4)).astype(np.float32)


def test_if_takes_either_branch() -> None:
    model = choice(lambda b, x: b.Exp(x), lambda b, x: b.Add(b.Relu(x), x))
    program = assert_same(model, *both(rows()), *both(rows(1)), *both(rows(0)))
    assert {name.split()[0] for name in executable_of(program).names()} == {"if"}


def test_the_log_counts_steps_with_subgraphs_separately(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="dovetail"):
        dovetail.compile(choice(lambda b, x: b.Exp(x), lambda b, x: x), "native")(both(rows())[0])
    assert any("0 native steps, 1 subgraph step: If, 0 interpreter steps" in message for message in caplog.messages)


@pytest.mark.parametrize("dtype", ["f64", "f16", "i64", "i8", "boolean"])
def test_if_of_any_type(dtype: str) -> None:
    x = np.random.default_rng(2).integers(0, 2, (3, 4)).astype(dtypes.dtype(dtype).numpy)
    assert_same(choice(lambda b, x: b.Concat(x, x, axis=0), lambda b, x: b.Concat(x, x, axis=0), dtype), *both(x), exact=True)


def test_if_reads_and_writes_strided_operands() -> None:
    def branch(half: bool) -> Graph:
        def write(inner: Builder) -> list[Any]:
            x = inner.input("x", "f32", (4, "n"))
            return [inner.Multiply(x, 0.5) if half else inner.Sin(x)]

        return graph_of(write)

    with Builder() as b:
        c, x = b.input("c", "boolean", ()), b.input("x", "f32", ("n", 4))
        y = b.add(If(then_branch=branch(True), else_branch=branch(False)), c, b.Transpose(x, [1, 0]))[0]
        b.output("y", b.Concat(y, b.Transpose(b.Exp(x), [1, 0]), y, axis=1))
    assert_same(b.model, *both(rows(5)))


def test_a_branch_that_cannot_run_raises_only_where_it_is_taken() -> None:
    model = choice(lambda b, x: b.Relu(x), lambda b, x: b.MatMul(x, b.constant(np.ones((4, 4), np.float32))))
    wrong = choice(lambda b, x: b.Relu(x), lambda b, x: b.Gather(x, b.constant(np.array([0, 1, 2, 3])), axis=0))
    assert_same(model, *both(rows(3)))
    program, (taken, refused) = dovetail.compile(wrong, "native"), both(rows(3))
    np.testing.assert_array_equal(program(taken)["y"], np.maximum(taken["x"], 0))
    for _ in range(2):
        with pytest.raises(DovetailError) as raised:
            program(refused)
        assert "index" in raised.value.code
    np.testing.assert_array_equal(program(taken)["y"], np.maximum(taken["x"], 0))


def test_a_branch_that_never_runs_is_not_planned() -> None:
    program = dovetail.compile(choice(lambda b, x: b.Relu(x), lambda b, x: b.Exp(x)), "native")
    for _ in range(3):
        program(both(rows())[0])
    (name,) = executable_of(program).names()
    assert "not run yet" in name


def test_a_condition_that_sizes_decide_becomes_its_branch() -> None:
    def pick(inner: Builder) -> list[Any]:
        return [inner.Squeeze(inner.input("x", "f32", None), inner.constant(np.array([0])))]

    def keep(inner: Builder) -> list[Any]:
        return [inner.Identity(inner.input("x", "f32", None))]

    with Builder() as b:
        x = b.input("x", "f32", ("n", 4))
        is_one = b.Equal(b.Gather(b.Shape(x), b.constant(np.array(0)), axis=0), b.constant(np.array(1)))
        y = b.add(If(then_branch=graph_of(pick), else_branch=graph_of(keep)), is_one, x)[0]
        b.output("y", b.ReduceSum(b.Exp(y), b.constant(np.array([-1])), keepdims=False))
    program = dovetail.compile(b.model, "native")
    for n in (1, 3, 1, 2):
        data = rows(n)
        want = np.exp(data[0] if n == 1 else data).sum(-1)
        np.testing.assert_allclose(program(data)["y"], want, rtol=1e-5)
        assert executable_of(program).is_native
        assert not any(name.startswith("if") for name in executable_of(program).names())


# Loop


def random_loop(seed: int) -> tuple[Model, list[Inputs]]:
    """Return a loop of random states, scans, captures and conditions, and its inputs."""
    chance = random.Random(seed)
    rng = np.random.default_rng(seed)
    trips = chance.choice((0, 1, 2, 5, 33))
    width = chance.choice((1, 3, 4, 17))
    kind = chance.choice(("f32", "f32", "f64", "i64", "i32"))
    count = chance.randint(1, 3)
    scans = [(chance.randint(0, 1), chance.choice((1, 1, 2)), chance.random() < 0.3) for _ in range(chance.randint(0, 2))]
    collects = [(chance.randint(0, 1), chance.random() < 0.3) for _ in range(chance.randint(0, 2))]
    has_count = chance.random() < 0.6 or not scans
    exits = not collects and chance.random() < 0.4
    arrays: Inputs = {}

    def array(shape: tuple[int, ...]) -> Array:
        values = rng.standard_normal(shape) * 2 if kind.startswith("f") else rng.integers(-4, 5, shape)
        return values.astype(dtypes.dtype(kind).numpy)

    def body(inner: Builder) -> list[Any]:
        trip = inner.input("trip", "i64", ())
        states = [inner.input(f"s{i}", kind, (2, width)) for i in range(count)]
        parts = [inner.input(f"p{i}", kind, (size, width) if axis == 0 else (2, size)) for i, (axis, size, _) in enumerate(scans)]
        captures = [inner.input("c", kind, (2, width))]
        number = inner.Cast(trip, to=kind) if chance.random() < 0.5 else inner.constant(np.ones((), states[0].dtype.numpy))
        pool = [*states, *captures]
        for part in parts:
            reduced = inner.ReduceSum(part, inner.constant(np.array([0, 1])), keepdims=False)
            pool.append(inner.Add(states[0], reduced))
        news = []
        for state in states:
            other = chance.choice(pool)
            made = chance.choice(
                (
                    lambda state=state, other=other: inner.Add(inner.Multiply(other, 0.5 if kind.startswith("f") else 1), number),
                    lambda state=state, other=other: inner.Subtract(other, state),
                    lambda state=state, other=other: inner.Maximum(other, number),
                    lambda state=state, other=other: state,
                )
            )()
            is_new = made is not state
            low = inner.constant(np.array(-9, made.dtype.numpy))
            news.append(inner.Minimum(inner.Maximum(made, low), 9) if is_new else state)
        going: Any = inner.constant(ENDLESS)
        if exits:
            going = inner.Less(inner.ReduceMax(news[0], inner.constant(np.array([0, 1])), keepdims=False), 4)
        outs = [inner.Add(chance.choice(news), number) if chance.random() < 0.7 else chance.choice(news) for _ in collects]
        return [going, *news, *outs]

    graph = graph_of(body)
    with Builder() as b:
        trip_count = b.input("trips", "i64", ()) if has_count and chance.random() < 0.5 else None
        if trip_count is not None:
            arrays["trips"] = np.array(trips)
        elif has_count:
            trip_count = b.constant(np.array(trips))
        condition = b.input("go", "boolean", ()) if not collects and chance.random() < 0.5 else None
        if condition is not None:
            arrays["go"] = np.array(chance.random() < 0.8)
        values = []
        for i in range(count):
            arrays[f"s{i}"] = array((2, width))
            values.append(b.input(f"s{i}", kind, (2, width)))
        for i, (axis, size, _) in enumerate(scans):
            shape = (size * trips, width) if axis == 0 else (2, size * trips)
            if chance.random() < 0.3:
                arrays[f"p{i}"] = array(shape[::-1])
                values.append(b.Transpose(b.input(f"p{i}", kind, shape[::-1]), [1, 0]))
            else:
                arrays[f"p{i}"] = array(shape)
                values.append(b.input(f"p{i}", kind, shape))
        if chance.random() < 0.5:
            values.append(b.constant(array((2, width))))
        else:
            arrays["c"] = array((2, width))
            values.append(b.input("c", kind, (2, width)))
        loop = Loop(
            body=graph, carried=count, scan_inputs=tuple(scans), scan_outputs=tuple(collects), outputs=count + len(collects)
        )
        results = b.add(loop, trip_count, condition, *values)
        for i, y in enumerate(results):
            b.output(f"y{i}", b.Concat(y, y, axis=chance.randint(0, 1)) if i == 0 and chance.random() < 0.5 else y)
    second = {name: (-x if x.ndim else x) for name, x in arrays.items()}
    return b.model, [arrays, second]


@pytest.mark.parametrize("seed", range(80))
def test_random_loops(seed: int) -> None:
    model, calls = random_loop(seed)
    program, reference = dovetail.compile(model, "native", threads=1), dovetail.compile(model, "interpreter")
    for inputs in (*calls, *calls):
        want = reference(inputs)
        first = program(inputs)
        for _ in range(2):
            found = program(inputs)
            for name, expected in want.items():
                assert found[name].dtype == expected.dtype and found[name].shape == expected.shape
                assert found[name].tobytes() == first[name].tobytes()
                np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(0, 80, 4))
def test_random_loops_as_onnxruntime_runs_them(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model, calls = random_loop(seed)
    path = str(tmp_path / "loop.onnx")
    try:
        dovetail.save(model, path)
    except DovetailError as error:
        pytest.skip(error.code)
    program, oracle = dovetail.compile(model, "native", threads=1), runner("onnxruntime", path, 1)
    for inputs in calls:
        want = oracle.run(inputs)
        for _ in range(2):
            for name, expected in want.items():
                np.testing.assert_allclose(program(inputs)[name], expected, rtol=1e-4, atol=1e-4)


def countdown(limits: Limits | None = None, dtype: str = "i64") -> Model:
    """Adds 1 to a state until it reaches a bound, at most ``trips`` times."""

    def body(inner: Builder) -> list[Any]:
        inner.input("trip", "i64", ())
        x, bound = inner.input("x", dtype, ()), inner.input("bound", dtype, ())
        after = inner.Add(x, 1)
        return [inner.Less(after, bound), after]

    with Builder() as b:
        values = [b.input(name, dtype, ()) for name in ("x", "bound")]
        trips = b.input("trips", "i64", ())
        b.output("y", b.add(Loop(body=graph_of(body), carried=1), trips, None, *values)[0])
    model = b.model
    if limits is not None:
        model.limits = limits
    return model


def numbers(x: int, bound: int, trips: int) -> Inputs:
    return {"x": np.array(x), "bound": np.array(bound), "trips": np.array(trips)}


def test_a_loop_ends_by_count_or_condition() -> None:
    calls = [numbers(0, 7, 100), numbers(0, 7, 3), numbers(9, 7, 100), numbers(0, 7, 0), numbers(0, 7, -5), numbers(0, 900, 899)]
    assert_same(countdown(), *calls, exact=True)


@pytest.mark.parametrize("trips", [5, 100])
def test_the_limit_of_trips_counts_all_trips_of_a_run(trips: int) -> None:
    program = dovetail.compile(countdown(Limits(trips=trips)), "native")
    for _ in range(2):
        assert program(numbers(0, trips, 10 * trips))["y"] == trips
        with pytest.raises(EngineError) as raised:
            program(numbers(0, 10 * trips, 10 * trips))
        assert raised.value.code == "loop.trips"


def nested(limits: Limits | None = None) -> Model:
    """Return an inner loop of ``n`` trips in an outer one of ``m``."""

    def inner_body(inner: Builder) -> list[Any]:
        trip, x = inner.input("trip", "i64", ()), inner.input("x", "i64", ())
        return [inner.constant(ENDLESS), inner.Add(x, trip)]

    def outer_body(inner: Builder) -> list[Any]:
        inner.input("trip", "i64", ())
        x, n = inner.input("x", "i64", ()), inner.input("n", "i64", ())
        return [inner.constant(ENDLESS), inner.add(Loop(body=graph_of(inner_body), carried=1), n, None, x)[0]]

    with Builder() as b:
        x, m, n = (b.input(name, "i64", ()) for name in ("x", "m", "n"))
        b.output("y", b.add(Loop(body=graph_of(outer_body), carried=1), m, None, x, n)[0])
    model = b.model
    if limits is not None:
        model.limits = limits
    return model


def test_loops_in_loops() -> None:
    calls = [{"x": np.array(1), "m": np.array(m), "n": np.array(n)} for m in (0, 1, 4) for n in (0, 1, 5)]
    program = assert_same(nested(), *calls, exact=True)
    assert program({"x": np.array(0), "m": np.array(3), "n": np.array(4)})["y"] == 18


def test_the_limit_of_trips_counts_nested_loops() -> None:
    program = dovetail.compile(nested(Limits(trips=20)), "native")
    call = {"x": np.array(0), "m": np.array(4), "n": np.array(4)}
    for _ in range(3):
        assert program(call)["y"] == 24
        with pytest.raises(EngineError) as raised:
            program(call | {"n": np.array(5)})
        assert raised.value.code == "loop.trips"


def test_an_endless_loop_ends_at_the_time_limit() -> None:
    program = dovetail.compile(countdown(Limits(seconds=0.05, trips=1 << 40)), "native")
    for _ in range(2):
        start = time.monotonic()
        with pytest.raises(EngineError) as raised:
            program(numbers(0, 1 << 50, 1 << 50))
        assert raised.value.code == "run.time"
        assert time.monotonic() - start < 5
    assert program(numbers(0, 7, 100))["y"] == 7


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_a_signal_ends_a_long_loop(tmp_path: Path) -> None:
    """In a process of its own: after some runs of OpenVINO any signal ends the process."""
    dovetail.save(countdown(), tmp_path / "countdown.onnx")
    code = """
import signal, sys, numpy as np, dovetail
class Alarm(Exception): pass
def ring(*_): raise Alarm
limits = dovetail.Limits(trips=1 << 40)
program = dovetail.compile(dovetail.load(sys.argv[1], limits=limits), "native")
numbers = lambda bound: {"x": np.array(0), "bound": np.array(bound), "trips": np.array(bound)}
program(numbers(7))
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    program(numbers(1 << 50))
except Alarm:
    print(program(numbers(7))["y"])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "countdown.onnx")]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (found.returncode, found.stdout) == (0, "7\n"), found.stderr


def test_the_memory_of_a_body_counts() -> None:
    def body(inner: Builder) -> list[Any]:
        inner.input("trip", "i64", ())
        x = inner.input("x", "f32", (64,))
        wide = inner.MatMul(inner.Unsqueeze(x, [1]), inner.constant(np.ones((1, 4096), np.float32)))
        return [inner.constant(ENDLESS), inner.ReduceMax(wide, inner.constant(np.array([1])), keepdims=False)]

    with Builder() as b:
        x = b.input("x", "f32", (64,))
        b.output("y", b.add(Loop(body=graph_of(body), carried=1), b.constant(np.array(3)), None, x)[0])
    ones = np.ones(64, np.float32)
    model = b.model
    np.testing.assert_allclose(dovetail.compile(model, "native")(ones)["y"], ones)
    model.limits = Limits(memory=1 << 16)
    program = dovetail.compile(model, "native")
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            program(ones)
        assert raised.value.code == "run.memory"


# Errors


def lookup() -> Model:
    """Gathers entry ``trip`` of a table in each trip, doubled by an If where the state is large."""

    def double(inner: Builder) -> list[Any]:
        return [inner.Multiply(inner.input("y", "f32", ()), 2.0)]

    def keep(inner: Builder) -> list[Any]:
        return [inner.Identity(inner.input("y", "f32", ()))]

    def body(inner: Builder) -> list[Any]:
        trip = inner.input("trip", "i64", ())
        x, table = inner.input("x", "f32", ()), inner.input("table", "f32", (4,))
        y = inner.Add(x, inner.Gather(table, trip, axis=0))
        after = inner.add(If(then_branch=graph_of(double), else_branch=graph_of(keep)), inner.Greater(y, 3.0), y)[0]
        return [inner.constant(ENDLESS), after]

    with Builder() as b:
        x, table, trips = b.input("x", "f32", ()), b.input("table", "f32", (4,)), b.input("trips", "i64", ())
        b.output("y", b.add(Loop(body=graph_of(body), carried=1), trips, None, x, table)[0])
    return b.model


def test_a_step_of_a_body_that_fails_names_its_node() -> None:
    table = np.array([1, 2, 3, 4], np.float32)
    good = [{"x": np.float32(x).reshape(()), "table": table, "trips": np.array(trips)} for x in (0, 5) for trips in (0, 1, 4)]
    program = assert_same(lookup(), *good)
    bad = good[-1] | {"trips": np.array(6)}
    with pytest.raises(EngineError) as wanted:
        dovetail.compile(lookup(), "interpreter")(bad)
    for _ in range(3):
        with pytest.raises(EngineError) as raised:
            program(bad)
        assert (raised.value.code, raised.value.node) == (wanted.value.code, wanted.value.node)
        assert program(good[2])["y"] == dovetail.compile(lookup(), "interpreter")(good[2])["y"]


def test_a_body_with_steps_in_python_runs_in_python() -> None:
    def body(inner: Builder) -> list[Any]:
        inner.input("trip", "i64", ())
        x = inner.input("x", "f32", (3,))
        count = inner.ReduceSum(inner.Shape(inner.NonZero(x)), inner.constant(np.array([0])), keepdims=False)
        return [inner.constant(ENDLESS), inner.Add(x, inner.Cast(count, to="f32"))]

    with Builder() as b:
        x, trips = b.input("x", "f32", (3,)), b.input("trips", "i64", ())
        b.output("y", b.Exp(b.add(Loop(body=graph_of(body), carried=1), trips, None, b.Relu(x))[0]))
    x = np.array([0, -1, 0.5], np.float32)
    program = assert_same(b.model, {"x": x, "trips": np.array(2)}, {"x": -x, "trips": np.array(1)}, is_native=False)
    (step,) = executable_of(program).python_steps
    assert step[1] == "its subgraph is a separate program"
    facts = step_facts(executable_of(program), None)
    assert [fact.kernel for fact in facts if not fact.is_native] == ["CompiledLoop"]


def test_a_loop_around_steps_in_python_runs_in_python() -> None:
    def count(inner: Builder) -> list[Any]:
        y = inner.input("y", "f32", (3,))
        found = inner.ReduceSum(inner.Shape(inner.NonZero(y)), inner.constant(np.array([0])), keepdims=False)
        return [inner.Add(y, inner.Cast(found, to="f32"))]

    def keep(inner: Builder) -> list[Any]:
        return [inner.Exp(inner.input("y", "f32", (3,)))]

    def body(inner: Builder) -> list[Any]:
        trip, x = inner.input("trip", "i64", ()), inner.input("x", "f32", (3,))
        is_late = inner.Greater(trip, inner.constant(np.array(2)))
        y = inner.add(If(then_branch=graph_of(count), else_branch=graph_of(keep)), is_late, inner.Tanh(x))[0]
        return [inner.constant(ENDLESS), y]

    with Builder() as b:
        x, trips = b.input("x", "f32", (3,)), b.input("trips", "i64", ())
        b.output("y", b.add(Loop(body=graph_of(body), carried=1), trips, None, x)[0])
    x = np.array([0, -1, 0.5], np.float32)
    assert_same(b.model, {"x": x, "trips": np.array(2)})
    assert_same(b.model, {"x": x, "trips": np.array(6)}, is_native=False)


def test_states_that_grow_run_in_python() -> None:
    def body(inner: Builder) -> list[Any]:
        inner.input("trip", "i64", ())
        x = inner.input("x", "f32", (None,))
        return [inner.constant(ENDLESS), inner.Concat(x, x, axis=0)]

    with Builder() as b:
        x, trips = b.input("x", "f32", ("n",)), b.input("trips", "i64", ())
        b.output("y", b.add(Loop(body=graph_of(body), carried=1), trips, None, x)[0])
    program = dovetail.compile(b.model, "native")
    for trips in (0, 1, 3):
        found = program(np.ones(2, np.float32), np.array(trips))["y"]
        np.testing.assert_array_equal(found, np.ones(2 << trips, np.float32))


# Threads and memory


def test_many_threads_take_either_branch() -> None:
    model = choice(lambda b, x: b.Exp(x), lambda b, x: b.Relu(x))
    program = dovetail.compile(model, "native", threads=2)
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            chance = random.Random(seed)
            for _ in range(200):
                x, c = rows(chance.randint(1, 4), seed), chance.random() < 0.5
                want = np.exp(x) if c else np.maximum(x, 0)
                np.testing.assert_allclose(program(np.array(c), x)["y"], want, rtol=1e-5)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_constants_of_bodies_live_as_long_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable_cache, "MAX_PLAN_BYTES", 16 * executable_cache.STEP_BYTES)

    def body(inner: Builder) -> list[Any]:
        inner.input("trip", "i64", ())
        x = inner.input("x", "f32", ("n",))
        ramp = inner.Cast(inner.Range(0, inner.Squeeze(inner.Shape(x), [0]), 1), to="f32")
        return [inner.constant(ENDLESS), inner.Add(x, ramp)]

    with Builder() as b:
        x, trips = b.input("x", "f32", ("n",)), b.input("trips", "i64", ())
        b.output("y", b.add(Loop(body=graph_of(body), carried=1), trips, None, x)[0])
    program = dovetail.compile(b.model, "native")
    for _ in range(2):
        for n in range(1, 32):
            for _ in range(2):
                found = program(np.zeros(n, np.float32), np.array(3))["y"]
                np.testing.assert_array_equal(found, 3 * np.arange(n, dtype=np.float32))
