"""diff: exactly what was edited is reported, names and order do not matter, and the answer is the same from both sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail import cli
from dovetail.compare.diff.model_diff import ModelDiff

LAYERS = 6


def network(layers: int = LAYERS, seed: int = 0) -> onnx.ModelProto:
    """Return a network of residual layers: a product, a bias, an activation, a sum with the layer's input."""
    generator = np.random.default_rng(seed)
    nodes, tensors, last = [], [], "x"
    for number in range(layers):
        for name, shape in ((f"w{number}", (8, 8)), (f"b{number}", (8,))):
            tensors.append(numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name))
        nodes += [
            helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"], name=f"matmul{number}"),
            helper.make_node("Add", [f"m{number}", f"b{number}"], [f"a{number}"], name=f"bias{number}"),
            helper.make_node("LeakyRelu", [f"a{number}"], [f"r{number}"], name=f"relu{number}", alpha=0.1),
            helper.make_node("Add", [f"r{number}", last], [f"s{number}"], name=f"sum{number}"),
        ]
        last = f"s{number}"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compare(first: onnx.ModelProto, second: onnx.ModelProto) -> ModelDiff:
    """Compare two models, and hold that the answer from the other side is its mirror image."""
    models = dovetail.load(first), dovetail.load(second)
    found, mirrored = dovetail.diff(*models), dovetail.diff(*models[::-1])
    assert rows(found) == rows(mirrored, is_mirrored=True)
    assert found.is_same == mirrored.is_same and found.matched == mirrored.matched
    return found


def rows(found: ModelDiff, is_mirrored: bool = False) -> list[Any]:
    swap = {"added": "removed", "removed": "added"} if is_mirrored else {}
    step = -1 if is_mirrored else 1
    return sorted(
        (swap.get(item.kind, item.kind), (item.first, item.second)[::step], len(item.attributes), len(item.weights))
        for item in found.changes
    )


def rename(model: onnx.ModelProto) -> None:
    """Give every node and value another name."""
    names: dict[str, str] = {"": ""}
    for node in model.graph.node:
        node.name = f"other_{node.name[::-1]}"
        for values in (node.input, node.output):
            values[:] = [names.setdefault(name, f"v{len(names)}") for name in values]
    for port in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        port.name = names.get(port.name, port.name)


def reorder(model: onnx.ModelProto) -> None:
    """Sort the nodes into another topological order: the last one that can run next comes next."""
    nodes, known = list(model.graph.node), {port.name for port in (*model.graph.input, *model.graph.initializer)} | {""}
    del model.graph.node[:]
    while nodes:
        node = next(each for each in reversed(nodes) if set(each.input) <= known)
        nodes.remove(node)
        known |= set(node.output)
        model.graph.node.append(node)


def edited(edit: Callable[[onnx.ModelProto], None]) -> ModelDiff:
    first, second = network(), network()
    edit(second)
    return compare(first, second)


@pytest.mark.parametrize("edit", [lambda model: None, rename, reorder, lambda model: (rename(model), reorder(model))])
def test_names_and_order_are_no_difference(edit: Callable[[onnx.ModelProto], None]) -> None:
    found = edited(edit)
    assert found.is_same and found.changes == () and found.matched == 4 * LAYERS


def test_an_attribute() -> None:
    def edit(model: onnx.ModelProto) -> None:
        rename(model)
        model.graph.node[10].attribute[0].f = 0.5

    (item,) = edited(edit).changes
    assert item.kind == "changed" and item.first == ("relu2",)
    assert [(each.name, each.after) for each in item.attributes] == [("alpha", "0.5")]


def test_one_element_of_a_weight() -> None:
    def edit(model: onnx.ModelProto) -> None:
        rename(model)
        array = numpy_helper.to_array(model.graph.initializer[4]).copy()
        array[3, 4] += 2
        model.graph.initializer[4].CopyFrom(numpy_helper.from_array(array, model.graph.initializer[4].name))

    (item,) = edited(edit).changes
    (weight,) = item.weights
    assert item.first == ("matmul2",) and (weight.changed, weight.size) == (1, 64)
    assert weight.largest == pytest.approx(2)


