"""Measure the time of a token, and count the bytes that a step of generation copies and its plans, for random Llamas.

    python bench/generation.py [--shape 135M|1B] [--layers N] [--width N] [--heads N] [--groups N] [--inner N] [--vocabulary N]
                               [--forms Attention] [--weights f32 bf16 int8 int4] [--lengths 64 2048] [--steps 32]
                               [--threads 1] [--engines dovetail onnxruntime openvino | --peers] [--apart] [--copies] [--json]

Attention is written in parts (Concat, MatMul, Softmax), as Attention, and as GroupQueryAttention. A session with ``reuse_caches``
takes steps of one token after each length; with ``--peers`` interleaved with onnxruntime (I/O binding) and OpenVINO (states), or
with ``--apart`` each in a process of its own, for models of which the memory holds one. ``read`` is a plain read of as many bytes
as the packed weights and the caches have, in the same process. Weights: f32; bf16 computes in bf16 (``precision="bf16"``,
OpenVINO's inference precision; onnxruntime has no such products on processors); int8 and int4 are those of ``dovetail.quantize``,
for onnxruntime as MatMulNBits. Caches are f32 in each engine. ``--copies`` lists the copies of a step as ``plan`` does; those of
caches ("aliases the input") are not made with ``reuse_caches``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import dovetail
from dovetail.measure.benchmark import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import transformers

SHAPES = {"135M": (30, 576, 9, 3, 1536, 49152), "1B": (22, 2048, 32, 4, 5632, 32000)}
"""The shapes of SmolLM-135M and of TinyLlama-1.1B: layers, width, heads, groups, inner, vocabulary."""
ENGINES = ("dovetail", "onnxruntime", "openvino")


def feed_of(model: dovetail.Model, past: int, rows: int) -> dict[str, Any]:
    """Return the inputs of a step of ``rows`` tokens after ``past`` others, without the caches."""
    feed: dict[str, Any] = {"input_ids": np.random.default_rng(past).integers(0, 256, (1, rows))}
    if "attention_mask" in model.values:
        feed["attention_mask"] = np.ones((1, past + rows), np.int64)
    return feed


def caches_of(model: dovetail.Model, past: int) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    shapes = {x.name: x.dims for x in model.inputs if x.name.startswith("past")}
    return {name: chance.standard_normal((1, dims[1], past, dims[3]), np.float32) for name, dims in shapes.items()}


def copies_of(model: dovetail.Model, past: int) -> list[dict[str, Any]]:
    """Return the copies of one step, added up by their reasons without the names of layers."""
    found: dict[str, dict[str, Any]] = {}
    for copy in dovetail.plan(model, {**feed_of(model, past, 1), **caches_of(model, past)}, rounds=0).copies:
        row = found.setdefault(copy.reason.split(" ", 1)[-1], {"reason": copy.reason, "count": 0, "bytes": 0})
        row["count"] += 1
        row["bytes"] += copy.nbytes
    return sorted(found.values(), key=lambda row: -int(row["bytes"]))


class Dovetail:
    """A session whose caches are extended in place."""

    def __init__(self, model: dovetail.Model, caches: dict[str, Any], threads: int, weights: str) -> None:
        precision = "bf16" if weights == "bf16" else "f32"
        self.program = dovetail.compile(model, threads=threads, precision=precision, reuse_caches=True)
        self.session = self.program.session()
        self.session.states = caches

    def __call__(self, feed: dict[str, Any]) -> Any:
        return self.session(feed)["logits"]


class OnnxRuntime:
    """A session with I/O binding: the presents of a step are the pasts of the next one, without a copy to numpy."""

    def __init__(self, model: dovetail.Model, caches: dict[str, Any], threads: int, weights: str, folder: str) -> None:
        import onnxruntime

        path = Path(folder) / "decoder.onnx"
        dovetail.save(model, path, external=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in caches.items()}
        self.outputs = [item.name for item in self.session.get_outputs()]

    def __call__(self, feed: dict[str, Any]) -> Any:
        binding = self.session.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        for name, value in self.caches.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        found = dict(zip(self.outputs, binding.get_outputs(), strict=True))
        self.caches = {name: found[name.replace("past_key_values", "present")] for name in self.caches}
        return found["logits"].numpy()


class OpenVino:
    """A request of the stateful form of the model, which ``dovetail.make_stateful`` gives."""

    def __init__(self, model: dovetail.Model, caches: dict[str, Any], threads: int, weights: str, folder: str) -> None:
        import openvino

        path = Path(folder) / "decoder.xml"
        dovetail.save(dovetail.make_stateful(model), path)
        precision = "bf16" if weights == "bf16" else "f32"
        options = {"INFERENCE_PRECISION_HINT": precision, "KV_CACHE_PRECISION": "f32", "INFERENCE_NUM_THREADS": threads}
        self.request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
        for state in self.request.query_state():
            state.state = openvino.Tensor(next(array for name, array in caches.items() if state.name.startswith(name)))

    def __call__(self, feed: dict[str, Any]) -> Any:
        return self.request.infer(feed)[0]


class Reader:
    """A plain read of ``nbytes`` bytes, on one thread."""

    def __init__(self, nbytes: int) -> None:
        self.memory = np.ones(nbytes // 8, np.int64)

    def __call__(self, feed: dict[str, Any]) -> Any:
        return self.memory.sum()


def measured(
    model: dovetail.Model, past: int, steps: int, threads: int, *, weights: str = "f32", engines: Sequence[str] = ENGINES[:1]
) -> dict[str, Any]:
    """Take ``2 * steps`` steps of one token, of which the last half counts; the steps of the engines are interleaved."""
    caches = caches_of(model, past)
    with tempfile.TemporaryDirectory() as folder:
        runners: dict[str, Any] = {}
        if "dovetail" in engines:
            runners["dovetail"] = Dovetail(model, caches, threads, weights)
        for name, peer in (("onnxruntime", OnnxRuntime), ("openvino", OpenVino)):
            if name in engines and (name, weights) != ("onnxruntime", "bf16"):
                runners[name] = peer(model, caches, threads, weights, folder)
        cache_bytes = sum(array.nbytes for array in caches.values())
        runners["read"] = Reader(weight_bytes(model, weights) + cache_bytes)
        times: dict[str, list[float]] = {name: [] for name in runners}
        results: dict[str, Any] = {}
        difference = 0.0
        before = after = None
        # The first steps allocate the caches and make the plans.
        for step in range(2 * steps):
            if step == steps and "dovetail" in runners:
                before = runners["dovetail"].program.statistics
            feed = feed_of(model, past + step, 1)
            for name, runner in runners.items():
                start = perf_counter()
                results[name] = runner(feed)
                times[name].append(perf_counter() - start)
            logits = [result for name, result in results.items() if name != "read"]
            difference = max([difference, *(float(np.abs(other - logits[0]).max()) for other in logits[1:])])
        if before is not None:
            after = runners["dovetail"].program.statistics
    found = {
        "ms": {name: median(each[steps:]) * 1e3 for name, each in times.items()},
        "largest difference": difference,
    }
    if before is not None and after is not None:
        copied = (after.copied_cache_bytes - before.copied_cache_bytes) / steps
        found |= {"copied cache bytes": copied, "plans": after.plans - before.plans}
    return found


def weight_bytes(model: dovetail.Model, weights: str) -> int:
    """Return the bytes of weights that a step reads: all constants of rank 2, without a table that only Gather reads."""
    found = 0
    for value in model.graph.values():
        data = value.constant
        if data is not None and data.ndim >= 2 and any(type(node.op).__name__ != "Gather" for node, _ in value.uses):
            bits = 16 if weights == "bf16" else value.dtype.bits
            found += data.size * bits // 8
    return found


def apart(arguments: Sequence[str], engines: Sequence[str]) -> list[dict[str, Any]]:
    """Measure each engine in a process of its own; return the rows with the times of all, and the shortest ``read``."""
    rows: list[dict[str, Any]] = []
    for engine in engines:
        command = [sys.executable, __file__, *arguments, "--engines", engine, "--json"]
        own = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["rows"]
        rows = rows or own
        for row, other in zip(rows, own, strict=True):
            read = min(row["ms"]["read"], other["ms"]["read"])
            row["ms"] = {**row["ms"], **other["ms"], "read": read}
    return rows


def report(row: dict[str, Any], steps: int) -> None:
    """Print a row: times and tokens per second, and what dovetail copied and planned."""
    times = ", ".join(f"{name} {ms:.2f}" for name, ms in row["ms"].items())
    rates = ", ".join(f"{name} {1e3 / ms:.1f}" for name, ms in row["ms"].items() if name != "read")
    print(f"{row['attention']}, {row['weights']}, {row['past']} tokens: {times} ms a step; {rates} tokens/s", flush=True)
    if "plans" in row:
        copied = f"{row['copied cache bytes']:.0f} bytes of caches copied a step"
        print(f"  caches of {row['cache bytes']} bytes; {copied}, {row['plans']} plans in {steps} steps")
    for copy in row.get("copies", ()):
        print(f"  {copy['bytes']:>12} bytes in {copy['count']} copies: {copy['reason']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"layers": 2, "width": 256, "heads": 8, "groups": 2, "inner": 512, "vocabulary": 256}
    parser.add_argument("--shape", choices=SHAPES, help="the sizes of a known model")
    for name, default in {**sizes, "steps": 32, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lengths", nargs="+", type=int, default=[64, 2048])
    parser.add_argument("--forms", nargs="+", default=list(transformers.ATTENTION), choices=transformers.ATTENTION)
    parser.add_argument("--weights", nargs="+", default=["f32"], choices=("f32", "bf16", "int8", "int4"))
    parser.add_argument("--engines", nargs="+", default=ENGINES[:1], choices=ENGINES)
    parser.add_argument("--peers", action="store_true", help="measure onnxruntime (I/O binding) and OpenVINO (states) too")
    parser.add_argument("--apart", action="store_true", help="measure each engine in a process of its own")
    parser.add_argument("--copies", action="store_true", help="list the copies of a step")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    engines = ENGINES if options.peers else options.engines
    shape = SHAPES[options.shape] if options.shape else tuple(getattr(options, name) for name in sizes)
    rows: list[dict[str, Any]] = []
    if options.apart:
        rows = apart([each for each in sys.argv[1:] if each not in ("--apart", "--peers", "--json")], engines)
    for form in () if options.apart else options.forms:
        for weights in options.weights:
            model = transformers.llama(*shape, attention=form)
            if weights.startswith("int"):
                model = dovetail.quantize(model, weights, options=dovetail.QuantizeOptions(verify=False))
            for past in options.lengths:
                found = measured(model, past, options.steps, options.threads, weights=weights, engines=engines)
                cache = shape[0] * 2 * shape[3] * past * (shape[1] // shape[2]) * 4
                row = {"attention": form, "weights": weights, "past": past, "cache bytes": cache, **found}
                if options.copies:
                    row["copies"] = copies_of(model, past)
                rows.append(row)
                if not options.json:
                    report(row, options.steps)
    if options.apart and not options.json:
        for row in rows:
            report(row, options.steps)
    print(json.dumps({"rows": rows}, indent=1) if options.json else machine())


if __name__ == "__main__":
    main()
