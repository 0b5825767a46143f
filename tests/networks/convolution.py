"""Steps over images: convolutions, pools, normalisation, resampling, and what engines join with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from networks.elementwise import activation
from networks.maker import CHANNELS, Maker


def image(m: Maker) -> str | None:
    """Return a value that a convolution takes."""
    return m.pick(lambda x: 3 <= m.rank(x) <= 5 and not m.is_open(x, 1) and all(m.shape(x)[1:]))


def geometry(m: Maker, spatial: Sequence[int], same: bool = False) -> dict[str, Any]:
    """Kernel, strides, dilations and pads along each axis; ``same``: such that sizes stay."""
    kernel, strides, dilations, begins, ends = [], [], [], [], []
    style = m.number(0, 4)
    for size in spatial:
        k = m.among((1, 1, 3, 3, 3, 5, 2, 7)) if style else 1
        d = m.among((1, 1, 1, 2)) if k > 1 else 1
        reach = d * (k - 1)
        if same:
            begin = reach // 2 if m.chance(0.8) else m.number(0, reach)
            begins.append(begin)
            ends.append(reach - begin)
            strides.append(1)
        else:
            begin, end = m.number(0, min(reach, 3)), m.number(0, min(reach, 3))
            if size + begin + end < reach + 1:
                k, d, reach, begin, end = 1, 1, 0, 0, 0
            begins.append(begin)
            ends.append(end)
            strides.append(m.among((1, 1, 1, 2, 2, 3)))
        kernel.append(k)
        dilations.append(d)
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": [*begins, *ends]}


def conv(m: Maker, x: str | None = None, same: bool = False, out: int | None = None) -> str | None:
    """Return a convolution; grouped, depthwise, pointwise, strided, dilated."""
    x = x or image(m)
    if x is None:
        return None
    shape = m.shape(x)
    c = shape[1]
    found = geometry(m, shape[2:], same)
    kernel = found.pop("kernel_shape")
    group = m.among((1, 1, 1, c, *[g for g in (2, 3, 4, 8) if c % g == 0]))
    if out is None:
        out = (
            c
            if group == c and m.chance(0.7)
            else group * m.number(1, max(1, 40 // group))
            if m.chance(0.4)
            else m.among(CHANNELS)
        )
    if out % group:
        group = 1
    w = m.weights((out, c // group, *kernel))
    bias = m.weights((out,), 4) if m.chance(0.6) else None
    if not same and m.chance(0.1):
        found.pop("pads")
        found["auto_pad"] = m.among(("same_upper", "same_lower", "valid"))
    found["group"] = group
    return m.one("Conv", x, w, *([bias] if bias else []), **found)


def conv_transpose(m: Maker) -> str | None:
    x = image(m)
    if x is None or m.count(x) > 4000:
        return None
    shape = m.shape(x)
    c = shape[1]
    group = m.among((1, 1, 1, c, *[g for g in (2, 4) if c % g == 0]))
    out = m.number(1, max(1, 24 // group))
    kernel = [m.among((1, 2, 3, 4)) for _ in shape[2:]]
    strides = [m.among((1, 2, 2, 3)) for _ in kernel]
    dilations = [m.among((1, 1, 2)) for _ in kernel]
    pads = [min(m.number(0, 1), k - 1) for k in kernel] * 2
    w = m.weights((c, out, *kernel), c // group * 2, share=0.02)
    bias = [m.weights((out * group,), 4, share=0.02)] if m.chance(0.5) else []
    extra = (
        {"output_padding": [m.number(0, max(s, d) - 1) for s, d in zip(strides, dilations, strict=True)]} if m.chance(0.2) else {}
    )
    y = m.one("ConvTranspose", x, w, *bias, group=group, strides=strides, dilations=dilations, pads=pads, **extra)
    if y and m.chance(0.4):
        return follow(m, y, None)
    return y


def follow(m: Maker, y: str, x: str | None) -> str | None:
    """Append one to three operators that engines fuse with a convolution or product: sums, activations, factors."""
    for _ in range(m.number(1, 3)):
        kind = m.number(0, 9)
        made = None
        if kind < 4:
            made = residual(m, y, x)
        elif kind < 8:
            made = activation(m, y)
        elif kind < 9:
            made = scaled(m, y)
        else:
            made = batch_norm(m, y)
        y = made or y
    return y


def residual(m: Maker, y: str, x: str | None) -> str | None:
    """``y`` and a value alike, in either order: what its maker reads, another branch, a graph input, itself."""
    others = m.alike(y)
    if x is not None and x in others and m.chance(0.5):
        other: str | None = x
    elif len(others) > 1 and m.chance(0.85):
        other = str(m.among(others))
    else:
        other = m.same_input(y)
    if other is None:
        return None
    pair = (y, other) if m.chance(0.5) else (other, y)
    return m.one("Sum" if m.chance(0.08) else m.among(("Add",) * 8 + ("Multiply", "Subtract", "Maximum")), *pair)


def scaled(m: Maker, y: str) -> str | None:
    """``y`` times, plus or divided by a constant: one number, one per channel, one per column."""
    shape = m.shape(y)
    sizes: tuple[int, ...] = ()
    style = m.number(0, 3)
    if style == 1 and len(shape) >= 2 and not m.is_open(y, 1):
        sizes = (shape[1], *(1,) * (len(shape) - 2))
    elif style == 2 and shape and not m.is_open(y, len(shape) - 1):
        sizes = shape[-1:]
    elif style == 3:
        sizes = (1,) * len(shape)
    array = (m.arrays.random(sizes) + 0.5) * m.arrays.choice((-1, 1), sizes)
    c = m.constant(m.real(array))
    kind = m.among(("Multiply", "Multiply", "Add", "Add", "Divide", "Subtract"))
    return m.one(kind, *((y, c) if kind == "Divide" or m.chance(0.7) else (c, y)))


def batch_norm(m: Maker, x: str | None = None) -> str | None:
    x = x or m.pick(lambda x: m.rank(x) >= 2 and not m.is_open(x, 1) and m.shape(x)[1] > 0)
    if x is None or m.rank(x) < 2 or m.is_open(x, 1):
        return None
    c = m.shape(x)[1]
    rows = [m.arrays.standard_normal(c), m.arrays.standard_normal(c), m.arrays.standard_normal(c), m.arrays.random(c) + 0.5]
    return m.one("BatchNormalization", x, *(m.constant(m.real(row)) for row in rows))


def convolved(m: Maker) -> str | None:
    """Return a convolution that keeps sizes, with what goes before and after it."""
    x = image(m)
    if x is None:
        return None
    read = x
    for _ in range(m.number(0, 2)):
        read = (batch_norm(m, read) if m.chance(0.4) else activation(m, read) if m.chance(0.5) else scaled(m, read)) or read
    y = conv(m, read if m.chance(0.8) else x, same=True, out=m.shape(x)[1] if m.chance(0.8) else None)
    return None if y is None else follow(m, y, m.among((x, read)))


def branches(m: Maker) -> str | None:
    """Several convolutions of one value, joined along the channels, with slices and the value itself among them."""
    x = image(m)
    if x is None:
        return None
    parts = []
    for _ in range(m.number(2, 4)):
        kind = m.number(0, 9)
        if kind < 6:
            part = conv(m, x, same=True, out=m.among(CHANNELS[:12]))
            if part and m.chance(0.4):
                part = follow(m, part, x)
        elif kind < 7:
            part = m.one("MaxPool", x, kernel_shape=[3] * (m.rank(x) - 2), pads=[1] * (2 * m.rank(x) - 4))
        elif kind < 8 and m.shape(x)[1] > 1:
            cut = m.number(1, m.shape(x)[1] - 1)
            part = (
                m.one("Slice", x, m.ints(0), m.ints(cut), m.ints(1))
                if m.chance(0.5)
                else m.one("Slice", x, m.ints(cut), m.ints(m.shape(x)[1]), m.ints(1))
            )
        else:
            part = activation(m, x) if m.chance(0.5) else x
        if part:
            parts.append(part)
    return m.one("Concat", *parts, axis=m.among((1, 1, 1, 1, 0, -1))) if len(parts) > 1 else None


def pool(m: Maker, x: str | None = None) -> str | None:
    x = x or image(m)
    if x is None:
        return None
    kind = m.among(("MaxPool", "AveragePool"))
    spatial = m.shape(x)[2:]
    found = geometry(m, spatial)
    found["kernel_shape"] = [max(k, 2) if size > 1 else k for k, size in zip(found["kernel_shape"], spatial, strict=True)]
    half = len(spatial)
    # A window that lies in padding alone has no elements, and no value.
    for place in range(2 * half):
        found["pads"][place] = min(found["pads"][place], (found["kernel_shape"][place % half] - 1) // 2)
    if kind == "AveragePool":
        found["divisor"] = m.among(("inside", "padded", "window") if m.chance(0.9) else ("inside",))
    found["rounding_type"] = m.among(("floor", "floor", "ceil"))
    if kind == "MaxPool" and m.chance(0.15):
        made = m.add(kind, x, outputs=2, **found)
        return made[0] if made else None
    return m.one(kind, x, **found)


def global_pool(m: Maker) -> str | None:
    x = image(m)
    return None if x is None else m.one(m.among(("GlobalAveragePool", "GlobalMaxPool")), x)


def lrn(m: Maker) -> str | None:
    x = image(m)
    return (
        None
        if x is None
        else m.one("LRN", x, size=m.among((1, 3, 5)), alpha=m.among((1e-4, 0.5)), beta=m.among((0.75, 0.5)), bias=1.0)
    )


def normalised(m: Maker) -> str | None:
    x = image(m)
    if x is None:
        return None
    c = m.shape(x)[1]
    scale, bias = m.weights((c,), 1), m.weights((c,), 1)
    if m.chance(0.5):
        return m.one("InstanceNormalization", x, scale, bias)
    return m.one("GroupNormalization", x, scale, bias, num_groups=m.among([g for g in (1, 2, 3, 4, 8, c) if c % g == 0]))


def resize(m: Maker) -> str | None:
    x = image(m)
    if x is None or m.count(x) > 5000:
        return None
    mode = m.among(("nearest", "nearest", "linear", "cubic"))
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": m.among(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = m.among(("round_prefer_floor", "floor", "ceil"))
    elif m.chance(0.2):
        attributes["antialias"] = True
    rank = m.rank(x)
    if m.chance(0.5):
        scales = [1.0, 1.0, *(m.among((0.5, 1.0, 2.0, 2.0, 1.5, 3.0)) for _ in range(rank - 2))]
        return m.one("Resize", x, None, m.constant(np.array(scales, np.float32)), **attributes)
    if any(m.is_open(x, axis) for axis in range(rank)):
        attributes["axes"] = tuple(axis for axis in range(2, rank) if not m.is_open(x, axis))
        if not attributes["axes"]:
            return None
        return m.one("Resize", x, m.ints(*(m.number(1, 9) for _ in attributes["axes"])), **attributes)
    return m.one("Resize", x, m.ints(*m.shape(x)[:2], *(m.number(1, 9) for _ in range(rank - 2))), **attributes)


def blocks(m: Maker) -> str | None:
    x = m.pick(rank=4)
    if x is None:
        return None
    kind = m.among(("DepthToSpace", "SpaceToDepth", "ShuffleChannels"))
    if kind == "ShuffleChannels":
        c = m.shape(x)[1]
        return m.one(kind, x, group=m.among([g for g in (1, 2, 3, 4) if c % g == 0]))
    return m.one(kind, x, block_size=2)
