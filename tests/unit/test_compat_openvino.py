"""dovetail.compat.openvino against openvino: the same expressions and programs in both, with the same outcome."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import pickle
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail.compat.openvino as ours
import openvino_coverage
import openvino_programs
from dovetail.ir.host import native_core

theirs = pytest.importorskip("openvino")
MODULES = {"dovetail": ours, "openvino": theirs}
F32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
"""Properties of both: OpenVINO computes in bf16 by default where the processor has units for it."""
ERRORS = (ArithmeticError, KeyError, IndexError, AttributeError, TypeError, RuntimeError, ValueError)


def outcome(work: Callable[[], Any]) -> Any:
    """Return a value as plain data, or the class of an error; and the texts of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = plain(work())
        except ERRORS as error:
            result = next(kind.__name__ for kind in ERRORS if isinstance(error, kind))
    # JAX warns of forks in any process that has imported it.
    texts = [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
    return result, [text for text in texts if "fork" not in text]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (
            value.dtype.str,
            value.shape,
            np.round(value.astype(float), 4).tolist() if value.dtype.kind in "fiub" else value.tolist(),
        )
    if hasattr(value, "to_tuple"):
        return [plain(array) for array in value.to_tuple()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, dict):
        return sorted((repr(key), plain(item)) for key, item in value.items())
    # The order of the names of a port is that of a set.
    return re.sub(r"names\[(.*?)\]", lambda found: f"names[{sorted(found[1].split(', '))}]", repr(value))


def table(text: str) -> list[str]:
    """Return the expressions of a text, one on each line; an indented line continues the one before."""
    return re.sub(r"\n  +", " ", text.strip()).splitlines()


def assert_same(expression: str, names: Callable[[Any], dict[str, Any]]) -> None:
    found = {}
    for name, module in MODULES.items():
        space = {"ov": module, "np": np, **names(module)}
        found[name] = outcome(lambda space=space: eval(expression, space))
    assert found["dovetail"] == found["openvino"]


TYPES = "dynamic boolean bf16 f16 f32 f64 i4 i8 i16 i32 i64 u1 u2 u3 u4 u6 u8 u16 u32 u64 nf4 f4e2m1 f8e4m3 f8e5m2 f8e8m0 string"
OF_TYPE = (
    "(t, t.to_string(), t.type_name, t.get_type_name(), t.bitwidth, t.size, t.get_size(), t.is_real(), t.is_signed(),"
    " t.is_quantized(), t.is_integral_number(), t.is_static(), t.is_dynamic(), t.real, t.signed, t.quantized, hash(t) == hash(t))"
)


@pytest.mark.parametrize("name", TYPES.split())
def test_types(name: str) -> None:
    def names(module: Any) -> dict[str, Any]:
        return {"t": getattr(module.Type, name)}

    assert_same(OF_TYPE, names)
    if name != "string":
        assert_same("t.to_dtype()", names)


VALUES = table("""
ov.Type(np.float32), ov.Type(np.dtype("int64")), ov.Type(float), ov.Type(bool), ov.Type(str)
ov.Type("float32") == ov.Type.f32, ov.Type.f32 == np.float32, ov.Type.f32 == "f32", ov.Type.f32 != ov.Type.f32
ov.Type("zz")
ov.Type()
ov.Type.f32.compatible(ov.Type.dynamic), ov.Type.f32.merge(ov.Type.dynamic)
ov.Type.no_such_type
ov.Shape([1, 2, 3])[1:], ov.Shape([1, 2])[-1], ov.Shape("[1,2]"), ov.Shape(), ov.Shape(np.array([4, 5]))
ov.Shape([1, 2]) == [1, 2], ov.Shape([1, 2]) == (1, 2), [1, 2] == ov.Shape([1, 2]), ov.Shape([1]) == ov.Shape([2])
tuple(ov.Shape([1, 2])), len(ov.Shape([1, 2])), 2 in ov.Shape([1, 2]), str(ov.Shape([1, 2])), np.zeros(ov.Shape([1, 2]))
ov.Shape([-1])
hash(ov.Shape([1]))
ov.Shape([1]) + [1]
ov.Shape([1, 2]) == ov.PartialShape([1, 2]), ov.PartialShape([1, 2]) == ov.Shape([1, 2])
[ov.Dimension(*d) for d in [(), (3,), (-1,), (1, 8), (-1, 8), (2, -1), ("?",), ("1..8",), ("5",), ("..8",), ("2..",)]]
[(d.is_static, d.is_dynamic, d.min_length, d.max_length, str(d)) for d in (ov.Dimension(3), ov.Dimension(), ov.Dimension(1,
  8))]
ov.Dimension(3).get_length(), len(ov.Dimension(3)), ov.Dimension(3) == 3, ov.Dimension() == -1, ov.Dimension.dynamic()
ov.Dimension().get_length()
hash(ov.Dimension(3))
int(ov.Dimension(3))
ov.Dimension(1, 8).compatible(ov.Dimension(3)), ov.Dimension(3).refines(ov.Dimension(1, 8)), ov.Dimension(1,
  8).relaxes(ov.Dimension(3))
[ov.PartialShape(p) for p in ([1, 2], [-1, 3], [1, (2, 5)], [1, "?"], [1, "2..5"], "1,2,?", "...", "?", [], "[]", (1, 2), [1,
  [2, 5]])]
ov.PartialShape([ov.Dimension(1, 3), 4]), ov.PartialShape(ov.Shape([1, 2]))
ov.PartialShape("dynamic")
ov.PartialShape([1, None])
(lambda p: (p.is_static, p.is_dynamic, p.rank, p[0], p[-1], p[1:], len(p), list(p)))(ov.PartialShape([-1, 3, (2, 5)]))
(lambda p: (p.get_min_shape(), p.get_max_shape(), p.get_dimension(1), str(p), p.to_string()))(ov.PartialShape([-1, 3, (2,
  5)]))
ov.PartialShape([-1]).to_shape()
ov.PartialShape([1, 2]).to_shape(), ov.PartialShape([1, 2]).get_shape()
ov.PartialShape([1, 2]) == [1, 2], ov.PartialShape([-1]) == ov.PartialShape([-1]), ov.PartialShape([1, 2]) == "1,2"
ov.PartialShape.dynamic(), ov.PartialShape.dynamic().rank, ov.PartialShape.dynamic().is_dynamic
len(ov.PartialShape.dynamic())
ov.PartialShape([1])[9]
(lambda p: (p.__setitem__(0, 7), p.__setitem__(1, ov.Dimension(1, 4)), p))(ov.PartialShape([-1, 3]))
ov.PartialShape([1]).__setitem__(0, "?")
ov.PartialShape([-1, 2]).compatible(ov.PartialShape([3, 2])), ov.PartialShape([3]).refines(ov.PartialShape([-1]))
[ov.Layout(l) for l in ("NCHW", "nchw", "[N,C,H,W]", "N...C", "...", "", "N??C", "[time,n]", "NCHW...", "N", "[n,?,?,c]",
  "abc", "[batch,channels]")]
ov.Layout(), ov.Layout.scalar(), ov.Layout("...").empty, ov.Layout("N").empty, str(ov.Layout("NC"))
ov.Layout("NN")
ov.Layout("[]")
ov.Layout("NC HW")
ov.Layout("[N,C")
ov.PartialShape("[1,2")
ov.PartialShape("1,2]")
ov.Layout("NCHW").has_name("n"), ov.Layout("NCHW").get_index_by_name("W"), ov.Layout("N...C").get_index_by_name("C")
ov.Layout("NCHW").get_index_by_name("D")
ov.Layout("NC") == "NC", ov.Layout("NC") == ov.Layout("[n,c]"), ov.Layout("NC") != ov.Layout("CN")
ov.layout_helpers.batch_idx(ov.Layout("NCHW")), ov.layout_helpers.height_idx(ov.Layout("...HW"))
ov.layout_helpers.has_depth(ov.Layout("NCHW")), ov.layout_helpers.has_batch(ov.Layout("NCHW"))
ov.layout_helpers.depth_idx(ov.Layout("NCHW"))
(lambda t: (t, t.shape, t.data, t.element_type, t.size, t.get_size(), t.byte_size,
  t.get_shape()))(ov.Tensor(np.arange(6.0).reshape(2, 3)))
tuple(ov.Tensor(np.zeros((2, 3), "f4")).strides), ov.Tensor(np.zeros(3)).is_continuous()
ov.Tensor(ov.Type.f32, ov.Shape([2, 2])).shape, ov.Tensor(np.float32, [2, 2]).element_type, ov.Tensor(type=ov.Type.u8,
  shape=ov.Shape([3])).shape
ov.Tensor([1, 2, 3]).element_type, ov.Tensor([1.0]).element_type, ov.Tensor(np.ones(2, bool)).element_type
ov.Tensor(np.float32(3))
ov.Tensor(3.0)
ov.Tensor(np.arange(6, dtype="u1"), [12], ov.Type.u4).shape, ov.Tensor(ov.Type.u4, [10]).data.shape, ov.Tensor(ov.Type.u4,
  [10]).byte_size
ov.Tensor(np.arange(6.0), [2, 3]).data
(lambda t: (setattr(t, "shape", [3, 2]), t.data, setattr(t, "shape", [1, 2]), t.data))(ov.Tensor(np.arange(6.0).reshape(2,
  3)))
(lambda t: (setattr(t, "shape", [4, 4]), t.shape))(ov.Tensor(np.zeros((2, 2))))
setattr(ov.Tensor(np.zeros((2, 2)), shared_memory=True), "shape", [4, 4])
ov.Tensor(ov.Tensor(np.arange(12.0).reshape(3, 4)), [0, 1], [2, 3]).data
(lambda t: (ov.Tensor(np.ones((2, 2), "f4")).copy_to(t), t.data))(ov.Tensor(ov.Type.f32, [1]))
(lambda t: (t.copy_from(np.ones((3, 2), "f4")), t.data))(ov.Tensor(ov.Type.f32, [2, 2]))
ov.Tensor(ov.Type.f32, [2]).copy_from(np.ones(2))
(lambda a: (lambda t: (a.__setitem__(0, 7), t.data))(ov.Tensor(a, shared_memory=True)))(np.zeros(2))
(lambda a: (lambda t: (a.__setitem__(0, 7), t.data))(ov.Tensor(a)))(np.zeros(2))
ov.Tensor(np.ones((4, 4))[:, ::2], shared_memory=True)
ov.Tensor(np.ones((4, 4))[:, ::2]).shape
ov.Tensor(np.ones(2, np.complex64))
ov.Tensor()
setattr(ov.Tensor(ov.Type.string, [2]), "str_data", ["x"])
setattr(ov.Tensor(ov.Type.string, [2]), "bytes_data", np.array([b"x"]))
(lambda t: (setattr(t, "str_data", [["x", "y"]]), t.str_data))(ov.Tensor(ov.Type.string, [2]))
ov.Tensor(ov.Tensor(np.ones((3, 4))), [0, 1], [2, 9])
ov.Tensor(ov.Tensor(np.ones((3, 4))), [0], [2])
ov.Tensor(np.array(["ab", "c"])).str_data, ov.Tensor(["ab", "c"]).bytes_data, ov.Tensor(["a"]).element_type
ov.Tensor(ov.Type.bf16, [2]).data.dtype, ov.Tensor(ov.Type.f32, [0, 2]).data
setattr(ov.Tensor(ov.Type.f32, [1]), "data", 1)
ov.helpers.pack_data(np.arange(10, dtype="u1"), ov.Type.u4), ov.helpers.pack_data(np.array([1, 0, 1], "u1"), ov.Type.u1)
ov.helpers.unpack_data(np.array([0x21, 0xF3], "u1"), ov.Type.u4, [3]), ov.helpers.unpack_data(np.array([0x2F], "i1"),
  ov.Type.i4, [2])
ov.properties.cache_dir(), ov.properties.hint.performance_mode(), ov.properties.device.full_name == "FULL_DEVICE_NAME"
ov.properties.hint.PerformanceMode.THROUGHPUT, str(ov.properties.hint.PerformanceMode.LATENCY),
  int(ov.properties.log.Level.ERR)
ov.properties.hint.PerformanceMode.LATENCY == 1, ov.properties.streams.Num.AUTO.to_integer(),
  ov.properties.streams.Num(3).to_integer()
ov.properties.inference_num_threads(4)[0]
""")


@pytest.mark.parametrize("expression", VALUES)
def test_values(expression: str) -> None:
    if expression in ("ov.Tensor(3.0)", "ov.Tensor(np.float32(3))"):
        # OpenVINO asks whether a scalar is an image of Pillow.
        pytest.importorskip("PIL")
    assert_same(expression, lambda module: {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with models: image (one input and output), pair (two inputs, dynamic), and states."""
    path = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(0)
    with dovetail.Builder("image") as b:
        x = b.input("x", "f32", (1, 3, 8, 8))
        y = b.Relu(b.Conv(x, b.constant(random.standard_normal((4, 3, 3, 3)).astype("f4")), pads=[1, 1, 1, 1]))
        b.output("y", b.Softmax(b.Reshape(b.ReduceMean(y, [2, 3], keepdims=False), [-1, 4]), axis=1))
    dovetail.save(b.model, path / "image.onnx")
    with dovetail.Builder("pair") as b:
        p, q = b.input("p", "f32", ("n", 4)), b.input("q", "i64", (2,))
        b.output("product", b.MatMul(p, b.constant(random.standard_normal((4, 5)).astype("f4"))))
        b.output("twice", b.Add(q, q))
    dovetail.save(b.model, path / "pair.xml")
    ops = importlib.import_module("openvino.opset13")
    parameter = ops.parameter([1, 3], np.float32, name="x")
    parameter.output(0).get_tensor().set_names({"x"})
    total = ops.add(ops.read_value(ops.constant(np.zeros((1, 3), np.float32)), "sum", np.float32, [1, 3]), parameter)
    total.output(0).get_tensor().set_names({"y"})
    theirs.serialize(theirs.Model([ops.result(total)], [ops.assign(total, "sum")], [parameter], "states"), path / "states.xml")
    return path


MAKERS = {
    "model": 'core.read_model(folder / "image.onnx")',
    "pair": 'core.read_model(folder / "pair.xml")',
    "compiled": 'core.compile_model(folder / "image.onnx", "CPU", F32)',
    "compiled_pair": 'core.compile_model(folder / "pair.xml", "CPU", F32)',
    "request": "compiled.create_infer_request()",
    "request_pair": "compiled_pair.create_infer_request()",
}
ARRAYS = {"x": np.linspace(-1, 1, 192).reshape(1, 3, 8, 8).astype("f4"), "p": np.ones((3, 4), "f4"), "q": np.array([1, 2])}


def names_for(expression: str, folder: Path) -> Callable[[Any], dict[str, Any]]:
    """Return a function that makes the objects of a module that the expression names, and those that these need."""

    def names(module: Any) -> dict[str, Any]:
        space: dict[str, Any] = {"core": module.Core(), "folder": folder, "F32": F32}
        space.update({name: array.copy() for name, array in ARRAYS.items()})
        words = set(re.findall(r"\w+", expression))
        needed = words | {"compiled" for word in words & {"request"}} | {"compiled_pair" for word in words & {"request_pair"}}
        for name, maker in MAKERS.items():
            if name in needed:
                space[name] = eval(maker, dict(space))
        return space

    return names


OF_MODELS = table("""
model.inputs, model.outputs, compiled.inputs, compiled.outputs, pair.inputs, pair.outputs, compiled_pair.outputs
model.input().any_name, model.input("x").shape, model.input(0).partial_shape, model.input().element_type, model.output().names
(lambda port: (port.get_any_name(), port.get_names(), port.get_shape(), port.get_partial_shape(),
  port.get_element_type()))(compiled.input())
(lambda port: (port.index, port.get_index(), port.tensor.names, port.get_tensor().any_name))(compiled.output())
model.input(0) == model.input("x"), model.input(0) == model.output(0), len({model.input(0), model.input("x")})
compiled.input(0) == compiled.input("x"), hash(compiled.output(0)) == hash(compiled.output())
model.input("no")
model.input(7)
pair.input()
pair.output()
compiled.input("no")
compiled.input(7)
pair.input("p").shape
pair.is_dynamic(), pair.dynamic, model.is_dynamic(), pair.input("q").partial_shape.is_static
model.input().node.get_type_name(), model.input().node.get_friendly_name(), model.output().node.get_type_name()
[(node.friendly_name, node.get_output_size(), node.get_output_shape(0)) for node in model.get_parameters()]
[node.get_friendly_name() for node in pair.get_results()], pair.get_output_size(), pair.get_output_partial_shape(0)
sorted(node.get_type_name() for node in pair.get_ordered_ops())
sorted({node.get_type_name() for node in model.get_ops()} & {"Convolution", "Relu", "Parameter", "Result", "Constant"})
[[value.get_node().get_type_name() for value in node.input_values()] for node in pair.get_ops() if node.get_type_name() ==
  "MatMul"]
pair.friendly_name, pair.get_friendly_name(), (setattr(pair, "friendly_name", "other"), pair.friendly_name)
(model.reshape([2, 3, 8, 8]), model.input().shape, model.output().shape)
(model.reshape([-1, 3, (8, 16), 8]), model.input().partial_shape, model.output().partial_shape, model.is_dynamic())
(model.reshape("?,3,8..16,8"), model.input().partial_shape)
(model.reshape(ov.PartialShape([1, 3, 10, 10])), model.input().shape)
(model.reshape({"x": [1, 3, 10, 8]}), model.input().shape), (model.reshape({0: [4, 3, 8, 8]}), model.output().shape)
(model.reshape({model.input(): [5, 3, 8, 8]}), model.output().shape)
(pair.reshape({"p": [7, 4], "q": [3]}), pair.outputs)
model.reshape({"no": [1, 3, 8, 8]})
model.reshape({7: [1, 3, 8, 8]})
model.reshape({1.5: [1, 3, 8, 8]})
model.reshape([1, 4, 8, 8])
pair.reshape([7, 4])
(model.reshape({port: (lambda s: (s.__setitem__(0, -1), s)[1])(port.partial_shape) for port in model.inputs}), model.inputs)
ov.get_batch(model)
(model.get_parameters()[0].set_layout(ov.Layout("NCHW")), ov.get_batch(model), ov.set_batch(model, 5), model.input().shape)
(ov.layout_helpers.set_layout(model.input(), ov.Layout("N...")), ov.layout_helpers.get_layout(model.input()),
  model.input().node.layout)
(model.get_parameters()[0].set_layout(ov.Layout("NCHW")), ov.set_batch(model, -1), model.input().partial_shape,
  ov.get_batch(model))
(lambda copy: (copy.reshape([2, 3, 8, 8]), model.input().shape, copy.input().shape))(model.clone())
__import__("copy").copy(model)
type(__import__("copy").deepcopy(model)).__name__
core.available_devices, core.get_available_devices(), core.get_property("CPU", "EXECUTION_DEVICES"),
  core.get_property("CACHE_DIR")
core.get_property("CPU", "RANGE_FOR_ASYNC_INFER_REQUESTS"), core.get_property("CPU", "NUM_STREAMS"), core.get_property("CPU",
  "PERF_COUNT")
core.get_property("CPU", "PERFORMANCE_HINT"), core.get_property("CPU", "INFERENCE_NUM_THREADS"), core.get_property("CPU",
  "CPU_DENORMALS_OPTIMIZATION")
core.get_property("CPU", "NO")
core.get_property("NO")
core.get_property("NO", "NUM_STREAMS")
(core.get_property("CPU", "NUM_STREAMS"), core.set_property("CPU", {"NO": 1}))
(core.set_property("CPU", {"NUM_STREAMS": 1}), core.get_property("CPU", "NUM_STREAMS"))
(core.set_property("CPU", ov.properties.inference_num_threads(1)), core.get_property("CPU",
  ov.properties.inference_num_threads))
(core.set_property({ov.properties.cache_dir: "plans"}), core.get_property("CACHE_DIR"), core.get_property("CPU", "CACHE_DIR"))
core.compile_model(model, "CPU", {"NO": 1})
core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "NO"})
core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": -1})
core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "i8"})
core.compile_model(model, "CPU", {"NUM_STREAMS": "x"})
core.compile_model(model, "NO")
core.compile_model(model, "CPU.0")
core.compile_model("no.onnx")
core.read_model("no.xml")
core.read_model(b"no")
[core.compile_model(model, device).input().any_name for device in ("CPU", "AUTO", "AUTO:CPU", "HETERO:CPU", "MULTI:CPU")]
core.read_model((folder / "image.onnx").read_bytes()).inputs
core.read_model((folder / "pair.xml").read_bytes(), (folder / "pair.bin").read_bytes()).inputs
core.read_model(folder / "pair.xml", folder / "pair.bin").outputs, core.read_model(str(folder / "image.onnx")).outputs
[compiled.get_property(key) for key in ("NUM_STREAMS", "INFERENCE_NUM_THREADS", "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
  "EXECUTION_DEVICES")]
