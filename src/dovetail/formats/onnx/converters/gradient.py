"""Import the operator Gradient of ai.onnx.preview.training."""

from __future__ import annotations

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Value
from dovetail.ir.types import Tensor


@ONNX.importer("Gradient", 1, domain="ai.onnx.preview.training")
def import_gradient(ctx: ImportContext) -> list[Value]:
    """Import Gradient by adding the nodes of the gradients; xs and zs must be values of the graph, and y a scalar."""
    from dovetail.laws.gradients import adjoints

    named = ctx.attribute("xs", "tuple[str, ...]"), ctx.attribute("zs", "tuple[str, ...]", ())
    target = _value_of(ctx, ctx.attribute("y", "str"))
    values = [_value_of(ctx, name) for part in named for name in part]
    inputs = [ctx.input(index) for index in range(len(ctx.inputs))]
    if len(values) != len(inputs):
        raise FormatError("node.inputs", f"Gradient must have one input per name ({len(values)}), got {len(inputs)}")
    if any(x is not y for x, y in zip(values, inputs, strict=True)):
        raise UnsupportedError("attribute.value", "Gradient: each input must be the value that xs or zs names")
    sources = values[: len(named[0])]
    for value in (target, *sources):
        if not isinstance(value.type, Tensor) or value.type.dtype is None or not value.type.dtype.is_float:
            raise FormatError("attribute.value", f"Gradient: {value.name!r} must be a float tensor, got {value.type}")
    if target.shape != ():
        raise UnsupportedError("attribute.value", f"Gradient: y must be a scalar, got {target.type}")
    b = ctx.b
    return adjoints(b, [target], [b.constant(np.ones((), target.dtype.numpy), target.dtype)], sources)


def _value_of(ctx: ImportContext, name: str) -> Value:
    value = ctx.scope.values.get(name)
    if value is None:
        raise FormatError("attribute.value", f"Gradient: an earlier node must produce {name!r}")
    return value
