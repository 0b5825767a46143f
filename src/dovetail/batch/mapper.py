"""Mapper: a model as a picklable function of tables of rows, for Ray Data, Dask, Spark and concurrent.futures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.batch.row_columns import Rows, fit_columns
from dovetail.batch.row_independence import check_independence
from dovetail.batch.row_signature import REMEDY, RowSignature
from dovetail.batch.rows import RowFault
from dovetail.batch.shared_program import ModelContent, ProgramOptions, SharedProgram, default_cache_dir, shared_program
from dovetail.batch.worker_threads import worker_thread_count
from dovetail.errors import DovetailError, EngineError, RuleError
from dovetail.limits import Limits

if TYPE_CHECKING:
    from dovetail.ir.graph import Model

RUN_FAULTS = frozenset({"batch.axis", "batch.rows", "data.changed", "file.missing", "program.closed", "run.memory"})
"""The codes of errors that concern the model or the process, and no row."""


@dataclass(frozen=True)
class RowResults:
    """The results of ``Mapper.run_rows``.

    ``outputs`` has a row for each number in ``index``, in ascending order; ``faults`` has the other rows. An output whose shape
    differs from row to row is an array of objects, one array for each row.
    """

    outputs: dict[str, np.ndarray[Any, Any]]
    index: np.ndarray[Any, Any]
    faults: list[RowFault]


class Mapper:
    """A model as a picklable function of rows: the leading axis of each input and output is the rows of a batch.

    ``mapper(rows)`` returns what it takes: a dict of arrays, a pandas DataFrame, a pyarrow Table or RecordBatch, an array (one
    input and one output), or an iterator of RecordBatches. ``columns`` maps inputs to columns, by default of the same names;
    the columns ``keep`` are passed through. ``batch``: the rows of a run, unless the model fixes them; a shorter batch is filled
    with copies of its last row where the sizes of a row are fixed. Values are converted without loss, or rounded with ``cast``.

    ``threads``: by default one where an engine runs a worker for each core, else all that the process may use. A process
    compiles equal models with equal options once. ``cache_dir``: the folder of plans that the processes of a host share;
    "auto" is one in the temporary folder, None is none. ``model``: a path, which each process opens, or a Model.

    Raises EngineError [batch.axis] for a model without a batch axis, [batch.option], and the errors of ``load``.
    """

    def __init__(
        self,
        model: Model | str | PathLike[str],
        *,
        batch: int = 64,
        threads: int | None = None,
        columns: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        cast: bool = False,
        limits: Limits | None = None,
        cache_dir: str | PathLike[str] | None = "auto",
    ) -> None:
        from dovetail.batch.model_content import read_model

        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise EngineError("batch.option", f"batch must be an integer of at least 1, got {batch!r}")
        if isinstance(keep, str):
            raise EngineError("batch.option", f"keep must be a list of names of columns, got {keep!r}")
        self.threads = threads
        self.keep = tuple(keep)
        self.cast = cast
        self.limits = limits
        self.cache_dir = None if cache_dir is None else os.fspath(cache_dir)
        if threads is not None:
            worker_thread_count(threads)
        self._content: ModelContent
        self.signature: RowSignature
        self._content, self.signature = read_model(model, limits, self._cache_folder)
        self.batch = self.signature.batch or batch
        self.columns = self._column_names(columns or {})

    def _column_names(self, columns: Mapping[str, str]) -> dict[str, str]:
        names = [port.name for port in self.signature.inputs]
        unknown = [name for name in columns if name not in names]
        if unknown:
            message = (
                f"columns maps inputs to columns: the model has no input {unknown[0]!r}; it has {', '.join(map(repr, names))}"
            )
            raise EngineError("batch.column", message)
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
    def files(self) -> dict[str, str]:
        """The digest of each file of the model, by its name beside the model; empty for a Model."""
        return dict(self._content.files)

    @property
    def path(self) -> str | None:
        """The path of the model's file; None for a Model."""
        return self._content.path

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "program"}

    @cached_property
    def program(self) -> SharedProgram:
        """The program of this process, which compiles in its first call."""
        options = ProgramOptions(worker_thread_count(self.threads), self.limits, self._cache_folder)
        return shared_program(self._content, options)

    def compile(self) -> None:
        """Compile the program of this process, as the first call does; with a run of zeros where the sizes of a row are fixed.

        Raises FormatError [file.missing] and [data.changed] where the model's files are not those of the mapper's creation.
        """
        ports = self.signature.inputs
        zeros = {port.name: port.zeros(self.batch) for port in ports} if all(port.sizes is not None for port in ports) else None
        try:
            self.program.compile(zeros)
        except DovetailError as error:
            # Zeros need not be valid inputs.
            if error.code in RUN_FAULTS or not isinstance(error, EngineError | RuleError):
                raise

    def __call__(self, rows: Any) -> Any:
        """Return the results of a table of rows as a table of the same kind. Raises EngineError for a row at fault."""
        from dovetail.batch.tables import map_table

        return map_table(self._run_all, rows, self.signature, self.columns, self.keep)

    def _run_all(self, columns: Mapping[str, Any], count: int) -> dict[str, np.ndarray[Any, Any]]:
        results = self.run_rows(columns, count)
        if results.faults:
            first = results.faults[0]
            more = f" ({len(results.faults) - 1} more rows have faults)" if len(results.faults) > 1 else ""
            raise EngineError(first.code, f"row {first.row}: {first.message}{more}")
        return results.outputs

    def run_rows(self, columns: Mapping[str, Any], count: int) -> RowResults:
        """Run the model on ``count`` rows, in batches, and return results and faults of rows.

        A column is an array with the rows on its leading axis, or a list of arrays. A row with a missing value, or of another
        shape or type, is a fault; so is a row for which the model fails. Rows of different shapes run in batches of equal shapes.

        Raises EngineError [batch.column], [batch.count], [batch.axis], and errors that concern no row, such as [run.memory].
        """
        rows, faults = fit_columns(columns, self.signature.inputs, self.columns, count, self.cast)
        index = np.arange(count)
        if faults:
            index = np.delete(index, [fault.row for fault in faults])
            rows = {name: _select(data, index) for name, data in rows.items()}
        run = _BatchRun(self, rows, index)
        outputs = run.outputs()
        if run.faults:
            index = np.delete(index, run.failed)
            faults = sorted([*faults, *run.faults], key=lambda fault: fault.row)
        return RowResults(outputs, index, faults)


