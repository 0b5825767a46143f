"""What one format says and the other has no place for: it travels along as text, is ignored by other readers, and is
restored on the way back.

In IR it stands in the model's ``rt_info`` under ``dovetail/onnx``; in ONNX in the metadata property ``dovetail.openvino``. Both
are JSON. Only what cannot be wrong about the graph is taken back: names of symbols, documentation, versions, metadata.
"""

from __future__ import annotations

import json
from typing import Any

from dovetail import symbolic
from dovetail.errors import DovetailError
from dovetail.formats.foreign import ForeignModel, ForeignValue
from dovetail.formats.openvino import rt_info
from dovetail.ir.graph import Model, Value
from dovetail.ir.state import PROPERTY as STATES
from dovetail.ir.types import Tensor, is_unnamed

PATH = ("dovetail", "onnx")
PROPERTY = "dovetail.openvino"


def encode_onnx(model: Model) -> str:
    """What IR has no place for in a model that speaks ONNX's words."""
    is_ir = model.format == "openvino"
    kept = model.metadata.get("onnx", {}) if model.format != "onnx" else model.metadata
    # A model that came through IR keeps there what its ONNX file said of itself.
    said = kept if is_ir else {}
    versions = {domain: version for domain, version in model.versions.items() if domain != "ir"}
    found = {
        "versions": versions,
        "ir_version": kept.get("ir_version"),
        "domain": kept.get("domain"),
        "model_version": kept.get("model_version"),
        "properties": {name: text for name, text in kept.get("metadata_props", {}).items() if name not in (PROPERTY, STATES)},
        "producer": said.get("producer") or list(model.producer),
        "doc": said.get("doc") or model.doc,
        "graph": said.get("graph") or model.graph.name,
        "graph_doc": said.get("graph_doc") or model.graph.doc,
        "inputs": [_described(value) for value in model.inputs],
        "outputs": [_described(value) for value in model.outputs],
    }
    return json.dumps({name: item for name, item in found.items() if item not in (None, "", {}, [], ["", ""])}, sort_keys=True)


def _described(value: Value) -> dict[str, Any]:
    shape = value.type.shape if isinstance(value.type, Tensor) else None
    symbols = {} if shape is None else {str(axis): str(size) for axis, size in enumerate(shape) if _is_named(size)}
    found: dict[str, Any] = {"name": value.name}
    if symbols:
        found["symbols"] = symbols
    if value.doc:
        found["doc"] = value.doc
    return found


def _is_named(size: Any) -> bool:
    return not isinstance(size, int) and not is_unnamed(size)


def restore_onnx(foreign: ForeignModel) -> None:
    """Give a model just read from IR back what travelled with it."""
    text = rt_info.get(foreign.metadata.get("rt_info", []), *PATH)
    kept = _parsed(text)
    if not kept:
        return
    graph = foreign.graph
    for items, values in ((kept.get("inputs"), graph.inputs), (kept.get("outputs"), graph.outputs)):
        if not isinstance(items, list) or len(items) != len(values):
            continue
        for item, value in zip(items, values, strict=True):
            if isinstance(item, dict):
                _restore(item, value)
    # An input's declared type is what its layer's port says too.
    for value in graph.inputs:
        if value.key in graph.values:
            graph.values[value.key].type = value.type
    foreign.metadata["onnx"] = {
        "metadata_props": _texts(kept.get("properties")),
        **{name: kept[name] for name in ("ir_version", "model_version") if isinstance(kept.get(name), int)},
        **{name: kept[name] for name in ("domain", "graph", "graph_doc") if isinstance(kept.get(name), str)},
        "producer": [str(part) for part in kept.get("producer", [])][:2],
        "doc": str(kept.get("doc", "")),
    }
    versions = kept.get("versions")
    if isinstance(versions, dict):
        foreign.versions.update({str(domain): int(version) for domain, version in versions.items() if isinstance(version, int)})


def _restore(item: dict[str, Any], value: ForeignValue) -> None:
    name, doc, symbols = item.get("name"), item.get("doc"), item.get("symbols")
    if isinstance(name, str) and name in value.names:
        value.names = (name, *(each for each in value.names if each != name))
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
                found = symbolic.parse(text)
            except DovetailError:
                continue
            name_ = symbolic.name_of(found)
            sizes[int(axis)] = found if name_ is None else symbolic.symbol(name_, low, high)
    value.type = Tensor(type.dtype, tuple(sizes))


def _parsed(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _texts(found: Any) -> dict[str, str]:
    return {str(name): text for name, text in found.items() if isinstance(text, str)} if isinstance(found, dict) else {}


def without_onnx_record(items: list[rt_info.Item]) -> list[rt_info.Item]:
    """The ``rt_info`` of a model less what this module put there."""
    return [item for item in items if rt_info.name_of(item) != PATH[0]]


def encode_openvino(model: Model) -> str | None:
    """What ONNX has no place for in a model that speaks IR's words; None where there is nothing."""
    info = without_onnx_record(model.metadata.get("rt_info", []))
    names = {value.name: list(value.names) for value in (*model.inputs, *model.outputs) if len(value.names) > 1}
    found = {"rt_info": info, "names": names, **{tag: model.metadata[tag] for tag in _SECTIONS if model.metadata.get(tag)}}
    kept = {name: item for name, item in found.items() if item}
    return json.dumps(kept, sort_keys=True) if kept else None


_SECTIONS = ("meta_data", "quantization_parameters")


def openvino_metadata_of(model: Model) -> dict[str, Any]:
    """What travelled with an ONNX model from IR: its metadata there, and the names of its inputs and outputs."""
    kept = _parsed(model.metadata.get("metadata_props", {}).get(PROPERTY))
    found: dict[str, Any] = {}
    for tag in ("rt_info", *_SECTIONS):
        if isinstance(kept.get(tag), list) and _are_items(kept[tag]):
            found[tag] = kept[tag]
    names = kept.get("names")
    if isinstance(names, dict):
        found["names"] = {name: tuple(map(str, each)) for name, each in names.items() if isinstance(each, list)}
    return found


def _are_items(items: Any, depth: int = 0) -> bool:
    """Whether text from a file has the form of rt_info, so that nothing else reaches the writer."""
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
