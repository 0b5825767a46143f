"""A run of a model with f64 in place of every float, which judges between two engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from dovetail import Limits
from dovetail.compare.f64_run import run_wide

STEP = "t = Constant <value = float {0.1}> () m = Mul (b, t) d = Exp (m)"
SUBGRAPHS = {
    "Loop": f"y = Loop (n, , x) <body = g (int64 i, bool c, float[k] b) => (bool c2, float[k] d) {{ c2 = Identity (c) {STEP} }}>",
    "Scan": f"""f, s = Scan <num_scan_inputs = 1, body = g (float[k] b, float q) => (float[k] d, float[k] e) {{
        {STEP} e = Mul (d, q) }}> (x, x) y = ReduceSum <keepdims = 0> (s, z)""",
    "If": f"""b = Identity (x) c = Greater (n, z) h = Squeeze (c)
        y = If (h) <then_branch = g () => (float[k] d) {{ {STEP} }}, else_branch = h () => (float[k] d) {{ d = Neg (b) }}>""",
}


@pytest.mark.parametrize("limits", [None, Limits(memory=1 << 30)], ids=["no limit", "memory limit"])
@pytest.mark.parametrize("name", SUBGRAPHS)
def test_constants_of_subgraphs_are_wide(name: str, limits: Limits | None) -> None:
    # A run with a memory limit infers the body at the types of its inputs.
    text = f"""<ir_version: 8, opset_import: ["" : 17]> main (float[k] x, int64 n) => (float[k] y)
        <int64[1] z = {{0}}> {{ {SUBGRAPHS[name]} }}"""
    model = dovetail.load(onnx.parser.parse_model(text), limits=limits)
    inputs: dict[str, Any] = {"x": np.float32([0.3, -0.7, 2]), "n": np.int64(3)}
    exact, found = run_wide(model, inputs)["y"], dovetail.interpret(model, inputs)["y"]
    assert exact.dtype == np.float64
    np.testing.assert_allclose(found, exact, rtol=1e-6)
