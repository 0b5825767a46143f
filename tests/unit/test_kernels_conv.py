"""Convolution in the compiled core against sums written out in numpy, over layouts, sizes and instruction sets."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from convolution_reference import ACTIVATIONS, convolved
from dovetail.ir.host import native_core
from kernel_runner import LAYOUTS, check, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")


# images, channels, outputs, groups, sizes, kernel, strides, dilations, pads before, pads behind
CASES = [
    (1, 16, 32, 1, (5, 6), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    (2, 37, 67, 1, (7, 9), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    (2, 20, 50, 1, (7, 9), (1, 1), (2, 2), (1, 1), (0, 0), (0, 0)),
    (1, 8, 32, 1, (1, 40), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    (3, 8, 8, 1, (40, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    (1, 9, 21, 1, (6, 5), (1, 1), (1, 1), (1, 1), (1, 1), (1, 0)),
    (2, 16, 48, 1, (9, 17), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (1, 24, 33, 1, (14, 14), (3, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
    (1, 10, 100, 1, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (1, 12, 17, 1, (9, 30), (3, 5), (1, 2), (2, 3), (2, 1), (0, 4)),
    (1, 3, 64, 1, (20, 31), (7, 7), (2, 2), (1, 1), (3, 3), (3, 3)),
    (2, 1, 5, 1, (6, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (1, 5, 1, 1, (6, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (1, 4, 7, 1, (3, 3), (2, 2), (1, 1), (1, 1), (3, 3), (3, 3)),
    (1, 24, 36, 3, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (2, 24, 36, 3, (8, 8), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    (2, 40, 40, 40, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (1, 19, 19, 19, (9, 11), (5, 3), (2, 2), (1, 1), (2, 1), (2, 1)),
    (1, 18, 36, 18, (9, 11), (3, 3), (1, 2), (2, 1), (1, 1), (1, 1)),
    (2, 12, 20, 1, (30,), (3,), (1,), (1,), (1,), (1,)),
    (1, 6, 10, 2, (30,), (4,), (3,), (2,), (2,), (0,)),
    (1, 10, 20, 1, (5, 6, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    (2, 3, 6, 1, (4, 6, 7), (2, 3, 1), (2, 1, 2), (1, 2, 1), (1, 1, 0), (0, 1, 0)),
    (0, 3, 6, 1, (4, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (1, 21, 21, 21, (5, 17), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    (1, 16, 16, 16, (9, 12), (3, 3), (2, 2), (2, 2), (2, 1), (1, 2)),
    (2, 33, 33, 33, (4, 1), (2, 3), (1, 1), (1, 1), (0, 1), (1, 1)),
    (1, 20, 20, 20, (3, 3), (3, 3), (1, 1), (1, 1), (3, 3), (3, 3)),
    (1, 5, 5, 5, (3, 4, 9), (2, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 0), (0, 1, 2)),
    # Axes of size 1 in input, window and output.
    (2, 16, 40, 1, (30, 1), (5, 1), (1, 1), (1, 1), (2, 0), (0, 0)),
    (1, 12, 20, 2, (1, 40), (1, 4), (1, 3), (1, 2), (0, 2), (0, 1)),
    (1, 8, 24, 1, (1, 19, 1), (1, 3, 1), (1, 2, 1), (1, 1, 1), (0, 1, 0), (0, 1, 0)),
    (2, 6, 10, 1, (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0)),
    (1, 6, 10, 1, (9, 1), (3, 1), (1, 1), (1, 1), (1, 1), (1, 0)),
    (2, 20, 20, 20, (40, 1), (3, 1), (1, 1), (1, 1), (1, 0), (1, 0)),
    # Rows so short that tiles go on in the next one.
    *(SHORT := [
        (2, 24, 40, 1, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
        (2, 128, 40, 2, (9, 5), (1, 1), (2, 2), (1, 1), (0, 0), (0, 0)),
        (1, 16, 24, 1, (11, 3), (3, 5), (1, 1), (2, 1), (2, 2), (1, 2)),
        (1, 16, 24, 1, (3, 7, 2), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
        (1, 16, 17, 1, (2, 2), (3, 3), (1, 1), (1, 1), (3, 4), (4, 3)),
    ]),
]  # fmt: skip


def attributes_of(case: Any) -> dict[str, Any]:
    *_, groups, _, _, strides, dilations, begin, end = case
    names = ("strides", "dilations", "pads_begin", "pads_end")
    return {"groups": groups, **{n: list(v) for n, v in zip(names, (strides, dilations, begin, end), strict=True)}}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_is_the_sum_of_its_taps(case: Any, layout: str) -> None:
    images, channels, outputs, groups, sizes, kernel, *numbers = case
    x, w = random((images, channels, *sizes)), random((outputs, channels // groups, *kernel), seed=1)
    expected = convolved(x, w, *numbers, groups=groups)
    for to, constants in itertools.product(("row_major", layout), ([1], [])):
        y = LAYOUTS[to](np.zeros(expected.shape, np.float32))
        run("conv", [LAYOUTS[layout](x), w if constants else LAYOUTS[to](w)], [y], attributes_of(case), constants=constants)
        check(y, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", [CASES[1], CASES[6], CASES[10], CASES[14], CASES[16], CASES[29], CASES[31], *SHORT], ids=str)
def test_bias_residual_and_bounds_follow_in_their_order(case: Any, last: bool, layout: str) -> None:
    images, channels, outputs, groups, sizes, kernel, *numbers = case
    x, w, bias = (
        random((images, channels, *sizes)),
        random((outputs, channels // groups, *kernel), seed=1),
        random((outputs,), seed=2),
    )
    sums = convolved(x, w, *numbers, groups=groups) + bias.reshape(-1, *[1] * len(sizes))
    residual = random(sums.shape, seed=3)
    expected = np.clip(sums, -0.5, 2) + residual if last else np.clip(sums + residual, -0.5, 2)
    attributes = attributes_of(case) | {"has_bias": 1, "has_residual": 1, "activation": "clip", "low": -0.5, "high": 2.0}
    for constants in ([1, 2], [1], [2], []):
        y = LAYOUTS[layout](residual.copy())
        inputs = [LAYOUTS[layout](x), w, bias, y]
        run("conv", inputs, [y], attributes | {"residual_after_activation": int(last)}, constants=constants)
        check(y, expected)


@pytest.mark.parametrize("layout", ["row_major", "sliced_channels_last"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("case", [CASES[6], CASES[16]], ids=str)
def test_any_activation_is_applied_to_the_finished_sum(case: Any, name: str, layout: str) -> None:
    images, channels, outputs, groups, sizes, kernel, *numbers = case
    x, w, bias = (
        random((images, channels, *sizes)),
        random((outputs, channels // groups, *kernel), seed=1),
        random((outputs,), seed=2),
    )
    w *= 0.2
    sums = convolved(x, w, *numbers, groups=groups) + bias.reshape(-1, *[1] * len(sizes))
    residual = random(sums.shape, seed=3)
    y = LAYOUTS[layout](residual.copy())
    attributes = attributes_of(case) | {"has_bias": 1, "has_residual": 1, "activation": name, "alpha": 0.2}
    run("conv", [LAYOUTS[layout](x), w, bias, y], [y], attributes, constants=[1, 2])
    check(y, ACTIVATIONS[name](sums + residual))


@pytest.mark.parametrize("layout", ["row_major", "channels_last", "sliced_channels_last"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["relu", "none", *ACTIVATIONS])
@pytest.mark.parametrize("case", [CASES[1], CASES[6], CASES[10], CASES[24], (1, 16, 37, 1, (24, 23), *CASES[6][5:])], ids=str)
def test_the_activation_is_rescaled_before_the_residual(case: Any, name: str, last: bool, layout: str) -> None:
    images, channels, outputs, groups, sizes, kernel, *numbers = case
    x, w = random((images, channels, *sizes)), random((outputs, channels // groups, *kernel), seed=1) * np.float32(0.1)
    sums = convolved(x, w, *numbers, groups=groups)
    residual = random(sums.shape, seed=3)
    activate = {"relu": lambda z: np.maximum(z, 0), "none": lambda z: z}.get(name) or ACTIVATIONS[name]
    expected = activate(sums) * -1.5 + 0.75 + residual if last else activate(sums + residual) * -1.5 + 0.75
    attributes = attributes_of(case) | {"has_residual": 1, "activation": name, "alpha": 0.2}
    attributes |= {"output_scale": -1.5, "output_shift": 0.75, "residual_after_activation": int(last)}
    y = LAYOUTS[layout](residual.copy())
    run("conv", [LAYOUTS[layout](x), w, y], [y], attributes, constants=[1])
    check(y, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[5], CASES[6], CASES[10], CASES[14], CASES[16], CASES[21]], ids=str)
def test_a_prologue_changes_the_input_but_not_the_padding(case: Any, relu: bool, layout: str) -> None:
    images, channels, outputs, groups, sizes, kernel, *numbers = case
    x, w = random((images, channels, *sizes)), random((outputs, channels // groups, *kernel), seed=1)
    scale, shift = random((channels,), seed=4), random((channels,), seed=5)
    ones = [1] * len(sizes)
    changed = x * scale.reshape(-1, *ones) + shift.reshape(-1, *ones)
    expected = convolved(np.maximum(changed, 0) if relu else changed, w, *numbers, groups=groups)
    y = LAYOUTS[layout](np.zeros(expected.shape, np.float32))
    prologue = {"prologue_scale": [*map(float, scale)], "prologue_shift": [*map(float, shift)], "prologue_relu": int(relu)}
    run("conv", [LAYOUTS[layout](x), w], [y], attributes_of(case) | prologue, constants=[1])
    check(y, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_number_of_threads_does_not_show(case: Any) -> None:
    images, channels, outputs, groups, sizes, kernel, *numbers = case
    images *= 3
    x, w = LAYOUTS["channels_last"](random((images, channels, *sizes))), random((outputs, channels // groups, *kernel), seed=1)
    shape = convolved(x, w, *numbers, groups=groups).shape
    results = []
    for threads in (1, 2, 3):
        y = LAYOUTS["channels_last"](np.zeros(shape, np.float32))
        run("conv", [x, w], [y], attributes_of(case), threads=threads, constants=[1])
        results.append(y.tobytes())
    assert results[0] == results[1] == results[2]


def test_only_the_result_is_written() -> None:
    x, w = random((1, 8, 6, 6)), random((21, 8, 3, 3), seed=1)
    room = np.full((1, 4, 4, 29), 7, np.float32)
    run("conv", [LAYOUTS["channels_last"](x), w], [np.moveaxis(room[..., 3:24], -1, 1)], {}, constants=[1])
    assert (room[..., 3:24] != 7).all()
    assert (room[..., :3] == 7).all() and (room[..., 24:] == 7).all()


def test_a_nan_is_not_clipped_away() -> None:
    x, w = np.full((1, 4, 2, 2), np.nan, np.float32), np.ones((3, 4, 1, 1), np.float32)
    unchanged = {"prologue_scale": [1.0] * 4, "prologue_shift": [0.0] * 4, "prologue_relu": 1}
    for layout, prologue in itertools.product(LAYOUTS, ({}, unchanged)):
        y = LAYOUTS[layout](np.zeros((1, 3, 2, 2), np.float32))
        run("conv", [LAYOUTS[layout](x), w], [y], {"activation": "relu"} | prologue, constants=[1])
        assert np.isnan(y).all()


@pytest.mark.parametrize(
    ("inputs", "constants", "attributes"),
    [
        ([random((1, 4, 5, 5)), random((3, 4, 3, 3)).astype(np.float16)], [], {}),
        ([random((1, 4, 5, 5)), random((3, 4, 3, 3)), random((4,))], [1], {"has_bias": 1}),
        ([random((1, 4, 5, 5)), random((3, 5, 3, 3))], [1], {}),
        ([random((1, 4, 5, 5)), random((3, 4, 3, 3))], [1], {"activation": "something"}),
        ([random((1, 4, 5, 5)), random((3, 4, 3, 3)), random((4,))], [1, 2], {"has_bias": 1}),
        ([random((1, 4, 5, 5)), random((3, 4, 3, 3))], [1], {"strides": [1]}),
    ],
)
def test_operands_that_do_not_fit_are_refused(inputs: Any, constants: Any, attributes: Any) -> None:
    with pytest.raises(ValueError):
        run("conv", inputs, [np.zeros((1, 3, 3, 3), np.float32)], attributes, constants=constants)
