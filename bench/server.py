"""Measure requests of 8 clients at mixed lengths: median and 99th percentile of the latency, and requests per second, beside
onnxruntime.

    python bench/server.py [--models NAME ...] [--ways NAME ...] [--rounds N] [--threads N] [--seconds S] [--json]

Each client sends its next request when it has the answer of the one before. All runs in one process: there is no network between
clients and server. Both engines use the same number of threads, in one of these ways, and take turns:

- callers: each client calls the program in a thread of its own, each call runs in one thread;
- workers: the clients pass requests to as many workers as there are threads, each call runs in one thread;
- whole: the clients pass requests to one worker, each call runs in all threads;
- asyncio: as workers, the clients are coroutines that use run_in_executor;
- FastAPI: as asyncio, behind an application with JSON requests, called through httpx's ASGI transport.

Lengths are drawn from 8 to 256, uniformly in their logarithm; each engine has seen all of them before the first round. A ratio
is the median over the rounds of dovetail's figure over onnxruntime's.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

import dovetail
from dovetail.measure.benchmark import REST, machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import transformers

CLIENTS = 8
LENGTHS = (8, 256)
TOKENS = 1000
MAX_REQUESTS = 4000
"""The maximum number of requests of one round, of all clients."""
TOLERANCE = 1e-4

Call = Callable[[Any], Any]
Rows = list[Any]


def classifier(layers: int, width: int, heads: int) -> dovetail.Model:
    """Build a classifier of texts: ``ids`` i64 [batch, length] to ``scores`` f32 [batch, 8]."""
    with dovetail.Builder("classifier") as b:
        weights = transformers.Weights(b, seed=0)
        y = b.Gather(weights.matrix(TOKENS, width), b.input("ids", "i64", ("batch", "length")), axis=0)
        for _ in range(layers):
            y = transformers.encoder_layer(b, weights, y, width, heads, 4 * width)
        pooled = b.ReduceMean(y, [1], keepdims=False)
        b.output("scores", b.Softmax(b.MatMul(pooled, weights.matrix(width, 8)), axis=1))
    return b.model


MODELS: dict[str, Callable[[], dovetail.Model]] = {
    "bag of words": lambda: classifier(0, 64, 1),
    "encoder, 2 x 128": lambda: classifier(2, 128, 4),
    "encoder, 4 x 256": lambda: classifier(4, 256, 8),
}


def _dovetail(path: str, threads: int) -> Call:
    program = dovetail.compile(path, threads=threads)
    return lambda ids: program(ids=ids)["scores"]


def _onnxruntime(path: str, threads: int) -> Call:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids: session.run(None, {"ids": ids})[0]


ENGINES: dict[str, Callable[[str, int], Call]] = {"dovetail": _dovetail, "onnxruntime": _onnxruntime}


class Figures(NamedTuple):
    """Figures of one round: milliseconds of the median and of the 99th percentile, and requests per second."""

    p50: float
    p99: float
    rate: float


def figures_of(seconds: Sequence[float], total: float) -> Figures:
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return Figures(float(p50), float(p99), len(seconds) / total)


# Ways to serve: each is a context that gives a function of the clients' requests, which returns the seconds of each request.


@contextmanager
def clients_in_threads(call: Call, workers: int | None) -> Iterator[Callable[[Rows], list[float]]]:
    """Run each client in a thread. Without ``workers`` it calls in this thread."""
    with ThreadPoolExecutor(CLIENTS) as clients, ThreadPoolExecutor(workers or 1) as pool:
        answer = call if workers is None else lambda ids: pool.submit(call, ids).result()

        def client(rows: Rows) -> list[float]:
            return [_seconds(partial(answer, ids)) for ids in rows]

        yield lambda requests: [
            item for part in clients.map(client, [requests[index::CLIENTS] for index in range(CLIENTS)]) for item in part
        ]


@contextmanager
def coroutines(answer: Callable[[Any], Any]) -> Iterator[Callable[[Rows], list[float]]]:
    """Run each client as a coroutine, which awaits ``answer`` of each of its requests."""

    async def client(rows: Rows) -> list[float]:
        times = []
        for ids in rows:
            begin = time.perf_counter()
            await answer(ids)
            times.append(time.perf_counter() - begin)
        return times

    async def clients(requests: Rows) -> list[float]:
        parts = await asyncio.gather(*(client(requests[index::CLIENTS]) for index in range(CLIENTS)))
        return [item for part in parts for item in part]

    with asyncio.Runner() as runner:
        yield lambda requests: runner.run(clients(requests))


@contextmanager
def in_asyncio(call: Call, workers: int) -> Iterator[Callable[[Rows], list[float]]]:
    with ThreadPoolExecutor(workers) as pool:

        async def answer(ids: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(pool, call, ids)

        with coroutines(answer) as run:
            yield run


@contextmanager
def in_fastapi(call: Call, workers: int) -> Iterator[Callable[[Rows], list[float]]]:
    import fastapi
    import httpx

    app = fastapi.FastAPI()
    with ThreadPoolExecutor(workers) as pool:

        @app.post("/scores")
        async def scores(ids: list[int] = fastapi.Body(...)) -> list[float]:  # noqa: B008
            array = np.array([ids])
            return (await asyncio.get_running_loop().run_in_executor(pool, call, array))[0].tolist()

        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://server")

        async def answer(ids: Any) -> Any:
            response = await client.post("/scores", json=ids[0].tolist())
            return response.raise_for_status().json()

        with coroutines(answer) as run:
            yield run


WAYS: dict[str, Callable[[str, Callable[[str, int], Call], int], Any]] = {
    "callers": lambda path, engine, threads: clients_in_threads(engine(path, 1), None),
    "workers": lambda path, engine, threads: clients_in_threads(engine(path, 1), threads),
    "whole": lambda path, engine, threads: clients_in_threads(engine(path, threads), 1),
    "asyncio": lambda path, engine, threads: in_asyncio(engine(path, 1), threads),
    "FastAPI": lambda path, engine, threads: in_fastapi(engine(path, 1), threads),
}


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def requests_of(count: int) -> Rows:
    chance = np.random.default_rng(0)
    lengths = np.exp(chance.uniform(np.log(LENGTHS[0]), np.log(LENGTHS[1]), count)).round().astype(int)
    return [chance.integers(0, TOKENS, (1, length)) for length in lengths]


def measured(path: str, way: str, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure one way to serve in both engines, which take turns; each round has the same requests in the same order."""
    figures: dict[str, list[Figures]] = {engine: [] for engine in ENGINES}
    servers = {engine: WAYS[way](path, make, threads) for engine, make in ENGINES.items()}
    runs = {engine: server.__enter__() for engine, server in servers.items()}
    try:
        few = requests_of(MAX_REQUESTS)[: 8 * CLIENTS]
        for run in runs.values():
            run(few)
        # The slower engine's first answers decide how many requests a round has.
        slowest = max(_seconds(partial(run, few)) for run in runs.values()) / len(few)
        requests = requests_of(MAX_REQUESTS)[: int(min(MAX_REQUESTS, max(8 * CLIENTS, seconds / slowest)))]
        for run in runs.values():
            run(requests)
        for index in range(rounds):
            for engine in sorted(runs, reverse=bool(index % 2)):
                time.sleep(REST)
                begin = time.perf_counter()
                times = runs[engine](requests)
                figures[engine].append(figures_of(times, time.perf_counter() - begin))
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)
    return {
        "way": way,
        "requests": len(requests),
        **{engine: Figures(*map(statistics.median, zip(*rows, strict=True)))._asdict() for engine, rows in figures.items()},
        "ratios": {
            name: statistics.median(
                getattr(ours, name) / getattr(theirs, name) for ours, theirs in zip(*figures.values(), strict=True)
            )
            for name in Figures._fields
        },
    }


