"""Mapper: a model as a picklable function of tables, for Ray Data, Dask, Spark and concurrent.futures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.data.rows.batch_run import RUN_FAULTS, BatchRun
from dovetail.data.rows.constants import Constants
from dovetail.data.rows.row_columns import Rows, fit_columns
from dovetail.data.rows.row_signature import RowSignature
from dovetail.data.rows.rows import RowFault
from dovetail.data.rows.shared_program import ModelContent, ProgramOptions, SharedProgram, default_cache_dir, shared_program
from dovetail.data.rows.worker_threads import worker_thread_count
from dovetail.errors import DovetailError, EngineError, RuleError, printable
from dovetail.ir.limits import Limits, default_limits, refuse_memory, within_memory
from dovetail.ir.suggestions import check_keywords, closest

if TYPE_CHECKING:
    from dovetail.ir.graph import Model


MAX_BATCH = 1 << 20
"""The maximum number of rows of a batch; a call with fewer rows than a batch is filled up to a batch."""


@dataclass(frozen=True)
class RowResults:
    """RowResults holds the results of ``Mapper.run_rows``.

    Each output has one row for each row number in ``index``, in ascending order; ``faults`` lists the other rows. An output whose
    rows have different shapes is an array of objects, one array for each row.
    """

    outputs: dict[str, np.ndarray[Any, Any]]
    index: np.ndarray[Any, Any]
    faults: list[RowFault]


@check_keywords
class Mapper:
    """Mapper is a model as a picklable function of rows: the leading axis of each input and output is the batch axis.

    ``mapper(rows)`` returns a table of the same kind as ``rows``: a dict of arrays, a pandas DataFrame, a pyarrow Table or
    RecordBatch, an array (one input and one output), or an iterator of RecordBatches.

    - ``columns`` maps inputs to columns, by default to the columns of the same names; the columns ``keep`` are passed through.
    - ``constants`` holds values, of any shape, for inputs that are the same for all rows.
    - ``batch`` is the number of rows of a run, unless the model has a fixed batch size. If the sizes of a row are fixed, a
      shorter batch is filled with copies of its last row.
    - ``cast`` allows rounding; without it, values are only converted without loss.
    - ``threads`` is by default 1 if an engine runs a worker for each core, else the number of processors of the process.
    - ``precision`` is the option of :func:`compile`; "auto" is decided by the processor of this process, for all workers.
    - ``cache_dir`` is the folder of plans that the processes of a host share. "auto" is a folder in the temporary folder; None
      disables the cache.
    - ``model`` is a path, which each process opens, or a Model. A process compiles equal models with equal options once.

    Raises EngineError [batch.axis] for a model without a batch axis, [batch.constant], [argument.value]; and the errors of
    ``load``.
    """

    def __init__(
        self,
        model: Model | str | PathLike[str],
        *,
        batch: int = 64,
        threads: int | None = None,
        columns: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        constants: Mapping[str, Any] | None = None,
        cast: bool = False,
        limits: Limits | None = None,
        cache_dir: str | PathLike[str] | None = "auto",
        precision: str | None = None,
    ) -> None:
        # Deferred: a worker that starts from a plan compiles nothing.
        from dovetail.data.rows.model_content import read_model
        from dovetail.runtime.compilation import precision_of

        if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MAX_BATCH:
            raise EngineError("argument.value", f"batch must be an integer from 1 to {MAX_BATCH}, got {batch!r}")
        if columns is not None and not isinstance(columns, Mapping):
            raise EngineError("argument.value", f"columns must map inputs to columns, got {columns!r}")
        if constants is not None and not isinstance(constants, Mapping):
            raise EngineError("argument.value", f"constants must map inputs to values, got {constants!r}")
        if isinstance(keep, str):
            raise EngineError("argument.value", f"keep must be a list of names of columns, got {keep!r}")
        self.threads = threads
        self.precision = precision_of(precision, "auto")
        self.keep = tuple(keep)
        self.cast = cast
        self.limits = limits
        self.cache_dir = None if cache_dir is None else os.fspath(cache_dir)
        if threads is not None:
            worker_thread_count(threads)
        self._content: ModelContent
        self.signature: RowSignature
        self._constants: Constants
        self._content, self.signature, self._constants = read_model(model, limits, constants or {}, cast)
        self.batch = self.signature.batch or batch
        self.columns = self._column_names(columns or {})
        self.has_named_columns = bool(columns)

    def _column_names(self, columns: Mapping[str, str]) -> dict[str, str]:
        names = [port.name for port in self.signature.inputs]
        both = self._constants.arrays.keys() & set(columns)
        if both:
            raise EngineError("batch.constant", f"an input must have a column or a constant, got both for {min(both)!r}")
        unknown = [name for name in columns if name not in names]
        if unknown:
            message = f"columns must map inputs to columns, got {unknown[0]!r}; the inputs are {', '.join(map(repr, names))}"
            raise EngineError("batch.column", message + closest(unknown[0], names))
        taken = {port.name for port in self.signature.outputs} & set(self.keep)
        if taken:
            raise EngineError("batch.column", f"a column of keep must not have the name of an output, got {min(taken)!r}")
        return {name: columns.get(name, name) for name in names}

    @property
    def _cache_folder(self) -> str | None:
        return default_cache_dir() if self.cache_dir == "auto" else self.cache_dir

    @property
    def digest(self) -> str:
        """The digest of the model's content, in hexadecimal."""
        return self._content.digest

    @property
    def constants(self) -> dict[str, np.ndarray[Any, Any]]:
        """The values of the constant inputs by name, in the model's input types."""
        return dict(self._constants.arrays)

    @property
    def constant_texts(self) -> dict[str, str]:
        """The text of each constant by name: type, shape, and the values or their digest."""
        return self._constants.record

    @property
    def files(self) -> dict[str, str]:
        """The digest of each file of the model, by the path relative to the model's folder; empty for a Model."""
        return dict(self._content.files)

    @property
    def path(self) -> str | None:
        """The path of the model's file; None for a Model."""
        return self._content.path

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "program"}

    @cached_property
    def program(self) -> SharedProgram:
        """The program of this process, which is compiled in its first call."""
        options = ProgramOptions(
            worker_thread_count(self.threads),
            self.limits,
            self._cache_folder,
            self._constants,
            self.signature.maps,
            self.precision,
        )
        return shared_program(self._content, options)

    def compile(self) -> None:
        """Compile the program of this process before its first call; if the sizes of a row are fixed, also run it on zeros.

        Raises FormatError [file.missing] and [file.changed] if the model's files have changed since the mapper was created.
        """
        ports = self.signature.inputs
        zeros = {port.name: port.zeros(self.batch) for port in ports} if all(port.sizes is not None for port in ports) else None
        try:
            self.program.compile(zeros)
        except DovetailError as error:
            # Errors of the run are ignored, because zeros may be invalid inputs.
            if error.code in RUN_FAULTS or not isinstance(error, EngineError | RuleError):
                raise

    def __call__(self, rows: Any) -> Any:
        """Run the model on a table, and return the results as a table of the same kind. Raises EngineError for a row at fault."""
        from dovetail.data.rows.tables import map_table

        return map_table(self._run_all, rows, self.signature, self.columns, self.keep)

    def _run_all(self, columns: Mapping[str, Any], count: int) -> dict[str, np.ndarray[Any, Any]]:
        results = self.run_rows(columns, count)
        if results.faults:
            first = results.faults[0]
            more = f" ({len(results.faults) - 1} more rows have faults)" if len(results.faults) > 1 else ""
            raise EngineError(first.code, f"row {first.row}: {first.message}{more}")
        return results.outputs

    def __repr__(self) -> str:
        ports = [", ".join(f"{port.name}: {port}" for port in ports) for ports in (self.signature.inputs, self.signature.outputs)]
        return printable(f"<Mapper of {self.path or 'a Model'}, batch {self.batch}: ({ports[0]}) -> {ports[1]}>")

    def run_rows(self, columns: Mapping[str, Any], count: int) -> RowResults:
        """Run the model on ``count`` rows, in batches, and return the results and the faults of rows.

        A column is an array with a leading axis of rows, or a list of arrays. A row with a missing value, an unsuitable shape or
        type, or for which the model fails is a fault. Rows of different shapes run in batches of equal shapes. Raises EngineError
        [batch.column], [batch.table], [batch.axis], and errors that concern the whole call, such as [run.memory].
        """
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise EngineError("batch.table", f"the number of rows must be an integer of at least 0, got {count!r}")
        rows, faults = fit_columns(columns, self.signature.inputs, self.columns, count, self.cast)
        index = np.arange(count)
        if faults:
            index = np.delete(index, [fault.row for fault in faults])
            rows = {name: _select(data, index) for name, data in rows.items()}
        if 0 < len(index) < self.batch:
            row_bytes = sum(data[:1].nbytes for data in rows.values() if isinstance(data, np.ndarray))
            refuse_memory(self.limits or default_limits(), row_bytes * self.batch, f"a batch of {self.batch} rows")
        run = BatchRun(self.program, self.signature, self.batch, rows, index)
        with within_memory("the results", self.path):
            outputs = run.outputs()
        if run.faults:
            index = np.delete(index, run.failed)
            faults = sorted([*faults, *run.faults], key=lambda fault: fault.row)
        return RowResults(outputs, index, faults)


def _select(data: Rows, index: np.ndarray[Any, Any]) -> Rows:
    return data[index] if isinstance(data, np.ndarray) else [data[row] for row in index]
