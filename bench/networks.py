"""Measure networks beside onnxruntime and OpenVINO: medians of interleaved runs, as ratios.

    python bench/networks.py [--models NAME ...] [--batch 1 8] [--threads 1 2] [--rounds N] [--halves] [--precision bf16] [--json]

The architectures are those of the onnx package with seeded random weights (examples/light_models.py), in f32, with --halves in
f16; every engine gets the same input and the same number of threads, and the results are compared. A ratio below 1 means that
dovetail is faster. With --precision bf16 dovetail and OpenVINO compute in bf16, and the differences are from dovetail's f32.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import light_models

MODELS = ("densenet121", "inception_v1", "inception_v2", "squeezenet", "shufflenet", "resnet50")


def at_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """Return the model with another batch size, where its file says 1."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    del graph.value_info[:]
    targets = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for tensor in graph.initializer:
        if tensor.name in targets:
            target = numpy_helper.to_array(tensor).copy()
            if target.size > 1 and target[0] == 1:
                target[0] = batch
                tensor.CopyFrom(numpy_helper.from_array(target, tensor.name))
    return model


def in_f16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model in f16: weights, inputs and outputs."""
    graph = model.graph
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    del graph.value_info[:]
    return model


def engines(model: onnx.ModelProto, threads: int, precision: str = "f32") -> dict[str, Any]:
    """Return the model in every engine that is installed."""
    data = model.SerializeToString()
    # Deferred: bench/builds.py reads the cells in checkouts whose modules have other names.
    from dovetail.measure.benchmark import PEERS
    from dovetail.runtime.peers import is_installed, runner

    given = {} if precision == "f32" else {"precision": precision}
    return {name: runner(name, data, threads, **given) for name in ("dovetail", *PEERS) if is_installed(name)}


def f32_result(model: onnx.ModelProto, feed: dict[str, Any], threads: int) -> Any:
    results = engines(model, threads)["dovetail"].run(feed)
    return np.asarray(next(iter(results.values())), np.float64)


def main() -> None:
    from dovetail.measure.benchmark import median_times

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name in options.models:
        for batch in options.batch:
            model = at_batch(light_models.with_random_weights(name), batch)
            feed = light_models.image(model)
            if options.halves:
                model = in_f16(model)
                feed = {each: x.astype(np.float16) for each, x in feed.items()}
            for threads in options.threads:
                runners = engines(model, threads, options.precision)
                times = median_times({each: found.call(feed) for each, found in runners.items()}, options.rounds)
                results = {each: np.asarray(next(iter(found.run(feed).values())), np.float64) for each, found in runners.items()}
                ours = results["dovetail"] if options.precision == "f32" else f32_result(model, feed, threads)
                differences = {
                    each: float(np.abs(ours - other).max() / np.abs(ours).max())
                    for each, other in results.items() if other is not ours
                }  # fmt: skip
                peers = {each: seconds for each, seconds in times.items() if each != "dovetail"}
                row = {"model": name, "batch": batch, "threads": threads, "ms": {each: t * 1e3 for each, t in times.items()},
                       "ratio": times["dovetail"] / min(peers.values()) if peers else None,
                       "differences": differences}  # fmt: skip
                rows.append(row)
                if not options.json:
                    texts = "  ".join(f"{each} {seconds * 1e3:8.2f} ms" for each, seconds in times.items())
                    ratio = f"{row['ratio']:.2f} of the best peer" if peers else ""
                    found = ", ".join(f"{each} {size:.1e}" for each, size in differences.items())
                    print(f"{name:14} batch {batch} threads {threads}:  {texts}   {ratio}   ({found})", flush=True)
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else None
    if options.json:
        print(json.dumps({"rows": rows, "geometric_mean": mean, "load": os.getloadavg()}, indent=1))
    elif mean:
        print(f"geometric mean {mean:.3f} of the best peer; load of the machine {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
