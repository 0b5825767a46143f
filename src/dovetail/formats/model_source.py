"""Sources that a model is loaded from: a path, bytes, a binary file object, or an ``onnx.ModelProto``."""

from __future__ import annotations

import io
import os
from os import PathLike
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeAlias

from dovetail.errors import FormatError, MissingFileError, UnsupportedError

SUFFIXES = {".onnx": "onnx", ".xml": "openvino", ".dt": "text"}
UTF8_MARK = b"\xef\xbb\xbf"


class Serializable(Protocol):
    """A protobuf message; ``load`` takes an ``onnx.ModelProto``."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


Source: TypeAlias = str | PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Serializable


class ModelSource(NamedTuple):
    """A source whose format is known.

    ``content``: the path to open, or the bytes. ``file``: the path for messages and external data; None where bytes have none.
    """

    content: str | bytes
    file: str | None
    format: str


def format_of(path: str | PathLike[str]) -> str:
    """Return the format that a path's suffix names. Raises UnsupportedError [format.unknown]."""
    format = SUFFIXES.get(Path(path).suffix.lower())
    if format is None:
        raise UnsupportedError("format.unknown", f"{Path(path).name}: a model's file name must end in {' or '.join(SUFFIXES)}")
    return format


def resolve_source(source: Source) -> ModelSource:
    """Return ``source`` with its format: by the suffix of a path, else by the first bytes (``<`` is IR, ``dovetail`` text).

    Raises MissingFileError [file.missing]; UnsupportedError [format.unknown]; FormatError [argument.type] for other objects and
    for text streams.
    """
    if isinstance(source, str | PathLike):
        path = os.fspath(source)
        kind = format_of(path)
        if not os.path.exists(path):
            raise MissingFileError("file.missing", f"the file {path!r} does not exist", file=path)
        return ModelSource(path, path, kind)
    content = bytes_of(source)
    name = getattr(source, "name", None)
    file = name if isinstance(name, str) and os.path.isfile(name) else None
    text = content[:64].removeprefix(UTF8_MARK).lstrip()
    format = "openvino" if text.startswith(b"<") else "text" if text.startswith(b"dovetail ") else "onnx"
    return ModelSource(content, file, format)


def bytes_of(source: object) -> bytes:
    """Return the content of bytes, a binary file object or a message. Raises FormatError [argument.type]."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, io.TextIOBase):
        raise FormatError("argument.type", 'a model file must be opened in binary mode ("rb"), got a text stream')
    for method in ("SerializeToString", "read"):
        if hasattr(source, method):
            content = getattr(source, method)()
            if isinstance(content, bytes):
                return content
            raise FormatError("argument.type", f"{method}() of the source must return bytes, got {type(content).__name__}")
    raise FormatError(
        "argument.type", f"a model is loaded from a path, bytes, a binary file or an onnx.ModelProto, got {type(source).__name__}"
    )
