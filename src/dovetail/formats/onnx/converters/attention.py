"""Export ScaledDotProductAttention as ONNX Attention, which needs an axis of heads and returns 0 for fully masked rows."""

from __future__ import annotations

import numpy as np

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.attention.attention import Attention, ScaledDotProductAttention


@ONNX.legalize("ScaledDotProductAttention")
def legalize_scaled_dot_product_attention(b: Builder, node: Node) -> Value | list[Value] | None:
    """Legalize ScaledDotProductAttention to Attention if the mask certainly leaves at least one key to every row.

    A target without Attention decomposes Attention further.
    """
    op = node.op
    assert isinstance(op, ScaledDotProductAttention)
    q, k, v, mask, scale, sink = (*node.inputs, None, None, None)[:6]
    assert q is not None and k is not None and v is not None
    mask = None if op.causal or _adds_nothing(mask) else mask
    if sink is not None or not _are_heads(q, k, v) or not _sees_keys(mask) or (scale is not None and scale.constant is None):
        return None
    number = None if scale is None or scale.constant is None else float(scale.constant.reshape(()))
    return b.add(Attention(op.causal, number), q, k, v, *(() if mask is None else (mask,)))


def _adds_nothing(mask: Value | None) -> bool:
    """Return whether a mask is the scalar constant 0, which stands for no mask."""
    return mask is not None and mask.shape == () and mask.constant is not None and not mask.constant.any()


def _are_heads(*xs: Value) -> bool:
    """Return whether all tensors have rank 4, [batch, heads, rows, size], with equal batch and heads."""
    if any(x.shape is None or len(x.shape) != 4 for x in xs):
        return False
    first = xs[0].dims
    return all(symbolic.equal(x.dims[axis], first[axis]) is True for x in xs[1:] for axis in (0, 1))


def _sees_keys(mask: Value | None) -> bool:
    """Return whether the mask certainly leaves at least one key to every row, and has rank 2 to 4."""
    if mask is None:
        return True
    if mask.constant is None or mask.constant.ndim < 2 or mask.constant.ndim > 4:
        return False
    data = mask.constant
    return bool(np.any(data if data.dtype == bool else data != -np.inf, axis=-1).all())
