"""Read ONNX files into ForeignModels, and write ForeignModels to ONNX files. Source: onnx.proto, onnx/docs/IR.md.

The codec knows no operators. ``node.version`` is the version of the operator at the opset that the model or function imports.
Calls of model-local functions are inlined. Fields without a counterpart in ForeignModel are preserved in ``metadata`` and
written back:

- model: ``ir_version``, ``domain``, ``model_version``, ``metadata_props``, ``configuration``, ``training_info``,
  ``unknown_fields`` (see :mod:`dovetail.formats.onnx.unknown_fields`); only the import reads ``undeclared_domains``;
- graph: ``metadata_props``, ``quantization_annotation``, ``notes`` (of initializers), ``sparse`` (sparse initializers),
  ``defaults`` (initializers that are inputs too, declared in ``values``), ``overridable`` (such initializers before
  IR version 4 and in subgraphs) and ``inputs`` (all names in order);
- node: ``metadata_props``, ``device_configurations``, ``attribute_docs``, ``notes`` and ``sparse`` (by attribute, or
  ``attribute[index]``), ``empty`` (the type of an empty list);
- value: ``metadata_props``, ``denotations``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dovetail.errors import DovetailError, FormatError, UnsupportedError, raise_all
from dovetail.formats.fixpoint import Snapshot
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignTensor
from dovetail.formats.onnx.functions import ModelFunction, inline, key_of, read_function, walk
from dovetail.formats.onnx.messages import (
    message_classes,
    newest_ir_version,
    parse_message,
    present,
    properties,
    put_properties,
    refuse_rest,
)
from dovetail.formats.onnx.names import check_names, rename_repeated_nodes, subgraphs
from dovetail.formats.onnx.protobuf_scan import Elements, Tickets, join_elements, split_elements
from dovetail.formats.onnx.reader import Call, Faults, GraphReader, is_typed, plain_domain
from dovetail.formats.onnx.schemas import ir_version_of, newest_opset
from dovetail.formats.onnx.tensors import Elsewhere, ExternalData, ExternalReferences, ReferenceReader, TensorReader, byte_size
from dovetail.formats.onnx.unknown_fields import put_back, take_unknown_fields
from dovetail.formats.onnx.writer import GraphWriter
from dovetail.storage import atomic_write, file_pair, files
from dovetail.storage.deviations import Deviations
from dovetail.storage.mapped_files import map_of
from dovetail.storage.safetensors_file import SafetensorsFile
from dovetail.storage.weights_file import copy_array

if TYPE_CHECKING:
    from onnx import ModelProto

# protobuf messages are limited to less than 2 GiB.
PROTO_LIMIT = 2**31 - 1
OUT_OF_MEMORY = "Arena alloc failed"
"""The message of protobuf's DecodeError when memory is exhausted; that error is not a fault of the file."""
# Models whose tensors have more bytes in total get a separate weights file by default.
INLINE_LIMIT = 1_900_000_000
# Tensors of at least this many bytes are stored by reference in snapshots.
_BY_REFERENCE = 1024


def read(
    source: files.StrPath | bytes | BinaryIO | ModelProto,
    *,
    file: files.StrPath | None = None,
    allow_symlinks_within: files.StrPath | None = None,
    deviations: Deviations | None = None,
) -> ForeignModel:
    """Read the model in a file, in bytes, or in a ModelProto.

    ``file`` is the path for messages and for external data if ``source`` is not a path. ``allow_symlinks_within``: see
    :func:`dovetail.storage.files.open_beside`. ``deviations`` collects departures from the format that all readers which accept
    the file interpret alike; without ``deviations`` each departure is an error. Tensors are read-only; large external data is
    memory-mapped. Raises FormatError or UnsupportedError, with every fault in ``diagnostics``.
    """
    path = _path_of(source, file)

    def read_once(source: object, pair: file_pair.Pair, deviations: Deviations | None) -> ForeignModel:
        proto, elements = _parse(source)
        pair.record = next((entry.value for entry in proto.metadata_props if entry.key == file_pair.PROPERTY), None)

        def attempt(proto: ModelProto, result: Deviations | None) -> ForeignModel:
            return _read_model(proto, TensorReader(path, allow_symlinks_within, elements, pair), Faults(path, result))

        return attempt(proto, None) if deviations is None else _read_tolerant(proto, attempt, path, deviations)

    try:
        if isinstance(source, (str, os.PathLike)):
            return file_pair.read(source, PROTO_LIMIT, read_once, deviations)
        return read_once(source, file_pair.Pair(path), deviations)
    except DovetailError as error:
        raise error.at(file=path) from None


