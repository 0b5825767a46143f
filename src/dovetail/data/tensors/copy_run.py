"""The execution of copy tasks: workers take tasks in the order of the files; a file is renamed after its last task."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock
from typing import BinaryIO

from dovetail.data.tensors.blocks import Scratch, TensorBlocks
from dovetail.data.tensors.copy_tasks import Budget, Task, tasks_of
from dovetail.data.tensors.copy_worker import CopyWorker, write_error
from dovetail.data.tensors.output_files import OutputFile, nbytes_of
from dovetail.data.tensors.tensor_sets import StoredTensor, TensorFile
from dovetail.errors import DovetailError, EngineError, FormatError
from dovetail.ops.tensor.transpose_expand_tile import strides_of
from dovetail.storage.atomic_write import replace_file


@dataclass
class _OpenFile:
    """_OpenFile is a file that is being written.

    ``pending`` is the number of tasks of the file that workers are executing. ``is_exhausted`` is true once workers have taken
    all tasks of the file.
    """

    file: OutputFile
    descriptor: int
    finish: Callable[[], None]
    pending: int = 0
    is_exhausted: bool = False


@dataclass
class CopyRun:
    """CopyRun holds workers, each with buffers of ``budget`` bytes, and the files of scratch tensors in ``folder``.

    With ``is_uncached`` the pages of files are dropped from the page cache after they are copied.
    """

    folder: str
    budget: Budget
    threads: int
    sources: Sequence[TensorFile]
    is_uncached: bool = False
    written: int = 0
    _scratch: dict[Scratch, StoredTensor] = field(default_factory=dict)
    _streams: ExitStack = field(default_factory=ExitStack)
    _workers: list[CopyWorker] = field(default_factory=list)

    def __enter__(self) -> CopyRun:
        self._workers = [CopyWorker(self.budget, self._resolve, is_uncached=self.is_uncached) for _ in range(self.threads)]
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.close()
        self._workers.clear()

    def _resolve(self, source: StoredTensor | Scratch) -> StoredTensor:
        return self._scratch[source] if isinstance(source, Scratch) else source

    def write_scratch(self, scratch: Scratch, tensor: TensorBlocks) -> None:
        """Write a scratch tensor into an unnamed temporary file, which is removed when the process ends."""
        size = nbytes_of(tensor)
        try:
            stream = self._streams.enter_context(tempfile.TemporaryFile(dir=self.folder))  # noqa: SIM115
            os.ftruncate(stream.fileno(), size)
        except OSError as error:
            raise write_error(error) from None
        opened = _OpenFile(OutputFile("", b"", size, [(tensor, 0)]), stream.fileno(), lambda: None)
        self._run(iter([opened]))
        file = TensorFile("a scratch file", stream.fileno(), os.fstat(stream.fileno()))
        self._scratch[scratch] = StoredTensor(scratch.name, scratch.dtype, scratch.shape, file, 0, strides_of(scratch.shape))

    def write_files(self, files: Sequence[OutputFile]) -> None:
        """Write files under temporary names; each file is flushed to the disk and renamed when it is complete."""
        with ExitStack() as stack:
            self._run(self._open(stack, file) for file in files)

    def _open(self, stack: ExitStack, file: OutputFile) -> _OpenFile:
        draft = ExitStack()
        stack.push(draft.__exit__)
        stream: BinaryIO = draft.enter_context(replace_file(os.path.join(self.folder, file.name)))
        try:
            os.ftruncate(stream.fileno(), file.size)
            os.pwrite(stream.fileno(), file.header, 0)
        except OSError as error:
            raise write_error(error) from None

        def finish() -> None:
            for source in self.sources:
                source.refuse_changes()
            try:
                draft.close()
            except FormatError as error:
                raise EngineError("folder.unwritable", error.message, file=error.file) from None

        return _OpenFile(file, stream.fileno(), finish)

    def _run(self, files: Iterator[_OpenFile]) -> None:
        queue = _Queue(files, self.budget)
        with ThreadPoolExecutor(len(self._workers)) as executor:
            futures = [executor.submit(self._work, worker, queue) for worker in self._workers]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                queue.stop()
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        for error in sorted(errors, key=lambda error: not isinstance(error, DovetailError)):
            raise error

    def _work(self, worker: CopyWorker, queue: _Queue) -> None:
        while (item := queue.take()) is not None:
            opened, task, offset, itemsize = item
            count = worker.execute(task, opened.descriptor, offset, itemsize)
            queue.done(opened)
            with queue.lock:
                self.written += count


class _Queue:
    """_Queue holds the tasks of all files, which several workers take one by one."""

    def __init__(self, files: Iterator[_OpenFile], budget: Budget) -> None:
        self.lock = Lock()
        self._items = self._all(files, budget)
        self._is_stopped = False

    def _all(self, files: Iterator[_OpenFile], budget: Budget) -> Iterator[tuple[_OpenFile, Task | None, int, int]]:
        for opened in files:
            for tensor, offset in opened.file.tensors:
                for task in tasks_of(tensor, budget):
                    yield opened, task, offset, tensor.dtype.numpy.itemsize
            yield opened, None, 0, 0

    def take(self) -> tuple[_OpenFile, Task, int, int] | None:
        """Return the next task; None after the last one, or when the run was stopped."""
        while True:
            with self.lock:
                item = None if self._is_stopped else next(self._items, None)
                if item is None:
                    return None
                opened, task, offset, itemsize = item
                if task is not None:
                    opened.pending += 1
                    return opened, task, offset, itemsize
                opened.is_exhausted = True
                is_complete = not opened.pending
            if is_complete:
                opened.finish()

    def done(self, opened: _OpenFile) -> None:
        """Record that a task of a file was executed, and finish the file after its last task."""
        with self.lock:
            opened.pending -= 1
            is_complete = opened.is_exhausted and not opened.pending
        if is_complete:
            opened.finish()

    def stop(self) -> None:
        with self.lock:
            self._is_stopped = True
