"""Winograd convolution in the compiled core against sums in f64: its accuracy, and what infinities and NaN reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convolution_reference import ACTIVATIONS, convolved
from dovetail.ir.host import native_core
from kernel_runner import LAYOUTS, check, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")

ACCURACY = 5e-6
"""The largest error, relative to the largest result: that of a sum of that number of products in f32."""

# images, channels, outputs, sizes, pads before, pads behind
CASES = [
    (1, 16, 32, (24, 24), (1, 1), (1, 1)),
    (3, 37, 70, (14, 9), (1, 1), (1, 1)),
    (1, 64, 64, (33, 37), (1, 1), (1, 1)),
    (2, 24, 24, (30, 31), (0, 0), (0, 0)),
    (1, 48, 33, (17, 16), (2, 3), (1, 0)),
    (1, 40, 130, (7, 90), (1, 1), (1, 1)),
    (3, 32, 50, (9, 26), (-1, 2), (1, -2)),
    (5, 160, 96, (8, 8), (1, 1), (1, 1)),
]


def operands(case: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    images, channels, outputs, sizes, begin, end = case
    x, w = random((images, channels, *sizes)), random((outputs, channels, 3, 3), seed=1) / np.float32(3 * channels**0.5)
    return x, w, expected_of(x, w, begin, end), {"pads_begin": list(begin), "pads_end": list(end)}


def expected_of(x: Any, w: Any, begin: Any, end: Any) -> Any:
    """Return the sums in f64; negative padding crops."""
    for axis, (before, behind) in enumerate(zip(begin, end, strict=True), 2):
        x = np.take(x, range(max(-before, 0), x.shape[axis] - max(-behind, 0)), axis)
    return convolved(x, w, (1, 1), (1, 1), [max(n, 0) for n in begin], [max(n, 0) for n in end], 1)


def channels_last(array: Any) -> Any:
    return LAYOUTS["channels_last"](array)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("layout", ["channels_last", "sliced_channels_last", "wide_channels_last"])
@pytest.mark.parametrize("relu", [False, True])
def test_errors_are_those_of_direct_summation(case: Any, layout: str, relu: bool) -> None:
    x, w, expected, attributes = operands(case)
    if relu:
        x = np.maximum(x, 0)
        expected = expected_of(x, w, *case[-2:])
    y = LAYOUTS[layout](np.zeros(expected.shape, np.float32))
    name = run("conv", [LAYOUTS[layout](x), w], [y], attributes, constants=[1])
    assert "winograd" in name
    assert np.abs(y - expected).max() <= ACCURACY * np.abs(expected).max()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["clip", *ACTIVATIONS])
@pytest.mark.parametrize("case", [CASES[1], CASES[4]], ids=str)
def test_the_epilogue_follows_in_its_order(case: Any, name: str, last: bool) -> None:
    x, w, sums, attributes = operands(case)
    bias, residual, factor = random((sums.shape[1],), seed=2), random(sums.shape, seed=3), random((sums.shape[1],), seed=4)
    w, sums = w * np.float32(0.2), sums * 0.2
    sums = sums * factor.reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    activate = ACTIVATIONS.get(name, lambda z: np.clip(z, -0.5, 2))
    y = channels_last(residual.copy())
    attributes |= {"has_bias": 1, "has_factor": 1, "has_residual": 1, "activation": name, "alpha": 0.2, "low": -0.5, "high": 2.0}
    attributes["residual_after_activation"] = int(last)
    kernel = run("conv", [channels_last(x), w, bias, factor, y], [y], attributes, constants=[1, 2, 3])
    assert "winograd" in kernel
    check(y, activate(sums) + residual if last else activate(sums + residual))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_number_of_threads_does_not_show(case: Any) -> None:
    x, w, expected, attributes = operands((case[0] * 3, *case[1:]))
    results = []
    for threads in (1, 2, 3, 5):
        y = channels_last(np.zeros(expected.shape, np.float32))
        run("conv", [channels_last(x), w], [y], attributes, threads=threads, constants=[1])
        results.append(y.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_non_finite_inputs_reach_only_their_windows(case: Any, value: float) -> None:
    x, w, _, attributes = operands(case)
    begin, end = case[-2:]
    random_places = np.random.default_rng(7)
    for _ in range(4):
        x[tuple(random_places.integers(0, size) for size in x.shape)] = value
    with np.errstate(invalid="ignore"):
        expected = expected_of(x, w, begin, end)
    y = channels_last(np.zeros(expected.shape, np.float32))
    assert "winograd" in run("conv", [channels_last(x), w], [y], attributes, constants=[1])
    finite = np.isfinite(expected)
    assert finite.any() and (np.isfinite(y) == finite).all()
    np.testing.assert_array_equal(y[~finite], expected[~finite])
    check(y[finite], expected[finite])


def test_a_residual_that_is_overwritten_is_added_where_sums_are_mended() -> None:
    x, w, expected, attributes = operands(CASES[0])
    residual = random(expected.shape, seed=3)
    x[0, 3, 5, 5] = np.inf
    with np.errstate(invalid="ignore"):
        expected = expected_of(x, w, (1, 1), (1, 1)) + residual
    y = channels_last(residual.copy())
    run("conv", [channels_last(x), w, y], [y], attributes | {"has_residual": 1}, constants=[1])
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(expected))
    check(y[np.isfinite(y)], expected[np.isfinite(y)])


def test_large_inputs_do_not_overflow_on_the_way() -> None:
    x, w, expected, attributes = operands(CASES[0])
    y = channels_last(np.zeros(expected.shape, np.float32))
    run("conv", [channels_last(x * np.float32(4e36)), w], [y], attributes, constants=[1])
    check(y * np.float64(1 / 4e36), expected)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_that_are_not_finite_are_summed_directly(value: float) -> None:
    x, w, _, attributes = operands(CASES[0])
    w[3, 4, 1, 1] = value
    with np.errstate(invalid="ignore"):
        expected = expected_of(x, w, (1, 1), (1, 1))
    y = channels_last(np.zeros(expected.shape, np.float32))
    assert "winograd" not in run("conv", [channels_last(x), w], [y], attributes, constants=[1])
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(expected))


def test_only_the_result_is_written() -> None:
    x, w, expected, attributes = operands(CASES[4])
    images, outputs, height, width = expected.shape
    room = np.full((images, height + 2, width + 3, outputs + 9), 7, np.float32)
    y = np.moveaxis(room[:, 1:-1, 2:-1, 4:-5], -1, 1)
    run("conv", [channels_last(x), w], [y], attributes, constants=[1])
    check(y, expected)
    y[...] = 7
    assert (room == 7).all()
