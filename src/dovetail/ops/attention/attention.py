"""Scaled dot-product attention: ScaledDotProductAttention (OpenVINO) and Attention (ONNX). Both run as their decomposition."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Size, View, agree, broadcast
from dovetail.ops.attention.heads import (
    axis_size_of,
    bias_of,
    default_scale,
    head_size_of,
    make_window_mask,
    multiply_grouped_heads,
    positions_of,
    softmax_with_sink,
    split_heads,
)
from dovetail.ops.casts import as_type, wide_type

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_HEADS = "q_num_heads?, kv_num_heads?"
_SCORES = "softcap=0.0, softmax_precision?, scale?, is_causal=0, qk_matmul_output_mode~{0:raw,1:capped,2:masked,3:weights}=0"
_WINDOW = "left_window_size=-1, right_window_size=-1"


class ScaledDotProductAttention(
    Op,
    sig="query: F, key: F, value: F, attention_mask?: T, scale?: F, sink?: F -> y: F",
    openvino="ScaledDotProductAttention-13(query, key, value, attention_mask?, scale?, sink?; causal)",
):
    """ScaledDotProductAttention computes ``softmax(query key' * scale + attention_mask) value``.

    The last two axes of ``query``, ``key`` and ``value`` are matrices; the batch axes before them, at least one, broadcast.
    ``scale`` is one number, by default 1 / sqrt(columns of query). A boolean ``attention_mask`` is true for the keys that a row
    attends to; a mask of floats is added to the scores. With ``causal`` the mask is ignored, and row i attends to keys 0 to i.
    A row without any key to attend to is NaN. ``sink`` has the rank of ``query`` and one column; softmax treats this column as
    the score of an additional key without a value.
    Source: OpenVINO ScaledDotProductAttention-13.
    """

    decomposes_in_f32 = True

    causal: bool = False

    def shape(
        self,
        query: View,
        key: View,
        value: View,
        attention_mask: View | None = None,
        scale: View | None = None,
        sink: View | None = None,
    ) -> Any:
        for x, role in ((query, "query"), (key, "key"), (value, "value")):
            if x.shape is not None and len(x.shape) < 3:
                raise RuleError("shape.rank", f"{role} must have rank at least 3, got {x.type}")
        if scale is not None and scale.shape and (len(scale.shape) > 1 or symbolic.equal(scale.shape[0], 1) is False):
            raise RuleError("shape.single", f"scale must be one number, got {scale.type}")
        if attention_mask is not None:
            check_mask(attention_mask, query)
        _check_sink(sink, query)
        if query.shape is None or key.shape is None or value.shape is None:
            return None
        agree(query.shape[-1], key.shape[-1], ("query", len(query.shape) - 1), ("key", len(key.shape) - 1))
        keys = agree(key.shape[-2], value.shape[-2], ("key", len(key.shape) - 2), ("value", len(value.shape) - 2))
        rows: Size | None = query.shape[-2]
        batch_shapes = [x.dims[:-2] for x in (query, key, value)]
        if attention_mask is not None and not self.causal:
            if attention_mask.shape is None:
                return None
            if len(attention_mask.shape) == 1:
                raise RuleError("shape.rank", f"attention_mask must have rank 0 or at least 2, got {attention_mask.type}")
            (key_size,) = broadcast(attention_mask.shape[-1:] or (1,), (keys,)) or (None,)
            if key_size is not None:
                agree(key_size, keys, "the last axis of attention_mask", ("key", len(key.shape) - 2))
            (rows,) = broadcast(attention_mask.shape[-2:-1], query.shape[-2:-1]) or (None,)
            batch_shapes.append(attention_mask.shape[:-2])
        return (*(broadcast(*batch_shapes) or ()), rows, value.shape[-1])

    def decompose(
        self,
        b: Builder,
        query: Value,
        key: Value,
        value: Value,
        attention_mask: Value | None = None,
        scale: Value | None = None,
        sink: Value | None = None,
    ) -> Any:
        if scale is None:
            scale = default_scale(b, query)
        scores = b.Multiply(b.MatMul(query, key, transpose_b=True), scale)
        if self.causal:
            scores = b.Add(scores, bias_of(b, make_window_mask(b, query, key, None, -1, 0), query.dtype))
        elif attention_mask is not None:
            scores = b.Add(
                scores, bias_of(b, attention_mask, query.dtype) if attention_mask.dtype.kind == "bool" else attention_mask
            )
        return b.MatMul(b.Softmax(scores, axis=-1) if sink is None else softmax_with_sink(b, scores, sink), value)


def _check_sink(sink: View | None, query: View) -> None:
    """Raise RuleError [shape.rank] unless ``sink`` has the rank of the query and one column."""
    if sink is None or sink.shape is None or query.shape is None:
        return
    if len(sink.shape) != len(query.shape) or symbolic.equal(sink.shape[-1], 1) is False:
        raise RuleError("shape.rank", f"sink must have rank {len(query.shape)} and one column, got {sink.type}")
    for axis, (size, other) in enumerate(zip(sink.shape[:-1], query.shape[:-1], strict=True)):
        if symbolic.equal(size, 1) is not True and symbolic.equal(other, 1) is not True:
            agree(size, other, ("sink", axis), ("query", axis))


def check_mask(mask: View, query: View) -> None:
    """Raise RuleError [attribute.conflict] for a mask that is neither boolean nor of the query's element type."""
    mask_dtype = getattr(mask.type, "dtype", None)
    query_dtype = getattr(query.type, "dtype", None)
    if mask_dtype is not None and mask_dtype.kind != "bool" and query_dtype is not None and mask_dtype is not query_dtype:
        raise RuleError("attribute.conflict", f"the attention mask must be boolean or {query_dtype}, got {mask.type}")


class Attention(
    Op,
    sig="q: F, k: F, v: F, attn_mask?: T, past_key?: F, past_value?: F, nonpad_kv_seqlen?: i64 "
    "-> y: F, present_key: F, present_value: F, qk_matmul_output: F",
    onnx=(
        f"Attention-23(q, k, v, attn_mask?, past_key?, past_value?; {_HEADS}, {_SCORES} | short_mask=false)",
        f"Attention-24(q, k, v, attn_mask?, past_key?, past_value?, nonpad_kv_seqlen?; {_HEADS}, {_SCORES} "
        "| short_mask=true/false)",
        f"Attention-25(q, k, v, attn_mask?, past_key?, past_value?, nonpad_kv_seqlen?; {_HEADS}, {_SCORES}, {_WINDOW} "
        "| short_mask=true/false)",
    ),
):
    """Attention computes ``softmax(cap(q k' * scale) + bias) v`` for each head, with ``cap(x) = softcap * tanh(x / softcap)``.

    ``softcap`` 0 means ``cap(x) = x``. ``q`` is [batch, heads, rows, size], ``k`` and ``v`` are [batch, kv_heads, keys, size].
    With ``q_num_heads`` and ``kv_num_heads`` all three may be [batch, rows, heads * size]. Each head of ``k`` and ``v`` serves
    heads / kv_heads consecutive heads of ``q``. ``past_key`` and ``past_value`` are the keys and values that precede ``k`` and
    ``v``. ``present_key`` and ``present_value`` are the concatenation of the past and new keys and values.

    The bias is ``attn_mask`` (a boolean mask: 0 where true, minus infinity where false), and minus infinity for these keys of
    row i:

    - keys from the index ``nonpad_kv_seqlen`` [batch] on;
    - keys after i + offset, with ``is_causal``;
    - keys more than ``left_window_size`` before i + offset, unless ``left_window_size`` is negative;
    - keys more than ``right_window_size`` after i + offset, unless ``right_window_size`` is negative.

    The offset is the length of the past, or ``nonpad_kv_seqlen`` minus the number of rows; without these inputs it is 0. With
    ``short_mask``, a mask may have fewer columns than there are keys, and the keys beyond its last column are masked. A row
    whose keys are all masked is 0.

    Softmax is computed in ``softmax_precision`` where that is set. ``qk_matmul_output_mode`` selects the content of
    ``qk_matmul_output``: the ``raw`` products, the ``capped`` scores, the ``masked`` scores, or the softmax ``weights``.
    Source: ONNX Attention 23, 24, 25.
    """

    decomposes_in_f32 = True
    cache_ports = ((4, 1), (5, 2))

    is_causal: bool = False
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: DType | None = None
    q_num_heads: int | None = None
    kv_num_heads: int | None = None
    qk_matmul_output_mode: str = "raw"
    short_mask: bool = False
    left_window_size: int = -1
    right_window_size: int = -1
    outputs: int = 1

    def validate(self) -> None:
        if not 1 <= self.outputs <= 4:
            raise RuleError("node.outputs", f"Attention has 1 to 4 outputs, got {self.outputs}")
        if self.qk_matmul_output_mode not in ("raw", "capped", "masked", "weights"):
            raise RuleError(
                "attribute.value",
                f"qk_matmul_output_mode must be raw, capped, masked or weights, got {self.qk_matmul_output_mode!r}",
            )
        for name, heads in (("q_num_heads", self.q_num_heads), ("kv_num_heads", self.kv_num_heads)):
            if heads is not None and heads < 1:
                raise RuleError("attention.heads", f"{name} must be at least 1, got {heads}")
        if self.left_window_size < -1 or self.right_window_size < -1:
            raise RuleError(
                "attribute.range", f"window sizes must be at least -1, got {self.left_window_size} and {self.right_window_size}"
            )
        if self.softcap < 0:
            raise RuleError("attribute.range", f"softcap must not be negative, got {self.softcap}")
        if self.softmax_precision is not None and not self.softmax_precision.is_float:
            raise RuleError("attribute.value", f"softmax_precision must be a float type, got {self.softmax_precision}")

    def shape(
        self,
        q: View,
        k: View,
        v: View,
        attn_mask: View | None = None,
        past_key: View | None = None,
        past_value: View | None = None,
        nonpad_kv_seqlen: View | None = None,
    ) -> Any:
        self._check(q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen)
        if q.shape is None or k.shape is None or v.shape is None:
            return [None] * self.outputs
        rank = len(q.shape)
        heads: Any = self.q_num_heads
        kv_heads: Any = self.kv_num_heads
        batch, rows, keys = q.shape[0], q.shape[-2], k.shape[-2]
        if rank == 4:
            heads, kv_heads = q.shape[1], k.shape[1]
        size, v_size = (x.dims[-1] if rank == 4 else head_size_of(x.dims[-1], kv_heads) for x in (k, v))
        agree(size, q.shape[-1] if rank == 4 else head_size_of(q.shape[-1], heads), "the head size of k", "the head size of q")
        for name, x in (("k", k), ("v", v)):
            batch = agree(batch, x.dims[0], ("q", 0), (name, 0))
        agree(keys, v.shape[-2], ("k", rank - 2), ("v", rank - 2))
        if past_key is not None and past_value is not None:
            keys = self._total_keys(keys, batch, kv_heads, ((past_key, size), (past_value, v_size)))
        y = (batch, heads, rows, v_size) if rank == 4 else (batch, rows, heads * v_size)
        if attn_mask is not None and attn_mask.shape is not None:
            self._check_mask_shape(attn_mask.shape, (batch, heads, rows, keys))
        return [y, (batch, kv_heads, keys, size), (batch, kv_heads, keys, v_size), (batch, heads, rows, keys)][: self.outputs]

    def _check(
        self,
        q: View,
        k: View,
        v: View,
        attn_mask: View | None,
        past_key: View | None,
        past_value: View | None,
        nonpad_kv_seqlen: View | None,
    ) -> None:
        ranks = {len(x.shape) for x in (q, k, v) if x.shape is not None}
        if len(ranks) > 1 or ranks - {3, 4}:
            raise RuleError("shape.rank", f"q, k and v must all have rank 3 or all rank 4, got {q.type}, {k.type}, {v.type}")
        if ranks == {3} and (self.q_num_heads is None or self.kv_num_heads is None):
            raise RuleError(
                "attention.heads",
                f"inputs of rank 3 need q_num_heads and kv_num_heads, got {self.q_num_heads} and {self.kv_num_heads}",
            )
        for name, x, heads in (("q", q, self.q_num_heads), ("k", k, self.kv_num_heads), ("v", v, self.kv_num_heads)):
            if x.shape is not None and len(x.shape) == 4 and heads is not None:
                agree(x.shape[1], heads, (name, 1), "q_num_heads" if name == "q" else "kv_num_heads")
        if ranks == {4} and k.shape is not None and v.shape is not None:
            agree(k.shape[1], v.shape[1], ("k", 1), ("v", 1))
        counts: tuple[Any, Any] = (self.q_num_heads, self.kv_num_heads)
        if ranks == {4} and q.shape is not None and k.shape is not None:
            counts = (q.shape[1], k.shape[1])
        if all(isinstance(count, int) for count in counts) and (not counts[1] or counts[0] % counts[1]):
            raise RuleError("attention.heads", f"query heads ({counts[0]}) must be a multiple of key heads ({counts[1]})")
        if (past_key is None) != (past_value is None):
            raise RuleError("attribute.conflict", "past_key and past_value must be given together")
        if nonpad_kv_seqlen is not None:
            if past_key is not None:
                raise RuleError("attribute.conflict", "nonpad_kv_seqlen and past_key exclude each other")
            if nonpad_kv_seqlen.shape is not None and len(nonpad_kv_seqlen.shape) != 1:
                raise RuleError("shape.rank", f"nonpad_kv_seqlen must have rank 1, got {nonpad_kv_seqlen.type}")
            if nonpad_kv_seqlen.shape is not None and q.shape is not None:
                agree(nonpad_kv_seqlen.shape[0], q.shape[0], ("nonpad_kv_seqlen", 0), ("q", 0))
        if attn_mask is not None:
            check_mask(attn_mask, q)

    def _total_keys(self, keys: Size, batch: Size, heads: Size, caches: tuple[tuple[View, Size], ...]) -> Any:
        total: Any = keys
        for name, (cache, size) in zip(("past_key", "past_value"), caches, strict=True):
            if cache.shape is None:
                total = None
                continue
            if len(cache.shape) != 4:
                raise RuleError("shape.rank", f"past_key and past_value must have rank 4, got {cache.type}")
            agree(cache.shape[0], batch, (name, 0), ("q", 0))
            agree(cache.shape[1], heads, (name, 1), "the heads of k")
            agree(cache.shape[3], size, (name, 3), "the head size")
            total = None if total is None else keys + cache.shape[2]
        if all(cache.shape is not None for cache, _ in caches):
            agree(caches[0][0].dims[2], caches[1][0].dims[2], ("past_key", 2), ("past_value", 2))
        return total

    def _check_mask_shape(self, shape: Shape, scores_shape: tuple[Size | None, ...]) -> None:
        if len(shape) > 4:
            raise RuleError("shape.rank", f"attn_mask must have rank at most 4, got {len(shape)}")
        pairs = list(zip(shape[::-1], scores_shape[::-1], strict=False))
        for axis, (size, total) in enumerate(pairs):
            if total is None or (isinstance(size, int) and size == 1) or not isinstance(size, int):
                continue
            is_equal = symbolic.equal(size, total)
            if axis == 0 and self.short_mask and is_equal is False:
                is_equal = None if symbolic.less(size, total) is not False else False
            if is_equal is False:
                raise RuleError(
                    "shape.broadcast",
                    f"attn_mask of shape [{', '.join(map(str, shape))}] must broadcast to [{', '.join(map(str, scores_shape))}]",
                )

    def canonical(
        self,
        q: View,
        k: View,
        v: View,
        attn_mask: View | None = None,
        past_key: View | None = None,
        past_value: View | None = None,
        nonpad_kv_seqlen: View | None = None,
    ) -> Op:
        changes: dict[str, Any] = {}
        if self.softmax_precision is not None and self.softmax_precision is getattr(q.type, "dtype", None):
            changes["softmax_precision"] = None
        if q.shape is not None and len(q.shape) == 4:
            changes["q_num_heads"] = changes["kv_num_heads"] = None
        if attn_mask is None or (attn_mask.shape and k.shape is not None and self._is_whole(attn_mask.shape[-1], k, past_key)):
            changes["short_mask"] = False
        if self.outputs < 4:
            changes["qk_matmul_output_mode"] = "raw"
        if self.is_causal and self.right_window_size >= 0:
            changes["right_window_size"] = -1
        return self.with_(**changes) if changes else self

    def _is_whole(self, size: Size, k: View, past_key: View | None) -> bool:
        keys = k.dims[-2]
        if past_key is not None:
            if past_key.shape is None:
                return False
            keys = keys + past_key.shape[2]
        return symbolic.equal(size, keys) is True

    def decompose(
        self,
        b: Builder,
        q: Value,
        k: Value,
        v: Value,
        attn_mask: Value | None = None,
        past_key: Value | None = None,
        past_value: Value | None = None,
        nonpad_kv_seqlen: Value | None = None,
    ) -> Any:
        is_flat, dtype = len(q.dims) == 3, q.dtype
        wide = wide_type(dtype)
        if is_flat:
            q, k, v = (
                split_heads(b, x, heads) for x, heads in ((q, self.q_num_heads), (k, self.kv_num_heads), (v, self.kv_num_heads))
            )
        past = None if past_key is None else axis_size_of(b, past_key, 2)
        if past_key is not None:
            k, v = b.Concat(past_key, k, axis=2), b.Concat(past_value, v, axis=2)
        q, keys, values = (as_type(b, x, wide) for x in (q, k, v))
        scale = default_scale(b, q) if self.scale is None else b.constant(self.scale, wide)
        raw = capped = multiply_grouped_heads(b, q, keys, scale)
        if self.softcap:
            capped = b.Multiply(b.Tanh(b.Divide(raw, b.constant(self.softcap, wide))), b.constant(self.softcap, wide))
        bias = self._bias(b, q, k, attn_mask, past, nonpad_kv_seqlen)
        masked, sees_nothing = capped, None
        if bias is not None:
            masked = b.Add(capped, bias)
            if not (attn_mask is None and nonpad_kv_seqlen is None and self.left_window_size < 0 and self.right_window_size < 0):
                sees_nothing = _sees_nothing(b, bias)
        biased = masked if sees_nothing is None else b.Add(capped, b.Where(sees_nothing, b.constant(0, wide), bias))
        weights = as_type(b, b.Softmax(as_type(b, biased, self.softmax_precision or wide), axis=-1), wide)
        if sees_nothing is not None:
            weights = b.Where(sees_nothing, b.constant(0, wide), weights)
        y = as_type(b, multiply_grouped_heads(b, weights, values), dtype)
        if is_flat:
            y = b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, 0, -1])
        scores = {"raw": raw, "capped": capped, "masked": masked, "weights": weights}[self.qk_matmul_output_mode]
        return [y, k, v, *([as_type(b, scores, dtype)] if self.outputs == 4 else [])][: self.outputs]

    def _bias(
        self, b: Builder, q: Value, k: Value, attn_mask: Value | None, past: Value | None, nonpad_kv_seqlen: Value | None
    ) -> Any:
        dtype, visible_masks = q.dtype, []
        if self.is_causal or self.left_window_size >= 0 or self.right_window_size >= 0:
            offset = past
            if nonpad_kv_seqlen is not None:
                offset = b.Reshape(b.Subtract(nonpad_kv_seqlen, axis_size_of(b, q, 2)), [-1, 1, 1, 1])
            right = 0 if self.is_causal else self.right_window_size
            visible_masks.append(make_window_mask(b, q, k, offset, self.left_window_size, right))
        if nonpad_kv_seqlen is not None:
            visible_masks.append(b.Less(positions_of(b, k, 2), b.Reshape(nonpad_kv_seqlen, [-1, 1, 1, 1])))
        added = None
        if attn_mask is not None:
            attn_mask = self._pad_mask(b, attn_mask, k)
            if attn_mask.dtype.kind == "bool":
                visible_masks.append(attn_mask)
            else:
                added = as_type(b, attn_mask, dtype)
        if not visible_masks:
            return added
        visible = visible_masks[0]
        for other in visible_masks[1:]:
            visible = b.And(visible, other)
        bias = bias_of(b, visible, dtype)
        return bias if added is None else b.Add(added, bias)

    def _pad_mask(self, b: Builder, attn_mask: Value, k: Value) -> Any:
        """Pad the mask's last axis to the number of keys; the padding (false or minus infinity) masks the added keys."""
        if self.short_mask and not attn_mask.dims:
            raise RuleError("shape.rank", f"attn_mask must have rank at least 1, got {attn_mask.type}")
        if not self.short_mask or symbolic.equal(attn_mask.dims[-1], k.dims[2]) is True:
            return attn_mask
        missing = b.Subtract(b.Unsqueeze(axis_size_of(b, k, 2), [0]), b.Unsqueeze(axis_size_of(b, attn_mask, -1), [0]))
        fill = b.constant(False if attn_mask.dtype.kind == "bool" else -inf, attn_mask.dtype)
        return b.Pad(attn_mask, b.Concat(b.constant([0]), missing, axis=0), fill, b.constant([-1]))


def _sees_nothing(b: Builder, bias: Value) -> Any:
    """Return a mask [..., rows, 1] of the rows of ``bias`` in which all elements are minus infinity.

    ReduceMax reads 0 for minus infinity and 1 for any other element, because OpenVINO's ReduceMax of a row of minus infinities
    is a finite number.
    """
    zero, one = (b.constant(number, bias.dtype) for number in (0, 1))
    visible = b.Where(b.Equal(bias, b.constant(-inf, bias.dtype)), zero, one)
    return b.Equal(b.ReduceMax(visible, [-1], keepdims=True), zero)
