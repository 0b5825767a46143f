"""Weights beside a model: read, or mapped; and files that change while a model lives."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dovetail
from dovetail.storage import files, mapped_files

POLICIES = ("never", "auto", "always")
SIZE = 256


@pytest.fixture(params=["onnx", "ir"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """Return a model and the file of its weights, 256 KiB of ones."""
    weights = numpy_helper.from_array(np.ones((SIZE, SIZE), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [2, SIZE])],
        [helper.make_tensor_value_info("y", 1, None)],
        [weights],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    if request.param == "onnx":
        return tmp_path / "m.onnx", tmp_path / "w.bin"
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "i.xml")
    return tmp_path / "i.xml", tmp_path / "i.bin"


def answer(model: Any, engine: str = "auto") -> float:
    return float(dovetail.run(model, {"x": np.ones((2, SIZE), np.float32)}, engine)["y"][0, 0])


def cut(side: Path) -> None:
    os.truncate(side, 100)


def rewrite(side: Path) -> None:
    status = os.stat(side)
    with open(side, "r+b") as stream:
        stream.write(np.full(SIZE, 7, np.float32).tobytes())
    os.utime(side, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


CHANGES = {"cut": cut, "rewritten": rewrite}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_means_the_same(policy: str, pair: tuple[Path, Path]) -> None:
    assert answer(dovetail.load(pair[0], map=policy)) == SIZE


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("policy", ["never", "auto"])
def test_a_file_that_was_read_may_change(policy: str, change: str, engine: str, pair: tuple[Path, Path]) -> None:
    model = dovetail.load(pair[0], map=policy)
    CHANGES[change](pair[1])
    assert answer(model, engine) == SIZE
    dovetail.save(model, pair[0].with_name("again.onnx"))
    assert answer(pair[0].with_name("again.onnx")) == SIZE


@pytest.mark.parametrize("change", CHANGES)
def test_a_mapped_file_that_changed_is_refused(change: str, pair: tuple[Path, Path]) -> None:
    model = dovetail.load(pair[0], map="always")
    CHANGES[change](pair[1])
    for use in (lambda: dovetail.compile(model), lambda: dovetail.save(model, pair[0].with_name("again.onnx"))):
        with pytest.raises(dovetail.FormatError) as caught:
            use()
        assert caught.value.code == "file.changed"
    assert not pair[0].with_name("again.onnx").exists()


def test_a_mapped_file_that_was_replaced_is_the_old_one(pair: tuple[Path, Path]) -> None:
    model = dovetail.load(pair[0], map="always")
    pair[1].with_name("new").write_bytes(bytes(8))
    os.replace(pair[1].with_name("new"), pair[1])
    assert answer(model) == SIZE


def test_files_from_the_least_size_on_are_mapped(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def is_mapped() -> bool:
        model = dovetail.load(pair[0])
        (weights,) = (value.constant for value in model.graph.values() if value.constant is not None and value.constant.size > 99)
        return mapped_files.map_of(weights) is not None

    assert not is_mapped()
    monkeypatch.setattr(files, "MIN_MAPPED_SIZE", 4)
    assert is_mapped()


def test_descriptors_of_mapped_files_are_closed(pair: tuple[Path, Path]) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    model = dovetail.load(pair[0], map="always")
    assert answer(model) == SIZE
    del model
    gc.collect()
    assert not before or len(os.listdir("/proc/self/fd")) <= before


def test_an_unknown_policy_is_refused(pair: tuple[Path, Path]) -> None:
    with pytest.raises(dovetail.FormatError) as caught:
        dovetail.load(pair[0], map="sometimes")
    assert caught.value.code == "argument.value"


def test_a_process_whose_weights_are_cut_lives(pair: tuple[Path, Path]) -> None:
    code = f"""
        import os, numpy as np, dovetail
        model = dovetail.load({str(pair[0])!r})
        programs = [dovetail.compile(model, engine) for engine in ("auto", "interpreter")]
        os.truncate({str(pair[1])!r}, 100)
        print([float(program(np.ones((2, {SIZE}), np.float32))["y"][0, 0]) for program in programs])
    """
    found = subprocess.run(
        [sys.executable, "-c", "\n".join(line.strip() for line in code.splitlines())], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout.strip()) == (0, str([float(SIZE)] * 2)), found.stderr
