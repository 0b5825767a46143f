"""A job of batch inference: its data, its record in the output folder, and the check of the record before the job resumes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import lcm
from typing import TYPE_CHECKING, Any

from dovetail.data.rows.dataset_files import describe_change
from dovetail.errors import DovetailError, EngineError, FormatError
from dovetail.storage.atomic_write import replace_file
from dovetail.storage.files import read_bytes
from dovetail.storage.lock import LOCK_NAME

# Imports are deferred so that a worker imports only the formats that it reads and writes.
if TYPE_CHECKING:
    from dovetail.data.rows.dataset import Source
    from dovetail.data.rows.mapper import Mapper
    from dovetail.data.rows.part_files import Sink

JOB_NAME = "_job.json"
JOB_VERSION = 1
MAX_RECORD_BYTES = 1 << 30
"""The maximum bytes of a record, which lists the files of the dataset."""
PART_BYTES = BLOCK_BYTES = 32 << 20
"""Maximum bytes of the results of a part, and of the inputs of a block; a worker keeps two of each in memory."""
MAX_PARTS = 100_000
"""The maximum number of parts of a job, which are files of one folder; PART_BYTES may require more parts."""
PART_SECONDS = (0.5, 10.0)
MIN_SECONDS = 0.05
"""A job is divided further to give each worker two parts only if a part still takes at least this many seconds."""
PARTS_PER_WORKER = 100
"""The number of parts for each worker; while the last part runs, other workers idle for a hundredth of the time."""
DIFFERENCES_SHOWN = 5


@dataclass(frozen=True)
class Job:
    """Job describes a job of batch inference; a worker that has the Job can run any part."""

    mapper: Mapper
    source: Source
    format: str
    """The format of the output."""
    output: str
    """The absolute path of the output folder."""
    token: str
    """The token in the lock file of the output folder, by which a worker detects that the path is another folder on its host."""
    part_rows: int = 0
    """The number of rows of a part, a multiple of the batch; 0 until it is chosen."""
    block_rows: int = 0
    """The number of rows that are read and computed at a time, a multiple of the batch; 0 until it is chosen."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other options on which results depend, as JSON values; they are part of the record."""

    @property
    def sink(self) -> Sink:
        """The sink that writes the output folder in the job's format."""
        # Deferred import: the record of a job needs no sink.
        from dovetail.data.rows.sinks import open_sink

        return open_sink(self.output, self.format, rows=self.rows, part_rows=self.part_rows)

    @property
    def rows(self) -> int:
        return int(self.source.rows)

    @property
    def parts(self) -> int:
        return -(-self.rows // self.part_rows) if self.part_rows else 0

    def range_of(self, part: int) -> range:
        """Return the rows of a part."""
        return range(part * self.part_rows, min((part + 1) * self.part_rows, self.rows))


def choose_part_rows(job: Job, workers: int, row_bytes: float, row_seconds: float) -> int:
    """Return the number of rows of a part: a multiple of the batch, and if possible of the rows that are stored together.

    Each worker gets about PARTS_PER_WORKER parts, and a part takes PART_SECONDS (minimum and maximum), or longer if the job would
    have more than MAX_PARTS parts. The results of a part have at most PART_BYTES; ``row_bytes`` is the size of a row's results.
    """
    rows, batch = job.rows, job.mapper.batch
    shortest, longest = PART_SECONDS
    total = rows * row_seconds
    seconds = min(max(total / workers / PARTS_PER_WORKER, shortest), longest)
    count = max(min(max(seconds / max(row_seconds, 1e-9), rows / MAX_PARTS), PART_BYTES / max(row_bytes, 1e-9)), batch)
    # With few parts each worker gets the same number: two if parts take at least MIN_SECONDS.
    parts = max(-(-rows // int(count)), min(2 * workers, int(total / MIN_SECONDS)), 1)
    if parts > workers:
        parts = -(-parts // workers) * workers
    step = lcm(batch, job.source.chunk_rows or 1)
    if step * parts > rows:
        step = batch
    return max(-(-rows // (parts * step)), 1) * step


def choose_block_rows(job: Job, row_bytes: float) -> int:
    """Return the number of rows of a block: at most BLOCK_BYTES and at most a part, rounded like the rows of a part.

    ``row_bytes`` is the size of a row's inputs.
    """
    count = min(int(BLOCK_BYTES / max(row_bytes, 1e-9)), job.part_rows)
    step = lcm(job.mapper.batch, job.source.chunk_rows or 1)
    if step > count:
        step = job.mapper.batch
    return max(count // step, 1) * step


# The record of a job in its output folder


def record_of(job: Job) -> dict[str, Any]:
    """Return the content of ``_job.json``: all data on which the content of the parts depends."""
    from dovetail import __version__

    mapper = job.mapper
    return {
        "dovetail": "job",
        "version": JOB_VERSION,
        "release": __version__,
        "model": mapper.path,
        "digest": mapper.digest,
        "model_files": mapper.files,
        "input": job.source.fingerprint(),
        "rows": job.rows,
        "options": {
            "batch": mapper.batch,
            "columns": mapper.columns,
            "keep": list(mapper.keep),
            "cast": mapper.cast,
            "format": job.format,
            **({"constants": mapper.constant_texts} if mapper.constants else {}),
            **({"precision": mapper.precision} if mapper.precision else {}),
            **job.options,
        },
        "part_rows": job.part_rows,
        "block_rows": job.block_rows,
    }


def digest_of(record: Mapping[str, Any]) -> str:
    """Return the digest of a record without its entry ``record_digest``, by which edited records are detected."""
    entries = {name: value for name, value in record.items() if name != "record_digest"}
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def write_record(job: Job) -> None:
    """Write ``_job.json`` atomically."""
    with replace_file(os.path.join(job.output, JOB_NAME)) as stream:
        record = record_of(job)
        stream.write(json.dumps({**record, "record_digest": digest_of(record)}, indent=1).encode())


def read_record(folder: str, *, for_removal: bool = False) -> dict[str, Any] | None:
    """Return the record in ``folder``, or None if the folder has no record. Raises FormatError [folder.resume].

    ``for_removal``: return a record even if it was edited after the job wrote it.
    """
    path = os.path.join(folder, JOB_NAME)
    if not os.path.lexists(path):
        return None
    try:
        record: Any = json.loads(read_bytes(path, MAX_RECORD_BYTES))
    except DovetailError as error:
        raise FormatError("folder.resume", error.message, file=path) from None
    except (ValueError, RecursionError) as error:
        raise FormatError("folder.resume", f"the record of a job must be JSON: {error}", file=path) from None
    if not _is_record(record):
        raise FormatError("folder.resume", f"the record must be of a job of version {JOB_VERSION}", file=path)
    if not for_removal and record.get("record_digest") != digest_of(record):
        message = "the record was changed since the job wrote it, so its parts may hold other rows; restart the job"
        raise FormatError("folder.resume", message, file=path)
    return dict(record)


def _is_record(record: object) -> bool:
    if not isinstance(record, dict) or record.get("version") != JOB_VERSION or not isinstance(record.get("options"), dict):
        return False
    data = record.get("input")
    files = data.get("files", []) if isinstance(data, dict) else None
    if not isinstance(files, list) or not all(isinstance(row, list) and row and isinstance(row[0], str) for row in files):
        return False
    sizes = [record.get(name) for name in ("rows", "part_rows", "block_rows")]
    minimums = (0, 1, 1)
    return isinstance(record["options"].get("format"), str) and all(
        isinstance(size, int) and size >= minimum for size, minimum in zip(sizes, minimums, strict=True)
    )


def check_record(record: Mapping[str, Any], job: Job) -> None:
    """Raise EngineError [folder.resume] if ``job`` differs from the job of ``record``; the message names the differences."""
    new = json.loads(json.dumps(record_of(job)))
    differences = list(_differences(record, new))
    if differences:
        shown = "; ".join(differences[:DIFFERENCES_SHOWN])
        message = f"a job must resume with the model, input and options of its start; changed since: {shown}"
        raise EngineError("folder.resume", message, file=os.path.join(job.output, JOB_NAME))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old.get("release") != new["release"]:
        yield f"dovetail {old.get('release')}, now {new['release']}"
    if old.get("digest") != new["digest"]:
        yield from _changed_entries("model file", old.get("model_files"), new["model_files"]) or ["the model"]
    if change := describe_change(old["input"], new["input"]):
        yield change
    yield from _changed_entries("option", old.get("options"), new["options"])


def _changed_entries(kind: str, old: Any, new: Mapping[str, Any]) -> list[str]:
    """Return a text for each entry that differs between ``old`` and ``new``."""
    old = old if isinstance(old, dict) else {}
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if kind == "option":
        return [f"{kind} {name} {old.get(name)!r}, now {new.get(name)!r}" for name in names]
    return [f"{kind} {name}" for name in names]


def check_folder(output: str, input: str) -> None:
    """Raise EngineError [folder.occupied] if ``output`` cannot be the folder of a job.

    The folder must be outside of the input, and be empty or have the record of a job.
    """
    real, source = os.path.realpath(output), os.path.realpath(input)
    if real == source or real.startswith(source.rstrip(os.sep) + os.sep):
        raise EngineError("folder.occupied", "the output folder must be outside the input", file=output)
    if os.path.lexists(output) and not os.path.isdir(output):
        raise EngineError("folder.occupied", "the output must be a folder", file=output)
    names = os.listdir(output) if os.path.isdir(output) else []
    # A driver that was killed early leaves its lock file and the temporary file of its record.
    others = [name for name in names if name != LOCK_NAME and not name.startswith(f".{JOB_NAME}")]
    if others and JOB_NAME not in names:
        message = f"the output folder must be empty or hold a job, got {', '.join(sorted(others)[:3])}"
        raise EngineError("folder.occupied", message, file=output)


def forget(folder: str) -> None:
    """Remove the files that the job in ``folder`` has written.

    The record is changed first, so that no call takes parts for complete of which some files are removed, and is removed last.
    """
    record = read_record(folder, for_removal=True)
    if record is None:
        return
    with replace_file(os.path.join(folder, JOB_NAME)) as stream:
        stream.write(json.dumps({**record, "record_digest": ""}, indent=1).encode())
    # Deferred import for the same reason as in Job.sink.
    from dovetail.data.rows.sinks import open_sink

    options = record["options"]
    open_sink(folder, options["format"], rows=record["rows"], part_rows=record["part_rows"]).remove()
    os.unlink(os.path.join(folder, JOB_NAME))
