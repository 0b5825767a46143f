"""The messages of onnx.proto, and what every one is asked: which fields it holds, so that none is dropped unseen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError, FormatError, UnsupportedError

# The fields that are bytes by their nature.
_BYTES = frozenset(("s", "raw_data"))


def present(proto: Any, what: str) -> dict[str, Any]:
    """The fields that ``proto`` holds, by name: a reader takes out what it knows and refuses what is left.

    Raises UnsupportedError [proto.unknown] for fields or enumeration values that the ``onnx`` package does not know,
    FormatError [proto.text] for text that is not UTF-8.
    """
    unknown = _unknown_fields()(proto)
    if len(unknown):
        numbers = sorted({field.field_number for field in unknown})[:8]
        raise UnsupportedError("proto.unknown", f"a {what} holds unknown fields or values, in numbers {numbers}")
    found = {field.name: value for field, value in proto.ListFields()}
    if bytes in map(type, found.values()):
        _refuse_bytes(found, what)
    return found


@cache
def message_classes() -> Any:
    """The module with the message classes of the ``onnx`` package: the very classes that ``import onnx`` gives.

    It is loaded without the rest of the package, which takes longer to import than most models to read.
    """
    found = None if "onnx" in sys.modules else util.find_spec("onnx")
    for folder in (found and found.submodule_search_locations) or ():
        spec = util.spec_from_file_location("onnx.onnx_ml_pb2", Path(folder) / "onnx_ml_pb2.py")
        if spec is not None and spec.loader is not None and Path(folder, "onnx_ml_pb2.py").is_file():
            module = util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    import onnx

    return onnx


@cache
def _unknown_fields() -> Any:
    # Imported at the first message: protobuf is no part of starting up.
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    return UnknownFieldSet


def refuse_rest(fields: Mapping[str, Any], what: str) -> None:
    """Refuse the fields that a reader did not take."""
    if fields:
        raise UnsupportedError("proto.field", f"a {what} holds {', '.join(sorted(fields))}")


def _refuse_bytes(found: Mapping[str, Any], what: str) -> None:
    """protobuf gives a text that is not UTF-8 as bytes."""
    for name, value in found.items():
        if type(value) is bytes and name not in _BYTES:
            raise FormatError("proto.text", f"the {name} of a {what} is not UTF-8")


def text(value: str | bytes, what: str) -> str:
    """A text field. Raises FormatError [proto.text]."""
    if isinstance(value, bytes):
        raise FormatError("proto.text", f"{what} that is not UTF-8")
    return value


def texts(values: Iterable[str], what: str) -> list[str]:
    """A repeated text field. Raises FormatError [proto.text]."""
    found = list(values)
    if bytes in map(type, found):
        raise FormatError("proto.text", f"{what} that are not UTF-8")
    return found


def refuse(error: DovetailError) -> None:
    """Accept no deviation."""
    raise error


def properties(entries: Iterable[Any], code: str, accept: Callable[[DovetailError], None] = refuse) -> dict[str, str]:
    """StringStringEntryProtos as a dict, in order.

    Where a key comes twice, ``accept`` gets a FormatError ``code``; if it returns, the last value stands, as in onnxruntime.
    """
    found: dict[str, str] = {}
    for entry in entries:
        fields = present(entry, "property")
        key = fields.get("key", "")
        if key in found:
            accept(FormatError(code, f"the key {key!r} comes twice"))
        found[key] = fields.get("value", "")
    return found


def put_properties(entries: Any, found: Mapping[str, str]) -> None:
    """Append ``found`` to a repeated StringStringEntryProto."""
    for key, value in found.items():
        entry = entries.add()
        entry.key = key
        entry.value = value
