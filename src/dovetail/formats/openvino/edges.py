"""Read the edges of an IR graph, and sort its layers topologically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.formats.foreign import topological_order
from dovetail.formats.openvino import xml_attributes
from dovetail.formats.openvino.diagnostics import Checks, Layer

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def read_edges(checks: Checks, section: Element | None, layers: dict[str, Layer]) -> dict[tuple[str, int], str]:
    """Return a map from each input port, (layer id, port id), to the key of the value that an edge leads to the port."""
    sources: dict[tuple[str, int], str] = {}
    names = ("from-layer", "from-port", "to-layer", "to-port")
    known_names = frozenset(names)
    for edge in () if section is None else section:
        if edge.tag != "edge":
            checks.ignore_element("edges", edge)
            continue
        checks.ignore_attributes(edge, known_names)
        ends = [edge.get(name, "") for name in names]
        if None in map(xml_attributes.NUMBER.fullmatch, ends):
            checks.add_fault("ir.edge", f"{_label(ends)} must have four integers ({', '.join(names)})")
            continue
        _read_edge(checks, list(map(int, ends)), layers, sources)
    for layer in layers.values():
        for number in layer.inputs:
            if (layer.id, number) not in sources:
                checks.add_fault("ir.edge", f"the input port {number} must have an edge", layer)
    return sources


def _label(ends: Sequence[object]) -> str:
    return f"the edge {ends[0]}:{ends[1]} -> {ends[2]}:{ends[3]}"


def _read_edge(checks: Checks, ends: list[int], layers: dict[str, Layer], sources: dict[tuple[str, int], str]) -> None:
    start, end = layers.get(str(ends[0])), layers.get(str(ends[2]))
    if start is None or end is None:
        missing = ends[0] if start is None else ends[2]
        checks.add_fault("ir.edge", f"{_label(ends)}: the layer {missing} must exist", end if start is None else start)
    elif ends[1] not in start.outputs:
        checks.add_fault("ir.edge", f"{_label(ends)}: layer {start.id} must have an output port {ends[1]}", end)
    elif ends[3] not in end.inputs:
        checks.add_fault("ir.edge", f"{_label(ends)}: layer {end.id} must have an input port {ends[3]}", end)
    elif (end.id, ends[3]) in sources:
        checks.add_fault("ir.repeated", f"{_label(ends)}: an input port must have one edge, got two", end)
    else:
        sources[end.id, ends[3]] = f"{start.id}:{ends[1]}"


def sort(checks: Checks, layers: dict[str, Layer], sources: dict[tuple[str, int], str]) -> list[Layer]:
    """Sort the layers topologically; among ready layers, the first in the file comes first."""
    order = list(layers.values())
    position = {layer.id: index for index, layer in enumerate(order)}
    reads: list[set[int]] = [set() for _ in order]
    for (identity, _), key in sources.items():
        reads[position[identity]].add(position[key.partition(":")[0]])
    numbers = topological_order(reads)
    if numbers == list(range(len(order))):
        return order
    ordered = [order[index] for index in numbers]
    if len(ordered) < len(order):
        waiting = [order[index] for index in sorted({*range(len(order))}.difference(numbers))]
        names = ", ".join(repr(layer.name) for layer in waiting[:5])
        checks.add_fault(
            "graph.cycle", f"the graph must have no cycle, got {len(waiting)} layers in or behind cycles: {names}", waiting[0]
        )
        ordered.extend(waiting)
    # Parameters and Results keep the order of the file, the order of OpenVINO's model.inputs and model.outputs.
    results = [layer for layer in order if layer.kind == "Result"]
    parameters = [layer for layer in order if layer.kind == "Parameter"]
    return parameters + [layer for layer in ordered if layer.kind not in ("Result", "Parameter")] + results
