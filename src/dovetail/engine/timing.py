"""How long each step of a bound plan takes, those in Python included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from dovetail.engine.plan import Step
from dovetail.engine.run import Bound, _address, _Room
from dovetail.engine.steps import finder, python_step
from dovetail.engine.work import Tile


def median_times(bound: Bound, arrays: Sequence[Any], names: Sequence[str], rounds: int) -> tuple[float, list[float]]:
    """Seconds of a whole run, and of each step of the plan in its order: medians of ``rounds`` runs of either kind, in turns."""
    whole: list[float] = []
    rows: list[list[int]] = []
    bound(arrays, None, names)
    for _ in range(rounds):
        start = time.perf_counter()
        bound(arrays, None, names)
        whole.append(time.perf_counter() - start)
        rows.append(step_times(bound, arrays, names))
    return median(whole), [median(column) / 1e9 for column in zip(*rows, strict=True)]


def step_times(bound: Bound, arrays: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Nanoseconds of each step of the plan, in its order, in one run."""
    loose = {tile: array for tile, array in zip(bound.plan.inputs, arrays, strict=True) if tile.is_loose}
    results = [bound._result(tile, name, arrays, None) for tile, name in zip(bound.plan.outputs, names, strict=True)]
    visit = bound._core.Visit(bound._program) if bound._core else _Room(bound.plan.arena_bytes)
    addresses = [visit.arena, *map(_address, arrays), *map(_address, results)]
    return _walked(bound, visit, addresses, loose)


def _walked(bound: Bound, visit: Any, addresses: list[int], loose: dict[Tile, Any]) -> list[int]:
    find = finder(addresses, loose)
    in_python = {id(step) for step, _ in bound.python_steps}
    times: list[int] = []
    first = 0
    for is_python, steps in groupby(bound.plan.steps, lambda step: id(step) in in_python):
        if is_python:
            times += [_timed(bound, step, find, loose) for step in steps]
            continue
        last = first + len(list(steps))
        times += visit.profile(addresses, first, last)[first:last]
        first = last
    return times


def _timed(bound: Bound, step: Step, find: Any, loose: dict[Tile, Any]) -> int:
    run = python_step(step, bound.scene)
    start = time.perf_counter_ns()
    run(find, loose)
    return time.perf_counter_ns() - start