def _read_tolerant(
    proto: ModelProto, attempt: Callable[[ModelProto, Deviations], ForeignModel], path: str | None, deviations: Deviations
) -> ForeignModel:
    """Read the model. If unknown fields or comments that are not UTF-8 cause errors, remove these and read the model again."""
    new_deviations = Deviations()
    try:
        model = attempt(proto, new_deviations)
    except DovetailError as error:
        if not any(item.code in ("proto.unknown", "proto.text") for item in error.diagnostics):
            deviations.extend(new_deviations)
            raise
        copy = type(proto)()
        copy.CopyFrom(proto)
        new_deviations = Deviations()
        unknown = take_unknown_fields(copy, lambda fault, index: new_deviations.add(fault.at(node=index, file=path)))
        try:
            model = attempt(copy, new_deviations)
        finally:
            deviations.extend(new_deviations)
        if unknown:
            model.metadata["unknown_fields"] = unknown
        return model
    deviations.extend(new_deviations)
    return model


def write(
    model: ForeignModel,
    target: files.StrPath | BinaryIO | None = None,
    *,
    external: bool | str | None = None,
    threshold: int = 1024,
) -> bytes | None:
    """Write ``model`` to a path or a stream; return the bytes if ``target`` is None. Equal models give equal bytes.

    ``external``: write tensors of at least ``threshold`` bytes to one separate file. A string names that file; True selects the
    name ``<name of target>.data``; None selects a separate file only for models of more than INLINE_LIMIT bytes. All files are
    replaced, or none. Raises FormatError [graph.repeated], [graph.dangling], [graph.order], [graph.cycle], [path.foreign], and
    the errors of :func:`dovetail.storage.atomic_write.replace_files`; UnsupportedError [opset.version], [opset.missing],
    [dtype.unknown], [attribute.value], [attribute.range], [data.external], [file.size].
    """
    if external is None:
        external = _total_bytes(model.graph) > INLINE_LIMIT
    path = os.fspath(target) if isinstance(target, (str, os.PathLike)) else None
    if external:
        side = _side_file(path, external, threshold)
        proto = _model_proto(model, side)
        if side.file.size and path is not None:

            def model_of(digest: str) -> bytes:
                # The offsets of a safetensors file are known only after all tensors are stored.
                final = _model_proto(model, side) if isinstance(side.file, SafetensorsFile) else proto
                put_properties(final.metadata_props, {file_pair.PROPERTY: digest})
                return _serialize(final)

            target_path = os.path.join(os.path.dirname(path), side.location)
            file_pair.write(path, target_path, side.file, model_of, is_named=isinstance(external, str))
            return None
        pieces: list[Any] = [_serialize(proto)]
    else:
        tickets = Tickets()
        message = _serialize(_model_proto(model, tickets))
        pieces = join_elements(message, tickets.elements)
        _check_size(sum(map(len, pieces)))
    if path is None:
        if target is None:
            return b"".join(pieces)
        stream = _stream(target)
        for piece in pieces:
            stream.write(piece)
        return None
    with atomic_write.replace_file(path) as stream:
        for piece in pieces:
            if isinstance(piece, np.ndarray):
                copy_array(piece, stream)
            else:
                stream.write(piece)
    return None


def snapshot_of(model: ForeignModel) -> Snapshot:
    """Serialize ``model``; tensors of at least _BY_REFERENCE bytes are stored by reference. Raises the errors of write."""
    weights = ExternalReferences(_BY_REFERENCE)
    return Snapshot(_serialize(_model_proto(model, weights)), weights)


def read_snapshot(snapshot: Snapshot) -> ForeignModel:
    """Read the model of a snapshot. Raises the errors of read."""
    proto, elements = _parse(snapshot.data)
    return _read_tolerant(
        proto,
        lambda proto, result: _read_model(proto, ReferenceReader(elements, snapshot.weights), Faults(None, result)),
        None,
        Deviations(),
    )


def _path_of(source: object, file: files.StrPath | None) -> str | None:
    if file is not None:
        return os.fspath(file)
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and os.path.isfile(name) else None


def _parse(source: object) -> tuple[ModelProto, Elements]:
    from google.protobuf.message import DecodeError

    if getattr(getattr(source, "DESCRIPTOR", None), "full_name", "") == "onnx.ModelProto":
        return source, {}  # type: ignore[return-value]
    data = _bytes_of(source)
    if len(data) > PROTO_LIMIT:
        raise FormatError("file.size", f"a protobuf message must have less than 2 GiB, got {len(data)} bytes")
    parts = split_elements(data)
    try:
        proto = message_classes().ModelProto()
        proto.ParseFromString(parts.message)
        return proto, parts.elements
    except (DecodeError, RuntimeError) as error:
        if OUT_OF_MEMORY in str(error):
            raise MemoryError(f"protobuf: {OUT_OF_MEMORY}") from None
        raise FormatError("proto.parse", f"the file must be an ONNX model: {error}") from None


