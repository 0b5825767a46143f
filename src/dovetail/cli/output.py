"""What the subcommands share: tables for people, JSON for programs, progress on a terminal, arrays from files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from dovetail.errors import EngineError
from dovetail.graph import Model
from dovetail.show import printable

JSON_VERSION = 1


def say_json(kind: str, **data: Any) -> None:
    """Print one JSON object that names what it is and in which version of its form."""
    click.echo(json.dumps({"dovetail": kind, "version": JSON_VERSION, **data}, default=_plain, allow_nan=True))


def _plain(item: Any) -> Any:
    if isinstance(item, np.generic):
        return item.item()
    return str(item)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Print a table on stdout: drawn on a terminal, aligned columns in a pipe."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(*columns, title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for row in texts:
            drawn.add_row(*(Text(cell) for cell in row))
        Console().print(drawn)
        return
    if title:
        click.echo(title)
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    for row in (list(columns), *texts):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def narrate(text: str) -> None:
    """Say something beside the data: on stderr."""
    click.echo(printable(text), err=True)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show on stderr, and only on a terminal, that something is under way."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(printable(text)):
        yield


def sizes_of(pairs: Sequence[str]) -> dict[str, int]:
    """``--dim name=size`` as a mapping."""
    found: dict[str, int] = {}
    for pair in pairs:
        name, mark, size = pair.rpartition("=")
        if not mark or not size.isdigit():
            raise click.UsageError(f"--dim takes NAME=SIZE, not {pair!r}")
        found[name] = int(size)
    return found


def read_inputs(model: Model, given: Sequence[str], seed: int, dims: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Arrays from ``name=file.npy``, ``file.npz``, and random ones for the rest. Returns them and the names of the random ones."""
    from dovetail.sampling import random_inputs

    found: dict[str, Any] = {}
    for item in given:
        name, mark, path = item.partition("=")
        if not mark:
            name, path = "", item
        loaded = read_array(path)
        if isinstance(loaded, dict):
            found.update(loaded)
        elif name:
            found[name] = loaded
        elif len(model.inputs) == 1:
            found[model.inputs[0].name] = loaded
        else:
            raise click.UsageError(f"say which input {path} is: NAME={path}")
    missing = [value.name for value in model.inputs if value.name not in found]
    if missing:
        random = random_inputs(model, seed=seed, sizes={**_sizes_given(model, found), **sizes_of(dims)})
        found.update({name: random[name] for name in missing})
    return found, missing


def _sizes_given(model: Model, arrays: dict[str, Any]) -> dict[str, int]:
    """What the given arrays say of the open dimensions."""
    from dovetail.dims import name_of

    sizes: dict[str, int] = {}
    for value in model.inputs:
        array = arrays.get(value.name)
        shape = getattr(value.type, "shape", None)
        if array is None or shape is None or len(shape) != array.ndim:
            continue
        for want, size in zip(shape, array.shape, strict=True):
            name = None if isinstance(want, int) else name_of(want)
            if name is not None:
                sizes[name] = size
    return sizes


def read_array(path: str) -> Any:
    """The array of an .npy file or the arrays of an .npz file; nothing in it is executed. Raises EngineError [array.file]."""
    if not Path(path).is_file():
        raise EngineError("array.file", f"there is no file {path!r}")
    try:
        loaded = np.load(path, allow_pickle=False)
        return {name: loaded[name] for name in loaded.files} if hasattr(loaded, "files") else loaded
    except (ValueError, OSError, EOFError) as error:
        raise EngineError("array.file", f"{path} is no .npy or .npz file of plain arrays: {error}") from None


def write_arrays(path: str, arrays: dict[str, Any]) -> None:
    """Write arrays to an .npz file, or a single one to .npy; the file is replaced whole."""
    from dovetail.formats.files import replacing

    with replacing(path) as stream:
        if path.endswith(".npy"):
            if len(arrays) != 1:
                raise click.UsageError(f"{len(arrays)} outputs need an .npz file")
            np.save(stream, next(iter(arrays.values())), allow_pickle=False)
        else:
            np.savez(stream, **{name: _savable(array) for name, array in arrays.items()})


def _savable(array: Any) -> Any:
    """Element types that numpy's files do not have are saved as the type that holds them exactly."""
    array = np.asarray(array)
    if array.dtype.kind == "V" or array.dtype.num > 256:
        return array.astype(np.float32) if array.dtype.kind != "i" else array.astype(np.int8)
    return array.astype(str) if array.dtype == object else array


def differences(rows: Sequence[Any]) -> list[list[str]]:
    """Rows of a comparison as a table has them."""
    return [
        [row.output, f"{row.dtype}{list(row.shape)}", f"{row.absolute:.3g}", f"{row.relative:.3g}", row.why or ("agrees" if row.agrees else "differs")]
        for row in rows
    ]
