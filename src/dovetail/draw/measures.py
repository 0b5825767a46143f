"""Measures of nodes from a plan: time and copied bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.engine.plan_report import report
from dovetail.ir.graph import Model


def plan_measure(
    model: Model,
    measure: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
    seed: int = 0,
    rounds: int = 3,
) -> dict[str, float]:
    """Return the ``time`` of each node in seconds, or the bytes that remain ``copied``, by node name.

    A kernel of several nodes counts for the node that names its step. Times are medians of ``rounds`` runs on random inputs.
    """
    facts = report(
        model, threads=threads, shapes=shapes, sizes=sizes, seed=seed, rounds=rounds if measure == "time" else 0
    )  # fmt: skip
    names = {y.name: node.label for node in model.graph.nodes for y in node.outputs}
    names.update({node.label: node.label for node in model.graph.nodes})
    found: dict[str, float] = {}
    rows: list[tuple[str, Any]] = (
        [(step.label, step.seconds) for step in facts.steps]
        if measure == "time"
        else [(copy.target, copy.nbytes) for copy in facts.copies]
    )
    for label, number in rows:
        name = names.get(label, label)
        found[name] = found.get(name, 0.0) + float(number or 0.0)
    return found
