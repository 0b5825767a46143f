"""The kernels of running sums and of counting against the operators' own rules, in every layout."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dovetail.ir.host import native_core
from dovetail.ops.reduction.cumulative import CumProd, CumSum
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

SHAPES = ((2, 3, 5, 7), (1, 40, 3, 900), (3, 1, 1, 2), (0, 4, 5, 5))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums(shape: tuple[int, ...], kind: str, layout: str) -> None:
    x = random(shape, kind)
    x.reshape(-1)[:1] = 0 * x.reshape(-1)[:1] * -1
    for axis, is_exclusive, is_reverse in itertools.product(range(4), (False, True), (False, True)):
        expected = CumSum(exclusive=is_exclusive, reverse=is_reverse).evaluate(np, x, np.array(axis))
        y = LAYOUTS[layout](np.ones_like(x))
        attributes = {"axis": axis, "exclusive": int(is_exclusive), "reverse": int(is_reverse)}
        run("cumsum", [LAYOUTS[layout](x)], [y], attributes)
        assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_running_products(shape: tuple[int, ...], kind: str, layout: str) -> None:
    x = random(shape, kind)
    for axis, is_exclusive, is_reverse in itertools.product(range(4), (False, True), (False, True)):
        with np.errstate(all="ignore"):
            expected = CumProd(exclusive=is_exclusive, reverse=is_reverse).evaluate(np, x, np.array(axis))
        y = LAYOUTS[layout](np.ones_like(x))
        attributes = {"axis": axis, "exclusive": int(is_exclusive), "reverse": int(is_reverse), "product": 1}
        run("cumsum", [LAYOUTS[layout](x)], [y], attributes)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize(("start", "count", "step"), [(0, 7, 1), (5, 300, -3), (-9, 1, 4), (2, 0, 1)])
def test_ranges(start: int, count: int, step: int, kind: Any) -> None:
    y = np.full(2 * count + 1, 77, kind)[1::2]
    run("range", [], [y], {"start": start, "step": step})
    np.testing.assert_array_equal(y, start + step * np.arange(count))


def test_unsupported_operands_are_refused() -> None:
    x = np.zeros((2, 3), np.uint8)
    with pytest.raises(ValueError, match="cumsum"):
        run("cumsum", [x], [x.copy()], {"axis": 0})
    with pytest.raises(ValueError, match="range"):
        run("range", [], [np.zeros(3, np.float16)], {"start": 0, "step": 1})
