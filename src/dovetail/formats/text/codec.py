"""Read and write files of the text form, and their weights files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import BinaryIO

from dovetail.errors import DovetailError, FormatError
from dovetail.formats.text.grammar import VERSION, Line
from dovetail.formats.text.reader import TextReader
from dovetail.formats.text.writer import TextWriter, first_line
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model
from dovetail.storage import atomic_write, file_pair, files, safetensors_file
from dovetail.storage.deviations import Deviations
from dovetail.storage.safetensors_file import SafetensorsFile

LIMIT = 1 << 30
"""The maximum size of a text in bytes."""
MAGIC = b"dovetail "
"""The first bytes of a text."""
Weights = Mapping[str, tuple[DType, tuple[int, ...], files.Bytes]]
_is_digest = re.compile("[0-9a-f]{48}").fullmatch


def load(source: files.StrPath | bytes, file: str | None, deviations: Deviations | None) -> Model:
    """Load a model from a path or from bytes, with its types inferred.

    Raises FormatError [text.version], [text.encoding], [text.syntax], [text.name] with every fault, and the errors of
    operator rules and of :mod:`dovetail.storage.files`.
    """

    def read_once(data: files.Content, pair: file_pair.Pair, deviations: Deviations | None) -> Model:
        return _read(bytes(data), file, pair)

    try:
        if isinstance(source, bytes):
            return read_once(source, file_pair.Pair(file), deviations)
        return file_pair.read(source, LIMIT, read_once, deviations)
    except DovetailError as error:
        raise error.at(file=file) from None


def _read(data: bytes, file: str | None, pair: file_pair.Pair) -> Model:
    if len(data) > LIMIT:
        raise FormatError("file.size", f"a text must have at most {LIMIT} bytes, got {len(data)}", file=file)
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise FormatError("text.encoding", f"the text must be UTF-8: {error}", file=file) from None
    head = Line(lines[0], 1)
    if head.name() != "dovetail" or head.take().text != str(VERSION):
        raise FormatError("text.version", f"the first line must begin with 'dovetail {VERSION}'", file=file)
    weights: Weights = {}
    if head.accept("weights"):
        location = head.name()
        pair.record = head.name()
        if not _is_digest(pair.record):
            raise FormatError("text.version", "the digest of the weights file must have 48 hexadecimal digits", file=file)
        weights = _read_weights(location, file, pair)
    head.expect_end()
    try:
        return TextReader(lines, weights, file).model()
    except RecursionError:
        raise FormatError("text.syntax", "the text must be nested less deeply (recursion limit)", file=file) from None


def _read_weights(location: str, file: str | None, pair: file_pair.Pair) -> Weights:
    files.check_location(location, file=file)
    if file is None:
        raise FormatError("data.external", f"a text with a weights file ({location!r}) must be loaded from a path")
    descriptor = files.open_beside(file, location)
    try:
        content = files.contents(descriptor)
        pair.check(location, content)
        return safetensors_file.read_tensors(descriptor, os.path.join(os.path.dirname(file), location), content)
    finally:
        os.close(descriptor)


def save(model: Model, path: files.StrPath, *, weights: files.StrPath | None = None) -> None:
    """Write ``model`` to a file, and its larger tensors to ``weights``, by default ``<stem>.safetensors``.

    Both files are replaced, or neither. ``weights`` must be in the folder of the file or below. Equal models give equal bytes.
    Raises UnsupportedError [op.unsayable] with every value that the text form cannot express.
    """
    file = os.fspath(path)
    side = os.path.splitext(file)[0] + safetensors_file.SUFFIX if weights is None else os.fspath(weights)
    container = SafetensorsFile()
    lines = TextWriter(container).lines(model)
    if not container.size:
        with atomic_write.replace_file(file) as stream:
            stream.write(_encode(first_line(None, ""), lines))
        return
    location = os.path.relpath(side, os.path.dirname(file) or os.curdir).replace(os.sep, "/")
    file_pair.write(
        file, side, container, lambda digest: _encode(first_line(location, digest), lines), is_named=weights is not None
    )


def write(model: Model, stream: BinaryIO, weights: files.StrPath | None = None, *, beside: files.StrPath | None = None) -> bool:
    """Write ``model`` to a stream, and its larger tensors to the file ``weights``; return whether there are such tensors.

    The text refers to ``weights`` by its file name, without a folder. ``beside``: the path of the stream's file, if the caller
    derived the name of ``weights`` from it. Raises UnsupportedError [op.unsayable]; FormatError [argument.conflict] for larger
    tensors without ``weights``; and FormatError [path.foreign].
    """
    container = SafetensorsFile()
    lines = TextWriter(container).lines(model)
    if not container.size:
        stream.write(_encode(first_line(None, ""), lines))
        return False
    if weights is None:
        message = f"tensors of {container.size} bytes need a weights file: name the file with --weights"
        raise FormatError("argument.conflict", message)
    if beside is not None:
        file_pair.refuse_foreign(os.fspath(weights), os.fspath(beside))
    container.lay_out()
    with atomic_write.replace_file(weights) as side, container.hashing() as digest_of:
        container.copy_to(side)
        digest = digest_of()
        text = _encode(first_line(os.path.basename(weights), digest), lines)
        file_pair.sign(side, container, digest, text)
    stream.write(text)
    return True


def _encode(first: str, lines: list[str]) -> bytes:
    return "\n".join([first, *lines, ""]).encode()
