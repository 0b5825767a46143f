"""Edits of models by names: what onnx and OpenVINO see of them, and what is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from dovetail import cli
from dovetail.errors import DovetailError, UnsupportedError

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z)
<float[4] w = {1, 2, 3, 4}>
{ h = Mul (x, w) y = Relu (h) z = Neg (h) }
"""


@pytest.fixture
def model() -> dovetail.Model:
    return dovetail.load(onnx.parser.parse_model(TEXT))


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_names_survive_in_both_formats(tmp_path: Path, model: dovetail.Model, suffix: str) -> None:
    dovetail.save(model, tmp_path / f"m{suffix}")
    loaded = dovetail.load(tmp_path / f"m{suffix}")
    edited = loaded.rename_values({"x": "y", "y": "x"}).add_outputs("h").drop_outputs("z")
    dovetail.save(edited, tmp_path / f"edited{suffix}")
    again = dovetail.load(tmp_path / f"edited{suffix}")
    assert [x.name for x in again.inputs] == ["y"] and [y.name for y in again.outputs] == ["x", "h"]
    found = dovetail.run(again, X)
    np.testing.assert_array_equal(found["x"], np.maximum(X * np.array([1, 2, 3, 4], np.float32), 0))
    assert [y.name for y in loaded.outputs] == ["y", "z"]
    if suffix == ".xml":
        openvino = pytest.importorskip("openvino")
        compiled = openvino.Core().compile_model(tmp_path / "edited.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        np.testing.assert_array_equal(compiled({"y": X})["h"], found["h"])


def test_constants_and_input_types(tmp_path: Path, model: dovetail.Model) -> None:
    ort = pytest.importorskip("onnxruntime")
    edited = model.with_constants({"w": 0.5}).convert_inputs({"x": "f16"})
    dovetail.save(edited, tmp_path / "m.onnx")
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    half = X.astype(np.float16)
    (y,) = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"]).run(["y"], {"x": half})
    np.testing.assert_array_equal(y, np.maximum(half.astype(np.float32) * 0.5, 0))
    np.testing.assert_array_equal(dovetail.run(edited, half)["y"], y)


def test_metadata(tmp_path: Path, model: dovetail.Model) -> None:
    dovetail.save(model.set_metadata({"author": "me"}), tmp_path / "m.onnx")
    assert {item.key: item.value for item in onnx.load(tmp_path / "m.onnx").metadata_props} == {"author": "me"}
    dovetail.save(model, tmp_path / "m.xml")
    dovetail.save(dovetail.load(tmp_path / "m.xml").set_metadata({"author/name": "me"}), tmp_path / "n.xml")
    openvino = pytest.importorskip("openvino")
    assert openvino.Core().read_model(tmp_path / "n.xml").get_rt_info(["author", "name"]).astype(str) == "me"


@pytest.mark.parametrize(
    ("verb", "argument", "codes"),
    [
        ("rename_values", {"xx": "a", "q": "b"}, ["name.unknown", "name.unknown"]),
        ("rename_values", {"x": "y", "z": ""}, ["name.taken", "argument.type"]),
        ("add_outputs", ["hh"], ["name.unknown"]),
        ("drop_outputs", ["h", "x"], ["output.unknown", "output.unknown"]),
        ("drop_outputs", ["y", "z"], ["graph.outputs"]),
        ("with_constants", {"h": 1, "x": 2}, ["constant.computed", "constant.computed"]),
        ("with_constants", {"w": np.zeros(4)}, ["input.dtype"]),
        ("convert_inputs", {"h": "f16", "x": "f99"}, ["input.unknown", "dtype.unknown"]),
        ("set_metadata", {"": "a", "dovetail.ir.state": "b"}, ["argument.type", "name.taken"]),
    ],
)
def test_faults(model: dovetail.Model, verb: str, argument: object, codes: list[str]) -> None:
    with pytest.raises(DovetailError) as caught:
        getattr(model, verb)(argument)
    assert [item.code for item in caught.value.diagnostics] == codes


SUBGRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x, bool way) => (float[4] y)
{ y = If (way) <
  then_branch = t () => (float[4] a) { h = Tanh (x) a = Neg (h) },
  else_branch = e () => (float[4] o) { o = Abs (x) }> }
"""


@pytest.mark.parametrize("name", ["h", "y/h", "y/then_branch/h"])
@pytest.mark.parametrize(
    ("verb", "make"),
    [
        ("rename_values", lambda name: {name: "q"}),
        ("add_outputs", lambda name: [name]),
        ("set_outputs", lambda name: [name]),
        ("with_constants", lambda name: {name: 1}),
        ("convert_inputs", lambda name: {name: "f16"}),
    ],
)
def test_a_value_of_a_subgraph_is_refused_with_a_hint(name: str, verb: str, make: Any) -> None:
    model = dovetail.load(onnx.parser.parse_model(SUBGRAPH))
    with pytest.raises(DovetailError, match="of If 'y' has a value of that name: only extract accepts") as caught:
        getattr(model, verb)(make(name))
    assert caught.value.code == "name.unknown"
    with pytest.raises(DovetailError, match="only extract accepts values of subgraphs, with the name 'y/h'"):
        dovetail.merge(model, model, {name: "x"})


def test_a_constant_that_loading_folded_is_not_replaced(tmp_path: Path) -> None:
    """The axis of Gather is an attribute after loading, so that a new constant would reach the other reader alone."""
    openvino = pytest.importorskip("openvino")
    ops = importlib.import_module("openvino.opset15")
    x, n = ops.parameter([2, 3], np.float32, "x"), ops.parameter([1], np.int64, "n")
    axis = ops.constant(np.array([1], np.int64))
    axis.set_friendly_name("axis")
    results = [ops.gather(x, ops.constant(np.array([0, 2])), axis), ops.add(axis, n)]
    openvino.save_model(openvino.Model(results, [x, n], "g"), tmp_path / "m.xml", compress_to_fp16=False)
    model = dovetail.load(tmp_path / "m.xml")
    with pytest.raises(UnsupportedError, match="'axis' was folded") as caught:
        model.with_constants({"axis": [0]})
    assert caught.value.code == "constant.computed"


def test_the_commands(tmp_path: Path, model: dovetail.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dovetail.save(model, "m.onnx")
    np.save("w.npy", np.ones(4, np.float32))
    for arguments, code in [
        ("extract m.onnx --from x --to h -o a.onnx --json", 0),
        ("extract m.onnx --from h --to y,z -o b.xml", 0),
        ("extract m.onnx --from y --to h -o never.onnx", 5),
        ("merge a.onnx b.xml -o c.onnx", 0),
        ("merge a.onnx b.xml --connect h:q -o never.onnx", 5),
        ("edit c.onnx --rename z=minus --constant w=w.npy --metadata a=b=c --input-type x=f16 -o d.onnx", 0),
        ("edit c.onnx --rename q=r --output s -o never.onnx", 5),
        ("edit c.onnx -o never.onnx", 2),
    ]:
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments.split())
        assert caught.value.code == code, arguments
    assert not Path("never.onnx").exists()
    assert {item.key: item.value for item in onnx.load("d.onnx").metadata_props}["a"] == "b=c"
    np.testing.assert_array_equal(dovetail.run("d.onnx", X.astype(np.float16))["minus"], -X.astype(np.float16).astype(np.float32))
