"""The file formats: which one a path names, and reading and writing models in it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, BinaryIO

from dovetail.errors import Diagnostic, DovetailError, FormatError, raise_all
from dovetail.formats.deviations import Deviations, log
from dovetail.formats.files import mapping
from dovetail.formats.foreign import ForeignModel
from dovetail.formats.mapped_files import check_unchanged
from dovetail.formats.model_source import ModelSource, Source, format_of, resolve_source
from dovetail.ir.graph import Model
from dovetail.ir.state import PROPERTY, from_text
from dovetail.limits import DEFAULT, Limits, counting, within_memory


def read(
    source: ModelSource,
    *,
    weights: str | PathLike[str] | bytes | None = None,
    deviations: Deviations | None = None,
) -> ForeignModel:
    """Read a source into the objects of its format. Without ``deviations`` to collect them in, every deviation is a fault."""
    if source.format == "onnx":
        from dovetail.formats.onnx import codec

        if weights is not None:
            raise FormatError("weights.format", "an ONNX model names its weights itself; weights= is for IR", file=source.file)
        return codec.read(source.content, file=source.file, deviations=deviations)
    from dovetail.formats import roundtrip_metadata
    from dovetail.formats.openvino import codec as ir

    foreign = ir.read(source.content, file=source.file, weights=weights, deviations=deviations)
    roundtrip_metadata.into_ir(foreign)
    return foreign


def lifted(foreign: ForeignModel, deviations: Deviations | None = None) -> Model:
    """A foreign model as a graph. Without ``deviations`` to collect them in, every deviation is a fault."""
    from dovetail.formats.importer import lift

    if foreign.format == "onnx":
        from dovetail.formats.onnx.converters import ONNX

        model = lift(foreign, ONNX, deviations)
        model.states = from_text(foreign.metadata.get("metadata_props", {}).get(PROPERTY), model.graph)
        return model
    from dovetail.formats.openvino.converters import OPENVINO

    return lift(foreign, OPENVINO, deviations)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: a graph that is being made is all alive, and walking it over and over finds nothing.

    It took a quarter of the time of loading densenet121. The collector is on again afterwards if it was on before.
    """
    was_on = gc.isenabled()
    gc.disable()
    if was_on:
        _pausing.append(True)
    try:
        yield
    finally:
        if was_on:
            gc.enable()
            # Empty in a child that was forked meanwhile.
            if _pausing:
                _pausing.pop()


_pausing: list[bool] = []
"""One item for each thread that will turn the collector on again."""


def _resume_in_child() -> None:
    """Turn the collector on in a forked child: the thread that would have done so did not come along."""
    if _pausing:
        _pausing.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_in_child)


def load(
    source: Source,
    *,
    weights: str | PathLike[str] | bytes | None = None,
    strict: bool = False,
    limits: Limits | None = None,
    map: str = "auto",
) -> Model:
    """Read a model: ``.onnx``, or ``.xml`` with its ``.bin`` beside it (or ``weights``). Types and shapes are inferred on
    the way.

    ``source``: a path, bytes, a binary file object or an ``onnx.ModelProto``. Bytes have no folder: their tensors are inside
    (ONNX) or in ``weights`` (IR).

    Deviations from the format that all who accept them read alike (docs/formats.md) are listed in ``model.warnings`` and
    logged to the logger "dovetail", once for each code; with ``strict`` they are errors. ``limits``: what the file may cost
    (docs/security.md); the model keeps them. ``map``: whether the file of the weights is mapped into memory instead of read,
    "never", "always", or "auto", from 64 MiB on. A mapped file must not be changed in place while the model lives: compiling
    and saving refuse it then [data.changed], and a run that reads beyond its new end ends the process.

    Raises FormatError (the file is not what its format says; MissingFileError, also a FileNotFoundError, where there is
    none), UnsupportedError (we do not handle it exactly), RuleError (the
    model breaks an operator's rule), each with every independent fault in ``diagnostics``; OSError where the file cannot be
    opened.
    """
    deviations = Deviations()
    found = resolve_source(source)
    name = found.file or "the model"
    try:
        with mapping(map):
            model = _loaded(found, weights, deviations, limits or DEFAULT)
    except DovetailError as error:
        if strict and deviations.errors:
            raise_all([*deviations.errors, error], f"faults in {name}")
        raise
    if strict:
        raise_all(deviations.errors, f"faults in {name}")
    log(model.warnings, name)
    return model


def _loaded(source: ModelSource, weights: str | PathLike[str] | bytes | None, deviations: Deviations, limits: Limits) -> Model:
    with collector_paused(), counting(limits), within_memory("the model", source.file):
        model = lifted(read(source, weights=weights, deviations=deviations), deviations)
    model.limits = limits
    model.warnings = [*deviations.warnings(), *model.warnings]
    return model


def examine(source: Source, limits: Limits | None = None) -> tuple[Model | None, list[Diagnostic], list[Diagnostic]]:
    """Return the model if it loads, the faults of the file, its deviations among them, and its warnings beside these."""
    deviations = Deviations()
    try:
        model = _loaded(resolve_source(source), None, deviations, limits or DEFAULT)
    except DovetailError as error:
        return None, [*_diagnostics(deviations), *error.diagnostics], []
    faults = _diagnostics(deviations)
    return model, faults, model.warnings[len(faults) :]


def _diagnostics(deviations: Deviations) -> list[Diagnostic]:
    return [item for error in deviations.errors for item in error.diagnostics]


def save(model: Model, path: str | PathLike[str] | BinaryIO, *, opset: int | None = None, **options: Any) -> None:
    """Write ``model`` in the format that the suffix names: ONNX in the version ``opset``, OpenVINO IR 11 as ``.xml`` with
    ``.bin``.

    Without ``opset`` an ONNX model keeps its own; a model from elsewhere gets the default of ``formats.onnx.write``.
    ``path`` may be a binary file object, which takes ONNX. ``external``: for ONNX, put tensors into one file beside. Files are
    replaced whole or not at all. Raises UnsupportedError with all nodes that the target format cannot express, and
    [write.mismatch] where what would be written does not mean the same.
    """
    check_unchanged(model.graph, model.file)
    name = os.fspath(path) if isinstance(path, str | PathLike) else "the model"
    with collector_paused(), counting(model.limits), within_memory("what is written", name):
        _save(model, path, opset, options)


def _save(model: Model, path: str | PathLike[str] | BinaryIO, opset: int | None, options: dict[str, Any]) -> None:
    if not isinstance(path, str | PathLike) or format_of(path) == "onnx":
        from dovetail.formats.onnx.write import save as save_onnx

        save_onnx(model, path, opset=opset, **options)
        return
    if opset is not None:
        raise FormatError("opset.format", "OpenVINO IR has no opset to choose", file=str(path))
    from dovetail.formats.openvino.write import save as save_openvino

    save_openvino(model, path, **options)
