"""Steps of matrix products, attention, normalisation along axes, and recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.ops.signal.dft import DFT
from networks.convolution import follow
from networks.maker import CHANNELS, Maker


def _matrix(m: Maker) -> str | None:
    return m.pick(lambda x: not m.is_open(x, m.rank(x) - 1) and 0 < m.shape(x)[-1] <= 300, least=2)


def matmul(m: Maker, x: str | None = None, columns: int | None = None) -> str | None:
    """Return a product with constants: one matrix, one per batch entry, transposed."""
    x = x or _matrix(m)
    if x is None:
        return None
    k = m.shape(x)[-1]
    n = columns or m.among(CHANNELS)
    batch: tuple[int, ...] = ()
    if columns is None and m.rank(x) > 2 and m.chance(0.15):
        batch = tuple(1 if m.is_open(x, axis) or m.chance(0.3) else m.shape(x)[axis] for axis in range(m.rank(x) - 2))
    is_turned = m.chance(0.3)
    w = m.weights((*batch, *((n, k) if is_turned else (k, n))), k)
    return m.one("MatMul", x, w, transpose_b=is_turned)


def multiplied(m: Maker) -> str | None:
    """Return a product with constants, and what engines join to it: bias, factor, sums, activations."""
    x = _matrix(m)
    y = None if x is None else matmul(m, x, m.shape(x)[-1] if m.chance(0.5) else None)
    if y is None:
        return None
    if m.chance(0.6):
        y = m.one("Add", *((y, m.weights(m.shape(y)[-1:], 4)) if m.chance(0.7) else (m.weights(m.shape(y)[-1:], 4), y))) or y
    return follow(m, y, x) if m.chance(0.7) else y


def whole_product(m: Maker) -> str | None:
    """Return a product of integers with constants: they wrap around."""
    from dovetail.ir import dtypes

    def suits(x: str) -> bool:
        return m.dtype(x) in ("i32", "i64", "u8", "i8") and not m.is_open(x, m.rank(x) - 1) and 0 < m.shape(x)[-1] <= 300

    x = m.pick(suits, dtype=None, least=2)
    if x is None and not m.depth:
        x = m.input(m.among(("i32", "i64")), (m.number(1, 9), m.among(CHANNELS)))
    if x is None:
        return None
    k, n = m.shape(x)[-1], m.among(CHANNELS)
    is_turned = m.chance(0.3)
    w = m.constant(m.arrays.integers(0, 9, (n, k) if is_turned else (k, n)).astype(dtypes.dtype(m.dtype(x)).numpy))
    return m.one("MatMul", x, w, transpose_b=is_turned)


def transformed(m: Maker) -> str | None:
    """Return the spectrum of a value along its last axis."""
    x = m.pick(lambda x: not m.is_open(x, m.rank(x) - 1) and 0 < m.shape(x)[-1] <= 300, dtype="f32", least=1)
    y = None if x is None else m.one("Unsqueeze", x, m.ints(-1))
    return None if x is None or y is None else m.one(DFT(onesided=m.chance(0.5)), y, m.ints(m.rank(x) - 1))


def product(m: Maker) -> str | None:
    """Return a product of two values, often of one with itself transposed."""
    x = _matrix(m)
    if x is None:
        return None
    fitting = [
        y
        for y in m.values
        if m.dtype(y) == m.kind and m.rank(y) >= 2 and m.shape(y)[-2] == m.shape(x)[-1] and _same_batch(m, x, y)
    ]
    turned = [
        y
        for y in m.values
        if m.dtype(y) == m.kind and m.rank(y) >= 2 and m.shape(y)[-1] == m.shape(x)[-1] and _same_batch(m, x, y)
    ]
    scale = m.constant(m.real(1 / np.sqrt(max(1, m.shape(x)[-1]))))
    if fitting and m.chance(0.4):
        z = m.one("MatMul", x, m.among(fitting))
    elif turned:
        y = str(m.among(turned))
        if m.chance(0.5):
            z = m.one("MatMul", x, y, transpose_b=True)
        else:
            order = [*range(m.rank(y) - 2), m.rank(y) - 1, m.rank(y) - 2]
            t = m.one("Transpose", y, m.ints(*order))
            z = None if t is None else m.one("MatMul", x, t)
    else:
        return None
    return None if z is None else m.one(m.among(("Multiply", "Multiply")), z, scale)


def _same_batch(m: Maker, x: str, y: str) -> bool:
    try:
        return bool(np.broadcast_shapes(m.shape(x)[:-2], m.shape(y)[:-2]) is not None)
    except ValueError:
        return False


def vector_product(m: Maker) -> str | None:
    x = _matrix(m)
    return None if x is None else m.one("MatMul", x, m.weights((m.shape(x)[-1],), m.shape(x)[-1]))


def gemm(m: Maker) -> str | None:
    x = m.pick(rank=2)
    if x is None:
        return None
    turn = m.chance(0.25) and not m.is_open(x, 0)
    if m.is_open(x, 0 if turn else 1):
        return None
    k, rows = m.shape(x)[0 if turn else 1], m.shape(x)[1 if turn else 0]
    n = m.among(CHANNELS)
    turn_b = m.chance(0.5)
    w = m.weights((n, k) if turn_b else (k, n), k)
    shapes: list[tuple[int, ...]] = [(n,), (1, n), (1,), ()]
    if not m.is_open(x):
        shapes += [(rows, 1), (rows, n)]
    bias = [m.weights(m.among(shapes), 4)] if m.chance(0.7) else []
    attributes: dict[str, Any] = {"transpose_a": turn, "transpose_b": turn_b, "alpha": m.among((1.0, 1.0, 0.5, -2.0))}
    attributes["beta"] = m.among((1.0, 1.0, 0.5))
    y = m.one("Gemm", x, w, *bias, **attributes)
    return y if y is None or m.chance(0.4) else follow(m, y, x)


def attention(m: Maker) -> str | None:
    """Heads of attention over [batch, length, width], written out, with the sum of what it began with."""
    x = m.pick(lambda x: m.shape(x)[2] <= 40 and m.shape(x)[2] > 0 and not m.is_open(x, 2), rank=3)
    if x is None:
        return None
    width = m.shape(x)[2]
    heads = m.among([h for h in (1, 2, 3, 4) if width % h == 0])
    sizes = m.ints(0, 0, heads, width // heads)
    source = (
        x
        if m.chance(0.8)
        else m.among([y for y in m.values if m.dtype(y) == m.kind and m.rank(y) == 3 and m.shape(y)[::2] == m.shape(x)[::2]])
    )
    parts = []
    if m.chance(0.3) and source == x:
        joint = matmul(m, x, 3 * width)
        cut = None if joint is None else m.add("Split", joint, None, axis=2, outputs=3)
        if cut is None:
            return None
        rows = cut
    else:
        rows = [matmul(m, y, width) or x for y in (x, source, source)] if m.chance(0.8) else [x, source, source]
    for row in rows:
        split = m.one("Reshape", row, sizes)
        part = None if split is None else m.one("Transpose", split, m.ints(0, 2, 1, 3))
        if part is None:
            return None
        parts.append(part)
    q, k, v = parts
    if m.chance(0.4):
        y = (
            m.one("ScaledDotProductAttention", q, k, v, causal=m.chance(0.3))
            if m.chance(0.5)
            else m.one("Attention", q, k, v, is_causal=m.chance(0.3))
        )
    else:
        turned = m.one("Transpose", k, m.ints(0, 1, 3, 2))
        scores = None if turned is None else m.one("MatMul", q, turned)
        if scores is None:
            return None
        factor = float(np.sqrt(width // heads))
        scores = (
            m.one("Divide", scores, m.constant(m.real(factor)))
            if m.chance(0.5)
            else m.one("Multiply", scores, m.constant(m.real(1 / factor)))
        )
        if scores is not None and m.chance(0.3):
            scores = m.one("Add", scores, m.weights((1, 1, 1, 1), 1))
        weights = None if scores is None else m.one("Softmax", scores)
        y = None if weights is None else m.one("MatMul", weights, v)
    back = None if y is None else m.one("Transpose", y, m.ints(0, 2, 1, 3))
    flat = None if back is None else m.one("Reshape", back, m.ints(0, 0, width))
    if flat is None:
        return None
    out = matmul(m, flat, width) or flat
    return follow(m, out, x)


def einsum(m: Maker) -> str | None:
    x = m.pick(least=2)
    if x is None or m.rank(x) > 4:
        return None
    letters = "abcd"[: m.rank(x)]
    if m.chance(0.5) and not m.is_open(x, m.rank(x) - 1):
        w = m.weights((m.shape(x)[-1], m.among(CHANNELS)), m.shape(x)[-1])
        return m.one("Einsum", x, w, equation=f"{letters},{letters[-1]}z->{letters[:-1]}z")
    y = m.one("Einsum", x, x, equation=f"{letters},{letters[:-1]}z->{letters[:-2]}{letters[-1]}z")
    return None if y is None else m.one("Tanh", y)


# Normalisation along axes


def softmax(m: Maker) -> str | None:
    x = m.pick(least=1)
    if x is None:
        return None
    return m.one(m.among(("Softmax", "Softmax", "LogSoftmax")), x, axis=m.number(-m.rank(x), m.rank(x) - 1))


def layer_norm(m: Maker) -> str | None:
    x = m.pick(lambda x: m.shape(x)[-1] > 1, least=1)
    if x is None:
        return None
    axis = m.rank(x) - 1
    while axis > 0 and m.chance(0.2):
        axis -= 1
    if any(m.is_open(x, place) for place in range(axis, m.rank(x))):
        return None
    tail = m.shape(x)[axis:]
    if m.chance(0.25):
        return m.one("RMSNormalization", x, m.weights(tail, 1), axis=axis - (m.rank(x) if m.chance(0.5) else 0))
    bias = [m.weights(tail, 1)] if m.chance(0.7) else []
    return m.one("LayerNormalization", x, m.weights(tail, 1), *bias, axis=axis - (m.rank(x) if m.chance(0.5) else 0))


def norms(m: Maker) -> str | None:
    x = m.pick(lambda x: m.shape(x)[-1] > 1, least=2)
    if x is None:
        return None
    kind = m.number(0, 2)
    if kind == 0:
        return m.one("LpNormalization", x, axis=m.number(-m.rank(x), m.rank(x) - 1), p=m.among((1, 2)))
    axes = m.ints(*sorted(m.random.sample(range(m.rank(x)), m.number(1, m.rank(x)))))
    if kind == 1:
        return m.one("NormalizeL2", x, axes, eps=1e-3, eps_mode=m.among(("add", "max")))
    return m.one("MeanVarianceNormalization", x, axes)


# Recurrent layers


def recurrent(m: Maker) -> str | None:
    x = m.pick(lambda x: not m.is_open(x, 2) and 0 < m.shape(x)[2] <= 60 and m.shape(x)[0] * m.shape(x)[1] <= 120, rank=3)
    if x is None:
        return None
    kind = m.among(("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    hidden = m.among((1, 2, 3, 4, 5, 8, 9, 16, 17))
    direction = m.among(("forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    batch = m.shape(x)[1]
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if kind == "GRU":
        attributes["linear_before_reset"] = m.chance(0.5)
    if kind == "LSTM" and m.chance(0.2):
        attributes["input_forget"] = True
    reads: list[str | None] = [
        x,
        m.weights((d, gates * hidden, m.shape(x)[2]), m.shape(x)[2]),
        m.weights((d, gates * hidden, hidden), hidden, share=0.2),
    ]
    reads.append(m.weights((d, 2 * gates * hidden), 4) if m.chance(0.7) else None)
    # Lengths of rows are compared elsewhere.
    reads.append(None)
    if not m.is_open(x, 1):
        reads.append(m.weights((d, batch, hidden), 2, share=0.3) if m.chance(0.5) else None)
        if kind == "LSTM":
            reads.append(m.weights((d, batch, hidden), 2, share=0.3) if m.chance(0.4) else None)
    while reads[-1] is None:
        reads.pop()
    attributes["outputs"] = m.number(1, 3 if kind == "LSTM" else 2)
    found = m.add(kind, *reads, **attributes)
    if found is None:
        return None
    y = m.one("Transpose", found[0], m.ints(0, 2, 1, 3))
    return found[0] if y is None or m.chance(0.4) else m.one("Reshape", y, m.ints(0, 0, d * hidden))
