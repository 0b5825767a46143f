"""Report of a plan as plain data: remaining copies with their reasons, the arena over time, the time of each kernel."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any, NamedTuple

from dovetail.engine.engine import Engine
from dovetail.engine.memory.tensor import INTERPRET
from dovetail.engine.plan import COPY, Buffer, Operand, Step
from dovetail.engine.planner import PlanOptions
from dovetail.engine.profile import SubgraphTimes, Times, median_times, subgraphs_of
from dovetail.engine.run.executable import Executable
from dovetail.errors import printable
from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import flatten_outputs

_DEFAULTS = PlanOptions()


@dataclass(frozen=True, slots=True)
class StepFact:
    """StepFact describes a step. ``reason``: why the step is interpreted or copies; ``seconds``: None if not measured.

    ``runs``: the number of executions of the step within a run of the model; ``seconds`` is the sum over them. ``subgraphs``: the
    subgraphs of an If or Loop that ran in the measured runs.
    """

    number: int
    kernel: str
    label: str
    is_native: bool
    reason: str
    nbytes: int
    seconds: float | None
    runs: int = 1
    subgraphs: tuple[SubgraphFact, ...] = ()


@dataclass(frozen=True, slots=True)
class SubgraphFact:
    """SubgraphFact describes a subgraph of If or Loop: name, runs within a run of the model, and steps summed over these runs."""

    name: str
    runs: int
    steps: list[StepFact]


@dataclass(frozen=True, slots=True)
class CopyFact:
    """CopyFact describes a copy that remains in the plan: data movement that was not elided, or a conversion between layouts."""

    step: int
    source: str
    target: str
    nbytes: int
    reason: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class KernelFact:
    """KernelFact holds sums over all steps of one kernel; ``share`` is the fraction of all step time that these steps take."""

    kernel: str
    is_native: bool
    count: int
    seconds: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class PieceFact:
    """PieceFact describes a tensor that some step writes into a buffer, live from step ``first`` to step ``last``.

    ``start`` and ``end``: the range at which a picture shows the tensor in the buffer, as fractions. In memory, tensors may be
    interleaved.
    """

    name: str
    type: str
    nbytes: int
    first: int
    last: int
    start: float
    end: float
    is_copied: bool
    """Whether a copy writes the tensor; otherwise a kernel writes the tensor in place."""


@dataclass(frozen=True, slots=True)
class BufferFact:
    """BufferFact describes a buffer of the arena, live from step ``first`` to ``last``, and the tensors written into it.

    ``views``: names of other tensors that alias the buffer. ``cuts``: fractions at which disjoint views divide the buffer.
    """

    name: str
    offset: int
    nbytes: int
    first: int
    last: int
    pieces: list[PieceFact]
    views: list[str]
    cuts: list[float]

    @property
    def is_shared(self) -> bool:
        """Return whether several tensors share the buffer in disjoint parts, at least one of them without a copy."""
        if self.cuts:
            return True
        bands = {(piece.start, piece.end) for piece in self.pieces}
        return len(bands) > 1 and any(not piece.is_copied and piece.end - piece.start < 1 for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class PlanReport:
    """PlanReport holds the facts of one plan. All bytes are bytes of activations, without weights."""

    name: str
    shapes: dict[str, list[int]]
    elide: str
    threads: int
    moved_bytes: int
    """The bytes that data movement operators would write if each wrote its results."""
    copied_bytes: int
    """The bytes that remaining copies write, conversions between layouts included."""
    arena_bytes: int
    activation_bytes: int
    lower_bound: int
    """The peak of live bytes over all steps: no arena is smaller."""
    run_seconds: float | None
    """The median time of complete runs, which have no timers between steps."""
    copies: list[CopyFact] = field(repr=False)
    kernels: list[KernelFact] = field(repr=False)
    steps: list[StepFact] = field(repr=False)
    buffers: list[BufferFact] = field(repr=False)

    @property
    def interpreted(self) -> list[StepFact]:
        """The interpreted steps."""
        return [step for step in self.steps if not step.is_native]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        facts = asdict(self)
        facts["interpreted"] = [asdict(step) for step in self.interpreted]
        for buffer, row in zip(self.buffers, facts["buffers"], strict=True):
            row["is_shared"] = buffer.is_shared
        return facts

    def html(self) -> str:
        """Return a self-contained HTML page: the arena over time as a chart, and the facts as tables."""
        from dovetail.report.page import page

        return page(self)

    def __repr__(self) -> str:
        from dovetail.report.text import summary

        lines = (f"<plan of {self.name!r}", *(f"  {label}: {text}" for label, text in summary(self)))
        return "\n".join(map(printable, lines)) + ">"

    def _repr_html_(self) -> str:
        from dovetail.report.page import notebook

        return notebook(self)


def report(
    model: Model, inputs: Mapping[str, Any], options: PlanOptions = _DEFAULTS, *, threads: int | None = None, rounds: int = 5
) -> PlanReport:
    """Report the plan of ``model`` for ``inputs``, timed over ``rounds`` runs (0: not timed)."""
    engine = Engine(model, threads, options.elide, precision=options.precision, reproducible=options.reproducible)
    executable, arrays = engine.bind(inputs)
    names = [value.name for value in model.outputs]
    times = median_times(executable, arrays, names, rounds) if rounds else None
    plan = executable.plan
    steps = step_facts(executable, times)
    shapes_run = {name: list(array.shape) for name, array in flatten_outputs(inputs).items()}
    return PlanReport(
        model.title, shapes_run, options.elide, engine.threads,
        plan.moved_bytes, plan.copied_bytes, plan.arena_bytes, plan.activation_bytes, plan.lower_bound,
        times.run if times else None,
        copies=[_copy(step, fact) for step, fact in zip(plan.steps, steps, strict=True) if step.kernel == COPY],
        kernels=_kernels(steps), steps=steps, buffers=_buffers(plan.buffers, plan.steps),
    )  # fmt: skip


# Steps


def step_facts(executable: Executable, times: Times | None) -> list[StepFact]:
    """Return the facts of each step, in the plan's order, with the facts of subgraphs that ran."""
    return _step_facts(executable, times.steps if times else None, 1, times.subgraphs if times else ())


