"""Run f16 and bf16 operators in f32: cast inputs to f32, round each result once.

f32 represents every f16 and bf16 value. Each value between two operators keeps its type and is rounded to it; intermediate
results inside an operator (terms of a sum) are rounded to f32 instead of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import numpy as np

from dovetail.engine.rewrite.nms import NmsTable
from dovetail.engine.rewrite.qdq_fusion import QuantizedConv
from dovetail.engine.select.elementwise_codegen import HALF_TYPES, INSTRUCTIONS
from dovetail.engine.select.kernels import KERNELS
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, host_inputs
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor
from dovetail.laws.fold import fold
from dovetail.ops.attention.attention import Attention, ScaledDotProductAttention
from dovetail.ops.attention.rotary_embedding import RotaryEmbedding
from dovetail.ops.elementwise.activation import Relu
from dovetail.ops.elementwise.cast import Cast, CastLike
from dovetail.ops.elementwise.clip import Clip, finite_range
from dovetail.ops.elementwise.unary import Abs, Negative
from dovetail.ops.linalg.einsum import Einsum
from dovetail.ops.ml.label_encoder import LabelEncoder
from dovetail.ops.nn.group_conv import GroupConv
from dovetail.ops.nn.lrn import LpNormalization, NormalizeL2
from dovetail.ops.nn.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from dovetail.ops.quantization.matmul_nbits import MatMulNBits
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, QuantizeLinear
from dovetail.ops.random import RandomUniform
from dovetail.ops.recurrent.cells import GRUCell, LSTMCell, RNNCell
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN
from dovetail.ops.tensor.gather import Gather, GatherElements, GatherND
from dovetail.ops.tensor.onehot_trilu_eye import Trilu
from dovetail.ops.tensor.scatter import ScatterElements, ScatterND, ScatterUpdate
from dovetail.ops.tensor.shape import Range

DECOMPOSED: frozenset[type[Op]] = frozenset(
    {
        Attention,
        BatchNormalization,
        Einsum,
        GRU,
        GRUCell,
        GroupConv,
        GroupNormalization,
        InstanceNormalization,
        LSTM,
        LSTMCell,
        LpNormalization,
        MatMulNBits,
        MeanVarianceNormalization,
        NormalizeL2,
        RMSNormalization,
        RNN,
        RNNCell,
        RotaryEmbedding,
        ScaledDotProductAttention,
    }
)
"""Operators that later rewrites decompose into operators with f32 kernels."""
TYPE_PRESERVING: frozenset[type[Op]] = frozenset(
    {
        Cast,
        CastLike,
        DequantizeLinear,
        Gather,
        GatherElements,
        GatherND,
        LabelEncoder,
        NmsTable,
        QuantizeLinear,
        QuantizedConv,
        RandomUniform,
        Range,
        ScatterElements,
        ScatterND,
        ScatterUpdate,
        Trilu,
    }
)
"""Operators that convert types themselves, move elements of any type, or are defined by the rounding of their own type."""
COMPUTED_IN_F32: frozenset[type[Op]] = frozenset({*INSTRUCTIONS, *KERNELS, *DECOMPOSED}) - TYPE_PRESERVING
COMMUTES_WITH_ROUNDING = (Abs, Clip, Negative, Relu)
"""Operators that give the same result before and after rounding: they read the unrounded value, and so fuse with its kernel."""

Rule = Callable[[Builder, Node], "list[Value] | None"]


def compute_half_in_f32(graph: Graph) -> None:
    """Enclose every operator of :data:`COMPUTED_IN_F32` with half-precision values between casts to f32 and back."""
    if not any(_is_half(value) for node in graph.nodes for value in (*node.inputs, *node.outputs)):
        return
    fold(graph)  # Weights are constants before their casts: folding would leave a cast of a large constant.
    rewrite(graph, _create_rule())
    remove_dead(graph)


def _create_rule() -> Rule:
    shared_casts: dict[int, Value] = {}

    def rule(b: Builder, node: Node) -> list[Value] | None:
        kind = type(node.op)
        if kind not in COMPUTED_IN_F32 or not any(_is_half(value) for value in (*node.inputs, *node.outputs)):
            return None
        hosts = host_inputs(node.op, len(node.inputs))
        if any(is_host and _is_half(x) for is_host, x in zip(hosts, node.inputs, strict=True)):
            return None
        # Determined before the input has a second reader, its cast to f32.
        unrounded = _unrounded_source_of(b, node.inputs[0]) if isinstance(node.op, COMMUTES_WITH_ROUNDING) else None
        # Casts for elementwise operators are not shared: each becomes part of a fused kernel.
        is_fused = kind in INSTRUCTIONS
        xs = [_cast_to_f32(b, x, {} if is_fused else shared_casts) if _is_half(x) else x for x in node.inputs]
        if unrounded is not None:
            xs = [unrounded, *xs[1:]]
        if isinstance(node.op, Clip):
            xs = _with_bounds(b, node.inputs, xs)
        results = b.add(node.op, *xs)
        return [_round_like(b, new, old) for new, old in zip(results, node.outputs, strict=True)]

    return rule


def _with_bounds(b: Builder, inputs: list[Value | None], xs: list[Value | None]) -> list[Value | None]:
    """Return the inputs of Clip with an omitted bound as the last finite value of the model's own type."""
    x, *_ = inputs
    assert x is not None
    lowest, highest = (b.constant(np.float32(end)) for end in finite_range(x.dtype))
    wide, low, high = (*xs, None, None)[:3]
    return [wide, low or lowest, high or highest]


def _is_half(value: Value | None) -> TypeGuard[Value]:
    return value is not None and isinstance(value.type, Tensor) and value.type.dtype in HALF_TYPES


def _cast_to_f32(b: Builder, x: Value, casts: dict[int, Value]) -> Value:
    """Return a value as f32; ``casts`` are those written before, by the identity of their source."""
    if x.constant is not None:
        return b.constant(np.asarray(x.constant).astype(np.float32))
    if id(x) not in casts:
        (casts[id(x)],) = b.add(Cast(dtypes.f32), x)
    return casts[id(x)]


def _round_like(b: Builder, new: Value, old: Value) -> Value:
    if not _is_half(old):
        return new
    cast: Value
    (cast,) = b.add(Cast(old.dtype), new)
    return cast


def _unrounded_source_of(b: Builder, x: Value | None) -> Value | None:
    """Return the f32 value that ``x`` is rounded from, where nothing else reads ``x``."""
    assert x is not None
    if x.node is None or not isinstance(x.node.op, Cast) or len(x.uses) != 1 or x in b.graph.outputs:
        return None
    (source,) = x.node.inputs
    assert source is not None
    return source if source.dtype is dtypes.f32 else None
