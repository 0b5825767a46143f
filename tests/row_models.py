"""Models of rows in ONNX files, their results in onnxruntime, and mappers of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

Array = np.ndarray[Any, Any]
F32, F16, I64, I32, U8, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.UINT8,
    TensorProto.BOOL,
    TensorProto.STRING,
)


def map_rows(model: Any, rows: Any, out: Any, **options: Any) -> dovetail.MapReport:
    """Call ``dovetail.map_rows`` with options of its own, of a Mapper and of MapOptions together."""
    names = [set(inspect.signature(each).parameters) for each in (dovetail.Mapper, dovetail.MapOptions)]
    mapper, files = ({name: options.pop(name) for name in list(options) if name in each} for each in names)
    return dovetail.map_rows(dovetail.Mapper(model, **mapper), rows, out, options=dovetail.MapOptions(**files), **options)


def write(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Array] | None = None) -> str:
    """Write a model with the onnx package; an input or output is a name, a type and a shape."""
    given, found = ([helper.make_tensor_value_info(*each) for each in ports] for ports in (inputs, outputs))
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", given, found, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def classifier(folder: Path, batch: int | str = "n") -> str:
    weights = np.random.default_rng(0).standard_normal((12, 5)).astype("f4")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["scores"], axis=1),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    outputs = [("scores", F32, [batch, 5]), ("label", I64, [batch])]
    return write(folder / f"classifier-{batch}.onnx", nodes, [("x", F32, [batch, 12])], outputs, {"w": weights})


def lookup(folder: Path) -> str:
    """Return a table of 7 rows: an index outside of it is an error of the run."""
    table = np.random.default_rng(1).standard_normal((7, 3)).astype("f4")
    node = helper.make_node("Gather", ["t", "i"], ["y"])
    return write(folder / "lookup.onnx", [node], [("i", I64, ["n", 2])], [("y", F32, ["n", 2, 3])], {"t": table})


def mask(folder: Path) -> str:
    """Two inputs with one open size of a row; one output keeps it."""
    nodes = [helper.make_node("Mul", ["x", "m"], ["y"]), helper.make_node("ReduceSum", ["y", "axis"], ["total"], keepdims=0)]
    inputs = [("x", F32, ["n", "t"]), ("m", F32, ["n", "t"])]
    return write(
        folder / "mask.onnx", nodes, inputs, [("y", F32, ["n", "t"]), ("total", F32, ["n"])], {"axis": np.array([1], "i8")}
    )


def expected(path: str, inputs: dict[str, Array]) -> dict[str, Array]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def rows_of(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, 12)).astype("f4")


def assert_close(found: dict[str, Array], theirs: dict[str, Array]) -> None:
    assert list(found.keys()) == list(theirs.keys())
    for name, array in theirs.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[name], array)


def mapper_of(model: str | dovetail.Model, **options: Any) -> dovetail.Mapper:
    return dovetail.Mapper(model, **{"cache_dir": None, "threads": 1, **options})
