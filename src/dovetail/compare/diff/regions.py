"""Regions of unmatched nodes: the sources of each region, and the regions of both graphs that replace each other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from dovetail.compare.diff.node_matches import Matching
from dovetail.compare.diff.side import Ref


@dataclass(slots=True)
class Region:
    """Region holds connected unmatched nodes of both graphs that replace each other; one of the two lists may be empty."""

    nodes: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


class Regions:
    """Regions holds the unmatched nodes in connected groups.

    Each region has sources: keys of its paired operands, which are equal in both graphs.
    """

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._parents: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._sources: tuple[dict[int, set[Hashable]], dict[int, set[Hashable]]] = ({}, {})
        self._links: dict[tuple[int, int], tuple[int, int]] = {}
        for side in (0, 1):
            self._connect(side)

    def _connect(self, side: int) -> None:
        graph = self._matching.sides[side]
        parents = self._parents[side]
        for node in self._matching.free_nodes(side):
            parents[node] = node
        for node in parents:
            for ref in graph.refs[node]:
                if ref.kind == "node" and ref.number in parents:
                    parents[self.root(side, node)] = self.root(side, ref.number)
        for node in parents:
            sources = self._sources[side].setdefault(self.root(side, node), set())
            for ref in graph.refs[node]:
                key = self._matching.ref_key(side, ref)
                if ref.kind == "input" or (ref.kind == "node" and key is not None):
                    sources.add(key)

    def root(self, side: int, node: int) -> int:
        parents = self._parents[side]
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    def region_of(self, side: int, ref: Ref) -> int | None:
        """Return the root (union-find) of the region that computes an operand; None if no region computes the operand."""
        return self.root(side, ref.number) if ref.kind == "node" and ref.number in self._parents[side] else None

    def explain(self, first: Ref, second: Ref) -> bool:
        """Return whether regions of unmatched nodes explain that two operands differ, since both depend on a common source.

        If regions compute both operands, these regions are recorded as replacing each other.
        """
        roots = self.region_of(0, first), self.region_of(1, second)
        if roots == (None, None):
            return False
        sources = [self._sources_of(side, ref, root) for side, (ref, root) in enumerate(zip((first, second), roots, strict=True))]
        one, other = roots
        if one is not None and other is not None:
            self._link(one, other)
            return True
        return not sources[0] or not sources[1] or bool(sources[0] & sources[1])

    def _sources_of(self, side: int, ref: Ref, root: int | None) -> set[Hashable]:
        if root is not None:
            return self._sources[side][root]
        key = self._matching.ref_key(side, ref)
        return {key} if ref.kind in ("node", "input") else set()

    def _link(self, first: int, second: int) -> None:
        ends = [self._link_root((0, first)), self._link_root((1, second))]
        if ends[0] != ends[1]:
            self._links[ends[0]] = ends[1]

    def _link_root(self, end: tuple[int, int]) -> tuple[int, int]:
        while end in self._links:
            end = self._links[end]
        return end

    def collect(self) -> list[Region]:
        """Return the regions in the order of their first nodes; regions that replace each other are one Region."""
        regions: dict[tuple[int, int], Region] = {}
        for side in (0, 1):
            for node in self._parents[side]:
                end = self._link_root((side, self.root(side, node)))
                regions.setdefault(end, Region()).nodes[side].append(node)
        return list(regions.values())
