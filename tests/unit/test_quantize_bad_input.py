"""quantize: rows that do not fit, weights that are no plain numbers, and interrupts, each with a named answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import dovetail
from dovetail import Builder, DovetailError, Model, QuantizeOptions, quantize
from dovetail.cli import dovetail as command

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((24, 64)).astype(np.float32)
TARGETS = ("int8", "int4", "f8", "f8e5m2", "f16", "bf16")


def with_elements(rows: Any, *elements: float) -> Any:
    rows = rows.copy()
    rows[5, : len(elements)] = elements
    return rows


def product(weights: Any = None) -> Model:
    weights = (RNG.standard_normal((64, 32)) / 8).astype(np.float32) if weights is None else weights
    with Builder() as b:
        h = b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(weights, name="w"))
        b.output("y", b.MatMul(h, b.constant((RNG.standard_normal((32, 32)) / 6).astype(np.float32), name="v")))
    return b.model


@pytest.mark.parametrize(
    ("inputs", "code", "text"),
    [
        ({"x": ROWS[:, :63]}, "input.shape", r"'x' must be f32\[n, 64\], got the shape \[24, 63\]"),
        ({"x": ROWS[0]}, "input.shape", r"'x' must be f32\[n, 64\], got the shape \[64\]"),
        ({"x": ROWS[:0]}, "input.shape", "'x' must have at least one row, got none"),
        ({"x": ROWS.astype(np.int32)}, "input.dtype", "'x' must be f32, got i32"),
        ({"x": ROWS.astype(np.float64)}, "input.dtype", "'x' must be f32, got f64"),
        ({"x": np.array([["a"] * 64])}, "input.dtype", "'x' must be f32, got string"),
        ({"x": [[1, 2], [3]]}, "input.type", "'x' must be convertible to an array"),
        ({"x": None}, "input.type", "'x' must hold numbers or strings, got nothing"),
        ({"x": with_elements(ROWS, np.nan)}, "argument.value", "rows of input 'x' must be finite, got NaN or infinity in row 5"),
        ({"x": with_elements(ROWS, 1, -np.inf)}, "argument.value", "must be finite, got NaN or infinity in row 5"),
        ({"z": ROWS}, "input.unknown", "the model has no input 'z'"),
        (ROWS, "argument.type", "inputs must be arrays by name, got ndarray"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused_by_name(inputs: Any, code: str, text: str) -> None:
    for to in TARGETS:
        with pytest.raises(DovetailError, match=text) as caught:
            quantize(product(), to, inputs=inputs, budget=0.1)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("elements", "kept"),
    [
        ((np.nan,), "it has NaN or infinities"), ((np.inf, -np.inf), "it has NaN or infinities"),
        ((3e38, -3e38), {"f16": "it exceeds the range of f16", "bf16": "", "": "it is near the largest number of f32"}),
    ],
    ids=["nan", "infinities", "largest"],
)  # fmt: skip
@pytest.mark.parametrize("to", TARGETS)
def test_weights_that_have_no_scale_keep_their_type_for_a_reason(elements: Any, kept: Any, to: str) -> None:
    model = product(with_elements(ROWS.repeat(3, axis=0)[:64, :32], *elements))
    reason = kept if isinstance(kept, str) else kept.get(to, kept[""])
    report = quantize(model, to, options=QuantizeOptions(verify=False)).report
    assert [node.kept for node in report.nodes] == [reason, ""]
    assert report.nodes[0].bits == (32 if reason else 16)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("rows", [None, {"x": ROWS}], ids=["drawn", "rows"])
def test_zeros_are_exact_and_subnormal_weights_keep_their_type(to: str, rows: Any) -> None:
    zeros = quantize(product(np.zeros((64, 32), np.float32)), to, inputs=rows)
    assert not np.any(dovetail.run(zeros, ROWS)["y"])
    subnormal = np.full((64, 32), 1e-40, np.float32)
    report = quantize(product(subnormal), to, inputs=rows).report
    reason = {"f16": "it is below the normal range of f16", "bf16": ""}.get(to, "its scales are subnormal")
    assert [node.kept for node in report.nodes] == [reason, ""]
    assert report.measured is not None and np.isfinite(report.measured)


@pytest.mark.parametrize("freeze", [False, True])
def test_weights_that_are_optional_inputs_are_refused_with_the_option_that_makes_them_constants(
    freeze: bool, tmp_path: Path
) -> None:
    helper = onnx.helper
    w = onnx.numpy_helper.from_array(ROWS[:, :32].repeat(3, axis=0)[:64], "w")
    x, y, w_input = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 64]), ("y", ["n", 32]), ("w", [64, 32]))
    )
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x, w_input], [y], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    model = dovetail.load(tmp_path / "m.onnx", freeze_defaults=freeze)
    if freeze:
        assert [node.bits for node in quantize(model).report.nodes] == [8]
    else:
        with pytest.raises(DovetailError, match=r"constant\.needed.*got none, and 1 optional input.*freeze_defaults"):
            quantize(model)


PHASES = (
    "passes.quantization.quantizer.calibrate", "passes.quantization.quantizer.round_matrix",
    "passes.quantization.quantizer.collect_hessians", "passes.quantization.quantizer.find_shifts",
    "passes.quantization.quantizer.choose_activations", "passes.quantization.quantizer.measure_errors",
    "passes.quantization.sensitivity.adjoints", "passes.quantization.quantizer.encode_weights", "formats.save",
)  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("has_target", [False, True])
def test_an_interrupt_leaves_the_folder_as_it_was(
    phase: str, has_target: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dovetail.save(product(), source := tmp_path / "m.onnx")
    np.save(rows := tmp_path / "rows.npy", ROWS)
    target = tmp_path / "q.onnx"
    if has_target:
        target.write_bytes(b"before")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"dovetail.{phase}", interrupt)
    arguments = ["quantize", str(source), "-o", str(target), "--data", str(rows), "--activations", "mse"]
    assert CliRunner().invoke(command, arguments).exit_code != 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
