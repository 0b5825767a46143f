"""Rows per second of `dovetail map` with each engine beside plain processes, memory of its workers, and results after kills.

    python bench/map.py [--rows N] [--workers N] [--engines local ray dask] [--rounds N] [--without-kills] [--json]

The model is a tagger of Arabic diacritics from the zoo (`make zoo`), one row 16 characters. The baseline is as many processes,
each a loop of `program(batch)` over rows that lie in memory; its rate is the sum of theirs. A ratio is of rates, above 1 where
`dovetail map` is faster although it reads and writes files. Kills: one worker is sent SIGKILL after a third of the rows, the
driver after two thirds, and the command is repeated; every row must be there once, equal to the local run bit for bit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dovetail
from dovetail.measure.benchmark import machine

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench")]
from start import zoo_files  # noqa: E402

MODEL = "text2tashkeel.rawi_ensemble"
CHARACTERS = 16
VOCABULARY = 40
FILES = 10
BATCH = 64
ENGINES = ("local", "ray", "dask")
# In the command lines of workers.
WORKERS = {"local": b"dovetail.data.rows.worker_process", "ray": b"ray::_Worker", "dask": b"spawn_main"}


def write_rows(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number, part in enumerate(np.array_split(np.arange(rows), FILES)):
        np.save(folder / f"{number}.npy", random.integers(1, VOCABULARY, (len(part), CHARACTERS)))


# The baseline


def run_plain(model: Path, data: Path, workers: int) -> float:
    """Return the rows per second of plain processes, each with its share of the rows in memory: the sum of theirs."""
    context = multiprocessing.get_context("spawn")
    barrier, rates = context.Barrier(workers), context.Queue()
    processes = [context.Process(target=_loop, args=(model, data, index, workers, barrier, rates)) for index in range(workers)]
    for process in processes:
        process.start()
    total = sum(rates.get() for _ in processes)
    for process in processes:
        process.join()
    return float(total)


def _loop(model: Path, data: Path, index: int, workers: int, barrier: Any, rates: Any) -> None:
    rows = np.concatenate([np.load(path) for path in sorted(data.glob("*.npy"))])
    rows = np.array_split(rows, workers)[index].copy()
    program = dovetail.compile(model, threads=1)
    program(rows[:BATCH])
    # A session of its own, as the workers have: Linux shares processors among sessions.
    os.setsid()
    barrier.wait()
    start = time.perf_counter()
    for first in range(0, len(rows), BATCH):
        program(rows[first : first + BATCH])
    rates.put(len(rows) / (time.perf_counter() - start))


# dovetail map


def command(model: Path, data: Path, out: Path, engine: str, workers: int) -> list[str]:
    line = ["map", str(model), str(data), "-o", str(out), "--engine", engine, "--workers", str(workers), "--json"]
    return [sys.executable, "-m", "dovetail.cli", *line]


def run_map(model: Path, data: Path, out: Path, engine: str, workers: int) -> dict[str, Any]:
    """Return the report of one run, with the memory of its workers in the middle."""
    process = subprocess.Popen(command(model, data, out, engine, workers), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    memory: list[dict[str, int]] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(1.0):
            found = [each for each in map(memory_of, worker_ids(engine, process.pid)) if each]
            if len(found) >= workers:
                memory[:] = found

    watch = threading.Thread(target=look)
    watch.start()
    output = process.communicate()[0]
    is_over.set()
    watch.join()
    if process.returncode:
        raise SystemExit(f"{engine}: exit code {process.returncode}")
    return {**json.loads(output), "memory": memory}


def worker_ids(engine: str, driver: int) -> list[int]:
    """Return the processes below ``driver`` that are workers."""
    parents, commands = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        process = int(path.parent.name)
        try:
            text = path.read_text()
            commands[process] = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        parents[process] = int(text[text.rindex(")") + 2 :].split()[1])
    found = {driver}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(process for process in found if WORKERS[engine] in commands.get(process, b""))


def memory_of(process: int) -> dict[str, int]:
    """Bytes of a process: those that it alone has (private), and with its share of the others (pss)."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return {}
    sizes = {name: int(size) << 10 for name, size in re.findall(r"(\w+): +(\d+) kB", text)}
    return {"private": sizes["Private_Clean"] + sizes["Private_Dirty"], "pss": sizes["Pss"]}


