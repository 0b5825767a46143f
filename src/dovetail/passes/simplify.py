"""Simplification of models: passes that remove nodes, applied until none changes the model, each proved if asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats import reload
from dovetail.ir.edit import copy_graph, copy_model
from dovetail.ir.graph import Graph, Model
from dovetail.ir.infer import infer_graph, keep_names, pure_inference
from dovetail.ir.limits import counting
from dovetail.ir.suggestions import check_keywords, closest
from dovetail.ops.constant import Constant
from dovetail.passes.simplification.rules import Change, Target, graphs_of

if TYPE_CHECKING:
    from dovetail.compare.verification.rewrites import RewriteVerification
    from dovetail.passes.simplification.passes import Pass

MAX_RELOADS = 4
"""The most times that a model is simplified as its file has it."""
MAX_ROUNDS = 64
"""The most rounds of all passes; a model that still changes then is returned as it is."""


@dataclass(slots=True)
class PassReport:
    """The changes of one pass in all rounds; ``reverted`` is the difference where a verification has refuted the pass."""

    name: str
    changes: list[Change] = field(default_factory=list)
    reverted: str = ""


@dataclass(slots=True)
class SimplifyReport:
    """The report of :func:`simplify`: nodes, without constants and with those of subgraphs, before and after, and each pass.

    ``sizes`` are the sizes of open dimensions at which the model ran, empty where the proof
    needed no run, and ``notes`` what could not be proved.
    ``verdict`` and ``rewrites`` are those of the proof that the result equals the model for all inputs (see
    :func:`dovetail.prove`); empty without ``prove``.
    """

    nodes_before: int
    nodes_after: int
    rounds: int
    passes: list[PassReport]
    sizes: list[dict[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: str = ""
    rewrites: list[str] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """The number of changed nodes."""
        return sum(len(each.changes) for each in self.passes)

    @property
    def refutations(self) -> list[PassReport]:
        """The passes that changed an answer, and were taken back."""
        return [each for each in self.passes if each.reverted]


@check_keywords
def simplify(
    model: Model,
    *,
    keep: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    prove: bool = False,
    seed: int = 0,
    tolerance: float | None = None,
    target: str = "",
    fuse: Iterable[str] = (),
) -> Model:
    """Return a model with fewer nodes that computes the same; its ``report`` is a SimplifyReport.

    ``keep`` names the passes to apply (default: all of PASSES), ``skip`` those to leave out. Inputs and outputs keep their names,
    types and order.

    With ``prove`` the result is proved equal to the model for all inputs, where that can be (``report.verdict``). A result that
    is equal over the real numbers runs beside the model once, on inputs drawn from ``seed``, at two sizes of its open dimensions
    where it has any. Where that proof fails, the model runs before and after each pass, natively, and by the interpreter where
    bits differ. A pass that changes an answer is taken back: by more than ``tolerance`` of the largest magnitude, or for a pass
    that moves elements alone, by a bit.

    ``target``: the format "onnx" or "openvino" in which the result is to be saved. The operators into which an operator is
    written there are simplified too, so that the file, loaded and simplified again, stays as it is.

    ``fuse`` names operators that exporters write as several, from FUSIONS, or is "all": they are fused where the model's opset
    has the operator. That changes results by rounding.

    Raises RuleError [argument.value] for the name of no pass or of no fusion, and the errors of :func:`infer`.

    Source: the passes are those of compilers (common subexpressions, constant folding, dead code); see docs/howto/simplify.md.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.Negative(b.Negative(b.input("x", "f32", ("n",))))))
    >>> report = dovetail.simplify(b.model).report
    >>> (report.nodes_before, report.nodes_after)
    (3, 1)
    """
    # Deferred for start-up time: the passes import a third of the operators.
    from dovetail.compare.prove.proof import prove as prove_equal
    from dovetail.compare.verification.rewrites import RewriteVerification
    from dovetail.passes.simplification.passes import PASSES

    fusions, notes = _select_fusions(model, ["all"] if fuse == "all" else list(fuse))
    chosen = [*(PASSES[name] for name in _select(PASSES, keep, skip)), *fusions]
    with counting(model.limits):
        new, report = _simplify(model, chosen, target, None)
        if not prove:
            report.notes, new.report = notes, report
            return new
        # Most results are proved for all inputs at once; passes run before and after where that fails.
        verification = RewriteVerification(model, seed, tolerance)
        equality = prove_equal(model, new, real=True, regions=False)
        is_refuted = equality.verdict == "real" and verification.refute(model.graph, new.graph, is_exact=False)
        if not equality.is_proved or is_refuted:
            verification = RewriteVerification(model, seed, tolerance)
            new, report = _simplify(model, chosen, target, verification)
            equality = prove_equal(model, new, real=True, regions=False)
    report.sizes, report.notes = verification.sizes, [*notes, *verification.notes]
    report.verdict, report.rewrites = equality.verdict, equality.rewrites
    new.report = report
    return new


def _simplify(
    model: Model, passes: Sequence[Pass], target: str, verification: RewriteVerification | None
) -> tuple[Model, SimplifyReport]:
    """Apply passes to a copy of a model, each verified by runs where ``verification`` is given."""
    new = copy_model(model)
    reports = {each.name: PassReport(each.name) for each in passes}
    types = [y.type for y in new.outputs]
    before = count_nodes(new.graph)
    rounds = _run(new, passes, reports, verification)
    for _ in range(MAX_RELOADS if target else 0):
        again = _reload_as(new, target)
        if again is None:
            break
        state = _state_of(again, reports)
        rounds += _run(again, passes, reports, verification)
        if _state_of(again, reports) == state:
            break
        new = again
    declared = {value.name: value.type for value in model.graph.values()}
    for value in new.graph.values():
        value.type = keep_names(value.type, declared.get(value.name, value.type))
    for y, type in zip(new.outputs, types, strict=True):
        y.type = type
    return new, SimplifyReport(before, count_nodes(new.graph), rounds, list(reports.values()))


def _select(known: Collection[str], keep: Iterable[str] | None, skip: Iterable[str]) -> list[str]:
    kept, skipped = None if keep is None else list(keep), list(skip)
    unknown = [name for name in (*(kept or ()), *skipped) if name not in known]
    if unknown:
        names = ", ".join(map(repr, dict.fromkeys(unknown)))
        raise RuleError("argument.value", f"a pass must be one of {', '.join(known)}, got {names}{closest(unknown[0], known)}")
    return [name for name in known if (kept is None or name in kept) and name not in skipped]


def _select_fusions(model: Model, names: list[str]) -> tuple[list[Pass], list[str]]:
    """Return the passes of the fusions whose operator the model's format has, and a note for each of the others."""
    from dovetail.passes.simplification.passes import FUSIONS

    unknown = [name for name in names if name not in FUSIONS and name != "all"]
    if unknown:
        text = f"{', '.join(unknown)}{closest(unknown[0], FUSIONS)}"
        raise RuleError("argument.value", f"a fusion must be one of {', '.join(FUSIONS)}, or all, got {text}")
    found, notes = [], []
    opset = model.versions.get("", 0)
    for name, fusion in FUSIONS.items():
        if name not in names and "all" not in names:
            continue
        if model.format == "openvino" and not fusion.is_in_ir:
            notes.append(f"{name} is not fused: IR has no such operator")
        elif model.format == "onnx" and opset < fusion.opset:
            notes.append(f"{name} is not fused: it needs opset {fusion.opset}, the model has {opset}; dovetail convert --opset")
        else:
            found.append(fusion.fuse)
    return found, notes


