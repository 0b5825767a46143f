"""Format the facts of a profile as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dovetail.report.text import count, duration, percent, size, subgraph_rows

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def operations(number: float | None) -> str:
    """Return a number of arithmetic operations with an SI prefix, such as "1.25 GFLOP"."""
    return "" if number is None else with_prefix(number, "FLOP")


def with_prefix(number: float, unit: str) -> str:
    for factor, prefix in UNITS:
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"


def nbytes(number: int | None) -> str:
    return "" if number is None else size(number)


def share_of_limit(share: float | None, bound: str) -> str:
    """Return a share of the machine's limit, followed by the name of the limit (``bound``)."""
    return "" if share is None else f"{percent(share)} {bound}"


def machine_text(profile: Any) -> str:
    limits = profile.limits
    if limits is None:
        return "not measured"
    rates = (
        with_prefix(limits.copy_rate, "B/s"),
        with_prefix(limits.f32_rate, "FLOP/s"),
        with_prefix(limits.integer_rate, "OP/s"),
    )
    return "copy {}, f32 product {}, 8-bit product {}, {}".format(*rates, count(limits.threads, "thread"))


def summary(profile: Any) -> list[tuple[str, str]]:
    """Return the facts of a profile as (name, text) rows."""
    return [
        ("inputs", ", ".join(f"{name}{shape}" for name, shape in profile.shapes.items()) or "none"),
        ("machine", machine_text(profile)),
        *((engine.name, engine_text(engine)) for engine in profile.engines),
    ]


def engine_text(engine: Any) -> str:
    """Return the times of an engine's runs and steps, or the reason why the engine does not run the model."""
    if engine.run_seconds is None:
        return "; ".join(engine.notes)
    text = f"{duration(engine.run_seconds)} a run, {duration(engine.step_seconds)} in {count(len(engine.steps), 'step')}"
    return "; ".join((f"{text}, median of {count(engine.runs, 'run')}", *engine.notes))


def rows_of_subgraphs(steps: Sequence[Any], name_of: Callable[[int, str], Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of If and Loop with the steps of their subgraphs; ``name_of`` indents a label by its depth."""
    for depth, label, runs, seconds, step in subgraph_rows(steps):
        name, time = name_of(depth, label), duration(seconds)
        if step is None:
            yield ("", name, "", "", runs, time, "", "", "")
        else:
            work = nbytes(step.nbytes), operations(step.operations), share_of_limit(step.share_of_limit, step.bound)
            yield (step.number, name, step.operator, step.kernel, runs, time, *work)
