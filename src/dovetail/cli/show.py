"""dovetail show."""

from __future__ import annotations

import click

from dovetail.cli.output import progress


@click.command()
@click.argument("model", type=click.Path())
def show(model: str) -> int:
    """Print the graph of MODEL as text, with inferred types and shapes."""
    from dovetail.formats import load
    from dovetail.show import show as show_model

    with progress(f"loading {model}"):
        text = show_model(load(model))
    click.echo(text, nl=False)
    return 0
