"""Benchmarks of a model in several engines: time, peak memory, and agreement of the results."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.compare.arrays import tolerance_for
from dovetail.compare.verification.conversion import agree, compare
from dovetail.errors import DovetailError, EngineError, UnsupportedError
from dovetail.formats import save
from dovetail.formats.model_source import format_of
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.runtime.compilation import precision_of
from dovetail.runtime.peers import Call, Cost, Names, Runner, cost, is_installed, runner

REST = 0.05
"""The pause between engines in seconds; threads of an idle engine spin for a shorter time (onnxruntime: up to 40 ms)."""
AWAKE = 0.01
"""Warm-up in seconds: after a pause, processor and memory need some milliseconds to reach their full clock rate."""
PEERS = ("onnxruntime", "openvino")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurement holds figures of one engine. ``ratio``: dovetail's time / the engine's; ``notes``: replacements, failures.

    ``difference``: the largest difference from dovetail's results, relative to the largest magnitude. With a precision that
    rounds, it is the difference from dovetail's results in f32, and ``agrees`` is None where results differ by more than the
    tolerance, as they do by rounding.
    """

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
    """Return the engines to compare with: ``wanted``, else the installed ones. Raises UnsupportedError [runtime.missing]."""
    if wanted is None:
        return [name for name in PEERS if is_installed(name)]
    for name in wanted:
        if name not in PEERS or not is_installed(name):
            what = "is not installed" if name in PEERS else f"must be one of {', '.join(PEERS)}"
            raise UnsupportedError("runtime.missing", f"{name} {what}")
    return list(wanted)


def measure(
    model: Model,
    path: str,
    inputs: Mapping[str, Any],
    peers: Sequence[str],
    threads: int,
    rounds: int,
    memory: bool = True,
    precision: str | None = None,
) -> list[Measurement]:
    """Measure dovetail and each peer on the model in the file ``path``.

    Times are medians of interleaved runs in this process; peak memory is measured in a process with a single engine.
    OpenVINO reads both formats; for an IR model onnxruntime runs dovetail's conversion to ONNX. ``precision``: see
    :func:`dovetail.runtime.peers.runner`.
    """
    precision = precision_of(precision)
    names = Names([x.name for x in own_inputs(model)], [y.name for y in own_outputs(model)])
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        entrants = [_entrant(engine, model, path, folder, threads, names, precision) for engine in ("dovetail", *peers)]
        runnable = [each for each in entrants if each.runner is not None]
        for each in runnable:
            each.first(inputs)
        times = median_times({each.engine: each.call for each in runnable if each.call is not None}, rounds)
        reference = entrants[0].outputs
        if tolerance_for(precision) is not None:
            reference = runner("dovetail", path, threads, names, precision="f32").run(inputs)
        request = _Request(inputs, threads, names, precision)
        return [_measurement_of(each, reference, times, request, memory) for each in entrants]


class _Request(NamedTuple):
    inputs: Mapping[str, Any]
    threads: int
    names: Names
    precision: str | None


@dataclass(slots=True)
class _Entrant:
    engine: str
    path: str
    notes: tuple[str, ...]
    runner: Runner | None = None
    call: Call | None = None
    outputs: dict[str, Any] | None = None

    def first(self, inputs: Mapping[str, Any]) -> None:
        """Run once and store the results. Raises EngineError if dovetail fails; another engine's failure becomes a note."""
        assert self.runner is not None
        try:
            self.outputs = self.runner.run(inputs)
            self.call = self.runner.call(inputs)
        except EngineError as error:
            if self.engine == "dovetail":
                raise
            self.notes += (error.message,)


def _entrant(engine: str, model: Model, path: str, folder: str, threads: int, names: Names, precision: str | None) -> _Entrant:
    notes: tuple[str, ...] = ()
    try:
        path, notes = path_for(engine, model, path, folder)
        return _Entrant(engine, path, notes, runner(engine, path, threads, names, precision=precision))
    except DovetailError as error:
        if engine == "dovetail":
            raise
        return _Entrant(engine, path, (*notes, error.message))


def path_for(engine: str, model: Model, path: str, folder: str) -> tuple[str, tuple[str, ...]]:
    """Return the file that an engine reads: ``path``, or a conversion in ``folder`` with a note about the conversion."""
    format = format_of(path)
    if (engine == "onnxruntime" and format != "onnx") or (engine == "openvino" and format == "text"):
        path = str(Path(folder) / "converted.onnx")
        save(model, path)
        return path, (f"{engine} runs dovetail's conversion to ONNX",)
    return path, ()


def _measurement_of(
    entrant: _Entrant,
    reference: Mapping[str, Any] | None,
    times: Mapping[str, float],
    request: _Request,
    memory: bool,
) -> Measurement:
    seconds = times.get(entrant.engine)
    if seconds is None or entrant.runner is None or entrant.outputs is None or reference is None:
        return Measurement(entrant.engine, entrant.runner.name if entrant.runner else entrant.engine, notes=entrant.notes)
    own_cost, notes = _own_cost(entrant, request) if memory else (None, ())
    is_peer, is_compared = entrant.engine != "dovetail", entrant.outputs is not reference
    rows = compare(reference, entrant.outputs, tolerance_for(request.precision)) if is_compared else []
    return Measurement(
        entrant.engine,
        entrant.runner.name,
        seconds,
        times["dovetail"] / seconds if is_peer else None,
        own_cost.peak_bytes if own_cost else None,
        own_cost.compile_seconds if own_cost else None,
        agree(rows, request.precision) if is_compared else None,
        max((row.relative for row in rows), default=0.0) if is_compared else None,
        entrant.notes + notes,
    )


def _own_cost(entrant: _Entrant, request: _Request) -> tuple[Cost | None, tuple[str, ...]]:
    inputs, threads, names, precision = request
    try:
        return cost(entrant.engine, entrant.path, threads, names, inputs, precision), ()
    except EngineError as error:
        return None, (error.message,)


def median_times(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """Return the median time of each call, in seconds, over ``rounds`` interleaved runs.

    A pause before each timed run lets the spinning threads of the previous engine sleep. Warm-up runs after the pause bring the
    processor to its clock rate and load the engine's data into the caches.
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
    """Describe the machine of a measurement: processors, instruction set, load average."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    can = f" with {native_core.instruction_set()}" if native_core.is_compiled else ""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{count} processors{can}{load}"
