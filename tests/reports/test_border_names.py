"""An input that is also an output, and two outputs of one value, are found by their names in OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest

import dovetail
from dovetail.ir import dtypes
from oracles import run_openvino_file

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
X = np.array([[1, -2]], np.float32)


def ports_of(path: Path) -> list[list[list[str]]]:
    compiled = openvino.Core().compile_model(path, "CPU")
    return [[sorted(port.get_names()) for port in side] for side in (compiled.inputs, compiled.outputs)]


def run_by_name(path: Path, *outputs: str) -> list[Any]:
    request = openvino.Core().compile_model(path, "CPU").create_infer_request()
    request.infer({"K": X})
    return [request.get_tensor(name).data.copy() for name in outputs]


@pytest.mark.parametrize("node", ["Identity (K)", "Dropout (K)", "Cast <to = 1> (K)"])
def test_an_input_passed_to_an_output_is_fed_by_its_name(node: str, tmp_path: Path) -> None:
    text = f"{HEAD} g (float[b, 2] K) => (float[b, 2] pk, float[b, 2] y) {{pk = {node} y = Relu (K)}}"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "m.xml")
    dovetail.save(dovetail.load(tmp_path / "m.xml"), tmp_path / "again.xml")
    for name in ("m.xml", "again.xml"):
        passed, positive = run_by_name(tmp_path / name, "pk", "y")
        np.testing.assert_array_equal(passed, X)
        np.testing.assert_array_equal(positive, np.maximum(X, 0))


def test_two_outputs_of_one_value_keep_both_names(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[b, 2] K) => (float[b, 2] y, float[b, 2] z) {{y = Relu (K) z = Identity (y)}}"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    openvino.save_model(openvino.Core().read_model(tmp_path / "m.onnx"), tmp_path / "own.xml", compress_to_fp16=False)
    for source in ("m.onnx", "own.xml"):
        dovetail.save(dovetail.load(tmp_path / source), tmp_path / "written.xml")
        dovetail.save(dovetail.load(tmp_path / "written.xml"), tmp_path / "again.xml")
        for name in ("written.xml", "again.xml"):
            assert ports_of(tmp_path / name) == [[["K"]], [["y"], ["z"]]], source


@pytest.mark.parametrize("kind", ["f16", "bf16", "f64", "i4", "u8", "i64", "boolean", "string", "f8e4m3"])
def test_borders_of_every_element_type_keep_their_names(kind: str, tmp_path: Path) -> None:
    with dovetail.Builder("m") as b:
        x = b.input("x", kind, ("n", 2))
        array = np.array(["a", "b"], object) if kind == "string" else np.zeros(2, dtypes.dtype(kind).numpy)
        c = b.constant(array, dtypes.dtype(kind), "c")
        for name, value in (("p", x), ("q", x), ("r", c), ("s", c)):
            b.output(name, b.Identity(value))
    dovetail.save(b.model, tmp_path / "m.xml")
    inputs, outputs = ports_of(tmp_path / "m.xml")
    assert inputs == [["x"]]
    assert [[name for name in names if name in "pqrs"] for names in outputs] == [["p"], ["q"], ["r"], ["s"]]


@pytest.mark.parametrize("shape", [(), ("n", 2)])
def test_strings_passed_to_an_output_run(shape: tuple[int | str, ...], tmp_path: Path) -> None:
    with dovetail.Builder("m") as b:
        b.output("y", b.Identity(b.input("x", "string", shape)))
    dovetail.save(b.model, tmp_path / "m.xml")
    dovetail.save(dovetail.load(tmp_path / "m.xml"), tmp_path / "again.xml")
    x = np.array([["a", "b" * 60]] if shape else "b" * 60, object)
    for name in ("m.xml", "again.xml"):
        (y,) = run_openvino_file(str(tmp_path / name), {"x": x}, ["y"])
        assert y.tolist() == x.tolist()


def test_an_identity_between_two_operators_is_not_written(tmp_path: Path) -> None:
    with dovetail.Builder("m") as b:
        b.output("y", b.Relu(b.Identity(b.Sqrt(b.input("x", "f32", (2,))))))
    dovetail.save(b.model, tmp_path / "m.xml")
    assert 'type="Identity"' not in (tmp_path / "m.xml").read_text()
