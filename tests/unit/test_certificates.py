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
from dovetail.errors import FormatError

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
    assert (verdict.kind, verdict.sizes) == ("bits", [{}, {"batch": 1}])
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
    assert check("second.onnx").sizes == [{"n": 3}, {}]
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
