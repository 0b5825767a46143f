"""The command lines of README and docs run, in a folder with the files that they name."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dovetail
from document_lines import COMMAND_LINES, SESSION
from dovetail.cli import dovetail as command
from dovetail.errors import EngineError
from dovetail.ir.host import native_core

CLUSTERS = ("10.0.0.1", "/shared/")
"""Parts of lines that need a cluster."""
RELEASE = "=="
"""The part of a line that names a release of a runtime, whose environment needs a package index."""
PACKAGES = {"parquet": "pyarrow", "photos": "PIL", "onnxruntime": "onnxruntime", "openvino": "openvino"}


def lines() -> list[object]:
    """Return the lines that need no cluster and no package index, without those of the session of README, which have a test."""
    found = [
        line for line in COMMAND_LINES if f"$ {line}\n" not in SESSION and not any(part in line for part in (*CLUSTERS, RELEASE))
    ]
    return [pytest.param(line, marks=[pytest.mark.slow] if "--throughput" in line else []) for line in found]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the files that the lines name, with small models."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    with dovetail.Builder("model") as b:
        x = b.input("x", "i64", ("batch", "length"))
        table = b.constant(rng.standard_normal((64, 32)).astype(np.float32), name="table")
        h = b.ReduceMean(b.Gather(table, x, axis=0), [1], keepdims=False)
        w = b.constant(rng.standard_normal((32, 16)).astype(np.float32), name="w")
        b.output("y", b.Softmax(b.MatMul(h, w), axis=1))
    for name in ("model.onnx", "model.xml", "model.dt", "a.onnx", "b.xml", "new.onnx", "old.onnx"):
        dovetail.save(b.model, folder / name)
    with dovetail.Builder("resnet") as b:
        left, right = b.input("A", "f32", ("n", 4)), b.input("B", "f32", ("n", 4))
        b.output("C", b.Relu(left + right))
    dovetail.save(b.model, folder / "resnet.onnx")
    dovetail.save(b.model, folder / "part.onnx")
    np.savez(folder / "part.npz", A=np.ones((2, 4), np.float32), B=np.ones((2, 4), np.float32))
    with dovetail.Builder("decoder") as b:
        token = b.input("token", "f32", ("step", 4))
        y = token
        for layer in range(2):
            past = b.input(f"past_{layer}", "f32", ("past", 4))
            present = b.output(f"present_{layer}", b.Concat(past, token, axis=0))
            y = y + b.ReduceMean(present, [0])
        b.output("y", y)
    dovetail.save(b.model, folder / "decoder.onnx")
    dovetail.save(dovetail.make_stateful(b.model), folder / "decoder.xml")
    with dovetail.Builder("gain") as b:
        rows, rate, gain = b.input("x", "f32", ("batch", 3)), b.input("sr", "i64", ()), b.input("gain", "f32", (3,))
        b.output("y", rows * gain * b.Cast(rate, to="f32"))
    dovetail.save(b.model, folder / "gain.onnx")
    with dovetail.Builder("classifier") as b:
        pixels = b.input("pixels", "f32", ("batch", 3, 8, 8))
        b.output("scores", b.Softmax(b.ReduceMean(pixels, [2, 3], keepdims=False), axis=1))
    dovetail.save(b.model, folder / "classifier.onnx")
    ids = rng.integers(0, 64, (40, 8))
    np.savez(folder / "x.npz", x=ids[:2])
    np.savez(folder / "rows.npz", x=ids)
    np.save(folder / "photo.npy", ids[:2])
    np.save(folder / "rows.npy", rng.standard_normal((10, 3)).astype(np.float32))
    np.save(folder / "gain.npy", np.array([1, 2, 3], np.float32))
    (folder / "data").mkdir()
    np.save(folder / "data" / "part0.npy", ids)
    (folder / "errors.json").write_text(json.dumps({"y": 0.5}))
    return folder


def add_optional_files(folder: Path, line: str) -> None:
    """Write the files whose formats need a package, for a line that names them."""
    if "rows.parquet" in line:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        ids = pyarrow.array([[number] * 8 for number in range(40)], pyarrow.list_(pyarrow.int64(), 8))
        parquet.write_table(pyarrow.table({"pixels": ids, "id": list(range(40))}), folder / "rows.parquet")
    if "photos/" in line:
        image = pytest.importorskip("PIL.Image")
        (folder / "photos").mkdir()
        for number in range(3):
            image.fromarray(np.full((10, 12, 3), 80 * number, np.uint8)).save(folder / "photos" / f"{number}.png")
    if "proof.json" in line:
        arguments = ["diff", "a.onnx", "b.xml", "--prove", "--real", "--certificate", "proof.json"]
        assert CliRunner().invoke(command, arguments).exit_code == 0


@pytest.mark.parametrize("line", lines())
def test_a_command_line_of_a_document_runs(line: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, package in PACKAGES.items():
        if part in line:
            pytest.importorskip(package)
    folder = Path(shutil.copytree(files, tmp_path / "files"))
    monkeypatch.chdir(folder)
    add_optional_files(folder, line)
    words = shlex.split(line, comments=True)[1:]
    if ">" in words:
        *words, _, target = words
        with open(target, "wb") as stream:
            subprocess.run([sys.executable, "-m", "dovetail", *words], stdout=stream, check=True)
        assert dovetail.load(folder / target).graph.nodes
        return
    if words[0] == "shard":
        # The number of JAX's devices is chosen once in a process.
        subprocess.run([sys.executable, "-m", "dovetail", *words], stdout=subprocess.DEVNULL, check=True)
        return
    done = CliRunner().invoke(command, words)
    if "--precision bf16" in line and not native_core.has_bf16():
        assert isinstance(done.exception, EngineError) and "AVX512-BF16" in str(done.exception)
        return
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert all(os.path.exists(words[index + 1]) for index, word in enumerate(words) if word in ("-o", "--html"))
