"""Softmax, layer normalisation and local response against the operators' own rules in f64, over any axis of any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.ir.host import native_core
from dovetail.ops.nn.lrn import LRN
from dovetail.ops.nn.normalization import LayerNormalization, RMSNormalization
from dovetail.ops.reduction.softmax import LogSoftmax, Softmax
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

SHAPES = [(2, 5, 3, 4), (1, 12, 31, 33), (2, 100, 1, 7), (3, 21, 40, 1), (0, 3, 4, 5)]
SOFTMAXES: dict[str, Any] = {"softmax": Softmax, "log_softmax": LogSoftmax}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("into", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", SOFTMAXES)
def test_softmax_along_any_axis(kernel: str, layout: str, into: str, shape: tuple[int, ...]) -> None:
    x = random(shape)
    for axis in range(4):
        y = LAYOUTS[into](np.full(shape, 77, np.float32))
        run(kernel, [LAYOUTS[layout](x)], [y], {"axis": axis})
        expected = SOFTMAXES[kernel](axis=axis).evaluate(np, x.astype(np.float64))
        np.testing.assert_allclose(y, expected, rtol=6e-7, atol=1e-6 if kernel == "log_softmax" else 1e-9)


@pytest.mark.parametrize("kernel", SOFTMAXES)
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_infinities_and_large_numbers(kernel: str, axis: int) -> None:
    x = random((8, 40))
    x[0, 3], x[1, 39], x[2, 0], x[3], x[4, 7], x[5] = np.nan, np.inf, -np.inf, -np.inf, 1e30, 3e38
    x = np.ascontiguousarray(x) if axis == 1 else np.ascontiguousarray(x.T)
    y = np.zeros_like(x)
    run(kernel, [x], [y], {"axis": axis})
    np.testing.assert_allclose(y, SOFTMAXES[kernel](axis=axis).evaluate(np, x), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", SOFTMAXES)
def test_rows_may_be_written_over(kernel: str) -> None:
    for x, axis in ((random((12, 128, 130)), 2), (random((12, 37, 130)), 1)):
        place = x.copy()
        run(kernel, [place], [place], {"axis": axis})
        y = np.zeros_like(x)
        run(kernel, [x], [y], {"axis": axis}, threads=1)
        np.testing.assert_array_equal(place, y)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 16, 75, 768, 5000])
def test_rows_of_mean_0_and_deviation_1(size: int, axis: int, has_bias: bool) -> None:
    shape = (7, size) if axis == 1 else (2, 5, size)
    x = random(shape) + 3
    scale, bias = random((size,), seed=1), random((size,), seed=2)
    inputs = [x, scale, bias] if has_bias else [x, scale]
    wide = [each.astype(np.float64) for each in inputs]
    expected = LayerNormalization(axis=axis, epsilon=1e-5).evaluate(np, *wide)[0]
    y = np.zeros_like(x)
    run("layer_norm", inputs, [y], {"axis": axis, "epsilon": 1e-5, "has_bias": int(has_bias)})
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=4e-6)
    run("rms_norm", inputs[:2], [y], {"axis": axis, "epsilon": 1e-5, "has_bias": 0})
    np.testing.assert_allclose(y, RMSNormalization(axis=axis, epsilon=1e-5).evaluate(np, *wide[:2]), rtol=2e-6, atol=2e-6)


def test_several_axes_and_other_layouts_are_normalized() -> None:
    x = random((6, 4, 50))
    scale, bias = random((4, 50), seed=1), random((4, 50), seed=2)
    expected = LayerNormalization(axis=1, epsilon=1e-5).evaluate(np, x, scale, bias)[0]
    wide = np.full((6, 4, 50, 2), 77, np.float32)
    wide[..., 0] = x
    y = np.zeros((6, 300), np.float32)[:, 50:250].reshape(6, 4, 50)
    run("layer_norm", [wide[..., 0], scale, bias], [y], {"axis": 1, "epsilon": 1e-5, "has_bias": 1})
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=4e-6)


@pytest.mark.parametrize("layout", ["row_major", "channels_last", "sliced", "sliced_channels_last"])
@pytest.mark.parametrize("size", [1, 2, 5, 9])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 64, 11, 9), (1, 100, 1, 1), (2, 33, 20)], ids=str)
def test_local_response(shape: tuple[int, ...], size: int, layout: str) -> None:
    x = random(shape)
    for beta in (0.75, 0.5, 1.0, 0.6):
        op = LRN(size=size, alpha=0.3, beta=beta, bias=2.0)
        y = LAYOUTS[layout](np.full(shape, 77, np.float32))
        run("lrn", [LAYOUTS[layout](x)], [y], {"size": size, "alpha": 0.3, "beta": beta, "bias": 2.0})
        np.testing.assert_allclose(y, op.evaluate(np, x.astype(np.float64)), rtol=1.5e-6, atol=1e-7)


def test_threads_make_no_difference() -> None:
    x = random((1, 48, 60, 60))
    for kernel, attributes in (
        ("softmax", {"axis": 1}),
        ("softmax", {"axis": 3}),
        ("log_softmax", {"axis": 2}),
        ("lrn", {"size": 5, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
    ):
        results = set()
        for threads in (1, 2, 3):
            y = np.zeros_like(x)
            run(kernel, [x], [y], attributes, threads)
            results.add(y.tobytes())
        assert len(results) == 1


def test_unsupported_operands_are_refused() -> None:
    x, y = random((2, 3, 4)), np.zeros((2, 3, 4), np.float32)
    for kernel, inputs, attributes in (
        ("softmax", [x], {"axis": 3}),
        ("softmax", [x.astype(np.float64)], {"axis": 1}),
        ("layer_norm", [x, random((3,))], {"axis": 2, "epsilon": 1e-5, "has_bias": 0}),
        ("layer_norm", [x[:, ::2], random((8,))], {"axis": 1, "epsilon": 1e-5, "has_bias": 0}),
        ("lrn", [x], {"size": 0, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
    ):
        with pytest.raises(ValueError, match=kernel):
            run(kernel, inputs, [y], attributes)
