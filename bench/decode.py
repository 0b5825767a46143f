"""A cache of keys and values that grows by one token a step, joined by Concat: the time of a step.

    python bench/decode.py [--steps 1000] [--threads N] [--json]

Two tensors of 32 heads and 128 numbers, from no token to --steps. Every way makes new arrays for the results; numpy and torch
concatenate, the others run the same ONNX graph. Medians of the steps of each quarter, in microseconds. The ways take turns of
some steps each; before a turn comes a rest, in which the threads that another way left waiting go to sleep.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dovetail
from dovetail.compare.benchmark import REST
from dovetail.formats.onnx import write

HEADS, WIDTH = 32, 128
TURN = 20
Step = Callable[[Any, Any, Any], Any]


def model() -> dovetail.Model:
    with dovetail.Builder("cache") as b:
        keys, values = (b.input(name, "f32", (HEADS, "past", WIDTH)) for name in ("keys", "values"))
        key, value = (b.input(name, "f32", (HEADS, 1, WIDTH)) for name in ("key", "value"))
        b.output("next_keys", b.Concat(keys, key, axis=1))
        b.output("next_values", b.Concat(values, value, axis=1))
    return b.model


def ways(threads: int) -> dict[str, Step]:
    """One step each: the two caches and the new token's to the two next caches."""
    program = dovetail.compile(model(), engine="native", threads=threads)
    found: dict[str, Step] = {
        "dovetail": lambda k, v, new: tuple(program(k, v, new, new).values()),
        "dovetail.concat": lambda k, v, new: (dovetail.concat([k, new], 1), dovetail.concat([v, new], 1)),
        "numpy": lambda k, v, new: (np.concatenate([k, new], 1), np.concatenate([v, new], 1)),
    }
    data = write.save(model(), None)
    try:
        import torch

        torch.set_num_threads(threads)
        found["torch"] = lambda k, v, new: (torch.cat([k, new], 1), torch.cat([v, new], 1))
    except ImportError:
        pass
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(data, options)
        found["onnxruntime"] = lambda k, v, new: session.run(None, {"keys": k, "values": v, "key": new, "value": new})
    except ImportError:
        pass
    try:
        import openvino

        core = openvino.Core()
        config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        request = core.compile_model(core.read_model(data), "CPU", config).create_infer_request()

        def infer(k: Any, v: Any, new: Any) -> Any:
            result = request.infer([k, v, new, new])
            return [np.array(result[0]), np.array(result[1])]

        found["openvino"] = infer
    except ImportError:
        pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    steps = ways(options.threads)
    caches: dict[str, Any] = {name: (_array(name, (HEADS, 0, WIDTH)),) * 2 for name in steps}
    new = {name: _array(name, (HEADS, 1, WIDTH)) for name in steps}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for first in range(0, options.steps, TURN):
        for name, step in steps.items():
            time.sleep(REST)
            for _ in range(min(TURN, options.steps - first)):
                start = time.perf_counter()
                caches[name] = step(*caches[name], new[name])
                times[name].append(time.perf_counter() - start)
    quarter = options.steps // 4
    rows = {
        name: [statistics.median(row[at : at + quarter]) * 1e6 for at in range(0, 4 * quarter, quarter)]
        for name, row in times.items()
    }
    if options.json:
        print(
            json.dumps(
                {"microseconds": rows, "steps": options.steps, "threads": options.threads, "load": os.getloadavg()}, indent=1
            )
        )
        return
    print(f"microseconds a step, {options.threads} threads, medians of each {quarter} steps")
    for name, row in rows.items():
        print(f"{name:16}" + "".join(f"{each:10.0f}" for each in row))


def _array(name: str, shape: tuple[int, ...]) -> Any:
    array = np.zeros(shape, np.float32)
    if name != "torch":
        return array
    import torch

    return torch.from_numpy(array)


if __name__ == "__main__":
    main()
