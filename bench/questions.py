"""Tables of models by questions: each model is asked in a process of its own, with limits, since other engines may end it.

The questions are modules under tests/models, which print their answers by tests/models/worker.py. A process that dies is started
again with the question after the one that it died of.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of tests/models/worker.py about a cell: reason "" where it is filled, None where there is nothing to ask."""

    reason: str | None = ""
    note: str = ""
    is_peers: bool = False

    @property
    def mark(self) -> str:
        return "" if self.reason is None else "peer" if self.is_peers else "no" if self.reason else "yes"


Cells = dict[str, Answer]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one question in seconds, and of one process in GB of address space."""

    seconds: float = 300
    gigabytes: float = 24


def asked(module: str, folder: Path, name: str, columns: Sequence[str], limits: Limits) -> Cells:
    """Return the answer of each cell of one model. ``module``: that of the questions, as imported from the folder tests."""
    found: Cells = {}
    while len(found) < len(columns):
        rest = [column for column in columns if column not in found]
        command = [sys.executable, "-m", module, str(folder.resolve()), name, f"--seconds={limits.seconds:g}", *rest]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=limits.seconds * (len(rest) + 1), check=False,
                cwd=ROOT / "tests", preexec_fn=lambda: limit_memory(limits.gigabytes),
            )  # fmt: skip
            printed, why = ended.stdout, _end(ended, limits)
        except subprocess.TimeoutExpired as error:
            printed, why = (error.stdout or b"").decode(), f"over {limits.seconds:g} s"
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"cell"')]
        found.update({line["cell"]: Answer(line["reason"], line["note"], line["is_peers"]) for line in lines if "reason" in line})
        begun = [line["cell"] for line in lines if line["cell"] not in found]
        if len(found) < len(columns):
            found[begun[-1] if begun else next(cell for cell in columns if cell not in found)] = Answer(why)
    if found[columns[0]].reason:
        found.update({column: Answer("it does not load") for column in columns[1:] if found[column].mark == "no"})
    return {column: found[column] for column in columns}


def _end(ended: subprocess.CompletedProcess[str], limits: Limits) -> str:
    if ended.returncode == -signal.SIGALRM:
        return f"over {limits.seconds:g} s"
    return f"the process ended with code {ended.returncode}: {ended.stderr.strip()[-200:]}"


def limit_memory(gigabytes: float) -> None:
    """Limit the address space of this process."""
    size = int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def shares(table: dict[str, Cells], columns: Sequence[str]) -> dict[str, tuple[int, int]]:
    """For each column how many cells are filled, of how many that apply; another engine's faults do not count."""
    marks = {column: [row[column].mark for row in table.values()] for column in columns}
    return {column: (found.count("yes"), found.count("yes") + found.count("no")) for column, found in marks.items()}


def rows(table: dict[str, Cells], columns: Sequence[str]) -> list[str]:
    """Return the table in Markdown: its head, and a row a model."""
    drawn = [[name, *(row[column].mark for column in columns)] for name, row in table.items()]
    return ["| " + " | ".join(row) + " |" for row in (["model", *columns], ["---"] * (len(columns) + 1), *drawn)]


def summary(table: dict[str, Cells], columns: Sequence[str]) -> list[str]:
    """Return the share of each column that is filled, in Markdown."""
    return [
        f"| {column} | {yes} of {all_} ({yes / max(all_, 1):.1%}) |" for column, (yes, all_) in shares(table, columns).items()
    ]


def reasons(table: dict[str, Cells], mark: str = "no") -> list[tuple[str, str, str]]:
    """Model, columns and reason of the cells with this mark."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, row in table.items():
        for column, cell in row.items():
            if cell.mark == mark:
                found.setdefault((name, cell.reason or cell.note), []).append(column)
    return [(name, ", ".join(columns), reason) for (name, reason), columns in found.items()]


def listed(items: Sequence[tuple[str, str, str]]) -> list[str]:
    """Reasons as a list in Markdown."""
    return [f"- {name}, {columns}: {reason}" for name, columns, reason in items] or ["None."]
