"""How a step is said to the core: plain rows of numbers."""

from __future__ import annotations

from typing import Any

from dovetail.engine.elementwise import Input, Unsaid, compiled
from dovetail.engine.plan import Operand, Step

Row = tuple[int, int, str, int, list[int], list[int], int]
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
    tile = operand.tile
    if tile.dtype is None or tile.dtype.name == "string" or (operand.buffer < 0 and operand.data is None):
        raise ValueError("a tensor whose shape is known only at run time")
    address = 0
    if operand.data is not None:
        address = operand.data.__array_interface__["data"][0] + operand.offset
    offset = 0 if address else operand.offset
    return max(operand.buffer, 0), offset, tile.dtype.name, tile.itemsize, list(operand.sizes), list(operand.strides), address


def _swapped(row: Row) -> Row:
    """A matrix turned over."""
    buffer, offset, dtype, itemsize, sizes, strides, address = row
    turned = [[*each[:-2], each[-1], each[-2]] for each in (sizes, strides)]
    return buffer, offset, dtype, itemsize, turned[0], turned[1], address


def _chain(step: Step, reads: list[Row], writes: list[Row]) -> Spec:
    inputs = [Input(operand.tile.dtype, operand.tile.data) for operand in step.reads if operand is not None]
    try:
        chain = compiled(step.attributes["body"], step.attributes["results"], inputs)
    except Unsaid as why:
        raise ValueError(str(why)) from None
    return "chain", [_stretched(row, writes[0][4]) for row in reads], writes, chain._asdict()


def _stretched(row: Row, sizes: list[int]) -> Row:
    """An operand broadcast to ``sizes``: nothing is stepped over along axes that it lacks."""
    buffer, offset, dtype, itemsize, own, strides, address = row
    lacking = len(sizes) - len(own)
    steps = [0 if size == 1 else stride for size, stride in zip(own, strides, strict=True)]
    return buffer, offset, dtype, itemsize, list(sizes), [0] * lacking + steps, address
