"""Steps that run in Python: evaluation of an operator on views of the program's memory, and copies without a native core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import RunTensor, TensorMap
from dovetail.engine.plan import COPY, FILL, Operand, Step
from dovetail.errors import EngineError
from dovetail.ir.arrays import Array
from dovetail.ir.evaluate import evaluate_node
from dovetail.ir.limits import active, bytes_of

OperandReader = Callable[[Operand], Array]
"""A function that returns an operand's array in the memory of one call; for a dynamic operand, the array that a step stored."""
DynamicArrays = dict[RunTensor, Array]


def python_step(step: Step, tensor_map: TensorMap) -> Callable[[OperandReader, DynamicArrays], None]:
    """Return a function that runs a step in the memory of one call."""
    if step.kernel == COPY:
        return lambda read, dynamic: _copy(step, read)
    if step.kernel == FILL:
        return lambda read, dynamic: _fill(step, read)
    return lambda read, dynamic: _interpret(step, tensor_map, read, dynamic)


def _copy(step: Step, read: OperandReader) -> None:
    source, target = step.reads[0], step.writes[0]
    assert source is not None
    read(target)[...] = read(source)


def _fill(step: Step, read: OperandReader) -> None:
    target = read(step.writes[0])
    target[...] = np.frombuffer(bytes(step.attributes["bytes"]), target.dtype)[0]


def _interpret(step: Step, tensor_map: TensorMap, read: OperandReader, dynamic: DynamicArrays) -> None:
    call = step.call
    assert call is not None
    arrays = {tensor: None if operand is None else read(operand) for tensor, operand in zip(call.reads, step.reads, strict=True)}
    for node in call.nodes:
        tensors = [None if x is None else tensor_map.of(x) for x in node.inputs]
        results = evaluate_node(node, np, [None if tensor is None else arrays.get(tensor, tensor.data) for tensor in tensors])
        arrays.update({tensor_map.of(y): result for y, result in zip(node.outputs, results, strict=False)})
    borrowed = [
        array for tensor in call.reads if tensor is not None and not tensor.is_dynamic and (array := arrays[tensor]) is not None
    ]
    for tensor, operand in zip(call.writes, step.writes, strict=True):
        result = _own_copy_of(arrays[tensor], borrowed) if operand.tensor.is_dynamic else arrays[tensor]
        _store(step, operand, result, read, dynamic)


def _own_copy_of(result: Array, borrowed: Sequence[Array]) -> Array:
    """Return ``result``, copied if it shares memory with an array of ``borrowed``, which is valid only during the step."""
    if isinstance(result, list):
        return [_own_copy_of(item, borrowed) for item in result]
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, array) for array in borrowed):
        return np.array(result, order="C")
    return result


def _store(step: Step, operand: Operand, result: Array, read: OperandReader, dynamic: DynamicArrays) -> None:
    if operand.tensor.is_dynamic:
        dynamic[operand.tensor] = result
        if (usage := active()) is not None:
            usage.count_memory(bytes_of(result), f"what {step.label} and the steps before it make")
        return
    if operand.data is not None:
        # The elements are a constant of the plan.
        return
    if tuple(result.shape) != operand.sizes:
        raise EngineError("run.shape", f"{operand.tensor} must have the planned shape, got {list(result.shape)}", node=step.label)
    read(operand)[...] = result


def operand_reader(addresses: Sequence[int], dynamic: DynamicArrays) -> OperandReader:
    """Return an OperandReader for a call whose arena, inputs and outputs begin at ``addresses``."""

    def read(operand: Operand) -> Array:
        tensor = operand.tensor
        if tensor.is_dynamic:
            return dynamic.get(tensor, tensor.data)
        assert tensor.dtype is not None
        dtype = tensor.dtype.numpy
        if operand.data is not None:
            return _constant_view(operand.data, operand, dtype)
        return _array_at(addresses[operand.buffer] + operand.offset, operand.sizes, operand.strides, dtype)

    return read


class _ArrayInterface:
    """_ArrayInterface describes memory to numpy, which creates an array over this memory without owning it."""

    def __init__(self, interface: dict[str, object]) -> None:
        self.__array_interface__ = interface


def _array_at(address: int, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if 0 in sizes:
        return np.empty(sizes, dtype)
    # The interface can name only numpy's built-in types; arrays of ml_dtypes are viewed from raw bytes.
    typestr = dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}"
    array = np.asarray(
        _ArrayInterface({"version": 3, "data": (address, False), "shape": sizes, "strides": strides, "typestr": typestr})
    )
    return array if array.dtype == dtype else array.view(dtype)


def _constant_view(data: np.ndarray[Any, Any], operand: Operand, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the part of a constant that an operand describes, as a view."""
    if operand.sizes == data.shape and not operand.offset and operand.strides == data.strides:
        return data
    return _array_at(data.__array_interface__["data"][0] + operand.offset, operand.sizes, operand.strides, dtype)
