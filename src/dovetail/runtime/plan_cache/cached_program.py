"""Programs from cache entries: calls with the shapes of the entry run without the model; any other use loads the model."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from dovetail.errors import EngineError, FormatError
from dovetail.ir.host import native_core
from dovetail.ir.host.forks import ForkLock
from dovetail.ir.limits import Limits, default_limits
from dovetail.runtime.native_program import NativeProgram
from dovetail.runtime.plan_cache.entry import NotStorable, encode_plan, encode_range, programs_of, restore_calls
from dovetail.runtime.plan_cache.packed_weights import packed_name, write_weights
from dovetail.runtime.program import Program, Statistics
from dovetail.storage.cache_folder import Blob, CacheFolder, Entry
from dovetail.storage.digest import BufferComparison, bytes_of, digest_of, digest_of_file, map_file, name_of

if TYPE_CHECKING:
    from dovetail.engine.parametric_plan import ParametricPlan
    from dovetail.engine.run.executable import Executable
    from dovetail.ir.graph import Model
    from dovetail.ir.results import Results

LOGGER = logging.getLogger("dovetail")
VERSION = "7"
"""The version of the format of cache entries."""
MIN_COPY = 1 << 20
"""The minimum bytes of a blob for which a comparison with the model file replaces the digest of the entry."""


class CachedProgram(Program):
    """CachedProgram is a Program that runs the plans of a cache entry.

    It loads and compiles its model for calls and attributes that the entry does not support. Parametric plans of the compiled
    model are then written to the cache and replace the entry.
    """

    def __init__(self, folder: CacheFolder, key: CacheKey, limits: Limits | None, options: Mapping[str, Any], calls: Any) -> None:
        super().__init__("native", options)
        self._folder = folder
        self._key = key
        self._limits = limits
        self._files: Sequence[tuple[str, os.stat_result]] = ()
        self._lock = ForkLock()
        self._call_fast = calls
        self._loaded: Model | None = None
        self._compiled: NativeProgram | None = None

    @property
    def model(self) -> Model:
        with self._lock:
            if self._compiled is not None:
                return self._compiled.model
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    @property
    def has_model(self) -> bool:
        """True if the model was loaded. A call loads it if the cached entry has no plan for the sizes of the inputs."""
        return self._loaded is not None

    def _load(self) -> Model:
        from dovetail.formats import load
        from dovetail.storage.files import record_files

        path = self._key.path
        with record_files() as self._files:
            model = load(path, limits=self._limits)
        if digest_of_file(path) != self._key.digest:
            raise FormatError("file.changed", "the file was changed since its program was compiled", file=path)
        return model

    def _compile(self) -> NativeProgram:
        """Compile the model once, and return its program, which runs the calls that the cache entry does not support."""
        model = self.model
        with self._lock:
            if self._compiled is None:
                compiled = NativeProgram(model, **self.options)
                compiled.record_plans(PlanWriter(self._folder, self._key, model, self._files, waits_for_range=True))
                own, prepared = compiled.call_fast, self._call_fast
                if own is not None and prepared is not None:
                    self._call_fast = lambda *arguments: own(*arguments) or prepared(*arguments)
                self._compiled = compiled
            return self._compiled

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Do nothing: a program from the cache keeps the plans of its entry."""

    def _run_open(
        self, inputs: tuple[Any, ...], by_name: dict[str, Any], out: Mapping[str, Any] | Sequence[Any] | None
    ) -> Results:
        return self._compile()._run_open(inputs, by_name, out)

    @property
    def _threads(self) -> int:
        return int(self.options["threads"])

    def _call_in_one_thread(self) -> Callable[[Any], Results]:
        return self if self._threads == 1 else self._compile()._call_in_one_thread()

    @property
    def statistics(self) -> Statistics:
        return Statistics() if self._compiled is None else self._compiled.statistics

    def close(self) -> None:
        super().close()
        if self._compiled is not None:
            self._compiled.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._compile().__reduce__()


class CacheKey:
    """CacheKey names the entry of a model file for one set of options: a digest of all data that the plan depends on."""

    def __init__(self, path: str, limits: Limits | None, options: Mapping[str, Any]) -> None:
        from dovetail import __version__

        core = native_core.core()
        self.path = path
        self.content = map_file(path)
        """The bytes of the model file; None once the cache entry was read."""
        self.digest = None if self.content is None else digest_of(self.content)
        built = os.stat(core.__file__) if core is not None and core.__file__ else None
        parts: Sequence[Any] = (
            VERSION, __version__, native_core.build(), built and (built.st_size, built.st_mtime_ns),
            core and core.isa(), core and core.has_amx(), core and core.has_bf16(), os.environ.get("DOVETAIL_ISA"),
            sorted(options.items()), limits, os.path.splitext(path)[1].lower(),
        )  # fmt: skip
        self.name = name_of([*map(repr, parts), self.digest or b""])


