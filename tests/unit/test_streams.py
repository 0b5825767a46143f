"""Program.map: many calls at a time, with the results and errors of single calls in order."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import EngineError
from dovetail.ir.state import State
from dovetail.runtime import streams

STREAMS = ["auto", 1, 2, 3, 8]


def layered(engine: str = "native", threads: int = 2) -> dovetail.Program:
    """Products and convolutions over an open number of rows."""
    generator = np.random.default_rng(0)
    with dovetail.Builder("layered") as b:
        x = b.input("x", "f32", ("n", 48))
        for size in (64, 96, 32):
            weights = generator.standard_normal((x.shape[1], size)).astype("f4")
            x = b.Relu(b.MatMul(x, b.constant(weights)))
        b.output("y", b.Softmax(x, axis=1))
        b.output("total", b.ReduceSum(x, b.constant([1]), keepdims=False))
    return dovetail.compile(b.model, engine, threads=threads) if engine == "native" else dovetail.compile(b.model, engine)


def items(count: int, rows: int | None = None) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal((rows or 1 + index % 5, 48)).astype("f4") for index in range(count)]


@pytest.fixture(params=[False, True], ids=["as measured", "threads"])
def always(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as "auto" decides, and once as if every call were long."""
    if request.param:
        monkeypatch.setattr(streams, "MIN_SECONDS", 0.0)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("count", STREAMS)
@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_results_are_those_of_single_calls_bit_for_bit_and_in_order(engine: str, count: Any) -> None:
    program = layered(engine)
    feed = items(40)
    found = list(program.map(feed, streams=count))
    assert len(found) == len(feed)
    for item, results in zip(feed, found, strict=True):
        assert isinstance(results, type(program(item)))
        for name, array in program(item).items():
            assert array.tobytes() == results[name].tobytes()


def test_an_item_has_any_form_of_the_inputs_of_a_call() -> None:
    program = layered()
    x = items(1)[0]
    for results in program.map([x, {"x": x}, [x], (x,), x[::1], np.asfortranarray(x)], streams=2):
        np.testing.assert_array_equal(results["y"], program(x)["y"])


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("count", STREAMS)
def test_an_error_is_raised_in_order_and_ends_the_iteration(count: Any) -> None:
    program = layered()
    feed: list[Any] = items(9)
    feed[6] = np.zeros((2, 5), "f4")
    with pytest.raises(EngineError) as single:
        program(feed[6])
    results = program.map(feed, streams=count)
    for item in feed[:6]:
        np.testing.assert_array_equal(next(results)["y"], program(item)["y"])
    with pytest.raises(EngineError) as error:
        next(results)
    assert error.value.code == single.value.code
    assert list(results) == []


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("count", STREAMS)
def test_an_error_of_the_iterable_is_raised_after_the_results_before_it(count: Any) -> None:
    def source() -> Iterator[Any]:
        yield from items(5)
        raise LookupError("no more")

    results = layered().map(source(), streams=count)
    assert len([next(results) for _ in range(5)]) == 5
    with pytest.raises(LookupError, match="no more"):
        next(results)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("count", STREAMS)
def test_an_endless_iterable_is_read_no_further_than_the_streams_need(count: Any) -> None:
    taken = 0

    def source() -> Iterator[Any]:
        nonlocal taken
        while True:
            taken += 1
            yield x

    x = items(1)[0]
    results: Any = layered().map(source(), streams=count)
    assert taken == 0
    for index in range(1, 20):
        next(results)
        assert index <= taken < index + streams.ITEMS_PER_STREAM * (2 if count == "auto" else count)
    results.close()


@pytest.mark.parametrize("count", [2, 4])
def test_closing_the_iterator_ends_its_threads(count: int) -> None:
    before = threading.active_count()
    results: Any = layered().map(itertools.repeat(items(1, 64)[0]), streams=count)
    next(results)
    assert threading.active_count() > before
    results.close()
    assert threading.active_count() == before
    assert list(results) == []


def test_items_are_read_in_the_thread_of_the_iterator() -> None:
    own = threading.get_ident()

    def source() -> Iterator[Any]:
        for item in items(8):
            assert threading.get_ident() == own
            yield item

    assert len(list(layered().map(source(), streams=3))) == 8


def test_as_many_calls_run_at_a_time_as_there_are_streams() -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def call(item: int) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return item

    assert list(streams.map_concurrently(call, range(30), 3)) == list(range(30))
    assert most == 3


class Meeting:
    """A call that returns once as many calls as it says run at a time, and notes its threads; it fails if they never do."""

    def __init__(self, calls: int) -> None:
        self.barrier = threading.Barrier(calls, timeout=60)
        self.threads: set[int] = set()

    def __call__(self, item: Any) -> Any:
        self.threads.add(threading.get_ident())
        self.barrier.wait()
        return item


def test_long_calls_run_at_a_time_from_the_first_item_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MIN_SECONDS", 0)
    call, call_time = Meeting(3), streams.CallTime()
    for _ in range(2):
        assert list(streams.map_adaptive(call, range(3), 3, call_time)) == [0, 1, 2]
    assert threading.get_ident() not in call.threads


def test_short_calls_run_in_the_thread_of_the_caller_once_they_are_known_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    call_time, here = streams.CallTime(), threading.get_ident()
    first, second, third = Meeting(1), Meeting(1), Meeting(2)
    monkeypatch.setattr(streams, "MIN_SECONDS", float("inf"))
    assert list(streams.map_adaptive(first, range(20), 2, call_time)) == list(range(20))
    assert here in first.threads and len(first.threads) > 1
    assert list(streams.map_adaptive(second, range(20), 2, call_time)) == list(range(20))
    assert second.threads == {here}
    monkeypatch.setattr(streams, "MIN_SECONDS", 0)
    assert list(streams.map_adaptive(third, range(40), 2, call_time)) == list(range(40))
    assert here not in third.threads


def test_short_calls_among_long_ones_keep_their_places() -> None:
    feed = [0.0 if index % 3 else 0.004 for index in range(80)]
    called: list[float] = []

    def call(seconds: float) -> Any:
        called.append(seconds)
        time.sleep(seconds)
        return seconds

    assert list(streams.map_adaptive(call, feed, 2, streams.CallTime())) == feed
    assert len(called) == len(feed)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "all", None])
def test_streams_are_auto_or_a_number(count: Any) -> None:
    with pytest.raises(EngineError) as error:
        layered().map([], streams=count)
    assert error.value.code == "argument.value"


@pytest.mark.parametrize("count", STREAMS)
def test_an_empty_iterable_gives_no_results(count: Any) -> None:
    assert list(layered().map([], streams=count)) == []


def test_a_model_with_states_is_refused() -> None:
    with dovetail.Builder("counter") as b:
        x, state = b.input("x", "f32", (2,)), b.input("state", "f32", (2,))
        total = x + state
        b.output("y", total)
        b.output("next", b.Identity(total))
    model = b.model
    model.states = [State("total", "state", "next")]
    with pytest.raises(EngineError) as error:
        dovetail.compile(model).map([])
    assert error.value.code == "program.states"


@pytest.mark.parametrize("count", STREAMS)
def test_a_closed_program_refuses_items(count: Any) -> None:
    program = layered()
    results = program.map(itertools.repeat(items(1)[0]), streams=count)
    next(results)
    program.close()
    with pytest.raises(EngineError) as error:
        for _ in range(64):
            next(results)
    assert error.value.code == "program.closed"
