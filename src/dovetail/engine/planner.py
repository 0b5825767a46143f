"""From a prepared graph and the shapes of its inputs to a plan: every tensor's place, every step, and what is still copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.engine.memory.affine_layout import Layout, Mode, compose, dense, row_major, strides_of
from dovetail.engine.memory.aliasing import Places, is_covered, remaining, settle
from dovetail.engine.memory.arena import Span, aligned, arranged, lower_bound
from dovetail.engine.memory.copy_cost import kept_for_speed
from dovetail.engine.memory.in_place import overwritable_reads
from dovetail.engine.memory.physical_layout import Memory, choose
from dovetail.engine.memory.tensor import MOVE, Scene, Tile, Work
from dovetail.engine.plan import COPY, FILL, NOWHERE, Buffer, Operand, Plan, Step
from dovetail.engine.select.fusion import fuse
from dovetail.engine.select.kernels import work_for
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.builder import written
from dovetail.ir.edit import copy_op
from dovetail.ir.graph import Graph, Node
from dovetail.ir.op import Window, Windows, infer_types
from dovetail.ir.types import is_static, shape_of

ELIDE = ("auto", "all", "none")


class _Uneven(Exception):
    """Some piece of a root is to be written or copied, and no strides say where it lies."""


class UnevenInput(Exception):
    """An input (named) whose strides do not allow a view that the plan needs: it has to be dense."""


def make_plan(
    graph: Graph,
    scene: Scene,
    strides: Sequence[tuple[int, ...] | None],
    elide: str,
    places: Sequence[int] | None = None,
) -> Plan:
    """The plan for one set of input shapes. ``strides``: of each input, in elements, where it is not dense (None: dense).
    ``places``: where the buffers lie in the arena, in their order, instead of where this plan would put them."""
    nodes = _needed(graph, scene)
    for node in nodes:
        _check(node, scene)
    works = fuse([work_for(node, scene) for node in nodes], graph, scene)
    try:
        return _Planner(graph, scene, works, strides, elide, places).plan()
    except _Uneven:
        # Pieces that no strides say: then every tensor has a buffer of its own.
        return _Planner(graph, scene, works, strides, "none", places).plan()


def _check(node: Node, scene: Scene) -> None:
    """Hold an operator's rules against the sizes of this run, where inference left something open."""
    tiles = [None if x is None else scene.tile(x) for x in node.inputs]
    is_known = all(value is None or is_static(value.type) for value in (*node.inputs, *node.outputs))
    if is_known and scene.early.isdisjoint(tiles):
        return
    if any(tile is not None and tile.is_loose for tile in tiles):
        return
    op = copy_op(node.op) if node.op.holds_graphs else node.op
    try:
        types = infer_types(op, tuple(None if tile is None else tile.view() for tile in tiles))
    except DovetailError as error:
        raise error.at(node=node.label, op=written(node.op, node.inputs)) from None
    for y, type in zip(node.outputs, types, strict=True):
        shape = scene.tile(y).shape
        if is_static(type) and shape is not None and shape_of(type) != shape:
            raise EngineError("run.shape", f"{y.name} is {type}, and was planned as {list(shape)}", node=node.label)


def _needed(graph: Graph, scene: Scene) -> list[Any]:
    """The nodes whose results are not known already and lead to an output."""
    wanted = {id(value) for value in graph.outputs if scene.tile(value).data is None}
    found = []
    for node in reversed(graph.nodes):
        if not any(id(y) in wanted for y in node.outputs):
            continue
        found.append(node)
        wanted.update(id(x) for x in node.inputs if x is not None and scene.tile(x).data is None)
    return found[::-1]


