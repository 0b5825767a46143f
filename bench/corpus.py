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
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from questions import ROOT, Cells, Limits, asked, listed, reasons, rows, shares, summary

QUESTIONS = "models.corpus_cells"
PAGE = ROOT / "docs" / "corpus.md"
COLUMNS = ("load", "infer", "interpreter", "native", "second sizes", "to IR", "to ONNX")


def page(table: dict[str, Cells]) -> str:
    """docs/corpus.md."""
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
            *summary(table, COLUMNS),
            "",
            "## What is not filled, and why",
            "",
            *listed(reasons(table)),
            "",
            "## The table",
            "",
            *rows(table, COLUMNS),
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
    parser.add_argument("--seconds", type=float, default=300, help="the most that one question may take")
    parser.add_argument("--memory", type=float, default=24, help="the most address space of one process, in GB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    names = chosen(options.folder, [text for text in options.models.split(",") if text])

    def row(name: str) -> tuple[str, Cells]:
        found = asked(QUESTIONS, options.folder, name, COLUMNS, Limits(options.seconds, options.memory))
        text = "  ".join(f"{found[column].mark:{len(column)}}" for column in COLUMNS)
        print(f"{name:40}  {text}".rstrip(), file=sys.stderr if options.json else sys.stdout, flush=True)
        return name, found

    if not options.json:
        print(f"{'model':40}  {'  '.join(COLUMNS)}", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        table = dict(pool.map(row, names))
    if options.json:
        models = {name: {column: asdict(cell) for column, cell in row.items()} for name, row in table.items()}
        print(json.dumps({"models": models, "filled": shares(table, COLUMNS), "load": os.getloadavg()}, indent=1))
    else:
        for name, column, reason in reasons(table):
            print(f"{name}, {column}: {reason}")
        for column, (yes, all_) in shares(table, COLUMNS).items():
            print(f"{column:14} {yes} of {all_} filled ({yes / max(all_, 1):.1%})")
    if options.page:
        PAGE.write_text(page(table), encoding="utf-8")


if __name__ == "__main__":
    main()