def run_with_kills(model: Path, data: Path, out: Path, engine: str, workers: int, rows: int) -> dict[str, Any]:
    """Return the report of the second of two runs: in the first a worker is killed, then the driver."""
    line = command(model, data, out, engine, workers)
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for share, victim in ((1 / 3, None), (2 / 3, process.pid)):
        while count_rows(out) < share * rows and process.poll() is None:
            time.sleep(0.2)
        os.kill(victim or worker_ids(engine, process.pid)[0], signal.SIGKILL)
    process.wait()
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return dict(json.loads(done.stdout))


def count_rows(out: Path) -> int:
    """Return the rows of the parts that are written, if all parts but the last are of one size."""
    try:
        part_rows = json.loads((out / "_job.json").read_text())["part_rows"]
    except (OSError, ValueError):
        return 0
    return part_rows * len([name for name in os.listdir(out / "row") if name.startswith("part")]) if (out / "row").exists() else 0


def results_of(out: Path) -> dict[str, Any]:
    """Return the arrays of an output folder, parts in order."""
    return {
        column.name: np.concatenate([np.load(path) for path in sorted(column.glob("part-*.npy"))])
        for column in out.iterdir()
        if column.is_dir() and not column.name.startswith("_")
    }


def agree(out: Path, reference: dict[str, Any], rows: int) -> bool:
    found = results_of(out)
    return (
        found.keys() == reference.keys()
        and np.array_equal(found["row"], np.arange(rows))
        and all(found[name].tobytes() == reference[name].tobytes() for name in reference.keys())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--without-kills", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    files = zoo_files(MODEL)
    if files is None:
        raise SystemExit("build/zoo lacks the model: make zoo")
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        # The plans of these shapes, not of others: the temporary folder has the cache of the workers.
        (Path(name) / "tmp").mkdir()
        os.environ["TMPDIR"] = f"{name}/tmp"
        report = measure(files[0], Path(name), options)
    if options.json:
        print(json.dumps(report))
    else:
        show(report, options)


def measure(model: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    data = folder / "data"
    write_rows(data, options.rows)
    plain = [run_plain(model, data, options.workers)]
    rates: dict[str, list[Any]] = {engine: [] for engine in options.engines}
    found: dict[str, Any] = {}
    reference: dict[str, Any] = {}
    for _ in range(options.rounds):
        for engine in options.engines:
            out = folder / engine
            shutil.rmtree(out, ignore_errors=True)
            report = run_map(model, data, out, engine, options.workers)
            reference = reference or results_of(out)
            rates[engine].append(report["rows_per_second"])
            found[engine] = {**report, "equal": agree(out, reference, options.rows)}
            plain.append(run_plain(model, data, options.workers))
    for engine in options.engines:
        found[engine]["rows_per_second"] = median(rates[engine])
        if not options.without_kills:
            out = folder / f"{engine}-killed"
            report = run_with_kills(model, data, out, engine, options.workers, options.rows)
            found[engine]["after_kills"] = {"equal": agree(out, reference, options.rows), "skipped": report["skipped_parts"]}
    return {"plain": median(plain), "machine": machine(), "engines": found}


def show(report: dict[str, Any], options: argparse.Namespace) -> None:
    print(f"{options.rows:,} rows, {options.workers} workers; {report['machine']}")
    print(f"plain processes: {report['plain']:,.0f} rows/s")
    for engine, each in report["engines"].items():
        private = ", ".join(f"{size['private'] >> 20}" for size in each["memory"])
        pss = ", ".join(f"{size['pss'] >> 20}" for size in each["memory"])
        print(
            f"{engine}: {each['rows_per_second']:,.0f} rows/s, ratio {each['rows_per_second'] / report['plain']:.3f}, "
            f"{each['start_seconds']:.1f} s to start, {each['parts']} parts, equal to local: {each['equal']}"
        )
        print(f"    workers: private MB {private}; pss MB {pss}")
        if "after_kills" in each:
            killed = each["after_kills"]
            print(f"    a worker and the driver killed: equal: {killed['equal']}, {killed['skipped']} parts kept")


if __name__ == "__main__":
    main()
