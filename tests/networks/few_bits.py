"""Steps of products whose weights have 2, 4, 8 or 16 bits in a form that the engine keeps in few bits, and gathered tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.ir import dtypes
from networks.convolution import follow
from networks.maker import CHANNELS, Maker

HALVES = ("f16", "bf16")
CODES = ("u2", "u4", "i4", "u8", "i8", "nf4", "f8e4m3", "f8e5m2", "f4e2m1")
DEPTHS = (16, 32, 48, 64, 96, 160, 200)


def _rows(m: Maker, depths: tuple[int, ...] = DEPTHS) -> str | None:
    """Return a value whose last axis is a depth of weights: a value of the network, or a further graph input."""
    x = m.pick(lambda x: not m.is_open(x, m.rank(x) - 1) and 2 <= m.shape(x)[-1] <= 300, dtype="f32", least=2)
    if x is not None and m.chance(0.6):
        return x
    if m.depth:
        return None
    rows = m.among((1, 1, 1, 2, 3, 4, 7, 8, 9, 17, 40))
    return m.input("f32", (*((m.number(1, 3),) if m.chance(0.3) else ()), rows, m.among(depths)))


def codes(m: Maker, kind: str, shape: tuple[int, ...]) -> Any:
    """Return random numbers of a type of few bits."""
    dtype = dtypes.dtype(kind)
    if dtype.is_float:
        return m.arrays.uniform(-1, 1, shape).astype(np.float32).astype(dtype.numpy)
    low, high = dtype.range()
    return m.arrays.integers(int(low), int(high), shape, endpoint=True).astype(np.int32).astype(dtype.numpy)


def _scales(m: Maker, kind: str, shape: tuple[int, ...], depth: int) -> Any:
    """Return scales with which sums of ``depth`` products keep their magnitude."""
    dtype = dtypes.dtype(kind)
    top = 1.0 if dtype.is_float else float(dtype.range()[1])
    return (m.arrays.uniform(0.5, 1.5, shape) / (top * np.sqrt(depth))).astype(np.float32)


def _multiplied(m: Maker, x: str, w: str | None, is_transposed: bool) -> str | None:
    y = None if w is None else m.one("MatMul", x, w, transpose_b=is_transposed)
    if y is not None and m.chance(0.4):
        y = m.one("Add", y, m.weights(m.shape(y)[-1:], 4)) or y
    return y if y is None or m.chance(0.5) else follow(m, y, x)


def of_16_bits(m: Maker) -> str | None:
    """Return a product or convolution with constants of f16 or bf16 that are cast to f32."""
    kind = m.among(HALVES)
    image = m.pick(lambda x: m.rank(x) == 4 and not m.is_open(x, 1) and all(m.shape(x)[1:]), dtype="f32")
    if image is not None and m.chance(0.4):
        c, out = m.shape(image)[1], m.among(CHANNELS)
        kernel = m.among((1, 1, 3))
        w = (m.arrays.standard_normal((out, c, kernel, kernel)) / np.sqrt(c * kernel * kernel)).astype(dtypes.dtype(kind).numpy)
        cast = m.one("Cast", m.constant(w), to="f32")
        return None if cast is None else m.one("Conv", image, cast, pads=[kernel // 2] * 4)
    x = _rows(m)
    if x is None:
        return None
    depth, columns, is_transposed = m.shape(x)[-1], m.among((*CHANNELS, 64, 70)), m.chance(0.4)
    shape = (columns, depth) if is_transposed else (depth, columns)
    w = (m.arrays.standard_normal(shape) / np.sqrt(depth)).astype(dtypes.dtype(kind).numpy)
    return _multiplied(m, x, m.one("Cast", m.constant(w), to="f32"), is_transposed)


def matmul_nbits(m: Maker) -> str | None:
    """Return MatMulNBits with zero points of each kind, blocks in any order, and a bias."""
    x = _rows(m)
    if x is None:
        return None
    bits, block = m.among((2, 4, 4, 8)), m.among((16, 32, 64, 128))
    k, n = m.shape(x)[-1], m.among((*CHANNELS, 64, 70))
    blocks = -(-k // block)
    reads: list[str | None] = [
        x,
        m.constant(m.arrays.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)),
        m.constant(_scales(m, "u8", (n, blocks), k) * np.float32(2.0 ** (8 - bits))),
    ]
    form = m.among(("", "codes", "floats"))
    if form == "codes":
        reads.append(m.constant(m.arrays.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)))
    else:
        reads.append(m.constant(m.arrays.uniform(0, 2**bits, (n, blocks)).astype(np.float32)) if form else None)
    order = np.arange(k) // block
    if m.chance(0.2):
        m.arrays.shuffle(order)
    reads.append(m.constant(order.astype(np.int32)) if m.chance(0.3) else None)
    reads.append(m.weights((n,), 4, share=0) if m.chance(0.3) else None)
    while reads[-1] is None:
        reads.pop()
    y = m.one("MatMulNBits", *reads, k=k, n=n, bits=bits, block_size=block, accuracy_level=m.among((0, 0, 1, 4)))
    return y if y is None or m.chance(0.5) else follow(m, y, x)


def dequantized(m: Maker) -> str | None:
    """Return a product with constants of integers that DequantizeLinear scales in blocks or by column."""
    x = _rows(m)
    if x is None:
        return None
    kind, depth, columns = m.among(("u4", "i4", "u8", "i8")), m.shape(x)[-1], m.among((*CHANNELS, 64, 70))
    is_transposed = m.chance(0.4)
    along = 1 if is_transposed else 0
    sizes = [block for block in (2, 8, 16, 32, 64) if block < depth and depth % block == 0]
    block = m.among(sizes) if sizes and m.chance(0.7) else 0
    shape = (columns, depth) if is_transposed else (depth, columns)
    if block:
        count = depth // block
        scale_shape: tuple[int, ...] = (columns, count) if is_transposed else (count, columns)
        attributes = {"axis": along, "block_size": block}
    else:
        scale_shape, attributes = (columns,), {"axis": 1 - along}
    reads = [m.constant(codes(m, kind, shape)), m.constant(_scales(m, kind, scale_shape, depth))]
    if m.chance(0.5):
        reads.append(m.constant(codes(m, kind, scale_shape)))
    return _multiplied(m, x, m.one("DequantizeLinear", *reads, **attributes), is_transposed)


def cast_and_scaled(m: Maker) -> str | None:
    """Return a product with constants that a cast, a subtraction and a multiplication scale, as in OpenVINO's models."""
    x = _rows(m)
    if x is None:
        return None
    kind, depth, columns = m.among(CODES), m.shape(x)[-1], m.among((*CHANNELS, 64, 70))
    is_transposed = m.chance(0.7)
    sizes = [block for block in (4, 16, 32, 64) if block < depth and depth % block == 0]
    if sizes and is_transposed and m.chance(0.6):
        block = m.among(sizes)
        shape: tuple[int, ...] = (columns, depth // block, block)
        scale_shape: tuple[int, ...] = (columns, depth // block, 1)
    else:
        shape = (columns, depth) if is_transposed else (depth, columns)
        scale_shape = (columns, 1) if is_transposed else (1, columns)
    floats = m.among(("f32", "f32", "f16"))
    w = m.one("Cast", m.constant(codes(m, kind, shape)), to=floats)
    numpy = dtypes.dtype(floats).numpy
    if w is not None and m.chance(0.5) and not dtypes.dtype(kind).is_float:
        point = codes(m, kind, scale_shape if m.chance(0.7) else (1,) * len(shape))
        cast = (
            m.one("Cast", m.constant(point), to=floats) if m.chance(0.7) else m.constant(point.astype(np.float32).astype(numpy))
        )
        w = None if cast is None else m.one("Subtract", w, cast)
    if w is not None:
        w = m.one("Multiply", w, m.constant(_scales(m, kind, scale_shape, depth).astype(numpy)))
    if w is not None and len(shape) == 3:
        w = m.one("Reshape", w, m.ints(columns, depth))
    if w is not None and floats != "f32":
        w = m.one("Cast", w, to="f32")
    return _multiplied(m, x, w, is_transposed)


def gathered(m: Maker) -> str | None:
    """Return rows of a table of 4 or 8 bits, gathered by indices."""
    if m.depth:
        return None
    rows, width, block = m.number(1, 40), m.among((16, 32, 64, 96)), 16
    kind = m.among(("u4", "i4", "u8"))
    indices = m.input(m.among(("i32", "i64")), (m.number(1, 6),), lambda shape: m.arrays.integers(0, rows, shape))
    name = m.network.inputs[-1].dtype
    for answers, shot in zip(m.answers, m.network.shots, strict=True):
        shot[indices] = shot[indices].astype(dtypes.dtype(name).numpy)
        answers[indices] = type(answers[indices])(shot[indices], shot[indices], (shot[indices], shot[indices]))
    if kind == "u8":
        bits = m.among((4, 8))
        table = m.arrays.integers(0, 256, (rows, width * bits // 8)).astype(np.uint8)
        attributes: dict[str, Any] = {"bits": bits}
    else:
        table, attributes = codes(m, kind, (rows, width)), {"bits": 4}
    scales = m.constant(m.arrays.uniform(0.05, 0.2, (rows, width // block)).astype(np.float32))
    return m.one("GatherBlockQuantized", m.constant(table), indices, scales, block_size=block, **attributes)
