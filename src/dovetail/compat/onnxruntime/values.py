"""OrtValue and OrtDevice: tensors, sequences and maps as onnxruntime passes them, in the memory of the CPU."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dovetail.compat.onnxruntime.node_args import type_text
from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir import arrays, dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.dtypes import DType
from dovetail.ir.types import Map, Optional, Sequence as SequenceType, Tensor, Type

_DEVICES = {"cpu": 0, "cuda": 1, "dml": 1, "gpu": 1, "webgpu": 1, "cann": 3, "npu": 3}
_BYTE_CODES = {dtypes.dtype(name).numpy for name in ("f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")}
"""The element types that onnxruntime returns as arrays of uint8."""


class OrtDeviceVendorId(enum.IntEnum):
    """OrtDeviceVendorId is the PCI vendor of a device."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtDevice:
    """OrtDevice names a device. Memory can be allocated on the CPU only."""

    def __init__(self, name: str, device_id: int = 0, vendor_id: int = 0) -> None:
        self._name = name
        self._device_id = device_id
        self._vendor_id = vendor_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return the device with this name and number. Raises UnsupportedError [device.unknown] for an unknown name."""
        if ort_device_name not in _DEVICES:
            raise UnsupportedError("device.unknown", f"the device must be one of {', '.join(_DEVICES)}, got {ort_device_name!r}")
        return OrtDevice(ort_device_name, device_id, max(vendor_id, 0))

    def device_id(self) -> int:
        """Return the number of the device."""
        return self._device_id

    def device_type(self) -> int:
        """Return the number of the kind of device: 0 for the CPU."""
        return _DEVICES[self._name]

    def device_mem_type(self) -> int:
        """Return 0, the default kind of memory."""
        return 0

    def device_vendor_id(self) -> int:
        """Return the PCI vendor, 0 for none."""
        return self._vendor_id


def check_cpu(device_type: str) -> None:
    """Check that memory of a device can be used. Raises EngineError [device.unknown], a RuntimeError."""
    if device_type.lower() != "cpu":
        raise EngineError("device.unknown", f"the device must be 'cpu', got {device_type!r}")


def element_type_of(item: object) -> DType:
    """Return the element type that a number of ONNX or a type of numpy names. Raises EngineError [dtype.unknown]."""
    try:
        if isinstance(item, int):
            return dtypes.BY_ONNX[item]
        return dtypes.dtype(item)
    except (KeyError, UnsupportedError):
        raise EngineError("dtype.unknown", f"the element type must be one of ONNX or numpy, got {item!r}") from None


def array_at(address: int, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the array in the memory at ``address``, which the caller keeps. Raises EngineError [dtype.unknown] for strings."""
    if dtype.bits < 8:
        raise EngineError("dtype.unknown", f"an element of a buffer must have at least 8 bits, got {dtype}")
    count = prod(shape)
    if not count:
        return np.empty(shape, dtype.numpy)
    memory = (ctypes.c_uint8 * (count * dtype.numpy.itemsize)).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype.numpy).reshape(shape)


def to_onnxruntime(item: Array) -> Any:
    """Return a result in the form in which onnxruntime returns it: elements of float8 are codes of uint8."""
    if isinstance(item, list):
        return [to_onnxruntime(element) for element in item]
    if isinstance(item, np.ndarray) and item.dtype in _BYTE_CODES:
        return item.view(np.uint8)
    return item


