"""Forms that old versions of ONNX have alone: constants in all their forms, Tile-1, Pad-1 and -2, Slice-1, OneHot-9, Gather-1."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail
from dovetail.errors import DovetailError
from dovetail.formats import import_foreign
from dovetail.formats.onnx import codec


def run(kind: str, opset: int, inputs: dict[str, Any], *, constants: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """One node over ``inputs`` and, after them, ``constants``."""
    fixed = constants or {}
    node = helper.make_node(kind, [*inputs, *fixed], ["y"], **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in fixed.items()]
    graph = helper.make_graph([node], "graph", values, [helper.make_empty_tensor_value_info("y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return dovetail.run(import_foreign(codec.read(model)), inputs)["y"]


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        ({"value": onnx.numpy_helper.from_array(X)}, X),
        ({"value_int": 3}, np.array(3)),
        ({"value_ints": [3, 4]}, np.array([3, 4])),
        ({"value_float": 0.5}, np.array(0.5, np.float32)),
        ({"value_floats": [0.5, 2.0]}, np.array([0.5, 2.0], np.float32)),
        ({"value_string": "word"}, np.array("word", dtype=object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], dtype=object)),
        (
            {
                "sparse_value": helper.make_sparse_tensor(
                    helper.make_tensor("v", onnx.TensorProto.FLOAT, [2], [5.0, 7.0]),
                    helper.make_tensor("i", onnx.TensorProto.INT64, [2], [1, 3]),
                    [2, 3],
                )
            },
            np.array([[0, 5, 0], [7, 0, 0]], np.float32),
        ),
    ],
    ids=lambda item: next(iter(item)) if isinstance(item, dict) else "",
)
def test_a_constant_has_one_value_in_any_form(attributes: dict[str, Any], value: Any) -> None:
    found = run("Constant", 13, {}, **attributes)
    assert found.dtype == value.dtype and found.shape == value.shape
    assert found.tolist() == value.tolist()


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [(13, {}), (13, {"value_int": 1, "value_float": 1.0}), (11, {"value_int": 1}), (9, {})],
)
def test_a_constant_without_exactly_one_value_is_refused(opset: int, attributes: dict[str, Any]) -> None:
    with pytest.raises(DovetailError):
        run("Constant", opset, {}, **attributes)


def test_tile_1_repeats_along_one_axis() -> None:
    found = run("Tile", 1, {"x": X}, constants={"tiles": np.float32([2]).reshape(()), "axis": np.float32([1]).reshape(())})
    np.testing.assert_array_equal(found, np.tile(X, (1, 2)))
    with pytest.raises(DovetailError) as caught:
        run("Tile", 1, {"x": X}, constants={"tiles": np.array(1.5, np.float32), "axis": np.array(1, np.float32)})
    assert caught.value.code == "constant.value"


def test_pad_1_and_2_have_their_pads_as_attributes() -> None:
    wanted = np.pad(X, ((1, 0), (2, 1)), constant_values=7)
    np.testing.assert_array_equal(run("Pad", 1, {"x": X}, paddings=[1, 2, 0, 1], value=7.0), wanted)
    np.testing.assert_array_equal(run("Pad", 2, {"x": X}, pads=[1, 2, 0, 1], value=7.0), wanted)
    np.testing.assert_array_equal(
        run("Pad", 2, {"x": X}, pads=[0, 2, 0, 1], mode="reflect"), np.pad(X, ((0, 0), (2, 1)), "reflect")
    )


def test_wrapping_came_with_pad_19() -> None:
    pads = {"pads": np.array([0, 1, 0, 1])}
    np.testing.assert_array_equal(run("Pad", 19, {"x": X}, constants=pads, mode="wrap"), np.pad(X, ((0, 0), (1, 1)), "wrap"))
    with pytest.raises(DovetailError) as caught:
        run("Pad", 18, {"x": X}, constants=pads, mode="wrap")
    assert caught.value.code == "attribute.value"


def test_slice_1_has_its_bounds_as_attributes() -> None:
    np.testing.assert_array_equal(run("Slice", 1, {"x": X}, starts=[0, 1], ends=[-1, 1000]), X[:-1, 1:])
    np.testing.assert_array_equal(run("Slice", 1, {"x": X}, starts=[1], ends=[3], axes=[1]), X[:, 1:3])


def test_negative_indices_came_with_gather_11_and_one_hot_11() -> None:
    index = {"x": X, "i": np.array([-1])}
    np.testing.assert_array_equal(run("Gather", 11, index), X[[-1]])
    with pytest.raises(DovetailError):
        run("Gather", 10, index)
    hot = {"depth": np.array(3), "values": np.float32([0, 1])}
    np.testing.assert_array_equal(run("OneHot", 11, {"i": np.array([-1])}, constants=hot), [[0, 0, 1]])
    np.testing.assert_array_equal(run("OneHot", 9, {"i": np.array([-1])}, constants=hot), [[0, 0, 0]])


@pytest.mark.parametrize(
    ("kind", "attributes"), [("Squeeze", {"axes": [-1]}), ("Unsqueeze", {"axes": [-1]}), ("Flatten", {"axis": -1})]
)
def test_negative_axes_came_with_version_11(kind: str, attributes: dict[str, Any]) -> None:
    x = X.reshape(2, 3, 1)
    run(kind, 11, {"x": x}, **attributes)
    with pytest.raises(DovetailError) as caught:
        run(kind, 10, {"x": x}, **attributes)
    assert caught.value.code == "attribute.value"
