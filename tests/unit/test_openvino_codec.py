"""OpenVINO IR read and written: against OpenVINO itself, round trips, and every way in which a file can be wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dovetail.errors import DovetailError, FormatError, RuleError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.openvino import codec, constants, rt_info
from dovetail.formats.openvino.opsets import VERSIONS, format_version, resolve
from dovetail.ir import symbolic
from dovetail.ir.dtypes import BY_OPENVINO, dtype
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.types import Tensor
from dovetail.storage import weights_file

onnx = pytest.importorskip("onnx")
openvino = pytest.importorskip("openvino")
from onnx import helper  # noqa: E402
from openvino import opset15 as ops  # noqa: E402

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
CORPUS_FILES = sorted(CORPUS.glob("*.xml"))
INFERRED = ("own_cond.dyn18s", "own_scan_ssm.dyn18s", "own_lstm_tagger.ptir", "hf_albert.ptir", "own_ssd_nms.ptir")
needs_corpus = pytest.mark.skipif(not CORPUS_FILES, reason="the corpus is not beside the checkout")

# IR written by hand, so that a test can break one thing


def port(number: int, sizes: str = "2,3", names: str = "", precision: str = "FP32") -> str:
    extra = f' names="{names}"' if names else ""
    inner = "".join(f"<dim>{size}</dim>" for size in sizes.split(",") if size)
    return f'<port id="{number}" precision="{precision}"{extra}>{inner}</port>'


def layer(
    number: int, kind: str, inputs: str = "", outputs: str = "", data: str = "", name: str = "", version: str = "opset1"
) -> str:
    parts = (data and f"<data {data}/>") + (inputs and f"<input>{inputs}</input>") + (outputs and f"<output>{outputs}</output>")
    return f'<layer id="{number}" name="{name or f"n{number}"}" type="{kind}" version="{version}">{parts}</layer>'


def edge(start: int, start_port: int, end: int, end_port: int) -> str:
    return f'<edge from-layer="{start}" from-port="{start_port}" to-layer="{end}" to-port="{end_port}"/>'


def net(layers: str, edges: str, version: str = "11", more: str = "") -> str:
    return f'<?xml version="1.0"?><net name="m" version="{version}"><layers>{layers}</layers><edges>{edges}</edges>{more}</net>'


def parameter(number: int, shape: str = "2,3", element: str = "f32", names: str = "") -> str:
    sizes = "" if shape == "..." else ",".join(size if size.isdigit() else "-1" for size in shape.split(",") if size)
    return layer(number, "Parameter", outputs=port(0, sizes, names), data=f'shape="{shape}" element_type="{element}"')


CONSTANT = layer(1, "Const", outputs=port(0), data='element_type="f32" shape="2, 3" offset="0" size="24"')
ADD = layer(2, "Add", port(0) + port(1), port(2, names="sum"), 'auto_broadcast="numpy"')
RESULT = layer(3, "Result", port(0))
EDGES = edge(0, 0, 2, 0) + edge(1, 0, 2, 1) + edge(2, 2, 3, 0)
SOUND = net(parameter(0, names="x") + CONSTANT + ADD + RESULT, EDGES)
WEIGHTS = np.arange(6, dtype=np.float32)


def saved(folder: Path, text: str | bytes, weights: bytes | None = WEIGHTS.tobytes()) -> Path:
    path = folder / "model.xml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    if weights is not None:
        (folder / "model.bin").write_bytes(weights)
    return path


def same(first: Any, second: Any) -> bool:
    """Structural equality that looks into arrays."""
    if isinstance(first, PackedElements):
        return same(first.unpack(), second.unpack())
    if isinstance(first, np.ndarray):
        return bool(first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes())
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if hasattr(first, "__dataclass_fields__") and not isinstance(first, Tensor):
        names = [name for name in first.__dataclass_fields__ if name != "file"]
        return type(first) is type(second) and all(same(getattr(first, name), getattr(second, name)) for name in names)
    return bool(first == second)


def written(model: ForeignModel, folder: Path, name: str = "written") -> Path:
    path = folder / f"{name}.xml"
    codec.write(model, path)
    return path


def ports_of(model: Any) -> list[Any]:
    return [(value.names, value.partial_shape, value.element_type) for value in (*model.inputs, *model.outputs)]


# Reading


def test_inputs_nodes_constants_and_outputs_of_a_file_are_read(tmp_path: Path) -> None:
    model = codec.read(saved(tmp_path, SOUND))
    graph = model.graph
    assert (model.format, model.versions, graph.name) == ("openvino", {"ir": 11}, "m")
    assert [(value.key, value.names, str(value.type)) for value in graph.inputs] == [("0:0", ("x",), "f32[2, 3]")]
    assert [(value.key, value.names, str(value.type)) for value in graph.outputs] == [("2:2", ("sum",), "f32[2, 3]")]
    (node,) = graph.nodes
    assert (node.kind, node.version, node.inputs, node.outputs) == ("Add", 1, ["0:0", "1:0"], ["2:2"])
    assert (node.name, node.place, node.attributes) == ("n2", "layer 2", {"auto_broadcast": "numpy"})
    np.testing.assert_array_equal(graph.constants["1:0"].data, WEIGHTS.reshape(2, 3))
    assert graph.values["1:0"].metadata["name"] == "n1"


def test_constants_map_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    data = codec.read(saved(tmp_path, SOUND)).graph.constants["1:0"].data
    assert not data.flags.writeable and not data.flags.owndata


def test_weights_are_read_from_the_given_file_or_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path, SOUND, None)
    other = tmp_path / "elsewhere.weights"
    other.write_bytes(WEIGHTS.tobytes())
    for weights in (other, WEIGHTS.tobytes()):
        np.testing.assert_array_equal(codec.read(path, weights=weights).graph.constants["1:0"].data.ravel(), WEIGHTS)


def test_inputs_are_ordered_by_port_id_and_edges_may_come_in_any_order(tmp_path: Path) -> None:
    shuffled = ADD.replace(port(0) + port(1), port(1) + port(0))
    edges = edge(2, 2, 3, 0) + edge(1, 0, 2, 1) + edge(0, 0, 2, 0)
    (node,) = codec.read(saved(tmp_path, net(parameter(0) + CONSTANT + shuffled + RESULT, edges))).graph.nodes
    assert node.inputs == ["0:0", "1:0"]


def test_layers_are_sorted_and_inputs_and_outputs_keep_the_order_of_the_file(tmp_path: Path) -> None:
    relus = layer(5, "ReLU", port(0), port(1)) + layer(4, "ReLU", port(0), port(1))
    ends = layer(9, "Result", port(0), name="late") + layer(8, "Result", port(0), name="early")
    edges = edge(7, 0, 4, 0) + edge(4, 1, 5, 0) + edge(5, 1, 9, 0) + edge(3, 0, 8, 0)
    path = saved(tmp_path, net(relus + ends + parameter(7) + parameter(3), edges))
    graph = codec.read(path).graph
    assert [node.place for node in graph.nodes] == ["layer 4", "layer 5"]
    assert [value.key for value in graph.inputs] == ["7:0", "3:0"]
    assert [value.metadata["result"] for value in graph.outputs] == ["late", "early"]
    oracle = openvino.Core().read_model(path)
    assert [value.node.friendly_name for value in oracle.inputs] == ["n7", "n3"]
    assert [value.node.friendly_name for value in oracle.outputs] == ["late", "early"]


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("2,3", [(2, 2), (3, 3)]),
        ("", []),
        ("?,-1", [(0, None), (0, None)]),
        ("1..8,?,2..,..5,3", [(1, 8), (0, None), (2, None), (0, 5), (3, 3)]),
        ("[2, 3]", [(2, 2), (3, 3)]),
        ("...", None),
    ],
)
def test_a_parameters_shape_has_the_bounds_that_openvino_reads(tmp_path: Path, text: str, bounds: list[Any] | None) -> None:
    path = saved(tmp_path, net(parameter(0, text) + layer(1, "Result", port(0)), edge(0, 0, 1, 0)))
    model = codec.read(path)
    declared = model.graph.inputs[0].type
    assert isinstance(declared, Tensor)
    found = None if declared.shape is None else [symbolic.bounds(size) for size in declared.shape]
    assert found == bounds
    shapes = [openvino.Core().read_model(each).inputs[0].partial_shape for each in (path, written(model, tmp_path))]
    assert shapes[0] == shapes[1]


def test_unknown_sizes_of_two_inputs_are_two_symbols(tmp_path: Path) -> None:
    layers = parameter(0, "?,3", names="x") + parameter(1, "?,3").replace('name="n1"', 'name="x"')
    text = net(layers + layer(2, "Result", port(0)) + layer(3, "Result", port(0)), edge(0, 0, 2, 0) + edge(1, 0, 3, 0))
    shapes = [value.type.shape for value in codec.read(saved(tmp_path, text)).graph.inputs]
    assert shapes[0] is not None and shapes[1] is not None
    assert str(shapes[0][0]) == "?x.0" and shapes[0][0] != shapes[1][0]


@pytest.mark.parametrize(
    ("attribute", "names"),
    [("a", ("a",)), ("a,b", ("a", "b")), (r"a\,b,c", ("a,b", "c")), (r"a\b", (r"a\b",)), ("a, b,", ("a", " b"))],
)
def test_tensor_names_are_those_that_openvino_reads(tmp_path: Path, attribute: str, names: tuple[str, ...]) -> None:
    path = saved(tmp_path, net(parameter(0, names=attribute) + layer(1, "Result", port(0)), edge(0, 0, 1, 0)))
    model = codec.read(path)
    assert model.graph.inputs[0].names == names
    for each in (path, written(model, tmp_path)):
        assert openvino.Core().read_model(each).inputs[0].names == set(names)


def test_an_input_of_an_onnx_file_keeps_its_name_in_the_ir_of_openvino(tmp_path: Path) -> None:
    """OpenVINO drops the Cast, and its tensor has the names of both values."""
    nodes = [helper.make_node("Cast", ["pixels"], ["/cast_output"], to=1), helper.make_node("Relu", ["/cast_output"], ["y"])]
    ports = [[helper.make_tensor_value_info(name, 1, [2])] for name in ("pixels", "y")]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", *ports), opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx"
    )
    openvino.save_model(openvino.convert_model(tmp_path / "m.onnx"), tmp_path / "m.xml", compress_to_fp16=False)
    (x,) = codec.read(tmp_path / "m.xml").graph.inputs
    assert x.names == ("pixels", "/cast_output")


def test_outputs_have_names_of_their_own_or_of_their_producers(tmp_path: Path) -> None:
    ends = RESULT.replace('version="opset1"', 'version="opset1" output_names="y,z"') + layer(4, "Result", port(0))
    path = saved(tmp_path, net(parameter(0) + CONSTANT + ADD + ends, EDGES + edge(2, 2, 4, 0)))
    model = codec.read(path)
    assert [value.names for value in model.graph.outputs] == [("y", "z"), ("sum",)]
    core = openvino.Core()
    assert ports_of(core.read_model(written(model, tmp_path))) == ports_of(core.read_model(path))


def test_version_10_is_read_and_legacy_sections_are_kept(tmp_path: Path) -> None:
    more = '<meta_data><MO_version value="2021.4"/><cli_parameters><data_type value="FP32"/></cli_parameters></meta_data>'
    layers = parameter(0) + CONSTANT.replace('"f32"', '"FP32"') + ADD + RESULT
    model = codec.read(saved(tmp_path, net(layers, EDGES, "10", more)))
    assert model.versions == {"ir": 10} and model.producer == ("OpenVINO", "2021.4")
    again = codec.read(written(model, tmp_path))
    assert again.versions == {"ir": 11} and rt_info.get(again.metadata["meta_data"], "cli_parameters", "data_type") == "FP32"


def test_rt_info_of_model_layers_and_ports_is_kept(tmp_path: Path) -> None:
    info = '<rt_info><attribute name="decompression" version="0"/></rt_info>'
    layers = parameter(0).replace("</output>", f"</output>{info}") + CONSTANT.replace("</port>", f"{info}</port>") + ADD + RESULT
    more = '<rt_info><Runtime_version value="1"/><conversion><info name="a b" value="&lt;c&gt;"/></conversion></rt_info>'
    model = codec.read(saved(tmp_path, net(layers.replace("</input>", f"</input>{info}"), EDGES, more=more)))
    again = codec.read(written(model, tmp_path))
    assert rt_info.get(again.metadata["rt_info"], "conversion", "a b") == "<c>"
    assert again.graph.nodes[0].metadata == model.graph.nodes[0].metadata != {}
    assert again.graph.inputs[0].metadata["layer_rt_info"] == model.graph.inputs[0].metadata["layer_rt_info"] != []
    assert again.graph.values["1:0"].metadata["rt_info"] == again.graph.outputs[0].metadata["result_rt_info"]


def test_rt_info_is_read_and_written_by_name() -> None:
    items: list[rt_info.Item] = []
    rt_info.set_value(items, "1", "dovetail", "opset")
    rt_info.set_value(items, "2", "dovetail", "a name")
    rt_info.set_value(items, "3", "dovetail", "opset")
    assert [rt_info.get(items, "dovetail", name) for name in ("opset", "a name", "none")] == ["3", "2", None]
    assert len(items) == 1 and items[0]["children"][1]["attributes"]["name"] == "a name"


# Versions


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("Reshape", "opset8", ("Reshape", 1, "")),
        ("Gather", "opset7", ("Gather", 7, "")),
        ("Gather", "opset6", ("Gather", 1, "")),
        ("MaxPool", "opset13", ("MaxPool", 8, "")),
        ("relu", "opset3", ("ReLU", 1, "")),
        ("MVN", "opset1", ("MVN", 2, "")),
        ("Gelu", "opset1", ("Gelu", 1, "")),
        ("Nothing", "opset4", ("Nothing", 4, "")),
        ("Reshape", "opset99", ("Reshape", 99, "")),
        ("Proposal", "experimental", ("Proposal", 4, "")),
        ("Reshape", "extension", ("Reshape", 1, "extension")),
        ("Fused", "custom", ("Fused", 1, "custom")),
    ],
)
def test_a_layers_version_selects_the_operator_that_openvino_takes(
    kind: str, version: str, expected: tuple[str, int, str]
) -> None:
    assert resolve(kind, version) == expected


def test_the_version_table_agrees_with_openvinos_operators() -> None:
    x, shape = ops.parameter([2, 3], np.float32), ops.constant(np.array([2, 3], np.int64))
    for number in range(1, 17):
        opset = __import__(f"openvino.opset{number}", fromlist=["ops"])
        for make in (
            lambda: opset.reshape(x, shape, False),  # noqa: B023
            lambda: opset.broadcast(x, shape),  # noqa: B023
            lambda: opset.shape_of(x),  # noqa: B023
            lambda: opset.softmax(x, 1),  # noqa: B023
            lambda: opset.gather(x, shape, np.int64(0)),  # noqa: B023
            lambda: opset.topk(x, np.int64(1), 0, "max", "value"),  # noqa: B023
        ):
            node: Any = make()
            kind, introduced, _ = resolve(
                {"Softmax": "SoftMax"}.get(node.get_type_name(), node.get_type_name()), f"opset{number}"
            )
            assert format_version(introduced, "") == node.get_type_info().version_id, (kind, number)


def test_versions_rise_and_fit_the_opsets() -> None:
    assert all(list(versions) == sorted(set(versions)) and versions[-1] <= 17 for versions in VERSIONS.values())
    assert {"Const", "Parameter", "Result", "ReLU", "PReLU", "SoftMax"} <= set(VERSIONS)


# Constants of every element type


@pytest.mark.parametrize("name", [name for name in BY_OPENVINO if name != "string"])
@pytest.mark.parametrize("count", [0, 1, 7, 9, 16])
def test_constants_of_every_type_are_packed_as_openvino_packs_them(tmp_path: Path, name: str, count: int) -> None:
    kind = dtype(name)
    rng = np.random.default_rng(count)
    bits = min(kind.bits, 8)
    raw = rng.integers(0, 2 if name == "boolean" else 2**bits, count * max(1, kind.bits // 8), dtype=np.uint8)
    packed = constants.pack(_elements(raw, kind), kind)
    back = ForeignTensor(kind, constants.read(np.frombuffer(packed, np.uint8), kind, (count,))).data
    assert bytes(constants.pack(back, kind)) == bytes(packed) and len(packed) == constants.size_of(kind, count)
    if name in ("nf4", "boolean") or kind.is_float or not count:
        return
    values = (
        [int(item) for item in back.tolist()]
        if kind.bits >= 8 or kind.kind == "int"
        else [int(item) for item in back.astype(np.uint8)]
    )
    constant = openvino.op.Constant(getattr(openvino.Type, name), openvino.Shape([count]), values)
    openvino.save_model(openvino.Model([ops.result(constant)], [], "m"), tmp_path / "model.xml", compress_to_fp16=False)
    assert (tmp_path / "model.bin").read_bytes() == bytes(packed)
    (tensor,) = codec.read(tmp_path / "model.xml").graph.constants.values()
    assert tensor.dtype == name and tensor.data.tobytes() == back.tobytes()


def _elements(raw: np.ndarray[Any, Any], kind: Any) -> np.ndarray[Any, Any]:
    if kind.bits >= 8:
        found: np.ndarray[Any, Any] = raw.view(kind.numpy)
        return found
    return constants.decode(raw, kind)


@pytest.mark.parametrize(("name", "values", "packed"), [("nf4", [-1.0, 0.0, 1.0], "700f"), ("f4e2m1", [1.0, 0.0, 6.0], "0207")])
def test_four_bit_floats_begin_in_the_low_nibble(tmp_path: Path, name: str, values: list[float], packed: str) -> None:
    constant = openvino.op.Constant(getattr(openvino.Type, name), openvino.Shape([3]), values)
    openvino.save_model(openvino.Model([ops.result(constant)], [], "m"), tmp_path / "model.xml", compress_to_fp16=False)
    (tensor,) = codec.read(tmp_path / "model.xml").graph.constants.values()
    assert bytes(constants.pack(tensor.data, tensor.dtype)).hex() == (tmp_path / "model.bin").read_bytes().hex()
    if name == "f4e2m1":
        assert tensor.data.astype(np.float32).tolist() == values
        assert bytes(constants.pack(tensor.data, tensor.dtype)).hex() == packed


def test_string_constants_are_read_and_written_as_openvino_does(tmp_path: Path) -> None:
    texts = ["ab", "", "x\u00e9z"]
    constant = openvino.op.Constant(openvino.Tensor(texts))
    openvino.save_model(openvino.Model([ops.result(constant)], [], "m"), tmp_path / "model.xml")
    model = codec.read(tmp_path / "model.xml")
    (tensor,) = model.graph.constants.values()
    assert tensor.dtype == "string" and tensor.data.tolist() == texts
    path = written(model, tmp_path)
    assert path.with_suffix(".bin").read_bytes()[: -weights_file.TRAILER] == (tmp_path / "model.bin").read_bytes()
    openvino.save_model(openvino.Core().read_model(path), tmp_path / "theirs.xml")
    assert (tmp_path / "theirs.bin").read_bytes() == (tmp_path / "model.bin").read_bytes()


# Round trips


@pytest.mark.whole_model
@pytest.mark.parametrize("path", CORPUS_FILES, ids=lambda path: path.stem)
@needs_corpus
def test_a_saved_ir_is_equivalent_and_saved_again_unchanged(path: Path, tmp_path: Path) -> None:
    first = written(codec.read(path), tmp_path, "first")
    again = codec.read(first)
    second = written(again, tmp_path, "second")
    assert first.read_bytes() == second.read_bytes()
    assert first.with_suffix(".bin").read_bytes() == second.with_suffix(".bin").read_bytes()
    assert same(again, codec.read(second))
    assert first.with_suffix(".bin").stat().st_size <= path.with_suffix(".bin").stat().st_size * 1.01 + 4096
    core = openvino.Core()
    ours, theirs = core.read_model(first), core.read_model(path)
    assert ports_of(ours) == ports_of(theirs)
    kinds = [sorted(str(node.get_type_info()) for node in model.get_ops()) for model in (ours, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("stem", INFERRED)
@needs_corpus
def test_openvino_computes_the_same_bits_from_a_saved_ir(stem: str, tmp_path: Path) -> None:
    path = CORPUS / f"{stem}.xml"
    with np.load(CORPUS / f"{stem}.in.npz") as stored:
        inputs = [stored[name] for name in stored.files]
    assert_same_bits(path, written(codec.read(path), tmp_path), inputs)


def assert_same_bits(first: Path, second: Path, inputs: Any) -> None:
    core = openvino.Core()
    results = [core.compile_model(path, "CPU")(inputs) for path in (first, second)]
    theirs, ours = ([result[index] for index in range(len(result))] for result in results)
    assert len(theirs) == len(ours) > 0
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(one, other)


def _small() -> Any:
    x = ops.parameter([-1, 4], np.float32, name="x")
    parts = ops.variadic_split(x, np.int64(1), np.array([1, 3], np.int64))
    joined = ops.concat([parts.output(1), parts.output(0), parts.output(1)], 1)
    y = ops.reshape(joined, np.array([0, -1], np.int64), True)
    y.output(0).get_tensor().set_names({"y", "a,b"})
    return openvino.Model([ops.relu(y).output(0), ops.topk(y, np.int32(2), 1, "max", "value").output(1)], [x], "small")


def _state() -> Any:
    x = ops.parameter([1, 3], np.float32, name="x")
    info = openvino.op.util.VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape([1, 3]), openvino.Type.f32, "state<1>"
    variable = openvino.op.util.Variable(info)
    read = ops.read_value(ops.constant(np.zeros((1, 3), np.float32)), variable)
    total = ops.add(read, x)
    return openvino.Model([ops.result(total)], [ops.assign(total, variable)], [x], "state")


def _loop() -> Any:
    x = ops.parameter([1, 2], np.float32, name="x")
    inner, iteration = ops.parameter([1, 2], np.float32), ops.parameter([], np.int64)
    grown = ops.add(inner, ops.convert(iteration, "f32"))
    go_on = ops.less(iteration, ops.constant(np.int64(3)))
    body = openvino.Model([go_on, grown], [iteration, inner], "body")
    loop = ops.loop(ops.constant(np.int64(10)), ops.constant(np.bool_(True)))
    loop.set_function(body)
    loop.set_special_body_ports([0, 0])
    loop.set_merged_input(inner, x.output(0), grown.output(0))
    last, every = loop.get_iter_value(grown.output(0), -1), loop.get_concatenated_slices(grown.output(0), 0, 1, 1, -1, 0)
    return openvino.Model([last, every], [x], "loop")


def _choice() -> Any:
    condition, x = ops.parameter([], np.bool_, name="c"), ops.parameter([2], np.float32, name="x")
    left, right = ops.parameter([2], np.float32), ops.parameter([2], np.float32)
    then_result, else_result = ops.result(ops.relu(left)), ops.result(ops.negative(right))
    choice = ops.if_op(condition)
    choice.set_then_body(openvino.Model([then_result], [left], "then"))
    choice.set_else_body(openvino.Model([else_result], [right], "else"))
    choice.set_input(x.output(0), left, right)
    chosen = choice.set_output(then_result, else_result)
    return openvino.Model([chosen], [condition, x], "choice")


SMALL: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "split and concat": (_small, {"x": np.arange(12, dtype=np.float32).reshape(3, 4) - 6}),
    "state": (_state, {"x": np.ones((1, 3), np.float32)}),
    "loop": (_loop, {"x": np.ones((1, 2), np.float32)}),
    "choice": (_choice, {"c": np.bool_(False), "x": np.ones(2, np.float32)}),
}


@pytest.mark.parametrize("name", SMALL)
def test_models_made_by_openvino_survive(name: str, tmp_path: Path) -> None:
    make, inputs = SMALL[name]
    path = tmp_path / "model.xml"
    openvino.save_model(make(), path, compress_to_fp16=False)
    model = codec.read(path)
    first = written(model, tmp_path, "first")
    again = codec.read(first)
    assert same(again, codec.read(written(again, tmp_path, "second")))
    assert ports_of(openvino.Core().read_model(first)) == ports_of(openvino.Core().read_model(path))
    assert_same_bits(path, first, list(inputs.values()))


def test_a_loops_ports_are_described_by_the_layers_of_its_body(tmp_path: Path) -> None:
    openvino.save_model(_loop(), tmp_path / "model.xml", compress_to_fp16=False)
    (loop,) = [node for node in codec.read(tmp_path / "model.xml").graph.nodes if node.kind == "Loop"]
    body = loop.attributes["body"]
    assert isinstance(body, ForeignGraph)
    inputs = {value.metadata["layer"] for value in body.inputs}
    outputs = {value.metadata["layer"] for value in body.outputs}
    assert {entry.get("purpose") for entry in loop.attributes["port_map"]} == {None, "current_iteration", "execution_condition"}
    for entry in loop.attributes["port_map"]:
        assert entry["internal_layer_id"] in (inputs if entry["port"] == "input" else outputs)
        assert int(entry["external_port_id"]) in range(-1, len(loop.inputs) + len(loop.outputs))
    (back,) = loop.attributes["back_edges"]
    assert back["from-layer"] in outputs and back["to-layer"] in inputs


# The documents' own examples: layers as they print them, with a name, version and precisions added

DOCUMENTS: dict[str, tuple[str, str, list[str], list[str]]] = {
    "concat": ("Concat", 'axis="1"', ["1,8,50,50", "1,16,50,50", "1,32,50,50"], ["1,56,50,50"]),
    "concat, negative axis": ("Concat", 'axis="-3"', ["1,8,50,50", "1,16,50,50", "1,32,50,50"], ["1,56,50,50"]),
    "reshape 1": ("Reshape", 'special_zero="false"', ["2,5,5,0", "2"], ["0,4"]),
    "reshape 2": ("Reshape", 'special_zero="true"', ["2,5,5,24", "3"], ["2,150,4"]),
    "reshape 3": ("Reshape", 'special_zero="true"', ["2,2,3", "4"], ["2,2,1,3"]),
    "reshape 4": ("Reshape", 'special_zero="true"', ["3,1,1", "2"], ["3,1"]),
    "reshape 5": ("Reshape", 'special_zero="true"', ["3,1,1", "2"], ["3,1"]),
    "split 1": ("VariadicSplit", "", ["6,12,10,24", "", "3"], ["1,12,10,24", "2,12,10,24", "3,12,10,24"]),
    "split 2": ("VariadicSplit", "", ["6,12,10,24", "", "2"], ["4,12,10,24", "2,12,10,24"]),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_examples_of_the_operators_documents_are_read_as_printed(name: str, tmp_path: Path) -> None:
    kind, data, inputs, outputs = DOCUMENTS[name]
    # The Concat document numbers the output port 0 again.
    first = 0 if kind == "Concat" else len(inputs)
    # "<!-- -->" stands in the documents, too.
    commented = "".join(port(index, sizes) for index, sizes in enumerate(inputs)).replace("</port>", "<!-- x --></port>")
    middle = layer(10, kind, commented, "".join(port(first + index, sizes) for index, sizes in enumerate(outputs)), data)
    ends = "".join(layer(20 + index, "Result", port(0, sizes)) for index, sizes in enumerate(outputs))
    layers = "".join(parameter(index, sizes) for index, sizes in enumerate(inputs)) + middle + ends
    edges = "".join(edge(index, 0, 10, index) for index in range(len(inputs)))
    edges += "".join(edge(10, first + index, 20 + index, 0) for index in range(len(outputs)))
    graph = codec.read(saved(tmp_path, net(layers, edges), None)).graph
    (node,) = graph.nodes
    assert (node.kind, node.version, len(node.inputs), len(node.outputs)) == (kind, 1, len(inputs), len(outputs))
    shapes = [value.type.shape for value in graph.outputs]
    assert shapes == [tuple(map(int, sizes.split(","))) for sizes in outputs]


# Writing


def _model(**changes: Any) -> ForeignModel:
    kind = dtype("f32")
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = ForeignGraph(
        name="made",
        inputs=[ForeignValue("x", Tensor(kind, (symbolic.symbol("n", 1, 8), 3)), ("x",))],
        outputs=[ForeignValue("y", Tensor(kind, (2, 3)), ("y",))],
        nodes=[
            ForeignNode("Add", 1, ["x", "w"], ["s"], {"auto_broadcast": "numpy"}, name="add"),
            ForeignNode("Add", 1, ["s", "v"], ["y"], {"auto_broadcast": "numpy"}),
        ],
        constants={"w": ForeignTensor(kind, data), "v": ForeignTensor(kind, data.copy())},
        values={"y": ForeignValue("y", Tensor(kind, (2, 3)), ("y",)), "s": ForeignValue("s", Tensor(kind, None))},
    )
    for name, value in changes.items():
        setattr(graph, name, value)
    return ForeignModel("openvino", graph)


def test_a_model_made_by_hand_loads_in_openvino_and_computes(tmp_path: Path) -> None:
    path = written(_model(), tmp_path)
    compiled = openvino.Core().compile_model(path, "CPU")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(compiled([x])["y"], x + 2 * np.arange(6, dtype=np.float32).reshape(2, 3))
    assert str(compiled.inputs[0].partial_shape) == "[1..8,3]"


def test_equal_constants_are_stored_once(tmp_path: Path) -> None:
    assert written(_model(), tmp_path).with_suffix(".bin").stat().st_size == 24 + weights_file.TRAILER


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = written(_model(), tmp_path, "first"), written(_model(), tmp_path, "second")
    assert first.read_bytes() == second.read_bytes()


def test_names_that_xml_must_escape_survive_a_round_trip(tmp_path: Path) -> None:
    name = "a<b>&\"c',\t\n\r\\d \u00fc"
    model = _model(inputs=[ForeignValue("x", Tensor(dtype("f32"), (2, 3)), (name, "plain"))])
    model.graph.nodes[0].name = name
    path = written(model, tmp_path)
    again = codec.read(path)
    assert again.graph.inputs[0].names == (name, "plain") and again.graph.nodes[0].name == name
    assert openvino.Core().read_model(path).inputs[0].names == {name, "plain"}


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"name": "a\0b"}, UnsupportedError, "name.invalid"),
        ({"inputs": [ForeignValue("x", Tensor(dtype("complex64"), (2, 3)))]}, UnsupportedError, "dtype.unknown"),
        ({"inputs": [ForeignValue("x", Tensor(dtype("f32"), (2, 3)), ("a\\", "b"))]}, UnsupportedError, "name.invalid"),
        ({"nodes": [ForeignNode("Add", 1, ["gone"], ["y"])]}, RuleError, "graph.dangling"),
        ({"nodes": [ForeignNode("Add", 1, [None, "x"], ["y"])]}, UnsupportedError, "op.unsayable"),
        ({"nodes": [ForeignNode("Relu", 1, ["x"], ["y"]), ForeignNode("Relu", 1, ["x"], ["y"])]}, RuleError, "graph.repeated"),
        ({"nodes": [ForeignNode("Add", 1, ["x"], ["y"], {"axis": 1})]}, UnsupportedError, "op.unsayable"),
        ({"outputs": []}, RuleError, "graph.outputs"),
    ],
)
def test_models_that_ir_cannot_express_are_refused_without_a_file(
    tmp_path: Path, changes: dict[str, Any], error: type[DovetailError], code: str
) -> None:
    with pytest.raises(error) as caught:
        written(_model(**changes), tmp_path)
    assert code in {item.code for item in caught.value.diagnostics}
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_does_not_change_the_old_files(tmp_path: Path) -> None:
    path = written(_model(), tmp_path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(DovetailError):
        codec.write(_model(outputs=[]), path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


# Bad input: what is changed in SOUND, and the code it ends in

BODY = "<body><layers>" + parameter(0) + layer(1, "Result", port(0)) + "</layers><edges>" + edge(0, 0, 1, 0) + "</edges></body>"


def _iterator(port_map: str, back_edges: str = "") -> str:
    middle = layer(2, "TensorIterator", port(0), port(1)).replace(
        "</layer>", f"<port_map>{port_map}</port_map>{back_edges}{BODY}</layer>"
    )
    return net(parameter(0) + middle + RESULT, edge(0, 0, 2, 0) + edge(2, 1, 3, 0))


ENTRY = '<input external_port_id="0" internal_layer_id="0"/>'
BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "ir.xml"),
    "truncated": (SOUND[:300], "ir.xml"),
    "random": (bytes(range(256)), "ir.xml"),
    "not utf-8": (SOUND.encode().replace(b'name="n2"', b'name="\xff"'), "ir.xml"),
    "another encoding": (SOUND.replace('"1.0"', '"1.0" encoding="latin-1"'), "text.encoding"),
    "utf-16": (SOUND.encode("utf-16"), "text.encoding"),
    "a DTD": (SOUND.replace("<net", "<!DOCTYPE net><net"), "ir.dtd"),
    "an entity bomb": (
        '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><net name="&b;" version="11"/>',
        "ir.dtd",
    ),
    "an external entity": ('<!DOCTYPE net [<!ENTITY a SYSTEM "file:///etc/passwd">]><net>&a;</net>', "ir.dtd"),
    "another root": ("<model/>", "ir.xml: the root element"),
    "a namespace": (
        SOUND.replace("<net", '<net xmlns="urn:x"'),
        "ir.unknown: <net> must not have the unknown attribute 'xmlns'",
    ),
    "an attribute of a namespace": (
        SOUND.replace('type="Add"', 'type="Add" x:extra="1"'),
        "ir.unknown: <layer> must not have the unknown attribute 'x:extra'",
    ),
    "no version": (SOUND.replace(' version="11"', ""), "ir.version"),
    "version 7": (SOUND.replace('version="11"', 'version="7"'), "ir.version"),
    "version 12": (SOUND.replace('version="11"', 'version="12"'), "ir.version"),
    "deep": (SOUND.replace("</net>", "<rt_info>" + "<a>" * 500 + "</a>" * 500 + "</rt_info></net>"), "limits.exceeded"),
    "text": (SOUND.replace("</layers>", "text</layers>"), "ir.unknown: no text in or after"),
    "text of a CDATA section": (SOUND.replace("</layers>", "<![CDATA[text]]></layers>"), "ir.unknown: no text in or after"),
    "a character reference": (SOUND.replace("<edges>", "<edges>&#65;"), "ir.unknown: no text in or after"),
    "an unknown element": (SOUND.replace("</net>", "<pre-process/></net>"), "ir.unknown: <net> must not have <pre-process>"),
    "an unknown attribute": (
        SOUND.replace('type="Add"', 'type="Add" extra="1"'),
        "ir.unknown: <layer> must not have the unknown attribute",
    ),
    "two sections": (SOUND.replace("</net>", "<edges/></net>"), "ir.repeated: one <edges>, got two"),
    "no layers": ('<net name="m" version="11"/>', "ir.missing: must have <layers>"),
    "two layers with one id": (SOUND.replace('id="1" name', 'id="0" name'), "ir.repeated: layer ids must be unique"),
    "one id in two spellings": (SOUND.replace('id="1" name', 'id="00" name'), "ir.repeated: layer ids must be unique"),
    "an id that is no number": (SOUND.replace('id="2" name', 'id="two" name'), "ir.number: the layer's id"),
    "an id beyond 64 bits": (SOUND.replace('id="2" name', 'id="9999999999999999999" name'), "ir.number: the layer's id"),
    "no type": (SOUND.replace('type="Add" ', ""), "ir.missing: must have type"),
    "no operator version": (SOUND.replace('type="Add" version="opset1"', 'type="Add"'), "ir.missing: must have version"),
    "two ports with one id": (
        SOUND.replace(port(0) + port(1), port(0) + port(0)),
        "ir.repeated: ids of input ports must be unique",
    ),
    "a port without id": (SOUND.replace('<port id="2"', "<port"), "ir.missing: an output port must have an id"),
    "a port id that is no number": (SOUND.replace('<port id="2"', '<port id="1.5"'), "ir.number: an output port's id"),
    "an unknown precision": (SOUND.replace('"FP32" names="sum"', '"FP31"'), "dtype.unknown"),
    "a size below -1": (SOUND.replace("<dim>2</dim>", "<dim>-2</dim>", 1), "ir.number: a dimension must be"),
    "a size beyond 64 bits": (SOUND.replace("<dim>2</dim>", f"<dim>{2**63}</dim>", 1), "ir.number: a dimension must be"),
    "a size that is no number": (SOUND.replace("<dim>2</dim>", "<dim>1abc</dim>", 1), "ir.number: a dimension must be"),
    "sizes whose product overflows": (SOUND.replace("<dim>2</dim>", f"<dim>{2**62}</dim>", 1), "ir.number: elements"),
    "a shape whose product overflows": (SOUND.replace('shape="2,3"', f'shape="{2**62},3"'), "ir.number: elements"),
    "a shape that is none": (SOUND.replace('shape="2,3"', 'shape="2,x"'), "ir.number: must be numbers, bounds or"),
    "a shape with bounds the wrong way": (
        SOUND.replace('shape="2,3"', 'shape="8..2,3"'),
        "ir.number: must be numbers, bounds or",
    ),
    "two edges into one port": (SOUND.replace("</edges>", edge(1, 0, 2, 0) + "</edges>"), "ir.repeated: must have one edge"),
    "the same edge twice": (SOUND.replace("</edges>", edge(0, 0, 2, 0) + "</edges>"), "ir.repeated: must have one edge"),
    "an edge to no layer": (SOUND.replace("</edges>", edge(0, 0, 9, 0) + "</edges>"), "ir.edge: must exist"),
    "an edge from no layer": (SOUND.replace(edge(0, 0, 2, 0), edge(9, 0, 2, 0)), "ir.edge: must exist"),
    "an edge to no port": (SOUND.replace("</edges>", edge(0, 0, 2, 7) + "</edges>"), "ir.edge: must have an input port 7"),
    "an edge from no port": (SOUND.replace(edge(2, 2, 3, 0), edge(2, 5, 3, 0)), "ir.edge: must have an output port 5"),
    "an edge with words": (SOUND.replace('from-layer="0"', 'from-layer="x"'), "ir.edge: four integers"),
    "an edge without end": (SOUND.replace(' to-port="1"', ""), "ir.edge: four integers"),
    "a port that nothing leads to": (SOUND.replace(edge(1, 0, 2, 1), ""), "ir.edge: port 1 must have an edge"),
    "a cycle": (SOUND.replace(edge(0, 0, 2, 0), edge(2, 2, 2, 0)), "graph.cycle"),
    "no Result": (net(parameter(0) + CONSTANT + ADD, edge(0, 0, 2, 0) + edge(1, 0, 2, 1)), "graph.outputs"),
    "a Parameter with an input": (
        SOUND.replace(parameter(0, names="x"), layer(0, "Parameter", port(0), port(0))),
        "ir.edge: output ports",
    ),
    "a Parameter without shape": (SOUND.replace('shape="2,3" ', ""), "ir.missing: must have shape"),
    "a Parameter with more": (SOUND.replace('shape="2,3" ', 'shape="2,3" layout="NC" '), "ir.unknown: 'layout'"),
    "a constant without offset": (SOUND.replace(' offset="0"', ""), "ir.missing: must have offset"),
    "a constant of unknown size": (SOUND.replace('shape="2, 3"', 'shape="?, 3"'), "ir.number: static shape"),
    "a constant of dynamic type": (
        SOUND.replace('element_type="f32" shape="2, 3"', 'element_type="dynamic" shape="2, 3"'),
        "dtype.unknown",
    ),
    "a negative offset": (SOUND.replace('offset="0"', 'offset="-4"'), "ir.number: offset must be"),
    "an offset beyond the file": (SOUND.replace('offset="0"', 'offset="4"'), "ir.constant: must be in the .bin file"),
    "an offset that would wrap": (SOUND.replace('offset="0"', f'offset="{2**63 - 8}"'), "ir.constant: must be in the .bin file"),
    "a size beyond the file": (
        SOUND.replace('shape="2, 3" offset="0" size="24"', 'shape="2, 4" offset="0" size="32"'),
        "ir.constant: must be in the .bin file",
    ),
    "fewer bytes than the shape says": (SOUND.replace('size="24"', 'size="20"'), "ir.constant: must have 24 bytes"),
    "a giant shape": (SOUND.replace('shape="2, 3"', 'shape="1000000000000, 3"'), "ir.constant: must have"),
    "strings without a table": (SOUND.replace('"f32" shape="2, 3"', '"string" shape="2, 3"'), "ir.constant: 6 strings"),
    "a port map to no layer of the body": (
        _iterator(ENTRY.replace('id="0"/', 'id="1"/')),
        "ir.edge: must be an input of the body",
    ),
    "a port map from no port": (_iterator(ENTRY.replace('port_id="0"', 'port_id="5"')), "ir.edge: must have an input port 5"),
    "a port map without ids": (_iterator("<input/>"), "ir.edge: must have external_port_id"),
    "a port map with words": (_iterator(ENTRY.replace('port_id="0"', 'port_id="x"')), "ir.number: external_port_id must"),
    "a back edge to nothing": (
        _iterator(ENTRY, '<back_edges><edge from-layer="7" to-layer="0"/></back_edges>'),
        "ir.edge: the back edge",
    ),
}


def test_the_file_that_the_bad_ones_are_made_from_is_sound(tmp_path: Path) -> None:
    assert codec.read(saved(tmp_path, SOUND)).graph.outputs
    assert codec.read(saved(tmp_path, _iterator(ENTRY + '<output external_port_id="1" internal_layer_id="1"/>'))).graph.outputs


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_code_and_file(name: str, tmp_path: Path) -> None:
    text, fault = BAD[name]
    code, _, words = fault.partition(": ")
    assert text != SOUND
    path = saved(tmp_path, text)
    with pytest.raises((FormatError, UnsupportedError)) as caught:
        codec.read(path)
    assert any(item.code == code and words in item.message for item in caught.value.diagnostics), caught.value
    assert all(item.file == str(path) for item in caught.value.diagnostics)


def test_malformed_xml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"line 3, column 2"):
        codec.read(saved(tmp_path, '<net name="m"\nversion="11">\n</layers>'))


def test_all_independent_faults_are_reported_with_their_layers(tmp_path: Path) -> None:
    text = (
        SOUND.replace('size="24"', 'size="20"').replace(edge(2, 2, 3, 0), edge(2, 5, 3, 0)).replace('shape="2,3"', 'shape="2,x"')
    )
    with pytest.raises(FormatError) as caught:
        codec.read(saved(tmp_path, text))
    found = {item.code: item.node for item in caught.value.diagnostics}
    assert found["ir.constant"] == "n1" and found["ir.number"] == "n0" and found["ir.edge"] == "n3"
    assert "layer 1" in str(caught.value)


def test_missing_weights_are_refused_only_where_constants_need_them(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        codec.read(saved(tmp_path, SOUND, None))
    assert [item.code for item in caught.value.diagnostics] == ["path.missing"]
    text = net(parameter(0) + layer(1, "Result", port(0)), edge(0, 0, 1, 0))
    assert codec.read(saved(tmp_path, text, None)).graph.constants == {}


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_weights_file_that_is_a_link_is_refused(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(WEIGHTS.tobytes())
    path = saved(tmp_path, SOUND, None)
    link(secret, tmp_path / "model.bin")
    with pytest.raises(FormatError) as caught:
        codec.read(path)
    assert caught.value.code == "path.link"


def test_many_faults_end_the_search(tmp_path: Path) -> None:
    edges = "".join(edge(5000 + index, 0, 2, 0) for index in range(5000))
    with pytest.raises(DovetailError) as caught:
        codec.read(saved(tmp_path, SOUND.replace("</edges>", edges + "</edges>")))
    assert len(caught.value.diagnostics) == 1000


PIECES = [
    "<",
    ">",
    "/",
    '"',
    "id=",
    "-1",
    "0",
    "1",
    "99999999999999999999",
    "Const",
    "Result",
    "body",
    "&x;",
    "...",
    "?",
    "\0",
    "\xff",
    "",
]


@settings(max_examples=200)
@given(
    st.sampled_from([SOUND, _iterator(ENTRY)]),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=4),
    st.binary(max_size=32),
)
def test_a_changed_file_is_read_or_refused(
    tmp_path_factory: Any, text: str, changes: list[tuple[int, int, str]], weights: bytes
) -> None:
    for place, length, piece in changes:
        start = place % len(text)
        text = text[:start] + piece + text[start + length :]
    path = saved(tmp_path_factory.mktemp("changed"), text.encode("utf-8"), weights)
    try:
        model = codec.read(path)
        codec.write(model, path.with_name("out.xml"))
    except DovetailError:
        return
    assert same(codec.read(path.with_name("out.xml")).graph.outputs[0].names, model.graph.outputs[0].names)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: Any, data: bytes) -> None:
    path = saved(tmp_path_factory.mktemp("any"), data)
    with pytest.raises(DovetailError):
        codec.read(path)
