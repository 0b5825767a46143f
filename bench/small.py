"""Small programs beside onnxruntime and OpenVINO: single operators, speech detection, loops, estimators of one row.

    python bench/small.py [--models TEXT[,TEXT...]] [--rounds N] [--threads N]

Medians of interleaved batches in one process: each entry is the time of one call in a batch of calls that takes about a
millisecond. dovetail and onnxruntime receive their inputs by name in every call; OpenVINO's inputs are bound once. The models
of build/zoo are those of `make zoo`. The ratio is dovetail's time over that of onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from dovetail.errors import DovetailError
from dovetail.measure.benchmark import machine
from dovetail.runtime.peers import Call, runner

ZOO = Path(__file__).resolve().parents[1] / "build" / "zoo"
PARTS = ("estimators.", "livekit-plugins-silero.", "silero-vad.", "torch.steps.")
ENGINES = ("dovetail", "onnxruntime", "openvino")
BATCH = 1e-3
"""Duration of a batch, seconds."""
WHOLE = ("silero", "torch.steps")
"""Models that take their inputs as they are; all others take the first row."""


class Small(NamedTuple):
    """A small model and its inputs by name."""

    name: str
    model: str | bytes
    inputs: dict[str, np.ndarray[Any, Any]]


def _single(
    name: str, operator: str, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Any], **attributes: Any
) -> Small:
    """Return a model of one operator, whose inputs are ``shapes`` and then ``constants``."""
    rng = np.random.default_rng(0)
    inputs = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    initializers = [
        helper.make_tensor(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.reshape(-1))
        for key, array in ((key, np.asarray(value)) for key, value in constants.items())
    ]
    node = helper.make_node(operator, [*shapes, *constants], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "small",
        [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return Small(name, model.SerializeToString(), inputs)


def single_operators() -> Iterator[Small]:
    weights = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    yield _single("Add of 10", "Add", {"a": (10,), "b": (10,)}, {})
    yield _single("Relu of 10", "Relu", {"x": (10,)}, {})
    yield _single("MatMul 1x16 by 16x16", "MatMul", {"x": (1, 16)}, {"w": weights})
    yield _single("Gemm 1x16 by 16x16", "Gemm", {"x": (1, 16)}, {"w": weights, "b": weights[0]})
    yield _single("Concat of 2x10", "Concat", {"a": (10,), "b": (10,)}, {}, axis=0)
    yield _single("Reshape 4x4", "Reshape", {"x": (4, 4)}, {"s": np.array([16], np.int64)})
    yield _single("Transpose 4x4", "Transpose", {"x": (4, 4)}, {}, perm=[1, 0])
    yield _single("Softmax 1x16", "Softmax", {"x": (1, 16)}, {})
    yield _single("ReduceSum 1x16", "ReduceSum", {"x": (1, 16)}, {"axes": np.array([1], np.int64)})
    yield _single("Gather 4 of 16", "Gather", {"x": (16, 4)}, {"i": np.array([3, 1, 7, 0], np.int64)})
    yield _single("Conv 1x3x8x8", "Conv", {"x": (1, 3, 8, 8)}, {"w": weights[:4, :3, None, None]})


def zoo_models() -> Iterator[Small]:
    index = ZOO / "index.json"
    for entry in json.loads(index.read_text(encoding="utf-8")) if index.exists() else ():
        if not entry["id"].startswith(PARTS):
            continue
        with np.load(ZOO / entry["inputs"].format(""), allow_pickle=True) as file:
            inputs = {name: file[name] for name in file.files}
        if not any(part in entry["id"] for part in WHOLE):
            inputs = {name: array[:1] for name, array in inputs.items()}
        yield Small(entry["id"], str(ZOO / entry["file"]), inputs)


def measure(small: Small, rounds: int, threads: int) -> dict[str, float]:
    """Return the median seconds of one call in each engine that runs the model."""
    calls: dict[str, Call] = {}
    for engine in ENGINES:
        inputs = {name: array.astype(object) if array.dtype.kind == "U" else array for name, array in small.inputs.items()}
        try:
            calls[engine] = runner(engine, small.model, threads).call(inputs)
            calls[engine]()
        except (DovetailError, RuntimeError, TypeError, KeyError) as error:
            if engine == "dovetail":
                raise
            print(f"{small.name}: {engine}: {str(error).splitlines()[0]}", file=sys.stderr)
            calls.pop(engine, None)
    return median_batch_times(calls, rounds)


def median_batch_times(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    counts = {name: _calls_per_batch(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            repeat = range(counts[name])
            start = time.perf_counter()
            for _ in repeat:
                call()
            times[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(row) for name, row in times.items()}


def _calls_per_batch(call: Callable[[], Any]) -> int:
    for _ in range(5):
        call()
    start = time.perf_counter()
    call()
    return max(1, int(BATCH / (time.perf_counter() - start)))


def table_row(name: str, times: Mapping[str, float]) -> str:
    columns = [f"{times[engine] * 1e6:.1f}" if engine in times else "" for engine in ENGINES]
    ratios = [f"{times['dovetail'] / times[engine]:.2f}" if engine in times else "" for engine in ENGINES[1:]]
    return f"| {' | '.join([name, *columns, *ratios])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    wanted = [text for text in arguments.models.split(",") if text]
    print(f"{machine()}, {arguments.threads} in use; microseconds:\n")
    print("| program | dovetail | onnxruntime | openvino | ratio to onnxruntime | ratio to openvino |")
    print("| --- | --- | --- | --- | --- | --- |")
    ratios = []
    for small in (*single_operators(), *zoo_models()):
        if wanted and not any(text in small.name for text in wanted):
            continue
        times = measure(small, arguments.rounds, arguments.threads)
        print(table_row(small.name, times), flush=True)
        if "onnxruntime" in times:
            ratios.append(times["dovetail"] / times["onnxruntime"])
    if ratios:
        print(f"| geometric mean |  |  |  | {statistics.geometric_mean(ratios):.2f} |  |")


if __name__ == "__main__":
    main()
