"""In-place computation: a result takes over the buffer of an input that its kernel may overwrite and nothing else reads.

Without an entry in KERNEL_TRAITS a kernel may write any part of its result before it has read all of its inputs, so no read may
overlap a write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.engine.memory.physical_layout import PhysicalLayouts
from dovetail.engine.memory.tensor import RunTensor
from dovetail.engine.plan import UnallocatedStep
from dovetail.engine.select.kernel_traits import traits_of


def overwritable_reads(kernel: str, attributes: Mapping[str, object], reads: int, writes: int) -> frozenset[int]:
    """Return the indices, among the ``reads`` inputs of a kernel, of the inputs that the kernel's only result may overwrite.

    Element i of such an input is read before element i of the result is written, and is not read again. So the input may share
    memory with the result where both have the same address, strides and item size. Every other overlap is a fault of the plan.
    """
    if writes != 1:
        return frozenset()
    traits = traits_of(kernel)
    if traits.is_elementwise:
        return frozenset(range(reads))
    if traits.updates_first_read:
        return frozenset((0,))
    if traits.adds_residual and attributes.get("has_residual"):
        return frozenset((reads - 1,))
    return frozenset()


def share_in_place(steps: Sequence[UnallocatedStep], layouts: PhysicalLayouts) -> dict[RunTensor, RunTensor]:
    """Map each root that a kernel computes in place to the root whose buffer it reuses."""
    last_use: dict[RunTensor, int] = {}
    for index, step in enumerate(steps):
        last_use.update((layouts.root_of(tensor), index) for tensor in (*step.reads, *step.writes) if tensor is not None)
    owners: dict[RunTensor, RunTensor] = {}
    for index, step in enumerate(steps):
        overwritable = overwritable_reads(step.kernel, step.attributes, len(step.reads), len(step.writes))
        target, *_ = step.writes
        if not layouts.aliases.is_root(target):
            continue
        reads = [(position, tensor, layouts.root_of(tensor)) for position, tensor in enumerate(step.reads) if tensor is not None]
        for _, tensor, root in reads:
            owner = owners.get(root, root)
            if not layouts.is_in_arena(tensor) or last_use[owner] != index or root.count != tensor.count:
                continue
            sharing = [(position, read) for position, read, read_root in reads if owners.get(read_root, read_root) is owner]
            if all(position in overwritable and has_same_offsets(read, target, layouts) for position, read in sharing):
                owners[target] = owner
                last_use[owner] = last_use[target]
                break
    return owners


def has_same_offsets(tensor: RunTensor, target: RunTensor, layouts: PhysicalLayouts) -> bool:
    """Return whether elements of ``tensor`` and ``target`` with the same index have the same offset in their respective roots."""
    is_same = (tensor.sizes, tensor.itemsize) == (target.sizes, target.itemsize)
    return is_same and layouts.operand(tensor) == layouts.operand(target)
