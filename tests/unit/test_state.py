"""State: kept by OpenVINO inside of a model, by us between calls, and by onnxruntime's user in plain inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail.ir.state import State, own_inputs, own_outputs

openvino = pytest.importorskip("openvino")
onnxruntime = pytest.importorskip("onnxruntime")

ENGINES = ("interpreter", "native")


def _variable(shape: list[int], name: str = "memory") -> Any:
    from openvino.op.util import Variable, VariableInfo

    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape(shape), openvino.Type.f32, name
    return Variable(info)


def _model(x: Any, y: Any, sinks: list[Any], path: Path) -> Path:
    from openvino import opset1

    x.output(0).get_tensor().set_names({"x"})
    y.output(0).get_tensor().set_names({"y"})
    openvino.serialize(openvino.Model([opset1.result(y)], sinks, [x], "state"), path)
    return path


def _sum(path: Path) -> Path:
    """Build the sum of all inputs so far, which begins with a constant."""
    from openvino import opset6 as o

    x, variable = o.parameter([2, 3], np.float32, name="x"), _variable([2, 3])
    after = o.add(o.read_value(o.constant(np.full((2, 3), 5, np.float32)), variable), x)
    return _model(x, o.multiply(after, o.constant(np.float32(2))), [o.assign(after, variable)], path)


def _begun_by_input(path: Path) -> Path:
    """As many rows as the input has, of ones."""
    from openvino import opset6 as o

    x, variable = o.parameter([-1, 3], np.float32, name="x"), _variable([-1, 3])
    first = o.broadcast(o.constant(np.float32(1)), o.shape_of(x))
    after = o.add(o.read_value(first, variable), x)
    return _model(x, o.negative(after), [o.assign(after, variable)], path)


def _cache(path: Path) -> Path:
    """All rows that came so far, from none."""
    from openvino import opset6 as o

    x, variable = o.parameter([-1, 3], np.float32, name="x"), _variable([-1, 3])
    nothing = openvino.op.Constant(openvino.Type.f32, openvino.Shape([0, 3]), [])
    after = o.concat([o.read_value(nothing, variable), x], 0)
    return _model(x, o.reduce_sum(after, o.constant(np.int64([0])), True), [o.assign(after, variable)], path)


def _before(path: Path) -> Path:
    """Build the input of the call before, and more of it; at first zeros."""
    from openvino import opset6 as o

    x, variable = o.parameter([2, 3], np.float32, name="x"), _variable([2, 3])
    before = o.read_value(variable)
    return _model(x, o.negative(before), [o.assign(o.exp(x), variable)], path)


def _two(path: Path) -> Path:
    """Two variables, of which each becomes what the other was."""
    from openvino import opset6 as o

    x, variables = o.parameter([2, 3], np.float32, name="x"), [_variable([2, 3], name) for name in ("one", "two")]
    one = o.read_value(o.constant(np.full((2, 3), 1, np.float32)), variables[0])
    two = o.read_value(o.constant(np.full((2, 3), 2, np.float32)), variables[1])
    sinks = [o.assign(two, variables[0]), o.assign(o.add(one, x), variables[1])]
    return _model(x, o.subtract(one, two), sinks, path)


MODELS = [_sum, _begun_by_input, _cache, _before, _two]
X = [np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32) for seed in range(4)]


def _answers(path: Path) -> list[Any]:
    request = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    return [np.array(request.infer([x])[0]) for x in X]


every_model = pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__.strip("_"))


@every_model
@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_keeps_the_states_of_openvino(make: Callable[[Path], Path], engine: str, tmp_path: Path) -> None:
    path = make(tmp_path / "state.xml")
    program = dovetail.compile(path, engine)
    session = program.session()
    for _ in range(2):
        for x, expected in zip(X, _answers(path), strict=True):
            found = session({"x": x})
            assert list(found.keys()) == ["y"]
            np.testing.assert_allclose(found["y"], expected, rtol=1e-6)
        session.reset()


@every_model
def test_a_program_resets_its_states_at_each_call(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path / "state.xml")
    program, first = dovetail.compile(path), _answers(path)[0]
    for _ in range(2):
        np.testing.assert_allclose(program(X[0])["y"], first, rtol=1e-6)


@every_model
def test_onnx_has_states_as_inputs_and_outputs(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path / "state.xml")
    model = dovetail.load(path)
    dovetail.save(model, tmp_path / "state.onnx")
    session = onnxruntime.InferenceSession((tmp_path / "state.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    kept: dict[str, Any] = {}
    for x, expected in zip(X, _answers(path), strict=True):
        for state in model.states:
            if state.input not in kept:
                blank = np.zeros(
                    [size if isinstance(size, int) else len(x) for size in model.values[state.input].dims], np.float32
                )
                given = {"x": x, **{each.input: blank for each in model.states}}
                kept[state.input] = blank if state.initial is None else session.run([state.initial], given)[0]
        found = dict(zip(names, session.run(None, {"x": x, **kept}), strict=True))
        np.testing.assert_allclose(found["y"], expected, rtol=1e-6)
        kept = {state.input: found[state.output] for state in model.states}


@every_model
def test_states_are_restored_from_onnx(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path / "state.xml")
    first = dovetail.load(path)
    counts = []
    for round_ in range(2):
        dovetail.save(first, tmp_path / f"{round_}.onnx")
        first = dovetail.load(tmp_path / f"{round_}.onnx")
        assert first.states == dovetail.load(path).states
        dovetail.save(first, tmp_path / f"{round_}.xml")
        for found, expected in zip(_answers(tmp_path / f"{round_}.xml"), _answers(path), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        first = dovetail.load(tmp_path / f"{round_}.xml")
        counts.append(len(first.graph.nodes))
        assert [value.name for value in own_inputs(first)] == ["x"]
        assert [value.name for value in own_outputs(first)] == ["y"]
    assert counts[1] <= counts[0]


def test_states_are_named_by_their_variables(tmp_path: Path) -> None:
    model = dovetail.load(_sum(tmp_path / "state.xml"))
    assert model.states == [State("memory", "memory", "memory/next", "memory/first")]
    assert dovetail.load(_before(tmp_path / "before.xml")).states == [State("memory", "memory", "memory/next")]


def test_a_variable_that_is_kept_twice_is_refused(tmp_path: Path) -> None:
    path = _two(tmp_path / "state.xml")
    path.write_text(path.read_text().replace('variable_id="two"', 'variable_id="one"'))
    with pytest.raises(DovetailError, match="got two"):
        dovetail.load(path)


def test_states_that_a_graph_no_longer_has_are_none(tmp_path: Path) -> None:
    model = dovetail.load(_before(tmp_path / "state.xml"))
    dovetail.save(model, tmp_path / "state.onnx")
    data = (tmp_path / "state.onnx").read_bytes()
    (tmp_path / "other.onnx").write_bytes(data.replace(b'"memory/next"', b'"memory/NEXT"'))
    assert dovetail.load(tmp_path / "other.onnx").states == []


def test_a_conversion_with_state_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dovetail.cli import main

    for make in (_sum, _cache, _begun_by_input):
        source = make(tmp_path / f"{make.__name__}.xml")
        for first, second in ((source, source.with_suffix(".onnx")), (source.with_suffix(".onnx"), tmp_path / "back.xml")):
            with pytest.raises(SystemExit) as ended:
                main(["convert", str(first), str(second), "--verify"])
            assert ended.value.code == 0, capsys.readouterr().err
