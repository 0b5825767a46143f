# Generated from the registry by `python -m dovetail.ir.operator_stub`; do not edit.
"""The operators of the registry as methods of a Builder.

Inputs are positional: values, or data that becomes a constant; None leaves out an optional input. Attributes are keywords.
An integer attribute may be a Value, which is then read at run time. One output is returned alone, several as a list.
"""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from dovetail.dtypes import DTypeLike
from dovetail.errors import DovetailError
from dovetail.ir.graph import Graph, Operand, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Type

def operator_class(kind: str) -> type[Op]: ...

class OperatorMethods:
    """The base of Builder: each operator is a method."""

    # attention.attention

    @overload
    def Attention(
        self, q: Operand, k: Operand, v: Operand, attn_mask: Operand | None = None, past_key: Operand | None = None,
        past_value: Operand | None = None, nonpad_kv_seqlen: Operand | None = None, /, *, is_causal: bool = False,
        scale: float | None = None, softcap: float = 0.0, softmax_precision: DTypeLike | None = None,
        q_num_heads: int | Value | None = None, kv_num_heads: int | Value | None = None, qk_matmul_output_mode: str = 'raw',
        short_mask: bool = False, left_window_size: int | Value = -1, right_window_size: int | Value = -1,
        outputs: Literal[1] = 1,
    ) -> Value:
        """Attention computes ``softmax(cap(q k' * scale) + bias) v`` for each head, with ``cap(x) = softcap * tanh(x / softcap)``.

        ``softcap`` 0 means ``cap(x) = x``. ``q`` is [batch, heads, rows, size], ``k`` and ``v`` are [batch, kv_heads, keys,
        size]; or all are [batch, rows, heads * size] with ``q_num_heads`` and ``kv_num_heads``. Each head of ``k`` and ``v``
        serves heads / kv_heads consecutive heads of ``q``. ``past_key`` and ``past_value`` precede ``k`` and ``v``;
        ``present_key`` and ``present_value`` are both together.

        The bias is ``attn_mask``, or minus infinity where a boolean mask is false, plus minus infinity for these keys: from
        ``nonpad_kv_seqlen`` [batch] on; with ``is_causal`` after i + offset; more than ``left_window_size`` before i + offset or
        more than ``right_window_size`` after it, where these are not negative. The offset is the length of the past, or
        ``nonpad_kv_seqlen`` minus the number of rows, else 0. With ``short_mask`` a mask with fewer columns than keys hides the
        remaining keys. A row that sees no key is 0.

        Softmax is computed in ``softmax_precision`` where it is set. ``qk_matmul_output`` holds the scores as
        ``qk_matmul_output_mode`` says: ``raw`` products, ``capped``, ``masked`` or the softmax ``weights``.
        Source: ONNX Attention 23, 24, 25.
        """

    @overload
    def Attention(
        self, q: Operand, k: Operand, v: Operand, attn_mask: Operand | None = None, past_key: Operand | None = None,
        past_value: Operand | None = None, nonpad_kv_seqlen: Operand | None = None, /, *, is_causal: bool = False,
        scale: float | None = None, softcap: float = 0.0, softmax_precision: DTypeLike | None = None,
        q_num_heads: int | Value | None = None, kv_num_heads: int | Value | None = None, qk_matmul_output_mode: str = 'raw',
        short_mask: bool = False, left_window_size: int | Value = -1, right_window_size: int | Value = -1,
        outputs: Literal[2, 3, 4],
    ) -> list[Value]:
        """Attention computes ``softmax(cap(q k' * scale) + bias) v`` for each head, with ``cap(x) = softcap * tanh(x / softcap)``.

        ``softcap`` 0 means ``cap(x) = x``. ``q`` is [batch, heads, rows, size], ``k`` and ``v`` are [batch, kv_heads, keys,
        size]; or all are [batch, rows, heads * size] with ``q_num_heads`` and ``kv_num_heads``. Each head of ``k`` and ``v``
        serves heads / kv_heads consecutive heads of ``q``. ``past_key`` and ``past_value`` precede ``k`` and ``v``;
        ``present_key`` and ``present_value`` are both together.

        The bias is ``attn_mask``, or minus infinity where a boolean mask is false, plus minus infinity for these keys: from
        ``nonpad_kv_seqlen`` [batch] on; with ``is_causal`` after i + offset; more than ``left_window_size`` before i + offset or
        more than ``right_window_size`` after it, where these are not negative. The offset is the length of the past, or
        ``nonpad_kv_seqlen`` minus the number of rows, else 0. With ``short_mask`` a mask with fewer columns than keys hides the
        remaining keys. A row that sees no key is 0.

        Softmax is computed in ``softmax_precision`` where it is set. ``qk_matmul_output`` holds the scores as
        ``qk_matmul_output_mode`` says: ``raw`` products, ``capped``, ``masked`` or the softmax ``weights``.
        Source: ONNX Attention 23, 24, 25.
        """

    @overload
    def Attention(
        self, q: Operand, k: Operand, v: Operand, attn_mask: Operand | None = None, past_key: Operand | None = None,
        past_value: Operand | None = None, nonpad_kv_seqlen: Operand | None = None, /, *, is_causal: bool = False,
        scale: float | None = None, softcap: float = 0.0, softmax_precision: DTypeLike | None = None,
        q_num_heads: int | Value | None = None, kv_num_heads: int | Value | None = None, qk_matmul_output_mode: str = 'raw',
        short_mask: bool = False, left_window_size: int | Value = -1, right_window_size: int | Value = -1, outputs: int,
    ) -> Value | list[Value]:
        """Attention computes ``softmax(cap(q k' * scale) + bias) v`` for each head, with ``cap(x) = softcap * tanh(x / softcap)``.

        ``softcap`` 0 means ``cap(x) = x``. ``q`` is [batch, heads, rows, size], ``k`` and ``v`` are [batch, kv_heads, keys,
        size]; or all are [batch, rows, heads * size] with ``q_num_heads`` and ``kv_num_heads``. Each head of ``k`` and ``v``
        serves heads / kv_heads consecutive heads of ``q``. ``past_key`` and ``past_value`` precede ``k`` and ``v``;
        ``present_key`` and ``present_value`` are both together.

        The bias is ``attn_mask``, or minus infinity where a boolean mask is false, plus minus infinity for these keys: from
        ``nonpad_kv_seqlen`` [batch] on; with ``is_causal`` after i + offset; more than ``left_window_size`` before i + offset or
        more than ``right_window_size`` after it, where these are not negative. The offset is the length of the past, or
        ``nonpad_kv_seqlen`` minus the number of rows, else 0. With ``short_mask`` a mask with fewer columns than keys hides the
        remaining keys. A row that sees no key is 0.

        Softmax is computed in ``softmax_precision`` where it is set. ``qk_matmul_output`` holds the scores as
        ``qk_matmul_output_mode`` says: ``raw`` products, ``capped``, ``masked`` or the softmax ``weights``.
        Source: ONNX Attention 23, 24, 25.
        """

    def ScaledDotProductAttention(
        self, query: Operand, key: Operand, value: Operand, attention_mask: Operand | None = None,
        scale: Operand | None = None, sink: Operand | None = None, /, *, causal: bool = False,
    ) -> Value:
        """ScaledDotProductAttention computes ``softmax(query key' * scale + attention_mask) value``.

        Matrices lie in the last two axes; the axes before them, at least one, broadcast. ``scale`` is one number, by default 1 /
        sqrt(columns of query). A boolean ``attention_mask`` is true for the keys that take part, any other mask is added to the
        scores. With ``causal`` the mask is ignored and row i sees the keys 0 to i. A row that sees no key is NaN. ``sink`` has
        the rank of ``query`` and one number for each row; it takes part in the softmax like one more key without a value.
        Source: OpenVINO ScaledDotProductAttention-13.
        """

    # attention.group_query_attention

    @overload
    def GroupQueryAttention(
        self, query: Operand, key: Operand | None, value: Operand | None, past_key: Operand | None, past_value: Operand | None,
        seqlens_k: Operand, total_sequence_length: Operand, cos_cache: Operand | None = None, sin_cache: Operand | None = None,
        position_ids: Operand | None = None, attention_bias: Operand | None = None, head_sink: Operand | None = None,
        k_scale: Operand | None = None, v_scale: Operand | None = None, q_norm_weight: Operand | None = None,
        k_norm_weight: Operand | None = None, /, *, num_heads: int | Value, kv_num_heads: int | Value, causal: bool = True,
        scale: float = 0.0, softcap: float = 0.0, local_window_size: int | Value = -1, do_rotary: bool = False,
        rotary_interleaved: bool = False, smooth_softmax: bool = False, qk_output: str = 'off',
        sliding_window_cache: bool = False, k_quant_type: str = 'NONE', v_quant_type: str = 'NONE', outputs: Literal[1],
    ) -> Value:
        """GroupQueryAttention attends from ``query`` to a cache that it first extends by ``key`` and ``value``.

        ``query`` is [batch, rows, num_heads * size], ``key`` and ``value`` are [batch, rows, kv_num_heads * size]. Without
        ``key`` and ``value`` all three lie in the columns of ``query``. ``seqlens_k`` [batch] is the length of each sequence
        after the new rows, minus one; ``total_sequence_length`` is the greatest length. The past of a sequence is its length
        minus the new rows, or nothing where ``total_sequence_length`` equals the number of new rows. ``present_key`` and
        ``present_value``, [batch, kv_num_heads, max(total, cache size), size], hold the past, the new rows, then zeros.

        Row i sees the rows of its sequence, with ``causal`` those up to i + past, and of these with ``local_window_size`` only
        the last so many. ``do_rotary`` rotates ``query`` and ``key`` by the tables ``cos_cache`` and ``sin_cache`` [positions,
        rotated / 2] at position i + past, or at ``position_ids`` [batch, rows]; where there is no past, at i + the first of
        those. Scores are capped by ``softcap`` (0: not), and ``attention_bias`` [batch or 1, num_heads or 1, rows, total] is
        added. ``head_sink`` [num_heads], or 0 with ``smooth_softmax``, takes part in the softmax like one more key without a
        value. ``output_qk`` holds, as ``qk_output`` says, the ``masked`` scores (0 where masked) or the softmax ``weights``.
        Source: com.microsoft GroupQueryAttention, as onnxruntime computes it on CPU.
        """

    @overload
    def GroupQueryAttention(
        self, query: Operand, key: Operand | None, value: Operand | None, past_key: Operand | None, past_value: Operand | None,
        seqlens_k: Operand, total_sequence_length: Operand, cos_cache: Operand | None = None, sin_cache: Operand | None = None,
        position_ids: Operand | None = None, attention_bias: Operand | None = None, head_sink: Operand | None = None,
        k_scale: Operand | None = None, v_scale: Operand | None = None, q_norm_weight: Operand | None = None,
        k_norm_weight: Operand | None = None, /, *, num_heads: int | Value, kv_num_heads: int | Value, causal: bool = True,
        scale: float = 0.0, softcap: float = 0.0, local_window_size: int | Value = -1, do_rotary: bool = False,
        rotary_interleaved: bool = False, smooth_softmax: bool = False, qk_output: str = 'off',
        sliding_window_cache: bool = False, k_quant_type: str = 'NONE', v_quant_type: str = 'NONE',
        outputs: Literal[2, 3, 4] = 3,
    ) -> list[Value]:
        """GroupQueryAttention attends from ``query`` to a cache that it first extends by ``key`` and ``value``.

        ``query`` is [batch, rows, num_heads * size], ``key`` and ``value`` are [batch, rows, kv_num_heads * size]. Without
        ``key`` and ``value`` all three lie in the columns of ``query``. ``seqlens_k`` [batch] is the length of each sequence
        after the new rows, minus one; ``total_sequence_length`` is the greatest length. The past of a sequence is its length
        minus the new rows, or nothing where ``total_sequence_length`` equals the number of new rows. ``present_key`` and
        ``present_value``, [batch, kv_num_heads, max(total, cache size), size], hold the past, the new rows, then zeros.

        Row i sees the rows of its sequence, with ``causal`` those up to i + past, and of these with ``local_window_size`` only
        the last so many. ``do_rotary`` rotates ``query`` and ``key`` by the tables ``cos_cache`` and ``sin_cache`` [positions,
        rotated / 2] at position i + past, or at ``position_ids`` [batch, rows]; where there is no past, at i + the first of
        those. Scores are capped by ``softcap`` (0: not), and ``attention_bias`` [batch or 1, num_heads or 1, rows, total] is
        added. ``head_sink`` [num_heads], or 0 with ``smooth_softmax``, takes part in the softmax like one more key without a
        value. ``output_qk`` holds, as ``qk_output`` says, the ``masked`` scores (0 where masked) or the softmax ``weights``.
        Source: com.microsoft GroupQueryAttention, as onnxruntime computes it on CPU.
        """

    @overload
    def GroupQueryAttention(
        self, query: Operand, key: Operand | None, value: Operand | None, past_key: Operand | None, past_value: Operand | None,
        seqlens_k: Operand, total_sequence_length: Operand, cos_cache: Operand | None = None, sin_cache: Operand | None = None,
        position_ids: Operand | None = None, attention_bias: Operand | None = None, head_sink: Operand | None = None,
        k_scale: Operand | None = None, v_scale: Operand | None = None, q_norm_weight: Operand | None = None,
        k_norm_weight: Operand | None = None, /, *, num_heads: int | Value, kv_num_heads: int | Value, causal: bool = True,
        scale: float = 0.0, softcap: float = 0.0, local_window_size: int | Value = -1, do_rotary: bool = False,
        rotary_interleaved: bool = False, smooth_softmax: bool = False, qk_output: str = 'off',
        sliding_window_cache: bool = False, k_quant_type: str = 'NONE', v_quant_type: str = 'NONE', outputs: int = 3,
    ) -> Value | list[Value]:
        """GroupQueryAttention attends from ``query`` to a cache that it first extends by ``key`` and ``value``.

        ``query`` is [batch, rows, num_heads * size], ``key`` and ``value`` are [batch, rows, kv_num_heads * size]. Without
        ``key`` and ``value`` all three lie in the columns of ``query``. ``seqlens_k`` [batch] is the length of each sequence
        after the new rows, minus one; ``total_sequence_length`` is the greatest length. The past of a sequence is its length
        minus the new rows, or nothing where ``total_sequence_length`` equals the number of new rows. ``present_key`` and
        ``present_value``, [batch, kv_num_heads, max(total, cache size), size], hold the past, the new rows, then zeros.

        Row i sees the rows of its sequence, with ``causal`` those up to i + past, and of these with ``local_window_size`` only
        the last so many. ``do_rotary`` rotates ``query`` and ``key`` by the tables ``cos_cache`` and ``sin_cache`` [positions,
        rotated / 2] at position i + past, or at ``position_ids`` [batch, rows]; where there is no past, at i + the first of
        those. Scores are capped by ``softcap`` (0: not), and ``attention_bias`` [batch or 1, num_heads or 1, rows, total] is
        added. ``head_sink`` [num_heads], or 0 with ``smooth_softmax``, takes part in the softmax like one more key without a
        value. ``output_qk`` holds, as ``qk_output`` says, the ``masked`` scores (0 where masked) or the softmax ``weights``.
        Source: com.microsoft GroupQueryAttention, as onnxruntime computes it on CPU.
        """

    # attention.linear_attention

    @overload
    def LinearAttention(
        self, query: Operand, key: Operand, value: Operand, past_state: Operand | None = None, decay: Operand | None = None,
        beta: Operand | None = None, /, *, q_num_heads: int | Value, kv_num_heads: int | Value, scale: float = 0.0,
        update_rule: str = 'gated_delta', outputs: Literal[1],
    ) -> Value:
        """LinearAttention updates a state matrix S per head row after row: ``S += key ⊗ w``, ``output = scale * query S``.

        ``query`` is [batch, rows, q_num_heads * size], ``key`` [batch, rows, kv_num_heads * size], ``value`` [batch, rows,
        kv_num_heads * columns]. Each head of ``key`` and ``value`` serves q_num_heads / kv_num_heads consecutive heads of
        ``query``. S is ``past_state`` [batch, kv_num_heads, size, columns], by default zeros, before the first row, and
        ``present_state`` after the last row.

        With ``update_rule`` ``gated`` or ``gated_delta`` S is first multiplied by exp of ``decay`` [batch, rows, kv_num_heads],
        or [batch, rows, kv_num_heads * size] for one number per row of S. The written w is ``value``, with ``delta`` or
        ``gated_delta`` ``beta * (value - key S)``, where ``beta`` is [batch, rows, kv_num_heads or 1]. All is computed in f32.
        ``scale`` 0 means 1 / sqrt(size).
        Source: ONNX LinearAttention 27.
        """

    @overload
    def LinearAttention(
        self, query: Operand, key: Operand, value: Operand, past_state: Operand | None = None, decay: Operand | None = None,
        beta: Operand | None = None, /, *, q_num_heads: int | Value, kv_num_heads: int | Value, scale: float = 0.0,
        update_rule: str = 'gated_delta', outputs: Literal[2] = 2,
    ) -> list[Value]:
        """LinearAttention updates a state matrix S per head row after row: ``S += key ⊗ w``, ``output = scale * query S``.

        ``query`` is [batch, rows, q_num_heads * size], ``key`` [batch, rows, kv_num_heads * size], ``value`` [batch, rows,
        kv_num_heads * columns]. Each head of ``key`` and ``value`` serves q_num_heads / kv_num_heads consecutive heads of
        ``query``. S is ``past_state`` [batch, kv_num_heads, size, columns], by default zeros, before the first row, and
        ``present_state`` after the last row.

        With ``update_rule`` ``gated`` or ``gated_delta`` S is first multiplied by exp of ``decay`` [batch, rows, kv_num_heads],
        or [batch, rows, kv_num_heads * size] for one number per row of S. The written w is ``value``, with ``delta`` or
        ``gated_delta`` ``beta * (value - key S)``, where ``beta`` is [batch, rows, kv_num_heads or 1]. All is computed in f32.
        ``scale`` 0 means 1 / sqrt(size).
        Source: ONNX LinearAttention 27.
        """

    @overload
    def LinearAttention(
        self, query: Operand, key: Operand, value: Operand, past_state: Operand | None = None, decay: Operand | None = None,
        beta: Operand | None = None, /, *, q_num_heads: int | Value, kv_num_heads: int | Value, scale: float = 0.0,
        update_rule: str = 'gated_delta', outputs: int = 2,
    ) -> Value | list[Value]:
        """LinearAttention updates a state matrix S per head row after row: ``S += key ⊗ w``, ``output = scale * query S``.

        ``query`` is [batch, rows, q_num_heads * size], ``key`` [batch, rows, kv_num_heads * size], ``value`` [batch, rows,
        kv_num_heads * columns]. Each head of ``key`` and ``value`` serves q_num_heads / kv_num_heads consecutive heads of
        ``query``. S is ``past_state`` [batch, kv_num_heads, size, columns], by default zeros, before the first row, and
        ``present_state`` after the last row.

        With ``update_rule`` ``gated`` or ``gated_delta`` S is first multiplied by exp of ``decay`` [batch, rows, kv_num_heads],
        or [batch, rows, kv_num_heads * size] for one number per row of S. The written w is ``value``, with ``delta`` or
        ``gated_delta`` ``beta * (value - key S)``, where ``beta`` is [batch, rows, kv_num_heads or 1]. All is computed in f32.
        ``scale`` 0 means 1 / sqrt(size).
        Source: ONNX LinearAttention 27.
        """

    # attention.rotary_embedding

    def RotaryEmbedding(
        self, x: Operand, cos_cache: Operand, sin_cache: Operand, position_ids: Operand | None = None, /, *,
        num_heads: int | Value | None = None, rotary_embedding_dim: int | Value = 0, interleaved: bool = False,
    ) -> Value:
        """RotaryEmbedding rotates pairs of columns (a, b) of each head of ``x``: to (a cos - b sin, a sin + b cos).

        ``x`` is [batch, heads, rows, size], or [batch, rows, heads * size] with ``num_heads``. The first ``rotary_embedding_dim``
        columns (0: all) are rotated, the rest is copied. A pair is column i of either half, or two adjacent columns when
        ``interleaved``. ``cos_cache`` and ``sin_cache`` are [batch, rows, rotary_embedding_dim / 2]; or [positions,
        rotary_embedding_dim / 2], from which ``position_ids`` [batch, rows] picks rows. Source: ONNX RotaryEmbedding 23.
        """

    # constant

    def Constant(
        self, /, *, data: np.ndarray[Any, Any], dtype: DTypeLike,
    ) -> Value:
        """A tensor that is the same in every run. ``data`` holds one element per numpy element, read-only."""

    def Foreign(
        self, /, *inputs: Operand | None, format: str, domain: str, kind: str, version: int | Value,
        attributes: Sequence[tuple[str, Any]], outputs: int, fault: DovetailError | None = None,
    ) -> list[Value]:
        """An operator known only by what its file says: it can be shown, checked and written back, not converted or
        differentiated.

        ``fault`` is the error of an operator that is known and refuses its inputs, in a body that may never run.
        """

    def Identity(
        self, input: Operand, /,
    ) -> Value:
        """The same value under another name."""

    # control_flow.if_op

    def If(
        self, cond: Operand, /, *captures: Operand | None, then_branch: Graph, else_branch: Graph, outputs: int = 1,
    ) -> list[Value]:
        """The outputs of ``then_branch`` where the one element of ``condition`` is true, otherwise those of ``else_branch``.

        Both branches take ``captures`` as their inputs. A branch that is not taken raises nothing, whatever its rules say of the
        inputs. Sources: ONNX If 1 to 25, OpenVINO If-8.
        """

    # control_flow.loop

    def Loop(
        self, trip_count: Operand | None, cond: Operand | None, /, *inputs: Operand | None, body: Graph,
        carried: int | Value = 0, scan_inputs: Sequence[tuple[int, int, bool]] = (),
        scan_outputs: Sequence[tuple[int, bool]] = (), outputs: int = 1,
    ) -> list[Value]:
        """Run ``body`` while its condition holds, ``trips`` times at most, or as often as ``scanned`` has parts.

        ``xs`` are first the initial states, ``carried`` of them, then what is cut into parts, one entry in ``scanned`` each, then
        what every trip reads whole. The body takes the number of the trip (a scalar of i64), the states, a part of each cut input,
        and the rest; it makes whether to go on (a scalar), the next states, and a part of each output in ``stacked``. The outputs
        are the last states and the parts, laid end to end. A cut is ``(axis, size, is_reversed)``: parts of ``size`` along ``axis``,
        from the last to the first where it is reversed; an output's is ``(axis, is_reversed)``.

        Without ``condition`` the first trip is made in any case; where it is false, or ``trips`` is negative, none is.
        Raises EngineError [loop.trips] beyond the limit ``trips``, [run.time], [run.memory], [loop.parts] where a cut input has fewer
        parts than there are trips.
        Sources: ONNX Loop 1 to 25, Scan 9 to 25; OpenVINO TensorIterator-1, Loop-5.
        """

    # detection.detection_output

    def DetectionOutput(
        self, boxes: Operand, scores: Operand, priors: Operand, objects: Operand | None = None, refined: Operand | None = None,
        /, *, classes: int | Value | None = None, background: int | Value = 0, top_k: int | Value = -1, encoded: bool = False,
        keep_top_k: Sequence[int] | Value = (-1,), code: str = 'caffe.PriorBoxParameter.CORNER', share_location: bool = True,
        overlap: float = 0.0, least: float = 0.0, clip_after: bool = False, clip_before: bool = False,
        best_class: bool = False, normalized: bool = False, height: int | Value = 1, width: int | Value = 1,
        objectness: float = 0.0,
    ) -> Value:
        """Rows [picture, class, score, x1, y1, x2, y2] of what is kept of the boxes that ``boxes`` [pictures, numbers] makes of
        ``priors`` [1 or pictures, 1 or 2, numbers], with ``scores`` [pictures, priors * classes]: [1, 1, rows, 7]. They go by
        picture, class and falling score; behind the last one stands a -1, and zeros.

        ``priors``: corners [x1, y1, x2, y2], or without ``normalized`` something and the corners in elements of a picture of
        ``height`` and ``width``; then, unless ``encoded``, the variances with which what ``boxes`` says is multiplied. The code
        CORNER moves the corners; CENTER_SIZE moves the middle by parts of the size, and multiplies the size by an exponential.
        Without ``share_location`` each class has boxes of its own. ``clip_before`` and ``clip_after`` keep boxes within 0 and 1. Of
        each class but ``background`` the ``top_k`` (-1: all) scores above ``least`` are looked at, and boxes that overlap a better
        one by more than ``overlap`` dropped. With ``best_class`` each prior is of its best class alone, if that has ``least``, the
        ``top_k`` are of all classes, and classes are counted from 0 after the first. Of each picture ``keep_top_k`` (-1: all) are
        kept. ``objects`` [pictures, priors * 2]: where the second is below ``objectness`` all is background; ``refined`` moves the
        priors first, as ``boxes`` does then. Source: OpenVINO DetectionOutput-1, -8.
        """

    # detection.multiclass_nms

    def MatrixNms(
        self, boxes: Operand, scores: Operand, /, *, sort: str = 'none', across: bool = False, dtype: DTypeLike = 'i64',
        least: float = 0.0, top_k: int | Value = -1, keep_top_k: int | Value = -1, background: int | Value = -1,
        normalized: bool = True, decay: str = 'linear', sigma: float = 2.0, after: float = 0.0,
    ) -> list[Value]:
        """Of each class but ``background`` in each picture, the ``top_k`` (-1: all) boxes whose scores are more than ``least``, with
        scores that fall by how much each overlaps the better ones; those above ``after`` are kept, of each picture the best
        ``keep_top_k``.

        Score i is multiplied by the least of ``(1 - o) / (1 - m)``, or with ``decay`` gaussian ``exp((m * m - o * o) * sigma)``, over
        all better boxes j; o is what i and j have in common, of what both cover, m the most that j has in common with a better one.
        Inputs, results and their order are those of MulticlassNms, but that classid sorts with ``across`` alone. Source: OpenVINO
        MatrixNms-8.
        """

    def MulticlassNms(
        self, boxes: Operand, scores: Operand, counts: Operand | None = None, /, *, sort: str = 'none', across: bool = False,
        dtype: DTypeLike = 'i64', least: float = 0.0, top_k: int | Value = -1, keep_top_k: int | Value = -1,
        background: int | Value = -1, normalized: bool = True, overlap: float = 0.0, nms_eta: float = 1.0,
    ) -> list[Value]:
        """Of each class but ``background`` in each picture, the ``top_k`` (-1: all) boxes whose scores are ``least`` or more, without
        those that overlap a better one by ``overlap`` or more; of each picture the best ``keep_top_k``.

        ``boxes`` [pictures, boxes, 4] are corners, without ``normalized`` of elements, which a box ends with; ``scores`` are
        [pictures, classes, boxes]. Results: rows [class, score, x1, y1, x2, y2]; which boxes these are, counted through all pictures,
        [rows, 1]; how many of each picture. Rows go by picture and score, with ``sort`` classid by picture, class and score; with
        ``across`` by score or class before the picture. With ``nms_eta`` below 1 the overlap that is enough falls from box to box;
        with ``counts`` pictures have boxes of their own: both are known to OpenVINO alone. Source: OpenVINO MulticlassNms-8, -9.
        """

    # detection.nms

    @overload
    def NonMaxSuppression(
        self, boxes: Operand, scores: Operand, most: Operand | None = None, overlap: Operand | None = None,
        least: Operand | None = None, sigma: Operand | None = None, /, *, center: bool = False, inclusive: bool = False,
        descending: bool = False, dtype: DTypeLike = 'i64', outputs: Literal[1] = 1, both: bool = False,
    ) -> Value:
        """Of boxes that overlap the one with the greatest score, of each batch and class: [batch, class, box] for each that is kept.

        ``boxes`` is [batches, n, 4]: two corners (y, x, y, x), any opposite ones, or with ``center`` the middle and the lengths
        (x, y, width, height). ``scores`` is [batches, classes, n]. Of a class at most ``most`` boxes are kept (left out: none),
        with a score above ``least`` (left out: any score); they are taken by falling score, the first of equal ones first, and
        one is passed over that shares with one already taken more than ``overlap`` of the area that both cover (with
        ``inclusive`` that much, or more; left out: 0). Boxes without area share nothing. Where ``sigma`` is more than 0 none is
        passed over (with ``both`` as before): a score is multiplied by exp(-share * share / (2 * sigma)) for each box that was
        taken, is taken when it is the greatest of those that are left, and only while it is above ``least``. The kept ones come by
        batch, class and falling score, or with ``descending`` all by falling score. With three ``outputs`` there are also [batch,
        class, score] for each in f32, and how many there are. All is computed in f32.
        Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is the one with ``both``).
        """

    @overload
    def NonMaxSuppression(
        self, boxes: Operand, scores: Operand, most: Operand | None = None, overlap: Operand | None = None,
        least: Operand | None = None, sigma: Operand | None = None, /, *, center: bool = False, inclusive: bool = False,
        descending: bool = False, dtype: DTypeLike = 'i64', outputs: Literal[2, 3], both: bool = False,
    ) -> list[Value]:
        """Of boxes that overlap the one with the greatest score, of each batch and class: [batch, class, box] for each that is kept.

        ``boxes`` is [batches, n, 4]: two corners (y, x, y, x), any opposite ones, or with ``center`` the middle and the lengths
        (x, y, width, height). ``scores`` is [batches, classes, n]. Of a class at most ``most`` boxes are kept (left out: none),
        with a score above ``least`` (left out: any score); they are taken by falling score, the first of equal ones first, and
        one is passed over that shares with one already taken more than ``overlap`` of the area that both cover (with
        ``inclusive`` that much, or more; left out: 0). Boxes without area share nothing. Where ``sigma`` is more than 0 none is
        passed over (with ``both`` as before): a score is multiplied by exp(-share * share / (2 * sigma)) for each box that was
        taken, is taken when it is the greatest of those that are left, and only while it is above ``least``. The kept ones come by
        batch, class and falling score, or with ``descending`` all by falling score. With three ``outputs`` there are also [batch,
        class, score] for each in f32, and how many there are. All is computed in f32.
        Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is the one with ``both``).
        """

    @overload
    def NonMaxSuppression(
        self, boxes: Operand, scores: Operand, most: Operand | None = None, overlap: Operand | None = None,
        least: Operand | None = None, sigma: Operand | None = None, /, *, center: bool = False, inclusive: bool = False,
        descending: bool = False, dtype: DTypeLike = 'i64', outputs: int, both: bool = False,
    ) -> Value | list[Value]:
        """Of boxes that overlap the one with the greatest score, of each batch and class: [batch, class, box] for each that is kept.

        ``boxes`` is [batches, n, 4]: two corners (y, x, y, x), any opposite ones, or with ``center`` the middle and the lengths
        (x, y, width, height). ``scores`` is [batches, classes, n]. Of a class at most ``most`` boxes are kept (left out: none),
        with a score above ``least`` (left out: any score); they are taken by falling score, the first of equal ones first, and
        one is passed over that shares with one already taken more than ``overlap`` of the area that both cover (with
        ``inclusive`` that much, or more; left out: 0). Boxes without area share nothing. Where ``sigma`` is more than 0 none is
        passed over (with ``both`` as before): a score is multiplied by exp(-share * share / (2 * sigma)) for each box that was
        taken, is taken when it is the greatest of those that are left, and only while it is above ``least``. The kept ones come by
        batch, class and falling score, or with ``descending`` all by falling score. With three ``outputs`` there are also [batch,
        class, score] for each in f32, and how many there are. All is computed in f32.
        Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is the one with ``both``).
        """

    # detection.nms_rotated

    def NMSRotated(
        self, boxes: Operand, scores: Operand, most: Operand, overlap: Operand, least: Operand, /, *, descending: bool = True,
        dtype: DTypeLike = 'i64', clockwise: bool = True,
    ) -> list[Value]:
        """NonMaxSuppression of boxes (x, y, width, height, angle): their middles, lengths, and by how much they are turned.

        ``boxes`` is [batches, n, 5], ``scores`` [batches, classes, n]. The angle is in radians, from the first axis to the second, or
        with ``clockwise`` false the other way. Of a class at most ``most`` boxes with a score above ``least`` are kept, without those
        that share with a better one more than ``overlap`` of the area that both cover. Results: [batch, class, box] and, in f32,
        [batch, class, score] for each, by batch, class and falling score or with ``descending`` all by falling score; and how many
        there are. All is computed in f32. Source: OpenVINO NMSRotated-13.
        """

    # detection.prior_box

    def PriorBox(
        self, size: Operand, picture: Operand, /, *, min_size: Sequence[float] = (), max_size: Sequence[float] = (),
        aspect_ratio: Sequence[float] = (), density: Sequence[float] = (), fixed_ratio: Sequence[float] = (),
        fixed_size: Sequence[float] = (), clip: bool = False, flip: bool = False, step: float = 0.0, offset: float = 0.0,
        variance: Sequence[float] = (), scale_all_sizes: bool = True, min_max_aspect_ratios_order: bool = True,
    ) -> Value:
        """The boxes of a single-shot detector, cell by cell of a grid of ``size`` in a ``picture``: [2, 4 * boxes], the corners [x1,
        y1, x2, y2] in parts of the picture, then ``variance`` for each (one for all four; left out 0.1).

        The middle of cell i is at ``(i + offset) * step``, or in the middle of the picture's own cells where ``step`` is 0. Each
        ``fixed_size`` gives ``density`` by ``density`` squares, shifted against each other, and the same for each ratio in
        ``fixed_ratio``, or in ``aspect_ratio``; then each ``min_size`` a square, with ``max_size`` one of the root of their product,
        and one for each ratio, after that unless ``min_max_aspect_ratios_order``. Ratios other than 1 also come turned with ``flip``.
        Without ``scale_all_sizes`` sizes and steps are in parts of the picture's height, -1 is a step of one cell, and ratios are of
        the first ``min_size`` alone. ``clip`` keeps all within the picture; those of ``fixed_size`` are.
        Source: OpenVINO PriorBox-1, -8.
        """

    def PriorBoxClustered(
        self, size: Operand, picture: Operand, /, *, widths: Sequence[float] = (), heights: Sequence[float] = (),
        clip: bool = True, step: float = 0.0, step_w: float = 0.0, step_h: float = 0.0, offset: float = 0.0,
        variance: Sequence[float] = (),
    ) -> Value:
        """Boxes of given ``widths`` and ``heights``, cell by cell of a grid of ``size`` in a ``picture``: [2, 4 * boxes] as of
        PriorBox.

        The middle of cell i is at ``(i + offset) * step``, where ``step_w`` and ``step_h`` go before ``step``, and where all are 0
        the picture is cut evenly. Source: OpenVINO PriorBoxClustered-1.
        """

    # detection.proposal

    @overload
    def Proposal(
        self, scores: Operand, moves: Operand, picture: Operand, /, *, base_size: int | Value, looked_at: int | Value,
        kept: int | Value, overlap: float, stride: int | Value, min_size: int | Value, ratio: Sequence[float],
        scale: Sequence[float], clip_before: bool = True, clip_after: bool = False, normalize: bool = False,
        box_size_scale: float = 1.0, box_coordinate_scale: float = 1.0, framework: str = '', outputs: Literal[1],
    ) -> Value:
        """The best regions of each picture: rows [picture, x1, y1, x2, y2], ``kept`` for each picture, and their scores.

        Around each place of a grid whose cells are ``stride`` apart lie boxes of each ``ratio`` and ``scale`` of a square of
        ``base_size``. ``scores`` [pictures, 2 * boxes, rows, columns] holds in its second half how good each is, ``moves`` [pictures,
        4 * boxes, rows, columns] by how much, divided by ``box_coordinate_scale`` and ``box_size_scale``, its middle moves, in parts
        of its size, and the logarithm of how much it grows. ``picture`` is [height, width, scale] or [height, width, scale of
        heights, scale of widths]: boxes smaller than ``min_size`` times that get the score 0. Of each picture the best ``looked_at``
        are looked at; those that overlap a better one by more than ``overlap`` are dropped. What is not filled is 0, with a -1 in the
        first place behind the last. ``clip_before`` and ``clip_after`` keep boxes in the picture, ``normalize`` divides them by its
        sizes. A box ends with its last element, and boxes have whole sizes; with ``framework`` tensorflow it ends behind that, boxes
        are around their place and kept in the picture from the start, and rows and columns of places are exchanged, as are the sizes
        that boxes are kept in. Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
        """

    @overload
    def Proposal(
        self, scores: Operand, moves: Operand, picture: Operand, /, *, base_size: int | Value, looked_at: int | Value,
        kept: int | Value, overlap: float, stride: int | Value, min_size: int | Value, ratio: Sequence[float],
        scale: Sequence[float], clip_before: bool = True, clip_after: bool = False, normalize: bool = False,
        box_size_scale: float = 1.0, box_coordinate_scale: float = 1.0, framework: str = '', outputs: Literal[2] = 2,
    ) -> list[Value]:
        """The best regions of each picture: rows [picture, x1, y1, x2, y2], ``kept`` for each picture, and their scores.

        Around each place of a grid whose cells are ``stride`` apart lie boxes of each ``ratio`` and ``scale`` of a square of
        ``base_size``. ``scores`` [pictures, 2 * boxes, rows, columns] holds in its second half how good each is, ``moves`` [pictures,
        4 * boxes, rows, columns] by how much, divided by ``box_coordinate_scale`` and ``box_size_scale``, its middle moves, in parts
        of its size, and the logarithm of how much it grows. ``picture`` is [height, width, scale] or [height, width, scale of
        heights, scale of widths]: boxes smaller than ``min_size`` times that get the score 0. Of each picture the best ``looked_at``
        are looked at; those that overlap a better one by more than ``overlap`` are dropped. What is not filled is 0, with a -1 in the
        first place behind the last. ``clip_before`` and ``clip_after`` keep boxes in the picture, ``normalize`` divides them by its
        sizes. A box ends with its last element, and boxes have whole sizes; with ``framework`` tensorflow it ends behind that, boxes
        are around their place and kept in the picture from the start, and rows and columns of places are exchanged, as are the sizes
        that boxes are kept in. Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
        """

    @overload
    def Proposal(
        self, scores: Operand, moves: Operand, picture: Operand, /, *, base_size: int | Value, looked_at: int | Value,
        kept: int | Value, overlap: float, stride: int | Value, min_size: int | Value, ratio: Sequence[float],
        scale: Sequence[float], clip_before: bool = True, clip_after: bool = False, normalize: bool = False,
        box_size_scale: float = 1.0, box_coordinate_scale: float = 1.0, framework: str = '', outputs: int = 2,
    ) -> Value | list[Value]:
        """The best regions of each picture: rows [picture, x1, y1, x2, y2], ``kept`` for each picture, and their scores.

        Around each place of a grid whose cells are ``stride`` apart lie boxes of each ``ratio`` and ``scale`` of a square of
        ``base_size``. ``scores`` [pictures, 2 * boxes, rows, columns] holds in its second half how good each is, ``moves`` [pictures,
        4 * boxes, rows, columns] by how much, divided by ``box_coordinate_scale`` and ``box_size_scale``, its middle moves, in parts
        of its size, and the logarithm of how much it grows. ``picture`` is [height, width, scale] or [height, width, scale of
        heights, scale of widths]: boxes smaller than ``min_size`` times that get the score 0. Of each picture the best ``looked_at``
        are looked at; those that overlap a better one by more than ``overlap`` are dropped. What is not filled is 0, with a -1 in the
        first place behind the last. ``clip_before`` and ``clip_after`` keep boxes in the picture, ``normalize`` divides them by its
        sizes. A box ends with its last element, and boxes have whole sizes; with ``framework`` tensorflow it ends behind that, boxes
        are around their place and kept in the picture from the start, and rows and columns of places are exchanged, as are the sizes
        that boxes are kept in. Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
        """

    # detection.psroi_pool

    def DeformablePSROIPooling(
        self, x: Operand, rois: Operand, offset: Operand | None = None, /, *, channels: int | Value, group: int | Value,
        scale: float, mode: str = 'bilinear_deformable', columns: int | Value = 1, rows: int | Value = 1, reach: float = 1.0,
        parts: int | Value = 1,
    ) -> Value:
        """Regions [picture, x1, y1, x2, y2], the rows of ``rois``, each as ``group`` by ``group`` bins for each of ``channels``,
        whose places may be moved: [regions, channels, group, group].

        Corners are rounded, the last moved on by one, multiplied by ``scale`` and moved by half an element to the front; a region is
        at least 0.1 high and wide. A bin reads ``rows`` by ``columns`` places, evenly from its corner on, between the elements of
        channel (c * group + row) * group + column of ``x``, and is their mean; places more than half an element outside do not
        count. ``offset`` [regions, 2 * classes, parts, parts] moves the bins of each class of channels by so many sizes of the
        region, times ``reach``: first along x, then along y. Source: OpenVINO DeformablePSROIPooling-1.
        """

    def PSROIPooling(
        self, x: Operand, rois: Operand, /, *, channels: int | Value, group: int | Value, scale: float, mode: str = 'average',
        columns: int | Value = 1, rows: int | Value = 1,
    ) -> Value:
        """Regions [picture, x1, y1, x2, y2], the rows of ``rois``, each as ``group`` by ``group`` bins for each of ``channels``:
        [regions, channels, group, group].

        ``average``: corners are rounded, the last moved on by one, and multiplied by ``scale``; of each bin, widened to whole
        elements, the mean is taken, of channel (c * group + row) * group + column of ``x``. ``linear``: corners, multiplied by
        ``scale``, are parts of the picture, whose outermost elements are at 0 and 1; the region is cut into ``rows`` by ``columns``
        parts, in each of which every bin reads one place between elements, of channel part * channels + c; the result is the mean
        over the parts. Source: OpenVINO PSROIPooling-1.
        """

    # detection.roi_align

    def RoiAlign(
        self, x: Operand, rois: Operand, batch: Operand, /, *, height: int | Value = 1, width: int | Value = 1,
        samples: int | Value = 0, scale: float = 1.0, pooling: str = 'average', coordinates: str = 'half_pixel_for_nn',
    ) -> Value:
        """Each region, a row [x1, y1, x2, y2] of ``rois``, of the picture of ``x`` that ``batch`` says, as ``height`` by ``width``
        numbers for each channel: [regions, channels, height, width].

        Corners are multiplied by ``scale``. ``asymmetric`` takes them as they are, and a region as one element high and wide at
        least; ``half_pixel_for_nn`` moves them by half an element to the front, ``half_pixel`` counts from the middles of elements
        before and after scaling. An even grid of ``samples`` by ``samples`` places is read for each number (0: as many as it is
        elements high and wide, rounded up), weighing the four elements around a place. A place more than one element before the
        first, or behind the last, counts as 0; one beyond the middle of the outermost element is read there. ``average`` is the mean
        of the places, ``greatest`` the greatest of them and 0, ``parts`` the greatest of what one element gives to one place; of no
        places all are 0.
        Sources: ONNX RoiAlign 10 to 22 and its reference evaluator (for ``parts``); OpenVINO ROIAlign-3, -9.
        """

    def RoiAlignRotated(
        self, x: Operand, rois: Operand, batch: Operand, /, *, height: int | Value = 1, width: int | Value = 1,
        samples: int | Value = 0, scale: float = 1.0, clockwise: bool = False,
    ) -> Value:
        """Regions that are turned: each row of ``rois`` is [middle x, middle y, width, height, angle], the angle in radians, from
        the x axis towards the y axis if ``clockwise`` and away from it otherwise.

        Everything is multiplied by ``scale``, and the middle is moved by half an element to the front. The rest as in RoiAlign, of
        whose poolings this is ``average``. Source: OpenVINO ROIAlignRotated-15.
        """

    # detection.roi_pool

    def RoiPool(
        self, x: Operand, rois: Operand, /, *, size: Sequence[int] | Value, method: str = 'max', scale: float = 1.0,
    ) -> Value:
        """Regions [picture, x1, y1, x2, y2], the rows of ``rois``, each as ``size`` numbers for each channel: [regions, channels,
        *size].

        ``max``: corners are multiplied by ``scale`` and rounded, halves away from 0; the region goes from the first to the last, at
        least one element, and is cut into bins, each from floor(i * bin) to ceil((i + 1) * bin), of which the greatest element is
        taken; an empty one is 0. ``linear``: corners are parts of the picture, whose outermost elements are at 0 and 1, and are not
        scaled; even places from corner to corner, or the middle where there is one, are read between elements, and are 0 outside.
        Sources: ONNX MaxRoiPool 1, 22; OpenVINO ROIPooling-2.
        """

    # elementwise.activation

    def Celu(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)). Source: ONNX Celu 12 and 28."""

    def Elu(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """x, or alpha * (exp(x) - 1) where x < 0. Sources: ONNX Elu 1 to 22, OpenVINO Elu-1."""

    def Gelu(
        self, x: Operand, /, *, approximate: str = 'none',
    ) -> Value:
        """x times the chance that a normal variable is less: x / 2 * (1 + erf(x / sqrt(2))).

        With ``approximate="tanh"`` approximated as x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).
        Sources: ONNX Gelu 20, OpenVINO Gelu-2 and Gelu-7.
        """

    def HardSigmoid(
        self, x: Operand, /, *, alpha: float = 0.20000000298023224, beta: float = 0.5,
    ) -> Value:
        """max(0, min(1, alpha * x + beta)).

        Sources: ONNX HardSigmoid 1 to 22, OpenVINO HardSigmoid-1 and HSigmoid-5 (alpha 1/6, beta 1/2).
        """

    def HardSwish(
        self, x: Operand, /,
    ) -> Value:
        """x * max(0, min(1, x / 6 + 1/2)). Sources: ONNX HardSwish 14 and 22, OpenVINO HSwish-4."""

    def LeakyRelu(
        self, x: Operand, /, *, alpha: float = 0.009999999776482582,
    ) -> Value:
        """x, or alpha * x where x < 0. Source: ONNX LeakyRelu 1 to 16."""

    def Mish(
        self, x: Operand, /,
    ) -> Value:
        """x * tanh(log(exp(x) + 1)). Sources: ONNX Mish 18 and 22, OpenVINO Mish-4."""

    def PRelu(
        self, x: Operand, slope: Operand, /, *, channels: bool = False,
    ) -> Value:
        """x, or slope * x where x < 0; ``slope`` broadcasts to the shape of ``x``.

        With ``channels`` a slope of rank 1 that is as long as axis 1 of ``x`` stands for that axis.
        Sources: ONNX PRelu 1 and 6 (one slope, or one a channel), 7 to 16; OpenVINO PReLU-1.
        """

    def Relu(
        self, x: Operand, /,
    ) -> Value:
        """max(x, 0). Sources: ONNX Relu 1 to 14, OpenVINO ReLU-1."""

    def Selu(
        self, x: Operand, /, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323,
    ) -> Value:
        """gamma * x, or gamma * alpha * (exp(x) - 1) where x <= 0. Sources: ONNX Selu 1 to 22, OpenVINO Selu-1."""

    def Shrink(
        self, x: Operand, /, *, bias: float = 0.0, lambd: float = 0.5,
    ) -> Value:
        """x + bias where x < -lambd, x - bias where x > lambd, otherwise 0; integers are computed in f64 and cut off.

        Source: ONNX Shrink 9.
        """

    def Sigmoid(
        self, x: Operand, /,
    ) -> Value:
        """1 / (1 + exp(-x)). Sources: ONNX Sigmoid 1 to 13, OpenVINO Sigmoid-1."""

    def Softplus(
        self, x: Operand, /,
    ) -> Value:
        """log(exp(x) + 1). Sources: ONNX Softplus 1 and 22, OpenVINO SoftPlus-4."""

    def Softsign(
        self, x: Operand, /,
    ) -> Value:
        """x / (1 + |x|). Sources: ONNX Softsign 1 and 22, OpenVINO SoftSign-9."""

    def SwiGLU(
        self, x: Operand, y: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """x * sigmoid(alpha * x) * y, of equal shapes. Source: ONNX SwiGLU 28."""

    def Swish(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """x * sigmoid(alpha * x). Sources: ONNX Swish 24, OpenVINO Swish-4 (its beta)."""

    def ThresholdedRelu(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """x where x > alpha, otherwise 0. Source: ONNX ThresholdedRelu 10 and 22."""

    # elementwise.binary

    def Add(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x + y; integers wrap. Sources: ONNX Add 1 to 14, OpenVINO Add-1."""

    def Divide(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True, m_pythondiv: bool = False,
    ) -> Value:
        """x / y. Integers are rounded toward zero, or with ``m_pythondiv`` toward minus infinity; the least one by -1 wraps.

        Sources: ONNX Div 1 to 14, OpenVINO Divide-1.
        """

    def Maximum(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """The greatest of ``xs`` at each place; NaN where one is. Sources: ONNX Max 1 to 13, OpenVINO Maximum-1 (two inputs)."""

    def Mean(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """The mean of ``xs`` at each place: their sum, divided by their number. Source: ONNX Mean 1 to 13."""

    def Minimum(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """The least of ``xs`` at each place; NaN where one is. Sources: ONNX Min 1 to 13, OpenVINO Minimum-1 (two inputs)."""

    def Mod(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True, fmod: bool = False,
    ) -> Value:
        """The remainder of a division toward minus infinity, with the sign of ``y``; with ``fmod`` toward zero, and of ``x``.

        Sources: ONNX Mod 10 to 28 (fmod), OpenVINO Mod-1 (truncated) and FloorMod-1.
        """

    def Multiply(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x * y; integers wrap. Sources: ONNX Mul 1 to 14, OpenVINO Multiply-1."""

    def Power(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """``x`` to the ``y``, of the type of ``x``. Integers are exact and wrap; a negative exponent gives the truncated reciprocal.

        Sources: ONNX Pow 1 to 15 (from 12 on the types may differ), OpenVINO Power-1 (equal types).
        """

    def SquaredDifference(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """(x - y) * (x - y). Source: OpenVINO SquaredDifference-1."""

    def Subtract(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x - y; integers wrap. Sources: ONNX Sub 1 to 14, OpenVINO Subtract-1."""

    def Sum(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """The sum of ``xs`` at each place, added from the first to the last. Source: ONNX Sum 1 to 13."""

    # elementwise.bitwise

    def BitShift(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True, direction: str = 'left', beyond: str = 'fill',
    ) -> Value:
        """``x`` shifted ``left`` or ``right`` by ``amount`` bits; to the right the sign of a signed type comes after.

        An amount that is negative, or at least the number of bits, leaves with ``beyond="fill"`` what the sign alone gives; with
        ``open`` the source does not say.
        Sources: ONNX BitShift 11 (unsigned) and 28, OpenVINO BitwiseLeftShift-15 and BitwiseRightShift-15.
        """

    def BitwiseAnd(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """The bits that are set in both. Sources: ONNX BitwiseAnd 18 (integers), OpenVINO BitwiseAnd-13 (integers and booleans)."""

    def BitwiseNot(
        self, x: Operand, /,
    ) -> Value:
        """Every bit inverted. Sources: ONNX BitwiseNot 18 (integers), OpenVINO BitwiseNot-13 (integers and booleans)."""

    def BitwiseOr(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """The bits that are set in either. Sources: ONNX BitwiseOr 18 (integers), OpenVINO BitwiseOr-13 (integers and booleans)."""

    def BitwiseXor(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """The bits that are set in one. Sources: ONNX BitwiseXor 18 (integers), OpenVINO BitwiseXor-13 (integers and booleans)."""

    # elementwise.cast

    def BitCast(
        self, x: Operand, /, *, to: DTypeLike,
    ) -> Value:
        """The bits of each element read as the type ``to``, which has as many. Source: ONNX BitCast 26."""

    def Cast(
        self, x: Operand, /, *, to: DTypeLike, saturate: bool = True, saturate_infinity: bool = True, round_mode: str = 'up',
        source: DTypeLike | None = None,
    ) -> Value:
        """The elements of ``x`` as the type ``to``.

        Floats go to integers toward zero, from beyond the range of the type to its nearest value and from NaN to 0, which the
        specifications leave open (integers of fewer than 8 bits take the low bits of the i64); integers wrap; whatever is not 0
        is True; numbers are rounded to the nearest, of two to the even one, and beyond the range of a float type to infinity. To
        f8 with ``saturate`` to the greatest value instead, from infinity too unless ``saturate_infinity`` is off, when
        f8e4m3fnuz and f8e5m2fnuz take NaN; without ``saturate`` to infinity or NaN. ``round_mode`` (up, down, nearest, of two to
        the greater, even, of two to the even code) and ``saturate`` rule f8e8m0, which takes magnitudes. ``source`` names the
        type of ``x`` where its array does not: nf4.

        Sources: ONNX Cast 1 to 28 (infinity: table of 19 to 23 against 24), OpenVINO Convert-1.
        """

    def CastLike(
        self, x: Operand, target_type: Operand, /, *, saturate: bool = True, round_mode: str = 'up',
    ) -> Value:
        """The elements of ``x`` as the type of ``target_type``, as Cast does it.

        Sources: ONNX CastLike 15 to 25, OpenVINO ConvertLike-1.
        """

    # elementwise.clip

    def Clip(
        self, x: Operand, min: Operand | None = None, max: Operand | None = None, /,
    ) -> Value:
        """min(high, max(low, x)), so that ``high`` wins where the two cross. A bound is a scalar; one left out is the least or
        greatest finite value of the type. Sources: ONNX Clip 1 to 13, OpenVINO Clamp-1.
        """

    # elementwise.logical

    def And(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Whether both hold. Sources: ONNX And 1 and 7, OpenVINO LogicalAnd-1."""

    def Equal(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x == y, of any type. Sources: ONNX Equal 1 to 19 (strings from 19 on), OpenVINO Equal-1."""

    def Greater(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x > y. Sources: ONNX Greater 1 to 13, OpenVINO Greater-1."""

    def GreaterEqual(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x >= y. Sources: ONNX GreaterOrEqual 12 and 16, OpenVINO GreaterEqual-1."""

    def IsFinite(
        self, x: Operand, /,
    ) -> Value:
        """Whether it is neither infinite nor NaN. Source: OpenVINO IsFinite-10."""

    def IsInf(
        self, x: Operand, /, *, detect_negative: bool = True, detect_positive: bool = True,
    ) -> Value:
        """Whether it is infinite; one sign counts only with its flag. Sources: ONNX IsInf 10 and 20, OpenVINO IsInf-10."""

    def IsNaN(
        self, x: Operand, /,
    ) -> Value:
        """Whether it is not a number. Sources: ONNX IsNaN 9 to 20, OpenVINO IsNaN-10."""

    def Less(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x < y. Sources: ONNX Less 1 to 13, OpenVINO Less-1."""

    def LessEqual(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x <= y. Sources: ONNX LessOrEqual 12 and 16, OpenVINO LessEqual-1."""

    def Not(
        self, x: Operand, /,
    ) -> Value:
        """Whether it does not hold. Sources: ONNX Not 1, OpenVINO LogicalNot-1."""

    def NotEqual(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """x != y, of any type; NaN differs from all. Source: OpenVINO NotEqual-1."""

    def Or(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Whether one holds, or both. Sources: ONNX Or 1 and 7, OpenVINO LogicalOr-1."""

    def Where(
        self, condition: Operand, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """``x`` where ``condition`` holds, otherwise ``y``. Sources: ONNX Where 9 and 16, OpenVINO Select-1."""

    def Xor(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Whether exactly one holds. Sources: ONNX Xor 1 and 7, OpenVINO Xor-1 and LogicalXor-1."""

    # elementwise.unary

    def Abs(
        self, x: Operand, /,
    ) -> Value:
        """The magnitude; the least integer of its type stays what it is. Sources: ONNX Abs 1 to 13, OpenVINO Abs-1."""

    def Acos(
        self, x: Operand, /,
    ) -> Value:
        """The arc cosine. Sources: ONNX Acos 7 and 22, OpenVINO Acos-1."""

    def Acosh(
        self, x: Operand, /,
    ) -> Value:
        """The inverse hyperbolic cosine. Sources: ONNX Acosh 9 and 22, OpenVINO Acosh-3 (opset4)."""

    def Asin(
        self, x: Operand, /,
    ) -> Value:
        """The arc sine. Sources: ONNX Asin 7 and 22, OpenVINO Asin-1."""

    def Asinh(
        self, x: Operand, /,
    ) -> Value:
        """The inverse hyperbolic sine. Sources: ONNX Asinh 9 and 22, OpenVINO Asinh-3 (opset4)."""

    def Atan(
        self, x: Operand, /,
    ) -> Value:
        """The arc tangent. Sources: ONNX Atan 7 and 22, OpenVINO Atan-1."""

    def Atanh(
        self, x: Operand, /,
    ) -> Value:
        """The inverse hyperbolic tangent. Sources: ONNX Atanh 9 and 22, OpenVINO Atanh-3 (opset4)."""

    def Ceil(
        self, x: Operand, /,
    ) -> Value:
        """The least whole number that is not less. Sources: ONNX Ceil 1 to 13, OpenVINO Ceiling-1."""

    def Cos(
        self, x: Operand, /,
    ) -> Value:
        """The cosine. Sources: ONNX Cos 7 and 22, OpenVINO Cos-1."""

    def Cosh(
        self, x: Operand, /,
    ) -> Value:
        """The hyperbolic cosine. Sources: ONNX Cosh 9 and 22, OpenVINO Cosh-1."""

    def Erf(
        self, x: Operand, /,
    ) -> Value:
        """The error function, of floats: what integers give no specification says. Sources: ONNX Erf 9 and 13, OpenVINO Erf-1."""

    def ErfInv(
        self, x: Operand, /,
    ) -> Value:
        """The number whose error function is x: infinite at -1 and 1, NaN beyond.

        In other operators it is written with the rational functions that it is computed with here, in f64, whose error is less than
        the last digit of f32. Source: OpenVINO ErfInv-17.
        """

    def Exp(
        self, x: Operand, /,
    ) -> Value:
        """e to the x. Sources: ONNX Exp 1 to 13, OpenVINO Exp-1."""

    def Floor(
        self, x: Operand, /,
    ) -> Value:
        """The greatest whole number that is not greater. Sources: ONNX Floor 1 to 13, OpenVINO Floor-1."""

    def Log(
        self, x: Operand, /,
    ) -> Value:
        """The natural logarithm. Sources: ONNX Log 1 to 13, OpenVINO Log-1."""

    def Negative(
        self, x: Operand, /,
    ) -> Value:
        """-x; integers wrap. Sources: ONNX Neg 1 to 13, OpenVINO Negative-1."""

    def Reciprocal(
        self, x: Operand, /,
    ) -> Value:
        """1 / x. Source: ONNX Reciprocal 1 to 13."""

    def Round(
        self, x: Operand, /, *, mode: str = 'half_to_even',
    ) -> Value:
        """The nearest whole number; of two the even one (``half_to_even``), or the one farther from zero (``half_away_from_zero``).

        Sources: ONNX Round 11 and 22, OpenVINO Round-5.
        """

    def Sign(
        self, x: Operand, /,
    ) -> Value:
        """-1, 0 or 1. Sources: ONNX Sign 9 and 13, OpenVINO Sign-1."""

    def Sin(
        self, x: Operand, /,
    ) -> Value:
        """The sine. Sources: ONNX Sin 7 and 22, OpenVINO Sin-1."""

    def Sinh(
        self, x: Operand, /,
    ) -> Value:
        """The hyperbolic sine. Sources: ONNX Sinh 9 and 22, OpenVINO Sinh-1."""

    def Sqrt(
        self, x: Operand, /,
    ) -> Value:
        """The square root, NaN of a negative number. Sources: ONNX Sqrt 1 to 13, OpenVINO Sqrt-1."""

    def Tan(
        self, x: Operand, /,
    ) -> Value:
        """The tangent. Sources: ONNX Tan 7 and 22, OpenVINO Tan-1."""

    def Tanh(
        self, x: Operand, /,
    ) -> Value:
        """The hyperbolic tangent. Sources: ONNX Tanh 1 to 13, OpenVINO Tanh-1."""

    # linalg.det_inverse

    def Det(
        self, x: Operand, /,
    ) -> Value:
        """The determinants of the matrices in the last two axes of ``x``. Floats of fewer than 32 bits are computed in f32.

        Source: ONNX Det 11, 22.
        """

    def Inverse(
        self, x: Operand, /, *, adjoint: bool = False,
    ) -> Value:
        """The inverses of the matrices in the last two axes of ``x``, or with ``adjoint`` their transposes. Floats of fewer than
        32 bits are computed in f32. A matrix without an inverse is an error.

        Sources: OpenVINO Inverse-14; onnxruntime's com.microsoft Inverse.
        """

    # linalg.einsum

    def Einsum(
        self, /, *xs: Operand | None, equation: str, broadcast: bool = False,
    ) -> Value:
        """The sum over all labels that ``equation`` does not have in its result, of products of the ``xs`` at these labels.

        A letter names an axis, one that comes twice in a term its diagonal; an ellipsis stands for axes that broadcast, which come
        first in a result that is left out, before the labels that come once, in the order of their codes. With ``broadcast`` axes of
        one letter broadcast too, and ellipses may stand for different numbers of axes. Sources: ONNX Einsum 12, 28; OpenVINO
        Einsum-7.
        """

    # linalg.grouped_matmul

    def GroupedMatMul(
        self, mat_a: Operand, mat_b: Operand, offsets: Operand | None = None, /,
    ) -> Value:
        """The product of each group of rows with the matrix of its own, as a mixture of experts has it.

        ``y`` is [groups, columns, k]: matrices that are transposed. ``x`` is [groups, rows, k], or [rows, k] with ``ends`` [groups]:
        up to which row each group goes, the first from 0 and every other from where the one before it ends. Rows behind the last
        group are 0. Sums are those of MatMul. Source: OpenVINO GroupedMatMul-17, as the openvino package describes it.
        """

    # linalg.matmul

    def Gemm(
        self, a: Operand, b: Operand, c: Operand | None = None, /, *, alpha: float = 1.0, beta: float = 1.0,
        transpose_a: bool = False, transpose_b: bool = False, broadcast: bool = True,
    ) -> Value:
        """``alpha * x @ y + beta * bias`` for matrices ``x`` and ``y``, swapped first where ``transpose_a``, ``transpose_b`` say so.

        ``bias`` broadcasts to the product, or has its shape exactly without ``broadcast``. Floats of fewer than 32 bits are computed
        in f32 and rounded once. Source: ONNX Gemm 1 to 13. Raises UnsupportedError [gemm.scale]: a fraction of integers is not
        specified.
        """

    def MatMul(
        self, a: Operand, b: Operand, /, *, transpose_a: bool = False, transpose_b: bool = False,
    ) -> Value:
        """The product of the matrices in the last two axes; the axes before them broadcast.

        ``transpose_a`` and ``transpose_b`` swap the last two axes of ``x`` and of ``y`` first. A vector is a row on the left, a
        column on the right, never transposed, and its axis is not in the result. Floats of fewer than 32 bits are summed in f32 and
        rounded once; integers wrap. Sources: ONNX MatMul 1, 9, 13 (numpy.matmul); OpenVINO MatMul-1.
        """

    # ml.feature_encoding

    def FeatureVectorizer(
        self, /, *xs: Operand | None, inputdimensions: Sequence[int] | Value = (),
    ) -> Value:
        """The features of all ``xs`` side by side, in f32: of each as many as ``inputdimensions`` says, 0 for those it lacks.

        A vector is one row; of more than two axes those after the first are flattened. Source: ONNX ai.onnx.ml
        FeatureVectorizer 1.
        """

    def Imputer(
        self, x: Operand, /, *, imputed_value_floats: Sequence[float] = (), imputed_value_int64s: Sequence[int] | Value = (),
        replaced_value_float: float = 0.0, replaced_value_int64: int | Value = 0,
    ) -> Value:
        """``x`` with another value for each element that equals the replaced one.

        That is one value, or one for each feature, along the last axis.
        Floats are replaced by ``imputed_value_floats`` where they equal ``replaced_value_float``, integers by
        ``imputed_value_int64s``; a NaN equals a NaN. Source: ONNX ai.onnx.ml Imputer 1.
        """

    def Normalizer(
        self, x: Operand, /, *, norm: str = 'max',
    ) -> Value:
        """Each row of ``x`` over its norm, in f32; a row whose norm is 0 as it is. A vector is one row.

        ``max``: the greatest element, not its magnitude; ``l1``: the sum of magnitudes; ``l2``: the root of the sum of squares.
        Source: ONNX ai.onnx.ml Normalizer 1.
        """

    def OneHotEncoder(
        self, x: Operand, /, *, cats_int64s: Sequence[int] | Value = (), cats_strings: Sequence[str] = (), zeros: bool = True,
    ) -> Value:
        """For each element of ``x`` a 1 at the place of its category along a new last axis, and 0 elsewhere.

        Numbers are looked up among ``cats_int64s``, as whole numbers (towards 0), texts among ``cats_strings``. An element of no
        category is all zeros, or refused in a run where ``zeros`` is false. Source: ONNX ai.onnx.ml OneHotEncoder 1.
        """

    def Scaler(
        self, x: Operand, /, *, offset: Sequence[float] = (), scale: Sequence[float] = (),
    ) -> Value:
        """``(x - offset) * scale`` in f32, each one number or one for each feature, along the last axis.

        Source: ONNX ai.onnx.ml Scaler 1.
        """

    # ml.label_encoder

    def LabelEncoder(
        self, x: Operand, keys: Operand, values: Operand, other: Operand, /,
    ) -> Value:
        """For each element of ``x`` the one of ``values`` that stands where the element stands in ``keys``, the last of several;
        ``other``, one element, for those that do not stand there.

        A NaN is equal to any other. Source: ONNX ai.onnx.ml LabelEncoder 1, 2, 4.
        """

    # ml.linear_models

    def LinearClassifier(
        self, x: Operand, /, *, coefficients: Sequence[float], intercepts: Sequence[float] = (),
        classlabels_ints: Sequence[int] | Value = (), classlabels_strings: Sequence[str] = (), multi_class: int | Value = 0,
        post_transform: str = 'NONE',
    ) -> list[Value]:
        """The label of the greatest score of each row of ``x``, and the scores ``x * C^T + intercepts``, in f32.

        ``C`` has a row of ``coefficients`` for each intercept, or for each label where there are no intercepts. A lone score ``s`` of
        two labels chooses the second where it is above 0, and becomes the scores ``1 - s, s`` (of ``s`` after ``LOGISTIC``).
        ``multi_class`` says how the model was fitted and changes nothing. Source: ONNX ai.onnx.ml LinearClassifier 1; the lone score
        as in onnxruntime.
        """

    def LinearRegressor(
        self, x: Operand, /, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (), targets: int | Value = 1,
        post_transform: str = 'NONE',
    ) -> Value:
        """``x * C^T + intercepts`` in f32 for each row of ``x``; ``C`` has a row of ``coefficients`` for each of ``targets``.

        A vector is one row. Of a lone target only ``PROBIT`` changes the result, as in onnxruntime. Source: ONNX ai.onnx.ml
        LinearRegressor 1.
        """

    # ml.maps

    def CastMap(
        self, x: Operand, /, *, cast_to: str = 'to_float', map_form: str = 'dense', max_map: int | Value = 1,
    ) -> Value:
        """The values of the map ``x`` as one row, in the type that ``cast_to`` names (``to_float``, ``to_int64``, ``to_string``).

        ``dense``: by rising keys. ``sparse``: at the places that the keys name, of ``max_map`` places; 0, or the text 0.f, where
        there is none. A float becomes a text with six decimals. Source: ONNX ai.onnx.ml CastMap 1; what stands for an absent text is
        onnxruntime's.
        """

    def DictVectorizer(
        self, x: Operand, /, *, int64_vocabulary: Sequence[int] | Value = (), string_vocabulary: Sequence[str] = (),
        dtype: DTypeLike = 'f32',
    ) -> Value:
        """The values of the map ``x`` in the order of a vocabulary of keys, as one row.

        A key that ``x`` lacks counts as 0, or as an empty text. ``dtype`` is the element type of the row, which has to be that of the
        map's values: a dict of a run does not tell f32 from f64.

        Keys of ``x`` outside of the vocabulary are left out. Source: ONNX ai.onnx.ml DictVectorizer 1.
        """

    def ZipMap(
        self, x: Operand, /, *, classlabels_int64s: Sequence[int] | Value = (), classlabels_strings: Sequence[str] = (),
    ) -> Value:
        """For each row of ``x`` the map from the labels to the numbers of the row; a vector is one row.

        The labels are ``classlabels_int64s`` or ``classlabels_strings``, one for each column. Of two equal labels the last one's
        number is kept. Source: ONNX ai.onnx.ml ZipMap 1.
        """

    # ml.svm

    def SVMClassifier(
        self, x: Operand, /, *, coefficients: Sequence[float] = (), rho: Sequence[float] = (),
        support_vectors: Sequence[float] = (), kernel_type: str = 'linear', kernel_params: Sequence[float] = (),
        post_transform: str = 'NONE', vectors_per_class: Sequence[int] | Value = (),
        classlabels_ints: Sequence[int] | Value = (), classlabels_strings: Sequence[str] = (), prob_a: Sequence[float] = (),
        prob_b: Sequence[float] = (),
    ) -> list[Value]:
        """The label that wins most of the votes between each two classes, and scores in f32; kernels are those of SVMRegressor.

        The support vectors stand by class, ``vectors_per_class`` of each; row ``j`` of ``coefficients`` has those of a vector towards
        the ``j``-th other class. Classes i < j are separated by the sum of their vectors' kernels times coefficients, plus the next
        of ``rho``: i has the vote where it is above 0. The scores are these sums. Of two classes they are ``-s, s``; there
        ``LOGISTIC`` makes ``logistic(-s), logistic(s)``, and any other ``post_transform`` ``1 - s, s``. With ``prob_a`` and
        ``prob_b`` the sums become probabilities of pairs, ``1 - sigmoid(a * s + b)``, and these the probabilities of classes by
        pairwise coupling (Wu, Lin and Weng 2004, method 2). Without support vectors the scores are ``x * C^T + rho[0]``, and the
        greatest wins. Source: ONNX ai.onnx.ml SVMClassifier 1; what it leaves open as in onnxruntime.
        """

    def SVMRegressor(
        self, x: Operand, /, *, coefficients: Sequence[float] = (), rho: Sequence[float] = (),
        support_vectors: Sequence[float] = (), kernel_type: str = 'linear', kernel_params: Sequence[float] = (),
        post_transform: str = 'NONE', n_supports: int | Value = 0, one_class: bool = False,
    ) -> Value:
        """``sum_i coefficients[i] * K(x, v_i) + rho[0]`` in f32 for each row of ``x``, over ``n_supports`` support vectors ``v_i``.

        With ``kernel_params`` gamma, coef0 and degree, ``K(x, v)`` is: ``linear``: ``x . v``; ``poly``: ``(gamma * x . v + coef0) ^
        degree``; ``rbf``: ``exp(-gamma * |x - v|^2)``; ``sigmoid``: ``tanh(gamma * x . v + coef0)``. Without support vectors the
        result is ``x . coefficients + rho[0]``. ``one_class`` makes 1 of what is above 0, and -1 of the rest. No ``post_transform``
        but ``PROBIT`` has a meaning for a lone score, and that is refused. Source: ONNX ai.onnx.ml SVMRegressor 1.
        """

    # ml.tree_ensemble

    def TreeEnsemble(
        self, x: Operand, /, *, targets: int | Value, roots: Sequence[int] | Value, features: Sequence[int] | Value,
        modes: Sequence[int] | Value, splits: Sequence[float], true_next: Sequence[int] | Value, true_leaf: Sequence[bool],
        false_next: Sequence[int] | Value, false_leaf: Sequence[bool], leaf_targets: Sequence[int] | Value,
        leaf_weights: Sequence[float], missing_true: Sequence[bool] = (), members: Sequence[Sequence[float]] = (),
        aggregate: str = 'sum', transform: str = 'none', leaf_sizes: Sequence[int] | Value = (),
    ) -> Value:
        """What decision trees say of each row of ``x``: a number for each of ``targets``.

        A way through a tree begins at one of ``roots``. A node compares the feature of its number with its entry of ``splits``, by
        one of seven ``modes`` (``<=``, ``<``, ``>=``, ``>``, ``==``, ``!=``, and whether it is in the next of ``members``), and
        goes on at ``true_next`` or ``false_next``: a node, or where ``true_leaf`` or ``false_leaf`` a leaf. A NaN goes the true way
        where ``missing_true``. A leaf adds its weight to its target; ``aggregate`` says how the trees' are taken together: ``sum``,
        ``average`` over all trees, ``min`` or ``max`` of those that say something (0 where none does). ``transform`` is made of the
        numbers of a row in the end. Where ``leaf_sizes`` are given, a leaf has that many of ``leaf_targets`` and ``leaf_weights``,
        the leaves one after the other. Sources: ONNX ai.onnx.ml TreeEnsemble 5; leaves of several targets, TreeEnsembleRegressor 3.
        """

    # ml.tree_ensemble_classifier

    def TreeEnsembleClassifier(
        self, x: Operand, /, *, nodes_treeids: Sequence[int] | Value, nodes_nodeids: Sequence[int] | Value,
        nodes_featureids: Sequence[int] | Value, nodes_modes: Sequence[str], nodes_values: Sequence[float],
        nodes_truenodeids: Sequence[int] | Value, nodes_falsenodeids: Sequence[int] | Value,
        nodes_missing_value_tracks_true: Sequence[bool] = (), base_values: Sequence[float] = (), post_transform: str = 'NONE',
        classlabels_int64s: Sequence[int] | Value = (), classlabels_strings: Sequence[str] = (),
        class_treeids: Sequence[int] | Value = (), class_nodeids: Sequence[int] | Value = (),
        class_ids: Sequence[int] | Value = (), class_weights: Sequence[float] = (),
    ) -> list[Value]:
        """The class that decision trees choose for each row of ``x``, and the scores of all classes, in f32.

        Trees are those of TreeEnsembleRegressor, with ``class_weights`` for ``class_ids``, which are added up; ``base_values`` are
        added. Of more than two classes the greatest score wins, the first of equal ones, among those that have a weight or a base
        value. Two are decided as in onnxruntime, the specification being silent. Let s be the score of the second class, or that of
        the first where no leaf of the row has a weight for the second. If all weights are for one class, s chooses the second label
        above 0.5 where no weight is negative, else above 0; if not, s chooses above 0 between the labels 1 and 0 (or the two
        strings). Scores of the first class alone become ``logistic(-s), logistic(s)`` where that is the transform, else ``1 - s, s``
        where all weights are for one class and none is negative, else ``-s, s``. Two base values mean that the second class scores
        the first's weights plus the second base value, and the first class the negative. Source: ONNX ai.onnx.ml
        TreeEnsembleClassifier 1, 3, 5.
        """

    def TreeEnsembleRegressor(
        self, x: Operand, /, *, nodes_treeids: Sequence[int] | Value, nodes_nodeids: Sequence[int] | Value,
        nodes_featureids: Sequence[int] | Value, nodes_modes: Sequence[str], nodes_values: Sequence[float],
        nodes_truenodeids: Sequence[int] | Value, nodes_falsenodeids: Sequence[int] | Value,
        nodes_missing_value_tracks_true: Sequence[bool] = (), base_values: Sequence[float] = (), post_transform: str = 'NONE',
        n_targets: int | Value = 1, aggregate_function: str = 'sum', target_treeids: Sequence[int] | Value = (),
        target_nodeids: Sequence[int] | Value = (), target_ids: Sequence[int] | Value = (),
        target_weights: Sequence[float] = (),
    ) -> Value:
        """What decision trees say of each row of ``x``, in f32: a number for each of ``n_targets``.

        Row i of the columns ``nodes_*`` is the node ``nodes_nodeids[i]`` of the tree ``nodes_treeids[i]``; the first of a tree is its
        root. It is a ``LEAF``, or goes on at the node of its true id where the feature ``nodes_featureids[i]`` is (``BRANCH_LEQ``,
        ``BRANCH_LT``, ``BRANCH_GTE``, ``BRANCH_GT``, ``BRANCH_EQ``, ``BRANCH_NEQ``) against ``nodes_values[i]``, or is NaN and
        ``nodes_missing_value_tracks_true[i]``; else at that of its false id. A leaf gives ``target_weights`` to ``target_ids``;
        ``aggregate_function`` takes them together (``sum``, ``average``, ``min``, ``max``), and ``base_values`` are added. Two things
        are as in onnxruntime: of a lone target only the transform ``PROBIT`` changes the result, and of several one that no leaf of
        the row has a weight for stays 0. All is computed in f64 where ``x`` is f64, else
        in f32. Source: ONNX ai.onnx.ml TreeEnsembleRegressor 1, 3, 5.
        """

    # nn.adaptive_pool

    def AdaptiveAveragePool(
        self, x: Operand, output_shape: Operand, /,
    ) -> Value:
        """The mean of each of ``size`` windows along the spatial axes: window i of n elements in m begins at floor(i * n / m) and
        ends before ceil((i + 1) * n / m). Source: OpenVINO AdaptiveAvgPool-8.
        """

    def AdaptiveMaxPool(
        self, x: Operand, output_shape: Operand, /, *, index_element_type: DTypeLike = 'i64',
    ) -> list[Value]:
        """The greatest element of each of ``size`` windows along the spatial axes, and where it is among all spatial elements in
        row-major order; of equal ones the first. The windows are those of AdaptiveAveragePool. Source: OpenVINO AdaptiveMaxPool-8.
        """

    # nn.causal_conv

    @overload
    def CausalConvWithState(
        self, input: Operand, weight: Operand, bias: Operand | None = None, past_state: Operand | None = None, /, *,
        activation: str = 'plain', outputs: Literal[1],
    ) -> Value:
        """CausalConvWithState convolves each channel of ``input`` with its own row of ``weight``, reading no later element.

        ``input`` is [batch, channels, length], ``weight`` [channels, 1, kernel size]. ``past_state`` [batch, channels, kernel
        size - 1], by default zeros, precedes ``input``; ``present_state`` is the ``past_state`` of the next piece. ``bias``
        [channels] is added. ``activation`` is ``plain`` (none) or ``silu`` (y * sigmoid(y)).
        Source: ONNX CausalConvWithState 27.
        """

    @overload
    def CausalConvWithState(
        self, input: Operand, weight: Operand, bias: Operand | None = None, past_state: Operand | None = None, /, *,
        activation: str = 'plain', outputs: Literal[2] = 2,
    ) -> list[Value]:
        """CausalConvWithState convolves each channel of ``input`` with its own row of ``weight``, reading no later element.

        ``input`` is [batch, channels, length], ``weight`` [channels, 1, kernel size]. ``past_state`` [batch, channels, kernel
        size - 1], by default zeros, precedes ``input``; ``present_state`` is the ``past_state`` of the next piece. ``bias``
        [channels] is added. ``activation`` is ``plain`` (none) or ``silu`` (y * sigmoid(y)).
        Source: ONNX CausalConvWithState 27.
        """

    @overload
    def CausalConvWithState(
        self, input: Operand, weight: Operand, bias: Operand | None = None, past_state: Operand | None = None, /, *,
        activation: str = 'plain', outputs: int = 2,
    ) -> Value | list[Value]:
        """CausalConvWithState convolves each channel of ``input`` with its own row of ``weight``, reading no later element.

        ``input`` is [batch, channels, length], ``weight`` [channels, 1, kernel size]. ``past_state`` [batch, channels, kernel
        size - 1], by default zeros, precedes ``input``; ``present_state`` is the ``past_state`` of the next piece. ``bias``
        [channels] is added. ``activation`` is ``plain`` (none) or ``silu`` (y * sigmoid(y)).
        Source: ONNX CausalConvWithState 27.
        """

    # nn.col2im

    def Col2Im(
        self, x: Operand, image_shape: Operand, block_shape: Operand, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
    ) -> Value:
        """Blocks added up where they were taken from: the transpose of taking them out of a picture.

        ``x`` [N, channels * elements of a block, blocks], or without N, to [N, channels, *image]. Blocks of the sizes ``block``, with
        ``dilations`` between their elements, begin every ``strides`` elements in the picture with ``pads`` around it, and are counted
        in row-major order, as are the elements of each. What falls on the padding is dropped. Sources: ONNX Col2Im 18; OpenVINO
        Col2Im-15.
        """

    def MaxUnpool(
        self, x: Operand, indices: Operand, output_shape: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
    ) -> Value:
        """``x`` put back where MaxPool found it, and 0 elsewhere: ``indices`` count the elements of the whole result in row-major
        order.

        The result has ``(size - 1) * stride + kernel - pads`` elements along an axis; where ``target`` is given it has that shape, of
        which these are the first. Source: ONNX MaxUnpool 9 to 22 and its reference evaluator (for ``target``).
        """

    # nn.conv

    def Conv(
        self, x: Operand, w: Operand, bias: Operand | None = None, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        group: int | Value = 1, kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """Cross-correlation: ``y[n, o, i] = bias[o] + sum(x[n, c, i * stride - pad + k * dilation] * w[o, c, k])`` over c and k.

        ``x`` [N, C, *sizes], ``w`` [O, C / group, *kernel], ``bias`` [O] to [N, O, *outs], outs = floor((size + pads - span) /
        stride) + 1 with span = (kernel - 1) * dilation + 1. The channels are dealt to ``group`` groups in order. Floats of fewer than
        32 bits are summed in f32 and rounded once. Sources: ONNX Conv 1, 11, 22; OpenVINO Convolution-1, GroupConvolution-1.
        """

    def ConvTranspose(
        self, x: Operand, w: Operand, bias: Operand | None = None, output_shape: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None, output_padding: Sequence[int] | Value | None = None,
    ) -> Value:
        """The transpose of Conv: element i of ``x`` [N, C, *sizes] adds ``w[c, o, k] * x[n, c, i]`` at ``i * stride + k * dilation -
        pad``.

        ``w`` [C, O / group, *kernel], ``bias`` [O] to [N, O, *outs], outs = (size - 1) * stride + span + output_padding - pads; what
        no product reaches is ``bias`` alone. ``output_shape`` gives outs instead: with ``auto_pad`` same_upper and same_lower the
        padding is what is then too much, the odd one at the end or at the beginning; with explicit and valid the padding at the
        beginning stands and the end is cut or grown. same_upper and same_lower without it mean outs = size * stride. Sources: ONNX
        ConvTranspose 1, 11, 22, the odd element where onnxruntime and onnx.reference place it; OpenVINO ConvolutionBackpropData-1,
        GroupConvolutionBackpropData-1, whose same_upper puts it at the beginning. Raises UnsupportedError [conv.output-shape] where
        sources disagree: more than a stride is missing, or anything with same_*.
        """

    # nn.deform_conv

    def DeformConv(
        self, x: Operand, w: Operand, offset: Operand, bias: Operand | None = None, mask: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None, offset_group: int | Value = 1,
        bilinear_interpolation_pad: bool = True,
    ) -> Value:
        """Conv whose kernel element k reads, for output i, from ``i * stride - pad + k * dilation + offset``, between elements.

        ``offset`` [N, parts * elements of the kernel * axes, *outs] holds for each part of the channels, each kernel element and
        each axis in order how far to go; ``mask`` [N, parts * elements of the kernel, *outs] multiplies what is read. The elements
        around a place are weighed linearly. With ``padded`` there are zeros around ``x``; without it a place counts as 0 before
        the first element and from one behind the last on, and between the last and that the last is read.
        Sources: ONNX DeformConv 19, 22; OpenVINO DeformableConvolution-1, -8.
        """

    # nn.dropout

    @overload
    def Dropout(
        self, x: Operand, ratio: Operand | None = None, training_mode: Operand | None = None, /, *,
        seed: int | Value | None = None, mask_like: bool = False, outputs: Literal[1] = 1,
    ) -> Value:
        """``x`` itself; or where ``training`` is true, ``x / (1 - ratio)`` with each element dropped (0) with probability ``ratio``,
        0.5 by default.

        ``mask`` says what was kept, as booleans, or with ``mask_like`` as ones of the element type of ``x``. The draws are numpy's
        ``RandomState(seed).uniform``, as in onnx.reference; without a seed it is 0. Sources: ONNX Dropout 1, 6 (is_test), 7, 10
        (inference), 12, 13, 22.
        """

    @overload
    def Dropout(
        self, x: Operand, ratio: Operand | None = None, training_mode: Operand | None = None, /, *,
        seed: int | Value | None = None, mask_like: bool = False, outputs: Literal[2],
    ) -> list[Value]:
        """``x`` itself; or where ``training`` is true, ``x / (1 - ratio)`` with each element dropped (0) with probability ``ratio``,
        0.5 by default.

        ``mask`` says what was kept, as booleans, or with ``mask_like`` as ones of the element type of ``x``. The draws are numpy's
        ``RandomState(seed).uniform``, as in onnx.reference; without a seed it is 0. Sources: ONNX Dropout 1, 6 (is_test), 7, 10
        (inference), 12, 13, 22.
        """

    @overload
    def Dropout(
        self, x: Operand, ratio: Operand | None = None, training_mode: Operand | None = None, /, *,
        seed: int | Value | None = None, mask_like: bool = False, outputs: int,
    ) -> Value | list[Value]:
        """``x`` itself; or where ``training`` is true, ``x / (1 - ratio)`` with each element dropped (0) with probability ``ratio``,
        0.5 by default.

        ``mask`` says what was kept, as booleans, or with ``mask_like`` as ones of the element type of ``x``. The draws are numpy's
        ``RandomState(seed).uniform``, as in onnx.reference; without a seed it is 0. Sources: ONNX Dropout 1, 6 (is_test), 7, 10
        (inference), 12, 13, 22.
        """

    # nn.grid_sample

    def AffineGrid(
        self, theta: Operand, size: Operand, /, *, align_corners: bool = False,
    ) -> Value:
        """Places for GridSample that read a picture of ``size`` [batch, channels, ...] as the matrices ``theta`` move it, [batch,
        axes, axes + 1]: [batch, ..., axes].

        Along each axis places go evenly from -1 to 1, which are the outer edges of the first and the last element, or with
        ``align_corners`` their middles; the product is with [place along the last axis, ..., place along the first, 1].
        Source: ONNX AffineGrid 20.
        """

    def GridSample(
        self, x: Operand, grid: Operand, /, *, align_corners: bool = False, mode: str = 'linear', padding_mode: str = 'zeros',
    ) -> Value:
        """``x``, [batch, channels, ...], read at the places that ``grid``, [batch, ..., axes], gives: [batch, channels, ...].

        A place is one number for each spatial axis, that of the last axis first: -1 and 1 are the outer edges of the first and
        the last element, or with ``align_corners`` their middles. ``nearest`` takes the nearest element, of two the even one;
        ``linear`` weighs the two around it, ``cubic`` four (Keys, -0.75). An element beyond the edge is 0 with ``zeros``, that at
        the edge with ``border``; ``reflection`` mirrors at the edges, or with ``align_corners`` at the middles of the outermost
        elements.
        Sources: ONNX GridSample 16, 20, 22; OpenVINO GridSample-9.
        """

    # nn.group_conv

    def GroupConv(
        self, x: Operand, w: Operand, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        group: int | Value = 1, kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """Conv with weights [G, O / G, C / G, *kernel], which say how many groups there are. Source: OpenVINO GroupConvolution-1."""

    def GroupConvTranspose(
        self, x: Operand, w: Operand, output_shape: Operand | None = None, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        group: int | Value = 1, kernel_shape: Sequence[int] | Value | None = None,
        output_padding: Sequence[int] | Value | None = None,
    ) -> Value:
        """ConvTranspose with weights [G, C / G, O / G, *kernel]. Source: OpenVINO GroupConvolutionBackpropData-1."""

    # nn.lrn

    def LRN(
        self, x: Operand, /, *, size: int | Value, alpha: float = 9.999999747378752e-05, beta: float = 0.75, bias: float = 1.0,
        axes: Sequence[int] | Value = (1,),
    ) -> Value:
        """``x / (bias + alpha / size ** n * sum(x ** 2)) ** beta``, summed over a region of ``size`` places along each of the n
        ``axes``.

        The region begins floor((size - 1) / 2) before and ends ceil((size - 1) / 2) after the element. Sources: ONNX LRN 1, 13 (the
        channels); OpenVINO LRN-1 (an odd size: of an even one its text and its implementation make different things).
        """

    def LpNormalization(
        self, x: Operand, /, *, axis: int | Value = -1, p: int | Value = 2,
    ) -> Value:
        """``x`` divided by its ``p``-norm (p is 1 or 2) over ``axis``; 0 where the norm is 0. Source: ONNX LpNormalization 1, 22."""

    def NormalizeL2(
        self, x: Operand, axes: Operand, /, *, eps: float, eps_mode: str = 'add',
    ) -> Value:
        """``x / sqrt(s + epsilon)`` where s is the sum of squares over ``axes`` (none: of the element alone).

        ``mode``: ``add`` as written, ``max`` takes the greater of s and epsilon. Source: OpenVINO NormalizeL2-1.
        """

    # nn.normalization

    @overload
    def BatchNormalization(
        self, x: Operand, scale: Operand, bias: Operand, input_mean: Operand, input_var: Operand, /, *,
        epsilon: float = 9.999999747378752e-06, momentum: float = 0.8999999761581421, training_mode: bool = False,
        spatial: bool = True, outputs: Literal[1] = 1,
    ) -> Value:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, channel by channel (axis 1; a vector is one channel).

        With ``training_mode`` the mean and (population) variance are those of ``x`` over all other axes, and the further outputs are
        ``momentum * mean + (1 - momentum) * mean of x`` and the same of the variance. Without ``spatial`` the parameters have the
        shape of ``x`` less its first axis. Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO
        BatchNormInference-1, -5.
        """

    @overload
    def BatchNormalization(
        self, x: Operand, scale: Operand, bias: Operand, input_mean: Operand, input_var: Operand, /, *,
        epsilon: float = 9.999999747378752e-06, momentum: float = 0.8999999761581421, training_mode: bool = False,
        spatial: bool = True, outputs: Literal[2, 3],
    ) -> list[Value]:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, channel by channel (axis 1; a vector is one channel).

        With ``training_mode`` the mean and (population) variance are those of ``x`` over all other axes, and the further outputs are
        ``momentum * mean + (1 - momentum) * mean of x`` and the same of the variance. Without ``spatial`` the parameters have the
        shape of ``x`` less its first axis. Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO
        BatchNormInference-1, -5.
        """

    @overload
    def BatchNormalization(
        self, x: Operand, scale: Operand, bias: Operand, input_mean: Operand, input_var: Operand, /, *,
        epsilon: float = 9.999999747378752e-06, momentum: float = 0.8999999761581421, training_mode: bool = False,
        spatial: bool = True, outputs: int,
    ) -> Value | list[Value]:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, channel by channel (axis 1; a vector is one channel).

        With ``training_mode`` the mean and (population) variance are those of ``x`` over all other axes, and the further outputs are
        ``momentum * mean + (1 - momentum) * mean of x`` and the same of the variance. Without ``spatial`` the parameters have the
        shape of ``x`` less its first axis. Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO
        BatchNormInference-1, -5.
        """

    def GroupNormalization(
        self, x: Operand, scale: Operand, bias: Operand, /, *, num_groups: int | Value = 1,
        epsilon: float = 9.999999747378752e-06, per_group: bool = False, stash_type: DTypeLike | None = None,
    ) -> Value:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, the mean and variance over each of ``num_groups`` channel groups.

        ``x`` [N, C, *sizes]; ``scale`` and ``bias`` [C], or with ``per_group`` [groups]. The statistics are computed in the type
        ``stash_type``, by default in that of ``x``, at least f32. Sources: ONNX GroupNormalization 18 (per group), 21; OpenVINO
        GroupNormalization-12.
        """

    def InstanceNormalization(
        self, x: Operand, scale: Operand, bias: Operand, /, *, epsilon: float = 9.999999747378752e-06,
    ) -> Value:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, the mean and variance over the spatial axes of ``x`` [N, C,
        *sizes].

        ``scale`` and ``bias``: [C]. Source: ONNX InstanceNormalization 1, 6, 22.
        """

    @overload
    def LayerNormalization(
        self, x: Operand, scale: Operand, bias: Operand | None = None, /, *, axis: int | Value = -1,
        epsilon: float = 9.999999747378752e-06, stash_type: DTypeLike = 'f32', outputs: Literal[1] = 1,
    ) -> Value:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` with the mean and variance of the axes from ``axis`` on.

        The outputs ``mean`` and 1 / sqrt(variance + epsilon) are of the type ``stash_type``; all is computed in it, in f32 and in the
        type of ``x``, whichever is the most exact, with those axes kept as 1; ``scale`` and ``bias`` broadcast to ``x``. Source: ONNX
        LayerNormalization 17.
        """

    @overload
    def LayerNormalization(
        self, x: Operand, scale: Operand, bias: Operand | None = None, /, *, axis: int | Value = -1,
        epsilon: float = 9.999999747378752e-06, stash_type: DTypeLike = 'f32', outputs: Literal[2, 3],
    ) -> list[Value]:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` with the mean and variance of the axes from ``axis`` on.

        The outputs ``mean`` and 1 / sqrt(variance + epsilon) are of the type ``stash_type``; all is computed in it, in f32 and in the
        type of ``x``, whichever is the most exact, with those axes kept as 1; ``scale`` and ``bias`` broadcast to ``x``. Source: ONNX
        LayerNormalization 17.
        """

    @overload
    def LayerNormalization(
        self, x: Operand, scale: Operand, bias: Operand | None = None, /, *, axis: int | Value = -1,
        epsilon: float = 9.999999747378752e-06, stash_type: DTypeLike = 'f32', outputs: int,
    ) -> Value | list[Value]:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` with the mean and variance of the axes from ``axis`` on.

        The outputs ``mean`` and 1 / sqrt(variance + epsilon) are of the type ``stash_type``; all is computed in it, in f32 and in the
        type of ``x``, whichever is the most exact, with those axes kept as 1; ``scale`` and ``bias`` broadcast to ``x``. Source: ONNX
        LayerNormalization 17.
        """

    def MeanVarianceNormalization(
        self, x: Operand, axes: Operand, /, *, normalize_variance: bool = True, eps: float = 1e-09,
        eps_mode: str = 'inside_sqrt',
    ) -> Value:
        """``x`` less its mean over ``axes``, divided by its deviation there with ``normalize_variance``.

        ``eps_mode``: ``inside_sqrt`` divides by sqrt(variance + eps), ``outside_sqrt`` by sqrt(variance) + eps.
        Sources: ONNX MeanVarianceNormalization 9, 13 (epsilon 1e-9, as its function body has it); OpenVINO MVN-1, -6.
        """

    def RMSNormalization(
        self, x: Operand, scale: Operand, /, *, axis: int | Value = -1, epsilon: float = 9.999999747378752e-06,
        stash_type: DTypeLike = 'f32',
    ) -> Value:
        """``x / sqrt(mean(x ** 2) + epsilon) * scale`` with the mean of the axes from ``axis`` on, computed in ``stash_type``.

        ``scale`` broadcasts to ``x``, and the result has its element type. Source: ONNX RMSNormalization 23.
        """

    # nn.pool

    def AveragePool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', divisor: str = 'inside',
    ) -> Value:
        """The sum of each window of ``x`` [N, C, *sizes], padding counting as 0, divided by the number of elements.

        ``divisor``: those of the input (``inside``), those of the padded input (``padded``, ONNX and torch), or all places of the
        window (``window``, OpenVINO; without any padding it is ``inside``). A window without elements gives 0. Floats of fewer than
        32 bits are summed in f32; integers give the nearest integer, of two the even one. Sources: ONNX AveragePool 1 to 22; OpenVINO
        AvgPool-1, -14, -16.
        """

    def GlobalAveragePool(
        self, x: Operand, /,
    ) -> Value:
        """The mean over all spatial axes. Source: ONNX GlobalAveragePool 1, 22."""

    def GlobalLpPool(
        self, x: Operand, /, *, p: int | Value = 2,
    ) -> Value:
        """``sum(abs(x) ** p) ** (1 / p)`` over all spatial axes. Source: ONNX GlobalLpPool 2, 22."""

    def GlobalMaxPool(
        self, x: Operand, /,
    ) -> Value:
        """The greatest element over all spatial axes, -inf of none, as ReduceMax. Source: ONNX GlobalMaxPool 1, 22."""

    def LpPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', p: int | Value = 2,
    ) -> Value:
        """``sum(abs(x) ** p) ** (1 / p)`` over each window of ``x`` [N, C, *sizes], padding counting as 0. Source: ONNX LpPool 2 to
        22.
        """

    @overload
    def MaxPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', storage_order: int | Value = 0, index_element_type: DTypeLike = 'i64',
        axis: int | Value = 0, outputs: Literal[1] = 1,
    ) -> Value:
        """The greatest element of each window of ``x`` [N, C, *sizes], padding never; and where in ``x`` its first occurrence stands.

        Indices count elements of ``x`` from the axis ``axis`` on, row-major, or with ``storage_order`` the spatial axes the
        other way round. Sources: ONNX MaxPool 1 to 22; OpenVINO MaxPool-1, -8, -14.
        """

    @overload
    def MaxPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', storage_order: int | Value = 0, index_element_type: DTypeLike = 'i64',
        axis: int | Value = 0, outputs: Literal[2],
    ) -> list[Value]:
        """The greatest element of each window of ``x`` [N, C, *sizes], padding never; and where in ``x`` its first occurrence stands.

        Indices count elements of ``x`` from the axis ``axis`` on, row-major, or with ``storage_order`` the spatial axes the
        other way round. Sources: ONNX MaxPool 1 to 22; OpenVINO MaxPool-1, -8, -14.
        """

    @overload
    def MaxPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', storage_order: int | Value = 0, index_element_type: DTypeLike = 'i64',
        axis: int | Value = 0, outputs: int,
    ) -> Value | list[Value]:
        """The greatest element of each window of ``x`` [N, C, *sizes], padding never; and where in ``x`` its first occurrence stands.

        Indices count elements of ``x`` from the axis ``axis`` on, row-major, or with ``storage_order`` the spatial axes the
        other way round. Sources: ONNX MaxPool 1 to 22; OpenVINO MaxPool-1, -8, -14.
        """

    # nn.resize

    def Resize(
        self, x: Operand, sizes: Operand | None = None, scales: Operand | None = None, roi: Operand | None = None, /, *,
        mode: str = 'nearest', coordinate_transformation_mode: str = 'half_pixel', nearest_mode: str = 'round_prefer_floor',
        cubic_coeff_a: float = -0.75, antialias: bool = False, narrow: bool = False, exclude_outside: bool = False,
        extrapolation_value: float = 0.0, axes: Sequence[int] | Value | None = None, keep_aspect_ratio_policy: str = 'stretch',
    ) -> Value:
        """``x`` with ``sizes`` elements along ``axes`` (all when left out), or floor(size * scale) with ``scales``; one of the two is
        given.

        Element i of the result stands at a place of ``x`` that ``coordinates`` computes, with s the scale, or the ratio of the sizes:
        ``half_pixel`` (i + 0.5) / s - 0.5; ``pytorch_half_pixel`` the same, 0 for a single element; ``half_pixel_symmetric`` the same
        around the middle of the whole scaled length; ``asymmetric`` i / s; ``tf_half_pixel_for_nn`` (i + 0.5) / s; ``align_corners``
        i * (n - 1) / (m - 1) from n to m elements, and ``align_corners_scaled`` with n * s for m; ``tf_crop_and_resize`` the same
        between the fractions ``roi`` (all begins, all ends) of the axis, giving ``extrapolation_value`` outside of ``x``. ``mode``
        ``nearest`` takes the element that ``nearest`` says (``simple``: ceil where s < 1, else floor), at most the last; ``linear``
        and ``cubic`` (Keys, with ``cubic_coefficient``) weigh neighbours, border elements repeated, or with ``exclude_outside`` left
        out and the rest weighed up. ``antialias`` widens the weights by 1 / s where s < 1; with ``narrow`` it also narrows them by s
        where s > 1 beside an axis of s < 1, and what reaches no element is 0. With ``policy`` not_larger, not_smaller the axes share
        the least or greatest ratio, rounded to whole sizes, halves up. Empty ``sizes``, ``scales``, ``roi`` are as if left out.
        Places are computed in f32. Integers are moved by ``nearest`` only: how to round them sources disagree. Sources: ONNX Resize
        10 to 19, Upsample 1 to 9, and onnx.reference; OpenVINO Interpolate-1, -4, -11.
        """

    # quantization.integer_matmul_conv

    def ConvInteger(
        self, x: Operand, w: Operand, x_zero_point: Operand | None = None, w_zero_point: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """Conv of ``x - x_zero_point`` with ``w - w_zero_point``, summed in i32, which wraps; padding is the zero point.

        The zero point of ``w`` is one number or one for each output channel. Source: ONNX ConvInteger 10.
        """

    def DynamicQuantizeMatMul(
        self, x: Operand, y: Operand, y_scale: Operand, y_zero_point: Operand | None = None, bias: Operand | None = None, /,
    ) -> Value:
        """MatMulIntegerToFloat of what DynamicQuantizeLinear makes of ``x``. Source: com.microsoft DynamicQuantizeMatMul."""

    def MatMulInteger(
        self, x: Operand, y: Operand, x_zero_point: Operand | None = None, y_zero_point: Operand | None = None, /,
    ) -> Value:
        """``(x - x_zero_point) @ (y - y_zero_point)`` as MatMul has it, summed in i32, which wraps.

        A zero point is one number, a vector along the rows of ``x`` or the columns of ``y``, or a column or row for each matrix.
        Source: ONNX MatMulInteger 10.
        """

    def MatMulIntegerToFloat(
        self, x: Operand, y: Operand, x_scale: Operand, y_scale: Operand, x_zero_point: Operand | None = None,
        y_zero_point: Operand | None = None, bias: Operand | None = None, /,
    ) -> Value:
        """MatMulInteger times ``x_scale * y_scale``, plus ``bias``, in f32. Source: com.microsoft MatMulIntegerToFloat.

        The scale and zero point of ``x`` are one number, those of ``y`` one number or one for each column.
        """

    def QGemm(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, y: Operand, y_scale: Operand, y_zero_point: Operand,
        bias: Operand | None = None, z_scale: Operand | None = None, z_zero_point: Operand | None = None, /, *,
        alpha: float = 1.0, trans_a: bool = False, trans_b: bool = False,
    ) -> Value:
        """``(x - x_zero_point) @ (y - y_zero_point) + bias`` in i32, times ``alpha * x_scale * y_scale`` in f32.

        With a ``z_scale`` divided by it, rounded, plus ``z_zero_point``, saturated; without one it is f32. Both matrices are swapped
        first as the flags say; a scale and zero point of ``y`` are one number or one for each column of the product. Source:
        com.microsoft QGemm, as onnxruntime computes it.
        """

    def QLinearConv(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, w: Operand, w_scale: Operand, w_zero_point: Operand,
        y_scale: Operand, y_zero_point: Operand, bias: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """ConvInteger plus ``bias``, times ``x_scale * w_scale / y_scale`` in f32, rounded, plus ``y_zero_point``, saturated.

        The scale and zero point of ``w`` are one number or one for each output channel. Source: ONNX QLinearConv 10.
        """

    def QLinearMatMul(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, y: Operand, y_scale: Operand, y_zero_point: Operand,
        z_scale: Operand, z_zero_point: Operand, /,
    ) -> Value:
        """MatMulInteger times ``x_scale * y_scale / z_scale`` in f32, rounded, plus ``z_zero_point``, saturated.

        A scale and zero point of ``x`` are one number or lie along its rows, those of ``y`` along its columns. Source: ONNX
        QLinearMatMul 10, 21; products of f8, whose sums it does not specify, are refused.
        """

    # quantization.matmul_nbits

    def MatMulNBits(
        self, x: Operand, weights: Operand, scales: Operand, zero_points: Operand | None = None, g_idx: Operand | None = None,
        bias: Operand | None = None, /, *, k: int | Value, n: int | Value, bits: int | Value = 4, block_size: int | Value = 32,
        accuracy_level: int | Value = 0, prepacked: bool = False,
    ) -> Value:
        """``x @ w + bias`` with w [inner, columns] of ``(code - zero_point) * scale``, a scale for each block of a column's codes.

        ``weights`` [columns, blocks, block_size * bits / 8]: codes of ``bits`` bits, the first of a byte in its lowest bits.
        ``scales`` has one for each column and block; ``zero_points`` too, as floats or packed like the codes, each column a whole
        number of bytes; left out they are 2^(bits - 1). Floats of fewer than 32 bits are computed in f32. With ``accuracy_level`` a
        runtime may round ``x`` first, which is not done here. Source: com.microsoft MatMulNBits.
        """

    # quantization.qlinear

    def QLinearAdd(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y: Operand, y_scale: Operand,
        y_zero_point: Operand | None, z_scale: Operand, z_zero_point: Operand | None = None, /,
    ) -> Value:
        """``(x_scale * (x - x_zero_point) + y_scale * (y - y_zero_point)) / z_scale + z_zero_point``, rounded and saturated.

        In f32 as ``x * p + (y * q + r)``, p and q the ratios of the scales and r what the zero points come to, each product and sum
        rounded once. Source: com.microsoft QLinearAdd, as onnxruntime computes it where a processor multiplies and adds in one.
        """

    def QLinearAveragePool(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /, *, kernel_shape: Sequence[int] | Value = (),
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        rounding_type: str = 'floor', divisor: str = 'inside', channels_last: bool = False,
    ) -> Value:
        """AveragePool of what is dequantised, in f32, divided by ``y_scale``, plus ``y_zero_point``, rounded and saturated.

        Source: com.microsoft QLinearAveragePool, as onnxruntime computes it: the sum is rounded, not the quotient alone.
        """

    def QLinearConcat(
        self, y_scale: Operand, y_zero_point: Operand, /, *inputs: Operand | None, axis: int | Value,
    ) -> Value:
        """Concat along ``axis`` of bytes, each of ``xs`` followed by its scale and its zero point, brought to one grid.

        Source: com.microsoft QLinearConcat.
        """

    def QLinearGlobalAveragePool(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, y_scale: Operand, y_zero_point: Operand, /, *,
        channels_last: bool = False,
    ) -> Value:
        """The mean over all spatial axes, from one grid of bytes to another; the channels are axis 1, or the last.

        The sum of the steps times ``x_scale / (y_scale * count)`` in f32, rounded, plus ``y_zero_point``. Source: com.microsoft
        QLinearGlobalAveragePool, as onnxruntime computes it.
        """

    def QLinearLeakyRelu(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /, *, alpha: float = 0.009999999776482582,
    ) -> Value:
        """LeakyRelu between two grids of bytes. Source: com.microsoft QLinearLeakyRelu."""

    def QLinearMul(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y: Operand, y_scale: Operand,
        y_zero_point: Operand | None, z_scale: Operand, z_zero_point: Operand | None = None, /,
    ) -> Value:
        """``(x - x_zero_point) * (y - y_zero_point) * (x_scale * y_scale / z_scale) + z_zero_point``, rounded and saturated.

        Source: com.microsoft QLinearMul, as onnxruntime computes it: the sum is rounded, not the product alone.
        """

    def QLinearSigmoid(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /,
    ) -> Value:
        """Sigmoid between two grids of bytes. Source: com.microsoft QLinearSigmoid."""

    def QLinearSoftmax(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """Softmax between two grids of bytes, with ``coerce_to_2d`` over ``axis`` and all after it.

        Source: com.microsoft QLinearSoftmax; where 1 / ``y_scale`` is no whole number onnxruntime takes the one below it instead.
        """

    # quantization.quantize_linear

    def DequantizeLinear(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None = None, /, *, axis: int | Value | None = None,
        block_size: int | Value = 0, output_dtype: DTypeLike | None = None,
    ) -> Value:
        """``(x - zero_point) * scale``, of the type ``dtype``, else of that of ``scale``, which lies along ``x`` as it quantises.

        The difference is exact, the product of f32 (of f64 where the scale is), rounded once. Sources: ONNX DequantizeLinear 10 to
        28; com.microsoft DequantizeLinear.
        """

    def DynamicQuantizeLinear(
        self, x: Operand, /,
    ) -> list[Value]:
        """``x`` quantised to u8 over its own range, widened to hold 0: the steps, the scale and the zero point.

        ``scale`` is the range over 255 (1 where there is none), ``zero_point`` round(saturate(-least / scale)), and ``y`` as
        QuantizeLinear has it. Source: ONNX DynamicQuantizeLinear 11 (a range of nothing as onnxruntime has it).
        """

    def FakeQuantize(
        self, data: Operand, input_low: Operand, input_high: Operand, output_low: Operand, output_high: Operand, /, *,
        levels: int | Value, broadcast: bool = True,
    ) -> Value:
        """``x`` on ``levels`` steps from ``input_low`` to ``input_high``, taken to as many from ``output_low`` to ``output_high``.

        ``round((x - input_low) / (input_high - input_low) * (levels - 1)) / (levels - 1) * (output_high - output_low) + output_low``,
        of two steps the even one; ``output_low`` where x <= min(input_low, input_high), otherwise ``output_high`` where x >
        max(input_low, input_high). The limits broadcast to ``x``. Floats of fewer than 32 bits are computed in f32. Source: OpenVINO
        FakeQuantize-1.
        """

    def QuantizeLinear(
        self, x: Operand, y_scale: Operand, y_zero_point: Operand | None = None, /, *, axis: int | Value | None = None,
        block_size: int | Value = 0, output_dtype: DTypeLike | None = None, saturate: bool = True,
        precision: DTypeLike | None = None,
    ) -> Value:
        """``saturate(round(x / scale) + zero_point)``, of two steps the even one; of the type of ``zero_point``, else ``dtype``.

        The quotient is computed in f32 (f64 where an operand is), and rounded to ``precision`` where that is narrower. To a float
        type it is ``x / scale + zero_point``, cast as Cast does it, with its ``saturate``. ``scale`` is one number, a vector along
        ``axis``, or with ``block_size`` a tensor with one number for each block of ``axis``. Sources: ONNX QuantizeLinear 10, 13, 19,
        21 (how quotients of f16 are rounded as onnxruntime has it) and 23 to 28 (to the type of the scale); com.microsoft
        QuantizeLinear. Raises UnsupportedError [quantize.scale] for a scale of integers.
        """

    # random

    def Bernoulli(
        self, x: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0, dtype: DTypeLike | None = None,
    ) -> Value:
        """1 with probability ``x``, else 0, for each element, in ``dtype`` or else the type of ``x``.

        Source: ONNX Bernoulli 15, 22.
        """

    def Multinomial(
        self, x: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0, sample_size: int | Value = 1,
        dtype: DTypeLike = 'i32',
    ) -> Value:
        """``sample_size`` places in each row of ``x``, [rows, classes], drawn with probabilities softmax(x): [rows, count].

        Source: ONNX Multinomial 7, 22.
        """

    def RandomNormal(
        self, shape: Operand, mean: Operand, scale: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """Numbers of this shape from the normal distribution. Source: ONNX RandomNormal 1, 22."""

    def RandomNormalLike(
        self, x: Operand, first: Operand, last: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """RandomNormal of the shape of ``x``. Source: ONNX RandomNormalLike 1, 22."""

    def RandomUniform(
        self, shape: Operand, low: Operand, high: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """Numbers of this shape from ``low`` to below ``high``, each as probable as any other: ``low + u * (high - low)`` with u in
        [0, 1), for integers rounded down.

        Sources: ONNX RandomUniform 1, 22; OpenVINO RandomUniform-8.
        """

    def RandomUniformLike(
        self, x: Operand, first: Operand, last: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """RandomUniform of the shape of ``x``. Source: ONNX RandomUniformLike 1, 22."""

    # recurrent.cells

    def GRUCell(
        self, x: Operand, h: Operand, w: Operand, r: Operand, bias: Operand | None = None, /, *,
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), alphas: Sequence[float] = (),
        betas: Sequence[float] = (), clip: float | None = None, linear_before_reset: bool = False,
    ) -> Value:
        """One moment of GRU. Source: OpenVINO GRUCell-3."""

    def LSTMCell(
        self, x: Operand, h: Operand, c: Operand, w: Operand, r: Operand, bias: Operand | None = None, /, *,
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), alphas: Sequence[float] = (),
        betas: Sequence[float] = (), clip: float | None = None, input_forget: bool = False, gates: str = 'fico',
    ) -> list[Value]:
        """One moment of LSTM. Sources: OpenVINO LSTMCell-1 (with the order of gates and coupled gates that its files say), -4."""

    def RNNCell(
        self, x: Operand, h: Operand, w: Operand, r: Operand, bias: Operand | None = None, /, *,
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), alphas: Sequence[float] = (),
        betas: Sequence[float] = (), clip: float | None = None,
    ) -> Value:
        """One moment of RNN. Source: OpenVINO RNNCell-1."""

    # recurrent.dynamic_quantize_lstm

    @overload
    def DynamicQuantizeLSTM(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None, lengths: Operand | None, h: Operand | None,
        c: Operand | None, peephole: Operand | None, w_scale: Operand, w_zero_point: Operand, r_scale: Operand,
        r_zero_point: Operand, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, input_forget: bool = False, gates: str = 'iofc',
        outputs: Literal[1],
    ) -> Value:
        """LSTM with products as DynamicQuantizeMatMul has them: ``x`` is quantised as a whole, h at each moment.

        ``w`` [directions, input, 4 * hidden] and ``r`` [directions, hidden, 4 * hidden] are codes; scales and zero points have one
        number a direction, or one for each of its columns. Rows of several lengths are refused: what lies after their ends would
        have a part in how all is quantised. Source: com.microsoft DynamicQuantizeLSTM, as onnxruntime computes it.
        """

    @overload
    def DynamicQuantizeLSTM(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None, lengths: Operand | None, h: Operand | None,
        c: Operand | None, peephole: Operand | None, w_scale: Operand, w_zero_point: Operand, r_scale: Operand,
        r_zero_point: Operand, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, input_forget: bool = False, gates: str = 'iofc',
        outputs: Literal[2, 3] = 3,
    ) -> list[Value]:
        """LSTM with products as DynamicQuantizeMatMul has them: ``x`` is quantised as a whole, h at each moment.

        ``w`` [directions, input, 4 * hidden] and ``r`` [directions, hidden, 4 * hidden] are codes; scales and zero points have one
        number a direction, or one for each of its columns. Rows of several lengths are refused: what lies after their ends would
        have a part in how all is quantised. Source: com.microsoft DynamicQuantizeLSTM, as onnxruntime computes it.
        """

    @overload
    def DynamicQuantizeLSTM(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None, lengths: Operand | None, h: Operand | None,
        c: Operand | None, peephole: Operand | None, w_scale: Operand, w_zero_point: Operand, r_scale: Operand,
        r_zero_point: Operand, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, input_forget: bool = False, gates: str = 'iofc',
        outputs: int = 3,
    ) -> Value | list[Value]:
        """LSTM with products as DynamicQuantizeMatMul has them: ``x`` is quantised as a whole, h at each moment.

        ``w`` [directions, input, 4 * hidden] and ``r`` [directions, hidden, 4 * hidden] are codes; scales and zero points have one
        number a direction, or one for each of its columns. Rows of several lengths are refused: what lies after their ends would
        have a part in how all is quantised. Source: com.microsoft DynamicQuantizeLSTM, as onnxruntime computes it.
        """

    # recurrent.layers

    @overload
    def GRU(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, linear_before_reset: bool = False, outputs: Literal[1],
    ) -> Value:
        """Gated recurrent units. Outputs: h at each moment, the last h. The gates stand in the order z, r, h::

            z = f(x @ wz.T + h @ rz.T + bz)
            r = f(x @ wr.T + h @ rr.T + br)
            n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
            n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
            h = (1 - z) * n + z * h

        A ``summed`` bias has with ``linear_before_reset`` four parts: z, r, that of wh, that of rh. Usual: f = sigmoid, g = tanh.
        Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
        """

    @overload
    def GRU(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, linear_before_reset: bool = False, outputs: Literal[2] = 2,
    ) -> list[Value]:
        """Gated recurrent units. Outputs: h at each moment, the last h. The gates stand in the order z, r, h::

            z = f(x @ wz.T + h @ rz.T + bz)
            r = f(x @ wr.T + h @ rr.T + br)
            n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
            n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
            h = (1 - z) * n + z * h

        A ``summed`` bias has with ``linear_before_reset`` four parts: z, r, that of wh, that of rh. Usual: f = sigmoid, g = tanh.
        Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
        """

    @overload
    def GRU(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, linear_before_reset: bool = False, outputs: int = 2,
    ) -> Value | list[Value]:
        """Gated recurrent units. Outputs: h at each moment, the last h. The gates stand in the order z, r, h::

            z = f(x @ wz.T + h @ rz.T + bz)
            r = f(x @ wr.T + h @ rr.T + br)
            n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
            n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
            h = (1 - z) * n + z * h

        A ``summed`` bias has with ``linear_before_reset`` four parts: z, r, that of wh, that of rh. Usual: f = sigmoid, g = tanh.
        Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
        """

    @overload
    def LSTM(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, c: Operand | None = None, peephole: Operand | None = None, /, *, direction: str = 'forward',
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), alphas: Sequence[float] = (),
        betas: Sequence[float] = (), clip: float | None = None, layout: str = 'sequence_first', summed: bool = False,
        input_forget: bool = False, gates: str = 'iofc', outputs: Literal[1],
    ) -> Value:
        """Long short-term memory. Outputs: h at each moment, the last h, the last c. With p the peepholes, in the order i, o, f::

            i = f(x @ wi.T + h @ ri.T + bi + pi * c)
            f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
            n = g(x @ wc.T + h @ rc.T + bc)
            c = f * c + i * n
            o = f(x @ wo.T + h @ ro.T + bo + po * c)
            h = o * k(c)

        ``gates``: the order of the gates in ``w``, ``r`` and ``bias``. ``clip`` does not limit the argument of k, as the
        implementations have it. Usual: f = sigmoid, g = k = tanh. Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
        """

    @overload
    def LSTM(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, c: Operand | None = None, peephole: Operand | None = None, /, *, direction: str = 'forward',
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), alphas: Sequence[float] = (),
        betas: Sequence[float] = (), clip: float | None = None, layout: str = 'sequence_first', summed: bool = False,
        input_forget: bool = False, gates: str = 'iofc', outputs: Literal[2, 3] = 3,
    ) -> list[Value]:
        """Long short-term memory. Outputs: h at each moment, the last h, the last c. With p the peepholes, in the order i, o, f::

            i = f(x @ wi.T + h @ ri.T + bi + pi * c)
            f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
            n = g(x @ wc.T + h @ rc.T + bc)
            c = f * c + i * n
            o = f(x @ wo.T + h @ ro.T + bo + po * c)
            h = o * k(c)

        ``gates``: the order of the gates in ``w``, ``r`` and ``bias``. ``clip`` does not limit the argument of k, as the
        implementations have it. Usual: f = sigmoid, g = k = tanh. Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
        """

    @overload
    def LSTM(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, c: Operand | None = None, peephole: Operand | None = None, /, *, direction: str = 'forward',
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), alphas: Sequence[float] = (),
        betas: Sequence[float] = (), clip: float | None = None, layout: str = 'sequence_first', summed: bool = False,
        input_forget: bool = False, gates: str = 'iofc', outputs: int = 3,
    ) -> Value | list[Value]:
        """Long short-term memory. Outputs: h at each moment, the last h, the last c. With p the peepholes, in the order i, o, f::

            i = f(x @ wi.T + h @ ri.T + bi + pi * c)
            f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
            n = g(x @ wc.T + h @ rc.T + bc)
            c = f * c + i * n
            o = f(x @ wo.T + h @ ro.T + bo + po * c)
            h = o * k(c)

        ``gates``: the order of the gates in ``w``, ``r`` and ``bias``. ``clip`` does not limit the argument of k, as the
        implementations have it. Usual: f = sigmoid, g = k = tanh. Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
        """

    @overload
    def RNN(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, outputs: Literal[1],
    ) -> Value:
        """``h = f(x @ w.T + h @ r.T + bias)`` for each moment of a sequence. Outputs: h at each moment, the last h.

        Usual: f = tanh. Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
        """

    @overload
    def RNN(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, outputs: Literal[2] = 2,
    ) -> list[Value]:
        """``h = f(x @ w.T + h @ r.T + bias)`` for each moment of a sequence. Outputs: h at each moment, the last h.

        Usual: f = tanh. Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
        """

    @overload
    def RNN(
        self, x: Operand, w: Operand, r: Operand, bias: Operand | None = None, lengths: Operand | None = None,
        h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), alphas: Sequence[float] = (), betas: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed: bool = False, outputs: int = 2,
    ) -> Value | list[Value]:
        """``h = f(x @ w.T + h @ r.T + bias)`` for each moment of a sequence. Outputs: h at each moment, the last h.

        Usual: f = tanh. Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
        """

    # reduction.argminmax

    def ArgMax(
        self, x: Operand, /, *, axis: int | Value = 0, keepdims: bool = True, select_last_index: bool = False,
    ) -> Value:
        """The place of the greatest element. Source: ONNX ArgMax 1 to 13 (before 12 any of several; here the first)."""

    def ArgMin(
        self, x: Operand, /, *, axis: int | Value = 0, keepdims: bool = True, select_last_index: bool = False,
    ) -> Value:
        """The place of the least element. Source: ONNX ArgMin 1 to 13 (before 12 any of several; here the first)."""

    # reduction.cumulative

    def CumProd(
        self, x: Operand, axis: Operand, /, *, exclusive: bool = False, reverse: bool = False,
    ) -> Value:
        """The running product. Source: ONNX CumProd 26."""

    def CumSum(
        self, x: Operand, axis: Operand, /, *, exclusive: bool = False, reverse: bool = False,
    ) -> Value:
        """The running sum. Sources: ONNX CumSum 11 and 14, OpenVINO CumSum-3."""

    # reduction.reduce

    def ReduceAll(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Whether all hold; True of nothing. Source: OpenVINO ReduceLogicalAnd-1."""

    def ReduceAny(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Whether one holds; False of nothing. Source: OpenVINO ReduceLogicalOr-1."""

    def ReduceL1(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The sum of magnitudes; 0 of nothing. Sources: ONNX ReduceL1 1 to 18, OpenVINO ReduceL1-4."""

    def ReduceL2(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The square root of the sum of squares; 0 of nothing. Sources: ONNX ReduceL2 1 to 18, OpenVINO ReduceL2-4."""

    def ReduceLogSum(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The logarithm of the sum; -inf of nothing. Source: ONNX ReduceLogSum 1 to 28."""

    def ReduceLogSumExp(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The logarithm of the sum of exponentials, without overflow; -inf of nothing. Source: ONNX ReduceLogSumExp 1 to 28."""

    def ReduceMax(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The greatest; NaN where one is; of nothing -inf, or the least value of the type.

        Sources: ONNX ReduceMax 1 to 20, OpenVINO ReduceMax-1.
        """

    def ReduceMean(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The mean; that of integers is their wrapped sum divided toward zero; NaN of nothing (0 for integers).

        Sources: ONNX ReduceMean 1 to 18, OpenVINO ReduceMean-1.
        """

    def ReduceMin(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The least; NaN where one is; of nothing +inf, or the greatest value of the type.

        Sources: ONNX ReduceMin 1 to 20, OpenVINO ReduceMin-1.
        """

    def ReduceProd(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The product; 1 of nothing. Sources: ONNX ReduceProd 1 to 18, OpenVINO ReduceProd-1."""

    def ReduceSum(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The sum; 0 of nothing. Sources: ONNX ReduceSum 1 to 13, OpenVINO ReduceSum-1."""

    def ReduceSumSquare(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """The sum of squares; 0 of nothing. Source: ONNX ReduceSumSquare 1 to 18."""

    # reduction.softmax

    def Hardmax(
        self, x: Operand, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """1 at the first greatest element over ``axis`` and 0 elsewhere; with ``coerce_to_2d`` over it and all after it together.

        Sources: ONNX Hardmax 1, 11 (coerced to two dimensions), 13.
        """

    def LogSoftmax(
        self, x: Operand, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """``log(softmax(x))`` over ``axis``; with ``coerce_to_2d`` over it and all after it together.

        Sources: ONNX LogSoftmax 1, 11 (coerced to two dimensions), 13; OpenVINO LogSoftmax-5.
        """

    def Softmax(
        self, x: Operand, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """``exp(x) / sum(exp(x))`` over ``axis``; with ``coerce_to_2d`` over it and all after it together.

        Sources: ONNX Softmax 1, 11 (coerced to two dimensions), 13; OpenVINO SoftMax-1, -8.
        """

    # runtime_attributes

    def RuntimeAttributes(
        self, /, *xs: Operand | None, op: Op, names: Sequence[str], outputs: int = 1,
    ) -> list[Value]:
        """``op`` with the attributes ``names`` read from the last inputs, in that order; what ``op`` has in their place is not used.

        An integer attribute is a tensor of one element, a list of integers a tensor of rank 0 or 1. The inputs of ``op`` come first;
        one that is left out keeps its place. Where the values are known the rules are those of ``op``. Elsewhere an attribute called
        ``axis`` or ``axes`` is taken to be each of the axes in turn: what all of these agree in is known. Sources: OpenVINO's
        VariadicSplit-1, Split-1, Gather-1, -7, -8, ScatterElementsUpdate-3, -12, ScatterUpdate-3, Unique-10, LRN-1.
        """

    # sequence.optional

    def Optional(
        self, input: Operand | None = None, /, *, type: Type | None = None,
    ) -> Value:
        """``x`` as a value that might be nothing; where there is no ``x``, nothing, of the type ``element``.

        Source: ONNX Optional 15, 28.
        """

    def OptionalGetElement(
        self, input: Operand, /,
    ) -> Value:
        """What ``x`` is, which must not be nothing. Source: ONNX OptionalGetElement 15, 18, 28."""

    def OptionalHasElement(
        self, input: Operand | None = None, /,
    ) -> Value:
        """Whether ``x`` is something, a scalar: false where it is nothing, and where it is left out.

        Source: ONNX OptionalHasElement 15, 18, 28.
        """

    # sequence.sequence

    def ConcatFromSequence(
        self, input_sequence: Operand, /, *, axis: int | Value, new_axis: bool = False,
    ) -> Value:
        """The elements of ``x`` laid end to end along ``axis``, or along a new axis there; one at least.

        Source: ONNX ConcatFromSequence 11.
        """

    def SequenceAt(
        self, input_sequence: Operand, position: Operand, /,
    ) -> Value:
        """The element of ``x`` at ``position``, from -n to n - 1. Source: ONNX SequenceAt 11."""

    def SequenceConstruct(
        self, /, *inputs: Operand | None,
    ) -> Value:
        """The list of ``xs``, one at least, all of one element type. Source: ONNX SequenceConstruct 11."""

    def SequenceEmpty(
        self, /, *, dtype: DTypeLike = 'f32',
    ) -> Value:
        """A list without elements, of tensors of ``dtype``. Source: ONNX SequenceEmpty 11."""

    def SequenceErase(
        self, input_sequence: Operand, position: Operand | None = None, /,
    ) -> Value:
        """``x`` without the element at ``position``, from -n to n - 1; without the last where none is given.

        Source: ONNX SequenceErase 11.
        """

    def SequenceInsert(
        self, input_sequence: Operand, tensor: Operand, position: Operand | None = None, /,
    ) -> Value:
        """``x`` with ``part`` before the element at ``position``, from -n to n where there are n; at the end where none is given.

        Source: ONNX SequenceInsert 11.
        """

    def SequenceLength(
        self, input_sequence: Operand, /,
    ) -> Value:
        """How many elements ``x`` has, a scalar. Source: ONNX SequenceLength 11."""

    def SplitToSequence(
        self, input: Operand, split: Operand | None = None, /, *, axis: int | Value = 0, keepdims: bool = True,
    ) -> Value:
        """Cut ``x`` along ``axis`` into a list of pieces: of ``sizes``, a vector of lengths that add up to the dimension, or each of
        ``sizes``, a scalar above 0 (the last may be smaller), or each of one.

        Without ``sizes`` and ``keepdims`` a piece is without the axis. Source: ONNX SplitToSequence 11, 24.
        """

    # signal.dft

    def DFT(
        self, x: Operand, axes: Operand, signal_size: Operand | None = None, /, *, inverse: bool = False,
        onesided: bool = False,
    ) -> Value:
        """``sum(x[n] * exp(-2 pi i k n / N))``, with ``inverse`` ``sum(x[n] * exp(2 pi i k n / N)) / N``, over each of ``axes``,
        which count all axes of ``x`` but the last.

        The last axis of ``x`` holds the real and the imaginary part, or the real one alone. With ``onesided`` a real ``x`` gives
        the first N // 2 + 1 along the last of ``axes``, from which the rest follows; ``inverse``, those give a real result, with
        one element in its last axis. ``lengths``: to so many elements each axis is cut or filled up with zeros beforehand; -1 is
        as many as there are (2 * (n - 1) for n of one side). Sources: ONNX DFT 17, 20; OpenVINO DFT-7, IDFT-7.
        """

    def IRDFT(
        self, x: Operand, axes: Operand, signal_size: Operand | None = None, /,
    ) -> Value:
        """The real numbers of which ``x``, [..., 2], is one side of the DFT. Source: OpenVINO IRDFT-9."""

    def RDFT(
        self, x: Operand, axes: Operand, signal_size: Operand | None = None, /,
    ) -> Value:
        """DFT of real numbers, one side of it: [..., 2]. Source: OpenVINO RDFT-9."""

    # signal.stft

    def ISTFT(
        self, x: Operand, window: Operand, frame_size: Operand, frame_step: Operand, signal_length: Operand | None = None, /,
        *, center: bool = False, normalized: bool = False,
    ) -> Value:
        """The real signal whose STFT, one side of it, is ``x`` [batch, frequencies, frames, 2], or the same without the batch:
        [batch, elements].

        Frames of ``length`` elements are transformed back, multiplied by ``window`` (between zeros where it is shorter), added up
        ``step`` elements apart, and divided by the sum of the windows' squares, 0 where that is 0. ``normalized`` multiplies by the
        root of ``length``. ``center`` drops length // 2 elements at the front, and as many at the end as leave ``length`` less;
        ``size``, where it is given, cuts the end or fills it up with zeros instead. Source: OpenVINO ISTFT-16.
        """

    def MelWeightMatrix(
        self, num_mel_bins: Operand, dft_length: Operand, sample_rate: Operand, lower_edge_hertz: Operand,
        upper_edge_hertz: Operand, /, *, output_datatype: DTypeLike = 'f32',
    ) -> Value:
        """How much each frequency of a spectrum gives to each of ``bins`` bands, evenly spaced in mels from ``low`` to ``high``
        hertz: [length // 2 + 1, bins].

        A band rises evenly from 0 at the frequency of the one before to 1 at its own, and falls to 0 at that of the next. The
        frequency of hertz f is floor((length + 1) * f / rate), f = 700 * (10 ** (mel / 2595) - 1). Computed in f64.
        Source: ONNX MelWeightMatrix 17 and its reference evaluator.
        """

    def STFT(
        self, x: Operand, frame_step: Operand, window: Operand | None = None, frame_length: Operand | None = None, /, *,
        onesided: bool = True,
    ) -> Value:
        """The spectrum of each frame of a signal: [batch, frames, frequencies, 2], the last axis the real and the imaginary part.

        ``x`` [batch, elements, parts] is real with one part and complex with two. Frames of ``length`` elements (left out: as many as
        ``window`` has, or all) begin every ``step`` elements, as many as lie within the signal, and are multiplied by ``window``.
        With ``onesided`` a real signal gives the first length // 2 + 1 frequencies, from which the rest follows.
        Sources: ONNX STFT 17; OpenVINO STFT-15.
        """

    # tensor.concat_split

    def Concat(
        self, /, *inputs: Operand | None, axis: int | Value,
    ) -> Value:
        """Lay ``xs`` end to end along ``axis``, which counts from the end when negative; all other dimensions agree.

        At least one input, none of them a scalar. Nothing is broadcast or promoted; a size of 0 is an ordinary size.
        Sources: ONNX Concat 1, 4, 11, 13; OpenVINO Concat-1; nGraph Concat.
        """

    def Split(
        self, input: Operand, split: Operand | None = None, /, *, axis: int | Value = 0, outputs: int = 1,
        ragged: bool = False, wildcard: bool = False,
    ) -> list[Value]:
        """Cut ``x`` along ``axis`` into pieces of ``sizes``, or into ``outputs`` equal ones.

        ``sizes`` is a vector of lengths >= 0 that add up to the dimension; with ``wildcard`` one of them may be -1, the remainder.
        Without ``sizes`` the dimension divides by ``outputs``, unless ``ragged``: then a piece is ceil(dim / outputs) long and the
        last may be smaller. Sources: ONNX Split 1, 2, 11, 13, 18; OpenVINO Split-1, VariadicSplit-1.
        """

    # tensor.depth_to_space

    def DepthToSpace(
        self, input: Operand, /, *, blocksize: int | Value = 1, mode: str = 'blocks_first',
    ) -> Value:
        """Channels of ``x`` [N, C, *spatial] as blocks of ``block_size`` in every spatial axis: [N, C / block_size^k, *spatial *
        block_size].

        The channel index is (*block place, new channel) with ``blocks_first``, (new channel, *block place) with ``depth_first``.
        Sources: ONNX DepthToSpace 1 to 28 (DCR, CRD; two spatial axes); OpenVINO DepthToSpace-1.
        """

    def ShuffleChannels(
        self, data: Operand, /, *, axis: int | Value = 1, group: int | Value = 1,
    ) -> Value:
        """The places along ``axis`` taken as a matrix of ``group`` rows, transposed.

        ``group`` divides the size. Source: OpenVINO ShuffleChannels-1.
        """

    def SpaceToDepth(
        self, input: Operand, /, *, blocksize: int | Value = 1, mode: str = 'blocks_first',
    ) -> Value:
        """Blocks of ``block_size`` in every spatial axis of ``x`` [N, C, *spatial] as channels: [N, C * block_size^k, *spatial /
        block_size].

        The inverse of DepthToSpace in the same ``mode``. Sources: ONNX SpaceToDepth 1 to 28 (two spatial axes); OpenVINO
        SpaceToDepth-1.
        """

    # tensor.gather

    def Gather(
        self, data: Operand, indices: Operand, /, *, axis: int | Value = 0, batch_dims: int | Value = 0, bounds: str = 'error',
    ) -> Value:
        """The slices of ``x`` at ``indices`` along ``axis``: x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis + 1:].

        The first ``batch_dims`` axes of both go together; a negative number counts from the rank of ``indices``. An index counts
        from the end when negative; ``bounds`` rules on others outside the axis: an ``error``, or ``zero`` in their place. With
        ``natural`` a negative one is an error too. Sources: ONNX Gather 1 (no negative indices), 11, 13; OpenVINO Gather-1, -7 (no
        negative indices), -8 (zero).
        """

    def GatherElements(
        self, data: Operand, indices: Operand, /, *, axis: int | Value = 0,
    ) -> Value:
        """``x`` read at ``indices`` along ``axis`` and at the place itself on every other axis; the result has the shape of
        ``indices``.

        Off the axis ``indices`` is no larger than ``x``. Indices count from the end when negative; others outside the axis are an
        error. Sources: ONNX GatherElements 11, 13; OpenVINO GatherElements-6.
        """

    def GatherND(
        self, data: Operand, indices: Operand, /, *, batch_dims: int | Value = 0,
    ) -> Value:
        """The slices ``x[indices[i]]``, where the last axis of ``indices`` holds k coordinates of the axes behind the first
        ``batch_dims``.

        The shape is indices.shape[:-1] + x.shape[batch_dims + k:]; the batch axes of both are equal. Coordinates count from the end
        when negative; others outside are an error. Sources: ONNX GatherND 11 to 13; OpenVINO GatherND-5 (at most one batch axis),
        -8.
        """

    # tensor.gather_tree

    def GatherTree(
        self, step_ids: Operand, parent_idx: Operand, max_seq_len: Operand, end_token: Operand, /,
    ) -> Value:
        """The sequences that beams stand for, [times, batch, beams]: the last token of each beam, before it that of its parent, and
        so on. What ``steps`` says at each time is the token, ``parents`` the beam that it comes from.

        A sequence is read from time ``lengths`` [batch] - 1 on, and is ``end`` behind that, and behind the first ``end`` in it.
        Source: OpenVINO GatherTree-1.
        """

    # tensor.nonzero_compress

    def Compress(
        self, input: Operand, condition: Operand, /, *, axis: int | Value | None = None,
    ) -> Value:
        """The slices of ``x`` along ``axis`` (without one: the elements, in row-major order) whose place in ``condition``, a
        vector, is true.

        What lies beyond the end of ``condition`` is left out. Source: ONNX Compress 9 to 28.
        """

    def EyeLike(
        self, input: Operand, /, *, k: int | Value = 0, dtype: DTypeLike | None = None,
    ) -> Value:
        """A matrix of the shape of ``x`` with 1 on the ``k``-th diagonal and 0 elsewhere, of ``dtype`` or else of the type of ``x``.

        Source: ONNX EyeLike 9, 22.
        """

    def NonZero(
        self, x: Operand, /, *, output_type: DTypeLike = 'i64',
    ) -> Value:
        """The coordinates of the elements that are not 0, in row-major order: [rank, how many].

        Of a scalar: [0, 1] or [0, 0]. Sources: ONNX NonZero 9, 13; OpenVINO NonZero-3.
        """

    def OneHot(
        self, indices: Operand, depth: Operand, on_value: Operand, off_value: Operand, /, *, axis: int | Value = -1,
        negative_indices: bool = True,
    ) -> Value:
        """A new axis of size ``depth`` at ``axis`` of the result, ``on`` where its place is the index and ``off`` elsewhere.

        With ``negative`` indices in [-depth, -1] count from the end; any other index outside [0, depth - 1] gives ``off``
        everywhere. Indices and depths that are not integers are cut toward zero. Sources: ONNX OneHot 9 (no negative indices), 11,
        28; OpenVINO OneHot-1, -16.
        """

    def ReverseSequence(
        self, input: Operand, sequence_lens: Operand, /, *, batch_axis: int | Value = 1, time_axis: int | Value = 0,
    ) -> Value:
        """For each place i along ``batch_axis``, the first ``lengths[i]`` elements along ``time_axis`` in reverse order, the others
        as they are.

        Sources: ONNX ReverseSequence 10, 28; OpenVINO ReverseSequence-1.
        """

    def Trilu(
        self, input: Operand, k: Operand | None = None, /, *, upper: bool = True,
    ) -> Value:
        """The matrices in the last two axes of ``x`` on and above (without ``upper``: below) the ``k``-th diagonal, and 0 elsewhere.

        Source: ONNX Trilu 14.
        """

    # tensor.pad

    def Pad(
        self, data: Operand, pads: Operand, constant_value: Operand | None = None, axes: Operand | None = None, /, *,
        mode: str = 'constant',
    ) -> Value:
        """``x`` with ``pads[i]`` elements before and ``pads[n + i]`` after it along ``axes[i]``, n axes in all; negative pads crop.

        ``pads`` is a vector, ``axes`` are all when left out. ``mode`` says what the new elements are: ``constant``: ``value`` (0,
        False or the empty text when left out); ``edge``: the nearest one; ``reflect`` and ``symmetric``: the mirrored ones, without
        and with the border; ``wrap``: those of the other end. A crop comes before wrapping; in the other modes it does not hide
        elements from the other side. A size below 0 is 0. Sources: ONNX Pad 1 to 25; OpenVINO Pad-1, -12; numpy.pad.
        """

    # tensor.reshape

    def Flatten(
        self, input: Operand, /, *, axis: int | Value = 1,
    ) -> Value:
        """Flatten ``input`` to a matrix: [product of the sizes before ``axis``, product of the other sizes].

        ``axis`` is in [-rank, rank]; the product of no sizes is 1. Source: ONNX Flatten 1 to 25.
        """

    def Reshape(
        self, data: Operand, shape: Operand, /, *, special_zero: bool = True, empty: str = 'refuse',
    ) -> Value:
        """Reshape ``data`` to the sizes in the vector ``shape``, keeping its elements in row-major order.

        With ``special_zero`` a 0 copies the input's dimension at its index, which must be below the rank; otherwise it is a size of
        zero. At most one -1 is computed so that the numbers of elements agree. ``empty`` rules on -1 where the other sizes multiply
        to 0: ``refuse``; ``cancel`` divides by the sizes that are not copied ([0, 3] by [0, -1] is [0, 3]); ``zero`` makes it 0, and
        refuses the shape [0] unless that 0 copies. Where a literal 0 stands beside -1, every choice refuses. A symbol in ``shape`` is
        a size, also when it turns out to be 0. ``special_zero`` is the negation of ONNX's ``allowzero``.
        Sources: ONNX Reshape 1 to 25 (allowzero), OpenVINO Reshape-1 (special_zero), nGraph Reshape v1.
        """

    def Squeeze(
        self, data: Operand, axes: Operand | None = None, /, *, skip: bool = False,
    ) -> Value:
        """Squeeze ``data``: remove ``axes``, which have the size 1; without ``axes`` remove every axis of size 1.

        With ``skip`` an axis of another size stays; otherwise it is an error, also at run time. Each axis is named at most once.
        Sources: ONNX Squeeze 1 to 25; OpenVINO Squeeze-1, -15 (whose ``allow_axis_skip`` concerns inference only).
        """

    def Unsqueeze(
        self, data: Operand, axes: Operand, /,
    ) -> Value:
        """Unsqueeze ``data``: insert an axis of size 1 at each of ``axes``, counted in the result; each is named once.

        Sources: ONNX Unsqueeze 1 to 25; OpenVINO Unsqueeze-1.
        """

    # tensor.scatter

    def ScatterElements(
        self, data: Operand, indices: Operand, updates: Operand, /, *, axis: int | Value = 0, reduction: str = 'replace',
        use_init_val: bool = True,
    ) -> Value:
        """``x`` with each element of ``updates`` at its own place, but ``indices`` along ``axis``.

        ``indices`` has the rank of ``x`` and the shape of ``updates``, and is no larger than ``x`` off the axis. Indices count from
        the end when negative; others outside the axis are an error. ``reduction`` combines an update with what is there, one after
        the other: ``replace`` (of several updates of one place the last stays); ``mean`` is the mean of all, of integers rounded
        down. Without ``initial`` a place that is updated forgets what ``x`` had. Sources: ONNX Scatter 9, 11, ScatterElements 11 to
        18; OpenVINO ScatterElementsUpdate-3, -12.
        """

    def ScatterND(
        self, data: Operand, indices: Operand, updates: Operand, /, *, reduction: str = 'replace',
    ) -> Value:
        """``x`` with the slices ``updates[i]`` at ``x[indices[i]]``, where the last axis of ``indices`` holds k coordinates of the
        first k axes.

        ``updates`` has the shape indices.shape[:-1] + x.shape[k:]. Coordinates and ``reduction`` as in ScatterElements.
        Sources: ONNX ScatterND 11 to 18; OpenVINO ScatterNDUpdate-3, -15.
        """

    def ScatterUpdate(
        self, data: Operand, indices: Operand, updates: Operand, /, *, axis: int | Value = 0,
    ) -> Value:
        """``x`` with the slices ``updates[..., i, ...]`` at ``indices[i]`` along ``axis``; an index lies in [0, size - 1].

        ``updates`` has the shape x.shape[:axis] + indices.shape + x.shape[axis + 1:]. Source: OpenVINO ScatterUpdate-3.
        """

    def TensorScatter(
        self, past_cache: Operand, update: Operand, write_indices: Operand | None = None, /, *, axis: int | Value = -2,
        mode: str = 'linear',
    ) -> Value:
        """``x`` with ``updates`` along ``axis`` from a place on that ``starts`` gives for each item of the batch (left out: from 0).

        Places past the end are those from the beginning when ``circular``, and an error otherwise. The axis is not that of the batch,
        which is the first. Source: ONNX TensorScatter 24.
        """

    # tensor.shape

    def ConstantOfShape(
        self, input: Operand, value: Operand, /,
    ) -> Value:
        """A tensor of ``shape``, a vector, that holds the one element of ``value`` everywhere.

        No size is negative; an empty shape gives a scalar. Source: ONNX ConstantOfShape 9 to 25.
        """

    def Range(
        self, start: Operand, limit: Operand, delta: Operand, /, *, output_type: DTypeLike | None = None, wide: bool = True,
    ) -> Value:
        """``start``, ``start + step``, ``start + 2 step`` and so on, as far as they lie before ``stop``: max(ceil((stop - start) /
        step), 0) of them.

        Each input is one element; ``step`` is not 0. ``dtype`` is that of the result, by default of ``start``; floats of fewer than
        32 bits are computed in f32 (``wide``). Whole numbers from floats are refused (OpenVINO leaves open where they are rounded).
        Sources: ONNX Range 11, 27; OpenVINO Range-1, -4.
        """

    def Shape(
        self, data: Operand, /, *, start: int | Value = 0, end: int | Value | None = None, output_type: DTypeLike = 'i64',
    ) -> Value:
        """The sizes of ``x`` from axis ``start`` to before ``end``, as a vector of ``dtype``.

        ``start`` and ``end`` count from the rank when negative and are clamped to [0, rank]; without ``end`` up to the last.
        Sources: ONNX Shape 1 to 25; OpenVINO ShapeOf-1, -3.
        """

    def Size(
        self, data: Operand, /,
    ) -> Value:
        """The number of elements of ``x``, a scalar. Source: ONNX Size 1 to 25."""

    # tensor.slice

    def Roll(
        self, data: Operand, shift: Operand, axes: Operand, /,
    ) -> Value:
        """``x`` moved by ``shift[i]`` places towards larger indices along ``axes[i]``; what leaves at the end comes back at the
        front.

        An axis that is named several times moves by the sum; one shift stands for all axes. Source: OpenVINO Roll-7.
        """

    def Slice(
        self, data: Operand, starts: Operand, ends: Operand, axes: Operand | None = None, steps: Operand | None = None, /,
    ) -> Value:
        """Every ``steps[i]``-th element of ``x`` from ``starts[i]`` to before ``stops[i]`` along ``axes[i]``; all of the other axes.

        Bounds count from the end when negative. With a positive step the start is clamped to [0, size] and the stop to [0, size];
        with a negative one to [0, size - 1] and [-1, size - 1]. No step is 0; no axis comes twice; without ``axes`` they are the
        first ones. The greatest value of a 32-bit bound means the end of the axis, the least the place before it ("INT_MAX",
        "INT_MIN"). Sources: ONNX Slice 1, 10, 11, 13; OpenVINO Slice-8.
        """

    # tensor.topk

    def TopK(
        self, x: Operand, k: Operand, /, *, axis: int | Value = -1, largest: bool = True, sort: str = 'value',
        stable: bool = True, index_element_type: DTypeLike = 'i64',
    ) -> list[Value]:
        """The ``k`` greatest (without ``largest``: least) elements along ``axis``, and where they are.

        ``sort`` orders them by ``value``, the first the most extreme, or by ``index``; ``none`` leaves the order open, and here is by
        value. ``stable``: of equal ones the first is taken and comes first; without it any may be, and here it is the same. A NaN is
        greater than any number. Sources: ONNX TopK 1 to 24; OpenVINO TopK-1, -3, -11.
        """

    # tensor.transpose_expand_tile

    def Expand(
        self, input: Operand, shape: Operand, /, *, bidirectional: bool = True,
    ) -> Value:
        """``x`` broadcast with a tensor of ``shape``, a vector: aligned at the end, a size of 1 is repeated to the other size.

        With ``both`` sizes of 1 and missing axes in ``shape`` give way to those of ``x``; otherwise the result has exactly ``shape``.
        Sources: ONNX Expand 8, 13; OpenVINO Broadcast-1 (numpy), -3 (numpy, bidirectional).
        """

    def Tile(
        self, input: Operand, repeats: Operand, /, *, extend: bool = False,
    ) -> Value:
        """``x`` laid ``repeats[i]`` times end to end along each axis i.

        ``repeats`` has one number for each axis; with ``extend`` it may have more or fewer, and 1 is understood before the shorter of
        it and the shape. Sources: ONNX Tile 6, 13; OpenVINO Tile-1.
        """

    def Transpose(
        self, data: Operand, perm: Operand | None = None, /,
    ) -> Value:
        """Axis i of the result is axis ``order[i]`` of ``x``; without an order, or with an empty one, the axes are reversed.

        ``order`` is a permutation of 0 .. rank - 1. Sources: ONNX Transpose 1 to 25; OpenVINO Transpose-1.
        """

    # tensor.unique_searchsorted

    def SearchSorted(
        self, sorted_sequence: Operand, values: Operand, /, *, right_mode: bool = False, output_type: DTypeLike = 'i64',
    ) -> Value:
        """For each of ``values`` how many elements of the rising ``sequence`` come before it: those that are less, or with ``right``
        also those that are equal.

        ``sequence`` is a vector, or its axes but the last are those of ``values``. Sources: OpenVINO Bucketize-3, SearchSorted-15.
        """

    @overload
    def Unique(
        self, x: Operand, /, *, axis: int | Value | None = None, sorted: bool = True, index_element_type: DTypeLike = 'i64',
        count_element_type: DTypeLike = 'i64', outputs: Literal[1],
    ) -> Value:
        """Every element of ``x`` once, in a vector, or every slice along ``axis``; where each first occurs; which one each of ``x``
        is; how often each occurs.

        With ``sorted`` they rise, slices element by element in row-major order; without it they stand as they first occur. Elements
        are counted in row-major order. ``outputs``: how many of the four there are.
        Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
        """

    @overload
    def Unique(
        self, x: Operand, /, *, axis: int | Value | None = None, sorted: bool = True, index_element_type: DTypeLike = 'i64',
        count_element_type: DTypeLike = 'i64', outputs: Literal[2, 3, 4] = 4,
    ) -> list[Value]:
        """Every element of ``x`` once, in a vector, or every slice along ``axis``; where each first occurs; which one each of ``x``
        is; how often each occurs.

        With ``sorted`` they rise, slices element by element in row-major order; without it they stand as they first occur. Elements
        are counted in row-major order. ``outputs``: how many of the four there are.
        Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
        """

    @overload
    def Unique(
        self, x: Operand, /, *, axis: int | Value | None = None, sorted: bool = True, index_element_type: DTypeLike = 'i64',
        count_element_type: DTypeLike = 'i64', outputs: int = 4,
    ) -> Value | list[Value]:
        """Every element of ``x`` once, in a vector, or every slice along ``axis``; where each first occurs; which one each of ``x``
        is; how often each occurs.

        With ``sorted`` they rise, slices element by element in row-major order; without it they stand as they first occur. Elements
        are counted in row-major order. ``outputs``: how many of the four there are.
        Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
        """

    # text.strings

    def RegexFullMatch(
        self, x: Operand, /, *, pattern: str | None = None,
    ) -> Value:
        """Whether the whole of each text matches ``pattern``, a regular expression in the syntax of RE2.

        Without a pattern nothing is said of what matches, and it is refused. Source: ONNX RegexFullMatch 20.
        """

    def StringConcat(
        self, x: Operand, y: Operand, /,
    ) -> Value:
        """Each text of ``x`` with the text of ``y`` behind it; shapes broadcast. Source: ONNX StringConcat 20."""

    def StringNormalizer(
        self, x: Operand, /, *, case: str = 'keep', case_sensitive: bool = False, locale: str = '',
        stopwords: Sequence[str] = (),
    ) -> Value:
        """The texts of a vector, or of the only row of a matrix, without ``stopwords``, and in lower or upper ``case``; one empty
        text where none is left.

        Unless ``case_sensitive``, a text is compared in the case that it will have, else in lower case. A letter becomes another one
        only, never several. Source: ONNX StringNormalizer 10.
        """

    def StringSplit(
        self, x: Operand, /, *, delimiter: str = '', maxsplit: int | Value | None = None,
    ) -> list[Value]:
        """Each text cut at ``delimiter``, ``maxsplit`` times at most, from the left: the pieces along a new last axis, with empty
        texts after them where others have more; and how many there are.

        Without a delimiter a text is cut at white space, however much, and begins and ends without any. White space is what Unicode
        calls so. Source: ONNX StringSplit 20.
        """

    # text.tfidf

    def TfIdfVectorizer(
        self, x: Operand, /, *, mode: str, shortest: int | Value, longest: int | Value, most_skipped: int | Value,
        starts: Sequence[int] | Value, places: Sequence[int] | Value, numbers: Sequence[int] | Value = (),
        words: Sequence[str] = (), weights: Sequence[float] = (),
    ) -> Value:
        """How often each n-gram of a pool occurs in ``x``, a vector or the rows of a matrix.

        The pool is ``words`` or ``numbers``, laid end to end, those of length n from ``starts[n - 1]`` on; the i-th is counted at
        ``places[i]`` of the result. Those of length ``shortest`` to ``longest`` are looked for, with 0 to ``most_skipped`` elements
        left out between each two. ``tf``: the count; ``idf``: the i-th of ``weights`` (each 1 where there are none) where it occurs;
        ``tfidf``: the count times the weight. Source: ONNX TfIdfVectorizer 9.
        """

    # text.tokenizer

    def Tokenizer(
        self, x: Operand, /, *, mark: bool, mincharnum: int | Value, pad_value: str, separators: Sequence[str] = (),
        tokenexp: str = '',
    ) -> Value:
        """The tokens of each text of a vector or matrix, along a new last axis; ``pad_value`` after those of a text that has fewer.

        Tokens are the longest matches of ``tokenexp`` from the left; what lies between the matches of ``separators``, each of which
        cuts what those before it left; or single characters, where the only separator is empty. Patterns are in the syntax of RE2.
        Tokens of fewer than ``mincharnum`` characters are left out. With ``mark`` U+0002 comes before the tokens of
        a text, and U+0003 after them.
        Source: onnxruntime com.microsoft Tokenizer 1.
        """

    # training.ctc_loss

    def CTCLoss(
        self, logits: Operand, lengths: Operand, labels: Operand, counts: Operand, blank: Operand | None = None, /, *,
        collapse: bool = False, merge: bool = True, unique: bool = False,
    ) -> Value:
        """The negative logarithm of the chance that ``labels`` [batch, times] are read from ``logits`` [batch, times, classes]:
        [batch].

        At each of the first ``lengths`` [batch] times a class is drawn, with the chances softmax(logits); ``blank`` (left out: the
        last class) is dropped, after classes that come several times in a row are taken for one, unless ``merge`` is False. Of
        ``labels`` the first ``counts`` [batch] are meant, with ``unique`` each once, with ``collapse`` those that come several times
        in a row once. What cannot be read has an infinite loss. Source: OpenVINO CTCLoss-4.
        """

    # training.losses

    def NegativeLogLikelihoodLoss(
        self, x: Operand, target: Operand, weight: Operand | None = None, /, *, reduction: str = 'mean',
        ignored: int | Value | None = None,
    ) -> Value:
        """What the log-probabilities ``x`` [batch, classes, *places] lose at the classes ``target`` [batch, *places].

        That is ``-x[i, target[i, j], j] * weight[target[i, j]]``, and 0 where ``target`` is ``ignored``. ``reduction``: ``none``
        gives it for each place, ``sum`` the sum, ``mean`` the sum over that of the weights (1 each where none are given; 0 where a
        class is ignored). Source: ONNX NegativeLogLikelihoodLoss 12, 13, 22.
        """

    @overload
    def SoftmaxCrossEntropyLoss(
        self, x: Operand, target: Operand, weight: Operand | None = None, /, *, reduction: str = 'mean',
        ignored: int | Value | None = None, outputs: Literal[1] = 1,
    ) -> Value:
        """The negative log-likelihood loss of ``log(softmax(x))`` over the classes (axis 1), and that logarithm if asked for.

        The attributes are those of NegativeLogLikelihoodLoss. Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
        """

    @overload
    def SoftmaxCrossEntropyLoss(
        self, x: Operand, target: Operand, weight: Operand | None = None, /, *, reduction: str = 'mean',
        ignored: int | Value | None = None, outputs: Literal[2],
    ) -> list[Value]:
        """The negative log-likelihood loss of ``log(softmax(x))`` over the classes (axis 1), and that logarithm if asked for.

        The attributes are those of NegativeLogLikelihoodLoss. Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
        """

    @overload
    def SoftmaxCrossEntropyLoss(
        self, x: Operand, target: Operand, weight: Operand | None = None, /, *, reduction: str = 'mean',
        ignored: int | Value | None = None, outputs: int,
    ) -> Value | list[Value]:
        """The negative log-likelihood loss of ``log(softmax(x))`` over the classes (axis 1), and that logarithm if asked for.

        The attributes are those of NegativeLogLikelihoodLoss. Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
        """

    # training.optimizers

    def Adagrad(
        self, rate: Operand, count: Operand, /, *xs: Operand | None, norm_coefficient: float = 0.0, outputs: int = 2,
        decay_factor: float = 0.0, epsilon: float = 9.999999974752427e-07,
    ) -> list[Value]:
        """Of each tensor x, its gradient g and the sum h of squares before: ``g' = g + norm_coefficient * x``, ``h' = h + g' * g'``,
        ``x' = x - rate / (1 + count * decay_factor) * g' / (sqrt(h') + epsilon)``. All tensors come first, then all gradients, then
        all sums. Source: ai.onnx.preview.training Adagrad 1.
        """

    def Adam(
        self, rate: Operand, count: Operand, /, *xs: Operand | None, norm_coefficient: float = 0.0,
        alpha: float = 0.8999999761581421, beta: float = 0.9990000128746033, epsilon: float = 9.999999974752427e-07,
        norm_coefficient_post: float = 0.0, outputs: int = 3,
    ) -> list[Value]:
        """Of each tensor x, its gradient g and the running means v of gradients and h of squares: ``g' = g + norm_coefficient * x``,
        ``v' = alpha * v + (1 - alpha) * g'``, ``h' = beta * h + (1 - beta) * g' * g'``, and ``x' = (1 - norm_coefficient_post) * (x -
        r * v' / (sqrt(h') + epsilon))`` with ``r = rate * sqrt(1 - beta ** count) / (1 - alpha ** count)``, or rate in step 0. All
        tensors come first, then all gradients, then all means of either kind. Source: ai.onnx.preview.training Adam 1.
        """

    def Momentum(
        self, rate: Operand, count: Operand, /, *xs: Operand | None, norm_coefficient: float = 0.0, outputs: int = 2,
        alpha: float = 0.0, beta: float = 1.0, mode: str = 'standard',
    ) -> list[Value]:
        """Of each tensor x, its gradient g and its momentum v: ``v' = alpha * v + beta * (g + norm_coefficient * x)``, with 1 for
        ``beta`` in step 0, and ``x' = x - rate * v'``; with the mode ``nesterov`` ``x' = x - rate * (g + norm_coefficient * x +
        alpha * v')``. All tensors come first, then all gradients, then all momenta. Source: ai.onnx.preview.training Momentum 1.
        """
