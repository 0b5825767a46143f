"""Command ``dovetail info`` summarizes a model."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, say_json, table
from dovetail.errors import printable


@click.command()
@options.model
@loading
def info(model: str, as_json: bool) -> int:
    """Print inputs, outputs, operators by count, parameters and bytes of MODEL."""
    from dovetail.report.model_summary import summarize

    found = summarize(load(model))
    if as_json:
        say_json("info", file=model, **{"model_versions" if name == "versions" else name: item for name, item in found.items()})
        return 0
    versions = ", ".join(f"{domain or 'opset'} {version}" for domain, version in found["versions"].items())
    click.echo(printable(f"{model}: {found['format']}, {versions}{', by ' + found['producer'] if found['producer'] else ''}"))
    click.echo(f"{found['nodes']} nodes, {found['parameters']:,} parameters, {found['bytes']:,} bytes")
    click.echo()
    rows = [("input", item["name"], item["type"]) for item in found["inputs"]]
    rows += [("optional input", item["name"], item["type"]) for item in found["optional_inputs"]]
    rows += [("output", item["name"], item["type"]) for item in found["outputs"]]
    table(("", "name", "type"), rows)
    click.echo()
    table(("operator", "count"), list(found["operators"].items()))
    return 0
