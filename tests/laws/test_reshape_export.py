"""Reshapes with targets that run time computes, written as ONNX: onnxruntime gives our answer, or refuses an empty tensor."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.compare.verification.conversion import runner_for
from dovetail.errors import DovetailError, EngineError, UnsupportedError
from dovetail.ops.tensor.reshape import Reshape

RULES = [Reshape(), Reshape(empty="cancel"), *(Reshape(special_zero=False, empty=empty) for empty in ("refuse", "cancel"))]
# Elements of a target: numbers, sizes of the input [n, 4, m] by axis, and "n * 4", which is no size of it.
TARGETS = [
    ("n", -1), (-1, "m"), ("n", 4, "m"), ("n", 2, -1), ("n", "m", 4), ("m", 4, "n"), ("m", -1), (0, -1), (0, 0, -1), (0, "m", 4),
    ("n", 0, -1), ("n", "4m"), ("4n", "m"), ("4n", -1), ("n", 0, "m"), (-1,), ("n", 4, -1), (-1, 4, "m"), (1, "n", -1),
    ("n", 4, "m", 1),
]  # fmt: skip
SIZES = [(2, 3), (3, 2), (1, 1), (0, 3), (2, 0), (0, 0)]


def reshaping(op: Reshape, target: tuple[Any, ...]) -> dovetail.Model:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 4, "m"))
        n, m = (b.Slice(b.Shape(x), [axis], [axis + 1], [0]) for axis in (0, 2))
        computed = {"n": n, "m": m, "4n": b.Multiply(n, 4), "4m": b.Multiply(m, 4)}
        parts = [computed[part] if isinstance(part, str) else b.constant(np.array([part])) for part in target]
        b.output("y", b.add(op, x, b.Concat(*parts, axis=0))[0])
    return b.model


@pytest.mark.parametrize("op", RULES, ids=str)
def test_a_computed_target_means_the_same_in_onnx(op: Reshape, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    answers = 0
    for target, opset in product(TARGETS, (13, 21)):
        try:
            model = reshaping(op, target)
        except DovetailError:
            continue
        try:
            dovetail.save(model, tmp_path / "m.onnx", opset=opset)
        except UnsupportedError:
            assert opset < 14, (target, opset)
            continue
        runner = runner_for(tmp_path / "m.onnx", "onnxruntime")
        for n, m in SIZES:
            x = np.arange(n * 4 * m, dtype=np.float32).reshape(n, 4, m)
            try:
                ours = dovetail.run(model, {"x": x}, "interpreter")["y"]
            except DovetailError:
                # onnxruntime also answers where the specification refuses, as for a literal 0 beside -1.
                continue
            try:
                theirs = runner.run({"x": x})["y"]
            except EngineError:
                assert 0 in (n, m), (target, opset, n, m)
                continue
            assert ours.shape == theirs.shape, (target, opset, n, m, theirs.shape)
            np.testing.assert_array_equal(ours, theirs)
            answers += 1
    assert answers > 100