class OrtValue:
    """OrtValue holds a tensor, a sequence, a map, or nothing, in the memory of the CPU.

    ``data`` is an array, a list, a dict or None, and ``type`` the type. Arrays are shared and not copied, as long as they are
    contiguous.
    """

    def __init__(self, data: Array, type: Type) -> None:
        self._data = data
        self._type = type

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray[Any, Any], /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return the OrtValue of an array of numbers, which it shares. Raises EngineError [input.type], [device.unknown]."""
        check_cpu(device_type)
        if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "OSUTmM":
            raise EngineError("input.type", f"an OrtValue must be created from an array of numbers, got {_kind(numpy_obj)}")
        array = np.ascontiguousarray(numpy_obj).reshape(numpy_obj.shape)
        return cls(array, Tensor(element_type_of(array.dtype), array.shape))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray[Any, Any], /, onnx_element_type: int) -> OrtValue:
        """Return the OrtValue of an array whose bits are elements of another type of ONNX, such as bfloat16 in uint16."""
        dtype = element_type_of(onnx_element_type)
        if data.dtype.itemsize != dtype.numpy.itemsize:
            size = dtype.numpy.itemsize
            raise EngineError("input.dtype", f"elements of {dtype} need arrays of {size} bytes an element, got {data.dtype}")
        return cls(np.ascontiguousarray(data).reshape(data.shape).view(dtype.numpy), Tensor(dtype, data.shape))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: object,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: None = None,
    ) -> OrtValue:
        """Return a tensor whose elements are not initialized. ``element_type`` is a type of numpy or a number of ONNX."""
        check_cpu(device_type)
        if memory_info is not None:
            raise UnsupportedError("argument.value", f"memory_info must be None, got {memory_info!r}")
        dtype = element_type_of(element_type)
        if dtype.name == "string":
            raise EngineError("input.type", "an OrtValue must be created with a type of numbers, got strings")
        return cls(np.empty(tuple(shape), dtype.numpy), Tensor(dtype, tuple(shape)))

    @classmethod
    def from_dlpack(cls, data: Array, /) -> OrtValue:
        """Return the OrtValue of an array of another library, by ``__dlpack__``. Raises EngineError [input.type]."""
        try:
            array = arrays.to_numpy(data)
        except UnsupportedError as error:
            raise EngineError("input.type", error.message) from error
        if not array.flags.c_contiguous:
            raise EngineError("input.type", f"the array must be contiguous, got the strides {list(array.strides)}")
        return cls(array, Tensor(element_type_of(array.dtype), array.shape))

    def update_inplace(self, np_arr: np.ndarray[Any, Any]) -> None:
        """Copy an array of as many elements of the same size into this tensor, in C order. Raises EngineError [input.type]."""
        array = self._tensor()
        if np_arr.size != array.size or np_arr.dtype.itemsize != array.dtype.itemsize:
            raise EngineError(
                "input.type",
                f"the array must have {array.size} elements of {array.dtype}, got {np_arr.size} of {np_arr.dtype}",
            )
        array[...] = np.ascontiguousarray(np_arr).view(array.dtype).reshape(array.shape)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the tensor as an array that shares the memory. Raises EngineError [input.type] for a sequence or a map."""
        return to_onnxruntime(self._tensor())  # type: ignore[no-any-return]

    def _tensor(self) -> np.ndarray[Any, Any]:
        if not isinstance(self._data, np.ndarray):
            raise EngineError("input.type", f"the OrtValue must hold a tensor, got {self.data_type()}")
        return self._data

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._tensor().ctypes.data)

    def device_name(self) -> str:
        """Return ``cpu``."""
        return "cpu"

    def shape(self) -> list[int]:
        """Return the shape of the tensor."""
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """Return the type, such as ``tensor(float)``."""
        return type_text(self._type)

    def element_type(self) -> int:
        """Return ONNX's number of the element type of the tensor."""
        self._tensor()
        dtype = self._type.dtype
        return 0 if dtype is None or dtype.onnx is None else dtype.onnx

    def tensor_size_in_bytes(self) -> int:
        """Return the number of bytes of the tensor."""
        return int(self._tensor().nbytes)

    def has_value(self) -> bool:
        """Return whether an optional holds a value."""
        return self._data is not None

    def is_tensor(self) -> bool:
        """Return whether this is a tensor."""
        return isinstance(_inner(self._type), Tensor)

    def is_sparse_tensor(self) -> bool:
        """Return False: there are no sparse tensors."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return whether this is a sequence of tensors."""
        inner = _inner(self._type)
        return isinstance(inner, SequenceType) and not isinstance(inner.element, Map)

    def to_dlpack(self) -> Any:
        """Return a DLPack capsule that shares the memory."""
        return self.__dlpack__()

    def __dlpack__(self, *, stream: object = None) -> Any:
        return self._tensor().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype, copy=copy)

    def _get_c_value(self) -> OrtValue:
        return self

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def as_sparse_tensor(self) -> None:
        """Raise UnsupportedError [type.kind]: there are no sparse tensors."""
        raise UnsupportedError("type.kind", "sparse tensors are not supported")

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: object) -> None:
        """Raise UnsupportedError [type.kind]: there are no sparse tensors."""
        raise UnsupportedError("type.kind", "sparse tensors are not supported")


def _inner(type: Type) -> Type:
    return type.element if isinstance(type, Optional) else type


def _kind(item: object) -> str:
    return f"an array of {item.dtype}" if isinstance(item, np.ndarray) else type(item).__name__
