"""Simplifications that other tools got wrong: what looks like nothing, or like the padding of a neighbour, and is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dovetail
from report_routes import FLOAT, assert_every_way, proto_of, run_onnxruntime

RANDOM = np.random.default_rng(0)
node = helper.make_node


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_normalization_folds_into_grouped_convolutions_with_other_readers(tmp_path: Path) -> None:
    """A convolution that others read, a grouped transposed one, and a normalization before a padded convolution."""
    numbers = {f"{name}{count}": np.abs(normal(count)) + 0.3 for count in (4, 6) for name in "sbmv"}
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1] * 4, group=2),
        node("BatchNormalization", ["c", "s6", "b6", "m6", "v6"], ["n"]),
        node("Relu", ["c"], ["r"]),
        node("ConvTranspose", ["x", "wt"], ["ct"], group=2, strides=[2, 2]),
        node("BatchNormalization", ["ct", "s6", "b6", "m6", "v6"], ["n2"]),
        node("BatchNormalization", ["x", "s4", "b4", "m4", "v4"], ["n3"]),
        node("Conv", ["n3", "w3"], ["c3"], pads=[1] * 4),
    ]
    weights = {"w": normal(6, 2, 3, 3), "wt": normal(4, 3, 2, 2), "w3": normal(5, 4, 3, 3), **numbers}
    outputs = [(name, FLOAT, None) for name in ("n", "r", "n2", "c3")]
    model = proto_of(nodes, [("x", FLOAT, ["b", 4, 5, 5])], outputs, weights)
    feeds = {"x": normal(2, 4, 5, 5)}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path, tolerance=1e-4)


@pytest.mark.parametrize(("p", "q"), [(1, 4), (2, 1)])
def test_expand_without_effect_for_some_sizes_only(p: int, q: int, tmp_path: Path) -> None:
    nodes = [
        node("Expand", ["x", "s1"], ["a"]),
        node("Expand", ["x", "s2"], ["c"]),
        node("Shape", ["x"], ["s"]),
        node("Expand", ["y", "s"], ["g"]),
        node("Concat", ["x"], ["k"], axis=0),
    ]
    inputs = [("x", FLOAT, ["b", 1, 3]), ("y", FLOAT, ["q", 1, 3])]
    constants = {"s1": np.array([1, 3]), "s2": np.array([2, 1, 3])}
    model = proto_of(nodes, inputs, [(name, FLOAT, None) for name in "acgk"], constants)
    feeds = {"x": normal(p, 1, 3), "y": normal(q, 1, 3)}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path)


@pytest.mark.parametrize("opset", [12, 15, 16])
@pytest.mark.parametrize("kind", ["GreaterOrEqual", "LessOrEqual"])
def test_comparisons_of_constants_fold_at_every_opset(opset: int, kind: str) -> None:
    nodes = [node(kind, ["p", "q"], ["g"]), node("Cast", ["g"], ["k"], to=FLOAT), node("Add", ["x", "k"], ["y"])]
    constants = {"p": np.float32([1, 2]), "q": np.float32([2, 2])}
    model = proto_of(nodes, [("x", FLOAT, ["b", 2])], [("y", FLOAT, ["b", 2])], constants, opset=opset)
    smaller = dovetail.simplify(dovetail.load(model), prove=True)
    report = smaller.report
    assert report.nodes_after == 1
    expected = [[0, 1]] if kind == "GreaterOrEqual" else [[1, 1]]
    np.testing.assert_array_equal(dovetail.interpret(smaller, {"x": np.zeros((1, 2), np.float32)})["y"], expected)


def test_a_resize_of_a_constant_folds() -> None:
    nodes = [node("Resize", ["c", "", "s"], ["r"], mode="linear"), node("Add", ["x", "r"], ["y"])]
    constants = {"c": normal(1, 1, 2, 2), "s": np.float32([1, 1, 2, 2])}
    model = proto_of(nodes, [("x", FLOAT, [1, 1, 4, 4])], [("y", FLOAT, [1, 1, 4, 4])], constants, opset=18)
    assert dovetail.simplify(dovetail.load(model), prove=True).report.nodes_after == 1


@pytest.mark.parametrize("value", [0.0, -5.0])
@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("MaxPool", {}), ("AveragePool", {"count_include_pad": 0}), ("AveragePool", {"count_include_pad": 1})],
)
def test_pad_before_a_pool_is_not_its_padding(value: float, kind: str, attributes: dict[str, int], tmp_path: Path) -> None:
    pool = node(kind, ["q"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 0], **attributes)
    constants = {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "v": np.float32(value)}
    nodes = [node("Pad", ["x", "p", "v"], ["q"]), pool]
    model = proto_of(nodes, [("x", FLOAT, ["b", 2, 6, 7])], [("y", FLOAT, None)], constants, opset=18)
    feeds = {"x": -np.abs(normal(2, 2, 6, 7)) - 1}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path, tolerance=1e-5)


LAST = 2**63 - 1
SLICES = [
    ([0], [LAST], [2], [2]), ([-1], [-(2**63)], [3], [-1]), ([0], [-1], [2], [1]), ([0, 0], [LAST] * 2, [0, 3], [1, 1]),
    ([-3], [LAST], [3], [1]), ([0], [2**31 - 1], [1], [1]), ([0], [LAST], [3], [7]),
]  # fmt: skip


def test_slices_that_look_like_nothing(tmp_path: Path) -> None:
    constants = {
        f"{name}{number}": np.array(x) for number, item in enumerate(SLICES) for name, x in zip("seat", item, strict=True)
    }
    nodes = [node("Slice", ["x", *(f"{name}{number}" for name in "seat")], [f"y{number}"]) for number in range(len(SLICES))]
    outputs = [(f"y{number}", FLOAT, None) for number in range(len(SLICES))]
    model = proto_of(nodes, [("x", FLOAT, ["b", 3, "h", 4])], outputs, constants)
    feeds = {"x": normal(2, 3, 5, 4)}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path)
