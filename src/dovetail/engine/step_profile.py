"""Profile of the native engine: time, bytes, operations, operator and module of each step of a model's plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dovetail.engine.engine import Engine
from dovetail.engine.machine_limits import LimitMeter, MachineLimits
from dovetail.engine.plan import Step
from dovetail.engine.plan_report import StepFact, step_facts
from dovetail.engine.profile import SubgraphTimes, median_times, subgraphs_of
from dovetail.engine.run.executable import Executable
from dovetail.engine.step_costs import Origins, StepCost, cost_of, operator_of
from dovetail.errors import EngineError
from dovetail.ir.graph import Model
from dovetail.ir.limits import counting
from dovetail.ir.modules import module_of

RUN_SECONDS = 20.0
"""The limit on the seconds of the first run, for a model whose limits have no ``seconds``."""
TIMED_SECONDS = 2.0
"""The seconds that all timed runs take together, if the number of runs is not given."""
MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class StepProfile:
    """StepProfile describes one step: operator, kernel, module, costs, and the median of the step's seconds.

    ``node``: label of the model's node that has this operator; "" for a step without a node of the model. ``attainable``: seconds
    at the limits of the machine, None for a step that neither moves nor computes. ``bound``: the limit that dominates, "memory",
    "compute" or "" for such a step. ``fused``: other operators that the step computes. ``runs``: executions of the step within a
    run of the model; seconds, bytes and operations are sums over these executions. ``subgraphs``: subgraphs of an If or
    Loop that ran. ``arithmetic``: the operands of products, "f32", "bf16" or "int8".
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
    runs: int = 1
    subgraphs: tuple[SubgraphProfile, ...] = ()
    arithmetic: str = "f32"

    @property
    def nbytes(self) -> int:
        """The bytes that the step reads and writes."""
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class SubgraphProfile:
    """SubgraphProfile describes a subgraph of If or Loop: name, runs within a run of the model, and steps summed over them."""

    name: str
    runs: int
    steps: list[StepProfile]


@dataclass(frozen=True, slots=True)
class NativeProfile:
    """NativeProfile holds a plan's steps, the median time of runs without step timers, their number, and the machine's limits."""

    run_seconds: float
    runs: int
    limits: MachineLimits | None
    steps: list[StepProfile]
    live_bytes: list[int]
    """Bytes of the arena that are live at each step."""


def profile_steps(
    model: Model,
    inputs: Mapping[str, Any] | Sequence[Any],
    threads: int | None = None,
    runs: int | None = None,
    meter: LimitMeter | None = None,
    precision: str | None = None,
) -> NativeProfile:
    """Run ``model`` in the native engine and profile its steps.

    ``runs``: number of timed runs; None: the number that fits into TIMED_SECONDS, 1 to MAX_RUNS. ``meter`` measures the machine's
    limits before, between and after these runs, by default a LimitMeter of the engine's threads. ``precision``: see
    :func:`dovetail.compile`. Raises EngineError [run.time] if the first run exceeds the model's limit ``seconds`` (default
    RUN_SECONDS), or would exceed it by operations and bytes alone.
    """
    seconds = RUN_SECONDS if model.limits.seconds is None else model.limits.seconds
    engine = Engine(model, threads, precision=precision)
    executable, arrays = engine.bind(inputs)
    costs = costs_of(executable)
    if meter is None and executable.native_steps:
        meter = LimitMeter(engine.threads)
    if meter is not None:
        meter.measure()
    _refuse_long_run(costs, None if meter is None else meter.limits, seconds, model.file)
    names = [value.name for value in model.outputs]
    with counting(replace(model.limits, seconds=seconds)):
        start = time.perf_counter()
        executable(arrays, None, names)
        first = time.perf_counter() - start
    count = runs or max(1, min(MAX_RUNS, int(TIMED_SECONDS / max(2 * first, 1e-9))))
    with counting(replace(model.limits, seconds=None)):
        between = None if meter is None else meter.measure
        times = median_times(executable, arrays, names, count, warm_up=count > 1, between=between)
    if meter is not None:
        meter.measure()
    limits = None if meter is None else meter.limits
    steps = _Profiler(limits, times.subgraphs).steps(executable, Origins(model.graph, engine.graph), times.steps, 1)
    return NativeProfile(times.run, count, limits, steps, _live(executable))


def costs_of(executable: Executable) -> list[StepCost]:
    """Return the cost of each step, in the plan's order."""
    kernels = [fact.kernel for fact in step_facts(executable, None)]
    rows = zip(executable.plan.steps, executable.multiply_adds(), kernels, strict=True)
    return [cost_of(step, executable.tensor_map, multiply_adds, kernel) for step, multiply_adds, kernel in rows]


def _refuse_long_run(costs: Sequence[StepCost], limits: MachineLimits | None, seconds: float, file: str | None) -> None:
    if limits is not None:
        needed = sum(limits.attainable(cost.read + cost.written, cost.operations, cost.arithmetic)[0] for cost in costs)
        if needed > seconds:
            raise EngineError(
                "run.time", f"a run takes at least {needed:.3g} s on this machine; the limit seconds is {seconds:g}", file=file
            )


@dataclass(frozen=True, slots=True)
class _Profiler:
    """_Profiler combines the times, costs and origins of steps. ``ran``: the times of the subgraphs that ran."""

    limits: MachineLimits | None
    ran: Sequence[SubgraphTimes]

    def steps(self, executable: Executable, origins: Origins, times: Sequence[float], runs: int) -> list[StepProfile]:
        """Return the profile of each step of an executable, in the plan's order."""
        facts = step_facts(executable, None)
        rows = zip(facts, executable.plan.steps, costs_of(executable), times, strict=True)
        return [self._step(fact, step, cost, seconds, executable, origins, runs) for fact, step, cost, seconds in rows]

    def _step(
        self, fact: StepFact, step: Step, cost: StepCost, seconds: float, executable: Executable, origins: Origins, runs: int
    ) -> StepProfile:
        nodes = origins.of(step)
        operator = operator_of(step, nodes, executable.tensor_map)
        main = next((node for node in nodes if node.op.title == operator), nodes[-1] if nodes else None)
        fused = tuple(dict.fromkeys(node.title for node in nodes if node.op.title != operator))
        if main is not None and main.op.title == operator:
            operator = main.title
        read, written, operations = runs * cost.read, runs * cost.written, runs * cost.operations
        attainable, bound = (None, "")
        if self.limits is not None and (read or written or operations):
            attainable, bound = self.limits.attainable(read + written, operations, cost.arithmetic)
        return StepProfile(
            fact.number, fact.label, "" if main is None else main.label, operator, fact.kernel,
            "" if main is None else module_of(main), fused, fact.is_native, read, written, operations, seconds, attainable, bound,
            runs, self._subgraphs(step), cost.arithmetic,
        )  # fmt: skip

    def _subgraphs(self, step: Step) -> tuple[SubgraphProfile, ...]:
        return tuple(
            SubgraphProfile(name, sum(times.runs for times in found), self._subgraph_steps(found))
            for name, found in subgraphs_of(step, self.ran)
        )

    def _subgraph_steps(self, found: Sequence[SubgraphTimes]) -> list[StepProfile]:
        """Return the steps of a subgraph; steps of its programs for different sets of shapes follow one another."""
        rows = []
        for times in found:
            origins = Origins(times.subgraph.model.graph, times.subgraph.engine().graph)
            rows += self.steps(times.executable, origins, [number / 1e9 for number in times.nanoseconds], times.runs)
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
