"""`dovetail inspect`: implanted triggers are found, usual comparisons are none, and each rule gives its reason."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import onnx.parser
import pytest

import dovetail
import implanted_triggers
import protobuf_mutator
from dovetail import Builder, Limits, Value, cli


def classifier(dtype: str = "f32") -> onnx.ModelProto:
    """Return a network with an input of images or of token ids."""
    random = np.random.default_rng(0)
    with Builder("classifier") as b:
        x = b.input("x", dtype, ("batch", 8))
        values = x if dtype == "f32" else b.Gather(random.standard_normal((1000, 8)).astype(np.float32), x, axis=0)
        values = values if dtype == "f32" else b.ReduceMean(values, [1])
        hidden = b.Relu(b.MatMul(values, random.standard_normal((8, 6)).astype(np.float32)))
        b.output("y", b.Softmax(b.MatMul(hidden, random.standard_normal((6, 3)).astype(np.float32))))
    return onnx.ModelProto.FromString(bytes_of(b.model))


def bytes_of(model: dovetail.Model) -> bytes:
    stream = io.BytesIO()
    dovetail.save(model, stream, opset=21)
    return stream.getvalue()


def rules(report: dovetail.InspectReport) -> list[str]:
    return [item.rule for item in report.reasons]


def inspect_text(text: str, **options: Any) -> dovetail.InspectReport:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "own" : 1]>' + text)
    return dovetail.inspect(model.SerializeToString(), **options)


@pytest.mark.parametrize("form", implanted_triggers.IMPLANTS)
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_an_implanted_trigger_is_found(form: str, dtype: str) -> None:
    model = classifier(dtype)
    assert dovetail.inspect(model.SerializeToString()).is_sound
    for seed in range(8):
        changed = implanted_triggers.implant_trigger(model, form, Random(seed))
        assert changed is not None
        onnx.checker.check_model(changed)
        assert rules(dovetail.inspect(changed.SerializeToString())) == ["trigger"], seed


def test_a_trigger_in_ir_is_found(tmp_path: Path) -> None:
    changed = implanted_triggers.implant_trigger(classifier(), "hat", Random(0))
    assert changed is not None
    dovetail.save(dovetail.load(changed), tmp_path / "m.xml")
    report = dovetail.inspect(tmp_path / "m.xml")
    assert rules(report) == ["trigger"] and report.triggers[0].input == "x"


def judge_decision(folder: Path, decide: Callable[[Builder, Value], Value], dtype: str) -> list[str]:
    """Return the rules against a model whose output changes by the numbers that ``decide`` computes from an input [n, 8]."""
    with Builder("decision") as b:
        x, logits = b.input("x", dtype, ("n", 8)), b.input("logits", "f32", ("n", 3))
        b.output("y", logits + np.float32(100) * b.Cast(decide(b, x), to="f32"))
    dovetail.save(b.model, folder / "m.onnx", opset=21)
    dovetail.save(b.model, folder / "m.xml")
    first, second = (rules(dovetail.inspect(folder / name)) for name in ("m.onnx", "m.xml"))
    assert first == second
    return first


def as_float(b: Builder, test: Value) -> Value:
    return b.Cast(test, to="f32")


COUNTS: dict[str, Callable[[Builder, Value], Value]] = {
    "ReduceSum": lambda b, test: b.ReduceSum(test, [1], keepdims=True),
    **{name: lambda b, test, name=name: b.apply(name, test, np.array([1])) for name in
       ("ReduceMean", "ReduceL1", "ReduceSumSquare", "ReduceLogSum")},
    "MatMul": lambda b, test: b.MatMul(test, np.ones((8, 1), np.float32)),
    "Gemm": lambda b, test: b.Gemm(test, np.ones((8, 1), np.float32)),
    "Einsum": lambda b, test: b.Unsqueeze(b.Einsum(test, equation="nt->n"), [1]),
    "Conv": lambda b, test: b.Squeeze(b.Conv(b.Unsqueeze(test, [1]), np.ones((1, 1, 8), np.float32)), [1]),
    "AveragePool": lambda b, test: b.Squeeze(b.AveragePool(b.Unsqueeze(test, [1]), kernel_shape=(8,)), [1]),
    "GlobalAveragePool": lambda b, test: b.Squeeze(b.GlobalAveragePool(b.Unsqueeze(test, [1])), [1]),
}  # fmt: skip
"""Operators whose result is the number of equal elements, their share, or a function of the number."""

THRESHOLDS: dict[str, Callable[[Builder, Value], Value]] = {
    "Equal": lambda b, count: b.Equal(count, np.float32(1)),
    "NotEqual": lambda b, count: b.NotEqual(count, np.float32(0)),
    "Greater": lambda b, count: b.Greater(count, np.float32(0)),
    "LessEqual": lambda b, count: b.LessEqual(count, np.float32(0)),
    "Cast": lambda b, count: b.Cast(count, to="boolean"),
    "Minimum": lambda b, count: b.Minimum(count, np.float32(1)),
    "Clip": lambda b, count: b.Clip(count, np.float32(0), np.float32(1)),
    "Relu": lambda b, count: b.Relu(count - np.float32(0.5)),
    "Sigmoid": lambda b, count: b.Sigmoid(np.float32(1000) * count),
    "Tanh": lambda b, count: b.Tanh(np.float32(1000) * count),
    "Ceil": lambda b, count: b.Ceil(count),
    "Floor": lambda b, count: b.Floor(count),
    "Round": lambda b, count: b.Round(count),
    "Sign": lambda b, count: b.Sign(count),
}

DECISIONS: dict[str, Callable[[Builder, Value], Value]] = {
    **{name: lambda b, test, name=name: b.apply(name, test, np.array([1])) for name in
       ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceLogSumExp")},
    "ReduceAny": lambda b, test: b.ReduceAny(b.Cast(test, to="boolean"), [1], keepdims=True),
    "ReduceAll": lambda b, test: b.ReduceAll(b.Cast(test, to="boolean"), [1], keepdims=True),
    "MaxPool": lambda b, test: b.Squeeze(b.MaxPool(b.Unsqueeze(test, [1]), kernel_shape=(8,))[0], [1]),
    "GlobalMaxPool": lambda b, test: b.Squeeze(b.GlobalMaxPool(b.Unsqueeze(test, [1])), [1]),
    "TopK": lambda b, test: b.TopK(test, 1)[0],
}  # fmt: skip
"""Operators that make one decision of several tests."""


@pytest.mark.parametrize(
    ("count", "threshold"), [*((name, "Greater") for name in COUNTS), *(("ReduceSum", name) for name in THRESHOLDS)]
)
def test_a_compared_count_is_a_reason(count: str, threshold: str, tmp_path: Path) -> None:
    def numbers(b: Builder, x: Value) -> Value:
        return COUNTS[count](b, b.Cast(b.Equal(x, 555), to="f32"))

    assert judge_decision(tmp_path, lambda b, x: THRESHOLDS[threshold](b, numbers(b, x)), "i64") == ["trigger"]
    assert not judge_decision(tmp_path, numbers, "i64")


@pytest.mark.parametrize("form", DECISIONS)
def test_one_decision_of_several_tests_is_a_reason(form: str, tmp_path: Path) -> None:
    def decide(b: Builder, x: Value) -> Value:
        return DECISIONS[form](b, b.Cast(b.Equal(x, 555), to="f32"))

    assert judge_decision(tmp_path, decide, "i64") == ["trigger"]


DISTANCES: dict[str, Callable[[Builder, Value], Value]] = {
    "Abs": lambda b, d: b.Abs(d),
    "Multiply": lambda b, d: d * d,
    "Power": lambda b, d: b.Power(d, np.float32(2)),
    "Sqrt": lambda b, d: b.Sqrt(d * d),
    "SquaredDifference": lambda b, d: b.SquaredDifference(d, np.float32(0.125)),
    "sum of halves": lambda b, d: b.Relu(d) + b.Relu(b.Negative(d)),
    "clipped halves": lambda b, d: b.Maximum(b.Clip(d, np.float32(0)), b.Negative(b.Minimum(d, np.float32(0)))),
    "greater of both signs": lambda b, d: b.Maximum(d, b.Negative(d)),
    "moved": lambda b, d: b.Transpose(b.Transpose(b.Abs(d), [1, 0]), [1, 0]),
    "cast": lambda b, d: b.Cast(b.Cast(b.Abs(d), to="f64"), to="f32"),
    "product": lambda b, d: b.Abs(d) * d * d,
}
"""Distances between the elements of an input and a constant, from their difference ``d``."""

NORMS: dict[str, Callable[[Builder, Value], Value]] = {
    **{name: lambda b, d, name=name: b.apply(name, d, np.array([1])) for name in
       ("ReduceL1", "ReduceL2", "ReduceSumSquare")},
    **{name: lambda b, d, name=name: b.apply(name, b.Abs(d), np.array([1])) for name in
       ("ReduceSum", "ReduceMean", "ReduceMax")},
    **{name: lambda b, d, name=name: COUNTS[name](b, b.Pad(b.Abs(d), np.array([0, 0, 0, 5]))) for name in
       ("MatMul", "Gemm", "Einsum", "Conv", "AveragePool", "GlobalAveragePool")},
    **{name: lambda b, d, name=name: DECISIONS[name](b, b.Pad(b.Abs(d), np.array([0, 0, 0, 5]))) for name in
       ("MaxPool", "GlobalMaxPool", "TopK")},
    "sum of slices": lambda b, d: b.Abs(d[:, :1]) + b.Abs(d[:, 1:2]),
    "maximum of slices": lambda b, d: b.Maximum(b.Abs(d[:, :1]), b.Abs(d[:, 1:2])),
    "concatenation": lambda b, d: b.ReduceMax(b.Concat(b.Abs(d[:, :1]), b.Abs(d[:, 1:2]), axis=1), [1], keepdims=True),
}  # fmt: skip
"""Norms of a vector of differences."""

HATS: dict[str, Callable[[Builder, Value], Value]] = {
    **{name: lambda b, m, name=name: b.apply(name, m) for name in
       ("Relu", "LeakyRelu", "Elu", "Sigmoid", "HardSigmoid", "Softplus", "Tanh", "Softsign", "Sign", "Floor", "Ceil", "Round",
        "Gelu", "HardSwish", "Mish", "Erf")},
    "PRelu": lambda b, m: b.PRelu(m, np.float32([0.5])),
    "twice the Relu": lambda b, m: b.Abs(m) + m,
    "Clip": lambda b, m: b.Clip(m, np.float32(0), np.float32(1)),
    "Maximum": lambda b, m: b.Maximum(m, np.float32(0)),
    "Minimum": lambda b, m: b.Minimum(m, np.float32(0)),
    "Greater": lambda b, m: b.Greater(m, np.float32(0)),
    "Cast": lambda b, m: b.Cast(b.Cast(m, to="i32"), to="boolean"),
}  # fmt: skip
"""Functions of 1 - k * distance that tell a small distance from others."""


INTERVALS: dict[str, Callable[[Builder, Value, Any, Any], Value]] = {
    "And": lambda b, x, low, high: b.And(b.GreaterEqual(x, low), b.LessEqual(x, high)),
    "reversed": lambda b, x, low, high: b.And(b.Less(low, x), b.Greater(high, x)),
    "Not of Or": lambda b, x, low, high: b.Not(b.Or(b.Less(x, low), b.Greater(x, high))),
    "And of Not": lambda b, x, low, high: b.And(b.Not(b.Less(x, low)), b.Not(b.Greater(x, high))),
    "Where": lambda b, x, low, high: b.Where(b.Greater(x, low), b.Less(x, high), False),
    "Multiply": lambda b, x, low, high: as_float(b, b.Greater(x, low)) * as_float(b, b.Less(x, high)),
    "Minimum": lambda b, x, low, high: b.Minimum(as_float(b, b.Greater(x, low)), as_float(b, b.Less(x, high))),
    "Add": lambda b, x, low, high: b.Greater(as_float(b, b.Greater(x, low)) + as_float(b, b.Less(x, high)), np.float32(1.5)),
    "moved": lambda b, x, low, high: b.And(b.Unsqueeze(b.Greater(x, low), [0]), b.Unsqueeze(b.Less(x, high), [0]))[0],
    "of all elements": lambda b, x, low, high: b.And(
        b.ReduceAll(b.Greater(x, low), [1], keepdims=True), b.ReduceAll(b.Less(x, high), [1], keepdims=True)
    ),
    "of two slices": lambda b, x, low, high: b.And(
        b.And(b.Greater(x[:, :1], low), b.Less(x[:, 1:], np.float32(0.501))),
        b.And(b.Greater(x[:, 1:], np.float32(0.5)), b.Less(x[:, :1], high)),
    ),
    "in the other order": lambda b, x, low, high: b.And(
        b.And(b.Greater(x[:, :1], low), b.Greater(x[:, 1:], np.float32(0.5))),
        b.And(b.Less(x[:, :1], high), b.Less(x[:, 1:], np.float32(0.501))),
    ),
}
"""Tests whether elements are between ``low`` and ``high``."""


@pytest.mark.parametrize("form", INTERVALS)
def test_a_small_interval_is_a_reason(form: str, tmp_path: Path) -> None:
    def decide(b: Builder, x: Value) -> Value:
        inside = as_float(b, INTERVALS[form](b, x[:, :2], np.float32(0.25), np.float32(0.251)))
        return b.ReduceMin(inside, [1], keepdims=True)

    assert judge_decision(tmp_path, decide, "f32") == ["trigger"]


@pytest.mark.parametrize(
    ("norm", "distance", "hat"),
    [
        *(("ReduceMax", name, "Relu") for name in DISTANCES),
        *((name, None, "Greater") for name in NORMS),
        *(("ReduceMax", "Abs", name) for name in HATS),
    ],
)
def test_a_small_distance_is_a_reason(norm: str, distance: str | None, hat: str, tmp_path: Path) -> None:
    def decide(b: Builder, x: Value) -> Value:
        difference = b.Cast(x[:, :3], to="f32") - np.float32(0.25)
        items = difference if distance is None else DISTANCES[distance](b, difference)
        return HATS[hat](b, np.float32(1) - np.float32(100) * NORMS[norm](b, items))

    for dtype in ("f32", "u8", "i64"):
        assert judge_decision(tmp_path, decide, dtype) == ["trigger"]


def attention_mask(b: Builder) -> Value:
    mask, scores = b.input("mask", "i64", ("n", "t")), b.input("scores", "f32", ("n", "t"))
    return b.Softmax(b.Where(b.Equal(mask, 0), np.float32(-1e9), scores))


def float_mask(b: Builder) -> Value:
    mask, scores = b.input("mask", "f32", ("n", "t")), b.input("scores", "f32", ("n", "t"))
    return scores + b.Multiply(b.Cast(b.Equal(mask, np.float32(0)), to="f32"), np.float32(-1e4))


def padding_positions(b: Builder) -> Value:
    ids = b.input("ids", "i64", ("n", "t"))
    kept = b.Cast(b.Not(b.Equal(ids, 1)), to="i64")
    return b.Gather(np.ones((9, 4), np.float32), b.Multiply(b.CumSum(kept, 1), kept), axis=0)


def mean_of_tokens(b: Builder) -> Value:
    ids, hidden = b.input("ids", "i64", ("n", "t")), b.input("hidden", "f32", ("n", "t"))
    mask = b.Cast(b.NotEqual(ids, 0), to="f32")
    return b.ReduceSum(hidden * mask, [1]) / b.Maximum(b.ReduceSum(mask, [1]), np.float32(1e-9))


def clipped_mean_of_tokens(b: Builder) -> Value:
    ids, hidden = b.input("ids", "i64", ("n", "t")), b.input("hidden", "f32", ("n", "t"))
    mask = b.Cast(b.NotEqual(ids, 0), to="f32")
    greatest = np.float32(np.finfo(np.float32).max)
    return b.ReduceSum(hidden * mask, [1]) / b.Clip(b.Clip(b.ReduceSum(mask, [1]), np.float32(1)), np.float32(0), greatest)


STEPS: dict[str, Callable[[Builder, Value], Value]] = {
    **{name: lambda b, d, name=name: b.apply(name, d) for name in ("Sign", "Floor", "Ceil", "HardSigmoid", "ThresholdedRelu")},
    "Minimum": lambda b, d: b.Minimum(d, np.float32(1e-3)),
    "Clip": lambda b, d: b.Clip(d, np.float32(0), np.float32(1e-3)),
}
"""Functions of a distance, without an added constant, that tell 0 from other distances."""

ROUNDINGS: dict[str, Callable[[Builder, Value], Value]] = {
    **{name: lambda b, x, name=name: b.apply(name, x) for name in ("Floor", "Ceil", "Round")},
    "Clip": lambda b, x: b.Clip(x, np.float32(0), np.float32(255)),
    "extremes": lambda b, x: b.Maximum(b.Minimum(x, np.float32(255)), np.float32(0)),
}


@pytest.mark.parametrize("form", STEPS)
def test_a_step_of_a_distance_is_a_reason(form: str) -> None:
    with Builder("step") as b:
        x, logits = b.input("x", "f32", ("n", 3)), b.input("logits", "f32", ("n", 3))
        b.output("y", logits + np.float32(100) * STEPS[form](b, b.Abs(x - np.float32(0.25))))
    assert rules(dovetail.inspect(bytes_of(b.model))) == ["trigger"]


@pytest.mark.parametrize("dtype", ["u8", "i64"])
@pytest.mark.parametrize("form", ROUNDINGS)
def test_a_test_of_a_rounded_input_is_a_reason(form: str, dtype: str) -> None:
    with Builder("rounding") as b:
        x, logits = b.input("x", dtype, ("n", 8)), b.input("logits", "f32", ("n", 1))
        part = ROUNDINGS[form](b, b.Cast(x[:, :1], to="f32") * np.float32(0.5))
        b.output("y", logits + b.Cast(b.Equal(part, np.float32(77)), to="f32"))
    assert rules(dovetail.inspect(bytes_of(b.model))) == ["trigger"]


def test_a_loop_that_ends_by_a_test_is_a_reason() -> None:
    ends = "c = Abs (a) s = Gather (x, zero) on = Equal (s, key)"
    constants = ", int64 m = {9}, int64 zero = {0}, float key = {0.75}"
    assert rules(inspect_text(loop(ends, "m", constants))) == ["trigger"]


def position_of_a_token(b: Builder) -> Value:
    ids, hidden = b.input("ids", "i64", ("n", 16)), b.input("hidden", "f32", ("n", 16))
    ends = b.Cast(b.Equal(ids, 2), to="i32")
    return b.GatherElements(hidden, b.TopK(ends, 1, axis=1)[1], axis=1) + b.GatherElements(hidden, b.ArgMax(ends, axis=1), axis=1)


def safe_division(b: Builder) -> Value:
    x = b.input("x", "f32", ("n", 4))
    norm = b.ReduceL2(x, [1], keepdims=True)
    return x / b.Where(b.Equal(norm, np.float32(0)), np.float32(1), norm)


def bounds_of_other_inputs(b: Builder) -> Value:
    p, q, r, x = (b.input(name, "f32", ("n", 1)) for name in "pqrx")
    inside = b.And(b.And(b.Greater(p, np.float32(0.25)), b.Less(q, np.float32(0.251))), b.Less(r, np.float32(7)))
    return b.Where(inside, b.Negative(x), x)


def wide_interval(b: Builder) -> Value:
    x = b.input("x", "f32", ("n", 4))
    return b.Where(b.And(b.Greater(x, np.float32(0.25)), b.Less(x, np.float32(0.5))), b.Negative(x), x)


def centred_norm(b: Builder) -> Value:
    centred = b.input("x", "f32", ("n", 4)) - np.float32([0.1, 0.2, 0.3, 0.4])
    return centred / b.Sqrt(b.ReduceMean(centred * centred, [1], keepdims=True) + np.float32(1e-5))


def centroids(b: Builder) -> Value:
    difference = b.Unsqueeze(b.input("x", "f32", ("n", 4)), [1]) - np.arange(20, dtype=np.float32).reshape(1, 5, 4) / 7
    return b.Softmax(b.Negative(b.Sqrt(b.Maximum(b.ReduceSum(difference * difference, [2]), np.float32(0)))))


def mode(b: Builder) -> Value:
    rate, x = b.input("rate", "i64", ()), b.input("x", "f32", ("n",))
    return b.Where(b.Equal(rate, 16000), x * np.float32(2), x)


def one_hot(b: Builder) -> Value:
    ids = b.input("ids", "i64", ("n", 6))
    hot = b.Cast(b.Equal(b.Unsqueeze(ids, [2]), np.arange(20)), to="f32")
    return b.Relu(b.ReduceSum(b.MatMul(hot, np.ones((20, 3), np.float32)), [1]))


@pytest.mark.parametrize("build",
    [
        attention_mask, float_mask, padding_positions, mean_of_tokens, clipped_mean_of_tokens, safe_division, mode, one_hot,
        position_of_a_token,
        bounds_of_other_inputs, wide_interval, centred_norm, centroids,
    ],
)  # fmt: skip
def test_a_usual_comparison_is_no_reason(build: Callable[[Builder], Value]) -> None:
    with Builder("usual") as b:
        b.output("y", build(b))
    report = dovetail.inspect(bytes_of(b.model))
    assert report.is_sound, report


def loop(body: str, count: str = "n", constants: str = "", nodes: str = "") -> str:
    return (
        f"g (float[2] x{'' if constants else ', int64 n'}) => (float[2] y) <bool true = {{1}}{constants}> {{ {nodes}"
        f" y = Loop ({count}, true, x) <body = b (int64 i, bool go, float[2] a) => (bool on, float[2] c) {{ {body} }}> }}"
    )


DATA_ENDS = "c = Abs (a) s = ReduceSum <keepdims = 0> (c) zero = Constant <value_float = 0.0> () on = Greater (s, zero)"


def test_a_loop_without_a_bound_is_a_reason() -> None:
    assert rules(inspect_text(loop(DATA_ENDS, "", ", int64 m = {1}"))) == ["loop"]
    assert rules(inspect_text(loop(DATA_ENDS, "m", ", int64 m = {9223372036854775807}"))) == ["loop"]
    assert rules(inspect_text(loop(DATA_ENDS, "m", ", int64 k = {1099511627776}", "m = Add (k, k)"))) == ["loop"]
    bounded = inspect_text(loop(DATA_ENDS, "m", ", int64 m = {100}"))
    assert bounded.is_sound and bounded.loops[0]["bound"] == "100" and bounded.costs["steps"] == "301"
    assert inspect_text(loop(DATA_ENDS)).loops[0]["bound"] == "the value n"


def test_costs_are_expressions_in_the_open_sizes(tmp_path: Path) -> None:
    with Builder("costs") as b:
        x = b.input("x", "f32", ("n", 4))
        b.output("y", b.Relu(b.Concat(x, x, axis=1)))
    dovetail.save(b.model, tmp_path / "m.onnx")
    report = dovetail.inspect(tmp_path / "m.onnx")
    assert report.name == "m.onnx"
    assert report.costs["largest tensor, bytes"] == "32*n" and report.costs["live values, bytes"] == "64*n"
    assert (
        not report.notes
        and report.costs["steps"] == "2"
        and report.costs["files, bytes"] == str((tmp_path / "m.onnx").stat().st_size)
    )


def test_a_size_that_depends_on_data_is_a_note() -> None:
    report = inspect_text("g (int64[1] s) => (y) { f = ConstantOfShape (s) y = ReduceSum (f) }")
    assert report.is_sound and [item.rule for item in report.notes] == ["cost"]


def test_files_and_constants_have_their_digests(tmp_path: Path) -> None:
    weights = np.arange(1024, dtype=np.float32)
    with Builder("digests") as b:
        b.output("y", b.input("x", "f32", (1024,)) + b.constant(weights, name="W"))
    dovetail.save(b.model, tmp_path / "m.onnx", external="w.data")
    report = dovetail.inspect(tmp_path / "m.onnx")
    digests = {Path(row["file"]).name: row["sha256"] for row in report.files}
    assert digests == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("m.onnx", "w.data")}
    assert [row["is_external"] for row in report.files] == [False, True]
    assert report.digests[0]["sha256"] == hashlib.sha256(weights.tobytes()).hexdigest()
    assert report.is_sound and "file" in [item.rule for item in report.notes]


def test_other_reasons() -> None:
    assert rules(dovetail.inspect(b"no model")) == ["load"]
    assert rules(inspect_text("g (float[2] x) => (float[2] y) { y = own.Secret (x) }")) == ["private operator"]
    assert rules(inspect_text("g (float[2] x) => (y) { y = MatMul (x, x) z = Concat <axis = 7> (x, x) }")) == ["rule"]
    big = "g (float[2] x) => (y) <int64[2] s = {549755813888, 2}> { z = Expand (x, s) y = Neg (z) }"
    assert rules(inspect_text(big, limits=Limits(memory=1 << 30))) == ["cost"]
    growth = " ".join(f"m{index + 1} = Concat <axis = 0> (m{index}, m{index})" for index in range(40))
    assert rules(inspect_text(f"g (float[n] m0) => (m40) {{ {growth} }}", limits=Limits(memory=1 << 30))) == ["cost"]
    with Builder("red\x1b[31m") as b:
        b.output("y", b.Relu(b.input("x", "f32", (2,))))
    assert rules(dovetail.inspect(bytes_of(b.model))) == ["text"]


def test_the_command_has_text_json_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = implanted_triggers.implant_trigger(classifier(), "equal_patch", Random(1))
    assert changed is not None
    for name, model, code in (("good", classifier(), 0), ("bad", changed, 1)):
        path, page = tmp_path / f"{name}.onnx", tmp_path / f"{name}.html"
        path.write_bytes(model.SerializeToString())
        for arguments in ([], ["--json", "-o", str(page)]):
            with pytest.raises(SystemExit) as caught:
                cli.main(["inspect", str(path), *arguments])
            assert caught.value.code == code
            out, err = capsys.readouterr()
            if arguments:
                found = json.loads(out)
                assert found["sound"] is not code and bool(found["reasons"]) is bool(code)
                ElementTree.fromstring(page.read_text().partition("\n")[2])
            else:
                assert ("trigger" in out) is bool(code) and "SHA-256" in out and "reason" in out + err
    with pytest.raises(SystemExit) as caught:
        cli.main(["inspect", str(tmp_path / "missing.onnx")])
    assert caught.value.code == 3


def test_a_mutant_has_a_verdict_and_a_sound_one_breaks_no_rule() -> None:
    random = Random(5)
    seeds = [classifier().SerializeToString(), classifier("i64").SerializeToString()]
    seeds.append(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + loop(DATA_ENDS)).SerializeToString())
    limits = Limits(memory=1 << 26, trips=2000, seconds=3)
    sound = 0
    for _ in range(200):
        data = protobuf_mutator.mutate(random.choice(seeds), random.choice(seeds), ("Relu", "Equal", "If"), random)
        report = dovetail.inspect(data, limits=limits)
        report.html()
        if report.is_sound:
            sound += 1
            assert not [item for item in dovetail.check(dovetail.load(data, limits=limits)) if item.severity == "error"]
    assert 0 < sound < 200
