"""Measure requests of 8 clients that a batcher joins: requests per second and latencies, beside calls one by one, and beside
onnxruntime.

    python bench/batcher.py [--models NAME ...] [--lengths NAME ...] [--rounds N] [--threads N] [--seconds S] [--json]

The models are those of bench/server.py, or ONNX files (--files) with integer inputs of [batch, length], where inputs that are
named as masks are 1. A request is one text; each client sends its next one when it has the answer of the one before:

- one by one: the clients pass requests to as many workers as there are threads, each call runs in one thread;
- batcher: the clients call ``program.batcher(wait_ms=2)``, in threads or as tasks of asyncio; the program has all threads;
- batches of N: without clients. Batches of N texts of one length are ready, and run one after the other in all threads. N is the
  best of 1, 2, 4 and 8, measured for each engine, and 8 for dovetail. A latency is the time of the call.

Lengths are "64", one of "16 32 64 128", or "8-256", uniform in the logarithm. The ways take turns. A share is the median over
the rounds of a way's requests per second over those of dovetail's best batches. The last column is the median over the rounds of
a way's p99 less that of dovetail's batches of 8: as many requests as there are clients. CPU is that of the process, divided by
the requests; other processes change it less than the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import dovetail
from dovetail.measure.benchmark import REST, machine

sys.path.insert(0, str(Path(__file__).resolve().parent))
from server import CLIENTS, MAX_REQUESTS, MODELS, TOKENS, Figures, clients_in_threads, coroutines, figures_of

import transformers  # isort: skip; server.py adds its folder to the path

MODELS = {**MODELS, "wide, 4 x 1024": lambda: wide()}
Rows = list[Any]
Run = Callable[[Rows], list[float]]
BATCHES = (1, 2, 4, 8)
OF_CLIENTS = f"dovetail, batches of {CLIENTS}"
LENGTHS: dict[str, Callable[[Any, int], Any]] = {
    "64": lambda chance, count: np.full(count, 64),
    "16 32 64 128": lambda chance, count: chance.choice([16, 32, 64, 128], count),
    "8-256": lambda chance, count: np.exp(chance.uniform(np.log(8), np.log(256), count)).round().astype(int),
}


def wide(layers: int = 4, width: int = 1024) -> dovetail.Model:
    """Build a feed-forward network of the mean of a text's tokens: ``ids`` i64 [batch, length] to ``scores`` f32 [batch, 8]."""
    with dovetail.Builder("wide") as b:
        weights = transformers.Weights(b, seed=0)
        table = weights.matrix(TOKENS, width)
        y = b.ReduceMean(b.Gather(table, b.input("ids", "i64", ("batch", "length")), axis=0), [1], keepdims=False)
        for _ in range(layers):
            y = b.Relu(weights.linear(y, width, width))
        b.output("scores", b.Softmax(b.MatMul(y, weights.matrix(width, 8)), axis=1))
    return b.model


def requests_of(lengths: str, count: int) -> Rows:
    chance = np.random.default_rng(0)
    return [chance.integers(0, TOKENS, (1, length)) for length in LENGTHS[lengths](chance, count)]


def feed(names: list[str], ids: Any) -> dict[str, Any]:
    """Return the inputs of a text; those that are named as masks are 1, and those of token types 0."""
    return {name: np.ones_like(ids) if "mask" in name else np.zeros_like(ids) if "type" in name else ids for name in names}


def by_length(requests: Rows, size: int) -> Rows:
    """Join requests of equal lengths to batches of up to ``size`` rows."""
    groups = defaultdict(list)
    for ids in requests:
        groups[ids.shape[1]].append(ids)
    return [np.concatenate(group[start : start + size]) for group in groups.values() for start in range(0, len(group), size)]


def in_batches(call: Callable[[Any], Any], size: int, requests: Rows) -> list[float]:
    """Run the requests in batches of one length. Returns the seconds of the call of each request."""
    times = []
    for batch in by_length(requests, size):
        begin = time.perf_counter()
        call(batch)
        times += [time.perf_counter() - begin] * len(batch)
    return times


