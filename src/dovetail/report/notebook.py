"""A model as a notebook shows it: static HTML, no script, nothing fetched, every name escaped."""

from __future__ import annotations

from html import escape

from dovetail.errors import printable
from dovetail.ir.graph import EXTENSIONS, Model
from dovetail.ir.printer import show
from dovetail.report.model_summary import summarize

MOST_LINES = 200
"""The most lines of the graph's text that are put into a notebook."""


def html(model: Model) -> str:
    """A table of inputs and outputs, a line of counts, and the graph as text, folded away and cut after MOST_LINES lines."""
    found = summarize(model)
    rows = "".join(
        f"<tr><td>{role}</td><td>{_text(item['name'])}</td><td>{_text(item['type'])}</td></tr>"
        for role, items in (("input", found["inputs"]), ("output", found["outputs"]))
        for item in items
    )
    operators = ", ".join(f"{_text(kind)} {count}" for kind, count in found["operators"].items())
    lines = show(model).splitlines()
    text = "\n".join(map(escape, lines[:MOST_LINES]))
    if len(lines) > MOST_LINES:
        text += f"\n... {len(lines) - MOST_LINES} more lines; print(model) shows all"
    return (
        f"<div><b>{_text(model.graph.name or 'model')}</b>: {found['nodes']} nodes, {found['parameters']:,} parameters, "
        f"{found['bytes']:,} bytes"
        f"<table><thead><tr><th></th><th>name</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"
        f"<p>{operators}</p><details><summary>graph</summary><pre>{text}</pre></details></div>"
    )


def _text(text: str) -> str:
    return escape(printable(text))


EXTENSIONS.model_html = html
