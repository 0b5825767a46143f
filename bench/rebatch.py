"""Change the batch of every architecture of a corpus from fixed to symbolic, and run it at 1, 3 and 8 in its own runtime.

    python bench/rebatch.py CORPUS_FOLDER [--models TEXT[,TEXT...]] [--json]

For each architecture and format (ONNX, IR): the static files of that format; where there is none, a dynamic file with its sizes
fixed at those of its stored inputs and simplified, so that the sizes become constants. A file of the other format serves where
an architecture has none of this one. Each sample goes through the fixed model at its own batch, and all of them through the new
one, both in onnxruntime (ONNX) or OpenVINO (IR), beside dovetail's own comparison. Samples are the stored inputs and variations.
An architecture counts where one of its static files, or its fixed one, agrees at all three sizes in that format.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dovetail
from dovetail.compare.verification.conversion import random_outputs, runner_for
from dovetail.ir.symbolic import name_of
from dovetail.ir.types import Tensor

SIZES = (1, 3, 8)
FORMATS = {"onnx": ".onnx", "openvino": ".xml"}
Record = dict[str, Any]


class Row(NamedTuple):
    """The result of one file: the constants changed, the largest relative difference in the runtime, and why it fails."""

    arch: str
    format: str
    source: str
    changes: int
    worst: float
    why: str

    @property
    def agrees(self) -> bool:
        return not self.why


def sources(records: list[Record], suffix: str) -> Iterator[tuple[Record, str, bool]]:
    """Yield records, their files and whether the sizes must be fixed first: static files, or else dynamic ones."""
    files = [(record["id"], record["id"] + each, record["dynamic"]) for record in records for each in (suffix, *FORMATS.values())]
    files = list(dict.fromkeys(files))
    by_id = {record["id"]: record for record in records}
    held = [(by_id[id_], file, dynamic) for id_, file, dynamic in files if file in by_id[id_]["files"]]
    static = [each for each in held if each[1].endswith(suffix) and not each[2]]
    dynamic = [each for each in held if each[1].endswith(suffix) and each[2]]
    other = [each for each in held if not each[1].endswith(suffix)]
    yield from static
    yield from dynamic
    yield from sorted(other, key=lambda each: bool(each[2]))


def stored_inputs(folder: Path, record: Record, model: dovetail.Model) -> dict[str, Any]:
    with np.load(folder / f"{record['id']}.in.npz") as stored:
        arrays = dict(stored)
    names = {alias: value.name for value in model.inputs for alias in (value.name, *value.names)}
    if set(arrays) - set(names):
        # OpenVINO's PyTorch front end names inputs itself, and keeps their order.
        names = dict(zip(arrays, (value.name for value in model.inputs), strict=True))
    return {names[name]: array for name, array in arrays.items()}


def batch_axes(records: list[Record], model: dovetail.Model) -> dict[str, int]:
    """Return the axis of the batch of each input, as the dynamic records name it; axis 0 where none does."""
    named = {
        name: int(axis)
        for record in records
        for name, dims in (record.get("dyn") or {}).items()
        for axis, text in dims.items()
        if text == "batch"
    }
    if not named:
        named = {
            each["name"]: each["dims"].index("batch")
            for record in records
            for each in record["inputs"]
            if "batch" in each["dims"]
        }
    return {value.name: next((named[name] for name in (value.name, *value.names) if name in named), 0) for value in model.inputs}


def vary(sample: Any, generator: np.random.Generator) -> Any:
    drawn = generator.choice(sample.reshape(-1), sample.shape)
    return drawn * generator.uniform(0.5, 1.5, sample.shape).astype(sample.dtype) if sample.dtype.kind == "f" else drawn


def samples_of(inputs: Mapping[str, Any], axes: Mapping[str, int], count: int) -> list[dict[str, Any]]:
    """Return single samples: the first of the stored inputs, and variations of it."""
    generator = np.random.default_rng(7)
    first = {name: np.take(array, [0], axes[name]) for name, array in inputs.items()}
    return [first, *({name: vary(array, generator) for name, array in first.items()} for _ in range(count - 1))]


def joined(samples: list[dict[str, Any]], axes: Mapping[str, int]) -> dict[str, Any]:
    return {name: np.concatenate([sample[name] for sample in samples], axis) for name, axis in axes.items()}


def run_case(folder: Path, work: Path, records: list[Record], format: str, source: tuple[Record, str, bool]) -> Row:
    record, file, is_dynamic = source
    arch = record["arch"]
    row = Row(arch, format, file, 0, 0.0, "")
    original = dovetail.load(folder / file)
    inputs = stored_inputs(folder, record, original)
    if is_dynamic:
        original = dovetail.rebatch(original, shapes={name: list(array.shape) for name, array in inputs.items()})
        original = dovetail.simplify(original)
        row = row._replace(source=f"{file}, fixed")
    axes = batch_axes(records, original)
    before = str(work / f"before{FORMATS[format]}")
    dovetail.save(original, before)
    new = dovetail.rebatch(original, {f"{name}.{axis}": "batch" for name, axis in axes.items()}, inputs=inputs)
    report = new.report
    row = row._replace(changes=len(report.changes))
    after = str(work / f"after{FORMATS[format]}")
    dovetail.save(new, after)
    loaded = dovetail.load(after)
    for value in loaded.inputs:
        assert isinstance(value.type, Tensor) and value.type.shape is not None
        if isinstance(value.type.shape[axes[value.name]], int):
            return row._replace(why=f"the batch of {value.name} is fixed in the file")
    return compare_in_runtime(row, record, new, before, after, inputs, axes)


def compare_in_runtime(
    row: Row, record: Record, new: dovetail.Model, before: str, after: str, inputs: Mapping[str, Any], axes: Mapping[str, int]
) -> Row:
    """Run the fixed file for each sample, repeated where its batch is larger than 1, and the new file for all samples."""
    old = next(array.shape[axes[name]] for name, array in inputs.items())
    samples = samples_of(inputs, axes, max(SIZES))
    first, second = runner_for(before), runner_for(after)
    # In the order of the outputs: the files may name them otherwise.
    references = [list(first.run(joined([sample] * old, axes)).values()) for sample in samples]
    drawn = random_outputs(new)
    worst = 0.0
    for size in SIZES:
        outputs = list(second.run(joined(samples[:size], axes)).values())
        for position, value in enumerate(new.outputs):
            shape = value.type.shape if isinstance(value.type, Tensor) else None
            places = [axis for axis, dim in enumerate(shape or ()) if not isinstance(dim, int) and name_of(dim) == "batch"]
            array = outputs[position]
            largest = max(float(np.abs(each[position].astype(np.float64)).max(initial=0)) for each in references)
            for index in range(size):
                mine, theirs = array, references[index][position]
                for axis in places:
                    mine, theirs = np.take(mine, [index], axis), np.take(theirs, [0], axis)
                if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
                    return row._replace(why=f"{value.name} has the shape {array.shape} at {size}")
                if value.name in drawn:
                    continue
                # bf16 has the kind V.
                mine, theirs = (each.astype(np.float32) if each.dtype.kind == "V" else each for each in (mine, theirs))
                if mine.dtype.kind != "f":
                    if not np.array_equal(mine, theirs):
                        return row._replace(why=f"{value.name} differs at {size}, sample {index}")
                    continue
                if not np.array_equal(np.isnan(mine), np.isnan(theirs)):
                    return row._replace(why=f"{value.name} has NaN elsewhere at {size}, sample {index}")
                apart = float(np.nanmax(np.abs(mine.astype(np.float64) - theirs), initial=0)) / (largest or 1)
                worst = max(worst, apart)
    allowed = max(record["tolerance"], 1e-4)
    return row._replace(worst=worst, why="" if worst <= allowed else f"differs by {worst:.3g} of the largest magnitude")


def rows_of(folder: Path, records: list[Record], format: str) -> list[Row]:
    """Try the static files; a dynamic one only where none of them agrees."""
    found: list[Row] = []
    for source in sources(records, FORMATS[format]):
        if (source[2] or not source[1].endswith(FORMATS[format])) and any(row.agrees for row in found):
            break
        with tempfile.TemporaryDirectory() as work:
            try:
                row = run_case(folder, Path(work), records, format, source)
            except dovetail.DovetailError as error:
                items = [f"[{item.code}] {item.message} ({item.node})" for item in error.diagnostics]
                row = Row(source[0]["arch"], format, source[1], 0, 0.0, "; ".join(items))
        found.append(row)
        if source[2] and row.agrees:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="", help="only architectures whose name holds one of these texts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    groups: dict[str, list[Record]] = {}
    for record in json.loads((options.folder / "index.json").read_text(encoding="utf-8")):
        groups.setdefault(record["arch"], []).append(record)
    texts = [text for text in options.models.split(",") if text]
    table: list[Row] = []
    for arch, records in groups.items():
        if texts and not any(text in arch for text in texts):
            continue
        for format in FORMATS:
            for row in rows_of(options.folder, records, format):
                table.append(row)
                if not options.json:
                    verdict = f"agrees, {row.worst:.1e}" if row.agrees else row.why
                    print(f"{row.arch:28} {row.format:9} {row.source:44} {row.changes:3} changes  {verdict}"[:400], flush=True)
    passed = {format: {row.arch for row in table if row.format == format and row.agrees} for format in FORMATS}
    if options.json:
        print(
            json.dumps(
                {"rows": [row._asdict() for row in table], "passed": {key: sorted(names) for key, names in passed.items()}}
            )
        )
        return
    every = {row.arch for row in table}
    for format, names in passed.items():
        print(f"{format}: {len(names)} of {len(every)}; not: {', '.join(sorted(every - names)) or 'none'}")
    print(f"both: {len(passed['onnx'] & passed['openvino'])} of {len(every)}")


if __name__ == "__main__":
    main()
