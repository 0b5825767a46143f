"""dovetail show."""

from __future__ import annotations

import click

from dovetail.cli.output import load, loading, say_json


@click.command()
@click.argument("model", type=click.Path())
@loading
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(model: str, as_json: bool) -> int:
    """Print the graph of MODEL as text, with inferred types and shapes."""
    from dovetail.ir.printer import show as show_model
    from dovetail.report.model_summary import describe

    loaded = load(model)
    if as_json:
        say_json("show", file=model, graph=describe(loaded.graph))
    else:
        click.echo(show_model(loaded), nl=False)
    return 0
