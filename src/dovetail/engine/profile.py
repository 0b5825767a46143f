"""How long each step of a bound plan takes, those in Python included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from dovetail.engine.plan import Step
from dovetail.engine.run.executable import Executable, ExecutionContext
from dovetail.engine.run.python_steps import python_step


def median_times(executable: Executable, arrays: Sequence[Any], names: Sequence[str], rounds: int) -> tuple[float, list[float]]:
    """Seconds of a whole run, and of each step of the plan in its order: medians of ``rounds`` runs of either kind, in turns."""
    whole: list[float] = []
    rows: list[list[int]] = []
    executable(arrays, None, names)
    for _ in range(rounds):
        start = time.perf_counter()
        executable(arrays, None, names)
        whole.append(time.perf_counter() - start)
        rows.append(step_times(executable, arrays, names))
    return median(whole), [median(column) / 1e9 for column in zip(*rows, strict=True)]


def step_times(executable: Executable, arrays: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Nanoseconds of each step of the plan, in its order, in one run."""
    context = executable.create_context(arrays, None, names)
    in_python = {id(step) for step, _ in executable.python_steps}
    times: list[int] = []
    first = 0
    for is_python, steps in groupby(executable.plan.steps, lambda step: id(step) in in_python):
        if is_python:
            times += [_timed(executable, step, context) for step in steps]
            continue
        last = first + len(list(steps))
        times += context.memory.profile(context.addresses, first, last)[first:last]
        first = last
    return times


def _timed(executable: Executable, step: Step, context: ExecutionContext) -> int:
    run = python_step(step, executable.tensor_map)
    start = time.perf_counter_ns()
    run(context.find, context.dynamic)
    return time.perf_counter_ns() - start
