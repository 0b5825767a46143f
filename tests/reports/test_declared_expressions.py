"""Sizes that a file writes as expressions, and shapes that a constant mask selects, are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def loaded(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], tensors: dict[str, Any], opset: int = 17) -> Any:
    constants = [numpy_helper.from_array(np.asarray(data), name) for name, data in tensors.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return dovetail.load(path)


def value(name: str, shape: Any, kind: int = F) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.mark.parametrize(
    ("text", "size"),
    [("(((frames - 1)//2)) + 1", "(frames + 1)//2"), ("2*frames", "2*frames"), ("batch*(frames + 1)", "batch*frames + batch"),
     ("Max(1, frames)", "max(frames, 1)"), ("min(frames, 3)", "min(frames, 3)"), ("frames%2", "frames%2")],
)  # fmt: skip
def test_an_expression_over_sizes_of_the_inputs_is_that_expression(text: str, size: str, tmp_path: Path) -> None:
    """torch writes them as names; the operator itself tells nothing of its size."""
    node = helper.make_node("Mystery", ["x"], ["y"], domain="own")
    graph = helper.make_graph([node], "g", [value("x", ["batch", "frames"])], [value("y", ["batch", text])])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "model.onnx")
    model = dovetail.load(tmp_path / "model.onnx")
    assert str(model.outputs[0].type) == f"f32[batch, {size}]"
    dovetail.save(model, tmp_path / "again.onnx")
    assert dovetail.load(tmp_path / "again.onnx").outputs[0].type == model.outputs[0].type


@pytest.mark.parametrize("text", ["other + 1", "seq-len", "a/b", "N*(", "x.1"])
def test_any_other_text_is_a_name(text: str, tmp_path: Path) -> None:
    model = loaded(tmp_path / "model.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", ["batch", text])],
                   [value("y", ["batch", text])], {})  # fmt: skip
    (x,) = model.inputs
    assert x.shape == model.outputs[0].shape and dovetail.ir.symbolic.name_of(x.shape[1]) == text


def test_a_declared_expression_is_the_derived_one(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], strides=[2]), helper.make_node("Relu", ["c"], ["y"])]
    outputs = [value("y", [1, 8, "(((frames - 1)//2)) + 1"])]
    model = loaded(tmp_path / "model.onnx", nodes, [value("x", [1, 4, "frames"])], outputs, {"w": np.ones((8, 4, 1), "f4")})
    assert str(model.outputs[0].type) == "f32[1, 8, (frames + 1)//2]"
    assert dovetail.check(tmp_path / "model.onnx") == []


@pytest.mark.parametrize(
    ("inputs", "make", "shape"),
    [
        ([value("x", [2, 3, "n"])], [helper.make_node("Shape", ["x"], ["u"])], "f32[2, 12, n]"),
        ([value("x", [2, 3, 4]), value("u", [3], I64)], [], None),
        ([value("x", [2, 3, 4]), value("f", [3])], [helper.make_node("Cast", ["f"], ["u"], to=I64)], None),
    ],
    ids=["sizes", "input", "cast"],
)
def test_a_constant_mask_keeps_the_elements_that_are_known(inputs: Any, make: Any, shape: str | None, tmp_path: Path) -> None:
    nodes = [*make, helper.make_node("Where", ["mask", "known", "u"], ["t"]), helper.make_node("ConstantOfShape", ["t"], ["y"])]
    mask = np.array([False, True, False] if shape else [True, True, False])
    tensors = {"known": np.array([2, 12, 4]), "mask": mask}
    y = loaded(tmp_path / "model.onnx", nodes, inputs, [value("y", None)], tensors).outputs[0]
    if shape is not None:
        assert str(y.type) == shape
    else:
        assert y.shape is not None and y.shape[:2] == (2, 12) and not isinstance(y.shape[2], int)


def test_a_comparison_that_sizes_leave_open_is_an_integer_over_them(tmp_path: Path) -> None:
    """The rest of a chunk: rows // 2 + (rows % 2 > 0)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Mod", ["s", "two"], ["r"]),
        helper.make_node("Greater", ["r", "zero"], ["g"]),
        helper.make_node("Cast", ["g"], ["c"], to=I64),
        helper.make_node("ConstantOfShape", ["c"], ["y"]),
    ]
    tensors = {"two": np.array([2]), "zero": np.array([0])}
    y = loaded(tmp_path / "model.onnx", nodes, [value("x", ["n"])], [value("y", None)], tensors).outputs[0]
    assert str(y.type) == "f32[n%2]"
    for count in (4, 5):
        found = dovetail.run(tmp_path / "model.onnx", {"x": np.zeros(count, np.float32)})["y"]
        assert found.shape == (count % 2,)


def test_a_resize_with_scales_of_half_precision_loads(tmp_path: Path) -> None:
    """OpenVINO runs it, and onnxruntime refuses it."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], "resize", mode="nearest")
    half = TensorProto.FLOAT16
    tensors = {"scales": np.array([1, 1, 2, 2], np.float16)}
    model = loaded(
        tmp_path / "model.onnx", [node], [value("x", [1, 1, 2, 2], half)], [value("y", [1, 1, 4, 4], half)], tensors, 13
    )
    assert str(model.outputs[0].type) == "f16[1, 1, 4, 4]"
    assert [(item.code, item.node) for item in dovetail.check(tmp_path / "model.onnx")] == [("type.version", "resize")]
