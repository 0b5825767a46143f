"""Tensor: an array with an element type of OpenVINO, whose shape may change."""

from __future__ import annotations

import warnings
from math import prod
from typing import TypeAlias

import numpy as np

from dovetail.compat.openvino.element_type import Type, TypeLike, to_type, type_of
from dovetail.compat.openvino.nodes import ConstOutput, Output
from dovetail.compat.openvino.shapes import Shape
from dovetail.errors import ArgumentTypeError, EngineError, UnsupportedError
from dovetail.ir import dtypes

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


class Tensor:
    """Tensor holds elements: ``Tensor(array)``, ``Tensor(type, shape)``, ``Tensor(array, shape, type)``, ``Tensor(port)``.

    - ``Tensor(array, shared_memory=True)`` is a view of a writable array in C order; otherwise the array is copied.
    - ``Tensor(array, shape, type)`` takes the bytes of the array, for types with fewer than 8 bits.
    - ``Tensor(tensor, begin, end)`` is a view of a region of another tensor.

    ``data`` is a numpy view of the elements. bf16 and the types of fewer than 16 bits that numpy lacks are bit patterns.

    >>> Tensor(Type.f32, [2, 3])
    <Tensor: shape[2,3] type: f32>
    """

    def __init__(self, *arguments: object, **options: object) -> None:
        for name in ("array", "image", "port", "other", "type"):
            if name in options and not arguments:
                arguments = (options.pop(name),)
        if not arguments:
            raise ArgumentTypeError("argument.type", "a Tensor must be created from an array, a type, a port or a Tensor")
        first, *rest = arguments
        if isinstance(first, Tensor):
            begin, end = [*rest, *(options.pop(name) for name in ("begin", "end") if name in options)]
            self._take_region(first, _sizes(begin), _sizes(end))
        elif isinstance(first, Output | ConstOutput):
            array = rest[0] if rest else options.pop("array", None)
            if array is None:
                self._allocate(first.element_type, tuple(first.shape))
            else:
                self._take_array(array, is_shared=bool(options.pop("shared_memory", False)))
        elif isinstance(first, Type | type):
            shape = rest[0] if rest else options.pop("shape", ())
            self._allocate(to_type(first), _sizes(shape))
        else:
            shape = rest[0] if rest and not isinstance(rest[0], bool) else options.pop("shape", None)
            if shape is None:
                is_shared = bool(rest[0]) if rest else bool(options.pop("shared_memory", False))
                self._take_array(first, is_shared)
            else:
                kind = rest[1] if len(rest) > 1 else options.pop("type", None)
                self._take_bytes(np.asarray(first), _sizes(shape), None if kind is None else to_type(kind))
        if options:
            raise TypeError(f"Tensor has no parameter {', '.join(map(repr, options))}")

    _type: Type
    _view: Array
    """The elements; for types of fewer than 8 bits the packed bytes."""
    _memory: Array | None
    """All elements that the tensor may hold, on one axis; None for a view with strides."""
    _is_shared: bool
    _packed_shape: tuple[int, ...] | None

    def _allocate(self, kind: Type, shape: tuple[int, ...]) -> None:
        self._type, self._is_shared = kind, False
        if kind is Type.string:
            self._hold(np.full(prod(shape), "", object), shape)
        else:
            self._hold(
                np.zeros((prod(shape) * kind.bitwidth + 7) // 8 if kind.bitwidth < 8 else prod(shape), kind.to_dtype()), shape
            )

    def _hold(self, memory: Array, shape: tuple[int, ...]) -> None:
        self._memory = memory
        self._packed_shape = shape if self._type.bitwidth < 8 else None
        self._view = memory if self._packed_shape is not None else memory[: prod(shape)].reshape(shape)

    def _take_array(self, array: object, is_shared: bool) -> None:
        if isinstance(array, list) or (hasattr(array, "__array__") and not isinstance(array, np.generic)):
            array = np.asarray(array)
        if not isinstance(array, np.ndarray):
            raise TypeError("Input argument must be a PIL.Image.Image/numpy.array/list[int, float, str] object")
        self._type = Type.string if array.dtype.kind in "SUO" else Type(array.dtype)
        self._is_shared = is_shared and self._type is not Type.string
        if self._type is Type.string:
            array = _texts(array)
        elif not is_shared:
            array = np.array(array, order="C")
        elif not array.flags.c_contiguous or not array.flags.writeable:
            message = "SHARED MEMORY MODE FOR THIS TENSOR IS NOT APPLICABLE! The array must be writable and C contiguous."
            raise EngineError("argument.value", message)
        self._hold(array.reshape(-1), array.shape)

    def _take_bytes(self, array: Array, shape: tuple[int, ...], kind: Type | None) -> None:
        self._type, self._is_shared = kind or Type(array.dtype), True
        if self._type.bitwidth < 8:
            self._hold(array.reshape(-1).view(np.uint8), shape)
        else:
            self._hold(array.reshape(-1).view(self._type.to_dtype()), shape)

    def _take_region(self, other: Tensor, begin: tuple[int, ...], end: tuple[int, ...]) -> None:
        self._type, self._is_shared, self._packed_shape = other._type, True, None
        sizes = tuple(other.shape)
        if not len(begin) == len(end) == len(sizes) or not all(b <= e <= n for b, e, n in zip(begin, end, sizes, strict=True)):
            raise EngineError("index.range", f"the region must be within {other.shape}, got {list(begin)} to {list(end)}")
        self._view = other._view[tuple(slice(low, high) for low, high in zip(begin, end, strict=True))]
        self._memory = None

    @property
    def element_type(self) -> Type:
        return self._type

    def get_element_type(self) -> Type:
        return self._type

    @property
    def shape(self) -> Shape:
        return Shape(self._view.shape if self._packed_shape is None else self._packed_shape)

    @shape.setter
    def shape(self, shape: object) -> None:
        sizes = _sizes(shape)
        if sizes == tuple(self.shape):
            return
        if self._memory is None or (self._is_shared and prod(sizes) > self._memory.size):
            raise EngineError("shape.disagree", f"Could not set new shape: {list(sizes)}: the tensor holds {list(self.shape)}")
        if prod(sizes) > self._memory.size or self._packed_shape is not None:
            self._allocate(self._type, sizes)
        else:
            self._hold(self._memory, sizes)

    def get_shape(self) -> Shape:
        return self.shape

    def set_shape(self, shape: object) -> None:
        """Change the shape. Raises EngineError [shape.disagree] if memory that is shared is too small."""
        self.shape = shape

    @property
    def data(self) -> Array:
        """The elements as a numpy view; strings as a copy in bytes."""
        if self._type is Type.string:
            warnings.warn(
                "Data of string type will be copied! Please use dedicated properties `str_data` and `bytes_data` to avoid "
                "confusion while accessing Tensor's contents.",
                RuntimeWarning,
                stacklevel=2,
            )
            return self.bytes_data
        return self._view

    @property
    def str_data(self) -> Array:
        """The strings as an array of the numpy kind U."""
        return self._checked_texts().astype(str)

    @str_data.setter
    def str_data(self, texts: object) -> None:
        target, source = self._checked_texts(), _texts(np.asarray(texts))
        if source.size != target.size:
            raise EngineError("shape.disagree", f"the array must have {target.size} elements, as the tensor, got {source.size}")
        target[...] = source.reshape(target.shape)

    @property
    def bytes_data(self) -> Array:
        """The strings in UTF-8 as an array of the numpy kind S."""
        encoded = [str(text).encode() for text in self._checked_texts().ravel()]
        return np.array(encoded, "S").reshape(self._view.shape)

    @bytes_data.setter
    def bytes_data(self, texts: object) -> None:
        self.str_data = texts

    def _checked_texts(self) -> Array:
        if self._type is not Type.string:
            raise EngineError("type.kind", f"the tensor must hold strings, got {self._type.to_string()}")
        return self._view

    @property
    def size(self) -> int:
        return prod(self.shape)

    def get_size(self) -> int:
        return self.size

    @property
    def byte_size(self) -> int:
        return (self.size * self._type.bitwidth + 7) // 8

    def get_byte_size(self) -> int:
        return self.byte_size

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance of the elements along each axis, in bytes."""
        return self._view.strides

    def get_strides(self) -> tuple[int, ...]:
        return self.strides

    def is_continuous(self) -> bool:
        return self._view.flags.c_contiguous

    def copy_to(self, target: Tensor) -> None:
        """Copy the elements into another tensor of the same type, which takes the shape of this one."""
        target.copy_from(self)

    def copy_from(self, source: Tensor | Array) -> None:
        """Copy the elements of a tensor or array of the same type, with its shape. Raises EngineError [input.dtype]."""
        other = source if isinstance(source, Tensor) else Tensor(source)
        if other._type is not self._type:
            names = f"(src: {other._type.to_string()} != dst: {self._type.to_string()})"
            raise EngineError("input.dtype", f"Tensor element types are not equal. {names}")
        self.shape = other.shape
        self._view[...] = other._view

    def to_array(self, dtype: dtypes.DType) -> Array:
        """Return the elements in the numpy type that dovetail computes with. Raises UnsupportedError [op.unsupported]."""
        if self._packed_shape is not None:
            message = f"inputs and outputs of {dtype.bits} bits are not supported, got {dtype}"
            raise UnsupportedError("op.unsupported", message)
        return self._view if dtype.kind == "string" else self._view.view(dtype.numpy)

    def replace(self, array: Array) -> None:
        """Let the tensor hold ``array``, a result of dovetail: in its own memory where the array fits, else in the array's."""
        stored = array if self._type is Type.string else array.view(self._type.to_dtype())
        if self._is_shared:
            self.shape = stored.shape
            self._view[...] = stored
        else:
            self._hold(stored.reshape(-1), stored.shape)

    def __copy__(self) -> Tensor:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        new = Tensor(self._type, list(self.shape))
        new._view[...] = self._view
        return new

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tensor):
            return False
        if self._type is not other._type or self.shape != other.shape:
            return False
        return bool(np.array_equal(self._view, other._view))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Tensor: shape{self.shape} type: {self._type.to_string()}>"


