"""``map_rows``: runs a model on the rows of a dataset in worker processes of this host or a cluster, and writes files."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from copy import copy
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
from dovetail.ir.suggestions import check_keywords
from dovetail.storage.lock import FolderLock

if TYPE_CHECKING:
    from dovetail.data.rows.dataset import Source

StrPath = str | PathLike[str]


@check_keywords
@dataclass(frozen=True)
class MapOptions:
    """MapOptions holds the options of ``map_rows`` for images of the input and for the parts of the output.

    Pixels of images are u8, RGB; the model's input is ``(pixel * image_scale - image_mean) / image_std``. An image must have the
    size of the model's input, or is resized with ``image_resize``: True or "stretch" changes both sides, "letterbox" keeps the
    proportions and adds a border of the color 114, "center_crop" keeps the proportions and cuts out the center. Before the cut
    the shorter side is ``image_resize_size``, by default that of the smallest image that covers the input.

    ``format`` is the format of the output, by default the format of the input. ``part_rows`` is the number of rows in an output
    file, by default chosen from the time and size of a row. The job fails after more than ``max_errors`` rows without a result.
    ``restart`` first removes the files of an earlier job.
    """

    image_resize: bool | str = False
    image_resize_size: int | None = None
    image_scale: float | None = None
    image_mean: Sequence[float] | None = None
    image_std: Sequence[float] | None = None
    format: str | None = None
    part_rows: int | None = None
    max_errors: int | None = None
    restart: bool = False


@dataclass(frozen=True)
class MapReport:
    """MapReport is the result of ``map_rows``. Parts that earlier calls wrote count only in ``skipped_*`` and ``total_*``."""

    output: str
    rows: int
    """The number of rows that were read, including rows at fault."""
    faults: int
    """The number of rows without a result."""
    start_seconds: float
    """Seconds until the first part could run: start of workers, loading of the model, listing of files."""
    seconds: float
    """Seconds from the start of the first part until the last part was written."""
    parts: int
    skipped_parts: int
    workers: int
    lost_workers: int
    first_fault: str
    """The text of the first row at fault; empty if no row is at fault."""
    skipped_rows: int = 0
    """The number of rows in parts that earlier calls wrote, including rows at fault."""
    skipped_faults: int = 0
    """The number of rows at fault in parts that earlier calls wrote."""

    @property
    def total_rows(self) -> int:
        """The number of rows of the dataset that this call and earlier calls have read."""
        return self.rows + self.skipped_rows

    @property
    def total_faults(self) -> int:
        """The number of rows without a result, of this call and of earlier calls."""
        return self.faults + self.skipped_faults

    @property
    def rows_per_second(self) -> float:
        """The rows divided by ``seconds``, for all workers together."""
        return self.rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        names = ("rows_per_second", "total_rows", "total_faults")
        return {**asdict(self), **{name: getattr(self, name) for name in names}}


@check_keywords
def map_rows(
    model: StrPath | Mapper,
    input: StrPath,
    output: StrPath,
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    options: MapOptions | None = None,
    on_progress: Callable[[MapProgress], None] | None = None,
) -> MapReport:
    """Run a model on every row of a dataset, and write the results into the folder ``output``, each row exactly once.

    ``model``: the path of a model file, or a :class:`dovetail.Mapper` of a model file with batch, columns, constants, threads
    and limits. ``input``: a file or folder of parquet, .npy, .npz, zarr or images. A row without a result is listed with its
    error in ``output/_errors``. ``options``: options for images and for the output, see :class:`dovetail.MapOptions`.

    ``engine``: "local" (processes on this host), "ray" or "dask". The last two use the cluster at ``address``, or start a cluster
    on this host. ``workers``: the number of workers, by default one for each core, or all workers of the cluster. An interrupted
    call resumes if it is repeated with the same arguments. ``on_progress`` is called with the progress of the job.

    Raises EngineError [argument.*], [array.file], [batch.*], [cache.folder], [dataset.*], [file.*], [folder.*], [input.*],
    [job.*], [output.*], [program.*], [run.*], UnsupportedError [extra.missing], and the errors of :func:`load`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.save(b.model, "relu.onnx"); np.save("rows.npy", np.zeros((5, 2), np.float32))
    >>> dovetail.map_rows("relu.onnx", "rows.npy", "results", workers=1).rows
    5
    """
    start = time.monotonic()
    options = MapOptions() if options is None else options
    if not isinstance(options, MapOptions):
        raise EngineError("argument.type", f"options must be MapOptions(...), got {options!r}")
    engine_options = EngineOptions(engine, address, workers, model.threads if isinstance(model, Mapper) else None)
    if options.part_rows is not None and options.part_rows < 1:
        raise EngineError("argument.value", f"part_rows must be at least 1, got {options.part_rows}")
    mapper = copy(model) if isinstance(model, Mapper) else Mapper(model)
    # Without an option, a worker of Dask uses the number of threads of its Dask process.
    mapper.threads = engine_options.threads if engine == "dask" else engine_options.threads or 1
    mapper, source = open_rows(mapper, input, options)
    folder = os.path.abspath(os.fspath(output))
    check_folder(folder, os.fspath(input))
    os.makedirs(folder, exist_ok=True)
    token = uuid.uuid4().hex
    with FolderLock(folder, token) as lock:
        if options.restart:
            forget(folder)
        record = read_record(folder)
        job = Job(mapper, source, options.format or default_format(source.kind), folder, token, options=image_record(source))
        if record is not None:
            check_record(record, job)
            job = replace(job, part_rows=record["part_rows"], block_rows=record["block_rows"])
        elif options.part_rows is not None:
            job = replace(job, part_rows=-(-options.part_rows // mapper.batch) * mapper.batch)

        def show(progress: MapProgress) -> None:
            lock.beat()
            if on_progress is not None:
                on_progress(progress)

        progress, skipped = _run_parts(job, record is not None, engine_options, options.max_errors, show)
    end = progress.end or time.monotonic()
    begin = progress.begin or end
    return MapReport(
        folder, progress.rows, progress.faults, begin - start, end - begin, progress.parts, skipped, progress.max_workers,
        progress.lost, fault_text(progress.first_fault), progress.skipped_rows, progress.skipped_faults,
    )  # fmt: skip


def open_rows(mapper: Mapper, input: StrPath, options: MapOptions) -> tuple[Mapper, Source]:
    """Open the dataset, and set the mapper's columns; a dataset's only column is used for a model's only input of any name."""
    if mapper.path is None:
        raise EngineError("argument.type", "map_rows needs the path of a model, which its workers open, got a Model")
    arguments: dict[str, Any] = {"keep": mapper.keep}
    numbers = (options.image_resize_size, options.image_scale, options.image_mean, options.image_std)
    if kind_of(input) == "images":
        arguments["images"] = _image_options(mapper, options)
    elif options.image_resize is not False or numbers != (None,) * 4:
        raise EngineError("dataset.image", "the options image_* need a dataset of images")
    try:
        source = open_source(input, list(mapper.columns.values()), **arguments)
        refuse_columns(source, mapper)
        return mapper, source
    except EngineError as error:
        if error.code != "dataset.column" or mapper.has_named_columns or len(mapper.columns) > 1:
            raise
        source = open_source(input, None, **arguments)
        if len(source.selected) != 1:
            name = next(iter(mapper.columns))
            message = f"{error.message}; --column {name}=COLUMN (columns in Python) sets the column of the input {name}"
            raise EngineError(error.code, message, file=error.file) from None
    mapper.columns = dict.fromkeys(mapper.columns, source.selected[0])
    refuse_columns(source, mapper)
    return mapper, source


