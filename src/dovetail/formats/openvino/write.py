"""A graph as OpenVINO IR."""

from __future__ import annotations

from os import PathLike

from dovetail.formats import lifted, roundtrip_metadata
from dovetail.formats.deviations import Deviations
from dovetail.formats.exporter import lower
from dovetail.formats.fixpoint import Snapshot, fixpoint
from dovetail.formats.foreign import ForeignModel
from dovetail.formats.openvino import codec, opsets, rt_info
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.formats.openvino.variables import put_variables
from dovetail.formats.readback import check_written
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.passes.specialize_ranks import has_open_rank, specialize_ranks

NEWEST = 17
"""The newest opset whose operators we write: what it brought has no equal before, and nothing else asks for it."""


def version_of(domain: str, kind: str) -> int | None:
    """The version of an operator that we write: the newest one."""
    if domain:
        return 1
    found = [version for version in opsets.VERSIONS.get(kind, ()) if version <= NEWEST]
    return max(found, default=None)


def to_foreign(model: Model) -> ForeignModel:
    """``model`` in the words of OpenVINO. Raises UnsupportedError [op.unsayable] with every node that stands in the way."""
    if model.format != "openvino" and has_open_rank(model.graph):
        model = copy_model(model, specialize_ranks(model.graph))
    foreign = lower(model, OPENVINO, version_of, sink=True)
    put_variables(model, foreign)
    foreign.versions = {"ir": 11}
    if model.format == "openvino":
        foreign.metadata = {name: item for name, item in model.metadata.items() if name != "onnx"}
    else:
        found = roundtrip_metadata.into_onnx(model)
        names = found.pop("names", {})
        foreign.metadata = found
        for value in (*foreign.graph.inputs, *foreign.graph.outputs, *foreign.graph.values.values()):
            extra = names.get(value.names[0]) if value.names else None
            if extra:
                value.names = (*value.names, *(name for name in extra if name not in value.names))
    info = roundtrip_metadata.without_travel(list(foreign.metadata.get("rt_info", [])))
    if model.format != "openvino" or "onnx" in model.metadata:
        rt_info.put(info, roundtrip_metadata.from_onnx(model), *roundtrip_metadata.PATH)
    foreign.metadata["rt_info"] = info
    return foreign


def _lower_again(snapshot: Snapshot) -> ForeignModel:
    foreign = codec.read_snapshot(snapshot)
    roundtrip_metadata.into_ir(foreign)
    return to_foreign(lifted(foreign, Deviations()))


def save(model: Model, path: str | PathLike[str], *, weights: str | PathLike[str] | None = None) -> None:
    """Write ``model`` as IR 11: the xml at ``path`` and the constants beside it (or at ``weights``), both or neither.

    Raises UnsupportedError [write.mismatch] as :func:`check_written`, before anything is written.
    """
    foreign = fixpoint(to_foreign(model), codec.snapshot_of, _lower_again)
    check_written(model, foreign, OPENVINO)
    codec.write(foreign, path, weights_path=weights)
