"""Prove or refute that what other tools make of an ONNX file equals the file.

    python bench/judge.py FOLDER --python PYTHON [--models TEXT[,TEXT...]] [--tools NAME[,NAME...]] [--sample N]
                          [--seconds S] [--memory GB] [--keep FOLDER] [--run-all] [--json]

PYTHON is that of an environment with onnxslim, onnxsim, onnxscript, onnxruntime, onnx and openvino. Each tool runs in a process
of its own, with a limit of time and memory (bench/other_tools.py): the simplifiers, onnxruntime's saved graphs (basic, extended),
the newest opset of onnx's version converter, and OpenVINO's IR of the ONNX file. A file NAME.dyn*.onnx, which torch's dynamo
exporter wrote, is compared with the file NAME.ts*.onnx of its TorchScript exporter beside it ("torch exporters"), with inputs and
outputs in order. Each result is proved equal to the original:

- proved: `dovetail.prove(..., real=True)` has a proof
- refuted: on stored or random inputs, the outputs of both files differ in their runtimes, without optimizations, and in
  dovetail; or an output of the original is random, and that of the result is not
- open: neither; the operators at the first unequal values are listed, and a difference of the runtimes alone
- tool failed: the tool ends with an error, or exceeds a limit

With --run-all files that are proved equal run too; a proof of files whose outputs differ is a fault of dovetail, and listed.
--sample takes every N-th file, --keep writes the results of the tools that are not proved equal into a folder.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from other_tools import TOOLS
from questions import limit_memory
from simplify import cases_of, difference

import dovetail
from dovetail.compare.verification.conversion import random_outputs
from dovetail.errors import DovetailError
from dovetail.runtime.random_inputs import random_inputs

SCRIPT = Path(__file__).resolve().parent / "other_tools.py"
EXPORTERS = "torch exporters"
COLUMNS = ("tool", "models", "proved", "in bits", "refuted", "open", "tool failed")
NOT_RUN = "not run"
RUNTIMES = "only the runtimes differ"
Record = dict[str, Any]


class ToolRunner:
    """ToolRunner runs commands of bench/other_tools.py in processes with limits of time and memory."""

    def __init__(self, python: str, seconds: float, gigabytes: float) -> None:
        self._python = python
        self._seconds = seconds
        self._gigabytes = gigabytes

    def run(self, *arguments: str | Path) -> tuple[str, str]:
        """Run a command. Returns what it printed, and the reason why it failed or an empty text."""
        command = [self._python, str(SCRIPT), *map(str, arguments)]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=self._seconds, check=False,
                preexec_fn=lambda: limit_memory(self._gigabytes),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "", f"over {self._seconds:g} s"
        lines = ended.stderr.strip().splitlines() or [""]
        return ended.stdout, f"exit code {ended.returncode}: {lines[-1][:200]}" if ended.returncode else ""

    def outputs_of(self, model: Path, inputs: dict[str, Any], folder: Path) -> dict[str, Any] | str:
        """Run a model file in its runtime. Returns the outputs, numbered, or the reason why there are none."""
        source, target = folder / "inputs.npz", folder / "outputs.npz"
        np.savez(source, **inputs)
        _, failure = self.run("run", model, source, target)
        if failure:
            return failure
        with np.load(target, allow_pickle=False) as arrays:
            return dict(arrays)


class Original:
    """Original is an ONNX file with its inputs and the outputs that onnxruntime computes of them."""

    def __init__(self, source: Path, record: Record, runner: ToolRunner, folder: Path) -> None:
        self.source = source
        self._record = record
        self._runner = runner
        self._folder = folder
        self._calls: list[tuple[dict[str, Any], dict[str, Any]]] | None = None

    def difference_from(self, target: Path) -> str:
        """Run both files. Returns the first difference of their outputs, or an empty text.

        The text begins with NOT_RUN if a file did not run, and with RUNTIMES if the outputs of dovetail do not differ.
        """
        drawn = random_outputs(dovetail.load(self.source))
        if drawn:
            fixed = sorted(drawn - random_outputs(dovetail.load(target)))
            return f"{fixed[0]}: random in the original alone" if fixed else f"{NOT_RUN}: the model draws random numbers"
        calls = self._run_calls()
        if not calls:
            return f"{NOT_RUN}: the original does not run"
        for inputs, expected in calls:
            outputs = self._runner.outputs_of(target, inputs, self._folder)
            if isinstance(outputs, str):
                return f"{NOT_RUN}: {outputs}"
            for name, array in expected.items():
                reason = difference(array, outputs.get(name), self._record)
                if reason:
                    return f"{name}: {reason}" if self._differs_here(target, inputs) else f"{RUNTIMES}: {name}: {reason}"
        return ""

    def _differs_here(self, target: Path, inputs: dict[str, Any]) -> bool:
        """Return whether the outputs of both files differ in dovetail, or one of the files does not run."""
        try:
            first, second = (list(dovetail.run(file, inputs).values()) for file in (self.source, target))
        except DovetailError:
            return True
        return any(difference(np.asarray(a), np.asarray(b), self._record) for a, b in zip(first, second, strict=True))

    def _run_calls(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        if self._calls is None:
            self._calls = []
            for inputs in self._inputs():
                outputs = self._runner.outputs_of(self.source, inputs, self._folder)
                if not isinstance(outputs, str):
                    self._calls.append((inputs, outputs))
        return self._calls

    def _inputs(self) -> list[dict[str, Any]]:
        calls = [inputs for inputs, _ in cases_of({}, self.source)]
        try:
            calls.append(dict(random_inputs(dovetail.load(self.source), seed=0)))
        except DovetailError as error:
            print(f"  {self.source.name}: no random inputs: [{error.code}]", file=sys.stderr)
        return calls


def other_export(source: Path) -> Path | None:
    """Return the file of torch's TorchScript exporter beside a file of its dynamo exporter; None for other files."""
    found = re.fullmatch(r"(.*)\.dyn\d*([ds])\.onnx", source.name)
    return next(iter(sorted(source.parent.glob(f"{found[1]}.ts*{found[2]}.onnx"))), None) if found else None


