"""Trained models of wheels, torch's exports and trained estimators, asked everything.

    python bench/zoo.py [--models TEXT[,TEXT...]] [--jobs N] [--seconds S] [--memory GB] [--anew] [--page]

Fills build/zoo, which git ignores, where it is not filled: wheels that carry models (zoo_wheels.txt) into a folder of their own,
without dependencies; exports of torch modules (zoo_modules.py); estimators (zoo_estimators.py) by an environment of their own.
Packages that cannot be installed are listed and left out. tests/models/zoo_cells.py has the questions; the answers go to
build/zoo/results.json, and with --page into docs/measurements/zoo.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata

from questions import ROOT, Answer, Cells, Limits, asked, listed, reasons, rows, shares, summary
from zoo_inputs import write_inputs

ZOO = ROOT / "build" / "zoo"
BENCH = ROOT / "bench"
PAGE = ROOT / "docs" / "measurements" / "zoo.md"
QUESTIONS = "models.zoo_cells"
COLUMNS = (
    "load", "check", "infer", "native", "onnxruntime", "OpenVINO", "sizes", "to IR", "and back", "newer opset", "older opset",
    "plan", "gradient", "time",
)  # fmt: skip
EXPORTER = ("onnxscript==0.7.2", "onnx_ir==1.1.0")
"""What torch's dynamo exporter needs beside torch."""


# Filling the folder


def fill(anew: bool) -> None:
    """Install and write what is not there; a part that cannot be made is listed and left out."""
    for name, part in {"wheels": _install_wheels, "torch": _export_modules, "estimators": _train_estimators}.items():
        done = ZOO / f".{name}"
        if done.exists() and not anew:
            continue
        try:
            part()
            done.touch()
        except (subprocess.CalledProcessError, ModuleNotFoundError) as error:
            print(f"without the {name}: {error}", file=sys.stderr)
    _write_index()


def _run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **environment})


def _install_wheels() -> None:
    _run(
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:", "--upgrade",
        "--target", str(ZOO / "wheels"), "--requirement", str(BENCH / "zoo_wheels.txt"),
    )  # fmt: skip


def _export_modules() -> None:
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("torch is not installed; EXTRAS=test+oracles brings it")
    there = ZOO / "onnxscript"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(there))
    _run(*pip, *EXPORTER)
    _run(sys.executable, str(BENCH / "zoo_modules.py"), str(ZOO / "torch"), PYTHONPATH=str(there))


def _train_estimators() -> None:
    python = str(ZOO / "estimators-environment" / "bin" / "python")
    _run(sys.executable, "-m", "venv", str(ZOO / "estimators-environment"))
    _run(python, "-m", "pip", "install", "--quiet", "--requirement", str(BENCH / "zoo_estimators.txt"))
    _run(python, str(BENCH / "zoo_estimators.py"), str(ZOO / "estimators"))


