"""Where the elements of each root lie in its buffer: in the order of its axes, or channels-last where the kernels want it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail.engine.memory.affine_layout import Layout, compose, ordered, row_major, strided, strides_of
from dovetail.engine.memory.aliasing import AliasMap
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor


class PhysicalLayouts:
    """The strides of every root, in elements, and through them the layout of every tensor."""

    def __init__(self, places: AliasMap) -> None:
        self.places = places
        self._strides: dict[RunTensor, tuple[int, ...]] = {}
        self._layouts: dict[RunTensor, Layout | None] = {}
        self._operands: dict[RunTensor, tuple[int, tuple[int, ...]] | None] = {}

    def set_strides(self, root: RunTensor, strides: tuple[int, ...]) -> None:
        self._strides[root] = strides
        self.forget()

    def turn(self, root: RunTensor) -> None:
        """Let a tensor lie channels-last."""
        self.set_strides(root, channels_last(root.sizes))

    def forget(self) -> None:
        """Places or strides have changed."""
        self._layouts.clear()
        self._operands.clear()

    def strides(self, root: RunTensor) -> tuple[int, ...]:
        return self._strides.get(root) or row_major(root.sizes)

    def layout(self, tensor: RunTensor) -> Layout | None:
        """Where a tensor's elements lie from the beginning of its root's buffer. None where they lie unevenly."""
        if tensor not in self._layouts:
            self._layouts[tensor] = self._layout(tensor)
        return self._layouts[tensor]

    def _layout(self, tensor: RunTensor) -> Layout | None:
        root, piece = self.places.of(tensor)
        whole = strided(root.sizes, self.strides(root))
        return whole if root is tensor else compose(whole, piece.offset, piece.modes)

    def operand(self, tensor: RunTensor) -> tuple[int, tuple[int, ...]] | None:
        """Offset and stride per axis, or None where an axis does not lie evenly."""
        if tensor not in self._operands:
            self._operands[tensor] = self._operand(tensor)
        return self._operands[tensor]

    def _operand(self, tensor: RunTensor) -> tuple[int, tuple[int, ...]] | None:
        if not tensor.count:
            return 0, row_major(tensor.sizes)
        layout = self.layout(tensor)
        if layout is None:
            return None
        strides = strides_of(layout, tensor.sizes)
        return None if strides is None else (layout.offset, strides)

    def is_image(self, tensor: RunTensor) -> bool:
        """Whether neighbours along axis 1 lie side by side, in a tensor whose axes lie evenly."""
        operand = self.operand(tensor)
        assert operand is not None
        _, strides = operand
        return tensor.sizes[1] == 1 or strides[1] == 1


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return ordered(shape, (0, *range(2, len(shape)), 1))


def choose(calls: Iterable[KernelCall], memory: PhysicalLayouts) -> None:
    """Lay out each root as most of what is done with its pieces wants it."""
    calls = list(calls)
    places = memory.places
    votes: Counter[RunTensor] = Counter()
    for call in calls:
        for tensor in call.images:
            root = places.of(tensor).root
            if root not in places.fixed and len(root.sizes) >= 3:
                votes[root] += _preference(tensor, root, memory)
    turned = {root for root, vote in votes.items() if vote > 0}
    for row in (calls, reversed(calls)):
        for call in row:
            _follow(call, memory, turned, votes)
    for root in turned:
        memory.turn(root)
        if any(memory.layout(tensor) is None for tensor in places.pieces(root)):
            # Some piece goes across its axes unevenly: only the order of the axes keeps that affine.
            memory.set_strides(root, row_major(root.sizes))
    _straighten(calls, memory, turned)


def _straighten(calls: Iterable[KernelCall], memory: PhysicalLayouts, turned: set[RunTensor]) -> None:
    """Where a view of a whole root does not lie evenly, let the root's axes lie in the view's order, if that suits all pieces."""
    used: dict[RunTensor, list[RunTensor]] = {}
    for call in calls:
        if call.kernel != MOVE:
            for tensor in call.tensors():
                if tensor.count:
                    used.setdefault(memory.places.of(tensor).root, []).append(tensor)
    for root, tensors in used.items():
        if root in memory.places.fixed or root in turned or len(root.sizes) < 3:
            continue
        uneven = next((tensor for tensor in tensors if memory.operand(tensor) is None), None)
        order = None if uneven is None else _order_of(memory.places.of(uneven).layout, root)
        if order is None:
            continue
        memory.set_strides(root, ordered(root.sizes, order))
        if any(memory.operand(tensor) is None for tensor in tensors) or any(
            memory.layout(tensor) is None for tensor in memory.places.pieces(root)
        ):
            memory.set_strides(root, row_major(root.sizes))


def _order_of(layout: Layout, root: RunTensor) -> list[int] | None:
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


def _preference(tensor: RunTensor, root: RunTensor, memory: PhysicalLayouts) -> int:
    """Bytes of an image that lies channels-last if its root does and not otherwise; negative where it is the other way round."""
    if not tensor.count or tensor.count == tensor.sizes[0] * tensor.sizes[1]:
        return 0
    _, piece = memory.places.of(tensor)
    either = []
    for order in (channels_last, row_major):
        layout = compose(strided(root.sizes, order(root.sizes)), piece.offset, piece.modes)
        strides = None if layout is None else strides_of(layout, tensor.sizes)
        either.append(strides is not None and strides[1] == 1)
    return tensor.nbytes * (either[0] - either[1])


def _follow(call: KernelCall, memory: PhysicalLayouts, turned: set[RunTensor], votes: Counter[RunTensor]) -> None:
    """What is made element by element from something channels-last lies so too, where nothing speaks against it."""
    if call.kernel in ("conv", "pool", MOVE):
        return
    y, *_ = call.writes
    shape = y.shape
    if shape is None or len(shape) < 3:
        return
    roots = [memory.places.of(tensor).root for tensor in call.tensors() if tensor.shape == shape]
    if not any(root in turned for root in roots):
        return
    for root in roots:
        if root not in memory.places.fixed and root.sizes == shape and not votes[root]:
            turned.add(root)
