"""Compare predicted costs with measured ones: memory of a process, time of a run, and the largest batch that fits.

    python bench/cost.py [--models NAME ...] [--batches 1 4 16] [--rounds N] [--fits MB]
    python bench/cost.py --zoo [--rounds N]
    python bench/cost.py --fit times [--batches 1 8]
    python bench/cost.py --fit objects

Models: the nine light models of the onnx package with an open batch (random weights), and exports with random weights
(examples/language_models.py, vision_models.py). Each row has the predicted memory and the growth of the peak resident memory
(VmHWM) of a process that loads, compiles and runs the model, beyond that of a process that does so with one Relu; and the
predicted and the shortest measured time of a run, with one thread. --fits searches the largest batch that takes
at most a number of megabytes, and runs it. --zoo measures the models of build/zoo (bench/zoo.py fills it) at three sizes.
--fit times writes the factors of src/dovetail/engine/fitted_kernels.py from the times of steps; --fit objects those of
fitted_objects.py from peaks of exports of few weights (OBJECT_MODELS), which no table of results has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dovetail
from dovetail.engine.engine import Engine
from dovetail.engine.kernel_times import CACHED_BYTES, kind_of, moved_by
from dovetail.engine.machine_limits import LimitMeter
from dovetail.engine.plan_report import step_facts
from dovetail.engine.profile import step_times
from dovetail.engine.run.executable import Executable, output_bytes_of
from dovetail.engine.step_costs import StepCost
from dovetail.engine.step_profile import costs_of
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.runtime.peers import Names, cost as process_cost
from dovetail.runtime.random_inputs import random_inputs

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples")]
import language_models  # noqa: E402
import light_models  # noqa: E402
import vision_models  # noqa: E402
from kernel_samples import samples  # noqa: E402

ENGINE = ROOT / "src" / "dovetail" / "engine"
FACTORS, OBJECTS = ENGINE / "fitted_kernels.py", ENGINE / "fitted_objects.py"
ZOO = ROOT / "build" / "zoo"
LENGTHS = {"length": 64, "past": 63}
"""Sizes of open dimensions other than the batch."""
MIN_ROWS = 4
"""The minimum number of steps from which the factors of a kernel are fitted."""
MIN_SECONDS = 3e-7
"""Steps below are dominated by the timer."""
EVICTED = np.ones(8 << 17)
"""An array of 8 MiB, more than the private cache of a core holds."""
MIN_MEASURED = 0.02
"""The minimum seconds that the runs of a model are measured."""
MAX_PROFILED = 10
"""The maximum number of runs whose steps are measured."""
SAMPLES_PER_LIMITS = 25
"""The number of layers after which the limits of the machine are measured again."""


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

OBJECT_MODELS: dict[str, Callable[[], dovetail.Model]] = {
    **{f"bert of {n} layers": exported(partial(language_models.bert, n, 64, 4, 128, 500)) for n in (1, 6, 24)},
    **{f"gpt2 of {n} layers": exported(partial(language_models.gpt2, n, 64, 4, 500, 63)) for n in (1, 8)},
    **{f"llama of {n} layers": exported(partial(language_models.llama, n, 64, 4, 2, 128, 500)) for n in (1, 8)},
    **{f"lstm of {n} layers": exported(partial(language_models.lstm_tagger, n, 32, 32, 500)) for n in (1, 4)},
    **{f"vit of {n} layers": exported(partial(vision_models.vit, n, 64, 4, 64)) for n in (2, 12)},
    "unet": exported(partial(vision_models.unet, 64, 8)),
    "detector": exported(partial(vision_models.detector, 64)),
    "resnet50": exported(partial(vision_models.resnet50, 64, False)),
}
"""The models from which the memory of objects is fitted."""


def sizes_at(model: dovetail.Model, batch: int) -> dict[str, int]:
    names = dovetail.infer_report(model).bounds
    return {name: LENGTHS.get(name, batch) for name in names}


class Times(NamedTuple):
    """Times holds the shortest seconds of a run, its executable, and each native step: kernel, cost and shortest seconds.

    ``cold_steps``: the same steps after EVICTED was read.
    """

    run: float
    executable: Executable
    steps: list[tuple[str, StepCost, float]]
    cold_steps: list[tuple[str, StepCost, float]]


def shortest_times(model: dovetail.Model, sizes: Mapping[str, int], rounds: int, cold_rounds: int = 0) -> Times:
    """Measure runs: ``rounds`` of them, and more of a small model until MIN_MEASURED seconds have passed."""
    engine = Engine(model, 1)
    executable, arrays = engine.bind(random_inputs(model, sizes=sizes))
    names = [value.name for value in model.outputs]
    executable(arrays, None, names)
    runs: list[float] = []
    rows: list[list[int]] = []
    while len(runs) < rounds or sum(runs) < MIN_MEASURED:
        start = time.perf_counter()
        executable(arrays, None, names)
        runs.append(time.perf_counter() - start)
        if len(rows) < MAX_PROFILED:
            rows.append(step_times(executable, arrays, names))
    cold_rows: list[list[int]] = []
    for _ in range(cold_rounds):
        EVICTED.sum()
        cold_rows.append(step_times(executable, arrays, names))

    def steps(rows: list[list[int]]) -> list[tuple[str, StepCost, float]]:
        facts = zip(step_facts(executable, None), costs_of(executable), zip(*rows, strict=True), strict=True)
        return [(fact.kernel, cost, min(times) / 1e9) for fact, cost, times in facts if fact.is_native]

    return Times(min(runs), executable, steps(rows), steps(cold_rows) if cold_rows else [])


# Fitting


def fit(batches: Sequence[int], rounds: int) -> None:
    """Fit the factors of kernels, and of a run, to MODELS and to single layers (kernel_samples)."""
    meter = LimitMeter(1)
    rows: dict[str, list[tuple[list[float], float]]] = {}
    runs: list[tuple[list[float], float, float]] = []

    def add(model: dovetail.Model, sizes: Mapping[str, int], cold_rounds: int = 0) -> None:
        found = shortest_times(model, sizes, rounds, cold_rounds)
        plan, constant = found.executable.plan, sum(cost.constant for _, cost, _ in found.steps)
        features = [1.0, len(plan.inputs) + len(plan.outputs), len(plan.steps), output_bytes_of(plan)]
        runs.append((features, found.run - sum(seconds for *_, seconds in found.steps), found.run))
        timed = [(constant > CACHED_BYTES, step) for step in found.steps]
        timed += [(True, step) for step in found.cold_steps]
        for is_cold, (kernel, cost, seconds) in timed:
            cached, streamed = (nbytes / meter.limits.copy_rate for nbytes in moved_by(cost, is_cold))
            rate = meter.limits.rate_of(cost.arithmetic)
            computed, evaluated = (cost.operations - cost.functions) / rate, cost.functions / rate
            numbers = [1e-6, cached, streamed, computed, evaluated]
            for group in dict.fromkeys((kind_of(kernel), kind_of(kernel).split(" ")[0], "")):
                rows.setdefault(group, []).append((numbers, max(seconds, MIN_SECONDS)))

    for number, (name, model) in enumerate(samples()):
        if number % SAMPLES_PER_LIMITS == 0:
            meter.measure(2, is_first=True)
            print(f"timed {number} layers, next: {name}", file=sys.stderr, flush=True)
        add(model, {}, rounds)
    for name, make in MODELS.items():
        meter.measure(2, is_first=True)
        model = make()
        for batch in batches if sizes_at(model, 1) else [1]:
            add(model, sizes_at(model, batch))
            print(f"timed {name}, batch {batch}", file=sys.stderr, flush=True)
    lines = []
    for group, found in sorted(rows.items()):
        if len(found) < MIN_ROWS:
            continue
        overhead, *rest = least_squares(np.array([row for row, _ in found]), np.array([seconds for _, seconds in found]))
        numbers = ", ".join(f"{number:.4g}" for number in (overhead * 1e-6, *rest))
        lines.append(f'    "{group}": ({numbers}),  # {len(found)} steps\n')
    of_runs = [np.array(column) for column in zip(*runs, strict=True)]
    scale = of_runs[0].max(axis=0)
    of_run = np.array(nonnegative_least_squares(of_runs[0] / scale, np.maximum(of_runs[1], 0), of_runs[2])) / scale
    head = f'"""Factors of kernel times, written by ``python bench/cost.py --fit times`` on {processor()}, one thread."""\n'
    FACTORS.write_text(
        f"{head}\nFACTORS: dict[str, tuple[float, float, float, float, float]] = {{\n{''.join(lines)}}}\n"
        '"""Maps a kernel to its overhead in seconds, and to its factors for cached bytes, streamed bytes, operations and '
        'functions."""\n\n'
        f"RUN = ({', '.join(f'{number:.4g}' for number in of_run)})  # {len(runs)} runs\n"
        '"""The seconds of a run beside its steps: of each run, of an input or output, of a step, of a byte of an output."""\n'
    )


