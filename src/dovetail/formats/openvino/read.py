"""Import a foreign OpenVINO IR model as a graph."""

from __future__ import annotations

from dovetail.formats.foreign import ForeignModel
from dovetail.formats.importer import import_model
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Model
from dovetail.storage.deviations import Deviations


def import_openvino(foreign: ForeignModel, deviations: Deviations | None = None) -> Model:
    """Import an OpenVINO IR model; see :func:`import_model`."""
    return import_model(foreign, OPENVINO, deviations)
