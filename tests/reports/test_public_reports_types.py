"""Public reports of element types, quantization and integers; docs/reports.md lists them by number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from assertions import assert_same_bits
from dovetail.ir.host.native_core import instruction_set
from report_routes import (
    FLOAT,
    INT64,
    STRING,
    assert_every_way,
    assert_here,
    assert_outputs,
    proto_of,
    run_onnxruntime,
    run_openvino,
)

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
node = helper.make_node
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("scale", [0.5, 0.1, 0.0377])
@pytest.mark.parametrize("point", ["absent", "low", "middle", "high"])
def test_02_ties_of_quantize_linear(tmp_path: Path, kind: Any, scale: float, point: str) -> None:
    if point == "absent" and kind is not np.uint8:
        pytest.skip("without a zero point the type is uint8")
    bounds = np.iinfo(kind)
    zero = {"absent": 0, "low": int(bounds.min) + 1, "middle": 3, "high": int(bounds.max) - 1}[point]
    steps = np.arange(-300, 300, dtype=np.float64) / 2 + (0 if bounds.bits == 8 else zero // 7)
    x = np.concatenate([steps, [1e9, -1e9, 0.0, -0.0]]).astype(np.float32) * np.float32(scale)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    operands = ["x", "scale"] + ["zero"] * (point != "absent")
    constants = {"scale": np.float32(scale)} | ({"zero": kind(zero)} if point != "absent" else {})
    proto = proto_of(
        [node("QuantizeLinear", operands, ["q"])],
        [("x", FLOAT, ["n"])],
        [("q", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), ["n"])],
        constants,
        opset=13 if bounds.bits == 8 else 21,
    )
    expected = np.clip(np.rint(x / np.float32(scale)) + zero, bounds.min, bounds.max).astype(kind)
    assert_same_bits(run_onnxruntime(proto, {"x": x})["q"], expected, "onnxruntime")
    assert_every_way(proto, {"x": x}, {"q": expected}, tmp_path, in_openvino=False)
    # OpenVINO multiplies by the reciprocal of a constant divisor, which can move a number beside a tie by one step.
    found = run_openvino(tmp_path / "model.xml", {"x": x})["q"].astype(np.int64)
    quotient = x.astype(np.float64) / np.float64(np.float32(scale))
    beside_a_tie = np.abs(quotient - np.floor(quotient) - 0.5) < 1e-6 * np.maximum(np.abs(quotient), 1)
    assert np.abs(found - expected.astype(np.int64)).max() <= (scale != 0.5)
    assert_same_bits(found[~beside_a_tie], expected.astype(np.int64)[~beside_a_tie], "OpenVINO")


@pytest.mark.parametrize(("kind", "code"), [(np.int8, TensorProto.INT8), (np.uint8, TensorProto.UINT8)])
def test_03_a_quantized_softmax_saturates(tmp_path: Path, kind: Any, code: int) -> None:
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    x = np.array([[high, low, low, low], [low, low, low, low], [3, 2, 1, 0]], kind)
    constants = {"xs": np.float32(0.25), "xz": kind(5), "ys": np.float32(1 / 256), "yz": kind(low)}
    fused = proto_of(
        [node("QLinearSoftmax", ["x", "xs", "xz", "ys", "yz"], ["y"], domain="com.microsoft", axis=-1, opset=13)],
        [("x", code, ["n", 4])],
        [("y", code, ["n", 4])],
        constants,
        com_microsoft=1,
    )
    parts = proto_of(
        [
            node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
            node("Softmax", ["a"], ["b"], axis=-1),
            node("QuantizeLinear", ["b", "ys", "yz"], ["y"]),
        ],
        [("x", code, ["n", 4])],
        [("y", code, ["n", 4])],
        constants,
    )
    expected = run_onnxruntime(parts, {"x": x})
    assert expected["y"][0].tolist() == [high, low, low, low]
    assert_every_way(parts, {"x": x}, expected, tmp_path)
    assert_every_way(fused, {"x": x}, expected, tmp_path)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT16])
def test_12_casts_there_and_back_round(tmp_path: Path, constant: bool, kind: int) -> None:
    x = np.float32([1 / 3, 1.00390625, 1.01171875, 65519.996, 3.4e38, -1e-40, 8e4, -0.0])
    with np.errstate(all="ignore"):
        narrow = x.astype(ml_dtypes.bfloat16 if kind == TensorProto.BFLOAT16 else np.float16)
    proto = proto_of(
        [
            node("Cast", ["c" if constant else "x"], ["h"], to=kind),
            node("Cast", ["h"], ["w"], to=FLOAT),
            node("Add", ["w", "x"], ["y"]),
        ],
        [("x", FLOAT, [8])],
        [("w", FLOAT, [8]), ("y", FLOAT, [8])],
        {"c": x} if constant else None,
    )
    with np.errstate(all="ignore"):
        wide = narrow.astype(np.float32)
        expected = {"w": wide, "y": wide + x}
    # OpenVINO's plugin drops a pair through f16, truncates constants to bf16, and has other extremes.
    # It drops a pair through bf16 too, where the processor has no AVX-512.
    assert_every_way(proto, {"x": x}, expected, tmp_path, opsets=(13, 21), in_openvino=False)
    if kind == TensorProto.BFLOAT16 and not constant and instruction_set() in ("avx512", "amx"):
        found = run_openvino(tmp_path / "model.xml", {"x": x})
        assert_same_bits(found["w"][:3], expected["w"][:3], "OpenVINO")


@pytest.mark.parametrize("version", [2, 3, 4])
def test_13_labels_of_nan(tmp_path: Path, version: int) -> None:
    keys, names = [1.0, float("nan"), -0.0], ["one", "here", "zero"]
    x = np.float32([np.nan, 1, 2, 0, -0.0, -np.nan])
    proto = proto_of(
        [
            node("LabelEncoder", ["x"], ["t"], domain="ai.onnx.ml", keys_floats=keys, values_strings=names, default_string="?"),
            node("LabelEncoder", ["x"], ["i"], domain="ai.onnx.ml", keys_floats=keys, values_int64s=[7, 8, 9], default_int64=-1),
        ],
        [("x", FLOAT, ["n"])],
        [("t", STRING, ["n"]), ("i", INT64, ["n"])],
        ai_onnx_ml=version,
    )
    texts = np.array(["here", "one", "?", "zero", "zero", "here"], object)
    expected = {"t": texts, "i": np.array([8, 7, -1, 9, 9, 8])}
    # onnxruntime finds NaN from version 4 on.
    assert_every_way(proto, {"x": x}, expected, tmp_path, ir=False, in_onnxruntime=version == 4)


@pytest.mark.parametrize("sign", ["signed bytes", "unsigned bytes", "raw"])
def test_16_negative_4_bit_integers(tmp_path: Path, sign: str) -> None:
    values = np.array([-4, 3, -8, 7, -1] * 401, np.int64)
    packed = [int(a) & 15 | (int(b) & 15) << 4 for a, b in zip(values[::2], [*values[1::2], 0], strict=True)]
    weights = TensorProto(name="w", data_type=TensorProto.INT4, dims=[len(values)])
    if sign == "raw":
        weights.raw_data = bytes(packed)
    else:
        weights.int32_data.extend(byte - 256 if sign == "signed bytes" and byte > 127 else byte for byte in packed)
    proto = proto_of(
        [node("Cast", ["w"], ["c"], to=FLOAT), node("Mul", ["c", "x"], ["y"])],
        [("x", FLOAT, [1])],
        [("y", FLOAT, None)],
        {"w": weights},
        opset=21,
    )
    model = dovetail.load(proto)
    x = np.float32([2])
    assert_here(model, {"x": x}, {"y": (2 * values).astype(np.float32)}, None, "loaded")
    dovetail.save(model, tmp_path / "m.onnx")
    assert os.path.getsize(tmp_path / "m.onnx") < len(values) // 2 + 300
    saved = onnx.load(tmp_path / "m.onnx").graph.initializer[0]
    assert numpy_helper.to_array(saved).astype(np.int64).tolist() == values.tolist()
    dovetail.save(model, tmp_path / "m.xml")
    assert os.path.getsize(tmp_path / "m.bin") <= (len(values) + 1) // 2 + 64
    assert_outputs(run_openvino(tmp_path / "m.xml", {"x": x}), {"y": (2 * values).astype(np.float32)}, 0.0, "OpenVINO")


def test_17_folded_bf16_constants_stay_bf16(tmp_path: Path) -> None:
    bf16 = lambda *values: np.array(values, ml_dtypes.bfloat16)  # noqa: E731
    one = TensorProto(name="one", data_type=TensorProto.BFLOAT16, dims=[2], raw_data=bf16(1.5, -0.0).tobytes())
    two = TensorProto(
        name="two", data_type=TensorProto.BFLOAT16, dims=[2], int32_data=bf16(1 / 3, np.nan).view(np.uint16).tolist()
    )
    proto = proto_of(
        [node("Mul", ["one", "two"], ["k"]), node("Identity", ["k"], ["clone"]), node("Mul", ["x", "clone"], ["y"])],
        [("x", TensorProto.BFLOAT16, ["n", 2])],
        [("y", TensorProto.BFLOAT16, ["n", 2])],
        {"one": one, "two": two},
        opset=18,
    )
    smaller = dovetail.simplify(dovetail.load(proto), prove=True)
    report = smaller.report
    assert report.nodes_after == 1
    dovetail.save(smaller, tmp_path / "m.onnx")
    saved = onnx.load(tmp_path / "m.onnx")
    assert [tensor.data_type for tensor in saved.graph.initializer] == [TensorProto.BFLOAT16]
    onnx.checker.check_model(saved, full_check=True)
    x = bf16(*RNG.standard_normal(6)).reshape(3, 2)
    product = (bf16(1.5, -0.0) * bf16(1 / 3, np.nan)).astype(ml_dtypes.bfloat16)
    for model in (dovetail.load(proto), smaller, dovetail.load(saved)):
        assert_here(model, {"x": x}, {"y": (x * product).astype(ml_dtypes.bfloat16)}, None, "bf16")


def test_21_quotients_of_large_integers(tmp_path: Path) -> None:
    a = np.array([2**62, 2**40, 2**31, 2**31 - 1, -(2**31) - 5, 2**53 + 1, -7, 7, 0, -(2**63)])
    b = np.array([11, 11, 11, 11, 3, 1, 2, -2, 5, 1])
    quotient = np.array(
        [
            int(p) // int(q) if (p < 0) == (q < 0) or p % q == 0 else -(abs(int(p)) // abs(int(q)))
            for p, q in zip(a, b, strict=True)
        ]
    )
    proto = proto_of(
        [node("Div", ["a", "b"], ["q"]), node("Mul", ["q", "b"], ["p"]), node("Sub", ["a", "p"], ["r"])],
        [("a", INT64, ["n"]), ("b", INT64, ["n"])],
        [("q", INT64, ["n"]), ("r", INT64, ["n"])],
    )
    expected = {"q": quotient, "r": a - quotient * b}
    # OpenVINO's plugin computes in 32 bits or in f32.
    assert_every_way(proto, {"a": a, "b": b}, expected, tmp_path, opsets=(7, 21), in_openvino=False)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (TensorProto.FLOAT8E8M0, ml_dtypes.float8_e8m0fnu),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    ],
)
def test_26_tensors_in_attributes_of_an_unknown_operator(tmp_path: Path, code: int, kind: Any) -> None:
    scales = numpy_helper.from_array(np.float32([1, 2, 0.5, 4]).astype(kind), "fc_weight_scales")
    assert scales.data_type == code
    proto = proto_of(
        [node("AxFullyConnected", ["x", "w"], ["y"], name="fc0", weight_dtype="FP4E2M1", quant_method=1, weight_scales=scales)],
        [("x", TensorProto.BFLOAT16, [1, 4])],
        [("y", TensorProto.BFLOAT16, [1, 4])],
        {"w": np.zeros((4, 4), np.uint8)},
        opset=21,
    )
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    model = dovetail.load(path)
    assert "weight_scales=[1.0, 2.0, 0.5, 4.0]" in str(model)
    for suffix in (".onnx", ".dt"):
        dovetail.save(model, tmp_path / f"saved{suffix}")
        dovetail.save(dovetail.load(tmp_path / f"saved{suffix}"), tmp_path / "again.onnx")
        (saved,) = onnx.load(tmp_path / "again.onnx").graph.node
        attributes = {item.name: item for item in saved.attribute}
        assert attributes["weight_scales"].t.data_type == code
        assert numpy_helper.to_array(attributes["weight_scales"].t).astype(np.float32).tolist() == [1, 2, 0.5, 4]
    assert not dovetail.diff(path, tmp_path / "saved.onnx").changes
    with pytest.raises(dovetail.UnsupportedError, match="AxFullyConnected"):
        dovetail.save(model, tmp_path / "other.onnx", opset=23)
    with pytest.raises(dovetail.UnsupportedError, match="AxFullyConnected"):
        dovetail.interpret(model, {"x": np.zeros((1, 4), ml_dtypes.bfloat16)})
