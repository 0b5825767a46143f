"""BatchRun: runs a program on rows in batches, and finds the rows for which the model fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dovetail.data.rows.row_columns import Rows
from dovetail.data.rows.row_independence import check_independence
from dovetail.data.rows.row_signature import OUTPUT_REMEDY, RowPort, RowSignature
from dovetail.data.rows.rows import RowFault
from dovetail.data.rows.shared_program import SharedProgram
from dovetail.errors import DovetailError, EngineError

RUN_FAULTS = frozenset({"batch.axis", "batch.rows", "file.changed", "file.missing", "program.closed", "run.memory"})
"""The codes of errors that concern the model or the process instead of a row."""


class BatchRun:
    """BatchRun is one call of ``run_rows``: it runs rows, already converted to the input types, in batches."""

    def __init__(
        self,
        program: SharedProgram,
        signature: RowSignature,
        size: int,
        rows: Mapping[str, Rows],
        index: np.ndarray[Any, Any],
    ) -> None:
        self._program = program
        self._signature = signature
        self._size = size
        self._rows = rows
        self._index = index
        self._count = len(index)
        self._lists = [data for data in rows.values() if isinstance(data, list)]
        # Batches are filled only if all rows have one shape: rows of different shapes would need many filled batches.
        self._is_filled = signature.batch is not None or not self._lists
        self.faults: list[RowFault] = []
        self.failed: list[int] = []
        """The positions in ``index`` of the rows for which the model fails."""

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Run all batches, and return the outputs of the rows that did not fail."""
        results = {port.name: _Output(port, self._count) for port in self._signature.outputs}
        start = self._run_whole_batches(results)
        for batch in self._batches(start):
            self._run_batch(batch, results)
        return {name: result.array(self.failed) for name, result in results.items()}

    def _run_whole_batches(self, results: Mapping[str, _Output]) -> int:
        """Run full batches of contiguous rows without checks and copies. Returns the first row that did not run."""
        size, program = self._size, self._program
        inputs: dict[str, Any] = dict(self._rows)
        if self._lists or size > self._count or not all(data.flags.c_contiguous for data in inputs.values()):
            return 0
        start = 0
        if (size > 1 and not program.is_checked) or any(result.memory is None for result in results.values()):
            self._run_batch(slice(0, size), results)
            start = size
        call = program.call
        while start + size <= self._count and all(result.memory is not None for result in results.values()):
            outputs = {name: result.memory for name, result in results.items()}
            start = self._run_while_good(call, start, inputs, outputs)
            if start + size <= self._count:
                self._run_batch(slice(start, start + size), results)
                start += size
        return start

    def _run_while_good(self, call: Callable[..., Any], start: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> int:
        """Run full batches until the model fails for a batch. Returns the first row that did not run."""
        size = self._size
        for first in range(start, self._count - size + 1, size):
            part = slice(first, first + size)
            try:
                call(
                    {name: data[part] for name, data in inputs.items()}, out={name: rows[part] for name, rows in outputs.items()}
                )
            except DovetailError:
                return first
        return self._count // size * size

    def _batches(self, first: int) -> Iterator[Any]:
        """Yield the rows of each batch: a slice, or a list of row numbers of equal shapes if an input's rows differ in shape."""
        size = self._size
        for start in range(first, self._count, size):
            stop = min(start + size, self._count)
            if not self._lists:
                yield slice(start, stop)
                continue
            groups: dict[Any, list[int]] = {}
            for row in range(start, stop):
                groups.setdefault(tuple(data[row].shape for data in self._lists), []).append(row)
            yield from groups.values()

    def _run_batch(self, batch: slice | list[int], results: Mapping[str, _Output]) -> None:
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

    def _call(self, batch: slice | list[int], count: int, results: Mapping[str, _Output]) -> Mapping[str, Any]:
        inputs = {name: _rows_of(data, batch) for name, data in self._rows.items()}
        size = self._size if self._is_filled else count
        if size > count:
            inputs = {name: _fill(array, size) for name, array in inputs.items()}
        out = None
        if size == count and isinstance(batch, slice):
            out = {name: result.memory[batch] for name, result in results.items() if result.memory is not None} or None
        program = self._program
        try:
            outputs = program(inputs, out)
        except EngineError as error:
            if out is None or error.code != "output.array":
                raise
            # The output's actual shape differs from its declared shape; the check after the next line reports it.
            outputs = program(inputs, None)
        self._check_rows(results, outputs, size)
        if count > 1 and not program.is_checked:
            check_independence(program, inputs, outputs, count, self._signature)
            program.is_checked = True
        return outputs

    @staticmethod
    def _check_rows(names: Iterable[str], outputs: Mapping[str, Any], size: int) -> None:
        for name in names:
            array = outputs[name]
            if not isinstance(array, np.ndarray) or array.ndim == 0 or len(array) != size:
                shape = list(array.shape) if isinstance(array, np.ndarray) else type(array).__name__
                raise EngineError("batch.axis", f"output {name!r} must have {size} rows, got {shape}; {OUTPUT_REMEDY}")


def _part(batch: slice | list[int], half: slice) -> Any:
    rows = range(batch.start, batch.stop)[half] if isinstance(batch, slice) else batch[half]
    return slice(rows.start, rows.stop) if isinstance(rows, range) else rows


def _rows_of(data: Rows, batch: Any) -> np.ndarray[Any, Any]:
    if isinstance(data, list):
        return np.stack([data[row] for row in batch])
    return np.ascontiguousarray(data[batch])


def _fill(array: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Extend an array to ``size`` rows by copies of the last row."""
    filled = np.empty((size, *array.shape[1:]), array.dtype)
    filled[: len(array)] = array
    filled[len(array) :] = array[-1]
    return filled


class _Output:
    """_Output holds the rows of one output: in one array while all rows have one shape, else in a list."""

    def __init__(self, port: RowPort, count: int) -> None:
        self._port = port
        self._count = count
        self.memory = port.empty(count) if port.sizes is not None and port.dtype != "string" else None
        """The array of all rows; it is None if the shape of the rows is unknown."""
        self._rows: list[np.ndarray[Any, Any]] = []
        self._numbers: list[np.ndarray[Any, Any]] = []

    def store(self, batch: slice | list[int], count: int, result: np.ndarray[Any, Any]) -> None:
        """Store the first ``count`` rows of a result, unless they were written in place."""
        if self.memory is None and not self._rows and isinstance(batch, slice) and self._port.dtype != "string":
            self.memory = np.empty((self._count, *result.shape[1:]), result.dtype)
        if self.memory is not None and result.shape[1:] != self.memory.shape[1:]:
            self._collect(batch, result)
        if self.memory is None:
            self._numbers.append(np.arange(batch.start, batch.stop) if isinstance(batch, slice) else np.asarray(batch))
            self._rows.append(result[:count])
        elif not isinstance(batch, slice) or result.ctypes.data != self.memory[batch].ctypes.data:
            self.memory[batch] = result[:count]

    def _collect(self, batch: slice | list[int], result: np.ndarray[Any, Any]) -> None:
        """Change from one array to a list of rows, keeping the rows before ``batch``. Raises EngineError [batch.axis]."""
        assert self.memory is not None
        if self._port.sizes is not None:
            message = f"output {self._port.name!r} must have rows of {self._port}, got the shape {list(result.shape[1:])}"
            raise EngineError("batch.axis", message)
        first = batch.start if isinstance(batch, slice) else batch[0]
        self._rows, self._numbers, self.memory = [self.memory[:first]], [np.arange(first)], None

    def array(self, failed: list[int]) -> np.ndarray[Any, Any]:
        """Return the rows in order, without the failed rows."""
        if self.memory is not None:
            return np.delete(self.memory, failed, axis=0) if failed else self.memory
        if not self._rows:
            return self._port.empty(0)
        numbers = np.concatenate(self._numbers)
        order = np.argsort(numbers, kind="stable")
        order = order[~np.isin(numbers[order], failed)]
        if len({rows.shape[1:] for rows in self._rows}) == 1:
            return np.concatenate(self._rows)[order]
        arrays = np.empty(len(numbers), object)
        for number, row in enumerate(row for rows in self._rows for row in rows):
            arrays[number] = row
        return arrays[order]
