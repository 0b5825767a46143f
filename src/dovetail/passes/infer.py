"""Inference of types, shapes and shape values, by the rules of the operators."""

from __future__ import annotations

from dovetail.errors import DovetailError, raise_all
from dovetail.ir.builder import describe_op
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Graph, Model
from dovetail.ir.op import infer_types, infer_values
from dovetail.ir.types import UNKNOWN, Tensor, Type, is_unnamed
from dovetail.limits import counting


def infer_graph(graph: Graph, *, file: str | None = None) -> int:
    """Infer every value of ``graph`` anew from its inputs' types. Returns how many types changed.

    Raises the first RuleError, with all independent ones in its ``diagnostics``.
    """
    errors: list[DovetailError] = []
    changed = 0
    for node in graph.nodes:
        op = node.op
        if type(op).__name__ == "Constant" or type(op).__name__ == "Foreign":
            if (fault := getattr(op, "fault", None)) is not None:
                errors.append(fault)
            continue
        xs = tuple(node.inputs)
        try:
            types = infer_types(op, xs, node.outputs[0].name if node.outputs else "")
        except DovetailError as error:
            errors.append(error.at(node=node.label, op=describe_op(op, xs), file=file))
            for y in node.outputs:
                y.type = UNKNOWN
            continue
        values = infer_values(op, xs, types)
        for y, type_, value in zip(node.outputs, types, values, strict=True):
            result = keep_names(type_, y.type)
            if result != y.type:
                y.type = result
                changed += 1
            y._value = value
    raise_all(errors, "faults while inferring types")
    return changed


def keep_names(new: Type, old: Type) -> Type:
    """Return the new type with the named sizes of the old one where the new one leaves them unnamed."""
    if not isinstance(new, Tensor) or not isinstance(old, Tensor) or old.shape is None:
        return new
    if new.shape is None:
        return Tensor(new.dtype or old.dtype, old.shape)
    if len(new.shape) != len(old.shape):
        return new
    sizes = tuple(
        old_ if is_unnamed(new_) and not isinstance(old_, int) and not is_unnamed(old_) else new_
        for new_, old_ in zip(new.shape, old.shape, strict=True)
    )
    return Tensor(new.dtype or old.dtype, sizes)


def infer(model: Model) -> Model:
    """Return a copy of ``model`` with types, shapes and shape values on every value.

    Raises RuleError with every independent fault in its ``diagnostics``.
    """
    new = copy_model(model)
    with counting(model.limits):
        infer_graph(new.graph, file=new.file)
    return new


__all__ = ["infer", "infer_graph", "keep_names"]
