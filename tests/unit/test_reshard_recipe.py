"""Recipes of dovetail.reshard, with torch on whole tensors as the oracle, and `dovetail reshard`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dovetail
from dovetail import DovetailError

RNG = np.random.default_rng(3)
RECIPE = """
ranks = 2

[split]
"*.qkv.weight" = 0
"*.[qkv].weight" = 0
"*.o.weight" = 1
"*.down.weight" = 1
"embed" = 0

[[unfuse]]
tensor = "*.qkv.weight"
into = ["*.q.weight", "*.k.weight", "*.v.weight"]
sizes = [2, 1, 1]
axis = 0

[transpose]
"*.down.weight" = [1, 0]

[cast]
"embed" = "bf16"

[[fuse]]
tensors = ["*.k.weight", "*.v.weight"]
into = "*.kv.weight"
axis = 0

[rename]
"layers.*" = "model.layers.*"
"""


@pytest.fixture
def whole() -> dict[str, Any]:
    """Return the tensors without a split."""
    tensors = {"embed": RNG.standard_normal((8, 6)), "norm": RNG.standard_normal(6)}
    for layer in range(2):
        for name, shape in {"q": (16, 6), "k": (8, 6), "v": (8, 6), "o": (6, 16), "down": (6, 16)}.items():
            tensors[f"layers.{layer}.{name}.weight"] = RNG.standard_normal(shape)
    return {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def axis_of(name: str) -> int:
    return 1 if ".o." in name or ".down." in name else 0


def rank_of(whole: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    return {
        name: tensor if name == "norm" else np.ascontiguousarray(np.split(tensor, ranks, axis_of(name))[rank])
        for name, tensor in whole.items()
    }


@pytest.fixture
def source(tmp_path: Path, whole: dict[str, Any]) -> Path:
    """Four ranks; queries, keys and values of each are one tensor."""
    folder = tmp_path / "in"
    folder.mkdir()
    for rank in range(4):
        tensors = rank_of(whole, rank, 4)
        for layer in range(2):
            names = [f"layers.{layer}.{name}.weight" for name in "qkv"]
            tensors[f"layers.{layer}.qkv.weight"] = np.concatenate([tensors.pop(name) for name in names])
        save_file(tensors, folder / f"consolidated.{rank:02}.safetensors")
    return folder


def recipe(**changes: Any) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(RECIPE) | changes


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_recipe_of_ranks_fusion_transposition_and_casts(source: Path, whole: dict[str, Any], ranks: int) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_torch

    split = {"*.[qkv].weight": 0, "*.o.weight": 1, "*.down.weight": 1, "embed": 0}
    report = dovetail.reshard(recipe(ranks=ranks, split=split), source, source.parent / "out")
    assert len(report.files) == ranks and report.unused == ()
    for rank, file in enumerate(report.files):
        tensors = rank_of(whole, rank, ranks)
        expected = {"embed": torch.from_numpy(tensors["embed"]).bfloat16(), "norm": torch.from_numpy(tensors["norm"])}
        for layer in range(2):
            old, new = f"layers.{layer}", f"model.layers.{layer}"
            rows = {name: tensors[f"{old}.{name}.weight"] for name in ("q", "k", "v", "o", "down")}
            rows = {"q": rows["q"], "kv": np.concatenate([rows["k"], rows["v"]]), "o": rows["o"], "down": rows["down"].T}
            expected |= {f"{new}.{name}.weight": torch.from_numpy(np.ascontiguousarray(row)) for name, row in rows.items()}
        loaded = load_torch(source.parent / "out" / file)
        assert loaded.keys() == expected.keys()
        assert all(loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor) for name, tensor in expected.items())


def test_a_whole_checkpoint_is_split_and_merged_again(tmp_path: Path, whole: dict[str, Any]) -> None:
    save_file(whole, tmp_path / "whole.safetensors")
    split = {"*.[qkv].weight": 0, "*.o.weight": 1, "*.down.weight": 1, "embed": 0}
    report = dovetail.reshard({"ranks": 2, "split": split}, tmp_path / "whole.safetensors", tmp_path / "two")
    assert report.files == ("rank-00000.safetensors", "rank-00001.safetensors")
    dovetail.reshard({"split": split}, tmp_path / "two", tmp_path / "one.safetensors")
    loaded = load_file(tmp_path / "one.safetensors")
    assert loaded.keys() == whole.keys() and all(np.array_equal(loaded[name], tensor) for name, tensor in whole.items())


def test_the_graph_of_a_recipe_is_an_ordinary_model(source: Path) -> None:
    split = {"*.[qkv].weight": 0, "*.o.weight": 1, "*.down.weight": 1, "embed": 0}
    model = dovetail.reshard_graph(recipe(split=split), source)
    assert dovetail.check(model) == [] and {"input:embed@3"} <= {value.name for value in model.inputs}
    dovetail.save(model, source.parent / "graph.onnx", opset=18)
    report = dovetail.reshard(source.parent / "graph.onnx", source, source.parent / "out")
    again = dovetail.reshard(recipe(split=split), source, source.parent / "again")
    for one, other in zip(report.files, again.files, strict=True):
        assert (source.parent / "out" / one).read_bytes() == (source.parent / "again" / other).read_bytes()


def code_of(changes: Any, source: Path) -> str:
    with pytest.raises(DovetailError) as caught:
        dovetail.reshard(changes, source, source.parent / "out")
    assert not (source.parent / "out").exists()
    return caught.value.code


SPLIT = {"*.[qkv].weight": 0, "*.o.weight": 1, "*.down.weight": 1, "embed": 0}
WRONG: list[dict[str, Any]] = [
    {"rank": 2}, {"ranks": 0}, {"ranks": True}, {"split": {"embed": "0"}}, {"split": []}, {"split": SPLIT | {"nothing.*": 0}},
    {"split": SPLIT | {"embed": 2}}, {"ranks": 3}, {"transpose": {"embed": [0, 0]}}, {"transpose": {"embed": 1}},
    {"cast": {"embed": "f31"}}, {"drop": "x"}, {"rename": {"a*": "b"}}, {"rename": {"**": "**"}}, {"rename": {"embed": "norm"}},
    {"rename": {"gone": "norm"}}, {"fuse": {}}, {"fuse": [{"tensors": ["embed"], "into": "x"}]},
    {"fuse": [{"tensors": ["*.o.weight", "*.gone"], "into": "*.x", "axis": 0}]},
    {"fuse": [{"tensors": ["*.o.weight"], "into": "x", "axis": 0}]},
    {"unfuse": [{"tensor": "*.qkv.weight", "into": ["*.a", "*.b"], "sizes": [1], "axis": 0}]},
    {"unfuse": [{"tensor": "*.qkv.weight", "into": ["*.a", "*.b"], "sizes": [1, 2], "axis": 0}]},
    *(
        {"unfuse": [{"tensor": "*.qkv.weight", "into": ["*.a", "*.b"], "sizes": sizes, "axis": 0}]}
        for sizes in ([0, 1], [-1, 2], [1.0, 1], "11", [])
    ),
]  # fmt: skip


@pytest.mark.parametrize("changes", WRONG, ids=str)
def test_wrong_recipes_are_refused(source: Path, changes: dict[str, Any]) -> None:
    assert code_of(recipe(split=SPLIT) | changes, source) == "reshard.recipe"


@pytest.mark.parametrize("content", [b"split = ", b"\xff", b"a = " + b"[" * 3000])
def test_a_file_that_is_no_recipe_is_refused(source: Path, content: bytes) -> None:
    (source.parent / "recipe.toml").write_bytes(content)
    with pytest.raises(DovetailError) as caught:
        dovetail.reshard(source.parent / "recipe.toml", source, source.parent / "out")
    assert caught.value.code == "reshard.recipe" and caught.value.file == str(source.parent / "recipe.toml")


def test_tensors_that_differ_between_ranks_need_an_axis(source: Path) -> None:
    split = {name: axis for name, axis in SPLIT.items() if name != "embed"}
    assert code_of(recipe(split=split), source) == "reshard.recipe"
    save_file({"norm": np.zeros(7, np.float32)}, source / "consolidated.04.safetensors")
    assert code_of({}, source) in ("reshard.recipe", "reshard.tensor")


def test_dovetail_reshard(source: Path) -> None:
    path = source.parent / "recipe.toml"
    path.write_text(RECIPE.replace('"*.qkv.weight" = 0\n', "", 1))
    command = [sys.executable, "-m", "dovetail", "reshard", str(path), str(source), "-o", str(source.parent / "out")]
    done = subprocess.run([*command, "--json", "--memory", "300MB"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["files"] == ["consolidated.00.safetensors", "consolidated.01.safetensors"]
    for options, code in ((["--batch", "3"], 2), (["--shards", "7", "--restart"], 5), ([], 6)):
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    command[3] = "map"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "dovetail reshard" in done.stderr
    command[3] = "reshard"
    path.write_text("ranks = ")
    assert "reshard.recipe" in subprocess.run([*command, "--restart"], capture_output=True, text=True, check=False).stderr
