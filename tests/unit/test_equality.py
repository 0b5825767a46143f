"""Proofs of equality: what is proved, what is never proved, and certificates."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dovetail
from dovetail.cli import main
from dovetail.compare.prove.equality_proof import EqualityProof
from dovetail.compare.prove.model_terms import number_terms
from dovetail.compare.prove.real_terms import RealTerms
from dovetail.errors import FormatError, RuleError
from dovetail.ir.state import State
from dovetail.laws.table import real_rules
from dovetail.laws.terms.keys import freeze
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.elementwise.binary import Add, Multiply
from numbering import number_values


def model_of(write: Any) -> dovetail.Model:
    """Build a model by ``write(b)``."""
    with dovetail.Builder() as b:
        write(b)
    return b.model


def two_inputs(expression: Any, shapes: Any = (("n", 3), ("n", 3)), dtype: str = "f32") -> dovetail.Model:
    """Build a model of one expression over the inputs x and y."""

    def write(b: Any) -> None:
        x, y = (b.input(name, dtype, shape) for name, shape in zip("xy", shapes, strict=True))
        b.output("z", expression(b, x, y))

    return model_of(write)


ROW = np.float32([1, 2, 3])
MATRIX = np.float32(np.arange(9).reshape(3, 3))
SAME_BITS = {
    "order of a sum": (lambda b, x, y: x + y, lambda b, x, y: y + x),
    "difference": (lambda b, x, y: x - y, lambda b, x, y: x + b.Negative(y)),
    "two transposes": (lambda b, x, y: b.Transpose(b.Transpose(x, [1, 0]) * 2, [1, 0]) + y, lambda b, x, y: x * 2 + y),
    "identity": (lambda b, x, y: b.Identity(x) + y, lambda b, x, y: b.Add(x, y)),
    "comparison": (lambda b, x, y: b.Greater(x, y), lambda b, x, y: b.Less(y, x)),
    "slice of slice": (lambda b, x, y: x[:, 1:][:, 1:] + y[:, :1], lambda b, x, y: x[:, 2:] + y[:, :1]),
    "split": (lambda b, x, y: b.Split(x, [1, 2], axis=1, outputs=2)[1], lambda b, x, y: x[:, 1:]),
    "gather": (lambda b, x, y: b.Gather(x, 1, axis=1), lambda b, x, y: b.Squeeze(x[:, 1:2], [1])),
    "reshape of a computed shape": (
        lambda b, x, y: b.Reshape(x, b.Concat(b.Gather(b.Shape(x), [0]), [3, 1], axis=0)),
        lambda b, x, y: b.Unsqueeze(x, [-1]),
    ),
    "slice of concat": (lambda b, x, y: b.Concat(x, y, axis=1)[:, 3:], lambda b, x, y: b.Identity(y)),
    "kept axes": (lambda b, x, y: b.ReduceSum(x, [1], keepdims=False), lambda b, x, y: b.Squeeze(b.ReduceSum(x, [-1]), [1])),
    "expand": (lambda b, x, y: b.Expand(b.constant(ROW), b.Shape(x)) * y, lambda b, x, y: y * ROW),
    "pads of one axis": (lambda b, x, y: b.Pad(x, [0, 1, 0, 2]), lambda b, x, y: b.Pad(x, [1, 2], np.float32(0), [1])),
    "pads by another number": (
        lambda b, x, y: b.Pad(x, [0, 1, 0, 2], np.float32(2)),
        lambda b, x, y: b.Pad(x, [1, 2], b.constant(np.float32(2)), [-1]),
    ),
    "nested concats": (lambda b, x, y: b.Concat(b.Concat(x, y, axis=1), x, axis=1), lambda b, x, y: b.Concat(x, y, x, axis=-1)),
    "concat of slices of a sum": (
        lambda b, x, y: b.Concat((x + y)[:, :1], (x + y)[:, 1:], b.Exp(x), axis=1),
        lambda b, x, y: b.Concat(x + y, b.Exp(x), axis=1),
    ),
    "concat with nothing": (lambda b, x, y: b.Concat(x, y[:, :0], axis=1) + y, lambda b, x, y: x + y),
    "tile of an axis of size 1": (
        lambda b, x, y: b.Tile(x[:, :1], [1, 3]) + y,
        lambda b, x, y: b.Expand(x[:, :1], b.Shape(y)) + y,
    ),
    "tile of ones": (lambda b, x, y: b.Tile(x, [1, 1]) + y, lambda b, x, y: x + y),
    "tile before broadcasting": (lambda b, x, y: b.Tile(x[:, :1], [1, 3]) + y, lambda b, x, y: x[:, :1] + y),
    "transposed constant": (
        lambda b, x, y: b.MatMul(x, b.Transpose(b.constant(MATRIX), [1, 0])),
        lambda b, x, y: b.MatMul(x, b.constant(MATRIX.T.copy())),
    ),
    "transpose that sorts": (lambda b, x, y: b.Transpose(x, [0, 1]) + y, lambda b, x, y: x + y),
    "filled shape": (lambda b, x, y: b.ConstantOfShape(b.Shape(x), np.float32(2)) * y, lambda b, x, y: y * 2),
    "double negation": (lambda b, x, y: b.Negative(b.Negative(x)) + y, lambda b, x, y: x + y),
    "repeated relu": (lambda b, x, y: b.Relu(b.Relu(x)) + y, lambda b, x, y: b.Relu(x) + y),
    "power of two": (lambda b, x, y: x / 4 + y, lambda b, x, y: x * 0.25 + y),
    "gather of a range": (lambda b, x, y: b.Gather(x, [1, 2], axis=1), lambda b, x, y: x[:, 1:]),
    "axes of size 1": (lambda b, x, y: b.Squeeze(b.Add(b.Unsqueeze(x, [0]), b.Unsqueeze(y, [0])), [0]), lambda b, x, y: x + y),
    "negated condition": (lambda b, x, y: b.Where(b.Not(b.Less(x, y)), x, y), lambda b, x, y: b.Where(b.Less(x, y), y, x)),
    "not equal": (lambda b, x, y: b.NotEqual(x, y), lambda b, x, y: b.Not(b.Equal(y, x))),
    "sum": (lambda b, x, y: b.Sum(x, y), lambda b, x, y: y + x),
    "squared difference": (lambda b, x, y: b.SquaredDifference(x, y), lambda b, x, y: (x - y) * (x - y)),
    "split of a concat": (
        lambda b, x, y: b.Split(b.Concat(x, y, axis=1), [3, 3], axis=1, outputs=2)[1] + x,
        lambda b, x, y: y + x,
    ),
    "transposes around": (
        lambda b, x, y: b.Transpose(b.Transpose(x, [1, 0]) + b.Transpose(y, [1, 0]), [1, 0]),
        lambda b, x, y: x + y,
    ),
    "slice of a sum": (lambda b, x, y: (x + y)[:, 1:], lambda b, x, y: x[:, 1:] + y[:, 1:]),
    "slice from the end": (lambda b, x, y: x[:, -2:] + y[:, -2:], lambda b, x, y: x[:, 1:] + y[:, 1:]),
    "slice of a transpose": (
        lambda b, x, y: b.Transpose(x, [1, 0])[1:] + b.Transpose(y, [1, 0])[1:],
        lambda b, x, y: b.Transpose((x + y)[:, 1:], [1, 0]),
    ),
    "slice of an expand": (lambda b, x, y: b.Expand(x[:, :1], b.Shape(y))[:, 1:] + y[:, 1:], lambda b, x, y: x[:, :1] + y[:, 1:]),
    "gemm": (lambda b, x, y: b.Gemm(x, MATRIX, ROW), lambda b, x, y: b.MatMul(x, MATRIX) + ROW),
    "reshape of a reshape": (lambda b, x, y: b.Reshape(b.Reshape(x, [-1]), b.Shape(y)) + y, lambda b, x, y: x + y),
    "flatten": (lambda b, x, y: b.Flatten(x, axis=1) + y, lambda b, x, y: x + y),
    "cast to its type": (lambda b, x, y: b.Cast(x, to="f32") + y, lambda b, x, y: x + y),
    "cast like": (lambda b, x, y: b.CastLike(b.Cast(x, to="f64"), y), lambda b, x, y: b.Cast(b.Cast(x, to="f64"), to="f32")),
    "exact casts": (lambda b, x, y: b.Cast(b.Cast(x, to="f64"), to="f32") + y, lambda b, x, y: x + y),
    "product with one": (lambda b, x, y: x * 1 + y, lambda b, x, y: x + y),
    "chosen by a constant": (lambda b, x, y: b.Where(np.array(True), x, y) + y, lambda b, x, y: x + y),
    "equal choices": (lambda b, x, y: b.Where(b.Less(x, y), x, x) + y, lambda b, x, y: x + y),
    "less or equal": (lambda b, x, y: b.LessEqual(x, y), lambda b, x, y: b.GreaterEqual(y, x)),
    "expand twice": (
        lambda b, x, y: b.Expand(b.Expand(x[:1, :1], [1, 3]), b.Shape(y)) * 2,
        lambda b, x, y: b.Expand(x[:1, :1], b.Shape(y)) * 2,
    ),
}

SAME_REALS = {
    "order of three": (lambda b, x, y: (x + y) + 1, lambda b, x, y: x + (y + 1)),
    "quotient": (lambda b, x, y: x / 3 + y, lambda b, x, y: x * np.float32(1 / 3) + y),
    "square": (lambda b, x, y: b.Power(x, 2.0) + y, lambda b, x, y: x * x + y),
    "layer normalization": (
        lambda b, x, y: b.LayerNormalization(x, ROW, ROW, axis=-1),
        lambda b, x, y: b.MeanVarianceNormalization(x, [-1], eps=9.999999747378752e-06) * ROW + ROW,
    ),
    "gelu": (lambda b, x, y: b.Gelu(x), lambda b, x, y: 0.5 * x * (b.Erf(x / np.float32(np.sqrt(2))) + 1)),
    "scaled weights": (
        lambda b, x, y: b.MatMul(x, np.float32(np.arange(9).reshape(3, 3))) * np.float32([0.5, 3, 7]),
        lambda b, x, y: b.MatMul(x, np.float32(np.arange(9).reshape(3, 3) * np.float32([0.5, 3, 7]))),
    ),
    "stored constants that cancel": (
        lambda b, x, y: ((x + y) + np.float32(1)) + BELOW_ONE * np.float32(-1),
        lambda b, x, y: x + (y + (np.float32(1) - BELOW_ONE)),
    ),
}  # fmt: skip

BELOW_ONE: np.float32 = np.nextafter(np.float32(1), np.float32(0))
ABOVE_THIRD = np.nextafter(np.float32(1) / np.float32(3), np.float32(1))
DIFFERENT = {
    "order of a difference": (lambda b, x, y: x - y, lambda b, x, y: y - x),
    "one constant": (lambda b, x, y: x * np.float32([1, 2, 3]) + y, lambda b, x, y: x * np.float32([1, 2, 4]) + y),
    "axis": (lambda b, x, y: b.CumSum(x, b.constant(0)), lambda b, x, y: b.CumSum(x, b.constant(1))),
    "order of parts": (lambda b, x, y: b.Concat(x[:, 1:], x[:, :1], y, axis=1), lambda b, x, y: b.Concat(x, y, axis=1)),
    "parts that overlap": (
        lambda b, x, y: b.Concat(x[:, :2], x[:, 1:2], y, axis=1), lambda b, x, y: b.Concat(x, y, axis=1),
    ),
    "parts of two axes": (
        lambda b, x, y: b.Concat(x[:1, :1], x[1:2, 1:], axis=1), lambda b, x, y: x[:1],
    ),
    "permutation": (lambda b, x, y: b.MatMul(x, b.Transpose(y, [1, 0])), lambda b, x, y: b.MatMul(y, b.Transpose(x, [1, 0]))),
    "slice": (lambda b, x, y: x[:, 1:], lambda b, x, y: x[:, :-1]),
    "integer detour": (
        lambda b, x, y: b.Cast(b.Cast(b.Cast(x, to="i32"), to="f64"), to="i8"),
        lambda b, x, y: b.Cast(b.Cast(x, to="i32"), to="i8"),
    ),
    "text of another type": (lambda b, x, y: b.Cast(b.Cast(x, to="f64"), to="string"), lambda b, x, y: b.Cast(x, to="string")),
    "text of booleans": (
        lambda b, x, y: b.Cast(b.Cast(b.Less(x, y), to="i32"), to="string"),
        lambda b, x, y: b.Cast(b.Less(x, y), to="string"),
    ),
    "condition": (lambda b, x, y: b.Where(b.Less(x, y), x, y), lambda b, x, y: b.Where(b.Less(x, y), y, x)),
    "reshape that refuses": (lambda b, x, y: b.Reshape(b.Reshape(x, [6]), b.Shape(x)), lambda b, x, y: b.Identity(x)),
    "columns and rows": (
        lambda b, x, y: b.LessEqual(b.Reshape(x[:, 0], [1, -1]), b.Reshape(x[:, 0], [-1, 1])),
        lambda b, x, y: b.LessEqual(b.Reshape(x[:, 0], [-1, 1]), b.Reshape(x[:, 0], [1, -1])),
    ),
    "epsilon": (
        lambda b, x, y: b.MeanVarianceNormalization(x, [1], eps=1e-5),
        lambda b, x, y: b.MeanVarianceNormalization(x, [1], eps=1e-2),
    ),
    "computed constants that cancel": (
        lambda b, x, y: ((x + 3) * ABOVE_THIRD - 1) * np.float32(1e8),
        lambda b, x, y: (x * ABOVE_THIRD) * np.float32(1e8),
    ),
    "computed constants near a stored one that cancels": (
        lambda b, x, y: b.Concat((x + 1) - BELOW_ONE, ((y + 3) * ABOVE_THIRD - BELOW_ONE) * np.float32(1e8), axis=1),
        lambda b, x, y: b.Concat(
            x + (np.float32(1) - BELOW_ONE), (y * ABOVE_THIRD + (np.float32(1) - BELOW_ONE)) * np.float32(1e8), axis=1
        ),
    ),
    "computed constants below the normal numbers": (
        lambda b, x, y: b.Concat(
            x * np.float32(0), ((x * np.float32(1e-30)) * (y * np.float32(1e-20))) * (x * np.float32(1e30)) * (y * 1e20), axis=1
        ),
        lambda b, x, y: b.Concat(x * np.float32(0), (x * y * x * y) * np.float32(0), axis=1),
    ),
    "slice of Softmax over several axes": (
        lambda b, x, y: b.Softmax(b.Unsqueeze(x, [0]), axis=1, coerce_to_2d=True)[:, :, 1:],
        lambda b, x, y: b.Softmax(b.Unsqueeze(x, [0])[:, :, 1:], axis=1, coerce_to_2d=True),
    ),
    "dropout in training": (lambda b, x, y: b.Dropout(x, np.float32(0.5), True), lambda b, x, y: b.Dropout(x)),
    "weight": (
        lambda b, x, y: b.MatMul(x, np.float32(np.eye(3))) * np.float32([2, 3, 4]),
        lambda b, x, y: b.MatMul(x, np.float32(np.diag([2, 3, 4.001]))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_BITS)
def test_equal_bits_are_proved_and_hold(name: str) -> None:
    a, b = (two_inputs(each) for each in SAME_BITS[name])
    assert dovetail.prove(a, b).verdict == "bits"
    inputs = random_arrays(2)
    assert_same_bits(dovetail.interpret(a, inputs), dovetail.interpret(b, inputs))


@pytest.mark.parametrize("name", SAME_REALS)
def test_equal_reals_are_proved_with_their_rewrites(name: str) -> None:
    a, b = (two_inputs(each) for each in SAME_REALS[name])
    assert dovetail.prove(a, b).verdict == "open"
    proof = dovetail.prove(a, b, real=True)
    assert (proof.verdict, bool(proof.rewrites), proof.regions) == ("real", True, [])
    inputs = random_arrays(5)
    for x, y in zip(dovetail.interpret(a, inputs).values(), dovetail.interpret(b, inputs).values(), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_models_are_never_proved(name: str) -> None:
    a, b = (two_inputs(each) for each in DIFFERENT[name])
    for real in (False, True):
        proof = dovetail.prove(a, b, real=real)
        assert proof.verdict in ("open", "different")
        assert proof.regions
    with pytest.raises(RuleError) as error:
        proof.certificate()
    assert error.value.code == "argument.conflict"


def random_arrays(n: int) -> dict[str, Any]:
    generator = np.random.default_rng(3)
    return {name: generator.normal(size=(n, 3)).astype(np.float32) for name in "xy"}


def assert_same_bits(first: Any, second: Any) -> None:
    for x, y in zip(first.values(), second.values(), strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert x.tobytes() == y.tobytes()


def linear_attention(update_rule: str) -> dovetail.Model:
    """Build a layer whose operand x is the decay (gated) or beta (delta): their decompositions differ in a Loop body only."""

    def write(b: Any) -> None:
        q, k, v = (b.input(name, "f32", (1, 5, 8)) for name in "qkv")
        state, x = b.input("state", "f32", (1, 2, 4, 4)), b.input("x", "f32", (1, 5, 2))
        operands = (q, k, v, state, x, None) if update_rule == "gated" else (q, k, v, state, None, x)
        b.output("y", b.LinearAttention(*operands, q_num_heads=2, kv_num_heads=2, update_rule=update_rule)[0])

    return model_of(write)


def test_loops_of_decompositions_with_other_bodies_are_not_equal() -> None:
    gated, delta = linear_attention("gated"), linear_attention("delta")
    assert not dovetail.prove(gated, delta, real=True).is_proved
    assert dovetail.prove(gated, linear_attention("gated"), real=True).is_proved


def test_symbols_unify_by_input_and_axis() -> None:
    a = two_inputs(lambda b, x, y: x + y, (("n", 3), ("n", 3)))
    b = two_inputs(lambda b, x, y: y + x, (("batch", 3), ("other", 3)))
    assert dovetail.prove(a, b).verdict == "bits"


def test_a_fixed_size_differs_from_an_open_one_unless_it_is_fitted() -> None:
    a = two_inputs(lambda b, x, y: b.Reshape(x, [6]), ((2, 3), (2, 3)))
    b = two_inputs(lambda b, x, y: b.Reshape(x, [-1]), (("n", 3), ("n", 3)))
    for first, second in ((a, b), (b, a)):
        assert dovetail.prove(first, second).verdict == "different"
        proof = dovetail.prove(first, second, fit_sizes=True)
        assert proof.verdict == "bits"
        with pytest.raises(RuleError):
            proof.certificate()


def test_inputs_of_other_names_differ() -> None:
    a = model_of(lambda b: b.output("z", b.Relu(b.input("x", "f32", (2,)))))
    b = model_of(lambda b: b.output("z", b.Relu(b.input("y", "f32", (2,)))))
    proof = dovetail.prove(a, b)
    assert proof.verdict == "different"
    assert any("'x'" in note for note in proof.notes)


def test_regions_are_the_smallest_parts_and_their_difference_is_measured() -> None:
    def chain(number: float) -> dovetail.Model:
        return two_inputs(lambda b, x, y: b.Tanh(b.Sigmoid(b.Sin(x * y) + number) * y) + b.Exp(x))

    proof = dovetail.prove(chain(1.0), chain(2.0))
    assert proof.verdict == "different"
    assert len(proof.regions) == 1
    region = proof.regions[0]
    assert (len(region.nodes_a), len(region.nodes_b)) == (1, 1)
    assert region.difference is not None
    assert region.difference > 0.1


def test_numbers_are_joint() -> None:
    a = two_inputs(lambda b, x, y: (x + y) * 2)
    b = two_inputs(lambda b, x, y: (y + x) * 3)
    first, second = number_values([a, b])
    assert first[a.graph.nodes[0].outputs[0]] == second[b.graph.nodes[0].outputs[0]]
    assert first[a.outputs[0]] != second[b.outputs[0]]


def test_random_operators_are_paired_by_position() -> None:
    def draw(b: Any, x: Any, y: Any) -> Any:
        return b.RandomNormalLike(x, np.float32(0), np.float32(1)) + b.RandomNormalLike(x, np.float32(0), np.float32(1))

    def twice(b: Any, x: Any, y: Any) -> Any:
        drawn = b.RandomNormalLike(x, np.float32(0), np.float32(1))
        return drawn + drawn

    assert dovetail.prove(two_inputs(draw), two_inputs(draw)).verdict == "bits"
    assert dovetail.prove(two_inputs(draw), two_inputs(twice)).verdict != "bits"


@pytest.mark.parametrize("inside", [False, True])
def test_a_draw_of_each_trip_is_not_one_before_the_loop(inside: bool) -> None:
    def scan(inside: bool) -> dovetail.Model:
        with dovetail.Builder() as b, dovetail.Builder() as body:
            x, state = b.input("x", "f32", (5, 3)), b.input("y", "f32", (1, 3))
            _, _part, captured = (
                body.input(name, dtype, shape)
                for name, dtype, shape in (("i", "i64", ()), ("part", "f32", (1, 3)), ("captured", "f32", (1, 3)))
            )
            drawn = (body if inside else b).RandomUniform(np.array([1, 3]), 0.0, 1.0)
            body.output("continues", body.constant(np.array(True)))
            body.output("row", body.Identity(drawn if inside else captured))
            op = Loop(body=body.graph, scan_inputs=((0, 1, False),), scan_outputs=((0, False),))
            b.output("z", b.add(op, None, None, x, state if inside else drawn)[0])
        return b.model

    assert dovetail.prove(scan(inside), scan(inside), regions=False).verdict == "bits"
    assert dovetail.prove(scan(inside), scan(not inside), regions=False).verdict == "open"


def test_draws_differ_when_the_time_is_over() -> None:
    def draw(second: int) -> dovetail.Model:
        def write(b: Any, x: Any, y: Any) -> Any:
            x = b.Exp(x)  # The time is over after the first operator.
            drawn = [b.RandomNormalLike(x, np.float32(0), np.float32(1)) for _ in range(2)]
            return drawn[0] - drawn[second]

        return two_inputs(write)

    models = [draw(0), draw(1)]
    numbered = number_terms(models, deadline=0.0)
    assert not numbered.is_complete
    first, second = (terms[id(model.outputs[0])] for terms, model in zip(numbered.terms, models, strict=True))
    assert first is not second


def test_attributes_of_other_kinds_have_other_keys() -> None:
    values: list[Any] = [1.0, (1.0).hex(), 1, True, "1", np.ones(1, ml_dtypes.float8_e5m2), np.ones(1, ml_dtypes.float8_e4m3fn)]
    values.append(values[-1].view(ml_dtypes.float8_e5m2))
    assert len({freeze(value) for value in values}) == len(values)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    model = two_inputs(lambda b, x, y: b.LayerNormalization(x, np.float32([1, 2, 3]), axis=-1) + y)
    paths = tmp_path / "a.onnx", tmp_path / "b.xml"
    dovetail.save(model, paths[0])
    dovetail.save(dovetail.load(paths[0]), paths[1])
    return paths


def test_a_certificate_is_checked_again(pair: tuple[Path, Path]) -> None:
    proof = dovetail.prove(*pair, real=True)
    assert proof.verdict == "real"
    dovetail.check_certificate(proof.certificate(), *pair)


def test_an_altered_certificate_is_refused(pair: tuple[Path, Path]) -> None:
    certificate = dovetail.prove(*pair, real=True).certificate()
    for name, value in (("verdict", "bits"), ("rewrites", []), ("dovetail", "9"), ("matching", {}), ("files", [])):
        altered = copy.deepcopy(certificate)
        altered[name] = value
        with pytest.raises(FormatError) as error:
            dovetail.check_certificate(altered, *pair)
        assert error.value.code == "certificate.format"
    with pytest.raises(FormatError) as error:
        dovetail.check_certificate(certificate, *reversed(pair))
    assert error.value.code == "certificate.files"
    wrong: tuple[Any, ...] = ({}, {"kind": "x"}, [], {**certificate, "more": 1})
    for data in wrong:
        with pytest.raises(FormatError) as error:
            dovetail.check_certificate(data, *pair)
        assert error.value.code == "certificate.format"


def test_a_forged_certificate_is_refused(pair: tuple[Path, Path]) -> None:
    """A certificate whose digest was written anew must still follow from the files."""
    from dovetail.compare.prove.certificate import digest_of

    certificate = dovetail.prove(*pair, real=True).certificate()
    changes: tuple[dict[str, Any], ...] = (
        {"verdict": "bits", "rewrites": []},
        {"rewrites": []},
        {"matching": {"values": [], "sha256": ""}},
    )
    for change in changes:
        forged = {**certificate, **change}
        forged["digest"] = digest_of({name: value for name, value in forged.items() if name != "digest"})
        with pytest.raises(FormatError) as error:
            dovetail.check_certificate(forged, *pair)
        assert error.value.code == "certificate.proof"


def test_models_of_other_states_have_no_certificate(tmp_path: Path) -> None:
    models = []
    for name, states in (("a.onnx", [State("v", "y", "z")]), ("b.onnx", [])):
        model = two_inputs(lambda b, x, y: x + y)
        model.states = states
        dovetail.save(model, tmp_path / name)
        models.append(dovetail.load(tmp_path / name))
    assert dovetail.prove(*models).verdict == "different"
    with pytest.raises(RuleError, match="no certificate"):
        EqualityProof("bits", models=(models[0], models[1])).certificate()


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a subcommand. Returns the exit code and stdout."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), capsys.readouterr().out


def test_diff_proves_and_checks(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = map(str, pair)
    certificate = tmp_path / "proof.json"
    code, text = run_command(capsys, "diff", a, b, "--prove", "--real", "--certificate", str(certificate))
    assert (code, "proved equal over the real numbers" in text) == (0, True)
    assert run_command(capsys, "diff", a, b, "--check-certificate", str(certificate))[0] == 0
    certificate.write_text(certificate.read_text().replace('"real"', '"bits"'))
    assert run_command(capsys, "diff", a, b, "--check-certificate", str(certificate))[0] == 3
    certificate.write_text("[" * 100_000)
    assert run_command(capsys, "diff", a, b, "--check-certificate", str(certificate))[0] == 3
    assert run_command(capsys, "diff", a, b, "--check-certificate", str(tmp_path / "none.json"))[0] == 3


def test_diff_reports_regions_without_a_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    for file, number in zip(files, (1.0, 2.0), strict=True):
        dovetail.save(two_inputs(lambda b, x, y, number=number: b.Exp(b.Sin(x + number) * y)), file)
    code, text = run_command(capsys, "diff", *files, "--prove", "--json")
    data = json.loads(text)
    assert (code, data["verdict"], len(data["regions"])) == (1, "different", 1)
    assert run_command(capsys, "diff", *files, "--prove")[0] == 1
    assert run_command(capsys, "diff", *files, "--real")[0] == 2
    assert run_command(capsys, "diff", *files, "--prove", "--check-certificate", "x.json")[0] == 2


def test_transformations_are_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = two_inputs(lambda b, x, y: b.Relu(b.Identity(b.MatMul(x, np.float32(np.eye(3))) * 2.0) + y), ((1, 3), (1, 3)))
    files = [str(tmp_path / name) for name in ("a.onnx", "b.xml", "c.onnx", "d.onnx")]
    dovetail.save(model, files[0])
    assert run_command(capsys, "convert", files[0], files[1], "--prove", "--json")[0] == 0
    code, text = run_command(capsys, "simplify", files[0], "-o", files[2], "--prove", "--json")
    assert (code, json.loads(text)["equality"]["verdict"]) == (0, "real")
    code, text = run_command(capsys, "rebatch", files[0], "-o", files[3], "--dim", "0=batch", "--json")
    assert (code, json.loads(text)["proof"]) == (0, "bits")


def test_a_certificate_needs_files() -> None:
    model = two_inputs(lambda b, x, y: x + y)
    with pytest.raises(RuleError) as error:
        dovetail.prove(model, model).certificate()
    assert error.value.code == "certificate.files"


def test_long_chains_end() -> None:
    """A chain of 3,000 operators does not exceed Python's stack."""

    def chain(b: Any, x: Any, y: Any) -> Any:
        for index in range(1500):
            x = b.Transpose(b.Sin(x), [1, 0]) if index % 2 else b.Neg(x) if hasattr(b, "Neg") else b.Negative(x)
        return x

    model = two_inputs(chain, ((3, 3), (3, 3)))
    assert dovetail.prove(model, model).verdict == "bits"


