"""Elementwise arithmetic of integer types that have no instructions of their own, against numpy over their whole range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail import Graph, compile, plan
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from kernel_runner import random

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Subtract": np.subtract,
    "Multiply": np.multiply,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "LessEqual": np.less_equal,
    "GreaterEqual": np.greater_equal,
}
NEEDS_SIGN = ("Maximum", "Minimum", "Less", "Greater", "LessEqual", "GreaterEqual")


def edges(kind: str) -> tuple[Any, Any]:
    """Every pair of extreme numbers, and pairs of random ones."""
    info = np.iinfo(kind)
    numbers = np.array([info.min, info.min + 1, 0, 1, 2, info.max // 2, info.max // 2 + 1, info.max - 1, info.max], kind)
    x, y = np.meshgrid(numbers, numbers)
    return np.concatenate([x.ravel(), random((70,), kind)]), np.concatenate([y.ravel(), random((70,), kind, 1)])


@pytest.mark.parametrize("kind", ["int16", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("name", OPERATORS)
def test_binary_operators_wrap_like_numpy(name: str, kind: str) -> None:
    x, y = edges(kind)
    b = Builder(graph=Graph())
    a, c = (b.input(key, dtypes.dtype(kind), x.shape) for key in "xy")
    b.output("z", b.apply(name, a, c))
    with np.errstate(all="ignore"):
        expected = OPERATORS[name](x, y)
    found = compile(Model(b.graph), engine="native")({"x": x, "y": y})["z"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    if kind != "uint64" or name not in NEEDS_SIGN:
        assert not plan(Model(b.graph), rounds=0).interpreted


@pytest.mark.parametrize("kind", ["int16", "uint16", "uint32", "uint64"])
def test_chains_shifts_and_constants(kind: str) -> None:
    """Each result wraps before the next operator reads it."""
    x, y = edges(kind)
    amount = (y % 70).astype(kind) if kind != "int16" else np.abs(y % 20).astype(kind)
    b = Builder(graph=Graph())
    a, c, d = (b.input(key, dtypes.dtype(kind), x.shape) for key in "xyd")
    total = b.Multiply(b.Add(a, c), a)
    b.output("chain", b.Where(b.Equal(total, c), a, b.Divide(total, b.constant(np.array(7, kind)))))
    if kind != "int16":
        b.output("shift", b.BitShift(a, d, direction="left"))
    found = compile(Model(b.graph), engine="native")({"x": x, "y": y, "d": amount})
    expected = compile(Model(b.graph), engine="interpreter")({"x": x, "y": y, "d": amount})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found["chain"], np.where((x + y) * x == y, x, _truncated((x + y) * x)))
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def _truncated(x: Any) -> Any:
    """Return x / 7, truncated toward zero."""
    wide = x.astype(object)
    return np.array([abs(item) // 7 * (-1 if item < 0 else 1) for item in wide.ravel()], x.dtype).reshape(x.shape)
