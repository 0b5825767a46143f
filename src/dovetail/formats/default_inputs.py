"""Optional inputs as constants, for engines and formats that have none."""

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
    """Return ``model`` with every DefaultInput as a Constant, of ``data`` by name or else of its default.

    Nodes that were preserved because they need constants are imported anew. Raises the errors of :func:`dovetail.infer`.
    """
    if not default_inputs(model.graph):
        return model
    new = copy_model(model)
    freeze_in_graph(new.graph, data)
    with counting(new.limits):
        infer_graph(new.graph, file=new.file)
        if next(preserved_faults(new.graph), None) is None or new.format != "onnx":
            return new
        # Deferred: a model without optional inputs needs no converters of ONNX.
        from dovetail.formats.onnx.write import reload

        try:
            loaded = reload(new)
        except DovetailError:
            # The model has been edited to what its opset cannot express.
            return new
        loaded.limits, loaded.file = new.limits, new.file
        return loaded
