"""Constants as bytes of a ``.bin`` file, and back: one element per numpy element on our side, packed on the file's.

Layouts, measured with OpenVINO 2026.4: i4, u4, nf4 and f4e2m1 put the first element in the low nibble; u2 in the low
bits; u1 in the highest bit. u3 and u6 are split: three bytes hold 8 (u3) or 4 (u6) elements, the low 2 (or 4) bits of
each in the first two bytes and the high bits in the third, first element in the highest bits. Strings: int32 count,
int32 offsets (count + 1, from 0), then the characters. Everything is little-endian.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dovetail.dtypes import DType
from dovetail.errors import FormatError, UnsupportedError

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]

# bits of an element: how many elements lie in one group of three bytes, and the bits kept in the first two
_SPLIT = {3: (8, 2), 6: (4, 4)}


def size_of(dtype: DType, count: int) -> int | None:
    """How many bytes ``count`` elements take; None for strings, whose data says it."""
    if dtype.name == "string":
        return None
    if dtype.bits in _SPLIT:
        return -(-count // _SPLIT[dtype.bits][0]) * 3
    return -(-count * dtype.bits // 8)


def unpack(data: Bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The elements that ``data`` (exactly as long as size_of says) holds, read-only, without a copy for whole-byte types."""
    count = 1
    for size in shape:
        count *= size
    if dtype.name == "string":
        array = _strings(data, count)
    elif dtype.name == "boolean":
        array = data.view(np.bool_) if not data.size or data.max() <= 1 else data != 0
    elif dtype.bits % 8 == 0:
        array = np.frombuffer(data, dtype.numpy, count) if count else np.empty(0, dtype.numpy)
    else:
        array = _elements(_codes(data, dtype.bits, count), dtype)
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def pack(data: Any, dtype: DType) -> bytes | memoryview:
    """The bytes that unpack turns back into ``data``. Raises UnsupportedError [ir.dtype] for a type that IR has not."""
    if dtype.openvino is None:
        raise UnsupportedError("ir.dtype", f"OpenVINO IR has no element type {dtype}")
    array = np.asarray(data)
    if dtype.name == "string":
        return _from_strings(array)
    if array.dtype != dtype.numpy:
        array = array.astype(dtype.numpy)
    array = np.ascontiguousarray(array).reshape(-1)
    if dtype.bits % 8 == 0:
        return array.view(np.uint8).data if array.size else b""
    return _from_codes(array.view(np.uint8) & np.uint8((1 << dtype.bits) - 1), dtype.bits).tobytes()


def _codes(data: Bytes, bits: int, count: int) -> Bytes:
    """One code per element."""
    if bits == 1:
        return np.unpackbits(data, count=count)
    if bits in _SPLIT:
        each, low = _SPLIT[bits]
        groups = data.reshape(-1, 3)
        lows = _fields(groups[:, :2], low).reshape(len(groups), each)
        highs = _fields(groups[:, 2:], bits - low).reshape(len(groups), each)
        return (lows | highs << np.uint8(low)).reshape(-1)[:count]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (data[:, None] >> shifts & np.uint8((1 << bits) - 1)).reshape(-1)[:count]


def _fields(data: Bytes, bits: int) -> Bytes:
    """The ``bits`` wide fields of each byte, highest first, on a new last axis."""
    return data[..., None] >> np.arange(8 - bits, -1, -bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)


def _elements(codes: Bytes, dtype: DType) -> Array:
    if dtype.kind == "int":
        spare = np.int8(8 - dtype.bits)
        return (codes.view(np.int8) << spare >> spare).astype(dtype.numpy)
    if dtype.numpy == np.dtype(ml_dtypes.float4_e2m1fn):
        return codes.view(dtype.numpy)
    return codes if dtype.numpy == np.uint8 else codes.astype(dtype.numpy)


def _from_codes(codes: Bytes, bits: int) -> Bytes:
    if bits == 1:
        return np.packbits(codes)
    if bits in _SPLIT:
        each, low = _SPLIT[bits]
        groups = _padded(codes, each)
        lows = _joined((groups & np.uint8((1 << low) - 1)).reshape(len(groups), 2, each // 2), low)
        highs = _joined((groups >> np.uint8(low)).reshape(len(groups), 1, each), bits - low)
        return np.concatenate([lows, highs], axis=1).reshape(-1)
    parts = _padded(codes, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    joined: Bytes = np.bitwise_or.reduce(parts, axis=1)
    return joined


def _padded(codes: Bytes, each: int) -> Bytes:
    return np.pad(codes, (0, -len(codes) % each)).reshape(-1, each)


def _joined(fields: Bytes, bits: int) -> Bytes:
    joined: Bytes = np.bitwise_or.reduce(fields << np.arange(8 - bits, -1, -bits, dtype=np.uint8), axis=-1)
    return joined


def _strings(data: Bytes, count: int) -> Array:
    """Raises FormatError [ir.constant-strings] where the header does not fit the bytes or the shape."""
    header = 4 * (count + 2)
    if data.size < header:
        raise FormatError("ir.constant-strings", f"{data.size} bytes cannot hold {count} strings")
    numbers = np.frombuffer(data[:header], "<i4")
    ends = numbers[1:]
    if int(numbers[0]) != count or ends[0] != 0 or np.any(ends[1:] < ends[:-1]) or header + int(ends[-1]) != data.size:
        raise FormatError("ir.constant-strings", f"the string table does not describe {count} strings in {data.size} bytes")
    text = data[header:].tobytes()
    array = np.empty(count, object)
    try:
        array[:] = [text[start:end].decode() for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    except UnicodeDecodeError:
        raise FormatError("ir.constant-strings", "a string is not UTF-8") from None
    return array


def _from_strings(array: Array) -> bytes:
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1).tolist()]
    ends = np.cumsum([0, *map(len, texts)])
    if ends[-1] > 2**31 - 1:
        raise UnsupportedError("ir.constant-strings", f"{ends[-1]} characters are more than an IR string constant holds")
    return np.array([len(texts), *ends], "<i4").tobytes() + b"".join(texts)
