"""Transformers of the usual sizes with seeded random weights, written with the Builder: an encoder, and decoders with a cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model, Value


class Weights:
    """Seeded weights, scaled so that the signal keeps its size."""

    def __init__(self, b: Builder, seed: int) -> None:
        self.b = b
        self.generator = np.random.default_rng(seed)

    def array(self, *shape: int) -> Any:
        return self.generator.standard_normal(shape, np.float32)

    def matrix(self, rows: int, columns: int) -> Value:
        weight = self.generator.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(rows))
        return self.b.constant(weight)

    def vector(self, size: int, centre: float = 0.0) -> Value:
        return self.b.constant(np.float32(centre) + self.generator.standard_normal(size, np.float32) * np.float32(0.1))

    def linear(self, x: Value, rows: int, columns: int) -> Value:
        return self.b.Add(self.b.MatMul(x, self.matrix(rows, columns)), self.vector(columns))


def encoder(
    layers: int = 12, width: int = 768, heads: int = 12, inner: int = 3072, length: Any = "length", seed: int = 0
) -> Model:
    """BERT's encoder: ``x`` f32 [batch, length, width] to ``y`` of the same shape. The default sizes are those of BERT-base."""
    with Builder("encoder") as b:
        w = Weights(b, seed)
        x = b.input("x", "f32", ("batch", length, width))
        y = x
        for _ in range(layers):
            y = encoder_layer(b, w, y, width, heads, inner)
        b.output("y", y)
    return b.model


def encoder_layer(b: Builder, w: Weights, x: Value, width: int, heads: int, inner: int) -> Value:
    """Return attention and a feed-forward network of ``x`` f32 [batch, length, width], each with a residual, normalized."""
    y = _norm(b, w, b.Add(x, _attention(b, w, x, width, heads)), width)
    inside = b.Gelu(w.linear(y, width, inner))
    return _norm(b, w, b.Add(y, w.linear(inside, inner, width)), width)


def _norm(b: Builder, w: Weights, x: Value, width: int) -> Value:
    found: Value = b.LayerNormalization(x, w.vector(width, 1.0), w.vector(width), axis=-1, epsilon=1e-12)
    return found


