"""Import FlexAttention, attention with subgraphs that modify scores and weights; the subgraphs are inlined."""

from __future__ import annotations

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.graph import Value
from dovetail.ops.attention.attention import Attention
from dovetail.ops.attention.heads import default_scale, multiply_grouped_heads
from dovetail.ops.casts import as_type, wide_type


@ONNX.importer("FlexAttention", 1, domain="ai.onnx.preview")
def import_flex_attention(ctx: ImportContext) -> Value:
    """Import FlexAttention: the subgraph score_mod modifies the scores, prob_mod the softmax of the scores."""
    b, (q, k, v) = ctx.b, (ctx.input(index) for index in range(3))
    if {len(x.dims) for x in (q, k, v)} != {4}:
        raise FormatError("shape.rank", f"FlexAttention: q, k and v must have rank 4, got {q.type}, {k.type}, {v.type}")
    number = ctx.attribute("scale", "float", None)
    kind, wide = q.dtype, wide_type(q.dtype)
    precision = ctx.attribute("softmax_precision", "DType", wide)
    if not precision.is_float or dtypes.dtype(precision).bits < 16:
        raise UnsupportedError("attribute.value", f"FlexAttention: softmax_precision {precision} is not supported")
    if not {"score_mod", "prob_mod"} & ctx.node.attributes.keys():
        return b.add(Attention(scale=number, softmax_precision=precision), q, k, v)[0]
    q, k, v = (as_type(b, x, wide) for x in (q, k, v))
    scores = multiply_grouped_heads(b, q, k, default_scale(b, q) if number is None else b.constant(number, wide))
    weights = b.Softmax(_apply_subgraph(ctx, "score_mod", as_type(b, scores, precision)), axis=-1)
    weights = as_type(b, _apply_subgraph(ctx, "prob_mod", weights), wide)
    attended: Value = as_type(b, multiply_grouped_heads(b, weights, v), kind)
    return attended


def _apply_subgraph(ctx: ImportContext, name: str, x: Value) -> Value:
    """Inline the subgraph of attribute ``name`` with input ``x``, and return its output; return ``x`` without the attribute."""
    if name not in ctx.node.attributes:
        return x
    foreign = ctx.attribute(name, "Graph")
    if len(foreign.inputs) != 1 or len(foreign.outputs) != 1:
        raise FormatError(
            "attribute.value",
            f"FlexAttention: {name} must have 1 input and 1 output, got {len(foreign.inputs)} and {len(foreign.outputs)}",
        )
    captures: list[Value] = []
    faults = ctx.error_count
    body = ctx.import_subgraph(foreign, captures)
    (y,) = ctx.inline_subgraph(body, [x, *captures], faults)
    if ctx.error_count > faults:
        return y
    if y.type.__class__ is not x.type.__class__ or y.dtype is not x.dtype or len(y.dims) != 4:
        raise FormatError("attribute.value", f"FlexAttention: {name} must keep the type {x.type}, got {y.type}")
    return y
