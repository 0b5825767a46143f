"""Scalars written as [1], labels of Einsum of size 1, STFT of [batch, length], reductions of nothing, Pad that wraps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dovetail
from report_routes import FLOAT, INT64, proto_of, run_onnxruntime

X = np.float32([[-1, 0.5, 9]])
ENGINES = ("interpreter", "native")


def check(model: Any, feeds: dict[str, Any], tolerance: float = 0, code: str = "") -> None:
    """Compare both engines with onnxruntime; a deviation of ``code`` is reported, and refused by the strict reading."""
    expected = run_onnxruntime(model, feeds)["y"]
    for engine in ENGINES:
        np.testing.assert_allclose(dovetail.run(model, feeds, engine)["y"], expected, rtol=0, atol=tolerance, err_msg=engine)
    assert [item.code for item in dovetail.load(model).warnings] == ([code] if code else [])
    if code:
        with pytest.raises(dovetail.DovetailError):
            dovetail.load(model, strict=True)


@pytest.mark.parametrize("opset", [11, 12, 13, 21])
@pytest.mark.parametrize("is_constant", [True, False])
def test_bounds_of_clip_of_shape_1(opset: int, is_constant: bool) -> None:
    """The model zoo's mobilenetv2-12 and skl2onnx write them."""
    bounds = {"lo": np.float32([0]), "hi": np.float32([6])}
    inputs = [("x", FLOAT, ["b", 3]), *([] if is_constant else [("lo", FLOAT, [1]), ("hi", FLOAT, [1])])]
    node = helper.make_node("Clip", ["x", "lo", "hi"], ["y"])
    model = proto_of([node], inputs, [("y", FLOAT, ["b", 3])], bounds if is_constant else {}, opset=opset)
    feeds = {"x": X} if is_constant else {"x": X, **bounds}
    expected = run_onnxruntime(model, feeds)["y"]
    loaded = dovetail.load(model)
    assert [item.code for item in loaded.warnings] == ["shape.rank"] * 2
    for engine in ENGINES:
        np.testing.assert_array_equal(dovetail.run(model, feeds, engine)["y"], expected)


@pytest.mark.parametrize(("kind", "opset"), [("CumSum", 11), ("CumSum", 14), ("CumProd", 26)])
def test_an_axis_of_shape_1(kind: str, opset: int, tmp_path: Path) -> None:
    node = helper.make_node(kind, ["x", "a"], ["y"], reverse=1)
    model = proto_of([node], [("x", FLOAT, ["b", 3])], [("y", FLOAT, ["b", 3])], {"a": np.array([1])}, opset=opset)
    expected = np.cumsum(X[:, ::-1], 1)[:, ::-1] if kind == "CumSum" else np.cumprod(X[:, ::-1], 1)[:, ::-1]
    loaded = dovetail.load(model)
    assert [item.code for item in loaded.warnings] == ["shape.rank"]
    for engine in ENGINES:
        np.testing.assert_allclose(dovetail.run(loaded, {"x": X}, engine)["y"], expected, rtol=1e-6)
    # What is written has a scalar.
    dovetail.save(loaded, tmp_path / "model.onnx")
    assert dovetail.load(tmp_path / "model.onnx", strict=True).warnings == []


@pytest.mark.parametrize("sizes", [[(1, 3, 4), (5, 4, 2)], [("a", 3, 4), ("b", 4, 2)]])
def test_a_label_of_einsum_is_1_in_one_operand(sizes: list[Any], tmp_path: Path) -> None:
    """Both exporters of torch write it; torch, numpy and all runtimes broadcast it."""
    rng = np.random.default_rng(0)
    feeds = {"a": rng.random((1, 3, 4), np.float32), "b": rng.random((5, 4, 2), np.float32)}
    for equation in ("bij,bjk->bik", "bij,bjk->ik", "bij,bjk"):
        node = helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)
        model = proto_of([node], [("a", FLOAT, sizes[0]), ("b", FLOAT, sizes[1])], [("y", FLOAT, None)])
        check(model, feeds, 1e-5)
        dovetail.save(dovetail.load(model), tmp_path / "model.onnx")
        assert [item.op_type for item in nodes_of(tmp_path / "model.onnx")] == ["Einsum"]
        dovetail.save(dovetail.load(model), tmp_path / "model.xml")
        expected = run_onnxruntime(model, feeds)["y"]
        np.testing.assert_allclose(dovetail.run(tmp_path / "model.xml", feeds)["y"], expected, atol=1e-5)


