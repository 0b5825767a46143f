"""Operators with codes of few bits, scales and zero points: bad input has the specification's answer or a named error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, DovetailError, Model
from dovetail.ir import dtypes

ENGINES = ("native", "interpreter")
DEPTH, COLUMNS, BLOCK = 70, 5, 32
COUNT = -(-DEPTH // BLOCK)
RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (COLUMNS, COUNT, BLOCK // 2)).astype(np.uint8)
CODES = np.stack([BYTES & 15, BYTES >> 4], -1).reshape(COLUMNS, -1)[:, :DEPTH]
SCALES = RNG.uniform(0.5, 1, (COLUMNS, COUNT)).astype(np.float32)
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-44, -1e-44, 3e38, 1e-38]
U4 = dtypes.dtype("u4").numpy
ROWS = np.eye(DEPTH, dtype=np.float32)
"""Rows of which each reads one element of every column."""
Build = Callable[[Builder, Any, np.ndarray, np.ndarray], Any]


def of_matmul_nbits(b: Builder, x: Any, scales: np.ndarray, points: np.ndarray) -> Any:
    parts = b.constant(BYTES), b.constant(scales), b.constant(points)
    return b.MatMulNBits(x, *parts, k=DEPTH, n=COLUMNS, block_size=BLOCK)


def of_dequantize(b: Builder, x: Any, scales: np.ndarray, points: np.ndarray) -> Any:
    parts = b.constant(CODES.astype(U4)), b.constant(scales), b.constant(points.astype(np.uint8).astype(U4))
    return b.MatMul(x, b.DequantizeLinear(*parts, axis=1, block_size=BLOCK), transpose_b=True)


def of_casts(b: Builder, x: Any, scales: np.ndarray, points: np.ndarray) -> Any:
    wide = (np.repeat(array, BLOCK, 1)[:, :DEPTH] for array in (points, scales))
    w = b.Multiply(b.Subtract(b.Cast(b.constant(CODES.astype(U4)), to="f32"), next(wide)), next(wide))
    return b.MatMul(x, w, transpose_b=True)


def of_gather(b: Builder, x: Any, scales: np.ndarray, points: np.ndarray) -> Any:
    table = b.constant(CODES.astype(U4)), b.constant(scales), b.constant(points.astype(np.uint8).astype(U4))
    indices = b.constant(np.arange(COLUMNS))
    rows = b.GatherBlockQuantized(table[0], indices, *table[1:], block_size=BLOCK)
    return b.Add(b.Transpose(rows), b.Multiply(b.ReduceSum(x, [1], keepdims=True), np.float32(0)))


TINY = float(np.finfo(np.float32).tiny)
"""The smallest normal number: the kernels take smaller ones as 0."""
FORMS: dict[str, Build] = {
    "MatMulNBits": of_matmul_nbits,
    "DequantizeLinear": of_dequantize,
    "Cast": of_casts,
    "GatherBlockQuantized": of_gather,
}


def model_of(build: Build, scales: np.ndarray, points: np.ndarray) -> Model:
    with Builder() as b:
        b.output("y", build(b, b.input("x", "f32", ("n", DEPTH)), scales, points))
    return b.model


@pytest.mark.parametrize("scale", SPECIAL)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_special_scales_have_the_answer_of_the_definition(engine: str, form: str, scale: float) -> None:
    """The block of one column has the scale; a row of one 1 and zeros reads an element, and NaN where 0 meets infinity or NaN."""
    scales, points = SCALES.copy(), RNG.integers(0, 16, SCALES.shape).astype(np.float32)
    scales[1, 0] = scale
    with np.errstate(all="ignore"):
        w = (CODES - np.repeat(points, BLOCK, 1)[:, :DEPTH]) * np.repeat(scales, BLOCK, 1)[:, :DEPTH]
        want = w.T if form == "GatherBlockQuantized" else np.where(np.isfinite(w).all(1), w.T, np.float32(np.nan))
        if form != "GatherBlockQuantized" and not np.isfinite(scale):
            want = ROWS @ w.T
    found = dovetail.compile(model_of(FORMS[form], scales, points), engine)(ROWS)["y"]
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=TINY)


@pytest.mark.parametrize("point", [-1.0, 16.0, 7.5, np.nan, np.inf, 1e30])
@pytest.mark.parametrize("form", ["MatMulNBits", "Cast"])
@pytest.mark.parametrize("engine", ENGINES)
def test_zero_points_of_floats_may_be_any_number(engine: str, form: str, point: float) -> None:
    points = np.full(SCALES.shape, 3, np.float32)
    points[2, 1] = point
    with np.errstate(all="ignore"):
        w = (CODES - np.repeat(points, BLOCK, 1)[:, :DEPTH]) * np.repeat(SCALES, BLOCK, 1)[:, :DEPTH]
        want = ROWS @ w.T
    found = dovetail.compile(model_of(FORMS[form], SCALES, points), engine)(ROWS)["y"]
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize("order", ["unsorted", "natural", "padded"])
@pytest.mark.parametrize("engine", ENGINES)
def test_g_idx_assigns_positions_to_blocks(engine: str, order: str) -> None:
    g_idx = np.arange(DEPTH) // BLOCK if order == "natural" else np.arange(DEPTH) * 7 % COUNT
    w = (CODES - np.float32(8)) * SCALES[:, g_idx]
    stored = np.append(g_idx, [-9] * (COUNT * BLOCK - DEPTH)) if order == "padded" else g_idx
    with Builder() as b:
        x, parts = b.input("x", "f32", ("n", DEPTH)), (b.constant(BYTES), b.constant(SCALES))
        b.output("y", b.MatMulNBits(x, *parts, None, stored.astype(np.int32), k=DEPTH, n=COLUMNS, block_size=BLOCK))
    np.testing.assert_array_equal(dovetail.compile(b.model, engine)(ROWS)["y"], w.T)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (17, 3), (33, 1), (70, 5)])
@pytest.mark.parametrize("engine", ENGINES)
def test_odd_sizes(engine: str, depth: int, columns: int, bits: int) -> None:
    count = -(-depth // 16)
    packed = RNG.integers(0, 256, (columns, count, 2 * bits)).astype(np.uint8)
    points = RNG.integers(0, 256, (columns, -(-count * bits // 8))).astype(np.uint8)

    def codes(array: np.ndarray) -> np.ndarray:
        return np.stack([array >> at & (2**bits - 1) for at in range(0, 8, bits)], -1).reshape(columns, -1).astype(np.float32)

    w = (codes(packed)[:, :depth] - np.repeat(codes(points)[:, :count], 16, 1)[:, :depth]) * np.float32(0.5)
    with Builder() as b:
        parts = b.constant(packed), b.constant(np.full((columns, count), 0.5, np.float32)), b.constant(points)
        x = b.input("x", "f32", ("n", depth))
        b.output("y", b.MatMulNBits(x, *parts, k=depth, n=columns, bits=bits, block_size=16))
    np.testing.assert_array_equal(dovetail.compile(b.model, engine)(np.eye(depth, dtype=np.float32))["y"], w.T)


WRONG: dict[str, tuple[str, Callable[[Builder, Any], Any]]] = {
    "codes of fewer blocks": ("shape.disagree", lambda b, x: b.MatMulNBits(x, BYTES[:, 1:], SCALES, k=DEPTH, n=COLUMNS)),
    "fewer columns": ("shape.disagree", lambda b, x: b.MatMulNBits(x, BYTES[1:], SCALES, k=DEPTH, n=COLUMNS)),
    "fewer bytes in a vector": (
        "shape.disagree",
        lambda b, x: b.MatMulNBits(x, BYTES.reshape(-1)[1:], SCALES, k=DEPTH, n=COLUMNS),
    ),
    "fewer scales": ("shape.disagree", lambda b, x: b.MatMulNBits(x, BYTES, SCALES[:, 1:], k=DEPTH, n=COLUMNS)),
    "fewer zero points": (
        "shape.disagree",
        lambda b, x: b.MatMulNBits(x, BYTES, SCALES, np.zeros((COLUMNS, 1), np.uint8), k=DEPTH, n=COLUMNS),
    ),
    "zero points of i8": (
        "quantize.type",
        lambda b, x: b.MatMulNBits(x, BYTES, SCALES, np.zeros((COLUMNS, 2), np.int8), k=DEPTH, n=COLUMNS),
    ),
    "g_idx of the wrong length": (
        "shape.disagree",
        lambda b, x: b.MatMulNBits(x, BYTES, SCALES, None, np.zeros(DEPTH - 1, np.int32), k=DEPTH, n=COLUMNS),
    ),
    "another depth": ("shape.disagree", lambda b, x: b.MatMulNBits(x, BYTES, SCALES, k=DEPTH + 1, n=COLUMNS)),
    "fewer blocks of scales": (
        "shape.disagree",
        lambda b, x: b.MatMul(x, b.DequantizeLinear(CODES.T.astype(U4), SCALES.T[1:].copy(), axis=0, block_size=BLOCK)),
    ),
    "scales of another rank": (
        "shape.rank",
        lambda b, x: b.MatMul(x, b.DequantizeLinear(CODES.T.astype(U4), SCALES[0], axis=0, block_size=BLOCK)),
    ),
    "a table with fewer scales": (
        "shape.disagree",
        lambda b, x: b.GatherBlockQuantized(CODES.astype(U4), [0], SCALES[:, 1:], block_size=BLOCK),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sizes_have_names(name: str) -> None:
    code, build = WRONG[name]
    with Builder() as b:
        x = b.input("x", "f32", ("n", DEPTH))
        with pytest.raises(DovetailError) as caught:
            build(b, x)
    assert caught.value.code == code


@pytest.mark.parametrize("entry", [-1, COUNT, 2**31 - 1])
@pytest.mark.parametrize("engine", ENGINES)
def test_entries_of_g_idx_out_of_range_are_refused(engine: str, entry: int) -> None:
    g_idx = (np.arange(DEPTH) // BLOCK).astype(np.int32)
    g_idx[3] = entry
    with Builder() as b:
        x, parts = b.input("x", "f32", ("n", DEPTH)), (b.constant(BYTES), b.constant(SCALES))
        b.output("y", b.MatMulNBits(x, *parts, None, b.input("g", "i32", (DEPTH,)), k=DEPTH, n=COLUMNS))
    with pytest.raises(DovetailError, match=r"index\.range"):
        dovetail.compile(b.model, engine)(ROWS, g_idx)


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
@pytest.mark.parametrize("form", ["DequantizeLinear", "Cast"])
def test_packed_constants_that_are_cut_off_are_refused(form: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    dovetail.save(model_of(FORMS[form], SCALES, np.full(SCALES.shape, 3, np.float32)), path)
    if suffix == ".xml":
        text = path.read_text()
        sizes = re.findall(r'element_type="u4"[^>]*size="(\d+)"|size="(\d+)"[^>]*element_type="u4"', text)
        size = max(int(first or second) for first, second in sizes)
        path.write_text(text.replace(f'size="{size}"', f'size="{size - 1}"'))
    else:
        import onnx

        proto = onnx.load(path)
        packed = max((item for item in proto.graph.initializer if item.data_type == 21), key=lambda item: len(item.raw_data))
        packed.raw_data = packed.raw_data[:-1]
        onnx.save(proto, path)
    with pytest.raises(dovetail.FormatError) as caught:
        dovetail.load(path)
    assert caught.value.code in ("data.size", "ir.constant")
