"""SharedProgram: a compiled program that equal mappers of a process share, with a plan that the processes of a host share."""

from __future__ import annotations

import logging
import os
import pickle
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.data.rows.constants import Constants
from dovetail.data.rows.map_outputs import MapKeys, call_with_columns
from dovetail.errors import EngineError, FormatError, MissingFileError
from dovetail.ir.host.forks import ForkLock
from dovetail.ir.host.native_core import is_compiled
from dovetail.ir.limits import Limits
from dovetail.runtime.plan_cache.cached_program import CacheKey, open_shared_program
from dovetail.storage.cache_folder import CacheFolder
from dovetail.storage.digest import digest_of_file

# Imports are deferred, because a worker that starts from a cached plan does not load the model.
if TYPE_CHECKING:
    from dovetail.ir.graph import Model

LOGGER = logging.getLogger("dovetail")
MAX_PROGRAMS = 8
"""The maximum number of programs that a process keeps; the least recently used programs are dropped."""


@dataclass(frozen=True)
class ModelContent:
    """ModelContent is the model of a mapper: a path with the digests of all files of the model, or a pickled Model."""

    digest: str
    path: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    """The files of the model, the model file first: path relative to the model's folder, and digest."""
    pickled: bytes | None = None

    def load(self, limits: Limits | None) -> Model:
        if self.path is None:
            assert self.pickled is not None
            return pickle.loads(self.pickled)  # type: ignore[no-any-return]
        from dovetail.formats import load

        return load(self.path, limits=limits)


@dataclass(frozen=True)
class ProgramOptions:
    """ProgramOptions holds the options of a program; mappers with equal content and options share one program in a process."""

    threads: int
    limits: Limits | None
    cache_dir: str | None
    constants: Constants
    """The inputs that are the same in each call."""
    maps: tuple[MapKeys, ...] = ()
    """The outputs with a map for each row, which each call returns as columns."""
    precision: str | None = None


