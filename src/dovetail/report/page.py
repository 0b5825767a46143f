"""HTML page of a plan; the page uses no external resources, and every name is escaped."""

from __future__ import annotations

from typing import Any

from dovetail.errors import printable
from dovetail.report.arena_chart import LEFT, RIGHT, WIDTH, arena_chart, hue
from dovetail.report.document import cards, document, json_of, script_source, stylesheet, text_of
from dovetail.report.tables import tables
from dovetail.report.text import count, duration, percent, share_of_interpreter, size, summary

LEGEND = (
    ("shared", "several tensors in one buffer, side by side: joining or cutting them copies nothing"),
    ("alone", "a buffer of one tensor at a time"),
    ("made", "computed in place of an earlier one"),
    ("copying", "a step that copies"),
    ("interpreted", "a step in the interpreter"),
    ("bound", "largest live set: no arena can be smaller"),
)


def page(facts: Any) -> str:
    """Return the HTML page, which is also well-formed XML.

    The content security policy allows only the style and script of the page, by their digests, and no requests.
    """
    body = (
        f"<h1>Plan of {text_of(facts.name)}</h1>{_subtitle(facts)}{plan_cards(facts)}"
        f"<h2>The arena over time</h2>{arena(facts)}"
        f"{tables(facts)}"
        f"{plan_data(facts)}"
    )
    return document(f"Plan of {facts.name}", body, stylesheet("plan"), script_source("plan"))


def plan_data(facts: Any) -> str:
    """Return the element with the data that the page's script shows in tooltips."""
    return f'<script type="application/json" id="facts">{_data(facts)}</script>'


def arena(facts: Any) -> str:
    """Return the chart of the arena with its legend."""
    return (
        f'{_legend(facts)}<div id="stage">{arena_chart(facts)}<div id="tip"></div></div>'
        '<p class="note">Each rectangle is a piece of memory, from the first step that needs it to the last. In a shared buffer '
        "each band is one tensor, as high as it has bytes, from the step that writes it (dashed: cut apart by those that "
        "read it); in memory the bands may be interleaved. "
        "Inputs, results and weights lie outside the arena.</p>"
    )


def notebook(facts: Any) -> str:
    """Return the notebook view of a plan: the facts and the chart, without a script."""
    rows = "".join(f"<tr><th>{text_of(what)}</th><td>{text_of(text)}</td></tr>" for what, text in summary(facts))
    style = f"<style>{stylesheet('plan')}</style>"
    head = f"<b>{text_of(facts.name)}</b><table>{rows}</table>"
    return f'<div class="dovetail-plan">{style}{head}{_legend(facts)}{arena_chart(facts)}</div>'


def _is_written_over(buffer: Any) -> bool:
    """Return whether a tensor of the buffer is computed in place, over an earlier tensor."""
    return len({(piece.start, piece.end) for piece in buffer.pieces}) < len(buffer.pieces)


def _data(facts: Any) -> str:
    """Return the data for tooltips as JSON; characters that end a script or begin markup are escaped."""
    found = {
        "buffers": [
            {
                "name": printable(buffer.name),
                "size": size(buffer.nbytes),
                "offset": buffer.offset,
                "first": buffer.first,
                "last": buffer.last,
                "shared": buffer.is_shared and not buffer.cuts,
                "pieces": [
                    [printable(piece.name), piece.type, size(piece.nbytes), piece.first, hue(number, index)]
                    for index, piece in enumerate(buffer.pieces)
                ],
                "views": [printable(name) for name in buffer.views],
            }
            for number, buffer in enumerate(facts.buffers)
        ],
        "steps": [[printable(step.label), printable(step.kernel), duration(step.seconds)] for step in facts.steps],
        "left": LEFT,
        "right": WIDTH - RIGHT,
    }
    return json_of(found)


def _subtitle(facts: Any) -> str:
    inputs = ", ".join(f"{name}[{', '.join(map(str, shape))}]" for name, shape in facts.shapes.items())
    return (
        f'<p class="subtitle">{text_of(inputs)} &#183; elide {text_of(facts.elide)} &#183; {count(facts.threads, "thread")}</p>'
    )


def plan_cards(facts: Any) -> str:
    """Return the cards of a plan: copied bytes, arena, steps and time."""
    moved = f"of {size(facts.moved_bytes)} that operators which only move data would copy"
    share = f" ({percent(facts.copied_bytes / facts.moved_bytes)})" if facts.moved_bytes else ""
    bound = f", {facts.arena_bytes / facts.lower_bound:.2f} of the largest live set" if facts.lower_bound else ""
    interpreted = len(facts.interpreted)
    native = f"{interpreted} in the interpreter{share_of_interpreter(facts)}" if interpreted else "all native"
    items = [
        ("copied", size(facts.copied_bytes), moved + share),
        ("arena", size(facts.arena_bytes), f"for {size(facts.activation_bytes)} of activations{bound}"),
        ("steps", str(len(facts.steps)), native),
    ]
    if facts.run_seconds is not None:
        items.append(("a run", duration(facts.run_seconds), f"median, {count(facts.threads, 'thread')}"))
    return cards(items)


def _legend(facts: Any) -> str:
    has_shared = any(buffer.is_shared for buffer in facts.buffers)
    shown = {
        "shared": has_shared,
        "copying": bool(facts.copies),
        "interpreted": bool(facts.interpreted),
        "made": any(_is_written_over(buffer) for buffer in facts.buffers),
    }
    items = "".join(f'<li><i class="swatch {kind}"></i>{text}</li>' for kind, text in LEGEND if shown.get(kind, True))
    return f'<ul class="legend">{items}</ul>'
