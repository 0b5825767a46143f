"""The header of a .npy file: element type, shape, order and file offset of an array."""

from __future__ import annotations

from math import prod
from typing import IO, Any, NamedTuple

import numpy as np

from dovetail.errors import FormatError, first_line


class ArrayHeader(NamedTuple):
    """ArrayHeader is the header of a .npy file: element type, shape, order, and the offset of the first element in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    offset: int

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """The size of the file in bytes: header and elements."""
        return self.offset + self.rows * self.row_bytes


def read_npy_header(stream: IO[bytes], file: str) -> ArrayHeader:
    """Read the header at the position of ``stream``. Raises FormatError [array.file], [file.size]."""
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version in ((2, 0), (3, 0)):
            # Version 3 differs from version 2 only in the encoding of field names; arrays with fields are refused.
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version} of the format is unknown")
        offset = stream.tell()
    except Exception as error:  # a damaged header raises ValueError, SyntaxError, TypeError, OverflowError, struct.error, ...
        message = first_line(error)
        raise FormatError("array.file", f"the file must be a valid .npy file: {message}", file=file) from None
    if min(shape, default=0) < 0 or prod(size for size in shape if size) * max(dtype.itemsize, 1) >= 1 << 63:
        raise FormatError("file.size", f"the array must have less than 2^63 bytes, got {dtype} of shape {shape}", file=file)
    return ArrayHeader(dtype, tuple(shape), bool(is_fortran), offset)