[compiled.get_property(key) for key in ("PERFORMANCE_HINT", "PERF_COUNT", "PERFORMANCE_HINT_NUM_REQUESTS",
  "INFERENCE_PRECISION_HINT")]
compiled.get_property("NO")
compiled.set_property({"NUM_STREAMS": 1})
core.compile_model(model, "CPU", {"NUM_STREAMS": 4, "INFERENCE_NUM_THREADS": 1}).get_property("NUM_STREAMS")
core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": 1}).get_property("NUM_STREAMS")
set(core.query_model(model, "CPU").values())
core.query_model(model, "NO")
core.add_extension("no.so")
core.get_default_context("CPU")
compiled([x])[0], compiled({"x": x})["y"], compiled({0: x})[0], compiled({compiled.input(): x})[compiled.output()],
  compiled(x)[0]
compiled((x,))[0], compiled(ov.Tensor(x))[0], compiled({0: ov.Tensor(x)})[0], compiled(x.astype("f8"))[0],
  compiled(x.tolist())[0]
request.infer(x)[0], request.infer({"x": x})[0], request.infer([x])[0], request.infer(x.astype("f8"))[0],
  request.infer(ov.Tensor(x))[0]
compiled.infer_new_request({0: x})[0], compiled(x, share_inputs=False)[0], compiled(x, share_outputs=True)[0]
(lambda r: (len(r), r.names(), list(r.keys()), list(r), list(r.values()), r.to_tuple(), list(r.to_dict())))(compiled(x))
compiled(x)[7]
compiled(x)["no"]
compiled(x)[1.5]
compiled(x)[model.output()]
compiled({"no": x})
compiled({7: x})
compiled({1.5: x})
compiled({model.input(): x})
request.infer({model.input(): x})
compiled([x, x])
compiled(np.ones((1, 3, 8, 9), "f4"))
request.infer(np.ones((1, 3, 8, 9), "f4"))
compiled(np.ones((3, 8, 8), "f4"))
compiled("a")
compiled(1.5)
compiled(object())
compiled_pair([p, q])["product"], compiled_pair({"p": p, "q": q})["twice"], compiled_pair({0: p, "q": q})[1],
  compiled_pair([p[:2], q])[0]
