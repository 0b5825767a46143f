"""Judgement of releases: the outcome of each, the first operator that differs, and the smallest model with its inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from dovetail.compare.arrays import Deviation
from dovetail.compare.reduce.check_command import CheckError
from dovetail.compare.reduce.model_parts import operators_of
from dovetail.compare.reduce.reduction import reduce
from dovetail.compare.referee.reproduction import Outcome, ReleaseDifference, deviations, run_engine, values_by_name
from dovetail.compare.values.array_store import ArrayStore
from dovetail.compare.values.bisect_result import BisectResult
from dovetail.compare.values.bisection import bisect
from dovetail.compare.values.subject import Part, Subject
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.graph import Model
from dovetail.ir.limits import counting, within_memory
from dovetail.runtime.releases.environment import python_of
from dovetail.runtime.releases.release import release_of
from dovetail.runtime.releases.workers import RUN_SECONDS, release_workers

INTERPRETER = "interpreter"
AGREES, DIFFERS, MISSING = "agrees", "differs", "missing"
STATUSES = {"runtime.crash": "crashes", "runtime.timeout": "hangs", "runtime.missing": MISSING}
"""The status of a release by the code of its error; any other error is a refusal."""
REFUSES = "refuses"
MAX_RUNS = 300
"""The maximum number of models that a reduction runs."""


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """ReleaseRow is the outcome of one release: agrees, differs, refuses, crashes, hangs or missing.

    ``cells`` are the deviations of the outputs from the reference; ``why`` is the error.
    """

    engine: str
    status: str
    cells: dict[str, Deviation] = field(default_factory=dict)
    why: str = ""

    @property
    def is_fault(self) -> bool:
        """True if the release runs, or should run, and does not give the reference's outputs."""
        return self.status not in (AGREES, MISSING)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Judgement compares releases of runtimes on one model and its inputs.

    ``faulty`` is the first release that does not give the outputs of ``reference``; None if all agree. ``witness`` is a release
    that agrees with the reference; None if there is none. ``location`` is the first operator that differs; ``smallest`` is the
    smallest model that still shows the difference on ``inputs``, whose outputs are ``outcomes`` by engine.
    """

    name: str
    reference: str
    rows: tuple[ReleaseRow, ...]
    faulty: str | None = None
    witness: str | None = None
    location: BisectResult | None = None
    smallest: Model | None = field(default=None, repr=False)
    inputs: dict[str, Any] = field(default_factory=dict, repr=False)
    outcomes: dict[str, Outcome] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> int | None:
        """The number of operators of the smallest model, constants apart."""
        return None if self.smallest is None else len(operators_of(self.smallest))

    @property
    def labels(self) -> list[str]:
        """The labels of the operators of the smallest model."""
        return [] if self.smallest is None else [node.label for node in operators_of(self.smallest)]

    def as_dict(self) -> dict[str, Any]:
        """Return all facts, for JSON."""
        rows = [{"engine": row.engine, "status": row.status, "why": row.why,
                 "outputs": {name: asdict(cell) for name, cell in row.cells.items()}} for row in self.rows]  # fmt: skip
        found = None if self.location is None else self.location.as_dict()
        facts = {"reference": self.reference, "releases": rows, "faulty": self.faulty, "witness": self.witness}
        return {**facts, "location": found, "nodes": self.nodes, "labels": self.labels, "notes": list(self.notes)}


def judge_releases(
    model: Model,
    engines: Sequence[str],
    inputs: Mapping[str, Any],
    *,
    reference: str | None = None,
    tolerance: float | None = None,
    threads: int | None = None,
    seconds: float = RUN_SECONDS,
    on_progress: Callable[[str], None] | None = None,
) -> Judgement:
    """Run a model in releases such as "onnxruntime==1.20.1", and find the first release that is wrong, where, and how small.

    The reference is the interpreter if a release agrees with it, or if no release runs the model, else the first release that
    runs the model. ``inputs`` are the arrays of all inputs; ``seconds`` bounds each run of a release.

    Raises EngineError [argument.value] for a name that is no release, and the errors of a run of the reference.
    """
    for engine in (*engines, *([] if reference in (None, INTERPRETER) else [reference])):
        if release_of(str(engine)) is None:
            raise EngineError("argument.value", f"a release must have the form onnxruntime==X.Y.Z, got {engine!r}")
    with (
        counting(model.limits),
        within_memory("the comparison", model.file),
        release_workers(seconds),
        tempfile.TemporaryDirectory(prefix="dovetail-releases-") as folder,
    ):
        run = partial(run_engine, folder=folder, threads=threads)
        return _ReleaseTrial(model, inputs, folder, run, tolerance, threads, on_progress).judge(
            list(dict.fromkeys(engines)), reference
        )


class _ReleaseTrial:
    """_ReleaseTrial is one judgement: it runs all releases, then searches the difference of one of them."""

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Any],
        folder: str,
        run: Callable[..., Outcome],
        tolerance: float | None,
        threads: int | None,
        on_progress: Callable[[str], None] | None,
    ) -> None:
        self.model, self.inputs, self.folder, self.run = model, dict(inputs), folder, run
        self.tolerance, self.threads = tolerance, threads
        self.on_progress = on_progress or (lambda text: None)
        self.subject = Subject(model, inputs)
        self.notes: list[str] = []
        if self.subject.draws:
            self.notes.append("random operators draw other numbers in each release")

    def judge(self, engines: list[str], reference: str | None) -> Judgement:
        part = self.subject.part(list(self.subject.model.outputs), ArrayStore(None))
        outcomes: dict[str, Outcome] = {}
        for engine in dict.fromkeys([INTERPRETER, *engines, *([reference] if reference else [])]):
            self.on_progress(f"running {engine}")
            outcomes[engine] = self._run(engine, part)
        base = reference or self._choose_reference(engines, outcomes)
        if outcomes[base].arrays is None:
            raise EngineError("runtime.run", f"the reference {base} must run the model, got: {outcomes[base].why}")
        rows = tuple(self._row(engine, outcomes[base], outcomes[engine]) for engine in engines)
        faulty = next((row for row in rows if row.is_fault), None)
        witness = next((row.engine for row in rows if row.status == AGREES), None)
        judgement = Judgement(self.model.title, base, rows, notes=tuple(self.notes))
        if faulty is None:
            return judgement
        return self._search(judgement, faulty, witness, outcomes[faulty.engine])

    def _run(self, engine: str, part: Part) -> Outcome:
        """Run an engine; an environment that cannot be made is an outcome too."""
        release = release_of(engine)
        try:
            if release is not None:
                python_of(release)
        except DovetailError as error:
            return Outcome(None, error.code, error.message)
        return self.run(engine, part)

    def _choose_reference(self, engines: Sequence[str], outcomes: Mapping[str, Outcome]) -> str:
        running = [engine for engine in engines if outcomes[engine].arrays is not None]
        own = outcomes[INTERPRETER]
        if own.arrays is not None and (
            not running or any(self._row(engine, own, outcomes[engine]).status == AGREES for engine in running)
        ):
            return INTERPRETER
        return running[0] if running else INTERPRETER

    def _row(self, engine: str, expected: Outcome, found: Outcome) -> ReleaseRow:
        if found.arrays is None:
            return ReleaseRow(engine, STATUSES.get(found.code, REFUSES), why=f"[{found.code}] {found.why}")
        cells = deviations(self.subject, expected, found, self.tolerance)
        return ReleaseRow(engine, AGREES if all(cell.agrees for cell in cells.values()) else DIFFERS, cells)

    def _search(self, judgement: Judgement, faulty: ReleaseRow, witness: str | None, outcome: Outcome) -> Judgement:
        """Locate the difference of a release, and reduce the model to it."""
        base, notes = judgement.reference, list(judgement.notes)
        witnesses = list(dict.fromkeys([base, *([] if witness is None else [witness])]))
        failure = outcome.failure if outcome.arrays is None else ("", "")
        known = values_by_name(self.subject, self.inputs, self.folder)
        check = ReleaseDifference(faulty.engine, witnesses, failure, known, self.folder, self.tolerance, self.threads)
        self.on_progress(f"locating the difference of {faulty.engine}")
        location = None
        try:
            location = bisect(
                self.model,
                engine=faulty.engine,
                reference=base,
                inputs=self.inputs,
                tolerance=self.tolerance,
                threads=self.threads,
            )
        except DovetailError as error:
            notes.append(f"the difference is not located: {error.message}")
        smallest = self._reduce(check, location, notes)
        inputs: dict[str, Any] = {}
        outcomes: dict[str, Outcome] = {}
        if smallest is not None:
            inputs = check.inputs_of(smallest)
            subject = Subject(smallest, inputs)
            part = subject.part(list(subject.model.outputs), ArrayStore(None))
            engines = [INTERPRETER, *(row.engine for row in judgement.rows if row.status != MISSING)]
            outcomes = {engine: self.run(engine, part) for engine in dict.fromkeys([base, *engines])}
        return Judgement(
            judgement.name, base, judgement.rows, faulty.engine, witness, location, smallest, inputs, outcomes, tuple(notes)
        )  # fmt: skip

    def _reduce(self, check: ReleaseDifference, location: BisectResult | None, notes: list[str]) -> Model | None:
        """Return the smallest model that shows the difference, from the located operators or from the whole model."""
        candidates = [self.model] if location is None or location.part is None else [location.part, self.model]
        for candidate in candidates:
            self.on_progress("reducing the model")
            try:
                found = reduce(
                    candidate, check, format="openvino" if candidate.format == "openvino" else "onnx", max_runs=MAX_RUNS,
                    on_progress=self.on_progress,
                )  # fmt: skip
            except CheckError:
                continue
            except DovetailError as error:
                notes.append(f"the model is not reduced: {error.message}")
                continue
            notes += found.report.notes
            return found
        notes.append("the difference does not show in a file that dovetail saves, with the same inputs")
        return None
