"""Simplification of models: passes that remove nodes, applied until none changes the model, each proved if asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.errors import RuleError
from dovetail.ir.edit import copy_graph, copy_model
from dovetail.ir.graph import Graph, Model
from dovetail.limits import counting
from dovetail.ops.constant import Constant
from dovetail.passes.infer import infer_graph
from dovetail.transform.simplification.rules import Change, Target, graphs_of

if TYPE_CHECKING:
    from dovetail.transform.proof import Proof
    from dovetail.transform.simplification.passes import Pass

MAX_ROUNDS = 64
"""The most rounds of all passes; a model that still changes then is returned as it is."""


@dataclass(slots=True)
class PassReport:
    """The changes of one pass in all rounds; ``reverted`` is the reason where a proof has refused the pass."""

    name: str
    changes: list[Change] = field(default_factory=list)
    reverted: str = ""


@dataclass(slots=True)
class SimplifyReport:
    """The report of :func:`simplify`: nodes, without constants and with those of subgraphs, before and after, and each pass.

    ``sizes`` are the sizes of open dimensions at which each pass was proved, and ``notes`` what could not be proved.
    """

    nodes_before: int
    nodes_after: int
    rounds: int
    passes: list[PassReport]
    sizes: list[dict[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """The number of changed nodes."""
        return sum(len(each.changes) for each in self.passes)

    @property
    def refutations(self) -> list[PassReport]:
        """The passes that changed an answer, and were taken back."""
        return [each for each in self.passes if each.reverted]


def simplify(
    model: Model,
    *,
    keep: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    prove: bool = False,
    seed: int = 0,
    tolerance: float | None = None,
) -> tuple[Model, SimplifyReport]:
    """Return a model with fewer nodes that computes the same, and a report.

    ``keep`` names the passes to apply (default: all of PASSES), ``skip`` those to leave out. Inputs and outputs keep their names,
    types and order. With ``prove`` the model runs before and after each pass on inputs drawn from ``seed``, at two sizes of its
    open dimensions where it has any, by the interpreter and the native engine. A pass that changes an answer is taken back: by
    more than ``tolerance`` of the largest magnitude, or for a pass that moves elements alone, by a bit.

    Raises RuleError [simplify.pass] for the name of no pass.
    """
    # Deferred for start-up time: the passes import a third of the operators.
    from dovetail.transform.proof import Proof
    from dovetail.transform.simplification.passes import PASSES

    passes = _select(PASSES, keep, skip)
    new = copy_model(model)
    target = Target(model.format, model.versions.get("", 0) if model.format == "onnx" else 0)
    reports = {name: PassReport(name) for name in passes}
    types = [y.type for y in new.outputs]
    before = count_nodes(new.graph)
    with counting(model.limits):
        proof = Proof(model, seed, tolerance) if prove else None
        rounds = _run(new, [PASSES[name] for name in passes], target, reports, proof)
    for y, type in zip(new.outputs, types, strict=True):
        y.type = type
    report = SimplifyReport(before, count_nodes(new.graph), rounds, list(reports.values()))
    if proof is not None:
        report.sizes, report.notes = proof.sizes, proof.notes
    return new, report


def _select(known: Collection[str], keep: Iterable[str] | None, skip: Iterable[str]) -> list[str]:
    kept, skipped = None if keep is None else list(keep), list(skip)
    unknown = [name for name in (*(kept or ()), *skipped) if name not in known]
    if unknown:
        names = ", ".join(map(repr, dict.fromkeys(unknown)))
        raise RuleError("simplify.pass", f"a pass must be one of {', '.join(known)}, got {names}")
    return [name for name in known if (kept is None or name in kept) and name not in skipped]


def count_nodes(graph: Graph) -> int:
    """Return the number of nodes of a graph and its subgraphs, without constants."""
    return sum(not isinstance(node.op, Constant) for each in graphs_of(graph) for node in each.nodes)


def _run(model: Model, passes: Sequence[Pass], target: Target, reports: dict[str, PassReport], proof: Proof | None) -> int:
    """Apply all passes in rounds until one changes nothing. Returns the number of rounds."""
    for number in range(MAX_ROUNDS):
        infer_graph(model.graph, file=model.file)
        changed = 0
        for each in passes:
            report = reports[each.name]
            if not report.reverted:
                changed += _apply(model, each, target, report, proof)
        if not changed:
            return number + 1
    return MAX_ROUNDS


def _apply(model: Model, each: Pass, target: Target, report: PassReport, proof: Proof | None) -> int:
    """Apply one pass to all graphs of a model, and take it back where the proof refuses it. Returns the number of changes."""
    before = copy_graph(model.graph) if proof is not None else None
    target.changes = []
    changed = 0
    for graph in list(graphs_of(model.graph)):
        target.is_subgraph = graph is not model.graph
        changed += each.apply(graph, target)
    if changed and proof is not None and before is not None:
        reason = proof.refute(model.graph, is_exact=each.is_exact)
        if reason:
            model.graph, report.reverted, report.changes = before, reason, []
            return 0
    report.changes += target.changes
    return changed
