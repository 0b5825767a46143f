"""Count the bytes that a step of generation copies, and its plans, for small random Llamas.

    python bench/generation.py [--layers N] [--width N] [--heads N] [--groups N] [--inner N] [--vocabulary N]
                               [--lengths 64 2048] [--steps 32] [--threads 1] [--peers] [--json]

Attention is written in parts (Concat, MatMul, Softmax), as Attention, and as GroupQueryAttention. A session with ``reuse_caches``
takes steps of one token after each length; with ``--peers`` interleaved with onnxruntime (I/O binding) and OpenVINO (states).
Then come the copies of a step as ``plan`` lists them; those of caches ("aliases the input") are not made with ``reuse_caches``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import dovetail
from dovetail.measure.benchmark import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import transformers


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

    def __init__(self, model: dovetail.Model, caches: dict[str, Any], threads: int) -> None:
        self.program = dovetail.compile(model, threads=threads, reuse_caches=True)
        self.session = self.program.session()
        self.session.states = caches

    def __call__(self, feed: dict[str, Any]) -> Any:
        return self.session(feed)["logits"]


class OnnxRuntime:
    """A session with I/O binding: the presents of a step are the pasts of the next one, without a copy to numpy."""

    def __init__(self, model: dovetail.Model, caches: dict[str, Any], threads: int, folder: str) -> None:
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

    def __init__(self, model: dovetail.Model, caches: dict[str, Any], threads: int, folder: str) -> None:
        import openvino

        path = Path(folder) / "decoder.xml"
        dovetail.save(dovetail.make_stateful(model), path)
        options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "INFERENCE_NUM_THREADS": threads}
        self.request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
        for state in self.request.query_state():
            state.state = openvino.Tensor(next(array for name, array in caches.items() if state.name.startswith(name)))

    def __call__(self, feed: dict[str, Any]) -> Any:
        return self.request.infer(feed)[0]


def measured(model: dovetail.Model, past: int, steps: int, threads: int, *, has_peers: bool) -> dict[str, Any]:
    """Take ``2 * steps`` steps of one token, of which the last half counts; the steps of the engines are interleaved."""
    caches = caches_of(model, past)
    with tempfile.TemporaryDirectory() as folder:
        ours = Dovetail(model, caches, threads)
        engines: dict[str, Any] = {"dovetail": ours}
        if has_peers:
            engines |= {peer.__name__.lower(): peer(model, caches, threads, folder) for peer in (OnnxRuntime, OpenVino)}
        times: dict[str, list[float]] = {name: [] for name in engines}
        difference = 0.0
        # The first steps allocate the caches and make the plans.
        for step in range(2 * steps):
            if step == steps:
                before = ours.program.statistics
            feed, results = feed_of(model, past + step, 1), []
            for name, engine in engines.items():
                start = perf_counter()
                results.append(engine(feed))
                times[name].append(perf_counter() - start)
            difference = max(difference, *(float(np.abs(result - results[0]).max()) for result in results))
        after = ours.program.statistics
    return {
        "copied cache bytes": (after.copied_cache_bytes - before.copied_cache_bytes) / steps,
        "plans": after.plans - before.plans,
        "ms": {name: median(each[steps:]) * 1e3 for name, each in times.items()},
        "largest difference": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"layers": 2, "width": 256, "heads": 8, "groups": 2, "inner": 512, "vocabulary": 256, "steps": 32, "threads": 1}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lengths", nargs="+", type=int, default=[64, 2048])
    parser.add_argument("--forms", nargs="+", default=list(transformers.ATTENTION), choices=transformers.ATTENTION)
    parser.add_argument("--peers", action="store_true", help="measure onnxruntime (I/O binding) and OpenVINO (states) too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for form in options.forms:
        shape = (options.layers, options.width, options.heads, options.groups, options.inner, options.vocabulary)
        model = transformers.llama(*shape, attention=form)
        for past in options.lengths:
            found = measured(model, past, options.steps, options.threads, has_peers=options.peers)
            row = {"attention": form, "past": past, **found, "copies": copies_of(model, past)}
            cache = options.layers * 2 * options.groups * past * (options.width // options.heads) * 4
            row["cache bytes"] = cache
            rows.append(row)
            if not options.json:
                copied = f"{row['copied cache bytes']:.0f} bytes of caches copied a step"
                times = ", ".join(f"{name} {ms:.3f}" for name, ms in row["ms"].items())
                plans = f"{row['plans']} plans in {options.steps} steps, {times} ms a step"
                print(f"{form}, {past} tokens: caches of {cache} bytes; {copied}, {plans}", flush=True)
                for copy in row["copies"]:
                    print(f"  {copy['bytes']:>12} bytes in {copy['count']} copies: {copy['reason']}")
    print(json.dumps({"rows": rows}, indent=1) if options.json else machine())


if __name__ == "__main__":
    main()
