"""Measure common kinds of models beside onnxruntime and OpenVINO: medians of interleaved runs, as ratios.

    python bench/models.py [--models NAME ...] [--threads 1 2] [--rounds N] [--precision bf16] [--json]
    python bench/models.py --profile FOLDER [--models NAME ...] [--threads 1]

Sizes and forms are those of real exports, weights are random and seeded (examples/language_models.py, vision_models.py);
f32 but for the quantised one. Every engine gets the same inputs and the same number of threads. The difference is the largest one
from any peer's results, as a part of the greatest magnitude of an output. A ratio below 1 means that dovetail is faster.
With --precision bf16 dovetail and OpenVINO compute in bf16, and the differences of each engine are from dovetail's f32.

With --profile a trace, a page of the profile and a report of each model are written instead, and a row of a table is printed.
Its last cell is the number of slices that Perfetto reads from the trace, where it is installed (tests/perfetto_ui.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.measure.benchmark import PEERS, median_times
from dovetail.runtime.peers import Names, is_installed, runner

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]
import language_models  # noqa: E402
import vision_models  # noqa: E402

from perfetto_ui import IS_INSTALLED, query_trace  # noqa: E402

MODELS: dict[str, Callable[[], Any]] = {
    "BERT-base, 1 x 128": language_models.bert,
    "GPT-2 small, 1 after 511": language_models.gpt2,
    "Llama 135M, 1 after 511": language_models.llama,
    "ViT-B/16": vision_models.vit,
    "detector, 640 x 640": vision_models.detector,
    "U-Net, 256 x 256": vision_models.unet,
    "LSTM tagger, 1 x 128": language_models.lstm_tagger,
    "ResNet-50, quantised": vision_models.resnet50,
}


def difference(ours: Mapping[str, Any], others: Mapping[str, Any]) -> float:
    """Return the largest difference of any output, as a part of the output's greatest magnitude."""
    found = 0.0
    for name, array in others.items():
        mine, theirs = np.asarray(ours[name], np.float64), np.asarray(array, np.float64)
        found = max(found, float(np.abs(mine - theirs).max() / max(np.abs(theirs).max(), 1e-30)))
    return found


def measured(
    name: str, threads: int, rounds: int, data: bytes, names: Names, feed: Mapping[str, Any], precision: str = "f32"
) -> dict[str, Any]:
    runners = {
        each: runner(each, data, threads, names, precision=precision) for each in ("dovetail", *PEERS) if is_installed(each)
    }
    results = {each: found.run(feed) for each, found in runners.items()}
    times = median_times({each: found.call(feed) for each, found in runners.items()}, rounds)
    peers = {each: seconds for each, seconds in times.items() if each != "dovetail"}
    exact = results["dovetail"] if precision == "f32" else runner("dovetail", data, threads, names).run(feed)
    differences = {each: difference(exact, found) for each, found in results.items() if found is not exact}
    between = [difference(results[a], results[b]) for a in peers for b in peers if a < b]
    return {
        "model": name,
        "threads": threads,
        "ms": {each: seconds * 1e3 for each, seconds in times.items()},
        "ratio": times["dovetail"] / min(peers.values()) if peers else None,
        "differences": differences,
        "peers_difference": max(between, default=None),
    }


def text(row: dict[str, Any]) -> str:
    times = "  ".join(f"{each} {ms:8.2f} ms" for each, ms in row["ms"].items())
    ratio = f"{row['ratio']:.2f} of the best peer" if row["ratio"] else ""
    differences = ", ".join(f"{each} {size:.1e}" for each, size in row["differences"].items())
    return f"{row['model']:26} threads {row['threads']}:  {times}   {ratio}   (differences: {differences})"


def count_slices(trace: str) -> str:
    """Return the slices that Perfetto has of a trace, all of them and without an error of its parser.

    "-" where it is not installed.
    """
    if not IS_INSTALLED:
        return "-"
    queries = {
        "slices": "select count(*) as n from slice",
        "errors": "select coalesce(sum(value), 0) as n from stats where severity in ('error', 'data_loss')",
    }
    with tempfile.TemporaryDirectory() as folder:
        answers = query_trace(trace, queries, Path(folder))
    events = sum(event["ph"] == "X" for event in json.loads(trace)["traceEvents"])
    assert answers == {"slices": str(events), "errors": "0"}, answers
    return answers["slices"]


def write_profile(name: str, folder: Path, threads: int, data: bytes, feed: Mapping[str, Any]) -> str:
    """Write ``dovetail profile`` in all engines and ``dovetail report``; the row of the table of docs/measurements/reports.md."""
    stem = "".join(character if character.isalnum() else "-" for character in name)
    path = folder / f"{stem}.onnx"
    path.write_bytes(data)
    start = time.perf_counter()
    engines = ["native", *(each for each in PEERS if is_installed(each))]
    profile = dovetail.profile(path, feed, engines=engines, threads=threads)
    seconds = time.perf_counter() - start
    (folder / f"{stem}.trace.json").write_text(profile.trace())
    (folder / f"{stem}.html").write_text(profile.html())
    start = time.perf_counter()
    page = dovetail.model_report(path, feed, threads=threads).html()
    report_seconds = time.perf_counter() - start
    (folder / f"{stem}.report.html").write_text(page)
    path.unlink()
    native = profile.engines[0]
    steps = [step for step in native.steps if step.attainable is not None]
    limit = sum(step.attainable or 0.0 for step in steps) / native.step_seconds
    top = native.operators()[0]
    cells = [
        name, str(len(native.steps)), *(f"{engine.step_seconds * 1e3:.2f}" for engine in profile.engines),
        f"{top.name} {top.share:.0%}", f"{sum(step.operations or 0 for step in steps) / 1e9:.2f}",
        f"{sum(step.nbytes or 0 for step in steps) / 1e6:.0f}", f"{limit:.0%}", f"{seconds:.1f}", f"{report_seconds:.1f}",
        f"{len(page) / 1e3:.0f}", count_slices(profile.trace()),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="the beginnings of their names")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="write traces, profiles and reports into this folder")
    options = parser.parse_args()
    rows = []
    for name, make in MODELS.items():
        if not name.startswith(tuple(options.models)):
            continue
        model, feed = make()
        names = Names([each.name for each in model.graph.input], [each.name for each in model.graph.output])
        data = model.SerializeToString()
        del model
        if options.profile:
            options.profile.mkdir(parents=True, exist_ok=True)
            print(write_profile(name, options.profile, options.threads[0], data, feed), flush=True)
            continue
        for threads in options.threads:
            rows.append(measured(name, threads, options.rounds, data, names, feed, options.precision))
            if not options.json:
                print(text(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"rows": rows, "load": os.getloadavg()}, indent=1))


if __name__ == "__main__":
    main()
