"""Command ``dovetail profile`` times a model by operator, kernel and module."""

from __future__ import annotations

import os
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import STREAM, load, loading, narrate, progress, say_json, table, write_file

SUFFIXES = {".json": "trace", ".html": "html", ".svg": "svg"}
"""Maps the suffix of an output file to the method of a profile that returns the file's text."""


@click.command()
@options.model
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE", help="Write a trace (.json), a page (.html) or a picture (.svg)."
)
@options.engines
@options.runs
@options.threads
@options.precision
@options.inputs
@options.shapes
@options.dims
@options.seed
@loading
def profile(
    model: str,
    output: str | None,
    engines: str,
    runs: int | None,
    threads: int | None,
    precision: str | None,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Time MODEL by operator, kernel and module, with bytes, operations and their share of the machine's limits.

    With several engines the times of operators are printed side by side, from the profiler of each engine. Perfetto
    (ui.perfetto.dev) opens the trace. The first run ends after 20 seconds; --limit seconds=NUMBER changes that.
    """
    from dovetail.cli.arrays import read_inputs, shapes_of
    from dovetail.measure.model_profile import profile as profile_model

    kind = _kind_of(output)
    loaded = load(model)
    with progress(f"profiling {model}"):
        arrays, random = read_inputs(loaded, inputs, seed, dims, shapes_of(shapes))
        found = profile_model(
            loaded, arrays, engines=engines.split(","), threads=threads, runs=runs, precision=precision
        )  # fmt: skip
    if random:
        narrate(f"random inputs (seed {seed}): {', '.join(random)}")
    for engine in found.engines:
        for note in engine.notes:
            narrate(f"{engine.name}: {note}")
    if output is not None:
        write_file(output, getattr(found, kind)())
    if as_json:
        say_json("profile", file=model, output=output, seed=seed, **found.as_dict())
    else:
        _say(found)
    return 0


def _kind_of(output: str | None) -> str:
    suffix = "" if output is None else os.path.splitext(output)[1].lower()
    if output is not None and (output == STREAM or suffix not in SUFFIXES):
        raise click.UsageError(f"--output takes a file that ends in {', '.join(SUFFIXES)}, not {output!r}")
    return SUFFIXES.get(suffix, "")


def _say(found: Any) -> None:
    from dovetail.report.profile_text import summary
    from dovetail.report.text import duration, percent

    table(("", found.name), summary(found))
    click.echo()
    columns = ["operator"]
    for engine in found.engines:
        columns += [engine.name, "share"]
    rows = [
        [
            name,
            *(text for cell in cells for text in (("", "") if cell is None else (duration(cell.seconds), percent(cell.share)))),
        ]
        for name, cells in found.operators()
    ]
    table(columns, rows)
    for engine in found.engines:
        if engine.engine != "native":
            continue
        _say_groups("kernel", engine.kernels())
        modules = engine.modules()
        if len(modules) > 1:
            _say_groups("module", modules)
        _say_subgraphs(engine.steps)


def _say_groups(kind: str, groups: Any) -> None:
    from dovetail.report.profile_text import nbytes, operations, share_of_limit
    from dovetail.report.text import duration, percent

    click.echo()
    rows = [
        [row.name, row.count, duration(row.seconds), percent(row.share), nbytes(row.nbytes), operations(row.operations),
         share_of_limit(row.share_of_limit, row.bound)]
        for row in groups
    ]  # fmt: skip
    table((kind, "steps", "time", "share", "bytes", "operations", "of the limit"), rows)


def _say_subgraphs(steps: Any) -> None:
    """Print the steps of If and Loop, with the steps of their subgraphs indented."""
    from dovetail.report.profile_text import rows_of_subgraphs

    rows = list(rows_of_subgraphs(steps, lambda depth, label: "  " * depth + label))
    if rows:
        click.echo()
        table(("step", "in subgraphs", "operator", "kernel", "runs", "time", "bytes", "operations", "of the limit"), rows)
