"""SharedProgram: one compiled program for all mappers of a process, whose plan the processes of a host share."""

from __future__ import annotations

import logging
import os
import pickle
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.errors import FormatError, MissingFileError
from dovetail.forks import ForkLock
from dovetail.limits import Limits
from dovetail.plan_cache.digest import digest_of_file

# A worker that starts from a cached plan does not load the model.
if TYPE_CHECKING:
    from dovetail.ir.graph import Model
    from dovetail.program import Program

LOGGER = logging.getLogger("dovetail")
MAX_PROGRAMS = 8
"""Programs that a process keeps; the least recently used are dropped."""


@dataclass(frozen=True)
class ModelContent:
    """A model as a mapper carries it: the path of a file with the digests of all its files, or a pickled Model."""

    digest: str
    path: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    """The other files of the model: path beside the model and digest."""
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


class SharedProgram:
    """A program that compiles in its first call."""

    def __init__(self, content: ModelContent, options: ProgramOptions) -> None:
        self._content = content
        self._options = options
        self._program: Program | None = None
        self._lock = ForkLock()
        self.is_checked = False
        """True once a batch has shown that rows are independent."""

    def __call__(self, inputs: dict[str, Any], out: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        return self.compile()(inputs, out=out)

    def compile(self) -> Program:
        """Return the program, which the first call compiles."""
        program = self._program
        if program is None:
            with self._lock:
                if self._program is None:
                    self._program = self._compile()
                program = self._program
        return program

    def _compile(self) -> Program:
        from dovetail.program import compile

        content, options = self._content, self._options
        if content.path is None:
            return compile(content.load(options.limits), threads=options.threads, limits=options.limits)
        check_files(content)
        return compile(content.path, threads=options.threads, limits=options.limits, cache_dir=options.cache_dir)


def check_files(content: ModelContent) -> None:
    """Raise FormatError [data.changed] where a file of the model is not the one of the mapper's creation."""
    assert content.path is not None
    folder = os.path.dirname(content.path)
    for name, digest in ((os.path.basename(content.path), content.files[0][1]), *content.files[1:]):
        actual = digest_of_file(os.path.join(folder, name))
        if actual is None:
            raise MissingFileError("file.missing", f"the file {name!r} must exist for each worker process", file=content.path)
        if actual.hex() != digest:
            raise FormatError("data.changed", f"the file {name!r} was changed since the mapper was created", file=content.path)


_programs: OrderedDict[tuple[str, ProgramOptions], SharedProgram] = OrderedDict()
_programs_lock = ForkLock()


def shared_program(content: ModelContent, options: ProgramOptions) -> SharedProgram:
    """Return the program of this process for a content and options."""
    key = content.digest, options
    with _programs_lock:
        program = _programs.get(key)
        if program is None:
            program = _programs[key] = SharedProgram(content, options)
            while len(_programs) > MAX_PROGRAMS:
                _programs.popitem(last=False)
        _programs.move_to_end(key)
        return program


def default_cache_dir() -> str:
    """Return the folder of plans of this user in the temporary folder."""
    user = os.geteuid() if hasattr(os, "geteuid") else os.environ.get("USERNAME", "user")
    return os.path.join(tempfile.gettempdir(), f"dovetail-plans-{user}")