def _select(data: Rows, index: np.ndarray[Any, Any]) -> Rows:
    return data[index] if isinstance(data, np.ndarray) else [data[row] for row in index]


class _BatchRun:
    """One call of ``run_rows``: rows that fit the inputs, in batches."""

    def __init__(self, mapper: Mapper, rows: Mapping[str, Rows], index: np.ndarray[Any, Any]) -> None:
        self._mapper = mapper
        self._rows = rows
        self._index = index
        self._count = len(index)
        self._lists = [data for data in rows.values() if isinstance(data, list)]
        # Rows of different shapes have few equals.
        self._is_filled = mapper.signature.batch is not None or not self._lists
        self.faults: list[RowFault] = []
        self.failed: list[int] = []
        """The positions in ``index`` of rows for which the model fails."""

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Run all batches, and return the outputs of the rows that did not fail."""
        results = {port.name: _Output(port, self._count) for port in self._mapper.signature.outputs}
        start = self._run_whole_batches(results)
        for batch in self._batches(start):
            self._run_batch(batch, results)
        return {name: result.array(self.failed) for name, result in results.items()}

    def _run_whole_batches(self, results: Mapping[str, _Output]) -> int:
        """Run the batches of contiguous rows that need neither checks nor copies. Returns the first row that did not run."""
        size, program = self._mapper.batch, self._mapper.program
        inputs: dict[str, Any] = dict(self._rows)
        outputs = {name: result.memory for name, result in results.items()}
        if (size > 1 and not program.is_checked) or self._lists or not all(data.flags.c_contiguous for data in inputs.values()):
            return 0
        if any(memory is None for memory in outputs.values()):
            return 0
        call = program.call
        for start in range(0, self._count - size + 1, size):
            part = slice(start, start + size)
            try:
                call(
                    {name: data[part] for name, data in inputs.items()},
                    out={name: memory[part] for name, memory in outputs.items()},  # type: ignore[index]
                )
            except DovetailError:
                # The batch runs again, row by row.
                self._run_batch(part, results)
        return self._count // size * size

    def _batches(self, first: int) -> Iterator[Any]:
        """Yield the rows of each batch: a slice, or a list of numbers where shapes differ."""
        size = self._mapper.batch
        for start in range(first, self._count, size):
            stop = min(start + size, self._count)
            if not self._lists:
                yield slice(start, stop)
                continue
            groups: dict[Any, list[int]] = {}
            for row in range(start, stop):
                groups.setdefault(tuple(data[row].shape for data in self._lists), []).append(row)
            yield from groups.values()

    def _run_batch(self, batch: Any, results: Mapping[str, _Output]) -> None:
        count = batch.stop - batch.start if isinstance(batch, slice) else len(batch)
        try:
            outputs = self._call(batch, count, results)
        except DovetailError as error:
            if error.code in RUN_FAULTS:
                raise
            if count > 1:
                middle = count // 2
                for half in (slice(None, middle), slice(middle, None)):
                    self._run_batch(_part(batch, half), results)
                return
            position = batch.start if isinstance(batch, slice) else batch[0]
            self.failed.append(position)
            self.faults.append(RowFault(int(self._index[position]), error.code, error.message))
            return
        for name, result in results.items():
            result.store(batch, count, outputs[name])

    def _call(self, batch: Any, count: int, results: Mapping[str, _Output]) -> Mapping[str, Any]:
        mapper = self._mapper
        inputs = {name: _rows_of(data, batch) for name, data in self._rows.items()}
        size = mapper.batch if self._is_filled else count
        if size > count:
            inputs = {name: _fill(array, size) for name, array in inputs.items()}
        out = None
        if size == count and isinstance(batch, slice):
            out = {name: result.memory[batch] for name, result in results.items() if result.memory is not None} or None
        program = mapper.program
        try:
            outputs = program(inputs, out)
        except EngineError as error:
            if out is None or error.code != "output.array":
                raise
            # The model does not keep to its output's declared shape, which the next line reports.
            outputs = program(inputs, None)
        self._check_rows(results, outputs, size)
        if count > 1 and not program.is_checked:
            check_independence(program, inputs, outputs, count, mapper.signature)
            program.is_checked = True
        return outputs

    @staticmethod
    def _check_rows(names: Iterable[str], outputs: Mapping[str, Any], size: int) -> None:
        for name in names:
            array = outputs[name]
            if not isinstance(array, np.ndarray) or array.ndim == 0 or len(array) != size:
                shape = list(array.shape) if isinstance(array, np.ndarray) else type(array).__name__
                raise EngineError("batch.axis", f"output {name!r} must have {size} rows, got {shape}; {REMEDY}")


def _part(batch: Any, half: slice) -> Any:
    rows = range(batch.start, batch.stop)[half] if isinstance(batch, slice) else batch[half]
    return slice(rows.start, rows.stop) if isinstance(rows, range) else rows


def _rows_of(data: Rows, batch: Any) -> np.ndarray[Any, Any]:
    if isinstance(data, list):
        return np.stack([data[row] for row in batch])
    return np.ascontiguousarray(data[batch])


def _fill(array: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Return the rows with copies of the last one, ``size`` in all."""
    filled = np.empty((size, *array.shape[1:]), array.dtype)
    filled[: len(array)] = array
    filled[len(array) :] = array[-1]
    return filled


