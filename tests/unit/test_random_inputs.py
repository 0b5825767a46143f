"""Random inputs: their sizes are such that the model works, where the file leaves that open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.compare.verification.conversion import random_outputs
from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ops.recurrent.layers import LSTM
from dovetail.ops.tensor.concat_split import Split
from dovetail.runtime.random_inputs import random_inputs


def shapes(model: dovetail.Model, **options: Any) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in random_inputs(model, **options).items()}


def test_an_open_size_is_three() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 4))
        b.output("y", b.Relu(x))
    assert shapes(b.model) == {"x": (3, 4)}


def test_an_image_is_large_enough_for_its_windows() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 3, "h", "w"))
        weights = b.constant(np.ones((2, 3, 8, 8), np.float32))
        b.output("y", b.Conv(x, weights, strides=(8, 8)))
    assert shapes(b.model) == {"x": (3, 3, 8, 8)}
    assert shapes(b.model, sizes={"h": 16})["x"] == (3, 3, 16, 8)


def test_an_open_size_takes_the_size_of_a_weight() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", "k"))
        b.output("y", b.MatMul(x, b.constant(np.ones((21, 5), np.float32))))
    assert shapes(b.model) == {"x": (3, 21)}


def test_two_sizes_that_have_to_fit_at_once_are_found() -> None:
    with dovetail.Builder() as b:
        x, h = b.input("x", "f32", ("n", "k")), b.input("h", "f32", ("m", "j"))
        both = b.Concat(x, h, axis=1)
        b.output("y", b.MatMul(both, b.constant(np.ones((50, 2), np.float32))))
    found = shapes(b.model)
    assert found["x"][1] + found["h"][1] == 50 and found["x"][0] == found["h"][0]


def test_random_indices_are_in_range_where_the_model_is_run() -> None:
    with dovetail.Builder() as b:
        table, x = b.input("table", "f32", ("total", 2)), b.input("x", "f32", ("past",))
        places = b.Add(b.NonZero(b.Cast(b.Shape(x), to=dtypes.boolean)), b.Shape(x))
        b.output("y", b.Gather(table, places, axis=0))
    with pytest.raises(DovetailError, match="index"):
        dovetail.run(b.model, random_inputs(b.model))
    dovetail.run(b.model, random_inputs(b.model, beside={}))


def test_sizes_that_nothing_fits_stay_as_they_are() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", "k"))
        b.output("y", b.MatMul(x, b.constant(np.ones((21, 5), np.float32))))
        b.output("z", b.MatMul(x, b.constant(np.ones((22, 5), np.float32))))
    assert shapes(b.model) == {"x": (3, 3)}


def test_the_command_line_chooses_sizes_that_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dovetail.cli import main

    with dovetail.Builder() as b:
        table, x = b.input("table", "f32", ("total", 2)), b.input("x", "f32", ("past",))
        places = b.Add(b.NonZero(b.Cast(b.Shape(x), to=dtypes.boolean)), b.Shape(x))
        b.output("y", b.Gather(table, places, axis=0))
    dovetail.save(b.model, tmp_path / "m.onnx")
    for arguments in (["run", "m.onnx"], ["convert", "m.onnx", "m.xml", "--verify"]):
        with pytest.raises(SystemExit) as end:
            main([str(tmp_path / each) if each.startswith("m.") else each for each in arguments])
        assert end.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize("source", ["m.onnx", "m.xml"])
def test_bf16_is_verified_in_a_model_with_random_outputs(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    from dovetail.cli import main

    with dovetail.Builder() as b:
        x = b.input("x", "bf16", ("n", 4))
        b.output("y", b.Reshape(x, [4, -1]))
        b.output("drawn", b.RandomUniform([2, 3], np.float32(0), np.float32(1)))
    dovetail.save(b.model, tmp_path / source)
    target = "m.xml" if source == "m.onnx" else "m.onnx"
    with pytest.raises(SystemExit) as end:
        main(["convert", str(tmp_path / source), str(tmp_path / target), "--verify"])
    said = capsys.readouterr()
    assert end.value.code == 1, said.err
    assert said.err.count("type and shape: drawn") == 1 and said.out.count("agrees") == 2
    assert said.out.count("not compared: random") == 2


def test_outputs_that_depend_on_random_numbers_are_identified() -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 4))
        drawn = b.RandomUniform(b.Shape(x), np.float32(0), np.float32(1))
        b.output("sum", b.Add(x, drawn))
        b.output("size", b.Shape(drawn))
        b.output("places", b.Shape(b.NonZero(drawn)))
        b.output("inference", b.Dropout(x))
        b.output("never", b.Dropout(x, np.float32(0.5), b.constant(np.array(False)))[0])
        b.output("nothing", b.Dropout(x, np.float32(0), b.input("training", "boolean", ()))[0])
        b.output("perhaps", b.Dropout(x, np.float32(0.5), b.input("flag", "boolean", ()))[0])
    assert random_outputs(b.model) == {"sum", "places", "perhaps"}


def test_a_layer_that_checks_six_open_sizes_runs() -> None:
    """Torch's LSTM as OpenVINO converts it: no input declares a size, and each state is cut in two layers."""
    with dovetail.Builder() as b:
        x, h, c = (b.input(name, "f32", tuple(f"{name}{axis}" for axis in range(3))) for name in ("x", "h", "c"))
        states = [b.add(Split(axis=0, outputs=2), state)[0] for state in (h, c)]
        weights = [b.constant(np.zeros((1, 128, size), np.float32)) for size in (20, 32)]
        y, *_ = b.add(LSTM(hidden_size=32, outputs=3), x, *weights, None, None, *states)
        b.output("y", y)
    inputs = random_inputs(b.model)
    assert inputs["x"].shape[2] == 20 and inputs["h"].shape[0] == 2 and inputs["h"].shape[2] == inputs["c"].shape[2] == 32
    dovetail.run(b.model, inputs)
