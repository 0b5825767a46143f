"""Alias analysis: decides which tensors share a buffer. Each tensor is an affine view of one root; each root has one buffer.

Outputs of Reshape, Split, Slice, Transpose and Expand alias their input; inputs of Concat and Pad are written directly into their
output. Only the operators' windows are read, never their names. `alias_assignment` chooses the aliases; this module stores the
aliases and derives the windows that remain to be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from dovetail.engine.memory.affine_layout import Layout, Mode, compose, dense_layout, invert, strides_of
from dovetail.engine.memory.index_map import IndexMap, index_map
from dovetail.engine.memory.tensor import KernelCall, RunTensor
from dovetail.ir.op import Window


class TensorView(NamedTuple):
    """TensorView is a view of a root: ``layout`` maps the view's elements to row-major indices of the root."""

    root: RunTensor
    layout: Layout


class AliasMap:
    """AliasMap maps each tensor to its root and to its view of that root. A tensor without an alias is its own root."""

    def __init__(self) -> None:
        self._parents: dict[RunTensor, TensorView] = {}
        self._root_views: dict[RunTensor, TensorView] = {}
        self._members: dict[RunTensor, list[RunTensor]] = {}
        self._copied: dict[KernelCall, tuple[int, list[Window]]] = {}
        self.external: set[RunTensor] = set()
        """Roots whose memory lies outside the arena: inputs, constants and outputs of the plan."""

    def fork(self) -> AliasMap:
        """Return a map without aliases that has the same external roots."""
        forked = AliasMap()
        forked.external = self.external
        return forked

    def adopt(self, other: AliasMap) -> None:
        """Replace the aliases by those of another map."""
        self._parents, self._root_views, self._members = other._parents, other._root_views, other._members
        self._copied = other._copied

    def of(self, tensor: RunTensor) -> TensorView:
        """Return the root of a tensor, and the tensor's layout in that root."""
        parent = self._parents.get(tensor)
        if parent is None:
            view = self._root_views.get(tensor)
            if view is None:
                view = self._root_views[tensor] = TensorView(tensor, dense_layout(tensor.count))
            return view
        if self._parents.get(parent.root) is None:
            return parent
        root, layout = self.of(parent.root)
        composed = compose(layout, parent.layout.offset, parent.layout.modes)
        # write_into() moves a root only where all of its members compose.
        assert composed is not None, f"{tensor} is no affine view of {root}"
        view = TensorView(root, composed)
        self._parents[tensor] = view
        return view

    def is_root(self, tensor: RunTensor) -> bool:
        return tensor not in self._parents

    def members(self, root: RunTensor) -> list[RunTensor]:
        """Return all tensors that are views of ``root``, including ``root``."""
        return [root, *self._members.get(root, ())]

    def alias(self, tensor: RunTensor, view: TensorView) -> None:
        """Alias a root, with all of its members, to a view of another root."""
        self._parents[tensor] = view
        members = self._members.setdefault(view.root, [])
        members.append(tensor)
        members.extend(self._members.pop(tensor, ()))

    def alias_source(self, tensor: RunTensor, source: RunTensor, window: Window) -> None:
        """Make ``tensor`` a view of ``source`` if the window covers all of ``tensor`` and reads an affine part of the root."""
        axes = _axes_in_dense_order(window.sizes, window.source_strides, window.target_strides)
        if axes is None or tensor in self.external:
            return
        root, layout = self.of(source)
        composed = compose(layout, window.source_offset, axes)
        if composed is not None and composed.elements == tensor.count:
            self.alias(tensor, TensorView(root, composed))

    def write_into(self, tensor: RunTensor, target: RunTensor, window: Window) -> bool:
        """Alias the root of ``tensor`` to a view of ``target``, to write it in place there; return whether that is possible.

        The tensor must fill its root, the window must cover the whole tensor, and every member of the root must stay affine.
        """
        view = self._view_inside(tensor, target, window)
        if view is not None:
            self.alias(self.of(tensor).root, view)
        return view is not None

    def has_strides_inside(self, tensor: RunTensor, target: RunTensor, window: Window, strides: Sequence[int]) -> bool:
        """Return whether the root of ``tensor`` would have ``strides`` if written in place into a row-major ``target``."""
        view = self._view_inside(tensor, target, window)
        sizes = self.of(tensor).root.sizes
        inside = None if view is None else strides_of(view.layout, sizes)
        return inside is not None and all(
            size == 1 or stride == other for size, stride, other in zip(sizes, strides, inside, strict=True)
        )

    def _view_inside(self, tensor: RunTensor, target: RunTensor, window: Window) -> TensorView | None:
        """Return the view of the target's root that the root of ``tensor`` would become; None if that view is not affine."""
        root, layout = self.of(tensor)
        into = self.of(target)
        if root in self.external or root is into.root:
            return None
        inverse = invert(layout)
        axes = _axes_in_dense_order(window.sizes, window.target_strides, window.source_strides)
        written = None if axes is None else compose(into.layout, window.target_offset, axes)
        if inverse is None or written is None:
            return None
        # ``composed`` is None if the window covers only part of the tensor; a root with further elements fails is_affine_in.
        composed = compose(written, inverse.offset, inverse.modes)
        return None if composed is None or not self.is_affine_in(root, composed) else TensorView(into.root, composed)

    def windows_to_copy(self, call: KernelCall) -> list[Window]:
        """Return the windows of a data movement that still need a copy. Further aliases can only remove windows from the list."""
        aliased, windows = self._copied.get(call, (-1, None))
        if windows is None:
            windows = [window for window in windows_of(call) if 0 not in window.sizes and call.writes[window.output].data is None]
        if windows and aliased != len(self._parents):
            windows = [window for window in windows if not self._is_in_place(call, window)]
            self._copied[call] = len(self._parents), windows
        return windows

    def copied_bytes(self, moves: Iterable[KernelCall]) -> int:
        """Return the bytes that data movements copy."""
        return sum(
            prod(window.sizes) * source_of(call, window).itemsize for call in moves for window in self.windows_to_copy(call)
        )

    def _is_in_place(self, call: KernelCall, window: Window) -> bool:
        """Return whether a window reads and writes the same elements of one root."""
        source, target = self.of(source_of(call, window)), self.of(call.writes[window.output])
        if source.root is not target.root:
            return False
        read = compose(source.layout, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        written = compose(target.layout, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
        return read is not None and read == written

    def map_of(self, call: KernelCall, window: Window) -> tuple[RunTensor, RunTensor, IndexMap] | None:
        """Return the roots that a window reads and writes, and the map between their elements; None if not affine."""
        if 0 in window.sizes:
            return None
        source, target = self.of(source_of(call, window)), self.of(call.writes[window.output])
        read = compose(source.layout, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        written = compose(target.layout, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
        moved = None if read is None or written is None else index_map(read, written)
        return None if moved is None else (source.root, target.root, moved)

    def is_affine_in(self, root: RunTensor, layout: Layout) -> bool:
        """Return whether every member of ``root`` composes with ``layout``, the root's layout in another root."""
        views = [self.of(tensor).layout for tensor in self.members(root)]
        return all(compose(layout, view.offset, view.modes) is not None for view in views)


def _axes_in_dense_order(sizes: Sequence[int], far: Iterable[int], near: Iterable[int]) -> list[Mode] | None:
    """Return the axes of a window as (size, far stride), ordered by decreasing near stride.

    None where the near strides are not those of a dense tensor, and for an empty window.
    """
    axes = sorted((axis for axis in zip(sizes, far, near, strict=True) if axis[0] != 1), key=lambda axis: -axis[2])
    is_dense = 0 not in sizes and [stride for _, _, stride in axes] == _dense_strides([size for size, _, _ in axes])
    return [(size, stride) for size, stride, _ in axes] if is_dense else None


def _dense_strides(sizes: list[int]) -> list[int]:
    strides = []
    stride = 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return strides[::-1]


def covers_outputs(call: KernelCall) -> bool:
    """Return whether the windows write every output element. The windows of a call with a fill value do not overlap."""
    return _excess_elements(call) >= 0


def _excess_elements(call: KernelCall) -> int:
    """Return the number of elements that all windows write, minus the number of output elements."""
    excess = 0
    for window in windows_of(call):
        excess += prod(window.sizes)
    for tensor in call.writes:
        excess -= tensor.count
    return excess


def windows_of(call: KernelCall) -> tuple[Window, ...]:
    """Return the windows of a data movement."""
    assert call.windows is not None
    return call.windows.windows


def source_of(call: KernelCall, window: Window) -> RunTensor:
    """Return the tensor that a window reads."""
    tensor = call.reads[window.input]
    assert tensor is not None
    return tensor


def has_overlap(call: KernelCall) -> bool:
    """Return whether windows may overlap in an output: their order then matters, and each window is copied."""
    return _excess_elements(call) > 0
