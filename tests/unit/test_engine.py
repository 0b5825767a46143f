"""The native engine as a user meets it: what goes in and out, memory, threads, errors, and what is shared with whom."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from typing import Any, Literal

import numpy as np
import pytest
import transformers

import dovetail
from dovetail.engine import engine as engine_run, planner
from dovetail.engine.engine import Engine
from dovetail.errors import EngineError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def small_net() -> Model:
    """Two branches joined, cut again, and added to the input."""
    with Builder("small") as b:
        x = b.input("x", "f32", ("n", 4, 6, 6))
        left = b.Relu(b.Conv(x, b.constant(RNG.standard_normal((3, 4, 3, 3)).astype(np.float32)), pads=(1, 1, 1, 1)))
        right = b.Conv(x, b.constant(RNG.standard_normal((5, 4, 1, 1)).astype(np.float32)))
        joined = b.Concat(left, right, axis=1)
        first, second = b.Split(joined, outputs=2, axis=1)
        b.output("sum", first + second + x)
        b.output("joined", joined)
        b.output("left", left)
    return b.model


def images(n: int = 2) -> np.ndarray[Any, Any]:
    return RNG.standard_normal((n, 4, 6, 6)).astype(np.float32)


def assert_agrees(found: dict[str, Any], want: dict[str, Any]) -> None:
    assert list(found.keys()) == list(want.keys())
    for name, array in want.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)


def test_the_native_engine_is_the_default() -> None:
    assert dovetail.compile(small_net()).engine == ("native" if native_core.is_compiled else "interpreter")


@pytest.mark.parametrize("elide", ["auto", "all", "none"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_native_engine_gives_the_results_of_the_interpreter(elide: str, threads: int) -> None:
    model = small_net()
    program = dovetail.compile(model, "native", threads=threads, elide=elide)
    reference = dovetail.compile(model, "interpreter")
    for n in (1, 3, 2, 0, 3):
        x = images(n)
        assert_agrees(program(x), reference(x))


def test_every_run_gives_the_same_bits() -> None:
    x = images(3)
    program = dovetail.compile(small_net(), threads=2)
    first = program(x)
    for _ in range(20):
        again = program(x)
        assert all(first[name].tobytes() == again[name].tobytes() for name in first.keys())


def test_inputs_of_any_strides_are_read_without_a_copy() -> None:
    model = small_net()
    program = dovetail.compile(model)
    x = images(4)
    want = program(x)
    wide = np.zeros((4, 8, 6, 12), np.float32)
    wide[:, ::2, ::-1, 1::2] = x
    for same in (
        wide[:, ::2, ::-1, 1::2],
        np.asfortranarray(x),
        np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    ):
        assert np.array_equal(same, x)
        assert_agrees(program(same), want)


def test_a_result_shares_memory_with_nothing() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (4, 6))
        b.output("same", b.Identity(x))
        first, second = b.Split(x, outputs=2, axis=0)
        b.output("first", first)
        b.output("second", second)
        b.output("again", first)
        b.output("joined", b.Concat(second, first, axis=0))
        b.output("constant", b.constant(np.arange(3.0)))
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    program = dovetail.compile(b.model)
    found = program(x)
    assert_agrees(found, dovetail.compile(b.model, "interpreter")(x))
    arrays = [x, *found.values(), *program(x).values()]
    for place, array in enumerate(arrays):
        assert not any(np.may_share_memory(array, other) for other in arrays[:place])
        array[...] = 7
    assert program(np.zeros((4, 6), np.float32))["constant"].tolist() == [0, 1, 2]


def test_results_are_written_into_the_arrays_that_out_names() -> None:
    model = small_net()
    program = dovetail.compile(model)
    x = images()
    want = program(x)
    orders: tuple[Literal["C", "F"], ...] = ("C", "F")
    for order in orders:
        joined = np.empty((2, 8, 6, 6), np.float32, order=order)
        found = program(x, out={"joined": joined})
        assert found["joined"] is joined
        assert_agrees(found, want)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_out_of_a_shape_known_at_run_time_is_written(engine: str) -> None:
    b = Builder()
    b.output("y", b.NonZero(b.input("x", "f32", (4,))))
    program = dovetail.compile(b.model, engine)
    out = np.zeros((1, 2), np.int64)
    found = program(np.float32([0, 1, 0, 2]), out={"y": out})
    assert found["y"] is out and out.tolist() == [[1, 3]]
    with pytest.raises(EngineError) as caught:
        program(np.float32([1, 1, 0, 2]), out={"y": out})
    assert caught.value.code == "output.array"


def test_out_may_overlap_an_input() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (6,))
        b.output("y", b.Concat(x[3:], x[:3], axis=0))
    data = np.arange(6, dtype=np.float32)
    dovetail.compile(b.model)(data, out={"y": data})
    assert data.tolist() == [3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_out_arrays_may_not_overlap_each_other(engine: str) -> None:
    program = dovetail.compile(small_net(), engine)
    whole = np.zeros((2, 7, 6, 6), np.float32)
    with pytest.raises(EngineError) as caught:
        program(images(), out={"sum": whole[:, :4], "left": whole[:, 3:6]})
    assert caught.value.code == "output.array"
    x = images()
    found = program(x, out={"sum": whole[:, :4], "left": whole[:, 4:]})
    assert_agrees({name: np.array(found[name]) for name in ("sum", "left")}, {name: program(x)[name] for name in ("sum", "left")})


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize(
    ("out", "code"),
    [
        ({"nothing": np.zeros(3)}, "output.unknown"),
        ({"left": np.zeros((2, 3, 6, 6))}, "output.array"),
        ({"left": np.zeros((2, 3, 6, 7), np.float32)}, "output.array"),
        ({"left": [1.0]}, "output.array"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(engine: str, out: dict[str, Any], code: str) -> None:
    with pytest.raises(EngineError) as caught:
        dovetail.compile(small_net(), engine)(images(), out=out)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "input.missing"),
        ({"x": np.zeros((1, 4, 6, 6), np.float32), "y": np.zeros(3)}, "input.unknown"),
        ({"x": np.zeros((1, 4, 6, 6))}, "input.dtype"),
        ({"x": np.zeros((1, 5, 6, 6), np.float32)}, "input.shape"),
        ({"x": np.zeros((1, 4, 6), np.float32)}, "input.shape"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_and_the_program_still_runs(given: dict[str, Any], code: str) -> None:
    program = dovetail.compile(small_net())
    with pytest.raises(EngineError) as caught:
        program(given)
    assert caught.value.code == code
    assert program(images())["left"].shape == (2, 3, 6, 6)


def test_a_failing_operator_is_named_and_the_program_still_runs() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (4,))
        index = b.input("index", "i64", (1,))
        b.output("y", b.Gather(x, index, axis=0))
    program = dovetail.compile(b.model)
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(dovetail.DovetailError):
        program(x, np.array([9]))
    assert program(x, np.array([2]))["y"].tolist() == [2]


def test_memory_beyond_the_limit_is_refused_before_allocation() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n",))
        y = b.Exp(b.Expand(x, b.constant(np.array([1 << 20, 1]))))
        b.output("y", b.ReduceSum(y, [0]))
    program = dovetail.compile(b.model, "native", limits=dovetail.Limits(memory=1 << 26))
    assert program(np.zeros(2, np.float32))["y"].shape == (1, 2)
    with pytest.raises(EngineError) as caught:
        program(np.zeros(1 << 20, np.float32))
    assert caught.value.code == "run.memory"


def test_options_that_mean_nothing_are_refused() -> None:
    for options, code in (({"threads": 0}, "argument.value"), ({"elide": "some"}, "argument.value")):
        with pytest.raises(EngineError) as caught:
            dovetail.compile(small_net(), "native", **options)
        assert caught.value.code == code
    with pytest.raises(EngineError) as caught:
        dovetail.compile(small_net(), "warp")
    assert caught.value.code == "argument.value"


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_THREADS", "3")
    assert Engine(small_net()).threads == 3
    assert Engine(small_net(), threads=2).threads == 2


def test_a_pickle_holds_model_and_options() -> None:
    program = dovetail.compile(small_net(), threads=1, elide="none")
    again = pickle.loads(pickle.dumps(program))
    x = images()
    assert again.options == program.options
    assert_agrees(again(x), program(x))


def test_several_threads_may_call_one_program() -> None:
    program = dovetail.compile(small_net(), threads=2)
    inputs = [images(1 + number % 3) for number in range(24)]
    want = [program(x) for x in inputs]
    found: list[Any] = [None] * len(inputs)

    def work(first: int) -> None:
        for number in range(first, len(inputs), 4):
            found[number] = program(inputs[number])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, theirs in zip(found, want, strict=True):
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs.keys())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_program_survives_a_fork() -> None:
    program = dovetail.compile(small_net(), threads=2)
    x = images()
    want = program(x)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(program(x)["sum"]))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    np.testing.assert_array_equal(queue.get(), want["sum"])
    assert_agrees(program(x), want)


def test_a_length_that_grows_is_planned_each_time_and_few_plans_are_kept() -> None:
    with Builder() as b:
        cache = b.input("cache", "f32", (2, "length", 4))
        new = b.input("new", "f32", (2, 1, 4))
        b.output("next", b.Concat(cache, new, axis=1))
    program = dovetail.compile(b.model)
    rows = np.zeros((2, 0, 4), np.float32)
    for step in range(40):
        rows = program(rows, np.full((2, 1, 4), step, np.float32))["next"]
    assert rows[1, :, 2].tolist() == list(range(40))


GROWING_CACHE = """
import gc
import numpy as np
import dovetail
with dovetail.Builder() as b:
    cache = b.input("cache", "f32", (2, "length", 4))
    b.output("next", b.Relu(b.Concat(cache, b.input("new", "f32", (2, 1, 4)), axis=1)))
