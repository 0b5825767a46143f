"""The result of the search for the first wrong operator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dovetail.compare.arrays import Deviation
from dovetail.errors import printable
from dovetail.ir.graph import Model

FOUND, TOGETHER, AGREES = "found", "together", "agrees"


@dataclass(frozen=True, slots=True)
class BisectResult:
    """BisectResult is the operator that ``engine`` computes wrongly from the inputs of the reference.

    - ``status``: "found" (one operator, or the operators between two values that both models have); "together" (operators that
      differ only as a slice: a fusion, or accumulated rounding); "agrees" (no slice differs)
    - ``nodes``: labels of the operators; ``values``: the deviation of each value of the operators
    - ``why``: the error of the engine if the engine cannot run the operators
    - ``is_amplified``: the values of the operators agree within the tolerance, but outputs that the reference computes from them
      differ
    - ``has_more``: later operators are wrong too; None if no run was left for the test
    - ``runs``: number of runs of the engine, at most ``bound``, which is twice the binary logarithm of ``count``, the number of
      operators
    - ``part``: the operators as a model that runs on ``inputs``; ``reference_part``: the same part of the first model, if two
      models were compared
    """

    status: str
    engine: str
    reference: str
    count: int
    runs: int
    bound: int
    nodes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    values: dict[str, Deviation] = field(default_factory=dict)
    why: str = ""
    is_amplified: bool = False
    reaches_output: bool = True
    has_more: bool | None = None
    notes: tuple[str, ...] = ()
    part: Model | None = field(default=None, repr=False)
    reference_part: Model | None = field(default=None, repr=False)
    inputs: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def node(self) -> str | None:
        """The label of the last found operator; None unless ``status`` is "found"."""
        return self.nodes[-1] if self.status == FOUND else None

    def describe(self) -> str:
        """Return the result as one sentence."""
        if self.status == AGREES:
            return f"{self.engine}: no difference found"
        names = f"{self.operators[-1]} {self.nodes[-1]!r}"
        if len(self.nodes) > 1:
            names = f"{len(self.nodes)} operators from {self.operators[0]} {self.nodes[0]!r} to {names}"
        if self.status == TOGETHER:
            return f"{self.engine}: {names} differ together, and not alone"
        if self.why:
            return f"{self.engine}: {names} cannot run: {self.why}"
        if self.is_amplified:
            return f"{self.engine}: {names} agrees within the tolerance, but outputs that the reference computes from it differ"
        return f"{self.engine}: {names} {'are' if len(self.nodes) > 1 else 'is'} wrong"

    def as_dict(self) -> dict[str, Any]:
        """Return all facts, for JSON."""
        names = ("status", "engine", "reference", "count", "runs", "bound", "why", "is_amplified", "reaches_output", "has_more")
        facts = {name: getattr(self, name) for name in names}
        facts |= {"nodes": list(self.nodes), "operators": list(self.operators), "notes": list(self.notes)}
        return {**facts, "values": {name: asdict(cell) for name, cell in self.values.items()}}

    def __str__(self) -> str:
        return printable(f"{self.describe()} ({self.runs} runs, at most {self.bound})")
