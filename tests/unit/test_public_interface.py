"""The promises of `import dovetail`: the names, arguments, results and refusals."""

from __future__ import annotations

import copy
import doctest
import inspect
import logging
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import call_codes
import dovetail
from dovetail import Builder, DovetailError, EngineError
from dovetail.errors import ArgumentTypeError
from dovetail.ir.edit import rename
from dovetail.ir.suggestions import RENAMED
from dovetail.passes.check import validate

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def small_proto() -> Any:
    """Concat, Split and Reshape: x[n, 4] -> y[2*n], z[n, 6]."""
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["c"], axis=1, name="join"),
        helper.make_node("Split", ["c", "sizes"], ["a", "z"], axis=1, name="cut"),
        helper.make_node("Reshape", ["a", "target"], ["y"], name="flatten"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")],
        [numpy_helper.from_array(np.array([2, 6]), "sizes"), numpy_helper.from_array(np.array([-1]), "target")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.onnx"
    found.write_bytes(small_proto().SerializeToString())
    return found


@pytest.fixture
def model(path: Path) -> dovetail.Model:
    return dovetail.load(path)


def expected(x: Any = X) -> dict[str, Any]:
    both = np.concatenate([x, x], axis=1)
    return {"y": both[:, :2].reshape(-1), "z": both[:, 2:]}


def assert_right(outputs: dict[str, Any], x: Any = X) -> None:
    assert list(outputs.keys()) == ["y", "z"]
    for name, wanted in expected(x).items():
        assert isinstance(outputs[name], np.ndarray)
        np.testing.assert_array_equal(outputs[name], wanted)


def identity(dtype: str, shape: Any = ("n",)) -> dovetail.Model:
    with Builder() as b:
        b.output("y", b.Identity(b.input("x", dtype, shape)))
    return b.model


# The lines of the manual


def test_every_line_of_the_manual_works(path: Path, tmp_path: Path) -> None:
    model = dovetail.load(str(path))
    assert isinstance(model, dovetail.Model)
    assert [(x.name, str(x.type)) for x in model.inputs] == [("x", "f32[n, 4]")]
    assert [(y.name, str(y.type)) for y in model.outputs] == [("y", "f32[2*n]"), ("z", "f32[n, 6]")]
    type = model.values["y"].type
    assert isinstance(type.dtype, dovetail.DType) and type.dtype == "f32"
    (size,) = type.shape
    assert isinstance(size, dovetail.Dim) and str(size) == "2*n"
    node = next(node for node in model.graph.nodes if node.name == "cut")
    assert type_name(node.op) == "Split"
    assert [x.name for x in node.inputs] == ["c", "sizes"] and [y.name for y in node.outputs] == ["a", "z"]

    dovetail.save(model, tmp_path / "model.xml")
    dovetail.save(model, tmp_path / "again.onnx", opset=13)
    assert dovetail.load(tmp_path / "again.onnx").versions[""] == 13
    weights = (tmp_path / "model.bin").rename(tmp_path / "weights.bin")
    from_ir = dovetail.load(tmp_path / "model.xml", weights=weights)
    assert str(from_ir.values["y"].type) == "f32[2*n]"

    program = dovetail.compile(model, engine="auto")
    assert_right(program({"x": X}))
    assert_right(program(X))
    assert_right(dovetail.run(model, {"x": X}))
    assert_right(dovetail.run(path, [X]))
    assert_right(dovetail.run(path, X))
    assert dovetail.check(path) == [] and dovetail.check(model) == []
    assert str(dovetail.infer(model).values["c"].type) == "f32[n, 8]"
    assert_right(dovetail.interpret(model, {"x": X}, xp=np))


def type_name(what: Any) -> str:
    return type(what).__name__


def test_a_gradient_is_a_model_of_the_value_and_its_slopes() -> None:
    with Builder() as b:
        x, w = b.input("x", "f32", (3,)), b.input("w", "f32", (3,))
        b.output("product", x * w)
    slope = dovetail.grad(b.model, of="product", wrt=["w"])
    assert [x.name for x in slope.inputs] == ["x", "w", "grad:product"]
    assert [y.name for y in slope.outputs] == ["product", "grad:w"]
    a, c, g = (np.array(data, np.float32) for data in ([1, 2, 3], [4, 5, 6], [1, 1, 10]))
    found = dovetail.run(slope, {"x": a, "w": c, "grad:product": g})
    np.testing.assert_array_equal(found["grad:w"], a * g)


def test_a_builder_builds_the_model_of_a_file(model: dovetail.Model) -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("n", 4))
        a, z = b.Split(b.Concat(x, x, axis=1), [2, 6], axis=1, outputs=2)
        b.output("y", b.Reshape(a, [-1]))
        b.output("z", z)
    assert_right(dovetail.run(b.model, [X]))
    assert [str(y.type) for y in b.model.outputs] == [str(y.type) for y in model.outputs]


def test_every_public_name_is_there_and_documented() -> None:
    wanted = "Model Dim Builder load save compile run check infer grad interpret ngraph".split()
    from dovetail import ngraph

    assert ngraph.__doc__
    for name in {*wanted, *dovetail.__all__} - {"ngraph"}:
        assert getattr(dovetail, name).__doc__, name


# How a model shows itself


def test_repr_is_short_str_is_the_graph_and_html_is_static(model: dovetail.Model) -> None:
    assert repr(model) == "<Model 'small': (x: f32[n, 4]) -> (y: f32[2*n], z: f32[n, 6]), 5 nodes>"
    assert "c: f32[n, 8] = Concat(x, x; axis=1)" in str(model)
    page = model._repr_html_()
    assert "<table>" in page and "f32[2*n]" in page and "Concat" in page and "<script" not in page


def test_names_from_a_file_are_escaped_wherever_they_are_shown() -> None:
    nasty = "<script>alert(1)</script>\x1b[31m\n\u202e"
    with Builder(nasty) as b:
        b.output(nasty, b.Identity(b.input(f"in{nasty}", "f32", (1,))))
    page = b.model._repr_html_()
    assert "<script>" not in page and "\x1b" not in page and "\u202e" not in page
    assert "\x1b" not in str(b.model) and "\u202e" not in str(b.model)
    error = EngineError("input.missing", nasty, node=nasty, file=nasty)
    assert "\x1b" not in str(error) and str(error).count("\n") == 2


def test_a_long_graph_is_cut_in_a_notebook() -> None:
    with Builder() as b:
        x = b.input("x", "f32", (1,))
        for _ in range(1000):
            x = b.Identity(x)
        b.output("y", x)
    assert len(b.model._repr_html_().splitlines()) < 250


def test_weights_are_not_in_a_repr() -> None:
    with Builder() as b:
        b.output("y", b.Concat(b.input("x", "f32", (1,)), b.constant(np.arange(5000, dtype=np.float32)), axis=0))
    for text in (repr(b.model), str(b.model), repr(b.model.graph.nodes[0]), repr(b.model.graph.nodes[0].op)):
        assert len(text) < 500


# Copies


COPIES: list[Callable[[Any], Any]] = [copy.deepcopy, lambda what: pickle.loads(pickle.dumps(what))]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_models_graphs_and_programs_can_be_copied(copied: Callable[[Any], Any], model: dovetail.Model) -> None:
    other = copied(model)
    assert other.versions == model.versions and str(other) == str(model)
    assert validate(other.graph) == []
    assert not {id(value) for value in other.graph.values()} & {id(value) for value in model.graph.values()}
    rename(other.graph, other.values["c"], "renamed")
    assert "c" in model.values
    assert validate(copied(model.graph)) == []
    assert_right(copied(dovetail.compile(model))(X))


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_long_graphs_and_graphs_in_graphs_are_copied(copied: Callable[[Any], Any]) -> None:
    with Builder() as b:
        x = b.input("x", "f32", (1,))
        branches = []
        for _ in range(2):
            inner = Builder()
            inner.output("o", inner.Identity(inner.input("i", "f32", (1,))))
            branches.append(inner.graph)
        x = b.If(b.input("flag", "boolean", ()), x, then_branch=branches[0], else_branch=branches[1], outputs=1)[0]
        for _ in range(5000):
            x = b.Identity(x)
        b.output("y", x)
    found = copied(b.model)
    assert len(found.graph) == 5001 and validate(found.graph) == []
    np.testing.assert_array_equal(dovetail.run(found, [np.ones(1, np.float32), np.True_])["y"], np.ones(1))


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_parts_of_a_graph_are_not_copied_alone(copied: Callable[[Any], Any], model: dovetail.Model) -> None:
    for part in (model.inputs[0], model.graph.nodes[0]):
        with pytest.raises(TypeError, match="without its graph"):
            copied(part)


def test_errors_survive_pickling() -> None:
    with pytest.raises(DovetailError) as caught:
        dovetail.load("missing.onnx")
    other = pickle.loads(pickle.dumps(caught.value))
    assert str(other) == str(caught.value) and other.code == "file.missing" and isinstance(other, ValueError)


def test_a_graph_can_be_edited_while_it_is_walked(model: dovetail.Model) -> None:
    graph = model.graph
    seen = []
    for node in graph:
        seen.append(node.name)
        graph.nodes = [other for other in graph.nodes if other is not node]
    assert sorted(seen) == ["", "", "cut", "flatten", "join"] and not graph.nodes


# What goes in


class Arrayish:
    """Has `__array__` and nothing else."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.data


class Capsule:
    """Has `__dlpack__` and nothing else."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


def torch_tensor(x: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(x.copy())


def torch_with_gradient(x: Any) -> Any:
    return torch_tensor(x).requires_grad_()


def jax_array(x: Any) -> Any:
    return pytest.importorskip("jax.numpy").asarray(x)


WAYS: list[Callable[[Any], Any]] = [
    np.asarray, np.asfortranarray, Arrayish, Capsule, memoryview, np.ndarray.tolist, torch_tensor, torch_with_gradient, jax_array,
    lambda x: x.astype(">f4"), lambda x: np.repeat(x, 2, axis=1)[:, ::2],
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_any_kind_of_array_is_an_input(way: Callable[[Any], Any], model: dovetail.Model) -> None:
    assert_right(dovetail.run(model, {"x": way(X)}))


FLOATS = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn, np.float16, np.float64]
INTEGERS = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, np.int8, np.uint64, np.bool_]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=lambda dtype: np.dtype(dtype).name)
def test_every_element_type_is_an_input_and_an_output(dtype: Any) -> None:
    x = np.array([0, 1, 1, 0]).astype(dtype)
    with Builder() as b:
        given = b.input("x", np.dtype(dtype), ("n",))
        b.output("y", b.Concat(given, given, axis=0))
    y = dovetail.run(b.model, {"x": x})["y"]
    assert y.dtype == x.dtype
    assert y.tobytes() == np.concatenate([x, x]).tobytes()


