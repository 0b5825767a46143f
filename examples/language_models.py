"""Language models of known sizes with seeded random weights, in the forms that torch's exporters leave.

Each gives the ONNX model and inputs for one run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx_writing import FLOAT, INT64, Writer

Made = tuple[onnx.ModelProto, dict[str, Any]]


def bert(
    layers: int = 12, width: int = 768, heads: int = 12, inner: int = 3072, vocabulary: int = 30522, length: int = 128
) -> Made:
    """BERT-base: token ids, a mask of what is there and token types to hidden states and the pooled first one."""
    w = Writer()
    ids, mask, types = (w.input(name, INT64, ("batch", "length")) for name in ("input_ids", "attention_mask", "token_type_ids"))
    bias = w.Cast(w.Unsqueeze(w.Unsqueeze(mask, [1]), [2]), to=FLOAT)
    bias = w.Mul(w.Sub(1.0, bias), float(np.finfo(np.float32).min))
    y = w.Add(w.Gather(_table(w, vocabulary, width), ids), w.Gather(_table(w, 2, width), types))
    places = w.Slice(np.arange(512)[None], [0], w.Gather(w.Shape(ids), [1], axis=0), [1], [1])
    y = w.layer_norm(w.Add(y, w.Gather(_table(w, 512, width), places)), width, 1e-12)
    size = width // heads
    for _ in range(layers):
        q = w.heads(w.linear(y, width, width), heads, size)
        k = w.heads(w.linear(y, width, width), heads, size, (0, 2, 3, 1))
        v = w.heads(w.linear(y, width, width), heads, size)
        scores = w.Add(w.Div(w.MatMul(q, k), float(np.sqrt(size))), bias)
        mixed = w.Transpose(w.MatMul(w.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = w.layer_norm(w.Add(w.linear(w.Reshape(mixed, [0, 0, width]), width, width), y), width, 1e-12)
        inside = w.gelu(w.linear(y, width, inner))
        y = w.layer_norm(w.Add(w.linear(inside, inner, width), y), width, 1e-12)
    w.output(y, "last_hidden_state", shape=("batch", "length", width))
    first = w.Gather(y, 0, axis=1)
    pooled = w.Tanh(w.Gemm(first, w.normal(width, width, fan_in=width), w.vector(width), transB=1))
    w.output(pooled, "pooler_output", shape=("batch", width))
    tokens = w.generator.integers(0, vocabulary, (1, length))
    there = np.ones((1, length), np.int64)
    there[:, length - length // 8 :] = 0
    return w.model(), {"input_ids": tokens, "attention_mask": there, "token_type_ids": np.zeros((1, length), np.int64)}


def gpt2(layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50257, past: int = 511) -> Made:
    """GPT-2 small, one token after ``past`` others whose keys and values come in and go out again with its own."""
    w = Writer()
    ids = w.input("input_ids", INT64, ("batch", "length"))
    size, positions = width // heads, 1024
    shape = ("batch", heads, "past", size)
    caches = [[w.input(f"past_key_values.{i}.{kind}", FLOAT, shape) for kind in ("key", "value")] for i in range(layers)]
    before = w.Gather(w.Shape(caches[0][0]), [2], axis=0)
    total = w.Add(before, w.Gather(w.Shape(ids), [1], axis=0))
    places = w.Unsqueeze(w.Range(w.Squeeze(before, [0]), w.Squeeze(total, [0]), 1), [0])
    words = _table(w, vocabulary, width)
    causal = w.constant(np.tril(np.ones((1, 1, positions, positions), bool)))
    y = w.Add(w.Gather(words, ids), w.Gather(_table(w, positions, width), places))
    presents = []
    for key, value in caches:
        z = w.layer_norm(y, width)
        q, k, v = w.Split(_conv1d(w, z, width, 3 * width), [width] * 3, axis=2, outputs=3)
        key = w.Concat(key, w.heads(k, heads, size), axis=2)
        value = w.Concat(value, w.heads(v, heads, size), axis=2)
        presents += [key, value]
        scores = w.Div(w.MatMul(w.heads(q, heads, size), w.Transpose(key, perm=[0, 1, 3, 2])), float(np.sqrt(size)))
        seen = w.Slice(w.Slice(causal, before, total, [2], [1]), [0], total, [3], [1])
        scores = w.Where(seen, scores, float(np.finfo(np.float32).min))
        mixed = w.Transpose(w.MatMul(w.Softmax(scores, axis=-1), value), perm=[0, 2, 1, 3])
        y = w.Add(_conv1d(w, w.Reshape(mixed, [0, 0, width]), width, width), y)
        inside = _gelu_tanh(w, _conv1d(w, w.layer_norm(y, width), width, 4 * width))
        y = w.Add(y, _conv1d(w, inside, 4 * width, width))
    logits = w.MatMul(w.layer_norm(y, width), w.Transpose(words, perm=[1, 0]))
    w.output(logits, "logits", shape=("batch", "length", vocabulary))
    for i, present in enumerate(presents):
        w.output(present, f"present.{i // 2}.{('key', 'value')[i % 2]}", shape=("batch", heads, "total", size))
    feed: dict[str, Any] = {"input_ids": w.generator.integers(0, vocabulary, (1, 1))}
    for key, value in caches:
        feed |= {name: w.generator.standard_normal((1, heads, past, size), np.float32) for name in (key, value)}
    return w.model(), feed


def _table(w: Writer, rows: int, width: int) -> str:
    return w.constant(w.normal(rows, width, fan_in=width))


def _conv1d(w: Writer, x: str, rows: int, columns: int) -> str:
    """GPT-2's linear layer: a product of two axes between Reshapes."""
    flat = w.Gemm(w.Reshape(x, [-1, rows]), w.normal(rows, columns, fan_in=rows), w.vector(columns))
    size = w.Concat(w.Slice(w.Shape(x), [0], [2], [0]), [columns], axis=0)
    return w.Reshape(flat, size)


