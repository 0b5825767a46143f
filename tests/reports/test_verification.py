"""Verification says no: to a file that does not load, to lost names, and to what differs at special values and sizes only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.compare.verification.conversion import Verification, runner_for, selected_outputs, verify_conversion
from dovetail.compare.verification.rewrites import RewriteVerification
from dovetail.errors import EngineError
from dovetail.ir import symbolic
from dovetail.ir.graph import Model
from dovetail.passes.rebatching.axes import FreedSize
from dovetail.passes.rebatching.verification import draw_samples, verify_batches
from dovetail.runtime.random_inputs import random_inputs

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
LOOP = """<ir_version: 8, opset_import: ["" : 14]>
g (float[1] x) => (float[1] y) <float[1] one = {1.0}, float[1] limit = {4.0}, int64 most = {8}> {
    c0 = Less (x, limit)
    y = Loop (most, c0, x) <body = b (int64 i, bool{OUTER} c, float[1] s) => (bool[1] c2, float[1] s2) {
        s2 = Add (s, one)
        c2 = Less (s2, limit)
    }>
}"""
"""Adding 1 to a special value such as the least float never reaches the limit: the loop has a trip count too."""


def model(build: Callable[[dovetail.Builder, Any], Any], kind: str = "f32", shape: Any = ("n", 3)) -> Model:
    with dovetail.Builder("m") as b:
        b.output("y", build(b, b.input("x", kind, shape)))
    return b.model


def verify(source: Model, target: Model, folder: Path, suffix: str = "onnx") -> Verification:
    """Verify ``target`` as the conversion of ``source``; both are read from files."""
    dovetail.save(source, folder / "source.onnx")
    dovetail.save(target, folder / f"target.{suffix}")
    loaded = dovetail.load(folder / "source.onnx")
    inputs = random_inputs(loaded, distinct=True)
    return verify_conversion(loaded, folder / "source.onnx", folder / f"target.{suffix}", inputs, varied=list(inputs))


def command(*words: str | Path) -> Any:
    return subprocess.run([sys.executable, "-m", "dovetail", *map(str, words)], capture_output=True, text=True, check=False)


WRONG = {
    "NaN": (lambda b, x: b.Relu(x), lambda b, x: b.Where(b.Less(0.0, x), x, 0.0), "f32"),
    "infinity": (lambda b, x: b.Maximum(x, -1.0), lambda b, x: b.Minimum(b.Maximum(x, -1.0), np.float32(3.4e38)), "f32"),
    "negative zero": (lambda b, x: b.Reciprocal(x), lambda b, x: b.Reciprocal(b.Add(x, 0.0)), "f32"),
    "ties of rounding": (lambda b, x: b.Round(x), lambda b, x: b.Floor(b.Add(x, 0.5)), "f32"),
    "equal elements": (
        lambda b, x: b.ArgMax(x, axis=0),
        lambda b, x: b.ArgMax(x, axis=0, select_last_index=True),
        "f32",
    ),
    "extremes": (lambda b, x: b.Add(x, 0), lambda b, x: b.Cast(b.Cast(b.Add(x, 0), to="f64"), to="i64"), "i64"),
}  # fmt: skip


@pytest.mark.parametrize("name, suffix", [*((name, "onnx") for name in WRONG), *((name, "xml") for name in ("NaN", "extremes"))])
def test_a_difference_at_special_values_is_not_verified(name: str, suffix: str, tmp_path: Path) -> None:
    right, wrong, kind = WRONG[name]
    assert verify(model(right, kind, (40, 3)), model(right, kind, (40, 3)), tmp_path, suffix).agrees
    assert not verify(model(right, kind, (40, 3)), model(wrong, kind, (40, 3)), tmp_path, suffix).agrees


def boxes(beside: Callable[[dovetail.Builder, Any], Any]) -> Model:
    """Boxes that NonMaxSuppression selects by their scores, and a value beside them."""
    with dovetail.Builder("boxes") as b:
        corners = np.random.default_rng(0).uniform(0, 1, (1, 12, 4)).astype("f4")
        scores = b.input("scores", "f32", (1, 1, 12))
        b.output("chosen", b.NonMaxSuppression(b.constant(corners), scores, 12, 0.5, 0.0))
        b.output("beside", beside(b, scores))
    return b.model


def test_boxes_that_runtimes_select_by_nan_do_not_hide_another_difference(tmp_path: Path) -> None:
    right, wrong, _ = WRONG["NaN"]
    assert selected_outputs(boxes(right)) == {"chosen"}
    assert verify(boxes(right), boxes(right), tmp_path, "xml").agrees
    found = verify(boxes(right), boxes(wrong), tmp_path, "xml")
    assert {row.output for row in found.comparisons[0].rows if not row.agrees} == {"beside"}


def test_a_difference_for_empty_inputs_alone_is_not_verified(tmp_path: Path) -> None:
    """The wrong form adds 1 to sums of nothing."""
    right = model(lambda b, x: b.ReduceSum(x, [0], keepdims=True), shape=("n", 3))
    wrong = model(
        lambda b, x: b.Add(
            b.ReduceSum(x, [0], keepdims=True),
            b.Cast(b.Equal(b.Shape(x, start=0, end=1), np.array([0])), to="f32"),
        ),
        shape=("n", 3),
    )
    assert verify(right, right, tmp_path).agrees
    assert not verify(right, wrong, tmp_path).agrees


def test_open_sizes_differ_so_that_exchanged_axes_are_seen(tmp_path: Path) -> None:
    square = model(lambda b, x: b.ReduceSum(x, [3]), shape=("n", 3, "h", "w"))
    arrays = random_inputs(square, distinct=True)
    assert len({arrays["x"].shape[axis] for axis in (0, 2, 3)}) == 3
    other = model(lambda b, x: b.ReduceSum(b.Transpose(x, [0, 1, 3, 2]), [3]), shape=("n", 3, "h", "w"))
    assert not verify(square, other, tmp_path).agrees


def test_sizes_that_must_be_equal_stay_equal() -> None:
    with dovetail.Builder("m") as b:
        x, y = b.input("x", "f32", ("n", "k")), b.input("z", "f32", ("k2", "m"))
        b.output("y", b.MatMul(x, y))
    shapes = {name: array.shape for name, array in random_inputs(b.model, distinct=True).items()}
    assert shapes["x"][1] == shapes["z"][0] and len({shapes["x"][0], shapes["x"][1], shapes["z"][1]}) == 3


def test_a_file_that_its_runtime_cannot_load_is_not_verified(tmp_path: Path) -> None:
    (tmp_path / "good.onnx").write_bytes(onnx.parser.parse_model(LOOP.replace("{OUTER}", "[1]")).SerializeToString())
    (tmp_path / "bad.onnx").write_bytes(onnx.parser.parse_model(LOOP.replace("{OUTER}", "")).SerializeToString())
    loaded = dovetail.load(tmp_path / "good.onnx")
    inputs = {"x": np.array([0.5], np.float32)}
    found = verify_conversion(loaded, tmp_path / "good.onnx", tmp_path / "bad.onnx", inputs)
    assert not found.agrees and found.comparisons[0].rows[0].why == "its runtime cannot load it"
    assert any("onnxruntime cannot load" in note for note in found.notes)
    # Where the source does not load either, nothing is lost.
    assert verify_conversion(dovetail.load(tmp_path / "bad.onnx"), tmp_path / "bad.onnx", tmp_path / "bad.onnx", inputs).agrees
    ended = command("compare", tmp_path / "good.onnx", "--engines", "onnxruntime", "--with", tmp_path / "bad.onnx")
    assert ended.returncode == 1 and "onnxruntime cannot load" in ended.stderr
    ended = command("convert", tmp_path / "good.onnx", tmp_path / "again.onnx", "--verify")
    assert ended.returncode == 0, ended.stderr


def test_an_ir_is_verified_in_openvino_where_onnxruntime_has_no_kernel(tmp_path: Path) -> None:
    dovetail.save(model(lambda b, x: b.Multiply(x, x), "bf16"), tmp_path / "m.xml")
    dovetail.save(dovetail.load(tmp_path / "m.xml"), tmp_path / "m.onnx")
    loaded = dovetail.load(tmp_path / "m.xml")
    found = verify_conversion(loaded, tmp_path / "m.xml", tmp_path / "m.onnx", random_inputs(loaded))
    assert (
        found.agrees and found.comparisons[0].runtime.startswith("openvino") and any("NOT_IMPLEMENTED" in x for x in found.notes)
    )


def test_a_file_whose_names_its_runtime_loses_is_not_verified(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[2] x) => (float[2] y, float[2] z) {{y = Identity (x) z = Relu (x)}}"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "m.xml")
    assert runner_for(tmp_path / "m.xml").run({"x": np.float32([1, -2])})["y"].tolist() == [1, -2]
    with dovetail.Builder("m") as b:
        b.output("y", b.Relu(b.input("x", "f32", (2,))))
    dovetail.save(b.model, tmp_path / "lost.xml")
    # One value with the names of the input and of an output, as OpenVINO does not keep them apart.
    xml = (tmp_path / "lost.xml").read_text()
    xml = xml.replace('names="x"', 'names="x,y"').replace('names="y"', 'names="z"')
    xml = xml.replace('from-layer="1" from-port="1"', 'from-layer="0" from-port="0"').replace(
        '"Result" version="opset1"', '"Result" version="opset1" output_names="y"'
    )
    (tmp_path / "lost.xml").write_text(xml)
    with pytest.raises(EngineError, match="must have a distinct"):
        runner_for(tmp_path / "lost.xml")


def test_a_right_conversion_is_verified_where_a_runtime_is_inexact(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([-16, -15.9, -16.2], np.float32))
    dovetail.save(model(lambda b, x: b.Sigmoid(x), shape=(3,)), tmp_path / "m.xml")
    ended = command("convert", tmp_path / "m.xml", tmp_path / "m.onnx", "--verify", "-i", f"x={tmp_path / 'x.npy'}")
    assert ended.returncode == 0 and "away from f64" in ended.stderr, ended.stdout + ended.stderr
    words = (
        "--engines",
        "onnxruntime",
        "--reference",
        "openvino",
        "--with",
        tmp_path / "m.onnx",
        "-i",
        f"x={tmp_path / 'x.npy'}",
    )
    ended = command("compare", tmp_path / "m.xml", *words)
    assert ended.returncode == 0 and "away from f64" in ended.stderr, ended.stdout + ended.stderr
    dovetail.save(model(lambda b, x: b.Sigmoid(b.Multiply(x, np.float32(1.01))), shape=(3,)), tmp_path / "m.onnx")
    loaded = dovetail.load(tmp_path / "m.xml")
    inputs = {"x": np.load(tmp_path / "x.npy")}
    assert not verify_conversion(loaded, tmp_path / "m.xml", tmp_path / "m.onnx", inputs).agrees


@pytest.mark.parametrize("name", WRONG)
def test_compare_of_two_files_sees_special_values(name: str) -> None:
    right, wrong, kind = WRONG[name]
    one, other = model(right, kind, (40, 3)), model(wrong, kind, (40, 3))
    assert not dovetail.compare_layers(one, other=one, engines=["native"]).differs
    assert dovetail.compare_layers(one, other=other, engines=["native"]).differs


@pytest.mark.parametrize("name", WRONG)
def test_an_exact_transformation_with_a_difference_at_special_values_is_refuted(name: str) -> None:
    right, wrong, kind = WRONG[name]
    one, other = model(right, kind, (40, 3)), model(wrong, kind, (40, 3))
    assert RewriteVerification(one).refute(one.graph, one.graph, is_exact=True) == ""
    assert RewriteVerification(one).refute(one.graph, other.graph, is_exact=True)


def test_a_verification_runs_at_sizes_that_differ_and_without_elements() -> None:
    verification = RewriteVerification(model(lambda b, x: b.Relu(x), shape=("n", "h", "w")))
    shapes = [np.shape(case.inputs["x"]) for case in (*verification.cases, *verification.special_cases)]
    assert all(len(set(sizes.values())) == 3 for sizes in verification.sizes) and len(verification.sizes) == 2
    assert any(0 in shape for shape in shapes)


def test_samples_of_a_new_batch_hold_values_that_must_not_spread() -> None:
    one = model(lambda b, x: b.Relu(x), shape=(1, 30))
    symbol = symbolic.symbol("n")
    samples = draw_samples(one, [FreedSize(symbol, 1, symbol, True)], {0: (symbol, 30)}, 8, 0, None)
    finite = np.isfinite(samples.arrays["x"]).all(axis=1)
    assert not finite[1] and finite[[0, 2, 3, 4]].all()
    assert len(np.unique(samples.arrays["x"][3])) < 20


def test_a_new_batch_in_which_one_sample_reaches_another_is_refuted() -> None:
    """Zero times NaN is NaN: only a sample of NaN shows it."""
    one = model(lambda b, x: b.Relu(x), shape=(1, 30))
    mixed = model(lambda b, x: b.Add(b.Relu(x), b.Multiply(b.ReduceSum(x, [0], keepdims=True), 0.0)), shape=("n", 30))
    symbol = symbolic.symbol("n")
    samples = draw_samples(one, [FreedSize(symbol, 1, symbol, True)], {0: (symbol, 30)}, 8, 0, None)
    assert not all(row.agrees for row in verify_batches(one, mixed, 1, samples, {"y": [(0, 1)]}, (1, 3, 8)))
