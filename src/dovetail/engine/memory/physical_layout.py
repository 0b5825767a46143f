"""Physical layouts: the strides of each root in its buffer, row-major, channels-last or in the axis order of a view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from dovetail.engine.memory.affine_layout import (
    Layout,
    compose,
    dense_layout,
    permuted_strides,
    row_major_strides,
    strided_layout,
    strides_of,
)
from dovetail.engine.memory.aliasing import AliasMap
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor
from dovetail.engine.select.kernel_traits import traits_of, writes_any_layout


class PhysicalLayouts:
    """PhysicalLayouts holds the strides of every root, in elements; these determine the physical layout of every tensor.

    A *region* is a tensor that stands for a strided part of another tensor's buffer: an operand of a copy or a fill.
    """

    def __init__(self, aliases: AliasMap) -> None:
        self.aliases = aliases
        self._strides: dict[RunTensor, tuple[int, ...]] = {}
        self._layouts: dict[RunTensor, Layout | None] = {}
        self._operands: dict[RunTensor, tuple[int, tuple[int, ...]] | None] = {}
        self._regions: dict[RunTensor, tuple[RunTensor, Layout]] = {}

    def set_strides(self, root: RunTensor, strides: tuple[int, ...]) -> None:
        self._strides[root] = strides
        self.clear_caches()

    def set_channels_last(self, root: RunTensor) -> None:
        self.set_strides(root, channels_last_strides(root.sizes))

    def clear_caches(self) -> None:
        """Drop cached layouts, which a change of aliases or strides makes invalid."""
        self._layouts.clear()
        self._operands.clear()

    def strides(self, root: RunTensor) -> tuple[int, ...]:
        return self._strides.get(root) or row_major_strides(root.sizes)

    def layout(self, tensor: RunTensor) -> Layout | None:
        """Return the layout of a tensor in the buffer of its root; None where that layout is not affine."""
        if tensor not in self._layouts:
            self._layouts[tensor] = self._layout_of(tensor)
        return self._layouts[tensor]

    def _layout_of(self, tensor: RunTensor) -> Layout | None:
        root, view = self.aliases.of(tensor)
        is_dense = root.count and root not in self._strides
        layout = dense_layout(root.count) if is_dense else strided_layout(root.sizes, self.strides(root))
        return layout if root is tensor else compose(layout, view.offset, view.modes)

    def operand(self, tensor: RunTensor) -> tuple[int, tuple[int, ...]] | None:
        """Return a tensor's offset and one stride per axis; None if some axis has no single stride."""
        if tensor not in self._operands:
            self._operands[tensor] = self._operand_of(tensor)
        return self._operands[tensor]

    def _operand_of(self, tensor: RunTensor) -> tuple[int, tuple[int, ...]] | None:
        if tensor in self._regions:
            layout = self._regions[tensor][1]
            return layout.offset, tuple(stride for _, stride in layout.modes)
        if not tensor.count:
            return 0, row_major_strides(tensor.sizes)
        composed = self.layout(tensor)
        if composed is None:
            return None
        strides = strides_of(composed, tensor.sizes)
        return None if strides is None else (composed.offset, strides)

    def is_channels_last(self, tensor: RunTensor) -> bool:
        """Return whether axis 1 is contiguous, in a tensor with one stride per axis."""
        operand = self.operand(tensor)
        assert operand is not None
        _, strides = operand
        return tensor.sizes[1] == 1 or strides[1] == 1

    def add_region(self, tensor: RunTensor, sizes: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> RunTensor:
        """Add a region of the buffer of ``tensor``; ``offset`` and ``strides`` in elements."""
        region = RunTensor(tensor.name, tensor.type, sizes, tensor.dtype, tensor.data)
        self._regions[region] = (tensor, Layout(offset, tuple(zip(sizes, strides, strict=True))))
        return region

    def root_of(self, tensor: RunTensor) -> RunTensor:
        """Return the root whose buffer holds a tensor or a region."""
        return self.aliases.of(self._regions[tensor][0] if tensor in self._regions else tensor).root

    def is_in_arena(self, tensor: RunTensor) -> bool:
        return self.root_of(tensor) not in self.aliases.external and bool(tensor.count)

    def nbytes_of(self, root: RunTensor) -> int:
        """Return the bytes that the buffer of a root spans."""
        strides = self.strides(root)
        return (1 + sum((size - 1) * stride for size, stride in zip(root.sizes, strides, strict=True))) * root.itemsize


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return permuted_strides(shape, (0, *range(2, len(shape)), 1))


def choose_layouts(calls: Iterable[KernelCall], layouts: PhysicalLayouts, results: Iterable[RunTensor]) -> None:
    """Set the strides of each root by a vote of the kernels that read and write its views, weighted by bytes.

    ``results`` are delivered row-major: a kernel that can write few channels in any layout has no vote on a result's root.
    """
    calls = list(calls)
    aliases = layouts.aliases
    votes: Counter[RunTensor] = Counter()
    delivered = {aliases.of(result).root for result in results}
    for call in calls:
        for tensor in call.channels_last:
            root = aliases.of(tensor).root
            is_direct = root in delivered and tensor in call.writes and writes_any_layout(call, tensor)
            if root not in aliases.external and len(root.sizes) >= 3 and not is_direct:
                votes[root] += _vote_of(tensor, root, layouts)
    channels_last = {root for root, vote in votes.items() if vote > 0}
    for sequence in (calls, reversed(calls)):
        for call in sequence:
            _propagate(call, layouts, channels_last, votes)
    for root in channels_last:
        layouts.set_channels_last(root)
        if any(layouts.layout(tensor) is None for tensor in aliases.members(root)):
            # Some view is affine only in the row-major order of the root.
            layouts.set_strides(root, row_major_strides(root.sizes))
    _permute_for_views(calls, layouts, channels_last)


def _permute_for_views(calls: Iterable[KernelCall], layouts: PhysicalLayouts, channels_last: set[RunTensor]) -> None:
    """Permute the axes of a root so that its transposed view has one stride per axis, if all other members stay strided."""
    users: dict[RunTensor, list[RunTensor]] = {}
    wanted: set[RunTensor] = set()
    for call in calls:
        if call.kernel != MOVE:
            wanted.update(call.channels_last)
            for tensor in call.operands():
                if tensor.count:
                    users.setdefault(layouts.aliases.of(tensor).root, []).append(tensor)
    for root, tensors in users.items():
        if root in layouts.aliases.external or root in channels_last or len(root.sizes) < 3:
            continue
        unstrided = next((tensor for tensor in tensors if layouts.operand(tensor) is None), None)
        if unstrided is None:
            continue
        for traversal in _traversals_of(unstrided, unstrided in wanted, layouts):
            order = _axis_order_of(traversal, root)
            if order is None:
                continue
            layouts.set_strides(root, permuted_strides(root.sizes, order))
            if all(layouts.operand(tensor) is not None for tensor in tensors) and all(
                layouts.layout(tensor) is not None for tensor in layouts.aliases.members(root)
            ):
                break
            layouts.set_strides(root, row_major_strides(root.sizes))


def _traversals_of(tensor: RunTensor, wants_channels_last: bool, layouts: PhysicalLayouts) -> Iterator[Layout]:
    """Yield a view's layout in the traversal orders that suit its kernel: channels-last if wanted, then row-major."""
    layout = layouts.aliases.of(tensor).layout
    if wants_channels_last:
        axes = list(zip(tensor.sizes, row_major_strides(tensor.sizes), strict=True))
        composed = compose(layout, 0, [axes[0], *axes[2:], axes[1]])
        if composed is not None:
            yield composed
    yield layout


def _axis_order_of(layout: Layout, root: RunTensor) -> list[int] | None:
    """Return the axes of a root in the order in which a view traverses them. None for a view of only a part of the root."""
    if layout.elements != root.count:
        return None
    modes = {}
    for axis, (size, step) in enumerate(zip(root.sizes, row_major_strides(root.sizes), strict=True)):
        # An axis of one element belongs to any mode.
        matching = [index for index, (n, stride) in enumerate(layout.modes) if size == 1 or stride <= step < stride * n]
        if not matching:
            return None
        modes[axis] = min(matching)
    return sorted(modes, key=modes.__getitem__)


def _vote_of(tensor: RunTensor, root: RunTensor, layouts: PhysicalLayouts) -> int:
    """Return an operand's vote for a channels-last root, in bytes.

    The vote is negative where the operand's channels are contiguous only if the root is row-major.
    """
    if not tensor.count or tensor.count == tensor.sizes[0] * tensor.sizes[1]:
        return 0
    if root is tensor:
        return tensor.nbytes if tensor.sizes[1] > 1 else 0
    _, view = layouts.aliases.of(tensor)
    contiguous = []
    for strides_for in (channels_last_strides, row_major_strides):
        layout = compose(strided_layout(root.sizes, strides_for(root.sizes)), view.offset, view.modes)
        strides = None if layout is None else strides_of(layout, tensor.sizes)
        contiguous.append(strides is not None and strides[1] == 1)
    return tensor.nbytes * (contiguous[0] - contiguous[1])


def _propagate(call: KernelCall, layouts: PhysicalLayouts, channels_last: set[RunTensor], votes: Counter[RunTensor]) -> None:
    """Extend the channels-last layout of an operand to operands of the same shape whose roots have no vote.

    A transposed view of a channels-last root may be row-major, so the layout of the operand counts, not that of its root.
    """
    if traits_of(call.kernel).sets_own_layout:
        return
    y, *_ = call.writes
    shape = y.shape
    if shape is None or len(shape) < 3:
        return
    # The axes of a matrix product's factors do not correspond to axes of the result, even where the sizes are equal.
    operands = (
        call.operands() if not traits_of(call.kernel).multiplies_matrices else [*filter(None, call.reads[2:]), *call.writes]
    )
    roots = {tensor: layouts.aliases.of(tensor).root for tensor in operands if tensor.shape == shape}
    if not any(root in channels_last and _vote_of(tensor, root, layouts) > 0 for tensor, root in roots.items()):
        return
    for root in roots.values():
        if root not in layouts.aliases.external and root.sizes == shape and not votes[root]:
            channels_last.add(root)
