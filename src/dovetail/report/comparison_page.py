"""HTML page of a comparison of all values: a plot of error over depth, and tables.

The page uses no external resources, and every name is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, log10
from typing import Any, NamedTuple

from dovetail.report.document import cards, document, stylesheet, text_of
from dovetail.report.profile_chart import clip
from dovetail.report.tables import table
from dovetail.report.text import count

WIDTH, NARROW, HEIGHT = 1180, 440, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 40, 40
KEY = 260
"""The width of a name of a column in the key of the plot."""
LOWEST, HIGHEST = -10, 1
"""The plot's range of relative errors, as powers of ten; smaller and larger errors are drawn at its edges."""
DEFAULT_TOLERANCE = 1e-4
MAX_POINTS = 2000
"""The maximum number of points of a line; beyond it, neighbouring depths share a point with their largest error."""


def page(comparison: Any) -> str:
    """Return the HTML page, which is also well-formed XML and has no script."""
    title = f"Comparison of {comparison.name}"
    body = f"<h1>{text_of(title)}</h1>{section(comparison)}"
    return document(title, body, stylesheet("plan") + stylesheet("comparison"))


def section(comparison: Any) -> str:
    """Return the cards, the plot and the tables of a comparison as HTML."""
    tolerance = "that of each type" if comparison.tolerance is None else f"{comparison.tolerance:g}"
    subtitle = (
        f'<p class="subtitle">{count(len(comparison.rows), "value")}, reference {text_of(comparison.reference)} &#183; '
        f"tolerance {tolerance} &#183; {count(comparison.slices, 'slice')}</p>"
    )
    notes = "".join(f'<p class="note">{text_of(note)}</p>' for note in comparison.notes)
    wide, narrow = error_plot(comparison), error_plot(comparison, NARROW)
    plots = f'<div class="for-wide">{wide}</div><div class="for-narrow">{narrow}</div>'
    return f"{subtitle}{_cards(comparison)}<h2>Error over depth</h2>{plots}{notes}{_tables(comparison)}"


def _cards(comparison: Any) -> str:
    items = []
    for column in comparison.columns:
        first = comparison.first_difference(column.name)
        absent = len(comparison.missing(column.name))
        text = "no value beyond the tolerance" if first is None else f"from {first.operator} {first.node} on"
        text += f"; {absent} not compared" if absent else ""
        items.append((column.name, "agrees" if first is None else "differs", text))
    return cards(items)


def error_plot(comparison: Any, width: int = WIDTH) -> str:
    """Return an SVG plot of the largest relative error at each depth.

    Each column has a line, on which a circle marks the first difference.
    """
    deepest = max((row.depth for row in comparison.rows), default=1)
    columns = max(1, (width - LEFT) // KEY)
    scale = _Scale(width, TOP + 18 * ((len(comparison.columns) - 1) // columns), deepest)
    parts = list(_grid(scale, comparison.tolerance or DEFAULT_TOLERANCE))
    for index, column in enumerate(comparison.columns):
        color = f"c{index % 4}"
        x, y = LEFT + index % columns * KEY, 16 + 18 * (index // columns)
        parts.append(f'<line class="key {color}" x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x + 30}" y="{y + 4}">{clip(column.name, 32)}</text>')
        points = _points(comparison, index, scale)
        parts.append(f'<polyline class="line {color}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>')
        first = comparison.first_difference(column.name)
        if first is not None:
            cell = first.cells[index]
            name = text_of(f"{column.name}: first difference in {first.value}, {first.operator} {first.node}")
            place = f'cx="{scale.x(first.depth)}" cy="{scale.y(cell.relative)}" r="6"'
            parts.append(f'<circle class="first" {place}><title>{name}</title></circle>')
    return f'<svg class="errors" width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}">{"".join(parts)}</svg>'


class _Scale(NamedTuple):
    """_Scale converts depths and relative errors to coordinates of a plot of ``width``, whose grid begins at ``top``."""

    width: int
    top: int
    deepest: int

    def x(self, depth: int) -> float:
        return round(LEFT + (self.width - LEFT - RIGHT) * depth / max(1, self.deepest), 1)

    def y(self, error: float) -> float:
        power = float(HIGHEST) if not isfinite(error) else log10(error) if error > 0 else float(LOWEST)
        power = min(max(power, float(LOWEST)), float(HIGHEST))
        return round(HEIGHT - BOTTOM - (HEIGHT - self.top - BOTTOM) * (power - LOWEST) / (HIGHEST - LOWEST), 1)


def _points(comparison: Any, column: int, scale: _Scale) -> list[tuple[float, float]]:
    """Return at most MAX_POINTS points of the line of a column."""
    step = max(1, (scale.deepest + MAX_POINTS) // MAX_POINTS)
    worst: dict[int, float] = {}
    for row in comparison.rows:
        cell = row.cells[column]
        if not cell.is_missing:
            error = cell.relative if isfinite(cell.relative) else float("inf")
            depth = row.depth // step * step
            worst[depth] = max(worst.get(depth, 0.0), error)
    return [(scale.x(depth), scale.y(error)) for depth, error in sorted(worst.items())]


def _grid(scale: _Scale, tolerance: float) -> Iterator[str]:
    for power in range(LOWEST, HIGHEST + 1):
        y = scale.y(10.0**power)
        label = f"{10.0**power:g}" if power > LOWEST else "0"
        yield f'<line class="grid" x1="{LEFT}" x2="{scale.width - RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>'
    y = scale.y(tolerance)
    yield f'<line class="allowed" x1="{LEFT}" x2="{scale.width - RIGHT}" y1="{y}" y2="{y}"/>'
    yield f'<text class="allowed" x="{scale.width - RIGHT}" y="{y - 5}" text-anchor="end">tolerance</text>'
    for share in range(5):
        depth = scale.deepest * share // 4
        yield f'<text class="tick" x="{scale.x(depth)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{depth}</text>'
    yield f'<text class="tick" x="{(LEFT + scale.width - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">depth</text>'


def _tables(comparison: Any) -> str:
    columns = ["#depth", "value", "operator", "type", *(text_of(column.name) for column in comparison.columns)]
    differing = [row for row in comparison.rows if not row.agrees]
    missing = [(row, index) for row in comparison.rows for index, cell in enumerate(row.cells) if cell.is_missing]
    absent = [(row.depth, row.value, row.operator, comparison.columns[i].name, row.cells[i].why) for row, i in missing]
    note = '<p class="note">Each cell has the relative difference, the absolute one, and the one in ulp.</p>'
    found = note + table("Values beyond the tolerance", columns, [_cells(row) for row in differing], "None.")
    if absent:
        found += table("Values not compared", ("#depth", "value", "operator", "in", "why"), absent, "None.")
    return found + table("All values", columns, [_cells(row) for row in comparison.rows], "There are none.", is_open=False)


def _cells(row: Any) -> list[Any]:
    shape = "" if row.shape is None else f"[{', '.join(map(str, row.shape))}]"
    found: list[Any] = [row.depth, row.value, row.operator, f"{row.dtype}{shape}"]
    return [*found, *map(_cell_text, row.cells)]


def _cell_text(cell: Any) -> str:
    if cell.is_missing:
        return "not compared"
    ulp = "" if cell.ulp is None else f", {cell.ulp:.3g} ulp"
    verdict = "agrees" if cell.agrees else cell.why or "differs"
    return f"{cell.relative:.3g} (absolute {cell.absolute:.3g}{ulp}): {verdict}"
