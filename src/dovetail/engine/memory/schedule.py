"""Schedule: the order of kernel calls that keeps the fewest bytes live, found by a beam search with a bounded step count.

A state is the set of calls that ran, the bytes live after them, and their peak. A call that raises neither the live bytes nor the
peak is run at once. Otherwise each ready call is tried, and the states with the lowest peaks are kept. The search is
deterministic and counts its steps, so that a plan does not depend on the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dovetail.engine.memory.aliasing import AliasMap, source_of
from dovetail.engine.memory.arena import align
from dovetail.engine.memory.in_place import overwritable_reads
from dovetail.engine.memory.tensor import INTERPRET, MOVE, KernelCall, RunTensor

BEAM = 16
"""The width of the beam: the maximum number of states kept after each call."""
MAX_TRIALS = 6_000
"""The maximum number of calls tried, summed over all states; a search that needs more calls is abandoned."""
MIN_GAIN = 0.04
"""The minimum share of the peak that a new order must save."""


class Schedule(NamedTuple):
    """Schedule holds a better order of calls, as indices of calls, and the peak of live bytes in the replaced order."""

    order: list[int]
    replaced_peak: int


class _ScheduledCall(NamedTuple):
    """_ScheduledCall holds a call's roots, the calls that must precede it (a bit set), and the roots that it may overwrite."""

    roots: tuple[int, ...]
    before: int
    overwritable: frozenset[int]


class _ScheduleState(NamedTuple):
    peak: int
    live: int
    done: int
    ready: tuple[int, ...]
    call: int
    parent: _ScheduleState | None


def schedule_calls(calls: Sequence[KernelCall], aliases: AliasMap) -> Schedule | None:
    """Return a better order of the calls; None where none was found.

    Interpreted calls and calls of subgraphs keep their order among themselves: they may draw random numbers.
    """
    search = _ScheduleSearch(calls, aliases)
    peak, minimum = search.peak_of(range(len(calls)))
    if peak <= minimum * (1 + MIN_GAIN):
        return None
    order = search.run(int(peak * (1 - MIN_GAIN)))
    return None if order is None else Schedule(order, peak)


class _ScheduleSearch:
    def __init__(self, calls: Sequence[KernelCall], aliases: AliasMap) -> None:
        self._aliases = aliases
        self._numbers: dict[RunTensor, int] = {}
        self._nbytes: list[int] = []
        self._calls: list[_ScheduledCall] = []
        self._after: list[list[int]] = [[] for _ in calls]
        writers: dict[RunTensor, int] = {}
        last_draw = 0
        for number, call in enumerate(calls):
            may_draw = call.kernel == INTERPRET or any(node.op.holds_graphs for node in call.nodes)
            before = last_draw if may_draw else 0
            for tensor in call.present_reads:
                if tensor in writers:
                    before |= 1 << writers[tensor]
            writers.update((tensor, number) for tensor in call.writes)
            if may_draw:
                last_draw = 1 << number
            self._calls.append(self._call_of(call, before))
        for number, one in enumerate(self._calls):
            for other in _bits_of(one.before):
                self._after[other].append(number)
        self._users = [0] * len(self._nbytes)
        for number, one in enumerate(self._calls):
            for root in one.roots:
                self._users[root] |= 1 << number

    def _call_of(self, call: KernelCall, before: int) -> _ScheduledCall:
        if call.kernel == MOVE:
            tensors = [
                tensor
                for window in self._aliases.windows_to_copy(call)
                for tensor in (source_of(call, window), call.writes[window.output])
            ]
            return _ScheduledCall(self._roots_of(tensors), before, frozenset())
        positions = overwritable_reads(call.kernel, call.attributes, len(call.reads), len(call.writes))
        overwritable = [tensor for position, tensor in enumerate(call.reads) if position in positions and tensor is not None]
        return _ScheduledCall(self._roots_of(call.operands()), before, frozenset(self._roots_of(overwritable)))

    def _roots_of(self, tensors: Iterable[RunTensor]) -> tuple[int, ...]:
        roots = {self._aliases.of(tensor).root: None for tensor in tensors if tensor.count and not tensor.is_dynamic}
        return tuple(self._number_of(root) for root in roots if root not in self._aliases.external)

    def _number_of(self, root: RunTensor) -> int:
        if root not in self._numbers:
            self._numbers[root] = len(self._nbytes)
            self._nbytes.append(align(root.nbytes))
        return self._numbers[root]

    def _change(self, number: int, done: int) -> tuple[int, int]:
        """Return the bytes that a call adds while it runs, and the bytes that it frees."""
        call = self._calls[number]
        after = done | 1 << number
        added, freed, reused = 0, 0, 0
        for root in call.roots:
            users = self._users[root]
            if not users & done:
                added += self._nbytes[root]
            elif not users & ~after and root in call.overwritable:
                reused = max(reused, self._nbytes[root])
            if not users & ~after:
                freed += self._nbytes[root]
        # A result takes over the buffer of an input whose last use is this call.
        taken = reused if reused == added else 0
        return added - taken, freed - taken

    def peak_of(self, order: Iterable[int]) -> tuple[int, int]:
        """Return the peak of an order, and the largest working set of a call: a lower bound on the peak of any order."""
        peak = live = done = minimum = 0
        for number in order:
            added, freed = self._change(number, done)
            own = sum(self._nbytes[root] for root in self._calls[number].roots)
            minimum = max(minimum, own - max((self._nbytes[root] for root in self._calls[number].overwritable), default=0))
            peak = max(peak, live + added)
            live += added - freed
            done |= 1 << number
        return peak, minimum

    def run(self, limit: int) -> list[int] | None:
        """Return the best order found whose peak is at most ``limit``."""
        ready = tuple(number for number, call in enumerate(self._calls) if not call.before)
        states = [_ScheduleState(0, 0, 0, ready, -1, None)]
        trials = 0
        for _ in self._calls:
            following: dict[int, _ScheduleState] = {}
            for state in states:
                trials += len(state.ready)
                for new in self._expand(state, limit):
                    old = following.get(new.done)
                    if old is None or new.peak < old.peak:
                        following[new.done] = new
            if not following or trials > MAX_TRIALS:
                return None
            states = sorted(following.values(), key=lambda state: (state.peak, state.live, state.ready))[:BEAM]
        order = []
        last = states[0]
        while last.parent is not None:
            order.append(last.call)
            last = last.parent
        return order[::-1]

    def _expand(self, state: _ScheduleState, limit: int) -> list[_ScheduleState]:
        """Return the states after one more call: a single state if some call raises neither the peak nor the live bytes."""
        states = []
        for number in state.ready:
            added, freed = self._change(number, state.done)
            peak = max(state.peak, state.live + added)
            if peak > limit:
                continue
            done = state.done | 1 << number
            enabled = [other for other in self._after[number] if not self._calls[other].before & ~done]
            ready = tuple(sorted({*state.ready, *enabled} - {number}))
            new = _ScheduleState(peak, state.live + added - freed, done, ready, number, state)
            if added <= freed and peak == state.peak:
                return [new]
            states.append(new)
        return states


def _bits_of(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
