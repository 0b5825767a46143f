"""Traits of native kernels for memory planning, one entry per kernel. A kernel without an entry has the defaults."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.engine.memory.tensor import KernelCall, RunTensor


class KernelTraits(NamedTuple):
    """KernelTraits holds the facts of one native kernel on which the planner relies."""

    packs_weights: bool = False
    """The kernel packs its second operand once, and the packed copy lives as long as the model."""
    adds_residual: bool = False
    """With ``has_residual`` the epilogue adds the last read: element i is read just before element i of the result is written."""
    updates_first_read: bool = False
    """The result is a changed copy of the first read, whose element i is read just before element i of the result is written."""
    is_elementwise: bool = False
    """Element i of every read is read before element i of the only result is written, and is not read again."""
    loads_along_axis: bool = False
    """The kernel loads vectors along its axis, so that a strided axis costs a gather."""
    loads_one_axis: bool = False
    """The kernel works along one axis, which may be any axis; other kernels work along all axes from ``axis`` to the last."""
    sets_own_layout: bool = False
    """The kernel votes for the layout of its operands itself and does not propagate the layout of an input to its output."""
    multiplies_matrices: bool = False
    """The first two reads are matrices, whose layouts do not determine the layout of the result."""
    direct_channels: int = 0
    """The kernel reads an input with at most this number of channels in any layout."""
    direct_outputs: int = 0
    """With a 1 x 1 kernel the convolution writes a result of at most this number of channels in any layout, to avoid a copy.

    Convolutions with more taps may use Winograd's algorithm, which writes channels-last only.
    """
    rounds_to_bf16: bool = False
    """The kernel computes products in f32, or, with ``precision`` "bf16", of operands that it rounds to bf16."""


KERNEL_TRAITS: dict[str, KernelTraits] = {
    "elementwise": KernelTraits(is_elementwise=True),
    "conv": KernelTraits(
        packs_weights=True, adds_residual=True, sets_own_layout=True, direct_channels=4, direct_outputs=4, rounds_to_bf16=True
    ),
    "conv_transpose": KernelTraits(packs_weights=True, rounds_to_bf16=True),
    "layer_norm": KernelTraits(loads_along_axis=True),
    "log_softmax": KernelTraits(loads_along_axis=True, loads_one_axis=True),
    "matmul": KernelTraits(packs_weights=True, adds_residual=True, multiplies_matrices=True, rounds_to_bf16=True),
    "move": KernelTraits(sets_own_layout=True),
    "pool": KernelTraits(sets_own_layout=True),
    "quantized_conv": KernelTraits(packs_weights=True, adds_residual=True),
    "recurrent": KernelTraits(packs_weights=True, rounds_to_bf16=True),
    "rms_norm": KernelTraits(loads_along_axis=True),
    "scatter_elements": KernelTraits(updates_first_read=True),
    "scatter_nd": KernelTraits(updates_first_read=True),
    "scatter_update": KernelTraits(updates_first_read=True),
    "softmax": KernelTraits(loads_along_axis=True, loads_one_axis=True),
    "trilu": KernelTraits(updates_first_read=True),
}
_DEFAULTS = KernelTraits()


def writes_any_layout(call: KernelCall, result: RunTensor) -> bool:
    """Return whether a kernel writes a result in any layout (see ``direct_outputs``)."""
    limit = traits_of(call.kernel).direct_outputs
    if not limit or result.sizes[1] > limit:
        return False
    weights = call.reads[1]
    return weights is not None and all(size == 1 for size in weights.sizes[2:])


def traits_of(kernel: str) -> KernelTraits:
    """Return the traits of a kernel by its name."""
    return KERNEL_TRAITS.get(kernel, _DEFAULTS)
