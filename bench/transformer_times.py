"""Measure transformers beside onnxruntime and OpenVINO: medians of interleaved runs, as ratios.

    python bench/transformer_times.py [--threads 1 2] [--rounds N] [--json]

The encoder has the sizes of BERT-base (12 layers, 768 wide) for one text of 128 tokens; the decoder is four layers, 1024 wide,
that make one token after 511 others. Weights are random and seeded (examples/transformers.py), in f32. A ratio below 1: dovetail
is faster. bench/models.py compares engines in bf16 too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.measure.benchmark import PEERS, median_times
from dovetail.runtime.peers import is_installed, runner

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import transformers

SIZES = {"batch": 1, "length": 128, "past": 511}
MODELS = {"encoder, 1 x 128": transformers.encoder, "decoder, 1 after 511": transformers.decoder}


def feed_of(model: dovetail.Model, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    shapes = {value.name: [SIZES.get(str(size), size) for size in value.dims] for value in model.inputs}
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name, make in MODELS.items():
        model = make()
        feed = feed_of(model)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.onnx")
            dovetail.save(model, path)
            for threads in options.threads:
                rows.append(_measured(name, path, feed, threads, options.rounds))
                if not options.json:
                    print(_text(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"rows": rows, "load": os.getloadavg()}, indent=1))


def _measured(name: str, path: str, feed: dict[str, Any], threads: int, rounds: int) -> dict[str, Any]:
    runners = {each: runner(each, path, threads) for each in ("dovetail", *PEERS) if is_installed(each)}
    times = median_times({each: found.call(feed) for each, found in runners.items()}, rounds)
    results = {each: found.run(feed)["y"] for each, found in runners.items()}
    exact = results["dovetail"]
    differences = {each: float(np.abs(exact - other).max() / np.abs(exact).max()) for each, other in results.items()}
    peers = [seconds for each, seconds in times.items() if each != "dovetail"]
    ms = {each: seconds * 1e3 for each, seconds in times.items()}
    return {
        "model": name,
        "threads": threads,
        "ms": ms,
        "ratio": times["dovetail"] / min(peers) if peers else None,
        "differences": differences,
    }


def _text(row: dict[str, Any]) -> str:
    times = "  ".join(f"{each} {ms:8.2f} ms" for each, ms in row["ms"].items())
    differences = ", ".join(f"{each} {found:.1e}" for each, found in row["differences"].items() if found)
    ratio = f"{row['ratio']:.2f} of the best peer" if row["ratio"] else ""
    return f"{row['model']:22} threads {row['threads']}:  {times}   {ratio}   (differences {differences})"


if __name__ == "__main__":
    main()
