"""Trials of a bisection: the engine under test runs a slice on the reference's values; the effect on outputs is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

import numpy as np

from dovetail.compare.arrays import Deviation, deviation_of
from dovetail.compare.values.array_store import ArrayStore
from dovetail.compare.values.correspondence import match_values
from dovetail.compare.values.engines import run_part
from dovetail.compare.values.memory_budget import Slice
from dovetail.compare.values.subject import Part, Subject, cast_to
from dovetail.errors import DovetailError
from dovetail.ir.graph import Node, Value
from dovetail.ir.limits import current

SHARE = 0.25
"""Minimum difference of a slice with the fault, as a fraction of the difference of the whole model."""


@dataclass(slots=True)
class Verdict:
    """Verdict is the result of a trial of one slice.

    ``values`` are the deviations of values that later operators read; ``outputs`` are the deviations of outputs that the
    reference computes from these values. ``why`` is the error of the engine, if the engine cannot run the slice.
    """

    part: Slice
    values: dict[str, Deviation] = field(default_factory=dict)
    outputs: dict[str, Deviation] = field(default_factory=dict)
    why: str = ""
    constant: Value | None = None
    """The first wrong value that depends only on constants."""
    thresholds: Mapping[str, float] | None = None
    """The relative differences beyond which outputs are wrong; None if any value that differs is wrong."""
    is_broken: bool = False
    """True if the reference cannot continue from the values of the engine."""

    @property
    def is_wrong(self) -> bool:
        if self.why or self.is_broken:
            return True
        if self.thresholds is None:
            return self.is_wrong_itself or any(not cell.agrees for cell in self.outputs.values())
        cells = [(cell, self.thresholds.get(name, 0.0)) for name, cell in self.outputs.items()]
        return any(not cell.agrees and not cell.relative <= threshold for cell, threshold in cells)

    @property
    def is_wrong_itself(self) -> bool:
        return bool(self.why) or any(not cell.agrees for cell in self.values.values())


class Trials:
    """Trials holds the state of a bisection, and runs slices of operators in the engine under test.

    ``cuts`` are the positions between operators at which both models have all values.
    """

    def __init__(
        self, subject: Subject, other: Subject | None, engine: str, base: str, folder: str, options: Mapping[str, Any]
    ) -> None:
        self.subject, self.other = subject, other
        self.match = None if other is None else match_values(subject, other)
        self.engine, self.base, self.folder = engine, base, folder
        self.tolerance: float | None = options["tolerance"]
        self.threads: int | None = options["threads"]
        self.precision: str | None = options["precision"]
        self._spill = folder if options["memory"] is not None else None
        self.runs = 0
        self._first = subject.constant_count
        self.cuts = self._cuts()
        self._at = self._first
        self._before = ArrayStore(self._spill)
        self._drawn: dict[int, Any] = {}
        self._final: dict[int, Any] = {}
        self.thresholds: dict[str, float] | None = None
        self._slice_results = ArrayStore(self._spill)
        self._slice_of_results = (-1, -1)

    @property
    def count(self) -> int:
        """The number of units: operators, or groups of operators between two cuts."""
        return len(self.cuts) - 1

    def _cuts(self) -> list[int]:
        """Return the positions at which both models have all values."""
        stop = len(self.subject.nodes)
        match = self.match
        if match is None:
            return list(range(self._first, stop + 1))
        lacking = self.subject.positions_with(y for y in self.subject.values_of(0, stop) if id(y) not in match)
        return [
            position for position in range(self._first, stop + 1) if position in (self._first, stop) or position not in lacking
        ]

    def start(self) -> None:
        """Run the reference once, for the outputs and for the numbers of random operators, which every later run uses."""
        subject = self.subject
        drawn = [y for position in sorted(subject.draws) for y in subject.values_of(position, position + 1)]
        outputs = [y for y in subject.boundary(len(subject.nodes)) if y not in drawn]
        wanted = [*drawn, *outputs]
        arrays = run_part(self.base, subject.part(wanted, self._before), self.folder, self.threads) if wanted else []
        self._final = {id(y): array for y, array in zip(wanted, arrays, strict=True) if y not in drawn}
        for value, array in zip(drawn, arrays, strict=False):
            self._drawn[id(value)] = array
            self._before.store(id(value), array)

    def move_to(self, cut: int) -> None:
        """Move the reference to a cut: the reference's values before the cut are the inputs of later trials."""
        position = self.cuts[cut]
        if position < self._at:
            self._before.keep_only(set(self._drawn))
            self._at = self._first
        if position == self._at:
            return
        values = self._crossing(self._at, position)
        for value, array in zip(values, self._reference_values_of(self._at, position, values), strict=True):
            self._before.store(id(value), array)
        self._before.keep_only({id(value) for value in self.subject.boundary(position)} | set(self._drawn))
        self._at = position

    def _reference_values_of(self, start: int, stop: int, values: Sequence[Value]) -> list[Any]:
        """Return the reference's values of a slice; the reference must be at ``start``. The last slice is cached."""
        if stop == len(self.subject.nodes) and all(id(value) in self._final for value in values):
            return [self._final[id(value)] for value in values]
        if self._slice_of_results != (start, stop):
            self._slice_results.keep_only(set())
            for value, array in zip(values, self._run_reference(values), strict=True):
                self._slice_results.store(id(value), array)
            self._slice_of_results = (start, stop)
        return [self._slice_results.get(id(value)) for value in values]

    def _run_reference(self, values: Sequence[Value]) -> list[Any]:
        if not values:
            return []
        return run_part(self.base, self.subject.part(values, self._before), self.folder, self.threads)

    def set_thresholds(self, whole: Verdict) -> None:
        """Set thresholds that separate a fault from amplified rounding, by the differences of a run of the whole model.

        A slice with the only fault has about the difference of the whole model; rounding, even of a quantized layer, causes a
        smaller difference.
        """
        self.thresholds = {}
        for name, cell in whole.values.items():
            if cell.agrees or isfinite(cell.relative):
                self.thresholds[name] = inf if cell.agrees else cell.relative * SHARE

    def _crossing(self, start: int, stop: int) -> list[Value]:
        """Return the values of a slice, except random ones, that later nodes read or that are outputs."""
        return [
            y
            for y in self.subject.values_of(start, stop)
            if self.subject.is_read_after(y, stop) and id(y) not in self._drawn
        ]  # fmt: skip

    def parts_of(self, found: Verdict) -> tuple[Part, Part | None]:
        """Return the part that a verdict is about: of the model under test, and of the first model if there are two models."""
        values = [] if found.constant is None else [found.constant]
        if not values:
            self.move_to(found.part.start)
            values = self._crossing(self.cuts[found.part.start], self.cuts[found.part.stop])
        return self._part(values), None if self.other is None else self.subject.part(values, self._before)

    def nodes_of(self, found: Verdict) -> list[Node]:
        """Return the operators that a verdict is about."""
        if found.constant is not None and found.constant.node is not None:
            return [found.constant.node]
        return self.subject.nodes[self.cuts[found.part.start] : self.cuts[found.part.stop]]

    def _own(self, value: Value) -> Value:
        return value if self.match is None else self.match.get(id(value), value)

    def _part(self, values: Sequence[Value]) -> Part:
        if self.other is None or self.match is None:
            return self.subject.part(values, self._before)
        fed = ArrayStore(None)
        for value in self.subject.values_of(0, len(self.subject.nodes)):
            if id(value) in self._before and id(value) in self.match:
                own = self.match[id(value)]
                fed.store(id(own), cast_to(own, self._before.get(id(value))))
        return self.other.part([self._own(value) for value in values], fed)

    def test(self, start: int, stop: int) -> Verdict:
        """Run a slice in the engine under test. The reference must be at ``start``."""
        current().check_time()
        verdict = Verdict(Slice(start, stop), thresholds=self.thresholds)
        values = self._crossing(self.cuts[start], self.cuts[stop])
        if not values:
            return verdict
        found = self._run_engine(values, verdict)
        if found is None:
            return verdict
        expected = self._reference_values_of(self.cuts[start], self.cuts[stop], values)
        is_equal = True
        for value, one, other in zip(values, expected, found, strict=True):
            cell = self._deviation(value, one, other)
            verdict.values[value.name] = cell
            if id(value) in self._final:
                verdict.outputs[value.name] = cell
            is_equal = is_equal and cell.agrees and cell.absolute == 0
        del expected
        if not is_equal and stop < self.count and (self.thresholds is not None or not verdict.is_wrong_itself):
            self._follow(values, found, verdict)
        return verdict

    def _deviation(self, value: Value, first: Any, second: Any) -> Deviation:
        minimum = self.subject.tolerances.get(id(value), 0.0)
        if self.other is not None:
            minimum = max(minimum, self.other.tolerances.get(id(self._own(value)), 0.0))
        return deviation_of(first, second, self.tolerance, types_may_differ=self.other is not None, minimum=minimum)

    def test_all_values(self) -> dict[int, Deviation]:
        """Run the whole model in the engine with every value as an output. Returns the deviations by the id of the value.

        The reference must be at the start.
        """
        values = [
            y
            for y in self.subject.values_of(0, len(self.subject.nodes))
            if id(y) not in self._drawn and (self.match is None or id(y) in self.match)
        ]
        verdict = Verdict(Slice(0, self.count))
        found = self._run_engine(values, verdict)
        if found is None:
            return {}
        expected = self._run_reference(values)
        return {id(value): self._deviation(value, one, other) for value, one, other in zip(values, expected, found, strict=True)}

    def test_constants(self, nodes: Sequence[Node]) -> Verdict:
        """Run the values that ``nodes`` read and that depend only on constants. The slice of the verdict is empty."""
        verdict = Verdict(Slice(0, 0))
        values = [value for value in self.subject.constants_of(nodes) if self.match is None or id(value) in self.match]
        if not values:
            return verdict
        found = self._run_engine(values, verdict)
        if found is None:
            return verdict
        for value, one, other in zip(values, self._run_reference(values), found, strict=True):
            cell = self._deviation(value, one, other)
            verdict.values[value.name] = cell
            if not cell.agrees:
                verdict.constant = value
                break
        return verdict

    def _run_engine(self, values: Sequence[Value], verdict: Verdict) -> list[Any] | None:
        """Return values from the engine under test; None, with the reason in ``verdict``, if the engine fails."""
        self.runs += 1
        try:
            return run_part(self.engine, self._part(values), self.folder, self.threads, self.precision)
        except DovetailError as error:
            if error.code == "run.time":
                raise
            verdict.why = f"[{error.code}] {error.message}"
            return None

    def _follow(self, values: Sequence[Value], arrays: Sequence[Any], verdict: Verdict) -> None:
        """Compute outputs in the reference from the engine's values, and compare them with the outputs of the reference."""
        stop = self.cuts[verdict.part.stop]
        mixed = ArrayStore(self._spill)
        for value in self.subject.boundary(stop):
            if id(value) in self._before:
                mixed.store(id(value), self._before.get(id(value)))
        for key, array in self._drawn.items():
            mixed.store(key, array)
        for value, array in zip(values, arrays, strict=True):
            mixed.store(id(value), cast_to(value, array) if isinstance(array, np.ndarray) else array)
        late = {id(y) for y in self.subject.values_of(stop, len(self.subject.nodes))}
        wanted = [y for y in self.subject.boundary(len(self.subject.nodes)) if id(y) in late and id(y) in self._final]
        if not wanted:
            return
        try:
            found = run_part(self.base, self.subject.part(wanted, mixed), self.folder, self.threads)
        except DovetailError as error:
            if error.code == "run.time":
                raise
            verdict.is_broken = True
            return
        for value, array in zip(wanted, found, strict=True):
            verdict.outputs[value.name] = self._deviation(value, self._final[id(value)], array)
