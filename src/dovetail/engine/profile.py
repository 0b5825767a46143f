"""How long each step of a bound plan takes, those in Python included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from dovetail.engine.plan import Step
from dovetail.engine.run.executable import Bound, Call
from dovetail.engine.run.python_steps import python_step


def median_times(bound: Bound, arrays: Sequence[Any], names: Sequence[str], rounds: int) -> tuple[float, list[float]]:
    """Seconds of a whole run, and of each step of the plan in its order: medians of ``rounds`` runs of either kind, in turns."""
    whole: list[float] = []
    rows: list[list[int]] = []
    bound(arrays, None, names)
    for _ in range(rounds):
        start = time.perf_counter()
        bound(arrays, None, names)
        whole.append(time.perf_counter() - start)
        rows.append(step_times(bound, arrays, names))
    return median(whole), [median(column) / 1e9 for column in zip(*rows, strict=True)]


def step_times(bound: Bound, arrays: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Nanoseconds of each step of the plan, in its order, in one run."""
    call = bound.call(arrays, None, names)
    in_python = {id(step) for step, _ in bound.python_steps}
    times: list[int] = []
    first = 0
    for is_python, steps in groupby(bound.plan.steps, lambda step: id(step) in in_python):
        if is_python:
            times += [_timed(bound, step, call) for step in steps]
            continue
        last = first + len(list(steps))
        times += call.memory.profile(call.addresses, first, last)[first:last]
        first = last
    return times


def _timed(bound: Bound, step: Step, call: Call) -> int:
    run = python_step(step, bound.scene)
    start = time.perf_counter_ns()
    run(call.find, call.loose)
    return time.perf_counter_ns() - start
