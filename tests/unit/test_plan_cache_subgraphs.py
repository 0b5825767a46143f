"""compile(cache_dir=...) of models with If, Loop and Scan: the same results from a cached plan, and no trust in its entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail.ir.host import native_core
from dovetail.runtime.native_program import NativeProgram
from dovetail.runtime.plan_cache.cached_program import CachedProgram
from unit.test_plan_cache import assert_same, only_entry, signed, start

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the native core is not compiled")

Inputs = dict[str, np.ndarray[Any, Any]]

BRANCH = """
m (float[2,6] x, bool c) => (float[2,5] y) <float[6,5] w, float[6,5] v> {
    p = MatMul(x, w)
    y = If (c) <
        then_branch = t () => (float[2,5] r) { q = Relu(p)  r = Add(q, q) },
        else_branch = e () => (float[2,5] r) { q = MatMul(x, v)  r = Sub(q, p) }
    >
}
"""
NESTED = """
m (float[2,6] x, bool c, bool d) => (float[2,6] y) <float[6,6] w> {
    p = MatMul(x, w)
    z = If (c) <
        then_branch = t () => (float[2,6] r) {
            q = Relu(p)
            r = If (d) <
                then_branch = tt () => (float[2,6] s) { s = Mul(q, x) },
                else_branch = te () => (float[2,6] s) { s = MatMul(q, w) }
            >
        },
        else_branch = e () => (float[2,6] r) { r = Neg(p) }
    >
    y = Add(z, x)
}
"""
LOOP = """
m (int64 n, float[3,4] x) => (float[3,4] last, float[k,3,4] all) <float[4,4] w> {
    yes = Constant <value = bool {1}> ()
    last, all = Loop (n, yes, x) <body = b (int64 i, bool going, float[3,4] s) => (bool on, float[3,4] t, float[3,4] u) {
        on = Identity(going)
        p = MatMul(s, w)
        t = Tanh(p)
        u = Add(t, x)
    }>
}
"""
COUNTED = (
    LOOP.replace("int64 n, float", "float").replace("yes =", "n = Constant <value = int64 {5}> () yes =").replace("[k,", "[5,")
)
SCAN = """
m (float[3,4] x, float[6,3,4] xs) => (float[3,4] last, float[6,3,4] ys) <float[4,4] w> {
    last, ys = Scan <num_scan_inputs = 1, scan_input_directions = [1],
                     body = b (float[3,4] s, float[3,4] e) => (float[3,4] t, float[3,4] u) {
        p = MatMul(s, w)
        t = Tanh(p)
        u = Mul(t, e)
    }> (x, xs)
}
"""


def save(text: str, path: Path) -> Path:
    """Write a model from onnx's text form, with random numbers for the values that it declares in front of its nodes."""
    generator = np.random.default_rng(1)
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(header + text)
    for value in list(model.graph.value_info):
        sizes = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        data = (generator.standard_normal(sizes) / 2).astype("f4")
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, value.name))
    del model.graph.value_info[:]
    onnx.save(model, str(path))
    return path


def inputs_of(path: Path, **given: Any) -> Inputs:
    generator = np.random.default_rng(2)
    feed: Inputs = {}
    for value in dovetail.load(path).inputs:
        if value.name in given:
            feed[value.name] = np.array(given[value.name])
        else:
            feed[value.name] = generator.standard_normal(value.shape).astype("f4")
    return feed


