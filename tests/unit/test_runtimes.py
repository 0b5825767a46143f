"""Other engines as verify runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.compare.verification.conversion import runner_for


def test_openvino_does_not_round_operands_of_quantised_weights(tmp_path: Path) -> None:
    """Left to itself its CPU plugin quantises the other factor too, half a percent away from the model."""
    pytest.importorskip("openvino")
    generator = np.random.default_rng(0)
    codes = generator.integers(-127, 128, (384, 256)).astype(np.int8)
    scales = generator.uniform(0.01, 0.02, 256).astype(np.float32)
    with dovetail.Builder("compressed") as b:
        x = b.input("x", "f32", ("n", 384))
        b.output("y", b.MatMul(x, b.DequantizeLinear(b.constant(codes), b.constant(scales), axis=1)))
    dovetail.save(b.model, tmp_path / "m.xml")
    given = generator.standard_normal((4, 384)).astype(np.float32)
    wanted = given.astype(np.float64) @ (codes * scales.astype(np.float64))
    found = runner_for(tmp_path / "m.xml", "openvino").run({"x": given})["y"]
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()
