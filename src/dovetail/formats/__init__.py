"""Load and save models in the format that the suffix of a path names."""

from __future__ import annotations

import os
from dataclasses import replace
from os import PathLike
from typing import Any, BinaryIO, TypeAlias

from dovetail.errors import Diagnostic, DovetailError, FormatError, raise_all
from dovetail.formats.foreign import ForeignModel
from dovetail.formats.model_source import SUFFIXES, ModelSource, Source, bytes_of, format_of, resolve_source
from dovetail.formats.plugin_formats import load_by_plugin, save_by_plugin
from dovetail.ir.graph import INFERRED, Graph, Model
from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.limits import Limits, counting, default_limits, within_memory
from dovetail.ir.op import bodies
from dovetail.ir.suggestions import check_keywords
from dovetail.storage import file_pair
from dovetail.storage.deviations import Deviations, log
from dovetail.storage.files import mapping_policy
from dovetail.storage.mapped_files import check_mapped_files


def read(
    source: ModelSource,
    *,
    weights: str | PathLike[str] | bytes | None = None,
    deviations: Deviations | None = None,
) -> ForeignModel:
    """Read a source as a foreign model, without importing it. Without ``deviations`` every deviation is an error."""
    if source.format == "onnx":
        from dovetail.formats.onnx import codec

        if weights is not None:
            raise FormatError(
                "argument.conflict", "weights must be None for ONNX: an ONNX model names its weights file", file=source.file
            )
        return codec.read(source.content, file=source.file, deviations=deviations)
    from dovetail.formats import roundtrip_metadata
    from dovetail.formats.openvino import codec as ir

    foreign = ir.read(source.content, file=source.file, weights=weights, deviations=deviations)
    roundtrip_metadata.restore_onnx(foreign)
    return foreign


def import_foreign(foreign: ForeignModel, deviations: Deviations | None = None) -> Model:
    """Import a foreign model as a graph. Without ``deviations`` every deviation is an error."""
    if foreign.format == "onnx":
        from dovetail.formats.onnx.read import import_onnx

        return import_onnx(foreign, deviations)
    from dovetail.formats.openvino.read import import_openvino

    return import_openvino(foreign, deviations)


@check_keywords
def load(
    source: Source,
    *,
    weights: str | PathLike[str] | bytes | BinaryIO | None = None,
    strict: bool = False,
    freeze_defaults: bool = False,
    limits: Limits | None = None,
    map: str = "auto",
) -> Model:
    """Load a model and infer its types and shapes: ``.onnx``, or ``.xml`` with its ``.bin`` (or ``weights``).

    ``source`` is a path, bytes, a binary file object or an ``onnx.ModelProto``. A source of bytes has no folder: the bytes of an
    ONNX model must contain all tensors, and ``weights`` must contain the constants of an IR, as bytes or as a binary file object.
    An ONNX initializer that is also an input is an optional input, which a run takes by name. ``freeze_defaults`` makes all
    optional inputs constants.

    A deviation departs from the format in a way that all accepting readers interpret alike (docs/formats.md). Deviations become
    ``model.warnings`` and are logged to the logger "dovetail", once for each code; with ``strict`` deviations are errors.
    ``limits`` bounds the memory and time that loading may use (docs/security.md), and becomes ``model.limits``. ``map`` chooses
    whether the weights file is memory-mapped: "never", "always", or "auto" (from 64 MiB). A mapped file must not be changed in
    place while the model is in use. After such a change, compiling and saving raise [file.changed], and a run that reads beyond
    the new end of the file ends the process.

    Raises FormatError (the file violates its format: [data.*], [file.*], [format.*], [graph.*], [initializer.input], [ir.*],
    [metadata.*], [name.*], [nchwc.block], [opset.*], [path.*], [proto.*], [text.*], [value.*]; MissingFileError [file.missing],
    also a FileNotFoundError, for a missing file), UnsupportedError (dovetail cannot represent the model exactly: [extra.missing],
    [limits.*], [op.*], [training.*]), RuleError (the model violates an operator's rule, as in :func:`infer`), EngineError
    [run.memory], [run.time], [argument.*]. Each error has every independent fault in ``diagnostics``. Raises OSError if the file
    cannot be opened.

    Source: the specifications of ONNX and of OpenVINO IR 10 and 11.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.save(b.model, "relu.onnx")
    >>> dovetail.load("relu.onnx").inputs
    [<x: f32[n, 2]>]
    """
    deviations = Deviations()
    resolved = resolve_source(source)
    if weights is not None and not isinstance(weights, str | PathLike):
        weights = bytes_of(weights)
    name = resolved.file or "the model"
    try:
        with mapping_policy(map):
            model = _load(resolved, weights, deviations, limits or default_limits(), freeze_defaults)
    except DovetailError as error:
        if strict and deviations.errors:
            raise_all([*deviations.errors, error], f"faults in {name}")
        raise
    if strict:
        raise_all([*deviations.errors, *deviations.faults], f"faults in {name}")
    log(model.warnings, name)
    return model


