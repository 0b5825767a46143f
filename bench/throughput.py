"""Items per second on all cores, beside onnxruntime called by several threads and OpenVINO's AsyncInferQueue for throughput.

    python bench/throughput.py [--models NAME ...] [--threads N] [--rounds N] [--json]

One item is one call with inputs of its own. dovetail is `Program.map`. Models of `build/zoo` are left out where `make zoo` has
not run. A ratio below 1 means that dovetail takes less time for an item than the better peer.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dovetail
from dovetail.measure.benchmark import machine, peers_for
from dovetail.measure.throughput import measure_throughput

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples")]
import language_models  # noqa: E402
import vision_models  # noqa: E402
from start import densenet121, zoo_files  # noqa: E402

MADE: dict[str, Callable[[], Any]] = {
    "densenet121": densenet121,
    "BERT-base, 1 x 128": language_models.bert,
    "ResNet-50": lambda: vision_models.resnet50(quantised=False),
    "detector, 640 x 640": vision_models.detector,
}
ZOO_MODELS = {"silero_vad": "livekit-plugins-silero.silero_vad", "random forest": "estimators.forest"}


def files_of(name: str, folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the file of a model and its inputs; None for a model of a zoo that is not there."""
    if name in MADE:
        model, feed = MADE[name]()
        onnx.save(model, folder / "model.onnx")
        return folder / "model.onnx", dict(feed)
    found = zoo_files(ZOO_MODELS[name])
    if found is None:
        return None
    with np.load(found[1]) as file:
        return found[0], dict(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[*MADE, *ZOO_MODELS], help="the beginnings of their names")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for name in (*MADE, *ZOO_MODELS):
        if not name.startswith(tuple(options.models)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            files = files_of(name, Path(folder))
            if files is None:
                continue
            path, feed = files
            rows = measure_throughput(dovetail.load(path), str(path), feed, peers_for(None), options.threads, options.rounds)
        found.append({"model": name, "engines": [dataclasses.asdict(row) for row in rows]})
        if not options.json:
            rates = ["" if row.items_per_second is None else f"{row.items_per_second:,.1f}" for row in rows]
            ratio = max((row.ratio for row in rows if row.ratio is not None), default=None)
            print(f"| {' | '.join([name, *rates, '' if ratio is None else f'{ratio:.2f}'])} |", flush=True)
    print(json.dumps({"rows": found, "threads": options.threads}, indent=1) if options.json else machine())


if __name__ == "__main__":
    main()
