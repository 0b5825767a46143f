"""The bytes of an ONNX file with the elements of its large tensors taken out, before protobuf sees them.

protobuf copies all it parses, and its Python classes copy the bytes of a field once more for whoever asks: a model of 100 MB
would take 300 to be read. What is left here is a message of the same meaning in which each large ``raw_data`` is a ticket.
Source: protobuf's encoding guide; onnx.proto for the field numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGE = 4096
"""Messages of fewer bytes are left as they are."""
TICKET_BYTES = 24
# The fields that lead to a tensor's elements: message, field number, and what the field holds.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph"},
    "tensor": {9: "elements"},
}
# protobuf parses 100 messages deep.
_MAX_DEPTH = 100
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Elements = Mapping[bytes, NDArray[np.uint8]]
"""The bytes of large tensors by ticket."""


class Parts(NamedTuple):
    """A message without the elements of its large tensors, and those."""

    message: bytes
    elements: Elements


class _Odd(Exception):
    """Not the encoding of a message, or not one that is gone into here."""


def parted(model: bytes) -> Parts:
    """A serialised ModelProto in parts; whole where it is not sound, for protobuf to say what is wrong with it."""
    cut = _Cut(model)
    try:
        cut.message("model", 0, len(model), 0)
    except (_Odd, IndexError):
        return Parts(model, {})
    return Parts(b"".join(cut.pieces), cut.elements) if cut.elements else Parts(model, {})


class _Cut:
    def __init__(self, model: bytes) -> None:
        self.data = memoryview(model)
        self.pieces: list[bytes | memoryview] = []
        self.elements: dict[bytes, NDArray[np.uint8]] = {}
        # Nobody can put a ticket into a file: it is drawn when the file is read.
        self._series = os.urandom(TICKET_BYTES - 8)

    def message(self, kind: str, start: int, end: int, depth: int) -> int:
        """Take the elements out of one message. Returns how many bytes are left of it."""
        if depth > _MAX_DEPTH:
            raise _Odd
        data, inside = self.data, _INSIDE[kind]
        at = kept = start
        left = 0
        while at < end:
            field = at
            tag, at = _number(data, at)
            wire = tag & 7
            if wire == _BYTES:
                length, at = _number(data, at)
                what = inside.get(tag >> 3) if length >= LARGE else None
                if what is not None and at + length <= end:
                    self.pieces.append(data[kept:field])
                    left += field - kept + self._field(tag, what, at, length, depth)
                    kept = at + length
                at += length
            elif wire == _VARINT:
                _, at = _number(data, at)
            elif wire in (_FIXED32, _FIXED64):
                at += 4 if wire == _FIXED32 else 8
            else:
                raise _Odd
        if at != end:
            raise _Odd
        self.pieces.append(data[kept:end])
        return left + end - kept

    def _field(self, tag: int, what: str, start: int, length: int, depth: int) -> int:
        place = len(self.pieces)
        self.pieces.append(b"")
        left = self._ticket(start, length) if what == "elements" else self.message(what, start, start + length, depth + 1)
        head = _encoded(tag) + _encoded(left)
        self.pieces[place] = head
        return len(head) + left

    def _ticket(self, start: int, length: int) -> int:
        ticket = self._series + len(self.elements).to_bytes(8, "little")
        # A copy: in a file elements lie at any place, and kernels read them faster where they are aligned.
        self.elements[ticket] = np.frombuffer(self.data, np.uint8, length, start).copy()
        self.elements[ticket].setflags(write=False)
        self.pieces.append(ticket)
        return len(ticket)


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
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
    raise _Odd


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