compiled_pair(p)
(request_pair.infer([p, q])[0].shape, request_pair.infer({"p": p[:1]})[0].shape, request_pair.infer({"q": q + 1})["twice"])
request_pair.get_input_tensor(0).shape, request_pair.get_output_tensor(0).shape, request_pair.get_input_tensor(1).shape
request_pair.get_input_tensor()
request_pair.get_input_tensor(7)
request.get_tensor("no")
request.get_tensor("x").shape, request.get_tensor("y").shape, request.get_tensor(compiled.input()).shape,
  request.get_input_tensor().shape
(request.set_tensor("x", ov.Tensor(x)), request.infer()[0]), (request.set_input_tensor(ov.Tensor(x)), request.infer()[0])
(request_pair.set_input_tensor(0, ov.Tensor(p)), request_pair.set_input_tensor(1, ov.Tensor(q)), request_pair.infer()[0])
(request_pair.set_tensors({"p": ov.Tensor(p), "q": ov.Tensor(q)}), request_pair.infer()[1])
(request_pair.set_input_tensors({0: ov.Tensor(p), 1: ov.Tensor(q)}), request_pair.infer()[1])
request.set_tensor("x", ov.Tensor(x.astype("f8")))
request.set_tensor("x", ov.Tensor(x[:, :, :4]))
request.set_output_tensor(ov.Tensor(np.zeros((1, 4))))
(lambda o: (request.set_output_tensor(ov.Tensor(o, shared_memory=True)), request.infer(x), o))(np.zeros((1, 4), "f4"))
(lambda o: (request.set_tensor("y", ov.Tensor(o, shared_memory=True)), request.infer(x), o))(np.zeros((1, 4), "f4"))
(lambda t: (t.data.__setitem__(slice(None), x), request.infer()[0]))(request.get_input_tensor())
(lambda t: (setattr(t, "shape", [2, 4]), t.data.__setitem__(slice(None), 1),
  request_pair.infer({"q": q})[0]))(request_pair.get_input_tensor(0))
