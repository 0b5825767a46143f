"""Steps that run in Python: an operator's own rule on views of the program's memory, and moves where there is no native core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import RunTensor, TensorMap
from dovetail.engine.plan import COPY, FILL, Operand, Step
from dovetail.errors import EngineError
from dovetail.interpreter.evaluate import placed
from dovetail.limits import active, bytes_of

Find = Callable[[Operand], Any]
"""The array of an operand in the memory of one call; a loose one is whatever was kept under its tensor."""


def python_step(step: Step, tensor_map: TensorMap) -> Callable[[Find, dict[RunTensor, Any]], None]:
    """What runs a step: called with what finds operands, and where loose tensors are kept."""
    if step.kernel == COPY:
        return lambda find, dynamic: _copy(step, find)
    if step.kernel == FILL:
        return lambda find, dynamic: _fill(step, find)
    return lambda find, dynamic: _interpret(step, tensor_map, find, dynamic)


def _copy(step: Step, find: Find) -> None:
    source, target = step.reads[0], step.writes[0]
    assert source is not None
    find(target)[...] = find(source)


def _fill(step: Step, find: Find) -> None:
    target = find(step.writes[0])
    target[...] = np.frombuffer(bytes(step.attributes["bytes"]), target.dtype)[0]


def _interpret(step: Step, tensor_map: TensorMap, find: Find, dynamic: dict[RunTensor, Any]) -> None:
    call = step.call
    assert call is not None
    known = {tensor: None if operand is None else find(operand) for tensor, operand in zip(call.reads, step.reads, strict=True)}
    for node in call.nodes:
        tensors = [None if x is None else tensor_map.of(x) for x in node.inputs]
        results = placed(node, np, [None if tensor is None else known.get(tensor, tensor.data) for tensor in tensors])
        known.update({tensor_map.of(y): result for y, result in zip(node.outputs, results, strict=False)})
    lent = [
        array for tensor in call.reads if tensor is not None and not tensor.is_dynamic and (array := known[tensor]) is not None
    ]
    for tensor, operand in zip(call.writes, step.writes, strict=True):
        _keep(step, operand, _own(known[tensor], lent) if operand.tensor.is_dynamic else known[tensor], find, dynamic)


def _own(result: Any, lent: Sequence[Any]) -> Any:
    """What Python holds after the step, copied where it lies in memory that is lent to the step alone."""
    if isinstance(result, list):
        return [_own(each, lent) for each in result]
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, each) for each in lent):
        return np.array(result, order="C")
    return result


def _keep(step: Step, operand: Operand, result: Any, find: Find, dynamic: dict[RunTensor, Any]) -> None:
    if operand.tensor.is_dynamic:
        dynamic[operand.tensor] = result
        if (usage := active()) is not None:
            usage.hold(bytes_of(result), f"what {step.label} and the steps before it make")
        return
    if operand.data is not None:
        # Known beforehand, and not to be written.
        return
    if tuple(result.shape) != operand.sizes:
        raise EngineError("run.shape", f"{operand.tensor} came out with the shape {list(result.shape)}", node=step.label)
    find(operand)[...] = result


def finder(addresses: Sequence[int], dynamic: dict[RunTensor, Any]) -> Find:
    """What finds operands: the arena, the inputs and the outputs begin at ``addresses``, and live as long as the call."""

    def find(operand: Operand) -> Any:
        tensor = operand.tensor
        if tensor.is_dynamic:
            return dynamic.get(tensor, tensor.data)
        assert tensor.dtype is not None
        dtype = tensor.dtype.numpy
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
