"""Import operators of the domain com.microsoft that onnxruntime's transformer optimizations emit.

Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Value
from dovetail.ops.attention.attention import Attention
from dovetail.ops.attention.heads import axis_size_of, split_heads
from dovetail.ops.nn.normalization import LayerNormalization, RMSNormalization

_DOMAIN = "com.microsoft"
_EPSILON = 9.999999960041972e-13
_ONNX_EPSILON = 9.999999747378752e-06
_FILTER = -10000.0


def _refuse(ctx: ImportContext, name: str, reason: str) -> UnsupportedError:
    return UnsupportedError("attribute.value", f"{ctx.node.kind}: {name} is not supported ({reason})")


@ONNX.importer("FusedMatMul", 1, domain=_DOMAIN)
def import_fused_matmul(ctx: ImportContext) -> Value:
    """Import FusedMatMul: alpha * A @ B, with A and B transposed by ``transA`` and ``transB``.

    With ``transBatchA`` or ``transBatchB`` the first axis of A or B is moved behind the batch axes.
    """
    transpose_a, transpose_b = (ctx.attribute(name, "bool", False) for name in ("transA", "transB"))
    first, second = (_move_batch(ctx, index, name) for index, name in enumerate(("transBatchA", "transBatchB")))
    product: Value = ctx.b.MatMul(first, second, transpose_a=transpose_a, transpose_b=transpose_b)
    alpha = ctx.attribute("alpha", "float", 1.0)
    return product if alpha == 1 else ctx.b.Multiply(product, ctx.b.constant(alpha, product.dtype))


@ONNX.importer("NhwcMaxPool", 1, domain=_DOMAIN)
def import_nhwc_max_pool(ctx: ImportContext) -> Any:
    """Import NhwcMaxPool: MaxPool of a channels-last tensor."""
    rank = len(ctx.input(0).dims)
    x = ctx.b.Transpose(ctx.input(0), [0, rank - 1, *range(1, rank - 1)])
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    y = ctx.add_operator("MaxPool", 12, [x], ctx.select_attributes(*names))
    return ctx.b.Transpose(y, [0, *range(2, rank), 1])


def _move_batch(ctx: ImportContext, index: int, name: str) -> Value:
    x = ctx.input(index)
    if not ctx.attribute(name, "bool", False) or len(x.dims) < 3:
        return x
    rank = len(x.dims)
    moved: Value = ctx.b.Transpose(x, [*range(1, rank - 1), 0, rank - 1])
    return moved


@ONNX.importer("Gelu", 1, domain=_DOMAIN)
def import_gelu(ctx: ImportContext) -> Any:
    return ctx.b.Gelu(ctx.input(0))


@ONNX.importer("BiasGelu", 1, domain=_DOMAIN)
def import_bias_gelu(ctx: ImportContext) -> Any:
    """Import BiasGelu: Gelu(x + bias)."""
    return ctx.b.Gelu(ctx.b.Add(ctx.input(0), ctx.input(1)))


@ONNX.importer("FastGelu", 1, domain=_DOMAIN)
def import_fast_gelu(ctx: ImportContext) -> Any:
    """Import FastGelu: the tanh approximation of Gelu(x + bias)."""
    x, bias = ctx.input(0), ctx.optional_input(1)
    return ctx.b.Gelu(x if bias is None else ctx.b.Add(x, bias), approximate="tanh")


@ONNX.importer("QuickGelu", 1, domain=_DOMAIN)
def import_quick_gelu(ctx: ImportContext) -> Any:
    """Import QuickGelu: x * sigmoid(alpha * x)."""
    return ctx.b.Swish(ctx.input(0), alpha=ctx.attribute("alpha", "float", 1.7020000219345093))


@ONNX.importer("SkipLayerNormalization", 1, domain=_DOMAIN)
def import_skip_layer_normalization(ctx: ImportContext) -> list[Value]:
    """Import SkipLayerNormalization: LayerNormalization(x + skip + bias); the last output is x + skip + bias."""
    total = _add_skip(ctx, ctx.optional_input(4))
    op = LayerNormalization(-1, ctx.attribute("epsilon", "float", _EPSILON), outputs=3)
    rest = [x for x in (ctx.optional_input(3),) if x is not None]
    return [*ctx.b.add(op, total, ctx.input(2), *rest), total][: len(ctx.node.outputs)]


@ONNX.importer("SkipSimplifiedLayerNormalization", 1, domain=_DOMAIN)
def import_skip_simplified_layer_normalization(ctx: ImportContext) -> list[Value]:
    """Import SkipSimplifiedLayerNormalization: RMSNormalization(x + skip + bias); the last output is x + skip + bias."""
    total = _add_skip(ctx, ctx.optional_input(3))
    normalized = _rms_normalize(ctx, total, ctx.input(2), -1, ctx.attribute("epsilon", "float", _EPSILON))
    outputs = [normalized, None, None, total][: len(ctx.node.outputs)]
    if any(x is None and key is not None for x, key in zip(outputs, ctx.node.outputs, strict=True)):
        raise _refuse(ctx, "an output of statistics", "onnxruntime does not write the statistics")
    return [total if x is None else x for x in outputs]


@ONNX.importer("SimplifiedLayerNormalization", *range(1, 29))
def import_simplified_layer_normalization(ctx: ImportContext) -> list[Value]:
    """Import SimplifiedLayerNormalization: RMSNormalization, which onnxruntime registers in the default domain."""
    if len(ctx.node.outputs) > 1:
        raise _refuse(ctx, "the second output", "statistics are for training")
    if ctx.attribute("stash_type", "int", 1) != 1:
        raise _refuse(ctx, "stash_type other than 1", "onnxruntime ignores stash_type and computes in f32")
    axis, epsilon = ctx.attribute("axis", "int", -1), ctx.attribute("epsilon", "float", _ONNX_EPSILON)
    return [_rms_normalize(ctx, ctx.input(0), ctx.input(1), axis, epsilon)]


@ONNX.importer("LayerNormalization", *range(1, 17))
def import_layer_normalization(ctx: ImportContext) -> list[Value]:
    """Import LayerNormalization of an opset below 17: onnxruntime registers it from opset 1 on, and saves graphs with it."""
    if ctx.attribute("stash_type", "int", 1) != 1:
        raise _refuse(ctx, "stash_type other than 1", "onnxruntime ignores stash_type and computes in f32")
    axis, epsilon = ctx.attribute("axis", "int", -1), ctx.attribute("epsilon", "float", _ONNX_EPSILON)
    bias = [x for x in (ctx.optional_input(2),) if x is not None]
    op = LayerNormalization(axis, epsilon, outputs=len(ctx.node.outputs))
    return list(ctx.b.add(op, ctx.input(0), ctx.input(1), *bias))


def _add_skip(ctx: ImportContext, bias: Value | None) -> Value:
    total: Value = ctx.b.Add(ctx.input(0), ctx.input(1))
    return total if bias is None else ctx.b.Add(total, bias)


def _rms_normalize(ctx: ImportContext, x: Value, scale: Value, axis: int, epsilon: float) -> Value:
    return ctx.b.add(RMSNormalization(axis, epsilon), x, scale)[0]


@ONNX.importer("EmbedLayerNormalization", 1, domain=_DOMAIN)
def import_embed_layer_normalization(ctx: ImportContext) -> list[Value]:
    """Import EmbedLayerNormalization: LayerNormalization of the sum of word, position and segment embeddings.

    The second output is the number of ones in each row of the mask; the third is the sum of the embeddings.
    """
    b = ctx.b
    ids, segments, words, position_table = ctx.input(0), ctx.optional_input(1), ctx.input(2), ctx.input(3)
    if ctx.attribute("mask_index_type", "int", 0) != 0:
        raise _refuse(ctx, "mask_index_type", "only 0 is supported")
    positions = ctx.optional_input(8)
    if positions is None:
        count = b.Reshape(shape_value(b, ids, [1]), []) if not isinstance(ids.dims[1], int) else b.constant(ids.dims[1])
        positions = b.Range(b.constant(0), count, b.constant(1))
    total = b.Add(b.Gather(words, ids), b.Gather(position_table, positions))
    if segments is not None:
        total = b.Add(total, b.Gather(ctx.input(4), segments))
    op = LayerNormalization(-1, ctx.attribute("epsilon", "float", _EPSILON))
    y = b.add(op, total, ctx.input(5), ctx.input(6))[0]
    mask = ctx.optional_input(7)
    if len(ctx.node.outputs) < 2:
        return [y]
    if mask is None:
        index = b.Expand(b.constant(0, dtypes.i32), shape_value(b, ids, [0]))
    else:
        index = b.ReduceSum(b.Cast(b.Equal(mask, b.constant(1, mask.dtype)), to=dtypes.i32), [1], keepdims=False)
    return [y, index, total][: len(ctx.node.outputs)]


@ONNX.importer("RotaryEmbedding", 1, domain=_DOMAIN)
def import_rotary_embedding(ctx: ImportContext) -> Any:
    b, x, positions = ctx.b, ctx.input(0), ctx.input(1)
    for name in ("is_packed_batching", "scale"):
        if ctx.attribute(name, "float", 1.0 if name == "scale" else 0) != (name == "scale"):
            raise _refuse(ctx, name, "only the default is supported")
    heads, rotary_dim = ctx.attribute("num_heads", "int", 0), ctx.attribute("rotary_embedding_dim", "int", 0)
    if len(x.dims) == 3 and not heads:
        columns = ctx.input(2).dims[1]
        if rotary_dim or not isinstance(columns, int) or not isinstance(x.dims[2], int):
            raise _refuse(ctx, "absent num_heads", "num_heads cannot be computed from static sizes")
        heads = x.dims[2] // (2 * columns)
    if len(positions.dims) == 1:
        rows = x.dims[-2]
        count = b.constant(rows) if isinstance(rows, int) else b.Reshape(shape_value(b, x, [len(x.dims) - 2]), [])
        following = b.Add(b.Range(b.constant(0), count, b.constant(1)), positions)
        target = [*_as_list(shape_value(b, x, [0])), *_as_list(count if not isinstance(rows, int) else rows)]
        positions = b.Expand(b.Unsqueeze(following, [0]), _shape_vector(b, target))
    interleaved = ctx.attribute("interleaved", "bool", False)
    rotated = b.RotaryEmbedding(
        x,
        ctx.input(2),
        ctx.input(3),
        positions,
        num_heads=heads or None,
        rotary_embedding_dim=rotary_dim,
        interleaved=interleaved,
    )
    return rotated


def _as_list(x: object) -> list[Any]:
    return x if isinstance(x, list) else [x]


def _shape_vector(b: Builder, parts: list[Any]) -> Any:
    if all(isinstance(part, int) for part in parts):
        return parts
    pieces = [b.constant([part]) if isinstance(part, int) else b.Reshape(part, [-1]) for part in parts]
    return b.Concat(*pieces, axis=0)


@ONNX.importer("Attention", 1, domain=_DOMAIN)
def import_attention(ctx: ImportContext) -> list[Value]:
    """Import Attention: one matrix product yields query, key and value; past and present stack keys and values in one tensor."""
    b, x, weights, bias, past = ctx.b, ctx.input(0), ctx.input(1), ctx.optional_input(2), ctx.optional_input(4)
    heads = ctx.attribute("num_heads", "int")
    sizes = ctx.attribute("qkv_hidden_sizes", "tuple[int, ...]", None)
    for name in ("do_rotary", "past_present_share_buffer", "rotary_embedding_dim"):
        if ctx.attribute(name, "int", 0):
            raise _refuse(ctx, name, "only the default is supported")
    if ctx.optional_input(6) is not None:
        raise _refuse(ctx, "past_sequence_length", "past and present in one shared buffer")
    product = b.MatMul(x, weights)
    product = product if bias is None else b.Add(product, bias)
    q, k, v = b.Split(product, *([list(sizes)] if sizes else []), axis=-1, outputs=3)
    lengths = [(x, 1), *([(past, 3)] if past is not None else [])]
    added = _attention_bias(
        ctx, ctx.optional_input(3), ctx.optional_input(5), ctx.attribute("mask_filter_value", "float", _FILTER), lengths
    )
    op = Attention(ctx.attribute("unidirectional", "bool", False), _scale(ctx), q_num_heads=heads, kv_num_heads=heads, outputs=3)
    pasts = [b.Squeeze(part, [0]) for part in b.Split(past, axis=0, outputs=2)] if past is not None else []
    y, keys, values = b.add(op, q, k, v, added, *pasts)
    if len(ctx.node.outputs) < 2:
        return [y]
    return [y, b.Concat(b.Unsqueeze(keys, [0]), b.Unsqueeze(values, [0]), axis=0)]


def _scale(ctx: ImportContext) -> float | None:
    """Return the attribute ``scale``; None for the default, which 0 stands for."""
    scale: float | None = ctx.attribute("scale", "float", None)
    return scale or None


def _attention_bias(
    ctx: ImportContext, mask: Value | None, bias: Value | None, mask_filter_value: float, keys: list[tuple[Value, int]]
) -> Value | None:
    """Return the attention bias plus ``mask_filter_value`` for each key that the mask excludes; None for neither.

    A mask [batch, keys] or [batch, rows, keys] excludes the keys at elements below 1; a vector mask has lengths. ``keys`` are
    pairs of a value and an axis; the sum of these axis sizes is the number of keys.
    """
    if mask is None:
        return bias
    b = ctx.b
    kind = ctx.input(0).dtype
    if len(mask.dims) == 1:
        out = _beyond_lengths(ctx, mask, keys)
    elif len(mask.dims) in (2, 3):
        out = b.Less(mask, b.constant(1, mask.dtype))
    else:
        raise _refuse(ctx, "a mask", f"{mask.type}: onnxruntime's CPU kernels support [batch, keys] and [batch, rows, keys]")
    less = b.Where(out, b.constant(np.float32(mask_filter_value), kind), b.constant(0, kind))
    added: Value = b.Unsqueeze(less, [1] if len(mask.dims) == 3 else [1, 2])
    if bias is not None:
        added = b.Add(added, bias)
    return added


def _beyond_lengths(ctx: ImportContext, mask: Value, keys: list[tuple[Value, int]]) -> Value:
    """Return a boolean tensor [batch, keys] of the keys outside the ranges that a mask vector defines.

    The vector has one end index per batch item. For Attention it may have 2 * batch numbers: ends, then starts. It may also have
    3 * batch + 2 numbers: the ends come first, and the others are for kernels with packed rows. For a vector of any other length,
    Gather raises an error at run time.
    """
    b, x = ctx.b, ctx.input(0)
    batch, length = axis_size_of(b, x, 0), axis_size_of(b, mask, 0)
    has_starts = ctx.node.kind == "Attention"
    batch_size, mask_length = x.dims[0], mask.dims[0]
    allowed_lengths = [batch_size, batch_size * 3 + 2, *([batch_size * 2] if has_starts else [])]
    answers = [symbolic.equal(mask_length, allowed) for allowed in allowed_lengths]
    if not any(answer is not False for answer in answers):
        raise _refuse(ctx, "a mask", f"a mask vector must have one of the lengths {allowed_lengths}, got {mask.type}")
    wide = b.Cast(mask, to=dtypes.i64)
    rows = b.Range(b.constant(0), batch, b.constant(1))
    if True not in answers:
        sound = b.Equal(length, b.Add(b.Multiply(batch, b.constant(3)), b.constant(2)))
        for times in (1, 2)[: 1 + has_starts]:
            sound = b.Or(sound, b.Equal(length, b.Multiply(batch, b.constant(times))))
        rows = b.Where(sound, rows, b.constant(2**31 - 1))
    total = reduce(b.Add, (axis_size_of(b, value, axis) for value, axis in keys))
    key_index = b.Range(b.constant(0), total, b.constant(1))
    out: Value = b.GreaterEqual(key_index, b.Unsqueeze(b.Gather(wide, rows), [1]))
    if has_starts and answers[2] is not False:
        # A vector without starts is shorter: its last number is gathered instead, and not used.
        behind = b.Minimum(b.Add(b.Range(b.constant(0), batch, b.constant(1)), batch), b.Subtract(length, b.constant(1)))
        starts = b.Gather(wide, behind)
        if answers[2] is not True:
            starts = b.Where(b.Equal(length, b.Multiply(batch, b.constant(2))), starts, b.constant(0))
        out = b.Or(out, b.Less(key_index, b.Unsqueeze(starts, [1])))
    return out


@ONNX.importer("MultiHeadAttention", 1, domain=_DOMAIN)
def import_multi_head_attention(ctx: ImportContext) -> list[Value]:
    """Import MultiHeadAttention.

    The inputs have one of four forms:

    - query, key and value are [batch, rows, heads * size] each;
    - query, key and value are packed in one tensor [batch, rows, heads, 3, size];
    - key and value are packed in one tensor [batch, keys, heads, 2, size];
    - key and value are split by heads, [batch, heads, keys, size].
    """
    b, heads = ctx.b, ctx.attribute("num_heads", "int")
    q, k, v, bias = _unpack_inputs(ctx, heads)
    if any(ctx.optional_input(index) is not None for index in (8, 9)):
        raise _refuse(ctx, "past_sequence_length", "past and present in one shared buffer")
    in_heads = len(k.dims) == 4
    if bias is not None:
        sizes = [q.dims[2]] * 2 if in_heads else [x.dims[2] for x in (q, k)]
        if not all(isinstance(size, int) for size in sizes):
            raise _refuse(ctx, "bias", "a bias needs static sizes")
        first, second, third = (slice(sizes[0]), slice(sizes[0], sum(sizes)), slice(sum(sizes), None))
        q = b.Add(q, b.index(bias, first))
        if not in_heads:
            # Keys and values that are split by heads already include their bias.
            k, v = b.Add(k, b.index(bias, second)), b.Add(v, b.index(bias, third))
    if in_heads:
        q = split_heads(b, q, heads)
    past = ctx.optional_input(6)
    keys = [(k, -2), *([(past, 2)] if past is not None else [])]
    added = _attention_bias(
        ctx, ctx.optional_input(4), ctx.optional_input(5), ctx.attribute("mask_filter_value", "float", _FILTER), keys
    )
    counts = {} if in_heads else {"q_num_heads": heads, "kv_num_heads": heads}
    count = max(len(ctx.node.outputs), 1)
    causal = ctx.attribute("unidirectional", "bool", False)
    if causal and symbolic.equal(q.dims[-2], k.dims[-2]) is False:
        raise _refuse(
            ctx, "unidirectional", f"onnxruntime aligns the causal mask of {q.dims[-2]} rows to the last of {k.dims[-2]} keys"
        )
    op = Attention(causal, _scale(ctx), qk_matmul_output_mode="masked", outputs=count, **counts)
    y, *rest = b.add(op, q, k, v, added, past, ctx.optional_input(7))
    return [b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, 0, -1]) if in_heads else y, *rest]


def _unpack_inputs(ctx: ImportContext, heads: int) -> tuple[Value, Value, Value, Value | None]:
    """Return the unpacked query, key and value, and the bias."""
    b = ctx.b
    q, k, v, bias = ctx.input(0), ctx.optional_input(1), ctx.optional_input(2), ctx.optional_input(3)
    if k is None and v is None and len(q.dims) == 5:
        q, k, v = (b.Reshape(b.Squeeze(x, [3]), [0, 0, -1]) for x in b.Split(q, axis=3, outputs=3))
    elif k is not None and v is None and len(q.dims) == 3 and len(k.dims) == 5 and bias is None:
        k, v = (b.Reshape(b.Squeeze(x, [3]), [0, 0, -1]) for x in b.Split(k, axis=3, outputs=2))
    if k is None or v is None or len(q.dims) != 3 or (len(k.dims), len(v.dims)) not in ((3, 3), (4, 4)):
        raise _refuse(ctx, "this form of inputs", "onnxruntime does not document it")
    if len(k.dims) == 4 and ctx.optional_input(6) is not None:
        raise _refuse(ctx, "past_key", "keys that are split by heads must not have a past")
    return q, k, v, bias
