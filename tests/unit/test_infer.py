"""Inference of shapes as expressions: what the expressions say is what onnxruntime and OpenVINO compute."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import dovetail
from dovetail.cli import dovetail as command
from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.types import agree_shapes


def model_of(nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: list[str]) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, type_, shape) for name, (type_, shape) in inputs.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", values, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def shape_text(model: dovetail.Model, name: str) -> list[str]:
    return [str(size) for size in model.values[name].type.shape or ()]


FLOAT = TensorProto.FLOAT


@pytest.fixture
def add() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    return model_of(nodes, {"a": (FLOAT, ["n", 4]), "b": (FLOAT, ["m", 4])}, ["y"])


def test_a_broadcast_size_is_onnxruntimes_at_every_pair_that_broadcasts(add: onnx.ModelProto) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(add.SerializeToString())
    (size, _) = dovetail.infer(dovetail.load(add)).values["y"].type.shape
    assert str(size) == "broadcast(m, n)"
    for n, m in itertools.product((0, 1, 2, 5), repeat=2):
        if n != m and 1 not in (n, m):
            continue
        inputs = {"a": np.ones((n, 4), np.float32), "b": np.ones((m, 4), np.float32)}
        assert session.run(None, inputs)[0].shape[0] == symbolic.evaluate(size, {"n": n, "m": m})


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("n", "1", "n"), ("n", "n", "n"), ("n", "min(n, 64)", "n"), ("n//8", "min(n//8, 1)", "n//8"),
        ("broadcast(m, n)", "n", "broadcast(m, n)"), ("n", "0", "0"), ("n + 2", "m", "n + 2"),
        ("n - 1", "max(n - 1, 0)", "n - 1"), ("n", "n//2", "broadcast(n, n//2)"),
    ],
)  # fmt: skip
def test_broadcast_sizes_simplify(first: str, second: str, expected: str) -> None:
    sizes = [symbolic.parse(text) for text in (first, second)]
    for ordered in (sizes, sizes[::-1]):
        size = symbolic.broadcast_sizes(ordered)
        assert str(size) == expected
        assert symbolic.parse(str(size)) == size


def test_equal_dimensions_become_one_symbol_everywhere() -> None:
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Shape", ["b"], ["s"]),
        helper.make_node("Relu", ["b"], ["r"]),
    ]
    model = dovetail.load(model_of(nodes, {"a": (FLOAT, ["n", 4]), "b": (FLOAT, ["m", "k"])}, ["c", "s", "r"]))
    report = dovetail.infer_report(model)
    assert [str(equation) for equation in report.equations] == ["n = m (Concat at c)"]
    assert report.replacements == {"m": "n"}
    assert shape_text(report.model, "r") == ["n", "k"]
    assert [str(item) for item in report.model.values["s"].value] == ["n", "k"]
    assert model.inputs[1].type.shape[0] != model.inputs[0].type.shape[0], "the given model is as it was"


def test_an_equation_of_a_dead_node_is_ignored() -> None:
    nodes = [helper.make_node("Concat", ["a", "b"], ["c"], axis=1), helper.make_node("Relu", ["b"], ["r"])]
    model = dovetail.load(model_of(nodes, {"a": (FLOAT, ["n", 4]), "b": (FLOAT, ["m", "k"])}, ["r"]))
    assert shape_text(dovetail.infer_report(model).model, "r") == ["m", "k"]


def test_a_contradiction_names_both_sites() -> None:
    weights = [helper.make_tensor(f"w{k}", FLOAT, [k, 2], np.ones(2 * k)) for k in (3, 4)]
    nodes = [helper.make_node("MatMul", ["a", "w3"], ["p"]), helper.make_node("MatMul", ["a", "w4"], ["q"])]
    proto = model_of(nodes, {"a": (FLOAT, ["n", "k"])}, ["p", "q"])
    proto.graph.initializer.extend(weights)
    with pytest.raises(RuleError) as caught:
        dovetail.infer_report(dovetail.load(proto))
    assert caught.value.code == "shape.disagree"
    assert caught.value.node == "q"
    assert "MatMul at p" in str(caught.value)


def _build(apply: Any, *types: tuple[str, tuple[Any, ...]]) -> None:
    with dovetail.Builder("m") as b:
        b.output("y", apply(b, *(b.input(f"i{number}", *type) for number, type in enumerate(types))))


F32: Any = {name: ("f32", sizes) for name, sizes in {"23": (2, 3), "24": (2, 4), "32": (3, 2), "n3": ("n", 3)}.items()}
MESSAGES: list[tuple[Any, list[Any], str]] = [
    (lambda b, x, y: b.MatMul(x, y), ["23", "24"], "axis 1 of a (3) must equal axis 0 of b (2)"),
    (lambda b, x, y: b.MatMul(x, y, transpose_a=True), ["24", "32"], "axis 0 of a (2) must equal axis 0 of b (3)"),
    (lambda b, x, y: b.MatMul(x, y, transpose_b=True), ["n3", "24"], "axis 1 of a (3) must equal axis 1 of b (4)"),
    (lambda b, x, y: b.Concat(x, x, y, axis=0), ["23", "24"], "axis 1 of input 0 (3) must equal axis 1 of input 2 (4)"),
    (lambda b, x, y: b.Add(x, y, broadcast=False), ["23", "24"], "axis 1 of input 0 (3) must equal axis 1 of input 1 (4)"),
    (lambda b, x, y: b.SwiGLU(x, y), ["n3", "24"], "axis 1 of x (3) must equal axis 1 of y (4)"),
    (lambda b, x, y: b.Einsum(x, y, equation="ij,jk"), ["23", "23"], "axis 1 of input 0 (3) must equal axis 0 of input 1 (2)"),
    (lambda b, x, y: b.Einsum(x, y, equation="ij,kk->i"), ["23", "24"], "axis 0 of input 1 (2) must equal axis 1 of input 1 (4)"),
    (lambda b, x: b.Det(x), ["23"], "axis 0 of x (2) must equal axis 1 of x (3)"),
    (
        lambda b, x, w: b.Conv(x, w, kernel_shape=(3, 5)), [("f32", (1, 3, 8, 8)), ("f32", (4, 3, 3, 3))],
        "axis 3 of the kernel of kernel_shape (5) must equal axis 3 of w (3)",
    ),
    (
        lambda b, x, w, bias: b.Conv(x, w, bias), [("f32", (1, 3, 8)), ("f32", (4, 3, 3)), ("f32", (5,))],
        "axis 0 of bias (5) must equal the number of output channels (4)",
    ),
    (
        lambda b, x, i, u: b.TensorScatter(x, u), [("f32", (2, 4, 3)), ("i64", (2,)), ("f32", (2, 1, 4))],
        "axis 2 of past_cache (3) must equal axis 2 of update (4)",
    ),
    (
        lambda b, x, i: b.GatherND(x, i, batch_dims=1), [("f32", (2, 3, 4)), ("i64", (3, 2, 1))],
        "axis 0 of data (2) must equal axis 0 of indices (3)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("apply", "types", "message"), MESSAGES)
def test_sizes_that_disagree_are_named_with_their_axes(apply: Any, types: list[Any], message: str) -> None:
    with pytest.raises(RuleError) as caught:
        _build(apply, *(F32[each] if isinstance(each, str) else each for each in types))
    assert (caught.value.code, caught.value.message) == ("shape.disagree", message)


@pytest.mark.parametrize("count", range(1, 5))
@pytest.mark.parametrize("start", [0, 2])
def test_the_first_axis_that_disagrees_is_named(count: int, start: int) -> None:
    n = symbolic.symbol("n")
    for axis in range(count):
        first = [n, 3, *range(5, 5 + count)][:count]
        second = [*first[:axis], *(n + 1 if size is n else int(size) + 1 for size in first[axis:])]
        with pytest.raises(RuleError) as caught:
            agree_shapes(tuple(first), tuple(second), ("x", start), "y")
        words = f"axis {start + axis} of x ({first[axis]}) must equal axis {axis} of y ({second[axis]})"
        assert (caught.value.code, caught.value.message) == ("shape.disagree", words)
    with pytest.raises(RuleError, match=rf"got those of x \({start + count}\) and y \({count + 1}\)"):
        agree_shapes((n,) * count, (n,) * (count + 1), ("x", start), "y")


def test_a_bound_without_which_a_dimension_would_be_negative() -> None:
    proto = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": (FLOAT, [1, 1, "width"])}, ["y"])
    proto.graph.initializer.append(helper.make_tensor("w", FLOAT, [1, 1, 5], np.ones(5)))
    report = dovetail.infer_report(dovetail.load(proto))
    assert report.bounds == {"width": (4, None)}
    assert symbolic.bounds(report.model.values["y"].type.shape[2]) == (0, None)


def test_bounds_are_kept_through_concat_and_refuse_a_split() -> None:
    b = dovetail.Builder()
    x, y = (b.input(name, "f32", [symbolic.symbol(name, low)]) for name, low in (("x", 1), ("y", 9)))
    assert symbolic.bounds(b.Concat(x, y, axis=0).type.shape[0]) == (10, None)
    unranked = b.input("unranked", "f32")
    assert symbolic.bounds(b.Concat(y, unranked, axis=0).type.shape[0]) == (9, None)
    small = b.input("small", "f32", [symbolic.symbol("small", 1, 2)])
    with pytest.raises(RuleError, match=r"shape\.multiple"):
        b.Split(small, outputs=3)


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_the_written_file_has_the_shapes_and_the_shape_values(suffix: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "i"], ["n"]),
        helper.make_node("Concat", ["n", "minus"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    proto = model_of(nodes, {"x": (FLOAT, ["batch", 3, "width"])}, ["y"])
    proto.graph.initializer.extend(
        [helper.make_tensor("i", TensorProto.INT64, [1], [0]), helper.make_tensor("minus", TensorProto.INT64, [1], [-1])]
    )
    source, target = tmp_path / "m.onnx", tmp_path / f"out.{suffix}"
    onnx.save(proto, source)
    result = CliRunner().invoke(command, ["infer", str(source), "-o", str(target), "--strict", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["unknown"] == [] and list(said["symbols"]) == ["batch", "width"]
    assert next(value for value in said["values"] if value["name"] == "y")["shape"] == ["batch", "3*width"]
    if suffix == "onnx":
        written = onnx.load(target)
        onnx.checker.check_model(written, full_check=True)
        assert [dim.dim_param for dim in written.graph.output[0].type.tensor_type.shape.dim] == ["batch", "3*width"]
        properties = {info.name: {p.key: p.value for p in info.metadata_props} for info in written.graph.value_info}
        assert properties["t"] == {"dovetail.value": "[batch, -1]"}
    else:
        openvino = pytest.importorskip("openvino")
        text = target.read_text(encoding="utf-8")
        assert 'name="dovetail_value" version="0" value="[batch, -1]"' in text
        assert 'name="dovetail_shape" version="0" value="[batch, 3*width]"' in text
        run = openvino.Core().compile_model(target, "CPU")
        assert run(np.ones((2, 3, 5), np.float32))[0].shape == (2, 15)
    again = tmp_path / f"again.{suffix}"
    dovetail.save(dovetail.load(target), again)
    assert b"dovetail_value" not in again.read_bytes() and b"dovetail.value" not in again.read_bytes()


def test_strict_names_the_operator_that_lost_a_dimension(tmp_path: Path) -> None:
    # The size is a rounded float, which inference does not follow.
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=FLOAT),
        helper.make_node("Sqrt", ["f"], ["g"]),
        helper.make_node("Cast", ["g"], ["t"], to=TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["t"], ["y"]),
        helper.make_node("NonZero", ["x"], ["z"]),
    ]
    source = tmp_path / "m.onnx"
    onnx.save(model_of(nodes, {"x": (FLOAT, ["n"])}, ["y", "z"]), source)
    plain = CliRunner().invoke(command, ["infer", str(source), "--json"])
    assert plain.exit_code == 0, plain.output
    reasons = {item["value"]: item["depends_on_data"] for item in json.loads(plain.stdout)["unknown"]}
    assert reasons == {"y": False, "z": True}
    strict = CliRunner().invoke(command, ["infer", str(source), "--strict"])
    assert isinstance(strict.exception, RuleError) and strict.exception.code == "type.unknown"
    assert strict.exception.node == "y" and strict.exception.op == "ConstantOfShape"


def division(divisor: str) -> onnx.ModelProto:
    """Return a model whose output has as many rows as the number of elements of ``x`` [n, m], divided by ``divisor``."""
    nodes = [
        helper.make_node("Size", ["x"], ["all"]),
        helper.make_node("Shape", ["x"], ["m"], start=1, end=2),
        helper.make_node("Size", ["x"], ["nm"]),
        helper.make_node("Div", ["all", divisor], ["rows"]),
        helper.make_node("Reshape", ["rows", "vector"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, ["n", "m"])}, ["y"])
    model.graph.initializer.append(helper.make_tensor("vector", TensorProto.INT64, [1], [1]))
    return model


def test_an_integer_quotient_by_a_size_that_may_be_0_is_onnxruntimes_at_all_others() -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = division("m")
    (size,) = dovetail.infer(dovetail.load(model)).values["y"].type.shape
    assert str(size) == "n"
    session = runtime.InferenceSession(model.SerializeToString())
    for n, m in itertools.product((0, 1, 5), (1, 2, 7)):
        assert len(session.run(None, {"x": np.ones((n, m), np.float32)})[0]) == symbolic.evaluate(size, {"n": n, "m": m})


def test_a_quotient_that_is_a_number_stays_a_division_by_zero() -> None:
    model = dovetail.load(division("nm"))
    assert shape_text(dovetail.infer(model), "y") != ["1"]
    assert len(dovetail.run(model, {"x": np.ones((2, 3), np.float32)})["y"]) == 1
    with pytest.raises(dovetail.DovetailError, match="integer division by zero"):
        dovetail.run(model, {"x": np.ones((0, 3), np.float32)})


def test_a_declared_name_of_an_unknown_size_is_no_further_unknown_dimension() -> None:
    """y has the size that NonZero decides, under the name k; the rank of q is lost, and with it the declared sizes of z."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"]),
        helper.make_node("Relu", ["r"], ["y"]),
        helper.make_node("Fancy", ["x"], ["q"], domain="acme"),
        helper.make_node("Neg", ["q"], ["z"]),
    ]
    nodes.insert(1, helper.make_node("Cast", ["i"], ["r"], to=FLOAT))
    proto = model_of(nodes, {"x": (FLOAT, ["n", 4])}, ["y", "z"])
    proto.opset_import.append(helper.make_opsetid("acme", 1))
    for value, shape in zip(proto.graph.output, ([2, "k"], ["a", "b"]), strict=True):
        value.CopyFrom(helper.make_tensor_value_info(value.name, FLOAT, shape))
    report = dovetail.infer_report(dovetail.load(proto))
    assert [(item.value, item.axis, item.depends_on_data) for item in report.unknown] == [("i", 1, True), ("q", None, False)]
