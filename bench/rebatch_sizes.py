"""Free the image sizes and sequence lengths of the static ONNX models of a corpus, and run the results in onnxruntime.

    python bench/rebatch_sizes.py CORPUS_FOLDER [--models TEXT[,TEXT...]] [--dynamic]

One static file of each architecture: axes 2 and 3 of images become H and W, axis 1 of integers of two axes becomes T. The file
itself runs at one size, so that onnxruntime compares both files there; at twice that size it runs the new file beside dovetail.
A refusal is printed with its first node and reason.

With --dynamic: one dynamic file of each architecture with two stored inputs. Its sizes are fixed at those of the first inputs, it
is simplified, and its sizes are freed again; at the second inputs it is compared with the dynamic file, both in onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.compare.verification.conversion import random_outputs

Record = dict[str, Any]


def freed_shapes(model: dovetail.Model) -> dict[str, list[int | str]]:
    """Return the new shapes of the inputs that are images or sequences of integers."""
    found: dict[str, list[int | str]] = {}
    for value in model.inputs:
        shape = [size for size in value.shape or () if isinstance(size, int)]
        if len(shape) == 4 and shape[1] <= 4 and min(shape[2:]) > 8:
            found[value.name] = [*shape[:2], "H", "W"]
        elif len(shape) == 2 and value.dtype.is_integer and shape[1] > 1:
            found[value.name] = [shape[0], "T"]
    return found


def largest_difference(first: list[Any], second: list[Any], skipped: set[int]) -> float:
    """Return the largest difference of all outputs, relative to the largest magnitude of each."""
    worst = 0.0
    for index, (x, y) in enumerate(zip(first, second, strict=True)):
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if x.shape != y.shape:
            return float("inf")
        if index not in skipped and x.size:
            worst = max(worst, float(np.abs(x - y).max() / (np.abs(y).max() or 1)))
    return worst


def run_case(folder: Path, work: Path, record: Record) -> str | None:
    """Return the result of one file as text; None where it has no size to free."""
    import onnxruntime

    path = folder / f"{record['id']}.onnx"
    model = dovetail.load(path)
    shapes = freed_shapes(model)
    if not shapes:
        return None
    new = dovetail.rebatch(model, shapes=shapes)
    report = new.report
    dovetail.save(model, work / "old.onnx")
    dovetail.save(new, work / "new.onnx")
    before, after = (
        onnxruntime.InferenceSession(work / name, providers=["CPUExecutionProvider"]) for name in ("old.onnx", "new.onnx")
    )
    with np.load(folder / f"{record['id']}.in.npz") as stored:
        inputs = {each.name: stored[each.name] for each in before.get_inputs()}
    old, same = before.run(None, inputs), after.run(None, inputs)
    drawn = random_outputs(new)
    skipped = {index for index, value in enumerate(new.outputs) if value.name in drawn}
    is_equal = all(np.array_equal(x, y, equal_nan=True) for x, y in zip(old, same, strict=True))
    at_old = "equal bits" if is_equal else f"differs by {largest_difference(old, same, skipped):.1e}"
    twice = {
        name: np.tile(array, [1 if isinstance(size, int) else 2 for size in shapes.get(name, array.shape)])
        for name, array in inputs.items()
    }
    ours, theirs = list(dovetail.run(new, twice).values()), after.run(None, twice)
    apart = largest_difference(ours, theirs, skipped)
    return f"{len(report.changes):3} changes, old size: {at_old}, twice: dovetail and onnxruntime differ by {apart:.1e}"


def run_dynamic_case(folder: Path, work: Path, record: Record) -> str | None:
    """Return the result of one dynamic file as text; None where it has no second inputs."""
    import onnxruntime

    if f"{record['id']}.in2.npz" not in record["files"]:
        return None
    path = folder / f"{record['id']}.onnx"
    source = dovetail.load(path)
    with np.load(folder / f"{record['id']}.in.npz") as first, np.load(folder / f"{record['id']}.in2.npz") as second:
        inputs, others = dict(first), dict(second)
    fixed = dovetail.rebatch(source, shapes={name: list(array.shape) for name, array in inputs.items()})
    fixed = dovetail.simplify(fixed)
    shapes = {x.name: [size if isinstance(size, int) else str(size) for size in x.shape or ()] for x in source.inputs}
    new = dovetail.rebatch(fixed, shapes=shapes, inputs=inputs)
    report = new.report
    dovetail.save(new, work / "new.onnx")
    ours, theirs = (
        onnxruntime.InferenceSession(each, providers=["CPUExecutionProvider"]).run(None, others)
        for each in (work / "new.onnx", path)
    )
    drawn = random_outputs(new)
    skipped = {index for index, value in enumerate(new.outputs) if value.name in drawn}
    changed = ", ".join(
        f"{name} {list(array.shape)} to {list(others[name].shape)}"
        for name, array in inputs.items()
        if array.shape != others[name].shape
    )
    return f"{len(report.changes):3} changes, {changed}: differs by {largest_difference(ours, theirs, skipped):.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="", help="only architectures whose name holds one of these texts")
    parser.add_argument("--dynamic", action="store_true", help="fix and free dynamic files")
    options = parser.parse_args()
    run = run_dynamic_case if options.dynamic else run_case
    texts = [text for text in options.models.split(",") if text]
    tried: set[str] = set()
    freed = 0
    for record in json.loads((options.folder / "index.json").read_text(encoding="utf-8")):
        arch = record["arch"]
        is_chosen = not texts or any(text in arch for text in texts)
        if (
            bool(record["dynamic"]) != options.dynamic
            or arch in tried
            or not is_chosen
            or f"{record['id']}.onnx" not in record["files"]
        ):
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                text = run(options.folder, Path(work), record)
            except dovetail.DovetailError as error:
                first = error.diagnostics[0]
                text = f"refused by {len(error.diagnostics)}: [{first.code}] {first.message} ({first.node})"
        if text is not None:
            tried.add(arch)
            freed += not text.startswith("refused")
            print(f"{record['id']:44} {text}"[:300], flush=True)
    print(f"{freed} of {len(tried)} architectures run at other sizes")


if __name__ == "__main__":
    main()
