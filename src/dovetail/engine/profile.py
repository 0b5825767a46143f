"""Profile of an executable: the time of each step, those in Python included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from dovetail.arrays import Array
from dovetail.engine.plan import Step
from dovetail.engine.run.executable import Executable, ExecutionContext
from dovetail.engine.run.python_steps import python_step


def median_times(
    executable: Executable, arrays: Sequence[Array], names: Sequence[str], rounds: int, *, warm_up: bool = True
) -> tuple[float, list[float]]:
    """Time a whole run and each step, in the plan's order: seconds, medians of ``rounds`` interleaved runs of either kind.

    ``warm_up``: a run before them is not timed.
    """
    runs: list[float] = []
    rows: list[list[int]] = []
    if warm_up:
        executable(arrays, None, names)
    for _ in range(rounds):
        start = time.perf_counter()
        executable(arrays, None, names)
        runs.append(time.perf_counter() - start)
        rows.append(step_times(executable, arrays, names))
    return median(runs), [median(column) / 1e9 for column in zip(*rows, strict=True)]


def step_times(executable: Executable, arrays: Sequence[Array], names: Sequence[str]) -> list[int]:
    """Time each step of the plan, in its order, in one run: nanoseconds."""
    context = executable.create_context(arrays, None, names)
    times: list[int] = []
    for is_native, rows in groupby(executable.numbered_steps(), lambda row: row[1] is not None):
        steps = list(rows)
        if not is_native:
            times += [_time_python_step(executable, step, context) for step, _ in steps]
            continue
        numbers = [number for _, number in steps if number is not None]
        first, last = numbers[0], numbers[-1] + 1
        times += context.execution.profile(context.addresses, first, last)[first:last]
    return times


def _time_python_step(executable: Executable, step: Step, context: ExecutionContext) -> int:
    run = python_step(step, executable.tensor_map)
    start = time.perf_counter_ns()
    run(context.read_operand, context.dynamic)
    return time.perf_counter_ns() - start