def test_string_inputs_are_any_numpy_strings_and_outputs_are_objects() -> None:
    for x in (np.array(["a", "bc"]), np.array(["a", "bc"], dtype=object), ["a", "bc"]):
        y = dovetail.run(identity("string"), {"x": x})["y"]
        assert y.dtype == object and y.tolist() == ["a", "bc"]


def test_torch_bfloat16_is_an_input() -> None:
    torch = pytest.importorskip("torch")
    y = dovetail.run(identity("bf16"), {"x": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)})["y"]
    assert y.dtype == ml_dtypes.bfloat16 and y.astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("dtype", "given", "found"),
    [
        ("i64", [1, 2], [1, 2]),
        ("f32", [1, 0.1], [1, np.float32(0.1)]),
        ("u8", [255], [255]),
        ("boolean", [True], [True]),
        ("f16", [3], [3]),
    ],
)
def test_python_numbers_take_the_type_of_the_input(dtype: str, given: Any, found: Any) -> None:
    assert dovetail.run(identity(dtype), {"x": given})["y"].tolist() == found


BAD_INPUTS: list[tuple[str, str, Any]] = [
    ("input.missing", "'x'", {}),
    ("input.unknown", "'other'", {"x": X, "other": X}),
    ("input.count", "'x'", (X, X)),
    ("input.dtype", "'x'", {"x": X.astype(np.float64)}),
    ("input.dtype", "'x'", {"x": X.astype(np.int32)}),
    ("input.dtype", "'x'", {"x": [["a"] * 4]}),
    ("input.dtype", "'x'", {"x": np.zeros((3, 4), "datetime64[s]")}),
    ("input.shape", "'x'", {"x": X[0]}),
    ("input.shape", "'x'", {"x": X[:, :3]}),
    ("input.type", "'x'", {"x": object()}),
    ("input.type", "'x'", {"x": [[1.0, 2.0], [3.0]]}),
    ("input.type", "'x'", {"x": None}),
]


