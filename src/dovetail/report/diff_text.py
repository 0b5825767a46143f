"""The differences between two models as text."""

from __future__ import annotations

from typing import Any

from dovetail.errors import printable

MAX_LABELS = 3
"""The maximum number of nodes of a replaced region that a line names."""
MAX_TEXT = 80
"""The maximum length, in characters, of a metadata entry."""


def summary(facts: Any) -> list[tuple[str, str]]:
    """Return the counts of a diff as (name, text) rows."""
    counts = facts.counts
    rows = [(kind, str(count)) for kind, count in counts.items() if count or kind == "matched"]
    if facts.renamed:
        rows.append(("renamed", f"{facts.renamed} of the matched"))
    if facts.resized:
        rows.append(("other types", f"{facts.resized} values, because types before them differ"))
    return rows


def change_rows(facts: Any) -> list[tuple[str, str, str, str]]:
    """Return a row for each difference between nodes: its kind, the nodes of both models, and the differences."""
    return [
        (
            item.kind,
            _nodes(item.path, item.first, item.first_operators),
            _nodes(item.path, item.second, item.second_operators),
            "; ".join(item.details),
        )
        for item in facts.changes
    ]


def port_rows(facts: Any) -> list[tuple[str, str, str, str]]:
    return [
        (f"{port.role} {port.kind}", port.first, port.second, port.text if port.is_difference else "")
        for port in facts.ports
        if port.kind != "same"
    ]


def property_rows(facts: Any) -> list[tuple[str, str, str]]:
    return [(item.name, _short(item.before), _short(item.after)) for item in facts.properties]


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _nodes(path: str, labels: tuple[str, ...], operators: tuple[str, ...]) -> str:
    if not labels:
        return "-"
    named = [f"{path}{label} ({operator})" for label, operator in zip(labels, operators, strict=True)]
    more = f" and {len(named) - MAX_LABELS} more" if len(named) > MAX_LABELS else ""
    return ", ".join(named[:MAX_LABELS]) + more


def diff_text(facts: Any) -> str:
    """Return all differences as lines of text."""
    lines = [f"{facts.first} and {facts.second}: {'same' if facts.is_same else 'different'}"]
    lines += [f"  {name}: {text}" for name, text in summary(facts)]
    lines += [
        f"  {' | '.join(part for part in row if part)}" for row in (*change_rows(facts), *port_rows(facts), *property_rows(facts))
    ]
    lines += [f"  note: {note}" for note in facts.notes]
    return "\n".join(map(printable, lines))
