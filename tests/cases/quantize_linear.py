"""Quantisation: every grid, one scale, one for each place, one for each block; ties, limits, ranges of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cases import Case
from cases.matmul import ROUGH, floats
from dovetail.ir import dtypes
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, DynamicQuantizeLinear, FakeQuantize, QuantizeLinear

INTEGERS = ("u8", "i8", "u16", "i16", "u4", "i4", "u2", "i2")
NARROW = ("f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1", "f6e2m3", "f6e3m2")
_UNSEEN = {
    "openvino": "OpenVINO gives none of this to numpy, or has no such type",
    "onnxruntime": "onnxruntime gives none of this to Python",
}


def wide(*shape: int, seed: int = 0, name: str = "f32", size: float = 30.0) -> Any:
    return (floats(*shape, seed=seed).astype(np.float64) * size).astype(dtypes.dtype(name).numpy)


def scales(*shape: int, seed: int = 7, name: str = "f32") -> Any:
    """Generic positive numbers: quotients by them do not end in ties."""
    chance = np.random.default_rng([seed, *shape])
    return (chance.uniform(0.11, 0.57, shape) * 1.0009765625).astype(dtypes.dtype(name).numpy)


def codes(name: str, *shape: int, seed: int = 3) -> Any:
    kind = dtypes.dtype(name)
    chance = np.random.default_rng([seed, *shape])
    if kind.is_float:
        return chance.uniform(-1.5, 1.5, shape).astype(np.float32).astype(kind.numpy)
    low, high = kind.range()
    span = min(high, 2**15)
    return chance.integers(max(low, -span), span + 1, shape).astype(kind.numpy)


def zeros(name: str, *shape: int) -> Any:
    return np.zeros(shape, dtypes.dtype(name).numpy)


def quantized() -> Iterator[Case]:
    x = wide(3, 4, 5)
    for name in INTEGERS:
        skip = _UNSEEN if dtypes.dtype(name).bits < 8 else {}
        yield Case(QuantizeLinear(1), (x, scales(4), codes(name, 4)), f"QuantizeLinear along an axis to {name}", skip=skip)
        yield Case(QuantizeLinear(), (x, scales(), codes(name)), f"QuantizeLinear to {name}", skip=skip)
    for name in NARROW:
        skip = _UNSEEN if dtypes.dtype(name).bits < 8 else {}
        yield Case(QuantizeLinear(), (x / 20, scales(), zeros(name)), f"QuantizeLinear to {name}", skip=skip)
    for name in NARROW[:4]:
        beyond = np.array([1.0, 3.3, 1e6, -1e6, 0.02], np.float32)
        yield Case(QuantizeLinear(saturate=False), (beyond, scales(), zeros(name)), f"QuantizeLinear beyond {name}")
    yield Case(QuantizeLinear(), (x, scales()), "QuantizeLinear without a zero point")
    for name in ("i8", "u16", "i4"):
        skip = _UNSEEN if name == "i4" else {}
        yield Case(QuantizeLinear(output_dtype=dtypes.dtype(name)), (x, scales()), f"QuantizeLinear that names {name}", skip=skip)
    yield Case(QuantizeLinear(-2), (x, scales(4), codes("u8", 4)), "QuantizeLinear along an axis from the end")
    yield Case(QuantizeLinear(0), (x, scales(1), codes("u8", 1)), "QuantizeLinear with a scale of one element")
    yield Case(QuantizeLinear(), (wide(), scales(), codes("u8")), "QuantizeLinear of a scalar")
    yield Case(QuantizeLinear(0), (wide(6), scales(6), codes("i8", 6)), "QuantizeLinear of a vector")
    yield Case(QuantizeLinear(1), (wide(0, 4), scales(4), codes("i8", 4)), "QuantizeLinear of nothing")
    ties = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -1e9, np.inf, -np.inf], np.float32)
    for point in (0, 3, 128):
        yield Case(QuantizeLinear(), (ties, np.float32(1), np.uint8(point)), f"QuantizeLinear of ties with {point}")
    for block, size in ((2, 6), (4, 6), (3, 3), (8, 6)):
        shape = (3, -(-size // block), 5)
        name = f"QuantizeLinear of {size} by blocks of {block}"
        yield Case(QuantizeLinear(1, block), (wide(3, size, 5), scales(*shape), codes("u8", *shape)), name)
    yield Case(QuantizeLinear(-1, 2), (wide(3, 6), scales(3, 3)), "QuantizeLinear by blocks of the last axis")
    unlike = {"onnxruntime": "it has no QuantizeLinear of integers"}
    yield Case(QuantizeLinear(), (np.arange(-9, 9, dtype=np.int32), scales(), codes("i8")), "QuantizeLinear of i32", skip=unlike)
    for name in ("f16", "bf16"):
        half = wide(3, 4, name=name, size=4.0)
        one_type = ROUGH.get(name, {})
        yield Case(QuantizeLinear(), (half, scales(name=name), codes("u8")), f"QuantizeLinear of {name}", skip=one_type)
        rounded = {"onnxruntime": "it computes the quotient in f32 whatever type is requested", **ROUGH.get(name, {})}
        yield Case(
            QuantizeLinear(precision=dtypes.dtype(name)),
            (half, scales(name=name), codes("u8")),
            f"QuantizeLinear with a quotient of {name}",
            skip=rounded,
        )


def dequantized() -> Iterator[Case]:
    for name in (*INTEGERS, "i32"):
        skip = _UNSEEN if dtypes.dtype(name).bits < 8 else {}
        points = () if name == "i32" else (codes(name, 4, seed=5),)
        yield Case(
            DequantizeLinear(1),
            (codes(name, 3, 4, 5), scales(4), *points),
            f"DequantizeLinear along an axis from {name}",
            skip=skip,
        )
        yield Case(DequantizeLinear(), (codes(name, 3, 4), scales()), f"DequantizeLinear from {name}", skip=skip)
    for name in NARROW:
        skip = {"gradient": "a step between its elements is no small one"} | (_UNSEEN if dtypes.dtype(name).bits < 8 else {})
        yield Case(DequantizeLinear(), (codes(name, 3, 4), scales(), zeros(name)), f"DequantizeLinear from {name}", skip=skip)
    yield Case(DequantizeLinear(-1), (codes("i8", 3, 4), scales(4)), "DequantizeLinear along the last axis")
    yield Case(DequantizeLinear(0), (codes("i8", 3, 4), scales(1), codes("i8", 1)), "DequantizeLinear with one element")
    yield Case(DequantizeLinear(), (codes("u8"), scales(), codes("u8")), "DequantizeLinear of a scalar")
    yield Case(DequantizeLinear(1), (codes("u8", 0, 4), scales(4)), "DequantizeLinear of nothing")
    for block, size in ((2, 6), (4, 6), (3, 3)):
        shape = (3, -(-size // block), 5)
        inputs = codes("i8", 3, size, 5), scales(*shape), codes("i8", *shape, seed=5)
        yield Case(DequantizeLinear(1, block), inputs, f"DequantizeLinear of {size} by blocks of {block}")
    yield Case(DequantizeLinear(-1, 4), (codes("u4", 3, 8), scales(3, 2)), "DequantizeLinear of u4 by blocks", skip=_UNSEEN)
    for name in ("f16", "bf16"):
        yield Case(
            DequantizeLinear(),
            (codes("u8", 9), scales(name=name), codes("u8")),
            f"DequantizeLinear to {name}",
            skip=ROUGH.get(name, {}),
        )
    yield Case(DequantizeLinear(), (codes("u16", 50), scales(name="f16"), codes("u16")), "DequantizeLinear of u16 to f16")
    yield Case(DequantizeLinear(output_dtype=dtypes.f16), (codes("i8", 9), scales()), "DequantizeLinear that names f16")
    yield Case(DequantizeLinear(output_dtype=dtypes.f32), (codes("i8", 9), scales(name="f16")), "DequantizeLinear that names f32")
    large = np.array([2**31 - 1, -(2**31), 2**24 + 1, 5], np.int32)
    yield Case(DequantizeLinear(), (large, scales()), "DequantizeLinear of great integers")


def dynamic() -> Iterator[Case]:
    near = {"openvino": "the CPU plugin multiplies by an inverse of the scale"}
    for name, x in (
        ("both signs", wide(3, 40)),
        ("positive numbers", np.abs(wide(40)) + 5),
        ("negative numbers", -np.abs(wide(40)) - 5),
        ("a matrix", wide(2, 3, 4)),
    ):
        yield Case(DynamicQuantizeLinear(), (x,), f"DynamicQuantizeLinear of {name}", skip=near)
    yield Case(DynamicQuantizeLinear(), (np.zeros((2, 3), np.float32),), "DynamicQuantizeLinear of zeros")


def fake() -> Iterator[Case]:
    x = wide(2, 3, 4, size=2.0)
    for levels, low, high, least, most in (
        (256, -1.28, 1.27, -1.28, 1.27),
        (255, -1.0, 1.3, -1.0, 1.3),
        (16, -0.7, 3.0, -5.0, 4.0),
        (2, 0.5, 0.5, -1.0, 1.0),
        (9, 4.0, -4.0, -4.0, 4.0),
    ):
        limits = [np.float32(limit) for limit in (low, high, least, most)]
        yield Case(FakeQuantize(levels), (x, *limits), f"FakeQuantize to {levels} levels", tolerance=1e-6)
    channels = [scales(3, 1, seed=seed) for seed in (1, 2)]
    yield Case(
        FakeQuantize(256), (x, -channels[0], channels[1], -channels[0], channels[1]), "FakeQuantize by channels", tolerance=1e-6
    )
    yield Case(
        FakeQuantize(16),
        (x, -channels[0], np.float32(1), np.zeros((1, 1, 1), np.float32), scales(2, 1, 1)),
        "FakeQuantize with limits of many shapes",
        tolerance=1e-6,
    )
    whole = [np.full(x.shape, limit, np.float32) for limit in (-1, 1, -1, 1)]
    yield Case(FakeQuantize(256, broadcast=False), (x, *whole), "FakeQuantize without broadcasting", tolerance=1e-6)
    ties = np.arange(-10, 11, dtype=np.float32) / 2
    yield Case(FakeQuantize(9), (ties, *map(np.float32, (-4, 4, -4, 4))), "FakeQuantize of ties", tolerance=1e-6)
    half = [np.float16(limit) for limit in (-1.5, 1.25, -1.5, 1.25)]
    yield Case(FakeQuantize(16), (wide(3, 4, name="f16", size=2.0), *half), "FakeQuantize of f16", tolerance=2e-3)


# numpy's arithmetic makes numbers of arrays without axes.
CASES: list[Case] = [
    replace(case, inputs=tuple(np.asarray(x) for x in case.inputs))
    for case in (*quantized(), *dequantized(), *dynamic(), *fake())
]
