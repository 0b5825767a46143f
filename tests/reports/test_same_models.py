"""Two ways to write one model are no difference for ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.errors import RuleError
from dovetail.ir import dtypes
from dovetail.ir.op import REGISTRY, Op
from dovetail.ops.elementwise.broadcast import BroadcastingOp

BINARY: list[type[Op]] = [
    cls for _, cls in sorted(REGISTRY.items()) if issubclass(cls, BroadcastingOp) and cls.signature.min_inputs <= 2
]


def applied(cls: type[Op], names: str, dtype: Any) -> dovetail.Model:
    with dovetail.Builder() as b:
        values = {name: b.input(name, dtype, (2, 3)) for name in "xy"}
        (result,) = b.add(cls(**({"direction": "left"} if cls.__name__ == "BitShift" else {})), *(values[name] for name in names))
        b.output("z", result)
    return b.model


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.i32, dtypes.u8, dtypes.boolean], ids=str)
@pytest.mark.parametrize("cls", BINARY, ids=[cls.__name__ for cls in BINARY])
def test_operands_change_places_only_where_that_changes_no_bit(cls: type[Op], dtype: Any) -> None:
    """Every elementwise operator of two tensors says for itself whether it commutes; ``diff`` and ``simplify`` follow it."""
    try:
        first, second = (applied(cls, names, dtype) for names in ("xy", "yx"))
    except RuleError as error:
        pytest.skip(error.message)
    node = first.graph.nodes[-1]
    commutes = node.op.is_commutative(*node.inputs)
    assert dovetail.diff(first, second).is_same == commutes
    extremes: list[Any] = {
        "f": [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38, 1e-45],
        "i": [0, 1, -1, 7, 2**31 - 1, -(2**31)], "u": [0, 1, 2, 7, 128, 255], "b": [False, True],
    }[dtype.numpy.kind]  # fmt: skip
    x, y = (np.array(grid, dtype.numpy).reshape(-1)[: len(extremes) ** 2] for grid in np.meshgrid(extremes, extremes))
    if commutes:
        with np.errstate(all="ignore"):
            pair = [np.asarray(node.op.evaluate(np, *operands)) for operands in ((x, y), (y, x))]
        np.testing.assert_array_equal(*pair)
        kept = ~np.isnan(pair[0]) if pair[0].dtype.kind == "f" else ...
        assert pair[0][kept].tobytes() == pair[1][kept].tobytes()


REDUCTIONS = sorted(name for name, cls in REGISTRY.items() if "noop_with_empty_axes" in cls.fields_by_name and cls.onnx)


@pytest.mark.parametrize("axes", ["given", "empty", "absent", "input", "open"])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_reduction_that_names_its_axes_has_no_other_meaning_without_them(kind: str, axes: str, tmp_path: Path) -> None:
    """tf2onnx writes noop_with_empty_axes=1 beside given axes."""
    tensors = (
        [numpy_helper.from_array(np.array([1] if axes == "given" else [], np.int64), "a")] if axes in ("given", "empty") else []
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    if axes in ("input", "open"):
        inputs.append(helper.make_tensor_value_info("a", TensorProto.INT64, [1] if axes == "input" else ["k"]))
    node = helper.make_node(kind, ["x"] + ([] if axes == "absent" else ["a"]), ["y"], keepdims=1, noop_with_empty_axes=1)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    model = dovetail.load(path)
    dovetail.save(model, tmp_path / "again.onnx")
    dovetail.save(model, tmp_path / "model.dt")
    dovetail.save(dovetail.load(tmp_path / "model.dt"), tmp_path / "text.onnx")
    for other in ("again.onnx", "text.onnx"):
        assert dovetail.diff(path, tmp_path / other).is_same
    plain = helper.make_node(kind, list(node.input), ["y"], keepdims=1)
    del graph.node[:]
    graph.node.append(plain)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "plain.onnx")
    assert dovetail.diff(path, tmp_path / "plain.onnx").is_same == (axes in ("given", "input"))


@pytest.mark.parametrize("writer", ["openvino", "dovetail"])
def test_an_ir_is_the_same_after_a_text(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    if writer == "openvino":
        openvino = pytest.importorskip("openvino")
        from openvino import opset13 as opset

        x = opset.parameter([2], np.float32, name="x")
        openvino.save_model(openvino.Model([opset.relu(opset.add(x, np.ones(2, np.float32)))], [x]), path)
    else:
        with dovetail.Builder("model") as b:
            b.output("y", b.Relu(b.Add(b.input("x", "f32", (2,)), np.ones(2, np.float32))))
        dovetail.save(b.model, path)
    dovetail.save(dovetail.load(path), tmp_path / "model.dt")
    dovetail.save(dovetail.load(tmp_path / "model.dt"), tmp_path / "again.xml")
    assert dovetail.diff(path, tmp_path / "again.xml").is_same
    again = dovetail.load(tmp_path / "again.xml")
    # The digest of a pair of files is no metadata of the model.
    assert again.metadata.get("rt_info") == dovetail.load(path).metadata.get("rt_info")
