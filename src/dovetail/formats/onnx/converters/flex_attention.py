"""Attention with graphs of the user's in it, which become part of the graph."""

from __future__ import annotations

from dovetail import dtypes
from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Value
from dovetail.ops.attention.attention import Attention
from dovetail.ops.attention.heads import default_scale, multiply_grouped_heads
from dovetail.ops.casts import as_type, wide_type


@ONNX.importer("FlexAttention", 1, domain="ai.onnx.preview")
def import_flex_attention(ctx: ImportContext) -> Value:
    """Scores, changed by one graph, their softmax, changed by another, and the values that they weigh."""
    b, (q, k, v) = ctx.b, (ctx.input(place) for place in range(3))
    if {len(x.dims) for x in (q, k, v)} != {4}:
        raise FormatError("attention.rank", f"three tensors of rank 4 are needed, not {q.type}, {k.type}, {v.type}")
    number = ctx.attribute("scale", "float", None)
    kind, wide = q.dtype, wide_type(q.dtype)
    precision = ctx.attribute("softmax_precision", "DType", wide)
    if not precision.is_float or dtypes.dtype(precision).bits < 16:
        raise UnsupportedError("attribute.value", f"FlexAttention with softmax_precision {precision}")
    if not {"score_mod", "prob_mod"} & ctx.node.attributes.keys():
        return b.add(Attention(scale=number, softmax_precision=precision), q, k, v)[0]
    q, k, v = (as_type(b, x, wide) for x in (q, k, v))
    scores = multiply_grouped_heads(b, q, k, default_scale(b, q) if number is None else b.constant(number, wide))
    weights = b.Softmax(_changed(ctx, "score_mod", as_type(b, scores, precision)), axis=-1)
    weights = as_type(b, _changed(ctx, "prob_mod", weights), wide)
    found: Value = as_type(b, multiply_grouped_heads(b, weights, v), kind)
    return found


def _changed(ctx: ImportContext, name: str, x: Value) -> Value:
    """What the graph in an attribute makes of ``x``; ``x`` where there is none."""
    if name not in ctx.node.attributes:
        return x
    foreign = ctx.attribute(name, "Graph")
    if len(foreign.inputs) != 1 or len(foreign.outputs) != 1:
        raise FormatError(
            "attribute.value", f"FlexAttention: {name} takes {len(foreign.inputs)} and makes {len(foreign.outputs)}"
        )
    captures: list[Value] = []
    faults = ctx.error_count
    body = ctx.import_subgraph(foreign, captures)
    (y,) = ctx.inline_subgraph(body, [x, *captures], faults)
    if ctx.error_count > faults:
        return y
    if y.type.__class__ is not x.type.__class__ or y.dtype is not x.dtype or len(y.dims) != 4:
        raise FormatError("attribute.value", f"FlexAttention: {name} makes {y.type} of {x.type}")
    return y


__all__ = ["import_flex_attention"]
