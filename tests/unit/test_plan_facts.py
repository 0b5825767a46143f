"""The promises of a plan: rules checked with the sizes of the run, memory shared in place, operands read without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder
from dovetail.engine.engine import Engine
from dovetail.engine.plan import Plan
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.dtypes import dtype
from dovetail.ir.host import native_core
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop

RNG = np.random.default_rng(17)
Build = Callable[..., Any]

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def model_of(build: Build, *shapes: tuple[Any, ...]) -> dovetail.Model:
    with Builder("facts") as b:
        made = build(b, *(b.input(f"x{place}", "f32", shape) for place, shape in enumerate(shapes)))
        for place, y in enumerate(made if isinstance(made, list) else [made]):
            b.output(f"y{place}", y)
    return b.model


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def assert_agrees(model: dovetail.Model, engine: Engine, given: list[Any]) -> None:
    for name, want in dovetail.compile(model, "interpreter")(*given).items():
        np.testing.assert_allclose(engine(given)[name], want, rtol=1e-5, atol=1e-6)


def plan_of(model: dovetail.Model, *given: Any) -> Plan:
    """Return the plan for these inputs, whose run has to agree with the interpreter."""
    engine = Engine(model, threads=1)
    assert_agrees(model, engine, list(given))
    return engine.bind(list(given))[0].plan


def soft(b: Builder, x: Any) -> Any:
    return b.Softmax(x, axis=-1)


# Rules at the sizes of the run

BROKEN: dict[str, tuple[Build, list[tuple[Any, ...]], list[tuple[int, ...]], list[tuple[int, ...]], str]] = {
    "lengths of a Split": (
        lambda b, x: [b.Exp(y) for y in b.Split(x, [2, 3], outputs=2)], [("n",)], [(5,)], [(6,)], "split.sizes",
    ),
    "sizes that do not broadcast": (
        lambda b, x, y: b.Exp(x) + b.Exp(y), [("n",), ("m",)], [(5,), (1,)], [(5,), (4,)], "shape.broadcast",
    ),
    "sizes of a product": (
        lambda b, x, y: b.MatMul(x, y), [("n", "k"), ("m", "p")], [(2, 3), (3, 4)], [(2, 3), (4, 5)], "shape.disagree",
    ),
    "sizes beside the axis": (
        lambda b, x, y: b.Concat(b.Exp(x), b.Exp(y), axis=0),
        [("n", "k"), ("m", "p")], [(2, 3), (4, 3)], [(2, 3), (4, 5)], "shape.disagree",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_sizes_that_break_a_rule_are_refused_and_the_program_still_runs(name: str) -> None:
    build, shapes, right, wrong, code = BROKEN[name]
    model = model_of(build, *shapes)
    engine = Engine(model, threads=1)
    for _ in range(2):
        assert_agrees(model, engine, arrays(*right))
        with pytest.raises(DovetailError) as caught:
            engine(arrays(*wrong))
        assert caught.value.code == code
        assert caught.value.node == (model.graph.nodes[-1].label if name != "lengths of a Split" else "split")
        assert f"in {caught.value.node} = {caught.value.op}" in str(caught.value)


class _Contrary(Op, sig="x: T -> y: T"):
    """A rule that says one thing of symbols and another of numbers."""

    def shape(self, x: Any) -> Any:
        return tuple(size + 1 if isinstance(size, int) else size for size in x.shape)

    def evaluate(self, xp: Any, x: Any) -> Any:
        return x


class _Forgetful(Op, sig="x: T -> y: T"):
    """A rule that says less of numbers than of symbols."""

    def shape(self, x: Any) -> Any:
        if all(isinstance(size, int) for size in x.shape):
            raise Unknown
        return x.shape

    def evaluate(self, xp: Any, x: Any) -> Any:
        return -x


def test_a_rule_that_contradicts_itself_is_refused() -> None:
    engine = Engine(model_of(lambda b, x: b.add(_Contrary(), b.Exp(x))[0], ("n",)), threads=1)
    with pytest.raises(EngineError) as caught:
        engine(arrays((3,)))
    assert caught.value.code == "run.shape"


def test_the_symbolic_result_of_a_rule_is_used_where_numbers_give_less() -> None:
    model = model_of(lambda b, x: b.Exp(b.add(_Forgetful(), b.Exp(x))[0]), ("n",))
    assert_agrees(model, Engine(model, threads=1), arrays((3,)))


def test_strings_of_an_open_length_have_no_place_in_memory() -> None:
    model = model_of(lambda b, x: b.Cast(b.Relu(x), to=dtype("string")), ("n",))
    assert Engine(model, threads=1)([np.float32([1.5, -2])])["y0"].tolist() == ["1.5", "0.0"]


def test_an_input_left_out_is_no_tensor() -> None:
    model = model_of(lambda b, x: soft(b, b.Resize(soft(b, x), None, np.float32([1, 2]))), ("n", 3))
    engine = Engine(model, threads=1)
    assert_agrees(model, engine, arrays((2, 3)))
    assert any(None in step.reads for step in engine.bind(arrays((2, 3)))[0].plan.steps)


def choice() -> dovetail.Model:
    """All but the first element, negated or not, once more with all of them."""
    branches = []
    for other in (False, True):
        inner = Builder()
        x = inner.input("x", "f32", ("n",))
        y = inner.Slice(x, [1], [1 << 40], [0])
        inner.graph.outputs = [inner.Negative(y) if other else inner.Exp(y)]
        branches.append(inner.graph)
    with Builder() as b:
        c, x = b.input("c", "boolean", ()), b.input("x", "f32", ("n",))
        y = b.add(If(then_branch=branches[0], else_branch=branches[1], outputs=1), c, b.Relu(x))[0]
        b.output("y", b.Concat(x, y, axis=0))
    return b.model


def repetition() -> dovetail.Model:
    inner = Builder()
    inner.input("trip", "i64", ())
    state, x = inner.input("state", "f32", ("n",)), inner.input("x", "f32", ("n",))
    inner.graph.outputs = [inner.constant(np.array(True)), inner.Exp(inner.Sin(inner.Add(state, x)))]
    with Builder() as b:
        c, x = b.input("c", "boolean", ()), b.input("x", "f32", ("n",))
        trips = b.Cast(c, to=dtype("i64"))
        b.output("y", b.Concat(x, b.add(Loop(body=inner.graph, carried=1), trips, None, x, x)[0], axis=0))
    return b.model


@pytest.mark.parametrize("make", [choice, repetition])
def test_a_body_is_planned_for_every_size(make: Callable[[], dovetail.Model]) -> None:
    model = make()
    engine = Engine(model, threads=1)
    for length in (3, 5, 2, 9, 3):
        for flag in (True, False):
            assert_agrees(model, engine, [np.array(flag), *arrays((length,))])


# Memory


def test_repeated_sums_stay_in_one_buffer() -> None:
    def build(b: Builder, x: Any, z: Any) -> Any:
        x, z = soft(b, x), soft(b, z)
        for seed in range(3):
            x = x + b.MatMul(z, b.constant(np.random.default_rng(seed).standard_normal((6, 6)).astype(np.float32)))
        return soft(b, x)

    plan = plan_of(model_of(build, (4, 6), (4, 6)), *arrays((4, 6), (4, 6)))
    assert plan.arena_bytes == plan.lower_bound == 2 * 128
    assert sorted((buffer.nbytes, buffer.first, buffer.last) for buffer in plan.buffers) == [(96, 0, 5), (96, 1, 4)]


def test_a_residual_that_is_also_multiplied_keeps_its_place() -> None:
    def build(b: Builder, x: Any) -> Any:
        x = soft(b, x)
        return soft(b, x + b.MatMul(x, b.constant(np.eye(6, dtype=np.float32))))

    assert len(plan_of(model_of(build, (4, 6)), *arrays((4, 6))).buffers) == 2


def test_a_row_of_a_large_tensor_does_not_keep_all_of_it() -> None:
    def build(b: Builder, x: Any, z: Any) -> Any:
        row = b.Tanh(b.Slice(soft(b, x), [0], [1], [0]))
        return b.MatMul(soft(b, soft(b, soft(b, z))), b.Transpose(row, [1, 0]))

    plan = plan_of(model_of(build, (8, 64), (8, 64)), *arrays((8, 64), (8, 64)))
    assert plan.arena_bytes == plan.lower_bound == 256 + 2 * 2048


def test_a_number_of_rows_of_a_larger_row_is_not_overwritten() -> None:
    """Element by element of the first half of each row: its elements do not lie as those of the result do."""

    def build(b: Builder, x: Any) -> Any:
        return soft(b, b.Tanh(b.Slice(soft(b, x), [0], [3], [1])))

    assert len(plan_of(model_of(build, (4, 6)), *arrays((4, 6))).buffers) == 2


def test_an_empty_tensor_has_no_buffer() -> None:
    plan = plan_of(model_of(lambda b, x, y: b.Concat(soft(b, x), soft(b, y), axis=1), (4, 0), (4, 3)), *arrays((4, 0), (4, 3)))
    assert (plan.buffers, plan.arena_bytes, plan.copied_bytes) == ([], 0, 0)


def test_a_padded_tensor_is_filled_at_its_first_write() -> None:
    """Memory of the first tensor is free when the padded one is filled."""

    def build(b: Builder, x: Any, z: Any) -> Any:
        small = b.MatMul(soft(b, soft(b, x)), np.ones((64, 1), np.float32))
        return b.MatMul(soft(b, b.Pad(soft(b, z), [1, 0, 1, 0], b.constant(np.float32(3)))), b.Expand(small[:1], [64, 1]))

    plan = plan_of(model_of(build, (8, 64), (6, 64)), *arrays((8, 64), (6, 64)))
    assert [step.kernel for step in plan.steps].index("fill") == 3
    assert plan.arena_bytes == plan.lower_bound == 64 + 2 * 2048


def test_constants_are_not_copied() -> None:
    with Builder() as b:
        x = b.input("x", "i64", (1,))
        first, known = b.Split(b.Pad(x, [0, 1]), [1, 1], outputs=2)
        b.output("first", first)
        b.output("known", known)
    plan, _ = Engine(b.model, threads=1).plan()
    constants = [operand for step in plan.steps for operand in step.writes if operand.data is not None]
    assert constants == []


def test_a_step_with_an_output_sized_at_run_time_has_no_bytes() -> None:
    with Builder() as b:
        b.output("y", b.NonZero(b.Exp(b.input("x", "f32", (4,)))))
    found = dovetail.plan(b.model, rounds=0)
    assert [(step.kernel.partition(" ")[0], step.nbytes) for step in found.steps] == [("elementwise", 16), ("NonZero", 0)]
    assert found.activation_bytes == 16


def test_constants_of_a_plan_are_counted_and_those_of_the_model_are_not() -> None:
    def build(b: Builder, x: Any) -> Any:
        length = b.Cast(b.Shape(x, start=0, end=1), to=dtype("f32"))
        half = b.Cast(b.Divide(length, np.float32(2)), to=dtype("i64"))
        ends = (b.constant(np.int64(0)), b.Squeeze(half, [0]), b.constant(np.int64(1)))
        return soft(b, x * np.ones((1, 1000), np.float32)) + b.ReduceSum(b.Cast(b.Range(*ends), to=dtype("f32")))

    model = model_of(build, ("n", 1000))
    plan, _ = Engine(model, threads=1).plan({"x0": (600, 1000)})
    assert 0 < plan.constant_bytes < 4000


def test_a_view_of_a_constant_begins_where_it_does() -> None:
    def build(b: Builder, x: Any) -> Any:
        wide = b.Expand(b.constant(np.float32([[1], [2], [3]])), [3, (1 << 20) + 1])
        return b.Slice(wide, [1], [2], [0]) * x

    plan_of(model_of(build, (1, (1 << 20) + 1)), np.ones((1, (1 << 20) + 1), np.float32))


def test_the_axes_of_a_copy_are_outermost_first() -> None:
    def build(b: Builder, x: Any, y: Any) -> Any:
        return soft(b, b.Concat(x, soft(b, y), axis=1))

    (copy,) = [step for step in plan_of(model_of(build, (2, 3), (2, 4)), *arrays((2, 3), (2, 4))).steps if step.kernel == "copy"]
    assert [(each.sizes, each.strides) for each in (*copy.reads, *copy.writes) if each] == [((2, 3), (12, 4)), ((2, 3), (28, 4))]
    assert (copy.label, copy.nbytes) == ("concat", 24)


# Inputs as they lie


def split_sum(b: Builder, x: Any) -> Any:
    first, second = b.Split(x, [2, 2], axis=1, outputs=2)
    return b.Exp(first) + second


def other_rows(b: Builder, x: Any) -> Any:
    return b.Exp(b.Slice(b.Reshape(x, [8, 3]), [0], [2], [1]))


def spread(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = np.zeros([2 * size for size in x.shape], x.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    view[...] = x
    return view


@pytest.mark.parametrize(("build", "is_read_there"), [(split_sum, True), (other_rows, False)])
def test_an_input_is_read_without_a_copy_if_all_its_views_are_affine(build: Build, is_read_there: bool) -> None:
    model = model_of(build, (6, 4))
    engine = Engine(model, threads=1)
    x = spread(arrays((6, 4))[0])
    assert_agrees(model, engine, [x])
    bound, (read,) = engine.bind([x])
    assert (read is x) == is_read_there
    assert bound.plan.copied_bytes == 0
    assert dovetail.plan(model, rounds=0).copied_bytes == 0


# Sizes that grow


@pytest.mark.parametrize("first", [63, 64])
def test_the_offsets_of_a_larger_plan_are_not_used_for_other_buffers(first: int) -> None:
    """Parts that are whole rows of four at every other length, and lie unevenly in them between."""

    def build(b: Builder, x: Any, y: Any, z: Any) -> Any:
        joined = b.Concat(b.Reshape(soft(b, x), [-1]), b.Reshape(soft(b, y), [-1]), axis=0)
        return soft(b, b.Concat(b.Reshape(joined, [-1, 4]), b.Exp(z), axis=1))

    model = model_of(build, ("n", 2), ("n", 2), ("n", 1))
    engine = Engine(model, threads=1)
    for length in range(first, first + 4):
        assert_agrees(model, engine, arrays((length, 2), (length, 2), (length, 1)))


def test_a_length_that_grows_needs_no_arena_where_nothing_is_kept() -> None:
    model = model_of(lambda b, x: b.Exp(x), ("n", 2))
    engine = Engine(model, threads=1)
    for length in (64, 65, 66):
        given = arrays((length, 2))
        assert_agrees(model, engine, given)
        assert engine.bind(given)[0].plan.arena_bytes == 0
