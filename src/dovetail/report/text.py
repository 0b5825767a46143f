"""Format the facts of a plan as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


def size(nbytes: float) -> str:
    """Return a number of bytes with a unit in powers of 1000, such as "1.25 MB"."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 999.5:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} GB"


def duration(seconds: float | None) -> str:
    """Return a time with a unit (ms, us); an empty string for a time that was not measured."""
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.1f} %"


def summary(facts: Any) -> list[tuple[str, str]]:
    """Return the facts of a plan as (name, text) rows."""
    rows = [
        ("inputs", ", ".join(f"{name}{shape}" for name, shape in facts.shapes.items()) or "none"),
        ("movement", movement(facts)),
        ("copies", f"{len(facts.copies)} remain"),
        ("arena", arena(facts)),
        ("steps", steps(facts)),
    ]
    if facts.run_seconds is not None:
        rows.append(("time", f"{duration(facts.run_seconds)} a run, {count(facts.threads, 'thread')}"))
    return rows


def movement(facts: Any) -> str:
    if not facts.moved_bytes:
        return "no operator only moves data"
    share = facts.copied_bytes / facts.moved_bytes
    return f"{size(facts.moved_bytes)} would be copied, {size(facts.copied_bytes)} are ({percent(share)}), elide {facts.elide}"


def arena(facts: Any) -> str:
    bound = (
        f", {facts.arena_bytes / facts.lower_bound:.2f} of the largest live set {size(facts.lower_bound)}"
        if facts.lower_bound
        else ""
    )
    return f"{size(facts.arena_bytes)} for {size(facts.activation_bytes)} of activations{bound}"


def steps(facts: Any) -> str:
    interpreted = len(facts.interpreted)
    engines = f"{interpreted} in the interpreter{share_of_interpreter(facts)}" if interpreted else "all native"
    return f"{len(facts.steps)}, {engines}"


def share_of_interpreter(facts: Any) -> str:
    shares = [kernel.share for kernel in facts.kernels if not kernel.is_native and kernel.share is not None]
    return f" ({percent(sum(shares))} of the time)" if shares else ""


class SubgraphRow(NamedTuple):
    """SubgraphRow is a row in tables of subgraphs: a step, or, if ``step`` is None, a subgraph with its total time."""

    depth: int
    label: str
    runs: int
    seconds: float | None
    step: Any


def subgraph_rows(steps: Iterable[Any]) -> list[SubgraphRow]:
    """Return rows for the steps with subgraphs, their subgraphs, and all steps in these subgraphs."""
    return list(_subgraph_rows((step for step in steps if step.subgraphs), 0))


def _subgraph_rows(steps: Iterable[Any], depth: int) -> Iterator[SubgraphRow]:
    for step in steps:
        yield SubgraphRow(depth, step.label, step.runs, step.seconds, step)
        for subgraph in step.subgraphs:
            seconds = sum(inner.seconds or 0.0 for inner in subgraph.steps)
            yield SubgraphRow(depth + 1, subgraph.name, subgraph.runs, seconds, None)
            yield from _subgraph_rows(subgraph.steps, depth + 2)


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