def _bytes_of(source: Any) -> files.Content:
    if isinstance(source, bytes) or (isinstance(source, memoryview) and map_of(source) is not None):
        return source
    if isinstance(source, (bytearray, memoryview)):
        return bytes(source)
    data = source.read(PROTO_LIMIT + 1)
    if not isinstance(data, bytes):
        raise FormatError("proto.parse", f"read() of the stream must return bytes, got {type(data).__name__}")
    return data


def _read_model(proto: ModelProto, tensors: TensorReader, faults: Faults) -> ForeignModel:
    if not proto.HasField("graph"):
        raise FormatError("proto.parse", "an ONNX model must have a graph")
    fields = present(proto, "model")
    training = fields.pop("training_info", ())
    if training:
        faults.deviate(UnsupportedError("training.info", "training information is not supported"))
    ir_version = _ir_version(fields.pop("ir_version", 0))
    imports = _imports(fields.pop("opset_import", ()), ir_version)
    functions = _functions(fields.pop("functions", ()), ir_version, tensors, faults)
    reader = GraphReader(imports, ir_version, tensors, faults, functions=functions)
    graph = reader.graph(fields.pop("graph"))
    if not graph.outputs:
        faults.add(FormatError("graph.outputs", "the graph must have at least 1 output, got 0"))
    if functions:
        # Names are checked before calls are inlined.
        faults.report()
        inline(graph, functions, imports, faults)
        imports = {**_imports_of(functions), **imports}
    check_names(graph, faults.found, faults.deviate)
    rename_repeated_nodes(graph, faults.deviate)
    if ir_version >= 4 and "overridable" in graph.metadata:
        # Before IR version 4 every initializer must also be an input, but all readers treat it as a constant.
        graph.metadata["defaults"] = graph.metadata.pop("overridable")
    if ir_version < 4:
        _check_initializers(graph, faults)
    imports = {**imports, **reader.assumed}
    model = ForeignModel("onnx", graph, imports, {"ir_version": ir_version}, faults.file)
    model.producer = fields.pop("producer_name", ""), fields.pop("producer_version", "")
    model.doc = fields.pop("doc_string", "")
    _read_metadata(model, fields, faults)
    if training:
        model.metadata["training_info"] = [item.SerializeToString(deterministic=True) for item in training]
    if reader.assumed:
        model.metadata["undeclared_domains"] = sorted(reader.assumed)
    refuse_rest(fields, "model")
    faults.report()
    return model


def _check_initializers(graph: ForeignGraph, faults: Faults) -> None:
    """Check for a model before IR version 4 that every initializer is also an input (onnx.proto, ``Version``)."""
    for name in graph.constants.keys() - set(graph.metadata.get("overridable", ())):
        faults.deviate(FormatError("initializer.input", f"the initializer {name!r} must be an input before IR version 4"))


def _read_metadata(model: ForeignModel, fields: dict[str, Any], faults: Faults) -> None:
    for name in ("domain", "model_version"):
        if fields.get(name):
            model.metadata[name] = fields[name]
        fields.pop(name, None)
    if entries := fields.pop("metadata_props", None):
        entries_by_key = properties(entries, "metadata.repeated", faults.deviate)
        # The digest of the weights file belongs to the file, not to the model: each save writes a new one.
        entries_by_key.pop(file_pair.PROPERTY, None)
        if entries_by_key:
            model.metadata["metadata_props"] = entries_by_key
    if configurations := fields.pop("configuration", None):
        model.metadata["configuration"] = [item.SerializeToString(deterministic=True) for item in configurations]


def _ir_version(version: int) -> int:
    if version < 1:
        raise FormatError("ir.version", f"IR version must be at least 1, got {version}")
    last = newest_ir_version()
    if version > last:
        raise UnsupportedError("ir.version", f"IR version must be at most {last}, got {version}")
    return version


def _imports(protos: Iterable[Any], ir_version: int) -> dict[str, int]:
    """Read the opset imports; return the opset versions by domain."""
    versions: dict[str, int] = {}
    for proto in protos:
        fields = present(proto, "opset import")
        domain, version = plain_domain(fields.get("domain", "")), fields.get("version", 0)
        if version < 1:
            raise FormatError("opset.version", f"the opset of domain {domain!r} must be at least 1, got {version}")
        if versions.setdefault(domain, version) != version:
            raise FormatError(
                "graph.repeated", f"domain {domain!r} must be imported once, got opsets {versions[domain]} and {version}"
            )
        newest = newest_opset(domain, version)
        if newest is not None and version > newest:
            fault = f"the opset of domain {domain!r} must be at most {newest}, the newest known, got {version}"
            raise UnsupportedError("opset.version", fault)
    # onnx.proto, ``Version``: opset imports exist since IR version 3; older models have opset 1.
    return versions or ({"": 1} if ir_version < 3 else {})


