"""Where the elements of each root lie in its buffer: in the order of its axes, or channels-last where the kernels want it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail.engine.memory.affine_layout import Layout, compose, ordered, row_major, strided, strides_of
from dovetail.engine.memory.aliasing import Places
from dovetail.engine.memory.tensor import MOVE, Tile, Work


class Memory:
    """The strides of every root, in elements, and through them the layout of every tensor."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._strides: dict[Tile, tuple[int, ...]] = {}
        self._layouts: dict[Tile, Layout | None] = {}
        self._operands: dict[Tile, tuple[int, tuple[int, ...]] | None] = {}

    def set_strides(self, root: Tile, strides: tuple[int, ...]) -> None:
        self._strides[root] = strides
        self.forget()

    def turn(self, root: Tile) -> None:
        """Let a tensor lie channels-last."""
        self.set_strides(root, channels_last(root.sizes))

    def forget(self) -> None:
        """Places or strides have changed."""
        self._layouts.clear()
        self._operands.clear()

    def strides(self, root: Tile) -> tuple[int, ...]:
        return self._strides.get(root) or row_major(root.sizes)

    def layout(self, tile: Tile) -> Layout | None:
        """Where a tensor's elements lie from the beginning of its root's buffer. None where they lie unevenly."""
        if tile not in self._layouts:
            self._layouts[tile] = self._layout(tile)
        return self._layouts[tile]

    def _layout(self, tile: Tile) -> Layout | None:
        root, piece = self.places.of(tile)
        whole = strided(root.sizes, self.strides(root))
        return whole if root is tile else compose(whole, piece.offset, piece.modes)

    def operand(self, tile: Tile) -> tuple[int, tuple[int, ...]] | None:
        """Offset and stride per axis, or None where an axis does not lie evenly."""
        if tile not in self._operands:
            self._operands[tile] = self._operand(tile)
        return self._operands[tile]

    def _operand(self, tile: Tile) -> tuple[int, tuple[int, ...]] | None:
        if not tile.count:
            return 0, row_major(tile.sizes)
        layout = self.layout(tile)
        if layout is None:
            return None
        strides = strides_of(layout, tile.sizes)
        return None if strides is None else (layout.offset, strides)

    def is_image(self, tile: Tile) -> bool:
        """Whether neighbours along axis 1 lie side by side, in a tensor whose axes lie evenly."""
        operand = self.operand(tile)
        assert operand is not None
        _, strides = operand
        return tile.sizes[1] == 1 or strides[1] == 1


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return ordered(shape, (0, *range(2, len(shape)), 1))


def choose(works: Iterable[Work], memory: Memory) -> None:
    """Lay out each root as most of what is done with its pieces wants it."""
    works = list(works)
    places = memory.places
    votes: Counter[Tile] = Counter()
    for work in works:
        for tile in work.images:
            root = places.of(tile).root
            if root not in places.fixed and len(root.sizes) >= 3:
                votes[root] += _preference(tile, root, memory)
    turned = {root for root, vote in votes.items() if vote > 0}
    for row in (works, reversed(works)):
        for work in row:
            _follow(work, memory, turned, votes)
    for root in turned:
        memory.turn(root)
        if any(memory.layout(tile) is None for tile in places.pieces(root)):
            # Some piece goes across its axes unevenly: only the order of the axes keeps that affine.
            memory.set_strides(root, row_major(root.sizes))
    _straighten(works, memory, turned)


def _straighten(works: Iterable[Work], memory: Memory, turned: set[Tile]) -> None:
    """Where a view of a whole root does not lie evenly, let the root's axes lie in the view's order, if that suits all pieces."""
    used: dict[Tile, list[Tile]] = {}
    for work in works:
        if work.kernel != MOVE:
            for tile in work.tiles():
                if tile.count:
                    used.setdefault(memory.places.of(tile).root, []).append(tile)
    for root, tiles in used.items():
        if root in memory.places.fixed or root in turned or len(root.sizes) < 3:
            continue
        uneven = next((tile for tile in tiles if memory.operand(tile) is None), None)
        order = None if uneven is None else _order_of(memory.places.of(uneven).layout, root)
        if order is None:
            continue
        memory.set_strides(root, ordered(root.sizes, order))
        if any(memory.operand(tile) is None for tile in tiles) or any(
            memory.layout(tile) is None for tile in memory.places.pieces(root)
        ):
            memory.set_strides(root, row_major(root.sizes))


def _order_of(layout: Layout, root: Tile) -> list[int] | None:
    """The axes of a root in the order in which a view of it goes through them. None for a view that is not of all of it."""
    if layout.elements != root.count:
        return None
    modes = {}
    for axis, (size, step) in enumerate(zip(root.sizes, row_major(root.sizes), strict=True)):
        # An axis of one element goes with any mode.
        fitting = [place for place, (n, stride) in enumerate(layout.modes) if size == 1 or stride <= step < stride * n]
        if not fitting:
            return None
        modes[axis] = min(fitting)
    return sorted(modes, key=modes.__getitem__)


def _preference(tile: Tile, root: Tile, memory: Memory) -> int:
    """Bytes of an image that lies channels-last if its root does and not otherwise; negative where it is the other way round."""
    if not tile.count or tile.count == tile.sizes[0] * tile.sizes[1]:
        return 0
    _, piece = memory.places.of(tile)
    either = []
    for order in (channels_last, row_major):
        layout = compose(strided(root.sizes, order(root.sizes)), piece.offset, piece.modes)
        strides = None if layout is None else strides_of(layout, tile.sizes)
        either.append(strides is not None and strides[1] == 1)
    return tile.nbytes * (either[0] - either[1])


def _follow(work: Work, memory: Memory, turned: set[Tile], votes: Counter[Tile]) -> None:
    """What is made element by element from something channels-last lies so too, where nothing speaks against it."""
    if work.kernel in ("conv", "pool", MOVE):
        return
    y, *_ = work.writes
    shape = y.shape
    if shape is None or len(shape) < 3:
        return
    roots = [memory.places.of(tile).root for tile in work.tiles() if tile.shape == shape]
    if not any(root in turned for root in roots):
        return
    for root in roots:
        if root not in memory.places.fixed and root.sizes == shape and not votes[root]:
            turned.add(root)
