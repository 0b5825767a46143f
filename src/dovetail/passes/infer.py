"""Types, shapes and shape values on every value, from the rules of the operators."""

from __future__ import annotations

from dovetail.edit import copy_model
from dovetail.graph import Model
from dovetail.inference import infer_graph
from dovetail.limits import counting


def infer(model: Model) -> Model:
    """A copy of ``model`` with types, shapes and shape values on every value.

    Raises RuleError with every independent fault in its ``diagnostics``.
    """
    new = copy_model(model)
    with counting(model.limits):
        infer_graph(new.graph, file=new.file)
    return new


__all__ = ["infer", "infer_graph"]
