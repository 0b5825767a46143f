"""Read OpenVINO IR 10 and 11 (``model.xml`` with ``model.bin``) into foreign models, and write foreign models as IR 11.

Data beyond the graph is preserved in metadata:

- value: ``name`` (the layer's name; always for a Parameter or Const, otherwise if the port has no names), ``layer`` (the layer's
id, for Parameter and Const), ``rt_info`` (of the port), ``layer_rt_info`` (of the Parameter or Const);
- output: ``result`` (the Result layer's name), ``layer``, ``result_rt_info``, ``result_port_rt_info``;
- node: ``rt_info``, ``input_rt_info`` (by input index);
- model and subgraph: ``rt_info``;
- model: ``meta_data`` and ``quantization_parameters`` (legacy sections). The module ``rt_info`` defines the form of all these.

A layer with subgraphs has the attributes ``body``, ``then_body``, ``else_body`` (ForeignGraph). Its attributes ``port_map``,
``then_port_map``, ``else_port_map`` and ``back_edges`` are lists of dicts of strings. In an entry of a port map, ``port`` is
"input" or "output". ``external_port_id`` counts the node's inputs from 0 and its outputs after them; -1 stands for no port.
``internal_layer_id`` is the ``layer`` of an input or output of the body.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from dovetail.errors import FormatError, UnsupportedError, raise_all
from dovetail.formats.fixpoint import Snapshot, Weights
from dovetail.formats.foreign import ForeignGraph, ForeignModel
from dovetail.formats.openvino import constants, rt_info, xml_parser
from dovetail.formats.openvino.diagnostics import TooManyErrors
from dovetail.formats.openvino.reader import LEGACY, Reader
from dovetail.formats.openvino.writer import IrWriter
from dovetail.storage import file_pair, files
from dovetail.storage.deviations import Deviations
from dovetail.storage.safetensors_file import SUFFIX, SafetensorsFile
from dovetail.storage.weights_file import WeightsFile

VERSIONS = (10, 11)
# The alignment of constants in bytes, which suffices to use every element type in place.
ALIGNMENT = 8
# The prefix of a digest in rt_info if the weights are in a safetensors file.
_IN_SAFETENSORS = "safetensors "


def read(
    source: files.StrPath | bytes,
    *,
    file: files.StrPath | None = None,
    weights: files.StrPath | bytes | None = None,
    allow_symlinks_within: files.StrPath | None = None,
    deviations: Deviations | None = None,
) -> ForeignModel:
    """Read an IR model from a file or from bytes; ``weights`` has its constants, by default the .bin file of the same stem.

    ``file``: for ``source`` of bytes, the path that errors name, and whose folder contains the .bin file.

    Small weights files are copied into memory, and large ones are memory-mapped (files.contents). Raises one FormatError or
    UnsupportedError with every independent fault of the file, and the errors of files.open_beside for the .bin file.
    """

    path = file if isinstance(source, bytes) else source

    def read_once(data: files.Content, pair: file_pair.Pair, deviations: Deviations | None) -> ForeignModel:
        name = "" if path is None else os.fspath(path)
        return _read(bytes(data), name, lambda: _weights(path, weights, allow_symlinks_within, pair), pair, deviations)

    if isinstance(source, bytes):
        if len(source) > xml_parser.LIMIT:
            raise FormatError("file.size", f"the file must have at most {xml_parser.LIMIT} bytes, got {len(source)}")
        return read_once(source, file_pair.Pair(None if file is None else os.fspath(file)), deviations)
    return file_pair.read(source, xml_parser.LIMIT, read_once, deviations)


def _read(
    data: bytes, file: str, weights: Callable[[], constants.Bytes], pair: file_pair.Pair, deviations: Deviations | None
) -> ForeignModel:
    root = xml_parser.parse(data, file)
    version = _version(root, file)
    record = root.find("/".join(("rt_info", *file_pair.RT_INFO)))
    pair.record = None if record is None else record.get("value", "").removeprefix(_IN_SAFETENSORS)
    pair.is_safetensors = record is not None and record.get("value", "").startswith(_IN_SAFETENSORS)
    reader = Reader(file, weights, deviations)
    graph = ForeignGraph()
    try:
        for stray in xml_parser.stray_texts(root, data):
            reader.checks.deviate(stray)
        graph = reader.graph(root)
    except TooManyErrors:
        pass
    except RecursionError:
        raise FormatError("limits.exceeded", "elements must be nested less deeply (recursion limit)", file=file) from None
    raise_all(reader.checks.errors, f"faults in {file}")
    metadata: dict[str, Any] = {tag: graph.metadata.pop(tag) for tag in ("rt_info", *LEGACY) if tag in graph.metadata}
    # The digest of the weights file belongs to the file, not to the model: each save writes a new digest.
    info = rt_info.remove(metadata.pop("rt_info", []), *file_pair.RT_INFO)
    if info:
        metadata["rt_info"] = info
    producer = rt_info.get(info, "Runtime_version") or rt_info.get(metadata.get("meta_data", []), "MO_version")
    return ForeignModel(
        "openvino", graph, {"ir": version}, metadata, file, producer=("OpenVINO", producer) if producer else ("", "")
    )


def write(model: ForeignModel, xml_path: files.StrPath, *, weights_path: files.StrPath | None = None) -> None:
    """Write ``model`` as IR version 11: the XML to ``xml_path``, and the constants to ``weights_path``.

    ``weights_path`` is by default ``xml_path`` with the suffix .bin. It must be in the folder of the XML or below; its suffix
    .safetensors selects that format, which OpenVINO reads as any other weights file. Constants of equal bytes are stored once.
    Both files are replaced, or neither. Equal models give equal bytes. Raises UnsupportedError if IR cannot express the model,
    and RuleError for an invalid graph.
    """
    file = os.fspath(xml_path)
    target = os.path.splitext(file)[0] + ".bin" if weights_path is None else os.fspath(weights_path)
    if os.path.realpath(target) == os.path.realpath(file):
        raise FormatError("argument.conflict", "the model and its constants must have different paths", file=file)
    is_safetensors = target.endswith(SUFFIX)
    weights = SafetensorsFile() if is_safetensors else WeightsFile(lambda size: ALIGNMENT)
    if is_safetensors and os.path.lexists(shadow := os.path.splitext(file)[0] + ".bin"):
        message = (
            f"{shadow!r} must not exist, because OpenVINO would read it instead of {target!r}: remove it, or choose another name"
        )
        raise FormatError("path.foreign", message, file=file)
    writer = IrWriter(file, weights)
    writer.layers(model)
    # This raises the faults of the model before weights are copied.
    writer.document(model, None)

    def model_of(digest: str) -> bytes:
        if not is_safetensors:
            return writer.document(model, digest)
        # The offsets of a safetensors file are known only after all constants are stored.
        final = IrWriter(file, weights)
        final.layers(model)
        return final.document(model, _IN_SAFETENSORS + digest)

    file_pair.write(file, target, weights, model_of, is_named=weights_path is not None)


def write_streams(model: ForeignModel, xml: BinaryIO, weights: BinaryIO) -> None:
    """Write ``model`` as IR version 11 to two binary file objects. Raises the errors of write before any output."""
    store = WeightsFile(lambda size: ALIGNMENT)
    writer = IrWriter(model.file or "the model", store)
    writer.layers(model)
    store.lay_out()
    with store.hashing() as digest_of:
        digest = digest_of()
    document = writer.document(model, digest)
    xml.write(document)
    store.write_to(weights)
    file_pair.sign(weights, store, digest, document)


def snapshot_of(model: ForeignModel) -> Snapshot:
    """Serialize ``model``; its constants are stored by reference, without a copy. Raises the errors of write."""
    weights = Weights()
    writer = IrWriter(model.file or "", weights)
    writer.layers(model)
    return Snapshot(writer.document(model, None), weights)


def read_snapshot(snapshot: Snapshot) -> ForeignModel:
    """Read the model of a snapshot. Raises the errors of read."""
    weights: Any = snapshot.weights
    return _read(snapshot.data, "", lambda: weights, file_pair.Pair(None), Deviations())


def _version(root: Any, file: str) -> int:
    """Return the IR version, 10 or 11. Raises FormatError [ir.xml], UnsupportedError [ir.version]."""
    if root.tag != "net":
        raise FormatError("ir.xml", f"the root element must be <net>, got <{str(root.tag)[:40]}>", file=file)
    text = root.get("version")
    if text is None or not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise FormatError("ir.version", f"the version of <net> must be a number, got {text!r}", file=file)
    if int(text) not in VERSIONS:
        raise UnsupportedError("ir.version", f"the IR version must be 10 or 11, got {int(text)}", file=file)
    return int(text)


def _weights(
    path: files.StrPath | None, weights: files.StrPath | bytes | None, links: files.StrPath | None, pair: file_pair.Pair
) -> constants.Bytes:
    if isinstance(weights, bytes | bytearray | memoryview):
        name, data = "weights", np.frombuffer(weights, np.uint8)
    elif weights is not None:
        name, data = os.fspath(weights), files.contents(weights)
    elif path is None:
        raise FormatError("path.missing", "an IR model in bytes needs weights, the bytes or the path of its .bin file")
    else:
        name = os.path.splitext(os.path.basename(os.fspath(path)))[0] + (SUFFIX if pair.is_safetensors else ".bin")
        descriptor = files.open_beside(path, name, allow_symlinks_within=links)
        try:
            data = files.contents(descriptor)
        finally:
            os.close(descriptor)
    pair.check(name, data)
    return data