def doubled(b: Any, x: Any, y: Any) -> Any:
    """Build a sum whose operands as a tree are 2**400."""
    for _ in range(400):
        x = x + x
    return x


def powered(b: Any, x: Any, y: Any) -> Any:
    for _ in range(200):
        x = (x * x + y) * 0.5
    return x


def sliced(b: Any, x: Any, y: Any) -> Any:
    for _ in range(60):
        x = b.Tanh(x) + y
    return b.Concat(*(x[:, :1] for _ in range(3)), x[:, 1:], axis=1)


@pytest.mark.parametrize("expression", [doubled, powered, sliced])
def test_hostile_graphs_end(expression: Any) -> None:
    """Graphs that are exponential as trees are numbered in time; a change at their root is not proved."""
    model, other = two_inputs(expression), two_inputs(lambda b, x, y: expression(b, x * np.float32(1.5), y))
    assert dovetail.prove(model, two_inputs(expression), real=True).verdict == "bits"
    assert dovetail.prove(model, other, real=True).verdict in ("open", "different")


def test_two_stored_constants_near_one_computed_are_not_equal() -> None:
    """A constant that a rewrite computes is near both, which differ by one unit in the last place."""
    exact = np.float32(1) / np.float32(3)

    def scaled(factor: Any) -> dovetail.Model:
        return two_inputs(lambda b, x, y: b.Concat(x / 3.0, b.Exp(y * factor), axis=1))

    assert dovetail.prove(scaled(exact), scaled(np.nextafter(exact, np.float32(1))), real=True).verdict == "open"


def test_open_subgraphs_are_compared_by_their_captures() -> None:
    def conditional(number: float) -> dovetail.Model:
        with dovetail.Builder() as b:
            condition = b.input("c", "boolean", ())
            x = b.input("x", "f32", (3,))
            branches = []
            for factor in (2.0, number):
                inner = dovetail.Builder()
                z = inner.input("z", "f32", (3,))
                inner.output("w", inner.Multiply(z, factor))
                branches.append(inner.graph)
            b.output("y", b.If(condition, x, then_branch=branches[0], else_branch=branches[1], outputs=1)[0])
        return b.model

    assert dovetail.prove(conditional(3.0), conditional(3.0)).verdict == "bits"
    assert dovetail.prove(conditional(3.0), conditional(4.0)).verdict in ("open", "different")


def test_a_constant_whose_sum_cancels_equals_no_near_one() -> None:
    tables = [RealTerms(real_rules(None)) for _ in range(2)]
    one = [table.constant(np.float32(1)) for table in tables]
    tables[1].add(Add(), one[1], -BELOW_ONE)
    products = [table.add(Multiply(), np.float32(3), ABOVE_THIRD)[0] for table in tables]
    assert products[0] is one[0] and products[1] is not one[1]
