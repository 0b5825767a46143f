"""The law of the text form: a model that is saved and loaded writes the same bytes again, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dovetail
from dovetail import DovetailError

SUFFIXES = (".dt", ".onnx", ".xml")
Content = dict[str, bytes] | tuple[str, str]


def written(model: dovetail.Model, folder: Path, suffix: str) -> Content:
    """Save a model as ``m`` and a suffix; return the files, or the error."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    try:
        dovetail.save(model, folder / f"m{suffix}")
    except DovetailError as error:
        return type(error).__name__, error.code
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def differences_of(source: Any, folder: Path) -> list[str]:
    """Return what differs of one model. Raises DovetailError where it does not load."""
    model = dovetail.load(source)
    differences = []
    for suffix in SUFFIXES:
        first = written(model, folder / "first", suffix)
        if isinstance(first, tuple):
            if suffix == ".dt":
                differences.append(f"no text: {first[1]}")
            continue
        again = written(dovetail.load(folder / "first" / f"m{suffix}"), folder / "again", suffix)
        if again != first:
            differences.append(f"saved, loaded and saved{suffix} differs{_where(first, again)}")
    if not differences:
        written(model, folder / "text", ".dt")
        read = dovetail.load(folder / "text" / "m.dt")
        for suffix in (".onnx", ".xml"):
            ours, theirs = (written(item, folder / "out", suffix) for item in (model, read))
            if ours != theirs:
                differences.append(f"{suffix} of the text differs{_where(ours, theirs)}")
    return differences


def _where(first: Content, second: Content) -> str:
    if isinstance(first, tuple) or isinstance(second, tuple):
        return f": {first if isinstance(first, tuple) else 'a file'}, {second if isinstance(second, tuple) else 'a file'}"
    for name, data in first.items():
        other = second.get(name, b"")
        if data != other:
            at = next((index for index, pair in enumerate(zip(data, other, strict=False)) if pair[0] != pair[1]), 0)
            return f" in {name} at byte {at}: {data[max(at - 40, 0) : at + 40]!r}, {other[max(at - 40, 0) : at + 40]!r}"
    return ""
