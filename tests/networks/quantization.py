"""Steps over bytes: quantised layers in their float form and as operators of their own, products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.ir import dtypes
from networks.convolution import geometry
from networks.maker import CHANNELS, Maker

BYTES = ("u8", "i8")


def _point(m: Maker, kind: str) -> str:
    low, high = (0, 255) if kind == "u8" else (-128, 127)
    return m.constant(np.asarray(m.among((0, 0, m.number(low, high), m.number(low // 4, high // 4))), dtypes.dtype(kind).numpy))


def _scale(m: Maker, low: float = 0.01, high: float = 0.05) -> str:
    """Return a scale that is no power of two, so that sums of whole numbers hardly lie on ties."""
    return m.constant(np.float32(m.random.uniform(low, high)))


def _quantized(m: Maker, x: str, scale: str, point: str) -> str | None:
    y = m.one("QuantizeLinear", x, scale, point)
    if y is not None:
        m.grids[y] = scale, point
    return y


def _dequantized(m: Maker, x: str) -> str | None:
    """As it was quantised; now and then in other steps, or from another zero point."""
    scale, point = m.grids.get(x) or (_scale(m), _point(m, m.dtype(x)))
    if m.chance(0.15):
        scale = _scale(m)
    if m.chance(0.15):
        point = _point(m, m.dtype(x))
    return m.one("DequantizeLinear", x, scale, point)


def quantize(m: Maker, x: str | None = None) -> str | None:
    x = x or m.pick(dtype="f32")
    if x is None:
        return None
    return _quantized(m, x, _scale(m, 0.02, 0.08), _point(m, m.among(BYTES)))


def dequantize(m: Maker) -> str | None:
    x = m.pick(dtype=m.among(BYTES))
    return None if x is None else _dequantized(m, x)


def fake(m: Maker) -> str | None:
    x = m.pick(dtype="f32")
    if x is None:
        return None
    ends = [m.constant(np.asarray(end, np.float32)) for end in (-1.3, 1.7, -1.1, 2.3)]
    return m.one("FakeQuantize", x, *ends, levels=m.among((16, 255, 256)))


def _bytes(m: Maker, suits: Any = None) -> str | None:
    """Bytes that there are, or a quantised value."""
    found = m.pick(suits, dtype=m.among(BYTES))
    if found is not None and m.chance(0.8):
        return found
    x = m.pick(suits, dtype="f32")
    return found if x is None else quantize(m, x) or found


def _is_image(m: Maker) -> Any:
    return lambda x: m.rank(x) == 4 and not m.is_open(x, 1) and all(m.shape(x)[1:])


def _codes(m: Maker, shape: tuple[int, ...], kind: str = "i8", wide: int = 127) -> str:
    low, high = (0, wide * 2) if kind == "u8" else (-wide, wide)
    return m.constant(m.arrays.integers(low, high, shape, endpoint=True).astype(dtypes.dtype(kind).numpy))


def layer(m: Maker) -> str | None:
    """Dequantised, a convolution or product, rectified or not, quantised; also with the sum of another tensor after it."""
    x = _bytes(m, _is_image(m))
    if x is None:
        return None
    read = _dequantized(m, x)
    if read is None:
        return None
    x_scale = str(m.network.steps[-1].reads[1])
    c = m.shape(x)[1]
    found = geometry(m, m.shape(x)[2:], same=m.chance(0.7))
    kernel = found.pop("kernel_shape")
    out = c if m.chance(0.6) else m.among(CHANNELS)
    w_scale = m.constant((m.arrays.random(out) * 0.01 + 0.002).astype(np.float32)) if m.chance(0.5) else _scale(m, 0.002, 0.01)
    w = m.one(
        "DequantizeLinear", _codes(m, (out, c, *kernel)), w_scale, **({"axis": 0} if m.network.constants[w_scale].ndim else {})
    )
    bias = []
    if m.chance(0.5):
        step = (m.network.constants[w_scale] * m.network.constants[x_scale]).astype(np.float32)
        codes = m.constant(m.arrays.integers(-500, 500, out).astype(np.int32))
        made = m.one("DequantizeLinear", codes, m.constant(step), **({"axis": 0} if step.ndim else {}))
        bias = [made] if made else []
    y = None if w is None else m.one("Conv", read, w, *bias, **found)
    if y is not None and m.chance(0.4):
        y = m.one("Relu", y)
    code = None if y is None else _quantized(m, y, _scale(m, 0.02, 0.08), _point(m, m.among(BYTES)))
    if code is None or m.chance(0.4):
        return code
    return summed(m, code, x)


def summed(m: Maker, code: str, x: str) -> str | None:
    """Two tensors of bytes, dequantised, added and quantised again."""
    others = [y for y in m.values if m.dtype(y) in BYTES and all(a[y].actual.shape == a[code].actual.shape for a in m.answers)]
    other = x if x in others and m.chance(0.6) else str(m.among(others))
    pair = [_dequantized(m, y) for y in (code, other)]
    m.random.shuffle(pair)
    y = None if None in pair else m.one("Add", *pair)
    if y is not None and m.chance(0.5):
        y = m.one("Relu", y)
    return None if y is None else _quantized(m, y, _scale(m, 0.02, 0.08), _point(m, m.among(BYTES)))


def linear_conv(m: Maker) -> str | None:
    """QLinearConv, or ConvInteger."""
    x = _bytes(m, _is_image(m))
    if x is None:
        return None
    c = m.shape(x)[1]
    found = geometry(m, m.shape(x)[2:], same=m.chance(0.5))
    kernel = found.pop("kernel_shape")
    group = m.among((1, 1, 1, c))
    out = group * m.among((1, 2)) if group > 1 else m.among(CHANNELS)
    found["group"] = group
    kind = m.among(("i8", "i8", "u8"))
    w, point = (
        _codes(m, (out, c // group, *kernel), kind, 40),
        _point(m, kind) if m.chance(0.3) else m.constant(np.zeros((), dtypes.dtype(kind).numpy)),
    )
    if m.chance(0.3):
        y = m.one("ConvInteger", x, w, *((_point(m, m.dtype(x)), point) if m.chance(0.6) else ()), **found)
        return y if y is None or m.chance(0.3) else m.one("Multiply", m.one("Cast", y, to=dtypes.f32) or y, _scale(m, 1e-4, 1e-3))
    w_scale = m.constant((m.arrays.random(out) * 0.01 + 0.002).astype(np.float32)) if m.chance(0.5) else _scale(m, 0.002, 0.01)
    bias = [m.constant(m.arrays.integers(-500, 500, out).astype(np.int32))] if m.chance(0.5) else []
    return m.one(
        "QLinearConv",
        x,
        _scale(m),
        _point(m, m.dtype(x)),
        w,
        w_scale,
        point,
        _scale(m, 0.02, 0.08),
        _point(m, m.among(BYTES)),
        *bias,
        **found,
    )


def integer_product(m: Maker) -> str | None:
    """MatMulInteger and its family, with dynamic quantisation before it or without."""
    kind = m.number(0, 3)
    if kind == 0:
        x = m.pick(lambda x: not m.is_open(x, m.rank(x) - 1), dtype="f32", least=2)
        if x is None:
            return None
        k, n = m.shape(x)[-1], m.among(CHANNELS)
        found = m.add("DynamicQuantizeLinear", x)
        if found is None:
            return None
        w = _codes(m, (k, n))
        y = m.one("MatMulInteger", found[0], w, found[2], m.constant(np.int8(m.among((0, 3)))))
        real = None if y is None else m.one("Cast", y, to=dtypes.f32)
        scale = m.one("Multiply", found[1], _scale(m, 0.002, 0.01))
        return real if real is None or scale is None else m.one("Multiply", real, scale)
    x = _bytes(m, lambda x: m.rank(x) >= 2 and not m.is_open(x, m.rank(x) - 1) and m.shape(x)[-1] > 0)
    if x is None:
        return None
    k, n = m.shape(x)[-1], m.among(CHANNELS)
    kind_w = m.among(("i8", "i8", "u8"))
    w, point = _codes(m, (k, n), kind_w), _point(m, kind_w)
    if kind == 1:
        y = m.one("MatMulInteger", x, w, *((_point(m, m.dtype(x)), point) if m.chance(0.7) else ()))
        return y if y is None or m.chance(0.4) else m.one("Cast", y, to=dtypes.f32)
    if kind == 2:
        return m.one(
            "QLinearMatMul",
            x,
            _scale(m),
            _point(m, m.dtype(x)),
            w,
            _scale(m, 0.002, 0.01),
            point,
            _scale(m, 0.02, 0.08),
            _point(m, m.among(BYTES)),
        )
    return m.one("MatMulIntegerToFloat", x, w, _scale(m), _scale(m, 0.002, 0.01), _point(m, m.dtype(x)), point)


def added(m: Maker) -> str | None:
    """QLinearAdd and QLinearMul."""
    x = m.pick(dtype=m.among(BYTES))
    if x is None:
        return None
    y = str(m.among(m.alike(x)))
    kind = m.dtype(x)
    return m.one(
        m.among(("QLinearAdd", "QLinearMul")),
        x,
        _scale(m),
        _point(m, kind),
        y,
        _scale(m),
        _point(m, kind),
        _scale(m, 0.02, 0.08),
        _point(m, kind),
    )


def byte_pool(m: Maker) -> str | None:
    x = m.pick(_is_image(m), dtype=m.among(BYTES))
    return (
        None
        if x is None
        else m.one("MaxPool", x, kernel_shape=[m.number(1, 3), 2], strides=[m.number(1, 2)] * 2, pads=[0, m.number(0, 1), 0, 0])
    )
