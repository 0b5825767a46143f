"""The kernel of ArgMax and ArgMin against the operators' own rules, in every layout."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dovetail.ir.host import native_core
from dovetail.ops.reduction.argminmax import ArgMax, ArgMin
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

SHAPES = ((2, 3, 5, 7), (1, 2, 3, 700), (3, 900, 2, 1), (2, 4, 0, 5))


def elements(shape: tuple[int, ...], kind: str) -> Any:
    """Few different numbers, so that many are equal; of floats some lines with NaN or infinities."""
    found = random(shape, kind)
    if found.dtype.kind != "f":
        return found % 9
    found = np.round(found)
    chosen = np.random.default_rng(1).integers(0, 400, shape)
    for place, special in enumerate((np.nan, -np.nan, np.inf, -np.inf, -0.0)):
        found[chosen == place] = special
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_of_the_interpreter(shape: tuple[int, ...], kind: str, layout: str) -> None:
    x = elements(shape, kind)
    for axis, is_last, keeps, op in itertools.product(range(4), (False, True), (False, True), (ArgMax, ArgMin)):
        if shape[axis] == 0:
            continue
        expected = op(axis, keeps, is_last).evaluate(np, x)
        y = LAYOUTS[layout](np.full_like(expected, 77))
        run("argminmax", [LAYOUTS[layout](x)], [y], {"axis": axis, "greatest": int(op is ArgMax), "last": int(is_last)})
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_lines_on_any_number_of_threads(threads: int) -> None:
    x = elements((900, 70), "float32")
    y = np.zeros(900, np.int64)
    run("argminmax", [x], [y], {"axis": 1, "greatest": 1, "last": 0}, threads)
    np.testing.assert_array_equal(y, ArgMax(1, keepdims=False).evaluate(np, x))


@pytest.mark.parametrize(("shape", "kind"), [((3, 0), "float32"), ((3, 4), "uint8")])
def test_unsupported_operands_are_refused(shape: tuple[int, ...], kind: str) -> None:
    with pytest.raises(ValueError, match="argminmax"):
        run("argminmax", [np.zeros(shape, kind)], [np.zeros(3, np.int64)], {"axis": 1, "greatest": 1})
