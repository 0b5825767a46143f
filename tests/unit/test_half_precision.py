"""Models of f16 and bf16 in the native engine: computed by its kernels, and rounded to their own type between operators."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dovetail
from dovetail import Builder
from dovetail.engine.engine import Engine
from dovetail.ir.host import native_core

RNG = np.random.default_rng(7)
KINDS = [np.float16, ml_dtypes.bfloat16]


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def network(kind: Any) -> dovetail.Model:
    with Builder() as b:
        x = b.input("x", kind, ("n", 8, 12, 12))
        y = b.Conv(x, (numbers(16, 8, 3, 3) / 8).astype(kind), numbers(16).astype(kind), pads=(1, 1, 1, 1))
        y = b.BatchNormalization(y, *(np.abs(numbers(16)).astype(kind) for _ in range(4)))
        left, right = b.Split(b.Relu(y), axis=1, outputs=2)
        y = b.Concat(
            b.MaxPool(left, kernel_shape=(2, 2), strides=(2, 2)),
            b.AveragePool(right, kernel_shape=(2, 2), strides=(2, 2)),
            axis=1,
        )
        y = b.Add(y, b.Sigmoid(y))
        y = b.Reshape(b.GlobalAveragePool(y), [0, -1])
        y = b.LayerNormalization(b.MatMul(y, numbers(16, 10).astype(kind)), np.ones(10, kind), np.zeros(10, kind))
        b.output("y", b.Softmax(y, axis=1))
    return b.model


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_is_computed_by_kernels(kind: Any) -> None:
    model = network(kind)
    x = numbers(3, 8, 12, 12).astype(kind)
    found = dovetail.compile(model)(x)["y"]
    want = dovetail.compile(model, "interpreter")(x)["y"]
    assert found.dtype == want.dtype == kind
    digits = float(ml_dtypes.finfo(kind).eps)
    np.testing.assert_allclose(found.astype(np.float32), want.astype(np.float32), rtol=16 * digits, atol=4 * digits)
    if native_core.is_compiled:
        bound, _ = Engine(model).bind({"x": x})
        assert not bound.python_steps


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_between_operators_is_rounded(kind: Any) -> None:
    """Sums that f32 would hold: what they lose, and what is beyond the type, is lost as the model says."""
    most = ml_dtypes.finfo(kind).max
    with Builder() as b:
        x, small = b.input("x", kind, ("n",)), b.input("small", kind, ("n",))
        b.output("beyond", b.Multiply(b.Add(x, x), np.array(0.5, kind)))
        b.output("lost", b.Subtract(b.Add(small, np.array(1, kind)), np.array(1, kind)))
        b.output("bounded", b.Relu(b.Negative(b.Multiply(x, x))))
    xs = np.array([most, -most, 1, 3], kind), np.array([ml_dtypes.finfo(kind).eps / 8, 0.5, -3, 0], kind)
    with np.errstate(over="ignore"):
        found, want = dovetail.compile(b.model)(*xs), dovetail.compile(b.model, "interpreter")(*xs)
    for name, array in want.items():
        np.testing.assert_array_equal(found[name].astype(np.float32), array.astype(np.float32), err_msg=name)
    assert np.isinf(found["beyond"][0].astype(np.float32)) and found["lost"][0] == 0


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
def test_steps_of_a_convolution_in_f16() -> None:
    with Builder() as b:
        x = b.input("x", "f16", (1, 8, 6, 6))
        b.output("y", b.Relu(b.Conv(x, numbers(8, 8, 3, 3).astype(np.float16))))
    works = [step.kernel for step in Engine(b.model).plan()[0].steps if step.kernel != "copy"]
    assert works == ["elementwise", "conv", "elementwise"]


@pytest.mark.parametrize("kind", [*KINDS, np.float32])
@pytest.mark.parametrize("bounds", [(0, None), (None, 5), (None, None)])
def test_infinities_are_clipped_to_the_last_finite_value_of_their_own_type(kind: Any, bounds: tuple[Any, Any]) -> None:
    with Builder() as b:
        x = b.input("x", kind, ("n",))
        b.output("y", b.Clip(x, *(None if bound is None else np.array(bound, kind) for bound in bounds)))
    xs = np.array([np.inf, -np.inf, 3, np.nan], kind)
    found, want = dovetail.compile(b.model)(xs)["y"], dovetail.compile(b.model, "interpreter")(xs)["y"]
    np.testing.assert_array_equal(found.astype(np.float32), want.astype(np.float32))
