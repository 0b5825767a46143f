"""Random operators in OpenVINO's words: two whole seeds, of which two zeros mean that each run draws anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.exporter import Lowering
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO, spell
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ops.random import RandomUniform
from dovetail.ops.shape_values import as_i64

_EXACT = 2**53


@OPENVINO.lift("RandomUniform", 8)
def uniform(node: Lifting) -> list[Value]:
    kind = node.attribute("output_type", "DType")
    first, second = (node.attribute(name, "int", 0) for name in ("global_seed", "op_seed"))
    alignment = node.attribute("alignment", "str", "tensorflow")
    if alignment not in ("tensorflow", "pytorch"):
        raise UnsupportedError("random.alignment", f"RandomUniform with alignment {alignment!r}")
    shape, low, high = (node.input(index) for index in range(3))
    if low.dtype is not kind or high.dtype is not kind:
        raise UnsupportedError("random.dtype", f"RandomUniform of {kind} between {low.dtype} and {high.dtype}")
    if not first and not second:
        first = len(node.b.graph.nodes)
    return node.b.add(RandomUniform(float(first % _EXACT), second), shape, low, high)


@OPENVINO.lift("Multinomial", 13)
def multinomial(node: Lifting) -> Value:
    """Without replacement the greatest of what is drawn from Gumbel's distribution and added to the logarithms."""
    b, x = node.b, node.ranked(0, 2)
    kind = node.attribute("convert_type", "DType")
    is_repeated, is_log = node.attribute("with_replacement", "bool"), node.attribute("log_probs", "bool")
    first, second = (node.attribute(name, "int", 0) for name in ("global_seed", "op_seed"))
    count = node.attribute_or_input(1, "int")
    if not first and not second:
        first = len(b.graph.nodes)
    seeds = {"seed": float(first % _EXACT), "op_seed": second}
    result: Value
    x = x if is_log else b.Log(x)
    if is_repeated:
        result = b.apply("Multinomial", x, sample_size=count, dtype=kind, **seeds)
        return result
    zero, one = (b.constant(np.array(number, x.dtype.numpy), x.dtype) for number in (0, 1))
    share = b.apply("RandomUniform", shape_value(b, x), zero, one, **seeds)
    drawn = b.Subtract(x, b.Log(b.Negative(b.Log(b.Subtract(one, share)))))
    most = b.Reshape(as_i64(b, count), [1]) if isinstance(count, Value) else b.constant(np.array([count]))
    result = b.apply("TopK", drawn, most, axis=-1, index_element_type=kind)[1]
    return result


@OPENVINO.emit("RandomUniform")
def emit_uniform(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    # A seed that is no number of OpenVINO's (a fraction, infinity, beyond 2^53) becomes one: its bits.
    is_whole = 0 <= op.seed < _EXACT and op.seed == int(op.seed)
    seed = int(op.seed) if is_whole else int(np.float32(op.seed).view(np.uint32))
    attributes = {
        "output_type": spell(node.outputs[0].dtype),
        "global_seed": spell(seed if seed or op.op_seed else _EXACT - 1),
        "op_seed": spell(op.op_seed),
        "alignment": "tensorflow",
    }
    return [lowering.finish(node, "", "RandomUniform", 8, [lowering.key(x) for x in node.inputs], attributes)]