def _write_index() -> None:
    """index.json: a record a model, with its file, its inputs and where it comes from."""
    found = []
    described = tomllib.loads((BENCH / "zoo_models.toml").read_text(encoding="utf-8"))
    versions = dict(line.split("==") for line in (BENCH / "zoo_wheels.txt").read_text(encoding="utf-8").split() if "==" in line)
    (ZOO / "inputs").mkdir(parents=True, exist_ok=True)
    for name, facts in described.items():
        path = ZOO / "wheels" / facts["file"]
        if not path.exists():
            continue
        for which, key in enumerate(("first", "second")):
            if key in facts:
                write_inputs(path, ZOO / "inputs" / f"{name}.in{'2' if which else ''}.npz", which, facts[key])
        wheel = name.split(".")[0]
        found.append(
            {"id": name, "file": f"wheels/{facts['file']}", "inputs": f"inputs/{name}.in{{}}.npz",
             "from": f"{wheel} {versions[wheel]}"}
        )  # fmt: skip
    for part in ("torch", "estimators"):
        for path in sorted((ZOO / part).glob("*.onnx")):
            name = path.name.removesuffix(".onnx")
            found.append(
                {"id": f"{part}.{name}", "file": f"{part}/{path.name}", "inputs": f"{part}/{name}.in{{}}.npz", "from": part}
            )
    (ZOO / "index.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


# The page


def page(table: dict[str, Cells], origins: dict[str, str]) -> str:
    """docs/measurements/zoo.md."""
    wheels = sorted({origin for origin in origins.values() if " " in origin})
    trained = sum(" " in origins[name] for name in table)
    peers = ", ".join(f"{name} {metadata.version(name)}" for name in ("onnxruntime", "openvino", "onnx"))
    refused = {
        f"{part}.{name}": why
        for part in ("torch", "estimators")
        if (ZOO / part / "refused.json").exists()
        for name, why in json.loads((ZOO / part / "refused.json").read_text(encoding="utf-8")).items()
    }
    notes = [(name, cell) for name, row in table.items() for cell in ("check", "infer", "plan", "time") if row[cell].note]
    facts = {name: {cell: table[name][cell].note for who, cell in notes if who == name} for name, _ in notes}
    return "\n".join(
        [
            "# The zoo: models that others trained or exported",
            "",
            f"{len(table)} models: {trained} trained ones that {len(wheels)} wheels carry, and {len(table) - trained} that",
            "torch's exporters, skl2onnx and onnxmltools write of modules and estimators. `make zoo` installs the wheels into",
            "`build/zoo`, makes the others, asks each model the questions below and writes this page; the other engines were",
            f"{peers}.",
            "",
            "- **load**: it loads, and no operator in it is unknown.",
            "- **check**: what `dovetail check` calls a fault is one to onnx's own checker too, or shows in what onnxruntime",
            "  gives.",
            "- **infer**: element type and rank of every value are known without running, and outputs have the sizes inferred.",
            "  Behind an If whose branches differ in rank, the rank is known in each branch.",
            "- **native**: the native engine gives what our interpreter gives.",
            "- **onnxruntime**, **OpenVINO**: it gives what they make of the file.",
            "- **sizes**: the same, OpenVINO aside, at other sizes.",
            "- **to IR**: OpenVINO runs what we write, with the results that onnxruntime has of the file.",
            "- **and back**: onnxruntime does, of ONNX that we write from that IR.",
            "- **newer opset**, **older opset**: it does, of what we write for the next two opsets and for the two before.",
            "- **plan**: the native engine plans it.",
            "- **gradient**: the native gradients of the first float output are those of an f64 run, and these the slopes of",
            "  central differences.",
            "- **time**: our time over the quicker peer's, one thread (in the notes).",
            "",
            "Results are equal where they are within 1e-4 of the largest magnitude, integers and text where they are the same.",
            "Where they are not, the interpreter with f64 in place of every smaller float says who is nearer to it: the cell is",
            "filled, with a note, where that is not the other engine. *peer*: another engine refuses the model, so that there is",
            "nothing to compare with. An empty cell is a question that the model does not have.",
            "",
            "| | filled |",
            "| --- | --- |",
            *summary(table, COLUMNS),
            "",
            "## What is not filled, and why",
            "",
            *listed(reasons(table)),
            "",
            "## What other engines refuse",
            "",
            *listed(reasons(table, "peer")),
            "",
            "## Where engines differ, and f64 says that we are not further away",
            "",
            *listed(_notes(table)),
            "",
            "## The table",
            "",
            *rows(table, COLUMNS),
            "",
            "## Warnings and faults, what is copied, and times",
            "",
            *(f"- {name}: {'; '.join(f'{cell}: {note}' for cell, note in each.items())}" for name, each in facts.items()),
            "",
            "## Where they come from",
            "",
            "Wheels, of which only data files are read: " + ", ".join(wheels) + ".",
            "",
            "What its own exporter or converter refused:",
            "",
            *([f"- {name}: {_plain(why)}" for name, why in refused.items()] or ["None."]),
            "",
        ]
    )


def _notes(table: dict[str, Cells]) -> list[tuple[str, str, str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for name, row in table.items():
        for column, cell in row.items():
            if cell.mark == "yes" and cell.note and column not in ("load", "check", "infer", "plan", "time"):
                found.setdefault((name, cell.note), []).append(column)
    return [(name, ", ".join(columns), note) for (name, note), columns in found.items()]


def _plain(text: str) -> str:
    return "".join(each for each in text.replace("\x1b[96m", "").replace("\x1b[0m", "") if each.isprintable())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="the most that one question may take")
    parser.add_argument("--memory", type=float, default=24, help="the most address space of one process, in GB")
    parser.add_argument("--anew", action="store_true", help="install and export again what is there")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    ZOO.mkdir(parents=True, exist_ok=True)
    fill(options.anew)
    texts = [text for text in options.models.split(",") if text]
    index = json.loads((ZOO / "index.json").read_text(encoding="utf-8"))
    origins = {facts["id"]: facts["from"] for facts in index if not texts or any(text in facts["id"] for text in texts)}
    limits = Limits(options.seconds, options.memory)

    stored = ZOO / "results.json"
    known = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() and texts else {}

    def row(name: str) -> tuple[str, Cells]:
        found = asked(QUESTIONS, ZOO, name, COLUMNS, limits)
        known[name] = {column: asdict(cell) for column, cell in found.items()}
        stored.write_text(json.dumps(known, indent=1), encoding="utf-8")
        print(f"{name:40}  {'  '.join(f'{cell.mark:4}' for cell in found.values())}".rstrip(), flush=True)
        return name, found

    with ThreadPoolExecutor(options.jobs) as pool:
        table = dict(pool.map(row, origins))
    for name, column, reason in reasons(table):
        print(f"{name}, {column}: {reason}")
    for column, (yes, all_) in shares(table, COLUMNS).items():
        print(f"{column:14} {yes} of {all_} filled ({yes / max(all_, 1):.1%})")
    if options.page:
        every = {facts["id"]: facts["from"] for facts in index}
        kept = {name: {c: Answer(**cell) for c, cell in known[name].items()} for name in every if name in known}
        PAGE.write_text(page(kept, every), encoding="utf-8")


if __name__ == "__main__":
    main()
