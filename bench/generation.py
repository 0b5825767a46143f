"""Count the bytes that a step of generation copies, and its plans, for small random Llamas.

    python bench/generation.py [--layers N] [--width N] [--heads N] [--groups N] [--lengths 64 2048] [--steps 32] [--json]

Attention is written in parts (Concat, MatMul, Softmax), as Attention, and as GroupQueryAttention. A session with ``reuse_caches``
takes some steps of one token after each length, in one thread. Then come the copies of a step as ``plan`` lists them; those of
caches ("aliases the input") are not made with ``reuse_caches``.
"""

from __future__ import annotations

import argparse
import json
import sys
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


def measured(model: dovetail.Model, past: int, steps: int) -> dict[str, Any]:
    program = dovetail.compile(model, threads=1, reuse_caches=True)
    session = program.session()
    session.states = caches_of(model, past)
    times = []
    # The first steps allocate the caches and make the plans.
    for step in range(2 * steps):
        if step == steps:
            before = program.statistics
        start = perf_counter()
        session(feed_of(model, past + step, 1))
        times.append(perf_counter() - start)
    after = program.statistics
    return {
        "copied cache bytes": (after.copied_cache_bytes - before.copied_cache_bytes) / steps,
        "plans": after.plans - before.plans,
        "ms": median(times[steps:]) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 2), ("width", 256), ("heads", 8), ("groups", 2), ("inner", 512), ("steps", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lengths", nargs="+", type=int, default=[64, 2048])
    parser.add_argument("--forms", nargs="+", default=list(transformers.ATTENTION), choices=transformers.ATTENTION)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for form in options.forms:
        sizes = (options.layers, options.width, options.heads, options.groups, options.inner)
        model = transformers.llama(*sizes, attention=form)
        for past in options.lengths:
            row = {"attention": form, "past": past, **measured(model, past, options.steps), "copies": copies_of(model, past)}
            cache = options.layers * 2 * options.groups * past * (options.width // options.heads) * 4
            row["cache bytes"] = cache
            rows.append(row)
            if not options.json:
                copied = f"{row['copied cache bytes']:.0f} bytes of caches copied a step"
                plans = f"{row['plans']} plans in {options.steps} steps, {row['ms']:.3f} ms a step"
                print(f"{form}, {past} tokens: caches of {cache} bytes; {copied}, {plans}", flush=True)
                for copy in row["copies"]:
                    print(f"  {copy['bytes']:>12} bytes in {copy['count']} copies: {copy['reason']}")
    print(json.dumps({"rows": rows}, indent=1) if options.json else machine())


if __name__ == "__main__":
    main()
