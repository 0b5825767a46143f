"""Benchmarks of calls whose sizes change: times for sizes that are new to an engine, and for sizes seen before."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dovetail.compare.arrays import tolerance_for
from dovetail.compare.verification.conversion import agree, compare
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.graph import Model
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.measure.benchmark import REST, path_for
from dovetail.runtime.caches import find_caches
from dovetail.runtime.compilation import compile, precision_of
from dovetail.runtime.peers import Names, Runner, ours, runner

TURN = 10
"""The number of calls of an engine between two pauses; during a pause the threads of the other engines go to sleep."""

Feed = Mapping[str, Any]
Caches = Mapping[str, str]
"""Maps each input that is a cache to the output that is the cache's next value."""


@dataclass(frozen=True, slots=True)
class SizeMeasurement:
    """SizeMeasurement holds the median and 99th percentile of an engine's seconds, for new sizes and for sizes seen before.

    Calls in which dovetail made a plan are left out for all engines; ``planning`` has the total seconds of these calls.

    A ratio is the median, over the calls, of dovetail's time divided by the engine's time for the same inputs. ``plans``: the
    number of plans that dovetail made.
    """

    engine: str
    name: str
    new: float | None = None
    new_p99: float | None = None
    seen: float | None = None
    seen_p99: float | None = None
    new_ratio: float | None = None
    seen_ratio: float | None = None
    agrees: bool | None = None
    plans: int | None = None
    planning: float | None = None
    notes: tuple[str, ...] = ()


def draw_sizes(ranges: Mapping[str, tuple[int, int]], growing: Mapping[str, int], calls: int, seed: int) -> list[dict[str, int]]:
    """Return the sizes of each call: uniform in ``ranges``, both ends included; sizes of ``growing`` grow by 1 per call."""
    chance = np.random.default_rng(seed)
    return [
        {name: int(chance.integers(low, high + 1)) for name, (low, high) in ranges.items()}
        | {name: first + call for name, first in growing.items()}
        for call in range(calls)
    ]


def measure_sizes(
    model: Model,
    path: str,
    feeds: Sequence[Feed],
    peers: Sequence[str],
    threads: int,
    *,
    reuse_caches: bool = False,
    precision: str | None = None,
) -> list[SizeMeasurement]:
    """Measure dovetail and each peer in two passes over ``feeds``, in the same order; in the second pass no size is new.

    The engines alternate. The first call of each engine, with the sizes of the last feed, does not count. ``reuse_caches``: only
    the first feed has the caches of the model; each later call gets the caches that the engine has returned, and dovetail
    compiles with this option. ``precision``: see :func:`dovetail.runtime.peers.runner`; ``agrees`` compares with dovetail's own
    results, in the same precision, and is None where results differ by rounding.
    """
    precision = precision_of(precision)
    names = Names([x.name for x in own_inputs(model)], [y.name for y in own_outputs(model)])
    program = compile(model, threads=threads, reuse_caches=reuse_caches, precision=precision)
    caches = {cache.input: cache.output for cache in find_caches(model)} if reuse_caches else {}
    found: list[_Contender] = [_Contender("dovetail", ours(program), plans=lambda: program.statistics.plans)]
    failed: list[SizeMeasurement] = []
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        for engine in peers:
            try:
                file, notes = path_for(engine, model, path, folder)
                found.append(_Contender(engine, runner(engine, file, threads, names, precision=precision), notes))
            except DovetailError as error:
                failed.append(SizeMeasurement(engine, engine, notes=(error.message,)))
        for entrant in list(found):
            try:
                entrant.runner.run(feeds[-1])
            except EngineError as error:
                if entrant.engine == "dovetail":
                    raise
                found.remove(entrant)
                failed.append(SizeMeasurement(entrant.engine, entrant.runner.name, notes=(error.message,)))
        _interleave(found, feeds, caches, precision)
    return [each.measurement(found[0]) for each in found] + failed


