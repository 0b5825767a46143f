"""A run of reshard that is killed before any of its system calls, and then repeated, leaves the files of a whole run."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dovetail
from dovetail import Builder, EngineError, Model
from dovetail.data.tensors import copy_worker, reshard as module
from dovetail.data.tensors.tensor_sets import INDEX
from dovetail.storage.atomic_write import lock_file
from interruptions import killed_at

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

NAMES = [f"w{number}" for number in range(3)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    generator = np.random.default_rng(3)
    save_file({name: generator.random((4, 6), np.float32) for name in NAMES}, folder / "m.safetensors")
    return folder


@pytest.fixture(autouse=True)
def unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush no file: no test cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def moving(names: list[str]) -> Model:
    """Return a model whose output number i is the transposed tensor ``names[i]``; files of all orders have equal headers."""
    b = Builder("transpose")
    inputs = {name: b.input(f"input:{name}", "f32", (4, 6)) for name in NAMES}
    for target, name in zip(NAMES, names, strict=True):
        b.output(f"output:{target}", b.Transpose(inputs[name]))
    return b.model


MODEL, OTHER = moving(NAMES), moving(NAMES[::-1])


def run(source: Path, model: Model = MODEL, **options: Any) -> dovetail.ReshardReport:
    return dovetail.reshard(model, source, source.parent / "out", shards=3, threads=1, **options)


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def whole_run(source: Path) -> dict[str, bytes]:
    run(source)
    files = listing(source.parent / "out")
    stored = load_file(source / "m.safetensors")
    for number, name in enumerate(NAMES):
        loaded = load_file(source.parent / "out" / f"model-{number + 1:05}-of-00003.safetensors")
        assert loaded.keys() == {name} and np.array_equal(loaded[name], stored[name].T)
    shutil.rmtree(source.parent / "out")
    return files


def test_a_run_killed_at_each_system_call_continues_to_the_files_of_a_whole_run(source: Path) -> None:
    whole = whole_run(source)
    kept = set()
    for number in itertools.count():
        if not killed_at(number, lambda: run(source)):
            break
        kept.add(len(run(source).kept))
        assert listing(source.parent / "out") == whole
        shutil.rmtree(source.parent / "out")
    assert kept == {0, 1, 2, 3}


def test_a_restart_killed_at_each_system_call_mixes_no_files_of_two_runs(source: Path) -> None:
    whole = whole_run(source)
    for number in itertools.count():
        run(source, OTHER)
        is_killed = killed_at(number, lambda: run(source, restart=True))
        try:
            run(source)
        except EngineError as error:
            assert error.code == "folder.occupied"
            run(source, restart=True)
        assert listing(source.parent / "out") == whole
        shutil.rmtree(source.parent / "out")
        if not is_killed:
            break
    assert number > 10


def test_the_state_file_of_a_run_that_ends_is_not_locked_in_its_place(source: Path) -> None:
    """Another run may end, and remove its state file, between the opening and the locking of that file."""
    execute = copy_worker.CopyWorker.execute
    calls: list[str] = []

    def lock(descriptor: int) -> bool:
        if not calls:
            calls.append("removed")
            (source.parent / "out" / module.STATE).unlink()
        return lock_file(descriptor)

    def run_second(self: Any, *arguments: Any) -> int:
        if len(calls) == 1:
            calls.append("second")
            with pytest.raises(EngineError) as caught:
                run(source)
            calls.append(caught.value.code)
        return execute(self, *arguments)

    with (
        mock.patch("dovetail.data.tensors.reshard.lock_file", lock),
        mock.patch.object(copy_worker.CopyWorker, "execute", run_second),
    ):
        run(source)
    assert calls == ["removed", "second", "folder.locked"]


def test_an_index_of_an_earlier_run_does_not_stay_with_files_of_another(source: Path) -> None:
    out = source.parent / "out"
    run(source)
    before = listing(out)
    with pytest.raises(EngineError) as caught:
        dovetail.reshard(OTHER, source, out)
    assert caught.value.code == "folder.occupied" and listing(out) == before
    dovetail.reshard(OTHER, source, out, restart=True)
    assert "model.safetensors" in os.listdir(out) and INDEX not in os.listdir(out)
    # A file of another name is no part of the set.
    dovetail.reshard(OTHER, source, source.parent / "out" / "more.safetensors")
