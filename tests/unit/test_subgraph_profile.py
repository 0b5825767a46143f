"""Steps of subgraphs in plans and profiles: those of If and Loop, native and in Python, nested, summed over their runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dovetail
from dovetail import cli
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Model
from dovetail.ir.host import native_core
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.runtime.compilation import plan

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the native core is not compiled")

ENDLESS = np.array(True)
TRIPS = 5


def graph_of(write: Callable[[Builder], list[Any]]) -> Graph:
    inner = Builder("inner")
    inner.graph.outputs = write(inner)
    return inner.graph


def looping(*, in_python: bool = False) -> Model:
    """Return a Loop of TRIPS trips whose body has an If: Exp of the state after the third trip, else a product with a matrix.

    ``in_python``: the body also counts the elements that are not 0, whose number is known only at run time.
    """
    weights = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) / 4

    def exponential(inner: Builder) -> list[Any]:
        return [inner.Tanh(inner.Exp(inner.input("s", "f32", (3, 4))))]

    def product(inner: Builder) -> list[Any]:
        return [inner.MatMul(inner.input("s", "f32", (3, 4)), inner.constant(weights))]

    def body(inner: Builder) -> list[Any]:
        trip, x = inner.input("trip", "i64", ()), inner.input("x", "f32", (3, 4))
        is_late = inner.Greater(trip, inner.constant(np.array(2)))
        y = inner.add(If(then_branch=graph_of(exponential), else_branch=graph_of(product)), is_late, inner.Softmax(x, axis=1))[0]
        if in_python:
            count = inner.ReduceSum(inner.Shape(inner.NonZero(y)), inner.constant(np.array([0])), keepdims=False)
            y = inner.Add(y, inner.Cast(count, to="f32"))
        return [inner.constant(ENDLESS), y]

    with Builder("looping") as b:
        x = b.input("x", "f32", (3, 4))
        b.output("y", b.Relu(b.add(Loop(body=graph_of(body), carried=1), b.constant(np.array(TRIPS)), None, x)[0]))
    return b.model


def all_steps(steps: Any) -> Iterator[Any]:
    for step in steps:
        yield step
        for subgraph in step.subgraphs:
            yield from all_steps(subgraph.steps)


def loop_of(steps: Any) -> Any:
    (step,) = [step for step in steps if step.subgraphs]
    return step


@pytest.mark.parametrize("in_python", [False, True])
def test_a_plan_lists_the_steps_of_subgraphs_with_their_runs(in_python: bool) -> None:
    found = plan(looping(in_python=in_python), threads=1, rounds=1)
    loop = loop_of(found.steps)
    assert loop.is_native == (not in_python) and loop.runs == 1
    (body,) = loop.subgraphs
    assert (body.name, body.runs) == ("body", TRIPS)
    assert body.steps and all(step.runs == TRIPS for step in body.steps)
    assert any(step.kernel.startswith("softmax") for step in body.steps)
    branches = {subgraph.name: subgraph for step in body.steps for subgraph in step.subgraphs}
    assert {name: branch.runs for name, branch in branches.items()} == {"then_branch": 2, "else_branch": 3}
    assert any(step.kernel.startswith("matmul") for step in branches["else_branch"].steps)
    assert all(step.runs == 3 for step in branches["else_branch"].steps)
    for step in all_steps(found.steps):
        assert step.seconds is not None and step.seconds >= 0
        inner = sum(each.seconds or 0.0 for subgraph in step.subgraphs for each in subgraph.steps)
        assert inner <= step.seconds
    assert any(not step.is_native for step in all_steps(found.steps)) == in_python


def test_a_branch_that_does_not_run_is_not_listed() -> None:
    with Builder() as b:
        c, x = b.input("c", "boolean", ()), b.input("x", "f32", (4,))
        branches = [graph_of(lambda inner, op=op: [getattr(inner, op)(inner.input("x", "f32", (4,)))]) for op in ("Exp", "Tanh")]
        b.output("y", b.add(If(then_branch=branches[0], else_branch=branches[1]), c, x)[0])
    for condition, name in ((True, "then_branch"), (False, "else_branch")):
        inputs = {"c": np.array(condition), "x": np.ones(4, np.float32)}
        step = loop_of(plan(b.model, inputs=inputs, threads=1, rounds=1).steps)
        assert [(subgraph.name, subgraph.runs) for subgraph in step.subgraphs] == [(name, 1)]


def test_an_unmeasured_plan_and_a_loop_without_trips_have_no_subgraphs() -> None:
    assert all(not step.subgraphs for step in plan(looping(), threads=1, rounds=0).steps)
    with Builder() as b:
        x, trips = b.input("x", "f32", (4,)), b.input("trips", "i64", ())

        def body(inner: Builder) -> list[Any]:
            inner.input("trip", "i64", ())
            return [inner.constant(ENDLESS), inner.Exp(inner.input("x", "f32", (4,)))]

        b.output("y", b.add(Loop(body=graph_of(body), carried=1), trips, None, x)[0])
    for count in (0, 3):
        steps = plan(b.model, inputs={"x": np.ones(4, np.float32), "trips": np.array(count)}, threads=1, rounds=2).steps
        assert [subgraph.runs for step in steps for subgraph in step.subgraphs] == [3] * (count > 0)


def test_a_body_of_growing_sizes_lists_the_steps_of_each_size() -> None:
    def body(inner: Builder) -> list[Any]:
        inner.input("trip", "i64", ())
        x = inner.input("x", "f32", ("n",))
        return [inner.constant(ENDLESS), inner.Concat(inner.Exp(x), x, axis=0)]

    with Builder() as b:
        x, trips = b.input("x", "f32", ("n",)), b.input("trips", "i64", ())
        b.output("y", b.add(Loop(body=graph_of(body), carried=1), trips, None, x)[0])
    inputs = {"x": np.ones(2, np.float32) / 8, "trips": np.array(3)}
    (loop,) = [step for step in plan(b.model, inputs=inputs, threads=1, rounds=2).steps if step.subgraphs]
    (grown,) = loop.subgraphs
    assert grown.runs == 3 and all(step.runs == 1 for step in grown.steps) and len(grown.steps) >= 3


@pytest.mark.parametrize("in_python", [False, True])
def test_a_profile_multiplies_costs_by_the_runs(in_python: bool) -> None:
    (engine,) = dovetail.profile(looping(in_python=in_python), threads=1, runs=2).engines
    (body,) = loop_of(engine.steps).subgraphs
    softmax = next(step for step in body.steps if step.operator == "Softmax")
    assert (softmax.read, softmax.written, softmax.runs) == (TRIPS * 48, TRIPS * 48, TRIPS)
    product = next(step for step in all_steps(body.steps) if step.operator == "MatMul")
    assert product.operations == 3 * 2 * 3 * 4 * 4
    assert product.attainable is not None and product.share_of_limit is not None
    assert sum(group.count for group in engine.operators()) == len(engine.steps)


@pytest.mark.parametrize("command", ["plan", "profile"])
def test_the_commands_and_pages_indent_the_steps_of_subgraphs(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = str(tmp_path / "m.onnx"), str(tmp_path / "m.html")
    dovetail.save(looping(), path)
    options = ["--html", page] if command == "plan" else ["-o", page, "--runs", "1"]
    assert run(command, path, "--threads", "1", *options) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [line for line in lines if "in subgraphs" in line]
    column = head.index("in subgraphs")
    body = next(line for line in lines if "  body" in line)
    assert body[column:].startswith("  body") and str(TRIPS) in body
    assert any(line[column:].startswith("      else_branch") for line in lines)
    assert any(line[column:].startswith("        ") and "matmul" in line for line in lines)
    document = ElementTree.parse(page)
    (table,) = [
        item
        for item in document.iter("details")
        if any("Steps of subgraphs" in "".join(title.itertext()) for title in item.iter("h2"))
    ]
    depths = {len(cell.findall("span")) for cell in table.iter("td")}
    assert depths == {0, 1, 2, 3, 4}
    assert run(command, path, "--threads", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    steps = found["steps"] if command == "plan" else found["engines"][0]["steps"]
    (loop,) = [step for step in steps if step["subgraphs"]]
    assert loop["subgraphs"][0]["name"] == "body" and loop["subgraphs"][0]["runs"] == TRIPS
    nested = [step for step in loop["subgraphs"][0]["steps"] if step["subgraphs"]]
    assert {each["name"] for step in nested for each in step["subgraphs"]} == {"then_branch", "else_branch"}


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    return int(caught.value.code or 0)


def test_a_profiled_run_gives_the_outputs_of_a_run() -> None:
    """Profiling runs subgraphs step by step; a Loop in Python computes the same as without."""
    from dovetail.engine.engine import Engine
    from dovetail.engine.profile import Recorder

    model, x = looping(in_python=True), np.ones((3, 4), np.float32)
    engine = Engine(model, 1)
    executable, arrays = engine.bind({"x": x})
    want = dict(executable(arrays, None, ["y"]))
    outputs, _ = Recorder().run(executable, arrays, ["y"])
    np.testing.assert_array_equal(outputs["y"], want["y"])
