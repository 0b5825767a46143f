"""Check bounds of rounding (`dovetail diff --prove --bound`) by runs, and compare them with the measured differences.

    python bench/error_bounds.py [--networks N] [--first SEED] [--files FILE ...]

Random networks (tests/networks): the results of the native engine beside those of the interpreter on the simplified network, each
element against its bound. Files of either format: the native engine beside onnxruntime or OpenVINO, on the inputs in
NAME.in.npz or on random ones. A row has the number of
outputs whose elements are all within the bound, those without a bound, and quantiles of bound / measured difference and of
expected / measured difference, over the outputs that differ. The exit code is 1 if an element is beyond its bound.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.compare.rounding.error_bounds import DEVIATIONS, SAMPLES, evaluate_with_bounds, unit_of_f64
from dovetail.compare.rounding.rounded_array import RoundedArray
from dovetail.compare.rounding.rounding_functions import RoundingFunctions
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.runtime.random_inputs import random_inputs

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

Arrays = Mapping[str, Any]
Pair = tuple[dovetail.Model, Arrays, Sequence[Any], dovetail.Model, Sequence[Any]]
"""A model, inputs, its results; the other model and its results."""


def network_pairs(first: int, count: int, done: Counter[str]) -> Iterator[tuple[str, Pair]]:
    from networks.generator import generate

    for seed in range(first, first + count):
        network = generate(seed)
        model = network.model()
        simple = dovetail.simplify(model)
        for shot in network.shots[:1]:
            native = list(dovetail.compile(model)(shot).values())
            yield f"network {seed}", (model, shot, native, simple, list(dovetail.interpret(simple, shot).values()))
        done["networks"] += 1


def file_pairs(paths: Sequence[str], done: Counter[str]) -> Iterator[tuple[str, Pair]]:
    from dovetail.runtime.peers import Names, runner

    for path in paths:
        try:
            model = dovetail.load(path)
            stored = Path(path).with_suffix(".in.npz")
            inputs = dict(np.load(stored)) if stored.exists() else random_inputs(model, seed=0)
            native = list(dovetail.compile(model)(inputs).values())
            engine = "onnxruntime" if path.endswith(".onnx") else "openvino"
            names = Names([value.name for value in model.inputs], [value.name for value in model.outputs])
            other = list(runner(engine, path, threads=1, names=names, exact=True).run(inputs).values())
        except (DovetailError, RuntimeError) as error:
            print(f"{path}: {error}"[:200], file=sys.stderr)
            done["not run"] += 1
            continue
        done["files"] += 1
        yield Path(path).name, (model, inputs, native, model, other)


def check(name: str, pair: Pair, done: Counter[str], ratios: dict[str, list[float]]) -> None:
    model, inputs, ours, other, theirs = pair
    unit = unit_of_f64((model, other))
    try:
        bounds = [evaluate_with_bounds(each, RoundingFunctions(unit), inputs) for each in (model, other)]
    except UnsupportedError as error:
        done["without a bound"] += 1
        done[f"  {error.message[:60]}"] += 1
        return
    squares: list[Any] = [0.0] * len(ours)
    for sample in range(SAMPLES):
        functions = RoundingFunctions(unit, np.random.default_rng(sample))
        runs = zip(*(evaluate_with_bounds(each, functions, inputs) for each in (model, other)), strict=True)
        for index, (first, second) in enumerate(runs):
            squares[index] = squares[index] + _apart(first.value, second.value) ** 2
    for a, b, first, second, square in zip(*bounds, ours, theirs, squares, strict=True):
        if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
            _check_output(name, (a, b), (first, second), DEVIATIONS * np.sqrt(square / SAMPLES), done, ratios)


def _check_output(
    name: str,
    bounds: tuple[RoundedArray, RoundedArray],
    results: tuple[Any, Any],
    expected: Any,
    done: Counter[str],
    ratios: dict[str, list[float]],
) -> None:
    a, b = bounds
    first, second = (each.astype(np.float64) for each in results)
    measured = _apart(first, second)
    bound = sum(np.zeros(a.shape) if each.error is None else each.error for each in bounds) + _apart(a.value, b.value)
    done["outputs"] += 1
    is_within = (measured <= bound) | (first == second)
    if not is_within.all():
        done["beyond the bound"] += 1
        place = tuple(np.argwhere(~is_within)[0])
        print(f"{name}: {first[place]} and {second[place]} differ by more than {bound[place]}", file=sys.stderr)
    largest = float(np.max(measured, initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        done["equal"] += 1
        return
    greatest = float(np.max(bound))
    if largest > np.max(expected):
        done["beyond the expected"] += 1
        print(f"{name}: {largest:.3g} measured, {np.max(expected):.3g} expected", file=sys.stderr)
    done["infinite bound"] += np.isinf(greatest)
    ratios["bound"].append(greatest / largest)
    ratios["expected"].append(float(np.max(expected)) / largest)


def _apart(first: Any, second: Any) -> Any:
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.subtract(first, second, dtype=np.float64))
    return np.where(np.isnan(apart), 0.0, apart)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--files", nargs="*", default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done: Counter[str] = Counter()
    ratios: dict[str, list[float]] = {"bound": [], "expected": []}
    for source in (network_pairs(options.first, options.networks, done), file_pairs(options.files, done)):
        for name, pair in source:
            check(name, pair, done, ratios)
    for label, number in done.items():
        print(f"{label:60} {number:8,}")
    for label, found in ratios.items():
        if found:
            low, median, high = np.percentile(found, [10, 50, 90], method="nearest")
            print(f"{label} / measured, over {len(found):,} outputs: {low:.3g}, {median:.3g}, {high:.3g} (10 %, median, 90 %)")
    return int(done["beyond the bound"] > 0)


if __name__ == "__main__":
    sys.exit(main())