(lambda view: (request.infer(x), view))(request.get_output_tensor().data)
(request.infer(x), request.get_output_tensor().data, request.results[0], request.output_tensors, request.input_tensors)
request.wait_for(-1)
(request.start_async(x, "data"), request.wait(), request.userdata)
core.read_model(None)
request.model_inputs, request.model_outputs, request.get_compiled_model().inputs
request.infer(x)[0].flags.owndata, request.infer(x, share_outputs=True)[0].flags.owndata
(request.wait(), request.wait_for(10), request.start_async(x), request.wait(), request.results[0], request.wait_for(1000))
(lambda seen: (request.set_callback(seen.append, "done"), request.start_async(x), request.wait(), request.infer(x), seen))([])
(request.set_callback(lambda data: 1 / 0, None), request.start_async(x), request.wait())
(request.infer(x), request.latency > 0)
(request.cancel(), request.query_state(), request.reset_state())
ov.AsyncInferQueue(compiled, -1)
(lambda a: (len(a), a.is_ready(), a.get_idle_request_id(), a.userdata, a, len(list(a))))(ov.AsyncInferQueue(compiled, 3))
len(ov.AsyncInferQueue(compiled)), len(ov.AsyncInferQueue(compiled, 0))
(lambda a: (a.set_callback(lambda r, u: 1 / 0), a.start_async(x), a.wait_all()))(ov.AsyncInferQueue(compiled, 2))
(lambda a: (a.start_async(x), a.wait_all(), a[0].get_output_tensor().data, a[0].results[0]))(ov.AsyncInferQueue(compiled, 1))
(lambda a: (a.start_async({"p": p[:, :3]}), a.wait_all()))(ov.AsyncInferQueue(compiled_pair, 1))
ov.compile_model(model).inputs, ov.compile_model(folder / "pair.xml", "CPU").inputs,
  ov.convert_model(folder / "image.onnx").inputs