def _step_facts(
    executable: Executable, seconds: Sequence[float] | None, runs: int, ran: Sequence[SubgraphTimes]
) -> list[StepFact]:
    refusals = {id(step): reason for step, reason in executable.python_steps}
    native = iter(executable.names())
    facts = []
    for number, step in enumerate(executable.plan.steps):
        is_native = id(step) not in refusals
        kernel = next(native) if is_native else _operators(step)
        reason = step.reason if is_native else refusals[id(step)]
        subgraphs = tuple(
            SubgraphFact(name, sum(times.runs for times in found), _subgraph_steps(found, ran))
            for name, found in subgraphs_of(step, ran)
        )
        time = seconds[number] if seconds else None
        facts.append(StepFact(number, kernel, step.label, is_native, reason, step.nbytes, time, runs, subgraphs))
    return facts


def _subgraph_steps(found: Sequence[SubgraphTimes], ran: Sequence[SubgraphTimes]) -> list[StepFact]:
    """Return the steps of a subgraph; steps of its programs for different sets of shapes follow one another."""
    return [
        fact
        for times in found
        for fact in _step_facts(times.executable, [number / 1e9 for number in times.nanoseconds], times.runs, ran)
    ]


def _operators(step: Step) -> str:
    """Return the names of a step's operators as one text; for a step without operators, its label or the kernel's name."""
    nodes = step.call.nodes if step.call and step.kernel != COPY else ()
    names = " ".join(dict.fromkeys(type(node.op).__name__ for node in nodes))
    return names or (step.label if step.kernel == INTERPRET else step.kernel)


def _copy(step: Step, fact: StepFact) -> CopyFact:
    source = step.reads[0]
    assert source is not None
    return CopyFact(fact.number, source.tensor.name, step.writes[0].tensor.name, step.nbytes, step.reason, fact.seconds)


def _kernels(steps: Sequence[StepFact]) -> list[KernelFact]:
    """Return the steps by kernel, the slowest kernel first."""
    groups: dict[tuple[str, bool], list[StepFact]] = {}
    for step in steps:
        groups.setdefault((step.kernel, step.is_native), []).append(step)
    total = sum(step.seconds or 0.0 for step in steps)
    facts = []
    for (kernel, is_native), members in groups.items():
        seconds = None if members[0].seconds is None else sum(step.seconds or 0.0 for step in members)
        share = None if seconds is None else seconds / total if total else 0.0
        facts.append(KernelFact(kernel, is_native, len(members), seconds, share))
    return sorted(facts, key=lambda fact: (-(fact.seconds or 0.0), -fact.count, fact.kernel))


# The arena


class Written(NamedTuple):
    """Written is one write of a step into a buffer."""

    step: int
    operand: Operand
    is_copied: bool


