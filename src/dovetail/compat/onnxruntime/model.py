"""Reading of a session's model: the options that change it, and the inputs and outputs that its file declares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from dovetail.compat.onnxruntime.node_args import ModelMetadata, NodeArg, metadata_of, node_arg
from dovetail.compat.onnxruntime.options import SessionOptions
from dovetail.errors import MissingFileError, UnsupportedError
from dovetail.formats import import_foreign, read
from dovetail.formats.foreign import ForeignModel, ForeignValue
from dovetail.formats.model_source import SUFFIXES, ModelSource, resolve_source
from dovetail.ir import symbolic
from dovetail.ir.graph import Model
from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.limits import counting, default_limits, within_memory
from dovetail.ir.substitution import map_sizes
from dovetail.ir.types import Optional, Size, Tensor, Type
from dovetail.ops.default_inputs import default_inputs
from dovetail.passes.edit import with_constants
from dovetail.storage.deviations import Deviations, log


@dataclass(frozen=True)
class SessionModel:
    """SessionModel is a model with its inputs, outputs and optional inputs as onnxruntime describes them."""

    model: Model
    inputs: list[NodeArg]
    outputs: list[NodeArg]
    optional: list[NodeArg]
    metadata: ModelMetadata


def read_model(source: str | bytes, options: SessionOptions, *, open_sizes: bool = False) -> SessionModel:
    """Read a model, and apply the initializers and the sizes of ``options``.

    ``open_sizes``: forget the names of dimensions and the declared types of all values but the inputs, because onnxruntime does
    not check them. Raises the errors of :func:`dovetail.load`.
    """
    resolved = _resolve(source)
    deviations = Deviations()
    with pause_gc(), counting(default_limits()), within_memory("the model", resolved.file):
        foreign = read(resolved, deviations=deviations)
        _fix_sizes(foreign, options)
        declared = {value.name: value.type for value in foreign.graph.outputs}
        if open_sizes:
            _open_sizes(foreign)
        model = import_foreign(foreign, deviations)
    log(deviations.warnings(), resolved.file or "the model")
    constants = {value.name for value in model.graph.values() if value.constant is not None}
    data = {name: value.numpy() for name, value in options._initializers.items() if name in constants}
    model = with_constants(model, data) if data else model
    return SessionModel(
        model,
        [node_arg(value.name, value.metadata.get("declared", value.type)) for value in model.inputs],
        [node_arg(value.name, value.type, declared.get(value.name)) for value in model.outputs],
        [node_arg(name, node.outputs[0].type) for name, node in default_inputs(model.graph).items()],
        metadata_of(model),
    )


def _resolve(source: str | bytes) -> ModelSource:
    """Return the source of a model; a file whose name ends in no suffix of a model format is ONNX, as in onnxruntime."""
    if isinstance(source, bytes) or Path(source).suffix.lower() in SUFFIXES:
        return resolve_source(source)
    if Path(source).suffix.lower() == ".ort":
        raise UnsupportedError("format.unknown", "models in the ORT format are not read: convert the ONNX file", file=source)
    if not os.path.exists(source):
        raise MissingFileError("file.missing", f"the file {source!r} does not exist", file=source)
    return ModelSource(source, source, "onnx")


def _fix_sizes(foreign: ForeignModel, options: SessionOptions) -> None:
    """Replace the dimensions that the options give a fixed size."""
    by_name = options._sizes_by_name
    by_denotation = {
        name: options._sizes_by_denotation[text]
        for value in foreign.graph.inputs
        for name, text in _denotations(value)
        if text in options._sizes_by_denotation
    }
    sizes = {**by_denotation, **by_name}
    if sizes:
        _replace_sizes(foreign, lambda size: symbolic.substitute(size, sizes))


def _denotations(value: ForeignValue) -> Iterator[tuple[str, str]]:
    """Yield the name and the denotation of each named dimension of an input."""
    notes: Mapping[str, str] = value.metadata.get("denotations", {})
    for axis, size in enumerate(_tensor(value.type).shape or ()):
        name = symbolic.name_of(size)
        if name is not None and str(axis) in notes:
            yield name, notes[str(axis)]


def _tensor(type: Type | None) -> Tensor:
    inner = type.element if isinstance(type, Optional) else type
    return inner if isinstance(inner, Tensor) else Tensor(None)


def _open_sizes(foreign: ForeignModel) -> None:
    graph = foreign.graph
    numbers = count()
    needed = {*graph.constants, *(value.key for value in graph.inputs)}
    for value in graph.inputs:
        _map_type(value, lambda size: size if isinstance(size, int) else symbolic.symbol(f"?open.{next(numbers)}"))
    graph.values = {key: value for key, value in graph.values.items() if key in needed}
    for value in graph.outputs:
        if isinstance(value.type, Tensor):
            value.type = Tensor(value.type.dtype)


def _replace_sizes(foreign: ForeignModel, function: Callable[[Size], Size]) -> None:
    graph = foreign.graph
    for value in {id(value): value for value in (*graph.inputs, *graph.outputs, *graph.values.values())}.values():
        _map_type(value, function)


def _map_type(value: ForeignValue, function: Callable[[Size], Size]) -> None:
    value.type = None if value.type is None else map_sizes(value.type, function)
