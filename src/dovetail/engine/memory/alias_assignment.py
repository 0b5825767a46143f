"""Alias assignment chooses which tensors become views of others, so that data movement copies as few bytes as possible.

A tensor becomes a view of a root if windows read the whole tensor from one affine part of that root. A root is written in place
into another root if one or several windows copy all of its elements to one affine part there. If two targets could hold the same
tensor, the target that leaves fewer bytes to copy is chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from math import prod

from dovetail.engine.memory.affine_layout import Layout, compose, permuted_strides, strided_layout, strides_of
from dovetail.engine.memory.aliasing import (
    AliasMap,
    TensorView,
    covers_outputs,
    has_overlap,
    source_of,
    windows_of,
)
from dovetail.engine.memory.index_map import IndexMap, whole_map
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor
from dovetail.ir.op import Window

MAX_TRIALS = 8
"""The maximum number of alternative assignments tried for tensors that two targets could hold."""
MAX_TRIAL_CALLS = 20_000
"""The maximum number of calls processed in all trials together: a bound on planning time."""

MIN_GAIN = 0.01
"""The other target of a tensor is tried only if the tensor's copy makes up at least this share of all copied bytes."""

Denied = frozenset[tuple[int, RunTensor]]
"""Pairs (index of a call, root): the root must not be written in place into the outputs of that call."""