def session_of(path: str, names: list[str], threads: int) -> Callable[[Any], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids: session.run(None, feed(names, ids))


def program_of(path: str, names: list[str], threads: int) -> Callable[[Any], Any]:
    program = dovetail.compile(path, threads=threads)
    return lambda ids: program(feed(names, ids))


@contextmanager
def batcher_of(path: str, names: list[str], threads: int, in_asyncio: bool) -> Iterator[Run]:
    program = dovetail.compile(path, threads=threads)
    with program.batcher(wait_ms=2) as batcher:
        if in_asyncio:
            with coroutines(lambda ids: batcher.call(feed(names, ids))) as run:
                yield run
        else:
            with clients_in_threads(lambda ids: batcher(feed(names, ids)), None) as run:
                yield run
        found = batcher.statistics
        print(f"{found.rows / max(1, found.runs):.2f} rows a run", file=sys.stderr)


def best_batch(call: Callable[[Any], Any], requests: Rows) -> int:
    """Return the batch with the most requests per second; the sizes take turns, and the best of 4 runs counts."""
    rates = dict.fromkeys(BATCHES, 0.0)
    for size in BATCHES * 4:
        rates[size] = max(rates[size], len(requests) / seconds_of(partial(in_batches, call, size, requests)))
    return max(rates, key=lambda size: rates[size])


def measured(path: str, lengths: str, threads: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure all ways for one model and one choice of lengths; each round has the same requests in the same order."""
    names = [value.name for value in dovetail.load(path).inputs]
    few = requests_of(lengths, 8 * CLIENTS)
    with ExitStack() as stack:
        runs: dict[str, Run] = {}
        best: list[str] = []
        for engine, make in (("dovetail", program_of), ("onnxruntime", session_of)):
            whole = make(path, names, threads)
            size = best_batch(whole, few)
            best.append(f"{engine}, batches of {size}")
            runs[best[-1]] = partial(in_batches, whole, size)
            if engine == "dovetail":
                runs.setdefault(OF_CLIENTS, partial(in_batches, whole, CLIENTS))
            runs[f"{engine}, one by one"] = stack.enter_context(clients_in_threads(make(path, names, 1), threads))
        for word, is_asyncio in (("threads", False), ("asyncio", True)):
            runs[f"batcher, {word}"] = stack.enter_context(batcher_of(path, names, threads, is_asyncio))
        slowest = max(seconds_of(partial(run, few)) for run in runs.values()) / len(few)
        requests = requests_of(lengths, int(min(MAX_REQUESTS, max(8 * CLIENTS, seconds / slowest))))
        figures: dict[str, list[Figures]] = {name: [] for name in runs}
        seconds_of_cpu: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run(requests)
        order = list(runs)
        for index in range(rounds):
            for name in order[index % len(order) :] + order[: index % len(order)]:
                time.sleep(REST)
                begin, cpu = time.perf_counter(), time.process_time()
                times = runs[name](requests)
                figures[name].append(figures_of(times, time.perf_counter() - begin))
                seconds_of_cpu[name].append((time.process_time() - cpu) / len(requests))
    return [
        {
            "lengths": lengths,
            "way": name,
            **Figures(*map(statistics.median, zip(*rows, strict=True)))._asdict(),
            "cpu": statistics.median(seconds_of_cpu[name]) * 1e3,
            "share": statistics.median(row.rate / other.rate for row, other in zip(rows, figures[best[0]], strict=True)),
            "p99 more": statistics.median(row.p99 - other.p99 for row, other in zip(rows, figures[OF_CLIENTS], strict=True)),
        }
        for name, rows in figures.items()
    ]


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a table of rows, with a header."""
    head = ["model", "lengths", "way", "requests/s", "share", "CPU ms", "p50 ms", "p99 ms", "p99 ms more"]
    return [
        head,
        *(
            [
                row["model"], row["lengths"], row["way"], f"{row['rate']:,.0f}", f"{row['share']:.2f}", f"{row['cpu']:.3f}",
                f"{row['p50']:.2f}", f"{row['p99']:.2f}", f"{row['p99 more']:+.2f}",
            ]
            for row in rows
        ),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[*MODELS], help="the beginnings of their names")
    parser.add_argument("--files", nargs="*", default=[], help="ONNX files of models of texts")
    parser.add_argument("--lengths", nargs="+", default=[*LENGTHS], choices=[*LENGTHS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long one round of the slowest way takes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {Path(path).stem: path for path in options.files}
        for name, make in MODELS.items():
            if options.models and name.startswith(tuple(options.models)):
                paths[name] = str(Path(folder) / f"{len(paths)}.onnx")
                dovetail.save(make(), paths[name])
        for name, path in paths.items():
            for lengths in options.lengths:
                found = [
                    {"model": name, **row} for row in measured(path, lengths, options.threads, options.rounds, options.seconds)
                ]
                rows += found
                if not options.json:
                    for cells in table(found)[0 if len(rows) == len(found) else 1 :]:
                        print("| " + " | ".join(cells) + " |", flush=True)
    print(json.dumps({"rows": rows, "threads": options.threads}, indent=1) if options.json else machine())


if __name__ == "__main__":
    main()
