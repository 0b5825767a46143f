"""Measure the time until a model is ready: dovetail.compile and its first plan beside OpenVINO's compile_model, interleaved.

    python bench/compile.py [MODEL.onnx] [--rounds N]

Without a file: densenet121 with random weights. `plan` is planning alone, of a model that is prepared already.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dovetail
from dovetail.engine.engine import Engine
from dovetail.measure.benchmark import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import light_models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or str(Path(folder) / "densenet121.onnx")
        if options.model is None:
            onnx.save(light_models.with_random_weights("densenet121"), path)
        for name, seconds in _measured(path, options.rounds).items():
            print(f"{name:28}{seconds * 1e3:8.1f} ms")
    print(machine())


def _measured(path: str, rounds: int) -> dict[str, float]:
    model = dovetail.load(path)
    inputs = {
        value.name: np.zeros([size if isinstance(size, int) else 1 for size in value.dims], value.dtype.numpy)
        for value in model.inputs
    }
    engine = Engine(model)
    ways: dict[str, Callable[[], Any]] = {
        "dovetail compile and plan": lambda: Engine(model).bind(inputs),
        "dovetail plan": engine.plan,
    }
    try:
        import openvino

        core = openvino.Core()
        read = core.read_model(path)
        config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        ways["openvino compile_model"] = lambda: core.compile_model(read, "CPU", config)
    except ImportError:
        pass
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(row) for name, row in times.items()}


if __name__ == "__main__":
    main()
