"""Arrange the items of each frame: order them, merge repeated blocks into one counted copy, divide large frames."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil, sqrt
from typing import Any

from dovetail.report.draw.repeats import tandem_repeats
from dovetail.report.draw.scene import Card, Frame, Gate, Item

MAX_ITEMS = 300
"""The maximum number of items of a frame; larger frames are divided into sections."""
MAX_SEGMENTS = 5000
"""The maximum number of edge segments between rows of a frame; beyond it, sections become larger."""

Adjacency = dict[Item, dict[Item, None]]


class Copies:
    """Copies holds the merged copies of repeated blocks: the drawn item for each item, and the copies that contain an item."""

    def __init__(self) -> None:
        self._representative: dict[Item, Item] = {}
        self._copy: dict[Item, dict[int, int]] = {}
        self._groups = 0

    def representative(self, item: Item) -> Item:
        """Return the drawn item that stands for ``item``."""
        while item in self._representative:
            item = self._representative[item]
        return item

    def are_apart(self, first: Item, second: Item) -> bool:
        """Return whether two items are in different copies of one block."""
        copies = self._copy.get(second, {})
        return any(copies.get(group, number) != number for group, number in self._copy.get(first, {}).items())

    def add(self, copies: Sequence[Sequence[Item]]) -> None:
        """Record the items of each copy of a block; the first copy is drawn."""
        for number, copy in enumerate(copies):
            for drawn, item in zip(copies[0], copy, strict=True):
                for inner in _all_items(item):
                    self._copy.setdefault(inner, {})[self._groups] = number
                if number:
                    self._pair(drawn, item)
        self._groups += 1

    def _pair(self, drawn: Item, item: Item) -> None:
        pending = [(drawn, item)]
        while pending:
            first, second = pending.pop()
            self._representative[second] = first
            if isinstance(first, Frame) and isinstance(second, Frame):
                pending += zip(first.children, second.children, strict=True)


def _all_items(item: Item) -> Iterator[Item]:
    pending = [item]
    while pending:
        each = pending.pop()
        yield each
        pending += each.hidden
        if isinstance(each, Frame):
            pending += each.children


def arrange(root: Frame, tokens: dict[Any, int], notes: list[str]) -> Copies:
    """Arrange the children of every frame in ``root``, inner frames first. ``notes`` receives a line for each simplification."""
    copies = Copies()
    frames: list[Frame] = []
    pending: list[Item] = [root]
    while pending:
        item = pending.pop()
        if isinstance(item, Frame):
            frames.append(item)
            pending += item.children
    for frame in reversed(frames):
        _arrange_frame(frame, tokens, notes, copies)
    return copies


def _arrange_frame(frame: Frame, tokens: dict[Any, int], notes: list[str], copies: Copies) -> None:
    after: Adjacency = {child: {} for child in frame.children}
    for source, target in frame.links:
        if not isinstance(source, Gate) and not isinstance(target, Gate):
            after[source][target] = None
    order = topological_order(frame.children, after)
    index = {item: number for number, item in enumerate(order)}
    pairs = sorted((index[source], index[target]) for source, targets in after.items() for target in targets)
    key = (frame.kind, frame.token, tuple(item.token for item in order), tuple(pairs))
    frame.token = tokens.setdefault(key, len(tokens))
    items = _group_repeats(order, after, copies)
    frame.children = _divide(items, after, frame, notes)
    frame.total = len(frame.nodes) + sum(child.total for child in frame.children)


def topological_order(items: Sequence[Item], after: Mapping[Item, Mapping[Item, None]]) -> list[Item]:
    """Sort items topologically, ready items by position. A cycle of modules is broken at its first item."""
    waiting = dict.fromkeys(items, 0)
    for item in items:
        for target in after[item]:
            waiting[target] += item is not target
    keys = {item: (item.position, 1, item.position) for item in items}
    for item in items:
        if not waiting[item] and item.total and after[item]:
            # An item without inputs, such as a generated weight, is placed just before its first reader.
            keys[item] = (min(target.position for target in after[item]), 0, item.position)
    by_position = sorted(items, key=keys.__getitem__)
    position = {item: number for number, item in enumerate(by_position)}
    ready = [position[item] for item in items if not waiting[item]]
    heapq.heapify(ready)
    order: list[Item] = []
    done: set[Item] = set()
    first = 0
    while len(order) < len(items):
        if ready:
            item = by_position[heapq.heappop(ready)]
        else:
            while by_position[first] in done:
                first += 1
            item = by_position[first]
        if item in done:
            continue
        done.add(item)
        order.append(item)
        for target in after[item]:
            waiting[target] -= 1
            if not waiting[target] and target not in done:
                heapq.heappush(ready, position[target])
    return order


# Repeats


def _group_repeats(order: list[Item], after: Adjacency, copies: Copies, depth: int = 0) -> list[Item]:
    """Replace each run of repeated blocks in ``order`` by its first copy."""
    result: list[Item] = []
    end = 0
    for start, period, count in tandem_repeats([item.token for item in order], [item.total for item in order]):
        blocks = [order[first : first + period] for first in range(start, start + period * count, period)]
        if not _are_copies(blocks, after):
            continue
        copies.add(blocks)
        drawn = blocks[0]
        result += [*order[end:start], _merge_copies(drawn, blocks, after, copies, depth)]
        end = start + period * count
    return [*result, *order[end:]]


def _are_copies(blocks: Sequence[Sequence[Item]], after: Adjacency) -> bool:
    """Return whether all blocks have equal inner edges and equal edges to the next block, and no edges to other blocks."""
    place = {item: (number, index) for number, block in enumerate(blocks) for index, item in enumerate(block)}
    edges: list[set[tuple[int, int, int]]] = [set() for _ in blocks]
    for item, (number, index) in place.items():
        for target in after[item]:
            if target in place:
                other, position = place[target]
                edges[number].add((other - number, index, position))
    if any(distance not in (0, 1) for each in edges for distance, _, _ in each):
        return False
    first = edges[0]
    last = {edge for edge in first if edge[0] == 0}
    return all(each == first for each in edges[:-1]) and edges[-1] == last


def _merge_copies(drawn: list[Item], blocks: list[list[Item]], after: Adjacency, copies: Copies, depth: int) -> Item:
    """Return the item that represents a repeated block: the single item with a count, or a frame of the block's items."""
    hidden = [item for block in blocks[1:] for item in block]
    if len(drawn) > 1:
        # The hidden blocks contain repeats too, whose copies stay hidden with the blocks.
        children = _group_repeats(drawn, after, copies, depth + 1) if depth < 4 else drawn
        item: Item = Frame("repeat", "repeated block", drawn[0].position, children)
        assert isinstance(item, Frame)
        item.total = sum(child.total for child in children)
        item.token = drawn[0].token
    else:
        item = drawn[0]
        if isinstance(item, Frame) and item.kind == "module":
            last = hidden[-1]
            if isinstance(last, Frame) and last.title != item.title:
                item.title = f"{item.title} … {last.title}"
    item.count *= len(blocks)
    item.hidden += hidden
    item.total += sum(each.total for each in hidden)
    return item