core.compile_model(str(folder / "image.onnx"), "CPU", F32)(x)[0], core.compile_model(model=model, device_name="CPU",
  config=F32)(x)[0]
(ov.serialize(model, folder / "s.xml"), core.read_model(folder / "s.xml").outputs, core.compile_model(folder / "s.xml",
  "CPU", F32)(x)[0])
(ov.save_model(pair, folder / "s.xml", compress_to_fp16=False), core.compile_model(folder / "s.xml", "CPU", F32)([p, q])[0])
(ov.save_model(pair, folder / "s.xml"), core.compile_model(folder / "s.xml", "CPU", F32)([p, q])[0])
(pair.set_rt_info("v2", "version"), pair.set_rt_info(42, ["config", "batch"]), pair.get_rt_info("version").value)
(pair.set_rt_info(42, ["config", "batch"]), pair.get_rt_info(["config", "batch"]).value, pair.get_rt_info("config").value)
(pair.set_rt_info("42", "n"), [pair.get_rt_info("n").astype(kind) for kind in (int, float, str)],
  pair.get_rt_info("n") == "42")
(pair.set_rt_info("42", "n"), pair.get_rt_info("n").astype(bool))
pair.has_rt_info("no"), (pair.set_rt_info(1, ["a", "b"]), [pair.has_rt_info(path) for path in ("a", ["a", "b"], ["a", "c"])])
pair.get_rt_info("no")
(model.set_rt_info([1, 2], ["a", "b"]), ov.save_model(model, folder / "i.xml"),
  core.read_model(folder / "i.xml").get_rt_info("a").value)
ov.no_such_name
""")


@pytest.mark.parametrize("expression", OF_MODELS)
def test_models_and_requests(expression: str, folder: Path) -> None:
    assert_same(expression, names_for(expression, folder))


# States


@pytest.mark.parametrize(
    "expression",
    table("""
