"""Matrix products in the compiled core against numpy's in f64, over layouts, sizes and instruction sets."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.ir.host import native_core
from kernel_runner import check, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")

SIZES = [
    (1, 1, 1),
    (1, 300, 130),
    (2, 64, 7),
    (3, 33, 100),
    (5, 0, 4),
    (6, 16, 64),
    (0, 3, 4),
    (40, 20, 0),
    (33, 70, 45),
    (100, 129, 200),
]


def with_layout(values: Any, how: str) -> Any:
    """Return the same matrices, row by row, column by column, or as part of wider rows."""
    if how == "rows":
        return np.ascontiguousarray(values)
    if how == "columns":
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    room = np.full((*values.shape[:-1], values.shape[-1] * (2 if how == "spread" else 1) + 3), np.nan, np.float32)
    inside = room[..., 2 : 2 + 2 * values.shape[-1] : 2] if how == "spread" else room[..., 2 : 2 + values.shape[-1]]
    inside[...] = values
    return inside


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_product_is_the_sum_over_its_depth(sizes: tuple[int, int, int], constant: bool) -> None:
    rows, depth, columns = sizes
    a, b = random((rows, depth)), random((depth, columns), seed=1)
    expected = a.astype(np.float64) @ b
    ways = ["rows", "columns", "slice", "spread"]
    for left, right, out in itertools.product(ways, ways, ["rows", "slice", "columns"]):
        y = with_layout(np.zeros((rows, columns), np.float32), out)
        run("matmul", [with_layout(a, left), with_layout(b, right)], [y], {}, constants=[1] if constant else [])
        check(y, expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize(("heads", "depth", "length"), [(3, 64, 300), (2, 70, 257), (5, 7, 33), (1, 16, 15)])
def test_heads_of_a_cache_whose_outermost_axis_is_the_length(
    heads: int, depth: int, length: int, rows: int, threads: int
) -> None:
    queries, cache = random((2, heads, rows, depth)), random((length, 2, heads, depth), seed=1).transpose(1, 2, 0, 3)
    scores = np.zeros((2, heads, rows, length), np.float32)
    run("matmul", [queries, cache.swapaxes(-1, -2)], [scores], {}, threads=threads)
    check(scores, queries.astype(np.float64) @ cache.swapaxes(-1, -2))
    mixed = np.zeros((2, heads, rows, depth), np.float32)
    run("matmul", [scores, cache], [mixed], {}, threads=threads)
    check(mixed, scores.astype(np.float64) @ cache)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize(
    ("first", "second"),
    [((3, 2), (3, 2)), ((3, 2), ()), ((3, 2), (1, 2)), ((1, 2), (3, 1)), ((), (2, 3)), ((2, 1), (2, 3)), ((5,), (1,))],
)
def test_batches_are_repeated_where_they_are_missing(first: Any, second: Any, rows: int, constant: bool) -> None:
    a, b = random((*first, rows, 20)), random((*second, 20, 37), seed=1)
    expected = a.astype(np.float64) @ b
    for left, right in itertools.product(["rows", "columns", "slice"], repeat=2):
        y = np.zeros(expected.shape, np.float32)
        run("matmul", [with_layout(a, left), with_layout(b, right)], [y], {}, threads=2, constants=[1] if constant else [])
        check(y, expected)


@pytest.mark.parametrize("sizes", [(1, 30, 70), (9, 30, 70), (30, 30, 70), (60, 2100, 70)], ids=str)
@pytest.mark.parametrize("bias_sizes", [(70,), (1,), (1, 70), (3, 1, 1), (3, -1, 70), (-1, 1)])
@pytest.mark.parametrize("known", [False, True])
def test_scale_bias_residual_and_bounds_follow_in_their_order(sizes: Any, bias_sizes: Any, known: bool) -> None:
    rows, depth, columns = sizes
    a, b = random((3, rows, depth)), random((3, depth, columns), seed=1)
    bias, residual = random([rows if n < 0 else n for n in bias_sizes], seed=2), random((3, rows, columns), seed=3)
    expected = np.maximum(0.25 * (a.astype(np.float64) @ b) + bias + residual, 0)
    attributes = {"has_bias": 1, "has_residual": 1, "alpha": 0.25, "activation": "relu"}
    y = with_layout(residual, "slice")
    run("matmul", [a, b, bias, y], [y], attributes, constants=[2] if known else [])
    check(y, expected)
    run("matmul", [a, b, bias], [y], {"has_bias": 1}, constants=[2] if known else [])
    check(y, a.astype(np.float64) @ b + bias)


@pytest.mark.parametrize("shape", [(60, 70), (70,)])
@pytest.mark.parametrize("last", [False, True])
def test_a_deep_product_may_be_added_to_its_output(shape: tuple[int, ...], last: bool) -> None:
    a, b, bias, y = random((60, 2100)), random((2100, 70), seed=1), random(shape, seed=2), random((60, 70), seed=3)
    sums = a.astype(np.float64) @ b
    expected = np.maximum(sums, 0) + y if last else np.maximum(sums + y + bias, 0)
    inputs, constants = ([a, b, y], [1]) if last else ([a, b, bias, y], [1, 2])
    attributes = {"has_bias": int(not last), "has_residual": 1, "activation": "relu", "residual_after_activation": int(last)}
    run("matmul", inputs, [y], attributes, constants=constants)
    check(y, expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", [(15, 2, 40), (48, 300, 70), (100, 33, 9)], ids=str)
def test_rows_of_transposed_batches_are_copied_once(sizes: tuple[int, int, int], threads: int) -> None:
    rows, depth, columns = sizes
    a, b = random((2, 3, rows, depth)), random((3, depth, columns), seed=1)
    y = np.zeros((2, 3, rows, columns), np.float32)
    run("matmul", [with_layout(a, "columns"), b], [y], {}, threads=threads)
    check(y, a.astype(np.float64) @ b)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sizes", [(1, 600, 900), (13, 200, 300), (128, 64, 128)], ids=str)
def test_the_number_of_threads_does_not_show(sizes: Any, constant: bool) -> None:
    rows, depth, columns = sizes
    a, b = random((4, rows, depth)), with_layout(random((4, depth, columns), seed=1), "columns")
    results = []
    for threads in (1, 2, 3):
        y = np.zeros((4, rows, columns), np.float32)
        run("matmul", [a, b], [y], {}, threads=threads, constants=[1] if constant else [])
        results.append(y.tobytes())
    assert results[0] == results[1] == results[2]


def test_operands_that_do_not_fit_are_refused() -> None:
    y = np.zeros((3, 5), np.float32)
    for a, b in [
        (random((3, 4)), random((5, 5))),
        (random((2, 4)), random((4, 5))),
        (random((2, 3, 4)), random((4, 5))),
        (random((4,)), random((4, 5))),
    ]:
        with pytest.raises(ValueError):
            run("matmul", [a, b], [y], {})


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("columns", [40, 99, 1000])
def test_equal_columns_give_equal_sums(rows: int, columns: int) -> None:
    """Whatever panel a column lies in: ties stay ties."""
    generator = np.random.default_rng(rows * columns)
    x = generator.standard_normal((rows, 777)).astype(np.float32)
    w = np.repeat(generator.standard_normal((777, 1)).astype(np.float32), columns, axis=1)
    with dovetail.Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", x.shape), b.constant(w)))
    y = dovetail.compile(b.model, "native")(x)["y"]
    assert (y == y[:, :1]).all()
