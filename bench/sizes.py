"""Measure calls whose sizes change, beside onnxruntime and OpenVINO: sizes that are new to an engine, and seen ones.

    python bench/sizes.py [FILE ...] [--threads 1 2] [--calls N] [--seed S] [--only TEXT] [--json]

Each model runs at N sizes, in this order twice; engines run some calls each in turn. Weights are random and seeded. A FILE is a
model with open sizes; each is drawn from 2 to 64. A ratio, the median over the calls, below 1: dovetail
is faster than the better peer. Calls in which dovetail made a plan are counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dovetail
from dovetail.ir.symbolic import symbols
from dovetail.ir.types import sizes_in
from dovetail.measure.benchmark import PEERS, machine
from dovetail.measure.size_benchmark import draw_sizes, measure_sizes
from dovetail.runtime.peers import is_installed
from dovetail.runtime.random_inputs import random_inputs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import speech
import transformers

HEADS, WIDTH = 32, 128


class Row(NamedTuple):
    """A model; the ranges of its sizes, or the first sizes of those that grow by one at each call; and fixed ones."""

    model: Callable[[], dovetail.Model]
    ranges: Mapping[str, tuple[int, int]]
    growing: Mapping[str, int]
    fixed: Mapping[str, int]
    step: int = 1
    """The factor of the drawn sizes."""
    reuse_caches: bool = False
    """Each call gets the caches that the call before it returned."""
    calls: int = 160
    """The most calls."""


def chain() -> dovetail.Model:
    chance = np.random.default_rng(0)
    with dovetail.Builder("chain") as b:
        y = b.input("x", "f32", ("n", "t", 64))
        for _ in range(20):
            y = b.Relu(b.MatMul(y, (chance.standard_normal((64, 64)) * 0.1).astype("f4")))
        b.output("y", y)
    return b.model


def cache() -> dovetail.Model:
    with dovetail.Builder("cache") as b:
        for name in ("keys", "values"):
            past, new = b.input(name, "f32", (HEADS, "past", WIDTH)), b.input(f"new_{name}", "f32", (HEADS, 1, WIDTH))
            b.output(f"next_{name}", b.Concat(past, new, axis=1))
    return b.model


def pictures() -> dovetail.Model:
    """Convolutions with a stride, and a head for each place of the last grid."""
    chance = np.random.default_rng(0)
    with dovetail.Builder("pictures") as b:
        y = b.input("image", "f32", ("batch", 3, "height", "width"))
        for before, channels in ((3, 16), (16, 32), (32, 64), (64, 64), (64, 128)):
            weights = (chance.standard_normal((channels, before, 3, 3)) / np.sqrt(9 * before)).astype("f4")
            y = b.Relu(b.Conv(y, weights, strides=(2, 2), pads=(1, 1, 1, 1)))
        b.output("y", b.Conv(y, (chance.standard_normal((24, 128, 1, 1)) * 0.1).astype("f4")))
    return b.model


ROWS = {
    "20 products, lengths 4 to 67": Row(chain, {"t": (4, 67)}, {}, {"n": 1}),
    "encoder, lengths 8 to 127": Row(lambda: transformers.encoder(4, 256, 4, 1024), {"length": (8, 127)}, {}, {"batch": 1}),
    "encoder, batches 1 to 8, lengths 8 to 127": Row(
        lambda: transformers.encoder(4, 256, 4, 1024), {"batch": (1, 8), "length": (8, 127)}, {}, {}
    ),
    "encoder of BERT-base's sizes, lengths 8 to 127": Row(
        lambda: transformers.encoder(12, 768, 12, 3072), {"length": (8, 127)}, {}, {"batch": 1}, calls=24
    ),
    "decoder, one token more at each call": Row(lambda: transformers.decoder(2, 256, 4, 768), {}, {"past": 0}, {}),
    "decoder, its own caches": Row(lambda: transformers.decoder(2, 256, 4, 768), {}, {"past": 0}, {}, reuse_caches=True),
    "decoder of Llama 135M's sizes, its own caches": Row(
        lambda: transformers.decoder(30, 576, 9, 1536), {}, {"past": 0}, {}, reuse_caches=True, calls=64
    ),
    "cache, one token more at each call": Row(cache, {}, {"past": 0}, {}),
    "cache, its own results": Row(cache, {}, {"past": 0}, {}, reuse_caches=True),
    "speech as sound, 10 to 60 phones": Row(speech.vocoder, {"length": (10, 60)}, {}, {}, calls=40),
    "speech as mel, 10 to 60 phones": Row(speech.mel, {"length": (10, 60)}, {}, {}, calls=40),
    "pictures, 256 to 640 in steps of 32": Row(pictures, {"height": (8, 20), "width": (8, 20)}, {}, {"batch": 1}, 32),
    "pictures of 224, batches 1 to 16": Row(pictures, {"batch": (1, 16)}, {}, {"height": 224, "width": 224}),
}


def row_of(path: str) -> Row:
    model = dovetail.load(path)
    names = {str(symbol) for value in model.inputs for size in sizes_in(value.type) for symbol in symbols(size)}
    return Row(lambda: model, dict.fromkeys(sorted(names), (2, 64)), {}, {})


def measured(name: str, row: Row, threads: int, calls: int, seed: int) -> dict[str, Any]:
    model = row.model()
    drawn = draw_sizes(row.ranges, row.growing, calls, seed)
    sizes = [{**row.fixed, **{each: size * row.step for each, size in one.items()}} for one in drawn]
    feeds = [random_inputs(model, seed=call, sizes=one) for call, one in enumerate(sizes)]
    peers = [each for each in PEERS if is_installed(each)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        dovetail.save(model, path)
        ours, *others = measure_sizes(model, path, feeds, peers, threads, reuse_caches=row.reuse_caches)
    found: dict[str, Any] = {"model": name, "threads": threads, "plans": ours.plans, "planning": ours.planning}
    for kind in ("new", "seen"):
        times = {each.engine: getattr(each, kind) for each in (ours, *others)}
        ratios = [ratio for each in others if (ratio := getattr(each, f"{kind}_ratio")) is not None]
        found[kind] = {engine: None if seconds is None else seconds * 1e3 for engine, seconds in times.items()}
        found[f"{kind} ratio"] = max(ratios, default=None)
    found["p99"] = None if ours.seen_p99 is None else ours.seen_p99 * 1e3
    found["agrees"] = all(each.agrees is not False for each in others)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--calls", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only the models whose names contain this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {Path(path).name: row_of(path) for path in options.files} or ROWS
    found = []
    for name, row in rows.items():
        for threads in options.threads if options.only in name else ():
            found.append(measured(name, row, threads, min(options.calls, row.calls), options.seed))
            if not options.json:
                print(_text(found[-1]), flush=True)
    if options.json:
        print(json.dumps({"rows": found, "calls": options.calls, "seed": options.seed, "load": os.getloadavg()}, indent=1))
    else:
        print(f"{options.calls} calls, seed {options.seed}; {machine()}")


def _text(row: dict[str, Any]) -> str:
    parts = [f"{row['model']:42} threads {row['threads']}"]
    for kind in ("new", "seen"):
        times = "  ".join(f"{engine} {'-' if ms is None else f'{ms:.3f}'}" for engine, ms in row[kind].items())
        ratio = row[f"{kind} ratio"]
        parts.append(f"{kind}: {times}  ratio {'-' if ratio is None else f'{ratio:.2f}'}")
    return ";  ".join([*parts, f"plans {row['plans']} in {row['planning']:.2f} s", "" if row["agrees"] else "DIFFERS"])


if __name__ == "__main__":
    main()