def open_shared_program(
    folder: CacheFolder, key: CacheKey, limits: Limits | None, options: dict[str, Any], *, pack: bool
) -> Program | None:
    """Return the program of a cache entry whose packed weights all processes map; None without a valid entry.

    ``pack``: pack and write the weights if no process has written packed weights.
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
    """Return the program of a cache entry; None without a valid entry."""
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
        calls = restore_calls(entry, core, options["threads"], limits or default_limits(), weights, packed)
        if not entry.comparison.is_equal():
            raise ValueError("the weights of the entry differ from those of the model")
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        LOGGER.info("the cached plan %s is not used: %s", key.name, error)
        return None
    finally:
        entry.comparison.is_equal()
    LOGGER.info("the plan of %s is from the cache", key.path)
    return CachedProgram(folder, key, limits, options, calls)


def _are_files_same(entry: Entry, path: str) -> bool:
    """Return whether the further files that the model was read from have the digests that the entry stores."""
    files = entry.header.get("files", [])
    return all(_is_inside(name) and _hex_digest(os.path.join(os.path.dirname(path), name)) == digest for name, digest in files)


def _is_inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in name.replace("\\", "/").split("/")


def _hex_digest(path: str) -> str | None:
    digest = digest_of_file(path)
    return None if digest is None else digest.hex()


class PlanWriter:
    """PlanWriter writes the plan of a program's first call to the cache, after verifying it and the plans of its subgraphs.

    Parametric plans that the program makes later are added to the entry. ``waits_for_range``: the entry is written only when the
    first parametric plan exists.
    """

    def __init__(
        self,
        folder: CacheFolder,
        key: CacheKey,
        model: Model,
        files: Sequence[tuple[str, os.stat_result]],
        *,
        waits_for_range: bool = False,
    ) -> None:
        self._folder = folder
        self._key = key
        self._model = model
        self._files = files
        self._waits_for_range = waits_for_range
        self._graphs: WeakKeyDictionary[Executable, Any] | None = WeakKeyDictionary()
        self._header: dict[str, Any] | None = None
        self._blobs: list[Blob] = []

    def record(self, executable: Executable, graph: Any) -> None:
        if (graphs := self._graphs) is not None:
            graphs[executable] = graph

    def finish(self, executable: Executable) -> None:
        graphs, self._graphs = self._graphs, None
        if graphs is not None:
            self._write_first(executable, graphs)

    def add_range(self, plan: ParametricPlan) -> None:
        if self._header is None:
            return
        try:
            ranges = [*self._header.get("ranges", ()), encode_range(plan, self._blobs)]
        except (NotStorable, ValueError, MemoryError):
            return
        self._header["ranges"] = ranges
        self._write()

    def _write_first(self, executable: Executable, graphs: Mapping[Executable, Any]) -> None:
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
            LOGGER.info("the plan of %s is not cached: %s", key.path, error or "a step runs in Python, or a shape is dynamic")
            return
        self._header, self._blobs = header, blobs
        if not self._waits_for_range:
            self._write()

    def _write(self) -> None:
        assert self._header is not None
        # The key has the digest that the file had before the model was loaded: an equal digest now shows an unchanged file.
        key = self._key
        if key.digest is not None and digest_of_file(key.path) == key.digest:
            try:
                self._folder.write(key.name, self._header, self._blobs, _sources_of(self._blobs, self._model, key.path))
            except EngineError as error:
                LOGGER.info("the plan of %s is not cached: %s", key.path, error)

    def _other_files(self) -> list[tuple[str, str]]:
        """Return the path relative to the model's folder, and the digest, of each further file of the model.

        Raises NotStorable if a file has changed or is outside of the folder.
        """
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
    """Return each blob's offset in the model file; -1 for small blobs and for blobs that the file does not contain."""
    from dovetail.storage.mapped_files import mapped_constants

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
    """Return the size of an array of bytes, its first 64 bytes and its last 64 bytes."""
    return data.size, data[:64].tobytes(), data[-64:].tobytes()


def _identity(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
