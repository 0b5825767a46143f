"""A session takes what a program takes: every form of a call, for every kind of program."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import EngineError
from dovetail.ir.state import State

X = [np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32) for seed in range(3)]
W = np.arange(3, dtype=np.float32)


def _build_accumulator() -> dovetail.Model:
    """Build h_next = h + x * w, y = 2 * h_next and z = -h_next, with the state h. The input x has the alias "image"."""
    with dovetail.Builder("accumulator") as b:
        x, w, h = b.input("x", "f32", (2, 3)), b.input("w", "f32", (3,)), b.input("h", "f32", (2, 3))
        after = h + x * w
        b.output("y", after * 2)
        b.output("h_next", after)
        b.output("z", -after)
    model = b.model
    model.states = [State("h", "h", "h_next")]
    model.graph.inputs[0].names = ["image"]
    return model


def _model_with_cache() -> dovetail.Model:
    """Build the sum over all rows so far, which Concat collects in a growing cache."""
    with dovetail.Builder("cached") as b:
        x, w = b.input("x", "f32", (2, 3)), b.input("w", "f32", (3,))
        past = b.input("past", "f32", ("n", 3))
        rows = b.Concat(past, x * w, axis=0)
        b.output("y", b.ReduceSum(rows, [0]))
        b.output("rows", rows)
        b.output("z", -x)
    model = b.model
    model.graph.inputs[0].names = ["image"]
    return model


def _compile_native(path: Path) -> Any:
    return dovetail.compile(_build_accumulator(), threads=1)


def _compile_with_interpreter(path: Path) -> Any:
    return dovetail.compile(_build_accumulator(), "interpreter")


def _compile_from_plan_cache(path: Path) -> Any:
    dovetail.save(_build_accumulator(), path / "model.onnx")
    options: Any = {"threads": 1, "cache_dir": path / "cache"}
    with dovetail.compile(path / "model.onnx", **options) as program:
        program(*X[:1], W)
    return dovetail.compile(path / "model.onnx", **options)


def _compile_with_caches(path: Path) -> Any:
    return dovetail.compile(_model_with_cache(), threads=1, reuse_caches=True)


PROGRAMS = {
    "native": _compile_native,
    "interpreted": _compile_with_interpreter,
    "plan cache": _compile_from_plan_cache,
    "caches": _compile_with_caches,
}

FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "in order": lambda call, x: call(x, W),
    "a list": lambda call, x: call([x, W]),
    "a tuple": lambda call, x: call((x, W)),
    "keywords": lambda call, x: call(x=x, w=W),
    "a dict": lambda call, x: call({"w": W, "x": x}),
    "another mapping": lambda call, x: call(MappingProxyType({"x": x, "w": W})),
    "a mapping and keywords": lambda call, x: call(OrderedDict(x=x), w=W),
    "python lists": lambda call, x: call(x=x.tolist(), w=[0.0, 1.0, 2.0]),
}
REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "too few": lambda call, x: call(x),
    "too many": lambda call, x: call(x, W, x, x, x),
    "in order and by name": lambda call, x: call(x, w=W),
    "twice": lambda call, x: call({"x": x, "w": W}, x=x),
    "an unknown name": lambda call, x: call(x=x, w=W, v=W),
    "none": lambda call, x: call(),
    "a wrong shape": lambda call, x: call(x[:1], W),
    "a wrong type": lambda call, x: call(x.astype(np.float64), W),
    "an unknown output": lambda call, x: call(x, W, out={"v": x}),
    "a wrong output": lambda call, x: call(x, W, out={"y": np.empty(7, np.float32)}),
    "no list of outputs": lambda call, x: call(x, W, out=np.empty((2, 3), np.float32)),
    "one array for two outputs": lambda call, x: call(x, W, out=dict.fromkeys("yz", np.empty((2, 3), np.float32))),
}

every_program = pytest.mark.parametrize("kind", PROGRAMS)


def _outputs_of(kind: str, calls: int) -> tuple[Any, Any]:
    """Return y and z of the last of some calls."""
    if kind == "caches":
        return np.concatenate(X[:calls]).sum(0, keepdims=True) * W, -X[calls - 1]
    state = sum(X[:calls]) * W
    return state * 2, -state


def _check(kind: str, calls: int, results: Any) -> None:
    assert list(results.keys()) == ["y", "z"]
    for found, expected in zip((results[0], results["z"]), _outputs_of(kind, calls), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@every_program
@pytest.mark.parametrize("form", FORMS)
def test_a_session_takes_every_form_of_a_call(kind: str, form: str, tmp_path: Path) -> None:
    program = PROGRAMS[kind](tmp_path)
    session = program.session()
    for index, x in enumerate(X):
        _check(kind, index + 1, FORMS[form](session, x))
    if kind != "caches":
        # A call of the program begins with the initial states.
        np.testing.assert_allclose(FORMS[form](program, X[0])["y"], _outputs_of(kind, 1)[0], rtol=1e-5, atol=1e-6)


@every_program
def test_a_session_takes_aliases(kind: str, tmp_path: Path) -> None:
    program = PROGRAMS[kind](tmp_path)
    if "image" not in program.inputs[0].names:
        pytest.skip("an ONNX file holds no aliases")
    session = program.session()
    for index, x in enumerate(X):
        _check(kind, index + 1, session(image=x, w=W) if index else session({"image": x}, w=W))


@every_program
def test_a_session_takes_states_in_order_and_by_name(kind: str, tmp_path: Path) -> None:
    session = PROGRAMS[kind](tmp_path).session()
    name = "past" if kind == "caches" else "h"
    first = np.zeros((0, 3) if kind == "caches" else (2, 3), np.float32)
    session(X[1], W)
    _check(kind, 1, session(X[0], W, first))
    _check(kind, 2, session(X[1], W))
    _check(kind, 1, session({"x": X[0]}, w=W, **{name: first}))


@every_program
def test_a_session_writes_into_out(kind: str, tmp_path: Path) -> None:
    """``out`` is a dict, or a list with an entry for each output that is no state."""
    session = PROGRAMS[kind](tmp_path).session()
    shapes = [np.shape(item) for item in _outputs_of(kind, 1)]
    y, z = (np.empty(shape, np.float32) for shape in shapes)
    for index, (x, out) in enumerate(zip(X, ([y, z], {"y": y}, [None, z]), strict=True)):
        results = session(x, W, out=out)
        assert results["y"] is y or index == 2
        assert results["z"] is z or index == 1
        _check(kind, index + 1, results)
    name = "rows" if kind == "caches" else "h_next"
    for out in ({name: y}, [y, None, z]):
        with pytest.raises(EngineError, match=r"output\.unknown|output\.array"):
            session(X[0], W, out=out)


@every_program
@pytest.mark.parametrize("form", REFUSED)
def test_a_session_and_its_program_refuse_equal_calls(kind: str, form: str, tmp_path: Path) -> None:
    """The codes are equal, and the session keeps its states."""
    program = PROGRAMS[kind](tmp_path)
    session = program.session()
    session(X[0], W)
    if kind != "caches":
        with pytest.raises(EngineError) as expected:
            REFUSED[form](program, X[0])
    with pytest.raises(EngineError) as caught:
        REFUSED[form](session, X[0])
    assert kind == "caches" or caught.value.code == expected.value.code
    _check(kind, 2, session(X[1], W))


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_a_session_takes_optional_inputs(engine: str) -> None:
    """A default value, which an ONNX initializer of the input's name gives, may be replaced at each call."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("w", [3]))]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])]
    weights = [onnx.numpy_helper.from_array(W, "w")]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=[helper.make_opsetid("", 18)]
    )
    program = dovetail.compile(dovetail.load(proto), engine)
    session = program.session()
    for call in (program, session):
        np.testing.assert_array_equal(call(X[0])[0], X[0] * W)
        np.testing.assert_array_equal(call(x=X[0], w=W + 1)[0], X[0] * (W + 1))
        np.testing.assert_array_equal(call({"x": X[0]}, w=W + 1)[0], X[0] * (W + 1))
    with pytest.raises(EngineError, match=r"input\.unknown"):
        session(x=X[0], v=W)


@pytest.mark.parametrize("item", [[1, 2, 3], [[1, 2, 3]], np.array([1, 2, 3], np.float32)], ids=["elements", "inputs", "array"])
def test_a_list_is_the_elements_or_the_inputs(item: Any) -> None:
    with dovetail.Builder("one") as b:
        b.output("y", b.Relu(b.input("x", "f32", (3,))))
    program = dovetail.compile(b.model)
    for call in (program, program.session()):
        np.testing.assert_array_equal(call(item)[0], [1, 2, 3])