class _Planner:
    def __init__(
        self,
        graph: Graph,
        scene: Scene,
        works: list[Work],
        strides: Sequence[Any],
        elide: str,
        places: Sequence[int] | None,
    ) -> None:
        self.graph = graph
        self.scene = scene
        self.works = works
        self.elide = elide
        self.places = Places()
        self.memory = Memory(self.places)
        self.outputs: list[Tile] = []
        self.steps: list[tuple[str, Work | None, list[Tile | None], list[Tile], dict[str, Any], str]] = []
        self.copies: dict[tuple[Tile, bool], Tile] = {}
        self.boxes: dict[Tile, tuple[Tile, Layout]] = {}
        self.strided: list[Tile] = []
        self.given_places = places
        self.strides = list(strides) or [None] * len(scene.inputs)

    def plan(self) -> Plan:
        self._fix_outside()
        if self.elide != "none":
            settle(self.works, self.places)
        self._refuse_uneven_inputs()
        choose(self.works, self.memory)
        finals = self._place_outputs()
        moved = sum(_moved(work) for work in self.works if work.kernel == MOVE)
        fills = self._fills()
        for work in (*self.works, *finals):
            for fill in fills.pop(id(work), ()):
                self._write_fill(fill)
            self._write(work)
        return self._finished(moved)

    # Where things are

    def _fix_outside(self) -> None:
        self.places.fixed.update(self.scene.inputs)
        for tile, strides in zip(self.scene.inputs, self.strides, strict=True):
            if strides is not None:
                self.memory.set_strides(tile, strides)
                self.strided.append(tile)
        for work in self.works:
            self.places.fixed.update(tile for tile in work.tiles() if tile.data is not None)

    def _refuse_uneven_inputs(self) -> None:
        for tile in self.strided:
            if any(self.memory.layout(piece) is None for piece in self.places.pieces(tile)):
                raise UnevenInput(tile.name)

    def _place_outputs(self) -> list[Work]:
        """A buffer for each output. What cannot be made there in the first place is copied at the end."""
        finals = []
        for value in self.graph.outputs:
            tile = self.scene.tile(value)
            if tile.is_loose:
                self.outputs.append(tile)
                continue
            out = Tile(value.name, tile.type, tile.shape, tile.dtype)
            self.places.fixed.add(out)
            self.outputs.append(out)
            if tile.data is not None:
                self.places.fixed.add(tile)
            windows = Windows.whole(tile.shape)
            (window,) = windows.windows
            root = self.places.of(tile).root
            is_turned = self.memory.strides(root) != row_major(root.sizes)
            if is_turned or not self.places.put(tile, out, window):
                finals.append(Work(MOVE, (), [tile], [out], windows=windows, reason="a result has memory of its own"))
        self.memory.forget()
        return finals

    def _fills(self) -> dict[int, list[Work]]:
        """What fills a tensor comes before the first work that writes into its buffer."""
        found: dict[int, list[Work]] = {}
        for work in self.works:
            if work.windows is None or is_covered(work):
                continue
            (filled,) = work.writes
            root = self.places.of(filled).root
            first = next(each for each in self.works if any(self.places.of(tile).root is root for tile in each.writes))
            # What holds another filled tensor is filled before it.
            found.setdefault(id(first), []).insert(0, work)
        return found

    # Steps

    def _write(self, work: Work) -> None:
        if work.kernel == MOVE:
            self._write_moves(work)
            return
        reads = [None if tile is None else self._readable(tile, work) for tile in work.reads]
        after: list[tuple[Tile, Tile]] = []
        writes = [self._writable(tile, work, after) for tile in work.writes]
        self.steps.append((work.kernel, work, reads, writes, work.attributes, work.reason))
        for made, tile in after:
            self._copy(made, tile, f"{work.label} does not write that layout")

    def _readable(self, tile: Tile, work: Work) -> Tile:
        """The tensor, or a copy of it that the kernel can read."""
        if not tile.count:
            return tile
        as_image = tile in work.images and not (work.kernel == "conv" and tile.sizes[1] <= 4)
        operand = self.memory.operand(tile)
        slow = ""
        if operand is not None and not (as_image and not self.memory.is_image(tile)):
            slow = kept_for_speed(work, tile, operand[1]) if self.elide == "auto" else ""
            if not slow:
                return tile
        key = (tile, as_image)
        if key not in self.copies:
            made = Tile(f"{tile.name} (copy)", tile.type, tile.shape, tile.dtype)
            if as_image:
                self.memory.turn(made)
            unfit = "channels-last for a kernel" if operand is not None else "a view that no strides say"
            self._copy(tile, made, reason=slow or unfit)
            self.copies[key] = made
        return self.copies[key]

    def _writable(self, tile: Tile, work: Work, after: list[tuple[Tile, Tile]]) -> Tile:
        if not tile.count:
            return tile
        as_image = tile in work.images
        if self.memory.operand(tile) is not None and not (as_image and not self.memory.is_image(tile)):
            return tile
        made = Tile(f"{tile.name} (made)", tile.type, tile.shape, tile.dtype)
        if as_image:
            self.memory.turn(made)
        after.append((made, tile))
        return made

    def _write_moves(self, work: Work) -> None:
        for window in remaining(work, self.places):
            source, target = work.reads[window.input], work.writes[window.output]
            assert source is not None
            self._move(window, source, target, work.reason or self._why(work, source, target))

    def _why(self, work: Work, source: Tile, target: Tile) -> str:
        if self.elide == "none":
            return "nothing was to be planned away"
        if source.data is not None:
            return f"{source.name} is a constant"
        root = self.places.of(source).root
        if root in self.scene.inputs:
            return f"{source.name} lies in the input {root.name}"
        if sum(tile is source for tile in work.reads) > 1:
            return f"{source.name} comes more than once"
        if root in self.outputs:
            return f"{source.name} is a result of its own"
        if root.count != source.count:
            return f"{source.name} is only a part of {root.name}"
        return f"{source.name} does not lie there evenly"

    def _move(self, window: Window, source: Tile, target: Tile, reason: str) -> None:
        """One window as one copy between two boxes; through a dense copy of the source where its layout does not allow that."""
        read = self._box(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        if read is None:
            made = Tile(f"{source.name} (dense)", source.type, source.shape, source.dtype)
            self._copy(source, made, f"{reason}; its pieces are not even")
            source = made
            read = self._box(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        written = self._box(target, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
        if written is None:
            raise _Uneven
        assert read is not None
        self._copy_boxes(source, read, target, written, reason)

    def _box(self, tile: Tile, offset: int, axes: Iterable[Mode]) -> Layout | None:
        return compose(self._layout(tile), offset, axes)

    def _layout(self, tile: Tile) -> Layout:
        layout = self.memory.layout(tile)
        if layout is None:
            raise _Uneven
        return layout

    def _copy(self, source: Tile, target: Tile, reason: str) -> None:
        self._copy_boxes(source, self._layout(source), target, self._layout(target), reason)

    def _copy_boxes(self, source: Tile, read: Layout, target: Tile, written: Layout, reason: str) -> None:
        refined = _refined(read.modes, written.modes)
        if refined is None:
            made = Tile(f"{source.name} (dense)", source.type, (read.elements,), source.dtype)
            between = dense(read.elements)
            self._copy_boxes(source, read, made, between, f"{reason}; its pieces are not even")
            self._copy_boxes(made, between, target, written, f"{reason}; its pieces are not even")
            return
        sizes, read_strides, write_strides = refined
        boxes = [self._boxed(source, sizes, read.offset, read_strides), self._boxed(target, sizes, written.offset, write_strides)]
        self.steps.append((COPY, None, [boxes[0]], [boxes[1]], {}, reason))

    def _boxed(self, tile: Tile, sizes: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> Tile:
        """A tensor that is a box of another one's buffer."""
        made = Tile(tile.name, tile.type, sizes, tile.dtype, tile.data)
        self.boxes[made] = (tile, Layout(offset, tuple(zip(sizes, strides, strict=True))))
        return made

    def _write_fill(self, work: Work) -> None:
        (tile,) = work.writes
        layout = self._layout(tile)
        assert work.windows is not None and tile.dtype is not None
        fill = np.asarray(work.windows.fill).astype(tile.dtype.numpy)
        sizes, strides = tuple(size for size, _ in layout.modes), tuple(stride for _, stride in layout.modes)
        data = {"bytes": list(fill.tobytes())}
        self.steps.append((FILL, work, [], [self._boxed(tile, sizes, layout.offset, strides)], data, work.reason))

    # The finished plan

    def _root(self, tile: Tile) -> Tile:
        return self.places.of(self.boxes[tile][0] if tile in self.boxes else tile).root

    def _finished(self, moved: int) -> Plan:
        storage = self._shared_in_place()
        life: dict[Tile, list[int]] = {}
        for index, (_, _, reads, writes, _, _) in enumerate(self.steps):
            for tile in (*reads, *writes):
                if tile is not None and self._is_ours(tile):
                    span = life.setdefault(storage.get(self._root(tile), self._root(tile)), [index, index])
                    span[1] = index
        roots = list(life)
        spans = [Span(self._nbytes(root), *life[root]) for root in roots]
        offsets, total = arranged(spans)
        if self.given_places and len(self.given_places) == len(roots):
            offsets = list(self.given_places)
            total = max(offset + aligned(span.nbytes) for offset, span in zip(offsets, spans, strict=True))
        at = dict(zip(roots, offsets, strict=True))
        numbers = {tile: 1 + index for index, tile in enumerate((*self.scene.inputs, *self.outputs))}
        buffers = [Buffer(root, at[root], span.nbytes, span.first, span.last) for root, span in zip(roots, spans, strict=True)]

        def operand(tile: Tile | None) -> Operand | None:
            if tile is None:
                return None
            return self._operand(tile, at, numbers, storage)

        steps = [
            Step(kernel, work.label if work else writes[0].name, work, [operand(each) for each in reads],
                 [self._operand(each, at, numbers, storage) for each in writes], attributes, reason)
            for kernel, work, reads, writes, attributes, reason in self.steps
        ]  # fmt: skip
        activations = sum(tile.nbytes for work in self.works for tile in work.writes)
        results = [self.scene.tile(value) for value in self.graph.outputs]
        own = {id(data): data.nbytes for step in steps for data in step.constants() if not self.scene.shares([data])}
        most = lower_bound(spans)
        constants = sum(own.values())
        return Plan(self.scene.inputs, self.outputs, steps, total, most, buffers, moved, activations, results, constants)

    def _is_ours(self, tile: Tile) -> bool:
        return self._root(tile) not in self.places.fixed and bool(tile.count)

    def _nbytes(self, root: Tile) -> int:
        strides = self.memory.strides(root)
        return (1 + sum((size - 1) * stride for size, stride in zip(root.sizes, strides, strict=True))) * root.itemsize

    def _shared_in_place(self) -> dict[Tile, Tile]:
        """Roots that take over the memory of another one: computed element by element from what nobody else needs."""
        last: dict[Tile, int] = {}
        for index, (_, _, reads, writes, _, _) in enumerate(self.steps):
            last.update((self._root(tile), index) for tile in (*reads, *writes) if tile is not None)
        storage: dict[Tile, Tile] = {}
        for index, (kernel, _, reads, writes, attributes, _) in enumerate(self.steps):
            declared = overwritable_reads(kernel, attributes, len(reads), len(writes))
            target, *_ = writes
            if not self.places.is_root(target):
                continue
            held = [(place, tile, self._root(tile)) for place, tile in enumerate(reads) if tile is not None]
            for _, tile, root in held:
                owner = storage.get(root, root)
                if not self._is_ours(tile) or last[owner] != index or root.count != tile.count:
                    continue
                shared = [(other, each) for other, each, its in held if storage.get(its, its) is owner]
                if all(other in declared and self._coincide(each, target) for other, each in shared):
                    storage[target] = owner
                    last[owner] = last[target]
                    break
        return storage

    def _coincide(self, tile: Tile, target: Tile) -> bool:
        """Whether each element of ``tile`` has the offset in its root that the same element of ``target`` has in its own."""
        same = (tile.sizes, tile.itemsize) == (target.sizes, target.itemsize)
        return same and self.memory.operand(tile) == self.memory.operand(target)

    def _operand(self, tile: Tile, at: Mapping[Tile, int], numbers: Mapping[Tile, int], storage: Mapping[Tile, Tile]) -> Operand:
        if tile.is_loose:
            return Operand(tile, NOWHERE, 0, (), ())
        if tile in self.boxes:
            offset, strides = self.boxes[tile][1].offset, tuple(stride for _, stride in self.boxes[tile][1].modes)
        else:
            found = self.memory.operand(tile)
            assert found is not None
            offset, strides = found
        root = self._root(tile)
        size = tile.itemsize
        steps = tuple(stride * size for stride in strides)
        if root.data is not None:
            return Operand(tile, NOWHERE, offset * size, tile.sizes, steps, root.data)
        base = at.get(storage.get(root, root), 0)
        return Operand(tile, numbers.get(root, 0), base + offset * size, tile.sizes, steps)


def _moved(work: Work) -> int:
    """The bytes that a moving operator would write if each wrote its results."""
    return sum(tile.nbytes for tile in work.writes)


def _refined(first: Sequence[Mode], second: Sequence[Mode]) -> tuple[tuple[int, ...], ...] | None:
    """Two lists of modes over the same elements as one box: sizes and the strides of either. None where they divide unevenly."""
    ours, theirs = list(first), list(second)
    rows: list[tuple[int, int, int]] = []
    while ours:
        (size, stride), (other, step) = ours.pop(), theirs.pop()
        count = min(size, other)
        if size % count or other % count:
            return None
        rows.append((count, stride, step))
        if size > count:
            ours.append((size // count, stride * count))
        if other > count:
            theirs.append((other // count, step * count))
    rows.reverse()
    return tuple(row[0] for row in rows), tuple(row[1] for row in rows), tuple(row[2] for row in rows)


__all__ = ["dense", "make_plan", "strides_of"]