class _Contender:
    def __init__(self, engine: str, runner: Runner, notes: tuple[str, ...] = (), plans: Callable[[], int] | None = None) -> None:
        self.engine = engine
        self.runner = runner
        self.notes = notes
        self.plans = plans
        self.new: list[float] = []
        self.seen: list[float] = []
        self.agrees: bool | None = True
        self.planned: list[int] = []
        """The indices in ``new`` (times of calls with new sizes) of the calls that made a plan."""
        self._kept: dict[str, Any] = {}

    def start(self) -> None:
        """Discard the caches that calls returned, so that the next call begins without caches."""
        self._kept = {}

    def run_with_caches(self, feeds: Sequence[Feed], times: Sequence[list[float]], caches: Caches) -> list[dict[str, Any]]:
        """Run the calls between two pauses, each with the caches that the preceding call returned; return the outputs."""
        time.sleep(REST)
        results = []
        for feed, row in zip(feeds, times, strict=True):
            given = {**feed, **self._kept}
            found = self._time(lambda given=given: self.runner.run(given), row)  # type: ignore[misc]
            self._kept = {name: found[output] for name, output in caches.items()}
            results.append(found)
        return results

    def run(self, feeds: Sequence[Feed], times: Sequence[list[float]]) -> list[dict[str, Any]]:
        """Run the calls between two pauses, and append the time of call i to ``times[i]``; return the outputs."""
        time.sleep(REST)
        for feed, row in zip(feeds, times, strict=True):
            self._time(self.runner.call(feed), row)
        return [self.runner.run(feed) for feed in feeds]

    def _time(self, call: Callable[[], Any], row: list[float]) -> Any:
        before = self.plans() if self.plans else 0
        start = time.perf_counter()
        result = call()
        row.append(time.perf_counter() - start)
        if self.plans and row is self.new and self.plans() > before:
            self.planned.append(len(row) - 1)
        return result

    def measurement(self, first: _Contender) -> SizeMeasurement:
        """Return the measurement over the calls in which the contender ``first`` (dovetail) made no plan."""
        own, reference = ([t for place, t in enumerate(x.new) if place not in first.planned] for x in (self, first))
        (new, new_p99), (seen, seen_p99) = _quantiles(own), _quantiles(self.seen)
        notes = self.notes + self.runner.notes
        row = SizeMeasurement(self.engine, self.runner.name, new, new_p99, seen, seen_p99, notes=notes)
        if self.plans:
            return replace(row, plans=self.plans(), planning=sum(self.new[place] for place in self.planned))
        return replace(row, new_ratio=_ratio(reference, own), seen_ratio=_ratio(first.seen, self.seen), agrees=self.agrees)


def _interleave(entrants: Sequence[_Contender], feeds: Sequence[Feed], caches: Caches, precision: str | None = None) -> None:
    known: set[Any] = {_key(feeds[-1])}
    for is_second in (False, True):
        for entrant in entrants:
            entrant.start()
        for turn in _batches(feeds):
            is_new = []
            for feed in turn:
                is_new.append(not is_second and _key(feed) not in known)
                known.add(_key(feed))
            reference: list[dict[str, Any]] | None = None
            for entrant in entrants:
                times = [entrant.new if new else entrant.seen for new in is_new]
                results = entrant.run_with_caches(turn, times, caches) if caches else entrant.run(turn, times)
                if reference is None:
                    reference = results
                else:
                    pairs = zip(reference, results, strict=True)
                    rows = [row for pair in pairs for row in compare(*pair, tolerance_for(precision))]
                    if entrant.agrees is not False:
                        agreement = agree(rows, precision)
                        entrant.agrees = agreement if agreement is False else entrant.agrees and agreement


def _batches(feeds: Sequence[Feed]) -> Iterator[Sequence[Feed]]:
    return (feeds[first : first + TURN] for first in range(0, len(feeds), TURN))


def _key(feed: Feed) -> Any:
    return tuple((name, np.shape(array)) for name, array in flatten_outputs(feed).items())


def _quantiles(times: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median and the 99th percentile of ``times``; both are None if there are no times."""
    return (float(np.median(times)), float(np.quantile(times, 0.99))) if times else (None, None)


def _ratio(own: Sequence[float], peer: Sequence[float]) -> float | None:
    """Return the median ratio of the times of paired calls; None if there is no pair."""
    return float(np.median(np.divide(own, peer))) if own and peer else None
