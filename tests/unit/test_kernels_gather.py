"""The kernels that choose by indices against the operators' own rules, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.ir.host import native_core
from dovetail.ops.tensor.gather import Gather, GatherElements, GatherND
from kernel_runner import LAYOUTS, random, run, spread

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

GATHERED: dict[str, tuple[Gather, tuple[int, ...], tuple[int, ...]]] = {
    "one axis": (Gather(1), (3, 50, 7, 2), (9,)),
    "scalar": (Gather(0), (4, 3, 5, 6), ()),
    "whole rows": (Gather(0), (40, 3, 50), (6, 11)),
    "zeros": (Gather(2, bounds="zero"), (3, 4, 9, 5), (2, 6)),
    "zeros of nothing": (Gather(1, bounds="zero"), (3, 0, 4), (5,)),
    "natural": (Gather(1, bounds="natural"), (3, 8, 4), (5,)),
    "batch": (Gather(1, 1), (3, 6, 5, 2), (3, 4)),
    "batch, elements": (Gather(2, 2), (3, 5, 8), (3, 5, 700)),
    "batch apart from the axis": (Gather(2, 1, "zero"), (3, 4, 9, 5), (3, 6)),
    "all but the last": (Gather(3, -1), (2, 3, 4, 6), (2, 3, 7)),
    "no indices": (Gather(1), (3, 5, 4), (0, 2)),
    "no data": (Gather(1), (0, 5, 4), (2,)),
}

ELEMENTS: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "first axis": (0, (5, 6, 7), (9, 6, 7)),
    "middle": (1, (2, 60, 3, 4), (2, 11, 3, 4)),
    "last": (2, (2, 3, 900), (2, 3, 4000)),
    "smaller off the axis": (1, (4, 5, 6), (2, 8, 3)),
    "no indices": (1, (4, 5, 6), (2, 0, 3)),
}

TUPLES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "elements": (0, (5, 6, 7), (4, 8, 2, 3)),
    "slices": (0, (5, 6, 70), (4, 8, 2)),
    "batch": (1, (3, 6, 7), (3, 5, 2, 1)),
    "batch, elements": (2, (3, 4, 7, 6), (3, 4, 9, 2)),
    "no coordinates": (0, (3, 4), (2, 0)),
    "no indices": (0, (3, 4, 2), (0, 5, 1)),
}


def places(shape: tuple[int, ...], low: int, high: int, kind: str = "int64") -> Any:
    return np.random.default_rng(len(shape)).integers(low, max(high, low + 1), shape).astype(kind)


def check(op: Any, kernel: str, attributes: dict[str, int], x: Any, indices: Any, layout: str) -> None:
    expected = op.evaluate(np, x, indices)
    y = LAYOUTS[layout](np.ones_like(expected)) if expected.ndim > 2 else np.ones_like(expected)
    run(kernel, [LAYOUTS[layout](x) if x.ndim > 2 else x, spread(indices) if indices.ndim else indices], [y], attributes)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
@pytest.mark.parametrize("name", GATHERED)
def test_gather(name: str, kind: str, layout: str) -> None:
    op, shape, of = GATHERED[name]
    size, more = shape[op.axis], 3 if op.bounds == "zero" else 0
    indices = places(of, 0 if op.bounds == "natural" else -size - more, size + more, "int32" if kind == "bool" else "int64")
    batch = op.batch_dims % len(of) if of else 0
    attributes = {"axis": op.axis, "batch": batch, "wrap": int(op.bounds != "natural"), "zero": int(op.bounds == "zero")}
    check(op, "gather", attributes, random(shape, kind), indices, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_gather_elements(name: str, kind: str, layout: str) -> None:
    axis, shape, of = ELEMENTS[name]
    indices = places(of, -shape[axis], shape[axis], "int32" if kind == "uint8" else "int64")
    check(GatherElements(axis), "gather_elements", {"axis": axis}, random(shape, kind), indices, layout)


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
def test_unsigned_indices(kind: str) -> None:
    x, table = random((9, 5)), np.array([0, 8, 3], kind)
    y = np.zeros((3, 5), np.float32)
    run("gather", [x, table], [y], {"axis": 0, "batch": 0, "wrap": 1})
    np.testing.assert_array_equal(y, x[[0, 8, 3]])
    run("scatter_nd", [x, table[:, None], y * 2], [x], {"reduction": "replace"})
    np.testing.assert_array_equal(x[[0, 8, 3]], y * 2)
    from dovetail import _native

    for wrong in (9, np.iinfo(kind).max - 9):
        with pytest.raises(_native.StepFailed):
            run("gather", [x, np.array([wrong], kind)], [y[:1]], {"axis": 0, "batch": 0, "wrap": 1})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TUPLES)
def test_gather_nd(name: str, layout: str) -> None:
    batch, shape, of = TUPLES[name]
    sizes = np.array(shape[batch : batch + of[-1]], np.int64)
    indices = places(of, 0, 1 << 20) % (2 * sizes) - sizes if of[-1] else places(of, 0, 1)
    check(GatherND(batch), "gather_nd", {"batch": batch}, random(shape), indices, layout)


@pytest.mark.parametrize(
    ("kernel", "attributes", "indices"),
    [
        ("gather_elements", {"axis": 1}, [[0, 4], [1, 2]]),
        ("gather_elements", {"axis": 1}, [[0, 1], [-5, 2]]),
        ("gather_nd", {"batch": 0}, [[0, 4], [1, 2]]),
        ("gather_nd", {"batch": 0}, [[0, 1], [-4, 2]]),
        ("gather", {"axis": 1, "batch": 1, "wrap": 1}, [[0, 1], [2, 4], [0, 0]]),
    ],
)
def test_a_wrong_index_is_reported_and_nothing_is_written(kernel: str, attributes: dict[str, int], indices: Any) -> None:
    from dovetail import _native

    x, table = np.ones((3, 4), np.float32), np.array(indices)
    y = np.full(table.shape[:1] if kernel == "gather_nd" else table.shape, 7, np.float32)
    with pytest.raises(_native.StepFailed) as caught:
        run(kernel, [x, table], [y], attributes)
    assert caught.value.args == (0, "index.range")
    assert (y == 7).all()


@pytest.mark.parametrize(
    ("kernel", "attributes", "of", "made"),
    [
        ("gather", {"axis": 0, "batch": 1, "wrap": 1}, (3, 2), (3, 2, 4)),
        ("gather", {"axis": 1, "batch": 1, "wrap": 1}, (2, 2), (3, 2)),
        ("gather_elements", {"axis": 0}, (2, 5), (2, 5)),
        ("gather_nd", {"batch": 0}, (2, 3), (2,)),
        ("gather_nd", {"batch": 1}, (2, 1), (2,)),
    ],
)
def test_operands_that_do_not_fit_make_no_step(kernel: str, attributes: dict[str, int], of: Any, made: Any) -> None:
    with pytest.raises(ValueError, match=kernel):
        run(kernel, [np.zeros((3, 4)), np.zeros(of, np.int64)], [np.zeros(made)], attributes)