def fit_objects() -> None:
    rows, bytes_ = [], []
    with tempfile.TemporaryDirectory() as folder:
        empty = peak_of_one_operator(folder)
        for name, make in OBJECT_MODELS.items():
            path = f"{folder}/model.onnx"
            dovetail.save(make(), path)
            model = dovetail.load(path)
            sizes = sizes_at(model, 1)
            report = dovetail.cost(model, sizes, threads=1)
            measured = peak_of(path, model, sizes) - empty - report.memory_bytes + report.memory["objects"]
            rows.append([1.0, len(model.graph.nodes), sum(row.count for row in report.kernels)])
            bytes_.append(measured)
            print(f"{name}: {measured:,} bytes, {rows[-1][1:]} nodes and steps", file=sys.stderr, flush=True)
    features, found = np.array(rows), np.array(bytes_)
    factors = ", ".join(f"{number:.0f}." for number in nonnegative_least_squares(features, found, np.sqrt(np.maximum(found, 1))))
    OBJECTS.write_text(
        f'"""Memory of the objects of a program, written by ``python bench/cost.py --fit objects``."""\n\n'
        f"OBJECTS = ({factors.replace('., ', '.0, ')}0)  # {len(rows)} models\n"
        '"""The bytes of a program beyond those of one with one operator: of each program, of a node, and of a planned step."""\n'
    )


