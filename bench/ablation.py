"""The gain of planning movement away: time, bytes copied and memory of whole networks with --elide auto, all and none.

    python bench/ablation.py [--models NAME ...] [--rounds N] [--json]

Random weights, batch 1, one thread. Times are medians of interleaved runs; `arena` is the memory of all activations, `bound` the
largest live set in the order of execution, below which no arrangement gets; the peak is that of a process of its own that loads,
compiles and runs, beside the same of onnxruntime and OpenVINO.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

import dovetail
from dovetail.measure.benchmark import PEERS, median_times
from dovetail.runtime.peers import Names, cost, is_installed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import detector_models
import joined_classifiers
import light_models
import vision_models

BUILT: dict[str, Callable[[], Any]] = {
    "yolov5n": detector_models.yolov5,
    "yolov7-tiny": detector_models.yolov7,
    "yolov8n": vision_models.detector,
    "yolov10n": detector_models.yolov10,
    "yolo11n": detector_models.yolo11,
    "shufflenet_v2": joined_classifiers.shufflenet_v2,
    "densenet121 (torchvision)": joined_classifiers.densenet,
    "unet": vision_models.unet,
}
"""Networks whose blocks join and split, in the form that torch's exporter leaves; the others are files of the onnx package."""
MODELS = (*BUILT, "densenet121", "inception_v1", "inception_v2", "squeezenet", "shufflenet", "resnet50")
ELIDE = ("auto", "all", "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name in options.models:
        rows.append(_measured(name, options.rounds))
        if not options.json:
            print(_text(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"rows": rows, "load": os.getloadavg()}, indent=1))


def _measured(name: str, rounds: int) -> dict[str, Any]:
    if name in BUILT:
        written, feed = BUILT[name]()
    else:
        written = light_models.with_random_weights(name)
        feed = light_models.image(written)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        onnx.save(written, path)
        model = dovetail.load(path)
        programs = {each: dovetail.compile(model, "native", threads=1, elide=each) for each in ELIDE}
        times = median_times({each: lambda program=program: program(feed) for each, program in programs.items()}, rounds)
        plans = {each: dovetail.plan(model, elide=each, threads=1, rounds=0).as_dict() for each in ELIDE}
        names = Names([x.name for x in model.inputs], [y.name for y in model.outputs])
        engines = ["dovetail", *(each for each in PEERS if is_installed(each))]
        peaks = {each: cost(each, path, 1, names, feed).peak_bytes for each in engines}
    return {"model": name, "ms": {each: seconds * 1e3 for each, seconds in times.items()}, "plans": plans, "peak_bytes": peaks}


def _text(row: dict[str, Any]) -> str:
    times = "  ".join(f"{each} {ms:.2f} ms" for each, ms in row["ms"].items())
    plan = row["plans"]["all"]
    memory = (
        f"copied {plan['copied_bytes'] / 1e6:.2f} of {plan['moved_bytes'] / 1e6:.1f} MB, arena {plan['arena_bytes'] / 1e6:.1f} MB"
    )
    peaks = ", ".join(f"{each} {size / 1e6:.0f} MB" for each, size in row["peak_bytes"].items())
    return f"{row['model']:26} {times}   {memory}   peak {peaks}"


if __name__ == "__main__":
    main()
