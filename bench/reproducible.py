"""Digests of reproducible programs over instruction sets, numbers of threads, batches and positions, and their cost.

    python bench/reproducible.py [--models TEXT ...] [--files FILE ...] [--networks N] [--first SEED] [--threads 1 2 4 8]
    python bench/reproducible.py --cost [--models TEXT ...] [--rounds N]

A process for each instruction set that the processor has (DOVETAIL_ISA=avx2, avx512) compiles each model with
``reproducible=True``, and runs one row in batches of five sizes, at the first, the middle and the last position, with each number
of threads: the outputs of the row must have one digest. Models without a batch, files and random networks (tests/networks) run on
one set of inputs. Models are those of bench/cost.py. The exit code is 1 if digests differ; models that a reproducible program
refuses are listed. --cost compares the times of reproducible programs and of default ones in interleaved runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cost import MODELS, sizes_at

import dovetail
from dovetail.cli.run import digest_of
from dovetail.errors import DovetailError
from dovetail.ir.host import native_core
from dovetail.runtime.random_inputs import random_inputs

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]
SIZES = (1, 2, 3, 5, 8)
Arrays = Mapping[str, Any]


def batch_axes(model: dovetail.Model, values: Sequence[Any]) -> dict[str, int | None]:
    """Return the axis of each value whose size is the batch; None for a value without one."""
    found: dict[str, int | None] = {}
    for value in values:
        axes = [axis for axis, size in enumerate(value.type.shape or ()) if str(size) == "batch"]
        found[value.name] = axes[0] if len(axes) == 1 else None
    return found


def row_runs(model: dovetail.Model) -> Iterator[tuple[dict[str, Any], Callable[[Arrays], list[Any]]]]:
    """Yield inputs with one row at each position, and a function that takes the row out of the outputs."""
    inputs, outputs = batch_axes(model, model.inputs), batch_axes(model, model.outputs)
    row = random_inputs(model, seed=0, sizes=sizes_at(model, 1))
    for size in SIZES:
        others = random_inputs(model, seed=size, sizes=sizes_at(model, size))
        for place in sorted({0, size // 2, size - 1}):
            arrays = dict(row)
            for name, axis in inputs.items():
                if axis is None:
                    continue
                # Other open sizes than the batch are those of the row.
                shape = [*row[name].shape]
                shape[axis] = size
                filled = np.resize(others[name], shape).astype(row[name].dtype)
                filled[(*(slice(None),) * axis, slice(place, place + 1))] = row[name]
                arrays[name] = filled

            def take(results: Arrays, place: int = place) -> list[Any]:
                return [
                    np.take(results[name], [place], axis) if axis is not None else np.zeros(0) for name, axis in outputs.items()
                ]

            yield arrays, take


def cases(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], dovetail.Model], Arrays | None]]:
    """Yield the name, the model, and its inputs; None for a model with a batch."""
    for name, make in MODELS.items():
        if options.networks == 0 and not options.files and any(text in name for text in options.models):
            yield name, make, None
    for path in options.files:
        stored = Path(path).with_suffix(".in.npz")

        def load(path: str = path) -> dovetail.Model:
            return dovetail.load(path)

        yield Path(path).name, load, dict(np.load(stored)) if stored.exists() else {}
    if options.networks:
        from networks.generator import generate

        for seed in range(options.first, options.first + options.networks):
            network = generate(seed)
            for number, shot in enumerate(network.shots):
                yield f"network {seed} {number}", network.model, shot


def work(options: argparse.Namespace) -> None:
    """Print a line with the digests of each case: a set of one is expected."""
    for name, make, given in cases(options):
        digests: set[str] = set()
        try:
            model = make()
            arrays = random_inputs(model, seed=0) if given == {} else given
            for threads in options.threads:
                program = dovetail.compile(model, threads=threads, reproducible=True)
                if arrays is not None:
                    digests.add(digest_of(list(program(arrays).values())))
                    continue
                for inputs, take in row_runs(model):
                    digests.add(digest_of(take(program(inputs))))
        except DovetailError as error:
            print(json.dumps([name, f"refused: {error.code}"]), flush=True)
            continue
        print(json.dumps([name, " ".join(sorted(digests))]), flush=True)


def compare(options: argparse.Namespace, words: Sequence[str]) -> int:
    present = ["avx2", *(["avx512"] if native_core.instruction_set() in ("avx512", "amx") else [])]
    found: dict[str, list[str]] = {}
    for isa in present:
        environment = {**os.environ, "DOVETAIL_ISA": isa}
        with subprocess.Popen(
            [sys.executable, __file__, "--work", *words], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                name, digests = json.loads(line)
                found.setdefault(name, []).append(digests)
        if process.returncode:
            return process.returncode
    refused = {name: rows for name, rows in found.items() if any(row.startswith("refused") for row in rows)}
    wrong = {name: rows for name, rows in found.items() if name not in refused and len(set(" ".join(rows).split())) != 1}
    for name, rows in {**refused, **wrong}.items():
        print(f"{name:40} {' | '.join(rows)}")
    equal = len(found) - len(refused) - len(wrong)
    print(f"{', '.join(present)}: {equal} of {len(found)} have one digest, {len(refused)} refused")
    return 1 if wrong else 0


def measure_cost(options: argparse.Namespace) -> None:
    """Print the ratio of the times of reproducible and default programs."""
    ratios = []
    for name, make in MODELS.items():
        if not any(text in name for text in options.models):
            continue
        model = make()
        arrays = random_inputs(model, seed=0, sizes=sizes_at(model, 1))
        programs = [dovetail.compile(model, threads=options.threads[0], reproducible=each) for each in (False, True)]
        times: list[list[float]] = [[], []]
        for number in range(options.rounds + 1):
            for index, program in enumerate(programs):
                start = time.perf_counter()
                program(arrays)
                if number:
                    times[index].append(time.perf_counter() - start)
        usual, reproducible = map(statistics.median, times)
        ratios.append(reproducible / usual)
        print(f"{name:24} {usual * 1e3:9.2f} ms {reproducible * 1e3:9.2f} ms {ratios[-1]:6.3f}", flush=True)
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[""])
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--networks", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.work:
        work(options)
        return 0
    if options.cost:
        measure_cost(options)
        return 0
    return compare(options, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
