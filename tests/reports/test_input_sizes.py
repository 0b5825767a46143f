"""Sizes of random inputs: the smallest at which every rule of a model holds, and never a run beyond the limits."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail.runtime import find_shapes
from dovetail.runtime.random_inputs import random_inputs


def network(features: int) -> dovetail.Model:
    """Return a picture of open height and width, halved twice, whose elements a product takes."""
    with dovetail.Builder("network") as b:
        y = b.input("x", "f32", (1, 1, "height", "width"))
        for channels, previous in ((4, 1), (8, 4)):
            weights = b.constant(np.ones((channels, previous, 3, 3), np.float32))
            y = b.MaxPool(b.Relu(b.Conv(y, weights, pads=[1, 1, 1, 1])), kernel_shape=[2, 2], strides=[2, 2])
        b.output("y", b.MatMul(b.Flatten(y, axis=1), b.constant(np.ones((features, 2), np.float32))))
    return b.model


@pytest.mark.parametrize("features", [8 * 15 * 36, 8 * 7 * 7, 8 * 3 * 50, 8 * 331])
def test_sizes_are_of_the_order_that_a_product_takes(features: int) -> None:
    model = network(features)
    x = random_inputs(model)["x"]
    assert dovetail.run(model, {"x": x})["y"].shape == (1, 2)
    assert prod(x.shape) < 3 * 16 * features / 8


def test_sizes_behind_a_convolution_and_a_reshape_are_small() -> None:
    """Rows of 1060 elements: 10 channels of 106 columns, so that 144 columns of any number of rows would do."""
    with dovetail.Builder("rows") as b:
        x = b.Unsqueeze(b.input("x", "f32", ("n", "w")), np.array([0, 1]))
        y = b.Transpose(b.Conv(x, b.constant(np.ones((10, 1, 3, 39), np.float32))), [0, 2, 3, 1])
        b.output("y", b.Reshape(y, np.array([-1, 1060])))
    for options in ({}, {"distinct": True}):
        data = random_inputs(b.model, **options)["x"]
        assert dovetail.run(b.model, {"x": data})["y"].shape[1] == 1060
        assert data.size < 20_000


def test_the_search_runs_no_trial_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with dovetail.Builder("doubling") as b:
        y = b.input("x", "f32", ("n",))
        for _ in range(30):
            y = b.Concat(y, y, axis=0)
        b.output("y", y)
    evaluated = []
    monkeypatch.setattr(find_shapes, "evaluate_node", lambda *arguments: evaluated.append(arguments))
    model = b.model
    model.limits = dovetail.Limits(memory=1 << 20)
    random_inputs(model, beside={})
    assert not evaluated


def test_a_run_of_the_interpreter_counts_all_live_values() -> None:
    with dovetail.Builder("live") as b:
        x = b.input("x", "f32", (1 << 18,))
        values = [b.Sin(x)]
        for _ in range(9):
            values.append(b.Sin(values[-1]))
        b.output("y", b.Sum(*values))
    inputs = {"x": np.ones(1 << 18, np.float32)}
    for megabytes, is_run in ((4, False), (32, True)):
        model = b.model
        model.limits = dovetail.Limits(memory=megabytes << 20)
        if is_run:
            assert dovetail.interpret(model, inputs)["y"].shape == (1 << 18,)
        else:
            with pytest.raises(DovetailError, match=r"\[run.memory\]"):
                dovetail.interpret(model, inputs)
