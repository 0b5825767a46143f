"""Notebook view of a model: static HTML without scripts or external resources; every name is escaped."""

from __future__ import annotations

from html import escape

from dovetail.errors import UnsupportedError, printable
from dovetail.ir.graph import EXTENSIONS, Model
from dovetail.report.model_summary import summarize
from dovetail.report.printer import show

MAX_DRAWN = 3000
"""The maximum number of nodes of a graph that a notebook draws; larger graphs take too long."""
MAX_LINES = 200
"""The maximum number of lines of the graph's text in a notebook."""


def html(model: Model) -> str:
    """Return HTML with a table of inputs and outputs, counts, the picture, and the folded text of the graph.

    The text has at most MAX_LINES lines.
    """
    facts = summarize(model)
    rows = "".join(
        f"<tr><td>{role}</td><td>{_text(item['name'])}</td><td>{_text(item['type'])}</td></tr>"
        for role, items in (("input", facts["inputs"]), ("output", facts["outputs"]))
        for item in items
    )
    operators = ", ".join(f"{_text(kind)} {count}" for kind, count in facts["operators"].items())
    lines = show(model).splitlines()
    text = "\n".join(map(escape, lines[:MAX_LINES]))
    if len(lines) > MAX_LINES:
        text += f"\n... {len(lines) - MAX_LINES} more lines; print(model) shows all"
    return (
        f"<div><b>{_text(model.title)}</b>: {facts['nodes']} nodes, {facts['parameters']:,} parameters, "
        f"{facts['bytes']:,} bytes"
        f"<table><thead><tr><th></th><th>name</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"
        f"<p>{operators}</p>{_picture(model)}<details><summary>graph</summary><pre>{text}</pre></details></div>"
    )


def _picture(model: Model) -> str:
    """Return the picture of the graph; empty if the drawing packages are missing or the graph exceeds MAX_DRAWN."""
    if len(model.graph.nodes) > MAX_DRAWN:
        return ""
    try:
        svg = EXTENSIONS.model_svg(model)
    except UnsupportedError:
        return ""
    return f'<details open="open"><summary>picture</summary><div style="overflow:auto;max-height:800px">{svg}</div></details>'


def _text(text: str) -> str:
    return escape(printable(text))


EXTENSIONS.model_html = html
