"""Processes of releases: each runs models in one release; a crash or a hang ends that process alone."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir.dtypes import dtype
from dovetail.runtime.releases.environment import PROBE_SECONDS, WORKER, python_of
from dovetail.runtime.releases.release import Release

RUN_SECONDS = 60.0
"""The seconds after which a run counts as hanging."""
LAST_OF_NUMPY = 255
"""The largest type number of numpy's built-in element types; types that other packages register have larger numbers."""


class ReleaseWorker:
    """ReleaseWorker is a process of one release. A process that ends is replaced at the next run."""

    def __init__(self, release: Release, seconds: float) -> None:
        self.release = release
        self.seconds = seconds
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-release-")
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._runs = 0

    def run(self, model: str, inputs: Mapping[str, Any], threads: int | None = None) -> list[Any]:
        """Run the file of a model. Returns the outputs in order.

        Raises EngineError [runtime.run] if the release refuses the model, [runtime.crash] if its process ends, [runtime.timeout].
        """
        request = self._write(model, inputs, threads)
        is_fresh = self._process is None
        try:
            return self._exchange(request)
        except EngineError as error:
            # A process that has run other models may crash by their doing: a new process decides.
            if is_fresh or error.code != "runtime.crash":
                raise
        return self._exchange(request)

    def close(self) -> None:
        """End the process, and remove its files."""
        self._end()
        self._folder.cleanup()

    def _write(self, model: str, inputs: Mapping[str, Any], threads: int | None) -> str:
        entries: list[dict[str, Any]] = []
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for index, (name, item) in enumerate(inputs.items()):
            if not isinstance(item, np.ndarray | np.generic):
                raise EngineError("runtime.run", f"{self.release} gets arrays alone, got {type(item).__name__} for {name!r}")
            array = np.asarray(item, order="C")
            entry: dict[str, Any] = {"name": name, "type": ""}
            if array.dtype.hasobject:
                array = array.astype("U")
            elif array.dtype.kind == "V" or array.dtype.num > LAST_OF_NUMPY:
                kind = dtype(array.dtype)
                entry |= {"type": array.dtype.name, "onnx": kind.onnx, "openvino": str(kind.openvino)}
                array = array.view(f"u{array.dtype.itemsize}")
            entries.append(entry)
            arrays[str(index)] = array
        stored, results = (os.path.join(self._folder.name, name) for name in ("inputs.npz", "outputs.npz"))
        np.savez(stored, **arrays)  # type: ignore[arg-type]
        return json.dumps(
            {"model": os.path.abspath(model), "arrays": stored, "results": results, "inputs": entries, "threads": threads}
        )

    def _exchange(self, request: str) -> list[Any]:
        if self._process is None:
            self._start()
        answer = self._receive(request, self.seconds)
        if "error" in answer:
            raise EngineError("runtime.run", f"{self.release} cannot run the model: {answer['error'][:500]}")
        with np.load(os.path.join(self._folder.name, "outputs.npz"), allow_pickle=False) as stored:
            return [_decode(item, stored) for item in answer["outputs"]]

    def _start(self) -> None:
        command = [python_of(self.release), "-I", str(WORKER), self.release.package]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self._folder.name,
                encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        self._answers = queue.Queue()
        threading.Thread(target=_listen, args=(self._process, self._answers), daemon=True).start()
        # The time of an import is not that of a run.
        self._receive(None, max(self.seconds, PROBE_SECONDS))

    @property
    def _log(self) -> str:
        return os.path.join(self._folder.name, "stderr.txt")

    def _receive(self, request: str | None, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None
        with suppress(OSError):
            if request is not None:
                process.stdin.write(request + "\n")
                process.stdin.flush()
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._end()
            raise EngineError("runtime.timeout", f"{self.release} does not end within {seconds:g} s") from None
        if not line:
            code = process.wait()
            self._end()
            raise EngineError("runtime.crash", f"the process of {self.release} ended with {_describe(code)}{self._last_words()}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _last_words(self) -> str:
        """Return the end of the process's messages, for an error."""
        with open(self._log, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log) - 400))
            text = " ".join(log.read().decode(errors="replace").split())
        return f": {text[-300:]}" if text else ""

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (OSError, AttributeError):
                process.kill()
        process.wait()
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()


_CURRENT: ContextVar[tuple[dict[Release, ReleaseWorker], float] | None] = ContextVar("release_workers", default=None)


@contextmanager
def release_workers(seconds: float = RUN_SECONDS) -> Iterator[None]:
    """Keep the processes of releases between runs, until the outermost block ends. ``seconds`` bounds each run."""
    if _CURRENT.get() is not None:
        yield
        return
    workers: dict[Release, ReleaseWorker] = {}
    token = _CURRENT.set((workers, seconds))
    try:
        yield
    finally:
        _CURRENT.reset(token)
        for worker in workers.values():
            worker.close()


def run_release(release: Release, model: str, inputs: Mapping[str, Any], threads: int | None = None) -> list[Any]:
    """Run the file of a model in a release, in its process. Returns the outputs in order.

    Raises EngineError [runtime.run], [runtime.crash], [runtime.timeout]; UnsupportedError [runtime.missing].
    """
    with release_workers():
        state = _CURRENT.get()
        assert state is not None
        workers, seconds = state
        if release not in workers:
            workers[release] = ReleaseWorker(release, seconds)
        return workers[release].run(model, inputs, threads)


def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
    """Pass the answers of a process on; an empty line when the process ends."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            answers.put(line)
    answers.put("")


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _decode(item: object, stored: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """Return an output from its description: an array, a list or None."""
    if item is None:
        return None
    if isinstance(item, list):
        return [_decode(each, stored) for each in item]
    assert isinstance(item, dict)
    array = stored[item["key"]]
    if array.dtype.kind == "U":
        return array.astype(object)
    return array.view(dtype(item["type"]).numpy) if item["type"] else array
