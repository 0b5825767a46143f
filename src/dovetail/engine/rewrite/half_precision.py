"""Floats of 16 bits, for which no kernel computes: each operator on f32, which holds them all, its result rounded once.

Every value between two operators keeps its type, and is rounded to it; what an operator rounds on its own way (terms of a sum)
is rounded to f32 and not to 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from dovetail import dtypes
from dovetail.engine.select.elementwise_codegen import HALVES, RULES
from dovetail.engine.select.kernels import KERNELS
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import host_inputs
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor
from dovetail.ops.elementwise.activation import Relu
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.elementwise.clip import Clip, finite_range
from dovetail.ops.elementwise.unary import Abs, Negative
from dovetail.passes.fold import fold

TAKEN_APART = (
    "Attention BatchNormalization Einsum GRU GRUCell GroupConv GroupNormalization InstanceNormalization LSTM LSTMCell "
    "LpNormalization MatMulNBits MeanVarianceNormalization NormalizeL2 RMSNormalization RNN RNNCell RotaryEmbedding "
    "ScaledDotProductAttention"
).split()
"""Operators whose parts have kernels."""
AS_THEY_ARE = "Cast CastLike DequantizeLinear Gather GatherElements GatherND QuantizeLinear Range QuantizedConv NmsTable".split()
"""Operators that change types themselves, look at none, or whose grids lie by the roundings of their own type."""
WIDENED = frozenset({*RULES, *KERNELS, *TAKEN_APART}.difference(AS_THEY_ARE))
SAME_AFTER = (Abs, Clip, Negative, Relu)
"""Operators that make the same of a number and then round it as the other way round: they go into the kernel that made it."""


def computed_in_f32(graph: Graph) -> None:
    """Put every operator of :data:`WIDENED` that has floats of 16 bits between a cast to f32 and one back."""
    if not any(_is_half(value) for node in graph.nodes for value in (*node.inputs, *node.outputs)):
        return
    fold(graph)  # What weights are made of: a cast of something large would not be folded.
    rewrite(graph, _rule())
    remove_dead(graph)


def _rule() -> Callable[[Builder, Node], Any]:
    shared: dict[int, Value] = {}

    def rule(b: Builder, node: Node) -> Any:
        name = type(node.op).__name__
        if name not in WIDENED or not any(_is_half(value) for value in (*node.inputs, *node.outputs)):
            return None
        hosts = host_inputs(node.op, len(node.inputs))
        if any(host and _is_half(x) for host, x in zip(hosts, node.inputs, strict=True)):
            return None
        is_kernel = name not in RULES
        # Asked before the input has another reader, its cast to f32.
        before = _before_rounding(b, node.inputs[0]) if isinstance(node.op, SAME_AFTER) else None
        xs = [_wide(b, x, shared if is_kernel else {}) if _is_half(x) else x for x in node.inputs]
        if before is not None:
            xs = [before, *xs[1:]]
        if isinstance(node.op, Clip):
            xs = _bounded(b, node.inputs, xs)
        made = b.add(node.op, *xs)
        return [_narrow(b, new, old) for new, old in zip(made, node.outputs, strict=True)]

    return rule


def _bounded(b: Builder, inputs: list[Value | None], xs: list[Value | None]) -> list[Value | None]:
    """A bound left out is the last finite value of the model's own type."""
    x, *_ = inputs
    assert x is not None
    least, greatest = (b.constant(np.float32(end)) for end in finite_range(x.dtype))
    wide, low, high = (*xs, None, None)[:3]
    return [wide, low or least, high or greatest]


def _is_half(value: Value | None) -> TypeGuard[Value]:
    return value is not None and isinstance(value.type, Tensor) and value.type.dtype in HALVES


def _wide(b: Builder, x: Value, shared: dict[int, Value]) -> Value:
    """A value as f32. What elementwise operators read is cast for each of them anew: it is part of their work."""
    if x.constant is not None:
        return b.constant(np.asarray(x.constant).astype(np.float32))
    if id(x) not in shared:
        (shared[id(x)],) = b.add(Cast(dtypes.f32), x)
    return shared[id(x)]


def _narrow(b: Builder, new: Value, old: Value) -> Value:
    if not _is_half(old):
        return new
    cast: Value
    (cast,) = b.add(Cast(old.dtype), new)
    return cast


def _before_rounding(b: Builder, x: Value | None) -> Value | None:
    """What ``x`` is the rounding of, where nobody else needs it."""
    assert x is not None
    if x.node is None or not isinstance(x.node.op, Cast) or len(x.uses) != 1 or x in b.graph.outputs:
        return None
    (source,) = x.node.inputs
    assert source is not None
    return source if source.dtype is dtypes.f32 else None
