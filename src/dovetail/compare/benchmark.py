"""How fast a model runs in several engines, how much memory it takes in each, and whether they agree."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail import native_core
from dovetail.compare.runtimes import Call, Cost, Names, Runner, cost, is_installed, runner
from dovetail.compare.verify import compare
from dovetail.errors import DovetailError, EngineError, UnsupportedError
from dovetail.formats import save
from dovetail.formats.model_source import format_of
from dovetail.ir.graph import Model
from dovetail.ir.state import own_inputs, own_outputs

REST = 0.05
"""Seconds between engines: longer than any of them lets its threads spin (onnxruntime up to 40 ms, where a pause is long)."""
AWAKE = 0.01
"""Seconds of runs that do not count: a processor and its memory that rested need some milliseconds to be at their speed."""
PEERS = ("onnxruntime", "openvino")


@dataclass(frozen=True, slots=True)
class Measured:
    """One engine's figures. ``ratio``: our time over its; below 1 we are faster. ``notes``: what it was given, why it failed."""

    engine: str
    name: str
    seconds: float | None = None
    ratio: float | None = None
    peak_bytes: int | None = None
    compile_seconds: float | None = None
    agrees: bool | None = None
    difference: float | None = None
    notes: tuple[str, ...] = ()


def peers_for(wanted: Sequence[str] | None) -> list[str]:
    """Those to measure against: what is asked for, else what is installed. Raises UnsupportedError [runtime.missing]."""
    if wanted is None:
        return [name for name in PEERS if is_installed(name)]
    for name in wanted:
        if name not in PEERS or not is_installed(name):
            what = "is not installed" if name in PEERS else f"is none of {', '.join(PEERS)}"
            raise UnsupportedError("runtime.missing", f"{name} {what}")
    return list(wanted)


def measure(
    model: Model, path: str, inputs: Mapping[str, Any], peers: Sequence[str], threads: int, rounds: int, memory: bool = True
) -> list[Measured]:
    """Figures of dovetail and of each peer, for the model that is in the file ``path``.

    Times are medians of runs in turns, in this process; peak memory is that of a process that holds the one engine alone.
    OpenVINO reads both formats; onnxruntime is given what dovetail writes of an IR model.
    """
    names = Names([x.name for x in own_inputs(model)], [y.name for y in own_outputs(model)])
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        entrants = [_entrant(engine, model, path, folder, threads, names) for engine in ("dovetail", *peers)]
        running = [each for each in entrants if each.runner is not None]
        for each in running:
            each.first(inputs)
        times = interleaved({each.engine: each.call for each in running if each.call is not None}, rounds)
        return [_measured(each, entrants[0], times, inputs, threads, names, memory) for each in entrants]


@dataclass(slots=True)
class _Entrant:
    engine: str
    path: str
    notes: tuple[str, ...]
    runner: Runner | None = None
    call: Call | None = None
    outputs: dict[str, Any] | None = None

    def first(self, inputs: Mapping[str, Any]) -> None:
        """One run, whose results are kept; our own may not fail."""
        assert self.runner is not None
        try:
            self.outputs = self.runner.run(inputs)
            self.call = self.runner.call(inputs)
        except EngineError as error:
            if self.engine == "dovetail":
                raise
            self.notes += (error.message,)


def _entrant(engine: str, model: Model, path: str, folder: str, threads: int, names: Names) -> _Entrant:
    notes: tuple[str, ...] = ()
    try:
        if engine == "onnxruntime" and format_of(path) != "onnx":
            path = str(Path(folder) / "converted.onnx")
            save(model, path)
            notes = ("onnxruntime runs dovetail's conversion to ONNX",)
        return _Entrant(engine, path, notes, runner(engine, path, threads, names))
    except DovetailError as error:
        if engine == "dovetail":
            raise
        return _Entrant(engine, path, (*notes, error.message))


def _measured(
    entrant: _Entrant,
    ours: _Entrant,
    times: Mapping[str, float],
    inputs: Mapping[str, Any],
    threads: int,
    names: Names,
    memory: bool,
) -> Measured:
    seconds = times.get(entrant.engine)
    if seconds is None or entrant.runner is None or entrant.outputs is None or ours.outputs is None:
        return Measured(entrant.engine, entrant.runner.name if entrant.runner else entrant.engine, notes=entrant.notes)
    spent, notes = _spent(entrant, threads, names, inputs) if memory else (None, ())
    is_peer = entrant is not ours
    rows = compare(ours.outputs, entrant.outputs) if is_peer else []
    return Measured(
        entrant.engine,
        entrant.runner.name,
        seconds,
        times["dovetail"] / seconds if is_peer else None,
        spent.peak_bytes if spent else None,
        spent.compile_seconds if spent else None,
        all(row.agrees for row in rows) if is_peer else None,
        max((row.relative for row in rows), default=0.0) if is_peer else None,
        entrant.notes + notes,
    )


def _spent(entrant: _Entrant, threads: int, names: Names, inputs: Mapping[str, Any]) -> tuple[Cost | None, tuple[str, ...]]:
    try:
        return cost(entrant.engine, entrant.path, threads, names, inputs), ()
    except EngineError as error:
        return None, (error.message,)


def interleaved(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """The median time of each, in seconds, of runs taken in turns.

    Before each run that counts comes a rest, in which the threads of the engine before, that wait for more work for a while, go
    to sleep, and runs that do not count, after which processor and memory are awake and the caches are the engine's own again.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(REST)
            end = time.perf_counter() + AWAKE
            call()
            while time.perf_counter() < end:
                call()
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(row) for name, row in times.items()}


def machine() -> str:
    """What is to be known of the machine beside a figure: its processors, what they can do, and how busy it is."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    can = f" with {instruction_set()}" if native_core.is_compiled else ""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{count} processors{can}{load}"


def instruction_set() -> str:
    """What the kernels in use were compiled for: ``avx512``, ``avx2`` or ``base``, ``amx`` for the first with the matrix unit
    for bytes beside it; ``python`` without a compiled core."""
    core = native_core.core()
    if core is None:
        return "python"
    return "amx" if core.has_amx() else str(core.isa())
