"""The kernels that scatter, and Trilu, against loops over elements, in every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail import Graph, compile
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from kernel_runner import LAYOUTS, random, run, spread

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "replace": lambda x, y: y,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
KINDS = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")

ELEMENTS: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "first axis": (0, (5, 6, 7), (9, 6, 7)),
    "middle": (1, (2, 60, 3, 4), (2, 11, 3, 4)),
    "last": (2, (2, 3, 90), (2, 3, 40)),
    "smaller off the axis": (1, (4, 5, 6), (2, 8, 3)),
    "one": (0, (1,), (3,)),
    "no indices": (1, (4, 5, 6), (2, 0, 3)),
    "no data": (1, (0, 5, 6), (0, 2, 6)),
}
TUPLES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "elements": ((5, 6, 7), (4, 8, 2, 3)),
    "slices": ((5, 6, 70), (4, 8, 2)),
    "wide slices": ((5, 6, 7, 8), (9, 1)),
    "no coordinates": ((3, 4), (2, 0)),
    "no indices": ((3, 4, 2), (0, 1)),
}


def indices_of(shape: tuple[int, ...], size: int) -> Any:
    """Few different indices, so that many updates meet."""
    return np.random.default_rng(len(shape)).integers(-size, max(size, 1 - size), shape)


def with_layout(layout: str, x: Any) -> Any:
    return LAYOUTS[layout](x) if x.ndim > 2 else x


def scattered(
    kernel: str, data: Any, indices: Any, updates: Any, layout: str = "row_major", threads: int = 2, **facts: Any
) -> Any:
    y = with_layout(layout, np.ones_like(data))
    inputs = [with_layout(layout, data), spread(indices) if indices.ndim else indices, with_layout(layout, updates)]
    run(kernel, inputs, [y], facts, threads)
    return np.array(y)


def by_loop(data: Any, rows: Any, updates: Any, reduction: str) -> Any:
    """``rows``: the indices of each update in ``data``; ``updates``: the slices in the same order."""
    y = data.copy()
    with np.errstate(all="ignore"):
        for row, update in zip(rows, updates, strict=True):
            y[row] = COMBINE[reduction](y[row], update)
    return y


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ELEMENTS)
def test_scatter_elements(name: str, kind: str, reduction: str) -> None:
    axis, shape, of = ELEMENTS[name]
    data, updates, indices = random(shape, kind), random(of, kind, 1), indices_of(of, shape[axis])
    rows = [(*at[:axis], int(indices[at]), *at[axis + 1 :]) for at in np.ndindex(of)]
    expected = by_loop(data, rows, [updates[at] for at in np.ndindex(of)], reduction)
    for layout in LAYOUTS:
        y = scattered("scatter_elements", data, indices, updates, layout, axis=axis, reduction=reduction)
        np.testing.assert_array_equal(y, expected, err_msg=layout)


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TUPLES)
def test_scatter_nd(name: str, kind: str, reduction: str) -> None:
    shape, of = TUPLES[name]
    indices = np.zeros(of, np.int64)
    for i in range(of[-1]):
        indices[..., i] = indices_of((*of[:-1], i + 1), shape[i])[..., 0]
    data, updates = random(shape, kind), random((*of[:-1], *shape[of[-1] :]), kind, 1)
    rows = [tuple(indices[at].tolist()) for at in np.ndindex(of[:-1])]
    expected = by_loop(data, rows, [updates[at] for at in np.ndindex(of[:-1])], reduction)
    for layout in LAYOUTS:
        y = scattered("scatter_nd", data, indices, updates, layout, reduction=reduction)
        np.testing.assert_array_equal(y, expected, err_msg=layout)


@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize(("axis", "of"), [(0, (7,)), (1, (2, 3)), (2, ()), (1, (0,))])
def test_scatter_update(axis: int, of: tuple[int, ...], kind: str) -> None:
    shape = (5, 6, 7)
    indices = np.random.default_rng(0).integers(0, shape[axis], of, np.int32)
    data, updates = random(shape, kind), random((*shape[:axis], *of, *shape[axis + 1 :]), kind, 1)
    expected = data.copy()
    for at in np.ndindex(of):
        expected[(slice(None),) * axis + (int(indices[at]),)] = updates[(slice(None),) * axis + at]
    for layout in LAYOUTS:
        np.testing.assert_array_equal(scattered("scatter_update", data, indices, updates, layout, axis=axis), expected)


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("shape", [(70, 1000), (1000, 70), (90_000, 1)], ids=str)
def test_threads_make_no_difference(shape: tuple[int, int], reduction: str) -> None:
    data, updates = random(shape), random((shape[0] + 9, shape[1]), seed=1)
    updates[3, 0] = np.nan
    for axis in (0, 1):
        of = updates if axis == 0 else updates[: shape[0]]
        indices = indices_of(of.shape, 3) if shape[axis] >= 3 else np.zeros(of.shape, np.int64)
        facts = {"axis": axis, "reduction": reduction}
        found = {scattered("scatter_elements", data, indices, of, threads=n, **facts).tobytes() for n in (1, 2, 3)}
        rows = [(int(indices[at]), at[1]) if axis == 0 else (at[0], int(indices[at])) for at in np.ndindex(of.shape)]
        assert found == {by_loop(data, rows, of.reshape(-1), reduction).tobytes()}
    table = indices_of((len(updates), 1), shape[0])
    found = {scattered("scatter_nd", data, table, updates, threads=n, reduction=reduction).tobytes() for n in (1, 2, 3)}
    assert found == {by_loop(data, [tuple(row) for row in table.tolist()], updates, reduction).tobytes()}


@pytest.mark.parametrize("reduction", COMBINE)
def test_nan_reaches_the_result(reduction: str) -> None:
    data, updates = np.array([np.nan, 1, 2, 3], np.float32), np.array([1, np.nan, 5, 1], np.float32)
    y = scattered("scatter_elements", data, np.array([0, 1, 2, 2]), updates, axis=0, reduction=reduction)
    np.testing.assert_array_equal(y, by_loop(data, [0, 1, 2, 2], updates, reduction))


def test_a_kernel_may_write_over_its_data() -> None:
    data = random((6, 5))
    expected = by_loop(data, [(2,), (-1,)], np.ones((2, 5), np.float32), "add")
    run("scatter_nd", [data, np.array([[2], [-1]]), np.ones((2, 5), np.float32)], [data], {"reduction": "add"})
    np.testing.assert_array_equal(data, expected)
    run("trilu", [data[:5]], [data[:5]], {"k": 0, "upper": 0})
    np.testing.assert_array_equal(data[:5], np.tril(expected[:5]))


def test_the_engine_scatters_in_place() -> None:
    """A tensor that nothing else reads gives its memory to the result."""
    b = Builder(graph=Graph())
    x, updates = b.input("x", dtypes.f32, (64, 8)), b.input("u", dtypes.f32, (2, 8))
    b.output("y", b.Tanh(b.ScatterND(b.Exp(x), np.array([[3], [-1]]), updates, reduction="max")))
    model = compile(Model(b.graph), engine="native")
    x_data, u_data = random((64, 8)), random((2, 8), seed=1) * 9
    expected = np.exp(x_data)
    expected[[3, -1]] = np.maximum(expected[[3, -1]], u_data)
    np.testing.assert_allclose(model({"x": x_data, "u": u_data})["y"], np.tanh(expected), rtol=2e-6)


@pytest.mark.parametrize(
    ("kernel", "facts", "indices", "of"),
    [
        ("scatter_elements", {"axis": 1}, [[0, 4], [1, 2]], (2, 2)),
        ("scatter_elements", {"axis": 1}, [[0, 1], [-5, 2]], (2, 2)),
        ("scatter_elements", {"axis": 1}, [[0, 1], [-(2**63), 2]], (2, 2)),
        ("scatter_nd", {}, [[0, 4], [1, 2]], (2,)),
        ("scatter_nd", {}, [[0, 1], [-4, 2]], (2,)),
        ("scatter_update", {"axis": 0}, [0, -1], (2, 4)),
        ("scatter_update", {"axis": 1}, [4], (3, 1)),
    ],
)
def test_a_wrong_index_is_reported_and_nothing_is_written(kernel: str, facts: Any, indices: Any, of: Any) -> None:
    from dovetail import _native

    y = np.full((3, 4), 7, np.float32)
    with pytest.raises(_native.StepFailed) as caught:
        run(kernel, [np.ones((3, 4), np.float32), np.array(indices), np.ones(of, np.float32)], [y], facts)
    assert caught.value.args == (0, "index.range")
    assert (y == 7).all()


@pytest.mark.parametrize(
    ("kernel", "facts", "indices", "of"),
    [
        ("scatter_elements", {"axis": 2}, (3, 4), (3, 4)),
        ("scatter_elements", {"axis": 0}, (3, 5), (3, 5)),
        ("scatter_elements", {"axis": 0}, (2, 4), (1, 4)),
        ("scatter_elements", {"axis": 0, "reduction": "mean"}, (2, 4), (2, 4)),
        ("scatter_nd", {}, (2, 3), (2,)),
        ("scatter_nd", {}, (2, 1), (2, 3)),
        ("scatter_update", {"axis": 1}, (2,), (2, 4)),
    ],
)
def test_operands_that_do_not_fit_make_no_step(kernel: str, facts: Any, indices: Any, of: Any) -> None:
    with pytest.raises(ValueError, match="scatter"):
        run(kernel, [np.zeros((3, 4)), np.zeros(indices, np.int64), np.zeros(of)], [np.zeros((3, 4))], facts)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(2, 5, 9), (3, 9, 5), (1, 1, 1), (2, 0, 3), (2, 3, 0), (300, 40, 17)], ids=str)
def test_trilu(shape: tuple[int, ...], kind: str, layout: str) -> None:
    x = random(shape, kind)
    for k in range(-shape[-2], shape[-1] + 1, 1 + shape[-1] // 9):
        for upper, function in ((1, np.triu), (0, np.tril)):
            y = LAYOUTS[layout](np.ones_like(x))
            run("trilu", [LAYOUTS[layout](x)], [y], {"k": k, "upper": upper})
            np.testing.assert_array_equal(y, function(x, k), err_msg=f"{k} {upper}")
