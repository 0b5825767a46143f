"""SVG of a placed scene, without scripts and external resources; every name is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from dovetail.errors import printable
from dovetail.report.draw.colors import Measure
from dovetail.report.draw.layout import TITLE, Path, Placed, box_lines, text_width
from dovetail.report.draw.scene import Card, Frame, Item, shorten

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BACKGROUND = "#ffffff"

# For each kind of box: the colours of its background, its border and its text.
STYLES = {
    "operator": ("#f4f7fb", "#a9b8cc", "#22303f"),
    "weighted": ("#dbe8fb", "#6f97d1", "#173a6b"),
    "movement": ("#fdf3dc", "#d3a94e", "#6b4a08"),
    "control": ("#efe3fa", "#a77fd0", "#4b2377"),
    "input": ("#dff3e4", "#63ad78", "#14532a"),
    "output": ("#dff3e4", "#63ad78", "#14532a"),
    "folded": ("#e9ecf1", "#7d8a9c", "#22303f"),
}
LEGEND = (
    ("weighted", "operator with weights"),
    ("operator", "operator"),
    ("movement", "only moves data"),
    ("control", "control flow"),
    ("folded", "folded module"),
)
DARK = {
    "#ffffff": "#17181a", "#f7f9fc": "#1d1f22", "#eff3f8": "#23262a", "#b9c3d0": "#4a5058", "#c9d0da": "#4a5058",
    "#f4f7fb": "#22282f", "#a9b8cc": "#56677d", "#22303f": "#e7e8ea", "#dbe8fb": "#1d3557", "#6f97d1": "#5b8ac6",
    "#173a6b": "#d6e6fb", "#fdf3dc": "#3a2f16", "#d3a94e": "#b08d3a", "#6b4a08": "#f3dfae", "#efe3fa": "#33224a",
    "#a77fd0": "#9a74c6", "#4b2377": "#e6d6f8", "#dff3e4": "#173a24", "#63ad78": "#4f9a66", "#14532a": "#c9eed5",
    "#e9ecf1": "#2c3138", "#7d8a9c": "#8794a6", "#3b4856": "#d3d7dc", "#4a5563": "#b4bac3", "#54616f": "#b4bac3",
    "#5f6b7a": "#a9b1bc", "#66758a": "#8d98a7", "#8593a5": "#7d8896", "#c26a3d": "#e08b5c", "#a1420b": "#ffb27d",
    "#b4470e": "#ffa06b",
}  # fmt: skip
"""The colour in dark mode of each colour of a picture, except the colours of a measure."""


def _dark_rules() -> str:
    rules = (f'.dt-draw [{kind}="{light}"]{{{kind}:{dark}}}' for light, dark in DARK.items() for kind in ("fill", "stroke"))
    return f"@media (prefers-color-scheme: dark){{{''.join(rules)}}}"


DARK_STYLE = _dark_rules()
"""The style sheet of dark mode for a picture."""
UNMEASURED = ("#ffffff", "#c9d0da", "#22303f")
"""The style of a box without a number in a picture with colours."""
FRAME_FILLS = ("#ffffff", "#f7f9fc", "#eff3f8", "#f7f9fc")
HEADER = 58.0
NOTE_LINE = 16.0


def write_svg(placed: Placed, title: str, notes: Sequence[str], measure: Measure | None) -> str:
    """Return the picture as SVG text, which is well-formed XML.

    Boxes have the class dt-card or dt-frame, and the attribute ``data-total``, the number of nodes that a box represents.
    """
    width = max(placed.width + 24, 480.0, text_width(title, 16) + 40)
    top = HEADER + NOTE_LINE * len(notes)
    height = placed.height - TITLE + top + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dt-draw" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" font-family="{FONT}" font-size="10">',
        f'<title>{_text(title)}</title><style>{DARK_STYLE}</style><rect width="100%" height="100%" fill="{BACKGROUND}"/>',
        f'<text x="16" y="24" font-size="16" font-weight="bold" fill="#22303f">{_text(title)}</text>',
        *_legend(measure, width),
    ]
    for number, note in enumerate(notes):
        y = HEADER + NOTE_LINE * number + 4
        parts.append(f'<text class="dt-note" x="16" y="{_n(y)}" font-size="11" fill="#a1420b">coarser: {_text(note)}</text>')
    parts.append(f'<g transform="translate(12 {_n(top - TITLE + 6)})">')
    parts += _content(placed, measure, 0)
    parts.append("</g></svg>\n")
    return "".join(parts)


def legend_of(measure: Measure | None) -> Sequence[tuple[str, str]]:
    """Return the kinds of boxes in the legend with their texts; with a measure, kinds differ only in dashed borders."""
    return LEGEND if measure is None else (("operator", "no number"), ("movement", "only moves data"))


def _legend(measure: Measure | None, width: float) -> Iterator[str]:
    x = 16.0
    for kind, text in legend_of(measure):
        fill, stroke, _ = STYLES[kind] if measure is None else UNMEASURED
        dash = ' stroke-dasharray="4 2"' if kind == "movement" else ""
        yield f'<rect x="{_n(x)}" y="34" width="12" height="10" rx="2" fill="{fill}" stroke="{stroke}"{dash}/>'
        yield f'<text x="{_n(x + 16)}" y="43" fill="#4a5563">{text}</text>'
        x += 24 + text_width(text, 10)
        if x > width - 120:
            break
    if measure is None:
        return
    x = max(width - 250, text_width(measure.title, 10))
    for step in range(20):
        color = measure.color(measure.largest * step / 19)
        yield f'<rect x="{_n(x + 5 * step)}" y="12" width="5.2" height="10" fill="{color}"/>'
    texts = f"{_text(shorten(measure.title, 40))} up to {_text(measure.text(measure.largest))}"
    yield f'<text x="{_n(x + 106)}" y="21" fill="#22303f">{texts}</text>'


def _content(placed: Placed, measure: Measure | None, depth: int) -> Iterator[str]:
    """Yield SVG elements for the edges and boxes in an open frame."""
    yield from _edges(placed.paths)
    for child in placed.children:
        yield f'<g transform="translate({_n(child.x)} {_n(child.y)})">'
        if isinstance(child.item, Frame) and child.item.is_open:
            yield from _open_frame(child, measure, depth + 1)
        else:
            yield from _box(child, measure)
        yield "</g>"


def _open_frame(placed: Placed, measure: Measure | None, depth: int) -> Iterator[str]:
    frame = placed.item
    assert isinstance(frame, Frame)
    fill = FRAME_FILLS[depth % len(FRAME_FILLS)]
    stroke = STYLES["control"][1] if frame.kind == "control" else "#b9c3d0"
    yield f'<g class="dt-frame" data-kind="{frame.kind}" data-total="{frame.total}" data-count="{frame.count}">'
    yield f"<title>{_title(frame, measure)}</title>"
    yield from _stack(placed, frame.count, fill, stroke)
    dash = ' stroke-dasharray="5 3"' if frame.kind in ("repeat", "section") else ""
    size = f'width="{_n(placed.width)}" height="{_n(placed.height)}"'
    yield f'<rect class="dt-rect" {size} rx="6" fill="{fill}" stroke="{stroke}"{dash}/>'
    yield "</g>"
    yield from _content(placed, measure, depth)
    # The title is drawn after, and therefore over, the edges that enter the frame.
    yield f'<text x="10" y="17" font-size="12" font-weight="bold" fill="#3b4856" {_halo(fill)}>{_text(shorten(frame.title, 60))}'
    if frame.count > 1:
        yield f'<tspan dx="6" fill="#b4470e">\u00d7{frame.count:,}</tspan>'
    if frame.total > 1:
        yield f'<tspan dx="8" font-weight="normal" font-size="10" fill="#5f6b7a">{frame.total:,} nodes</tspan>'
    yield "</text>"


def _halo(color: str) -> str:
    """Return SVG attributes that give a text an outline, so that the text is legible over lines."""
    return f'stroke="{color}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'


def _box(placed: Placed, measure: Measure | None) -> Iterator[str]:
    """Yield SVG elements for a card or a folded frame."""
    item = placed.item
    kind = "folded" if isinstance(item, Frame) else item.kind
    fill, stroke, color = STYLES[kind]
    number = None if measure is None else measure.of(item)
    if measure is not None and item.total:
        fill, stroke = UNMEASURED[:2] if number is None else (measure.color(number), "#8a8f98")
        color = "#22303f" if number is None else measure.text_color(number)
    label = "dt-frame" if isinstance(item, Frame) else "dt-card"
    name = "" if len(item.nodes) != 1 else f' data-node="{_text(item.nodes[0][:300])}"'
    yield f'<g class="{label}" data-kind="{kind}" data-total="{item.total}" data-count="{item.count}"{name}>'
    yield f"<title>{_title(item, measure)}</title>"
    yield from _stack(placed, item.count, fill, stroke)
    radius = 11 if kind in ("input", "output") else 4
    dash = ' stroke-dasharray="4 2"' if kind == "movement" else ""
    yield (
        f'<rect class="dt-rect" width="{_n(placed.width)}" height="{_n(placed.height)}" rx="{radius}" fill="{fill}" '
        f'stroke="{stroke}"{dash}/>'
    )
    for index, line in enumerate(box_lines(item)):
        style = 'font-size="12" font-weight="bold"' if index == 0 else 'opacity="0.9"'
        y = 17 + 14 * index
        yield f'<text x="{_n(placed.width / 2)}" y="{y}" text-anchor="middle" fill="{color}" {style}>{_text(line)}</text>'
    yield "</g>"


def _stack(placed: Placed, count: int, fill: str, stroke: str) -> Iterator[str]:
    """Yield the borders of two more boxes behind a box that represents several copies."""
    for offset in (6, 3) if count > 1 else ():
        yield (
            f'<rect x="{offset}" y="{offset}" width="{_n(placed.width)}" height="{_n(placed.height)}" rx="5" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )


def _title(item: Item, measure: Measure | None) -> str:
    """Return the tooltip of a box."""
    name = item.name if isinstance(item, Card) else item.title
    lines = [f"{item.title}: {name}" if isinstance(item, Card) else name, item.detail]
    if isinstance(item, Frame):
        lines.append(f"{item.total:,} nodes" + (f" in {item.count:,} copies" if item.count > 1 else ""))
    number = None if measure is None else measure.of(item)
    if measure is not None and number is not None:
        lines.append(f"{measure.title}: {measure.text(number)}")
    return "\n".join(_text(part) for line in lines if line for part in line.split("\n"))


def _edges(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the edges of one frame: all lines as one element, then the arrows, then the labels."""
    forward: list[str] = []
    backward: list[str] = []
    arrows, labels = [], []
    for path in paths:
        line = path_data(path.points)
        (backward if path.wire is not None and path.wire.is_backward else forward).append(line)
        x, y = path.points[-1]
        if path.has_arrow and path.wire is not None and not path.wire.is_backward:
            arrows.append(f"M{_n(x)} {_n(y)}l-3.4 -6.5h6.8z")
        if path.label:
            left, up = path.points[0]
            labels.append(
                f'<text class="dt-label" x="{_n(left + 4)}" y="{_n(up + 12 + path.label_line * 11)}">{_text(path.label)}</text>'
            )
    if forward:
        yield f'<path class="dt-edges" d="{"".join(forward)}" fill="none" stroke="#8593a5" stroke-width="1.1"/>'
    if backward:
        yield f'<path d="{"".join(backward)}" fill="none" stroke="#c26a3d" stroke-width="1.1" stroke-dasharray="4 3"/>'
    if arrows:
        yield f'<path d="{"".join(arrows)}" fill="#66758a"/>'
    if labels:
        yield f'<g font-size="9.5" fill="#54616f" {_halo("#ffffff")}>{"".join(labels)}</g>'


def path_data(points: Sequence[tuple[float, float]]) -> str:
    """Return the SVG path of an edge: a vertical line to the row's border, a curve or gutter lines, and a vertical line."""
    (x, y), (_, low), *between, (end, high), (_, last) = points
    start = f"M{_n(x)} {_n(y)}" + (f"V{_n(low)}" if low != y else "")
    stop = f"V{_n(last)}" if last != high else ""
    if between:
        return start + "".join(f"L{_n(a)} {_n(b)}" for a, b in [*between, (end, high)]) + stop
    if abs(end - x) < 0.8:
        return f"M{_n(x)} {_n(y)}V{_n(last)}"
    middle = (low + high) / 2
    return f"{start}C{_n(x)} {_n(middle)} {_n(end)} {_n(middle)} {_n(end)} {_n(high)}{stop}"


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    return escape(printable(text))
