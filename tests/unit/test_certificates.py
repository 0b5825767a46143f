"""Commands that change a model write a certificate, which dovetail and dovetail_check accept; forged ones are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail_check
from dovetail import Builder
from dovetail.cli import main
from dovetail.compare.prove.certificate import digest_of
from dovetail.compare.prove.conditions import Conditions
from dovetail.compare.prove.proof import prove_under
from dovetail.errors import FormatError
from dovetail.ir.state import State

WEIGHTS = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)


def run(*arguments: Any) -> Any:
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    return end.value.code


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(build: Callable[[Any], None], path: str = "first.onnx") -> None:
    with Builder() as b:
        build(b)
    dovetail.save(b.model, path)


def check(second: str, first: str = "first.onnx", certificate: str = "proof.json") -> dovetail_check.Verdict:
    """Check a certificate by both checkers, and return the verdict of the independent one."""
    assert run("diff", first, second, "--check-certificate", certificate) == 0
    return dovetail_check.check(text_of(first), text_of(second), certificate)


def text_of(path: str) -> str:
    text = str(Path(path).with_suffix("")) + ".dt"
    assert run("convert", path, text) == 0
    return text


def refuse(forged: dict[str, Any], second: str, first: str = "first.onnx") -> None:
    """Check that both checkers refuse a certificate whose digest fits its content."""
    forged = {**forged, "digest": digest_of({name: value for name, value in forged.items() if name != "digest"})}
    with pytest.raises(FormatError):
        dovetail.check_certificate(forged, first, second)
    with pytest.raises(dovetail_check.Refused):
        dovetail_check.check(text_of(first), text_of(second), forged)


def read_proof() -> dict[str, Any]:
    return dict(json.loads(Path("proof.json").read_text()))


# Sizes


def flattened(b: Any) -> None:
    x = b.input("x", "f32", (1, 32))
    b.output("y", b.Reshape(b.Relu(b.MatMul(x, WEIGHTS)), b.constant([1, 4, 4])))


@pytest.mark.parametrize("second", ["second.onnx", "second.xml"])
def test_a_rebatched_model_is_certified_at_the_old_batch(second: str) -> None:
    write(flattened)
    assert run("rebatch", "first.onnx", "-o", second, "--dim", "0=batch", "--certificate", "proof.json") == 0
    verdict = check(second)
    assert (verdict.kind, verdict.conditions.sizes) == ("bits", ({}, {"batch": 1}))
    proof = read_proof()
    wrong: list[list[dict[str, Any]]] = [
        [{}, {"batch": 2}],
        [{}, {}],
        [{"batch": 1}, {}],
        [{}, {"n": 1}],
        [{}, {"batch": 1, "n": 1}],
        [{}, {"batch": "1"}],
    ]
    for sizes in wrong:
        refuse({**proof, "conditions": {"sizes": sizes}}, second)
    refuse({**proof, "conditions": {}}, second)
    refuse({**proof, "conditions": {**proof["conditions"], "more": 1}}, second)


def test_a_model_of_fixed_sizes_is_certified_at_these() -> None:
    write(lambda b: b.output("y", b.Relu(b.input("x", "f32", ("n", 4))) + b.input("z", "f32", ("n", "m"))))
    assert run("rebatch", "first.onnx", "-o", "second.onnx", "--dim", "n=3", "--certificate", "proof.json") == 0
    assert check("second.onnx").conditions.sizes == ({"n": 3}, {})
    forged = read_proof()
    forged["conditions"]["sizes"][0]["n"] = 4
    refuse(forged, "second.onnx")


def test_a_model_that_differs_at_the_size_is_not_certified() -> None:
    """The certificate of the right model does not hold for a model that differs at its old batch."""
    write(flattened)
    assert run("rebatch", "first.onnx", "-o", "second.onnx", "--dim", "0=batch", "--certificate", "proof.json") == 0
    write(
        lambda b: b.output("y", b.Reshape(b.MatMul(b.input("x", "f32", ("batch", 32)), WEIGHTS), b.constant([-1, 4, 4]))),
        "second.onnx",
    )
    proof, derivation = read_proof(), dovetail.prove("second.onnx", "second.onnx").certificate()["derivation"]
    proof["derivation"]["texts"][1] = derivation["texts"][1]
    refuse(proof, "second.onnx")


def test_two_fixed_sizes_have_nothing_in_common(capsys: pytest.CaptureFixture[str]) -> None:
    write(flattened)
    assert run("rebatch", "first.onnx", "-o", "second.onnx", "--dim", "0=4", "--certificate", "proof.json") == 0
    assert "proof.json was not written" in capsys.readouterr().err
    assert not Path("proof.json").exists()
    assert run("rebatch", "first.onnx", "-o", "-", "--dim", "0=4", "--certificate", "proof.json") == 2


# Opsets


def test_a_conversion_between_opsets_is_certified() -> None:
    write(lambda b: b.output("y", b.Softmax(b.ReduceMean(b.input("x", "f32", ("n", 3, 4)), [1]), axis=-1)))
    assert run("convert", "first.onnx", "second.onnx", "--opset", 11, "--prove", "--certificate", "proof.json") == 0
    assert dovetail.load("second.onnx").versions[""] == 11
    assert check("second.onnx").kind in ("bits", "real")
    forged = copy.deepcopy(read_proof())
    forged["derivation"]["links"], forged["derivation"]["steps"], forged["matching"] = [], [[]], {}
    refuse(forged, "second.onnx")


# States


def growing(b: Any) -> None:
    past, x = b.input("past_0", "f32", ("batch", "p", 16)), b.input("x", "f32", ("batch", "t", 32))
    present = b.output("present_0", b.Concat(past, b.MatMul(x, WEIGHTS), axis=1))
    b.output("y", b.ReduceSum(present, [1]))


def test_each_step_of_a_model_with_states_is_certified() -> None:
    write(growing)
    assert run("convert", "first.onnx", "second.xml", "--stateful", "--certificate", "proof.json") == 0
    verdict = check("second.xml")
    (variable,) = dovetail.load("second.xml").states
    assert verdict.conditions.states == ({}, {variable.variable: ["past_0", "present_0"]})
    assert run("convert", "second.xml", "third.onnx", "--stateless", "--certificate", "back.json") == 0
    assert check("third.onnx", "second.xml", "back.json").kind == "bits"
    proof = read_proof()
    for states in (
        {},
        {"other": ["past_0", "present_0"]},
        {variable.variable: ["x", "present_0"]},
        {variable.variable: ["present_0", "past_0"]},
    ):
        refuse({**proof, "conditions": {"states": [{}, states]}}, "second.xml")


@pytest.mark.parametrize("value", [0, 1])
def test_an_initial_value_is_empty_or_zeros(value: int) -> None:
    """States that begin with other values are not those that a caller of the model without states passes."""

    def step(b: Any) -> None:
        past, x = b.input("past", "f32", (2,)), b.input("x", "f32", (2,))
        b.output("present", past + x)
        b.output("y", b.Relu(past))

    write(step)
    with Builder() as b:
        step(b)
        b.output("begin", b.Expand(b.constant(value, "f32"), b.constant([2])))
    model = b.model
    model.states = [State("v", "past", "present", "begin")]
    dovetail.save(model, "second.xml")
    models = dovetail.load("first.onnx"), dovetail.load("second.xml")
    (state,) = models[1].states
    states = {state.variable: ("past", "present")}
    conditions = Conditions(states=({}, states))
    if not value:
        Path("proof.json").write_text(json.dumps(prove_under(conditions, *models).certificate()))
        assert check("second.xml").kind == "bits"
        return
    with pytest.raises(FormatError, match="must be empty or zeros"):
        prove_under(conditions, *models)
    # The derivation holds for a model that begins with zeros, so that the independent checker refuses the initial value itself.
    text = Path(text_of("second.xml"))
    zeros = text.read_text().replace("f32[]{1.0}", "f32[]{0.0}")
    assert zeros != text.read_text()
    Path("zeros.dt").write_text(zeros)
    proof = prove_under(conditions, models[0], dovetail.load("zeros.dt")).certificate()
    assert dovetail_check.check(text_of("first.onnx"), "zeros.dt", proof).kind == "bits"
    derivation = json.loads(json.dumps(proof["derivation"]).replace("0.0", "1.0"))
    own = dovetail.prove(models[1], models[1]).certificate()
    derivation["texts"][1] = own["derivation"]["texts"][1]
    with pytest.raises(dovetail_check.Refused, match="empty or zeros"):
        dovetail_check.check(text_of("first.onnx"), text, {**proof, "derivation": derivation})


# Rounded constants


def two_products(b: Any) -> None:
    x = b.Relu(b.MatMul(b.input("x", "f32", ("n", 32)), b.constant(WEIGHTS, name="w1")))
    b.output("y", b.MatMul(x, b.constant(WEIGHTS[:16] * np.float32(0.5), name="w2")))


@pytest.mark.parametrize(
    "options",
    [
        "second.onnx",
        "second.xml",
        "second.onnx --to int4 --qdq",
        "second.xml --to int4",
        "second.onnx --to f8",
        "second.onnx --to f8e5m2",
        "second.onnx --to f16",
        "second.xml --to bf16",
    ],
)
def test_a_quantized_model_is_certified_with_its_rounded_weights(options: str) -> None:
    write(two_products)
    second, *rest = options.split()
    assert run("quantize", "first.onnx", "-o", second, *rest, "--no-verify", "--certificate", "proof.json") == 0
    verdict = check(second)
    assert verdict.kind == "real" if "int4" in options and second.endswith("xml") else "bits"
    first, quantized = dovetail.load("first.onnx"), dovetail.load(second)
    x = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)
    proof = read_proof()
    values = {value.name: value for value in first.graph.values()}
    rounded = {}
    for name, (value, is_transposed, bound) in proof["conditions"]["rounded"].items():
        # The interpreter computes the rounded weights from the quantized model.
        weights = dovetail.run(dovetail.extract(quantized, outputs=[value]), {})[value]
        rounded[name] = np.asarray(weights).T if is_transposed else np.asarray(weights)
        difference = np.max(np.abs(values[name].constant.astype(np.float64) - rounded[name].astype(np.float64)))
        assert 0 < difference == bound == verdict.conditions.rounded[name]
    assert rounded.keys() == {"w1", "w2"}
    expected = dovetail.run(first.with_constants(rounded), {"x": x})["y"]
    np.testing.assert_allclose(dovetail.run(quantized, {"x": x})["y"], expected, rtol=1e-5, atol=1e-5)

    w1, w2 = proof["conditions"]["rounded"].values()
    wrong: list[dict[str, Any]] = [
        {"w1": [*w1[:2], w1[2] / 2], "w2": w2},
        {"w1": w1},
        {},
        {"w1": [*w1[:2], float("inf")], "w2": w2},
    ]
    for forged in wrong:
        changed = copy.deepcopy(proof)
        changed["conditions"]["rounded"] = forged
        refuse(changed, second)


def test_another_model_has_not_the_rounded_weights() -> None:
    write(two_products)
    assert run("quantize", "first.onnx", "-o", "second.onnx", "--no-verify", "--certificate", "proof.json") == 0
    proof = read_proof()
    quantized = dovetail.load("second.onnx")
    scales = next(value.constant for value in quantized.graph.values() if value.name == "w1_scales")
    dovetail.save(quantized.with_constants({"w1_scales": scales * np.float32(2)}), "second.onnx")
    own = dovetail.prove("second.onnx", "second.onnx").certificate()
    proof["derivation"]["texts"][1] = own["derivation"]["texts"][1]
    proof["files"][1] = own["files"][1]
    refuse(proof, "second.onnx")


@pytest.mark.parametrize("options", ["--to int4", "--activations minmax"])
def test_a_missing_certificate_is_reported(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    """MatMulNBits holds its weights, and rounded activations depend on the inputs."""
    write(two_products)
    assert run("quantize", "first.onnx", "-o", "second.onnx", *options.split(), "--certificate", "proof.json") == 0
    assert "proof.json was not written" in capsys.readouterr().err
    assert not Path("proof.json").exists()