def save_as_named(file: Path | None, like: Path, target: Path) -> None:
    """Save a model with the names of the inputs and outputs of another one, in their order."""
    assert file is not None
    model, other = dovetail.load(file), dovetail.load(like)
    for ports, named in ((model.inputs, other.inputs), (model.outputs, other.outputs)):
        names = {port.name: name.name for port, name in zip(ports, named, strict=True) if port.name != name.name}
        model = model.rename_values(names) if names else model
    dovetail.save(model, target)


def judge(original: Original, tool: str, runner: ToolRunner, folder: Path, *, runs_all: bool) -> Record:
    """Make the file of one tool, and prove it equal to the original or refute it."""
    target = folder / ("target.xml" if tool == "openvino" else "target.onnx")
    row: Record = {"model": original.source.name, "tool": tool, "verdict": "tool failed", "blockers": [], "notes": []}
    if tool == EXPORTERS:
        row["reason"] = ""
        save_as_named(other_export(original.source), original.source, target)
    else:
        _, row["reason"] = runner.run(tool, original.source, target)
    if row["reason"] or not target.exists():
        return row
    row["verdict"] = "open"
    start = perf_counter()
    try:
        proof = dovetail.prove(original.source, target, real=True)
    except DovetailError as error:
        row["reason"] = f"[{error.code}] {error.message}"[:200]
    else:
        row |= {"proof": proof.verdict, "rewrites": proof.rewrites, "notes": proof.notes}
        if proof.is_proved:
            row["verdict"] = "proved"
        else:
            row["blockers"] = [f"{op_a} / {op_b}" for op_a, op_b in proof.frontier]
    row["seconds"] = perf_counter() - start
    if row["verdict"] == "open" or runs_all:
        row["difference"] = original.difference_from(target)
        if row["verdict"] == "open" and row["difference"] and not row["difference"].startswith((NOT_RUN, RUNTIMES)):
            row["verdict"] = "refuted"
    return row


