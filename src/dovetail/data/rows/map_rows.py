"""``map_rows``: a model over the rows of a dataset, by worker processes of this host or of a cluster, into files."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from dovetail.data.rows.engines import EngineOptions
from dovetail.data.rows.image_files import IMAGE, ImageOptions, ImageSource
from dovetail.data.rows.job import (
    Job,
    check_folder,
    check_record,
    choose_block_rows,
    choose_part_rows,
    forget,
    read_record,
    write_record,
)
from dovetail.data.rows.mapper import Mapper
from dovetail.data.rows.row_columns import refuse_type
from dovetail.data.rows.scheduler import MapProgress, Scheduler, check_fault_count, fault_text, parts_without
from dovetail.data.rows.sinks import default_format
from dovetail.data.rows.sources import kind_of, open_source
from dovetail.errors import EngineError
from dovetail.ir.limits import default_limits, refuse_memory
from dovetail.storage.lock import FolderLock

if TYPE_CHECKING:
    from dovetail.data.rows.dataset import Source
    from dovetail.ir.limits import Limits

StrPath = str | PathLike[str]


@dataclass(frozen=True)
class ImageValues:
    """The options of images, before the shape of the model's input is known."""

    resize: bool = False
    scale: float | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None


@dataclass(frozen=True)
class MapReport:
    """The result of ``map_rows``. Parts that an earlier call wrote count in ``skipped_parts`` alone."""

    output: str
    rows: int
    """Rows that were read, those at fault included."""
    faults: int
    """Rows without a result."""
    start_seconds: float
    """Time until the first part could run: workers, model, files."""
    seconds: float
    """Time of the parts, from then to the last one."""
    parts: int
    skipped_parts: int
    workers: int
    lost_workers: int
    first_fault: str
    """The first row at fault as text; empty where there is none."""

    @property
    def rows_per_second(self) -> float:
        """Rows by ``seconds``, all workers together."""
        return self.rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows_per_second": self.rows_per_second}


