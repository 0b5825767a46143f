"""An initializer that is a graph input too is a default that the caller may override, in every engine and after every write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.cli import dovetail as command
from dovetail.ir.graph import Model

ort = pytest.importorskip("onnxruntime")
Arrays = Mapping[str, np.ndarray[Any, Any]]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def value(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def file_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], defaults: Arrays, path: Path, ir_version: int = 8) -> Path:
    tensors = [numpy_helper.from_array(np.asarray(data), name) for name, data in defaults.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version), path)
    return path


def layer(path: Path, ir_version: int = 8) -> Path:
    """x @ w + b, where w stands before x."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["y"])]
    defaults = {"w": np.ones((3, 4), np.float32), "b": np.zeros(4, np.float32)}
    inputs = [value("w", [3, 4]), value("x", ["n", 3]), value("b", [4])]
    return file_of(nodes, inputs, [value("y", ["n", 4])], defaults, path, ir_version)


def shapes(path: Path) -> Path:
    """Axes and a shape, which most readers take for constants."""
    nodes = [helper.make_node("Unsqueeze", ["x", "axes"], ["t"]), helper.make_node("Reshape", ["t", "shape"], ["y"])]
    defaults = {"axes": np.array([0]), "shape": np.array([3, 2])}
    inputs = [value("x", [2, 3]), value("axes", [1], TensorProto.INT64), value("shape", [2], TensorProto.INT64)]
    return file_of(nodes, inputs, [value("y", None)], defaults, path)


FILES: dict[str, tuple[Callable[[Path], Path], list[dict[str, Any]]]] = {
    "weights": (
        layer,
        [{}, {"w": np.eye(3, 4, dtype="f4")}, {"b": np.ones(4, "f4")}, {"w": np.eye(3, 4, dtype="f4"), "b": np.ones(4, "f4")}],
    ),
    "axes and shapes": (
        shapes,
        [{}, {"shape": np.array([6, 1])}, {"axes": np.array([1])}, {"axes": np.array([2]), "shape": np.array([1, 6])}],
    ),
}


