"""Values that follow from sizes alone are computed with the plan: grids of detectors, windows, lengths of float arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from assertions import assert_close, assert_same_bits
from dovetail.engine import engine as engine_run, planner, shape_specialization
from dovetail.engine.engine import Engine
from dovetail.engine.run import python_steps
from dovetail.errors import DovetailError, EngineError
from dovetail.formats.onnx import write
from dovetail.ir import dtypes, evaluate
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.ml.label_encoder import LabelEncoder
from oracles import run_onnxruntime

RNG = np.random.default_rng(39)
SIZES = [(1, 8, 8), (2, 8, 16), (1, 20, 12), (3, 9, 7), (0, 8, 8), (1, 0, 8), (1, 4, 0)]


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def size_of(b: Builder, x: Any, axis: int) -> Any:
    return b.Gather(b.Shape(x), np.array(axis))


def as_float(b: Builder, x: Any) -> Any:
    return b.Cast(x, to=dtypes.f32)


def as_size(b: Builder, x: Any) -> Any:
    return b.Reshape(b.Cast(x, to=dtypes.i64), [1])


def steps_of(b: Builder, size: Any) -> Any:
    """0.5, 1.5 and so on, ``size`` of them, as TorchScript writes torch.arange of floats."""
    zero, one = (b.constant(np.array(number, np.float32)) for number in (0, 1))
    return b.Add(b.Range(zero, as_float(b, size), one), np.float32(0.5))


def grid(b: Builder, x: Any, stride: float) -> tuple[Any, Any]:
    """Return the anchors of a feature map, [2, height * width], and their strides."""
    ys, xs = steps_of(b, size_of(b, x, 2)), steps_of(b, size_of(b, x, 3))
    sizes = b.Concat(b.Shape(ys), b.Shape(xs), axis=0)
    across = b.Expand(b.Reshape(xs, [1, -1]), sizes)
    down = b.Expand(b.Reshape(ys, [-1, 1]), sizes)
    pairs = b.Reshape(b.Concat(b.Unsqueeze(across, [-1]), b.Unsqueeze(down, [-1]), axis=-1), [-1, 2])
    count = b.Concat(b.Reshape(b.Multiply(size_of(b, x, 2), size_of(b, x, 3)), [1]), [1], axis=0)
    return b.Transpose(pairs, [1, 0]), b.Transpose(b.ConstantOfShape(count, b.constant(np.array([stride], np.float32))), [1, 0])


def detector(b: Builder, x: Any) -> Any:
    """Two scales, joined by a Resize to the sizes of the finer one; boxes moved by anchors and scaled by strides."""
    fine = b.Swish(b.Conv(x, b.constant(weights(8, 3, 3, 3)), pads=(1, 1, 1, 1), strides=(2, 2)))
    coarse = b.Swish(b.Conv(fine, b.constant(weights(8, 8, 3, 3)), pads=(1, 1, 1, 1), strides=(2, 2)))
    back = b.apply(
        "Resize", coarse, b.Shape(fine), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    maps = [b.Concat(fine, back, axis=1), b.Concat(coarse, coarse, axis=1)]
    heads = [b.Conv(each, b.constant(weights(4, 16, 1, 1))) for each in maps]
    grids = [grid(b, each, stride) for each, stride in zip(heads, (2.0, 4.0), strict=True)]
    batch = b.Reshape(size_of(b, x, 0), [1])
    shape = [b.Concat(batch, [4], b.Reshape(b.Multiply(size_of(b, y, 2), size_of(b, y, 3)), [1]), axis=0) for y in heads]
    boxes = b.Concat(*(b.Reshape(y, each) for y, each in zip(heads, shape, strict=True)), axis=2)
    anchors, strides = (b.Concat(*each, axis=1) for each in zip(*grids, strict=True))
    low, high = b.Split(boxes, [2, 2], axis=1, outputs=2)
    return b.Multiply(b.Concat(b.Subtract(anchors, low), b.Add(anchors, high), axis=1), strides)


def scaled(b: Builder, x: Any) -> Any:
    """Resized to floor(1.5 * size), computed in floats, and joined with what has that size."""
    sizes = [as_size(b, b.Floor(b.Multiply(as_float(b, size_of(b, x, axis)), np.float32(1.5)))) for axis in (2, 3)]
    shape = b.Concat(b.Slice(b.Shape(x), [0], [2]), *sizes, axis=0)
    y = b.apply("Resize", b.Relu(x), shape, mode="linear", coordinate_transformation_mode="half_pixel")
    return b.Concat(y, b.ConstantOfShape(shape, b.constant(np.array([2], np.float32))), axis=1)


def halved(b: Builder, x: Any) -> Any:
    """Return the first ceil(height / 2) rows, by a bound that comes of a float quotient."""
    end = as_size(b, b.Ceil(b.Divide(as_float(b, size_of(b, x, 2)), np.float32(2))))
    return b.Exp(b.Slice(x, [0], end, [2]))


def windows(b: Builder, x: Any) -> Any:
    """Padded to whole windows of 4 by 4, cut into them, and scored within each."""
    more = [b.Reshape(b.Mod(b.Subtract(4, b.Mod(size_of(b, x, axis), 4)), 4), [1]) for axis in (2, 3)]
    y = b.Pad(x, b.Concat([0, 0, 0, 0, 0, 0], *more, axis=0))
    counts = [b.Reshape(b.Divide(size_of(b, y, axis), 4), [1]) for axis in (2, 3)]
    batch = b.Reshape(size_of(b, x, 0), [1])
    cut = b.Reshape(y, b.Concat(batch, [3], counts[0], [4], counts[1], [4], axis=0))
    rows = b.Reshape(b.Transpose(cut, [0, 2, 4, 3, 5, 1]), [-1, 16, 3])
    return b.Softmax(b.MatMul(rows, b.Transpose(rows, [0, 2, 1])), axis=-1)


def masked(b: Builder, x: Any) -> Any:
    """Scores of columns, those after the row's own masked out, and rotated by the sine of their positions."""
    places = [b.Range(b.constant(0), size_of(b, x, axis), b.constant(1)) for axis in (2, 3)]
    later = b.Greater(b.Reshape(places[1], [1, -1]), b.Reshape(places[0], [-1, 1]))
    angles = b.Sin(b.Multiply(as_float(b, places[1]), np.float32(0.3)))
    return b.Softmax(b.Add(b.Multiply(x, angles), b.Where(later, np.float32(-1e9), np.float32(0))), axis=-1)


