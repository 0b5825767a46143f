"""Predicted costs of a run: memory, bytes moved, operations and time, at one set of sizes and as expressions in open sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.engine.engine import Engine
from dovetail.engine.kernel_times import StepTime, run_overhead, step_times
from dovetail.engine.machine_limits import LimitMeter
from dovetail.engine.memory.tensor import TensorMap
from dovetail.engine.plan import Plan
from dovetail.engine.plan_report import step_facts
from dovetail.engine.run.executable import Executable, output_bytes_of
from dovetail.engine.run_costs import (
    MemoryCost,
    SymbolicCosts,
    defined_operations,
    differences,
    is_monotone,
    memory_of,
    symbolic_costs,
)
from dovetail.engine.step_costs import StepCost
from dovetail.engine.step_profile import costs_of
from dovetail.errors import DovetailError, EngineError
from dovetail.ir import symbolic
from dovetail.ir.graph import Graph, Model
from dovetail.ir.op import bodies
from dovetail.ir.symbolic import Size
from dovetail.ir.symbolic.algebra import terms_of
from dovetail.ir.types import Tensor
from dovetail.measure.cost_report import CostReport, FittingSize, KernelCost
from dovetail.measure.inspection import describe_loop, graph_costs
from dovetail.ops.control_flow.loop import Loop
from dovetail.report.model_summary import all_nodes

MAX_SIZE = (1 << 31) - 1
"""The largest size that ``fits`` tries."""
MAX_PACKINGS = 3
"""The maximum number of searches for the largest size, which are repeated if weights are packed in another form there."""


class Prediction:
    """Prediction holds a model compiled for ``sizes`` in an engine of its own, whose packed weights are those of one run."""

    def __init__(self, model: Model, sizes: dict[str, int], threads: int | None, precision: str | None) -> None:
        self.model = model
        self.sizes = sizes
        self._options = threads, precision
        self.engine = Engine(model, threads, precision=precision)
        self.executable = self.engine.executable_at(sizes)
        self.memory = memory_of(self.engine, self.executable)

    def report(self, fits: int | None, vary: str | None) -> CostReport:
        """Return the costs at the sizes, and the size that fits."""
        engine, executable = self.engine, self.executable
        costs = costs_of(executable)
        notes = list(_notes_of(engine, executable, self.model))
        times = _times_of(engine, executable, costs)
        total = None if times is None or notes else sum(
            (time.seconds(cost) for time, cost in zip(times, costs, strict=True)), _overhead_of(executable.plan)
        )  # fmt: skip
        expressions, compared = self._expressions()
        texts = _texts_of(expressions, self.memory, times, executable, costs)
        return CostReport(
            self.model.title, self.model.file, self.sizes, engine.threads, self.memory._asdict(),
            sum(cost.read + cost.written for cost in costs),
            sum(defined_operations(step, executable.tensor_map) for step in executable.plan.steps),
            sum(cost.operations for cost in costs), total, texts, compared, _kernels_of(executable, costs, times), notes,
            None if fits is None else self._largest_size(fits, vary, expressions),
        )  # fmt: skip

    def _expressions(self) -> tuple[SymbolicCosts, list[dict[str, Any]]]:
        """Return the expressions, and the plans with which they were compared."""
        if self.engine.is_partitioned:
            return SymbolicCosts(None, None, None, None, None, None, []), []
        # An axis of one element has no stride, so that its expression could not tell it from a broadcast axis.
        plan, tensor_map, base = self.executable.plan, self.executable.tensor_map, self.sizes
        larger = {name: max(size, 2) for name, size in base.items()}
        if larger != base and (of_larger := self._plan_at(larger)) is not None:
            (plan, tensor_map), base = of_larger, larger
        expressions = symbolic_costs(plan, tensor_map, base)
        plans = [(sizes, self._plan_at(sizes)) for sizes in self._compared_sizes()]
        compared = [
            {"sizes": sizes, "differences": differences(expressions, *found, sizes)}
            for sizes, found in plans
            if found is not None
        ]
        return expressions, compared

    def _compared_sizes(self) -> list[dict[str, int]]:
        own = self.sizes
        others = [own, dict.fromkeys(own, 1), *({**own, name: 2 * size + 1} for name, size in own.items())]
        return list({tuple(sizes.items()): sizes for sizes in others}.values()) if own else [own]

    def _plan_at(self, sizes: Mapping[str, int]) -> tuple[Plan, TensorMap] | None:
        try:
            return self.engine.plan_at(sizes)
        except DovetailError:
            return None

    # The largest size that fits

    def _largest_size(self, limit: int, vary: str | None, expressions: SymbolicCosts) -> FittingSize:
        name = self._varied_symbol(vary)
        if self.engine.is_partitioned:
            raise EngineError(
                "argument.value", "fits needs memory that follows from the sizes, but data decides sizes of the model"
            )
        memory = self.memory
        for _ in range(MAX_PACKINGS):
            size, reason = self._search(name, limit, memory)
            if size is None:
                break
            at_size = Prediction(self.model, {**self.sizes, name: size}, *self._options).memory
            if at_size.total <= limit:
                peak = _peak_expression(expressions, at_size)
                return FittingSize(name, limit, size, at_size.total, peak is not None and is_monotone(peak, name), reason)
            # Weights are packed in a larger form there.
            memory = MemoryCost(*map(max, memory, at_size))
        return FittingSize(name, limit, None, None, size is None, reason)

    def _varied_symbol(self, vary: str | None) -> str:
        if vary is not None:
            if vary not in self.sizes:
                known = ", ".join(self.sizes) or "none"
                raise EngineError("argument.value", f"vary must be an open size of the inputs ({known}), got {vary!r}")
            return vary
        shapes = [value.shape for value in self.model.inputs if isinstance(value.type, Tensor) and value.shape]
        leading = {None if shape[0] is None else symbolic.name_of(shape[0]) for shape in shapes if shape}
        if len(leading) == 1 and (name := next(iter(leading))) is not None:
            return name
        if len(self.sizes) == 1:
            return next(iter(self.sizes))
        known = ", ".join(self.sizes) or "none"
        raise EngineError(
            "argument.value", f"vary must name the size to search for, as the inputs share no leading one; open: {known}"
        )

    def _search(self, name: str, limit: int, memory: MemoryCost) -> tuple[int | None, str]:
        """Return the largest size that fits by doubling and bisection, and what ends the search."""
        reasons: dict[int, str] = {}

        def fits(size: int) -> bool:
            try:
                plan: Plan = self.engine.plan_at({**self.sizes, name: size})[0]
            except DovetailError as error:
                reasons[size] = f"{name}={size} is refused: [{error.code}] {error.message}"
                return False
            total = memory.at_plan(plan).total
            reasons[size] = f"{name}={size} takes {total} bytes"
            return total <= limit

        if not fits(1):
            return None, reasons[1]
        low, high = 1, 2
        while high <= MAX_SIZE and fits(high):
            low, high = high, 2 * high
        if high > MAX_SIZE:
            return low, f"sizes above {MAX_SIZE} are not tried"
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low, reasons[high]


def _times_of(engine: Engine, executable: Executable, costs: list[StepCost]) -> list[StepTime] | None:
    """Return the predicted time of each step; None without native steps."""
    if not executable.native_steps:
        return None
    meter = LimitMeter(engine.threads)
    if not meter.limits.copy_rate:
        meter.measure()
    return step_times((fact.kernel for fact in step_facts(executable, None)), costs, meter.limits)


def _overhead_of(plan: Plan) -> float:
    return run_overhead(len(plan.steps), len(plan.inputs) + len(plan.outputs), output_bytes_of(plan))


def _kernels_of(executable: Executable, costs: list[StepCost], times: list[StepTime] | None) -> list[KernelCost]:
    groups: dict[str, list[tuple[StepCost, float | None]]] = {}
    for number, (fact, cost) in enumerate(zip(step_facts(executable, None), costs, strict=True)):
        seconds = times[number].seconds(cost) if times is not None and fact.is_native else None
        groups.setdefault(fact.kernel, []).append((cost, seconds))
    rows = [
        KernelCost(
            kernel, len(steps), sum(cost.read + cost.written for cost, _ in steps), sum(cost.operations for cost, _ in steps),
            None if any(seconds is None for _, seconds in steps) else sum(seconds or 0.0 for _, seconds in steps),
        )
        for kernel, steps in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -(row.seconds or 0.0))


def _notes_of(engine: Engine, executable: Executable, model: Model) -> Iterator[str]:
    """Yield the costs that are not counted."""
    if engine.is_partitioned:
        yield "data decides sizes: only the weights, inputs and outputs of known sizes are counted"
    for node in all_nodes(model.graph):
        if isinstance(node.op, Loop):
            row = describe_loop(node, model.limits)
            trips = row["trips"] if row["trips"] is not None else f"unknown, bound: {row['bound']}"
            body = next(iter(bodies(node.op)))[1]
            yield f"the subgraph of {node.label} is not counted; trips: {trips}; per trip: {_graph_text(body)}"
        elif node.op.holds_graphs:
            texts = [f"{name}: {_graph_text(body)}" for name, body in bodies(node.op)]
            yield f"the subgraphs of {node.label} are not counted; {'; '.join(texts)}"
    written = (operand.tensor for step in executable.plan.steps for operand in step.writes)
    dynamic = {tensor.name for tensor in written if tensor.is_dynamic}
    if dynamic and not engine.is_partitioned:
        yield f"{len(dynamic)} values whose sizes data decides are not counted, such as {min(dynamic)!r}"
    in_python = [step.label for step, _ in executable.python_steps]
    if in_python:
        yield f"the time of {len(in_python)} steps in Python is not predicted, such as {in_python[0]}"


def _graph_text(graph: Graph) -> str:
    steps, live = graph_costs(graph)
    return f"{steps} steps, {live} live bytes"


def _peak_expression(expressions: SymbolicCosts, memory: MemoryCost) -> Size | None:
    parts = (expressions.live, expressions.tables, expressions.inputs, expressions.outputs)
    total: Size = memory.weights + memory.mapped + memory.packed + memory.objects
    for part in parts:
        if part is None:
            return None
        total = total + part
    return total


def _texts_of(
    expressions: SymbolicCosts, memory: MemoryCost, times: list[StepTime] | None, executable: Executable, costs: list[StepCost]
) -> dict[str, str | None]:
    rows: dict[str, Size | None] = {
        "memory, bytes": _peak_expression(expressions, memory),
        "arena, bytes": expressions.live,
        "bytes moved": expressions.moved,
        "operations": expressions.operations,
    }
    return {
        **{name: None if size is None else str(size) for name, size in rows.items()},
        "time, us": _time_text(expressions, times, executable, costs),
    }


def _time_text(
    expressions: SymbolicCosts, times: list[StepTime] | None, executable: Executable, costs: list[StepCost]
) -> str | None:
    """Return the predicted microseconds as a polynomial, with the factors that steps have at the plan's sizes."""
    if times is None or len(expressions.steps) != len(times) or executable.python_steps:
        return None
    sums = {"": 1e6 * _overhead_of(executable.plan)}

    def add(size: Size, factor: float) -> None:
        for monomial, coefficient in terms_of(size).items():
            text = "*".join(map(str, map(symbolic.algebra.dim_of, monomial)))
            sums[text] = sums.get(text, 0.0) + factor * coefficient

    for (moved, defined), time, step, cost in zip(expressions.steps, times, executable.plan.steps, costs, strict=True):
        if moved is None or defined is None:
            return None
        number = defined_operations(step, executable.tensor_map)
        add(1, 1e6 * time.overhead)
        add(moved, 1e6 * time.per_byte)
        add(defined, 1e6 * time.per_operation * (cost.operations / number if number else 1.0))
    terms = sorted(((text, value) for text, value in sums.items() if value), key=lambda term: -term[1])
    return " + ".join(f"{value:.4g}*{text}" if text else f"{value:.4g}" for text, value in terms) or "0"
