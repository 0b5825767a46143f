"""Which tensors share memory: every tensor is an affine piece of one root, and a root is one buffer.

Only the windows of the operators are read here, never their names. A tensor whose one window covers it is a view of what it is
taken from. A tensor that is one window of what it goes into, and has a root to itself, is made there in the first place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from dovetail.engine.memory.affine_layout import Layout, Mode, compose, dense, inverse
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor
from dovetail.ir.op import Window


class TensorView(NamedTuple):
    """A piece of a root: the layout counts elements of the root in row-major order."""

    root: RunTensor
    layout: Layout


class AliasMap:
    """Where each tensor lies. A tensor that was not placed is its own root."""

    def __init__(self) -> None:
        self._parents: dict[RunTensor, TensorView] = {}
        self._whole: dict[RunTensor, TensorView] = {}
        self._members: dict[RunTensor, list[RunTensor]] = {}
        self.fixed: set[RunTensor] = set()
        """Roots that lie in memory that is not ours: inputs, constants, outputs."""

    def of(self, tensor: RunTensor) -> TensorView:
        """The root of a tensor, and the piece of it that the tensor is."""
        parent = self._parents.get(tensor)
        if parent is None:
            whole = self._whole.get(tensor)
            if whole is None:
                whole = self._whole[tensor] = TensorView(tensor, dense(tensor.count))
            return whole
        above = self._parents.get(parent.root)
        if above is None:
            return parent
        root, layout = self.of(parent.root)
        found = compose(layout, parent.layout.offset, parent.layout.modes)
        # A root is put only where each of its pieces composes: see `_fits`.
        assert found is not None, f"{tensor} is no affine piece of {root}"
        place = TensorView(root, found)
        self._parents[tensor] = place
        return place

    def is_root(self, tensor: RunTensor) -> bool:
        return tensor not in self._parents

    def pieces(self, root: RunTensor) -> list[RunTensor]:
        """All tensors that lie in a root, itself included."""
        return [root, *self._members.get(root, ())]

    def _join(self, tensor: RunTensor, place: TensorView) -> None:
        self._parents[tensor] = place
        members = self._members.setdefault(place.root, [])
        members.append(tensor)
        members.extend(self._members.pop(tensor, ()))

    def view(self, tensor: RunTensor, source: RunTensor, window: Window) -> None:
        """Let ``tile`` be what its window reads of ``source``, if that is all of it and an affine piece of its root."""
        axes = _through(window.sizes, window.source_strides, window.target_strides)
        if axes is None or tensor in self.fixed:
            return
        root, layout = self.of(source)
        found = compose(layout, window.source_offset, axes)
        if found is not None and found.elements == tensor.count:
            self._join(tensor, TensorView(root, found))

    def write_into(self, tensor: RunTensor, target: RunTensor, window: Window) -> bool:
        """Let ``tile`` be made inside ``target``, where its window puts it, if it has a root to itself that fills it."""
        place = self._inside(tensor, target, window)
        if place is not None:
            self._join(self.of(tensor).root, place)
        return place is not None

    def _inside(self, tensor: RunTensor, target: RunTensor, window: Window) -> TensorView | None:
        """Where the root of ``tile`` would lie."""
        root, layout = self.of(tensor)
        into = self.of(target)
        if root in self.fixed or root is into.root:
            return None
        back = inverse(layout)
        axes = _through(window.sizes, window.target_strides, window.source_strides)
        piece = None if axes is None else compose(into.layout, window.target_offset, axes)
        if back is None or piece is None:
            return None
        # A window of a part of the tensor does not compose, and a root of which the tensor is a part does not fit.
        found = compose(piece, back.offset, back.modes)
        return None if found is None or not self._fits(root, found) else TensorView(into.root, found)

    def _fits(self, root: RunTensor, layout: Layout) -> bool:
        """Whether everything that lies in ``root`` would still be an affine piece of what ``root`` is put into."""
        pieces = [self.of(tensor).layout for tensor in self.pieces(root)]
        return all(compose(layout, piece.offset, piece.modes) is not None for piece in pieces)


def _through(sizes: Sequence[int], far: Iterable[int], near: Iterable[int]) -> list[Mode] | None:
    """The axes of a window as (size, far stride), in the order in which they lie densely on the near side; None where they do
    not, and for a window of nothing."""
    axes = sorted((axis for axis in zip(sizes, far, near, strict=True) if axis[0] != 1), key=lambda axis: -axis[2])
    is_dense = 0 not in sizes and [step for _, _, step in axes] == _dense_steps([size for size, _, _ in axes])
    return [(size, step) for size, step, _ in axes] if is_dense else None


def _dense_steps(sizes: list[int]) -> list[int]:
    steps = []
    step = 1
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    return steps[::-1]


def assign_aliases(calls: Iterable[KernelCall], places: AliasMap) -> None:
    """Place what the moving works join and cut. What remains to be copied is what they do not cover: see :func:`remaining`."""
    moving = [call for call in calls if call.kernel == MOVE]
    for call in moving:
        _views(call, places)
    # The outermost first: then what is put somewhere seldom holds much, and its pieces need not be moved again.
    for call in reversed(moving):
        _insides(call, places)


def _views(call: KernelCall, places: AliasMap) -> None:
    if not is_covered(call):
        return
    by_output: dict[int, list[Window]] = {}
    for window in _windows(call):
        by_output.setdefault(window.output, []).append(window)
    for index, tensor in enumerate(call.writes):
        windows = by_output.get(index, [])
        if len(windows) == 1:
            (window,) = windows
            places.view(tensor, _source(call, window), window)


def is_covered(call: KernelCall) -> bool:
    """Whether the windows leave nothing to be filled. (Windows of a work with a filling do not overlap.)"""
    return _covered(call) >= sum(tensor.count for tensor in call.writes)


def _covered(call: KernelCall) -> int:
    return sum(prod(window.sizes) for window in _windows(call))


def _windows(call: KernelCall) -> tuple[Window, ...]:
    assert call.windows is not None
    return call.windows.windows


def _source(call: KernelCall, window: Window) -> RunTensor:
    tensor = call.reads[window.input]
    assert tensor is not None
    return tensor


def _insides(call: KernelCall, places: AliasMap) -> None:
    if _overlap(call):
        return
    for window in _windows(call):
        # Of a tensor that comes more than once the first place is its own, and the others are copies.
        places.write_into(_source(call, window), call.writes[window.output], window)


def _overlap(call: KernelCall) -> bool:
    """Whether some window may write over another: then their order matters, and each is copied."""
    return _covered(call) > sum(tensor.count for tensor in call.writes)


def remaining(call: KernelCall, places: AliasMap) -> list[Window]:
    """The windows of a moving work whose data is not in its place already."""
    found = []
    for window in _windows(call):
        tensor, target = _source(call, window), call.writes[window.output]
        if 0 in window.sizes or target.data is not None:
            # There is nothing to move, or the elements are known beforehand.
            continue
        source, into = places.of(tensor), places.of(target)
        if source.root is into.root and _same(source.layout, into.layout, window):
            continue
        found.append(window)
    return found


def _same(source: Layout, target: Layout, window: Window) -> bool:
    read = compose(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
    written = compose(target, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
    return read is not None and read == written
