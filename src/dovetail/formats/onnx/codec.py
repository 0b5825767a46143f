"""An ONNX file to a ForeignModel and back; knows no operator. Source: onnx.proto, onnx/docs/IR.md.

``node.version`` is the version of the operator in force at the opset that the model (or function) imports. Model-local
functions are written out. What has no place of its own in a ForeignModel stands in ``metadata`` and is written back:

- model: ``ir_version``, ``domain``, ``model_version``, ``metadata_props``, ``configuration``, ``training_info``,
  ``unknown_fields`` (see :mod:`mending`); ``undeclared_domains`` (those that are not imported) is for lift only;
- graph: ``metadata_props``, ``quantization_annotation``, ``notes`` (of initializers), ``sparse`` (initializers stored so),
  ``overridable`` (initializers that are inputs too, with what is declared of them in ``values``) and ``inputs`` (all names
  in order);
- node: ``metadata_props``, ``device_configurations``, ``attribute_docs``, ``notes`` and ``sparse`` (by attribute, or
  ``attribute[index]``), ``empty`` (what an empty list is of);
- value: ``metadata_props``, ``denotations``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from dovetail.errors import DovetailError, FormatError, UnsupportedError, raise_all
from dovetail.formats import atomic_write, file_pair, files
from dovetail.formats.deviations import Deviations
from dovetail.formats.fixpoint import Snapshot
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignTensor
from dovetail.formats.onnx.functions import Function, inline, key_of, read_function, walk
from dovetail.formats.onnx.messages import message_classes, present, properties, put_properties, refuse_rest
from dovetail.formats.onnx.names import check_names, rename_repeated, subgraphs
from dovetail.formats.onnx.protobuf_scan import Elements, parted
from dovetail.formats.onnx.reader import Call, Faults, GraphReader, is_typed, plain_domain
from dovetail.formats.onnx.schemas import ir_version_of, newest_opset
from dovetail.formats.onnx.tensors import ExternalData, ExternalReferences, ReferenceReader, TensorReader, byte_size
from dovetail.formats.onnx.unknown_fields import mend, put_back
from dovetail.formats.onnx.writer import GraphWriter

if TYPE_CHECKING:
    from onnx import ModelProto

# protobuf cannot hold more than 2 GiB in one message.
PROTO_LIMIT = 2**31 - 1
# From here on tensors go to a side file unasked.
INLINE_LIMIT = 1_900_000_000
# Bytes from which on a tensor is no part of a snapshot.
_BY_REFERENCE = 1024


def read(
    source: files.StrPath | bytes | BinaryIO | ModelProto,
    *,
    file: files.StrPath | None = None,
    allow_symlinks_within: files.StrPath | None = None,
    deviations: Deviations | None = None,
) -> ForeignModel:
    """The model in a file, in bytes, or parsed already.

    ``file`` is the path that errors name and beside which external data is looked for, where ``source`` is no path;
    for ``allow_symlinks_within`` see :func:`dovetail.formats.files.open_beside`. ``deviations`` collects what departs from the
    format and means the same to all who accept it; without it that is a fault. Tensors are read-only and map external
    data. Raises FormatError or UnsupportedError, with every fault that was found in ``diagnostics``.
    """
    path = _path_of(source, file)

    def read_once(source: Any, pair: file_pair.Pair, deviations: Deviations | None) -> ForeignModel:
        proto, elements = _parsed(source)
        pair.record = next((entry.value for entry in proto.metadata_props if entry.key == file_pair.PROPERTY), None)

        def attempt(proto: ModelProto, found: Deviations | None) -> ForeignModel:
            return _read_model(proto, TensorReader(path, allow_symlinks_within, elements, pair), Faults(path, found))

        return attempt(proto, None) if deviations is None else _read_mended(proto, attempt, path, deviations)

    try:
        if isinstance(source, (str, os.PathLike)):
            return file_pair.read(source, PROTO_LIMIT, read_once, deviations)
        return read_once(source, file_pair.Pair(path), deviations)
    except DovetailError as error:
        raise error.at(file=path) from None


def _read_mended(
    proto: ModelProto, attempt: Callable[[ModelProto, Deviations], ForeignModel], path: str | None, deviations: Deviations
) -> ForeignModel:
    """The model; where unknown fields or remarks that are not UTF-8 are in the way, once more without them."""
    found = Deviations()
    try:
        model = attempt(proto, found)
    except DovetailError as error:
        if not any(item.code in ("proto.unknown", "proto.text") for item in error.diagnostics):
            deviations.extend(found)
            raise
        copy = type(proto)()
        copy.CopyFrom(proto)
        found = Deviations()
        unknown = mend(copy, lambda fault, place: found.add(fault.at(node=place, file=path)))
        try:
            model = attempt(copy, found)
        finally:
            deviations.extend(found)
        if unknown:
            model.metadata["unknown_fields"] = unknown
        return model
    deviations.extend(found)
    return model


def write(
    model: ForeignModel,
    target: files.StrPath | BinaryIO | None = None,
    *,
    external: bool | str | None = None,
    threshold: int = 1024,
) -> bytes | None:
    """Write ``model`` to a path or a stream; to None: return the bytes. Equal models give equal bytes.

    ``external``: tensors of at least ``threshold`` bytes go to one side file, named so or ``<name>.data``; None: only
    when the model would not fit into one protobuf message. Files are replaced when all is written, or not at all.
    Raises FormatError [graph.repeated], [graph.dangling], [graph.order], [graph.cycle], and what
    :func:`dovetail.formats.drafts.replacing_all` raises; UnsupportedError [opset.version], [opset.missing],
    [dtype.onnx], [attribute.value], [attribute.range], [data.external], [proto.size].
    """
    if external is None:
        external = _total_bytes(model.graph) > INLINE_LIMIT
    path = os.fspath(target) if isinstance(target, (str, os.PathLike)) else None
    side = _side_file(path, external, threshold) if external else None
    data = _serialised(_model_proto(model, side))
    if path is None:
        if target is None:
            return data
        _stream(target).write(data)
        return None
    if side is None or not side.size:
        with atomic_write.replacing(path) as stream:
            stream.write(data)
        return None
    file_pair.write(path, data, os.path.join(os.path.dirname(path), side.location), side.chunks(), side.digest)
    return None


def snapshot_of(model: ForeignModel) -> Snapshot:
    """``model`` as it would be written, its larger tensors beside it by reference. Raises as write does."""
    weights = ExternalReferences(_BY_REFERENCE)
    return Snapshot(_serialised(_model_proto(model, weights)), weights)


def read_snapshot(snapshot: Snapshot) -> ForeignModel:
    """The model of a snapshot, as read would read what write writes. Raises as read does."""
    proto, elements = _parsed(snapshot.data)
    return _read_mended(
        proto,
        lambda proto, found: _read_model(proto, ReferenceReader(elements, snapshot.weights), Faults(None, found)),
        None,
        Deviations(),
    )


def _path_of(source: Any, file: files.StrPath | None) -> str | None:
    if file is not None:
        return os.fspath(file)
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and os.path.isfile(name) else None


def _parsed(source: Any) -> tuple[ModelProto, Elements]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if isinstance(source, message_classes().ModelProto):
        return source, {}
    data = _bytes_of(source)
    if len(data) > PROTO_LIMIT:
        raise FormatError("file.size", f"{len(data)} bytes are more than a protobuf message can have")
    parts = parted(data)
    try:
        proto = message_classes().ModelProto()
        proto.ParseFromString(parts.message)
        return proto, parts.elements
    except (DecodeError, RuntimeError) as error:
        raise FormatError("proto.parse", f"not an ONNX model: {error}") from None


def _bytes_of(source: Any) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    data = source.read(PROTO_LIMIT + 1)
    if not isinstance(data, bytes):
        raise FormatError("proto.parse", f"a stream of {type(data).__name__}, not of bytes")
    return data


def _read_model(proto: ModelProto, tensors: TensorReader, faults: Faults) -> ForeignModel:
    if not proto.HasField("graph"):
        raise FormatError("graph.missing", "not an ONNX model: there is no graph in it")
    fields = present(proto, "model")
    training = fields.pop("training_info", ())
    if training:
        faults.deviate(UnsupportedError("training.info", "the model holds training information"))
    ir_version = _ir_version(fields.pop("ir_version", 0))
    imports = _imports(fields.pop("opset_import", ()), ir_version)
    functions = _functions(fields.pop("functions", ()), ir_version, tensors, faults)
    reader = GraphReader(imports, ir_version, tensors, faults, functions=functions)
    graph = reader.graph(fields.pop("graph"))
    if not graph.outputs:
        faults.add(FormatError("graph.outputs", "the graph has no outputs"))
    if functions:
        # Calls must be sound before they can be written out.
        faults.report()
        inline(graph, functions, imports, faults)
        imports = {**_imports_of(functions), **imports}
    check_names(graph, faults.found, faults.deviate)
    rename_repeated(graph, faults.deviate)
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
    """onnx.proto, ``Version``: before version 4 every initializer is an input too, with a default."""
    for name in graph.constants.keys() - set(graph.metadata.get("overridable", ())):
        faults.deviate(FormatError("initializer.input", f"the initializer {name!r} is no input, before IR version 4"))


def _read_metadata(model: ForeignModel, fields: dict[str, Any], faults: Faults) -> None:
    for name in ("domain", "model_version"):
        if fields.get(name):
            model.metadata[name] = fields[name]
        fields.pop(name, None)
    if entries := fields.pop("metadata_props", None):
        found = properties(entries, "metadata.repeated", faults.deviate)
        # Of the file, not of the model: each save writes its own.
        found.pop(file_pair.PROPERTY, None)
        if found:
            model.metadata["metadata_props"] = found
    if configurations := fields.pop("configuration", None):
        model.metadata["configuration"] = [item.SerializeToString(deterministic=True) for item in configurations]


def _ir_version(version: int) -> int:
    if version < 1:
        raise FormatError("ir.version", f"IR version {version}" if version else "the model has no IR version")
    last = message_classes().Version.Value("IR_VERSION")
    if version > last:
        raise UnsupportedError("ir.version", f"IR version {version} is newer than {last}, the newest known here")
    return version


def _imports(protos: Iterable[Any], ir_version: int) -> dict[str, int]:
    """Opset versions by domain."""
    found: dict[str, int] = {}
    for proto in protos:
        fields = present(proto, "opset import")
        domain, version = plain_domain(fields.get("domain", "")), fields.get("version", 0)
        if version < 1:
            raise FormatError("opset.version", f"opset {version} of domain {domain!r}")
        if found.setdefault(domain, version) != version:
            raise FormatError("opset.repeated", f"domain {domain!r} is imported as {found[domain]} and as {version}")
        known = newest_opset(domain, version)
        if known is not None and version > known:
            fault = f"opset {version} of domain {domain!r} is newer than {known}, the newest known here"
            raise UnsupportedError("opset.version", fault)
    # onnx.proto, ``Version``: imports came with IR version 3; before, there was one opset.
    return found or ({"": 1} if ir_version < 3 else {})


def _functions(protos: Iterable[Any], ir_version: int, tensors: TensorReader, faults: Faults) -> dict[Call, Function]:
    items = [(key_of(proto), proto) for proto in protos]
    keys = {key for key, _ in items}
    found: dict[Call, Function] = {}
    for key, proto in items:
        place = f"function {key[1]!r}"
        if not key[1]:
            # Nothing can call it.
            faults.deviate(FormatError("function.name", "a function has no name"), place)
            continue
        try:
            if key in found:
                raise FormatError("function.repeated", f"two functions are {':'.join(key)!r}")
            imports = _imports(proto.opset_import, ir_version)
            reader = GraphReader(imports, ir_version, tensors, faults, functions=keys, in_function=True)
            found[key] = read_function(proto, reader, imports)
        except DovetailError as error:
            faults.add(error, place)
    return found


def _imports_of(functions: Mapping[Call, Function]) -> dict[str, int]:
    found: dict[str, int] = {}
    for function in functions.values():
        for domain, version in function.imports.items():
            found[domain] = max(version, found.get(domain, 0))
    return found


def _model_proto(model: ForeignModel, side: ExternalData | ExternalReferences | None) -> ModelProto:
    errors: list[DovetailError] = []
    check_names(model.graph, errors, errors.append)
    for each in model.graph.inputs:
        if not is_typed(each):
            what = f"ONNX needs the element type of each input, and that of {each.key!r} is not known"
            errors.append(UnsupportedError("type.missing", what, node=each.key))
    raise_all(errors, "faults in the model to be written")
    proto: ModelProto = message_classes().ModelProto()
    writer = GraphWriter(model.versions, side)
    writer.graph(proto.graph, model.graph)
    raise_all(writer.errors, "nodes and values that ONNX cannot say")
    for domain, version in model.versions.items():
        entry = proto.opset_import.add()
        entry.domain = domain
        entry.version = version
    proto.ir_version = max(model.metadata.get("ir_version") or _least_ir_version(proto), writer.ir_version)
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
    if isinstance(side, ExternalData) and side.size:
        side.digest = file_pair.weights_digest(side.chunks())
        put_properties(proto.metadata_props, {file_pair.PROPERTY: side.digest})
    for stored in model.metadata.get("configuration", ()):
        proto.configuration.add().ParseFromString(stored)
    for stored in model.metadata.get("training_info", ()):
        proto.training_info.add().ParseFromString(stored)
    put_back(proto, model.metadata.get("unknown_fields", []))
    return proto


def _least_ir_version(proto: ModelProto) -> int:
    """The IR version that came with the imported opsets, and at least 8, which every living runtime reads."""
    return max(8, *(ir_version_of(entry.domain, entry.version) for entry in proto.opset_import))


def _side_file(path: str | None, external: bool | str, threshold: int) -> ExternalData:
    if path is None:
        raise UnsupportedError("data.external", "external data needs a path to be written beside")
    location = external if isinstance(external, str) else f"{os.path.basename(path)}.data"
    files.check_location(location, file=path)
    return ExternalData(location, threshold)


def _serialised(proto: ModelProto) -> bytes:
    from google.protobuf.message import EncodeError

    try:
        data: bytes = proto.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise UnsupportedError("proto.size", f"the model does not fit into one protobuf message: {error}") from None
    if len(data) > PROTO_LIMIT:
        raise UnsupportedError("proto.size", f"{len(data)} bytes do not fit into one protobuf message")
    return data


def _stream(target: Any) -> BinaryIO:
    if not callable(getattr(target, "write", None)):
        raise TypeError(f"a path, a stream or None to write to, not {target!r}")
    return target  # type: ignore[no-any-return]


def _total_bytes(graph: ForeignGraph) -> int:
    total = sum(map(byte_size, graph.constants.values()))
    for node in walk(graph.nodes):
        total += sum(byte_size(item) for value in node.attributes.values() for item in _tensors_in(value))
        total += sum(byte_size(tensor) for _, inner in subgraphs(node) for tensor in inner.constants.values())
    return total


def _tensors_in(value: Any) -> list[ForeignTensor]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ForeignTensor)]