def _load(
    source: ModelSource,
    weights: str | PathLike[str] | bytes | None,
    deviations: Deviations,
    limits: Limits,
    freeze_defaults: bool = False,
) -> Model:
    with pause_gc(), counting(limits), within_memory("the model", source.file):
        if source.format == "text":
            from dovetail.formats.text import codec

            if weights is not None:
                raise FormatError(
                    "argument.conflict", "weights must be None: a .dt model names its weights file", file=source.file
                )
            model = codec.load(source.content, source.file, deviations)
            if freeze_defaults:
                from dovetail.formats.default_inputs import freeze_defaults as freeze

                model = freeze(model)
        elif source.format not in SUFFIXES.values():
            assert source.file is not None
            model = load_by_plugin(source.file, source.format)
        else:
            foreign = read(source, weights=weights, deviations=deviations)
            if freeze_defaults:
                foreign.graph.metadata.pop("defaults", None)
            model = import_foreign(foreign, deviations)
    _drop_inferred_texts(model.graph)
    model.limits = limits
    model.warnings = [*deviations.warnings(), *model.warnings]
    return model


def _drop_inferred_texts(graph: Graph) -> None:
    """Drop the inferred shapes that a file stores as text, also in subgraphs: the text may be out of date.

    Another tool may have changed the graph after dovetail wrote the shapes.
    """
    for value in graph.values():
        value.metadata.pop(INFERRED, None)
    for node in graph.nodes:
        for _, body in bodies(node.op):
            _drop_inferred_texts(body)


def examine(source: Source, limits: Limits | None = None) -> tuple[Model | None, list[Diagnostic], list[Diagnostic]]:
    """Load a model, and return the model (None if loading fails), the faults of its file, and other warnings.

    Deviations count as faults. A declared type in an ONNX file that inference contradicts is a fault, as in onnx's checker;
    in IR it is a warning, because OpenVINO does not read the types of ports.
    """
    deviations = Deviations()
    try:
        model = _load(resolve_source(source), None, deviations, limits or default_limits())
    except DovetailError as error:
        return None, [*_diagnostics(deviations), *error.diagnostics], []
    warnings = model.warnings[sum(len(error.diagnostics) for error in deviations.errors) :]
    faults = _diagnostics(deviations)
    return model, faults, [item for item in warnings if replace(item, severity="error") not in faults]


def _diagnostics(deviations: Deviations) -> list[Diagnostic]:
    """Return the diagnostics of all deviations and of all errors of preserved nodes."""
    return [item for error in (*deviations.errors, *deviations.faults) for item in error.diagnostics]


Target: TypeAlias = str | PathLike[str] | BinaryIO | tuple[BinaryIO, BinaryIO]