def nonnegative_least_squares(features: Any, values: Any, scales: Any) -> list[float]:
    """Return the factors >= 0 that minimize the sum of squared errors, each divided by its scale."""
    columns = [index for index in range(features.shape[1]) if features[:, index].any()]
    best: tuple[float, list[float]] | None = None
    for count in range(1, len(columns) + 1):
        for chosen in itertools.combinations(columns, count):
            found = np.linalg.lstsq(features[:, chosen] / scales[:, None], values / scales, rcond=None)[0]
            if (found < 0).any():
                continue
            error = float((((features[:, chosen] @ found - values) / scales) ** 2).sum())
            if best is None or error < best[0]:
                factors = [0.0] * features.shape[1]
                for index, factor in zip(chosen, found, strict=True):
                    factors[index] = float(factor)
                best = error, factors
    assert best is not None
    return best[1]


def least_squares(features: Any, seconds: Any) -> list[float]:
    """Return the factors >= 0 that minimize the sum of squared relative errors."""
    factors = nonnegative_least_squares(features, seconds, seconds)
    cached, streamed, computed, evaluated = factors[1:]
    # A kernel without steps of one class of sizes or operations has the factor of the other class.
    has = features.any(axis=0)
    return [
        factors[0],
        cached if has[1] else streamed,
        streamed if has[2] else cached,
        computed if has[3] else evaluated,
        evaluated if has[4] else computed,
    ]


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


class Case(NamedTuple):
    """Case is a model with a file, and its sizes with their labels."""

    name: str
    path: str
    model: dovetail.Model
    sizes: list[tuple[str, dict[str, int]]]


def cases_of_models(names: Sequence[str], batches: Sequence[int], folder: str) -> Iterator[Case]:
    for name in names:
        model, path = MODELS[name](), f"{folder}/model.onnx"
        dovetail.save(model, path)
        chosen = batches if sizes_at(model, 1) else [1]
        yield Case(name, path, model, [(str(batch), sizes_at(model, batch)) for batch in chosen])


