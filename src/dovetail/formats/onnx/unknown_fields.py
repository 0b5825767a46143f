"""What every reader of protobuf passes over: fields that it does not know, and text without a meaning that is not UTF-8.

Unknown fields are taken out with the place they lie at, and written back there. A place is a path of field names, and for a
repeated field the name of the entry where it has one (a node's is its first output), so that it is found again in a graph
whose order has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dovetail.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from onnx import ModelProto

Place = tuple[tuple[str, str | int], ...]
Unknown = tuple[Place, bytes]
"""The place of a message, and the encoding of its unknown fields."""

# By message: text that is for people only.
_REMARKS = {
    "ModelProto": ("doc_string", "producer_name", "producer_version"),
    "GraphProto": ("doc_string", "name"),
    "NodeProto": ("doc_string", "name"),
    "AttributeProto": ("doc_string",),
    "TensorProto": ("doc_string",),
    "ValueInfoProto": ("doc_string",),
    "FunctionProto": ("doc_string",),
}
_KEYS = {
    "AttributeProto": "name", "TensorProto": "name", "ValueInfoProto": "name", "FunctionProto": "name",
    "OperatorSetIdProto": "domain", "StringStringEntryProto": "key",
}  # fmt: skip
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)


def mend(proto: ModelProto, note: Callable[[FormatError | UnsupportedError, str], None]) -> list[Unknown]:
    """Take the unknown fields out of ``proto``, and make its remarks UTF-8. ``note`` gets each deviation and its place.

    Raises UnsupportedError [proto.unknown] for a known field that holds an unknown value: that is no remark.
    """
    found: list[Unknown] = []
    for place, message in _messages(proto, ()):
        if encoded := _taken(message):
            found.append((place, encoded))
            what = _text(place)
            note(UnsupportedError("proto.unknown", f"unknown fields in {what}, kept as they are"), what)
        for name in _REMARKS.get(message.DESCRIPTOR.name, ()):
            value: Any = getattr(message, name)
            if isinstance(value, bytes):
                setattr(message, name, value.decode("utf-8", "backslashreplace"))
                note(FormatError("proto.text", f"the {name} of {_text(place)} is not UTF-8"), _text(place))
    proto.DiscardUnknownFields()
    return found


def put_back(proto: ModelProto, unknown: list[Unknown]) -> None:
    """Give messages their unknown fields back; those of messages that are there no more go with them."""
    wanted = dict(unknown)
    for place, message in list(_messages(proto, ())) if wanted else ():
        if place in wanted:
            message.MergeFromString(wanted[place])


def _messages(message: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    yield place, message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if not _is_repeated(field):
            yield from _messages(value, (*place, (field.name, "")))
            continue
        seen: set[str | int] = set()
        for index, item in enumerate(value):
            name = _key(item)
            key: str | int = index if name == "" or name in seen else name
            seen.add(key)
            yield from _messages(item, (*place, (field.name, key)))


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _key(message: Any) -> str:
    kind = message.DESCRIPTOR.name
    found = next(filter(None, message.output), "") if kind == "NodeProto" else getattr(message, _KEYS.get(kind, ""), "")
    return found if isinstance(found, str) else ""


def _text(place: Place) -> str:
    return "/".join(f"{name} {key!r}" if key != "" else name for name, key in place) or "the model"


def _taken(message: Any) -> bytes:
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    fields = UnknownFieldSet(message)
    if not len(fields):
        return b""
    known = sorted({field.field_number for field in fields} & set(message.DESCRIPTOR.fields_by_number))
    if known:
        names = ", ".join(message.DESCRIPTOR.fields_by_number[number].name for number in known)
        raise UnsupportedError("proto.unknown", f"a {message.DESCRIPTOR.name} holds an unknown value of {names}")
    return b"".join(map(_encoded, fields))


def _encoded(field: Any) -> bytes:
    """One unknown field as it lay in the file. Source: protobuf's encoding guide."""
    head = _varint(field.field_number << 3 | field.wire_type)
    if field.wire_type == _VARINT:
        return head + _varint(field.data)
    if field.wire_type in (_FIXED64, _FIXED32):
        return head + int(field.data).to_bytes(8 if field.wire_type == _FIXED64 else 4, "little")
    if field.wire_type == _BYTES:
        return head + _varint(len(field.data)) + bytes(field.data)
    return head + b"".join(map(_encoded, field.data)) + _varint(field.field_number << 3 | _GROUP_END)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
