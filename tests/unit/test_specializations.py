"""Caches that a model gathers by an input are extended in place where the input has its usual elements, else gathered."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from cached_models import attention, attention_of_openvino, requests
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

Arrays = dict[str, Any]


def address(session: Any, name: str) -> int:
    return int(session.states[name].__array_interface__["data"][0])


def test_beams_that_go_on_and_beams_that_change_places(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = attention_of_openvino(tmp_path / "state.xml", has_beams=True)
    chance, steps = np.random.default_rng(0), []
    orders = {20: [1, 0], 21: [1, 1], 40: [0, 0]}
    for step in range(60):
        feed = {name: chance.standard_normal((2, 1, 8), np.float32) for name in "qkv"}
        steps.append({**feed, "beam_idx": np.array(orders.get(step, [0, 1]), np.int32)})
    program = dovetail.compile(path, threads=1, reuse_caches=True)
    session, moved, name = program.session(), [], "past_key_values.0.keypresent.0.key"
    for step, (feed, wanted) in enumerate(zip(steps, requests(path, steps), strict=True)):
        before = address(session, name) if step else 0
        np.testing.assert_allclose(session(feed)["y"], wanted, rtol=1e-5, atol=1e-5)
        moved += [step] if address(session, name) != before else []
    # Beside the first step and those of other orders, the step after one of these copies into memory with room.
    assert moved == [0, 20, 21, 22, 40, 41]


def test_fewer_beams_than_before(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = attention_of_openvino(tmp_path / "state.xml", has_beams=True)
    chance, steps = np.random.default_rng(0), []
    for beams in ([0, 1, 2], [0, 1, 2], [0, 1], [0, 1], [0], [0], [0, 0], [0, 1]):
        feed = {name: chance.standard_normal((len(beams), 1, 8), np.float32) for name in "qkv"}
        steps.append({**feed, "beam_idx": np.array(beams, np.int32)})
    session = dovetail.compile(path, threads=1, reuse_caches=True).session()
    for feed, wanted in zip(steps, requests(path, steps), strict=True):
        np.testing.assert_allclose(session(feed)["y"], wanted, rtol=1e-5, atol=1e-5)


def lengths_of(lengths: list[int], rows: int, seed: int) -> Arrays:
    chance = np.random.default_rng(seed)
    feed = {
        name: chance.standard_normal((len(lengths), rows, width), np.float32) for name, width in (("q", 32), ("k", 16), ("v", 16))
    }
    return {**feed, "seqlens_k": np.array(lengths, np.int32) - 1, "total": np.array(max(lengths), np.int32)}


@pytest.mark.parametrize("length", [[4, 4], [4, 2]], ids=["equal lengths", "padded"])
def test_sequences_of_a_group_query_attention(length: list[int], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = attention("GroupQueryAttention")
    onnx.save(model, tmp_path / "model.onnx")
    peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    kept = {name: np.zeros((2, 2, 0, 8), np.float32) for name in ("past_key_values.0.key", "past_key_values.0.value")}
    session = dovetail.compile(tmp_path / "model.onnx", threads=1, reuse_caches=True).session()
    steps = [lengths_of(length, 4, 0), *(lengths_of([size + step for size in length], 1, step) for step in range(1, 8))]
    addresses = []
    for step, feed in enumerate(steps):
        wanted, key, value = peer.run(None, {**feed, **kept})
        kept = {"past_key_values.0.key": key, "past_key_values.0.value": value}
        found = session(feed)["y"]
        for sequence, last in enumerate(feed["seqlens_k"]):
            # Rows of padding are no results.
            rows = slice(0, last + 1 if step == 0 else 1)
            np.testing.assert_allclose(found[sequence, rows], wanted[sequence, rows], rtol=1e-4, atol=1e-5)
        addresses.append(address(session, "past_key_values.0.key"))
    assert (len(set(addresses[2:])) == 1) == (length == [4, 4])


def test_a_specialized_program_is_copied_closed_and_called_without_a_session(tmp_path: Path) -> None:
    onnx.save(attention("GroupQueryAttention"), tmp_path / "model.onnx")
    program = dovetail.compile(tmp_path / "model.onnx", threads=1, reuse_caches=True)
    plain = dovetail.compile(tmp_path / "model.onnx", "interpreter")
    empty = {name: np.zeros((2, 2, 0, 8), np.float32) for name in ("past_key_values.0.key", "past_key_values.0.value")}
    for length in ([3, 3], [3, 1]):
        feed = {**lengths_of(length, 3, 0), **empty}
        wanted = plain(feed)
        for each in (program, copy.deepcopy(program)):
            found = each(feed)
            for name in wanted.keys():
                np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)
    program.close()
    with pytest.raises(dovetail.EngineError) as raised:
        program(feed)
    assert raised.value.code == "program.closed"
