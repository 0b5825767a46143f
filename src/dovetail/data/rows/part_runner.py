"""PartRunner: runs the parts of a job in one process."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dovetail.data.rows.job import BLOCK_BYTES, Job
from dovetail.data.rows.rows import RowBlock, RowFault, join_blocks, take_rows
from dovetail.errors import DovetailError, EngineError
from dovetail.storage.lock import token_in

MEASURED_ROWS = 256
"""The number of rows that a worker runs to measure the time of a row; at least one batch is run."""
UNMEASURED_SECONDS = 1e-3
"""The seconds of a row that are assumed if none of the measured rows can be decoded."""


@dataclass(frozen=True, slots=True)
class PartSummary:
    """PartSummary holds the numbers of rows and of faults of one written part, and the part's first fault."""

    part: int
    rows: int
    faults: int
    first_fault: RowFault | None = None


@dataclass(frozen=True, slots=True)
class RowCost:
    """RowCost holds the time of a row on one worker, and the bytes of the row's inputs and of its results and kept columns."""

    seconds: float
    input_bytes: float
    output_bytes: float


class PartRunner:
    """PartRunner runs the parts of a job in one process.

    Two threads call :meth:`run`: one computes while the other writes its previous part or reads its next part.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.host = f"{socket.gethostname()} (process {os.getpid()})"
        self._is_computing = threading.Lock()

    def start(self) -> int:
        """Check that this process can access the model, the input and the output folder of the job, and compile the model.

        Returns the process id. Raises EngineError [job.worker-path].
        """
        self._check_output()
        folder = self.job.source.folder
        for name in folder.files[:1]:
            path = os.path.join(folder.root, name.name)
            with self._naming("job.worker-path", f"read the input {path}"):
                os.stat(path)
        with self._naming("job.worker-path", f"open the model {self.job.mapper.path}"):
            block = self.job.source.read(0, min(self.job.mapper.batch, self.job.rows))
            # The first call makes the plan for the shapes: one process of a host makes it, and the other processes wait.
            if len(block.rows):
                self.job.mapper.run_rows(block.columns, len(block.rows))
            else:
                self.job.mapper.compile()
        return os.getpid()

    def _check_output(self) -> None:
        found = token_in(self.job.output)
        if found != self.job.token:
            seen = "no folder" if not os.path.isdir(self.job.output) else "another folder, or the folder of another driver"
            message = (
                f"worker {self.host} must write into the driver's output folder, but on its host {self.job.output} is {seen}"
            )
            raise EngineError("job.worker-path", message)

    @contextmanager
    def _naming(self, code: str, action: str) -> Iterator[None]:
        """Convert errors inside the block to EngineErrors that name the worker and ``action``.

        A DovetailError keeps its code, other errors get ``code``. If ``code`` is job.worker-path, only codes batch.* are kept.
        """
        try:
            yield
        except Exception as error:
            kept = error.code if isinstance(error, DovetailError) else code
            if code.startswith("job.worker") and not kept.startswith("batch."):
                kept = code
            raise EngineError(kept, f"worker {self.host} cannot {action}: {text_of(error)}") from error

    def measure(self, batch: int) -> RowCost:
        """Run the first rows, after one batch to warm up, and return the cost of a row."""
        measured = min(MEASURED_ROWS, BLOCK_BYTES // max(self.job.source.row_bytes, 1))
        count = min(self.job.rows, max(batch, measured // batch * batch))
        block = self.job.source.read(0, count)
        if not len(block.rows):
            size = float(self.job.source.row_bytes)
            return RowCost(UNMEASURED_SECONDS, size, size)
        small = {name: values[:batch] for name, values in block.columns.items()}
        self.job.mapper.run_rows(small, min(batch, len(block.rows)))
        start = time.perf_counter()
        results = self.job.mapper.run_rows(block.columns, len(block.rows))
        seconds = time.perf_counter() - start
        count = len(block.rows)
        input_bytes, output_bytes, kept_bytes = (
            sum(map(_byte_count, columns.values())) / count for columns in (block.columns, results.outputs, block.kept)
        )
        return RowCost(seconds / count, input_bytes, output_bytes + kept_bytes)

    def run(self, part: int, part_rows: int, block_rows: int) -> PartSummary:
        """Read and compute one part block by block, and write the part.

        A part may be run repeatedly, and by several workers at the same time: all runs write files of equal content.
        Raises EngineError with the worker's name: [folder.unwritable], [job.part], and the codes of the source and the mapper.
        """
        job = replace(self.job, part_rows=part_rows)
        rows = job.range_of(part)
        action = f"part {part} (rows {rows.start} to {rows.stop - 1})"
        blocks = [
            self._run_block(start, min(start + block_rows, rows.stop), action)
            for start in range(rows.start, rows.stop, block_rows)
        ]
        # A change of the files during the read is detected before the part is written.
        self.job.source.check_files(rows.start, rows.stop)
        filled = next((block for block in blocks if len(block.rows)), blocks[0])
        whole = join_blocks(blocks, list(filled.columns), list(filled.kept))
        with self._naming("folder.unwritable", f"write {action}"):
            job.sink.write(part, whole.rows, {**whole.kept, **whole.columns}, whole.faults)
        return PartSummary(part, len(whole.rows), len(whole.faults), whole.faults[0] if whole.faults else None)

    def _run_block(self, start: int, stop: int, action: str) -> RowBlock:
        """Run the model on the rows ``start`` to ``stop``. Returns a block of the results and of all faults, ordered by row."""
        with self._naming("job.part", f"read {action}"):
            block = self.job.source.read(start, stop)
        if not len(block.rows):
            # A block of rows that cannot be decoded has no columns.
            return RowBlock(block.rows, faults=block.faults)
        with self._naming("job.part", f"compute {action}"), self._is_computing:
            results = self.job.mapper.run_rows(block.columns, len(block.rows))
        kept = {name: take_rows(values, results.index) for name, values in block.kept.items()}
        located = [self._locate(fault, block) for fault in results.faults]
        faults = sorted([*block.faults, *located], key=lambda fault: fault.row)
        return RowBlock(block.rows[results.index], results.outputs, kept, faults)

    def _locate(self, fault: RowFault, block: RowBlock) -> RowFault:
        """Return a fault with the row number of ``block`` replaced by the row and file of the dataset."""
        row = int(block.rows[fault.row])
        return replace(fault, row=row, file=self.job.source.file_of(row))


def _byte_count(values: Any) -> int:
    return int(values.nbytes) if hasattr(values, "nbytes") else sum(int(value.nbytes) for value in values)


def text_of(error: BaseException) -> str:
    """Return the text of an error, with its file or the name of its class."""
    if isinstance(error, DovetailError):
        return f"{error.message}{f' ({error.file})' if error.file else ''}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure holds the error of a call on a worker. It is returned as a value, because engines pass exceptions differently."""

    error: DovetailError


def call_runner(runner: PartRunner, method: str, *arguments: Any) -> Any:
    """Call a method of ``runner``, and return its result or a Failure."""
    try:
        return getattr(runner, method)(*arguments)
    except DovetailError as error:
        return Failure(error)
    except Exception as error:
        return Failure(EngineError("job.part", f"worker {runner.host} cannot {method}: {text_of(error)}"))
