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


MIN_GAP = 0.1
"""The minimum difference between a run and the sum of its steps, as a share of the run, that is reported."""


def share_of_limit(share: float | None, bound: str) -> str:
    """Return a share of the machine's limit, followed by the name of the limit (``bound``).

    A share above 1 is ">100 %": the measured limit is then below the machine's limit for these operands. ``notes_of`` says why.
    """
    return "" if share is None else f"{limit_percent(share)} {bound}"


def limit_percent(share: float) -> str:
    """Return a share of the machine's limit in percent; ">100 %" for a share above 1."""
    return ">100 %" if exceeds_limit(share) else percent(share)


def exceeds_limit(share: float) -> bool:
    """Return whether a share of the machine's limit, rounded to 0.1 %, is above 1."""
    return round(share, 3) > 1


def machine_text(profile: Any) -> str:
    limits = profile.limits
    if limits is None:
        return "not measured"
    rates = [
        f"copy {with_prefix(limits.copy_rate, 'B/s')}",
        f"f32 product {with_prefix(limits.f32_rate, 'FLOP/s')}",
        f"8-bit product {with_prefix(limits.integer_rate, 'OP/s')}",
    ]
    if limits.bf16_rate is not None:
        rates.append(f"bf16 product {with_prefix(limits.bf16_rate, 'FLOP/s')}")
    return ", ".join((*rates, count(limits.threads, "thread")))


def summary(profile: Any) -> list[tuple[str, str]]:
    """Return the facts of a profile as (name, text) rows."""
    return [
        ("inputs", ", ".join(f"{name}{shape}" for name, shape in profile.shapes.items()) or "none"),
        ("machine", machine_text(profile)),
        *(() if profile.load is None else (("load", str(profile.load)),)),
        *((engine.name, engine_text(engine)) for engine in profile.engines),
        *notes_of(profile),
    ]


def notes_of(profile: Any) -> list[tuple[str, str]]:
    """Return rows (name, text) that explain figures: steps that do not add up to the run, and shares above the limits."""
    rows = []
    for engine in profile.engines:
        run, steps = engine.run_seconds, engine.step_seconds
        if run and engine.steps and abs(steps - run) > MIN_GAP * run:
            shorter = "the rest is spent outside of the steps"
            cause = shorter if steps < run else "the timers or other programs lengthened the steps"
            rows.append((f"{engine.name} steps", f"steps {duration(steps)} of the run's {duration(run)}: {cause}"))
        faster = sum(step.share_of_limit is not None and exceeds_limit(step.share_of_limit) for step in _all_steps(engine.steps))
        if faster:
            causes = ["operands in a cache", "sizes that suit the kernel better than the measured ones"]
            if profile.load is None or profile.load.is_high:
                causes.append("limits measured on a busy machine")
            rows.append((">100 %", f"{count(faster, 'step')} faster than the measured limit: {', or '.join(causes)}"))
    return rows


def _all_steps(steps: Sequence[Any]) -> Iterator[Any]:
    """Yield steps and the steps of their subgraphs."""
    for step in steps:
        yield step
        for subgraph in step.subgraphs:
            yield from _all_steps(subgraph.steps)


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
