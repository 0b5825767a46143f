"""Converters for random operators, which in OpenVINO have two integer seeds; seeds 0 and 0 draw new numbers in each run."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO, encode_attribute
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ops.random import RandomUniform
from dovetail.ops.shape_values import as_i64

_EXACT = 2**53


@OPENVINO.importer("RandomUniform", 8)
def import_random_uniform(ctx: ImportContext) -> list[Value]:
    kind = ctx.attribute("output_type", "DType")
    first, second = (ctx.attribute(name, "int", 0) for name in ("global_seed", "op_seed"))
    alignment = ctx.attribute("alignment", "str", "tensorflow")
    if alignment not in ("tensorflow", "pytorch"):
        raise UnsupportedError("attribute.value", f"RandomUniform: alignment must be tensorflow or pytorch, got {alignment!r}")
    shape, low, high = (ctx.input(index) for index in range(3))
    if low.dtype is not kind or high.dtype is not kind:
        raise UnsupportedError(
            "attribute.value", f"RandomUniform: bounds must have the type {kind}, got {low.dtype} and {high.dtype}"
        )
    if not first and not second:
        first = next(ctx.scope.draws)
    return ctx.b.add(RandomUniform(float(first % _EXACT), second), shape, low, high)


@OPENVINO.importer("Multinomial", 13)
def import_multinomial(ctx: ImportContext) -> Value:
    """Import Multinomial: samples without replacement are the TopK of log-probabilities plus Gumbel noise."""
    b, x = ctx.b, ctx.input_of_rank(0, 2)
    kind = ctx.attribute("convert_type", "DType")
    is_repeated, is_log = ctx.attribute("with_replacement", "bool"), ctx.attribute("log_probs", "bool")
    first, second = (ctx.attribute(name, "int", 0) for name in ("global_seed", "op_seed"))
    count = ctx.attribute_or_input(1, "int")
    if not first and not second:
        first = next(ctx.scope.draws)
    seeds = {"seed": float(first % _EXACT), "op_seed": second}
    result: Value
    x = x if is_log else b.Log(x)
    if is_repeated:
        result = b.apply("Multinomial", x, sample_size=count, dtype=kind, **seeds)
        return result
    zero, one = (b.constant(np.array(number, x.dtype.numpy), x.dtype) for number in (0, 1))
    share = b.apply("RandomUniform", shape_value(b, x), zero, one, **seeds)
    drawn = b.Subtract(x, b.Log(b.Negative(b.Log(b.Subtract(one, share)))))
    k = b.Reshape(as_i64(b, count), [1]) if isinstance(count, Value) else b.constant(np.array([count]))
    result = b.apply("TopK", drawn, k, axis=-1, index_element_type=kind)[1]
    return result


@OPENVINO.exporter("RandomUniform")
def export_uniform(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    # A seed that OpenVINO cannot represent (a fraction, infinity, beyond 2**53) is replaced by its f32 bit pattern.
    is_whole = 0 <= op.seed < _EXACT and op.seed == int(op.seed)
    seed = int(op.seed) if is_whole else int(np.float32(op.seed).view(np.uint32))
    attributes = {
        "output_type": encode_attribute(node.outputs[0].dtype),
        "global_seed": encode_attribute(seed if seed or op.op_seed else _EXACT - 1),
        "op_seed": encode_attribute(op.op_seed),
        "alignment": "tensorflow",
    }
    return [ctx.add_node(node, "", "RandomUniform", 8, [ctx.key(x) for x in node.inputs], attributes)]