def _buffers(buffers: Sequence[Buffer], steps: Sequence[Step]) -> list[BufferFact]:
    """Return each buffer with the tensors that steps write into it and read from it, derived from the operands."""
    written: list[list[Written]] = [[] for _ in buffers]
    read: list[list[Operand]] = [[] for _ in buffers]
    first: list[list[int]] = [[] for _ in steps]
    last: list[list[int]] = [[] for _ in steps]
    for index, buffer in enumerate(buffers):
        if buffer.nbytes:
            first[buffer.first].append(index)
            last[buffer.last].append(index)
    live: list[tuple[int, int]] = []  # (offset, index of the buffer), sorted
    for number, step in enumerate(steps):
        for index in first[number]:
            insort(live, (buffers[index].offset, index))
        for operand in step.writes:
            if (holder := _holder(buffers, live, operand)) is not None:
                written[holder].append(Written(number, operand, step.kernel == COPY))
        for operand in filter(None, step.reads):
            if (holder := _holder(buffers, live, operand)) is not None:
                read[holder].append(operand)
        for index in last[number]:
            del live[bisect_left(live, (buffers[index].offset, index))]
    facts = [_buffer(*rows) for rows in zip(buffers, written, read, strict=True)]
    return sorted(facts, key=lambda fact: (fact.first, fact.offset))


def _holder(buffers: Sequence[Buffer], live: Sequence[tuple[int, int]], operand: Operand) -> int | None:
    """Return the index of the live buffer that contains an operand, or None. Live buffers are disjoint."""
    if operand.buffer or operand.data is not None or not prod(operand.sizes):
        return None
    position = bisect_right(live, (operand.offset, len(buffers))) - 1
    if position < 0:
        return None
    offset, index = live[position]
    return index if operand.offset < offset + buffers[index].nbytes else None


def _buffer(buffer: Buffer, written: Sequence[Written], read: Sequence[Operand]) -> BufferFact:
    pieces = _pieces(buffer, written)
    names = {piece.name for piece in pieces}
    views = [name for name in dict.fromkeys(operand.tensor.name for operand in read) if name not in names]
    is_whole = all(piece.end - piece.start == 1 for piece in pieces)
    cuts = _cuts(buffer, read) if is_whole else []
    return BufferFact(buffer.root.name, buffer.offset, buffer.nbytes, buffer.first, buffer.last, pieces, views, cuts)


def _cuts(buffer: Buffer, read: Sequence[Operand]) -> list[float]:
    """Return the fractions at which a buffer is divided into disjoint parts, each read as a separate tensor."""
    parts = {box: band for box, band in _bands(buffer, read).items() if band != WHOLE}
    is_partition = sum(prod(size for _, size in axes) for _, axes in parts) * buffer.root.itemsize <= buffer.nbytes
    return sorted({edge for band in parts.values() for edge in band} - {*WHOLE}) if is_partition else []


def _pieces(buffer: Buffer, written: Sequence[Written]) -> list[PieceFact]:
    """Return the tensors written into a buffer, in step order; a later write of the same range ends an earlier tensor."""
    bands = _bands(buffer, [operand for _, operand, _ in written])
    facts = []
    # A band is either disjoint from all other bands or the entire buffer. A tensor therefore ends at the next write to its
    # band or to the entire buffer.
    ends = {WHOLE: buffer.last + 1}
    for number, operand, is_copied in reversed(written):
        band = bands[_box(operand)]
        last = max(number, min(ends.get(band, buffer.last + 1), ends[WHOLE]) - 1)
        ends[band] = number
        tensor = operand.tensor
        text = f"{tensor.dtype}[{', '.join(map(str, operand.sizes))}]"
        facts.append(PieceFact(tensor.name, text, prod(operand.sizes) * tensor.itemsize, number, last, *band, is_copied))
    return facts[::-1]


Box = tuple[int, tuple[tuple[int, int], ...]]
WHOLE = (0.0, 1.0)


def _box(operand: Operand) -> Box:
    """Return the memory of an operand: offset, and (stride, size) of each axis in a canonical order."""
    axes = zip(operand.sizes, operand.strides, strict=True)
    return operand.offset, tuple(sorted((stride, size) for size, stride in axes if size != 1))


def _bands(buffer: Buffer, operands: Sequence[Operand]) -> dict[Box, tuple[float, float]]:
    """Map each box (strided part of a buffer) to a range of fractions, proportional to bytes and in the order of offsets."""
    sizes = {_box(operand): prod(operand.sizes) * operand.tensor.itemsize for operand in operands}
    whole = {box: WHOLE for box, nbytes in sizes.items() if nbytes >= buffer.nbytes}
    parts = sorted((box, nbytes) for box, nbytes in sizes.items() if box not in whole)
    total = max(buffer.nbytes, sum(nbytes for _, nbytes in parts))
    start = 0
    for box, nbytes in parts:
        whole[box] = (start / total, (start + nbytes) / total)
        start += nbytes
    return whole
