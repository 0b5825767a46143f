"""Chart of the arena over time: one rectangle per buffer, whose width is its lifetime and whose height is its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, log10
from typing import Any, NamedTuple

from dovetail.errors import printable
from dovetail.report.text import size

WIDTH, HEIGHT = 1180, 500
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 26, 62
LABEL_WIDTH = 6.2
"""The width of a letter of a buffer's label, in SVG units."""


class Scale(NamedTuple):
    """Scale converts steps and byte addresses to SVG coordinates."""

    steps: int
    nbytes: int

    def x(self, step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / max(self.steps, 1), 2)

    def y(self, address: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * address / max(self.nbytes, 1), 2)


def arena_chart(facts: Any) -> str:
    """Return the chart as an SVG element; its rectangles have indices of buffers and tensors as data attributes."""
    scale = Scale(len(facts.steps), facts.arena_bytes)
    parts = [
        *_grid(scale),
        *(part for number, buffer in enumerate(facts.buffers) for part in _buffer(scale, number, buffer)),
        *_lower_bound_line(scale, facts),
        *_marks(scale, facts),
    ]
    text = f"The arena: {len(facts.buffers)} buffers in {size(facts.arena_bytes)} over {len(facts.steps)} steps"
    return (
        f'<svg class="arena" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text}">'
        + "".join(parts)
        + "</svg>"
    )


def _narrow_labels(scale: Scale) -> Iterator[str]:
    """Yield the few labels of axes that narrow pages show in a large font."""
    middle, bottom = (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14
    yield '<g class="for-narrow">'
    yield f'<text class="axis" x="{middle}" y="{bottom}" text-anchor="middle">height {size(scale.nbytes)}</text>'
    yield f'<text class="axis" x="{LEFT}" y="{bottom}">step 0</text>'
    yield f'<text class="axis" x="{WIDTH - RIGHT}" y="{bottom}" text-anchor="end">{scale.steps}</text></g>'


def _grid(scale: Scale) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for address in _ticks(scale.nbytes, 6):
        y = scale.y(address)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
    yield '<g class="for-wide">'
    for address in _ticks(scale.nbytes, 6):
        y = scale.y(address)
        yield f'<text class="tick" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{size(address) if address else 0}</text>'
    for step in _ticks(scale.steps, 12):
        yield f'<text class="tick" x="{scale.x(step)}" y="{HEIGHT - 24}" text-anchor="middle">{step}</text>'
    yield f'<text class="axis" x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>'
    yield f'<text class="axis" x="{LEFT - 6}" y="{TOP - 12}" text-anchor="end">address</text>'
    yield "</g>"
    yield from _narrow_labels(scale)
    yield f'<line class="edge" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'


def _ticks(limit: int, wanted: int) -> list[int]:
    """Return about ``wanted`` round numbers from 0 to ``limit``."""
    interval = max(limit / wanted, 1)
    power: float = 10 ** int(log10(interval))
    step = next(int(power * factor) for factor in (1, 2, 5, 10, 20) if power * factor >= interval)
    return list(range(0, limit + 1, max(step, 1)))


def _buffer(scale: Scale, number: int, buffer: Any) -> Iterator[str]:
    x, right = scale.x(buffer.first), scale.x(buffer.last + 1)
    top, bottom = scale.y(buffer.offset + buffer.nbytes), scale.y(buffer.offset)
    kind = "shared" if buffer.is_shared else "alone"
    yield f'<g class="buffer {kind}" data-buffer="{number}"><title>{_title(buffer)}</title>'
    yield f'<rect class="room" x="{x}" y="{top}" width="{_plain(right - x)}" height="{_plain(bottom - top)}"/>'
    for index, piece in enumerate(buffer.pieces):
        yield _piece(scale, buffer, piece, index, f"hsl({hue(number, index)} var(--{kind}))")
    for cut in buffer.cuts:
        y = scale.y(buffer.offset + buffer.nbytes * cut)
        yield f'<line class="cut" x1="{x}" x2="{right}" y1="{y}" y2="{y}"/>'
    if buffer.is_shared or right - x > 3:
        yield f'<rect class="outline" x="{x}" y="{top}" width="{_plain(right - x)}" height="{_plain(bottom - top)}"/>'
    label = _label(buffer, right - x - 8)
    if buffer.is_shared and bottom - top > 13:
        yield f'<text class="label" x="{_plain(x + 5)}" y="{_plain(top + 12)}">{label}</text>'
    yield "</g>"


def _piece(scale: Scale, buffer: Any, piece: Any, index: int, colour: str) -> str:
    x, right = scale.x(piece.first), scale.x(piece.last + 1)
    top = scale.y(buffer.offset + buffer.nbytes * piece.end)
    bottom = scale.y(buffer.offset + buffer.nbytes * piece.start)
    return (
        f'<rect class="piece" data-piece="{index}" fill="{colour}" x="{x}" y="{top}" '
        f'width="{_plain(right - x)}" height="{_plain(bottom - top)}"/>'
    )


def hue(buffer: int, piece: int) -> int:
    """Return the hue of a tensor; multiples of the golden angle make the hues of neighbours differ."""
    return round(buffer * 137.508 + piece * 47) % 360


def _plain(number: float) -> str:
    return f"{max(number, 0):.2f}"


def _label(buffer: Any, room: float) -> str:
    """Return the longest text for the number of tensors in a buffer that fits into the width ``room``."""
    number = len(buffer.cuts) + 1 if buffer.cuts else len(buffer.pieces)
    what = f"cut into {number} tensors" if buffer.cuts else f"{number} tensors in one buffer"
    wordings = (what, f"{number} tensors", str(number))
    return next((words for words in wordings if LABEL_WIDTH * len(words) <= room), "")


def _title(buffer: Any) -> str:
    names = ", ".join(piece.name for piece in buffer.pieces[:12])
    more = f" and {len(buffer.pieces) - 12} more" if len(buffer.pieces) > 12 else ""
    return escape(printable(f"{buffer.name}: {size(buffer.nbytes)}, steps {buffer.first} to {buffer.last}; holds {names}{more}"))


def _lower_bound_line(scale: Scale, facts: Any) -> Iterator[str]:
    """Yield the line of the largest live set, the minimum possible size of an arena."""
    y, text = scale.y(facts.lower_bound), f"largest live set {size(facts.lower_bound)}"
    yield f'<line class="bound" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
    yield f'<text class="bound" x="{WIDTH - RIGHT}" y="{max(y - 5, 21)}" text-anchor="end">{text}</text>'


def _marks(scale: Scale, facts: Any) -> Iterator[str]:
    """Yield the marks below the chart, of copy steps and of interpreter steps."""
    yield from _row(scale, HEIGHT - BOTTOM + 5, "copying", [copy.step for copy in facts.copies])
    yield from _row(scale, HEIGHT - BOTTOM + 14, "interpreted", [step.number for step in facts.interpreted])


def _row(scale: Scale, y: float, kind: str, steps: Sequence[int]) -> Iterator[str]:
    width = max(scale.x(1) - scale.x(0), 2)
    for step in steps:
        yield f'<rect class="{kind}" x="{scale.x(step)}" y="{y}" width="{ceil(width * 100) / 100}" height="7"/>'