def assign_aliases(calls: Iterable[KernelCall], aliases: AliasMap) -> None:
    """Alias outputs and inputs of data movement. ``aliases.windows_to_copy`` then returns the windows that remain to copy."""
    calls = list(calls)
    operands = kernel_operands(calls)
    best = _Assignment(calls, operands, aliases.fork(), frozenset())
    contests = best.find_contests()
    if contests:
        cost = best.cost()
        wanted = [contest for contest, nbytes in contests.items() if nbytes >= cost * MIN_GAIN]
        for origin, number in wanted[: min(MAX_TRIALS, MAX_TRIAL_CALLS // len(calls))]:
            trial = _Assignment(calls, operands, aliases.fork(), best.denied | best.denials(origin, number))
            if (trial_cost := trial.cost()) < cost:
                best, cost = trial, trial_cost
    aliases.adopt(best.aliases)


class _Assignment:
    """_Assignment is one assignment of aliases to all data movement calls."""

    def __init__(self, calls: Sequence[KernelCall], operands: set[RunTensor], aliases: AliasMap, denied: Denied) -> None:
        self.aliases = aliases
        self.denied = denied
        self._moves = [(number, call) for number, call in enumerate(calls) if call.kernel == MOVE]
        self._operands = operands
        self._landed: defaultdict[tuple[RunTensor, RunTensor], list[IndexMap]] = defaultdict(list)
        for _, call in self._moves:
            self._alias_outputs(call)
        sources = {source_of(call, window) for _, call in self._moves for window in windows_of(call)}
        self._origins = {source: aliases.of(source).root for source in sources}
        # In reverse order, so that an outer target is aliased before its parts have members, which would have to compose again.
        for number, call in reversed(self._moves):
            self._alias_joined_outputs(call)
            if not has_overlap(call):
                self._alias_inputs(number, call)

    # Assignment

    def _alias_outputs(self, call: KernelCall) -> None:
        """Alias each output that a single window writes."""
        if covers_outputs(call):
            for tensor, windows in _windows_by_output(call):
                if len(windows) == 1:
                    self.aliases.alias_source(tensor, source_of(call, windows[0]), windows[0])

    def _alias_joined_outputs(self, call: KernelCall) -> None:
        """Alias each output whose windows together read one affine part of a single root."""
        if not covers_outputs(call) or has_overlap(call):
            return
        for tensor, windows in _windows_by_output(call):
            roots = {self.aliases.of(source_of(call, window)).root for window in windows}
            if len(windows) < 2 or len(roots) > 1 or tensor in self.aliases.external or not self.aliases.is_root(tensor):
                continue
            (root,) = roots
            maps = [self._read_map(call, window) for window in windows]
            layout = None if None in maps or root is tensor else whole_map(filter(None, maps), tensor.count)
            if layout is not None and is_strided_within(tensor, root, layout, self.aliases, self._operands):
                self.aliases.alias(tensor, TensorView(root, layout))

    def _read_map(self, call: KernelCall, window: Window) -> IndexMap | None:
        """Return the map from elements of the root that a window writes to elements of the root that the window reads."""
        moved = self.aliases.map_of(call, window)
        return None if moved is None else moved[2].inverse()

    def _alias_inputs(self, number: int, call: KernelCall) -> None:
        """Write inputs in place: each input that a single window moves, then each root whose parts all move into one root."""
        pairs = []
        for window in windows_of(call):
            source, target = source_of(call, window), call.writes[window.output]
            if (number, self._origins[source]) in self.denied:
                continue
            # A tensor that is read more than once is written in place for the first window and copied for the others.
            if self.aliases.write_into(source, target, window):
                continue
            moved = self.aliases.map_of(call, window)
            if moved is not None and moved[0] is not moved[1]:
                self._landed[moved[:2]].append(moved[2])
                pairs.append(moved[:2])
        for root, target in dict.fromkeys(pairs):
            maps = self._landed[root, target]
            if root in self.aliases.external or not (self.aliases.is_root(root) and self.aliases.is_root(target)):
                continue
            if len(maps) > 1 and sum(each.elements for each in maps) >= root.count:
                layout = whole_map(maps, root.count)
                if layout is not None and is_strided_within(root, target, layout, self.aliases, self._operands):
                    self.aliases.alias(root, TensorView(target, layout))

    # Choice between targets

    def find_contests(self) -> dict[tuple[RunTensor, int], int]:
        """Map each contested (root, index of the copying call) to the bytes of the copy, the largest copy first.

        A root is contested if it is written in place into one target and copied to another.
        """
        found: dict[tuple[RunTensor, int], int] = defaultdict(int)
        for number, call in self._moves:
            if has_overlap(call):
                continue
            for window in self.aliases.windows_to_copy(call):
                origin = self._origins[source_of(call, window)]
                if origin not in self.aliases.external and not self.aliases.is_root(origin):
                    found[origin, number] += prod(window.sizes) * origin.itemsize
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def denials(self, origin: RunTensor, number: int) -> Denied:
        """Return the pairs (call, root) that forbid writing a root in place into the outputs of calls except ``number``."""
        return frozenset((other, origin) for other, _ in self._moves if other != number)

    def cost(self) -> int:
        """Return the bytes that data movement copies, plus those of dense copies for kernels that need one stride per axis."""
        copied = self.aliases.copied_bytes(call for _, call in self._moves)
        for tensor in self._operands:
            root, layout = self.aliases.of(tensor)
            copied += 0 if root is tensor or is_strided(tensor, root, layout) else tensor.nbytes
        return copied


def kernel_operands(calls: Iterable[KernelCall]) -> set[RunTensor]:
    """Return the non-empty operands of kernels other than MOVE; each of these operands needs a single stride per axis."""
    return {tensor for call in calls if call.kernel != MOVE for tensor in call.operands() if tensor.count}


def is_strided_within(
    root: RunTensor, target: RunTensor, layout: Layout, aliases: AliasMap, operands: Container[RunTensor]
) -> bool:
    """Return whether ``root`` may be aliased to ``layout`` in ``target`` without further copies of its members.

    Each member must be affine in ``target``, and an operand with a single stride per axis must keep such strides.
    """
    for tensor in aliases.members(root):
        view = aliases.of(tensor).layout
        composed = compose(layout, view.offset, view.modes)
        if composed is None:
            return False
        if tensor in operands and not is_strided(tensor, target, composed) and is_strided(tensor, root, view):
            return False
    return True


def is_strided(tensor: RunTensor, root: RunTensor, layout: Layout) -> bool:
    """Return whether a view has a single stride per axis where its root is row-major or channels-last."""
    if strides_of(layout, tensor.sizes) is not None:
        return True
    if len(root.sizes) < 3:
        return False
    channels_last = strided_layout(root.sizes, permuted_strides(root.sizes, (0, *range(2, len(root.sizes)), 1)))
    composed = compose(channels_last, layout.offset, layout.modes)
    return composed is not None and strides_of(composed, tensor.sizes) is not None


def _windows_by_output(call: KernelCall) -> list[tuple[RunTensor, list[Window]]]:
    by_output: dict[int, list[Window]] = {}
    for window in windows_of(call):
        if 0 not in window.sizes:
            by_output.setdefault(window.output, []).append(window)
    return [(tensor, by_output.get(index, [])) for index, tensor in enumerate(call.writes)]
