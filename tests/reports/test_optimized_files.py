"""Files that onnxruntime's own optimizer saves: FusedConv, FusedGemm, FusedMatMul, and convolutions over channels in blocks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail
from dovetail.ir.host import native_core
from report_routes import FLOAT, proto_of, run_onnxruntime, run_openvino

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def network(channels: int) -> onnx.ModelProto:
    """Return a network of which the optimizer makes fused and blocked operators; not all of its operators have a blocked form."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1] * 4),
        node("Add", ["c2", "r1"], ["s"]),
        node("Relu", ["s"], ["r2"]),
        node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Conv", ["p", "w3"], ["c3"], group=channels, pads=[1] * 4),
        node("Clip", ["c3", "lo", "hi"], ["r3"]),
        node("AveragePool", ["r3"], ["a"], kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
        node("Conv", ["a", "w4", "b4"], ["c4"]),
        node("Sigmoid", ["c4"], ["g"]),
        node("Mul", ["c4", "g"], ["m"]),
        node("Resize", ["m", "", "f"], ["u"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Concat", ["u", "u"], ["t"], axis=1),
        node("GlobalAveragePool", ["t"], ["v"]),
        node("Flatten", ["v"], ["z"]),
        node("Gemm", ["z", "w5", "b5"], ["q"], transB=1),
        node("LeakyRelu", ["q"], ["y"], alpha=0.3),
    ]
    weights = {
        "w1": normal(channels, 3, 3, 3),
        "b1": normal(channels),
        "w2": normal(channels, channels, 3, 3) / 9,
        "b2": normal(channels),
        "w3": normal(channels, 1, 3, 3),
        "lo": np.float32(-1),
        "hi": np.float32(1),
        "w4": normal(2 * channels, channels, 1, 1) / 5,
        "b4": normal(2 * channels),
        "f": np.float32([1, 1, 2, 2]),
        "w5": normal(5, 4 * channels),
        "b5": normal(5),
    }
    return proto_of(nodes, [("x", FLOAT, ["n", 3, 9, 10])], [("y", FLOAT, None), ("m", FLOAT, None)], weights)


def optimize(model: onnx.ModelProto, level: str, path: Path) -> set[tuple[str, str]]:
    """Save what the optimizer makes of ``model``, and return its operators."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath, options.log_severity_level = str(path), 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {(node.domain, node.op_type) for node in onnx.load(path).graph.node}


@pytest.mark.skipif(not native_core.is_compiled, reason="without the core the block of the processor is not known")
@pytest.mark.parametrize("channels", [16, 24, 40])
@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_a_file_that_the_optimizer_saved(channels: int, level: str, tmp_path: Path) -> None:
    model, path = network(channels), tmp_path / "optimized.onnx"
    kinds = optimize(model, level, path)
    assert ("com.microsoft", "FusedGemm") in kinds
    assert ("com.microsoft.nchwc" if level == "ORT_ENABLE_ALL" else "com.microsoft") in {
        domain for domain, kind in kinds if "Conv" in kind
    }
    feeds = {"x": normal(2, 3, 9, 10)}
    expected = run_onnxruntime(model, feeds)
    for engine in ("interpreter", "native"):
        answers = dovetail.run(path, feeds, engine)
        for name, y in expected.items():
            np.testing.assert_allclose(answers[name], y, atol=1e-4, err_msg=f"{engine} {name}")
    for name, run in (("again.onnx", run_onnxruntime), ("again.xml", run_openvino)):
        dovetail.save(dovetail.load(path), tmp_path / name)
        answers = run(tmp_path / name, feeds)
        for key, y in expected.items():
            np.testing.assert_allclose(answers[key], y, atol=1e-4, err_msg=name)


def blocked_pair(block: int, channels: int, outputs: int) -> tuple[onnx.ModelProto, Any, Any]:
    """Return a blocked convolution of kernel 1, its weights as a matrix and its bias."""
    weights, bias = normal(outputs, channels), normal(outputs)
    width, height = -(-channels // block) * block, -(-outputs // block) * block
    padded = np.zeros((height, width), np.float32)
    padded[:outputs, :channels] = weights
    blocks = padded.reshape(height // block, block, width // block, block).transpose(0, 2, 3, 1).reshape(height, width, 1, 1)
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], domain="com.microsoft.nchwc"),
        helper.make_node("Conv", ["a", "w", "b"], ["c"], domain="com.microsoft.nchwc"),
        helper.make_node("ReorderOutput", ["c"], ["y"], domain="com.microsoft.nchwc", channels=outputs),
    ]
    constants = {"w": np.ascontiguousarray(blocks), "b": np.pad(bias, (0, height - outputs))}
    inputs = [("x", FLOAT, ["n", channels, 2, 3])]
    return proto_of(nodes, inputs, [("y", FLOAT, None)], constants, com_microsoft_nchwc=1), weights, bias


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize(("channels", "outputs"), [(24, 8), (24, 40), (16, 4), (32, 24), (20, 8)])
def test_blocks_of_another_processor(block: int, channels: int, outputs: int) -> None:
    """The number of channels in a block follows from the sizes of the file."""
    model, weights, bias = blocked_pair(block, channels, outputs)
    x = normal(2, channels, 2, 3)
    expected = np.einsum("oc,nchw->nohw", weights, x) + bias[:, None, None]
    loaded = dovetail.load(model)
    assert loaded.warnings == []
    np.testing.assert_allclose(dovetail.run(loaded, {"x": x})["y"], expected, atol=1e-4)


@pytest.mark.skipif(not native_core.is_compiled, reason="without the core the block of the processor is not known")
def test_an_unknown_nchwc_block_size_is_a_warning() -> None:
    model, _, _ = blocked_pair(16, 32, 16)
    assert [item.code for item in dovetail.load(model).warnings] == ["nchwc.block"]


ACTIVATIONS = {
    "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Softplus": {}, "Softsign": {},
    "LeakyRelu": {"alpha": 0.2}, "Elu": {"alpha": 0.7}, "Celu": {"alpha": 0.5}, "ThresholdedRelu": {"alpha": 0.5},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "Selu": {"alpha": 1.1, "gamma": 1.2},
}  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gemm_with_an_activation(activation: str) -> None:
    parameters = {f"activation_{name}": value for name, value in ACTIVATIONS[activation].items()}
    node = helper.make_node("FusedGemm", ["a", "b", "c"], ["y"], domain="com.microsoft", activation=activation, **parameters)
    inputs = [("a", FLOAT, ["n", 4]), ("b", FLOAT, [4, 5]), ("c", FLOAT, [5])]
    model = proto_of([node], inputs, [("y", FLOAT, None)], com_microsoft=1)
    feeds = {"a": normal(3, 4), "b": normal(4, 5), "c": normal(5)}
    np.testing.assert_allclose(dovetail.run(model, feeds)["y"], run_onnxruntime(model, feeds)["y"], atol=1e-5)


@pytest.mark.parametrize("has_addend", [True, False])
@pytest.mark.parametrize(
    ("activation", "params"),
    [("", []), ("Relu", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4])],
)
def test_conv_with_an_activation_and_an_addend(activation: str, params: list[float], has_addend: bool, tmp_path: Path) -> None:
    attributes = ({"activation": activation} if activation else {}) | ({"activation_params": params} if params else {})
    names = ["x", "w", "b", *(["z"] if has_addend else [])]
    node = helper.make_node("FusedConv", names, ["y"], domain="com.microsoft", pads=[1] * 4, **attributes)
    inputs = [("x", FLOAT, ["n", 3, 5, 5]), *([("z", FLOAT, ["n", 4, 5, 5])] if has_addend else [])]
    model = proto_of([node], inputs, [("y", FLOAT, None)], {"w": normal(4, 3, 3, 3), "b": normal(4)}, com_microsoft=1)
    feeds = {"x": normal(2, 3, 5, 5)} | ({"z": normal(2, 4, 5, 5)} if has_addend else {})
    expected = run_onnxruntime(model, feeds)["y"]
    np.testing.assert_allclose(dovetail.run(model, feeds)["y"], expected, atol=1e-5)
    dovetail.save(dovetail.load(model), tmp_path / "model.xml")
    np.testing.assert_allclose(run_openvino(tmp_path / "model.xml", feeds)["y"], expected, atol=1e-5)


def test_activation_params_that_do_not_fit_are_refused() -> None:
    node = helper.make_node("FusedConv", ["x", "w"], ["y"], domain="com.microsoft", activation="LeakyRelu")
    model = proto_of([node], [("x", FLOAT, ["n", 3, 5, 5])], [("y", FLOAT, None)], {"w": normal(4, 3, 3, 3)}, com_microsoft=1)
    with pytest.raises(dovetail.DovetailError, match="must be 1 numbers, got 0"):
        dovetail.load(model, strict=True)


@pytest.mark.parametrize(("transposed", "batch"), list(itertools.product([(0, 0), (1, 0), (0, 1), (1, 1)], repeat=2)))
def test_product_of_transposed_batches(transposed: tuple[int, int], batch: tuple[int, int], tmp_path: Path) -> None:
    """transBatchA and transBatchB: the first axis stands behind those of the batch."""
    shapes = []
    for shape, is_transposed, is_moved in zip(([2, 5, 4, 3], [2, 5, 3, 6]), transposed, batch, strict=True):
        swapped = [*shape[:2], shape[3], shape[2]] if is_transposed else shape
        shapes.append([swapped[2], *swapped[:2], swapped[3]] if is_moved else swapped)
    flags = dict(zip(("transA", "transB", "transBatchA", "transBatchB"), (*transposed, *batch), strict=True))
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=0.5, **flags)
    model = proto_of([node], [("a", FLOAT, shapes[0]), ("b", FLOAT, shapes[1])], [("y", FLOAT, None)], com_microsoft=1)
    feeds = {"a": normal(*shapes[0]), "b": normal(*shapes[1])}
    expected = run_onnxruntime(model, feeds)["y"]
    np.testing.assert_allclose(dovetail.run(model, feeds)["y"], expected, atol=1e-5)


def test_max_pool_of_channels_that_are_last() -> None:
    from onnx import TensorProto

    node = helper.make_node("NhwcMaxPool", ["x"], ["y"], domain="com.microsoft", kernel_shape=[2, 2], strides=[2, 1])
    io = [("x", TensorProto.UINT8, ["n", 5, 6, 3])], [("y", TensorProto.UINT8, None)]
    model = proto_of([node], *io, com_microsoft=1)
    feeds = {"x": RANDOM.integers(0, 255, (2, 5, 6, 3), np.uint8)}
    np.testing.assert_array_equal(dovetail.run(model, feeds)["y"], run_onnxruntime(model, feeds)["y"])