@pytest.mark.parametrize(("code", "name", "inputs"), BAD_INPUTS)
def test_inputs_that_do_not_fit_are_refused_by_name(code: str, name: str, inputs: Any, model: dovetail.Model) -> None:
    program = dovetail.compile(model)
    with pytest.raises(EngineError) as caught:
        program(*inputs) if isinstance(inputs, tuple) else program(inputs)
    assert caught.value.code == code and name in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "given"), [("i64", [1.5]), ("u8", [256]), ("u8", [-1]), ("i64", [2**63]), ("boolean", [1]), ("f32", [True])]
)
def test_python_numbers_are_not_narrowed(dtype: str, given: Any) -> None:
    with pytest.raises(EngineError) as caught:
        dovetail.run(identity(dtype), {"x": given})
    assert caught.value.code in ("input.dtype", "input.type")


def test_a_symbol_has_one_size_in_all_inputs() -> None:
    with Builder() as b:
        x, y = b.input("x", "f32", ("n",)), b.input("y", "f32", ("2*n",))
        b.output("z", b.Concat(x, y, axis=0))
    program = dovetail.compile(b.model)
    assert program(np.zeros(2, np.float32), np.zeros(4, np.float32))["z"].shape == (6,)
    with pytest.raises(EngineError, match="'y'"):
        program(np.zeros(2, np.float32), np.zeros(5, np.float32))


