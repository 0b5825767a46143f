"""Option ``--with`` of ``dovetail compare`` for releases: the outcome of each, and an issue about the first wrong one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli.bisect import SUFFIXES, free_path
from dovetail.cli.output import narrate, say_json, table, write_file
from dovetail.errors import printable
from dovetail.ir.graph import Model

if TYPE_CHECKING:
    from dovetail.compare.referee.judgement import Judgement, ReleaseRow


def releases_in(text: str | None) -> list[str]:
    """Return the releases in the value of ``--with``; none if the value is the path of a file."""
    if text is None or "==" not in text or os.path.exists(text):
        return []
    return [name.strip() for name in text.split(",") if name.strip()]


def judge(
    loaded: Model,
    engines: Sequence[str],
    inputs: Mapping[str, Any],
    part: str | None,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Run a model in releases, write the smallest model, its inputs and an issue, and print the table. Returns the exit code."""
    from dovetail.cli.arrays import write_arrays
    from dovetail.compare.referee.issue_text import issue_text
    from dovetail.compare.referee.judgement import judge_releases
    from dovetail.formats import save

    found = judge_releases(loaded, engines, inputs, on_progress=narrate, **options)
    for note in found.notes:
        narrate(note)
    files: list[str] = []
    if found.smallest is not None:
        path = part or free_path(f"part{SUFFIXES.get(loaded.format, '.onnx')}")
        stem = os.path.splitext(path)[0]
        arrays, text = (f"{stem}{suffix}" if part else free_path(f"{stem}{suffix}") for suffix in (".npz", ".md"))
        save(found.smallest, path)
        write_arrays(arrays, found.inputs)
        narrate(f"wrote {path}")
        narrate(f"wrote {arrays}")
        write_file(text, issue_text(found, path, arrays))
        files = [path, arrays, text]
    if as_json:
        say_json("compare", file=loaded.file, files=files, **found.as_dict())
    else:
        _say(found)
    return 1 if any(row.status != "agrees" for row in found.rows) else 0


def _say(found: Judgement) -> None:
    table(
        ("release", "", "output", "abs", "rel", "reason"), [_row(row) for row in found.rows], f"compared with {found.reference}"
    )
    if found.location is not None and found.location.status != "agrees":
        click.echo(str(found.location))
    elif found.smallest is not None:
        click.echo(
            printable(f"{found.faulty}: {', '.join(found.labels)} {'differ together' if len(found.labels) > 1 else 'differs'}")
        )
    if found.smallest is not None:
        from dovetail.report.printer import show

        click.echo(f"the smallest model, {found.nodes} nodes:")
        click.echo("\n".join(map(printable, show(found.smallest).splitlines())))


def _row(row: ReleaseRow) -> list[Any]:
    if not row.cells:
        return [row.engine, row.status, "", "", "", row.why[:200]]
    name, worst = max(row.cells.items(), key=lambda item: (not item[1].agrees, item[1].relative))
    return [row.engine, row.status, name, f"{worst.absolute:.3g}", f"{worst.relative:.3g}", worst.why]
