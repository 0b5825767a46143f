"""Steps of each model's plan that run in the interpreter, and their share of the time.

    python bench/interpreter_steps.py FOLDER|FILE ... [--models TEXT[,TEXT...]] [--limit PERCENT] [--only quantised|other]
                                      [--rounds N] [--seconds S] [--json]

FOLDER has an index.json: that of bench/corpus.py or build/zoo. Each file is planned with its stored inputs (or random ones) and
timed with one thread, in a process of its own. Prints a line for each model with an operator whose interpreted steps take more
than --limit of the time of all steps (2 %), and the operators with the most models. An operator is quantised where its
module is in ops/quantization or its name says so; steps inside subgraphs count as their If, Loop or Scan.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine import plan_report
from dovetail.formats import load
from dovetail.ir.op import REGISTRY
from dovetail.runtime.random_inputs import random_inputs


class File(NamedTuple):
    """A model file and its stored inputs, which may be absent."""

    name: str
    path: Path
    inputs: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="FOLDER|FILE")
    parser.add_argument("--models", dest="texts", default="", metavar="TEXT[,TEXT...]")
    parser.add_argument("--limit", type=float, default=2, metavar="PERCENT")
    parser.add_argument("--only", choices=("quantised", "other"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120, help="the most that one file may take")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    files = [file for path in options.models for file in files_of(path)]
    if options.measure:
        print(json.dumps(measure(files[0], options.rounds)))
        return
    texts = [text for text in options.texts.split(",") if text]
    rows = []
    for file in files:
        if texts and not any(text in file.name for text in texts):
            continue
        row = measure_apart(file, options.rounds, options.seconds)
        row["over"] = [
            operator
            for operator in row.get("operators", [])
            if operator["share"] * 100 > options.limit and options.only in (None, operator["kind"])
        ]
        rows.append(row)
        if not options.json and (row["over"] or "error" in row):
            print(_text(row), flush=True)
    summary = summarize(rows)
    if options.json:
        print(json.dumps({"models": rows, "summary": summary, "load": os.getloadavg()}, indent=1))
    else:
        _print_summary(summary, options.limit)


def files_of(path: Path) -> Iterator[File]:
    """Yield the model files of a folder with an index.json, or the one file."""
    if path.is_file():
        yield File(path.name, path, path.with_suffix(".in.npz"))
        return
    for record in json.loads((path / "index.json").read_text(encoding="utf-8")):
        for name in record.get("files") or [record["file"]]:
            if name.endswith((".onnx", ".xml")):
                inputs = record.get("inputs") if "file" in record else None
                stored = inputs.format("") if isinstance(inputs, str) else f"{record['id']}.in.npz"
                suffix = Path(name).suffix if "files" in record else ""
                yield File(record["id"] + suffix, path / name, path / stored)


def measure_apart(file: File, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure a file in a process of its own."""
    command = [sys.executable, __file__, str(file.path), "--measure", "--rounds", str(rounds)]
    environment = {**os.environ, "STORED_INPUTS": str(file.inputs)}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return {"model": file.name, "error": f"over {seconds:g} s"}
    if ended.returncode:
        return {"model": file.name, "error": " ".join(ended.stderr.strip().splitlines()[-3:]) or f"code {ended.returncode}"}
    return {"model": file.name, **json.loads(ended.stdout.splitlines()[-1])}


def measure(file: File, rounds: int) -> dict[str, Any]:
    """Plan and time a file; return the interpreted operators, the slowest first."""
    model = load(file.path)
    stored = _stored_inputs(Path(os.environ.get("STORED_INPUTS", file.inputs)), [value.name for value in model.inputs])
    inputs = random_inputs(model) if stored is None else stored
    facts = plan_report.report(model, threads=1, rounds=rounds, inputs=inputs)
    total = sum(step.seconds or 0.0 for step in facts.steps)
    quantised = {name for name, op in REGISTRY.items() if ".quantization." in op.__module__ or "Quantize" in name}
    operators: dict[str, dict[str, Any]] = {}
    for step in facts.interpreted:
        kind = "quantised" if quantised & set(step.kernel.split()) else "other"
        row = operators.setdefault(
            step.kernel, {"operator": step.kernel, "kind": kind, "steps": 0, "seconds": 0.0, "reasons": []}
        )
        row["steps"] += 1
        row["seconds"] += step.seconds or 0.0
        if step.reason not in row["reasons"]:
            row["reasons"].append(step.reason)
    for row in operators.values():
        row["share"] = row["seconds"] / total if total else 0.0
    found = sorted(operators.values(), key=lambda row: -row["seconds"])
    return {"seconds": facts.run_seconds, "steps": len(facts.steps), "interpreted": len(facts.interpreted), "operators": found}


def _stored_inputs(path: Path, names: list[str]) -> dict[str, Any] | None:
    """Return the stored inputs by name, else in order; None where there are none for this model."""
    if not path.exists():
        return None
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if set(names) <= set(arrays):
        return {name: arrays[name] for name in names}
    return dict(zip(names, arrays.values(), strict=True)) if len(names) == len(arrays) else None


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the models above the limit by operator and kind."""
    operators: dict[str, dict[str, Any]] = {}
    for row in rows:
        for operator in row["over"]:
            entry = operators.setdefault(operator["operator"], {"kind": operator["kind"], "models": [], "largest_share": 0.0})
            entry["models"].append(row["model"])
            entry["largest_share"] = max(entry["largest_share"], operator["share"])
    over = {kind: sum(any(o["kind"] == kind for o in row["over"]) for row in rows) for kind in ("quantised", "other")}
    failed = [row["model"] for row in rows if "error" in row]
    return {"files": len(rows), "failed": failed, "over": over, "operators": operators}


def _text(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['model']:40}  {row['error']}"
    parts = [f"{o['operator']} x{o['steps']} {o['share']:.0%} ({'; '.join(o['reasons'])})" for o in row["over"]]
    return f"{row['model']:40}  {(row['seconds'] or 0) * 1e3:9.2f} ms  {', '.join(parts)}"


def _print_summary(summary: dict[str, Any], limit: float) -> None:
    print()
    for name, entry in sorted(summary["operators"].items(), key=lambda item: -len(item[1]["models"])):
        print(f"{name:32}  {entry['kind']:9}  {len(entry['models']):4} files  up to {entry['largest_share']:.0%}")
    over = summary["over"]
    print(
        f"{summary['files']} files; above {limit:g} %: {over['quantised']} with quantised steps, {over['other']} with others; "
        f"{len(summary['failed'])} failed"
    )


if __name__ == "__main__":
    main()
