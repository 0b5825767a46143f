"""Past inputs and present outputs as states, and back: OpenVINO runs one form, onnxruntime the other, with the same results."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import transformers

import dovetail
from cached_models import MODELS, attention, attention_of_openvino, feeds, llama, requests, two_ports
from dovetail.cli import main
from dovetail.errors import DovetailError
from dovetail.passes.stateful import compare_steps, unroll

pytest.importorskip("openvino")
onnxruntime = pytest.importorskip("onnxruntime")

Arrays = dict[str, Any]


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def loop(path: Path, pairs: dict[str, str], steps: list[Arrays], output: str) -> list[Any]:
    """Return the results of a loop around onnxruntime, which passes the present outputs of a step to the next one."""
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    kept = {
        item.name: np.zeros(
            [
                size if isinstance(size, int) else len(next(iter(steps[0].values()))) if axis == 0 else 0
                for axis, size in enumerate(item.shape)
            ],
            np.float32,
        )
        for item in session.get_inputs()
        if item.name in pairs
    }
    results = []
    for feed in steps:
        found = dict(zip(names, session.run(None, {**feed, **kept}), strict=True))
        kept = {past: found[present] for past, present in pairs.items()}
        results.append(found[output])
    return results


@pytest.mark.parametrize("name", MODELS)
def test_openvino_runs_the_states_of_a_stateless_file(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "past.onnx", tmp_path / "state.xml"
    model = MODELS[name]()
    onnx.save(model, source)
    code = run("convert", source, target, "--stateful")
    text = capsys.readouterr().err
    assert code == 0
    if "seqlens_k" in feeds(model)[0]:
        # Sizes that elements of an input decide are beyond the proof.
        assert "3 steps from empty states: not proved equal" in text and "runs in both engines on random inputs agree" in text
    else:
        assert "3 steps from empty states: proved equal" in text
    pairs = dovetail.compile(source, "interpreter").session().state_outputs
    assert {state.variable for state in dovetail.load(target).states} == {past + present for past, present in pairs.items()}
    wanted = loop(source, pairs, feeds(model), model.graph.output[0].name)
    session = dovetail.compile(target).session()
    for ours, found, expected in zip(map(session, feeds(model)), requests(target, feeds(model)), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(ours[0], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("has_beams", [False, True], ids=["", "beams"])
@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_the_stateless_form_of_openvinos_model(
    suffix: str, has_beams: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = attention_of_openvino(tmp_path / "state.xml", has_beams=has_beams)
    target = tmp_path / f"past{suffix}"
    assert run("convert", source, target, "--stateless") == 0
    assert "3 steps from empty states: proved equal" in capsys.readouterr().err
    chance, steps = np.random.default_rng(0), []
    for t in (3, 1, 2, 1):
        feed = {name: chance.standard_normal((2, t, 8), np.float32) for name in "qkv"}
        steps.append(feed | ({"beam_idx": np.array([1, 0] if t == 2 else [0, 0], np.int32)} if has_beams else {}))
    model = dovetail.load(target)
    assert model.states == []
    session = dovetail.compile(target).session()
    assert session.state_outputs == {f"past_key_values.0.{kind}": f"present.0.{kind}" for kind in ("key", "value")}
    wanted = requests(source, steps)
    found = [session(feed)["y"] for feed in steps]
    if suffix == ".onnx":
        # A gather by beam_idx takes rows of the batch, which an empty cache must have too.
        found += loop(target, session.state_outputs, steps, "y")
    for result, expected in zip(found, wanted * 2, strict=False):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", transformers.ATTENTION)
def test_three_steps_of_a_llama_are_proved_equal(form: str, tmp_path: Path) -> None:
    model = dovetail.make_stateful(transformers.llama(attention=form))
    dovetail.save(model, tmp_path / "state.xml")
    assert compare_steps(model, dovetail.load(tmp_path / "state.xml")).verdict == "real"


def test_both_directions_give_the_first_file_again(tmp_path: Path) -> None:
    onnx.save(llama(), tmp_path / "first.onnx")
    first = dovetail.load(tmp_path / "first.onnx")
    back = dovetail.make_stateless(dovetail.make_stateful(first))
    assert [x.name for x in back.inputs] == [x.name for x in first.inputs]
    assert [y.name for y in back.outputs] == [y.name for y in first.outputs]
    assert dovetail.prove(first, back).verdict == "bits"
    assert first.states == [] and first.report is None


def test_states_that_are_exchanged_are_found_unequal() -> None:
    path_of = {"past_key_values.0.key": "present.0.value", "past_key_values.0.value": "present.0.key"}
    model = dovetail.load(attention("Attention-24").SerializeToString())
    right, wrong = dovetail.make_stateful(model), dovetail.make_stateful(model, path_of)
    variables = {state.input: state.variable for state in right.states}
    wrong.states = [state._replace(variable=variables[state.input]) for state in wrong.states]
    found = compare_steps(right, wrong)
    assert found.verdict == "open" and not found.agrees
    assert compare_steps(right, right).verdict == "bits"


def test_three_steps_as_one_model() -> None:
    model = dovetail.make_stateful(dovetail.load(attention("Attention-24").SerializeToString()))
    whole = unroll(model)
    assert str(whole.values["q@2"].type) == "f32[batch, t_2, 32]"
    assert str(whole.outputs[-1].type) == "f32[batch, 2, t_1 + t_2 + t_3, 8]"
    chance, sizes = np.random.default_rng(0), (2, 1, 3)
    steps = [
        {name: chance.standard_normal((1, t, width), np.float32) for name, width in (("q", 32), ("k", 16), ("v", 16))}
        for t in sizes
    ]
    session = dovetail.compile(model).session()
    expected = [session(feed)["y"] for feed in steps]
    found = dovetail.run(whole, {f"{name}@{step}": x for step, feed in enumerate(steps, 1) for name, x in feed.items()})
    for step, y in enumerate(expected, 1):
        np.testing.assert_allclose(found[f"y@{step}"], y, rtol=1e-5, atol=1e-6)


# Refusals


def test_options_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "past.onnx"
    onnx.save(attention("Attention-24"), source)
    for target, options, text in (
        ("state.onnx", ["--stateful"], "--stateful needs an IR target"),
        ("state.xml", ["--stateful", "--stateless"], "exclude each other"),
        ("state.xml", ["--stateful", "--verify"], "excludes the options of --verify and --prove"),
        ("state.xml", ["--state", "a=b"], "--state needs --stateful"),
        ("state.xml", ["--stateful", "--state", "q=z"], "no output 'z'"),
        ("state.xml", ["--stateless"], "must have states, got none"),
    ):
        assert run("convert", source, tmp_path / target, *options) in (2, 5, 6), options
        assert text in capsys.readouterr().err
        assert not (tmp_path / target).exists()


def test_the_command_names_states_and_proof_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "past.onnx"
    onnx.save(attention("Attention-24"), source)
    pairs = [f"past_key_values.0.{kind}=present.0.{kind}" for kind in ("value", "key")]
    options = [word for pair in pairs for word in ("--state", pair)]
    assert run("convert", source, tmp_path / "state.xml", "--stateful", *options, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert [state["input"] for state in data["states"]] == ["past_key_values.0.value", "past_key_values.0.key"]
    assert data["steps"]["verdict"] in ("bits", "real")


def no_pairs() -> dovetail.Model:
    return two_ports("image_in", "image_out", (1, 2), (1, 2))


def without_size() -> dovetail.Model:
    with dovetail.Builder("size") as b:
        past, x = b.input("past", "f32", ("rows", "p")), b.input("x", "f32", (1,))
        b.output("present", b.Concat(past, b.Expand(x, b.Concat(b.Shape(past)[:1], b.constant([1]), axis=0)), axis=1))
    return b.model


def begins_with(ones: Any, *, is_expanded: bool) -> dovetail.Model:
    model = dovetail.make_stateful(two_ports("past", "present", (1, 2), (1, 2)))
    b = dovetail.Builder(graph=model.graph)
    value = b.constant(np.asarray(ones, np.float32))
    first = b.output("first", b.Expand(value, [1, 2]) if is_expanded else value).name
    model.states = [state._replace(initial=first) for state in model.states]
    return model


@pytest.mark.parametrize(
    ("function", "make", "code"),
    [
        (dovetail.make_stateful, no_pairs, "argument.value"),
        (dovetail.make_stateful, without_size, "state.first"),
        (dovetail.make_stateless, no_pairs, "argument.value"),
        (dovetail.make_stateless, partial(begins_with, [[1, 1]], is_expanded=False), "state.first"),
        (dovetail.make_stateless, partial(begins_with, 1, is_expanded=True), "state.first"),
    ],
)
def test_models_that_have_no_other_form_are_refused(function: Any, make: Any, code: str) -> None:
    with pytest.raises(DovetailError) as raised:
        function(make())
    assert raised.value.code == code


def test_names_of_a_variable_that_values_have_already() -> None:
    with dovetail.Builder() as b:
        x, kept = b.input("x", "f32", (1, 2)), b.input("kept", "f32", (1, 2))
        constants = [b.constant(np.full((1, 2), 2, np.float32), name=name) for name in ("past", "present")]
        b.output("next", b.Multiply(b.Add(b.Add(kept, x), constants[0]), constants[1]))
    model = dovetail.make_stateful(b.model, {"kept": "next"})
    model.states = [state._replace(variable="pastpresent") for state in model.states]
    new = dovetail.make_stateless(model)
    assert ([value.name for value in new.inputs], [value.name for value in new.outputs]) == (["x", "past"], ["present"])
    found = dovetail.run(new, {"x": np.ones((1, 2), np.float32), "past": np.zeros((1, 2), np.float32)})
    assert found["present"].tolist() == [[6, 6]]
