"""The kernel of NonMaxSuppression against the operator's own rule, and models that hold the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.engine.engine import Engine
from dovetail.engine.rewrite.nms import NmsTable
from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from dovetail.runtime.interpreter.interpret import interpret
from kernel_runner import LAYOUTS, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

SHAPES = ((2, 3, 40), (1, 1, 900), (0, 2, 5), (2, 0, 5), (2, 3, 0))


def detected(batches: int, classes: int, count: int) -> tuple[Any, Any]:
    """Boxes on a coarse grid, many sharing an edge or being one, some without area or of NaN; scores many of which are equal."""
    chance = np.random.default_rng([batches, classes, count])
    first, sides = chance.integers(0, 12, (batches, count, 2)), chance.integers(0, 7, (batches, count, 2))
    boxes = np.concatenate([first, first + sides], -1).astype(np.float32)
    boxes[chance.random((batches, count)) < 0.05] = np.nan
    boxes[chance.random((batches, count)) < 0.05] *= 1e30
    scores = np.round(chance.standard_normal((batches, classes, count)) * 8).astype(np.float32) / 8
    scores[chance.random(scores.shape) < 0.05] = np.nan
    scores[chance.random(scores.shape) < 0.05] = -np.inf
    scores[chance.random(scores.shape) < 0.05] = -0.0
    return boxes, scores


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_of_the_interpreter(shape: tuple[int, int, int], layout: str) -> None:
    boxes, scores = detected(*shape)
    cases = [(most, overlap, least) for most in (0, 3, 99) for overlap in (0.0, 0.25, 1.0) for least in (-np.inf, 0.0, np.nan)]
    for number, (most, overlap, least) in enumerate(cases):
        op = NmsTable(most, number % 2 == 0, number % 3 == 0)
        limits = [np.full((1,) * (number % 2), each, np.float32) for each in (overlap, least)]
        with np.errstate(all="ignore"):
            table, counts = op.evaluate(np, boxes, scores, *limits)
        found = [LAYOUTS[layout](np.full_like(table, 7)), np.full_like(counts, 7)[::-1]]
        inputs = [LAYOUTS[layout](boxes), LAYOUTS[layout](scores), *limits]
        run("nms", inputs, found, {"center": int(op.center_point_box), "inclusive": int(op.inclusive)})
        np.testing.assert_array_equal(found[1], counts)
        is_kept = np.arange(table.shape[2]) < counts[..., None]
        np.testing.assert_array_equal(found[0][is_kept], table[is_kept])


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"center_point_box": True},
        {"sort_result_descending": True, "outputs": 3, "inclusive": True},
        {"output_type": "i32", "outputs": 3},
    ],
)
def test_models(attributes: dict[str, Any]) -> None:
    from dovetail.ir import dtypes

    named = {name: dtypes.dtype(value) if name == "dtype" else value for name, value in attributes.items()}
    with Builder() as b:
        boxes, scores = b.input("boxes", "f32", (2, "n", 4)), b.input("scores", "f32", (2, 3, "n"))
        found = b.NonMaxSuppression(boxes, scores, np.int64(5), np.float32(0.3), np.float32(0.1), **named)
        for place, value in enumerate(found if isinstance(found, tuple | list) else [found]):
            b.output(f"y{place}", value)
    engine = Engine(b.model)
    for count in (30, 0, 7):
        given = dict(zip(("boxes", "scores"), detected(2, 3, count), strict=True))
        bound, _ = engine.bind(given)
        assert [step.kernel for step in bound.native_steps] == ["nms"]
        with np.errstate(all="ignore"):
            expected = interpret(b.model, given)
        for name, value in engine(given).items():
            np.testing.assert_array_equal(value, expected[name])


def test_sizes_that_disagree_are_an_error() -> None:
    with Builder() as b:
        boxes, scores = b.input("boxes", "f32", (1, "n", 4)), b.input("scores", "f32", (1, 2, "m"))
        b.output("y", b.NonMaxSuppression(boxes, scores, np.int64(5)))
    with pytest.raises(RuleError, match=r"shape\."):
        Engine(b.model)({"boxes": np.zeros((1, 6, 4), np.float32), "scores": np.zeros((1, 2, 5), np.float32)})


@pytest.mark.parametrize(("boxes", "scores"), [((1, 4, 4), (1, 2, 5)), ((1, 5, 3), (1, 2, 5)), ((2, 5, 4), (1, 2, 5))])
def test_operands_that_do_not_fit_make_no_step(boxes: tuple[int, ...], scores: tuple[int, ...]) -> None:
    inputs = [np.zeros(boxes, np.float32), np.zeros(scores, np.float32), np.float32([0]), np.float32([0])]
    with pytest.raises(ValueError, match="nms"):
        run("nms", inputs, [np.zeros((1, 2, 5), np.int32), np.zeros((1, 2), np.int32)], {})
