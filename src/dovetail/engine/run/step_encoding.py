"""How a step is said to the core: plain rows of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.engine.plan import Operand, Step
from dovetail.engine.select.elementwise_codegen import Input, NoInstruction, compiled

Row = tuple[int, int, str, int, list[int], list[int], int, int, int]
"""Buffer, offset, element type, its bytes, sizes, strides; of a constant its address and the extent of its memory from there."""
Spec = tuple[str, list[Row], list[Row], dict[str, Any]]


def spec(step: Step) -> Spec:
    """What ``Program.add`` of the core takes. Raises ValueError for what no kernel takes."""
    reads = [_row(operand) for operand in step.reads if operand is not None]
    writes = [_row(operand) for operand in step.writes]
    attributes = dict(step.attributes)
    if step.kernel == "chain":
        return _chain(step, reads, writes)
    if step.kernel == "matmul":
        for place, name in enumerate(("transpose_a", "transpose_b")):
            if attributes.pop(name, 0):
                reads[place] = _swapped(reads[place])
    return step.kernel, reads, writes, attributes


def _row(operand: Operand) -> Row:
    tensor = operand.tensor
    if tensor.dtype is None or tensor.dtype.name == "string" or (operand.buffer < 0 and operand.data is None):
        raise ValueError("a tensor whose shape is known only at run time")
    offset, address, low, high = operand.offset, 0, 0, 0
    if operand.data is not None:
        first, last = extent(operand.data)
        address, low, high = operand.data.__array_interface__["data"][0] + offset, first - offset, last - offset
        offset = 0
    sizes, strides = list(operand.sizes), list(operand.strides)
    return max(operand.buffer, 0), offset, tensor.dtype.name, tensor.itemsize, sizes, strides, address, low, high


def extent(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The first byte of an array's memory and the one past its last, counted from the address of its first element."""
    if array.flags.c_contiguous or not array.size:
        return 0, array.nbytes
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return sum(reach for reach in reaches if reach < 0), array.itemsize + sum(reach for reach in reaches if reach > 0)


def _swapped(row: Row) -> Row:
    """A matrix turned over."""
    buffer, offset, dtype, itemsize, sizes, strides, address, low, high = row
    turned = [[*each[:-2], each[-1], each[-2]] for each in (sizes, strides)]
    return buffer, offset, dtype, itemsize, turned[0], turned[1], address, low, high


def _chain(step: Step, reads: list[Row], writes: list[Row]) -> Spec:
    inputs = [Input(operand.tensor.dtype, operand.tensor.data) for operand in step.reads if operand is not None]
    try:
        chain = compiled(step.attributes["body"], step.attributes["results"], inputs)
    except NoInstruction as why:
        raise ValueError(str(why)) from None
    return "chain", [_stretched(row, writes[0][4]) for row in reads], writes, chain._asdict()


def _stretched(row: Row, sizes: list[int]) -> Row:
    """An operand broadcast to ``sizes``, with a stride of 0 along axes that it lacks. Raises ValueError where it does not fit."""
    buffer, offset, dtype, itemsize, own, strides, address, low, high = row
    lacking = len(sizes) - len(own)
    if lacking < 0 or any(size not in (1, whole) for size, whole in zip(own, sizes[lacking:], strict=True)):
        raise ValueError(f"an operand of shape {own} does not broadcast to {sizes}")
    steps = [0 if size == 1 else stride for size, stride in zip(own, strides, strict=True)]
    return buffer, offset, dtype, itemsize, list(sizes), [0] * lacking + steps, address, low, high