def map_rows(
    model: StrPath,
    input: StrPath,
    output: StrPath,
    *,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    batch: int = 64,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    constants: Mapping[str, Any] | None = None,
    format: str | None = None,
    cast: bool = False,
    image_resize: bool = False,
    image_scale: float | None = None,
    image_mean: Sequence[float] | None = None,
    image_std: Sequence[float] | None = None,
    part_rows: int | None = None,
    max_errors: int | None = None,
    restart: bool = False,
    limits: Limits | None = None,
    on_progress: Callable[[MapProgress], None] | None = None,
) -> MapReport:
    """Run a model on every row of a dataset, and write the results into the folder ``output``, each row exactly once.

    ``input``: parquet, .npy, .npz, zarr or images, a file or a folder. ``columns`` maps inputs of the model to columns, by
    default of the same names; the columns ``keep`` are passed through; ``constants``: values of inputs that are the same
    for all rows; ``format`` is by default that of the input. A row without
    a result is listed with its error in ``output/_errors``; more than ``max_errors`` of them end the job.

    Pixels of images are u8, RGB; their value for the model is ``(pixel * image_scale - image_mean) / image_std``. An image must
    have the size of the model's input, unless ``image_resize``.

    ``engine``: "local" (processes on this host), "ray" or "dask": the cluster at ``address``, or one that is started on this
    host. ``workers``: by default one for each core, or all of the cluster; ``threads``: those of each worker, by default 1.
    ``part_rows``: rows that are written together, by default from their time and size. A call that was interrupted resumes where
    it stopped when it is repeated; ``restart`` begins anew. ``on_progress`` is called with the state.

    Raises EngineError [job.*] and [batch.*], and the errors of ``load`` and of the dataset.
    """
    start = time.monotonic()
    options = EngineOptions(engine, address, workers, threads)
    if part_rows is not None and part_rows < 1:
        raise EngineError("argument.value", f"part_rows must be at least 1, got {part_rows}")
    # A worker of Dask has threads of its own.
    mapper_threads = threads if engine == "dask" else threads or 1
    images = ImageValues(image_resize, image_scale, image_mean, image_std)
    mapper, source = open_rows(
        model, input, columns, images, batch=batch, threads=mapper_threads, keep=keep, constants=constants, cast=cast,
        limits=limits,
    )  # fmt: skip
    folder = os.path.abspath(os.fspath(output))
    check_folder(folder, os.fspath(input))
    os.makedirs(folder, exist_ok=True)
    token = uuid.uuid4().hex
    with FolderLock(folder, token) as lock:
        if restart:
            forget(folder)
        record = read_record(folder)
        job = Job(mapper, source, format or default_format(source.kind), folder, token, options=image_record(source))
        if record is not None:
            check_record(record, job)
            job = replace(job, part_rows=record["part_rows"], block_rows=record["block_rows"])
        elif part_rows is not None:
            job = replace(job, part_rows=-(-part_rows // mapper.batch) * mapper.batch)

        def show(progress: MapProgress) -> None:
            lock.beat()
            if on_progress is not None:
                on_progress(progress)

        progress, skipped = _run_parts(job, record is not None, options, max_errors, show)
    end = progress.end or time.monotonic()
    begin = progress.begin or end
    return MapReport(
        folder, progress.rows, progress.faults, begin - start, end - begin, progress.parts, skipped, progress.max_workers,
        progress.lost, fault_text(progress.first_fault),
    )  # fmt: skip


def open_rows(
    model: StrPath,
    input: StrPath,
    columns: Mapping[str, str] | None,
    images: ImageValues | None = None,
    **options: Any,
) -> tuple[Mapper, Source]:
    """Open the model and the dataset. The only column of a dataset serves the only input of a model, whatever their names."""
    mapper = Mapper(model, columns=columns, **options)
    if mapper.path is None:
        raise EngineError("argument.type", "a job takes the path of a model, which its workers open, got a Model")
    arguments: dict[str, Any] = {"keep": mapper.keep}
    if kind_of(input) == "images":
        arguments["images"] = _image_options(mapper, images or ImageValues())
    elif images not in (None, ImageValues()):
        raise EngineError("dataset.image", "options of images need an input of images")
    try:
        source = open_source(input, list(mapper.columns.values()), **arguments)
        refuse_columns(source, mapper)
        return mapper, source
    except EngineError as error:
        if error.code != "dataset.column" or columns or len(mapper.columns) > 1:
            raise
        source = open_source(input, None, **arguments)
        if len(source.selected) != 1:
            name = next(iter(mapper.columns))
            message = f"{error.message}; --column {name}=COLUMN (columns in Python) names that of the input {name}"
            raise EngineError(error.code, message, file=error.file) from None
    mapper.columns = dict.fromkeys(mapper.columns, source.selected[0])
    refuse_columns(source, mapper)
    return mapper, source


def refuse_columns(source: Source, mapper: Mapper) -> None:
    """Raise EngineError for a column no row of which fits its input, and for a batch beyond the memory, before a row is decoded.

    The codes are [batch.dtype], [batch.shape] and [run.memory].
    """
    for port in mapper.signature.inputs:
        name = mapper.columns[port.name]
        if name in source.row_types:
            refuse_type(source.row_types[name], port, name)
    rows = min(mapper.batch, source.rows)
    refuse_memory(mapper.limits or default_limits(), source.row_bytes * rows, f"a batch of {rows} rows of the dataset")


def _image_options(mapper: Mapper, images: ImageValues) -> ImageOptions:
    """Return how pixels become the input that takes the column of images, or the only input."""
    ports = mapper.signature.inputs
    port = next((port for port in ports if mapper.columns[port.name] == IMAGE), ports[0])
    shape = (None, *(port.shape or ()))
    return ImageOptions.for_shape(shape, resize=images.resize, scale=images.scale, mean=images.mean, std=images.std)


def image_record(source: Source) -> dict[str, Any]:
    """Return the options of images for the record of a job, as JSON values."""
    return {"images": asdict(source.options)} if isinstance(source, ImageSource) else {}


def _run_parts(
    job: Job, is_resumed: bool, options: EngineOptions, max_errors: int | None, show: Callable[[MapProgress], None]
) -> tuple[MapProgress, int]:
    """Run the parts that are not written yet. Returns the state at the end, and the number of parts that were."""
    earlier_faults = 0
    if is_resumed:
        job.sink.prepare()
        written = job.sink.parts()
        if max_errors is not None:
            earlier_faults = sum(1 for _ in job.sink.faults())
            check_fault_count(earlier_faults, max_errors, next(job.sink.faults(), None))
        if len(written) == job.parts:
            job.sink.finish()
            return MapProgress(), len(written)
    else:
        written = set()
    pool = options.start_pool(job)
    try:
        scheduler = Scheduler(pool, show, max_errors, earlier_faults)
        if not is_resumed:
            input_bytes = float(job.source.row_bytes)
            if not job.part_rows:
                cost = scheduler.first_call("measure", job.mapper.batch)
                job = replace(job, part_rows=choose_part_rows(job, max(pool.size, 1), cost.output_bytes, cost.seconds))
                input_bytes = max(input_bytes, cost.input_bytes)
            job = replace(job, block_rows=choose_block_rows(job, input_bytes))
            write_record(job)
            job.sink.prepare()
        scheduler.progress.total = job.rows - sum(len(job.range_of(part)) for part in written)
        scheduler.run(parts_without(job.parts, written), job)
    finally:
        pool.close()
    job.sink.finish()
    return scheduler.progress, len(written)