def expected_of(path: Path, inputs: Inputs) -> Inputs:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs), strict=True))


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "then": (BRANCH, {"c": True}),
    "else": (BRANCH, {"c": False}),
    "nested": (NESTED, {"c": True, "d": False}),
    "counted loop": (COUNTED, {}),
    "scan": (SCAN, {}),
}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_second_program_gives_the_same_bits(kind: str, threads: int, tmp_path: Path, cache: Path) -> None:
    text, given = CASES[kind]
    path = save(text, tmp_path / "model.onnx")
    inputs = inputs_of(path, **given)
    first = start(path, cache, threads=threads)
    expected = first(inputs)
    second = start(path, cache, threads=threads)
    assert type(first) is NativeProgram and type(second) is CachedProgram
    for _ in range(3):
        assert_same(second(inputs), expected)
    assert not second.has_model
    for name, array in expected_of(path, inputs).items():
        np.testing.assert_allclose(second(inputs)[name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("first", [True, False])
def test_a_branch_that_the_entry_lacks_compiles_the_model(first: bool, tmp_path: Path, cache: Path) -> None:
    path = save(BRANCH, tmp_path / "model.onnx")
    start(path, cache)(inputs_of(path, c=first))
    program: Any = start(path, cache)
    plain = dovetail.compile(path)
    for condition in [not first, first] * 12:
        inputs = inputs_of(path, c=condition)
        assert_same(program(inputs), plain(inputs))
    assert program.has_model


def test_a_call_that_fails_leaves_the_plan_to_the_next_one(tmp_path: Path, cache: Path) -> None:
    path = save(BRANCH, tmp_path / "model.onnx")
    program = start(path, cache)
    with pytest.raises(DovetailError):
        program({"x": np.zeros((3, 6), "f4"), "c": np.array(True)})
    assert not list(cache.iterdir())
    program(inputs_of(path, c=True))
    assert type(start(path, cache)) is CachedProgram


def test_trips_are_counted_in_a_cached_plan(tmp_path: Path, cache: Path) -> None:
    path = save(COUNTED, tmp_path / "model.onnx")
    for trips, is_refused in ((5, False), (4, True)):
        for _ in range(2):
            program = start(path, cache, limits=dovetail.Limits(trips=trips))
            if is_refused:
                with pytest.raises(DovetailError) as error:
                    program(inputs_of(path))
                assert error.value.code == "loop.trips"
            else:
                program(inputs_of(path))
    assert only_entry(cache)


def control(header: dict[str, Any]) -> Any:
    return next(step for step in header["steps"] if step[0] in ("add_if", "add_loop"))


def arguments(header: dict[str, Any]) -> Any:
    return control(header)[1]


def subgraph(header: dict[str, Any]) -> Any:
    return control(header)[2][0]


def nest(header: dict[str, Any]) -> None:
    """Subgraphs within each other, deeper than any model."""
    own = {"arena": header["arena"], "steps": list(header["steps"])}
    for _ in range(100):
        step = ["add_if", [arguments(header)[0], [], []], [[0, [], [], [], own]]]
        own = {"arena": 64, "steps": [step]}
    header["steps"].insert(0, own["steps"][0])


HUGE = [1 << 40] * 4
IN_IF: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no arguments": lambda header: control(header).__setitem__(1, []),
    "a condition of another type": lambda header: arguments(header)[0].__setitem__(2, "f32"),
    "a condition in no buffer": lambda header: arguments(header)[0].__setitem__(0, 99),
    "a capture beyond its buffer": lambda header: arguments(header)[1][0].__setitem__(1, 1 << 40),
    "a capture without strides": lambda header: arguments(header)[1][0].__setitem__(5, []),
    "a capture of repeated elements": lambda header: arguments(header)[1][0].__setitem__(slice(4, 6), [HUGE, [0] * 4]),
    "a capture of short items": lambda header: arguments(header)[1][0].__setitem__(3, 1),
    "a result beyond its buffer": lambda header: arguments(header)[2][0].__setitem__(4, [1 << 20, 5]),
    "a result in an input": lambda header: arguments(header)[2][0].__setitem__(0, 1),
    "a result in a constant": lambda header: arguments(header)[2][0].__setitem__(6, 0),
    "a third branch": lambda header: subgraph(header).__setitem__(0, 2),
    "a negative branch": lambda header: subgraph(header).__setitem__(0, -1),
    "an input that is none": lambda header: subgraph(header)[1].__setitem__(0, 7),
    "an input too few": lambda header: subgraph(header)[1].pop(),
    "an input of another size": lambda header: subgraph(header)[2].__setitem__(0, 1 << 30),
    "an input of negative size": lambda header: subgraph(header)[2].__setitem__(0, -1),
    "an output of another size": lambda header: subgraph(header)[3].__setitem__(0, 1 << 30),
    "an output too many": lambda header: subgraph(header)[3].append(4),
    "an arena of no memory": lambda header: subgraph(header)[4].update(arena=0),
    "an arena beyond memory": lambda header: subgraph(header)[4].update(arena=1 << 62),
    "no steps": lambda header: subgraph(header)[4].pop("steps"),
    "a step that writes an input": lambda header: subgraph(header)[4]["steps"][-1][2][0].__setitem__(slice(0, 2), [1, 0]),
    "an offset behind a buffer": lambda header: subgraph(header)[4]["steps"][0][1][0].__setitem__(1, 1 << 40),
    "an unknown kernel": lambda header: subgraph(header)[4]["steps"][0].__setitem__(0, "system"),
    "a subgraph of another kind": lambda header: control(header).__setitem__(2, [3]),
    "subgraphs without end": nest,
}
IN_SCAN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no arguments": lambda header: control(header).__setitem__(1, []),
    "a state beyond its buffer": lambda header: arguments(header)[2][0].__setitem__(1, 1 << 40),
    "a state of another size": lambda header: arguments(header)[2][0].__setitem__(4, [3, 2]),
    "a state without strides": lambda header: arguments(header)[2][0].__setitem__(5, []),
    "an axis that is none": lambda header: arguments(header)[3][0].__setitem__(1, 9),
    "a negative axis": lambda header: arguments(header)[3][0].__setitem__(1, -1),
    "parts that do not divide": lambda header: arguments(header)[3][0].__setitem__(2, 4),
    "parts of no size": lambda header: arguments(header)[3][0].__setitem__(2, 0),
    "parts of negative size": lambda header: arguments(header)[3][0].__setitem__(2, -1),
    "parts beyond a buffer": lambda header: arguments(header)[3][0][0].__setitem__(4, [1 << 30, 3, 4]),
    "parts without strides": lambda header: arguments(header)[3][0][0].__setitem__(5, [48]),
    "results beyond a buffer": lambda header: arguments(header)[6][0][0].__setitem__(4, [12, 3, 4]),
    "results in an input": lambda header: arguments(header)[6][0][0].__setitem__(0, 1),
    "a last state in an input": lambda header: arguments(header)[5][0].__setitem__(0, 1),
    "a body with an input that is none": lambda header: subgraph(header)[1].__setitem__(0, 99),
    "a body with another output": lambda header: subgraph(header)[3].__setitem__(0, 8),
    "a condition of the body": lambda header: arguments(header).__setitem__(7, not arguments(header)[7]),
}
WRONG = [(BRANCH, name, change) for name, change in IN_IF.items()] + [(SCAN, name, change) for name, change in IN_SCAN.items()]


@pytest.mark.parametrize(
    ("text", "name", "change"), WRONG, ids=[f"{'if' if row[0] is BRANCH else 'scan'}: {row[1]}" for row in WRONG]
)
def test_a_wrong_entry_with_a_right_digest_is_ignored(
    text: str, name: str, change: Callable[[dict[str, Any]], Any], tmp_path: Path, cache: Path
) -> None:
    path = save(text, tmp_path / "model.onnx")
    given = {"c": False} if text is BRANCH else {}
    inputs = inputs_of(path, **given)
    start(path, cache)(inputs)
    entry = only_entry(cache)
    entry.write_bytes(signed(entry.read_bytes(), change))
    program = start(path, cache)
    assert type(program) is NativeProgram
    assert_same(program(inputs), dovetail.compile(path)(inputs))
    assert type(start(path, cache)) is CachedProgram


def test_an_entry_signed_without_a_change_is_used(tmp_path: Path, cache: Path) -> None:
    path = save(NESTED, tmp_path / "model.onnx")
    start(path, cache)(inputs_of(path, c=True, d=True))
    entry = only_entry(cache)
    entry.write_bytes(signed(entry.read_bytes(), lambda header: None))
    assert type(start(path, cache)) is CachedProgram
