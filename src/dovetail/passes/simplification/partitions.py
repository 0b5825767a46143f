"""Pass ``slices_to_split``: slices that partition a tensor along one axis become the outputs of one Split."""

from __future__ import annotations

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.types import INT64_MAX, Tensor
from dovetail.laws.rules.cuts import cuts_of
from dovetail.ops.tensor.slice import Slice
from dovetail.passes.simplification.rules import Target, replace_groups

_Partition = tuple[int, list[tuple[int, int, Node]]]
"""The axis of a partition, and the start, the stop and the node of each of its slices in order."""


def split_partitions(graph: Graph, target: Target) -> int:
    """Replace slices that cover an axis of static size without overlap by one Split. Returns the number of replaced nodes."""
    return replace_groups(graph, target, _partitions(graph), _write)


def _write(b: Builder, node: Node, partition: _Partition) -> list[Value]:
    axis, row = partition
    return b.Split(node.input(0), [stop - start for start, stop, _ in row], axis=axis, outputs=len(row))


def _partitions(graph: Graph) -> dict[int, tuple[_Partition, int]]:
    """Return a map from the id of each Slice in a partition to the partition, and to the position of the Slice in it."""
    found: dict[int, tuple[_Partition, int]] = {}
    for value in graph.values():
        if not isinstance(value.type, Tensor):
            continue
        by_axis: dict[int, list[tuple[int, int, Node]]] = {}
        for node, index in value.uses:
            if index or not isinstance(node.op, Slice):
                continue
            cuts = cuts_of(node.inputs)
            if cuts is None or len(cuts) != 1:
                continue
            size = value.dims[cuts[0].axis]
            if isinstance(size, int):
                stop = size if cuts[0].stop == INT64_MAX else cuts[0].stop
                by_axis.setdefault(cuts[0].axis, []).append((cuts[0].start, stop, node))
        for axis, row in by_axis.items():
            row.sort(key=lambda item: item[:2])
            bounds = [0, *(stop for _, stop, _ in row)]
            if len(row) > 1 and [start for start, _, _ in row] == bounds[:-1] and bounds[-1] == value.dims[axis]:
                partition = axis, row
                for position, (_, _, node) in enumerate(row):
                    found.setdefault(id(node), (partition, position))
    return found