def chosen(b: Builder, x: Any) -> Any:
    """Return the places of a mask that is made of sizes: how many there are, no rule says."""
    places = b.Range(b.constant(0), size_of(b, x, 3), b.constant(1))
    odd = b.NonZero(b.Equal(b.Mod(places, 2), 1))
    return b.Gather(b.Exp(x), b.Reshape(odd, [-1]), axis=3)


def in_branch(b: Builder, x: Any) -> Any:
    """Return a branch that makes a grid of the sizes of what it is given."""
    branches = []
    for stride in (2.0, 3.0):
        inner = Builder()
        y = inner.input("y", "f32", (None, 3, None, None))
        anchors, strides = grid(inner, y, stride)
        flat = inner.Reshape(inner.ReduceSum(y, [0, 1], keepdims=False), [1, -1])
        inner.graph.outputs = [inner.Multiply(inner.Add(anchors, flat), strides)]
        branches.append(inner.graph)
    wide = b.Greater(size_of(b, x, 3), 10)
    return b.add(If(then_branch=branches[0], else_branch=branches[1]), wide, x)[0]


def in_loop(b: Builder, x: Any) -> Any:
    """Return a body that adds the places of what it carries, three times."""
    inner = Builder()
    inner.input("trip", "i64", ())
    state = inner.input("state", "f32", ("n", 3, "h", "w"))
    places = steps_of(inner, size_of(inner, state, 3))
    inner.graph.outputs = [inner.constant(np.array(True)), inner.Tanh(inner.Add(state, places))]
    return b.add(Loop(body=inner.graph, carried=1, outputs=1), b.constant(np.array(3)), None, x)[0]


