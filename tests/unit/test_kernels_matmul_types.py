"""Matrix products of f64 and integers against numpy, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail import Graph, compile, plan
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ops.linalg.matmul import Gemm, MatMul
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

KINDS = ("float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SHAPES = [
    ((1, 1), (1, 1)),
    ((3, 5), (5, 7)),
    ((4, 300), (300, 16)),
    ((70, 257), (257, 129)),
    ((2, 3, 6, 9), (2, 3, 9, 33)),
    ((2, 1, 6, 9), (3, 9, 40)),
    ((6, 9), (2, 9, 4)),
    ((0, 4), (4, 3)),
    ((3, 0), (0, 5)),
    ((2, 3, 4), (4, 0)),
]


def product(a: Any, b: Any, layout: str = "row_major", threads: int = 2) -> Any:
    y = np.full(np.matmul(a, b).shape, 7, a.dtype)
    a, b, y = (LAYOUTS[layout](array) if array.ndim > 2 else array for array in (a, b, y))
    run("plain_matmul", [a, b], [y], {}, threads)
    return np.array(y)


def check(y: Any, expected: Any, scale: Any) -> None:
    if y.dtype.kind == "f":
        np.testing.assert_array_less(np.abs(y - expected), 1e-14 * scale + 1e-300)
    else:
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_every_type(left: Any, right: Any, kind: str) -> None:
    a, b = random(left, kind), random(right, kind, 1)
    expected, scale = np.matmul(a, b), np.matmul(np.abs(a), np.abs(b))
    for layout in LAYOUTS:
        check(product(a, b, layout), expected, scale)
    if len(left) == len(right) == 2:
        check(product(np.asfortranarray(a), np.asfortranarray(b)), expected, scale)
        check(product(a[::-1], b[:, ::-1]), expected[::-1, ::-1], scale[::-1, ::-1])


@pytest.mark.parametrize("kind", ["float64", "int32"])
def test_threads_make_no_difference(kind: str) -> None:
    a, b = random((150, 70), kind), random((70, 200), kind, 1)
    assert len({product(a, b, threads=threads).tobytes() for threads in (1, 2, 3)}) == 1


@pytest.mark.parametrize("kind", ["f64", "i32", "u8"])
@pytest.mark.parametrize("swap", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_the_engine(swap: tuple[bool, bool], kind: str) -> None:
    """Transposed operands, a following sum, vectors, and Gemm."""
    name = dtypes.dtype(kind).numpy.name
    a, c = random((4, 6)[:: -1 if swap[0] else 1], name), random((6, 5)[:: -1 if swap[1] else 1], name, 1)
    vector, bias = random((6,), name, 2), random((5,), name, 3)
    b = Builder(graph=Graph())
    x, y, v, w = (b.input(str(i), dtypes.dtype(kind), array.shape) for i, array in enumerate((a, c, vector, bias)))
    b.output("sum", b.Add(*b.add(MatMul(*swap), x, y), w))
    b.output("left", *b.add(MatMul(False, swap[1]), v, y))
    b.output("right", *b.add(MatMul(swap[0], True), x, v))
    b.output("both", b.MatMul(v, v))
    b.output("gemm", *b.add(Gemm(transpose_a=swap[0], transpose_b=swap[1]), x, y, w))
    assert not plan(Model(b.graph), rounds=0).interpreted
    found = compile(Model(b.graph), engine="native")({"0": a, "1": c, "2": vector, "3": bias})
    left, right = a.T if swap[0] else a, c.T if swap[1] else c
    expected = {
        "sum": left @ right + bias,
        "left": vector @ right,
        "right": left @ vector,
        "both": vector @ vector,
        "gemm": left @ right + bias,
    }
    for key, value in expected.items():
        assert found[key].shape == np.shape(value)
        np.testing.assert_allclose(found[key], value, rtol=1e-12 if kind == "f64" else 0, err_msg=key)


@pytest.mark.parametrize(
    ("left", "right", "made", "kinds"),
    [
        ((3, 4), (5, 6), (3, 6), ("float64",) * 3),
        ((3, 4), (4, 6), (3, 5), ("float64",) * 3),
        ((2, 3, 4), (3, 4, 6), (3, 3, 6), ("float64",) * 3),
        ((3, 4), (4, 6), (3, 6), ("float64", "int64", "float64")),
        ((3, 4), (4, 6), (3, 6), ("float16",) * 3),
        ((4,), (4, 6), (6,), ("float64",) * 3),
    ],
)
def test_operands_that_do_not_fit_make_no_step(left: Any, right: Any, made: Any, kinds: Any) -> None:
    a, b, y = (np.zeros(shape, kind) for shape, kind in zip((left, right, made), kinds, strict=True))
    with pytest.raises(ValueError, match="plain_matmul"):
        run("plain_matmul", [a, b], [y], {})
