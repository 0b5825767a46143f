"""The file formats: which one a path names, and reading and writing models in it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignModel
from dovetail.graph import Model
from dovetail.states import PROPERTY, from_text

SUFFIXES = {".onnx": "onnx", ".xml": "openvino"}


def format_of(path: str | PathLike[str]) -> str:
    """The format that a path's suffix names. Raises UnsupportedError [format.unknown]."""
    found = SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise UnsupportedError("format.unknown", f"{Path(path).name}: a model's name ends in {' or '.join(SUFFIXES)}")
    return found


def read(path: str | PathLike[str], *, weights: str | PathLike[str] | bytes | None = None) -> ForeignModel:
    """The file at ``path`` as it stands, unlifted."""
    if format_of(path) == "onnx":
        from dovetail.formats.onnx import codec

        if weights is not None:
            raise FormatError("weights.format", "an ONNX model says itself where its weights are", file=str(path))
        return codec.read(path)
    from dovetail.formats import travel
    from dovetail.formats.openvino import codec as ir

    foreign = ir.read(path, weights=weights)
    travel.into_ir(foreign)
    return foreign


def lifted(foreign: ForeignModel) -> Model:
    """A foreign model as a graph."""
    from dovetail.formats.lift import lift

    if foreign.format == "onnx":
        from dovetail.formats.onnx.compose import ONNX

        model = lift(foreign, ONNX)
        model.states = from_text(foreign.metadata.get("metadata_props", {}).get(PROPERTY), model.graph)
        return model
    from dovetail.formats.openvino.compose import OPENVINO

    return lift(foreign, OPENVINO)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: a graph that is being made is all alive, and walking it over and over finds nothing.

    It took a quarter of the time of loading densenet121. The collector is on again afterwards if it was on before.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load(path: str | PathLike[str], *, weights: str | PathLike[str] | bytes | None = None) -> Model:
    """Read a model: ``.onnx``, or ``.xml`` with its ``.bin`` beside it (or ``weights``). Types and shapes are inferred on
    the way.

    Raises FormatError (the file is not what its format says), UnsupportedError (we do not handle it exactly), RuleError (the
    model breaks an operator's rule), each with every independent fault in ``diagnostics``; OSError where the file cannot be
    opened.
    """
    if not os.path.exists(path):
        raise FormatError("file.missing", f"there is no file {os.fspath(path)!r}", file=os.fspath(path))
    with collector_paused():
        return lifted(read(path, weights=weights))


def save(model: Model, path: str | PathLike[str], *, opset: int | None = None, **options: Any) -> None:
    """Write ``model`` in the format that the suffix names: ONNX in the version ``opset``, OpenVINO IR 11 as ``.xml`` with
    ``.bin``.

    Without ``opset`` an ONNX model keeps its own; a model from elsewhere gets the default of ``formats.onnx.write``.
    ``external``: for ONNX, put tensors into one file beside. Files are replaced whole or not at all. Raises UnsupportedError
    with all nodes that the target cannot say, and [write.mismatch] where what would be written does not mean the same.
    """
    with collector_paused():
        _save(model, path, opset, options)


def _save(model: Model, path: str | PathLike[str], opset: int | None, options: dict[str, Any]) -> None:
    if format_of(path) == "onnx":
        from dovetail.formats.onnx.write import save as save_onnx

        save_onnx(model, path, opset=opset, **options)
        return
    if opset is not None:
        raise FormatError("opset.format", "OpenVINO IR has no opset to choose", file=str(path))
    from dovetail.formats.openvino.write import save as save_openvino

    save_openvino(model, path, **options)
