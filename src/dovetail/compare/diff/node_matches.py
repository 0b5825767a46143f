"""Matching of the nodes of two graphs by content: from the inputs, from the outputs, and from matched neighbours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from dovetail.compare.diff.side import MIN_WEIGHT, Interner, Ref, Side, Use

ROUNDS = 12
"""Maximum number of rounds of propagation; a graph that needs more rounds is matched more coarsely."""
LARGE = 20_000
"""Number of nodes from which a graph has only ROUNDS_OF_LARGE rounds, so that the matching takes less than a minute."""
ROUNDS_OF_LARGE = 2
RADII = 3
"""Number of refinements of the colours of neighbourhoods."""
MAX_VOTES = 64
"""Maximum number of readers of one value that vote for a match."""

Colors = list[int]


class Matching:
    """Matching holds pairs of nodes of the two compared graphs, the sides 0 and 1.

    ``partners`` has, for each side, the index of the matched node of each node, or -1.

    ``notes`` say where the matching is coarser than it could be.
    """

    def __init__(self, sides: tuple[Side, Side], inputs: Sequence[tuple[int, int]], outputs: Sequence[tuple[int, int]]) -> None:
        self.sides = sides
        self.partners = ([-1] * len(sides[0].nodes), [-1] * len(sides[1].nodes))
        self._input_pairs = tuple({pair[side]: number for number, pair in enumerate(inputs)} for side in (0, 1))
        self._output_pairs = tuple({pair[side]: number for number, pair in enumerate(outputs)} for side in (0, 1))
        self.forward: tuple[Colors, Colors] = ([], [])
        self.notes: list[str] = []
        self.count = 0
        self._whole: tuple[Colors, Colors] = ([], [])

    def mirror(self) -> Matching:
        """Return the same pairs with the sides exchanged."""
        mirrored = Matching((self.sides[1], self.sides[0]), (), ())
        mirrored.partners = self.partners[1], self.partners[0]
        mirrored._input_pairs = self._input_pairs[::-1]
        mirrored._output_pairs = self._output_pairs[::-1]
        mirrored.forward = self.forward[1], self.forward[0]
        mirrored.notes, mirrored.count = self.notes, self.count
        return mirrored

    @property
    def interner(self) -> Interner:
        return self.sides[0].interner

    def pair(self, first: int, second: int) -> None:
        self.partners[0][first], self.partners[1][second] = second, first
        self.count += 1

    def pair_number(self, side: int, node: int) -> int:
        """Return the number of a node's pair, which is the number of the node of side 0; -1 for a node without a partner."""
        partner = self.partners[side][node]
        return -1 if partner < 0 else node if side == 0 else partner

    def free_nodes(self, side: int) -> list[int]:
        return [node for node, partner in enumerate(self.partners[side]) if partner < 0]

    def ref_key(self, side: int, ref: Ref, colors: Colors | None = None) -> Hashable:
        """Return a key of an operand; keys of both sides are equal if the operands are paired or have equal ``colors``.

        Returns None for a node without a partner if ``colors`` is None. Elements of constants are in the key of the reader.
        """
        if ref.kind == "input":
            number = self._input_pairs[side].get(ref.number)
            return ("input", number) if number is not None else ("alone", side, ref.number)
        if ref.kind != "node":
            return ref.kind
        number = self.pair_number(side, ref.number)
        if number >= 0:
            return "pair", number, ref.output
        return None if colors is None else ("color", colors[ref.number], ref.output)

    def result_keys(self, side: int, node: int) -> list[tuple[int, int, int]]:
        """Return keys of the graph outputs that a node computes."""
        pairs = self._output_pairs[side]
        found = self.sides[side].results.get(node, ())
        return sorted((-1, pairs[position], output) if position in pairs else (-2 - side, position, output)
                      for position, output in found)  # fmt: skip

    def have_equal_values(self, first: int, second: int) -> bool:
        """Return whether two nodes compute the same from the inputs; all elements of constants are compared."""
        if self.forward[0][first] != self.forward[1][second]:
            return False
        for side in (0, 1):
            if not self._whole[side]:
                self._whole[side].extend(self._color_whole(side))
        return self._whole[0][first] == self._whole[1][second]

    def _color_whole(self, side: int) -> Colors:
        graph = self.sides[side]
        colors: Colors = []
        for node, refs in enumerate(graph.refs):
            operands = tuple(
                colors[ref.number] if ref.kind == "node" else graph.whole_number(ref.number) if ref.kind == "constant" else -1
                for ref in refs
            )
            colors.append(self.interner.number(("whole", self.forward[side][node], operands)))
        return colors

    # Colours of all ancestors or all descendants

    def color_forward(self, keys: str, *, is_relative: bool) -> tuple[Colors, Colors]:
        """Colour each node by its key and the colours of its operands; with ``is_relative``, pairs have equal colours."""
        first, second = (self._color_forward(side, getattr(self.sides[side], keys), is_relative) for side in (0, 1))
        return first, second

    def _color_forward(self, side: int, keys: Colors, is_relative: bool) -> Colors:
        colors: Colors = []
        number = self.interner.number
        for node, refs in enumerate(self.sides[side].refs):
            if is_relative and self.partners[side][node] >= 0:
                colors.append(-1)
                continue
            if is_relative:
                operands = tuple(self.ref_key(side, ref, colors) for ref in refs)
            else:
                operands = tuple(
                    ("color", colors[ref.number], ref.output) if ref.kind == "node" else self.ref_key(side, ref) for ref in refs
                )
            colors.append(number(("forward", keys[node], operands)))
        return colors

    def color_backward(self, keys: str, *, is_relative: bool) -> tuple[Colors, Colors]:
        """Colour each node by its key and the colours of its readers; with ``is_relative``, pairs have equal colours."""
        first, second = (self._color_backward(side, getattr(self.sides[side], keys), is_relative) for side in (0, 1))
        return first, second

    def _color_backward(self, side: int, keys: Colors, is_relative: bool) -> Colors:
        graph = self.sides[side]
        colors = [-1] * len(graph.nodes)
        number = self.interner.number
        for node in range(len(graph.nodes) - 1, -1, -1):
            readers = sorted(self._reader_key(side, use, colors, is_relative) for use in graph.uses[node])
            colors[node] = number(("backward", keys[node], tuple(readers), tuple(self.result_keys(side, node))))
        return colors

    def _reader_key(self, side: int, use: Use, colors: Colors, is_relative: bool) -> tuple[int, int, int, int]:
        pair = self.pair_number(side, use.reader) if is_relative else -1
        return (1, pair, use.slot, use.output) if pair >= 0 else (0, colors[use.reader], use.slot, use.output)

    # Groups of equal colours

    def match_equal(self, colors: tuple[Colors, Colors], ties: Sequence[tuple[Colors, Colors]], *, in_order: bool) -> int:
        """Pair unmatched nodes of equal colour. Among several candidates, equal ``ties`` decide, then equal names.

        With ``in_order`` the order of the nodes decides last: nodes of one colour compute the same, so that any choice is right.
        """
        before = self.count
        groups: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for side in (0, 1):
            for node in self.free_nodes(side):
                groups[colors[side][node]][side].append(node)
        for first, second in groups.values():
            if first and second:
                self._match_group(first, second, ties, in_order)
        return self.count - before

    def _match_group(self, first: list[int], second: list[int], ties: Sequence[tuple[Colors, Colors]], in_order: bool) -> None:
        if len(first) == len(second) == 1:
            self.pair(first[0], second[0])
            return
        for tie in ties:
            first, second = self._match_where(first, second, lambda side, node, tie=tie: tie[side][node])  # type: ignore[misc]
        first, second = self._match_where(first, second, self._name)
        if first and second and (in_order or len(first) == len(second) == 1):
            for one, other in zip(first, second, strict=False):
                self.pair(one, other)

    def _name(self, side: int, node: int) -> str:
        return self.sides[side].nodes[node].label

    def _match_where(
        self, first: list[int], second: list[int], key: Callable[[int, int], Hashable]
    ) -> tuple[list[int], list[int]]:
        """Pair those nodes of a group whose keys occur exactly once on each side; return the other nodes."""
        counts = (Counter(key(0, node) for node in first), Counter(key(1, node) for node in second))
        others = {key(1, node): node for node in second}
        for node in first:
            own = key(0, node)
            if counts[0][own] == 1 and counts[1][own] == 1:
                self.pair(node, others[own])
        return [n for n in first if self.partners[0][n] < 0], [n for n in second if self.partners[1][n] < 0]

    # Propagation

    def propagate(self, keys: str, direction: str) -> int:
        """Pair nodes with equal keys whose operands (``direction`` "forward") or readers ("backward") are all paired."""
        before = self.count
        neighbors, spread = (operands, readers) if direction == "forward" else (readers, operands)
        missing = tuple(
            {
                node: sum(self.partners[side][other] < 0 for other in neighbors(self.sides[side], node))
                for node in self.free_nodes(side)
            }
            for side in (0, 1)
        )
        groups: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        ready = [[node for node, count in missing[side].items() if count == 0] for side in (0, 1)]
        while ready[0] or ready[1]:
            pairs = self._match_ready(groups, ready, keys, direction)
            ready = [[], []]
            for pair in pairs:
                for side in (0, 1):
                    for other in spread(self.sides[side], pair[side]):
                        if other in missing[side]:
                            missing[side][other] -= 1
                            if missing[side][other] == 0:
                                ready[side].append(other)
        return self.count - before

    def _match_ready(
        self, groups: dict[Hashable, tuple[list[int], list[int]]], ready: list[list[int]], keys: str, direction: str
    ) -> list[tuple[int, int]]:
        """Add nodes whose neighbours are now all paired to groups of equal neighbours, and match the nodes of these groups."""
        entered: dict[Hashable, None] = {}
        for side in (0, 1):
            for node in ready[side]:
                if self.partners[side][node] < 0:
                    key = self._neighbor_key(side, node, keys, direction)
                    groups[key][side].append(node)
                    entered[key] = None
        pairs = []
        for key in entered:
            first, second = groups[key]
            if first and second:
                self._match_group(first, second, (), in_order=True)
                pairs += [(node, self.partners[0][node]) for node in first if self.partners[0][node] >= 0]
                groups[key] = ([n for n in first if self.partners[0][n] < 0], [n for n in second if self.partners[1][n] < 0])
        return pairs

    def _neighbor_key(self, side: int, node: int, keys: str, direction: str) -> Hashable:
        own = getattr(self.sides[side], keys)[node]
        if direction == "forward":
            refs = self.sides[side].refs[node]
            # Where only the class is compared, an optional operand may be absent.
            return own, tuple(self.ref_key(side, ref) for ref in refs if keys != "kinds" or ref.kind in ("node", "input"))
        uses = (self._reader_key(side, use, [], True) for use in self.sides[side].uses[node])
        return own, tuple(sorted(uses)), tuple(self.result_keys(side, node))

    # Neighbourhoods

    def match_neighborhoods(self, keys: str) -> int:
        """Pair unmatched nodes whose neighbourhood occurs once on each side, the widest neighbourhoods first."""
        before = self.count
        levels = [(getattr(self.sides[0], keys), getattr(self.sides[1], keys))]
        for _ in range(RADII):
            levels.append((self._refine(0, levels[-1][0]), self._refine(1, levels[-1][1])))
        for radius in range(RADII, -1, -1):
            groups: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
            for side in (0, 1):
                for node in self.free_nodes(side):
                    if radius or self._has_weight(side, node):
                        groups[levels[radius][side][node]][side].append(node)
            self._pair_single(groups)
        return self.count - before

    def _pair_single(self, groups: Mapping[Any, tuple[list[int], list[int]]]) -> None:
        """Pair the two nodes of each group that has exactly one node of either model."""
        for first, second in groups.values():
            if len(first) == len(second) == 1:
                self.pair(first[0], second[0])

    def match_weights(self) -> int:
        """Pair unmatched nodes of one operator whose weights have a range that occurs exactly once on each side."""
        before = self.count
        groups: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for side in (0, 1):
            for node in self.free_nodes(side):
                key = self.sides[side].weight_range(node)
                if key is not None:
                    groups[key][side].append(node)
        self._pair_single(groups)
        return self.count - before

    def _refine(self, side: int, colors: Colors) -> Colors:
        number = self.interner.number
        graph = self.sides[side]
        new: Colors = []
        for node, color in enumerate(colors):
            if self.partners[side][node] >= 0:
                new.append(-1)
                continue
            sources = tuple(self.ref_key(side, ref, colors) for ref in graph.refs[node])
            uses = sorted(self._reader_key(side, use, colors, True) for use in graph.uses[node])
            new.append(number(("around", color, sources, tuple(uses), tuple(self.result_keys(side, node)))))
        return new

    def _has_weight(self, side: int, node: int) -> bool:
        graph = self.sides[side]
        return any(ref.kind == "constant" and graph.constants[ref.number].data.size >= MIN_WEIGHT for ref in graph.refs[node])

    def vote(self) -> int:
        """Pair nodes of one operator by votes of their matched neighbours; each node must have the most votes for the other."""
        before = self.count
        best = tuple(self._favorites(side) for side in (0, 1))
        for node, other in best[0].items():
            if best[1].get(other) == node and self.partners[0][node] < 0 and self.partners[1][other] < 0:
                self.pair(node, other)
        return self.count - before

    def _favorites(self, side: int) -> dict[int, int]:
        """Return the node of the other side with the most votes, for each unmatched node with exactly one such node."""
        own, opposite = self.sides[side], self.sides[1 - side]
        favorites: dict[int, int] = {}
        for node in self.free_nodes(side):
            votes: Counter[int] = Counter()
            for slot, ref in enumerate(own.refs[node]):
                partner = self.partners[side][ref.number] if ref.kind == "node" else -1
                if partner >= 0:
                    uses = opposite.uses[partner][:MAX_VOTES]
                    votes.update({use.reader for use in uses if use.slot == slot and use.output == ref.output})
            for use in own.uses[node][:MAX_VOTES]:
                partner = self.partners[side][use.reader]
                refs = opposite.refs[partner] if partner >= 0 else ()
                if use.slot < len(refs) and refs[use.slot].kind == "node" and refs[use.slot].output == use.output:
                    votes[refs[use.slot].number] += 1
            ranked = [
                (count, other)
                for other, count in votes.most_common()
                if self.partners[1 - side][other] < 0 and own.kinds[node] == opposite.kinds[other]
            ]
            if ranked and (len(ranked) == 1 or ranked[0][0] > ranked[1][0]):
                favorites[node] = ranked[0][1]
        return favorites


