"""Round-trip metadata: metadata that the target format lacks is stored as a JSON record, and restored on the way back.

In IR the record is in the model's ``rt_info`` under ``dovetail/onnx``; in ONNX it is the metadata property
``dovetail.openvino``. Other readers ignore the records. Only information that cannot contradict the graph is restored: names of
symbols, documentation, versions, metadata.
"""

from __future__ import annotations

import json
from typing import Any

from dovetail.errors import DovetailError
from dovetail.formats.foreign import ForeignModel, ForeignValue
from dovetail.formats.openvino import rt_info
from dovetail.ir import symbolic
from dovetail.ir.graph import Model, Value
from dovetail.ir.state import PROPERTY as STATES
from dovetail.ir.types import Size, Tensor, is_unnamed

PATH = ("dovetail", "onnx")
PROPERTY = "dovetail.openvino"


def encode_onnx(model: Model) -> str:
    """Encode the ONNX metadata of a model for which IR has no field, as JSON."""
    is_ir = model.format == "openvino"
    onnx_metadata = model.metadata.get("onnx", {}) if model.format != "onnx" else model.metadata
    # A model that was converted from ONNX to IR has the metadata of its ONNX file in the record.
    earlier = onnx_metadata if is_ir else {}
    versions = {domain: version for domain, version in model.versions.items() if domain != "ir"}
    record = {
        "versions": versions,
        "ir_version": onnx_metadata.get("ir_version"),
        "domain": onnx_metadata.get("domain"),
        "model_version": onnx_metadata.get("model_version"),
        "properties": {
            name: text for name, text in onnx_metadata.get("metadata_props", {}).items() if name not in (PROPERTY, STATES)
        },
        "producer": earlier.get("producer") or list(model.producer),
        "doc": earlier.get("doc") or model.doc,
        "graph": earlier.get("graph") or model.graph.name,
        "graph_doc": earlier.get("graph_doc") or model.graph.doc,
        "inputs": [_describe(value) for value in model.inputs],
        "outputs": [_describe(value) for value in model.outputs],
    }
    return json.dumps({name: item for name, item in record.items() if item not in (None, "", {}, [], ["", ""])}, sort_keys=True)


def _describe(value: Value) -> dict[str, Any]:
    shape = value.type.shape if isinstance(value.type, Tensor) else None
    symbols = {} if shape is None else {str(axis): str(size) for axis, size in enumerate(shape) if _is_named(size)}
    record: dict[str, Any] = {"name": value.name}
    if symbols:
        record["symbols"] = symbols
    if value.doc:
        record["doc"] = value.doc
    return record


def _is_named(size: Size) -> bool:
    return not isinstance(size, int) and not is_unnamed(size)


def restore_onnx(foreign: ForeignModel) -> None:
    """Restore the ONNX metadata of a foreign model from the record in its ``rt_info``, if there is one."""
    text = rt_info.get(foreign.metadata.get("rt_info", []), *PATH)
    record = _parse_record(text)
    if not record:
        return
    graph = foreign.graph
    for items, values in ((record.get("inputs"), graph.inputs), (record.get("outputs"), graph.outputs)):
        if not isinstance(items, list) or len(items) != len(values):
            continue
        for item, value in zip(items, values, strict=True):
            if isinstance(item, dict):
                _restore(item, value)
    # The declared type of an input is stored a second time, as the type of its layer's port.
    for value in graph.inputs:
        if value.key in graph.values:
            graph.values[value.key].type = value.type
    foreign.metadata["onnx"] = {
        "metadata_props": _string_items(record.get("properties")),
        **{name: record[name] for name in ("ir_version", "model_version") if isinstance(record.get(name), int)},
        **{name: record[name] for name in ("domain", "graph", "graph_doc") if isinstance(record.get(name), str)},
        "producer": [str(part) for part in record.get("producer", [])][:2],
        "doc": str(record.get("doc", "")),
    }
    versions = record.get("versions")
    if isinstance(versions, dict):
        foreign.versions.update({str(domain): int(version) for domain, version in versions.items() if isinstance(version, int)})


def _restore(item: dict[str, Any], value: ForeignValue) -> None:
    name, doc, symbols = item.get("name"), item.get("doc"), item.get("symbols")
    if isinstance(name, str) and name in value.names:
        value.names = (name, *(other_name for other_name in value.names if other_name != name))
    if isinstance(doc, str):
        value.doc = doc
    type = value.type
    if not isinstance(symbols, dict) or not isinstance(type, Tensor) or type.shape is None:
        return
    sizes = list(type.shape)
    for axis, text in symbols.items():
        if isinstance(text, str) and axis.isdigit() and int(axis) < len(sizes) and is_unnamed(sizes[int(axis)]):
            low, high = symbolic.bounds(sizes[int(axis)])
            try:
                size = symbolic.parse(text)
            except DovetailError:
                continue
            name_ = symbolic.name_of(size)
            sizes[int(axis)] = size if name_ is None else symbolic.symbol(name_, low, high)
    value.type = Tensor(type.dtype, tuple(sizes))


