"""A file with a node that has no exact meaning here is looked at, cut and saved; only what needs the node is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.cli import dovetail as command

F = TensorProto.FLOAT


def value(name: str, shape: Any, kind: int = F) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def saved(path: Path, graph: Any, **domains: int) -> Path:
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain.replace("_", "."), 1) for domain in domains)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def broken(path: Path) -> Path:
    """Return a Reshape that does not fit beside a Relu that does."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("Reshape", ["r", "shape"], ["b"], name="wrong"),
        helper.make_node("Neg", ["b"], ["y"], name="after"),
        helper.make_node("Neg", ["r"], ["z"], name="beside"),
    ]
    shape = numpy_helper.from_array(np.array([4, 2]), "shape")
    return saved(path, helper.make_graph(nodes, "g", [value("x", [2, 3])],
                                         [value("y", [4, 2]), value("z", [2, 3])], [shape]))  # fmt: skip


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


@pytest.mark.parametrize(
    "arguments",
    [("info",), ("show",), ("draw", "-o", "m.svg"), ("infer",), ("extract", "--to", "z", "-o", "part.onnx"),
     ("edit", "--rename", "r=s", "-o", "edit.onnx"), ("simplify", "-o", "simple.onnx")],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_commands_that_need_no_meaning_work(arguments: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broken(Path("model.onnx"))
    found = invoke(arguments[0], "model.onnx", *arguments[1:])
    assert found.exception is None and found.return_value == 0, found.output
    assert "[reshape.volume]" in found.stderr


def test_outputs_that_do_not_depend_on_the_node_run_and_have_a_gradient(tmp_path: Path) -> None:
    model = dovetail.load(broken(tmp_path / "model.onnx"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    part = dovetail.extract(model, outputs=["z"])
    np.testing.assert_array_equal(dovetail.run(part, {"x": x})["z"], -np.maximum(x, 0))
    gradient = dovetail.grad(model, of="z", wrt=["x"])
    seed = {item.name: np.ones((2, 3), np.float32) for item in gradient.inputs if item.name != "x"}
    found = dovetail.run(gradient, {"x": x, **seed})
    np.testing.assert_array_equal(found["grad:x"], -(x > 0).astype(np.float32))


def test_a_gradient_through_the_node_is_refused_by_name(tmp_path: Path) -> None:
    model = dovetail.load(broken(tmp_path / "model.onnx"))
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.compile(dovetail.grad(model, of="y", wrt=["x"]))
    assert (caught.value.node, caught.value.code) == ("wrong", "reshape.volume")


def test_another_opset_needs_the_meaning(tmp_path: Path) -> None:
    model = dovetail.load(broken(tmp_path / "model.onnx"))
    dovetail.save(model, tmp_path / "same.onnx")
    with pytest.raises(dovetail.UnsupportedError, match=r"reshape\.volume"):
        dovetail.save(model, tmp_path / "other.onnx", opset=12)


def beams(path: Path) -> Path:
    """Return an operator of onnxruntime with subgraphs that read outer values."""
    decoder = helper.make_graph(
        [helper.make_node("Add", ["a", "x"], ["b"]), helper.make_node("Mul", ["b", "k"], ["c"])],
        "decoder",
        [value("a", [2])],
        [value("c", [2])],
        [numpy_helper.from_array(np.arange(2, dtype=np.float32), "k")],
    )
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(kind, ["r"], ["t"])], name, [], [value("t", [2])])
        for name, kind in (("then", "Neg"), ("else", "Abs"))
    }
    encoder = helper.make_graph([helper.make_node("If", ["flag"], ["c"], **branches)], "encoder", [], [value("c", [2])])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("BeamSearch", ["r"], ["y"], "beams", domain="com.microsoft", decoder=decoder, encoder=encoder, beams=3),
        helper.make_node("Neg", ["r"], ["z"]),
    ]
    inputs = [value("x", [2]), value("flag", [], TensorProto.BOOL)]
    return saved(path, helper.make_graph(nodes, "g", inputs, [value("y", [2]), value("z", [2])]), com_microsoft=1)


def subgraphs(path: Path) -> Any:
    node = next(node for node in onnx.load(path).graph.node if node.op_type == "BeamSearch")
    return {item.name: item.g for item in node.attribute if item.type == onnx.AttributeProto.GRAPH}


