"""Program.batcher: calls of threads and tasks that run together, with the results of the joined batch and errors of their own."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError, EngineError, UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.state import State
from dovetail.runtime.batcher import Batcher
from row_models import expected, lookup

Array = np.ndarray[Any, Any]
HOUR = 3_600_000
"""A wait in milliseconds that no test ends: the batches of such a batcher are those that are full."""


def texts(engine: str = "native", threads: int = 2) -> dovetail.Program:
    """Rows of open length: a table, a product over each token, and the mean of the tokens.

    A product of at least 4 rows has the same bits for any number of rows; lengths of 4 and more have the bits of single calls.
    """
    chance = np.random.default_rng(0)
    with dovetail.Builder("texts") as b:
        ids = b.input("ids", "i64", ("batch", "length"))
        y = b.Gather(b.constant(chance.standard_normal((100, 48)).astype("f4")), ids, axis=0)
        y = b.Relu(b.MatMul(y, b.constant(chance.standard_normal((48, 64)).astype("f4"))))
        b.output("tokens", y)
        b.output("scores", b.Softmax(b.ReduceMean(y, [1], keepdims=False), axis=1))
    return dovetail.compile(b.model, engine, threads=threads)


def ids_of(*lengths: int, rows: int = 1) -> list[Array]:
    chance = np.random.default_rng(1)
    return [chance.integers(0, 100, (rows, length)) for length in lengths]


def gather(batcher: Batcher, items: list[Any]) -> list[Any]:
    """Call the batcher in one task for each item, in order. An error is returned in place of its results."""

    async def main() -> list[Any]:
        return await asyncio.gather(*map(batcher.call, items), return_exceptions=True)

    return asyncio.run(main())


def in_threads(batcher: Batcher, items: list[Any]) -> list[Any]:
    """Call the batcher in one thread for each item. An error is returned in place of its results."""

    def call(item: Any) -> Any:
        try:
            return batcher(item)
        except DovetailError as error:
            return error

    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(call, items))


WAYS = pytest.mark.parametrize("run", [gather, in_threads])
Run = Callable[[Batcher, list[Any]], list[Any]]


def equal(first: Any, second: Any) -> bool:
    return list(first.keys()) == list(second.keys()) and all(
        array.shape == second[name].shape and array.tobytes() == second[name].tobytes() for name, array in first.items()
    )


def codes(results: list[Any]) -> list[str | None]:
    return [getattr(result, "code", None) for result in results]


@WAYS
@pytest.mark.parametrize(("engine", "threads"), [("native", 1), ("native", 2), ("interpreter", 1)])
def test_results_are_the_rows_of_the_joined_batch_bit_for_bit(run: Run, engine: str, threads: int) -> None:
    program = texts(engine, threads)
    items = ids_of(*[7] * 6)
    joined = program(np.concatenate(items))
    with program.batcher(wait_ms=HOUR, max_batch=6) as batcher:
        results = run(batcher, items)
        assert batcher.statistics[:3] == (6, 6, 1)
    for index, result in enumerate(results):
        assert isinstance(result, type(joined))
        assert equal(result, type(joined)({name: array[index : index + 1] for name, array in joined.items()}))
    bases = {id(result["tokens"].base) for result in results}
    assert len(bases) == 1 and not np.shares_memory(results[0]["tokens"], results[1]["tokens"])


def test_results_are_those_of_onnxruntime_for_the_joined_batch(tmp_path: Path) -> None:
    path = lookup(tmp_path)
    items = [np.random.default_rng(index).integers(0, 7, (1, 2)) for index in range(5)]
    with dovetail.compile(path).batcher(wait_ms=HOUR, max_batch=5) as batcher:
        found = np.concatenate([result["y"] for result in gather(batcher, items)])
    np.testing.assert_array_equal(found, expected(path, {"i": np.concatenate(items)})["y"])


@WAYS
def test_requests_of_equal_sizes_run_together_and_others_apart(run: Run) -> None:
    program = texts(threads=1)
    items = ids_of(*[4, 9, 30] * 4)
    with program.batcher(wait_ms=HOUR, max_batch=4) as batcher:
        results = run(batcher, items)
        assert batcher.statistics[:3] == (12, 12, 3)
    assert all(equal(result, program(item)) for result, item in zip(results, items, strict=True))


@WAYS
def test_requests_may_have_several_rows(run: Run) -> None:
    program = texts()
    items = [ids_of(5, rows=rows)[0] for rows in (1, 3, 2, 0, 5, 9)]
    with program.batcher(wait_ms=20, max_batch=4) as batcher:
        results = run(batcher, items)
        assert batcher.statistics[:2] == (6, 20)
    assert all(equal(result, program(item)) for result, item in zip(results, items, strict=True))


def test_a_batch_holds_no_more_rows_than_the_symbol_allows() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", (symbolic.symbol("n", 0, 3), 2))))
    batcher = dovetail.compile(b.model).batcher(wait_ms=HOUR, max_batch=1000)
    results = gather(batcher, [np.full((1, 2), value, np.float32) for value in range(9)])
    assert [result["y"][0, 0] for result in results] == [*range(9)]
    assert batcher.statistics.runs == 3


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i8", "u64", "bool", "string", "u4"])
def test_rows_of_every_kind_of_type_are_joined(dtype: str) -> None:
    with dovetail.Builder() as b:
        x, other = b.input("x", dtype, ("n", 2, 3)), b.input("other", dtype, ("n", 2, 1))
        b.output("y", b.Concat(x, other, axis=2))
    kind = b.model.inputs[0].dtype.numpy
    chance = np.random.default_rng(0)
    arrays = [chance.integers(0, 2, (1, 2, size)) for _ in range(4) for size in (3, 1)]
    texts = [array.astype(str).astype(object) if dtype == "string" else array.astype(kind) for array in arrays]
    items = [{"x": x, "other": other} for x, other in zip(texts[::2], texts[1::2], strict=True)]
    with dovetail.compile(b.model).batcher(wait_ms=HOUR, max_batch=4) as batcher:
        results = gather(batcher, items)
        assert batcher.statistics.runs == 1
    for item, result in zip(items, results, strict=True):
        np.testing.assert_array_equal(result["y"], np.concatenate([item["x"], item["other"]], axis=2))


def test_each_request_gets_its_maps_of_a_classifier() -> None:
    with dovetail.Builder() as b:
        b.output("maps", b.ZipMap(b.Softmax(b.input("x", "f32", ("n", 3)), axis=1), classlabels_int64s=[3, 5, 8]))
    program = dovetail.compile(b.model)
    items = [np.random.default_rng(index).standard_normal((1, 3)).astype("f4") for index in range(4)]
    with program.batcher(wait_ms=HOUR, max_batch=4) as batcher:
        results = gather(batcher, items)
    assert [result["maps"][0] for result in results] == program(np.concatenate(items))["maps"]


def test_inputs_are_passed_as_to_a_program() -> None:
    program = texts()
    (ids,) = ids_of(4)
    with program.batcher(wait_ms=0) as batcher:
        for results in (batcher(ids), batcher([ids]), batcher({"ids": ids}), batcher(ids=ids), batcher(ids.tolist())):
            assert equal(results, program(ids))


@WAYS
def test_wrong_inputs_are_errors_of_their_request_alone(run: Run) -> None:
    (good,) = ids_of(4)
    wrong = [good.astype("f4"), good[0], {"id": good}, {}, [[1, 2], [3]]]
    with texts().batcher(wait_ms=HOUR, max_batch=2) as batcher:
        found = codes(run(batcher, [good, *wrong, good]))
        assert batcher.statistics[:3] == (2, 2, 1)
    assert found[0] is found[-1] is None
    assert found[1:-1] == ["input.dtype", "input.shape", "input.unknown", "input.missing", "input.type"]


def test_inputs_of_a_request_have_one_number_of_rows() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Concat(b.input("x", "f32", ("n", 2)), b.input("z", "f32", ("n", 2)), axis=1))
    batcher = dovetail.compile(b.model).batcher()
    with pytest.raises(EngineError) as error:
        batcher(np.ones((1, 2), "f4"), np.ones((2, 2), "f4"))
    assert error.value.code == "input.shape"


@WAYS
def test_an_error_of_one_request_does_not_reach_the_others(run: Run, tmp_path: Path) -> None:
    program = dovetail.compile(lookup(tmp_path))
    items = [np.array([[value, 0]]) for value in (1, 99, 3, -50)]
    with pytest.raises(DovetailError) as alone:
        program(items[1])
    with program.batcher(wait_ms=HOUR, max_batch=4) as batcher:
        results = run(batcher, items)
        assert batcher.statistics[:3] == (4, 4, 5)
    assert codes(results) == [None, alone.value.code, None, alone.value.code]
    assert all(equal(results[index], program(items[index])) for index in (0, 2))


@WAYS
def test_rows_that_depend_on_each_other_are_refused(run: Run) -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 2))
        b.output("y", b.Subtract(x, b.ReduceMean(x, [0], keepdims=True)))
    items = [np.full((1, 2), value, np.float32) for value in (1, 5, 7)]
    with dovetail.compile(b.model).batcher(wait_ms=HOUR, max_batch=3) as batcher:
        results = run(batcher, items)
        assert codes(results) == ["batch.rows"] * 3
        assert len({id(result) for result in results}) == 3
        assert codes(run(batcher, items)) == ["batch.rows"] * 3
        assert codes(run(batcher, items[:1])) == ["batch.rows"]


@pytest.mark.parametrize(
    ("inputs", "output"),
    [
        ({"x": (2, 3)}, lambda b, x: b.Relu(x)),
        ({"x": ("n", 3), "z": (3,)}, lambda b, x, z: b.Add(x, z)),
        ({"x": ("n", 3)}, lambda b, x: b.ReduceSum(x, [0], keepdims=False)),
        ({"x": ("n", 3)}, lambda b, x: b.ReduceSum(x, keepdims=False)),
        ({"x": ("n", "n")}, lambda b, x: b.Relu(x)),
    ],
)
def test_a_model_without_an_open_batch_axis_is_refused(inputs: dict[str, tuple[Any, ...]], output: Any) -> None:
    with dovetail.Builder() as b:
        b.output("y", output(b, *(b.input(name, "f32", shape) for name, shape in inputs.items())))
    with pytest.raises(EngineError) as error:
        dovetail.compile(b.model).batcher()
    assert error.value.code == "batch.axis" and "rebatch" in error.value.message


def test_a_model_with_states_is_refused() -> None:
    with dovetail.Builder() as b:
        past, x = b.input("past", "f32", ("n", 2)), b.input("x", "f32", ("n", 2))
        b.output("next", b.Add(past, x))
        b.output("y", b.Relu(x))
    model = b.model
    model.states = [State("total", "past", "next")]
    program = dovetail.compile(model)
    with pytest.raises(UnsupportedError) as error:
        program.batcher()
    assert error.value.code == "program.states"


@pytest.mark.parametrize(
    "options",
    [
        {"wait_ms": -1}, {"wait_ms": "2"}, {"wait_ms": float("nan")}, {"max_batch": 0}, {"max_batch": 2.5}, {"max_waiting": True},
    ],
)  # fmt: skip
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as error:
        texts().batcher(**options)
    assert error.value.code == "argument.value"


def test_a_cancelled_task_leaves_the_queue() -> None:
    program = texts()
    items = ids_of(*[6] * 4)

    async def main() -> None:
        with program.batcher(wait_ms=HOUR, max_batch=3) as batcher:
            tasks = [asyncio.create_task(batcher.call(item)) for item in items[:2]]
            await asyncio.sleep(0)
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            assert batcher.statistics.waiting == 1 and batcher.statistics.cancelled == 1
            results = await asyncio.gather(tasks[1], *map(batcher.call, items[2:]))
            assert batcher.statistics[:3] == (3, 3, 1)
        assert all(equal(result, program(item)) for result, item in zip(results, items[1:], strict=True))

    asyncio.run(main())


def test_a_full_queue_refuses_requests_and_close_runs_those_that_wait() -> None:
    program = texts()
    items = ids_of(6, 8, 6)

    async def main() -> None:
        batcher = program.batcher(wait_ms=HOUR, max_batch=100, max_waiting=2)
        tasks = [asyncio.create_task(batcher.call(item)) for item in items[:2]]
        await asyncio.sleep(0)
        with pytest.raises(EngineError) as error:
            await batcher.call(items[2])
        assert error.value.code == "batch.full"
        assert batcher.statistics.waiting == 2 and batcher.statistics.rejected == 1
        batcher.close()
        results = await asyncio.gather(*tasks)
        assert all(equal(result, program(item)) for result, item in zip(results, items[:2], strict=True))
        with pytest.raises(EngineError) as closed:
            await batcher.call(items[0])
        assert closed.value.code == "program.closed"

    asyncio.run(main())


def batcher_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("dovetail-batcher")}


def test_threads_end_with_the_batcher() -> None:
    before = batcher_threads()
    with texts().batcher(wait_ms=0) as batcher:
        batcher(*ids_of(3))
        assert len(batcher_threads() - before) == 2
    assert batcher_threads() <= before
    batcher.close()
    batcher = texts().batcher(wait_ms=0)
    batcher(*ids_of(3))
    del batcher
    gc.collect()
    assert batcher_threads() <= before


def test_a_thread_that_cannot_start_is_an_error_of_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    batcher = texts().batcher(wait_ms=0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="start new thread"):
            batcher(*ids_of(4))
        with pytest.raises(RuntimeError, match="start new thread"):
            asyncio.run(batcher.call(*ids_of(4)))
    assert batcher.statistics[:4] == (0, 0, 0, 0)
    results = batcher(*ids_of(4))
    batcher.close()
    assert equal(results, texts()(*ids_of(4))) and batcher.statistics[:4] == (1, 1, 1, 0)


def test_close_during_the_first_request_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    batcher, start, before = texts().batcher(wait_ms=HOUR), threading.Thread.start, batcher_threads()
    closing: list[Future[set[threading.Thread]]] = []

    def close() -> set[threading.Thread]:
        batcher.close()
        return batcher_threads() - before

    def start_late(thread: threading.Thread) -> None:
        if not closing:
            closing.append(pool.submit(close))
        # A close that does not wait for the threads has ended by now.
        wait(closing, timeout=0.2)
        start(thread)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        monkeypatch.setattr(threading.Thread, "start", start_late)
        results = batcher(*ids_of(4))
        assert closing[0].result() == set() and equal(results, texts()(*ids_of(4)))


def test_a_collection_in_a_batch_thread_closes_the_batcher() -> None:
    """The collector may run wherever memory is allocated, also while a thread of the batcher holds the lock of its queue."""
    dropped, takes, before = threading.Event(), [], batcher_threads()

    def collect(frame: Any, event: str, argument: object) -> None:
        name = frame.f_code.co_qualname
        if (event, name) == ("call", "BatchQueue.take"):
            takes.append(name)
            if len(takes) == 2:
                dropped.wait(60)
        if len(takes) == 2 and (event, name) == ("return", "Condition.__enter__"):
            gc.collect()

    holder: list[Any] = [texts(threads=1).batcher(wait_ms=0)]
    holder.append(holder)
    gc.disable()
    threading.setprofile(collect)
    try:
        holder[0](*ids_of(3))
        threads = batcher_threads() - before
        del holder
        dropped.set()
        for thread in threads:
            thread.join(60)
        assert len(threads) == 1 and not any(thread.is_alive() for thread in threads)
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
        gc.enable()


def test_a_closed_program_is_an_error_of_each_request() -> None:
    program = texts()
    with program.batcher(wait_ms=HOUR, max_batch=2) as batcher:
        program.close()
        assert codes(gather(batcher, ids_of(5, 5))) == ["program.closed"] * 2


def test_a_request_does_not_wait_when_no_other_is_expected() -> None:
    """The batches before had one request each, so that one request is all that is expected; else it would wait an hour."""
    program = texts()
    full, single = ids_of(5, rows=4)[0], ids_of(5)[0]
    with program.batcher(wait_ms=HOUR, max_batch=4) as batcher:
        for _ in range(20):
            batcher(full)
        assert equal(batcher(single), program(single))


def test_many_threads_and_tasks_get_their_own_results() -> None:
    program = texts()
    items = ids_of(*np.random.default_rng(2).integers(4, 9, 400))
    with program.batcher(wait_ms=1, max_batch=8) as batcher, ThreadPoolExecutor(8) as pool:
        threads = pool.map(batcher, items)
        results = [*gather(batcher, items), *threads]
        assert batcher.statistics[:2] == (800, 800)
    assert all(equal(result, program(item)) for result, item in zip(results, [*items, *items], strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_a_forked_process_runs_requests() -> None:
    program = texts()
    items = ids_of(4, 4)
    with program.batcher(wait_ms=HOUR, max_batch=2) as batcher:
        assert codes(in_threads(batcher, items)) == [None, None]
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        process = context.Process(target=lambda: queue.put(codes(in_threads(batcher, items))))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(batcher, items[0])
            process.start()
            assert queue.get() == [None, None]
            process.join()
            assert equal(batcher(items[1]), program(items[1])) and equal(waiting.result(), program(items[0]))