class _Output:
    """The rows of one output: written in place where the shape of a row is fixed, else collected."""

    def __init__(self, port: Any, count: int) -> None:
        self._port = port
        self._count = count
        is_fixed = port.sizes is not None and port.dtype != "string"
        self.memory = port.empty(count) if is_fixed else None
        """The rows, if their shape is fixed."""
        self._rows: list[Any] = []
        self._numbers: list[Any] = []

    def store(self, batch: Any, count: int, result: np.ndarray[Any, Any]) -> None:
        """Store the first ``count`` rows of a result, unless they were written in place."""
        if self.memory is not None:
            if result.shape[1:] != self.memory.shape[1:]:
                message = f"output {self._port.name!r} must have rows of {self._port}, got the shape {list(result.shape[1:])}"
                raise EngineError("batch.axis", message)
            if result.ctypes.data != self.memory[batch].ctypes.data or not isinstance(batch, slice):
                self.memory[batch] = result[:count]
            return
        self._numbers.append(np.arange(batch.start, batch.stop) if isinstance(batch, slice) else np.asarray(batch))
        self._rows.append(result[:count])

    def array(self, failed: list[int]) -> np.ndarray[Any, Any]:
        """Return all rows but those that failed."""
        if self.memory is not None:
            return np.delete(self.memory, failed, axis=0) if failed else self.memory
        if not self._rows:
            return self._port.empty(0)  # type: ignore[no-any-return]
        numbers = np.concatenate(self._numbers)
        order = np.argsort(numbers, kind="stable")
        if len({rows.shape[1:] for rows in self._rows}) == 1:
            return np.concatenate(self._rows)[order]
        arrays = np.empty(len(numbers), object)
        for number, row in enumerate(row for rows in self._rows for row in rows):
            arrays[number] = row
        return arrays[order]