[state.name for state in request.query_state()], request.query_state()[0].state.data
(request.infer(o)[0], request.infer(o)[0], request.query_state()[0].state.data)
(request.infer(o), setattr(request.query_state()[0], "state", ov.Tensor(10 * o)), request.infer(o)[0])
(request.infer(o), request.query_state()[0].reset(), request.infer(o)[0], request.reset_state(), request.infer(o)[0])
(compiled(o)[0], compiled(o)[0], compiled.reset_state(), compiled(o)[0], compiled.query_state()[0].name)
(request.infer(o), compiled.create_infer_request().infer(o)[0])
setattr(request.query_state()[0], "state", ov.Tensor(np.ones((2, 3), "f4")))
sorted(node.get_type_name() for node in model.get_ordered_ops())
(request.start_async(o), request.wait(), request.start_async(o), request.wait(), request.results[0])
"""),
)
def test_states(expression: str, folder: Path) -> None:
    def names(module: Any) -> dict[str, Any]:
        model = module.Core().read_model(folder / "states.xml")
        compiled = module.Core().compile_model(model, "CPU", F32)
        return {
            "model": model, "compiled": compiled, "request": compiled.create_infer_request(), "o": np.ones((1, 3), np.float32),
        }  # fmt: skip

    assert_same(expression, names)


# Preprocessing


LINEAR, NEAREST, CUBIC = (f"ov.preprocess.ResizeAlgorithm.RESIZE_{name}" for name in ("LINEAR", "NEAREST", "CUBIC"))
STEPS = table(f"""
tensor.set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")), model.set_layout(ov.Layout("NCHW"))
tensor.set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")).set_shape([1, 12, 10, 3]), steps.resize({LINEAR}),
  model.set_layout(ov.Layout("NCHW"))
tensor.set_layout(ov.Layout("NHWC")).set_spatial_static_shape(12, 10), steps.resize({NEAREST}),
  model.set_layout(ov.Layout("NCHW"))
tensor.set_layout(ov.Layout("NCHW")).set_shape([1, 3, 5, 6]), steps.resize({CUBIC}), model.set_layout(ov.Layout("NCHW"))
tensor.set_shape([1, 3, 12, 10]), model.set_layout(ov.Layout("??HW")), steps.resize({LINEAR}, 8, 8)
tensor.set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")), model.set_layout(ov.Layout("NCHW")),
  steps.convert_element_type(ov.Type.f32).mean([1.0, 2.0, 3.0]).scale([2.0, 3.0, 4.0])
steps.mean(0.5).scale(2.0)
steps.mean([1.0, 2.0, 3.0])
model.set_layout(ov.Layout("NCHW")), steps.mean([1.0, 2.0])
tensor.set_element_type(ov.Type.u8), steps.mean(1.0)
tensor.set_element_type(ov.Type.u8), steps.convert_element_type().mean(1.0)
model.set_layout(ov.Layout("NCHW")), steps.reverse_channels()
steps.reverse_channels()
tensor.set_layout(ov.Layout("NHWC")).set_color_format(ov.preprocess.ColorFormat.BGR), model.set_layout(ov.Layout("NCHW")),
  steps.convert_color(ov.preprocess.ColorFormat.RGB)
