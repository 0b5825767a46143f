"""Read the port maps of an IR layer with subgraphs, which map input ports to Parameters and Results to output ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.formats.foreign import ForeignGraph, ForeignValue
from dovetail.formats.openvino.diagnostics import Checks, Layer

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAP_NUMBERS = ("external_port_id", "internal_layer_id", "axis", "start", "end", "stride", "part_size")
PURPOSES = ("current_iteration", "execution_condition")


def read_port_map(checks: Checks, element: Element, layer: Layer, body: ForeignGraph) -> list[dict[str, str]]:
    """Return the entries of a port map.

    In each entry ``port`` is "input" or "output". External port ids are renumbered: inputs from 0 on, then outputs.
    """
    checks.refuse_attributes(element, frozenset(), layer)
    outer = {"input": list(layer.inputs), "output": list(layer.outputs)}
    inner = {"input": _layer_ids(body.inputs), "output": _layer_ids(body.outputs)}
    entries = []
    for child in element:
        if child.tag not in outer:
            checks.add_unsupported_error("ir.unknown", f"<{element.tag}> must not have the unknown element <{child.tag}>", layer)
            continue
        checks.refuse_attributes(child, frozenset((*MAP_NUMBERS, "purpose")), layer)
        entry = {"port": child.tag, **child.attrib}
        if not _is_entry(checks, entry, layer):
            continue
        number = int(entry["external_port_id"])
        if number != -1 and number not in outer[child.tag]:
            checks.add_fault("ir.edge", f"<{element.tag}>: the layer must have an {child.tag} port {number}", layer)
            continue
        if entry["internal_layer_id"] not in inner[child.tag]:
            message = f"layer {entry['internal_layer_id']} must be an {child.tag} of the body"
            checks.add_fault("ir.edge", f"<{element.tag}>: {message}", layer)
            continue
        if number != -1:
            index = outer[child.tag].index(number)
            entry["external_port_id"] = str(index if child.tag == "input" else index + len(outer["input"]))
        entries.append(entry)
    return entries


def _is_entry(checks: Checks, entry: dict[str, str], layer: Layer) -> bool:
    missing = [name for name in MAP_NUMBERS[:2] if name not in entry]
    if missing:
        checks.add_fault("ir.edge", f"an entry of a port map must have {', '.join(missing)}", layer)
    if entry.get("purpose", PURPOSES[0]) not in PURPOSES:
        checks.add_unsupported_error("ir.edge", f"purpose must be one of {', '.join(PURPOSES)}, got {entry['purpose']!r}", layer)
    wrong = [name for name in MAP_NUMBERS if name in entry and not checks.is_number(entry[name], name, layer, -(2**63))]
    return not missing and not wrong


def read_back_edges(checks: Checks, element: Element, layer: Layer, body: ForeignGraph) -> list[dict[str, str]]:
    checks.refuse_attributes(element, frozenset(), layer)
    starts, ends = _layer_ids(body.outputs), _layer_ids(body.inputs)
    edges: list[dict[str, str]] = []
    for child in element:
        checks.refuse_attributes(child, frozenset(("from-layer", "to-layer", "from-port", "to-port")), layer)
        start, end = child.get("from-layer"), child.get("to-layer")
        if child.tag != "edge" or start is None or end is None or start not in starts or end not in ends:
            checks.add_fault(
                "ir.edge",
                f"the back edge {start} -> {end} must lead from a Result to a Parameter of the body",
                layer,
            )
        elif any(end == edge["to-layer"] for edge in edges):
            checks.add_fault("ir.edge", f"layer {end} must have one back edge, got two", layer)
        else:
            edges.append({"from-layer": start, "to-layer": end})
    return edges


def _layer_ids(values: list[ForeignValue]) -> set[str]:
    return {value.metadata["layer"] for value in values}