@check_keywords
def save(
    model: Model,
    path: Target,
    *,
    opset: int | None = None,
    format: str | None = None,
    weights: str | PathLike[str] | BinaryIO | None = None,
    external: bool | str | None = None,
    threshold: int | None = None,
    types: bool | None = None,
) -> None:
    """Save ``model`` in the format of the suffix: ONNX at ``opset``, or OpenVINO IR 11 as ``.xml`` with ``.bin``.

    Without ``opset`` an ONNX model keeps its opset; any other model gets opset 21. ``path`` may be a binary file object for
    ONNX, or a pair of binary file objects for the XML and the weights of IR. ``format`` is "onnx" or "xml" for a file object;
    with "xml" ``weights`` is the second file object. ``weights`` otherwise names the weights file in the folder of ``path``;
    ``"safetensors"`` selects a safetensors file with the stem of ``path``.

    Options of ONNX only: ``external`` writes tensors of at least ``threshold`` bytes (1024) into a separate file, by default if
    the model exceeds 2 GB. ``types=False`` omits types that inference can recompute, and attributes with their default values.
    All files are replaced, or none.

    Raises UnsupportedError with all nodes that the target cannot express ([op.*], [constant.*], [opset.*], [type.*],
    [quantize.*], [grad.*]), and [write.mismatch] if the file would not be equivalent to the model; FormatError [argument.*],
    [data.*], [dtype.*], [file.*], [format.*], [graph.*], [initializer.input], [metadata.*], [name.*], [nchwc.block], [path.*],
    [proto.*], [ir.*], [text.*], [training.*], [value.*]; and the errors of :func:`infer`.

    Source: the specifications of ONNX and of OpenVINO IR 11.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.save(b.model, "relu.onnx", opset=18); dovetail.save(b.model, "relu.xml")
    >>> dovetail.load("relu.onnx").versions
    {'': 18}
    """
    if isinstance(path, tuple):
        if len(path) != 2 or weights is not None:
            got = f"a tuple of {len(path)}" + ("" if weights is None else " and weights")
            raise FormatError("argument.conflict", f"IR needs two binary file objects: save(model, (xml, weights)), got {got}")
        path, weights = path
        format = format or "xml"
    if format not in (None, "onnx", "xml") or (format is not None and isinstance(path, str | PathLike)):
        raise FormatError(
            "argument.conflict", f"format must be 'onnx' or 'xml', and needs a binary file object as path, got {format!r}"
        )
    options = {"weights": weights, "external": external, "threshold": threshold, "types": types}
    options = {option: value for option, value in options.items() if value is not None}
    check_mapped_files(model.graph, model.file)
    name = os.fspath(path) if isinstance(path, str | PathLike) else "the model"
    if not model.outputs:
        raise FormatError("graph.outputs", "a model that is saved must have at least 1 output, got 0", file=name)
    with pause_gc(), counting(model.limits), within_memory("the file to write", name):
        _save(model, path, opset, format, options)


def _save(
    model: Model, path: str | PathLike[str] | BinaryIO, opset: int | None, format: str | None, options: dict[str, Any]
) -> None:
    if options.get("weights") == "safetensors":
        if not isinstance(path, str | PathLike):
            raise FormatError("argument.conflict", "weights='safetensors' needs a path, got a binary file object")
        options["weights"] = os.path.splitext(os.fspath(path))[0] + ".safetensors"
        file_pair.refuse_foreign(options["weights"], os.fspath(path))
    is_ir = format == "xml"
    if not is_ir and (not isinstance(path, str | PathLike) or format_of(path) == "onnx"):
        from dovetail.formats.onnx.write import save as save_onnx

        save_onnx(model, path, opset=opset, **options)
        return
    if opset is not None:
        raise FormatError("argument.conflict", "opset must be None for any format but ONNX", file=str(path))
    if options.keys() - {"weights"}:
        raise FormatError("argument.conflict", f"{min(options.keys() - {'weights'})} is only for ONNX", file=str(path))
    if isinstance(path, str | PathLike) and format_of(path) not in SUFFIXES.values():
        if options:
            raise FormatError("argument.conflict", f"{min(options)} must be None for a format of a plug-in", file=str(path))
        save_by_plugin(model, os.fspath(path), format_of(path))
        return
    if isinstance(path, str | PathLike) and format_of(path) == "text":
        from dovetail.formats.text import codec

        codec.save(model, path, **options)
        return
    from dovetail.formats.openvino.write import save as save_openvino

    save_openvino(model, path, **options)


def reload(model: Model, format: str, opset: int | None = None) -> Model:
    """Return the model that results from saving ``model`` and loading it again; in memory, with shared weights.

    ``format``: "onnx", at ``opset`` or else the model's opset, or "openvino". Raises UnsupportedError with all nodes that the
    format cannot express.
    """
    with pause_gc(), counting(model.limits):
        if format == "onnx":
            from dovetail.formats.onnx.write import reload as reload_onnx

            new = reload_onnx(model, opset)
        else:
            from dovetail.formats.openvino.write import reload as reload_openvino

            new = reload_openvino(model)
    new.limits, new.file = model.limits, model.file
    return new
