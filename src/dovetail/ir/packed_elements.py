"""PackedElements: the elements of a constant of 2 or 4 bits, packed in bytes as files store them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from dovetail.ir.dtypes import DType


class PackedElements:
    """PackedElements holds elements of 2 or 4 bits in bytes, the first element of a byte in its lowest bits.

    ``packed`` has the ``ceil(count * dtype.bits / 8)`` bytes of all ``count`` elements of ``shape``. ``release`` is called with
    ``packed`` after they are unpacked. Raises ValueError for a shape that no numpy array has.
    """

    def __init__(
        self,
        packed: np.ndarray[Any, Any],
        dtype: DType,
        shape: tuple[int, ...],
        release: Callable[[np.ndarray[Any, Any]], None] | None = None,
    ) -> None:
        # An array without memory raises the error of an array of that shape.
        np.empty(0, dtype.numpy).reshape(shape) if 0 in shape else np.broadcast_to(np.uint8(0), shape)
        self.packed = packed.view()
        self.packed.flags.writeable = False
        self.dtype = dtype
        self.shape = shape
        self.release = release
        self._unpacked: weakref.ref[np.ndarray[Any, Any]] | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes

    def reshape(self, shape: tuple[int, ...]) -> PackedElements:
        """Return the elements with another shape of as many elements."""
        return PackedElements(self.packed, self.dtype, shape, self.release)

    def to_bytes(self) -> np.ndarray[Any, Any]:
        """Return ``packed`` with zeros behind the last element."""
        bits = self.size * self.dtype.bits % 8
        if not bits or not self.packed[-1] >> bits:
            return self.packed
        packed = self.packed.copy()
        packed[-1] &= np.uint8(2**bits - 1)
        return packed

    def unpack(self) -> np.ndarray[Any, Any]:
        """Return a read-only array with one element per numpy element; the same array while it is in use."""
        array = None if self._unpacked is None else self._unpacked()
        if array is None:
            bits = self.dtype.bits
            fields = np.empty((self.packed.size, 8 // bits), np.uint8)
            for index in range(8 // bits):
                np.right_shift(self.packed, bits * index, out=fields[:, index])
            fields &= np.uint8(2**bits - 1)
            if self.release is not None:
                self.release(self.packed)
            codes = fields.reshape(-1)[: self.size].reshape(self.shape)
            array = codes.view(self.dtype.numpy)
            array.flags.writeable = False
            self._unpacked = weakref.ref(array)
        return array

    def __repr__(self) -> str:
        return repr(self.unpack())

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedElements, (self.packed, self.dtype, self.shape, self.release)
