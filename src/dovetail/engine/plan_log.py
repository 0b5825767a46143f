"""Log of plans, on the logger "dovetail" at level INFO."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from dovetail.engine.memory.tensor import INTERPRET
from dovetail.engine.parametric_sizes import SizeRange
from dovetail.engine.plan import Plan, Step
from dovetail.errors import printable

LOGGER = logging.getLogger("dovetail")


def log_plan(plan: Plan, file: str | None, sizes: Mapping[str, int]) -> None:
    """Log a new plan: the symbols' sizes, the steps by engine, and the bytes of arena and copies."""
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    computed = [step for step in plan.steps if step.kernel == INTERPRET]
    # Only a run decides whether the core runs a subgraph.
    subgraphs = [step for step in computed if _holds_graphs(step)]
    interpreted = [step for step in computed if not _holds_graphs(step)]
    parts = [_count("subgraph", subgraphs)] if subgraphs else []
    text = ", ".join([*parts, _count("interpreter", interpreted)])
    at = f" for {', '.join(f'{name}={size}' for name, size in sorted(sizes.items()))}" if sizes else ""
    LOGGER.info(
        "%s: planned%s: %d native steps, %s; arena %d bytes, copies %d bytes",
        printable(file or "the model"),
        printable(at),
        len(plan.steps) - len(computed),
        printable(text),
        plan.arena_bytes,
        plan.copied_bytes,
    )


def log_parametric_plan(file: str | None, ranges: Mapping[str, SizeRange], reason: str) -> None:
    """Log whether one plan serves ranges of sizes. ``reason``: the reason for a negative answer, else ""."""
    text = ", ".join(
        f"{name}={range.first}..{range.last}{f' in steps of {range.step}' if range.step > 1 else ''}"
        for name, range in ranges.items()
    )
    found = "each size is planned for" if reason else "one plan serves"
    because = f": {reason}" if reason else ""
    LOGGER.info("%s: %s %s%s", printable(file or "the model"), found, printable(text), printable(because))


def log_eviction(file: str | None, cached: int, nbytes: int, maximum: int) -> None:
    """Log the eviction of a program, and the number and bytes of the programs that remain in the cache."""
    LOGGER.info(
        "%s: the least recently used program is dropped for a new one: the remaining %d programs take %d of %d bytes",
        printable(file or "the model"), cached, nbytes, maximum,
    )  # fmt: skip


def _count(kind: str, steps: Sequence[Step]) -> str:
    """Return a text with the number of steps of a kind and the operators of these steps."""
    operators = Counter(map(_operator, steps))
    names = ", ".join(name if times == 1 else f"{name} x {times}" for name, times in sorted(operators.items()))
    return f"{len(steps)} {kind} step{'s' if len(steps) != 1 else ''}{f': {names}' if names else ''}"


def _holds_graphs(step: Step) -> bool:
    return step.call is not None and any(node.op.holds_graphs for node in step.call.nodes)


def _operator(step: Step) -> str:
    return step.call.nodes[-1].op.title if step.call is not None and step.call.nodes else step.label
