"""Command ``dovetail inspect`` judges a model file that one does not trust."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import LIMIT, STREAM, limits_of_options, progress, say_json, source_of, table, write_file
from dovetail.errors import printable

MAX_ROWS = 100
"""The maximum number of rows of a table; JSON and the page have all."""


@click.command()
@options.model
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Write the verdict as a page (.html).")
@LIMIT
@options.as_json
def inspect(model: str, output: str | None, as_json: bool) -> int:
    """Judge MODEL, a file that one does not trust; nothing of it is run.

    Prints the reasons against it, notes, its costs, files and digests. Exit code 1: there is a reason against the file.
    """
    from dovetail.measure.inspection import inspect as inspect_model
    from dovetail.report.text import count

    if output == STREAM:
        raise click.UsageError("--output needs the name of a file, got -")
    with progress(f"inspecting {model}"):
        found = inspect_model(source_of(model), limits=limits_of_options())
    if output is not None:
        write_file(output, found.html())
    if as_json:
        say_json("inspect", output=output, **{**found.as_dict(), "file": model})
        return 0 if found.is_sound else 1
    for title, items in (("Reasons", found.reasons), ("Notes", found.notes)):
        if items:
            rows = [(item.rule, item.message[:200], item.node or "") for item in items[:MAX_ROWS]]
            table(("rule", "message", "node"), rows, f"{title} ({len(items)})")
            click.echo()
    table(("cost", "amount"), list(found.costs.items()), "Costs")
    click.echo()
    table(("file", "bytes", "SHA-256"), [(row["file"], row["bytes"], row["sha256"]) for row in found.files], "Files")
    click.echo()
    if found.loops:
        table(("node", "trips", "bound"), [(row["node"], row["trips"], row["bound"]) for row in found.loops[:MAX_ROWS]], "Loops")
        click.echo()
    if found.texts:
        rows = [(row["place"], row["text"][:80], row["length"]) for row in found.texts[:MAX_ROWS]]
        table(("place", "text", "characters"), rows, f"Texts ({len(found.texts)})")
        click.echo()
    reasons = count(len(found.reasons), "reason") if found.reasons else "no reason"
    click.echo(f"{printable(model)}: {reasons} against it", err=not found.is_sound)
    return 0 if found.is_sound else 1