def empty_tensor(dtype: dtypes.DType, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of zeros of an element type of dovetail."""
    return Tensor(type_of(dtype), shape)


def tensor_from_file(path: str) -> Tensor:
    """Return the bytes of a file as a tensor of the type u8."""
    return Tensor(np.fromfile(path, np.uint8))


def _sizes(shape: object) -> tuple[int, ...]:
    return tuple(Shape(shape))  # type: ignore[arg-type]


def _texts(array: Array) -> Array:
    """Return strings and bytes in UTF-8 as an array of Python strings."""
    flat = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel().tolist()]
    texts = np.empty(len(flat), object)
    texts[:] = flat
    return texts.reshape(array.shape)


def pack_data(array: Array, type: TypeLike) -> Array:
    """Return the elements of an array packed in bytes, the first element in the high bits."""
    kind = to_type(type)
    bits = np.unpackbits(np.ascontiguousarray(array).view(np.uint8).reshape(-1, 1), axis=1)[:, 8 - kind.bitwidth :]
    if kind.bitwidth not in (1, 2, 4):
        raise UnsupportedError("op.unsupported", f"elements must have 1, 2 or 4 bits, got {kind.to_string()}")
    return np.packbits(bits)


def unpack_data(array: Array, type: TypeLike, shape: object) -> Array:
    """Return the elements of packed bytes in an array with one element per byte; the inverse of ``pack_data``."""
    kind, sizes = to_type(type), _sizes(shape)
    bits = np.unpackbits(np.ascontiguousarray(array).view(np.uint8)).reshape(-1, kind.bitwidth)[: prod(sizes)]
    fill = np.repeat(bits[:, :1] if kind.is_signed() else np.zeros((len(bits), 1), np.uint8), 8 - kind.bitwidth, axis=1)
    return np.packbits(np.concatenate([fill, bits], axis=1), axis=1).view(kind.to_dtype()).reshape(sizes)
