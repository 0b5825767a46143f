"""Layers of IR by the names that Netron shows, and IR in memory instead of on a disk."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino.opset13 as ops
import pytest

import dovetail
from dovetail.errors import DovetailError, FormatError

X = np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file whose layers have names of their own, beside the names of their tensors."""
    x = ops.parameter([-1, 3, 8, 8], np.float32, "layer/x")
    x.output(0).set_names({"x"})
    weights = ops.constant(np.linspace(-1, 1, 216, dtype=np.float32).reshape(8, 3, 3, 3), name="layer/weights")
    conv = ops.convolution(x, weights, [1, 1], [0, 0], [0, 0], [1, 1], name="layer/conv")
    conv.output(0).set_names({"12"})
    relu = ops.relu(conv, name="layer/relu")
    relu.output(0).set_names({"13"})
    parts = ops.split(relu, ops.constant(1), 2, name="layer/split")
    y = ops.add(parts.output(0), parts.output(1), name="layer/sum")
    y.output(0).set_names({"y"})
    openvino.serialize(openvino.Model([ops.result(y, name="layer/result")], [x], "m"), tmp_path / "m.xml")
    return tmp_path / "m.xml"


@pytest.mark.parametrize("name, value", [("layer/relu", "13"), ("layer/conv", "12"), ("layer/sum", "y"), ("layer/result", "y")])
def test_a_layer_of_one_output_is_its_value(name: str, value: str, path: Path, tmp_path: Path) -> None:
    model = dovetail.load(path)
    by_layer, by_value = (dovetail.extract(model, outputs=[each]) for each in (name, value))
    assert [y.name for y in by_layer.outputs] == [y.name for y in by_value.outputs] == [value]
    assert model.set_outputs([name]).outputs[0].name == value
    assert "new" in [y.name for y in model.rename_values({name: "new"}).graph.values()]
    found = dovetail.compare_layers(model, engines=["interpreter", "native"], values=[name], inputs={"x": X})
    assert [row.value for row in found.rows] == [value]


def test_commands_take_the_names_of_layers(path: Path, tmp_path: Path, capsys: Any) -> None:
    from dovetail.cli import main

    commands = {"extract": ["--from", "layer/conv", "--to", "layer/relu"], "edit": ["--output", "layer/relu"]}
    for name, options in commands.items():
        with pytest.raises(SystemExit) as ended:
            main([name, str(path), *options, "--verify", "-o", str(tmp_path / "part.xml")])
        assert ended.value.code == 0, capsys.readouterr().err
        assert dovetail.load(tmp_path / "part.xml").outputs[-1].name == "13"


def test_the_layer_of_which_one_weight_changed_is_named(path: Path, tmp_path: Path) -> None:
    """By compare, as the first difference, and by diff, as the only change."""
    weights = np.fromfile(path.with_suffix(".bin"), np.float32)
    weights[100] += 0.5
    (tmp_path / "other.xml").write_text(path.read_text())
    weights.tofile(tmp_path / "other.bin")
    model, other = dovetail.load(path), dovetail.load(tmp_path / "other.xml")
    found = dovetail.compare_layers(model, other=other, engines=["native"])
    first = found.first_difference()
    assert first is not None and (first.value, first.node) == ("12", "layer/conv")
    assert not dovetail.compare_layers(model, other=dovetail.load(path), engines=["native"]).differs
    assert [change.first for change in dovetail.diff(model, other).changes] == [("layer/conv",)]


def test_a_layer_of_several_outputs_is_ambiguous(path: Path) -> None:
    with pytest.raises(DovetailError, match="several outputs: name one of the values") as caught:
        dovetail.extract(dovetail.load(path), outputs=["layer/split"])
    assert caught.value.code == "name.ambiguous"


def test_a_name_of_a_value_precedes_that_of_a_layer() -> None:
    with dovetail.Builder("m") as b:
        b.output("a", b.Relu(b.input("x", "f32", (2,))))
        b.output("b", b.Abs(b.model.outputs[0]))
    b.model.graph.nodes[0].name, b.model.graph.nodes[1].name = "b", "a"
    assert dovetail.extract(b.model, outputs=["a"]).outputs[0].name == "a"


def test_an_ir_is_saved_into_memory_and_loaded_from_it(path: Path, tmp_path: Path) -> None:
    model = dovetail.load(path)
    want = dovetail.run(model, {"x": X})["y"]
    spellings: list[Any] = [
        lambda xml, weights: dovetail.save(model, (xml, weights)),
        lambda xml, weights: dovetail.save(model, xml, weights=weights, format="xml"),
    ]
    for save in spellings:
        xml, weights = io.BytesIO(), io.BytesIO()
        save(xml, weights)
        dovetail.save(model, tmp_path / "again.xml")
        assert xml.getvalue() == (tmp_path / "again.xml").read_bytes()
        assert weights.getvalue() == (tmp_path / "again.bin").read_bytes()
        for source, data in (
            (xml.getvalue(), weights.getvalue()),
            (io.BytesIO(xml.getvalue()), io.BytesIO(weights.getvalue())),
            (io.BytesIO(xml.getvalue()), memoryview(weights.getvalue())),
        ):
            np.testing.assert_array_equal(dovetail.run(dovetail.load(source, weights=data), {"x": X})["y"], want)
        core = openvino.Core()
        read = core.read_model(xml.getvalue(), openvino.Tensor(np.frombuffer(weights.getvalue(), np.uint8)))
        assert np.allclose(core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([X])[0], want, atol=1e-5)


def test_an_ir_needs_two_binary_objects(path: Path) -> None:
    model = dovetail.load(path)
    for arguments, more in (((io.BytesIO(),), {"format": "xml"}), (((io.BytesIO(),),), {}), ((io.BytesIO(),), {"format": "bin"})):
        with pytest.raises(FormatError) as caught:
            dovetail.save(model, *arguments, **more)  # type: ignore[arg-type]
        assert caught.value.code == "argument.conflict"
