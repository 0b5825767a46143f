"""From a prepared graph and the shapes of its inputs to a plan: every tensor's place, every step, and what is still copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.engine.memory.affine_layout import Layout, Mode, compose, dense, row_major, strides_of
from dovetail.engine.memory.aliasing import AliasMap, assign_aliases, is_covered, remaining
from dovetail.engine.memory.arena import Lifetime, aligned, assign_offsets, lower_bound
from dovetail.engine.memory.copy_cost import reason_to_copy
from dovetail.engine.memory.in_place import overwritable_reads
from dovetail.engine.memory.physical_layout import PhysicalLayouts, choose
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor, TensorMap
from dovetail.engine.plan import COPY, FILL, NOWHERE, Buffer, Operand, Plan, Step
from dovetail.engine.select.fusion import fuse
from dovetail.engine.select.kernels import select_kernel
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.builder import written
from dovetail.ir.edit import copy_op
from dovetail.ir.graph import Graph, Node
from dovetail.ir.op import Window, Windows, infer_types
from dovetail.ir.types import is_static, shape_of

ELIDE = ("auto", "all", "none")


class _NonAffine(Exception):
    """Some piece of a root is to be written or copied, and no strides say where it lies."""


class NonAffineInput(Exception):
    """An input (named) whose strides do not allow a view that the plan needs: it has to be dense."""


def make_plan(
    graph: Graph,
    tensor_map: TensorMap,
    strides: Sequence[tuple[int, ...] | None],
    elide: str,
    places: Sequence[int] | None = None,
) -> Plan:
    """The plan for one set of input shapes. ``strides``: of each input, in elements, where it is not dense (None: dense).
    ``places``: where the buffers lie in the arena, in their order, instead of where this plan would put them."""
    nodes = _needed(graph, tensor_map)
    for node in nodes:
        _check(node, tensor_map)
    calls = fuse([select_kernel(node, tensor_map) for node in nodes], graph, tensor_map)
    try:
        return _Planner(graph, tensor_map, calls, strides, elide, places).plan()
    except _NonAffine:
        # Pieces that no strides say: then every tensor has a buffer of its own.
        return _Planner(graph, tensor_map, calls, strides, "none", places).plan()


def _check(node: Node, tensor_map: TensorMap) -> None:
    """Hold an operator's rules against the sizes of this run, where inference left something open."""
    tensors = [None if x is None else tensor_map.of(x) for x in node.inputs]
    is_known = all(value is None or is_static(value.type) for value in (*node.inputs, *node.outputs))
    if is_known and tensor_map.early.isdisjoint(tensors):
        return
    if any(tensor is not None and tensor.is_dynamic for tensor in tensors):
        return
    op = copy_op(node.op) if node.op.holds_graphs else node.op
    try:
        types = infer_types(op, tuple(None if tensor is None else tensor.view() for tensor in tensors))
    except DovetailError as error:
        raise error.at(node=node.label, op=written(node.op, node.inputs)) from None
    for y, type in zip(node.outputs, types, strict=True):
        shape = tensor_map.of(y).shape
        if is_static(type) and shape is not None and shape_of(type) != shape:
            raise EngineError("run.shape", f"{y.name} is {type}, and was planned as {list(shape)}", node=node.label)


def _needed(graph: Graph, tensor_map: TensorMap) -> list[Any]:
    """The nodes whose results are not known already and lead to an output."""
    wanted = {id(value) for value in graph.outputs if tensor_map.of(value).data is None}
    found = []
    for node in reversed(graph.nodes):
        if not any(id(y) in wanted for y in node.outputs):
            continue
        found.append(node)
        wanted.update(id(x) for x in node.inputs if x is not None and tensor_map.of(x).data is None)
    return found[::-1]


