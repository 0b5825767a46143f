"""Command ``dovetail map`` runs a model on the rows of a dataset."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from dovetail.cli import options
from dovetail.cli.output import LIMIT, is_quiet, limits_of_options, narrate, say_json, table
from dovetail.errors import printable

ENGINES = ("local", "ray", "dask")
REFRESH_SECONDS = 0.5


@click.command("map")
@options.model
@click.argument("source", metavar="INPUT", type=click.Path())
@options.folder
@click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="What runs the workers.")
@click.option("--address", help="The address of a Ray or Dask cluster; else one is started on this host.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes (default: one per core, or all of the cluster).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of a worker [1].")
@click.option("--batch", default=64, show_default=True, type=click.IntRange(min=1), help="Rows of one run of the model.")
@click.option("--column", "columns", multiple=True, metavar="INPUT=COLUMN", help="The column of an input [that of its name].")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column that is copied to the results.")
@click.option("--constant", "constants", multiple=True, metavar="INPUT=VALUE", help="A value for all rows: JSON or FILE.npy.")
@click.option("--format", "format", metavar="FORMAT", help="parquet, npy, npz, zarr or images [that of INPUT].")
@click.option("--cast", is_flag=True, help="Round values to the types of the inputs.")
@click.option("--image-resize", is_flag=True, help="Resize images to the model's input, by the bilinear filter of Pillow.")
@click.option("--image-scale", type=float, metavar="X", help="Multiply pixels (0 to 255) by X.")
@click.option("--image-mean", metavar="R,G,B", help="Subtract after --image-scale, per channel.")
@click.option("--image-std", metavar="R,G,B", help="Divide by these after --image-mean, per channel.")
@click.option(
    "--part-rows", type=click.IntRange(min=1), help="Rows of one part of the results [chosen by time and size of a row]."
)
@click.option("--max-errors", type=click.IntRange(min=0), help="End the job when more rows are at fault.")
@options.restart
@LIMIT
@options.as_json
def map(
    model: str,
    source: str,
    output: str,
    engine: str,
    address: str | None,
    workers: int | None,
    threads: int | None,
    batch: int,
    columns: tuple[str, ...],
    keep: tuple[str, ...],
    constants: tuple[str, ...],
    format: str | None,
    cast: bool,
    image_resize: bool,
    image_scale: float | None,
    image_mean: str | None,
    image_std: str | None,
    part_rows: int | None,
    max_errors: int | None,
    restart: bool,
    as_json: bool,
) -> int:
    """Run MODEL on every row of INPUT (parquet, .npy, .npz, zarr or images: a file or a folder), by several processes.

    The results are files in the folder OUTPUT, each with the numbers of its rows; rows at fault are listed in OUTPUT/_errors.
    The same command resumes a job that was interrupted: each row is written exactly once.
    """
    from dovetail.data.rows.map_rows import MapOptions, map_rows
    from dovetail.data.rows.mapper import Mapper
    from dovetail.data.tensors.reshard import is_tensor_job

    if is_tensor_job(model, source):
        raise click.UsageError("tensors of safetensors files are not rows; did you mean dovetail reshard?")

    options = MapOptions(
        image_resize=image_resize, image_scale=image_scale, image_mean=_numbers_of("--image-mean", image_mean),
        image_std=_numbers_of("--image-std", image_std), format=format, part_rows=part_rows, max_errors=max_errors,
        restart=restart,
    )  # fmt: skip
    try:
        mapper = Mapper(
            model, batch=batch, threads=threads, columns=_columns_of(columns), keep=keep, constants=_constants_of(constants),
            cast=cast, limits=limits_of_options(),
        )  # fmt: skip
        with _progress_bar(f"{model} on {source}") as show:
            report = map_rows(
                mapper, source, output, engine=engine, workers=workers, address=address, options=options, on_progress=show
            )
    except KeyboardInterrupt:
        narrate(f"interrupted; the same command resumes the job in {output}")
        raise
    if report.faults:
        narrate(f"warning: {report.faults} rows have no result, see {output}/_errors; the first: {report.first_fault}")
    if as_json:
        say_json("map", model=model, input=source, engine=engine, **report.to_json())
        return 0
    rows = (
        ("rows", f"{report.rows:,}"),
        ("rows at fault", f"{report.faults:,}"),
        ("seconds to start", f"{report.start_seconds:.1f}"),
        ("seconds", f"{report.seconds:.1f}"),
        ("rows per second", f"{report.rows_per_second:,.0f}"),
        ("parts written", f"{report.parts:,}"),
        ("parts skipped", f"{report.skipped_parts:,}"),
        ("folder", report.output),
        ("workers", f"{report.workers}{f', and {report.lost_workers} lost' if report.lost_workers else ''}"),
    )
    table((engine, ""), rows)
    return 0


def _columns_of(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, mark, column = pair.partition("=")
        if not mark or not name or not column:
            raise click.UsageError(f"--column takes INPUT=COLUMN, not {pair!r}")
        found[name] = column
    return found


def _constants_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of ``INPUT=VALUE``. Raises UsageError, EngineError [array.file]."""
    # Deferred for start-up time.
    from dovetail.cli.arrays import read_array

    constants: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise click.UsageError(f"--constant takes INPUT=VALUE, not {pair!r}")
        if name in constants:
            raise click.UsageError(f"--constant has two values for {name!r}")
        if text.endswith(".npy"):
            constants[name] = read_array(text)
            continue
        try:
            constants[name] = json.loads(text)
        except (ValueError, RecursionError):
            raise click.UsageError(f"the value of --constant must be a number, a JSON list or FILE.npy, got {text!r}") from None
    return constants


def _numbers_of(option: str, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option} takes comma-separated numbers, not {text!r}") from None


@contextmanager
def _progress_bar(text: str) -> Iterator[Callable[[Any], None] | None]:
    """Show rows, rows per second and the remaining time on stderr, only on a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    with Progress(
        TextColumn("{task.fields[state]}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=1 / REFRESH_SECONDS,
    ) as bar:
        task = bar.add_task(str(Text(printable(text))), total=None, state="starting")
        start: list[float] = []

        def show(progress: Any) -> None:
            if progress.rows and not start:
                start.append(time.monotonic())
            seconds = time.monotonic() - start[0] if start else 0
            rate = f"{progress.rows / seconds:,.0f} rows/s" if seconds > REFRESH_SECONDS else ""
            faults = f", {progress.faults:,} at fault" if progress.faults else ""
            state = f"{progress.rows:,} rows{faults} {rate} {progress.workers} workers"
            bar.update(task, completed=progress.rows, total=progress.total or None, state=state)

        yield show
