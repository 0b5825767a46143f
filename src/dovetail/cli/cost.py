"""Command ``dovetail cost`` predicts memory, bytes, operations and time of a run."""

from __future__ import annotations

import click

from dovetail.cli import options
from dovetail.cli.output import load, loading, progress, say_json, table


@click.command()
@options.model
@click.option("--at", "--dim", "dims", multiple=True, metavar="NAME=SIZE", help="The size of an open dimension.")
@click.option(
    "--fits", type=options.Bytes(), metavar="BYTES", help="Find the largest batch whose memory is at most 500MB, 2GiB, ..."
)
@click.option("--vary", metavar="NAME", help="With --fits: the size to search for [the batch: the leading size of all inputs].")
@options.threads
@options.precision
@loading
def cost(
    model: str,
    dims: tuple[str, ...],
    fits: int | None,
    vary: str | None,
    threads: int | None,
    precision: str | None,
    as_json: bool,
) -> int:
    """Predict memory, bytes moved, operations and time of a run of MODEL, which does not run.

    The costs are numbers at the sizes of --at, and expressions in the open sizes. The time is that of this machine: its limits
    are measured in about a second. Exit code 1: no size fits into --fits.
    """
    from dovetail.cli.arrays import sizes_of
    from dovetail.measure.cost import cost as predict_cost
    from dovetail.measure.cost_report import summary
    from dovetail.report.profile_text import nbytes, operations
    from dovetail.report.text import duration

    if vary is not None and fits is None:
        raise click.UsageError("--vary needs --fits")
    sizes = sizes_of(dims, "--at")
    loaded = load(model)
    with progress(f"planning {model}"):
        report = predict_cost(loaded, sizes, fits=fits, vary=vary, threads=threads, precision=precision)
    if as_json:
        say_json("cost", **{**report.as_dict(), "file": model})
    else:
        table(("", report.name), summary(report))
        click.echo()
        rows = [
            [row.kernel, row.count, nbytes(row.moved_bytes), operations(row.operations), duration(row.seconds)]
            for row in report.kernels
        ]
        table(("kernel", "steps", "bytes", "operations", "time"), rows)
    return 1 if report.fits is not None and report.fits.size is None else 0
