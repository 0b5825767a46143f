"""The ONNX codec: what a file says comes back, and what is wrong with it is refused, by name.

Oracles: onnx's own numpy_helper, checker and reference evaluator; onnxruntime for calls of functions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto, TypeProto, checker, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import dovetail
from dovetail.errors import DovetailError, FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignTensor
from dovetail.formats.onnx import codec
from dovetail.formats.onnx.tensors import TensorReader, byte_size
from dovetail.ir import dtypes, symbolic
from dovetail.ir.types import Optional, Sequence, Tensor

FLOAT = TensorProto.FLOAT
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
CORPUS = sorted((Path(__file__).resolve().parents[3] / "shared" / "corpus").glob("*.onnx"))
DTYPES = [item for item in dtypes.ALL if item.onnx is not None]


def value(name: str, shape: Any = (2,), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(*nodes: onnx.NodeProto, opset: int = 20, **options: Any) -> ModelProto:
    """Return a model from x to y."""
    inputs, outputs = options.pop("inputs", [value("x")]), options.pop("outputs", [value("y")])
    imports = options.pop("imports", [helper.make_opsetid("", opset)])
    functions = options.pop("functions", [])
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, **options)
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def relu(x: str = "x", y: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Relu", [x], [y], **attributes)


def refuse(source: Any, fault: str) -> DovetailError:
    """Demand an error; ``fault`` is its code, and after a colon words of its message."""
    code, _, words = fault.partition(": ")
    with pytest.raises(DovetailError) as caught:
        codec.read(source)
    assert any(item.code == code and words in item.message for item in caught.value.diagnostics), str(caught.value)
    return caught.value


# ---- round trips


def canonical(message: Any) -> Any:
    """Return the content of a message in canonical form."""
    if isinstance(message, TensorProto):
        data = numpy_helper.to_array(message)
        content = data.tolist() if data.dtype == object or data.dtype.kind == "U" else data.tobytes()
        props = [(item.key, item.value) for item in message.metadata_props]
        return message.name, message.data_type, tuple(message.dims), message.doc_string, props, content
    found: dict[str, Any] = {}
    for field, content in message.ListFields():
        if field.name == "dim_value" and content < 0:
            continue
        if (field.name, content) in (("domain", "ai.onnx"), ("model_version", 0)):
            continue
        if hasattr(content, "ListFields"):
            found[field.name] = canonical(content)
        elif field.name == "dim_param":
            found[field.name] = canonical_size(content)
        elif isinstance(content, (str, bytes, int, float)):
            if content != "" or field.name == "dim_value":
                found[field.name] = content
        elif len(content):
            found[field.name] = [canonical(item) if hasattr(item, "ListFields") else item for item in content]
    return found


def canonical_size(text: str) -> str:
    """Return a name, or what an expression computes, whatever way it is written."""
    tokens = text.replace("Min(", "min(").replace("Max(", "max(")
    try:
        return str(symbolic.parse(tokens)) if "(" in tokens or set("+-*/ ") & set(tokens) else text
    except DovetailError:
        return text


def assert_comes_back(source: Any, proto: ModelProto) -> None:
    written = codec.write(codec.read(source))
    assert written is not None
    back = onnx.load_model_from_string(written)
    assert canonical(back) == canonical(proto)
    checker.check_model(back)
    assert codec.write(codec.read(written)) == written


@pytest.mark.whole_model
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_models_survive_a_round_trip(path: Path) -> None:
    assert_comes_back(path, onnx.load(path))


@pytest.mark.whole_model
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_models_of_real_exporters_survive_a_round_trip(path: Path) -> None:
    assert_comes_back(path, onnx.load(path))


@cache
def backend_models() -> list[tuple[str, ModelProto]]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(case.name, case.model) for case in load_model_tests(kind="node") if case.model is not None]
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        found += [(case.name, onnx.load(f"{case.model_dir}/model.onnx")) for case in load_model_tests(kind=kind)]
    return found


@pytest.mark.whole_model
def test_models_of_onnx_backend_tests_survive_a_round_trip() -> None:
    models = backend_models()
    assert len(models) > 1800
    for name, proto in models:
        try:
            assert_comes_back(proto, proto)
        except Exception as error:
            error.add_note(name)
            raise


def everything() -> ModelProto:
    """Return a model in which every kind of field has something to say."""
    body = helper.make_graph([relu("x", "inner")], "branch", [], [value("inner", None)], value_info=[value("inner", ["n"])])
    node = helper.make_node("Thing", ["x", "", "w"], ["y", ""], "name", "doc", "my.domain")
    for attribute in (
        helper.make_attribute("a_float", 0.5, doc_string="why a half"),
        helper.make_attribute("b_int", -3),
        helper.make_attribute("c_string", "ünï"),
        helper.make_attribute("d_tensor", numpy_helper.from_array(np.arange(6.0).reshape(2, 3), "named")),
        helper.make_attribute("e_graph", body),
        helper.make_attribute("f_floats", [1.0, float("inf")]),
        helper.make_attribute("g_ints", [2**63 - 1, -(2**63)]),
        helper.make_attribute("h_strings", ["a", ""]),
        helper.make_attribute("i_tensors", [numpy_helper.from_array(np.arange(2))]),
        helper.make_attribute("j_graphs", [body]),
        helper.make_attribute("k_type", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["n", 2]))),
        helper.make_attribute("l_empty", [], attr_type=AttributeProto.STRINGS),
        helper.make_attribute("m_sparse", sparse([1.5, 2.5], [1, 4], [2, 3])),
    ):
        node.attribute.append(attribute)
    node.attribute[3].t.doc_string = "a tensor's doc"
    helper.set_metadata_props(node, {"b": "1", "a": ""})
    configuration = node.device_configurations.add(configuration_id="two")
    configuration.sharding_spec.add(tensor_name="x", device=[0, 1])
    typed = helper.make_tensor_value_info(
        "x", FLOAT, ["n", None, 3, "seq+1"], doc_string="an input", shape_denotation=["A", "", "B", ""]
    )
    typed.type.denotation = "TENSOR"
    weights = numpy_helper.from_array(np.array([[1, -0.0]], np.float32), "w")
    weights.doc_string = "weights"
    helper.set_metadata_props(weights, {"k": "v"})
    model = model_of(
        node,
        inputs=[value("w2", ["m"]), typed],
        outputs=[helper.make_value_info("y", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, None)))],
        initializer=[weights, numpy_helper.from_array(np.ones(3, np.float32), "w2")],
        sparse_initializer=[sparse([3.0], [2], [4], "w3")],
        value_info=[value("w", [1, 2])],
        doc_string="graph doc",
        imports=[helper.make_opsetid("my.domain", 7), helper.make_opsetid("", 20)],
    )
    annotation = model.graph.quantization_annotation.add(tensor_name="w")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w2")
    helper.set_metadata_props(model.graph, {"g": "h"})
    helper.set_model_props(model, {"author": "somebody", "z": "1"})
    model.configuration.add(name="two", num_devices=2)
    model.producer_name, model.producer_version, model.doc_string = "producer", "1.0", "model doc"
    model.domain, model.model_version = "com.example", 5
    return model


def sparse(values: list[float], indices: Any, shape: list[int], name: str = "") -> SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), name), numpy_helper.from_array(np.array(indices, np.int64)), shape
    )


def test_every_field_of_a_model_survives_a_round_trip() -> None:
    proto = everything()
    written = codec.write(codec.read(proto))
    assert written is not None
    assert canonical(onnx.load_model_from_string(written)) == canonical(proto)


def test_the_fields_that_are_read() -> None:
    model = codec.read(everything())
    graph, node = model.graph, model.graph.nodes[0]
    assert (model.versions, model.producer, model.doc) == ({"my.domain": 7, "": 20}, ("producer", "1.0"), "model doc")
    assert (node.kind, node.version, node.domain, node.name, node.place) == ("Thing", 7, "my.domain", "name", "node 0")
    assert (node.inputs, node.outputs) == (["x", None, "w"], ["y", None])
    assert [item.key for item in graph.inputs] == ["x"]
    assert list(graph.constants) == ["w", "w2", "w3"]
    assert graph.metadata["defaults"] == ["w2"]
    shape = graph.inputs[0].type.shape
    assert shape is not None
    assert [item if isinstance(item, int) else symbolic.name_of(item) for item in shape] == ["n", "?x.1", 3, "seq+1"]
    assert graph.outputs[0].type == Optional(Tensor(dtypes.f32, None))
    attributes = node.attributes
    assert (attributes["a_float"], attributes["b_int"], attributes["c_string"]) == (0.5, -3, "ünï")
    assert (attributes["g_ints"], attributes["l_empty"]) == ([2**63 - 1, -(2**63)], [])
    assert attributes["k_type"] == Sequence(Tensor(dtypes.f32, (symbolic.symbol("n"), 2)))
    np.testing.assert_array_equal(attributes["m_sparse"].data, [[0, 1.5, 0], [0, 2.5, 0]])
    assert attributes["e_graph"].nodes[0].inputs == ["x"]
    assert attributes["e_graph"].nodes[0].version == 14


@pytest.mark.parametrize(
    ("opset", "kind", "version"),
    [(1, "Concat", 1), (5, "Concat", 4), (12, "Concat", 11), (13, "Concat", 13), (20, "Reshape", 19)],
)
def test_versions_are_those_in_force_at_the_imported_opset(opset: int, kind: str, version: int) -> None:
    model = codec.read(model_of(helper.make_node(kind, ["x"], ["y"]), opset=opset))
    assert model.graph.nodes[0].version == version


def test_sizes_of_files_and_expressions_are_written_as_text() -> None:
    n = symbolic.symbol("n")
    model = codec.read(model_of(relu()))
    model.graph.inputs[0].type = Tensor(
        dtypes.f32, (2 * n + 1, symbolic.symbol("?x.1"), symbolic.symbol("?x.1") + 1, 4, symbolic.symbol("a b"))
    )
    back = onnx.load_model_from_string(codec.write(model) or b"").graph.input[0].type.tensor_type.shape.dim
    assert [(dim.WhichOneof("value"), dim.dim_param, dim.dim_value) for dim in back] == [
        ("dim_param", str(2 * n + 1), 0),
        (None, "", 0),
        (None, "", 0),
        ("dim_value", "", 4),
        ("dim_param", "a b", 0),
    ]


def test_unnamed_sizes_of_different_values_stay_different() -> None:
    inner = helper.make_graph([relu("x", "t")], "b", [], [value("t", [None])])
    again = helper.make_graph([relu("x", "t")], "b", [], [value("t", [None])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=again)
    model = codec.read(
        model_of(node, inputs=[value("c", [], TensorProto.BOOL), value("x", [None, -1])], outputs=[value("y", [None])])
    )
    first, second = model.graph.inputs[1].type.shape
    found = [first, second, model.graph.outputs[0].type.shape[0]]
    found += [model.graph.nodes[0].attributes[name].outputs[0].type.shape[0] for name in ("then_branch", "else_branch")]
    assert len({symbolic.name_of(item) for item in found}) == 5


def test_old_attributes_without_a_type_are_known_by_their_field() -> None:
    proto = model_of(helper.make_node("Concat", ["x"], ["y"], axis=1))
    proto.graph.node[0].attribute[0].ClearField("type")
    refuse(proto, "attribute.type")
    proto.ir_version = 1
    proto.ClearField("opset_import")
    model = codec.read(proto)
    assert model.graph.nodes[0].attributes == {"axis": 1}
    assert model.versions == {"": 1}


def test_the_two_names_of_the_default_domain_are_one() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")
    model = codec.read(model_of(node, imports=[helper.make_opsetid("ai.onnx", 13), helper.make_opsetid("", 13)]))
    assert (model.versions, model.graph.nodes[0].domain, model.graph.nodes[0].version) == ({"": 13}, "", 13)


def test_every_kind_of_source_reads_the_same(tmp_path: Path) -> None:
    data = model_of(relu()).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    expected = codec.write(codec.read(data))
    with open(path, "rb") as stream:
        sources: list[Any] = [path, str(path), bytearray(data), memoryview(data), stream, onnx.load(path)]
        assert [codec.write(codec.read(source)) for source in sources] == [expected] * len(sources)


# ---- tensors


def sample(dtype: dtypes.DType, shape: tuple[int, ...] = (3, 3)) -> Any:
    """Every bit pattern or so, in an odd number of elements."""
    count = int(np.prod(shape))
    random = np.random.default_rng(5)
    if dtype == "string":
        return np.array(["", "ä", "long text"] * count, object)[:count].reshape(shape)
    if dtype == "boolean":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.bits < 8:
        return random.integers(0, 2**dtype.bits, shape, dtype=np.uint8).view(dtype.numpy)
    return np.frombuffer(random.bytes(count * dtype.bits // 8), dtype.numpy).reshape(shape)


def same(x: Any, y: Any) -> bool:
    return (
        x.dtype == y.dtype
        and x.shape == y.shape
        and (x.tolist() == y.tolist() if x.dtype == object else x.tobytes() == y.tobytes())
    )


@pytest.mark.parametrize("shape", [(3, 3), (), (1,), (0, 3), (2, 4), (5,), (7, 1)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_are_read_as_numpy_helper_reads_them(dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    data = sample(dtype, shape)
    proto = numpy_helper.from_array(data, "t")
    found, _ = TensorReader(None).read(proto)
    assert same(found.data, data)
    assert found.dtype is dtype
    assert found.data.size == 0 or not found.data.flags.writeable


@pytest.mark.parametrize("shape", [(3, 3), (), (2, 2), (5,)])
@pytest.mark.parametrize("dtype", [item for item in DTYPES if item.name != "string"], ids=str)
def test_typed_fields_are_read_as_numpy_helper_reads_them(dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    data = sample(dtype, shape)
    proto = TensorProto(data_type=dtype.onnx, dims=shape, name="t")
    bits = data.reshape(-1).view(np.uint8)
    if dtype.kind == "complex" or dtype.name in ("f32", "f64"):
        field = "float_data" if dtype.name in ("f32", "complex64") else "double_data"
        stored = bits.view(np.float32 if field == "float_data" else np.float64)
    elif dtype.name == "i64":
        field, stored = "int64_data", data.reshape(-1)
    elif dtype.name in ("u32", "u64"):
        field, stored = "uint64_data", data.reshape(-1)
    elif dtype.bits in (2, 4):
        field, stored = "int32_data", np.frombuffer(numpy_helper.from_array(data).raw_data, np.uint8)
    elif dtype.is_float:
        field, stored = "int32_data", bits.view(np.uint16) if dtype.bits == 16 else bits
    else:
        field, stored = "int32_data", data.reshape(-1).astype(np.int32)
    getattr(proto, field).extend(stored.tolist())
    checker.check_tensor(proto)
    expected = numpy_helper.to_array(proto)
    found = TensorReader(None).read(proto)[0].data
    assert same(found, expected)
    if not dtype.is_float and dtype.kind != "complex":
        assert same(found, data)


@pytest.mark.parametrize("shape", [(3, 3), (), (0,), (5,), (2, 3, 5)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numpy_helper_reads_written_tensors(dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    data = sample(dtype, shape)
    model = ForeignModel("onnx", ForeignGraph(), {"": 25})
    model.graph.nodes = [ForeignNode("Constant", 25, [], ["y"], {"value": ForeignTensor(dtype, data)})]
    model.graph.outputs = codec.read(model_of(relu())).graph.outputs
    proto = onnx.load_model_from_string(codec.write(model) or b"")
    checker.check_tensor(proto.graph.node[0].attribute[0].t)
    assert same(numpy_helper.to_array(proto.graph.node[0].attribute[0].t), data)


def test_arrays_of_any_layout_are_written_by_value() -> None:
    data = np.arange(12, dtype=">i4").reshape(3, 4).T[::2]
    model = codec.read(model_of(relu()))
    model.graph.constants["w"] = ForeignTensor(dtypes.dtype("i32"), data)
    written = onnx.load_model_from_string(codec.write(model) or b"").graph.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(written), data)


def test_raw_data_is_not_copied() -> None:
    found, _ = TensorReader(None).read(numpy_helper.from_array(np.ones((4, 4), np.float32)))
    assert not found.data.flags.owndata


def tensor(**fields: Any) -> TensorProto:
    return TensorProto(**{"data_type": FLOAT, "dims": [2], "name": "t", **fields})


BAD_TENSORS: list[tuple[str, TensorProto]] = [
    ("data.size", tensor(raw_data=bytes(7))),
    ("data.size", tensor(raw_data=bytes(9))),
    ("data.size", tensor()),
    ("data.size", tensor(float_data=[1.0])),
    ("data.size", tensor(dims=[0], float_data=[1.0])),
    ("data.size", tensor(dims=[2**62, 4])),
    ("data.size", tensor(dims=[2**40, 2**40], raw_data=b"1234")),
    ("data.size", tensor(dims=[0, 2**62, 2**62])),
    ("data.size", tensor(dims=[10**12], raw_data=bytes(4))),
    ("data.size", tensor(dims=[10**12], data_type=TensorProto.INT4, raw_data=bytes(4))),
    ("data.size", tensor(dims=[3], data_type=TensorProto.INT4, raw_data=bytes(1))),
    ("data.size", tensor(dims=[3], data_type=TensorProto.STRING, string_data=[b"a"])),
    ("data.size", tensor(data_type=TensorProto.COMPLEX64, float_data=[1.0, 2.0])),
    ("data.size", tensor(dims=[-2], raw_data=bytes(8))),
    ("data.size", tensor(dims=[-1, -2], raw_data=bytes(8))),
    ("data.size", tensor(dims=[1] * 65, raw_data=bytes(4))),
    ("data.field", tensor(raw_data=bytes(8), float_data=[1.0, 2.0])),
    ("data.field", tensor(float_data=[1.0, 2.0], int32_data=[1, 2])),
    ("data.size", tensor(int32_data=[1, 2])),
    ("data.field", tensor(data_type=TensorProto.STRING, raw_data=bytes(8))),
    ("data.type", tensor(data_type=0, raw_data=bytes(8))),
    ("data.type", tensor(data_type=99, raw_data=bytes(8))),
    ("data.value", tensor(data_type=TensorProto.BOOL, raw_data=b"\0\2")),
    ("data.value", tensor(data_type=TensorProto.BOOL, int32_data=[0, 2])),
    ("data.value", tensor(data_type=TensorProto.INT8, int32_data=[0, 128])),
    ("data.value", tensor(data_type=TensorProto.UINT16, int32_data=[0, -1])),
    ("data.value", tensor(data_type=TensorProto.UINT32, uint64_data=[0, 2**32])),
    ("data.value", tensor(data_type=TensorProto.FLOAT16, int32_data=[0, 65536])),
    ("data.value", tensor(data_type=TensorProto.FLOAT6E2M3, int32_data=[0, 64])),
    ("data.value", tensor(data_type=TensorProto.STRING, string_data=[b"a", b"\xff"])),
    ("op.unsupported", tensor(raw_data=bytes(8), segment=TensorProto.Segment(begin=0, end=1))),
    ("data.external", tensor(raw_data=bytes(8), data_location=1)),
    ("data.external", tensor(raw_data=bytes(8), external_data=[onnx.StringStringEntryProto(key="location", value="w")])),
    ("path.escape", tensor(data_location=1)),
]


@pytest.mark.parametrize(("code", "proto"), BAD_TENSORS)
def test_tensors_that_contradict_themselves_are_refused(code: str, proto: TensorProto) -> None:
    error = refuse(model_of(relu(), initializer=[proto]), code)
    assert error.node == "initializer 't'"
    node = helper.make_node("Constant", [], ["y"], name="here")
    node.attribute.append(helper.make_attribute("value", proto))
    assert refuse(model_of(node), code).node == "here"


@pytest.mark.parametrize(
    "proto",
    [
        sparse([1.0, 2.0], [1, 1], [4]),
        sparse([1.0, 2.0], [2, 1], [4]),
        sparse([1.0], [4], [4]),
        sparse([1.0], [-1], [4]),
        sparse([1.0], [[0, 4]], [2, 3]),
        sparse([1.0], [[0, 0, 0]], [2, 3]),
        sparse([1.0, 2.0], [1], [4]),
        sparse([], [0], [4]),
    ],
)
def test_sparse_tensors_that_contradict_themselves_are_refused(proto: SparseTensorProto) -> None:
    proto.values.name = "s"
    refuse(model_of(relu(), sparse_initializer=[proto]), "data.value")


def test_a_sparse_tensor_of_too_many_elements_is_refused() -> None:
    refuse(model_of(relu(), sparse_initializer=[sparse([1.0], [0], [10**6, 10**6], "s")]), "limits.exceeded")


def test_sparse_tensors_have_their_elements_at_their_indices() -> None:
    table = [sparse([1, 2], [1, 5], [2, 3], "a"), sparse([1, 2], [[0, 1], [1, 2]], [2, 3], "b"), sparse([], [], [2, 3], "c")]
    constants = codec.read(model_of(relu(), sparse_initializer=table)).graph.constants
    assert constants["a"].data.tolist() == constants["b"].data.tolist() == [[0, 1, 0], [0, 0, 2]]
    assert not constants["c"].data.any()


# ---- external data


def with_external(entries: dict[str, str], count: int = 4) -> ModelProto:
    proto = TensorProto(name="w", data_type=FLOAT, dims=[count], data_location=1)
    for key, text in entries.items():
        proto.external_data.add(key=key, value=text)
    return model_of(relu(), initializer=[proto])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "w.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    os.link(tmp_path / "secret", folder / "hard")
    os.mkfifo(folder / "fifo")
    return folder


def saved(folder: Path, proto: ModelProto) -> Path:
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize("offset", [0, 4, 16])
def test_external_data_is_mapped(folder: Path, offset: int) -> None:
    found = codec.read(
        saved(folder, with_external({"location": "w.bin", "offset": str(offset), "length": "16"}))
    ).graph.constants["w"]
    np.testing.assert_array_equal(found.data, np.arange(8, dtype=np.float32)[offset // 4 :][:4])
    assert not found.data.flags.owndata
    assert not found.data.flags.writeable


BAD_EXTERNAL: list[tuple[str, dict[str, str]]] = [
    ("path.escape: must stay", {"location": "../secret"}),  # CVE-2022-25882
    ("path.escape: must stay", {"location": "sub/../../secret"}),  # CVE-2024-27318
    ("path.link", {"location": "link"}),  # CVE-2026-34447
    ("path.link", {"location": "up/secret"}),  # CVE-2026-27489
    ("path.link", {"location": "hard"}),  # CVE-2026-34446
    ("path.escape: must be a relative path", {"location": "/etc/passwd"}),
    ("path.escape: NUL", {"location": "w.bin\0"}),
    ("path.kind", {"location": "fifo"}),
    ("path.kind", {"location": "sub"}),
    ("path.missing", {"location": "absent"}),
    ("path.missing", {"location": "*/_ORT_MEM_ADDR_/*", "offset": "4096", "length": "16"}),
    ("path.escape: must name a file", {"offset": "0"}),
    ("data.range", {"location": "w.bin", "offset": "32", "length": "16"}),  # CVE-2024-27319
    ("data.range", {"location": "w.bin", "offset": "9223372036854775807", "length": "16"}),
    ("data.range", {"location": "w.bin", "length": "9223372036854775807"}),  # CVE-2026-34445
    ("data.size", {"location": "w.bin"}),
    ("data.size", {"location": "w.bin", "length": "8"}),
    ("data.external", {"location": "w.bin", "offset": "-4", "length": "16"}),
    ("data.external", {"location": "w.bin", "offset": "1e1", "length": "16"}),
    ("data.external", {"location": "w.bin", "length": "9" * 5000}),
    ("data.external", {"location": "w.bin", "length": "16", "__class__": "x"}),  # CVE-2026-34445
    ("file.pair", {"location": "w.bin", "length": "16", "checksum": "0" * 40}),
]


@pytest.mark.parametrize(("code", "entries"), BAD_EXTERNAL)
def test_external_data_cannot_leave_the_models_folder_or_lie_about_its_size(
    folder: Path, code: str, entries: dict[str, str]
) -> None:
    path = saved(folder, with_external(entries))
    error = refuse(path, code)
    assert error.node == "initializer 'w'"
    assert error.diagnostics[0].file


def test_external_data_needs_a_path(folder: Path) -> None:
    proto = with_external({"location": "w.bin", "length": "16"})
    refuse(proto.SerializeToString(), "data.external")
    found = codec.read(proto, file=folder / "m.onnx").graph.constants["w"]
    assert found.data.tolist() == [0, 1, 2, 3]


def test_checksums_are_verified(folder: Path) -> None:
    import hashlib

    digest = hashlib.sha1((folder / "w.bin").read_bytes()).hexdigest()
    codec.read(saved(folder, with_external({"location": "w.bin", "length": "16", "checksum": digest})))


def big_model() -> ForeignModel:
    model = codec.read(model_of(relu()))
    for number, dtype in enumerate(DTYPES):
        model.graph.constants[f"w{number}"] = ForeignTensor(dtype, sample(dtype, (100, 33)), f"w{number}")
    model.graph.constants["page"] = ForeignTensor(dtypes.f32, np.arange(30000, dtype=np.float32), "page")
    model.graph.constants["small"] = ForeignTensor(dtypes.f32, np.arange(4, dtype=np.float32), "small")
    return model


@pytest.mark.parametrize(
    ("external", "name"), [(True, "m.onnx.data"), ("weights.bin", "weights.bin"), ("sub/w.bin", "sub/w.bin")]
)
def test_external_data_is_written_next_to_the_model_and_read_back(tmp_path: Path, external: bool | str, name: str) -> None:
    (tmp_path / "sub").mkdir()
    model, path = big_model(), tmp_path / "m.onnx"
    codec.write(model, path, external=external)
    assert sorted(str(item.relative_to(tmp_path)) for item in tmp_path.rglob("*") if item.is_file()) == sorted(["m.onnx", name])
    back = codec.read(path)
    assert all(same(back.graph.constants[key].data, model.graph.constants[key].data) for key in model.graph.constants)
    proto = onnx.load(path)
    assert all(same(numpy_helper.to_array(item), model.graph.constants[item.name].data) for item in proto.graph.initializer)
    checker.check_model(str(path))
    first = (path.read_bytes(), (tmp_path / name).read_bytes())
    codec.write(back, path, external=external)
    assert (path.read_bytes(), (tmp_path / name).read_bytes()) == first


def test_small_tensors_stay_inside_and_no_empty_side_file_is_left(tmp_path: Path) -> None:
    codec.write(
        codec.read(model_of(relu(), initializer=[numpy_helper.from_array(np.ones(4), "w")])), tmp_path / "m.onnx", external=True
    )
    assert [item.name for item in tmp_path.iterdir()] == ["m.onnx"]


def test_models_too_large_for_protobuf_have_a_side_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "INLINE_LIMIT", 100_000)
    codec.write(big_model(), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size > 100_000
    with pytest.raises(UnsupportedError) as caught:
        codec.write(big_model())
    assert caught.value.code == "data.external"


@pytest.mark.parametrize(
    ("code", "location"),
    [
        ("path.escape", "../w.bin"),
        ("path.escape", "/tmp/w.bin"),
        ("path.link", "link"),
        ("path.link", "up/secret"),
        ("path.kind", "fifo"),
    ],
)
def test_external_data_is_not_written_outside(folder: Path, code: str, location: str) -> None:  # CVE-2025-51480
    path = saved(folder, model_of(relu()))
    before = path.read_bytes()
    with pytest.raises(FormatError) as caught:
        codec.write(big_model(), path, external=location)
    assert caught.value.code == code
    assert path.read_bytes() == before
    assert (folder.parent / "secret").read_bytes() == bytes(16)
    assert not list(folder.rglob("*.tmp"))


def test_the_bytes_of_a_tensor_are_counted_without_reading_it() -> None:
    for dtype in DTYPES:
        expected = 0 if dtype == "string" else len(numpy_helper.from_array(sample(dtype)).raw_data)
        assert byte_size(ForeignTensor(dtype, sample(dtype))) == expected


# ---- what is refused


def bare(change: Callable[[ModelProto], Any], *nodes: onnx.NodeProto, **options: Any) -> ModelProto:
    proto = model_of(*(nodes or (relu(),)), **options)
    change(proto)
    return proto


def attribute_of(**fields: Any) -> ModelProto:
    node = relu(name="here")
    node.attribute.append(AttributeProto(**fields))
    return model_of(node)


def nested(depth: int) -> ModelProto:
    """Built in place: protobuf neither parses nor copies this."""
    model = model_of(relu())
    graph = model.graph
    for level in range(depth):
        node = graph.node.add(op_type="Deep", input=["x"], output=[f"t{level}"])
        attribute = node.attribute.add(name="body", type=AttributeProto.GRAPH)
        graph = attribute.g
        graph.output.add(name="x")
    return model


def unknown_type(kind: str) -> TypeProto:
    found = TypeProto()
    if kind == "map_type":
        found.map_type.key_type = TensorProto.INT64
    elif kind == "float keys":
        found.map_type.key_type = FLOAT
        found.map_type.value_type.tensor_type.elem_type = FLOAT
    elif kind == "sparse_tensor_type":
        found.sparse_tensor_type.elem_type = FLOAT
    else:
        found.sequence_type.SetInParent()
    return found


def branching(*nodes: onnx.NodeProto, output: str = "t") -> onnx.NodeProto:
    return helper.make_node("If", ["x"], ["y"], then_branch=branch(*nodes, output=output))


def branch(*nodes: onnx.NodeProto, output: str) -> GraphProto:
    return helper.make_graph(list(nodes), "b", [], [helper.make_tensor_value_info(output, FLOAT, None)])


SHADOWED = helper.make_node("Loop", ["x"], ["y"], body=helper.make_graph([relu("x", "t")], "b", [value("x")], [value("t")]))
ONES = numpy_helper.from_array(np.ones(2), "w")
two = (relu("x", "a"), relu("a", "y"))
BAD_MODELS: list[tuple[str, ModelProto]] = [
    ("graph.dangling", model_of(relu("nowhere"))),
    ("graph.dangling", model_of(relu("x", "z"))),
    ("graph.dangling", model_of(branching(relu("lost", "t"), output="t"))),
    ("graph.dangling", model_of(branching(output="lost"))),
    ("graph.order", model_of(relu("a", "y"), relu("x", "a"))),
    ("graph.order", model_of(branching(relu("a", "t"), output="t"), relu("x", "a"))),
    ("graph.cycle", model_of(helper.make_node("Add", ["x", "b"], ["a"]), relu("a", "b"), relu("b", "y"))),
    ("graph.cycle", model_of(helper.make_node("Add", ["x", "y"], ["y"]))),
    ("graph.repeated", model_of(relu("x", "y"), relu("x", "y"))),
    ("graph.repeated", model_of(relu("x", "x"))),
    ("graph.repeated", model_of(helper.make_node("Split", ["x"], ["y", "y"]))),
    ("graph.repeated", model_of(relu(), inputs=[value("x"), value("x")])),
    ("graph.repeated", model_of(relu(), initializer=[ONES] * 2)),
    ("graph.repeated", model_of(relu("x", "w"), relu("w", "y"), initializer=[ONES])),
    ("graph.repeated", model_of(branching(relu("x", "x"), output="x"))),
    ("graph.repeated", model_of(SHADOWED)),
    ("graph.outputs", model_of(relu(), outputs=[])),
    ("proto.parse", bare(lambda m: m.ClearField("graph"))),
    ("name.missing: a declared value", model_of(relu(), inputs=[value("x"), value("")])),
    ("name.missing: an initializer", model_of(relu(), initializer=[numpy_helper.from_array(np.ones(2))])),
    ("value.repeated", model_of(*two, value_info=[value("a", [2]), value("a", [3])])),
    ("type.element", bare(lambda m: m.graph.input[0].ClearField("type"))),
    ("type.element", bare(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 77))),
    ("type.element", bare(lambda m: m.graph.output[0].type.CopyFrom(unknown_type("sequence_type")))),
    ("type.element", bare(lambda m: m.graph.output[0].type.CopyFrom(unknown_type("map_type")))),
    ("type.element", bare(lambda m: m.graph.output[0].type.CopyFrom(unknown_type("float keys")))),
    ("type.kind", bare(lambda m: m.graph.output[0].type.CopyFrom(unknown_type("sparse_tensor_type")))),
    ("name.missing: a node", model_of(helper.make_node("", ["x"], ["y"]))),
    ("opset.missing", model_of(helper.make_node("Thing", ["x"], ["y"], domain="my.domain"))),
    ("opset.missing", bare(lambda m: m.ClearField("opset_import"))),
    ("graph.repeated", model_of(relu(), imports=[helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx", 14)])),
    ("opset.version", model_of(relu(), opset=0)),
    ("opset.version", model_of(relu(), opset=-1)),
    ("opset.version", model_of(relu(), opset=10_000)),
    ("ir.version", bare(lambda m: m.ClearField("ir_version"))),
    ("ir.version", bare(lambda m: setattr(m, "ir_version", -1))),
    ("ir.version", bare(lambda m: setattr(m, "ir_version", 10_000))),
    ("training.info", bare(lambda m: m.training_info.add())),
    ("metadata.repeated", bare(lambda m: m.metadata_props.extend([onnx.StringStringEntryProto(key="a")] * 2))),
    ("name.missing: an attribute", attribute_of(type=2, i=1)),
    ("attribute.type", attribute_of(name="a", i=1)),
    ("attribute.type", attribute_of(name="a", type=2, f=1.0)),
    ("attribute.type", attribute_of(name="a", type=2, i=1, ints=[1])),
    ("attribute.type", attribute_of(name="a", type=4)),
    ("attribute.type", attribute_of(name="a", type=5)),
    ("attribute.type", attribute_of(name="a", type=6, ints=[1])),
    ("text.encoding", attribute_of(name="a", type=3, s=b"\xff")),
    ("text.encoding", attribute_of(name="a", type=8, strings=[b"a", b"\xff"])),
    ("attribute.reference", attribute_of(name="a", type=2, ref_attr_name="b")),
    ("attribute.repeated", bare(lambda m: m.graph.node[0].attribute.extend([AttributeProto(name="a", type=2, i=1)] * 2))),
    ("limits.exceeded", nested(80)),
    ("proto.unknown", bare(lambda m: m.graph.node[0].MergeFromString(b"\xfa\x3f\x01a"))),
    ("proto.unknown", bare(lambda m: m.graph.node[0].attribute.add().MergeFromString(b"\xa0\x01\x63"))),
    ("proto.text", bare(lambda m: m.graph.node[0].MergeFromString(b"\x1a\x01\xff"))),
    ("proto.text", bare(lambda m: m.graph.node[0].MergeFromString(b"\x0a\x01\xff"))),
    ("proto.text", bare(lambda m: m.graph.initializer.add().MergeFromString(b"\x42\x01\xff"))),
]


@pytest.mark.parametrize(("code", "proto"), BAD_MODELS, ids=[f"{number}-{code}" for number, (code, _) in enumerate(BAD_MODELS)])
def test_bad_models_are_refused_with_their_code(tmp_path: Path, code: str, proto: ModelProto) -> None:
    assert refuse(proto, code)
    if code != "limits.exceeded":
        path = tmp_path / "bad.onnx"
        path.write_bytes(proto.SerializeToString())
        assert all(item.file == str(path) for item in refuse(path, code).diagnostics)


def test_all_independent_faults_are_in_one_error() -> None:
    first = relu("x", "a", name="first")
    first.attribute.append(AttributeProto(name="v", type=3, s=b"\xff"))
    second = helper.make_node("Thing", ["nowhere"], ["y"], name="second", domain="my.domain")
    error = refuse(model_of(first, second, initializer=[tensor(raw_data=b"1")]), "text.encoding")
    assert [(item.code, item.node) for item in error.diagnostics] == [
        ("data.size", "initializer 't'"),
        ("text.encoding", "first"),
        ("opset.missing", "second"),
        ("graph.dangling", "second"),
    ]


def test_a_node_without_a_name_is_named_by_its_place() -> None:
    error = refuse(model_of(relu("x", "a"), helper.make_node("Concat", ["lost"], ["y"], axis=0)), "graph.dangling")
    assert error.node == "node 1 (Concat)"


def test_a_cycle_names_its_nodes() -> None:
    error = refuse(
        model_of(helper.make_node("Add", ["x", "b"], ["a"], "one"), relu("a", "b", name="two"), relu("b", "y", name="three")),
        "graph.cycle",
    )
    assert "one -> two" in error.message
    assert "three" not in error.message


# ---- functions

ONE = [helper.make_opsetid("", 20)]
BOTH = [*ONE, helper.make_opsetid("f", 1)]


def function(
    name: str, inputs: list[str], outputs: list[str], nodes: list[onnx.NodeProto], opset: int = 20, **options: Any
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, inputs, outputs, nodes, imports, **options)


def referring(kind: str, inputs: list[str], outputs: list[str], attribute: str, to: str, type: int) -> onnx.NodeProto:
    node = helper.make_node(kind, inputs, outputs)
    node.attribute.add(name=attribute, ref_attr_name=to, type=type)
    return node


def call(name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, inputs, outputs, domain="f", **attributes)


def function_models() -> Iterator[tuple[str, ModelProto]]:
    def model(*nodes: onnx.NodeProto, functions: list[onnx.FunctionProto]) -> ModelProto:
        return model_of(*nodes, functions=functions, imports=BOTH)

    leaky = function("Leaky", ["a"], ["b"], [referring("LeakyRelu", ["a"], ["b"], "alpha", "slope", 1)], attributes=["slope"])
    default = function(
        "Leaky",
        ["a"],
        ["b"],
        [referring("LeakyRelu", ["a"], ["b"], "alpha", "slope", 1)],
        attribute_protos=[helper.make_attribute("slope", 0.25)],
    )
    outer = function(
        "Outer",
        ["a"],
        ["b"],
        [referring_call("Leaky", ["a"], ["t"], "slope", "s"), relu("t", "x"), call("Leaky", ["x"], ["b"])],
        attributes=["s"],
    )
    yield "names", model(call("Leaky", ["x"], ["b"], slope=0.5), call("Leaky", ["b"], ["y"], slope=0.125), functions=[leaky])
    yield "absent", model(call("Leaky", ["x"], ["y"]), functions=[leaky])
    yield "default", model(call("Leaky", ["x"], ["y"]), functions=[default])
    yield "given", model(call("Leaky", ["x"], ["y"], slope=0.5), functions=[default])
    yield "nested", model(call("Outer", ["x"], ["t"], s=0.5), call("Outer", ["t"], ["y"]), functions=[outer, default])
    choose = function(
        "Choose",
        ["c", "a"],
        ["b"],
        [
            helper.make_node(
                "If",
                ["c"],
                ["b"],
                then_branch=branch(relu("a", "x"), call("Leaky", ["x"], ["y"]), output="y"),
                else_branch=branch(helper.make_node("Neg", ["a"], ["y"]), output="y"),
            )
        ],
    )
    truth = numpy_helper.from_array(np.array(True), "c")
    chosen = model(call("Choose", ["c", "x"], ["y"]), functions=[choose, default])
    chosen.graph.initializer.append(truth)
    yield "subgraph", chosen
    inside = model(
        helper.make_node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch(call("Leaky", ["x"], ["t"]), output="t"),
            else_branch=branch(relu("x", "u"), output="u"),
        ),
        functions=[default],
    )
    inside.graph.initializer.append(truth)
    yield "called in a subgraph", inside
    yield (
        "optional",
        model(
            call("Clipped", ["x", "", ""], ["y"]),
            functions=[function("Clipped", ["a", "low", "high"], ["b"], [helper.make_node("Clip", ["a", "low", "high"], ["b"])])],
        ),
    )
    yield (
        "fewer",
        model(call("Two", ["x"], ["y", ""]), functions=[function("Two", ["a"], ["b", "c"], [relu("a", "b"), relu("b", "c")])]),
    )


def referring_call(name: str, inputs: list[str], outputs: list[str], attribute: str, to: str) -> onnx.NodeProto:
    node = call(name, inputs, outputs)
    node.attribute.add(name=attribute, ref_attr_name=to, type=AttributeProto.FLOAT)
    return node


FUNCTION_MODELS = list(function_models())


@pytest.mark.parametrize("proto", [proto for _, proto in FUNCTION_MODELS], ids=[name for name, _ in FUNCTION_MODELS])
def test_inlined_functions_give_the_results_of_calls(proto: ModelProto) -> None:
    runtime = pytest.importorskip("onnxruntime")
    x = {"x": np.array([-2.0, 3.0], np.float32)}
    back = onnx.load_model_from_string(codec.write(codec.read(proto)) or b"")
    checker.check_model(back)
    assert not back.functions
    expected = runtime.InferenceSession(proto.SerializeToString()).run(None, x)
    np.testing.assert_array_equal(ReferenceEvaluator(back).run(None, x), expected)


@pytest.mark.parametrize("outputs", [["a"], ["b", "b"], ["a", "b"]])
def test_functions_may_return_an_input_and_one_value_twice(outputs: list[str]) -> None:
    names = ["y", "z"][: len(outputs)]
    proto = model_of(
        call("F", ["x"], names),
        outputs=[value(name) for name in names],
        functions=[function("F", ["a"], outputs, [relu("a", "b")])],
        imports=BOTH,
    )
    x = np.array([-2.0, 3.0], np.float32)
    back = onnx.load_model_from_string(codec.write(codec.read(proto)) or b"")
    found = ReferenceEvaluator(back).run(None, {"x": x})
    meant = {"a": x, "b": np.maximum(x, 0)}
    for array, name in zip(found, outputs, strict=True):
        np.testing.assert_array_equal(array, meant[name])


def test_the_opset_of_a_function_decides_the_versions_of_its_nodes() -> None:
    old = function("Old", ["a"], ["b"], [helper.make_node("Concat", ["a", "a"], ["b"], axis=0)], opset=12)
    model = codec.read(model_of(call("Old", ["x"], ["y"]), functions=[old], imports=ONE))
    assert [node.version for node in model.graph.nodes] == [11]
    with pytest.raises(UnsupportedError) as caught:
        codec.write(model)
    assert caught.value.code == "opset.version"


def test_symbols_of_a_function_are_new_at_each_call() -> None:
    inner = function("F", ["a"], ["b"], [relu("a", "t"), relu("t", "b")])
    inner.value_info.append(value("t", ["n", None]))
    model = codec.read(
        model_of(
            call("F", ["x"], ["u"]),
            call("F", ["u"], ["y"]),
            inputs=[value("x", ["n", 3])],
            functions=[inner],
            imports=ONE,
        )
    )
    shapes = [item.type.shape for item in model.graph.values.values()]
    assert len({symbolic.name_of(size) for shape in shapes for size in shape or ()} | {"n"}) == 5


def test_outputs_keep_their_names_where_subgraphs_have_them_too(tmp_path: Path) -> None:
    branches = []
    for operator in ("Relu", "Negative"):
        with dovetail.Builder(operator) as branch:
            branch.output("y", branch.apply(operator, branch.input("x", "f32", (2,))))
        branches.append(branch.graph)
    with dovetail.Builder("m") as b:
        flag, x = b.input("flag", "boolean", ()), b.input("x", "f32", (2,))
        y = b.If(flag, x, then_branch=branches[0], else_branch=branches[1], outputs=1)[0]
        b.output("z", b.Relu(y))
        b.output("y", b.Negative(y))
    for suffix in (".xml", ".onnx"):
        path = tmp_path / f"model{suffix}"
        dovetail.save(b.model, path)
        again = dovetail.load(path)
        assert [value.name for value in again.outputs] == ["z", "y"]
        found = dovetail.run(again, {"x": np.float32([-1, 2]), "flag": np.array(True)})
        np.testing.assert_array_equal(found["y"], [0, -2])
    checker.check_model(onnx.load(path), full_check=True)


def test_names_inside_a_function_do_not_collide_with_names_outside() -> None:
    inner = function("F", ["a"], ["b"], [relu("a", "t"), relu("t", "b")])
    proto = model_of(
        call("F", ["x"], ["u"]),
        relu("u", "u/t"),
        call("F", ["u/t"], ["u/t.1"]),
        relu("u/t.1", "y"),
        functions=[inner],
        imports=ONE,
    )
    codec.read(proto)


def bomb(levels: int) -> ModelProto:
    found = [function("F0", ["a"], ["b"], [relu("a", "b")])]
    for level in range(1, levels):
        names = ["a", *(f"t{number}" for number in range(9)), "b"]
        found.append(function(f"F{level}", ["a"], ["b"], [call(f"F{level - 1}", [x], [y]) for x, y in pairwise(names)]))
    return model_of(call(f"F{levels - 1}", ["x"], ["y"]), functions=found)


def chain(levels: int) -> ModelProto:
    found = [function("F0", ["a"], ["b"], [relu("a", "b")])]
    found += [function(f"F{level}", ["a"], ["b"], [call(f"F{level - 1}", ["a"], ["b"])]) for level in range(1, levels)]
    return model_of(call(f"F{levels - 1}", ["x"], ["y"]), functions=found)


def called(
    *nodes: onnx.NodeProto, outputs: list[str] | None = None, attributes: list[str] | None = None, **given: Any
) -> ModelProto:
    """Return a model that calls F(a) -> b once, F made of ``nodes``."""
    inner = function("F", ["a"], outputs or ["b"], list(nodes), attributes=attributes)
    node = call("F", given.pop("xs", ["x"]), given.pop("ys", ["y"]), **given)
    return model_of(node, functions=[inner])


TWICE = model_of(call("F", ["x"], ["y"]), functions=[function("F", ["a"], ["b"], [relu("a", "b")])] * 2)
MUTUAL = model_of(
    call("F", ["x"], ["y"]),
    functions=[
        function("F", ["a"], ["b"], [call("G", ["a"], ["b"])]),
        function("G", ["a"], ["b"], [call("F", ["a"], ["b"])]),
    ],
)
SLOPED = referring("LeakyRelu", ["a"], ["b"], "alpha", "s", AttributeProto.FLOAT)
BAD_FUNCTIONS: list[tuple[str, ModelProto]] = [
    ("graph.cycle", called(call("F", ["a"], ["b"]))),
    ("graph.cycle", MUTUAL),
    ("limits.exceeded: function_nodes", bomb(12)),
    ("limits.exceeded: levels deep", chain(2000)),
    ("node.inputs", called(relu("a", "b"), xs=["x", "x"])),
    ("node.inputs", called(relu("a", "b"), ys=["y", "z"])),
    ("graph.dangling", called(outputs=["a"], xs=[""])),
    ("graph.repeated", TWICE),
    ("attribute.unknown", called(relu("a", "b"), extra=1)),
    ("attribute.reference", called(SLOPED)),
    ("attribute.type", called(SLOPED, attributes=["s"], s=1)),
    ("graph.dangling", called(relu("x", "b"))),
    ("graph.dangling", called(relu("a", "b"), outputs=["c"])),
    ("graph.repeated", called(relu("a", "b"), relu("a", "b"))),
    ("graph.repeated", called(relu("a", "a"), relu("a", "b"))),
    ("graph.order", called(relu("t", "b"), relu("a", "t"))),
    ("opset.missing", called(helper.make_node("Thing", ["a"], ["b"], domain="other"))),
]


@pytest.mark.parametrize(
    ("code", "proto"), BAD_FUNCTIONS, ids=[f"{number}-{code}" for number, (code, _) in enumerate(BAD_FUNCTIONS)]
)
def test_bad_functions_are_refused_in_bounded_time(code: str, proto: ModelProto) -> None:
    refuse(proto, code)


# ---- what cannot be written


def unwritable(change: Callable[[ForeignModel], Any]) -> DovetailError:
    model = codec.read(model_of(relu(name="here")))
    change(model)
    with pytest.raises(DovetailError) as caught:
        codec.write(model)
    return caught.value


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("opset.version", lambda m: setattr(m.graph.nodes[0], "version", 13)),
        ("opset.missing", lambda m: setattr(m.graph.nodes[0], "domain", "other")),
        ("attribute.value", lambda m: m.graph.nodes[0].attributes.update(a=object())),
        ("attribute.value", lambda m: m.graph.nodes[0].attributes.update(a=[1, 2.5])),
        ("attribute.value", lambda m: m.graph.nodes[0].attributes.update(a=[])),
        ("attribute.value", lambda m: m.graph.nodes[0].attributes.update(a=[[1]])),
        ("attribute.range", lambda m: m.graph.nodes[0].attributes.update(a=2**63)),
        ("attribute.range", lambda m: m.graph.nodes[0].attributes.update(a=1e300)),
        ("text.encoding", lambda m: m.graph.nodes[0].attributes.update(a="\ud800")),
        ("dtype.unknown", lambda m: m.graph.constants.update(w=ForeignTensor(dtypes.dtype("nf4"), np.zeros(2, np.uint8)))),
        ("dtype.unknown", lambda m: m.graph.constants.update(w=ForeignTensor(dtypes.f32, np.zeros(2)))),
        ("dtype.unknown", lambda m: setattr(m.graph.inputs[0], "type", Tensor(dtypes.dtype("u1"), ()))),
        ("graph.dangling", lambda m: setattr(m.graph.nodes[0], "inputs", ["lost"])),
        ("graph.repeated", lambda m: m.graph.nodes.append(m.graph.nodes[0])),
    ],
)
def test_models_that_onnx_cannot_express_are_refused(code: str, change: Callable[[ForeignModel], Any]) -> None:
    assert unwritable(change).code == code


def test_all_unsupported_nodes_are_listed(tmp_path: Path) -> None:
    model = codec.read(model_of(relu("x", "a", name="one"), relu("a", "y", name="two")))
    for node in model.graph.nodes:
        node.version = 6
    with pytest.raises(UnsupportedError) as caught:
        codec.write(model, tmp_path / "m.onnx")
    assert [item.node for item in caught.value.diagnostics] == ["one", "two"]
    assert not list(tmp_path.iterdir())


def test_constants_that_are_no_inputs_need_a_newer_ir_version() -> None:
    model = codec.read(model_of(relu()))
    model.metadata["ir_version"] = 3
    assert onnx.load_model_from_string(codec.write(model) or b"").ir_version == 3
    model.graph.constants["w"] = ForeignTensor(dtypes.f32, np.zeros(2, np.float32))
    assert onnx.load_model_from_string(codec.write(model) or b"").ir_version == 4
    model.graph.constants["v"] = ForeignTensor(dtypes.dtype("i4"), np.zeros(2, ml_dtypes.int4))
    assert onnx.load_model_from_string(codec.write(model) or b"").ir_version == 10


def test_a_model_from_elsewhere_gets_the_ir_version_of_its_opset() -> None:
    model = codec.read(model_of(relu()))
    model.metadata.clear()
    for opset, expected in ((9, 8), (20, 9), (21, 10)):
        model.versions[""] = opset
        model.graph.nodes[0].version = 6 if opset == 9 else 14
        assert onnx.load_model_from_string(codec.write(model) or b"").ir_version == expected


# ---- hostile bytes


SEED = everything().SerializeToString(deterministic=True)
SMALL = [proto.SerializeToString() for _, proto in FUNCTION_MODELS] + [SEED]


def survives(data: bytes) -> None:
    """Read a value, which can be written, or raise a DovetailError."""
    try:
        model = codec.read(data)
        codec.write(model)
    except DovetailError as error:
        assert all(item.code.count(".") == 1 for item in error.diagnostics)


@pytest.mark.parametrize("data", [b"", b"\0", b"onnx", b"\xff" * 100, b"PK\3\4" + bytes(100), b"<?xml version='1.0'?>"])
def test_bytes_that_are_no_model_are_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        codec.read(data)


def test_every_truncation_is_a_value_or_an_error() -> None:
    for end in range(len(SEED)):
        survives(SEED[:end])


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(SMALL), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8)
)
def test_any_changed_bytes_are_a_value_or_an_error(data: bytes, changes: list[tuple[float, int]]) -> None:
    changed = bytearray(data)
    for place, byte in changes:
        changed[int(place * len(data))] = byte
    survives(bytes(changed))


@settings(max_examples=200, deadline=2000)
@given(st.sampled_from(SMALL), st.floats(0, 1), st.floats(0, 1), st.binary(max_size=16))
def test_any_spliced_bytes_are_a_value_or_an_error(data: bytes, first: float, second: float, piece: bytes) -> None:
    start, end = sorted((int(first * len(data)), int(second * len(data))))
    survives(data[:start] + piece + data[end:])
    survives(data[:end] + piece + data[start:])


@settings(max_examples=200, deadline=2000)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    survives(data)


def test_importing_the_codec_does_not_import_onnx() -> None:
    code = "import sys, dovetail.formats.onnx.codec; sys.exit('onnx' in sys.modules or 'google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_long_chain_is_read_in_linear_time() -> None:
    nodes = [relu("x" if index == 0 else f"t{index}", f"t{index + 1}") for index in range(20_000)]
    model = codec.read(model_of(*nodes, outputs=[value("t20000")]))
    assert len(model.graph.nodes) == 20_000
