"""Import a foreign ONNX model as a graph."""

from __future__ import annotations

from dovetail.formats.foreign import ForeignModel
from dovetail.formats.importer import import_model
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Model
from dovetail.ir.state import PROPERTY, from_text
from dovetail.storage.deviations import Deviations


def import_onnx(foreign: ForeignModel, deviations: Deviations | None = None) -> Model:
    """Import an ONNX model and the states in its metadata; see :func:`import_model`."""
    model = import_model(foreign, ONNX, deviations)
    model.states = from_text(foreign.metadata.get("metadata_props", {}).get(PROPERTY), model.graph)
    return model
