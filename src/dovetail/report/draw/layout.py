"""Positions of a scene: each open frame is arranged separately, inner frames first, and becomes a box in its parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.report.draw.layers import LayerRows, Slot, Wire, assign_rows
from dovetail.report.draw.scene import Frame, Gate, Item, shape_label, shorten

LINE = 14.0
"""The height of a line of text, in units of the picture."""
TITLE = 26.0
"""The height of the title of an open frame."""
MARGIN = 16.0
"""The space between the border of a frame and its content."""
GAP = 36.0
"""The space between rows, which contains the labels of edges."""
SPACE = 18.0
"""The space between the boxes of a row."""
BEND_SPACE = 9.0
"""The space between a bend of an edge and its neighbour in the row."""
GUTTER = 46.0
"""The space between the columns of a tall frame."""
LANES = 48.0
"""The height of the space for lines from the last row of a column to the gutter."""
SWEEPS = 8
"""The number of rounds of coordinate assignment."""
TALL = 1500.0
"""A frame is folded into columns if its height exceeds this number and twice its width."""

Point = tuple[float, float]


@dataclass(slots=True)
class Path:
    """Path is a segment of an edge as points; ``wire`` is None for the segment that crosses a row.

    The second and the second last point are on the borders of rows. A curve joins these two points. If there are further points
    between them, lines through a gutter join the points instead.
    """

    points: list[Point]
    has_arrow: bool
    label: str
    wire: Wire | None
    label_line: int = 0


@dataclass(slots=True)
class Placed:
    """Placed is an item with its size, its upper left corner in the parent frame, and the content of an open frame."""

    item: Item
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    children: list[Placed] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    gates: dict[Gate, float] = field(default_factory=dict)


def text_width(text: str, size: float) -> float:
    """Return an upper estimate of the width of a text in a sans-serif font."""
    return size * sum(
        0.34 if c in "iljtfr.,:;|!'()[]/ " else 0.95 if c in "mwMW\u00d7…@%" or ord(c) > 0x2E7F else 0.62 for c in text
    )


def place_item(item: Item) -> Placed:
    """Return an item with its size, and with the placed content of an open frame."""
    if isinstance(item, Frame) and item.is_open:
        return _place_frame(item)
    texts = [(text, 12.0 if number == 0 else 10.0) for number, text in enumerate(box_lines(item))]
    width = max(max(text_width(text, size) for text, size in texts) + 22, 92.0)
    return Placed(item, round(width), LINE * len(texts) + 12)


def box_lines(item: Item) -> list[str]:
    """Return the lines of text of a card or a folded frame; the first line is the title."""
    count = f" \u00d7{item.count:,}" if item.count > 1 else ""
    if isinstance(item, Frame):
        return [
            f"{shorten(item.title)}{count}",
            f"{item.total:,} node{'s'[: item.total != 1]}",
            *([shorten(item.summary, 44)] if item.summary else []),
        ]
    name = [shorten(item.name, 24)] if item.name and item.kind in ("input", "output") else []
    return [f"{item.title}{count}", *name, *item.lines]


def _place_frame(frame: Frame) -> Placed:
    placed = {child: place_item(child) for child in frame.children}
    rows = assign_rows(frame)
    _assign_x(rows, placed)
    tops = _assign_y(rows, placed)
    column, shift = _columns(rows, placed, tops)
    result = Placed(frame, 0, 0, children=list(placed.values()))
    for number, row in enumerate(rows.rows):
        for slot in row:
            slot.x += shift[number]
            if isinstance(slot.end, Gate):
                result.gates[slot.end] = slot.x
            elif slot.end is not None:
                box = placed[slot.end]
                box.x, box.y = slot.x - box.width / 2, tops[number] + (_row_height(row, placed) - box.height) / 2
    bottom = max((box.y + box.height for box in placed.values()), default=0.0)
    breaks = [number for number in range(1, len(column)) if column[number] != column[number - 1]]
    bottom = max([bottom, *(tops[number - 1] + _row_height(rows.rows[number - 1], placed) + LANES - MARGIN for number in breaks)])
    right = max([box.x + box.width for box in placed.values()] + [slot.x for row in rows.rows for slot in row], default=0.0)
    title = shorten(frame.title, 60) + (f" \u00d7{frame.count:,}" if frame.count > 1 else "") + f"  {frame.total:,} nodes"
    result.width = max(right + MARGIN, text_width(title, 12) + 24)
    result.height = bottom + (GAP if any(not gate.is_entry for gate in result.gates) else MARGIN)
    result.paths = _paths(rows, placed, tops, column, result.height)
    labels = [path.points[0][0] + text_width(path.label, 9.5) + 8 for path in result.paths if path.label]
    result.width = max([result.width, *labels])
    return result


# Coordinates


def _half_width(slot: Slot, placed: dict[Item, Placed]) -> float:
    return 0.0 if slot.end is None or isinstance(slot.end, Gate) else placed[slot.end].width / 2


def _row_height(row: Sequence[Slot], placed: dict[Item, Placed]) -> float:
    return max((placed[slot.end].height for slot in row if slot.end is not None and not isinstance(slot.end, Gate)), default=0.0)


def _assign_x(rows: LayerRows, placed: dict[Item, Placed]) -> None:
    """Assign each slot the x coordinate nearest to the mean of its neighbours that the order and the widths of its row allow."""
    offsets: list[list[float]] = []
    above: dict[Slot, list[tuple[Wire, float]]] = {}
    below: dict[Slot, list[tuple[Wire, float]]] = {}
    for wire in rows.wires:
        weight = 6.0 if wire.source.end is None and wire.target.end is None else 1.0
        above.setdefault(wire.target, []).append((wire, weight))
        below.setdefault(wire.source, []).append((wire, weight))
    for row in rows.rows:
        position, found = 0.0, []
        for number, slot in enumerate(row):
            half = _half_width(slot, placed)
            if number:
                before = row[number - 1]
                is_thin = half == 0.0 or _half_width(before, placed) == 0.0
                label = 34.0 if isinstance(before.end, Gate) or isinstance(slot.end, Gate) else 0.0
                position += _half_width(before, placed) + half + (BEND_SPACE if is_thin else SPACE) + label
            found.append(position)
        offsets.append(found)
        for slot, offset in zip(row, found, strict=True):
            slot.x = offset - position / 2
    for sweep in range(SWEEPS):
        numbers = range(len(rows.rows)) if sweep % 2 == 0 else range(len(rows.rows) - 1, -1, -1)
        for number in numbers:
            row = rows.rows[number]
            wanted, weights = [], []
            for slot in row:
                near = [(wire.source.x, weight) for wire, weight in above.get(slot, ())]
                if sweep % 2 or sweep >= SWEEPS - 2:
                    lower = [(wire.target.x, weight) for wire, weight in below.get(slot, ())]
                    near = [*near, *lower] if sweep >= SWEEPS - 2 else lower
                total = sum(weight for _, weight in near)
                wanted.append(sum(x * weight for x, weight in near) / total if total else slot.x)
                weights.append(total or 0.01)
            for slot, x in zip(row, separate(wanted, weights, offsets[number]), strict=True):
                slot.x = x
    left = min((slot.x - _half_width(slot, placed) for row in rows.rows for slot in row), default=0.0)
    for row in rows.rows:
        for slot in row:
            slot.x += MARGIN - left


def separate(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return the coordinates nearest to ``wanted`` (weighted least squares) that are at least as far apart as ``offsets``.

    The algorithm is isotonic regression by pooling adjacent violators, in O(n).
    """
    blocks: list[list[float]] = []
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        blocks.append([want - offset, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            mean, mass, size = blocks.pop()
            last = blocks[-1]
            last[0] = (last[0] * last[1] + mean * mass) / (last[1] + mass)
            last[1] += mass
            last[2] += size
    means = [mean for mean, _, size in blocks for _ in range(int(size))]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _assign_y(rows: LayerRows, placed: dict[Item, Placed]) -> list[float]:
    """Return the y coordinate of the top of each row."""
    tops, y = [], TITLE + MARGIN * 0.6
    for row in rows.rows:
        if row and all(isinstance(slot.end, Gate) and slot.end.is_entry for slot in row if slot.end is not None):
            tops.append(0.0)
            y = TITLE + GAP * 0.5
            continue
        tops.append(y)
        y += _row_height(row, placed) + GAP
    return tops


def _columns(rows: LayerRows, placed: dict[Item, Placed], tops: list[float]) -> tuple[list[int], list[float]]:
    """Fold a tall frame into columns: return the column of each row and the x shift of its slots, and change ``tops``."""
    heights = [_row_height(row, placed) for row in rows.rows]
    spans = [
        (
            min((slot.x - _half_width(slot, placed) for slot in row), default=MARGIN),
            max((slot.x + _half_width(slot, placed) for slot in row), default=MARGIN),
        )
        for row in rows.rows
    ]
    height = tops[-1] + heights[-1] if tops else 0.0
    width = max((high for _, high in spans), default=0.0)
    column = [0] * len(tops)
    if height > TALL and height > 2 * width:
        starts = [(number, tops, heights) for number in range(2, 10)]
        candidates = [column, *(_break_rows(*each, height / each[0]) for each in starts)]
        column = min(candidates, key=lambda each: _extent(each, tops, heights, spans))
    shift, left, start = [0.0] * len(tops), 0.0, TITLE + GAP
    for current in range(max(column, default=0) + 1):
        numbers = [number for number, each in enumerate(column) if each == current]
        low = min(spans[number][0] for number in numbers) if numbers else 0.0
        high = max(spans[number][1] for number in numbers) if numbers else 0.0
        base = tops[numbers[0]] if current else 0.0
        for number in numbers:
            shift[number] = left + MARGIN - low if max(column) else 0.0
            tops[number] -= base - (start if current else 0.0)
        left += MARGIN + high - low + GUTTER
    return column, shift


def _break_rows(limit: int, tops: list[float], heights: list[float], part: float) -> list[int]:
    """Return the column of each row for at most ``limit`` columns of about the height ``part``."""
    column, base = [0] * len(tops), 0.0
    for number in range(1, len(tops)):
        column[number] = column[number - 1]
        # A last row of gates has no height, and stays in the column of the row before it.
        if heights[number] and tops[number] + heights[number] - base > 1.05 * part and column[number] < limit - 1:
            column[number] += 1
            base = tops[number]
    return column


def _extent(column: list[int], tops: list[float], heights: list[float], spans: list[tuple[float, float]]) -> float:
    """Return the extent of a frame folded into columns: the maximum of its width and 1.3 times its height."""
    width, tallest = 0.0, 0.0
    for current in range(max(column, default=0) + 1):
        numbers = [number for number, each in enumerate(column) if each == current]
        width += max(spans[number][1] for number in numbers) - min(spans[number][0] for number in numbers) + GUTTER
        tallest = max(tallest, tops[numbers[-1]] + heights[numbers[-1]] - tops[numbers[0]])
    return max(width, 1.3 * tallest)


# Edges


def _paths(rows: LayerRows, placed: dict[Item, Placed], tops: list[float], column: list[int], height: float) -> list[Path]:
    ports = _ports(rows, placed)
    paths = []
    labelled: dict[Slot, list[str]] = {}
    lanes: dict[int, int] = {}
    for wire in rows.wires:
        source, target = wire.source, wire.target
        start = (ports[wire, 0], _bottom(source, placed))
        end = (ports[wire, 1], _top(target, placed, height))
        leave = (start[0], tops[source.row] + _row_height(rows.rows[source.row], placed))
        reach = (end[0], height if isinstance(target.end, Gate) else tops[target.row])
        label = ""
        if wire.is_first and not wire.is_backward and not isinstance(source.end, Gate):
            label = edge_label(wire)
            labels = labelled.setdefault(source, [])
            # There is space for two lines of labels below a box.
            label = "" if label in labels or len(labels) > 1 else label
            labels += [label] if label else []
        points = [leave, reach]
        if column[source.row] != column[target.row]:
            lane = lanes.setdefault(source.row, 0)
            lanes[source.row] += 1
            points = _through_gutter(rows, placed, source, target, leave, reach, lane)
        points = [
            (start[0], leave[1] if source.end is None else start[1]),
            *points,
            (end[0], reach[1] if target.end is None else end[1]),
        ]
        line = len(labelled.get(source, ())) - 1 if label else 0
        paths.append(Path(points, wire.is_last and not isinstance(target.end, Gate), label, wire, line))
    for number, row in enumerate(rows.rows):
        for slot in row:
            tall = _row_height(row, placed)
            if slot.end is None and tall:
                paths.append(Path([(slot.x, tops[number])] * 2 + [(slot.x, tops[number] + tall)] * 2, False, "", None))
    return paths


def edge_label(wire: Wire) -> str:
    """Return the label of an edge: the shape of its values, or their number if the shapes differ."""
    shapes = list(dict.fromkeys(shape_label(value) for value in wire.values[:50]))
    return shapes[0] if len(shapes) == 1 else f"{len(wire.values):,} values"


def _through_gutter(
    rows: LayerRows, placed: dict[Item, Placed], source: Slot, target: Slot, start: Point, end: Point, lane: int
) -> list[Point]:
    """Return the points of a line from the last row of a column up through the gutter to the next column's first row."""
    offset = 5.0 * (lane % 6)
    left = min(slot.x - _half_width(slot, placed) for number in range(target.row, len(rows.rows)) for slot in rows.rows[number])
    x = left - GUTTER * 0.75 + offset
    low, high = start[1] + 16 + offset, end[1] - 18 + offset * 0.5
    return [start, (start[0], low), (x, low), (x, high), (end[0], high), end]


def _bottom(slot: Slot, placed: dict[Item, Placed]) -> float:
    return 0.0 if slot.end is None or isinstance(slot.end, Gate) else placed[slot.end].y + placed[slot.end].height


def _top(slot: Slot, placed: dict[Item, Placed], height: float) -> float:
    return height if slot.end is None or isinstance(slot.end, Gate) else placed[slot.end].y


def _ports(rows: LayerRows, placed: dict[Item, Placed]) -> dict[tuple[Wire, int], float]:
    """Return the x coordinates at which each wire leaves its source (0) and reaches its target (1).

    Wires of a frame end at its gates. Wires of a card are adjacent, in the order of their other ends.
    """
    found: dict[tuple[Wire, int], float] = {}
    sides: dict[tuple[Slot, int], list[Wire]] = {}
    for wire in rows.wires:
        sides.setdefault((wire.source, 0), []).append(wire)
        sides.setdefault((wire.target, 1), []).append(wire)
    for (slot, side), wires in sides.items():
        groups: dict[object, list[Wire]] = {}
        for wire in wires:
            gate = gate_of(slot, side, wire) if isinstance(slot.end, Frame) and slot.end.is_open else None
            key: object = gate if gate is not None else wire.values if side == 0 else wire
            groups.setdefault(key, []).append(wire)
        half = _half_width(slot, placed)
        ordered = sorted(groups.items(), key=lambda group: min((w.target if side == 0 else w.source).x for w in group[1]))
        step = min(22.0, 1.3 * half / max(len(ordered), 1))
        for number, (key, group) in enumerate(ordered):
            x = slot.x + (number - (len(ordered) - 1) / 2) * step
            if isinstance(key, Gate) and isinstance(slot.end, Frame):
                x = slot.x - half + placed[slot.end].gates.get(key, half)
            for wire in group:
                found[wire, side] = x
    return found


def gate_of(slot: Slot, side: int, wire: Wire) -> Gate | None:
    """Return the gate through which a wire continues inside a frame; None if there is no such gate."""
    if not isinstance(slot.end, Frame) or not wire.values:
        return None
    is_entry = (side == 1) != wire.is_backward
    gates = slot.end.entries if is_entry else slot.end.exits
    return next((gates[value] for value in wire.values if value in gates), None)