model.set_layout(ov.Layout("NCHW")), steps.convert_color(ov.preprocess.ColorFormat.RGB)
steps.convert_layout([0, 3, 1, 2])
tensor.set_layout(ov.Layout("NHWC")), steps.convert_layout(ov.Layout("NCHW"))
tensor.set_shape([1, 3, 12, 12]), steps.crop([0, 0, 2, 2], [1, 3, 10, 10])
tensor.set_shape([1, 3, 6, 6]), steps.pad([0, 0, 1, 1], [0, 0, 1, 1], 0.5, ov.preprocess.PaddingMode.CONSTANT)
tensor.set_from(np.zeros((1, 3, 8, 8), "u1"))
tensor.set_shape([1, 3, 12, 10])
tensor.set_shape([1, 3, 12, 10]), steps.resize({LINEAR})
tensor.set_layout(ov.Layout("NHWC"))
output.tensor().set_element_type(ov.Type.f16)
output.model().set_layout(ov.Layout("NC")), output.tensor().set_layout(ov.Layout("CN")).set_element_type(ov.Type.f64)
output.postprocess().convert_element_type(ov.Type.f16).convert_layout([1, 0])
ppp.input("no")
ppp.input(7)
ppp.output("no")
""")


@pytest.mark.parametrize("steps", STEPS)
def test_conversions_before_and_behind_a_model(steps: str, folder: Path) -> None:
    def names(module: Any) -> dict[str, Any]:
        ppp = module.preprocess.PrePostProcessor(module.Core().read_model(folder / "image.onnx"))
        description = ppp.input()

        def run(_: Any) -> Any:
            model = ppp.build()
            compiled = module.Core().compile_model(model, "CPU", F32)
            port = compiled.input()
            size = int(np.prod(port.shape))
            image = (np.arange(size) * 37 % 251).reshape(tuple(port.shape)).astype(port.element_type.to_dtype())
            output = compiled.output()
            numbers = np.round(compiled(image)[0].astype("f8"), 3)
            return repr(port), repr(output), str(module.layout_helpers.get_layout(model.input())), numbers

        return {
            "ppp": ppp, "tensor": description.tensor(), "steps": description.preprocess(), "model": description.model(),
            "output": ppp.output(), "run": run,
        }  # fmt: skip

    assert_same(f"run(({steps},))", names)


def test_resize_to_the_size_of_a_dynamic_picture(folder: Path) -> None:
    for size in (5, 20):
        found = []
        for module in MODULES.values():
            ppp = module.preprocess.PrePostProcessor(module.Core().read_model(folder / "image.onnx"))
            ppp.input().tensor().set_layout(module.Layout("NHWC")).set_spatial_dynamic_shape()
            ppp.input().model().set_layout(module.Layout("NCHW"))
            ppp.input().preprocess().resize(module.preprocess.ResizeAlgorithm.RESIZE_LINEAR)
            compiled = module.Core().compile_model(ppp.build(), "CPU", F32)
            picture = np.linspace(0, 1, size * 7 * 3, dtype=np.float32).reshape(1, size, 7, 3)
            found.append((compiled(picture)[0], repr(compiled.input())))
        np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-5)
        assert found[0][1] == found[1][1]


@pytest.mark.parametrize("name", "f16 bf16 f64 boolean i8 u8 i32 i64 u64 string".split())
def test_arrays_of_each_element_type_pass_through_a_model(name: str, tmp_path: Path) -> None:
    ops = importlib.import_module("openvino.opset13")
    kind = getattr(theirs.Type, name)
    parameter = ops.parameter([2, 3], kind, name="x")
    parameter.output(0).get_tensor().set_names({"x"})
    theirs.serialize(theirs.Model([ops.reshape(parameter, ops.constant([3, 2]), False)], [parameter], "m"), tmp_path / "m.xml")
    array = (
        np.array([["a", "bc", ""], ["d", "e", "f"]]) if name == "string" else np.arange(6).reshape(2, 3).astype(kind.to_dtype())
    )
    found = []
    for module in MODULES.values():
        compiled = module.Core().compile_model(tmp_path / "m.xml", "CPU")
        request = compiled.create_infer_request()
        found.append([plain(result) for result in (compiled(array)[0], request.infer([array])[0], request.results[0])])
    assert found[0] == found[1]


# What OpenVINO has and this interface refuses


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("ov.opset13", "opset13"),
        ("ov.frontend", "frontend"),
        ("ov.Core().import_model(b'', 'CPU')", "import_model"),
        ("ov.Core().add_extension('a.so')", "add_extension"),
        ("compiled.export_model()", "export_model"),
        ("compiled.get_runtime_model()", "get_runtime_model"),
        ("request.get_profiling_info()", "get_profiling_info"),
        ("model.evaluate([], [])", "Model.evaluate"),
        ("ov.Model([], [])", "Model"),
        ("ov.convert_model(object())", "input_model"),
        ("ov.convert_model(folder / 'image.onnx', input=[1])", "input"),
        ("ov.preprocess.PrePostProcessor(model).input().preprocess().custom(abs)", "custom"),
        ("core.compile_model(model, 'CPU', {'INFERENCE_PRECISION_HINT': 'f16'})", "INFERENCE_PRECISION_HINT"),
        ("core.compile_model(model, 'CPU', {'CPU_DENORMALS_OPTIMIZATION': True})", "CPU_DENORMALS_OPTIMIZATION"),
        ("core.compile_model(model, 'CPU', {'DYNAMIC_QUANTIZATION_GROUP_SIZE': 32})", "DYNAMIC_QUANTIZATION_GROUP_SIZE"),
        ("core.compile_model(model, 'GPU')", "GPU"),
    ],
)
def test_an_absent_function_is_refused_by_name(expression: str, name: str, folder: Path) -> None:
    space = {"ov": ours, **names_for(expression, folder)(ours)}
    with pytest.raises((RuntimeError, AttributeError), match=re.escape(name)) as refusal:
        eval(expression, space)
    assert isinstance(refusal.value, dovetail.DovetailError)
    assert hasattr(theirs, name) is False or hasattr(ours, name) is (name == "Model")


# Memory, threads and processes


def test_results_stay_when_the_request_runs_again(folder: Path) -> None:
    compiled = ours.Core().compile_model(folder / "image.onnx", "CPU", F32)
    x = ARRAYS["x"]
    first = compiled(x)[0]
    kept = first.copy()
    compiled(x + 1)
    assert np.array_equal(first, kept)
    shared = compiled(x, share_outputs=True)[0]
    compiled(x + 1)
    assert not np.array_equal(shared, kept)


def test_the_precision_hint(folder: Path) -> None:
    """The hint bf16 rounds the operands of products where the processor has bf16, and is f32 elsewhere."""
    core = ours.Core()
    compiled: dict[str, Any] = {
        hint: core.compile_model(folder / "image.onnx", "CPU", {"INFERENCE_PRECISION_HINT": hint}) for hint in ("f32", "bf16")
    }
    found = {hint: compiled[hint].get_property("INFERENCE_PRECISION_HINT").to_string() for hint in compiled}
    results = {hint: each(ARRAYS["x"])[0] for hint, each in compiled.items()}
    has_bf16 = native_core.has_bf16()
    assert found == {"f32": "f32", "bf16": "bf16" if has_bf16 else "f32"}
    np.testing.assert_allclose(results["bf16"], results["f32"], rtol=0.05, atol=0.05)
    assert has_bf16 or np.array_equal(results["bf16"], results["f32"])


def test_a_compiled_model_is_pickled_with_its_configuration(folder: Path) -> None:
    compiled = ours.Core().compile_model(folder / "image.onnx", "CPU", F32)
    again = pickle.loads(pickle.dumps(compiled))
    assert np.array_equal(again(ARRAYS["x"])[0], compiled(ARRAYS["x"])[0])
    assert again.get_property("INFERENCE_NUM_THREADS") == 1


def test_a_forked_process_runs_requests(folder: Path) -> None:
    compiled = ours.Core().compile_model(folder / "image.onnx", "CPU", {"NUM_STREAMS": 2})
    queue = ours.AsyncInferQueue(compiled, 2)
    x = ARRAYS["x"]
    wanted = compiled(x)[0]
    queue.start_async(x)
    queue.wait_all()

    def work() -> None:
        assert np.array_equal(compiled(x)[0], wanted)
        queue.start_async(x)
        queue.start_async(x)
        queue.wait_all()
        assert np.array_equal(queue[0].results[0], wanted)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 0


COUNT_THREADS = """
import os, sys
import numpy as np
import dovetail
import dovetail.compat.openvino as ov
path, threads, streams = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
x = np.ones((1, 3, 8, 8), np.float32)
dovetail.compile(path, threads=1)([x])
count = lambda: len(os.listdir("/proc/self/task"))
before = count()
compiled = ov.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": streams})
compiled(x)
synchronous = count() - before
queue = ov.AsyncInferQueue(compiled, 4)
for _ in range(20):
    queue.start_async(x)
