"""Transposed convolution in the compiled core against its definition: each input pixel, times the taps, added into the output."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from kernel_runner import LAYOUTS, check, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")

# images, channels, outputs, groups, sizes, kernel, strides, dilations, pads before, output sizes
CASES = [
    (1, 16, 32, 1, (5, 6), (2, 2), (2, 2), (1, 1), (0, 0), (10, 12)),
    (2, 5, 18, 1, (5, 6), (3, 3), (2, 2), (1, 1), (1, 1), (10, 11)),
    (1, 6, 8, 2, (5, 7), (4, 3), (1, 3), (1, 1), (1, 0), (6, 21)),
    (2, 24, 24, 24, (6, 5), (4, 4), (2, 2), (1, 1), (1, 1), (12, 10)),
    (1, 4, 6, 1, (5, 5), (3, 2), (2, 3), (2, 3), (1, 2), (11, 14)),
    (1, 4, 6, 1, (4, 4), (3, 3), (4, 2), (2, 2), (2, 1), (14, 12)),
    (1, 4, 6, 1, (4, 4), (1, 1), (3, 2), (1, 1), (0, 0), (12, 7)),
    (1, 3, 5, 1, (9,), (5,), (3,), (1,), (2,), (26,)),
    (1, 3, 4, 1, (3, 4, 2), (3, 2, 3), (2, 1, 2), (1, 1, 1), (1, 0, 1), (5, 5, 4)),
    (1, 4, 6, 1, (4, 4), (3, 3), (1, 1), (1, 1), (3, 3), (1, 2)),
    (0, 4, 6, 1, (4, 4), (3, 3), (1, 1), (1, 1), (0, 0), (6, 6)),
]


def added(x: Any, w: Any, strides: Any, dilations: Any, begin: Any, out: Any, groups: int) -> Any:
    """In room enough for all taps, cut to size afterwards."""
    images, spatial = x.shape[0], x.shape[2:]
    reach = [
        b + n * s + (k - 1) * d + o for b, n, s, k, d, o in zip(begin, spatial, strides, w.shape[2:], dilations, out, strict=True)
    ]
    x = x.reshape(images, groups, x.shape[1] // groups, *spatial)
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).astype(np.float64)
    room = np.zeros((images, groups, w.shape[2], *reach))
    for tap in itertools.product(*map(range, w.shape[3:])):
        where = tuple(slice(t * d, t * d + n * s, s) for t, d, n, s in zip(tap, dilations, spatial, strides, strict=True))
        room[(..., *where)] += np.einsum("ngc...,gco->ngo...", x, w[(..., *tap)])
    inside = tuple(slice(b, b + o) for b, o in zip(begin, out, strict=True))
    return room[(..., *inside)].reshape(images, -1 if images else groups * w.shape[2], *out)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_pixel_is_spread_by_the_taps(case: Any, layout: str) -> None:
    images, channels, outputs, groups, sizes, kernel, strides, dilations, begin, out = case
    x, w = random((images, channels, *sizes)), random((channels, outputs // groups, *kernel), seed=1)
    bias = random((outputs,), seed=2)
    expected = added(x, w, strides, dilations, begin, out, groups)
    attributes = {"strides": [*strides], "dilations": [*dilations], "pads_begin": [*begin], "groups": groups}
    residual = random(expected.shape, seed=3)
    finish = {"has_bias": 1, "has_residual": 1, "activation": "relu"}
    for constants in ([1, 2], [1], []):
        y = LAYOUTS[layout](np.zeros(expected.shape, np.float32))
        run("conv_transpose", [LAYOUTS[layout](x), w], [y], attributes, constants=constants[:1])
        check(y, expected)
        y[...] = residual
        run("conv_transpose", [LAYOUTS[layout](x), w, bias, y], [y], attributes | finish, constants=constants)
        check(y, np.maximum(expected + bias.reshape(-1, *[1] * len(sizes)) + residual, 0))


def test_operands_that_do_not_fit_are_refused() -> None:
    x, y = random((1, 4, 5, 5)), np.zeros((1, 6, 7, 7), np.float32)
    for w, constants in [(random((4, 6, 3, 3)).astype(np.float16), []), (random((3, 6, 3, 3)), [1]), (random((4, 5, 3, 3)), [1])]:
        with pytest.raises(ValueError):
            run("conv_transpose", [x, w], [y], {}, constants=constants)


def test_a_result_without_elements() -> None:
    """Pads may take away all of an axis."""
    with Builder() as b:
        x = b.input("x", "f32", (1, 2, 3, 1))
        b.output("y", b.ConvTranspose(x, random((2, 2, 2, 2)), pads=[0, 1, 0, 1], strides=[2, 2]))
    found = dovetail.run(b.model, {"x": random((1, 2, 3, 1))}, engine="native")["y"]
    assert found.shape == (1, 2, 6, 0)