def keep_files(row: Record, made: Path, folder: Path) -> None:
    stem = f"{Path(row['model']).stem}.{row['tool'].replace(' ', '_')}"
    for file in made.glob("target.*"):
        shutil.copy(file, folder / f"{stem}{file.suffix}")


def line_of(row: Record) -> str:
    blockers = "; ".join(row["blockers"][:4])
    parts = [f"{row['model']:40} {row['tool']:20} {row['verdict']:11} {row.get('proof', ''):9} {row.get('seconds', 0.0):6.2f}s"]
    parts += [row["reason"], row.get("difference", ""), blockers, *row["notes"]]
    return " ".join(part for part in parts if part)[:260]


def summary(rows: list[Record]) -> list[str]:
    """Return the table of tools, and below it the operators at the first unequal values of open results."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    for tool in dict.fromkeys(row["tool"] for row in rows):
        chosen = [row for row in rows if row["tool"] == tool]
        counts = Counter(row["verdict"] for row in chosen)
        in_bits = sum(row.get("proof") == "bits" for row in chosen)
        cells = [tool, len(chosen), counts["proved"], in_bits, counts["refuted"], counts["open"], counts["tool failed"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    runs = [row for row in rows if row["verdict"] == "proved" and not row.get("difference", NOT_RUN).startswith(NOT_RUN)]
    wrong = [row for row in runs if row["difference"] and not row["difference"].startswith(RUNTIMES)]
    lines += ["", f"proved equal and run: {len(runs)}, with other outputs: {len(wrong)}", *map(line_of, wrong), ""]
    blockers = Counter((row["tool"], blocker) for row in rows if row["verdict"] == "open" for blocker in set(row["blockers"]))
    return lines + [f"{count:4} {tool:20} {blocker}" for (tool, blocker), count in blockers.most_common(40)]


def records_of(folder: Path) -> dict[str, Record]:
    """Return the records of a folder's index by the name of the ONNX file."""
    index = folder / "index.json"
    records = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
    return {record.get("file", f"{record['id']}.onnx"): record for record in records}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", required=True, help="the Python of an environment with the tools")
    parser.add_argument("--models", default="", help="only models whose names contain one of these texts")
    parser.add_argument("--tools", default=",".join((*TOOLS, EXPORTERS)))
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120, help="the most that one run of a tool may take")
    parser.add_argument("--memory", type=float, default=16, help="the most address space of a tool, in GB")
    parser.add_argument("--keep", type=Path, help="a folder for the results that are not proved equal")
    parser.add_argument("--run-all", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    runner = ToolRunner(arguments.python, arguments.seconds, arguments.memory)
    versions, failure = runner.run("versions")
    if failure:
        sys.exit(f"{arguments.python} needs the packages of all tools: {failure}")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    texts = [text for text in arguments.models.split(",") if text]
    files = [file for file in sorted(arguments.folder.glob("**/*.onnx")) if not texts or any(text in file.name for text in texts)]
    records = records_of(arguments.folder)
    rows: list[Record] = []
    for file in files[:: arguments.sample]:
        with tempfile.TemporaryDirectory() as inputs:
            original = Original(file, records.get(str(file.relative_to(arguments.folder)), {}), runner, Path(inputs))
            for tool in arguments.tools.split(","):
                if tool == EXPORTERS and other_export(file) is None:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(judge(original, tool, runner, Path(folder), runs_all=arguments.run_all))
                    if arguments.keep and rows[-1]["verdict"] in ("open", "refuted"):
                        keep_files(rows[-1], Path(folder), arguments.keep)
                print(line_of(rows[-1]), file=sys.stderr if arguments.json else sys.stdout, flush=True)
    lines = summary(rows)
    if arguments.json:
        print(json.dumps({"rows": rows, "summary": lines, "versions": json.loads(versions)}, indent=1))
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
