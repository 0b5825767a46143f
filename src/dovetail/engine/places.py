"""Which tensors share memory: every tensor is an affine piece of one root, and a root is one buffer.

Only the windows of the operators are read here, never their names. A tensor whose one window covers it is a view of what it is
taken from. A tensor that is one window of what it goes into, and has a root to itself, is made there in the first place.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from dovetail.engine.layout import Layout, compose, dense, inverse
from dovetail.engine.work import MOVE, Tile, Work
from dovetail.op import Window


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
        if found is None:
            # Put there only where every piece composes: see `_fits`.
            raise AssertionError(f"{tile} is no affine piece of {root}")
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

    def view(self, tile: Tile, source: Tile, window: Window) -> bool:
        """Let ``tile`` be what its window reads of ``source``, if that is an affine piece of its root."""
        axes = _through(window.sizes, window.source_strides, window.target_strides)
        if window.target_offset or axes is None or tile in self.fixed:
            return False
        if [step for _, _, step in axes] != _dense_steps([size for size, _, _ in axes]):
            return False
        root, layout = self.of(source)
        found = compose(layout, window.source_offset, [(size, stride) for size, stride, _ in axes])
        if found is None or found.elements != tile.count:
            return False
        self._join(tile, Place(root, found))
        return True

    def put(self, tile: Tile, target: Tile, window: Window) -> bool:
        """Let ``tile`` be made inside ``target``, where its window puts it, if it has a root to itself that fills it."""
        axes = _through(window.sizes, window.target_strides, window.source_strides)
        if window.source_offset or axes is None:
            return False
        if [step for _, _, step in axes] != _dense_steps([size for size, _, _ in axes]):
            return False
        root, layout = self.of(tile)
        into = self.of(target)
        if root in self.fixed or root is into.root or root.count != tile.count or root.itemsize != target.itemsize:
            return False
        back = inverse(layout)
        piece = compose(into.layout, window.target_offset, [(size, stride) for size, stride, _ in axes])
        if back is None or piece is None or piece.elements != tile.count:
            return False
        found = compose(piece, back.offset, back.modes)
        if found is None or not self._fits(root, found):
            return False
        self._join(root, Place(into.root, found))
        return True

    def _fits(self, root: Tile, layout: Layout) -> bool:
        """Whether everything that lies in ``root`` would still be an affine piece of what ``root`` is put into."""
        for tile in self.pieces(root):
            piece = self.of(tile).layout
            if compose(layout, piece.offset, piece.modes) is None:
                return False
        return True


def _through(sizes: Iterable[int], far: Iterable[int], near: Iterable[int]) -> list[tuple[int, int, int]] | None:
    """The axes of a window as (size, far stride, near stride), from the largest near stride to the smallest."""
    axes = [axis for axis in zip(sizes, far, near, strict=True) if axis[0] != 1]
    if any(size == 0 or step <= 0 for size, _, step in axes):
        return None
    return sorted(axes, key=lambda axis: -axis[2])


def _dense_steps(sizes: list[int]) -> list[int]:
    steps = []
    step = 1
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    return steps[::-1]


def settle(works: Iterable[Work], places: Places, elide: bool = True) -> None:
    """Place what the moving works join and cut. What remains to be copied is what they do not cover: see :func:`remaining`."""
    if not elide:
        return
    moving = [work for work in works if work.kernel == MOVE and work.windows is not None]
    for work in moving:
        _views(work, places)
    # The outermost first: then what is put somewhere seldom holds much, and its pieces need not be moved again.
    for work in reversed(moving):
        _insides(work, places)


def _views(work: Work, places: Places) -> None:
    assert work.windows is not None
    if work.windows.fill is not None and not is_covered(work):
        return
    by_output: dict[int, list[Window]] = {}
    for window in work.windows.windows:
        by_output.setdefault(window.output, []).append(window)
    for index, tile in enumerate(work.writes):
        windows = by_output.get(index, [])
        source = work.reads[windows[0].input] if len(windows) == 1 else None
        if source is not None and tile.count and places.is_root(tile):
            places.view(tile, source, windows[0])


def is_covered(work: Work) -> bool:
    """Whether the windows leave nothing to be filled. (Windows of a work with a filling do not overlap.)"""
    assert work.windows is not None
    return _covered(work) >= sum(tile.count for tile in work.writes)


def _covered(work: Work) -> int:
    assert work.windows is not None
    return sum(prod(window.sizes) for window in work.windows.windows)


def _insides(work: Work, places: Places) -> None:
    assert work.windows is not None
    windows = work.windows.windows
    if _overlap(work):
        return
    seen: dict[Tile, int] = {}
    for window in windows:
        tile = work.reads[window.input]
        if tile is not None and tile.count:
            seen[tile] = seen.get(tile, 0) + 1
    for window in windows:
        tile, target = work.reads[window.input], work.writes[window.output]
        if tile is None or not tile.count or seen[tile] != 1:
            continue
        if places.of(tile).root is not places.of(target).root:
            places.put(tile, target, window)


def _overlap(work: Work) -> bool:
    """Whether some window may write over another: then their order matters, and each is copied."""
    assert work.windows is not None
    return _covered(work) > sum(tile.count for tile in work.writes)


def remaining(work: Work, places: Places) -> list[Window]:
    """The windows of a moving work whose data is not in its place already."""
    assert work.windows is not None
    found = []
    for window in work.windows.windows:
        tile, target = work.reads[window.input], work.writes[window.output]
        assert tile is not None
        if not target.count or not tile.count or 0 in window.sizes or target.data is not None:
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
