"""Programs from cache entries: calls with the shapes of the entry run at once; any other use loads the model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from dovetail import native_core
from dovetail.errors import EngineError, FormatError
from dovetail.forks import ForkLock
from dovetail.limits import Limits, default_limits
from dovetail.plan_cache.digest import BufferComparison, bytes_of, digest_of, digest_of_file, map_file, name_of
from dovetail.plan_cache.entry import NotStorable, encode_plan, programs_of, restore_calls
from dovetail.plan_cache.folder import Blob, CacheFolder, Entry
from dovetail.plan_cache.packed_weights import packed_name, write_weights
from dovetail.program import Program, compile_anew
from dovetail.threads import thread_count

if TYPE_CHECKING:
    from dovetail.engine.run.executable import Executable
    from dovetail.ir.graph import Model

LOGGER = logging.getLogger("dovetail")
VERSION = "3"
"""The version of the entries' content."""
MIN_COPY = 1 << 20
"""Bytes of a blob that is compared with the model file rather than covered by the digest."""


class PreparedProgram(Program):
    """A Program that runs the plan of a cache entry. It loads and compiles its model when something else is asked of it."""

    def __init__(self, path: str, digest: bytes, limits: Limits | None, options: dict[str, Any], calls: Any) -> None:
        # The other attributes of a Program are made when they are read first.
        self.engine = "native"
        self.options = options
        self._is_closed = False
        self._stream = None
        self._path = path
        self._digest = digest
        self._limits = limits
        self._lock = ForkLock()
        self._call_fast = calls

    def __getattr__(self, name: str) -> Any:
        if name not in ("model", "_native", "_counts", "_initial_states"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._lock:
            if name in self.__dict__:
                return self.__dict__[name]
            if name == "model":
                self.model = self._load()
            elif self._is_closed:
                return None
            else:
                self._compile()
            return self.__dict__[name]

    def _load(self) -> Model:
        from dovetail.formats import load

        model = load(self._path, limits=self._limits)
        if digest_of_file(self._path) != self._digest:
            raise FormatError("data.changed", "the file was changed since its program was compiled", file=self._path)
        return model

    def _compile(self) -> None:
        prepared = self._call_fast
        program = Program(self.model, "native", **self.options)
        self._native, self._counts, self._initial_states = program._native, program._counts, program._initial_states
        own = program._call_fast
        if own is not None and prepared is not None:
            self._call_fast = lambda *arguments: own(*arguments) or prepared(*arguments)


def compile_with_cache(
    folder: str | os.PathLike[str], path: str, limits: Limits | None, max_memory: int | None, options: dict[str, Any]
) -> Program:
    """Compile the model in the file ``path`` from the cache in ``folder``, or anew, to be written there by the first call."""
    cache = CacheFolder(folder)
    options = {**options, "threads": thread_count(options["threads"])}
    if max_memory is not None:
        limits = replace(limits or default_limits(), memory=max_memory)
    key = CacheKey(path, limits, options)
    return open_program(cache, key, limits, options) or compile_for_cache(cache, key, limits, options)


def compile_for_cache(cache: CacheFolder, key: CacheKey, limits: Limits | None, options: dict[str, Any]) -> Program:
    """Compile a model file anew; the first call of the program writes its plan."""
    from dovetail.formats.files import record_files

    with record_files() as files:
        program = compile_anew(key.path, "native", limits=limits, max_memory=None, **options)
    model = program.model
    # A file with warnings is read anew each time, so that they are logged.
    if not model.warnings and model.limits.seconds is None and program._source is None:
        program._native.plan_recorder = PlanWriter(cache, key, model, files)
    return program


class CacheKey:
    """The name of the entry of a model file for one set of options: everything that its plan depends on."""

    def __init__(self, path: str, limits: Limits | None, options: Mapping[str, Any]) -> None:
        from dovetail import __version__

        core = native_core.core()
        self.path = path
        self.content = map_file(path)
        """The bytes of the file, until the entry is read."""
        self.digest = None if self.content is None else digest_of(self.content)
        built = os.stat(core.__file__) if core is not None and core.__file__ else None
        parts: Sequence[Any] = (
            VERSION, __version__, native_core.build(), built and (built.st_size, built.st_mtime_ns),
            core and core.isa(), core and core.has_amx(), os.environ.get("DOVETAIL_ISA"),
            sorted(options.items()), limits, os.path.splitext(path)[1].lower(),
        )  # fmt: skip
        self.name = name_of([*map(repr, parts), self.digest or b""])


def open_shared_program(
    folder: CacheFolder, key: CacheKey, limits: Limits | None, options: dict[str, Any], *, pack: bool
) -> Program | None:
    """Return the program of a cache entry whose packed weights all processes map; None where there is none that fits.

    ``pack``: pack the weights, and write them, where no process has done so.
    """
    core = native_core.core()
    packed = folder.read(packed_name(key.name))
    if core is None or (packed is None and not pack):
        return None
    weights = core.WeightCache()
    program = open_program(folder, key, limits, options, weights, packed)
    if program is not None and packed is None and write_weights(folder, key.name, weights):
        return open_shared_program(folder, key, limits, options, pack=False) or program
    return program


def open_program(
    folder: CacheFolder,
    key: CacheKey,
    limits: Limits | None,
    options: dict[str, Any],
    weights: Any = None,
    packed: Entry | None = None,
) -> Program | None:
    """Return the program of a cache entry; None where there is none that fits."""
    core = native_core.core()
    content, key.content = key.content or map_file(key.path), None
    if core is None or content is None or key.digest is None:
        return None
    entry = folder.read(key.name, content)
    if entry is None:
        return None
    try:
        if not _are_files_same(entry, key.path):
            return None
        calls = restore_calls(entry, core, options["threads"], (limits or default_limits()).trips, weights, packed)
        if not entry.comparison.is_equal():
            raise ValueError("its weights are not those of the model")
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        LOGGER.info("the cached plan %s is not used: %s", key.name, error)
        return None
    finally:
        entry.comparison.is_equal()
    LOGGER.info("the plan of %s is from the cache", key.path)
    return PreparedProgram(key.path, key.digest, limits, options, calls)


def _are_files_same(entry: Entry, path: str) -> bool:
    """Return whether the other files that the model was read from are as they were."""
    files = entry.header.get("files", [])
    return all(_is_inside(name) and _hex_digest(os.path.join(os.path.dirname(path), name)) == digest for name, digest in files)


def _is_inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in name.replace("\\", "/").split("/")


def _hex_digest(path: str) -> str | None:
    digest = digest_of_file(path)
    return None if digest is None else digest.hex()


class PlanWriter:
    """Writes the plan of a program's first call into the cache, once it and the plans of its subgraphs are verified."""

    def __init__(self, folder: CacheFolder, key: CacheKey, model: Model, files: Sequence[tuple[str, os.stat_result]]) -> None:
        self._folder = folder
        self._key = key
        self._model = model
        self._files = files
        self._graphs: WeakKeyDictionary[Executable, Any] | None = WeakKeyDictionary()

    def record(self, executable: Executable, graph: Any) -> None:
        if (graphs := self._graphs) is not None:
            graphs[executable] = graph

    def finish(self, executable: Executable) -> None:
        graphs, self._graphs = self._graphs, None
        if graphs is not None:
            self._write(executable, graphs)

    def _write(self, executable: Executable, graphs: Mapping[Executable, Any]) -> None:
        from dovetail.engine.plan_verifier import check

        model, key = self._model, self._key
        try:
            header, blobs = encode_plan(executable, model.inputs, model.outputs)
            for each in programs_of(executable):
                if each not in graphs:
                    raise NotStorable
                check(each.plan, graphs[each], each.tensor_map)
            header["files"] = self._other_files()
        except (NotStorable, EngineError, ValueError, MemoryError) as error:
            LOGGER.info("the plan of %s is not cached: %s", key.path, error or "a step runs in Python, or a shape is open")
            return
        # The file that was loaded is that of the key, if it is the same before and after.
        if key.digest is not None and digest_of_file(key.path) == key.digest:
            try:
                self._folder.write(key.name, header, blobs, _sources_of(blobs, self._model, key.path))
            except EngineError as error:
                LOGGER.info("the plan of %s is not cached: %s", key.path, error)

    def _other_files(self) -> list[tuple[str, str]]:
        """Return the name beside the model and the digest of each other file. Raises NotStorable if one was changed."""
        folder = os.path.realpath(os.path.dirname(self._key.path) or os.curdir)
        found: dict[str, str] = {}
        for path, before in self._files:
            if os.path.samefile(path, self._key.path):
                continue
            name = os.path.relpath(os.path.realpath(path), folder)
            digest = _hex_digest(path)
            if not _is_inside(name) or digest is None or _identity(os.stat(path)) != _identity(before):
                raise NotStorable
            found[name] = digest
        return sorted(found.items())


def _sources_of(blobs: Sequence[Blob], model: Model, path: str) -> list[int]:
    """Return for each blob the offset of the same bytes in the model file; -1 for small ones and those that are not there."""
    from dovetail.formats.mapped_files import mapped_constants

    content = map_file(path)
    file = np.frombuffer(content or b"", np.uint8)
    offsets = {_ends_of(bytes_of(data)): offset for data, offset in mapped_constants(model.graph) if data.nbytes >= MIN_COPY}
    sources = []
    for blob in blobs:
        data = bytes_of(blob)
        offset = offsets.get(_ends_of(data), -1) if data.size >= MIN_COPY else -1
        is_equal = offset >= 0 and BufferComparison([(file[offset : offset + data.size], data)]).is_equal()
        sources.append(offset if is_equal else -1)
    return sources


def _ends_of(data: Blob) -> tuple[int, bytes, bytes]:
    """Return the size of an array of bytes, its first bytes and its last ones."""
    return data.size, data[:64].tobytes(), data[-64:].tobytes()


def _identity(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