def test_an_unknown_engine_is_refused(model: dovetail.Model) -> None:
    with pytest.raises(EngineError, match="interpreter"):
        dovetail.compile(model, engine="warp")


# What comes out


def assert_own(outputs: dict[str, Any], others: list[Any]) -> None:
    arrays = list(outputs.values())
    for index, array in enumerate(arrays):
        assert array.flags.owndata and array.flags.writeable
        for other in (*arrays[index + 1 :], *others):
            assert not np.shares_memory(array, other)


@pytest.mark.parametrize("dtype", ["f32", "string"])
def test_outputs_share_no_memory_with_inputs_constants_or_each_other(dtype: str) -> None:
    weight = np.arange(3).astype(np.float32) if dtype == "f32" else np.array(["a", "b", "c"], dtype=object)
    with Builder() as b:
        x = b.input("x", dtype, (3,))
        c = b.constant(weight, dtype)
        b.output("copy", b.Identity(x))
        b.output("input", x)
        b.output("view", b.Reshape(x, [1, 3]))
        b.output("weight", c)
        b.output("again", b.Reshape(c, [3, 1]))
        for index, part in enumerate(b.Split(b.Concat(x, x, axis=0), axis=0, outputs=2)):
            b.output(f"part{index}", part)
    program = dovetail.compile(b.model)
    x_array = weight.copy()
    outputs = program(x_array)
    constants = [node.op.data for node in program.model.graph.nodes if hasattr(node.op, "data")]
    assert_own(outputs, [x_array, weight, *constants])
    for array in outputs.values():
        array[...] = weight[2]
    again = program(x_array)
    assert again["copy"].tolist() == weight.tolist() and again["weight"].tolist() == weight.tolist()


