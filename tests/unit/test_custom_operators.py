"""Operators that a user's file defines: they load, run, differentiate and are saved as themselves in each format."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail import Builder, DovetailError, DType, Model, Op
from dovetail.ir.op import REGISTRY, graphs_of

pytestmark = pytest.mark.usefixtures("forget_operators")

X = np.array([[1.0, -2.0, 0.5], [3.0, 0.25, -1.5]], np.float32)
DOMAIN = "com.example-labs"


def define_all() -> dict[str, type[Op]]:
    """Define one operator for each form of inputs, outputs and attributes."""

    class Cube(
        Op,
        sig="x: F -> y: F",
        onnx=f"{DOMAIN}:Cube-1(x; scale)",
        openvino="example:Cube-1(x; factor:scale)",
    ):
        scale: float = 1.0

        def shape(self, x: Any) -> Any:
            return x.dims

        def evaluate(self, xp: Any, x: Any) -> Any:
            return x * x * x * self.scale

        def vjp(self, b: Builder, g: Any, y: Any, x: Any) -> Any:
            return [b.Multiply(g, b.Multiply(3.0 * self.scale, b.Multiply(x, x)))]

        def decompose(self, b: Builder, x: Any) -> Any:
            return b.Multiply(b.Multiply(x, b.Multiply(x, x)), self.scale)

    class Extremes(
        Op,
        sig="x: F -> low: F, high: F",
        onnx=f"{DOMAIN}:Extremes-1,2(x; axis=-1, keep_dims:keepdims=1)",
        openvino="example:Extremes-1(x; axis=-1, keep_dims:keepdims=true)",
    ):
        axis: int = -1
        keepdims: bool = True

        def shape(self, x: Any) -> Any:
            dims = list(x.dims)
            if self.keepdims:
                dims[self.axis] = 1
            else:
                del dims[self.axis]
            return [tuple(dims), tuple(dims)]

        def evaluate(self, xp: Any, x: Any) -> Any:
            return tuple(each(x, axis=self.axis, keepdims=self.keepdims) for each in (xp.min, xp.max))

    class Blend(
        Op,
        sig="weights: F, *xs: F -> y: F",
        onnx=f"{DOMAIN}:Blend-1,2(weights, *xs; mode~{{SUM:sum,MEAN:mean}}, names?, powers?)",
        openvino="example:Blend-1(weights, *xs; mode~{SUM:sum,MEAN:mean}, names?, powers?)",
    ):
        mode: str = "sum"
        names: tuple[str, ...] = ()
        powers: tuple[int, ...] = (1,)

        def shape(self, weights: Any, *xs: Any) -> Any:
            return xs[0].dims

        def evaluate(self, xp: Any, weights: Any, *xs: Any) -> Any:
            total = sum(weights[index] * x ** self.powers[index % len(self.powers)] for index, x in enumerate(xs))
            return total / len(xs) if self.mode == "mean" else total

    class Shift(
        Op,
        sig="x: F, by?: F -> y: F2",
        onnx=f"{DOMAIN}:Shift-1,2(x, by; to)",
        openvino="example:Shift-1(x, by?; to)",
    ):
        to: DType

        def types(self, x: Any, by: Any = None) -> Any:
            return [type(x.type)(self.to, x.shape)]

        def evaluate(self, xp: Any, x: Any, by: Any = None) -> Any:
            return (x if by is None else x + by).astype(self.to.numpy)

    return {"Cube": Cube, "Extremes": Extremes, "Blend": Blend, "Shift": Shift}


def build(node: Callable[[Any, Any], Any]) -> Model:
    with Builder("custom") as b:
        results = node(b, b.input("x", "f32", ("n", 3)))
        for index, y in enumerate(results if isinstance(results, list) else [results]):
            b.output(f"y{index}", y)
    return b.model


NODES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], list[Any]]]] = {
    "Cube": (lambda b, x: b.Cube(x, scale=0.5), lambda x: [x**3 / 2]),
    "Extremes": (
        lambda b, x: b.Extremes(x, axis=1, keepdims=False),
        lambda x: [x.min(axis=1), x.max(axis=1)],
    ),
    "Blend": (
        lambda b, x: b.Blend(np.array([2, 3], "f4"), x, b.Negative(x), mode="mean", names=["a", "b"], powers=[1, 2]),
        lambda x: [(2 * x + 3 * x**2) / 2],
    ),
    "Shift": (lambda b, x: b.Shift(x, np.float32(4), to="f64"), lambda x: [(x + 4).astype("f8")]),
}
ROUTES = [
    ("onnx",), ("xml",), ("dt",), ("onnx", "xml"), ("xml", "onnx"), ("dt", "xml"), ("onnx", "xml", "onnx"),
    ("xml", "onnx", "xml"),
]  # fmt: skip


def custom_operators(model: Model) -> list[Op]:
    return [node.op for node in model.graph.nodes if node.op.is_custom]


@pytest.mark.parametrize("route", ROUTES, ids="-".join)
@pytest.mark.parametrize("kind", NODES)
def test_a_custom_operator_comes_back_as_it_was(kind: str, route: tuple[str, ...], tmp_path: Path) -> None:
    define_all()
    node, expected = NODES[kind]
    model = build(node)
    for index, suffix in enumerate(route):
        dovetail.save(model, tmp_path / f"{index}.{suffix}")
        loaded = dovetail.load(tmp_path / f"{index}.{suffix}")
        assert custom_operators(loaded) == custom_operators(model)
        assert [y.type for y in loaded.outputs] == [y.type for y in model.outputs] and not loaded.warnings
        model = loaded
    for engine in ("interpreter", "native"):
        results = dovetail.run(model, X, engine=engine)
        for result, wanted in zip(results.values(), expected(X), strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_an_onnx_file_has_the_operator_its_attributes_and_its_domain(tmp_path: Path) -> None:
    define_all()
    dovetail.save(build(NODES["Blend"][0]), tmp_path / "blend.onnx")
    proto = onnx.load(tmp_path / "blend.onnx")
    onnx.checker.check_model(proto)
    (node,) = [node for node in proto.graph.node if node.domain == DOMAIN]
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    assert (node.op_type, len(node.input)) == ("Blend", 3)
    assert attributes == {"mode": b"MEAN", "names": [b"a", b"b"], "powers": [1, 2]}
    assert {item.domain: item.version for item in proto.opset_import}[DOMAIN] == 2


def test_the_version_of_a_domain_is_one_that_all_its_operators_list(tmp_path: Path) -> None:
    define_all()
    dovetail.save(build(lambda b, x: b.Extremes(b.Cube(x))), tmp_path / "both.onnx")
    assert dovetail.load(tmp_path / "both.onnx").versions[DOMAIN] == 1


def test_an_ir_has_the_opset_and_the_data_of_the_mapping(tmp_path: Path) -> None:
    define_all()
    dovetail.save(build(NODES["Cube"][0]), tmp_path / "cube.xml")
    (layer,) = ElementTree.parse(tmp_path / "cube.xml").findall(".//layer[@type='Cube']")
    assert layer.get("version") == "example"
    data = layer.find("data")
    assert data is not None and data.attrib == {"factor": "0.5"}


def proto_of(attributes: dict[str, Any], version: int = 1) -> onnx.ModelProto:
    """Return a model of one Cube with ``attributes``, in ``version`` of its domain."""
    node = helper.make_node("Cube", ["x"], ["y"], domain=DOMAIN, **attributes)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph([node], "cube", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_a_class_takes_effect_after_a_model_with_its_operator_was_loaded(tmp_path: Path) -> None:
    proto = proto_of({"scale": 2.0})
    before = dovetail.load(proto)
    assert [type(node.op).__name__ for node in before.graph.nodes] == ["Foreign"]
    dovetail.save(before, tmp_path / "preserved.onnx")
    define_all()
    for source in (proto, tmp_path / "preserved.onnx"):
        assert custom_operators(dovetail.load(source)) == [REGISTRY["Cube"](scale=2.0)]


def test_nodes_that_the_mapping_does_not_fit_are_preserved(tmp_path: Path) -> None:
    define_all()
    for attributes, version in (({"scale": 2.0}, 7), ({"scale": 2.0, "more": 1}, 1), ({}, 1)):
        loaded = dovetail.load(proto_of(attributes, version))
        assert [type(node.op).__name__ for node in loaded.graph.nodes] == ["Foreign"]
        dovetail.save(loaded, tmp_path / "kept.onnx")
        (node,) = onnx.load(tmp_path / "kept.onnx").graph.node
        assert (node.op_type, node.domain) == ("Cube", DOMAIN)


def test_an_integer_for_a_float_is_written_as_a_float(tmp_path: Path) -> None:
    define_all()
    for model in (build(lambda b, x: b.Cube(x, scale=2)), build(lambda b, x: b.LeakyRelu(x, alpha=2))):
        dovetail.save(model, tmp_path / "integer.onnx")
        (attribute,) = onnx.load(tmp_path / "integer.onnx").graph.node[0].attribute
        assert attribute.type == onnx.AttributeProto.FLOAT and attribute.f == 2


def test_empty_lists_are_written_with_their_types(tmp_path: Path) -> None:
    class Lists(Op, sig="x: F -> y: F", onnx=f"{DOMAIN}:Lists-1(x; i, f, s)", openvino="example:Lists-1(x; i, f, s)"):
        i: tuple[int, ...] = (1,)
        f: tuple[float, ...] = (1.0,)
        s: tuple[str, ...] = ("1",)

        def shape(self, x: Any) -> Any:
            return x.dims

    model = build(lambda b, x: b.Lists(x, i=(), f=(), s=()))
    for suffix in ("onnx", "xml", "onnx"):
        dovetail.save(model, tmp_path / f"lists.{suffix}")
        model = dovetail.load(tmp_path / f"lists.{suffix}")
        assert custom_operators(model) == [Lists(i=(), f=(), s=())]
    kinds = {item.name: item.type for item in onnx.load(tmp_path / "lists.onnx").graph.node[0].attribute}
    assert kinds == {"i": onnx.AttributeProto.INTS, "f": onnx.AttributeProto.FLOATS, "s": onnx.AttributeProto.STRINGS}


# Targets without a mapping


def define_power(mapping: str = "", decomposed: bool = True) -> type[Op]:
    class Power4(Op, sig="x: F -> y: F", onnx=mapping or ()):
        exact: bool = False

        def shape(self, x: Any) -> Any:
            return x.dims

        def evaluate(self, xp: Any, x: Any) -> Any:
            return (x * x) * (x * x)

    if decomposed:

        def decompose(self: Op, b: Builder, x: Any) -> Any:
            y = b.Multiply(x, x)
            return b.Multiply(y, y)

        Power4.decompose = decompose  # type: ignore[method-assign]
    return Power4


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_a_decomposition_is_written_with_a_warning(suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    define_power()
    with caplog.at_level(logging.WARNING, "dovetail"):
        dovetail.save(build(lambda b, x: b.Power4(b.Power4(x))), tmp_path / f"power.{suffix}")
    (record,) = caplog.records
    assert record.name == "dovetail.write"
    assert "op.unsayable" in record.getMessage() and "Power4" in record.getMessage() and "decomposition" in record.getMessage()
    model = dovetail.load(tmp_path / f"power.{suffix}")
    assert not custom_operators(model)
    np.testing.assert_allclose(dovetail.run(model, X)["y0"], X**16, rtol=1e-5)


def test_an_attribute_that_the_mapping_lacks_is_not_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    define_power(f"{DOMAIN}:Power4-1(x)")
    with caplog.at_level(logging.WARNING, "dovetail"):
        dovetail.save(build(lambda b, x: b.Power4(x)), tmp_path / "plain.onnx")
        assert not caplog.records and len(custom_operators(dovetail.load(tmp_path / "plain.onnx"))) == 1
        dovetail.save(build(lambda b, x: b.Power4(x, exact=True)), tmp_path / "exact.onnx")
    (record,) = caplog.records
    assert "exact=True" in record.getMessage() and not custom_operators(dovetail.load(tmp_path / "exact.onnx"))


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_without_mapping_and_decomposition_a_save_is_refused_by_name(suffix: str, tmp_path: Path) -> None:
    define_power(decomposed=False)
    with pytest.raises(dovetail.UnsupportedError, match="Power4") as caught:
        dovetail.save(build(lambda b, x: b.Power4(x)), tmp_path / f"power.{suffix}")
    assert caught.value.code == "op.unsayable" and not list(tmp_path.iterdir())


# Gradients


@pytest.mark.parametrize("has_vjp", [True, False])
def test_gradients_of_custom_operators_are_slopes(has_vjp: bool) -> None:
    cube = define_all()["Cube"]
    if not has_vjp:
        del cube.vjp
    gradient = dovetail.grad(build(NODES["Cube"][0]), of="y0", wrt=["x"])
    x, step = X.astype("f8"), 1e-4
    slope = ((x + step) ** 3 / 2 - (x - step) ** 3 / 2) / (2 * step)
    for engine in ("interpreter", "native"):
        results = dovetail.run(gradient, {"x": X, "grad:y0": np.ones_like(X)}, engine=engine)
        np.testing.assert_allclose(results["grad:x"], slope, rtol=1e-5)


def test_an_operator_without_gradient_is_named() -> None:
    define_all()
    with pytest.raises(dovetail.UnsupportedError, match="Extremes") as caught:
        dovetail.grad(build(NODES["Extremes"][0]), of="y0", wrt=["x"])
    assert caught.value.code == "grad.op"


# Definitions

HEADER = "from dovetail import DType, Op\n"
DEFINITIONS = [
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K-1(x; scal)"):\n scale: float = 1.0', "K", "did you mean 'scale'"),
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K-1(x; scale)"):\n scale = 1.0', "K", "'scale'.*needs an annotation"),
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K-1(y)"):\n pass', "K", "no input or attribute 'y'"),
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K(x)"):\n pass', "K", "must begin with"),
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K-1(x"):\n pass', "K", "must end with"),
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K-1()"):\n pass', "K", "must map the input 'x'"),
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K-1(x)"):\n axis: int', "K", "must map the attribute 'axis'"),
    ('class K(Op, sig="x: F -> y: F", onnx="a.b:K-1(x; t)"):\n t: list = None', "K", "'t' must be annotated as"),
    ('class K(Op, sig="x: F -> y: F", openvino="a:K-2(x)"):\n pass', "K", "version of a:K must be 1"),
    ('class K(Op, sig="x: F -> y: F", onnx=7):\n pass', "K", "onnx must be an op mapping"),
    ('class K(Op, onnx="a.b:K-1(x)"):\n pass', "K", "needs a signature"),
    ('class K(Op, sig="x: F -> y: F", onxx="a.b:K-1(x)"):\n pass', "K", "'onxx': did you mean 'onnx'"),
    ('class K(Op, sig="x: F -> y: F"):\n onnx = "a.b:K-1(x)"', "K", "onnx must be a keyword"),
    ('class K(Op, sig="x: F -> y: F"):\n openvino: str = "a:K-1(x)"', "K", "openvino must be a keyword"),
    ('class K(Op, sig="x: F -> y: F"):\n onxn = ("a.b:K-1(x)",)', "K", "onxn must be a keyword.*did you mean 'onnx'"),
    ('class K(Op):\n sig = "x: F -> y: F"', "K", "sig must be a keyword"),
    ('class K(Op, sig="x: Q -> y: Q"):\n pass', "K", "'Q'"),
    ('class K(Op, sig="x -> y"):\n pass', "K", "'x'"),
    ('class K(Op, sig="x: F, y: F"):\n pass', "K", "inputs -> outputs"),
    ('class K(Op, sig="x: F -> y: F2"):\n pass', "K", "'F2'"),
    ('class K(Op, sig="x: F -> y: F"):\n x: int = 0', "K", "'x' must be an input or an attribute"),
    ('class K(Op, sig="x: F -> y: F"):\n shape: int = 0', "K", "'shape' must not have the name of a rule"),
    ('class K(Op, sig="x: F -> y: F"):\n scale: float = "1"', "K", "default of the attribute 'scale' must be a number"),
    ('class Gelu(Op, sig="x: F -> y: F"):\n pass', "Gelu", "dovetail.ops.elementwise.activation"),
]


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["objects", "texts"])
@pytest.mark.parametrize(("text", "name", "message"), DEFINITIONS)
def test_a_wrong_definition_is_named_with_its_class(text: str, name: str, message: str, future: str) -> None:
    with pytest.raises(dovetail.RuleError, match=f"(?s)(?=.*{name})(?=.*{message})"):
        exec(compile(future + HEADER + text, "user.py", "exec", dont_inherit=True), {"__name__": "user"})
    assert name == "Gelu" or name not in dict.keys(REGISTRY)


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["objects", "texts"])
def test_annotations_check_attributes_as_texts_and_as_objects(future: str) -> None:
    text = """
    import typing
    import dovetail
    from dovetail import DType, Op
    class Many(Op, sig="x: F -> y: F"):
        a: bool = False
        b: int = 0
        c: float | None = None
        d: str = ""
        e: dovetail.DType = "f32"
        f: tuple[int, ...] = ()
        g: typing.Literal["one", "two"] = "one"
        h: tuple[int, float] = (1, 2.0)
        kept: typing.ClassVar[int] = 3
    """
    names: dict[str, Any] = {"__name__": "user"}
    exec(compile(future + textwrap.dedent(text), "user.py", "exec", dont_inherit=True), names)
    many = names["Many"]
    assert list(many.fields_by_name) == list("abcdefgh")
    op = many(a=1, c=2, e="f16", f=[1, 2], h=[3, 4])
    assert (op.a, op.e.name, op.f, op.h) == (True, "f16", (1, 2), (3, 4))
    for wrong in ({"a": 2}, {"b": 0.5}, {"c": "1"}, {"d": 1}, {"f": 1}, {"f": [0.5]}, {"g": "three"}, {"h": [1]}, {"e": 3.5}):
        with pytest.raises(dovetail.RuleError) as caught:
            many(**wrong)
        assert caught.value.code == "attribute.value"


# Results


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x.astype("f8"), r"f32\[2, 3\].*f64"),
        (lambda x: x[:1], r"f32\[2, 3\].*f32\[1, 3\]"),
        (lambda x: (x, x), "1 array, got 2"),
        (lambda x: x.tolist(), "list"),
        (lambda x: x.no_such_method(), "AttributeError"),
    ],
)
@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_wrong_result_is_named_in_both_engines(result: Any, message: str, engine: str) -> None:
    class Wrong(Op, sig="x: F -> y: F"):
        def shape(self, x: Any) -> Any:
            return x.dims

        def evaluate(self, xp: Any, x: Any) -> Any:
            return result(x)

    model = build(lambda b, x: b.Relu(b.Wrong(x)))
    with pytest.raises(dovetail.EngineError, match=f"(?s){message}.*Wrong") as caught:
        dovetail.run(model, X, engine=engine)
    assert caught.value.code == "run.failed"
    assert isinstance(caught.value, DovetailError)


def test_no_plan_with_a_custom_operator_is_cached(tmp_path: Path) -> None:
    """The code of a class may change between two processes, and a constant operand would be folded into the plan."""
    define_all()
    dovetail.save(build(lambda b, x: b.Add(x, b.Cube(np.ones((1, 3), "f4")))), tmp_path / "folded.onnx")
    program = dovetail.compile(tmp_path / "folded.onnx", cache_dir=tmp_path / "plans")
    np.testing.assert_array_equal(program(X)["y0"], X + 1)
    assert not [path for path in (tmp_path / "plans").rglob("*") if path.is_file()]


# Kernels

CPP = r"""
extern "C" void cube(const float* x, float* y, long count, float scale) {
    for (long i = 0; i < count; ++i) y[i] = scale * x[i] * x[i] * x[i];
}
"""


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_kernel_in_cpp_runs_in_both_engines(engine: str, tmp_path: Path) -> None:
    import ctypes
    import shutil

    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None or sys.platform == "win32":
        pytest.skip("needs a C++ compiler")
    (tmp_path / "cube.cpp").write_text(CPP)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", tmp_path / "cube.so", tmp_path / "cube.cpp"], check=True)
    function = ctypes.CDLL(str(tmp_path / "cube.so")).cube
    array = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    function.argtypes = (array, array, ctypes.c_long, ctypes.c_float)
    function.restype = None

    class FastCube(Op, sig="x: f32 -> y: f32"):
        scale: float = 1.0

        def shape(self, x: Any) -> Any:
            return x.dims

        def evaluate(self, xp: Any, x: Any) -> Any:
            y = np.empty(x.shape, np.float32)
            function(np.ascontiguousarray(x), y, x.size, self.scale)
            return y

    model = build(lambda b, x: b.FastCube(b.Transpose(x, [1, 0]), scale=0.5))
    np.testing.assert_allclose(dovetail.run(model, X, engine=engine)["y0"], X.T**3 / 2, rtol=1e-6)


# Functions in the model


def with_function(proto: onnx.ModelProto, factor: float | None = None) -> onnx.ModelProto:
    """Add a function with the body of Cube to a model, which other runtimes then run; ``factor`` is multiplied in besides."""
    nodes = [
        helper.make_node("Constant", [], ["s"]),
        helper.make_node("Mul", ["x", "x"], ["xx"]),
        helper.make_node("Mul", ["xx", "x"], ["xxx"]),
        helper.make_node("Mul", ["xxx", "s"], ["scaled"]),
        helper.make_node("Constant", [], ["f"], value_float=1.0 if factor is None else factor),
        helper.make_node("Mul", ["scaled", "f"], ["y"]),
    ]
    reference = nodes[0].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "value_float", "scale", onnx.AttributeProto.FLOAT
    opsets = [helper.make_opsetid("", 18)]
    proto.functions.append(helper.make_function(DOMAIN, "Cube", ["x"], ["y"], nodes, opsets, ["scale"]))
    return proto


def run_elsewhere(proto: onnx.ModelProto, x: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("scale", [1.0, -0.5, 3.0])
@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_class_agrees_with_onnxruntime_on_a_function_of_its_body(scale: float, engine: str, tmp_path: Path) -> None:
    define_all()
    model = build(lambda b, x: b.Relu(b.Cube(b.Negative(x), scale=scale)))
    dovetail.save(model, tmp_path / "cube.onnx", opset=18)
    expected = run_elsewhere(with_function(onnx.load(tmp_path / "cube.onnx")), X)
    np.testing.assert_allclose(dovetail.run(tmp_path / "cube.onnx", X, engine=engine)["y0"], expected, rtol=1e-6)


def test_the_body_of_a_function_is_preferred_to_a_class_of_its_name() -> None:
    define_all()
    proto = with_function(proto_of({"scale": 2.0}), factor=5.0)
    model = dovetail.load(proto)
    assert not custom_operators(model)
    np.testing.assert_allclose(dovetail.run(model, X)["y"], run_elsewhere(proto, X), rtol=1e-6)


def test_custom_operators_in_subgraphs_come_back(tmp_path: Path) -> None:
    define_all()
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    branches = {
        name: helper.make_graph([helper.make_node("Cube", ["x"], [out], domain=DOMAIN, scale=scale)], name, [], [port])
        for name, out, scale in (("then_branch", "a", 1.0), ("else_branch", "b", 2.0))
        for port in [helper.make_tensor_value_info(out, TensorProto.FLOAT, [2, 3])]
    }
    graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], **branches)], "choice", [condition, ports[0]], ports[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    model = dovetail.load(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    for suffix in ("xml", "onnx", "dt"):
        dovetail.save(model, tmp_path / f"choice.{suffix}")
        model = dovetail.load(tmp_path / f"choice.{suffix}")
        assert {node.op for graph in graphs_of(model.graph) for node in graph.nodes if node.op.is_custom} == {
            REGISTRY["Cube"](scale=scale) for scale in (1.0, 2.0)
        }
        for engine in ("interpreter", "native"):
            for choice, factor in ((True, 1), (False, 2)):
                result = dovetail.run(model, {"c": np.array(choice), "x": X}, engine=engine)["y"]
                np.testing.assert_allclose(result, factor * X**3, rtol=1e-6)


def test_check_simplify_and_prove_take_custom_operators(tmp_path: Path) -> None:
    define_all()
    model = build(lambda b, x: b.Add(b.Cube(x), b.Cube(b.Identity(x))))
    dovetail.save(model, tmp_path / "twice.xml")
    assert dovetail.check(str(tmp_path / "twice.xml")) == []
    simplified = dovetail.simplify(model, prove=True)
    assert len(custom_operators(simplified)) == 1
    assert dovetail.prove(model, dovetail.load(tmp_path / "twice.xml")).is_proved


OPENVINO_CUBE = """
import sys
import numpy as np
import openvino

