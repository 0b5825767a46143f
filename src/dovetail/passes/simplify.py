"""Simplification of models: passes that remove nodes run until none changes the model; the result is proved on request."""

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
from dovetail.ir.op import graphs_of
from dovetail.ir.suggestions import check_keywords, closest
from dovetail.ops.constant import Constant
from dovetail.passes.simplification.rules import Change, Target

if TYPE_CHECKING:
    from dovetail.compare.verification.rewrites import RewriteVerification
    from dovetail.passes.simplification.passes import Pass

MAX_RELOADS = 4
"""Maximum number of times that a model is reloaded in its target format and simplified again."""
MAX_ROUNDS = 64
"""Maximum number of rounds of all passes; a model that still changes afterwards is returned unfinished."""


@dataclass(slots=True)
class PassReport:
    """PassReport holds the changes of one pass in all rounds; ``reverted`` is the reason if it was reverted."""

    name: str
    changes: list[Change] = field(default_factory=list)
    reverted: str = ""


@dataclass(slots=True)
class SimplifyReport:
    """SimplifyReport is the report of :func:`simplify`: the number of nodes before and after, and the changes of each pass.

    Nodes of subgraphs are counted, constants are not. ``sizes`` lists the sizes of dynamic dimensions at which the model ran; it
    is empty if the proof needed no run. ``notes`` lists fusions that were not applied and results that could not be verified.
    ``verdict`` and ``rewrites`` are results of the proof that the simplified model equals the model for all inputs (see
    :func:`dovetail.prove`); both are empty without ``prove``.
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
        """The passes that were reverted because they changed an output."""
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
    """Return an equivalent model with fewer nodes; its ``report`` is a SimplifyReport.

    ``keep`` names the passes to apply (default: all of PASSES and of plug-ins), and ``skip`` the passes to leave out. Inputs and
    outputs keep their names, types and order.

    With ``prove`` the result is proved equal to the model for all inputs, if a proof is found (``report.verdict``). If both are
    equal only over the real numbers, they also run once on inputs drawn from ``seed``, at two sizes of dynamic dimensions. If the
    proof or this run fails, the model runs before and after each pass, in the native engine, and in the interpreter where bits
    differ. A pass is reverted if it changes an output by more than ``tolerance`` times the largest magnitude. An exact pass
    is reverted if it changes a bit.

    ``target`` is the format in which the result will be saved, "onnx" or "openvino". Operators that this format decomposes are
    simplified in decomposed form, so that simplifying the loaded file again changes nothing.

    ``fuse`` names operators of FUSIONS, or is "all". Their decompositions by exporters are fused if the model's opset has the
    operator. Fusion changes results by rounding.

    Raises RuleError [argument.value] for the name of an unknown pass or fusion, and the errors of :func:`infer`.

    Source: the passes are those of compilers (common subexpressions, constant folding, dead code); see docs/howto/simplify.md.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.Negative(b.Negative(b.input("x", "f32", ("n",))))))
    >>> report = dovetail.simplify(b.model).report
    >>> (report.nodes_before, report.nodes_after)
    (3, 1)
    """
    # Deferred for start-up time: the passes import a third of the operators.
    from dovetail.compare.prove.proof import prove as prove_equal
    from dovetail.compare.verification.rewrites import RewriteVerification
    from dovetail.passes.simplification.passes import all_passes

    passes = all_passes()
    fusions, notes = _select_fusions(model, ["all"] if fuse == "all" else list(fuse))
    chosen = [*(passes[name] for name in _select(passes, keep, skip)), *fusions]
    with counting(model.limits):
        new, report = _simplify(model, chosen, target, None)
        if not prove:
            report.notes, new.report = notes, report
            return new
        # Most results are proved as a whole; only if that proof fails, runs before and after each pass verify the passes.
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
    """Apply passes to a copy of a model; runs verify each pass if ``verification`` is not None."""
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
    """Return the passes of the named fusions that the model's format supports, and a note for each other named fusion."""
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
    """Return two numbers, one of which every change alters: logged changes, and nodes including constants."""
    return sum(len(each.changes) for each in reports.values()), sum(len(each.nodes) for each in graphs_of(model.graph))


def _reload_as(model: Model, format: str) -> Model | None:
    """Return the model saved and loaded again in ``format``; None if the format cannot express it, which saving reports."""
    try:
        return reload(model, format)
    except UnsupportedError:
        return None


def _run(model: Model, passes: Sequence[Pass], reports: dict[str, PassReport], verification: RewriteVerification | None) -> int:
    """Apply all passes in rounds until a round changes nothing. Returns the number of rounds."""
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
    """Apply one pass to all graphs of a model, and revert it if verification refutes it. Returns the number of changes."""
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