def test_a_constant_does_not_change_with_its_array() -> None:
    weight = np.ones(3, np.float32)
    with Builder() as b:
        b.output("y", b.Concat(b.input("x", "f32", (3,)), b.constant(weight), axis=0))
    weight[:] = 7
    assert dovetail.run(b.model, [np.zeros(3, np.float32)])["y"].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_program_keeps_the_model_it_was_made_of(model: dovetail.Model) -> None:
    program = dovetail.compile(model)
    model.graph.outputs.clear()
    assert_right(program(X))


# Any library


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "jax.numpy", "dask.array"])
def test_interpret_computes_in_the_library_it_is_given(library: str, model: dovetail.Model) -> None:
    xp = pytest.importorskip(library)
    found = dovetail.interpret(model, {"x": X}, xp=xp)
    kinds = {"numpy": "ndarray", "torch": "Tensor", "jax": "ArrayImpl", "jax.numpy": "ArrayImpl", "dask.array": "Array"}
    for name, wanted in expected().items():
        assert type_name(found[name]) == kinds[library]
        np.testing.assert_array_equal(np.asarray(found[name]), wanted)


def test_torch_tensors_stay_torch_tensors(model: dovetail.Model) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X.copy()).requires_grad_()
    found = dovetail.interpret(model, {"x": x}, xp=torch)
    found["y"].sum().backward()
    assert x.grad.tolist() == [[1, 1, 0, 0]] * 3


