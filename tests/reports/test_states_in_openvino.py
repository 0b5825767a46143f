"""A Scan whose body combines a slice with a state, in the runtime of the IR that is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import dovetail
from report_routes import run_onnxruntime, run_openvino

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
R = "<float[3,3] r = {0.5,-0.25,0.125,0.75,0.5,-0.5,0.25,0.0625,-0.75}>"
BODIES = {
    "sum": "t = Add(x, s)",
    "sum of a product": "m = MatMul(s, r) t = Add(x, m)",
    "difference from a product": "m = MatMul(s, r) t = Sub(x, m)",
    "greatest": "m = MatMul(s, r) t = Max(x, m)",
    "two slices": "u = Add(x, x2) t = Add(u, s)",
    "two slices multiplied": "u = Mul(x, x2) m = MatMul(s, r) t = Sub(u, m)",
    "an activation": "m = MatMul(s, r) u = Add(x, m) t = Elu(u)",
    "through views": "zero = Constant<value_ints = [0]>() u = Unsqueeze(x, zero) v = Squeeze(u, zero) t = Add(v, s)",
    "condition": "c = Greater(x, s) t = Where(c, x, s)",
    "quotient": "one = Constant<value_float = 1.0>() u = Abs(s) v = Add(u, one) t = Div(x, v)",
}


@pytest.mark.parametrize("length", ["4", "T"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_scan_with_a_state(tmp_path: Path, body: str, length: str) -> None:
    second = ", float[2,3] x2" if "x2" in body else ""
    text = f"""<ir_version: 9, opset_import: ["" : 17]> main (float[2,3] h, float[{length},2,3] x)
        => (float[2,3] last, float[{length},2,3] y)
    {R} {{
        last, y = Scan<num_scan_inputs = {1 + bool(second)}, body = step (float[2,3] s, float[2,3] x{second})
            => (float[2,3] t, float[2,3] o) {{ {body} o = Identity(t) }}>(h, x{", x" if second else ""})
    }}"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    feeds = {"h": rng.standard_normal((2, 3), np.float32), "x": rng.standard_normal((4, 2, 3), np.float32)}
    expected = run_onnxruntime(proto, feeds)
    model = dovetail.load(proto)
    dovetail.save(model, tmp_path / "m.xml")
    for found in (dovetail.run(model, feeds), run_openvino(tmp_path / "m.xml", feeds)):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
