"""Profile of the native engine: time, bytes, operations, operator and module of each step of a model's plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dovetail.engine.engine import Engine
from dovetail.engine.machine_limits import MachineLimits, measure_limits
from dovetail.engine.plan_report import step_facts
from dovetail.engine.profile import median_times
from dovetail.engine.run.executable import Executable
from dovetail.engine.step_costs import Origins, StepCost, cost_of, operator_of
from dovetail.errors import EngineError
from dovetail.ir.graph import Model
from dovetail.limits import counting
from dovetail.passes.modules import module_of

RUN_SECONDS = 20.0
"""The limit ``seconds`` of the first run of a model whose limits have none."""
TIMED_SECONDS = 2.0
"""Seconds that all timed runs take, where their number is not given."""
MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One step: its operator, kernel, module, costs, and the median of its seconds.

    ``node``: label of the model's node that has this operator; "" for a step of the engine alone.
    ``attainable``: seconds at the limits of the machine; ``bound``, the limit that decides: "memory" or "compute". They are None
    and "" for a step that neither moves nor computes. ``fused``: other operators that the step computes.
    """

    number: int
    label: str
    node: str
    operator: str
    kernel: str
    module: str
    fused: tuple[str, ...]
    is_native: bool
    read: int
    written: int
    operations: int
    seconds: float
    attainable: float | None
    bound: str

    @property
    def nbytes(self) -> int:
        """The bytes that the step reads and writes."""
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class NativeProfile:
    """The steps of a plan, the median of whole runs without timers, the number of timed runs, and the machine's limits."""

    run_seconds: float
    runs: int
    limits: MachineLimits | None
    steps: list[StepProfile]
    live_bytes: list[int]
    """Bytes of the arena that are live at each step."""


def profile_steps(
    model: Model, inputs: Mapping[str, Any] | Sequence[Any], threads: int | None = None, runs: int | None = None
) -> NativeProfile:
    """Run ``model`` in the native engine and profile its steps.

    ``runs``: timed runs; None: as many as fit into TIMED_SECONDS, 1 to MAX_RUNS. Raises EngineError [run.time] where the first
    run exceeds the limit ``seconds`` of the model (RUN_SECONDS without one), also where its operations and bytes alone would.
    """
    seconds = RUN_SECONDS if model.limits.seconds is None else model.limits.seconds
    engine = Engine(model, threads)
    executable, arrays = engine.bind(inputs)
    costs = [cost_of(step, executable.tensor_map) for step in executable.plan.steps]
    limits = measure_limits(engine.threads) if executable.native_steps else None
    _refuse_long_run(costs, limits, seconds, model.file)
    names = [value.name for value in model.outputs]
    with counting(replace(model.limits, seconds=seconds)):
        start = time.perf_counter()
        executable(arrays, None, names)
        first = time.perf_counter() - start
    count = runs or max(1, min(MAX_RUNS, int(TIMED_SECONDS / max(2 * first, 1e-9))))
    with counting(replace(model.limits, seconds=None)):
        run_seconds, times = median_times(executable, arrays, names, count, warm_up=count > 1)
    return NativeProfile(run_seconds, count, limits, _steps(model, engine, executable, costs, times, limits), _live(executable))


def _refuse_long_run(costs: Sequence[StepCost], limits: MachineLimits | None, seconds: float, file: str | None) -> None:
    if limits is not None:
        needed = sum(limits.attainable(cost.read + cost.written, cost.operations, cost.is_integer)[0] for cost in costs)
        if needed > seconds:
            raise EngineError(
                "run.time", f"a run takes at least {needed:.3g} s on this machine; the limit seconds is {seconds:g}", file=file
            )


def _steps(
    model: Model,
    engine: Engine,
    executable: Executable,
    costs: Sequence[StepCost],
    times: Sequence[float],
    limits: MachineLimits | None,
) -> list[StepProfile]:
    origins = Origins(model.graph, engine.graph)
    rows = []
    for fact, step, cost, seconds in zip(step_facts(executable, None), executable.plan.steps, costs, times, strict=True):
        nodes = origins.of(step)
        operator = operator_of(step, nodes, executable.tensor_map)
        main = next((node for node in nodes if node.op.title == operator), nodes[-1] if nodes else None)
        fused = tuple(dict.fromkeys(title for node in nodes if (title := node.op.title) != operator))
        nbytes = cost.read + cost.written
        attainable, bound = (None, "")
        if limits is not None and (nbytes or cost.operations):
            attainable, bound = limits.attainable(nbytes, cost.operations, cost.is_integer)
        rows.append(
            StepProfile(
                fact.number, fact.label, "" if main is None else main.label, operator, fact.kernel,
                "" if main is None else module_of(main), fused, fact.is_native, cost.read, cost.written, cost.operations, seconds,
                attainable, bound,
            )
        )  # fmt: skip
    return rows


def _live(executable: Executable) -> list[int]:
    """Return the live bytes of the arena at each step, from the differences at the ends of lifetimes."""
    changes = [0] * (len(executable.plan.steps) + 1)
    for buffer in executable.plan.buffers:
        changes[buffer.first] += buffer.nbytes
        changes[buffer.last + 1] -= buffer.nbytes
    total, live = 0, []
    for change in changes[:-1]:
        total += change
        live.append(total)
    return live


__all__ = ["MAX_RUNS", "RUN_SECONDS", "NativeProfile", "StepProfile", "profile_steps"]