# Sections


def _divide(items: list[Item], after: Adjacency, frame: Frame, notes: list[str]) -> list[Item]:
    """Divide the ordered items of a large or dense frame into sections of consecutive items; edges still point forward."""
    holder = {inner: item for item in items for inner in _all_items(item)}
    index = {item: number for number, item in enumerate(items)}
    edges = sorted(
        {(index[holder[source]], index[holder[target]]) for source, targets in after.items() for target in targets
         if holder[source] is not holder[target]}
    )  # fmt: skip
    if len(items) <= MAX_ITEMS and _segments(edges) <= MAX_SEGMENTS:
        return items
    crossing = _crossing_sources(len(items), edges)
    size = ceil(sqrt(len(items)))
    starts = _section_starts(crossing, size)
    while len(starts) > MAX_ITEMS or _segments(_between_sections(edges, starts)) > MAX_SEGMENTS:
        size *= 2
        starts = _section_starts(crossing, size)
    what = "many nodes" if len(items) > MAX_ITEMS else "dense edges"
    where = "" if frame.parent is None else " of a module"
    inputs = [item for item in items[:size] if isinstance(item, Card) and item.kind == "input"]
    outputs = [item for item in items[-size:] if isinstance(item, Card) and item.kind == "output"]
    sections = _sections(items, starts, crossing, {*inputs, *outputs})
    notes.append(f"{what}{where}: {len(items):,} boxes are drawn as {len(sections):,} sections")
    return [*inputs, *sections, *outputs]


def _crossing_sources(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each position the number of earlier items that the item at this or a later position reads."""
    last: dict[int, int] = {}
    for source, target in edges:
        last[source] = max(last.get(source, source), target)
    changes = [0] * (count + 1)
    for source, target in last.items():
        changes[source + 1] += 1
        changes[target + 1] -= 1
    return list(accumulate(changes[:count]))


def _section_starts(crossing: Sequence[int], size: int) -> list[int]:
    """Return the starts of sections of size / 2 to ``size`` items, at the positions that the fewest values cross.

    Among equal positions the last is chosen.
    """
    starts = [0]
    while starts[-1] + size < len(crossing):
        positions = range(starts[-1] + size, starts[-1] + size // 2, -1)
        starts.append(min(positions, key=crossing.__getitem__))
    return starts


def _between_sections(edges: Sequence[tuple[int, int]], starts: Sequence[int]) -> list[tuple[int, int]]:
    return [(bisect_right(starts, source), bisect_right(starts, target)) for source, target in edges]


def _sections(items: list[Item], starts: Sequence[int], crossing: Sequence[int], ends: set[Item]) -> list[Item]:
    """Return the sections that begin at ``starts``, without the items in ``ends``; large sections are divided again."""
    sections: list[Item] = []
    for start, end in zip(starts, [*starts[1:], len(items)], strict=True):
        part = items[start:end]
        if end - start > MAX_ITEMS:
            inner = _section_starts(crossing[start:end], ceil(sqrt(end - start)))
            part = _sections(part, inner, crossing[start:end], ends)
        else:
            part = [item for item in part if item not in ends]
        if part:
            section = Frame("section", f"boxes {start + 1:,} to {end:,}", part[0].position, part)
            section.total = sum(item.total for item in part)
            sections.append(section)
    return sections


def _segments(edges: Sequence[tuple[int, int]]) -> int:
    """Return the number of edge segments between rows; edges of one source share segments."""
    rank: dict[int, int] = {}
    forward = sorted({(source, target) for source, target in edges if source < target})
    for source, target in forward:
        rank[target] = max(rank.get(target, 0), rank.get(source, 0) + 1)
    last: dict[int, int] = {}
    for source, target in forward:
        last[source] = max(last.get(source, 0), rank[target] - rank.get(source, 0))
    return sum(last.values()) + len(forward)
