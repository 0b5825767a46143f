"""SharedProgram: one compiled program for all mappers of a process, whose plan the processes of a host share."""

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

# A worker that starts from a cached plan does not load the model.
if TYPE_CHECKING:
    from dovetail.ir.graph import Model

LOGGER = logging.getLogger("dovetail")
MAX_PROGRAMS = 8
"""Programs that a process keeps; the least recently used are dropped."""


@dataclass(frozen=True)
class ModelContent:
    """A model as a mapper carries it: the path of a file with the digests of all its files, or a pickled Model."""

    digest: str
    path: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    """The model's files, its own first: path beside the model and digest."""
    pickled: bytes | None = None

    def load(self, limits: Limits | None) -> Model:
        if self.path is None:
            assert self.pickled is not None
            return pickle.loads(self.pickled)  # type: ignore[no-any-return]
        from dovetail.formats import load

        return load(self.path, limits=limits)


@dataclass(frozen=True)
class ProgramOptions:
    """The options of a program; equal ones of equal content share one program in a process."""

    threads: int
    limits: Limits | None
    cache_dir: str | None
    constants: Constants
    """Inputs that each call has."""
    maps: tuple[MapKeys, ...] = ()
    """Outputs with a map for each row, of which each call returns columns."""


class SharedProgram:
    """A program that compiles in its first call, or starts from the plan that another process of the host wrote."""

    def __init__(self, content: ModelContent, options: ProgramOptions) -> None:
        self._content = content
        self._options = options
        self._constants = options.constants.arrays
        self._program: Callable[..., Any] | None = None
        self._plan = _shared_plan(content, options)
        self._lock = ForkLock()
        self.is_checked = False
        """True once a batch has shown that rows are independent."""

    def is_compiled_from(self, content: ModelContent) -> bool:
        """Return whether the program is compiled, or will compile the file of ``content`` and no other copy of it."""
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
        """The program itself once it is compiled, if it has neither constants nor maps."""
        return self if self._constants or self._options.maps else self._program or self

    def compile(self, inputs: dict[str, Any] | None) -> Callable[..., Any]:
        """Return the program for the shapes of ``inputs`` without the constants (None: not known)."""
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
        # Deferred for start-up time, as the model in memory.
        from dovetail.runtime.compilation import compile

        content, options = self._content, self._options
        if content.path is not None:
            check_files(content)
        model = content.load(options.limits) if content.path is None else content.path
        return compile(model, threads=options.threads, limits=options.limits)


def _shared_plan(content: ModelContent, options: ProgramOptions) -> _SharedPlan | None:
    """Return the plan in the folder; None without a folder, or where the default one cannot be used."""
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
    """The plan of a model file in a folder. One process compiles and writes it while the others wait."""

    def __init__(self, content: ModelContent, options: ProgramOptions) -> None:
        self._content = content
        self._limits = options.limits
        assert options.cache_dir is not None and content.path is not None
        self._options = {"threads": options.threads, "elide": "auto"}
        self._cache_dir = options.cache_dir
        self._compiled: Callable[..., Any] | None = None

    def open(self, inputs: dict[str, Any] | None) -> tuple[Callable[..., Any], bool]:
        """Return a program, and whether it is the one to keep: it starts from a plan, or its plan cannot be written."""
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
        # Deferred: a worker that starts from a plan compiles nothing.
        from dovetail.runtime.compilation import compile_for_cache

        return compile_for_cache(folder, key, self._limits, self._options)


def check_files(content: ModelContent, *, with_main: bool = True) -> None:
    """Raise FormatError [file.changed] where a file of the model is not the one of the mapper's creation."""
    assert content.path is not None
    folder = os.path.dirname(content.path)
    for number, (name, _) in enumerate(content.files):
        if number or with_main:
            check_digest(content, number, digest_of_file(os.path.join(folder, name)))


def check_digest(content: ModelContent, number: int, digest: bytes | None) -> None:
    """Compare the digest of a file with that of the mapper's creation. Raises FormatError [file.missing], [file.changed]."""
    name, expected = content.files[number]
    if digest is None:
        raise MissingFileError("file.missing", f"the file {name!r} must exist for each worker process", file=content.path)
    if digest.hex() != expected:
        raise FormatError("file.changed", f"the file {name!r} was changed since the mapper was created", file=content.path)


_programs: OrderedDict[tuple[str, ProgramOptions], SharedProgram] = OrderedDict()
_programs_lock = ForkLock()


def shared_program(content: ModelContent, options: ProgramOptions) -> SharedProgram:
    """Return the program of this process for a content and options."""
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
    """Return the folder of plans of this user in the temporary folder."""
    user = os.geteuid() if hasattr(os, "geteuid") else os.environ.get("USERNAME", "user")
    return os.path.join(tempfile.gettempdir(), f"dovetail-plans-{user}")
