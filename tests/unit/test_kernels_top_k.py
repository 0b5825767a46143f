"""The kernel of TopK against the operator's own rule, bit for bit, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.ir.dtypes import dtype
from dovetail.ir.host import native_core
from dovetail.ops.tensor.topk import SORTS, TopK
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

SHAPES = ((2, 3, 5, 7), (1, 2, 3, 700), (3, 900, 2, 1), (0, 4, 5, 5))


def elements(shape: tuple[int, ...], kind: str) -> Any:
    """Numbers many of which are equal; of floats some NaN, infinite, or zeros of either sign."""
    found = random(shape, kind)
    if found.dtype.kind != "f":
        return found % 50
    found = np.round(found * 8) / 8
    chosen = np.random.default_rng(1).integers(0, 30, shape)
    for place, special in enumerate((np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0)):
        found[chosen == place] = special
    return found


def chosen(op: TopK, x: Any, k: int, layout: str = "row_major", threads: int = 2) -> None:
    expected = op.evaluate(np, x, np.array(k))
    made = [LAYOUTS[layout](np.zeros_like(each)) for each in expected]
    attributes = {"axis": op.axis, "largest": int(op.largest), "by_place": int(op.sort == "index")}
    run("top_k", [LAYOUTS[layout](x)], made, attributes, threads)
    for ours, theirs in zip(made, expected, strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_of_the_interpreter(shape: tuple[int, ...], kind: str, layout: str) -> None:
    x = elements(shape, kind)
    for axis, size in enumerate(shape):
        for number, k in enumerate(sorted({0, 1, 3, size // 4, size} & set(range(size + 1)))):
            op = TopK(axis, number % 2 == 0, SORTS[(number + axis) % 3], index_element_type=dtype("i32" if number % 3 else "i64"))
            chosen(op, x, k, layout)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("order", ["rising", "falling", "equal", "NaN"])
def test_lines_in_order(order: str, largest: bool) -> None:
    rising = np.arange(5000, dtype=np.float32)
    lines = {"rising": rising, "falling": rising[::-1].copy(), "equal": 0 * rising, "NaN": np.nan * rising}
    for k in (1, 127, 200, 3000):
        chosen(TopK(0, largest), lines[order], k)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_lines_on_any_number_of_threads(threads: int) -> None:
    chosen(TopK(1), elements((300, 400), "float32"), 17, threads=threads)


@pytest.mark.parametrize(("k", "kind"), [(4, "float32"), (2, "uint8")])
def test_unsupported_operands_are_refused(k: int, kind: str) -> None:
    made = [np.zeros(k, kind), np.zeros(k, np.int64)]
    with pytest.raises(ValueError, match="top_k"):
        run("top_k", [np.zeros(3, kind)], made, {"axis": 0, "largest": 1, "by_place": 0})
