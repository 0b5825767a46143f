"""Whatever ``save`` writes, ``load(strict=True)`` reads, with the same types; what it cannot write so, it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail import Builder, UnsupportedError
from dovetail.ir.types import Tensor

FORMATS = ("onnx", "xml")
HUGE = 2**62


def types(model: Any) -> list[str]:
    return [str(value.type) for value in (*model.inputs, *model.outputs)]


def reloaded(model: Any, folder: Path) -> list[str]:
    """Return the formats in which ``model`` is written; each is read back by the strict rules."""
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
    """Return a file whose output is declared with another shape than the rules give."""
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


@pytest.mark.parametrize("inner", [[], ["r"]])
def test_a_declared_number_fixes_no_size_of_an_input(tmp_path: Path, inner: list[str]) -> None:
    """As LightGBM's converter writes it: a batch of any size, and a result declared for a batch of 1."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Shape", ["r"], ["s"]), helper.make_node("Neg", ["r"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (("y", 1, [1, 3]), ("s", 7, [2]))],
        value_info=[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in inner],
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())
    model = dovetail.load(path)
    x, y = model.inputs[0], model.outputs[0]
    assert y.type == x.type and str(y.type) == "f32[?x.0, 3]"
    assert reloaded(model, tmp_path) == ["onnx", "xml"]
    data = np.ones((5, 3), np.float32)
    for copy in (path, tmp_path / "again.onnx", tmp_path / "again.xml"):
        for engine in ("interpreter", "native"):
            found = dovetail.compile(dovetail.load(copy), engine=engine)({"x": data})
            np.testing.assert_array_equal(found["s"], [5, 3])
            np.testing.assert_array_equal(found["y"], -data)


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
    assert (caught.value.code, caught.value.node) == ("type.element", "x")
    assert not (tmp_path / "m.onnx").exists()
