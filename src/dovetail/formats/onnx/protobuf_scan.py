"""Takes the elements of large tensors out of the bytes of an ONNX file, before protobuf parses them.

protobuf copies all that it parses, and its Python classes copy the bytes of a field again at each access: reading a model of
100 MB would take 300 MB. The remaining message has the same meaning; each large ``raw_data`` is replaced by a ticket. Source:
protobuf's encoding guide; onnx.proto for the field numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGE = 4096
"""The least size in bytes of a message that is scanned."""
TICKET_BYTES = 24
# Fields on the way to a tensor's elements: message, field number, kind of the field.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph"},
    "tensor": {9: "elements"},
}
# protobuf parses at most 100 nested messages.
_MAX_DEPTH = 100
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Elements = Mapping[bytes, NDArray[np.uint8]]
"""The bytes of large tensors by ticket."""


class Parts(NamedTuple):
    """A message without the elements of its large tensors, and these elements."""

    message: bytes
    elements: Elements


class _NotScanned(Exception):
    """The bytes are not the encoding of a message, or of one that is not scanned."""


def split_elements(model: bytes) -> Parts:
    """Split a serialized ModelProto into parts.

    An invalid one stays whole, so that protobuf reports the error.
    """
    cut = _Splitter(model)
    try:
        cut.message("model", 0, len(model), 0)
    except (_NotScanned, IndexError):
        return Parts(model, {})
    return Parts(b"".join(cut.pieces), cut.elements) if cut.elements else Parts(model, {})


class _Splitter:
    def __init__(self, model: bytes) -> None:
        self.data = memoryview(model)
        self.pieces: list[bytes | memoryview] = []
        self.elements: dict[bytes, NDArray[np.uint8]] = {}
        # Tickets are random per read, so that a file cannot contain one.
        self._series = os.urandom(TICKET_BYTES - 8)

    def message(self, kind: str, start: int, end: int, depth: int) -> int:
        """Take the elements out of one message, and return the size of the rest."""
        if depth > _MAX_DEPTH:
            raise _NotScanned
        data, inside = self.data, _INSIDE[kind]
        offset = copied = start
        size = 0
        while offset < end:
            field = offset
            tag, offset = _read_varint(data, offset)
            wire = tag & 7
            if wire == _BYTES:
                length, offset = _read_varint(data, offset)
                field_kind = inside.get(tag >> 3) if length >= LARGE else None
                if field_kind is not None and offset + length <= end:
                    self.pieces.append(data[copied:field])
                    size += field - copied + self._field(tag, field_kind, offset, length, depth)
                    copied = offset + length
                offset += length
            elif wire == _VARINT:
                _, offset = _read_varint(data, offset)
            elif wire in (_FIXED32, _FIXED64):
                offset += 4 if wire == _FIXED32 else 8
            else:
                raise _NotScanned
        if offset != end:
            raise _NotScanned
        self.pieces.append(data[copied:end])
        return size + end - copied

    def _field(self, tag: int, field_kind: str, start: int, length: int, depth: int) -> int:
        head_index = len(self.pieces)
        self.pieces.append(b"")
        size = (
            self._ticket(start, length)
            if field_kind == "elements"
            else self.message(field_kind, start, start + length, depth + 1)
        )
        head = _encode_varint(tag) + _encode_varint(size)
        self.pieces[head_index] = head
        return len(head) + size

    def _ticket(self, start: int, length: int) -> int:
        ticket = self._series + len(self.elements).to_bytes(8, "little")
        # A copy, because elements in a file are not aligned, and kernels read aligned data faster.
        self.elements[ticket] = np.frombuffer(self.data, np.uint8, length, start).copy()
        self.elements[ticket].setflags(write=False)
        self.pieces.append(ticket)
        return len(ticket)


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a varint, and the offset after it."""
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    for shift in range(7, 64, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _NotScanned


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
