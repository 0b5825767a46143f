"""Concat and Split: axes from either end, empty pieces, every element type, every way to say the lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ir import dtypes
from dovetail.ops.tensor.concat_split import Concat, Split

_ABORTS = {"string": {"openvino": "OpenVINO's CPU plugin aborts on it"}}
_UNWILLING = {"onnxruntime": "onnxruntime refuses empty pieces that num_outputs makes"}


def elements(name: str, shape: tuple[int, ...], start: int = 0) -> np.ndarray[Any, Any]:
    """Values that differ where the type has room for it; no two arrays with different ``start`` begin alike."""
    kind = dtypes.dtype(name)
    count = int(np.prod(shape))
    if name == "string":
        return np.array([f"s{start + index}" for index in range(count)], dtype=object).reshape(shape)
    if name == "boolean":
        return (np.arange(start, start + count) % 3 == 0).reshape(shape)
    if kind.is_integer:
        low, high = kind.range()
        return (
            np.array([low + (start + 7 * index) % (high - low + 1) for index in range(count)], dtype=object)
            .astype(kind.numpy)
            .reshape(shape)
        )
    if name.startswith("complex"):
        return (np.arange(start, start + count) - 1j).astype(kind.numpy).reshape(shape)
    bits = np.random.default_rng(start).integers(0, 2 ** min(kind.bits, 8), (count, kind.numpy.itemsize), np.uint8)
    if kind.bits > 8:
        return np.random.default_rng(start).standard_normal(shape).astype(kind.numpy)
    return bits.view(kind.numpy).reshape(shape)


TYPES = (
    "f64 f32 f16 bf16 f8e4m3 f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1 "
    "i64 i32 i16 i8 i4 i2 u64 u32 u16 u8 u4 u2 boolean string complex64 complex128"
).split()


def f32(*shape: int, start: int = 0) -> np.ndarray[Any, Any]:
    return elements("f32", shape, start)


def i64(*items: int) -> np.ndarray[Any, Any]:
    return np.array(items, dtype=np.int64)


_SPECIAL = np.array([np.nan, -0.0, np.inf, -np.inf, 5e-324, -1.0])

CASES: list[Case] = [
    *(Case(Concat(1), (elements(name, (2, 3)), elements(name, (2, 2), 5)), f"Concat of {name}") for name in TYPES),
    Case(Concat(0), (f32(3),), "Concat of one vector"),
    Case(Concat(0), (f32(2), f32(0, start=1), f32(3, start=2)), "Concat with an empty piece"),
    Case(Concat(0), (f32(0, 2), f32(0, 2)), "Concat of nothing"),
    Case(Concat(-1), (f32(2, 3, 1), f32(2, 3, 2, start=1), f32(2, 3, 4, start=2)), "Concat from the end"),
    Case(Concat(-3), (f32(1, 2, 2), f32(3, 2, 2, start=1)), "Concat at -rank"),
    Case(Concat(1), (f32(2, 1, 3, 2, 2), f32(2, 4, 3, 2, 2, start=1)), "Concat of rank 5"),
    Case(Concat(2), (f32(1, 3, 2, 2), f32(1, 3, 5, 2, start=3)), "Concat along the height"),
    Case(Concat(1), (f32(2, 3), f32(2, 3)), "Concat of equal arrays"),
    Case(Concat(1), (f32(0, 3), f32(0, 2)), "Concat of empty rows"),
    Case(Concat(0), tuple(f32(1, 2, start=index) for index in range(17)), "Concat of many"),
    Case(
        Concat(0),
        (_SPECIAL, _SPECIAL[::-1].copy()),
        "Concat of special values",
        skip={"openvino": "the CPU plugin computes f64 in f32"},
    ),
    Case(Concat(1), (f32(2, 3), f32(2, 3, start=1)), "Concat with a constant", constants=(1,)),
    *(Case(Split(1, 2), (elements(name, (2, 4)),), f"Split of {name}", skip=_ABORTS.get(name, {})) for name in TYPES),
    *(
        Case(Split(0, 2), (elements(name, (5,)), i64(2, 3)), f"Split of {name} by lengths")
        for name in ("f32", "i64", "u8", "boolean")
    ),
    Case(Split(0, 1), (f32(3, 2),), "Split into one"),
    Case(Split(-1, 3), (f32(2, 6),), "Split from the end"),
    Case(Split(-2, 2), (f32(2, 4, 3),), "Split at -2"),
    Case(Split(2, 4), (f32(1, 2, 8, 2, 2),), "Split of rank 5"),
    Case(Split(1, 3), (f32(2, 6), i64(1, 2, 3)), "Split by lengths"),
    Case(Split(-1, 3), (f32(2, 6), i64(0, 6, 0)), "Split with empty pieces"),
    Case(Split(0, 2), (f32(0, 2),), "Split of nothing", skip=_UNWILLING),
    Case(Split(1, 3, wildcard=True), (f32(2, 7), i64(2, -1, 3)), "Split with the remainder in the middle"),
    Case(Split(0, 2, wildcard=True), (f32(5), i64(5, -1)), "Split with an empty remainder"),
    Case(Split(0, 2, wildcard=True), (f32(5), i64(2, 3)), "Split whose wildcard is not used"),
    Case(Split(0, 3, ragged=True), (f32(7),), "Split ragged, 7 into 3"),
    Case(Split(1, 4, ragged=True), (f32(2, 10),), "Split ragged, 10 into 4"),
    Case(Split(1, 2, ragged=True), (f32(2, 6),), "Split ragged that divides"),
    Case(Split(0, 4, ragged=True), (f32(3),), "Split ragged with nothing left", skip=_UNWILLING),
    Case(Split(1, 2), (np.array([[np.nan, -0.0, np.inf, -1.0]], dtype=np.float32),), "Split of special values"),
]
