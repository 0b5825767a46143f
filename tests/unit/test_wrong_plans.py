"""The plan verifier accepts each plan of joined parts, and refuses it with any of these faults in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.engine import planner
from dovetail.engine.engine import Engine
from dovetail.engine.memory import alias_assignment, overlay
from dovetail.engine.memory.affine_layout import Layout
from dovetail.engine.memory.aliasing import AliasMap
from dovetail.engine.memory.schedule import Schedule
from dovetail.engine.plan import Plan
from dovetail.engine.plan_verifier import check
from dovetail.errors import EngineError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model, Value
from dovetail.ir.host import native_core


def soft(b: Builder, x: Value) -> Value:
    return b.Softmax(x, axis=-1)


def in_order(b: Builder, y: Value) -> Value:
    first, second = b.Split(y, [2, 2], axis=1, outputs=2)
    return b.Concat(first, second, soft(b, second), axis=1)


def out_of_order(b: Builder, y: Value) -> Value:
    first, second = b.Split(y, [2, 2], axis=1, outputs=2)
    return b.Concat(second, first, soft(b, second), axis=1)


def over_a_dead_part(b: Builder, y: Value) -> Value:
    first, second = b.Split(y, [2, 2], axis=1, outputs=2)
    return b.Concat(first, b.Exp(second), axis=1)


def over_a_part_that_is_read(b: Builder, y: Value) -> Value:
    first, second = b.Split(y, [2, 2], axis=1, outputs=2)
    third = soft(b, b.Exp(second))
    return b.Concat(first, third, b.Add(soft(b, third), second), axis=1)


GRAPHS: dict[str, Callable[[Builder, Value], Value]] = {
    "in order": in_order,
    "out of order": out_of_order,
    "over a dead part": over_a_dead_part,
    "over a part that is read": over_a_part_that_is_read,
}


IN_NUMPY = 0 if native_core.is_compiled else 1
"""The copies of a part whose step does not write in place, as those of numpy."""


def model_of(name: str) -> Model:
    with Builder("parts") as b:
        x = b.input("x", "f32", (2, 4, 3, 4))
        b.output("y", soft(b, GRAPHS[name](b, soft(b, x))))
    return b.model


def refused(model: Model) -> str:
    """Return the message of the error that the verifier raises for the plan that the planner makes."""
    with pytest.raises(EngineError) as caught:
        Engine(model, threads=1)({"x": np.ones((2, 4, 3, 4), np.float32)})
    assert caught.value.code == "plan.fault"
    return caught.value.message


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


@pytest.mark.parametrize(
    ("name", "copies"), [("in order", 0), ("out of order", 2), ("over a dead part", IN_NUMPY), ("over a part that is read", 1)]
)
def test_right_plans_are_accepted(name: str, copies: int) -> None:
    model = model_of(name)
    assert len(dovetail.plan(model, rounds=0).copies) == copies
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(Engine(model)({"x": x})["y"], dovetail.interpret(model, {"x": x})["y"], rtol=1e-5)


def test_parts_in_the_wrong_order_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_any_order(maps: Any, count: int) -> Layout:
        far = min(each.far for each in maps)
        return Layout(far, ((2, 72), (48, 1)))

    monkeypatch.setattr(alias_assignment, "whole_map", in_any_order)
    monkeypatch.setattr(AliasMap, "windows_to_copy", lambda aliases, call: [])
    assert "holds other elements" in refused(model_of("out of order"))


def test_a_part_that_is_still_read_is_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "_precedes", lambda *arguments: True)
    assert "holds other elements" in refused(model_of("over a part that is read"))


def test_a_call_before_its_operands_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "schedule_calls", lambda calls, aliases: Schedule(list(reversed(range(len(calls)))), 0))
    made = planner.make_plan
    reversed_plans: list[Plan] = []

    def plan_in_any_order(*arguments: Any, **options: Any) -> Plan:
        plan = made(*arguments, **options)
        plan.steps = plan.steps[::-1]
        reversed_plans.append(plan)
        return plan

    monkeypatch.setattr("dovetail.engine.engine.make_plan", plan_in_any_order)
    assert "was not written everywhere" in refused(model_of("in order"))
    assert reversed_plans


@pytest.mark.parametrize("name", GRAPHS)
def test_any_operand_elsewhere_is_refused(name: str) -> None:
    """Each operand of each step moved by a row, or by half of its buffer: no such plan is right."""
    model, rng = model_of(name), random.Random(0)
    engine = Engine(model, threads=1, elide="all")
    refusals = 0
    for number in range(len(engine.plan()[0].steps)):
        for side in ("reads", "writes"):
            plan, tensor_map = engine.plan()
            check(plan, engine.graph, tensor_map)
            operands = getattr(plan.steps[number], side)
            place = rng.randrange(len(operands))
            if operands[place].buffer != 0:
                continue
            operands[place] = operands[place]._replace(offset=operands[place].offset + rng.choice((16, 48, 192)))
            with pytest.raises(EngineError, match=r"plan\.fault"):
                check(plan, engine.graph, tensor_map)
            refusals += 1
    assert refusals
