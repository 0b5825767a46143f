"""Attention with a cache whose sequences are of different lengths, as onnxruntime's generators of text use it."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import Type, agree
from dovetail.ops.attention.heads import count_of, default_scale, grouped, heads_first, length_of, places, share, with_sink
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import join_sizes

_FAR = 2**40
"""No place in any tensor: reading there is an error."""

_QUANTIZED = "k_quant_type~{NONE:plain}:key_grid=NONE, v_quant_type~{NONE:plain}:value_grid=NONE, kv_cache_bit_width:_"
_NORMALIZED = "qk_norm_epsilon:_, q_norm_epsilon:_, k_norm_epsilon:_"


class GroupQueryAttention(
    Op,
    sig="q: F, k?: F, v?: F, past_key?: F, past_value?: F, lengths: i32, total!: i32, cos?: F, sin?: F, positions?: i64, "
    "bias?: F, sink?: F, k_scale?: f32, v_scale?: f32, q_norm?: F, k_norm?: F "
    "-> y: F, present_key: F, present_value: F, qk: F",
    onnx="com.microsoft:GroupQueryAttention-1(q, k?, v?, past_key?, past_value?, lengths, total, cos?, sin?, positions?, bias?, "
    "sink?, k_scale?, v_scale?, q_norm?, k_norm?; num_heads:heads, kv_num_heads:kv_heads, causal=1, scale?, softcap?, "
    "local_window_size:window=-1, do_rotary:rotary?, "
    f"rotary_interleaved:interleaved?, smooth_softmax~{{-1:false,0:false,1:true}}:smooth=-1, "
    f"qk_output~{{0:off,1:masked,2:weights}}:scores=0, sliding_window_cache:sliding=0, {_QUANTIZED}, {_NORMALIZED})",
):
    """Attention of ``q`` [batch, rows, heads * size] to a cache, into which ``k`` and ``v`` [batch, rows, kv_heads * size] go.

    Without ``k`` and ``v`` all three lie in the columns of ``q``. ``lengths`` [batch]: the rows that each sequence has then, less
    one; ``total``: the most that any has. The past of a sequence is its length less the new rows, or nothing where ``total`` is
    the number of new rows. The present, [batch, kv_heads, max(total, cached), size], holds the past, the new rows, then zeros.
    Row i sees the rows of its sequence, with ``causal`` those up to i + past, with a ``window`` only so many of them up to its
    own. ``rotary`` turns ``q`` and ``k`` by the tables ``cos`` and ``sin`` [places, turned / 2] at i + past, or at ``positions``
    [batch, rows]; where there is no past, at i + the first of those. Scores are capped by ``softcap`` (0: not), and ``bias``
    [batch or 1, heads or 1, rows, total] is added. A ``sink`` [heads], 0 with ``smooth``, takes part in the softmax like one more
    key without a value. ``qk``: the scores of what takes part or the weights, else 0.
    Source: com.microsoft GroupQueryAttention, as onnxruntime's CPU computes it.
    """

    heads: int
    kv_heads: int
    causal: bool = True
    scale: float = 0.0
    softcap: float = 0.0
    window: int = -1
    rotary: bool = False
    interleaved: bool = False
    smooth: bool = False
    scores: str = "off"
    sliding: bool = False
    key_grid: str = "plain"
    value_grid: str = "plain"
    outputs: int = 3

    def validate(self) -> None:
        if not 1 <= self.outputs <= 4:
            raise RuleError("node.outputs", f"{self.outputs} outputs; there are 1 to 4")
        if self.heads < 1 or self.kv_heads < 1 or self.heads % self.kv_heads:
            raise RuleError("attention.heads", f"{self.heads} heads of the query and {self.kv_heads} of the keys")
        if self.scores not in ("off", "masked", "weights") or (self.scores == "off" and self.outputs == 4):
            raise RuleError("attention.scores", f"{self.outputs} outputs with {self.scores!r} scores")
        if self.window != -1 and (self.window < 1 or not self.causal):
            raise RuleError("attention.window", f"a window of {self.window} with causal={self.causal}")
        if self.softcap < 0:
            raise RuleError("attention.softcap", f"a cap of {self.softcap}")
        if self.sliding:
            raise UnsupportedError("attention.cache", "a cache of the size of its window, which drops rows as it goes")
        if (self.key_grid, self.value_grid) != ("plain", "plain"):
            raise UnsupportedError("attention.cache", "a quantised cache")

    def types(self, *xs: Any) -> list[Type]:
        if any(x is not None for x in xs[12:14]):
            raise UnsupportedError("attention.cache", "a quantised cache")
        if any(x is not None for x in xs[14:16]):
            raise UnsupportedError("attention.norm", "weights for normalising queries and keys")
        return super().types(*xs)

    def shape(self, q: Any, *rest: Any) -> Any:
        k, v, past_key, past_value, lengths, total, cos, sin, positions, bias, sink = (*rest, *[None] * 11)[:11]
        for pair in ((k, v), (past_key, past_value), (cos, sin)):
            if (pair[0] is None) != (pair[1] is None):
                raise RuleError("attention.pair", "keys go with values, a past of keys with one of values, cosines with sines")
        if self.rotary and cos is None:
            raise RuleError("attention.pair", "turning needs its tables")
        _hold_rank(q, 3, "query")
        _hold_rank(k, 3, "key")
        _hold_rank(v, 3, "value")
        _hold_rank(past_key, 4, "past of keys")
        _hold_rank(past_value, 4, "past of values")
        if q.shape is None:
            return [None] * self.outputs
        batch, rows, columns = q.shape
        size = share(columns, self.heads + (2 * self.kv_heads if k is None else 0))
        for x in (k, v):
            if x is not None and x.shape is not None:
                tuple(map(agree, x.shape, (batch, rows, self.kv_heads * size)))
        cached: Any = 0
        for past in (past_key, past_value):
            if past is not None and past.shape is not None:
                for axis, other in ((0, batch), (1, self.kv_heads), (3, size)):
                    agree(past.shape[axis], other)
                cached = past.shape[2] if past is past_key or cached is None else agree(cached, past.shape[2])
            elif past is not None:
                cached = None
        self._check_rest(q.shape, lengths, cos, positions, bias, sink)
        count = None if total.value is None else total.value.reshape(-1).tolist()[0]
        length = None if count is None or cached is None else symbolic.maximum(count, cached)
        present = (batch, self.kv_heads, length, size)
        return [(batch, rows, self.heads * size), present, present, (batch, self.heads, rows, count)][: self.outputs]

    def _check_rest(self, shape: Any, lengths: Any, cos: Any, positions: Any, bias: Any, sink: Any) -> None:
        _hold_rank(cos, 2, "table")
        _hold_rank(positions, 2, "table of positions")
        _hold_rank(bias, 4, "bias")
        _hold_rank(sink, 1, "sink")
        if lengths.shape is not None and lengths.shape and len(lengths.shape) < 3:
            agree(lengths.shape[0], shape[0])
        elif lengths.shape is not None:
            raise RuleError("attention.lengths", f"a vector of lengths is needed, not {lengths.type}")
        if sink is not None and sink.shape is not None:
            agree(sink.shape[0], self.heads)
        if positions is not None and positions.shape is not None:
            tuple(map(agree, positions.shape, shape[:2]))

    def decompose(self, b: Any, q: Any, *rest: Any) -> Any:
        k, v, past_key, past_value, lengths, total, cos, sin, positions, bias, sink = (*rest, *[None] * 11)[:11]
        kind, wide = q.dtype, wide_type(q.dtype)
        if k is None:
            size = share(q.dims[2], self.heads + 2 * self.kv_heads)
            if not isinstance(size, int):
                raise UnsupportedError("attention.heads", "packed heads of a size that is not known")
            q, k, v = b.Split(q, [self.heads * size, self.kv_heads * size, self.kv_heads * size], axis=2, outputs=3)
        q, k, v = (heads_first(b, x, heads) for x, heads in ((q, self.heads), (k, self.kv_heads), (v, self.kv_heads)))
        rows, count = count_of(b, q, 2), b.Reshape(b.Cast(total, to=dtypes.i64), [])
        length = b.Reshape(b.Add(b.Cast(lengths, to=dtypes.i64), b.constant(1)), [-1, 1])
        is_first = b.Equal(count, rows)
        past = b.Where(is_first, b.constant(0), b.Subtract(length, rows))
        if self.rotary:
            following = places(b, q, 2)
            at = b.Add(past, following)
            if positions is not None:
                first = b.Reshape(b.Slice(positions, [0, 0], [1, 1], [0, 1], [1, 1]), [])
                at = b.Where(is_first, b.Add(following, first), positions)
            at = b.Expand(at, join_sizes(b, [length_of(b, q, 0), length_of(b, q, 2)]))
            q, k = (self._turned(b, x, cos, sin, at) for x in (q, k))
        k, v = (self._present(b, x, cache, past, rows, count) for x, cache in ((k, past_key), (v, past_value)))
        present = (k, v)
        q, k, v = (as_type(b, x, wide) for x in (q, *(self._resident(b, x, count) for x in (k, v))))
        scale = b.constant(self.scale, wide) if self.scale else default_scale(b, q)
        scores = grouped(b, q, k, scale)
        if self.softcap:
            cap = b.constant(self.softcap, wide)
            scores = b.Multiply(b.Tanh(b.Divide(scores, cap)), cap)
        if bias is not None:
            scores = b.Add(scores, as_type(b, bias, wide))
        takes_part = b.Unsqueeze(self._seen(b, q, k, past, length), [1])
        zero = b.constant(0, wide)
        # In a window a row beyond its sequence may see nothing, and then has no weights.
        low = b.constant(-inf if self.window < 0 else np.finfo(wide.numpy).min, wide)
        masked = b.Where(takes_part, scores, low)
        if sink is None and self.smooth:
            sink = b.constant([0.0] * self.heads, wide)
        if sink is None:
            weights = b.Softmax(masked, axis=-1)
        else:
            weights = with_sink(b, masked, b.Reshape(as_type(b, sink, wide), [1, -1, 1, 1]))
        if self.window >= 0:
            weights = b.Where(takes_part, weights, zero)
        y = b.Reshape(b.Transpose(as_type(b, grouped(b, weights, v), kind), [0, 2, 1, 3]), [0, 0, -1])
        qk = []
        if self.outputs == 4:
            qk = [as_type(b, weights if self.scores == "weights" else b.Where(takes_part, scores, zero), kind)]
        return [y, *present, *qk][: self.outputs]

    def _turned(self, b: Any, x: Any, cos: Any, sin: Any, at: Any) -> Any:
        half = cos.dims[1]
        if not isinstance(half, int):
            raise UnsupportedError("rotary.turned", "a number of turned columns that is not known")
        return b.RotaryEmbedding(x, cos, sin, at, turned=2 * half, interleaved=self.interleaved)

    def _present(self, b: Any, x: Any, cache: Any, past: Any, rows: Any, count: Any) -> Any:
        """The past of each sequence, its new rows and zeros: read out of both and a row of zeros by the place of each row."""
        cached = b.constant(0) if cache is None else count_of(b, cache, 2)
        empty = b.Expand(b.constant(0, x.dtype), join_sizes(b, [length_of(b, x, 0), length_of(b, x, 1), 1, length_of(b, x, 3)]))
        pieces = b.Concat(*([] if cache is None else [cache]), x, empty, axis=2)
        after = b.Maximum(count, cached)
        row = b.Range(b.constant(0), after, b.constant(1))
        new = b.Subtract(row, past)
        found = b.Where(b.Less(new, rows), b.Add(new, cached), b.Add(cached, rows))
        found = b.Where(b.Less(new, b.constant(0)), row, found)
        is_sound = b.And(b.GreaterEqual(past, b.constant(0)), b.LessEqual(past, cached))
        found = b.Add(found, b.Where(is_sound, b.constant(0), b.constant(_FAR)))
        target = join_sizes(b, [length_of(b, x, 0), length_of(b, x, 1), b.Reshape(after, [1]), length_of(b, x, 3)])
        return b.GatherElements(pieces, b.Expand(b.Unsqueeze(found, [1, 3]), target), axis=2)

    def _resident(self, b: Any, present: Any, count: Any) -> Any:
        """The first ``total`` rows: beyond them no sequence has any."""
        return b.Slice(present, b.constant([0]), b.Reshape(count, [1]), [2], [1])

    def _seen(self, b: Any, q: Any, k: Any, past: Any, length: Any) -> Any:
        """Whether row i of a sequence sees key j: [batch, rows, keys]."""
        key = b.Unsqueeze(places(b, k, 2), [0, 1])
        seen = b.Less(key, b.Unsqueeze(length, [2]))
        if not self.causal:
            return seen
        row = b.Add(b.Unsqueeze(past, [2]), b.Unsqueeze(places(b, q, 2), [0, 2]))
        seen = b.And(seen, b.LessEqual(key, row))
        return seen if self.window < 0 else b.And(seen, b.Greater(key, b.Subtract(row, b.constant(self.window))))


def _hold_rank(x: Any, rank: int, what: str) -> None:
    if x is not None and x.shape is not None and len(x.shape) != rank:
        raise RuleError("attention.rank", f"a {what} of rank {rank} is needed, not {x.type}")
