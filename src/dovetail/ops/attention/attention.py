"""Attention: values weighed by how well their keys fit a query. Every rule to compute it is that of its parts."""

from __future__ import annotations

from math import inf
from typing import Any

from dovetail import symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import agree, broadcast
from dovetail.ops.attention.heads import bias_of, count_of, default_scale, grouped, heads_first, is_past, places, share, with_sink
from dovetail.ops.casts import as_type, wide_type

_HEADS = "q_num_heads:q_heads?, kv_num_heads:kv_heads?"
_SCORES = (
    "softcap=0.0, softmax_precision:precision?, scale?, is_causal:causal=0, "
    "qk_matmul_output_mode~{0:raw,1:capped,2:masked,3:weights}:scores=0"
)
_WINDOW = "left_window_size:left=-1, right_window_size:right=-1"


class ScaledDotProductAttention(
    Op,
    sig="q: F, k: F, v: F, mask?: T, scale?: F, sink?: F -> y: F",
    openvino="ScaledDotProductAttention-13(q, k, v, mask?, scale?, sink?; causal)",
):
    """``softmax(q k' * scale + mask) v`` over the matrices in the last two axes; the axes before them, at least one, broadcast.

    ``scale`` is one number, 1 / sqrt(columns of q) where it is left out. A ``mask`` of truth values says which keys take part,
    one of numbers is added. With ``causal`` it is ignored, and row i sees the keys 0 to i. A row that sees no key is NaN.
    A ``sink`` of as many axes, one number a row, takes part in the softmax like one more key without a value.
    Source: OpenVINO ScaledDotProductAttention-13.
    """

    causal: bool = False

    def shape(self, q: Any, k: Any, v: Any, mask: Any = None, scale: Any = None, sink: Any = None) -> Any:
        for x, name in ((q, "query"), (k, "key"), (v, "value")):
            if x.shape is not None and len(x.shape) < 3:
                raise RuleError("attention.rank", f"a {name} of rank at least 3 is needed, not {x.type}")
        if scale is not None and scale.shape and (len(scale.shape) > 1 or symbolic.equal(scale.shape[0], 1) is False):
            raise RuleError("attention.scale", f"a scale of one number is needed, not {scale.type}")
        if mask is not None:
            check_mask(mask, q)
        _check_sink(sink, q)
        if q.shape is None or k.shape is None or v.shape is None:
            return None
        agree(q.shape[-1], k.shape[-1])
        keys = agree(k.shape[-2], v.shape[-2])
        rows, fronts = q.shape[-2], [x.shape[:-2] for x in (q, k, v)]
        if mask is not None and not self.causal:
            if mask.shape is None:
                return None
            if len(mask.shape) == 1:
                raise RuleError("attention.mask", f"a mask of rows and columns is needed, not {mask.type}")
            (stretched,) = broadcast(mask.shape[-1:] or (1,), (keys,)) or (None,)
            if stretched is not None:
                agree(stretched, keys)
            (rows,) = broadcast(mask.shape[-2:-1], (rows,)) or (None,)
            fronts.append(mask.shape[:-2])
        return (*(broadcast(*fronts) or ()), rows, v.shape[-1])

    def decompose(self, b: Any, q: Any, k: Any, v: Any, mask: Any = None, scale: Any = None, sink: Any = None) -> Any:
        if scale is None:
            scale = default_scale(b, q)
        scores = b.Multiply(b.MatMul(q, k, transpose_b=True), scale)
        if self.causal:
            scores = b.Add(scores, bias_of(b, is_past(b, q, k, None, -1, 0), q.dtype))
        elif mask is not None:
            scores = b.Add(scores, bias_of(b, mask, q.dtype) if mask.dtype.kind == "bool" else mask)
        return b.MatMul(b.Softmax(scores, axis=-1) if sink is None else with_sink(b, scores, sink), v)


def _check_sink(sink: Any, q: Any) -> None:
    """Raise RuleError [attention.sink] for a sink that is not one number a row, a matrix of rows, or more of them."""
    if sink is None or sink.shape is None or q.shape is None:
        return
    if len(sink.shape) != len(q.shape) or symbolic.equal(sink.shape[-1], 1) is False:
        raise RuleError("attention.sink", f"a sink of rank {len(q.shape)} with one column is needed, not {sink.type}")
    for size, other in zip(sink.shape[:-1], q.shape[:-1], strict=True):
        if symbolic.equal(size, 1) is not True and symbolic.equal(other, 1) is not True:
            agree(size, other)


