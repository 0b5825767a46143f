"""Programs of JAX over 8 host devices: results of one device, proposals, collectives. Each model runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import EngineError

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "sharded_runs.py"

pytest.importorskip("jax")


def run(*words: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rows() -> Any:
    return run("mlp", "model=8", "data=2,model=4")


def test_a_product_by_columns_is_closed_by_one_by_rows(rows: Any) -> None:
    tensor, both, _ = rows
    assert tensor["plan"]["up"] == [None, "model"] and tensor["plan"]["down"] == ["model"]
    assert tensor["plan"]["table"] == ["model"] and tensor["plan"]["odd_columns"] == []
    assert both["plan"]["ids"] == ["data"] and both["plan"]["up"] == [None, "model"]
    assert "gathered: add of" in tensor["text"]
    assert "<Program jax on 8 devices (data=2, model=4): " in both["repr"]


def test_several_devices_give_the_results_of_one(rows: Any) -> None:
    for row in rows[:-1]:
        assert row["single"] < 1e-6 and row["native"] < 1e-6


def test_collectives_are_listed_with_their_nodes(rows: Any) -> None:
    tensor = rows[0]["collectives"]
    # The look-up and the product by rows are summed: 8 * 5 rows of 64 f32. The result of "mixing" is gathered.
    assert tensor == {"all-reduce": [2, 2 * 8 * 5 * 64 * 4], "all-gather": [1, 8 * 5 * 64 * 4]}
    assert any("gather" in node.lower() for node in rows[0]["nodes"])


def test_shardings_are_overridden_and_checked(rows: Any) -> None:
    requests = rows[-1]
    assert requests["codes"] == ["argument.value"] * 2 + ["name.unknown", "sharding.spec"] + ["sharding.spec"] * 3
    assert requests["plan"]["up"] == requests["plan"]["down"] == [] and requests["plan"]["y"] == [None, None, "model"]
    assert requests["native"] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "meshes"),
    [("bert", ["data=8", "data=2,model=4"]), ("llama", ["model=8", "data=2,model=4"]), ("detector", ["model=8"])],
)
def test_networks_on_8_devices_are_those_of_one(model: str, meshes: list[str]) -> None:
    for row in run(model, *meshes):
        assert row["single"] < 5e-6 and row["native"] < 5e-6, row["mesh"]
        assert "all-reduce" in row["collectives"]


def test_the_command_line_prints_proposal_and_collectives(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        y = b.Relu(b.MatMul(b.input("x", "f32", ("n", 64)), b.constant(np.ones((64, 128), np.float32), name="up")))
        b.output("y", b.MatMul(y, b.constant(np.ones((128, 64), np.float32), name="down")))
    path = tmp_path / "m.onnx"
    dovetail.save(b.model, path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    words = ["shard", str(path), "--mesh", "data=2,model=2", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *words], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {row["name"]: row["spec"] for row in found["shardings"]} == {
        "x": "P('data')",
        "up": "P(None, 'model')",
        "down": "P('model')",
    }
    (row,) = found["collectives"]
    assert (row["collective"], row["count"], row["bytes"]) == ("all-reduce", 1, 2 * 64 * 4)


def test_a_mesh_belongs_to_jax() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", (2,))))
    for engine, device in (
        ("torch", dovetail.DeviceOptions(mesh={"data": 1})),
        ("auto", dovetail.DeviceOptions(mesh={"data": 1})),
        ("jax", dovetail.DeviceOptions(shardings={"x": None})),
    ):
        with pytest.raises(EngineError, match=r"argument\.conflict"):
            dovetail.compile(b.model, engine, device=device)
    program: Any = dovetail.compile(b.model, "jax", device=dovetail.DeviceOptions(mesh={"data": 1}))
    assert program.shardings["x"] == () and repr(program.collectives(np.ones(2, np.float32))) == "no collectives"
