"""Replace optional inputs by constants, for engines and formats without optional inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.errors import DovetailError
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import counting
from dovetail.ops.constant import preserved_faults
from dovetail.ops.default_inputs import default_inputs, freeze_in_graph


def freeze_defaults(model: Model, data: Mapping[str, Any] | None = None) -> Model:
    """Return ``model`` with every DefaultInput replaced by a Constant: its array in ``data`` by name, or its default.

    Nodes that the import preserved because an input was not constant are imported again. Raises the errors of
    :func:`dovetail.infer`.
    """
    if not default_inputs(model.graph):
        return model
    new = copy_model(model)
    freeze_in_graph(new.graph, data)
    with counting(new.limits):
        infer_graph(new.graph, file=new.file)
        if next(preserved_faults(new.graph), None) is None or new.format != "onnx":
            return new
        # Deferred for start-up time: a model without optional inputs does not need the ONNX converters.
        from dovetail.formats.onnx.write import reload

        try:
            loaded = reload(new)
        except DovetailError:
            # The model was edited, and its opset cannot express the new nodes.
            return new
        loaded.limits, loaded.file = new.limits, new.file
        return loaded
