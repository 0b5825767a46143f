"""examples/finetune.py: a run that resumes takes the steps of a run without an interruption, and its files run everywhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import finetune
import numpy as np
import pytest

import dovetail

EXAMPLE = Path(finetune.__file__)


def run(folder: Path, *options: str) -> float:
    return finetune.main(["--checkpoints", str(folder / "states"), "--out", str(folder), "--every", "20", *options])


def test_a_run_that_resumes_takes_the_same_steps(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(whole, "--steps", "60") > 0.9
    run(parts, "--steps", "40")
    assert run(parts, "--steps", "60", "--resume") > 0.9
    for name in ("tuned.onnx", "tuned.bin"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    states, step = finetune.load_checkpoint(parts / "states" / finetune.CHECKPOINT)
    assert step == 60 and {"conv0.weight", "conv0.weight.mean", "step"} <= states.keys()


@pytest.mark.parametrize("options", [(), ("--lora", "2"), ("--weights", "head.*")])
def test_tuned_files_run_in_other_runtimes(options: tuple[str, ...], tmp_path: Path) -> None:
    onnxruntime, openvino = pytest.importorskip("onnxruntime"), pytest.importorskip("openvino")
    run(tmp_path, "--steps", "20", *options)
    x, _ = finetune.draw_pictures(8)
    expected = dovetail.run(tmp_path / "tuned.onnx", x)["scores"]
    found = onnxruntime.InferenceSession(tmp_path / "tuned.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    compiled = openvino.Core().compile_model(tmp_path / "tuned.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    np.testing.assert_allclose(compiled(x)[0], expected, atol=1e-4)
    before = finetune.build_network().values
    after = dovetail.load(tmp_path / "tuned.onnx").values
    is_trained = {name: (before[name].constant != after[name].constant).any() for name in ("conv0.weight", "head.weight")}
    assert is_trained == {"conv0.weight": not options, "head.weight": True}


def test_a_model_and_its_data_come_from_files(tmp_path: Path) -> None:
    dovetail.save(finetune.build_network(8), tmp_path / "model.xml")
    x, y = finetune.draw_pictures(100, 8)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    run(tmp_path, "--steps", "5", "--model", str(tmp_path / "model.xml"), "--data", str(tmp_path / "data.npz"))
    assert dovetail.run(tmp_path / "tuned.xml", x)["scores"].shape == (100, 2)


def test_progress_is_drawn_on_a_terminal_alone(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "20", "--checkpoints", str(tmp_path), "--out", str(tmp_path)]
    silent = subprocess.run(command, capture_output=True, text=True, check=True)
    assert silent.stderr == "" and "after" in silent.stdout
    reader, terminal = pty.openpty()
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, check=True, env={**os.environ, "TERM": "xterm"})
    os.close(terminal)
    drawn = b""
    # At its end, a terminal raises OSError on Linux.
    try:
        while part := os.read(reader, 65536):
            drawn += part
    except OSError:
        pass
    os.close(reader)
    assert b"20/20" in drawn and b"after" in process.stdout
