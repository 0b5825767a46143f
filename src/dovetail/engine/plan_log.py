"""Log of what was planned, on the logger "dovetail" at level INFO."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from dovetail.engine.memory.tensor import INTERPRET
from dovetail.engine.plan import Plan, Step
from dovetail.errors import printable

LOGGER = logging.getLogger("dovetail")


def log_plan(plan: Plan, file: str | None, sizes: Mapping[str, int]) -> None:
    """Log a new plan: its sizes, its steps by engine, the bytes of its arena and of its copies."""
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    interpreted = Counter(_operator(step) for step in plan.steps if step.kernel == INTERPRET)
    count = interpreted.total()
    names = ", ".join(name if times == 1 else f"{name} x {times}" for name, times in sorted(interpreted.items()))
    text = f"{count} interpreter step{'s' if count != 1 else ''}{f': {names}' if names else ''}"
    at = f" for {', '.join(f'{name}={size}' for name, size in sorted(sizes.items()))}" if sizes else ""
    LOGGER.info(
        "%s: planned%s: %d native steps, %s; arena %d bytes, copies %d bytes",
        printable(file or "the model"),
        printable(at),
        len(plan.steps) - count,
        printable(text),
        plan.arena_bytes,
        plan.copied_bytes,
    )


def _operator(step: Step) -> str:
    return step.call.nodes[-1].op.title if step.call is not None and step.call.nodes else step.label