def _parse_record(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _string_items(entries: object) -> dict[str, str]:
    return {str(name): text for name, text in entries.items() if isinstance(text, str)} if isinstance(entries, dict) else {}


def without_onnx_record(items: list[rt_info.Item]) -> list[rt_info.Item]:
    """Return the ``rt_info`` of a model without the record of ONNX metadata."""
    return [item for item in items if rt_info.name_of(item) != PATH[0]]


def encode_openvino(model: Model) -> str | None:
    """Encode the IR metadata of a model for which ONNX has no field, as JSON; None if there is none."""
    info = without_onnx_record(model.metadata.get("rt_info", []))
    names = {value.name: list(value.names) for value in (*model.inputs, *model.outputs) if len(value.names) > 1}
    ports = {
        side: {value.name: port for value in values if (port := _port_record(value)) is not None}
        for side, values in (("inputs", model.inputs), ("outputs", model.outputs))
    }
    ports = {side: records for side, records in ports.items() if records}
    record = {
        "rt_info": info,
        "names": names,
        "ports": ports,
        **{tag: model.metadata[tag] for tag in _SECTIONS if model.metadata.get(tag)},
    }
    non_empty = {name: item for name, item in record.items() if item}
    return json.dumps(non_empty, sort_keys=True) if non_empty else None


_SECTIONS = ("meta_data", "quantization_parameters")
_PORT_KEYS = ("rt_info", "layer_rt_info", "result_rt_info", "result_port_rt_info")
"""The keys of port metadata, such as layouts, of inputs and outputs in IR."""


def _port_record(value: Value) -> dict[str, Any] | None:
    """Return the port metadata of an input or output, with its rank; None if there is no such metadata.

    The rank is stored because a layout is valid only for one rank.
    """
    items = {key: value.metadata[key] for key in _PORT_KEYS if value.metadata.get(key)}
    rank = len(value.type.shape) if isinstance(value.type, Tensor) and value.type.shape is not None else None
    return {**items, "rank": rank} if items else None


def restore_ports(foreign: ForeignModel) -> None:
    """Move port metadata from the metadata of a model to those inputs and outputs that have the recorded rank."""
    ports = foreign.metadata.pop("ports", {})
    for side, values in (("inputs", foreign.graph.inputs), ("outputs", foreign.graph.outputs)):
        records = ports.get(side)
        for value in values if isinstance(records, dict) else ():
            record = records.get(value.names[0] if value.names else value.key)
            rank = len(value.type.shape) if isinstance(value.type, Tensor) and value.type.shape is not None else None
            if not isinstance(record, dict) or record.get("rank") != rank:
                continue
            items = {key: record[key] for key in _PORT_KEYS if _are_items(record.get(key))}
            value.metadata.update(items)
            if value.key in foreign.graph.values and "rt_info" in items:
                foreign.graph.values[value.key].metadata["rt_info"] = items["rt_info"]


def openvino_metadata_of(model: Model) -> dict[str, Any]:
    """Return the IR metadata in the record of an ONNX model, including all names of its inputs and outputs."""
    record = _parse_record(model.metadata.get("metadata_props", {}).get(PROPERTY))
    metadata: dict[str, Any] = {}
    for tag in ("rt_info", *_SECTIONS):
        if isinstance(record.get(tag), list) and _are_items(record[tag]):
            metadata[tag] = record[tag]
    if isinstance(record.get("ports"), dict):
        metadata["ports"] = record["ports"]
    names = record.get("names")
    if isinstance(names, dict):
        metadata["names"] = {
            name: tuple(map(str, value_names)) for name, value_names in names.items() if isinstance(value_names, list)
        }
    return metadata


def _are_items(items: object, depth: int = 0) -> bool:
    """Return whether a value that was parsed from untrusted JSON of a file is a valid list of ``rt_info`` items."""
    if not isinstance(items, list) or depth > rt_info.DEPTH:
        return False
    return all(
        isinstance(item, dict)
        and set(item) <= {"tag", "attributes", "children", "text"}
        and isinstance(item.get("tag"), str)
        and isinstance(item.get("attributes"), dict)
        and all(isinstance(text, str) for text in item["attributes"].values())
        and _are_items(item.get("children"), depth + 1)
        for item in items
    )
