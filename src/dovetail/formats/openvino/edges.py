"""What reads what in a graph of an IR file, and an order in which every layer comes after what it reads."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from dovetail.formats.openvino import xml_attributes
from dovetail.formats.openvino.diagnostics import Checks, Layer

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def read_edges(checks: Checks, section: Element | None, layers: dict[str, Layer]) -> dict[tuple[str, int], str]:
    """What each input port reads: (layer, port) -> key."""
    sources: dict[tuple[str, int], str] = {}
    wanted = ("from-layer", "from-port", "to-layer", "to-port")
    for edge in () if section is None else section:
        if edge.tag != "edge":
            checks.ignore_element("edges", edge)
            continue
        checks.ignore_attributes(edge, wanted)
        ends = [edge.get(name, "") for name in wanted]
        text = f"the edge {ends[0]}:{ends[1]} -> {ends[2]}:{ends[3]}"
        if not all(xml_attributes.NUMBER.fullmatch(end) for end in ends):
            checks.fault("ir.edge", f"{text} needs four whole numbers ({', '.join(wanted)})")
            continue
        _edge(checks, [int(end) for end in ends], text, layers, sources)
    for layer in layers.values():
        for number in layer.inputs:
            if (layer.id, number) not in sources:
                checks.fault("ir.port-unconnected", f"no edge leads to the input port {number}", layer)
    return sources


def _edge(checks: Checks, ends: list[int], text: str, layers: dict[str, Layer], sources: dict[tuple[str, int], str]) -> None:
    start, end = layers.get(str(ends[0])), layers.get(str(ends[2]))
    if start is None or end is None:
        gone = ends[0] if start is None else ends[2]
        checks.fault("ir.edge-dangling", f"{text}: there is no layer {gone}", end if start is None else start)
    elif ends[1] not in start.outputs:
        checks.fault("ir.edge-dangling", f"{text}: layer {start.id} has no output port {ends[1]}", end)
    elif ends[3] not in end.inputs:
        checks.fault("ir.edge-dangling", f"{text}: layer {end.id} has no input port {ends[3]}", end)
    elif (end.id, ends[3]) in sources:
        checks.fault("ir.edge-repeated", f"{text}: another edge leads to this port already", end)
    else:
        sources[end.id, ends[3]] = f"{start.id}:{ends[1]}"


def sort(checks: Checks, layers: dict[str, Layer], sources: dict[tuple[str, int], str]) -> list[Layer]:
    """The layers in an order in which each comes after what it reads, as near to the file's as that allows."""
    order = list(layers.values())
    position = {layer.id: index for index, layer in enumerate(order)}
    needs = [0] * len(order)
    users: list[list[int]] = [[] for _ in order]
    is_sorted = True
    for (identity, _), key in sources.items():
        start, end = position[key.partition(":")[0]], position[identity]
        is_sorted = is_sorted and start < end
        needs[end] += 1
        users[start].append(end)
    if is_sorted:
        return order
    ready = [index for index, count in enumerate(needs) if not count]
    found: list[Layer] = []
    while ready:
        index = heapq.heappop(ready)
        found.append(order[index])
        for user in users[index]:
            needs[user] -= 1
            if not needs[user]:
                heapq.heappush(ready, user)
    if len(found) < len(order):
        stuck = [order[index] for index, count in enumerate(needs) if count]
        names = ", ".join(repr(layer.name) for layer in stuck[:5])
        checks.fault("ir.cycle", f"{len(stuck)} layers wait for each other in a cycle: {names}", stuck[0])
        found.extend(stuck)
    # Inputs and outputs keep the file's order, which is that of OpenVINO's model.inputs and model.outputs.
    results = [layer for layer in order if layer.kind == "Result"]
    parameters = [layer for layer in order if layer.kind == "Parameter"]
    return parameters + [layer for layer in found if layer.kind not in ("Result", "Parameter")] + results
