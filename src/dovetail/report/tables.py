"""The HTML tables of the page of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from dovetail.errors import printable
from dovetail.report.text import duration, percent, size, subgraph_rows

MAX_ROWS = 400
"""The maximum number of rows of a table; the page shows the number of omitted rows."""


class Bar(NamedTuple):
    """Bar is a table cell with a bar for a share of the total."""

    share: float | None


class Indented(NamedTuple):
    """Indented is a table cell with an indented text."""

    depth: int
    text: str


def tables(facts: Any) -> str:
    return copies(facts) + kernels(facts) + interpreter_steps(facts) + subgraph_steps(facts) + buffers(facts)


def copies(facts: Any) -> str:
    rows = [
        (item.step, item.source, item.target, size(item.nbytes), item.reason, duration(item.seconds))
        for item in sorted(facts.copies, key=lambda item: -item.nbytes)
    ]
    return table("Copies that remain", ("#step", "of", "to", "#bytes", "why", "#time"), rows, "None: no step only copies.")


def kernels(facts: Any) -> str:
    rows = [
        (item.kernel, "native" if item.is_native else "interpreter", item.count, duration(item.seconds), Bar(item.share))
        for item in facts.kernels
    ]
    return table("Steps by kernel", ("kernel", "runs", "#steps", "#time", "share"), rows, "There are no steps.")


def interpreter_steps(facts: Any) -> str:
    rows = [(item.number, item.label, item.kernel, item.reason, duration(item.seconds)) for item in facts.interpreted]
    return table("Steps in the interpreter", ("#step", "node", "operator", "why", "#time"), rows, "None: every step is native.")


def subgraph_steps(facts: Any) -> str:
    """Return the table of If and Loop with the steps of their subgraphs; an empty string if no subgraph ran."""
    rows = []
    for depth, label, runs, seconds, step in subgraph_rows(facts.steps):
        number, kernel = ("", "") if step is None else (step.number, step.kernel)
        runs_in = "" if step is None else "native" if step.is_native else "interpreter"
        rows.append((number, Indented(depth, label), kernel, runs_in, runs, duration(seconds)))
    columns = ("#step", "node", "kernel", "runs in", "#runs", "#time")
    return table("Steps of subgraphs", columns, rows, "") if rows else ""


def buffers(facts: Any) -> str:
    rows = [
        (item.name, size(item.nbytes), item.offset, item.first, item.last, _tensors_in(item))
        for item in sorted(facts.buffers, key=lambda item: -item.nbytes)
    ]
    columns = ("buffer", "#bytes", "#address", "#first step", "#last step", "tensors made in it")
    return table("Buffers", columns, rows, "The arena is empty.", is_open=False)


def _tensors_in(buffer: Any) -> str:
    names = ", ".join(piece.name for piece in buffer.pieces)
    if buffer.cuts:
        return f"{names}; cut into {', '.join(buffer.views)}"
    return f"side by side: {names}" if buffer.is_shared else names


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str, is_open: bool = True) -> str:
    """Return a foldable table with its heading as HTML; a column whose name begins with # contains numbers."""
    if not rows:
        return f"<h2>{title}</h2><p>{empty}</p>"
    head = "".join(f"<th{_kind(column)}>{column.removeprefix('#')}</th>" for column in columns)
    body = "".join(_row(columns, row) for row in rows[:MAX_ROWS])
    more = f"<p>and {len(rows) - MAX_ROWS} more</p>" if len(rows) > MAX_ROWS else ""
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    opened = ' open="open"' if is_open else ""
    return f"<details{opened}><summary><h2>{title} ({len(rows)})</h2></summary>{table}</details>"


def _row(columns: Iterable[str], row: Iterable[Any]) -> str:
    cells = "".join(f"<td{_kind(column)}>{_cell(item)}</td>" for column, item in zip(columns, row, strict=True))
    return f"<tr>{cells}</tr>"


def _kind(column: str) -> str:
    return ' class="number"' if column.startswith("#") else ""


def _cell(item: object) -> str:
    if isinstance(item, Bar):
        bar = f'<svg class="bar" width="{(item.share or 0) * 120:.1f}" height="9"></svg>'
        return f'<span class="share">{bar} {percent(item.share)}</span>'
    if isinstance(item, Indented):
        return '<span class="indent"></span>' * item.depth + escape(printable(item.text))
    return escape(printable(str(item)))
