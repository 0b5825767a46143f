"""merge: against onnxruntime running one model after the other, and what is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from dovetail.errors import RuleError

ort = pytest.importorskip("onnxruntime")
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
HEAD = '<ir_version: 8, opset_import: ["" : {opset}]>\n'
FIRST = "f (float[n, 4] x) => (float[n, 4] h, float[n, 4] y) { t = Relu (x) h = Neg (t) y = Abs (x) }"
SECOND = "s (float[m, 4] h, float[m, 4] x) => (float[m, 4] y) { t = Exp (h) y = Add (t, x) }"


def model_of(text: str, opset: int = 17) -> dovetail.Model:
    return dovetail.load(onnx.parser.parse_model(HEAD.format(opset=opset) + text))


def run_in_onnxruntime(model: dovetail.Model, path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    dovetail.save(model, path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([y.name for y in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
@pytest.mark.parametrize("second_suffix", [".onnx", ".xml"])
def test_a_merged_model_equals_both_in_sequence(tmp_path: Path, suffix: str, second_suffix: str) -> None:
    first, second = model_of(FIRST), model_of(SECOND, 13)
    one = run_in_onnxruntime(first, tmp_path / "first.onnx", {"x": X})
    other = run_in_onnxruntime(second, tmp_path / "second.onnx", {"h": one["h"], "x": 2 * X})
    dovetail.save(second, tmp_path / f"stored{second_suffix}")
    merged = dovetail.merge(first, dovetail.load(tmp_path / f"stored{second_suffix}"))
    assert merged.versions[""] == 17
    assert [x.name for x in merged.inputs] == ["x", "x_2"] and [y.name for y in merged.outputs] == ["y", "y_2"]
    assert [item.code for item in merged.warnings] == ["merge.name", "merge.name"] + ["merge.metadata"] * (
        second_suffix == ".xml"
    )
    assert [str(x.type) for x in merged.inputs] == ["f32[n, 4]", "f32[n, 4]"]
    dovetail.save(merged, tmp_path / f"merged{suffix}")
    found = dovetail.run(tmp_path / f"merged{suffix}", {"x": X, "x_2": 2 * X})
    np.testing.assert_allclose(found["y"], one["y"], rtol=1e-6)
    np.testing.assert_allclose(found["y_2"], other["y"], rtol=1e-6)


def test_prefixes_shared_inputs_and_side_by_side() -> None:
    first, second = model_of(FIRST), model_of(SECOND)
    shared = dovetail.merge(first, second, [("h", "h"), ("x", "x")], prefix_second="b/")
    assert [x.name for x in shared.inputs] == ["x"] and [y.name for y in shared.outputs] == ["y", "b/y"]
    np.testing.assert_allclose(dovetail.run(shared, X)["b/y"], np.exp(-np.maximum(X, 0)) + X, rtol=1e-6)
    both = dovetail.merge(first, second, {})
    assert [str(x.type) for x in both.inputs] == ["f32[n, 4]", "f32[m, 4]", "f32[m, 4]"]


def test_sizes_are_unified_by_substitution() -> None:
    fixed = model_of("s (float[3, 4] h) => (float[3, 4] z) { z = Exp (h) }")
    merged = dovetail.merge(model_of(FIRST), fixed)
    assert [str(x.type) for x in merged.inputs] == ["f32[3, 4]"]


@pytest.mark.parametrize(
    ("second", "connect", "faults"),
    [
        (SECOND, {"hh": "h", "h": "xx"}, ["name.unknown: 'hh'", "merge.connection: no input"]),
        (SECOND, [("h", "x"), ("y", "x")], ["merge.connection: connected once"]),
        ("s (float[m] q) => (float[m] r) { r = Exp (q) }", None, ["merge.connection: an output of the first model must"]),
        ("s (float[m] q) => (float[m] r) { r = Exp (q) }", {"r": "x"}, ["merge.connection: from the first model to the second"]),
        (
            "s (double[m, 4] h, float[m, 5] y, float[m] x) => (double[m, 4] r) { r = Exp (h) }",
            {"h": "h", "y": "y", "x": "x"},
            [f"merge.connection: {subject} must be equal" for subject in ("element types", "shapes", "ranks")],
        ),
    ],
)
def test_faults(second: str, connect: dict[str, str] | list[tuple[str, str]] | None, faults: list[str]) -> None:
    with pytest.raises(RuleError) as caught:
        dovetail.merge(model_of(FIRST), model_of(second), connect)
    for item, fault in zip(caught.value.diagnostics, faults, strict=True):
        code, _, words = fault.partition(": ")
        assert item.code == code and words in item.message


def accumulator(path: Path, sign: float) -> Path:
    """Write an IR model that adds its input to a variable, whose identifier is the same in all of them, and returns the sum."""
    openvino = pytest.importorskip("openvino")
    ops = importlib.import_module("openvino.opset15")
    x = ops.parameter([2], np.float32)
    x.set_friendly_name("x")
    x.output(0).set_names({"x"})
    info = importlib.import_module("openvino.op.util").VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape([2]), openvino.Type.f32, "total"
    variable = importlib.import_module("openvino.op.util").Variable(info)
    old = ops.read_value(ops.constant(np.full(2, sign, np.float32)), variable)
    new = ops.add(old, ops.multiply(x, ops.constant(np.float32(sign))))
    new.output(0).set_names({"y"})
    model = openvino.Model([ops.result(new)], [ops.assign(new, variable)], [x], "accumulator")
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


@pytest.mark.parametrize("is_connected", [True, False])
def test_variables_of_one_identifier_stay_separate(tmp_path: Path, is_connected: bool) -> None:
    """Three steps of the merged model in OpenVINO, beside both models one after the other."""
    openvino = pytest.importorskip("openvino")
    paths = [accumulator(tmp_path / "a.xml", 1.0), accumulator(tmp_path / "b.xml", -2.0)]
    models = [dovetail.load(path) for path in paths]
    first, second = models
    merged = dovetail.merge(first, second, {"y": "x"} if is_connected else {})
    assert [state.variable for state in merged.states] == ["total", "total_2"]
    dovetail.save(merged, tmp_path / "merged.xml")
    again = dovetail.merge(merged, models[0], {})
    assert [state.variable for state in again.states] == ["total", "total_2", "total_3"]

    def request(path: Path) -> Any:
        return openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()

    first, second, both = request(paths[0]), request(paths[1]), request(tmp_path / "merged.xml")
    session = dovetail.compile(dovetail.load(tmp_path / "merged.xml")).session()
    for step in range(3):
        x = np.array([step, 2 - step], np.float32)
        one = first.infer([x])[0].copy()
        other = second.infer([one if is_connected else x])[0].copy()
        expected = [other] if is_connected else [one, other]
        found = both.infer([x] * (1 if is_connected else 2))
        for index, array in enumerate(expected):
            np.testing.assert_array_equal(found[index], array)
        mine = list(session(*[x] * (1 if is_connected else 2)).values())
        for array, result in zip(expected, mine, strict=True):
            np.testing.assert_array_equal(result, array)
