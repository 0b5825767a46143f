"""Whatever ``save`` writes, ``load(strict=True)`` reads, with the same types; what it cannot write so, it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail import Builder, UnsupportedError
from dovetail.types import Tensor

FORMATS = ("onnx", "xml")
HUGE = 2**62


def types(model: Any) -> list[str]:
    return [str(value.type) for value in (*model.inputs, *model.outputs)]


def reloaded(model: Any, folder: Path) -> list[str]:
    """The formats in which ``model`` is written; each is read back by the strict rules."""
    found = []
    for suffix in FORMATS:
        path = folder / f"again.{suffix}"
        try:
            dovetail.save(model, path)
        except UnsupportedError as error:
            assert all(item.node for item in error.diagnostics), error
            continue
        assert types(dovetail.load(path, strict=True)) == types(model), path
        assert dovetail.check(path) == []
        found.append(suffix)
    return found


def declared(folder: Path, shape: Any, output: Any) -> Path:
    """A file whose output is declared with another shape than the rules give."""
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT8)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, output)],
    )
    path = folder / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())
    return path


def test_a_wrong_declaration_fills_in_no_size(tmp_path: Path) -> None:
    model = dovetail.load(declared(tmp_path, ["n", HUGE], [7, 1]))
    assert [item.code for item in model.warnings] == ["type.declared"]
    assert str(model.outputs[0].type) == f"i8[n, {HUGE}]"
    model = dovetail.load(declared(tmp_path, [None, HUGE], [7, 1]))
    assert reloaded(model, tmp_path) == ["onnx", "xml"]


def test_a_result_too_large_to_declare(tmp_path: Path) -> None:
    with Builder() as b:
        x = b.input("x", "f32", (1, 1))
        b.output("y", b.Expand(x, [2**40, 2**40]))
    for suffix in FORMATS:
        path = tmp_path / f"m.{suffix}"
        dovetail.save(b.model, path)
        assert types(dovetail.load(path, strict=True)) == types(b.model)


def test_an_input_too_large_to_declare_is_refused_by_name(tmp_path: Path) -> None:
    with Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", (2**40, 2**40))))
    for suffix in FORMATS:
        with pytest.raises(UnsupportedError) as caught:
            dovetail.save(b.model, tmp_path / f"m.{suffix}")
        assert ("type.dims", "x") in {(item.code, item.node) for item in caught.value.diagnostics}


def test_an_input_without_an_element_type(tmp_path: Path) -> None:
    with Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", (3,))))
    for value in b.model.graph.values():
        value.type = Tensor(None, value.type.shape)
    assert reloaded(b.model, tmp_path) == ["xml"]
    with pytest.raises(UnsupportedError) as caught:
        dovetail.save(b.model, tmp_path / "m.onnx")
    assert (caught.value.code, caught.value.node) == ("type.missing", "x")
    assert not (tmp_path / "m.onnx").exists()
