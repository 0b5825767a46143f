"""The text form: every model reads back as it was, and faults are named with their lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from backend_data import samples
from dovetail import DovetailError, FormatError
from dovetail.ir.builder import Builder
from dovetail.ops.constant import Foreign
from dovetail.storage.safetensors_file import NAMES
from text_identity import differences_of

LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))
NODES = samples("node")[::24]


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_models_are_the_same_after_their_text(path: Path, tmp_path: Path) -> None:
    assert differences_of(path, tmp_path) == []


@pytest.mark.parametrize("sample", NODES, ids=lambda sample: sample.name)
def test_node_models_are_the_same_after_their_text(sample: Any, tmp_path: Path) -> None:
    assert differences_of(sample.read_model(), tmp_path) == []


def small() -> dovetail.Model:
    with Builder("small") as b:
        x = b.input("x", "f32", ("batch", 3))
        y = b.MatMul(x, b.constant(np.arange(60, dtype=np.float32).reshape(3, 20)))
        b.output("y", b.Softmax(y, axis=0))
    return b.model


def text_of(model: dovetail.Model, folder: Path) -> str:
    dovetail.save(model, folder / "m.dt")
    return (folder / "m.dt").read_text()


NAMES_TO_QUOTE = [
    "a b",
    "-",
    "inf",
    "0",
    'q"uote',
    "back\\slash",
    "line\nbreak",
    "x:0",
    "graph",
    "input",
    "\u202e",
    "é",
    "f32",
    "",
]


@pytest.mark.parametrize("name", NAMES_TO_QUOTE)
def test_any_name_reads_back(name: str, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], [name or "y"], name=name)],
        name or "g",
        [helper.make_tensor_value_info("x", 1, [name or "n", 2])],
        [helper.make_tensor_value_info(name or "y", 1, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    assert differences_of(proto, tmp_path) == []
    read = dovetail.load(tmp_path / "text" / "m.dt")
    assert read.graph.nodes[0].name == name and read.outputs[0].name == (name or "y")


BITS = {
    "f32": [0x7F800001, 0xFFC00000, 0x80000000, 0x00000001, 0x3DCCCCCD, 0x7F7FFFFF, 0x7F800000, 0x4B800001],
    "f64": [0x7FF0000000000001, 0x8000000000000000, 1, 0x3FB999999999999A],
    "f16": [0x7C01, 0x8000, 1, 0x2E66, 0x7C00],
    "bf16": [0x7F81, 0x8000, 1, 0x3DCD],
}


@pytest.mark.parametrize("repeats", [1, 40])
@pytest.mark.parametrize(
    "dtype", [*dict.fromkeys([*BITS, *NAMES]), "i4", "u4", "u2", "u1", "nf4", "f4e2m1", "complex128", "string"]
)
def test_elements_keep_their_bits(dtype: str, repeats: int, tmp_path: Path) -> None:
    from dovetail.ir import dtypes

    kind = dtypes.dtype(dtype)
    if dtype == "string":
        data = np.array(["", "a\0b", "é\n", '"'] * repeats, object)
    elif dtype in BITS:
        data = np.array(BITS[dtype] * repeats, f"u{kind.numpy.itemsize}").view(kind.numpy)
    elif dtype == "boolean":
        data = np.array([True, False] * repeats)
    else:
        codes = np.arange(min(2**kind.bits, 12) if kind.bits < 8 else 12 * kind.numpy.itemsize, dtype=np.uint8)
        data = np.tile(codes, repeats).view(kind.numpy) if kind.kind != "int" or kind.bits >= 8 else codes.astype(kind.numpy)
    with Builder("g") as b:
        b.output("y", b.Identity(b.constant(data, kind)))
    dovetail.save(b.model, tmp_path / "m.dt")
    (read,) = [value.constant for value in dovetail.load(tmp_path / "m.dt").graph.values() if value.constant is not None]
    assert read.dtype == data.dtype and read.shape == data.shape
    assert read.tolist() == data.tolist() if dtype == "string" else read.tobytes() == data.tobytes()


def test_a_line_is_as_before_where_its_node_is(tmp_path: Path) -> None:
    before = text_of(small(), tmp_path).splitlines()
    model = small()
    after = text_of(model.rename_values({"y": "z"}), tmp_path).splitlines()
    assert sum(line not in before for line in after) <= 4


def test_edited_text_is_inferred_again(tmp_path: Path) -> None:
    text = text_of(small(), tmp_path)
    (tmp_path / "m.dt").write_text(text.replace("x: f32[batch, 3]", "x: f32[N, 3]"))
    assert str(dovetail.load(tmp_path / "m.dt").outputs[0].type) == "f32[N, 20]"


def test_a_declared_type_that_contradicts_is_a_warning(tmp_path: Path) -> None:
    text = text_of(small(), tmp_path)
    (tmp_path / "m.dt").write_text(text.replace("y: f32[batch, 20]", "y: f32[batch, 21]"))
    model = dovetail.load(tmp_path / "m.dt")
    assert [item.code for item in model.warnings] == ["type.declared"]
    assert str(model.outputs[0].type) == "f32[batch, 20]"


FAULTS = {
    "version": ("dovetail 1", "dovetail 9", "text.version"),
    "no graph": ("graph small", "# graph", "text.syntax"),
    "operator": ("Softmax(", "Softmaxx(", "text.syntax"),
    "attribute": ("axis=0", "axes=0", "attribute.unknown"),
    "attribute value": ("axis=0", 'axis="a"', "attribute.value"),
    "dangling": ("MatMul(x,", "MatMul(missing,", "text.name"),
    "repeated": ("y: f32", "x: f32", "text.name"),
    "rule": ("x: f32[batch, 3]", "x: f32[batch, 4]", "shape.disagree"),
    "weights": ('@"', '@"no', "text.syntax"),
    "shape of weights": ("= f32[3, 20]@", "= f32[4, 20]@", "text.syntax"),
    "bracket": ("f32[batch, 3]", "f32[batch, 3", "text.syntax"),
    "digest": ('safetensors" "', 'safetensors" "0', "text.version"),
    "escape": ('weights "m.', 'weights "../m.', "path.escape"),
    "left over": ("output y", "output y z", "text.syntax"),
    "character": ("output y", "output y ~", "text.syntax"),
    "levels": ("axis=0", "axis=" + "[" * 5000, "text.syntax"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_have_codes(name: str, tmp_path: Path) -> None:
    old, new, code = FAULTS[name]
    text = text_of(small(), tmp_path)
    assert old in text
    (tmp_path / "m.dt").write_text(text.replace(old, new, 1))
    with pytest.raises(DovetailError) as caught:
        dovetail.load(tmp_path / "m.dt")
    assert code in [item.code for item in caught.value.diagnostics], caught.value
    assert caught.value.diagnostics[0].file == str(tmp_path / "m.dt")


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    text = text_of(small(), tmp_path).replace("Softmax(", "Softmaxx(").replace("MatMul(", "MatMull(")
    (tmp_path / "m.dt").write_text(text)
    with pytest.raises(FormatError) as caught:
        dovetail.load(tmp_path / "m.dt")
    assert [item.code for item in caught.value.diagnostics] == ["text.syntax"] * 2


def test_bytes_are_recognized_as_text() -> None:
    model = dovetail.load(b"dovetail 1\ngraph g\n  input x: f32[2]\n  y: f32[2] = Relu(x)\n  output y\n")
    assert dovetail.run(model, {"x": np.array([-1, 1], np.float32)})["y"].tolist() == [0, 1]


def test_weights_of_another_text_are_refused(tmp_path: Path) -> None:
    dovetail.save(small(), tmp_path / "a.dt")
    with Builder("other") as b:
        b.output(
            "y",
            b.Neg(b.constant(np.ones(60, np.float32))) if hasattr(b, "Neg") else b.Negative(b.constant(np.ones(60, np.float32))),
        )
    dovetail.save(b.model, tmp_path / "b.dt")
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(FormatError, match="file\\.pair"):
        dovetail.load(tmp_path / "a.dt")


def test_show_full_into_a_file_loads(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])], [helper.make_tensor_value_info("y", 1, None)], [weights],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "dovetail", "show", str(tmp_path / "m.onnx"), "--full"]
    if os.path.isdir("/proc/self/fd"):
        with open(tmp_path / "m.dt", "wb") as stream:
            subprocess.run(command, stdout=stream, check=True)
        assert (tmp_path / "m.safetensors").exists()
        loaded = dovetail.load(tmp_path / "m.dt")
        assert np.allclose(dovetail.run(loaded, {"x": np.ones((2, 8), np.float32)})["y"], 8)
    piped = subprocess.run(command, capture_output=True, text=True)
    assert piped.returncode == 3 and "argument.conflict" in piped.stderr and not piped.stdout
    named = subprocess.run([*command, "--weights", str(tmp_path / "n.safetensors")], capture_output=True, text=True)
    assert named.returncode == 0 and '"n.safetensors"' in named.stdout


@pytest.mark.parametrize("old, new", [("f32[batch, 3]", "f32[batch, ?]"), ("axis=0", 'axis=size "N + 1"')])
def test_sizes_where_a_number_or_a_symbol_belongs(old: str, new: str, tmp_path: Path) -> None:
    (tmp_path / "m.dt").write_text(text_of(small(), tmp_path).replace(old, new, 1))
    with pytest.raises(DovetailError):
        dovetail.load(tmp_path / "m.dt")


def test_a_node_without_outputs_reads_back(tmp_path: Path) -> None:
    with Builder() as b:
        x = b.input("x", "f32", (2,))
        y = b.Relu(x)
        y.metadata["note"] = "a description above"
        b.add(Foreign(format="openvino", domain="", kind="Sink", version=1, attributes=(), outputs=0), x)
        b.output("y", y)
    text = str(tmp_path / "m.dt")
    dovetail.save(b.model, text)
    before, after = b.model.graph.nodes, dovetail.load(text).graph.nodes
    assert [node.op for node in after] == [node.op for node in before]
    assert [[x.name for x in node.inputs if x] for node in after] == [[x.name for x in node.inputs if x] for node in before]
