"""Compare predicted costs with measured ones: memory of a process, time of a run, and the largest batch that fits.

    python bench/cost.py [--models NAME ...] [--batches 1 4 16] [--rounds N] [--fits MB]
    python bench/cost.py --fit [--models NAME ...] [--batches 1 8]

Models: the nine light models of the onnx package with an open batch (random weights), and exports with random weights
(examples/language_models.py, vision_models.py). Each row has the predicted memory and the growth of the peak resident memory
(VmHWM) of a process that loads, compiles and runs the model, beyond that of a process that does so with one Relu; and the
predicted and the shortest measured time of a run, with one thread. --fits searches the largest batch that takes
at most a number of megabytes, and runs it. --fit writes the factors of src/dovetail/engine/fitted_kernels.py
from the times of steps.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.engine.engine import Engine
from dovetail.engine.kernel_times import CACHED_BYTES, kind_of
from dovetail.engine.machine_limits import LimitMeter
from dovetail.engine.plan_report import step_facts
from dovetail.engine.profile import step_times
from dovetail.engine.step_profile import costs_of
from dovetail.runtime.peers import Names, cost as process_cost
from dovetail.runtime.random_inputs import random_inputs

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples")]
import language_models  # noqa: E402
import light_models  # noqa: E402
import vision_models  # noqa: E402

FACTORS = ROOT / "src" / "dovetail" / "engine" / "fitted_kernels.py"
LENGTHS = {"length": 64, "past": 63}
"""Sizes of open dimensions other than the batch."""
MIN_ROWS = 4
"""The minimum number of steps from which the factors of a kernel are fitted."""
MIN_SECONDS = 2e-6
"""Steps below are dominated by the timer."""


def light(name: str) -> Callable[[], dovetail.Model]:
    def make() -> dovetail.Model:
        model = dovetail.load(light_models.with_random_weights(name).SerializeToString())
        changed = dovetail.rebatch(model, {"0": "batch"}, verify=False)
        return changed[0] if isinstance(changed, tuple) else changed

    return make


def exported(make: Callable[[], Any]) -> Callable[[], dovetail.Model]:
    return lambda: dovetail.load(make()[0].SerializeToString())


MODELS: dict[str, Callable[[], dovetail.Model]] = {
    **{name: light(name) for name in light_models.names()},
    "bert": exported(lambda: language_models.bert(layers=4)),
    "gpt2": exported(lambda: language_models.gpt2(layers=2)),
    "lstm": exported(language_models.lstm_tagger),
    "vit": exported(lambda: vision_models.vit(layers=4)),
    "unet": exported(vision_models.unet),
    "resnet50 quantised": exported(vision_models.resnet50),
}


def sizes_at(model: dovetail.Model, batch: int) -> dict[str, int]:
    names = dovetail.infer_report(model).bounds
    return {name: LENGTHS.get(name, batch) for name in names}


def shortest_times(model: dovetail.Model, sizes: Mapping[str, int], rounds: int) -> tuple[float, list[tuple[str, Any, float]]]:
    """Return the shortest time of a run, and the kernel, cost and shortest time of each native step."""
    engine = Engine(model, 1)
    executable, arrays = engine.bind(random_inputs(model, sizes=sizes))
    names = [value.name for value in model.outputs]
    executable(arrays, None, names)
    runs, rows = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        executable(arrays, None, names)
        runs.append(time.perf_counter() - start)
        rows.append(step_times(executable, arrays, names))
    facts = zip(step_facts(executable, None), costs_of(executable), zip(*rows, strict=True), strict=True)
    return min(runs), [(fact.kernel, cost, min(times) / 1e9) for fact, cost, times in facts if fact.is_native]


# Fitting


def fit(names: Sequence[str], batches: Sequence[int], rounds: int) -> None:
    meter = LimitMeter(1)
    meter.measure(3)
    rows: dict[str, list[tuple[list[float], float]]] = {}
    for name in names:
        model = MODELS[name]()
        for batch in batches if sizes_at(model, 1) else [1]:
            for kernel, cost, seconds in shortest_times(model, sizes_at(model, batch), rounds)[1]:
                nbytes = cost.read + cost.written
                moved, is_cached = nbytes / meter.limits.copy_rate, nbytes <= CACHED_BYTES
                computed = cost.operations / meter.limits.rate_of(cost.arithmetic)
                features = [1e-6, moved * is_cached, moved * (not is_cached), computed]
                if seconds >= MIN_SECONDS:
                    for group in dict.fromkeys((kind_of(kernel), kind_of(kernel).split(" ")[0], "")):
                        rows.setdefault(group, []).append((features, seconds))
            print(f"timed {name}, batch {batch}", file=sys.stderr, flush=True)
        meter.measure(2)
    lines = []
    for group, samples in sorted(rows.items()):
        if len(samples) < MIN_ROWS:
            continue
        overhead, *rest = least_squares(np.array([row for row, _ in samples]), np.array([seconds for _, seconds in samples]))
        numbers = ", ".join(f"{number:.4g}" for number in (overhead * 1e-6, *rest))
        lines.append(f'    "{group}": ({numbers}),  # {len(samples)} steps\n')
    head = f'"""Factors of kernel times, written by ``python bench/cost.py --fit`` on {processor()}, with one thread."""\n'
    FACTORS.write_text(
        f"{head}\nFACTORS: dict[str, tuple[float, float, float, float]] = {{\n{''.join(lines)}}}\n"
        '"""Maps a kernel to its overhead in seconds, and to its factors for cached bytes, streamed bytes and operations."""\n'
    )


def least_squares(features: Any, seconds: Any) -> list[float]:
    """Return the factors >= 0 that minimize the sum of squared errors, each divided by its time."""
    weights = 1 / np.sqrt(seconds)
    best: tuple[float, list[float]] | None = None
    columns = [index for index in range(features.shape[1]) if features[:, index].any()]
    for count in range(1, len(columns) + 1):
        for chosen in itertools.combinations(columns, count):
            found = np.linalg.lstsq(features[:, chosen] * weights[:, None], seconds * weights, rcond=None)[0]
            if (found < 0).any():
                continue
            error = float((((features[:, chosen] @ found - seconds) * weights) ** 2).sum())
            if best is None or error < best[0]:
                factors = [0.0] * features.shape[1]
                for index, factor in zip(chosen, found, strict=True):
                    factors[index] = float(factor)
                best = error, factors
    assert best is not None
    cached, streamed = best[1][1:3]
    # A kernel without steps of one class of sizes has the factor of the other class.
    best[1][1:3] = [cached if features[:, 1].any() else streamed, streamed if features[:, 2].any() else cached]
    return best[1]


def processor() -> str:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as stream:
        fields = dict(line.split(":", 1) for line in stream.read().split("\n\n")[0].splitlines() if ":" in line)
    found = {name.strip(): value.strip() for name, value in fields.items()}
    return f"{found['model name']} (family {found['cpu family']}, model {found['model']}), {dovetail_isa()}"


def dovetail_isa() -> str:
    from dovetail.ir.host import native_core

    return native_core.instruction_set()


# Comparison


def peak_of(path: str, model: dovetail.Model, sizes: Mapping[str, int]) -> int:
    names = Names([value.name for value in model.inputs], [value.name for value in model.outputs])
    return process_cost("dovetail", path, 1, names, random_inputs(model, sizes=sizes)).peak_bytes


def peak_of_one_operator(folder: str) -> int:
    """Return the peak of a process that loads, compiles and runs one Relu."""
    with dovetail.Builder("relu") as b:
        b.output("y", b.Relu(b.input("x", "f32", (4,))))
    dovetail.save(b.model, f"{folder}/relu.onnx")
    return peak_of(f"{folder}/relu.onnx", b.model, {})


def compare(names: Sequence[str], batches: Sequence[int], rounds: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        empty = peak_of_one_operator(folder)
        for name in names:
            path = f"{folder}/model.onnx"
            model = MODELS[name]()
            dovetail.save(model, path)
            for batch in batches if sizes_at(model, 1) else [1]:
                sizes = sizes_at(model, batch)
                report = dovetail.cost(path, sizes, threads=1)
                measured = peak_of(path, model, sizes) - empty
                seconds = shortest_times(model, sizes, rounds)[0]
                yield {
                    "model": name, "batch": batch, "memory": report.memory_bytes, "measured": measured,
                    "memory_error": report.memory_bytes / measured - 1,
                    "process_error": (report.memory_bytes - measured) / (measured + empty),
                    "ms": None if report.seconds is None else report.seconds * 1e3, "measured_ms": seconds * 1e3,
                    "time_error": None if report.seconds is None else report.seconds / seconds - 1,
                }  # fmt: skip


def fitting(names: Sequence[str], megabytes: int) -> None:
    print("| model | limit MB | batch | predicted MB | measured growth MB |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        empty = peak_of_one_operator(folder)
        for name in names:
            model = MODELS[name]()
            sizes = sizes_at(model, 1)
            if not sizes:
                continue
            dovetail.save(model, f"{folder}/model.onnx")
            fits = dovetail.cost(f"{folder}/model.onnx", sizes, fits=megabytes * 10**6, vary="batch", threads=1).fits
            if fits is None or fits.size is None or fits.memory is None:
                print(f"| {name} | {megabytes} | none | | |", flush=True)
                continue
            measured = peak_of(f"{folder}/model.onnx", model, {**sizes, "batch": fits.size}) - empty
            print(f"| {name} | {megabytes} | {fits.size} | {fits.memory / 1e6:.1f} | {measured / 1e6:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fit", action="store_true", help="write the factors of kernel times")
    parser.add_argument("--fits", type=int, metavar="MB", help="find the largest batch within this number of megabytes")
    options = parser.parse_args()
    if options.fit:
        fit(options.models, options.batches, options.rounds)
        return
    if options.fits is not None:
        fitting(options.models, options.fits)
        return
    print("| model | batch | memory MB | measured MB | error | of the process | time ms | measured ms | error |")
    print("| --- " * 9 + "|")
    rows = []
    for row in compare(options.models, options.batches, options.rounds):
        rows.append(row)
        ms, error = ("-", "-") if row["ms"] is None else (f"{row['ms']:.2f}", f"{row['time_error']:+.0%}")
        print(
            f"| {row['model']} | {row['batch']} | {row['memory'] / 1e6:.1f} | {row['measured'] / 1e6:.1f} "
            f"| {row['memory_error']:+.1%} | {row['process_error']:+.1%} | {ms} | {row['measured_ms']:.2f} | {error} |",
            flush=True,
        )
    memory = [abs(row["memory_error"]) for row in rows]
    process = [abs(row["process_error"]) for row in rows]
    times = [abs(row["time_error"]) for row in rows if row["time_error"] is not None]
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}")
    print(f"memory: median error {statistics.median(memory):.1%} of the growth, {statistics.median(process):.1%} of the process")
    if times:
        within = sum(error <= 0.25 for error in times)
        print(f"time: median error {statistics.median(times):.0%}; {within} of {len(times)} within 25 %")


if __name__ == "__main__":
    main()
