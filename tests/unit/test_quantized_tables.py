"""Tables of few bits: Gather reads codes, and only the slices that are read become floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, Value
from dovetail.engine.engine import Engine
from dovetail.ir import dtypes

COUNT, WIDTH, BLOCK = 1000, 64, 32
RNG = np.random.default_rng(0)
SCALES = RNG.uniform(0.5, 1, (COUNT, WIDTH)).astype(np.float32)
INDICES = np.array([[0, 5, -1], [-COUNT, COUNT - 1, 7]])
Lookup = Callable[[Builder, Value, str], Value]


def codes_of(dtype: str, *shape: int) -> np.ndarray:
    kind = dtypes.dtype(dtype)
    low, high = kind.range()
    return RNG.integers(low, high + 1, shape).astype(np.int16).astype(kind.numpy)


def dequantized(dtype: str, scale: np.ndarray, axis: int = 0, block: int = 0, along: int = 1) -> Lookup:
    """DequantizeLinear with scales and zero points along ``along``, and slices along ``axis``."""
    codes, points = codes_of(dtype, COUNT, WIDTH), codes_of(dtype, *scale.shape)
    scale = np.ascontiguousarray(scale)

    def build(b: Builder, indices: Value, bounds: str) -> Value:
        table = b.DequantizeLinear(b.constant(codes), scale, points, axis=along, block_size=block)
        return b.Gather(table, indices, axis=axis, bounds=bounds)

    return build


def computed(dtype: str, points: bool = True, kind: str = "f32") -> Lookup:
    """Cast, Subtract, Multiply and Reshape, as OpenVINO's models have them."""
    blocks = WIDTH // BLOCK
    codes, offsets = codes_of(dtype, COUNT, blocks, BLOCK), codes_of(dtype, COUNT, blocks, 1)
    scales = SCALES[:, :blocks, None].astype(dtypes.dtype(kind).numpy)

    def build(b: Builder, indices: Value, bounds: str) -> Value:
        w = b.Cast(b.constant(codes), to=kind)
        if points:
            w = b.Subtract(w, b.Cast(b.constant(offsets), to=kind))
        w = b.Reshape(b.Multiply(w, b.constant(scales)), [COUNT, WIDTH])
        return b.Gather(w if kind == "f32" else b.Cast(w, to="f32"), indices, axis=0, bounds=bounds)

    return build


def f16_rows(b: Builder, indices: Value, bounds: str) -> Value:
    return b.Gather(b.Cast(b.constant(SCALES.astype(np.float16)), to="f32"), indices, axis=0, bounds=bounds)


TABLES: dict[str, Lookup] = {
    "i8 by row": dequantized("i8", SCALES[:, 0], along=0),
    "u8 by column": dequantized("u8", SCALES[0], along=1),
    "u8 with one scale": dequantized("u8", SCALES[0, 0]),
    "u8 with one scale, columns": dequantized("u8", SCALES[0, 0], axis=1),
    "i8 by column, columns": dequantized("i8", SCALES[0], axis=1),
    "i4 in blocks": dequantized("i4", SCALES[:, :2], block=BLOCK),
    "u4 in blocks along rows, columns": dequantized("u4", SCALES[:32, :], axis=1, block=BLOCK, along=0),
    "u4 computed": computed("u4"),
    "i4 computed": computed("i4", points=False),
    "u2 computed": computed("u2"),
    "i8 computed in f16": computed("i8", kind="f16"),
    "f16": f16_rows,
}


def assert_same_in_both_engines(b: Builder, indices: np.ndarray) -> None:
    want = dovetail.compile(b.model, "interpreter")(indices)["y"]
    engine = Engine(b.model)
    np.testing.assert_array_equal(engine({"i": indices})["y"], want)
    constants = [value.constant for value in engine.graph.values() if value.constant is not None]
    assert all(array.nbytes <= 2 * COUNT * WIDTH for array in constants)


@pytest.mark.parametrize("bounds", ["error", "zero"])
@pytest.mark.parametrize("name", TABLES)
def test_slices_of_tables_of_few_bits_are_dequantized(name: str, bounds: str) -> None:
    with Builder() as b:
        b.output("y", TABLES[name](b, b.input("i", "i64", ("n", "m")), bounds))
    size = WIDTH if name.endswith("columns") else COUNT
    indices = np.concatenate([INDICES % size - (INDICES < 0) * size, *([[[size, -size - 1, 0]]] if bounds == "zero" else [])])
    assert_same_in_both_engines(b, indices)
    if bounds == "error":
        with pytest.raises(dovetail.DovetailError, match=r"index\.range"):
            dovetail.compile(b.model)(np.array([[size]]))


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("dtype", "bits"), [("u8", 2), ("u8", 4), ("u8", 8), ("u4", 4), ("i4", 4)])
def test_gather_block_quantized_reads_codes(dtype: str, bits: int, points: bool) -> None:
    count = WIDTH * 8 // bits if dtype == "u8" else WIDTH
    blocks = -(-count // BLOCK)
    inputs: list[Any] = [codes_of(dtype, COUNT, WIDTH), None, SCALES[:, :blocks].copy()]
    if points:
        inputs.append(codes_of(dtype, COUNT, -(-blocks * bits // 8) if dtype == "u8" else blocks))
    with Builder() as b:
        inputs[1] = b.input("i", "i64", ("n", "m"))
        b.output("y", b.GatherBlockQuantized(*inputs, bits=bits, block_size=BLOCK))
    assert_same_in_both_engines(b, np.concatenate([INDICES, [[COUNT, -COUNT - 1, 0]]]))


def test_a_table_that_a_product_reads_too_stays_in_few_bits() -> None:
    """The embedding of many language models is their last product as well."""
    with Builder() as b:
        table = b.DequantizeLinear(
            b.constant(codes_of("i8", COUNT, WIDTH)), SCALES[:, 0].copy(), np.zeros(COUNT, np.int8), axis=0
        )
        rows = b.Gather(table, b.input("i", "i64", ("n", "m")), axis=0)
        b.output("y", b.MatMul(rows, table, transpose_b=True))
    want = dovetail.compile(b.model, "interpreter")(INDICES)["y"]
    engine = Engine(b.model)
    bound = (WIDTH + 4) * np.finfo(np.float32).eps * np.abs(want).max()
    np.testing.assert_allclose(engine({"i": INDICES})["y"], want, rtol=0, atol=bound)
    assert not [value for value in engine.graph.values() if value.constant is not None and value.constant.nbytes > COUNT * WIDTH]