def operands(side: Side, node: int) -> Iterable[int]:
    """Yield the nodes that compute the operands of a node, once for each operand."""
    return (ref.number for ref in side.refs[node] if ref.kind == "node")


def readers(side: Side, node: int) -> Iterable[int]:
    return (use.reader for use in side.uses[node])


def match_nodes(sides: tuple[Side, Side], inputs: Sequence[tuple[int, int]], outputs: Sequence[tuple[int, int]]) -> Matching:
    """Match the nodes of two graphs whose ``inputs`` and ``outputs`` are paired by position."""
    matching = Matching(sides, inputs, outputs)
    matching.forward = matching.color_forward("exact", is_relative=False)
    backward = matching.color_backward("exact", is_relative=False)
    matching.match_equal(matching.forward, (backward,), in_order=True)
    matching.match_equal(backward, (), in_order=False)
    _refine(matching)
    matching.match_equal(matching.forward, (), in_order=True)
    return matching


def _refine(matching: Matching) -> None:
    """Match the remaining nodes in rounds; a round tries steps, strictest first, and ends with the first that finds a pair."""

    def propagate(keys: str) -> int:
        return matching.propagate(keys, "forward") + matching.propagate(keys, "backward")

    def match_structure() -> int:
        found = propagate("structure")
        for color in (matching.color_forward, matching.color_backward):
            found += matching.match_equal(color("structure", is_relative=True), (), in_order=False)
        return found

    steps: tuple[Callable[[], int], ...] = (
        lambda: propagate("exact"),
        lambda: matching.match_neighborhoods("exact"),
        match_structure,
        lambda: propagate("kinds"),
        matching.vote,
        matching.match_weights,
        lambda: matching.match_neighborhoods("shapes"),
    )
    rounds = ROUNDS if len(matching.partners[0]) < LARGE else ROUNDS_OF_LARGE
    for _ in range(rounds):
        if not (matching.free_nodes(0) and matching.free_nodes(1)):
            return
        if not any(step() for step in steps):
            return
    matching.notes.append(f"nodes were matched in {rounds} rounds; more rounds could match more of them")