class SharedProgram:
    """SharedProgram is a program that is compiled in its first call, or starts from the plan that another process wrote."""

    def __init__(self, content: ModelContent, options: ProgramOptions) -> None:
        self._content = content
        self._options = options
        self._constants = options.constants.arrays
        self._program: Callable[..., Any] | None = None
        self._plan = _shared_plan(content, options)
        self._lock = ForkLock()
        self.is_checked = False
        """True after a batch was checked for independence of its rows."""

    def is_compiled_from(self, content: ModelContent) -> bool:
        """Return whether the program is already compiled, or will be compiled from the path of ``content``."""
        return self._program is not None or self._content.path == content.path

    def __call__(self, inputs: dict[str, Any], out: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        program = self._program
        if program is None:
            program = self.compile(inputs)
        if self._constants:
            inputs = {**self._constants, **inputs}
        if self._options.maps:
            return call_with_columns(program, inputs, out, self._options.maps)
        return program(inputs, out=out)  # type: ignore[no-any-return]

    @property
    def call(self) -> Callable[..., Any]:
        """The fastest callable: the compiled program if it has neither constants nor maps, else this object."""
        return self if self._constants or self._options.maps else self._program or self

    def compile(self, inputs: dict[str, Any] | None) -> Callable[..., Any]:
        """Compile or load the program, and return it. ``inputs``: the inputs without the constants; None if they are unknown.

        ``inputs`` are run once if the plan must be written.
        """
        with self._lock:
            if self._program is not None:
                return self._program
            if self._plan is None:
                self._program = self._compile_alone()
                return self._program
            program, is_final = self._plan.open(None if inputs is None else {**self._constants, **inputs})
            if is_final:
                self._program, self._plan = program, None
            return program

    def _compile_alone(self) -> Callable[..., Any]:
        # Deferred import for start-up time, as for a model in memory.
        from dovetail.runtime.compilation import compile

        content, options = self._content, self._options
        if content.path is not None:
            check_files(content)
        model = content.load(options.limits) if content.path is None else content.path
        return compile(model, threads=options.threads, limits=options.limits, precision=options.precision)


def _shared_plan(content: ModelContent, options: ProgramOptions) -> _SharedPlan | None:
    """Return the shared plan in the cache folder; None without a folder, or if the default folder cannot be used."""
    if content.path is None or options.cache_dir is None or not is_compiled:
        return None
    try:
        CacheFolder(options.cache_dir)
    except EngineError as error:
        if options.cache_dir != default_cache_dir():
            raise
        LOGGER.info("plans are not shared: %s", error)
        return None
    return _SharedPlan(content, options)


class _SharedPlan:
    """_SharedPlan is the plan of a model file in a folder. One process compiles and writes it, and other processes wait."""

    def __init__(self, content: ModelContent, options: ProgramOptions) -> None:
        self._content = content
        self._limits = options.limits
        assert options.cache_dir is not None and content.path is not None
        self._options = {"threads": options.threads, "elide": "auto", "precision": options.precision}
        self._cache_dir = options.cache_dir
        self._compiled: Callable[..., Any] | None = None

    def open(self, inputs: dict[str, Any] | None) -> tuple[Callable[..., Any], bool]:
        """Return a program, and whether the program is final: it starts from a plan, or its plan cannot be written."""
        check_files(self._content, with_main=False)
        folder = CacheFolder(self._cache_dir)
        path = self._content.path
        assert path is not None
        key = CacheKey(path, self._limits, self._options)
        check_digest(self._content, 0, key.digest)
        program = open_shared_program(folder, key, self._limits, self._options, pack=False)
        if program is not None:
            return program, True
        with folder.lock(key.name) as lock:
            program = open_shared_program(folder, key, self._limits, self._options, pack=True) if lock.is_storable else None
            if program is not None:
                return program, True
            compiled = self._compiled = self._compiled or self._compile(folder, key)
            if inputs is None or not lock.is_storable:
                return compiled, not lock.is_storable
            # The first call writes the plan.
            compiled(inputs)
            program = open_shared_program(folder, key, self._limits, self._options, pack=True)
            if program is None:
                lock.refuse()
            return program or compiled, True

    def _compile(self, folder: CacheFolder, key: CacheKey) -> Callable[..., Any]:
        # Deferred import: a worker that starts from a plan compiles nothing.
        from dovetail.runtime.compilation import compile_for_cache

        return compile_for_cache(folder, key, self._limits, self._options)


def check_files(content: ModelContent, *, with_main: bool = True) -> None:
    """Raise FormatError [file.changed] if a file of the model has changed since the mapper was created."""
    assert content.path is not None
    folder = os.path.dirname(content.path)
    for number, (name, _) in enumerate(content.files):
        if number or with_main:
            check_digest(content, number, digest_of_file(os.path.join(folder, name)))


def check_digest(content: ModelContent, number: int, digest: bytes | None) -> None:
    """Compare the digest of a file with its digest at the mapper's creation.

    Raises MissingFileError [file.missing], FormatError [file.changed].
    """
    name, expected = content.files[number]
    if digest is None:
        raise MissingFileError("file.missing", f"the file {name!r} must exist for each worker process", file=content.path)
    if digest.hex() != expected:
        raise FormatError("file.changed", f"the file {name!r} was changed since the mapper was created", file=content.path)


_programs: OrderedDict[tuple[str, ProgramOptions], SharedProgram] = OrderedDict()
_programs_lock = ForkLock()


def shared_program(content: ModelContent, options: ProgramOptions) -> SharedProgram:
    """Return the program of this process for a model content and options; create it if it does not exist."""
    key = content.digest, options
    with _programs_lock:
        program = _programs.get(key)
        if program is None or not program.is_compiled_from(content):
            program = _programs[key] = SharedProgram(content, options)
            while len(_programs) > MAX_PROGRAMS:
                _programs.popitem(last=False)
        _programs.move_to_end(key)
        return program


def default_cache_dir() -> str:
    """Return the path of this user's folder of plans in the temporary folder."""
    user = os.geteuid() if hasattr(os, "geteuid") else os.environ.get("USERNAME", "user")
    return os.path.join(tempfile.gettempdir(), f"dovetail-plans-{user}")
