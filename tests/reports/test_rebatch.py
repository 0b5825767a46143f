"""A model that was exported at one size gets another batch, length or picture, as OpenVINO's own reshape gives it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.ir.graph import Model

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
openvino = pytest.importorskip("openvino")


class Chunks(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, part: Callable[[Any], Any]) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.part = part

    def forward(self, x: Any) -> Any:
        a, b = self.part(self.conv(x))
        return a * b


CHUNKS: dict[str, Callable[[Any], Any]] = {
    "channels of a flattened picture": lambda y: y.flatten(2).chunk(2, 1),
    "last axis": lambda y: y.chunk(2, -1),
    "flattened axis": lambda y: y.flatten(2).chunk(2, -1),
    "everything flattened": lambda y: y.flatten(1).chunk(2, 1),
    "rows": lambda y: y.chunk(2, 2),
}


def as_ir(module: Any, shape: list[int], path: Path) -> Path:
    torch.backends.mha.set_fastpath_enabled(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = openvino.convert_model(module, example_input=torch.randn(*shape), input=[openvino.PartialShape(shape)])
    openvino.save_model(converted, path, compress_to_fp16=False)
    return path


def by_openvino(model: Model, x: np.ndarray[Any, Any], path: Path) -> np.ndarray[Any, Any]:
    dovetail.save(model, path)
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found: np.ndarray[Any, Any] = compiled(x)[0]
    return found


@pytest.mark.parametrize("sizes", [[1, 3, 32, 32], [1, 3, "H", "W"]], ids=str)
@pytest.mark.parametrize("name", CHUNKS)
def test_an_ir_with_chunks_gets_another_picture(name: str, sizes: Any, tmp_path: Path) -> None:
    module = Chunks(CHUNKS[name]).eval()
    model = dovetail.load(as_ir(module, [1, 3, 16, 16], tmp_path / "model.xml"))
    new = dovetail.rebatch(model, shapes={model.inputs[0].name: sizes})
    x = torch.randn(1, 3, 32, 32)
    found = by_openvino(new, x.numpy(), tmp_path / "new.xml")
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


class Attention(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        return self.norm(x + self.attention(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize("suffix", [".xml", ".onnx"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
def test_attention_gets_a_batch_and_a_length_at_once(batch_first: bool, suffix: str, tmp_path: Path) -> None:
    torch.backends.mha.set_fastpath_enabled(False)
    module = Attention(batch_first).eval()
    shape = [1, 6, 16] if batch_first else [6, 1, 16]
    path = tmp_path / f"model{suffix}"
    if suffix == ".xml":
        as_ir(module, shape, path)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (torch.randn(*shape),), path, dynamo=False, opset_version=17, input_names=["x"])
    model = dovetail.load(path)
    name = model.inputs[0].name
    sizes = ["batch", "length", 16] if batch_first else ["length", "batch", 16]
    batch = {f"{name}.{0 if batch_first else 1}": "batch"}
    for dims in ({}, batch):
        new = dovetail.rebatch(model, dims, {name: sizes})
        x = torch.randn(*([3, 9, 16] if batch_first else [9, 3, 16]))
        expected = module(x).detach().numpy()
        np.testing.assert_allclose(dovetail.run(new, {name: x.numpy()})[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_openvino(new, x.numpy(), tmp_path / "new.xml"), expected, rtol=1e-4, atol=1e-5)


class Detector(torch.nn.Module):  # type: ignore[misc]
    """The head of YOLOv8: boxes as expectations over 16 bins, with the batch among the numbers of every view."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 69, 3, 2, 1)
        self.second = torch.nn.Conv2d(69, 69, 3, 2, 1)
        self.register_buffer("bins", torch.arange(16.0))

    def forward(self, x: Any) -> Any:
        large = self.first(x)
        small = self.second(large)
        batch = int(x.shape[0])
        joined = torch.cat([large.view(batch, 69, -1), small.view(batch, 69, -1)], 2)
        anchors = int(joined.shape[2])
        boxes, classes = joined.split((64, 5), 1)
        shares = boxes.view(batch, 4, 16, anchors).transpose(2, 1).softmax(1)
        distances = torch.nn.functional.conv2d(shares, self.bins.view(1, 16, 1, 1)).view(batch, 4, anchors)
        start, end = distances.chunk(2, 1)
        return torch.cat([end - start, end + start, classes.sigmoid()], 1)


def test_a_detector_whose_views_hold_a_batch_of_1_gets_any(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    module = Detector().eval()
    model = dovetail.load(as_ir(module, [1, 3, 16, 16], tmp_path / "model.xml"))
    new = dovetail.rebatch(model, {"0": "batch"})
    dovetail.save(new, tmp_path / "new.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "new.onnx", providers=["CPUExecutionProvider"])
    for batch in (5, 1):
        x = torch.randn(batch, 3, 16, 16)
        want = torch.cat([module(x[row : row + 1]) for row in range(batch)]).detach().numpy()
        found = {
            "openvino": by_openvino(new, x.numpy(), tmp_path / "new.xml"),
            "onnxruntime": session.run(None, {new.inputs[0].name: x.numpy()})[0],
            "here": dovetail.run(new, [x.numpy()])[0],
        }
        for name, y in found.items():
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4, err_msg=name)


def network(path: Path, nodes: list[Any], inputs: dict[str, Any], output: Any, tensors: dict[str, Any] | None = None) -> Path:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    constants = [numpy_helper.from_array(data, name) for name, data in (tensors or {}).items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    graph = helper.make_graph(nodes, "g", ports, [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)
    return path


def test_the_open_batches_of_tf2onnx_become_one(tmp_path: Path) -> None:
    """It names the batch of every input anew: unk__1, unk__2."""
    nodes = [helper.make_node("Concat", ["a", "b"], ["y"], axis=1)]
    path = network(tmp_path / "model.onnx", nodes, {"a": ["unk__1", 3], "b": ["unk__2", 3]}, ["unk__3", 6])
    for size, shown in (("batch", "batch"), (4, "4")):
        new = dovetail.rebatch(dovetail.load(path), {"0": size})
        assert [str(x.type) for x in new.inputs] == [f"f32[{shown}, 3]"] * 2
        assert str(new.outputs[0].type) == f"f32[{shown}, 6]"


def test_fixed_sizes_that_differ_are_still_no_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("Concat", ["a", "b"], ["y"], axis=0)]
    path = network(tmp_path / "model.onnx", nodes, {"a": [1, 3], "b": [2, 3]}, [3, 3])
    with pytest.raises(dovetail.RuleError, match="one size in all inputs"):
        dovetail.rebatch(dovetail.load(path), {"0": "batch"})


@pytest.mark.parametrize("pooled", [True, False])
def test_a_refused_axis_of_an_image_has_a_hint(pooled: bool, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool" if pooled else "Relu", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    matrix = np.ones((4 if pooled else 4 * 64, 2), np.float32)
    path = network(tmp_path / "model.onnx", nodes, {"x": [1, 3, 16, 16]}, [1, 2], {"w": weights, "m": matrix})
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.rebatch(dovetail.load(path), {"x.2": "H"})
    text = str(caught.value)
    assert "--shape x=1,3,H,16" in text and ("and works" if pooled else "is refused too") in text
    if pooled:
        assert str(dovetail.rebatch(dovetail.load(path), shapes={"x": [1, 3, "H", 16]}).inputs[0].type) == "f32[1, 3, H, 16]"
