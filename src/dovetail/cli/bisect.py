"""Option ``--bisect`` of ``dovetail compare``: search for the first faulty operator of an engine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dovetail.cli.output import narrate, say_json, table
from dovetail.errors import DovetailError, printable
from dovetail.ir.graph import Model

SUFFIXES = {"onnx": ".onnx", "openvino": ".xml", "text": ".dt"}


def bisect_engines(
    loaded: Model,
    engines: Sequence[str],
    reference: str | None,
    inputs: Mapping[str, Any],
    request: Mapping[str, Any],
    *,
    model: str,
    part: str | None,
    as_json: bool,
) -> int:
    """Bisect in each engine except the reference, write the faulty parts, and print commands that reproduce the differences."""
    from dovetail.compare.values.bisection import bisect

    base = reference or ("interpreter" if "interpreter" in engines or request["other"] is not None else engines[0])
    base = "interpreter" if reference is None and len(engines) == 1 else base
    chosen = [name for name in dict.fromkeys(engines) if request["other"] is not None or name != base]
    if not chosen:
        raise click.UsageError(f"--bisect needs an engine other than the reference {base}")
    rows = []
    for engine in chosen:
        found = bisect(loaded, engine=engine, reference=base, inputs=inputs, **request)
        for note in found.notes:
            narrate(f"{engine}: {note}")
        command = ""
        if found.part is not None:
            path = part or f"part{SUFFIXES.get(loaded.format, '.onnx')}"
            if len(chosen) > 1:
                stem, suffix = os.path.splitext(path)
                path = f"{stem}.{engine}{suffix}"
            if part is None:
                path = free_path(path)
            command = _write(found, path, request)
        rows.append((found, command))
    if as_json:
        results = [{**found.as_dict(), "command": command or None} for found, command in rows]
        say_json("bisect", file=model, results=results)
    else:
        for found, command in rows:
            _say(found, command)
    return 1 if any(found.status != "agrees" for found, _ in rows) else 0


def _write(found: Any, path: str, request: Mapping[str, Any]) -> str:
    """Write the faulty part and its inputs to files; return the command that compares the part."""
    from dovetail.cli.arrays import write_arrays

    stem = os.path.splitext(path)[0]
    path = _save(found.part, path)
    arrays = free_path(f"{stem}.npz")
    write_arrays(arrays, found.inputs)
    words = ["dovetail", "compare", path]
    if found.reference_part is not None:
        base = _save(found.reference_part, free_path(f"{stem}.reference{os.path.splitext(path)[1]}"))
        words = ["dovetail", "compare", base, "--with", path]
    engines = found.engine if found.reference_part is not None else f"{found.reference},{found.engine}"
    words += ["--engines", engines, "--reference", found.reference, "--input", arrays]
    if found.is_amplified:
        largest = max((cell.relative for cell in found.values.values()), default=0.0)
        words += ["--tolerance", f"{largest / 2:.3g}"]
    elif request["tolerance"] is not None:
        words += ["--tolerance", f"{request['tolerance']:g}"]
    if request["precision"] is not None:
        words += ["--precision", request["precision"]]
    return shlex.join(words)


def _save(model: Model, path: str) -> str:
    """Save a part, in another format if the format of ``path`` cannot express the part; return the path of the file."""
    from dovetail.formats import save

    stem, suffix = os.path.splitext(path)
    for ending in dict.fromkeys((suffix, ".onnx", ".xml", ".dt")):
        target = path if ending == suffix else free_path(stem + ending)
        try:
            save(model, target)
        except DovetailError as error:
            if ending == ".dt":
                raise
            narrate(f"{target}: [{error.code}] {error.message}")
            continue
        narrate(f"wrote {target}")
        return target
    raise AssertionError(path)


def free_path(path: str) -> str:
    """Return ``path``, with a number before its suffix if a file of that name exists, which must not be overwritten."""
    stem, suffix = os.path.splitext(path)
    number = 0
    while os.path.lexists(path):
        number += 1
        path = f"{stem}.{number}{suffix}"
    return path


def _say(found: Any, command: str) -> None:
    click.echo(str(found))
    rows = [
        [name, f"{cell.absolute:.3g}", f"{cell.relative:.3g}", "-" if cell.ulp is None else f"{cell.ulp:.3g}",
         "agrees" if cell.agrees else cell.why or "differs"]
        for name, cell in found.values.items()
    ]  # fmt: skip
    if rows:
        table(("value", "abs", "rel", "ulp", ""), rows)
    if found.status != "agrees" and not found.reaches_output:
        click.echo("the outputs of the model agree")
    if found.has_more:
        click.echo("operators after it are wrong too: bisect again once it is right")
    if command:
        click.echo(printable(command))
