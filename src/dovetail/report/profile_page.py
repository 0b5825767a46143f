"""HTML page of a profile with charts and tables; the page uses no external resources, and every name is escaped."""

from __future__ import annotations

from typing import Any

from dovetail.report.document import cards, document, stylesheet, text_of
from dovetail.report.profile_chart import charts_of, legend
from dovetail.report.profile_text import (
    engine_text,
    limit_percent,
    machine_text,
    nbytes,
    notes_of,
    operations,
    rows_of_subgraphs,
    share_of_limit,
)
from dovetail.report.tables import Bar, Indented, table
from dovetail.report.text import count, duration, size

MAX_INPUTS = 8
"""The maximum number of inputs that the subtitle names."""


def page(profile: Any) -> str:
    """Return the HTML page, which is also well-formed XML and has no script."""
    title = f"Profile of {profile.name}"
    body = f"<h1>{text_of(title)}</h1>{section(profile)}"
    return document(title, body, style())


def style() -> str:
    """Return the style sheet of a page with charts of a profile."""
    return stylesheet("plan") + stylesheet("profile")


def section(profile: Any) -> str:
    """Return the cards, charts and tables of a profile as HTML."""
    charts = "".join(
        f"<h2>{title}</h2>{legend(profile) if number == 0 else ''}{chart}" + (f'<p class="note">{note}</p>' if note else "")
        for number, (title, note, chart) in enumerate(charts_of(profile, is_html=True))
    )
    notes = "".join(
        f'<p class="note">{text_of(engine.name)}: {text_of(note)}</p>' for engine in profile.engines for note in engine.notes
    )
    notes += "".join(f'<p class="note">{text_of(name)}: {text_of(text)}.</p>' for name, text in notes_of(profile))
    native = [engine for engine in profile.engines if engine.engine == "native"]
    tables = "".join(_native_tables(engine) for engine in native)
    machine = f'<p class="note">Limits of this machine, measured by dovetail: {text_of(machine_text(profile))}.</p>'
    if profile.load is not None:
        notes += f'<p class="note">Load: {text_of(profile.load)}.</p>'
    inputs = [f"{name}[{', '.join(map(str, shape))}]" for name, shape in profile.shapes.items()]
    if len(inputs) > MAX_INPUTS:
        inputs[MAX_INPUTS:] = [f"{len(inputs) - MAX_INPUTS} more"]
    subtitle = f'<p class="subtitle">{text_of(", ".join(inputs))} &#183; {count(profile.threads, "thread")}</p>'
    return f"{subtitle}{_cards(profile)}{notes}{machine if native else ''}{charts}{_operators(profile)}{tables}"


def _cards(profile: Any) -> str:
    items = []
    for engine in profile.engines:
        figure = "does not run" if engine.run_seconds is None else duration(engine.run_seconds)
        items.append((engine.name, figure, engine_text(engine)))
    native = next((engine for engine in profile.engines if engine.engine == "native"), None)
    if native is not None:
        work = [step for step in native.steps if step.attainable is not None]
        items.append(("operations", operations(sum(step.operations for step in work)), "two per multiply-add"))
        items.append(("bytes", size(sum(step.nbytes for step in work)), "read and written by all steps"))
        seconds = sum(step.seconds for step in work)
        if seconds and profile.limits is not None:
            share = sum(step.attainable for step in work) / seconds
            items.append(("of the limit", limit_percent(share), "time at the limits of the machine over measured time"))
    return cards(items)


def _operators(profile: Any) -> str:
    """Return the table of time by operator with a column per engine."""
    columns = ["operator"]
    for engine in profile.engines:
        columns += [f"#{text_of(engine.name)}", "share"]
    rows = []
    for name, cells in profile.operators():
        row: list[Any] = [name]
        for cell in cells:
            row += ["", ""] if cell is None else [duration(cell.seconds), Bar(cell.share)]
        rows.append(row)
    return table("Operators", columns, rows, "There are no steps.")


def _native_tables(engine: Any) -> str:
    columns = ("#steps", "#time", "share", "#bytes", "#operations", "#of the limit")
    found = ""
    for title, rows in (("Kernels", engine.kernels()), ("Modules", engine.modules())):
        if title == "Modules" and len(rows) < 2:
            continue
        cells = [
            (row.name, row.count, duration(row.seconds), Bar(row.share), nbytes(row.nbytes), operations(row.operations),
             share_of_limit(row.share_of_limit, row.bound))
            for row in rows
        ]  # fmt: skip
        found += table(title, (title.lower()[:-1], *columns), cells, "There are no steps.")
    return found + steps_table(engine) + subgraphs_table(engine)


def subgraphs_table(engine: Any) -> str:
    """Return the table of If and Loop with the steps of their subgraphs; an empty string if no subgraph ran."""
    rows = list(rows_of_subgraphs(engine.steps, Indented))
    columns = ("#step", "node", "operator", "kernel", "#runs", "#time", "#bytes", "#operations", "#of the limit")
    return table("Steps of subgraphs", columns, rows, "", is_open=False) if rows else ""


def steps_table(engine: Any) -> str:
    """Return the table of steps in descending order of time."""
    rows = [
        (step.number, step.label, step.operator, step.kernel, step.module, duration(step.seconds), nbytes(step.nbytes),
         operations(step.operations), share_of_limit(step.share_of_limit, step.bound))
        for step in sorted(engine.steps, key=lambda step: -step.seconds)
    ]  # fmt: skip
    columns = ("#step", "node", "operator", "kernel", "module", "#time", "#bytes", "#operations", "#of the limit")
    return table("Steps, the slowest first", columns, rows, "There are no steps.", is_open=False)