class Cube(openvino.Op):
    def __init__(self, inputs=None, scale=1.0):
        super().__init__(self, inputs)
        self.attributes = {"scale": scale}
        if inputs is not None:
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self):
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, inputs):
        return Cube(inputs, self.attributes["scale"])

    def has_evaluate(self):
        return True

    def evaluate(self, outputs, inputs):
        outputs[0].shape = inputs[0].shape
        outputs[0].data[:] = inputs[0].data ** 3 * self.attributes["scale"]
        return True

    def visit_attributes(self, visitor):
        visitor.on_attributes(self.attributes)
        return True

folder = sys.argv[1]
core = openvino.Core()
core.add_extension(Cube)
model = core.read_model(f"{folder}/cube.xml")
np.save(f"{folder}/y.npy", core.compile_model(model, "CPU")(np.load(f"{folder}/x.npy"))[0])
openvino.save_model(model, f"{folder}/again.xml", compress_to_fp16=False)
"""


@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_openvino_with_an_extension_reads_and_writes_the_operator(scale: float, tmp_path: Path) -> None:
    pytest.importorskip("openvino")

    class Cube(Op, sig="x: F -> y: F", openvino="extension:Cube-1(x; scale)"):
        scale: float = 1.0

        def shape(self, x: Any) -> Any:
            return x.dims

        def evaluate(self, xp: Any, x: Any) -> Any:
            return self.scale * x * x * x

    model = build(lambda b, x: b.Relu(b.Cube(x, scale=scale)))
    dovetail.save(model, tmp_path / "cube.xml")
    np.save(tmp_path / "x.npy", X)
    subprocess.run([sys.executable, "-c", OPENVINO_CUBE, str(tmp_path)], check=True, timeout=120)
    np.testing.assert_allclose(dovetail.run(model, X)["y0"], np.load(tmp_path / "y.npy"), rtol=1e-6)
    assert custom_operators(dovetail.load(tmp_path / "again.xml")) == [Cube(scale=scale)]
