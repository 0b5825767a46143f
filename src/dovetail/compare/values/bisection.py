"""dovetail.bisect: the first operator that an engine computes wrongly from right inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from math import floor, log2
from os import PathLike
from typing import Any

from dovetail.compare.arrays import tolerance_for
from dovetail.compare.values.bisect_result import AGREES, FOUND, TOGETHER, BisectResult
from dovetail.compare.values.engines import check_engines, warm_up
from dovetail.compare.values.layers import complete_inputs, inputs_of_other
from dovetail.compare.values.memory_budget import COPIES, Slice, resident_bytes
from dovetail.compare.values.subject import Subject
from dovetail.compare.values.trial import Trials, Verdict
from dovetail.errors import EngineError
from dovetail.formats import load
from dovetail.ir.graph import Model
from dovetail.ir.limits import counting, within_memory
from dovetail.ir.suggestions import check_keywords
from dovetail.runtime.compilation import precision_of
from dovetail.runtime.random_inputs import Inputs
from dovetail.runtime.releases.workers import release_workers

FEW = 6
"""Minimum number of units (operators, or groups of operators) with which the whole model runs first.

With fewer units the bound on the number of runs leaves no run for the whole model.
"""


@check_keywords
def bisect(
    model: Model | str | PathLike[str],
    *,
    engine: str = "native",
    reference: str = "interpreter",
    other: Model | str | PathLike[str] | None = None,
    inputs: Mapping[str, Any] | Inputs | None = None,
    memory: int | None = None,
    tolerance: float | None = None,
    threads: int | None = None,
    precision: str | None = None,
) -> BisectResult:
    """Find the first operator of ``model`` that ``engine`` computes wrongly from the inputs that ``reference`` computes.

    With ``other`` the engine runs that model, whose values are matched with those of ``model``. The other options are those of
    :func:`dovetail.compare_layers`. The engine runs at most 2 log2(n) slices of n operators, each on the reference's values. A
    slice is wrong if a value that later operators read differs beyond the tolerance, or if an output that the reference computes
    from such a value differs. Only values that later operators read are outputs of a slice, so that the engine may fuse operators
    as in the whole model.

    If the outputs of the model agree, all values are compared in one run if they fit into ``memory``, else slices are compared.
    Of several wrong operators one is found; the operators before it are right in every slice that was run.

    Raises EngineError [argument.value] for an unknown engine, [input.unknown], [run.*], UnsupportedError [runtime.missing], and
    the errors of :func:`load` and of :func:`run`.

    Source: bisection over a topological order; the memory is in bytes.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.bisect(b.model, engine="native", inputs={"x": np.ones((3, 2), np.float32)}).status
    'agrees'
    """
    check_engines([engine, reference])
    precision = precision_of(precision)
    tolerance = tolerance_for(precision) if tolerance is None else tolerance
    first = model if isinstance(model, Model) else load(model)
    second = None if other is None else other if isinstance(other, Model) else load(other)
    if second is None and engine == reference:
        raise EngineError("argument.value", f"the engine and the reference of a bisection must differ, got {reference} for both")
    with counting(first.limits), within_memory("the bisection", first.file), release_workers():
        arrays = complete_inputs(first, Inputs.of(inputs))
        subject = Subject(first, arrays)
        under_test = None if second is None else Subject(second, inputs_of_other(first, second, arrays))
        with tempfile.TemporaryDirectory(prefix="dovetail-bisect-") as folder:
            if memory is not None:
                warm_up([engine, reference], folder)
            options = {"tolerance": tolerance, "threads": threads, "memory": memory, "precision": precision}
            search = _Search(Trials(subject, under_test, engine, reference, folder, options), memory)
            return search.run()


class _Search:
    """_Search is one bisection of the slice [low, high) of units; all units before the slice are right."""

    def __init__(self, trials: Trials, memory: int | None) -> None:
        self.trials = trials
        self.memory = memory
        self.bound = max(1, floor(2 * log2(max(1, trials.count))))
        self.notes: list[str] = []
        self.has_lesser = False

    def run(self) -> BisectResult:
        trials = self.trials
        count = len(trials.subject.nodes) - trials.subject.constant_count
        if trials.count < count:
            self.notes.append(f"both models have all values only at {trials.count - 1} cuts between {count} operators")
        if not count:
            return self._search_constants()
        trials.start()
        smallest: Verdict | None = None
        if trials.count >= FEW:
            whole = trials.test(0, trials.count)
            if not whole.is_wrong:
                return self._search_inside()
            smallest = whole
            trials.set_thresholds(whole)
        found = self._narrow(smallest)
        if found is None:
            return self._result(AGREES, None)
        if found.part.stop - found.part.start == 1 and found.is_wrong_itself:
            return self._result(FOUND, found)
        return self._look_closer(found)

    def _narrow(self, smallest: Verdict | None) -> Verdict | None:
        """Halve the slice repeatedly. Returns the smallest wrong slice that was run; all right slices precede it."""
        trials = self.trials
        low, high = 0, trials.count
        while high - low > 1 and trials.runs < self.bound:
            middle = (low + high) // 2
            verdict = trials.test(low, middle)
            if verdict.is_wrong:
                high, smallest = middle, verdict
            else:
                self.has_lesser = self.has_lesser or verdict.is_wrong_itself
                low = middle
                trials.move_to(low)
        if (smallest is None or (smallest.part.start, smallest.part.stop) != (low, high)) and trials.runs < self.bound:
            verdict = trials.test(low, high)
            if verdict.is_wrong:
                smallest = verdict
        return smallest

    def _search_inside(self) -> BisectResult:
        """Search for an error whose effect does not reach an output."""
        found = self._first_suspect() if self._fits() else self._narrow(None)
        if found is None:
            self.notes.append(
                "the outputs agree" + ("" if self._fits() else "; errors whose effect ends inside a slice are not found")
            )
            return self._result(AGREES, None)
        is_one = found.constant is not None or found.part.stop - found.part.start == 1
        return self._result(FOUND if is_one else TOGETHER, found, reaches_output=False)

    def _search_constants(self) -> BisectResult:
        """Search a model whose outputs depend only on constants."""
        found = self._first_suspect()
        return self._result(AGREES if found is None else FOUND, found)

    def _look_closer(self, found: Verdict) -> BisectResult:
        """Search for an operator whose values differ, after a search that ended at operators whose values agree."""
        if self._fits() and self.bound - self.trials.runs >= 2:
            self.trials.move_to(0)
            suspect = self._first_suspect()
            if suspect is not None:
                return self._result(FOUND, suspect)
        is_one = found.part.stop - found.part.start == 1
        return self._result(FOUND if is_one else TOGETHER, found)

    def _fits(self) -> bool:
        """Return whether all values fit into memory at once."""
        subject = self.trials.subject
        values = subject.values_of(0, len(subject.nodes))
        return self.memory is None or COPIES * sum(map(subject.nbytes, values)) <= self.memory - resident_bytes()

    def _first_suspect(self) -> Verdict | None:
        """Compare every value in one run; then run single operators, those whose values differ first, while runs are left."""
        trials = self.trials
        if trials.runs >= self.bound:
            return None
        cells = trials.test_all_values()
        for node in trials.subject.nodes[: trials.subject.constant_count]:
            wrong_constants = [y for y in node.outputs if id(y) in cells and not cells[id(y)].agrees]
            if wrong_constants:
                value = wrong_constants[0]
                return Verdict(Slice(0, 0), {value.name: cells[id(value)]}, constant=value)
        wrong = {key for key, cell in cells.items() if not cell.agrees}
        for unit in range(trials.count):
            nodes = trials.subject.nodes[trials.cuts[unit] : trials.cuts[unit + 1]]
            own = {id(y) for node in nodes for y in node.outputs}
            read = {id(x) for node in nodes for x in node.inputs if x is not None} - own
            if not own & wrong or read & wrong:
                continue
            if trials.runs >= self.bound:
                return None
            trials.move_to(unit)
            verdict = trials.test(unit, unit + 1)
            if verdict.is_wrong_itself:
                return verdict
        return None

    def _result(self, status: str, found: Verdict | None, *, reaches_output: bool = True) -> BisectResult:
        trials = self.trials
        common = {"engine": trials.engine, "reference": trials.base, "count": trials.count, "bound": self.bound}
        if found is None:
            return BisectResult(status, runs=trials.runs, notes=tuple(self.notes), **common)  # type: ignore[arg-type]
        stop = found.part.stop
        if status == FOUND and found.constant is None and trials.runs < self.bound:
            constants = trials.test_constants(trials.nodes_of(found))
            found = constants if constants.constant is not None else found
        if self.has_lesser:
            self.notes.append("earlier operators differ too, with less effect on the outputs: rounding, or further faults")
        nodes = trials.nodes_of(found)
        part, reference_part = trials.parts_of(found)
        has_more = None
        if status == FOUND and found.constant is None and stop < trials.count and trials.runs < self.bound:
            trials.move_to(stop)
            has_more = trials.test(stop, trials.count).is_wrong
        return BisectResult(
            status,
            runs=trials.runs,
            nodes=tuple(node.label for node in nodes),
            operators=tuple(type(node.op).__name__ for node in nodes),
            values=found.values,
            why=found.why,
            is_amplified=not found.is_wrong_itself,
            reaches_output=reaches_output,
            has_more=False if found.constant is None and stop == trials.count else has_more,
            notes=tuple(self.notes),
            part=part.model,
            reference_part=None if reference_part is None else reference_part.model,
            inputs=part.inputs if reference_part is None else reference_part.inputs,
            **common,  # type: ignore[arg-type]
        )
