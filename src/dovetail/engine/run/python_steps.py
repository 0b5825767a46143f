"""Steps that run in Python: an operator's own rule on views of the program's memory, and moves where there is no native core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import Scene, Tile
from dovetail.engine.plan import COPY, FILL, Operand, Step
from dovetail.errors import EngineError
from dovetail.interpreter.evaluate import placed
from dovetail.limits import active, bytes_of

Find = Callable[[Operand], Any]
"""The array of an operand in the memory of one call; a loose one is whatever was kept under its tensor."""


def python_step(step: Step, scene: Scene) -> Callable[[Find, dict[Tile, Any]], None]:
    """What runs a step: called with what finds operands, and where loose tensors are kept."""
    if step.kernel == COPY:
        return lambda find, loose: _copy(step, find)
    if step.kernel == FILL:
        return lambda find, loose: _fill(step, find)
    return lambda find, loose: _interpret(step, scene, find, loose)


def _copy(step: Step, find: Find) -> None:
    source, target = step.reads[0], step.writes[0]
    assert source is not None
    find(target)[...] = find(source)


def _fill(step: Step, find: Find) -> None:
    target = find(step.writes[0])
    target[...] = np.frombuffer(bytes(step.attributes["bytes"]), target.dtype)[0]


def _interpret(step: Step, scene: Scene, find: Find, loose: dict[Tile, Any]) -> None:
    work = step.work
    assert work is not None
    known = {tile: None if operand is None else find(operand) for tile, operand in zip(work.reads, step.reads, strict=True)}
    for node in work.nodes:
        tiles = [None if x is None else scene.tile(x) for x in node.inputs]
        results = placed(node, np, [None if tile is None else known.get(tile, tile.data) for tile in tiles])
        known.update({scene.tile(y): result for y, result in zip(node.outputs, results, strict=False)})
    lent = [array for tile in work.reads if tile is not None and not tile.is_loose and (array := known[tile]) is not None]
    for tile, operand in zip(work.writes, step.writes, strict=True):
        _keep(step, operand, _own(known[tile], lent) if operand.tile.is_loose else known[tile], find, loose)


def _own(result: Any, lent: Sequence[Any]) -> Any:
    """What Python holds after the step, copied where it lies in memory that is lent to the step alone."""
    if isinstance(result, list):
        return [_own(each, lent) for each in result]
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, each) for each in lent):
        return np.array(result, order="C")
    return result


def _keep(step: Step, operand: Operand, result: Any, find: Find, loose: dict[Tile, Any]) -> None:
    if operand.tile.is_loose:
        loose[operand.tile] = result
        if (usage := active()) is not None:
            usage.hold(bytes_of(result), f"what {step.label} and the steps before it make")
        return
    if operand.data is not None:
        # Known beforehand, and not to be written.
        return
    if tuple(result.shape) != operand.sizes:
        raise EngineError("run.shape", f"{operand.tile} came out with the shape {list(result.shape)}", node=step.label)
    find(operand)[...] = result


def finder(addresses: Sequence[int], loose: dict[Tile, Any]) -> Find:
    """What finds operands: the arena, the inputs and the outputs begin at ``addresses``, and live as long as the call."""

    def find(operand: Operand) -> Any:
        tile = operand.tile
        if tile.is_loose:
            return loose.get(tile, tile.data)
        assert tile.dtype is not None
        dtype = tile.dtype.numpy
        if operand.data is not None:
            return _piece(operand.data, operand, dtype)
        return _at(addresses[operand.buffer] + operand.offset, operand.sizes, operand.strides, dtype)

    return find


class _Memory:
    """What numpy makes an array of without owning it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _at(address: int, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    if 0 in sizes:
        return np.empty(sizes, dtype)
    # numpy's own types say what they are; those of ml_dtypes are bytes first.
    typestr = dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}"
    found = np.asarray(_Memory({"version": 3, "data": (address, False), "shape": sizes, "strides": strides, "typestr": typestr}))
    return found if found.dtype == dtype else found.view(dtype)


def _piece(data: np.ndarray[Any, Any], operand: Operand, dtype: Any) -> np.ndarray[Any, Any]:
    """A piece of a constant."""
    if operand.sizes == data.shape and not operand.offset and operand.strides == data.strides:
        return data
    return _at(data.__array_interface__["data"][0] + operand.offset, operand.sizes, operand.strides, dtype)