def count_nodes(graph: Graph) -> int:
    """Return the number of nodes of a graph and its subgraphs, without constants."""
    return sum(not isinstance(node.op, Constant) for each in graphs_of(graph) for node in each.nodes)


def _state_of(model: Model, reports: dict[str, PassReport]) -> tuple[int, int]:
    """Return what every change increases or reduces: the logged changes, and the nodes with constants."""
    return sum(len(each.changes) for each in reports.values()), sum(len(each.nodes) for each in graphs_of(model.graph))


def _reload_as(model: Model, format: str) -> Model | None:
    """Return the model as a file of a format has it; None where the format cannot express it, which saving reports."""
    try:
        return reload(model, format)
    except UnsupportedError:
        return None


def _run(model: Model, passes: Sequence[Pass], reports: dict[str, PassReport], verification: RewriteVerification | None) -> int:
    """Apply all passes in rounds until one changes nothing. Returns the number of rounds."""
    target = Target(model.format, model.versions.get("", 0) if model.format == "onnx" else 0)
    for number in range(MAX_ROUNDS):
        with pure_inference():
            infer_graph(model.graph, file=model.file)
        changed = 0
        for each in passes:
            report = reports[each.name]
            if not report.reverted:
                changed += _apply(model, each, target, report, verification)
        if not changed:
            return number + 1
    return MAX_ROUNDS


def _apply(model: Model, each: Pass, target: Target, report: PassReport, verification: RewriteVerification | None) -> int:
    """Apply one pass to all graphs of a model, and take it back where the verification refutes it. Returns the number."""
    before = copy_graph(model.graph) if verification is not None else None
    target.changes = []
    changed = 0
    for graph in list(graphs_of(model.graph)):
        target.is_subgraph = graph is not model.graph
        changed += each.apply(graph, target)
    if changed and verification is not None and before is not None:
        reason = verification.refute(before, model.graph, is_exact=each.is_exact)
        if reason:
            model.graph, report.reverted, report.changes = before, reason, []
            return 0
    report.changes += target.changes
    return changed
