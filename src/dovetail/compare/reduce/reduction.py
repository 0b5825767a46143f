"""dovetail.reduce: the smallest model for which a check still fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any

from dovetail.compare.reduce.check_command import Check, CheckCommand, CheckError
from dovetail.compare.reduce.delta import minimize
from dovetail.compare.reduce.model_parts import (
    ShapeRecords,
    operators_of,
    part_of,
    sizes_of,
    subgraphs_of,
    weights_of,
    with_input_size,
    with_size,
    with_weight,
    without_node,
    without_output,
)
from dovetail.errors import DovetailError
from dovetail.formats import load, save
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model
from dovetail.ir.limits import Limits
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Tensor

MAX_RUNS = 1000
CANDIDATES_PER_RUN = 10
"""Maximum number of candidates for each allowed run: candidates that cannot be saved run no check."""
SUFFIXES = {"onnx": ".onnx", "openvino": ".xml", "text": ".onnx"}
EXTERNAL_BYTES = 1 << 30
"""Size of weights in bytes from which a candidate is saved with weights in a separate file."""


@dataclass(frozen=True, slots=True)
class ReduceReport:
    """ReduceReport counts nodes before and after :func:`reduce`, runs of the check, and accepted candidates.

    ``notes`` say why the search ended early.
    """

    nodes_before: int
    nodes_after: int
    runs: int
    accepted: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return all facts, for JSON."""
        return {name: getattr(self, name) for name in ("nodes_before", "nodes_after", "runs", "accepted", "notes")}


class _Exhausted(Exception):
    """_Exhausted is raised when the limit of runs or candidates is reached."""