def test_an_unknown_operator_keeps_its_subgraphs(tmp_path: Path) -> None:
    path = beams(tmp_path / "model.onnx")
    model = dovetail.load(path)
    assert "decoder=graph of 2 nodes" in str(model)
    dovetail.save(model, tmp_path / "again.onnx")
    dovetail.save(model, tmp_path / "model.dt")
    dovetail.save(dovetail.load(tmp_path / "model.dt"), tmp_path / "text.onnx")
    for name in ("again.onnx", "text.onnx"):
        found = subgraphs(tmp_path / name)
        for key, graph in subgraphs(path).items():
            assert [list(node.input) for node in found[key].node] == [list(node.input) for node in graph.node]
            assert len(found[key].initializer) == len(graph.initializer)
        assert dovetail.diff(model, dovetail.load(tmp_path / name)).is_same


def test_captures_of_a_preserved_node_are_renamed_and_extracted(tmp_path: Path) -> None:
    model = dovetail.load(beams(tmp_path / "model.onnx"))
    dovetail.save(model.rename_values({"x": "picture", "r": "b"}), tmp_path / "renamed.onnx")
    found = subgraphs(tmp_path / "renamed.onnx")
    first, second = found["decoder"].node
    # The outer value has taken the name of a value of the subgraph.
    assert first.input[1] == "picture" and first.output[0] == second.input[0] != "b"
    branch = found["encoder"].node[0].attribute[0].g
    assert branch.node[0].input[0] == "b"
    part = dovetail.extract(model, outputs=["y"])
    assert [item.name for item in part.inputs] == ["x", "flag"]


def test_an_absent_input_of_an_unknown_operator_stays(tmp_path: Path) -> None:
    node = helper.make_node("Mystery", ["x", "", "x"], ["y"], domain="own")
    path = saved(tmp_path / "model.onnx", helper.make_graph([node], "g", [value("x", [2])], [value("y", [2])]), own=1)
    dovetail.save(dovetail.load(path), tmp_path / "model.dt")
    dovetail.save(dovetail.load(tmp_path / "model.dt"), tmp_path / "again.onnx")
    assert list(onnx.load(tmp_path / "again.onnx").graph.node[0].input) == ["x", "", "x"]


@pytest.mark.parametrize("shape", [[1, 320], [1, 320, 1, 1]], ids=["rank 2", "rank 4"])
def test_a_speech_model_with_a_stft_of_another_rank_is_looked_at(shape: list[int], tmp_path: Path) -> None:
    """Kokoro-82M has an STFT of [batch, length]: the file loads whatever the operator makes of it."""
    constants = {"step": np.array(5), "window": np.hanning(20).astype(np.float32), "length": np.array(20)}
    nodes = [helper.make_node("STFT", ["x", *constants], ["s"], "stft"), helper.make_node("Relu", ["x"], ["y"])]
    tensors = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "g", [value("x", shape)], [value("s", None), value("y", shape)], tensors)
    path = saved(tmp_path / "model.onnx", graph)
    model = dovetail.load(path)
    assert {item.node for item in dovetail.check(path)} <= {"stft"}
    x = np.linspace(-1, 1, 320, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(dovetail.run(dovetail.extract(model, outputs=["y"]), {"x": x})["y"], np.maximum(x, 0))


def test_all_nodes_that_cannot_run_are_named_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["x"], ["y"], "no axis"),
        helper.make_node("Mystery", ["x"], ["z"], "mystery", domain="own"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [value("y", [2]), value("z", [2])])
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.compile(saved(tmp_path / "model.onnx", graph, own=1))
    assert [(item.node, item.code) for item in caught.value.diagnostics] == [
        ("no axis", "attribute.missing"), ("mystery", "op.unknown"),
    ]  # fmt: skip


def test_a_part_of_an_ir_that_is_not_known_is_kept(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (2, 3))
        b.output("y", b.Relu(b.Reshape(x, [3, 2])))
        b.output("z", b.Abs(x))
    path = tmp_path / "model.xml"
    dovetail.save(b.model, path)
    path.write_text(path.read_text().replace('special_zero="', 'special_one="1" special_zero="'))
    model = dovetail.load(path)
    assert [item.code for item in model.warnings] == ["attribute.unknown"]
    dovetail.save(model, tmp_path / "again.xml")
    assert 'special_one="1"' in (tmp_path / "again.xml").read_text()
    found = dovetail.run(dovetail.extract(model, outputs=["z"]), {"x": -np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(found["z"], np.ones((2, 3)))
    with pytest.raises(dovetail.UnsupportedError, match="special_one"):
        dovetail.save(model, tmp_path / "other.onnx")
