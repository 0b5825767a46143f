"""Profile of an executable: the time of each step, including steps in Python and steps of subgraphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median

from dovetail.engine.plan import Step
from dovetail.engine.rewrite.data_sizes import Partition
from dovetail.engine.run.executable import Executable, ExecutionContext
from dovetail.engine.run.python_steps import python_step
from dovetail.engine.run.subgraphs import CompiledIf, CompiledLoop, Subgraph, profile_subgraphs
from dovetail.ir.arrays import Array


@dataclass(slots=True)
class SubgraphTimes:
    """SubgraphTimes holds the runs of a subgraph's executable within a run of the model, and the summed step times in ns."""

    subgraph: Subgraph
    executable: Executable
    runs: int
    nanoseconds: list[int]


@dataclass(slots=True)
class Times:
    """Times holds the seconds of a whole run and of each step, in the plan's order, and the subgraphs that ran."""

    run: float
    steps: list[float]
    subgraphs: list[SubgraphTimes] = field(default_factory=list)


MAX_PAUSES = 3
"""The maximum number of calls of ``between`` in the rounds of ``median_times``."""


def median_times(
    executable: Executable,
    arrays: Sequence[Array],
    names: Sequence[str],
    rounds: int,
    *,
    warm_up: bool = True,
    between: Callable[[], object] | None = None,
) -> Times:
    """Time a whole run and each step: medians of ``rounds`` whole runs, interleaved with ``rounds`` runs timed step by step.

    ``warm_up``: the model runs once before, untimed. ``between`` is called up to MAX_PAUSES times, at equal distances between the
    rounds; the model runs untimed after each call, because the call may displace the model's data from the caches.
    """
    runs: list[float] = []
    rows: list[list[int]] = []
    recorders: list[Recorder] = []
    if warm_up:
        executable(arrays, None, names)
    pauses = {round(rounds * number / (MAX_PAUSES + 1)) for number in range(1, MAX_PAUSES + 1)} - {0, rounds}
    for number in range(rounds):
        if between is not None and number in pauses:
            between()
            executable(arrays, None, names)
        start = time.perf_counter()
        executable(arrays, None, names)
        runs.append(time.perf_counter() - start)
        recorders.append(Recorder())
        rows.append(recorders[-1].run(executable, arrays, names)[1])
    steps = [median(column) / 1e9 for column in zip(*rows, strict=True)]
    return Times(median(runs), steps, _medians([recorder.subgraphs for recorder in recorders]))


def step_times(executable: Executable, arrays: Sequence[Array], names: Sequence[str]) -> list[int]:
    """Return the nanoseconds of each step of the plan in one run, in the plan's order."""
    return Recorder().run(executable, arrays, names)[1]


def _medians(rounds: Sequence[dict[int, SubgraphTimes]]) -> list[SubgraphTimes]:
    """Return the subgraphs of the last round; each step's time is the median over all rounds."""
    for key, times in rounds[-1].items():
        rows = [found[key].nanoseconds for found in rounds if key in found and found[key].runs == times.runs]
        times.nanoseconds = [round(median(column)) for column in zip(*rows, strict=True)]
    return list(rounds[-1].values())


def subgraphs_of(step: Step, ran: Sequence[SubgraphTimes]) -> list[tuple[str, list[SubgraphTimes]]]:
    """Return the executed subgraphs of an If or Loop: the name of each subgraph, and the times of its programs."""
    op = step.call.nodes[0].op if step.call is not None and len(step.call.nodes) == 1 else None
    named: list[tuple[str, Subgraph]] = []
    if isinstance(op, CompiledIf) and op.programs is not None:
        named = list(zip(("then_branch", "else_branch"), op.programs, strict=True))
    elif isinstance(op, CompiledLoop | Partition) and op.program is not None:
        named = [("body", op.program)]
    rows = [(name, [times for times in ran if times.subgraph is subgraph]) for name, subgraph in named]
    return [(name, found) for name, found in rows if found]


class Recorder:
    """Recorder runs executables step by step, and sums the times of subgraphs by the ``id`` of each subgraph's executable."""

    def __init__(self) -> None:
        self.subgraphs: dict[int, SubgraphTimes] = {}

    def run(self, executable: Executable, arrays: Sequence[Array], names: Sequence[str]) -> tuple[dict[str, Array], list[int]]:
        """Return the outputs of a run, and the nanoseconds of each step."""
        context = executable.create_context(arrays, None, names)
        times: list[int] = []
        with profile_subgraphs(self._run_subgraph):
            for is_native, rows in groupby(executable.numbered_steps(), lambda row: row[1] is not None):
                steps = list(rows)
                if not is_native:
                    times += [_time_python_step(executable, step, context) for step, _ in steps]
                    continue
                numbers = [number for _, number in steps if number is not None]
                first, last = numbers[0], numbers[-1] + 1
                times += context.execution.profile(context.addresses, first, last)[first:last]
        for subgraph, program in _native_subgraphs(executable):
            runs, nanoseconds = context.execution.subgraph_times(program.program)
            self._add(subgraph, program, runs, nanoseconds)
        return executable.outputs_of(context, names), times

    def _run_subgraph(
        self, subgraph: Subgraph, executable: Executable, arrays: Sequence[Array], names: Sequence[str]
    ) -> dict[str, Array]:
        outputs, nanoseconds = self.run(executable, arrays, names)
        self._add(subgraph, executable, 1, nanoseconds)
        return outputs

    def _add(self, subgraph: Subgraph, executable: Executable, runs: int, nanoseconds: list[int]) -> None:
        if runs == 0:
            return
        found = self.subgraphs.setdefault(id(executable), SubgraphTimes(subgraph, executable, 0, [0] * len(nanoseconds)))
        found.runs += runs
        found.nanoseconds = [before + more for before, more in zip(found.nanoseconds, nanoseconds, strict=True)]


def _native_subgraphs(executable: Executable) -> Iterator[tuple[Subgraph, Executable]]:
    """Yield each subgraph that the core runs for native steps once, including nested subgraphs."""
    seen: set[int] = set()
    pending = list(executable.native_subgraphs())
    while pending:
        subgraph, program = pending.pop()
        if id(program) in seen:
            continue
        seen.add(id(program))
        yield subgraph, program
        pending += program.native_subgraphs()


def _time_python_step(executable: Executable, step: Step, context: ExecutionContext) -> int:
    run = python_step(step, executable.tensor_map)
    start = time.perf_counter_ns()
    run(context.read_operand, context.dynamic)
    return time.perf_counter_ns() - start
