"""Proofs of equality, and the simplifications that rest on the same laws, hold for the types of their operands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import dovetail
from dovetail import Builder
from dovetail.cli.diff import diff
from dovetail.compare.prove.equality_proof import REAL
from dovetail.compare.verification import rewrites as proofs

ABOVE = 2**53 + 1
"""The least natural number that f64 has not."""


def power_model(base: int, exponent: int) -> bytes:
    node = helper.make_node("Pow", ["x", "one"], ["z"])
    array = helper.make_tensor("one", exponent, [], [1])
    graph = helper.make_graph(
        [node, helper.make_node("Identity", ["z"], ["y"])],
        "power",
        [helper.make_tensor_value_info("x", base, ["n"])],
        [helper.make_tensor_value_info("y", base, ["n"])],
        [array],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8).SerializeToString()


def identity_model(dtype: str) -> dovetail.Model:
    with Builder() as b:
        b.output("y", b.Identity(b.input("x", dtype, ("n",))))
    return b.model


@pytest.mark.parametrize("exponent", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64])
def test_a_power_of_one_is_its_base_only_where_the_exponent_keeps_it(exponent: int) -> None:
    """A proof called Pow(x: i64, 1.0) the same bits as x, which it is not above 2**53."""
    model = dovetail.load(power_model(TensorProto.INT64, exponent))
    x = np.array([ABOVE, -ABOVE, 3, 2**62 + 1])
    (expected,) = onnx.reference.ReferenceEvaluator(onnx.load_from_string(power_model(TensorProto.INT64, exponent))).run(
        None, {"x": x}
    )
    is_kept = exponent == TensorProto.INT64
    assert np.array_equal(expected, x) == is_kept
    assert (dovetail.prove(model, identity_model("i64")).verdict == "bits") == is_kept
    for new in (model, dovetail.simplify(model)):
        for engine in ("native", "interpreter"):
            assert np.array_equal(dovetail.compile(new, engine=engine)({"x": x})["y"], expected)


def test_integers_that_a_cast_to_float_saturates_are_not_merged() -> None:
    """i32 to f64 is exact, f64 to i8 saturates, and i32 to i8 wraps."""
    with Builder() as b:
        x = b.input("x", "i32", ("n",))
        b.output("y", b.Add(b.Cast(b.Cast(x, to="f64"), to="i8"), np.int8(0)))
    x = np.array([300, -300, 5], np.int32)
    assert dovetail.run(b.model, {"x": x})["y"].tolist() == [127, -128, 5]
    assert dovetail.run(dovetail.simplify(b.model), {"x": x})["y"].tolist() == [127, -128, 5]


def test_the_verdict_over_the_real_numbers_is_explained(tmp_path: Path) -> None:
    """(x + 1e30) - 1e30 equals x over the real numbers, and is computed as 0."""
    with Builder() as b:
        x = b.input("x", "f32", ("n",))
        b.output("y", b.Subtract(b.Add(x, np.float32(1e30)), np.float32(1e30)))
    paths = [str(tmp_path / name) for name in ("sum.onnx", "x.onnx")]
    for model, path in zip((b.model, identity_model("f32")), paths, strict=True):
        dovetail.save(model, path)
    assert dovetail.prove(*paths).verdict != "bits"
    proof = dovetail.prove(*paths, real=True)
    assert proof.verdict == "real" and REAL in repr(proof)
    assert "(x + 1e30) - 1e30" in REAL
    text = CliRunner().invoke(diff, [*paths, "--prove", "--real"]).output
    assert REAL in text


def test_simplify_that_is_proved_for_all_inputs_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """``simplify --prove`` cost 30 times ``simplify``, nearly all of it runs of what was then proved."""

    def refuse(*_: object) -> None:
        raise AssertionError("the interpreter runs")

    monkeypatch.setattr(proofs, "run_row_major", refuse)
    with Builder() as b:
        x = b.input("x", "f32", ("n", 8))
        for _ in range(20):
            x = b.Multiply(b.Identity(b.Reshape(b.Reshape(x, [-1, 2, 4]), [-1, 8])), np.float32(1))
            x = b.Tanh(x)
        b.output("y", x)
    report = dovetail.simplify(b.model, prove=True).report
    assert (report.verdict, report.sizes, report.nodes_after) == ("bits", [], 20)
    draw = np.random.default_rng(0)
    with Builder() as b:
        x = b.input("x", "f32", ("n", 3, 8, 8))
        y = b.Conv(x, draw.standard_normal((6, 3, 3, 3)).astype(np.float32))
        b.output("y", b.BatchNormalization(y, *(draw.uniform(0.5, 2, 6).astype(np.float32) for _ in range(4))))
    report = dovetail.simplify(b.model, prove=True).report
    assert (report.verdict, len(report.sizes), report.nodes_after) == ("real", 2, 1)
