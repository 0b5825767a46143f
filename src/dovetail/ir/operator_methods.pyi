# Generated from the registry by `python -m dovetail.ir.operator_stub`; do not edit.
"""The operators of the registry as methods of a Builder.

Inputs are positional: values, or data that becomes a constant; None leaves out an optional input. Attributes are keywords.
An integer attribute may be a Value, which is then read at run time. One output is returned alone, several as a list.
"""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from dovetail.ir.dtypes import DTypeLike
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

    @overload
    def Attention(
        self, q: Operand, k: Operand, v: Operand, attn_mask: Operand | None = None, past_key: Operand | None = None,
        past_value: Operand | None = None, nonpad_kv_seqlen: Operand | None = None, /, *, is_causal: bool = False,
        scale: float | None = None, softcap: float = 0.0, softmax_precision: DTypeLike | None = None,
        q_num_heads: int | Value | None = None, kv_num_heads: int | Value | None = None, qk_matmul_output_mode: str = 'raw',
        short_mask: bool = False, left_window_size: int | Value = -1, right_window_size: int | Value = -1, outputs: int,
    ) -> Value | list[Value]:
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

    def ScaledDotProductAttention(
        self, query: Operand, key: Operand, value: Operand, attention_mask: Operand | None = None,
        scale: Operand | None = None, sink: Operand | None = None, /, *, causal: bool = False,
    ) -> Value:
        """ScaledDotProductAttention computes ``softmax(query key' * scale + attention_mask) value``.

        The last two axes of ``query``, ``key`` and ``value`` are matrices; the batch axes before them, at least one, broadcast.
        ``scale`` is one number, by default 1 / sqrt(columns of query). A boolean ``attention_mask`` is true for the keys that a row
        attends to; a mask of floats is added to the scores. With ``causal`` the mask is ignored, and row i attends to keys 0 to i.
        A row without any key to attend to is NaN. ``sink`` has the rank of ``query`` and one column; softmax treats this column as
        the score of an additional key without a value.
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
        ``query``. The initial S is ``past_state`` [batch, kv_num_heads, size, columns], by default zeros; ``present_state`` is S
        after the last row.

        With ``update_rule`` ``gated`` or ``gated_delta`` S is first multiplied by exp of ``decay`` [batch, rows, kv_num_heads], or
        [batch, rows, kv_num_heads * size] for one number per row of S. The vector w is ``value``; with ``delta`` or ``gated_delta``
        it is ``beta * (value - key S)``, where ``beta`` is [batch, rows, kv_num_heads or 1]. The computation runs in f32, for f64
        inputs in f64. ``scale`` 0 means 1 / sqrt(size).
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
        ``query``. The initial S is ``past_state`` [batch, kv_num_heads, size, columns], by default zeros; ``present_state`` is S
        after the last row.

        With ``update_rule`` ``gated`` or ``gated_delta`` S is first multiplied by exp of ``decay`` [batch, rows, kv_num_heads], or
        [batch, rows, kv_num_heads * size] for one number per row of S. The vector w is ``value``; with ``delta`` or ``gated_delta``
        it is ``beta * (value - key S)``, where ``beta`` is [batch, rows, kv_num_heads or 1]. The computation runs in f32, for f64
        inputs in f64. ``scale`` 0 means 1 / sqrt(size).
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
        ``query``. The initial S is ``past_state`` [batch, kv_num_heads, size, columns], by default zeros; ``present_state`` is S
        after the last row.

        With ``update_rule`` ``gated`` or ``gated_delta`` S is first multiplied by exp of ``decay`` [batch, rows, kv_num_heads], or
        [batch, rows, kv_num_heads * size] for one number per row of S. The vector w is ``value``; with ``delta`` or ``gated_delta``
        it is ``beta * (value - key S)``, where ``beta`` is [batch, rows, kv_num_heads or 1]. The computation runs in f32, for f64
        inputs in f64. ``scale`` 0 means 1 / sqrt(size).
        Source: ONNX LinearAttention 27.
        """

    # attention.rotary_embedding

    def RotaryEmbedding(
        self, x: Operand, cos_cache: Operand, sin_cache: Operand, position_ids: Operand | None = None, /, *,
        num_heads: int | Value | None = None, rotary_embedding_dim: int | Value = 0, interleaved: bool = False,
    ) -> Value:
        """RotaryEmbedding rotates pairs of columns (a, b) of each head of ``x``: to (a cos - b sin, a sin + b cos).

        ``x`` is [batch, heads, rows, size], or [batch, rows, heads * size] with ``num_heads``. The first ``rotary_embedding_dim``
        columns (0: all) are rotated, the rest is copied. Pair i is column i of the first half and column i of the second half of
        the rotated columns; with ``interleaved``, columns 2 * i and 2 * i + 1. ``cos_cache`` and ``sin_cache`` are [batch, rows,
        rotary_embedding_dim / 2]. With ``position_ids`` [batch, rows], which selects their rows, they are [positions,
        rotary_embedding_dim / 2].
        Source: ONNX RotaryEmbedding 23.
        """

    # constant

    def Constant(
        self, /, *, data: np.ndarray[Any, Any], dtype: DTypeLike,
    ) -> Value:
        """Hold a constant tensor. ``data`` has one element per numpy element and is read-only.

        A reader of files may pass PackedElements for ``data``: each read of ``data`` then unpacks them.
        """

    def DefaultInput(
        self, /, *, default: np.ndarray[Any, Any], dtype: DTypeLike, declared: Type | None = None,
    ) -> Value:
        """Return the value of an optional model input: ``default`` if the caller passes no array.

        An optional input is an ONNX initializer that is also a graph input (IR version 4). ``declared`` is the type of the graph
        input. Shape inference and rewrites do not treat ``default`` as a constant, until
        :func:`dovetail.formats.default_inputs.freeze_defaults` replaces the node by a Constant.
        """

    def Foreign(
        self, /, *inputs: Operand | None, format: str, domain: str, kind: str, version: int | Value,
        attributes: Sequence[tuple[str, Any]], outputs: int, captures: Sequence[str] = (), fault: DovetailError | None = None,
    ) -> list[Value]:
        """Preserve an operator that dovetail cannot import: the node is printed, checked and exported unchanged.

        A Foreign node cannot be converted, run or differentiated. Subgraphs among its attributes stay in the format of the file;
        ``captures`` holds the names under which these subgraphs refer to the last inputs. ``fault`` is the error for an operator
        that dovetail knows: the import rule refuses the node, or dovetail does not support the operator exactly.
        """

    def Identity(
        self, input: Operand, /,
    ) -> Value:
        """Return ``input``."""

    # control_flow.if_op

    def If(
        self, cond: Operand, /, *captures: Operand | None, then_branch: Graph, else_branch: Graph, outputs: int = 1,
    ) -> list[Value]:
        """If runs ``then_branch`` where ``cond`` is true, otherwise ``else_branch``, and returns the outputs of that branch.

        ``cond`` has one element. Both branches take ``captures`` as their inputs. The branch that does not run raises no error,
        even where its rules reject the inputs. Sources: ONNX If 1 to 25, OpenVINO If-8.
        """

    # control_flow.loop

    def Loop(
        self, trip_count: Operand | None, cond: Operand | None, /, *inputs: Operand | None, body: Graph,
        carried: int | Value = 0, scan_inputs: Sequence[tuple[int, int, bool]] = (),
        scan_outputs: Sequence[tuple[int, bool]] = (), outputs: int = 1,
    ) -> list[Value]:
        """Loop runs ``body`` while its condition holds, at most ``trip_count`` times, or once per part of the scan inputs.

        ``inputs`` are ``carried`` initial states, then one scan input for each entry of ``scan_inputs``, then the values that every
        trip reads unchanged. The body takes the trip number (an i64 scalar), the states, one part of each scan input, and the
        unchanged values. It returns the condition of the next trip (a boolean scalar), the next states, and one part of each scan
        output. The outputs are the last states, then for each entry of ``scan_outputs`` the concatenated parts.

        An entry of ``scan_inputs`` is ``(axis, size, is_reversed)``: each part has ``size`` elements along ``axis``, and a reversed
        scan input is read from the last part to the first. An entry of ``scan_outputs`` is ``(axis, is_reversed)``.

        Without ``cond`` the condition of the first trip is true. No trip runs where ``cond`` is false or ``trip_count`` is
        negative. Raises EngineError [loop.trips] beyond the limit ``trips``, [run.time], [run.memory], [loop.parts] where a scan
        input has fewer parts than there are trips.
        Sources: ONNX Loop 1 to 25, Scan 9 to 25; OpenVINO TensorIterator-1, Loop-5.
        """

    # detection.detection_output

    def DetectionOutput(
        self, box_logits: Operand, class_preds: Operand, proposals: Operand, aux_class_preds: Operand | None = None,
        aux_box_preds: Operand | None = None, /, *, num_classes: int | Value | None = None,
        background_label_id: int | Value = 0, top_k: int | Value = -1, variance_encoded_in_target: bool = False,
        keep_top_k: Sequence[int] | Value = (-1,), code_type: str = 'caffe.PriorBoxParameter.CORNER',
        share_location: bool = True, nms_threshold: float = 0.0, confidence_threshold: float = 0.0,
        clip_after_nms: bool = False, clip_before_nms: bool = False, decrease_label_id: bool = False, normalized: bool = False,
        input_height: int | Value = 1, input_width: int | Value = 1, objectness_score: float = 0.0,
    ) -> Value:
        """DetectionOutput decodes prior boxes, applies non-maximum suppression per class, and lists the best boxes of each image.

        The output is [1, 1, rows, 7] with rows [image, class, score, x1, y1, x2, y2], sorted by image, class and descending score.
        The row after the last box has -1 in its first column; all other elements of the remaining rows are 0.

        ``box_logits`` [images, numbers] holds four deltas per prior, or without ``share_location`` four deltas per prior and class.
        ``class_preds`` is [images, priors * classes]. ``proposals`` is [1 or images, 1 or 2, numbers]. Row 0 of ``proposals`` holds
        the corners [x1, y1, x2, y2] of the priors. Without ``normalized`` it holds five numbers per prior; the last four are
        corners in pixels of an image of ``input_height`` and ``input_width``. Row 1 holds the variances that multiply the deltas,
        unless ``variance_encoded_in_target``. The ``code_type`` CORNER adds the deltas to the corners; CENTER_SIZE moves the center
        by multiples of the size and scales the size by an exponential. ``clip_before_nms`` and ``clip_after_nms`` clip boxes to [0,
        1].

        The candidates of each class other than ``background_label_id`` are the boxes with the best ``top_k`` (-1: all) scores above
        ``confidence_threshold``. A box is dropped where its IoU with a selected box of the class exceeds ``nms_threshold``. With
        ``decrease_label_id``, a prior is a candidate for its best class only, if the score of that class is at least
        ``confidence_threshold``; ``top_k`` then limits the candidates of all classes together, and listed class ids are reduced by
        1. The best ``keep_top_k`` (-1: all) boxes of each image are listed.

        ``aux_class_preds`` is [images, priors * 2]; a prior is background where its second number is below ``objectness_score``.
        ``aux_box_preds`` are deltas that move the priors before ``box_logits`` do.
        Source: OpenVINO DetectionOutput-1, -8.
        """

    # detection.multiclass_nms

    def MatrixNms(
        self, boxes: Operand, scores: Operand, /, *, sort_result_type: str = 'none', sort_result_across_batch: bool = False,
        output_type: DTypeLike = 'i64', score_threshold: float = 0.0, nms_top_k: int | Value = -1,
        keep_top_k: int | Value = -1, background_class: int | Value = -1, normalized: bool = True,
        decay_function: str = 'linear', gaussian_sigma: float = 2.0, post_threshold: float = 0.0,
    ) -> list[Value]:
        """MatrixNms lowers the score of each box by its IoU with better boxes of its class, instead of dropping boxes.

        The candidates of each class other than ``background_class`` in each image are the best ``nms_top_k`` (-1: all) boxes with a
        score above ``score_threshold``. The score of box i is multiplied by the minimum of ``(1 - o) / (1 - m)`` over all better
        boxes j; with ``decay_function`` gaussian, by the minimum of ``exp((m * m - o * o) * gaussian_sigma)``. Here o is the IoU of
        boxes i and j, and m the greatest IoU of box j with a box better than j. The best ``keep_top_k`` (-1: all) boxes of each
        image with a decayed score above ``post_threshold`` are selected.

        Inputs, outputs and the order of rows are those of MulticlassNms, except that ``sort_result_type`` classid has no effect
        without ``sort_result_across_batch``.
        Source: OpenVINO MatrixNms-8.
        """

    def MulticlassNms(
        self, boxes: Operand, scores: Operand, roisnum: Operand | None = None, /, *, sort_result_type: str = 'none',
        sort_result_across_batch: bool = False, output_type: DTypeLike = 'i64', score_threshold: float = 0.0,
        nms_top_k: int | Value = -1, keep_top_k: int | Value = -1, background_class: int | Value = -1, normalized: bool = True,
        iou_threshold: float = 0.0, nms_eta: float = 1.0,
    ) -> list[Value]:
        """MulticlassNms applies non-maximum suppression to each class of each image, ``background_class`` excepted.

        The candidates of a class are the best ``nms_top_k`` (-1: all) boxes with a score of at least ``score_threshold``. A box is
        dropped where its IoU with a selected box of the class reaches ``iou_threshold``. The best ``keep_top_k`` (-1: all)
        remaining boxes of each image are the result.

        ``boxes`` [images, boxes, 4] are corners; without ``normalized`` corners are pixel indices, and a box includes the pixels of
        its last corner. ``scores`` are [images, classes, boxes]. ``selected_outputs`` are rows [class, score, x1, y1, x2, y2].
        ``selected_indices`` [rows, 1] are the indices of these boxes, counted through all images (image * boxes + box).
        ``selected_num`` is the number of rows of each image. Rows are sorted by image and descending score; with ``sort_result_type``
        classid, by image, class and descending score. With ``sort_result_across_batch``, rows are sorted by score or class first,
        then by image.

        Two forms run only in OpenVINO: ``nms_eta`` below 1, which lowers the IoU threshold after each selected box, and
        ``roisnum``, with which each image has separate boxes.
        Source: OpenVINO MulticlassNms-8, -9.
        """

    # detection.nms

    @overload
    def NonMaxSuppression(
        self, boxes: Operand, scores: Operand, max_output_boxes_per_class: Operand | None = None,
        iou_threshold: Operand | None = None, score_threshold: Operand | None = None, soft_nms_sigma: Operand | None = None, /,
        *, center_point_box: bool = False, inclusive: bool = False, sort_result_descending: bool = False,
        output_type: DTypeLike = 'i64', outputs: Literal[1] = 1, soft_and_hard: bool = False,
    ) -> Value:
        """NonMaxSuppression selects boxes by descending score and drops boxes that overlap a selected box too much.

        ``boxes`` is [batches, n, 4]: any two opposite corners (y, x, y, x), or with ``center_point_box`` center and size (x, y,
        width, height). ``scores`` is [batches, classes, n]; batches and classes are independent of each other. At most
        ``max_output_boxes_per_class`` boxes (omitted: none) with a score above ``score_threshold`` (omitted: any) are selected,
        equal scores in the order of their indices. A box is dropped where its intersection over union (IoU) with a selected box
        exceeds ``iou_threshold`` (omitted: 0), or with ``inclusive`` reaches it. The IoU with a box without area is 0.

        Where ``soft_nms_sigma`` is greater than 0 (soft NMS), no box is dropped, unless ``soft_and_hard`` is true. For each
        selected box, all other scores are multiplied by exp(-IoU * IoU / (2 * sigma)). The box with the greatest remaining score is
        selected next, as long as this score is above ``score_threshold``.

        ``selected_indices`` are rows [batch, class, box], sorted by batch, class and descending score; with
        ``sort_result_descending``, by descending score only. With three ``outputs``, ``selected_scores`` are rows [batch, class,
        score] in f32, and ``valid_outputs`` is the number of rows. The computation runs in f32.
        Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is ``soft_and_hard``).
        """

    @overload
    def NonMaxSuppression(
        self, boxes: Operand, scores: Operand, max_output_boxes_per_class: Operand | None = None,
        iou_threshold: Operand | None = None, score_threshold: Operand | None = None, soft_nms_sigma: Operand | None = None, /,
        *, center_point_box: bool = False, inclusive: bool = False, sort_result_descending: bool = False,
        output_type: DTypeLike = 'i64', outputs: Literal[2, 3], soft_and_hard: bool = False,
    ) -> list[Value]:
        """NonMaxSuppression selects boxes by descending score and drops boxes that overlap a selected box too much.

        ``boxes`` is [batches, n, 4]: any two opposite corners (y, x, y, x), or with ``center_point_box`` center and size (x, y,
        width, height). ``scores`` is [batches, classes, n]; batches and classes are independent of each other. At most
        ``max_output_boxes_per_class`` boxes (omitted: none) with a score above ``score_threshold`` (omitted: any) are selected,
        equal scores in the order of their indices. A box is dropped where its intersection over union (IoU) with a selected box
        exceeds ``iou_threshold`` (omitted: 0), or with ``inclusive`` reaches it. The IoU with a box without area is 0.

        Where ``soft_nms_sigma`` is greater than 0 (soft NMS), no box is dropped, unless ``soft_and_hard`` is true. For each
        selected box, all other scores are multiplied by exp(-IoU * IoU / (2 * sigma)). The box with the greatest remaining score is
        selected next, as long as this score is above ``score_threshold``.

        ``selected_indices`` are rows [batch, class, box], sorted by batch, class and descending score; with
        ``sort_result_descending``, by descending score only. With three ``outputs``, ``selected_scores`` are rows [batch, class,
        score] in f32, and ``valid_outputs`` is the number of rows. The computation runs in f32.
        Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is ``soft_and_hard``).
        """

    @overload
    def NonMaxSuppression(
        self, boxes: Operand, scores: Operand, max_output_boxes_per_class: Operand | None = None,
        iou_threshold: Operand | None = None, score_threshold: Operand | None = None, soft_nms_sigma: Operand | None = None, /,
        *, center_point_box: bool = False, inclusive: bool = False, sort_result_descending: bool = False,
        output_type: DTypeLike = 'i64', outputs: int, soft_and_hard: bool = False,
    ) -> Value | list[Value]:
        """NonMaxSuppression selects boxes by descending score and drops boxes that overlap a selected box too much.

        ``boxes`` is [batches, n, 4]: any two opposite corners (y, x, y, x), or with ``center_point_box`` center and size (x, y,
        width, height). ``scores`` is [batches, classes, n]; batches and classes are independent of each other. At most
        ``max_output_boxes_per_class`` boxes (omitted: none) with a score above ``score_threshold`` (omitted: any) are selected,
        equal scores in the order of their indices. A box is dropped where its intersection over union (IoU) with a selected box
        exceeds ``iou_threshold`` (omitted: 0), or with ``inclusive`` reaches it. The IoU with a box without area is 0.

        Where ``soft_nms_sigma`` is greater than 0 (soft NMS), no box is dropped, unless ``soft_and_hard`` is true. For each
        selected box, all other scores are multiplied by exp(-IoU * IoU / (2 * sigma)). The box with the greatest remaining score is
        selected next, as long as this score is above ``score_threshold``.

        ``selected_indices`` are rows [batch, class, box], sorted by batch, class and descending score; with
        ``sort_result_descending``, by descending score only. With three ``outputs``, ``selected_scores`` are rows [batch, class,
        score] in f32, and ``valid_outputs`` is the number of rows. The computation runs in f32.
        Sources: ONNX NonMaxSuppression 10, 11 and onnxruntime; OpenVINO NonMaxSuppression-1 to -9 (-5 is ``soft_and_hard``).
        """

    # detection.nms_rotated

    def NMSRotated(
        self, boxes: Operand, scores: Operand, max_output_boxes_per_class: Operand, iou_threshold: Operand,
        score_threshold: Operand, /, *, sort_result_descending: bool = True, output_type: DTypeLike = 'i64',
        clockwise: bool = True,
    ) -> list[Value]:
        """NMSRotated applies non-maximum suppression to rotated boxes (x, y, width, height, angle), with x and y the center.

        ``boxes`` is [batches, n, 5], ``scores`` [batches, classes, n]. The angle is in radians, from the x axis to the y axis; with
        ``clockwise`` false, in the opposite direction. At most ``max_output_boxes_per_class`` boxes of each class with a score
        above ``score_threshold`` are selected. A box is dropped where its IoU with a selected box exceeds ``iou_threshold``.
        Outputs are rows [batch, class, box]; rows [batch, class, score] in f32; and the number of rows. Rows are sorted by batch,
        class and descending score; with ``sort_result_descending``, by descending score only. The computation runs in f32.
        Source: OpenVINO NMSRotated-13.
        """

    # detection.prior_box

    def PriorBox(
        self, output_size: Operand, image_size: Operand, /, *, min_size: Sequence[float] = (), max_size: Sequence[float] = (),
        aspect_ratio: Sequence[float] = (), density: Sequence[float] = (), fixed_ratio: Sequence[float] = (),
        fixed_size: Sequence[float] = (), clip: bool = False, flip: bool = False, step: float = 0.0, offset: float = 0.0,
        variance: Sequence[float] = (), scale_all_sizes: bool = True, min_max_aspect_ratios_order: bool = True,
    ) -> Value:
        """PriorBox places the prior boxes of a single-shot detector in each cell of a grid: [2, 4 * boxes].

        Row 0 holds the corners [x1, y1, x2, y2] of all boxes as fractions of the image, row 1 four variances for each box:
        ``variance``, where one number counts for all four, and 0.1 is the default. ``output_size`` is [rows, columns] of the grid,
        ``image_size`` [height, width] of the image.

        The center of cell i is at ``(i + offset) * step``; where ``step`` is 0, cells divide the image evenly. Each ``fixed_size``
        gives ``density`` by ``density`` shifted boxes for each ratio in ``fixed_ratio``; without ``fixed_ratio``, for the square
        and each ratio in ``aspect_ratio``. Then each ``min_size`` gives a square, a square of side sqrt(min_size * max_size) if it
        has a ``max_size``, and one box for each ratio in ``aspect_ratio``. Without ``min_max_aspect_ratios_order``, the boxes for
        ratios precede the square for ``max_size``. With ``flip``, each ratio other than 1 is followed by its inverse.

        Without ``scale_all_sizes``, ``min_size`` and ``step`` are multiples of the image's height, and ratios apply to the first
        ``min_size`` only. A ``step`` of -1 is then the height of a cell. ``clip`` clips all boxes to the image; boxes of a
        ``fixed_size`` are always clipped.
        Source: OpenVINO PriorBox-1, -8.
        """

    def PriorBoxClustered(
        self, output_size: Operand, image_size: Operand, /, *, width: Sequence[float] = (), height: Sequence[float] = (),
        clip: bool = True, step: float = 0.0, step_w: float = 0.0, step_h: float = 0.0, offset: float = 0.0,
        variance: Sequence[float] = (),
    ) -> Value:
        """PriorBoxClustered places a box for each ``width`` and ``height`` in each cell of a grid: [2, 4 * boxes], as PriorBox.

        The center of cell i is at ``(i + offset) * step``. ``step_w`` and ``step_h`` take precedence over ``step``; where all three
        are 0, cells divide the image evenly.
        Source: OpenVINO PriorBoxClustered-1.
        """

    # detection.proposal

    @overload
    def Proposal(
        self, class_probs: Operand, bbox_deltas: Operand, image_shape: Operand, /, *, base_size: int | Value,
        pre_nms_topn: int | Value, post_nms_topn: int | Value, nms_thresh: float, feat_stride: int | Value,
        min_size: int | Value, ratio: Sequence[float], scale: Sequence[float], clip_before_nms: bool = True,
        clip_after_nms: bool = False, normalize: bool = False, box_size_scale: float = 1.0, box_coordinate_scale: float = 1.0,
        framework: str = '', outputs: Literal[1],
    ) -> Value:
        """Proposal decodes anchors by their deltas and selects the best regions of each image by non-maximum suppression.

        ``rois`` are rows [image, x1, y1, x2, y2], ``post_nms_topn`` rows for each image; ``probs`` are their scores. Unused rows
        are 0; the first unused row of an image has -1 in its first column.

        Each cell of a grid with the spacing ``feat_stride`` has an anchor for each ``ratio`` and ``scale``. An anchor is a square
        of side ``base_size``, changed to the ratio and scaled. ``class_probs`` [images, 2 * anchors, rows, columns] holds the
        foreground scores in the second half of its channels. ``bbox_deltas`` [images, 4 * anchors, rows, columns] holds four deltas
        per anchor. Two deltas, divided by ``box_coordinate_scale``, move the center by multiples of the size. Two deltas, divided
        by ``box_size_scale``, are the logarithms of the factors by which the size is scaled.

        ``image_shape`` is [height, width, scale] or [height, width, height scale, width scale]. Boxes smaller than ``min_size``
        times the scale get the score 0. The best ``pre_nms_topn`` boxes of each image are candidates; a box is dropped where its
        IoU with a selected box exceeds ``nms_thresh``. ``clip_before_nms`` and ``clip_after_nms`` clip boxes to the image;
        ``normalize`` divides coordinates by the width and height of the image.

        A box includes the pixels of its last corner, and anchors have integer sizes. With ``framework`` tensorflow, a box excludes
        its last coordinate, and anchors are centred on their cell and clipped to the image first. The rows and columns of cells are
        then swapped, as are the height and width to which boxes are clipped.
        Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
        """

    @overload
    def Proposal(
        self, class_probs: Operand, bbox_deltas: Operand, image_shape: Operand, /, *, base_size: int | Value,
        pre_nms_topn: int | Value, post_nms_topn: int | Value, nms_thresh: float, feat_stride: int | Value,
        min_size: int | Value, ratio: Sequence[float], scale: Sequence[float], clip_before_nms: bool = True,
        clip_after_nms: bool = False, normalize: bool = False, box_size_scale: float = 1.0, box_coordinate_scale: float = 1.0,
        framework: str = '', outputs: Literal[2] = 2,
    ) -> list[Value]:
        """Proposal decodes anchors by their deltas and selects the best regions of each image by non-maximum suppression.

        ``rois`` are rows [image, x1, y1, x2, y2], ``post_nms_topn`` rows for each image; ``probs`` are their scores. Unused rows
        are 0; the first unused row of an image has -1 in its first column.

        Each cell of a grid with the spacing ``feat_stride`` has an anchor for each ``ratio`` and ``scale``. An anchor is a square
        of side ``base_size``, changed to the ratio and scaled. ``class_probs`` [images, 2 * anchors, rows, columns] holds the
        foreground scores in the second half of its channels. ``bbox_deltas`` [images, 4 * anchors, rows, columns] holds four deltas
        per anchor. Two deltas, divided by ``box_coordinate_scale``, move the center by multiples of the size. Two deltas, divided
        by ``box_size_scale``, are the logarithms of the factors by which the size is scaled.

        ``image_shape`` is [height, width, scale] or [height, width, height scale, width scale]. Boxes smaller than ``min_size``
        times the scale get the score 0. The best ``pre_nms_topn`` boxes of each image are candidates; a box is dropped where its
        IoU with a selected box exceeds ``nms_thresh``. ``clip_before_nms`` and ``clip_after_nms`` clip boxes to the image;
        ``normalize`` divides coordinates by the width and height of the image.

        A box includes the pixels of its last corner, and anchors have integer sizes. With ``framework`` tensorflow, a box excludes
        its last coordinate, and anchors are centred on their cell and clipped to the image first. The rows and columns of cells are
        then swapped, as are the height and width to which boxes are clipped.
        Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
        """

    @overload
    def Proposal(
        self, class_probs: Operand, bbox_deltas: Operand, image_shape: Operand, /, *, base_size: int | Value,
        pre_nms_topn: int | Value, post_nms_topn: int | Value, nms_thresh: float, feat_stride: int | Value,
        min_size: int | Value, ratio: Sequence[float], scale: Sequence[float], clip_before_nms: bool = True,
        clip_after_nms: bool = False, normalize: bool = False, box_size_scale: float = 1.0, box_coordinate_scale: float = 1.0,
        framework: str = '', outputs: int = 2,
    ) -> Value | list[Value]:
        """Proposal decodes anchors by their deltas and selects the best regions of each image by non-maximum suppression.

        ``rois`` are rows [image, x1, y1, x2, y2], ``post_nms_topn`` rows for each image; ``probs`` are their scores. Unused rows
        are 0; the first unused row of an image has -1 in its first column.

        Each cell of a grid with the spacing ``feat_stride`` has an anchor for each ``ratio`` and ``scale``. An anchor is a square
        of side ``base_size``, changed to the ratio and scaled. ``class_probs`` [images, 2 * anchors, rows, columns] holds the
        foreground scores in the second half of its channels. ``bbox_deltas`` [images, 4 * anchors, rows, columns] holds four deltas
        per anchor. Two deltas, divided by ``box_coordinate_scale``, move the center by multiples of the size. Two deltas, divided
        by ``box_size_scale``, are the logarithms of the factors by which the size is scaled.

        ``image_shape`` is [height, width, scale] or [height, width, height scale, width scale]. Boxes smaller than ``min_size``
        times the scale get the score 0. The best ``pre_nms_topn`` boxes of each image are candidates; a box is dropped where its
        IoU with a selected box exceeds ``nms_thresh``. ``clip_before_nms`` and ``clip_after_nms`` clip boxes to the image;
        ``normalize`` divides coordinates by the width and height of the image.

        A box includes the pixels of its last corner, and anchors have integer sizes. With ``framework`` tensorflow, a box excludes
        its last coordinate, and anchors are centred on their cell and clipped to the image first. The rows and columns of cells are
        then swapped, as are the height and width to which boxes are clipped.
        Source: OpenVINO Proposal-1, -4, and its CPU plugin (for tensorflow).
        """

    # detection.psroi_pool

    def DeformablePSROIPooling(
        self, x: Operand, rois: Operand, offsets: Operand | None = None, /, *, output_dim: int | Value,
        group_size: int | Value, spatial_scale: float, mode: str = 'bilinear_deformable', spatial_bins_x: int | Value = 1,
        spatial_bins_y: int | Value = 1, trans_std: float = 1.0, part_size: int | Value = 1,
    ) -> Value:
        """DeformablePSROIPooling pools each region like PSROIPooling, at sample points that ``offsets`` move.

        Regions [image, x1, y1, x2, y2] are the rows of ``rois``; the output is [regions, output_dim, group_size, group_size].

        Both corners are rounded, 1 is added to the last corner, both are multiplied by ``spatial_scale``, and 0.5 is subtracted. A
        region is at least 0.1 high and wide. The bin at (row, column) of output channel c is the mean of ``spatial_bins_y`` by
        ``spatial_bins_x`` interpolated points of channel (c * group_size + row) * group_size + column of ``x``. The points are
        evenly spaced, the first one at the first corner of the bin. Points more than half an element outside of the image do not
        count.

        The output channels are divided into classes. ``offsets`` [regions, 2 * classes, part_size, part_size] holds for each class
        the shift of bins along x, then along y; the unit is the region's size times ``trans_std``.
        Source: OpenVINO DeformablePSROIPooling-1.
        """

    def PSROIPooling(
        self, x: Operand, rois: Operand, /, *, output_dim: int | Value, group_size: int | Value, spatial_scale: float,
        mode: str = 'average', spatial_bins_x: int | Value = 1, spatial_bins_y: int | Value = 1,
    ) -> Value:
        """PSROIPooling pools each region of interest by position-sensitive bins: every bin reads different channels of ``x``.

        Regions [image, x1, y1, x2, y2] are the rows of ``rois``; the output is [regions, output_dim, group_size, group_size].

        With ``mode`` average, both corners are rounded, 1 is added to the last corner, and both are multiplied by
        ``spatial_scale``. Each bin is extended to whole elements. The bin at (row, column) of output channel c is the mean of
        channel (c * group_size + row) * group_size + column of ``x``.

        With ``mode`` bilinear, corners multiplied by ``spatial_scale`` are fractions of the image, whose outermost elements are at
        0 and 1. The region is cut into ``spatial_bins_y`` by ``spatial_bins_x`` parts. In each part, every bin of output channel c
        interpolates one point of channel part * output_dim + c. The output is the mean over the parts.
        Source: OpenVINO PSROIPooling-1.
        """

    # detection.roi_align

    def RoiAlign(
        self, x: Operand, rois: Operand, batch_indices: Operand, /, *, output_height: int | Value = 1,
        output_width: int | Value = 1, sampling_ratio: int | Value = 0, spatial_scale: float = 1.0, mode: str = 'avg',
        aligned_mode: str = 'half_pixel_for_nn',
    ) -> Value:
        """RoiAlign pools each region of interest by bilinear sampling: [regions, channels, output_height, output_width].

        Row i of ``rois`` is [x1, y1, x2, y2] in image ``batch_indices[i]`` of ``x``. Corners are multiplied by ``spatial_scale``.
        The ``aligned_mode`` ``asymmetric`` adds no offset, and a region is at least one element high and wide;
        ``half_pixel_for_nn`` subtracts 0.5 after scaling; ``half_pixel`` adds 0.5 before and subtracts 0.5 after scaling.

        Each bin reads a grid of ``sampling_ratio`` by ``sampling_ratio`` points by bilinear interpolation of four elements; with 0,
        the numbers of points are the bin's height and width, rounded up. A point more than one element outside of the image counts
        as 0. Any other point beyond the center of an outermost element reads this element. The ``mode`` ``avg`` returns the mean of
        the points, ``max`` the maximum of the points and 0. ``max_product`` returns the maximum of the products of one element and
        its weight. A bin without points is 0.
        Sources: ONNX RoiAlign 10 to 22 and its reference evaluator (for ``max_product``); OpenVINO ROIAlign-3, -9.
        """

    def RoiAlignRotated(
        self, x: Operand, rois: Operand, batch_indices: Operand, /, *, output_height: int | Value = 1,
        output_width: int | Value = 1, sampling_ratio: int | Value = 0, spatial_scale: float = 1.0,
        clockwise_mode: bool = False,
    ) -> Value:
        """RoiAlignRotated pools rotated regions of interest: rows [center x, center y, width, height, angle] of ``rois``.

        The angle is in radians, from the x axis towards the y axis if ``clockwise_mode``, else in the opposite direction. All
        numbers except the angle are multiplied by ``spatial_scale``, and 0.5 is subtracted from the center. Sampling and pooling
        are those of RoiAlign with mode ``avg``.
        Source: OpenVINO ROIAlignRotated-15.
        """

    # detection.roi_pool

    def RoiPool(
        self, x: Operand, rois: Operand, /, *, pooled_shape: Sequence[int] | Value, method: str = 'max',
        spatial_scale: float = 1.0,
    ) -> Value:
        """RoiPool pools each region [image, x1, y1, x2, y2], a row of ``rois``, to [regions, channels, *pooled_shape].

        With ``method`` max, corners are multiplied by ``spatial_scale`` and rounded, ties away from 0. The region includes the
        elements from the first to the last corner, at least one element. Bin i spans the elements from floor(i * size) to ceil((i +
        1) * size), where size is the region's size divided by the number of bins. The result is the maximum of each bin; an empty
        bin is 0.

        With ``method`` bilinear, corners are fractions of the image, whose outermost elements are at 0 and 1, and are not scaled.
        The result is interpolated at evenly spaced points from corner to corner; a single point is in the middle. Points outside of
        the image are 0.
        Sources: ONNX MaxRoiPool 1, 22; OpenVINO ROIPooling-2.
        """

    # elementwise.activation

    def Celu(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """Compute max(0, x) + min(0, alpha * (exp(x / alpha) - 1)). Source: ONNX Celu 12 and 28."""

    def Elu(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """Compute x, or alpha * (exp(x) - 1) where x < 0. Sources: ONNX Elu 1 to 22, OpenVINO Elu-1."""

    def Gelu(
        self, x: Operand, /, *, approximate: str = 'none',
    ) -> Value:
        """Compute x * P(X <= x) for a standard normal X: x / 2 * (1 + erf(x / sqrt(2))).

        ``approximate="tanh"`` computes x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).
        Sources: ONNX Gelu 20, OpenVINO Gelu-2 and Gelu-7.
        """

    def HardSigmoid(
        self, x: Operand, /, *, alpha: float = 0.20000000298023224, beta: float = 0.5,
    ) -> Value:
        """Compute max(0, min(1, alpha * x + beta)).

        Sources: ONNX HardSigmoid 1 to 22, OpenVINO HardSigmoid-1 and HSigmoid-5 (alpha 1/6, beta 1/2).
        """

    def HardSwish(
        self, x: Operand, /,
    ) -> Value:
        """Compute x * max(0, min(1, x / 6 + 1/2)). Sources: ONNX HardSwish 14 and 22, OpenVINO HSwish-4."""

    def LeakyRelu(
        self, x: Operand, /, *, alpha: float = 0.009999999776482582,
    ) -> Value:
        """Compute x, or alpha * x where x < 0. Source: ONNX LeakyRelu 1 to 16."""

    def Mish(
        self, x: Operand, /,
    ) -> Value:
        """Compute x * tanh(log(exp(x) + 1)). Sources: ONNX Mish 18 and 22, OpenVINO Mish-4."""

    def PRelu(
        self, x: Operand, slope: Operand, /, *, channels: bool = False,
    ) -> Value:
        """Compute x, or slope * x where x < 0; ``slope`` broadcasts to the shape of ``x``.

        With ``channels``, a ``slope`` of rank 1 whose length equals the size of axis 1 of ``x`` applies to axis 1.
        Sources: ONNX PRelu 1 and 6 (one slope, or one per channel), 7 to 16; OpenVINO PReLU-1.
        """

    def Relu(
        self, x: Operand, /,
    ) -> Value:
        """Compute max(x, 0). Sources: ONNX Relu 1 to 14, OpenVINO ReLU-1."""

    def Selu(
        self, x: Operand, /, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323,
    ) -> Value:
        """Compute gamma * x, or gamma * alpha * (exp(x) - 1) where x <= 0. Sources: ONNX Selu 1 to 22, OpenVINO Selu-1."""

    def Shrink(
        self, x: Operand, /, *, bias: float = 0.0, lambd: float = 0.5,
    ) -> Value:
        """Compute x + bias where x < -lambd, x - bias where x > lambd, otherwise 0; integers are computed in f64 and truncated.

        Source: ONNX Shrink 9.
        """

    def Sigmoid(
        self, x: Operand, /,
    ) -> Value:
        """Compute 1 / (1 + exp(-x)). Sources: ONNX Sigmoid 1 to 13, OpenVINO Sigmoid-1."""

    def Softplus(
        self, x: Operand, /,
    ) -> Value:
        """Compute log(exp(x) + 1). Sources: ONNX Softplus 1 and 22, OpenVINO SoftPlus-4."""

    def Softsign(
        self, x: Operand, /,
    ) -> Value:
        """Compute x / (1 + |x|). Sources: ONNX Softsign 1 and 22, OpenVINO SoftSign-9."""

    def SwiGLU(
        self, x: Operand, y: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """Compute x * sigmoid(alpha * x) * y for ``x`` and ``y`` of equal shapes. Source: ONNX SwiGLU 28."""

    def Swish(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """Compute x * sigmoid(alpha * x). Sources: ONNX Swish 24, OpenVINO Swish-4 (``alpha`` is the input beta there)."""

    def ThresholdedRelu(
        self, x: Operand, /, *, alpha: float = 1.0,
    ) -> Value:
        """Compute x where x > alpha, otherwise 0. Source: ONNX ThresholdedRelu 10 and 22."""

    # elementwise.binary

    def Add(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x + y; integers wrap. Sources: ONNX Add 1 to 14, OpenVINO Add-1."""

    def Divide(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True, m_pythondiv: bool = False,
    ) -> Value:
        """Compute x / y. Integers are rounded toward zero, or with ``m_pythondiv`` toward minus infinity.

        The minimum of a signed type divided by -1 wraps. Sources: ONNX Div 1 to 14, OpenVINO Divide-1.
        """

    def Maximum(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """Compute the element-wise maximum of ``xs``; NaN where an element of any input is NaN.

        Sources: ONNX Max 1 to 13, OpenVINO Maximum-1 (two inputs).
        """

    def Mean(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """Compute the element-wise mean of ``xs``: their sum divided by their number. Source: ONNX Mean 1 to 13."""

    def Minimum(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """Compute the element-wise minimum of ``xs``; NaN where an element of any input is NaN.

        Sources: ONNX Min 1 to 13, OpenVINO Minimum-1 (two inputs).
        """

    def Mod(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True, fmod: bool = False,
    ) -> Value:
        """Compute the remainder of floor division; with ``fmod``, the remainder of truncating division.

        The remainder has the sign of ``y``; with ``fmod``, the sign of ``x``. Sources: ONNX Mod 10 to 28 (fmod), OpenVINO Mod-1
        (truncated) and FloorMod-1.
        """

    def Multiply(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x * y; integers wrap. Sources: ONNX Mul 1 to 14, OpenVINO Multiply-1."""

    def Power(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x to the power y, in the type of ``x``.

        Integers are exact and wrap; a negative exponent gives the truncated reciprocal. Sources: ONNX Pow 1 to 15 (from 12 on the
        types may differ), OpenVINO Power-1 (equal types).
        """

    def SquaredDifference(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute (x - y) * (x - y). Source: OpenVINO SquaredDifference-1."""

    def Subtract(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x - y; integers wrap. Sources: ONNX Sub 1 to 14, OpenVINO Subtract-1."""

    def Sum(
        self, /, *xs: Operand | None, broadcast: bool = True,
    ) -> Value:
        """Compute the element-wise sum of ``xs``, added from the first to the last. Source: ONNX Sum 1 to 13."""

    # elementwise.bitwise

    def BitShift(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True, direction: str = 'left', beyond: str = 'fill',
    ) -> Value:
        """Shift ``x`` ``left`` or ``right`` by ``y`` bits; a right shift of a signed type is arithmetic.

        With ``beyond="fill"``, a shift by a negative amount, or by at least the number of bits, gives 0, or -1 for a right shift of
        a negative ``x``. With ``beyond="open"``, the result of such a shift is undefined, as the source format does not define it.
        Sources: ONNX BitShift 11 (unsigned) and 28, OpenVINO BitwiseLeftShift-15 and BitwiseRightShift-15.
        """

    def BitwiseAnd(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute the bitwise AND. Sources: ONNX BitwiseAnd 18 (integers), OpenVINO BitwiseAnd-13 (integers and booleans)."""

    def BitwiseNot(
        self, x: Operand, /,
    ) -> Value:
        """Invert each bit. Sources: ONNX BitwiseNot 18 (integers), OpenVINO BitwiseNot-13 (integers and booleans)."""

    def BitwiseOr(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute the bitwise OR. Sources: ONNX BitwiseOr 18 (integers), OpenVINO BitwiseOr-13 (integers and booleans)."""

    def BitwiseXor(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute the bitwise XOR. Sources: ONNX BitwiseXor 18 (integers), OpenVINO BitwiseXor-13 (integers and booleans)."""

    # elementwise.cast

    def BitCast(
        self, x: Operand, /, *, to: DTypeLike,
    ) -> Value:
        """Reinterpret the bits of each element as the type ``to`` of the same width. Source: ONNX BitCast 26."""

    def Cast(
        self, x: Operand, /, *, to: DTypeLike, saturate: bool = True, saturate_infinity: bool = True, round_mode: str = 'up',
        source: DTypeLike | None = None,
    ) -> Value:
        """Convert the elements of ``x`` to the type ``to``.

        - From floats to integers, numbers are rounded toward zero. A number out of range becomes the nearest value of the type, and
          NaN becomes 0; the specifications define neither case.
        - From floats to integers of fewer than 8 bits, numbers are rounded to nearest, ties to even, to an i64, whose low bits are
          the result.
        - From integers to integers, numbers wrap.
        - To boolean, every number other than 0 is True.
        - To floats, numbers are rounded to nearest, ties to even; beyond the range they become infinite.
        - To f8 with ``saturate``, numbers beyond the range become the greatest finite value. So does infinity; without
          ``saturate_infinity``, infinity becomes NaN in f8e4m3fnuz and f8e5m2fnuz.
        - To f8 without ``saturate``, numbers beyond the range become infinity or NaN.
        - To f8e8m0, magnitudes are converted by ``saturate`` and ``round_mode``: up, down, nearest (ties up) or even (ties to the
          even code).

        ``source`` is nf4 for an ``x`` of type nf4, whose array does not identify this type.
        Sources: ONNX Cast 1 to 28 (infinity: table of 19 to 23 against 24), OpenVINO Convert-1.
        """

    def CastLike(
        self, x: Operand, target_type: Operand, /, *, saturate: bool = True, round_mode: str = 'up',
    ) -> Value:
        """Convert the elements of ``x`` to the element type of ``target_type``, as Cast does.

        Sources: ONNX CastLike 15 to 25, OpenVINO ConvertLike-1.
        """

    # elementwise.clip

    def Clip(
        self, x: Operand, min: Operand | None = None, max: Operand | None = None, /,
    ) -> Value:
        """Compute min(max, max(min, x)): the result is ``max`` where ``min`` is greater than ``max``.

        The bounds are scalars; a missing bound is the least or greatest finite value of the type. Sources: ONNX Clip 1 to 13,
        OpenVINO Clamp-1.
        """

    # elementwise.logical

    def And(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute the logical AND. Sources: ONNX And 1 and 7, OpenVINO LogicalAnd-1."""

    def Equal(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x == y for operands of any type. Sources: ONNX Equal 1 to 19 (strings from 19 on), OpenVINO Equal-1."""

    def Greater(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x > y. Sources: ONNX Greater 1 to 13, OpenVINO Greater-1."""

    def GreaterEqual(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x >= y. Sources: ONNX GreaterOrEqual 12 and 16, OpenVINO GreaterEqual-1."""

    def IsFinite(
        self, x: Operand, /,
    ) -> Value:
        """Test each element for being neither infinite nor NaN. Source: OpenVINO IsFinite-10."""

    def IsInf(
        self, x: Operand, /, *, detect_negative: bool = True, detect_positive: bool = True,
    ) -> Value:
        """Test each element for infinity, of the signs that ``detect_negative`` and ``detect_positive`` select.

        Sources: ONNX IsInf 10 and 20, OpenVINO IsInf-10.
        """

    def IsNaN(
        self, x: Operand, /,
    ) -> Value:
        """Test each element for NaN. Sources: ONNX IsNaN 9 to 20, OpenVINO IsNaN-10."""

    def Less(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x < y. Sources: ONNX Less 1 to 13, OpenVINO Less-1."""

    def LessEqual(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x <= y. Sources: ONNX LessOrEqual 12 and 16, OpenVINO LessEqual-1."""

    def Not(
        self, x: Operand, /,
    ) -> Value:
        """Compute the logical NOT. Sources: ONNX Not 1, OpenVINO LogicalNot-1."""

    def NotEqual(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute x != y for operands of any type; NaN differs from every value. Source: OpenVINO NotEqual-1."""

    def Or(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute the logical OR. Sources: ONNX Or 1 and 7, OpenVINO LogicalOr-1."""

    def Where(
        self, condition: Operand, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Select ``x`` where ``condition`` is true, otherwise ``y``. Sources: ONNX Where 9 and 16, OpenVINO Select-1."""

    def Xor(
        self, x: Operand, y: Operand, /, *, broadcast: bool = True,
    ) -> Value:
        """Compute the logical XOR. Sources: ONNX Xor 1 and 7, OpenVINO Xor-1 and LogicalXor-1."""

    # elementwise.unary

    def Abs(
        self, x: Operand, /,
    ) -> Value:
        """Compute the absolute value; the minimum of a signed integer type is unchanged, as the result wraps.

        Sources: ONNX Abs 1 to 13, OpenVINO Abs-1.
        """

    def Acos(
        self, x: Operand, /,
    ) -> Value:
        """Compute the arc cosine. Sources: ONNX Acos 7 and 22, OpenVINO Acos-1."""

    def Acosh(
        self, x: Operand, /,
    ) -> Value:
        """Compute the inverse hyperbolic cosine. Sources: ONNX Acosh 9 and 22, OpenVINO Acosh-3 (opset4)."""

    def Asin(
        self, x: Operand, /,
    ) -> Value:
        """Compute the arc sine. Sources: ONNX Asin 7 and 22, OpenVINO Asin-1."""

    def Asinh(
        self, x: Operand, /,
    ) -> Value:
        """Compute the inverse hyperbolic sine. Sources: ONNX Asinh 9 and 22, OpenVINO Asinh-3 (opset4)."""

    def Atan(
        self, x: Operand, /,
    ) -> Value:
        """Compute the arc tangent. Sources: ONNX Atan 7 and 22, OpenVINO Atan-1."""

    def Atanh(
        self, x: Operand, /,
    ) -> Value:
        """Compute the inverse hyperbolic tangent. Sources: ONNX Atanh 9 and 22, OpenVINO Atanh-3 (opset4)."""

    def Ceil(
        self, x: Operand, /,
    ) -> Value:
        """Round up to an integer. Sources: ONNX Ceil 1 to 13, OpenVINO Ceiling-1."""

    def Cos(
        self, x: Operand, /,
    ) -> Value:
        """Compute the cosine. Sources: ONNX Cos 7 and 22, OpenVINO Cos-1."""

    def Cosh(
        self, x: Operand, /,
    ) -> Value:
        """Compute the hyperbolic cosine. Sources: ONNX Cosh 9 and 22, OpenVINO Cosh-1."""

    def Erf(
        self, x: Operand, /,
    ) -> Value:
        """Compute the error function of floats; no specification defines it for integers.

        Sources: ONNX Erf 9 and 13, OpenVINO Erf-1.
        """

    def ErfInv(
        self, x: Operand, /,
    ) -> Value:
        """Compute the inverse of the error function: infinite at -1 and 1, NaN beyond.

        Its decomposition evaluates the rational approximations of the interpreter in f64, with an error below the last digit of
        f32. Source: OpenVINO ErfInv-17.
        """

    def Exp(
        self, x: Operand, /,
    ) -> Value:
        """Compute e to the power x. Sources: ONNX Exp 1 to 13, OpenVINO Exp-1."""

    def Floor(
        self, x: Operand, /,
    ) -> Value:
        """Round down to an integer. Sources: ONNX Floor 1 to 13, OpenVINO Floor-1."""

    def Log(
        self, x: Operand, /,
    ) -> Value:
        """Compute the natural logarithm. Sources: ONNX Log 1 to 13, OpenVINO Log-1."""

    def Negative(
        self, x: Operand, /,
    ) -> Value:
        """Compute -x; integers wrap. Sources: ONNX Neg 1 to 13, OpenVINO Negative-1."""

    def Reciprocal(
        self, x: Operand, /,
    ) -> Value:
        """Compute 1 / x. Source: ONNX Reciprocal 1 to 13."""

    def Round(
        self, x: Operand, /, *, mode: str = 'half_to_even',
    ) -> Value:
        """Round to the nearest integer, ties to even (``half_to_even``) or away from zero (``half_away_from_zero``).

        Sources: ONNX Round 11 and 22, OpenVINO Round-5.
        """

    def Sign(
        self, x: Operand, /,
    ) -> Value:
        """Compute the sign: -1, 0 or 1. Sources: ONNX Sign 9 and 13, OpenVINO Sign-1."""

    def Sin(
        self, x: Operand, /,
    ) -> Value:
        """Compute the sine. Sources: ONNX Sin 7 and 22, OpenVINO Sin-1."""

    def Sinh(
        self, x: Operand, /,
    ) -> Value:
        """Compute the hyperbolic sine. Sources: ONNX Sinh 9 and 22, OpenVINO Sinh-1."""

    def Sqrt(
        self, x: Operand, /,
    ) -> Value:
        """Compute the square root; NaN for negative numbers. Sources: ONNX Sqrt 1 to 13, OpenVINO Sqrt-1."""

    def Tan(
        self, x: Operand, /,
    ) -> Value:
        """Compute the tangent. Sources: ONNX Tan 7 and 22, OpenVINO Tan-1."""

    def Tanh(
        self, x: Operand, /,
    ) -> Value:
        """Compute the hyperbolic tangent. Sources: ONNX Tanh 1 to 13, OpenVINO Tanh-1."""

    # linalg.det_inverse

    def Det(
        self, x: Operand, /,
    ) -> Value:
        """Compute the determinants of the matrices in the last two axes. Floats of fewer than 32 bits are computed in f32.

        Source: ONNX Det 11, 22.
        """

    def Inverse(
        self, x: Operand, /, *, adjoint: bool = False,
    ) -> Value:
        """Compute the inverses of the matrices in the last two axes; with ``adjoint``, the transposes of these inverses.

        Floats of fewer than 32 bits are computed in f32. A singular matrix raises an error. Sources: OpenVINO Inverse-14;
        onnxruntime's com.microsoft Inverse.
        """

    # linalg.einsum

    def Einsum(
        self, /, *xs: Operand | None, equation: str, broadcast: bool = False,
    ) -> Value:
        """Compute the Einstein summation of ``equation``: products of the ``xs``, summed over the labels missing in the result.

        A letter names an axis; a letter that occurs twice in a term names the diagonal of two axes; an ellipsis stands for axes
        that broadcast. Without an explicit result, the result has the axes of the ellipsis, then the labels that occur once, in the
        order of their character codes. With ``broadcast``, axes with the same letter also broadcast, as in every runtime, and
        ellipses may stand for different numbers of axes.
        Sources: ONNX Einsum 12, 28; OpenVINO Einsum-7.
        """

    # linalg.grouped_matmul

    def GroupedMatMul(
        self, mat_a: Operand, mat_b: Operand, offsets: Operand | None = None, /,
    ) -> Value:
        """Multiply each group of rows by the matrix of its group, as in a mixture of experts.

        ``mat_b`` [groups, columns, k] holds transposed matrices. ``mat_a`` is [groups, rows, k]; with ``offsets`` [groups] it is
        [rows, k], and ``offsets`` holds the end row of each group. A group starts at the end of the previous group, the first group
        at row 0. Result rows after the last group are 0. Accumulation and rounding are those of MatMul.
        Source: OpenVINO GroupedMatMul-17, as the openvino package describes it.
        """

    # linalg.matmul

    def Gemm(
        self, a: Operand, b: Operand, c: Operand | None = None, /, *, alpha: float = 1.0, beta: float = 1.0,
        transpose_a: bool = False, transpose_b: bool = False, broadcast: bool = True,
    ) -> Value:
        """Compute ``alpha * a @ b + beta * c`` for matrices ``a`` and ``b``.

        ``transpose_a`` and ``transpose_b`` transpose ``a`` and ``b`` first. ``c`` broadcasts to the product; without ``broadcast``,
        ``c`` has the shape of the product. Floats of fewer than 32 bits are computed in f32 and rounded once. Source: ONNX Gemm 1
        to 13. Raises UnsupportedError [attribute.conflict] for a fractional ``alpha`` or ``beta`` with integers, which ONNX does
        not define.
        """

    def MatMul(
        self, a: Operand, b: Operand, /, *, transpose_a: bool = False, transpose_b: bool = False,
    ) -> Value:
        """Compute the product of the matrices in the last two axes; the axes before them broadcast.

        ``transpose_a`` and ``transpose_b`` swap the last two axes of ``a`` and of ``b`` first. A vector is a row as ``a`` and a
        column as ``b``; it is never transposed, and its axis is not in the result. Floats of fewer than 32 bits are summed in f32
        and rounded once; integers wrap.
        Sources: ONNX MatMul 1, 9, 13 (numpy.matmul); OpenVINO MatMul-1.
        """

    # ml.feature_encoding

    def FeatureVectorizer(
        self, /, *xs: Operand | None, inputdimensions: Sequence[int] | Value = (),
    ) -> Value:
        """FeatureVectorizer concatenates the features of all inputs in f32.

        The features of input i are cut or zero-padded to ``inputdimensions[i]``. A vector is one row; axes after the first are
        flattened.
        Source: ONNX ai.onnx.ml FeatureVectorizer 1.
        """

    def Imputer(
        self, x: Operand, /, *, imputed_value_floats: Sequence[float] = (), imputed_value_int64s: Sequence[int] | Value = (),
        replaced_value_float: float = 0.0, replaced_value_int64: int | Value = 0,
    ) -> Value:
        """Imputer replaces each element of ``x`` that equals the replaced value.

        In floats, ``imputed_value_floats`` replaces elements equal to ``replaced_value_float``; in integers,
        ``imputed_value_int64s`` replaces elements equal to ``replaced_value_int64``. The imputed values are one number, or one
        number per feature along the last axis. A NaN counts as equal to a NaN.
        Source: ONNX ai.onnx.ml Imputer 1.
        """

    def Normalizer(
        self, x: Operand, /, *, norm: str = 'max',
    ) -> Value:
        """Normalizer divides each row of ``x`` by its norm, in f32; a row of norm 0 is unchanged. A vector is one row.

        The norm ``max`` is the greatest element, not the greatest magnitude; ``l1`` is the sum of magnitudes; ``l2`` is the root of
        the sum of squares.
        Source: ONNX ai.onnx.ml Normalizer 1.
        """

    def OneHotEncoder(
        self, x: Operand, /, *, cats_int64s: Sequence[int] | Value = (), cats_strings: Sequence[str] = (), zeros: bool = True,
    ) -> Value:
        """OneHotEncoder writes a 1 at the index of each element's category along a new last axis, and 0 elsewhere.

        Numbers are truncated to integers and searched in ``cats_int64s``; strings are searched in ``cats_strings``. An element
        without a category, such as NaN, gives zeros; where ``zeros`` is false, it raises an error at run time.
        Source: ONNX ai.onnx.ml OneHotEncoder 1.
        """

    def Scaler(
        self, x: Operand, /, *, offset: Sequence[float] = (), scale: Sequence[float] = (),
    ) -> Value:
        """Scaler computes ``(x - offset) * scale`` in f32.

        ``offset`` and ``scale`` hold one number, or one number per feature along the last axis; empty means 0 and 1.
        Source: ONNX ai.onnx.ml Scaler 1.
        """

    # ml.label_encoder

    def LabelEncoder(
        self, x: Operand, keys: Operand, values: Operand, default: Operand, /,
    ) -> Value:
        """LabelEncoder looks up each element of ``x`` in ``keys`` and returns the element of ``values`` at the same index.

        Of several equal keys the last one counts. The result is ``default`` (one element) for an element that is not in ``keys``. A
        NaN counts as equal to a NaN.
        Source: ONNX ai.onnx.ml LabelEncoder 1, 2, 4.
        """

    # ml.linear_models

    def LinearClassifier(
        self, x: Operand, /, *, coefficients: Sequence[float], intercepts: Sequence[float] = (),
        classlabels_ints: Sequence[int] | Value = (), classlabels_strings: Sequence[str] = (), multi_class: int | Value = 0,
        post_transform: str = 'NONE',
    ) -> list[Value]:
        """LinearClassifier returns the label of the greatest score of each row of ``x``, and the scores ``x * C^T + intercepts``.

        Scores are f32. ``coefficients`` holds the rows of ``C``: one row per intercept, or one row per label where there are no
        intercepts. With one row and two labels, a score s above 0 selects the second label, and the two scores are ``1 - s, s``;
        ``LOGISTIC`` is applied to s first. ``multi_class`` records how the model was fitted and has no effect.
        Source: ONNX ai.onnx.ml LinearClassifier 1; single scores as in onnxruntime.
        """

    def LinearRegressor(
        self, x: Operand, /, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (), targets: int | Value = 1,
        post_transform: str = 'NONE',
    ) -> Value:
        """LinearRegressor computes ``x * C^T + intercepts`` in f32 for each row of ``x``.

        ``coefficients`` holds the rows of ``C``, one row per target. A vector ``x`` is one row. With a single target, only the
        ``post_transform`` ``PROBIT`` changes the result, as in onnxruntime.
        Source: ONNX ai.onnx.ml LinearRegressor 1.
        """

    # ml.maps

    def CastMap(
        self, x: Operand, /, *, cast_to: str = 'to_float', map_form: str = 'dense', max_map: int | Value = 1,
    ) -> Value:
        """CastMap returns the values of the map ``x`` as one row, in the type of ``cast_to`` (to_float, to_int64, to_string).

        With ``map_form`` dense, the values are in ascending order of their keys. With ``map_form`` sparse, the row has ``max_map``
        elements, and the value of key k is element k; elements without a key are 0, or the string 0.f. A float becomes a string
        with six decimals.
        Source: ONNX ai.onnx.ml CastMap 1; the string of a missing key is onnxruntime's.
        """

    def DictVectorizer(
        self, x: Operand, /, *, int64_vocabulary: Sequence[int] | Value = (), string_vocabulary: Sequence[str] = (),
        dtype: DTypeLike = 'f32',
    ) -> Value:
        """DictVectorizer returns the values of the map ``x`` in the order of a vocabulary of keys, as one row.

        A missing key has the value 0, or the empty string; keys outside of the vocabulary are dropped. ``dtype`` is the element
        type of the row and must be the type of the map's values: the values of a Python dict do not distinguish f32 from f64.
        Source: ONNX ai.onnx.ml DictVectorizer 1.
        """

    def ZipMap(
        self, x: Operand, /, *, classlabels_int64s: Sequence[int] | Value = (), classlabels_strings: Sequence[str] = (),
    ) -> Value:
        """ZipMap returns for each row of ``x`` a map from the labels to the numbers of the row; a vector is one row.

        The labels are ``classlabels_int64s`` or ``classlabels_strings``, one label per column. Where labels are equal, the map has
        the number of the last such column.
        Source: ONNX ai.onnx.ml ZipMap 1.
        """

    # ml.svm

    def SVMClassifier(
        self, x: Operand, /, *, coefficients: Sequence[float] = (), rho: Sequence[float] = (),
        support_vectors: Sequence[float] = (), kernel_type: str = 'linear', kernel_params: Sequence[float] = (),
        post_transform: str = 'NONE', vectors_per_class: Sequence[int] | Value = (),
        classlabels_ints: Sequence[int] | Value = (), classlabels_strings: Sequence[str] = (), prob_a: Sequence[float] = (),
        prob_b: Sequence[float] = (),
    ) -> list[Value]:
        """SVMClassifier returns the label with the most votes among all pairs of classes, and scores in f32.

        The kernels are those of SVMRegressor. Support vectors are sorted by class, with ``vectors_per_class`` vectors per class.
        ``coefficients`` is a matrix [classes - 1, vectors]: row j holds for each vector the coefficient of the pair of its class
        and the j-th other class. The score of a pair of classes i < j sums kernel times coefficient over the vectors of both
        classes, and adds the element of ``rho`` for this pair. A score above 0 is a vote for class i, any other score a vote for
        class j.

        The pair scores are the second output. With two classes, the pair score s gives two scores: ``-s, s``, with ``LOGISTIC``
        ``logistic(-s), logistic(s)``, with any other ``post_transform`` ``1 - s, s``. With ``prob_a`` and ``prob_b``, pair scores
        become pair probabilities ``1 - sigmoid(a * s + b)``, and pairwise coupling (Wu, Lin and Weng 2004, method 2) makes class
        probabilities of these. Without support vectors the scores are ``x * C^T + rho[0]``, and the class with the greatest score
        wins.
        Source: ONNX ai.onnx.ml SVMClassifier 1; undefined cases as in onnxruntime.
        """

    def SVMRegressor(
        self, x: Operand, /, *, coefficients: Sequence[float] = (), rho: Sequence[float] = (),
        support_vectors: Sequence[float] = (), kernel_type: str = 'linear', kernel_params: Sequence[float] = (),
        post_transform: str = 'NONE', n_supports: int | Value = 0, one_class: bool = False,
    ) -> Value:
        """SVMRegressor computes ``sum_i coefficients[i] * K(x, v_i) + rho[0]`` in f32 over ``n_supports`` support vectors v_i.

        With ``kernel_params`` gamma, coef0 and degree, ``K(x, v)`` is ``x . v`` for ``linear``, ``(gamma * x . v + coef0) ^
        degree`` for ``poly``, ``exp(-gamma * |x - v|^2)`` for ``rbf``, and ``tanh(gamma * x . v + coef0)`` for ``sigmoid``.
        Without support vectors the result is ``x . coefficients + rho[0]``. ``one_class`` returns 1 for a result above 0, else -1.
        ``post_transform`` has no effect on a single score, and ``PROBIT`` is not supported.
        Source: ONNX ai.onnx.ml SVMRegressor 1.
        """

    # ml.tree_ensemble

    def TreeEnsemble(
        self, x: Operand, /, *, n_targets: int | Value, tree_roots: Sequence[int] | Value,
        nodes_featureids: Sequence[int] | Value, nodes_modes: Sequence[int] | Value, nodes_splits: Sequence[float],
        nodes_truenodeids: Sequence[int] | Value, nodes_trueleafs: Sequence[bool], nodes_falsenodeids: Sequence[int] | Value,
        nodes_falseleafs: Sequence[bool], leaf_targetids: Sequence[int] | Value, leaf_weights: Sequence[float],
        nodes_missing_value_tracks_true: Sequence[bool] = (), membership_values: Sequence[Sequence[float]] = (),
        aggregate_function: str = 'sum', post_transform: str = 'none', leaf_sizes: Sequence[int] | Value = (),
    ) -> Value:
        """TreeEnsemble evaluates decision trees for each row of ``x``: [N, n_targets].

        The path through a tree begins at its node in ``tree_roots``. Node i compares feature ``nodes_featureids[i]`` with
        ``nodes_splits[i]`` by one of seven ``nodes_modes`` (``<=``, ``<``, ``>=``, ``>``, ``==``, ``!=``, membership in the next of
        ``membership_values``). The path continues at ``nodes_truenodeids[i]`` where the comparison holds, else at
        ``nodes_falsenodeids[i]``. This id names a leaf where ``nodes_trueleafs[i]`` or ``nodes_falseleafs[i]`` is true, else a
        node. For a NaN the comparison holds where ``nodes_missing_value_tracks_true[i]`` is true.

        Leaf k contributes ``leaf_weights[k]`` to the target ``leaf_targetids[k]``. ``aggregate_function`` combines the trees:
        ``sum``, ``average`` over all trees, ``min`` or ``max`` of the trees with a weight for the target (0 where no tree has one).
        ``post_transform`` is applied to each row. With ``leaf_sizes``, leaf k has ``leaf_sizes[k]`` entries of ``leaf_targetids``
        and ``leaf_weights``, in the order of the leaves.
        Sources: ONNX ai.onnx.ml TreeEnsemble 5; for leaves with several targets, TreeEnsembleRegressor 3.
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
        """TreeEnsembleClassifier returns the class that decision trees choose for each row of ``x``, and all scores in f32.

        The trees are those of TreeEnsembleRegressor: a leaf contributes its ``class_weights`` to its ``class_ids``, and the score
        of a class is the sum of its weights and its base value. With more than two classes, the class with the greatest score wins,
        the first one of equal scores. A class without a weight in the row's leaves and without a base value cannot win.

        The case of two classes follows onnxruntime, since ONNX does not define this case. Let s be the score of the second class,
        or the score of the first class where the row's leaves have no weight for the second class.

        - The second label is selected where s > 0.5 if all weights are for one class and no weight is negative, else where s > 0.
        - Where weights are for both classes, integer labels are 0 and 1, whatever the class labels are.
        - Where the row's leaves have weights for the first class only, the two scores are ``logistic(-s), logistic(s)`` with
          LOGISTIC. Otherwise they are ``1 - s, s`` if all weights are for one class and no weight is negative, else ``-s, s``.
        - With two base values and weights for both classes in the row's leaves, the second score is the first class's sum of
          weights plus the second base value. The first score is the negative of the second score.

        Source: ONNX ai.onnx.ml TreeEnsembleClassifier 1, 3, 5.
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
        """TreeEnsembleRegressor evaluates decision trees for each row of ``x`` in f32: [N, n_targets].

        Entry i of the columns ``nodes_*`` is the node ``nodes_nodeids[i]`` of the tree ``nodes_treeids[i]``; the first entry of a
        tree is the root. A node is a ``LEAF``, or compares feature ``nodes_featureids[i]`` with ``nodes_values[i]``
        (``BRANCH_LEQ``, ``BRANCH_LT``, ``BRANCH_GTE``, ``BRANCH_GT``, ``BRANCH_EQ``, ``BRANCH_NEQ``). The path continues at
        ``nodes_truenodeids[i]`` where the comparison holds, or where the feature is NaN and ``nodes_missing_value_tracks_true[i]``
        is true; else at ``nodes_falsenodeids[i]``. A leaf contributes its ``target_weights`` to its ``target_ids``.
        ``aggregate_function`` combines the contributions of all trees (``sum``, ``average``, ``min``, ``max``), and ``base_values``
        are added.

        Two rules follow onnxruntime: with a single target, only the transform ``PROBIT`` changes the result; with several targets,
        a target without a weight in the row's leaves stays 0. The computation runs in f64 for an f64 ``x``, else in f32.
        Source: ONNX ai.onnx.ml TreeEnsembleRegressor 1, 3, 5.
        """

    # nn.adaptive_pool

    def AdaptiveAveragePool(
        self, x: Operand, output_shape: Operand, /,
    ) -> Value:
        """Compute the mean of each window; the spatial axes are divided into ``output_shape`` windows.

        Window i of m windows over n elements begins at floor(i * n / m) and ends before ceil((i + 1) * n / m). Source: OpenVINO
        AdaptiveAvgPool-8.
        """

    def AdaptiveMaxPool(
        self, x: Operand, output_shape: Operand, /, *, index_element_type: DTypeLike = 'i64',
    ) -> list[Value]:
        """Compute the maximum of each window and the maximum's index; the spatial axes are divided into ``output_shape`` windows.

        The index is row-major over all spatial axes; of equal elements the first one is the maximum. Windows are defined as in
        AdaptiveAveragePool. Source: OpenVINO AdaptiveMaxPool-8.
        """

    # nn.causal_conv

    @overload
    def CausalConvWithState(
        self, input: Operand, weight: Operand, bias: Operand | None = None, past_state: Operand | None = None, /, *,
        activation: str = 'plain', outputs: Literal[1],
    ) -> Value:
        """CausalConvWithState convolves channel c of ``input`` with row c of ``weight``; no output element reads a later input.

        ``input`` is [batch, channels, length], ``weight`` [channels, 1, kernel size]. ``past_state`` [batch, channels, kernel
        size - 1], by default zeros, precedes ``input``; ``present_state`` is the ``past_state`` for the next part of the sequence.
        ``bias`` [channels] is added. ``activation`` is ``plain`` (none) or ``silu`` (y * sigmoid(y)).
        Source: ONNX CausalConvWithState 27.
        """

    @overload
    def CausalConvWithState(
        self, input: Operand, weight: Operand, bias: Operand | None = None, past_state: Operand | None = None, /, *,
        activation: str = 'plain', outputs: Literal[2] = 2,
    ) -> list[Value]:
        """CausalConvWithState convolves channel c of ``input`` with row c of ``weight``; no output element reads a later input.

        ``input`` is [batch, channels, length], ``weight`` [channels, 1, kernel size]. ``past_state`` [batch, channels, kernel
        size - 1], by default zeros, precedes ``input``; ``present_state`` is the ``past_state`` for the next part of the sequence.
        ``bias`` [channels] is added. ``activation`` is ``plain`` (none) or ``silu`` (y * sigmoid(y)).
        Source: ONNX CausalConvWithState 27.
        """

    @overload
    def CausalConvWithState(
        self, input: Operand, weight: Operand, bias: Operand | None = None, past_state: Operand | None = None, /, *,
        activation: str = 'plain', outputs: int = 2,
    ) -> Value | list[Value]:
        """CausalConvWithState convolves channel c of ``input`` with row c of ``weight``; no output element reads a later input.

        ``input`` is [batch, channels, length], ``weight`` [channels, 1, kernel size]. ``past_state`` [batch, channels, kernel
        size - 1], by default zeros, precedes ``input``; ``present_state`` is the ``past_state`` for the next part of the sequence.
        ``bias`` [channels] is added. ``activation`` is ``plain`` (none) or ``silu`` (y * sigmoid(y)).
        Source: ONNX CausalConvWithState 27.
        """

    # nn.col2im

    def Col2Im(
        self, x: Operand, image_shape: Operand, block_shape: Operand, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
    ) -> Value:
        """Add blocks of columns into an image: the transpose of im2col.

        ``x`` is [N, channels * block elements, blocks] and the result [N, channels, *image_shape]; both may lack the axis N. Blocks
        of ``block_shape``, with ``dilations`` between their elements, begin every ``strides`` elements in the image padded by
        ``pads``. Blocks, and the elements of each block, are in row-major order. Elements on the padding are dropped.
        Sources: ONNX Col2Im 18; OpenVINO Col2Im-15.
        """

    # nn.conv

    def Conv(
        self, x: Operand, w: Operand, bias: Operand | None = None, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        group: int | Value = 1, kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """Compute the cross-correlation of ``x`` with the weights ``w``, plus ``bias``.

        ``y[n, o, i] = bias[o] + sum(x[n, c, i * stride - pad + k * dilation] * w[o, c, k])`` over c and k. ``x`` is [N, C, *sizes],
        ``w`` [O, C / group, *kernel], ``bias`` [O] and the result [N, O, *outs], with outs = floor((size + pads - span) / stride) +
        1 and span = (kernel - 1) * dilation + 1. Consecutive channels form the ``group`` groups. Floats of fewer than 32 bits are
        summed in f32, and the sum is rounded once.
        Sources: ONNX Conv 1, 11, 22; OpenVINO Convolution-1, GroupConvolution-1.
        """

    def ConvTranspose(
        self, x: Operand, w: Operand, bias: Operand | None = None, output_shape: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None, output_padding: Sequence[int] | Value | None = None,
    ) -> Value:
        """Compute the transpose of Conv.

        Element i of ``x`` adds ``w[c, o, k] * x[n, c, i]`` to the output element at ``i * stride + k * dilation - pad``. ``x`` is [N,
        C, *sizes], ``w`` [C, O / group, *kernel], ``bias`` [O] and the result [N, O, *outs], with outs = (size - 1) * stride + span +
        output_padding - pads. Output elements to which no product is added equal ``bias``.

        The input ``output_shape`` sets outs instead. With ``auto_pad`` same_upper and same_lower the padding is then the surplus of
        the full output over outs, with an odd element at the end (same_upper) or at the beginning (same_lower). With explicit and
        valid the padding at the beginning is kept, and the end is cut or extended. Without ``output_shape``, same_upper and
        same_lower mean outs = size * stride.

        Raises UnsupportedError [op.unsupported] for same_upper and same_lower if outs exceeds the full output by a stride or more,
        or without ``output_shape`` at all, because the sources disagree.
        Sources: ONNX ConvTranspose 1, 11, 22, the odd element as in onnxruntime and onnx.reference; OpenVINO
        ConvolutionBackpropData-1, GroupConvolutionBackpropData-1, whose same_upper puts the odd element at the beginning.
        """

    # nn.deform_conv

    def DeformConv(
        self, x: Operand, w: Operand, offset: Operand, bias: Operand | None = None, mask: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None, offset_group: int | Value = 1,
        bilinear_interpolation_pad: bool = True,
    ) -> Value:
        """Compute a deformable convolution: kernel element k reads at ``i * stride - pad + k * dilation + offset`` for output i.

        ``offset`` [N, offset_group * kernel elements * axes, *outs] holds the displacement for each channel group, kernel element
        and axis in order. ``mask`` [N, offset_group * kernel elements, *outs] multiplies the elements that are read. Positions
        between elements are interpolated linearly.

        With ``bilinear_interpolation_pad`` zeros surround ``x``. Otherwise a position before the first element, or at least 1 after
        the last element, reads 0; a position less than 1 after the last element reads the last element.
        Sources: ONNX DeformConv 19, 22; OpenVINO DeformableConvolution-1, -8.
        """

    # nn.dropout

    @overload
    def Dropout(
        self, x: Operand, ratio: Operand | None = None, training_mode: Operand | None = None, /, *,
        seed: int | Value | None = None, mask_like: bool = False, outputs: Literal[1] = 1,
    ) -> Value:
        """Set each element of ``x`` to 0 with probability ``ratio``, and scale the others by ``1 / (1 - ratio)``.

        If ``training_mode`` is absent or false, the result is ``x``. ``ratio`` defaults to 0.5. ``mask`` is true for the elements
        that are kept; with ``mask_like`` the mask has the element type of ``x``, and 1 means true. The random numbers are numpy's
        ``RandomState(seed).uniform``, as in onnx.reference; the default seed is 0.
        Sources: ONNX Dropout 1, 6 (is_test), 7, 10 (inference), 12, 13, 22.
        """

    @overload
    def Dropout(
        self, x: Operand, ratio: Operand | None = None, training_mode: Operand | None = None, /, *,
        seed: int | Value | None = None, mask_like: bool = False, outputs: Literal[2],
    ) -> list[Value]:
        """Set each element of ``x`` to 0 with probability ``ratio``, and scale the others by ``1 / (1 - ratio)``.

        If ``training_mode`` is absent or false, the result is ``x``. ``ratio`` defaults to 0.5. ``mask`` is true for the elements
        that are kept; with ``mask_like`` the mask has the element type of ``x``, and 1 means true. The random numbers are numpy's
        ``RandomState(seed).uniform``, as in onnx.reference; the default seed is 0.
        Sources: ONNX Dropout 1, 6 (is_test), 7, 10 (inference), 12, 13, 22.
        """

    @overload
    def Dropout(
        self, x: Operand, ratio: Operand | None = None, training_mode: Operand | None = None, /, *,
        seed: int | Value | None = None, mask_like: bool = False, outputs: int,
    ) -> Value | list[Value]:
        """Set each element of ``x`` to 0 with probability ``ratio``, and scale the others by ``1 / (1 - ratio)``.

        If ``training_mode`` is absent or false, the result is ``x``. ``ratio`` defaults to 0.5. ``mask`` is true for the elements
        that are kept; with ``mask_like`` the mask has the element type of ``x``, and 1 means true. The random numbers are numpy's
        ``RandomState(seed).uniform``, as in onnx.reference; the default seed is 0.
        Sources: ONNX Dropout 1, 6 (is_test), 7, 10 (inference), 12, 13, 22.
        """

    # nn.grid_sample

    def AffineGrid(
        self, theta: Operand, size: Operand, /, *, align_corners: bool = False,
    ) -> Value:
        """Compute a grid for GridSample, [batch, *outs, axes], from affine matrices ``theta`` and an image's size.

        ``theta`` is [batch, axes, axes + 1], and ``size`` is [batch, channels, *outs]. Positions of elements along each axis are
        evenly spaced, where -1 and 1 are the outer edges of the first and the last element, or with ``align_corners`` the centers of
        these elements. A matrix multiplies the vector [position along the last axis, ..., position along the first axis, 1].
        Source: ONNX AffineGrid 20.
        """

    def GridSample(
        self, x: Operand, grid: Operand, /, *, align_corners: bool = False, mode: str = 'linear', padding_mode: str = 'zeros',
    ) -> Value:
        """Sample ``x`` [batch, channels, *sizes] at positions ``grid`` [batch, *outs, axes]; the result is [batch, channels, *outs].

        A position has one number per spatial axis, the last axis first. The numbers -1 and 1 are the outer edges of the first and
        the last element, or with ``align_corners`` the centers of these elements. ``nearest`` takes the nearest element, ties to
        even; ``linear`` interpolates between two elements per axis, ``cubic`` between four (Keys, a = -0.75).

        With ``padding_mode`` ``zeros`` elements outside ``x`` are 0, and with ``border`` they equal the edge element.
        ``reflection`` mirrors positions at the edges, or with ``align_corners`` at the centers of the outermost elements.
        Sources: ONNX GridSample 16, 20, 22; OpenVINO GridSample-9.
        """

    # nn.group_conv

    def GroupConv(
        self, x: Operand, w: Operand, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        group: int | Value = 1, kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """Compute Conv with weights [G, O / G, C / G, *kernel] for G groups. Source: OpenVINO GroupConvolution-1."""

    def GroupConvTranspose(
        self, x: Operand, w: Operand, output_shape: Operand | None = None, /, *, strides: Sequence[int] | Value | None = None,
        pads: Sequence[int] | Value | None = None, dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        group: int | Value = 1, kernel_shape: Sequence[int] | Value | None = None,
        output_padding: Sequence[int] | Value | None = None,
    ) -> Value:
        """Compute ConvTranspose with weights [G, C / G, O / G, *kernel]. Source: OpenVINO GroupConvolutionBackpropData-1."""

    # nn.lrn

    def LRN(
        self, x: Operand, /, *, size: int | Value, alpha: float = 9.999999747378752e-05, beta: float = 0.75, bias: float = 1.0,
        axes: Sequence[int] | Value = (1,),
    ) -> Value:
        """Compute local response normalization, ``x / (bias + alpha / size ** n * sum(x ** 2)) ** beta``.

        The sum is over a region of ``size`` elements along each of the n ``axes``, from floor((size - 1) / 2) before to ceil((size
        - 1) / 2) after the element. Sources: ONNX LRN 1, 13 (over the channels); OpenVINO LRN-1 (odd sizes only: for an even size
        OpenVINO's text and implementation differ).
        """

    def LpNormalization(
        self, x: Operand, /, *, axis: int | Value = -1, p: int | Value = 2,
    ) -> Value:
        """Divide ``x`` by its ``p``-norm (p is 1 or 2) over ``axis``; 0 where the norm is 0. Source: ONNX LpNormalization 1, 22."""

    def NormalizeL2(
        self, x: Operand, axes: Operand, /, *, eps: float, eps_mode: str = 'add',
    ) -> Value:
        """Compute ``x / sqrt(s + eps)``, where s is the sum of squares over ``axes`` (empty: the square of the element).

        With the ``eps_mode`` ``max`` the root is of the maximum of s and eps instead. Source: OpenVINO NormalizeL2-1.
        """

    # nn.normalization

    @overload
    def BatchNormalization(
        self, x: Operand, scale: Operand, bias: Operand, input_mean: Operand, input_var: Operand, /, *,
        epsilon: float = 9.999999747378752e-06, momentum: float = 0.8999999761581421, training_mode: bool = False,
        spatial: bool = True, outputs: Literal[1] = 1,
    ) -> Value:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` per channel (axis 1; a vector is one channel).

        With ``training_mode`` the mean and population variance of ``x`` over all axes but the channels are used. ``running_mean`` is
        then ``momentum * input_mean + (1 - momentum) * mean``, and ``running_var`` the same average of ``input_var`` and the
        variance. Without ``spatial`` the parameters have the shape of ``x`` without the first axis.
        Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO BatchNormInference-1, -5.
        """

    @overload
    def BatchNormalization(
        self, x: Operand, scale: Operand, bias: Operand, input_mean: Operand, input_var: Operand, /, *,
        epsilon: float = 9.999999747378752e-06, momentum: float = 0.8999999761581421, training_mode: bool = False,
        spatial: bool = True, outputs: Literal[2, 3],
    ) -> list[Value]:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` per channel (axis 1; a vector is one channel).

        With ``training_mode`` the mean and population variance of ``x`` over all axes but the channels are used. ``running_mean`` is
        then ``momentum * input_mean + (1 - momentum) * mean``, and ``running_var`` the same average of ``input_var`` and the
        variance. Without ``spatial`` the parameters have the shape of ``x`` without the first axis.
        Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO BatchNormInference-1, -5.
        """

    @overload
    def BatchNormalization(
        self, x: Operand, scale: Operand, bias: Operand, input_mean: Operand, input_var: Operand, /, *,
        epsilon: float = 9.999999747378752e-06, momentum: float = 0.8999999761581421, training_mode: bool = False,
        spatial: bool = True, outputs: int,
    ) -> Value | list[Value]:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` per channel (axis 1; a vector is one channel).

        With ``training_mode`` the mean and population variance of ``x`` over all axes but the channels are used. ``running_mean`` is
        then ``momentum * input_mean + (1 - momentum) * mean``, and ``running_var`` the same average of ``input_var`` and the
        variance. Without ``spatial`` the parameters have the shape of ``x`` without the first axis.
        Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO BatchNormInference-1, -5.
        """

    def GroupNormalization(
        self, x: Operand, scale: Operand, bias: Operand, /, *, num_groups: int | Value = 1,
        epsilon: float = 9.999999747378752e-06, per_group: bool = False, stash_type: DTypeLike | None = None,
    ) -> Value:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics of each of ``num_groups`` channel groups.

        ``x`` is [N, C, *sizes]; ``scale`` and ``bias`` are [C], or with ``per_group`` [num_groups]. The statistics are computed in
        ``stash_type``, by default in the type of ``x``, at least f32. Sources: ONNX GroupNormalization 18 (per group), 21; OpenVINO
        GroupNormalization-12.
        """

    def InstanceNormalization(
        self, x: Operand, scale: Operand, bias: Operand, /, *, epsilon: float = 9.999999747378752e-06,
    ) -> Value:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics over the spatial axes.

        ``x`` is [N, C, *sizes], ``scale`` and ``bias`` [C]. Source: ONNX InstanceNormalization 1, 6, 22.
        """

    @overload
    def LayerNormalization(
        self, x: Operand, scale: Operand, bias: Operand | None = None, /, *, axis: int | Value = -1,
        epsilon: float = 9.999999747378752e-06, stash_type: DTypeLike = 'f32', outputs: Literal[1] = 1,
    ) -> Value:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics over the axes from ``axis`` on.

        The outputs ``mean`` and ``inv_std_dev`` = 1 / sqrt(variance + epsilon) have the type ``stash_type``; the axes from ``axis``
        on have size 1. Statistics are computed in the widest of f32, ``stash_type`` and the type of ``x``. ``scale`` and ``bias``
        broadcast to ``x``. Source: ONNX LayerNormalization 17.
        """

    @overload
    def LayerNormalization(
        self, x: Operand, scale: Operand, bias: Operand | None = None, /, *, axis: int | Value = -1,
        epsilon: float = 9.999999747378752e-06, stash_type: DTypeLike = 'f32', outputs: Literal[2, 3],
    ) -> list[Value]:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics over the axes from ``axis`` on.

        The outputs ``mean`` and ``inv_std_dev`` = 1 / sqrt(variance + epsilon) have the type ``stash_type``; the axes from ``axis``
        on have size 1. Statistics are computed in the widest of f32, ``stash_type`` and the type of ``x``. ``scale`` and ``bias``
        broadcast to ``x``. Source: ONNX LayerNormalization 17.
        """

    @overload
    def LayerNormalization(
        self, x: Operand, scale: Operand, bias: Operand | None = None, /, *, axis: int | Value = -1,
        epsilon: float = 9.999999747378752e-06, stash_type: DTypeLike = 'f32', outputs: int,
    ) -> Value | list[Value]:
        """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics over the axes from ``axis`` on.

        The outputs ``mean`` and ``inv_std_dev`` = 1 / sqrt(variance + epsilon) have the type ``stash_type``; the axes from ``axis``
        on have size 1. Statistics are computed in the widest of f32, ``stash_type`` and the type of ``x``. ``scale`` and ``bias``
        broadcast to ``x``. Source: ONNX LayerNormalization 17.
        """

    def MeanVarianceNormalization(
        self, x: Operand, axes: Operand, /, *, normalize_variance: bool = True, eps: float = 1e-09,
        eps_mode: str = 'inside_sqrt',
    ) -> Value:
        """Subtract the mean over ``axes``, and with ``normalize_variance`` divide by the standard deviation.

        ``eps_mode``: ``inside_sqrt`` divides by sqrt(variance + eps), ``outside_sqrt`` by sqrt(variance) + eps. Sources: ONNX
        MeanVarianceNormalization 9, 13 (epsilon 1e-9, as in its function body); OpenVINO MVN-1, -6.
        """

    def RMSNormalization(
        self, x: Operand, scale: Operand, /, *, axis: int | Value = -1, epsilon: float = 9.999999747378752e-06,
        stash_type: DTypeLike = 'f32',
    ) -> Value:
        """Compute ``x / sqrt(mean(x ** 2) + epsilon) * scale``, with the mean over the axes from ``axis`` on, in ``stash_type``.

        ``scale`` broadcasts to ``x``, and the result has the element type of ``scale``. Source: ONNX RMSNormalization 23.
        """

    # nn.pool

    def AveragePool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', divisor: str = 'inside',
    ) -> Value:
        """Compute the average of each window of ``x`` [N, C, *sizes]: the sum, with padding as 0, over a number of elements.

        ``divisor`` selects that number: the window's elements in the input (``inside``), in the padded input (``padded``, ONNX and
        torch), or all elements of the window (``window``, OpenVINO; without padding it equals ``inside``). A window without elements
        gives 0. Floats of fewer than 32 bits are summed in f32; integers are rounded to nearest, ties to even.
        Sources: ONNX AveragePool 1 to 22; OpenVINO AvgPool-1, -14, -16.
        """

    def GlobalAveragePool(
        self, x: Operand, /,
    ) -> Value:
        """Compute the mean over all spatial axes. Source: ONNX GlobalAveragePool 1, 22."""

    def GlobalLpPool(
        self, x: Operand, /, *, p: int | Value = 2,
    ) -> Value:
        """Compute ``sum(abs(x) ** p) ** (1 / p)`` over all spatial axes. Source: ONNX GlobalLpPool 2, 22."""

    def GlobalMaxPool(
        self, x: Operand, /,
    ) -> Value:
        """Compute the maximum over all spatial axes; no elements give -inf, as in ReduceMax. Source: ONNX GlobalMaxPool 1, 22."""

    def LpPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', p: int | Value = 2,
    ) -> Value:
        """Compute ``sum(abs(x) ** p) ** (1 / p)`` over each window of ``x`` [N, C, *sizes], padding counting as 0.

        Source: ONNX LpPool 2 to 22.
        """

    @overload
    def MaxPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', storage_order: int | Value = 0, index_element_type: DTypeLike = 'i64',
        axis: int | Value = 0, outputs: Literal[1] = 1,
    ) -> Value:
        """Compute the maximum of each window of ``x`` [N, C, *sizes], and the index of the maximum's first occurrence.

        Padding is never the maximum. Indices are row-major over the axes of ``x`` from ``axis`` on; with ``storage_order`` 1 the
        spatial axes are column-major. Sources: ONNX MaxPool 1 to 22; OpenVINO MaxPool-1, -8, -14.
        """

    @overload
    def MaxPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', storage_order: int | Value = 0, index_element_type: DTypeLike = 'i64',
        axis: int | Value = 0, outputs: Literal[2],
    ) -> list[Value]:
        """Compute the maximum of each window of ``x`` [N, C, *sizes], and the index of the maximum's first occurrence.

        Padding is never the maximum. Indices are row-major over the axes of ``x`` from ``axis`` on; with ``storage_order`` 1 the
        spatial axes are column-major. Sources: ONNX MaxPool 1 to 22; OpenVINO MaxPool-1, -8, -14.
        """

    @overload
    def MaxPool(
        self, x: Operand, /, *, strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
        rounding_type: str = 'floor', storage_order: int | Value = 0, index_element_type: DTypeLike = 'i64',
        axis: int | Value = 0, outputs: int,
    ) -> Value | list[Value]:
        """Compute the maximum of each window of ``x`` [N, C, *sizes], and the index of the maximum's first occurrence.

        Padding is never the maximum. Indices are row-major over the axes of ``x`` from ``axis`` on; with ``storage_order`` 1 the
        spatial axes are column-major. Sources: ONNX MaxPool 1 to 22; OpenVINO MaxPool-1, -8, -14.
        """

    def MaxUnpool(
        self, x: Operand, indices: Operand, output_shape: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', kernel_shape: Sequence[int] | Value = (),
    ) -> Value:
        """Scatter ``x`` to the positions ``indices`` that MaxPool returns; all other elements are 0.

        The result has ``(size - 1) * stride + kernel - pads`` elements along a spatial axis, and ``indices`` are row-major over all
        axes of the result. With ``output_shape`` zeros are appended to each axis up to that shape. Source: ONNX MaxUnpool 9 to 22
        and its reference evaluator (for ``output_shape``).
        """

    # nn.resize

    def Resize(
        self, x: Operand, sizes: Operand | None = None, scales: Operand | None = None, roi: Operand | None = None, /, *,
        mode: str = 'nearest', coordinate_transformation_mode: str = 'half_pixel', nearest_mode: str = 'round_prefer_floor',
        cubic_coeff_a: float = -0.75, antialias: bool = False, narrow: bool = False, exclude_outside: bool = False,
        extrapolation_value: float = 0.0, axes: Sequence[int] | Value | None = None, keep_aspect_ratio_policy: str = 'stretch',
        convention: str = 'onnx',
    ) -> Value:
        """Resize ``x`` to ``sizes`` elements along ``axes`` (default: all), or with ``scales`` to floor(size * scale).

        Either ``sizes`` or ``scales`` is given; empty ``sizes``, ``scales`` and ``roi`` count as absent. An axis is resized from n to
        m elements with the scale s, which is m / n if ``sizes`` is given. ``coordinate_transformation_mode`` defines the position in
        ``x`` of output element i:

        - ``half_pixel``: (i + 0.5) / s - 0.5
        - ``pytorch_half_pixel``: as ``half_pixel``, but 0 if m is 1
        - ``half_pixel_symmetric``: as ``half_pixel``, plus n / 2 * (1 - m / (n * s))
        - ``asymmetric``: i / s
        - ``tf_half_pixel_for_nn``: (i + 0.5) / s
        - ``align_corners``: i * (n - 1) / (m - 1)
        - ``align_corners_scaled``: i * (n - 1) / (n * s - 1)
        - ``tf_crop_and_resize``: as ``align_corners``, between the fractions ``roi`` of the axis (the begins of all axes, then the
          ends); elements at positions outside ``x`` are ``extrapolation_value``

        ``mode`` ``nearest`` rounds positions by ``nearest_mode`` (``simple``: ceil if s < 1, else floor) and clamps them to the axis.
        ``linear`` and ``cubic`` (Keys, a = ``cubic_coeff_a``) interpolate, and repeat the border elements outside ``x``. With
        ``exclude_outside``, elements outside ``x`` have no weight, and the other weights are rescaled. ``antialias`` widens the
        weights by 1 / s if s < 1. ``narrow`` narrows the weights by s on an axis of s > 1 if another axis has s < 1; output elements
        that no weight reaches are 0.

        With ``keep_aspect_ratio_policy`` not_larger or not_smaller all axes share the least or greatest ratio, and sizes are
        rounded, ties up. Positions are computed in f32. ``linear`` and ``cubic`` compute integers in f32, and round the result once:
        to nearest, ties to even, saturated.

        The ``convention`` ``openvino`` computes m as floor(n * (s + 1e-6)) from ``scales``, copies an axis that keeps its length, and
        fixes the rounding of integers, which ONNX leaves open.
        Sources: ONNX Resize 10 to 19, Upsample 1 to 9, and onnx.reference; OpenVINO Interpolate-1, -4, -11.
        """

    # quantization.gather_block_quantized

    def GatherBlockQuantized(
        self, data: Operand, indices: Operand, scales: Operand, zero_points: Operand | None = None, /, *,
        gather_axis: int | Value = 0, quantize_axis: int | Value = 1, block_size: int | Value = 128, bits: int | Value = 4,
    ) -> Value:
        """Gather slices of a quantized table: Gather of ``(data - zero_points) * scales`` at ``indices`` along ``gather_axis``.

        ``data`` is u4, i4, f8, f4, or u8. A byte of u8 packs 8 / ``bits`` codes of the last axis, the first in its lowest bits; the
        table is then that much longer. ``scales`` and ``zero_points`` have the sizes of the table, but along ``quantize_axis`` one
        element for each block of ``block_size``. Zero points of u8 are packed like the codes. The default zero point is 0, for u8
        2^(bits - 1). Tables of f8 and f4 have none, their ``block_size`` may be 0 (the whole axis), and a size of their scales 1.

        The output shape is table.shape[:gather_axis] + indices.shape + table.shape[gather_axis + 1:]. A negative index counts from
        the end, an index outside the axis gives zeros. Products are computed in f32 and rounded once to the type of ``scales``.
        Errors: [quantize.type] for other types of ``data``; [attribute.range] for other blocks or bits; [attribute.conflict] for zero
        points of floats, and for u8 that is not gathered along axis 0 or has blocks along another axis than the last; [shape.rank],
        [shape.disagree].
        Source: com.microsoft GatherBlockQuantized of onnxruntime 1.32.

        >>> import dovetail, numpy as np
        >>> with dovetail.Builder() as b:
        ...     y = b.GatherBlockQuantized(np.full((2, 8), 0x98, np.uint8), b.input("i", "i64", (1,)), np.ones((2, 1), np.float32),
        ...         block_size=16)
        ...     y = b.output("y", y)
        >>> dovetail.run(b.model, {"i": np.array([1])})["y"][0, :4]
        array([0., 1., 0., 1.], dtype=float32)
        """

    # quantization.integer_matmul_conv

    def ConvInteger(
        self, x: Operand, w: Operand, x_zero_point: Operand | None = None, w_zero_point: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """Convolve integers: Conv of ``x - x_zero_point`` with ``w - w_zero_point``, accumulated in wrapping i32.

        Padding elements equal the zero point of ``x``. The zero point of ``w`` is a scalar or has one number per output channel.
        Source: ONNX ConvInteger 10.
        """

    def DynamicQuantizeMatMul(
        self, x: Operand, y: Operand, y_scale: Operand, y_zero_point: Operand | None = None, bias: Operand | None = None, /,
    ) -> Value:
        """Quantize ``x`` by DynamicQuantizeLinear, and apply MatMulIntegerToFloat. Source: com.microsoft DynamicQuantizeMatMul."""

    def MatMulInteger(
        self, x: Operand, y: Operand, x_zero_point: Operand | None = None, y_zero_point: Operand | None = None, /,
    ) -> Value:
        """Multiply integer matrices: ``(x - x_zero_point) @ (y - y_zero_point)`` as MatMul, accumulated in wrapping i32.

        A zero point is a scalar, a vector of one number per row of ``x`` or column of ``y``, or a column or a row for each matrix.
        Source: ONNX MatMulInteger 10.
        """

    def MatMulIntegerToFloat(
        self, x: Operand, y: Operand, x_scale: Operand, y_scale: Operand, x_zero_point: Operand | None = None,
        y_zero_point: Operand | None = None, bias: Operand | None = None, /,
    ) -> Value:
        """Multiply integer matrices and scale the product to floats: MatMulInteger * ``x_scale * y_scale`` + ``bias``, in f32.

        Scale and zero point of ``x`` are scalars; scale and zero point of ``y`` are scalars or have one number per column.
        Source: com.microsoft MatMulIntegerToFloat.
        """

    def QGemm(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, y: Operand, y_scale: Operand, y_zero_point: Operand,
        bias: Operand | None = None, z_scale: Operand | None = None, z_zero_point: Operand | None = None, /, *,
        alpha: float = 1.0, trans_a: bool = False, trans_b: bool = False,
    ) -> Value:
        """Multiply quantized matrices: ``(x - x_zero_point) @ (y - y_zero_point) + bias`` in i32, times the scales in f32.

        The factor is ``alpha * x_scale * y_scale``. With ``z_scale`` the result is divided by ``z_scale``, rounded, increased by
        ``z_zero_point`` and saturated; without ``z_scale`` the result is f32. ``trans_a`` and ``trans_b`` transpose ``x`` and ``y``
        first. Scale and zero point of ``y`` are scalars or have one number per column of the product. Source: com.microsoft QGemm,
        as in onnxruntime.
        """

    def QLinearConv(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, w: Operand, w_scale: Operand, w_zero_point: Operand,
        y_scale: Operand, y_zero_point: Operand, bias: Operand | None = None, /, *,
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None,
        dilations: Sequence[int] | Value | None = None, auto_pad: str = 'explicit', group: int | Value = 1,
        kernel_shape: Sequence[int] | Value | None = None,
    ) -> Value:
        """Convolve quantized tensors: (ConvInteger + ``bias``) * ``x_scale * w_scale / y_scale``, rounded, plus ``y_zero_point``.

        The factor is f32, and the result saturates. Scale and zero point of ``w`` are scalars or have one number per output channel.
        Source: ONNX QLinearConv 10.
        """

    def QLinearMatMul(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, y: Operand, y_scale: Operand, y_zero_point: Operand,
        z_scale: Operand, z_zero_point: Operand, /,
    ) -> Value:
        """Multiply quantized matrices: MatMulInteger * ``x_scale * y_scale / z_scale``, rounded, plus ``z_zero_point``.

        The factor is f32, and the result saturates. A scale or zero point of ``x`` is a scalar or has one number per row; a scale or
        zero point of ``y`` is a scalar or has one number per column. Source: ONNX QLinearMatMul 10, 21; products of f8 are refused,
        because ONNX does not specify their accumulation.
        """

    # quantization.matmul_nbits

    def MatMulNBits(
        self, x: Operand, weights: Operand, scales: Operand, zero_points: Operand | None = None, g_idx: Operand | None = None,
        bias: Operand | None = None, /, *, k: int | Value, n: int | Value, bits: int | Value = 4, block_size: int | Value = 32,
        accuracy_level: int | Value = 0, prepacked: bool = False,
    ) -> Value:
        """Multiply ``x`` by quantized weights: ``x @ w + bias``, with ``(code - zero_point) * scale`` as the elements of w [k, n].

        ``weights`` [n, blocks, block_size * bits / 8] packs codes of ``bits`` bits; the first code of a byte is in its lowest bits.
        ``scales`` [n, blocks] has one number for each column of w and block of codes. ``zero_points`` has one number for each scale:
        floats, or integers that are packed like the codes with each column padded to whole bytes. The default zero point is 2^(bits -
        1). ``g_idx`` (deprecated) holds the block of each of the k positions, in any order; entries for the padding of the last block
        may follow and have no meaning. An entry outside [0, blocks - 1] is an error (``index.range``). Floats of fewer than 32 bits
        are computed in f32. ``accuracy_level`` permits a runtime to round ``x`` first: at 4 the native engine rounds each block of a
        row to 8 bits (``precision`` of :func:`dovetail.compile`), the interpreter never does.
        Source: com.microsoft MatMulNBits.
        """

    # quantization.qlinear

    def QLinearAdd(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y: Operand, y_scale: Operand,
        y_zero_point: Operand | None, z_scale: Operand, z_zero_point: Operand | None = None, /,
    ) -> Value:
        """Add quantized tensors: dequantize the operands, add them, and quantize the sum.

        The result is ``(x_scale * (x - x_zero_point) + y_scale * (y - y_zero_point)) / z_scale + z_zero_point``, rounded and
        saturated. The sum is computed in f32 as ``x * p + (y * q + r)``: p is x_scale / z_scale, q is y_scale / z_scale, and r is the
        sum of the terms with zero points. Each multiply-add is rounded once.
        Source: com.microsoft QLinearAdd, as onnxruntime computes it with fused multiply-add.
        """

    def QLinearAveragePool(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /, *, kernel_shape: Sequence[int] | Value = (),
        strides: Sequence[int] | Value | None = None, pads: Sequence[int] | Value | None = None, auto_pad: str = 'explicit',
        rounding_type: str = 'floor', divisor: str = 'inside', channels_last: bool = False,
    ) -> Value:
        """Apply AveragePool to a quantized tensor: dequantize, average in f32, and quantize.

        The mean is divided by ``y_scale``, ``y_zero_point`` is added, and the sum is rounded and saturated.
        Source: com.microsoft QLinearAveragePool, as in onnxruntime, which rounds after adding the zero point.
        """

    def QLinearConcat(
        self, y_scale: Operand, y_zero_point: Operand, /, *inputs: Operand | None, axis: int | Value,
    ) -> Value:
        """Concatenate quantized tensors along ``axis``, requantized to one scale and zero point.

        ``inputs`` are triples of a tensor, its scale and its zero point. Source: com.microsoft QLinearConcat.
        """

    def QLinearGlobalAveragePool(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand, y_scale: Operand, y_zero_point: Operand, /, *,
        channels_last: bool = False,
    ) -> Value:
        """Average a quantized tensor over all spatial axes; the channels are axis 1, or with ``channels_last`` the last axis.

        The result is the integer sum times ``x_scale / (y_scale * count)`` in f32, rounded, plus ``y_zero_point``. Source:
        com.microsoft QLinearGlobalAveragePool, as in onnxruntime.
        """

    def QLinearLeakyRelu(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /, *, alpha: float = 0.009999999776482582,
    ) -> Value:
        """Apply LeakyRelu to a quantized tensor. Source: com.microsoft QLinearLeakyRelu."""

    def QLinearMul(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y: Operand, y_scale: Operand,
        y_zero_point: Operand | None, z_scale: Operand, z_zero_point: Operand | None = None, /,
    ) -> Value:
        """Multiply quantized tensors: subtract the zero points, multiply, and requantize.

        The result is ``(x - x_zero_point) * (y - y_zero_point) * (x_scale * y_scale / z_scale) + z_zero_point``, rounded and
        saturated. Source: com.microsoft QLinearMul, as in onnxruntime, which rounds after adding the zero point.
        """

    def QLinearSigmoid(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /,
    ) -> Value:
        """Apply Sigmoid to a quantized tensor. Source: com.microsoft QLinearSigmoid."""

    def QLinearSoftmax(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None, y_scale: Operand,
        y_zero_point: Operand | None = None, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """Apply Softmax to a quantized tensor along ``axis``; with ``coerce_to_2d`` over ``axis`` and all later axes together.

        Source: com.microsoft QLinearSoftmax; unlike dovetail, onnxruntime rounds 1 / ``y_scale`` down to an integer.
        """

    # quantization.quantize_linear

    def DequantizeLinear(
        self, x: Operand, x_scale: Operand, x_zero_point: Operand | None = None, /, *, axis: int | Value | None = None,
        block_size: int | Value = 0, output_dtype: DTypeLike | None = None,
    ) -> Value:
        """Dequantize ``x`` to ``(x - x_zero_point) * x_scale``.

        The result has the type ``output_dtype``, by default the type of ``x_scale``. The parameters broadcast to ``x`` as in
        QuantizeLinear. The difference is exact. The product is computed in f64 if the scale or the result is f64, otherwise in f32,
        and rounded once. Sources: ONNX DequantizeLinear 10 to 28; com.microsoft DequantizeLinear.
        """

    def DynamicQuantizeLinear(
        self, x: Operand, /,
    ) -> list[Value]:
        """Quantize ``x`` to u8 over the range of its elements, extended to contain 0; return codes, scale and zero point.

        ``y_scale`` is (max - min) / 255, or 1 if max equals min. ``y_zero_point`` is round(saturate(-min / y_scale)), and ``y`` is
        computed as by QuantizeLinear. Source: ONNX DynamicQuantizeLinear 11 (max equal to min as in onnxruntime).
        """

    def FakeQuantize(
        self, data: Operand, input_low: Operand, input_high: Operand, output_low: Operand, output_high: Operand, /, *,
        levels: int | Value, broadcast: bool = True,
    ) -> Value:
        """Quantize ``data`` to ``levels`` steps of the input range, and map the steps to the output range.

        The result is ``round((data - input_low) / (input_high - input_low) * (levels - 1)) / (levels - 1) * (output_high -
        output_low) + output_low``, rounding half to even. It is ``output_low`` for data <= min(input_low, input_high), and
        ``output_high`` for data > max(input_low, input_high). The limits broadcast to ``data``. Floats of fewer than 32 bits are
        computed in f32. Source: OpenVINO FakeQuantize-1.
        """

    def QuantizeLinear(
        self, x: Operand, y_scale: Operand, y_zero_point: Operand | None = None, /, *, axis: int | Value | None = None,
        block_size: int | Value = 0, output_dtype: DTypeLike | None = None, saturate: bool = True,
        precision: DTypeLike | None = None,
    ) -> Value:
        """Quantize ``x`` to ``saturate(round(x / y_scale) + y_zero_point)``, rounding half to even.

        The result has the type of ``y_zero_point``; without that input it has ``output_dtype``, by default u8. The quotient is
        computed in f64 if an operand is f64, otherwise in f32, and rounded to ``precision`` if that is narrower. For a float type the
        result is ``x / y_scale + y_zero_point``, cast as by Cast with ``saturate``. ``y_scale`` is a scalar, a vector along ``axis``,
        or with ``block_size`` a tensor with one number for each block of ``axis``. Sources: ONNX QuantizeLinear 10, 13, 19, 21
        (quotients of f16 are rounded as in onnxruntime) and 23 to 28 (quotients are rounded to the type of the scale);
        com.microsoft QuantizeLinear. Raises UnsupportedError [op.unsupported] for a scale of integers.
        """

    # random

    def Bernoulli(
        self, x: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0, dtype: DTypeLike | None = None,
    ) -> Value:
        """Draw 0 or 1 for each element of ``x``, which is the probability of 1.

        The element type is ``dtype``, by default that of ``x``. Source: ONNX Bernoulli 15, 22.
        """

    def Multinomial(
        self, x: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0, sample_size: int | Value = 1,
        dtype: DTypeLike = 'i32',
    ) -> Value:
        """Draw ``sample_size`` class indices for each row of ``x`` [rows, classes] with probabilities softmax(x).

        The result is [rows, sample_size]. Source: ONNX Multinomial 7, 22.
        """

    def RandomNormal(
        self, shape: Operand, mean: Operand, scale: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """Generate normally distributed numbers with ``mean`` and standard deviation ``scale``, in a tensor of shape ``shape``.

        Source: ONNX RandomNormal 1, 22.
        """

    def RandomNormalLike(
        self, x: Operand, first: Operand, last: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """Generate numbers with the shape of ``x``, distributed as in RandomNormal. Source: ONNX RandomNormalLike 1, 22."""

    def RandomUniform(
        self, shape: Operand, low: Operand, high: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """Generate numbers, uniformly distributed in [``low``, ``high``), in a tensor of shape ``shape``.

        A number is ``low + u * (high - low)`` with u in [0, 1); integers are rounded down. Sources: ONNX RandomUniform 1, 22;
        OpenVINO RandomUniform-8.
        """

    def RandomUniformLike(
        self, x: Operand, first: Operand, last: Operand, /, *, seed: float = 0.0, op_seed: int | Value = 0,
    ) -> Value:
        """Generate numbers with the shape of ``x``, distributed as in RandomUniform. Source: ONNX RandomUniformLike 1, 22."""

    # recurrent.cells

    def GRUCell(
        self, x: Operand, initial_h: Operand, w: Operand, r: Operand, b: Operand | None = None, /, *,
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
        activation_beta: Sequence[float] = (), clip: float | None = None, linear_before_reset: bool = False,
    ) -> Value:
        """GRUCell computes one time step of GRU. Source: OpenVINO GRUCell-3."""

    def LSTMCell(
        self, x: Operand, initial_h: Operand, initial_c: Operand, w: Operand, r: Operand, b: Operand | None = None, /, *,
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
        activation_beta: Sequence[float] = (), clip: float | None = None, input_forget: bool = False,
        weights_format: str = 'fico',
    ) -> list[Value]:
        """LSTMCell computes one time step of LSTM.

        Sources: OpenVINO LSTMCell-1 (whose files have ``weights_format`` and ``input_forget``), -4.
        """

    def RNNCell(
        self, x: Operand, initial_h: Operand, w: Operand, r: Operand, b: Operand | None = None, /, *,
        hidden_size: int | Value | None = None, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
        activation_beta: Sequence[float] = (), clip: float | None = None,
    ) -> Value:
        """RNNCell computes one time step of RNN. Source: OpenVINO RNNCell-1."""

    # recurrent.dynamic_quantize_lstm

    @overload
    def DynamicQuantizeLSTM(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None, sequence_lens: Operand | None, initial_h: Operand | None,
        initial_c: Operand | None, p: Operand | None, w_scale: Operand, w_zero_point: Operand, r_scale: Operand,
        r_zero_point: Operand, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False, input_forget: bool = False,
        weights_format: str = 'iofc', outputs: Literal[1],
    ) -> Value:
        """DynamicQuantizeLSTM computes LSTM with the matrix products of DynamicQuantizeMatMul.

        ``x`` is quantized once for all time steps, the state h at each time step. ``w`` [directions, input, 4 * hidden] and ``r``
        [directions, hidden, 4 * hidden] are quantized; scales and zero points have one number per direction, or one per column of a
        direction's matrix. ``sequence_lens`` is refused, because values after the end of a row would change the quantization of all
        rows. Source: com.microsoft DynamicQuantizeLSTM, as in onnxruntime.
        """

    @overload
    def DynamicQuantizeLSTM(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None, sequence_lens: Operand | None, initial_h: Operand | None,
        initial_c: Operand | None, p: Operand | None, w_scale: Operand, w_zero_point: Operand, r_scale: Operand,
        r_zero_point: Operand, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False, input_forget: bool = False,
        weights_format: str = 'iofc', outputs: Literal[2, 3] = 3,
    ) -> list[Value]:
        """DynamicQuantizeLSTM computes LSTM with the matrix products of DynamicQuantizeMatMul.

        ``x`` is quantized once for all time steps, the state h at each time step. ``w`` [directions, input, 4 * hidden] and ``r``
        [directions, hidden, 4 * hidden] are quantized; scales and zero points have one number per direction, or one per column of a
        direction's matrix. ``sequence_lens`` is refused, because values after the end of a row would change the quantization of all
        rows. Source: com.microsoft DynamicQuantizeLSTM, as in onnxruntime.
        """

    @overload
    def DynamicQuantizeLSTM(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None, sequence_lens: Operand | None, initial_h: Operand | None,
        initial_c: Operand | None, p: Operand | None, w_scale: Operand, w_zero_point: Operand, r_scale: Operand,
        r_zero_point: Operand, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False, input_forget: bool = False,
        weights_format: str = 'iofc', outputs: int = 3,
    ) -> Value | list[Value]:
        """DynamicQuantizeLSTM computes LSTM with the matrix products of DynamicQuantizeMatMul.

        ``x`` is quantized once for all time steps, the state h at each time step. ``w`` [directions, input, 4 * hidden] and ``r``
        [directions, hidden, 4 * hidden] are quantized; scales and zero points have one number per direction, or one per column of a
        direction's matrix. ``sequence_lens`` is refused, because values after the end of a row would change the quantization of all
        rows. Source: com.microsoft DynamicQuantizeLSTM, as in onnxruntime.
        """

    # recurrent.layers

    @overload
    def GRU(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False,
        linear_before_reset: bool = False, outputs: Literal[1],
    ) -> Value:
        """GRU computes a layer of gated recurrent units; its gates are in the order z, r, h::

            z = f(x @ wz.T + h @ rz.T + bz)
            r = f(x @ wr.T + h @ rr.T + br)
            n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
            n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
            h = (1 - z) * n + z * h

        ``y`` holds h of each time step, ``y_h`` the last h. With ``linear_before_reset`` a summed bias has four parts: bz, br, the
        bias of wh and the bias of rh. Defaults: f = sigmoid, g = tanh.
        Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
        """

    @overload
    def GRU(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False,
        linear_before_reset: bool = False, outputs: Literal[2] = 2,
    ) -> list[Value]:
        """GRU computes a layer of gated recurrent units; its gates are in the order z, r, h::

            z = f(x @ wz.T + h @ rz.T + bz)
            r = f(x @ wr.T + h @ rr.T + br)
            n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
            n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
            h = (1 - z) * n + z * h

        ``y`` holds h of each time step, ``y_h`` the last h. With ``linear_before_reset`` a summed bias has four parts: bz, br, the
        bias of wh and the bias of rh. Defaults: f = sigmoid, g = tanh.
        Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
        """

    @overload
    def GRU(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False,
        linear_before_reset: bool = False, outputs: int = 2,
    ) -> Value | list[Value]:
        """GRU computes a layer of gated recurrent units; its gates are in the order z, r, h::

            z = f(x @ wz.T + h @ rz.T + bz)
            r = f(x @ wr.T + h @ rr.T + br)
            n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
            n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
            h = (1 - z) * n + z * h

        ``y`` holds h of each time step, ``y_h`` the last h. With ``linear_before_reset`` a summed bias has four parts: bz, br, the
        bias of wh and the bias of rh. Defaults: f = sigmoid, g = tanh.
        Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
        """

    @overload
    def LSTM(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, initial_c: Operand | None = None, p: Operand | None = None, /, *,
        direction: str = 'forward', hidden_size: int | Value | None = None, activations: Sequence[str] = (),
        activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed_bias: bool = False, input_forget: bool = False, weights_format: str = 'iofc',
        outputs: Literal[1],
    ) -> Value:
        """LSTM computes a layer of long short-term memory; the peepholes ``p`` are in the order i, o, f::

            i = f(x @ wi.T + h @ ri.T + bi + pi * c)
            f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
            n = g(x @ wc.T + h @ rc.T + bc)
            c = f * c + i * n
            o = f(x @ wo.T + h @ ro.T + bo + po * c)
            h = o * k(c)

        ``y`` holds h of each time step, ``y_h`` the last h, ``y_c`` the last c. ``weights_format`` is the order of the gates in
        ``w``, ``r`` and ``b``. As in the implementations, ``clip`` does not clip the argument of k. Defaults: f = sigmoid, g = k =
        tanh.
        Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
        """

    @overload
    def LSTM(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, initial_c: Operand | None = None, p: Operand | None = None, /, *,
        direction: str = 'forward', hidden_size: int | Value | None = None, activations: Sequence[str] = (),
        activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed_bias: bool = False, input_forget: bool = False, weights_format: str = 'iofc',
        outputs: Literal[2, 3] = 3,
    ) -> list[Value]:
        """LSTM computes a layer of long short-term memory; the peepholes ``p`` are in the order i, o, f::

            i = f(x @ wi.T + h @ ri.T + bi + pi * c)
            f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
            n = g(x @ wc.T + h @ rc.T + bc)
            c = f * c + i * n
            o = f(x @ wo.T + h @ ro.T + bo + po * c)
            h = o * k(c)

        ``y`` holds h of each time step, ``y_h`` the last h, ``y_c`` the last c. ``weights_format`` is the order of the gates in
        ``w``, ``r`` and ``b``. As in the implementations, ``clip`` does not clip the argument of k. Defaults: f = sigmoid, g = k =
        tanh.
        Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
        """

    @overload
    def LSTM(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, initial_c: Operand | None = None, p: Operand | None = None, /, *,
        direction: str = 'forward', hidden_size: int | Value | None = None, activations: Sequence[str] = (),
        activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float | None = None,
        layout: str = 'sequence_first', summed_bias: bool = False, input_forget: bool = False, weights_format: str = 'iofc',
        outputs: int = 3,
    ) -> Value | list[Value]:
        """LSTM computes a layer of long short-term memory; the peepholes ``p`` are in the order i, o, f::

            i = f(x @ wi.T + h @ ri.T + bi + pi * c)
            f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
            n = g(x @ wc.T + h @ rc.T + bc)
            c = f * c + i * n
            o = f(x @ wo.T + h @ ro.T + bo + po * c)
            h = o * k(c)

        ``y`` holds h of each time step, ``y_h`` the last h, ``y_c`` the last c. ``weights_format`` is the order of the gates in
        ``w``, ``r`` and ``b``. As in the implementations, ``clip`` does not clip the argument of k. Defaults: f = sigmoid, g = k =
        tanh.
        Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
        """

    @overload
    def RNN(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False, outputs: Literal[1],
    ) -> Value:
        """RNN computes ``h = f(x @ w.T + h @ r.T + b)`` for each time step; the default f is tanh.

        ``y`` holds h of each time step, ``y_h`` the last h.
        Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
        """

    @overload
    def RNN(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False, outputs: Literal[2] = 2,
    ) -> list[Value]:
        """RNN computes ``h = f(x @ w.T + h @ r.T + b)`` for each time step; the default f is tanh.

        ``y`` holds h of each time step, ``y_h`` the last h.
        Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
        """

    @overload
    def RNN(
        self, x: Operand, w: Operand, r: Operand, b: Operand | None = None, sequence_lens: Operand | None = None,
        initial_h: Operand | None = None, /, *, direction: str = 'forward', hidden_size: int | Value | None = None,
        activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
        clip: float | None = None, layout: str = 'sequence_first', summed_bias: bool = False, outputs: int = 2,
    ) -> Value | list[Value]:
        """RNN computes ``h = f(x @ w.T + h @ r.T + b)`` for each time step; the default f is tanh.

        ``y`` holds h of each time step, ``y_h`` the last h.
        Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
        """

    # reduction.argminmax

    def ArgMax(
        self, x: Operand, /, *, axis: int | Value = 0, keepdims: bool = True, select_last_index: bool = False,
    ) -> Value:
        """Compute the index of the maximum along ``axis``.

        Source: ONNX ArgMax 1 to 13 (before 12 ONNX allows the index of any of equal elements; dovetail returns the first).
        """

    def ArgMin(
        self, x: Operand, /, *, axis: int | Value = 0, keepdims: bool = True, select_last_index: bool = False,
    ) -> Value:
        """Compute the index of the minimum along ``axis``.

        Source: ONNX ArgMin 1 to 13 (before 12 ONNX allows the index of any of equal elements; dovetail returns the first).
        """

    # reduction.cumulative

    def CumProd(
        self, x: Operand, axis: Operand, /, *, exclusive: bool = False, reverse: bool = False,
    ) -> Value:
        """Compute the cumulative product along an axis. Source: ONNX CumProd 26."""

    def CumSum(
        self, x: Operand, axis: Operand, /, *, exclusive: bool = False, reverse: bool = False,
    ) -> Value:
        """Compute the cumulative sum along an axis. Sources: ONNX CumSum 11 and 14, OpenVINO CumSum-3."""

    # reduction.reduce

    def ReduceAll(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the logical AND; no elements give True. Source: OpenVINO ReduceLogicalAnd-1."""

    def ReduceAny(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the logical OR; no elements give False. Source: OpenVINO ReduceLogicalOr-1."""

    def ReduceL1(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the L1 norm; no elements give 0. Sources: ONNX ReduceL1 1 to 18, OpenVINO ReduceL1-4."""

    def ReduceL2(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the L2 norm; no elements give 0. Sources: ONNX ReduceL2 1 to 18, OpenVINO ReduceL2-4."""

    def ReduceLogSum(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the logarithm of the sum; no elements give -inf. Source: ONNX ReduceLogSum 1 to 28."""

    def ReduceLogSumExp(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute log(sum(exp(x))) without overflow; no elements give -inf. Source: ONNX ReduceLogSumExp 1 to 28."""

    def ReduceMax(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the maximum, NaN if any element is NaN; no elements give -inf, or the least value of a type without -inf.

        Sources: ONNX ReduceMax 1 to 20, OpenVINO ReduceMax-1.
        """

    def ReduceMean(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the mean; no elements give NaN (integers: 0). For integers the wrapped sum is divided with truncation.

        Sources: ONNX ReduceMean 1 to 18, OpenVINO ReduceMean-1.
        """

    def ReduceMin(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the minimum, NaN if any element is NaN; no elements give +inf, or the greatest value of a type without +inf.

        Sources: ONNX ReduceMin 1 to 20, OpenVINO ReduceMin-1.
        """

    def ReduceProd(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the product; no elements give 1. Sources: ONNX ReduceProd 1 to 18, OpenVINO ReduceProd-1."""

    def ReduceSum(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the sum; no elements give 0. Sources: ONNX ReduceSum 1 to 13, OpenVINO ReduceSum-1."""

    def ReduceSumSquare(
        self, x: Operand, axes: Operand | None = None, /, *, keepdims: bool = True, noop_with_empty_axes: bool = False,
    ) -> Value:
        """Compute the sum of squares; no elements give 0. Source: ONNX ReduceSumSquare 1 to 18."""

    # reduction.softmax

    def Hardmax(
        self, x: Operand, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """Return 1 at the first maximum along ``axis`` and 0 elsewhere.

        ``coerce_to_2d`` flattens ``axis`` and all later axes into one. Sources: ONNX Hardmax 1, 11 (coerced to two dimensions), 13.
        """

    def LogSoftmax(
        self, x: Operand, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """Compute ``log(softmax(x))`` over ``axis``; with ``coerce_to_2d`` over ``axis`` and all later axes flattened into one.

        Sources: ONNX LogSoftmax 1, 11 (coerced to two dimensions), 13; OpenVINO LogSoftmax-5.
        """

    def Softmax(
        self, x: Operand, /, *, axis: int | Value = -1, coerce_to_2d: bool = False,
    ) -> Value:
        """Compute ``exp(x) / sum(exp(x))`` over ``axis``; with ``coerce_to_2d`` over ``axis`` and all later axes flattened into one.

        Sources: ONNX Softmax 1, 11 (coerced to two dimensions), 13; OpenVINO SoftMax-1, -8.
        """

    # runtime_attributes

    def RuntimeAttributes(
        self, /, *xs: Operand | None, op: Op, names: Sequence[str], outputs: int = 1,
    ) -> list[Value]:
        """Apply ``op`` with the attributes ``names`` read from the last inputs, in the order of ``names``.

        The values that ``op`` itself has for these attributes are unused. An integer attribute is read from a tensor of one element,
        a list of integers from a tensor of rank 0 or 1. The inputs of ``op`` come first; an omitted optional input keeps its
        position. If the attribute values are known, the rules of ``op`` apply. Otherwise an attribute named ``axis`` or ``axes`` may
        be any of the axes, and the output types are types that hold for all choices. Sources:
        OpenVINO's VariadicSplit-1, Split-1, Gather-1, -7, -8, ScatterElementsUpdate-3, -12, ScatterUpdate-3, Unique-10, LRN-1.
        """

    # sequence.optional

    def Optional(
        self, input: Operand | None = None, /, *, type: Type | None = None,
    ) -> Value:
        """Wrap ``input`` as an optional value; without ``input`` return an empty optional of ``type``.

        Source: ONNX Optional 15, 28.
        """

    def OptionalGetElement(
        self, input: Operand, /,
    ) -> Value:
        """Return the element of an optional value, which must be present. Source: ONNX OptionalGetElement 15, 18, 28."""

    def OptionalHasElement(
        self, input: Operand | None = None, /,
    ) -> Value:
        """Test whether an optional value is present, as a scalar: false for an empty and for an omitted input.

        Source: ONNX OptionalHasElement 15, 18, 28.
        """

    # sequence.sequence

    def ConcatFromSequence(
        self, input_sequence: Operand, /, *, axis: int | Value, new_axis: bool = False,
    ) -> Value:
        """Concatenate the elements of a sequence along ``axis``, or with ``new_axis`` stack the elements along a new ``axis``.

        The sequence has at least one element.
        Source: ONNX ConcatFromSequence 11.
        """

    def SequenceAt(
        self, input_sequence: Operand, position: Operand, /,
    ) -> Value:
        """Return the element at ``position``, from -n to n - 1 for n elements. Source: ONNX SequenceAt 11."""

    def SequenceConstruct(
        self, /, *inputs: Operand | None,
    ) -> Value:
        """Return the sequence of ``inputs``, at least one, all of one element type. Source: ONNX SequenceConstruct 11."""

    def SequenceEmpty(
        self, /, *, dtype: DTypeLike = 'f32',
    ) -> Value:
        """Return an empty sequence of tensors of ``dtype``. Source: ONNX SequenceEmpty 11."""

    def SequenceErase(
        self, input_sequence: Operand, position: Operand | None = None, /,
    ) -> Value:
        """Remove the element at ``position``, from -n to n - 1 for n elements; by default the last.

        Source: ONNX SequenceErase 11.
        """

    def SequenceInsert(
        self, input_sequence: Operand, tensor: Operand, position: Operand | None = None, /,
    ) -> Value:
        """Insert ``tensor`` before the element at ``position``, from -n to n for n elements; by default at the end.

        Source: ONNX SequenceInsert 11.
        """

    def SequenceLength(
        self, input_sequence: Operand, /,
    ) -> Value:
        """Return the number of elements of a sequence, a scalar. Source: ONNX SequenceLength 11."""

    def SplitToSequence(
        self, input: Operand, split: Operand | None = None, /, *, axis: int | Value = 0, keepdims: bool = True,
    ) -> Value:
        """Split ``input`` along ``axis`` into a sequence of parts.

        ``split`` is a vector of lengths that add up to the dimension, or a scalar above 0, which is the length of each part; the last
        part may be smaller. Without ``split`` each part has length 1, and loses the axis unless ``keepdims``. Source: ONNX
        SplitToSequence 11, 24.
        """

    # signal.dft

    def DFT(
        self, x: Operand, axes: Operand, signal_size: Operand | None = None, /, *, inverse: bool = False,
        onesided: bool = False,
    ) -> Value:
        """Compute the discrete Fourier transform over each of ``axes``, or with ``inverse`` its inverse.

        Element k of the result is ``sum(x[n] * exp(-2 pi i k n / N))``, or with ``inverse`` ``sum(x[n] * exp(2 pi i k n / N)) / N``.
        ``axes`` are indices among all axes of ``x`` but the last. The last axis holds the real and the imaginary part, or only the
        real part.

        With ``onesided`` a real ``x`` gives the first N // 2 + 1 frequencies along the last of ``axes``; these frequencies determine
        all others. With ``onesided`` and ``inverse`` ``x`` holds these frequencies, and the result is real, with one element in the
        last axis. ``signal_size``: each axis is cut or zero-padded to that many elements before the transform; -1 keeps the size (2 *
        (n - 1) for n frequencies of one side).
        Sources: ONNX DFT 17, 20; OpenVINO DFT-7, IDFT-7.
        """

    def IRDFT(
        self, x: Operand, axes: Operand, signal_size: Operand | None = None, /,
    ) -> Value:
        """Compute the real inverse of a one-sided DFT ``x`` [..., 2]. Source: OpenVINO IRDFT-9."""

    def RDFT(
        self, x: Operand, axes: Operand, signal_size: Operand | None = None, /,
    ) -> Value:
        """Compute the one-sided DFT of real numbers, [..., 2] with real and imaginary part. Source: OpenVINO RDFT-9."""

    # signal.stft

    def ISTFT(
        self, x: Operand, window: Operand, frame_size: Operand, frame_step: Operand, signal_length: Operand | None = None, /,
        *, center: bool = False, normalized: bool = False,
    ) -> Value:
        """Compute the inverse STFT: the real signal [batch, elements] of a one-sided spectrum.

        ``x`` is [batch, frequencies, frames, 2], or without the batch axis. Frames of ``frame_size`` elements are transformed back,
        multiplied by ``window`` (zero-padded on both sides if it is shorter than a frame), added ``frame_step`` elements apart, and
        divided by the sum of the squared windows. An element for which that sum is 0 is 0.

        ``normalized`` multiplies the signal by sqrt(frame_size). ``center`` drops frame_size // 2 elements at the front and
        frame_size - frame_size // 2 elements at the end. ``signal_length`` cuts or zero-pads the end to that length instead. Source:
        OpenVINO ISTFT-16.
        """

    def MelWeightMatrix(
        self, num_mel_bins: Operand, dft_length: Operand, sample_rate: Operand, lower_edge_hertz: Operand,
        upper_edge_hertz: Operand, /, *, output_datatype: DTypeLike = 'f32',
    ) -> Value:
        """Compute the weights of ``num_mel_bins`` triangular mel bands: [dft_length // 2 + 1, num_mel_bins].

        The bands are evenly spaced in mels from ``lower_edge_hertz`` to ``upper_edge_hertz``. A band rises linearly from 0 at the
        previous band's frequency to 1 at the band's frequency, and falls to 0 at the next band's frequency. The index of frequency f
        in hertz is floor((dft_length + 1) * f / sample_rate), with f = 700 * (10 ** (mel / 2595) - 1). Weights are computed in f64.
        Source: ONNX MelWeightMatrix 17 and its reference evaluator.
        """

    def STFT(
        self, x: Operand, frame_step: Operand, window: Operand | None = None, frame_length: Operand | None = None, /, *,
        onesided: bool = True,
    ) -> Value:
        """Compute the short-time Fourier transform: [batch, frames, frequencies, 2], real and imaginary part last.

        ``x`` is [batch, elements, parts], with one part for a real and two parts for a complex signal, or [batch, elements] for a
        real signal. Frames of ``frame_length`` elements (by default the size of ``window``, or of the signal) begin every
        ``frame_step`` elements. All frames that lie within the signal are multiplied by ``window`` and transformed. With
        ``onesided`` a real signal gives the first frame_length // 2 + 1 frequencies, which determine all others.
        Sources: ONNX STFT 17; OpenVINO STFT-15.
        """

    # tensor.concat_split

    def Concat(
        self, /, *inputs: Operand | None, axis: int | Value,
    ) -> Value:
        """Concatenate ``inputs`` along ``axis``, which counts from the end when negative; all other dimensions agree.

        There is at least one input, and no input is a scalar. Inputs are neither broadcast nor promoted; sizes of 0 are allowed.
        Sources: ONNX Concat 1, 4, 11, 13; OpenVINO Concat-1; nGraph Concat.
        """

    def Split(
        self, input: Operand, split: Operand | None = None, /, *, axis: int | Value = 0, outputs: int = 1,
        ragged: bool = False, wildcard: bool = False,
    ) -> list[Value]:
        """Split ``input`` along ``axis`` into parts of the lengths in ``split``, or into ``outputs`` equal parts.

        ``split`` is a vector of lengths >= 0 that add up to the dimension; with ``wildcard`` one length may be -1: the remainder.
        Without ``split`` the dimension is a multiple of ``outputs``, unless ``ragged``: then each part has ceil(dim / outputs)
        elements, and the last part may be smaller. Sources: ONNX Split 1, 2, 11, 13, 18; OpenVINO Split-1, VariadicSplit-1.
        """

    # tensor.depth_to_space

    def DepthToSpace(
        self, input: Operand, /, *, blocksize: int | Value = 1, mode: str = 'blocks_first',
    ) -> Value:
        """Move channels of ``input`` [N, C, *spatial] into blocks: [N, C / blocksize^k, *spatial * blocksize].

        A block has ``blocksize`` elements along each of the k spatial axes. The channel index is (*position in the block, new
        channel) with ``blocks_first``, (new channel, *position in the block) with ``depth_first``. Sources: ONNX DepthToSpace 1 to 28
        (DCR, CRD; two spatial axes); OpenVINO DepthToSpace-1.
        """

    def ShuffleChannels(
        self, data: Operand, /, *, axis: int | Value = 1, group: int | Value = 1,
    ) -> Value:
        """Shuffle the indices of ``axis``: reshape the indices to a matrix of ``group`` rows, and transpose the matrix.

        The size of ``axis`` must be a multiple of ``group``. Source: OpenVINO ShuffleChannels-1.
        """

    def SpaceToDepth(
        self, input: Operand, /, *, blocksize: int | Value = 1, mode: str = 'blocks_first',
    ) -> Value:
        """Move blocks of ``input`` [N, C, *spatial] into channels: [N, C * blocksize^k, *spatial / blocksize].

        SpaceToDepth is the inverse of DepthToSpace with the same ``mode``. Sources: ONNX SpaceToDepth 1 to 28 (two spatial axes);
        OpenVINO SpaceToDepth-1.
        """

    # tensor.gather

    def Gather(
        self, data: Operand, indices: Operand, /, *, axis: int | Value = 0, batch_dims: int | Value = 0, bounds: str = 'error',
    ) -> Value:
        """Gather slices of ``data`` at ``indices`` along ``axis``.

        The output shape is data.shape[:axis] + indices.shape[batch_dims:] + data.shape[axis + 1:]. The first ``batch_dims`` axes of
        ``data`` and ``indices`` are batch axes; a negative ``batch_dims`` counts from the rank of ``indices``. A negative index
        counts from the end. An index outside the axis is an error with ``bounds`` ``error``, and gives elements 0 with ``zero``.
        With ``natural`` a negative index is an error too. Sources: ONNX Gather 1 (no negative indices), 11, 13; OpenVINO Gather-1,
        -7 (no negative indices), -8 (zero).
        """

    def GatherElements(
        self, data: Operand, indices: Operand, /, *, axis: int | Value = 0,
    ) -> Value:
        """Gather single elements of ``data``: along ``axis`` at ``indices``, along the other axes at the position of the index.

        The result has the shape of ``indices``, which is no larger than ``data`` along the other axes. Negative indices count from
        the end; an index outside the axis is an error. Sources: ONNX GatherElements 11, 13; OpenVINO GatherElements-6.
        """

    def GatherND(
        self, data: Operand, indices: Operand, /, *, batch_dims: int | Value = 0,
    ) -> Value:
        """Gather slices of ``data``: the last axis of ``indices`` has k coordinates for the k axes after ``batch_dims`` batch axes.

        The output shape is indices.shape[:-1] + data.shape[batch_dims + k:]; the batch axes of ``data`` and ``indices`` have equal
        sizes. Negative coordinates count from the end; a coordinate outside its axis is an error. Sources: ONNX GatherND 11 to 13;
        OpenVINO GatherND-5 (at most one batch axis), -8.
        """

    # tensor.gather_tree

    def GatherTree(
        self, step_ids: Operand, parent_idx: Operand, max_seq_len: Operand, end_token: Operand, /,
    ) -> Value:
        """Reconstruct beam-search sequences, [times, batch, beams], from the last token of each beam backwards.

        ``step_ids`` holds the token of each beam at each time, ``parent_idx`` the beam that the token continues. A sequence is read
        backwards from time ``max_seq_len`` [batch] - 1. After that time, and after the first ``end_token`` of a sequence, all tokens
        are ``end_token``.
        Source: OpenVINO GatherTree-1.
        """

    # tensor.nonzero_compress

    def Compress(
        self, input: Operand, condition: Operand, /, *, axis: int | Value | None = None,
    ) -> Value:
        """Select the slices of ``input`` along ``axis`` for which the vector ``condition`` is true.

        Without ``axis`` elements are selected, in row-major order. Slices beyond the end of ``condition`` are dropped.
        Source: ONNX Compress 9 to 28.
        """

    def NonZero(
        self, x: Operand, /, *, output_type: DTypeLike = 'i64',
    ) -> Value:
        """Return the coordinates of the elements that are not 0, in row-major order: [rank, count].

        For a scalar the result has the shape [0, 1] if the scalar is not 0, else [0, 0]. Sources: ONNX NonZero 9, 13; OpenVINO
        NonZero-3.
        """

    # tensor.onehot_trilu_eye

    def EyeLike(
        self, input: Operand, /, *, k: int | Value = 0, dtype: DTypeLike | None = None,
    ) -> Value:
        """Return a matrix of the shape of ``input`` with 1 on diagonal ``k`` and 0 elsewhere.

        The element type is ``dtype``, by default the type of ``input``. Source: ONNX EyeLike 9, 22.
        """

    def OneHot(
        self, indices: Operand, depth: Operand, on_value: Operand, off_value: Operand, /, *, axis: int | Value = -1,
        negative_indices: bool = True,
    ) -> Value:
        """Encode indices one-hot: a new axis of size ``depth``, ``on_value`` at the index and ``off_value`` elsewhere.

        The new axis is ``axis`` of the result. With ``negative_indices`` indices in [-depth, -1] count from the end; any other index
        outside [0, depth - 1] gives ``off_value`` everywhere. Indices and depths that are not integers are truncated toward zero.
        Sources: ONNX OneHot 9 (no negative indices), 11, 28; OpenVINO OneHot-1, -16.
        """

    def Trilu(
        self, input: Operand, k: Operand | None = None, /, *, upper: bool = True,
    ) -> Value:
        """Keep the elements on and above (without ``upper``: below) diagonal ``k`` of the matrices in the last two axes.

        The other elements are 0. Source: ONNX Trilu 14.
        """

    # tensor.pad

    def Pad(
        self, data: Operand, pads: Operand, constant_value: Operand | None = None, axes: Operand | None = None, /, *,
        mode: str = 'constant',
    ) -> Value:
        """Pad ``data`` with ``pads[i]`` elements at the beginning and ``pads[n + i]`` at the end of ``axes[i]``, for n axes.

        Negative pads crop. ``pads`` is a vector; without ``axes`` all axes are padded. ``mode`` determines the new elements:
        ``constant``: ``constant_value`` (by default 0, False or the empty string); ``edge``: the nearest element; ``reflect`` and
        ``symmetric``: the mirrored elements, without and with the border; ``wrap``: the elements of the other end. With ``wrap``
        crops apply before padding; in the other modes padding may repeat elements that the other side crops. A resulting size below
        0 becomes 0.
        Sources: ONNX Pad 1 to 25; OpenVINO Pad-1, -12; numpy.pad.
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

        With ``special_zero`` a 0 copies the input's dimension at the same index, which must be below the rank; otherwise a 0 is a
        size of zero. One size may be -1: it is computed so that the numbers of elements agree. ``empty`` defines -1 if the other
        sizes multiply to 0: ``refuse`` is an error; ``cancel`` divides the input's sizes by the other sizes, both without copied
        sizes ([0, 3] reshaped to [0, -1] is [0, 3]); ``zero`` makes -1 a size of 0, and refuses the shape [0] unless the 0 copies.
        Without ``special_zero`` a 0 together with -1 is always an error. A symbolic element of ``shape`` does not copy, even if its
        value is 0. ``special_zero`` is the negation of ONNX's ``allowzero``.
        Sources: ONNX Reshape 1 to 25 (allowzero), OpenVINO Reshape-1 (special_zero), nGraph Reshape v1.
        """

    def Squeeze(
        self, data: Operand, axes: Operand | None = None, /, *, skip: bool = False,
    ) -> Value:
        """Squeeze ``data``: remove ``axes``, which have the size 1; without ``axes`` remove every axis of size 1.

        With ``skip`` an axis of another size is kept; otherwise such an axis is an error, also at run time. ``axes`` are distinct.
        Sources: ONNX Squeeze 1 to 25; OpenVINO Squeeze-1, -15 (whose ``allow_axis_skip`` concerns inference only).
        """

    def Unsqueeze(
        self, data: Operand, axes: Operand, /,
    ) -> Value:
        """Unsqueeze ``data``: insert an axis of size 1 at each of ``axes``, which are distinct indices in the result.

        Sources: ONNX Unsqueeze 1 to 25; OpenVINO Unsqueeze-1.
        """

    # tensor.scatter

    def ScatterElements(
        self, data: Operand, indices: Operand, updates: Operand, /, *, axis: int | Value = 0, reduction: str = 'replace',
        use_init_val: bool = True,
    ) -> Value:
        """Scatter ``updates`` into ``data``: along ``axis`` to ``indices``, along the other axes to the update's position.

        ``indices`` has the rank of ``data`` and the shape of ``updates``, and is no larger than ``data`` along the other axes.
        Negative indices count from the end; an index outside the axis is an error. ``reduction`` combines the updates of a position,
        one after the other, with the existing element. With ``replace`` the last update is kept; ``mean`` is the mean of the existing
        element and all updates, for integers rounded down. Without ``use_init_val`` an updated position ignores the existing element.
        Sources: ONNX Scatter 9, 11, ScatterElements 11 to 18; OpenVINO ScatterElementsUpdate-3, -12.
        """

    def ScatterND(
        self, data: Operand, indices: Operand, updates: Operand, /, *, reduction: str = 'replace',
    ) -> Value:
        """Scatter the slices ``updates[i]`` into ``data[indices[i]]``.

        The last axis of ``indices`` holds k coordinates, for the first k axes of ``data``; ``updates`` has the shape
        indices.shape[:-1] + data.shape[k:]. Negative coordinates and ``reduction`` are defined as in ScatterElements. Sources: ONNX
        ScatterND 11 to 18; OpenVINO ScatterNDUpdate-3, -15.
        """

    def ScatterUpdate(
        self, data: Operand, indices: Operand, updates: Operand, /, *, axis: int | Value = 0,
    ) -> Value:
        """Replace the slice of ``data`` at index ``indices[i]`` along ``axis`` by ``updates[..., i, ...]``.

        Indices are in [0, size - 1]. ``updates`` has the shape data.shape[:axis] + indices.shape + data.shape[axis + 1:]. Source:
        OpenVINO ScatterUpdate-3.
        """

    def TensorScatter(
        self, past_cache: Operand, update: Operand, write_indices: Operand | None = None, /, *, axis: int | Value = -2,
        mode: str = 'linear',
    ) -> Value:
        """Write ``update`` into ``past_cache`` along ``axis``, from the position ``write_indices[i]`` on for batch item i.

        Without ``write_indices`` all positions start at 0. With ``mode`` ``circular`` positions past the end wrap around; otherwise
        such positions are an error. ``axis`` must not be 0, the batch axis. Source: ONNX TensorScatter 24.
        """

    # tensor.shape

    def ConstantOfShape(
        self, input: Operand, value: Operand, /,
    ) -> Value:
        """Fill a tensor of the shape ``input``, a vector, with the one element of ``value``.

        Sizes must not be negative; an empty ``input`` gives a scalar. Source: ONNX ConstantOfShape 9 to 25.
        """

    def Range(
        self, start: Operand, limit: Operand, delta: Operand, /, *, output_type: DTypeLike | None = None, wide: bool = True,
    ) -> Value:
        """Return ``start``, ``start + delta``, ``start + 2 delta``, ... up to before ``limit``.

        The number of elements is max(ceil((limit - start) / delta), 0). Each input has one element; ``delta`` is not 0.
        ``output_type`` is the element type of the result, by default the type of ``start``; floats of fewer than 32 bits are computed
        in f32 (``wide``). Integer inputs of a float range are rounded first. Inference does not round symbolic sizes, because only
        sizes above 2^24 would change. An integer range with float inputs is an error, because OpenVINO does not specify where the
        inputs are rounded. Sources: ONNX Range 11, 27; OpenVINO Range-1, -4.
        """

    def Shape(
        self, data: Operand, /, *, start: int | Value = 0, end: int | Value | None = None, output_type: DTypeLike = 'i64',
    ) -> Value:
        """Return the sizes of ``data`` from axis ``start`` to before ``end``, as a vector of ``output_type``.

        Negative ``start`` and ``end`` count from the rank; both are clamped to [0, rank]. The default ``end`` is the rank.
        Sources: ONNX Shape 1 to 25; OpenVINO ShapeOf-1, -3.
        """

    def Size(
        self, data: Operand, /,
    ) -> Value:
        """Return the number of elements of ``data``, a scalar. Source: ONNX Size 1 to 25."""

    # tensor.slice

    def ReverseSequence(
        self, input: Operand, sequence_lens: Operand, /, *, batch_axis: int | Value = 1, time_axis: int | Value = 0,
    ) -> Value:
        """Reverse the first ``sequence_lens[i]`` elements along ``time_axis`` for each index i of ``batch_axis``.

        The other elements keep their positions. Sources: ONNX ReverseSequence 10, 28; OpenVINO ReverseSequence-1.
        """

    def Roll(
        self, data: Operand, shift: Operand, axes: Operand, /,
    ) -> Value:
        """Roll ``data`` by ``shift[i]`` positions towards larger indices along ``axes[i]``, cyclically.

        An axis that occurs several times in ``axes`` is rolled by the sum of its shifts; a single shift applies to all axes.
        Source: OpenVINO Roll-7.
        """

    def Slice(
        self, data: Operand, starts: Operand, ends: Operand, axes: Operand | None = None, steps: Operand | None = None, /,
    ) -> Value:
        """Slice ``data``: every ``steps[i]``-th element from ``starts[i]`` to before ``ends[i]`` along ``axes[i]``.

        Negative bounds count from the end. With a positive step start and end are clamped to [0, size]; with a negative step start
        is clamped to [0, size - 1] and end to [-1, size - 1]. Steps are not 0, and ``axes`` are distinct; the default ``axes`` are
        the first axes. A 32-bit bound of 2^31 - 1 (INT_MAX) is the end of the axis, and a 32-bit bound of -2^31 (INT_MIN) is the
        position before the first element.
        Sources: ONNX Slice 1, 10, 11, 13; OpenVINO Slice-8.
        """

    # tensor.topk

    def TopK(
        self, x: Operand, k: Operand, /, *, axis: int | Value = -1, largest: bool = True, sort: str = 'value',
        stable: bool = True, index_element_type: DTypeLike = 'i64',
    ) -> list[Value]:
        """Return the ``k`` greatest (without ``largest``: least) elements along ``axis``, and their indices.

        ``sort`` orders the selected elements by ``value``, the most extreme first, or by ``index``; with ``none`` the order is
        unspecified (dovetail orders by value). With ``stable`` the first of equal elements is selected and comes first; without
        ``stable`` the choice is unspecified (dovetail chooses as with ``stable``). A NaN is greater than any number.
        Sources: ONNX TopK 1 to 24; OpenVINO TopK-1, -3, -11.
        """

    # tensor.transpose_expand_tile

    def Expand(
        self, input: Operand, shape: Operand, /, *, bidirectional: bool = True,
    ) -> Value:
        """Broadcast ``input`` to ``shape``, a vector, aligned at the last axis: a size of 1 is repeated.

        With ``bidirectional``, the result takes the sizes of ``input`` for sizes of 1 and for missing axes in ``shape``; otherwise
        the result has exactly ``shape``. Sources: ONNX Expand 8, 13; OpenVINO Broadcast-1 (numpy), -3 (numpy, bidirectional).
        """

    def Tile(
        self, input: Operand, repeats: Operand, /, *, extend: bool = False,
    ) -> Value:
        """Repeat ``input`` ``repeats[i]`` times along each axis i.

        ``repeats`` has one number for each axis. With ``extend`` the number of repeats may differ from the rank; 1s are then
        prepended to the shorter of ``repeats`` and the shape. Sources: ONNX Tile 6, 13; OpenVINO Tile-1.
        """

    def Transpose(
        self, data: Operand, perm: Operand | None = None, /,
    ) -> Value:
        """Transpose ``data``: axis i of the result is axis ``perm[i]`` of ``data``; an absent or empty ``perm`` reverses the axes.

        ``perm`` is a permutation of 0 .. rank - 1. Sources: ONNX Transpose 1 to 25; OpenVINO Transpose-1.
        """

    # tensor.unique_searchsorted

    def SearchSorted(
        self, sorted_sequence: Operand, values: Operand, /, *, right_mode: bool = False, output_type: DTypeLike = 'i64',
    ) -> Value:
        """Return for each of ``values`` the number of elements of the ascending ``sorted_sequence`` that are less than the value.

        With ``right_mode`` elements that equal the value are counted too. ``sorted_sequence`` is a vector, or has the sizes of
        ``values`` along all axes but the last. Sources: OpenVINO Bucketize-3, SearchSorted-15.
        """

    @overload
    def Unique(
        self, x: Operand, /, *, axis: int | Value | None = None, sorted: bool = True, index_element_type: DTypeLike = 'i64',
        count_element_type: DTypeLike = 'i64', outputs: Literal[1],
    ) -> Value:
        """Return the unique elements of ``x``, or the unique slices along ``axis``, with first indices, inverse and counts.

        ``inverse_indices`` holds, for each element or slice of ``x``, the index of the equal unique element or slice. With ``sorted``
        the result is ascending, and slices are compared element by element in row-major order; otherwise the result is in the order
        of first occurrence. Without ``axis`` elements are indexed in row-major order. ``outputs``: the number of outputs, 1 to 4.
        Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
        """

    @overload
    def Unique(
        self, x: Operand, /, *, axis: int | Value | None = None, sorted: bool = True, index_element_type: DTypeLike = 'i64',
        count_element_type: DTypeLike = 'i64', outputs: Literal[2, 3, 4] = 4,
    ) -> list[Value]:
        """Return the unique elements of ``x``, or the unique slices along ``axis``, with first indices, inverse and counts.

        ``inverse_indices`` holds, for each element or slice of ``x``, the index of the equal unique element or slice. With ``sorted``
        the result is ascending, and slices are compared element by element in row-major order; otherwise the result is in the order
        of first occurrence. Without ``axis`` elements are indexed in row-major order. ``outputs``: the number of outputs, 1 to 4.
        Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
        """

    @overload
    def Unique(
        self, x: Operand, /, *, axis: int | Value | None = None, sorted: bool = True, index_element_type: DTypeLike = 'i64',
        count_element_type: DTypeLike = 'i64', outputs: int = 4,
    ) -> Value | list[Value]:
        """Return the unique elements of ``x``, or the unique slices along ``axis``, with first indices, inverse and counts.

        ``inverse_indices`` holds, for each element or slice of ``x``, the index of the equal unique element or slice. With ``sorted``
        the result is ascending, and slices are compared element by element in row-major order; otherwise the result is in the order
        of first occurrence. Without ``axis`` elements are indexed in row-major order. ``outputs``: the number of outputs, 1 to 4.
        Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
        """

    # text.strings

    def RegexFullMatch(
        self, x: Operand, /, *, pattern: str | None = None,
    ) -> Value:
        """RegexFullMatch tests whether each entire string matches ``pattern``, a regular expression of RE2.

        A missing ``pattern`` is refused, because ONNX does not define the result.
        Source: ONNX RegexFullMatch 20.
        """

    def StringConcat(
        self, x: Operand, y: Operand, /,
    ) -> Value:
        """StringConcat appends the strings of ``y`` to the strings of ``x``; shapes broadcast. Source: ONNX StringConcat 20."""

    def StringNormalizer(
        self, x: Operand, /, *, case_change_action: str = 'keep', is_case_sensitive: bool = False, locale: str = '',
        stopwords: Sequence[str] = (),
    ) -> Value:
        """StringNormalizer removes ``stopwords`` from a vector or one-row matrix, and changes the case of the other strings.

        If no string is left, the result is one empty string. Unless ``is_case_sensitive``, strings are compared in the case of
        ``case_change_action``, for ``keep`` in lower case. A letter whose other case has several letters is not changed.
        Source: ONNX StringNormalizer 10.
        """

    def StringSplit(
        self, x: Operand, /, *, delimiter: str = '', maxsplit: int | Value | None = None,
    ) -> list[Value]:
        """StringSplit splits each string at ``delimiter``, at most ``maxsplit`` times from the left.

        ``y`` holds the substrings along a new last axis, padded with empty strings; ``z`` holds the number of substrings of each
        string. Without a delimiter a string is split at runs of Unicode white space, and leading and trailing white space is removed.
        Source: ONNX StringSplit 20.
        """

    # text.tfidf

    def TfIdfVectorizer(
        self, x: Operand, /, *, mode: str, min_gram_length: int | Value, max_gram_length: int | Value,
        max_skip_count: int | Value, ngram_counts: Sequence[int] | Value, ngram_indexes: Sequence[int] | Value,
        pool_int64s: Sequence[int] | Value = (), pool_strings: Sequence[str] = (), weights: Sequence[float] = (),
    ) -> Value:
        """TfIdfVectorizer counts how often each n-gram of a pool occurs in ``x``, a vector or the rows of a matrix.

        The pool ``pool_strings`` or ``pool_int64s`` holds n-grams one after the other; the n-grams of length n begin at
        ``ngram_counts[n - 1]``. The i-th n-gram is counted at ``ngram_indexes[i]`` of the output. n-grams of length
        ``min_gram_length`` to ``max_gram_length`` are searched, with 0 to ``max_skip_count`` elements skipped between adjacent
        items. ``mode`` defines the result for an n-gram: ``tf`` the count; ``idf`` the i-th of ``weights`` (1 if empty) if the
        n-gram occurs, else 0; ``tfidf`` the count times the i-th of ``weights``.
        Source: ONNX TfIdfVectorizer 9.
        """

    # text.tokenizer

    def Tokenizer(
        self, x: Operand, /, *, mark: bool, mincharnum: int | Value, pad_value: str, separators: Sequence[str] = (),
        tokenexp: str = '',
    ) -> Value:
        """Tokenizer splits each string of a vector or matrix into tokens along a new last axis, padded with ``pad_value``.

        With ``tokenexp`` tokens are the longest matches of that pattern from the left. With ``separators`` tokens are the text
        between the matches: each separator splits the text that remains after the previous separators. If the only separator is
        empty, tokens are single characters. Patterns are regular expressions of RE2. Tokens of fewer than ``mincharnum`` characters
        are dropped. With ``mark`` the tokens of each string are preceded by U+0002 and followed by U+0003.
        Source: onnxruntime com.microsoft Tokenizer 1.
        """

    # training.ctc_loss

    def CTCLoss(
        self, logits: Operand, logit_length: Operand, labels: Operand, label_length: Operand,
        blank_index: Operand | None = None, /, *, preprocess_collapse_repeated: bool = False, ctc_merge_repeated: bool = True,
        unique: bool = False,
    ) -> Value:
        """CTCLoss computes the negative log-probability that ``logits`` decode to ``labels``; the result is [batch].

        ``logits`` are [batch, times, classes], ``labels`` [batch, times]. Decoding draws a class with probabilities softmax(logits)
        at each of the first ``logit_length`` [batch] times. Then repeated classes are merged if ``ctc_merge_repeated``, and
        ``blank_index`` (default: the last class) is dropped. The first ``label_length`` [batch] elements of ``labels`` are compared.
        ``unique`` keeps only the first label of each value, and ``preprocess_collapse_repeated`` only one of adjacent equal labels.
        Labels to which no drawn classes decode have an infinite loss.
        Source: OpenVINO CTCLoss-4.
        """

    # training.losses

    def NegativeLogLikelihoodLoss(
        self, input: Operand, target: Operand, weight: Operand | None = None, /, *, reduction: str = 'mean',
        ignore_index: int | Value | None = None,
    ) -> Value:
        """NegativeLogLikelihoodLoss computes ``-input[i, target[i, j], j] * weight[target[i, j]]``.

        ``input`` are log-probabilities [batch, classes, *positions], ``target`` is [batch, *positions]. The loss is 0 at positions
        with ``target`` equal to ``ignore_index``. ``reduction``: ``none`` keeps the loss of each position, ``sum`` adds the losses,
        ``mean`` divides the sum by the sum of the weights (1 each if omitted; 0 at an ignored position).
        Source: ONNX NegativeLogLikelihoodLoss 12, 13, 22.
        """

    @overload
    def SoftmaxCrossEntropyLoss(
        self, scores: Operand, labels: Operand, weights: Operand | None = None, /, *, reduction: str = 'mean',
        ignore_index: int | Value | None = None, outputs: Literal[1] = 1,
    ) -> Value:
        """SoftmaxCrossEntropyLoss computes the NegativeLogLikelihoodLoss of ``log(softmax(scores))`` over axis 1.

        The second output, if requested, is ``log(softmax(scores))``. NegativeLogLikelihoodLoss defines the attributes.
        Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
        """

    @overload
    def SoftmaxCrossEntropyLoss(
        self, scores: Operand, labels: Operand, weights: Operand | None = None, /, *, reduction: str = 'mean',
        ignore_index: int | Value | None = None, outputs: Literal[2],
    ) -> list[Value]:
        """SoftmaxCrossEntropyLoss computes the NegativeLogLikelihoodLoss of ``log(softmax(scores))`` over axis 1.

        The second output, if requested, is ``log(softmax(scores))``. NegativeLogLikelihoodLoss defines the attributes.
        Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
        """

    @overload
    def SoftmaxCrossEntropyLoss(
        self, scores: Operand, labels: Operand, weights: Operand | None = None, /, *, reduction: str = 'mean',
        ignore_index: int | Value | None = None, outputs: int,
    ) -> Value | list[Value]:
        """SoftmaxCrossEntropyLoss computes the NegativeLogLikelihoodLoss of ``log(softmax(scores))`` over axis 1.

        The second output, if requested, is ``log(softmax(scores))``. NegativeLogLikelihoodLoss defines the attributes.
        Source: ONNX SoftmaxCrossEntropyLoss 12, 13.
        """

    # training.optimizers

    def Adagrad(
        self, r: Operand, t: Operand, /, *inputs: Operand | None, norm_coefficient: float = 0.0, outputs: int = 2,
        decay_factor: float = 0.0, epsilon: float = 9.999999974752427e-07,
    ) -> list[Value]:
        """Adagrad updates each tensor x with gradient g by the sum h of squared gradients.

        ``g' = g + norm_coefficient * x``, ``h' = h + g' * g'``, ``x' = x - r / (1 + t * decay_factor) * g' / (sqrt(h') +
        epsilon)``. ``inputs`` are all tensors, then all gradients, then all sums.
        Source: ai.onnx.preview.training Adagrad 1.
        """

    def Adam(
        self, r: Operand, t: Operand, /, *inputs: Operand | None, norm_coefficient: float = 0.0,
        alpha: float = 0.8999999761581421, beta: float = 0.9990000128746033, epsilon: float = 9.999999974752427e-07,
        norm_coefficient_post: float = 0.0, outputs: int = 3,
    ) -> list[Value]:
        """Adam updates each tensor x with gradient g by the running means v of gradients and h of squared gradients.

        ``g' = g + norm_coefficient * x``, ``v' = alpha * v + (1 - alpha) * g'``, ``h' = beta * h + (1 - beta) * g' * g'``, and
        ``x' = (1 - norm_coefficient_post) * (x - rate * v' / (sqrt(h') + epsilon))`` with ``rate = r * sqrt(1 - beta ** t) / (1 -
        alpha ** t)``, or r in step 0. ``inputs`` are all tensors, then all gradients, then all means of gradients, then all means
        of squares.
        Source: ai.onnx.preview.training Adam 1.
        """

    def Momentum(
        self, r: Operand, t: Operand, /, *inputs: Operand | None, norm_coefficient: float = 0.0, outputs: int = 2,
        alpha: float = 0.0, beta: float = 1.0, mode: str = 'standard',
    ) -> list[Value]:
        """Momentum updates each tensor x with gradient g and momentum v by gradient descent with momentum.

        ``v' = alpha * v + beta * (g + norm_coefficient * x)``, with ``beta`` 1 in step 0, and ``x' = x - r * v'``; with ``mode``
        nesterov ``x' = x - r * (g + norm_coefficient * x + alpha * v')``. ``inputs`` are all tensors, then all gradients, then
        all momenta.
        Source: ai.onnx.preview.training Momentum 1.
        """
