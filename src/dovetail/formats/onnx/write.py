"""Export a model to an ONNX file, with metadata and checks."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any, BinaryIO

import numpy as np

from dovetail.errors import FormatError
from dovetail.formats import roundtrip_metadata
from dovetail.formats.fixpoint import Snapshot, find_fixpoint
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignValue
from dovetail.formats.onnx import codec
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.onnx.opset_conversion import LEARNING, convert_opset
from dovetail.formats.onnx.read import import_onnx
from dovetail.formats.onnx.schemas import schema
from dovetail.formats.onnx.writer import FLOAT, kind_of
from dovetail.formats.readback import check_readback, log_decompositions
from dovetail.ir import symbolic
from dovetail.ir.graph import Model
from dovetail.ir.state import PROPERTY, as_text
from dovetail.ir.types import is_unnamed, sizes_in
from dovetail.storage.deviations import Deviations


def to_foreign(model: Model, opset: int | None = None) -> ForeignModel:
    """Export ``model`` to ONNX as a foreign model with the metadata of the file; see :func:`convert_opset`."""
    foreign = convert_opset(model, opset)
    _describe(model, foreign)
    return foreign


def _describe(model: Model, foreign: ForeignModel) -> None:
    if model.format == "onnx":
        foreign.metadata = dict(model.metadata)
        if model.states:
            foreign.metadata["metadata_props"] = {**foreign.metadata.get("metadata_props", {}), PROPERTY: as_text(model)}
        return
    onnx_metadata: dict[str, Any] = dict(model.metadata.get("onnx", {}))
    foreign.metadata = {name: onnx_metadata[name] for name in ("ir_version", "domain", "model_version") if name in onnx_metadata}
    maker, version = [*onnx_metadata.get("producer", ()), "", ""][:2]
    foreign.producer = (maker, version) if maker or version else ("dovetail", "")
    foreign.doc = onnx_metadata.get("doc", model.doc)
    foreign.graph.name = onnx_metadata.get("graph", foreign.graph.name) or "graph"
    foreign.graph.doc = onnx_metadata.get("graph_doc", foreign.graph.doc)
    properties = dict(onnx_metadata.get("metadata_props", {}))
    record = roundtrip_metadata.encode_openvino(model)
    if record is not None:
        properties[roundtrip_metadata.PROPERTY] = record
    if model.states:
        properties[PROPERTY] = as_text(model)
    if properties:
        foreign.metadata["metadata_props"] = properties


def _import_again(snapshot: Snapshot) -> Model:
    deviations = Deviations()
    model = import_onnx(codec.read_snapshot(snapshot), deviations)
    model.warnings += deviations.warnings()
    return model


def reload(model: Model, opset: int | None = None) -> Model:
    """Return the model that results from saving and loading ``model`` in memory, with shared weights.

    Raises the errors of to_foreign.
    """
    return _import_again(codec.snapshot_of(to_foreign(model, opset)))


def save(
    model: Model,
    path: str | PathLike[str] | BinaryIO | None,
    *,
    opset: int | None = None,
    external: bool | str | None = None,
    weights: str | PathLike[str] | None = None,
    threshold: int = 1024,
    types: bool = True,
) -> bytes | None:
    """Write ``model`` to an ONNX file; return the bytes if ``path`` is None.

    ``external`` and ``threshold``: see :func:`codec.write`. ``weights`` is the path of the external file, in the folder of
    ``path``. ``types=False``: the file declares only types that inference cannot compute (inputs, outputs, unknown operators),
    and omits attributes with the default value. Raises UnsupportedError [write.mismatch] like :func:`check_readback`, before any
    file is written.
    """
    if weights is not None:
        external = _location_of(weights, path, external)
    foreign = first = to_foreign(model, opset)
    if types:
        foreign, read_back = find_fixpoint(first, codec.snapshot_of, _import_again, to_foreign)
        check_readback(model, foreign, ONNX, read_back)
        if foreign is not first:
            check_readback(model, first, ONNX)
    else:
        check_readback(model, foreign, ONNX)
        foreign, _ = find_fixpoint(_shorten(foreign), codec.snapshot_of, _import_again, lambda new: _shorten(to_foreign(new)))
    data = codec.write(foreign, path, external=external, threshold=threshold)
    log_decompositions(first, path)
    return data


def _location_of(weights: str | PathLike[str], path: object, external: bool | str | None) -> str:
    if not isinstance(path, str | PathLike) or external is not None:
        raise FormatError("argument.conflict", "weights needs a path as target, and must not be combined with external")
    return os.path.relpath(weights, os.path.dirname(os.fspath(path)) or os.curdir).replace(os.sep, "/")


def _shorten(foreign: ForeignModel) -> ForeignModel:
    _drop_types(foreign.graph)
    _drop_defaults(foreign.graph)
    return foreign


def _drop_defaults(graph: ForeignGraph) -> None:
    """Remove attributes whose value is the default of the operator, also in subgraphs."""
    for node in graph.nodes:
        for attribute in node.attributes.values():
            if isinstance(attribute, ForeignGraph):
                _drop_defaults(attribute)
        definition = schema(node.domain, node.kind, node.version)
        if definition is not None:
            defaults = definition.defaults
            node.attributes = {
                name: value for name, value in node.attributes.items() if not _is_default(value, defaults.get(name))
            }


def _is_default(value: Any, default: int | float | str | None) -> bool:
    if isinstance(default, float):
        # Attributes are float32 and compared by bits, because -0.0 differs from 0.0.
        return kind_of(value) == FLOAT and np.float32(value).tobytes() == np.float32(default).tobytes()
    return default is not None and kind_of(value) == kind_of(default) and bool(value == default)


def _drop_types(graph: ForeignGraph, outer: frozenset[str] = frozenset()) -> None:
    """Remove the declarations of types that inference can compute, also in subgraphs.

    Declarations of outputs of unknown operators and declarations with new symbols stay. ``outer`` holds the names of the symbols
    of the enclosing graphs.
    """
    known = {*outer, *(name for value in graph.inputs for name in _symbol_names(value))}
    unknown = {key for node in graph.nodes if node.domain not in ("", LEARNING) for key in node.outputs}
    ports = {value.key for value in (*graph.inputs, *graph.outputs)}
    kept = {}
    for key, value in graph.values.items():
        names = _symbol_names(value)
        if key in unknown or not names <= known or (key not in ports and value.metadata.get("metadata_props")):
            kept[key] = value
            known |= names
    graph.values = kept
    for node in graph.nodes:
        for attribute in node.attributes.values():
            if isinstance(attribute, ForeignGraph):
                _drop_types(attribute, frozenset(known))


def _symbol_names(value: ForeignValue) -> set[str]:
    """Return the names of the symbols in a declared type, except unnamed symbols."""
    sizes = [] if value.type is None else [size for size in sizes_in(value.type) if not isinstance(size, int)]
    return {str(symbol) for size in sizes for symbol in symbolic.symbols(size) if not is_unnamed(symbol)}
