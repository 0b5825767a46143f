"""HTML page of the differences between two models; the page uses no external resources, and every name is escaped."""

from __future__ import annotations

from typing import Any

from dovetail.report.diff_text import summary
from dovetail.report.document import cards, document, stylesheet, text_of
from dovetail.report.tables import MAX_ROWS, table

MAX_LABELS = 40
"""The maximum number of nodes of a replaced region that the page lists."""


def page(facts: Any) -> str:
    """Return the HTML page, which is also well-formed XML."""
    title = f"{facts.first} and {facts.second}"
    verdict = "same" if facts.is_same else "different"
    items = [("answer", verdict, "names and the order of nodes do not matter")]
    items += [(name, text.split(" ")[0], " ".join(text.split(" ")[1:]) or "nodes") for name, text in summary(facts)]
    notes = "".join(f'<p class="note">{text_of(note)}</p>' for note in facts.notes)
    body = f"<h1>Differences: {text_of(title)}</h1>{cards(items)}{notes}{_changes(facts)}{_ports(facts)}{_properties(facts)}"
    return document(f"Differences: {title}", body, stylesheet("plan") + stylesheet("diff"))


def _changes(facts: Any) -> str:
    if not facts.changes:
        return "<h2>Nodes</h2><p>All nodes are equal.</p>"
    rows = "".join(map(_change, facts.changes[:MAX_ROWS]))
    more = f"<p>and {len(facts.changes) - MAX_ROWS} more</p>" if len(facts.changes) > MAX_ROWS else ""
    head = f"<tr><th></th><th>{text_of(facts.first)}</th><th>{text_of(facts.second)}</th></tr>"
    return (
        f"<h2>Nodes ({len(facts.changes)})</h2>"
        f'<div class="wide"><table class="sides"><thead>{head}</thead><tbody>{rows}</tbody></table></div>{more}'
    )


def _change(item: Any) -> str:
    """Return the table row of one difference: the nodes and the differing facts of each model."""
    facts = [*item.attributes, *item.operands, *item.types]
    before = [(each.name, each.before) for each in facts] + [(each.operand, each.before) for each in item.weights]
    after = [(each.name, each.after) for each in facts] + [(each.operand, each.after) for each in item.weights]
    weights = "".join(f"<div>{text_of(each.text)}</div>" for each in item.weights)
    first = _side(item.path, item.first, item.first_operators, before)
    second = _side(item.path, item.second, item.second_operators, after)
    kind = f'<span class="kind">{text_of(item.kind)}</span>{weights}'
    return f'<tr class="{text_of(item.kind)}"><td>{kind}</td><td>{first}</td><td>{second}</td></tr>'


def _side(path: str, labels: tuple[str, ...], operators: tuple[str, ...], facts: list[tuple[str, str]]) -> str:
    if not labels:
        return ""
    nodes = "".join(
        f"<div><b>{text_of(operator)}</b> <code>{text_of(path + label)}</code></div>"
        for label, operator in list(zip(labels, operators, strict=True))[:MAX_LABELS]
    )
    more = f"<div>and {len(labels) - MAX_LABELS} more</div>" if len(labels) > MAX_LABELS else ""
    lines = "".join(f"<li>{text_of(name)}: <code>{text_of(value)}</code></li>" for name, value in facts)
    return f"{nodes}{more}" + (f"<ul>{lines}</ul>" if lines else "")


def _ports(facts: Any) -> str:
    rows = [
        (port.role, port.kind, port.first, port.first_type, port.second, port.second_type)
        for port in facts.ports
    ]  # fmt: skip
    return table("Inputs and outputs", ("", "", "first", "type", "second", "type"), rows, "There are none.")


def _properties(facts: Any) -> str:
    rows = [(item.name, item.before, item.after) for item in facts.properties]
    return table("File", ("", "first", "second"), rows, "Format, opsets and metadata are equal.")
