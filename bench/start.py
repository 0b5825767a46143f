"""Measure the time from the start of a process to the first result of a model: import, load, compile and one run, of three
engines.

    python bench/start.py [--models NAME ...] [--rounds N] [--threads N] [--json]

Each run is a fresh process (`python -c`), and the engines take turns. Bytecode and pages of the files are cached before the
first measured round. `cached` is dovetail with `cache_dir`, after a start that wrote the entry. `floor` imports numpy and reads
the inputs, which every process does. Models of `build/zoo` are left out where `make zoo` has not run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dovetail.measure.benchmark import PEERS, machine
from dovetail.runtime.peers import is_installed

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "build" / "zoo"
sys.path.insert(0, str(ROOT / "examples"))

BEGIN = """\
import sys
path, inputs, threads, cache = sys.argv[1:]
threads = int(threads)
import numpy as np
with open(inputs + ".names") as file:
    feed = {name: np.load(f"{inputs}.{index}.npy") for index, name in enumerate(file.read().splitlines())}
"""
FLOOR = "floor"
CACHED = "cached"
PROGRAMS = {
    FLOOR: BEGIN,
    "dovetail": f"{BEGIN}import dovetail\ndovetail.compile(path, threads=threads)(feed)\n",
    CACHED: f"{BEGIN}import dovetail\ndovetail.compile(path, threads=threads, cache_dir=cache)(feed)\n",
    "onnxruntime": f"""{BEGIN}import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feed)
""",
    "openvino": f"""{BEGIN}import openvino
core = openvino.Core()
config = {{"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}}
core.compile_model(core.read_model(path), "CPU", config)(feed)
""",
}
"""The program of each engine. Peers compute in f32, as dovetail does."""

Feed = Mapping[str, np.ndarray[Any, Any]]


def densenet121() -> tuple[onnx.ModelProto, Feed]:
    import light_models

    model = light_models.with_random_weights("densenet121")
    return model, light_models.image(model)


def bert() -> tuple[onnx.ModelProto, Feed]:
    import language_models

    return language_models.bert()


MADE: dict[str, Callable[[], tuple[onnx.ModelProto, Feed]]] = {"densenet121": densenet121, "BERT-base": bert}
ZOO_MODELS = ("livekit-plugins-silero.silero_vad", "nudenet.320n", "rapidocr.v6-rec", "magika.standard_v3_3")


def model_files(name: str, folder: Path) -> tuple[Path, Path] | None:
    """Return the files of a model and its inputs (one .npy each, which import less than .npz).

    None for a model that is not there.
    """
    inputs = folder / "inputs"
    if name in MADE:
        model, feed = MADE[name]()
        path = folder / "model.onnx"
        onnx.save(model, path)
    else:
        files = zoo_files(name)
        if files is None:
            return None
        path = files[0]
        with np.load(files[1]) as file:
            feed = dict(file)
    for index, array in enumerate(feed.values()):
        np.save(f"{inputs}.{index}.npy", array)
    Path(f"{inputs}.names").write_text("\n".join(feed))
    return path, inputs


def zoo_files(name: str) -> tuple[Path, Path] | None:
    """Return the files of a model of the zoo and of its inputs; None where `make zoo` has not run."""
    index = ZOO / "index.json"
    rows = json.loads(index.read_text()) if index.exists() else []
    return next(((ZOO / row["file"], ZOO / row["inputs"].format("")) for row in rows if row["id"] == name), None)


def seconds(engine: str, path: Path, inputs: Path, threads: int, folder: Path) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", PROGRAMS[engine], str(path), str(inputs), str(threads), str(folder / "cache")]
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begin


def does_run(engine: str, path: Path, inputs: Path, threads: int, folder: Path) -> bool:
    """Run once unmeasured: bytecode, pages and the plan are cached. Returns whether a peer runs the model."""
    try:
        seconds(engine, path, inputs, threads, folder)
    except subprocess.CalledProcessError:
        if engine in PEERS:
            return False
        raise
    return True


def row_of(name: str, engines: list[str], rounds: int, threads: int, folder: Path) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as own:
        files = model_files(name, Path(own))
        if files is None:
            return None
        runnable = [engine for engine in engines if does_run(engine, *files, threads, folder)]
        times: dict[str, list[float]] = {engine: [] for engine in runnable}
        for _ in range(rounds):
            for engine in runnable:
                times[engine].append(seconds(engine, *files, threads, folder))
    medians = {engine: statistics.median(each) for engine, each in times.items()}
    peers = [medians[engine] for engine in PEERS if engine in medians]
    return {
        "model": name,
        "seconds": medians,
        "ratio": medians["dovetail"] / min(peers) if peers else None,
        "cached_ratio": medians[CACHED] / medians["dovetail"],
    }


def text(row: Mapping[str, Any], engines: list[str]) -> str:
    ratios = ["" if row[key] is None else f"{row[key]:.2f}" for key in ("ratio", "cached_ratio")]
    cells = [row["model"], *(f"{row['seconds'][engine]:.3f}" if engine in row["seconds"] else "" for engine in engines), *ratios]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[*MADE, *ZOO_MODELS], help="the beginnings of their names")
    parser.add_argument("--engines", nargs="+", help="beside dovetail and cached")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    engines = [FLOOR, "dovetail", CACHED, *(options.engines or [peer for peer in PEERS if is_installed(peer)])]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in (*MADE, *ZOO_MODELS):
            if not name.startswith(tuple(options.models)):
                continue
            row = row_of(name, engines, options.rounds, options.threads, Path(folder))
            if row is None:
                continue
            rows.append(row)
            if not options.json:
                print(text(row, engines), flush=True)
    if options.json:
        print(json.dumps({"rows": rows, "threads": options.threads, "load": os.getloadavg()}, indent=1))
    else:
        print(machine())


if __name__ == "__main__":
    main()
