"""Write files atomically: data goes to drafts in the target folders, which are renamed when all data is on the disk.

A draft is named ``.<stem>.dovetail.<16 hex digits>.tmp``. The writing process locks the draft (flock) as long as it lives. An
unlocked draft is abandoned: its writer was killed, and the next save of the same file removes the draft. The renames of one
save happen under a lock of the folder, so that two concurrent saves do not mix their files.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Self

from dovetail.errors import FormatError
from dovetail.storage.files import NO_FOLLOW, Folder, StrPath, folder_of, parts_of, refuse_kind, refuse_nul, unreadable

try:
    import fcntl

    _HAS_LOCKS = True
except ImportError:
    # Windows has no fcntl, and an open file cannot be removed there.
    _HAS_LOCKS = False

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# The maximum length, in bytes, of the target's name within a draft's name; file systems allow names of 255 bytes.
_STEM_BYTES = 180
_DRAFT = re.compile(r"\..*\.dovetail\.[0-9a-f]{16}\.tmp", re.DOTALL)
# The maximum number of attempts to create one draft; an attempt fails only if another process removes the draft.
_NAMES = 100
# The seconds that a save waits for the renames of another save; a folder lock that is held longer is not the lock of a save.
_PATIENCE = 10.0


@contextmanager
def replace_file(path: StrPath, *, keep_drafts: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` when the ``with`` block ends normally, and is removed otherwise.

    ``keep_drafts``: do not search the folder for abandoned drafts; a search is slow in folders of very many files.
    """
    with replace_files([path], keep_drafts=keep_drafts) as (stream,):
        yield stream


@contextmanager
def replace_files(paths: Sequence[StrPath], *, keep_drafts: bool = False) -> Iterator[list[BinaryIO]]:
    """Open one new file per path; when the ``with`` block ends normally, rename all of them, ``paths[0]`` last.

    If the block raises, no file is renamed. The user chooses ``paths[0]``, which may be a link; its target is replaced. The other
    paths must be in the folder of ``paths[0]`` or below, and no step to them may be a link. Old files stay complete until the
    renames. Raises FormatError [path.missing] (the folder must exist), [path.link], [path.kind], [path.escape],
    [argument.conflict], [path.unwritable] (the system refuses, or the disk is full).
    """
    targets = _rowsof(paths)
    file = os.fspath(paths[0])
    with ExitStack() as stack:
        try:
            drafts = [stack.enter_context(_Draft(*target)) for target in targets]
            yield [draft.stream for draft in drafts]
            for draft in drafts:
                draft.flush()
            with drafts[0].lock_folder():
                for draft in reversed(drafts):
                    draft.rename()
                # Abandoned drafts are removed last: before the renames, a draft of an interrupted save may be the only model
                # file that belongs to the weights file on the disk.
                for draft in () if keep_drafts else drafts:
                    draft.remove_abandoned_drafts()
        except OSError as error:
            raise _unwritable(error, file) from None


def drafts_of(path: StrPath, limit: int) -> Iterator[tuple[bytes, bool]]:
    """Yield each readable draft of at most ``limit`` bytes for ``path``: its content, and whether its writer still runs."""
    target = os.path.realpath(os.fspath(path))
    with suppress(OSError, FormatError), Folder.walk(os.path.dirname(target), (), target) as folder:
        for name in _drafts_in(folder, os.path.basename(target)):
            with suppress(OSError, FormatError), os.fdopen(folder.open_file(name), "rb") as stream:
                if os.fstat(stream.fileno()).st_size <= limit:
                    yield stream.read(limit), not _is_free(stream.fileno())


def remove_abandoned_drafts(path: StrPath) -> None:
    """Remove all drafts directly in the folder at ``path`` whose writers were killed."""
    with suppress(OSError, FormatError), Folder.walk(os.fspath(path), (), os.fspath(path)) as folder:
        for name in os.listdir(folder.path if folder.descriptor is None else folder.descriptor):
            if _DRAFT.fullmatch(name):
                with suppress(OSError, FormatError):
                    _remove_abandoned_drafts(folder, name)


def _rowsof(paths: Sequence[StrPath]) -> list[tuple[str, tuple[str, ...], str]]:
    """Return for each path the trusted folder, the names of the folders below it, and the file name.

    A model may choose the names of the folders below the trusted folder.
    """
    main = os.fspath(paths[0])
    refuse_nul(main, main)
    target = os.path.realpath(main)
    rows: list[tuple[str, tuple[str, ...], str]] = [(os.path.dirname(target), (), os.path.basename(target))]
    root = folder_of(main)
    for path in [os.fspath(path) for path in paths[1:]]:
        refuse_nul(path, main)
        parts = parts_of(os.path.relpath(path, os.path.dirname(main) or os.curdir).replace(os.sep, "/"), file=main)
        rows.append((root, parts[:-1], parts[-1]))
    written = [os.path.join(folder, *steps, name) for folder, steps, name in rows]
    if len(set(written)) < len(written):
        raise FormatError("argument.conflict", "the files to write must have different paths", file=main)
    return rows


