"""Square weights that products read in both orientations, as in models of gradients, in files that OpenVINO runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("transposes", [(False, True), (True, False), (False, False), (True, True)])
@pytest.mark.parametrize("is_node", [False, True])
def test_each_orientation_of_a_weight_is_multiplied(transposes: tuple[bool, bool], is_node: bool, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    w, x = RANDOM.standard_normal((32, 32), np.float32), RANDOM.standard_normal((8, 12, 32), np.float32)
    with dovetail.Builder() as b:
        y, weight = b.input("x", "f32", ("batch", "length", 32)), b.constant(w)
        for is_transposed in transposes:
            factor = b.Transpose(weight, [1, 0]) if is_node and is_transposed else weight
            y = b.MatMul(y, factor, transpose_b=is_transposed and not is_node)
        b.output("y", y)
    expected = x
    for is_transposed in transposes:
        expected = expected @ (w.T if is_transposed else w)
    path = tmp_path / "model.xml"
    dovetail.save(b.model, path)
    found = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    copies = 1 + (len(set(transposes)) > 1)
    assert (tmp_path / "model.bin").stat().st_size < (copies + 1) * w.nbytes