class _Planner:
    def __init__(
        self,
        graph: Graph,
        tensor_map: TensorMap,
        calls: list[KernelCall],
        strides: Sequence[Any],
        elide: str,
        places: Sequence[int] | None,
    ) -> None:
        self.graph = graph
        self.tensor_map = tensor_map
        self.calls = calls
        self.elide = elide
        self.places = AliasMap()
        self.memory = PhysicalLayouts(self.places)
        self.outputs: list[RunTensor] = []
        self.steps: list[tuple[str, KernelCall | None, list[RunTensor | None], list[RunTensor], dict[str, Any], str]] = []
        self.copies: dict[tuple[RunTensor, bool], RunTensor] = {}
        self.boxes: dict[RunTensor, tuple[RunTensor, Layout]] = {}
        self.strided: list[RunTensor] = []
        self.given_places = places
        self.strides = list(strides) or [None] * len(tensor_map.inputs)

    def plan(self) -> Plan:
        self._fix_outside()
        if self.elide != "none":
            assign_aliases(self.calls, self.places)
        self._refuse_uneven_inputs()
        choose(self.calls, self.memory)
        finals = self._place_outputs()
        moved = sum(_moved(call) for call in self.calls if call.kernel == MOVE)
        fills = self._fills()
        for call in (*self.calls, *finals):
            for fill in fills.pop(id(call), ()):
                self._write_fill(fill)
            self._write(call)
        return self._finished(moved)

    # Where things are

    def _fix_outside(self) -> None:
        self.places.fixed.update(self.tensor_map.inputs)
        for tensor, strides in zip(self.tensor_map.inputs, self.strides, strict=True):
            if strides is not None:
                self.memory.set_strides(tensor, strides)
                self.strided.append(tensor)
        for call in self.calls:
            self.places.fixed.update(tensor for tensor in call.tensors() if tensor.data is not None)

    def _refuse_uneven_inputs(self) -> None:
        for tensor in self.strided:
            if any(self.memory.layout(piece) is None for piece in self.places.pieces(tensor)):
                raise NonAffineInput(tensor.name)

    def _place_outputs(self) -> list[KernelCall]:
        """A buffer for each output. What cannot be made there in the first place is copied at the end."""
        finals = []
        for value in self.graph.outputs:
            tensor = self.tensor_map.of(value)
            if tensor.is_dynamic:
                self.outputs.append(tensor)
                continue
            out = RunTensor(value.name, tensor.type, tensor.shape, tensor.dtype)
            self.places.fixed.add(out)
            self.outputs.append(out)
            if tensor.data is not None:
                self.places.fixed.add(tensor)
            windows = Windows.whole(tensor.shape)
            (window,) = windows.windows
            root = self.places.of(tensor).root
            is_turned = self.memory.strides(root) != row_major(root.sizes)
            if is_turned or not self.places.write_into(tensor, out, window):
                finals.append(KernelCall(MOVE, (), [tensor], [out], windows=windows, reason="a result has memory of its own"))
        self.memory.forget()
        return finals

    def _fills(self) -> dict[int, list[KernelCall]]:
        """What fills a tensor comes before the first work that writes into its buffer."""
        found: dict[int, list[KernelCall]] = {}
        for call in self.calls:
            if call.windows is None or is_covered(call):
                continue
            (filled,) = call.writes
            root = self.places.of(filled).root
            first = next(each for each in self.calls if any(self.places.of(tensor).root is root for tensor in each.writes))
            # What holds another filled tensor is filled before it.
            found.setdefault(id(first), []).insert(0, call)
        return found

    # Steps

    def _write(self, call: KernelCall) -> None:
        if call.kernel == MOVE:
            self._write_moves(call)
            return
        reads = [None if tensor is None else self._readable(tensor, call) for tensor in call.reads]
        after: list[tuple[RunTensor, RunTensor]] = []
        writes = [self._writable(tensor, call, after) for tensor in call.writes]
        self.steps.append((call.kernel, call, reads, writes, call.attributes, call.reason))
        for made, tensor in after:
            self._copy(made, tensor, f"{call.label} does not write that layout")

    def _readable(self, tensor: RunTensor, call: KernelCall) -> RunTensor:
        """The tensor, or a copy of it that the kernel can read."""
        if not tensor.count:
            return tensor
        as_image = tensor in call.images and not (call.kernel == "conv" and tensor.sizes[1] <= 4)
        operand = self.memory.operand(tensor)
        slow = ""
        if operand is not None and not (as_image and not self.memory.is_image(tensor)):
            slow = reason_to_copy(call, tensor, operand[1]) if self.elide == "auto" else ""
            if not slow:
                return tensor
        key = (tensor, as_image)
        if key not in self.copies:
            made = RunTensor(f"{tensor.name} (copy)", tensor.type, tensor.shape, tensor.dtype)
            if as_image:
                self.memory.turn(made)
            unfit = "channels-last for a kernel" if operand is not None else "a view that no strides say"
            self._copy(tensor, made, reason=slow or unfit)
            self.copies[key] = made
        return self.copies[key]

    def _writable(self, tensor: RunTensor, call: KernelCall, after: list[tuple[RunTensor, RunTensor]]) -> RunTensor:
        if not tensor.count:
            return tensor
        as_image = tensor in call.images
        if self.memory.operand(tensor) is not None and not (as_image and not self.memory.is_image(tensor)):
            return tensor
        made = RunTensor(f"{tensor.name} (made)", tensor.type, tensor.shape, tensor.dtype)
        if as_image:
            self.memory.turn(made)
        after.append((made, tensor))
        return made

    def _write_moves(self, call: KernelCall) -> None:
        for window in remaining(call, self.places):
            source, target = call.reads[window.input], call.writes[window.output]
            assert source is not None
            self._move(window, source, target, call.reason or self._why(call, source, target))

    def _why(self, call: KernelCall, source: RunTensor, target: RunTensor) -> str:
        if self.elide == "none":
            return "nothing was to be planned away"
        if source.data is not None:
            return f"{source.name} is a constant"
        root = self.places.of(source).root
        if root in self.tensor_map.inputs:
            return f"{source.name} lies in the input {root.name}"
        if sum(tensor is source for tensor in call.reads) > 1:
            return f"{source.name} comes more than once"
        if root in self.outputs:
            return f"{source.name} is a result of its own"
        if root.count != source.count:
            return f"{source.name} is only a part of {root.name}"
        return f"{source.name} does not lie there evenly"

    def _move(self, window: Window, source: RunTensor, target: RunTensor, reason: str) -> None:
        """One window as one copy between two boxes; through a dense copy of the source where its layout does not allow that."""
        read = self._box(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        if read is None:
            made = RunTensor(f"{source.name} (dense)", source.type, source.shape, source.dtype)
            self._copy(source, made, f"{reason}; its pieces are not even")
            source = made
            read = self._box(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        written = self._box(target, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
        if written is None:
            raise _NonAffine
        assert read is not None
        self._copy_boxes(source, read, target, written, reason)

    def _box(self, tensor: RunTensor, offset: int, axes: Iterable[Mode]) -> Layout | None:
        return compose(self._layout(tensor), offset, axes)

    def _layout(self, tensor: RunTensor) -> Layout:
        layout = self.memory.layout(tensor)
        if layout is None:
            raise _NonAffine
        return layout

    def _copy(self, source: RunTensor, target: RunTensor, reason: str) -> None:
        self._copy_boxes(source, self._layout(source), target, self._layout(target), reason)

    def _copy_boxes(self, source: RunTensor, read: Layout, target: RunTensor, written: Layout, reason: str) -> None:
        refined = _refined(read.modes, written.modes)
        if refined is None:
            made = RunTensor(f"{source.name} (dense)", source.type, (read.elements,), source.dtype)
            between = dense(read.elements)
            self._copy_boxes(source, read, made, between, f"{reason}; its pieces are not even")
            self._copy_boxes(made, between, target, written, f"{reason}; its pieces are not even")
            return
        sizes, read_strides, write_strides = refined
        boxes = [self._boxed(source, sizes, read.offset, read_strides), self._boxed(target, sizes, written.offset, write_strides)]
        self.steps.append((COPY, None, [boxes[0]], [boxes[1]], {}, reason))

    def _boxed(self, tensor: RunTensor, sizes: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> RunTensor:
        """A tensor that is a box of another one's buffer."""
        made = RunTensor(tensor.name, tensor.type, sizes, tensor.dtype, tensor.data)
        self.boxes[made] = (tensor, Layout(offset, tuple(zip(sizes, strides, strict=True))))
        return made

    def _write_fill(self, call: KernelCall) -> None:
        (tensor,) = call.writes
        layout = self._layout(tensor)
        assert call.windows is not None and tensor.dtype is not None
        fill = np.asarray(call.windows.fill).astype(tensor.dtype.numpy)
        sizes, strides = tuple(size for size, _ in layout.modes), tuple(stride for _, stride in layout.modes)
        data = {"bytes": list(fill.tobytes())}
        self.steps.append((FILL, call, [], [self._boxed(tensor, sizes, layout.offset, strides)], data, call.reason))

    # The finished plan

    def _root(self, tensor: RunTensor) -> RunTensor:
        return self.places.of(self.boxes[tensor][0] if tensor in self.boxes else tensor).root

    def _finished(self, moved: int) -> Plan:
        storage = self._shared_in_place()
        life: dict[RunTensor, list[int]] = {}
        for index, (_, _, reads, writes, _, _) in enumerate(self.steps):
            for tensor in (*reads, *writes):
                if tensor is not None and self._is_ours(tensor):
                    span = life.setdefault(storage.get(self._root(tensor), self._root(tensor)), [index, index])
                    span[1] = index
        roots = list(life)
        spans = [Lifetime(self._nbytes(root), *life[root]) for root in roots]
        offsets, total = assign_offsets(spans)
        if self.given_places and len(self.given_places) == len(roots):
            offsets = list(self.given_places)
            total = max(offset + aligned(span.nbytes) for offset, span in zip(offsets, spans, strict=True))
        at = dict(zip(roots, offsets, strict=True))
        numbers = {tensor: 1 + index for index, tensor in enumerate((*self.tensor_map.inputs, *self.outputs))}
        buffers = [Buffer(root, at[root], span.nbytes, span.first, span.last) for root, span in zip(roots, spans, strict=True)]

        def operand(tensor: RunTensor | None) -> Operand | None:
            if tensor is None:
                return None
            return self._operand(tensor, at, numbers, storage)

        steps = [
            Step(kernel, call.label if call else writes[0].name, call, [operand(each) for each in reads],
                 [self._operand(each, at, numbers, storage) for each in writes], attributes, reason)
            for kernel, call, reads, writes, attributes, reason in self.steps
        ]  # fmt: skip
        activations = sum(tensor.nbytes for call in self.calls for tensor in call.writes)
        results = [self.tensor_map.of(value) for value in self.graph.outputs]
        own = {id(data): data.nbytes for step in steps for data in step.constants() if not self.tensor_map.shares([data])}
        most = lower_bound(spans)
        constants = sum(own.values())
        return Plan(self.tensor_map.inputs, self.outputs, steps, total, most, buffers, moved, activations, results, constants)

    def _is_ours(self, tensor: RunTensor) -> bool:
        return self._root(tensor) not in self.places.fixed and bool(tensor.count)

    def _nbytes(self, root: RunTensor) -> int:
        strides = self.memory.strides(root)
        return (1 + sum((size - 1) * stride for size, stride in zip(root.sizes, strides, strict=True))) * root.itemsize

    def _shared_in_place(self) -> dict[RunTensor, RunTensor]:
        """Roots that take over the memory of another one: computed element by element from what nobody else needs."""
        last: dict[RunTensor, int] = {}
        for index, (_, _, reads, writes, _, _) in enumerate(self.steps):
            last.update((self._root(tensor), index) for tensor in (*reads, *writes) if tensor is not None)
        storage: dict[RunTensor, RunTensor] = {}
        for index, (kernel, _, reads, writes, attributes, _) in enumerate(self.steps):
            declared = overwritable_reads(kernel, attributes, len(reads), len(writes))
            target, *_ = writes
            if not self.places.is_root(target):
                continue
            held = [(place, tensor, self._root(tensor)) for place, tensor in enumerate(reads) if tensor is not None]
            for _, tensor, root in held:
                owner = storage.get(root, root)
                if not self._is_ours(tensor) or last[owner] != index or root.count != tensor.count:
                    continue
                shared = [(other, each) for other, each, its in held if storage.get(its, its) is owner]
                if all(other in declared and self._coincide(each, target) for other, each in shared):
                    storage[target] = owner
                    last[owner] = last[target]
                    break
        return storage

    def _coincide(self, tensor: RunTensor, target: RunTensor) -> bool:
        """Whether each element of ``tile`` has the offset in its root that the same element of ``target`` has in its own."""
        same = (tensor.sizes, tensor.itemsize) == (target.sizes, target.itemsize)
        return same and self.memory.operand(tensor) == self.memory.operand(target)

    def _operand(
        self,
        tensor: RunTensor,
        at: Mapping[RunTensor, int],
        numbers: Mapping[RunTensor, int],
        storage: Mapping[RunTensor, RunTensor],
    ) -> Operand:
        if tensor.is_dynamic:
            return Operand(tensor, NOWHERE, 0, (), ())
        if tensor in self.boxes:
            offset, strides = self.boxes[tensor][1].offset, tuple(stride for _, stride in self.boxes[tensor][1].modes)
        else:
            found = self.memory.operand(tensor)
            assert found is not None
            offset, strides = found
        root = self._root(tensor)
        size = tensor.itemsize
        steps = tuple(stride * size for stride in strides)
        if root.data is not None:
            return Operand(tensor, NOWHERE, offset * size, tensor.sizes, steps, root.data)
        base = at.get(storage.get(root, root), 0)
        return Operand(tensor, numbers.get(root, 0), base + offset * size, tensor.sizes, steps)


def _moved(call: KernelCall) -> int:
    """The bytes that a moving operator would write if each wrote its results."""
    return sum(tensor.nbytes for tensor in call.writes)


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