def _attention(b: Builder, w: Weights, x: Value, width: int, heads: int) -> Value:
    q, k, v = (_heads(b, w.linear(x, width, width), width, heads) for _ in range(3))
    scores = b.Divide(b.MatMul(q, b.Transpose(k, [0, 1, 3, 2])), np.float32(np.sqrt(width // heads)))
    mixed = b.MatMul(b.Softmax(scores, axis=-1), v)
    joined = b.Reshape(b.Transpose(mixed, [0, 2, 1, 3]), [0, 0, width])
    return w.linear(joined, width, width)


def _heads(b: Builder, x: Value, width: int, heads: int) -> Value:
    """[batch, length, width] to [batch, heads, length, width / heads]."""
    found: Value = b.Transpose(b.Reshape(x, [0, 0, heads, width // heads]), [0, 2, 1, 3])
    return found


def decoder(layers: int = 4, width: int = 1024, heads: int = 16, inner: int = 2816, seed: int = 0) -> Model:
    """A stack of decoder layers for one new token: ``x`` f32 [1, 1, width], and per layer the keys and values of the tokens
    before, [heads, past, width / heads], to which its own are appended. RMS normalisation, rotary positions (``cos``, ``sin`` f32
    [1, width / heads]), a gated inner layer.
    """
    size = width // heads
    with Builder("decoder") as b:
        w = Weights(b, seed)
        y = b.input("x", "f32", (1, 1, width))
        cos, sin = b.input("cos", "f32", (1, size)), b.input("sin", "f32", (1, size))
        caches = []
        for layer in range(layers):
            keys = b.input(f"keys_{layer}", "f32", (heads, "past", size))
            values = b.input(f"values_{layer}", "f32", (heads, "past", size))
            z = _root_mean_square(b, w, y, width)
            q, k, v = (b.Reshape(b.MatMul(z, w.matrix(width, width)), [heads, 1, size]) for _ in range(3))
            keys = b.Concat(keys, _rotated(b, k, cos, sin), axis=1)
            values = b.Concat(values, v, axis=1)
            scores = b.Multiply(b.MatMul(_rotated(b, q, cos, sin), b.Transpose(keys, [0, 2, 1])), np.float32(size**-0.5))
            mixed = b.Reshape(b.MatMul(b.Softmax(scores, axis=-1), values), [1, 1, width])
            y = b.Add(y, b.MatMul(mixed, w.matrix(width, width)))
            z = _root_mean_square(b, w, y, width)
            gate = b.MatMul(z, w.matrix(width, inner))
            gated = b.Multiply(b.Multiply(gate, b.Sigmoid(gate)), b.MatMul(z, w.matrix(width, inner)))
            y = b.Add(y, b.MatMul(gated, w.matrix(inner, width)))
            caches += [(f"keys_{layer}_next", keys), (f"values_{layer}_next", values)]
        b.output("y", y)
        for name, value in caches:
            b.output(name, value)
    return b.model


ATTENTION = ("parts", "Attention", "GroupQueryAttention")
"""The forms in which ``llama`` writes attention: Concat, MatMul and Softmax, or one operator."""


def llama(
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    groups: int = 2,
    inner: int = 128,
    vocabulary: int = 256,
    attention: str = "parts",
    positions: int = 4096,
    seed: int = 0,
) -> Model:
    """Return a Llama with caches: ``input_ids`` i64 [batch, t] to ``logits`` f32 [batch, t, vocabulary].

    For each layer, ``past_key_values.N.key`` and ``.value`` [batch, groups, past, width / heads] become ``present.N.key`` and
    ``.value``. ``groups`` heads of keys and values serve ``heads`` heads of queries. ``attention`` is one of ATTENTION;
    GroupQueryAttention has its lengths from ``attention_mask`` i64 [batch, total], as onnxruntime's exporter writes it.
    """
    size = width // heads
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    with Builder("llama") as b:
        w = Weights(b, seed)
        ids = b.input("input_ids", "i64", ("batch", "t"))
        lengths = []
        if attention == "GroupQueryAttention":
            mask = b.input("attention_mask", "i64", ("batch", "total"))
            last = b.Subtract(b.ReduceSum(mask, [1], keepdims=False), b.constant(1))
            lengths = [b.Cast(x, to="i32") for x in (last, b.Gather(b.Shape(mask), b.constant(1), axis=0))]
        shape = ("batch", groups, "past", size)
        caches = [[b.input(f"past_key_values.{i}.{kind}", "f32", shape) for kind in ("key", "value")] for i in range(layers)]
        tables = [b.constant(function(angles).astype(np.float32)) for function in (np.cos, np.sin)]
        start, rows = (b.Gather(b.Shape(x), b.constant(axis), axis=0) for x, axis in ((caches[0][0], 2), (ids, 1)))
        places = b.Range(start, b.Add(start, rows), b.constant(1))
        cos, sin = (b.Unsqueeze(b.Gather(table, places, axis=0), [0, 1]) for table in tables)
        # Row i of a step attends to the keys of the past and to those up to its own.
        seen = b.LessEqual(b.Range(b.constant(0), b.Add(start, rows), b.constant(1)), b.Unsqueeze(places, [1]))
        words = w.matrix(vocabulary, width)
        y = b.Gather(words, ids, axis=0)
        presents = []
        for key, value in caches:
            z = b.RMSNormalization(y, w.vector(width, 1.0), epsilon=1e-5)
            q, k, v = (b.MatMul(z, w.matrix(width, columns)) for columns in (width, groups * size, groups * size))
            if attention == "GroupQueryAttention":
                mixed, *present = b.GroupQueryAttention(
                    q, k, v, key, value, *lengths, *tables, num_heads=heads, kv_num_heads=groups, do_rotary=True, outputs=3
                )
            else:
                q, k, v = (_heads(b, x, size * n, n) for x, n in ((q, heads), (k, groups), (v, groups)))
                q, k = (_rotated_halves(b, x, cos, sin) for x in (q, k))
                if attention == "Attention":
                    mixed, *present = b.Attention(q, k, v, None, key, value, is_causal=True, outputs=3)
                else:
                    present = [b.Concat(key, k, axis=2), b.Concat(value, v, axis=2)]
                    keys, values = (_repeated(b, x, heads // groups, groups, size) for x in present)
                    scores = b.Multiply(b.MatMul(q, b.Transpose(keys, [0, 1, 3, 2])), np.float32(size**-0.5))
                    scores = b.Where(seen, scores, np.float32(np.finfo(np.float32).min))
                    mixed = b.MatMul(b.Softmax(scores, axis=-1), values)
                mixed = b.Reshape(b.Transpose(mixed, [0, 2, 1, 3]), [0, 0, width])
            presents += present
            y = b.Add(y, b.MatMul(mixed, w.matrix(width, width)))
            z = b.RMSNormalization(y, w.vector(width, 1.0), epsilon=1e-5)
            gate = b.MatMul(z, w.matrix(width, inner))
            y = b.Add(y, b.MatMul(b.Multiply(b.Swish(gate), b.MatMul(z, w.matrix(width, inner))), w.matrix(inner, width)))
        z = b.RMSNormalization(y, w.vector(width, 1.0), epsilon=1e-5)
        b.output("logits", b.MatMul(z, b.Transpose(words, [1, 0])))
        for index, present in enumerate(presents):
            b.output(f"present.{index // 2}.{('key', 'value')[index % 2]}", present)
    return b.model


def _repeated(b: Builder, x: Value, times: int, groups: int, size: int) -> Value:
    """Return [batch, groups * times, length, size] with each head of ``x`` repeated ``times`` times."""
    shape = b.Concat(b.Gather(b.Shape(x), [0, 1], axis=0), [times], b.Gather(b.Shape(x), [2, 3], axis=0), axis=0)
    found: Value = b.Reshape(b.Expand(b.Unsqueeze(x, [2]), shape), [0, groups * times, -1, size])
    return found


def _rotated_halves(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """Rotate pairs of columns of both halves of ``x`` by the angles of each row."""
    first, second = b.Split(x, outputs=2, axis=-1)
    parts = b.Subtract(b.Multiply(first, cos), b.Multiply(second, sin)), b.Add(b.Multiply(first, sin), b.Multiply(second, cos))
    found: Value = b.Concat(*parts, axis=-1)
    return found


def _root_mean_square(b: Builder, w: Weights, x: Value, width: int) -> Value:
    """As exporters write it: its parts."""
    mean = b.ReduceMean(b.Multiply(x, x), [-1], keepdims=True)
    found: Value = b.Multiply(b.Divide(x, b.Sqrt(b.Add(mean, np.float32(1e-6)))), w.vector(width, 1.0))
    return found


def _rotated(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    first, second = b.Split(x, outputs=2, axis=-1)
    turned = b.Concat(b.Negative(second), first, axis=-1)
    found: Value = b.Add(b.Multiply(x, cos), b.Multiply(turned, sin))
    return found
