"""Command ``dovetail map`` runs a model on the rows of a dataset."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli import options
from dovetail.cli.output import LIMIT, is_quiet, limits_of_options, narrate, say_json, table
from dovetail.errors import printable

if TYPE_CHECKING:
    from dovetail.data.rows.scheduler import MapProgress

ENGINES = ("local", "ray", "dask")
REFRESH_SECONDS = 0.5
LINE_SECONDS = 30.0
"""Seconds between two lines of progress where stderr is no terminal."""


@click.command("map")
@options.model
@click.argument("source", metavar="INPUT", type=click.Path())
@options.folder
@click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="What runs the workers.")
@click.option("--address", help="The address of a Ray or Dask cluster; else one is started on this host.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes (default: one per core, or all of the cluster).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of a worker [1].")
@options.precision
@click.option("--batch", default=64, show_default=True, type=click.IntRange(min=1), help="Rows of one run of the model.")
@click.option("--column", "columns", multiple=True, metavar="INPUT=COLUMN", help="The column of an input [that of its name].")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column that is copied to the results.")
@click.option("--constant", "constants", multiple=True, metavar="INPUT=VALUE", help="A value for all rows: JSON or FILE.npy.")
@click.option("--format", "format", metavar="FORMAT", help="parquet, npy, npz, zarr or images [that of INPUT].")
@click.option("--cast", is_flag=True, help="Round values to the types of the inputs.")
@click.option("--image-resize", is_flag=True, help="Resize images to the model's input, by the bilinear filter of Pillow.")
@click.option("--image-letterbox", is_flag=True, help="Resize images in proportion, on a border of gray (114).")
@click.option("--image-center-crop", is_flag=True, help="Resize images in proportion, and cut out the center.")
@click.option("--image-resize-size", type=click.IntRange(min=1), metavar="N", help="The shorter side before --image-center-crop.")
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
    precision: str | None,
    batch: int,
    columns: tuple[str, ...],
    keep: tuple[str, ...],
    constants: tuple[str, ...],
    format: str | None,
    cast: bool,
    image_resize: bool,
    image_letterbox: bool,
    image_center_crop: bool,
    image_resize_size: int | None,
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

    chosen = [("stretch", image_resize), ("letterbox", image_letterbox), ("center_crop", image_center_crop)]
    modes = [mode for mode, is_chosen in chosen if is_chosen]
    if len(modes) > 1:
        raise click.UsageError("--image-resize, --image-letterbox and --image-center-crop exclude each other")
    options = MapOptions(
        image_resize=modes[0] if modes else False, image_resize_size=image_resize_size, image_scale=image_scale,
        image_mean=_numbers_of("--image-mean", image_mean), image_std=_numbers_of("--image-std", image_std), format=format,
        part_rows=part_rows, max_errors=max_errors, restart=restart,
    )  # fmt: skip
    try:
        mapper = Mapper(
            model, batch=batch, threads=threads, columns=_columns_of(columns), keep=keep, constants=_constants_of(constants),
            cast=cast, limits=limits_of_options(), precision=precision,
        )  # fmt: skip
        with _show_progress(f"{model} on {source}") as show:
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
    earlier = (
        ("rows of earlier calls", f"{report.skipped_rows:,}"),
        ("rows in all", f"{report.total_rows:,}"),
        ("rows at fault in all", f"{report.total_faults:,}"),
    )
    rows = (
        ("rows", f"{report.rows:,}"),
        ("rows at fault", f"{report.faults:,}"),
        *(earlier if report.skipped_parts else ()),
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


class ProgressLines:
    """ProgressLines prints a line of progress on stderr every ``seconds`` of ``clock``, and none in the first ``seconds``."""

    def __init__(self, seconds: float = LINE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last = clock()

    def __call__(self, progress: MapProgress) -> None:
        now = self._clock()
        if now - self._last >= self._seconds:
            self._last = now
            narrate(progress_text(progress, now))


def progress_text(progress: MapProgress, now: float) -> str:
    """Return the state of a job as text: rows of all calls, rows per second of this call, rows at fault, workers.

    ``now``: the time.monotonic() of the state.
    """
    total = progress.total + progress.skipped_rows
    rows = f"{progress.rows + progress.skipped_rows:,}{f' of {total:,}' if progress.total else ''} rows"
    earlier = f" ({progress.skipped_rows:,} of earlier calls)" if progress.skipped_rows else ""
    seconds = now - progress.begin if progress.begin else 0.0
    rate = f"{progress.rows / seconds:,.0f} rows/s" if progress.rows and seconds > REFRESH_SECONDS else ""
    count = progress.faults + progress.skipped_faults
    faults = f"{count:,} at fault" if count else ""
    workers = f"{progress.workers} worker{'' if progress.workers == 1 else 's'}"
    return ", ".join(text for text in (rows + earlier, faults, rate, workers) if text)


@contextmanager
def _show_progress(text: str) -> Iterator[Callable[[Any], None] | None]:
    """Show rows, rows per second and the remaining time on stderr: a bar on a terminal, else a line every LINE_SECONDS."""
    if is_quiet():
        yield None
        return
    if not sys.stderr.isatty():
        yield ProgressLines(LINE_SECONDS)
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

        def show(progress: MapProgress) -> None:
            total = progress.total + progress.skipped_rows if progress.total else None
            state = progress_text(progress, time.monotonic())
            bar.update(task, completed=progress.rows + progress.skipped_rows, total=total, state=state)

        yield show