def by_onnxruntime(path: Path, feeds: Arrays) -> np.ndarray[Any, Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    found: np.ndarray[Any, Any] = ort.InferenceSession(path, options).run(None, {"x": X, **feeds})[0]
    return found


def text_form(model: Model, folder: Path) -> Model:
    dovetail.save(model, folder / "model.dt")
    return dovetail.load(folder / "model.dt")


def passed_on() -> Model:
    with dovetail.Builder("passed") as b:
        b.output("passed", b.Identity(b.input("x", "f32", (2, 3))))
    return b.model


WAYS: dict[str, Callable[[Model, Path], Model]] = {
    "loaded": lambda model, folder: model,
    "text form": text_form,
    "simplified": lambda model, folder: dovetail.simplify(model),
    "extracted": lambda model, folder: dovetail.extract(model, outputs=["y"]),
    "inferred": lambda model, folder: dovetail.infer(model),
    "renamed": lambda model, folder: model.rename_values({"y": "z"}).rename_values({"z": "y"}),
    "merged": lambda model, folder: dovetail.merge(passed_on(), model, {"passed": "x"}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_an_override_counts_in_both_engines_and_in_the_saved_file(name: str, way: str, tmp_path: Path) -> None:
    make, rows = FILES[name]
    path = make(tmp_path / "model.onnx")
    model = WAYS[way](dovetail.load(path), tmp_path)
    again = tmp_path / "again.onnx"
    dovetail.save(model, again)
    assert {item.name for item in onnx.load(again).graph.input} == {item.name for item in onnx.load(path).graph.input}
    programs = [dovetail.compile(model, engine) for engine in ("native", "interpreter")]
    for feeds in rows:
        expected = by_onnxruntime(path, feeds)
        for program in programs:
            np.testing.assert_array_equal(program({"x": X, **feeds})["y"], expected)
        np.testing.assert_array_equal(dovetail.interpret(model, {"x": X, **feeds})["y"], expected)
        np.testing.assert_array_equal(by_onnxruntime(again, feeds), expected)
        np.testing.assert_array_equal(dovetail.run(again, {"x": X, **feeds})["y"], expected)


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_sound_and_no_default_needs_an_array(name: str, tmp_path: Path) -> None:
    path = FILES[name][0](tmp_path / "model.onnx")
    assert dovetail.check(path) == []
    assert dovetail.load(path, strict=True).warnings == []
    assert [item.name for item in dovetail.load(path).inputs] == ["x"]


def test_the_order_of_the_inputs_stays(tmp_path: Path) -> None:
    path = layer(tmp_path / "model.onnx")
    dovetail.save(dovetail.load(path), tmp_path / "again.onnx")
    assert [item.name for item in onnx.load(tmp_path / "again.onnx").graph.input] == ["w", "x", "b"]


def test_before_ir_version_4_every_initializer_is_a_constant(tmp_path: Path) -> None:
    """So do onnxruntime and OpenVINO read it."""
    model = dovetail.load(layer(tmp_path / "model.onnx", ir_version=3))
    with pytest.raises(dovetail.EngineError, match="no input 'w'"):
        dovetail.run(model, {"x": X, "w": np.ones((3, 4), np.float32)})


def test_ir_gets_the_defaults_with_a_warning(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    path, target = layer(tmp_path / "model.onnx"), tmp_path / "model.xml"
    found = CliRunner().invoke(command, ["convert", str(path), str(target)], standalone_mode=False)
    assert found.return_value == 0 and "[default.frozen]" in found.stderr and "w, b" in found.stderr
    np.testing.assert_allclose(openvino.Core().compile_model(target, "CPU")({"x": X})[0], by_onnxruntime(path, {}))


def test_folding_is_a_choice(tmp_path: Path) -> None:
    path = shapes(tmp_path / "model.onnx")
    assert str(dovetail.load(path, freeze_defaults=True).outputs[0].type) == "f32[3, 2]"
    target = tmp_path / "frozen.onnx"
    found = CliRunner().invoke(command, ["simplify", str(path), "-o", str(target), "--freeze-defaults"], standalone_mode=False)
    assert found.return_value == 0
    assert [item.name for item in onnx.load(target).graph.input] == ["x"]
    np.testing.assert_array_equal(by_onnxruntime(target, {}), by_onnxruntime(path, {}))


def test_an_array_that_is_no_input_is_refused_with_the_optional_ones(tmp_path: Path) -> None:
    with pytest.raises(dovetail.EngineError, match="the optional inputs 'w', 'b'") as caught:
        dovetail.run(layer(tmp_path / "model.onnx"), {"x": X, "v": X})
    assert caught.value.code == "input.unknown"
    for wrong in ({"w": np.ones((2, 4), np.float32)}, {"w": np.ones((3, 4))}):
        with pytest.raises(dovetail.EngineError):
            dovetail.run(tmp_path / "model.onnx", {"x": X, **wrong})


def test_a_model_with_optional_inputs_gets_another_batch(tmp_path: Path) -> None:
    path = layer(tmp_path / "model.onnx")
    dovetail.save(dovetail.rebatch(dovetail.load(path), {"n": 5}), tmp_path / "five.onnx")
    w = np.eye(3, 4, dtype=np.float32)
    five = np.repeat(X[:1], 5, axis=0)
    assert dovetail.run(tmp_path / "five.onnx", {"x": five, "w": w})["y"].shape == (5, 4)


def test_equal_defaults_of_two_inputs_are_two_inputs(tmp_path: Path) -> None:
    """No proof and no rewrite takes one for the other."""
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Add", ["x", "d"], ["y"])]
    same = np.ones((2, 3), np.float32)
    inputs = [value(name, [2, 3]) for name in "xab"]
    path = file_of(nodes, inputs, [value("y", [2, 3])], {"a": same, "b": same}, tmp_path / "model.onnx")
    zero = file_of([helper.make_node("Identity", ["x"], ["y"])], inputs[:1], [value("y", [2, 3])], {}, tmp_path / "zero.onnx")
    assert not dovetail.prove(dovetail.load(path), dovetail.load(zero)).is_proved
    simplified = dovetail.simplify(dovetail.load(path))
    np.testing.assert_array_equal(dovetail.run(simplified, {"x": X, "a": 3 * same})["y"], X + 2)
