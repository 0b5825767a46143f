"""The pooling kernel against the operators' own rules, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.engine.select.kernels import window_attributes
from dovetail.ir.host import native_core
from dovetail.ops.nn.pool import AveragePool, MaxPool
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one axis": ((2, 3, 17), {"kernel_shape": (3,), "strides": (2,)}),
    "stem": ((1, 16, 23, 19), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "same": ((2, 70, 9, 8), {"kernel_shape": (3, 3), "auto_pad": "same_upper"}),
    "ceil": ((1, 5, 12, 13), {"kernel_shape": (3, 2), "strides": (2, 3), "rounding_type": "ceil", "pads": (0, 1, 1, 0)}),
    "ceil torch": (
        (1, 5, 12, 14),
        {"kernel_shape": (3, 3), "strides": (2, 2), "rounding_type": "ceil_torch", "pads": (1, 1, 1, 1)},
    ),
    "dilated": ((1, 33, 11, 15), {"kernel_shape": (2, 3), "dilations": (3, 2), "strides": (1, 3)}),
    "cropped": ((1, 4, 11, 12), {"kernel_shape": (3, 3), "pads": (-1, -2, -1, 0)}),
    "whole": ((2, 100, 7, 7), {"kernel_shape": (7, 7)}),
    "three axes": ((1, 18, 5, 6, 7), {"kernel_shape": (2, 3, 2), "strides": (1, 2, 1), "pads": (1, 0, 1, 0, 1, 0)}),
    "one channel": ((2, 1, 9, 9), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    "empty": ((0, 4, 5, 5), {"kernel_shape": (2, 2)}),
}
DIVISORS = ("inside", "padded", "window")


def pooled(op: Any, x: Any, y: Any, mode: str) -> str:
    found = op.geometry(x.shape[2:], op.kernel_shape)
    attributes = window_attributes(found) | {"mode": mode, "kernel": list(found.kernel)}
    if mode == "average":
        attributes["divisor"] = op.divisor
    return run("pool", [x], [y], attributes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WINDOWS)
def test_the_greatest_is_that_of_the_interpreter(name: str, layout: str) -> None:
    shape, attributes = WINDOWS[name]
    op = MaxPool(**attributes)
    values = random(shape)
    values.reshape(-1)[::31] = np.nan
    (expected,) = op.evaluate(np, values)
    y = LAYOUTS[layout](np.zeros(expected.shape, np.float32))
    pooled(op, LAYOUTS[layout](values), y, "max")
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WINDOWS)
def test_the_index_is_that_of_the_first_maximum(name: str, layout: str, axis: int) -> None:
    shape, attributes = WINDOWS[name]
    op = MaxPool(**attributes, outputs=2, axis=axis)
    values = np.round(random(shape))
    values.reshape(-1)[::31] = np.nan
    expected, places = op.evaluate(np, values)
    y, indices = LAYOUTS[layout](np.zeros(expected.shape, np.float32)), np.zeros(expected.shape, np.int64)
    found = op.geometry(shape[2:], op.kernel_shape)
    attributes = window_attributes(found) | {"mode": "max", "kernel": list(found.kernel), "axis": axis}
    run("pool", [LAYOUTS[layout](values)], [y, indices], attributes)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indices, places)


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WINDOWS)
def test_the_mean_is_that_of_the_interpreter_bit_for_bit(name: str, layout: str, divisor: str) -> None:
    shape, attributes = WINDOWS[name]
    op = AveragePool(**attributes, divisor=divisor)
    values = random(shape)
    expected = op.evaluate(np, values)
    y = LAYOUTS[layout](np.zeros(expected.shape, np.float32))
    pooled(op, LAYOUTS[layout](values), y, "average")
    np.testing.assert_array_equal(y, expected)


def test_layouts_may_differ_and_nothing_else_is_written() -> None:
    values = random((1, 24, 10, 10))
    op = MaxPool(kernel_shape=(3, 3), strides=(2, 2))
    (expected,) = op.evaluate(np, values)
    wide = np.full((1, 4, 4, 64), 77, np.float32)
    y = np.moveaxis(wide[..., 3:27], -1, 1)
    pooled(op, values, y, "max")
    np.testing.assert_array_equal(y, expected)
    wide[..., 3:27] = 77
    assert (wide == 77).all()


def test_dense_channels_have_a_way_of_their_own() -> None:
    op = MaxPool(kernel_shape=(2, 2))
    y = LAYOUTS["sliced_channels_last"](np.zeros((1, 8, 3, 3), np.float32))
    assert "channels" in pooled(op, LAYOUTS["channels_last"](random((1, 8, 4, 4))), y, "max")
    assert "rows" in pooled(op, random((1, 8, 4, 4)), y, "max")


@pytest.mark.parametrize(
    "attributes", [{"mode": "median", "kernel": [2, 2]}, {"mode": "max", "kernel": [2]}, {"mode": "max", "kernel": [0, 2]}]
)
def test_invalid_pooling_attributes_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pool"):
        run("pool", [random((1, 1, 4, 4))], [np.zeros((1, 1, 3, 3), np.float32)], attributes)
