"""Slices of a model whose arrays fit into a share of memory."""

from __future__ import annotations

import os
from typing import NamedTuple

from dovetail.compare.values.subject import Subject

COPIES = 6
"""Number of copies of a slice's values at a time: in the reference, inside and outside of the engine, and in workspaces."""
MINIMUM = 1 << 22
"""Minimum size in bytes of a slice, used if the imported libraries alone take nearly all of the memory."""

MAX_NODES = 1000
"""Maximum number of nodes of a slice: the time of OpenVINO grows with the square of the number of outputs."""


class Slice(NamedTuple):
    """Slice is the range of nodes from ``start`` to before ``stop``."""

    start: int
    stop: int


def resident_bytes() -> int:
    """Return the size in bytes of the resident memory of this process; 0 if the size is not known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def slice_budget(memory: int) -> int:
    """Return the size in bytes of a slice with which the process stays below ``memory``."""
    return max(MINIMUM, (memory - resident_bytes()) // COPIES)


def slices_within(subject: Subject, memory: int | None) -> tuple[list[Slice], list[str]]:
    """Return slices whose inputs, values and weights fit into ``memory``, and notes on single nodes that do not fit.

    A slice has at most MAX_NODES nodes; without ``memory`` there is no other bound.
    """
    budget = None if memory is None else slice_budget(memory)
    slices: list[Slice] = []
    notes: list[str] = []
    start, held = 0, 0
    seen: set[int] = set()
    for position, node in enumerate(subject.nodes):
        cost = _cost(subject, position, seen)
        if budget is not None and cost > budget and memory is not None:
            notes.append(f"{node.label} alone needs about {cost * COPIES} bytes, more than the memory limit of {memory} leaves")
        is_full = position - start >= MAX_NODES or (budget is not None and held + cost > budget)
        if position > start and is_full:
            slices.append(Slice(start, position))
            start, held, seen = position, 0, set()
            cost = _cost(subject, position, seen)
        held += cost
        seen.update(id(value) for value in (*node.inputs, *node.outputs) if value is not None)
    if subject.nodes:
        slices.append(Slice(start, len(subject.nodes)))
    return slices, notes


def _cost(subject: Subject, position: int, seen: set[int]) -> int:
    """Return the bytes that a node adds to a slice that already has the values ``seen``."""
    node = subject.nodes[position]
    values = [*node.outputs, *(x for x in node.inputs if x is not None and id(x) in subject.varying)]
    return subject.weight_bytes(node) + sum(subject.nbytes(value) for value in values if id(value) not in seen)