GRAPHS: dict[str, Callable[[Builder, Any], Any]] = {
    "detector": detector,
    "scaled": scaled,
    "halved": halved,
    "windows": windows,
    "masked": masked,
    "chosen": chosen,
    "in a branch": in_branch,
    "in a loop": in_loop,
}
WITH_BODIES = ("in a branch", "in a loop")
KNOWN = ("detector", "windows", "masked")
"""Graphs whose shapes are all known by symbols, and nothing else of which depends on sizes but what kernels compute."""


def model(make: Callable[[Builder, Any], Any]) -> Model:
    with Builder() as b:
        b.output("y", make(b, b.input("x", "f32", ("batch", 3, "height", "width"))))
    return b.model


def image(*sizes: int) -> np.ndarray[Any, Any]:
    batch, height, width = sizes
    return np.random.default_rng(sizes).standard_normal((batch, 3, height, width)).astype(np.float32)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_of_sizes_answers_at_all_sizes(name: str) -> None:
    made = model(GRAPHS[name])
    program, reference = dovetail.compile(made, "native"), dovetail.compile(made, "interpreter")
    for sizes in (*SIZES, *SIZES[:2]):
        x = image(*sizes)
        try:
            want = reference(x)["y"]
        except DovetailError as error:
            with pytest.raises(DovetailError) as caught:
                program(x)
            assert caught.value.code == error.code
            assert 0 in sizes
            continue
        assert_close(program(x)["y"], want, 1e-5, f"{name} at {sizes}")


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_of_sizes_gives_the_results_of_onnxruntime(name: str) -> None:
    pytest.importorskip("onnxruntime")
    made = model(GRAPHS[name])
    data = write.save(made, None)
    program = dovetail.compile(made, "native")
    for sizes in SIZES[:4]:
        x = image(*sizes)
        assert_close(program(x)["y"], run_onnxruntime(data, {"x": x})[0], 1e-5, f"{name} at {sizes}")


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in WITH_BODIES])
def test_a_call_runs_no_step_in_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    early: list[Any] = []
    late: list[Any] = []
    for module, found in ((shape_specialization, early), (python_steps, late)):
        original = module.evaluate_node
        monkeypatch.setattr(module, "evaluate_node", lambda *args, into=found, run=original: into.append(args[0]) or run(*args))
    program = dovetail.compile(model(GRAPHS[name]), "native")
    for sizes in SIZES[:3]:
        program(image(*sizes))
        before = len(early)
        assert before or name in KNOWN
        program(image(*sizes))
        assert len(early) == before
    assert not late


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("name", WITH_BODIES)
def test_subgraph_values_that_depend_on_sizes_are_computed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = evaluate.evaluate_node
    monkeypatch.setattr(python_steps, "evaluate_node", lambda *args: seen.append(type(args[0].op).__name__) or original(*args))
    program = dovetail.compile(model(GRAPHS[name]), "native")
    for _ in range(3):
        program(image(1, 8, 8))
    assert set(seen) <= {"CompiledIf", "CompiledLoop"}


# Errors


def ranged(b: Builder, x: Any) -> Any:
    """Return a range whose step is 0 where height is 4."""
    step = b.Subtract(as_float(b, size_of(b, x, 2)), np.float32(4))
    return b.Add(b.ReduceSum(x), b.Range(b.constant(np.array(0, np.float32)), b.constant(np.array(9, np.float32)), step))