def refuse_columns(source: Source, mapper: Mapper) -> None:
    """Check column types and the memory of a batch before rows are decoded.

    Raises EngineError [batch.dtype] or [batch.shape] for a column of which no row can fit its input, and [run.memory] for a batch
    that exceeds the memory limit.
    """
    for port in mapper.signature.inputs:
        name = mapper.columns[port.name]
        if name in source.row_types:
            refuse_type(source.row_types[name], port, name)
    rows = min(mapper.batch, source.rows)
    refuse_memory(mapper.limits or default_limits(), source.row_bytes * rows, f"a batch of {rows} rows of the dataset")


def _image_options(mapper: Mapper, options: MapOptions) -> ImageOptions:
    """Return the image options for the input that reads the column of images, or for the first input."""
    ports = mapper.signature.inputs
    port = next((port for port in ports if mapper.columns[port.name] == IMAGE), ports[0])
    return ImageOptions.for_shape(
        (None, *(port.shape or ())), resize=options.image_resize, resize_size=options.image_resize_size,
        scale=options.image_scale, mean=options.image_mean, std=options.image_std,
    )  # fmt: skip


def image_record(source: Source) -> dict[str, Any]:
    """Return the image options for the record of a job, as JSON values."""
    return {"images": asdict(source.options)} if isinstance(source, ImageSource) else {}


def _run_parts(
    job: Job, is_resumed: bool, engine: EngineOptions, max_errors: int | None, show: Callable[[MapProgress], None]
) -> tuple[MapProgress, int]:
    """Run the parts that are not written yet. Returns the final progress, and the number of parts that were already written."""
    written: set[int] = set()
    earlier = MapProgress()
    if is_resumed:
        job.sink.prepare()
        written = {part for part in job.sink.parts() if part < job.parts}
        earlier.skipped_rows = sum(len(job.range_of(part)) for part in written)
        # The faults of a part are written before its results: a part that was interrupted between the two runs again.
        first = None
        for fault in job.sink.faults():
            if fault.row // job.part_rows in written:
                first = first or fault
                earlier.skipped_faults += 1
        if max_errors is not None:
            check_fault_count(earlier.skipped_faults, max_errors, first)
        if len(written) == job.parts:
            job.sink.finish()
            return earlier, len(written)
    pool = engine.start_pool(job)
    try:
        scheduler = Scheduler(pool, show, max_errors, earlier)
        if not is_resumed:
            input_bytes = float(job.source.row_bytes)
            if not job.part_rows:
                cost = scheduler.first_call("measure", job.mapper.batch)
                job = replace(job, part_rows=choose_part_rows(job, max(pool.size, 1), cost.output_bytes, cost.seconds))
                input_bytes = max(input_bytes, cost.input_bytes)
            job = replace(job, block_rows=choose_block_rows(job, input_bytes))
            write_record(job)
            job.sink.prepare()
        scheduler.progress.total = job.rows - scheduler.progress.skipped_rows
        scheduler.run(parts_without(job.parts, written), job)
    finally:
        pool.close()
    job.sink.finish()
    return scheduler.progress, len(written)
