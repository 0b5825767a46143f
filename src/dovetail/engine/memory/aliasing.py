"""Which tensors share memory: every tensor is an affine piece of one root, and a root is one buffer.

Only the windows of the operators are read here, never their names. A tensor whose one window covers it is a view of what it is
taken from. A tensor that is one window of what it goes into, and has a root to itself, is made there in the first place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from dovetail.engine.memory.affine_layout import Layout, Mode, compose, dense, inverse
from dovetail.engine.memory.tensor import MOVE, Tile, Work
from dovetail.ir.op import Window


class Place(NamedTuple):
    """A piece of a root: the layout counts elements of the root in row-major order."""

    root: Tile
    layout: Layout


class Places:
    """Where each tensor lies. A tensor that was not placed is its own root."""

    def __init__(self) -> None:
        self._parents: dict[Tile, Place] = {}
        self._whole: dict[Tile, Place] = {}
        self._members: dict[Tile, list[Tile]] = {}
        self.fixed: set[Tile] = set()
        """Roots that lie in memory that is not ours: inputs, constants, outputs."""

    def of(self, tile: Tile) -> Place:
        """The root of a tensor, and the piece of it that the tensor is."""
        parent = self._parents.get(tile)
        if parent is None:
            whole = self._whole.get(tile)
            if whole is None:
                whole = self._whole[tile] = Place(tile, dense(tile.count))
            return whole
        above = self._parents.get(parent.root)
        if above is None:
            return parent
        root, layout = self.of(parent.root)
        found = compose(layout, parent.layout.offset, parent.layout.modes)
        # A root is put only where each of its pieces composes: see `_fits`.
        assert found is not None, f"{tile} is no affine piece of {root}"
        place = Place(root, found)
        self._parents[tile] = place
        return place

    def is_root(self, tile: Tile) -> bool:
        return tile not in self._parents

    def pieces(self, root: Tile) -> list[Tile]:
        """All tensors that lie in a root, itself included."""
        return [root, *self._members.get(root, ())]

    def _join(self, tile: Tile, place: Place) -> None:
        self._parents[tile] = place
        members = self._members.setdefault(place.root, [])
        members.append(tile)
        members.extend(self._members.pop(tile, ()))

    def view(self, tile: Tile, source: Tile, window: Window) -> None:
        """Let ``tile`` be what its window reads of ``source``, if that is all of it and an affine piece of its root."""
        axes = _through(window.sizes, window.source_strides, window.target_strides)
        if axes is None or tile in self.fixed:
            return
        root, layout = self.of(source)
        found = compose(layout, window.source_offset, axes)
        if found is not None and found.elements == tile.count:
            self._join(tile, Place(root, found))

    def put(self, tile: Tile, target: Tile, window: Window) -> bool:
        """Let ``tile`` be made inside ``target``, where its window puts it, if it has a root to itself that fills it."""
        place = self._inside(tile, target, window)
        if place is not None:
            self._join(self.of(tile).root, place)
        return place is not None

    def _inside(self, tile: Tile, target: Tile, window: Window) -> Place | None:
        """Where the root of ``tile`` would lie."""
        root, layout = self.of(tile)
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
        return None if found is None or not self._fits(root, found) else Place(into.root, found)

    def _fits(self, root: Tile, layout: Layout) -> bool:
        """Whether everything that lies in ``root`` would still be an affine piece of what ``root`` is put into."""
        pieces = [self.of(tile).layout for tile in self.pieces(root)]
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


def settle(works: Iterable[Work], places: Places) -> None:
    """Place what the moving works join and cut. What remains to be copied is what they do not cover: see :func:`remaining`."""
    moving = [work for work in works if work.kernel == MOVE]
    for work in moving:
        _views(work, places)
    # The outermost first: then what is put somewhere seldom holds much, and its pieces need not be moved again.
    for work in reversed(moving):
        _insides(work, places)


def _views(work: Work, places: Places) -> None:
    if not is_covered(work):
        return
    by_output: dict[int, list[Window]] = {}
    for window in _windows(work):
        by_output.setdefault(window.output, []).append(window)
    for index, tile in enumerate(work.writes):
        windows = by_output.get(index, [])
        if len(windows) == 1:
            (window,) = windows
            places.view(tile, _source(work, window), window)


def is_covered(work: Work) -> bool:
    """Whether the windows leave nothing to be filled. (Windows of a work with a filling do not overlap.)"""
    return _covered(work) >= sum(tile.count for tile in work.writes)


def _covered(work: Work) -> int:
    return sum(prod(window.sizes) for window in _windows(work))


def _windows(work: Work) -> tuple[Window, ...]:
    assert work.windows is not None
    return work.windows.windows


def _source(work: Work, window: Window) -> Tile:
    tile = work.reads[window.input]
    assert tile is not None
    return tile


def _insides(work: Work, places: Places) -> None:
    if _overlap(work):
        return
    for window in _windows(work):
        # Of a tensor that comes more than once the first place is its own, and the others are copies.
        places.put(_source(work, window), work.writes[window.output], window)


def _overlap(work: Work) -> bool:
    """Whether some window may write over another: then their order matters, and each is copied."""
    return _covered(work) > sum(tile.count for tile in work.writes)


def remaining(work: Work, places: Places) -> list[Window]:
    """The windows of a moving work whose data is not in its place already."""
    found = []
    for window in _windows(work):
        tile, target = _source(work, window), work.writes[window.output]
        if 0 in window.sizes or target.data is not None:
            # There is nothing to move, or the elements are known beforehand.
            continue
        source, into = places.of(tile), places.of(target)
        if source.root is into.root and _same(source.layout, into.layout, window):
            continue
        found.append(window)
    return found


def _same(source: Layout, target: Layout, window: Window) -> bool:
    read = compose(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
    written = compose(target, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
    return read is not None and read == written