queue.wait_all()
print(synchronous, count() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not list the threads of a process")
@pytest.mark.parametrize(("threads", "streams"), [(1, 1), (1, 4), (2, 1), (2, 2)])
def test_no_more_threads_run_than_the_configuration_allows(threads: int, streams: int, folder: Path) -> None:
    arguments = [str(folder / "image.onnx"), str(threads), str(streams)]
    run = subprocess.run([sys.executable, "-c", COUNT_THREADS, *arguments], capture_output=True, text=True, check=True)
    synchronous, all_threads = map(int, run.stdout.split())
    # The thread of the caller computes in a synchronous run.
    assert synchronous <= threads - 1
    assert all_threads <= threads


def test_requests_of_many_threads_give_the_results_of_one(folder: Path) -> None:
    compiled = ours.Core().compile_model(folder / "pair.xml", "CPU", {"PERFORMANCE_HINT": "THROUGHPUT"})
    wanted = [compiled({"p": np.full((rows, 4), rows, np.float32), "q": ARRAYS["q"]})["product"] for rows in range(1, 30)]
    found: dict[Any, Any] = {}
    queue = ours.AsyncInferQueue(compiled, 3)
    queue.set_callback(lambda request, rows: found.update({rows: request.results["product"]}))
    for rows in range(1, 30):
        queue.start_async({"p": np.full((rows, 4), rows, np.float32), "q": ARRAYS["q"]}, rows)
    queue.wait_all()
    assert all(np.array_equal(found[rows], wanted[rows - 1]) for rows in range(1, 30))


def test_cached_plans_are_used(folder: Path, tmp_path: Path) -> None:
    core = ours.Core()
    core.set_property({"CACHE_DIR": str(tmp_path / "plans")})
    first = core.compile_model(folder / "image.onnx", "CPU", F32)(ARRAYS["x"])[0]
    assert list((tmp_path / "plans").iterdir())
    assert np.array_equal(core.compile_model(core.read_model(folder / "image.onnx"), "CPU", F32)(ARRAYS["x"])[0], first)


def test_a_cached_plan_has_the_weights_that_were_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pair.xml").write_bytes((folder / "pair.xml").read_bytes())
    core = ours.Core()
    core.set_property({"CACHE_DIR": str(tmp_path / "plans")})
    inputs = [ARRAYS["p"], ARRAYS["q"]]
    found = core.compile_model(tmp_path / "pair.xml", "CPU", F32, weights=folder / "pair.bin")(inputs)[0]
    assert np.array_equal(found, core.compile_model(folder / "pair.xml", "CPU", F32)(inputs)[0])


def test_a_copy_of_a_changed_model_is_not_compiled_from_its_file(folder: Path, tmp_path: Path) -> None:
    core = ours.Core()
    core.set_property({"CACHE_DIR": str(tmp_path / "plans")})
    model = core.read_model(folder / "image.onnx")
    model.reshape([2, 3, 8, 8])
    for changed in (model, model.clone(), core.read_model(model)):
        assert core.compile_model(changed, "CPU", F32).input().shape == [2, 3, 8, 8]


def test_a_cancelled_request_of_a_queue_is_idle_again(folder: Path) -> None:
    compiled = ours.Core().compile_model(folder / "image.onnx", "CPU", {"NUM_STREAMS": 1})
    queue = ours.AsyncInferQueue(compiled, 2)
    begun, end = threading.Event(), threading.Event()
    queue.set_callback(lambda request, data: (begun.set(), end.wait(60)))
    for _ in range(2):
        queue.start_async(ARRAYS["x"])
    assert begun.wait(60)
    queue[1].cancel()
    assert queue.get_idle_request_id() == 1
    end.set()
    queue.wait_all()


def test_a_busy_request_refuses_calls(folder: Path) -> None:
    request = ours.Core().compile_model(folder / "image.onnx", "CPU", F32).create_infer_request()
    begun, end = threading.Event(), threading.Event()
    model_run = request._run

    def run() -> None:
        begun.set()
        end.wait(60)
        model_run()

    request._run = run
    request.start_async(ARRAYS["x"])
    assert begun.wait(60) and not request.wait_for(1)
    for call in (request.infer, request.start_async, request.get_output_tensor, lambda: request.results):
        with pytest.raises(RuntimeError, match="busy"):
            call()
    end.set()
    request.wait()
    assert request.results[0].shape == (1, 4)


# Programs and packages that import openvino


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the answers of all programs by module."""
    found = {}
    for module in ("dovetail.compat.openvino", "openvino"):
        command = [sys.executable, openvino_programs.__file__, module, str(folder)]
        found[module] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


@pytest.mark.parametrize("name", openvino_programs.PROGRAMS)
def test_a_program_gives_the_same_answer(name: str, answers: dict[str, dict[str, Any]]) -> None:
    assert_close(answers["dovetail.compat.openvino"][name], answers["openvino"][name])


def assert_close(found: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-4)
    else:
        assert found == wanted


OLD_IMPORTS = """
import sys
import dovetail.compat.openvino
sys.modules["openvino"] = dovetail.compat.openvino
from openvino.runtime import AsyncInferQueue, Core, Layout, PartialShape, Type, layout_helpers, serialize
import openvino.runtime as ov
import openvino.runtime.properties.hint as hint
from openvino.preprocess import ColorFormat, PrePostProcessor
assert ov.Core is Core is dovetail.compat.openvino.Core and str(hint.performance_mode) == "PERFORMANCE_HINT"
assert ov.__version__ == dovetail.compat.openvino.__version__ == ov.get_version()
for name in ("opset13", "Op"):
    try:
        exec(f"from openvino.runtime import {name}")
    except ImportError as error:
        assert name in str(error)
    else:
        raise AssertionError(name)
print(*Core().available_devices)
"""


def test_old_programs_import_openvino_runtime() -> None:
    run = subprocess.run([sys.executable, "-c", OLD_IMPORTS], capture_output=True, text=True, check=True)
    assert run.stdout == "CPU\n"


def test_the_page_lists_the_covered_names() -> None:
    text = openvino_coverage.PAGE.read_text()
    pinned = re.search(r"names of openvino ([\w.]+);", text)
    assert pinned is not None
    if pinned[1] != openvino_coverage.version():
        pytest.skip(f"the page is of openvino {pinned[1]}")
    assert text == openvino_coverage.page_with(text, openvino_coverage.table(), openvino_coverage.version())