def reshaped(b: Builder, x: Any) -> Any:
    """Return a grid whose elements do not fit the shape that it is given, but where height is 8."""
    sizes = b.Concat([2], as_size(b, b.Divide(as_float(b, size_of(b, x, 2)), np.float32(2))), axis=0)
    return b.Add(b.ReduceSum(x), b.Reshape(b.Range(*(b.constant(np.array(number, np.float32)) for number in (0, 8, 1))), sizes))


@pytest.mark.parametrize("make", [ranged, reshaped])
def test_an_error_in_a_computation_of_sizes_is_that_of_a_call(make: Any) -> None:
    made = model(make)
    program, reference = dovetail.compile(made, "native"), dovetail.compile(made, "interpreter")
    with pytest.raises(DovetailError) as caught:
        program(image(1, 4, 4))
    with pytest.raises(DovetailError) as wanted:
        reference(image(1, 4, 4))
    assert caught.value.code == wanted.value.code
    x = image(1, 8, 4)
    assert_close(program(x)["y"], reference(x)["y"], 1e-5)


# What is kept


@pytest.mark.skipif(not native_core.is_compiled, reason="branches are inlined for the native core")
def test_random_numbers_are_drawn_in_each_call() -> None:
    def drawn(b: Builder, shape: Any) -> Any:
        return b.RandomUniform(shape, np.float32(0), np.float32(1))

    def branch(b: Builder, condition: Any, shape: Any) -> Any:
        inner = [Builder(), Builder()]
        for each in inner:
            each.graph.outputs = [drawn(each, each.input("shape", "i64", (4,)))]
        return b.add(If(then_branch=inner[0].graph, else_branch=inner[1].graph), condition, shape)[0]

    with Builder() as b:
        x = b.input("x", "f32", ("batch", 3, "height", "width"))
        b.output("drawn", b.Add(x, drawn(b, b.Shape(x))))
        b.output("chosen_by_sizes", branch(b, b.Greater(as_float(b, size_of(b, x, 3)), np.float32(2)), b.Shape(x)))
        b.output("chosen", branch(b, b.constant(np.array(True)), b.constant(np.array([1, 3, 4, 4]))))
    engine = Engine(b.model, 1)
    engine({"x": image(1, 4, 4)})
    (executable,) = engine._executables.values()
    assert executable is not None
    # Both conditions are decided before the run: one by constants, one by sizes.
    assert [step.call.nodes[-1].op.title for step in executable.plan.steps if step.call].count("RandomUniform") == 3


def test_weights_that_are_made_of_sizes_are_those_of_the_call() -> None:
    with Builder() as b:
        x = b.input("x", "f32", ("batch", 64))
        factor = as_float(b, size_of(b, x, 0))
        b.output("y", b.MatMul(x, b.Multiply(b.constant(weights(64, 64)), factor)))
    program, reference = dovetail.compile(b.model, "native"), dovetail.compile(b.model, "interpreter")
    # Far more sizes than plans are kept for, so that later constants lie where earlier ones lay.
    for batch in range(1, 80):
        x = RNG.standard_normal((batch, 64)).astype(np.float32)
        assert_close(program(x)["y"], reference(x)["y"], 1e-5, f"batch {batch}")


@pytest.mark.skipif(not native_core.is_compiled, reason="steps in Python have memory of their own")
def test_shape_tensors_of_a_plan_count_as_its_memory() -> None:
    engine = Engine(model(scaled), 1)
    plan, _ = engine.plan({"x": (1, 3, 64, 64)})
    # The 2 in f32 for each element of the scaled picture, and little beside.
    assert 3 * 96 * 96 * 4 <= plan.constant_bytes < 3 * 96 * 96 * 4 + 4096
    limit = plan.arena_bytes + plan.constant_bytes + sum(tile.nbytes for tile in plan.outputs)
    dovetail.compile(model(scaled), "native", threads=1, limits=dovetail.Limits(memory=limit))(image(1, 64, 64))
    with pytest.raises(EngineError) as caught:
        dovetail.compile(model(scaled), "native", threads=1, limits=dovetail.Limits(memory=limit - 1))(image(1, 64, 64))
    assert caught.value.code == "run.memory"


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("limit", [0, 64, 1000])
def test_large_shape_tensors_are_computed_in_each_call(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_specialization, "MAX_BYTES", limit)
    made = model(GRAPHS[name])
    engine, reference = Engine(made, 1), dovetail.compile(made, "interpreter")
    for sizes in SIZES[:3]:
        x = image(*sizes)
        assert_close(engine({"x": x})["y"], reference(x)["y"], 1e-5, f"{name} at {sizes}")
        assert engine.bind({"x": x})[0].plan.constant_bytes <= limit + 1024