@pytest.mark.parametrize(
    ("change", "relation"),
    [
        (np.transpose, "transposition [1, 0]"),
        (lambda x: x[::-1], "other order along axis 0"),
        (lambda x: x[:, [1, 0, 2, 3, 4, 5, 6, 7]], "other order along axis 1"),
    ],
)
def test_a_weight_that_was_moved(change: Callable[[Any], Any], relation: str) -> None:
    def edit(model: onnx.ModelProto) -> None:
        array = np.ascontiguousarray(change(numpy_helper.to_array(model.graph.initializer[4])))
        model.graph.initializer[4].CopyFrom(numpy_helper.from_array(array, "w2"))

    (item,) = edited(edit).changes
    assert item.weights[0].relation == relation


def test_all_weights_of_another_training() -> None:
    found = compare(network(), network(seed=1))
    assert found.matched == 4 * LAYERS and found.counts["changed"] == 2 * LAYERS
    assert all(item.weights and not item.operands for item in found.changes)


@pytest.mark.parametrize("kind", ["added", "removed"])
@pytest.mark.parametrize("operator", ["Relu", "Identity", "LeakyRelu"])
def test_a_node_between_others(kind: str, operator: str) -> None:
    first, second = network(), network()
    for node in second.graph.node:
        node.input[:] = ["new" if name == "a2" else name for name in node.input]
    second.graph.node.insert(10, helper.make_node(operator, ["a2"], ["new"], name="inserted"))
    rename(second)
    found = compare(first, second) if kind == "added" else compare(second, first)
    (item,) = found.changes
    assert item.kind == kind and (item.first or item.second) == ("other_detresni",)


def test_a_layer_of_a_deep_network() -> None:
    """Every other layer is the same though one is gone, in 2,000 nodes."""
    first, second = network(500), network(500)
    del second.graph.node[800:804]
    for node in second.graph.node:
        node.input[:] = ["s199" if name == "s200" else name for name in node.input]
    rename(second)
    found = compare(first, second)
    assert sorted(item.first[0] for item in found.changes) == ["bias200", "matmul200", "relu200", "sum200"]
    assert {item.kind for item in found.changes} == {"removed"}


def test_an_operand_from_elsewhere() -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.node[11].input[1] = "s0"

    (item,) = edited(edit).changes
    assert item.first == ("sum2",) and [(each.before, each.after) for each in item.operands] == [("s1", "s0")]


def test_an_operator_in_the_place_of_another() -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.node[10].CopyFrom(helper.make_node("Tanh", ["a2"], ["r2"], name="tanh"))

    (item,) = edited(edit).changes
    assert (item.kind, item.first_operators, item.second_operators) == ("changed", ("LeakyRelu",), ("Tanh",))


def test_inputs_outputs_and_opsets() -> None:
    first, second = network(), network()
    second.graph.output.append(helper.make_tensor_value_info("s3", TensorProto.FLOAT, ["n", 8]))
    second.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    second.opset_import[0].version = 18
    found = compare(first, second)
    kinds = [(port.role, port.kind) for port in found.ports if port.is_difference]
    assert kinds == [("input", "changed"), ("output", "changed"), ("output", "added")]
    assert found.changes == () and found.resized > 0
    assert [(item.name, item.before, item.after) for item in found.properties] == [("opset", "17", "18")]


def branches(alpha: float) -> onnx.ModelProto:
    bodies = {
        name: helper.make_graph(
            [helper.make_node("LeakyRelu", ["x"], [f"{name}_y"], alpha=slope), helper.make_node("Neg", [f"{name}_y"], [name])],
            name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])],
        )
        for name, slope in (("then", 0.5), ("else", alpha))
    }  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=bodies["then"], else_branch=bodies["else"])
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_subgraphs() -> None:
    assert compare(branches(0.25), branches(0.25)).is_same
    (item,) = compare(branches(0.25), branches(0.75)).changes
    assert item.path == "choice/else_branch/" and item.attributes[0].name == "alpha"


