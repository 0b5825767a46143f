"""Subgraphs of If and Loop are planned and run natively, with the interpreter's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine import plan_verifier
from dovetail.engine.engine import Engine
from dovetail.engine.run.subgraphs import Subgraph
from dovetail.errors import EngineError
from dovetail.ir.graph import Graph
from dovetail.ir.host import native_core
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.tensor.gather import Gather

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
WEIGHTS = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)


def recurrence() -> Graph:
    """(trip, state, part, weights) to (true, tanh of their products, the same)."""
    inner = dovetail.Builder("step")
    inner.input("trip", "i64", ())
    state, part, weights = (
        inner.input("state", "f32", (1, 8)),
        inner.input("part", "f32", (1, 8)),
        inner.input("w", "f32", (8, 8)),
    )
    after = inner.Tanh(inner.Add(inner.MatMul(state, weights), part))
    inner.graph.outputs = [inner.constant(np.array(True)), after, after]
    return inner.graph


def scan(weights: Any = WEIGHTS) -> dovetail.Model:
    with dovetail.Builder() as b:
        state, parts = b.input("state", "f32", (1, 8)), b.input("parts", "f32", ("n", 8))
        given = b.input("w", "f32", (8, 8)) if weights is None else b.constant(weights)
        loop = Loop(body=recurrence(), carried=1, scan_inputs=((0, 1, False),), scan_outputs=((0, False),), outputs=2)
        y, ys = b.add(loop, None, None, state, parts, given)
        b.output("y", y)
        b.output("ys", ys)
    return b.model


def choice() -> dovetail.Model:
    """Return an If with two outputs: the input twice, or its half twice."""
    branches = []
    for half in (False, True):
        inner = dovetail.Builder()
        x = inner.input("x", "f32", ("n",))
        y = inner.Multiply(x, 0.5) if half else x
        inner.graph.outputs = [y, y]
        branches.append(inner.graph)
    with dovetail.Builder() as b:
        c, x = b.input("c", "boolean", ()), b.input("x", "f32", ("n",))
        ys = b.add(If(then_branch=branches[0], else_branch=branches[1], outputs=2), c, x)
        for place, y in enumerate(ys):
            b.output(f"y{place}", y)
    return b.model


def feeds(length: int) -> dict[str, Any]:
    chance = np.random.default_rng(length)
    return {name: chance.standard_normal(shape).astype(np.float32) for name, shape in (("state", (1, 8)), ("parts", (length, 8)))}


def programs(engine: Engine) -> list[Subgraph]:
    ops = [node.op for node in engine.graph.nodes]
    loops: list[Any] = [op for op in ops if isinstance(op, Loop)]
    choices: list[Any] = [op for op in ops if isinstance(op, If)]
    return [*(op.program for op in loops), *(body for op in choices for body in op.programs)]


@pytest.mark.parametrize("weights", [WEIGHTS, None], ids=["constant", "given"])
def test_a_body_runs_without_a_step_in_python(weights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    model = scan(weights)
    engine = Engine(model, threads=1)
    for length in (5, 3):
        given = feeds(length) | ({} if weights is not None else {"w": WEIGHTS})
        for name, expected in dovetail.run(model, given, engine="interpreter").items():
            np.testing.assert_allclose(engine(given)[name], expected, rtol=1e-5, atol=1e-6)
    for executable in engine._executables.values():
        assert executable.is_native
        (body,) = executable.subprograms
        assert body.native_steps and body.is_native


@pytest.mark.parametrize("lengths", [(5, 3), (64, 65, 66)], ids=["plans", "a template"])
def test_the_plans_of_bodies_are_verified(lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    inner = dovetail.Builder("step")
    inner.input("trip", "i64", ())
    state, x = inner.input("state", "f32", ("n",)), inner.input("x", "f32", ("n",))
    inner.graph.outputs = [inner.constant(np.array(True)), inner.Exp(inner.Sin(inner.Add(state, x)))]
    with dovetail.Builder() as b:
        trips, x = b.input("trips", "i64", ()), b.input("x", "f32", ("n",))
        b.output("y", b.add(Loop(body=inner.graph, carried=1), trips, None, x, x)[0])
    verified = []
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    monkeypatch.setattr(plan_verifier, "check", lambda plan, graph, tensor_map: verified.append(plan.inputs[0].name))
    engine = Engine(b.model, threads=1)
    for length in lengths:
        engine({"trips": np.array(1), "x": np.ones(length, np.float32)})
    assert verified.count("state") >= len(lengths)


def test_constants_and_unused_captures_are_not_inputs_of_a_subgraph() -> None:
    (body,) = programs(Engine(scan(), threads=1))
    assert [value.name for value in body.model.inputs] == ["state", "part"]


@pytest.mark.parametrize("c", [True, False])
def test_a_branch_may_hand_on_its_input_and_a_value_twice(c: bool) -> None:
    x = np.arange(4, dtype=np.float32)
    found = Engine(choice())({"c": np.array(c), "x": x})
    for y in found.values():
        np.testing.assert_array_equal(y, x if c else x / 2)
        assert not np.may_share_memory(y, x)
    assert not np.may_share_memory(*found.values())


def test_a_fault_in_a_body_names_its_node() -> None:
    inner = dovetail.Builder("step")
    inner.input("trip", "i64", ())
    at, table = inner.input("at", "i64", (1,)), inner.input("table", "f32", (3,))
    inner.graph.outputs = [inner.constant(np.array(True)), *inner.add(Gather(axis=0), table, at, name="look")]
    with dovetail.Builder() as b:
        rows, places = b.input("table", "f32", (3,)), b.input("at", "i64", (2,))
        loop = Loop(body=inner.graph, scan_inputs=((0, 1, False),), scan_outputs=((0, False),), outputs=1)
        b.output("y", b.add(loop, None, None, places, rows)[0])
    arrays = {"table": np.arange(3, dtype=np.float32), "at": np.array([0, 7])}
    for engine in ("interpreter", "native"):
        with pytest.raises(EngineError, match="index") as caught:
            dovetail.run(b.model, arrays, engine=engine)
        assert caught.value.node == "look"


def test_a_loop_in_a_branch_is_native_too() -> None:
    model = scan()
    other = dovetail.Builder()
    for value in model.inputs:
        other.input_of(value.name, value.type)
    other.graph.outputs = [other.Multiply(other.graph.inputs[0], 2.0)]
    model.graph.outputs = model.graph.outputs[:1]
    with dovetail.Builder() as b:
        c = b.input("c", "boolean", ())
        xs = [b.input_of(value.name, value.type) for value in model.inputs]
        b.output("y", b.add(If(then_branch=model.graph, else_branch=other.graph), c, *xs)[0])
    for c_ in (True, False):
        given = {"c": np.array(c_), **feeds(4)}
        expected = dovetail.run(b.model, given, engine="interpreter")["y"]
        np.testing.assert_allclose(dovetail.run(b.model, given, engine="native")["y"], expected, rtol=1e-5, atol=1e-6)
