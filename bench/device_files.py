"""Every ONNX file of some folders through JAX and torch, beside onnxruntime and the interpreter.

    python bench/device_files.py FOLDER ... [--backends jax torch] [--seconds S] [--jobs N] [--models TEXT]

A folder is the corpus of docs/corpus.md, or build/zoo of docs/measurements/zoo.md. Prints a line for each file and engine that
does not agree, and the counts: "agrees" with onnxruntime or with the interpreter, refused (by code), "slow" beyond S seconds.
Where low precision makes engines differ, three times the distance of onnxruntime from the interpreter agrees (docs/corpus.md).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.compare.verification.conversion import compare
from dovetail.runtime.random_inputs import random_inputs


def files_of(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield name, model and inputs."""
    index = json.loads((folder / "index.json").read_text()) if (folder / "index.json").exists() else []
    for entry in index:
        path = folder / entry["file"] if "file" in entry else None
        if path is not None and path.suffix == ".onnx" and path.exists():
            yield entry["id"], path, folder / str(entry.get("inputs", "-")).format("")
    for path in sorted(folder.glob("*.onnx")):
        inputs = path.with_suffix(".in.npz")
        if inputs.exists():
            yield path.stem, path, inputs


def read_inputs(model: dovetail.Model, path: Path) -> dict[str, Any]:
    """Read stored inputs, by name or in order; random ones where none are stored."""
    if not path.exists():
        return dict(random_inputs(model))
    with np.load(path, allow_pickle=False) as archive:
        stored = {name: archive[name] for name in archive.files}
    names = [value.name for value in model.inputs]
    feed = stored if set(names) <= stored.keys() else dict(zip(names, stored.values(), strict=False))
    return {name: feed[name] for name in names}


def status_of(path: Path, inputs: Path, engine: str) -> str:
    model = dovetail.load(path)
    feed = read_inputs(model, inputs)
    try:
        found = dovetail.compile(model, engine)(feed)
    except dovetail.UnsupportedError as error:
        codes = sorted({item.code for item in error.diagnostics})
        operators = sorted({str(item.op or "").partition("(")[0] for item in error.diagnostics})
        return f"refused {' '.join(codes)} | {' '.join(operators)} {error.message[:70]}"
    expected = dovetail.compile(model, engine="interpreter")(feed)
    rows = compare(expected, found)
    if all(row.agrees for row in rows):
        return "agrees"
    from dovetail.runtime.peers import runner

    try:
        other = runner("onnxruntime", str(path), 1).run(feed)
        if all(row.agrees for row in compare(other, found)):
            return "agrees"
        ours = max((row.relative or 0.0) for row in compare(other, expected))
    except dovetail.DovetailError:
        ours = float("nan")
    worst_relative = max((row.relative or 0.0) for row in rows)
    if worst_relative <= 3 * ours:
        # The rule of docs/corpus.md for low precision: three times as far as two references are from each other.
        return "agrees"
    worst = max(rows, key=lambda row: row.relative or 0.0)
    return f"differs {worst.output}: {worst.relative:.1e} from the interpreter, which is {ours:.1e} from onnxruntime"


def run_alone(path: Path, inputs: Path, engine: str, seconds: float) -> str:
    """Run a file in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--one", str(path), str(inputs), engine]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, cwd=folder, check=False)
        except subprocess.TimeoutExpired:
            return "slow"
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return lines[-1]
    return f"fails {done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else done.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--backends", nargs="+", default=["jax", "torch"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--models", default="", help="names that hold this text")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, inputs, engine = options.one
        try:
            print(status_of(Path(model), Path(inputs), engine))
        except dovetail.DovetailError as error:
            print(f"fails {' '.join(str(error).split())[:300]}")
        return
    work: list[tuple[str, Path, Path, str]] = [
        (name, path, inputs, engine)
        for folder in options.folders
        for name, path, inputs in files_of(folder)
        for engine in options.backends
        if options.models in name
    ]
    counts: Counter[tuple[str, str]] = Counter()

    def judge(item: tuple[str, Path, Path, str]) -> tuple[str, str, str]:
        name, path, inputs, engine = item
        return name, engine, run_alone(path.resolve(), inputs.resolve(), engine, options.seconds)

    with ThreadPoolExecutor(options.jobs) as pool:
        for name, engine, status in pool.map(judge, work):
            counts[engine, status.partition(" |")[0] if status.startswith("refused") else status.partition(" ")[0]] += 1
            if status != "agrees":
                print(f"{name:50} {engine:6} {status}", flush=True)
    for (engine, status), count in sorted(counts.items()):
        print(f"{engine}: {status}: {count}")


if __name__ == "__main__":
    main()
