"""What onnxruntime's optimisers leave in transformers: operators of the domain com.microsoft, as its documentation has them."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import Lifting
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Value
from dovetail.ops.attention.attention import Attention
from dovetail.ops.attention.heads import axis_size_of, split_heads
from dovetail.ops.nn.normalization import LayerNormalization, RMSNormalization

_DOMAIN = "com.microsoft"
_EPSILON = 9.999999960041972e-13
_ONNX_EPSILON = 9.999999747378752e-06
_FILTER = -10000.0


def _refuse(node: Lifting, name: str, reason: str) -> UnsupportedError:
    return UnsupportedError("attribute.value", f"{node.node.kind} with {name}: {reason}")


@ONNX.lift("FusedMatMul", 1, domain=_DOMAIN)
def fused_matmul(node: Lifting) -> Value:
    for name in ("transBatchA", "transBatchB"):
        if node.attribute(name, "bool", False):
            raise _refuse(node, name, "batches that are turned")
    left, right = (node.attribute(name, "bool", False) for name in ("transA", "transB"))
    product: Value = node.b.MatMul(node.input(0), node.input(1), transpose_a=left, transpose_b=right)
    alpha = node.attribute("alpha", "float", 1.0)
    return product if alpha == 1 else node.b.Multiply(product, node.b.constant(alpha, product.dtype))


@ONNX.lift("Gelu", 1, domain=_DOMAIN)
def gelu(node: Lifting) -> Any:
    return node.b.Gelu(node.input(0))


@ONNX.lift("BiasGelu", 1, domain=_DOMAIN)
def bias_gelu(node: Lifting) -> Any:
    return node.b.Gelu(node.b.Add(node.input(0), node.input(1)))


@ONNX.lift("FastGelu", 1, domain=_DOMAIN)
def fast_gelu(node: Lifting) -> Any:
    x, bias = node.input(0), node.optional(1)
    return node.b.Gelu(x if bias is None else node.b.Add(x, bias), approximate="tanh")


@ONNX.lift("QuickGelu", 1, domain=_DOMAIN)
def quick_gelu(node: Lifting) -> Any:
    return node.b.Swish(node.input(0), alpha=node.attribute("alpha", "float", 1.7020000219345093))


@ONNX.lift("SkipLayerNormalization", 1, domain=_DOMAIN)
def skip_layer_normalization(node: Lifting) -> list[Value]:
    total = _skipped(node, node.optional(4))
    op = LayerNormalization(-1, node.attribute("epsilon", "float", _EPSILON), outputs=3)
    rest = [x for x in (node.optional(3),) if x is not None]
    return [*node.b.add(op, total, node.input(2), *rest), total][: len(node.node.outputs)]


@ONNX.lift("SkipSimplifiedLayerNormalization", 1, domain=_DOMAIN)
def skip_simplified_layer_normalization(node: Lifting) -> list[Value]:
    total = _skipped(node, node.optional(3))
    made = _simplified(node, total, node.input(2), -1, node.attribute("epsilon", "float", _EPSILON))
    outputs = [made, None, None, total][: len(node.node.outputs)]
    if any(x is None and key is not None for x, key in zip(outputs, node.node.outputs, strict=True)):
        raise _refuse(node, "its statistics", "onnxruntime leaves them unwritten")
    return [total if x is None else x for x in outputs]


@ONNX.lift("SimplifiedLayerNormalization", *range(1, 29))
def simplified_layer_normalization(node: Lifting) -> list[Value]:
    if len(node.node.outputs) > 1:
        raise _refuse(node, "2 outputs", "its statistics are for training")
    if node.attribute("stash_type", "int", 1) != 1:
        raise _refuse(node, "stash_type", "onnxruntime computes in f32 whatever it says")
    axis, epsilon = node.attribute("axis", "int", -1), node.attribute("epsilon", "float", _ONNX_EPSILON)
    return [_simplified(node, node.input(0), node.input(1), axis, epsilon)]


def _skipped(node: Lifting, bias: Value | None) -> Value:
    total: Value = node.b.Add(node.input(0), node.input(1))
    return total if bias is None else node.b.Add(total, bias)


def _simplified(node: Lifting, x: Value, scale: Value, axis: int, epsilon: float) -> Value:
    return node.b.add(RMSNormalization(axis, epsilon), x, scale)[0]


@ONNX.lift("EmbedLayerNormalization", 1, domain=_DOMAIN)
def embed_layer_normalization(node: Lifting) -> list[Value]:
    b = node.b
    ids, segments, words, places = node.input(0), node.optional(1), node.input(2), node.input(3)
    if node.attribute("mask_index_type", "int", 0) != 0:
        raise _refuse(node, "mask_index_type", "a mask index of another kind")
    positions = node.optional(8)
    if positions is None:
        count = b.Reshape(shape_value(b, ids, [1]), []) if not isinstance(ids.dims[1], int) else b.constant(ids.dims[1])
        positions = b.Range(b.constant(0), count, b.constant(1))
    total = b.Add(b.Gather(words, ids), b.Gather(places, positions))
    if segments is not None:
        total = b.Add(total, b.Gather(node.input(4), segments))
    op = LayerNormalization(-1, node.attribute("epsilon", "float", _EPSILON))
    y = b.add(op, total, node.input(5), node.input(6))[0]
    mask = node.optional(7)
    if len(node.node.outputs) < 2:
        return [y]
    if mask is None:
        index = b.Expand(b.constant(0, dtypes.i32), shape_value(b, ids, [0]))
    else:
        index = b.ReduceSum(b.Cast(b.Equal(mask, b.constant(1, mask.dtype)), to=dtypes.i32), [1], keepdims=False)
    return [y, index, total][: len(node.node.outputs)]


@ONNX.lift("RotaryEmbedding", 1, domain=_DOMAIN)
def rotary_embedding(node: Lifting) -> Any:
    b, x, positions = node.b, node.input(0), node.input(1)
    for name in ("is_packed_batching", "scale"):
        if node.attribute(name, "float", 1.0 if name == "scale" else 0) != (name == "scale"):
            raise _refuse(node, name, "another form")
    heads, turned = node.attribute("num_heads", "int", 0), node.attribute("rotary_embedding_dim", "int", 0)
    if len(x.dims) == 3 and not heads:
        columns = node.input(2).dims[1]
        if turned or not isinstance(columns, int) or not isinstance(x.dims[2], int):
            raise _refuse(node, "num_heads", "a number of heads that does not follow from the sizes")
        heads = x.dims[2] // (2 * columns)
    if len(positions.dims) == 1:
        rows = x.dims[-2]
        count = b.constant(rows) if isinstance(rows, int) else b.Reshape(shape_value(b, x, [len(x.dims) - 2]), [])
        following = b.Add(b.Range(b.constant(0), count, b.constant(1)), positions)
        target = [*_list(shape_value(b, x, [0])), *_list(count if not isinstance(rows, int) else rows)]
        positions = b.Expand(b.Unsqueeze(following, [0]), _vector(b, target))
    interleaved = node.attribute("interleaved", "bool", False)
    found = b.RotaryEmbedding(
        x, node.input(2), node.input(3), positions, num_heads=heads or None, rotary_embedding_dim=turned, interleaved=interleaved
    )
    return found


def _list(x: Any) -> list[Any]:
    return x if isinstance(x, list) else [x]


def _vector(b: Any, parts: list[Any]) -> Any:
    if all(isinstance(part, int) for part in parts):
        return parts
    pieces = [b.constant([part]) if isinstance(part, int) else b.Reshape(part, [-1]) for part in parts]
    return b.Concat(*pieces, axis=0)


@ONNX.lift("Attention", 1, domain=_DOMAIN)
def attention(node: Lifting) -> list[Value]:
    """Query, key and value from one product; a past and a present with the keys and values in one tensor."""
    b, x, weights, bias, past = node.b, node.input(0), node.input(1), node.optional(2), node.optional(4)
    heads = node.attribute("num_heads", "int")
    sizes = node.attribute("qkv_hidden_sizes", "tuple[int, ...]", None)
    for name in ("do_rotary", "past_present_share_buffer", "rotary_embedding_dim"):
        if node.attribute(name, "int", 0):
            raise _refuse(node, name, "another form")
    if node.optional(6) is not None:
        raise _refuse(node, "past_sequence_length", "a past in a buffer")
    product = b.MatMul(x, weights)
    product = product if bias is None else b.Add(product, bias)
    q, k, v = b.Split(product, *([list(sizes)] if sizes else []), axis=-1, outputs=3)
    lengths = [(x, 1), *([(past, 3)] if past is not None else [])]
    added = _added(node, node.optional(3), node.optional(5), node.attribute("mask_filter_value", "float", _FILTER), lengths)
    op = Attention(
        node.attribute("unidirectional", "bool", False), _scale(node), q_num_heads=heads, kv_num_heads=heads, outputs=3
    )
    pasts = [b.Squeeze(each, [0]) for each in b.Split(past, axis=0, outputs=2)] if past is not None else []
    y, keys, values = b.add(op, q, k, v, added, *pasts)
    if len(node.node.outputs) < 2:
        return [y]
    return [y, b.Concat(b.Unsqueeze(keys, [0]), b.Unsqueeze(values, [0]), axis=0)]


def _scale(node: Lifting) -> float | None:
    """A scale of 0 is none."""
    scale: float | None = node.attribute("scale", "float", None)
    return scale or None


def _added(node: Lifting, mask: Value | None, bias: Value | None, least: float, keys: list[tuple[Value, int]]) -> Value | None:
    """The bias, and ``least`` for each key that the mask leaves out, as what is added to the scores.

    A mask [batch, keys] or [batch, rows, keys] leaves out keys where it is not positive; a vector is a mask of lengths. The
    lengths of ``keys``, each a value and an axis, add up to the number of keys.
    """
    if mask is None:
        return bias
    b = node.b
    kind = node.input(0).dtype
    if len(mask.dims) == 1:
        out = _beyond_lengths(node, mask, keys)
    elif len(mask.dims) in (2, 3):
        out = b.Less(mask, b.constant(1, mask.dtype))
    else:
        raise _refuse(node, "a mask", f"{mask.type}: onnxruntime's CPU kernels take [batch, keys] and [batch, rows, keys]")
    less = b.Where(out, b.constant(np.float32(least), kind), b.constant(0, kind))
    found: Value = b.Unsqueeze(less, [1] if len(mask.dims) == 3 else [1, 2])
    if bias is not None:
        found = b.Add(found, bias)
    return found


def _beyond_lengths(node: Lifting, mask: Value, keys: list[tuple[Value, int]]) -> Value:
    """Which keys [batch, keys] lie outside of what a vector says: where each row of the batch ends, and in one of 2 * batch
    numbers (of Attention) then where each begins. In one of 3 * batch + 2 numbers the ends come first; the rest is for kernels
    that pack their rows. Another length is refused by Gather when it runs.
    """
    b, x = node.b, node.input(0)
    batch, length = axis_size_of(b, x, 0), axis_size_of(b, mask, 0)
    has_starts = node.node.kind == "Attention"
    known = x.dims[0], mask.dims[0]
    forms = [known[0], known[0] * 3 + 2, *([known[0] * 2] if has_starts else [])]
    answers = [symbolic.equal(known[1], form) for form in forms]
    if not any(answer is not False for answer in answers):
        raise _refuse(node, "a mask", f"{mask.type} for a batch of {known[0]}")
    wide = b.Cast(mask, to=dtypes.i64)
    rows = b.Range(b.constant(0), batch, b.constant(1))
    if True not in answers:
        sound = b.Equal(length, b.Add(b.Multiply(batch, b.constant(3)), b.constant(2)))
        for times in (1, 2)[: 1 + has_starts]:
            sound = b.Or(sound, b.Equal(length, b.Multiply(batch, b.constant(times))))
        rows = b.Where(sound, rows, b.constant(2**31 - 1))
    total = reduce(b.Add, (axis_size_of(b, value, axis) for value, axis in keys))
    place = b.Range(b.constant(0), total, b.constant(1))
    out: Value = b.GreaterEqual(place, b.Unsqueeze(b.Gather(wide, rows), [1]))
    if has_starts and answers[2] is not False:
        # A vector without starts is long enough for none: its last number is read in their place, and not used.
        behind = b.Minimum(b.Add(b.Range(b.constant(0), batch, b.constant(1)), batch), b.Subtract(length, b.constant(1)))
        starts = b.Gather(wide, behind)
        if answers[2] is not True:
            starts = b.Where(b.Equal(length, b.Multiply(batch, b.constant(2))), starts, b.constant(0))
        out = b.Or(out, b.Less(place, b.Unsqueeze(starts, [1])))
    return out


@ONNX.lift("MultiHeadAttention", 1, domain=_DOMAIN)
def multi_head_attention(node: Lifting) -> list[Value]:
    """Query, key and value, [batch, rows, heads * size] each; or in one tensor [batch, rows, heads, 3, size]; or key and value in
    one, [batch, keys, heads, 2, size]; or these in heads, [batch, heads, keys, size]."""
    b, heads = node.b, node.attribute("num_heads", "int")
    q, k, v, bias = _parts(node, heads)
    if any(node.optional(place) is not None for place in (8, 9)):
        raise _refuse(node, "past_sequence_length", "a past in a buffer")
    in_heads = len(k.dims) == 4
    if bias is not None:
        sizes = [q.dims[2]] * 2 if in_heads else [x.dims[2] for x in (q, k)]
        if not all(isinstance(size, int) for size in sizes):
            raise _refuse(node, "bias", "sizes that are not known")
        first, second, third = (slice(sizes[0]), slice(sizes[0], sum(sizes)), slice(sum(sizes), None))
        q = b.Add(q, b.index(bias, first))
        if not in_heads:
            # Keys and values in heads come from elsewhere, and have had theirs.
            k, v = b.Add(k, b.index(bias, second)), b.Add(v, b.index(bias, third))
    if in_heads:
        q = split_heads(b, q, heads)
    past = node.optional(6)
    keys = [(k, -2), *([(past, 2)] if past is not None else [])]
    added = _added(node, node.optional(4), node.optional(5), node.attribute("mask_filter_value", "float", _FILTER), keys)
    counts = {} if in_heads else {"q_num_heads": heads, "kv_num_heads": heads}
    count = max(len(node.node.outputs), 1)
    causal = node.attribute("unidirectional", "bool", False)
    if causal and symbolic.equal(q.dims[-2], k.dims[-2]) is False:
        raise _refuse(
            node, "unidirectional", f"{q.dims[-2]} rows and {k.dims[-2]} keys, of which onnxruntime shows the last row all"
        )
    op = Attention(causal, _scale(node), qk_matmul_output_mode="masked", outputs=count, **counts)
    y, *rest = b.add(op, q, k, v, added, past, node.optional(7))
    return [b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, 0, -1]) if in_heads else y, *rest]


def _parts(node: Lifting, heads: int) -> tuple[Value, Value, Value, Value | None]:
    """Query, key and value, taken out of what they are packed in, and the bias."""
    b = node.b
    q, k, v, bias = node.input(0), node.optional(1), node.optional(2), node.optional(3)
    if k is None and v is None and len(q.dims) == 5:
        q, k, v = (b.Reshape(b.Squeeze(x, [3]), [0, 0, -1]) for x in b.Split(q, axis=3, outputs=3))
    elif k is not None and v is None and len(q.dims) == 3 and len(k.dims) == 5 and bias is None:
        k, v = (b.Reshape(b.Squeeze(x, [3]), [0, 0, -1]) for x in b.Split(k, axis=3, outputs=2))
    if k is None or v is None or len(q.dims) != 3 or (len(k.dims), len(v.dims)) not in ((3, 3), (4, 4)):
        raise _refuse(node, "its inputs", "a form that onnxruntime does not speak of")
    if len(k.dims) == 4 and node.optional(6) is not None:
        raise _refuse(node, "past_key", "keys that come in heads already have no past")
    return q, k, v, bias
