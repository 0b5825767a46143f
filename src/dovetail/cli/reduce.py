"""Command ``dovetail reduce`` minimizes a model on which a command fails."""

from __future__ import annotations

import sys

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, say_json, table


@click.command()
@options.model
@click.option("--check", "command", required=True, metavar="COMMAND", help="The command that fails; {} is the model's path.")
@options.target
@click.option("--exit-code", type=click.IntRange(min=1), help="The exit code that counts as failure [any but 0].")
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0.01),
    help="Seconds after which a run counts as passed.",
)
@click.option(
    "--runs", default=1000, show_default=True, type=click.IntRange(min=1), help="The maximum number of runs of the command."
)
@loading
def reduce(model: str, command: str, target: str, exit_code: int | None, timeout: float, runs: int, as_json: bool) -> int:
    """Write the smallest model on which a command still fails: fewer nodes, then smaller sizes, then simpler weights.

    The command gets files of the format of the target. The command does not run in a shell; use `sh -c '...' sh {}` for a shell.
    """
    from dovetail.compare.reduce.reduction import reduce as reduce_model
    from dovetail.formats import save
    from dovetail.formats.model_source import format_of

    if target == STREAM:
        raise click.UsageError("-o needs the name of a file, got -")
    loaded = load(model)
    found = reduce_model(
        loaded,
        command,
        format=format_of(target),
        exit_code=exit_code,
        timeout=timeout,
        max_runs=runs,
        on_progress=narrate if sys.stderr.isatty() else None,
    )
    save(found, target)
    report = found.report
    for note in report.notes:
        narrate(note)
    narrate(f"wrote {target}")
    if as_json:
        say_json("reduce", source=model, target=target, **report.as_dict())
    else:
        rows = [("nodes", report.nodes_before, report.nodes_after), ("runs", "", report.runs)]
        table(("", "before", "after"), rows)
    return 0
