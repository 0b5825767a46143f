"""Operators written for another opset: GridSample of volumes, Clip with one bound, Softmax that flattens, Upsample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, load

import dovetail
from report_routes import FLOAT, INT64, proto_of, run_onnxruntime, run_openvino

X = np.float32([[np.inf, -np.inf, 1, 3, np.nan]])


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("inputs", [["x", "a"], ["x", "", "a"], ["x"], ["x", "a", "a"]])
def test_clip_with_one_bound_clips_infinities(inputs: list[str], is_constant: bool, tmp_path: Path) -> None:
    """A bound left out is the least or greatest finite number, also before opset 11."""
    bound = np.array(2, np.float32)
    has_bound = "a" in inputs and not is_constant
    model = proto_of(
        [helper.make_node("Clip", inputs, ["y"])],
        [("x", FLOAT, ["n", 5]), *([("a", FLOAT, [])] if has_bound else [])],
        [("y", FLOAT, ["n", 5])],
        {"a": bound} if is_constant and "a" in inputs else {},
        opset=13,
    )
    feeds = {"x": X} | ({"a": bound} if has_bound else {})
    expected = run_onnxruntime(model, feeds)["y"]
    for opset in (7, 8, 9, 10, 12):
        if opset == 7 and has_bound:
            continue
        dovetail.save(dovetail.load(model), tmp_path / "model.onnx", opset=opset)
        np.testing.assert_array_equal(run_onnxruntime(tmp_path / "model.onnx", feeds)["y"], expected, str(opset))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [16, 19])
def test_grid_sample_of_volumes_before_opset_20(mode: str, opset: int, tmp_path: Path) -> None:
    """GridSample-16 takes pictures only; a volume is written by other operators."""
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, 2, 3, 4, 5), np.float32),
        "g": rng.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype(np.float32),
    }
    model = proto_of(
        [helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode)],
        [("x", FLOAT, [1, 2, "d", "h", "w"]), ("g", FLOAT, [1, "a", "b", "c", 3])],
        [("y", FLOAT, None)],
        opset=20,
    )
    expected = run_onnxruntime(model, feeds)["y"]
    dovetail.save(dovetail.load(model), tmp_path / "model.onnx", opset=opset)
    assert "GridSample" not in {node.op_type for node in load(tmp_path / "model.onnx").graph.node}
    np.testing.assert_allclose(run_onnxruntime(tmp_path / "model.onnx", feeds)["y"], expected, atol=1e-5)


def test_grid_sample_of_pictures_stays_one_node(tmp_path: Path) -> None:
    model = proto_of(
        [helper.make_node("GridSample", ["x", "g"], ["y"])],
        [("x", FLOAT, [1, 2, "h", "w"]), ("g", FLOAT, [1, "a", "b", 2])],
        [("y", FLOAT, None)],
        opset=20,
    )
    dovetail.save(dovetail.load(model), tmp_path / "model.onnx", opset=16)
    assert [node.op_type for node in load(tmp_path / "model.onnx").graph.node] == ["GridSample"]


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("sizes", [["a", "b", "c"], ["a", 3, 4], None])
def test_softmax_before_13_upwards(kind: str, axis: int, sizes: Any, tmp_path: Path) -> None:
    """It flattens; newer opsets say so by Reshape, also where sizes or the rank are open."""
    x = np.random.default_rng(0).random((2, 3, 4), np.float32)
    feeds: dict[str, Any] = {"x": x} if sizes else {"x": x.reshape(-1), "s": np.array(x.shape)}
    nodes = [helper.make_node(kind, ["x" if sizes else "z"], ["y"], axis=axis)]
    inputs: list[Any] = [("x", FLOAT, sizes)]
    if not sizes:
        nodes.insert(0, helper.make_node("Reshape", ["x", "s"], ["z"]))
        inputs = [("x", FLOAT, ["n"]), ("s", INT64, ["r"])]
    model = proto_of(nodes, inputs, [("y", FLOAT, None)], opset=11)
    expected = run_onnxruntime(model, feeds)["y"]
    for opset in (13, 17):
        dovetail.save(dovetail.load(model), tmp_path / "model.onnx", opset=opset)
        answer = run_onnxruntime(tmp_path / "model.onnx", feeds)["y"]
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)
    if sizes:
        dovetail.save(dovetail.load(model), tmp_path / "model.xml")
        np.testing.assert_allclose(run_openvino(tmp_path / "model.xml", feeds)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("sizes", [["n", 2, "h", "w"], [1, 2, 3, 4]])
def test_upsample_by_factors_of_the_run_upwards(mode: str, sizes: Any, tmp_path: Path) -> None:
    node = helper.make_node("Upsample", ["x", "s"], ["y"], mode=mode)
    model = proto_of([node], [("x", FLOAT, sizes), ("s", FLOAT, [4])], [("y", FLOAT, None)], opset=9)
    feeds = {"x": np.random.default_rng(0).random((1, 2, 3, 4), np.float32), "s": np.float32([1, 1, 2, 3])}
    expected = run_onnxruntime(model, feeds)["y"]
    for opset in (10, 11, 18, 21):
        dovetail.save(dovetail.load(model), tmp_path / "model.onnx", opset=opset)
        np.testing.assert_allclose(run_onnxruntime(tmp_path / "model.onnx", feeds)["y"], expected, atol=1e-6)
