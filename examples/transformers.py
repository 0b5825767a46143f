"""Transformers of the usual sizes with seeded random weights, written with the Builder: an encoder and a decoder with a cache."""

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