def _gelu_tanh(w: Writer, x: str) -> str:
    inside = w.Mul(w.Add(x, w.Mul(w.Pow(x, 3.0), 0.044715)), float(np.sqrt(2 / np.pi)))
    return w.Mul(w.Mul(x, 0.5), w.Add(w.Tanh(inside), 1.0))


def llama(
    layers: int = 30,
    width: int = 576,
    heads: int = 9,
    groups: int = 3,
    inner: int = 1536,
    vocabulary: int = 49152,
    past: int = 511,
) -> Made:
    """A small Llama (SmolLM-135M's sizes), one token after ``past`` others: RMS normalisation, rotary positions, ``groups`` heads
    of keys and values that are repeated for the queries'."""
    w = Writer()
    ids, places = (w.input(name, INT64, ("batch", "length")) for name in ("input_ids", "position_ids"))
    mask = w.input("attention_mask", INT64, ("batch", "total"))
    size = width // heads
    shape = ("batch", groups, "past", size)
    caches = [[w.input(f"past_key_values.{i}.{kind}", FLOAT, shape) for kind in ("key", "value")] for i in range(layers)]
    words = _table(w, vocabulary, width)
    y = w.Gather(words, ids)
    there = w.Unsqueeze(w.Cast(mask, to=FLOAT), [1, 2])
    bias = w.Mul(w.Sub(1.0, there), float(np.finfo(np.float32).min))
    frequencies = (10000.0 ** (-np.arange(0, size, 2) / size)).astype(np.float32)
    angles = w.Mul(w.Unsqueeze(w.Cast(places, to=FLOAT), [2]), frequencies)
    angles = w.Unsqueeze(w.Concat(angles, angles, axis=-1), [1])
    cos, sin = w.Cos(angles), w.Sin(angles)
    presents = []
    for key, value in caches:
        z = _root_mean_square(w, y, width)
        q = _rotated(w, w.heads(_product(w, z, width, width), heads, size), cos, sin, size)
        k = _rotated(w, w.heads(_product(w, z, width, groups * size), groups, size), cos, sin, size)
        key = w.Concat(key, k, axis=2)
        value = w.Concat(value, w.heads(_product(w, z, width, groups * size), groups, size), axis=2)
        presents += [key, value]
        keys, values = (_repeated(w, each, heads // groups, groups, size) for each in (key, value))
        scores = w.Mul(w.MatMul(q, w.Transpose(keys, perm=[0, 1, 3, 2])), float(size**-0.5))
        mixed = w.MatMul(w.Softmax(w.Add(scores, bias), axis=-1), values)
        mixed = w.Reshape(w.Transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, width])
        y = w.Add(y, _product(w, mixed, width, width))
        z = _root_mean_square(w, y, width)
        gate = _product(w, z, width, inner)
        gated = w.Mul(w.Mul(gate, w.Sigmoid(gate)), _product(w, z, width, inner))
        y = w.Add(y, _product(w, gated, inner, width))
    logits = w.MatMul(_root_mean_square(w, y, width), w.Transpose(words, perm=[1, 0]))
    w.output(logits, "logits", shape=("batch", "length", vocabulary))
    for i, present in enumerate(presents):
        w.output(present, f"present.{i // 2}.{('key', 'value')[i % 2]}", shape=("batch", groups, "total", size))
    feed: dict[str, Any] = {"input_ids": w.generator.integers(0, vocabulary, (1, 1)), "position_ids": np.array([[past]])}
    feed["attention_mask"] = np.ones((1, past + 1), np.int64)
    for names in caches:
        feed |= {name: w.generator.standard_normal((1, groups, past, size), np.float32) for name in names}
    return w.model(), feed


def _product(w: Writer, x: str, rows: int, columns: int) -> str:
    return w.MatMul(x, w.normal(rows, columns, fan_in=rows))


def _root_mean_square(w: Writer, x: str, width: int) -> str:
    mean = w.ReduceMean(w.Pow(x, 2.0), axes=[-1], keepdims=1)
    return w.Mul(w.vector(width, 1.0), w.Mul(x, w.Reciprocal(w.Sqrt(w.Add(mean, 1e-5)))))


def _rotated(w: Writer, x: str, cos: str, sin: str, size: int) -> str:
    first, second = w.Slice(x, [0], [size // 2], [3], [1]), w.Slice(x, [size // 2], [2**63 - 1], [3], [1])
    return w.Add(w.Mul(x, cos), w.Mul(w.Concat(w.Neg(second), first, axis=-1), sin))


def _repeated(w: Writer, x: str, times: int, groups: int, size: int) -> str:
    """Each head as many times as queries share it."""
    sizes = w.Concat(w.Slice(w.Shape(x), [0], [2], [0]), [times], w.Slice(w.Shape(x), [2], [4], [0]), axis=0)
    return w.Reshape(w.Expand(w.Unsqueeze(x, [2]), sizes), [0, groups * times, -1, size])


def lstm_tagger(
    layers: int = 2, width: int = 128, hidden: int = 256, vocabulary: int = 20000, tags: int = 32, length: int = 128
) -> Made:
    """Words to tags by LSTM layers in both directions, as torch exports them: time first inside, states of zeros of the batch's
    size."""
    w = Writer()
    y = w.Gather(_table(w, vocabulary, width), w.input("tokens", INT64, ("batch", "length")))
    batch = w.Gather(w.Shape(y), [0], axis=0)
    states = w.Expand(0.0, w.Concat([2], batch, [hidden], axis=0))
    y = w.Transpose(y, perm=[1, 0, 2])
    inputs = width
    for _ in range(layers):
        weights = w.normal(2, 4 * hidden, inputs, fan_in=inputs), w.normal(2, 4 * hidden, hidden, fan_in=hidden)
        biases = w.normal(2, 8 * hidden, fan_in=16)
        y, *_ = w.LSTM(y, *weights, biases, None, states, states, hidden_size=hidden, direction="bidirectional", outputs=3)
        y = w.Reshape(w.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, -1])
        inputs = 2 * hidden
    y = w.LogSoftmax(w.linear(w.Transpose(y, perm=[1, 0, 2]), inputs, tags), axis=-1)
    w.output(y, "tags", shape=("batch", "length", tags))
    return w.model(), {"tokens": w.generator.integers(0, vocabulary, (1, length))}
