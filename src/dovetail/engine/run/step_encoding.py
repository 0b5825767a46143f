"""Encode a Step as the tuples that the native ``Program.add`` takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.engine.plan import Operand, Step
from dovetail.engine.select.elementwise_codegen import Input, NoInstruction, assemble

OperandRow = tuple[int, int, str, int, list[int], list[int], int, int, int]
"""A row: buffer, offset, element type, item size, sizes, strides, address, low, high.

Address, and the extent of memory [low, high) relative to the address, are nonzero only for a constant. The offset of a constant
counts from its address."""
EncodedStep = tuple[str, list[OperandRow], list[OperandRow], dict[str, Any]]
"""A step: the kernel's name, a row for each read and each written operand, and the attributes."""


def encode_step(step: Step) -> EncodedStep:
    """Return the arguments of the core's ``Program.add``. Raises ValueError for a step that no kernel takes."""
    reads = [encode_operand(operand) for operand in step.reads if operand is not None]
    writes = [encode_operand(operand) for operand in step.writes]
    attributes = dict(step.attributes)
    if step.kernel == "elementwise":
        return _encode_elementwise(step, reads, writes)
    if step.kernel in ("matmul", "plain_matmul"):
        for index, name in enumerate(("transpose_a", "transpose_b")):
            if attributes.pop(name, 0):
                reads[index] = _transpose(reads[index])
    return step.kernel, reads, writes, attributes


def encode_operand(operand: Operand) -> OperandRow:
    """Return an operand as the row that the core takes. Raises ValueError for a tensor without a buffer."""
    tensor = operand.tensor
    if tensor.dtype is None or tensor.dtype.name == "string" or (operand.buffer < 0 and operand.data is None):
        raise ValueError("a tensor whose shape is known only at run time")
    address, low, high = 0, 0, 0
    if operand.data is not None:
        address = operand.data.__array_interface__["data"][0]
        low, high = extent_of(operand.data)
    sizes, strides = list(operand.sizes), list(operand.strides)
    return max(operand.buffer, 0), operand.offset, tensor.dtype.name, tensor.itemsize, sizes, strides, address, low, high


def extent_of(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return an array's first byte and the byte after its last, relative to the address of the first element."""
    if array.flags.c_contiguous or not array.size:
        return 0, array.nbytes
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return sum(reach for reach in reaches if reach < 0), array.itemsize + sum(reach for reach in reaches if reach > 0)


def _transpose(row: OperandRow) -> OperandRow:
    """Return the operand with its last two axes swapped."""
    buffer, offset, dtype, itemsize, sizes, strides, address, low, high = row
    sizes, strides = ([*axes[:-2], axes[-1], axes[-2]] for axes in (sizes, strides))
    return buffer, offset, dtype, itemsize, sizes, strides, address, low, high


def _encode_elementwise(step: Step, reads: list[OperandRow], writes: list[OperandRow]) -> EncodedStep:
    inputs = [Input(operand.tensor.dtype, operand.tensor.data) for operand in step.reads if operand is not None]
    try:
        program = assemble(step.attributes["body"], step.attributes["results"], inputs)
    except NoInstruction as error:
        raise ValueError(str(error)) from None
    return "elementwise", [_broadcast(row, writes[0][4]) for row in reads], writes, program._asdict()


def _broadcast(row: OperandRow, sizes: list[int]) -> OperandRow:
    """Return an operand broadcast to ``sizes``, with stride 0 along axes of size 1 and along missing axes.

    Raises ValueError if the operand does not broadcast to ``sizes``.
    """
    buffer, offset, dtype, itemsize, own_sizes, strides, address, low, high = row
    missing = len(sizes) - len(own_sizes)
    if missing < 0 or any(size not in (1, target) for size, target in zip(own_sizes, sizes[missing:], strict=True)):
        raise ValueError(f"an operand of shape {own_sizes} does not broadcast to {sizes}")
    steps = [0 if size == 1 else stride for size, stride in zip(own_sizes, strides, strict=True)]
    return buffer, offset, dtype, itemsize, list(sizes), [0] * missing + steps, address, low, high