def cases_of_zoo() -> Iterator[Case]:
    """Yield the models of build/zoo: at the sizes of their inputs, and at a third one as far beyond the second as that is."""
    for row in json.loads((ZOO / "index.json").read_text(encoding="utf-8")):
        path = str(ZOO / row["file"])
        model = dovetail.load(path)
        first, second = (sizes_of_arrays(model, ZOO / row["inputs"].format(which)) for which in ("", "2"))
        names = dovetail.infer_report(model).bounds
        if first is None or not names:
            yield Case(row["id"], path, model, [("-", {})])
            continue
        second = second or {name: 2 * size for name, size in first.items()}
        third = {name: 2 * second[name] - size for name, size in first.items()}
        found = [first, second, third]
        yield Case(row["id"], path, model, [(" x ".join(map(str, sizes.values())), sizes) for sizes in found])


def sizes_of_arrays(model: dovetail.Model, path: Path) -> dict[str, int] | None:
    """Return the open sizes that the arrays of a file have; None without a file."""
    if not path.exists():
        return None
    with np.load(path) as arrays:
        pairs = [(value.shape or (), arrays[value.name].shape) for value in model.inputs if value.name in arrays]
    return {
        name: size
        for shape, sizes in pairs
        for extent, size in zip(shape, sizes, strict=False)
        if extent is not None and (name := symbolic.name_of(extent)) is not None
    }


def compare(cases: Callable[[str], Iterator[Case]], rounds: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        empty = peak_of_one_operator(folder)
        for name, path, model, chosen in cases(folder):
            for label, sizes in chosen:
                try:
                    LimitMeter(1).measure(is_first=True)
                    report = dovetail.cost(path, sizes, threads=1)
                    measured = peak_of(path, model, sizes) - empty
                    seconds = shortest_times(model, sizes, rounds).run if rounds else None
                except DovetailError as error:
                    print(f"{name} at {label}: [{error.code}] {error.message}"[:160], file=sys.stderr, flush=True)
                    continue
                yield {
                    "model": name, "batch": label, "is_partial": any("counted" in note for note in report.notes),
                    "memory": report.memory_bytes, "measured": measured,
                    "memory_error": report.memory_bytes / measured - 1,
                    "process_error": (report.memory_bytes - measured) / (measured + empty),
                    "ms": report.seconds and report.seconds * 1e3, "measured_ms": seconds and seconds * 1e3,
                    "time_error": report.seconds / seconds - 1 if report.seconds and seconds else None,
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
    parser.add_argument("--rounds", type=int, default=5, help="timed runs; 0: memory alone")
    parser.add_argument("--fit", choices=("times", "objects"), help="write the factors of kernel times, or of objects")
    parser.add_argument("--zoo", action="store_true", help="measure the models of build/zoo")
    parser.add_argument("--fits", type=int, metavar="MB", help="find the largest batch within this number of megabytes")
    options = parser.parse_args()
    if options.fit == "objects":
        fit_objects()
        return
    if options.fit:
        fit(options.batches, options.rounds)
        return
    if options.fits is not None:
        fitting(options.models, options.fits)
        return
    print("| model | size | memory MB | measured MB | error | of the process | time ms | measured ms | error |")
    print("| --- " * 9 + "|")
    rows = []
    cases = partial(cases_of_models, options.models, options.batches)
    for row in compare((lambda _: cases_of_zoo()) if options.zoo else cases, options.rounds):
        rows.append(row)
        times = [f"{ms:.2f}" if ms else "-" for ms in (row["ms"], row["measured_ms"])]
        error = "-" if row["time_error"] is None else f"{row['time_error']:+.0%}"
        print(
            f"| {row['model']}{' (part)' if row['is_partial'] else ''} | {row['batch']} "
            f"| {row['memory'] / 1e6:.1f} | {row['measured'] / 1e6:.1f} "
            f"| {row['memory_error']:+.1%} | {row['process_error']:+.1%} | {times[0]} | {times[1]} | {error} |",
            flush=True,
        )
    # A note says what memory is not counted.
    rows = [row for row in rows if not row["is_partial"]]
    memory = [abs(row["memory_error"]) for row in rows]
    process = [abs(row["process_error"]) for row in rows]
    errors = [abs(row["time_error"]) for row in rows if row["time_error"] is not None]
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}")
    print(f"memory: median error {statistics.median(memory):.1%} of the growth, {statistics.median(process):.1%} of the process")
    if errors:
        within = sum(error <= 0.25 for error in errors)
        print(f"time: median error {statistics.median(errors):.0%}; {within} of {len(errors)} within 25 %")


if __name__ == "__main__":
    main()
