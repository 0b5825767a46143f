"""quantize: weights in few bits, errors that are predicted, measured and within a budget; the peers run the written files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import dovetail
from dovetail import Builder, DovetailError, Model, QuantizeOptions, quantize
from dovetail.cli import dovetail as command
from dovetail.cli.quantize import Share
from dovetail.compare.verification.conversion import runner_for
from dovetail.passes.quantization.activations import Activation, grid_of_range
from dovetail.passes.quantization.codes import Grid, round_matrix
from dovetail.passes.quantization.encodings import pack_bits
from dovetail.passes.quantization.error_bounds import MAX_FACTOR, bound_error, student_quantile
from dovetail.passes.quantization.error_compensation import round_with_compensation
from dovetail.passes.quantization.report import PROPERTY, QuantizedNode, QuantizeReport, decode_report, encode_report
from dovetail.passes.quantization.selection import smallest_count
from dovetail.runtime.peers import Names, runner

RNG = np.random.default_rng(5)


def normal(*shape: int, scale: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def network(dims: tuple[int, ...] = (64, 96, 80, 33, 16), seed: int = 1, alpha: float = 0.75) -> Model:
    """Build Gemm and MatMul alternately, with Tanh between them and weights of various magnitudes."""
    rng = np.random.default_rng(seed)
    with Builder("mlp") as b:
        h = b.input("x", "f32", ("n", dims[0]))
        for index, (depth, width) in enumerate(pairwise(dims)):
            w = (rng.standard_normal((depth, width)) * rng.uniform(0.3, 2) / np.sqrt(depth)).astype(np.float32)
            if index % 2:
                h = b.MatMul(h, b.constant(w, name=f"w{index}"))
            else:
                bias = b.constant(np.linspace(-1, 1, width, dtype=np.float32), name=f"b{index}")
                h = b.Gemm(h, b.constant(w.T.copy(), name=f"w{index}"), bias, transpose_b=True, alpha=alpha, beta=0.5)
            if index < len(dims) - 2:
                h = b.Tanh(h)
        b.output("y", h)
    return b.model


def every_layer() -> Model:
    """Build a model with each kind of layer whose weights are rounded; sizes are odd or no multiple of a block."""
    with Builder("layers") as b:
        ids, image = b.input("ids", "i64", ("n", 5)), b.input("image", "f32", ("n", 6, 8, 8))
        h = b.MatMul(b.Gather(b.constant(normal(11, 41), name="table"), ids, axis=0), b.constant(normal(41, 37), name="odd"))
        b.output("tokens", b.MatMul(h, b.Transpose(b.constant(normal(19, 37), name="transposed"), [1, 0])))
        c = b.Conv(image, b.constant(normal(12, 6, 3, 3), name="conv"), b.constant(normal(12), name="conv_bias"))
        c = b.Conv(c, b.constant(normal(12, 1, 3, 3), name="depthwise"), group=12)
        c = b.GroupConv(c, b.constant(normal(3, 5, 4, 1, 1), name="groups"))
        b.output("pixels", b.ConvTranspose(c, b.constant(normal(15, 7, 2, 2), name="up"), strides=(2, 2)))
    return b.model


LAYER_INPUTS = {"ids": RNG.integers(0, 11, (3, 5)), "image": normal(3, 6, 8, 8)}

CHOICES = [
    ("int8", QuantizeOptions()), ("int8", QuantizeOptions(block_size=32)), ("int8", QuantizeOptions(64, False, "qdq")),
    ("int8", QuantizeOptions(encoding="ir")), ("int4", QuantizeOptions()), ("int4", QuantizeOptions(16, True)),
    ("int4", QuantizeOptions(32, False, "qdq")), ("int4", QuantizeOptions(32, True, "ir")), ("int4", QuantizeOptions(0, False)),
    ("f8", QuantizeOptions()), ("f8e5m2", QuantizeOptions(encoding="qdq")),
    ("f16", QuantizeOptions()), ("bf16", QuantizeOptions()),
]  # fmt: skip


ERRORS = {"int8": 0.03, "int4": 0.3, "f8": 0.08, "f8e5m2": 0.15, "f16": 1e-3, "bf16": 8e-3}


def relative(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


# Laws


@pytest.mark.parametrize(("to", "options"), CHOICES, ids=[f"{to}-{o.block_size}-{o.symmetric}-{o.encoding}" for to, o in CHOICES])
@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_the_runtime_of_a_written_file_gives_the_results_of_dovetail(
    to: str, options: QuantizeOptions, suffix: str, tmp_path: Path
) -> None:
    encoding = "ir" if suffix == "xml" and to not in ("f16", "bf16") else options.encoding
    for model, inputs in ((network(), {"x": normal(4, 64)}), (every_layer(), LAYER_INPUTS)):
        new = quantize(model, to, options=QuantizeOptions(options.block_size, options.symmetric, encoding, verify=False))
        dovetail.save(new, path := tmp_path / f"new.{suffix}")
        runner = runner_for(path)
        assert runner.name.split()[0] == {"onnx": "onnxruntime", "xml": "openvino"}[suffix]
        found, ours, original = runner.run(inputs), dovetail.run(path, inputs), dovetail.run(model, inputs)
        for name, expected in dict(dovetail.run(new, inputs)).items():
            assert relative(found[name], expected) < 1e-5
            np.testing.assert_allclose(ours[name], expected, rtol=1e-4, atol=1e-4)
            assert (
                0
                < relative(expected, original[name])
                < {"int8": 0.03, "int4": 0.3, "f8": 0.08, "f8e5m2": 0.15, "f16": 1e-3, "bf16": 8e-3}[to]
            )


@pytest.mark.parametrize(("to", "bits"), [("int8", 8), ("int4", 4)])
def test_openvino_keeps_the_weights_of_products_compressed(to: str, bits: int, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    dovetail.save(quantize(network((64, 128, 96), alpha=1), to, options=QuantizeOptions(encoding="ir")), tmp_path / "new.xml")
    compiled = openvino.Core().compile_model(str(tmp_path / "new.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    layers = [op for op in compiled.get_runtime_model().get_ordered_ops() if len(op.inputs()) > 2]
    assert len(layers) == 2
    assert all(op.inputs()[1].get_element_type().bitwidth == bits for op in layers)


def test_a_written_file_has_the_bytes_of_the_report(tmp_path: Path) -> None:
    model = network((256, 512, 256))
    for to in ("int8", "int4", "f16"):
        new = quantize(model, to, options=QuantizeOptions(verify=False))
        dovetail.save(new, tmp_path / "new.onnx")
        assert abs((tmp_path / "new.onnx").stat().st_size - new.report.bytes) < 5000
        assert new.report.bytes < model_bytes(model) / {"int8": 3.8, "int4": 6, "f16": 1.9}[to]


def model_bytes(model: Model) -> int:
    return sum(value.constant.nbytes for value in model.graph.values() if value.constant is not None)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("block", [0, 16, 64])
def test_no_element_moves_further_than_half_a_step_of_the_widest_range(bits: int, symmetric: bool, block: int) -> None:
    matrix = normal(9, 83)
    matrix[3] = 0
    matrix[4, 1] = 50
    codes = round_matrix(matrix, Grid(bits, block, symmetric))
    found = codes.matrix()
    assert np.all(codes.scales > 0 if block == 0 or not symmetric else codes.scales != 0) and np.all(found[3] == 0)
    assert codes.codes.min() >= codes.grid.low and codes.codes.max() <= codes.grid.high
    span = np.ptp(matrix, axis=1, keepdims=True) if not symmetric else 2 * np.abs(matrix).max(axis=1, keepdims=True)
    plain = span / (codes.grid.high - codes.grid.low) / 2
    assert np.all(np.linalg.norm(found - matrix, axis=1) <= np.sqrt(83) * plain[:, 0] * 1.2 + 1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("bits", "block", "share"), [(4, 0, 5e-4), (4, 32, 2e-3), (8, 0, 4e-3)])
def test_no_other_scales_for_the_same_codes_make_the_error_much_smaller(
    bits: int, block: int, share: float, symmetric: bool
) -> None:
    matrix = normal(64, 64)
    codes = round_matrix(matrix, Grid(bits, block, symmetric))
    numbers = (codes.codes - codes.zero_points.repeat(block or 64, axis=1)).reshape(-1, block or 64).astype(np.float64)
    blocks = matrix.reshape(numbers.shape)
    best = (numbers * blocks).sum(axis=1, keepdims=True) / (numbers**2).sum(axis=1, keepdims=True)
    assert np.linalg.norm(codes.matrix() - matrix) <= (1 + share) * np.linalg.norm(numbers * best - blocks)


def test_packed_codes_are_those_that_matmulnbits_unpacks() -> None:
    codes = RNG.integers(0, 16, (3, 7)).astype(np.uint8)
    packed = pack_bits(codes, 4)
    assert packed.shape == (3, 4)
    unpacked = np.stack([packed & 15, packed >> 4], axis=-1).reshape(3, 8)
    np.testing.assert_array_equal(unpacked[:, :7], codes)


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (4, 128), (8, 32)])
def test_the_error_is_no_larger_than_that_of_the_quantizer_of_onnxruntime(bits: int, block: int, tmp_path: Path) -> None:
    quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    pytest.importorskip("onnx_ir")
    rng = np.random.default_rng(bits + block)
    with Builder() as b:
        h = b.input("x", "f32", ("n", 128))
        for index in range(3):
            h = b.MatMul(h, b.constant((rng.standard_normal((128, 128)) / 11).astype(np.float32), name=f"w{index}"))
            h = b.Relu(h) if index < 2 else h
        b.output("y", h)
    dovetail.save(b.model, tmp_path / "model.onnx")
    x = rng.standard_normal((64, 128)).astype(np.float32)
    expected = dovetail.run(b.model, x)["y"]
    for symmetric in (True, False):
        theirs = quantizer.MatMulNBitsQuantizer(
            onnx.load(tmp_path / "model.onnx"), bits=bits, block_size=block, is_symmetric=symmetric, accuracy_level=1
        )
        theirs.process()
        theirs.model.save_model_to_file(str(tmp_path / "theirs.onnx"), False)
        ours = quantize(b.model, f"int{bits}", options=QuantizeOptions(block, symmetric, verify=False))
        dovetail.save(ours, tmp_path / "ours.onnx")
        assert (tmp_path / "ours.onnx").stat().st_size <= (tmp_path / "theirs.onnx").stat().st_size + 500
        errors = [relative(runner_for(tmp_path / f"{who}.onnx").run({"x": x})["y"], expected) for who in ("ours", "theirs")]
        # At 8 bits both choose almost the same codes, whose errors differ by chance.
        assert errors[0] <= errors[1] * (1 if bits == 4 else 1.01)


# Compensation of rounding errors


def correlated(rows: int, width: int, seed: int) -> Any:
    """Draw rows whose elements are correlated, as activations are; the mixing matrix does not depend on ``seed``."""
    mix = np.random.default_rng(11).standard_normal((width, width)) * np.exp(-np.arange(width) / (width / 6))[:, None]
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, width)) @ mix + 0.1 * rng.standard_normal((rows, width))).astype(np.float32)


def reference_gptq(matrix: Any, hessian: Any, scales: Any, damping: float) -> Any:
    """Round each row to multiples of its scale, column by column, updating the inverse Hessian as Optimal Brain Surgeon does."""
    work, depth = matrix.astype(np.float64), matrix.shape[1]
    inverse = np.linalg.inv(hessian + damping * np.mean(np.diag(hessian)) * np.eye(depth))
    rounded = np.zeros_like(work)
    for column in range(depth):
        rounded[:, column] = np.clip(np.rint(work[:, column] / scales), -8, 7) * scales
        error = (work[:, column] - rounded[:, column]) / inverse[column, column]
        work -= np.outer(error, inverse[column])
        inverse -= np.outer(inverse[:, column], inverse[column]) / inverse[column, column]
    return rounded


@pytest.mark.parametrize("depth", [20, 128, 200])
def test_compensated_codes_are_those_of_the_algorithm_without_blocks(depth: int) -> None:
    x = correlated(500, depth, 3).astype(np.float64)
    matrix, hessian = normal(6, depth), x.T @ x
    codes = round_with_compensation(matrix, hessian, Grid(4), 0.05)
    assert codes is not None
    expected = reference_gptq(matrix, hessian, codes.scales[:, 0].astype(np.float64), 0.05)
    # Elements that lie between two codes may be rounded otherwise in f32.
    assert np.mean(np.abs(codes.matrix() - expected) > 1e-4) < 0.02


@pytest.mark.parametrize(("to", "block"), [("int4", 32), ("int4", 128), ("int8", 0)])
def test_compensation_makes_the_error_smaller_on_correlated_rows_and_never_much_larger(to: str, block: int) -> None:
    model = network((128, 96, 64))
    expected = {}
    for name, rows, others in (
        ("correlated", correlated(256, 128, 1), correlated(256, 128, 2)),
        ("independent", normal(256, 128), normal(256, 128)),
    ):
        y = dovetail.run(model, others)["y"]
        for rounding in ("nearest", "gptq"):
            new = quantize(model, to, inputs={"x": rows}, options=QuantizeOptions(block, rounding=rounding))
            expected[name, rounding] = relative(dovetail.run(new, others)["y"], y)
            assert {node.rounding for node in new.report.nodes} <= {"nearest", rounding}
    assert expected["correlated", "gptq"] < 0.75 * expected["correlated", "nearest"]
    assert expected["independent", "gptq"] < 1.05 * expected["independent", "nearest"]


def test_rows_choose_compensation_and_its_absence_is_refused() -> None:
    report = quantize(network(), "int4", inputs={"x": correlated(64, 64, 1)}).report
    assert "gptq" in {node.rounding for node in report.nodes}
    assert {node.rounding for node in quantize(network(), "int4").report.nodes} == {"nearest"}
    for arguments in ({}, {"inputs": {"x": normal(8, 64)}, "options": QuantizeOptions(rounding="gptq", verify=False)}):
        options = {"options": QuantizeOptions(rounding="gptq"), **arguments}
        with pytest.raises(DovetailError, match=r"argument\.conflict.*gptq"):
            quantize(network(), "int4", **options)


def test_inputs_that_are_always_zero_do_not_stop_the_compensation() -> None:
    rows = correlated(64, 64, 1)
    rows[:, ::3] = 0
    report = quantize(network(), "int4", inputs={"x": rows}).report
    assert all(np.isfinite(node.measured) for node in report.nodes)
    zeros = quantize(network(), "int4", inputs={"x": np.zeros((64, 64), np.float32)}).report
    assert all(np.isfinite(node.measured) for node in zeros.nodes)


# Activations


METHODS = ("minmax", "percentile", "mse")


def image_network() -> Model:
    """Build convolutions with bias, Relu and a residual, and a classifier."""
    rng = np.random.default_rng(21)

    def weights(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    with Builder("images") as b:
        h = b.Relu(b.Conv(b.input("x", "f32", ("n", 3, 12, 12)), weights(16, 3, 3, 3), weights(16), pads=(1, 1, 1, 1)))
        c = b.Relu(b.Conv(h, weights(16, 1, 3, 3), weights(16), group=16, pads=(1, 1, 1, 1)))
        h = b.Relu(b.Add(b.Conv(c, weights(16, 16, 1, 1), weights(16)), h))
        h = b.Flatten(b.MaxPool(h, kernel_shape=(4, 4), strides=(4, 4)))
        b.output("y", b.Gemm(h, weights(10, 144), weights(10), transpose_b=True))
    return b.model


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
@pytest.mark.parametrize("method", METHODS)
def test_files_with_quantized_activations_run_in_the_runtimes(method: str, suffix: str, tmp_path: Path) -> None:
    model, rows, others = image_network(), normal(32, 3, 12, 12), normal(16, 3, 12, 12)
    encoding = "ir" if suffix == "xml" else None
    new = quantize(model, inputs={"x": rows}, options=QuantizeOptions(activations=method, encoding=encoding))
    assert {node.activation_bits for node in new.report.nodes} == {8}
    dovetail.save(new, path := tmp_path / f"new.{suffix}")
    y, expected = dovetail.run(path, others)["y"], dovetail.run(model, others)["y"]
    found = runner_for(path).run({"x": others})["y"]
    assert relative(y, expected) < 0.03
    # A code that lies between two others may be rounded either way, by a step of its tensor.
    assert relative(found, y) < 0.01 and abs(relative(found, expected) - relative(y, expected)) < 0.005


def test_openvino_computes_layers_with_quantized_activations_in_8_bits(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    new = quantize(
        image_network(), inputs={"x": normal(32, 3, 12, 12)}, options=QuantizeOptions(activations="minmax", encoding="ir")
    )
    dovetail.save(new, tmp_path / "new.xml")
    compiled = openvino.Core().compile_model(str(tmp_path / "new.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    types = [str(port.get_element_type()) for op in compiled.get_runtime_model().get_ordered_ops() for port in op.inputs()]
    assert any("uint8" in each for each in types) and any("'int8" in each for each in types)


def test_predicted_errors_include_those_of_activations() -> None:
    rows = {"x": normal(64, 4, 48)}
    nodes = quantize(mixed_network(), inputs=rows, options=QuantizeOptions(activations="minmax")).report.nodes
    predicted, measured = (np.array([getattr(node, name) for node in nodes]) for name in ("predicted", "measured"))
    assert np.corrcoef(predicted, measured)[0, 1] >= 0.9
    alone = np.array([node.measured for node in quantize(mixed_network(), inputs=rows).report.nodes])
    assert np.all(measured > alone)


def test_a_budget_holds_with_quantized_activations() -> None:
    model, others = mixed_network(), normal(64, 4, 48)
    new = quantize(model, inputs={"x": normal(64, 4, 48)}, budget=0.003, options=QuantizeOptions(activations="mse"))
    assert relative(dovetail.run(new, others)["y"], dovetail.run(model, others)["y"]) <= 0.003
    kept = [node for node in new.report.nodes if node.kept]
    assert 0 < len(kept) < 12 and all(node.activation_bits == 32 for node in kept)


def test_a_bias_in_front_of_quantized_activations_has_32_bits_with_the_scale_of_the_products() -> None:
    model, rows = image_network(), normal(32, 3, 12, 12)
    new = quantize(model, inputs={"x": rows}, options=QuantizeOptions(rounding="nearest", activations="minmax"))
    layers = [node for node in new.graph.nodes if type(node.op).__name__ in ("Conv", "GroupConv", "Gemm")]
    old = [node for node in model.graph.nodes if type(node.op).__name__ in ("Conv", "GroupConv", "Gemm")]
    for layer, before in zip(layers, old, strict=True):
        x, w, bias = (layer.input(index).node for index in range(3))
        assert bias.input(0).dtype == "i32"
        scales = x.input(1).constant * w.input(1).constant
        np.testing.assert_allclose(bias.input(1).constant, scales, rtol=1e-6)
        found = bias.input(0).constant * bias.input(1).constant
        assert np.all(np.abs(found - before.input(2).constant) <= scales)


def test_an_outlier_widens_the_range_of_minmax_only() -> None:
    rows = normal(600, 64)
    rows[3, 5] = 1000.0
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(normal(64, 32))))
    scales = {}
    for method in METHODS:
        new = quantize(b.model, inputs={"x": rows}, options=QuantizeOptions(activations=method))
        node = next(node for node in new.graph.nodes if type(node.op).__name__ == "QuantizeLinear")
        scales[method] = float(node.input(1).constant)
    assert scales["minmax"] > 3.5 and scales["percentile"] < 0.1 and scales["mse"] < scales["minmax"]


def test_activations_without_range_and_infinite_ones() -> None:
    assert grid_of_range(0, 0) == Activation((1.0,), (0,))
    assert grid_of_range(2, 3) == Activation((float(np.float32(3 / 255)),), (0,))
    assert grid_of_range(-3, -2) == Activation((float(np.float32(3 / 255)),), (255,))
    assert grid_of_range(0, np.inf) is None and grid_of_range(np.nan, 1) is None and grid_of_range(0, 1e-40) is None
    with Builder() as b:
        h = b.Log(b.Relu(b.input("x", "f32", ("n", 64))))
        b.output("y", b.MatMul(h, b.constant(normal(64, 32))))
    report = quantize(b.model, inputs={"x": normal(16, 64)}, options=QuantizeOptions(activations="mse")).report
    assert [node.activation_bits for node in report.nodes] == [32]


def test_the_error_is_no_larger_than_that_of_the_static_quantizer_of_onnxruntime(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    model, rows, others = image_network(), normal(64, 3, 12, 12), normal(64, 3, 12, 12)
    dovetail.save(model, source := tmp_path / "model.onnx")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        """Reader passes the rows once."""

        def __init__(self) -> None:
            self.items = iter([{"x": rows}])

        def get_next(self) -> Any:
            return next(self.items, None)

    quantization.quantize_static(
        source, tmp_path / "theirs.onnx", Reader(), per_channel=True, activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    expected = dovetail.run(model, others)["y"]
    theirs = relative(runner_for(tmp_path / "theirs.onnx").run({"x": others})["y"], expected)
    for method in METHODS:
        dovetail.save(quantize(model, inputs={"x": rows}, options=QuantizeOptions(activations=method)), tmp_path / "ours.onnx")
        # The file has the report, too.
        assert (tmp_path / "ours.onnx").stat().st_size < (tmp_path / "theirs.onnx").stat().st_size + 1500
        assert relative(runner_for(tmp_path / "ours.onnx").run({"x": others})["y"], expected) <= theirs


# Sensitivities and the budget


def mixed_network(layers: int = 12, width: int = 48) -> Model:
    """Build residual layers whose weights contribute very differently to the output."""
    rng = np.random.default_rng(7)
    with Builder() as b:
        h = b.input("x", "f32", ("n", 4, width))
        for index in range(layers):
            w = b.constant((rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32), name=f"w{index}")
            h = h + b.Tanh(b.MatMul(h, w)) * float(10 ** rng.uniform(-2, 0))
        b.output("y", b.Softmax(h, axis=-1))
    return b.model


@pytest.mark.parametrize("to", ["int8", "int4", "bf16"])
def test_predicted_errors_correlate_with_those_of_each_node_alone(to: str) -> None:
    rows = {"x": normal(64, 4, 48)}
    nodes = quantize(mixed_network(), to, inputs=rows).report.nodes
    predicted, measured = (np.array([getattr(node, name) for node in nodes]) for name in ("predicted", "measured"))
    assert np.corrcoef(predicted, measured)[0, 1] >= 0.9
    assert np.corrcoef(np.log(predicted), np.log(measured))[0, 1] >= 0.9


def test_the_measured_error_of_a_node_is_that_of_the_model_with_this_node_rounded() -> None:
    model, rows = mixed_network(4), normal(40, 4, 48)
    report = quantize(model, "int4", inputs={"x": rows}, options=QuantizeOptions(rounding="nearest")).report
    held_out = rows[-10:]
    expected = dovetail.run(model, held_out)["y"]
    for index, node in enumerate(report.nodes):
        w = model.values[f"w{index}"].constant
        rounded = round_matrix(w.T, Grid(4, 32, False)).matrix().T
        found = dovetail.run(model.with_constants({f"w{index}": np.ascontiguousarray(rounded)}), held_out)["y"]
        assert node.measured == pytest.approx(relative(found, expected), rel=1e-3)


@pytest.mark.parametrize("budget", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("to", ["int8", "int4"])
def test_a_budget_holds_on_rows_that_were_not_passed(budget: float, to: str) -> None:
    model = mixed_network()
    new = quantize(model, to, inputs={"x": normal(96, 4, 48)}, budget=budget)
    report = new.report
    others = normal(96, 4, 48)
    assert relative(dovetail.run(new, others)["y"], dovetail.run(model, others)["y"]) <= budget
    assert report.measured is not None and report.measured <= budget
    kept = [node for node in report.nodes if node.kept]
    assert all((node.kept, node.bits, node.bytes) == ("the budget", 32, node.bytes_before) for node in kept)
    constants = {value.name for value in new.graph.values() if value.constant is not None}
    assert {node.value for node in report.nodes if node.value in constants} == {node.value for node in kept}


@pytest.mark.parametrize("calls", [2, 4, 8, 16])
@pytest.mark.parametrize(("sigma", "share"), [((0.3, 0.5), 0.04), ((0.7, 0.5), 0.05), ((0.5, 2.0), 0.125)])
def test_the_bound_of_an_error_holds_for_as_many_other_calls(calls: int, sigma: tuple[float, float], share: float) -> None:
    rng = np.random.default_rng(calls)
    errors, others = np.exp(sigma[0] * rng.standard_normal((2, 2000, calls)))
    norms, other_norms = np.exp(sigma[1] * rng.standard_normal((2, 2000, calls)))
    bounds = np.array([bound_error(*pair) for pair in zip(errors.tolist(), norms.tolist(), strict=True)])
    found = np.sqrt(others.sum(axis=1) / other_norms.sum(axis=1))
    assert np.mean(found > bounds) <= share
    measured = np.sqrt(errors.sum(axis=1) / norms.sum(axis=1))
    assert np.all((bounds >= measured * (1 - 1e-12)) & (bounds <= MAX_FACTOR * measured * (1 + 1e-12)))


def test_errors_on_the_rows_of_the_calibration_count_in_the_bound() -> None:
    weights = np.full((64, 32), 0.4, np.float32)
    weights[:32] = 127
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(weights)))
    rows = np.ones((64, 64), np.float32)
    rows[:48, :32] = 0
    rows[48:] *= 1e-3
    report = quantize(b.model, inputs={"x": rows}, options=QuantizeOptions(rounding="nearest")).report
    assert report.measured is not None and report.upper is not None
    assert 0 < 4 * report.measured < 0.1 < report.upper


def test_bounds_of_few_calls_of_zeros_and_of_infinities() -> None:
    assert bound_error([4.0], [1.0]) == 2 * MAX_FACTOR
    assert bound_error([0.0, 0.0], [1.0, 1.0]) == 0 and bound_error([4.0, 0.0], [0.0, 0.0]) == 2 * MAX_FACTOR
    assert bound_error([float("inf"), 1.0], [1.0, 1.0]) == float("inf")
    assert bound_error([1e300, 2e300], [1e300, 1e300]) <= MAX_FACTOR * 1.5
    assert bound_error([4.0, 0.0], [1.0, 1.0]) == pytest.approx(np.sqrt(2) * MAX_FACTOR)
    assert bound_error([2.0] * 8, [8.0] * 8) == pytest.approx(0.5)


def test_quantiles_are_those_of_the_t_distribution() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (*range(1, 20), 50, 1000):
        assert student_quantile(0.975, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)


def test_budgets_hold_on_other_rows_in_the_stated_share_of_cases() -> None:
    outcomes = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        with Builder() as b:
            h = b.input("x", "f32", ("n", 32))
            for _ in range(6):
                w = b.constant((rng.standard_normal((32, 32)) / 6).astype(np.float32))
                h = h + b.Tanh(b.MatMul(h, w)) * float(10 ** rng.uniform(-1.5, 0))
            b.output("y", b.MatMul(h, b.constant(rng.standard_normal((32, 4)).astype(np.float32))))
        # Rows of various magnitudes have errors of various sizes.
        rows, others = (
            (rng.standard_normal((count, 32)) * np.exp(0.5 * rng.standard_normal((count, 1)))).astype(np.float32)
            for count in (32, 8)
        )
        budget = float(rng.uniform(0.01, 0.1))
        new = quantize(b.model, "int4", inputs={"x": rows}, budget=budget)
        error = relative(dovetail.run(new, others)["y"], dovetail.run(b.model, others)["y"].astype(np.float64))
        outcomes.append((error > budget, error > new.report.upper, bool(new.report.upper)))
        assert new.report.held_out == 8 and new.report.measured <= new.report.upper <= budget
    over_budget, over_bound, rounded = np.sum(outcomes, axis=0)
    assert over_budget <= over_bound <= 2 and rounded > 30


def test_a_larger_budget_keeps_fewer_nodes() -> None:
    model, rows = mixed_network(), {"x": normal(64, 4, 48)}
    kept = [sum(bool(node.kept) for node in quantize(model, "int4", inputs=rows, budget=budget).report.nodes)
            for budget in (0, 0.005, 0.05, 10)]  # fmt: skip
    assert kept == sorted(kept, reverse=True) and (kept[0], kept[-1]) == (12, 0) and len(set(kept)) > 2


def test_bisection_finds_the_smallest_count_from_any_guess() -> None:
    for count in range(1, 20):
        for answer in range(count + 1):
            for guess in range(count + 1):
                calls: list[int] = []
                assert smallest_count(guess, count, lambda n: bool(calls.append(n)) or n >= answer) == answer  # noqa: B023
                assert len(calls) == len(set(calls)) and count not in calls


def test_a_model_without_gradient_is_ordered_by_measured_errors() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n", 64))
        h = b.MatMul(x, b.constant(normal(64, 64), name="w"))
        codes = b.QuantizeLinear(h, np.float32(0.5), np.uint8(128))
        b.output("y", b.MatMul(b.DequantizeLinear(codes, np.float32(0.5), np.uint8(128)), b.constant(normal(64, 32), name="v")))
    report = quantize(b.model, "int8", budget=0.5).report
    assert any("no gradient" in note for note in report.notes)
    assert all(node.predicted is None and node.measured is not None for node in report.nodes)


# The report in the file


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
@pytest.mark.parametrize("source", ["built", "onnx", "xml"])
def test_a_written_file_has_the_report(source: str, suffix: str, tmp_path: Path) -> None:
    model = network()
    if source != "built":
        dovetail.save(model, tmp_path / f"source.{source}")
        model = dovetail.load(tmp_path / f"source.{source}")
    new = quantize(model, "int4", inputs={"x": normal(64, 64)}, budget=0.2)
    dovetail.save(new, path := tmp_path / f"new.{suffix}")
    dovetail.save(dovetail.load(path), other := tmp_path / ("again.xml" if suffix == "onnx" else "again.onnx"))
    for file in (path, other):
        facts = dovetail.model_report(file, runs=1).as_dict()["quantization"]
        assert (facts["to"], facts["budget"], facts["bytes"], facts["bytes_before"]) == (
            "int4", 0.2, new.report.bytes, new.report.bytes_before,
        )  # fmt: skip
        assert facts["upper"] == pytest.approx(new.report.upper, rel=1e-3)
        for row, node in zip(facts["nodes"], new.report.nodes, strict=True):
            assert (row["value"], row["bits"], row["kept"]) == (node.value, node.bits, node.kept)
            assert row["measured"] == pytest.approx(node.measured, rel=1e-3)
    done = CliRunner().invoke(command, ["report", str(path), "-o", str(tmp_path / "page.html"), "--runs", "1"])
    assert done.exit_code == 0 and "weights as int4" in done.stdout and "bytes saved" in done.stdout
    assert 'id="quantization"' in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("engine", "suffix"), [("interpreter", "onnx"), ("native", "xml"), ("onnxruntime", "onnx"), ("openvino", "xml")]
)
def test_the_error_of_the_result_is_measured_in_the_chosen_engine(engine: str, suffix: str, tmp_path: Path) -> None:
    if engine in ("onnxruntime", "openvino"):
        pytest.importorskip(engine)
    model, rows = network(), normal(64, 64)
    dovetail.save(model, source := str(tmp_path / f"m.{suffix}"))
    np.save(tmp_path / "rows.npy", rows)
    target = str(tmp_path / f"q.{suffix}")
    arguments = [source, "-o", target, "--data", str(tmp_path / "rows.npy"), "--json"]
    done = run(*arguments, "--engine", engine)
    assert done.exception is None, done.output
    data = json.loads(done.stdout)
    held_out = rows[-16:]
    expected = dovetail.run(model, held_out)["y"]
    if engine in ("onnxruntime", "openvino"):
        found = runner(engine, target, names=Names(["x"], ["y"])).run({"x": held_out})["y"]
    else:
        found = dovetail.compile(target, engine=engine)(held_out)["y"]
    assert data["engine"] == engine and data["measured"] == pytest.approx(relative(found, expected.astype(np.float64)), rel=1e-3)
    kept = json.loads(run(*arguments, "--engine", engine, "--budget", "0").stdout)
    assert kept["measured"] == 0 and {node["kept"] for node in kept["nodes"]} == {"the budget"}


def test_engines_that_cannot_run_the_result_are_refused() -> None:
    for options, code in (
        (QuantizeOptions(engine="tensorrt"), "argument.value"),
        (QuantizeOptions(engine="onnxruntime==1.20.1"), "argument.value"),
        (QuantizeOptions(engine="native", verify=False), "argument.conflict"),
    ):
        with pytest.raises(DovetailError) as caught:
            quantize(network(), options=options)
        assert caught.value.code == code


def record_of(**changes: Any) -> str:
    row = ["node", "MatMul", "w", 32, 8, 0, "nearest", 400, 100, 32, 0.1, None, ""]
    facts = {
        "to": "int8", "nodes": [row], "budget": None, "predicted": 0.1, "measured": 0.1, "upper": 0.2, "engine": "", "calls": 1,
        "held_out": 1,
        "drawn": [], "notes": [],
    }  # fmt: skip
    return json.dumps({**facts, **changes})


BAD_RECORDS = [
    "", "[]", "{}", "[" * 100_000, "nul", record_of(more=1), record_of(nodes=[[]]), record_of(to=3), record_of(calls=-1),
    record_of(calls=True), record_of(calls=10**30), record_of(measured="0.1"), record_of(measured=float("nan")),
    record_of(measured=float("inf")), record_of(notes=["x"] * 1000), record_of(to="x" * 10_000), record_of(drawn=[3]),
    record_of(nodes=[["node", "MatMul", "w", 32, 8, 0, "nearest", 400, 100, 32, 0.1, None, None]]),
    record_of(notes=["x" * 2**21]),
    record_of(nodes=[["node", "MatMul", "w", 32, 8, 0, "nearest", 400, 100, 32, 0.1, None, ""]] * 1001),
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_RECORDS, ids=range(len(BAD_RECORDS)))
def test_a_record_that_dovetail_does_not_write_is_ignored(text: str) -> None:
    model = network((64, 32))
    model.metadata["onnx"] = {"metadata_props": {PROPERTY: text}}
    assert dovetail.model_report(model, runs=1).quantization is None


def test_names_in_a_record_are_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\u202e"
    row = [hostile, hostile, hostile, 32, 8, 0, hostile, 400, 100, 32, 0.1, None, hostile]
    model = network((64, 32))
    model.metadata["onnx"] = {"metadata_props": {PROPERTY: record_of(to=hostile, nodes=[row])}}
    dovetail.save(model, path := tmp_path / "model.onnx")
    page = dovetail.model_report(path, runs=1).html()
    assert "alert(1)" in page and not any(text in page for text in ("<script>alert", "\x1b", "\u202e"))
    done = CliRunner().invoke(command, ["report", str(path), "-o", str(tmp_path / "page.html"), "--runs", "1"])
    assert done.exit_code == 0 and "alert(1)" in done.stdout and not any(text in done.stdout for text in ("\x1b", "\u202e"))


def test_the_report_in_a_file_is_bounded() -> None:
    node = QuantizedNode("n" * 1000, "MatMul", "w" * 1000, 32, 8, 0, "nearest", 400, 100)
    report = QuantizeReport("int8", [node] * 5000, measured=float("inf"), notes=["x" * 1000] * 1000)
    text = encode_report(report)
    found = decode_report(text)
    assert found is not None and len(text) <= 2**20 and len(found.nodes) == 1000 and found.measured is None
    assert found.notes[0] == "4000 weights are left out" and found.nodes[0].node == "n" * 160


# Rows


def test_rows_of_a_model_with_a_fixed_batch_are_several_calls() -> None:
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", (2, 64)), b.constant(normal(64, 32))))
    report = quantize(b.model, inputs={"x": normal(16, 64)}).report
    assert (report.calls, report.held_out, report.drawn, report.notes) == (6, 2, [], [])
    report = quantize(b.model, inputs={"x": normal(2, 64)}).report
    assert (report.calls, report.held_out) == (1, 1) and "used for calibration" in report.notes[0]


@pytest.mark.parametrize("size", ["n", "m", None])
def test_inputs_with_equally_many_rows_are_split_together(size: str | None) -> None:
    with Builder() as b:
        h = b.Add(b.input("x", "f32", ("n", 64)), b.input("z", "f32", (size, 64)))
        b.output("y", b.MatMul(h, b.constant(normal(64, 32))))
    for count in (64,) if size == "n" else (64, 1):
        report = quantize(b.model, inputs={"x": normal(64, 64), "z": normal(count, 64)}).report
        assert (report.calls, report.held_out) == (2, 16)


def test_inputs_without_rows_are_drawn_for_each_call() -> None:
    report = quantize(every_layer(), inputs={"image": normal(8, 6, 8, 8)}).report
    assert report.drawn == ["ids"] and report.measured is not None


BAD_ROWS: list[tuple[str, Any]] = [
    ("input.unknown", {"z": normal(8, 64)}),
    ("input.shape", {"x": normal(8, 63)}),
    ("input.shape", {"x": normal(64)}),
    ("input.shape", {"x": normal(0, 64)}),
    ("input.dtype", {"x": np.zeros((8, 64))}),
    ("input.type", {"x": object()}),
    ("argument.value", {"x": np.where(np.arange(64) == 3, np.nan, normal(8, 64)).astype(np.float32)}),
    ("argument.value", {"x": np.full((8, 64), np.inf, np.float32)}),
    ("argument.type", [normal(8, 64)]),
]


@pytest.mark.parametrize(("code", "inputs"), BAD_ROWS)
def test_rows_that_do_not_fit_are_refused_by_name(code: str, inputs: Any) -> None:
    with pytest.raises(DovetailError) as caught:
        quantize(network(), inputs=inputs)
    assert caught.value.code == code
    assert code == "argument.type" or "'x'" in str(caught.value) or "'z'" in str(caught.value)


def test_inputs_of_different_numbers_of_rows_are_refused() -> None:
    with pytest.raises(DovetailError, match=r"equally many rows, got 8 of 'ids', 7 of 'image'"):
        quantize(every_layer(), inputs={"ids": np.zeros((8, 5), np.int64), "image": normal(7, 6, 8, 8)})
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", (4, 64)), b.constant(normal(64, 32))))
    with pytest.raises(DovetailError, match=r"multiple of its first size \(4\), got 6"):
        quantize(b.model, inputs={"x": normal(6, 64)})


BAD_ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("argument.value", {"to": "int5"}),
    ("argument.value", {"budget": -1}),
    ("argument.value", {"budget": float("nan")}),
    ("argument.value", {"options": QuantizeOptions(block_size=24)}),
    ("argument.value", {"options": QuantizeOptions(encoding="qqd")}),
    ("argument.value", {"options": QuantizeOptions(rounding="up")}),
    ("argument.value", {"options": QuantizeOptions(activations="max")}),
    ("argument.conflict", {"to": "int4", "options": QuantizeOptions(activations="minmax")}),
    ("argument.conflict", {"options": QuantizeOptions(block_size=32, activations="minmax")}),
    ("argument.conflict", {"options": QuantizeOptions(activations="minmax", verify=False)}),
    ("argument.type", {"options": {"block_size": 32}}),
    ("argument.type", {"options": QuantizeOptions(block_size=32.0)}),  # type: ignore[arg-type]
    ("argument.type", {"options": QuantizeOptions(symmetric="no")}),  # type: ignore[arg-type]
    ("argument.type", {"options": QuantizeOptions(verify="no")}),  # type: ignore[arg-type]
    ("argument.conflict", {"to": "f16", "options": QuantizeOptions(block_size=32)}),
    ("argument.conflict", {"budget": 0.1, "options": QuantizeOptions(verify=False)}),
]


@pytest.mark.parametrize(("code", "arguments"), BAD_ARGUMENTS)
def test_arguments_that_do_not_fit_are_refused(code: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(DovetailError) as caught:
        quantize(network(), **arguments)
    assert caught.value.code == code


def test_a_budget_may_be_a_number_of_numpy() -> None:
    budget = np.float32(10)
    assert quantize(network(), budget=budget).report.measured <= budget


def test_models_without_weights_or_float_outputs_are_refused() -> None:
    with Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", ("n", 3))))
    with pytest.raises(dovetail.UnsupportedError, match=r"constant\.needed"):
        quantize(b.model)
    with Builder() as b:
        b.output("y", b.ArgMax(b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(normal(64, 32))), axis=1))
    with pytest.raises(dovetail.RuleError, match=r"grad\.dtype.*float output"):
        quantize(b.model)
    assert quantize(b.model, options=QuantizeOptions(verify=False)).report.bytes < 64 * 32 * 4


# Weights that keep their type


def test_weights_without_codes_keep_their_type_and_the_report_names_the_reason() -> None:
    def product(scale: float, *, special: float | None = None, width: int = 64) -> Model:
        w = normal(64, width) * np.float32(scale)
        if special is not None:
            w[3, 1] = special
        with Builder() as b:
            b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(w)))
        return b.model

    cases = [
        (product(1, special=np.nan), "int4", "it has NaN or infinities"),
        (product(1, special=-np.inf), "f16", "it has NaN or infinities"),
        (product(1e-38), "int8", "its scales are subnormal"),
        (product(1, special=1e5), "f16", "it exceeds the range of f16"),
        (product(1e-9), "f16", "it is below the normal range of f16"),
    ]
    for model, to, reason in cases:
        new = quantize(model, to)
        (node,) = new.report.nodes
        assert (node.kept, node.bits, node.bytes) == (reason, 32, node.bytes_before)
        x = normal(2, 64)
        np.testing.assert_array_equal(dovetail.run(new, x)["y"], dovetail.run(model, x)["y"])
    (node,) = quantize(product(1, special=1e5), "bf16").report.nodes
    assert not node.kept


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("share", [0.4, 0.9])
@pytest.mark.parametrize("to", ["int8", "int4"])
def test_weights_near_the_largest_number_are_finite(to: str, share: float) -> None:
    w = normal(64, 32)
    w *= np.float32(share) * (np.finfo(np.float32).max / np.abs(w).max())
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(w)))
    x = normal(16, 64) / 1000
    for rows in (None, {"x": normal(64, 64) / 1000}):
        new = quantize(b.model, to, inputs=rows, options=QuantizeOptions(verify=rows is not None))
        assert [node.kept for node in new.report.nodes] == ["it is near the largest number of f32" if share > 0.5 else ""]
        error = relative(dovetail.run(new, {"x": x})["y"], dovetail.run(b.model, {"x": x})["y"].astype(np.float64))
        assert error < {"int8": 0.03, "int4": 0.3}[to]


def test_a_weight_of_zeros_stays_exact() -> None:
    with Builder() as b:
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(np.zeros((64, 32), np.float32))))
    for to in ("int8", "int4"):
        assert quantize(b.model, to).report.measured == 0


def test_weights_in_16_bits_are_rounded_from_their_values(tmp_path: Path) -> None:
    half = quantize(network(), "f16", options=QuantizeOptions(verify=False))
    for format in ("onnx", "xml"):
        dovetail.save(half, tmp_path / f"half.{format}")
        report = quantize(dovetail.load(tmp_path / f"half.{format}"), "int8").report
        assert {node.bits_before for node in report.nodes} == {16} and {node.bits for node in report.nodes} == {8}


def test_the_model_of_the_caller_stays_as_it_is() -> None:
    model = every_layer()
    before = str(model)
    quantize(model, "int4", budget=0.2)
    assert str(model) == before and model.report is None


# The command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command, ["quantize", *arguments], standalone_mode=False)


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_the_command_writes_a_file_and_prints_a_row_for_each_node(suffix: str, tmp_path: Path) -> None:
    dovetail.save(network(), source := str(tmp_path / f"m.{suffix}"))
    np.save(rows := tmp_path / "rows.npy", normal(64, 64))
    target = str(tmp_path / f"q.{suffix}")
    done = run(source, "-o", target, "--to", "int4", "--data", str(rows), "--budget", "20%", "--json")
    assert done.exception is None, done.output
    data = json.loads(done.stdout)
    assert data["measured"] <= 0.2 and len(data["nodes"]) == 4 and data["bytes"] < data["bytes_before"] and data["random"] == []
    other = run(source, "-o", target, "-i", f"x={rows}", "--no-verify", "--symmetric", "--block-size", "16")
    assert other.exception is None and "bytes saved" in other.stdout
    assert dovetail.check(target) == []


def test_the_command_refuses_options_and_files_that_do_not_fit(tmp_path: Path) -> None:
    dovetail.save(network(), source := str(tmp_path / "m.onnx"))
    for arguments, text in (
        (("-o", str(tmp_path / "q.xml"), "--qdq"), "--qdq needs an ONNX target"),
        (("-o", str(tmp_path / "q.onnx"), "--budget", "x%"), "must be a share"),
        (("-o", str(tmp_path / "q.onnx"), "--data", "missing.npy"), "there is no file"),
    ):
        assert text in str(run(source, *arguments).exception)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_shares_are_numbers_or_percent() -> None:
    assert [Share().convert(text, None, None) for text in ("0.5%", "0.005", " 2 % ", "0")] == [0.005, 0.005, 0.02, 0]


def test_an_interrupted_command_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dovetail.save(network(), source := str(tmp_path / "m.onnx"))
    target = tmp_path / "q.onnx"
    target.write_bytes(before := Path(source).read_bytes())

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("dovetail.passes.quantization.sensitivity.adjoints", interrupt)
    assert isinstance(run(source, "-o", str(target)).exception, (KeyboardInterrupt, SystemExit, Exception))
    assert target.read_bytes() == before and sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "q.onnx"]


# Models of other kinds


def test_sizes_of_random_inputs_are_those_at_which_the_model_runs() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n", "k"))
        b.output("y", b.MatMul(b.Reshape(x, [-1, 64]), b.constant(normal(64, 32))))
    report = quantize(b.model).report
    assert report.measured is not None and report.measured < 0.02


def test_a_model_of_unknown_rank_is_ordered_by_measured_errors() -> None:
    with Builder() as b:
        h = b.MatMul(b.input("x", "f32"), b.constant(normal(64, 64), name="w"))
        b.output("y", b.MatMul(b.Relu(h), b.constant(normal(64, 32), name="v")))
    for options in (QuantizeOptions(), QuantizeOptions(activations="minmax")):
        report = quantize(b.model, inputs={"x": normal(16, 64)}, budget=0.5, options=options).report
        assert len(report.nodes) == 2 and report.measured <= 0.5


def test_a_model_with_states_is_measured_from_its_initial_states(tmp_path: Path) -> None:
    with Builder() as b:
        x, past = b.input("x", "f32", (1, 64)), b.input("past", "f32", (1, 64))
        h = b.Tanh(b.Add(b.MatMul(x, b.constant(normal(64, 64, scale=0.1))), past))
        b.output("present", h)
        b.output("y", b.MatMul(h, b.constant(normal(64, 32))))
    stateful = dovetail.make_stateful(b.model, {"past": "present"})
    new = quantize(stateful, "int4", inputs={"x": normal(16, 64)})
    assert new.report.measured is not None and new.states == stateful.states


@pytest.mark.parametrize("options", [QuantizeOptions(), QuantizeOptions(activations="mse")], ids=["weights", "activations"])
def test_a_model_with_states_that_grow_is_calibrated_from_empty_states(options: QuantizeOptions) -> None:
    with Builder() as b:
        x, past = b.input("x", "f32", ("batch", "t", 64)), b.input("past", "f32", ("batch", "p", 64))
        h = b.Concat(past, b.MatMul(x, b.constant(normal(64, 64, scale=0.1))), axis=1)
        b.output("present", h)
        b.output("y", b.MatMul(h, b.constant(normal(64, 32))))
    stateful = dovetail.make_stateful(b.model)
    new = quantize(stateful, inputs={"x": correlated(192, 64, 1).reshape(64, 3, 64)}, options=options)
    assert new.states == stateful.states and new.report.notes == [] and new.report.drawn == []
    assert "gptq" in {node.rounding for node in new.report.nodes}
    assert new.report.measured == pytest.approx(new.report.predicted, rel=0.5)


def test_a_weight_of_a_product_and_of_a_lookup_is_rounded_for_both(tmp_path: Path) -> None:
    with Builder() as b:
        table = b.constant(normal(50, 64), name="table")
        h = b.Gather(table, b.input("ids", "i64", ("n", 3)), axis=0)
        b.output("y", b.MatMul(b.Tanh(h), b.Transpose(table, [1, 0])))
        b.output("table_out", b.Identity(table))
    ids = RNG.integers(0, 50, (16, 3))
    for to in ("int8", "int4", "f16"):
        new = quantize(b.model, to, inputs={"ids": ids})
        dovetail.save(new, tmp_path / "new.onnx")
        found, expected = runner_for(tmp_path / "new.onnx").run({"ids": ids}), dovetail.run(new, {"ids": ids})
        assert all(relative(found[name], expected[name]) < 1e-5 for name in ("y", "table_out"))


@pytest.mark.parametrize("axis", [0, -2])
def test_a_table_whose_rows_are_read_is_rounded(axis: int) -> None:
    with Builder() as b:
        b.output("y", b.Gather(b.constant(normal(50, 64), name="table"), b.input("ids", "i64", ("n", 3)), axis=axis))
    ids = np.array([[0, 7, -1], [3, 3, 49]])
    new = quantize(b.model, inputs={"ids": ids})
    assert [node.bits for node in new.report.nodes] == [8]
    assert relative(dovetail.run(new, ids)["y"], dovetail.run(b.model, ids)["y"]) < 0.01


@pytest.mark.parametrize("budget", [None, 0])
def test_a_weight_that_is_an_output_keeps_its_name(budget: float | None, tmp_path: Path) -> None:
    w = onnx.numpy_helper.from_array(normal(64, 32), "w")
    x, y, z = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 64]), ("y", ["n", 32]), ("w", [64, 32]))
    )
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y, z], [w])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    new = quantize(dovetail.load(tmp_path / "m.onnx"), "f16", budget=budget)
    dovetail.save(new, tmp_path / "new.onnx")
    found = runner_for(tmp_path / "new.onnx").run({"x": np.eye(64, dtype=np.float32)})
    assert sorted(found) == ["w", "y"]
    np.testing.assert_array_equal(found["w"], found["y"])
    assert relative(found["w"], onnx.numpy_helper.to_array(w)) <= (1e-3 if budget is None else 0)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("to", ["int8", "int4"])
def test_weights_of_16_bits_get_codes_with_scales_of_16_bits(to: str, dtype: str, tmp_path: Path) -> None:
    with Builder() as b:
        h = b.input("x", dtype, ("n", 64))
        for index in range(3):
            w = b.constant(normal(64, 64, scale=0.15), dtype, f"w{index}")
            h = b.Tanh(b.MatMul(h, w)) if index < 2 else b.MatMul(h, w)
        b.output("y", h)
    kind = b.model.inputs[0].dtype.numpy
    rows, others = normal(64, 64).astype(kind), normal(16, 64).astype(kind)
    new = quantize(b.model, to, inputs={"x": rows})
    report = new.report
    assert [node.bits_before for node in report.nodes] == [16] * 3 and report.predicted is not None
    assert report.measured == pytest.approx(report.predicted, rel=0.5)
    expected = dovetail.run(new, others)["y"]
    assert 0 < relative(expected, dovetail.run(b.model, others)["y"].astype(np.float64)) < (0.03 if to == "int8" else 0.3)
    dovetail.save(new, tmp_path / "new.onnx")
    if dtype == "f16":
        found = runner_for(tmp_path / "new.onnx").run({"x": others})["y"]
        assert relative(found, expected.astype(np.float64)) < 5e-3
