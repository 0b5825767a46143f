"""Search for repairs of ambiguous constants with which the new model computes the same samples as the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.compare.verification.conversion import random_outputs
from dovetail.compare.verification.engine import compile_for_verification, run_for_verification
from dovetail.errors import DovetailError, UnsupportedError, raise_all
from dovetail.ir import dtypes, symbolic
from dovetail.ir.edit import copy_graph, copy_model, disconnect, remove_dead
from dovetail.ir.graph import Model, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.op import draws
from dovetail.ir.substitution import substitute_type
from dovetail.ir.types import Shape, Tensor
from dovetail.ops.constant import Constant
from dovetail.ops.control_flow.if_op import types_in
from dovetail.passes.rebatching.axes import FreedSize
from dovetail.passes.rebatching.other_sizes import run_at_other_sizes
from dovetail.passes.rebatching.propagation import Blocker, describe, propagate
from dovetail.passes.rebatching.requests import SizeRequest
from dovetail.passes.rebatching.state import ChangedConstant, RepairState, Restart
from dovetail.passes.rebatching.verification import (
    SIZES,
    FoundDifference,
    Runs,
    SampleComparison,
    Samples,
    chunks_of,
    compare_samples,
    draw_samples,
    find_differences,
    run_both,
    verify_batches,
    worst_rows,
)
from dovetail.runtime.random_inputs import random_inputs

ATTEMPTS = 48
"""Maximum number of analyses of one model: where constants do not determine the batch axis, alternatives are tried."""
ANCESTORS = 16
"""Maximum number of nodes before a blocker whose alternatives are tried."""
PROBE = 3
"""Number of samples of the runs that find the nodes to refuse, where the new batch is a symbol."""


@dataclass(frozen=True, slots=True)
class RebatchReport:
    """RebatchReport holds the changed constants, and the comparison of the new model's samples with those of the original.

    ``notes`` says what the comparison does not cover. ``verdict`` is the verdict of the proof that the new model at the old sizes
    equals the original for all inputs (see :func:`dovetail.prove`). ``comparisons`` and ``verdict`` are empty without
    verification.
    """

    changes: list[ChangedConstant]
    comparisons: list[SampleComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: str = ""


@dataclass(slots=True)
class Attempt:
    """Attempt is one analysis: the changed model, its state, its blockers, and the position of the first blocker."""

    model: Model
    state: RepairState
    counterpart: dict[int, Value]
    blockers: list[Blocker]
    layout: dict[int, list[tuple[int, int]]]
    position: int = -1
    comparisons: list[SampleComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Search:
    """Search tries alternatives of ambiguous constants until the new model computes the same samples as the original."""

    def __init__(self, original: Model, request: SizeRequest, verify: bool, seed: int, inputs: Mapping[str, Any] | None) -> None:
        self.original, self.request, self.verify, self.seed, self.inputs = original, request, verify, seed, inputs
        self.batches = [freed for freed in request.freed if freed.is_batch]
        self.is_comparable = all(freed.is_batch or isinstance(freed.new, symbolic.Dim) for freed in request.freed)
        self.forced: dict[str, tuple[int, str]] = {}
        self.shapes = self._new_shapes()
        self.sample_sets: list[Samples] = []
        self.current = 0
        self.notes: list[str] = []
        self.attempts = 0
        self.end = len(original.graph.nodes)
        self._references: tuple[tuple[int, int], list[dict[int, Any]]] | None = None
        self._draws = any(draws(node.op, node.inputs) for node in original.graph.nodes)

    def run(self) -> tuple[Model, RebatchReport]:
        choices: dict[str, int] = {}
        best = self._attempt(choices)
        while best.position < self.end and self.attempts < ATTEMPTS:
            better = self._improve(best, choices)
            if better is None:
                break
            choices, best = better
        if best.position < self.end:
            self._refuse(best)
        return best.model, RebatchReport(best.state.changes, best.comparisons, self._notes(best))

    def _improve(self, best: Attempt, choices: dict[str, int]) -> tuple[dict[str, int], Attempt] | None:
        """Return choices with their attempt, whose first blocker is later; nodes nearest before the blocker are changed first."""
        for key in self._ancestors(best):
            kind, count = best.state.alternatives[key]
            now = min(choices.get(key, choices.get(kind, 0)), count - 1)
            for choice in [*range(now + 1, count), *range(now)]:
                for name in (kind, key):
                    trial = {**choices, name: choice}
                    attempt = self._attempt(trial)
                    if attempt.position > best.position:
                        return trial, attempt
                    if self.attempts >= ATTEMPTS:
                        return None
        return None

    def _ancestors(self, attempt: Attempt) -> list[str]:
        """Return the keys of nodes with alternatives among the first blocker and its ancestors, the nearest first."""
        y = self.original.graph.nodes[attempt.position].outputs[0]
        found: list[str] = []
        seen: set[int] = set()
        row = [attempt.counterpart[id(y)].node]
        while row and len(found) < ANCESTORS:
            after = []
            for node in row:
                if node is None or id(node) in seen:
                    continue
                seen.add(id(node))
                name = node.outputs[0].name
                found += [key for key in attempt.state.alternatives if key == name or key.startswith(f"{name}/")]
                after += [x.node for x in node.inputs if x is not None]
            row = after
        return found

    def _new_shapes(self) -> dict[int, Shape]:
        shapes: dict[int, Shape] = {}
        for (index, axis), freed in self.request.axes.items():
            old = shapes.get(index, self.original.inputs[index].shape or ())
            shapes[index] = (*old[:axis], freed.symbol, *old[axis + 1 :])
        return shapes

    def _attempt(self, choices: Mapping[str, int]) -> Attempt:
        self.attempts += 1
        while True:
            counterpart: dict[int, Value] = {}
            model = copy_model(self.original, copy_graph(self.original.graph, counterpart))
            state = RepairState(model.graph, self.request.freed, choices, self.forced)
            for index, shape in self.shapes.items():
                model.inputs[index].type = Tensor(model.inputs[index].dtype, shape)
            try:
                blockers = propagate(state)
                break
            except Restart as restart:
                self.forced[restart.node] = (restart.axis, restart.name)
        attempt = Attempt(model, state, counterpart, blockers, _layout(state, self.batches, blockers))
        attempt.position = min((blocker.position for blocker in attempt.blockers), default=self.end)
        if not attempt.blockers:
            self._finish(attempt)
        elif self.batches and self.verify and self.is_comparable:
            runs = self._run(attempt, until=self._first_problem(attempt))
            found = [difference for difference in self._differences(attempt, runs) if difference.position < attempt.position]
            if found:
                self._block(attempt, found)
        return attempt

    def _first_problem(self, attempt: Attempt) -> Node | None:
        """Return the node of the new graph at the position of the first blocker."""
        y = self.original.graph.nodes[attempt.position].outputs[0]
        return attempt.counterpart[id(y)].node

    def _evidence(self, attempt: Attempt, blocker: Blocker, runs: Runs) -> str:
        """Return how the runs differ at a blocker; empty if its results equal those of the original."""
        kept: list[tuple[int, int]] = []
        layout = {id(y): kept for y in blocker.node.outputs}
        own = runs._replace(failed=[(node, error) for node, error in runs.failed if node is blocker.node])
        found = find_differences(own, self.original.graph, attempt.counterpart, layout, self.batches[0].old)
        return found[0].why if found else ""

    def _run(self, attempt: Attempt, size: int | None = None, until: Node | None = None) -> Runs:
        """Run the original graph, once for all attempts unless it is random, and the new graph up to ``until``."""
        new = self.batches[0].new
        size = size or (new if isinstance(new, int) else PROBE)
        samples, key = self._samples(), (self.current, size)
        known = self._references[1] if self._references is not None and self._references[0] == key else None
        graphs = self.original.graph, attempt.model.graph
        runs = run_both(*graphs, attempt.counterpart, attempt.layout, samples, self.batches[0].old, size, known, until)
        if not self._draws:
            self._references = key, runs.references
        return runs

    def _differences(self, attempt: Attempt, runs: Runs | None = None) -> list[FoundDifference]:
        graph, old = self.original.graph, self.batches[0].old
        blocked = {blocker.position for blocker in attempt.blockers}
        return find_differences(runs or self._run(attempt), graph, attempt.counterpart, attempt.layout, old, blocked)

    def _samples(self) -> Samples:
        """Return the current samples.

        If the caller passes inputs, random samples are added, because inputs such as a mask of ones distinguish few models.
        """
        if not self.sample_sets:
            old = self.batches[0].old
            count = max(-(-size // old) * old for size in self._sizes())
            for inputs in [self.inputs] if self.inputs is None else [self.inputs, None]:
                samples = draw_samples(self.original, self.request.freed, self.shapes, count, self.seed, inputs)
                if self.sample_sets and (why := self._fault_of_original(samples, old)):
                    self.notes.append(f"random samples are left out, because the original does not run on them: {why}")
                else:
                    self.sample_sets.append(samples)
        return self.sample_sets[self.current]

    def _fault_of_original(self, samples: Samples, old: int) -> str:
        program = compile_for_verification(self.original)
        try:
            for chunk in chunks_of(samples.count, old):
                program(samples.take(chunk))
        except DovetailError as error:
            return error.diagnostics[0].message
        return ""

    def _sizes(self) -> tuple[int, ...]:
        new = self.batches[0].new
        return (new,) if isinstance(new, int) else SIZES

    def _finish(self, attempt: Attempt) -> None:
        """Infer the model with the requested sizes, and verify it."""
        graph = attempt.model.graph
        outputs = {value.name: attempt.layout.get(id(value), []) for value in graph.outputs}
        values = {freed.name: freed.new for freed in self.request.freed}
        for value, type, known in types_in(graph):
            value.type = substitute_type(type, values)
            value._value = None if value.node is None else known
        try:
            infer_graph(graph, file=attempt.model.file)
        except DovetailError as error:
            labels = [node.label for node in self.original.graph.nodes]
            for item in error.diagnostics:
                position = labels.index(item.node) if item.node in labels else self.end - 1
                self._block(attempt, [FoundDifference(position, f"with the new sizes, {item.message}")])
            return
        _fold_sizes(attempt)
        if not self.verify:
            return
        if not self.batches or not self.is_comparable:
            self._run_whole(attempt)
        else:
            self._compare_samples(attempt, outputs)
        if attempt.position == self.end and not attempt.blockers:
            self._run_at_other_sizes(attempt)

    def _run_at_other_sizes(self, attempt: Attempt) -> None:
        """Run the new model at sizes that the original does not have; block the attempt if every such run fails."""
        runs = run_at_other_sizes(attempt.model, self.request.freed, self.seed)
        failed = [run for run in runs if run.why]
        labels = [node.label for node in self.original.graph.nodes]
        if runs and len(failed) == len(runs):
            for run in failed:
                position = labels.index(run.node) if run.node in labels else self.end - 1
                self._block(attempt, [FoundDifference(position, f"run at {run.text}, {run.why}")])
            return
        attempt.notes = [f"at {run.text} the new model {f'fails: {run.why}' if run.why else 'runs'}" for run in runs]

    def _compare_samples(self, attempt: Attempt, outputs: Mapping[str, list[tuple[int, int]]]) -> None:
        self._samples()
        for index in range(len(self.sample_sets)):
            self.current = index
            rows = self._compare(attempt, outputs)
            attempt.comparisons = worst_rows([*attempt.comparisons, *rows])
            if not all(row.agrees for row in rows):
                self._blame(attempt, rows)
                return
        self.current = 0

    def _blame(self, attempt: Attempt, rows: Sequence[SampleComparison]) -> None:
        """Block the nodes that make the outputs differ; if none is found, block the producer of the first different output."""
        found = self._differences(attempt)
        if not found:
            row = next(row for row in rows if not row.agrees)
            names = [value.name for value in self.original.outputs]
            y = self.original.outputs[names.index(row.output) if row.output in names else -1]
            position = next((index for index, node in enumerate(self.original.graph.nodes) if y.node is node), self.end - 1)
            why = row.why or f"a sample differs by {row.absolute:.3g} from the original"
            found = [FoundDifference(position, f"run with {row.batch} samples, {why}")]
        self._block(attempt, found)

    def _run_whole(self, attempt: Attempt) -> None:
        """Run the new model at the old sizes and compare its outputs; a model of other fixed sizes is only run."""
        if not self.is_comparable:
            compile_for_verification(attempt.model)(random_inputs(attempt.model, seed=self.seed))
            return
        arrays = self.inputs or random_inputs(self.original, seed=self.seed)
        reference, found = (
            run_for_verification(self.original, arrays),
            run_for_verification(attempt.model, arrays),
        )
        outputs = [name for name in reference.keys() if name not in random_outputs(self.original)]
        attempt.comparisons = [compare_samples(name, [reference[name]], found[name], [], 1, 1) for name in outputs]
        wrong = [row for row in attempt.comparisons if not row.agrees]
        if wrong:
            why = wrong[0].why or f"an output differs by {wrong[0].absolute:.3g} from the original"
            self._block(attempt, [FoundDifference(self.end - 1, f"run with the old sizes, {why}")])

    def _compare(self, attempt: Attempt, outputs: Mapping[str, list[tuple[int, int]]]) -> list[SampleComparison]:
        """Compare the outputs of native runs, or of interpreted runs where both models must draw the same random numbers."""
        old = self.batches[0].old
        if not random_outputs(self.original):
            return verify_batches(self.original, attempt.model, old, self._samples(), outputs, self._sizes())
        rows = []
        for size in self._sizes():
            runs = self._run(attempt, size)
            for y, other in zip(self.original.outputs, attempt.model.outputs, strict=True):
                references = [values[id(y)] for values in runs.references if id(y) in values]
                if id(other) not in runs.arrays or len(references) != len(runs.references):
                    rows.append(SampleComparison(y.name, size, "", np.inf, np.inf, 0, False, "the run fails"))
                    continue
                rows.append(compare_samples(y.name, references, runs.arrays[id(other)], outputs[other.name], old, size))
        return rows

    def _block(self, attempt: Attempt, found: Sequence[FoundDifference]) -> None:
        """Add the nodes with differences to the blockers, and update the position of the first blocker."""
        for position, why in found:
            node = attempt.counterpart[id(self.original.graph.nodes[position].outputs[0])].node
            assert node is not None
            attempt.blockers.append(Blocker(position, node, why, False))
        attempt.position = min((blocker.position for blocker in attempt.blockers), default=self.end)

    def _notes(self, attempt: Attempt) -> list[str]:
        notes = list(self.notes)
        for value in attempt.model.outputs:
            count = len(attempt.layout.get(id(value), ()))
            if self.batches and not count:
                notes.append(f"output {value.name} does not depend on the batch: {value.type}")
            if count > 1:
                notes.append(f"output {value.name} {value.type} combines pairs of samples; only those of one sample are compared")
        if self.verify and any(not freed.is_batch for freed in self.request.freed):
            notes.append("the original has one size along axes other than the batch: only that size is compared")
        return [*notes, *attempt.notes]

    def _refuse(self, attempt: Attempt) -> None:
        errors = []
        runs = self._run(attempt) if self.batches and self.is_comparable else None
        if runs is not None:
            self._block(attempt, self._differences(attempt, runs))
        for blocker in sorted(attempt.blockers, key=lambda item: item.position):
            why = blocker.why
            if runs is not None and not why.startswith("run with"):
                why = "; ".join(filter(None, (why, self._evidence(attempt, blocker, runs))))
            op, why = (text.replace('"new ', '"') for text in (describe(blocker), why))
            errors.append(UnsupportedError("rebatch.sample", why, node=blocker.path or blocker.node.label, op=op))
        raise_all(errors, "nodes forbid the new sizes")


def _fold_sizes(attempt: Attempt) -> None:
    """Replace the sizes that the repairs compute by constants where the new sizes are fixed."""
    own = {id(value) for value in attempt.counterpart.values()}
    for node in attempt.model.graph.nodes:
        y = node.outputs[0]
        if id(y) in own or isinstance(node.op, Constant) or y.value is None or y.dtype.name != "i64":
            continue
        if all(isinstance(item, int) for item in _items(y.value)):
            disconnect(node)
            node.op = Constant(data=np.asarray(y.value, np.int64), dtype=dtypes.i64)
            node.inputs = []
    remove_dead(attempt.model.graph, attempt.state.dead)


def _layout(state: RepairState, batches: Sequence[FreedSize], blockers: Sequence[Blocker]) -> dict[int, list[tuple[int, int]]]:
    """Return axis and inner size of the batch axes of every value by id; values without static nesting have no entry."""
    layout: dict[int, list[tuple[int, int]]] = {}
    blocked = {id(y) for blocker in blockers for y in blocker.node.outputs}
    for value in state.graph.values():
        if id(value) in blocked or not isinstance(value.type, Tensor) or value.type.shape is None:
            continue
        places = [place for freed in batches for place in state.axes(value, freed)]
        carried = sum(any(str(freed.symbol) in str(size) for freed in batches) for size in value.type.shape)
        if carried == len(places) and all(isinstance(place.inner, int) for place in places):
            if not places and value._value is not None and any(isinstance(item, symbolic.Dim) for item in _items(value._value)):
                continue
            layout[id(value)] = [(place.axis, int(str(place.inner))) for place in places]
    return layout


def _items(value: Any) -> list[Any]:
    found: list[Any] = np.ravel(value).tolist()
    return found
