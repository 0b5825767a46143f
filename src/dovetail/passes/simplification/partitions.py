"""Pass ``slices_to_split``: slices that partition a tensor along one axis become the outputs of one Split."""

from __future__ import annotations

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import INT64_MAX, Tensor
from dovetail.laws.rules.cuts import cuts_of
from dovetail.ops.tensor.slice import Slice
from dovetail.passes.simplification.rules import Target


def split_partitions(graph: Graph, target: Target) -> int:
    """Replace slices that cover an axis of static size without overlap by one Split. Returns the number of replaced nodes."""
    groups = _partitions(graph)
    if not groups:
        return 0
    written: dict[int, list[Value]] = {}

    def rule(b: Builder, node: Node) -> Value | None:
        group = groups.get(id(node))
        if group is None:
            return None
        axis, row = group
        key = id(row[0][2])
        if key not in written:
            lengths = [stop - start for start, stop, _ in row]
            written[key] = b.Split(node.input(0), lengths, axis=axis, outputs=len(row))
        target.log(node)
        return written[key][[id(each) for _, _, each in row].index(id(node))]

    return rewrite(graph, rule)


def _partitions(graph: Graph) -> dict[int, tuple[int, list[tuple[int, int, Node]]]]:
    """Return, by the id of a Slice, its axis and the (start, stop, node) of all slices of its partition in order."""
    found: dict[int, tuple[int, list[tuple[int, int, Node]]]] = {}
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
                found.update({id(node): (axis, row) for _, _, node in row if id(node) not in found})
    return found
