"""GridSample against the operator's own rule and torch, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail import Graph, compile
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ops.nn.grid_sample import MODES, PADDINGS, GridSample
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

SHAPES = [((2, 3, 9), (2, 5, 1)), ((2, 3, 6, 7), (2, 5, 4, 2)), ((1, 2, 3, 4, 5), (1, 2, 3, 70, 3)), ((2, 1, 1, 1), (2, 9, 8, 2))]


def grid_of(shape: tuple[int, ...], kind: str) -> Any:
    """Positions inside and outside; some are exactly at edges and centers."""
    generator = np.random.default_rng(shape)
    grid = generator.uniform(-1.6, 1.6, shape)
    exact = generator.integers(-6, 7, shape) / 4
    return np.where(generator.random(shape) < 0.2, exact, grid).astype(kind)


def sampled(x: Any, grid: Any, op: GridSample, layout: str = "row_major", threads: int = 2) -> Any:
    y = LAYOUTS[layout](np.full((*x.shape[:2], *grid.shape[1:-1]), 7, x.dtype))
    facts = {"align_corners": int(op.align_corners), "mode": op.mode, "padding_mode": op.padding_mode}
    run("grid_sample", [LAYOUTS[layout](x), LAYOUTS[layout](grid)], [y], facts, threads)
    return np.array(y)


def by_rule(x: Any, grid: Any, op: GridSample) -> Any:
    b = Builder(graph=Graph())
    values = [b.input(name, dtypes.dtype(array.dtype), array.shape) for name, array in (("x", x), ("grid", grid))]
    b.output("y", *b.add(op, *values))
    return compile(Model(b.graph), engine="interpreter")({"x": x, "grid": grid})["y"]


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "of"), SHAPES, ids=str)
def test_every_mode(shape: Any, of: Any, mode: str, padding: str, aligned: bool) -> None:
    op = GridSample(aligned, mode, padding)
    for kind, tolerance in (("float32", 3e-6), ("float64", 1e-14)):
        x, grid = random(shape, kind), grid_of(of, kind)
        expected = by_rule(x, grid, op)
        for layout in LAYOUTS:
            np.testing.assert_allclose(
                sampled(x, grid, op, layout), expected, atol=tolerance * 10, rtol=tolerance, err_msg=layout
            )


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_against_torch(mode: str, padding: str, aligned: bool) -> None:
    torch = pytest.importorskip("torch")
    x, grid = random((2, 3, 33, 17), "float64"), np.random.default_rng(0).uniform(-1.3, 1.3, (2, 40, 41, 2))
    name = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[mode]
    expected = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), name, padding, aligned)
    np.testing.assert_allclose(sampled(x, grid, GridSample(aligned, mode, padding)), expected.numpy(), atol=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_non_finite_positions_read_no_memory_outside_x(mode: str, padding: str) -> None:
    x = random((1, 2, 5, 4))
    grid = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, 0, 1], np.float32)
    grid = np.stack(np.meshgrid(grid, grid), -1)[None]
    with np.errstate(all="ignore"):
        expected = by_rule(x, grid, GridSample(False, mode, padding))
    found = sampled(x, grid, GridSample(False, mode, padding))
    is_finite = np.abs(expected) < 1e6
    np.testing.assert_allclose(found[is_finite], expected[is_finite], rtol=1e-5, atol=1e-5)


def test_threads_make_no_difference() -> None:
    x, grid = random((2, 5, 60, 70)), grid_of((2, 90, 80, 2), "float32")
    for mode in MODES:
        assert len({sampled(x, grid, GridSample(False, mode), threads=threads).tobytes() for threads in (1, 2, 3)}) == 1


def test_empty_tensors() -> None:
    assert sampled(np.zeros((0, 2, 3, 3), np.float32), np.zeros((0, 4, 4, 2), np.float32), GridSample()).shape == (0, 2, 4, 4)
    assert sampled(np.zeros((1, 2, 3, 3), np.float32), np.zeros((1, 0, 4, 2), np.float32), GridSample()).shape == (1, 2, 0, 4)


@pytest.mark.parametrize(
    ("facts", "shape", "of", "made"),
    [
        ({"mode": "area", "padding_mode": "zeros"}, (1, 2, 3, 3), (1, 4, 4, 2), (1, 2, 4, 4)),
        ({"mode": "linear", "padding_mode": "wrap"}, (1, 2, 3, 3), (1, 4, 4, 2), (1, 2, 4, 4)),
        ({"mode": "linear", "padding_mode": "zeros"}, (1, 2, 3, 0), (1, 4, 4, 2), (1, 2, 4, 4)),
        ({"mode": "linear", "padding_mode": "zeros"}, (1, 2, 3, 3), (1, 4, 4, 3), (1, 2, 4, 4)),
        ({"mode": "linear", "padding_mode": "zeros"}, (1, 2, 3, 3), (1, 4, 4, 2), (1, 2, 4, 5)),
    ],
)
def test_operands_that_do_not_fit_make_no_step(facts: Any, shape: Any, of: Any, made: Any) -> None:
    with pytest.raises(ValueError, match="grid_sample"):
        run("grid_sample", [np.zeros(shape), np.zeros(of)], [np.zeros(made)], facts)
