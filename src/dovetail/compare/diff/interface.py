"""Pairs of the inputs or outputs of two graphs, and the differences of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.compare.diff.dimensions import Dimensions
from dovetail.ir.graph import Value
from dovetail.ir.types import Tensor

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PortChange:
    """PortChange compares one input or output of two graphs.

    ``kind`` is "same", "renamed", "moved" (another position), "changed" (another type), "added" or "removed". The last three are
    differences; names and positions do not affect the results of a model.
    """

    role: str
    kind: str
    first: str = ""
    second: str = ""
    first_type: str = ""
    second_type: str = ""

    @property
    def is_difference(self) -> bool:
        return self.kind in ("changed", "added", "removed")

    @property
    def text(self) -> str:
        if self.kind == "changed":
            return f"{self.first_type} became {self.second_type}"
        return self.second_type if self.kind == "added" else self.first_type


def pair_ports(first: Sequence[Value], second: Sequence[Value], *, by_position: bool = False) -> Pairs:
    """Pair ports of equal names; pair the other ports in order: by type, then by element type and rank, then by element type.

    With ``by_position`` ports are paired by position, because names of the ports of a subgraph do not matter.
    """
    if by_position:
        return [(index, index) for index in range(min(len(first), len(second)))]
    positions = {value.name: index for index, value in enumerate(second)}
    pairs = [(index, positions[value.name]) for index, value in enumerate(first) if value.name in positions]
    for key in (lambda value: str(value.type), _dtype_and_rank, _dtype):
        pairs += _pair_equal(first, second, pairs, key)
    return sorted(set(pairs))


def _pair_equal(first: Sequence[Value], second: Sequence[Value], pairs: Pairs, key: Callable[[Value], str]) -> Pairs:
    known = {one for one, _ in pairs}, {other for _, other in pairs}
    free: dict[str, list[int]] = {}
    for index, value in enumerate(second):
        if index not in known[1]:
            free.setdefault(key(value), []).append(index)
    found: Pairs = []
    for index, value in enumerate(first):
        candidates = free.get(key(value)) if index not in known[0] else None
        if candidates:
            found.append((index, candidates.pop(0)))
    return found


def _dtype_and_rank(value: Value) -> str:
    type = value.type
    if isinstance(type, Tensor) and type.shape is not None:
        return f"{type.dtype} {len(type.shape)}"
    return str(type)


def _dtype(value: Value) -> str:
    return str(value.type.dtype) if isinstance(value.type, Tensor) else str(value.type)


def compare_ports(
    role: str, first: Sequence[Value], second: Sequence[Value], pairs: Pairs, dimensions: Dimensions
) -> list[PortChange]:
    """Return a PortChange for each pair, then for each port that only one graph has."""
    rows = []
    for one, other in pairs:
        x, y = first[one], second[other]
        if not dimensions.are_equal(x.type, y.type):
            kind = "changed"
        else:
            kind = "renamed" if x.name != y.name else "moved" if one != other else "same"
        rows.append(PortChange(role, kind, x.name, y.name, str(x.type), str(y.type)))
    paired = {one for one, _ in pairs}, {other for _, other in pairs}
    rows += [
        PortChange(role, "removed", first=x.name, first_type=str(x.type))
        for index, x in enumerate(first)
        if index not in paired[0]
    ]
    rows += [
        PortChange(role, "added", second=y.name, second_type=str(y.type))
        for index, y in enumerate(second)
        if index not in paired[1]
    ]
    return rows