def nodes_of(path: Path) -> Any:
    import onnx

    return onnx.load(path).graph.node


def test_labels_of_unequal_sizes_are_refused() -> None:
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation="ij,jk->ik")
    model = proto_of([node], [("a", FLOAT, [2, 3]), ("b", FLOAT, [4, 5])], [("y", FLOAT, None)])
    with pytest.raises(dovetail.RuleError):
        dovetail.load(model, strict=True)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("sizes", [["b", "t"], [2, 232]])
def test_stft_of_a_signal_of_rank_2(onesided: int, sizes: list[Any], tmp_path: Path) -> None:
    """torch's TorchScript exporter and Kokoro-82M write it."""
    feeds = {"x": np.random.default_rng(0).random((2, 232), np.float32)}
    constants = {"s": np.array(8), "w": np.hanning(32).astype(np.float32)}
    node = helper.make_node("STFT", ["x", "s", "w"], ["y"], onesided=onesided)
    model = proto_of([node], [("x", FLOAT, sizes)], [("y", FLOAT, None)], constants)
    check(model, feeds, 1e-4, "shape.rank")
    expected = run_onnxruntime(model, feeds)["y"]
    for name in ("model.onnx", "model.xml"):
        dovetail.save(dovetail.load(model), tmp_path / name)
        np.testing.assert_allclose(dovetail.run(tmp_path / name, feeds)["y"], expected, atol=1e-4)


def test_stft_of_a_signal_whose_rank_the_run_decides(tmp_path: Path) -> None:
    signal = np.random.default_rng(0).random((2, 64), np.float32)
    nodes = [helper.make_node("Reshape", ["x", "r"], ["z"]), helper.make_node("STFT", ["z", "s", "w"], ["y"])]
    constants = {"s": np.array(8), "w": np.hanning(32).astype(np.float32)}
    model = proto_of(nodes, [("x", FLOAT, ["n"]), ("r", INT64, ["k"])], [("y", FLOAT, None)], constants)
    for shape in ([2, 64], [2, 64, 1]):
        feeds = {"x": signal.reshape(-1), "r": np.array(shape)}
        expected = run_onnxruntime(model, feeds)["y"]
        np.testing.assert_allclose(dovetail.run(model, feeds)["y"], expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum"])
@pytest.mark.parametrize("sizes", [["a", "b"], [1, 3], None])
def test_reductions_of_no_axes_downwards(kind: str, sizes: Any, tmp_path: Path) -> None:
    """With noop_with_empty_axes each element is reduced alone, also before the attribute existed."""
    feeds = {"x": np.abs(X)}
    for keepdims in (0, 1):
        node = helper.make_node(kind, ["x"], ["y"], noop_with_empty_axes=1, keepdims=keepdims)
        model = dovetail.load(proto_of([node], [("x", FLOAT, sizes)], [("y", FLOAT, None)], opset=18))
        expected = dovetail.run(model, feeds)["y"]
        assert expected.shape == X.shape
        for opset in (7, 11, 13):
            dovetail.save(model, tmp_path / "model.onnx", opset=opset)
            np.testing.assert_allclose(run_onnxruntime(tmp_path / "model.onnx", feeds)["y"], expected, rtol=1e-6)


@pytest.mark.parametrize("pads", [[1, 2, 0, 3], [-1, 2, 7, -2], [0, -2, 0, 4]])
@pytest.mark.parametrize("sizes", [["a", "b"], [2, 5]])
@pytest.mark.parametrize("is_constant", [True, False])
def test_pad_that_wraps_before_opset_19(pads: list[int], sizes: list[Any], is_constant: bool, tmp_path: Path) -> None:
    x, p = np.arange(10, dtype=np.float32).reshape(2, 5), np.array(pads)
    inputs = [("x", FLOAT, sizes), *([] if is_constant else [("p", INT64, [4])])]
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap")
    model = proto_of([node], inputs, [("y", FLOAT, None)], {"p": p} if is_constant else {}, opset=19)
    feeds = {"x": x} if is_constant else {"x": x, "p": p}
    expected = run_onnxruntime(model, feeds)["y"]
    for opset in (11, 18):
        dovetail.save(dovetail.load(model), tmp_path / "model.onnx", opset=opset)
        np.testing.assert_array_equal(run_onnxruntime(tmp_path / "model.onnx", feeds)["y"], expected)
