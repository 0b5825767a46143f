"""Throughput of a model in several engines: items per second on all cores, with items that do not depend on each other."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir.graph import Model
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.measure.benchmark import REST, path_for
from dovetail.runtime.compilation import compile, precision_of
from dovetail.runtime.peers import Names, failure, port_names

ROUND_SECONDS = 0.4
"""The approximate seconds of one round of an engine."""
Work = Callable[[int], None]
"""A function that runs the given number of items and discards the results."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput holds figures of one engine. ``ratio``: dovetail's time per item / the engine's; ``way``: method of calling."""

    engine: str
    way: str
    items_per_second: float | None = None
    ratio: float | None = None
    notes: tuple[str, ...] = ()


def measure_throughput(
    model: Model,
    path: str,
    inputs: Mapping[str, Any],
    peers: Sequence[str],
    threads: int,
    rounds: int,
    streams: int | str = "auto",
    precision: str | None = None,
) -> list[Throughput]:
    """Measure dovetail and each peer on the model in the file ``path``; the fastest way to call each engine counts.

    dovetail: ``Program.map``. onnxruntime: a single-threaded session that ``threads`` threads call, or a session of ``threads``
    threads that one thread calls. OpenVINO: ``AsyncInferQueue`` under the hint THROUGHPUT. Items per second are medians of
    interleaved rounds. ``precision``: see :func:`dovetail.runtime.peers.runner`.
    """
    precision = precision_of(precision)
    names = Names([x.name for x in own_inputs(model)], [y.name for y in own_outputs(model)])
    notes: dict[str, tuple[str, ...]] = {}
    ways: dict[tuple[str, str], Work] = {}
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        for engine in ("dovetail", *peers):
            try:
                file, notes[engine] = path_for(engine, model, path, folder)
                if engine == "dovetail":
                    found = {f"map, streams={streams}": _dovetail(model, inputs, threads, streams, precision)}
                else:
                    found = PEER_WAYS[engine](file, names, inputs, threads, precision)
                for work in found.values():
                    work(2)
            except DovetailError as error:
                if engine == "dovetail":
                    raise
                notes[engine] = (*notes.get(engine, ()), error.message)
            except Exception as error:
                if engine == "dovetail":
                    raise
                notes[engine] = (*notes[engine], failure("runtime.run", f"{engine} cannot run the model", error, path).message)
            else:
                ways |= {(engine, way): work for way, work in found.items()}
        times = _times(ways, rounds)
    best = {engine: min((seconds, way) for (name, way), seconds in times.items() if name == engine) for engine, _ in times}
    ours = best["dovetail"][0]
    rows = []
    for engine in ("dovetail", *peers):
        if engine not in best:
            rows.append(Throughput(engine, "does not run", notes=notes[engine]))
            continue
        seconds, way = best[engine]
        rows.append(Throughput(engine, way, 1 / seconds, ours / seconds if engine != "dovetail" else None, notes[engine]))
    return rows


def _times(ways: Mapping[tuple[str, str], Work], rounds: int) -> dict[tuple[str, str], float]:
    """Return, for each way of calling, the median time per item over interleaved rounds."""
    counts = {key: _count_for(work) for key, work in ways.items()}
    times: dict[tuple[str, str], list[float]] = {key: [] for key in ways}
    for _ in range(rounds):
        for key, work in ways.items():
            time.sleep(REST)
            begin = time.perf_counter()
            work(counts[key])
            times[key].append((time.perf_counter() - begin) / counts[key])
    return {key: statistics.median(row) for key, row in times.items()}


def _count_for(work: Work) -> int:
    """Return the number of items that take about ROUND_SECONDS."""
    count, seconds = 4, 0.0
    while True:
        begin = time.perf_counter()
        work(count)
        seconds = time.perf_counter() - begin
        if seconds >= ROUND_SECONDS / 8:
            return max(4, int(count * ROUND_SECONDS / seconds))
        count *= 4


def _dovetail(model: Model, inputs: Mapping[str, Any], threads: int, streams: int | str, precision: str | None) -> Work:
    program = compile(model, threads=threads, precision=precision)
    feed = dict(inputs)

    def work(count: int) -> None:
        for _ in program.map(repeat(feed, count), streams=streams):
            pass

    return work


def _onnxruntime(path: str, names: Names, inputs: Mapping[str, Any], threads: int, precision: str | None) -> dict[str, Work]:
    import onnxruntime

    def session(intra: int) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = intra
        options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    single, whole = session(1), session(threads)
    known = {item.name for item in single.get_inputs()}
    feed = {name: array for name, array in inputs.items() if name in known}

    def sequential(count: int) -> None:
        for _ in range(count):
            whole.run(None, feed)

    def run_share(count: int) -> None:
        for _ in range(count):
            single.run(None, feed)

    def concurrent(count: int) -> None:
        bounds = [count * index // threads for index in range(threads + 1)]
        workers = [threading.Thread(target=run_share, args=(last - first,)) for first, last in pairwise(bounds)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    ways: dict[str, Work] = {f"{threads} threads in a call": sequential}
    if threads > 1:
        ways[f"{threads} calls of one thread"] = concurrent
    return ways


def _openvino(path: str, names: Names, inputs: Mapping[str, Any], threads: int, precision: str | None) -> dict[str, Work]:
    import openvino

    core = openvino.Core()
    hint = "bf16" if precision == "bf16" else "f32"
    config = {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": threads}
    compiled = core.compile_model(core.read_model(path), "CPU", config)
    feed = {
        index: np.asarray(inputs[name]) for index, name in enumerate(port_names(compiled.inputs, names.inputs)) if name in inputs
    }
    queue = openvino.AsyncInferQueue(compiled)
    # Without a callback that takes the results, the next item of a request would overwrite them.
    queue.set_callback(lambda request, _: request.results)

    def work(count: int) -> None:
        for _ in range(count):
            queue.start_async(feed)
        queue.wait_all()

    return {f"AsyncInferQueue of {len(queue)}": work}


PEER_WAYS: dict[str, Callable[[str, Names, Mapping[str, Any], int, str | None], dict[str, Work]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
