"""Operators that other tools compute otherwise than torch and numpy: pools, samples, transforms, layers, gradients, integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail
from report_routes import FLOAT, INT64, assert_every_way, proto_of, run_onnxruntime

RANDOM = np.random.default_rng(0)
node = helper.make_node


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [10, 18, 19, 22])
@pytest.mark.parametrize(("kernel", "stride", "pad", "size"), [(3, 2, 1, 4), (2, 2, 1, 5), (7, 3, 3, 9)])
def test_average_pool_that_rounds_up_and_counts_padding(
    opset: int, kernel: int, stride: int, pad: int, size: int, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    x = normal(1, 2, size, size)
    expected = torch.nn.functional.avg_pool2d(torch.tensor(x), kernel, stride, pad, ceil_mode=True).numpy()
    attributes = {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [pad] * 4,
        "ceil_mode": 1,
        "count_include_pad": 1,
    }
    pool = node("AveragePool", ["x"], ["y"], **attributes)
    model = proto_of([pool], [("x", FLOAT, list(x.shape))], [("y", FLOAT, None)], opset=opset)
    assert_every_way(model, {"x": x}, {"y": expected}, tmp_path, tolerance=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_outside_of_the_image(mode: str, padding: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x, grid = normal(2, 3, 4, 5), (RANDOM.random((2, 3, 4, 2)) * 3 - 1.5).astype(np.float32)
    name = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    expected = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), name, padding, False).numpy()
    sample = node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding)
    inputs = [("x", FLOAT, [2, 3, "h", "w"]), ("g", FLOAT, [2, "p", "q", 2])]
    model = proto_of([sample], inputs, [("y", FLOAT, None)], opset=20)
    feeds = {"x": x, "g": grid}
    assert_every_way(model, feeds, {"y": expected}, tmp_path, tolerance=1e-4, opsets=(16,))


def test_inverse_transform_of_one_side(tmp_path: Path) -> None:
    x = normal(2, 5, 2)
    expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], n=9, axis=1)[..., None].astype(np.float32)
    transform = node("DFT", ["x", "n", "a"], ["y"], onesided=1, inverse=1)
    constants = {"a": np.array(1), "n": np.array(9)}
    model = proto_of([transform], [("x", FLOAT, ["b", 5, 2])], [("y", FLOAT, None)], constants, opset=20)
    assert_every_way(model, {"x": x}, {"y": expected}, tmp_path, tolerance=1e-4)


def test_transform_along_the_first_axis(tmp_path: Path) -> None:
    x = normal(10, 1)
    spectrum = np.fft.rfft(x[:, 0])
    expected = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    transform = node("DFT", ["x", "", "a"], ["y"], onesided=1)
    model = proto_of([transform], [("x", FLOAT, [10, 1])], [("y", FLOAT, None)], {"a": np.array(0)}, opset=20)
    assert_every_way(model, {"x": x}, {"y": expected}, tmp_path, tolerance=1e-4)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("sizes", [["b", "t", 4], [2, 5, 4]], ids=["open", "fixed"])
def test_layers_whose_batch_is_first(sizes: list[Any], kind: str, gates: int, tmp_path: Path) -> None:
    """layout=1, which runtimes refuse."""
    x, names = normal(5, 2, 4), ["y", "h", *(["c"] if kind == "LSTM" else [])]
    weights = {"w": normal(2, 3 * gates, 4), "r": normal(2, 3 * gates, 3), "b": normal(2, 6 * gates)}
    attributes: dict[str, Any] = {"hidden_size": 3, "direction": "bidirectional"}
    outputs = [(name, FLOAT, None) for name in names]
    plain = proto_of(
        [node(kind, ["x", "w", "r", "b"], names, **attributes)], [("x", FLOAT, [5, 2, 4])], outputs, weights, opset=14
    )
    answer = run_onnxruntime(plain, {"x": x})
    layer = node(kind, ["x", "w", "r", "b"], names, layout=1, **attributes)
    model = proto_of([layer], [("x", FLOAT, sizes)], outputs, weights, opset=14)
    expected = {name: y.transpose(2, 0, 1, 3) if name == "y" else y.swapaxes(0, 1) for name, y in answer.items()}
    assert_every_way(model, {"x": x.swapaxes(0, 1)}, expected, tmp_path, tolerance=1e-4, in_onnxruntime=False)


def test_the_k_of_topk_is_computed_from_a_shape(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["k1"]),
        node("Gather", ["k1", "zero"], ["k2"]),
        node("Min", ["k2", "cap"], ["k"]),
        node("TopK", ["x", "k"], ["v", "i"], axis=1),
    ]
    constants = {"one": np.array([1]), "zero": np.array([0]), "cap": np.array([3])}
    model = proto_of(nodes, [("x", FLOAT, ["b", "n"])], [("v", FLOAT, None), ("i", INT64, None)], constants)
    feeds = {"x": normal(2, 5)}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path)


@pytest.mark.parametrize("weight", [-128, -81, 127])
def test_sums_of_u8_by_i8_beyond_16_bits_are_exact(weight: int, tmp_path: Path) -> None:
    weights, x = np.full((3, 1), weight, np.int8), np.uint8([[210, 198, 234]])
    inputs, outputs = [("x", TensorProto.UINT8, ["b", 3])], [("y", TensorProto.INT32, None)]
    model = proto_of([node("MatMulInteger", ["x", "w"], ["y"])], inputs, outputs, {"w": weights}, opset=10)
    expected = (x.astype(np.int64) @ weights.astype(np.int64)).astype(np.int32)
    assert_every_way(model, {"x": x}, {"y": expected}, tmp_path)


GRADIENTS: dict[str, tuple[Any, dict[str, Any], tuple[int, ...]]] = {
    "Atan": (node("Atan", ["x"], ["y"]), {}, (2, 3)),
    "ReduceMin": (node("ReduceMin", ["x", "a"], ["y"]), {"a": np.array([1])}, (2, 3)),
    "Resize": (node("Resize", ["x", "", "s"], ["y"], mode="linear"), {"s": np.float32([1, 1, 2, 0.7])}, (1, 1, 4, 5)),
}


@pytest.mark.parametrize("kind", GRADIENTS)
def test_gradients_in_onnxruntime(kind: str, tmp_path: Path) -> None:
    operator, constants, shape = GRADIENTS[kind]
    model = dovetail.load(proto_of([operator], [("x", FLOAT, list(shape))], [("y", FLOAT, None)], constants, opset=18))
    x = normal(*shape)
    weights = normal(*dovetail.interpret(model, {"x": x})["y"].shape)

    def loss(x: Any) -> float:
        return float((dovetail.interpret(model, {"x": x})["y"].astype(np.float64) * weights).sum())

    slopes = np.zeros(shape)
    for index in np.ndindex(*shape):
        above, below = x.copy(), x.copy()
        above[index] += 1e-3
        below[index] -= 1e-3
        slopes[index] = (loss(above) - loss(below)) / (above[index] - below[index])
    dovetail.save(dovetail.grad(model), tmp_path / "gradient.onnx")
    answer = run_onnxruntime(tmp_path / "gradient.onnx", {"x": x, "grad:y": weights})
    np.testing.assert_allclose(list(answer.values())[1], slopes, atol=1e-2)


def joined(proto: Any, folder: Path) -> None:
    """Compare a batch of four with four runs of the model."""
    larger = dovetail.rebatch(dovetail.load(proto), {"0": "batch"})
    dovetail.save(larger, folder / "larger.onnx")
    parts = [normal(1, 3, 8) for _ in range(4)]
    expected = np.concatenate([run_onnxruntime(proto, {"x": part})["y"] for part in parts])
    answer = run_onnxruntime(folder / "larger.onnx", {"x": np.concatenate(parts)})["y"]
    np.testing.assert_allclose(answer, expected, atol=1e-5)


def test_a_batch_of_1_in_reshape_expand_and_constants_becomes_open(tmp_path: Path) -> None:
    nodes = [
        node("Expand", ["cls", "s2"], ["e"]),
        node("Concat", ["e", "x"], ["k"], axis=1),
        node("Reshape", ["k", "s3"], ["h"]),
        node("MatMul", ["h", "w"], ["p"]),
        node("Reshape", ["p", "s4"], ["y"]),
    ]
    shapes = {"s2": np.array([1, 1, 8]), "s3": np.array([4, 8]), "s4": np.array([1, 4, 6])}
    constants = {"cls": normal(1, 1, 8), "w": normal(8, 6), **shapes}
    joined(proto_of(nodes, [("x", FLOAT, [1, 3, 8])], [("y", FLOAT, [1, 4, 6])], constants), tmp_path)


def test_a_batch_of_1_in_states_of_a_layer_becomes_open(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("LSTM", ["t", "w", "r", "", "", "h0", "c0"], ["o"], hidden_size=4),
        node("Squeeze", ["o", "axes"], ["q"]),
        node("Transpose", ["q"], ["y"], perm=[1, 0, 2]),
    ]
    states = {name: np.zeros((1, 1, 4), np.float32) for name in ("h0", "c0")}
    constants = {"w": normal(1, 16, 8), "r": normal(1, 16, 4), "axes": np.array([1]), **states}
    joined(proto_of(nodes, [("x", FLOAT, [1, 3, 8])], [("y", FLOAT, None)], constants), tmp_path)
