"""The collectives of a compiled XLA program: the kind, bytes and node of each exchange between devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dovetail.ir.graph import Graph
from dovetail.runtime.devices.trace_steps import NODE_SCOPE

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
_LINE = re.compile(rf"= (?P<type>.*?) (?P<kind>{'|'.join(KINDS)})(-start)?\(.*?(op_name=\"(?P<name>[^\"]*)\"|$)")
_SHAPE = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_BITS = re.compile(r"\d+")


class Collective(NamedTuple):
    """Collective is one collective instruction: kind, bytes of its result on each device, and label of its node."""

    kind: str
    nbytes: int
    node: str


class Collectives(Sequence[Collective]):
    """Collectives holds the collectives of a compiled program in order, and prints as a table.

    ``totals`` has the count and bytes of each kind. An instruction in the body of a loop is counted once.
    """

    def __init__(self, items: Sequence[Collective]) -> None:
        self.items = list(items)

    def __getitem__(self, index: int | slice) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def totals(self) -> dict[str, tuple[int, int]]:
        """A dict that maps each kind of collective in the program to the number and the total bytes of these collectives."""
        counts = Counter(item.kind for item in self.items)
        return {
            kind: (counts[kind], sum(item.nbytes for item in self.items if item.kind == kind)) for kind in KINDS if counts[kind]
        }

    def rows(self) -> list[tuple[str, str, int, int]]:
        """Return rows of kind, node, count and total bytes, one for each kind and node."""
        found: dict[tuple[str, str], list[int]] = {}
        for item in self.items:
            entry = found.setdefault((item.kind, item.node), [0, 0])
            entry[0] += 1
            entry[1] += item.nbytes
        return [(kind, node, count, nbytes) for (kind, node), (count, nbytes) in found.items()]

    def __repr__(self) -> str:
        if not self.items:
            return "no collectives"
        lines = [f"{kind}: {count}, {nbytes:,} bytes" for kind, (count, nbytes) in self.totals.items()]
        return "\n".join(lines)


def collectives_in(text: str, graph: Graph) -> Collectives:
    """Read the collectives from the text of a compiled HLO module."""
    return Collectives(list(_read(text, graph)))


def _read(text: str, graph: Graph) -> Iterator[Collective]:
    for line in text.splitlines():
        match = _LINE.search(line)
        if match is not None:
            scope = NODE_SCOPE.search(match["name"] or "")
            node = graph.nodes[int(scope[1])].label if scope is not None else ""
            yield Collective(match["kind"], sum(map(_bytes, _SHAPE.findall(match["type"]))), node)


def _bytes(shape: tuple[str, str]) -> int:
    kind, sizes = shape
    bits = _BITS.search(kind)
    count = 1
    for size in filter(None, sizes.split(",")):
        count *= int(size)
    return -(-count * (int(bits[0]) if bits else 8) // 8)
