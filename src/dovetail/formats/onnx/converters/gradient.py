"""The operator that stands for the gradients of what was computed before it."""

from __future__ import annotations

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Value
from dovetail.ir.types import Tensor


@ONNX.importer("Gradient", 1, domain="ai.onnx.preview.training")
def import_gradient(ctx: ImportContext) -> list[Value]:
    """Written out, where it is taken at the values of the graph itself, of one number."""
    from dovetail.autodiff import adjoints

    named = ctx.attribute("xs", "tuple[str, ...]"), ctx.attribute("zs", "tuple[str, ...]", ())
    target = _found(ctx, ctx.attribute("y", "str"))
    wanted = [_found(ctx, name) for part in named for name in part]
    given = [ctx.input(place) for place in range(len(ctx.inputs))]
    if len(wanted) != len(given):
        raise FormatError("node.inputs", f"Gradient names {len(wanted)} tensors, and has {len(given)} inputs")
    if any(x is not y for x, y in zip(wanted, given, strict=True)):
        raise UnsupportedError("attribute.value", "Gradient with xs: at other values than those of the graph")
    sources = wanted[: len(named[0])]
    for value in (target, *sources):
        if not isinstance(value.type, Tensor) or value.type.dtype is None or not value.type.dtype.is_float:
            raise FormatError("attribute.value", f"Gradient: {value.name!r} is {value.type}; only float tensors have gradients")
    if target.shape != ():
        raise UnsupportedError("attribute.value", f"Gradient with y: {target.type} is not one number")
    b = ctx.b
    return adjoints(b, [target], [b.constant(np.ones((), target.dtype.numpy), target.dtype)], sources)


def _found(ctx: ImportContext, name: str) -> Value:
    value = ctx.scope.values.get(name)
    if value is None:
        raise FormatError("attribute.value", f"Gradient: there is no {name!r} in this graph before it")
    return value


__all__ = ["import_gradient"]
