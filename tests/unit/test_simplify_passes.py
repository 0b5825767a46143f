"""The passes of simplify, one by one: which nodes they merge, fold, split and remove, and which they leave."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import dovetail
from assertions import assert_close, assert_same_bits
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.elementwise.logical import Equal
from dovetail.passes.simplification.passes import PASSES
from oracles import run_onnxruntime

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def saved(model: Model) -> bytes:
    stream = io.BytesIO()
    dovetail.save(model, stream, types=False)
    return stream.getvalue()


def kinds(data: bytes) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load_from_string(data).graph.node)


PRODUCTS: dict[str, tuple[str, dict[str, int]]] = {
    "three": ("a = MatMul(x, p) b = MatMul(x, q) c = MatMul(x, r)", {"MatMul": 1, "Split": 1}),
    "two": ("a = MatMul(x, p) b = MatMul(x, q) c = Neg(x)", {"MatMul": 2, "Neg": 1}),
    "two with biases": (
        "s = MatMul(x, p) t = MatMul(x, q) a = Add(s, v) b = Add(w, t) c = Neg(x)", {"MatMul": 1, "Add": 1, "Split": 1, "Neg": 1},
    ),
    "two, one with a bias": ("s = MatMul(x, p) b = MatMul(x, q) a = Add(s, v) c = Neg(x)", {"MatMul": 2, "Add": 1, "Neg": 1}),
    "three, one with a bias": (
        "s = MatMul(x, p) b = MatMul(x, q) c = MatMul(x, r) a = Add(s, v)", {"MatMul": 1, "Add": 1, "Split": 1},
    ),
    "a bias that is no vector": (
        "s = MatMul(x, p) b = MatMul(x, q) c = MatMul(x, r) a = Add(s, m)", {"MatMul": 1, "Add": 1, "Split": 1},
    ),
    "a sum of two products": (
        "s = MatMul(x, p) t = MatMul(x, q) c = MatMul(x, r) a = Add(s, t) b = Neg(x)",
        {"MatMul": 1, "Add": 1, "Split": 1, "Neg": 1},
    ),
    "a product that is read twice": (
        "s = MatMul(x, p) b = MatMul(x, q) c = MatMul(x, r) a = Mul(s, s)", {"MatMul": 1, "Mul": 1, "Split": 1},
    ),
    "weights that another node reads": (
        "a = MatMul(x, p) b = MatMul(x, q) t = MatMul(x, r) u = MatMul(z, r) c = MatMul(t, u)", {"MatMul": 5},
    ),
    "a product that is an output": (
        "o = MatMul(x, p) b = MatMul(x, q) c = MatMul(x, r) a = Neg(x)", {"MatMul": 3, "Neg": 1},
    ),
    "a product of the other operand": (
        "a = MatMul(x, p) b = MatMul(x, q) t = MatMul(k, x) u = ReduceSum(t) c = Mul(x, u)",
        {"MatMul": 3, "ReduceSum": 1, "Mul": 1},
    ),
}  # fmt: skip
"""Nodes that compute a, b and c of x, and the nodes of the simplified model beside three Relu and the node of output o."""


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_one_input_are_merged_where_that_needs_fewer_nodes(name: str) -> None:
    body, expected = PRODUCTS[name]
    draw = np.random.default_rng(0)
    weights = {
        key: draw.standard_normal(shape).astype(np.float32)
        for key, shape in {"p": (4, 4), "q": (4, 4), "r": (4, 4), "v": (4,), "w": (4,), "m": (2, 1, 4), "k": (2, 3, 3)}.items()
    }
    rest = "" if "o =" in body else "o = Exp(x)"
    text = (
        "g (float[2, 3, 4] x, float[4, 4] z) => (float[2, 3, 4] f, float[2, 3, 4] g, float[2, 3, 4] h, float[2, 3, 4] o) "
        f"{{ {body} f = Relu(a) g = Relu(b) h = Relu(c) {rest} }}"
    )
    proto = onnx.parser.parse_model(f"{HEADER} {text}")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(data, key) for key, data in weights.items())
    source = proto.SerializeToString()
    data = saved(dovetail.simplify(dovetail.load(source)))
    assert kinds(data) == Counter({**expected, "Relu": 3, **({"Exp": 1} if rest else {})})
    inputs = {"x": draw.standard_normal((2, 3, 4)).astype(np.float32), "z": draw.standard_normal((4, 4)).astype(np.float32)}
    for before, after in zip(run_onnxruntime(source, inputs), run_onnxruntime(data, inputs), strict=True):
        assert_close(after, before, 1e-5)


def _partitioned(*cuts: tuple[int, int]) -> str:
    names = [f"s{index}" for index in range(len(cuts))]
    constants = ", ".join(f"int64[1] b{i} = {{{low}}}, int64[1] e{i} = {{{high}}}" for i, (low, high) in enumerate(cuts))
    body = " ".join(f"{name} = Slice(x, b{i}, e{i}, a)" for i, name in enumerate(names))
    sums = " ".join(f"y{index} = Relu({name})" for index, name in enumerate(names))
    outputs = ", ".join(f"float[2, m{index}] y{index}" for index in range(len(cuts)))
    return f"g (float[2, 6] x) => ({outputs}) <int64[1] a = {{1}}, {constants}> {{ {body} {sums} }}"


@pytest.mark.parametrize("is_transposed", [False, True])
def test_merged_products_of_several_widths_give_the_results_of_the_products(is_transposed: bool) -> None:
    draw = np.random.default_rng(0)
    with Builder("products") as b:
        x = b.input("x", "f32", (2, 3, 4))
        for width in (2, 5, 3):
            weights = draw.standard_normal((width, 4) if is_transposed else (4, width)).astype(np.float32)
            b.output(f"y{width}", b.Relu(b.MatMul(x, b.constant(weights), transpose_b=is_transposed)))
    new = dovetail.simplify(b.model)
    assert Counter(type(node.op).__name__ for node in new.graph.nodes)["MatMul"] == 1
    inputs = {"x": draw.standard_normal((2, 3, 4)).astype(np.float32)}
    expected = dovetail.run(b.model, inputs)
    for name, array in dovetail.run(new, inputs).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("cuts", "is_split"),
    [
        (((0, 2), (2, 6)), True),
        (((2, 6), (0, 2)), True),
        (((0, 2), (2, 3), (3, 1 << 62)), True),
        (((0, 2), (2, -1), (-1, 6)), True),
        (((2, 6), (0, 2), (0, 0)), True),
        (((0, 2), (2, 5)), False),
        (((1, 2), (2, 6)), False),
        (((0, 3), (2, 6)), False),
        (((0, 2), (3, 6)), False),
    ],
)
def test_slices_that_cover_an_axis_become_one_split(cuts: tuple[tuple[int, int], ...], is_split: bool) -> None:
    source = onnx.parser.parse_model(f"{HEADER} {_partitioned(*cuts)}").SerializeToString()
    data = saved(dovetail.simplify(dovetail.load(source)))
    assert kinds(data) == Counter({"Relu": len(cuts), **({"Split": 1} if is_split else {"Slice": len(cuts)})})
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(2, 6)}
    for before, after in zip(run_onnxruntime(source, inputs), run_onnxruntime(data, inputs), strict=True):
        assert_same_bits(after, before)


def stored(data: bytes) -> int:
    """Return the number of constants in a file."""
    graph = onnx.load_from_string(data).graph
    return len(graph.initializer) + sum(node.op_type == "Constant" for node in graph.node)


@pytest.mark.parametrize(
    ("change", "count"),
    [(lambda x: x.copy(), 1), (lambda x: np.ascontiguousarray(x.T).T, 1), (lambda x: x + np.float32(1), 2)]
    + [(lambda x, at=at: np.where(np.arange(x.size).reshape(x.shape) == at, np.float32(2), x), 2) for at in (0, 100, 799, 1599)],
)
def test_constants_are_shared_where_all_their_elements_are_equal(change: Any, count: int) -> None:
    x = np.zeros((40, 40), np.float32)
    b = Builder("g")
    n = b.input("n", "f32", (40, 40))
    b.output("y", b.Subtract(b.Divide(n, b.constant(change(x))), b.constant(x)))
    assert stored(saved(dovetail.simplify(b.model, keep=["common_subexpressions"]))) == count


def test_equal_strings_are_shared_and_scales_are_not() -> None:
    b = Builder("g")
    x, y = b.input("x", "string", (2,)), b.input("y", "u8", (4,))
    words = [b.Equal(x, b.constant(np.array(["one", "two"], object))) for _ in range(2)]
    b.output("words", b.And(words[0], b.Not(words[1])))
    scaled = [b.DequantizeLinear(y, b.constant(np.float32(0.5)), b.constant(np.uint8(zero))) for zero in (0, 1)]
    b.output("scaled", b.Add(*scaled))
    data = saved(dovetail.simplify(b.model, keep=["common_subexpressions"]))
    assert kinds(data)["Equal"] == 1 and stored(data) == 1 + 4


@pytest.mark.parametrize(
    ("first", "second", "is_merged"),
    [
        (lambda b, x, y: b.Xor(x, y), lambda b, x, y: b.Xor(y, x), True),
        (lambda b, x, y: b.Multiply(b.Cast(x, to="f32"), 2.0), lambda b, x, y: b.Multiply(2.0, b.Cast(x, to="f32")), True),
        (lambda b, x, y: b.Concat(x, y, axis=0), lambda b, x, y: b.Concat(y, x, axis=0), False),
        (lambda b, x, y: b.Gather(b.Shape(x), 0), lambda b, x, y: b.Size(x), True),
        (lambda b, x, y: b.Gather(b.Shape(x), 0), lambda b, x, y: b.Gather(b.Shape(y), 0), True),
        (lambda b, x, y: b.Gather(b.Shape(x), 0), lambda b, x, y: b.Cast(b.Size(x), to="i32"), False),
    ],
)
def test_equal_results_are_computed_once(first: Any, second: Any, is_merged: bool) -> None:
    b = Builder("g")
    x, y = b.input("x", "boolean", ("n",)), b.input("y", "boolean", ("n",))
    b.output("equal", b.Equal(*(b.Cast(each(b, x, y), to="f32") for each in (first, second))))
    short = dovetail.simplify(b.model, keep=["common_subexpressions", "dead_code"])
    (node,) = (node for node in short.graph.nodes if isinstance(node.op, Equal))
    assert (node.input(0) is node.input(1)) == is_merged


def test_nodes_of_an_unknown_operator_and_subgraphs_are_not_merged() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[4] x, bool c) => (float[4] y) '
        "{ a = own.Counter(x) b = own.Counter(x) s = Sub(a, b) "
        "t = If(c) <then_branch = g1 () => (float[4] u) { u = Neg(s) }, else_branch = g2 () => (float[4] v) { v = Exp(s) }> "
        "w = If(c) <then_branch = g3 () => (float[4] u) { u = Neg(s) }, else_branch = g4 () => (float[4] v) { v = Exp(s) }> "
        "y = Sub(t, w) }"
    )
    data = saved(dovetail.simplify(dovetail.load(onnx.parser.parse_model(text).SerializeToString())))
    assert kinds(data) == Counter({"Counter": 2, "Sub": 2, "If": 2})


def test_a_subgraph_gets_small_constants_and_no_input_that_it_does_not_read() -> None:
    b = Builder("g")
    c, x = b.input("c", "boolean", ()), b.input("x", "f32", (4,))
    branches = []
    for operator in ("Add", "Subtract"):
        inner = Builder(operator)
        unread, small, large, data = (
            inner.input(name, "f32", shape) for name, shape in zip("uslx", ((4,), (4,), (5, 4), (4,)), strict=True)
        )
        assert unread is not None
        inner.output("y", getattr(inner, operator)(getattr(inner, operator)(data, small), large))
        branches.append(inner.graph)
    captured = [x, np.arange(4, dtype=np.float32), np.ones((5, 4), np.float32), x]
    (y,) = b.add(If(*branches), c, *(b.constant(item) if isinstance(item, np.ndarray) else item for item in captured))
    b.output("y", y)
    short = dovetail.simplify(b.model, keep=["dead_branches"])
    (node,) = (node for node in short.graph.nodes if isinstance(node.op, If))
    assert [value.shape for value in node.inputs if value is not None] == [(), (5, 4), (4,)]
    op: Any = node.op
    assert [len(body.inputs) for body in (op.then_branch, op.else_branch)] == [2, 2]
    assert short.report.changes == 1
    for condition in (False, True):
        inputs = {"c": np.array(condition), "x": np.linspace(0, 1, 4, dtype=np.float32)}
        assert_same_bits(run_row_major(short, inputs)["y"], run_row_major(b.model, inputs)["y"])


def test_a_new_node_has_the_name_of_the_replaced_one() -> None:
    text = (
        "g (float[2, 3, 4] x) => (float[4, 2, 3] y) "
        "{ a = Transpose<perm = [1, 2, 0]>(x) b = Transpose<perm = [1, 2, 0]>(a) y = Relu(b) }"
    )
    proto = onnx.parser.parse_model(f"{HEADER} {text}")
    for node in proto.graph.node:
        node.name = f"the {node.output[0]}"
    graph = onnx.load_from_string(saved(dovetail.simplify(dovetail.load(proto.SerializeToString())))).graph
    assert [(node.op_type, node.name) for node in graph.node] == [("Transpose", "the b"), ("Relu", "the y")]


@pytest.mark.parametrize(("opset", "kind"), [(17, "Gemm"), (7, "Gemm"), (0, "MatMul")])
def test_gemm_is_written_in_onnx_alone(opset: int, kind: str, tmp_path: Path) -> None:
    b = Builder("g")
    x = b.input("x", "f32", ("n", 4))
    b.output("y", b.Relu(b.Add(b.MatMul(x, np.eye(4, dtype=np.float32)), np.ones(4, np.float32))))
    model = b.model
    if opset:
        dovetail.save(model, tmp_path / "m.onnx", opset=opset)
        model = dovetail.load(tmp_path / "m.onnx")
    short = dovetail.simplify(model)
    assert kind in {node.op.title for node in short.graph.nodes}


def test_dead_nodes_are_reported_and_their_constants_are_not() -> None:
    b = Builder("g")
    x = b.input("x", "f32", (4,))
    b.Exp(b.Multiply(x, np.arange(4, dtype=np.float32)))
    b.output("y", b.Negative(x))
    report = dovetail.simplify(b.model, keep=["dead_code"]).report
    assert [len(each.changes) for each in report.passes if each.changes] == [2]


def test_constant_outputs_and_one_output_of_several_are_folded() -> None:
    b = Builder("g")
    values, indices = b.TopK(b.constant(np.array([3, 1, 2], np.float32)), 2)
    assert indices is not None
    b.output("y", values)
    b.output("t", b.Concat(b.constant(np.array(["a"], object)), b.constant(np.array(["b"], object)), axis=0))
    short = dovetail.simplify(b.model)
    assert not kinds(saved(short)).keys() - {"Constant", "Identity"}
    results = run_row_major(short, {})
    assert results["y"].tolist() == [3, 2] and results["t"].tolist() == ["a", "b"]


def test_results_no_larger_than_the_constants_that_they_replace_are_folded() -> None:
    b = Builder("g")
    x = b.input("x", "f32", (1000,))
    stays = b.constant(np.arange(1000, dtype=np.float32))
    replaced = b.constant(np.arange(1000, dtype=np.float32))
    b.output("y", b.Multiply(b.Add(x, b.Exp(b.Negative(replaced))), b.Add(b.Multiply(x, stays), b.Negative(stays))))
    short = dovetail.simplify(b.model, keep=["constant_folding"])
    assert kinds(saved(short)) == Counter({"Mul": 2, "Add": 2, "Neg": 1})


def test_known_sizes_become_constants() -> None:
    b = Builder("g")
    x = b.input("x", "f32", ("n", 4))
    width = b.Gather(b.Shape(x), b.constant(1), axis=0)
    b.output("y", b.Unsqueeze(b.Add(width, b.constant(1)), [0]))
    short = dovetail.simplify(b.model, keep=["shape_folding", "dead_code"])
    assert kinds(saved(short)).keys() <= {"Unsqueeze", "Constant"}


def test_an_identity_that_a_scan_needs_stays() -> None:
    text = (
        "g (float[2] s, float[3, 2] x) => (float[2] t, float[3, 2] y) { t, y = Scan<num_scan_inputs = 1, body = step "
        "(float[2] a, float[2] e) => (float[2] b, float[2] o) { b = Add(a, e) o = Identity(b) }>(s, x) }"
    )
    source = onnx.parser.parse_model(f"{HEADER} {text}").SerializeToString()
    data = saved(dovetail.simplify(dovetail.load(source)))
    inputs = {"s": np.ones(2, np.float32), "x": np.arange(6, dtype=np.float32).reshape(3, 2)}
    for before, after in zip(run_onnxruntime(source, inputs), run_onnxruntime(data, inputs), strict=True):
        assert_same_bits(after, before)


def test_the_passes_have_their_names_and_the_exact_ones_are_known() -> None:
    exact = {
        "algebraic_simplification", "common_subexpressions", "constant_folding", "dead_branches", "dead_code",
        "expand_elimination", "nop_elimination", "reshape_fusion", "shape_folding", "slice_fusion", "slices_to_split",
        "transpose_fusion",
    }  # fmt: skip
    assert {name for name, each in PASSES.items() if each.is_exact} == exact
    assert PASSES.keys() - exact == {"gemm_fusion", "horizontal_fusion", "weight_folding"}
