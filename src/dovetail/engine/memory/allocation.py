"""Buffer allocation: lifetimes of roots, their offsets in the arena, and the operands of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.engine.memory.arena import Lifetime, assign_offsets, lower_bound_of
from dovetail.engine.memory.in_place import share_in_place
from dovetail.engine.memory.physical_layout import PhysicalLayouts
from dovetail.engine.memory.tensor import RunTensor
from dovetail.engine.plan import NO_BUFFER, Buffer, Operand, Step, UnallocatedStep


class Allocation(NamedTuple):
    """Allocation holds the steps with their operands, the buffers and the size of the arena, and the peak of live bytes."""

    steps: list[Step]
    buffers: list[Buffer]
    arena_bytes: int
    lower_bound: int


def allocate(
    steps: Sequence[UnallocatedStep], layouts: PhysicalLayouts, external: Sequence[RunTensor], *, apart: bool = False
) -> Allocation:
    """Allocate the arena for ``steps``. ``external``: inputs and outputs of the plan, whose buffer indices start at 1.

    ``apart``: each arena buffer has a separate index, after the indices of ``external``, and the offset of an operand is relative
    to the start of its buffer.
    """
    owners = share_in_place(steps, layouts)
    live: dict[RunTensor, list[int]] = {}
    for index, step in enumerate(steps):
        for tensor in (*step.reads, *step.writes):
            if tensor is not None and layouts.is_in_arena(tensor):
                root = layouts.root_of(tensor)
                live.setdefault(owners.get(root, root), [index, index])[1] = index
    roots = list(live)
    lifetimes = [Lifetime(layouts.nbytes_of(root), *live[root]) for root in roots]
    assigned, arena_bytes = assign_offsets(lifetimes)
    numbers = {tensor: 1 + index for index, tensor in enumerate((*external, *(roots if apart else ())))}
    operands = _Operands(layouts, {} if apart else dict(zip(roots, assigned, strict=True)), numbers, owners)
    buffers = [
        Buffer(root, offset, lifetime.nbytes, lifetime.first, lifetime.last)
        for root, offset, lifetime in zip(roots, assigned, lifetimes, strict=True)
    ]
    return Allocation([operands.step_of(step) for step in steps], buffers, arena_bytes, lower_bound_of(lifetimes))


class _Operands:
    """_Operands creates the operands of steps, once every root has a buffer."""

    def __init__(
        self,
        layouts: PhysicalLayouts,
        offsets: dict[RunTensor, int],
        buffers: dict[RunTensor, int],
        owners: dict[RunTensor, RunTensor],
    ) -> None:
        self._layouts = layouts
        self._offsets = offsets
        self._buffers = buffers
        self._owners = owners

    def step_of(self, step: UnallocatedStep) -> Step:
        label = step.call.label if step.call else step.writes[0].name
        reads = [None if tensor is None else self._operand_of(tensor) for tensor in step.reads]
        writes = [self._operand_of(tensor) for tensor in step.writes]
        return Step(step.kernel, label, step.call, reads, writes, step.attributes, step.reason)

    def _operand_of(self, tensor: RunTensor) -> Operand:
        if tensor.is_dynamic:
            return Operand(tensor, NO_BUFFER, 0, (), ())
        layout = self._layouts.operand(tensor)
        assert layout is not None
        offset, strides = layout
        root = self._layouts.root_of(tensor)
        size = tensor.itemsize
        byte_strides = tuple(stride * size for stride in strides)
        if root.data is not None:
            return Operand(tensor, NO_BUFFER, offset * size, tensor.sizes, byte_strides, root.data)
        owner = self._owners.get(root, root)
        base = self._offsets.get(owner, 0)
        return Operand(tensor, self._buffers.get(owner, 0), base + offset * size, tensor.sizes, byte_strides)