def check_equal(path: str) -> None:
    """Compare the engines' answers to some requests."""
    ours, theirs = (make(path, 1) for make in ENGINES.values())
    for ids in requests_of(20):
        np.testing.assert_allclose(ours(ids), theirs(ids), atol=TOLERANCE)


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a table of rows, with a header."""
    head = ["model", "way"]
    for name in ("p50 ms", "p99 ms", "requests/s"):
        head += [f"{name}: dovetail", "onnxruntime", "ratio"]
    found = [head]
    for row in rows:
        cells = [row["model"], row["way"]]
        for name in Figures._fields:
            digits = ",.0f" if name == "rate" else ".3f"
            cells += [*(f"{row[engine][name]:{digits}}" for engine in ENGINES), f"{row['ratios'][name]:.2f}"]
        found.append(cells)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[*MODELS], help="the beginnings of their names")
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=[*WAYS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long one round of the slower engine takes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    has_fastapi = all(importlib.util.find_spec(name) for name in ("fastapi", "httpx"))
    rows = []
    for name, make in MODELS.items():
        if not name.startswith(tuple(options.models)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.onnx")
            dovetail.save(make(), path)
            check_equal(path)
            for way in options.ways:
                if way == "FastAPI" and not has_fastapi:
                    continue
                rows.append({"model": name, **measured(path, way, options.threads, options.rounds, options.seconds)})
                if not options.json:
                    print("| " + " | ".join(table(rows)[-1]) + " |", flush=True)
    print(
        json.dumps({"rows": rows, "threads": options.threads, "rounds": options.rounds}, indent=1) if options.json else machine()
    )


if __name__ == "__main__":
    main()
