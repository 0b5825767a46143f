"""Operators written for another opset: GridSample of volumes, Clip with one bound, Softmax that flattens, Upsample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
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


def narrow_weights(*kinds: str) -> dovetail.Model:
    b = dovetail.Builder("m")
    y = b.input("x", "f32", ("n", 2))
    for index, kind in enumerate(kinds):
        y = b.Multiply(y, b.Cast(b.constant(np.ones((1, 2)), kind, name=f"w{index}"), to=dovetail.ir.dtypes.f32))
    b.output("y", y)
    return b.model


@pytest.mark.parametrize(
    ("kinds", "lowest"), [(("f8e4m3", "f8e8m0"), 24), (("f4e2m1", "f8e4m3"), 23), (("f8e4m3", "f8e5m2"), 21)]
)
def test_weights_of_narrow_floats_choose_the_lowest_opset_that_has_them(
    kinds: tuple[str, ...], lowest: int, tmp_path: Path
) -> None:
    """By default the lowest opset that can express the model; a refusal names one that works for all of its nodes."""
    model, path = narrow_weights(*kinds), tmp_path / "model.onnx"
    dovetail.save(model, path)
    onnx.checker.check_model(path, full_check=True)
    written = {item.domain: item.version for item in load(path).opset_import}[""]
    assert written == lowest
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.save(model, path, opset=17)
    hint = int(str(caught.value).splitlines()[0].rpartition("opset ")[2].split()[0])
    dovetail.save(model, path, opset=hint)
    x = np.float32([[1, 2]])
    np.testing.assert_array_equal(dovetail.run(path, {"x": x})["y"], x)


@pytest.mark.parametrize("opset", [None, 24])
def test_microscaled_weights_of_ir_run_in_onnxruntime(opset: int | None, tmp_path: Path) -> None:
    """f8e4m3 in blocks of 32 with one f8e8m0 scale each, as OpenVINO's compressed models store them."""
    openvino = pytest.importorskip("openvino")
    from openvino import opset13 as ops

    rng = np.random.default_rng(0)
    x = ops.parameter(openvino.PartialShape([-1, 64]), np.float32, "x")
    x.output(0).set_names({"x"})
    numbers = [float(number) for number in rng.integers(-4, 5, 512)]
    powers = [2.0 ** int(number) for number in rng.integers(-3, 2, 16)]
    weights = openvino.op.Constant(openvino.Type.f8e4m3, openvino.Shape([2, 32, 8]), numbers)
    scales = openvino.op.Constant(openvino.Type.f8e8m0, openvino.Shape([2, 1, 8]), powers)
    wide = ops.multiply(ops.convert(weights, "f32"), ops.convert(scales, "f32"))
    y = ops.matmul(x, ops.reshape(wide, np.array([64, 8]), False), False, False)
    y.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([y], [x], "m"), tmp_path / "m.xml", compress_to_fp16=False)
    feeds = {"x": rng.standard_normal((3, 64), np.float32)}
    path = tmp_path / "model.onnx"
    dovetail.save(dovetail.load(tmp_path / "m.xml"), path, opset=opset)
    onnx.checker.check_model(path, full_check=True)
    expected = run_openvino(tmp_path / "m.xml", feeds)["y"]
    np.testing.assert_allclose(run_onnxruntime(path, feeds)["y"], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("opset", [21, 23, 24, 25, 26])
def test_dynamically_quantized_products_upwards(opset: int, tmp_path: Path) -> None:
    """The written file passes onnx.checker, and onnxruntime gives the same bits."""
    rng = np.random.default_rng(0)
    product = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s", "z"], ["a"], domain="com.microsoft")
    layer = helper.make_node(
        "DynamicQuantizeLSTM", ["t", "lw", "lr", "lb", "", "", "", "", "ls", "lz", "ls", "lz"], ["y"], "", "", "com.microsoft",
        hidden_size=8,
    )  # fmt: skip
    constants = {
        "w": rng.integers(-100, 100, (4, 4)).astype(np.int8),
        "s": np.float32(0.02),
        "z": np.int8(0),
        "axes": np.array([1]),
        "lw": rng.integers(0, 255, (1, 4, 32)).astype(np.uint8),
        "lr": rng.integers(0, 255, (1, 8, 32)).astype(np.uint8),
        "lb": np.zeros((1, 64), np.float32),
        "ls": np.float32([0.01]),
        "lz": np.uint8([128]),
    }
    nodes = [product, helper.make_node("Unsqueeze", ["a", "axes"], ["t"]), layer]
    model = proto_of(nodes, [("x", FLOAT, [3, 4])], [("y", FLOAT, None)], constants, opset=20, com_microsoft=1)
    feeds = {"x": rng.standard_normal((3, 4)).astype(np.float32)}
    path = tmp_path / "model.onnx"
    dovetail.save(dovetail.load(model), path, opset=opset)
    onnx.checker.check_model(path, full_check=True)
    np.testing.assert_array_equal(run_onnxruntime(path, feeds)["y"], run_onnxruntime(model, feeds)["y"])
