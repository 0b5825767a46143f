"""States of sessions: pairs of inputs and outputs, found by structure and by name; the peer is a loop around onnxruntime."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from cached_models import MODELS, attention, feeds, two_ports
from dovetail.ir.host import native_core

OPTIONS: dict[str, dict[str, Any]] = {"interpreter": {"engine": "interpreter"}}
if native_core.is_compiled:
    OPTIONS |= {"native": {"threads": 1}, "reused": {"threads": 1, "reuse_caches": True}}


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.3.key", "present.3.key"),
        ("past_key_values.3.decoder.value", "present_key_values.3.decoder.value"),
        ("past_0", "present_0"),
        ("past", "present"),
        ("pastKey1", "presentKey1"),
        ("past_key_self_0", "present_key_self_0"),
        ("cache_k_in", "cache_k_out"),
        ("state", "stateN"),
        ("h", "hn"),
        ("memory", "new_memory"),
        ("keys_0", "keys_0_next"),
        ("prev_hidden", "hidden"),
        ("conv_states.0", "conv_states.0/updated"),
    ],
)
def test_a_pair_is_found_by_its_names(past: str, present: str) -> None:
    for before, after in (((1, 2), (1, 2)), ((1, "p"), (1, "p + 1"))):
        session = dovetail.compile(two_ports(past, present, before, after), "interpreter").session()
        assert session.state_outputs == {past: present}
        assert f"states: {past} -> {present}>" in repr(session)
        first = session({"x": np.ones(1, np.float32)})
        assert list(first.keys()) == ["y"]
        session({"x": np.ones(1, np.float32)})
        wanted = [[0.75, 0.75]] if before == after else [[1, 1]]
        assert session.states[past].tolist() == wanted


@pytest.mark.parametrize(
    ("past", "present"),
    [("image_in", "image_out"), ("past_1", "present_2"), ("past", "y2"), ("cache", "cache_scores"), ("x_1", "x_2")],
)
def test_other_names_are_no_pair(past: str, present: str) -> None:
    session = dovetail.compile(two_ports(past, present, (1, 2), (1, 2)), "interpreter").session()
    assert session.state_outputs == {} and repr(session).endswith("states: none>")


def test_types_and_second_candidates_rule_a_pair_out() -> None:
    with dovetail.Builder("others") as b:
        for name in ("past_1", "old_past_1", "past_2", "past_3"):
            b.input(name, "f32", (2, 3))
        values = {value.name: value for value in b.graph.inputs}
        b.output("present_1", b.Add(values["past_1"], values["old_past_1"]))
        b.output("present_2", b.Cast(values["past_2"], to="f16"))
        b.output("present_3", b.Reshape(b.Negative(values["past_3"]), [3, 2]))
    assert dovetail.compile(b.model, "interpreter").session().state_outputs == {}


# Decoders


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", MODELS)
def test_a_session_equals_a_loop_around_onnxruntime(name: str, options: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = MODELS[name]()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [item.name for item in peer.get_outputs()]
    kept = {
        item.name: np.zeros([size if isinstance(size, int) else {"batch": 1}.get(size, 0) for size in item.shape], np.float32)
        for item in peer.get_inputs()
        if item.name.startswith("past")
    }
    session = dovetail.compile(path, **OPTIONS[options]).session()
    assert list(session.state_outputs) == list(kept)
    for feed in feeds(model):
        wanted = dict(zip(names, peer.run(None, {**feed, **kept}), strict=True))
        kept = {past: wanted[present] for past, present in session.state_outputs.items()}
        found = session(feed)
        assert list(found.keys()) == names[:1]
        np.testing.assert_allclose(found[names[0]], wanted[names[0]], rtol=2e-4, atol=2e-5)
    for past, array in kept.items():
        np.testing.assert_allclose(session.states[past], array, rtol=2e-4, atol=2e-5)


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
def test_attention_extends_its_caches_in_place(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(attention("Attention-24"), path)
    program = dovetail.compile(path, threads=1, reuse_caches=True)
    session, plain = program.session(), dovetail.compile(path, threads=1).session()
    chance, memory = np.random.default_rng(0), []
    for _ in range(60):
        feed = {name: chance.standard_normal((1, 1, width), np.float32) for name, width in (("q", 32), ("k", 16), ("v", 16))}
        assert session(feed)["y"].tobytes() == plain(feed)["y"].tobytes()
        memory.append(session.states["past_key_values.0.key"].__array_interface__["data"][0])
    assert len(set(memory[1:])) == 1 and program.statistics.copied_cache_bytes == 0


# States that the caller names


@pytest.mark.parametrize("options", OPTIONS)
def test_a_caller_names_the_states(options: str) -> None:
    model = two_ports("first", "second", (1, 2), (1, 2))
    program = dovetail.compile(model, **OPTIONS[options])
    x = {"x": np.ones(1, np.float32)}
    session = program.session({"first": "second"})
    assert [list(session(x).keys()), list(session(x).keys())] == [["y"], ["y"]]
    assert session.states["first"].tolist() == [[0.75, 0.75]]
    paired = dovetail.compile(two_ports("past", "present", (1, 2), (1, 2)), **OPTIONS[options]).session(states={})
    found = paired({**x, "past": np.ones((1, 2), np.float32)})
    assert list(found.keys()) == ["y", "present"] and not paired.states


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
def test_caches_that_change_places() -> None:
    with dovetail.Builder("places") as b:
        x, at = b.input("x", "f32", (1, 2)), b.input("at", "i64", (1,))
        for name in ("one", "two"):
            b.output(f"{name}_next", b.ScatterUpdate(b.input(name, "f32", (3, 2)), at, x))
    states = {"one": "two_next", "two": "one_next"}
    sessions = [dovetail.compile(b.model, threads=1, reuse_caches=reused).session(states) for reused in (False, True)]
    for step in range(6):
        feed = {"x": np.full((1, 2), step + 1, np.float32), "at": np.array([step % 3])}
        if step == 2:
            feed["one"] = np.arange(6, dtype=np.float32).reshape(3, 2)
        for session in sessions:
            session(feed)
        for name in states:
            assert sessions[0].states[name].tobytes() == sessions[1].states[name].tobytes(), (step, name)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ({"pasts": "present"}, "input.unknown"),
        ({"past": "presents"}, "output.unknown"),
        ({"past": "y"}, "argument.value"),
        ({"past": "present", "x": "present"}, "argument.conflict"),
        ({"past": 1}, "argument.type"),
        ({None: "present"}, "argument.type"),
        (["past"], "argument.type"),
    ],
)
def test_states_that_no_session_can_keep_are_refused(states: Any, code: str) -> None:
    model = two_ports("past", "present", (1, 2), (1, 2))
    for call in (dovetail.compile(model, "interpreter").session, partial(dovetail.make_stateful, model)):
        with pytest.raises(dovetail.DovetailError) as raised:
            call(states)
        assert raised.value.code == code
