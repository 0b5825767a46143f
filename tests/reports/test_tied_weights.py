"""Weights that an embedding and the last product share are stored once in every file that is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from report_routes import run_onnxruntime, run_openvino

SIZE, WIDTH = 500, 64


def tied_ir(folder: Path, element_type: str) -> Path:
    import openvino
    import openvino.opset13 as ops

    ids = ops.parameter(openvino.PartialShape([-1, 3]), np.int64, name="ids")
    ids.output(0).set_names({"ids"})
    weights = ops.constant(np.random.default_rng(0).standard_normal((SIZE, WIDTH)).astype(np.float32))
    y = ops.matmul(ops.gather(weights, ids, ops.constant(0)), weights, False, True)
    y.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([y], [ids], "m"), folder / "tied.xml", compress_to_fp16=element_type == "f16")
    return folder / "tied.xml"


def big_tensors(path: Path) -> list[Any]:
    tensors = onnx.load(path).graph.initializer
    return [tensor for tensor in tensors if np.prod(tensor.dims) >= SIZE * WIDTH]


@pytest.mark.parametrize("element_type", ["f32", "f16"])
@pytest.mark.parametrize("opset", [None, 11, 21])
def test_tied_weights_of_ir_to_onnx(element_type: str, opset: int | None, tmp_path: Path) -> None:
    source = tied_ir(tmp_path, element_type)
    feeds = {"ids": np.array([[1, 2, 499]])}
    expected = run_openvino(source, feeds)["y"]
    dovetail.save(dovetail.load(source), tmp_path / "model.onnx", opset=opset)
    assert len(big_tensors(tmp_path / "model.onnx")) == 1
    np.testing.assert_allclose(run_onnxruntime(tmp_path / "model.onnx", feeds)["y"], expected, atol=1e-4)
    # And once more through ONNX.
    dovetail.save(dovetail.load(tmp_path / "model.onnx"), tmp_path / "again.onnx")
    assert len(big_tensors(tmp_path / "again.onnx")) == 1
    dovetail.save(dovetail.load(tmp_path / "again.onnx"), tmp_path / "again.xml")
    weights = SIZE * WIDTH * (2 if element_type == "f16" else 4)
    assert (tmp_path / "again.bin").stat().st_size < 1.5 * weights
    np.testing.assert_allclose(run_openvino(tmp_path / "again.xml", feeds)["y"], expected, atol=1e-4)


def test_weights_of_one_reader_are_transposed_at_once(tmp_path: Path) -> None:
    b = dovetail.Builder("m")
    x = b.input("x", "f32", ("n", WIDTH))
    b.output("y", b.MatMul(x, b.constant(np.ones((SIZE, WIDTH), np.float32), name="w"), transpose_b=True))
    dovetail.save(b.model, tmp_path / "model.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node] == ["MatMul"]
