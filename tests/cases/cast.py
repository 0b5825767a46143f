"""Casts from every kind of type to every other, saturated or not, and bits read as another type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases import Case
from cases.elementwise import numbers
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ops.elementwise.cast import BitCast, Cast, CastLike

NUMBERS = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "boolean")
SMALL = ("i4", "u4", "i2", "u2", "f4e2m1", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0")


# f64 on all processors, the others on those without AVX-512.
_CUT = ("f64", "f32", "f16")


def named(name: str) -> DType:
    return dtypes.dtype(name)


def plain() -> Iterator[Case]:
    for source in NUMBERS:
        x = numbers(source, 2, 3, low=0, high=100)
        for target in NUMBERS:
            if source != target:
                skip = {"openvino": "OpenVINO's CPU plugin may cut off what bf16 lacks"}
                yield Case(Cast(named(target)), (x,), skip=skip if target == "bf16" and source in _CUT else {})
    yield Case(Cast(named("i8")), (np.array([300, -300, 127, -128], np.int32),), name="integers wrap")
    yield Case(Cast(named("u8")), (np.array([300, -1], np.int64),), name="negative integers wrap")
    yield Case(Cast(named("boolean")), (np.array([0.0, -0.0, 0.5, -2], np.float32),), name="whatever is not 0 is true")
    yield Case(Cast(named("f16")), (np.array([65504, 65519, 65520, 1e9, 1e-8], np.float32),), name="beyond f16")
    yield Case(Cast(named("bf16")), (np.array([1.00390625, 1.01171875, 3.4e38], np.float32),), name="halves go to even")
    yield Case(Cast(named("f32")), (np.array(3, np.int64),))
    yield Case(Cast(named("f32")), (np.zeros((0, 2), np.int64),))


def narrow() -> Iterator[Case]:
    x = np.array([0, 0.3, 1, 1.5, 2.25, 300], np.float32)
    for target in SMALL:
        values: Any = np.array([0, 1, 1], np.float32) if named(target).is_integer else x
        packed = named(target).bits < 8 or target == "f8e8m0"
        skip = dict.fromkeys(("onnxruntime", "openvino"), f"it gives no {target} to Python") if packed else {}
        yield Case(Cast(named(target)), (values,), skip=skip)
        yield Case(Cast(named("f32")), (values.astype(named(target).numpy),), skip=skip)
    f8 = np.array([448, 464, 1e6, -1e6, np.inf, -np.inf, np.nan, 0.01, -0.0], np.float32)
    with np.errstate(over="ignore"):
        f8_as_f16 = f8.astype(np.float16)
    for target in SMALL[5:9]:
        yield Case(Cast(named(target)), (f8,), name=f"saturated to {target}")
        yield Case(Cast(named(target), saturate=False), (f8,), name=f"beyond {target}")
        yield Case(Cast(named(target)), (f8_as_f16,), name=f"f16 saturated to {target}")
    for target in SMALL[7:9]:
        beyond = {"old onnxruntime": "it saturates infinity, which Cast before 24 makes NaN"}
        yield Case(Cast(named(target), saturate_infinity=False), (f8,), name=f"infinity to {target}", skip=beyond)
    for rounding in ("up", "down", "nearest", "even"):
        scales = np.array([0.3, 1, 1.2, 1.5, 3, 5, 300], np.float32)
        yield Case(Cast(named("f8e8m0"), round_mode=rounding), (scales,), skip={"onnxruntime": "it gives no f8e8m0 to Python"})


INTEGERS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "i4", "u4", "i2", "u2")


def edges(source: str, target: str) -> Any:
    """Floats around the ends of an integer type's range, those next to them, infinities and NaN, in all lanes of a vector."""
    low, high = named(target).range()
    near = [end + step for end in (low, high, high + 1) for step in (-1, -0.5, 0, 0.5, 1)]
    far = [np.nan, -np.nan, np.inf, -np.inf, -1.54, -0.99, -0.0, 1e30, -1e30, 2.0**31, -(2.0**31), 2.0**32]
    wide = np.array([*near, *far], np.float64)
    with np.errstate(all="ignore"):
        x = wide.astype(named(source).numpy)
        if source != "bf16":
            x = np.concatenate([x, np.nextafter(x, x.dtype.type(0)), np.nextafter(x, x.dtype.type(np.inf))])
        return np.concatenate([x, x[::-1], x[1:]])


def out_of_range() -> Iterator[Case]:
    reason = "the specifications leave open what a float out of range becomes"
    for source in ("f64", "f32", "f16", "bf16"):
        for target in INTEGERS:
            skip = dict.fromkeys(("onnxruntime", "onnx.reference", "old onnxruntime", "openvino"), reason)
            yield Case(Cast(named(target)), (edges(source, target),), name=f"{source} out of range of {target}", skip=skip)


def texts() -> Iterator[Case]:
    aborts = {"openvino": "OpenVINO's CPU plugin aborts on strings"}
    yield Case(Cast(named("f32")), (np.array(["1.5", "-2e3", "0"], dtype=object),), skip=aborts)
    yield Case(Cast(named("i64")), (np.array(["15", "-2"], dtype=object),), skip=aborts)
    yield Case(Cast(named("string")), (np.array([15, -2], np.int64),), skip=aborts)


def like() -> Iterator[Case]:
    for source, target in (("f32", "i32"), ("i64", "f16"), ("boolean", "f32"), ("f64", "boolean"), ("f32", "f8e4m3")):
        yield Case(CastLike(), (numbers(source, 2, 3, low=0, high=9), numbers(target, 1, low=0, high=1)))
    yield Case(CastLike(saturate=False), (np.array([1e6, 1], np.float32), np.zeros(1, named("f8e5m2").numpy)))


def same_bits() -> Iterator[Case]:
    pairs = "f32 i32, i32 f32, u8 i8, f64 u64, bf16 f16, i4 u4, u4 i4, u2 i2, f4e2m1 u4, u4 f4e2m1, u8 f8e4m3, boolean u8"
    for source, target in (pair.split() for pair in pairs.split(", ")):
        yield Case(BitCast(named(target)), (numbers(source, 2, 3, low=-2, high=3),))
    yield Case(BitCast(named("i32")), (np.array(1.5, np.float32),))


CASES: list[Case] = [*plain(), *narrow(), *out_of_range(), *texts(), *like(), *same_bits()]
