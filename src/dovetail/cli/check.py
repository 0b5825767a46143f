"""Command ``dovetail check`` reports the faults of a model."""

from __future__ import annotations

import os

import click

from dovetail.cli import options
from dovetail.cli.output import LIMIT, STREAM, fault, limits_of_options, progress, say_json, source_of
from dovetail.errors import printable
from dovetail.ir.limits import counting


@click.command()
@options.model
@LIMIT
@options.as_json
def check(model: str, as_json: bool) -> int:
    """Report every independent fault of MODEL in one pass, each with code, node and file. Exit code 1: there is a fault."""
    from dovetail.formats import examine, load
    from dovetail.formats.model_source import format_of
    from dovetail.passes.check import check_graph

    with progress(f"checking {model}"):
        if model != STREAM:
            format_of(model)
            if not os.path.exists(model):
                load(model)
        loaded, faults, warnings = examine(source_of(model), limits_of_options())
        if loaded is not None:
            with counting(loaded.limits):
                found = check_graph(loaded, is_own=True)
            warnings += [item for item in found if item.severity == "warning"]
            faults = list(dict.fromkeys([*faults, *(item for item in found if item.severity != "warning")]))
    if as_json:
        say_json(
            "check",
            file=model,
            sound=not faults,
            faults=[fault(item) for item in faults],
            warnings=[fault(item) for item in warnings],
        )
        return 1 if faults else 0
    for item in faults:
        click.echo(str(item))
    for item in warnings:
        click.echo(f"warning: {item}")
    count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}" if faults else "sound"
    click.echo(f"{printable(model)}: {count}", err=bool(faults))
    return 1 if faults else 0