@pytest.mark.parametrize("shapes", [((6, 4), (2, 3, 4)), ((2, 3, 4), (6, 4)), ((6, 4), (6, 2, 2)), ((4, 6), (24,))])
def test_dask_stays_lazy(shapes: Any) -> None:
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array")
    first, second = shapes
    with Builder() as b:
        x = b.input("x", "f32", first)
        left, right = b.Split(b.Concat(x, x, axis=0), axis=0, outputs=2)
        b.output("y", b.Reshape(left, list(second)))
        b.output("z", right)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was computed")

    data = np.arange(np.prod(first), dtype=np.float32).reshape(first)
    with dask.config.set(scheduler=forbidden):
        found = dovetail.interpret(b.model, [array.from_array(data, chunks=tuple(max(1, size // 2) for size in first))], xp=array)
    assert all(isinstance(each, array.Array) for each in found.values())
    np.testing.assert_array_equal(found["y"].compute(), data.reshape(second))
    np.testing.assert_array_equal(found["z"].compute(), data)


def test_a_computed_target_is_found_without_computing_the_data() -> None:
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array")
    with Builder() as b:
        x = b.input("x", "f32", ("n", "m", 2))
        target = b.Concat(b.Gather(b.Shape(x), [0], axis=0), [-1], axis=0)
        b.output("y", b.Reshape(x, target))
    with dask.config.set(scheduler=lambda *_, **__: 1 / 0):
        found = dovetail.interpret(b.model, [array.zeros((4, 3, 2), chunks=(2, 3, 2), dtype="f4")], xp=array)
    assert isinstance(found["y"], array.Array) and found["y"].shape == (4, 6)
    jax = pytest.importorskip("jax.numpy")
    assert dovetail.interpret(b.model, [jax.zeros((4, 3, 2), dtype="f4")], xp=jax)["y"].shape == (4, 6)


def test_a_module_that_is_no_array_library_is_refused_by_name(model: dovetail.Model) -> None:
    with pytest.raises(dovetail.UnsupportedError, match="math"):
        import math

        dovetail.interpret(model, [X], xp=math)


def test_element_types_that_a_library_lacks_are_refused_by_name() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(dovetail.UnsupportedError, match="bf16"):
        dovetail.interpret(identity("bf16"), [np.zeros(2, ml_dtypes.bfloat16)], xp=torch)


def test_an_array_of_the_wrong_type_is_refused_in_any_library(model: dovetail.Model) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(EngineError, match="'x' must be f32, got f64"):
        dovetail.interpret(model, [torch.zeros((3, 4), dtype=torch.float64)], xp=torch)


# Manners


def test_importing_prints_nothing_and_imports_no_other_array_library() -> None:
    script = (
        "import sys, dovetail\n"
        "late = {'torch', 'jax', 'dask', 'onnx', 'onnxruntime', 'openvino', 'array_api_compat', 'rich', 'click'}\n"
        "print(sorted(late & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_nothing_is_printed_or_logged_to_the_root(model: dovetail.Model, capfd: pytest.CaptureFixture[str]) -> None:
    dovetail.run(model, [X])
    dovetail.check(model)
    assert capfd.readouterr() == ("", "")
    assert all(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("dovetail").handlers)


# Signatures, examples and docstrings of the public functions

FUNCTIONS = [name for name in dovetail.__all__ if not isinstance(getattr(dovetail, name), type)]
MAX_PARAMETERS = 9
MORE_PARAMETERS = {"compile": 10}
"""A program is reproducible or not beside its precision, engine and threads."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_few_parameters_with_names(name: str) -> None:
    parameters = inspect.signature(inspect.unwrap(getattr(dovetail, name))).parameters
    assert len(parameters) <= MORE_PARAMETERS.get(name, MAX_PARAMETERS)
    assert not any(each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) for each in parameters.values())
    assert "backend" not in parameters, "the word is engine"


@pytest.mark.parametrize("name", [*FUNCTIONS, "Builder", "DeviceOptions", "Inputs", "Limits", "MapOptions", "Mapper"])
def test_a_misspelt_parameter_gets_a_suggestion(name: str) -> None:
    function = getattr(dovetail, name)
    last = [*inspect.signature(inspect.unwrap(function)).parameters][-1]
    with pytest.raises(ArgumentTypeError, match=f"{name} has no parameter '{last}x': did you mean '{last}'") as caught:
        function(**{f"{last}x": None})
    assert caught.value.code == "attribute.unknown"


def test_a_missing_argument_is_distinguished_from_an_error_inside() -> None:
    with pytest.raises(ArgumentTypeError, match="load: missing a required argument: 'source'") as caught:
        dovetail.load()  # type: ignore[call-arg]
    assert caught.value.code == "argument.type"
    with Builder() as b:
        b.output("y", b.Relu(b.input("x", "f32", (2,))))
    with pytest.raises(TypeError, match="inside") as inside:
        dovetail.reduce(b.model, _fails_inside)
    assert not isinstance(inside.value, DovetailError)


def _fails_inside(path: str) -> bool:
    raise TypeError(f"inside the check of {path}")


def test_dir_and_help_show_the_public_names() -> None:
    """In a new process, so that no other test has imported submodules."""
    code = """
import dovetail, pydoc
print(*dir(dovetail))
print(pydoc.plain(pydoc.render_doc(dovetail)))
import dovetail.cli
assert "cli" not in dir(dovetail) and callable(dovetail.cli.main)
"""
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    names, _, page = text.partition("\n")
    assert sorted(names.split()) == sorted([*dovetail.__all__, "__version__", "compat", "ngraph"])
    sections = dict(re.findall(r"^([A-Z ]+)\n((?: .*\n|\n)+)", page, re.MULTILINE))
    classes = re.findall(r"^    class (\w+)\(", sections["CLASSES"], re.MULTILINE)
    functions = re.findall(r"^    (\w+)\(", sections["FUNCTIONS"], re.MULTILINE)
    assert sorted([*classes, *functions]) == sorted(dovetail.__all__)


CHANGES = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in RENAMED if "(" in name])
def test_an_earlier_parameter_leads_to_the_new_one(name: str) -> None:
    """The changelog has the earlier name in its table, and the function names the new one."""
    function, parameter = re.findall(r"\w+", name)
    assert any(function in row and f"{parameter}=" in row for row in CHANGES.splitlines() if row.startswith("| `"))
    with pytest.raises(ArgumentTypeError, match=re.escape(f"did you mean {RENAMED[name]}?")):
        getattr(dovetail, function)(**{parameter: None})


@pytest.mark.parametrize("name", [name for name in RENAMED if "(" not in name and "." not in name])
def test_an_earlier_pass_leads_to_the_new_one(name: str) -> None:
    assert f"| `{name}` | `{RENAMED[name]}` |" in CHANGES
    with pytest.raises(DovetailError, match=f"did you mean '{RENAMED[name]}'"):
        dovetail.simplify(Builder().model, skip=[name])


@pytest.mark.parametrize("name", [name for name in RENAMED if name.startswith("Model.")])
def test_an_earlier_method_of_a_model_leads_to_the_new_one(name: str) -> None:
    method, model = name.removeprefix("Model."), Builder().model
    assert re.search(rf"\| `model\.{method}\(.*\| `model\.{RENAMED[name]}\(", CHANGES)
    assert callable(getattr(model, RENAMED[name])) and not hasattr(model, method)
    with pytest.raises(DovetailError, match=rf"has no attribute '{method}': did you mean '{RENAMED[name]}'"):
        getattr(model, method)


def test_a_model_copied_and_pickled_lacks_unknown_attributes() -> None:
    model = pickle.loads(pickle.dumps(copy.deepcopy(Builder().model)))
    with pytest.raises(AttributeError, match="has no attribute 'grpah'") as caught:
        _ = model.grpah
    assert (caught.value.name, caught.value.obj) == ("grpah", model)


@pytest.mark.usefixtures("forget_operators")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_docstring_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = inspect.cleandoc(getattr(dovetail, name).__doc__)
    example = doctest.DocTestParser().get_doctest(text, {"dovetail": dovetail, "np": np}, name, None, 0)
    found = doctest.DocTestRunner().run(example)
    assert found.attempted and not found.failed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_names_the_codes_of_its_errors(name: str) -> None:
    """Every test compares the codes that a public function raises with these (``call_codes``)."""
    assert call_codes.documented_codes(name)


def test_an_undocumented_code_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder sees the errors of public functions, also those that are called through the native core."""
    monkeypatch.setattr(call_codes, "is_documented", lambda name, code: False)
    with pytest.raises(DovetailError):
        dovetail.load("missing.onnx")
    with pytest.raises(DovetailError):
        dovetail.concat([], 0)
    recorded, call_codes.UNDOCUMENTED[:] = call_codes.UNDOCUMENTED[:], []
    assert recorded == ["load [file.missing]", "concat [node.inputs]"]


@pytest.mark.parametrize("function", [dovetail.plan, dovetail.profile, dovetail.bisect, dovetail.compare_layers])
@pytest.mark.parametrize("inputs", [[X], X, 3])
def test_inputs_that_are_not_by_name_are_refused(function: Callable[..., Any], inputs: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="inputs must be arrays by name, got"):
        function(identity("f32"), inputs=inputs)
    with pytest.raises(ArgumentTypeError, match="inputs must be arrays by name, got"):
        dovetail.rebatch(identity("f32"), {"n": "m"}, inputs=inputs)


def test_options_of_another_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"argument\.type.*options must be MapOptions"):
        dovetail.map_rows("model.onnx", "rows.npy", tmp_path, options={"part_rows": 2})  # type: ignore[arg-type]


def test_a_report_stays_with_the_model_that_a_function_returned(tmp_path: Path) -> None:
    with Builder() as b:
        b.output("y", b.Negative(b.Negative(b.input("x", "f32", ("n", 2)))))
    model = dovetail.simplify(b.model)
    assert isinstance(model.report, dovetail.SimplifyReport) and b.model.report is None
    assert pickle.loads(pickle.dumps(model)).report == model.report
    dovetail.save(model, tmp_path / "y.onnx")
    others = [
        copy.deepcopy(model), dovetail.load(tmp_path / "y.onnx"), dovetail.extract(model, outputs="y"), dovetail.infer(model),
        dovetail.compile(model, limits=dovetail.Limits(nodes=5)).model,
        dovetail.merge(model, model, connect={}, prefix_second="b/"),
    ]  # fmt: skip
    assert [other.report for other in others] == [None] * len(others)
    assert dovetail.reduce(model, lambda path: True).report.nodes_after <= 1 and model.report.nodes_before == 2
