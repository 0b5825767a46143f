"""A Scan whose body combines a slice with a state, in the runtime of the IR that is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from assertions import assert_close
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
    "an unread slice": "one = Constant<value_float = 2.0>() u = Mul(s, one) t = Add(u, s)",
    "signs": "u = Neg(x) v = Neg(u) m = MatMul(s, r) t = Sub(v, m)",
    "a slice as the state": "t = Identity(x)",
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


UNARY = ("Neg", "Relu", "Tanh", "Identity", "Abs")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
HIDDEN = 3


def random_scan(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a Scan of one or two inputs whose body is random arithmetic, views and copies, with its feeds."""
    rng = np.random.default_rng(seed)
    batch, count = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    constants = {
        "r": rng.standard_normal((HIDDEN, HIDDEN), np.float32) * np.float32(0.4), "negative_zero": np.float32(-0.0),
        "two": np.float32(2), "zero": np.array([0]), "one": np.array([1]), "end": np.array([HIDDEN]),
        "shape": np.array([batch, HIDDEN]),
    }  # fmt: skip
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def changed(x: str) -> str:
        choices = (
            lambda: add(UNARY[rng.integers(len(UNARY))], x),
            lambda: add("Neg", add("Neg", x)),
            lambda: add("Cast", add("Cast", x, to=TensorProto.DOUBLE), to=TensorProto.FLOAT),
            lambda: add("Add", x, "negative_zero"),
            lambda: add("Mul", x, "two"),
            lambda: add("Squeeze", add("Unsqueeze", x, "zero"), "zero"),
            lambda: add("Reshape", x, "shape"),
            lambda: add("Transpose", add("Transpose", x, perm=[1, 0]), perm=[1, 0]),
            lambda: add("Expand", x, "shape"),
            lambda: add("Concat", add("Slice", x, "zero", "one", "one"), add("Slice", x, "one", "end", "one"), axis=1),
            lambda: add("MatMul", x, "r"),
        )
        return choices[rng.integers(len(choices))]()

    def combined(x: str, y: str) -> str:
        return add(BINARY[rng.integers(len(BINARY))], x, y)

    values = ["s", "x0", "x1"][: 1 + count]
    for _ in range(rng.integers(1, 6)):
        x, y = (values[rng.integers(len(values))] for _ in range(2))
        values.append(changed(x) if rng.random() < 0.5 else combined(x, y))
    state = combined("x0", values[-1]) if rng.random() < 0.5 else combined(values[-1], "s")
    outputs = [add("Identity", state), add("Identity" if rng.random() < 0.5 else "Neg", state)]

    def info(name: str, *sizes: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)

    row = (batch, HIDDEN)
    tensors = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    inputs = [info(name, *row) for name in ("s", "x0", "x1")[: 1 + count]]
    body = helper.make_graph(nodes, "step", inputs, [info(name, *row) for name in outputs], tensors)
    length = 4 if rng.random() < 0.5 else "T"
    names = ["a0", "a1"][:count]
    scan = helper.make_node("Scan", ["h", *names], ["last", "y"], num_scan_inputs=count, body=body)
    inputs = [info("h", *row), *(info(name, length, *row) for name in names)]
    graph = helper.make_graph([scan], "main", inputs, [info("last", *row), info("y", length, *row)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feeds = {"h": rng.standard_normal(row, np.float32)}
    return model, feeds | {name: rng.standard_normal((4, *row), np.float32) for name in names}


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_bodies(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        proto, feeds = random_scan(seed)
        dovetail.save(dovetail.load(proto), tmp_path / "m.xml")
        expected, found = run_onnxruntime(proto, feeds), run_openvino(tmp_path / "m.xml", feeds)
        for name, value in expected.items():
            assert_close(found[name], value, 1e-4, f"seed {seed}, {name}")