program = dovetail.compile(b.model)
cache, new = np.zeros((2, 0, 4), np.float32), np.ones((2, 1, 4), np.float32)
# Plans are made for sizes up to 65, 131 and so on.
for step in range(110):
    if step == 70:
        gc.collect()
        gc.disable()
    cache = program(cache, new)["next"]
print(gc.collect())
"""


def test_a_length_that_grows_leaves_nothing_to_the_collector_of_cycles() -> None:
    # A process of its own: threads of other tests drop their objects whenever they end.
    found = subprocess.run([sys.executable, "-c", GROWING_CACHE], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 40 or not native_core.is_compiled


def test_a_decoder_may_grow_its_cache_without_planning_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformers.decoder(layers=2, width=64, heads=4, inner=96)
    program, reference = dovetail.compile(model), dovetail.compile(model, "interpreter")
    names = [value.name for value in model.inputs]
    feed = {name: RNG.standard_normal((4, 1, 16) if "_" in name else (1, 16)).astype(np.float32) for name in names}
    feed["x"] = RNG.standard_normal((1, 1, 64)).astype(np.float32)
    made: list[int] = []
    original = planner.make_plan
    monkeypatch.setattr(engine_run, "make_plan", lambda *args: made.append(1) or original(*args))
    for step in range(30):
        found, want = program(feed), reference(feed)
        for name, array in want.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4, err_msg=f"{name} after {step} steps")
        feed |= {name.removesuffix("_next"): array for name, array in found.items() if name != "y"}
    if native_core.is_compiled:
        assert len(made) < 5


def test_sizes_that_are_no_straight_line_are_planned_each() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n", "n", 3))
        b.output("flat", b.Concat(b.Reshape(x, [-1, 3]), b.constant(np.ones((1, 3), np.float32)), axis=0))
        b.output("half", b.MaxPool(b.Transpose(x, [2, 0, 1]), kernel_shape=(2,), strides=(2,)))
    program, reference = dovetail.compile(b.model), dovetail.compile(b.model, "interpreter")
    for n in (2, 3, 4, 5, 9, 8, 17):
        x = RNG.standard_normal((n, n, 3)).astype(np.float32)
        assert_agrees(program(x), reference(x))


def test_a_size_at_which_other_buffers_live_is_planned_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapped border of one row is one copy more where the tensor has two rows: offsets of other sizes do not hold."""
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    draw = np.random.default_rng(0)
    with Builder("m") as b:
        x = b.Conv(b.input("x", "f32", ("n", 20, 17)), draw.standard_normal((20, 20, 1)).astype(np.float32))
        y = b.Mish(x)
        wrapped = b.Pad(y, [1, 0, 0, 0, 0, 0], mode="wrap")
        lrn = b.LRN(x, size=5, alpha=0.5)
        b.output("wrapped", b.Conv(b.Swish(wrapped), draw.standard_normal((20, 20, 3)).astype(np.float32), pads=(1, 1)))
        b.output("lrn", lrn)
        b.output("y", y)
    program = dovetail.compile(b.model)
    for n in (3, 2, 3, 5, 4, 1, 7):
        given = {"x": draw.standard_normal((n, 20, 17)).astype(np.float32)}
        for name, want in dovetail.interpret(b.model, given).items():
            np.testing.assert_allclose(program(given)[name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_factors_and_summands_of_channels_are_folded_into_weights(group: int) -> None:
    weights = RNG.standard_normal((8, 4 // group, 3, 3)).astype(np.float32)

    def numbers() -> np.ndarray[Any, Any]:
        return RNG.standard_normal((8, 1, 1)).astype(np.float32)

    with Builder() as b:
        x = b.input("x", "f32", ("n", 4, 6, 6))
        w = b.constant(weights)
        # Two that read the same weights, and multiply them by different numbers.
        for name in ("first", "second"):
            bias = b.constant(RNG.standard_normal(8).astype(np.float32)) if name == "second" else None
            y = b.Conv(x, w, bias, group=group, pads=(1, 1, 1, 1))
            for value in (numbers(), np.float32(1.5).reshape(1, 1, 1, 1), numbers()):
                y = b.Add(b.Multiply(b.constant(value), y), b.constant(numbers()))
            b.output(name, b.Relu(y))
    x = images()
    found = dovetail.compile(b.model)(x)
    for name, want in dovetail.compile(b.model, "interpreter")(x).items():
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-4)
    if native_core.is_compiled:
        assert [step.kernel for step in Engine(b.model).plan()[0].steps if step.kernel != "copy"] == ["conv", "conv"]


def test_a_compiled_model_stores_its_weights_once() -> None:
    """The packed weights of the core are not counted here."""
    with Builder() as b:
        y = b.input("x", "f32", (1, 64, 4, 4))
        statistics = [b.constant(np.abs(RNG.standard_normal(64)).astype(np.float32)) for _ in range(4)]
        for _ in range(16):
            w = b.constant(RNG.standard_normal((64, 64, 3, 3)).astype(np.float32))
            y = b.Relu(b.BatchNormalization(b.Conv(y, w, pads=(1, 1, 1, 1)), *statistics))
        b.output("y", y)
    x = np.zeros((1, 64, 4, 4), np.float32)
    weights = sum(value.constant.nbytes for value in b.model.graph.values() if value.constant is not None)
    Engine(b.model).bind([x])
    tracemalloc.start()
    engine = Engine(b.model)
    engine.bind([x])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < weights / 4


@pytest.mark.skipif(not native_core.is_compiled, reason="there is no native core")
def test_plans_of_one_model_work_in_the_same_memory() -> None:
    engine = Engine(small_net(), threads=1)
    bounds = [engine.bind({"x": images(n)})[0] for n in (80, 3, 5)]
    arrays = [[images(n)] for n in (80, 3, 5)]
    names = ["sum", "joined", "left"]
    places = [bound.create_context(array, None, names).execution.arena for bound, array in zip(bounds, arrays, strict=True)]
    assert len(set(places)) == 1
    # Two calls at one time have memory of their own.
    first, second = (bound.create_context(array, None, names) for bound, array in zip(bounds[:2], arrays, strict=False))
    assert first.execution.arena != second.execution.arena


def test_a_step_of_sizes_known_at_run_time_runs_in_python() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n",))
        places = b.NonZero(x, output_type=dovetail.ir.dtypes.i64)
        b.output("found", b.Relu(b.Gather(x, b.Squeeze(places, [0]), axis=0)))
    x = np.array([0, 3, -1, 0, 5], np.float32)
    assert dovetail.compile(b.model)(x)["found"].tolist() == [3, 0, 5]


def test_movement_between_native_steps_costs_nothing() -> None:
    plan, _ = Engine(small_net()).plan({"x": (1, 4, 6, 6)})
    assert plan.moved_bytes > 0
    # `left` and `joined` are outputs, each with a buffer of its own.
    assert all("output" in step.reason for step in plan.steps if step.kernel == "copy")
    assert plan.arena_bytes <= plan.activation_bytes


def test_a_constant_output_is_not_written() -> None:
    with Builder() as b:
        x = b.input("x", "i64", (1,))
        first, known = b.Split(b.Pad(x, [0, 1]), [1, 1], outputs=2)
        b.output("first", first)
        b.output("known", known)
    program = dovetail.compile(b.model, "native")
    for number in (3, 5):
        found = program(np.array([number]))
        assert (found["first"].tolist(), found["known"].tolist()) == ([number], [0])


def test_a_copy_is_kept_where_reading_through_strides_is_slower() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (8, 16, 16, 16))
        b.output("y", b.Softmax(b.Transpose(b.Relu(x), [0, 2, 3, 1]), axis=-1))
    for elide, copies in (("auto", 1), ("all", 0), ("none", 1)):
        plan, _ = Engine(b.model, elide=elide).plan()
        reasons = [step.reason for step in plan.steps if step.kernel == "copy"]
        assert len(reasons) == copies
        assert elide != "auto" or "reads a dense copy faster" in reasons[0]


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
def test_nothing_is_copied_where_branches_are_joined_and_read() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (1, 3, 16, 16))
        weights = [b.constant(RNG.standard_normal((8, channels, 1, 1)).astype(np.float32)) for channels in (3, 8, 16)]
        y = b.Conv(x, weights[0])
        y = b.Concat(y, b.Conv(y, weights[1]), axis=1)
        y = b.Concat(y, b.Conv(y, weights[2]), axis=1)
        b.output("y", b.GlobalAveragePool(b.Relu(y)))
    plan, _ = Engine(b.model).plan()
    assert plan.copied_bytes == 0
    assert plan.moved_bytes > 0