def _functions(protos: Iterable[Any], ir_version: int, tensors: TensorReader, faults: Faults) -> dict[Call, ModelFunction]:
    items = [(key_of(proto), proto) for proto in protos]
    keys = {key for key, _ in items}
    functions: dict[Call, ModelFunction] = {}
    for key, proto in items:
        index = f"function {key[1]!r}"
        if not key[1]:
            # A function without a name cannot be called.
            faults.deviate(FormatError("name.missing", "a function must have a name"), index)
            continue
        try:
            if key in functions:
                raise FormatError("graph.repeated", f"functions must have different names, got {':'.join(key)!r} twice")
            imports = _imports(proto.opset_import, ir_version)
            reader = GraphReader(imports, ir_version, tensors, faults, functions=keys, in_function=True)
            functions[key] = read_function(proto, reader, imports)
        except DovetailError as error:
            faults.add(error, index)
    return functions


def _imports_of(functions: Mapping[Call, ModelFunction]) -> dict[str, int]:
    versions: dict[str, int] = {}
    for function in functions.values():
        for domain, version in function.imports.items():
            versions[domain] = max(version, versions.get(domain, 0))
    return versions


def _model_proto(model: ForeignModel, elsewhere: Elsewhere) -> ModelProto:
    errors: list[DovetailError] = []
    check_names(model.graph, errors, errors.append)
    for item in model.graph.inputs:
        if not is_typed(item):
            message = f"the input {item.key!r} must have a known element type"
            errors.append(UnsupportedError("type.element", message, node=item.key))
    raise_all(errors, "faults in the model to be written")
    proto: ModelProto = message_classes().ModelProto()
    writer = GraphWriter(model.versions, elsewhere)
    writer.graph(proto.graph, model.graph)
    raise_all(writer.errors, "nodes and values that ONNX cannot express")
    for domain, version in model.versions.items():
        entry = proto.opset_import.add()
        entry.domain = domain
        entry.version = version
    proto.ir_version = _ir_version(max(model.metadata.get("ir_version") or _min_ir_version(proto), writer.ir_version))
    for field, value in (
        ("producer_name", model.producer[0]),
        ("producer_version", model.producer[1]),
        ("doc_string", model.doc),
        ("domain", model.metadata.get("domain")),
        ("model_version", model.metadata.get("model_version")),
    ):
        if value:
            setattr(proto, field, value)
    put_properties(proto.metadata_props, model.metadata.get("metadata_props", {}))
    stored = [(proto.configuration.add(), data) for data in model.metadata.get("configuration", ())]
    stored += [(proto.training_info.add(), data) for data in model.metadata.get("training_info", ())]
    if not all(parse_message(*pair) for pair in stored) or not put_back(proto, model.metadata.get("unknown_fields", [])):
        raise UnsupportedError("proto.parse", "the bytes in the metadata must be valid protobuf messages")
    return proto


def _min_ir_version(proto: ModelProto) -> int:
    """Return the minimum IR version for the imported opsets, but at least 8, which all current runtimes read."""
    return max(8, *(ir_version_of(entry.domain, entry.version) for entry in proto.opset_import))


def _side_file(path: str | None, external: bool | str, threshold: int) -> ExternalData:
    if path is None:
        raise UnsupportedError("data.external", "external data needs a path as target, got a stream or None")
    location = external if isinstance(external, str) else f"{os.path.basename(path)}.data"
    files.check_location(location, file=path)
    return ExternalData(location, threshold)


def _serialize(proto: ModelProto) -> bytes:
    from google.protobuf.message import EncodeError

    try:
        data: bytes = proto.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise UnsupportedError("file.size", f"the model must fit into one protobuf message: {error}") from None
    _check_size(len(data))
    return data


def _check_size(size: int) -> None:
    if size > PROTO_LIMIT:
        raise UnsupportedError("file.size", f"a protobuf message must have less than 2 GiB, got {size} bytes")


def _stream(target: Any) -> BinaryIO:
    if not callable(getattr(target, "write", None)):
        raise TypeError(f"target must be a path, a stream or None, got {target!r}")
    return target  # type: ignore[no-any-return]


def _total_bytes(graph: ForeignGraph) -> int:
    total = sum(map(byte_size, graph.constants.values()))
    for node in walk(graph.nodes):
        total += sum(byte_size(item) for value in node.attributes.values() for item in _tensors_in(value))
        total += sum(byte_size(tensor) for _, inner in subgraphs(node) for tensor in inner.constants.values())
    return total


def _tensors_in(value: object) -> list[ForeignTensor]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ForeignTensor)]
