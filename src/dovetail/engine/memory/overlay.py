"""Overlays: a root that a target needs only in part is written to the target in full, and later writes replace the rest.

In ``a, b = Split(y); Concat(a, f(b))`` the output of Concat holds all of ``y`` until ``f(b)`` is written over ``b``. Every access
to a root's element that is not copied has to precede the target's first write at that position. An exception is a read by the
writing kernel itself, if that kernel may overwrite the element.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.memory.affine_layout import Layout, compose, strided_layout
from dovetail.engine.memory.alias_assignment import is_strided_within, kernel_operands
from dovetail.engine.memory.aliasing import AliasMap, TensorView, covers_outputs, has_overlap, source_of
from dovetail.engine.memory.in_place import overwritable_reads
from dovetail.engine.memory.index_map import IndexMap, extend_to
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor

MAX_ATTEMPTS = 64
"""The maximum number of pairs of a root and a target that are examined: a bound on planning time."""
MAX_ELEMENTS = 1 << 22
"""The maximum size of the table of access times: elements of the target divided by ``_unit_of`` all layouts."""

NEVER = -1
ALWAYS = np.iinfo(np.int32).max

Marks = np.ndarray[Any, np.dtype[np.int32]]


class _Access(NamedTuple):
    """_Access is a read or write of a part of a root by the call of index ``number``. A copied window has ``tensor`` None."""

    number: int
    is_write: bool
    layout: Layout
    tensor: RunTensor | None


Accesses = defaultdict[RunTensor, list[_Access]]


class _Pair(NamedTuple):
    """_Pair holds a root, a target into which some elements of the root are copied, and the maps of these copies."""

    root: RunTensor
    target: RunTensor
    maps: list[IndexMap]


def overlay_roots(calls: Sequence[KernelCall], aliases: AliasMap, results: Iterable[RunTensor]) -> None:
    """Alias roots to targets in which later calls overwrite the elements that are not copied.

    ``results``: tensors that are read after the last call.
    """
    results = list(results)
    pairs = _pairs_of(calls, aliases)
    if not pairs:
        return
    operands = kernel_operands(calls)
    accesses: Accesses | None = None
    filled = [call.writes[0] for call in calls if call.windows is not None and not covers_outputs(call)]
    for pair in pairs[:MAX_ATTEMPTS]:
        root, target, maps = pair
        if not (aliases.is_root(root) and aliases.is_root(target)) or any(
            aliases.of(tensor).root in (root, target) for tensor in filled
        ):
            # All fills of a buffer run before the first write to that buffer, whichever call they belong to.
            continue
        for layout in _layouts_of(pair, aliases, operands):
            accesses = accesses or _accesses_of(calls, aliases, results)
            if _precedes(accesses[root], accesses.get(target, []), maps, layout, target, calls):
                aliases.alias(root, TensorView(target, layout))
                accesses = None
                break


def _pairs_of(calls: Sequence[KernelCall], aliases: AliasMap) -> list[_Pair]:
    """Return the pairs of a root and a target between which elements are copied, the largest copies first."""
    found: defaultdict[tuple[RunTensor, RunTensor], list[IndexMap]] = defaultdict(list)
    for call in calls:
        if call.kernel != MOVE or has_overlap(call):
            continue
        for window in aliases.windows_to_copy(call):
            moved = aliases.map_of(call, window)
            if moved is not None and moved[0] is not moved[1] and moved[0] not in aliases.external:
                found[moved[:2]].append(moved[2])
    pairs = [_Pair(*roots, maps) for roots, maps in found.items()]
    return sorted(pairs, key=lambda pair: -sum(each.elements for each in pair.maps) * pair.root.itemsize)


def _layouts_of(pair: _Pair, aliases: AliasMap, operands: Container[RunTensor]) -> Iterator[Layout]:
    """Yield layouts of the whole ``root`` in ``target`` that extend one of the maps and keep each member affine."""
    root, target, maps = pair
    for joined in sorted(maps, key=lambda each: -each.elements)[:2]:
        layout = extend_to(joined, root.count)
        if layout is None:
            continue
        reaches = [(size - 1) * stride for size, stride in layout.modes]
        low = layout.offset + sum(reach for reach in reaches if reach < 0)
        high = layout.offset + sum(reach for reach in reaches if reach > 0)
        if low >= 0 and high < target.count and is_strided_within(root, target, layout, aliases, operands):
            yield layout


def _accesses_of(calls: Sequence[KernelCall], aliases: AliasMap, results: Iterable[RunTensor]) -> Accesses:
    """Return the accesses to each root in the order of calls."""
    accesses: Accesses = defaultdict(list)

    def add(number: int, is_write: bool, tensor: RunTensor) -> None:
        root, layout = aliases.of(tensor)
        if tensor.count:
            accesses[root].append(_Access(number, is_write, layout, tensor))

    for number, call in enumerate(calls):
        if call.kernel == MOVE:
            for window in aliases.windows_to_copy(call):
                source, target = aliases.of(source_of(call, window)), aliases.of(call.writes[window.output])
                read = compose(source.layout, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
                written = compose(target.layout, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
                # For a window that is not affine, the access is taken to cover the whole tensor.
                accesses[source.root].append(_Access(number, False, read or source.layout, None))
                accesses[target.root].append(_Access(number, True, written or target.layout, None))
        else:
            for tensor in call.present_reads:
                add(number, False, tensor)
            for tensor in call.writes:
                add(number, True, tensor)
    for tensor in results:
        add(len(calls), False, tensor)
    return accesses


def _precedes(
    own: Sequence[_Access],
    others: Sequence[_Access],
    maps: Sequence[IndexMap],
    layout: Layout,
    target: RunTensor,
    calls: Sequence[KernelCall],
) -> bool:
    """Return whether all accesses to a root at ``layout`` in ``target`` precede the writes of other calls to these elements.

    Elements that are copied, and so are read as elements of the target, must not be overwritten at all.
    """
    moved = [(access, compose(layout, access.layout.offset, access.layout.modes)) for access in own]
    if any(region is None for _, region in moved):
        return False
    regions = [(access, region) for access, region in moved if region is not None]
    landed = [region for each in maps if (region := _far_of(each)) == _image_of(each, layout)]
    writes = [access for access in others if access.is_write and not (access.tensor is None and access.layout in landed)]
    unit = _unit_of(target.count, [region for _, region in regions] + landed + [access.layout for access in writes])
    if not landed or target.count // unit > MAX_ELEMENTS:
        return False
    last: Marks = np.full(target.count // unit, NEVER, np.int32)
    for access, region in regions:
        np.maximum(view := _view(last, region, unit), access.number, out=view)
    for region in landed:
        _view(last, region, unit)[...] = ALWAYS
    for write in writes:
        latest = int(_view(last, write.layout, unit).max())
        if latest > write.number or (
            latest == write.number and not _may_overwrite(write, calls[latest], regions, np.zeros_like(last), unit)
        ):
            return False
    return True


def _far_of(each: IndexMap) -> Layout:
    """Return the layout, in the target, of the elements that a map writes."""
    return strided_layout([size for size, _, _ in each.axes], [far for _, _, far in each.axes], each.far)


def _image_of(each: IndexMap, layout: Layout) -> Layout | None:
    """Return the layout, in the target, of the elements that a map reads, if the root has ``layout`` in the target."""
    return compose(layout, each.near, [(size, near) for size, near, _ in each.axes])


def _may_overwrite(write: _Access, call: KernelCall, regions: Sequence[tuple[_Access, Layout]], marks: Marks, unit: int) -> bool:
    """Return whether a call may overwrite the elements that it reads of a root.

    Each such read must have exactly the elements of the result, and the kernel must declare that it reads an element before it
    writes the element.
    """
    if write.tensor is None:
        return False
    _view(marks, write.layout, unit)[...] = ALWAYS
    overwritable = overwritable_reads(call.kernel, call.attributes, len(call.reads), len(call.writes))
    own = [(access, region) for access, region in regions if access.number == write.number]
    for access, region in own:
        is_apart = not (_view(marks, region, unit) == ALWAYS).any()
        if is_apart:
            continue
        positions = {position for position, tensor in enumerate(call.reads) if tensor is access.tensor}
        tensor = access.tensor
        if access.is_write or tensor is None or region != write.layout or not positions <= overwritable:
            return False
        if (tensor.sizes, tensor.itemsize) != (write.tensor.sizes, write.tensor.itemsize):
            return False
    return True


def _unit_of(count: int, layouts: Iterable[Layout]) -> int:
    """Return the greatest common divisor, in elements, of the contiguous runs, strides and offsets of all layouts."""
    unit = count
    for layout in layouts:
        unit = gcd(unit, layout.offset)
        if not any(stride == 1 for _, stride in layout.modes):
            return 1
        for size, stride in layout.modes:
            unit = gcd(unit, size if stride == 1 else stride)
    return unit


def _view(marks: Marks, layout: Layout, unit: int) -> Marks:
    """Return the marks of a layout's elements, as a view."""
    modes = [(size // unit, 1) if stride == 1 else (size, stride // unit) for size, stride in layout.modes]
    sizes, strides = [size for size, _ in modes], [stride * marks.itemsize for _, stride in modes]
    return np.lib.stride_tricks.as_strided(marks[layout.offset // unit :], sizes, strides)
