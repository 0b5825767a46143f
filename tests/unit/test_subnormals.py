"""Subnormal numbers: sums of products may count them as zero, every other operator keeps them, and so does the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")

TINY = np.float32(np.finfo(np.float32).tiny)
"""The smallest normal number of f32."""


def subnormals(shape: tuple[int, ...], seed: int) -> Any:
    """Subnormal numbers of both signs among ordinary ones."""
    random = np.random.default_rng(seed)
    ordinary = random.standard_normal(shape).astype(np.float32)
    tiny = (random.uniform(-0.99, 0.99, shape) * TINY).astype(np.float32)
    return np.where(random.uniform(size=shape) < 0.5, tiny, ordinary)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_counts_subnormals_as_zero_and_other_operators_keep_them(threads: int) -> None:
    b = dovetail.Builder()
    x = b.input("x", "f32", (64, 256))
    weights = subnormals((256, 512), 1)
    b.output("product", b.apply("MatMul", x, b.constant(weights)))
    b.output("half", b.apply("Multiply", x, b.constant(np.float32(0.5))))
    program = dovetail.compile(b.model, "native", threads=threads)
    values = subnormals((64, 256), 2)
    for _ in range(20):
        found = program(values)
        # The depth times the smallest normal number times the largest factor.
        lost = float(256 * TINY * 8)
        np.testing.assert_allclose(found["product"], values.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4 + lost)
        np.testing.assert_array_equal(found["half"], values * np.float32(0.5))
        assert np.float32(TINY / 2) * np.float32(0.5) != 0, "the caller's thread flushes subnormals"


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_convolution_with_subnormal_weights_is_that_without_them(kernel: int) -> None:
    weights = subnormals((32, 32, kernel, kernel), 1)
    normal = np.where(np.abs(weights) < TINY, np.float32(0), weights)
    values = subnormals((1, 32, 14, 14), 2)
    found = []
    for each in (weights, normal):
        b = dovetail.Builder()
        x = b.input("x", "f32", values.shape)
        b.output("y", b.apply("Conv", x, b.constant(each), pads=[kernel // 2] * 4))
        found.append(dovetail.compile(b.model, "native")(values)["y"])
    np.testing.assert_array_equal(found[0], found[1])
