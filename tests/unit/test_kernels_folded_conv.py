"""Folded convolution in the compiled core against sums in f64: layouts, epilogues, rests of rows, infinities and NaN."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from convolution_reference import ACTIVATIONS, convolved
from dovetail.ir.host import native_core
from kernel_runner import LAYOUTS, check, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the native core is not compiled")

ACCURACY = 5e-6
"""The largest error, relative to the largest result: that of a sum of that number of products in f32."""


class Case(NamedTuple):
    """A convolution of few outputs. ``dilations`` are those of all axes but the last one."""

    images: int
    channels: int
    outputs: int
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    dilations: tuple[int, ...]


LANES = {"base": 4, "avx2": 8, "avx512": 16}
CASES = [
    Case(1, 8, 1, (21, 64), (5, 5), (1, 1), (2, 2), (2, 2), (1, 1)),
    Case(2, 32, 1, (9, 47), (7, 3), (1, 1), (3, 1), (3, 1), (1, 1)),  # a rest
    Case(1, 8, 8, (11, 50), (3, 39), (1, 1), (1, 19), (1, 19), (1, 1)),
    Case(1, 1, 1, (1, 700), (1, 64), (1, 2), (0, 0), (0, 0), (1, 1)),
    Case(1, 3, 2, (13, 90), (5, 9), (2, 2), (2, 4), (1, 3), (1, 1)),
    Case(3, 16, 1, (40,), (11,), (1,), (5,), (5,), (1,)),
    Case(1, 9, 1, (4, 5, 30), (2, 3, 7), (1, 1, 1), (0, 1, 3), (1, 1, 3), (1, 1, 1)),
    Case(1, 24, 1, (17, 99), (3, 9), (1, 2), (2, 3), (2, 3), (2, 1)),
    Case(1, 8, 1, (12, 40), (5, 9), (1, 1), (-1, 2), (2, -2), (1, 1)),  # negative padding crops
]


def expected_of(case: Case, x: Any, w: Any) -> Any:
    for axis, (before, behind) in enumerate(zip(case.begin, case.end, strict=True), 2):
        x = np.take(x, range(max(-before, 0), x.shape[axis] - max(-behind, 0)), axis)
    pads = [[max(n, 0) for n in each] for each in (case.begin, case.end)]
    return convolved(x, w, case.strides, case.dilations, *pads, groups=1)


def operands(case: Case) -> tuple[Any, Any, Any, dict[str, Any]]:
    x = random((case.images, case.channels, *case.sizes))
    w = random((case.outputs, case.channels, *case.kernel), seed=1) / np.float32(np.sqrt(case.channels * np.prod(case.kernel)))
    names = {"strides": case.strides, "dilations": case.dilations, "pads_begin": case.begin, "pads_end": case.end}
    return x, w, expected_of(case, x, w), {name: list(values) for name, values in names.items()}


def channels_last(array: Any) -> Any:
    return LAYOUTS["channels_last"](array)


def check_name(name: str, case: Case) -> None:
    """Assert that the kernel is folded where its outputs fill less than half of a vector."""
    if 2 * case.outputs < LANES[native_core.core().isa()]:
        assert name.startswith("conv folded ")


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sums_are_those_of_the_windows(case: Case, layout: str) -> None:
    x, w, expected, attributes = operands(case)
    y = LAYOUTS[layout](np.full(expected.shape, np.nan, np.float32))
    run("conv", [LAYOUTS[layout](x), w], [y], attributes, constants=[1])
    check(y, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_few_outputs_are_folded(case: Case) -> None:
    x, w, expected, attributes = operands(case)
    y = channels_last(np.zeros(expected.shape, np.float32))
    check_name(run("conv", [channels_last(x), w], [y], attributes, constants=[1]), case)
    assert np.abs(y - expected).max() <= ACCURACY * np.abs(expected).max()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["clip", *ACTIVATIONS])
@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_the_epilogue_follows_in_its_order(case: Case, name: str, last: bool) -> None:
    x, w, sums, attributes = operands(case)
    bias, residual, factor = random((case.outputs,), seed=2), random(sums.shape, seed=3), random((case.outputs,), seed=4)
    shape = (-1, *[1] * len(case.sizes))
    sums = sums * factor.reshape(shape) + bias.reshape(shape)
    activate = ACTIVATIONS.get(name, lambda z: np.clip(z, -0.5, 2))
    y = channels_last(residual.copy())
    attributes |= {"has_bias": 1, "has_factor": 1, "has_residual": 1, "activation": name, "alpha": 0.2, "low": -0.5, "high": 2.0}
    attributes["residual_after_activation"] = int(last)
    check_name(run("conv", [channels_last(x), w, bias, factor, y], [y], attributes, constants=[1, 2, 3]), case)
    check(y, activate(sums) + residual if last else activate(sums + residual))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_number_of_threads_does_not_show(case: Case) -> None:
    case = case._replace(images=case.images * 7)
    x, w, expected, attributes = operands(case)
    results = []
    for threads in (1, 2, 3, 5):
        y = channels_last(np.zeros(expected.shape, np.float32))
        run("conv", [channels_last(x), w], [y], attributes, threads=threads, constants=[1])
        results.append(y.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_non_finite_inputs_reach_only_their_windows(case: Case, value: float) -> None:
    x, w, _, attributes = operands(case)
    places = np.random.default_rng(7)
    for _ in range(2):
        x[tuple(places.integers(0, size) for size in x.shape)] = value
    with np.errstate(invalid="ignore"):
        expected = expected_of(case, x, w)
    y = channels_last(np.zeros(expected.shape, np.float32))
    check_name(run("conv", [channels_last(x), w], [y], attributes, constants=[1]), case)
    finite = np.isfinite(expected)
    assert finite.any() and (np.isfinite(y) == finite).all()
    np.testing.assert_array_equal(y[~finite], expected[~finite])
    check(y[finite], expected[finite])


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_element_of_the_input_is_seen(case: Case, place: str) -> None:
    """The first and last elements, also in pixels that are apart, and in a large input that several tasks read."""
    case = case._replace(images=case.images * 40)
    x, w, _, attributes = operands(case)
    x.reshape(-1)[0 if place == "first" else -1] = np.inf
    with np.errstate(invalid="ignore"):
        expected = expected_of(case, x, w)
    for layout in ("channels_last", "sliced_channels_last"):
        y = channels_last(np.zeros(expected.shape, np.float32))
        run("conv", [LAYOUTS[layout](x), w], [y], attributes, constants=[1])
        np.testing.assert_array_equal(np.isfinite(y), np.isfinite(expected))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_weight_that_is_not_finite_reaches_the_outputs_of_its_channel(value: float) -> None:
    case = CASES[4]
    x, w, expected, attributes = operands(case)
    # This tap reads padding nowhere.
    w[1, 2, 2, 4] = value
    y = channels_last(np.zeros(expected.shape, np.float32))
    run("conv", [channels_last(x), w], [y], attributes, constants=[1])
    check(y[:, 0], expected[:, 0])
    assert not np.isfinite(y[:, 1]).any()


def test_one_channel_of_a_concat_is_folded_and_no_other_is_written() -> None:
    """The result of a branch that a Concat joins with others."""
    x, w, expected, attributes = operands(CASES[1])
    memory = np.full((*expected.shape[:1], *expected.shape[2:], 33), 77, np.float32)
    y = np.moveaxis(memory[..., 32:], -1, 1)
    check_name(run("conv", [channels_last(x), w], [y], attributes, constants=[1]), CASES[1])
    check(y, expected)
    assert (memory[..., :32] == 77).all()
