"""Each verb changes only the files that its arguments name, and never one of another model or tool."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import dovetail
from dovetail import cli

FOREIGN = (
    "m.safetensors",
    "out.safetensors",
    "out.bin",
    "out.onnx.data",
    "m.onnx.data",
    "out.npz",
    "m.npz",
    "out.json",
    "_job.json",
)
"""Files of other tools beside the models, under the names that a weights file or a report of dovetail could have."""


def write_model(path: Path, *, seed: int = 0, **options: object) -> None:
    """Write y = x @ W with a matrix that does not fit into a line of text."""
    rng = np.random.default_rng(seed)
    with dovetail.Builder("product") as b:
        x = b.input("x", "f32", (3, 40))
        b.output("y", b.Relu(b.MatMul(x, b.constant(rng.standard_normal((40, 30)).astype(np.float32), name="W"))))
    dovetail.save(b.model, path, **options)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_model(tmp_path / "m.onnx")
    write_model(tmp_path / "other.onnx", seed=1)
    np.save(tmp_path / "rows.npy", np.ones((5, 40), np.float32))
    save_file({"w": np.ones((4, 6), np.float32)}, tmp_path / "weights.safetensors")
    with dovetail.Builder("moved") as b:
        b.output("t", b.Transpose(b.input("w", "f32", (4, 6)), [1, 0]))
    dovetail.save(b.model, tmp_path / "moved.onnx")
    for name in FOREIGN:
        (tmp_path / name).write_bytes(b"of another tool: " + name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


VERBS = {
    "info m.onnx": [],
    "show m.onnx": [],
    "check m.onnx": [],
    "infer m.onnx": [],
    "inspect m.onnx": [],
    "inspect m.onnx -o new.html": ["new.html"],
    "infer m.onnx -o new.onnx": ["new.onnx"],
    "run m.onnx": [],
    "run m.onnx -o new.npz": ["new.npz"],
    "plan m.onnx": [],
    "plan m.onnx --html new.html": ["new.html"],
    "profile m.onnx -o new.html": ["new.html"],
    "report m.onnx -o new.html": ["new.html"],
    "reshard moved.onnx weights.safetensors -o parts": None,
    "draw m.onnx -o new.svg": ["new.svg"],
    "cost m.onnx --fits 1GB": [],
    "diff m.onnx other.onnx": [],
    "diff m.onnx m.onnx --prove --certificate new.json": ["new.json"],
    "compare m.onnx": [],
    "bench m.onnx": [],
    "ops": [],
    "shard m.onnx --mesh a=1": [],
    "map m.onnx rows.npy -o parts --engine local --workers 1": None,
    "convert m.onnx new.onnx": ["new.onnx"],
    "convert m.onnx new.onnx --external": ["new.onnx", "new.onnx.data"],
    "convert m.onnx new.onnx --weights safetensors": ["new.onnx", "new.safetensors"],
    "convert m.onnx new.xml": ["new.bin", "new.xml"],
    "convert m.onnx new.onnx --encoding qdq": ["new.onnx"],
    "convert m.onnx new.dt": ["new.dt", "new.safetensors"],
    "convert m.onnx m.dt": [],
    "convert m.onnx out.dt": [],
    "convert m.onnx out.xml": [],
    "convert m.onnx out.onnx --external": [],
    "convert m.onnx out.onnx --weights safetensors": [],
    "convert m.onnx out.onnx": ["out.onnx"],
    "simplify m.onnx -o new.onnx": ["new.onnx"],
    "simplify m.onnx -o out.onnx --external": [],
    "edit m.onnx --rename y=z -o new.onnx": ["new.onnx"],
    "edit m.onnx --rename y=z -o out.dt": [],
    "extract m.onnx --to y -o new.onnx": ["new.onnx"],
    "extract m.onnx --to y -o out.xml": [],
    "merge m.onnx other.onnx -o out.xml": [],
    "grad m.onnx out.xml": [],
    "grad m.onnx new.onnx": ["new.onnx"],
    "rebatch m.onnx --dim 0=6 -o out.xml": [],
    "quantize m.onnx -o new.onnx": ["new.onnx"],
    "quantize m.onnx -o out.xml --to int4": [],
    "reduce m.onnx --check {sh} -o out.xml": [],
}
"""The files that each command creates or changes; None: those of the folder that it names."""


def test_every_verb_is_listed() -> None:
    assert {command.split()[0] for command in VERBS} == set(cli.COMMANDS)


@pytest.mark.parametrize("command", VERBS)
def test_a_command_changes_only_its_output_files(folder: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(folder)
    with pytest.raises(SystemExit) as end:
        cli.main([word.replace("{sh}", "sh -c false {}") for word in command.split()])
    output = capsys.readouterr()
    after = contents(folder)
    assert end.value.code not in (2, 7), output
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    expected = VERBS[command]
    if expected is None:
        assert changed, output
        assert all(name.startswith("parts/") for name in changed)
    else:
        assert changed == expected, output
    assert all(after[name] == before[name] for name in FOREIGN)


def show_to_file(target: str) -> subprocess.CompletedProcess[bytes]:
    with open(target, "wb") as stdout:
        return subprocess.run(
            [sys.executable, "-m", "dovetail", "show", "m.onnx", "--full"], stdout=stdout, stderr=subprocess.PIPE, check=False
        )


def test_show_to_a_file_keeps_a_foreign_weights_file_and_replaces_its_own(folder: Path) -> None:
    before = (folder / "m.safetensors").read_bytes()
    refused = show_to_file("m.txt")
    assert refused.returncode != 0
    assert b"path.foreign" in refused.stderr
    assert (folder / "m.safetensors").read_bytes() == before
    for _ in range(2):
        assert show_to_file("new.dt").returncode == 0
    assert dovetail.load(folder / "new.dt").inputs[0].name == "x"


@pytest.mark.parametrize(
    ("main_name", "options"), [("a.xml", {"weights": "safetensors"}), ("a.onnx", {"weights": "safetensors"})]
)
def test_the_weights_of_another_model_of_ours_are_kept(tmp_path: Path, main_name: str, options: dict[str, object]) -> None:
    write_model(tmp_path / main_name, **options)
    before = contents(tmp_path)
    with pytest.raises(dovetail.DovetailError, match="exists and belongs to a save of") as fault:
        write_model(tmp_path / "a.dt", seed=1)
    assert fault.value.code == "path.foreign"
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "options"), [("a.xml", {}), ("a.dt", {}), ("a.onnx", {"external": True}), ("a.onnx", {"weights": "safetensors"})]
)
def test_a_save_replaces_its_own_pair(tmp_path: Path, name: str, options: dict[str, object]) -> None:
    for seed in range(3):
        write_model(tmp_path / name, seed=seed, **options)
    os.unlink(tmp_path / name)
    write_model(tmp_path / name, seed=3, **options)
    assert dovetail.load(tmp_path / name).inputs[0].name == "x"


def test_a_save_replaces_a_pair_of_another_tool(tmp_path: Path) -> None:
    import onnx
    import openvino

    write_model(tmp_path / "a.onnx")
    model = onnx.load(tmp_path / "a.onnx")
    openvino.save_model(openvino.convert_model(tmp_path / "a.onnx"), tmp_path / "a.xml")
    write_model(tmp_path / "a.xml", seed=1)
    onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location="a.onnx.data", size_threshold=0)
    write_model(tmp_path / "a.onnx", seed=1, external=True)
    assert dovetail.load(tmp_path / "a.onnx").inputs[0].name == "x"


def test_a_weights_file_that_the_caller_names_is_replaced(folder: Path) -> None:
    write_model(folder / "named.onnx", external="out.bin")
    assert dovetail.load(folder / "named.onnx").inputs[0].name == "x"


def test_the_operator_that_a_comparison_writes_takes_a_free_name(folder: Path) -> None:
    from dovetail.cli.bisect import free_path

    (folder / "part.npz").write_bytes(b"foreign")
    assert free_path("part.npz") == "part.1.npz"
    assert free_path("part.onnx") == "part.onnx"
