"""Convert constants of IR between the bytes of a ``.bin`` file and numpy arrays or PackedElements.

Layouts, measured with OpenVINO 2026.4:

- i4, u4, nf4, f4e2m1: the first element is in the low nibble.
- u2: the first element is in the low bits.
- u1: the first element is in the highest bit.
- u3, u6: three bytes hold 8 (u3) or 4 (u6) elements. The low 2 (u3) or 4 (u6) bits of each element are in the first two bytes,
the high bits in the third byte; the first element is in the highest bits.
- Strings: the int32 count, count + 1 int32 offsets from 0 on, then the characters.

All numbers are little-endian.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import FormatError, UnsupportedError
from dovetail.ir.dtypes import DType
from dovetail.ir.packed_elements import PackedElements
from dovetail.storage.mapped_files import release_pages

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]

# Bits per element -> (elements per group of three bytes, number of low bits of each element in the first two bytes).
_SPLIT = {3: (8, 2), 6: (4, 4)}


def size_of(dtype: DType, count: int) -> int | None:
    """Return the size of ``count`` elements in bytes; None for strings, whose size depends on the data."""
    if dtype.name == "string":
        return None
    if dtype.bits in _SPLIT:
        return -(-count // _SPLIT[dtype.bits][0]) * 3
    return -(-count * dtype.bits // 8)


def read(data: Bytes, dtype: DType, shape: tuple[int, ...]) -> Array | PackedElements:
    """Return the elements in ``data``, whose size must be that of size_of. Raises ValueError for a shape that numpy lacks.

    An array is read-only. It is a view of ``data`` if the elements have whole bytes.
    """
    if dtype.bits in (2, 4):
        return PackedElements(data, dtype, shape, release_pages)
    count = 1
    for size in shape:
        count *= size
    if dtype.name == "string":
        array = _decode_strings(data, count)
    elif dtype.name == "boolean":
        array = data.view(np.bool_) if not data.size or data.max() <= 1 else data != 0
    elif dtype.bits % 8 == 0:
        array = np.frombuffer(data, dtype.numpy, count) if count else np.empty(0, dtype.numpy)
    else:
        array = decode(_unpack_codes(data, dtype.bits, count), dtype)
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def pack(data: Array | PackedElements, dtype: DType) -> bytes | memoryview:
    """Pack elements into bytes, the inverse of read. Raises UnsupportedError [dtype.unknown] for a type that IR lacks."""
    if dtype.openvino is None:
        raise UnsupportedError("dtype.unknown", f"the element type must be one of OpenVINO IR, got {dtype}")
    if isinstance(data, PackedElements):
        return data.to_bytes().data
    array = np.asarray(data)
    if dtype.name == "string":
        return _encode_strings(array)
    if array.dtype != dtype.numpy:
        array = array.astype(dtype.numpy)
    array = np.ascontiguousarray(array).reshape(-1)
    if dtype.bits % 8 == 0:
        return array.view(np.uint8).data if array.size else b""
    return _pack_codes(array.view(np.uint8) & np.uint8((1 << dtype.bits) - 1), dtype.bits).tobytes()


def _unpack_codes(data: Bytes, bits: int, count: int) -> Bytes:
    """Unpack codes of 1, 3 or 6 bits to one code per byte."""
    if bits == 1:
        return np.unpackbits(data, count=count)
    group_size, low = _SPLIT[bits]
    groups = data.reshape(-1, 3)
    lows = _fields(groups[:, :2], low).reshape(len(groups), group_size)
    highs = _fields(groups[:, 2:], bits - low).reshape(len(groups), group_size)
    return (lows | highs << np.uint8(low)).reshape(-1)[:count]


def _fields(data: Bytes, bits: int) -> Bytes:
    """Split each byte into fields of ``bits`` bits along a new last axis, highest bits first."""
    return data[..., None] >> np.arange(8 - bits, -1, -bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)


def decode(codes: Bytes, dtype: DType) -> Array:
    """Return codes as elements of ``dtype``. The types of ml_dtypes store a code in the low bits of a byte."""
    return codes if dtype.numpy == np.uint8 else codes.view(dtype.numpy)


def _pack_codes(codes: Bytes, bits: int) -> Bytes:
    if bits == 1:
        return np.packbits(codes)
    if bits in _SPLIT:
        group_size, low = _SPLIT[bits]
        groups = _pad_to_groups(codes, group_size)
        lows = _join_fields((groups & np.uint8((1 << low) - 1)).reshape(len(groups), 2, group_size // 2), low)
        highs = _join_fields((groups >> np.uint8(low)).reshape(len(groups), 1, group_size), bits - low)
        return np.concatenate([lows, highs], axis=1).reshape(-1)
    parts = _pad_to_groups(codes, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    packed_bits: Bytes = np.bitwise_or.reduce(parts, axis=1)
    return packed_bits


def _pad_to_groups(codes: Bytes, group_size: int) -> Bytes:
    return np.pad(codes, (0, -len(codes) % group_size)).reshape(-1, group_size)


def _join_fields(fields: Bytes, bits: int) -> Bytes:
    joined: Bytes = np.bitwise_or.reduce(fields << np.arange(8 - bits, -1, -bits, dtype=np.uint8), axis=-1)
    return joined


def _decode_strings(data: Bytes, count: int) -> Array:
    """Decode ``count`` strings. Raises FormatError [ir.constant] if the header does not match ``count`` or the bytes."""
    header = 4 * (count + 2)
    if data.size < header:
        raise FormatError("ir.constant", f"{count} strings need at least {header} bytes, got {data.size}")
    numbers = np.frombuffer(data[:header], "<i4")
    ends = numbers[1:]
    if int(numbers[0]) != count or ends[0] != 0 or np.any(ends[1:] < ends[:-1]) or header + int(ends[-1]) != data.size:
        raise FormatError("ir.constant", f"the string table must describe {count} strings in {data.size} bytes")
    text = data[header:].tobytes()
    array = np.empty(count, object)
    try:
        array[:] = [text[start:end].decode() for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    except UnicodeDecodeError:
        raise FormatError("ir.constant", "a string must be UTF-8") from None
    return array


def _encode_strings(array: Array) -> bytes:
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1).tolist()]
    ends = np.cumsum([0, *map(len, texts)])
    if ends[-1] > 2**31 - 1:
        raise UnsupportedError("ir.constant", f"a string constant must have at most 2**31 - 1 bytes, got {ends[-1]}")
    return np.array([len(texts), *ends], "<i4").tobytes() + b"".join(texts)
