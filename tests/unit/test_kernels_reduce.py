"""Reductions against sums in f64 and the operators' own rules, over any axes of any layout."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dovetail.ir.host import native_core
from dovetail.ops.reduction import reduce as operators
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

OPERATORS: dict[str, Any] = {
    "sum": operators.ReduceSum,
    "mean": operators.ReduceMean,
    "max": operators.ReduceMax,
    "min": operators.ReduceMin,
    "prod": operators.ReduceProd,
    "l1": operators.ReduceL1,
    "l2": operators.ReduceL2,
    "sumsquare": operators.ReduceSumSquare,
    "logsum": operators.ReduceLogSum,
    "logsumexp": operators.ReduceLogSumExp,
}


def reduced(x: Any, mode: str, axes: tuple[int, ...], keep: bool = True, threads: int = 2, into: str = "row_major") -> Any:
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    y = np.full(shape, 77, np.float32)
    y = LAYOUTS[into](y) if len(shape) > 2 else y
    run("reduce", [x], [y], {"mode": mode, "axes": list(axes)}, threads)
    return y


def exact(x: Any, mode: str, axes: tuple[int, ...], keep: bool = True) -> Any:
    with np.errstate(all="ignore"):
        return OPERATORS[mode](keepdims=keep).evaluate(np, x.astype(np.float64), np.array(axes))


AXES = [axes for count in range(1, 5) for axes in itertools.combinations(range(4), count)]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", OPERATORS)
def test_any_axes_of_any_layout(mode: str, layout: str, axes: tuple[int, ...]) -> None:
    x = random((2, 37, 9, 6))
    if mode == "logsum":
        x = np.abs(x)
    if mode == "prod":
        x = np.exp(x / 30).astype(np.float32)
    y = reduced(LAYOUTS[layout](x), mode, axes)
    expected = exact(x, mode, axes)
    scale = np.abs(x).sum(axis=axes, keepdims=True) if mode in ("sum", "mean") else float(mode.startswith("log"))
    np.testing.assert_array_less(np.abs(y - expected), 3e-7 * (np.abs(expected) + scale) + 1e-30)
    np.testing.assert_array_equal(reduced(LAYOUTS[layout](x), mode, axes, keep=False), np.squeeze(y, axis=axes))


@pytest.mark.parametrize("shape", [(1, 2048, 7, 7), (3, 300, 1, 5), (8, 513, 7, 7)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_mean_of_all_places_of_each_channel(layout: str, shape: tuple[int, ...]) -> None:
    x = random(shape)
    for into in ("row_major", "sliced_channels_last"):
        y = reduced(LAYOUTS[layout](x), "mean", (2, 3), into=into)
        np.testing.assert_allclose(y, exact(x, "mean", (2, 3)), rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize("axis", [0, 1])
def test_long_sums_are_at_least_as_exact_as_numpy(axis: int) -> None:
    """All numbers have one sign, so that every rounding counts."""
    shape = (1_000_003, 1) if axis == 0 else (3, 400_001)
    x = np.random.default_rng(0).random(shape, np.float32)
    wanted = exact(x, "sum", (axis,))
    ours = np.abs(reduced(x, "sum", (axis,)) - wanted).max()
    theirs = np.abs(np.ascontiguousarray(x.T).sum(axis=1 - axis, keepdims=True).T - wanted).max()
    assert ours <= theirs + np.spacing(np.float32(wanted.max())) / 2


@pytest.mark.parametrize("shape", [(1_000_000,), (7, 300_000), (300_000, 7), (2, 100, 60, 60)], ids=str)
@pytest.mark.parametrize("mode", OPERATORS)
def test_threads_make_no_difference(mode: str, shape: tuple[int, ...]) -> None:
    x = np.abs(random(shape)) + 0.5
    for axes in {(0,), tuple(range(len(shape)))}:
        assert len({reduced(x, mode, axes, threads=threads).tobytes() for threads in (1, 2, 3, 5)}) == 1


def test_nan_and_infinities() -> None:
    x = random((6, 70))
    x[0, 3], x[1, 69], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    for mode, axis in itertools.product(OPERATORS, (0, 1)):
        with np.errstate(all="ignore"):
            expected = OPERATORS[mode]().evaluate(np, x, np.array([axis]))
        np.testing.assert_allclose(reduced(x, mode, (axis,)), expected, rtol=2e-6, atol=2e-6)


def test_nothing() -> None:
    for mode in OPERATORS:
        with np.errstate(all="ignore"):
            expected = OPERATORS[mode]().evaluate(np, np.zeros((3, 0), np.float32), np.array([1]))
        np.testing.assert_array_equal(reduced(np.zeros((3, 0), np.float32), mode, (1,)), expected)
        assert reduced(np.zeros((0, 3), np.float32), mode, (1,)).shape == (0, 1)


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
OF_INTEGERS = ("sum", "mean", "max", "min", "prod", "l1", "sumsquare")


def of_type(x: Any, mode: str, axes: tuple[int, ...], threads: int = 2) -> Any:
    y = np.full([1 if axis in axes else size for axis, size in enumerate(x.shape)], 77).astype(x.dtype)
    run("reduce", [x], [y], {"mode": mode, "axes": list(axes)}, threads)
    return y


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", OF_INTEGERS)
def test_integers_wrap_around(mode: str, layout: str, kind: str) -> None:
    x = random((2, 37, 9, 6), kind)
    for axes in ((0,), (1,), (3,), (1, 2), (0, 2, 3), (0, 1, 2, 3), ()):
        expected = OPERATORS[mode](noop_with_empty_axes=True).evaluate(np, x, np.array(axes, np.int64))
        np.testing.assert_array_equal(of_type(LAYOUTS[layout](x), mode, axes), expected, err_msg=f"{axes}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_booleans(layout: str) -> None:
    x = random((2, 37, 3, 2), "bool")
    for axes in ((0,), (1,), (3,), (0, 2, 3), (0, 1, 2, 3)):
        np.testing.assert_array_equal(of_type(LAYOUTS[layout](x), "max", axes), x.any(axes, keepdims=True))
        np.testing.assert_array_equal(of_type(LAYOUTS[layout](x), "min", axes), x.all(axes, keepdims=True))
    assert of_type(np.ones((2, 0), bool), "min", (1,)).tobytes() == b"\1\1"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", OPERATORS)
def test_f64(mode: str, layout: str) -> None:
    x = random((2, 37, 9, 6), "float64")
    x = np.abs(x) if mode == "logsum" else np.exp(x / 30) if mode == "prod" else x
    for axes in ((0,), (1,), (3,), (1, 2), (0, 2, 3), (0, 1, 2, 3)):
        expected = OPERATORS[mode]().evaluate(np, x, np.array(axes))
        np.testing.assert_allclose(of_type(LAYOUTS[layout](x), mode, axes), expected, rtol=1e-14, atol=1e-13, err_msg=f"{axes}")


@pytest.mark.parametrize("kind", ["float64", "int64", "int32", "uint8"])
@pytest.mark.parametrize("mode", OF_INTEGERS)
def test_threads_make_no_difference_of_any_type(mode: str, kind: str) -> None:
    for shape, axis in (((1_000_000,), 0), ((7, 300_000), 1), ((300_000, 7), 0)):
        x = random(shape, kind)
        with np.errstate(all="ignore"):
            results = {of_type(x, mode, (axis,), threads).tobytes() for threads in (1, 2, 3)}
            assert len(results) == 1
            if kind != "float64":
                assert results == {OPERATORS[mode]().evaluate(np, x, np.array([axis])).tobytes()}


def test_nan_infinities_and_nothing_of_f64_and_integers() -> None:
    x = random((6, 70), "float64")
    x[0, 3], x[1, 69], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    for mode, axis in itertools.product(OPERATORS, (0, 1)):
        with np.errstate(all="ignore"):
            expected = OPERATORS[mode]().evaluate(np, x, np.array([axis]))
            np.testing.assert_allclose(of_type(x, mode, (axis,)), expected, rtol=1e-13, atol=1e-13)
    for mode, kind in itertools.product(OF_INTEGERS, INTEGERS):
        empty = np.zeros((3, 0), kind)
        np.testing.assert_array_equal(of_type(empty, mode, (1,)), OPERATORS[mode]().evaluate(np, empty, np.array([1])))


@pytest.mark.parametrize("mode", ["l2", "logsum", "logsumexp"])
def test_rounded_reductions_of_integers_are_refused(mode: str) -> None:
    with pytest.raises(ValueError, match="of integers"):
        of_type(np.ones((2, 3), np.int64), mode, (1,))


def test_invalid_reductions_are_refused() -> None:
    x = random((2, 3))
    for y, attributes in (
        (np.zeros((2, 1), np.float32), {"mode": "median", "axes": [1]}),
        (np.zeros((1, 3), np.float32), {"mode": "sum", "axes": [1]}),
        (np.zeros((2, 1, 1), np.float32), {"mode": "sum", "axes": [1]}),
        (np.zeros((2, 1)), {"mode": "sum", "axes": [1]}),
    ):
        with pytest.raises(ValueError, match="reduce"):
            run("reduce", [x], [y], attributes)
