"""Export Attention as OpenVINO's ScaledDotProductAttention, which returns NaN for fully masked rows; ONNX returns 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.attention.attention import Attention, ScaledDotProductAttention
from dovetail.ops.attention.heads import axis_size_of, default_scale, make_window_mask, split_heads


@OPENVINO.legalize("Attention")
def legalize_attention(b: Builder, node: Node) -> Any:
    """Legalize Attention to ScaledDotProductAttention.

    The mask must certainly leave at least one key to every row, and the numbers of query heads and key heads must be equal.
    """
    op = node.op
    assert isinstance(op, Attention)
    q, k, v, mask, past_key, past_value, lengths = (*node.inputs, *[None] * 4)[:7]
    assert q is not None and k is not None and v is not None
    # Attention computes half-precision products in f32; an OpenVINO device may choose another type.
    if op.softcap or op.outputs > 3 or op.softmax_precision not in (None, q.dtype) or q.dtype.name not in ("f32", "f64"):
        return None
    if (
        lengths is not None
        or op.left_window_size >= 0
        or (op.right_window_size >= 0 and not op.is_causal)
        or not _sees_keys(mask, op.is_causal)
    ):
        return None
    if mask is not None and _lacks_keys(mask, k, past_key):
        return None
    flat = len(q.dims) == 3
    if (flat and op.q_num_heads != op.kv_num_heads) or (not flat and symbolic.equal(q.dims[1], k.dims[1]) is not True):
        return None
    if flat:
        q, k, v = (split_heads(b, x, op.q_num_heads) for x in (q, k, v))
    past = None
    if past_key is not None:
        past = axis_size_of(b, past_key, 2)
        k, v = b.Concat(past_key, k, axis=2), b.Concat(past_value, v, axis=2)
        if op.is_causal:
            mask = make_window_mask(b, q, k, past, -1, 0)
    scale = None if op.scale is None else b.constant(op.scale, q.dtype)
    y = b.add(ScaledDotProductAttention(op.is_causal and past is None), q, k, v, mask, scale)[0]
    if flat:
        y = b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, 0, -1])
    return [y, k, v][: op.outputs]


def _sees_keys(mask: Value | None, causal: bool) -> bool:
    """Return whether the mask certainly leaves at least one key to every row."""
    if mask is None:
        return True
    data = mask.constant
    if causal or data is None or data.ndim not in (2, 3, 4):
        return False
    return bool(np.any(data if data.dtype == bool else data != -np.inf, axis=-1).all())


def _lacks_keys(mask: Value, k: Value, past_key: Value | None) -> bool:
    keys = k.dims[-2] if past_key is None else k.dims[-2] + past_key.dims[2]
    return symbolic.equal(mask.dims[-1], keys) is not True


@OPENVINO.legalize("ScaledDotProductAttention")
def legalize_scaled_dot_product_attention(b: Builder, node: Node) -> Any:
    """Legalize ScaledDotProductAttention: replace absent inputs by defaults, because only trailing inputs may be absent."""
    op: Any = node.op
    q, k, v, mask, scale, sink = (*node.inputs, None, None, None)[:6]
    assert q is not None
    if (mask is not None or scale is None) and (scale is not None or sink is None):
        return None
    mask = b.constant(0, q.dtype) if mask is None else mask
    return b.add(op, q, k, v, mask, default_scale(b, q) if scale is None else scale, sink)