def check_mask(mask: Any, q: Any) -> None:
    """Raise RuleError [attention.mask] for a mask that neither selects keys nor is added."""
    kind = getattr(mask.type, "dtype", None)
    other = getattr(q.type, "dtype", None)
    if kind is not None and kind.kind != "bool" and other is not None and kind is not other:
        raise RuleError("attention.mask", f"a mask of boolean or {other} is needed, not {mask.type}")


class Attention(
    Op,
    sig="q: F, k: F, v: F, mask?: T, past_key?: F, past_value?: F, lengths?: i64 "
    "-> y: F, present_key: F, present_value: F, qk: F",
    onnx=(
        f"Attention-23(q, k, v, mask?, past_key?, past_value?; {_HEADS}, {_SCORES} | short_mask=false)",
        f"Attention-24(q, k, v, mask?, past_key?, past_value?, lengths?; {_HEADS}, {_SCORES} | short_mask=true/false)",
        f"Attention-25(q, k, v, mask?, past_key?, past_value?, lengths?; {_HEADS}, {_SCORES}, {_WINDOW} | short_mask=true/false)",
    ),
):
    """``softmax(cap(q k' * scale) + bias) v`` for each head, where ``cap(x)`` is ``softcap * tanh(x / softcap)``, or x for 0.

    ``q``: [batch, heads, rows, size], ``k`` and ``v``: [batch, kv_heads, keys, size]; or all [batch, rows, heads * size] with
    ``q_heads`` and ``kv_heads``. Each head of ``k`` and ``v`` serves heads / kv_heads of ``q`` that follow each other.
    ``past_key`` and ``past_value`` come before ``k`` and ``v``; the present ones are both together. The bias is ``mask``, or
    minus infinity where it is false, plus minus infinity for what a row must not see: keys from ``lengths`` [batch] on; with
    ``causal`` keys after i + offset, and those more than ``left`` before it or ``right`` after it where these are not negative.
    The offset is the length of the past, or ``lengths`` less the number of rows, else 0. With ``short_mask`` a mask that is
    shorter than the keys forbids the rest. A row that sees no key is 0. Weights are computed in ``precision`` where it is given.
    ``qk``: the ``scores``, ``raw`` products, ``capped``, ``masked`` or ``weights``. Source: ONNX Attention 23, 24, 25.
    """

    causal: bool = False
    scale: float | None = None
    softcap: float = 0.0
    precision: DType | None = None
    q_heads: int | None = None
    kv_heads: int | None = None
    scores: str = "raw"
    short_mask: bool = False
    left: int = -1
    right: int = -1
    outputs: int = 1

    def validate(self) -> None:
        if not 1 <= self.outputs <= 4:
            raise RuleError("node.outputs", f"{self.outputs} outputs; there are 1 to 4")
        if self.scores not in ("raw", "capped", "masked", "weights"):
            raise RuleError("attention.scores", f"{self.scores!r} is none of raw, capped, masked, weights")
        for name in ("q_heads", "kv_heads"):
            heads = getattr(self, name)
            if heads is not None and heads < 1:
                raise RuleError("attention.heads", f"{name} = {heads}")
        if self.left < -1 or self.right < -1:
            raise RuleError("attention.window", f"a window of {self.left} before and {self.right} after")
        if self.softcap < 0:
            raise RuleError("attention.softcap", f"a cap of {self.softcap}")
        if self.precision is not None and not self.precision.is_float:
            raise RuleError("attention.precision", f"weights are not computed in {self.precision}")

    def shape(
        self, q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None, lengths: Any = None
    ) -> Any:
        self._check(q, k, v, mask, past_key, past_value, lengths)
        if None in (q.shape, k.shape, v.shape):
            return [None] * self.outputs
        rank = len(q.shape)
        heads, kv_heads = self.q_heads, self.kv_heads
        batch, rows, keys = q.shape[0], q.shape[-2], k.shape[-2]
        if rank == 4:
            heads, kv_heads = q.shape[1], k.shape[1]
        size, v_size = (x.shape[-1] if rank == 4 else share(x.shape[-1], kv_heads) for x in (k, v))
        agree(size, q.shape[-1] if rank == 4 else share(q.shape[-1], heads))
        for x in (k, v):
            batch = agree(batch, x.shape[0])
        agree(keys, v.shape[-2])
        if past_key is not None:
            keys = self._total(keys, batch, kv_heads, ((past_key, size), (past_value, v_size)))
        y = (batch, heads, rows, v_size) if rank == 4 else (batch, rows, heads * v_size)
        if mask is not None and mask.shape is not None:
            self._check_mask_shape(mask.shape, (batch, heads, rows, keys))
        return [y, (batch, kv_heads, keys, size), (batch, kv_heads, keys, v_size), (batch, heads, rows, keys)][: self.outputs]

    def _check(self, q: Any, k: Any, v: Any, mask: Any, past_key: Any, past_value: Any, lengths: Any) -> None:
        ranks = {len(x.shape) for x in (q, k, v) if x.shape is not None}
        if len(ranks) > 1 or ranks - {3, 4}:
            raise RuleError(
                "attention.rank", f"three tensors of rank 3 or of rank 4 are needed, not {q.type}, {k.type}, {v.type}"
            )
        if ranks == {3} and (self.q_heads is None or self.kv_heads is None):
            raise RuleError(
                "attention.heads", f"tensors of rank 3 need q_heads and kv_heads, which are {self.q_heads}, {self.kv_heads}"
            )
        for x, heads in ((q, self.q_heads), (k, self.kv_heads), (v, self.kv_heads)):
            if x.shape is not None and len(x.shape) == 4 and heads is not None:
                agree(x.shape[1], heads)
        if ranks == {4} and k.shape is not None and v.shape is not None:
            agree(k.shape[1], v.shape[1])
        counts: tuple[Any, Any] = (self.q_heads, self.kv_heads)
        if ranks == {4} and q.shape is not None and k.shape is not None:
            counts = (q.shape[1], k.shape[1])
        if all(isinstance(count, int) for count in counts) and (not counts[1] or counts[0] % counts[1]):
            raise RuleError("attention.heads", f"{counts[0]} heads of the query are not a multiple of {counts[1]} of the keys")
        if (past_key is None) != (past_value is None):
            raise RuleError("attention.past", "a past of keys and one of values go together")
        if lengths is not None:
            if past_key is not None:
                raise RuleError("attention.past", "lengths and a past do not go together")
            if lengths.shape is not None and len(lengths.shape) != 1:
                raise RuleError("attention.lengths", f"a vector of lengths is needed, not {lengths.type}")
            if lengths.shape is not None and q.shape is not None:
                agree(lengths.shape[0], q.shape[0])
        if mask is not None:
            check_mask(mask, q)

    def _total(self, keys: Any, batch: Any, heads: Any, pasts: Any) -> Any:
        total = keys
        for past, size in pasts:
            if past.shape is None:
                total = None
                continue
            if len(past.shape) != 4:
                raise RuleError("attention.past", f"a past of rank 4 is needed, not {past.type}")
            for pair in zip((past.shape[0], past.shape[1], past.shape[3]), (batch, heads, size), strict=True):
                agree(*pair)
            total = None if total is None else keys + past.shape[2]
        if all(past.shape is not None for past, _ in pasts):
            agree(pasts[0][0].shape[2], pasts[1][0].shape[2])
        return total

    def _check_mask_shape(self, shape: Any, whole: Any) -> None:
        if len(shape) > 4:
            raise RuleError("attention.mask", f"a mask of rank {len(shape)}")
        pairs = list(zip(shape[::-1], whole[::-1], strict=False))
        for place, (size, total) in enumerate(pairs):
            if total is None or (isinstance(size, int) and size == 1) or not isinstance(size, int):
                continue
            fits = symbolic.equal(size, total)
            if place == 0 and self.short_mask and fits is False:
                fits = None if symbolic.less(size, total) is not False else False
            if fits is False:
                raise RuleError(
                    "attention.mask", f"a mask of shape [{', '.join(map(str, shape))}] for scores {list(map(str, whole))}"
                )

    def canonical(
        self, q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None, lengths: Any = None
    ) -> Op:
        changes: dict[str, Any] = {}
        if self.precision is not None and self.precision is getattr(q.type, "dtype", None):
            changes["precision"] = None
        if q.shape is not None and len(q.shape) == 4:
            changes["q_heads"] = changes["kv_heads"] = None
        if mask is None or (mask.shape and k.shape is not None and self._is_whole(mask.shape[-1], k, past_key)):
            changes["short_mask"] = False
        if self.outputs < 4:
            changes["scores"] = "raw"
        if self.causal and self.right >= 0:
            changes["right"] = -1
        return self.with_(**changes) if changes else self

    def _is_whole(self, size: Any, k: Any, past_key: Any) -> bool:
        keys = k.shape[-2]
        if past_key is not None:
            if past_key.shape is None:
                return False
            keys = keys + past_key.shape[2]
        return symbolic.equal(size, keys) is True

    def decompose(
        self, b: Any, q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None, lengths: Any = None
    ) -> Any:
        flat, kind = len(q.dims) == 3, q.dtype
        wide = wide_type(kind)
        if flat:
            q, k, v = (heads_first(b, x, heads) for x, heads in ((q, self.q_heads), (k, self.kv_heads), (v, self.kv_heads)))
        past = None if past_key is None else count_of(b, past_key, 2)
        if past_key is not None:
            k, v = b.Concat(past_key, k, axis=2), b.Concat(past_value, v, axis=2)
        q, keys, values = (as_type(b, x, wide) for x in (q, k, v))
        scale = default_scale(b, q) if self.scale is None else b.constant(self.scale, wide)
        raw = capped = grouped(b, q, keys, scale)
        if self.softcap:
            capped = b.Multiply(b.Tanh(b.Divide(raw, b.constant(self.softcap, wide))), b.constant(self.softcap, wide))
        bias = self._bias(b, q, k, mask, past, lengths)
        masked, is_none = capped, None
        if bias is not None:
            masked = b.Add(capped, bias)
            if not (mask is None and lengths is None and self.left < 0 and self.right < 0):
                is_none = _sees_nothing(b, bias)
        seen = masked if is_none is None else b.Add(capped, b.Where(is_none, b.constant(0, wide), bias))
        weights = as_type(b, b.Softmax(as_type(b, seen, self.precision or wide), axis=-1), wide)
        if is_none is not None:
            weights = b.Where(is_none, b.constant(0, wide), weights)
        y = as_type(b, grouped(b, weights, values), kind)
        if flat:
            y = b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, 0, -1])
        scores = {"raw": raw, "capped": capped, "masked": masked, "weights": weights}[self.scores]
        return [y, k, v, *([as_type(b, scores, kind)] if self.outputs == 4 else [])][: self.outputs]

    def _bias(self, b: Any, q: Any, k: Any, mask: Any, past: Any, lengths: Any) -> Any:
        kind, takes_part = q.dtype, []
        if self.causal or self.left >= 0 or self.right >= 0:
            offset = past
            if lengths is not None:
                offset = b.Reshape(b.Subtract(lengths, count_of(b, q, 2)), [-1, 1, 1, 1])
            right = 0 if self.causal else self.right
            takes_part.append(is_past(b, q, k, offset, self.left, right))
        if lengths is not None:
            takes_part.append(b.Less(places(b, k, 2), b.Reshape(lengths, [-1, 1, 1, 1])))
        added = None
        if mask is not None:
            mask = self._whole_mask(b, mask, k)
            if mask.dtype.kind == "bool":
                takes_part.append(mask)
            else:
                added = as_type(b, mask, kind)
        if not takes_part:
            return added
        allowed = takes_part[0]
        for other in takes_part[1:]:
            allowed = b.And(allowed, other)
        bias = bias_of(b, allowed, kind)
        return bias if added is None else b.Add(added, bias)

    def _whole_mask(self, b: Any, mask: Any, k: Any) -> Any:
        """The mask with what it lacks at the end."""
        if not self.short_mask or symbolic.equal(mask.dims[-1], k.dims[2]) is True:
            return mask
        missing = b.Subtract(b.Unsqueeze(count_of(b, k, 2), [0]), b.Unsqueeze(count_of(b, mask, -1), [0]))
        fill = b.constant(False if mask.dtype.kind == "bool" else -inf, mask.dtype)
        return b.Pad(mask, b.Concat(b.constant([0]), missing, axis=0), fill, b.constant([-1]))


def _sees_nothing(b: Any, bias: Any) -> Any:
    """Whether a row of a bias is minus infinity. Its maximum is not asked for: OpenVINO has a finite number there."""
    zero, one = (b.constant(number, bias.dtype) for number in (0, 1))
    takes_part = b.Where(b.Equal(bias, b.constant(-inf, bias.dtype)), zero, one)
    return b.Equal(b.ReduceMax(takes_part, [-1], keepdims=True), zero)
