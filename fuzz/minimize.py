"""Shrink a finding: remove parts of its file as long as the same fault shows."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import onnx
from google.protobuf.message import DecodeError

import stages
from protobuf_mutator import is_list
from seeds import SIDES, File

SECONDS = 60.0
"""Wall-clock time for one finding."""


def minimized(folder: Path) -> None:
    """Replace the file of a finding with a smaller one. Faults that take the whole time of a file are left as they are."""
    if folder.name.startswith("hang"):
        return
    path = next((each for each in folder.glob("model.*") if each.suffix in (".onnx", ".xml", ".dt")), None)
    if path is None:
        return
    side = path.with_suffix(SIDES.get(path.suffix, ".bin"))
    file = File(path.suffix, path.read_bytes(), side.read_bytes() if side.exists() else b"")
    end = time.monotonic() + SECONDS
    key = _outcome(file)
    if key is None:
        return
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        for data in _parts_removed(file):
            shrunk = File(file.suffix, data, file.weights)
            if len(data) < len(file.data) and _outcome(shrunk) == key:
                file, smaller = shrunk, True
                break
            if time.monotonic() > end:
                break
    file.write(folder)


def _outcome(file: File) -> str | None:
    """Return the key of the finding that a file makes in a child process, or the signal that ends the child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        with tempfile.TemporaryDirectory() as folder:
            try:
                stages.run_file(file, Path(folder), Random(0), lambda place, is_result: None)
            except stages.Finding as found:
                os.write(writing, found.key.encode()[:1000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        key = stream.read().decode()
    _, status = os.waitpid(pid, 0)
    number = os.waitstatus_to_exitcode(status)
    return key or (signal.Signals(-number).name if number < 0 else None)


def _parts_removed(file: File) -> Iterator[bytes]:
    """Yield the file without one of its parts, the largest parts first."""
    parts = {".onnx": _without_message, ".xml": _without_element, ".dt": _without_line}
    yield from parts[file.suffix](file.data)


def _without_line(data: bytes) -> Iterator[bytes]:
    lines = data.split(b"\n")
    for index in range(len(lines)):
        yield b"\n".join(lines[:index] + lines[index + 1 :])


def _without_message(data: bytes) -> Iterator[bytes]:
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        return
    for remove in range(_walk(model, -1)):
        copy = onnx.ModelProto.FromString(data)
        _walk(copy, remove)
        yield copy.SerializePartialToString()


def _walk(root: object, remove: int) -> int:
    """Count the removable fields of a message, outer ones first, and remove that of number ``remove``."""
    pending, count = [root], 0
    for message in pending:
        for field, value in message.ListFields():  # type: ignore[attr-defined]
            for place in range(len(value) if is_list(field) else 1):
                if count == remove:
                    if is_list(field):
                        del value[place]
                    else:
                        message.ClearField(field.name)  # type: ignore[attr-defined]
                    return count
                count += 1
            if field.type == field.TYPE_MESSAGE:
                pending.extend(value if is_list(field) else [value])
    return count


def _without_element(data: bytes) -> Iterator[bytes]:
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError):
        return
    parts = [(parent, part) for parent in root.iter() for part in (*parent, *parent.attrib)]
    for parent, part in parts:
        restore = _remove_attribute(parent, part) if isinstance(part, str) else _remove_child(parent, part)
        yield ElementTree.tostring(root)
        restore()


def _remove_child(parent: ElementTree.Element, child: ElementTree.Element) -> Callable[[], None]:
    place = list(parent).index(child)
    parent.remove(child)
    return lambda: parent.insert(place, child)


def _remove_attribute(element: ElementTree.Element, name: str) -> Callable[[], None]:
    old = element.attrib.pop(name)
    return lambda: element.set(name, old)
