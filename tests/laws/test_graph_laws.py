"""Each law that a pass of simplify applies: the same results before and after, for sizes of 0, 1 and more of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from assertions import assert_close, assert_same_bits
from dovetail import Builder
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.laws.law import Law, Result
from dovetail.laws.table import LAWS
from dovetail.passes.simplification.dead import remove_dead_nodes
from dovetail.passes.simplification.laws import apply_laws
from dovetail.passes.simplification.rules import Target, apply_rules
from dovetail.passes.simplify import count_nodes, simplify

ROW, MATRIX = np.float32([3, 0.5]), np.float32([[1, 2], [3, 4]])
PATTERNS: dict[str, Callable[[Any, Any], Any]] = {
    "Cast, drop_cast": lambda b, x: b.Cast(b.Cast(x, to=dtypes.f64), to=dtypes.f32),
    "CastLike, write_cast": lambda b, x: b.CastLike(x, b.constant(np.int32(1))),
    "Concat, merge_parts": lambda b, x: b.Concat(b.Slice(x, [0], [1], [1]), b.Slice(x, [1], [2], [1]), axis=1),
    "Concat, take_only_operand": lambda b, x: b.Concat(x, axis=0),
    "Dropout, drop_dropout": lambda b, x: b.Dropout(x),
    "Expand, drop_same_shape": lambda b, x: b.Expand(x, [1, 2]),
    "Expand, merge_expands": lambda b, x: b.Expand(b.Expand(x, [3, 1, 2]), [3, 1, 1]),
    "Expand, write_constant_expand": lambda b, x: b.Expand(x, b.Shape(x)),
    "Add, fuse_gemm": lambda b, x: b.Add(b.MatMul(x, MATRIX), ROW),
    "Identity, take_input": lambda b, x: b.Identity(x),
    "Multiply, drop_neutral": lambda b, x: b.Multiply(x, np.float32(1)),
    "Multiply, fold_into_weights": lambda b, x: b.Multiply(b.MatMul(x, MATRIX), ROW),
    "Negative, cancel_inverse": lambda b, x: b.Negative(b.Negative(x)),
    "Pad, drop_empty_pad": lambda b, x: b.Pad(x, [0, 0, 0, 0]),
    "Relu, drop_repetition": lambda b, x: b.Relu(b.Relu(x)),
    "Reshape, drop_same_shape": lambda b, x: b.Reshape(x, [0, 2]),
    "Reshape, merge_reshapes": lambda b, x: b.Reshape(b.Reshape(x, [-1, 1, 2]), [-1, 2]),
    "Reshape, write_constant_reshape": lambda b, x: b.Reshape(x, b.Concat(b.Shape(x), [1], axis=0)),
    "Resize, drop_same_resize": lambda b, x: b.Resize(x, None, np.float32([1, 1]), mode="nearest"),
    "Slice, drop_whole_slice": lambda b, x: b.Slice(x, [0], [2], [1]),
    "Slice, merge_slices": lambda b, x: b.Slice(b.Slice(x, [1], [3], [0]), [0], [1], [0]),
    "Slice, write_constant_slice": lambda b, x: b.Slice(x, [0], b.Gather(b.Shape(x), [0]), [0]),
    "Split, take_only_part": lambda b, x: b.Split(x, [2], axis=1, outputs=1),
    "Split, undo_concat": lambda b, x: b.Split(b.Concat(x, b.Relu(x), axis=1), [2, 2], axis=1, outputs=2)[1],
    "Tile, drop_tile_of_ones": lambda b, x: b.Tile(x, [1, 1]),
    "Transpose, drop_sorted_transpose": lambda b, x: b.Transpose(x, [0, 1]),
    "Transpose, merge_transposes": lambda b, x: b.Transpose(b.Transpose(x, [1, 0]), [1, 0]),
    "Where, take_chosen_operand": lambda b, x: b.Where(np.array([True, True]), x, b.Relu(x)),
    "Add, read_before_expand": lambda b, x: b.Add(b.Expand(ROW, b.Shape(x)), x),
}
"""A graph of each law by the operator and the function of the law, of a matrix [n, 2]."""
ELSEWHERE = {"inline_known_branch"}
"""Laws of subgraphs, which test_branches.py runs."""


def law_of(name: str) -> tuple[str, Law]:
    kind, function = name.split(", ")
    laws = [law for law in LAWS if law.rewrite.__name__ == function]
    classes = {each.__name__: each for each in map(type, (node.op for node in model_of(name).graph.nodes))}
    (law,) = (law for law in laws if law.is_about(classes[kind]))
    return kind, law


def model_of(name: str) -> Model:
    b = Builder()
    y = PATTERNS[name](b, b.input("x", "f32", ("n", 2)))
    b.output("y", b.Unsqueeze(y[0] if isinstance(y, list | tuple) else y, [0]))
    return b.model


def test_each_law_of_a_pass_has_a_graph() -> None:
    applied = {law.rewrite.__name__ for law in LAWS if law.shrinks}
    assert {name.split(", ")[1] for name in PATTERNS} == applied - ELSEWHERE


@pytest.mark.parametrize("name", PATTERNS)
def test_a_law_keeps_the_results_and_makes_no_graph_larger(name: str) -> None:
    kind, law = law_of(name)
    before = model_of(name)
    after = copy_model(before)

    def rule(b: Builder, node: Node) -> Result:
        return law.rewrite(b, node.op, node.inputs, [y.type for y in node.outputs])

    rules = {type(node.op): rule for node in after.graph.nodes if type(node.op).__name__ == kind}
    assert apply_rules(after.graph, rules, Target())
    assert count_nodes(after.graph) <= count_nodes(before.graph)
    for size in (0, 1, 4):
        x = np.random.default_rng(size).standard_normal((size, 2)).astype(np.float32)
        if x.size:
            x[0] = np.nan, -0.0
        ours, theirs = (run_row_major(model, {"x": x})["y"] for model in (after, before))
        if law.over_reals:
            assert_close(ours, theirs, 1e-6, name)
        else:
            assert_same_bits(ours, theirs, name)


@pytest.mark.parametrize("write", [
    lambda b, x: b.Slice(b.Slice(x, [1], [70], [0]), [1], [2**63 - 1], [0]),
    lambda b, x: b.Slice(b.Slice(x, [0], [70], [0]), [1], [66], [0]),
    lambda b, x: b.Slice(b.Concat(b.Slice(x, [0], [1], [1]), x, axis=1), [1], [2], [1]),
    lambda b, x: b.Slice(b.Concat(ROW[None], x, axis=0), [1], [64], [0]),
    lambda b, x: b.Concat(b.Slice(x, [1], [2], [1]), b.Slice(x, [0], [1], [1]), b.Slice(x, [1], [2], [1]), axis=1),
])  # fmt: skip
def test_merged_slices_keep_their_ends(write: Callable[[Any, Any], Any]) -> None:
    b = Builder()
    b.output("y", b.Relu(write(b, b.input("x", "f32", ("n", 2)))))
    short = simplify(b.model)
    for size in (0, 1, 4, 80):
        x = np.random.default_rng(size).standard_normal((size, 2)).astype(np.float32)
        assert_same_bits(*(run_row_major(model, {"x": x})["y"] for model in (short, b.model)))


def test_dropout_in_training_stays() -> None:
    b = Builder()
    b.output("y", b.Relu(b.Dropout(b.input("x", "f32", ("n", 2)), np.float32(0.5), True)))
    assert "Dropout" in [type(node.op).__name__ for node in simplify(b.model).graph.nodes]


@pytest.mark.parametrize("write", [
    lambda b, x: b.Divide(b.MatMul(x, MATRIX), ROW),
    lambda b, x: b.Multiply(ROW, b.MatMul(x, MATRIX)),
    lambda b, x: b.Multiply(b.Gemm(x, MATRIX, ROW, beta=2.0), ROW),
    lambda b, x: b.Subtract(b.Gemm(x, MATRIX, ROW, beta=2.0, transpose_b=True), ROW),
    lambda b, x: b.Add(ROW, b.Gemm(x, MATRIX, ROW, beta=0.5)),
])  # fmt: skip
def test_constants_are_folded_into_weights(write: Callable[[Any, Any], Any]) -> None:
    b = Builder()
    b.output("y", write(b, b.input("x", "f32", ("n", 2))))
    short = simplify(b.model)
    assert count_nodes(short.graph) == 1
    x = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    ours, theirs = (run_row_major(model, {"x": x})["y"] for model in (short, b.model))
    assert_close(ours, theirs, 1e-6)


def size_of(b: Builder, x: Value, axis: int) -> Value:
    return b.Gather(b.Shape(x), [axis])


TWO, CONVOLVED = np.int64([2]), MATRIX[..., None]
CONDITIONS: dict[str, tuple[Any, Callable[[Any, Any, Any, Any], Any], str]] = {
    "-1, which no size of 0 allows, is not written for a computed size": (
        ("n", "m", 4),
        lambda b, x, k, z: b.Reshape(x, b.Concat(size_of(b, x, 0), b.Multiply(size_of(b, x, 1), TWO), [2], axis=0)),
        "Shape Gather Shape Gather Multiply Concat Reshape",
    ),
    "-1 is not written for a computed size beside a 0 that copies": (
        ("n", "m", 4),
        lambda b, x, k, z: b.Reshape(x, b.Concat([0], b.Multiply(size_of(b, x, 1), TWO), [2], axis=0)),
        "Shape Gather Multiply Concat Reshape",
    ),
    "-1 stays where the target has it": (
        ("n", "m", 4, "k"), lambda b, x, k, z: b.Reshape(x, b.Concat([0], [-1], [2], size_of(b, x, 3), axis=0)), "Reshape",
    ),
    "-1 of a Reshape that cancels sizes of 0 does not stay": (
        ("n", "m", 4, "k"),
        lambda b, x, k, z: b.Reshape(x, b.Concat([0], [-1], [2], size_of(b, x, 3), axis=0), empty="cancel"),
        "Shape Gather Concat Reshape",
    ),
    "Flatten joins the axes after the first one": (
        ("n", "m", 4),
        lambda b, x, k, z: b.Reshape(x, b.Concat(size_of(b, x, 0), b.Multiply(size_of(b, x, 1), TWO + TWO), axis=0)),
        "Flatten",
    ),
    "the end of an axis": (("n", 4), lambda b, x, k, z: b.Slice(x, [1], size_of(b, x, 0), [0]), "Slice"),
    "the end of an axis in i32": (
        ("n", 4), lambda b, x, k, z: b.Slice(x, np.int32([1]), b.Cast(size_of(b, x, 0), to="i32"), np.int32([0])), "Slice",
    ),
    "an end of a tensor of unknown rank": (None, lambda b, x, k, z: b.Slice(x, [1], b.Shape(z), [0]), "Shape Slice"),
    "computed steps of the first slice": (
        ("n", 4), lambda b, x, k, z: b.Slice(b.Slice(x, [0], [3], [0], k), [0], [2], [0]), "Slice Slice",
    ),
    "computed steps of the second slice": (
        ("n", 4), lambda b, x, k, z: b.Slice(b.Slice(x, [0], [3], [0]), [0], [2], [0], k), "Slice Slice",
    ),
    "steps of the first slice": (
        ("n", 4), lambda b, x, k, z: b.Slice(b.Slice(x, [0], [3], [0], [2]), [0], [1], [0]), "Slice Slice",
    ),
    "steps of 1": (("n", 4), lambda b, x, k, z: b.Slice(b.Slice(x, [1], [3], [0], [1]), [0], [1], [0], [1]), "Slice"),
    "a target that inference does not know": (
        ("n", 4), lambda b, x, k, z: b.Reshape(x, b.Cast(b.Negative(b.Cast(k, to="f32")), to="i64")), "Reshape",
    ),
    "computed axes": (("n", 4), lambda b, x, k, z: b.Slice(b.Slice(x, [0], [3], k), [0], [2], [0]), "Slice Slice"),
    "adjacent slices that do not cover the tensor": (
        ("n", 5),
        lambda b, x, k, z: b.Concat(*(b.Slice(x, [first], [last], [1]) for first, last in ((0, 1), (1, 3), (3, 4))), axis=1),
        "Slice",
    ),
    "adjacent slices after another tensor": (
        ("n", 5),
        lambda b, x, k, z: b.Concat(b.Relu(x), *(b.Slice(x, [first], [first + 1], [1]) for first in (0, 1)), axis=1),
        "Relu Slice Concat",
    ),
    "Gemm multiplies matrices: the left one": ((2, "n", 2), lambda b, x, k, z: b.Add(b.MatMul(x, MATRIX), ROW), "MatMul Add"),
    "Gemm multiplies matrices: the right one": ((2, 2), lambda b, x, k, z: b.Add(b.MatMul(x, MATRIX[None]), ROW), "MatMul Add"),
    "channels of another axis": (
        ("n", 2, 2),
        lambda b, x, k, z: b.BatchNormalization(b.MatMul(x, MATRIX), ROW, ROW, ROW, ROW),
        "MatMul BatchNormalization",
    ),
    "constant statistics": (
        ("n", 2, 3), lambda b, x, k, z: b.BatchNormalization(b.Conv(x, CONVOLVED), ROW, ROW, ROW, ROW), "Conv",
    ),
    "a computed statistic": (
        ("n", 2, 3),
        lambda b, x, k, z: b.BatchNormalization(b.Conv(x, CONVOLVED), ROW, b.Cast(b.Concat(k, k, axis=0), to="f32"), ROW, ROW),
        "Conv Concat Cast BatchNormalization",
    ),
}  # fmt: skip
"""By the condition of a law: the shape of x, a graph, and its operators after all laws. k is [1], and z has the size n."""


def apply_all_laws(graph: Graph) -> None:
    names = dict.fromkeys(law.shrinks for law in LAWS if law.shrinks)
    while sum(apply_laws(graph, Target(), name) for name in names):
        pass
    remove_dead_nodes(graph, Target())


def result_of(model: Model, inputs: dict[str, Any]) -> Any:
    """Return the result "y", or the code of the error."""
    try:
        return run_row_major(model, inputs)["y"]
    except DovetailError as error:
        return error.code


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_law_applies_under_its_conditions_alone(name: str) -> None:
    shape, write, kinds = CONDITIONS[name]
    b = Builder()
    b.output("y", b.Sin(write(b, b.input("x", "f32", shape), b.input("k", "i64", (1,)), b.input("z", "f32", ("n",)))))
    short = copy_model(b.model)
    apply_all_laws(short.graph)
    titles = [node.op.title for node in short.graph.nodes]
    assert [title for title in titles if title not in ("Constant", "Sin")] == kinds.split()
    for number in (0, 1, 4):
        for other in (0, 3):
            sizes = {"n": number, "m": other, "k": other}
            draw = np.random.default_rng(number)
            x = draw.standard_normal([sizes.get(str(each), each) for each in shape or ("n", 2)]).astype(np.float32)
            inputs = {"x": x, "k": np.int64([1]), "z": np.zeros(number, np.float32)}
            ours, theirs = (result_of(model, inputs) for model in (short, b.model))
            if isinstance(theirs, str) or isinstance(ours, str):
                assert ours == theirs, (name, sizes)
            else:
                assert_close(ours, theirs, 1e-5, name)
