"""dovetail check."""

from __future__ import annotations

import dataclasses

import click

from dovetail.cli.output import progress, say_json
from dovetail.show import printable


@click.command()
@click.argument("model", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(model: str, as_json: bool) -> int:
    """Report every independent fault of MODEL in one pass, each with code, node and file. Exit code 1 where there is one."""
    from dovetail.errors import DovetailError
    from dovetail.formats import load
    from dovetail.validate import check as check_model

    warnings = []
    with progress(f"checking {model}"):
        try:
            loaded = load(model)
        except DovetailError as error:
            faults = list(error.diagnostics)
        else:
            faults, warnings = check_model(loaded), loaded.warnings
    if as_json:
        say_json("check", file=model, sound=not faults, faults=[dataclasses.asdict(item) for item in (*faults, *warnings)])
        return 1 if faults else 0
    for item in faults:
        click.echo("\n".join(map(printable, str(item).splitlines())))
    for item in warnings:
        click.echo("\n".join(map(printable, f"warning: {item}".splitlines())))
    click.echo(f"{printable(model)}: {f'{len(faults)} faults' if faults else 'sound'}", err=bool(faults))
    return 1 if faults else 0
