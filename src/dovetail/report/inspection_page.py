"""HTML page of the inspection of a model file; the page uses no external resources, and every text is escaped."""

from __future__ import annotations

from typing import Any

from dovetail.report.document import cards, document, stylesheet, text_of
from dovetail.report.tables import table
from dovetail.report.text import count


def page(facts: dict[str, Any]) -> str:
    """Return the HTML page, which is also well-formed XML and has no script."""
    title = f"Inspection of {facts['name']}"
    reasons = count(len(facts["reasons"]), "reason") if facts["reasons"] else "no reason"
    summary = facts["summary"] or {"nodes": 0, "format": "not loaded"}
    items = [
        ("verdict", reasons, count(len(facts["notes"]), "note")),
        ("nodes", f"{summary['nodes']:,}", str(summary["format"])),
        ("steps of a run", facts["costs"].get("steps", "unknown")[:60], "in the open sizes"),
    ]
    tests = [{**each, "verdict": "reason" if each["is_reason"] else "note"} for each in facts["triggers"]]
    tables = [
        ("Reasons", facts["reasons"], ("rule", "message", "node")),
        ("Notes", facts["notes"], ("rule", "message", "node")),
        ("Costs", [{"cost": name, "amount": amount} for name, amount in facts["costs"].items()], ("cost", "amount")),
        ("Paths through equality tests", tests, ("input", "test", "constant", "selection", "verdict")),
        ("Loops", facts["loops"], ("node", "trips", "bound")),
        ("Operators without a rule", facts["operators"], ("operator", "count")),
        ("Files", facts["files"], ("file", "bytes", "sha256")),
        ("Repairs of the load", facts["repairs"], ("code", "message", "node")),
        ("Texts", facts["texts"], ("place", "text", "length")),
        ("Constants", facts["digests"], ("name", "type", "sha256")),
    ]
    body = "".join(_table(heading, rows, columns) for heading, rows, columns in tables)
    start = f'<h1>{text_of(title)}</h1><p class="subtitle">{reasons} against the file</p>{cards(items)}'
    return document(title, start + body, stylesheet("plan") + stylesheet("model"))


def _table(heading: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    cells = [tuple("" if row[column] is None else row[column] for column in columns) for row in rows]
    heads = ["#" + column if column in ("bytes", "count", "length") else column for column in columns]
    return table(heading, heads, cells, "There are none.", is_open=heading != "Constants")
