"""Assign the items of a frame to rows by longest path, and order each row with the Sugiyama layout of fast-sugiyama."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dovetail.ir.graph import Value
from dovetail.report.draw.scene import End, Frame, Gate

BUNDLE = 5
"""The maximum number of values of one item whose edges are drawn separately; more are bundled."""


@dataclass(eq=False, slots=True)
class Slot:
    """Slot is a position in a row: an item, a gate of the frame, or a bend of an edge.

    For a bend ``end`` is None, and ``key`` is the edge.
    """

    end: End | None
    row: int
    key: Any = None
    x: float = 0.0


@dataclass(eq=False, slots=True)
class Wire:
    """Wire is a segment of an edge between two neighbouring rows.

    ``is_first`` and ``is_last``: the wire is the first or last segment of its edge.
    """

    source: Slot
    target: Slot
    values: tuple[Value, ...]
    is_first: bool
    is_last: bool
    is_backward: bool = False


@dataclass(slots=True)
class LayerRows:
    """LayerRows holds the rows of a frame, from top to bottom, and the wires between rows."""

    rows: list[list[Slot]]
    wires: list[Wire] = field(default_factory=list)


def assign_rows(frame: Frame) -> LayerRows:
    """Assign the children and gates of a frame to rows, in an order with few crossings."""
    slots: dict[End, Slot] = {child: Slot(child, 0) for child in frame.children}
    order: dict[End, int] = {child: number for number, child in enumerate(frame.children)}
    edges = [(source, target, tuple(values)) for (source, target), values in frame.links.items()]
    entries = list(dict.fromkeys(source for source, _, _ in edges if isinstance(source, Gate)))
    exits = list(dict.fromkeys(target for _, target, _ in edges if isinstance(target, Gate)))
    first = 1 if entries else 0
    for child in frame.children:
        slots[child].row = first
    inner = [(s, t) for s, t, _ in edges if s in order and t in order and order[s] < order[t]]
    for s, t in sorted(inner, key=lambda pair: order[pair[0]]):
        slots[t].row = max(slots[t].row, slots[s].row + 1)
    _lower_sources(frame, slots, inner, order)
    last = max((slots[child].row for child in frame.children), default=0) + 1
    slots.update({gate: Slot(gate, 0) for gate in entries})
    slots.update({gate: Slot(gate, last) for gate in exits})
    rows = LayerRows([[] for _ in range(last + bool(exits))])
    for slot in slots.values():
        rows.rows[slot.row].append(slot)
    outgoing: dict[End, set[tuple[Value, ...]]] = {}
    for source, _, values in edges:
        outgoing.setdefault(source, set()).add(values)
    trunks: dict[Any, Slot] = {}
    for source, target, values in edges:
        is_backward = slots[source].row >= slots[target].row
        upper, lower = (target, source) if is_backward else (source, target)
        bundle: Any = values if len(outgoing[source]) <= BUNDLE else None
        _add_edge(rows, trunks, slots[upper], slots[lower], (source, bundle, is_backward and target), values, is_backward)
    _order_rows(rows)
    return rows


def _lower_sources(frame: Frame, slots: dict[End, Slot], edges: list[tuple[End, End]], order: dict[End, int]) -> None:
    """Move items without inputs down to the row above their first reader, which shortens edges."""
    readers: dict[End, list[End]] = {}
    fed = set()
    for source, target in edges:
        readers.setdefault(source, []).append(target)
        fed.add(target)
    for child in reversed(frame.children):
        if child in readers and child not in fed:
            slots[child].row = max(slots[child].row, min(slots[target].row for target in readers[child]) - 1)


def _add_edge(
    rows: LayerRows, trunks: dict[Any, Slot], upper: Slot, lower: Slot, key: Any, values: tuple[Value, ...], is_backward: bool
) -> None:
    """Add the wires of an edge. Long edges with equal ``key`` share their bends."""
    if upper.row == lower.row:
        return
    above = upper
    for row in range(upper.row + 1, lower.row):
        bend = trunks.get((key, row))
        if bend is None:
            bend = trunks[key, row] = Slot(None, row, key)
            rows.rows[row].append(bend)
            rows.wires.append(Wire(above, bend, values, above is upper, False, is_backward))
        above = bend
    rows.wires.append(Wire(above, lower, values, above is upper, True, is_backward))


def _order_rows(rows: LayerRows) -> None:
    """Order the slots of each row with few wire crossings."""
    # Deferred for start-up time.
    from fast_sugiyama import from_edges

    slots = [slot for row in rows.rows for slot in row]
    if all(len(row) < 2 for row in rows.rows) or not rows.wires:
        return
    index = {slot: number for number, slot in enumerate(slots)}
    edges = {(index[wire.source], index[wire.target]) for wire in rows.wires}
    edges |= {(index[above], index[slot]) for above, slot in _anchors(rows)}
    # Ranks by longest path from the sources keep each slot in its row. Ranks of minimum edge length would take minutes in dense
    # graphs.
    found = from_edges(
        sorted(edges),
        minimum_length=1,
        ranking_type="up",
        crossing_minimization="barycenter",
        transpose=True,
        dummy_vertices=True,
    )
    start = 0.0
    for positions, width, _, _ in sorted(found, key=lambda component: min(component[0])[0]):
        left = min(x for _, (x, _) in positions)
        for number, (x, _) in positions:
            slots[int(number)].x = start + x - left
        start += width + 1.0
    for row in rows.rows:
        row.sort(key=lambda slot: slot.x)


def _anchors(rows: LayerRows) -> Iterator[tuple[Slot, Slot]]:
    """Yield (anchor, slot) for each slot without a wire from above.

    The anchor is a slot of the row above, near other inputs of the slot's readers, or else the first of the row.
    """
    above: dict[Slot, list[Slot]] = {}
    below: dict[Slot, list[Slot]] = {}
    for wire in rows.wires:
        above.setdefault(wire.target, []).append(wire.source)
        below.setdefault(wire.source, []).append(wire.target)
    for slot in below:
        if slot.row and slot not in above:
            near = (each for reader in below[slot] for beside in above[reader] for each in above.get(beside, ()))
            yield next(near, rows.rows[slot.row - 1][0]), slot
