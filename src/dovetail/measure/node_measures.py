"""Measures of nodes from a plan: time and copied bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.engine.plan_report import report
from dovetail.engine.planner import PlanOptions
from dovetail.engine.step_profile import profile_steps
from dovetail.ir.graph import Model
from dovetail.runtime.compilation import precision_of
from dovetail.runtime.random_inputs import random_inputs


def plan_measure(
    model: Model,
    measure: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
    seed: int = 0,
    runs: int | None = None,
    precision: str | None = None,
) -> dict[str, float]:
    """Return a measure by node name: ``time``, the seconds of each node, or ``copied``, the bytes of copies that remain.

    A kernel that computes several nodes counts for the node with the most operations: a convolution, not the activation after
    it. Times are medians of ``runs`` runs on random inputs, by default of the number of runs that fits into two seconds.
    ``precision`` is the option of :func:`dovetail.compile`.
    """
    inputs = random_inputs(model, seed=seed, sizes=sizes, shapes=shapes)
    rows: list[tuple[str, float]]
    options = PlanOptions(precision=precision_of(precision))
    if measure == "time":
        steps = profile_steps(model, inputs, threads, runs, precision=options.precision).steps
        rows = [(step.node or step.label, step.seconds) for step in steps]
    else:
        names = {y.name: node.label for node in model.graph.nodes for y in node.outputs}
        copies = report(model, inputs, options, threads=threads, rounds=0).copies
        rows = [(names.get(copy.target, copy.target), float(copy.nbytes)) for copy in copies]
    found: dict[str, float] = {}
    for name, number in rows:
        found[name] = found.get(name, 0.0) + number
    return found
