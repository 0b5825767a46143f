"""HTML page of the report of a model; the page uses no external resources, and every name is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from dovetail.report.document import cards, document, script_source, stylesheet, text_of
from dovetail.report.draw.svg import DARK_STYLE
from dovetail.report.page import arena, plan_cards, plan_data
from dovetail.report.profile_page import section as profile_section, style
from dovetail.report.tables import Bar, buffers, copies, table
from dovetail.report.text import count, duration, size

SECTIONS = (
    ("summary", "Summary"),
    ("interface", "Inputs and outputs"),
    ("formats", "Formats and opsets"),
    ("check", "Faults and warnings"),
    ("drawing", "Drawing"),
    ("operators", "Operators"),
    ("profile", "Profile"),
    ("plan", "Memory plan"),
    ("shapes", "Shapes"),
)
"""The anchors and headings of the page's sections, in order."""
QUANTIZATION = ("quantization", "Quantization")
"""The section of a model that dovetail.quantize returned."""
MAX_OPEN_ROWS = 30
"""The maximum number of rows of an open table of ports; larger tables are folded."""
MAX_FAULTS = 100
"""The maximum number of faults that a table lists."""


def page(report: Any) -> str:
    """Return the HTML page, which is also well-formed XML."""
    title = f"Report of {report.name}"
    sections = [*SECTIONS, *([] if report.quantization is None else [QUANTIZATION])]
    links = " ".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading in sections)
    subtitle = f"{count(len(report.faults), 'fault')}, {count(len(report.warnings), 'warning')}"
    body = [f'<h1>{text_of(title)}</h1><p class="subtitle">{subtitle}</p><nav>{links}</nav>']
    makers: dict[str, Callable[[Any], str]] = {
        "summary": _summary, "interface": _interface, "formats": _formats, "check": _check, "drawing": _drawing,
        "operators": _operators, "profile": _profile, "plan": _plan, "shapes": _shapes,
        "quantization": lambda report: _quantization(report.quantization),
    }  # fmt: skip
    for anchor, heading in sections:
        failure = report.failures.get(anchor)
        content = (
            f'<p class="failure">This section could not be made: {text_of(failure)}</p>' if failure else makers[anchor](report)
        )
        body.append(f'<section id="{anchor}"><h2 class="chapter">{heading}</h2>{content}</section>')
    script = "" if report.plan is None else script_source("plan")
    return document(title, "".join(body), style() + stylesheet("model") + DARK_STYLE, script)


def _summary(report: Any) -> str:
    facts = report.summary
    versions = ", ".join(f"{domain or 'opset'} {version}" for domain, version in facts["versions"].items())
    items = [
        ("format", facts["format"] or "built", versions),
        ("nodes", f"{facts['nodes']:,}", f"{count(len(facts['operators']), 'operator')}"),
        ("parameters", f"{facts['parameters']:,}", f"{size(facts['bytes'])} of constants"),
    ]
    if report.profile is not None and report.profile.engines and report.profile.engines[0].run_seconds is not None:
        engine = report.profile.engines[0]
        items.append(("a run", duration(engine.run_seconds), f"{engine.name}, {count(report.profile.threads, 'thread')}"))
    if report.plan is not None:
        items.append(("arena", size(report.plan.arena_bytes), "memory of all activations"))
    producer = f'<p class="note">Written by {text_of(facts["producer"])}.</p>' if facts["producer"] else ""
    return cards(items) + producer


def _interface(report: Any) -> str:
    rows = [(role, item["name"], item["type"]) for role in ("input", "output") for item in report.summary[f"{role}s"]]
    return table("Ports", ("", "name", "type"), rows, "There are none.", is_open=len(rows) <= MAX_OPEN_ROWS)


def _formats(report: Any) -> str:
    """Return the tables of export targets and their blockers; successive opsets with equal blockers share a row."""
    rows = []
    tables = []
    for name, target in _merge_targets(report.targets):
        if target.skipped:
            rows.append((name, f"not tried: {target.skipped}"))
        elif not target.faults:
            rows.append((name, "can be written"))
        else:
            rows.append((name, f"{count(len(target.faults), 'blocker')}, for example {target.faults[0].message}"))
            tables.append(_fault_table(f"Blockers of {name}", target.faults, is_open=False))
    note = '<p class="note">An export was tried in memory for each target; no file was written.</p>'
    return note + table("Targets", ("target", "result"), rows, "There are none.") + "".join(tables)


def _merge_targets(targets: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, target) of the export targets; successive opsets with equal results are merged."""
    for _, run in groupby(targets, lambda target: (target.format, target.skipped, target.faults)):
        members = list(run)
        first, last = members[0], members[-1]
        yield first.name if len(members) == 1 else f"ONNX opsets {last.opset} to {first.opset}", first


def _fault_table(title: str, faults: Any, is_open: bool = True) -> str:
    rows = [(item.code, item.node or "", item.op or "", item.message) for item in faults[:MAX_FAULTS]]
    more = f"<p>and {len(faults) - MAX_FAULTS} more</p>" if len(faults) > MAX_FAULTS else ""
    return table(title, ("code", "node", "operator", "message"), rows, "There are none.", is_open=is_open) + more


def _check(report: Any) -> str:
    if not report.faults and not report.warnings:
        return "<p>The model breaks no rule, and its file departs from its format nowhere.</p>"
    return _fault_table("Faults", report.faults) + _fault_table("Warnings", report.warnings)


def _drawing(report: Any) -> str:
    # The policy of the page allows one style sheet, which has the rules of the drawing.
    return f'<div class="drawing">{report.drawing.replace(f"<style>{DARK_STYLE}</style>", "")}</div>'


def _operators(report: Any) -> str:
    operators = report.summary["operators"]
    total = sum(operators.values())
    rows = [(name, number, Bar(number / total)) for name, number in operators.items()]
    types = [(name, f"{number:,}") for name, number in report.summary["constants"].items()]
    constants = table("Constants by element type", ("type", "#elements"), types, "There are none.")
    return table("By count", ("operator", "#nodes", "share"), rows, "There are none.") + constants


def _quantization(facts: dict[str, Any]) -> str:
    nodes = facts["nodes"]
    items = [
        ("weights", facts["to"], f"{count(len(nodes), 'weight')}"),
        ("bytes", size(facts["bytes"]), f"of {size(facts['bytes_before'])}"),
        ("error", _error(facts["measured"]), f"predicted {_error(facts['predicted'])}"),
    ]
    names = ("node", "op", "bits_before", "bits", "activation_bits", "rounding")
    rows = [
        (*(node[name] for name in names), size(node["bytes_before"] - node["bytes"]),
         _error(node["predicted"]), _error(node["measured"]), node["kept"])
        for node in nodes
    ]  # fmt: skip
    columns = (
        "node", "operator", "#bits", "#after", "#inputs", "rounding", "#bytes saved", "#predicted", "#measured", "kept for",
    )  # fmt: skip
    return cards(items) + table("Weights", columns, rows, "There are none.")


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.3g}"


def _profile(report: Any) -> str:
    return profile_section(report.profile)


def _plan(report: Any) -> str:
    plan = report.plan
    return f"{plan_cards(plan)}{arena(plan)}{copies(plan)}{buffers(plan)}{plan_data(plan)}"


def _shapes(report: Any) -> str:
    rows = [(item["name"], item["type"], item["operator"]) for item in report.values]
    hidden = report.value_count - len(report.values)
    more = f"<p>and {hidden} more values</p>" if hidden else ""
    return table("Values", ("value", "type", "operator"), rows, "There are none.", is_open=False) + more
