"""Bytes of each command's output under several values of PYTHONHASHSEED, over the models of a folder.

    python bench/hash_seeds.py FOLDER [--limit N] [--seeds 0,1,random]

infer, rebatch, simplify, extract, merge, edit and convert run in one process for each seed; the files that they write, or the
errors, must be the same under all seeds. The models are every k-th .onnx and .xml file of the folder. The exit code is 1 where
some differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dovetail
from dovetail.passes.inference_report import annotate

MAX_BYTES = 32 << 20
"""Larger models, weights included, are left out."""


def commands_of(model: dovetail.Model) -> Iterator[tuple[str, Callable[[], dovetail.Model]]]:
    """Yield each command by name, as a call that returns its result for a model."""
    graph = model.graph
    middle = graph.nodes[len(graph.nodes) // 2].outputs[0].name if graph.nodes else ""
    yield "convert", lambda: model
    yield "infer", lambda: annotate(dovetail.infer_report(model).model)
    yield "simplify", lambda: dovetail.simplify(model)
    yield "rebatch", lambda: dovetail.rebatch(model, {"0": "new_batch"}, verify=False)
    yield "extract", lambda: dovetail.extract(model, outputs=middle)
    yield "merge", lambda: dovetail.merge(model, model, {})
    yield "edit", lambda: model.add_outputs(middle).rename_values({model.inputs[0].name: "renamed"}).set_metadata({"a": "b"})


def digest_of(run: Callable[[], dovetail.Model], folder: Path, suffix: str) -> str:
    """Return the hash of the files that a command's result becomes, or its error."""
    for old in folder.iterdir():
        old.unlink()
    try:
        dovetail.save(run(), folder / f"out{suffix}")
    except dovetail.DovetailError as error:
        return "\n".join(f"{item.code} {item.message} {item.node}" for item in error.diagnostics)
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def measure(paths: list[Path]) -> dict[str, str]:
    """Return the hashes of all commands over all models, in both formats for convert."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as work:
        for path in paths:
            try:
                model = dovetail.load(path)
            except dovetail.DovetailError as error:
                found[f"{path.name} load"] = str(error)
                continue
            for name, run in commands_of(model):
                for suffix in (".onnx", ".xml") if name == "convert" else (path.suffix,):
                    found[f"{path.name} {name} {suffix}"] = digest_of(run, Path(work), suffix)
    return found


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.stem}.*"))


def choose(folder: Path, limit: int) -> list[Path]:
    """Return at most ``limit`` models, spread evenly over the folder."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".onnx", ".xml") and size_of(path) <= MAX_BYTES)
    step = max(len(paths) // limit, 1)
    return paths[::step][:limit]


def compare(folder: Path, limit: int, seeds: list[str]) -> list[str]:
    """Run all seeds, each in its own process; print a summary and return what differs."""
    results: list[dict[str, Any]] = []
    for seed in seeds:
        command = [sys.executable, __file__, str(folder), "--limit", str(limit), "--measure"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        results.append(json.loads(done.stdout))
    first = results[0]
    different = [key for key in first if any(other.get(key) != first[key] for other in results)]
    refused = sum(1 for text in first.values() if len(text) != hashlib.sha256().digest_size * 2)
    print(f"{len(first)} results under the seeds {', '.join(seeds)}, {refused} of them errors; {len(different)} differ")
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--seeds", default="0,1,random")
    parser.add_argument("--measure", action="store_true", help="print the hashes of this process")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(choose(options.folder, options.limit))))
        return 0
    different = compare(options.folder, options.limit, options.seeds.split(","))
    for key in different:
        print(key)
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