def test_many_identical_nodes_end() -> None:
    """Nodes that nothing tells apart are paired in order, in time linear in the graph."""

    def build(count: int) -> onnx.ModelProto:
        nodes = [helper.make_node("Relu", ["x"], [f"y{index}"]) for index in range(count)]
        nodes.append(helper.make_node("Sum", [f"y{index}" for index in range(count)], ["z"]))
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xz"]
        graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    found = compare(build(3000), build(2999))
    assert found.counts["removed"] <= 3 and found.matched >= 2999


def test_weights_stored_in_fewer_bits() -> None:
    """A cast of a stored f16 weight is a part of the weight: no node is added, and the cast explains the difference."""
    first, second = network(2), network(2)
    tensor = second.graph.initializer[0]
    half = numpy_helper.to_array(tensor).astype(np.float16)
    tensor.CopyFrom(numpy_helper.from_array(half, "half"))
    second.graph.node.insert(0, helper.make_node("Cast", ["half"], ["w0"], to=TensorProto.FLOAT))
    (item,) = compare(first, second).changes
    assert item.first == ("matmul0",) and item.weights[0].relation == "cast from f32 to f16"
    exact, stored = network(2), network(2)
    exact.graph.initializer[0].CopyFrom(numpy_helper.from_array(half.astype(np.float32), "w0"))
    stored.CopyFrom(second)
    found = compare(exact, stored)
    assert not found.changes[0].weights[0].changed if found.changes else found.is_same


def test_an_edit_after_a_conversion(tmp_path: Path) -> None:
    """The comparison of an ONNX model and an edited IR copy reports only the edit, though IR writes LeakyRelu in another way."""
    path = tmp_path / "m.xml"
    edited_model = network()
    edited_model.graph.node[10].attribute[0].f = 0.5
    dovetail.save(dovetail.load(edited_model), path)
    found = dovetail.diff(dovetail.load(network()), path)
    assert len(found.changes) == 1 and found.matched == 4 * LAYERS and not found.is_same
    assert any("converted in memory" in note for note in found.notes)


def test_numbers_for_a_picture() -> None:
    found = compare(network(), network(seed=1))
    numbers = found.node_numbers()
    assert set(numbers) == {f"{kind}{number}" for kind in ("matmul", "bias") for number in range(LAYERS)}
    assert set(numbers.values()) == {1.0} and found.node_numbers("first") == numbers


def test_an_input_of_unknown_sizes_in_a_sequence() -> None:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", None])
    port = helper.make_value_info("x", helper.make_sequence_type_proto(element))
    length = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    graph = helper.make_graph([helper.make_node("SequenceLength", ["x"], ["y"])], "g", [port], [length])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert compare(model, model).is_same


HOSTILE = "\x1b[31mRED\x07</script><img src=x onerror=alert(2)>\u202e"


