"""Grouped-query attention with a key/value cache per sequence: GroupQueryAttention of onnxruntime's text generators."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Type, View, agree, agree_shapes
from dovetail.ops.attention.heads import (
    axis_size_of,
    check_rank,
    default_scale,
    head_size_of,
    multiply_grouped_heads,
    positions_of,
    softmax_with_sink,
    split_heads,
)
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_OUT_OF_RANGE = 2**40
"""An index that is out of range for every axis, so that Gather raises an error."""

_QUANTIZED = "k_quant_type~{NONE:NONE}=NONE, v_quant_type~{NONE:NONE}=NONE, kv_cache_bit_width:_"
_NORMALIZED = "qk_norm_epsilon:_, q_norm_epsilon:_, k_norm_epsilon:_"


class GroupQueryAttention(
    Op,
    sig="query: F, key?: F, value?: F, past_key?: F, past_value?: F, seqlens_k: i32, total_sequence_length!: i32, cos_cache?: F, "
    "sin_cache?: F, position_ids?: i64, attention_bias?: F, head_sink?: F, k_scale?: f32, v_scale?: f32, q_norm_weight?: F, "
    "k_norm_weight?: F -> output: F, present_key: F, present_value: F, output_qk: F",
    onnx="com.microsoft:GroupQueryAttention-1(query, key?, value?, past_key?, past_value?, seqlens_k, total_sequence_length, "
    "cos_cache?, sin_cache?, position_ids?, attention_bias?, head_sink?, k_scale?, v_scale?, q_norm_weight?, k_norm_weight?; "
    "num_heads, kv_num_heads, causal=1, scale?, softcap?, local_window_size=-1, do_rotary?, rotary_interleaved?, "
    f"smooth_softmax~{{-1:false,0:false,1:true}}=-1, qk_output~{{0:off,1:masked,2:weights}}=0, sliding_window_cache=0, "
    f"{_QUANTIZED}, {_NORMALIZED})",
):
    """GroupQueryAttention appends ``key`` and ``value`` to a key/value cache and attends from ``query`` to this cache.

    ``query`` is [batch, rows, num_heads * size], ``key`` and ``value`` are [batch, rows, kv_num_heads * size]. Without ``key``
    and ``value``, the columns of ``query`` hold the query, the key and the value one after another. ``seqlens_k`` [batch] is
    the length of each sequence with its new rows, minus one; ``total_sequence_length`` is the greatest length. The past length
    of a sequence is its length minus the number of new rows, or 0 where ``total_sequence_length`` equals the number of new
    rows. ``present_key`` and ``present_value`` hold for each sequence the past rows, the new rows, then zeros: [batch,
    kv_num_heads, max(total, cache size), size], where total is ``total_sequence_length``.

    Row i attends to all rows of its sequence; with ``causal``, to the rows up to i + past length. ``local_window_size`` (-1: no
    limit) restricts these to the last ``local_window_size`` rows. ``do_rotary`` rotates ``query`` and ``key`` by the tables
    ``cos_cache`` and ``sin_cache`` [positions, rotated / 2]. The position of row i in these tables is i + past length, or
    ``position_ids`` [batch, rows]. Where ``total_sequence_length`` equals the number of new rows, the position is i + the first
    element of ``position_ids``.

    Scores are capped by ``softcap`` (0: no cap), and ``attention_bias`` [batch or 1, num_heads or 1, rows, total] is added.
    ``head_sink`` [num_heads] is for each head the score of an additional key without a value; ``smooth_softmax`` sets this
    score to 0. ``qk_output`` selects the content of ``output_qk``: the ``masked`` scores (0 for a masked key) or the softmax
    ``weights``.
    Source: com.microsoft GroupQueryAttention, as onnxruntime computes it on CPU.
    """

    cache_ports = ((3, 1), (4, 2))

    num_heads: int
    kv_num_heads: int
    causal: bool = True
    scale: float = 0.0
    softcap: float = 0.0
    local_window_size: int = -1
    do_rotary: bool = False
    rotary_interleaved: bool = False
    smooth_softmax: bool = False
    qk_output: str = "off"
    sliding_window_cache: bool = False
    k_quant_type: str = "NONE"
    v_quant_type: str = "NONE"
    outputs: int = 3

    def validate(self) -> None:
        if not 1 <= self.outputs <= 4:
            raise RuleError("node.outputs", f"GroupQueryAttention has 1 to 4 outputs, got {self.outputs}")
        if self.num_heads < 1 or self.kv_num_heads < 1 or self.num_heads % self.kv_num_heads:
            raise RuleError(
                "attention.heads", f"num_heads ({self.num_heads}) must be a multiple of kv_num_heads ({self.kv_num_heads})"
            )
        if self.qk_output not in ("off", "masked", "weights") or (self.qk_output == "off" and self.outputs == 4):
            raise RuleError(
                "attribute.value",
                f"qk_output must be masked or weights, or off for fewer than 4 outputs, got {self.qk_output!r} for "
                f"{self.outputs} outputs",
            )
        if self.local_window_size != -1 and (self.local_window_size < 1 or not self.causal):
            raise RuleError(
                "attribute.range",
                f"local_window_size must be -1, or at least 1 with causal, got {self.local_window_size}, causal={self.causal}",
            )
        if self.softcap < 0:
            raise RuleError("attribute.range", f"softcap must not be negative, got {self.softcap}")
        if self.sliding_window_cache:
            raise UnsupportedError("op.unsupported", "sliding_window_cache, a cache that drops rows, is not supported")
        if (self.k_quant_type, self.v_quant_type) != ("NONE", "NONE"):
            raise UnsupportedError("op.unsupported", "a quantized key/value cache is not supported")

    def types(self, *xs: View | None) -> list[Type]:
        if any(x is not None for x in xs[12:14]):
            raise UnsupportedError("op.unsupported", "a quantized key/value cache is not supported")
        if any(x is not None for x in xs[14:16]):
            raise UnsupportedError("op.unsupported", "q_norm_weight and k_norm_weight are not supported")
        return super().types(*xs)

    def shape(self, query: View, *rest: View | None) -> Any:
        (
            key,
            value,
            past_key,
            past_value,
            seqlens_k,
            total_sequence_length,
            cos_cache,
            sin_cache,
            position_ids,
            attention_bias,
            head_sink,
        ) = (*rest, *[None] * 11)[:11]
        for pair in ((key, value), (past_key, past_value), (cos_cache, sin_cache)):
            if (pair[0] is None) != (pair[1] is None):
                raise RuleError(
                    "attribute.conflict", "key and value, past_key and past_value, cos_cache and sin_cache must be given in pairs"
                )
        if self.do_rotary and cos_cache is None:
            raise RuleError("attribute.conflict", "do_rotary needs cos_cache and sin_cache")
        check_rank(query, 3, "query")
        check_rank(key, 3, "key")
        check_rank(value, 3, "value")
        check_rank(past_key, 4, "past_key")
        check_rank(past_value, 4, "past_value")
        if query.shape is None:
            return [None] * self.outputs
        assert seqlens_k is not None and total_sequence_length is not None
        batch, rows, columns = query.shape
        size = head_size_of(columns, self.num_heads + (2 * self.kv_num_heads if key is None else 0))
        for name, x in (("key", key), ("value", value)):
            if x is not None and x.shape is not None:
                agree(x.shape[0], batch, (name, 0), ("query", 0))
                agree(x.shape[1], rows, (name, 1), ("query", 1))
                agree(x.shape[2], self.kv_num_heads * size, (name, 2), "kv_num_heads * head size")
        cache_size: Any = 0
        for name, past in (("past_key", past_key), ("past_value", past_value)):
            if past is not None and past.shape is not None:
                agree(past.shape[0], batch, (name, 0), ("query", 0))
                agree(past.shape[1], self.kv_num_heads, (name, 1), "kv_num_heads")
                agree(past.shape[3], size, (name, 3), "the head size")
                if past is past_key or cache_size is None:
                    cache_size = past.shape[2]
                else:
                    cache_size = agree(cache_size, past.shape[2], ("past_key", 2), (name, 2))
            elif past is not None:
                cache_size = None
        self._check_rest(query.shape, seqlens_k, cos_cache, position_ids, attention_bias, head_sink)
        total = None if total_sequence_length.value is None else total_sequence_length.value.reshape(-1).tolist()[0]
        length = None if total is None or cache_size is None else symbolic.maximum(total, cache_size)
        present = (batch, self.kv_num_heads, length, size)
        return [(batch, rows, self.num_heads * size), present, present, (batch, self.num_heads, rows, total)][: self.outputs]

    def _check_rest(
        self,
        shape: Shape,
        seqlens_k: View,
        cos_cache: View | None,
        position_ids: View | None,
        attention_bias: View | None,
        head_sink: View | None,
    ) -> None:
        check_rank(cos_cache, 2, "cos_cache")
        check_rank(position_ids, 2, "position_ids")
        check_rank(attention_bias, 4, "attention_bias")
        check_rank(head_sink, 1, "head_sink")
        if seqlens_k.shape is not None and seqlens_k.shape and len(seqlens_k.shape) < 3:
            agree(seqlens_k.shape[0], shape[0], ("seqlens_k", 0), ("query", 0))
        elif seqlens_k.shape is not None:
            raise RuleError("shape.rank", f"seqlens_k must have rank 1, got {seqlens_k.type}")
        if head_sink is not None and head_sink.shape is not None:
            agree(head_sink.shape[0], self.num_heads, ("head_sink", 0), "num_heads")
        if position_ids is not None and position_ids.shape is not None:
            agree_shapes(position_ids.shape, shape[:2], "position_ids", "query")

    def decompose(self, b: Builder, q: Value, *rest: Value | None) -> Any:
        (
            k,
            v,
            past_key,
            past_value,
            seqlens_k,
            total_sequence_length,
            cos_cache,
            sin_cache,
            position_ids,
            attention_bias,
            head_sink,
        ) = (*rest, *[None] * 11)[:11]
        assert seqlens_k is not None and total_sequence_length is not None
        dtype, wide = q.dtype, wide_type(q.dtype)
        if k is None:
            size = head_size_of(q.dims[2], self.num_heads + 2 * self.kv_num_heads)
            if not isinstance(size, int):
                raise UnsupportedError("type.unknown", f"the head size of a packed query must be constant, got {size}")
            q, k, v = b.Split(q, [self.num_heads * size, self.kv_num_heads * size, self.kv_num_heads * size], axis=2, outputs=3)
        assert k is not None and v is not None
        q, k, v = (split_heads(b, x, heads) for x, heads in ((q, self.num_heads), (k, self.kv_num_heads), (v, self.kv_num_heads)))
        rows, count = axis_size_of(b, q, 2), b.Reshape(b.Cast(total_sequence_length, to=dtypes.i64), [])
        length = b.Reshape(b.Add(b.Cast(seqlens_k, to=dtypes.i64), b.constant(1)), [-1, 1])
        is_first = b.Equal(count, rows)
        past = b.Where(is_first, b.constant(0), b.Subtract(length, rows))
        if self.do_rotary and cos_cache is not None and sin_cache is not None:
            offsets = positions_of(b, q, 2)
            positions = b.Add(past, offsets)
            if position_ids is not None:
                first = b.Reshape(b.Slice(position_ids, [0, 0], [1, 1], [0, 1], [1, 1]), [])
                positions = b.Where(is_first, b.Add(offsets, first), position_ids)
            positions = b.Expand(positions, join_sizes(b, [shape_value(b, q, [0]), shape_value(b, q, [2])]))
            q, k = (self._rotate(b, x, cos_cache, sin_cache, positions) for x in (q, k))
        k, v = (self._append_to_cache(b, x, cache, past, rows, count) for x, cache in ((k, past_key), (v, past_value)))
        present = (k, v)
        q, k, v = (as_type(b, x, wide) for x in (q, *(self._slice_used_rows(b, x, count) for x in (k, v))))
        scale = b.constant(self.scale, wide) if self.scale else default_scale(b, q)
        scores = multiply_grouped_heads(b, q, k, scale)
        if self.softcap:
            cap = b.constant(self.softcap, wide)
            scores = b.Multiply(b.Tanh(b.Divide(scores, cap)), cap)
        if attention_bias is not None:
            scores = b.Add(scores, as_type(b, attention_bias, wide))
        visible = b.Unsqueeze(self._visible_keys(b, q, k, past, length), [1])
        zero = b.constant(0, wide)
        # A row after the end of a sequence may see no key in the window: a finite minimum avoids a softmax of NaN.
        lowest = b.constant(-inf if self.local_window_size < 0 else np.finfo(wide.numpy).min, wide)
        masked = b.Where(visible, scores, lowest)
        if head_sink is None and self.smooth_softmax:
            head_sink = b.constant([0.0] * self.num_heads, wide)
        if head_sink is None:
            weights = b.Softmax(masked, axis=-1)
        else:
            weights = softmax_with_sink(b, masked, b.Reshape(as_type(b, head_sink, wide), [1, -1, 1, 1]))
        if self.local_window_size >= 0:
            weights = b.Where(visible, weights, zero)
        y = b.Reshape(b.Transpose(as_type(b, multiply_grouped_heads(b, weights, v), dtype), [0, 2, 1, 3]), [0, 0, -1])
        qk = []
        if self.outputs == 4:
            qk = [as_type(b, weights if self.qk_output == "weights" else b.Where(visible, scores, zero), dtype)]
        return [y, *present, *qk][: self.outputs]

    def decompose_full(self, b: Builder, q: Value, *rest: Value | None) -> Any:
        """Return the outputs by an Attention over a cache in place; None if this operator has inputs that Attention lacks.

        For a cache of open length the result is that of this operator if every sequence has as many tokens as the cache has rows
        after the step: without padding, ``present_key`` is the concatenation of ``past_key`` and ``key``.

        A cache of constant length is a buffer, into which the new rows are written. The result is that of this operator if the
        buffer has room for them, and if there is one new row or every sequence has ``total_sequence_length`` tokens.
        """
        k, v, past_key, past_value, seqlens_k, _, cos_cache, sin_cache, position_ids, *others = (*rest, *[None] * 11)[:11]
        is_plain = self.local_window_size < 0 and not self.smooth_softmax and self.outputs <= 3
        if not is_plain or k is None or v is None or past_key is None or position_ids is not None or others != [None, None]:
            return None
        assert past_value is not None
        q, k, v = (split_heads(b, x, heads) for x, heads in ((q, self.num_heads), (k, self.kv_num_heads), (v, self.kv_num_heads)))
        is_buffer = isinstance(past_key.dims[2], int)
        lengths = starts = None
        if is_buffer and seqlens_k is not None:
            lengths = b.Add(b.Reshape(b.Cast(seqlens_k, to=dtypes.i64), [-1]), b.constant(1))
            starts = b.Subtract(lengths, axis_size_of(b, q, 2))
        if self.do_rotary and cos_cache is not None and sin_cache is not None:
            before = axis_size_of(b, past_key, 2) if starts is None else b.Unsqueeze(starts, [1])
            positions = b.Add(before, positions_of(b, q, 2))
            if starts is None:
                positions = b.Unsqueeze(positions, [0])
            positions = b.Expand(positions, join_sizes(b, [shape_value(b, q, [0]), shape_value(b, q, [2])]))
            q, k = (self._rotate(b, x, cos_cache, sin_cache, positions) for x in (q, k))
        attributes: dict[str, Any] = {"is_causal": self.causal, "scale": self.scale or None, "softcap": self.softcap}
        if starts is None:
            y, *present = b.Attention(q, k, v, None, past_key, past_value, outputs=3, **attributes)
        else:
            present = [b.TensorScatter(past_key, k, starts, axis=2), b.TensorScatter(past_value, v, starts, axis=2)]
            y = b.Attention(q, present[0], present[1], None, None, None, lengths, **attributes)
        return [b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, 0, -1]), *present][: self.outputs]

    def _rotate(self, b: Builder, x: Value, cos: Value, sin: Value, positions: Value) -> Any:
        half = cos.dims[1]
        if not isinstance(half, int):
            raise UnsupportedError("type.unknown", f"the number of columns of cos_cache must be constant, got {half}")
        return b.RotaryEmbedding(x, cos, sin, positions, rotary_embedding_dim=2 * half, interleaved=self.rotary_interleaved)

    def _append_to_cache(self, b: Builder, x: Value, cache: Value | None, past: Value, rows: Value, count: Value) -> Any:
        """Return the extended cache: for each sequence the past rows, the new rows, then zeros.

        The rows are gathered from the concatenation of the cache, the new rows and one row of zeros.
        """
        cache_size = b.constant(0) if cache is None else axis_size_of(b, cache, 2)
        empty = b.Expand(
            b.constant(0, x.dtype), join_sizes(b, [shape_value(b, x, [0]), shape_value(b, x, [1]), 1, shape_value(b, x, [3])])
        )
        rows_and_zeros = b.Concat(*([] if cache is None else [cache]), x, empty, axis=2)
        present_size = b.Maximum(count, cache_size)
        row = b.Range(b.constant(0), present_size, b.constant(1))
        new_row = b.Subtract(row, past)
        source = b.Where(b.Less(new_row, rows), b.Add(new_row, cache_size), b.Add(cache_size, rows))
        source = b.Where(b.Less(new_row, b.constant(0)), row, source)
        is_valid = b.And(b.GreaterEqual(past, b.constant(0)), b.LessEqual(past, cache_size))
        source = b.Add(source, b.Where(is_valid, b.constant(0), b.constant(_OUT_OF_RANGE)))
        # Gather from a matrix moves whole rows.
        heads = b.Range(b.constant(0), b.Multiply(axis_size_of(b, x, 0), b.constant(self.kv_num_heads)), b.constant(1))
        first = b.Reshape(b.Multiply(heads, axis_size_of(b, rows_and_zeros, 2)), [-1, self.kv_num_heads, 1])
        matrix = b.Reshape(rows_and_zeros, join_sizes(b, [-1, shape_value(b, x, [3])]))
        return b.Gather(matrix, b.Add(first, b.Unsqueeze(source, [1])), axis=0)

    def _slice_used_rows(self, b: Builder, present: Value, count: Value) -> Any:
        """Return the first ``count`` rows of the cache; no sequence is longer than ``count`` (``total_sequence_length``)."""
        return b.Slice(present, b.constant([0]), b.Reshape(count, [1]), [2], [1])

    def _visible_keys(self, b: Builder, q: Value, k: Value, past: Value, length: Value) -> Any:
        """Return the mask [batch, rows, keys], which is true where row i of a sequence attends to key j."""
        key = b.Unsqueeze(positions_of(b, k, 2), [0, 1])
        visible = b.Less(key, b.Unsqueeze(length, [2]))
        if not self.causal:
            return visible
        row = b.Add(b.Unsqueeze(past, [2]), b.Unsqueeze(positions_of(b, q, 2), [0, 2]))
        visible = b.And(visible, b.LessEqual(key, row))
        return (
            visible
            if self.local_window_size < 0
            else b.And(visible, b.Greater(key, b.Subtract(row, b.constant(self.local_window_size))))
        )
