"""Extract the elements of large tensors from an ONNX file before protobuf parses it, and insert them into a written file.

protobuf copies all bytes that it parses, and its Python classes copy the bytes of a field again at each access. Reading or
writing a model of 100 MB would take 300 MB. Each large ``raw_data`` is therefore replaced by a ticket, a short unique byte
string; the message is otherwise unchanged. Source: protobuf's encoding guide; onnx.proto for the field numbers.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

LARGE = 4096
"""The minimum size, in bytes, of a field that is scanned or replaced by a ticket."""
TICKET_BYTES = 24
# The fields that lead to a tensor's elements: for each message, the field numbers and the kinds of their content.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph"},
    "tensor": {9: "elements"},
}
# Repeated numbers and strings, whose items are one field each. protobuf writes fields in the order of their numbers, and
# no scanned field follows these. The scan of a message therefore stops at them; if elements follow nevertheless, they are only
# copied once more.
_LISTS: dict[str, frozenset[int]] = {"attribute": frozenset((7, 8, 9)), "tensor": frozenset((4, 5, 6, 7, 10, 11))}
# protobuf parses at most 100 nested messages.
_MAX_DEPTH = 100
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Elements = Mapping[bytes, NDArray[np.uint8]]
"""Maps tickets to the bytes of the elements of large tensors."""


Piece: TypeAlias = "bytes | memoryview | NDArray[np.uint8]"


class Parts(NamedTuple):
    """Parts is a message in which tickets replace the elements of large tensors, with a map from tickets to elements."""

    message: bytes
    elements: Elements


class _NotScanned(Exception):
    """_NotScanned reports bytes that are no valid message, or a message that the scan does not support."""


def split_elements(model: bytes | memoryview) -> Parts:
    """Split a serialized ModelProto into a message with tickets and the elements of its large tensors.

    The elements are copies if ``model`` is bytes, and views if it is a view of a mapped file. An invalid model is returned
    unchanged, so that protobuf reports the error.
    """
    splitter = _Splitter(model, is_copied=isinstance(model, bytes))
    try:
        splitter.message("model", 0, len(model), 0)
    except (_NotScanned, IndexError):
        return Parts(bytes(model), {})
    return Parts(bytes_of(splitter.pieces), splitter.elements) if splitter.elements else Parts(bytes(model), {})


def join_elements(message: bytes, elements: Elements) -> list[Piece]:
    """Return the pieces of a serialized ModelProto with the elements in place of their tickets; inverse of split_elements."""
    joiner = _Joiner(message, elements)
    joiner.message("model", 0, len(message), 0)
    return joiner.pieces


def bytes_of(pieces: list[Piece]) -> bytes:
    """Return the pieces of a message as one bytes object."""
    buffers: list[Any] = pieces
    return b"".join(buffers)


class Tickets:
    """Tickets holds elements of at least ``threshold`` bytes by ticket; tickets are random, so that no model contains one."""

    def __init__(self, threshold: int = LARGE) -> None:
        self.threshold = threshold
        self.elements: dict[bytes, NDArray[np.uint8]] = {}
        self.series = os.urandom(TICKET_BYTES - 8)

    def add(self, data: NDArray[np.uint8]) -> bytes:
        """Store ``data``, and return its ticket."""
        ticket = self.series + len(self.elements).to_bytes(8, "little")
        self.elements[ticket] = data
        return ticket


class _Rewriter(ABC):
    """_Rewriter copies a message with some fields replaced, and updates the lengths of the enclosing fields."""

    max_depth = _MAX_DEPTH

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)
        self.pieces: list[Piece] = []

    @abstractmethod
    def is_changed(self, start: int, length: int) -> bool:
        """Return whether the field content at [start, start + length) is replaced or may contain a replaced field."""

    @abstractmethod
    def replace(self, start: int, length: int) -> int:
        """Append the replacement of a tensor's elements at [start, start + length), and return its size in bytes."""

    def message(self, kind: str, start: int, end: int, depth: int) -> int:
        """Append the message at [start, end) with its replacements, and return its new size in bytes."""
        if depth > self.max_depth:
            raise _NotScanned
        data, inside, lists = self.data, _INSIDE[kind], _LISTS.get(kind, ())
        offset = copied = start
        size = 0
        while offset < end:
            field = offset
            tag, offset = _read_varint(data, offset)
            wire = tag & 7
            if lists and tag >> 3 in lists:
                offset = end
            elif wire == _BYTES:
                length, offset = _read_varint(data, offset)
                field_kind = inside.get(tag >> 3)
                if field_kind is not None and offset + length <= end and self.is_changed(offset, length):
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
            self.replace(start, length)
            if field_kind == "elements"
            else self.message(field_kind, start, start + length, depth + 1)
        )
        head = encode_varint(tag) + encode_varint(size)
        self.pieces[head_index] = head
        return len(head) + size


class _Splitter(_Rewriter):
    """_Splitter replaces the elements of large tensors by tickets."""

    def __init__(self, data: bytes | memoryview, is_copied: bool) -> None:
        super().__init__(data)
        self._is_copied = is_copied
        self._tickets = Tickets()

    @property
    def elements(self) -> Elements:
        return self._tickets.elements

    def is_changed(self, start: int, length: int) -> bool:
        return length >= LARGE

    def replace(self, start: int, length: int) -> int:
        elements = np.frombuffer(self.data, np.uint8, length, start)
        if self._is_copied:
            # Elements within a file are not aligned; kernels read aligned copies faster.
            elements = elements.copy()
            elements.setflags(write=False)
        self.pieces.append(self._tickets.add(elements))
        return TICKET_BYTES


class _Joiner(_Rewriter):
    """_Joiner replaces tickets by the elements of their tensors."""

    max_depth = 2 * _MAX_DEPTH

    def __init__(self, message: bytes, elements: Elements) -> None:
        super().__init__(message)
        self._elements = elements
        self._offsets = sorted(message.index(ticket) for ticket in elements)

    def is_changed(self, start: int, length: int) -> bool:
        index = bisect_left(self._offsets, start)
        return index < len(self._offsets) and self._offsets[index] < start + length

    def replace(self, start: int, length: int) -> int:
        elements = self._elements[self.data[start : start + length].tobytes()]
        self.pieces.append(elements)
        return int(elements.size)


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the varint at offset ``at``, and the offset after the varint."""
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


def encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
