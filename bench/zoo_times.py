"""Measure the models of the zoo beside onnxruntime and OpenVINO: medians of interleaved runs, as ratios.

    python bench/zoo_times.py [--models TEXT[,TEXT...]] [--threads 1 2] [--rounds N] [--sizes CALLS] [--json]

The models are those of bench/zoo.py, which fills build/zoo, with its inputs. Each model is measured in a process of its own,
since a peer may end it. A ratio below 1 means that dovetail is faster than the better peer. A model above 1 is followed by its
profile: the three kernels that take the most time. Models that no peer runs are named and left out of the mean.

--sizes: models with open sizes, at sizes drawn with seed 0 around those of their two inputs (batches up to 16), as
bench/sizes.py measures. The ratio is that of sizes that are new to the engines, without the calls that made a plan.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import dovetail

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "build" / "zoo"
SLOWER = 1.0
SHOWN = 3
"""Kernels of a profile."""
SECONDS = 300
"""The most that one model may take."""
MIN_SIZES = 4
"""The least sets of sizes that are measured."""
BATCHES = 16
"""The largest size that is drawn for a dimension whose two sizes are smaller."""


def measured(facts: dict[str, Any], threads: int, rounds: int) -> dict[str, Any]:
    """One model with one number of threads: milliseconds of each engine, the ratio, and a profile where it is above 1."""
    sys.path.insert(0, str(ROOT / "tests"))
    from dovetail.measure.benchmark import measure
    from models.zoo_cells import PEERS, Record

    record = Record(ZOO, facts)
    rows = measure(record.model, str(record.path), record.inputs(), PEERS, threads, rounds, memory=False)
    times = {row.engine: row.seconds for row in rows}
    ratios = [row.ratio for row in rows if row.ratio is not None]
    found = {
        "model": record.id,
        "threads": threads,
        "ms": {engine: seconds and seconds * 1e3 for engine, seconds in times.items()},
        "ratio": max(ratios, default=None),
        "notes": [note for row in rows for note in row.notes],
    }
    if ratios and max(ratios) > SLOWER:
        shapes = {name: list(array.shape) for name, array in record.inputs().items() if hasattr(array, "shape")}
        try:
            kernels = dovetail.plan(record.model, dovetail.Inputs(shapes=shapes), threads=threads, rounds=5).kernels
        except dovetail.DovetailError as error:
            # The plan runs on random inputs, which some branches refuse.
            return {**found, "notes": [*found["notes"], f"no profile: {error.message}"]}
        kernels.sort(key=lambda kernel: -(kernel.share or 0))
        found["profile"] = [(kernel.kernel, kernel.count, kernel.share, kernel.is_native) for kernel in kernels[:SHOWN]]
    return found


def measured_at_sizes(facts: dict[str, Any], threads: int, calls: int) -> list[dict[str, Any]]:
    """One model at changing sizes; nothing for a model without open sizes."""
    sys.path.insert(0, str(ROOT / "tests"))
    from dovetail.measure.size_benchmark import measure_sizes
    from models.zoo_cells import PEERS, Record

    record = Record(ZOO, facts)
    feeds = feeds_of(record, calls)
    if len(feeds) < MIN_SIZES:
        return []
    ours, *others = measure_sizes(record.model, str(record.path), feeds, PEERS, threads)
    rows = (ours, *others)
    new = {row.engine: row.new for row in rows}
    ratios = [row.new_ratio for row in others if row.new_ratio is not None]
    notes = [note for row in rows for note in row.notes]
    seen = max((row.seen_ratio for row in others if row.seen_ratio is not None), default=None)
    p99 = ours.new_p99 / ours.new if ours.new and ours.new_p99 else None
    return [
        {
            "model": record.id,
            "threads": threads,
            "ms": {engine: seconds and seconds * 1e3 for engine, seconds in new.items()},
            "ratio": max(ratios, default=None),
            "notes": notes,
            "sizes": len(feeds),
            "seen": seen,
            "new of seen": ours.new / ours.seen if ours.new and ours.seen else None,
            "p99 of median": p99,
            "plans": ours.plans,
            "planning": ours.planning,
        }
    ]


def feeds_of(record: Any, calls: int) -> list[dict[str, Any]]:
    """Random inputs at sizes between half the smaller and twice the larger of the two that the zoo has, and multiples of both."""
    import numpy as np

    from dovetail.errors import DovetailError
    from dovetail.ir.inputs_outputs import check_inputs
    from dovetail.runtime.random_inputs import random_inputs

    model = record.model
    names = [value.name for value in model.inputs]
    if not record.has("2"):
        return []
    first, second = (check_inputs(model, [record.inputs(size)[name] for name in names]) for size in ("", "2"))
    chance = np.random.default_rng(0)
    feeds: list[dict[str, Any]] = []
    known = set()
    program = dovetail.compile(model, threads=1)
    for _ in range(4 * calls):
        sizes = {}
        for name, one in first.items():
            other = second[name]
            step = math.gcd(one, other) if one != other else one
            most = max(2 * max(one, other), BATCHES) if one != other else one
            sizes[name] = step * int(chance.integers(max(min(one, other) // step, 1), most // step + 1))
        if tuple(sizes.values()) in known:
            continue
        known.add(tuple(sizes.values()))
        try:
            feed = random_inputs(model, seed=0, sizes=sizes)
            program(feed)
        except DovetailError:
            continue
        feeds.append(feed)
        if len(feeds) == calls:
            break
    return feeds


def in_process(name: str, threads: list[int], rounds: int, sizes: int) -> list[dict[str, Any]]:
    """Return the rows of one model, from a process of its own; what ends the process is the note."""
    # -P: bench/models.py would hide tests/models.
    command = [sys.executable, "-P", __file__, "--one", name, "--rounds", str(rounds), "--threads", *map(str, threads)]
    command += ["--sizes", str(sizes)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        if ended.returncode == 0:
            return list(json.loads(ended.stdout.splitlines()[-1]))
        why = f"the process ended with code {ended.returncode}: {ended.stderr.strip()[-200:]}"
    except subprocess.TimeoutExpired:
        why = f"over {SECONDS} s"
    return [{"model": name, "threads": threads[0], "ms": {}, "ratio": None, "notes": [why]}]


def text(row: dict[str, Any]) -> str:
    """Return a row as printed."""
    times = "  ".join(f"{engine} {ms:9.3f} ms" for engine, ms in row["ms"].items() if ms is not None)
    ratio = f"{row['ratio']:.2f} of the better peer" if row["ratio"] else "; ".join(row["notes"])
    if row.get("sizes"):
        parts = (("seen", "seen"), ("new of seen", "new of seen"), ("p99 of median", "p99"))
        ratio += "".join(f", {word} {row[key]:.2f}" for key, word in parts if row[key] is not None)
        ratio += f", {row['sizes']} sizes, {row['plans']} plans in {row['planning']:.2f} s"
    return f"{row['model']:40} {row['threads']} threads  {times}  {ratio}  {profile(row)}".rstrip()


def profile(row: dict[str, Any]) -> str:
    """Return the kernels that take the most time, where they were measured."""
    return ", ".join(
        f"{count} {kernel}{'' if is_native else ' in Python'} {share:.0%}"
        for kernel, count, share, is_native in row.get("profile", ())
        if share is not None
    )


def mean(rows: list[dict[str, Any]]) -> float:
    """Return the geometric mean of the ratios."""
    logs = [math.log(row["ratio"]) for row in rows if row["ratio"]]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="parts of names; all models when left out")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--sizes", type=int, default=0, metavar="CALLS")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    index = {facts["id"]: facts for facts in json.loads((ZOO / "index.json").read_text(encoding="utf-8"))}
    if options.one:
        facts = index[options.one]
        if options.sizes:
            found = [row for threads in options.threads for row in measured_at_sizes(facts, threads, options.sizes)]
        else:
            found = [measured(facts, threads, options.rounds) for threads in options.threads]
        print(json.dumps(found))
        return
    texts = [part for part in options.models.split(",") if part]
    rows = []
    for name in index:
        if texts and not any(part in name for part in texts):
            continue
        for row in in_process(name, options.threads, options.rounds, options.sizes):
            rows.append(row)
            print(text(row), file=sys.stderr if options.json else sys.stdout, flush=True)
    counted = [row for row in rows if row["ratio"]]
    above = sum(row["ratio"] > 1.1 for row in counted)
    if options.json:
        print(json.dumps({"rows": rows, "geometric_mean": mean(rows)}))
    else:
        print(f"geometric mean {mean(rows):.3f} of {len(counted)} cells, {above} of them above 1.1")


if __name__ == "__main__":
    main()
