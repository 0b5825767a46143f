"""Charts of a profile: bar charts of time by operator, kernel and module, and the roofline of the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import unescape
from math import ceil, floor, log10, sqrt
from typing import Any, NamedTuple

from dovetail.report.document import stylesheet, text_of
from dovetail.report.draw.layout import text_width
from dovetail.report.profile_text import share_of_limit, with_prefix
from dovetail.report.text import duration, percent

WIDTH = 1180
LABELS, FIGURES = 260, 240
"""The widths of the columns of names, left of the bars, and of figures, right of the bars."""
ROW = 19
MAX_BARS = 14
"""The maximum number of rows of a chart; the last row combines all others."""
LABEL_SIZE = 13.0
"""The size of a font that is at least as wide as that of names."""
MAX_LABEL = 38
"""The maximum length, in characters, of a name in a chart; the tooltip has the full name."""
ROOF_HEIGHT = 380
LEFT, RIGHT, TOP, BOTTOM = 80, 24, 30, 46
MAX_DOTS = 2000
"""The maximum number of steps in a roofline; the slowest steps are shown."""


NARROW = 440
"""The width of a roofline on narrow screens, in units of the picture."""


class Bars(NamedTuple):
    """Bars is a row of a bar chart: its name, the seconds of each engine, and the text after the bars."""

    name: str
    seconds: Sequence[float | None]
    text: str


def picture(profile: Any) -> str:
    """Return all charts as one self-contained SVG."""
    charts = [chart for _, _, chart in charts_of(profile)]
    parts, y = [f'<text class="heading" x="0" y="22">{clip(profile.name, 90)}</text>', *_legend(profile, 34)], 64
    for (title, _, chart), height in zip(charts_of(profile), map(_height_of, charts), strict=True):
        parts.append(f'<text class="heading" x="0" y="{y + 18}">{title}</text>')
        parts.append(f'<g transform="translate(0 {y + 30})">{chart}</g>')
        y += height + 58
    return (
        f'<svg class="profile" xmlns="http://www.w3.org/2000/svg" viewBox="-16 -8 {WIDTH + 32} {y + 16}" role="img">'
        f'<style>{stylesheet("profile")}</style><rect class="paper" x="-16" y="-8" width="100%" height="100%"/>'
        f"{''.join(parts)}</svg>\n"
    )


def charts_of(profile: Any, *, is_html: bool = False) -> list[tuple[str, str, str]]:
    """Return the title, the note and the SVG of each chart of a profile.

    ``is_html``: the charts are HTML that adapts to the width of the page.
    """
    native = next((engine for engine in profile.engines if engine.engine == "native"), None)
    bars = [("Time by operator", operator_bars(profile), len(profile.engines))]
    if native is not None:
        bars.append(("Time by kernel", [Bars(row.name, [row.seconds], _figures(row)) for row in native.kernels()], 1))
        modules = native.modules()
        if len(modules) > 1:
            bars.append(("Time by module", [Bars(row.name, [row.seconds], _figures(row)) for row in modules], 1))
    found = [(title, "", _html_bars(rows) if is_html else _svg_bars(rows, engines)) for title, rows, engines in bars]
    if native is not None and profile.limits is not None and any(step.operations and step.nbytes for step in native.steps):
        chart = roofline(profile.limits, native.steps)
        if is_html:
            narrow = roofline(profile.limits, native.steps, NARROW)
            chart = f'<div class="for-wide">{chart}</div><div class="for-narrow">{narrow}</div>'
        found.append(("Roofline", ROOFLINE_NOTE, chart))
    return found


ROOFLINE_NOTE = (
    "Each dot is a step, its area the time. The lines are the measured limits of this machine: its copy bandwidth, and the rates "
    "of an f32 product and of an 8-bit convolution. A dot above a line had operands in a cache, or the limits were measured on a "
    "busy machine."
)


def legend(profile: Any) -> str:
    """Return the legend of the engines as HTML; empty for one engine."""
    if len(profile.engines) < 2:
        return ""
    items = "".join(
        f'<li><svg class="profile key" width="22" height="11"><rect class="bar e{index}" width="22" height="11"/></svg> '
        f"{text_of(_engine_label(engine.name, engine.run_seconds))}</li>"
        for index, engine in enumerate(profile.engines)
    )
    return f'<ul class="legend">{items}</ul>'


def _engine_label(name: str, run_seconds: float | None) -> str:
    return f"{name}: does not run" if run_seconds is None else f"{name}: {duration(run_seconds)} a run"


def _legend(profile: Any, y: float) -> Iterator[str]:
    if len(profile.engines) > 1:
        for index, engine in enumerate(profile.engines):
            x = index * 300
            yield f'<rect class="bar e{index}" x="{x}" y="{y + 2}" width="22" height="11"/>'
            yield f'<text x="{x + 30}" y="{y + 12}">{clip(_engine_label(engine.name, engine.run_seconds), 44)}</text>'


def operator_bars(profile: Any) -> list[Bars]:
    """Return a row for each operator with the seconds in each engine, the slowest first."""
    rows = []
    for name, cells in profile.operators():
        text = ", ".join("-" if cell is None else duration(cell.seconds) for cell in cells)
        if len(cells) == 1 and cells[0] is not None:
            text = _figures(cells[0])
        rows.append(Bars(name, [None if cell is None else cell.seconds for cell in cells], text))
    return rows


def _figures(group: Any) -> str:
    limit = "" if group.share_of_limit is None else f", {share_of_limit(group.share_of_limit, '')}of limit"
    return f"{duration(group.seconds)}, {percent(group.share)}{limit}"


def _slowest(rows: Sequence[Bars]) -> tuple[Sequence[Bars], float]:
    """Return at most MAX_BARS rows, whose last combines all others, and the longest time of a bar."""
    if len(rows) > MAX_BARS:
        rest = rows[MAX_BARS - 1 :]
        columns = zip(*(row.seconds for row in rest), strict=True)
        sums = [sum(seconds or 0.0 for seconds in column) for column in columns]
        rows = [*rows[: MAX_BARS - 1], Bars(f"{len(rest)} others", sums, ", ".join(map(duration, sums)))]
    return rows, max((seconds or 0.0 for row in rows for seconds in row.seconds), default=0.0) or 1.0


def _html_bars(rows: Sequence[Bars]) -> str:
    """Return a bar chart as HTML: a name, a bar for each engine, and figures, which wrap on narrow screens."""
    rows, longest = _slowest(rows)
    parts = []
    for row in rows:
        bars = "".join(
            f'<rect class="bar e{index}" y="{12 * index}" width="{100 * (seconds or 0.0) / longest:.2f}%" height="11"/>'
            for index, seconds in enumerate(row.seconds)
        )
        chart = f'<svg class="profile" width="100%" height="{12 * len(row.seconds)}">{bars}</svg>'
        parts.append(f"<dt>{text_of(row.name)}</dt><dd>{chart}<span>{text_of(row.text)}</span></dd>")
    return f'<dl class="bars">{"".join(parts)}</dl>' if parts else "<p>There are no steps.</p>"


def _svg_bars(rows: Sequence[Bars], engines: int) -> str:
    """Return a bar chart with one row per name and one bar per engine in each row."""
    rows, longest = _slowest(rows)
    height = max(ROW, 11 * engines + 8)
    parts = []
    for number, row in enumerate(rows):
        y = number * height
        middle = y + height / 2 + 4
        parts.append(f"<g><title>{text_of(row.name)}: {text_of(row.text)}</title>")
        parts.append(f'<text class="name" x="{LABELS - 10}" y="{middle}" text-anchor="end">{_row_label(row.name)}</text>')
        thickness = (height - 7) / engines
        for index, seconds in enumerate(row.seconds):
            width = (WIDTH - LABELS - FIGURES) * (seconds or 0.0) / longest
            box = f'x="{LABELS}" y="{y + 3 + index * thickness:.1f}" width="{width:.1f}" height="{thickness - 0.5:.1f}"'
            parts.append(f'<rect class="bar e{index}" {box}/>')
        widest = (WIDTH - LABELS - FIGURES) * max((seconds or 0.0 for seconds in row.seconds), default=0.0) / longest
        parts.append(f'<text class="figure" x="{LABELS + widest + 8:.1f}" y="{middle}">{text_of(row.text)}</text></g>')
    return _svg(len(rows) * height + 4, parts)


def _svg(height: float, parts: Sequence[str], width: int = WIDTH) -> str:
    return f'<svg class="profile" width="{width}" height="{height:g}" viewBox="0 0 {width} {height:g}">{"".join(parts)}</svg>'


def _height_of(chart: str) -> int:
    """Return the height of a chart that ``_svg`` returned."""
    return ceil(float(chart.split('height="', 1)[1].split('"', 1)[0]))


def _row_label(name: str) -> str:
    """Return an escaped name that fits into the column of names; at most MAX_LABEL characters."""
    lengths = range(MAX_LABEL, 8, -1)
    return next((text for n in lengths if text_width(unescape(text := clip(name, n)), LABEL_SIZE) <= LABELS - 12), clip(name, 8))


def clip(name: str, length: int) -> str:
    """Return an escaped name; if it exceeds ``length`` characters, its middle is replaced by dots."""
    if len(name) > length:
        name = f"{name[: length // 2 - 1]}...{name[-(length - length // 2 - 2) :]}"
    return text_of(name)


# Roofline


class _Axes(NamedTuple):
    """_Axes holds the ranges of the logarithmic axes as powers of ten: operations per byte (x) and per second (y)."""

    x0: float
    x1: float
    y0: float
    y1: float
    width: int

    def x(self, intensity: float) -> float:
        return round(LEFT + (self.width - LEFT - RIGHT) * (log10(intensity) - self.x0) / (self.x1 - self.x0), 1)

    def y(self, rate: float) -> float:
        return round(ROOF_HEIGHT - BOTTOM - (ROOF_HEIGHT - TOP - BOTTOM) * (log10(rate) - self.y0) / (self.y1 - self.y0), 1)


def roofline(limits: Any, steps: Sequence[Any], width: int = WIDTH) -> str:
    """Return the roofline chart: operations per second of each step over its operations per byte."""
    dots = [step for step in steps if step.operations and step.nbytes and step.seconds > 0]
    dots = sorted(dots, key=lambda step: -step.seconds)[:MAX_DOTS]
    intensities = [step.operations / step.nbytes for step in dots]
    rates = [step.operations / step.seconds for step in dots]
    roofs = _roofs_of(limits, dots)
    top = max(*(rate for rate, _ in roofs), *rates)
    ridge = top / limits.copy_rate
    axes = _Axes(
        floor(log10(min(*intensities, 0.1))), ceil(log10(max(*intensities, ridge)) + 0.1),
        floor(log10(max(min(*rates, limits.f32_rate / 100), 1.0))), log10(top) + 0.25, width,
    )  # fmt: skip
    parts = list(_grid(axes))
    longest = max((step.seconds for step in dots), default=1.0)
    for step, intensity, rate in zip(dots, intensities, rates, strict=True):
        radius = max(2.0, 15 * sqrt(step.seconds / longest))
        title = f"{step.label}: {step.operator}, {step.kernel}, {duration(step.seconds)}, {with_prefix(rate, 'OP/s')}"
        parts.append(
            f'<circle class="dot {step.bound}" cx="{axes.x(intensity)}" cy="{axes.y(rate)}" r="{radius:.1f}">'
            f"<title>{text_of(title)}</title></circle>"
        )
    parts += _roofs(axes, limits.copy_rate, roofs)
    return _svg(ROOF_HEIGHT, parts, width)


def _grid(axes: _Axes) -> Iterator[str]:
    bottom, right = ROOF_HEIGHT - BOTTOM, axes.width - RIGHT
    for power in range(ceil(axes.x0), floor(axes.x1) + 1):
        x = axes.x(10.0**power)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{x}" y="{bottom + 18}" text-anchor="middle">{10.0**power:g}</text>'
    for power in range(ceil(axes.y0), floor(axes.y1) + 1):
        y = axes.y(10.0**power)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{with_prefix(10.0**power, "OP/s")}</text>'
    yield f'<text class="tick" x="{(LEFT + right) / 2}" y="{ROOF_HEIGHT - 8}" text-anchor="middle">operations per byte</text>'


def _roofs_of(limits: Any, steps: Sequence[Any]) -> list[tuple[float, str]]:
    """Return the rates of products that the steps use, with names."""
    used = {step.arithmetic for step in steps}
    found = [(limits.f32_rate, "f32 product")]
    if "int8" in used:
        found.append((limits.integer_rate, "8-bit convolution"))
    if "bf16" in used and limits.bf16_rate is not None:
        found.append((limits.bf16_rate, "bf16 product"))
    return found


def _roofs(axes: _Axes, copy_rate: float, rates: Sequence[tuple[float, str]]) -> Iterator[str]:
    """Yield the slope of the copy bandwidth and a horizontal line for each rate of products."""
    highest = max(rate for rate, _ in rates)
    low = max(10.0**axes.x0, 10.0**axes.y0 / copy_rate)
    ridge = highest / copy_rate
    yield (f'<line class="roof" x1="{axes.x(low)}" y1="{axes.y(low * copy_rate)}" x2="{axes.x(ridge)}" y2="{axes.y(highest)}"/>')
    text = f"copy {with_prefix(copy_rate, 'B/s')}"
    yield f'<text class="roof" x="{axes.x(ridge) - 30}" y="{axes.y(highest) + 4}" text-anchor="end">{text}</text>'
    for rate, name in rates:
        y, start = axes.y(rate), axes.x(rate / copy_rate)
        yield f'<line class="roof" x1="{start}" x2="{axes.width - RIGHT}" y1="{y}" y2="{y}"/>'
        label = f"{name} {with_prefix(rate, 'OP/s')}"
        yield f'<text class="roof" x="{axes.width - RIGHT}" y="{y - 5}" text-anchor="end">{label}</text>'
