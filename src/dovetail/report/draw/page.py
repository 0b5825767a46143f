"""HTML page of a picture: one file with data, style and script; it uses no external resources, and names are escaped."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from dovetail.errors import printable
from dovetail.report.document import document, json_of, text_of
from dovetail.report.draw.colors import Measure
from dovetail.report.draw.details import DetailWriter
from dovetail.report.draw.layers import LayerRows, Slot, assign_rows
from dovetail.report.draw.layout import box_lines, edge_label, gate_of, text_width
from dovetail.report.draw.scene import Card, Frame, Gate, Item, Scene, full_name, node_names
from dovetail.report.draw.svg import DARK_STYLE, STYLES, legend_of

MAX_NAMES = 64
"""The maximum number of node names of one box that the search of the page finds."""
FIRST, LAST, BACKWARD = 1, 2, 4
"""The flags of a wire in the data of the page."""


def write_page(scene: Scene, title: str, measure: Measure | None) -> str:
    """Return the HTML page, which is also well-formed XML.

    The content security policy allows only the style and script of the page, by their digests, and no requests.
    """
    name = text_of(title)
    plain = "" if measure is None else " plain"
    legend = "".join(f'<li><i class="{kind}{plain}"></i>{text}</li>' for kind, text in legend_of(measure))
    notes = "".join(f'<p class="note">coarser: {text_of(note)}</p>' for note in scene.notes)
    scale = ""
    if measure is not None:
        scale = f'<li><i class="scale"></i>{text_of(f"{measure.title} up to {measure.text(measure.largest)}")}</li>'
    body = (
        f'<header><h1>{name}</h1><input id="search" type="search" placeholder="search names and operators" '
        'aria-label="search"/><span id="found"></span>'
        '<button id="fit">fit</button><button id="open">open all</button><button id="close">fold all</button>'
        f'<ul class="legend">{legend}{scale}</ul></header>{notes}'
        '<div id="work"><main id="stage"><svg id="picture" class="dt-draw" xmlns="http://www.w3.org/2000/svg"></svg>'
        '<div id="tip"></div></main><aside id="panel" hidden="hidden" aria-label="details of a node"><p>'
        '<button id="copy">copy</button><button id="hide">close</button><span id="copied" role="status"></span></p>'
        '<div id="details"></div></aside></div>'
        f'<script type="application/json" id="scene">{_data(scene, measure)}</script>'
    )
    return document(title, body, _file("css") + DARK_STYLE, f"//<![CDATA[\n{_file('js')}//]]>\n")


def _data(scene: Scene, measure: Measure | None) -> str:
    """Return the data of the scene as JSON, which the script of the page draws."""
    items = list(scene.items())
    index = {item: number for number, item in enumerate(items)}
    details = DetailWriter()
    rows = [_item(item, index, measure, details) for item in items]
    return json_of({"items": rows, "styles": STYLES})


def _item(item: Item, index: dict[Item, int], measure: Measure | None, details: DetailWriter) -> dict[str, Any]:
    lines = box_lines(item)
    names = [full_name(name) for _, name in zip(range(MAX_NAMES), node_names(item), strict=False)] if _has_names(item) else []
    row: dict[str, Any] = {
        "k": "folded" if isinstance(item, Frame) else item.kind,
        "t": lines,
        "w": round(max(max(text_width(text, 12.0 if n == 0 else 10.0) for n, text in enumerate(lines)) + 22, 92.0)),
        "d": item.detail,
        "n": full_name(item.name if isinstance(item, Card) else item.title),
        "s": names,
        "c": item.count,
        "p": -1 if item.parent is None else index[item.parent],
        "z": item.total,
    }
    if item.node is not None and (found := details.details_of(item.node)) is not None:
        row["x"] = found
    number = None if measure is None else measure.of(item)
    if measure is not None and item.total:
        row["f"] = "#ffffff" if number is None else measure.color(number)
        row["b"] = "#22303f" if number is None else measure.text_color(number)
        row["m"] = "" if number is None else f"{printable(measure.title)}: {measure.text(number)}"
    if isinstance(item, Frame):
        row["o"] = item.is_open
        row["q"] = item.kind
        row |= _rows(assign_rows(item), item, index)
    return row


def _has_names(item: Item) -> bool:
    return isinstance(item, Card) or item.count > 1 or bool(item.nodes)


def _gates(frame: Frame) -> dict[Gate, int]:
    gates = dict.fromkeys([*frame.entries.values(), *frame.exits.values()])
    return {gate: number for number, gate in enumerate(gates)}


def _rows(rows: LayerRows, frame: Frame, index: dict[Item, int]) -> dict[str, Any]:
    """Return rows and wires of a frame; a slot is encoded as the index of its item, -1 for a bend, or -2 - n for gate n."""
    gates = _gates(frame)
    columns = {slot: number for row in rows.rows for number, slot in enumerate(row)}
    groups: dict[Any, int] = {}

    def code(slot: Slot) -> int:
        return -1 if slot.end is None else -2 - gates[slot.end] if isinstance(slot.end, Gate) else index[slot.end]

    def gate(slot: Slot, side: int, wire: Any) -> int:
        found = gate_of(slot, side, wire)
        return -1 if found is None or not isinstance(slot.end, Frame) else _gates(slot.end)[found]

    wires = [
        [
            wire.source.row, columns[wire.source], columns[wire.target],
            FIRST * wire.is_first | LAST * wire.is_last | BACKWARD * wire.is_backward,
            edge_label(wire) if wire.is_first else "", gate(wire.source, 0, wire), gate(wire.target, 1, wire),
            groups.setdefault((wire.source, wire.values), len(groups)),
        ]
        for wire in rows.wires
    ]  # fmt: skip
    return {"r": [[code(slot) for slot in row] for row in rows.rows], "e": wires}


def _file(suffix: str) -> str:
    return files("dovetail.report.draw").joinpath(f"page.{suffix}").read_text(encoding="utf-8")
