"""Trace of a profile in the Trace Event Format of Chrome, which Perfetto opens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dovetail.errors import printable
from dovetail.report.document import json_of

MAX_EVENTS = 1_000_000
"""The maximum number of events of a trace; ``otherData`` has the number of omitted events."""


def chrome_trace(profile: Any) -> str:
    """Return the trace as JSON, with one process per engine and one slice per step, whose arguments are the step's costs.

    Each step lasts the median of its runs, and begins at the end of the previous step. Successive steps of one module are in a
    slice of that module. Names are printable text. Times are in microseconds.
    """
    events: list[dict[str, Any]] = []
    left_out = 0
    for pid, engine in enumerate(profile.engines, 1):
        events.append(_name("process_name", pid, 0, engine.name))
        events.append(_name("thread_name", pid, 1, "steps"))
        for event in _engine_events(pid, engine):
            if len(events) < MAX_EVENTS:
                events.append(event)
            else:
                left_out += 1
    other = {
        "model": printable(profile.name),
        "threads": str(profile.threads),
        "note": "slices are medians of each step, in the order of execution",
        **({"left out": str(left_out)} if left_out else {}),
    }
    # Perfetto displays \u escapes without decoding them: printable non-ASCII names are written in UTF-8.
    return json_of({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}, is_ascii=False)


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": printable(name)}}


def _engine_events(pid: int, engine: Any) -> Iterator[dict[str, Any]]:
    """Yield the events of one engine; the slice of a module precedes the slices of its steps.

    Times are summed as integer nanoseconds, so that the last step of a module ends exactly when the module ends.
    """
    start = 0
    for module, steps in _successive_modules(engine.steps):
        durations = [max(round(step.seconds * 1e9), 1) for step in steps]
        if module:
            yield _slice(pid, module, "module", start, sum(durations), {"steps": len(steps)})
        for step, duration in zip(steps, durations, strict=True):
            yield _slice(pid, step.operator, "step", start, duration, _arguments(step))
            if step.live_bytes is not None:
                yield {"name": "arena", "ph": "C", "pid": pid, "ts": start / 1000, "args": {"live bytes": step.live_bytes}}
            start += duration


def _successive_modules(steps: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield (module, steps) for each run of successive steps of one module."""
    run: list[Any] = []
    for step in steps:
        if run and run[-1].module != step.module:
            yield run[-1].module, run
            run = []
        run.append(step)
    if run:
        yield run[-1].module, run


def _slice(pid: int, name: str, category: str, start: int, duration: int, arguments: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start / 1000, "dur": duration / 1000}
    return {"name": printable(name), "cat": category, "ph": "X", "pid": pid, "tid": 1, **times, "args": arguments}


def _arguments(step: Any) -> dict[str, Any]:
    """Return the known facts of a step as arguments of its slice."""
    facts = {
        "node": printable(step.label), "operator": printable(step.operator), "kernel": printable(step.kernel),
        "module": printable(step.module), "fused": printable(", ".join(step.fused)), "bytes read": step.read,
        "bytes written": step.written, "operations": step.operations, "bound by": step.bound,
        "share of limit": None if step.share_of_limit is None else round(step.share_of_limit, 4),
    }  # fmt: skip
    return {name: fact for name, fact in facts.items() if fact not in (None, "")}
