"""Every model of a corpus, asked everything: loaded, inferred, run by both engines, at second sizes, converted and run elsewhere.

    python bench/corpus.py CORPUS_FOLDER [--models TEXT[,TEXT...]] [--jobs N] [--seconds S] [--memory GB] [--json] [--page]

Prints the table of models by cells and the share of filled cells in each column; a cell that does not apply to a record is not
counted. --models takes the records whose name holds one of the texts; --page writes docs/corpus.md. What a cell asks, and by
what it is judged, is in tests/models/corpus_cells.py. Each model has a process of its own, with limits, since other engines may
end it; it goes on with the cell after the one that it died in.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests" / "models" / "corpus_cells.py"
PAGE = ROOT / "docs" / "corpus.md"
COLUMNS = ("load", "infer", "interpreter", "native", "second sizes", "to IR", "to ONNX")
Cells = dict[str, str | None]


def asked(folder: Path, name: str, seconds: float, gigabytes: float) -> Cells:
    """What each cell of one record says: "" where it is filled, else the reason; None where it does not apply."""
    found: Cells = {}
    while len(found) < len(COLUMNS):
        command = [sys.executable, str(SCRIPT), str(folder), name, *(cell for cell in COLUMNS if cell not in found)]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, check=False, preexec_fn=lambda: _limit(gigabytes)
            )
            printed, why = ended.stdout, f"the process ended with code {ended.returncode}: {ended.stderr.strip()[-200:]}"
        except subprocess.TimeoutExpired as error:
            printed, why = (error.stdout or b"").decode(), f"over {seconds:g} s"
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"cell"')]
        found.update({line["cell"]: line["reason"] for line in lines if "reason" in line})
        begun = [line["cell"] for line in lines if line["cell"] not in found]
        if len(found) < len(COLUMNS):
            found[begun[-1] if begun else next(cell for cell in COLUMNS if cell not in found)] = why
    if found["load"]:
        found.update({column: "it does not load" for column, reason in found.items() if reason and column != "load"})
    return found


def _limit(gigabytes: float) -> None:
    size = int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def mark(reason: str | None) -> str:
    return "" if reason is None else "no" if reason else "yes"


def shares(table: dict[str, Cells]) -> dict[str, tuple[int, int]]:
    """For each column how many cells are filled, of how many that apply."""
    columns = {column: [row[column] for row in table.values() if row[column] is not None] for column in COLUMNS}
    return {column: (sum(not reason for reason in cells), len(cells)) for column, cells in columns.items()}


def lines(table: dict[str, Cells]) -> list[list[str]]:
    """The table as rows of text: its head, a row a record, and what is filled."""
    filled = [f"{yes} of {all_} ({yes / max(all_, 1):.1%})" for yes, all_ in shares(table).values()]
    rows = [[name, *(mark(row[column]) for column in COLUMNS)] for name, row in table.items()]
    return [["model", *COLUMNS], *rows, ["filled", *filled]]


def reasons(table: dict[str, Cells]) -> list[tuple[str, str, str]]:
    """Model, columns and reason of what is empty."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, row in table.items():
        for column in COLUMNS:
            if reason := row[column]:
                found.setdefault((name, reason), []).append(column)
    return [(name, ", ".join(columns), reason) for (name, reason), columns in found.items()]


def page(table: dict[str, Cells]) -> str:
    """docs/corpus.md."""
    head, *body = lines(table)
    summary = [f"| {column} | {text} |" for column, text in zip(COLUMNS, body[-1][1:], strict=True)]
    drawn = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body[:-1])]
    empty = [f"- {name}, {column}: {reason}" for name, column, reason in reasons(table)] or ["None."]
    peers = ", ".join(f"{name} {metadata.version(name)}" for name in ("onnxruntime", "openvino", "onnx"))
    return "\n".join(
        [
            "# Models that people have",
            "",
            f"{len(table)} records of real architectures with random weights, as torch's exporters, OpenVINO's PyTorch front",
            "end, onnxruntime's quantisers and NNCF write them: an ONNX file, an IR file, or both. This page is written by",
            f"`python bench/corpus.py FOLDER --page`; the other engines were {peers}.",
            "",
            "- **load**: each file loads, and no operator in it is unknown.",
            "- **infer**: element type and rank of every value are known without running, and outputs have the sizes inferred.",
            "- **interpreter**, **native**: each file, run by that engine of ours, gives the reference: what onnxruntime made of",
            "  the ONNX file, OpenVINO of the IR file. Where low precision makes engines differ, it may be three times as far",
            "  from the reference as the two references are from each other; where the model draws random numbers, types and",
            "  shapes are compared.",
            "- **second sizes**: the same at sizes that the exporter did not see, by both of our engines. OpenVINO's results for",
            "  them are not stored; it is asked itself.",
            "- **to IR**, **to ONNX**: `dovetail convert --verify` agrees on random inputs; and OpenVINO or onnxruntime, given",
            "  what we wrote and the stored inputs, gives the reference at each stored size.",
            "",
            "An empty cell is a question that the record does not have.",
            "",
            "| | filled |",
            "| --- | --- |",
            *summary,
            "",
            "## What is not filled, and why",
            "",
            *empty,
            "",
            "## The table",
            "",
            *drawn,
            "",
        ]
    )


def chosen(folder: Path, texts: Sequence[str]) -> list[str]:
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return [facts["id"] for facts in index if not texts or any(text in facts["id"] for text in texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="the most that one process may take")
    parser.add_argument("--memory", type=float, default=24, help="the most address space of one process, in GB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    names = chosen(options.folder, [text for text in options.models.split(",") if text])

    def row(name: str) -> tuple[str, Cells]:
        found = asked(options.folder, name, options.seconds, options.memory)
        text = "  ".join(f"{mark(found[column]):{len(column)}}" for column in COLUMNS)
        print(f"{name:40}  {text}".rstrip(), file=sys.stderr if options.json else sys.stdout, flush=True)
        return name, found

    if not options.json:
        print(f"{'model':40}  {'  '.join(COLUMNS)}", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        table = dict(pool.map(row, names))
    if options.json:
        print(json.dumps({"models": table, "filled": shares(table), "load": os.getloadavg()}, indent=1))
    else:
        for name, column, reason in reasons(table):
            print(f"{name}, {column}: {reason}")
        for column, (yes, all_) in shares(table).items():
            print(f"{column:14} {yes} of {all_} filled ({yes / max(all_, 1):.1%})")
    if options.page:
        PAGE.write_text(page(table), encoding="utf-8")


if __name__ == "__main__":
    main()