@check_keywords
def reduce(
    model: Model | str | PathLike[str],
    check: str | Check,
    *,
    format: str | None = None,
    exit_code: int | None = None,
    timeout: float = 60.0,
    max_runs: int = MAX_RUNS,
    limits: Limits | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Model:
    """Find the smallest model for which ``check`` still fails: fewer nodes first, then smaller sizes, then simpler weights.

    ``check`` is a command with ``{}`` in place of the path of a model file, or a function that takes the path and returns whether
    the fault is present. A command fails if its exit code is not 0, or is ``exit_code``. A command that takes longer than
    ``timeout`` seconds does not fail. ``format``, "onnx" or "openvino", is the format of the checked files; the default is the
    model's format. ``on_progress`` gets a line of text after each smaller model. The ``report`` of the result is a ReduceReport.

    Raises CheckError [argument.value] for a command that cannot be run and for ``max_runs`` below 1, [reduce.check] if the check
    does not fail on the model itself; and the errors of :func:`load` and of :func:`save`.

    Source: delta debugging (Zeller and Hildebrandt, 2002); the timeout is in seconds.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Exp(b.Relu(b.input("x", "f32", (8,)))))
    >>> dovetail.reduce(b.model, lambda path: "Relu" in str(dovetail.load(path)))
    <Model '': (x: f32[1]) -> (relu: f32[1]), 1 nodes>
    """
    if max_runs < 1:
        raise CheckError("argument.value", f"the number of runs must be at least 1, got {max_runs}")
    original = model if isinstance(model, Model) else load(model, limits=limits)
    asked = CheckCommand(check, exit_code=exit_code, timeout=timeout) if isinstance(check, str) else check
    suffix = SUFFIXES.get(format or original.format, ".onnx")
    with tempfile.TemporaryDirectory(prefix="dovetail-reduce-") as folder:
        search = _ReductionSearch(original, asked, os.path.join(folder, f"model{suffix}"), max_runs, on_progress)
        search.demand_failure()
        notes: tuple[str, ...] = ()
        try:
            search.run()
        except _Exhausted:
            notes = (f"stopped after {max_runs} runs of the check; more runs could reduce the model further",)
    before, after = (len(operators_of(each)) for each in (original, search.model))
    smallest = copy_model(search.model)
    smallest.report = ReduceReport(before, after, search.runs, search.accepted, notes)
    return smallest


class _ReductionSearch:
    """_ReductionSearch searches for a smaller model that fails; ``model`` is the smallest failing model so far."""

    def __init__(self, model: Model, check: Check, path: str, max_runs: int, on_progress: Callable[[str], None] | None) -> None:
        self.model = model
        self.runs = 0
        self.accepted = 0
        self._candidates = 0
        self._check = check
        self._path = path
        self._max_runs = max_runs
        self._on_progress = on_progress

    def demand_failure(self) -> None:
        """Raise CheckError [reduce.check] unless the check fails on the model itself."""
        self._write(self.model)
        self.runs += 1
        if not self._check(self._path):
            reason = "it was ended after the timeout" if getattr(self._check, "timed_out", False) else "it passes"
            raise CheckError("reduce.check", f"the check must fail on the model itself, but {reason}", file=self.model.file)

    def run(self) -> None:
        """Reduce nodes, sizes and weights."""
        self._reduce_nodes()
        self._reduce_sizes()
        self._reduce_weights()

    def _write(self, model: Model) -> None:
        options: dict[str, Any] = {}
        if self._path.endswith(".onnx"):
            size = sum(node.op.__dict__["data"].nbytes for node in model.graph.nodes if "data" in node.op.__dict__)
            options = {"external": True} if size >= EXTERNAL_BYTES else {}
        save(model, self._path, **options)

    def _accept(self, candidate: Model) -> bool:
        """Check a candidate, and keep it if the check fails on it. Returns False for a candidate that cannot be saved."""
        self._candidates += 1
        if self.runs >= self._max_runs or self._candidates > CANDIDATES_PER_RUN * self._max_runs:
            raise _Exhausted
        try:
            self._write(candidate)
        except DovetailError:
            return False
        self.runs += 1
        if not self._check(self._path):
            return False
        self.model = candidate
        self.accepted += 1
        if self._on_progress is not None:
            self._on_progress(f"{len(operators_of(candidate))} nodes after {self.runs} runs")
        return True

    def _accept_first(self, candidates: Iterable[Model]) -> bool:
        return any(map(self._accept, _without_errors(candidates)))

    # Nodes

    def _reduce_nodes(self) -> None:
        while True:
            count = len(operators_of(self.model))
            self._minimize()
            while self._pass_by() or self._drop_output():
                pass
            if self._accept_first(subgraphs_of(self.model)):
                continue
            if len(operators_of(self.model)) >= count:
                return

    def _minimize(self) -> None:
        """Find a minimal set of nodes for which the check fails when all other nodes are cut away."""
        base = self.model
        nodes = operators_of(base)
        records = ShapeRecords(base)

        def parts(chosen: list[int]) -> Iterator[Model]:
            with_constants = part_of(base, [nodes[index] for index in chosen], records)
            yield with_constants
            as_inputs = part_of(base, [nodes[index] for index in chosen], None)
            if len(as_inputs.inputs) > len(with_constants.inputs):
                yield as_inputs

        minimize(range(len(nodes)), lambda chosen: self._accept_first(parts(chosen)))

    def _pass_by(self) -> bool:
        return any(self._accept_first(without_node(self.model, index)) for index in range(len(operators_of(self.model))))

    def _drop_output(self) -> bool:
        count = len(self.model.outputs)
        return count > 1 and any(self._accept_first(without_output(self.model, index) for _ in (0,)) for index in range(count))

    # Sizes and weights

    def _reduce_sizes(self) -> None:
        while self._cut_common_size() or self._cut_input_size():
            pass

    def _cut_common_size(self) -> bool:
        """Cut all axes of one size together."""
        return any(self._accept_first(self._models_of_size(size)) for size in sizes_of(self.model))

    def _models_of_size(self, size: int) -> Iterator[Model]:
        for new in dict.fromkeys((1, size // 2)):
            for elements in (True, False):
                try:
                    yield with_size(self.model, size, new, elements=elements)
                except DovetailError:
                    continue

    def _cut_input_size(self) -> bool:
        return self._accept_first(self._models_of_inputs())

    def _models_of_inputs(self) -> Iterator[Model]:
        for index, value in enumerate(self.model.inputs):
            shape = value.type.shape if isinstance(value.type, Tensor) else None
            for axis, size in enumerate(shape or ()):
                if not isinstance(size, int) or size <= 1:
                    continue
                for new in dict.fromkeys((1, size // 2)):
                    try:
                        yield with_input_size(self.model, index, axis, new)
                    except DovetailError:
                        continue

    def _reduce_weights(self) -> None:
        for name in weights_of(self.model):
            self._accept_first(self._models_of_weight(name))

    def _models_of_weight(self, name: str) -> Iterator[Model]:
        for number in (0.0, 1.0):
            try:
                yield with_weight(self.model, name, number)
            except DovetailError:
                continue


def _without_errors(candidates: Iterable[Model]) -> Iterator[Model]:
    """Yield candidates until creating one raises an error."""
    iterator = iter(candidates)
    while True:
        try:
            candidate = next(iterator, None)
        except DovetailError:
            return
        if candidate is None:
            return
        yield candidate
