"""The parts of `dovetail map` that grow with the size of a job: its driver, its files, and the cost of a part beside its rows.

    python bench/map_scale.py [--parts N] [--workers N] [--files N] [--engines NAME ...] [--rounds N] [--json]

- scheduler: parts per second that the driver gives to simulated workers which answer at once, and its peak memory;
- index: time to open a dataset of many parquet files, and the bytes of the index that each worker is sent;
- output: time to list the parts of a large output folder, as a resumed job does, and for pyarrow to open it;
- part: time to read, check, write and flush a part of 64 rows of four values, whose model is one addition;
- driver: processor time of the driver for each such part, with each engine, on a cluster of two workers on this host;
- row: time of a row in one thread and bytes of its inputs, for models of `make zoo`, which are left out where it has not run.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import mapper as mapper_bench
import numpy as np

import dovetail
from dovetail.data.rows.job import Job
from dovetail.data.rows.part_runner import PartRunner, PartSummary
from dovetail.data.rows.scheduler import Event, Scheduler, parts_without
from dovetail.data.rows.sinks import open_sink
from dovetail.data.rows.sources import open_source

ROWS = 64
COLUMNS = 4


class SimulatedPool:
    """Workers that have run each part at once; one event for each of them before any has a second, as of equal workers."""

    def __init__(self, workers: int) -> None:
        self._events = deque(Event("started", worker) for worker in range(workers))
        self._count = workers

    @property
    def size(self) -> int:
        return self._count

    def submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        self._events.append(Event("done", worker, call, PartSummary(call[1], ROWS, 0)))

    def wait(self, seconds: float) -> list[Event]:
        return [self._events.popleft() for _ in range(min(16, len(self._events)))]

    def close(self) -> None:
        self._events.clear()


def seconds_of(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def job_in(folder: Path, rows: int, part_rows: int) -> Job:
    """Return a job over one .npy file, whose lock file is there."""
    with dovetail.Builder("increment") as b:
        x = b.input("x", "f32", ("rows", COLUMNS))
        b.output("y", x + b.constant(np.float32(1)))
    dovetail.save(b.model, folder / "increment.onnx")
    np.save(folder / "rows.npy", np.zeros((rows, COLUMNS), np.float32))
    mapper = dovetail.Mapper(folder / "increment.onnx", batch=ROWS, columns={"x": "array"}, threads=1, cache_dir=None)
    (folder / "out").mkdir()
    return Job(mapper, open_source(folder / "rows.npy"), "npy", str(folder / "out"), "", part_rows)


def measure_scheduler(job: Job, parts: int, workers: int) -> dict[str, float]:
    def run() -> None:
        Scheduler(SimulatedPool(workers), lambda progress: None).run(parts_without(parts, set()), job)

    seconds, _ = seconds_of(run)
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"parts per second": parts / seconds, "MB": peak / 1e6}


def measure_index(folder: Path, files: int) -> dict[str, float]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    table = pa.table({"x": [[0.0] * COLUMNS] * ROWS})
    for number in range(files):
        pq.write_table(table, folder / f"{number:06}.parquet")
    seconds, source = seconds_of(lambda: open_source(folder, ["x"]))
    return {"ms per file": seconds / files * 1e3, "bytes per file": len(pickle.dumps(source)) / files}


def measure_output(folder: Path, parts: int) -> dict[str, float]:
    import pyarrow.parquet as pq

    sink = open_sink(folder, "parquet", rows=parts * ROWS, part_rows=ROWS)
    sink.prepare()
    sink.write(0, np.arange(ROWS), {"y": np.zeros((ROWS, COLUMNS), np.float32)}, [])
    data = (folder / "part-00000.parquet").read_bytes()
    for number in range(1, parts):
        (folder / f"part-{number:05}.parquet").write_bytes(data)
    seconds, found = seconds_of(sink.parts)
    assert len(found) == parts
    dataset_seconds, _ = seconds_of(lambda: pq.ParquetDataset(folder))
    return {"ms per 1,000 parts": seconds / parts * 1e6, "ms per 1,000 parts, pyarrow": dataset_seconds / parts * 1e6}


def measure_part(job: Job, parts: int) -> dict[str, float]:
    runner = PartRunner(job)
    job.sink.prepare()
    runner.run(0, ROWS, ROWS)
    times = [seconds_of(lambda part=part: runner.run(part, ROWS, ROWS))[0] for part in range(1, parts)]
    return {"ms": median(times) * 1e3, "ms, slowest of 100": float(np.percentile(times, 99)) * 1e3}


def measure_driver(engine: str, parts: tuple[int, int]) -> dict[str, float]:
    """Return the slope of the processor time between two numbers of parts: starting and connecting cost the same in both."""
    times = []
    for count in parts:
        with tempfile.TemporaryDirectory() as name:
            job = job_in(Path(name), count * ROWS, ROWS)
            start = time.process_time()
            dovetail.map_rows(
                dovetail.Mapper(str(job.mapper.path), batch=ROWS), f"{name}/rows.npy", f"{name}/out", engine=engine, workers=2,
                options=dovetail.MapOptions(part_rows=ROWS),
            )  # fmt: skip
            times.append(time.process_time() - start)
    return {f"ms, {engine}": (times[1] - times[0]) / (parts[1] - parts[0]) * 1e3}


def measure_rows(rounds: int) -> dict[str, float]:
    """Milliseconds and bytes of a row, by model."""
    figures = {}
    for name, batch in mapper_bench.MODELS.items():
        path = mapper_bench.path_of(name, Path()) if name not in ("small", "dense") else None
        if path is None:
            continue
        mapper = dovetail.Mapper(path, batch=batch, threads=1, cache_dir=None)
        count = 4 * batch
        columns = mapper_bench.rows_of(mapper, count)
        mapper.run_rows(columns, count)
        seconds = median(seconds_of(partial(mapper.run_rows, columns, count))[0] for _ in range(rounds))
        figures[f"ms, {name}"] = seconds / count * 1e3
        figures[f"bytes, {name}"] = sum(column.nbytes for column in columns.values()) / count
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--engines", nargs="*", default=("local", "ray", "dask"), choices=("local", "ray", "dask"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = job_in(folder, 400 * ROWS, ROWS)
        results = {
            "scheduler": measure_scheduler(job, options.parts, options.workers),
            "index": measure_index(folder / "input", options.files),
            "output": measure_output(folder / "parts", options.files),
            "part": measure_part(job, 400),
        }
    results["driver"] = {name: value for engine in options.engines for name, value in measure_driver(engine, (50, 550)).items()}
    results["row"] = measure_rows(options.rounds)
    if options.json:
        json.dump(results, sys.stdout)
        return
    for subject, figures in results.items():
        for name, figure in figures.items():
            print(f"{subject:10} {name:38} {figure:14,.3f}")


if __name__ == "__main__":
    main()