class _Draft:
    """_Draft is a file under a temporary name, which is later renamed or removed."""

    def __init__(self, root: str, steps: tuple[str, ...], name: str) -> None:
        self.name = name
        self.folder = Folder.walk(root, steps, os.path.join(root, *steps, name))
        try:
            self._old = self._look()
            self._create()
        except BaseException:
            self.folder.__exit__()
            raise

    def _look(self) -> os.stat_result | None:
        old = self.folder.look(self.name)
        if old is not None and stat.S_ISLNK(old.st_mode):
            raise FormatError("path.link", f"{self.name!r} must be a regular file, got a symbolic link", file=self.folder.file)
        if old is not None:
            refuse_kind(old, self.name, self.folder.file)
        return old

    def _create(self) -> None:
        # The draft of a private file is private from its creation.
        mode = 0o666 if self._old is None else stat.S_IMODE(self._old.st_mode) & 0o600 | 0o200
        for _ in range(_NAMES):
            self.draft = f".{_stem(self.name)}.dovetail.{os.urandom(8).hex()}.tmp"
            try:
                descriptor = os.open(self.folder.at(self.draft), _CREATE, mode, dir_fd=self.folder.descriptor)
            except OSError as error:
                raise _unwritable(error, self.folder.file) from None
            # Between the creation and the lock, another save may have removed the draft as an abandoned one.
            if lock_file(descriptor) and os.fstat(descriptor).st_nlink:
                break
            os.close(descriptor)
            _unlink(self.folder, self.draft)
        else:
            raise FormatError("path.unwritable", f"every draft of {self.name!r} was removed", file=self.folder.file)
        self.stream: BinaryIO = os.fdopen(descriptor, "wb")
        self.is_renamed = False

    def flush(self) -> None:
        """Flush the draft to the disk, and give it the owner and mode of the file that it replaces."""
        self.stream.flush()
        descriptor = self.stream.fileno()
        if self._old is not None and hasattr(os, "fchmod"):
            mine = os.fstat(descriptor)
            if (mine.st_uid, mine.st_gid) != (self._old.st_uid, self._old.st_gid):
                # Changing the owner needs a privilege.
                with suppress(OSError):
                    os.fchown(descriptor, self._old.st_uid, self._old.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(self._old.st_mode) & 0o777)
        os.fsync(descriptor)
        if not _HAS_LOCKS:
            # Windows cannot rename an open file.
            self.stream.close()

    @contextmanager
    def lock_folder(self) -> Iterator[None]:
        """Lock the folder against renames of other saves, where the system supports locks of folders."""
        descriptor = self.folder.descriptor
        if not _HAS_LOCKS or descriptor is None:
            yield
            return
        is_locked = _lock_within(descriptor, _PATIENCE)
        try:
            yield
        finally:
            if is_locked:
                # close() does not release the lock while a forked process shares the descriptor.
                _unlock(descriptor)

    def rename(self) -> None:
        self._look()
        folder = self.folder
        os.replace(folder.at(self.draft), folder.at(self.name), src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
        self.is_renamed = True
        if folder.descriptor is not None:
            # Some file systems cannot sync a folder; the rename itself has happened.
            with suppress(OSError):
                os.fsync(folder.descriptor)

    def remove_abandoned_drafts(self) -> None:
        """Remove drafts of this file whose writers were killed."""
        for name in _drafts_in(self.folder, self.name):
            with suppress(OSError, FormatError):
                _remove_abandoned_drafts(self.folder, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self.folder:
            # close() flushes, which fails again on a full disk; the draft is removed nevertheless.
            if not self.is_renamed and _HAS_LOCKS:
                _unlink(self.folder, self.draft)
            with suppress(OSError, ValueError):
                _unlock(self.stream.fileno())
            with suppress(OSError):
                self.stream.close()
            if not self.is_renamed and not _HAS_LOCKS:
                _unlink(self.folder, self.draft)


def _stem(name: str) -> str:
    """Return the part of a draft's name that identifies its file."""
    data = os.fsencode(name)
    if len(data) <= _STEM_BYTES:
        return name
    # Deferred for start-up time.
    import hashlib

    return os.fsdecode(data[: _STEM_BYTES // 2]) + "." + hashlib.sha256(data).hexdigest()[:32]


def _drafts_in(folder: Folder, name: str) -> list[str]:
    """Return the names of the drafts of the file ``name``, live and abandoned."""
    pattern = re.compile(re.escape(f".{_stem(name)}.dovetail.") + r"[0-9a-f]{16}\.tmp")
    with suppress(OSError):
        names = os.listdir(folder.path if folder.descriptor is None else folder.descriptor)
        return sorted(candidate for candidate in names if pattern.fullmatch(candidate))
    return []


def _remove_abandoned_drafts(folder: Folder, name: str) -> None:
    if not _HAS_LOCKS:
        _unlink(folder, name)
        return
    descriptor = folder.open_file(name)
    try:
        if _is_free(descriptor, keep=True) and _is_same(os.fstat(descriptor), folder.look(name)):
            _unlink(folder, name)
    finally:
        os.close(descriptor)


def _is_same(first: os.stat_result, second: os.stat_result | None) -> bool:
    return second is not None and (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _unlink(folder: Folder, name: str) -> None:
    with suppress(OSError):
        os.unlink(folder.at(name), dir_fd=folder.descriptor)


def lock_file(descriptor: int) -> bool:
    """Lock an open file (flock); return False if another open descriptor holds the lock, True on systems without locks."""
    if _HAS_LOCKS:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # On a file system without locks no draft counts as abandoned.
            pass
    return True


def _is_free(descriptor: int, *, keep: bool = False) -> bool:
    """Return whether a file was unlocked, by locking it. With ``keep`` the file stays locked until the descriptor is closed."""
    if not _HAS_LOCKS:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    if not keep:
        _unlock(descriptor)
    return True


def _lock_within(descriptor: int, seconds: float) -> bool:
    """Lock a file, waiting at most ``seconds`` for the lock; return whether the file is locked."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        except OSError:
            return False


def _unlock(descriptor: int) -> None:
    if _HAS_LOCKS:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _unwritable(error: OSError, file: str) -> FormatError:
    name = os.path.basename(file)
    reason = unreadable(error, name, file)
    if reason.code != "path.unreadable":
        return reason
    return FormatError("path.unwritable", f"{name!r} cannot be written: {error.strerror or error}", file=file)