# Lengths that grow


def decoder() -> Model:
    """Keys that grow by one a call, rotated by the cosines of their places, under a mask made of them; weights lie transposed."""
    with Builder() as b:
        x = b.input("x", "f32", (1, 16))
        cache = b.input("cache", "f32", ("past", 16))
        keys = b.Concat(cache, b.MatMul(x, b.Transpose(b.constant(weights(16, 16)), [1, 0])), axis=0)
        b.output("next", keys)
        places = b.Range(b.constant(0), size_of(b, keys, 0), b.constant(1))
        turned = b.Multiply(keys, b.Cos(b.Multiply(as_float(b, b.Unsqueeze(places, [1])), b.constant(weights(1, 16)))))
        mask = b.Where(b.Equal(b.Mod(places, 3), 2), np.float32(-1e9), np.float32(0))
        scale = b.Sqrt(as_float(b, size_of(b, x, 1)))
        scores = b.Softmax(b.Add(b.Divide(b.MatMul(x, b.Transpose(turned, [1, 0])), scale), mask), axis=-1)
        b.output("y", b.MatMul(scores, keys))
    return b.model


def test_a_length_that_grows_gives_the_bits_of_a_plan_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder()
    program, reference = dovetail.compile(made, "native"), dovetail.compile(made, "interpreter")
    planned: list[int] = []
    original = planner.make_plan
    monkeypatch.setattr(engine_run, "make_plan", lambda *args: planned.append(1) or original(*args))
    cache = weights(1, 16)
    for length in range(1, 40):
        feed = {"x": weights(length, 16)[:1], "cache": cache}
        found = program(feed)
        count = len(planned)
        alone = dovetail.compile(made, "native")(feed)
        del planned[count:]
        for name, array in reference(feed).items():
            assert_close(found[name], array, 1e-5, f"{name} at {length}")
            assert_same_bits(found[name], alone[name], f"{name} at {length}")
        cache = found["next"]
    assert len(planned) < 5 or not native_core.is_compiled


@pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")
def test_a_result_computed_from_strings_has_their_sizes() -> None:
    """The numbers of string lookups are planned, and their readers run natively; strings stay in Python."""
    with Builder() as b:
        x = b.input("x", "string", ("n", 2))
        table = b.constant(np.array(["a", "b"], object), "string"), b.constant(np.float32([1, 2])), b.constant(np.float32([-1]))
        (numbers,) = b.add(LabelEncoder(), b.Concat(x, x, axis=1), *table)
        b.output("y", b.ReduceSum(b.Exp(numbers), [1]))
    program = dovetail.compile(b.model, engine="native")
    for rows in (3, 1, 0, 3):
        strings = np.array([["a", "c"], ["b", "b"], ["c", "c"]][:rows], object).reshape(rows, 2)
        numbers = np.float32([[1, -1], [2, 2], [-1, -1]])[:rows]
        np.testing.assert_allclose(program({"x": strings})["y"], 2 * np.exp(numbers).sum(1, keepdims=True), rtol=1e-6)
    report = dovetail.plan(b.model, inputs={"x": np.array([["a", "b"]], object)}, rounds=0)
    assert [step.kernel for step in report.interpreted] == ["Concat", "LabelEncoder"]
