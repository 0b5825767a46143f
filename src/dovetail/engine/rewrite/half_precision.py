"""Run f16 and bf16 operators in f32: cast inputs to f32, round each result once.

f32 represents every f16 and bf16 value. Each value between two operators keeps its type and is rounded to it; intermediate
results inside an operator (terms of a sum) are rounded to f32 instead of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import numpy as np

from dovetail.engine.select.elementwise_codegen import HALF_TYPES, INSTRUCTIONS
from dovetail.engine.select.kernels import selector_of
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, host_inputs
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor
from dovetail.laws.fold import fold
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.elementwise.clip import Clip, finite_range

Rule = Callable[[Builder, Node], "list[Value] | None"]


def compute_half_in_f32(graph: Graph) -> None:
    """Insert casts to f32 and back around every operator that has half-precision values and is computed in f32."""
    if not any(_is_half(value) for node in graph.nodes for value in (*node.inputs, *node.outputs)):
        return
    # Fold before casts are inserted: weights are then constants, while a later fold would leave casts of large constants.
    fold(graph)
    rewrite(graph, _create_rule())
    remove_dead(graph)


def _create_rule() -> Rule:
    shared_casts: dict[int, Value] = {}

    def rule(b: Builder, node: Node) -> list[Value] | None:
        kind = type(node.op)
        if not _is_computed_in_f32(kind) or not any(_is_half(value) for value in (*node.inputs, *node.outputs)):
            return None
        hosts = host_inputs(node.op, len(node.inputs))
        if any(is_host and _is_half(x) for is_host, x in zip(hosts, node.inputs, strict=True)):
            return None
        # The unrounded source is looked up first, because the cast to f32 becomes a second reader of the input.
        unrounded = _unrounded_source_of(b, node.inputs[0]) if kind.commutes_with_rounding else None
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


def _is_computed_in_f32(kind: type[Op]) -> bool:
    has_f32_kernels = kind in INSTRUCTIONS or selector_of(kind) is not None or kind.decomposes_in_f32
    return has_f32_kernels and kind.rounds_half_once and not kind.moves_elements


def _with_bounds(b: Builder, inputs: list[Value | None], xs: list[Value | None]) -> list[Value | None]:
    """Return the inputs of Clip, with the lowest and highest finite value of the half-precision type for omitted bounds."""
    x, *_ = inputs
    assert x is not None
    lowest, highest = (b.constant(np.float32(end)) for end in finite_range(x.dtype))
    wide, low, high = (*xs, None, None)[:3]
    return [wide, low or lowest, high or highest]


def _is_half(value: Value | None) -> TypeGuard[Value]:
    return value is not None and isinstance(value.type, Tensor) and value.type.dtype in HALF_TYPES


def _cast_to_f32(b: Builder, x: Value, casts: dict[int, Value]) -> Value:
    """Return a value as f32; ``casts`` holds the casts added so far, by the ``id`` of their source."""
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
    """Return the f32 value from which ``x`` is rounded, if ``x`` has one reader; else None."""
    assert x is not None
    if x.node is None or not isinstance(x.node.op, Cast) or len(x.uses) != 1 or x in b.graph.outputs:
        return None
    (source,) = x.node.inputs
    assert source is not None
    return source if source.dtype is dtypes.f32 else None
