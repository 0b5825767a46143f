"""Export a model to OpenVINO IR, with operator versions, variables, metadata and files."""

from __future__ import annotations

import os
from os import PathLike
from typing import BinaryIO

from dovetail.errors import Diagnostic, FormatError
from dovetail.formats import roundtrip_metadata
from dovetail.formats.default_inputs import freeze_defaults
from dovetail.formats.exporter import export_model
from dovetail.formats.fixpoint import Snapshot, find_fixpoint
from dovetail.formats.foreign import ForeignModel
from dovetail.formats.openvino import codec, opsets, rt_info
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.formats.openvino.read import import_openvino
from dovetail.formats.openvino.variables import add_variables
from dovetail.formats.readback import check_readback, log_decompositions
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.laws.ranks import has_open_rank, specialize_ranks
from dovetail.ops.default_inputs import default_inputs
from dovetail.storage.deviations import WRITING, Deviations, log

NEWEST = 17
"""The newest opset whose operators are exported; opset 17 is needed because older opsets lack its new operators."""


def version_of(domain: str, kind: str) -> int | None:
    """Return the version of an operator in exported models, the newest up to NEWEST; None for an unknown operator."""
    if domain:
        return 1
    return max((version for version in opsets.VERSIONS.get(kind, ()) if version <= NEWEST), default=None)


def to_foreign(model: Model) -> ForeignModel:
    """Export ``model`` to IR. Raises UnsupportedError [op.unsayable] with every node that cannot be exported."""
    model = freeze_defaults(model)
    if model.format != "openvino" and has_open_rank(model.graph):
        model = copy_model(model, specialize_ranks(model.graph))
    foreign = export_model(model, OPENVINO, version_of, drop_identities=True)
    add_variables(model, foreign)
    foreign.versions = {"ir": 11}
    if model.format == "openvino":
        foreign.metadata = {name: item for name, item in model.metadata.items() if name != "onnx"}
    else:
        foreign.metadata = roundtrip_metadata.openvino_metadata_of(model)
        roundtrip_metadata.restore_ports(foreign)
        names = foreign.metadata.pop("names", {})
        for value in (*foreign.graph.inputs, *foreign.graph.outputs, *foreign.graph.values.values()):
            extra = names.get(value.names[0]) if value.names else None
            if extra:
                value.names = (*value.names, *(name for name in extra if name not in value.names))
    info = roundtrip_metadata.without_onnx_record(list(foreign.metadata.get("rt_info", [])))
    if model.format != "openvino" or "onnx" in model.metadata:
        rt_info.set_value(info, roundtrip_metadata.encode_onnx(model), *roundtrip_metadata.PATH)
    foreign.metadata["rt_info"] = info
    return foreign


def _import_again(snapshot: Snapshot) -> Model:
    foreign = codec.read_snapshot(snapshot)
    roundtrip_metadata.restore_onnx(foreign)
    deviations = Deviations()
    model = import_openvino(foreign, deviations)
    model.warnings += deviations.warnings()
    return model


def reload(model: Model) -> Model:
    """Return the model that results from saving and loading ``model`` in memory, with shared weights.

    Raises the errors of to_foreign.
    """
    return _import_again(codec.snapshot_of(to_foreign(model)))


def save(
    model: Model,
    path: str | PathLike[str] | BinaryIO,
    *,
    weights: str | PathLike[str] | BinaryIO | None = None,
) -> None:
    """Write ``model`` as IR 11: the XML to ``path``, and the constants to ``weights`` (default: the .bin file of the same stem).

    Both files are replaced, or neither. ``path`` and ``weights`` may be binary file objects; raises FormatError
    [argument.conflict] if only one of them is. Raises UnsupportedError [write.mismatch] like :func:`check_readback`, before any
    file is written.
    """
    if names := default_inputs(model.graph):
        message = f"IR has no optional inputs: {', '.join(names)} became constants with their default values"
        log(
            [Diagnostic("default.frozen", message, severity="warning")],
            os.fspath(path) if isinstance(path, str | PathLike) else "",
            WRITING,
        )
    first = to_foreign(model)
    foreign, read_back = find_fixpoint(first, codec.snapshot_of, _import_again, to_foreign)
    check_readback(model, foreign, OPENVINO, read_back)
    if foreign is not first:
        check_readback(model, first, OPENVINO)
    if isinstance(path, str | PathLike) and (weights is None or isinstance(weights, str | PathLike)):
        codec.write(foreign, path, weights_path=weights)
    elif isinstance(path, str | PathLike) or weights is None or isinstance(weights, str | PathLike):
        got = f"{type(path).__name__} and {type(weights).__name__}"
        raise FormatError("argument.conflict", f"IR needs two paths or two binary file objects, got {got}")
    else:
        codec.write_streams(foreign, path, weights)
    log_decompositions(first, path)