def test_hostile_names_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = network(2), network(2)
    for model in (first, second):
        for node in model.graph.node:
            node.name += HOSTILE
    second.graph.node[2].attribute[0].f = 0.7
    paths = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    for path, model in zip(paths, (first, second), strict=True):
        onnx.save(model, path)
    page = tmp_path / "d.html"
    outputs = []
    for options in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["diff", *paths, "--html", str(page), *options])
        assert ended.value.code == 1
        outputs.append(capsys.readouterr().out)
    assert all("\x1b" not in text and "\u202e" not in text for text in (*outputs, page.read_text()))
    assert "<img" not in page.read_text() and "Content-Security-Policy" in page.read_text()
    assert json.loads(outputs[1])["changes"][0]["first"] == [f"relu0{HOSTILE}"]
    found = dovetail.diff(*paths)
    assert "\x1b" not in str(found) and "\x1b" not in repr(found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = str(tmp_path / "a.onnx"), str(tmp_path / "b.xml")
    onnx.save(network(), first)
    dovetail.save(dovetail.load(first), second)
    for arguments, code in (([first, first], 0), ([first, second], 0), ([first, str(tmp_path / "none.onnx")], 3)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["diff", *arguments])
        assert ended.value.code == code
    capsys.readouterr()


def written_otherwise(rows: int) -> dovetail.Model:
    """Return a product, a sum and a reduction, with the constants in one of two forms."""
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    with dovetail.Builder("net") as b:
        x = b.input("x", "f32", (5, 3))
        stored = b.constant(weights.T.copy() if rows else weights, "f32")
        y = b.MatMul(x, stored, transpose_b=bool(rows))
        y = b.Add(y, b.constant(weights[0:1] if rows else weights[0], "f32"))
        b.output("y", b.ReduceSum(y, b.constant(np.array([-1] if rows else [1]))))
    return b.model


def test_one_meaning_in_two_forms_is_the_same() -> None:
    assert dovetail.diff(written_otherwise(0), written_otherwise(1)).is_same


def test_a_transposed_weight_without_its_flag_is_a_change() -> None:
    def build(weights: Any, flag: bool) -> dovetail.Model:
        with dovetail.Builder("net") as b:
            x = b.input("x", "f32", (5, 4))
            b.output("y", b.MatMul(x, b.constant(weights, "f32"), transpose_b=flag))
        return b.model

    weights = np.arange(16, dtype=np.float32).reshape(4, 4)
    (flag,) = dovetail.diff(build(weights, False), build(weights, True)).changes
    assert [each.name for each in flag.attributes] == ["transpose_b"] and not flag.weights
    assert dovetail.diff(build(weights, False), build(weights.T.copy(), True)).is_same


def test_elements_beyond_the_samples_of_a_large_weight_count() -> None:
    """Two equal branches whose large weights differ in one element each: the readers tell which branch they read."""

    def build(swap: bool) -> dovetail.Model:
        arrays = [np.ones((300, 300), np.float32) for _ in range(2)]
        arrays[0][7, 11] = 2
        arrays[1][13, 5] = 3
        with dovetail.Builder("net") as b:
            x = b.input("x", "f32", (2, 300))
            first, second = (b.Relu(b.MatMul(x, b.constant(array, "f32"))) for array in arrays)
            b.output("y", b.Subtract(second, first) if swap else b.Subtract(first, second))
        return b.model

    assert dovetail.diff(build(False), build(False)).is_same
    assert not dovetail.diff(build(False), build(True)).is_same


@pytest.mark.parametrize("names", [("n", "m"), ("m", "n")])
def test_two_dimensions_that_became_one_differ(names: tuple[str, str]) -> None:
    def build(first: str, second: str) -> dovetail.Model:
        with dovetail.Builder() as b:
            x, y = b.input("x", "f32", (first,)), b.input("y", "f32", (second,))
            b.output("z", b.Concat(x, y, axis=0))
        return b.model

    assert dovetail.diff(build(*names), build("n", "n")).is_same is False
    assert dovetail.diff(build("n", "n"), build(*names)).is_same is False
    assert dovetail.diff(build(*names), build("p", "q")).is_same


@pytest.mark.parametrize("dtype", ["INT4", "UINT2", "FLOAT"])
def test_tensors_in_attributes_of_unknown_operators_are_compared_by_elements(dtype: str, tmp_path: Path) -> None:
    for name, last in (("first", 1), ("second", 0)):
        table = helper.make_tensor("t", getattr(TensorProto, dtype), [5], [1, 0, 1, 1, last])
        ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, [2]) for port in ("x", "y")]
        graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="d", table=table)], "g", ports[:1], ports[1:])
        opsets = [helper.make_opsetid("", 25), helper.make_opsetid("d", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=13), tmp_path / f"{name}.onnx")
        dovetail.save(dovetail.load(tmp_path / f"{name}.onnx"), tmp_path / f"{name}.dt")
    files = [tmp_path / f"{name}.{suffix}" for name in ("first", "second") for suffix in ("onnx", "dt")]
    assert [dovetail.diff(file, files[0]).is_same for file in files] == [True, True, False, False]
    texts = {str(dovetail.diff(file, files[0])).replace(file.name, "") for file in files[2:]}
    assert len(texts) == 1 and " object at " not in texts.pop()
